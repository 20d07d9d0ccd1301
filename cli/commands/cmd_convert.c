/*
 * cmd_convert.c - `polyhead convert MODEL --to WHAT --out DIR`: other attention from the
 * weights a model has, and what it lost by that.
 */
#define _POSIX_C_SOURCE 200809L /* access */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "commands/cmd_convert.h"
#include "framework/json.h"
#include "framework/term.h"

/* In the order of their enums. */
static const char *const aligns[] = {"full", "pair", "none", NULL};
static const char *const groupings[] = {"similar", "consecutive", NULL};
static const char *const merges[] = {"fit", "mean", "first", "random", NULL};

#define AT(field) offsetof(convert_options, field)
static const ph_option table[] = {
    {.name = "to",
     .kind = PH_OPT_TEXT,
     .metavar = "WHAT",
     .at = AT(to),
     .help = "gqa:G (G key and value heads), mqa (one), mha (one for each head), "
             "collab:R (one query and key of size R for all heads) or a variant that has "
             "their weights: mohsa:overlap=O, talking, dcmha, gated, "
             "moh:shared=S,top=K, moh-norm:shared=S,top=K, entmax, sparsemax; "
             "those of polyhead variants, with the same options"},
    {.name = "out",
     .letter = 'o',
     .kind = PH_OPT_TEXT,
     .metavar = "DIR",
     .at = AT(out),
     .help = "write DIR/model.safetensors; without it nothing is written"},
    {.name = "data",
     .kind = PH_OPT_TEXT,
     .metavar = "FILE",
     .at = AT(data),
     .help = "texts, one in each line: half of them align the heads, the others measure "
             "the loss. Encoder-decoders: source TAB target; vision: paths; "
             "classifiers with --tune: label TAB text"},
    {.name = "max-tokens",
     .kind = PH_OPT_INT,
     .metavar = "N",
     .low = 2,
     .high = 1 << 20,
     .at = AT(max_tokens),
     .given = AT(has_max_tokens),
     .fallback = "512",
     .help = "truncate texts to N tokens"},
    {.name = "error",
     .kind = PH_OPT_REAL,
     .metavar = "X",
     .least = 0,
     .most = 1,
     .at = AT(error),
     .given = AT(has_error),
     .help = "--to collab: the smallest R that loses at most this share of the scores in "
             "every layer"},
    {.name = "align",
     .kind = PH_OPT_CHOICE,
     .choices = aligns,
     .at = AT(align),
     .given = AT(has_align),
     .fallback = "full",
     .group = "How heads are merged",
     .help = "rotate heads towards each other first: as freely as positions allow, keys "
             "only within pairs, or not at all"},
    {.name = "group",
     .kind = PH_OPT_CHOICE,
     .choices = groupings,
     .at = AT(group),
     .given = AT(has_group),
     .fallback = "similar",
     .help = "which heads are merged: similar ones, or neighbours"},
    {.name = "merge",
     .kind = PH_OPT_CHOICE,
     .choices = merges,
     .at = AT(merge),
     .given = AT(has_merge),
     .fallback = "fit",
     .help = "by least squares of scores and outputs, or as the mean of a group, its "
             "first head, random values"},
    {.name = "renorm",
     .kind = PH_OPT_FLAG,
     .at = AT(renorm),
     .help = "scale merged heads to the norm of their members"},
    {.name = "seed",
     .kind = PH_OPT_INT,
     .metavar = "N",
     .low = 0,
     .high = INT64_MAX,
     .at = AT(seed),
     .given = AT(has_seed),
     .help = "of the search for groups of more than 16 heads, and of random values"},
    {.name = "tune",
     .kind = PH_OPT_INT,
     .metavar = "STEPS",
     .low = 0,
     .high = 1 << 30,
     .at = AT(tune),
     .group = "Training afterwards",
     .help = "train the converted model on the first half of the texts"},
    {.name = "distil",
     .kind = PH_OPT_FLAG,
     .at = AT(distil),
     .help = "--tune learns the outputs of the model before its conversion"},
    {.name = "lr",
     .kind = PH_OPT_REAL,
     .metavar = "X",
     .least = 0,
     .most = 1,
     .at = AT(lr),
     .given = AT(has_lr),
     .fallback = "1e-5",
     .help = "peak learning rate of --tune; small, for weights that are good already"},
    {.name = "json",
     .kind = PH_OPT_FLAG,
     .at = AT(json),
     .group = "Output",
     .help = "one JSON object instead of text"},
    PH_MACHINE_OPTIONS(convert_options, machine),
    {.name = NULL}};

