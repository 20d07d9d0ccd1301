/*
 * judge.c - see judge.h.
 */
#include "judge.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { FLOOR_ULPS = 4 };

/* ---- one tensor ------------------------------------------------------------------- */

static double row_size(const double *size, int dim)
{
    double top = 0;
    for (int d = 0; d < dim; d++) top = fmax(top, size[d]);
    return top;
}

/* Weights below the smallest normal number may vanish, and what they multiply. */
static double vanishing(const char *name)
{
    return name[0] == 'd' ? 1e-30 : ldexp(1, -120);
}

/* The yardstick's largest error in units of its row. */
static double yard_error(const char *name, const tensor *t, const double *truth,
                         const double *yard, const double *size)
{
    double worst = 0, nothing = vanishing(name);
    size_t dim = (size_t)t->dim, rows = dim ? tensor_count(t) / dim : 0;
    for (size_t r = 0; r < rows; r++) {
        double unit = row_size(size + r * dim, t->dim);
        for (size_t n = r * dim; unit > 0 && n < (r + 1) * dim; n++)
            if (isfinite(truth[n]))
                worst = fmax(worst, (fabs(yard[n] - truth[n]) - nothing) / unit);
    }
    return worst;
}

/* The same, but no less than two standard deviations of the rounding of a score, which
   moves a weight by as much of itself: where few elements carry it the yardstick may come
   out exact by chance. */
static double yardstick(const judge *j, const char *name, const tensor *t,
                        const double *truth, const double *yard, const double *size)
{
    return fmax(yard_error(name, t, truth, yard, size), 2 * j->size.chain);
}

static const char *const gradients[] = {"dq", "dk", "dv"};

/* What f16 may lose of small weights, and of small ds. */
static double lost_in(const judge *j, const char *name)
{
    for (int n = 0; n < 3; n++)
        if (!strcmp(name, gradients[n])) return j->grad_lost[n];
    return strcmp(name, "out") ? 0 : j->weights_lost;
}

/* Below this the engine's float may have underflown: dropped or not cannot be told. */
static const double untold = 1e-35;

/* One element; 1 if it is fine. limit is in units of unit. */
static int element(judge *j, const char *name, const tensor *t, int b, int h, int i,
                   int d, double truth, double limit, double unit)
{
    double found = tensor_get(t, b, h, i, d);
    if (isinf(truth)) {
        if (found == truth) return 1;
    } else {
        double allowed = limit * unit, step = 0;
        if (unit > 0) allowed += vanishing(name);
        if (unit > 0) allowed += lost_in(j, name);
        if (unit > 0 && j->p.keep) allowed += 1e4 * untold; /* all that cannot be told */
        if (unit > 0 && t->dtype != PH_F32)
            step = 0.5 * oracle_ulp(t->dtype, fabs(truth) + allowed);
        double error = fabs(found - truth), most = t->dtype == PH_F16 ? 65520 : 3.4e38;
        if (isinf(found) && found * truth > 0 && fabs(truth) + allowed >= most) return 1;
        if (allowed > 0 && (error - step) / allowed > j->worst) {
            j->worst = (error - step) / allowed;
            j->worst_in = name;
        }
        allowed += step;
        if (error <= allowed) return 1;
        snprintf(j->why, sizeof j->why,
                 "%s(%d,%d,%d,%d) is %.9g, expected %.9g; error %.3g, allowed %.3g "
                 "(%.2f ulp of %.3g)",
                 name, b, h, i, d, found, truth, error, allowed, limit * 8388608, unit);
        return 0;
    }
    snprintf(j->why, sizeof j->why, "%s(%d,%d,%d,%d) is %.9g, expected %.9g", name, b, h,
             i, d, found, truth);
    return 0;
}

/* What tensor cores may add to the error, in units of the row. A score that is off by d
   moves a weight by 2 d: in its own term and in the divisor. */
static double tensor_core_error(const judge *j, const char *name)
{
    if (!strcmp(name, "lse")) return j->scores_cut + j->cap_error;
    for (int n = 0; n < 3; n++)
        if (!strcmp(name, gradients[n])) return j->grad_error[n];
    if (strcmp(name, "out")) return 0;
    return 2 * (j->scores_cut * j->size.peak + j->cap_error) + j->values_cut +
           j->weight_step;
}

static double largest_of(const double *x, size_t count)
{
    double largest = 0;
    for (size_t n = 0; n < count; n++)
        if (isfinite(x[n])) largest = fmax(largest, fabs(x[n]));
    return largest;
}

