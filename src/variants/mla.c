/*
 * mla.c - multi-head latent attention: keys and values of all heads from one latent.
 *
 *     [c | r] = y w_dkv           c (C) normalised with kv_norm, r (DR) rotated
 *     k_h = [c w_uk_h | r]        v_h = c w_uv_h            one r for all heads
 *     q_h = [nope | rope]         x wq, or norm(x w_dq) q_norm w_uq; rope rotated
 *
 * The layer projects [c | r] as its key: that is all a cache holds. Without a cache, keys
 * and values are expanded. With one they are absorbed, so that cached latents are never
 * expanded: attention has one key [c | r] and one value c for all heads, and
 *
 *     q_h = [nope w_uk_h^T | rope]       heads_h = (weights_h c) w_uv_h
 *
 * which is the same in exact arithmetic.
 */
#include <math.h>
#include <string.h>

#include "variants/kind.h"

enum { W_DKV, KV_NORM, W_UK, W_UV, W_DQ, Q_NORM, W_UQ }; /* own parameters */
enum { Z, CQ }; /* saved: (rows, q_latent) x w_dq, and normalised */
enum {
    K = 2,
    V
};              /* saved; in long texts forward_only and slice: expanded keys, values */
enum { Q = 4 }; /* forward_only: absorbed queries */
enum {
    SUMS = 5,
    DC
}; /* backward_only: partial sums of the gradient of q_norm; the
                          gradient of c through the values */

typedef struct mla_state {
    int rope, nope;       /* elements of a query that are rotated, that are not */
    int latent, q_latent; /* C; width of norm(x w_dq), 0: queries directly from x */
    int v_dim;            /* of a head in the input of wo */
    ph_linear down;       /* x w_dq */
} mla_state;

_Static_assert(sizeof(mla_state) <= PH_KIND_STATE, "state of mla");

static const mla_state *state_of(const ph_kind_call *c)
{
    return (const mla_state *)c->shape->state;
}

/* ---- products ---------------------------------------------------------------------- */

/* Describes the product of one head, or (head ignored) of all. */
typedef ph_gemm maker(const ph_kind_call *c, int h);

/* Row lengths: of queries, of [c | r], of a matrix of all heads; of the current heads. */
static int64_t q_row(const ph_kind_call *c)
{
    return (int64_t)c->shape->q.heads * c->shape->q.dim;
}

static int64_t k_row(const ph_kind_call *c)
{
    return c->shape->k.dim;
}

static int64_t uv_row(const ph_kind_call *c)
{
    return (int64_t)c->shape->q.heads * state_of(c)->v_dim;
}

static int64_t uk_row(const ph_kind_call *c)
{
    return (int64_t)c->shape->q.heads * state_of(c)->nope;
}

static int64_t key_row(const ph_kind_call *c)
{
    return (int64_t)c->q_heads * c->shape->q.dim;
}

static int64_t value_row(const ph_kind_call *c)
{
    return (int64_t)c->q_heads * state_of(c)->v_dim;
}

static int keeps(const ph_kind_call *c)
{
    return c->shape->saved[K] > 0;
}

/* What attention reads: saved, or of all heads in the forward pass and of a slice in the
   backward pass. */
static float *expanded(const ph_kind_call *c, int buffer)
{
    if (keeps(c)) return c->saved[buffer];
    return (c->grads ? c->slice : c->forward_only)[buffer];
}

/* First column of w_uk or w_uv of head h of the slice, `dim` for each head. */
static int64_t column(const ph_kind_call *c, int h, int dim)
{
    return (int64_t)(c->first + h) * dim;
}

/* k_h = [c w_uk_h | .] of the current heads */
static ph_gemm expand_k(const ph_kind_call *c, int h)
{
    const mla_state *s = state_of(c);
    ph_gemm g = {.m = c->key_tokens.rows, .n = c->q_heads * s->nope, .k = s->latent};
    g.a = c->k_proj, g.a_row = k_row(c), g.a_col = 1;
    g.b = ph_float_at(c->param[W_UK], column(c, h, s->nope)), g.b_row = uk_row(c);
    g.b_col = 1;
    g.c = expanded(c, K), g.c_row = key_row(c);
    g.c_block = s->nope, g.c_step = c->shape->q.dim;
    return g;
}

