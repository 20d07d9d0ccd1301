/*
 * position.c - RMS norm and rotary embedding of q and k.
 *
 *     norm      y = x / sqrt(mean(x^2) + eps) * gain           over each head
 *     rotation  (a, b) -> (a c - b s, b c + a s)               for each pair of a head,
 *               c, s = cos, sin of position * base^(-2p / rope_dims)
 *
 * Backward: the gradient is rotated by the opposite angle; through the norm, with
 * r = 1/sqrt(mean + eps), n = x r, e = gain * dy:   dx = r (e - n mean(n e)),
 * dgain = sum over tokens and heads of dy n.
 *
 * Angles, sines and cosines are computed in double with additions and multiplications
 * only, so they are the same everywhere; a sum over a head runs in 16 lanes.
 */
#include <math.h>
#include <string.h>

#include "attn/address.h"
#include "kernels/kernels.h"
#include "layer/layer.h"

enum { CHUNK = 32 }; /* tokens of one item, and of one partial sum of dgain */

/* ---- angles ------------------------------------------------------------------------ */

static double power(double x, int n)
{
    double y = 1;
    for (; n; n /= 2, x *= x)
        if (n % 2) y *= x;
    return y;
}

/* The n-th root of 1/base, by Newton's method on x^n = 1/base. */
static double inverse_root(double base, int n)
{
    double x = 1;
    for (int i = 0; i < 500; i++) {
        double next = x + (1 / (base * power(x, n - 1)) - x) / n;
        if (next == x) break;
        x = next;
    }
    return x;
}

/* YaRN: pairs that rotate often within the context of training keep their frequency, slow
   ones take 1/factor of it, with a ramp between the pair that makes rope_high rotations
   and the one that makes rope_low. Its ends are rounded outwards to whole pairs. */
static void apply_yarn(ph_layer *l)
{
    const ph_layer_desc *d = &l->desc;
    double factor = d->rope_factor, unit = l->angles / log(d->rope_base);
    double low = unit * log(d->rope_length / (d->rope_high * 6.283185307179586));
    double high = unit * log(d->rope_length / (d->rope_low * 6.283185307179586));
    if (!d->yarn_untruncated) low = floor(low), high = ceil(high);
    low = fmax(low, 0), high = fmin(high, 2 * l->angles - 1);
    for (int p = 0; p < l->angles; p++) {
        double slow = (p - low) / fmax(high - low, 1e-3);
        slow = fmin(fmax(slow, 0), 1);
        l->theta[p] *= slow / factor + (1 - slow);
    }
}

/* Sines and cosines grow with the factor, unless something else is said. */
static float yarn_scale(const ph_layer_desc *d)
{
    if (d->rope_scale != 0) return d->rope_scale;
    return d->rope_factor > 1 ? (float)(0.1 * log(d->rope_factor) + 1) : 1;
}

/* LLaMA 3: the same idea with a ramp that is linear in the number of rotations. */
static void apply_llama3(ph_layer *l)
{
    const ph_layer_desc *d = &l->desc;
    double low = d->rope_low, high = d->rope_high, factor = d->rope_factor;
    for (int p = 0; p < l->angles; p++) {
        double rotations = d->rope_length * l->theta[p] / 6.283185307179586;
        double fast = fmin(fmax((rotations - low) / (high - low), 0), 1);
        l->theta[p] *= fast + (1 - fast) / factor;
    }
}

/* theta_p = base^(-2p / rope_dims) = root^p, rope_dims = 2 * angles */
void ph_layer_angles(ph_layer *l)
{
    double root = l->angles ? inverse_root(l->desc.rope_base, l->angles) : 1;
    for (int p = 0; p < l->angles; p++) l->theta[p] = power(root, p);
    l->shape.rope_scale = 1;
    if (l->desc.rope_scaling == PH_ROPE_LLAMA3) apply_llama3(l);
    if (l->desc.rope_scaling == PH_ROPE_YARN) l->shape.rope_scale = yarn_scale(&l->desc);
    if (l->desc.rope_scaling == PH_ROPE_YARN && l->desc.rope_factor > 1) apply_yarn(l);
    for (int p = 0; l->desc.rope_scaling == PH_ROPE_LINEAR && p < l->angles; p++)
        l->theta[p] /= l->desc.rope_factor;
    if (l->desc.rope_scaling != PH_ROPE_LONGROPE) return;
    for (int p = 0; p < l->angles; p++) l->theta[p] /= l->desc.rope_divisors[p];
    if (l->desc.rope_scale != 0) l->shape.rope_scale = l->desc.rope_scale;
}

