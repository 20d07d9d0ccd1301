/*
 * generate.h - decoding with caches: one token after the other.
 */
#ifndef PH_MODEL_GENERATE_H
#define PH_MODEL_GENERATE_H

#include "model/pass.h"

typedef struct ph_decoder ph_decoder;

/* A decoder for `beams` texts side by side; of an encoder-decoder they all belong to one
   source, which is read here. */
ph_status ph_decoder_create(ph_decoder **out, const ph_model *model, int beams,
                            const int32_t *source, int source_len);
void ph_decoder_free(ph_decoder *decoder);

/* Feeds `count` more tokens to each text, (beams, count); *logits (beams, vocab) of what
   follows the last of them, valid until the next call. */
ph_status ph_decoder_feed(ph_decoder *decoder, const int32_t *tokens, int count,
                          const float **logits);

/* Text b goes on as text from[b] stood. */
ph_status ph_decoder_reorder(ph_decoder *decoder, const int *from);

/* The most likely token each time, up to the end mark (not stored) or `room`. */
ph_status ph_generate_greedy(const ph_model *model, const int32_t *source, int source_len,
                             int32_t *out, int room, int *count);

#endif
