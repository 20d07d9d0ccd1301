/*
 * drive_cuda.c - runs a problem on an accelerator: slabs there, the call, results back;
 * see judge.h.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda/fast_launch.h"
#include "judge.h"

/* Every slab of a problem in device memory; lse: for looks, if the problem has none. */
typedef struct mirror {
    ph_ctx *ctx;
    problem *p;
    void *slab[sizeof((problem *)0)->slabs / sizeof(slab)];
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
    return NULL;
}

static ph_status send(mirror *m)
{
    ph_status status = PH_OK;
    for (int n = 0; n < m->p->slab_count && status == PH_OK; n++) {
        const slab *s = &m->p->slabs[n];
        status = ph_device_alloc(m->ctx, s->count * s->size, &m->slab[n]);
        if (status == PH_OK)
            status = ph_device_copy(m->ctx, m->slab[n], s->bytes, s->count * s->size,
                                    m->p->args.stream);
    }
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
    if (status == PH_OK && m->lse)
        status = ph_device_copy(m->ctx, m->lse, m->device_lse, m->lse_bytes,
                                m->p->args.stream);
    return status == PH_OK ? ph_sync(m->ctx, m->p->args.stream) : status;
}

static void drop(mirror *m)
{
    for (int n = 0; n < m->p->slab_count; n++) ph_device_free(m->ctx, m->slab[n]);
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
    ph_arena arena = {0};
    ph_cuda_fast fast;
    if (!ph_cuda_fast_plan(plan)) return 0;
    ph_cuda_fast_cut(plan, &arena, &fast);
    if (ph_cuda_enter(ctx) != PH_OK) return 0; /* tensor maps want a context */
    int takes = ph_cuda_fast_call(plan, args, &fast);
    ph_cuda_leave(ctx);
    return takes;
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
    if (status == PH_OK) status = ph_forward(plan, &args);
    if (status == PH_OK && backward) status = ph_backward(plan, &args, &grads);
    if (status == PH_OK) status = fetch(&m);
    if (status == PH_OK) status = look_on_host(&m);
    drop(&m);
    ph_plan_free(plan);
    return status;
}
