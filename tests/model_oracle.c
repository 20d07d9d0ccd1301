/*
 * model_oracle.c - a Transformer as dense loops in double; its attention is the oracle of
 * variants (oracle/variant_oracle.h).
 */
#include "model_oracle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "model/pass.h"
#include "model_oracle_parts.h"

/* ---- parameters -------------------------------------------------------------------- */

void oracle_model_take(oracle_model *o, const ph_model *m)
{
    int count = 0;
    while (ph_model_tensor(m, count)) count++;
    memset(o, 0, sizeof *o);
    o->config = ph_model_config(m);
    o->count = count;
    o->tensors = calloc((size_t)count, sizeof *o->tensors);
    o->values = calloc((size_t)count, sizeof *o->values);
    for (int i = 0; i < count; i++) {
        const ph_tensor *t = o->tensors[i] = ph_model_tensor(m, i);
        size_t n = t->bytes / sizeof(float);
        o->values[i] = calloc(n, sizeof(double));
        for (size_t k = 0; k < n; k++) o->values[i][k] = ((const float *)t->data)[k];
    }
}

void oracle_model_free(oracle_model *o)
{
    for (int i = 0; i < o->count; i++) free(o->values[i]);
    for (int i = 0; i < o->places; i++) free(o->frozen[i]);
    free(o->values);
    free((void *)o->tensors);
}

/* Texts of one stack, all of the same length. */
typedef struct text {
    const char *stack;
    int batch, len, causal;
    const int32_t *lens;  /* (batch) valid words of the encoder's texts, or NULL */
    const int32_t *words; /* (batch) valid words of its own texts, or NULL */
    const int32_t *types; /* (batch, len), or NULL */
    const float *pixels;
    const double *memory; /* the encoder's output, or NULL */
    int memory_len;
} text;

/* ---- dropout: what is dropped is the library's choice, what follows is not --------- */

static uint64_t drop_stream(const oracle_model *o, const text *t, int what)
{
    return (uint64_t)(what * 8 + (t->memory ? 4 : 0)) + ((uint64_t)o->sublayer << 32);
}

static void drop(const oracle_model *o, const text *t, int what, double *x, int width)
{
    for (int r = 0; r < t->batch * t->len; r++) {
        uint64_t key = ph_rng_key(o->seed, drop_stream(o, t, what), (uint64_t)r, 0);
        variant_drop(o->dropout, key, x + r * width, width);
    }
}

/* ---- attention --------------------------------------------------------------------- */

static void put(bag *in, const char *name, const double *from, int n0, int n1, int n2)
{
    double *to = bag_put(in, name, n0, n1, n2, -1);
    memcpy(to, from, (size_t)bag_size(bag_find(in, name)) * sizeof *to);
}

/* The parameters of a place under their last names. */
static void put_weights(const oracle_model *o, const char *stem, bag *in)
{
    size_t length = strlen(stem);
    for (int i = 0; i < o->count; i++) {
        const ph_tensor *t = o->tensors[i];
        int dims[4] = {-1, -1, -1, -1};
        if (strncmp(t->name, stem, length)) continue;
        for (int d = 0; d < t->rank; d++) dims[d] = (int)t->shape[d];
        double *to = bag_put(in, t->name + length, dims[0], dims[1], dims[2], dims[3]);
        memcpy(to, o->values[i], t->bytes / sizeof(float) * sizeof *to);
    }
}

/* What positions add to the scores of self-attention. */
static void put_positions(const oracle_model *o, const text *t, bag *in)
{
    const ph_config *c = o->config;
    const double *table = find(o, t->stack, -1, "buckets");
    int heads = c->heads, len = t->len;
    if (c->positions == PH_POS_ALIBI) {
        double *slopes = bag_put(in, "alibi", heads, -1, -1, -1);
        for (int h = 0; h < heads; h++) slopes[h] = slope(h, heads);
    }
    if (!table) return;
    double *bias = bag_put(in, "bias", 1, heads, len, len);
    for (int n = 0; n < heads * len * len; n++) {
        int j = n % len, i = n / len % len, h = n / len / len;
        bias[n] = table[bucket(c, j - i, t->causal) * heads + h];
    }
}

