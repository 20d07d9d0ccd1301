/*
 * merged.c - cross-attention and the average of what came before in one sublayer of a
 * decoder, sharing wv and wo.
 *
 *     U = x wv + bv                       the wv, bv of the values that come from memory
 *     A_t = mean of U_j over j <= t       valid tokens only
 *     out = (heads + A) wo + bo           heads: cross-attention as usual
 *
 * The way back: dU_j = sum over t >= j of dout_t / n_t, n_t tokens up to t. Token by
 * token the sum of U so far lies in a cache of its own, (batch, H*v_dim).
 */
#include <string.h>

#include "variants/kind.h"

enum { U };            /* kept: (rows, H*v_dim) */
enum { COLUMNS = 64 }; /* of one item: sums run over tokens, so columns are shared out */

static int width_of(const ph_shape *s)
{
    return s->out_heads * s->out_dim;
}

/* U = x wv + bv, and its gradients, which add to what the values from memory gave. */
static ph_gemm values(const ph_shape *s, int rows, const void *x, const float *wv,
                      const float *bv, float *u)
{
    int in = s->desc->model_dim, n = width_of(s);
    ph_gemm g = {.m = rows, .n = n, .k = in, .bias = bv};
    g.a = x, g.a_type = s->desc->attn.dtype, g.a_row = in, g.a_col = 1;
    g.b = wv, g.b_row = n, g.b_col = 1;
    g.c = u, g.c_row = n;
    return g;
}

static ph_gemm values_dx(const ph_shape *s, int rows, const float *du, const float *wv,
                         float *dx)
{
    int in = s->desc->model_dim, n = width_of(s);
    ph_gemm g = {.m = rows, .n = in, .k = n, .add = 1};
    g.a = du, g.a_row = n, g.a_col = 1;
    g.b = wv, g.b_row = 1, g.b_col = n;
    g.c = dx, g.c_row = in;
    return g;
}

static ph_gemm values_dw(const ph_shape *s, int rows, const void *x, const float *du,
                         float *dwv)
{
    int in = s->desc->model_dim, n = width_of(s);
    ph_gemm g = {.m = in, .n = n, .k = rows, .add = 1};
    g.a = x, g.a_type = s->desc->attn.dtype, g.a_row = 1, g.a_col = in;
    g.b = du, g.b_row = n, g.b_col = 1;
    g.c = dwv, g.c_row = n;
    return g;
}

static ph_status shape(ph_shape *s, const char *options)
{
    const ph_layer_desc *d = s->desc;
    const ph_attn *a = &d->attn;
    int rows = a->batch * a->q_len;
    PH_TRY(ph_options_read(s->ctx, "merged", options, NULL, 0));
    if (d->memory_dim == 0)
        return ph_fail(s->ctx, PH_BAD_SHAPE,
                       "there is no memory, expected one with variant merged, whose "
                       "attention is cross-attention");
    if (d->memory_dim != d->model_dim)
        return ph_fail(
            s->ctx, PH_UNSUPPORTED,
            "memory_dim is %d, expected %d as model_dim, because variant merged "
            "makes values from both by one matrix",
            d->memory_dim, d->model_dim);
    if (a->v_heads != a->q_heads || d->v_form != PH_FORM_WHOLE)
        return ph_fail(s->ctx, PH_UNSUPPORTED,
                       "wv has %d heads%s, expected the %d of q in one matrix "
                       "(in_dim, heads*v_dim) with variant merged",
                       a->v_heads, d->v_form == PH_FORM_WHOLE ? "" : " apart",
                       a->q_heads);
    s->makes_out = 1;
    s->kept[U] = s->back[U] = (size_t)rows * (size_t)width_of(s);
    s->cache = (size_t)a->batch * (size_t)width_of(s);
    const ph_gemm products[] = {values(s, rows, NULL, NULL, NULL, NULL),
                                values_dx(s, rows, NULL, NULL, NULL),
                                values_dw(s, rows, NULL, NULL, NULL)};
    for (int i = 0; i < 3; i++) ph_shape_products(s, &products[i], 1);
    s->flops = 2.0 * rows * d->model_dim * width_of(s);
    return PH_OK;
}

