/*
 * ragged_twin.c - see ragged_twin.h.
 */
#include "ragged_twin.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

/* ---- making both ------------------------------------------------------------------ */

static void copy_queries(ragged_twin *t, tensor *to, const tensor *from)
{
    for (int b = 0; from->mem && b < t->padded.attn.batch; b++)
        for (int h = 0; h < from->heads; h++)
            for (int i = 0; i < t->padded.q_lens[b]; i++)
                tensor_copy_row(to, 0, h, t->q_offsets[b] + i, from, b, h, i);
}

static void copy_keys(ragged_twin *t, tensor *to, const tensor *from)
{
    for (int b = 0; b < t->padded.attn.batch; b++)
        for (int h = 0; h < from->heads; h++)
            for (int j = 0; j < t->padded.kv_lens[b]; j++)
                tensor_copy_row(to, 0, h, t->kv_offsets[b] + j, from, b, h, j);
}

static void copy_heads(tensor *to, const tensor *from)
{
    for (int h = 0; from->mem && h < from->heads; h++)
        tensor_copy_row(to, 0, h, 0, from, 0, h, 0);
}

static void measure(ragged_twin *t)
{
    const problem *p = &t->padded;
    for (int b = 0; b < p->attn.batch; b++) {
        t->q_offsets[b + 1] = t->q_offsets[b] + p->q_lens[b];
        t->kv_offsets[b + 1] = t->kv_offsets[b] + p->kv_lens[b];
        if (p->q_lens[b] > t->longest_q) t->longest_q = p->q_lens[b];
        if (p->kv_lens[b] > t->longest_kv) t->longest_kv = p->kv_lens[b];
    }
}

static void drop_batch_strides(ph_attn *a)
{
    ph_strides *all[] = {&a->q, &a->k, &a->v, &a->out, &a->dq, &a->dk, &a->dv};
    for (int n = 0; n < 7; n++) all[n]->batch = 0;
}

/* The description of the ragged batch: the longest lengths said or not, the anchor too or
   left to the default. */
static void describe(ragged_twin *t, int index)
{
    ph_attn *a = &t->ragged.attn;
    int said = index % 3 != 0;
    drop_batch_strides(a);
    a->ragged = PH_RAGGED_ALL;
    a->q_total = a->q_len, a->kv_total = a->kv_len;
    a->q_len = said ? t->longest_q : 0, a->kv_len = said ? t->longest_kv : 0;
    a->batch = t->padded.attn.batch;
    if (a->mask && a->anchor == PH_ANCHOR_END && index % 2) a->anchor = PH_ANCHOR_UNSET;
    t->ragged.args.q_offsets = t->q_offsets;
    t->ragged.args.kv_offsets = t->kv_offsets;
}

static void make_look(ragged_twin *t)
{
    const problem *p = &t->padded;
    problem *r = &t->ragged;
    int width = t->ragged.attn.kv_len ? t->ragged.attn.kv_len : r->attn.kv_total;
    size_t rows = (size_t)r->attn.q_heads * (size_t)r->attn.q_total;
    if (p->args.look) r->args.look = &r->look;
    if (p->look.weights)
        r->look.weights = t->weights = calloc(rows * (size_t)width + 1, sizeof(float));
    const ph_look_at *l = &p->look;
    if (!l->rect || l->row0 + l->rows > t->longest_q || l->col0 + l->cols > t->longest_kv)
        return;
    r->look.rect = t->rect = calloc((size_t)l->rows * (size_t)l->cols + 1, sizeof(float));
    r->look.rect_batch = l->rect_batch, r->look.rect_head = l->rect_head;
    r->look.row0 = l->row0, r->look.rows = l->rows;
    r->look.col0 = l->col0, r->look.cols = l->cols;
}

