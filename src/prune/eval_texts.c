/*
 * eval_texts.c - texts that a model is measured on, as tokens with labels.
 */
#include <stdlib.h>
#include <string.h>

#include "base/reserved.h"
#include "base/rng.h"
#include "model/model_text.h"
#include "prune/eval.h"
#include "recipes/recipes.h"

enum { STREAM_SAMPLES = 2, STREAM_TESTS, STREAM_MASK = 7, TEST_SEED = 20260101 };
enum { MASKED_PERCENT = 15, SPECIAL_MOST = 16 };

static ph_status allocate(const ph_model *m, size_t bytes, void *to)
{
    void *memory = ph_ctx_alloc(m->ctx, bytes ? bytes : 1);
    memcpy(to, &memory, sizeof memory);
    if (!memory)
        return ph_fail(m->ctx, PH_OUT_OF_MEMORY, "no memory for texts (%zu bytes)",
                       bytes);
    memset(memory, 0, bytes);
    return PH_OK;
}

ph_status ph_eval_open(ph_eval **out, ph_model *m, int count)
{
    ph_eval *e;
    PH_TRY(ph_model_own(m));
    PH_TRY(ph_model_check_finite(m));
    PH_TRY(allocate(m, sizeof *e, &e));
    *out = e;
    e->m = m, e->count = count;
    PH_TRY(allocate(m, (size_t)count * sizeof *e->texts, &e->texts));
    PH_TRY(allocate(m, (size_t)count * sizeof *e->order, &e->order));
    for (int i = 0; i < count; i++) e->order[i] = i;
    PH_TRY(allocate(m, (size_t)count * sizeof *e->loss, &e->loss));
    return allocate(m, (size_t)count * sizeof *e->accuracy, &e->accuracy);
}

/* ---- one text ---------------------------------------------------------------------- */

/* Memory of a text with so many tokens; labels start as not counted. */
static ph_status reserve(const ph_eval *e, ph_eval_text *t, int source, int target,
                         int labels)
{
    size_t all = 2 * (size_t)source + (size_t)target + (size_t)labels;
    PH_TRY(allocate(e->m, all * sizeof *t->source, &t->source));
    t->source_len = source, t->target_len = target, t->label_len = labels;
    t->types = t->source + source;
    t->target = t->types + source;
    t->labels = t->target + target;
    for (int i = 0; i < labels; i++) t->labels[i] = -1;
    return PH_OK;
}

static ph_status count_labels(const ph_eval *e, int number)
{
    ph_eval_text *t = &e->texts[number];
    for (int i = 0; i < t->label_len; i++) t->counted += t->labels[i] >= 0;
    if (ph_eval_is_vectors(e)) t->counted = 1;
    if (t->counted) return PH_OK;
    return ph_fail(e->m->ctx, PH_BAD_SHAPE,
                   "text %d has nothing to predict, expected more words", number + 1);
}

/* Tokens around an empty text: marks, which are never masked. */
static ph_status find_marks(const ph_model *m, int32_t marks[SPECIAL_MOST], int *count)
{
    int32_t *tokens, *types;
    *count = 0;
    if (!m->tokenizer) return PH_OK;
    PH_TRY(ph_tokens_take(m, "", NULL, SPECIAL_MOST, &tokens, &types, count));
    for (int i = 0; i < *count; i++) marks[i] = tokens[i];
    ph_ctx_release(m->ctx, tokens);
    return PH_OK;
}

static int is_mark(const int32_t *marks, int count, int32_t token)
{
    for (int i = 0; i < count; i++)
        if (marks[i] == token) return 1;
    return 0;
}

