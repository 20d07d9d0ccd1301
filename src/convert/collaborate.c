/*
 * collaborate.c - collaborative heads (variants/collab.c) from plain ones.
 *
 * The scores of head h are x W_h y^T with W_h = wq_h wk_h^T. All W_h together are
 * approximated by a sum of R terms that heads share (CP decomposition),
 *
 *     W_h ~ a diag(mix_h) e^T        a (in, R), e (source, R), mix (heads, R)
 *
 * found by alternating least squares: each factor in turn is the solution of a linear
 * system. Nothing of size (heads, in, source) is formed. x and y are whitened first, so
 * that the error which becomes small is that of the scores on the texts. At full rank
 * the columns of wq and wk themselves are an exact solution.
 *
 * Biases: with q = x wq + bq, k = y wk + bk the score is x W_h y^T + (bq wk_h^T) y^T plus
 * what is the same for all keys, which a softmax ignores. The vector bq wk_h^T is the
 * head's content bias.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "convert/convert.h"

enum { SWEEPS = 100 };

typedef struct cp {
    ph_head_weights w;
    int rank;
    double *wq, *wk;      /* (heads, in, dim), (heads, source, dim), whitened */
    double *lq, *lk;      /* (in, in), (source, source) Cholesky factors of the inputs */
    double *a, *e;        /* (in, rank), (source, rank) */
    double *mix;          /* (heads, rank) */
    double *qa, *ke;      /* (heads, dim, rank) wq_h^T a, wk_h^T e */
    double *aa, *ee, *mm; /* (rank, rank) a^T a, e^T e, mix^T mix */
    double *system;       /* (rank, rank) */
    double *scaled;       /* (dim, rank) */
    double *next;         /* (in, rank) */
    double norm;          /* sum over heads of |W_h|^2 */
} cp;

static double *plane(double *list, int head, int rows, int columns)
{
    return list + (size_t)head * (size_t)rows * (size_t)columns;
}

/* ---- inputs ------------------------------------------------------------------------ */

/* The factor of the Gram matrix of inputs without the 1 behind them. Directions that the
   texts do not have count a hundredth of the mean. */
static ph_status factor(const ph_convert_site *site, int n, const double *gram, double *l)
{
    double mean = 0;
    for (int i = 0; i < n; i++) {
        memcpy(l + (size_t)i * (size_t)n, gram + (size_t)i * (size_t)(n + 1),
               (size_t)n * sizeof *l);
        mean += l[(size_t)i * (size_t)n + (size_t)i] / n;
    }
    if (ph_cholesky(n, l, 0.01 * mean) == 0) return PH_OK;
    return ph_fail(site->from->ctx, PH_BAD_VALUE,
                   "the inputs of attention are all 0 or not finite on the texts");
}

/* to (n, dim) = l^T w */
static void whiten(int n, int dim, const double *l, const double *w, double *to)
{
    memset(to, 0, (size_t)n * (size_t)dim * sizeof *to);
    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++)
            ph_axpy(dim, l[(size_t)i * (size_t)n + (size_t)j],
                    w + (size_t)i * (size_t)dim, to + (size_t)j * (size_t)dim);
}

/* f (n, rank) becomes l^-T f, by rows from the last. */
static void unwhiten(int n, int rank, const double *l, double *f)
{
    for (int i = n - 1; i >= 0; i--) {
        const double *row = l + (size_t)i * (size_t)n;
        double *x = f + (size_t)i * (size_t)rank;
        for (int r = 0; r < rank; r++) x[r] /= row[i];
        for (int j = 0; j < i; j++)
            ph_axpy(rank, -row[j], x, f + (size_t)j * (size_t)rank);
    }
}

/* ---- start ------------------------------------------------------------------------- */

