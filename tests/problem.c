/*
 * problem.c - memory and data for one attention problem; see cases.h.
 *
 * In this order: layouts, the tensors of a problem, filling them, masked NaN and Inf, and
 * checks of the padding between outputs.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cases.h"
#include "check.h"

/* ---- layouts ---------------------------------------------------------------------- */

static int64_t most(int64_t x, int64_t y)
{
    return x > y ? x : y;
}

/* Distances for a tensor of this shape; gaps come from rng. */
static ph_strides distances(uint64_t *rng, const tensor *t, case_layout layout)
{
    int64_t dim = t->dim, len = t->len, heads = t->heads, batch = t->batch;
    ph_strides at = {heads * len * dim, len * dim, dim};
    int64_t unit = case_gap, gap = unit * check_below(rng, 4);
    switch (layout) {
    case LAYOUT_PADDED:
        at.time = dim + unit * (1 + check_below(rng, 9));
        at.head = len * at.time + gap;
        at.batch = heads * at.head + unit * check_below(rng, 20);
        break;
    case LAYOUT_TIME:
    case LAYOUT_INTERLEAVED: /* where q, k, v cannot share a slab */
        at.head = dim + gap;
        at.time = heads * at.head + unit * check_below(rng, 2);
        at.batch = len * at.time + gap;
        break;
    case LAYOUT_HEAD:
        at.batch = len * dim + gap;
        at.head = batch * at.batch;
        break;
    case LAYOUT_OVERLAP:
        at.head = most(1, dim / 2);
        at.time = most(1, heads - 1) * at.head + dim;
        at.batch = len * at.time;
        break;
    case LAYOUT_REPEAT: at.batch = 0; break;
    default: break;
    }
    return at;
}

static int64_t span(const tensor *t)
{
    if (!tensor_count(t)) return 0;
    return (t->batch - 1) * t->at.batch + (t->heads - 1) * t->at.head +
           (t->len - 1) * t->at.time + t->dim;
}

static void mark(const tensor *t)
{
    for (int b = 0; b < t->batch; b++)
        for (int h = 0; h < t->heads; h++)
            for (int i = 0; i < t->len; i++)
                memset(t->mem->mark + tensor_at(t, b, h, i, 0), 1, (size_t)t->dim);
}

/* A slab of its own for t, whose shape and distances are set. Outputs get a margin on
   both sides unless a page guards them. */
static void place(problem *p, tensor *t, const char *name, slab_kind kind)
{
    int margin = kind != SLAB_INPUT && !case_guard_pages;
    int64_t front = margin ? 5 : 0, back = margin ? 7 : 0;
    t->mem =
        slab_new(p, name, kind, (size_t)(front + span(t) + back), oracle_size(t->dtype));
    t->origin = front;
    if (kind != SLAB_INPUT) mark(t);
}

static void shape(tensor *t, ph_dtype dtype, int batch, int heads, int len, int dim)
{
    tensor made = {dtype, batch, heads, len, dim, {0, 0, 0}, NULL, 0};
    made.at.time = dim;
    made.at.head = (int64_t)len * dim;
    made.at.batch = (int64_t)heads * len * dim;
    *t = made;
}

/* A packed tensor of floats. */
static float *floats(problem *p, tensor *t, const char *name, slab_kind kind, int batch,
                     int heads, int len, int dim)
{
    shape(t, PH_F32, batch, heads, len, dim);
    place(p, t, name, kind);
    return tensor_data(t);
}

