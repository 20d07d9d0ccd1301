/*
 * feed.c - a feed-forward sublayer of a pass: y = f(a w1 + b1) w2 + b2, and da from dy.
 */
#include <string.h>

#include "base/rng.h"
#include "kernels/kernels.h"
#include "model/pass.h"

enum { CHUNK = 16, PIECE = 256 }; /* rows of an item, columns at once */

typedef struct job {
    const ph_pass *p;
    const ph_side *side;
    const ph_act *act;
    int back;
    uint64_t stream; /* of dropout */
} job;

typedef struct weights {
    float *w1, *w2, *b1, *b2; /* biases may be NULL */
} weights;

static weights weights_of(const ph_model *m, const ph_sub *sub, float *block)
{
    const ph_weight *p = &m->params[sub->first];
    weights w = {.w1 = block + p[0].at, .w2 = block + p[1].at};
    if (!m->config.no_bias) w.b1 = block + p[2].at, w.b2 = block + p[3].at;
    return w;
}

/* ---- the activation ---------------------------------------------------------------- */

static const float *factors(const job *j, int row, int c, int n, float *room)
{
    const ph_model *m = j->p->model;
    float rate = j->p->shape.backward ? m->config.dropout : 0;
    if (rate == 0) return NULL;
    uint64_t key = ph_rng_key(j->p->seed, j->stream, (uint64_t)row, 0);
    m->ctx->kernels->dropout(n, room, key, (uint32_t)c, (uint32_t)(rate * 4294967296.0),
                             1.0f / (1.0f - rate));
    return room;
}

static void curve_piece(const job *j, int row, int c, int n)
{
    const ph_config *config = &j->p->model->config;
    const ph_spans *f = j->p->model->spans;
    size_t ff = (size_t)config->ff_dim, at = (size_t)row * ff + (size_t)c;
    float *h = j->act->h + (size_t)row * (size_t)ph_config_feed_wide(config) + c,
          *w = h + ff;
    float room[PIECE], dh[PIECE], dw[PIECE];
    const float *drop = factors(j, row, c, n, room);
    if (!j->back) {
        f->curve((ph_curve)config->activation, n, h, w, j->act->g + at);
        if (drop) f->times(n, j->act->g + at, drop);
        return;
    }
    if (drop) f->times(n, j->p->dg + at, drop);
    f->curve_back((ph_curve)config->activation, n, h, w, j->p->dg + at, dh, dw);
    memcpy(h, dh, (size_t)n * sizeof *h);
    if (config->activation == PH_SWIGLU) memcpy(w, dw, (size_t)n * sizeof *w);
}

static void curve_item(void *arg, int lane, int index)
{
    const job *j = arg;
    int ff = j->p->model->config.ff_dim;
    (void)lane;
    for (int r = index * CHUNK; r < ph_min((index + 1) * CHUNK, j->side->rows); r++)
        for (int c = 0; c < ff; c += PIECE) curve_piece(j, r, c, ph_min(PIECE, ff - c));
}

/* Forward: g from h. Backward: h becomes its gradient. */
static void curve(ph_pass *p, const ph_side *side, int sub, int back)
{
    job j = {.p = p, .side = side, .act = &side->acts[sub], .back = back};
    j.stream = ph_drop_stream(PH_DROP_FEED, side, sub);
    ph_ctx_spread(p->model->ctx, ph_div_up(side->rows, CHUNK), curve_item, &j);
}

/* ---- products ---------------------------------------------------------------------- */

ph_status ph_feed(ph_pass *p, int number, int sub)
{
    const ph_side *side = &p->sides[number];
    const ph_act *act = &side->acts[sub];
    const ph_config *c = &p->model->config;
    int wide = ph_config_feed_wide(c);
    weights w = weights_of(p->model, &side->stack->subs[sub], (float *)p->block);
    int rows = side->rows, dim = c->model_dim;
    ph_gemm first = ph_product(rows, dim, wide, act->a, w.w1, w.b1, act->h);
    ph_gemm second = ph_product(rows, c->ff_dim, dim, act->g, w.w2, w.b2, p->y);
    PH_TRY(ph_model_multiply(p->model, &first, 1));
    curve(p, side, sub, 0);
    return ph_model_multiply(p->model, &second, 1);
}

ph_status ph_feed_back(ph_pass *p, int number, int sub)
{
    const ph_side *side = &p->sides[number];
    const ph_act *act = &side->acts[sub];
    const ph_model *m = p->model;
    const ph_config *c = &m->config;
    int rows = side->rows, dim = c->model_dim, ff = c->ff_dim;
    int wide = ph_config_feed_wide(c);
    weights w = weights_of(m, &side->stack->subs[sub], (float *)p->block);
    weights d = weights_of(m, &side->stack->subs[sub], p->grads);
    ph_gemm second[3] = {ph_product_dx(m, rows, ff, dim, p->dy, w.w2, p->dg),
                         ph_product_dw(m, rows, ff, dim, act->g, p->dy, d.w2)};
    ph_gemm first[3] = {ph_product_dx(m, rows, dim, wide, act->h, w.w1, p->da),
                        ph_product_dw(m, rows, dim, wide, act->a, act->h, d.w1)};
    if (d.b2) second[2] = ph_product_db(rows, dim, p->ones, p->dy, d.b2);
    if (d.b1) first[2] = ph_product_db(rows, wide, p->ones, act->h, d.b1);
    PH_TRY(ph_model_multiply(m, second, d.b2 ? 3 : 2));
    curve(p, side, sub, 1);
    return ph_model_multiply(m, first, d.b1 ? 3 : 2);
}
