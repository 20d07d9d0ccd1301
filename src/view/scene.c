/*
 * scene.c - a model that has read a text or a picture, as a report; see polyhead_scene.h.
 */
#include "polyhead_scene.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "io/io.h"
#include "model/model.h"
#include "polyhead_train.h"
#include "view/scene_heads.h"
#include "view/absent.h"

enum { KINDS = 4, MAX_OUTCOMES = 64, OUTCOME_TEXT = 80, NEXT_TOKENS = 10 };

/* Words of one text. */
typedef struct words {
    char *bytes;
    const char **list;
    int32_t *ids;
    uint8_t *unknown; /* 1: not in the vocabulary */
    int count;
} words;

struct ph_scene {
    ph_io hooks;
    const ph_model *model;
    const ph_reading *reading;
    char *title, *text;
    int shown;        /* 0: only measured */
    uint8_t *picture; /* or NULL */
    words words[2];   /* of the encoder or the only stack, of the decoder */
    ph_axis axes[2];
    int axis_count;
    ph_stack stacks[KINDS];
    int *sites[KINDS]; /* attention site of each layer; -1: it has no head any more */
    uint8_t *absent[KINDS]; /* (layers, heads), of a model that lost heads; or NULL */
    float *norms[KINDS], *contributions[KINDS];
    char *circuit_text[KINDS];
    const char **circuits[KINDS];
    float *share; /* (words) of the pointer: all 1 */
    int stack_count;
    char outcome_text[MAX_OUTCOMES][OUTCOME_TEXT];
    ph_outcome outcomes[MAX_OUTCOMES];
    int outcome_count;
    float loss, divergence, cosine; /* NaN: not known */
};

static void *take(ph_scene *s, size_t count, size_t item)
{
    size_t bytes = 0;
    if (ph_size_mul(count, item, &bytes)) return NULL;
    void *memory = ph_io_alloc(&s->hooks, bytes);
    if (memory) memset(memory, 0, bytes);
    return memory;
}

static char *copy(ph_scene *s, const char *text)
{
    size_t length = strlen(text ? text : "");
    char *to = take(s, length + 1, 1);
    if (to) memcpy(to, text ? text : "", length);
    return to;
}

/* ---- words ---- */

/* A word as in the text; special tokens and generated words by their token. */
static ph_status copy_words(ph_scene *s, int side, const char *text)
{
    words *w = &s->words[side];
    size_t bytes = 0;
    int count = ph_reading_length(s->reading, side);
    for (int i = 0; i < count; i++) {
        const ph_word *word = ph_reading_word(s->reading, side, i);
        size_t token = strlen(ph_model_token(s->model, word->token));
        bytes += 1 + (word->length > 0 ? (size_t)word->length : token);
    }
    w->bytes = take(s, bytes, 1);
    w->list = take(s, (size_t)count, sizeof *w->list);
    w->ids = take(s, (size_t)count, sizeof *w->ids);
    w->unknown = take(s, (size_t)count, 1);
    if (!w->bytes || !w->list || !w->ids || !w->unknown) return PH_OUT_OF_MEMORY;
    char *at = w->bytes;
    for (int i = 0; i < count; i++) {
        const ph_word *word = ph_reading_word(s->reading, side, i);
        const char *token = ph_model_token(s->model, word->token);
        const char *from = word->length > 0 && text ? text + word->start : token;
        size_t length = from == token ? strlen(token) : (size_t)word->length;
        memcpy(at, from, length);
        w->list[i] = at, w->ids[i] = word->token;
        w->unknown[i] = !ph_model_knows(s->model, word->token);
        at += length + 1;
    }
    w->count = count;
    return PH_OK;
}

