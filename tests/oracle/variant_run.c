/*
 * variant_run.c - one evaluation from a bag to a bag: sizes, the layer around attention,
 * and the list of variants. The steps are those of variant_parts.h.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "variant_parts.h"

const variant variant_mha = {.name = "mha", .core = 1};

static const variant *const list[] = {
    &variant_mha, &variant_entmaxed, &variant_sparsemax, &variant_talking, &variant_dcmha,
    &variant_moh, &variant_moh_norm, &variant_collab,    &variant_mohsa,   &variant_diff,
    &variant_mla, &variant_gated,    &variant_merged,    &variant_diff2};

/* The variant named at spec; an unknown one is an error of the test. */
static const variant *find_one(const char *spec)
{
    size_t length = strcspn(spec, ":+");
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        if (strlen(list[i]->name) == length && !strncmp(list[i]->name, spec, length))
            return list[i];
    abort();
}

/* All variants of "kind+core" in one: each step is that of the variant that has it. */
static variant find(const char *spec)
{
    variant all = {.name = spec, .core = 1};
    for (const char *at = spec; at; at = strchr(at, '+')) {
        const variant *v = find_one(at += *at == '+');
        all.core &= v->core;
        if (v->project) all.project = v->project;
        if (v->route) all.route = v->route;
        if (v->arrange) all.arrange = v->arrange;
        if (v->pre) all.pre = v->pre;
        if (v->normalise) all.normalise = v->normalise;
        if (v->post) all.post = v->post;
        if (v->combine) all.combine = v->combine;
        if (v->gate) all.gate = v->gate;
    }
    return all;
}

int variant_has_core(const char *spec)
{
    return find(spec).core;
}

/* ---- core mode --------------------------------------------------------------------- */

static void begin_core(work *w)
{
    const bag_tensor *q = bag_find(w->in, "q"), *k = bag_find(w->in, "k"),
                     *v = bag_find(w->in, "v");
    w->batch = q->dim[0], w->heads = q->dim[1], w->q_len = q->dim[2];
    w->qk_dim = q->dim[3];
    w->k_heads = k->dim[1], w->kv_len = k->dim[2];
    w->v_heads = v->dim[1], w->v_dim = v->dim[3];
    w->q = q->data, w->k = k->data, w->v = v->data;
    w->scale = 1 / sqrt((double)w->qk_dim);
}

static void end_core(work *w)
{
    double *out = bag_put(w->result, "out", w->batch, w->heads, w->q_len, w->v_dim);
    size_t count = (size_t)(w->batch * w->heads * w->q_len * w->v_dim);
    memcpy(out, w->out, count * sizeof *out);
}

/* ---- layer mode -------------------------------------------------------------------- */

static void project_plain(work *w)
{
    w->qk_dim = columns(w, "wq") / w->heads;
    w->v_dim = columns(w, "wv") / w->v_heads;
    w->q = apply(w, w->x, w->q_len, w->model, "wq", "bq", w->heads, w->qk_dim);
    w->k = apply(w, w->other, w->kv_len, w->source, "wk", "bk", w->k_heads, w->qk_dim);
    w->v = apply(w, w->other, w->kv_len, w->source, "wv", "bv", w->v_heads, w->v_dim);
    w->scale = 1 / sqrt((double)w->qk_dim);
}

/* Norm, route, rotation. */
static void position(work *w, const variant *v)
{
    int q_rows = w->batch * w->q_heads * w->q_len;
    int k_rows = w->batch * w->k_heads * w->kv_len, dim = w->qk_dim, o = w->o->rope;
    int rotated = w->o->rope_dims ? w->o->rope_dims : dim;
    double eps = w->o->norm_eps > 0 ? w->o->norm_eps : 1e-6;
    if (w->o->qk_norm && !w->rotated) {
        rms_rows(w->q, q_rows, dim, given(w, "q_norm"), eps);
        rms_rows(w->k, k_rows, dim, given(w, "k_norm"), eps);
        jitter(w, w->q, q_rows * dim);
        jitter(w, w->k, k_rows * dim);
    }
    if (v->route) v->route(w);
    if (!o || w->rotated) return;
    rotate(w, w->q, q_rows, w->q_len, dim, rotated, w->o->offset, o == 2);
    rotate(w, w->k, k_rows, w->kv_len, dim, rotated, 0, o == 2);
    jitter(w, w->q, q_rows * dim);
    jitter(w, w->k, k_rows * dim);
}

