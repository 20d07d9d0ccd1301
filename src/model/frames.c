/*
 * frames.c - the rows of an encoder that reads features of sound: two convolutions of
 * three frames, of which the second takes every other one,
 *
 *     g1 = gelu(conv1(features))    rows = gelu(conv2(g1))
 *
 * Each is a product of gathered frames, channel by channel, with its matrix. Frames
 * before the first and after the last of a text are 0. Positions are added in residual.c,
 * as to tokens.
 */
#include <string.h>

#include "model/pass.h"

enum { TAPS = 3 };

void ph_frames_layout(ph_pass *p, ph_arena *arena)
{
    const ph_config *c = &p->model->config;
    size_t rows = (size_t)p->stacks[0].rows, dim = (size_t)c->model_dim;
    ph_frames *o = ph_arena_take(arena, sizeof *o), part = {0};
    part.x1 = ph_arena_floats(arena, 2 * rows * TAPS * (size_t)c->mels);
    part.h1 = ph_arena_floats(arena, 2 * rows * dim);
    part.g1 = ph_arena_floats(arena, 2 * rows * dim);
    part.x2 = ph_arena_floats(arena, rows * TAPS * dim);
    part.h2 = ph_arena_floats(arena, rows * dim);
    part.rows = ph_arena_floats(arena, rows * dim);
    if (p->shape.backward) {
        part.d1 = ph_arena_floats(arena, 2 * rows * dim);
        part.d2 = ph_arena_floats(arena, rows * dim);
    }
    p->frames = o;
    if (o) *o = part;
}

/* ---- where a frame is -------------------------------------------------------------- */

/* The text of a frame: its number of frames, and its first among those of all texts. */
typedef struct frame_text {
    int first, count;
} frame_text;

static frame_text text_of(const ph_pass *p, int row)
{
    const ph_pass_stack *s = &p->stacks[0];
    int b = s->places[row] / s->max_len;
    return (frame_text){2 * s->offsets[b], 2 * (s->offsets[b + 1] - s->offsets[b])};
}

/* ---- forward ----------------------------------------------------------------------- */

/* Three frames of the features around frame number `index` of all texts. */
static void gather_features(void *arg, int lane, int index)
{
    const ph_pass *p = arg;
    int mels = p->model->config.mels;
    frame_text text = text_of(p, index / 2);
    const float *from = p->batch.features + (size_t)text.first * (size_t)mels;
    float *to = p->frames->x1 + (size_t)index * TAPS * (size_t)mels;
    (void)lane;
    for (int channel = 0; channel < mels; channel++)
        for (int k = 0; k < TAPS; k++) {
            int at = index - text.first + k - 1;
            int inside = at >= 0 && at < text.count;
            *to++ = inside ? from[(size_t)channel * (size_t)text.count + (size_t)at] : 0;
        }
}

/* Three frames of g1 around frame 2 `row`. */
static void gather_frames(void *arg, int lane, int row)
{
    const ph_pass *p = arg;
    size_t dim = (size_t)p->model->config.model_dim;
    frame_text text = text_of(p, row);
    float *to = p->frames->x2 + (size_t)row * TAPS * dim;
    (void)lane;
    for (int k = 0; k < TAPS; k++) {
        int at = 2 * row + k - 1,
            inside = at >= text.first && at < text.first + text.count;
        const float *from = p->frames->g1 + (inside ? (size_t)at * dim : 0);
        for (size_t d = 0; d < dim; d++) to[d * TAPS + (size_t)k] = inside ? from[d] : 0;
    }
}

typedef struct gelu_job {
    const ph_model *m;
    const float *h, *dg; /* dg NULL: forward */
    float *out;
} gelu_job;

/* g from h, or dh from dg, of one row. */
static void gelu_row(void *arg, int lane, int row)
{
    const gelu_job *j = arg;
    int dim = j->m->config.model_dim;
    size_t at = (size_t)row * (size_t)dim;
    (void)lane;
    if (j->dg)
        j->m->spans->activation_backward(PH_SPAN_GELU_ERF, dim, j->h + at, NULL,
                                         j->dg + at, j->out + at, NULL);
    else
        j->m->spans->activation(PH_SPAN_GELU_ERF, dim, j->h + at, NULL, j->out + at);
}

