/*
 * variant_draw.c - random descriptions of problems; see variant_draw.h.
 */
#include "variant_draw.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "check.h"

const char *const variant_names[] = {"mha", "entmax",   "sparsemax", "talking", "dcmha",
                                     "moh", "moh-norm", "collab",    "mohsa",   "diff",
                                     "mla", "gated",    "merged",    "diff2",   NULL};

#define PICK(random, list) list[check_below(random, sizeof list / sizeof list[0])]

/* ---- sizes ------------------------------------------------------------------------- */

static int divisor(uint64_t *r, int n)
{
    int d = 1 + check_below(r, n);
    while (n % d) d--;
    return d;
}

/* Around sizes at which engines cut: strips of 4, 6, 12, tiles of 16, blocks of 128. */
static int draw_length(uint64_t *r, int is_long)
{
    static const int around[] = {127, 128, 129, 131},
                     few[] = {1, 2, 3, 5, 7, 11, 12, 13, 15, 16, 17, 23};
    return is_long ? PICK(r, around) : PICK(r, few);
}

static variant_shape draw_shape(const char *name, uint64_t *r, int layer, int is_long,
                                int empty)
{
    static const int heads[] = {1, 2, 3, 4, 5, 6, 8, 12},
                     dims[] = {1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17};
    static const ph_dtype types[] = {PH_F32, PH_F32, PH_F32, PH_F32, PH_F16, PH_BF16};
    variant_shape s = {.batch = is_long ? 1 : 1 + check_below(r, 2)};
    s.heads = is_long ? 1 + check_below(r, 3) : PICK(r, heads);
    s.q_len = draw_length(r, is_long && check_below(r, 2));
    s.kv_len = draw_length(r, is_long);
    if (empty && check_below(r, 2))
        s.q_len = 0;
    else if (empty)
        s.kv_len = -1;
    if (s.q_len * s.kv_len * s.heads > 1200) s.heads = 1 + s.heads % 3;
    if (s.q_len * s.kv_len > 5000) s.heads = 1 + s.heads % 2;
    s.qk_dim = PICK(r, dims);
    s.v_dim = check_below(r, 2) ? s.qk_dim : PICK(r, dims);
    s.type = PICK(r, types);
    s.k_heads = divisor(r, s.heads);
    s.v_heads = divisor(r, s.heads);
    if (!layer) return s;
    s.model = 1 + check_below(r, 12);
    s.out_dim = check_below(r, 4) ? 1 + check_below(r, 9) : 0;
    s.source = check_below(r, 3) ? 0 : 1 + check_below(r, 9);
    if (!s.source) s.kv_len = s.q_len;
    if (s.q_len > 100 && !s.source) s.heads = s.k_heads = s.v_heads = 2;
    if (variant_is(name, "dcmha") && s.source) s.source = s.model;
    if (variant_is(name, "merged")) s.source = s.model;
    return s;
}

/* From one number only multiples of one vector are made; a norm then leaves nothing but
   its sign, and a gradient that cancels to the last digit. So does moh-norm, where norms
   are divided by their deviation. */
static void avoid_rays(variant_shape *s)
{
    if (s->model == 1) s->model = 2;
    if (s->source == 1) s->source = 2;
}

/* What a variant asks of its sizes. */
static void fit_shape(const char *name, variant_shape *s)
{
    int own = variant_is(name, "collab") || variant_is(name, "mohsa") ||
              variant_is(name, "mla");
    if (own) s->k_heads = s->v_heads = s->heads;
    if (variant_is(name, "mohsa")) s->v_dim = s->qk_dim;
    if (variant_is(name, "merged")) s->v_heads = s->heads;
    if (variant_is(name, "diff") || variant_is(name, "mla") ||
        variant_is(name, "moh-norm"))
        avoid_rays(s);
    if (variant_is(name, "diff")) {
        s->heads = s->heads % 2 ? s->heads + 1 : s->heads;
        s->k_heads = s->heads, s->v_heads = s->heads / 2;
        s->v_dim = 2 * s->qk_dim;
    }
    if (variant_is(name, "diff2")) {
        s->heads = s->heads % 2 ? s->heads + 1 : s->heads;
        s->k_heads = s->v_heads = s->heads / 2;
    }
    if (variant_is(name, "moh-norm") && s->heads < 2)
        s->heads = s->k_heads = s->v_heads = 2;
}

