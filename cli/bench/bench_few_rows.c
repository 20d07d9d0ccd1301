/*
 * bench_few_rows.c - the job of `polyhead bench` that decodes one token through layers
 * whose matrices are stored in some type; see bench.h. What limits it is reading the
 * stored bytes, so a run goes through as many layers as exceed the last-level cache.
 *
 * model_dim is heads * head size. Attention sees one key: only the projections count.
 */
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/work.h"
#include "polyhead_layer.h"

typedef struct few_rows_state {
    ph_layer *layer;
    int sets;           /* layers */
    size_t matrix;      /* bytes of a matrix; a layer has four, side by side */
    char *weights;      /* of all layers */
    float *x[2];        /* input and output of a layer, in turn */
} few_rows_state;

static size_t width_of(const bench_shape *s)
{
    return (size_t)s->q_heads * (size_t)s->dim;
}

static size_t matrix_bytes(const bench_shape *s)
{
    return ph_dtype_bytes((ph_dtype)s->dtype, width_of(s) * width_of(s));
}

static int sets_of(const bench_shape *s)
{
    const size_t all = (size_t)256 << 20;
    return (int)(all / (4 * matrix_bytes(s))) + 1;
}

static double flops(const bench_shape *s)
{
    return 8.0 * sets_of(s) * s->q_len * (double)width_of(s) * (double)width_of(s);
}

static double bytes(const bench_shape *s)
{
    return 4.0 * sets_of(s) * (double)matrix_bytes(s);
}

static ph_status run(void *state)
{
    few_rows_state *s = state;
    ph_status status = PH_OK;
    for (int i = 0; i < s->sets && status == PH_OK; i++) {
        const char *w = s->weights + (size_t)i * 4 * s->matrix;
        const ph_layer_weights weights = {.wq = w,
                                          .wk = w + s->matrix,
                                          .wv = w + 2 * s->matrix,
                                          .wo = w + 3 * s->matrix};
        const ph_layer_args args = {.x = s->x[i % 2], .out = s->x[1 - i % 2]};
        status = ph_layer_forward(s->layer, &weights, &args);
    }
    return status;
}

static void close(void *state)
{
    few_rows_state *s = state;
    ph_layer_free(s->layer);
    free(s->weights), free(s->x[0]), free(s->x[1]);
    free(s);
}

/* Small values, so that activations stay finite from layer to layer: blocks of random
   bytes get scales and minima of 2^-12. K types multiply them by up to 63, and get scales
   of 2^-18 and minima of 2^-15, which is about 7.5 times that: n has a mean of 7.5. */
static void fill(few_rows_state *s, const bench_shape *shape)
{
    const ph_dtype type = (ph_dtype)shape->dtype;
    size_t count = width_of(shape) * width_of(shape) * 4 * (size_t)s->sets;
    const int k = type >= PH_Q4_K, q6 = type == PH_Q6_K;
    size_t block = ph_dtype_bytes(type, k ? 256 : 32), all = ph_dtype_bytes(type, count);
    const uint16_t scale = k ? 0x0040 : 0x0c00, least = k ? 0x0200 : 0x0c00;
    if (type <= PH_BF16) {
        work_fill(s->weights, count, type, 0);
        return;
    }
    work_fill(s->weights, all / sizeof(float), PH_F32, 0);
    for (size_t at = 0; at < all; at += block) {
        memcpy(s->weights + at + (q6 ? 208 : 0), &scale, sizeof scale);
        if (type == PH_Q4_1 || (k && !q6))
            memcpy(s->weights + at + 2, &least, sizeof least);
    }
}

static ph_status prepare(few_rows_state *s, ph_ctx *ctx, const bench_shape *shape,
                         ph_form form)
{
    const ph_dtype type = (ph_dtype)shape->dtype;
    const size_t row = width_of(shape) * (size_t)shape->q_len;
    ph_layer_desc d = {.model_dim = (int)width_of(shape),
                       .attn = {.batch = 1,
                                .q_heads = shape->q_heads,
                                .q_len = shape->q_len,
                                .kv_len = shape->kv_len,
                                .qk_dim = shape->dim}};
    d.q_form = d.k_form = d.v_form = d.o_form = form;
    d.wq_dtype = d.wk_dtype = d.wv_dtype = d.wo_dtype = type;
    ph_status status = ph_layer_create(&s->layer, ctx, &d);
    if (status != PH_OK) return status;
    s->sets = sets_of(shape), s->matrix = matrix_bytes(shape);
    s->weights = work_allocate(4 * s->matrix * (size_t)s->sets);
    for (int i = 0; i < 2; i++) s->x[i] = work_allocate(row * sizeof(float));
    if (!s->weights || !s->x[0] || !s->x[1]) return PH_OUT_OF_MEMORY;
    fill(s, shape);
    work_fill(s->x[0], row, PH_F32, 1);
    return PH_OK;
}

static void *open_form(ph_ctx *ctx, const bench_shape *shape, ph_form form,
                       ph_status *status)
{
    few_rows_state *s = calloc(1, sizeof *s);
    *status = s ? prepare(s, ctx, shape, form) : PH_OUT_OF_MEMORY;
    if (*status == PH_OK) return s;
    if (s) close(s);
    return NULL;
}

static void *open_linear(ph_ctx *ctx, const bench_shape *shape, ph_status *status)
{
    return open_form(ctx, shape, PH_FORM_LINEAR, status);
}

static void *open_whole(ph_ctx *ctx, const bench_shape *shape, ph_status *status)
{
    return open_form(ctx, shape, PH_FORM_WHOLE, status);
}

const bench_job bench_few_rows_linear = {open_linear, run, close, flops, bytes};
const bench_job bench_few_rows_whole = {open_whole, run, close, flops, bytes};