/* Class tokens, then patches by row and column, "r2c5"; frames of sound by number. */
static ph_status name_rows(ph_scene *s)
{
    enum { NAME = 32 };
    const ph_config *c = ph_model_config(s->model);
    words *w = &s->words[0];
    int columns = c->mels ? 1 : c->image_size / c->patch_size;
    int count = ph_reading_length(s->reading, 0);
    w->bytes = take(s, (size_t)count, NAME);
    w->list = take(s, (size_t)count, sizeof *w->list);
    w->ids = take(s, (size_t)count, sizeof *w->ids);
    if (!w->bytes || !w->list || !w->ids) return PH_OUT_OF_MEMORY;
    for (int i = 0; i < count; i++) {
        char *name = w->bytes + (size_t)i * NAME;
        int patch = i - c->class_tokens;
        if (c->mels)
            snprintf(name, NAME, "%d", i + 1);
        else if (patch < 0)
            snprintf(name, NAME, "%s", i ? "[DIST]" : "[CLS]");
        else
            snprintf(name, NAME, "r%dc%d", patch / columns + 1, patch % columns + 1);
        w->list[i] = name, w->ids[i] = i;
    }
    w->count = count;
    if (!c->image_size) return PH_OK;
    s->picture = take(s, 3 * (size_t)c->image_size, (size_t)c->image_size);
    return s->picture ? ph_reading_picture(s->reading, s->picture) : PH_OUT_OF_MEMORY;
}

static ph_status name_axes(ph_scene *s, const char *text, const char *target)
{
    int both = ph_model_config(s->model)->arch == PH_ARCH_ENCODER_DECODER;
    int picture = ph_model_config(s->model)->image_size > 0;
    int rows = picture || ph_model_config(s->model)->mels > 0;
    ph_status status = rows ? name_rows(s) : copy_words(s, 0, text);
    if (status == PH_OK && both) status = copy_words(s, 1, target);
    s->axis_count = 1 + both;
    for (int a = 0; a < s->axis_count; a++)
        s->axes[a] = (ph_axis){.name = a         ? "target"
                                       : both    ? "source"
                                       : picture ? "picture"
                                                 : "text",
                               .tokens = s->words[a].list,
                               .count = s->words[a].count,
                               .unknown = s->words[a].unknown};
    return status;
}

/* ---- stacks ---- */

/* The stack of an attention site: encoder, decoder, cross, links. */
static int kind_of(const ph_scene *s, const ph_site *site)
{
    int decoder = site->decoder || ph_model_config(s->model)->arch == PH_ARCH_DECODER;
    if (site->kind == PH_SITE_LINK) return 3;
    if (site->kind == PH_SITE_CROSS) return 2;
    return decoder;
}

static ph_stack describe_stack(const ph_scene *s, const ph_site *site, int kind)
{
    static const char *const names[] = {"encoder", "decoder", "cross", "links"};
    const ph_config *config = ph_model_config(s->model);
    int rope = config->positions == PH_POS_ROPE && site->kind == PH_SITE_SELF;
    int lost = s->model->kept.removed != NULL && site->kind != PH_SITE_LINK;
    float scale = config->attn_scale;
    return (ph_stack){.name = names[kind],
                      .heads = lost ? config->heads : site->heads,
                      .kv_heads = lost ? config->kv_heads : site->kv_heads,
                      .q_axis = site->decoder != 0,
                      .k_axis = site->decoder != 0 && site->kind != PH_SITE_CROSS,
                      .causal = kind == 1,
                      .qk_dim = site->qk_dim,
                      .scale = scale != 0 ? scale : 1 / sqrtf((float)site->qk_dim),
                      .pair_step = rope ? site->qk_dim / 2 : 0};
}

/* Not every variant has one query and one key per head and token. */
static int has_vectors(const ph_scene *s, int site)
{
    return ph_reading_vectors(s->reading, site, 0, NULL, NULL, NULL, NULL) == PH_OK;
}

static ph_status list_stacks(ph_scene *s)
{
    const ph_site *site;
    const ph_config *c = ph_model_config(s->model);
    int count = c->layers + c->decoder_layers;
    while (ph_reading_site(s->reading, count)) count++;
    for (int kind = 0; kind < KINDS; kind++) {
        int *sites = take(s, (size_t)count, sizeof *sites), layers = 0;
        int lost = s->model->kept.removed != NULL && kind < 3;
        ph_stack stack = {0};
        if (!sites) return PH_OUT_OF_MEMORY;
        for (int i = 0; i < count; i++) sites[i] = -1;
        s->sites[s->stack_count] = sites;
        for (int i = 0; (site = ph_reading_site(s->reading, i)) != NULL; i++) {
            if (kind_of(s, site) != kind) continue;
            int shown = layers == 0 || stack.qk_dim > 0;
            stack = describe_stack(s, site, kind);
            if (!shown || !has_vectors(s, i)) stack.qk_dim = 0;
            sites[lost ? site->layer : layers] = i;
            layers++;
        }
        if (layers == 0) {
            ph_io_release(&s->hooks, sites);
            s->sites[s->stack_count] = NULL;
            continue;
        }
        stack.layers = !lost ? layers : kind ? c->decoder_layers : c->layers;
        s->stacks[s->stack_count++] = stack;
        if (lost)
            PH_TRY(ph_absent_mark(s->reading, sites, &s->absent[kind], &s->hooks,
                                  &s->stacks[s->stack_count - 1]));
    }
    return PH_OK;
}

