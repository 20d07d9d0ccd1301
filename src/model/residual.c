/*
 * residual.c - what happens to rows between products: embeddings, joins, norms, and back.
 *
 * Rows are handed out in chunks of CHUNK, a matter of shape alone. Sums over rows (gains
 * and shifts of norms) are made per chunk and then added in the order of the chunks;
 * gradients of embeddings are summed by whoever owns the columns, token after token.
 * Dropout is not stored: factors are made again from (seed, sublayer, row, column).
 */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "kernels/kernels.h"
#include "model/pass.h"

enum { CHUNK = PH_ROWS_CHUNK, PIECE = 512, OWN = 64 }; /* columns at once, and owned */

typedef struct job {
    const ph_pass *p;
    const ph_side *side;
    const ph_join *join;
    int sub;         /* -1: the entry */
    int first;       /* backward: 1: nothing is in dr yet */
    const float *r;  /* what the sublayer was added to */
    uint64_t stream; /* of dropout */
} job;

static int chunks(const ph_side *side)
{
    return ph_div_up(side->rows, CHUNK);
}

static const float *param(const ph_pass *p, int index)
{
    return index < 0 ? NULL : p->block + p->model->params[index].at;
}

/* ---- dropout ----------------------------------------------------------------------- */

float ph_drop_rate(const ph_pass *p)
{
    return p->shape.backward ? p->model->config.dropout : 0;
}

const float *ph_drop_factors(const ph_pass *p, uint64_t stream, int row, int c, int n,
                             float *room)
{
    float rate = ph_drop_rate(p);
    if (rate == 0) return NULL;
    uint64_t key = ph_rng_key(p->seed, stream, (uint64_t)row, 0);
    uint32_t limit = (uint32_t)(rate * 4294967296.0);
    p->model->ctx->kernels->dropout(n, room, key, (uint32_t)c, limit,
                                    1.0f / (1.0f - rate));
    return room;
}

/* ---- forward ----------------------------------------------------------------------- */

/* The word of a row at its place. */
static void embed_row(const job *j, int row)
{
    const ph_pass *p = j->p;
    const ph_model *m = p->model;
    int dim = m->config.model_dim, at = row % j->side->len;
    if (p->past) at += p->past[row / j->side->len];
    const int32_t *tokens = j->side->stack->decoder ? p->batch.target : p->batch.source;
    const float *word = param(p, m->embed) + (size_t)tokens[row] * (size_t)dim;
    const float *place = param(p, j->side->stack->positions);
    float *out = j->join->s + (size_t)row * (size_t)dim, room[PIECE];
    if (!place) place = p->sinusoids;
    m->spans->scaled(dim, sqrtf((float)dim), word, out);
    if (place) m->spans->add(dim, out, place + (size_t)at * (size_t)dim);
    for (int c = 0; c < dim; c += PIECE) {
        int n = ph_min(PIECE, dim - c);
        const float *f = ph_drop_factors(j->p, j->stream, row, c, n, room);
        if (f) m->spans->times(n, out + c, f);
    }
}

static void norm_row(const job *j, int row, int gain, int shift)
{
    const ph_model *m = j->p->model;
    size_t dim = (size_t)m->config.model_dim, at = (size_t)row * dim;
    m->spans->norm((int)dim, j->join->s + at, param(j->p, gain), param(j->p, shift),
                   1e-5f, m->config.norm == PH_NORM_RMS, j->join->n + at,
                   j->join->stats + 2 * (size_t)row);
}

static void embed_item(void *arg, int lane, int index)
{
    const job *j = arg;
    const ph_model_stack *s = j->side->stack;
    (void)lane;
    for (int r = index * CHUNK; r < ph_min((index + 1) * CHUNK, j->side->rows); r++) {
        embed_row(j, r);
        if (s->gain >= 0) norm_row(j, r, s->gain, s->shift);
    }
}

void ph_rows_embed(const ph_pass *p, const ph_side *side)
{
    job j = {.p = p, .side = side, .join = &side->entry, .sub = -1};
    j.stream = ph_drop_stream(PH_DROP_EMBED, side, 0);
    ph_ctx_spread(p->model->ctx, chunks(side), embed_item, &j);
}

