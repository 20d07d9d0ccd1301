/*
 * drive_cuda.c - runs a problem on an accelerator: slabs there, the call, results back;
 * see judge.h.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda/fast_launch.h"
#include "judge.h"

/* An array of the host that is in no slab of the problem. */
typedef struct array {
    void *host, *device;
    size_t bytes;
    int is_result;
} array;

enum { ARRAYS = 7 };

/* Every slab and array of a problem in device memory; lse: for looks, if the problem has
   none. */
typedef struct mirror {
    ph_ctx *ctx;
    problem *p;
    void *slab[sizeof((problem *)0)->slabs / sizeof(slab)];
    array arrays[ARRAYS];
    float *lse, *device_lse;
    size_t lse_bytes;
} mirror;

/* Where an address of the host lies on the device. */
static void *there(const mirror *m, const void *host)
{
    for (int n = 0; host && n < m->p->slab_count; n++) {
        const slab *s = &m->p->slabs[n];
        const unsigned char *at = host;
        if (at < s->bytes || at > s->bytes + s->count * s->size) continue;
        return (char *)m->slab[n] + (at - s->bytes);
    }
    for (int n = 0; host && n < ARRAYS; n++)
        if (m->arrays[n].host == host) return m->arrays[n].device;
    return NULL;
}

/* Bytes of k or v in pages. */
static size_t page_bytes(const ph_attn *a, const ph_strides *s, int heads, int dim)
{
    int64_t packed = (int64_t)a->pages * heads * a->page_len * dim;
    int64_t strided = (a->pages - 1) * s->batch + (heads - 1) * s->head +
                      (a->page_len - 1) * s->time + dim;
    return (size_t)(s->time ? strided : packed) * oracle_size(a->dtype);
}

/* What a test gives besides the tensors of a problem. */
static ph_status send_arrays(mirror *m)
{
    const ph_attn *a = &m->p->attn;
    const ph_args *args = &m->p->args;
    int pages = a->page_len ? (a->kv_len + a->page_len - 1) / a->page_len : 0;
    int k_heads = a->k_heads ? a->k_heads : a->q_heads;
    int v_heads = a->v_heads ? a->v_heads : a->q_heads;
    size_t offsets = ((size_t)a->batch + 1) * 4,
           reach = (size_t)a->q_heads * (2 * (size_t)a->reach + 1) * 4;
    array all[ARRAYS] = {
        {(void *)args->q_offsets, NULL, offsets, 0},
        {(void *)args->kv_offsets, NULL, offsets, 0},
        {(void *)args->page_table, NULL, (size_t)a->batch * (size_t)pages * 4, 0},
        {(void *)args->relative, NULL, reach, 0},
        {(void *)m->p->grads.drelative, NULL, reach, 1},
        {(void *)args->k, NULL, pages ? page_bytes(a, &a->k, k_heads, a->qk_dim) : 0, 0},
        {(void *)args->v, NULL,
         pages ? page_bytes(a, &a->v, v_heads, a->v_dim ? a->v_dim : a->qk_dim) : 0, 0}};
    ph_status status = PH_OK;
    for (int n = 0; n < ARRAYS && status == PH_OK; n++) {
        array *x = &all[n];
        if (!x->host || !x->bytes || there(m, x->host)) continue;
        status = ph_device_alloc(m->ctx, x->bytes, &x->device);
        if (status == PH_OK)
            status = ph_device_copy(m->ctx, x->device, x->host, x->bytes, args->stream);
        m->arrays[n] = *x;
    }
    return status;
}

static ph_status send_slabs(const mirror *m)
{
    ph_status status = PH_OK;
    for (int n = 0; n < m->p->slab_count && status == PH_OK; n++) {
        const slab *s = &m->p->slabs[n];
        status = ph_device_copy(m->ctx, m->slab[n], s->bytes, s->count * s->size,
                                m->p->args.stream);
    }
    return status;
}

static ph_status send(mirror *m)
{
    ph_status status = PH_OK;
    for (int n = 0; n < m->p->slab_count && status == PH_OK; n++) {
        const slab *s = &m->p->slabs[n];
        status = ph_device_alloc(m->ctx, s->count * s->size, &m->slab[n]);
    }
    if (status == PH_OK) status = send_slabs(m);
    if (status == PH_OK) status = send_arrays(m);
    if (status != PH_OK || m->p->args.lse || !m->p->args.look) return status;
    m->lse_bytes = dense_rows(&(dense){.batch = m->p->attn.batch,
                                       .q_heads = m->p->attn.q_heads,
                                       .q_len = m->p->attn.q_len}) *
                   sizeof(float);
    m->lse = malloc(m->lse_bytes + 1);
    return ph_device_alloc(m->ctx, m->lse_bytes, (void **)&m->device_lse);
}

static ph_status fetch(mirror *m)
{
    ph_status status = ph_sync(m->ctx, m->p->args.stream);
    for (int n = 0; n < m->p->slab_count && status == PH_OK; n++) {
        const slab *s = &m->p->slabs[n];
        if (s->kind != SLAB_INPUT)
            status = ph_device_copy(m->ctx, s->bytes, m->slab[n], s->count * s->size,
                                    m->p->args.stream);
    }
    for (int n = 0; n < ARRAYS && status == PH_OK; n++) {
        const array *x = &m->arrays[n];
        if (x->host && x->is_result)
            status =
                ph_device_copy(m->ctx, x->host, x->device, x->bytes, m->p->args.stream);
    }
    if (status == PH_OK && m->lse)
        status = ph_device_copy(m->ctx, m->lse, m->device_lse, m->lse_bytes,
                                m->p->args.stream);
    return status == PH_OK ? ph_sync(m->ctx, m->p->args.stream) : status;
}

