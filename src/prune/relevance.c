/*
 * relevance.c - layer-wise relevance of heads, as Voita et al. (2019) measure it.
 *
 * Every prediction starts with relevance 1 at the score of the token, class or word that
 * the model finds likeliest. It goes backward from neuron to neuron: v, a sum of
 * contributions z(u, v) of other neurons u, propagates to each
 *
 *     ratio   r(v) z / (sum of all z)                       (Ding et al. 2017)
 *     ab      half of r(v) in proportion to the z above 0, half to those below; all of it
 *             where the others are missing                  (Voita et al. 2021)
 *
 * so that the sum of relevance stays what it was. Biases take no part in these sums.
 * Contributions are w x of a product, the residual stream and what a sublayer adds to it,
 * tokens of a pooled vector, and weight times value of attention: its weights are
 * constants here. Activations and norms propagate relevance unchanged, so a residual
 * stream has one relevance before and after a norm. Of a product of two neurons u u' each
 * gets u / (u + u') by the ratio rule, half by the other.
 *
 * Relevance is linear in what it starts from: one backward pass does all predictions.
 */
#include <math.h>
#include <string.h>

#include "prune/eval.h"

typedef struct trace {
    const ph_pass *p;
    ph_relevance *rule;
    double *stream[2]; /* of each stack: (rows, model_dim) of the residual stream */
    double *output;    /* (2 rows, model_dim) of what a sublayer adds to it */
    double *lanes;     /* (threads, lane) scratch of a row */
    size_t lane;
} trace;

static ph_status allocate(const trace *t, size_t doubles, double **to)
{
    ph_ctx *ctx = t->p->model->ctx;
    *to = ph_ctx_alloc(ctx, (doubles + 1) * sizeof **to);
    if (!*to) return ph_fail(ctx, PH_OUT_OF_MEMORY, "no memory for relevance");
    memset(*to, 0, doubles * sizeof **to);
    return PH_OK;
}

static double *lane_of(const trace *t, int lane)
{
    return t->lanes + (size_t)lane * t->lane;
}

static const float *param(const trace *t, int index)
{
    return t->p->block + t->p->model->params[index].at;
}

/* ---- rules ------------------------------------------------------------------------- */

static double guarded(const ph_relevance *rule, double sum)
{
    return sum + (sum < 0 ? -rule->eps : rule->eps);
}

/* From the sums of contributions above and below 0 to what each is multiplied by. */
static void make_factors(const ph_relevance *rule, double r, double *above, double *below)
{
    int both = *above > 0 && *below < 0;
    if (!rule->alpha_beta) {
        *above = *below = r / guarded(rule, *above + *below);
        return;
    }
    if (*above > 0) *above = (both ? 0.5 * r : r) / guarded(rule, *above);
    if (*below < 0) *below = (both ? 0.5 * r : r) / guarded(rule, *below);
}

/* The relevance r of one neuron, added to that of n others. */
static void distribute(const ph_relevance *rule, double r, const double *z, int n,
                       double *to)
{
    double above = 0, below = 0;
    for (int i = 0; i < n; i++) *(z[i] > 0 ? &above : &below) += z[i];
    make_factors(rule, r, &above, &below);
    for (int i = 0; i < n; i++) to[i] += z[i] * (z[i] > 0 ? above : below);
}

/* Relevance of u u' to both. */
static void distribute_product(const ph_relevance *rule, double r, double u, double other,
                               double to[2])
{
    to[0] = to[1] = 0;
    if (u == 0 && other == 0) u = other = 1;
    distribute(rule, r, rule->alpha_beta ? (double[2]){1, 1} : (double[2]){u, other}, 2,
               to);
}

/* ---- y = x w, a row ---------------------------------------------------------------- */

typedef struct linear {
    const float *w; /* (in, out) */
    int in, out;
} linear;

/* sums: (2, out) of the contributions to each y, then of their absolute values, which
   the ratio rule does not need. */
