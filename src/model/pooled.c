/*
 * pooled.c - one vector for a text, and scores of classes:
 *
 *     v = pool(tokens)    v = norm(f(v w + b))    v = v / |v|    scores = v w + b
 *
 * each where the configuration has it. Without pooling every token is a v.
 * Distilled: scores = (v w + b + v' w' + b') / 2, where v' is the second row.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "model/pass.h"

static int vectors_of(const ph_pass *p)
{
    return p->model->config.pooling ? p->shape.batch : p->stacks[0].rows;
}

static int has_max(const ph_config *c)
{
    int found = 0;
    for (int i = 0; i < ph_config_poolings(c); i++)
        found |= ph_config_pooling(c, i) == PH_POOL_MAX;
    return found;
}

static void layout_pooler(const ph_pass *p, ph_arena *arena, size_t vectors,
                          ph_pooled *part)
{
    const ph_config *c = &p->model->config;
    size_t pooled = (size_t)p->shape.batch * (size_t)ph_config_pooled_dim(c);
    part->out = ph_arena_floats(arena, vectors);
    if (p->shape.backward)
        part->dsum = c->pooling ? ph_arena_floats(arena, pooled) : p->da;
    if (c->pooler == PH_POOLER_GELU) {
        part->h = ph_arena_floats(arena, vectors);
        if (p->shape.backward) part->dh = ph_arena_floats(arena, vectors);
    }
    if (!c->pooler_norm) return;
    part->f = ph_arena_floats(arena, vectors);
    part->stats = ph_arena_floats(arena, 2 * (size_t)vectors_of(p));
}

void ph_pooled_layout(ph_pass *p, ph_arena *arena)
{
    const ph_config *c = &p->model->config;
    size_t floats = (size_t)p->shape.batch * (size_t)c->model_dim;
    size_t pooled = (size_t)p->shape.batch * (size_t)ph_config_pooled_dim(c);
    size_t vectors = (size_t)vectors_of(p) * (size_t)ph_config_vector_dim(c);
    ph_pooled *o = ph_arena_take(arena, sizeof *o), part = {0};
    if (c->pooling) {
        part.sum = part.out = ph_arena_floats(arena, pooled);
        part.norm = ph_arena_floats(arena, (size_t)p->shape.batch);
        if (has_max(c)) part.origin = ph_arena_take(arena, pooled * sizeof *part.origin);
    }
    part.scores = ph_arena_floats(arena, (size_t)vectors_of(p) * (size_t)c->classes);
    if (p->shape.backward && vectors) {
        part.dout = part.dsum = ph_arena_floats(arena, vectors);
        part.row = ph_arena_floats(arena, (size_t)ph_config_vector_dim(c));
    }
    if (c->pooler) layout_pooler(p, arena, vectors, &part);
    if (c->distilled) {
        part.second = ph_arena_floats(arena, floats);
        part.second_scores =
            ph_arena_floats(arena, (size_t)p->shape.batch * (size_t)c->classes);
        if (p->shape.backward) part.dsecond = ph_arena_floats(arena, floats);
    }
    p->pooled = o;
    if (o) *o = part;
}

/* Of the classifier whose matrix is a parameter; NULL: it has none. */
static const float *bias_of(const ph_pass *p, int matrix)
{
    const ph_model *m = p->model;
    return m->config.no_head_bias ? NULL : p->block + m->params[matrix + 1].at;
}

/* ---- pooling ----------------------------------------------------------------------- */

/* Rows [first, first + count) are the tokens of a text. */
static int tokens_of(const ph_pass *p, int text, size_t *first)
{
    const int32_t *offsets = p->stacks[0].offsets;
    *first = (size_t)offsets[text];
    return offsets[text + 1] - offsets[text];
}

/* The vector is the sum of all tokens, each times its weight, times one factor. */
float ph_pool_weight(ph_pooling how, int token, int count)
{
    if (how == PH_POOL_FIRST) return token == 0;
    if (how == PH_POOL_LAST) return token == count - 1;
    return how == PH_POOL_WEIGHTED ? (float)(token + 1) : 1.0f;
}

