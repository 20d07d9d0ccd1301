/*
 * backward_products.c - the matrix products of a backward call; see backward_call.h.
 */
#include "layer/backward_call.h"

static void add_product(ph_products *p, int wanted, ph_gemm g)
{
    if (wanted) p->list[p->count++] = g;
}

static const void *matrix_of(const ph_backward_call *c, const ph_projection *proj,
                             const void *named)
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
    const int dim = c->layer->shape.out_dim;
    return ph_projection_inputs(&c->layer->out, c->kind.first_out * dim,
                                c->kind.out_heads * dim);
}

ph_products ph_backward_dconcat(const ph_backward_call *c)
{
    const ph_layer *l = c->layer;
    ph_projection proj = out_part(c);
    ph_products p = {.count = 0};
    add_product(&p, !l->desc.concat,
                ph_projection_dx(&proj, c->weights->wo, l->q_rows, c->dout,
                                 c->slice.dconcat, 0));
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
    float *dwo = c->grads->dwo;
    int made = ph_layer_makes_out(l);
    const float *out = made ? c->kind.out : c->kind.heads;
    int64_t row = made ? proj.in : c->kind.heads_row;
    ph_products p = {.count = 0};
    add_product(&p, dwo != NULL,
                ph_projection_dw(&proj, l->q_rows, out, PH_F32, row, c->dout, dwo));
    return p;
}

/* The gradient of a projection's matrix. Its left operand is x, unless the form is
   (columns, in): then products share none. */
static void add_dw(const ph_backward_call *c, ph_products *p, const ph_projection *proj,
                   int rows, const void *x, const float *dy, float *named, int same_x)
{
    ph_dtype type = c->layer->desc.attn.dtype;
    float *dw = gradient_of(c, proj, named);
    if (!dw) return;
    if (proj->from >= 0) x = c->saved.kind[proj->from], type = PH_F32;
    ph_gemm g = ph_projection_dw(proj, rows, x, type, proj->in, dy, dw);
    g.same_a = same_x && p->count && g.a == x && p->list[p->count - 1].a == x;
    add_product(p, 1, g);
}

static void add_weights(const ph_backward_call *c, ph_products *p)
{
    const ph_layer *l = c->layer;
    const ph_shape *s = &l->shape;
    const ph_args *lens = &c->args->attn;
    int one_source =
        !l->desc.memory_dim && !lens->q_lens && !lens->kv_lens && s->q.from < 0;
    int dwk = gradient_of(c, &s->k, c->grads->dwk) != NULL;
    add_dw(c, p, &s->q, l->q_rows, c->x, c->dq, c->grads->dwq, 0);
    add_dw(c, p, &s->k, l->kv_rows, c->source, c->dk, c->grads->dwk, one_source);
    add_dw(c, p, &s->v, l->kv_rows, c->source, c->dv, c->grads->dwv, dwk || one_source);
}

/* Gradients of parameters, and what q gives to dx. */
ph_products ph_backward_weights(const ph_backward_call *c)
{
    const ph_layer *l = c->layer;
    const ph_shape *s = &l->shape;
    const ph_layer_grads *g = c->grads;
    const void *wq = matrix_of(c, &s->q, c->weights->wq);
    ph_products p = {.count = 0};
    add_weights(c, &p);
    float *to = s->q.from < 0 ? c->dx : c->kind.backward_only[s->q.from];
    add_product(&p, g->dx || s->q.from >= 0,
                ph_projection_dx(&s->q, wq, l->q_rows, c->dq, to, 0));
    add_product(&p, g->dbq != NULL,
                ph_projection_sum(&s->q, l->q_rows, c->ones, c->dq, g->dbq));
    add_product(&p, g->dbk != NULL,
                ph_projection_sum(&s->k, l->kv_rows, c->ones, c->dk, g->dbk));
    add_product(&p, g->dbv != NULL,
                ph_projection_sum(&s->v, l->kv_rows, c->ones, c->dv, g->dbv));
    add_product(&p, g->dbo != NULL,
                ph_projection_sum(&l->out, l->q_rows, c->ones, c->dout, g->dbo));
    return p;
}

/* What k (second) and v (third) give to dmemory, or add to dx. */
ph_products ph_backward_dsource(const ph_backward_call *c, int third)
{
    const ph_layer *l = c->layer;
    const ph_shape *s = &l->shape;
    int memory = l->desc.memory_dim > 0;
    float *to = memory ? c->dmemory : c->dx;
    const void *wk = matrix_of(c, &s->k, c->weights->wk);
    const void *wv = matrix_of(c, &s->v, c->weights->wv);
    ph_products p = {.count = 0};
    int wanted = (memory ? c->grads->dmemory : c->grads->dx) != NULL;
    if (third)
        add_product(&p, wanted && s->v.heads,
                    ph_projection_dx(&s->v, wv, l->kv_rows, c->dv, to, 1));
    else
        add_product(&p, wanted,
                    ph_projection_dx(&s->k, wk, l->kv_rows, c->dk, to, !memory));
    return p;
}
