/*
 * feed.c - a feed-forward sublayer: y = f(a w1 + b1) w2 + b2, and da from dy. A gated
 * activation is f(a w1 + b1) * (a w3 + b3); both factors are halves of the rows of h.
 */
#include <string.h>

#include "kernels/kernels.h"
#include "model/pass.h"

enum { CHUNK = 16, PIECE = 256 }; /* rows of an item, columns at once */
enum { AHEAD = 1024 };            /* prefetch distance in columns */
enum { BLOCK = 512 }; /* rows that go through both products at once where h and g are not
                         saved: they stay in cache between these */

typedef struct feed_job {
    const ph_pass *p;
    const ph_pass_stack *stack;
    const ph_act *act;
    int back;
    int first, count; /* rows; those of h and g begin at the first */
    uint64_t stream;  /* of dropout */
} feed_job;

/* w3 and biases may be NULL. */
typedef struct feed_weights {
    ph_matrix w[3];
    const float *b[3];
} feed_weights;

typedef struct feed_grads {
    float *w[3], *b[3];
} feed_grads;

static feed_weights weights_of(const ph_model *m, const ph_sublayer *sublayer,
                               const float *block)
{
    const ph_weight *p = &m->params[sublayer->first];
    int count = ph_config_gated(&m->config) ? 3 : 2;
    feed_weights w = {0};
    for (int i = 0; i < count; i++)
        w.w[i] = ph_model_matrix(m, block, sublayer->first + i);
    if (sublayer->count > count)
        for (int i = 0; i < count; i++) w.b[i] = block + p[count + i].at;
    return w;
}