/* The last token that a classifier of a decoder counts is the last one that is not
   padding, which may be in the text itself; a text of nothing else has its first. */
int ph_pool_count(const ph_pass *p, int text)
{
    const ph_model *m = p->model;
    size_t first;
    int count = tokens_of(p, text, &first), padding = m->marks.padding;
    if (m->config.arch != PH_ARCH_DECODER || !m->config.classes || padding < 0)
        return count;
    const int32_t *tokens = p->batch.source + first;
    while (count > 1 && tokens[count - 1] == padding) count--;
    return count;
}

static float factor_of(ph_pooling how, int count)
{
    if (how == PH_POOL_MEAN) return 1.0f / (float)count;
    if (how == PH_POOL_MEAN_SQRT) return 1.0f / sqrtf((float)count);
    if (how == PH_POOL_WEIGHTED)
        return (float)(2.0 / ((double)count * ((double)count + 1)));
    return 1.0f;
}

static void pool_max(const float *x, int dim, int count, int32_t *origin, float *out)
{
    memcpy(out, x, (size_t)dim * sizeof *out);
    memset(origin, 0, (size_t)dim * sizeof *origin);
    for (int t = 1; t < count; t++)
        for (int d = 0; d < dim; d++) {
            float value = x[(size_t)t * (size_t)dim + (size_t)d];
            if (value > out[d]) out[d] = value, origin[d] = t;
        }
}

/* One way to pool the tokens of a text; `at` is where its vector begins. */
static void pool_one(const ph_pass *p, ph_pooling how, int text, size_t at)
{
    const ph_model *m = p->model;
    size_t first;
    int dim = m->config.model_dim, count = tokens_of(p, text, &first);
    const float *x = ph_pass_output(p) + first * (size_t)dim;
    float *out = p->pooled->sum + at;
    if (how == PH_POOL_LAST) count = ph_pool_count(p, text);
    if (how == PH_POOL_MAX && count) {
        pool_max(x, dim, count, p->pooled->origin + at, out);
        return;
    }
    memset(out, 0, (size_t)dim * sizeof *out);
    for (int t = 0; t < count; t++) {
        float weight = ph_pool_weight(how, t, count);
        if (weight != 0)
            m->spans->add_scaled(dim, weight, x + (size_t)t * (size_t)dim, out);
    }
    if (count) m->spans->scaled(dim, factor_of(how, count), out, out);
}

static void pool_item(void *arg, int lane, int text)
{
    const ph_pass *p = arg;
    const ph_config *c = &p->model->config;
    size_t at = (size_t)text * (size_t)ph_config_pooled_dim(c);
    (void)lane;
    for (int i = 0; i < ph_config_poolings(c); i++)
        pool_one(p, ph_config_pooling(c, i), text, at + (size_t)i * (size_t)c->model_dim);
}

/* Adds to da what one way to pool gives. */
static void unpool_one(const ph_pass *p, ph_pooling how, int text, size_t at)
{
    const ph_model *m = p->model;
    size_t first, dim = (size_t)m->config.model_dim;
    int count = tokens_of(p, text, &first);
    int counted = how == PH_POOL_LAST ? ph_pool_count(p, text) : count;
    const float *d = p->pooled->dsum + at;
    float *da = p->da + first * dim, factor = count ? factor_of(how, count) : 0;
    for (int t = 0; t < count && how != PH_POOL_MAX; t++)
        m->spans->add_scaled((int)dim, ph_pool_weight(how, t, counted) * factor, d,
                             da + (size_t)t * dim);
    for (size_t c = 0; c < dim && how == PH_POOL_MAX && count; c++)
        da[(size_t)p->pooled->origin[at + c] * dim + c] += d[c];
}

