/*
 * links.c - the output of an encoder: from every word to the word it belongs to.
 *
 *     q = x wq    k = x wk    A_h = softmax_j( q_h[i].k_h[j] / sqrt(head_dim) )
 *     mix[i] = softmax_h( x[i] gate )         p[i][j] = sum_h mix[i][h] A_h[i][j]
 *     loss = -log( mix[i][r] A_r[i][j] )      label of i: role r and word j, r * len + j
 *
 * A mixture of heads, not a sum of scores: each head has one role (a kind of link) that
 * can be read off its weights. The attention engine does the work: with values that are
 * one-hot positions its output is the weights themselves.
 */
#include <math.h>
#include <string.h>

#include "model/pass.h"

ph_status ph_links_create(ph_pass *p)
{
    const ph_config *c = &p->model->config;
    const ph_pass_stack *stack = &p->stacks[0];
    int64_t width = ph_config_heads_width(c), len = p->shape.source_len;
    ph_strides in = {0, c->head_dim, width};
    ph_attn attn = {.batch = p->shape.batch,
                    .q_heads = c->heads,
                    .v_heads = 1,
                    .q_len = stack->len,
                    .kv_len = stack->len,
                    .ragged = PH_RAGGED_ALL,
                    .q_total = stack->rows,
                    .kv_total = stack->rows,
                    .qk_dim = c->head_dim,
                    .v_dim = (int)len,
                    .q = in,
                    .k = in,
                    .out = {0, len, c->heads * len},
                    .backward = p->shape.backward};
    return ph_plan_create(&p->links->plan, p->model->ctx, &attn);
}

void ph_links_layout(ph_pass *p, ph_arena *arena)
{
    const ph_config *c = &p->model->config;
    const ph_pass_stack *stack = &p->stacks[0];
    size_t rows = (size_t)stack->rows, heads = (size_t)c->heads;
    size_t len = (size_t)p->shape.source_len;
    size_t width = (size_t)ph_config_heads_width(c);
    ph_links *l = ph_arena_take(arena, sizeof *l), part = {0};
    part.q = ph_arena_floats(arena, rows * width);
    part.k = ph_arena_floats(arena, rows * width);
    part.one_hot = ph_arena_floats(arena, rows * len);
    part.weights = ph_arena_floats(arena, rows * heads * len);
    part.lse = ph_arena_floats(arena, rows * heads);
    part.mix = ph_arena_floats(arena, rows * heads);
    part.p = ph_arena_floats(arena, rows * len);
    if (p->shape.backward) {
        part.dq = ph_arena_floats(arena, rows * width);
        part.dk = ph_arena_floats(arena, rows * width);
        part.dweights = ph_arena_floats(arena, rows * heads * len);
        part.dmix = ph_arena_floats(arena, rows * heads);
    }
    p->links = l;
    if (l) *l = part;
}

static void set_one_hot(const ph_pass *p)
{
    const ph_pass_stack *stack = &p->stacks[0];
    size_t rows = (size_t)stack->rows, len = (size_t)p->shape.source_len;
    memset(p->links->one_hot, 0, rows * len * sizeof(float));
    for (size_t r = 0; r < rows; r++)
        p->links->one_hot[r * len + (size_t)stack->positions[r]] = 1;
}

static ph_args args_of(const ph_pass *p)
{
    const ph_links *l = p->links;
    return (ph_args){.q = l->q,
                     .k = l->k,
                     .v = l->one_hot,
                     .out = l->weights,
                     .lse = l->lse,
                     .q_offsets = p->stacks[0].offsets};
}

/* ---- forward ----------------------------------------------------------------------- */

static void mix_row(const ph_pass *p, int row)
{
    const ph_links *l = p->links;
    const ph_spans *f = p->model->spans;
    int heads = p->model->config.heads, len = p->shape.source_len;
    float *mix = l->mix + (size_t)row * heads, *out = l->p + (size_t)row * len;
    const float *weights = l->weights + (size_t)row * heads * len;
    f->softmax(heads, mix);
    memset(out, 0, (size_t)len * sizeof *out);
    for (int h = 0; h < heads; h++)
        f->add_scaled(len, mix[h], weights + (size_t)h * len, out);
}

