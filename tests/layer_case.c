/*
 * layer_case.c - random layers for the tests: memory, values, comparison; the formulas
 * are in layer_oracle.c, the interface of both in layer_oracle.h.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "layer_oracle.h"
#include "oracle.h"

const char *const layer_names[LT_COUNT] = {
    "x",    "memory", "wq",     "wk",     "wv",   "wo",     "bq",   "bk",
    "bv",   "bo",     "q_norm", "k_norm", "bias", "gate",   "sink", "alibi",
    "dout", "dlse",   "out",    "heads",  "lse",  "weights"};

enum { PATTERN = 0xfb }; /* every byte of what the library is to write */

/* ---- shapes ------------------------------------------------------------------------ */

static size_t product(int a, int b, int c, int d)
{
    return (size_t)a * (size_t)b * (size_t)c * (size_t)d;
}

static size_t count_of(const ph_layer_desc *d, int id)
{
    const ph_attn *a = &d->attn;
    int in = d->memory_dim ? d->memory_dim : d->model_dim;
    int q = a->q_heads * a->qk_dim, k = a->k_heads * a->qk_dim, v = a->v_heads * a->v_dim;
    int wide = a->q_heads * a->v_dim;
    switch (id) {
    case LT_X: return product(a->batch, a->q_len, d->model_dim, 1);
    case LT_MEMORY: return product(a->batch, a->kv_len, d->memory_dim, 1);
    case LT_WQ: return product(d->model_dim, q, 1, 1);
    case LT_WK: return product(in, k, 1, 1);
    case LT_WV: return product(in, v, 1, 1);
    case LT_WO: return product(wide, d->out_dim, 1, 1);
    case LT_BQ: return (size_t)q;
    case LT_BK: return (size_t)k;
    case LT_BV: return (size_t)v;
    case LT_BO: return (size_t)d->out_dim;
    case LT_Q_NORM:
    case LT_K_NORM: return (size_t)a->qk_dim;
    case LT_BIAS: return product(a->bias.batch, a->bias.heads, a->bias.q_len, a->kv_len);
    case LT_GATE:
        if (a->gate == PH_GATE_ROW) return product(a->batch, a->q_heads, a->q_len, 1);
        return (size_t)a->q_heads;
    case LT_SINK:
    case LT_ALIBI: return (size_t)a->q_heads;
    case LT_DOUT:
    case LT_OUT: return product(a->batch, a->q_len, d->out_dim, 1);
    case LT_HEADS: return product(a->batch, a->q_len, wide, 1);
    case LT_WEIGHTS: return product(a->batch, a->q_heads, a->q_len, a->kv_len);
    default: return product(a->batch, a->q_heads, a->q_len, 1);
    }
}

static int is_activation(int id)
{
    return id == LT_X || id == LT_MEMORY || id == LT_OUT || id == LT_DOUT;
}

static ph_form form_of(const ph_layer_desc *d, int id)
{
    return id == LT_WQ   ? d->q_form
           : id == LT_WK ? d->k_form
           : id == LT_WV ? d->v_form
           : id == LT_WO ? d->o_form
                         : PH_FORM_WHOLE;
}

static ph_dtype stored_as(const ph_layer_desc *d, int id)
{
    return id == LT_WQ   ? d->wq_dtype
           : id == LT_WK ? d->wk_dtype
           : id == LT_WV ? d->wv_dtype
           : id == LT_WO ? d->wo_dtype
                         : PH_F32;
}

/* Where element `index` of a tensor in plain order lies in the library's memory. */
static size_t place_of(const ph_layer_desc *d, int id, size_t index)
{
    const ph_attn *a = &d->attn;
    if (form_of(d, id) == PH_FORM_WHOLE) return index;
    size_t dim = (size_t)(id == LT_WO   ? d->out_dim
                          : id == LT_WV ? a->v_dim
                                        : a->qk_dim);
    int heads = id == LT_WQ   ? a->q_heads
                : id == LT_WK ? a->k_heads
                : id == LT_WV ? a->v_heads
                              : 1;
    size_t row = index / (dim * (size_t)heads), column = index % (dim * (size_t)heads);
    size_t rows = count_of(d, id) / (dim * (size_t)heads);
    if (form_of(d, id) == PH_FORM_LINEAR) return column * rows + row;
    return (column / dim * rows + row) * dim + column % dim;
}

