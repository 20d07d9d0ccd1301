/*
 * spans_loops.h - the loops of spans.h; included once per instruction set, SPANS names
 * the table.
 *
 * exp: x = n ln2 + r with n the nearest whole number, e^x = 2^n P(r), |r| <= ln2 / 2; the
 * relative error of the polynomial is below one unit in the last place. Below -87 the
 * result is 0 but for rounding; above 88 it stays finite.
 */
#include <math.h>
#include <string.h>

#include "model/spans.h"

enum { LANES = 16 };

/* e^x, or e^(x + low) with `low` a rounding error of x. */
static inline float exp_parts(float x, float low, int has_low)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to a whole number */
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    union {
        float value;
        uint32_t bits;
    } rounded = {.value = x * 1.44269504f + magic}; /* n in its last bits */
    float n = rounded.value - magic;
    float r = x - n * 0.693145752f;
    r = r - n * 1.42860677e-6f;
    if (has_low) r = r + low;
    float p = 1.98756965e-4f;
    p = p * r + 1.39819994e-3f;
    p = p * r + 8.33345205e-3f;
    p = p * r + 4.16657962e-2f;
    p = p * r + 1.66666657e-1f;
    p = p * r + 0.5f;
    p = p * (r * r) + r + 1.0f;
    rounded.bits = (rounded.bits + 127) << 23; /* 2^n; unsigned, because x may be NaN */
    return p * rounded.value;
}

static inline float exp_of(float x)
{
    return exp_parts(x, 0, 0);
}

static inline float halves(float *lane)
{
    for (int width = LANES / 2; width; width /= 2)
        for (int i = 0; i < width; i++) lane[i] += lane[i + width];
    return lane[0];
}

/* ---- norms ------------------------------------------------------------------------- */

static float mean_of(int n, const float *x)
{
    float lane[LANES] = {0};
    int c = 0;
    for (; c + LANES <= n; c += LANES)
        for (int i = 0; i < LANES; i++) lane[i] += x[c + i];
    for (int i = 0; c + i < n; i++) lane[i] += x[c + i];
    return halves(lane) / (float)n;
}

static float variance_of(int n, const float *x, float mean)
{
    float lane[LANES] = {0};
    int c = 0;
    for (; c + LANES <= n; c += LANES)
        for (int i = 0; i < LANES; i++) {
            float d = x[c + i] - mean;
            lane[i] += d * d;
        }
    for (int i = 0; c + i < n; i++) {
        float d = x[c + i] - mean;
        lane[i] += d * d;
    }
    return halves(lane) / (float)n;
}

static void norm(int n, const float *x, const float *gain, const float *bias, float eps,
                 int rms, float *out, float *stats)
{
    float mean = rms ? 0 : mean_of(n, x);
    float rstd = 1.0f / sqrtf(variance_of(n, x, mean) + eps);
    stats[0] = mean, stats[1] = rstd;
    if (bias)
        for (int c = 0; c < n; c++) out[c] = (x[c] - mean) * rstd * gain[c] + bias[c];
    else
        for (int c = 0; c < n; c++) out[c] = (x[c] - mean) * rstd * gain[c];
}

/* Sums of t = dout * gain and of t * xhat over the row, in two loops: compilers vectorise
   each, but fill one loop with both sums with shuffles. */
static float sum_of(int n, const float *dout, const float *gain)
{
    float lane[LANES] = {0};
    int c = 0;
    for (; c + LANES <= n; c += LANES)
        for (int i = 0; i < LANES; i++) lane[i] += dout[c + i] * gain[c + i];
    for (int i = 0; c + i < n; i++) lane[i] += dout[c + i] * gain[c + i];
    return halves(lane);
}

static float sum_of_xhat(int n, const float *dout, const float *x, const float *stats,
                         const float *gain)
{
    float lane[LANES] = {0}, mean = stats[0], rstd = stats[1];
    int c = 0;
    for (; c + LANES <= n; c += LANES)
        for (int i = 0; i < LANES; i++)
            lane[i] += dout[c + i] * gain[c + i] * ((x[c + i] - mean) * rstd);
    for (int i = 0; c + i < n; i++)
        lane[i] += dout[c + i] * gain[c + i] * ((x[c + i] - mean) * rstd);
    return halves(lane);
}