static feed_grads grads_of(const ph_model *m, const ph_sublayer *sublayer, float *grads)
{
    const ph_weight *p = &m->params[sublayer->first];
    int count = ph_config_gated(&m->config) ? 3 : 2;
    feed_grads d = {0};
    for (int i = 0; i < count; i++) d.w[i] = grads + p[i].at;
    if (sublayer->count > count)
        for (int i = 0; i < count; i++) d.b[i] = grads + p[count + i].at;
    return d;
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
    int place = j->stack->places[j->first + row];
    const float *drop = ph_dropout_factors(j->p, j->stream, place, c, n, scratch);
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

/* dh from dg, in place; with a gate both gradients replace the two halves of h. */
static void activation_backward_piece(const feed_job *j, int row, int c, int n)
{
    const ph_config *config = &j->p->model->config;
    const ph_spans *f = j->p->model->spans;
    int gated = ph_config_gated(config);
    size_t at = (size_t)row * (size_t)config->ff_dim + (size_t)c;
    float *h = j->act->h + (size_t)row * (size_t)ph_config_ff_width(config) + c;
    float *dg = j->p->dg + at, scratch[PIECE], dh[PIECE], dw[PIECE];
    if (config->activation == PH_RELU) {
        relu_backward_piece(j, dg, j->act->g + at, n);
        return;
    }
    const float *drop =
        ph_dropout_factors(j->p, j->stream, j->stack->places[row], c, n, scratch);
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
    for (int r = index * CHUNK; r < ph_min((index + 1) * CHUNK, j->count); r++)
        for (int c = 0; c < ff; c += PIECE)
            (j->back ? activation_backward_piece
                     : activation_piece)(j, r, c, ph_min(PIECE, ff - c));
}

/* Forward: g from h, of rows [first, first + count). Backward: dh from dg. */
static void activation(ph_pass *p, const ph_pass_stack *stack, int sublayer, int back,
                       int first, int count)
{
    feed_job j = {.p = p, .stack = stack, .act = &stack->acts[sublayer], .back = back};
    j.first = first, j.count = count;
    j.stream = ph_dropout_stream(PH_DROPOUT_FEED, stack, sublayer);
    ph_ctx_spread(p->model->ctx, ph_div_up(count, CHUNK), activation_item, &j);
}

/* ---- products ---------------------------------------------------------------------- */

int ph_feed_rows(const ph_pass *p, const ph_pass_stack *stack)
{
    return p->shape.backward ? stack->rows : ph_min(stack->rows, BLOCK);
}

/* Half number i of h = [a w1 + b1 | a w3 + b3], rows from `first` on. */
static ph_gemm first_product(const ph_pass *p, const ph_act *act, const feed_weights *w,
                             int i, int first, int rows)
{
    const ph_config *c = &p->model->config;
    const float *a = act->a + (size_t)first * (size_t)c->model_dim;
    ph_gemm g = ph_product(rows, c->model_dim, c->ff_dim, a, w->w[2 * i], w->b[2 * i],
                           act->h + (size_t)i * (size_t)c->ff_dim);
    g.c_row = ph_config_ff_width(c), g.same_a = i;
    return g;
}

ph_status ph_feed_forward(ph_pass *p, int stack_index, int sublayer)
{
    const ph_pass_stack *stack = &p->stacks[stack_index];
    const ph_act *act = &stack->acts[sublayer];
    const ph_config *c = &p->model->config;
    feed_weights w = weights_of(p->model, &stack->def->sublayers[sublayer], p->block);
    int block = ph_feed_rows(p, stack), products = w.w[2].data ? 2 : 1;
    for (int r = 0, rows; r < stack->rows; r += rows) {
        rows = ph_min(block, stack->rows - r);
        ph_gemm first[2] = {first_product(p, act, &w, 0, r, rows)};
        if (products > 1) first[1] = first_product(p, act, &w, 1, r, rows);
        ph_gemm second = ph_product(rows, c->ff_dim, c->model_dim, act->g, w.w[1], w.b[1],
                                    p->y + (size_t)r * (size_t)c->model_dim);
        PH_TRY(ph_model_multiply(p->model, first, products));
        activation(p, stack, sublayer, 0, r, rows);
        PH_TRY(ph_model_multiply(p->model, &second, 1));
    }
    return PH_OK;
}

/* Gradients of one half of h: da, added to what the other left, dw and db. */
static ph_status first_backward(ph_pass *p, const ph_pass_stack *stack, const ph_act *act,
                                const feed_weights *w, const feed_grads *d, int i)
{
    const ph_model *m = p->model;
    int rows = stack->rows, dim = m->config.model_dim, ff = m->config.ff_dim;
    int gated = w->w[2].data != NULL, width = ph_config_ff_width(&m->config);
    const float *dh = gated ? act->h + (size_t)i * (size_t)ff : p->dg;
    ph_gemm list[3] = {ph_product_dx(m, rows, dim, ff, dh, w->w[2 * i], p->da),
                       ph_product_dw(m, rows, dim, ff, act->a, dh, d->w[2 * i])};
    list[0].a_row = list[1].b_row = width, list[0].add = i;
    if (d->b[2 * i]) list[2] = ph_product_db(rows, ff, p->ones, dh, d->b[2 * i]);
    list[2].b_row = width;
    return ph_model_multiply(m, list, d->b[2 * i] ? 3 : 2);
}

ph_status ph_feed_backward(ph_pass *p, int stack_index, int sublayer)
{
    const ph_pass_stack *stack = &p->stacks[stack_index];
    const ph_act *act = &stack->acts[sublayer];
    const ph_model *m = p->model;
    int rows = stack->rows, dim = m->config.model_dim, ff = m->config.ff_dim;
    feed_weights w = weights_of(m, &stack->def->sublayers[sublayer], p->block);
    feed_grads d = grads_of(m, &stack->def->sublayers[sublayer], p->grads);
    ph_gemm second[3] = {ph_product_dx(m, rows, ff, dim, p->dy, w.w[1], p->dg),
                         ph_product_dw(m, rows, ff, dim, act->g, p->dy, d.w[1])};
    if (d.b[1]) second[2] = ph_product_db(rows, dim, p->ones, p->dy, d.b[1]);
    PH_TRY(ph_model_multiply(m, second, d.b[1] ? 3 : 2));
    activation(p, stack, sublayer, 1, 0, stack->rows);
    PH_TRY(first_backward(p, stack, act, &w, &d, 0));
    return w.w[2].data ? first_backward(p, stack, act, &w, &d, 1) : PH_OK;
}