static void add_contributions(const trace *t, linear l, const float *x, double *sums)
{
    size_t out = (size_t)l.out;
    memset(sums, 0, 2 * out * sizeof *sums);
    for (int u = 0; u < l.in; u++)
        t->p->model->spans->add_products(l.out, (double)x[u], l.w + (size_t)u * out, sums,
                                         t->rule->alpha_beta ? sums + out : NULL);
}

/* r (out) through the product, added to `to` (in); sums as add_contributions left them. A
   contribution z is multiplied by one factor above 0 and another below: by their mean,
   and |z| by half of their difference. */
static void linear_backward(const trace *t, linear l, const float *x, const double *r,
                            double *sums, double *to)
{
    double *factor = sums, *size = t->rule->alpha_beta ? sums + l.out : NULL, sizes;
    for (int v = 0; v < l.out; v++) {
        double all = size ? size[v] : 0;
        double above = (sums[v] + all) / 2, below = (sums[v] - all) / 2;
        make_factors(t->rule, r[v], &above, &below);
        factor[v] = (above + below) / 2;
        if (size) size[v] = (above - below) / 2;
    }
    for (int u = 0; u < l.in; u++) {
        const float *w = l.w + (size_t)u * (size_t)l.out;
        double value = (double)x[u];
        double sum = t->p->model->spans->weigh(l.out, w, factor, size, &sizes);
        to[u] += value * sum + fabs(value) * sizes;
    }
}

typedef struct linear_job {
    const trace *t;
    linear l;
    const float *x;  /* (rows, in) */
    const double *r; /* (rows, out) */
    double *to;      /* (rows, in), added to */
} linear_job;

static void linear_item(void *arg, int lane, int row)
{
    const linear_job *j = arg;
    size_t in = (size_t)row * (size_t)j->l.in, out = (size_t)row * (size_t)j->l.out;
    double *sums = lane_of(j->t, lane);
    add_contributions(j->t, j->l, j->x + in, sums);
    linear_backward(j->t, j->l, j->x + in, j->r + out, sums, j->to + in);
}

static void linear_rows(const trace *t, linear l, int rows, const float *x,
                        const double *r, double *to)
{
    linear_job j = {t, l, x, r, to};
    ph_ctx_spread(t->p->model->ctx, rows, linear_item, &j);
}

/* ---- residual connections ---------------------------------------------------------- */

/* s = r + y: relevance of s is divided between the stream, in place, and y. */
static void divide_residual(const trace *t, int stack_index, int sublayer)
{
    const ph_pass_stack *stack = &t->p->stacks[stack_index];
    const ph_residual *last =
        sublayer ? &stack->acts[sublayer - 1].residual : &stack->entry;
    const ph_config *c = &t->p->model->config;
    int normed = sublayer ? c->norm_place == PH_POST_NORM : c->embed_norm;
    const float *r = normed ? stack->acts[sublayer].a : last->s;
    const float *s = stack->acts[sublayer].residual.s;
    double *stream = t->stream[stack_index];
    size_t count = (size_t)stack->rows * (size_t)t->p->model->config.model_dim;
    for (size_t i = 0; i < count; i++) {
        double z[2] = {(double)r[i], (double)s[i] - (double)r[i]}, to[2] = {0, 0};
        distribute(t->rule, stream[i], z, 2, to);
        stream[i] = to[0], t->output[i] = to[1];
    }
}

/* ---- feed-forward ------------------------------------------------------------------ */

typedef struct feed_rows {
    const trace *t;
    const float *a; /* (rows, model_dim) */
    linear first[2], second;
    const float *bias[2]; /* each or NULL */
    int products;         /* 2: gated */
    double *stream;
} feed_rows;

