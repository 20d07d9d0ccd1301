/*
 * variant_mohsa.c - overlapping heads (spec mohsa, section 1).
 *
 *     Z'_h = [ 0_o | Z | 0_o ] [ h d : h d + d + 2o ]     for Z = q, k, v
 *
 * Z is the concatenation of all heads. The scale stays 1/sqrt(d).
 */
#include "variant_parts.h"

/* (batch, heads, len, d) to (batch, heads, len, d + 2o). */
static double *windows(work *w, const double *z, int len, int d, int o)
{
    int wide = d + 2 * o, count = w->batch * w->heads * len * wide;
    double *to = take(w, count);
    for (int n = 0; n < count; n++) {
        int t = n / wide % len, h = n / wide / len % w->heads,
            b = n / wide / len / w->heads;
        int channel = h * d - o + n % wide;
        if (channel < 0 || channel >= w->heads * d) continue;
        to[n] = z[((b * w->heads + channel / d) * len + t) * d + channel % d];
    }
    return to;
}

static void arrange(work *w)
{
    int o = (int)option_number(w, "overlap", 0);
    w->q = windows(w, w->q, w->q_len, w->qk_dim, o);
    w->k = windows(w, w->k, w->kv_len, w->qk_dim, o);
    w->v = windows(w, w->v, w->kv_len, w->v_dim, o);
    w->qk_dim += 2 * o;
    w->v_dim += 2 * o;
}

const variant variant_mohsa = {.name = "mohsa", .arrange = arrange};