static const char *kind_name(const ph_converted_site *s)
{
    return s->kind == PH_SITE_CROSS ? "cross" : s->decoder ? "decoder" : "encoder";
}

/* ---- what was lost ----------------------------------------------------------------- */

static void print_groups(const ph_converted_site *s, int groups)
{
    for (int g = 0; s->group_of && g < groups; g++) {
        printf("%s", g ? " |" : "");
        for (int h = 0; h < s->kv_heads; h++)
            if (s->group_of[h] == g) printf(" %d", h + 1);
    }
}

/* Heads of a variant are compared by what the model makes of them, not one by one. */
static int has_errors(const ph_converted_site *s)
{
    return !isnan(s->key_error);
}

/* Copies lose nothing, shared queries and keys lose of the scores only. */
static void print_sites(const ph_conversion_report *r, int groups)
{
    int merged = r->sites[0].group_of != NULL;
    const char *bold = term_on(stdout, TERM_BOLD), *plain = term_on(stdout, TERM_PLAIN);
    printf("%slayer        %s%s\n", bold,
           merged ? "lost of keys  of values    norm of keys  of values  heads"
                  : "lost of scores",
           plain);
    for (int i = 0; i < r->site_count; i++) {
        const ph_converted_site *s = &r->sites[i];
        printf("%-8s %3d  %12.4f", kind_name(s), s->layer + 1, s->key_error);
        if (merged)
            printf("  %9.4f    %12.3f  %9.3f ", s->value_error, s->key_norm,
                   s->value_norm);
        print_groups(s, groups);
        putchar('\n');
    }
}

static void print_report(const ph_conversion_report *r, int groups,
                         const convert_tuned *t)
{
    if (has_errors(r->sites)) print_sites(r, groups), putchar('\n');
    printf("%-28s %12lld -> %lld\n", "parameters", (long long)r->parameters,
           (long long)r->converted_parameters);
    printf("%-28s %12lld -> %lld bytes\n", "keys and values of a token",
           (long long)r->kv_bytes, (long long)r->converted_kv_bytes);
    if (!r->tokens) return;
    if (!isnan(r->loss))
        printf("%-28s %12.4f -> %.4f (%+.4f)\n", "loss of a token", r->loss,
               r->converted_loss, r->converted_loss - r->loss);
    printf("%-28s %12.4f of their norm\n", "distance of the outputs", r->distance);
    printf("measured on %d tokens", r->test_tokens);
    if (has_errors(r->sites)) printf(", aligned on %d", r->tokens);
    putchar('\n');
    if (!t->steps) return;
    printf("%-28s %12.4f -> %.4f (+- %.4f) in %d steps\n", "loss of a text",
           t->before.loss.value, t->after.loss.value, t->after.loss.error, t->steps);
    printf("%-28s %12.4f -> %.4f\n",
           t->vectors ? "cosine to its own vectors" : "token accuracy",
           t->before.accuracy.value, t->after.accuracy.value);
}

