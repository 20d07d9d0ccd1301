/*
 * reading_words.c - what the stacks of a reading see: words of a text, rows of a picture
 * or of sound, and what the model generates.
 */
#include <string.h>

#include "model/features.h"
#include "model/generate.h"
#include "model/model_text.h"
#include "model/reading.h"

const ph_word *ph_reading_word(const ph_reading *r, int decoder, int i)
{
    int stack = decoder != 0;
    return r && i >= 0 && i < r->words[stack] ? &r->word[stack][i] : NULL;
}

int ph_reading_length(const ph_reading *r, int decoder)
{
    return r ? r->words[decoder != 0] : 0;
}

/* The decoder of an encoder-decoder sees a start mark before its text, and the tokens
   that every text begins with. */
static int set_marks(ph_reading *r)
{
    const ph_marks *marks = &r->model->marks;
    int count = 0, most = r->model->config.max_len;
    r->word[1][count++] = (ph_word){.token = marks->start, .mark = 1};
    for (int i = 0; i < marks->forced_count && count < most; i++)
        if (marks->forced[i] >= 0)
            r->word[1][count++] = (ph_word){.token = marks->forced[i], .mark = 1};
    return count;
}

static ph_status set_words(ph_reading *r, int stack, const char *text)
{
    const ph_model *m = r->model;
    int max_len = stack ? m->config.max_len : ph_config_source_len(&m->config);
    int count = 0, first = stack ? set_marks(r) : 0;
    ph_word *words = r->word[stack] + first;
    PH_TRY(stack ? ph_tokens_split(m, text, PH_TOKENS_TARGET, words, max_len - first,
                                   &count)
                 : ph_tokens_split_prompted(m, text, words, max_len, &count));
    if (count + first > max_len)
        return ph_fail(m->ctx, PH_BAD_SHAPE,
                       "the text has %d tokens, expected at most %d: shorten "
                       "it, or give its sentences one by one",
                       count, max_len - first);
    if (count + first < 1)
        return ph_fail(m->ctx, PH_BAD_SHAPE, "the text is empty, expected a word");
    r->words[stack] = count + first;
    for (int i = 0; i < r->words[stack]; i++)
        r->tokens[stack][i] = r->word[stack][i].token;
    for (int i = 0; !stack && i < r->words[0]; i++) r->types[i] = r->word[0][i].type;
    return PH_OK;
}

static size_t count_pixels(const ph_config *c)
{
    return (size_t)c->channels * (size_t)c->image_size * (size_t)c->image_size;
}

/* Rows of a picture are no words: each is a token of its own. */
static ph_status set_picture(ph_reading *r, const reading_source *source)
{
    const ph_config *c = &r->model->config;
    size_t bytes = count_pixels(c) * sizeof *r->pixels;
    r->pixels = ph_ctx_alloc(r->model->ctx, bytes);
    if (!r->pixels)
        return ph_fail(r->model->ctx, PH_OUT_OF_MEMORY, "no memory for a picture");
    r->words[0] = c->max_len;
    for (int i = 0; i < c->max_len; i++) r->word[0][i] = (ph_word){.token = i};
    return ph_picture_open(r->model, source->text, source->file, r->pixels);
}

static ph_status set_sound(ph_reading *r, const reading_source *source)
{
    PH_TRY(ph_features_open(r->model, source->text, source->file, &r->features,
                            &r->words[0]));
    for (int i = 0; i < r->words[0]; i++) r->word[0][i] = (ph_word){.token = i};
    return PH_OK;
}

/* The decoder's text is what the model itself says, behind its start. */
static ph_status set_generated(ph_reading *r)
{
    int left = r->model->config.max_len - 1;
    ph_generated text = {.prompt = r->tokens[0],
                         .features = r->features,
                         .prompt_count = r->words[0],
                         .limit = ph_min(left, ph_max(ph_marks_limit(r->model, 1), 1))};
    ph_status status = left ? ph_generate_all(r->model, &(ph_generation){0}, &text, 1,
                                              NULL, NULL)
                            : PH_OK;
    r->words[1] = text.count + 1;
    r->tokens[1][0] = r->model->marks.start;
    for (int i = 0; i < text.count; i++) r->tokens[1][i + 1] = text.tokens[i];
    for (int i = 0; i < r->words[1]; i++)
        r->word[1][i] = (ph_word){.token = r->tokens[1][i]};
    ph_ctx_release(r->model->ctx, text.tokens);
    return status;
}

/* A copy of floats; NULL stays NULL. */
static ph_status copy_floats(const ph_reading *r, float **to, const float *from,
                             size_t count)
{
    if (!from) return PH_OK;
    *to = ph_ctx_alloc(r->model->ctx, count * sizeof **to);
    if (!*to) return ph_fail(r->model->ctx, PH_OUT_OF_MEMORY, "no memory for a reading");
    memcpy(*to, from, count * sizeof **to);
    return PH_OK;
}

static ph_status copy_rows(ph_reading *r, const ph_reading *from)
{
    const ph_config *c = &r->model->config;
    for (int i = 0; i < 2; i++) {
        size_t count = (size_t)from->words[i];
        r->words[i] = from->words[i];
        memcpy(r->word[i], from->word[i], count * sizeof *r->word[i]);
        memcpy(r->tokens[i], from->tokens[i], count * sizeof *r->tokens[i]);
    }
    memcpy(r->types, from->types, (size_t)from->words[0] * sizeof *r->types);
    PH_TRY(copy_floats(r, &r->pixels, from->pixels, count_pixels(c)));
    return copy_floats(r, &r->features, from->features,
                       2 * (size_t)c->mels * (size_t)from->words[0]);
}

ph_status ph_reading_rows(ph_reading *r, const reading_source *source)
{
    const ph_config *c = &r->model->config;
    if (source->same) return copy_rows(r, source->same);
    PH_TRY(c->image_size ? set_picture(r, source)
           : c->mels     ? set_sound(r, source)
                         : set_words(r, 0, source->text));
    if (c->arch != PH_ARCH_ENCODER_DECODER) return PH_OK;
    return source->target ? set_words(r, 1, source->target) : set_generated(r);
}
