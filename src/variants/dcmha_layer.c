/*
 * dcmha_layer.c - the coefficients with which dcmha mixes heads, computed from the
 * tokens.
 *
 * For each channel c of preq, prek, postq, postk that the options enable, and each token
 * x (of the queries, or of the source of the keys):
 *
 *     y  = gelu(x dc_w1[c]) dc_w2[c]             (2R, H)
 *     w1 = y[r] / rms over the heads             r < R, eps 1e-6
 *     w2 = y[R + r]
 *     g  = tanh(x dc_wg[c])                      (H)
 *
 * dc_static is passed to attention unchanged. With a cache the coefficients of the keys
 * are cached beside K and V, (2R + 1) H for each key and channel.
 */
#include <math.h>
#include <string.h>

#include "variants/dcmha.h"

enum { DC_W1, DC_W2, DC_WG, DC_STATIC }; /* own parameters */
enum { Z, GZ };                          /* saved: x dc_w1 and x dc_wg of all channels */
enum { ACT = 2, Y, COEFFICIENTS };       /* scratch: gelu(z), y, what attention reads */

/* One enabled channel. */
typedef struct channel {
    int index;           /* 0 to 3: which of the four matrices */
    int keys;            /* 1: computed from the source of the keys */
    int cached;          /* 1: its coefficients are in the cache */
    size_t hidden, gate; /* where it starts in Z, ACT, Y; in GZ */
    size_t coefficients; /* in COEFFICIENTS, or in the cache */
} channel;

typedef struct dcmha_layer_state {
    ph_dcmha dc;
    int channels;
    channel channel[4];
} dcmha_layer_state;

_Static_assert(sizeof(dcmha_layer_state) <= PH_KIND_STATE, "state of dcmha");

static const dcmha_layer_state *state_of(const ph_kind_call *c)
{
    return (const dcmha_layer_state *)c->shape->state;
}

static const ph_tokens *tokens_of(const ph_kind_call *c, const channel *ch)
{
    return ch->keys ? &c->key_tokens : &c->x_tokens;
}

static int hidden_of(const ph_shape *s)
{
    return 2 * ((const dcmha_layer_state *)s->state)->dc.rank * s->attn.q_heads;
}

/* ---- shape ------------------------------------------------------------------------- */

/* x dc_w1[c] of all channels, then x dc_wg[c]. */
static int list_linears(const ph_shape *s, ph_linear *list)
{
    const dcmha_layer_state *own = (const dcmha_layer_state *)s->state;
    int n = own->channels, in = s->desc->model_dim, heads = s->attn.q_heads;
    int hidden = hidden_of(s);
    for (int i = 0; i < n; i++) {
        const channel *ch = &own->channel[i];
        list[i] = (ph_linear){.param = DC_W1,
                              .offset = (int64_t)ch->index * in * hidden,
                              .columns = hidden,
                              .keys = ch->keys,
                              .buffer = Z,
                              .at = ch->hidden};
        list[n + i] = (ph_linear){.param = DC_WG,
                                  .offset = (int64_t)ch->index * in * heads,
                                  .columns = heads,
                                  .keys = ch->keys,
                                  .buffer = GZ,
                                  .at = ch->gate};
    }
    return 2 * n;
}

/* y = gelu(z) dc_w2[c], and its gradients: all (rows, hidden) by (hidden, hidden), for y
   is as wide as the hidden layer. */
static ph_gemm second(const ph_kind_call *c, const channel *ch)
{
    int n = hidden_of(c->shape), rows = tokens_of(c, ch)->rows;
    ph_gemm g = {.m = rows, .n = n, .k = n};
    g.a = ph_float_at(c->scratch[ACT], (int64_t)ch->hidden), g.a_row = n, g.a_col = 1;
    g.b = ph_float_at(c->param[DC_W2], (int64_t)ch->index * n * n);
    g.b_row = n, g.b_col = 1;
    g.c = ph_float_at_out(c->scratch[Y], (int64_t)ch->hidden), g.c_row = n;
    return g;
}

static ph_gemm second_dx(const ph_kind_call *c, const channel *ch)
{
    ph_gemm g = second(c, ch);
    g.a = ph_float_at(c->backward_only[Y], (int64_t)ch->hidden);
    g.b_row = 1, g.b_col = g.n;
    g.c = ph_float_at_out(c->backward_only[ACT], (int64_t)ch->hidden);
    return g;
}