/* Three tensors side by side: (batch, time, heads of x, heads of y, heads of z). */
static void place_together(problem *p, tensor *x, tensor *y, tensor *z, slab_kind kind)
{
    tensor *all[] = {x, y, z};
    int64_t wide = 0, front = case_guard_pages ? 0 : 3 * case_gap;
    for (int n = 0; n < 3; n++) wide += (int64_t)all[n]->heads * all[n]->dim;
    size_t count = (size_t)(front + x->batch * x->len * wide);
    slab *s = slab_new(p, "interleaved", kind, count, oracle_size(x->dtype));
    for (int n = 0; n < 3; n++) {
        all[n]->mem = s;
        all[n]->origin = front;
        all[n]->at.head = all[n]->dim;
        all[n]->at.time = wide;
        all[n]->at.batch = x->len * wide;
        front += (int64_t)all[n]->heads * all[n]->dim;
        if (kind != SLAB_INPUT) mark(all[n]);
    }
}

/* ---- the tensors of a problem ----------------------------------------------------- */

static void arrange(uint64_t *rng, tensor *t, case_layout layout, ph_strides *said)
{
    ph_strides none = {0, 0, 0};
    t->at = distances(rng, t, layout);
    *said = layout == LAYOUT_PACKED ? none : t->at;
}

static void make_qkv(problem *p, uint64_t *rng)
{
    ph_attn *a = &p->attn;
    int k_heads = a->k_heads ? a->k_heads : a->q_heads;
    int v_heads = a->v_heads ? a->v_heads : a->q_heads;
    int v_dim = a->v_dim ? a->v_dim : a->qk_dim;
    shape(&p->q, a->dtype, a->batch, a->q_heads, a->q_len, a->qk_dim);
    shape(&p->k, a->dtype, a->batch, k_heads, a->kv_len, a->qk_dim);
    shape(&p->v, a->dtype, a->batch, v_heads, a->kv_len, v_dim);
    shape(&p->out, a->dtype, a->batch, a->q_heads, a->q_len, v_dim);
    arrange(rng, &p->out, p->with.out, &a->out);
    place(p, &p->out, "out", SLAB_OUTPUT);
    if (p->with.layout == LAYOUT_INTERLEAVED && a->q_len == a->kv_len) {
        place_together(p, &p->q, &p->k, &p->v, SLAB_INPUT);
        a->q = p->q.at;
        a->k = p->k.at;
        a->v = p->v.at;
    } else {
        arrange(rng, &p->q, p->with.layout, &a->q);
        arrange(rng, &p->k, p->with.layout, &a->k);
        arrange(rng, &p->v, p->with.layout, &a->v);
        place(p, &p->q, "q", SLAB_INPUT);
        place(p, &p->k, "k", SLAB_INPUT);
        place(p, &p->v, "v", SLAB_INPUT);
    }
    p->args.q = tensor_data(&p->q);
    p->args.k = tensor_data(&p->k);
    p->args.v = tensor_data(&p->v);
    p->args.out = tensor_data(&p->out);
}

static void make_side(problem *p)
{
    ph_attn *a = &p->attn;
    const case_with *w = &p->with;
    ph_args *g = &p->args;
    int rows = a->gate == PH_GATE_ROW;
    if (w->lse || a->backward)
        g->lse =
            floats(p, &p->lse, "lse", SLAB_OUTPUT, a->batch, a->q_heads, a->q_len, 1);
    if (a->bias.batch)
        g->bias = floats(p, &p->bias, "bias", SLAB_INPUT, a->bias.batch, a->bias.heads,
                         a->bias.q_len, a->kv_len);
    if (w->gate)
        g->gate = floats(p, &p->gate, "gate", SLAB_INPUT, rows ? a->batch : 1, a->q_heads,
                         rows ? a->q_len : 1, 1);
    if (w->sink) g->sink = floats(p, &p->sink, "sink", SLAB_INPUT, 1, a->q_heads, 1, 1);
    if (w->alibi)
        g->alibi = floats(p, &p->alibi, "alibi", SLAB_INPUT, 1, a->q_heads, 1, 1);
    size_t batch = (size_t)a->batch;
    if (w->q_lens)
        g->q_lens = p->q_lens =
            (int32_t *)slab_new(p, "q_lens", SLAB_INPUT, batch, 4)->bytes;
    if (w->kv_lens)
        g->kv_lens = p->kv_lens =
            (int32_t *)slab_new(p, "kv_lens", SLAB_INPUT, batch, 4)->bytes;
    ph_broadcast v = a->visible;
    size_t cells =
        (size_t)v.batch * (size_t)v.heads * (size_t)v.q_len * (size_t)a->kv_len;
    if (v.batch)
        g->visible = p->visible = slab_new(p, "visible", SLAB_INPUT, cells, 1)->bytes;
}

