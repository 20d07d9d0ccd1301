/*
 * variant_judge.c - see variant_judge.h.
 */
#include "variant_judge.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "oracle.h"

static const double noise = 0x1p-23, forward_factor = 3, gradient_factor = 10,
                    floor_ulps = 4;

/* ---- open and close ---------------------------------------------------------------- */

static variant_options noisy_options(const variant_judge *j, int draw)
{
    variant_options o = j->c->o;
    o.noise = noise;
    o.noise_seed = 17 + (uint64_t)draw;
    o.frozen = NULL;
    return o;
}

/* For gradients: attention is recomputed with another noise. */
static variant_options noisy_backward(const variant_judge *j, int draw)
{
    variant_options o = noisy_options(j, draw);
    o.recompute_seed = o.noise_seed + DRAWS;
    o.frozen = j->stray[draw];
    o.attended = j->attended[draw];
    return o;
}

/* Sum of |dout out| of one row of a head, wo taken back. */
static double row_work(const variant_judge *j, const bag_tensor *heads, int row)
{
    const bag_tensor *wo = bag_find(&j->c->in, "wo"), *d = bag_find(&j->c->in, "dout");
    int dim = heads->dim[3], len = heads->dim[2], count = heads->dim[1];
    int h = row / len % count, token = row / len / count * len + row % len;
    int columns = d->dim[d->rank - 1];
    double sum = 0;
    for (int e = 0; e < dim; e++) {
        double back =
            wo ? 0
               : d->data[d->rank == 4 ? row * dim + e : token * columns + h * dim + e];
        for (int o = 0; wo && o < columns; o++)
            back += wo->data[(h * dim + e) * columns + o] * d->data[token * columns + o];
        sum += fabs(back * heads->data[row * dim + e]);
    }
    return sum;
}

/* Half a step of a number near 1 in the file's type, where the backward pass reads an out
   that was rounded to it; else 0. */
static double out_step(const variant_judge *j)
{
    if (!bag_find(&j->c->in, "q") || j->c->s.type == PH_F32) return 0;
    return j->c->s.type == PH_F16 ? 0x1p-11 : 0x1p-8;
}

/* The same of row n of lse, which diff has two of for a head. */
static double work_of(const variant_judge *j, int n)
{
    const bag_tensor *lse = bag_find(&j->truth, "lse"),
                     *heads = bag_find(&j->truth, "heads");
    if (!heads) heads = bag_find(&j->truth, "out");
    int len = lse->dim[2], pair = lse->dim[1] / heads->dim[1];
    return row_work(j, heads, n / len / pair * len + n % len);
}

/* A gradient of the gates that a router computes, off by the rounding of dout.out / gate;
   nothing without a router. */
static void stray_gates(variant_judge *j, bag *in, double step)
{
    const bag_tensor *gate = bag_find(&j->truth, "gate");
    if (!gate) return;
    double *d = bag_put(in, "dgate", gate->dim[0], gate->dim[1], gate->dim[2], -1);
    for (int n = 0; n < bag_size(gate); n++) {
        double u = 2 * check_uniform(&j->c->random) - 1;
        if (gate->data[n] != 0) d[n] = step * u * work_of(j, n) / gate->data[n];
    }
}

/* The inputs with dlse off by the rounding of dout.out. */
static bag stray_inputs(variant_judge *j)
{
    const bag_tensor *lse = bag_find(&j->truth, "lse");
    bag in = bag_copy(&j->c->in);
    double *dlse = bag_data(&in, "dlse"), step = fmax(noise, out_step(j));
    if (!dlse) dlse = bag_put(&in, "dlse", lse->dim[0], lse->dim[1], lse->dim[2], -1);
    for (int n = 0; n < bag_size(lse); n++)
        dlse[n] += step * (2 * check_uniform(&j->c->random) - 1) * work_of(j, n);
    stray_gates(j, &in, step);
    return in;
}

void variant_judge_open(variant_judge *j, variant_case *c)
{
    memset(j, 0, sizeof *j);
    j->c = c;
    c->o.variant = c->spec;
    c->o.frozen = NULL;
    j->peak = variant_forward(&c->o, &c->in, &j->truth);
    j->frozen = variant_freeze(&c->o, &c->in);
    for (int n = 0; n < DRAWS; n++) {
        variant_options o = noisy_options(j, n);
        variant_forward(&o, &c->in, &j->noisy[n]);
        j->stray[n] = variant_freeze(&o, &c->in);
        if (!bag_find(&c->in, "dout")) continue;
        j->stray_in[n] = stray_inputs(j);
        o = noisy_backward(j, n);
        j->attended[n] = variant_recompute(&o, &c->in);
    }
    j->elements = 6;
    j->directions = 2;
}

void variant_judge_close(variant_judge *j)
{
    bag_free(&j->truth);
    free(j->frozen);
    for (int n = 0; n < DRAWS; n++) {
        bag_free(&j->noisy[n]);
        bag_free(&j->stray_in[n]);
        free(j->stray[n]);
        free(j->attended[n]);
    }
}