/* v_h = c w_uv_h of the current heads */
static ph_gemm expand_v(const ph_kind_call *c, int h)
{
    const mla_state *s = state_of(c);
    ph_gemm g = {.m = c->key_tokens.rows, .n = (int)value_row(c), .k = s->latent};
    g.a = c->k_proj, g.a_row = k_row(c), g.a_col = 1;
    g.b = ph_float_at(c->param[W_UV], column(c, h, s->v_dim)), g.b_row = uv_row(c);
    g.b_col = 1;
    g.c = expanded(c, V), g.c_row = value_row(c);
    return g;
}

/* dc of the values (+)= sum_h dv_h w_uv_h^T */
static ph_gemm shrink_v(const ph_kind_call *c, int h)
{
    const mla_state *s = state_of(c);
    ph_gemm g = {.m = c->key_tokens.rows, .n = s->latent, .k = (int)value_row(c)};
    g.a = c->dv, g.a_row = value_row(c), g.a_col = 1;
    g.b = ph_float_at(c->param[W_UV], column(c, h, s->v_dim)), g.b_row = 1;
    g.b_col = uv_row(c);
    g.c = c->backward_only[DC], g.c_row = s->latent, g.add = c->first > 0;
    return g;
}

/* dc of the keys (+)= sum_h dk_h w_uk_h^T */
static ph_gemm shrink_k(const ph_kind_call *c, int h)
{
    const mla_state *s = state_of(c);
    ph_gemm g = {.m = c->key_tokens.rows, .n = s->latent, .k = c->q_heads * s->nope};
    g.a = c->dk, g.a_row = key_row(c), g.a_col = 1;
    g.a_block = s->nope, g.a_step = c->shape->q.dim;
    g.b = ph_float_at(c->param[W_UK], column(c, h, s->nope)), g.b_row = 1;
    g.b_col = uk_row(c);
    g.c = c->dk_proj, g.c_row = k_row(c), g.add = c->first > 0;
    return g;
}

/* dw_uv = c^T dv */
static ph_gemm gradient_uv(const ph_kind_call *c, int h)
{
    const mla_state *s = state_of(c);
    ph_gemm g = {.m = s->latent, .n = (int)value_row(c), .k = c->key_tokens.rows};
    g.a = c->k_proj, g.a_row = 1, g.a_col = k_row(c);
    g.b = c->dv, g.b_row = value_row(c), g.b_col = 1;
    g.c = ph_float_at_out(c->dparam[W_UV], column(c, h, s->v_dim));
    g.c_row = uv_row(c);
    return g;
}

/* dw_uk = c^T dk */
static ph_gemm gradient_uk(const ph_kind_call *c, int h)
{
    const mla_state *s = state_of(c);
    ph_gemm g = {.m = s->latent, .n = c->q_heads * s->nope, .k = c->key_tokens.rows};
    g.a = c->k_proj, g.a_row = 1, g.a_col = k_row(c);
    g.b = c->dk, g.b_row = key_row(c), g.b_col = 1;
    g.b_block = s->nope, g.b_step = c->shape->q.dim;
    g.c = ph_float_at_out(c->dparam[W_UK], column(c, h, s->nope)), g.c_row = uk_row(c);
    return g;
}

/* q_h = [nope w_uk_h^T | .] */
static ph_gemm absorb_q(const ph_kind_call *c, int h)
{
    const mla_state *s = state_of(c);
    ph_gemm g = {.m = c->x_tokens.rows, .n = s->latent, .k = s->nope};
    g.a = ph_float_at(c->q_proj, (int64_t)h * c->shape->q.dim), g.a_row = q_row(c),
    g.a_col = 1;
    g.b = ph_float_at(c->param[W_UK], (int64_t)h * s->nope), g.b_row = 1,
    g.b_col = uk_row(c);
    g.c = ph_float_at_out(c->forward_only[Q], h * k_row(c)),
    g.c_row = c->shape->q.heads * k_row(c);
    return g;
}