double layer_get(const layer_case *c, const layer_tensor *t, int id, size_t index)
{
    return oracle_decode(t->type, t->data, (int64_t)place_of(&c->desc, id, index));
}

/* ---- memory and values ------------------------------------------------------------- */

static void new_tensor(layer_case *c, layer_tensor *t, int id)
{
    t->count = count_of(&c->desc, id);
    t->type = is_activation(id) ? c->desc.attn.dtype : PH_F32;
    if (t == &c->t[id] && id >= LT_WQ && id <= LT_WO) t->type = stored_as(&c->desc, id);
    t->data = malloc(t->count * oracle_size(t->type) + 1);
    t->value = calloc(t->count + 1, sizeof(double));
    memset(t->data, PATTERN, t->count * oracle_size(t->type));
}

/* Whether element `index` belongs to a row that nobody may read. */
static int is_hidden(const layer_case *c, int id, size_t index)
{
    const ph_layer_desc *d = &c->desc;
    const int32_t *q_lens = c->q_lens, *kv_lens = c->kv_lens;
    int len = id == LT_MEMORY ? d->attn.kv_len : d->attn.q_len;
    int columns = id == LT_MEMORY ? d->memory_dim
                  : id == LT_X    ? d->model_dim
                                  : d->out_dim;
    if (!is_activation(id)) return 0;
    int row = (int)(index / (size_t)columns), b = row / len, t = row % len;
    int no_query = q_lens && t >= q_lens[b], no_key = kv_lens && t >= kv_lens[b];
    if (id == LT_MEMORY) return no_key;
    if (id == LT_X && !d->memory_dim) return no_query && no_key;
    return no_query;
}

static double draw_number(int id, uint64_t *r, double size)
{
    double x = (double)check_normal(r);
    if (id == LT_Q_NORM || id == LT_K_NORM) return 1 + 0.3 * x;
    if (id == LT_GATE) return check_below(r, 6) ? 0.7 + 0.2 * x : 0;
    if (id == LT_ALIBI) return fabs(x) * 0.3;
    if (id == LT_BIAS && check_below(r, 8) == 0) return -INFINITY;
    if (id >= LT_WQ && id <= LT_WO) return x * size;
    return x;
}

static void fill(layer_case *c, int id, uint64_t *r)
{
    layer_tensor *t = &c->t[id];
    const ph_layer_desc *d = &c->desc;
    int rows = id == LT_WO   ? d->attn.q_heads * d->attn.v_dim
               : id == LT_WQ ? d->model_dim
                             : (d->memory_dim ? d->memory_dim : d->model_dim);
    for (size_t i = 0; i < t->count; i++) {
        size_t at = place_of(d, id, i);
        oracle_encode(t->type, t->data, (int64_t)at, draw_number(id, r, 1 / sqrt(rows)));
        t->value[i] = oracle_decode(t->type, t->data, (int64_t)at);
        if (!is_hidden(c, id, i)) continue;
        oracle_encode(t->type, t->data, (int64_t)at, (double)NAN);
        t->value[i] = 0;
    }
}

static int32_t *draw_lens(uint64_t *r, int batch, int most)
{
    int32_t *lens = malloc(((size_t)batch + 1) * sizeof *lens);
    for (int b = 0; b < batch; b++) lens[b] = check_below(r, most + 1);
    return lens;
}