/* sin and cos of x: Cody-Waite reduction by pi/2 in three terms (exact up to 2^26
   multiples), then these series on +-pi/4. */
static void sine_cosine(double x, float *sine, float *cosine)
{
    const double magic = 0x1.8p52;
    double quarters = (x * 0x1.45f306dc9c883p-1 + magic) - magic;
    double r = ((x - quarters * 0x1.921fb5p+0) - quarters * 0x1.110b46p-26) -
               quarters * 0x1.1a62633145c07p-54;
    double z = r * r, s = 1, c = 1;
    for (int n = 16; n >= 2; n -= 2) {
        c = 1 - z * (1.0 / (n * (n - 1))) * c;
        s = 1 - z * (1.0 / (n * (n + 1))) * s;
    }
    s *= r;
    switch ((int64_t)quarters & 3) {
    case 0: *sine = (float)s, *cosine = (float)c; break;
    case 1: *sine = (float)c, *cosine = (float)-s; break;
    case 2: *sine = (float)-s, *cosine = (float)-c; break;
    default: *sine = (float)-c, *cosine = (float)s; break;
    }
}

typedef struct table_job {
    const ph_layer *layer;
    const ph_tokens *tokens;
    int lines, per_row;
    const int32_t *start;
    float *table;
} table_job;

/* The position that a line of the table is for. */
static int position_of(const table_job *j, int line)
{
    int b = j->per_row ? ph_tokens_batch(j->tokens, line) : 0;
    int t = j->per_row ? line - ph_tokens_first(j->tokens, b) : line;
    return j->start ? t + j->start[b] : t;
}

static void table_item(void *arg, int lane, int index)
{
    const table_job *j = arg;
    int angles = j->layer->angles, first = index * CHUNK;
    float scale = j->layer->shape.rope_scale;
    (void)lane;
    for (int line = first; line < ph_min(first + CHUNK, j->lines); line++) {
        float *to = j->table + (int64_t)line * 2 * angles;
        double position = position_of(j, line);
        for (int p = 0; p < angles; p++)
            sine_cosine(position * j->layer->theta[p], &to[angles + p], &to[p]);
        for (int p = 0; p < 2 * angles && scale != 1; p++) to[p] *= scale;
    }
}

static int starts_differ(const int32_t *start, int batch)
{
    for (int b = 1; start && b < batch; b++)
        if (start[b] != start[0]) return 1;
    return 0;
}

/* Tokens of one batch row at most, unless each has a line of its own. */
static int lines_of(const ph_tokens *tokens, const int32_t *start)
{
    return starts_differ(start, tokens->batch) ? tokens->rows : tokens->len;
}

size_t ph_layer_rope_floats(const ph_layer *l, const ph_tokens *tokens,
                            const int32_t *start)
{
    return (size_t)lines_of(tokens, start) * 2 * (size_t)l->angles;
}

ph_rope_table ph_layer_rope_table(const ph_layer *l, const ph_tokens *tokens,
                                  const int32_t *start, float *table)
{
    table_job j = {.layer = l,
                   .tokens = tokens,
                   .lines = lines_of(tokens, start),
                   .per_row = starts_differ(start, tokens->batch),
                   .start = start,
                   .table = table};
    if (l->angles && tokens->rows)
        ph_ctx_run(l->ctx, ph_div_up(j.lines, CHUNK), table_item, &j);
    return (ph_rope_table){table, j.per_row};
}

static const float *line_of(const ph_position_args *s, int row, int t)
{
    if (!s->proj->angles) return NULL;
    return s->rope.table + (int64_t)(s->rope.per_row ? row : t) * 2 * s->layer->angles;
}

/* ---- one head of one token --------------------------------------------------------- */

/* sum of x y in 16 lanes, added by halves */
static float dot(const float *x, const float *y, int n)
{
    float lanes[PH_LANES] = {0};
    int c = 0;
    for (; c + PH_LANES <= n; c += PH_LANES)
        for (int l = 0; l < PH_LANES; l++) lanes[l] += x[c + l] * y[c + l];
    for (int l = 0; c + l < n; l++) lanes[l] += x[c + l] * y[c + l];
    for (int half = PH_LANES / 2; half; half /= 2)
        for (int l = 0; l < half; l++) lanes[l] += lanes[l + half];
    return lanes[0];
}