static void mix_item(void *arg, int lane, int index)
{
    const ph_pass *p = arg;
    const int32_t *offsets = p->stacks[0].offsets;
    (void)lane;
    for (int r = offsets[index]; r < offsets[index + 1]; r++) mix_row(p, r);
}

static ph_gemm product(const ph_pass *p, int which, float *y)
{
    const ph_weight *w = &p->model->params[p->model->links + which];
    ph_gemm g = ph_product(p->stacks[0].rows, w->dims[0], w->dims[1], ph_pass_output(p),
                           ph_matrix_of(p->block + w->at), NULL, y);
    g.same_a = which > 0;
    return g;
}

ph_status ph_links_forward(ph_pass *p)
{
    ph_links *l = p->links;
    ph_gemm list[3] = {product(p, 0, l->q), product(p, 1, l->k), product(p, 2, l->mix)};
    ph_args args = args_of(p);
    set_one_hot(p);
    PH_TRY(ph_model_multiply(p->model, list, 3));
    PH_TRY(ph_forward(l->plan, &args));
    ph_ctx_run(p->model->ctx, p->shape.batch, mix_item, p);
    return PH_OK;
}

/* ---- loss -------------------------------------------------------------------------- */

/* Gradients of one row's weights and mix; returns its loss. */
static float loss_row(const ph_pass *p, int row, float scale)
{
    const ph_links *l = p->links;
    int heads = p->model->config.heads, len = p->shape.source_len;
    int label = p->batch.labels[row], role = label / len;
    size_t at = (size_t)row * (size_t)heads, span = (size_t)heads * (size_t)len;
    const float *mix = l->mix + at;
    if (p->shape.backward) {
        memset(l->dweights + at * (size_t)len, 0, span * sizeof(float));
        memset(l->dmix + at, 0, (size_t)heads * sizeof(float));
    }
    if (label < 0) return 0;
    const float floor = 1e-12f; /* keeps the gradient finite where a weight underflows */
    float found = l->weights[at * (size_t)len + (size_t)label], chosen = mix[role];
    if (found < floor) found = floor;
    if (chosen < floor) chosen = floor;
    if (p->shape.backward) {
        l->dweights[at * (size_t)len + (size_t)label] = -scale / found;
        for (int h = 0; h < heads; h++)
            l->dmix[at + (size_t)h] = scale * (mix[h] - (h == role));
    }
    return -logf(found) - logf(chosen);
}

ph_status ph_links_loss(ph_pass *p, float scale, double *loss)
{
    *loss = 0;
    for (int r = 0; r < p->stacks[0].rows; r++)
        *loss += p->row_loss[r] = loss_row(p, r, scale);
    return PH_OK;
}

/* ---- backward ---------------------------------------------------------------------- */

/* da (+)= dy w^T */
static ph_gemm product_dx(const ph_pass *p, int which, const float *dy)
{
    const ph_weight *w = &p->model->params[p->model->links + which];
    ph_gemm g = ph_product_dx(p->model, p->stacks[0].rows, w->dims[0], w->dims[1], dy,
                              ph_matrix_of(p->block + w->at), p->da);
    g.add = which > 0;
    return g;
}

static ph_gemm product_dw(const ph_pass *p, int which, const float *dy)
{
    const ph_weight *w = &p->model->params[p->model->links + which];
    ph_gemm g = ph_product_dw(p->model, p->stacks[0].rows, w->dims[0], w->dims[1],
                              ph_pass_output(p), dy, p->grads + w->at);
    g.same_a = which > 0;
    return g;
}

ph_status ph_links_backward(ph_pass *p)
{
    ph_links *l = p->links;
    ph_args args = args_of(p);
    ph_grads grads = {.dout = l->dweights, .dq = l->dq, .dk = l->dk};
    PH_TRY(ph_backward(l->plan, &args, &grads));
    const float *dy[3] = {l->dq, l->dk, l->dmix};
    ph_gemm dw[3] = {product_dw(p, 0, dy[0]), product_dw(p, 1, dy[1]),
                     product_dw(p, 2, dy[2])};
    PH_TRY(ph_model_multiply(p->model, dw, 3));
    for (int i = 0; i < 3; i++) {
        ph_gemm dx = product_dx(p, i, dy[i]);
        PH_TRY(ph_model_multiply(p->model, &dx, 1));
    }
    return PH_OK;
}