static void make_look(problem *p, uint64_t *rng)
{
    const ph_attn *a = &p->attn;
    const case_with *w = &p->with;
    ph_look_at *l = &p->look;
    int b = a->batch, h = a->q_heads, q = a->q_len, k = a->kv_len;
    if (w->weights)
        l->weights = floats(p, &p->weights, "weights", SLAB_OUTPUT, b, h, q, k);
    if (w->col_sum)
        l->col_sum = floats(p, &p->col_sum, "col_sum", SLAB_OUTPUT, b, h, 1, k);
    if (w->entropy)
        l->entropy = floats(p, &p->entropy, "entropy", SLAB_OUTPUT, b, h, q, 1);
    if (w->top_k) {
        l->top_k = w->top_k;
        l->top_weight =
            floats(p, &p->top_weight, "top_weight", SLAB_OUTPUT, b, h, q, w->top_k);
        size_t count = (size_t)b * (size_t)h * (size_t)q * (size_t)w->top_k;
        p->top_index = slab_new(p, "top_index", SLAB_OUTPUT, count, 4);
        memset(p->top_index->mark, 1, count);
        l->top_index = (int32_t *)p->top_index->bytes;
    }
    if (w->rect) {
        l->rect_batch = check_below(rng, b);
        l->rect_head = check_below(rng, h);
        l->row0 = check_below(rng, q);
        l->rows = 1 + check_below(rng, q - l->row0);
        l->col0 = check_below(rng, k);
        l->cols = 1 + check_below(rng, k - l->col0);
        l->rect = floats(p, &p->rect, "rect", SLAB_OUTPUT, 1, 1, l->rows, l->cols);
    }
    int any = w->weights || w->col_sum || w->entropy || w->top_k || w->rect;
    if (any && !w->no_look) p->args.look = l;
}

static void make_grads(problem *p, uint64_t *rng)
{
    ph_attn *a = &p->attn;
    ph_grads *g = &p->grads;
    tensor *all[] = {&p->dq, &p->dk, &p->dv};
    const tensor *like[] = {&p->q, &p->k, &p->v};
    ph_strides *said[] = {&a->dq, &a->dk, &a->dv};
    static const char *const names[] = {"dq", "dk", "dv"};
    for (int n = 0; n < 3; n++) {
        *all[n] = *like[n];
        if (p->with.dq_said) arrange(rng, all[n], p->with.dq, said[n]);
    }
    if (!p->with.dq_said && p->q.mem == p->k.mem)
        place_together(p, &p->dq, &p->dk, &p->dv, SLAB_GRADIENT);
    else
        for (int n = 0; n < 3; n++) place(p, all[n], names[n], SLAB_GRADIENT);
    g->dq = tensor_data(&p->dq);
    g->dk = tensor_data(&p->dk);
    g->dv = tensor_data(&p->dv);
    p->dout = p->out;
    place(p, &p->dout, "dout", SLAB_INPUT);
    g->dout = tensor_data(&p->dout);
    int b = a->batch, h = a->q_heads, q = a->q_len;
    if (p->with.dlse) g->dlse = floats(p, &p->dlse, "dlse", SLAB_INPUT, b, h, q, 1);
    if (p->bias.mem)
        g->dbias = floats(p, &p->dbias, "dbias", SLAB_GRADIENT, p->bias.batch,
                          p->bias.heads, p->bias.len, p->bias.dim);
    if (p->gate.mem)
        g->dgate = floats(p, &p->dgate, "dgate", SLAB_GRADIENT, p->gate.batch, h,
                          p->gate.len, 1);
    if (p->sink.mem) g->dsink = floats(p, &p->dsink, "dsink", SLAB_GRADIENT, 1, h, 1, 1);
}

