/*
 * links.c - the output of an encoder: from every word to the word it belongs to.
 *
 *     q = x wq    k = x wk    p[i][j] = softmax_j( q[i].k[j] / sqrt(model_dim) )
 *     loss = -log p[i][label of i]
 *
 * One bilinear pointer over the last states and nothing else: what tells the partner of a
 * word, attention in the layers below must have written into these states. The engine
 * does the work: with values that are one-hot positions its output is p itself.
 */
#include <math.h>
#include <string.h>

#include "model/pass.h"

ph_status ph_links_create(ph_pass *p)
{
    const ph_config *c = &p->model->config;
    const ph_pass_stack *stack = &p->stacks[0];
    int len = p->shape.source_len;
    ph_strides in = {0, c->model_dim, c->model_dim};
    ph_attn attn = {.batch = p->shape.batch,
                    .q_heads = 1,
                    .q_len = stack->len,
                    .kv_len = stack->len,
                    .ragged = PH_RAGGED_ALL,
                    .q_total = stack->rows,
                    .kv_total = stack->rows,
                    .qk_dim = c->model_dim,
                    .v_dim = len,
                    .q = in,
                    .k = in,
                    .out = {0, len, len},
                    .backward = p->shape.backward};
    return ph_plan_create(&p->links->plan, p->model->ctx, &attn);
}

void ph_links_layout(ph_pass *p, ph_arena *arena)
{
    size_t rows = (size_t)p->stacks[0].rows, len = (size_t)p->shape.source_len;
    size_t width = (size_t)p->model->config.model_dim;
    ph_links *l = ph_arena_take(arena, sizeof *l), part = {0};
    part.q = ph_arena_floats(arena, rows * width);
    part.k = ph_arena_floats(arena, rows * width);
    part.one_hot = ph_arena_floats(arena, rows * len);
    part.p = ph_arena_floats(arena, rows * len);
    part.lse = ph_arena_floats(arena, rows);
    if (p->shape.backward) {
        part.dq = ph_arena_floats(arena, rows * width);
        part.dk = ph_arena_floats(arena, rows * width);
        part.dp = ph_arena_floats(arena, rows * len);
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
                     .out = l->p,
                     .lse = l->lse,
                     .q_offsets = p->stacks[0].offsets};
}

/* ---- forward ----------------------------------------------------------------------- */

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
    ph_gemm list[2] = {product(p, 0, l->q), product(p, 1, l->k)};
    ph_args args = args_of(p);
    set_one_hot(p);
    PH_TRY(ph_model_multiply(p->model, list, 2));
    return ph_forward(l->plan, &args);
}

/* ---- loss -------------------------------------------------------------------------- */

/* Gradient of one row of p; returns the row's loss. */
static float loss_row(const ph_pass *p, int row, float scale)
{
    const float floor = 1e-12f; /* keeps the gradient finite where p underflows */
    const ph_links *l = p->links;
    size_t len = (size_t)p->shape.source_len, at = (size_t)row * len;
    int label = p->batch.labels[row];
    if (p->shape.backward) memset(l->dp + at, 0, len * sizeof(float));
    if (label < 0) return 0;
    float found = l->p[at + (size_t)label];
    if (found < floor) found = floor;
    if (p->shape.backward) l->dp[at + (size_t)label] = -scale / found;
    return -logf(found);
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
    ph_grads grads = {.dout = l->dp, .dq = l->dq, .dk = l->dk};
    PH_TRY(ph_backward(l->plan, &args, &grads));
    const float *dy[2] = {l->dq, l->dk};
    ph_gemm dw[2] = {product_dw(p, 0, dy[0]), product_dw(p, 1, dy[1])};
    PH_TRY(ph_model_multiply(p->model, dw, 2));
    for (int i = 0; i < 2; i++) {
        ph_gemm dx = product_dx(p, i, dy[i]);
        PH_TRY(ph_model_multiply(p->model, &dx, 1));
    }
    return PH_OK;
}