/* ---- what heads write ---- */

static ph_status fill_circuits(ph_scene *s, int stack, const ph_scene_stack *at)
{
    ph_stack *k = &s->stacks[stack];
    size_t heads = (size_t)k->layers * (size_t)k->heads;
    char *text = s->circuit_text[stack] = take(s, heads, PH_CIRCUIT_TEXT);
    const char **list = s->circuits[stack] = take(s, heads, sizeof *list);
    const words *w = &s->words[k->q_axis];
    if (!text || !list) return PH_OUT_OF_MEMORY;
    ph_status status = ph_scene_circuits(at, w->ids, w->count, text);
    for (size_t n = 0; n < heads; n++) list[n] = text + n * PH_CIRCUIT_TEXT;
    if (status == PH_OK) k->circuit = list;
    return status == PH_OUT_OF_MEMORY ? status : PH_OK;
}

/* Not every variant has values and one output matrix; then both are not known. */
static ph_status fill_written(ph_scene *s, int stack)
{
    ph_stack *k = &s->stacks[stack];
    size_t heads = (size_t)k->layers * (size_t)k->heads;
    size_t keys = (size_t)s->axes[k->k_axis].count;
    const ph_scene_stack at = {s->model, s->reading, s->sites[stack],
                               k,        (int)keys,  &s->hooks};
    s->norms[stack] = take(s, heads * keys, sizeof **s->norms);
    s->contributions[stack] = take(s, heads, sizeof **s->contributions);
    if (!s->norms[stack] || !s->contributions[stack]) return PH_OUT_OF_MEMORY;
    ph_status status = ph_scene_norms(&at, s->norms[stack]);
    if (status == PH_OK) k->value_norm = s->norms[stack];
    if (status == PH_OUT_OF_MEMORY) return status;
    status = ph_scene_contributions(&at, s->contributions[stack]);
    if (status == PH_OK) k->contribution = s->contributions[stack];
    if (status == PH_OUT_OF_MEMORY) return status;
    return fill_circuits(s, stack, &at);
}

/* ---- answers ---- */

/* The text of one more outcome; NULL: there are enough. */
static char *next_outcome(ph_scene *s, float value, int about)
{
    if (s->outcome_count == MAX_OUTCOMES) return NULL;
    char *text = s->outcome_text[s->outcome_count];
    s->outcomes[s->outcome_count++] = (ph_outcome){text, value, about, NULL};
    return text;
}

/* Every word that belongs to another one, with its probability. Of a word that is not in
   the vocabulary the model sees only where it stands: that is a guess, not an answer. */
static void list_links(ph_scene *s, const float *p, const int *best, const int *relation)
{
    const words *w = &s->words[0];
    for (int i = 0; i < w->count; i++) {
        float value = p[(size_t)i * (size_t)w->count + (size_t)best[i]];
        if (best[i] == i || w->unknown[i] || w->unknown[best[i]]) continue;
        char *text = next_outcome(s, value, i);
        if (!text) break;
        snprintf(text, OUTCOME_TEXT, "%.36s -> %.36s", w->list[i], w->list[best[i]]);
        if (s->shown)
            s->outcomes[s->outcome_count - 1].relation = ph_link_name(relation[i], value);
    }
}

