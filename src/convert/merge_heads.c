/*
 * merge_heads.c - fewer key and value heads by alignment and merging, more by copies.
 */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "convert/convert.h"

/* One of the two tensors that are merged, keys or values. What becomes of them is

       merged = sum over the group of x_i to_i        x_i ~ merged back_i

   and back_i goes to those who use them: rows of wo become back_i wo, queries q back_i^T.
   Rotations r_i have to_i = r_i / members and back_i = r_i^T. */
typedef struct part {
    int rows, dim, heads, groups; /* rows: with that of the biases */
    const double *gram;           /* (rows, rows) */
    double *w, *merged;           /* (heads, rows, dim), (groups, rows, dim) */
    ph_freedom freedom;
    double *grams;     /* (heads, heads, dim, dim) */
    double *weight;    /* (heads, dim, dim) what a unit of error costs, PH_MERGE_FIT */
    double *to, *back; /* (heads, dim, dim) */
    double *scratch;   /* (rows, dim) */
    double *other;     /* (rows, dim) */
    double total, lost, left; /* squared norms: of all, of what is lost, of what is not */
} part;

static double *head_of(const part *p, double *w, int head)
{
    return w + (size_t)head * (size_t)p->rows * (size_t)p->dim;
}

static double *square_of(const part *p, double *list, int i)
{
    return list + (size_t)i * (size_t)p->dim * (size_t)p->dim;
}

/* Sum over tokens of the squared norms of x w. */
static double energy(const part *p, const double *w)
{
    ph_multiply(p->rows, p->rows, p->dim, p->gram, w, p->scratch);
    double sum = ph_dot(p->rows * p->dim, w, p->scratch);
    return sum > 0 ? sum : 0; /* rounding */
}

static void compute_grams(const part *p)
{
    for (int j = 0; j < p->heads; j++) {
        ph_multiply(p->rows, p->rows, p->dim, p->gram, head_of(p, p->w, j), p->scratch);
        for (int i = 0; i < p->heads; i++)
            ph_multiply_left(p->dim, p->rows, p->dim, head_of(p, p->w, i), p->scratch,
                             square_of(p, p->grams, i * p->heads + j));
    }
}

static double trace_of(const part *p, int head)
{
    const double *own = square_of(p, p->grams, head * p->heads + head);
    double sum = 0;
    for (int i = 0; i < p->dim; i++) sum += own[i * p->dim + i];
    return sum;
}

/* Minus the squared distance of each two heads after alignment, as a share of all. */
static void add_similarity(part *p, double *similarity, double *r, double *work)
{
    p->total = 0;
    for (int i = 0; i < p->heads; i++) p->total += trace_of(p, i);
    for (int i = 0; i < p->heads; i++)
        for (int j = 0; j < i; j++) {
            const double *c = square_of(p, p->grams, i * p->heads + j);
            double common = ph_align(p->freedom, p->dim, c, r, work);
            double distance = trace_of(p, i) + trace_of(p, j) - 2 * common;
            double share = p->total > 0 ? -distance / p->total : 0;
            similarity[i * p->heads + j] += share;
            similarity[j * p->heads + i] += share;
        }
}

/* ---- merging a group --------------------------------------------------------------- */

typedef struct group {
    const int *members;
    int count, number;
} group;

static void fill_random(const part *p, uint64_t key, double *to)
{
    double bound = sqrt(6.0 / (p->rows - 1 + p->groups * p->dim));
    for (int i = 0; i < (p->rows - 1) * p->dim; i++)
        to[i] = bound * ((double)ph_rng_at(key, (uint32_t)i) / 2147483648.0 - 1);
}

/* How much of the group is left, and lost. */
static void measure_group(part *p, const group *g, const double *merged, double *left,
                          double *lost)
{
    int count = p->rows * p->dim;
    *left = *lost = 0;
    for (int i = 0; i < g->count; i++) {
        const double *w = head_of(p, p->w, g->members[i]);
        ph_multiply(p->rows, p->dim, p->dim, merged, square_of(p, p->back, g->members[i]),
                    p->other);
        *left += energy(p, p->other);
        for (int n = 0; n < count; n++) p->other[n] = w[n] - p->other[n];
        *lost += energy(p, p->other);
    }
}

