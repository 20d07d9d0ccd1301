/*
 * residual.c - embeddings, residual connections and norms, forward and backward.
 *
 * A work item is a chunk of CHUNK rows, whatever the number of threads. Sums over rows
 * (gradients of gains and shifts) are taken per chunk and reduced in the order of the
 * chunks; for gradients of embeddings an item owns columns and goes through all tokens.
 * Dropout factors are recomputed from (seed, sublayer, row, column), not stored.
 */
#include <string.h>

#include "base/rng.h"
#include "kernels/kernels.h"
#include "model/pass.h"

enum { CHUNK = PH_RESIDUAL_ROWS, PIECE = 512, OWN = 64 }; /* columns at once, and owned */

typedef struct residual_job {
    const ph_pass *p;
    const ph_pass_stack *stack;
    const ph_residual *residual;
    const float *x;  /* input of the norm: residual->s, or the stream before the layer */
    int sublayer;    /* -1: none, a norm alone */
    int gain, shift; /* parameters of the norm; gain -1: none */
    int dim;         /* columns */
    int first;       /* backward: 1: dr is not set yet */
    int post;        /* backward: 1: a norm of a sublayer's output */
    const float *r;  /* the residual stream before the sublayer */
    uint64_t stream; /* of dropout */
} residual_job;

static int chunks(const ph_pass_stack *stack)
{
    return ph_div_up(stack->rows, CHUNK);
}

static const float *param(const ph_pass *p, int index)
{
    return index < 0 ? NULL : p->block + p->model->params[index].at;
}

/* ---- dropout ----------------------------------------------------------------------- */

float ph_dropout_rate(const ph_pass *p)
{
    int drops = p->shape.backward && !p->shape.no_dropout;
    return drops ? p->model->config.dropout : 0;
}

const float *ph_dropout_factors(const ph_pass *p, uint64_t stream, int place, int c,
                                int n, float *scratch)
{
    float rate = ph_dropout_rate(p);
    if (rate == 0) return NULL;
    uint64_t key = ph_rng_key(p->seed, stream, (uint64_t)place, 0);
    uint32_t limit = (uint32_t)(rate * 4294967296.0);
    p->model->ctx->kernels->dropout(n, scratch, key, (uint32_t)c, limit,
                                    1.0f / (1.0f - rate));
    return scratch;
}

/* ---- forward ----------------------------------------------------------------------- */

static int type_of(const residual_job *j, int row)
{
    return j->p->batch.types ? j->p->batch.types[row] : 0;
}

/* What a row is before its position: a token's embedding, frames of sound, a class token
   or a patch. */
static void content_row(const residual_job *j, int row, float *out)
{
    const ph_pass *p = j->p;
    const ph_model *m = p->model;
    const int32_t *tokens = j->stack->def->decoder ? p->batch.target : p->batch.source;
    const float *patch = p->patches ? ph_patches_row(p, row) : NULL;
    if (ph_reads_tokens(p, j->stack))
        ph_model_row(m, p->block, m->embed, tokens[row], out);
    else if (p->frames)
        memcpy(out, p->frames->rows + (size_t)row * (size_t)m->config.model_dim,
               (size_t)m->config.model_dim * sizeof *out);
    else if (patch)
        memcpy(out, patch, (size_t)m->config.model_dim * sizeof *out);
    else
        ph_model_row(m, p->block, m->class_tokens + j->stack->positions[row], 0, out);
}

/* Content, position and type of a row. */
static void embed_row(const residual_job *j, int row)
{
    const ph_pass *p = j->p;
    const ph_model *m = p->model;
    int dim = j->dim;
    const float *position = param(p, j->stack->def->positions);
    const float *type = param(p, j->stack->def->types);
    float *out = j->residual->s + (size_t)row * (size_t)dim, scratch[PIECE];
    if (!position) position = p->sinusoids;
    content_row(j, row, out);
    if (ph_reads_tokens(p, j->stack))
        m->spans->scaled(dim, m->config.embed_scale, out, out);
    if (type) m->spans->add(dim, out, type + (size_t)type_of(j, row) * (size_t)dim);
    if (position)
        m->spans->add(dim, out,
                      position + (size_t)j->stack->position_rows[row] * (size_t)dim);
    for (int c = 0; c < dim; c += PIECE) {
        int n = ph_min(PIECE, dim - c);
        const float *f =
            ph_dropout_factors(j->p, j->stream, j->stack->places[row], c, n, scratch);
        if (f) m->spans->times(n, out + c, f);
    }
}

