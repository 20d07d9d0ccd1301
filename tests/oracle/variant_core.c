/*
 * variant_core.c - attention over given q, k, v: the steps from cell to out.
 *
 *     s_ij  = scale (q_i.k_j + content_j), mixed over heads where the variant does
 *     t_ij  = cap tanh((s_ij + bias_ij - alibi |pos_i - j|) / cap), pos_i = i + offset
 *     p_i   = normaliser over the keys that row i sees, and the sink
 *     out_i = gate_i sum_j a_ij v_j,   a = p, mixed over heads where the variant does,
 *                                      times the factors of dropout
 */
#include <math.h>

#include "base/rng.h"
#include "variant_parts.h"

/* ---- who sees whom ----------------------------------------------------------------- */

/* 0: the row is not computed. */
static double gate_of(const work *w, int b, int h, int i)
{
    int row = (b * w->heads + h) * w->q_len + i;
    double value = w->route ? w->route[row] : 1;
    if (w->q_lens && i >= (int)w->q_lens[b]) return 0;
    return w->gate ? value * w->gate->data[w->gate->rank == 3 ? row : h] : value;
}

/* Element of a tensor (batch or 1, heads or 1, q_len or 1, kv_len). */
static double broadcast(const bag_tensor *t, int b, int h, int i, int j)
{
    int row = t->dim[0] > 1 ? b : 0;
    row = row * t->dim[1] + (t->dim[1] > 1 ? h : 0);
    row = row * t->dim[2] + (t->dim[2] > 1 ? i : 0);
    return t->data[row * t->dim[3] + j];
}

int sees(const work *w, int b, int h, int i, int j)
{
    return w->seen[((b * w->heads + h) * w->q_len + i) * w->kv_len + j];
}

static int is_seen(const work *w, int b, int h, int i, int j)
{
    const variant_options *o = w->o;
    int at = i + o->offset;
    if (gate_of(w, b, h, i) == 0) return 0;
    if (w->kv_lens && j >= (int)w->kv_lens[b]) return 0;
    if (o->causal && j > at) return 0;
    if (o->window && o->left >= 0 && j < at - o->left) return 0;
    if (o->window && o->right >= 0 && j > at + o->right) return 0;
    if (w->visible && broadcast(w->visible, b, h, i, j) == 0) return 0;
    return !w->bias || broadcast(w->bias, b, h, i, j) != -INFINITY;
}

static void look_around(work *w)
{
    unsigned char *seen = w->seen;
    for (int b = 0; b < w->batch; b++)
        for (int h = 0; h < w->heads; h++)
            for (int i = 0; i < w->q_len; i++)
                for (int j = 0; j < w->kv_len; j++)
                    *seen++ = (unsigned char)is_seen(w, b, h, i, j);
}

/* ---- scores ------------------------------------------------------------------------ */

static double product(const work *w, int b, int h, int i, int j)
{
    int kh = h / (w->heads / w->k_heads);
    const double *q = w->q + ((b * w->heads + h) * w->q_len + i) * w->qk_dim;
    const double *k = w->k + ((b * w->k_heads + kh) * w->kv_len + j) * w->qk_dim;
    double sum = w->content ? w->content[(b * w->heads + h) * w->kv_len + j] : 0;
    for (int d = 0; d < w->qk_dim; d++) sum += q[d] * k[d];
    return sum;
}

static void score(work *w)
{
    double *cell = w->cell;
    for (int b = 0; b < w->batch; b++)
        for (int h = 0; h < w->heads; h++)
            for (int i = 0; i < w->q_len; i++)
                for (int j = 0; j < w->kv_len; j++)
                    *cell++ = w->scale * product(w, b, h, i, j);
}

/* Bias, alibi and soft-cap of what is seen. */
static double modify(const work *w, double s, int b, int h, int i, int j)
{
    double cap = w->o->softcap;
    if (w->bias) s += broadcast(w->bias, b, h, i, j);
    if (w->alibi) s -= w->alibi[h] * fabs((double)(i + w->o->offset - j));
    return cap > 0 ? cap * tanh(s / cap) : s;
}

/* ---- weights ----------------------------------------------------------------------- */

double recomputed(work *w, double statistic)
{
    double rounded[1] = {statistic};
    jitter(w, rounded, 1);
    return w->recomputes && isfinite(statistic) ? rounded[0] : statistic;
}