/* Squared norm of W_h: the trace of (wq^T wq)(wk^T wk). */
static double squared_norm(const cp *c, int head, double *gq, double *gk)
{
    const ph_head_weights *w = &c->w;
    const double *wq = plane(c->wq, head, w->in, w->dim);
    const double *wk = plane(c->wk, head, w->source, w->dim);
    ph_multiply_left(w->dim, w->in, w->dim, wq, wq, gq);
    ph_multiply_left(w->dim, w->source, w->dim, wk, wk, gk);
    return ph_dot(w->dim * w->dim, gq, gk);
}

static double column_norm(int rows, int columns, const double *x, int column)
{
    double sum = 0;
    for (int i = 0; i < rows; i++) {
        double value = x[(size_t)i * (size_t)columns + (size_t)column];
        sum += value * value;
    }
    return sqrt(sum);
}

/* Rotates columns of wq and wk, which leaves W_h as it is, so that products of columns
   are its singular terms: those that are dropped are the smallest then. gq = l l^T,
   gk = m m^T, and u s v^T = l^T m gives wq l^-T u, wk m^-T v. A head without full rank
   stays as it is. */
static void rotate_columns(const cp *c, int head, double *work)
{
    int d = c->w.dim;
    size_t size = (size_t)d * (size_t)d;
    double *gq = work, *gk = gq + size, *product = gk + size, *ut = product + size;
    double *vt = ut + size, *s = vt + size, *row = s + d;
    squared_norm(c, head, gq, gk);
    if (ph_cholesky(d, gq, 0) || ph_cholesky(d, gk, 0)) return;
    for (int i = 0; i < d; i++)
        for (int j = 0; j < d; j++) {
            double sum = 0;
            for (int t = i > j ? i : j; t < d; t++) sum += gq[t * d + i] * gk[t * d + j];
            product[i * d + j] = sum;
        }
    ph_svd(d, d, product, ut, s, vt);
    const struct {
        int rows;
        double *w, *l, *basis;
    } sides[2] = {{c->w.in, plane(c->wq, head, c->w.in, d), gq, ut},
                  {c->w.source, plane(c->wk, head, c->w.source, d), gk, vt}};
    for (int n = 0; n < 2; n++)
        for (int r = 0; r < sides[n].rows; r++) {
            double *x = sides[n].w + (size_t)r * (size_t)d;
            ph_solve_lower(d, sides[n].l, x);
            for (int i = 0; i < d; i++)
                row[i] = sqrt(s[i]) * ph_dot(d, sides[n].basis + i * d, x);
            memcpy(x, row, (size_t)d * sizeof *x);
        }
}

static void copy_column(int rows, int from_columns, const double *from, int i,
                        int columns, double *to, int j)
{
    for (int r = 0; r < rows; r++)
        to[(size_t)r * (size_t)columns + (size_t)j] =
            from[(size_t)r * (size_t)from_columns + (size_t)i];
}

/* The R pairs of columns with the largest products of norms; each belongs to one head.
   order: (heads * dim) doubles. */
static void start(const cp *c, double *order)
{
    const ph_head_weights *w = &c->w;
    int all = w->heads * w->dim;
    for (int i = 0; i < all; i++) {
        int h = i / w->dim, t = i % w->dim;
        order[i] = column_norm(w->in, w->dim, plane(c->wq, h, w->in, w->dim), t) *
                   column_norm(w->source, w->dim, plane(c->wk, h, w->source, w->dim), t);
    }
    for (int i = 0, used = 0; used < c->rank; used++) {
        int best = -1;
        if (c->rank == all)
            best = i++;
        else
            for (int j = 0; j < all; j++)
                if (order[j] >= 0 && (best < 0 || order[j] > order[best])) best = j;
        int h = best / w->dim, t = best % w->dim;
        order[best] = -1;
        copy_column(w->in, w->dim, plane(c->wq, h, w->in, w->dim), t, c->rank, c->a,
                    used);
        copy_column(w->source, w->dim, plane(c->wk, h, w->source, w->dim), t, c->rank,
                    c->e, used);
        c->mix[(size_t)h * (size_t)c->rank + (size_t)used] = 1;
    }
}

/* ---- alternating least squares ----------------------------------------------------- */