/* out_h = heads_h w_uv_h */
static ph_gemm absorb_v(const ph_kind_call *c, int h)
{
    const mla_state *s = state_of(c);
    ph_gemm g = {.m = c->x_tokens.rows, .n = s->v_dim, .k = s->latent};
    g.a = ph_float_at(c->heads, (int64_t)h * s->latent), g.a_col = 1;
    g.a_row = (int64_t)c->shape->q.heads * s->latent;
    g.b = ph_float_at(c->param[W_UV], (int64_t)h * s->v_dim), g.b_row = uv_row(c),
    g.b_col = 1;
    g.c = ph_float_at_out(c->out, (int64_t)h * s->v_dim), g.c_row = uv_row(c);
    return g;
}

/* One product per head, in parallel. */
static void run_heads(ph_kind_call *c, maker *make)
{
    ph_gemm list[PH_GEMM_MAX];
    for (int h = 0, n = 0; h < c->q_heads; h++) {
        list[n++] = make(c, h);
        if (n < PH_GEMM_MAX && h + 1 < c->q_heads) continue;
        ph_gemm_run(c->ctx, list, n, c->work);
        n = 0;
    }
}

/* One product, or two with the same left operand (NULL: not wanted). */
static int list_products(const ph_kind_call *c, maker *one, maker *two, ph_gemm list[2])
{
    int n = 0;
    if (one) list[n++] = one(c, 0);
    if (two) list[n++] = two(c, 0);
    list[1].same_a = 1;
    return n;
}

static void run_products(ph_kind_call *c, maker *one, maker *two)
{
    ph_gemm list[2];
    int n = list_products(c, one, two, list);
    if (n) ph_gemm_run(c->ctx, list, n, c->work);
}

/* ---- shape ------------------------------------------------------------------------- */

static void measure_products(ph_shape *s)
{
    static const struct {
        maker *one, *two;
        int per_head; /* 1: one for every head, in parallel */
        int cache;    /* 1: of a layer with a cache */
    } all[] = {{expand_k, expand_v, 0, 0}, {shrink_v, NULL, 0, 0},
               {shrink_k, NULL, 0, 0},     {gradient_uk, gradient_uv, 0, 0},
               {absorb_q, NULL, 1, 1},     {absorb_v, NULL, 1, 1}};
    const float *none[W_UQ + 1] = {NULL};
    float *no_gradient[W_UQ + 1] = {NULL};
    ph_kind_call c = {.shape = s, .param = none, .dparam = no_gradient};
    c.q_heads = s->q.heads;
    c.x_tokens.rows = ph_desc_rows(s->desc);
    c.key_tokens.rows = ph_desc_key_rows(s->desc);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        ph_gemm list[PH_GEMM_MAX];
        if (all[i].cache != s->desc->cache) continue;
        int n = list_products(&c, all[i].one, all[i].two, list);
        while (all[i].per_head && n < ph_min(s->q.heads, PH_GEMM_MAX))
            list[n++] = list[0];
        ph_shape_products(s, list, n);
    }
}

static ph_status read_options(ph_shape *s, const char *options)
{
    mla_state *own = (mla_state *)s->state;
    const ph_layer_desc *given = s->given;
    const ph_attn *a = &s->desc->attn;
    double rope = 0, latent = 0, q_latent = 0;
    const ph_variant_option list[] = {
        {.key = "rope", .number = &rope, .most = a->qk_dim, .whole = 1},
        {.key = "latent", .number = &latent, .most = 1 << 20, .whole = 1},
        {.key = "q_latent", .number = &q_latent, .most = 1 << 20, .whole = 1}};
    PH_TRY(ph_options_read(s->ctx, "mla", options, list, 3));
    own->rope = (int)rope, own->nope = a->qk_dim - own->rope;
    own->latent = (int)latent, own->q_latent = (int)q_latent, own->v_dim = a->v_dim;
    if (own->rope % 2 || own->nope < 1)
        return ph_fail(s->ctx, PH_BAD_SHAPE,
                       "option rope of variant mla is %d, expected an even number below "
                       "qk_dim %d",
                       own->rope, a->qk_dim);
    if (own->latent < 1)
        return ph_fail(s->ctx, PH_BAD_ARGUMENT,
                       "option latent of variant mla is missing, expected the size of "
                       "the latent that keys and values are projected from");
    if (a->k_heads != a->q_heads || a->v_heads != a->q_heads)
        return ph_fail(s->ctx, PH_UNSUPPORTED,
                       "variant mla has %d, %d and %d heads of q, k and v, expected as "
                       "many of each",
                       a->q_heads, a->k_heads, a->v_heads);
    if (given->qk_norm)
        return ph_fail(s->ctx, PH_UNSUPPORTED,
                       "qk_norm is %d, expected 0 because variant mla has norms of its "
                       "own",
                       given->qk_norm);
    return PH_OK;
}