static void norm_row(const residual_job *j, int row)
{
    const ph_model *m = j->p->model;
    size_t dim = (size_t)j->dim, at = (size_t)row * dim;
    m->spans->norm((int)dim, j->x + at, param(j->p, j->gain),
                   param(j->p, j->shift), m->config.norm_eps,
                   m->config.norm == PH_NORM_RMS, j->residual->n + at,
                   j->residual->stats + 2 * (size_t)row);
}

static void embed_item(void *arg, int lane, int index)
{
    const residual_job *j = arg;
    (void)lane;
    for (int r = index * CHUNK; r < ph_min((index + 1) * CHUNK, j->stack->rows); r++) {
        embed_row(j, r);
        if (j->gain >= 0) norm_row(j, r);
    }
}

static residual_job norm_job(const ph_pass *p, const ph_pass_stack *stack,
                             const ph_residual *norm, int gain, int shift)
{
    residual_job j = {.p = p, .stack = stack, .residual = norm, .sublayer = -1};
    j.gain = gain, j.shift = shift, j.x = norm->s;
    j.dim = gain >= 0 ? p->model->params[gain].dims[0] : p->model->config.model_dim;
    return j;
}

static residual_job entry_job(const ph_pass *p, const ph_pass_stack *stack)
{
    const ph_model_stack *def = stack->def;
    const ph_residual *to = def->projection < 0 ? &stack->entry : &stack->embedded;
    return norm_job(p, stack, to, def->gain, def->shift);
}

ph_status ph_embed_forward(const ph_pass *p, const ph_pass_stack *stack)
{
    const ph_model *m = p->model;
    residual_job j = entry_job(p, stack);
    int w = stack->def->projection;
    j.stream = ph_dropout_stream(PH_DROPOUT_EMBED, stack, 0);
    ph_ctx_spread(m->ctx, chunks(stack), embed_item, &j);
    if (w < 0) return PH_OK;
    ph_gemm g = ph_product(stack->rows, j.dim, m->config.model_dim, stack->embedded.n,
                           ph_model_matrix(m, p->block, w), param(p, w + 1),
                           stack->entry.s);
    return ph_model_multiply(m, &g, 1);
}

static void norm_item(void *arg, int lane, int index)
{
    const residual_job *j = arg;
    (void)lane;
    for (int r = index * CHUNK; r < ph_min((index + 1) * CHUNK, j->stack->rows); r++)
        norm_row(j, r);
}

void ph_norm_forward(const ph_pass *p, const ph_pass_stack *stack,
                     const ph_residual *norm, int gain, int shift)
{
    residual_job j = norm_job(p, stack, norm, gain, shift);
    ph_ctx_spread(p->model->ctx, chunks(stack), norm_item, &j);
}

/* Row of the sublayer's output, or of its norm in a sandwich. */
static const float *output_row(const residual_job *j, int row)
{
    const ph_pass *p = j->p;
    size_t dim = (size_t)p->model->config.model_dim, at = (size_t)row * dim;
    const ph_sublayer *s = &j->stack->def->sublayers[j->sublayer];
    const ph_residual *post = &j->stack->acts[j->sublayer].post;
    if (s->post_gain < 0) return p->y + at;
    memcpy(post->s + at, p->y + at, dim * sizeof *post->s);
    residual_job norm = norm_job(p, j->stack, post, s->post_gain, s->post_shift);
    norm_row(&norm, row);
    return post->n + at;
}

static void residual_row(const residual_job *j, int row)
{
    const ph_model *m = j->p->model;
    int dim = m->config.model_dim;
    size_t at = (size_t)row * (size_t)dim;
    const float *y = output_row(j, row);
    float scratch[PIECE];
    for (int c = 0; c < dim; c += PIECE) {
        int n = ph_min(PIECE, dim - c);
        m->spans->add_residual(
            n, j->r + at + c, y + c,
            ph_dropout_factors(j->p, j->stream, j->stack->places[row], c, n, scratch),
            j->residual->s + at + c);
    }
    if (j->gain >= 0) norm_row(j, row);
}

