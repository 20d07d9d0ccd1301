/*
 * fuzz_plan.c - libFuzzer target: bytes become a plan description and a small call.
 *
 * Whatever the bytes say, the plan is refused with a sentence, or its calls run and touch
 * nothing outside the tensors: every tensor lies in a block of exactly its size, so that
 * an
 * address checker sees one element too many; outputs of a refused call must not change.
 *
 * Each byte chooses one thing, zeros choose the usual one, and bytes that are missing are
 * zeros: any file is a valid input, and small changes of a file are small changes of a
 * plan.
 */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "fuzz.h"
#include "polyhead.h"

#define MUST(condition)                                                                  \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);    \
            abort();                                                                     \
        }                                                                                \
    } while (0)

/* ---- bytes to choices ------------------------------------------------------------- */

typedef struct bytes {
    const uint8_t *at, *end;
} bytes;

static int byte(bytes *in)
{
    return in->at < in->end ? *in->at++ : 0;
}

/* Mostly as the byte says, sometimes something nobody expects. */
static int size_from(bytes *in, int usual, int most)
{
    static const int rare[] = {-1, 0, INT_MAX, INT_MIN, 65536, 46341, 1 << 20, -7};
    int b = byte(in);
    if (b == 0) return usual;
    return b >= 248 ? rare[b - 248] : b % (most + 1);
}

static float number_from(bytes *in, float usual)
{
    static const float rare[] = {NAN, INFINITY, -INFINITY, -1, 1e30f, -0.0f, 1e-30f, 1};
    int b = byte(in);
    if (b == 0) return usual;
    return b >= 248 ? rare[b - 248] : (float)b / 64;
}

static int64_t stride_from(bytes *in, int64_t usual)
{
    static const int64_t rare[] = {0,    1, -1, INT64_MAX, INT64_MIN, (int64_t)1 << 40,
                                   -100, 3};
    int b = byte(in);
    if (b == 0) return usual;
    return b >= 248 ? rare[b - 248] : usual + b % 9;
}

static ph_strides strides_from(bytes *in, int heads, int len, int dim)
{
    ph_strides s = {0, 0, 0};
    int way = byte(in) % 4;
    if (way == 0) return s;
    int64_t row = (int64_t)heads * dim, whole = row * (len % 100000);
    s.time = stride_from(in, way == 2 ? row : dim);
    s.head = stride_from(in, way == 2 ? dim : (int64_t)len % 100000 * (dim + 4));
    s.batch =
        stride_from(in, way == 2 ? whole : whole + heads * (4 * (len % 100000) + 8));
    return s;
}

static ph_broadcast broadcast_from(bytes *in, const ph_attn *a)
{
    ph_broadcast s = {0, 0, 0};
    int way = byte(in);
    if (way == 0) return s;
    s.batch = way & 1 ? a->batch : 1;
    s.heads = way & 2 ? a->q_heads : 1;
    s.q_len = way & 4 ? a->q_len : 1;
    if (way >= 240) s.batch = size_from(in, 3, 9);
    if (way >= 240) s.q_len = size_from(in, 0, 80);
    return s;
}