/* ---- elements --------------------------------------------------------------------- */

static void fill(tensor *t, uint64_t *rng, double gain, double shift)
{
    if (!t->mem) return;
    for (int b = 0; b < t->batch; b++)
        for (int h = 0; h < t->heads; h++)
            for (int i = 0; i < t->len; i++)
                for (int d = 0; d < t->dim; d++)
                    tensor_set(t, b, h, i, d, gain * (double)check_normal(rng) + shift);
}

/* Gates in [0.3, 2) of either sign, or 0. */
static void fill_gate(problem *p, uint64_t *rng)
{
    for (int b = 0; b < p->gate.batch; b++)
        for (int h = 0; h < p->gate.heads; h++)
            for (int i = 0; i < p->gate.len; i++) {
                double gate = 0.3 + 1.7 * check_uniform(rng);
                if (check_below(rng, 4) == 0) gate = -gate;
                if (p->with.gate_zeros && check_below(rng, 3) == 0) gate = 0;
                tensor_set(&p->gate, b, h, i, 0, gate);
            }
}

/* Holes are -inf, or one of the numbers that people write instead. */
static void fill_bias(problem *p, uint64_t *rng)
{
    static const double holes[] = {-INFINITY, -INFINITY, -INFINITY, -1e9,
                                   (double)-FLT_MAX};
    tensor *t = &p->bias;
    double hole = p->with.bias_holes == 1 ? holes[check_below(rng, 5)] : -INFINITY;
    fill(t, rng, 1.5, 0);
    if (!p->with.bias_holes) return;
    for (int b = 0; b < t->batch; b++)
        for (int h = 0; h < t->heads; h++)
            for (int i = 0; i < t->len; i++)
                for (int j = 0; j < t->dim; j++)
                    if (check_below(rng, 5) == 0) tensor_set(t, b, h, i, j, hole);
}

static void fill_small(problem *p, uint64_t *rng)
{
    static const uint8_t shown[] = {1, 1, 2, 255};
    const ph_attn *a = &p->attn;
    for (int b = 0; b < a->batch; b++) {
        int half = check_below(rng, 2); /* half of the lengths are full */
        if (p->q_lens) p->q_lens[b] = half ? a->q_len : check_below(rng, a->q_len + 1);
        if (p->kv_lens)
            p->kv_lens[b] = half && b ? a->kv_len : check_below(rng, a->kv_len + 1);
    }
    ph_broadcast v = a->visible;
    size_t cells =
        (size_t)v.batch * (size_t)v.heads * (size_t)v.q_len * (size_t)a->kv_len;
    for (size_t n = 0; n < cells; n++)
        p->visible[n] =
            check_uniform(rng) < (double)p->with.hidden ? 0 : shown[check_below(rng, 4)];
    for (int h = 0; h < a->q_heads; h++) {
        if (p->sink.mem && check_below(rng, 12) == 0)
            tensor_set(&p->sink, 0, h, 0, 0, -INFINITY);
        if (p->alibi.mem)
            tensor_set(&p->alibi, 0, h, 0, 0, exp2(-1 - check_below(rng, 8)));
    }
}

static void fill_all(problem *p, uint64_t *rng)
{
    const case_with *w = &p->with;
    double q_gain = w->q_gain != 0 ? (double)w->q_gain : 1;
    fill(&p->q, rng, q_gain, 0);
    fill(&p->k, rng, 1, 0);
    fill(&p->v, rng, w->v_gain != 0 ? (double)w->v_gain : 1, (double)w->v_shift);
    for (int b = 0; w->same_keys && b < p->k.batch; b++)
        for (int h = 0; h < p->k.heads; h++)
            for (int j = 1; j < p->k.len; j++)
                tensor_copy_row(&p->k, b, h, j, &p->k, b, h, 0);
    if (p->bias.mem) fill_bias(p, rng);
    if (p->gate.mem) fill_gate(p, rng);
    fill(&p->sink, rng, 2, 0);
    fill_small(p, rng);
    fill(&p->dout, rng, 1, 0);
    fill(&p->dlse, rng, 1, 0);
}

