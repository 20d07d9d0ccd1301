/*
 * ragged_twin.h - a random problem with padding, and the same rows as a ragged batch.
 */
#ifndef RAGGED_TWIN_H
#define RAGGED_TWIN_H

#include "cases.h"

/* A problem with padding (lengths per batch row) and the same rows without. */
typedef struct ragged_twin {
    problem padded, ragged;
    int32_t q_offsets[9], kv_offsets[9];
    int longest_q, longest_kv;
    float *weights, *rect; /* of the ragged look */
    float *relative, *drelative[2];
    float *extra[2][16], *dextra[2][16]; /* of a variant: padded, ragged */
    int extras;
} ragged_twin;

/* attn and with of t->padded are set; bias and visible are taken out. */
void twin_build(ragged_twin *t, uint64_t seed, int index);
void twin_free(ragged_twin *t);

/* NULL, or what has other bits in the ragged batch, looks included; gradients. */
const char *twin_differs(const ragged_twin *t);
const char *twin_grads_differ(const ragged_twin *t);

int same_floats(const float *x, const float *y, size_t count);

#endif
