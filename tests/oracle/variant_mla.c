/*
 * variant_mla.c - latent attention in its expanded form (spec score-modifiers, B2).
 *
 *     [c | r] = y w_dkv             c = norm(c) kv_norm, r = rotated, one for all heads
 *     k_h = [ c w_uk_h | r ]        v_h = c w_uv_h
 *     q_h = [ nope | rotated ]      of x wq + bq, or norm(x w_dq) q_norm w_uq
 *     scale = 1/sqrt(nope + rope)
 *
 * RMS norms with eps 1e-6; pairs are interleaved unless half is set.
 */
#include <math.h>

#include "variant_parts.h"

/* The first `keep` elements of each row. */
static double *cut(work *w, const double *from, int rows, int wide, int start, int keep)
{
    double *to = take(w, rows * keep);
    for (int n = 0; n < rows * keep; n++)
        to[n] = from[n / keep * wide + start + n % keep];
    return to;
}

static double *make_q(work *w, int wide)
{
    if (!bag_find(w->in, "w_dq"))
        return apply(w, w->x, w->q_len, w->model, "wq", "bq", w->heads, wide);
    int latent = columns(w, "w_dq");
    double *c = apply(w, w->x, w->q_len, w->model, "w_dq", NULL, 1, latent);
    rms_rows(c, w->batch * w->q_len, latent, given(w, "q_norm"), 1e-6);
    jitter(w, c, w->batch * w->q_len * latent);
    return apply(w, c, w->q_len, latent, "w_uq", NULL, w->heads, wide);
}

/* (batch, heads, kv_len, nope) and (batch, kv_len, rope) side by side. */
static double *join(work *w, const double *nope, const double *rotated, int n, int rope)
{
    int wide = n + rope, count = w->batch * w->heads * w->kv_len * wide;
    double *to = take(w, count);
    for (int a = 0; a < count; a++) {
        int d = a % wide, row = a / wide;
        int token = row / w->kv_len / w->heads * w->kv_len + row % w->kv_len;
        to[a] = d < n ? nope[row * n + d] : rotated[token * rope + d - n];
    }
    return to;
}

static void project(work *w)
{
    int rope = (int)option_number(w, "rope", 0), tokens = w->batch * w->kv_len;
    int both = columns(w, "w_dkv"), latent = both - rope, pairs = w->o->rope != 1;
    int nope = columns(w, "w_uk") / w->heads;
    double *down = apply(w, w->other, w->kv_len, w->source, "w_dkv", NULL, 1, both);
    double *c = cut(w, down, tokens, both, 0, latent);
    double *rotated = cut(w, down, tokens, both, latent, rope);
    rms_rows(c, tokens, latent, given(w, "kv_norm"), 1e-6);
    jitter(w, c, tokens * latent);
    rotate(w, rotated, tokens, w->kv_len, rope, rope, 0, pairs);
    w->qk_dim = nope + rope;
    w->v_dim = columns(w, "w_uv") / w->heads;
    w->k_heads = w->v_heads = w->heads;
    double *up = apply(w, c, w->kv_len, latent, "w_uk", NULL, w->heads, nope);
    w->k = join(w, up, rotated, nope, rope);
    w->v = apply(w, c, w->kv_len, latent, "w_uv", NULL, w->heads, w->v_dim);
    w->q = make_q(w, w->qk_dim);
    rotate(w, w->q + nope, w->batch * w->heads * w->q_len, w->q_len, w->qk_dim, rope,
           w->o->offset, pairs);
    w->scale = 1 / sqrt((double)w->qk_dim);
    w->rotated = 1;
}

const variant variant_mla = {.name = "mla", .project = project};
