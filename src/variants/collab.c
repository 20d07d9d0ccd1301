/*
 * collab.c - collaborative heads: one query and one key for all, whose elements each head
 * weights by a mixing vector of its own.
 *
 *     Q = x wq, K = y wk          (R) each, y = memory or x;  v as usual
 *     score of head h = scale (sum_r Q_r mix[h][r] K_r + content[h] . y)
 *     scale                       1/sqrt(model_dim / H) unless given
 *     R                           qk_dim, or the option dim beside values of head size
 *
 * Attention sees multi-query heads: q_h = Q * mix[h], one key. The content bias is stored
 * as H more elements of the key, of which head h selects its own by a 1 in its query, so
 * that it is cached and masked like the rest of the key:
 *
 *     q_h = [ Q * mix[h] | 0 .. 1 .. 0 ]        k = [ K | content y ]
 *
 * Backward: dQ = sum_h mix[h] dq_h, dmix[h] = sum over tokens of Q dq_h; content is one
 * more projection of y.
 */
#include <math.h>
#include <string.h>

#include "variants/kind.h"

enum { MIX, CONTENT }; /* own parameters */
enum {
    MIXED, /* saved; in long texts forward_only and slice: (rows, H, width) queries */
    SUMS   /* slice: (chunks, H, R) partial sums of dmix */
};
enum { CHUNK = 32 }; /* tokens of one item, and of one partial sum of dmix */

typedef struct collab_state {
    int content; /* 1: there is a content bias */
    int shared;  /* R */
} collab_state;

static int has_content(const ph_shape *s)
{
    return ((const collab_state *)s->state)->content;
}

/* K | content y: the latter as a product (rows, in) x (in, H) into the tail of K. */
static ph_gemm content_product(const ph_shape *s, int rows, const void *source,
                               const float *content, float *k)
{
    ph_gemm g = {.m = rows, .n = s->k.tail, .k = s->k.in};
    g.a = source, g.a_type = s->desc->attn.dtype, g.a_row = s->k.in, g.a_col = 1;
    g.b = content, g.b_row = 1, g.b_col = s->k.in;
    g.c = k ? k + s->k.dim : NULL, g.c_row = ph_projection_row(&s->k);
    return g;
}

/* dcontent (H, in) = dk^T source, written transposed through strides. */
static ph_gemm content_dw(const ph_shape *s, int rows, const void *source,
                          const float *dk, float *dcontent)
{
    ph_gemm g = {.m = s->k.in, .n = s->k.tail, .k = rows};
    g.a = source, g.a_type = s->desc->attn.dtype, g.a_row = 1, g.a_col = s->k.in;
    g.b = dk ? dk + s->k.dim : NULL, g.b_row = ph_projection_width(&s->k), g.b_col = 1;
    g.c = dcontent, g.c_row = 1, g.c_block = 1, g.c_step = s->k.in;
    return g;
}

/* dsource += dk content */
static ph_gemm content_dx(const ph_shape *s, int rows, const float *dk,
                          const float *content, float *dsource)
{
    ph_gemm g = {.m = rows, .n = s->k.in, .k = s->k.tail, .add = 1};
    g.a = dk ? dk + s->k.dim : NULL, g.a_row = ph_projection_width(&s->k), g.a_col = 1;
    g.b = content, g.b_row = s->k.in, g.b_col = 1;
    g.c = dsource, g.c_row = s->k.in;
    return g;
}

static ph_status read_options(ph_shape *s, const char *options)
{
    collab_state *own = (collab_state *)s->state;
    const ph_attn *given = &s->given->attn;
    double content = 0, dim = s->attn.qk_dim;
    const ph_variant_option list[] = {
        {.key = "dim", .number = &dim, .least = 1, .most = 1 << 20, .whole = 1},
        {.key = "content", .number = &content, .most = 1, .whole = 1}};
    PH_TRY(ph_options_read(s->ctx, "collab", options, list, 2));
    own->content = content > 0, own->shared = (int)dim;
    if (own->shared != s->attn.qk_dim && (s->desc->rope || s->desc->qk_norm))
        return ph_fail(s->ctx, PH_UNSUPPORTED,
                       "collab:dim is %d, expected qk_dim %d with rotary positions or a "
                       "norm of queries and keys",
                       own->shared, s->attn.qk_dim);
    if (given->k_heads > 1 && given->k_heads != given->q_heads)
        return ph_fail(
            s->ctx, PH_UNSUPPORTED,
            "k_heads is %d, expected 0 or 1 because variant collab has one key "
            "for all heads",
            given->k_heads);
    return PH_OK;
}

