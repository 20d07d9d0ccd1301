/*
 * masked.c - the layer between an encoder and the scores of masked tokens:
 *
 *     h = x w + b    g = f(h)    n = norm(g)    scores of tokens = n output^T + bias
 *
 * each bias where the configuration has it. Of a gated activation f has no gate.
 *
 * The last product is that of every model that predicts tokens (pass.c).
 */
#include "model/pass.h"

enum { CHUNK = PH_RESIDUAL_ROWS };

void ph_masked_layout(ph_pass *p, ph_arena *arena)
{
    size_t rows = (size_t)p->stacks[0].rows;
    size_t dim = (size_t)ph_config_embed_dim(&p->model->config);
    ph_masked *k = ph_arena_take(arena, sizeof *k), part = {0};
    part.h = ph_arena_floats(arena, rows * dim);
    part.norm = (ph_residual){.s = ph_arena_floats(arena, rows * dim),
                              .n = ph_arena_floats(arena, rows * dim),
                              .stats = ph_arena_floats(arena, rows * 2)};
    if (p->shape.backward) part.dh = ph_arena_floats(arena, rows * dim);
    p->masked = k;
    if (k) *k = part;
}

typedef struct masked_job {
    const ph_pass *p;
    int back;
} masked_job;

static void activation_item(void *arg, int lane, int index)
{
    const masked_job *j = arg;
    const ph_model *m = j->p->model;
    const ph_masked *k = j->p->masked;
    int dim = ph_config_embed_dim(&m->config), rows = j->p->stacks[0].rows;
    ph_span_activation kind = (ph_span_activation)ph_config_ungated(&m->config);
    (void)lane;
    for (int r = index * CHUNK; r < ph_min((index + 1) * CHUNK, rows); r++) {
        size_t at = (size_t)r * (size_t)dim;
        if (j->back)
            m->spans->activation_backward(kind, dim, k->h + at, NULL, j->p->dr + at,
                                          k->dh + at, NULL);
        else
            m->spans->activation(kind, dim, k->h + at, NULL, k->norm.s + at);
    }
}

static void activation(const ph_pass *p, int back)
{
    masked_job j = {p, back};
    ph_ctx_spread(p->model->ctx, ph_div_up(p->stacks[0].rows, CHUNK), activation_item,
                  &j);
}

ph_status ph_masked_forward(ph_pass *p)
{
    const ph_model *m = p->model;
    int rows = p->stacks[0].rows, dim = m->config.model_dim;
    int out = ph_config_embed_dim(&m->config), bare = m->config.no_dense_bias;
    const float *bias = bare ? NULL : p->block + m->params[m->masked + 1].at;
    ph_gemm g = ph_product(rows, dim, out, ph_pass_output(p),
                           ph_model_matrix(m, p->block, m->masked), bias, p->masked->h);
    PH_TRY(ph_model_multiply(m, &g, 1));
    activation(p, 0);
    ph_norm_forward(p, &p->stacks[0], &p->masked->norm, m->masked_gain, m->masked_shift);
    return PH_OK;
}

ph_status ph_masked_backward(ph_pass *p)
{
    const ph_model *m = p->model;
    const ph_weight *w = &m->params[m->masked];
    int rows = p->stacks[0].rows, dim = m->config.model_dim;
    int out = ph_config_embed_dim(&m->config), bare = m->config.no_dense_bias;
    const float *dh = p->masked->dh;
    ph_norm_backward(p, &p->stacks[0], &p->masked->norm, m->masked_gain, m->masked_shift);
    activation(p, 1);
    ph_gemm list[3] = {
        ph_product_dx(m, rows, dim, out, dh, ph_matrix_of(p->block + w[0].at), p->da),
        ph_product_dw(m, rows, dim, out, ph_pass_output(p), dh, p->grads + w[0].at)};
    if (!bare) list[2] = ph_product_db(rows, out, p->ones, dh, p->grads + w[1].at);
    return ph_model_multiply(m, list, bare ? 2 : 3);
}