static void begin_layer(work *w, const variant *v)
{
    const bag_tensor *x = bag_find(w->in, "x"), *memory = bag_find(w->in, "memory");
    const bag_tensor *other = memory ? memory : x;
    w->batch = x->dim[0], w->q_len = x->dim[1], w->model = x->dim[2];
    w->kv_len = other->dim[1], w->source = other->dim[2];
    w->x = x->data, w->other = other->data;
    w->heads = w->q_heads = w->o->heads;
    w->k_heads = w->o->k_heads ? w->o->k_heads : w->heads;
    w->v_heads = w->o->v_heads ? w->o->v_heads : w->heads;
    if (v->project)
        v->project(w);
    else
        project_plain(w);
    position(w, v);
    if (v->arrange) v->arrange(w);
}

/* One token's heads side by side, times wo. */
static void output_row(const work *w, const double *y, int b, int i, int out_dim,
                       double *out)
{
    const double *wo = given(w, "wo"), *bo = given(w, "bo");
    int dim = w->v_dim;
    for (int o = 0; o < out_dim; o++) out[o] = bo ? bo[o] : 0;
    for (int h = 0; h < w->out_heads; h++)
        for (int e = 0; e < dim; e++) {
            double number = y[((b * w->out_heads + h) * w->q_len + i) * dim + e];
            int column = h * dim + e;
            if (!wo) out[column] += number;
            for (int o = 0; wo && o < out_dim; o++)
                out[o] += number * wo[column * out_dim + o];
        }
}

static void end_layer(work *w)
{
    const bag_tensor *wo = bag_find(w->in, "wo");
    int heads = w->out_heads, dim = w->v_dim, tokens = w->batch * w->q_len;
    int out_dim = wo ? wo->dim[wo->rank - 1] : heads * dim;
    double *y = bag_put(w->result, "heads", w->batch, heads, w->q_len, dim);
    memcpy(y, w->out, (size_t)(tokens * heads * dim) * sizeof *y);
    double *out = bag_put(w->result, "out", w->batch, w->q_len, out_dim, -1);
    for (int t = 0; t < tokens; t++) {
        int b = t / w->q_len, i = t % w->q_len;
        if (w->q_lens && i >= (int)w->q_lens[b]) continue;
        output_row(w, y, b, i, out_dim, out + t * out_dim);
    }
    jitter(w, out, tokens * out_dim);
}

/* ---- both -------------------------------------------------------------------------- */

static void find_masks(work *w)
{
    w->bias = bag_find(w->in, "bias");
    w->visible = bag_find(w->in, "visible");
    w->gate = bag_find(w->in, "gate");
    w->q_lens = given(w, "q_lens");
    w->kv_lens = given(w, "kv_lens");
    w->alibi = given(w, "alibi");
    w->sink = given(w, "sink");
}

static void put_rows(work *w)
{
    int rows = w->batch * w->heads * w->q_len;
    double *lse = bag_put(w->result, "lse", w->batch, w->heads, w->q_len, -1);
    double *weights =
        bag_put(w->result, "weights", w->batch, w->heads, w->q_len, w->kv_len);
    memcpy(lse, w->lse, (size_t)rows * sizeof *lse);
    memcpy(weights, w->cell, (size_t)(rows * w->kv_len) * sizeof *weights);
}

/* Sums of the weights over the rows, and their entropy: negative ones, which mixing can
   make, have none. */
static void put_stats(work *w)
{
    int heads = w->batch * w->heads, len = w->q_len, keys = w->kv_len;
    double *sum = bag_put(w->result, "col_sum", w->batch, w->heads, keys, -1);
    double *entropy = bag_put(w->result, "entropy", w->batch, w->heads, len, -1);
    for (int n = 0; n < heads * len * keys; n++) {
        double weight = w->cell[n];
        sum[n / keys / len * keys + n % keys] += weight;
        if (weight > 0) entropy[n / keys] -= weight * log(weight);
    }
}

double variant_forward(const variant_options *o, const bag *in, bag *out)
{
    const variant v = find(o->variant ? o->variant : "mha");
    work w = {.o = o, .in = in, .result = out, .layer = bag_find(in, "x") != NULL};
    find_masks(&w);
    if (w.layer)
        begin_layer(&w, &v);
    else
        begin_core(&w);
    if (o->scale != 0) w.scale = o->scale;
    attend(&w, &v);
    put_rows(&w);
    if (!o->brief) put_stats(&w);
    if (w.layer)
        end_layer(&w);
    else
        end_core(&w);
    for (int i = 0; i < w.takes; i++) free(w.taken[i]);
    return w.peak;
}
