/*
 * generate.h - decoding with caches, and tokens from it.
 */
#ifndef PH_MODEL_GENERATE_H
#define PH_MODEL_GENERATE_H

#include "model/pass.h"

/* ---- decoder.c --------------------------------------------------------------------- */

/* Texts that are decoded side by side, each at its own pace. */
typedef struct ph_decoder ph_decoder;

/* A sentence for a model that cannot generate. */
ph_status ph_decoder_check(const ph_model *model);

ph_status ph_decoder_create(ph_decoder **out, const ph_model *model,
                            const ph_decoder_shape *shape);
void ph_decoder_free(ph_decoder *decoder);

/* Encoder-decoder: the sources of texts that begin, tokens or features and their
   source_offsets; a text that has none keeps its source. With one_source a single one. */
ph_status ph_decoder_read(ph_decoder *decoder, const ph_batch *sources);

/* Feeds tokens [offsets[b], offsets[b + 1]) to text b. */
ph_status ph_decoder_feed(ph_decoder *decoder, const int32_t *tokens,
                          const int32_t *offsets);

/* *logits: (count, vocab) of what follows the last token of each of these texts, all of
   which the last call fed; valid until the next call, the caller may change them. */
ph_status ph_decoder_logits(ph_decoder *decoder, const int *texts, int count,
                            float **logits);

/* A text ends, and another one may begin in its place. */
void ph_decoder_end(ph_decoder *decoder, int text);

/* Text b continues what text from[b] was. */
ph_status ph_decoder_reorder(ph_decoder *decoder, const int *from);

size_t ph_decoder_bytes(const ph_decoder *decoder); /* of its caches */

/* ---- logit_rules.c ----------------------------------------------------------------- */

/* What a token follows. */
typedef struct ph_context {
    const int32_t *prompt; /* tokens that the decoder was given, or its start token ... */
    int prompt_count;
    const int32_t *tokens; /* ... and the new ones */
    int count;
} ph_context;

/* The number by which marks know the next token (ph_is_forced, ph_is_generated). */
int ph_context_at(const ph_model *model, const ph_context *context);

/* What the tokens before it do to the logits of the next one: the penalty of those that
   are there, -INFINITY for what would repeat no_repeat tokens or complete a banned
   sequence, and for an end that comes too early. base: log-probabilities are
   logits - base; 0 without beams. seen: (vocab) zeros, before and after. */
void ph_rules_apply(const ph_model *model, const ph_context *context, double base,
                    uint8_t *seen, float *logits);

/* ---- generate.c -------------------------------------------------------------------- */

/* One text that is generated. */
typedef struct ph_generated {
    const int32_t *prompt; /* that it continues, or answers (encoder-decoder) */
    const float *features; /* in its place: (mels, 2 prompt_count) of sound */
    int prompt_count;
    int limit;       /* most tokens, 1 at least, without the end mark */
    uint64_t number; /* of its random numbers */
    int32_t *tokens; /* allocated here, freed by the caller */
    int count, capacity;
    int fed; /* tokens that the decoder has seen */
} ph_generated;

/* Called with each token that is added to a text; 1: the text ends here. */
typedef int ph_generated_hook(void *user, int text);

/* Texts that come one after the other. */
typedef struct ph_generated_source {
    /* The next one, as an index into texts; PH_TEXTS_LATER: there is none yet, unless it
       may wait for one; PH_TEXTS_END. */
    int (*next)(void *user, int wait);
    ph_generated_hook *add;            /* or NULL */
    void (*end)(void *user, int text); /* it has all its tokens; or NULL */
    void *user;
} ph_generated_source;

enum { PH_TEXTS_LATER = -1, PH_TEXTS_END = -2 };

/* Until PH_TEXTS_END; an index may come again once its text has ended. Two more texts are
   asked for than are decoded. */
ph_status ph_generate_source(const ph_model *model, const ph_generation *how,
                             ph_generated *texts, const ph_generated_source *source);

/* How many texts are decoded side by side. */
int ph_generation_batch(const ph_generation *how);

ph_status ph_generate_all(const ph_model *model, const ph_generation *how,
                          ph_generated *texts, int count, ph_generated_hook *hook,
                          void *user);

/* The first of the likeliest tokens that may be number `at` of a new text. */
int ph_likeliest(const ph_model *model, const float *logits, int at);

/* One token more of a text. */
ph_status ph_generated_add(const ph_model *model, ph_generated *text, int32_t token);

/* The likeliest tokens for one prompt, up to `limit`; without the end mark. */
ph_status ph_generate_tokens(const ph_model *model, const ph_generation *how,
                             const int32_t *prompt, int prompt_count, int32_t *out,
                             int limit, int *count);

/* ---- beams.c ----------------------------------------------------------------------- */

ph_status ph_generate_beams(const ph_model *model, const ph_generation *how,
                            ph_generated *text);

#endif