static void residual_item(void *arg, int lane, int index)
{
    const residual_job *j = arg;
    (void)lane;
    for (int r = index * CHUNK; r < ph_min((index + 1) * CHUNK, j->stack->rows); r++)
        residual_row(j, r);
}

/* The residual connection before a sublayer. */
static const ph_residual *before(const ph_pass_stack *stack, int sublayer)
{
    return sublayer ? &stack->acts[sublayer - 1].residual : &stack->entry;
}

static residual_job residual_job_of(const ph_pass *p, const ph_pass_stack *stack,
                                    int sublayer)
{
    const ph_sublayer *s = &stack->def->sublayers[sublayer];
    residual_job j =
        norm_job(p, stack, &stack->acts[sublayer].residual, s->gain, s->shift);
    j.sublayer = sublayer;
    j.stream = ph_dropout_stream(PH_DROPOUT_RESIDUAL, stack, sublayer);
    if (p->model->config.parallel && s->kind != PH_SUBLAYER_FEED)
        j.x = before(stack, sublayer)->s;
    return j;
}

void ph_residual_forward(const ph_pass *p, const ph_pass_stack *stack, int sublayer)
{
    const ph_residual *old = before(stack, sublayer);
    const ph_config *c = &p->model->config;
    int after = sublayer ? c->norm_place == PH_POST_NORM
                         : c->embed_norm && ph_stack_normed(stack->def);
    residual_job j = residual_job_of(p, stack, sublayer);
    j.r = after ? old->n : old->s;
    ph_ctx_spread(p->model->ctx, chunks(stack), residual_item, &j);
}

/* ---- backward ---------------------------------------------------------------------- */

/* dr becomes the gradient of s; dy that of the sublayer's output. */
static void norm_backward_row(const residual_job *j, int lane, int row, float *sums)
{
    const ph_pass *p = j->p;
    const ph_model *m = p->model;
    const ph_spans *f = m->spans;
    int dim = j->dim, rms = m->config.norm == PH_NORM_RMS;
    /* the stream goes on from a norm of the embeddings, wherever the others are */
    int entry = j->sublayer < 0 && m->config.embed_norm;
    int after = m->config.norm_place == PH_POST_NORM || entry;
    size_t at = (size_t)row * (size_t)dim;
    float *dr = p->dr + at, *da = p->da + at, *scratch = p->lanes + (size_t)lane * dim;
    if (j->gain < 0) {
        f->add(dim, dr, da);
        return;
    }
    if (after && !j->first) f->add(dim, da, dr);
    f->norm_backward(dim, da, j->x + at, j->residual->stats + 2 * (size_t)row,
                     param(p, j->gain), rms, scratch, sums, sums + dim);
    if (!after && !j->first)
        f->add(dim, dr, scratch);
    else
        memcpy(dr, scratch, (size_t)dim * sizeof *dr);
}

static void dropout_backward_row(const residual_job *j, int row)
{
    int dim = j->p->model->config.model_dim;
    size_t at = (size_t)row * (size_t)dim;
    float scratch[PIECE];
    for (int c = 0; c < dim && j->p->dy != j->p->dr; c += PIECE) {
        int n = ph_min(PIECE, dim - c);
        const float *f =
            ph_dropout_factors(j->p, j->stream, j->stack->places[row], c, n, scratch);
        memcpy(j->p->dy + at + c, j->p->dr + at + c, (size_t)n * sizeof *scratch);
        if (f) j->p->model->spans->times(n, j->p->dy + at + c, f);
    }
}

/* Chunks of places, not of rows: a sum has the same order whatever the lengths of the
   texts, as if they were padded. */
static int place_chunks(const residual_job *j)
{
    return ph_div_up(j->p->shape.batch * j->stack->max_len, CHUNK);
}

/* The row of a place, or -1. */
static int row_at(const residual_job *j, int place)
{
    int b = place / j->stack->max_len, t = place % j->stack->max_len;
    const int32_t *offsets = j->stack->offsets;
    if (b >= j->p->shape.batch || t >= offsets[b + 1] - offsets[b]) return -1;
    return offsets[b] + t;
}