/* ---- masked NaN and Inf ------------------------------------------------------------ */

static void fill_masked_row(tensor *t, uint64_t *rng, int b, int h, int i)
{
    int kind = check_below(rng, 4);
    for (int d = 0; d < t->dim; d++) {
        uint32_t bits = (uint32_t)check_random(rng);
        float any;
        memcpy(&any, &bits, 4);
        double value = kind == 0 ? (double)NAN : kind == 1 ? INFINITY : (double)any;
        tensor_set(t, b, h, i, d, value);
    }
}

/* 1: some row sees key j through a query head of the group that uses head g of heads. */
static int key_seen(const dense *p, int b, int g, int heads, int j)
{
    int group = p->q_heads / heads;
    for (int h = g * group; h < (g + 1) * group; h++)
        for (int i = 0; i < p->q_len; i++)
            if (dense_sees(p, b, h, i, j)) return 1;
    return 0;
}

static int row_sees(const dense *p, int b, int h, int i)
{
    for (int j = 0; j < p->kv_len; j++)
        if (dense_sees(p, b, h, i, j)) return 1;
    return 0;
}

static void fill_masked_keys(tensor *t, const dense *d, uint64_t *rng)
{
    for (int b = 0; b < t->batch; b++)
        for (int g = 0; g < t->heads; g++)
            for (int j = 0; j < t->len; j++)
                if (!key_seen(d, b, g, t->heads, j)) fill_masked_row(t, rng, b, g, j);
}

/* Everything that takes no part: keys and values no row sees, rows that see no key. */
static void fill_masked(problem *p, uint64_t *rng)
{
    dense d;
    dense_load(&d, &p->attn, &p->args, p->attn.backward ? &p->grads : NULL);
    fill_masked_keys(&p->k, &d, rng);
    fill_masked_keys(&p->v, &d, rng);
    for (int b = 0; b < d.batch; b++)
        for (int h = 0; h < d.q_heads; h++)
            for (int i = 0; i < d.q_len; i++) {
                if (row_sees(&d, b, h, i)) continue;
                fill_masked_row(&p->q, rng, b, h, i);
                if (p->dout.mem) fill_masked_row(&p->dout, rng, b, h, i);
                /* A computed row without keys still has lse = sink, which dlse reaches.
                   */
                if (p->dlse.mem && (dense_dead(&d, b, h, i) || !d.sink))
                    fill_masked_row(&p->dlse, rng, b, h, i);
            }
    dense_free(&d);
}

uint64_t problem_make(problem *p, uint64_t seed)
{
    problem empty = {0};
    uint64_t state = seed ^ 0x5bd1e995u;
    empty.attn = p->attn;
    empty.with = p->with;
    *p = empty;
    make_qkv(p, &state);
    make_side(p);
    make_look(p, &state);
    if (p->attn.backward) make_grads(p, &state);
    return state;
}

void problem_build(problem *p, uint64_t seed)
{
    uint64_t state = problem_make(p, seed);
    fill_all(p, &state);
    int shared = p->with.layout == LAYOUT_OVERLAP || p->with.layout == LAYOUT_REPEAT;
    if (!p->with.clean && !shared) fill_masked(p, &state);
}

void problem_twin(problem *p, const problem *of, uint64_t seed)
{
    p->attn = of->attn;
    p->with = of->with;
    problem_make(p, seed);
    for (int n = 0; n < p->slab_count; n++)
        if (p->slabs[n].kind == SLAB_INPUT)
            memcpy(p->slabs[n].bytes, of->slabs[n].bytes,
                   p->slabs[n].count * p->slabs[n].size);
}

