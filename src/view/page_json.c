/*
 * page_json.c - the description of a page: words, measures and roles of heads, and
 * offsets of their arrays; and packing as a whole.
 *
 * Keys are short and fixed: web/data.js reads them. The text may be inside a script
 * element, so the writer escapes what could end it.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "io/io.h"
#include "io/json_write.h"
#include "polyhead_heads.h"
#include "view/page_parts.h"
#include "view/palette.h"

/* ---- parts of the description ---- */

static void text(ph_json_writer *out, const char *key, const char *value)
{
    ph_json_string(out, key, value ? value : "");
}

static void floats(ph_json_writer *out, const char *key, const float *values,
                   size_t count)
{
    if (!values) return;
    ph_json_begin_array(out, key);
    for (size_t i = 0; i < count; i++) ph_json_float(out, NULL, values[i]);
    ph_json_end(out);
}

static void bytes(ph_json_writer *out, const char *key, const uint8_t *values, int count)
{
    if (!values) return;
    ph_json_begin_array(out, key);
    for (int i = 0; i < count; i++) ph_json_integer(out, NULL, values[i]);
    ph_json_end(out);
}

static void describe_axes(ph_json_writer *out, const ph_report *report)
{
    ph_json_begin_array(out, "axes");
    for (int a = 0; a < report->axis_count; a++) {
        const ph_axis *axis = &report->axes[a];
        ph_json_begin_object(out, NULL);
        text(out, "name", axis->name);
        ph_json_begin_array(out, "tokens");
        for (int i = 0; i < axis->count; i++) ph_json_string(out, NULL, axis->tokens[i]);
        ph_json_end(out);
        bytes(out, "unknown", axis->unknown, axis->count);
        ph_json_end(out);
    }
    ph_json_end(out);
}

static void describe_labels(ph_json_writer *out, const ph_report *report)
{
    ph_json_begin_array(out, "metrics");
    for (int i = 0; i < report->metric_count; i++) {
        const ph_metric *m = &report->metrics[i];
        ph_json_begin_object(out, NULL);
        text(out, "key", m->key);
        text(out, "name", m->name);
        text(out, "help", m->help);
        ph_json_float(out, "threshold", m->threshold);
        ph_json_end(out);
    }
    ph_json_end(out);
    ph_json_begin_array(out, "roles");
    for (int i = 0; i < report->role_count; i++) {
        const ph_role *role = &report->roles[i];
        char glyph[2] = {role->glyph, 0};
        ph_json_begin_object(out, NULL);
        text(out, "glyph", glyph);
        text(out, "key", role->key);
        text(out, "name", role->name);
        text(out, "help", role->help);
        ph_json_end(out);
    }
    ph_json_end(out);
}

static void describe_outcomes(ph_json_writer *out, const ph_report *report)
{
    text(out, "outcomeTitle", report->outcome_title);
    ph_json_begin_array(out, "outcomes");
    for (int i = 0; i < report->outcome_count; i++) {
        ph_json_begin_object(out, NULL);
        text(out, "text", report->outcomes[i].text);
        ph_json_float(out, "value", report->outcomes[i].value);
        ph_json_integer(out, "about", report->outcomes[i].about);
        if (report->outcomes[i].relation)
            text(out, "relation", report->outcomes[i].relation);
        ph_json_end(out);
    }
    ph_json_end(out);
}

/* One list of offsets, e.g. of the maps of all heads of a stack. */
static void describe_places(ph_json_writer *out, const char *key, const int64_t *first,
                            int count)
{
    const size_t step = sizeof(ph_page_place) / sizeof(int64_t);
    ph_json_begin_array(out, key);
    for (int i = 0; i < count; i++) ph_json_integer(out, NULL, first[(size_t)i * step]);
    ph_json_end(out);
}