/* h and g of a row as the pass has them; sums: those of the first products. */
static void feed_forward(const feed_rows *j, const float *a, double *sums, float *h,
                         float *g)
{
    const ph_model *m = j->t->p->model;
    int ff = j->second.in;
    for (int i = 0; i < j->products; i++) {
        double *own = sums + (size_t)i * 2 * (size_t)ff;
        add_contributions(j->t, j->first[i], a, own);
        for (int v = 0; v < ff; v++)
            h[i * ff + v] = (float)(own[v] + (j->bias[i] ? (double)j->bias[i][v] : 0));
    }
    m->spans->activation((ph_span_activation)m->config.activation, ff, h, h + ff, g);
}

/* g = f(h) h': where h' is 0 so are g and its relevance. */
static void divide_gate(const ph_relevance *rule, const float *h, const float *g, int ff,
                        double *r)
{
    for (int v = 0; v < ff; v++) {
        double gate = (double)h[ff + v], to[2];
        double f = gate == 0 ? 0 : (double)g[v] / gate;
        distribute_product(rule, r[v], f, gate, to);
        r[v] = to[0], r[ff + v] = to[1];
    }
}

static void feed_item(void *arg, int lane, int row)
{
    const feed_rows *j = arg;
    size_t ff = (size_t)j->second.in, dim = (size_t)j->second.out;
    size_t at = (size_t)row * dim;
    double *sums = lane_of(j->t, lane), *last = sums + 4 * ff, *r = last + 2 * dim;
    float *h = (float *)(r + 2 * ff), *g = h + 2 * ff;
    feed_forward(j, j->a + at, sums, h, g);
    add_contributions(j->t, j->second, g, last);
    memset(r, 0, 2 * ff * sizeof *r);
    linear_backward(j->t, j->second, g, j->t->output + at, last, r);
    if (j->products == 2) divide_gate(j->t->rule, h, g, (int)ff, r);
    for (int i = 0; i < j->products; i++)
        linear_backward(j->t, j->first[i], j->a + at, r + (size_t)i * ff,
                        sums + (size_t)i * 2 * ff, j->stream + at);
}

/* Parameters: w1, w2, w3 where gated, then biases in that order where there are any. */
static void feed_backward(const trace *t, int stack_index, int sublayer)
{
    const ph_pass_stack *stack = &t->p->stacks[stack_index];
    const ph_sublayer *def = &stack->def->sublayers[sublayer];
    const ph_config *c = &t->p->model->config;
    int gated = ph_config_gated(c), matrices = gated ? 3 : 2;
    feed_rows j = {.t = t, .a = stack->acts[sublayer].a, .products = 1 + gated};
    j.stream = t->stream[stack_index];
    for (int i = 0; i <= gated; i++) {
        j.first[i] = (linear){param(t, def->first + 2 * i), c->model_dim, c->ff_dim};
        if (def->count > matrices) j.bias[i] = param(t, def->first + matrices + 2 * i);
    }
    j.second = (linear){param(t, def->first + 1), c->ff_dim, c->model_dim};
    ph_ctx_spread(t->p->model->ctx, stack->rows, feed_item, &j);
}

/* ---- attention --------------------------------------------------------------------- */

typedef struct attend_job {
    const trace *t;
    const ph_pass_stack *queries, *keys;
    ph_attn attn;
    const float *x, *bias; /* values = x w + bias; or NULL */
    linear l;
    int shared, dim; /* heads that share a value head; of a head */
    const float *weights;
    double *heads, *values, *to; /* relevance of heads; values and theirs */
} attend_job;

static void values_item(void *arg, int lane, int row)
{
    const attend_job *j = arg;
    double *sums = lane_of(j->t, lane);
    double *to = j->values + (size_t)row * (size_t)j->l.out;
    add_contributions(j->t, j->l, j->x + (size_t)row * (size_t)j->l.in, sums);
    for (int v = 0; v < j->l.out; v++)
        to[v] = sums[v] + (j->bias ? (double)j->bias[v] : 0);
}