static void join_row(const job *j, int row)
{
    const ph_model *m = j->p->model;
    const ph_sub *sub = &j->side->stack->subs[j->sub];
    int dim = m->config.model_dim;
    size_t at = (size_t)row * (size_t)dim;
    float room[PIECE];
    for (int c = 0; c < dim; c += PIECE) {
        int n = ph_min(PIECE, dim - c);
        m->spans->join(n, j->r + at + c, j->p->y + at + c,
                       ph_drop_factors(j->p, j->stream, row, c, n, room),
                       j->join->s + at + c);
    }
    norm_row(j, row, sub->gain, sub->shift);
}

static void join_item(void *arg, int lane, int index)
{
    const job *j = arg;
    (void)lane;
    for (int r = index * CHUNK; r < ph_min((index + 1) * CHUNK, j->side->rows); r++)
        join_row(j, r);
}

/* The join before sublayer `sub`. */
static const ph_join *before(const ph_side *side, int sub)
{
    return sub ? &side->acts[sub - 1].join : &side->entry;
}

void ph_rows_join(const ph_pass *p, const ph_side *side, int sub)
{
    const ph_join *old = before(side, sub);
    int after = p->model->config.norm_place == PH_POST_NORM && sub > 0;
    job j = {.p = p, .side = side, .join = &side->acts[sub].join, .sub = sub};
    j.r = after ? old->n : old->s;
    j.stream = ph_drop_stream(PH_DROP_JOIN, side, sub);
    ph_ctx_spread(p->model->ctx, chunks(side), join_item, &j);
}

/* ---- backward ---------------------------------------------------------------------- */

/* dr becomes the gradient of s; dy that of what the sublayer gave. */
static void norm_back_row(const job *j, int lane, int row, int gain, float *sums)
{
    const ph_pass *p = j->p;
    const ph_model *m = p->model;
    const ph_spans *f = m->spans;
    int dim = m->config.model_dim, rms = m->config.norm == PH_NORM_RMS;
    int after = m->config.norm_place == PH_POST_NORM;
    size_t at = (size_t)row * (size_t)dim;
    float *dr = p->dr + at, *da = p->da + at, *room = p->lanes + (size_t)lane * dim;
    if (after && !j->first) f->add(dim, da, dr);
    f->norm_back(dim, da, j->join->s + at, j->join->stats + 2 * (size_t)row,
                 param(p, gain), rms, room, sums, sums + dim);
    if (!after && !j->first)
        f->add(dim, dr, room);
    else
        memcpy(dr, room, (size_t)dim * sizeof *dr);
}

static void drop_back_row(const job *j, int row)
{
    int dim = j->p->model->config.model_dim;
    size_t at = (size_t)row * (size_t)dim;
    float room[PIECE];
    for (int c = 0; c < dim && ph_drop_rate(j->p) > 0; c += PIECE) {
        int n = ph_min(PIECE, dim - c);
        const float *f = ph_drop_factors(j->p, j->stream, row, c, n, room);
        memcpy(j->p->dy + at + c, j->p->dr + at + c, (size_t)n * sizeof *room);
        j->p->model->spans->times(n, j->p->dy + at + c, f);
    }
}

static void back_item(void *arg, int lane, int index)
{
    const job *j = arg;
    const ph_model_stack *s = j->side->stack;
    int dim = j->p->model->config.model_dim;
    int gain = j->sub < 0 ? s->gain : s->subs[j->sub].gain;
    float *sums = j->p->sums + (size_t)index * 2 * (size_t)dim;
    memset(sums, 0, 2 * (size_t)dim * sizeof *sums);
    for (int r = index * CHUNK; r < ph_min((index + 1) * CHUNK, j->side->rows); r++) {
        norm_back_row(j, lane, r, gain, sums);
        if (j->sub >= 0) drop_back_row(j, r);
    }
}