static void norm_backward(int n, const float *dout, const float *x, const float *stats,
                          const float *gain, int rms, float *dx, float *dgain,
                          float *dbias)
{
    float mean = stats[0], rstd = stats[1];
    float first = rms ? 0 : sum_of(n, dout, gain) / (float)n;
    float second = sum_of_xhat(n, dout, x, stats, gain) / (float)n;
    if (dbias)
        for (int c = 0; c < n; c++) dbias[c] += dout[c];
    for (int c = 0; c < n; c++) {
        float xhat = (x[c] - mean) * rstd, d = dout[c];
        dgain[c] += d * xhat;
        dx[c] = rstd * (d * gain[c] - first - xhat * second);
    }
}

/* ---- activations ------------------------------------------------------------------- */

/* Quotients have a loop of their own: beside exp_of gcc also divides speculatively by the
   largest sum, which gives subnormal floats, a hundred times as slow. */

/* gelu(x) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3), the tanh form */
static void gelu(int n, const float *h, float *g)
{
    for (int c = 0; c < n; c++) {
        float x = h[c], u = 1.59576912f * (x + 0.044715f * x * x * x);
        g[c] = 1.0f + exp_of(-u);
    }
    for (int c = 0; c < n; c++) g[c] = h[c] / g[c];
}

static void gelu_backward(int n, const float *h, const float *dg, float *dh)
{
    for (int c = 0; c < n; c++) {
        float x = h[c], xx = x * x;
        float u = 1.59576912f * (x + 0.044715f * x * xx);
        float derivative = 1.59576912f * (1.0f + 0.134145f * xx);
        float s = 1.0f / (1.0f + exp_of(-u));
        dh[c] = dg[c] * (s + x * derivative * (s * (1.0f - s)));
    }
}

/* The erf form: x F(x), F the normal distribution function. With t = |x|,
   F(-t) = e^(-t^2 / 2) R(t) and R(t) = P((t - a) / (t + a)) / (t + a), a = 4.75, from 0
   to 14, where the result is 0 but for rounding; P is off by 1.4e-8 at most. The low half
   of t^2 counts in the exponent: else the relative error would grow with t. */
static inline float clamp_tail(float x)
{
    x = x < -14.0f ? -14.0f : x;
    return x > 14.0f ? 14.0f : x;
}

static inline float normal_exp(float x)
{
    union {
        float value;
        uint32_t bits;
    } high = {.value = x};
    high.bits &= 0xfffff000u; /* 12 bits, whose square is exact */
    float low = (x - high.value) * (x + high.value);
    return exp_parts(-0.5f * (high.value * high.value), -0.5f * low, 1);
}

/* F(x) from e^(-x^2 / 2) and 1 / (|x| + a) */
static inline float normal_distribution(float x, float e, float s)
{
    float u = ((x < 0 ? -x : x) - 4.75f) * s;
    float p = -1.30418281e-3f;
    p = p * u + 2.30660429e-4f;
    p = p * u + 1.15444399e-2f;
    p = p * u - 5.0630372e-2f;
    p = p * u + 1.38106242e-1f;
    p = p * u - 2.84183651e-1f;
    p = p * u + 4.72064495e-1f;
    p = p * u - 6.53589368e-1f;
    p = p * u + 7.66416311e-1f;
    p = p * s * e;
    return x < 0 ? p : 1.0f - p;
}

enum { PART = 64 }; /* columns of these at once */

/* What both need of n <= PART columns: x, clamped; e^(-x^2 / 2); 1 / (|x| + a). Each has
   a loop of its own: in one loop gcc computes e^x once for each way through the
   clamps. */
typedef struct normal_parts {
    float x[PART], e[PART], s[PART];
} normal_parts;