/* One token of a head: its output is the sum over keys of weight times value. */
static void weigh_values(const attend_job *j, const float *weights, int keys,
                         const double *r, size_t first, double *sums)
{
    size_t dim = (size_t)j->dim, step = (size_t)j->l.out;
    double *above = sums, *below = sums + dim;
    memset(sums, 0, 2 * dim * sizeof *sums);
    for (int k = 0; k < keys; k++)
        for (size_t c = 0; weights[k] != 0 && c < dim; c++) {
            double z = (double)weights[k] * j->values[first + (size_t)k * step + c];
            *(z > 0 ? &above[c] : &below[c]) += z;
        }
    for (size_t c = 0; c < dim; c++) make_factors(j->t->rule, r[c], &above[c], &below[c]);
    for (int k = 0; k < keys; k++)
        for (size_t c = 0; weights[k] != 0 && c < dim; c++) {
            size_t at = first + (size_t)k * step + c;
            double z = (double)weights[k] * j->values[at];
            j->to[at] += z * (z > 0 ? above[c] : below[c]);
        }
}

/* All tokens of a text, all heads that share a value head. */
static void attend_item(void *arg, int lane, int index)
{
    const attend_job *j = arg;
    int groups = j->attn.q_heads / j->shared, group = index % groups;
    const int32_t *from = j->queries->offsets + index / groups;
    const int32_t *keys = j->keys->offsets + index / groups;
    size_t width = (size_t)(j->attn.q_heads * j->dim);
    size_t first = (size_t)keys[0] * (size_t)j->l.out + (size_t)(group * j->dim);
    for (int h = group * j->shared; h < (group + 1) * j->shared; h++)
        for (int row = from[0]; row < from[1]; row++) {
            size_t at = (size_t)h * (size_t)j->attn.q_total + (size_t)row;
            weigh_values(j, j->weights + at * (size_t)j->attn.kv_len, keys[1] - keys[0],
                         j->heads + (size_t)row * width + (size_t)(h * j->dim), first,
                         lane_of(j->t, lane));
        }
}

/* Of each head and text its share of the relevance of all heads of the site. */
static void take_shares(const ph_eval *e, const ph_eval_site *site, const attend_job *j,
                        double *values)
{
    size_t width = (size_t)(site->heads * site->dim);
    for (int b = 0; b < e->used; b++) {
        double all = 0;
        for (int h = 0; h < site->heads; h++) {
            double sum = 0;
            for (int r = j->queries->offsets[b]; r < j->queries->offsets[b + 1]; r++)
                for (int c = 0; c < site->dim; c++)
                    sum += j->heads[(size_t)r * width + (size_t)(h * site->dim + c)];
            values[(size_t)(site->first_head + h) * (size_t)e->batch + (size_t)b] = sum;
            all += sum;
        }
        for (int h = 0; h < site->heads; h++)
            values[(size_t)(site->first_head + h) * (size_t)e->batch + (size_t)b] /=
                guarded(j->t->rule, all);
    }
}

static ph_status run_attention(ph_eval *e, const ph_eval_site *site, attend_job *j,
                               float *weights, float *shown, double *values)
{
    const trace *t = j->t;
    const ph_act *act = &j->queries->acts[site->sublayer];
    ph_ctx *ctx = e->m->ctx;
    ph_bound bound;
    ph_model_bind(e->m, &j->queries->def->sublayers[site->sublayer], t->p->block, NULL,
                  &bound);
    linear out = {bound.wo.data, site->heads * site->dim, e->m->config.model_dim};
    ph_look_at at = {.weights = weights};
    PH_TRY(ph_attend_look(e->open, site->stack, site->sublayer, &at, shown));
    j->weights = weights, j->l.w = bound.wv.data, j->bias = bound.weights.bv;
    linear_rows(t, out, j->queries->rows, act->heads, t->output, j->heads);
    take_shares(e, site, j, values);
    ph_ctx_spread(ctx, j->keys->rows, values_item, j);
    ph_ctx_spread(ctx, e->used * (j->attn.q_heads / j->shared), attend_item, j);
    linear_rows(t, j->l, j->keys->rows, j->x, j->to, t->stream[j->keys - t->p->stacks]);
    return PH_OK;
}

