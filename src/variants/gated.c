/*
 * gated.c - a sigmoid gate on the output of the heads, the last step before wo.
 *
 *     g = sigmoid(x w_gate)        head      w_gate (model_dim, H)     one per head
 *     out' = g * out               element   w_gate (model_dim, H*n)   one per element
 *
 * H heads of n elements in the input of wo. It is used alone or after any other kind.
 * Backward, z = x w_gate: dout = g dout', dz = (out . dout') g (1 - g). A gate per head
 * directly on the output of attention is passed to attention as its gate, multiplied by
 * that of a router, gate = r g: then dz = dgate gate (1 - g) and dr = g dgate.
 */
#include <string.h>

#include "variants/kind.h"

enum { HEAD, ELEMENT }; /* the words of the option */
enum { BLOCK = 64 };    /* elements at a time */

static const ph_gate_step *gate_of(const ph_kind_call *c)
{
    return &c->shape->gate;
}

static ph_status shape(ph_shape *s, const char *options)
{
    ph_gate_step *own = &s->gate;
    const ph_variant_option list[] = {
        {.key = "", .word = &own->per, .words = "head|element"}};
    PH_TRY(ph_options_read(s->ctx, "gated", options, list, 1));
    own->out = own->per == ELEMENT || s->makes_out;
    own->joins = s->makes_gate;
    own->z =
        (ph_linear){.param = s->params, .columns = s->out_heads, .buffer = PH_GATE_Z};
    if (own->per == ELEMENT) own->z.columns *= s->out_dim, own->z.recomputed = 1;
    ph_shape_param(s, "w_gate", 0, s->desc->model_dim, own->z.columns, 0, 0);
    ph_shape_linears(s, &own->z, 1);
    s->makes_gate |= !own->out;
    s->wants_slices |= own->per == ELEMENT;
    return PH_OK;
}

static void project(ph_kind_call *c)
{
    ph_kind_linears(c, &gate_of(c)->z, 1);
}

static void recompute(ph_kind_call *c)
{
    if (gate_of(c)->z.recomputed) project(c);
}

static void project_backward(ph_kind_call *c)
{
    ph_kind_linears_backward(c, &gate_of(c)->z, 1);
}

/* Logits of a token, and their gradients. */
static const float *logits(const ph_kind_call *c, int row)
{
    const ph_linear *z = &gate_of(c)->z;
    return (z->recomputed ? c->scratch : c->saved)[PH_GATE_Z] + (int64_t)row * z->columns;
}

static float *dlogits(const ph_kind_call *c, int row)
{
    const ph_linear *z = &gate_of(c)->z;
    return (z->recomputed ? c->scratch : c->backward_only)[PH_GATE_Z] +
           (int64_t)row * z->columns;
}

/* ---- the gate of attention --------------------------------------------------------- */

static void open_heads(ph_kind_call *c, int row)
{
    const ph_gate_step *own = gate_of(c);
    for (int h = 0; h < own->z.columns; h++) {
        float g, *gate = &c->gate[ph_gate_at(c, row, h)];
        ph_kind_sigmoid(c->ctx, 1, logits(c, row) + h, &g);
        *gate = own->joins ? *gate * g : g;
    }
}

static void before(ph_kind_call *c)
{
    if (!gate_of(c)->out) ph_kind_tokens(c, open_heads, ph_kind_close);
}

static void open_heads_backward(ph_kind_call *c, int row)
{
    for (int h = 0; h < gate_of(c)->z.columns; h++) {
        int64_t at = ph_gate_at(c, row, h);
        float g;
        ph_kind_sigmoid(c->ctx, 1, logits(c, row) + h, &g);
        dlogits(c, row)[h] = c->dgate[at] * c->gate[at] * (1 - g);
        c->dgate[at] *= g;
    }
}

static void no_logits(ph_kind_call *c, int row)
{
    memset(dlogits(c, row), 0, (size_t)gate_of(c)->z.columns * sizeof(float));
}

static void before_backward(ph_kind_call *c)
{
    if (!gate_of(c)->out) ph_kind_tokens(c, open_heads_backward, no_logits);
}