static ph_gemm second_dw(const ph_kind_call *c, const channel *ch)
{
    ph_gemm g = second(c, ch);
    g.k = g.m, g.m = g.n;
    g.a_row = 1, g.a_col = g.n;
    g.b = ph_float_at(c->backward_only[Y], (int64_t)ch->hidden);
    g.c = ph_float_at_out(c->dparam[DC_W2], (int64_t)ch->index * g.n * g.n);
    return g;
}

static void measure_second(ph_shape *s)
{
    const dcmha_layer_state *own = (const dcmha_layer_state *)s->state;
    const float *none[DC_STATIC + 1] = {NULL};
    float *no_gradient[DC_STATIC + 1] = {NULL};
    ph_kind_call c = {.shape = s, .param = none, .dparam = no_gradient};
    ph_gemm list[3][4];
    c.x_tokens.rows = ph_desc_rows(s->desc);
    c.key_tokens.rows = ph_desc_key_rows(s->desc);
    for (int i = 0; i < own->channels; i++) {
        list[0][i] = second(&c, &own->channel[i]);
        s->flops += 2.0 * list[0][i].m * list[0][i].n * list[0][i].k;
        list[1][i] = second_dx(&c, &own->channel[i]);
        list[2][i] = second_dw(&c, &own->channel[i]);
    }
    for (int i = 0; i < 3; i++) ph_shape_products(s, list[i], own->channels);
}

/* Coefficients of one channel that attention reads. */
static size_t coefficients_of(const ph_shape *s, size_t tokens)
{
    size_t rank = (size_t)((const dcmha_layer_state *)s->state)->dc.rank;
    return tokens * (2 * rank + 1) * (size_t)s->attn.q_heads;
}

/* w1, w2 and g of a channel are tensors of their own. */
static void add_cache_parts(ph_shape *s, size_t tokens)
{
    size_t *part = s->cache_part, heads = (size_t)s->attn.q_heads;
    while (*part) part += PH_DC_TENSORS;
    size_t wide = (size_t)((const dcmha_layer_state *)s->state)->dc.rank * heads;
    part[PH_DC_W1] = part[PH_DC_W2] = tokens * wide;
    part[PH_DC_G] = tokens * heads;
}

static void add_channels(ph_shape *s, dcmha_layer_state *own)
{
    const ph_attn *a = &s->attn;
    size_t q_rows = (size_t)ph_desc_rows(s->desc);
    size_t keys = ph_attn_keys(a); /* of the cache, where there is one */
    ph_linear list[8];
    for (int place = 0; place < 2; place++)
        for (int side = 0; side < 2; side++) {
            channel *ch = &own->channel[own->channels];
            if (!ph_dcmha_has(&own->dc, place, side)) continue;
            *ch = (channel){.index = 2 * place + side, .keys = side == PH_DC_K};
            ch->cached = ch->keys && s->desc->cache;
            ch->coefficients = ch->cached ? s->cache : s->scratch[COEFFICIENTS];
            *(ch->cached ? &s->cache : &s->scratch[COEFFICIENTS]) +=
                coefficients_of(s, ch->keys ? keys : q_rows);
            if (ch->cached) add_cache_parts(s, keys);
            own->channels++;
        }
    int n = list_linears(s, list) / 2;
    ph_shape_linears(s, list, 2 * n);
    for (int i = 0; i < n; i++)
        own->channel[i].hidden = list[i].at, own->channel[i].gate = list[n + i].at;
    s->scratch[ACT] = s->scratch[Y] = s->backward_only[ACT] = s->backward_only[Y] =
        s->saved[Z];
    s->backward_only[COEFFICIENTS] = s->scratch[COEFFICIENTS];
}

/* The tensors hold all four channels and both static mixes, whatever the options say. */
static void count_unused(const dcmha_layer_state *own, ph_param *params)
{
    size_t channels = 4 - (size_t)own->channels;
    size_t mixes = 2 - (size_t)(own->dc.on[0] + own->dc.on[1]);
    for (int i = DC_W1; i <= DC_WG; i++)
        params[i].unused = ph_param_size(&params[i]) / 4 * channels;
    params[DC_STATIC].unused = ph_param_size(&params[DC_STATIC]) / 2 * mixes;
}