/* Part number `layer` of a list with ';' between, the last one for the rest. */
static void pick(const char *list, int layer, char *to)
{
    for (; layer > 0 && strchr(list, ';'); layer--) list = strchr(list, ';') + 1;
    sprintf(to, "%.*s", (int)strcspn(list, ";"), list);
}

/* Differential attention depends on the depth of its layer, from 0, unless it is said. */
static void set_depth(char *spec, int layer)
{
    char rest[PH_VARIANT_TEXT], *at = strstr(spec, "diff");
    if (!at || (at[4] && at[4] != '+')) return;
    strcpy(rest, at + 4);
    sprintf(at + 4, ":depth=%d%s", layer, rest);
}

static void set_rope(const ph_config *c, variant_options *v)
{
    v->rope = 1 + c->rope_interleaved, v->rope_base = c->rope_base;
    v->rope_dims = c->rope_dims;
    if (c->rope_scaling == PH_ROPE_LONGROPE)
        v->rope_divisors = c->rope_divisors, v->rope_grown = c->rope_scale;
    if (c->rope_scaling == PH_ROPE_LINEAR) v->linear_factor = c->rope_factor;
    if (c->rope_scaling == PH_ROPE_YARN)
        v->yarn_factor = c->rope_factor, v->yarn_length = c->rope_length;
    if (c->rope_scaling != PH_ROPE_LLAMA3) return;
    v->llama3_factor = c->rope_factor, v->llama3_length = c->rope_length;
    v->llama3_low = c->rope_low ? c->rope_low : 1;
    v->llama3_high = c->rope_high ? c->rope_high : 4;
}

/* gqa and mqa are plain heads, or what stands behind a '+'; how many follows from the
   matrices, where heads of k and v have matrices of their own. */
static variant_options options_of(const oracle_model *o, const text *t, const char *spec,
                                  int layer, int cross, const bag *in)
{
    const ph_config *c = o->config;
    const bag_tensor *wk = bag_find(in, "wk"), *wv = bag_find(in, "wv");
    const char *more = strchr(spec, '+');
    if (!strncmp(spec, "gqa", 3) || !strncmp(spec, "mqa", 3))
        spec = more ? more + 1 : "mha";
    int wide = strstr(spec, "diff") ? 2 * c->head_dim : c->head_dim;
    variant_options v = {.variant = spec, .heads = c->heads, .brief = 1};
    if (wk && !strstr(spec, "collab")) v.k_heads = wk->dim[1] / c->head_dim;
    if (wv) v.v_heads = wv->dim[1] / wide;
    v.softcap = c->attn_softcap, v.scale = c->attn_scale;
    if (c->scale_by_layer)
        v.scale = (v.scale ? v.scale : 1 / sqrt(c->head_dim)) / (layer + 1);
    if (cross) return v;
    v.causal = t->causal;
    int whole = c->window_period && layer % c->window_period == c->window_period - 1;
    if (*c->window_layers)
        whole = c->window_layers[layer % (int)strlen(c->window_layers)] == 'f';
    if (c->window && t->causal && layer >= c->window_from && !whole)
        v.window = 1, v.left = c->window - 1, v.right = 0;
    if (c->window && c->arch == PH_ARCH_ENCODER && layer >= c->window_from && !whole)
        v.window = 1, v.left = v.right = c->window / 2;
    v.qk_norm = c->qk_norm, v.norm_eps = c->norm_eps;
    if (*c->rope_layers && c->rope_layers[layer % (int)strlen(c->rope_layers)] == 'n')
        return v;
    if (c->positions == PH_POS_ROPE && v.window && c->rope_local_base != 0)
        v.rope = 1 + c->rope_interleaved, v.rope_base = c->rope_local_base,
        v.rope_dims = c->rope_dims;
    else if (c->positions == PH_POS_ROPE)
        set_rope(c, &v);
    return v;
}

/* Straight-through gradients (moh-norm) want numbers that stand still: those of the first
   evaluation, place after place. */
static void freeze(oracle_model *o, variant_options *v, const bag *in)
{
    if (o->place == ORACLE_PLACES) abort();
    if (o->places <= o->place) o->frozen[o->places++] = variant_freeze(v, in);
    v->frozen = o->frozen[o->place++];
}