static void describe_numbers(ph_json_writer *out, const ph_report *report,
                             const ph_stack *k)
{
    int heads = k->layers * k->heads;
    bytes(out, "absent", k->absent, heads);
    bytes(out, "role", k->role, heads);
    floats(out, "scores", k->scores, (size_t)heads * (size_t)report->metric_count);
    floats(out, "offsets", k->offsets, (size_t)heads * (size_t)(2 * k->reach + 1));
    floats(out, "effect", k->effect, (size_t)heads);
    floats(out, "contribution", k->contribution, (size_t)heads);
    floats(out, "share", k->share, (size_t)heads * (size_t)report->axes[k->q_axis].count);
    if (k->circuit) {
        ph_json_begin_array(out, "circuit");
        for (int i = 0; i < heads; i++) text(out, NULL, k->circuit[i]);
        ph_json_end(out);
    }
    if (!k->why) return;
    ph_json_begin_array(out, "why");
    for (int i = 0; i < heads; i++) text(out, NULL, k->why[i]);
    ph_json_end(out);
}

static void describe_stack(ph_json_writer *out, const ph_page_parts *parts, int r, int s)
{
    const ph_report *report = parts->source->reports[r];
    const ph_stack *k = &report->stacks[s];
    const ph_page_place *place = ph_page_place_of(parts, r, s, 0, 0);
    int heads = k->layers * k->heads;
    ph_json_begin_object(out, NULL);
    text(out, "name", k->name);
    ph_json_integer(out, "layers", k->layers);
    ph_json_integer(out, "heads", k->heads);
    ph_json_integer(out, "kvHeads", k->kv_heads ? k->kv_heads : k->heads);
    ph_json_integer(out, "q", k->q_axis);
    ph_json_integer(out, "k", k->k_axis);
    ph_json_bool(out, "causal", k->causal);
    ph_json_integer(out, "offset", k->q_offset);
    ph_json_integer(out, "reach", k->reach);
    ph_json_integer(out, "dim", k->qk_dim);
    ph_json_float(out, "scale", k->scale);
    ph_json_integer(out, "pair", k->pair_step);
    describe_numbers(out, report, k);
    describe_places(out, "maps", &place->map, heads);
    describe_places(out, "thumbs", &place->thumb, heads);
    describe_places(out, "vectors", &place->vectors, heads);
    ph_json_integer(out, "norms", parts->norms[r][s]);
    ph_json_end(out);
}

/* What the first row, of the class token, draws from each token through all layers. */
static void describe_rollout(ph_json_writer *out, const ph_report *report)
{
    size_t keys = (size_t)report->axes[0].count;
    float *row = ph_io_alloc(NULL, keys * sizeof *row);
    if (row && ph_rollout(report, 0, 0, row, NULL) == PH_OK)
        floats(out, "rollout", row, keys);
    ph_io_release(NULL, row);
}

/* The pixels as base64. */
static void describe_picture(ph_json_writer *out, const ph_report *report)
{
    size_t side = (size_t)report->picture_side;
    ph_bytes pixels = {0};
    if (!report->patch_columns || !report->picture) return;
    ph_bytes_base64(&pixels, report->picture, 3 * side * side);
    ph_bytes_add(&pixels, "", 1);
    ph_json_begin_object(out, "picture");
    ph_json_integer(out, "first", report->patch_first);
    ph_json_integer(out, "columns", report->patch_columns);
    ph_json_integer(out, "side", report->picture_side);
    describe_rollout(out, report);
    text(out, "rgb", pixels.status == PH_OK ? (const char *)pixels.data : "");
    ph_json_end(out);
    ph_bytes_free(&pixels);
}

static void describe_report(ph_json_writer *out, const ph_page_parts *parts, int r)
{
    const ph_report *report = parts->source->reports[r];
    ph_json_begin_object(out, NULL);
    text(out, "title", report->title);
    text(out, "text", report->text);
    text(out, "found", report->found);
    describe_axes(out, report);
    describe_picture(out, report);
    describe_labels(out, report);
    describe_outcomes(out, report);
    if (report->loss) ph_json_float(out, "loss", *report->loss);
    if (report->divergence) ph_json_float(out, "divergence", *report->divergence);
    if (report->cosine) ph_json_float(out, "cosine", *report->cosine);
    ph_json_begin_array(out, "stacks");
    for (int s = 0; s < report->stack_count; s++) describe_stack(out, parts, r, s);
    ph_json_end(out);
    ph_json_end(out);
}