static ph_status answer_links(ph_scene *s)
{
    size_t count = (size_t)s->words[0].count;
    float *p = take(s, count * count, sizeof *p);
    int *best = take(s, 2 * count, sizeof *best);
    const char **tokens = take(s, count, sizeof *tokens);
    if (!s->share) s->share = take(s, count, sizeof *s->share);
    s->stacks[s->stack_count - 1].share = s->share;
    ph_status status = p && best && tokens && s->share ? PH_OK : PH_OUT_OF_MEMORY;
    if (status == PH_OK) status = ph_reading_links(s->reading, p);
    if (status == PH_OK)
        status = ph_scene_links(s->model, s->words[0].ids, (int)count, p, tokens, best);
    for (size_t i = 0; i < count && status == PH_OK; i++)
        s->share[i] = 1; /* the pointer, the only head of the last stack, answers */
    if (status == PH_OK) list_links(s, p, best, best + count);
    ph_io_release(&s->hooks, (void *)tokens);
    ph_io_release(&s->hooks, best);
    ph_io_release(&s->hooks, p);
    return status;
}

/* Of every token but the first, given those before it. */
static float mean_loss(const words *w, const float *log_p, size_t vocab)
{
    double sum = 0;
    for (int i = 1; i < w->count; i++)
        sum -= log_p[(size_t)(i - 1) * vocab + (size_t)w->ids[i]];
    return w->count > 1 ? (float)(sum / (w->count - 1)) : NAN;
}

/* The likeliest tokens of a row, which are taken out of it. */
static void list_tokens(ph_scene *s, float *row, size_t vocab)
{
    for (int n = 0; n < NEXT_TOKENS && (size_t)n < vocab; n++) {
        size_t best = 0;
        for (size_t v = 1; v < vocab; v++)
            if (row[v] > row[best]) best = v;
        char *text = next_outcome(s, expf(row[best]), (int)best);
        if (text) ph_model_spell(s->model, (int)best, text, OUTCOME_TEXT);
        row[best] = -INFINITY;
    }
}

/* The likeliest tokens after the last word, or in the place of the first mask. */
static ph_status answer_tokens(ph_scene *s)
{
    int last = s->axis_count - 1, count = s->words[last].count, place = count - 1;
    size_t vocab = (size_t)ph_model_config(s->model)->vocab;
    float *log_p = take(s, (size_t)count * vocab, sizeof *log_p);
    if (!log_p) return PH_OUT_OF_MEMORY;
    ph_status status = ph_reading_next(s->reading, log_p);
    if (s->model->masked >= 0)
        for (place = 0; place < count; place++)
            if (s->words[last].ids[place] == ph_model_mask(s->model)) break;
    if (status == PH_OK && s->model->masked < 0)
        s->loss = mean_loss(&s->words[last], log_p, vocab);
    if (status == PH_OK && place < count)
        list_tokens(s, log_p + (size_t)place * vocab, vocab);
    ph_io_release(&s->hooks, log_p);
    return status;
}

/* The likeliest classes of the text or picture. */
static ph_status answer_classes(ph_scene *s)
{
    int count = ph_model_config(s->model)->classes;
    float *p = take(s, (size_t)count, sizeof *p);
    if (!p) return PH_OUT_OF_MEMORY;
    ph_status status = ph_reading_classes(s->reading, p);
    for (int n = 0; n < NEXT_TOKENS && n < count && status == PH_OK; n++) {
        int best = 0;
        for (int i = 1; i < count; i++)
            if (p[i] > p[best]) best = i;
        const char *name = ph_model_class(s->model, best);
        char *text = next_outcome(s, p[best], best);
        if (text && *name)
            snprintf(text, OUTCOME_TEXT, "%.70s", name);
        else if (text)
            snprintf(text, OUTCOME_TEXT, "class %d", best);
        p[best] = -1;
    }
    ph_io_release(&s->hooks, p);
    return status;
}

/* What a model answers; an encoder of vectors has nothing that can be listed. */
typedef enum answer {
    ANSWER_NONE,
    ANSWER_LINKS,
    ANSWER_NEXT,
    ANSWER_MASKED,
    ANSWER_CLASSES
} answer;

static answer answer_of(const ph_scene *s)
{
    if (s->model->links >= 0) return ANSWER_LINKS;
    if (s->model->config.classes > 1 && s->model->config.pooling) return ANSWER_CLASSES;
    if (s->model->output < 0) return ANSWER_NONE;
    return s->model->masked >= 0 ? ANSWER_MASKED : ANSWER_NEXT;
}