/* ---- options of the variant -------------------------------------------------------- */

static void draw_entmax(char *spec, size_t size, uint64_t *r)
{
    static const char *const alphas[] = {"1",    "1.00001", "1.0001", "1.001",
                                         "1.01", "1.05",    "1.25",   "1.5",
                                         "1.5",  "1.8",     "2"};
    if (check_below(r, 2)) snprintf(spec, size, "entmax:alpha=%s", PICK(r, alphas));
}

static void draw_dcmha(char *spec, size_t size, uint64_t *r)
{
    static const char *const sides[] = {"", ",side=q", ",side=k", ",side=both"};
    static const char *const stages[] = {"", "", ",pre=0", ",post=0"};
    static const char *const gelus[] = {"", ",gelu=tanh", ",gelu=erf"};
    snprintf(spec, size, "dcmha:rank=%d%s%s%s", 1 + check_below(r, 3), PICK(r, sides),
             PICK(r, stages), PICK(r, gelus));
}

static void draw_moh(char *spec, size_t size, const char *name, uint64_t *r, int heads)
{
    int shared = check_below(r, heads + 1);
    if (variant_is(name, "moh-norm"))
        shared = check_below(r, heads - 1); /* routed >= 2 */
    int top = shared < heads ? 1 + check_below(r, heads - shared) : 0;
    const char *score =
        variant_is(name, "moh") && !check_below(r, 4) ? ",score=paper" : "";
    snprintf(spec, size, "%s:shared=%d,top=%d%s", name, shared, top, score);
}

/* One part of a name, with options. */
static void draw_part(char *spec, size_t size, const char *name, uint64_t *r,
                      const variant_shape *s)
{
    snprintf(spec, size, "%s", name);
    if (variant_is(name, "entmax")) draw_entmax(spec, size, r);
    if (variant_is(name, "dcmha")) draw_dcmha(spec, size, r);
    if (!strncmp(name, "moh", 3) && !variant_is(name, "mohsa"))
        draw_moh(spec, size, name, r, s->heads);
    if (variant_is(name, "mohsa"))
        snprintf(spec, size, "mohsa:overlap=%d", check_below(r, s->qk_dim + 3));
    if (variant_is(name, "diff"))
        snprintf(spec, size, "diff:depth=%d", check_below(r, 20));
    if (variant_is(name, "mla"))
        snprintf(spec, size, "mla:rope=%d", 2 * (1 + check_below(r, 4)));
    if (variant_is(name, "gated"))
        snprintf(spec, size, "gated:%s", check_below(r, 2) ? "head" : "element");
}

/* "one+other": options for each. */
static void draw_spec(char *spec, size_t size, const char *name, uint64_t *r,
                      const variant_shape *s)
{
    char part[32];
    size_t used = 0;
    for (const char *at = name; at; at = strchr(at, '+')) {
        at += *at == '+';
        snprintf(part, sizeof part, "%.*s", (int)strcspn(at, "+"), at);
        if (used) spec[used++] = '+';
        draw_part(spec + used, size - used, part, r, s);
        used += strlen(spec + used);
    }
}

/* A second part (and a third), where the first one leaves attention as it is. */
static void draw_second(char *spec, size_t size, uint64_t *r)
{
    static const char *const plain[] = {"mha", "entmax", "sparsemax", "talking", "dcmha"};
    static const char *const seconds[] = {"+entmax", "+entmax:alpha=1.5", "+sparsemax",
                                          "+talking", "+talking+entmax"};
    size_t used = strlen(spec);
    for (int n = 0; n < 5; n++)
        if (variant_is(spec, plain[n])) return;
    snprintf(spec + used, size - used, "%s", PICK(r, seconds));
}

/* A gate behind whatever the first part is. */
static void draw_gated(char *spec, size_t size, uint64_t *r)
{
    size_t used = strlen(spec);
    if (variant_is(spec, "gated") || variant_is(spec, "mha")) return; /* mha: alone */
    snprintf(spec + used, size - used, "+gated:%s",
             check_below(r, 2) ? "head" : "element");
}