/* dy, the gradient of the norm of a sublayer's output, becomes that of the output. */
static void post_backward_row(const residual_job *j, int lane, int row, float *sums)
{
    const ph_pass *p = j->p;
    const ph_config *c = &p->model->config;
    size_t dim = (size_t)c->model_dim, at = (size_t)row * dim;
    float *dy = p->dy + at, *scratch = p->lanes + (size_t)lane * dim;
    p->model->spans->norm_backward(
        (int)dim, dy, j->residual->s + at, j->residual->stats + 2 * (size_t)row,
        param(p, j->gain), c->norm == PH_NORM_RMS, scratch, sums, sums + dim);
    memcpy(dy, scratch, dim * sizeof *dy);
}

static void backward_item(void *arg, int lane, int index)
{
    const residual_job *j = arg;
    int dim = j->dim;
    float *sums = j->p->sums + (size_t)index * 2 * (size_t)dim;
    memset(sums, 0, 2 * (size_t)dim * sizeof *sums);
    for (int place = index * CHUNK; place < (index + 1) * CHUNK; place++) {
        int r = row_at(j, place);
        if (r < 0) continue;
        if (j->post) {
            post_backward_row(j, lane, r, sums);
            continue;
        }
        /* a norm of the stream before the layer adds nothing to the gradient of s */
        int apart = j->x != j->residual->s;
        if (apart) dropout_backward_row(j, r);
        norm_backward_row(j, lane, r, sums);
        if (j->sublayer >= 0 && !apart) dropout_backward_row(j, r);
    }
}

/* Reduces the partial sums of the chunks in order. */
static void add_sums(const residual_job *j)
{
    const ph_pass *p = j->p;
    const ph_model *m = p->model;
    int dim = j->dim, count = place_chunks(j);
    float *to[2] = {p->grads + m->params[j->gain].at, NULL};
    if (j->shift >= 0) to[1] = p->grads + m->params[j->shift].at;
    for (int i = 0; i < 2; i++) {
        if (!to[i]) continue;
        memcpy(to[i], p->sums + (size_t)i * dim, (size_t)dim * sizeof(float));
        for (int c = 1; c < count; c++)
            m->spans->add(dim, to[i], p->sums + ((size_t)c * 2 + (size_t)i) * dim);
    }
}

static void backward_job(residual_job *j)
{
    ph_ctx_spread(j->p->model->ctx, place_chunks(j), backward_item, j);
    if (j->gain >= 0) add_sums(j);
}

void ph_residual_backward(const ph_pass *p, const ph_pass_stack *stack, int sublayer,
                          int first)
{
    residual_job j = residual_job_of(p, stack, sublayer);
    j.first = first;
    backward_job(&j);
    const ph_sublayer *s = &stack->def->sublayers[sublayer];
    if (s->post_gain < 0) return;
    residual_job post =
        norm_job(p, stack, &stack->acts[sublayer].post, s->post_gain, s->post_shift);
    post.post = 1;
    backward_job(&post);
}

void ph_norm_backward(const ph_pass *p, const ph_pass_stack *stack,
                      const ph_residual *norm, int gain, int shift)
{
    residual_job j = norm_job(p, stack, norm, gain, shift);
    j.first = 1;
    backward_job(&j);
}

/* dr, that of the projection, gives its gradients, and da that of its input. */
static ph_status projection_backward(const ph_pass *p, const ph_pass_stack *stack)
{
    const ph_model *m = p->model;
    const ph_weight *w = &m->params[stack->def->projection];
    int rows = stack->rows, in = w->dims[0], out = w->dims[1];
    ph_gemm list[3] = {
        ph_product_dx(m, rows, in, out, p->dr, ph_matrix_of(p->block + w[0].at), p->da),
        ph_product_dw(m, rows, in, out, stack->embedded.n, p->dr, p->grads + w[0].at),
        ph_product_db(rows, out, p->ones, p->dr, p->grads + w[1].at)};
    return ph_model_multiply(m, list, 3);
}

