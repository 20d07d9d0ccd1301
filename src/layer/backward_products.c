/*
 * backward_products.c - the matrix products of a backward call; see backward_call.h.
 */
#include "layer/backward_call.h"

static void add_product(ph_products *p, int wanted, ph_gemm g)
{
    if (wanted) p->list[p->count++] = g;
}

static const float *matrix_of(const ph_backward_call *c, const ph_projection *proj,
                              const float *named)
{
    return proj->w < 0 ? named : c->kind.param[proj->w];
}

static float *gradient_of(const ph_backward_call *c, const ph_projection *proj,
                          float *named)
{
    return proj->w < 0 ? named : c->kind.dparam[proj->w];
}

/* wo as far as the slice reaches. */
static ph_projection out_part(const ph_backward_call *c)
{
    ph_projection proj = c->layer->out;
    proj.in = c->kind.out_heads * c->layer->shape.out_dim;
    return proj;
}

static int64_t wo_at(const ph_backward_call *c)
{
    return (int64_t)c->kind.first_out * c->layer->shape.out_dim * c->layer->out.dim;
}

ph_products ph_backward_dconcat(const ph_backward_call *c)
{
    const ph_layer *l = c->layer;
    ph_projection proj = out_part(c);
    ph_products p = {.count = 0};
    add_product(&p, !l->desc.concat,
                ph_layer_product_dx(&proj, ph_float_at(c->weights->wo, wo_at(c)),
                                    l->q_rows, c->dout, c->slice.dconcat, 0));
    return p;
}

ph_products ph_backward_recompute_v(const ph_backward_call *c)
{
    const ph_layer *l = c->layer;
    ph_products p = {.count = 0};
    add_product(&p, l->recomputes_v,
                ph_layer_slice_v(l, c->kind.first, c->weights, c->source, c->slice.v));
    return p;
}

ph_products ph_backward_dwo(const ph_backward_call *c)
{
    const ph_layer *l = c->layer;
    ph_projection proj = out_part(c);
    float *dwo = ph_float_at_out(c->grads->dwo, wo_at(c));
    int made = ph_layer_makes_out(l);
    const float *out = made ? c->kind.out : c->kind.heads;
    ph_gemm g = ph_layer_product_dw(&proj, l->q_rows, out, PH_F32, c->dout, dwo);
    if (!made) g.a_col = c->kind.heads_row;
    ph_products p = {.count = 0};
    add_product(&p, dwo != NULL, g);
    return p;
}

static void add_weights(const ph_backward_call *c, ph_products *p)
{
    const ph_layer *l = c->layer;
    const ph_shape *s = &l->shape;
    const ph_args *lens = &c->args->attn;
    ph_dtype type = l->desc.attn.dtype;
    int one_source =
        !l->desc.memory_dim && !lens->q_lens && !lens->kv_lens && s->q.from < 0;
    float *dwq = gradient_of(c, &s->q, c->grads->dwq);
    float *dwk = gradient_of(c, &s->k, c->grads->dwk);
    float *dwv = gradient_of(c, &s->v, c->grads->dwv);
    ph_gemm q = ph_layer_product_dw(&s->q, l->q_rows, c->x, type, c->dq, dwq);
    if (s->q.from >= 0) q.a = c->saved.kind[s->q.from], q.a_type = PH_F32;
    ph_gemm k = ph_layer_product_dw(&s->k, l->kv_rows, c->source, type, c->dk, dwk);
    ph_gemm v = ph_layer_product_dw(&s->v, l->kv_rows, c->source, type, c->dv, dwv);
    k.same_a = dwq && one_source;
    v.same_a = dwk || k.same_a;
    add_product(p, dwq != NULL, q);
    add_product(p, dwk != NULL, k);
    add_product(p, dwv != NULL, v);
}

/* Gradients of parameters, and what q gives to dx. */
ph_products ph_backward_weights(const ph_backward_call *c)
{
    const ph_layer *l = c->layer;
    const ph_shape *s = &l->shape;
    const ph_layer_grads *g = c->grads;
    const float *wq = matrix_of(c, &s->q, c->weights->wq);
    ph_products p = {.count = 0};
    add_weights(c, &p);
    float *to = s->q.from < 0 ? c->dx : c->kind.backward_only[s->q.from];
    add_product(&p, g->dx || s->q.from >= 0,
                ph_layer_product_dx(&s->q, wq, l->q_rows, c->dq, to, 0));
    add_product(&p, g->dbq != NULL,
                ph_layer_sum(&s->q, l->q_rows, c->ones, c->dq, g->dbq));
    add_product(&p, g->dbk != NULL,
                ph_layer_sum(&s->k, l->kv_rows, c->ones, c->dk, g->dbk));
    add_product(&p, g->dbv != NULL,
                ph_layer_sum(&s->v, l->kv_rows, c->ones, c->dv, g->dbv));
    add_product(&p, g->dbo != NULL,
                ph_layer_sum(&l->out, l->q_rows, c->ones, c->dout, g->dbo));
    return p;
}

/* What k (second) and v (third) give to dmemory, or add to dx. */
ph_products ph_backward_dsource(const ph_backward_call *c, int third)
{
    const ph_layer *l = c->layer;
    const ph_shape *s = &l->shape;
    int memory = l->desc.memory_dim > 0;
    float *to = memory ? c->dmemory : c->dx;
    const float *wk = matrix_of(c, &s->k, c->weights->wk);
    const float *wv = matrix_of(c, &s->v, c->weights->wv);
    ph_products p = {.count = 0};
    int wanted = (memory ? c->grads->dmemory : c->grads->dx) != NULL;
    if (third)
        add_product(&p, wanted && s->v.heads,
                    ph_layer_product_dx(&s->v, wv, l->kv_rows, c->dv, to, 1));
    else
        add_product(&p, wanted,
                    ph_layer_product_dx(&s->k, wk, l->kv_rows, c->dk, to, !memory));
    return p;
}