void problem_free(problem *p)
{
    for (int n = 0; n < p->slab_count; n++) slab_free(&p->slabs[n]);
    p->slab_count = 0;
}

/* ---- outputs and what lies between ------------------------------------------------ */

void problem_wipe(problem *p)
{
    for (int n = 0; n < p->slab_count; n++)
        if (p->slabs[n].kind != SLAB_INPUT)
            memset(p->slabs[n].bytes, SLAB_PATTERN, p->slabs[n].count * p->slabs[n].size);
}

void problem_wipe_grads(problem *p)
{
    for (int n = 0; n < p->slab_count; n++)
        if (p->slabs[n].kind == SLAB_GRADIENT)
            memset(p->slabs[n].bytes, SLAB_PATTERN, p->slabs[n].count * p->slabs[n].size);
}

/* FNV-1a by words of eight bytes. */
uint64_t problem_digest(const problem *p)
{
    uint64_t digest = 0xcbf29ce484222325u, word;
    for (int n = 0; n < p->slab_count; n++) {
        size_t bytes = p->slabs[n].count * p->slabs[n].size;
        if (p->slabs[n].kind == SLAB_INPUT) continue;
        for (size_t at = 0; at < bytes; at += sizeof word) {
            size_t left = bytes - at, count = left < sizeof word ? left : sizeof word;
            word = 0;
            memcpy(&word, p->slabs[n].bytes + at, count);
            digest = (digest ^ word) * 0x100000001b3u;
            digest ^= digest >> 32;
        }
    }
    return digest;
}

static int is_pattern(const slab *s, size_t element)
{
    for (size_t n = 0; n < s->size; n++)
        if (s->bytes[element * s->size + n] != SLAB_PATTERN) return 0;
    return 1;
}

const char *problem_gaps(const problem *p)
{
    for (int n = 0; n < p->slab_count; n++) {
        const slab *s = &p->slabs[n];
        if (s->kind == SLAB_INPUT) continue;
        for (size_t e = 0; e < s->count; e++)
            if (!s->mark[e] && !is_pattern(s, e)) return s->name;
    }
    return NULL;
}

int problem_untouched(const problem *p)
{
    for (int n = 0; n < p->slab_count; n++) {
        const slab *s = &p->slabs[n];
        if (s->kind == SLAB_INPUT) continue;
        for (size_t e = 0; e < s->count; e++)
            if (!is_pattern(s, e)) return 0;
    }
    return 1;
}

const char *problem_text(const problem *p)
{
    static char text[600];
    static const char *const types[] = {"f32", "f16", "bf16"};
    const ph_attn *a = &p->attn;
    const case_with *w = &p->with;
    snprintf(
        text, sizeof text,
        "batch %d heads %d/%d/%d len %d x %d dim %d/%d %s mask %d band %d,%d anchor %d "
        "offset %d scale %g cap %g drop %g bias %d,%d,%d visible %d,%d,%d gate %d%s "
        "sink %d alibi %d lens %d %d layout %d out %d dq %d%s gain %g/%g%s",
        a->batch, a->q_heads, a->k_heads, a->v_heads, a->q_len, a->kv_len, a->qk_dim,
        a->v_dim, types[a->dtype], (int)a->mask, a->band_left, a->band_right,
        (int)a->anchor, a->q_offset, (double)a->scale, (double)a->softcap,
        (double)a->dropout, a->bias.batch, a->bias.heads, a->bias.q_len, a->visible.batch,
        a->visible.heads, a->visible.q_len, w->gate,
        a->gate == PH_GATE_ROW ? " by row" : "", w->sink, w->alibi, w->q_lens, w->kv_lens,
        (int)w->layout, (int)w->out, (int)w->dq, w->dq_said ? " said" : "",
        (double)w->q_gain, (double)w->v_gain, w->same_keys ? " same keys" : "");
    return text;
}