/* da from the gradient of the vectors. */
static void unpool_item(void *arg, int lane, int text)
{
    const ph_pass *p = arg;
    const ph_model *m = p->model;
    size_t first, dim = (size_t)m->config.model_dim;
    size_t at = (size_t)text * (size_t)ph_config_pooled_dim(&m->config);
    int count = tokens_of(p, text, &first);
    float *da = p->da + first * dim;
    (void)lane;
    memset(da, 0, (size_t)count * dim * sizeof *da);
    for (int i = 0; i < ph_config_poolings(&m->config); i++)
        unpool_one(p, ph_config_pooling(&m->config, i), text, at + (size_t)i * dim);
    if (m->distilled >= 0 && count > 1 && !p->batch.vectors)
        memcpy(da + dim, p->pooled->dsecond + (size_t)text * dim, dim * sizeof *da);
}

/* ---- the pooler -------------------------------------------------------------------- */

/* What it reads. */
static const float *pooler_input(const ph_pass *p)
{
    return p->model->config.pooling ? p->pooled->sum : ph_pass_output(p);
}

static void pooler_norm_item(void *arg, int lane, int vector)
{
    const ph_pass *p = arg;
    const ph_model *m = p->model;
    const float *shift =
        m->pooler_shift < 0 ? NULL : p->block + m->params[m->pooler_shift].at;
    int dim = ph_config_vector_dim(&m->config);
    size_t at = (size_t)vector * (size_t)dim;
    (void)lane;
    m->spans->norm(dim, p->pooled->f + at, p->block + m->params[m->pooler_gain].at, shift,
                   m->config.norm_eps, m->config.norm == PH_NORM_RMS, p->pooled->out + at,
                   p->pooled->stats + 2 * (size_t)vector);
}

static ph_status pooler_forward(ph_pass *p)
{
    const ph_model *m = p->model;
    const ph_config *c = &m->config;
    const ph_pooled *o = p->pooled;
    int in = ph_config_pooled_dim(c), out = ph_config_vector_dim(c);
    int vectors = vectors_of(p);
    float *f = o->f ? o->f : o->out;
    const float *bias = c->no_dense_bias ? NULL : p->block + m->params[m->pooler + 1].at;
    ph_gemm g =
        ph_product(vectors, in, out, pooler_input(p),
                   ph_model_matrix(m, p->block, m->pooler), bias, o->h ? o->h : f);
    PH_TRY(ph_model_multiply(m, &g, 1));
    if (o->h) m->spans->activation(PH_SPAN_GELU_ERF, vectors * out, o->h, NULL, f);
    for (size_t i = 0; i < (size_t)vectors * (size_t)out; i++) {
        if (c->pooler == PH_POOLER_TANH) f[i] = tanhf(f[i]);
        if (c->pooler == PH_POOLER_RELU) f[i] = fmaxf(f[i], 0);
    }
    if (c->pooler_norm) ph_ctx_run(m->ctx, vectors, pooler_norm_item, p);
    return PH_OK;
}

/* The derivative of the activation, other than GELU, whose value is y. */
static float pooler_derivative(ph_pooler pooler, float y)
{
    if (pooler == PH_POOLER_IDENTITY) return 1.0f;
    return pooler == PH_POOLER_TANH ? 1.0f - y * y : (float)(y > 0);
}

/* dout becomes the gradient of f; gradients of the norm, which are 0 before, are sums
   over the vectors in their order. */
static void pooler_norm_backward(const ph_pass *p)
{
    const ph_model *m = p->model;
    const ph_pooled *o = p->pooled;
    int dim = ph_config_vector_dim(&m->config), rms = m->config.norm == PH_NORM_RMS;
    const ph_weight *gain = &m->params[m->pooler_gain];
    float *dshift = m->pooler_shift < 0 ? NULL : p->grads + m->params[m->pooler_shift].at;
    for (int i = 0; i < vectors_of(p); i++) {
        size_t at = (size_t)i * (size_t)dim;
        m->spans->norm_backward(dim, o->dout + at, o->f + at, o->stats + 2 * (size_t)i,
                                p->block + gain->at, rms, o->row, p->grads + gain->at,
                                dshift);
        memcpy(o->dout + at, o->row, (size_t)dim * sizeof *o->row);
    }
}