static void project_a(const cp *c)
{
    const ph_head_weights *w = &c->w;
    for (int h = 0; h < w->heads; h++)
        ph_multiply_left(w->dim, w->in, c->rank, plane(c->wq, h, w->in, w->dim), c->a,
                         plane(c->qa, h, w->dim, c->rank));
    ph_multiply_left(c->rank, w->in, c->rank, c->a, c->a, c->aa);
}

static void project_e(const cp *c)
{
    const ph_head_weights *w = &c->w;
    for (int h = 0; h < w->heads; h++)
        ph_multiply_left(w->dim, w->source, c->rank, plane(c->wk, h, w->source, w->dim),
                         c->e, plane(c->ke, h, w->dim, c->rank));
    ph_multiply_left(c->rank, w->source, c->rank, c->e, c->e, c->ee);
}

/* The element-wise product of two Gram matrices, factored; the ridge makes up for terms
   that have become parallel. */
static int factor_system(const cp *c, const double *x, const double *y)
{
    size_t count = (size_t)c->rank * (size_t)c->rank;
    double trace = 0;
    for (size_t i = 0; i < count; i++) c->system[i] = x[i] * y[i];
    for (int i = 0; i < c->rank; i++)
        trace += c->system[(size_t)i * (size_t)(c->rank + 1)];
    return ph_cholesky(c->rank, c->system, 1e-10 * trace / c->rank + DBL_MIN);
}

static void solve_rows(const cp *c, int rows, double *x)
{
    for (int i = 0; i < rows; i++)
        ph_cholesky_solve(c->rank, c->system, x + (size_t)i * (size_t)c->rank);
}

/* a or e: sum over heads of w_h (other_h * mix_h), solved. */
static int solve_side(const cp *c, int rows, double *w, double *other,
                      const double *other_gram, double *side)
{
    int rank = c->rank, dim = c->w.dim;
    if (factor_system(c, c->mm, other_gram)) return 1;
    memset(c->next, 0, (size_t)rows * (size_t)rank * sizeof *c->next);
    for (int h = 0; h < c->w.heads; h++) {
        const double *mix = plane(c->mix, h, 1, rank), *from = plane(other, h, dim, rank);
        const double *wh = plane(w, h, rows, dim);
        for (int t = 0; t < dim; t++)
            for (int r = 0; r < rank; r++)
                c->scaled[t * rank + r] = from[t * rank + r] * mix[r];
        for (int i = 0; i < rows; i++)
            for (int t = 0; t < dim; t++)
                ph_axpy(rank, wh[(size_t)i * (size_t)dim + (size_t)t],
                        c->scaled + (size_t)t * (size_t)rank,
                        c->next + (size_t)i * (size_t)rank);
    }
    solve_rows(c, rows, c->next);
    memcpy(side, c->next, (size_t)rows * (size_t)rank * sizeof *side);
    return 0;
}

/* mix, and the squared error that is left. */
static int solve_mix(const cp *c, double *left)
{
    int rank = c->rank, heads = c->w.heads;
    double *rhs = c->next;
    memset(rhs, 0, (size_t)heads * (size_t)rank * sizeof *rhs);
    for (int h = 0; h < heads; h++)
        for (int t = 0; t < c->w.dim; t++) {
            const double *q = plane(c->qa, h, c->w.dim, rank) + (size_t)t * (size_t)rank;
            const double *k = plane(c->ke, h, c->w.dim, rank) + (size_t)t * (size_t)rank;
            for (int r = 0; r < rank; r++)
                rhs[(size_t)h * (size_t)rank + (size_t)r] += q[r] * k[r];
        }
    if (factor_system(c, c->aa, c->ee)) return 1;
    memcpy(c->mix, rhs, (size_t)heads * (size_t)rank * sizeof *rhs);
    solve_rows(c, heads, c->mix);
    ph_multiply_left(rank, heads, rank, c->mix, c->mix, c->mm);
    *left = c->norm - 2 * ph_dot(heads * rank, rhs, c->mix);
    for (size_t i = 0; i < (size_t)rank * (size_t)rank; i++)
        *left += c->aa[i] * c->ee[i] * c->mm[i];
    return 0;
}

