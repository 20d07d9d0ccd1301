/*
 * variant_diff.c - differential attention, first version (spec score-modifiers, B3).
 *
 *     O_m = norm( O1 - lambda O2 ) (1 - init)    O1, O2: heads 2m and 2m+1 with one v_m
 *     lambda = exp(lambda_q1 . lambda_k1) - exp(lambda_q2 . lambda_k2) + init
 *     init = 0.8 - 0.6 exp(-0.3 depth)           norm: RMS over v_dim, gain diff_norm,
 *                                                eps 1e-5
 * h output heads come from 2h q and k heads and h v heads.
 */
#include <math.h>

#include "variant_parts.h"

static double dot(const work *w, const char *one, const char *two)
{
    const bag_tensor *a = bag_find(w->in, one), *b = bag_find(w->in, two);
    double sum = 0;
    for (int d = 0; d < bag_size(a); d++) sum += a->data[d] * b->data[d];
    return sum;
}

static void combine(work *w)
{
    double start = 0.8 - 0.6 * exp(-0.3 * option_number(w, "depth", 0));
    double lambda = exp(dot(w, "lambda_q1", "lambda_k1")) -
                    exp(dot(w, "lambda_q2", "lambda_k2")) + start;
    int wide = w->q_len * w->v_dim, half = w->heads / 2;
    double *to = take(w, w->batch * half * wide);
    for (int m = 0; m < w->batch * half; m++)
        for (int n = 0; n < wide; n++)
            to[m * wide + n] =
                w->out[2 * m * wide + n] - lambda * w->out[(2 * m + 1) * wide + n];
    jitter(w, to, w->batch * half * wide);
    rms_rows(to, w->batch * half * w->q_len, w->v_dim, given(w, "diff_norm"), 1e-5);
    for (int n = 0; n < w->batch * half * wide; n++) to[n] *= 1 - start;
    jitter(w, to, w->batch * half * wide);
    w->out = to;
    w->out_heads = half;
}

const variant variant_diff = {.name = "diff", .combine = combine};