static void list_params(ph_shape *s, const mla_state *own)
{
    int in = s->k.in, heads = s->attn.q_heads, latent = own->latent;
    ph_shape_param(s, "w_dkv", 0, in, latent + own->rope, 0, 0);
    ph_shape_param(s, "kv_norm", 0, latent, 0, 0, 0);
    ph_shape_param(s, "w_uk", 0, latent, heads * own->nope, 0, 0);
    ph_shape_param(s, "w_uv", 0, latent, heads * own->v_dim, 0, 0);
    if (!own->q_latent) return;
    ph_shape_param(s, "w_dq", 0, s->desc->model_dim, own->q_latent, 0, 0);
    ph_shape_param(s, "q_norm", 0, own->q_latent, 0, 0, 0);
    ph_shape_param(s, "w_uq", 0, own->q_latent, heads * s->q.dim, 0, 0);
}

/* What attention computes: expanded, or absorbed with a cache. */
static void plan(ph_shape *s, const mla_state *own)
{
    ph_attn *a = &s->attn;
    int heads = a->q_heads, row = heads * a->qk_dim, wide = own->latent + own->rope;
    size_t q_rows = (size_t)ph_desc_rows(s->desc);
    size_t kv_rows = (size_t)ph_desc_key_rows(s->desc);
    if (a->scale == 0) a->scale = (float)(1 / sqrt(a->qk_dim));
    if (!s->desc->cache) {
        size_t keys = kv_rows * (size_t)a->qk_dim, values = kv_rows * (size_t)a->v_dim;
        int is_long = ph_shape_is_long(s);
        s->k.transformed = s->v.transformed = s->makes_kv = s->wants_slices = 1;
        if (is_long) s->slice[K] = keys, s->slice[V] = values;
        (is_long ? s->forward_only : s->saved)[K] = keys * (size_t)heads;
        (is_long ? s->forward_only : s->saved)[V] = values * (size_t)heads;
        s->backward_only[DC] = kv_rows * (size_t)own->latent;
        a->k = (ph_strides){(int64_t)a->kv_len * row, a->qk_dim, row};
        a->v = (ph_strides){(int64_t)a->kv_len * heads * a->v_dim, a->v_dim,
                            (int64_t)heads * a->v_dim};
        return;
    }
    a->k_heads = a->v_heads = 1;
    a->qk_dim = wide, a->v_dim = own->latent;
    a->q = (ph_strides){(int64_t)a->q_len * heads * wide, wide, (int64_t)heads * wide};
    a->v = (ph_strides){(int64_t)a->kv_len * wide, wide, wide};
    s->makes_q = 1;
    s->forward_only[Q] = q_rows * (size_t)(heads * wide);
    s->makes_out = 1;
}

/* Keys and values of every key, or queries and values of every query. */
static double products_flops(const ph_shape *s, const mla_state *own)
{
    const ph_attn *a = &s->desc->attn;
    double rows = ph_desc_key_rows(s->desc);
    return 2 * rows * own->latent * a->q_heads * (own->nope + own->v_dim);
}