static ph_status shape(ph_shape *s, const char *options)
{
    const ph_layer_desc *d = s->desc;
    ph_attn *a = &s->attn;
    PH_TRY(read_options(s, options));
    int heads = a->q_heads, tail = has_content(s) ? heads : 0;
    int shared = ((const collab_state *)s->state)->shared;
    int width = shared + tail, kv_rows = ph_desc_key_rows(d);
    PH_TRY(ph_shape_width(s, "q", heads, width));
    s->q.heads = s->k.heads = 1;
    s->q.dim = s->k.dim = shared;
    s->q.transformed = s->k.transformed = 1;
    s->makes_q = s->wants_slices = 1;
    s->sums_keys =
        !strcmp(a->variant, "mha"); /* the joint driver sums dk over heads itself */
    s->k.tail = tail;
    ph_shape_param(s, "mix", 0, heads, shared, 0, 0);
    if (tail) ph_shape_param(s, "content", 0, heads, s->k.in, 0, 0);
    a->k_heads = 1;
    a->qk_dim = width;
    a->q = (ph_strides){(int64_t)a->q_len * heads * width, width, (int64_t)heads * width};
    if (a->scale == 0) a->scale = (float)(1 / sqrt((double)d->model_dim / heads));
    size_t rows = (size_t)ph_desc_rows(d), chunks = (rows + CHUNK - 1) / CHUNK;
    size_t all = rows * (size_t)(heads * width);
    if (ph_shape_is_long(s))
        s->slice[MIXED] = rows * (size_t)width, s->forward_only[MIXED] = all;
    else
        s->saved[MIXED] = all;
    s->slice[SUMS] = chunks * (size_t)shared;
    const ph_gemm products[] = {content_product(s, kv_rows, NULL, NULL, NULL),
                                content_dw(s, kv_rows, NULL, NULL, NULL),
                                content_dx(s, kv_rows, NULL, NULL, NULL)};
    for (int i = 0; i < 3 && tail; i++) ph_shape_products(s, &products[i], 1);
    s->flops = (double)rows * heads * shared + 2.0 * kv_rows * s->k.in * tail;
    return PH_OK;
}

static void project(ph_kind_call *c)
{
    const ph_shape *s = c->shape;
    if (!has_content(s)) return;
    ph_gemm g =
        content_product(s, c->key_tokens.rows, c->source, c->param[CONTENT], c->k_proj);
    ph_gemm_run(c->ctx, &g, 1, c->work);
}

static void project_backward(ph_kind_call *c)
{
    const ph_shape *s = c->shape;
    if (!has_content(s)) return;
    const float *content = c->param[CONTENT], *dk = c->dk_proj;
    ph_gemm dw = content_dw(s, c->key_tokens.rows, c->source, dk, c->dparam[CONTENT]);
    ph_gemm dx = content_dx(s, c->key_tokens.rows, dk, content, c->dsource);
    if (c->dparam[CONTENT]) ph_gemm_run(c->ctx, &dw, 1, c->work);
    if (c->dsource) ph_gemm_run(c->ctx, &dx, 1, c->work);
}

/* ---- one query becomes one per head ------------------------------------------------ */

static int keeps(const ph_kind_call *c)
{
    return c->shape->saved[MIXED] > 0;
}

/* Saved, or of all heads in the forward pass and of a slice in the backward pass. */
static float *mixed(const ph_kind_call *c)
{
    if (keeps(c)) return c->saved[MIXED];
    return (c->grads ? c->slice : c->forward_only)[MIXED];
}

static const float *mix_of(const ph_kind_call *c)
{
    return c->param[MIX] + (int64_t)c->first * c->shape->q.dim;
}

