/*
 * merged.c - cross-attention and the mean over earlier tokens in one sublayer of a
 * decoder, sharing wv and wo.
 *
 *     U = x wv + bv                       the wv, bv of the values that come from memory
 *     A_t = mean of U_j over j <= t       valid tokens only
 *     out = (heads + A) wo + bo           heads: cross-attention as usual
 *
 * Backward: dU_j = sum over t >= j of dout_t / n_t, n_t tokens up to t. For decoding
 * token by token the running sum of U is in a cache of its own, (batch, H*v_dim).
 */
#include <string.h>

#include "variants/kind.h"

enum { U };            /* scratch: (rows, H*v_dim) U, then its gradient */
enum { COLUMNS = 64 }; /* of one item: sums run over tokens, so items split the columns */

static int width_of(const ph_shape *s)
{
    return s->out_heads * s->out_dim;
}

/* wv applied to x: its columns are those of the output of the heads. */
static ph_projection values(const ph_shape *s)
{
    ph_projection v = s->v;
    v.pad = v.tail = v.tiles = v.back_tiles = 0;
    return v;
}

/* U = x wv + bv */
static ph_gemm product(const ph_shape *s, int rows, const void *x, const void *wv,
                       const float *bv, float *u)
{
    const ph_projection v = values(s);
    return ph_projection_product(&v, wv, bv, rows, x, s->desc->attn.dtype, u);
}

static ph_gemm product_dx(const ph_shape *s, int rows, const float *du, const void *wv,
                          float *dx)
{
    const ph_projection v = values(s);
    return ph_projection_dx(&v, wv, rows, du, dx, 1);
}

/* Added to the gradient that the values of memory give. */
static ph_gemm product_dw(const ph_shape *s, int rows, const void *x, const float *du,
                          float *dwv)
{
    const ph_projection v = values(s);
    ph_gemm g = ph_projection_dw(&v, rows, x, s->desc->attn.dtype, v.in, du, dwv);
    g.add = 1;
    return g;
}

static ph_status shape(ph_shape *s, const char *options)
{
    const ph_layer_desc *d = s->desc;
    const ph_attn *a = &d->attn;
    int rows = ph_desc_rows(d);
    PH_TRY(ph_options_read(s->ctx, "merged", options, NULL, 0));
    if (d->memory_dim == 0)
        return ph_fail(s->ctx, PH_BAD_SHAPE,
                       "there is no memory, expected one with variant merged, whose "
                       "attention is cross-attention");
    if (d->memory_dim != d->model_dim)
        return ph_fail(
            s->ctx, PH_UNSUPPORTED,
            "memory_dim is %d, expected %d as model_dim, because variant merged "
            "projects values from both by one matrix",
            d->memory_dim, d->model_dim);
    if (a->v_heads != a->q_heads)
        return ph_fail(s->ctx, PH_UNSUPPORTED,
                       "v_heads is %d, expected the %d of q because variant merged adds "
                       "values to the output of the heads",
                       a->v_heads, a->q_heads);
    s->makes_out = s->wants_slices = 1;
    s->scratch[U] = (size_t)rows * (size_t)width_of(s);
    s->cache = (size_t)a->batch * (size_t)width_of(s);
    const ph_gemm products[] = {product(s, rows, NULL, NULL, NULL, NULL),
                                product_dx(s, rows, NULL, NULL, NULL),
                                product_dw(s, rows, NULL, NULL, NULL)};
    for (int i = 0; i < 3; i++) ph_shape_products(s, &products[i], 1);
    s->flops = 2.0 * rows * d->model_dim * width_of(s);
    return PH_OK;
}

static void project(ph_kind_call *c)
{
    const ph_layer_weights *w = c->weights;
    ph_gemm g = product(c->shape, c->x_tokens.rows, c->x, w->wv, w->bv, c->scratch[U]);
    ph_gemm_run(c->ctx, &g, 1, c->work);
}

/* ---- the running mean -------------------------------------------------------------- */

/* One batch row and some columns of the current heads. */
typedef struct merged_span {
    int row, rows, len; /* rows of the batch row, from `row` on; len of them are valid */
    int first, end;     /* columns of the slice */
    int before;         /* tokens of earlier calls */
    float *state;       /* their sum: (columns of all heads); NULL: none is saved */
} merged_span;