/* Columns of a and e to norm 1, the rest into mix: no factor may grow while another
   shrinks. */
static void balance(const cp *c)
{
    for (int r = 0; r < c->rank; r++) {
        double na = column_norm(c->w.in, c->rank, c->a, r);
        double ne = column_norm(c->w.source, c->rank, c->e, r);
        if (!(na > 0) || !(ne > 0)) continue;
        for (int i = 0; i < c->w.in; i++)
            c->a[(size_t)i * (size_t)c->rank + (size_t)r] /= na;
        for (int i = 0; i < c->w.source; i++)
            c->e[(size_t)i * (size_t)c->rank + (size_t)r] /= ne;
        for (int h = 0; h < c->w.heads; h++)
            c->mix[(size_t)h * (size_t)c->rank + (size_t)r] *= na * ne;
    }
    project_a(c);
    project_e(c);
    ph_multiply_left(c->rank, c->w.heads, c->rank, c->mix, c->mix, c->mm);
}

/* Squared error over that of nothing. */
static double alternate(const cp *c)
{
    double last = INFINITY, left = c->norm;
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        balance(c);
        if (solve_side(c, c->w.in, c->wq, c->ke, c->ee, c->a)) break;
        project_a(c);
        if (solve_side(c, c->w.source, c->wk, c->qa, c->aa, c->e)) break;
        project_e(c);
        if (solve_mix(c, &left) || last - left <= 1e-5 * c->norm) break;
        last = left;
    }
    return c->norm > 0 && left > 0 ? left / c->norm : 0;
}

/* ---- a site ------------------------------------------------------------------------ */

