/*
 * patches.c - the rows of an encoder of pictures: learned class tokens, then one row for
 * each patch, row by row of the picture,
 *
 *     row = x w + b        x: channel, then y, then x of the patch
 *
 * Positions are added in residual.c, as to tokens.
 */
#include <string.h>

#include "model/pass.h"

/* Patches of one picture. */
static int patches_of(const ph_config *c)
{
    int side = c->image_size / c->patch_size;
    return side * side;
}

/* Pixels of one patch. */
static int width_of(const ph_config *c)
{
    return c->channels * c->patch_size * c->patch_size;
}

void ph_patches_layout(ph_pass *p, ph_arena *arena)
{
    const ph_config *c = &p->model->config;
    size_t rows = (size_t)p->shape.batch * (size_t)patches_of(c);
    ph_patches *o = ph_arena_take(arena, sizeof *o), part = {0};
    part.x = ph_arena_floats(arena, rows * (size_t)width_of(c));
    part.rows = ph_arena_floats(arena, rows * (size_t)c->model_dim);
    p->patches = o;
    if (o) *o = part;
}

/* Patch number `index` of all pictures as one row. */
static void gather_item(void *arg, int lane, int index)
{
    const ph_pass *p = arg;
    const ph_config *c = &p->model->config;
    int count = patches_of(c), size = c->image_size, patch = c->patch_size;
    int side = size / patch, number = index % count;
    size_t plane = (size_t)size * (size_t)size;
    const float *from =
        p->batch.pixels + (size_t)(index / count) * (size_t)c->channels * plane +
        (size_t)(number / side * patch) * (size_t)size + (size_t)(number % side * patch);
    float *to = p->patches->x + (size_t)index * (size_t)width_of(c);
    (void)lane;
    for (int channel = 0; channel < c->channels; channel++, from += plane)
        for (int y = 0; y < patch; y++, to += patch)
            memcpy(to, from + (size_t)y * (size_t)size, (size_t)patch * sizeof *to);
}

ph_status ph_patches_forward(ph_pass *p)
{
    const ph_model *m = p->model;
    const ph_config *c = &m->config;
    int rows = p->shape.batch * patches_of(c);
    ph_gemm g = ph_product(rows, width_of(c), c->model_dim, p->patches->x,
                           ph_model_matrix(m, p->block, m->patches),
                           p->block + m->params[m->patches + 1].at, p->patches->rows);
    if (!p->batch.pixels)
        return ph_fail(m->ctx, PH_BAD_ARGUMENT, "pixels is NULL, expected pictures");
    ph_ctx_spread(m->ctx, rows, gather_item, p);
    return ph_model_multiply(m, &g, 1);
}

float *ph_patches_row(const ph_pass *p, int row)
{
    const ph_config *c = &p->model->config;
    int at = p->stacks[0].positions[row], picture = row / p->stacks[0].len;
    if (at < c->class_tokens) return NULL;
    size_t index =
        (size_t)picture * (size_t)patches_of(c) + (size_t)at - (size_t)c->class_tokens;
    return p->patches->rows + index * (size_t)c->model_dim;
}

/* After the gradient of the embeddings: dr holds that of every row. */
ph_status ph_patches_backward(ph_pass *p)
{
    const ph_model *m = p->model;
    const ph_config *c = &m->config;
    const ph_weight *w = &m->params[m->patches];
    int rows = p->shape.batch * patches_of(c), dim = c->model_dim;
    for (int r = 0; r < p->stacks[0].rows; r++) {
        float *d = ph_patches_row(p, r);
        if (d) memcpy(d, p->dr + (size_t)r * (size_t)dim, (size_t)dim * sizeof *d);
    }
    ph_gemm list[2] = {
        ph_product_dw(m, rows, width_of(c), dim, p->patches->x, p->patches->rows,
                      p->grads + w[0].at),
        ph_product_db(rows, dim, p->ones, p->patches->rows, p->grads + w[1].at)};
    return ph_model_multiply(m, list, 2);
}