/* ---- masks and further tensors ----------------------------------------------------- */

static void draw_band(variant_case *c, uint64_t *r)
{
    variant_options *o = &c->o;
    int kind = check_below(r, 4);
    if (kind == 1) o->causal = 1;
    if (kind == 2) {
        o->window = 1;
        o->left = check_below(r, 6) - 1;
        o->right = check_below(r, 4) - 1;
    }
    if (kind == 3 || (kind && c->s.q_len != c->s.kv_len))
        o->offset = check_below(r, c->s.kv_len + 3) - 2;
}

static void draw_lens(variant_case *c, uint64_t *r)
{
    double *q = bag_put(&c->in, "q_lens", c->s.batch, -1, -1, -1);
    double *k = bag_put(&c->in, "kv_lens", c->s.batch, -1, -1, -1);
    for (int b = 0; b < c->s.batch; b++) {
        q[b] = check_below(r, c->s.q_len + 1);
        k[b] = check_below(r, c->s.kv_len + 1);
    }
}

static void draw_masks(variant_case *c, uint64_t *r)
{
    const variant_shape *s = &c->s;
    int axes[] = {s->batch, s->heads, s->q_len};
    for (int n = 0; n < 3; n++)
        if (check_below(r, 2)) axes[n] = 1;
    if (!check_below(r, 3)) {
        double *bias = variant_put(c, "bias", 1, axes[0], axes[1], axes[2], s->kv_len);
        int some = bag_size(bag_find(&c->in, "bias"));
        if (some && !check_below(r, 2)) bias[check_below(r, s->kv_len)] = -INFINITY;
    }
    if (!check_below(r, 4)) {
        double *see = bag_put(&c->in, "visible", axes[0], axes[1], axes[2], s->kv_len);
        int count = bag_size(bag_find(&c->in, "visible"));
        for (int i = 0; i < count; i++) see[i] = check_below(r, 4) != 0;
    }
    if (!check_below(r, 4)) draw_lens(c, r);
    if (!check_below(r, 4)) variant_put(c, "alibi", 0.2, s->heads, -1, -1, -1);
    if (!check_below(r, 3)) variant_put(c, "sink", 1, s->heads, -1, -1, -1);
    if (!check_below(r, 3)) c->o.softcap = 2.5;
    if (!check_below(r, 4)) c->o.scale = 0.375;
    if (!check_below(r, 2)) variant_put(c, "dlse", 1, s->batch, s->heads, s->q_len, -1);
}

static void draw_gate(variant_case *c, uint64_t *r)
{
    const variant_shape *s = &c->s;
    if (check_below(r, 4)) return;
    double *gate = check_below(r, 2)
                       ? variant_put(c, "gate", 1, s->batch, s->heads, s->q_len, -1)
                       : variant_put(c, "gate", 1, s->heads, -1, -1, -1);
    int count = bag_size(bag_find(&c->in, "gate"));
    for (int i = 0; i < count; i++)
        if (!check_below(r, 5)) gate[i] = 0;
}

static void draw_biases(variant_case *c, uint64_t *r)
{
    static const char *const pairs[][2] = {
        {"wq", "bq"}, {"wk", "bk"}, {"wv", "bv"}, {"wo", "bo"}};
    int shared = variant_is(c->spec, "collab"), latent = variant_is(c->spec, "mla");
    for (int n = shared ? 2 : latent ? 3 : 0; n < 4; n++) {
        const bag_tensor *w = bag_find(&c->in, pairs[n][0]);
        if (w && !check_below(r, 3))
            variant_put(c, pairs[n][1], 0.5, w->dim[1], -1, -1, -1);
    }
}

/* (in, heads*dim) to (heads, in, dim). */
static void cut_heads(variant_case *c, const char *name, int heads)
{
    const bag_tensor *t = bag_find(&c->in, name);
    int in = t->dim[0], dim = t->dim[1] / heads;
    bag old = {.t = {*t}, .count = 1};
    old = bag_copy(&old);
    double *to = bag_put(&c->in, old.t[0].name, heads, in, dim, -1);
    for (int n = 0; n < heads * in * dim; n++)
        to[n] = old.t[0].data[(n / dim % in * heads + n / dim / in) * dim + n % dim];
    bag_free(&old);
}