static void mix_token(ph_kind_call *c, int row)
{
    const ph_shape *s = c->shape;
    int shared = s->q.dim, width = s->attn.qk_dim;
    const float *q = c->q_proj + (int64_t)row * shared, *mix = mix_of(c);
    float *to = mixed(c) + (int64_t)row * c->q_heads * width;
    for (int h = 0; h < c->q_heads; h++, to += width, mix += shared) {
        for (int r = 0; r < shared; r++) to[r] = q[r] * mix[r];
        for (int i = shared; i < width; i++) to[i] = i - shared == c->first + h;
    }
}

static void before(ph_kind_call *c)
{
    c->q = mixed(c);
    if (!c->grads || !keeps(c)) ph_kind_tokens(c, mix_token, NULL);
}

/* dQ of a token, and its terms of dmix. */
static void unmix_token(const ph_kind_call *c, int row, float *sums)
{
    const ph_shape *s = c->shape;
    int shared = s->q.dim, width = s->attn.qk_dim;
    const float *q = c->q_proj + (int64_t)row * shared, *mix = mix_of(c);
    const float *from = c->dq + (int64_t)row * c->q_heads * width;
    float *dq = c->dq_proj + (int64_t)row * shared;
    for (int h = 0; h < c->q_heads; h++, from += width, mix += shared, sums += shared)
        for (int r = 0; r < shared; r++) {
            dq[r] += mix[r] * from[r];
            sums[r] += q[r] * from[r];
        }
}

static void unmix_item(void *arg, int lane, int index)
{
    const ph_kind_call *c = arg;
    const ph_shape *s = c->shape;
    int count = c->q_heads * s->q.dim;
    int end = ph_min((index + 1) * CHUNK, c->x_tokens.rows);
    float *sums = c->slice[SUMS] + (int64_t)index * count;
    (void)lane;
    memset(sums, 0, (size_t)count * sizeof *sums);
    for (int row = index * CHUNK; row < end; row++) {
        float *dq = c->dq_proj + (int64_t)row * s->q.dim;
        if (c->first == 0) memset(dq, 0, (size_t)s->q.dim * sizeof *dq);
        if (ph_tokens_has(&c->x_tokens, row)) unmix_token(c, row, sums);
    }
}

/* All heads share the key, so its gradients are summed over heads. */
static void add_key(ph_kind_call *c, int row)
{
    int n = c->shape->attn.qk_dim, first = c->first == 0;
    const float *from = c->dk + (int64_t)row * c->k_heads * n;
    float *to = c->dk_proj + (int64_t)row * n;
    if (first) memcpy(to, from, (size_t)n * sizeof *to);
    for (int h = first; h < c->k_heads; h++)
        for (int i = 0; i < n; i++) to[i] += from[h * n + i];
}

static void before_backward(ph_kind_call *c)
{
    const ph_shape *s = c->shape;
    int count = c->q_heads * s->q.dim, chunks = ph_div_up(c->x_tokens.rows, CHUNK);
    float *dmix = ph_float_at_out(c->dparam[MIX], (int64_t)c->first * s->q.dim);
    ph_ctx_run(c->ctx, chunks, unmix_item, c);
    ph_kind_key_tokens(c, add_key, add_key);
    if (!dmix) return;
    memset(dmix, 0, (size_t)count * sizeof *dmix);
    for (int n = 0; n < chunks; n++)
        for (int i = 0; i < count; i++) dmix[i] += c->slice[SUMS][(int64_t)n * count + i];
}

static const ph_layer_kind kind = {.shape = shape,
                                   .project = project,
                                   .before = before,
                                   .before_backward = before_backward,
                                   .project_backward = project_backward,
                                   .by_heads = 1};

const ph_variant ph_variant_collab = {
    .info = {.name = "collab",
             .options = "collab[:dim=R,content=1]",
             .help = "collaborative heads: one query and one key of size R for all, "
                     "whose elements each head weights in its own way",
             .tensors = "wq (in_dim, R) one query for all heads\n"
                        "wk (in_dim, R) one key for all heads\n"
                        "mix (H, R) weights of their elements per head\n"
                        "content (H, in_dim) score of a key by itself; optional\n"},
    .layer = &kind,
};