static void make_relative(ragged_twin *t, uint64_t seed, int reach)
{
    size_t count = (size_t)t->padded.attn.q_heads * (2 * (size_t)reach + 1);
    t->padded.attn.reach = t->ragged.attn.reach = reach;
    if (!reach) return;
    t->relative = malloc(count * sizeof(float));
    for (size_t i = 0; i < count; i++) t->relative[i] = check_normal(&seed);
    for (int n = 0; n < 2; n++) t->drelative[n] = calloc(count, sizeof(float));
    t->padded.args.relative = t->ragged.args.relative = t->relative;
    if (!t->padded.attn.backward) return;
    t->padded.grads.drelative = t->drelative[0];
    t->ragged.grads.drelative = t->drelative[1];
}

void twin_build(ragged_twin *t, uint64_t seed, int index)
{
    problem *p = &t->padded, *r = &t->ragged;
    p->with.q_lens = p->with.kv_lens = p->with.lse = 1;
    p->attn.bias = p->attn.visible = (ph_broadcast){0, 0, 0};
    if (p->attn.mask && p->attn.anchor == PH_ANCHOR_UNSET)
        p->attn.anchor = PH_ANCHOR_OFFSET;
    problem_build(p, seed);
    measure(t);
    r->attn = p->attn, r->with = p->with;
    memset(&r->attn.q, 0, 7 * sizeof(ph_strides));
    r->attn.batch = 1;
    r->attn.q_len = t->q_offsets[p->attn.batch];
    r->attn.kv_len = t->kv_offsets[p->attn.batch];
    r->with.q_lens = r->with.kv_lens = r->with.weights = r->with.rect = 0;
    r->with.clean = 1;
    problem_build(r, seed);
    r->args.look = NULL;
    r->args.seed = p->args.seed;
    copy_queries(t, &r->q, &p->q);
    copy_keys(t, &r->k, &p->k);
    copy_keys(t, &r->v, &p->v);
    if (p->attn.gate == PH_GATE_ROW)
        copy_queries(t, &r->gate, &p->gate);
    else
        copy_heads(&r->gate, &p->gate);
    copy_heads(&r->sink, &p->sink);
    copy_heads(&r->alibi, &p->alibi);
    copy_queries(t, &r->dout, &p->dout);
    copy_queries(t, &r->dlse, &p->dlse);
    describe(t, index);
    make_look(t);
    make_relative(t, seed, index % 7 == 3 ? 1 + index % 40 : 0);
}

void twin_free(ragged_twin *t)
{
    free(t->weights), free(t->rect), free(t->relative);
    for (int n = 0; n < 2; n++) {
        free(t->drelative[n]);
        for (int e = 0; e < t->extras; e++) free(t->extra[n][e]), free(t->dextra[n][e]);
    }
    problem_free(&t->padded);
    problem_free(&t->ragged);
}

/* ---- comparing -------------------------------------------------------------------- */

static int same_queries(const ragged_twin *t, const tensor *x, const tensor *y)
{
    for (int b = 0; y->mem && b < t->padded.attn.batch; b++)
        for (int h = 0; h < y->heads; h++)
            for (int i = 0; i < t->padded.q_lens[b]; i++)
                if (!tensor_same_row(x, 0, h, t->q_offsets[b] + i, y, b, h, i)) return 0;
    return 1;
}

static int same_keys(const ragged_twin *t, const tensor *x, const tensor *y)
{
    for (int b = 0; y->mem && b < t->padded.attn.batch; b++)
        for (int h = 0; h < y->heads; h++)
            for (int j = 0; j < t->padded.kv_lens[b]; j++)
                if (!tensor_same_row(x, 0, h, t->kv_offsets[b] + j, y, b, h, j)) return 0;
    return 1;
}

static int same_heads(const tensor *x, const tensor *y)
{
    for (int h = 0; y->mem && h < y->heads; h++)
        if (!tensor_same_row(x, 0, h, 0, y, 0, h, 0)) return 0;
    return 1;
}