static void measure_tensor_cores(judge *j, const problem *p)
{
    const double cut = ldexp(21, -25);
    size_t values = (size_t)j->p.batch * (size_t)j->p.v_heads * (size_t)j->p.kv_len *
                    (size_t)j->p.v_dim;
    if (!p->tensor_cores) return;
    j->scores_cut = cut * ((j->p.qk_dim + 15) / 16);
    j->cap_error = ldexp(p->attn.softcap, -21);
    j->values_cut = cut * ((j->p.kv_len + 15) / 16);
    j->weight_step = ldexp(1, p->attn.dtype == PH_F16 ? -11 : -8);
    if (p->attn.dtype == PH_F16)
        j->weights_lost = ldexp(j->p.kv_len, -25) * largest_of(j->p.v, values);
}

static void measure_tensor_grads(judge *j, const problem *p)
{
    const dense *d = &j->p;
    const double cut = ldexp(21, -25);
    const int group = d->q_heads / d->k_heads;
    const size_t rows = dense_rows(d), keys = (size_t)d->batch * (size_t)d->kv_len;
    if (!p->tensor_grads) return;
    const double step = ldexp(1, p->attn.dtype == PH_F16 ? -11 : -8);
    const double weight =
        cut * ((d->qk_dim + 15) / 16) * j->size.peak + j->cap_error + step;
    const double center = weight + cut * ((d->v_dim + 15) / 16);
    const double over_keys = cut * ((d->kv_len + 15) / 16);
    const double over_rows = cut * group * ((d->q_len + 15) / 16);
    j->grad_error[0] = center + over_keys;
    j->grad_error[1] = center + over_rows;
    j->grad_error[2] = weight + over_rows;
    if (p->attn.dtype != PH_F16) return;
    j->grad_lost[0] =
        ldexp(d->kv_len * d->scale, -25) *
        largest_of(d->k, keys * (size_t)d->k_heads * (size_t)d->qk_dim);
    j->grad_lost[1] = ldexp(group * d->q_len * d->scale, -25) *
                      largest_of(d->q, rows * (size_t)d->qk_dim);
    j->grad_lost[2] =
        ldexp(group * d->q_len, -25) * largest_of(d->dout, rows * (size_t)d->v_dim);
}

static int judge_tensor(judge *j, const char *name, const tensor *t, const double *truth,
                        const double *yard, const double *size, double factor)
{
    if (!t->mem) return 1;
    double limit = factor * yardstick(j, name, t, truth, yard, size);
    limit += FLOOR_ULPS * ldexp(1, -23) * (1 + j->size.peak);
    limit += tensor_core_error(j, name);
    size_t n = 0;
    for (int b = 0; b < t->batch; b++)
        for (int h = 0; h < t->heads; h++)
            for (int i = 0; i < t->len; i++) {
                double unit = row_size(size + n, t->dim);
                for (int d = 0; d < t->dim; d++, n++)
                    if (!element(j, name, t, b, h, i, d, truth[n], limit, unit)) return 0;
            }
    return 1;
}

/* ---- looks ------------------------------------------------------------------------ */

static size_t cell(const dense *p, int b, int h, int i, int k)
{
    size_t row =
        ((size_t)b * (size_t)p->q_heads + (size_t)h) * (size_t)p->q_len + (size_t)i;
    return row * (size_t)p->kv_len + (size_t)k;
}

/* The part of the weights that the rectangle selects, cut out of truth and yardstick. */
static int judge_rect(judge *j, const problem *p)
{
    const ph_look_at *l = &p->look;
    if (!p->rect.mem) return 1;
    size_t count = (size_t)l->rows * (size_t)l->cols, n = 0;
    double *part = malloc((3 * count + 1) * sizeof *part);
    for (int i = 0; i < l->rows; i++)
        for (int k = 0; k < l->cols; k++, n++) {
            size_t at =
                cell(&j->p, l->rect_batch, l->rect_head, l->row0 + i, l->col0 + k);
            part[n] = j->truth.weights[at];
            part[count + n] = j->yard.weights[at];
            part[2 * count + n] = /* the unit is the whole row's, not the cut's */
                row_size(j->size.weights + at - (l->col0 + k), j->p.kv_len);
        }
    int fine = judge_tensor(j, "rect", &p->rect, part, part + count, part + 2 * count, 2);
    free(part);
    for (int i = 0; fine && p->weights.mem && i < l->rows; i++)
        for (int k = 0; k < l->cols; k++)
            if (tensor_bits(&p->rect, 0, 0, i, k) !=
                tensor_bits(&p->weights, l->rect_batch, l->rect_head, l->row0 + i,
                            l->col0 + k)) {
                snprintf(j->why, sizeof j->why, "rect(%d,%d) differs from weights", i, k);
                return 0;
            }
    return fine;
}