/* ---- elements ---------------------------------------------------------------------- */

static int complain(variant_judge *j, const char *name, int at, double found,
                    double truth, double allowed)
{
    snprintf(j->why, sizeof j->why,
             "%s[%d] is %.9g, expected %.9g; error %.3g, allowed %.3g", name, at, found,
             truth, fabs(found - truth), allowed);
    return 0;
}

/* Half the distance between neighbours of a half type at x; 0 for float. */
static double half_step(ph_dtype type, double x)
{
    if (type == PH_F32) return 0;
    return 0.5 * oracle_ulp(type == PH_F16 ? PH_F16 : PH_BF16, x);
}

static int within(variant_judge *j, const char *name, int at, double found, double truth,
                  double allowed, double step)
{
    double error = fabs(found - truth);
    if (found == truth) return 1;
    if (allowed > 0 && (error - step) / allowed > j->worst) {
        j->worst = (error - step) / allowed;
        snprintf(j->worst_in, sizeof j->worst_in, "%s", name);
    }
    if (error <= allowed + step) return 1;
    return complain(j, name, at, found, truth, allowed + step);
}

/* How far a derivative from differences may be off itself: they divide the rounding of
   the loss, a few dozen units of double of what it adds up, by their step. */
static double difference_error(const variant_judge *j)
{
    static const char *const of[] = {"out", "lse"}, *const with[] = {"dout", "dlse"};
    double terms = 1, step = 0x1p-11;
    for (int n = 0; n < 2; n++) {
        const bag_tensor *t = bag_find(&j->truth, of[n]);
        const double *d = bag_data(&j->c->in, with[n]);
        for (int i = 0; d && i < bag_size(t); i++)
            if (isfinite(t->data[i])) terms += fabs(t->data[i] * d[i]);
    }
    return 64 * 0x1p-53 * terms / step;
}

static double floor_of(const variant_judge *j, double size)
{
    return floor_ulps * 0x1p-23 * (1 + j->peak) * size;
}

/* A tensor of the forward pass, all of it. */
static int judge_result(variant_judge *j, const bag_tensor *t, const float *found,
                        ph_dtype type)
{
    double size = !strcmp(t->name, "entropy"), stray = 0; /* weights add up to 1 */
    for (int n = 0; n < DRAWS; n++)
        for (int i = 0; i < bag_size(t); i++) {
            double noisy = bag_data(&j->noisy[n], t->name)[i];
            if (!isfinite(t->data[i])) continue;
            size = fmax(size, fabs(t->data[i]));
            stray = fmax(stray, fabs(noisy - t->data[i]));
        }
    double allowed = forward_factor * stray + floor_of(j, size);
    for (int i = 0; i < bag_size(t); i++)
        if (!within(j, t->name, i, (double)found[i], t->data[i], allowed,
                    half_step(type, fabs(t->data[i]) + allowed)))
            return 0;
    return 1;
}

/* ---- gradients --------------------------------------------------------------------- */

/* Truth along a direction and how far the noisy oracle strays from it; 0: at a corner, or
   so near to one that noise moves across. */
static int derivatives(variant_judge *j, bag_tensor *t, const double *direction,
                       double *truth, double *stray)
{
    variant_options o = j->c->o;
    int kink;
    o.frozen = j->frozen;
    *stray = 0;
    *truth = variant_derivative(&o, &j->c->in, t, direction, &kink);
    for (int n = 0; n < DRAWS && !kink; n++) {
        bag *in = &j->stray_in[n];
        o = noisy_backward(j, n);
        double noisy =
            variant_derivative(&o, in, bag_find(in, t->name), direction, &kink);
        *stray = fmax(*stray, fabs(noisy - *truth));
    }
    j->tried++;
    j->corners += kink;
    return !kink;
}

/* By rule the gradient is 0 there, and the loss may jump. */
static int is_fixed(const bag_tensor *t, int i)
{
    return isinf(t->data[i]) || (t->data[i] == 0 && !strcmp(t->name, "gate"));
}

typedef struct probe {
    int index; /* element, or -1: a direction */
    double truth, stray, found;
    double step; /* what rounding to the file's type may add up to */
} probe;

/* What dout.out / gate would be in element i of dgate if no terms cancelled; 0 of other
   tensors. Behind a norm (diff) they do: its output does not change with the gate. */
static double gate_work(const variant_judge *j, const bag_tensor *t, int i)
{
    const bag_tensor *lse = bag_find(&j->truth, "lse");
    double sum = 0;
    if (strcmp(t->name, "gate")) return 0;
    for (int n = 0; n < bag_size(lse); n++)
        if (i == (t->rank == 3 ? n : n / lse->dim[2] % lse->dim[1])) sum += work_of(j, n);
    return sum / fabs(t->data[i]);
}