/* dr becomes the gradient of the embeddings. */
ph_status ph_entry_backward(const ph_pass *p, const ph_pass_stack *stack)
{
    residual_job j = entry_job(p, stack);
    size_t count = (size_t)stack->rows * (size_t)p->model->config.model_dim;
    if (!ph_stack_normed(stack->def)) ph_pass_add(p, count, p->dr, p->da);
    if (stack->def->projection >= 0) {
        PH_TRY(projection_backward(p, stack));
        j.first = 1;
    }
    if (j.gain >= 0) backward_job(&j);
    return PH_OK;
}

/* ---- embeddings, backward ---------------------------------------------------------- */

/* Columns [c, c + n) of the gradient of a table, cleared; NULL: there is none. */
static float *clear_table(const ph_pass *p, int index, int c, int n)
{
    if (index < 0) return NULL;
    const ph_weight *w = &p->model->params[index];
    float *d = p->grads + w->at + c;
    for (int r = 0; r < w->dims[0]; r++)
        memset(d + (size_t)r * (size_t)w->dims[1], 0, (size_t)n * sizeof *d);
    return d;
}

static float *class_grad(const ph_pass *p, int token)
{
    return p->grads + p->model->params[p->model->class_tokens + token].at;
}

/* Columns [c, c + OWN) of the gradients of words, positions and types. */
static void embed_backward_item(void *arg, int lane, int index)
{
    const residual_job *j = arg;
    const ph_pass *p = j->p;
    const ph_model *m = p->model;
    size_t dim = (size_t)j->dim;
    int c = index * OWN, n = ph_min(OWN, (int)dim - c);
    const int32_t *tokens = j->stack->def->decoder ? p->batch.target : p->batch.source;
    float scale = m->config.embed_scale, scratch[OWN];
    float *dembedding =
        !ph_reads_tokens(p, j->stack) ? NULL : p->grads + m->params[m->embed].at + c;
    float *dposition = clear_table(p, j->stack->def->positions, c, n);
    float *dtype = clear_table(p, j->stack->def->types, c, n);
    (void)lane;
    for (int i = 0; i < m->config.class_tokens; i++)
        memset(class_grad(p, i) + c, 0, (size_t)n * sizeof *dtype);
    for (int r = 0; r < j->stack->rows; r++) {
        float *d = p->dr + (size_t)r * dim + c;
        const float *f =
            ph_dropout_factors(j->p, j->stream, j->stack->places[r], c, n, scratch);
        if (f) m->spans->times(n, d, f);
        if (dembedding)
            m->spans->add_scaled(n, scale, d, dembedding + (size_t)tokens[r] * dim);
        if (j->stack->positions[r] < m->config.class_tokens)
            m->spans->add(n, class_grad(p, j->stack->positions[r]) + c, d);
        if (dposition)
            m->spans->add(n, dposition + (size_t)j->stack->position_rows[r] * dim, d);
        if (dtype) m->spans->add(n, dtype + (size_t)type_of(j, r) * dim, d);
    }
}

void ph_embed_backward(const ph_pass *p, const ph_pass_stack *stack)
{
    residual_job j = entry_job(p, stack);
    j.stream = ph_dropout_stream(PH_DROPOUT_EMBED, stack, 0);
    ph_ctx_spread(p->model->ctx, ph_div_up(j.dim, OWN),
                  embed_backward_item, &j);
}

/* ---- sums -------------------------------------------------------------------------- */

typedef struct sum_job {
    const ph_spans *spans;
    size_t count;
    float *y;
    const float *x;
} sum_job;

enum { FLOATS = 8192 }; /* of one work item */

static void add_item(void *arg, int lane, int index)
{
    const sum_job *j = arg;
    size_t first = (size_t)index * FLOATS, left = j->count - first;
    (void)lane;
    j->spans->add(left < FLOATS ? (int)left : FLOATS, j->y + first, j->x + first);
}

void ph_pass_add(const ph_pass *p, size_t count, float *y, const float *x)
{
    sum_job j = {p->model->spans, count, y, x};
    int items = (int)((count + FLOATS - 1) / FLOATS);
    ph_ctx_spread(p->model->ctx, items, add_item, &j);
}
