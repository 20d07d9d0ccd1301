/*
 * variant_case.c - random problems for every variant; see variant_case.h.
 */
#include "variant_case.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

int variant_number(const char *spec, const char *key, int otherwise)
{
    const char *at = strpbrk(spec, ":,");
    size_t length = strlen(key);
    for (; at; at = strpbrk(at, ":,")) {
        at++;
        if (!strncmp(at, key, length) && at[length] == '=') return atoi(at + length + 1);
    }
    return otherwise;
}

int variant_is(const char *spec, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = spec; at; at = strchr(at, '+')) {
        at += *at == '+';
        if (!strncmp(at, name, length) && (!at[length] || strchr(":+", at[length])))
            return 1;
    }
    return 0;
}

/* ---- elements ---------------------------------------------------------------------- */

ph_dtype variant_type(const variant_case *c, const char *name)
{
    static const char *const typed[] = {"q", "k", "v", "x", "memory", "dout"};
    if (!strcmp(name, "visible")) return PH_BOOL;
    if (!strcmp(name, "q_lens") || !strcmp(name, "kv_lens")) return PH_I32;
    for (size_t i = 0; i < sizeof typed / sizeof typed[0]; i++)
        if (!strcmp(name, typed[i])) return c->s.type;
    return PH_F32;
}

/* x as this type holds it. */
static double rounded(ph_dtype type, double x)
{
    float wide = (float)x;
    uint16_t narrow;
    ph_tensor t = {.type = PH_F32, .rank = 1, .shape = {1}, .data = &wide, .bytes = 4};
    if (type != PH_F16 && type != PH_BF16) return (double)wide;
    ph_tensor_convert(&t, type, &narrow);
    ph_tensor back = {.type = type, .rank = 1, .shape = {1}, .data = &narrow, .bytes = 2};
    ph_tensor_convert(&back, PH_F32, &wide);
    return (double)wide;
}

double *variant_put(variant_case *c, const char *name, double size, int n0, int n1,
                    int n2, int n3)
{
    double *to = bag_put(&c->in, name, n0, n1, n2, n3);
    int count = bag_size(bag_find(&c->in, name));
    ph_dtype type = variant_type(c, name);
    for (int i = 0; i < count; i++)
        to[i] = rounded(type, size * (double)check_normal(&c->random));
    return to;
}

void *variant_encode(const bag_tensor *t, ph_dtype type)
{
    int count = bag_size(t);
    float *wide = malloc(((size_t)count + 1) * sizeof *wide);
    char *to = calloc((size_t)count + 1, 4);
    for (int i = 0; i < count; i++) {
        wide[i] = (float)t->data[i];
        if (type == PH_BOOL) to[i] = t->data[i] != 0;
        if (type == PH_I32) ((int32_t *)(void *)to)[i] = (int32_t)t->data[i];
    }
    ph_tensor from = {.type = PH_F32,
                      .rank = 1,
                      .shape = {(size_t)count},
                      .data = wide,
                      .bytes = (size_t)count * 4};
    if (type == PH_F32) memcpy(to, wide, (size_t)count * 4);
    if (type == PH_F16 || type == PH_BF16) ph_tensor_convert(&from, type, to);
    free(wide);
    return to;
}

/* ---- parameters of the variants ---------------------------------------------------- */

static void put_talking(variant_case *c)
{
    int heads = c->s.heads;
    const char *const names[] = {"w_logits", "w_weights"};
    for (int n = 0; n < 2; n++) {
        double *m = variant_put(c, names[n], 0.4, heads, heads, -1, -1);
        for (int h = 0; h < heads; h++) m[h * heads + h] += 1;
        for (int i = 0; i < heads * heads; i++) m[i] = rounded(PH_F32, m[i]);
    }
}

/* Composition weights per token: what the generators of a layer would give. */
static void put_channels(variant_case *c, int rank)
{
    static const char *const names[4][3] = {{"preq_w1", "preq_w2", "preq_g"},
                                            {"prek_w1", "prek_w2", "prek_g"},
                                            {"postq_w1", "postq_w2", "postq_g"},
                                            {"postk_w1", "postk_w2", "postk_g"}};
    int heads = c->s.heads;
    for (int n = 0; n < 4; n++) {
        int len = n % 2 ? c->s.kv_len : c->s.q_len;
        if (variant_number(c->spec, n < 2 ? "pre" : "post", 1) == 0) continue;
        if (strstr(c->spec, n % 2 ? "side=q" : "side=k")) continue;
        variant_put(c, names[n][0], 0.9, c->s.batch, len, rank, heads);
        variant_put(c, names[n][1], 0.3, c->s.batch, len, rank, heads);
        variant_put(c, names[n][2], 0.3, c->s.batch, len, heads, -1);
    }
}