static ph_attn plan_from(bytes *in)
{
    static const char *const variants[] = {
        NULL, "mha", "", "mha:", "mha:x=1", "no", ":", "mha,"};
    ph_attn a = {.batch = size_from(in, 1, 4)};
    a.q_heads = size_from(in, 2, 12);
    a.k_heads = size_from(in, 0, 12);
    a.v_heads = size_from(in, 0, 12);
    a.q_len = size_from(in, 5, 80);
    a.kv_len = size_from(in, 5, 140);
    a.qk_dim = size_from(in, 4, 80);
    a.v_dim = size_from(in, 0, 80);
    a.dtype = (ph_dtype)(byte(in) % 5);
    a.scale = number_from(in, 0);
    a.softcap = number_from(in, 0);
    a.dropout = number_from(in, 0);
    a.mask = (ph_mask)(byte(in) % 4);
    a.band_left = size_from(in, 0, 80);
    a.band_right = size_from(in, 0, 80);
    a.anchor = (ph_anchor)(byte(in) % 4);
    a.q_offset = size_from(in, 0, 80);
    a.gate = (ph_gate)(byte(in) % 3);
    a.backward = byte(in) % 2;
    a.variant = variants[byte(in) % 8];
    int k_heads = a.k_heads ? a.k_heads : a.q_heads,
        v_heads = a.v_heads ? a.v_heads : a.q_heads;
    int v_dim = a.v_dim ? a.v_dim : a.qk_dim;
    a.bias = broadcast_from(in, &a);
    a.visible = broadcast_from(in, &a);
    int sizes[] = {a.q_heads, k_heads, v_heads, a.q_len, a.kv_len, a.qk_dim, v_dim};
    for (int n = 0; n < 7; n++)
        if (sizes[n] < 0 || sizes[n] > 1000) return a; /* strides would not matter */
    a.q = strides_from(in, a.q_heads, a.q_len, a.qk_dim);
    a.k = strides_from(in, k_heads, a.kv_len, a.qk_dim);
    a.v = strides_from(in, v_heads, a.kv_len, v_dim);
    a.out = strides_from(in, a.q_heads, a.q_len, v_dim);
    a.dq = strides_from(in, a.q_heads, a.q_len, a.qk_dim);
    a.dk = strides_from(in, k_heads, a.kv_len, a.qk_dim);
    a.dv = strides_from(in, v_heads, a.kv_len, v_dim);
    return a;
}

/* ---- tensors of exactly the right size -------------------------------------------- */

enum { TENSORS = 32, LARGEST = 1 << 14, PATTERN = 0xfb };

typedef struct call {
    unsigned char *block[TENSORS]; /* what was allocated                */
    size_t bytes[TENSORS];
    int output[TENSORS]; /* must not change when the call is refused    */
    int count, too_large;
    uint64_t random;
} call;

static void *tensor(call *c, size_t length, int output)
{
    if (length > LARGEST * sizeof(float)) c->too_large = 1;
    if (c->too_large) return NULL;
    unsigned char *block = malloc(length ? length : 1);
    for (size_t n = 0; n < length; n++) {
        c->random = c->random * 6364136223846793005u + 1442695040888963407u;
        /* Exponents near 1, so that most values are normal. */
        block[n] = output       ? PATTERN
                   : n % 4 == 3 ? (c->random >> 40 & 0x81) | 0x3e
                                : (unsigned char)(c->random >> 33);
    }
    c->block[c->count] = block;
    c->bytes[c->count] = length;
    c->output[c->count++] = output;
    return block;
}

/* A strided tensor; the pointer is its first element, which negative strides put inside.
   */
static void *strided(call *c, const ph_attn *a, ph_strides s, int heads, int len, int dim,
                     int output)
{
    int64_t low = 0, high = dim, last[] = {a->batch - 1, heads - 1, len - 1};
    if (!s.batch && !s.head && !s.time) {
        s.time = dim;
        s.head = (int64_t)len * dim;
        s.batch = heads * s.head;
    }
    int64_t step[] = {s.batch, s.head, s.time};
    for (int n = 0; n < 3; n++) {
        if (last[n] > 100000 || step[n] > LARGEST || step[n] < -LARGEST) c->too_large = 1;
        if (c->too_large || last[n] <= 0) continue;
        if (step[n] > 0) high += last[n] * step[n];
        if (step[n] < 0) low += last[n] * step[n];
    }
    int64_t size = a->dtype == PH_F32 ? 4 : 2;
    if (!a->batch || !len) low = high = 0;
    if (c->too_large || high - low > LARGEST) c->too_large = 1;
    char *block = tensor(c, c->too_large ? 0 : (size_t)((high - low) * size), output);
    return block ? block - low * size : NULL;
}

static float *floats(call *c, int64_t w, int64_t x, int64_t y, int64_t z, int output)
{
    int64_t sizes[] = {w, x, y, z}, all = 1;
    for (int n = 0; n < 4; n++) {
        if (sizes[n] < 0 || sizes[n] > LARGEST) c->too_large = 1;
        if (!c->too_large) all *= sizes[n];
        if (all > LARGEST) c->too_large = 1;
    }
    return tensor(c, c->too_large ? 0 : (size_t)all * sizeof(float), output);
}

