/*
 * layer_bed.c - see layer_bed.h.
 */
#include "layer_bed.h"

#include <math.h>
#include <stddef.h>

#include "check.h"
#include "guard.h"

static float *fill(size_t count, uint64_t *random, double size)
{
    float *x = guard_alloc(count * sizeof *x);
    for (size_t i = 0; i < count; i++) x[i] = (float)(size * check_normal(random));
    return x;
}

static float *junk(size_t count) /* results start as NaN */
{
    return guard_alloc(count * sizeof(float));
}

/* ---- parameters -------------------------------------------------------------------- */

static void fill_params(layer_bed *b, uint64_t *random)
{
    for (int i = 0; ph_layer_param(b->layer, i); i++) {
        const ph_param *p = b->param[i] = ph_layer_param(b->layer, i);
        size_t count = 1;
        for (int d = 0; d < p->rank; d++) count *= (size_t)p->dims[d];
        int vector = p->rank == 1, in = p->rank > 1 ? p->dims[p->rank - 2] : 1;
        b->count[i] = count;
        b->w[i] = fill(count, random, vector ? 0.5 : 1.2 / sqrt(in));
        b->dw[i] = junk(count);
        b->params = i + 1;
    }
}

static void point_at_params(layer_bed *b)
{
#define FIELD(name)                                                                      \
    #name, offsetof(ph_layer_weights, name), offsetof(ph_layer_grads, d##name)
    static const struct {
        const char *name;
        size_t w, dw;
    } fields[] = {{FIELD(wq)}, {FIELD(wk)}, {FIELD(wv)}, {FIELD(wo)},     {FIELD(bq)},
                  {FIELD(bk)}, {FIELD(bv)}, {FIELD(bo)}, {FIELD(q_norm)},
                  {FIELD(k_norm)}};
    int named = ph_layer_named(b->layer);
    for (int i = 0; i < named; i++)
        for (size_t f = 0; f < sizeof fields / sizeof fields[0]; f++)
            if (!strcmp(fields[f].name, b->param[i]->name)) {
                memcpy((char *)&b->weights + fields[f].w, &b->w[i], sizeof b->w[i]);
                memcpy((char *)&b->grads + fields[f].dw, &b->dw[i], sizeof b->dw[i]);
            }
    b->weights.extra = (const float *const *)(b->w + named);
    b->grads.dextra = b->dw + named;
}

int layer_bed_find(const layer_bed *b, const char *name)
{
    for (int i = 0; i < b->params; i++)
        if (!strcmp(b->param[i]->name, name)) return i;
    return -1;
}

void layer_bed_copy(layer_bed *to, const layer_bed *from)
{
    for (int i = 0; i < from->params; i++) {
        int at = layer_bed_find(to, from->param[i]->name);
        if (at >= 0 && to->count[at] == from->count[i])
            memcpy(to->w[at], from->w[i], from->count[i] * sizeof(float));
    }
    if (to->x_count == from->x_count)
        memcpy(to->x, from->x, from->x_count * sizeof(float));
    if (to->memory_count == from->memory_count)
        memcpy(to->memory, from->memory, from->memory_count * sizeof(float));
    if (to->out_count == from->out_count)
        memcpy(to->dout, from->dout, from->out_count * sizeof(float));
}

/* ---- a layer ----------------------------------------------------------------------- */

static void fill_activations(layer_bed *b, uint64_t *random)
{
    const ph_layer_desc *d = &b->desc;
    size_t rows = (size_t)d->attn.batch * (size_t)d->attn.q_len;
    size_t keys = (size_t)d->attn.batch * (size_t)d->attn.kv_len;
    if (d->attn.ragged) rows = (size_t)d->attn.q_total, keys = (size_t)d->attn.kv_total;
    b->x_count = rows * (size_t)d->model_dim;
    b->memory_count = keys * (size_t)d->memory_dim;
    b->out_count = rows * (size_t)(d->out_dim ? d->out_dim : d->model_dim);
    b->gate_count = rows * (size_t)d->attn.q_heads;
    b->x = fill(b->x_count, random, 1);
    b->memory = fill(b->memory_count, random, 1);
    b->dout = fill(b->out_count, random, 1);
    b->out = junk(b->out_count);
    b->dx = junk(b->x_count);
    b->dmemory = junk(b->memory_count);
    b->lse = junk(b->gate_count);
    b->gate = junk(b->gate_count);
}

ph_status layer_bed_make(layer_bed *b, ph_ctx *ctx, const ph_layer_desc *desc,
                         uint64_t seed)
{
    uint64_t random = seed;
    *b = (layer_bed){.ctx = ctx, .desc = *desc};
    ph_status status = ph_layer_create(&b->layer, ctx, desc);
    if (status != PH_OK) return status;
    fill_activations(b, &random);
    fill_params(b, &random);
    point_at_params(b);
    ph_layer_caches caches = ph_layer_cache(b->layer);
    b->k_cache = caches.k ? junk(caches.k / sizeof(float)) : NULL;
    b->v_cache = caches.v ? junk(caches.v / sizeof(float)) : NULL;
    b->extra_cache = caches.extra ? junk(caches.extra / sizeof(float)) : NULL;
    if (desc->attn.backward) b->saved = guard_alloc(ph_layer_saved(b->layer));
    b->args = (ph_layer_args){.x = b->x,
                              .memory = desc->memory_dim ? b->memory : NULL,
                              .out = b->out,
                              .k_cache = b->k_cache,
                              .v_cache = b->v_cache,
                              .extra_cache = b->extra_cache,
                              .k_cache_size = caches.k,
                              .v_cache_size = caches.v,
                              .extra_cache_size = caches.extra,
                              .saved = b->saved,
                              .saved_size = ph_layer_saved(b->layer)};
    b->args.attn.lse = b->lse;
    b->grads.dout = b->dout;
    b->grads.dx = b->dx;
    b->grads.dmemory = desc->memory_dim ? b->dmemory : NULL;
    return PH_OK;
}

ph_status layer_bed_run(layer_bed *b)
{
    ph_status status = ph_layer_forward(b->layer, &b->weights, &b->args);
    if (status == PH_OK && b->desc.attn.backward)
        status = ph_layer_backward(b->layer, &b->weights, &b->args, &b->grads);
    return status;
}

double layer_bed_loss(const layer_bed *b)
{
    double loss = 0;
    for (size_t i = 0; i < b->out_count; i++) loss += (double)b->out[i] * b->dout[i];
    return loss + (double)b->args.balance * b->balance_loss;
}

void layer_bed_free(layer_bed *b)
{
    float *all[] = {b->x,   b->memory, b->dout,    b->out,     b->dx,         b->dmemory,
                    b->lse, b->gate,   b->k_cache, b->v_cache, b->extra_cache};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) guard_free(all[i]);
    for (int i = 0; i < b->params; i++) guard_free(b->w[i]), guard_free(b->dw[i]);
    guard_free(b->saved);
    ph_layer_free(b->layer);
}
