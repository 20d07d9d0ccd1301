/*
 * variant_gated.c - sigmoid gates on the output of the heads (score-modifiers, B4).
 *
 *     O'_h = O_h sigmoid( (x w_gate)_h )     head: one number, element: v_dim numbers
 */
#include <math.h>

#include "variant_parts.h"

static void combine(work *w)
{
    int wide = columns(w, "w_gate") / w->heads; /* 1 or v_dim */
    int rows = w->batch * w->heads * w->q_len;
    const double *z = apply(w, w->x, w->q_len, w->model, "w_gate", NULL, w->heads, wide);
    for (int n = 0; n < rows * w->v_dim; n++) {
        int at = n / w->v_dim * wide + (wide > 1 ? n % w->v_dim : 0);
        w->out[n] /= 1 + exp(-z[at]);
    }
    jitter(w, w->out, rows * w->v_dim);
}

const variant variant_gated = {.name = "gated", .combine = combine};
