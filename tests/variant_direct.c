/*
 * variant_direct.c - see variant_direct.h.
 *
 * Parameters are found by ph_plan_extra and ph_layer_param alone: their names lead to the
 * tensors of the problem, their shapes must be the ones the oracle expects.
 */
#include "variant_direct.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 2 * BAG_MOST };

void (*variant_direct_change)(ph_plan *plan);

typedef struct direct {
    const variant_case *c;
    ph_attn attn;
    ph_args args;
    ph_look_at look;
    void *taken[2 * MOST]; /* released at the end */
    int takes;
    ph_tensor out[MOST]; /* what the file will hold */
    char names[MOST][32];
    int count;
    char spec[160]; /* of the variant, with what the program finds in the file */
    char why[200];  /* a parameter that is not as expected */
} direct;

/* ---- tensors in and out ------------------------------------------------------------ */

static void *keep(direct *d, void *block)
{
    d->taken[d->takes++] = block;
    return block;
}

/* A tensor of IN as its type has it, or NULL. */
static void *in(direct *d, const char *name)
{
    const bag_tensor *t = bag_find(&d->c->in, name);
    return t ? keep(d, variant_encode(t, variant_type(d->c, name))) : NULL;
}

/* Memory for a tensor of OUT. */
static void *out(direct *d, const char *prefix, const char *name, ph_dtype type, int rank,
                 const int *dim)
{
    ph_tensor *t = &d->out[d->count];
    size_t count = 1;
    snprintf(d->names[d->count], sizeof d->names[0], "%s%s", prefix, name);
    *t = (ph_tensor){.name = d->names[d->count++], .type = type, .rank = rank};
    for (int i = 0; i < rank; i++) count *= t->shape[i] = (size_t)dim[i];
    void *data = keep(d, calloc(count + 1, 4));
    t->data = data;
    return data;
}

/* Memory for the gradient of a tensor of IN; NULL if there is none or no backward. */
static void *grad(direct *d, const char *name)
{
    const bag_tensor *t = bag_find(&d->c->in, name);
    if (!t || !d->attn.backward) return NULL;
    return out(d, "d", name, variant_type(d->c, name), t->rank, t->dim);
}

/* A parameter that the library lists; *to is its data. 0: not as expected. */
static int parameter(direct *d, const ph_param *p, const float **to, float **gradient)
{
    const bag_tensor *t = bag_find(&d->c->in, p->name);
    int same = t ? t->rank == p->rank : p->optional;
    for (int i = 0; t && same && i < t->rank; i++) same = t->dim[i] == p->dims[i];
    *to = in(d, p->name);
    *gradient = grad(d, p->name);
    if (same) return 1;
    snprintf(d->why, sizeof d->why, "wants %s of rank %d (%d, %d, %d, %d)", p->name,
             p->rank, p->dims[0], p->dims[1], p->dims[2], p->dims[3]);
    return 0;
}

/* ---- what core and layer mode share ------------------------------------------------ */

static ph_broadcast leading(const variant_case *c, const char *name)
{
    const bag_tensor *t = bag_find(&c->in, name);
    return t ? (ph_broadcast){t->dim[0], t->dim[1], t->dim[2]} : (ph_broadcast){0, 0, 0};
}

/* The program reads some sizes off the tensors; the library wants to be told. */
static void complete_spec(direct *d)
{
    const bag *b = &d->c->in;
    const bag_tensor *up = bag_find(b, "w_uk"), *down = bag_find(b, "w_dq");
    const char *spec = d->c->spec;
    int head = (int)strcspn(spec, "+"); /* the part that is a kind of layer */
    char more[60] = "";
    if (variant_is(spec, "collab") && bag_find(b, "content"))
        snprintf(more, sizeof more, ":content=1");
    if (up) snprintf(more, sizeof more, ",latent=%d", up->dim[0]);
    if (down)
        snprintf(more, sizeof more, ",latent=%d,q_latent=%d", up->dim[0], down->dim[1]);
    snprintf(d->spec, sizeof d->spec, "%.*s%s%s", head, spec, more, spec + head);
    if (up) d->attn.qk_dim += variant_number(spec, "rope", 0);
}

static void describe(direct *d)
{
    const variant_case *c = d->c;
    const bag_tensor *gate = bag_find(&c->in, "gate");
    ph_dtype type = c->s.type;
    d->attn = (ph_attn){.batch = c->s.batch,
                        .q_heads = c->s.heads,
                        .k_heads = c->s.k_heads,
                        .v_heads = c->s.v_heads,
                        .q_len = c->s.q_len,
                        .kv_len = c->s.kv_len,
                        .qk_dim = c->s.qk_dim,
                        .v_dim = c->s.v_dim,
                        .scale = (float)c->o.scale,
                        .softcap = (float)c->o.softcap,
                        .anchor = PH_ANCHOR_OFFSET,
                        .q_offset = c->o.offset,
                        .band_left = c->o.left,
                        .band_right = c->o.right,
                        .variant = d->spec,
                        .backward = bag_find(&c->in, "dout") != NULL};
    d->attn.dtype = type == PH_F32 ? PH_F32 : type == PH_F16 ? PH_F16 : PH_BF16;
    if (c->o.causal) d->attn.mask = PH_MASK_CAUSAL;
    if (c->o.window) d->attn.mask = PH_MASK_BAND;
    d->attn.bias = leading(c, "bias");
    d->attn.visible = leading(c, "visible");
    d->attn.gate = gate && gate->rank == 3 ? PH_GATE_ROW : PH_GATE_HEAD;
    complete_spec(d);
}

