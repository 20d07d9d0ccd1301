/*
 * variant_diff2.c - differential attention, second version (spec score-modifiers, B3).
 *
 *     O_m = O1 - sigmoid( (x w_lambda)_m ) O2      O1, O2: heads 2m and 2m + 1
 */
#include <math.h>

#include "variant_parts.h"

static void combine(work *w)
{
    int half = w->heads / 2, wide = w->q_len * w->v_dim;
    const double *z = apply(w, w->x, w->q_len, w->model, "w_lambda", NULL, half, 1);
    double *to = take(w, w->batch * half * wide);
    for (int n = 0; n < w->batch * half * wide; n++) {
        int m = n / wide, i = n % wide;
        double share = 1 / (1 + exp(-z[m * w->q_len + i / w->v_dim]));
        to[n] = w->out[2 * m * wide + i] - share * w->out[(2 * m + 1) * wide + i];
    }
    jitter(w, to, w->batch * half * wide);
    w->out = to;
    w->out_heads = half;
}

const variant variant_diff2 = {.name = "diff2", .combine = combine};