/* By place alone; where none is drawn the likeliest place is masked. */
static ph_status mask_tokens(const ph_eval *e, int number)
{
    ph_eval_text *t = &e->texts[number];
    int32_t marks[SPECIAL_MOST];
    uint64_t key = ph_rng_key(TEST_SEED, STREAM_MASK, (uint64_t)number, 0);
    uint32_t least = UINT32_MAX, limit = UINT32_MAX / 100 * MASKED_PERCENT;
    int count = 0, best = -1;
    PH_TRY(find_marks(e->m, marks, &count));
    for (int i = 0; i < t->source_len; i++) {
        uint32_t draw = ph_rng_at(key, (uint32_t)i);
        if (is_mark(marks, count, t->source[i])) continue;
        if (draw < least) best = i, least = draw;
        if (draw < limit) t->labels[i] = t->source[i];
    }
    if (best >= 0) t->labels[best] = t->source[best];
    for (int i = 0; i < t->source_len; i++)
        if (t->labels[i] >= 0) t->source[i] = e->m->marks.mask;
    return PH_OK;
}

/* A class by its name, or by its number. */
static ph_status find_class(const ph_eval *e, const char *text, int32_t *label)
{
    const ph_config *c = &e->m->config;
    char *end;
    for (int i = 0; text && i < c->classes; i++)
        if (*text && !strcmp(ph_model_class(e->m, i), text)) {
            *label = i;
            return PH_OK;
        }
    long number = text ? strtol(text, &end, 10) : -1;
    if (!text || !*text || *end || number < 0 || number >= c->classes)
        return ph_fail(e->m->ctx, PH_BAD_VALUE,
                       "\"%.60s\" is no class of the model, expected a name or 0 to %d",
                       text ? text : "", c->classes - 1);
    *label = (int32_t)number;
    return PH_OK;
}

/* The target behind a start mark; labels are its tokens and the end. */
static ph_status take_target(const ph_eval *e, int number, const char *text, int most)
{
    ph_eval_text *t = &e->texts[number], whole;
    int32_t *tokens = NULL;
    int count = 0;
    const ph_marks *marks = &e->m->marks;
    PH_TRY(ph_tokens_take_target(e->m, text, most - 1, &tokens, &count));
    while (count && ph_is_end(e->m, tokens[count - 1])) count--;
    ph_status status = reserve(e, &whole, t->source_len, count + 1, count + 1);
    if (status == PH_OK) {
        size_t source = 2 * (size_t)t->source_len * sizeof *tokens;
        memcpy(whole.source, t->source, source);
        whole.target[0] = marks->start;
        memcpy(whole.target + 1, tokens, (size_t)count * sizeof *tokens);
        memcpy(whole.labels, tokens, (size_t)count * sizeof *tokens);
        whole.labels[count] = marks->ends[0];
        whole.counted = 0;
        ph_ctx_release(e->m->ctx, t->source);
        *t = whole;
    }
    ph_ctx_release(e->m->ctx, tokens);
    return status;
}

static ph_status set_labels(const ph_eval *e, int number, const char *pair, int most)
{
    const ph_config *c = &e->m->config;
    ph_eval_text *t = &e->texts[number];
    if ((c->arch == PH_ARCH_ENCODER_DECODER || c->classes) && !pair)
        return ph_fail(e->m->ctx, PH_BAD_ARGUMENT, "text %d has no %s", number + 1,
                       c->classes ? "class" : "target");
    if (c->arch == PH_ARCH_ENCODER_DECODER) return take_target(e, number, pair, most);
    if (c->classes) return find_class(e, pair, &t->labels[0]);
    if (c->masked) return mask_tokens(e, number);
    if (ph_eval_is_vectors(e)) return PH_OK; /* has no labels, not even of a decoder */
    for (int i = 0; c->arch == PH_ARCH_DECODER && i + 1 < t->source_len; i++)
        t->labels[i] = t->source[i + 1];
    return PH_OK;
}

