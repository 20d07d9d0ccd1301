/*
 * sentences.c - unseen sentences of the recipe "pronouns", with the link of every word.
 */
#include <string.h>

#include "base/ctx.h"
#include "recipes/recipes.h"

struct ph_sentences {
    ph_data data;
    ph_train train;
};

static ph_status create(ph_sentences **out, ph_ctx *ctx)
{
    ph_sentences *s = ph_ctx_alloc(ctx, sizeof *s);
    if (!s) return ph_fail(ctx, PH_OUT_OF_MEMORY, "no memory for sentences");
    *s = (ph_sentences){.data = {0}};
    ph_status status = ph_train_defaults(&s->train, "pronouns");
    if (status == PH_OK)
        status = ph_data_open(&s->data, ctx, &ph_recipe_pronouns, &s->train, NULL);
    if (status == PH_OK && s->data.source_len > PH_SENTENCE_WORDS) {
        ph_data_close(&s->data, &ph_recipe_pronouns);
        status = ph_fail(ctx, PH_UNSUPPORTED, "sentences of more than %d words",
                         (int)PH_SENTENCE_WORDS);
    }
    if (status == PH_OK)
        *out = s;
    else
        ph_ctx_release(ctx, s);
    return status;
}

ph_status ph_sentences_create(ph_sentences **out, ph_ctx *ctx)
{
    if (out) *out = NULL;
    if (!out || !ctx) return PH_BAD_ARGUMENT;
    return PH_WITHIN(ctx, create(out, ctx));
}

void ph_sentences_free(ph_sentences *s)
{
    if (!s) return;
    ph_ctx *ctx = s->data.ctx;
    ph_data_close(&s->data, &ph_recipe_pronouns);
    ph_ctx_release(ctx, s);
}

/* A label is role * source_len + link. */
void ph_sentences_get(const ph_sentences *s, uint64_t number, ph_sentence *out)
{
    int32_t source[PH_SENTENCE_WORDS], labels[PH_SENTENCE_WORDS];
    ph_sample sample = {.source = source, .labels = labels};
    size_t used = 0;
    ph_recipe_pronouns.sample(&s->data, number, 1, &sample);
    *out = (ph_sentence){.words = sample.length};
    for (int i = 0; i < sample.length; i++) {
        const char *word = s->data.tokens[source[i] - PH_TOKEN_FIRST];
        size_t length = strlen(word);
        if (used > 0) out->text[used++] = ' ';
        memcpy(out->text + used, word, length);
        used += length;
        out->link[i] = labels[i] % s->data.source_len;
        out->role[i] = labels[i] / s->data.source_len;
    }
}