static ph_status shape(ph_shape *s, const char *options)
{
    mla_state *own = (mla_state *)s->state;
    PH_TRY(read_options(s, options));
    PH_TRY(ph_shape_width(s, "latent", s->attn.q_heads, own->latent + own->rope));
    if (own->rope && !s->desc->rope) s->desc->rope = PH_ROPE_INTERLEAVED;
    s->desc->rope_dims = own->rope;
    s->q.angles = s->k.angles = own->rope / 2;
    s->q.rope_at = own->nope;
    s->k = (ph_projection){s->k.in,
                           1,
                           own->latent + own->rope,
                           .norm = own->latent,
                           .angles = own->rope / 2,
                           .rope_at = own->latent,
                           .w = W_DKV,
                           .gain = KV_NORM,
                           .from = -1};
    s->v.heads = 0;
    if (own->q_latent) {
        size_t rows = (size_t)ph_desc_rows(s->desc);
        s->q.in = own->q_latent, s->q.w = W_UQ, s->q.from = CQ;
        own->down = (ph_linear){.param = W_DQ, .columns = own->q_latent, .buffer = Z};
        ph_shape_linears(s, &own->down, 1);
        s->saved[CQ] = s->backward_only[CQ] = s->backward_only[SUMS] =
            rows * (size_t)own->q_latent;
    }
    list_params(s, own);
    plan(s, own);
    measure_products(s);
    s->flops += products_flops(s, own);
    return PH_OK;
}

/* ---- queries from a short vector --------------------------------------------------- */

static float inverse_rms(const ph_kind_call *c, const float *x, int n)
{
    return (float)ph_kind_inverse_rms(n, x, c->shape->desc->norm_eps);
}

static void norm_token(ph_kind_call *c, int row)
{
    int n = state_of(c)->q_latent;
    const float *z = c->saved[Z] + (int64_t)row * n;
    float *y = c->saved[CQ] + (int64_t)row * n, r = inverse_rms(c, z, n);
    for (int i = 0; i < n; i++) y[i] = z[i] * r * c->param[Q_NORM][i];
}

static void no_token(ph_kind_call *c, int row)
{
    int n = state_of(c)->q_latent;
    memset(c->saved[CQ] + (int64_t)row * n, 0, (size_t)n * sizeof(float));
}

static void project(ph_kind_call *c)
{
    if (!state_of(c)->q_latent) return;
    ph_kind_linears(c, &state_of(c)->down, 1);
    ph_kind_tokens(c, norm_token, no_token);
}

static void norm_token_backward(ph_kind_call *c, int row)
{
    int n = state_of(c)->q_latent;
    int64_t first = (int64_t)row * n;
    const float *z = c->saved[Z] + first, *dy = c->backward_only[CQ] + first;
    const float *gain = c->param[Q_NORM];
    float *dz = c->backward_only[Z] + first, r = inverse_rms(c, z, n);
    double mean = 0;
    for (int i = 0; i < n; i++) mean += (double)(gain[i] * dy[i]) * (z[i] * r) / n;
    for (int i = 0; i < n; i++) {
        dz[i] = r * (gain[i] * dy[i] - z[i] * r * (float)mean);
        c->backward_only[SUMS][first + i] = dy[i] * (z[i] * r);
    }
}

static void no_token_backward(ph_kind_call *c, int row)
{
    size_t n = (size_t)state_of(c)->q_latent;
    memset(c->backward_only[Z] + (size_t)row * n, 0, n * sizeof(float));
    memset(c->backward_only[SUMS] + (size_t)row * n, 0, n * sizeof(float));
}

static void project_backward(ph_kind_call *c)
{
    int n = state_of(c)->q_latent;
    float *dgain = n ? c->dparam[Q_NORM] : NULL;
    if (!n) return;
    ph_kind_tokens(c, norm_token_backward, no_token_backward);
    ph_kind_linears_backward(c, &state_of(c)->down, 1);
    for (int i = 0; i < n && dgain; i++) {
        double sum = 0;
        for (int row = 0; row < c->x_tokens.rows; row++)
            sum += c->backward_only[SUMS][(int64_t)row * n + i];
        dgain[i] = (float)sum;
    }
}

/* ---- keys and values from a short vector ------------------------------------------ */