/* Initial edits, as the page sends them. */
static void describe_edits(ph_json_writer *out, const ph_live *live)
{
    static const char *const kinds[] = {"zero", "mean", "gate"};
    ph_json_begin_array(out, "edits");
    for (int n = 0; n < live->edit_count; n++) {
        const ph_edit *edit = &live->edits[n];
        ph_json_begin_object(out, NULL);
        text(out, "kind", kinds[edit->kind]);
        ph_json_integer(out, "stack", edit->stack);
        ph_json_integer(out, "layer", edit->layer);
        ph_json_integer(out, "head", edit->head);
        if (edit->kind == PH_EDIT_GATE) ph_json_float(out, "gate", edit->gate);
        ph_json_end(out);
    }
    ph_json_end(out);
}

static void describe_names(ph_json_writer *out, const char *key, const char *const *names)
{
    ph_json_begin_array(out, key);
    while (*names) text(out, NULL, *names++);
    ph_json_end(out);
}

static void describe_measuring(ph_json_writer *out, const ph_live_measuring *how)
{
    ph_json_begin_object(out, "measuring");
    describe_names(out, "methods", how->methods);
    if (how->data_texts) describe_names(out, "dataMethods", how->data_methods);
    ph_json_integer(out, "dataTexts", how->data_texts);
    if (how->command) text(out, "command", how->command);
    ph_json_end(out);
}

/* What may be requested. */
static void describe_live(ph_json_writer *out, const ph_live *live)
{
    static const struct {
        const char *name;
        unsigned bit;
    } abilities[] = {{"zero", 1u << PH_EDIT_ZERO}, {"mean", 1u << PH_EDIT_MEAN},
                     {"gate", 1u << PH_EDIT_GATE}, {"mask", 1u << PH_EDIT_MASK},
                     {"frozen", PH_LIVE_FROZEN},   {"save", PH_LIVE_SAVE},
                     {"text", PH_LIVE_TEXT},       {"target", PH_LIVE_TARGET},
                     {"words", PH_LIVE_WORDS},     {"picture", PH_LIVE_PICTURE},
                     {"sound", PH_LIVE_SOUND}};
    ph_json_begin_object(out, "live");
    for (size_t i = 0; i < sizeof abilities / sizeof *abilities; i++)
        ph_json_bool(out, abilities[i].name, (live->can & abilities[i].bit) != 0);
    describe_edits(out, live);
    text(out, "firstTarget", live->target);
    ph_json_bool(out, "byWords", live->words);
    if (live->measuring) describe_measuring(out, live->measuring);
    ph_json_end(out);
}

/* ---- what was measured ---- */

void ph_page_describe_measured(ph_bytes *json, const ph_live_measured *m)
{
    ph_json_writer out = {.write = ph_bytes_write, .user = json};
    ph_json_begin_object(&out, NULL);
    ph_json_integer(&out, "done", m->done);
    ph_json_integer(&out, "of", m->of);
    if (m->of && m->done == m->of) {
        text(&out, "method", m->method);
        ph_json_integer(&out, "texts", m->texts);
        ph_json_bool(&out, "data", m->data);
        if (m->worth) {
            floats(&out, "worth", m->worth, (size_t)m->heads);
            floats(&out, "error", m->error, (size_t)m->heads);
        } else {
            floats(&out, "loss", m->loss, 2);
            floats(&out, "accuracy", m->accuracy, 2);
            ph_json_float(&out, "divergence", m->divergence);
        }
    }
    ph_json_end(&out);
}