ph_status ph_scene_refresh(ph_scene *s, const ph_io *io)
{
    answer kind = answer_of(s);
    s->outcome_count = 0;
    s->loss = s->divergence = s->cosine = NAN;
    ph_status status = kind == ANSWER_NONE      ? PH_OK
                       : kind == ANSWER_LINKS   ? answer_links(s)
                       : kind == ANSWER_CLASSES ? answer_classes(s)
                                                : answer_tokens(s);
    if (status != PH_OK)
        ph_io_fail(io, status, "the answers of the model: %s", ph_status_text(status));
    return status;
}

/* ---- how far answers have moved ---- */

/* Log-probabilities per word: of links, or of tokens; of classes one row. */
static ph_status log_answers(const ph_scene *s, size_t count, float *log_p)
{
    answer kind = answer_of(s);
    if (kind == ANSWER_NEXT || kind == ANSWER_MASKED)
        return ph_reading_next(s->reading, log_p);
    ph_status status = kind == ANSWER_LINKS ? ph_reading_links(s->reading, log_p)
                                            : ph_reading_classes(s->reading, log_p);
    for (size_t i = 0; i < count && status == PH_OK; i++)
        log_p[i] = logf(fmaxf(log_p[i], FLT_MIN));
    return status;
}

static double mean_divergence(const float *before, const float *after, size_t count,
                              int rows)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += exp((double)before[i]) * ((double)before[i] - (double)after[i]);
    return sum > 0 ? sum / rows : 0; /* below 0 by rounding only */
}

static double cosine_of(const float *a, const float *b, size_t count)
{
    double product = 0, first = 0, second = 0;
    for (size_t i = 0; i < count; i++) {
        product += (double)a[i] * (double)b[i];
        first += (double)a[i] * (double)a[i], second += (double)b[i] * (double)b[i];
    }
    return first > 0 && second > 0 ? product / sqrt(first * second) : NAN;
}

/* count floats of both answers, side by side in p. */
static ph_status compare_answers(const ph_scene *before, ph_scene *after, int rows,
                                 size_t count, float *p)
{
    if (answer_of(after) == ANSWER_NONE) {
        PH_TRY(ph_reading_embedding(before->reading, p));
        PH_TRY(ph_reading_embedding(after->reading, p + count));
        after->cosine = (float)cosine_of(p, p + count, count);
        return PH_OK;
    }
    PH_TRY(log_answers(before, count, p));
    PH_TRY(log_answers(after, count, p + count));
    after->divergence = (float)mean_divergence(p, p + count, count, rows);
    return PH_OK;
}

ph_status ph_scene_compare(const ph_scene *before, ph_scene *after, const ph_io *io)
{
    const ph_config *c = ph_model_config(after->model);
    answer kind = answer_of(after);
    int side = after->axis_count - 1, rows = after->words[side].count;
    size_t tokens = (size_t)rows, count = tokens * (size_t)c->vocab;
    if (before->words[side].count != rows)
        return ph_io_fail(io, PH_BAD_SHAPE, "texts of %d and %d tokens do not compare",
                          before->words[side].count, rows);
    if (kind == ANSWER_NONE ? !c->pooling : c->multi_label) return PH_OK;
    if (kind == ANSWER_NONE) count = (size_t)c->model_dim;
    if (kind == ANSWER_LINKS) count = tokens * tokens;
    if (kind == ANSWER_CLASSES) count = (size_t)c->classes, rows = 1;
    float *p = take(after, 2 * count, sizeof *p);
    if (!p) return ph_io_no_memory(io, 2 * count * sizeof *p, "answers");
    ph_status status = compare_answers(before, after, rows, count, p);
    ph_io_release(&after->hooks, p);
    return status;
}

/* ---- what a report requests ---- */

static ph_status give_weights(void *user, int stack, int layer, int head, int row0,
                              int rows, float *out)
{
    const ph_scene *s = user;
    const ph_site *site = ph_reading_site(s->reading, s->sites[stack][layer]);
    const ph_look_at at = {.rect = out,
                           .rect_head = ph_absent_head(site, head),
                           .row0 = row0,
                           .rows = rows,
                           .cols = s->axes[s->stacks[stack].k_axis].count};
    return ph_reading_look(s->reading, s->sites[stack][layer], &at);
}

static ph_status give_vectors(void *user, int stack, int layer, int head, float *q,
                              float *k)
{
    const ph_scene *s = user;
    const ph_site *site = ph_reading_site(s->reading, s->sites[stack][layer]);
    return ph_reading_vectors(s->reading, s->sites[stack][layer],
                              ph_absent_head(site, head), q, k, NULL, NULL);
}