static float inverse_rms(const float *x, int n, float eps)
{
    return 1.0f / sqrtf(dot(x, x, n) / (float)n + eps);
}

/* With norm_plus_one the stored parameter is gain - 1. */
static float gain_at(const ph_position_args *s, int i)
{
    return s->gain ? s->gain[i] + (s->layer->desc.norm_plus_one ? 1.0f : 0.0f) : 1.0f;
}

/* y = x r gain */
static void scale(const ph_position_args *s, const float *x, float r, int first, int n,
                  float *y)
{
    if (s->gain)
        for (int d = 0; d < n; d++) y[d] = x[d] * r * gain_at(s, first + d);
    else
        for (int d = 0; d < n; d++) y[d] = x[d] * r;
}

/* n pairs (y[p], y[n + p]) */
static void rotate_halves(int n, const float *restrict line, float *restrict y,
                          float direction)
{
    for (int p = 0; p < n; p++) {
        float a = y[p], b = y[n + p], c = line[p], e = line[n + p] * direction;
        y[p] = a * c - b * e;
        y[n + p] = b * c + a * e;
    }
}

/* n pairs (y[2p], y[2p + 1]) */
static void rotate_interleaved(int n, const float *restrict line, float *restrict y,
                               float direction)
{
    for (int p = 0; p < n; p++) {
        float a = y[2 * p], b = y[2 * p + 1], c = line[p], e = line[n + p] * direction;
        y[2 * p] = a * c - b * e;
        y[2 * p + 1] = b * c + a * e;
    }
}

/* direction 1: forward, -1: backward. */
static void rotate(const ph_position_args *s, const float *line, float *head,
                   float direction)
{
    int half = s->layer->desc.rope == PH_ROPE_HALF;
    float *y = head + s->proj->rope_at;
    (half ? rotate_halves : rotate_interleaved)(s->proj->angles, line, y, direction);
}

/* ---- one token --------------------------------------------------------------------- */

static int is_whole(const ph_position_args *s)
{
    const ph_projection *p = s->proj;
    return p->norm && p->heads > 1 && s->layer->desc.qk_norm == PH_QK_NORM_WHOLE;
}

/* All heads of a token; `to` is the output of the first one, the others `head` floats
   apart. */
static void forward_token(const ph_position_args *s, const float *raw, float *to,
                          int64_t head, const float *line)
{
    const ph_projection *p = s->proj;
    int dim = p->dim + p->tail, whole = is_whole(s);
    float eps = s->layer->desc.norm_eps;
    float r = whole ? inverse_rms(raw, p->heads * dim, eps) : 0;
    for (int h = 0; h < p->heads; h++, raw += dim) {
        float *y = to + h * head;
        if (p->norm && !whole) r = inverse_rms(raw, p->norm, eps);
        if (p->norm) scale(s, raw, r, whole ? h * dim : 0, p->norm, y);
        if (y != raw)
            memcpy(y + p->norm, raw + p->norm, (size_t)(dim - p->norm) * sizeof *y);
        if (line) rotate(s, line, y, 1);
    }
}

/* dx = r (e - n mean(n e)), e = gain * dy, n = x r, over n elements; dy becomes dx. */
static void backward_norm(const ph_position_args *s, const float *raw, float *dy, int n,
                          float *sums)
{
    float r = inverse_rms(raw, n, s->layer->desc.norm_eps), mean;
    for (int d = 0; d < n && sums; d++) sums[d] += dy[d] * (raw[d] * r);
    for (int d = 0; d < n && s->gain; d++) dy[d] *= gain_at(s, d);
    mean = dot(raw, dy, n) * r / (float)n;
    for (int d = 0; d < n; d++) dy[d] = r * (dy[d] - raw[d] * r * mean);
}

static void backward_token(const ph_position_args *s, const float *raw, float *dy,
                           const float *line, float *sums)
{
    const ph_projection *p = s->proj;
    int dim = p->dim + p->tail, whole = is_whole(s);
    for (int h = 0; h < p->heads && line; h++) rotate(s, line, dy + h * dim, -1);
    if (whole) backward_norm(s, raw, dy, p->heads * dim, sums);
    for (int h = 0; h < p->heads && p->norm && !whole; h++)
        backward_norm(s, raw + h * dim, dy + h * dim, p->norm, sums);
}