static void merge_group(part *p, const group *g, const ph_conversion *how, uint64_t key)
{
    double *to = head_of(p, p->merged, g->number), all = 0, left, lost;
    int count = p->rows * p->dim;
    for (int i = 0; i < g->count; i++) {
        const double *w = head_of(p, p->w, g->members[i]);
        ph_multiply(p->rows, p->dim, p->dim, w, square_of(p, p->to, g->members[i]),
                    p->other);
        ph_axpy(count, 1, p->other, to);
        all += trace_of(p, g->members[i]);
    }
    if (how->merge == PH_MERGE_RANDOM) fill_random(p, key, to);
    measure_group(p, g, to, &left, &lost);
    p->left += left;
    for (int i = 0; how->renorm && left > 0 && i < count; i++) to[i] *= sqrt(all / left);
    if (how->renorm && left > 0) measure_group(p, g, to, &left, &lost);
    p->lost += lost;
}

/* ---- a site ------------------------------------------------------------------------ */

typedef struct merging {
    ph_head_weights old, new;
    part keys, values;
    double *similarity, *work;
    double *group_r; /* (members, dim, dim) of one group */
    double *fit;     /* PH_MERGE_FIT: see ph_fit_group */
    int *members;
} merging;

static ph_freedom key_freedom(const ph_convert_site *site, ph_alignment align)
{
    const ph_config *c = &site->from->config;
    if (align == PH_ALIGN_NONE || (c->qk_norm && site->old->kind == PH_SUBLAYER_SELF))
        return PH_FREEDOM_NONE; /* gains of a norm belong to elements */
    if (site->rotary && c->rope_dims)
        return PH_FREEDOM_NONE; /* pairs of the part that is rotated are not those of a
                                   whole head */
    if (site->rotary)
        return c->rope_interleaved ? PH_FREEDOM_INTERLEAVED : PH_FREEDOM_HALF;
    if (align == PH_ALIGN_FULL) return PH_FREEDOM_ALL;
    return c->head_dim % 2 ? PH_FREEDOM_NONE : PH_FREEDOM_HALF;
}

static ph_status take_part(part *p, const merging *m, const ph_convert_site *site,
                           ph_chain *chain)
{
    size_t dim = (size_t)m->old.dim, heads = (size_t)m->old.kv;
    size_t floats = (size_t)(m->old.source + 1) * dim;
    p->rows = m->old.source + 1, p->dim = m->old.dim;
    p->heads = m->old.kv, p->groups = m->new.kv, p->gram = site->key_gram;
    PH_TRY(ph_chain_doubles(chain, heads * heads * dim * dim, &p->grams));
    PH_TRY(ph_chain_doubles(chain, heads * dim * dim, &p->weight));
    PH_TRY(ph_chain_doubles(chain, heads * dim * dim, &p->to));
    PH_TRY(ph_chain_doubles(chain, heads * dim * dim, &p->back));
    PH_TRY(ph_chain_doubles(chain, floats, &p->scratch));
    return ph_chain_doubles(chain, floats, &p->other);
}