static ph_status shape(ph_shape *s, const char *options)
{
    dcmha_layer_state *own = (dcmha_layer_state *)s->state;
    const ph_layer_desc *d = s->desc;
    PH_TRY(ph_dcmha_read(s->ctx, options, &own->dc));
    int in = d->model_dim, heads = s->attn.q_heads, rank = own->dc.rank;
    int hidden = hidden_of(s);
    PH_TRY(ph_shape_width(s, "dc_w2", heads, 4 * (int64_t)hidden * rank));
    if (d->memory_dim && d->memory_dim != in && own->dc.side != PH_DC_Q)
        return ph_fail(
            s->ctx, PH_UNSUPPORTED,
            "memory_dim is %d, expected %d as model_dim, because variant dcmha "
            "computes coefficients from both; or its option side=q",
            d->memory_dim, in);
    ph_param *first = &s->param[s->params];
    ph_shape_param(s, "dc_w1", 0, 4, in, hidden, 0);
    ph_shape_param(s, "dc_w2", 0, 4, hidden, 2 * rank, heads);
    ph_shape_param(s, "dc_wg", 0, 4, in, heads, 0);
    ph_shape_param(s, "dc_static", 1, 2, heads, heads, 0);
    add_channels(s, own);
    count_unused(own, first);
    measure_second(s);
    s->makes_extras = PH_DC_TENSORS * own->channels + 1;
    return PH_OK;
}

static void project(ph_kind_call *c)
{
    ph_linear list[8];
    int n = list_linears(c->shape, list);
    ph_kind_linears(c, list, n);
}

/* ---- gelu -------------------------------------------------------------------------- */

#define EPS       1e-6        /* of the norm over the heads */
#define ROOT_2_PI 0.79788456f /* sqrt(2/pi) */
#define CUBIC     0.044715f

/* Argument of the tanh of gelu. */
static float tanh_argument(float z)
{
    return ROOT_2_PI * (z + CUBIC * z * z * z);
}

static void gelu(const ph_kind_call *c, int n, const float *z, float *y)
{
    int erf_form = state_of(c)->dc.gelu == PH_DC_ERF;
    for (int i = 0; i < n; i++)
        y[i] = erf_form ? erff(z[i] * 0.70710678f) : tanh_argument(z[i]);
    if (!erf_form) ph_kind_tanh(c->ctx, n, y, y);
    for (int i = 0; i < n; i++) y[i] = 0.5f * z[i] * (1 + y[i]);
}

/* dz = dy * gelu'(z) */
static void gelu_backward(const ph_kind_call *c, int n, const float *z, const float *dy,
                          float *dz)
{
    int erf_form = state_of(c)->dc.gelu == PH_DC_ERF;
    for (int i = 0; i < n; i++)
        dz[i] = erf_form ? erff(z[i] * 0.70710678f) : tanh_argument(z[i]);
    if (!erf_form) ph_kind_tanh(c->ctx, n, dz, dz);
    for (int i = 0; i < n; i++) {
        float x = z[i], t = dz[i];
        float bell = erf_form ? 0.39894228f * expf(-0.5f * x * x)
                              : 0.5f * (1 - t * t) * ROOT_2_PI * (1 + 3 * CUBIC * x * x);
        dz[i] = dy[i] * (0.5f * (1 + t) + x * bell);
    }
}

/* ---- tokens ------------------------------------------------------------------------ */

/* A step on one token of a channel: a valid one, or padding. */
typedef void token_step(ph_kind_call *c, const channel *ch, int row);

typedef struct dcmha_job {
    ph_kind_call *call;
    const channel *channel;
    token_step *valid, *beyond;
} dcmha_job;

enum { CHUNK = 32 }; /* tokens of one item */

static void item(void *arg, int lane, int index)
{
    const dcmha_job *j = arg;
    ph_kind_call *c = j->call;
    const ph_tokens *tokens = tokens_of(c, j->channel);
    int end = ph_min((index + 1) * CHUNK, tokens->rows);
    (void)lane;
    for (int row = index * CHUNK; row < end; row++) {
        token_step *step = ph_tokens_has(tokens, row) ? j->valid : j->beyond;
        step(c, j->channel, row);
    }
}

