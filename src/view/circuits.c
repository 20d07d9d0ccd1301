/*
 * circuits.c - what heads contribute; see polyhead_circuits.h.
 *
 * Sums are double, but for the two products of ph_head_shares. Matrices are read through
 * ph_model_rows or multiplied in place, so checkpoints may be stored in any type.
 */
#include "polyhead_circuits.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/size.h"
#include "io/io.h"
#include "linear/linear.h"
#include "kernels/gemm.h"
#include "model/model.h"

/* ---- finding parameters ---- */

static int find_param(const ph_model *m, const ph_site *site, const char *last, int rows,
                      int cols)
{
    char name[80];
    snprintf(name, sizeof name, "%s.%s", site->name, last);
    for (int i = 0; i < m->param_count; i++) {
        const ph_weight *p = &m->params[i];
        if (strcmp(p->name, name) != 0) continue;
        return p->rank == 2 && p->dims[0] == rows && p->dims[1] == cols ? i : -1;
    }
    return -1;
}

/* W_O, whose rows are those of the heads; -1: there is none. */
static int find_output(const ph_model *m, const ph_site *site)
{
    return find_param(m, site, "wo", site->heads * site->v_dim, m->config.model_dim);
}

static ph_status refuse(const ph_io *io, const ph_site *site)
{
    return ph_io_fail(io, PH_UNSUPPORTED, "%s of variant '%s' has no plain heads",
                      site ? site->name : "a site that is not there",
                      site ? site->variant : "");
}

static void *take(const ph_io *io, size_t count, size_t item)
{
    size_t bytes = 0;
    if (ph_size_mul(count, item, &bytes)) return NULL;
    return ph_io_alloc(io, bytes);
}

/* ---- contributions ---- */

/* c (rows, dim) = out (rows, d) w (d, dim) */
static void multiply(const float *out, const float *w, int rows, int d, int dim, float *c)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < dim; j++) {
            double sum = 0;
            for (int n = 0; n < d; n++)
                sum += (double)out[(size_t)i * (size_t)d + (size_t)n] *
                       (double)w[(size_t)n * (size_t)dim + (size_t)j];
            c[(size_t)i * (size_t)dim + (size_t)j] = (float)sum;
        }
}

ph_status ph_head_contribution(const ph_model *m, const ph_reading *reading, int site,
                               int head, float *c, const ph_io *io)
{
    if (!m || !reading || !c) return ph_io_null(io, "model, reading or c");
    const ph_site *s = ph_reading_site(reading, site);
    int wo = s && s->v_dim ? find_output(m, s) : -1, dim = m->config.model_dim;
    if (wo < 0 || head < 0 || head >= s->heads) return refuse(io, s);
    float *out = take(io, (size_t)s->q_len * (size_t)s->v_dim, sizeof *out);
    float *rows = take(io, (size_t)s->v_dim * (size_t)dim, sizeof *rows);
    ph_status status = out && rows ? PH_OK : PH_OUT_OF_MEMORY;
    if (status == PH_OK)
        status = ph_reading_vectors(reading, site, head, NULL, NULL, NULL, out);
    if (status == PH_OK) {
        ph_model_rows(m, wo, head * s->v_dim, s->v_dim, rows);
        multiply(out, rows, s->q_len, s->v_dim, dim, c);
    }
    ph_io_release(io, out);
    ph_io_release(io, rows);
    if (status == PH_OUT_OF_MEMORY) ph_io_fail(io, status, "out of memory for a head");
    return status;
}

/* Memory of ph_head_shares. */
typedef struct outputs {
    float *heads; /* (rows, heads * v_dim) of all heads */
    float *whole; /* (rows, model_dim) what they write together */
    float *back;  /* (rows, heads * v_dim) whole W_O^T */
    float *one;   /* (rows, v_dim) */
} outputs;

static int take_outputs(const ph_io *io, const ph_site *s, size_t dim, outputs *o)
{
    size_t rows = (size_t)s->q_len, width = (size_t)s->heads * (size_t)s->v_dim;
    o->heads = take(io, rows * width, sizeof *o->heads);
    o->whole = take(io, rows * dim, sizeof *o->whole);
    o->back = take(io, rows * width, sizeof *o->back);
    o->one = take(io, rows * (size_t)s->v_dim, sizeof *o->one);
    return o->heads && o->whole && o->back && o->one;
}

static void release_outputs(const ph_io *io, const outputs *o)
{
    ph_io_release(io, o->heads);
    ph_io_release(io, o->whole);
    ph_io_release(io, o->back);
    ph_io_release(io, o->one);
}