static ph_status attend_backward(ph_eval *e, const trace *t, const ph_eval_site *site,
                                 double *values)
{
    const ph_pass_stack *stacks = t->p->stacks;
    const ph_act *act = &stacks[site->stack].acts[site->sublayer];
    int cross =
        stacks[site->stack].def->sublayers[site->sublayer].kind == PH_SUBLAYER_CROSS;
    attend_job j = {.t = t, .queries = &stacks[site->stack], .dim = site->dim};
    j.keys = cross ? &stacks[0] : j.queries;
    j.attn = *ph_layer_about(act->layer).attn;
    j.x = cross ? j.keys->acts[j.keys->def->count - 1].residual.n : act->a;
    int groups = j.attn.v_heads ? j.attn.v_heads : j.attn.q_heads;
    j.shared = j.attn.q_heads / groups;
    j.l = (linear){NULL, e->m->config.model_dim, groups * site->dim};
    size_t rows = (size_t)j.queries->rows, width = (size_t)(site->heads * site->dim);
    size_t value_count = (size_t)j.keys->rows * (size_t)j.l.out;
    size_t weight_count =
        (size_t)site->heads * (size_t)j.attn.q_total * (size_t)j.attn.kv_len;
    PH_TRY(allocate(
        t, rows * width + 2 * value_count + (weight_count + rows * width) / 2 + 1,
        &j.heads));
    j.values = j.heads + rows * width, j.to = j.values + value_count;
    float *weights = (float *)(j.to + value_count);
    ph_status status =
        run_attention(e, site, &j, weights, weights + weight_count, values);
    ph_ctx_release(e->m->ctx, j.heads);
    return status;
}

/* ---- where it starts --------------------------------------------------------------- */

static int likeliest(const float *scores, int count)
{
    int best = 0;
    for (int i = 1; i < count; i++)
        if (scores[i] > scores[best]) best = i;
    return best;
}

/* A score, the sum of x w: w has a step between its elements. */
static void start_score(const trace *t, int dim, const float *x, const float *w,
                        size_t step, double *to)
{
    double *z = lane_of(t, 0);
    for (int d = 0; d < dim; d++) z[d] = (double)x[d] * (double)w[(size_t)d * step];
    distribute(t->rule, 1, z, dim, to);
    t->rule->entering++;
}

static ph_status start_tokens(ph_pass *p, const trace *t)
{
    const ph_model *m = p->model;
    int last = p->stack_count - 1, vocab = m->config.vocab, rows = p->stacks[last].rows;
    size_t dim = (size_t)ph_config_embed_dim(&m->config);
    PH_TRY(ph_pass_logits(p));
    const float *x = p->masked ? p->masked->norm.n : ph_pass_output(p);
    double *to = p->masked ? t->output : t->stream[last];
    for (int r = 0; r < rows; r++) {
        if (p->batch.labels[r] < 0) continue;
        int token = likeliest(p->logits + (size_t)r * (size_t)vocab, vocab);
        start_score(t, (int)dim, x + (size_t)r * dim,
                    param(t, m->output) + (size_t)token * dim, 1, to + (size_t)r * dim);
    }
    linear l = {p->masked ? param(t, m->masked) : NULL, m->config.model_dim, (int)dim};
    if (p->masked) linear_rows(t, l, rows, ph_pass_output(p), to, t->stream[last]);
    return PH_OK;
}