/* kind: "self" or "cross" */
static double *attention(oracle_model *o, const text *t, int layer, const char *kind,
                         const double *x)
{
    const ph_config *c = o->config;
    bag in = {.count = 0}, out = {.count = 0};
    char stem[64], spec[PH_VARIANT_TEXT + 24];
    int cross = *kind == 'c';
    snprintf(stem, sizeof stem, "%s.%d.%s.", t->stack, named_layer(o, layer), kind);
    pick(cross ? c->cross : c->variant, layer, spec);
    set_depth(spec, layer);
    put_weights(o, stem, &in);
    put(&in, "x", x, t->batch, t->len, c->model_dim);
    if (cross) put(&in, "memory", t->memory, t->batch, t->memory_len, c->model_dim);
    if (!cross) put_positions(o, t, &in);
    if (t->lens && (cross || !t->causal)) {
        double *lens = bag_put(&in, "kv_lens", t->batch, -1, -1, -1);
        for (int b = 0; b < t->batch; b++) lens[b] = t->lens[b];
    }
    /* padding is no load of a head */
    if (t->words && (strstr(spec, "moh:") || strstr(spec, "moh-norm"))) {
        double *lens = bag_put(&in, "q_lens", t->batch, -1, -1, -1);
        for (int b = 0; b < t->batch; b++) lens[b] = t->words[b];
    }
    variant_options v = options_of(o, t, spec, layer, cross, &in);
    v.dropout = o->dropout;
    v.seed = ph_rng_key(o->seed, drop_stream(o, t, PH_DROPOUT_ATTEND), 0, 0);
    v.noise = o->noise, v.noise_seed = o->noise_seed + 1000u * (uint64_t)o->place;
    freeze(o, &v, &in);
    variant_forward(&v, &in, &out);
    if (bag_data(&out, "balance_loss")) o->balance += bag_data(&out, "balance_loss")[0];
    double *y = zeros(t->batch * t->len, c->model_dim);
    memcpy(y, bag_data(&out, "out"),
           (size_t)(t->batch * t->len * c->model_dim) * sizeof *y);
    bag_free(&in);
    bag_free(&out);
    return y;
}

static double *feed(oracle_model *o, const text *t, int layer, const double *x)
{
    const ph_config *c = o->config;
    const char *stack = t->stack;
    int len = t->batch * t->len;
    int gated = c->activation == PH_SWIGLU || c->activation == PH_GEGLU ||
                c->activation == PH_GEGLU_ERF;
    int ff = c->ff_dim;
    const double *w3 = find(o, stack, layer, "ff.w3"),
                 *b3 = find(o, stack, layer, "ff.b3");
    double *h = linear(o, x, len, c->model_dim, ff, find(o, stack, layer, "ff.w1"),
                       find(o, stack, layer, "ff.b1"));
    double *up = gated ? linear(o, x, len, c->model_dim, ff, w3, b3) : NULL;
    double *g = zeros(len, c->ff_dim);
    for (int i = 0; i < len * ff; i++)
        g[i] = activate(c->activation, h[i]) * (gated ? up[i] : 1);
    round_off(o, g, len * ff);
    drop(o, t, PH_DROPOUT_FEED, g, ff);
    double *y = linear(o, g, len, c->ff_dim, c->model_dim, find(o, stack, layer, "ff.w2"),
                       find(o, stack, layer, "ff.b2"));
    free(h), free(g), free(up);
    return y;
}

/* ---- a stack ----------------------------------------------------------------------- */

static const double *class_token(const oracle_model *o, int i)
{
    char name[32];
    snprintf(name, sizeof name, "class_tokens.%d", i);
    return find(o, "", -1, name);
}

/* Element d of patch number `patch` of a picture. */
static double patch_element(const oracle_model *o, const text *t, int picture, int patch,
                            int d)
{
    const ph_config *c = o->config;
    const double *w = find(o, "patches", -1, "w");
    int size = c->image_size, p = c->patch_size, side = size / p;
    double sum = find(o, "patches", -1, "b")[d];
    for (int k = 0; k < c->channels * p * p; k++) {
        int channel = k / (p * p), y = patch / side * p + k / p % p,
            x = patch % side * p + k % p;
        sum += t->pixels[((picture * c->channels + channel) * size + y) * size + x] *
               w[k * c->model_dim + d];
    }
    return sum;
}

