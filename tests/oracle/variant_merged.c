/*
 * variant_merged.c - merged attention (spec score-modifiers, A2).
 *
 *     out_t = cross-attention_t + 1/n_t sum of U_j over valid j <= t,   U = x wv + bv
 */
#include "variant_parts.h"

static void combine(work *w)
{
    const double *u = apply(w, w->x, w->q_len, w->model, "wv", "bv", w->heads, w->v_dim);
    int wide = w->q_len * w->v_dim;
    for (int n = 0; n < w->batch * w->heads * wide; n++) {
        int t = n % wide / w->v_dim, b = n / wide / w->heads;
        double sum = 0;
        if (w->q_lens && t >= (int)w->q_lens[b]) continue;
        for (int j = 0; j <= t; j++) sum += u[n - (t - j) * w->v_dim];
        w->out[n] += sum / (t + 1);
    }
    jitter(w, w->out, w->batch * w->heads * wide);
}

const variant variant_merged = {.name = "merged", .combine = combine};