static void check_refused(const call *c, ph_status status, const ph_ctx *ctx)
{
    MUST(status > PH_OK && status <= PH_IO_ERROR);
    MUST(*ph_error(ctx));
    for (int n = 0; n < c->count; n++)
        for (size_t e = 0; c->output[n] && e < c->bytes[n]; e++)
            MUST(c->block[n][e] == PATTERN);
}

/* ---- one call --------------------------------------------------------------------- */

static void args_from(bytes *in, call *c, const ph_attn *a, ph_args *g)
{
    int k_heads = a->k_heads ? a->k_heads : a->q_heads;
    int v_heads = a->v_heads ? a->v_heads : a->q_heads,
        v_dim = a->v_dim ? a->v_dim : a->qk_dim;
    int has = byte(in), row = a->gate == PH_GATE_ROW;
    g->q = strided(c, a, a->q, a->q_heads, a->q_len, a->qk_dim, 0);
    g->k = strided(c, a, a->k, k_heads, a->kv_len, a->qk_dim, 0);
    g->v = strided(c, a, a->v, v_heads, a->kv_len, v_dim, 0);
    g->out = strided(c, a, a->out, a->q_heads, a->q_len, v_dim, 1);
    if (!(has & 1)) g->lse = floats(c, a->batch, a->q_heads, a->q_len, 1, 1);
    if (has & 2)
        g->gate = floats(c, row ? a->batch : 1, a->q_heads, row ? a->q_len : 1, 1, 0);
    if (has & 4) g->sink = floats(c, a->q_heads, 1, 1, 1, 0);
    if (has & 8) g->alibi = floats(c, a->q_heads, 1, 1, 1, 0);
    ph_broadcast s = a->bias;
    if (s.batch) g->bias = floats(c, s.batch, s.heads, s.q_len, a->kv_len, 0);
    s = a->visible;
    if (s.batch)
        g->visible = (uint8_t *)floats(c, s.batch, s.heads, s.q_len, a->kv_len, 0);
    int32_t *lens[2] = {NULL, NULL};
    for (int n = 0; n < 2; n++) {
        if (!(has >> (4 + n) & 1)) continue;
        lens[n] = (int32_t *)floats(c, a->batch, 1, 1, 1, 0);
        for (int b = 0; lens[n] && b < a->batch; b++)
            lens[n][b] = size_from(in, n ? a->kv_len : a->q_len, 80);
    }
    g->q_lens = lens[0];
    g->kv_lens = lens[1];
    g->seed = (uint64_t)byte(in);
}

static void look_from(bytes *in, call *c, const ph_attn *a, ph_look_at *l)
{
    int has = byte(in), h = a->q_heads;
    if (has & 1) l->weights = floats(c, a->batch, h, a->q_len, a->kv_len, 1);
    if (has & 2) l->col_sum = floats(c, a->batch, h, a->kv_len, 1, 1);
    if (has & 4) l->entropy = floats(c, a->batch, h, a->q_len, 1, 1);
    l->top_k = has & 8 ? size_from(in, 3, 80) : 0;
    int64_t top = l->top_k > 0 && l->top_k <= 1000 ? l->top_k : 0;
    if (has & 16) l->top_weight = floats(c, a->batch, h, a->q_len, top, 1);
    if (has & 32) l->top_index = (int32_t *)floats(c, a->batch, h, a->q_len, top, 1);
    if (l->top_k > 1000) c->too_large = 1; /* legal, but more than we want to hold */
    if (!(has & 64)) return;
    l->rect_batch = size_from(in, 0, 80);
    l->rect_head = size_from(in, 0, 80);
    l->row0 = size_from(in, 0, 80);
    l->rows = size_from(in, a->q_len, 80);
    l->col0 = size_from(in, 0, 80);
    l->cols = size_from(in, a->kv_len, 80);
    /* A rectangle that does not fit must be refused: it gets no memory. */
    int fits =
        l->rows >= 0 && l->cols >= 0 && l->rows <= a->q_len && l->cols <= a->kv_len;
    l->rect = floats(c, fits ? l->rows : 0, fits ? l->cols : 0, 1, 1, 1);
}