static void each(ph_kind_call *c, token_step *valid, token_step *beyond)
{
    const dcmha_layer_state *own = state_of(c);
    for (int i = 0; i < own->channels; i++) {
        dcmha_job j = {c, &own->channel[i], valid, beyond};
        int rows = tokens_of(c, &own->channel[i])->rows;
        ph_ctx_run(c->ctx, ph_div_up(rows, CHUNK), item, &j);
    }
}

static void activate(ph_kind_call *c, const channel *ch, int row)
{
    int n = hidden_of(c->shape);
    const float *z = c->saved[Z] + ch->hidden + (int64_t)row * n;
    float *act = c->scratch[ACT] + ch->hidden + (int64_t)row * n;
    gelu(c, n, z, act);
}

/* Padding: y is 0, and so is the gradient of dc_w2. */
static void clear_token(ph_kind_call *c, const channel *ch, int row)
{
    size_t n = (size_t)hidden_of(c->shape), heads = (size_t)c->shape->attn.q_heads;
    memset(c->scratch[ACT] + ch->hidden + (size_t)row * n, 0, n * sizeof(float));
    memset(c->saved[GZ] + ch->gate + (size_t)row * heads, 0, heads * sizeof(float));
}

/* Offset of tensor `which` of a channel among the coefficients; *count: those of one
   token. */
static size_t tensor_at(const ph_kind_call *c, const channel *ch, int which, int *count)
{
    const ph_attn *a = &c->shape->attn;
    int wide = state_of(c)->dc.rank * a->q_heads;
    size_t tokens = ch->keys ? ph_attn_keys(a) : ph_attn_rows(a);
    *count = which == PH_DC_G ? a->q_heads : wide;
    return ch->coefficients + tokens * (size_t)wide * (size_t)which;
}

/* Coefficients of one token of a channel. */
static float *coefficients_at(const ph_kind_call *c, const channel *ch, int which,
                              int row)
{
    int count;
    size_t first = tensor_at(c, ch, which, &count);
    if (!ch->cached)
        return c->scratch[COEFFICIENTS] + first + (size_t)row * (size_t)count;
    int b = ph_tokens_batch(&c->key_tokens, row);
    int t = row - ph_tokens_first(&c->key_tokens, b);
    if (ph_desc_grows(c->shape->desc) && c->args->past) t += c->args->past[b];
    size_t slot = (size_t)b * (size_t)c->shape->attn.kv_len + (size_t)t;
    return c->args->extra_cache + first + slot * (size_t)count;
}

static void coefficients_token(ph_kind_call *c, const channel *ch, int row)
{
    int heads = c->shape->attn.q_heads, rank = state_of(c)->dc.rank, n = rank * heads;
    const float *y = c->scratch[Y] + ch->hidden + (int64_t)row * 2 * n;
    const float *z = c->saved[GZ] + ch->gate + (int64_t)row * heads;
    float *w1 = coefficients_at(c, ch, PH_DC_W1, row);
    float *g = coefficients_at(c, ch, PH_DC_G, row);
    for (int r = 0; r < rank; r++) {
        double scale = ph_kind_inverse_rms(heads, y + r * heads, EPS);
        for (int h = 0; h < heads; h++)
            w1[r * heads + h] = (float)(y[r * heads + h] * scale);
    }
    memcpy(coefficients_at(c, ch, PH_DC_W2, row), y + n, (size_t)n * sizeof *y);
    ph_kind_tanh(c->ctx, heads, z, g);
}

static void run_second(ph_kind_call *c,
                       ph_gemm (*make)(const ph_kind_call *, const channel *))
{
    const dcmha_layer_state *own = state_of(c);
    ph_gemm list[4];
    for (int i = 0; i < own->channels; i++) list[i] = make(c, &own->channel[i]);
    if (own->channels) ph_gemm_run(c->ctx, list, own->channels, c->work);
}

static void before(ph_kind_call *c)
{
    const dcmha_layer_state *own = state_of(c);
    int n = 0, count;
    each(c, activate, clear_token);
    run_second(c, second);
    each(c, coefficients_token, coefficients_token);
    for (int i = 0; i < own->channels; i++)
        for (int which = 0; which < PH_DC_TENSORS; which++, n++) {
            const channel *ch = &own->channel[i];
            size_t first = tensor_at(c, ch, which, &count);
            const float *base =
                ch->cached ? c->args->extra_cache : c->scratch[COEFFICIENTS];
            c->extra[n] = base + first;
            if (c->dparam) c->dextra[n] = c->backward_only[COEFFICIENTS] + first;
        }
    c->extra[n] = c->param[DC_STATIC];
    if (c->dparam) c->dextra[n] = c->dparam[DC_STATIC];
}

