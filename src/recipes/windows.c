/*
 * windows.c - the recipe "text": windows of one text; the last tenth is held out.
 *
 * A new model reads characters and predicts the next one. A model that training goes on
 * from reads its own tokens: a decoder predicts the next one, an encoder those that are
 * hidden, as BERT was trained: 15 % are chosen, of which 80 % become the mask, 10 % some
 * other token, and 10 % stay.
 */
#include <string.h>

#include "recipes/corpus.h"

/* ---- opening ----------------------------------------------------------------------- */

static ph_status check_origin(const ph_data *data)
{
    const ph_config *c = &data->origin->config;
    if (c->arch == PH_ARCH_DECODER && !c->no_output) return PH_OK;
    if (c->arch == PH_ARCH_ENCODER && c->masked && !c->classes && data->origin->mask >= 0)
        return PH_OK;
    return ph_fail(
        data->ctx, PH_UNSUPPORTED,
        "recipe text needs a decoder with an output head, or an encoder that has a layer "
        "for masked tokens and a tokenizer with a mask, and this model is neither; "
        "recipe classes gives any encoder a classifier");
}

static ph_status open(ph_data *data)
{
    data->source_len = ph_data_length(data);
    if (data->origin) PH_TRY(check_origin(data));
    PH_TRY(ph_corpus_open(data));
    return data->origin ? PH_OK : ph_corpus_find_chars(data, "");
}

static ph_status tokenize_by_origin(ph_data *data)
{
    ph_corpus *c = data->own;
    ph_origin_encoder e;
    if (!data->origin->tokenizer && memchr(c->bytes, 0, c->size))
        return ph_fail(data->ctx, PH_BAD_FILE, "%s has a NUL byte, expected text",
                       data->train->file);
    ph_status status = ph_origin_begin(&e, data);
    if (status == PH_OK) status = ph_origin_find_marks(&e);
    if (status == PH_OK) status = ph_origin_tokenize(&e, 0, c->size, 0, 0);
    ph_origin_end(&e);
    /* A cut text does not end: a decoder must not learn an end mark there. */
    if (!data->origin->config.masked) c->after_count = 0;
    return status;
}

/* Tokens of the text in a window; the rest are marks. */
static int body_len(const ph_data *data)
{
    const ph_corpus *c = data->own;
    return data->source_len - c->before_count - c->after_count;
}

static ph_status ready(ph_data *data)
{
    ph_corpus *c = data->own;
    PH_TRY(ph_corpus_reserve(data, 0));
    if (data->origin)
        PH_TRY(tokenize_by_origin(data));
    else
        ph_corpus_tokenize(data, 0, c->size);
    c->held = c->count - c->count / PH_TEST_SHARE;
    if (body_len(data) < 1)
        return ph_fail(data->ctx, PH_BAD_ARGUMENT,
                       "texts of %d tokens have no room beside %d marks",
                       data->source_len, c->before_count + c->after_count);
    size_t least = 20 * ((size_t)body_len(data) + 1);
    if (c->count >= least) return PH_OK;
    return ph_fail(data->ctx, PH_BAD_FILE,
                   "%s has %zu tokens, expected at least %zu (20 windows)",
                   data->train->file, c->count, least);
}

/* ---- samples ----------------------------------------------------------------------- */

static void predict_next(const int32_t *from, int count, int32_t *source, int32_t *labels)
{
    for (int i = 0; i < count; i++) source[i] = from[i], labels[i] = from[i + 1];
}

static void hide(const ph_data *data, ph_draw *d, int32_t *token, int32_t *label)
{
    int fate = ph_draw_below(d, 10);
    *label = *token;
    if (fate < 8)
        *token = data->origin->mask;
    else if (fate == 8)
        *token = ph_draw_below(d, data->origin->config.vocab);
}

/* At least one token is hidden, or the window would teach nothing. */
static void predict_hidden(const ph_data *data, ph_draw *d, const int32_t *from,
                           int count, int32_t *source, int32_t *labels)
{
    int hidden = 0;
    memcpy(source, from, (size_t)count * sizeof *source);
    for (int i = 0; i < count; i++) {
        labels[i] = -1;
        if (ph_draw_below(d, 100) >= 15) continue;
        hide(data, d, &source[i], &labels[i]);
        hidden++;
    }
    if (hidden) return;
    int i = ph_draw_below(d, count);
    hide(data, d, &source[i], &labels[i]);
}

static int32_t *put_marks(const int32_t *marks, int count, int32_t *to, int32_t **labels)
{
    for (int i = 0; i < count; i++) *to++ = marks[i], *(*labels)++ = -1;
    return to;
}

static void sample(const ph_data *data, uint64_t key, int test, ph_sample *out)
{
    const ph_corpus *c = data->own;
    int body = body_len(data), masked = data->origin && data->origin->config.masked;
    size_t window = (size_t)body + !masked;
    size_t first = test ? c->held : 0, last = (test ? c->count : c->held) - window;
    ph_draw d = {key, 0};
    uint64_t wide =
        (uint64_t)ph_draw_below(&d, 1 << 30) << 30 | (uint64_t)ph_draw_below(&d, 1 << 30);
    const int32_t *from = c->tokens + first + wide % (last - first + 1);
    int32_t *labels = out->labels,
            *to = put_marks(c->before, c->before_count, out->source, &labels);
    if (masked)
        predict_hidden(data, &d, from, body, to, labels);
    else
        predict_next(from, body, to, labels);
    labels += body;
    put_marks(c->after, c->after_count, to + body, &labels);
    out->length = data->source_len;
}

static void defaults(ph_train *t)
{
    t->config = (ph_config){.arch = PH_ARCH_DECODER,
                            .layers = 4,
                            .model_dim = 128,
                            .heads = 4,
                            .max_len = 128,
                            .positions = PH_POS_ROPE,
                            .dropout = 0.1f};
    t->steps = 2000, t->batch = 16;
    t->lr = 1e-3f, t->warmup = 100;
}

const ph_recipe ph_recipe_text = {.name = "text",
                                  .help = "a decoder that learns to continue a text "
                                          "file, by characters; or a model you have",
                                  .needs_file = 1,
                                  .defaults = defaults,
                                  .open = open,
                                  .ready = ready,
                                  .close = ph_corpus_close,
                                  .sample = sample};