/* The row of token `at` of a text in the table of learned positions: padding of an
   encoder, the token whose row is the one before all others, is not counted. */
static int position_row(const ph_config *c, const int32_t *tokens, int at)
{
    int padding = c->arch == PH_ARCH_ENCODER ? c->position_offset - 1 : -1, counted = 0;
    if (!tokens || padding < 0) return at + c->position_offset;
    if (tokens[at] == padding) return padding;
    for (int i = 0; i < at; i++) counted += tokens[i] != padding;
    return counted + c->position_offset;
}

static double *embed(oracle_model *o, const text *t, const int32_t *tokens)
{
    const ph_config *c = o->config;
    int dim = c->model_dim, rows = t->batch * t->len;
    const double *words = find(o, "", -1, "embed");
    const double *places = find(o, t->stack, -1, "positions");
    const double *types = find(o, t->stack, -1, "types");
    double *x = zeros(rows, dim);
    for (int r = 0; r < rows; r++)
        for (int d = 0; d < dim; d++) {
            int at = r % t->len;
            double angle = at / pow(10000, (d - d % 2) / (double)dim);
            if (words)
                x[r * dim + d] = c->embed_scale * words[tokens[r] * dim + d];
            else if (at < c->class_tokens)
                x[r * dim + d] = class_token(o, at)[d];
            else
                x[r * dim + d] = patch_element(o, t, r / t->len, at - c->class_tokens, d);
            const int32_t *of_text = tokens ? tokens + (r - at) : NULL;
            if (places) x[r * dim + d] += places[position_row(c, of_text, at) * dim + d];
            if (types) x[r * dim + d] += types[(t->types ? t->types[r] : 0) * dim + d];
            int half = (dim + 1) / 2;
            double phase = at / pow(10000, 2 * (d % half) / (double)dim);
            if (c->positions == PH_POS_SINUSOIDAL_HALVES)
                x[r * dim + d] += d < half ? sin(phase) : cos(phase);
            if (c->positions == PH_POS_SINUSOIDAL)
                x[r * dim + d] += d % 2 ? cos(angle) : sin(angle);
        }
    round_off(o, x, rows * dim);
    drop(o, t, PH_DROPOUT_EMBED, x, dim);
    if (!c->embed_norm) return x;
    double *y = normed(o, x, rows, t->stack, -1, "embed_norm");
    free(x);
    return y;
}

/* x + f(input), with norms; kind: "self", "cross" or "ff" */
static double *step(oracle_model *o, const text *t, int layer, const char *kind,
                    int number, double *x, const double *input)
{
    char norm[16];
    ph_norm_place place = o->config->norm_place;
    int before = place == PH_PRE_NORM || place == PH_SANDWICH_NORM;
    int rows = t->batch * t->len;
    if (o->config->embed_norm && !layer && number == 1) before = 0;
    snprintf(norm, sizeof norm, "norm%d", number);
    double *a = before ? normed(o, input, rows, t->stack, layer, norm) : x;
    double *y = *kind == 'f' ? feed(o, t, layer, a) : attention(o, t, layer, kind, a);
    if (place == PH_SANDWICH_NORM || place == PH_OUTPUT_NORM) {
        char post[24];
        snprintf(post, sizeof post, "post_%s", norm);
        double *z = normed(o, y, rows, t->stack, layer, post);
        free(y);
        y = z;
    }
    drop(o, t, PH_DROPOUT_RESIDUAL, y, o->config->model_dim);
    o->sublayer++;
    for (int i = 0; i < rows * o->config->model_dim; i++) y[i] += x[i];
    round_off(o, y, rows * o->config->model_dim);
    if (before) free(a);
    free(x);
    if (place != PH_POST_NORM) return y;
    double *out = normed(o, y, rows, t->stack, layer, norm);
    free(y);
    return out;
}

