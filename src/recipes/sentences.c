/*
 * sentences.c - unseen sentences of the recipe "pronouns", with the link of every word.
 */
#include <stdio.h>

#include "base/ctx.h"
#include "recipes/grammar.h"

_Static_assert((int)WORDS_MAX <= (int)PH_SENTENCE_WORDS &&
                   WORDS_MAX * WORD_BYTES <= (int)PH_SENTENCE_BYTES,
               "every sentence fits");

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
    if (status == PH_OK)
        *out = s;
    else
        ph_ctx_release(ctx, s);
    return status;
}

ph_status ph_sentences_create(ph_sentences **out, ph_ctx *ctx)
{
    if (out) *out = NULL;
    if (!out || !ctx) return ph_ctx_null(ctx, "out");
    return PH_WITHIN(ctx, create(out, ctx));
}

void ph_sentences_free(ph_sentences *s)
{
    if (!s) return;
    ph_ctx *ctx = s->data.ctx;
    ph_data_close(&s->data, &ph_recipe_pronouns);
    ph_ctx_release(ctx, s);
}

void ph_sentences_get(const ph_sentences *s, uint64_t number, ph_sentence *out)
{
    if (!s || !out) return;
    sentence made;
    size_t used = 0;
    ph_pronouns_compose(&s->data, number, 1, &made);
    *out = (ph_sentence){.words = made.count};
    for (int i = 0; i < made.count; i++) {
        used += (size_t)snprintf(out->text + used, sizeof out->text - used, "%s%s",
                                 used ? " " : "", made.word[i]);
        out->link[i] = made.link[i];
        out->role[i] = (int)made.role[i];
    }
}