/* The structs of a call point at the tensors that exist. */
static void connect(layer_case *c)
{
    const layer_tensor *t = c->t, *g = c->g;
    c->weights = (ph_layer_weights){.wq = t[LT_WQ].data,
                                    .wk = t[LT_WK].data,
                                    .wv = t[LT_WV].data,
                                    .wo = t[LT_WO].data,
                                    .bq = t[LT_BQ].data,
                                    .bk = t[LT_BK].data,
                                    .bv = t[LT_BV].data,
                                    .bo = t[LT_BO].data,
                                    .q_norm = t[LT_Q_NORM].data,
                                    .k_norm = t[LT_K_NORM].data};
    c->args = (ph_layer_args){.x = t[LT_X].data,
                              .memory = t[LT_MEMORY].data,
                              .out = t[LT_OUT].data,
                              .heads = t[LT_HEADS].data,
                              .past = c->past,
                              .saved = c->saved};
    c->args.attn = (ph_args){.bias = t[LT_BIAS].data,
                             .visible = c->visible,
                             .gate = t[LT_GATE].data,
                             .sink = t[LT_SINK].data,
                             .alibi = t[LT_ALIBI].data,
                             .lse = t[LT_LSE].data,
                             .q_lens = c->q_lens,
                             .kv_lens = c->kv_lens,
                             .seed = 77};
    c->look = (ph_look_at){.weights = t[LT_WEIGHTS].data};
    if (c->look.weights) c->args.attn.look = &c->look;
    c->grads = (ph_layer_grads){.dout = t[LT_DOUT].data,
                                .dlse = t[LT_DLSE].data,
                                .dx = g[LT_X].data,
                                .dmemory = g[LT_MEMORY].data,
                                .dwq = g[LT_WQ].data,
                                .dwk = g[LT_WK].data,
                                .dwv = g[LT_WV].data,
                                .dwo = g[LT_WO].data,
                                .dbq = g[LT_BQ].data,
                                .dbk = g[LT_BK].data,
                                .dbv = g[LT_BV].data,
                                .dbo = g[LT_BO].data,
                                .dq_norm = g[LT_Q_NORM].data,
                                .dk_norm = g[LT_K_NORM].data,
                                .dbias = g[LT_BIAS].data,
                                .dgate = g[LT_GATE].data,
                                .dsink = g[LT_SINK].data};
}

void layer_build(layer_case *c, uint64_t seed, unsigned have, int lens)
{
    ph_layer_desc d = c->desc;
    uint64_t r = seed;
    memset(c, 0, sizeof *c);
    c->desc = d;
    if (lens & 1) c->q_lens = draw_lens(&r, d.attn.batch, d.attn.q_len);
    if (lens & 2) c->kv_lens = draw_lens(&r, d.attn.batch, d.attn.kv_len);
    if (lens & 4) c->past = draw_lens(&r, d.attn.batch, 50);
    for (int id = 0; id < LT_COUNT; id++) {
        if (!(have >> id & 1)) continue;
        new_tensor(c, &c->t[id], id);
        if (id < LT_OUT) fill(c, id, &r);
        if (id < LT_GRADS && d.attn.backward) new_tensor(c, &c->g[id], id);
    }
    if (d.attn.visible.batch) {
        size_t count = product(d.attn.visible.batch, d.attn.visible.heads,
                               d.attn.visible.q_len, d.attn.kv_len);
        c->visible = malloc(count + 1);
        for (size_t i = 0; i < count; i++) c->visible[i] = check_below(&r, 4) != 0;
    }
    connect(c);
}

void layer_case_free(layer_case *c)
{
    for (int id = 0; id < LT_COUNT; id++) free(c->t[id].data), free(c->t[id].value);
    for (int id = 0; id < LT_GRADS; id++) free(c->g[id].data), free(c->g[id].value);
    free(c->visible), free(c->q_lens), free(c->kv_lens), free(c->past), free(c->saved);
    memset(c, 0, sizeof *c);
}

/* Calls visit(t) for everything the library writes. */
static int each_output(const layer_case *c, int (*visit)(const layer_tensor *t))
{
    int good = 1;
    for (int id = LT_OUT; id < LT_COUNT; id++)
        if (c->t[id].data) good &= visit(&c->t[id]);
    for (int id = 0; id < LT_GRADS; id++)
        if (c->g[id].data) good &= visit(&c->g[id]);
    return good;
}

static int wipe(const layer_tensor *t)
{
    memset(t->data, PATTERN, t->count * oracle_size(t->type));
    return 1;
}

static int holds_pattern(const layer_tensor *t)
{
    const unsigned char *bytes = t->data;
    for (size_t i = 0; i < t->count * oracle_size(t->type); i++)
        if (bytes[i] != PATTERN) return 0;
    return 1;
}

void layer_wipe(layer_case *c)
{
    each_output(c, wipe);
}

int layer_untouched(const layer_case *c)
{
    return each_output(c, holds_pattern);
}

void layer_set_form(layer_case *c, int id, ph_form form)
{
    layer_tensor *t = &c->t[id];
    if (id == LT_WQ) c->desc.q_form = form;
    if (id == LT_WK) c->desc.k_form = form;
    if (id == LT_WV) c->desc.v_form = form;
    for (size_t i = 0; i < t->count; i++)
        oracle_encode(t->type, t->data, (int64_t)place_of(&c->desc, id, i), t->value[i]);
}

/* ---- random descriptions ----------------------------------------------------------- */