static void project(ph_kind_call *c)
{
    const ph_layer_weights *w = c->weights;
    ph_gemm g = values(c->shape, c->q_rows, c->x, w->wv, w->bv, c->kept[U]);
    ph_gemm_run(c->ctx, &g, 1, c->work);
}

/* ---- the running mean -------------------------------------------------------------- */

/* Calls of one batch row and some columns. */
typedef struct span {
    int b, len, first, end; /* len: valid tokens; columns [first, end) */
    int before;             /* tokens of earlier calls */
} span;

static span span_of(const ph_kind_call *c, int index)
{
    const ph_attn *a = &c->shape->attn;
    int n = width_of(c->shape), parts = ph_div_up(n, COLUMNS), b = index / parts;
    int first = index % parts * COLUMNS;
    int known = c->args->extra_cache && c->args->past;
    return (span){b, c->q_lens ? c->q_lens[b] : a->q_len, first,
                  ph_min(first + COLUMNS, n), known ? c->args->past[b] : 0};
}

static void run_spans(ph_kind_call *c, ph_item *item)
{
    int parts = ph_div_up(width_of(c->shape), COLUMNS);
    ph_ctx_run(c->ctx, c->shape->attn.batch * parts, item, c);
}

static void mean_item(void *arg, int lane, int index)
{
    ph_kind_call *c = arg;
    span s = span_of(c, index);
    int n = width_of(c->shape), len = c->shape->attn.q_len;
    float *state = c->args->extra_cache, sums[COLUMNS] = {0};
    (void)lane;
    if (state) state += (int64_t)s.b * n;
    for (int i = s.first; i < s.end && s.before; i++) sums[i - s.first] = state[i];
    for (int t = 0; t < len; t++) {
        int64_t row = ((int64_t)s.b * len + t) * n;
        for (int i = s.first; i < s.end; i++) {
            if (t < s.len) sums[i - s.first] += c->kept[U][row + i];
            float mean = t < s.len ? sums[i - s.first] / (float)(s.before + t + 1) : 0;
            c->out[row + i] = c->heads[row + i] + mean;
        }
    }
    for (int i = s.first; i < s.end && state; i++) state[i] = sums[i - s.first];
}

static void after(ph_kind_call *c)
{
    run_spans(c, mean_item);
}

static void mean_back_item(void *arg, int lane, int index)
{
    ph_kind_call *c = arg;
    span s = span_of(c, index);
    int n = width_of(c->shape), len = c->shape->attn.q_len;
    float sums[COLUMNS] = {0};
    (void)lane;
    for (int t = len - 1; t >= 0; t--) {
        int64_t row = ((int64_t)s.b * len + t) * n;
        for (int i = s.first; i < s.end; i++) {
            c->dheads[row + i] = c->dout[row + i];
            if (t < s.len) sums[i - s.first] += c->dout[row + i] / (float)(t + 1);
            c->back[U][row + i] = t < s.len ? sums[i - s.first] : 0;
        }
    }
}

static void after_back(ph_kind_call *c)
{
    run_spans(c, mean_back_item);
}

static void project_back(ph_kind_call *c)
{
    const ph_layer_grads *g = c->grads;
    const float *du = c->back[U];
    int n = width_of(c->shape);
    ph_gemm dx = values_dx(c->shape, c->q_rows, du, c->weights->wv, c->dx);
    ph_gemm dw = values_dw(c->shape, c->q_rows, c->x, du, g->dwv);
    if (c->dx) ph_gemm_run(c->ctx, &dx, 1, c->work);
    if (g->dwv) ph_gemm_run(c->ctx, &dw, 1, c->work);
    for (int row = 0; row < c->q_rows && g->dbv; row++)
        for (int i = 0; i < n; i++) g->dbv[i] += du[(int64_t)row * n + i];
}

static const ph_layer_kind kind = {.shape = shape,
                                   .project = project,
                                   .after = after,
                                   .after_back = after_back,
                                   .project_back = project_back};

const ph_variant ph_variant_merged = {
    .info = {.name = "merged",
             .options = "merged",
             .help =
                 "cross-attention and the mean of the tokens so far in one sublayer of "
                 "a decoder; wv and wo are shared",
             .tensors = ""},
    .layer = &kind,
};
