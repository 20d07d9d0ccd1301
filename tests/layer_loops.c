/*
 * layer_loops.c - the whole layer as plain loops in double; see layer_loops.h.
 */
#include "layer_loops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { MOST = LOOPS_MOST };

const uint64_t *loops_seed;

typedef loops_item item;
typedef loops_problem problem;
typedef loops_result result;

const char *const loops_names[ITEMS] = {
    "x",  "memory", "value_memory", "wq",   "wk",   "wv",   "wo",    "bq",   "bk",  "bv",
    "bo", "q_norm", "k_norm",       "bias", "gate", "sink", "alibi", "dout", "dlse"};

int loops_size(const item *t)
{
    int count = 1;
    for (int i = 0; i < t->rank; i++) count *= t->n[i];
    return count;
}

/* ---- plain loops ---- */

static void project(const problem *p, const item *x, int in, const item *w, const item *b,
                    int len, int columns, double *y)
{
    for (int row = 0; row < p->batch * len; row++)
        for (int c = 0; c < columns; c++) {
            double sum = b->there ? b->v[c] : 0;
            for (int i = 0; i < in; i++)
                sum += x->v[row * in + i] * w->v[i * columns + c];
            y[row * columns + c] = sum;
        }
}

static void norm(const problem *p, double *y, const double *gain)
{
    double sum = 0;
    for (int d = 0; d < p->qk_dim; d++) sum += y[d] * y[d];
    for (int d = 0; d < p->qk_dim; d++) y[d] *= gain[d] / sqrt(sum / p->qk_dim + 1e-6);
}

static void rotate(const problem *p, double *y, int position)
{
    int half = p->qk_dim / 2;
    for (int i = 0; i < half; i++) {
        double angle = position * pow(p->base, -2.0 * i / p->qk_dim);
        double *one = p->rope == 1 ? y + i : y + 2 * i;
        double *two = p->rope == 1 ? y + i + half : y + 2 * i + 1;
        double a = *one, b = *two;
        *one = a * cos(angle) - b * sin(angle);
        *two = b * cos(angle) + a * sin(angle);
    }
}

static void position(const problem *p, double *y, int heads, int len, const item *gain,
                     int start)
{
    for (int row = 0; row < p->batch * len * heads; row++) {
        if (p->norm) norm(p, y + row * p->qk_dim, gain->v);
        if (p->rope) rotate(p, y + row * p->qk_dim, start + row / heads % len);
    }
}

static double gate_of(const problem *p, int b, int h, int i)
{
    const item *gate = &p->t[GATE];
    if (p->has_lens && i >= p->q_lens[b]) return 0;
    if (!gate->there) return 1;
    return gate->v[gate->rank == 3 ? (b * p->heads + h) * p->q_len + i : h];
}

/* The logit of key j for row i, or -inf when hidden. */
static double logit(const problem *p, const result *r, int b, int h, int i, int j)
{
    int kh = h / (p->heads / p->k_heads), at = i + p->offset;
    double sum = 0, scale = p->scale != 0 ? p->scale : 1 / sqrt(p->qk_dim);
    if (p->left >= 0 && j < at - p->left) return -INFINITY;
    if (p->right >= 0 && j > at + p->right) return -INFINITY;
    if (p->has_lens && j >= p->kv_lens[b]) return -INFINITY;
    if (p->has_visible && !p->visible[h * p->kv_len + j]) return -INFINITY;
    for (int d = 0; d < p->qk_dim; d++)
        sum += r->q[((b * p->q_len + i) * p->heads + h) * p->qk_dim + d] *
               r->k[((b * p->kv_len + j) * p->k_heads + kh) * p->qk_dim + d];
    sum *= scale;
    if (p->t[BIAS].there) sum += p->t[BIAS].v[(h * p->q_len + i) * p->kv_len + j];
    if (p->t[ALIBI].there) sum -= p->t[ALIBI].v[h] * abs(at - j);
    return p->softcap > 0 ? p->softcap * tanh(sum / p->softcap) : sum;
}

