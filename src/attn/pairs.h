/*
 * pairs.h - the steps of stream.c for bf16 tensors whose numbers are multiplied as they
 * are (ph_bf16_pairs in kernels.h). Blocks, splits, masks and the rest are those of all.
 */
#ifndef PH_ATTN_PAIRS_H
#define PH_ATTN_PAIRS_H

#include "attn/stream.h"

/* Carves operands for so many rows. */
void ph_tiles_take(const ph_plan *plan, ph_arena *arena, int rows, ph_tiles *out);

/* Packs q of the gathered rows. */
void ph_tiles_begin(const ph_call *call, ph_stream *stream);

/* Packs keys j0 + [c0, c1) of k and v, c0 a multiple of PH_AMX_STEP. Returns 1 if those
   of v are plain numbers. */
int ph_tiles_block(const ph_call *call, ph_stream *stream, int j0, int c0, int c1);

/* One strip, from row `first` on, against the block. */
void ph_tiles_strip(const ph_call *call, ph_stream *stream, int j0, int v_plain,
                    int first);

#endif