static void grads_from(bytes *in, call *c, const ph_attn *a, const ph_args *g,
                       ph_grads *r)
{
    int k_heads = a->k_heads ? a->k_heads : a->q_heads;
    int v_heads = a->v_heads ? a->v_heads : a->q_heads,
        v_dim = a->v_dim ? a->v_dim : a->qk_dim;
    int has = byte(in), row = a->gate == PH_GATE_ROW;
    const ph_strides *said[] = {&a->dq, &a->dk, &a->dv}, *like[] = {&a->q, &a->k, &a->v};
    for (int n = 0; n < 3; n++)
        if (said[n]->batch || said[n]->head || said[n]->time) like[n] = said[n];
    r->dout = strided(c, a, a->out, a->q_heads, a->q_len, v_dim, 0);
    if (!(has & 1)) r->dq = strided(c, a, *like[0], a->q_heads, a->q_len, a->qk_dim, 1);
    if (!(has & 2)) r->dk = strided(c, a, *like[1], k_heads, a->kv_len, a->qk_dim, 1);
    if (!(has & 4)) r->dv = strided(c, a, *like[2], v_heads, a->kv_len, v_dim, 1);
    if (has & 8) r->dlse = floats(c, a->batch, a->q_heads, a->q_len, 1, 0);
    ph_broadcast s = a->bias;
    if (has & 16 && g->bias)
        r->dbias = floats(c, s.batch, s.heads, s.q_len, a->kv_len, 1);
    if (has & 32 && g->gate)
        r->dgate = floats(c, row ? a->batch : 1, a->q_heads, row ? a->q_len : 1, 1, 1);
    if (has & 64 && g->sink) r->dsink = floats(c, a->q_heads, 1, 1, 1, 1);
}

static void run(bytes *in, ph_ctx *ctx, const ph_plan *plan, const ph_attn *a)
{
    call c = {.random = 1};
    ph_args args = {.seed = 0};
    ph_look_at look = {.top_k = 0};
    ph_grads grads = {.dout = NULL};
    args_from(in, &c, a, &args);
    look_from(in, &c, a, &look);
    if (a->backward) grads_from(in, &c, a, &args, &grads);
    if (byte(in) % 2) args.look = &look;
    int64_t cells = (int64_t)a->batch * a->q_heads * a->q_len * a->kv_len;
    if (!c.too_large && cells * (a->qk_dim + a->v_dim) < 1 << 18) {
        ph_status status = ph_forward(plan, &args);
        if (status != PH_OK) check_refused(&c, status, ctx);
        args.look = &look;
        int done = status == PH_OK;
        if (done && args.lse) MUST(ph_look(plan, &args) <= PH_IO_ERROR);
        if (done && a->backward) MUST(ph_backward(plan, &args, &grads) <= PH_IO_ERROR);
    }
    for (int n = 0; n < c.count; n++) free(c.block[n]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static ph_ctx *opened[8]; /* one for each instruction set; never closed */
    bytes in = {data, data + size};
    const char *const *isa = ph_isa_list();
    int which = 0, wanted = byte(&in) % 8;
    while (isa[which] && isa[which + 1] && which < wanted) which++;
    if (!opened[which]) {
        ph_options options = {.isa = isa[which], .threads = 2};
        MUST(ph_open(&opened[which], &options) == PH_OK);
    }
    ph_ctx *ctx = opened[which];
    ph_attn a = plan_from(&in);
    ph_plan *plan = NULL;
    ph_status status = ph_plan_create(&plan, ctx, &a);
    if (status == PH_OK) {
        MUST(plan);
        run(&in, ctx, plan, &a);
    } else {
        MUST(!plan && status <= PH_IO_ERROR && *ph_error(ctx));
    }
    ph_plan_free(plan);
    return 0;
}
