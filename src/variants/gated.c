/*
 * gated.c - a sigmoid gate on what the heads give.
 *
 *     g = sigmoid(x w_gate)        head      w_gate (model_dim, H)       one per head
 *     heads' = g * heads           element   w_gate (model_dim, H*v_dim) one per number
 *
 * The way back, z = x w_gate: dheads = g dheads', dz = (heads . dheads') g (1 - g). A
 * gate per head is one that attention itself knows.
 */
#include <string.h>

#include "variants/kind.h"

enum { HEAD, ELEMENT }; /* the words of the option */
enum { Z };             /* kept: (rows, columns) logits */

typedef struct state {
    int per; /* HEAD or ELEMENT */
    ph_linear z;
} state;

static const state *state_of(const ph_kind_call *c)
{
    return (const state *)c->shape->state;
}

static ph_status shape(ph_shape *s, const char *options)
{
    state *own = (state *)s->state;
    const ph_option list[] = {{.key = "", .word = &own->per, .words = "head|element"}};
    PH_TRY(ph_options_read(s->ctx, "gated", options, list, 1));
    int heads = s->attn.q_heads;
    own->z.columns = own->per == HEAD ? heads : heads * s->attn.v_dim;
    own->z.piece = Z;
    ph_shape_param(s, "w_gate", 0, s->desc->model_dim, own->z.columns, 0, 0);
    ph_shape_linears(s, &own->z, 1);
    s->makes_gate = own->per == HEAD;
    s->makes_out = own->per == ELEMENT;
    return PH_OK;
}

static void project(ph_kind_call *c)
{
    ph_kind_linears(c, &state_of(c)->z, 1);
}

static void project_back(ph_kind_call *c)
{
    ph_kind_linears_back(c, &state_of(c)->z, 1);
}

static void no_logits(ph_kind_call *c, int row, int b, int t)
{
    int n = state_of(c)->z.columns;
    (void)b, (void)t;
    memset(c->back[Z] + (int64_t)row * n, 0, (size_t)n * sizeof(float));
}

/* ---- one gate per head ------------------------------------------------------------- */

static void open_heads(ph_kind_call *c, int row, int b, int t)
{
    int n = state_of(c)->z.columns;
    const float *z = c->kept[Z] + (int64_t)row * n;
    for (int h = 0; h < n; h++)
        ph_kind_sigmoid(c->ctx, 1, &z[h], &c->gate[ph_gate_at(c, b, h, t)]);
}

static void before(ph_kind_call *c)
{
    if (c->gate) ph_kind_tokens(c, open_heads, ph_kind_close);
}

static void open_heads_back(ph_kind_call *c, int row, int b, int t)
{
    int n = state_of(c)->z.columns;
    float *dz = c->back[Z] + (int64_t)row * n;
    for (int h = 0; h < n; h++) {
        int64_t at = ph_gate_at(c, b, h, t);
        dz[h] = c->dgate[at] * c->gate[at] * (1 - c->gate[at]);
    }
}

static void before_back(ph_kind_call *c)
{
    if (c->gate) ph_kind_tokens(c, open_heads_back, no_logits);
}

/* ---- one gate per number ----------------------------------------------------------- */

static void open_numbers(ph_kind_call *c, int row, int b, int t)
{
    int n = state_of(c)->z.columns;
    int64_t first = (int64_t)row * n;
    (void)b, (void)t;
    ph_kind_sigmoid(c->ctx, n, c->kept[Z] + first, c->out + first);
    for (int64_t i = first; i < first + n; i++) c->out[i] *= c->heads[i];
}

static void no_numbers(ph_kind_call *c, int row, int b, int t)
{
    int n = state_of(c)->z.columns;
    (void)b, (void)t;
    memset(c->out + (int64_t)row * n, 0, (size_t)n * sizeof(float));
}

static void after(ph_kind_call *c)
{
    ph_kind_tokens(c, open_numbers, no_numbers);
}

static void open_numbers_back(ph_kind_call *c, int row, int b, int t)
{
    int n = state_of(c)->z.columns;
    int64_t first = (int64_t)row * n;
    (void)b, (void)t;
    ph_kind_sigmoid(c->ctx, n, c->kept[Z] + first, c->dheads + first);
    for (int64_t i = first; i < first + n; i++) {
        float g = c->dheads[i];
        c->dheads[i] = c->dout[i] * g;
        c->back[Z][i] = c->dout[i] * c->heads[i] * g * (1 - g);
    }
}

static void no_numbers_back(ph_kind_call *c, int row, int b, int t)
{
    int n = state_of(c)->z.columns;
    memset(c->dheads + (int64_t)row * n, 0, (size_t)n * sizeof(float));
    no_logits(c, row, b, t);
}

static void after_back(ph_kind_call *c)
{
    ph_kind_tokens(c, open_numbers_back, no_numbers_back);
}

static const ph_layer_kind kind = {.shape = shape,
                                   .project = project,
                                   .before = before,
                                   .after = after,
                                   .after_back = after_back,
                                   .before_back = before_back,
                                   .project_back = project_back};

const ph_variant ph_variant_gated = {
    .info = {.name = "gated",
             .options = "gated:head or gated:element",
             .help =
                 "a sigmoid gate, made from x, on every head or every number it gives",
             .tensors = "w_gate (model_dim, H) gate of each head, gated:head\n"
                        "w_gate (model_dim, H*v_dim) of each number, gated:element\n"},
    .layer = &kind,
};