static ph_status take_text(const ph_eval *e, int number, const char *text,
                           const char *pair, int most)
{
    ph_eval_text *t = &e->texts[number];
    int32_t *tokens = NULL, *types;
    int count = 0;
    PH_TRY(ph_eval_is_vectors(e)
               ? ph_tokens_take_prompted(e->m, text, most, &tokens, &types, &count)
               : ph_tokens_take(e->m, text, NULL, most, &tokens, &types, &count));
    int labels = e->m->config.classes ? 1 : ph_eval_is_vectors(e) ? 0 : count;
    ph_status status = count ? reserve(e, t, count, 0, labels)
                             : ph_fail(e->m->ctx, PH_BAD_SHAPE,
                                       "text %d is empty, expected a word", number + 1);
    if (status == PH_OK) {
        memcpy(t->source, tokens, (size_t)count * sizeof *tokens);
        memcpy(t->types, types, (size_t)count * sizeof *types);
    }
    ph_ctx_release(e->m->ctx, tokens);
    if (status == PH_OK) status = set_labels(e, number, pair, most);
    return status == PH_OK ? count_labels(e, number) : status;
}

/* ---- all of them ------------------------------------------------------------------- */

static ph_status check_kind(const ph_model *m, const ph_texts *texts)
{
    const ph_config *c = &m->config;
    int pairs = c->arch == PH_ARCH_ENCODER_DECODER || c->classes;
    if (!texts || texts->count < 1 || !texts->texts)
        return ph_fail(m->ctx, PH_BAD_ARGUMENT, "texts is NULL, or there is none");
    PH_CHECK_RESERVED(m->ctx, "ph_texts", texts->reserved);
    if (c->image_size)
        return ph_fail(m->ctx, PH_UNSUPPORTED, "the model reads pictures, not text");
    if (c->mels)
        return ph_fail(m->ctx, PH_UNSUPPORTED, "the model reads sound, not text");
    if (m->links >= 0)
        return ph_fail(m->ctx, PH_UNSUPPORTED,
                       "the model points from word to word, and texts do not say where "
                       "to, expected samples of its recipe");
    if (c->classes && !c->pooling)
        return ph_fail(m->ctx, PH_UNSUPPORTED,
                       "the model has a class for every token, expected one of a text");
    if (c->classes && !ph_model_has_probabilities(m))
        return ph_fail(
            m->ctx, PH_UNSUPPORTED,
            "the model is a regression (problem_type), which has no loss here");
    if (m->output < 0 && !c->classes && !c->pooling)
        return ph_fail(m->ctx, PH_UNSUPPORTED,
                       "the model has no loss: it has no output head (lm_head)");
    if (pairs && !texts->pairs)
        return ph_fail(m->ctx, PH_BAD_ARGUMENT, "expected with every text %s",
                       c->classes ? "its class" : "its target");
    if (c->masked && m->marks.mask < 0)
        return ph_fail(m->ctx, PH_UNSUPPORTED, "the model has no token for a mask");
    return PH_OK;
}

static ph_status create(ph_eval **out, ph_model *m, const ph_texts *texts, int max_tokens)
{
    PH_TRY(check_kind(m, texts));
    int most = m->config.pool_len ? m->config.pool_len : m->config.max_len;
    if (max_tokens > 1 && max_tokens < most) most = max_tokens;
    PH_TRY(ph_eval_open(out, m, texts->count));
    for (int i = 0; i < texts->count; i++)
        PH_TRY(take_text(*out, i, texts->texts[i], texts->pairs ? texts->pairs[i] : NULL,
                         most));
    return ph_eval_begin(*out);
}

static ph_status finish(ph_eval **out, ph_status status)
{
    if (status == PH_OK) return PH_OK;
    ph_eval_free(*out);
    *out = NULL;
    return status;
}

ph_status ph_eval_create(ph_eval **out, ph_model *model, const ph_texts *texts,
                         int max_tokens)
{
    if (out) *out = NULL;
    if (!model) return PH_BAD_ARGUMENT;
    if (!out) return ph_ctx_null(model->ctx, "out");
    return finish(out, PH_WITHIN(model->ctx, create(out, model, texts, max_tokens)));
}

/* ---- recipes ----------------------------------------------------------------------- */

static int valid_tokens(const int32_t *tokens, int count)
{
    while (count > 1 && tokens[count - 1] == PH_TOKEN_PAD) count--;
    return count;
}