static void connect(direct *d)
{
    const variant_shape *s = &d->c->s;
    const int cells[] = {s->batch, s->heads, s->q_len, s->kv_len};
    d->args.bias = in(d, "bias"), d->args.visible = in(d, "visible");
    d->args.gate = in(d, "gate"), d->args.sink = in(d, "sink");
    d->args.alibi = in(d, "alibi");
    d->args.q_lens = in(d, "q_lens"), d->args.kv_lens = in(d, "kv_lens");
    d->args.lse = out(d, "", "lse", PH_F32, 3, cells);
    d->look.weights = out(d, "", "weights", PH_F32, 4, cells);
    const int keys[] = {s->batch, s->heads, s->kv_len};
    d->look.col_sum = out(d, "", "col_sum", PH_F32, 3, keys);
    d->look.entropy = out(d, "", "entropy", PH_F32, 3, cells);
    d->args.look = &d->look;
}

/* ---- core mode --------------------------------------------------------------------- */

static ph_status run_core(direct *d, ph_ctx *ctx)
{
    const variant_shape *s = &d->c->s;
    const int dims[] = {s->batch, s->heads, s->q_len, s->v_dim};
    const float *extra[BAG_MOST] = {NULL};
    float *dextra[BAG_MOST] = {NULL};
    ph_plan *plan = NULL;
    ph_status status = ph_plan_create(&plan, ctx, &d->attn);
    if (status == PH_OK && variant_direct_change) variant_direct_change(plan);
    d->args.q = in(d, "q"), d->args.k = in(d, "k"), d->args.v = in(d, "v");
    d->args.out = out(d, "", "out", s->type, 4, dims);
    d->args.extra = extra;
    ph_grads g = {.dout = in(d, "dout"), .dlse = in(d, "dlse"), .dextra = dextra};
    g.dq = grad(d, "q"), g.dk = grad(d, "k"), g.dv = grad(d, "v");
    g.dbias = grad(d, "bias"), g.dgate = grad(d, "gate"), g.dsink = grad(d, "sink");
    for (int i = 0; status == PH_OK && ph_plan_extra(plan, i); i++)
        if (!parameter(d, ph_plan_extra(plan, i), &extra[i], &dextra[i]))
            status = PH_BAD_SHAPE;
    if (status == PH_OK) status = ph_forward(plan, &d->args);
    if (status == PH_OK && d->attn.backward) status = ph_backward(plan, &d->args, &g);
    ph_plan_free(plan);
    return status;
}

/* ---- layer mode -------------------------------------------------------------------- */

static int rotates(const variant_case *c)
{
    return c->o.rope || variant_is(c->spec, "mla");
}

static ph_form form(const direct *d, const char *matrix)
{
    const bag_tensor *t = bag_find(&d->c->in, matrix);
    return t && t->rank == 3 ? PH_FORM_HEADS : PH_FORM_WHOLE;
}

static ph_layer_desc layer_desc(const direct *d)
{
    const variant_shape *s = &d->c->s;
    const variant_options *o = &d->c->o;
    return (ph_layer_desc){.model_dim = s->model,
                           .memory_dim = s->source,
                           .out_dim = s->out_dim,
                           .concat = !s->out_dim,
                           .attn = d->attn,
                           .q_form = form(d, "wq"),
                           .k_form = form(d, "wk"),
                           .v_form = form(d, "wv"),
                           .rope = (ph_rope)o->rope,
                           .rope_base = (float)o->rope_base,
                           .rope_dims = o->rope_dims,
                           .rope_scaling = o->yarn_factor > 0 ? PH_ROPE_YARN : 0,
                           .rope_factor = (float)o->yarn_factor,
                           .rope_length = (int)o->yarn_length,
                           .qk_norm = o->qk_norm};
}

/* The fields of weights and grads that have names. */
static void name_fields(ph_layer_weights *w, ph_layer_grads *g, const char *name,
                        const float *data, float *gradient)
{
#define FIELD(name)                                                                      \
    #name, offsetof(ph_layer_weights, name), offsetof(ph_layer_grads, d##name)
    static const struct {
        const char *name;
        size_t w, dw;
    } fields[] = {{FIELD(wq)}, {FIELD(wk)}, {FIELD(wv)}, {FIELD(wo)},     {FIELD(bq)},
                  {FIELD(bk)}, {FIELD(bv)}, {FIELD(bo)}, {FIELD(q_norm)},
                  {FIELD(k_norm)}};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (!strcmp(fields[i].name, name)) {
            memcpy((char *)w + fields[i].w, &data, sizeof data);
            memcpy((char *)g + fields[i].dw, &gradient, sizeof gradient);
        }
}