static void colours(ph_json_writer *out, const char *key, const uint32_t *values,
                    int count)
{
    char hex[8];
    ph_json_begin_array(out, key);
    for (int i = 0; i < count; i++) {
        snprintf(hex, sizeof hex, "#%06x", (unsigned)values[i] & 0xffffffu);
        text(out, NULL, hex);
    }
    ph_json_end(out);
}

/* Each list for light and for dark paper. */
static void describe_palette(ph_json_writer *out)
{
    static const char *const names[] = {"light", "dark"};
    ph_json_begin_object(out, "palette");
    for (int paper = 0; paper < 2; paper++) {
        uint32_t roles[PH_ROLE_COLORS];
        for (int i = 0; i < PH_ROLE_COLORS; i++)
            roles[i] = paper ? ph_colors.roles[i].dark : ph_colors.roles[i].light;
        ph_json_begin_object(out, names[paper]);
        colours(out, "ramp", ph_colors.ramp[paper], PH_RAMP);
        colours(out, "diverging", ph_colors.diverging[paper], PH_DIVERGING);
        colours(out, "roles", roles, PH_ROLE_COLORS);
        ph_json_end(out);
    }
    ph_json_end(out);
}

void ph_page_describe(const ph_page_parts *parts, ph_bytes *json)
{
    static const char *const modes[] = {"f32", "dec", "top", "live"};
    ph_json_writer out = {.write = ph_bytes_write, .user = json, .in_html = 1};
    ph_json_begin_object(&out, NULL);
    text(&out, "schema", "polyhead.page/1");
    text(&out, "mode", modes[parts->plan.mode]);
    ph_json_integer(&out, "top", parts->plan.top);
    ph_json_integer(&out, "colBytes", parts->plan.col_bytes);
    ph_json_integer(&out, "side", parts->plan.side);
    ph_json_integer(&out, "bytes", (int64_t)parts->blob->count);
    ph_json_begin_array(&out, "first");
    ph_json_integer(&out, NULL, parts->source->page.stack);
    ph_json_integer(&out, NULL, parts->source->page.layer);
    ph_json_integer(&out, NULL, parts->source->page.head);
    ph_json_end(&out);
    describe_palette(&out);
    if (parts->source->live) describe_live(&out, parts->source->live);
    ph_json_begin_array(&out, "reports");
    for (int r = 0; r < parts->source->count; r++) describe_report(&out, parts, r);
    ph_json_end(&out);
    ph_json_end(&out);
}

/* ---- packing as a whole ---- */

static ph_status take_places(ph_page_parts *parts)
{
    for (int r = 0; r < parts->source->count; r++) {
        const ph_report *report = parts->source->reports[r];
        size_t heads = 0, stacks = (size_t)report->stack_count;
        for (size_t s = 0; s < stacks; s++)
            heads += (size_t)report->stacks[s].layers * (size_t)report->stacks[s].heads;
        ph_page_place *places = ph_io_alloc(parts->source->io, heads * sizeof *places);
        parts->places[r] = places;
        parts->norms[r] = ph_io_alloc(parts->source->io, stacks * sizeof(int64_t));
        if (!places || !parts->norms[r])
            return ph_io_no_memory(parts->source->io, heads * sizeof *places, "places");
        for (size_t i = 0; i < heads; i++) places[i] = (ph_page_place){-1, -1, -1};
        for (size_t s = 0; s < stacks; s++) parts->norms[r][s] = -1;
    }
    return PH_OK;
}

ph_status ph_page_pack(const ph_page_source *source, ph_bytes *json, ph_bytes *blob)
{
    ph_page_parts parts = {
        .source = source, .plan = ph_page_make_plan(source), .blob = blob};
    ph_status status = take_places(&parts);
    if (!status) status = ph_page_pack_arrays(&parts);
    if (!status) {
        ph_page_describe(&parts, json);
        status = json->status;
    }
    for (int r = 0; r < source->count; r++) {
        ph_io_release(source->io, parts.places[r]);
        ph_io_release(source->io, parts.norms[r]);
    }
    return status;
}