/* ---- and back ---------------------------------------------------------------------- */

/* Backward of w1 = y / rms(y) over the heads; in double, because with few heads its two
   terms nearly cancel. */
static void norm_backward(int heads, const float *y, const float *dw1, float *dy)
{
    double scale = ph_kind_inverse_rms(heads, y, EPS), mean = 0;
    for (int h = 0; h < heads; h++) mean += dw1[h] * (y[h] * scale) / heads;
    for (int h = 0; h < heads; h++)
        dy[h] = (float)(scale * (dw1[h] - y[h] * scale * mean));
}

/* dw1, dw2, dg of a token to dy and the gradient of x dc_wg. */
static void coefficients_backward(ph_kind_call *c, const channel *ch, int row)
{
    int heads = c->shape->attn.q_heads, rank = state_of(c)->dc.rank, n = rank * heads;
    const float *g = coefficients_at(c, ch, PH_DC_G, row);
    ptrdiff_t shift = c->backward_only[COEFFICIENTS] - c->scratch[COEFFICIENTS];
    const float *dw1 = coefficients_at(c, ch, PH_DC_W1, row) + shift, *dg = g + shift;
    const float *y = c->scratch[Y] + ch->hidden + (int64_t)row * 2 * n;
    float *dy = c->backward_only[Y] + ch->hidden + (int64_t)row * 2 * n;
    float *dz = c->backward_only[GZ] + ch->gate + (int64_t)row * heads;
    for (int r = 0; r < n; r += heads) norm_backward(heads, y + r, dw1 + r, dy + r);
    memcpy(dy + n, coefficients_at(c, ch, PH_DC_W2, row) + shift, (size_t)n * sizeof *dy);
    for (int h = 0; h < heads; h++) dz[h] = dg[h] * (1 - g[h] * g[h]);
}

static void nothing_backward(ph_kind_call *c, const channel *ch, int row)
{
    size_t n = (size_t)hidden_of(c->shape), heads = (size_t)c->shape->attn.q_heads;
    memset(c->backward_only[Y] + ch->hidden + (size_t)row * n, 0, n * sizeof(float));
    memset(c->backward_only[GZ] + ch->gate + (size_t)row * heads, 0,
           heads * sizeof(float));
}

static void activate_backward(ph_kind_call *c, const channel *ch, int row)
{
    int n = hidden_of(c->shape);
    int64_t first = (int64_t)ch->hidden + (int64_t)row * n;
    gelu_backward(c, n, c->saved[Z] + first, c->backward_only[ACT] + first,
                  c->backward_only[Z] + first);
}

static void silence_backward(ph_kind_call *c, const channel *ch, int row)
{
    size_t n = (size_t)hidden_of(c->shape);
    memset(c->backward_only[Z] + ch->hidden + (size_t)row * n, 0, n * sizeof(float));
}

static void before_backward(ph_kind_call *c)
{
    each(c, coefficients_backward, nothing_backward);
    run_second(c, second_dx);
    each(c, activate_backward, silence_backward);
}

/* Matrices of disabled channels have zero gradients. */
static void clear_unused(const ph_kind_call *c)
{
    const ph_shape *s = c->shape;
    for (int p = DC_W1; p <= DC_WG; p++) {
        const int *dims = s->param[p].dims;
        size_t count = (size_t)dims[0] * (size_t)dims[1] * (size_t)dims[2];
        if (s->param[p].rank == 4) count *= (size_t)dims[3];
        if (c->dparam[p] && state_of(c)->channels < 4)
            memset(c->dparam[p], 0, count * sizeof(float));
    }
}

static void project_backward(ph_kind_call *c)
{
    ph_linear list[8];
    int n = list_linears(c->shape, list);
    clear_unused(c);
    if (c->dparam[DC_W2]) run_second(c, second_dw);
    ph_kind_linears_backward(c, list, n);
}

const ph_layer_kind ph_kind_dcmha = {.shape = shape,
                                     .project = project,
                                     .before = before,
                                     .before_backward = before_backward,
                                     .project_backward = project_backward};