static ph_status gather_heads(const ph_reading *reading, int site, const outputs *o)
{
    const ph_site *s = ph_reading_site(reading, site);
    size_t d = (size_t)s->v_dim, width = (size_t)s->heads * d;
    for (int h = 0; h < s->heads; h++) {
        PH_TRY(ph_reading_vectors(reading, site, h, NULL, NULL, NULL, o->one));
        for (size_t i = 0; i < (size_t)s->q_len; i++)
            memcpy(o->heads + i * width + (size_t)h * d, o->one + i * d,
                   d * sizeof *o->one);
    }
    return PH_OK;
}

/* whole = heads W_O, back = whole W_O^T. */
static ph_status multiply_outputs(const ph_model *m, int wo, int rows, const outputs *o)
{
    int width = m->params[wo].dims[0], dim = m->params[wo].dims[1];
    ph_matrix w = ph_model_matrix(m, m->block, wo);
    ph_gemm whole = ph_product(rows, width, dim, o->heads, w, NULL, o->whole);
    ph_gemm back = ph_product_transposed(rows, width, dim, o->whole, w, o->back);
    PH_TRY(ph_model_multiply(m, &whole, 1));
    return ph_model_multiply(m, &back, 1);
}

/* c_h . o of a row is out_h W_h . o = out_h . (o W_h^T): two products for all heads. The
   sum over heads is o . o, which makes shares sum to 1 whatever was rounded. */
static void share_outputs(const ph_site *s, const outputs *o, double *share)
{
    size_t d = (size_t)s->v_dim, heads = (size_t)s->heads, rows = (size_t)s->q_len;
    double all = 0;
    for (size_t h = 0; h < heads; h++) {
        share[h] = 0;
        for (size_t i = 0; i < rows; i++)
            for (size_t n = (i * heads + h) * d; n < (i * heads + h + 1) * d; n++)
                share[h] += (double)o->heads[n] * (double)o->back[n];
        all += share[h];
    }
    for (size_t h = 0; h < heads; h++) share[h] = all > 0 ? share[h] / all : 0;
}

ph_status ph_head_shares(const ph_model *m, const ph_reading *reading, int site,
                         double *share, const ph_io *io)
{
    if (!m || !reading || !share) return ph_io_null(io, "model, reading or share");
    const ph_site *s = ph_reading_site(reading, site);
    int wo = s && s->v_dim ? find_output(m, s) : -1;
    outputs o;
    if (wo < 0) return refuse(io, s);
    ph_status status = take_outputs(io, s, (size_t)m->config.model_dim, &o)
                           ? gather_heads(reading, site, &o)
                           : ph_io_fail(io, PH_OUT_OF_MEMORY, "out of memory for heads");
    if (status == PH_OK)
        status = PH_WITHIN(m->ctx, multiply_outputs(m, wo, s->q_len, &o));
    if (status == PH_OK) share_outputs(s, &o, share);
    release_outputs(io, &o);
    return status;
}

/* ---- circuits ---- */

static double dot(const float *a, const double *b, size_t count)
{
    double sum = 0;
    for (size_t n = 0; n < count; n++) sum += (double)a[n] * b[n];
    return sum;
}

struct ph_circuit {
    ph_io hooks;
    const ph_model *model;
    int gain, shift; /* of the norm before the site; -1: none */
    int qk_dim, v_dim;
    float *wq, *wk, *wv; /* (model_dim, qk_dim or v_dim): the head's columns */
    float *wo;           /* (v_dim, model_dim): its rows */
};

/* The norm whose output an attention site reads. */
static int find_norm(const ph_model *m, int site, int *gain, int *shift)
{
    for (int k = 0; k < m->stack_count; k++) {
        const ph_model_stack *stack = &m->stacks[k];
        for (int i = 0; i < stack->count; i++) {
            if (stack->sublayers[i].site != site) continue;
            *gain = i ? stack->sublayers[i - 1].gain : stack->gain;
            *shift = i ? stack->sublayers[i - 1].shift : stack->shift;
            return 0;
        }
    }
    return -1;
}

/* Columns first .. first + count - 1 of a matrix (model_dim, width). */
static float *take_columns(const ph_model *m, int param, int first, int count,
                           const ph_io *io)
{
    int dim = m->config.model_dim, width = m->params[param].dims[1];
    float *to = take(io, (size_t)dim * (size_t)count, sizeof *to);
    float *row = take(io, (size_t)width, sizeof *row);
    for (int i = 0; to && row && i < dim; i++) {
        ph_model_rows(m, param, i, 1, row);
        memcpy(to + (size_t)i * (size_t)count, row + first,
               (size_t)count * sizeof *to);
    }
    if (!row) ph_io_release(io, to);
    ph_io_release(io, row);
    return row ? to : NULL;
}