static double *run_stack(oracle_model *o, const text *t, int layers,
                         const int32_t *tokens)
{
    o->sublayer = 0;
    double *x = embed(o, t, tokens);
    for (int l = 0; l < layers; l++) {
        int number = 1;
        char cross[PH_VARIANT_TEXT];
        pick(o->config->cross, l, cross);
        size_t bytes = (size_t)(t->batch * t->len * o->config->model_dim) * sizeof *x;
        double *old = memcpy(malloc(bytes), x, bytes);
        if (!t->memory || !strstr(cross, "merged"))
            x = step(o, t, l, "self", number++, x, x);
        if (t->memory) x = step(o, t, l, "cross", number++, x, x);
        x = step(o, t, l, "ff", number, x, o->config->parallel ? old : x);
        free(old);
    }
    if (o->config->norm_place == PH_POST_NORM) return x;
    double *out = normed(o, x, t->batch * t->len, t->stack, -1, "norm");
    free(x);
    return out;
}

/* ---- losses ------------------------------------------------------------------------ */

/* Cross-entropy of rows of scores. */
static double cross_entropy(const double *scores, int rows, int width,
                            const int32_t *labels, double smoothing)
{
    double loss = 0;
    for (int r = 0; r < rows; r++) {
        const double *row = scores + r * width;
        double top = -INFINITY, sum = 0, mean = 0;
        if (labels[r] < 0) continue;
        for (int v = 0; v < width; v++) top = fmax(top, row[v]);
        for (int v = 0; v < width; v++) sum += exp(row[v] - top);
        for (int v = 0; v < width; v++) mean += (top + log(sum) - row[v]) / width;
        loss += (1 - smoothing) * (top + log(sum) - row[labels[r]]) + smoothing * mean;
    }
    return loss;
}

/* Next tokens or, behind a layer with a norm, masked ones. */
static double token_loss(oracle_model *o, const double *x, int len, const int32_t *labels,
                         double smoothing, double *logits)
{
    const ph_config *c = o->config;
    int dim = c->model_dim;
    const double *w = find(o, "", -1, c->untied ? "output" : "embed");
    const double *bias = find(o, "masked", -1, "bias");
    if (c->output_bias) bias = find(o, "", -1, "output_bias");
    double *scores = zeros(len, c->vocab), *h = NULL, *n = NULL;
    if (c->masked) {
        h = linear(o, x, len, dim, dim, find(o, "masked", -1, "w"),
                   find(o, "masked", -1, "b"));
        for (int i = 0; i < len * dim; i++) h[i] = activate(c->activation, h[i]);
        round_off(o, h, len * dim);
        x = n = normed(o, h, len, "masked", -1, "norm");
    }
    for (int i = 0; i < len * c->vocab; i++) {
        int t = i / c->vocab, v = i % c->vocab;
        scores[i] = bias ? bias[v] : 0;
        for (int d = 0; d < dim; d++)
            scores[i] += c->output_scale * x[t * dim + d] * w[v * dim + d];
        if (c->output_softcap != 0)
            scores[i] = c->output_softcap * tanh(scores[i] / c->output_softcap);
        if (logits) logits[i] = scores[i];
    }
    round_off(o, scores, len * c->vocab);
    double loss = cross_entropy(scores, len, c->vocab, labels, smoothing);
    free(h), free(n), free(scores);
    return loss;
}

/* ---- one vector of a text, classes ------------------------------------------------- */

static double pooled_element(ph_pooling how, const double *x, int dim, int count)
{
    double sum = 0, weights = 0, top = x[0];
    for (int t = 0; t < count; t++) {
        double w = how == PH_POOL_WEIGHTED ? t + 1 : 1;
        sum += w * x[t * dim], weights += w;
        top = fmax(top, x[t * dim]);
    }
    if (how == PH_POOL_FIRST) return x[0];
    if (how == PH_POOL_LAST) return x[(count - 1) * dim];
    if (how == PH_POOL_MAX) return top;
    return how == PH_POOL_MEAN_SQRT ? sum / sqrt(count) : sum / weights;
}

/* The vector of `count` tokens. */
static double *pooled(oracle_model *o, const double *x, int count)
{
    const ph_config *c = o->config;
    int dim = c->model_dim;
    double *v = zeros(1, dim), square = 0;
    for (int d = 0; d < dim; d++)
        v[d] = c->pooling ? pooled_element(c->pooling, x + d, dim, count) : x[d];
    if (c->pooler) {
        double *y = linear(o, v, 1, dim, dim, find(o, "pooler", -1, "w"),
                           find(o, "pooler", -1, "b"));
        free(v);
        v = y;
        for (int d = 0; d < dim; d++)
            v[d] = c->pooler == PH_POOLER_GELU   ? v[d] * 0.5 * erfc(-v[d] / sqrt(2))
                   : c->pooler == PH_POOLER_TANH ? tanh(v[d]) : fmax(v[d], 0);
    }
    if (c->pooler_norm) {
        double *y = normed(o, v, 1, "pooler", -1, "norm");
        free(v);
        v = y;
    }
    for (int d = 0; d < dim; d++) square += v[d] * v[d];
    for (int d = 0; d < dim && c->unit_norm; d++) v[d] /= sqrt(square);
    return v;
}