static inline void find_normal_parts(int n, const float *h, normal_parts *p)
{
    for (int c = 0; c < n; c++) p->x[c] = clamp_tail(h[c]);
    for (int c = 0; c < n; c++)
        p->s[c] = 1.0f / ((p->x[c] < 0 ? -p->x[c] : p->x[c]) + 4.75f);
    for (int c = 0; c < n; c++) p->e[c] = normal_exp(p->x[c]);
}

static void gelu_erf(int n, const float *h, float *g)
{
    normal_parts p;
    for (int at = 0; at < n; at += PART) {
        int part = n - at < PART ? n - at : PART;
        find_normal_parts(part, h + at, &p);
        for (int c = 0; c < part; c++) {
            float left = h[at + c] < -14.0f ? -14.0f : h[at + c];
            g[at + c] = left * normal_distribution(p.x[c], p.e[c], p.s[c]);
        }
    }
}

static void gelu_erf_backward(int n, const float *h, const float *dg, float *dh)
{
    normal_parts p;
    for (int at = 0; at < n; at += PART) {
        int part = n - at < PART ? n - at : PART;
        find_normal_parts(part, h + at, &p);
        for (int c = 0; c < part; c++)
            dh[at + c] = dg[at + c] * (normal_distribution(p.x[c], p.e[c], p.s[c]) +
                                       p.x[c] * (p.e[c] * 0.398942280f));
    }
}

static void relu(int n, const float *h, float *g)
{
    for (int c = 0; c < n; c++) g[c] = h[c] > 0 ? h[c] : 0.0f;
}

static void relu_backward(int n, const float *h, const float *dg, float *dh)
{
    for (int c = 0; c < n; c++) dh[c] = h[c] > 0 ? dg[c] : 0.0f;
}

static void swiglu(int n, const float *h, const float *w, float *g)
{
    for (int c = 0; c < n; c++) g[c] = 1.0f + exp_of(-h[c]);
    for (int c = 0; c < n; c++) g[c] = h[c] / g[c] * w[c];
}

static void swiglu_backward(int n, const float *h, const float *w, const float *dg,
                            float *dh, float *dw)
{
    for (int c = 0; c < n; c++) {
        float x = h[c], d = dg[c];
        float s = 1.0f / (1.0f + exp_of(-x));
        dw[c] = d * (x * s);
        dh[c] = d * w[c] * (s * (1.0f + x * (1.0f - s)));
    }
}

static void silu(int n, const float *h, float *g)
{
    for (int c = 0; c < n; c++) g[c] = 1.0f + exp_of(-h[c]);
    for (int c = 0; c < n; c++) g[c] = h[c] / g[c];
}

static void silu_backward(int n, const float *h, const float *dg, float *dh)
{
    for (int c = 0; c < n; c++) {
        float x = h[c], s = 1.0f / (1.0f + exp_of(-x));
        dh[c] = dg[c] * (s * (1.0f + x * (1.0f - s)));
    }
}

/* defined: as it is defined, in place of the tanh form */
static void geglu(int defined, int n, const float *h, const float *w, float *g)
{
    (defined ? gelu_erf : gelu)(n, h, g);
    for (int c = 0; c < n; c++) g[c] = g[c] * w[c];
}

static void geglu_backward(int defined, int n, const float *h, const float *w,
                           const float *dg, float *dh, float *dw)
{
    (defined ? gelu_erf : gelu)(n, h, dw);
    for (int c = 0; c < n; c++) dw[c] = dg[c] * dw[c];
    (defined ? gelu_erf_backward : gelu_backward)(n, h, dg, dh);
    for (int c = 0; c < n; c++) dh[c] = dh[c] * w[c];
}