typedef struct site_params {
    int wq, wk, wv, wo;
} site_params;

/* Of plain self-attention; what has other matrices, or lost heads, is refused. */
static ph_status find_params(const ph_model *m, const ph_site *s, site_params *p,
                             const ph_io *io)
{
    int dim = m->config.model_dim;
    if (!s || s->kind != PH_SITE_SELF || s->original) return refuse(io, s);
    if (m->embed < 0)
        return ph_io_fail(io, PH_UNSUPPORTED,
                          "the model reads pictures, expected one that reads tokens");
    *p = (site_params){find_param(m, s, "wq", dim, s->heads * s->qk_dim),
                       find_param(m, s, "wk", dim, s->kv_heads * s->qk_dim),
                       find_param(m, s, "wv", dim, s->kv_heads * s->v_dim),
                       find_output(m, s)};
    return p->wq < 0 || p->wk < 0 || p->wv < 0 || p->wo < 0 ? refuse(io, s) : PH_OK;
}

static ph_status fill(ph_circuit *c, const ph_site *s, int head, const site_params *p)
{
    const ph_model *m = c->model;
    int shared = head / (s->heads / s->kv_heads);
    c->wq = take_columns(m, p->wq, head * s->qk_dim, s->qk_dim, &c->hooks);
    c->wk = take_columns(m, p->wk, shared * s->qk_dim, s->qk_dim, &c->hooks);
    c->wv = take_columns(m, p->wv, shared * s->v_dim, s->v_dim, &c->hooks);
    c->wo =
        take(&c->hooks, (size_t)s->v_dim * (size_t)m->config.model_dim, sizeof *c->wo);
    if (!c->wq || !c->wk || !c->wv || !c->wo) return PH_OUT_OF_MEMORY;
    ph_model_rows(m, p->wo, head * s->v_dim, s->v_dim, c->wo);
    return PH_OK;
}

ph_status ph_circuit_create(ph_circuit **out, const ph_model *model,
                            const ph_reading *reading, int site, int head,
                            const ph_io *io)
{
    if (out) *out = NULL;
    if (!out || !model || !reading) return ph_io_null(io, "out, model or reading");
    const ph_site *s = ph_reading_site(reading, site);
    site_params params = {-1, -1, -1, -1};
    PH_TRY(find_params(model, s, &params, io));
    if (head < 0 || head >= s->heads) return refuse(io, s);
    if (model->config.embed_dim) /* heads read embeddings behind another layer */
        return ph_io_fail(io, PH_UNSUPPORTED,
                          "embeddings have %d elements, expected the %d of the layers",
                          model->config.embed_dim, model->config.model_dim);
    ph_circuit *c = ph_io_alloc(io, sizeof *c);
    if (!c) return ph_io_no_memory(io, sizeof *c, "a circuit");
    *c = (ph_circuit){.hooks = ph_io_hooks(io),
                      .model = model,
                      .gain = -1,
                      .shift = -1,
                      .qk_dim = s->qk_dim,
                      .v_dim = s->v_dim};
    int found = find_norm(model, site, &c->gain, &c->shift) == 0;
    ph_status status = found ? PH_OK : refuse(io, s);
    if (status == PH_OK) status = fill(c, s, head, &params);
    if (status == PH_OUT_OF_MEMORY) ph_io_fail(io, status, "out of memory for a circuit");
    if (status == PH_OK)
        *out = c;
    else
        ph_circuit_free(c);
    return status;
}

void ph_circuit_free(ph_circuit *c)
{
    if (!c) return;
    ph_io hooks = c->hooks;
    float *const parts[] = {c->wq, c->wk, c->wv, c->wo};
    for (int i = 0; i < 4; i++) ph_io_release(&hooks, parts[i]);
    ph_io_release(&hooks, c);
}

/* The input of the site where nothing but the token is known. */
static void normalise(const ph_circuit *c, const float *row, double *x)
{
    const ph_config *config = &c->model->config;
    int dim = config->model_dim, rms = config->norm == PH_NORM_RMS;
    double mean = 0, square = 0;
    for (int i = 0; i < dim; i++) x[i] = (double)row[i] * (double)config->embed_scale;
    if (c->gain < 0) return;
    for (int i = 0; i < dim && !rms; i++) mean += x[i] / dim;
    for (int i = 0; i < dim; i++) square += (x[i] - mean) * (x[i] - mean) / dim;
    const ph_weight *params = c->model->params;
    const float *block = c->model->block, *gain = block + params[c->gain].at;
    const float *shift = c->shift < 0 ? NULL : block + params[c->shift].at;
    double scale = 1 / sqrt(square + (double)config->norm_eps);
    for (int i = 0; i < dim; i++)
        x[i] = (x[i] - mean) * scale * (double)gain[i] + (shift ? (double)shift[i] : 0);
}

