/*
 * scene.c - a model that has read a text or a picture, as a report; see polyhead_scene.h.
 */
#include "polyhead_scene.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "io/io.h"
#include "view/scene_inside.h"
#include "view/scene_heads.h"
#include "view/absent.h"

void *ph_scene_take(ph_scene *s, size_t count, size_t item)
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
    char *to = ph_scene_take(s, length + 1, 1);
    if (to) memcpy(to, text ? text : "", length);
    return to;
}

/* ---- words ---- */

/* A word as in the text; special tokens and generated words by their token. */
static const char *spelling(const ph_scene *s, const ph_word *word, const char *text,
                            size_t *length)
{
    const char *token = ph_model_token(s->model, word->token);
    int in_text = word->length > 0 && text;
    *length = in_text ? (size_t)word->length : strlen(token);
    return in_text ? text + word->start : token;
}

/* PH_BAD_ARGUMENT: it is shorter than what was read. */
static ph_status copy_words(ph_scene *s, int side, const char *text)
{
    ph_scene_words *w = &s->words[side];
    size_t bytes = 0, end = text ? strlen(text) : 0, length;
    int count = ph_reading_length(s->reading, side);
    for (int i = 0; i < count; i++) {
        const ph_word *word = ph_reading_word(s->reading, side, i);
        spelling(s, word, text, &length);
        bytes += 1 + length;
        if (text && word->length > 0 && (size_t)word->start + length > end)
            return PH_BAD_ARGUMENT;
    }
    w->bytes = ph_scene_take(s, bytes, 1);
    w->list = ph_scene_take(s, (size_t)count, sizeof *w->list);
    w->ids = ph_scene_take(s, (size_t)count, sizeof *w->ids);
    w->unknown = ph_scene_take(s, (size_t)count, 1);
    if (!w->bytes || !w->list || !w->ids || !w->unknown) return PH_OUT_OF_MEMORY;
    char *at = w->bytes;
    for (int i = 0; i < count; i++) {
        const ph_word *word = ph_reading_word(s->reading, side, i);
        const char *from = spelling(s, word, text, &length);
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
    ph_scene_words *w = &s->words[0];
    int columns = c->mels ? 1 : c->image_size / c->patch_size;
    int count = ph_reading_length(s->reading, 0);
    w->bytes = ph_scene_take(s, (size_t)count, NAME);
    w->list = ph_scene_take(s, (size_t)count, sizeof *w->list);
    w->ids = ph_scene_take(s, (size_t)count, sizeof *w->ids);
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
    s->picture = ph_scene_take(s, 3 * (size_t)c->image_size, (size_t)c->image_size);
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
                      .pair_step = rope && !config->rope_dims ? site->qk_dim / 2 : 0};
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
    for (int kind = 0; kind < PH_SCENE_KINDS; kind++) {
        int *sites = ph_scene_take(s, (size_t)count, sizeof *sites), layers = 0;
        int lost = s->model->kept.removed != NULL && kind < 3;
        ph_stack stack = {0};
        if (!sites) return PH_OUT_OF_MEMORY;
        for (int i = 0; i < count; i++) sites[i] = -1;
        s->sites[s->stack_count] = sites;
        for (int i = 0; (site = ph_reading_site(s->reading, i)) != NULL; i++) {
            if (kind_of(s, site) != kind) continue;
            int shown = layers == 0 || stack.qk_dim > 0;
            stack = describe_stack(s, site, kind);
            if (!shown || !has_vectors(s, i)) stack.qk_dim = stack.pair_step = 0;
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

/* The pointer, the only head of the last stack, answers. */
static ph_status mark_answer(ph_scene *s)
{
    if (s->model->links < 0) return PH_OK;
    s->share = ph_scene_take(s, (size_t)s->words[0].count, sizeof *s->share);
    if (!s->share) return PH_OUT_OF_MEMORY;
    for (int i = 0; i < s->words[0].count; i++) s->share[i] = 1;
    s->stacks[s->stack_count - 1].share = s->share;
    return PH_OK;
}

/* ---- what heads write ---- */

static ph_status fill_circuits(ph_scene *s, int stack, const ph_scene_stack *at)
{
    ph_stack *k = &s->stacks[stack];
    size_t heads = (size_t)k->layers * (size_t)k->heads;
    char *text = s->circuit_text[stack] = ph_scene_take(s, heads, PH_CIRCUIT_TEXT);
    const char **list = s->circuits[stack] = ph_scene_take(s, heads, sizeof *list);
    const ph_scene_words *w = &s->words[k->q_axis];
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
    s->norms[stack] = ph_scene_take(s, heads * keys, sizeof **s->norms);
    s->contributions[stack] = ph_scene_take(s, heads, sizeof **s->contributions);
    if (!s->norms[stack] || !s->contributions[stack]) return PH_OUT_OF_MEMORY;
    ph_status status = ph_scene_norms(&at, s->norms[stack]);
    if (status == PH_OK) k->value_norm = s->norms[stack];
    if (status == PH_OUT_OF_MEMORY) return status;
    status = ph_scene_contributions(&at, s->contributions[stack]);
    if (status == PH_OK) k->contribution = s->contributions[stack];
    if (status == PH_OUT_OF_MEMORY) return status;
    return fill_circuits(s, stack, &at);
}

/* ---- what a report requests ---- */

static ph_look_at rows_of(const ph_scene *s, int stack, int layer, int head, int row0,
                          int rows, float *out)
{
    const ph_site *site = ph_reading_site(s->reading, s->sites[stack][layer]);
    return (ph_look_at){.rect = out,
                        .rect_head = ph_absent_head(site, head),
                        .row0 = row0,
                        .rows = rows,
                        .cols = s->axes[s->stacks[stack].k_axis].count};
}

static ph_status give_weights(void *user, int stack, int layer, int head, int row0,
                              int rows, float *out)
{
    const ph_scene *s = user;
    const ph_look_at at = rows_of(s, stack, layer, head, row0, rows, out);
    return ph_reading_look(s->reading, s->sites[stack][layer], &at);
}

static ph_status give_rows(void *user, int stack, int layer, int head, int row0, int rows,
                           float *out)
{
    const ph_scene *s = user;
    const ph_look_at at = rows_of(s, stack, layer, head, row0, rows, out);
    return ph_reading_rect(s->reading, s->sites[stack][layer], &at);
}

/* Layers in the order in which the model runs them. */
typedef struct layer_visit {
    const ph_scene *s;
    ph_status (*see)(void *to, int stack, int layer);
    void *to;
} layer_visit;

static ph_status see_site(void *user, int site)
{
    const layer_visit *v = user;
    for (int k = 0; k < v->s->stack_count; k++)
        for (int l = 0; l < v->s->stacks[k].layers; l++)
            if (v->s->sites[k][l] == site) return v->see(v->to, k, l);
    return PH_OK;
}

static ph_status give_layers(void *user, ph_status (*see)(void *to, int stack, int layer),
                             void *to)
{
    const ph_scene *s = user;
    layer_visit visit = {s, see, to};
    return ph_reading_pass((ph_reading *)s->reading, see_site, &visit);
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
    if (!s) return (ph_report){0};
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
                       .outcome_title = titles[ph_scene_answer(s)],
                       .outcomes = s->outcomes,
                       .outcome_count = s->outcome_count,
                       .loss = isnan(s->loss) ? NULL : &s->loss,
                       .divergence = isnan(s->divergence) ? NULL : &s->divergence,
                       .cosine = isnan(s->cosine) ? NULL : &s->cosine,
                       .weights = give_weights,
                       .vectors = give_vectors,
                       .rows = ph_reading_parallel(s->reading) ? give_rows : NULL,
                       .layers = s->reading->passes ? give_layers : NULL,
                       .user = (void *)s};
}

int ph_scene_site(const ph_scene *s, int stack, int layer)
{
    if (!s || stack < 0 || stack >= s->stack_count) return -1;
    return layer >= 0 && layer < s->stacks[stack].layers ? s->sites[stack][layer] : -1;
}

const int32_t *ph_scene_ids(const ph_scene *s, int axis)
{
    return s && axis >= 0 && axis < s->axis_count ? s->words[axis].ids : NULL;
}

/* ---- making and freeing ---- */

static ph_status fill(ph_scene *s, const char *title, const char *text,
                      const char *target)
{
    s->shown = title != NULL;
    s->title = copy(s, title);
    s->text = copy(s, text);
    s->target = target ? copy(s, target) : NULL;
    if (!s->title || !s->text || (target && !s->target)) return PH_OUT_OF_MEMORY;
    ph_status status = name_axes(s, text, target);
    if (status == PH_OK) status = list_stacks(s);
    if (status == PH_OK) status = mark_answer(s);
    for (int k = 0; s->shown && k < s->stack_count && status == PH_OK; k++)
        status = fill_written(s, k);
    return status;
}

ph_status ph_scene_create(ph_scene **out, const ph_model *model,
                          const ph_reading *reading, const char *title, const char *text,
                          const char *target, const ph_io *io)
{
    if (out) *out = NULL;
    if (!out || !model || !reading || !text)
        return ph_io_null(io, "out, model, reading or text");
    ph_scene *s = ph_io_alloc(io, sizeof *s);
    if (!s) return ph_io_no_memory(io, sizeof *s, "a scene");
    memset(s, 0, sizeof *s);
    s->hooks = ph_io_hooks(io);
    s->model = model;
    s->reading = reading;
    s->loss = s->divergence = s->cosine = NAN;
    ph_status status = fill(s, title, text, target);
    if (status == PH_OUT_OF_MEMORY) ph_io_fail(io, status, "out of memory for a scene");
    if (status == PH_BAD_ARGUMENT)
        ph_io_fail(io, status, "text or target is not what the reading has read");
    if (status == PH_OK && !reading->passes) status = ph_scene_refresh(s, io);
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
    for (int k = 0; k < PH_SCENE_KINDS; k++) {
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
    ph_io_release(&hooks, s->target);
    ph_io_release(&hooks, s);
}
