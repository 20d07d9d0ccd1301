/*
 * position.c - what happens to q and k between projection and attention.
 *
 *     norm      y = x / sqrt(mean(x^2) + eps) * gain           over each head
 *     rotation  (a, b) -> (a c - b s, b c + a s)               for each pair of a head,
 *               c, s = cos, sin of position * base^(-2p / rope_dims)
 *
 * and the way back: the gradient is turned by the opposite angle; through the norm, with
 * r = 1/sqrt(mean + eps), n = x r, e = gain * dy:   dx = r (e - n mean(n e)),
 * dgain = sum over tokens and heads of dy n.
 *
 * Angles, sines and cosines are computed in double with additions and multiplications
 * only, so they are the same everywhere; a sum over a head runs in 16 lanes.
 */
#include <math.h>
#include <string.h>

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

/* theta_p = base^(-2p / rope_dims) = root^p, rope_dims = 2 * angles */
void ph_layer_angles(double base, int angles, double *theta)
{
    double root = angles ? inverse_root(base, angles) : 1;
    for (int p = 0; p < angles; p++) theta[p] = power(root, p);
}

/* sin and cos of x: multiples of pi/2 are taken off in three parts of pi/2 (exact up to
   2^26 of them), what is left is within +-pi/4, where these series are exact enough. */
static void sine_cosine(double x, float *sine, float *cosine)
{
    const double magic = 0x1.8p52;
    double turns = (x * 0x1.45f306dc9c883p-1 + magic) - magic;
    double r = ((x - turns * 0x1.921fb5p+0) - turns * 0x1.110b46p-26) -
               turns * 0x1.1a62633145c07p-54;
    double z = r * r, s = 1, c = 1;
    for (int n = 16; n >= 2; n -= 2) {
        c = 1 - z * (1.0 / (n * (n - 1))) * c;
        s = 1 - z * (1.0 / (n * (n + 1))) * s;
    }
    s *= r;
    switch ((int64_t)turns & 3) {
    case 0: *sine = (float)s, *cosine = (float)c; break;
    case 1: *sine = (float)c, *cosine = (float)-s; break;
    case 2: *sine = (float)-s, *cosine = (float)-c; break;
    default: *sine = (float)-c, *cosine = (float)s; break;
    }
}

typedef struct table_job {
    const ph_layer *layer;
    int len, lines, per_batch;
    const int32_t *start;
    float *table;
} table_job;

static void table_item(void *arg, int lane, int index)
{
    const table_job *j = arg;
    int angles = j->layer->angles, first = index * CHUNK;
    (void)lane;
    for (int line = first; line < ph_min(first + CHUNK, j->lines); line++) {
        float *to = j->table + (int64_t)line * 2 * angles;
        int t = line % j->len, b = line / j->len;
        double position = (double)t + (j->start ? j->start[b] : 0);
        for (int p = 0; p < angles; p++)
            sine_cosine(position * j->layer->theta[p], &to[angles + p], &to[p]);
    }
}

static int starts_differ(const int32_t *start, int batch)
{
    for (int b = 1; start && b < batch; b++)
        if (start[b] != start[0]) return 1;
    return 0;
}

size_t ph_layer_table(const ph_layer *l, int len, const int32_t *start)
{
    int batch = l->desc.attn.batch, own = starts_differ(start, batch);
    return (size_t)(own ? batch : 1) * (size_t)len * 2 * (size_t)l->angles;
}

ph_layer_turns ph_layer_turn(const ph_layer *l, int len, const int32_t *start,
                             float *table)
{
    int batch = l->desc.attn.batch, own = starts_differ(start, batch);
    table_job j = {.layer = l,
                   .len = len,
                   .per_batch = own,
                   .start = start,
                   .table = table,
                   .lines = (own ? batch : 1) * len};
    if (l->angles) ph_ctx_run(l->ctx, ph_div_up(j.lines, CHUNK), table_item, &j);
    return (ph_layer_turns){table, own};
}