/* y (width) = x w */
static void project(const double *x, const float *w, int dim, int width, double *y)
{
    memset(y, 0, (size_t)width * sizeof *y);
    for (int i = 0; i < dim; i++)
        for (int j = 0; j < width; j++)
            y[j] += x[i] * (double)w[(size_t)i * (size_t)width + (size_t)j];
}

/* Memory for an embedding as floats and as the site's input. */
typedef struct token_input {
    float *row;
    double *x;
} token_input;

static ph_status read_token(const ph_circuit *c, int32_t token, token_input *in)
{
    if (token < 0 || token >= c->model->config.vocab) return PH_BAD_VALUE;
    ph_model_rows(c->model, c->model->embed, token, 1, in->row);
    normalise(c, in->row, in->x);
    return PH_OK;
}

ph_status ph_circuit_scores(const ph_circuit *c, const int32_t *tokens, int count,
                            double *scores)
{
    if (!c || !tokens || !scores) return PH_BAD_ARGUMENT;
    int dim = c->model->config.model_dim, d = c->qk_dim;
    size_t n = (size_t)count, side = n * (size_t)d;
    token_input in = {take(&c->hooks, (size_t)dim, sizeof(float)),
                      take(&c->hooks, (size_t)dim, sizeof(double))};
    double *q = take(&c->hooks, 2 * side, sizeof *q), *k = q ? q + side : NULL;
    ph_status status = in.row && in.x && q ? PH_OK : PH_OUT_OF_MEMORY;
    for (size_t i = 0; i < n && status == PH_OK; i++) {
        status = read_token(c, tokens[i], &in);
        if (status != PH_OK) break;
        project(in.x, c->wq, dim, d, q + i * (size_t)d);
        project(in.x, c->wk, dim, d, k + i * (size_t)d);
    }
    for (size_t i = 0; i < n * n && status == PH_OK; i++)
        scores[i] =
            ph_dot(d, q + i / n * (size_t)d, k + i % n * (size_t)d) / sqrt((double)d);
    ph_io_release(&c->hooks, in.row);
    ph_io_release(&c->hooks, in.x);
    ph_io_release(&c->hooks, q);
    return status;
}

ph_status ph_circuit_writes(const ph_circuit *c, int32_t token, double *writes)
{
    if (!c || !writes) return PH_BAD_ARGUMENT;
    const ph_model *m = c->model;
    int dim = m->config.model_dim, to = m->output >= 0 ? m->output : m->embed;
    token_input in = {take(&c->hooks, (size_t)dim, sizeof(float)),
                      take(&c->hooks, (size_t)dim, sizeof(double))};
    double *v = take(&c->hooks, (size_t)(c->v_dim + dim), sizeof *v);
    ph_status status = in.row && in.x && v ? PH_OK : PH_OUT_OF_MEMORY;
    if (status == PH_OK) status = read_token(c, token, &in);
    if (status == PH_OK) {
        double *written = v + c->v_dim;
        project(in.x, c->wv, dim, c->v_dim, v);
        project(v, c->wo, c->v_dim, dim, written);
        for (int t = 0; t < m->config.vocab; t++) {
            ph_model_rows(m, to, t, 1, in.row);
            writes[t] = dot(in.row, written, (size_t)dim);
        }
    }
    ph_io_release(&c->hooks, in.row);
    ph_io_release(&c->hooks, in.x);
    ph_io_release(&c->hooks, v);
    return status;
}

/* ---- ranks ---- */

/* e to the entropy of singular values, of their squares. */
static double effective_rank(const double *squares, int count)
{
    double sum = 0, entropy = 0;
    for (int i = 0; i < count; i++) sum += sqrt(fmax(squares[i], 0));
    for (int i = 0; i < count && sum > 0; i++) {
        double p = sqrt(fmax(squares[i], 0)) / sum;
        if (p > 0) entropy -= p * log(p);
    }
    return sum > 0 ? exp(entropy) : 0;
}