double softmax(work *w, double *s, int n, const double *sink)
{
    double lse = variant_entmax(s, n, 1, sink), error = lse - recomputed(w, lse);
    for (int j = 0; j < n; j++) s[j] *= exp(error);
    return lse;
}

/* One row of cells: modified, gathered to what is seen, normalised, put back. */
static void one_row(work *w, const variant *v, int b, int h, int i, double *list)
{
    int row = (b * w->heads + h) * w->q_len + i, n = 0;
    double *cell = w->cell + row * w->kv_len;
    const double *sink = w->sink ? &w->sink[h] : NULL;
    for (int j = 0; j < w->kv_len; j++)
        if (sees(w, b, h, i, j)) list[n++] = modify(w, cell[j], b, h, i, j);
    w->lse[row] = -INFINITY;
    jitter(w, list, n);
    for (int j = 0; j < n; j++) w->peak = fmax(w->peak, fabs(list[j]));
    if (gate_of(w, b, h, i) != 0 && (n > 0 || sink))
        w->lse[row] = v->normalise ? v->normalise(w, h, list, n, sink)
                                   : softmax(w, list, n, sink);
    n = 0;
    for (int j = 0; j < w->kv_len; j++) cell[j] = sees(w, b, h, i, j) ? list[n++] : 0;
}

static void normalise(work *w, const variant *v)
{
    double *list = take(w, w->kv_len);
    for (int b = 0; b < w->batch; b++)
        for (int h = 0; h < w->heads; h++)
            for (int i = 0; i < w->q_len; i++) one_row(w, v, b, h, i, list);
}

void variant_drop(double rate, uint64_t key, double *row, int count)
{
    for (int i = 0; i < count && rate > 0; i++)
        row[i] *= ph_rng_at(key, (uint32_t)i) < rate * 0x1p32 ? 0 : 1 / (1 - rate);
}

static void drop(work *w)
{
    for (int r = 0; r < w->batch * w->heads * w->q_len; r++) {
        int b = r / w->q_len / w->heads, h = r / w->q_len % w->heads, i = r % w->q_len;
        uint64_t key = ph_rng_key(w->o->seed, (uint64_t)b, (uint64_t)h, (uint64_t)i);
        variant_drop(w->o->dropout, key, w->cell + r * w->kv_len, w->kv_len);
    }
}

/* ---- values ------------------------------------------------------------------------ */

static void weigh(work *w)
{
    for (int b = 0; b < w->batch; b++)
        for (int h = 0; h < w->heads; h++)
            for (int i = 0; i < w->q_len; i++) {
                int row = (b * w->heads + h) * w->q_len + i;
                int vh = b * w->v_heads + h / (w->heads / w->v_heads);
                double gate = gate_of(w, b, h, i), *out = w->out + row * w->v_dim;
                for (int j = 0; j < w->kv_len; j++) {
                    const double *v = w->v + (vh * w->kv_len + j) * w->v_dim;
                    if (!sees(w, b, h, i, j)) continue;
                    for (int d = 0; d < w->v_dim; d++)
                        out[d] += gate * w->cell[row * w->kv_len + j] * v[d];
                }
            }
}

/* What attention gives, moved to the values of the forward pass. */
static void put_attended(work *w)
{
    int count = w->batch * w->heads * w->q_len * w->v_dim;
    double *to = w->o->brief ? NULL
                             : bag_put(w->result, "attended", w->batch, w->heads,
                                       w->q_len, w->v_dim);
    for (int n = 0; n < count; n++) {
        if (w->o->attended) w->out[n] += w->o->attended[n];
        if (to) to[n] = w->out[n];
    }
}

void attend(work *w, const variant *v)
{
    int rows = w->batch * w->heads * w->q_len, cells = rows * w->kv_len;
    w->cell = take(w, cells);
    w->lse = take(w, rows);
    w->out = take(w, rows * w->v_dim);
    w->out_heads = w->heads;
    w->seen = (unsigned char *)take(w, cells / 8 + 1);
    w->recomputes = w->o->recompute_seed != 0;
    look_around(w);
    score(w);
    jitter(w, w->cell, cells);
    if (v->pre) v->pre(w);
    normalise(w, v);
    jitter(w, w->cell, cells);
    jitter(w, w->lse, rows);
    if (v->post) v->post(w);
    drop(w);
    weigh(w);
    jitter(w, w->out, rows * w->v_dim);
    w->recomputes = 0;
    put_attended(w);
    if (v->combine) v->combine(w);
    if (v->gate) v->gate(w);
}