static int divisor(uint64_t *r, int n)
{
    int d = 1 + check_below(r, n);
    while (n % d) d--;
    return d;
}

static ph_broadcast draw_broadcast(uint64_t *r, const ph_attn *a)
{
    return (ph_broadcast){check_below(r, 2) ? a->batch : 1,
                          check_below(r, 2) ? a->q_heads : 1,
                          check_below(r, 2) ? a->q_len : 1};
}

static void draw_attn(ph_attn *a, uint64_t *r, int cross)
{
    static const int heads[] = {1, 2, 3, 4, 6};
    a->batch = 1 + check_below(r, 3);
    a->q_len = 1 + check_below(r, check_below(r, 8) ? 9 : 40);
    a->kv_len = cross ? 1 + check_below(r, 12) : a->q_len;
    a->q_heads = heads[check_below(r, 5)];
    a->k_heads = divisor(r, a->q_heads);
    a->v_heads = divisor(r, a->q_heads);
    a->qk_dim = 1 + check_below(r, check_below(r, 4) ? 12 : 40);
    a->v_dim = check_below(r, 2) ? a->qk_dim : 1 + check_below(r, 12);
    a->dtype = check_below(r, 2) ? PH_F32 : (ph_dtype)check_below(r, 3);
    a->scale = check_below(r, 4) ? 0 : 0.3f;
    a->softcap = check_below(r, 4) ? 0 : 2.0f;
    a->dropout = check_below(r, 6) ? 0 : 0.25f;
    a->mask = (ph_mask)check_below(r, 3);
    a->band_left = check_below(r, 5) - 1;
    a->band_right = check_below(r, 3);
    if (a->mask != PH_MASK_NONE && cross) {
        a->anchor = check_below(r, 2) ? PH_ANCHOR_OFFSET : PH_ANCHOR_END;
        if (a->anchor == PH_ANCHOR_OFFSET) a->q_offset = check_below(r, 8) - 2;
    }
    if (!check_below(r, 4)) a->bias = draw_broadcast(r, a);
    if (!check_below(r, 4)) a->visible = draw_broadcast(r, a);
    a->gate = (ph_gate)check_below(r, 2);
    a->backward = 1;
}

static ph_form draw_form(uint64_t *r)
{
    return (ph_form)check_below(r, 2);
}

/* Matrices as model files have them: (columns, in), f16 and bf16. */
static void draw_stored(ph_layer_desc *d, uint64_t r)
{
    ph_form *forms[] = {&d->q_form, &d->k_form, &d->v_form, &d->o_form};
    ph_dtype *types[] = {&d->wq_dtype, &d->wk_dtype, &d->wv_dtype, &d->wo_dtype};
    for (int i = 0; i < 3 + !d->concat; i++) {
        if (!check_below(&r, 3)) *forms[i] = PH_FORM_LINEAR;
        if (!check_below(&r, 3)) *types[i] = (ph_dtype)check_below(&r, PH_BF16 + 1);
    }
}

void layer_draw(layer_case *c, uint64_t seed, int index)
{
    uint64_t r = seed * 1000003u + (uint64_t)index;
    ph_layer_desc *d = &c->desc;
    unsigned have = 1u << LT_X | 1u << LT_WQ | 1u << LT_WK | 1u << LT_WV | 1u << LT_DOUT |
                    1u << LT_OUT | 1u << LT_HEADS | 1u << LT_LSE;
    memset(d, 0, sizeof *d);
    d->model_dim = 1 + check_below(&r, 24);
    d->memory_dim = check_below(&r, 3) ? 0 : 1 + check_below(&r, 24);
    d->concat = check_below(&r, 5) == 0;
    draw_attn(&d->attn, &r, d->memory_dim > 0);
    d->out_dim = d->concat ? d->attn.q_heads * d->attn.v_dim : 1 + check_below(&r, 24);
    d->q_form = draw_form(&r), d->k_form = draw_form(&r), d->v_form = draw_form(&r);
    draw_stored(d, r);
    d->rope = d->attn.qk_dim > 1 ? (ph_rope)check_below(&r, 3) : PH_ROPE_NONE;
    d->rope_base = check_below(&r, 2) ? 10000 : 100;
    d->rope_dims = d->rope ? 2 * (1 + check_below(&r, d->attn.qk_dim / 2)) : 0;
    /* with one or two elements the gradient of the norm cancels nearly to nothing */
    d->qk_norm = check_below(&r, 3) == 0 && d->attn.qk_dim > 2;
    d->norm_eps = check_below(&r, 2) ? 1e-6f : 1e-3f;
    if (d->memory_dim) have |= 1u << LT_MEMORY;
    if (!d->concat) have |= 1u << LT_WO;
    if (d->attn.bias.batch) have |= 1u << LT_BIAS;
    if (d->attn.dropout > 0) have |= 1u << LT_WEIGHTS;
    static const int maybe[] = {LT_BQ,     LT_BK,   LT_BV,   LT_BO,    LT_Q_NORM,
                                LT_K_NORM, LT_GATE, LT_SINK, LT_ALIBI, LT_DLSE};
    for (size_t i = 0; i < sizeof maybe / sizeof maybe[0]; i++)
        if (check_below(&r, 3) == 0) have |= 1u << maybe[i];
    if (d->concat) have &= ~(1u << LT_BO);
    if (!d->qk_norm) have &= ~(1u << LT_Q_NORM | 1u << LT_K_NORM);
    layer_build(c, r, have, check_below(&r, 8));
}