/* ---- on what wo would see ---------------------------------------------------------- */

/* At most BLOCK elements of one head of a token. */
typedef struct gated_block {
    int count;
    int64_t at;        /* in out and its gradient */
    const float *from; /* what is gated: output of the kind, or of attention */
    int z;             /* first logit */
    int per_head;      /* 1: one logit for all */
    float g[BLOCK];
} gated_block;

static gated_block block_of(const ph_kind_call *c, int row, int m, int i)
{
    const ph_gate_step *own = gate_of(c);
    int n = c->shape->out_dim, head = c->first_out + m;
    gated_block k = {.count = ph_min(BLOCK, n - i), .per_head = own->per == HEAD};
    k.at = ((int64_t)row * c->out_heads + m) * n + i;
    k.from = c->heads + row * c->heads_row + (int64_t)m * n + i;
    if (c->shape->makes_out) k.from = c->out + k.at;
    k.z = k.per_head ? head : head * n + i;
    ph_kind_sigmoid(c->ctx, k.per_head ? 1 : k.count, logits(c, row) + k.z, k.g);
    for (int e = 1; k.per_head && e < k.count; e++) k.g[e] = k.g[0];
    return k;
}

static void open_token(ph_kind_call *c, int row)
{
    for (int m = 0; m < c->out_heads; m++)
        for (int i = 0; i < c->shape->out_dim; i += BLOCK) {
            gated_block k = block_of(c, row, m, i);
            float *to = c->out + k.at;
            for (int e = 0; e < k.count; e++) to[e] = k.g[e] * k.from[e];
        }
}

static void clear_row(const ph_kind_call *c, float *x, int row)
{
    size_t n = (size_t)c->out_heads * (size_t)c->shape->out_dim;
    memset(x + (size_t)row * n, 0, n * sizeof *x);
}

static void no_token(ph_kind_call *c, int row)
{
    clear_row(c, c->out, row);
}

static void after(ph_kind_call *c)
{
    if (gate_of(c)->out) ph_kind_tokens(c, open_token, no_token);
}

static void close_block(ph_kind_call *c, const gated_block *k, float *dz, double *sum)
{
    const float *from = k->from;
    float *to = c->out + k->at, *dout = c->dout + k->at;
    for (int e = 0; e < k->count; e++) {
        float product = dout[e] * from[e], g = k->g[e];
        *sum += (double)dout[e] * from[e];
        if (!k->per_head) dz[e] = product * g * (1 - g);
        to[e] = g * from[e];
        dout[e] *= g;
    }
}

static void open_token_backward(ph_kind_call *c, int row)
{
    int per_head = gate_of(c)->per == HEAD;
    for (int m = 0; m < c->out_heads; m++) {
        double sum = 0;
        for (int i = 0; i < c->shape->out_dim; i += BLOCK) {
            gated_block k = block_of(c, row, m, i);
            close_block(c, &k, dlogits(c, row) + k.z, &sum);
            if (per_head) dlogits(c, row)[k.z] = (float)(sum * k.g[0] * (1 - k.g[0]));
        }
    }
}

static void no_token_backward(ph_kind_call *c, int row)
{
    clear_row(c, c->out, row);
    clear_row(c, c->dout, row);
    no_logits(c, row);
}

static void after_backward(ph_kind_call *c)
{
    if (gate_of(c)->out) ph_kind_tokens(c, open_token_backward, no_token_backward);
}

static const ph_layer_kind kind = {.shape = shape,
                                   .project = project,
                                   .before = before,
                                   .after = after,
                                   .after_backward = after_backward,
                                   .before_backward = before_backward,
                                   .project_backward = project_backward,
                                   .recompute = recompute,
                                   .behind = 1,
                                   .by_heads = 1};

const ph_variant ph_variant_gated = {
    .info = {.name = "gated",
             .options = "gated:head or gated:element",
             .help = "a sigmoid gate, computed from x, on the output of every head or "
                     "every element of it; alone or with any other variant",
             .tensors = "w_gate (model_dim, H) gate of each head, gated:head\n"
                        "w_gate (model_dim, H*v_dim) of each element, gated:element\n"},
    .layer = &kind,
};