/* The vector of a text is a sum of its tokens, or has each element from one. */
static void pool_backward(const trace *t, ph_pooling how, int text, const double *r,
                          const int32_t *origin)
{
    const ph_pass *p = t->p;
    const int32_t *rows = p->stacks[0].offsets + text;
    size_t dim = (size_t)p->model->config.model_dim, at = (size_t)rows[0] * dim;
    int count = rows[1] - rows[0];
    int counted = how == PH_POOL_LAST ? ph_pool_count(p, text) : count;
    double *z = lane_of(t, 0), *to = z + count;
    for (size_t d = 0; d < dim; d++) {
        for (int i = 0; i < count; i++) {
            double weight = how == PH_POOL_MAX ? origin[d] == i
                                               : (double)ph_pool_weight(how, i, counted);
            z[i] = weight * (double)ph_pass_output(p)[at + (size_t)i * dim + d];
            to[i] = 0;
        }
        distribute(t->rule, r[d], z, count, to);
        for (int i = 0; i < count; i++) t->stream[0][at + (size_t)i * dim + d] += to[i];
    }
}

/* Every way to pool a text has its part of the vector. */
static void unpool_text(const trace *t, int text, const double *r)
{
    const ph_config *c = &t->p->model->config;
    size_t dim = (size_t)c->model_dim,
           at = (size_t)text * (size_t)ph_config_pooled_dim(c);
    const int32_t *origin = t->p->pooled->origin;
    for (int i = 0; i < ph_config_poolings(c); i++, at += dim, r += dim)
        pool_backward(t, ph_config_pooling(c, i), text, r, origin ? origin + at : NULL);
}

/* The class that is likeliest, or the vector's product with itself. */
static void start_texts(const trace *t, int texts)
{
    const ph_pass *p = t->p;
    const ph_model *m = p->model;
    int classes = m->config.classes, pooler = m->config.pooler != 0;
    size_t dim = (size_t)ph_config_vector_dim(&m->config);
    size_t pooled = (size_t)ph_config_pooled_dim(&m->config);
    for (int b = 0; b < texts; b++) {
        const float *out = p->pooled->out + (size_t)b * dim;
        const float *scores = p->pooled->scores + (size_t)b * (size_t)classes;
        const float *w =
            classes ? param(t, m->classifier) + likeliest(scores, classes) : out;
        start_score(t, (int)dim, out, w, classes ? (size_t)classes : 1,
                    t->output + (size_t)b * dim);
    }
    double *r = t->output + (pooler ? (size_t)texts * dim : 0);
    linear l = {pooler ? param(t, m->pooler) : NULL, (int)pooled, (int)dim};
    if (pooler) linear_rows(t, l, texts, p->pooled->sum, t->output, r);
    for (int b = 0; b < texts; b++) unpool_text(t, b, r + (size_t)b * pooled);
}

/* The score of the likeliest link is q . k, and each a product of the states. */
static void start_links(const trace *t)
{
    const ph_pass *p = t->p;
    const ph_links *l = p->links;
    size_t dim = (size_t)p->model->config.model_dim;
    int len = p->shape.source_len, rows = p->stacks[0].rows;
    double *q = t->output, *k = q + (size_t)rows * dim, *parts = lane_of(t, 0) + dim;
    for (int r = 0; r < rows; r++) {
        if (p->batch.labels[r] < 0) continue;
        int best = likeliest(l->p + (size_t)r * (size_t)len, len);
        size_t at = (size_t)r * dim, key = (size_t)(r - p->stacks[0].positions[r] + best);
        const float *to = l->k + key * dim;
        memset(parts, 0, dim * sizeof *parts);
        start_score(t, (int)dim, l->q + at, to, 1, parts);
        for (size_t d = 0; d < dim; d++) {
            double both[2];
            distribute_product(t->rule, parts[d], (double)l->q[at + d], (double)to[d],
                               both);
            q[at + d] += both[0], k[key * dim + d] += both[1];
        }
    }
    for (int i = 0; i < 2; i++)
        linear_rows(t, (linear){param(t, p->model->links + i), (int)dim, (int)dim}, rows,
                    ph_pass_output(p), i ? k : q, t->stream[0]);
}