/* dsum from dout, which becomes the gradient before the activation. */
static ph_status pooler_backward(ph_pass *p)
{
    const ph_model *m = p->model;
    const ph_config *c = &m->config;
    const ph_pooled *o = p->pooled;
    const ph_weight *w = &m->params[m->pooler];
    int in = ph_config_pooled_dim(c), out = ph_config_vector_dim(c);
    int vectors = vectors_of(p);
    const float *dh = o->h ? o->dh : o->dout;
    if (c->pooler_norm) pooler_norm_backward(p);
    if (o->h)
        m->spans->activation_backward(PH_SPAN_GELU_ERF, vectors * out, o->h, NULL,
                                      o->dout, o->dh, NULL);
    for (int i = 0; i < vectors * out && !o->h; i++) {
        float y = o->f ? o->f[i] : o->out[i] * (c->unit_norm ? o->norm[i / out] : 1.0f);
        o->dout[i] *= pooler_derivative(c->pooler, y);
    }
    ph_gemm list[3] = {
        ph_product_dx(m, vectors, in, out, dh, ph_matrix_of(p->block + w[0].at), o->dsum),
        ph_product_dw(m, vectors, in, out, pooler_input(p), dh, p->grads + w[0].at)};
    if (!c->no_dense_bias)
        list[2] = ph_product_db(vectors, out, p->ones, dh, p->grads + w[1].at);
    return ph_model_multiply(m, list, c->no_dense_bias ? 2 : 3);
}

/* ---- norm 1 ------------------------------------------------------------------------ */

static void scale_item(void *arg, int lane, int text)
{
    const ph_pass *p = arg;
    const ph_spans *f = p->model->spans;
    int dim = ph_config_vector_dim(&p->model->config);
    float *v = p->pooled->out + (size_t)text * (size_t)dim;
    float norm = (float)sqrt(f->sum_of_squares(dim, v));
    (void)lane;
    if (norm < 1e-12f) norm = 1e-12f; /* as the reference has it */
    p->pooled->norm[text] = norm;
    for (int d = 0; d < dim; d++) v[d] /= norm;
}

/* dv = (dy - y (y.dy)) / |v| */
static void scale_backward_item(void *arg, int lane, int text)
{
    const ph_pass *p = arg;
    int dim = ph_config_vector_dim(&p->model->config);
    const float *y = p->pooled->out + (size_t)text * (size_t)dim;
    float *dy = p->pooled->dout + (size_t)text * (size_t)dim;
    double dot = 0;
    (void)lane;
    for (int d = 0; d < dim; d++) dot += (double)y[d] * (double)dy[d];
    for (int d = 0; d < dim; d++)
        dy[d] = (dy[d] - y[d] * (float)dot) / p->pooled->norm[text];
}

/* ---- all of it --------------------------------------------------------------------- */

static const float *classifier_input(const ph_pass *p)
{
    return p->pooled->out ? p->pooled->out : ph_pass_output(p);
}

static ph_status second_forward(ph_pass *p)
{
    const ph_model *m = p->model;
    const ph_pooled *o = p->pooled;
    int texts = p->shape.batch, classes = m->config.classes;
    size_t dim = (size_t)m->config.model_dim, first;
    size_t scores = (size_t)texts * (size_t)classes;
    for (int b = 0; b < texts; b++) {
        float *row = o->second + (size_t)b * dim;
        if (tokens_of(p, b, &first) > 1)
            memcpy(row, ph_pass_output(p) + (first + 1) * dim, dim * sizeof *row);
        else
            memset(row, 0, dim * sizeof *row);
    }
    ph_gemm g = ph_product(texts, (int)dim, classes, o->second,
                           ph_model_matrix(m, p->block, m->distilled),
                           bias_of(p, m->distilled), o->second_scores);
    PH_TRY(ph_model_multiply(m, &g, 1));
    for (size_t i = 0; i < scores; i++)
        o->scores[i] = (o->scores[i] + o->second_scores[i]) / 2;
    return PH_OK;
}