static void one_row(const problem *p, result *r, int b, int h, int i)
{
    double s[64], top = -INFINITY, sum = 0, gate = gate_of(p, b, h, i);
    int row = (b * p->heads + h) * p->q_len + i, vh = h / (p->heads / p->v_heads);
    r->lse[row] = -INFINITY;
    if (gate == 0) return;
    for (int j = 0; j < p->kv_len; j++) top = fmax(top, s[j] = logit(p, r, b, h, i, j));
    if (p->t[SINK].there) top = fmax(top, p->t[SINK].v[h]);
    if (top == -INFINITY) return;
    if (p->t[SINK].there) sum = exp(p->t[SINK].v[h] - top);
    for (int j = 0; j < p->kv_len; j++) sum += exp(s[j] - top);
    r->lse[row] = top + log(sum);
    for (int j = 0; j < p->kv_len; j++) {
        double w = exp(s[j] - r->lse[row]);
        if (p->kept) w *= p->kept[row * p->kv_len + j] != 0 ? p->grown : 0;
        r->weights[row * p->kv_len + j] = w;
        r->col_sum[(b * p->heads + h) * p->kv_len + j] += w;
        if (w > 0) r->entropy[row] -= w * log(w);
        for (int d = 0; w > 0 && d < p->v_dim; d++)
            r->heads[row * p->v_dim + d] +=
                gate * w * r->v[((b * p->kv_len + j) * p->v_heads + vh) * p->v_dim + d];
    }
}

static void output(const problem *p, result *r, int b, int i)
{
    for (int o = 0; o < p->out_dim; o++) {
        double sum = p->t[BO].there ? p->t[BO].v[o] : 0;
        for (int c = 0; c < p->heads * p->v_dim; c++) {
            int h = c / p->v_dim, row = (b * p->heads + h) * p->q_len + i;
            double w = p->t[WO].there ? p->t[WO].v[c * p->out_dim + o] : c == o;
            sum += r->heads[row * p->v_dim + c % p->v_dim] * w;
        }
        if (p->has_lens && i >= p->q_lens[b]) sum = 0;
        r->out[(b * p->q_len + i) * p->out_dim + o] = sum;
    }
}

void loops_solve(const problem *p, result *r)
{
    const item *source = &p->t[p->t[MEMORY].there ? MEMORY : X], *t = p->t;
    memset(r, 0, sizeof *r);
    project(p, &t[X], p->model, &t[WQ], &t[BQ], p->q_len, p->heads * p->qk_dim, r->q);
    project(p, source, p->source, &t[WK], &t[BK], p->kv_len, p->k_heads * p->qk_dim,
            r->k);
    const item *values = t[VALUE_MEMORY].there ? &t[VALUE_MEMORY] : source;
    project(p, values, t[WV].n[0], &t[WV], &t[BV], p->kv_len, p->v_heads * p->v_dim,
            r->v);
    position(p, r->q, p->heads, p->q_len, &t[Q_NORM], p->offset);
    position(p, r->k, p->k_heads, p->kv_len, &t[K_NORM], 0);
    for (int b = 0; b < p->batch; b++)
        for (int h = 0; h < p->heads; h++)
            for (int i = 0; i < p->q_len; i++) one_row(p, r, b, h, i);
    for (int b = 0; b < p->batch; b++)
        for (int i = 0; i < p->q_len; i++) output(p, r, b, i);
}

/* What dout and dlse are the gradients of. */
double loops_loss(const problem *p)
{
    static result r;
    double sum = 0;
    loops_solve(p, &r);
    for (int i = 0; i < loops_size(&p->t[DOUT]); i++) sum += p->t[DOUT].v[i] * r.out[i];
    for (int i = 0; p->t[DLSE].there && i < loops_size(&p->t[DLSE]); i++)
        if (isfinite(r.lse[i])) sum += p->t[DLSE].v[i] * r.lse[i];
    return sum;
}

/* ---- problems ---- */

/* A tensor of random numbers, or none; sizes below 0 end the list. */
void loops_put(problem *p, int i, ph_dtype type, int n0, int n1, int n2, int n3)
{
    static float wide[MOST], back[MOST];
    uint64_t state = *loops_seed * 100 + (uint64_t)i;
    item *t = &p->t[i];
    const int n[] = {n0, n1, n2, n3};
    *t = (item){.there = 1, .type = type};
    while (t->rank < 4 && n[t->rank] >= 0) t->n[t->rank] = n[t->rank], t->rank++;
    int count = loops_size(t);
    for (int k = 0; k < count; k++) wide[k] = check_normal(&state) * (i == X ? 1 : 0.6f);
    ph_tensor from = {.type = PH_F32,
                      .rank = 1,
                      .shape = {(size_t)count},
                      .data = wide,
                      .bytes = (size_t)count * 4};
    ph_tensor_convert(&from, type, t->file);
    from.type = type, from.data = t->file;
    from.bytes = (size_t)count * ph_dtype_bytes(type, 1);
    ph_tensor_convert(&from, PH_F32, back);
    for (int k = 0; k < count; k++) t->v[k] = (double)back[k];
}