static const float *line_of(const ph_layer_side *s, int b, int t)
{
    if (!s->layer->angles || s->copy) return NULL;
    int64_t line = s->turns.per_batch ? (int64_t)b * s->rows.len + t : t;
    return s->turns.table + line * 2 * s->layer->angles;
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

/* direction 1: forward, -1: back. y may be x. */
static void turn(const ph_layer *l, const float *line, float *y, float direction)
{
    int n = l->angles;
    int step = l->desc.rope == PH_ROPE_HALF ? 1 : 2;
    int other = l->desc.rope == PH_ROPE_HALF ? n : 1;
    for (int p = 0; p < n; p++) {
        float a = y[p * step], b = y[p * step + other];
        float c = line[p], s = line[n + p] * direction;
        y[p * step] = a * c - b * s;
        y[p * step + other] = b * c + a * s;
    }
}

static void forward_head(const ph_layer_side *s, const float *raw, float *y,
                         const float *line)
{
    const ph_layer *l = s->layer;
    int n = s->rows.columns / s->heads;
    if (l->desc.qk_norm && !s->copy) {
        float r = inverse_rms(raw, n, l->desc.norm_eps);
        for (int d = 0; d < n; d++) y[d] = s->gain ? raw[d] * r * s->gain[d] : raw[d] * r;
    } else if (y != raw) {
        memcpy(y, raw, (size_t)n * sizeof *y);
    }
    if (line) turn(l, line, y, 1);
}

static void backward_head(const ph_layer_side *s, const float *raw, float *dy,
                          const float *line, float *sums)
{
    const ph_layer *l = s->layer;
    int n = l->desc.attn.qk_dim;
    if (line) turn(l, line, dy, -1);
    if (!l->desc.qk_norm) return;
    float r = inverse_rms(raw, n, l->desc.norm_eps), mean;
    for (int d = 0; d < n && sums; d++) sums[d] += dy[d] * (raw[d] * r);
    for (int d = 0; d < n && s->gain; d++) dy[d] *= s->gain[d];
    mean = dot(raw, dy, n) * r / (float)n;
    for (int d = 0; d < n; d++) dy[d] = r * (dy[d] - raw[d] * r * mean);
}

/* ---- all tokens -------------------------------------------------------------------- */

int ph_layer_chunks(const ph_layer_rows *rows)
{
    return ph_div_up(rows->batch * rows->len, CHUNK);
}

static void forward_item(void *arg, int lane, int index)
{
    const ph_layer_side *s = arg;
    const ph_attn *a = &s->layer->desc.attn;
    int dim = s->rows.columns / s->heads, rows = s->rows.batch * s->rows.len;
    (void)lane;
    for (int row = index * CHUNK; row < ph_min((index + 1) * CHUNK, rows); row++) {
        int b = row / s->rows.len, t = row % s->rows.len;
        if (s->rows.lens && t >= s->rows.lens[b]) continue;
        for (int h = 0; h < s->heads; h++) {
            int64_t at = (int64_t)row * s->rows.columns + h * dim;
            int64_t slot = (int64_t)(b * s->heads + h) * a->kv_len + t;
            if (s->cache && s->past) slot += s->past[b];
            forward_head(s, s->raw + at, s->cache ? s->cache + slot * dim : s->x + at,
                         line_of(s, b, t));
        }
    }
}

void ph_layer_position(const ph_layer_side *side)
{
    ph_layer_side s = *side;
    ph_ctx_run(s.layer->ctx, ph_layer_chunks(&s.rows), forward_item, &s);
}

static void backward_item(void *arg, int lane, int index)
{
    const ph_layer_side *s = arg;
    int dim = s->layer->desc.attn.qk_dim, rows = s->rows.batch * s->rows.len;
    float *sums = s->sums ? s->sums + (int64_t)index * dim : NULL;
    (void)lane;
    if (sums) memset(sums, 0, (size_t)dim * sizeof *sums);
    for (int row = index * CHUNK; row < ph_min((index + 1) * CHUNK, rows); row++) {
        int b = row / s->rows.len, t = row % s->rows.len;
        int64_t at = (int64_t)row * s->rows.columns;
        if (s->rows.lens && t >= s->rows.lens[b]) {
            memset(s->x + at, 0, (size_t)s->rows.columns * sizeof *s->x);
            continue;
        }
        for (int h = 0; h < s->heads; h++, at += dim)
            backward_head(s, s->raw + at, s->x + at, line_of(s, b, t), sums);
    }
}

void ph_layer_unposition(const ph_layer_side *side, float *dgain)
{
    ph_layer_side s = *side;
    int dim = s.layer->desc.attn.qk_dim, chunks = ph_layer_chunks(&s.rows);
    if (!dgain) s.sums = NULL;
    ph_ctx_run(s.layer->ctx, chunks, backward_item, &s);
    if (dgain) memset(dgain, 0, (size_t)dim * sizeof *dgain);
    for (int c = 0; c < chunks && dgain; c++)
        for (int d = 0; d < dim; d++) dgain[d] += s.sums[(int64_t)c * dim + d];
}