/* ---- all of it --------------------------------------------------------------------- */

ph_status ph_relevance_check(const ph_model *m)
{
    if (m->config.parallel)
        return ph_fail(m->ctx, PH_UNSUPPORTED,
                       "relevance goes from sublayer to sublayer, and those of the model "
                       "are parallel");
    for (int i = 0; i < m->stack_count; i++)
        for (int s = 0; s < m->stacks[i].count; s++) {
            const ph_sublayer *def = &m->stacks[i].sublayers[s];
            if (def->site < 0 ||
                !strcmp(ph_model_layer(m, &m->stacks[i], def, 1, 1, 1).attn.variant,
                        "mha"))
                continue;
            return ph_fail(m->ctx, PH_UNSUPPORTED,
                           "relevance goes through plain attention only, and the model "
                           "has %s",
                           def->variant);
        }
    return PH_OK;
}

static ph_status run_stacks(ph_eval *e, const trace *t, double *values)
{
    int site = e->m->site_count;
    for (int i = t->p->stack_count - 1; i >= 0; i--)
        for (int s = t->p->stacks[i].def->count - 1; s >= 0; s--) {
            ph_sublayer_kind kind = t->p->stacks[i].def->sublayers[s].kind;
            if (kind == PH_SUBLAYER_BIAS) continue; /* a bias takes no relevance */
            divide_residual(t, i, s);
            if (kind == PH_SUBLAYER_FEED)
                feed_backward(t, i, s);
            else
                PH_TRY(attend_backward(e, t, &e->sites[--site], values));
        }
    return PH_OK;
}

/* Doubles that a row of any step needs. */
static size_t lane_size(const ph_eval *e)
{
    const ph_config *c = &e->m->config;
    int heads = ph_config_heads_width(c), vector = ph_config_vector_dim(c);
    return 2 * (size_t)(c->model_dim + c->embed_dim + vector + heads + e->source_len) +
           8 * (size_t)c->ff_dim;
}

static double sum_of(const trace *t, int stack)
{
    size_t count =
        (size_t)t->p->stacks[stack].rows * (size_t)t->p->model->config.model_dim;
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += t->stream[stack][i];
    return sum;
}

static ph_status run(ph_eval *e, trace *t, double *values)
{
    ph_pass *p = e->open;
    t->rule->entering = t->rule->leaving = 0;
    if (p->links)
        start_links(t);
    else if (e->m->config.classes || ph_eval_is_vectors(e))
        start_texts(t, e->used);
    else
        PH_TRY(start_tokens(p, t));
    PH_TRY(run_stacks(e, t, values));
    for (int i = 0; i < p->stack_count; i++) t->rule->leaving += sum_of(t, i);
    return PH_OK;
}

ph_status ph_relevance_batch(ph_eval *e, ph_relevance *rule, double *values)
{
    const ph_pass *p = e->open;
    trace t = {.p = p, .rule = rule, .lane = lane_size(e)};
    size_t dim = (size_t)e->m->config.model_dim, rows[2] = {0, 0};
    for (int i = 0; i < p->stack_count; i++) rows[i] = (size_t)p->stacks[i].rows * dim;
    const ph_config *c = &e->m->config;
    size_t wide = (size_t)(ph_config_pooled_dim(c) + ph_config_vector_dim(c));
    size_t both = rows[0] + rows[1],
           outputs = 2 * both + (size_t)e->batch * (2 * dim + wide) +
                     (size_t)p->stacks[0].rows * (size_t)c->embed_dim;
    size_t lanes = (size_t)e->m->ctx->threads * t.lane;
    PH_TRY(allocate(&t, both + outputs + lanes, &t.stream[0]));
    t.stream[1] = t.stream[0] + rows[0];
    t.output = t.stream[0] + both;
    t.lanes = t.output + outputs;
    ph_status status = run(e, &t, values);
    ph_ctx_release(e->m->ctx, t.stream[0]);
    return status;
}