int same_floats(const float *x, const float *y, size_t count)
{
    return !y || !count || !memcmp(x, y, count * sizeof *x);
}

static int same_weights(const ragged_twin *t)
{
    const ph_attn *a = &t->ragged.attn;
    int width = a->kv_len ? a->kv_len : a->kv_total;
    for (int b = 0; t->weights && b < a->batch; b++)
        for (int h = 0; h < a->q_heads; h++)
            for (int i = 0; i < t->padded.q_lens[b]; i++) {
                int64_t row = (int64_t)h * a->q_total + t->q_offsets[b] + i;
                for (int j = 0; j < width && j < t->padded.attn.kv_len; j++) {
                    double x = (double)t->weights[row * width + j];
                    double y = tensor_get(&t->padded.weights, b, h, i, j);
                    if (x != y && !(isnan(x) && isnan(y))) return 0;
                }
            }
    return 1;
}

static int same_columns(const ragged_twin *t)
{
    const tensor *x = &t->ragged.col_sum, *y = &t->padded.col_sum;
    for (int b = 0; y->mem && b < y->batch; b++)
        for (int h = 0; h < y->heads; h++)
            for (int j = 0; j < t->padded.kv_lens[b]; j++)
                if (tensor_bits(x, 0, h, 0, t->kv_offsets[b] + j) !=
                    tensor_bits(y, b, h, 0, j))
                    return 0;
    return 1;
}

static int same_top(const ragged_twin *t)
{
    const ph_attn *a = &t->padded.attn;
    int n = t->padded.look.top_k;
    for (int b = 0; t->padded.top_index && b < a->batch; b++)
        for (int h = 0; h < a->q_heads; h++)
            for (int i = 0; i < t->padded.q_lens[b]; i++) {
                int64_t x = (int64_t)h * t->ragged.attn.q_total + t->q_offsets[b] + i;
                int64_t y = ((int64_t)b * a->q_heads + h) * a->q_len + i;
                if (memcmp(t->ragged.look.top_index + x * n,
                           t->padded.look.top_index + y * n, (size_t)n * 4))
                    return 0;
            }
    return same_queries(t, &t->ragged.top_weight, &t->padded.top_weight);
}

const char *twin_differs(const ragged_twin *t)
{
    const problem *r = &t->ragged, *p = &t->padded;
    const ph_look_at *l = &r->look;
    if (!same_queries(t, &r->out, &p->out)) return "out differs";
    if (!same_queries(t, &r->lse, &p->lse)) return "lse differs";
    if (problem_gaps(r)) return problem_gaps(r);
    if (!p->args.look) return NULL;
    if (!same_weights(t)) return "weights differ";
    if (!same_columns(t)) return "col_sum differs";
    if (!same_queries(t, &r->entropy, &p->entropy)) return "entropy differs";
    if (!same_top(t)) return "top_k differs";
    if (l->rect && !same_floats(l->rect, p->look.rect, (size_t)l->rows * (size_t)l->cols))
        return "rect differs";
    return NULL;
}

const char *twin_grads_differ(const ragged_twin *t)
{
    const problem *r = &t->ragged, *p = &t->padded;
    size_t distances = (size_t)p->attn.q_heads * (2 * (size_t)p->attn.reach + 1);
    if (!same_queries(t, &r->dq, &p->dq)) return "dq differs";
    if (!same_keys(t, &r->dk, &p->dk)) return "dk differs";
    if (!same_keys(t, &r->dv, &p->dv)) return "dv differs";
    if (p->attn.gate == PH_GATE_ROW ? !same_queries(t, &r->dgate, &p->dgate)
                                    : !same_heads(&r->dgate, &p->dgate))
        return "dgate differs";
    if (!same_heads(&r->dsink, &p->dsink)) return "dsink differs";
    if (!same_floats(t->drelative[1], t->drelative[0], distances))
        return "drelative differs";
    return problem_gaps(r); /* something was written between the rows of that one */
}