static ph_status prepare(merging *m, const ph_convert_site *site,
                         const ph_conversion *how, ph_chain *chain)
{
    PH_TRY(ph_head_weights_load(&m->old, site, chain));
    m->new = m->old, m->new.kv = site->to->config.kv_heads;
    PH_TRY(ph_head_weights_take(&m->new, chain));
    size_t dim = (size_t)m->old.dim, heads = (size_t)m->old.kv;
    PH_TRY(take_part(&m->keys, m, site, chain));
    PH_TRY(take_part(&m->values, m, site, chain));
    m->keys.w = m->old.k, m->keys.merged = m->new.k;
    m->values.w = m->old.v, m->values.merged = m->new.v;
    m->keys.freedom = key_freedom(site, how->align);
    m->values.freedom = how->align == PH_ALIGN_NONE ? PH_FREEDOM_NONE : PH_FREEDOM_ALL;
    size_t work = (heads + 5) * dim * dim, search = ph_grouping_work(m->old.kv);
    PH_TRY(ph_chain_doubles(chain, work > search ? work : search, &m->work));
    PH_TRY(ph_chain_doubles(chain, heads * heads, &m->similarity));
    PH_TRY(ph_chain_doubles(chain, heads * dim * dim, &m->group_r));
    if (how->merge == PH_MERGE_FIT)
        PH_TRY(ph_chain_doubles(chain, ph_fit_work(m->old.dim, m->old.kv / m->new.kv),
                                &m->fit));
    return ph_chain_take(chain, heads, sizeof *m->members, &m->members);
}

/* Slopes and buckets of positions belong to head numbers: heads stay in order. */
static int may_reorder(const ph_convert_site *site)
{
    const ph_config *c = &site->from->config;
    return site->old->kind == PH_SUBLAYER_CROSS ||
           (c->positions != PH_POS_ALIBI && !ph_config_bucketed(c));
}

static void choose_groups(merging *m, const ph_convert_site *site,
                          const ph_conversion *how, int *group_of)
{
    int heads = m->old.kv, groups = m->new.kv;
    compute_grams(&m->keys);
    compute_grams(&m->values);
    add_similarity(&m->keys, m->similarity, m->group_r, m->work);
    add_similarity(&m->values, m->similarity, m->group_r, m->work);
    if (how->group == PH_GROUP_SIMILAR && may_reorder(site)) {
        ph_group_heads(heads, groups, m->similarity, how->seed, group_of, m->work);
        return;
    }
    for (int i = 0; i < heads; i++) group_of[i] = i / (heads / groups);
}

/* An error of a value costs what wo makes of it, one of a key what queries do. */
static void weigh_errors(merging *m, const ph_convert_site *site)
{
    const ph_head_weights *w = &m->old;
    int per = w->heads / w->kv, dim = w->dim, rows = w->in + 1;
    double *scaled = m->new.q; /* not filled yet */
    for (int h = 0; h < w->heads; h++) {
        double *value = square_of(&m->values, m->values.weight, h / per);
        double *key = square_of(&m->keys, m->keys.weight, h / per);
        const double *o = ph_head_o(w, h), *q = ph_head_q(w, h);
        for (int i = 0; i < dim; i++)
            for (int j = 0; j < dim; j++)
                value[i * dim + j] += ph_dot(w->out, o + (size_t)i * (size_t)w->out,
                                             o + (size_t)j * (size_t)w->out);
        ph_multiply(rows, rows, dim, site->query_gram, q, scaled);
        ph_multiply_add_left(dim, rows, dim, q, scaled, key);
    }
}

/* Rotations towards the mean of the group, or the least squares that start from them. */
static void align_part(merging *m, part *p, const group *g, ph_merging merge)
{
    int dim = p->dim;
    ph_align_group(p->freedom, dim, p->heads, p->grams, g->members, g->count, m->group_r,
                   m->work);
    for (int n = 0; n < g->count; n++) {
        double *to = square_of(p, p->to, g->members[n]);
        double *back = square_of(p, p->back, g->members[n]);
        const double *r = square_of(p, m->group_r, n);
        double share = merge == PH_MERGE_FIRST ? n == 0 : 1.0 / g->count;
        for (int i = 0; i < dim; i++)
            for (int j = 0; j < dim; j++) {
                to[i * dim + j] = share * r[i * dim + j];
                back[j * dim + i] = r[i * dim + j];
            }
    }
    if (merge == PH_MERGE_FIT && g->count > 1)
        ph_fit_group(p->freedom, dim, p->heads, p->grams, p->weight, g->members, g->count,
                     p->to, p->back, m->fit);
}