static void put_dcmha(variant_case *c, int layer)
{
    int rank = variant_number(c->spec, "rank", 2), heads = c->s.heads;
    int wide = 2 * rank * heads, model = c->s.model;
    if (c->random & 1) variant_put(c, "dc_static", 0.3, 2, heads, heads, -1);
    if (!layer) {
        put_channels(c, rank);
        return;
    }
    variant_put(c, "dc_w1", 0.5, 4, model, wide, -1);
    variant_put(c, "dc_w2", 0.2, 4, wide, 2 * rank, heads);
    variant_put(c, "dc_wg", 0.3, 4, model, heads, -1);
}

static void put_moh(variant_case *c)
{
    int shared = variant_number(c->spec, "shared", 0), routed = c->s.heads - shared;
    int model = c->s.model, top = variant_number(c->spec, "top", 0);
    if (top > 0) variant_put(c, "moh_wr", 0.7, model, routed, -1, -1);
    if (shared > 1 || top == 0) variant_put(c, "moh_ws", 0.7, model, shared, -1, -1);
    if (shared > 0 && top > 0) variant_put(c, "moh_wh", 0.7, model, 2, -1, -1);
}

static void put_collab(variant_case *c)
{
    int source = c->s.source ? c->s.source : c->s.model, wide = c->s.qk_dim;
    variant_put(c, "wq", 0.5, c->s.model, wide, -1, -1);
    variant_put(c, "wk", 0.5, source, wide, -1, -1);
    variant_put(c, "mix", 0.7, c->s.heads, wide, -1, -1);
    if (c->random & 1) variant_put(c, "content", 0.4, c->s.heads, source, -1, -1);
}

static void put_diff(variant_case *c)
{
    static const char *const names[] = {"lambda_q1", "lambda_k1", "lambda_q2",
                                        "lambda_k2"};
    for (int n = 0; n < 4; n++) variant_put(c, names[n], 0.3, c->s.qk_dim, -1, -1, -1);
    variant_put(c, "diff_norm", 1, c->s.v_dim, -1, -1, -1);
}

/* qk_dim is the part of a head without RoPE. */
static void put_mla(variant_case *c)
{
    int rope = variant_number(c->spec, "rope", 0), heads = c->s.heads;
    int source = c->s.source ? c->s.source : c->s.model, latent = 3 + c->s.model / 2;
    bag_drop(&c->in, "wk");
    bag_drop(&c->in, "wv");
    variant_put(c, "w_dkv", 0.5, source, latent + rope, -1, -1);
    variant_put(c, "kv_norm", 1, latent, -1, -1, -1);
    variant_put(c, "w_uk", 0.4, latent, heads * c->s.qk_dim, -1, -1);
    variant_put(c, "w_uv", 0.4, latent, heads * c->s.v_dim, -1, -1);
    if (c->random & 1) {
        variant_put(c, "wq", 0.5, c->s.model, heads * (c->s.qk_dim + rope), -1, -1);
        return;
    }
    bag_drop(&c->in, "wq");
    variant_put(c, "w_dq", 0.5, c->s.model, latent + 1, -1, -1);
    variant_put(c, "q_norm", 1, latent + 1, -1, -1, -1);
    variant_put(c, "w_uq", 0.4, latent + 1, heads * (c->s.qk_dim + rope), -1, -1);
}

/* Heads as wo sees them, and their elements. */
static int out_heads(const variant_case *c)
{
    int pairs = variant_is(c->spec, "diff") || variant_is(c->spec, "diff2");
    return pairs ? c->s.heads / 2 : c->s.heads;
}

static int concat_columns(const variant_case *c)
{
    int overlap = variant_is(c->spec, "mohsa") * variant_number(c->spec, "overlap", 0);
    return out_heads(c) * (c->s.v_dim + 2 * overlap);
}

static void put_gated(variant_case *c)
{
    int gates = strstr(c->spec, ":element") ? concat_columns(c) : out_heads(c);
    variant_put(c, "w_gate", 0.6, c->s.model, gates, -1, -1);
}

static void put_extras(variant_case *c, int layer)
{
    if (variant_is(c->spec, "entmax") && !strstr(c->spec, "alpha="))
        variant_put(c, "alpha_logit", 1, c->s.heads, -1, -1, -1);
    if (variant_is(c->spec, "talking")) put_talking(c);
    if (variant_is(c->spec, "dcmha")) put_dcmha(c, layer);
    if (variant_is(c->spec, "moh")) put_moh(c);
    if (variant_is(c->spec, "collab")) put_collab(c);
    if (variant_is(c->spec, "diff")) put_diff(c);
    if (variant_is(c->spec, "mla")) put_mla(c);
    if (variant_is(c->spec, "gated")) put_gated(c);
    if (variant_is(c->spec, "diff2"))
        variant_put(c, "w_lambda", 0.6, c->s.model, c->s.heads / 2, -1, -1);
}