/* Some matrices in the form of one per head. */
static void draw_forms(variant_case *c, uint64_t *r)
{
    const variant_shape *s = &c->s;
    if (variant_is(c->spec, "collab") || variant_is(c->spec, "mla")) return;
    if (!check_below(r, 4)) cut_heads(c, "wq", s->heads);
    if (!check_below(r, 4)) cut_heads(c, "wk", s->k_heads);
    if (!check_below(r, 4)) cut_heads(c, "wv", s->v_heads);
}

/* RoPE on some or all elements of a head; of overlapping heads whole pairs only. */
static void draw_rope(variant_case *c, uint64_t *r)
{
    int dim = c->s.qk_dim, overlap = variant_number(c->spec, "overlap", 0);
    c->o.rope = 1 + check_below(r, 2);
    c->o.rope_base = check_below(r, 2) ? 10000 : 50;
    if (!check_below(r, 4)) {
        c->o.yarn_factor = 4;
        c->o.yarn_length = check_below(r, 2) ? 16 : 4096;
    }
    if (variant_is(c->spec, "mla")) return;
    if (dim % 2 || !check_below(r, 3)) c->o.rope_dims = 2 * (1 + check_below(r, dim / 2));
    if (!variant_is(c->spec, "mohsa")) return;
    c->o.rope = dim % 2 || overlap % 2 ? 0 : 2;
    c->o.rope_dims = 0;
}

/* Norm and rotation, where the variant leaves them to the layer. */
static void draw_position(variant_case *c, uint64_t *r)
{
    int rotates = c->s.qk_dim > 1 || variant_is(c->spec, "mla");
    if (variant_is(c->spec, "collab")) return;
    if (rotates && !check_below(r, 3)) draw_rope(c, r);
    if (!c->o.rope) c->o.yarn_factor = 0;
    if (c->s.qk_dim < 3 || c->s.model == 1 || c->s.source == 1) return; /* rays */
    if (variant_is(c->spec, "moh-norm") || variant_is(c->spec, "mla")) return;
    if (check_below(r, 4)) return;
    c->o.qk_norm = 1;
    variant_put(c, "q_norm", 1, c->s.qk_dim, -1, -1, -1);
    variant_put(c, "k_norm", 1, c->s.qk_dim, -1, -1, -1);
}

void variant_draw(variant_case *c, const char *name, int layer, uint64_t seed, int index)
{
    uint64_t r = seed * 1000003u + (uint64_t)(2 * index + layer);
    char spec[96];
    check_random(&r);
    variant_shape s = draw_shape(name, &r, layer, index % 8 == 7, index % 8 == 5);
    fit_shape(name, &s);
    draw_spec(spec, sizeof spec, name, &r, &s);
    if (layer && index % 4 == 2) draw_second(spec, sizeof spec, &r);
    if (layer && index % 3 == 1) draw_gated(spec, sizeof spec, &r);
    if (layer)
        variant_layer_case(c, spec, &s, check_random(&r));
    else
        variant_core_case(c, spec, &s, check_random(&r));
    draw_band(c, &r);
    draw_masks(c, &r);
    draw_gate(c, &r);
    if (layer) draw_biases(c, &r);
    if (layer) draw_position(c, &r);
    if (layer) draw_forms(c, &r);
    if ((c->o.rope || variant_is(name, "mla")) && c->o.offset < 0) c->o.offset = 0;
    if (variant_is(name, "moh") || variant_is(name, "moh-norm")) c->o.balance = 0.5;
}

const char *variant_text(const variant_case *c)
{
    static char text[900];
    const variant_shape *s = &c->s;
    snprintf(text, sizeof text,
             "batch %d heads %d %d %d len %d %d dim %d %d model %d source %d out %d %s;",
             s->batch, s->heads, s->k_heads, s->v_heads, s->q_len, s->kv_len, s->qk_dim,
             s->v_dim, s->model, s->source, s->out_dim, ph_dtype_name(s->type));
    for (int n = 0; n < c->in.count; n++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, " %s%s", c->in.t[n].name,
                 c->in.t[n].rank == 3 && c->in.t[n].name[0] == 'w' ? "(heads)" : "");
    }
    return text;
}