/* gram (d, d) = w^T w of w (dim, d) */
static void gram_of(const float *w, int dim, int d, double *gram)
{
    memset(gram, 0, (size_t)d * (size_t)d * sizeof *gram);
    for (int i = 0; i < dim; i++)
        for (int a = 0; a < d; a++)
            for (int b = 0; b < d; b++)
                gram[a * d + b] += (double)w[(size_t)i * (size_t)d + (size_t)a] *
                                   (double)w[(size_t)i * (size_t)d + (size_t)b];
}

typedef struct rank_work {
    double *k;              /* (d, d) W_K^T W_K, then its root */
    double *vectors, *values; /* of eigenvalues of either, (most, most) and most */
    double *half;           /* (dim, d) W_Q times the root */
    double *all;            /* (dim, dim) sum over heads of half half^T */
} rank_work;

/* half = W_Q (W_K^T W_K)^(1/2), so that half half^T = M M^T for M = W_Q W_K^T. */
static void take_half(const float *wq, const float *wk, int dim, int d, rank_work *w)
{
    gram_of(wk, dim, d, w->k);
    ph_eigen(d, w->k, w->values, w->vectors);
    for (int a = 0; a < d; a++)
        for (int b = 0; b < d; b++) {
            double sum = 0;
            for (int n = 0; n < d; n++)
                sum += sqrt(fmax(w->values[n], 0)) * w->vectors[n * d + a] *
                       w->vectors[n * d + b];
            w->k[a * d + b] = sum;
        }
    for (int i = 0; i < dim; i++)
        for (int b = 0; b < d; b++) {
            double sum = 0;
            for (int a = 0; a < d; a++)
                sum += (double)wq[(size_t)i * (size_t)d + (size_t)a] * w->k[a * d + b];
            w->half[i * d + b] = sum;
        }
}

/* Adds one head to all; returns its own rank. */
static double add_head(const float *wq, const float *wk, int dim, int d, rank_work *w)
{
    take_half(wq, wk, dim, d, w);
    for (int i = 0; i < dim; i++)
        for (int j = 0; j < dim; j++)
            w->all[(size_t)i * (size_t)dim + (size_t)j] +=
                ph_dot(d, w->half + i * d, w->half + j * d);
    ph_multiply_left(d, dim, d, w->half, w->half, w->k); /* the same squares, d of them */
    ph_eigen(d, w->k, w->values, w->vectors);
    return effective_rank(w->values, d);
}

static ph_status add_heads(const ph_model *m, const ph_site *s, const site_params *p,
                           rank_work *w, double *one, const ph_io *io)
{
    int dim = m->config.model_dim, d = s->qk_dim, group = s->heads / s->kv_heads;
    ph_status status = PH_OK;
    *one = 0;
    for (int h = 0; h < s->heads && status == PH_OK; h++) {
        float *wq = take_columns(m, p->wq, h * d, d, io);
        float *wk = take_columns(m, p->wk, h / group * d, d, io);
        status = wq && wk ? PH_OK : PH_OUT_OF_MEMORY;
        if (status == PH_OK) *one += add_head(wq, wk, dim, d, w) / s->heads;
        ph_io_release(io, wq);
        ph_io_release(io, wk);
    }
    return status;
}

ph_status ph_qk_ranks(const ph_model *m, const ph_reading *reading, int site, double *one,
                      double *all, double *energy, const ph_io *io)
{
    if (!m || !reading || !one || !all)
        return ph_io_null(io, "model, reading, one or all");
    const ph_site *s = ph_reading_site(reading, site);
    site_params params = {-1, -1, -1, -1};
    PH_TRY(find_params(m, s, &params, io));
    size_t dim = (size_t)m->config.model_dim, d = (size_t)s->qk_dim;
    size_t most = d > dim ? d : dim; /* a head may be wider than the model */
    size_t all_of_it = d * d + most * most + dim * dim + most + dim * d;
    double *memory = take(io, all_of_it, sizeof *memory);
    if (!memory) return ph_io_no_memory(io, all_of_it * sizeof *memory, "ranks");
    rank_work w = {.k = memory, .vectors = memory + d * d};
    w.values = w.vectors + most * most;
    w.half = w.values + most;
    w.all = w.half + dim * d;
    memset(w.all, 0, dim * dim * sizeof *w.all);
    ph_status status = add_heads(m, s, &params, &w, one, io);
    if (status == PH_OK) {
        ph_eigen((int)dim, w.all, w.values, w.vectors);
        *all = effective_rank(w.values, (int)dim);
        for (size_t i = 0; energy && i < dim; i++) energy[i] = fmax(w.values[i], 0);
    }
    ph_io_release(io, memory);
    if (status == PH_OUT_OF_MEMORY) ph_io_fail(io, status, "out of memory for ranks");
    return status;
}