static void activation(ph_span_activation kind, int n, const float *h, const float *w,
                       float *g)
{
    if (kind == PH_SPAN_GELU) gelu(n, h, g);
    if (kind == PH_SPAN_RELU) relu(n, h, g);
    if (kind == PH_SPAN_SWIGLU) swiglu(n, h, w, g);
    if (kind == PH_SPAN_GELU_ERF) gelu_erf(n, h, g);
    if (kind == PH_SPAN_GEGLU) geglu(0, n, h, w, g);
    if (kind == PH_SPAN_GEGLU_ERF) geglu(1, n, h, w, g);
    if (kind == PH_SPAN_SILU) silu(n, h, g);
}

static void activation_backward(ph_span_activation kind, int n, const float *h,
                                const float *w, const float *dg, float *dh, float *dw)
{
    if (kind == PH_SPAN_GELU) gelu_backward(n, h, dg, dh);
    if (kind == PH_SPAN_RELU) relu_backward(n, h, dg, dh);
    if (kind == PH_SPAN_SWIGLU) swiglu_backward(n, h, w, dg, dh, dw);
    if (kind == PH_SPAN_GELU_ERF) gelu_erf_backward(n, h, dg, dh);
    if (kind == PH_SPAN_GEGLU) geglu_backward(0, n, h, w, dg, dh, dw);
    if (kind == PH_SPAN_GEGLU_ERF) geglu_backward(1, n, h, w, dg, dh, dw);
    if (kind == PH_SPAN_SILU) silu_backward(n, h, dg, dh);
}

/* ---- sums and products ------------------------------------------------------------- */

static void add_residual(int n, const float *r, const float *y, const float *factor,
                         float *s)
{
    if (factor)
        for (int c = 0; c < n; c++) s[c] = r[c] + y[c] * factor[c];
    else
        for (int c = 0; c < n; c++) s[c] = r[c] + y[c];
}

static void add(int n, float *y, const float *x)
{
    for (int c = 0; c < n; c++) y[c] += x[c];
}

static void scaled(int n, float a, const float *x, float *y)
{
    for (int c = 0; c < n; c++) y[c] = a * x[c];
}

static void add_scaled(int n, float a, const float *x, float *y)
{
    for (int c = 0; c < n; c++) y[c] += a * x[c];
}

static void times(int n, float *y, const float *x)
{
    for (int c = 0; c < n; c++) y[c] *= x[c];
}

/* ---- losses ------------------------------------------------------------------------ */

static float max_of(int n, const float *x)
{
    float lane[LANES], max = x[0];
    int c = 0;
    for (int i = 0; i < LANES; i++) lane[i] = x[0];
    for (; c + LANES <= n; c += LANES)
        for (int i = 0; i < LANES; i++) lane[i] = x[c + i] > lane[i] ? x[c + i] : lane[i];
    for (; c < n; c++) max = x[c] > max ? x[c] : max;
    for (int i = 0; i < LANES; i++) max = lane[i] > max ? lane[i] : max;
    return max;
}

/* x becomes exp(x - max); returns the sum. */
static float exp_sum(int n, float *x, float max)
{
    float lane[LANES] = {0};
    int c = 0;
    for (; c + LANES <= n; c += LANES)
        for (int i = 0; i < LANES; i++) {
            float e = exp_of(x[c + i] - max);
            x[c + i] = e;
            lane[i] += e;
        }
    for (int i = 0; c + i < n; i++) lane[i] += x[c + i] = exp_of(x[c + i] - max);
    return halves(lane);
}

static float cross_entropy(int n, float *logits, int target, float smoothing, float scale)
{
    float max = max_of(n, logits), label = logits[target], even = smoothing / (float)n;
    float mean = smoothing > 0 ? mean_of(n, logits) : 0;
    float sum = exp_sum(n, logits, max), log_sum = max + logf(sum);
    float factor = scale / sum, off = scale * even;
    for (int c = 0; c < n; c++) logits[c] = logits[c] * factor - off;
    logits[target] -= scale * (1.0f - smoothing);
    return log_sum - (1.0f - smoothing) * label - smoothing * mean;
}

static float softmax(int n, float *x)
{
    float max = max_of(n, x), sum = exp_sum(n, x, max);
    scaled(n, 1.0f / sum, x, x);
    return max + logf(sum);
}