/* One more probe of the gradient; 0: it was at a corner. */
static int take_probe(variant_judge *j, bag_tensor *t, const float *found, int index,
                      ph_dtype type, probe *to)
{
    int count = bag_size(t), good;
    double *direction = calloc((size_t)count, sizeof *direction), work = 0;
    *to = (probe){.index = index};
    for (int i = 0; i < count; i++) {
        double sign = check_random(&j->c->random) & 1 ? 1 : -1;
        if (is_fixed(t, i)) continue;
        direction[i] = index < 0 ? sign / sqrt(count) : i == index;
        to->found += direction[i] * (double)found[i];
        if (direction[i] == 0) continue;
        to->step += fabs(direction[i]) * half_step(type, (double)found[i]);
        work += fabs(direction[i]) * gate_work(j, t, i);
    }
    good = derivatives(j, t, direction, &to->truth, &to->stray);
    to->step += out_step(j) * work;
    to->stray += noise * work;
    free(direction);
    return good;
}

static int judge_probes(variant_judge *j, const char *name, const probe *p, int count)
{
    double size = 0, stray = 0;
    for (int n = 0; n < count; n++) {
        size = fmax(size, fabs(p[n].truth));
        stray = fmax(stray, p[n].stray);
    }
    double allowed = gradient_factor * stray + floor_of(j, size) + difference_error(j);
    for (int n = 0; n < count; n++)
        if (!within(j, name, p[n].index, p[n].found, p[n].truth, allowed, p[n].step))
            return 0;
    return 1;
}

static int judge_gradient(variant_judge *j, bag_tensor *t, const char *name,
                          const float *found, ph_dtype type)
{
    enum { MOST = 64 };
    probe p[MOST];
    int count = 0, size = bag_size(t), want = j->elements;
    for (int i = 0; i < size; i++)
        if (is_fixed(t, i) && found[i] != 0)
            return complain(j, name, i, (double)found[i], 0, 0);
    for (int n = 0; n < j->directions && size > 0; n++)
        count += take_probe(j, t, found, -1, type, &p[count]);
    for (int n = 0; n < want && n < size; n++) {
        int index = size <= want ? n : check_below(&j->c->random, size);
        count += take_probe(j, t, found, index, type, &p[count]);
    }
    return judge_probes(j, name, p, count);
}

/* ---- the file ---------------------------------------------------------------------- */

/* The tensor of OUT as floats, shape and type checked; release it with free. */
static float *elements(variant_judge *j, const ph_file *out, const char *name,
                       const bag_tensor *like, ph_dtype type)
{
    const ph_tensor *t = ph_file_find(out, name);
    char text[100] = "not there";
    int same = t && t->rank == like->rank && t->type == type;
    for (int i = 0; same && i < like->rank; i++)
        same = t->shape[i] == (size_t)like->dim[i];
    if (t) ph_tensor_describe(t, text, sizeof text);
    snprintf(j->why, sizeof j->why, "%s is %s, expected %s of rank %d (%d, %d, %d, %d)",
             name, text, ph_dtype_name(type), like->rank, like->dim[0], like->dim[1],
             like->dim[2], like->dim[3]);
    if (!same) return NULL;
    float *to = malloc(((size_t)bag_size(like) + 1) * sizeof *to);
    ph_tensor_convert(t, PH_F32, to);
    return to;
}

static int has_gradient(const char *name)
{
    static const char *const none[] = {"visible", "q_lens", "kv_lens",
                                       "alibi",   "dout",   "dlse"};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        if (!strcmp(name, none[i])) return 0;
    return 1;
}

static int judge_results(variant_judge *j, const ph_file *out, int *seen)
{
    int good = 1;
    for (int n = 0; n < j->truth.count && good; n++) {
        const bag_tensor *t = &j->truth.t[n];
        ph_dtype type = strcmp(t->name, "out") ? PH_F32 : j->c->s.type;
        if (!strcmp(t->name, "scores") || !strcmp(t->name, "attended"))
            continue; /* the oracle's own */
        float *found = elements(j, out, t->name, t, type);
        good = found && judge_result(j, t, found, type);
        ++*seen;
        free(found);
    }
    return good;
}

static int judge_gradients(variant_judge *j, const ph_file *out, int *seen)
{
    int good = 1;
    for (int n = 0; n < j->c->in.count && good; n++) {
        bag_tensor *t = &j->c->in.t[n];
        ph_dtype type = variant_type(j->c, t->name);
        char name[40];
        snprintf(name, sizeof name, "d%s", t->name);
        if (!has_gradient(t->name)) continue;
        float *found = elements(j, out, name, t, type);
        good = found && judge_gradient(j, t, name, found, type);
        ++*seen;
        free(found);
    }
    return good;
}

const char *variant_judge_file(variant_judge *j, const ph_file *out)
{
    int seen = 0, there = 0;
    if (!judge_results(j, out, &seen)) return j->why;
    if (bag_find(&j->c->in, "dout") && !judge_gradients(j, out, &seen)) return j->why;
    while (ph_file_tensor(out, (size_t)there)) there++;
    if (there == seen) return NULL;
    snprintf(j->why, sizeof j->why, "OUT has %d tensors, expected %d", there, seen);
    return j->why;
}
