/*
 * feed.c - a feed-forward sublayer: y = f(a w1 + b1) w2 + b2, and da from dy.
 */
#include <string.h>

#include "kernels/kernels.h"
#include "model/pass.h"

enum { CHUNK = 16, PIECE = 256 }; /* rows of an item, columns at once */
enum { AHEAD = 1024 };            /* prefetch distance in columns */

typedef struct feed_job {
    const ph_pass *p;
    const ph_pass_stack *stack;
    const ph_act *act;
    int back;
    uint64_t stream; /* of dropout */
} feed_job;

typedef struct weights {
    float *w1, *w2, *b1, *b2; /* biases may be NULL */
} weights;

static weights weights_of(const ph_model *m, const ph_sublayer *sublayer, float *block)
{
    const ph_weight *p = &m->params[sublayer->first];
    weights w = {.w1 = block + p[0].at, .w2 = block + p[1].at};
    if (!m->config.no_bias) w.b1 = block + p[2].at, w.b2 = block + p[3].at;
    return w;
}

/* ---- the activation ---------------------------------------------------------------- */

/* These loops are bound by memory: prefetching into L2 keeps more cache lines in flight
   than the hardware prefetchers do. */
static void prefetch(const float *x, int n)
{
    for (int c = 0; c < n; c += PH_LANES) __builtin_prefetch(x + AHEAD + c, 0, 2);
}

/* g = dropout(f(h)) */
static void activation_piece(const feed_job *j, int row, int c, int n)
{
    const ph_config *config = &j->p->model->config;
    const ph_spans *f = j->p->model->spans;
    const float *h = j->act->h + (size_t)row * (size_t)ph_config_ff_width(config) + c;
    float *g = j->act->g + (size_t)row * (size_t)config->ff_dim + c, scratch[PIECE];
    const float *drop = ph_dropout_factors(j->p, j->stream, row, c, n, scratch);
    prefetch(h, n), prefetch(g, n);
    f->activation((ph_span_activation)config->activation, n, h, h + config->ff_dim, g);
    if (drop) f->times(n, g, drop);
}

/* g is 0 where h was negative or dropped, so ReLU needs neither h nor the factors. */
static void relu_backward_piece(const feed_job *j, float *dg, const float *g, int n)
{
    const ph_spans *f = j->p->model->spans;
    float scaled[PIECE], dh[PIECE];
    prefetch(g, n), prefetch(dg, n);
    f->scaled(n, 1.0f / (1.0f - ph_dropout_rate(j->p)), dg, scaled);
    f->activation_backward(PH_SPAN_RELU, n, g, NULL, scaled, dh, NULL);
    memcpy(dg, dh, (size_t)n * sizeof *dg);
}

/* dh from dg, in place; with SwiGLU both gradients replace the two halves of h. */
static void activation_backward_piece(const feed_job *j, int row, int c, int n)
{
    const ph_config *config = &j->p->model->config;
    const ph_spans *f = j->p->model->spans;
    int gated = config->activation == PH_SWIGLU;
    size_t at = (size_t)row * (size_t)config->ff_dim + (size_t)c;
    float *h = j->act->h + (size_t)row * (size_t)ph_config_ff_width(config) + c;
    float *dg = j->p->dg + at, scratch[PIECE], dh[PIECE], dw[PIECE];
    if (config->activation == PH_RELU) {
        relu_backward_piece(j, dg, j->act->g + at, n);
        return;
    }
    const float *drop = ph_dropout_factors(j->p, j->stream, row, c, n, scratch);
    prefetch(h, n);
    if (drop) f->times(n, dg, drop);
    f->activation_backward((ph_span_activation)config->activation, n, h,
                           h + config->ff_dim, dg, dh, dw);
    memcpy(gated ? h : dg, dh, (size_t)n * sizeof *h);
    if (gated) memcpy(h + config->ff_dim, dw, (size_t)n * sizeof *h);
}

static void activation_item(void *arg, int lane, int index)
{
    const feed_job *j = arg;
    int ff = j->p->model->config.ff_dim;
    (void)lane;
    for (int r = index * CHUNK; r < ph_min((index + 1) * CHUNK, j->stack->rows); r++)
        for (int c = 0; c < ff; c += PIECE)
            (j->back ? activation_backward_piece
                     : activation_piece)(j, r, c, ph_min(PIECE, ff - c));
}

/* Forward: g from h. Backward: dh from dg. */
static void activation(ph_pass *p, const ph_pass_stack *stack, int sublayer, int back)
{
    feed_job j = {.p = p, .stack = stack, .act = &stack->acts[sublayer], .back = back};
    j.stream = ph_dropout_stream(PH_DROPOUT_FEED, stack, sublayer);
    ph_ctx_spread(p->model->ctx, ph_div_up(stack->rows, CHUNK), activation_item, &j);
}

/* ---- products ---------------------------------------------------------------------- */

ph_status ph_feed_forward(ph_pass *p, int stack_index, int sublayer)
{
    const ph_pass_stack *stack = &p->stacks[stack_index];
    const ph_act *act = &stack->acts[sublayer];
    const ph_config *c = &p->model->config;
    int width = ph_config_ff_width(c);
    weights w = weights_of(p->model, &stack->def->sublayers[sublayer], (float *)p->block);
    int rows = stack->rows, dim = c->model_dim;
    ph_gemm first = ph_product(rows, dim, width, act->a, w.w1, w.b1, act->h);
    ph_gemm second = ph_product(rows, c->ff_dim, dim, act->g, w.w2, w.b2, p->y);
    PH_TRY(ph_model_multiply(p->model, &first, 1));
    activation(p, stack, sublayer, 0);
    return ph_model_multiply(p->model, &second, 1);
}

ph_status ph_feed_backward(ph_pass *p, int stack_index, int sublayer)
{
    const ph_pass_stack *stack = &p->stacks[stack_index];
    const ph_act *act = &stack->acts[sublayer];
    const ph_model *m = p->model;
    const ph_config *c = &m->config;
    int rows = stack->rows, dim = c->model_dim, ff = c->ff_dim;
    int width = ph_config_ff_width(c);
    weights w = weights_of(m, &stack->def->sublayers[sublayer], (float *)p->block);
    weights d = weights_of(m, &stack->def->sublayers[sublayer], p->grads);
    ph_gemm second[3] = {ph_product_dx(m, rows, ff, dim, p->dy, w.w2, p->dg),
                         ph_product_dw(m, rows, ff, dim, act->g, p->dy, d.w2)};
    const float *dh = width > ff ? act->h : p->dg;
    ph_gemm first[3] = {ph_product_dx(m, rows, dim, width, dh, w.w1, p->da),
                        ph_product_dw(m, rows, dim, width, act->a, dh, d.w1)};
    if (d.b2) second[2] = ph_product_db(rows, dim, p->ones, p->dy, d.b2);
    if (d.b1) first[2] = ph_product_db(rows, width, p->ones, dh, d.b1);
    PH_TRY(ph_model_multiply(m, second, d.b2 ? 3 : 2));
    activation(p, stack, sublayer, 1);
    return ph_model_multiply(m, first, d.b1 ? 3 : 2);
}