static void drop(mirror *m)
{
    for (int n = 0; n < m->p->slab_count; n++) ph_device_free(m->ctx, m->slab[n]);
    for (int n = 0; n < ARRAYS; n++) ph_device_free(m->ctx, m->arrays[n].device);
    ph_device_free(m->ctx, m->device_lse);
    free(m->lse);
}

static ph_args device_args(const mirror *m)
{
    ph_args a = m->p->args;
    a.q = there(m, a.q), a.k = there(m, a.k), a.v = there(m, a.v);
    a.out = there(m, a.out), a.lse = m->lse ? m->device_lse : there(m, a.lse);
    a.bias = there(m, a.bias), a.visible = there(m, a.visible);
    a.gate = there(m, a.gate), a.sink = there(m, a.sink), a.alibi = there(m, a.alibi);
    a.relative = there(m, a.relative);
    a.q_lens = there(m, a.q_lens), a.kv_lens = there(m, a.kv_lens);
    a.q_offsets = there(m, a.q_offsets), a.kv_offsets = there(m, a.kv_offsets);
    a.page_table = there(m, a.page_table);
    a.look = NULL;
    return a;
}

static ph_grads device_grads(const mirror *m)
{
    ph_grads g = m->p->grads;
    g.dout = there(m, g.dout), g.dlse = there(m, g.dlse);
    g.dq = there(m, g.dq), g.dk = there(m, g.dk), g.dv = there(m, g.dv);
    g.dbias = there(m, g.dbias), g.dgate = there(m, g.dgate);
    g.dsink = there(m, g.dsink), g.drelative = there(m, g.drelative);
    return g;
}

/* Looks are the CPU's, from the lse of the device: with dropout they say which weights
   the same random numbers drop. */
static ph_status look_on_host(const mirror *m)
{
    ph_ctx *cpu = NULL;
    ph_plan *plan = NULL;
    ph_args args = m->p->args;
    if (!args.look) return PH_OK;
    if (m->lse) args.lse = m->lse;
    ph_status status = ph_open(&cpu, NULL);
    if (status == PH_OK) status = ph_plan_create(&plan, cpu, &m->p->attn);
    if (status == PH_OK) status = ph_look(plan, &args);
    ph_plan_free(plan);
    ph_close(cpu);
    return status;
}

static int takes_tensor_cores(ph_ctx *ctx, const ph_plan *plan, const ph_args *args)
{
    /* Of an address only the alignment counts: nothing is read. */
    ph_arena arena = ph_arena_of((void *)PH_ALIGN, SIZE_MAX);
    ph_cuda_fast fast;
    if (!ph_cuda_fast_plan(plan)) return 0;
    ph_cuda_fast_cut(plan, &arena, &fast);
    if (ph_cuda_enter(ctx) != PH_OK) return 0; /* tensor maps want a context */
    int takes = ph_cuda_fast_call(plan, args, &fast);
    ph_cuda_leave(ctx);
    return takes;
}

static int takes_tensor_grads(ph_ctx *ctx, const ph_plan *plan, const ph_args *args,
                              const ph_grads *grads)
{
    ph_cuda_fast fast;
    if (!plan->attn.backward || !ph_cuda_grad_plan(plan)) return 0;
    if (ph_cuda_enter(ctx) != PH_OK) return 0;
    int takes = ph_cuda_grad_call(plan, 0, args, grads, &fast);
    ph_cuda_leave(ctx);
    return takes;
}

/* The same pass once more with the same plan: it finds the counters in the workspace as
   the first one left them. */
static ph_status run_again(const mirror *m, ph_plan *plan, const ph_args *args)
{
    ph_status status = ph_sync(m->ctx, args->stream);
    if (status == PH_OK) status = send_slabs(m); /* nothing of the first pass is left */
    return status == PH_OK ? ph_forward(plan, args) : status;
}

ph_status device_run(ph_ctx *ctx, problem *p, int backward)
{
    mirror m = {.ctx = ctx, .p = p};
    ph_plan *plan = NULL;
    ph_status status = ph_plan_create(&plan, ctx, &p->attn);
    if (status == PH_OK) status = send(&m);
    ph_args args = device_args(&m);
    ph_grads grads = device_grads(&m);
    if (status == PH_OK) p->tensor_cores = takes_tensor_cores(ctx, plan, &args);
    if (status == PH_OK) p->tensor_grads = takes_tensor_grads(ctx, plan, &args, &grads);
    if (status == PH_OK) status = ph_forward(plan, &args);
    if (status == PH_OK && p->with.again) status = run_again(&m, plan, &args);
    if (status == PH_OK && backward) status = ph_backward(plan, &args, &grads);
    if (status == PH_OK) status = fetch(&m);
    if (status == PH_OK) status = look_on_host(&m);
    drop(&m);
    ph_plan_free(plan);
    return status;
}
