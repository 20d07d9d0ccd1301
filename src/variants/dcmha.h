/*
 * dcmha.h - the options of dcmha. dcmha.c mixes heads with given coefficients,
 * dcmha_layer.c computes the coefficients from the tokens.
 */
#ifndef PH_VARIANTS_DCMHA_H
#define PH_VARIANTS_DCMHA_H

#include "variants/kind.h"

enum { PH_DC_Q, PH_DC_K, PH_DC_BOTH };               /* side */
enum { PH_DC_TANH, PH_DC_ERF };                      /* gelu */
enum { PH_DC_W1, PH_DC_W2, PH_DC_G, PH_DC_TENSORS }; /* of a channel */

typedef struct ph_dcmha {
    int rank, side, gelu;
    int on[2]; /* by place: 1: heads are mixed there */
} ph_dcmha;

/* "rank=R,side=q|k|both,pre=0,post=0,gelu=tanh|erf" */
ph_status ph_dcmha_read(ph_ctx *ctx, const char *options, ph_dcmha *out);

/* Whether channel (place, side) is enabled. */
static inline int ph_dcmha_has(const ph_dcmha *d, int place, int side)
{
    return d->on[place] && (d->side == side || d->side == PH_DC_BOTH);
}

extern const ph_layer_kind ph_kind_dcmha;

#endif