/* Adds the sums of the chunks in order. */
static void add_sums(const ph_pass *p, const ph_side *side, int gain, int shift)
{
    const ph_model *m = p->model;
    int dim = m->config.model_dim, count = chunks(side);
    float *to[2] = {p->grads + m->params[gain].at, NULL};
    if (shift >= 0) to[1] = p->grads + m->params[shift].at;
    for (int i = 0; i < 2; i++) {
        if (!to[i]) continue;
        memcpy(to[i], p->sums + (size_t)i * dim, (size_t)dim * sizeof(float));
        for (int c = 1; c < count; c++)
            m->spans->add(dim, to[i], p->sums + ((size_t)c * 2 + (size_t)i) * dim);
    }
}

void ph_rows_join_back(const ph_pass *p, const ph_side *side, int sub, int first)
{
    const ph_sub *s = &side->stack->subs[sub];
    job j = {.p = p, .side = side, .join = &side->acts[sub].join, .sub = sub};
    j.first = first;
    j.stream = ph_drop_stream(PH_DROP_JOIN, side, sub);
    ph_ctx_spread(p->model->ctx, chunks(side), back_item, &j);
    add_sums(p, side, s->gain, s->shift);
}

/* dr becomes the gradient of the embeddings. */
void ph_rows_entry_back(const ph_pass *p, const ph_side *side)
{
    const ph_model_stack *s = side->stack;
    job j = {.p = p, .side = side, .join = &side->entry, .sub = -1};
    size_t count = (size_t)side->rows * (size_t)p->model->config.model_dim;
    if (s->gain < 0) {
        ph_rows_add(p, count, p->dr, p->da);
        return;
    }
    ph_ctx_spread(p->model->ctx, chunks(side), back_item, &j);
    add_sums(p, side, s->gain, s->shift);
}

/* ---- embeddings, back -------------------------------------------------------------- */

/* Columns [c, c + OWN) of the gradients of words and positions. */
static void embed_back_item(void *arg, int lane, int index)
{
    const job *j = arg;
    const ph_pass *p = j->p;
    const ph_model *m = p->model;
    size_t dim = (size_t)m->config.model_dim;
    int c = index * OWN, n = ph_min(OWN, (int)dim - c),
        places = j->side->stack->positions;
    const int32_t *tokens = j->side->stack->decoder ? p->batch.target : p->batch.source;
    float scale = sqrtf((float)dim), room[OWN];
    float *dword = p->grads + m->params[m->embed].at + c;
    float *dplace = places < 0 ? NULL : p->grads + m->params[places].at + c;
    (void)lane;
    for (int l = 0; dplace && l < m->config.max_len; l++)
        memset(dplace + (size_t)l * dim, 0, (size_t)n * sizeof *dplace);
    for (int r = 0; r < j->side->rows; r++) {
        float *d = p->dr + (size_t)r * dim + c;
        const float *f = ph_drop_factors(j->p, j->stream, r, c, n, room);
        if (f) m->spans->times(n, d, f);
        m->spans->add_scaled(n, scale, d, dword + (size_t)tokens[r] * dim);
        if (dplace) m->spans->add(n, dplace + (size_t)(r % j->side->len) * dim, d);
    }
}

void ph_rows_embed_back(const ph_pass *p, const ph_side *side)
{
    job j = {.p = p, .side = side, .join = &side->entry, .sub = -1};
    j.stream = ph_drop_stream(PH_DROP_EMBED, side, 0);
    ph_ctx_spread(p->model->ctx, ph_div_up(p->model->config.model_dim, OWN),
                  embed_back_item, &j);
}

/* ---- sums -------------------------------------------------------------------------- */

typedef struct sum_job {
    const ph_spans *spans;
    size_t count;
    float *y;
    const float *x;
} sum_job;

enum { STRETCH = 8192 };

static void add_item(void *arg, int lane, int index)
{
    const sum_job *j = arg;
    size_t first = (size_t)index * STRETCH, left = j->count - first;
    (void)lane;
    j->spans->add(left < STRETCH ? (int)left : STRETCH, j->y + first, j->x + first);
}

void ph_rows_add(const ph_pass *p, size_t count, float *y, const float *x)
{
    sum_job j = {p->model->spans, count, y, x};
    int items = (int)((count + STRETCH - 1) / STRETCH);
    ph_ctx_spread(p->model->ctx, items, add_item, &j);
}