static int columns_of(const ph_kind_call *c)
{
    return c->out_heads * c->shape->out_dim;
}

static merged_span span_of(const ph_kind_call *c, int index)
{
    int n = columns_of(c), parts = ph_div_up(n, COLUMNS), b = index / parts;
    int first = index % parts * COLUMNS;
    float *state = c->grads ? NULL : c->args->extra_cache;
    if (state) state += (int64_t)b * n;
    return (merged_span){ph_tokens_first(&c->x_tokens, b),
                         ph_tokens_count(&c->x_tokens, b),
                         ph_tokens_valid(&c->x_tokens, b),
                         first,
                         ph_min(first + COLUMNS, n),
                         state && c->args->past ? c->args->past[b] : 0,
                         state};
}

static void run_spans(ph_kind_call *c, ph_item *item)
{
    int parts = ph_div_up(columns_of(c), COLUMNS);
    ph_ctx_run(c->ctx, c->x_tokens.batch * parts, item, c);
}

/* U of the current heads. */
static float *values_at(const ph_kind_call *c, int64_t row)
{
    return c->scratch[U] + row * width_of(c->shape) + c->first_out * c->shape->out_dim;
}

static void mean_item(void *arg, int lane, int index)
{
    ph_kind_call *c = arg;
    merged_span s = span_of(c, index);
    int n = columns_of(c);
    float sums[COLUMNS] = {0};
    (void)lane;
    for (int i = s.first; i < s.end && s.before; i++) sums[i - s.first] = s.state[i];
    for (int t = 0; t < s.rows; t++) {
        int64_t row = s.row + t;
        const float *u = values_at(c, row), *heads = c->heads + row * c->heads_row;
        for (int i = s.first; i < s.end; i++) {
            if (t < s.len) sums[i - s.first] += u[i];
            float mean = t < s.len ? sums[i - s.first] / (float)(s.before + t + 1) : 0;
            c->out[row * n + i] = heads[i] + mean;
        }
    }
    for (int i = s.first; i < s.end && s.state; i++) s.state[i] = sums[i - s.first];
}

static void after(ph_kind_call *c)
{
    run_spans(c, mean_item);
}

static void mean_back_item(void *arg, int lane, int index)
{
    ph_kind_call *c = arg;
    merged_span s = span_of(c, index);
    int n = columns_of(c);
    float sums[COLUMNS] = {0};
    (void)lane;
    for (int t = s.rows - 1; t >= 0; t--) {
        int64_t row = s.row + t;
        const float *dout = c->dout + row * n;
        float *du = values_at(c, row), *dheads = c->dheads + row * n;
        for (int i = s.first; i < s.end; i++) {
            dheads[i] = dout[i];
            if (t < s.len) sums[i - s.first] += dout[i] / (float)(t + 1);
            du[i] = t < s.len ? sums[i - s.first] : 0;
        }
    }
}

static void after_backward(ph_kind_call *c)
{
    run_spans(c, mean_back_item);
}

static void project_backward(ph_kind_call *c)
{
    const ph_layer_grads *g = c->grads;
    const float *du = c->scratch[U];
    int n = width_of(c->shape);
    ph_gemm dx = product_dx(c->shape, c->x_tokens.rows, du, c->weights->wv, c->dx);
    ph_gemm dw = product_dw(c->shape, c->x_tokens.rows, c->x, du, g->dwv);
    if (c->dx) ph_gemm_run(c->ctx, &dx, 1, c->work);
    if (g->dwv) ph_gemm_run(c->ctx, &dw, 1, c->work);
    for (int row = 0; row < c->x_tokens.rows && g->dbv; row++)
        for (int i = 0; i < n; i++) g->dbv[i] += du[(int64_t)row * n + i];
}

static const ph_layer_kind kind = {.shape = shape,
                                   .project = project,
                                   .after = after,
                                   .after_backward = after_backward,
                                   .project_backward = project_backward,
                                   .recompute = project,
                                   .by_heads = 1};

const ph_variant ph_variant_merged = {
    .info = {.name = "merged",
             .options = "merged",
             .help =
                 "cross-attention and the mean over earlier tokens in one sublayer of "
                 "a decoder; wv and wo are shared",
             .tensors = ""},
    .layer = &kind,
};
