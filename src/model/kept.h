/*
 * kept.h - which heads a model still has, by their indices before any was removed.
 *
 * A place is where an attention sublayer stands: all of the encoder or the only stack,
 * layer by layer, then self-attention and cross-attention of each layer of a decoder. The
 * heads that are left at a place are ordered as before, and each `group` of them share
 * keys and values. Where groups lost different numbers of heads, keys and values are
 * copied so that groups have one size: their greatest common divisor.
 */
#ifndef PH_MODEL_KEPT_H
#define PH_MODEL_KEPT_H

#include "base/ctx.h"
#include "polyhead_model.h"

typedef struct ph_kept {
    int places, heads; /* heads of each place before */
    uint8_t *removed;  /* (places, heads); NULL: none, and all fields are 0 */
    int *group;        /* (places) heads that share keys and values; 0: all are there */
} ph_kept;

/* The place of a sublayer; stack 1: the decoder of an encoder-decoder. */
int ph_kept_place(const ph_config *c, int stack, int layer, int cross);

/* All heads are there. */
ph_status ph_kept_create(ph_kept *kept, ph_ctx *ctx, const ph_config *c);
ph_status ph_kept_copy(ph_kept *to, ph_ctx *ctx, const ph_config *c, const ph_kept *from);
void ph_kept_free(ph_kept *kept, ph_ctx *ctx);

int ph_kept_count(const ph_kept *kept, int place); /* heads that are left */

/* {"encoder.0.self": {"heads": [0, 2], "group": 1}, ...} of the places that lost heads,
   as ph_json_writer writes it; and from such a text, which is changed. */
struct ph_json_writer;
void ph_kept_print(const ph_kept *kept, const ph_config *c, struct ph_json_writer *out);
ph_status ph_kept_read(ph_kept *kept, ph_ctx *ctx, const ph_config *c, char *text);

#endif