problem *loops_make(int heads, int k_heads, int v_heads, int kv_len, ph_dtype type)
{
    static problem p;
    memset(&p, 0, sizeof p);
    p.batch = 2, p.q_len = 5, p.model = p.source = 6, p.qk_dim = 4, p.v_dim = 3;
    p.heads = heads, p.k_heads = k_heads, p.v_heads = v_heads, p.out_dim = 7;
    p.kv_len = kv_len ? kv_len : p.q_len;
    p.left = p.right = -1;
    loops_put(&p, X, type, 2, 5, 6, -1);
    if (kv_len) p.source = 5, loops_put(&p, MEMORY, type, 2, kv_len, 5, -1);
    loops_put(&p, WQ, PH_F32, 6, heads * 4, -1, -1);
    loops_put(&p, WK, PH_F32, p.source, k_heads * 4, -1, -1);
    loops_put(&p, WV, PH_F32, p.source, v_heads * 3, -1, -1);
    loops_put(&p, WO, PH_F32, heads * 3, 7, -1, -1);
    loops_put(&p, DOUT, type, 2, 5, 7, -1);
    return &p;
}

void loops_put_biases(problem *p, ph_dtype type)
{
    loops_put(p, BQ, type, p->heads * p->qk_dim, -1, -1, -1);
    loops_put(p, BK, type, p->k_heads * p->qk_dim, -1, -1, -1);
    loops_put(p, BV, type, p->v_heads * p->v_dim, -1, -1, -1);
    loops_put(p, BO, type, p->out_dim, -1, -1, -1);
}

void loops_put_value_memory(problem *p, ph_dtype type)
{
    loops_put(p, VALUE_MEMORY, type, p->batch, p->kv_len, 4, -1);
    loops_put(p, WV, PH_F32, 4, p->v_heads * p->v_dim, -1, -1);
}

void loops_put_norm(problem *p, ph_dtype type)
{
    p->norm = 1;
    loops_put(p, Q_NORM, type, p->qk_dim, -1, -1, -1);
    loops_put(p, K_NORM, type, p->qk_dim, -1, -1, -1);
}

/* (in, heads*dim) to (heads, in, dim) */
static void cut(const float *from, int in, int heads, int dim, float *to)
{
    for (int h = 0; h < heads; h++)
        for (int i = 0; i < in; i++)
            for (int d = 0; d < dim; d++)
                to[(h * in + i) * dim + d] = from[(i * heads + h) * dim + d];
}

int loops_heads(const problem *p, int i)
{
    return i == WK ? p->k_heads : i == WV ? p->v_heads : p->heads;
}

/* (in, columns) to (columns, in), elements of `size` bytes */
static void transpose(const void *from, int in, int columns, int size, void *to)
{
    for (int i = 0; i < in; i++)
        for (int c = 0; c < columns; c++)
            memcpy((char *)to + (c * in + i) * size,
                   (const char *)from + (i * columns + c) * size, (size_t)size);
}

trial loops_load(const problem *p)
{
    static float weights[4][MOST];
    trial b = {0};
    for (int i = 0; i < ITEMS; i++) {
        const item *t = &p->t[i];
        int n = t->n[0], c = t->n[1], h = loops_heads(p, i);
        if (!t->there) continue;
        if (p->transposed && i >= WQ && i <= WO) {
            transpose(t->file, n, c, (int)ph_dtype_bytes(t->type, 1), weights[i - WQ]);
            trial_add(&b, loops_names[i], t->type, weights[i - WQ], c, n, -1, -1);
        } else if (p->per_head && i >= WQ && i <= WV) {
            cut(t->file, n, h, c / h, weights[i - WQ]);
            trial_add(&b, loops_names[i], t->type, weights[i - WQ], h, n, c / h, -1);
        } else if (p->per_head && i == WO) {
            trial_add(&b, loops_names[i], t->type, t->file, h, n / h, c, -1);
        } else {
            trial_add(&b, loops_names[i], t->type, t->file, n, t->rank > 1 ? c : -1,
                      t->rank > 2 ? t->n[2] : -1, t->rank > 3 ? t->n[3] : -1);
        }
    }
    if (p->has_visible)
        trial_add(&b, "visible", PH_BOOL, p->visible, 1, p->heads, 1, p->kv_len);
    if (p->has_lens) trial_add(&b, "q_lens", PH_I32, p->q_lens, p->batch, -1, -1, -1);
    if (p->has_lens) trial_add(&b, "kv_lens", PH_I32, p->kv_lens, p->batch, -1, -1, -1);
    return b;
}