static double class_loss(oracle_model *o, const double *x, int len, int valid,
                         const int32_t *labels, double smoothing)
{
    const ph_config *c = o->config;
    double *v = c->pooling ? pooled(o, x, valid) : NULL;
    int rows = c->pooling ? 1 : len;
    for (int r = 0; c->pooler && !c->pooling && r < len; r++) {
        double *one = pooled(o, x + r * c->model_dim, 1);
        if (!v) v = zeros(len, c->model_dim);
        memcpy(v + r * c->model_dim, one, (size_t)c->model_dim * sizeof *v);
        free(one);
    }
    double *scores =
        linear(o, v ? v : x, rows, c->model_dim, c->classes,
               find(o, "classifier", -1, "w"), find(o, "classifier", -1, "b"));
    double loss = cross_entropy(scores, rows, c->classes, labels, smoothing);
    free(v), free(scores);
    return loss;
}

/* The partner of a word: softmax of q.k over the valid words, as a logarithm. */
static double link_log(int dim, const double *q, const double *k, int i, int valid,
                       int to)
{
    double sum = 0, chosen = 0;
    for (int j = 0; j < valid; j++) {
        double s = 0;
        for (int d = 0; d < dim; d++) s += q[i * dim + d] * k[j * dim + d];
        sum += exp(s / sqrt(dim));
        if (j == to) chosen = s / sqrt(dim);
    }
    return chosen - log(sum);
}

static double link_loss(oracle_model *o, const double *x, int len, int valid,
                        const int32_t *labels)
{
    int dim = o->config->model_dim;
    double *q = linear(o, x, len, dim, dim, find(o, "links", -1, "wq"), NULL);
    double *k = linear(o, x, len, dim, dim, find(o, "links", -1, "wk"), NULL);
    double loss = 0;
    for (int i = 0; i < len; i++)
        if (labels[i] >= 0) loss -= link_log(dim, q, k, i, valid, labels[i]);
    free(q), free(k);
    return loss;
}

double oracle_model_loss(oracle_model *o, const oracle_batch *b, double smoothing,
                         double *logits)
{
    const ph_config *c = o->config;
    int both = c->arch == PH_ARCH_ENCODER_DECODER, causal = c->arch == PH_ARCH_DECODER;
    int last = both ? b->target_len : b->source_len;
    double loss = 0;
    text t = {.stack = causal ? "decoder" : "encoder", .batch = b->batch};
    t.len = b->source_len, t.causal = causal, t.lens = t.words = b->source_lens;
    t.types = b->types, t.pixels = b->pixels;
    o->place = 0, o->balance = 0, o->arrays = 0;
    double *x = run_stack(o, &t, c->layers, b->source);
    if (both) {
        t.stack = "decoder", t.len = b->target_len, t.causal = 1;
        t.types = NULL, t.memory = x, t.memory_len = b->source_len,
        t.words = b->target_lens;
        double *y = run_stack(o, &t, c->decoder_layers, b->target);
        free(x);
        x = y;
    }
    for (int i = 0; i < b->batch; i++) {
        int valid = b->source_lens ? b->source_lens[i] : b->source_len;
        const int32_t *labels = b->labels + i * (c->classes && c->pooling ? 1 : last);
        const double *own = x + i * last * c->model_dim;
        if (c->classes)
            loss += class_loss(o, own, last, valid, labels, smoothing);
        else if (c->arch == PH_ARCH_ENCODER && !c->masked)
            loss += link_loss(o, own, last, valid, labels);
        else
            loss += token_loss(o, own, last, labels, smoothing,
                               logits ? logits + i * last * c->vocab : NULL);
    }
    free(x);
    return loss;
}