/* h = x w + b, g = gelu(h), of convolution number 0 or 1. */
static ph_status convolve(ph_pass *p, int number, int rows, int in, const float *x,
                          float *h, float *g)
{
    const ph_model *m = p->model;
    int dim = m->config.model_dim, w = m->convolutions + 2 * number;
    ph_gemm product = ph_product(rows, in, dim, x, ph_model_matrix(m, p->block, w),
                                 p->block + m->params[w + 1].at, h);
    PH_TRY(ph_model_multiply(m, &product, 1));
    gelu_job gelu = {.m = m, .h = h, .out = g};
    ph_ctx_spread(m->ctx, rows, gelu_row, &gelu);
    return PH_OK;
}

ph_status ph_frames_forward(ph_pass *p)
{
    const ph_model *m = p->model;
    const ph_frames *f = p->frames;
    int rows = p->stacks[0].rows, dim = m->config.model_dim;
    if (!p->batch.features)
        return ph_fail(m->ctx, PH_BAD_ARGUMENT, "features is NULL, expected sound");
    ph_ctx_spread(m->ctx, 2 * rows, gather_features, p);
    PH_TRY(convolve(p, 0, 2 * rows, TAPS * m->config.mels, f->x1, f->h1, f->g1));
    ph_ctx_spread(m->ctx, rows, gather_frames, p);
    return convolve(p, 1, rows, TAPS * dim, f->x2, f->h2, f->rows);
}

/* ---- backward ---------------------------------------------------------------------- */

/* The gradient of g1, in its place, from that of gathered frames, which x2 holds. */
static void scatter_frame(void *arg, int lane, int index)
{
    const ph_pass *p = arg;
    int dim = p->model->config.model_dim;
    frame_text text = text_of(p, index / 2);
    const float *x = p->frames->x2;
    float *to = p->frames->g1 + (size_t)index * (size_t)dim;
    (void)lane;
    memset(to, 0, (size_t)dim * sizeof *to);
    for (int k = 0; k < TAPS; k++) {
        int twice = index + 1 - k, row = twice / 2;
        if (twice % 2 || twice < text.first || twice >= text.first + text.count) continue;
        for (int d = 0; d < dim; d++) to[d] += x[((size_t)row * dim + d) * TAPS + k];
    }
}

/* dh from dg, and the gradients of the matrix and its bias. */
static ph_status convolution_backward(ph_pass *p, int number, int rows, int in,
                                      const float *x, const float *h, const float *dg,
                                      float *dh)
{
    const ph_model *m = p->model;
    const ph_weight *w = &m->params[m->convolutions + 2 * number];
    int dim = m->config.model_dim;
    gelu_job gelu = {.m = m, .h = h, .dg = dg, .out = dh};
    ph_ctx_spread(m->ctx, rows, gelu_row, &gelu);
    ph_gemm list[2] = {ph_product_dw(m, rows, in, dim, x, dh, p->grads + w[0].at),
                       ph_product_db(rows, dim, p->ones, dh, p->grads + w[1].at)};
    return ph_model_multiply(m, list, 2);
}

/* After the gradient of the embeddings: dr holds that of every row. */
ph_status ph_frames_backward(ph_pass *p)
{
    const ph_model *m = p->model;
    const ph_frames *f = p->frames;
    const ph_weight *w2 = &m->params[m->convolutions + 2];
    int rows = p->stacks[0].rows, dim = m->config.model_dim;
    PH_TRY(convolution_backward(p, 1, rows, TAPS * dim, f->x2, f->h2, p->dr, f->d2));
    ph_gemm dx = ph_product_dx(m, rows, TAPS * dim, dim, f->d2,
                               ph_matrix_of(p->block + w2->at), f->x2);
    PH_TRY(ph_model_multiply(m, &dx, 1));
    ph_ctx_spread(m->ctx, 2 * rows, scatter_frame, p);
    return convolution_backward(p, 0, 2 * rows, TAPS * m->config.mels, f->x1, f->h1,
                                f->g1, f->d1);
}
