/*
 * variant_collab.c - collaborative heads (spec collab, section 2).
 *
 *     Q = x wq, K = y wk     one of each, R wide, for all heads
 *     s_ij[h] = scale ( sum_r Q_i[r] mix[h][r] K_j[r] + content_h . y_j )
 *
 * Norm and rotation, where enabled, act on the shared Q and K.
 */
#include <math.h>

#include "variant_parts.h"

static void project(work *w)
{
    w->q_heads = w->k_heads = 1;
    w->qk_dim = columns(w, "wq");
    w->q = apply(w, w->x, w->q_len, w->model, "wq", "bq", 1, w->qk_dim);
    w->k = apply(w, w->other, w->kv_len, w->source, "wk", "bk", 1, w->qk_dim);
    w->v_dim = columns(w, "wv") / w->v_heads;
    w->v = apply(w, w->other, w->kv_len, w->source, "wv", "bv", w->v_heads, w->v_dim);
    w->scale = 1 / sqrt((double)w->model / w->heads);
}

/* One query of size R becomes one per head. */
static void mix(work *w)
{
    int wide = w->qk_dim, count = w->batch * w->heads * w->q_len * wide;
    const double *m = given(w, "mix"), *shared = w->q;
    w->q = take(w, count);
    for (int n = 0; n < count; n++) {
        int r = n % wide, i = n / wide % w->q_len, h = n / wide / w->q_len % w->heads;
        int b = n / wide / w->q_len / w->heads;
        w->q[n] = shared[(b * w->q_len + i) * wide + r] * m[h * wide + r];
    }
    jitter(w, w->q, count);
    w->q_heads = w->heads;
}

static void add_content(work *w)
{
    const double *content = given(w, "content");
    if (!content) return;
    w->content = take(w, w->batch * w->heads * w->kv_len);
    for (int n = 0; n < w->batch * w->heads * w->kv_len; n++) {
        int j = n % w->kv_len, h = n / w->kv_len % w->heads;
        const double *y =
            w->other + (n / w->kv_len / w->heads * w->kv_len + j) * w->source;
        for (int c = 0; c < w->source; c++)
            w->content[n] += content[h * w->source + c] * y[c];
    }
    jitter(w, w->content, w->batch * w->heads * w->kv_len);
}

static void arrange(work *w)
{
    mix(w);
    add_content(w);
}

const variant variant_collab = {.name = "collab", .project = project, .arrange = arrange};