ph_report ph_scene_report(const ph_scene *s)
{
    static const char *const titles[] = {[ANSWER_NONE] = "nothing to list",
                                         [ANSWER_LINKS] = "what each word belongs to",
                                         [ANSWER_NEXT] = "next token",
                                         [ANSWER_MASKED] = "masked token",
                                         [ANSWER_CLASSES] = "class"};
    const ph_config *c = ph_model_config(s->model);
    return (ph_report){.title = s->title,
                       .text = s->text,
                       .axes = s->axes,
                       .axis_count = s->axis_count,
                       .stacks = s->stacks,
                       .stack_count = s->stack_count,
                       .patch_first = c->class_tokens,
                       .patch_columns = c->image_size ? c->image_size / c->patch_size : 0,
                       .picture = s->picture,
                       .picture_side = c->image_size,
                       .outcome_title = titles[answer_of(s)],
                       .outcomes = s->outcomes,
                       .outcome_count = s->outcome_count,
                       .loss = isnan(s->loss) ? NULL : &s->loss,
                       .divergence = isnan(s->divergence) ? NULL : &s->divergence,
                       .cosine = isnan(s->cosine) ? NULL : &s->cosine,
                       .weights = give_weights,
                       .vectors = give_vectors,
                       .user = (void *)s};
}

int ph_scene_site(const ph_scene *s, int stack, int layer)
{
    if (stack < 0 || stack >= s->stack_count) return -1;
    return layer >= 0 && layer < s->stacks[stack].layers ? s->sites[stack][layer] : -1;
}

const int32_t *ph_scene_ids(const ph_scene *s, int axis)
{
    return axis >= 0 && axis < s->axis_count ? s->words[axis].ids : NULL;
}

/* ---- making and freeing ---- */

static ph_status fill(ph_scene *s, const char *title, const char *text,
                      const char *target)
{
    s->shown = title != NULL;
    s->title = copy(s, title);
    s->text = copy(s, text);
    if (!s->title || !s->text) return PH_OUT_OF_MEMORY;
    ph_status status = name_axes(s, text, target);
    if (status == PH_OK) status = list_stacks(s);
    for (int k = 0; s->shown && k < s->stack_count && status == PH_OK; k++)
        status = fill_written(s, k);
    return status;
}

ph_status ph_scene_create(ph_scene **out, const ph_model *model,
                          const ph_reading *reading, const char *title, const char *text,
                          const char *target, const ph_io *io)
{
    if (out) *out = NULL;
    if (!out || !model || !reading) return ph_io_null(io, "out, model or reading");
    ph_scene *s = ph_io_alloc(io, sizeof *s);
    if (!s) return ph_io_no_memory(io, sizeof *s, "a scene");
    memset(s, 0, sizeof *s);
    s->hooks = ph_io_hooks(io);
    s->model = model;
    s->reading = reading;
    ph_status status = fill(s, title, text, target);
    if (status == PH_OUT_OF_MEMORY) ph_io_fail(io, status, "out of memory for a scene");
    if (status == PH_OK) status = ph_scene_refresh(s, io);
    if (status == PH_OK)
        *out = s;
    else
        ph_scene_free(s);
    return status;
}

void ph_scene_free(ph_scene *s)
{
    if (!s) return;
    ph_io hooks = s->hooks;
    for (int k = 0; k < KINDS; k++) {
        ph_io_release(&hooks, s->sites[k]);
        ph_io_release(&hooks, s->norms[k]);
        ph_io_release(&hooks, s->contributions[k]);
        ph_io_release(&hooks, s->circuit_text[k]);
        ph_io_release(&hooks, (void *)s->circuits[k]);
        ph_io_release(&hooks, s->absent[k]);
    }
    for (int side = 0; side < 2; side++) {
        ph_io_release(&hooks, s->words[side].bytes);
        ph_io_release(&hooks, s->words[side].list);
        ph_io_release(&hooks, s->words[side].ids);
        ph_io_release(&hooks, s->words[side].unknown);
    }
    ph_io_release(&hooks, s->share);
    ph_io_release(&hooks, s->picture);
    ph_io_release(&hooks, s->title);
    ph_io_release(&hooks, s->text);
    ph_io_release(&hooks, s);
}