/* ---- the optimiser ----------------------------------------------------------------- */

/* The optimiser is bound by memory: prefetching into L2 keeps twice as many cache lines
   in flight as the hardware prefetchers do. */
enum { SQUARES_AHEAD = 1024, ADAM_AHEAD = 512 }; /* prefetch distances in floats */

static double sum_of_squares(int n, const float *x)
{
    double lane[LANES] = {0}, sum = 0;
    int c = 0;
    for (; c + LANES <= n; c += LANES) {
        __builtin_prefetch(x + c + SQUARES_AHEAD, 0, 2);
        for (int i = 0; i < LANES; i++) lane[i] += (double)x[c + i] * (double)x[c + i];
    }
    for (int i = 0; c + i < n; i++) lane[i] += (double)x[c + i] * (double)x[c + i];
    for (int i = 0; i < LANES; i++) sum += lane[i];
    return sum;
}

static void add_products(int n, double x, const float *restrict w, double *restrict sum,
                         double *restrict size)
{
    for (int c = 0; c < n && !size; c++) sum[c] += x * (double)w[c];
    for (int c = 0; c < n && size; c++) {
        double z = x * (double)w[c];
        sum[c] += z, size[c] += fabs(z);
    }
}

static inline void weigh_some(int n, const float *restrict w, const double *restrict f,
                              const double *restrict g, double *restrict lane,
                              double *restrict sizes)
{
    for (int i = 0; i < n; i++) lane[i] += (double)w[i] * f[i];
    for (int i = 0; g && i < n; i++) sizes[i] += fabs((double)w[i]) * g[i];
}

static double weigh(int n, const float *w, const double *f, const double *g,
                    double *sizes)
{
    double lane[LANES] = {0}, size[LANES] = {0}, sum = 0;
    int c = 0;
    for (; c + LANES <= n; c += LANES)
        weigh_some(LANES, w + c, f + c, g ? g + c : NULL, lane, size);
    weigh_some(n - c, w + c, f + c, g ? g + c : NULL, lane, size);
    *sizes = 0;
    for (int i = 0; i < LANES; i++) sum += lane[i], *sizes += size[i];
    return sum;
}

static inline void adam_some(int n, ph_adam a, const float *restrict grad,
                             float *restrict x, float *restrict m, float *restrict v)
{
    for (int c = 0; c < n; c++) {
        float g = grad[c] * a.clip;
        float mean = a.beta1 * m[c] + (1.0f - a.beta1) * g;
        float square = a.beta2 * v[c] + (1.0f - a.beta2) * (g * g);
        m[c] = mean, v[c] = square;
        float root = sqrtf(square * a.fix2) + a.eps;
        x[c] = x[c] - a.decay * x[c] - a.rate * (mean * a.fix1) / root;
    }
}

static void adam(int n, const ph_adam *step, const float *grad, float *x, float *m,
                 float *v)
{
    for (int c = 0; c < n; c += LANES) {
        const int ahead = c + ADAM_AHEAD, left = n - c;
        __builtin_prefetch(grad + ahead, 0, 2);
        __builtin_prefetch(x + ahead, 1, 2);
        __builtin_prefetch(m + ahead, 1, 2);
        __builtin_prefetch(v + ahead, 1, 2);
        if (left >= LANES)
            adam_some(LANES, *step, grad + c, x + c, m + c, v + c);
        else
            adam_some(left, *step, grad + c, x + c, m + c, v + c);
    }
}

const ph_spans SPANS = {.norm = norm,
                        .norm_backward = norm_backward,
                        .activation = activation,
                        .activation_backward = activation_backward,
                        .add_residual = add_residual,
                        .add = add,
                        .scaled = scaled,
                        .add_scaled = add_scaled,
                        .times = times,
                        .cross_entropy = cross_entropy,
                        .softmax = softmax,
                        .sum_of_squares = sum_of_squares,
                        .add_products = add_products,
                        .weigh = weigh,
                        .adam = adam};