ph_status ph_pooled_forward(ph_pass *p)
{
    const ph_model *m = p->model;
    const ph_config *c = &m->config;
    int texts = p->shape.batch;
    if (c->pooling) ph_ctx_run(m->ctx, texts, pool_item, p);
    if (c->pooler) PH_TRY(pooler_forward(p));
    if (c->unit_norm) ph_ctx_run(m->ctx, texts, scale_item, p);
    if (!c->classes) return PH_OK;
    ph_gemm g =
        ph_product(vectors_of(p), ph_config_classified_dim(c), c->classes,
                   classifier_input(p), ph_model_matrix(m, p->block, m->classifier),
                   bias_of(p, m->classifier), p->pooled->scores);
    PH_TRY(ph_model_multiply(m, &g, 1));
    return c->distilled ? second_forward(p) : PH_OK;
}

/* Half the squared distance of each text's vector to the one it should have; dout becomes
   the gradient. A text without tokens has no vector. */
ph_status ph_pooled_loss(ph_pass *p, float scale, double *loss)
{
    const ph_config *c = &p->model->config;
    size_t dim = (size_t)ph_config_vector_dim(c), first;
    if (!c->pooling)
        return ph_fail(p->model->ctx, PH_UNSUPPORTED,
                       "the model makes no vector of a text: it has no pooling");
    *loss = 0;
    for (int b = 0; b < p->shape.batch; b++) {
        const float *v = p->pooled->out + (size_t)b * dim;
        const float *wanted = p->batch.vectors + (size_t)b * dim;
        int counted = tokens_of(p, b, &first) > 0;
        double sum = 0;
        for (size_t d = 0; d < dim; d++) {
            float off = counted ? v[d] - wanted[d] : 0;
            sum += (double)off * (double)off;
            if (p->shape.backward) p->pooled->dout[(size_t)b * dim + d] = scale * off;
        }
        p->row_loss[b] = (float)(sum / 2);
        *loss += sum / 2;
    }
    return PH_OK;
}

/* dx, the gradient of what a classifier reads, from that of its scores. */
static ph_status classifier_backward(ph_pass *p, int classifier, const float *x,
                                     float *dx)
{
    const ph_model *m = p->model;
    const ph_weight *w = &m->params[classifier];
    const float *d = p->pooled->scores;
    int vectors = vectors_of(p), dim = ph_config_classified_dim(&m->config);
    int classes = m->config.classes;
    ph_gemm list[3] = {
        ph_product_dx(m, vectors, dim, classes, d, ph_matrix_of(p->block + w[0].at), dx),
        ph_product_dw(m, vectors, dim, classes, x, d, p->grads + w[0].at)};
    if (!m->config.no_head_bias)
        list[2] = ph_product_db(vectors, classes, p->ones, d, p->grads + w[1].at);
    return ph_model_multiply(m, list, m->config.no_head_bias ? 2 : 3);
}

static ph_status classifiers_backward(ph_pass *p)
{
    const ph_model *m = p->model;
    const ph_pooled *o = p->pooled;
    size_t scores = (size_t)p->shape.batch * (size_t)m->config.classes;
    for (size_t i = 0; m->distilled >= 0 && i < scores; i++) o->scores[i] /= 2;
    PH_TRY(classifier_backward(p, m->classifier, classifier_input(p),
                               o->dout ? o->dout : p->da));
    return m->distilled < 0 ? PH_OK
                            : classifier_backward(p, m->distilled, o->second, o->dsecond);
}

ph_status ph_pooled_backward(ph_pass *p)
{
    const ph_config *c = &p->model->config;
    if (!p->batch.vectors) PH_TRY(classifiers_backward(p));
    if (c->unit_norm) ph_ctx_run(p->model->ctx, p->shape.batch, scale_backward_item, p);
    if (c->pooler) PH_TRY(pooler_backward(p));
    if (c->pooling) ph_ctx_run(p->model->ctx, p->shape.batch, unpool_item, p);
    return PH_OK;
}