/* ---- all tokens -------------------------------------------------------------------- */

int ph_layer_chunks(int rows)
{
    return ph_div_up(rows, CHUNK);
}

int ph_layer_gains(const ph_layer *l, const ph_projection *p)
{
    return l->desc.qk_norm == PH_QK_NORM_WHOLE ? p->heads * p->norm : p->norm;
}

int ph_layer_positions(const ph_projection *p)
{
    return p->norm || p->angles || p->pad;
}

static void clear(float *x, int n)
{
    if (n) memset(x, 0, (size_t)n * sizeof *x);
}

/* The slot of a token in the cache. */
static void *cache_row(const ph_position_args *s, int b, int t, int head)
{
    int slot = t + (s->past ? s->past[b] : 0);
    int64_t at = ph_slot_at(&s->layer->attn, s->page_table, s->layer->plan->table_len,
                            &s->to, b, head, slot);
    return (char *)s->cache + ph_offset(s->type, at);
}

/* Heads of a token in the type of the cache. */
static void store_token(const ph_position_args *s, int b, int t, const float *row)
{
    const ph_projection *p = s->proj;
    int dim = p->dim + p->tail;
    for (int h = 0; h < p->heads; h++)
        ph_layer_store(s->layer, row + h * dim, dim, s->type, cache_row(s, b, t, h));
}

static void forward_item(void *arg, int lane, int index)
{
    const ph_position_args *s = arg;
    const ph_projection *p = s->proj;
    int end = ph_min((index + 1) * CHUNK, s->tokens->rows), pad = p->pad;
    (void)lane;
    for (int row = index * CHUNK; row < end; row++) {
        int b = ph_tokens_batch(s->tokens, row), t = row - ph_tokens_first(s->tokens, b);
        if (t >= ph_tokens_valid(s->tokens, b)) continue;
        int direct = s->cache && s->type == PH_F32, width = ph_projection_row(p);
        float *to = direct ? cache_row(s, b, t, 0) : s->x + (int64_t)row * width;
        clear(to, pad);
        forward_token(s, s->raw + (int64_t)row * width + pad, to + pad,
                      direct ? s->to.head : p->dim + p->tail, line_of(s, row, t));
        clear(to + pad + ph_projection_width(p), pad);
        if (s->cache && !direct) store_token(s, b, t, to);
    }
}

void ph_layer_position(const ph_position_args *args)
{
    ph_position_args s = *args;
    ph_ctx_run(s.layer->ctx, ph_layer_chunks(s.tokens->rows), forward_item, &s);
}

static void backward_item(void *arg, int lane, int index)
{
    const ph_position_args *s = arg;
    const ph_projection *p = s->proj;
    int gains = ph_layer_gains(s->layer, p), width = ph_projection_width(p);
    int end = ph_min((index + 1) * CHUNK, s->tokens->rows);
    float *sums = s->sums ? s->sums + (int64_t)index * gains : NULL;
    (void)lane;
    if (sums) clear(sums, gains);
    for (int row = index * CHUNK; row < end; row++) {
        int b = ph_tokens_batch(s->tokens, row), t = row - ph_tokens_first(s->tokens, b);
        float *dy = s->x + (int64_t)row * width;
        if (t >= ph_tokens_valid(s->tokens, b))
            clear(dy, width);
        else
            backward_token(s, s->raw + (int64_t)row * ph_projection_row(p) + p->pad, dy,
                           line_of(s, row, t), sums);
    }
}

void ph_layer_position_backward(const ph_position_args *args, float *dgain)
{
    ph_position_args s = *args;
    int gains = ph_layer_gains(s.layer, s.proj);
    int chunks = ph_layer_chunks(s.tokens->rows);
    if (!dgain) s.sums = NULL;
    ph_ctx_run(s.layer->ctx, chunks, backward_item, &s);
    if (dgain) clear(dgain, gains);
    for (int c = 0; c < chunks && dgain; c++)
        for (int d = 0; d < gains; d++) dgain[d] += s.sums[(int64_t)c * gains + d];
}