static ph_status take(cp *c, ph_chain *chain, double **work)
{
    size_t rank = (size_t)c->rank, heads = (size_t)c->w.heads, dim = (size_t)c->w.dim;
    size_t in = (size_t)c->w.in, source = (size_t)c->w.source;
    size_t most = in > source ? in : source;
    const struct {
        double **to;
        size_t count;
    } all[] = {{&c->wq, heads * in * dim},
               {&c->wk, heads * source * dim},
               {&c->lq, in * in},
               {&c->lk, source * source},
               {&c->a, in * rank},
               {&c->e, source * rank},
               {&c->mix, heads * rank},
               {&c->qa, heads * dim * rank},
               {&c->ke, heads * dim * rank},
               {&c->aa, rank * rank},
               {&c->ee, rank * rank},
               {&c->mm, rank * rank},
               {&c->system, rank * rank},
               {&c->scaled, dim * rank},
               {&c->next, (most > heads ? most : heads) * rank},
               {work, 5 * dim * dim + 2 * dim + heads * dim}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        PH_TRY(ph_chain_doubles(chain, all[i].count, all[i].to));
    return PH_OK;
}

static ph_status decompose(cp *c, const ph_convert_site *site, double *work,
                           ph_converted_site *report)
{
    const ph_head_weights *w = &c->w;
    int full = c->rank == w->heads * w->dim;
    if (!full) PH_TRY(factor(site, w->in, site->query_gram, c->lq));
    if (!full) PH_TRY(factor(site, w->source, site->key_gram, c->lk));
    for (int h = 0; h < w->heads; h++) {
        int key = h / (w->heads / w->kv);
        double *wq = plane(c->wq, h, w->in, w->dim);
        double *wk = plane(c->wk, h, w->source, w->dim);
        memcpy(wq, ph_head_q(w, h), (size_t)w->in * (size_t)w->dim * sizeof *wq);
        memcpy(wk, ph_head_k(w, key), (size_t)w->source * (size_t)w->dim * sizeof *wk);
        if (full) continue;
        whiten(w->in, w->dim, c->lq, ph_head_q(w, h), wq);
        whiten(w->source, w->dim, c->lk, ph_head_k(w, key), wk);
        c->norm += squared_norm(c, h, work, work + w->dim * w->dim);
        rotate_columns(c, h, work);
    }
    start(c, work);
    report->key_norm = report->value_norm = 1;
    if (full) return PH_OK;
    report->key_error = sqrt(alternate(c));
    unwhiten(w->in, c->rank, c->lq, c->a);
    unwhiten(w->source, c->rank, c->lk, c->e);
    return PH_OK;
}

static void store(const ph_convert_site *site, const char *name, size_t count,
                  const double *from)
{
    int index = ph_sublayer_param(site->to, site->new, name);
    float *to = site->to->block + site->to->params[index].at;
    for (size_t i = 0; i < count; i++) to[i] = (float)from[i];
}

static void store_content(const cp *c, const ph_convert_site *site)
{
    const ph_head_weights *w = &c->w;
    int index = ph_sublayer_param(site->to, site->new, "content");
    if (index < 0) return;
    float *to = site->to->block + site->to->params[index].at;
    for (int h = 0; h < w->heads; h++) {
        const double *bias = ph_head_q(w, h) + (size_t)w->in * (size_t)w->dim;
        const double *wk = ph_head_k(w, h / (w->heads / w->kv));
        for (int i = 0; i < w->source; i++)
            *to++ = (float)ph_dot(w->dim, bias, wk + (size_t)i * (size_t)w->dim);
    }
}

/* Values as they are, a copy for each head where heads share them. */
static void store_values(const cp *c, const ph_convert_site *site)
{
    const ph_head_weights *w = &c->w;
    int matrix = ph_sublayer_param(site->to, site->new, "wv");
    int bias = ph_sublayer_param(site->to, site->new, "bv");
    float *to = site->to->block + site->to->params[matrix].at;
    for (int i = 0; i <= w->source; i++) {
        if (i == w->source && bias < 0) return;
        if (i == w->source) to = site->to->block + site->to->params[bias].at;
        for (int h = 0; h < w->heads; h++) {
            const double *v = ph_head_v(w, h / (w->heads / w->kv));
            for (int t = 0; t < w->dim; t++)
                *to++ = (float)v[(size_t)i * (size_t)w->dim + (size_t)t];
        }
    }
}

/* A decomposition of that rank, in memory of the chain. */
static ph_status run(cp *c, const ph_convert_site *site, int rank, ph_chain *chain,
                     ph_converted_site *report)
{
    double *work = NULL;
    *c = (cp){.rank = rank};
    PH_TRY(ph_head_weights_load(&c->w, site, chain));
    PH_TRY(take(c, chain, &work));
    return decompose(c, site, work, report);
}

ph_status ph_collaborate(const ph_convert_site *site, ph_converted_site *report)
{
    ph_chain chain = {.ctx = site->from->ctx};
    cp c;
    int mix = ph_sublayer_param(site->to, site->new, "mix");
    ph_status status = run(&c, site, site->to->params[mix].dims[1], &chain, report);
    if (status == PH_OK) {
        store(site, "wq", (size_t)c.w.in * (size_t)c.rank, c.a);
        store(site, "wk", (size_t)c.w.source * (size_t)c.rank, c.e);
        store(site, "mix", (size_t)c.w.heads * (size_t)c.rank, c.mix);
        store_content(&c, site);
        store_values(&c, site);
    }
    ph_chain_free(&chain);
    return status;
}

/* Bisection: full rank has no error. */
ph_status ph_collab_rank(const ph_convert_site *site, double error, int *rank)
{
    int dim = site->from->config.head_dim, low = 1, high = site->from->config.heads;
    while (low < high) {
        ph_chain chain = {.ctx = site->from->ctx};
        ph_converted_site report = {0};
        int middle = low + (high - low) / 2;
        cp c;
        ph_status status = run(&c, site, middle * dim, &chain, &report);
        ph_chain_free(&chain);
        PH_TRY(status);
        if (report.key_error <= error)
            high = middle;
        else
            low = middle + 1;
    }
    *rank = low * dim;
    return PH_OK;
}