/* Queries and rows of wo take what belongs to their key and value head, and move to its
   group. */
static void move_queries(const merging *m, int head, int to)
{
    const ph_head_weights *w = &m->old;
    int per = w->heads / w->kv, dim = w->dim;
    const double *key = square_of(&m->keys, m->keys.back, head);
    const double *value = square_of(&m->values, m->values.back, head);
    for (int n = 0; n < per; n++) {
        const double *q = ph_head_q(w, head * per + n);
        double *moved = ph_head_q(&m->new, to * per + n);
        for (int r = 0; r <= w->in; r++)
            for (int i = 0; i < dim; i++)
                moved[(size_t)r * (size_t)dim + (size_t)i] =
                    ph_dot(dim, q + (size_t)r * (size_t)dim, key + i * dim);
        ph_multiply(dim, dim, w->out, value, ph_head_o(w, head * per + n),
                    ph_head_o(&m->new, to * per + n));
    }
}

static void merge_all(merging *m, const ph_conversion *how, uint64_t key,
                      const int *group_of)
{
    int at = 0;
    for (int n = 0; n < m->new.kv; n++) {
        group g = {m->members, 0, n};
        for (int i = 0; i < m->old.kv; i++)
            if (group_of[i] == n) m->members[g.count++] = i;
        align_part(m, &m->keys, &g, how->merge);
        align_part(m, &m->values, &g, how->merge);
        merge_group(&m->keys, &g, how, ph_rng_key(key, 0, (uint64_t)n, 0));
        merge_group(&m->values, &g, how, ph_rng_key(key, 1, (uint64_t)n, 0));
        for (int i = 0; i < g.count; i++) move_queries(m, m->members[i], at++);
    }
}

static double root_share(const part *p, double part_of)
{
    return p->total > 0 ? sqrt(part_of / p->total) : 0;
}

ph_status ph_merge_heads(const ph_convert_site *site, const ph_conversion *how,
                         int *group_of, ph_converted_site *report)
{
    ph_chain chain = {.ctx = site->from->ctx};
    merging m = {0};
    ph_status status = prepare(&m, site, how, &chain);
    if (status == PH_OK) {
        uint64_t key = ph_rng_key(how->seed, (uint64_t)site->old->site, 0, 0);
        choose_groups(&m, site, how, group_of);
        if (how->merge == PH_MERGE_FIT) weigh_errors(&m, site);
        merge_all(&m, how, key, group_of);
        ph_head_weights_store(&m.new, site);
        report->kv_heads = m.old.kv;
        report->key_error = root_share(&m.keys, m.keys.lost);
        report->value_error = root_share(&m.values, m.values.lost);
        report->key_norm = root_share(&m.keys, m.keys.left);
        report->value_norm = root_share(&m.values, m.values.left);
    }
    ph_chain_free(&chain);
    return status;
}

/* ---- copies ------------------------------------------------------------------------ */

ph_status ph_copy_heads(const ph_convert_site *site)
{
    ph_chain chain = {.ctx = site->from->ctx};
    ph_head_weights old, new;
    ph_status status = ph_head_weights_load(&old, site, &chain);
    new = old, new.kv = old.heads;
    if (status == PH_OK) status = ph_head_weights_take(&new, &chain);
    if (status == PH_OK) {
        size_t count = (size_t)(old.source + 1) * (size_t)old.dim;
        double *q = new.q, *o = new.o;
        new.q = old.q, new.o = old.o;
        for (int h = 0; h < old.heads; h++) {
            int from = h / (old.heads / old.kv);
            memcpy(ph_head_k(&new, h), ph_head_k(&old, from), count * sizeof *q);
            memcpy(ph_head_v(&new, h), ph_head_v(&old, from), count * sizeof *o);
        }
        ph_head_weights_store(&new, site);
    }
    ph_chain_free(&chain);
    return status;
}
