/*
 * bench_ragged.c - ragged batches: all sequences in one call, and the same sequences one
 * by one, whose time a call is compared with; see bench.h.
 *
 * In a shape q_len is the longest sequence and kv_len the shortest. Lengths are spread
 * evenly in between, or ("uneven") one sequence is long and all others are short.
 */
#include <stdlib.h>

#include "bench/bench.h"
#include "bench/work.h"

typedef struct ragged_work {
    work all; /* memory of all sequences; its plan runs them in one call */
    int32_t *offsets;
    ph_plan **parts; /* (batch) one plan per sequence; NULL: one call */
    int batch, backward;
} ragged_work;

static int length_of(const bench_shape *s, int i, int uneven)
{
    int more = s->q_len - s->kv_len;
    if (uneven) return i == s->batch / 2 ? s->q_len : s->kv_len;
    return s->kv_len + (int)((int64_t)more * i / (s->batch > 1 ? s->batch - 1 : 1));
}

static int is_uneven(const bench_shape *s);

static double flops_of(const bench_shape *s, int products)
{
    double cells = 0;
    for (int i = 0; i < s->batch; i++) {
        double n = length_of(s, i, is_uneven(s));
        cells += n * n / (s->causal ? 2 : 1);
    }
    return 2.0 * products * cells * s->q_heads * s->dim;
}

static double forward_flops(const bench_shape *s)
{
    return flops_of(s, 2);
}

static double backward_flops(const bench_shape *s)
{
    return flops_of(s, 5);
}

/* One sequence of the tensors of all: no batch axis, heads as far apart as there. */
static ph_attn part_attn(const ph_attn *all, int len)
{
    ph_attn a = *all;
    int64_t head = (int64_t)all->q_total * all->qk_dim;
    a.q = a.k = a.v = a.out = (ph_strides){0, head, all->qk_dim};
    a.ragged = PH_RAGGED_NONE;
    a.batch = 1, a.q_total = a.kv_total = 0, a.q_len = a.kv_len = len;
    return a;
}

/* Tokens of a head from a sequence on. */
static const void *from(const void *x, const ph_attn *a, int token)
{
    return (const char *)x + (size_t)token * ph_dtype_bytes(a->dtype, (size_t)a->qk_dim);
}

static ph_status run_part(const ragged_work *w, int i, int backward)
{
    const ph_attn *a = &w->all.attn;
    int at = w->offsets[i];
    ph_args x = w->all.args;
    ph_grads g = w->all.grads;
    x.q_offsets = NULL;
    x.q = from(x.q, a, at), x.k = from(x.k, a, at), x.v = from(x.v, a, at);
    x.out = (void *)from(x.out, a, at);
    x.lse += (size_t)at * (size_t)a->q_heads; /* packed sequence by sequence */
    if (!backward) return ph_forward(w->parts[i], &x);
    g.dout = from(g.dout, a, at), g.dq = (void *)from(g.dq, a, at);
    g.dk = (void *)from(g.dk, a, at), g.dv = (void *)from(g.dv, a, at);
    return ph_backward(w->parts[i], &x, &g);
}

/* A plan per sequence, and one forward pass, whose lse the backward pass needs. */
static ph_status open_parts(ragged_work *w, ph_ctx *ctx)
{
    ph_status status = PH_OK;
    w->parts = calloc((size_t)w->batch, sizeof *w->parts);
    if (!w->parts) return PH_OUT_OF_MEMORY;
    for (int i = 0; i < w->batch && status == PH_OK; i++) {
        ph_attn a = part_attn(&w->all.attn, w->offsets[i + 1] - w->offsets[i]);
        status = ph_plan_create(&w->parts[i], ctx, &a);
        if (status == PH_OK) status = run_part(w, i, 0);
    }
    return status;
}

static void ragged_close(void *state)
{
    ragged_work *w = state;
    for (int i = 0; w->parts && i < w->batch; i++) ph_plan_free(w->parts[i]);
    work_close(&w->all);
    free(w->parts);
    free(w->offsets);
    free(w);
}

static ph_status fill(ragged_work *w, ph_ctx *ctx, const bench_shape *s, int parts)
{
    ph_attn attn = bench_attention(s);
    attn.kv_len = s->q_len;
    attn.ragged = PH_RAGGED_ALL;
    attn.backward = w->backward;
    w->offsets = calloc((size_t)s->batch + 1, sizeof *w->offsets);
    if (!w->offsets) return PH_OUT_OF_MEMORY;
    for (int i = 0; i < s->batch; i++)
        w->offsets[i + 1] = w->offsets[i] + length_of(s, i, is_uneven(s));
    attn.q_total = attn.kv_total = w->offsets[s->batch];
    ph_status status = work_open(&w->all, ctx, &attn, w->offsets);
    return status == PH_OK && parts ? open_parts(w, ctx) : status;
}

static void *ragged_open(ph_ctx *ctx, const bench_shape *s, int backward, int parts,
                         ph_status *status)
{
    ragged_work *w = calloc(1, sizeof *w);
    *status = PH_OUT_OF_MEMORY;
    if (!w) return NULL;
    w->batch = s->batch, w->backward = backward;
    *status = fill(w, ctx, s, parts);
    if (*status == PH_OK) return w;
    ragged_close(w);
    return NULL;
}

static ph_status ragged_run(void *state)
{
    ragged_work *w = state;
    ph_status status = PH_OK;
    if (!w->parts) return w->backward ? work_backward(&w->all) : work_forward(&w->all);
    for (int i = 0; i < w->batch && status == PH_OK; i++)
        status = run_part(w, i, w->backward);
    return status;
}

static void *forward_open(ph_ctx *ctx, const bench_shape *s, ph_status *status)
{
    return ragged_open(ctx, s, 0, 0, status);
}

static void *forward_parts_open(ph_ctx *ctx, const bench_shape *s, ph_status *status)
{
    return ragged_open(ctx, s, 0, 1, status);
}

static void *backward_open(ph_ctx *ctx, const bench_shape *s, ph_status *status)
{
    return ragged_open(ctx, s, 1, 0, status);
}

static void *backward_parts_open(ph_ctx *ctx, const bench_shape *s, ph_status *status)
{
    return ragged_open(ctx, s, 1, 1, status);
}

#define JOB(name, open, flops)                                                           \
    const bench_job name = {open, ragged_run, ragged_close, flops, NULL}

JOB(bench_ragged_forward, forward_open, forward_flops);
JOB(bench_ragged_forward_parts, forward_parts_open, forward_flops);
JOB(bench_ragged_backward, backward_open, backward_flops);
JOB(bench_ragged_backward_parts, backward_parts_open, backward_flops);
JOB(bench_uneven_forward, forward_open, forward_flops);
JOB(bench_uneven_forward_parts, forward_parts_open, forward_flops);
JOB(bench_uneven_backward, backward_open, backward_flops);
JOB(bench_uneven_backward_parts, backward_parts_open, backward_flops);

static int is_uneven(const bench_shape *s)
{
    return s->job == &bench_uneven_forward || s->job == &bench_uneven_forward_parts ||
           s->job == &bench_uneven_backward || s->job == &bench_uneven_backward_parts;
}