/* ---- whole problems ---------------------------------------------------------------- */

static void begin(variant_case *c, const char *spec, const variant_shape *shape,
                  uint64_t seed)
{
    memset(c, 0, sizeof *c);
    c->s = *shape;
    c->random = seed;
    check_random(&c->random);
    snprintf(c->spec, sizeof c->spec, "%s", spec);
    if (!c->s.k_heads) c->s.k_heads = c->s.heads;
    if (!c->s.v_heads) c->s.v_heads = c->s.heads;
    if (!c->s.kv_len) c->s.kv_len = c->s.q_len;
    if (c->s.kv_len < 0) c->s.kv_len = 0;
    if (!c->s.v_dim) c->s.v_dim = c->s.qk_dim;
    if (!c->s.type) c->s.type = PH_F32;
    c->o.variant = c->spec;
}

void variant_core_case(variant_case *c, const char *spec, const variant_shape *shape,
                       uint64_t seed)
{
    begin(c, spec, shape, seed);
    const variant_shape *s = &c->s;
    variant_put(c, "q", 1, s->batch, s->heads, s->q_len, s->qk_dim);
    variant_put(c, "k", 1, s->batch, s->k_heads, s->kv_len, s->qk_dim);
    variant_put(c, "v", 1, s->batch, s->v_heads, s->kv_len, s->v_dim);
    variant_put(c, "dout", 1, s->batch, s->heads, s->q_len, s->v_dim);
    put_extras(c, 0);
}

void variant_layer_case(variant_case *c, const char *spec, const variant_shape *shape,
                        uint64_t seed)
{
    begin(c, spec, shape, seed);
    const variant_shape *s = &c->s;
    int source = s->source ? s->source : s->model, wide = concat_columns(c);
    c->o.heads = s->heads, c->o.k_heads = s->k_heads, c->o.v_heads = s->v_heads;
    variant_put(c, "x", 1, s->batch, s->q_len, s->model, -1);
    if (s->source) variant_put(c, "memory", 1, s->batch, s->kv_len, s->source, -1);
    variant_put(c, "wq", 0.5, s->model, s->heads * s->qk_dim, -1, -1);
    variant_put(c, "wk", 0.5, source, s->k_heads * s->qk_dim, -1, -1);
    variant_put(c, "wv", 0.5, source, s->v_heads * s->v_dim, -1, -1);
    if (s->out_dim) variant_put(c, "wo", 0.4, wide, s->out_dim, -1, -1);
    variant_put(c, "dout", 1, s->batch, s->q_len, s->out_dim ? s->out_dim : wide, -1);
    put_extras(c, 1);
}

void variant_case_free(variant_case *c)
{
    bag_free(&c->in);
}

/* ---- the command line -------------------------------------------------------------- */

static void add(char *words, size_t size, const char *format, ...)
{
    size_t used = strlen(words);
    va_list list;
    va_start(list, format);
    vsnprintf(words + used, size - used, format, list);
    va_end(list);
}

void variant_words(const variant_case *c, char *words, size_t size)
{
    const variant_options *o = &c->o;
    words[0] = 0;
    if (strcmp(c->spec, "mha")) add(words, size, " --variant %s", c->spec);
    if (o->heads) add(words, size, " --heads %d", o->heads);
    if (o->heads && o->k_heads != o->heads) add(words, size, " --k-heads %d", o->k_heads);
    if (o->heads && o->v_heads != o->heads) add(words, size, " --v-heads %d", o->v_heads);
    if (o->causal) add(words, size, " --causal");
    if (o->window) add(words, size, " --window %d,%d", o->left, o->right);
    if (o->offset || ((o->causal || o->window) && c->s.q_len != c->s.kv_len))
        add(words, size, " --offset %d", o->offset);
    if (o->scale != 0) add(words, size, " --scale %.9g", o->scale);
    if (o->softcap > 0) add(words, size, " --softcap %.9g", o->softcap);
    if (o->rope)
        add(words, size, " --rope %.9g,%s", o->rope_base,
            o->rope == 1 ? "half" : "interleaved");
    if (o->rope_dims) add(words, size, " --rope-dims %d", o->rope_dims);
    if (o->yarn_factor > 0)
        add(words, size, " --yarn %.9g,%.9g", o->yarn_factor, o->yarn_length);
    if (o->qk_norm) add(words, size, " --qk-norm");
    if (o->balance != 0) add(words, size, " --balance %.9g", o->balance);
}