/* ---- comparison -------------------------------------------------------------------- */

const char *layer_text(const layer_case *c)
{
    static char text[400];
    const ph_layer_desc *d = &c->desc;
    const ph_attn *a = &d->attn;
    snprintf(
        text, sizeof text,
        "model %d memory %d out %d concat %d, batch %d heads %d %d %d len %d %d dim "
        "%d %d type %d mask %d softcap %g dropout %g, forms %d%d%d%d of %d%d%d%d rope "
        "%d of %d norm %d, bias %d visible %d gate %d sink %d lens %d %d past %d",
        d->model_dim, d->memory_dim, d->out_dim, d->concat, a->batch, a->q_heads,
        a->k_heads, a->v_heads, a->q_len, a->kv_len, a->qk_dim, a->v_dim, (int)a->dtype,
        (int)a->mask, (double)a->softcap, (double)a->dropout, (int)d->q_form,
        (int)d->k_form, (int)d->v_form, (int)d->o_form, (int)d->wq_dtype,
        (int)d->wk_dtype, (int)d->wv_dtype, (int)d->wo_dtype, (int)d->rope,
        d->rope_dims, d->qk_norm, a->bias.batch, a->visible.batch,
        c->t[LT_GATE].data != NULL,
        c->t[LT_SINK].data != NULL, c->q_lens != NULL, c->kv_lens != NULL,
        c->past != NULL);
    return text;
}

static double largest_of(const layer_tensor *t)
{
    double largest = 0;
    for (size_t i = 0; t->value && i < t->count; i++)
        if (isfinite(t->value[i])) largest = fmax(largest, fabs(t->value[i]));
    return largest;
}

/* Errors of the chain of sums are measured against the largest element of the tensor, and
   of its fellows, since a whole tensor can cancel; a half type adds half a step. */
static const char *compare(const layer_case *c, const layer_tensor *t, int id,
                           const char *prefix, double fellows)
{
    static char text[300];
    double largest = largest_of(t);
    for (size_t i = 0; i < t->count; i++) {
        double found = layer_get(c, t, id, i), want = t->value[i];
        double allowed = 2e-5 * largest + 5e-6 * fellows;
        if (t->type != PH_F32) allowed += 0.5 * oracle_ulp(t->type, want);
        if (found == want || fabs(found - want) <= allowed) continue;
        snprintf(text, sizeof text, "%s%s[%zu] is %.9g, expected %.9g within %.2g",
                 prefix, layer_names[id], i, found, want, allowed);
        return text;
    }
    return NULL;
}

const char *layer_compare(const layer_case *c, int backward)
{
    const char *why = NULL;
    double out = 0, grads = 0;
    for (int id = LT_OUT; id <= LT_LSE; id++) out = fmax(out, largest_of(&c->t[id]));
    for (int id = 0; id < LT_GRADS; id++) grads = fmax(grads, largest_of(&c->g[id]));
    for (int id = LT_OUT; id <= LT_LSE && !why && !backward; id++)
        if (c->t[id].data) why = compare(c, &c->t[id], id, "", out);
    for (int id = 0; id < LT_GRADS && !why && backward; id++)
        if (c->g[id].data) why = compare(c, &c->g[id], id, "d", grads);
    return why;
}