static ph_status load_parameters(direct *d, const ph_layer *layer, ph_layer_weights *w,
                                 ph_layer_grads *g, const float **extra, float **dextra)
{
    int named = ph_layer_named(layer);
    for (int i = 0; ph_layer_param(layer, i); i++) {
        const ph_param *p = ph_layer_param(layer, i);
        const float *data;
        float *gradient;
        if (!parameter(d, p, &data, &gradient)) return PH_BAD_SHAPE;
        if (i < named)
            name_fields(w, g, p->name, data, gradient);
        else
            extra[i - named] = data, dextra[i - named] = gradient;
    }
    return PH_OK;
}

/* (batch, len, heads, dim) as OUT has it: (batch, heads, len, dim). */
static void put_heads(direct *d, const float *from, const bag_tensor *like)
{
    int heads = like->dim[1], len = like->dim[2], dim = like->dim[3];
    float *to = out(d, "", "heads", PH_F32, 4, like->dim);
    for (int n = 0; n < bag_size(like); n++) {
        int e = n % dim, i = n / dim % len, h = n / dim / len % heads;
        to[n] = from[((n / dim / len / heads * len + i) * heads + h) * dim + e];
    }
}

static ph_status call_layer(direct *d, const ph_layer *layer, const bag *like)
{
    const float *extra[BAG_MOST] = {NULL};
    float *dextra[BAG_MOST] = {NULL};
    const bag_tensor *y = bag_find(like, "out"), *heads = bag_find(like, "heads"),
                     *gate = bag_find(like, "gate");
    const int one[] = {1};
    ph_layer_weights w = {.extra = extra};
    ph_layer_grads g = {.dextra = dextra, .dout = in(d, "dout"), .dlse = in(d, "dlse")};
    ph_layer_args a = {.x = in(d, "x"), .memory = in(d, "memory"), .attn = d->args};
    ph_status status = load_parameters(d, layer, &w, &g, extra, dextra);
    a.out = out(d, "", "out", d->c->s.type, 3, y->dim);
    a.heads = keep(d, calloc((size_t)bag_size(heads) + 1, sizeof(float)));
    a.balance = (float)d->c->o.balance;
    int32_t *past = keep(d, calloc((size_t)d->c->s.batch + 1, sizeof *past));
    for (int b = 0; b < d->c->s.batch && rotates(d->c); b++) past[b] = d->c->o.offset;
    a.past = past;
    if (gate) a.gate_out = out(d, "", "gate", PH_F32, 3, gate->dim);
    if (gate) a.balance_loss = out(d, "", "balance_loss", PH_F32, 1, one);
    a.saved_size = ph_layer_saved(layer);
    a.saved = keep(d, aligned_alloc(64, a.saved_size / 64 * 64 + 64));
    g.dx = grad(d, "x"), g.dmemory = grad(d, "memory");
    g.dbias = grad(d, "bias"), g.dgate = grad(d, "gate"), g.dsink = grad(d, "sink");
    if (status == PH_OK) status = ph_layer_forward(layer, &w, &a);
    if (status == PH_OK && d->attn.backward)
        status = ph_layer_backward(layer, &w, &a, &g);
    put_heads(d, a.heads, heads);
    return status;
}

static ph_status run_layer(direct *d, ph_ctx *ctx)
{
    ph_layer_desc desc = layer_desc(d);
    ph_layer *layer = NULL;
    bag like = {.count = 0};
    variant_options o = d->c->o;
    o.variant = d->c->spec;
    variant_forward(&o, &d->c->in, &like); /* for shapes */
    ph_status status = ph_layer_create(&layer, ctx, &desc);
    if (status == PH_OK) status = call_layer(d, layer, &like);
    ph_layer_free(layer);
    bag_free(&like);
    return status;
}

ph_file *variant_direct(ph_ctx *ctx, const variant_case *c, const char *path,
                        const char **why)
{
    static char text[300];
    direct d = {.c = c};
    ph_file *file = NULL;
    *why = NULL;
    if (rotates(c) && c->o.offset && !c->s.source) return NULL;
    describe(&d);
    connect(&d);
    ph_status status = c->o.heads ? run_layer(&d, ctx) : run_core(&d, ctx);
    snprintf(text, sizeof text, "%s: %s", ph_status_text(status),
             d.why[0] ? d.why : ph_error(ctx));
    *why = text;
    if (status == PH_OK)
        status = ph_file_write(path, d.out, (size_t)d.count, NULL, 0, NULL);
    if (status == PH_OK) ph_file_read(&file, path, NULL);
    for (int n = 0; n < d.takes; n++) free(d.taken[n]);
    return file;
}