/* The tokens of the test set of a trainer, or those it learns from. */
static ph_status draw(const ph_eval *e, const ph_recipe *recipe, const ph_data *data,
                      int seen, int number)
{
    ph_eval_text *t = &e->texts[number];
    int tokens = data->target_len ? data->target_len : data->source_len;
    int labels = data->per_text ? 1 : tokens;
    uint64_t seed = seen ? data->train->seed : TEST_SEED;
    uint64_t key =
        ph_rng_key(seed, seen ? STREAM_SAMPLES : STREAM_TESTS, (uint64_t)number, 0);
    PH_TRY(reserve(e, t, data->source_len, data->target_len, labels));
    ph_sample s = {.source = t->source, .target = t->target, .labels = t->labels};
    recipe->sample(data, key, !seen, &s);
    t->source_len = s.length;
    if (data->target_len) t->target_len = valid_tokens(t->target, data->target_len);
    if (!data->per_text) t->label_len = data->target_len ? t->target_len : t->source_len;
    return count_labels(e, number);
}

/* Whether the model takes these samples, and its scores have these labels. */
static ph_status check_recipe(const ph_eval *e, const ph_recipe *recipe,
                              const ph_data *data)
{
    const ph_config *c = &e->m->config;
    int most = ph_max(data->source_len, data->target_len);
    if (data->pixels || c->image_size)
        return ph_fail(e->m->ctx, PH_UNSUPPORTED,
                       "recipe %s or the model is of pictures, expected texts",
                       recipe->name);
    if (data->vocab.count != c->vocab || most > c->max_len)
        return ph_fail(e->m->ctx, PH_BAD_ARGUMENT,
                       "recipe %s has %d tokens and texts of %d, but the model %d and "
                       "%d: it is not a model of this recipe",
                       recipe->name, data->vocab.count, most, c->vocab, c->max_len);
    if (data->classes != c->classes ||
        !data->target_len != (c->arch != PH_ARCH_ENCODER_DECODER))
        return ph_fail(e->m->ctx, PH_BAD_ARGUMENT,
                       "recipe %s has %d classes and %s, and the model has not: it is "
                       "not a model of this recipe",
                       recipe->name, data->classes,
                       data->target_len ? "targets" : "no targets");
    return PH_OK;
}

static ph_status draw_all(ph_eval *e, const ph_recipe *recipe, const ph_train *train,
                          int seen)
{
    ph_data data = {0};
    ph_status status = ph_data_open(&data, e->m->ctx, recipe, train, NULL);
    if (status == PH_OK) status = check_recipe(e, recipe, &data);
    for (int i = 0; status == PH_OK && i < e->count; i++)
        status = draw(e, recipe, &data, seen, i);
    e->source_len = data.source_len, e->target_len = data.target_len;
    ph_data_close(&data, recipe);
    return status;
}

static ph_status from_recipe(ph_eval **out, ph_model *m, const ph_train *train, int texts,
                             int seen)
{
    const ph_recipe *recipe = train ? ph_recipe_find(train->recipe) : NULL;
    if (!recipe)
        return ph_fail(m->ctx, PH_UNSUPPORTED, "there is no recipe \"%.32s\"",
                       train ? train->recipe : "");
    if (texts < 1)
        return ph_fail(m->ctx, PH_BAD_ARGUMENT, "texts is %d, expected 1 at least",
                       texts);
    PH_TRY(ph_eval_open(out, m, texts));
    PH_TRY(draw_all(*out, recipe, train, seen));
    return ph_eval_begin(*out);
}

ph_status ph_eval_recipe(ph_eval **out, ph_model *model, const ph_train *train, int texts,
                         int seen)
{
    if (out) *out = NULL;
    if (!model) return PH_BAD_ARGUMENT;
    if (!out || !train) return ph_ctx_null(model->ctx, "out or train");
    return finish(out,
                  PH_WITHIN(model->ctx, from_recipe(out, model, train, texts, seen)));
}