static void site_json(ph_json_writer *j, const ph_converted_site *s)
{
    ph_json_begin_object(j, NULL);
    ph_json_string(j, "kind", kind_name(s));
    ph_json_integer(j, "layer", s->layer);
    if (has_errors(s)) {
        ph_json_double(j, "key_error", s->key_error);
        ph_json_double(j, "value_error", s->value_error);
        ph_json_double(j, "key_norm", s->key_norm);
        ph_json_double(j, "value_norm", s->value_norm);
    }
    if (s->group_of) {
        ph_json_begin_array(j, "groups");
        for (int h = 0; h < s->kv_heads; h++) ph_json_integer(j, NULL, s->group_of[h]);
        ph_json_end(j);
    }
    ph_json_end(j);
}

static void tuned_json(ph_json_writer *j, const convert_tuned *t)
{
    ph_json_begin_object(j, "tuned");
    ph_json_integer(j, "steps", t->steps);
    ph_json_double(j, "loss_before", t->before.loss.value);
    ph_json_double(j, "loss", t->after.loss.value);
    ph_json_double(j, "loss_error", t->after.loss.error);
    ph_json_double(j, t->vectors ? "cosine_before" : "accuracy_before",
                   t->before.accuracy.value);
    ph_json_double(j, t->vectors ? "cosine" : "accuracy", t->after.accuracy.value);
    ph_json_end(j);
}

static void print_json(const convert_options *o, const ph_conversion_report *r,
                       const convert_tuned *t)
{
    ph_json_writer j = json_begin("polyhead.convert/1");
    ph_json_string(&j, "to", o->to);
    ph_json_integer(&j, "parameters", r->parameters);
    ph_json_integer(&j, "converted_parameters", r->converted_parameters);
    ph_json_integer(&j, "kv_bytes", r->kv_bytes);
    ph_json_integer(&j, "converted_kv_bytes", r->converted_kv_bytes);
    ph_json_integer(&j, "tokens", r->tokens);
    ph_json_integer(&j, "test_tokens", r->test_tokens);
    if (!isnan(r->loss)) {
        ph_json_double(&j, "loss", r->loss);
        ph_json_double(&j, "converted_loss", r->converted_loss);
    }
    if (r->tokens) ph_json_double(&j, "distance", r->distance);
    ph_json_begin_array(&j, "sites");
    for (int i = 0; i < r->site_count; i++) site_json(&j, &r->sites[i]);
    ph_json_end(&j);
    if (t->steps) tuned_json(&j, t);
    json_end(&j);
}

/* ---- the command ------------------------------------------------------------------- */

static int convert(encoder_input *in, const convert_options *o, const char *const *pairs,
                   ph_conversion_report **report)
{
    ph_conversion how = {.align = (ph_alignment)o->align,
                         .group = (ph_grouping)o->group,
                         .merge = (ph_merging)o->merge,
                         .renorm = o->renorm,
                         .error = o->error,
                         .max_tokens = (int)o->max_tokens,
                         .seed = (uint64_t)o->seed};
    const ph_texts texts = {.texts = in->texts, .pairs = pairs, .count = in->count};
    if (strlen(o->to) >= sizeof how.to)
        return cli_fail(EXIT_USAGE,
                        "--to is too long, expected gqa:G, mqa, mha, collab:R or a "
                        "variant");
    strcpy(how.to, o->to);
    ph_status status = ph_convert(in->m, &how, in->count ? &texts : NULL, report);
    return status == PH_OK ? EXIT_OK : cli_fail_status(status, in->ctx);
}

static int convert_and_show(encoder_input *in, const convert_options *o, const char *path)
{
    ph_conversion_report *report = NULL;
    const char **pairs = NULL;
    convert_tuned tuned = {0};
    const ph_config *c = ph_model_config(in->m);
    int rc = EXIT_OK;
    if (in->count && c->arch == PH_ARCH_ENCODER_DECODER)
        rc = encoder_pairs(in, "source TAB target", &pairs);
    if (o->tune && c->classes && c->pooling && !c->image_size)
        rc = encoder_labels(in, &pairs);
    if (!rc) rc = convert(in, o, pairs, &report);
    if (!rc && o->tune) rc = convert_tune(in, o, path, pairs, &tuned);
    if (!rc && o->out) rc = encoder_write(in, o->out);
    if (!rc && o->json) print_json(o, report, &tuned);
    if (!rc && !o->json) print_report(report, ph_model_config(in->m)->kv_heads, &tuned);
    ph_conversion_report_free(report);
    free(pairs);
    return rc;
}

