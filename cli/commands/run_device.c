/*
 * run_device.c - core mode on an accelerator: tensors go there, results come back.
 */
#include <string.h>

#include "commands/cmd_run.h"

/* A pointer of the call that is exchanged for one in device memory. */
typedef struct moved {
    void *field; /* the pointer itself, of whatever type */
    size_t bytes;
    int result; /* 1: written by the call */
    void *host;
} moved;

enum { MOVED_MAX = 32 };

typedef struct move {
    ph_ctx *ctx;
    moved list[MOVED_MAX];
    int count;
} move;

static void *get(const void *field)
{
    void *pointer;
    memcpy(&pointer, field, sizeof pointer);
    return pointer;
}

static void set(void *field, void *pointer)
{
    memcpy(field, &pointer, sizeof pointer);
}

static void add(move *m, void *field, size_t count, size_t size, int result)
{
    if (get(field))
        m->list[m->count++] = (moved){field, count * size, result, get(field)};
}

static size_t cells_of(const ph_broadcast *s, size_t kv_len)
{
    return (size_t)s->batch * (size_t)s->heads * (size_t)s->q_len * kv_len;
}

static void list_all(move *m, run_common *c)
{
    const ph_attn *a = &c->attn;
    ph_args *x = &c->args;
    ph_grads *g = &c->grads;
    size_t size = ph_dtype_bytes(a->dtype, 1), batch = (size_t)a->batch;
    size_t heads = (size_t)a->q_heads, rows = batch * heads * (size_t)a->q_len;
    size_t keys = batch * (size_t)a->kv_len, qk = (size_t)a->qk_dim;
    size_t v = a->v_dim ? (size_t)a->v_dim : qk, reach = 2 * (size_t)a->reach + 1;
    size_t gates = a->gate == PH_GATE_HEAD ? heads : rows;
    size_t bias = cells_of(&a->bias, (size_t)a->kv_len);
    add(m, &x->q, rows * qk, size, 0);
    add(m, &x->k, keys * (size_t)a->k_heads * qk, size, 0);
    add(m, &x->v, keys * (size_t)a->v_heads * v, size, 0);
    add(m, &x->out, rows * v, size, 1);
    add(m, &x->lse, rows, 4, 1);
    add(m, &x->bias, bias, 4, 0);
    add(m, &x->visible, cells_of(&a->visible, (size_t)a->kv_len), 1, 0);
    add(m, &x->gate, gates, 4, 0);
    add(m, &x->sink, heads, 4, 0);
    add(m, &x->alibi, heads, 4, 0);
    add(m, &x->relative, heads * reach, 4, 0);
    add(m, &x->q_lens, batch, 4, 0);
    add(m, &x->kv_lens, batch, 4, 0);
    if (!c->backward) return;
    add(m, &g->dout, rows * v, size, 0);
    add(m, &g->dlse, rows, 4, 0);
    add(m, &g->dq, rows * qk, size, 1);
    add(m, &g->dk, keys * (size_t)a->k_heads * qk, size, 1);
    add(m, &g->dv, keys * (size_t)a->v_heads * v, size, 1);
    add(m, &g->dbias, bias, 4, 1);
    add(m, &g->dgate, gates, 4, 1);
    add(m, &g->dsink, heads, 4, 1);
    add(m, &g->drelative, heads * reach, 4, 1);
}

static ph_status send(move *m)
{
    ph_status status = PH_OK;
    for (int i = 0; i < m->count && status == PH_OK; i++) {
        const moved *t = &m->list[i];
        void *there = NULL;
        status = ph_device_alloc(m->ctx, t->bytes, &there);
        if (status == PH_OK && !t->result)
            status = ph_device_copy(m->ctx, there, t->host, t->bytes, NULL);
        set(t->field, there);
    }
    return status;
}

/* Results of a call that succeeded; the pointers are the host's again in any case. */
static ph_status fetch(move *m, ph_status status)
{
    for (int i = 0; i < m->count; i++) {
        const moved *t = &m->list[i];
        if (status == PH_OK && t->result)
            status = ph_device_copy(m->ctx, t->host, get(t->field), t->bytes, NULL);
    }
    if (status == PH_OK) status = ph_sync(m->ctx, NULL);
    for (int i = 0; i < m->count; i++) {
        const moved *t = &m->list[i];
        if (get(t->field) != t->host) ph_device_free(m->ctx, get(t->field));
        set(t->field, t->host);
    }
    return status;
}

ph_status run_on_device(run_job *job, const ph_plan *plan, run_common *c)
{
    move m = {.ctx = job->ctx};
    list_all(&m, c);
    ph_status status = send(&m);
    if (status == PH_OK) status = ph_forward(plan, &c->args);
    if (status == PH_OK && c->backward) status = ph_backward(plan, &c->args, &c->grads);
    return fetch(&m, status);
}