/* Does key k come before key m in the list of the largest weights? */
static int before(double wk, int k, double wm, int m)
{
    return wk > wm || (wk == wm && k < m);
}

/* One row of top_weight and top_index against the full weights of the same call. */
static int top_row(judge *j, const problem *p, int b, int h, int i)
{
    const int32_t *index = (const int32_t *)p->top_index->bytes;
    index += cell(&j->p, b, h, i, 0) / (size_t)(j->p.kv_len ? j->p.kv_len : 1) *
             (size_t)p->look.top_k;
    int seen = 0, top_k = p->look.top_k;
    for (int k = 0; k < j->p.kv_len; k++) seen += dense_sees(&j->p, b, h, i, k);
    for (int n = 0; n < top_k; n++) {
        double weight = tensor_get(&p->top_weight, b, h, i, n);
        int key = index[n], fine;
        if (n >= seen) {
            fine = key == -1 && weight == 0;
        } else {
            fine = key >= 0 && key < j->p.kv_len && dense_sees(&j->p, b, h, i, key);
            fine = fine && weight == tensor_get(&p->weights, b, h, i, key);
            int ahead = 0; /* keys that come before this one */
            for (int k = 0; fine && k < j->p.kv_len; k++)
                if (dense_sees(&j->p, b, h, i, k))
                    ahead += before(tensor_get(&p->weights, b, h, i, k), k, weight, key);
            fine = fine && ahead == n;
        }
        if (fine) continue;
        snprintf(j->why, sizeof j->why,
                 "top(%d,%d,%d) entry %d is key %d with %.9g; the row sees %d keys", b, h,
                 i, n, key, weight, seen);
        return 0;
    }
    return 1;
}

/* Without the full weights: each entry must have about the weight the truth says, and the
   n-th entry about the n-th largest. */
static int top_row_alone(judge *j, const problem *p, int b, int h, int i, double limit)
{
    const int32_t *index = (const int32_t *)p->top_index->bytes;
    int kv_len = j->p.kv_len, last = -1;
    index +=
        cell(&j->p, b, h, i, 0) / (size_t)(kv_len ? kv_len : 1) * (size_t)p->look.top_k;
    const double *truth = j->truth.weights + cell(&j->p, b, h, i, 0);
    double smallest = INFINITY;
    limit = limit * (kv_len ? row_size(truth, kv_len) : 0) + ldexp(1, -120);
    for (int n = 0; n < p->look.top_k; n++) {
        double weight = tensor_get(&p->top_weight, b, h, i, n);
        int key = index[n], seen = 0, above = 0;
        int fine = key >= -1 && key < kv_len && weight <= smallest;
        fine = fine && (weight < smallest || key > last || key == -1);
        if (fine && key >= 0) {
            fine = dense_sees(&j->p, b, h, i, key);
            fine = fine && fabs(weight - truth[key]) <= limit;
            for (int k = 0; k < kv_len; k++) above += truth[k] > weight + limit;
            fine = fine && above <= n;
        } else if (fine) {
            for (int k = 0; k < kv_len; k++) seen += dense_sees(&j->p, b, h, i, k);
            fine = weight == 0 && seen <= n;
        }
        last = key;
        smallest = weight;
        if (fine) continue;
        snprintf(j->why, sizeof j->why, "top(%d,%d,%d) entry %d is key %d with %.9g", b,
                 h, i, n, key, weight);
        return 0;
    }
    return 1;
}

static int judge_top(judge *j, const problem *p)
{
    if (!p->top_weight.mem) return 1;
    double limit = 0;
    if (!p->weights.mem && tensor_count(&p->top_weight)) {
        tensor all = {PH_F32,      j->p.batch, j->p.q_heads, j->p.q_len,
                      j->p.kv_len, {0, 0, 0},  NULL,         0};
        limit = 2 * yardstick(j, "top", &all, j->truth.weights, j->yard.weights,
                              j->size.weights);
        limit += FLOOR_ULPS * ldexp(1, -23) * (1 + j->size.peak);
    }
    for (int b = 0; b < j->p.batch; b++)
        for (int h = 0; h < j->p.q_heads; h++)
            for (int i = 0; i < j->p.q_len; i++) {
                int fine = p->weights.mem ? top_row(j, p, b, h, i)
                                          : top_row_alone(j, p, b, h, i, limit);
                if (!fine) return 0;
            }
    return 1;
}

