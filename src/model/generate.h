/*
 * generate.h - decoding with caches, and text from it.
 */
#ifndef PH_MODEL_GENERATE_H
#define PH_MODEL_GENERATE_H

#include "model/pass.h"

typedef struct ph_decoder ph_decoder;

/* A decoder for a batch of `beams` texts of up to `capacity` tokens (0: max_len), which
   its caches have memory for; those of an encoder-decoder all belong to one source, which
   is encoded here. */
ph_status ph_decoder_create(ph_decoder **out, const ph_model *model, int beams,
                            int capacity, const int32_t *source, int source_len);
void ph_decoder_free(ph_decoder *decoder);

/* Feeds `count` more tokens to each text, (beams, count); *logits (beams, vocab) of what
   follows the last of them, valid until the next call. */
ph_status ph_decoder_feed(ph_decoder *decoder, const int32_t *tokens, int count,
                          const float **logits);

/* Text b continues what text from[b] was. */
ph_status ph_decoder_reorder(ph_decoder *decoder, const int *from);

/* Continues the prompt, or answers it (encoder-decoder), as `how` says: up to `limit`
   tokens without the end mark. */
ph_status ph_generate_tokens(const ph_model *model, const ph_generation *how,
                             const int32_t *prompt, int prompt_count, int32_t *out,
                             int limit, int *count);

#endif