/* Copies r after the elements of every head. */
static void copy_rope_key(ph_kind_call *c, int row)
{
    const mla_state *s = state_of(c);
    const float *r = c->k_proj + row * k_row(c) + s->latent;
    for (int h = 0; h < c->q_heads; h++)
        memcpy(expanded(c, K) + row * key_row(c) + h * c->shape->q.dim + s->nope, r,
               (size_t)s->rope * sizeof *r);
}

static void no_key(ph_kind_call *c, int row)
{
    memset(c->k_proj + row * k_row(c), 0, (size_t)k_row(c) * sizeof(float));
}

static void sum_key(ph_kind_call *c, int row)
{
    const mla_state *s = state_of(c);
    float *dr = c->dk_proj + row * k_row(c) + s->latent;
    const float *dk = c->dk + row * key_row(c) + s->nope;
    for (int i = 0; i < s->rope && c->first == 0; i++) dr[i] = 0;
    for (int h = 0; h < c->q_heads; h++, dk += c->shape->q.dim)
        for (int i = 0; i < s->rope; i++) dr[i] += dk[i];
}

static void copy_rope_query(ph_kind_call *c, int row)
{
    const mla_state *s = state_of(c);
    for (int h = 0; h < c->shape->q.heads; h++)
        memcpy(c->forward_only[Q] + (row * (int64_t)c->shape->q.heads + h) * k_row(c) +
                   s->latent,
               c->q_proj + row * q_row(c) + h * c->shape->q.dim + s->nope,
               (size_t)s->rope * sizeof(float));
}

static void before(ph_kind_call *c)
{
    if (c->shape->desc->cache) {
        run_heads(c, absorb_q);
        ph_kind_tokens(c, copy_rope_query, NULL);
        c->q = c->forward_only[Q], c->v = c->k;
        return;
    }
    c->k = expanded(c, K), c->v = expanded(c, V);
    if (c->grads && keeps(c)) return;
    ph_kind_key_tokens(c, copy_rope_key, no_key);
    run_products(c, expand_k, expand_v);
}

static void after(ph_kind_call *c)
{
    run_heads(c, absorb_v);
}

/* dc += its gradient through the values, once all heads are done. */
static void add_values(ph_kind_call *c, int row)
{
    int n = state_of(c)->latent;
    const float *from = c->backward_only[DC] + (int64_t)row * n;
    float *to = c->dk_proj + row * k_row(c);
    for (int i = 0; i < n; i++) to[i] += from[i];
}

static void before_backward(ph_kind_call *c)
{
    run_products(c, shrink_v, NULL);
    run_products(c, shrink_k, NULL);
    ph_kind_key_tokens(c, sum_key, sum_key);
    if (c->first + c->q_heads == c->shape->q.heads)
        ph_kind_key_tokens(c, add_values, add_values);
    run_products(c, c->dparam[W_UK] ? gradient_uk : NULL,
                 c->dparam[W_UV] ? gradient_uv : NULL);
}

static const ph_layer_kind kind = {.shape = shape,
                                   .project = project,
                                   .before = before,
                                   .after = after,
                                   .before_backward = before_backward,
                                   .project_backward = project_backward,
                                   .by_heads = 1};

const ph_variant ph_variant_mla = {
    .info = {.name = "mla",
             .options = "mla:rope=DR,latent=C[,q_latent=Q]",
             .help = "latent attention: keys and values of all heads from a latent of "
                     "size C per token, which is all that a cache holds",
             .tensors =
                 "w_dkv (in_dim, C + DR) the latent of a token, and its rotated key\n"
                 "kv_norm (C) gains of its norm\n"
                 "w_uk (C, H*(qk_dim - DR)) keys from the latent\n"
                 "w_uv (C, H*v_dim) values from the latent\n"
                 "wq (model_dim, H*qk_dim) queries, where there is no q_latent\n"
                 "w_dq (model_dim, Q) else: the latent of queries\n"
                 "q_norm (Q) gains of its norm\n"
                 "w_uq (Q, H*qk_dim) queries from it\n"},
    .layer = &kind,
};