/* ---- whole calls ------------------------------------------------------------------ */

/* A weight that is exactly 0 where the undropped one is not tiny was dropped. */
static void read_dropped(judge *j, const problem *p)
{
    size_t cells = dense_rows(&j->p) * (size_t)j->p.kv_len, n = 0;
    j->p.keep = malloc(cells + 1);
    for (int b = 0; b < j->p.batch; b++)
        for (int h = 0; h < j->p.q_heads; h++)
            for (int i = 0; i < j->p.q_len; i++)
                for (int k = 0; k < j->p.kv_len; k++, n++)
                    j->p.keep[n] = tensor_get(&p->weights, b, h, i, k) != 0 ||
                                   j->truth.undropped[n] < untold;
}

void judge_open(judge *j, const problem *p)
{
    memset(j, 0, sizeof *j);
    dense_load(&j->p, &p->attn, &p->args, p->attn.backward ? &p->grads : NULL);
    answer_init(&j->truth, &j->p, p->attn.backward);
    answer_init(&j->size, &j->p, p->attn.backward);
    answer_init(&j->yard, &j->p, p->attn.backward);
    oracle_forward(&j->p, &j->truth, &j->size);
    if (p->attn.dropout > 0) {
        read_dropped(j, p);
        answer_free(&j->truth);
        answer_free(&j->size);
        answer_init(&j->truth, &j->p, p->attn.backward);
        answer_init(&j->size, &j->p, p->attn.backward);
        oracle_forward(&j->p, &j->truth, &j->size);
    }
    yard_forward(&j->p, &j->yard);
    measure_tensor_cores(j, p);
}

void judge_close(judge *j)
{
    dense_free(&j->p);
    answer_free(&j->truth);
    answer_free(&j->size);
    answer_free(&j->yard);
}

const char *judge_forward(judge *j, const problem *p)
{
    const answer *t = &j->truth, *y = &j->yard, *s = &j->size;
    int fine = judge_tensor(j, "out", &p->out, t->out, y->out, s->out, 2) &&
               judge_tensor(j, "lse", &p->lse, t->lse, y->lse, s->lse, 2);
    if (fine && p->args.look && drive_device == PH_CPU) /* else made by two devices */
        fine = judge_tensor(j, "weights", &p->weights, t->weights, y->weights, s->weights,
                            2) &&
               judge_tensor(j, "col_sum", &p->col_sum, t->col_sum, y->col_sum, s->col_sum,
                            2) &&
               judge_tensor(j, "entropy", &p->entropy, t->entropy, y->entropy, s->entropy,
                            2) &&
               judge_rect(j, p) && judge_top(j, p);
    const char *gap = fine ? problem_gaps(p) : NULL;
    if (gap)
        snprintf(j->why, sizeof j->why, "something was written between the rows of %s",
                 gap);
    return fine && !gap ? NULL : j->why;
}

const char *judge_backward(judge *j, const problem *p)
{
    uint8_t *keep = j->p.keep;
    j->p.keep = NULL;
    dense_free(&j->p); /* once more, now with out and lse of the engine */
    dense_load(&j->p, &p->attn, &p->args, &p->grads);
    j->p.keep = keep;
    oracle_backward(&j->p, &j->truth, &j->size);
    yard_backward(&j->p, &j->yard);
    measure_tensor_grads(j, p);
    const answer *t = &j->truth, *y = &j->yard, *s = &j->size;
    int fine = judge_tensor(j, "dq", &p->dq, t->dq, y->dq, s->dq, 3) &&
               judge_tensor(j, "dk", &p->dk, t->dk, y->dk, s->dk, 3) &&
               judge_tensor(j, "dv", &p->dv, t->dv, y->dv, s->dv, 3) &&
               judge_tensor(j, "dbias", &p->dbias, t->dbias, y->dbias, s->dbias, 3) &&
               judge_tensor(j, "dgate", &p->dgate, t->dgate, y->dgate, s->dgate, 3) &&
               judge_tensor(j, "dsink", &p->dsink, t->dsink, y->dsink, s->dsink, 3);
    const char *gap = fine ? problem_gaps(p) : NULL;
    if (gap)
        snprintf(j->why, sizeof j->why, "something was written between the rows of %s",
                 gap);
    return fine && !gap ? NULL : j->why;
}
