/*
 * bench_layer.c - the job of `polyhead bench` that runs whole layers; see bench.h.
 *
 * model_dim is heads * head size. FLOPs are useful ones: forward the four projections and
 * two products of attention; a training step, forward and backward, three times the
 * projections and seven products of attention.
 */
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/work.h"
#include "polyhead_layer.h"

/* Inputs, then what is computed. */
/* clang-format off */
enum { X, WQ, WK, WV, WO, BQ, BK, BV, BO, DOUT, INPUTS,
       OUT = INPUTS, SAVED, DX, DWQ, DWK, DWV, DWO, DBQ, DBK, DBV, DBO, TENSORS };
/* clang-format on */

typedef struct layer_state {
    ph_layer *layer;
    ph_layer_weights weights;
    ph_layer_args args;
    ph_layer_grads grads;
    void *memory[TENSORS];
} layer_state;

/* ---- work ---- */

static double projections(const bench_shape *s)
{
    double model = (double)s->q_heads * s->dim, keys = (double)s->kv_heads * s->dim;
    return 2.0 * s->batch * s->q_len * model * (model + keys + keys + model);
}

static double product(const bench_shape *s) /* of attention, one of its two or seven */
{
    double all = 2.0 * s->batch * s->q_heads * s->q_len * s->kv_len * s->dim;
    return s->causal ? all / 2 : all;
}

static double forward_flops(const bench_shape *s)
{
    return projections(s) + 2 * product(s);
}

static double train_flops(const bench_shape *s)
{
    return 3 * projections(s) + 7 * product(s);
}

/* ---- running ---- */

static ph_status forward_run(void *state)
{
    layer_state *s = state;
    return ph_layer_forward(s->layer, &s->weights, &s->args);
}

static ph_status train_run(void *state)
{
    layer_state *s = state;
    ph_status status = ph_layer_forward(s->layer, &s->weights, &s->args);
    if (status != PH_OK) return status;
    return ph_layer_backward(s->layer, &s->weights, &s->args, &s->grads);
}

static void layer_close(void *state)
{
    layer_state *s = state;
    ph_layer_free(s->layer);
    for (int i = 0; i < TENSORS; i++) free(s->memory[i]);
    free(s);
}

/* ---- opening ---- */

static void count_bytes(const layer_state *s, const bench_shape *shape, int backward,
                        size_t *bytes)
{
    size_t model = (size_t)(shape->q_heads * shape->dim);
    size_t keys = (size_t)(shape->kv_heads * shape->dim);
    size_t rows = (size_t)shape->batch * (size_t)shape->q_len;
    bytes[X] = bytes[OUT] = rows * model * ph_dtype_bytes((ph_dtype)shape->dtype, 1);
    bytes[BQ] = bytes[BO] = model * sizeof(float);
    bytes[BK] = bytes[BV] = keys * sizeof(float);
    bytes[WQ] = bytes[WO] = model * bytes[BQ];
    bytes[WK] = bytes[WV] = model * bytes[BK];
    bytes[DOUT] = bytes[DX] = backward ? bytes[X] : 0;
    bytes[SAVED] = backward ? ph_layer_saved(s->layer) : 0;
    for (int i = 0; i < 8; i++) bytes[DWQ + i] = backward ? bytes[WQ + i] : 0;
}

/* Weights as a layer starts with them, so that activations keep a usual size. */
static void fill(layer_state *s, int tensor, size_t bytes, const bench_shape *shape)
{
    ph_dtype dtype = tensor == X || tensor == DOUT ? (ph_dtype)shape->dtype : PH_F32;
    size_t count = bytes / ph_dtype_bytes(dtype, 1);
    work_fill(s->memory[tensor], count, dtype, (uint64_t)tensor << 40);
    float *weights = s->memory[tensor];
    for (size_t i = 0; tensor >= WQ && tensor <= BO && i < count; i++)
        weights[i] *= 0.0625f;
}

static void point(layer_state *s, int backward)
{
    void *const *m = s->memory;
    s->args = (ph_layer_args){.x = m[X], .out = m[OUT], .saved = m[SAVED]};
    s->args.saved_size = ph_layer_saved(s->layer);
    s->weights = (ph_layer_weights){.wq = m[WQ],
                                    .wk = m[WK],
                                    .wv = m[WV],
                                    .wo = m[WO],
                                    .bq = m[BQ],
                                    .bk = m[BK],
                                    .bv = m[BV],
                                    .bo = m[BO]};
    if (!backward) return;
    s->grads = (ph_layer_grads){.dout = m[DOUT],
                                .dx = m[DX],
                                .dwq = m[DWQ],
                                .dwk = m[DWK],
                                .dwv = m[DWV],
                                .dwo = m[DWO],
                                .dbq = m[DBQ],
                                .dbk = m[DBK],
                                .dbv = m[DBV],
                                .dbo = m[DBO]};
}

static ph_status prepare(layer_state *s, ph_ctx *ctx, const bench_shape *shape,
                         int backward)
{
    size_t bytes[TENSORS];
    const ph_layer_desc desc = {
        .model_dim = shape->q_heads * shape->dim,
        .attn = {.batch = shape->batch,
                 .q_heads = shape->q_heads,
                 .k_heads = shape->kv_heads,
                 .v_heads = shape->kv_heads,
                 .q_len = shape->q_len,
                 .kv_len = shape->kv_len,
                 .qk_dim = shape->dim,
                 .dtype = (ph_dtype)shape->dtype,
                 .mask = shape->causal ? PH_MASK_CAUSAL : PH_MASK_NONE,
                 .backward = backward}};
    ph_status status = ph_layer_create(&s->layer, ctx, &desc);
    if (status != PH_OK) return status;
    count_bytes(s, shape, backward, bytes);
    for (int i = 0; i < TENSORS; i++) {
        if (!bytes[i]) continue;
        s->memory[i] = aligned_alloc(64, (bytes[i] + 63) / 64 * 64);
        if (!s->memory[i]) return PH_OUT_OF_MEMORY;
        if (i < INPUTS)
            fill(s, i, bytes[i], shape);
        else
            memset(s->memory[i], 0, bytes[i]);
    }
    point(s, backward);
    return PH_OK;
}

static void *layer_open(ph_ctx *ctx, const bench_shape *shape, int backward,
                        ph_status *status)
{
    layer_state *s = calloc(1, sizeof *s);
    *status = s ? prepare(s, ctx, shape, backward) : PH_OUT_OF_MEMORY;
    if (*status == PH_OK) return s;
    if (s) layer_close(s);
    return NULL;
}

static void *forward_open(ph_ctx *ctx, const bench_shape *shape, ph_status *status)
{
    return layer_open(ctx, shape, 0, status);
}

static void *train_open(ph_ctx *ctx, const bench_shape *shape, ph_status *status)
{
    return layer_open(ctx, shape, 1, status);
}

const bench_job bench_layer_forward = {forward_open, forward_run, layer_close,
                                       forward_flops, NULL};
const bench_job bench_layer_train = {train_open, train_run, layer_close, train_flops,
                                     NULL};