/* All else is not merged: what says how would be read by nothing. */
static int check(const convert_options *o)
{
    int merged = !strcmp(o->to, "mqa") || !strncmp(o->to, "gqa", 3);
    const cli_idle idle[] = {
        {o->tune && !o->data, "--tune needs --data FILE"},
        {o->distil && !o->tune, "--distil needs --tune STEPS"},
        {o->has_lr && !o->tune, "--lr needs --tune STEPS"},
        {o->has_max_tokens && !o->data, "--max-tokens needs --data FILE"},
        {o->has_error && strcmp(o->to, "collab"),
         "--error goes with --to collab only, which then finds R"},
        {o->has_align && !merged, "--align goes with --to gqa:G and mqa only"},
        {o->has_group && !merged, "--group goes with --to gqa:G and mqa only"},
        {o->has_merge && !merged, "--merge goes with --to gqa:G and mqa only"},
        {o->renorm && !merged, "--renorm goes with --to gqa:G and mqa only"},
        {o->has_seed && !merged && !o->tune,
         "--seed goes with --to gqa:G and mqa, or with --tune"},
        {0, NULL}};
    return cli_refuse_idle(idle);
}

static int run(const void *chosen, int count, const char *const *words)
{
    const convert_options *o = chosen;
    encoder_input in = {0};
    (void)count;
    if (!o->to)
        return cli_fail(EXIT_USAGE, "convert needs --to gqa:G, mqa, mha, collab:R or a "
                                    "variant");
    int rc = check(o);
    if (!rc) rc = encoder_check_out(o->out);
    if (!rc) rc = encoder_open(&in, words[0], &o->machine);
    if (!rc) rc = convert_check_tune(&in, o);
    if (!rc && o->data) rc = encoder_texts(&in, 0, NULL, o->data, ENCODER_NO_BLANKS);
    if (!rc) rc = convert_and_show(&in, o, words[0]);
    encoder_close(&in);
    return rc;
}

static const char *const examples[] = {
    "polyhead convert stories15M.bin --to gqa:3 --data stories.txt --out small",
    "half the key and value heads, aligned before they are merged",
    "polyhead convert small --to mha --out large",
    "back to one key and value head for each head, which changes nothing",
    "polyhead convert all-MiniLM-L6-v2 --to collab:192 --data sentences.txt",
    "what a shared query and key of half the size would lose",
    "polyhead convert all-MiniLM-L6-v2 --to mohsa:overlap=4 --data sentences.txt --tune "
    "300 --distil --out overlapping",
    "heads that see four elements of their neighbours, trained to give the old vectors",
    NULL};

const ph_command command_convert = {
    .name = "convert",
    .summary = "other attention from the weights a model has",
    .usage = "MODEL --to WHAT [--data FILE] [--out DIR] [options]",
    .about =
        "Fewer key and value heads make the cache of a decoder smaller. Heads that are "
        "to be one are first rotated towards each other, in ways that change nothing, "
        "and then merged (docs/SURGERY.md). The report says for every layer what share "
        "of its keys and values was lost on the texts, how short merged heads are "
        "compared with their members, and which heads went together; then the loss "
        "before and after, on texts that alignment has not seen. A variant keeps the "
        "weights of the heads, and what it adds begins so that as little as possible "
        "changes. --tune trains the "
        "result for some steps; for more, polyhead train text FILE --from DIR.",
    .examples = examples,
    .options = table,
    .size = sizeof(convert_options),
    .word = "MODEL",
    .fewest_words = 1,
    .most_words = 1,
    .run = run};
