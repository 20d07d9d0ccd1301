/*
 * ref.c - the oracle: each kernel of kernels.h in scalar loops.
 *
 * The other tables must give the same bits, so the order of every sum and every rounding
 * here is the contract. Runs on any CPU; fmaf is exact everywhere, if slow without
 * hardware.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "base/rng.h"
#include "kernels/kernels.h"
#include "kernels/sink.h"

enum { MR = 4, NR = 16, FEW_ROWS = 2 };

/* ---- packing ---- */

static void pack_panel(float *dst, int64_t ld, const void *const *rows, int count, int k,
                       ph_dtype type, float scale)
{
    for (int kk = 0; kk < k; kk++)
        for (int r = 0; r < ld; r++)
            dst[kk * ld + r] = r < count ? ph_element(rows[r], type, kk) * scale : 0;
}

static void load_row(float *dst, const void *src, int64_t at, int n, ph_dtype type,
                     float scale)
{
    int padded = ph_round_up(n, PH_LANES);
    for (int c = 0; c < padded; c++)
        dst[c] = c < n ? ph_element(src, type, at + c) * scale : 0;
}

static void pack_row_major(float *dst, int64_t ld, const void *const *rows, int count,
                           int n, ph_dtype type, float scale)
{
    for (int r = 0; r < count; r++) load_row(dst + r * ld, rows[r], 0, n, type, scale);
}

static void store_row(void *dst, const float *src, int n, ph_dtype type, float scale)
{
    for (int c = 0; c < n; c++) {
        float x = fmaf(src[c], scale, 0.0f);
        if (type == PH_F32)
            ((float *)dst)[c] = x;
        else
            ((uint16_t *)dst)[c] = type == PH_BF16 ? ph_to_bf16(x) : ph_to_f16(x);
    }
}

static int finite(const float *x, int64_t ld, int rows, int n)
{
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < n; c++)
            if (!isfinite(x[r * ld + c])) return 0;
    return 1;
}

/* ---- products ---- */

/* v_max: b where either is NaN or both are equal */
static float max(float a, float b)
{
    return a > b ? a : b;
}

static void scores(int m, int n, int k, const float *a, int64_t lda, const float *b,
                   float *s, float *lane_max)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            const float *panel = b + (int64_t)(j / NR * NR) * k + j % NR;
            float sum = 0,
                  *highest = lane_max ? &lane_max[i * PH_LANES + j % PH_LANES] : &sum;
            for (int kk = 0; kk < k; kk++)
                sum = fmaf(a[i * lda + kk], panel[kk * NR], sum);
            s[i * PH_STRIP_LD + j] = sum;
            *highest = max(*highest, sum);
        }
}

static void scores_in_place(int m, int n, int k, const float *a, int64_t lda,
                            const void *b, int64_t ldb, ph_dtype type, const void *next,
                            int next_keys, float *s, float *lane_max)
{
    (void)next, (void)next_keys;
    for (int i = 0; i < m; i++)
        for (int j = 0; j < ph_round_up(n, PH_LANES); j++) {
            const void *key = ph_at(b, type, ph_min(j, n - 1) * ldb);
            float sum = 0, *highest = &lane_max[i * PH_LANES + j % PH_LANES];
            for (int kk = 0; kk < k; kk++)
                sum = fmaf(a[i * lda + kk], ph_element(key, type, kk), sum);
            s[i * PH_STRIP_LD + j] = sum;
            *highest = max(*highest, sum);
        }
}

static void multiply_v(int m, int n, int k, const float *p, const float *b, int64_t ldb,
                       float *c, int64_t ldc, const float *rescale, const void *prefetch)
{
    (void)prefetch;
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float sum = rescale ? c[i * ldc + j] * rescale[i] : 0;
            for (int kk = 0; kk < k; kk++)
                sum = fmaf(p[i * PH_STRIP_LD + kk], b[kk * ldb + j], sum);
            c[i * ldc + j] = sum;
        }
}

static void product(int m, int n, int k, const float *a, int64_t lda, const float *b,
                    int64_t ldb, int64_t panel, float *c, int64_t ldc, int add,
                    const void *prefetch)
{
    (void)prefetch;
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            const float *right = b + j / NR * panel + j % NR;
            float sum = add ? c[i * ldc + j] : 0;
            for (int kk = 0; kk < k; kk++)
                sum = fmaf(a[kk * lda + i], right[kk * ldb], sum);
            c[i * ldc + j] = sum;
        }
}

static void axpy(int n, float a, const float *x, float *y)
{
    for (int c = 0; c < n; c++) y[c] = fmaf(a, x[c], y[c]);
}

/* ---- rows ---- */

/* see tmpl_math.h for the method */
static float exp2_ref(float x)
{
    if (x < -126.5f) return 0;
    float whole = rintf(x), f = x - whole;
    float p = 0x1.5bba14p-10f;
    p = fmaf(p, f, 0x1.3cea88p-7f);
    p = fmaf(p, f, 0x1.c6b752p-5f);
    p = fmaf(p, f, 0x1.ebf9bcp-3f);
    p = fmaf(p, f, 0x1.62e42ap-1f);
    p = fmaf(p, f, 1.0f);
    return p * ph_float(ph_bits(whole + (0x1.8p23f + 127.0f)) << 23);
}

static float cap_ref(float s, float cap, float inverse, float *derivative)
{
    float x = s * inverse, z = x * x;
    float p = -0.0056607896f;
    p = fmaf(p, z, 0.020602008f);
    p = fmaf(p, z, -0.05372923f);
    p = fmaf(p, z, 0.13331328f);
    p = fmaf(p, z, -0.33333278f);
    float small = fmaf(p * z, s, s), t = small * inverse;
    *derivative = fmaf(-t, t, 1.0f);
    if (z < 0.36f) return small;
    float e = exp2_ref(fabsf(x) * -2.8853900817779268f), both = 1.0f + e;
    *derivative = 4.0f * e / (both * both);
    if (isnan(x)) *derivative = 0; /* a masked NaN must not propagate into ds */
    return cap * copysignf((1.0f - e) / both, x);
}

static float max16(const float lanes[PH_LANES])
{
    float t[PH_LANES];
    memcpy(t, lanes, sizeof t);
    for (int half = PH_LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) t[i] = max(t[i], t[i + half]);
    return t[0];
}

static float sum16(const float lanes[PH_LANES])
{
    float t[PH_LANES];
    memcpy(t, lanes, sizeof t);
    for (int half = PH_LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) t[i] += t[i + half];
    return t[0];
}

static void softmax(int m, int n, float *s, const float *lane_max, float *row_max,
                    float *sum, float *rescale)
{
    for (int i = 0; i < m; i++) {
        float old = row_max[i], highest = max16(lane_max + i * PH_LANES),
              *row = s + i * PH_STRIP_LD;
        if (highest <= old) highest = old; /* keeps NaN */
        row_max[i] = highest;
        if (highest == -INFINITY) highest = 0;
        rescale[i] = exp2_ref(old - highest);
        for (int l = 0; l < PH_LANES; l++) sum[i * PH_LANES + l] *= rescale[i];
        for (int c = 0; c < n; c++) {
            row[c] = exp2_ref(row[c] - highest);
            sum[i * PH_LANES + c % PH_LANES] += row[c];
        }
    }
}

static void gradient(int m, int n, float *s, float *dp, const float *drop,
                     const float *derivative, const float *lse, const float *delta)
{
    for (int i = 0; i < m; i++)
        for (int c = 0; c < n; c++) {
            int at = i * PH_STRIP_LD + c;
            float score = s[at], p = exp2_ref(score - lse[i]);
            float g = drop ? dp[at] * drop[at] : dp[at];
            float ds = p * (g - delta[i]);
            if (derivative) ds = ds * derivative[at];
            dp[at] = score == -INFINITY ? 0 : ds;
            s[at] = drop ? p * drop[at] : p;
        }
}

static void weights(int n, float *s, float lse)
{
    for (int c = 0; c < n; c++) s[c] = exp2_ref(s[c] - lse);
}

/* x = 2^e * m with m near 1, log x = e log 2 + f - f^2/2 + f^3 P(f), f = m - 1. */
static float logarithm(float x)
{
    uint32_t bits = ph_bits(x) - 0x3f3504f3u; /* 1/sqrt(2) */
    float e = (float)((int32_t)bits >> 23);
    float f = ph_float((bits & 0x7fffffu) + 0x3f3504f3u) - 1.0f, p = -0x1.38b586p-4f;
    p = p * f + 0x1.055b6cp-3f;
    p = p * f - 0x1.0d8542p-3f;
    p = p * f + 0x1.22da1cp-3f;
    p = p * f - 0x1.547244p-3f;
    p = p * f + 0x1.99a008p-3f;
    p = p * f - 0x1.000226p-2f;
    p = p * f + 0x1.555554p-2f;
    float square = f * f;
    return e * 0x1.62e4p-1f +
           (f + (f * square * p - 0.5f * square + e * 0x1.7f7d1cp-20f));
}

static void logs(int n, float *x)
{
    for (int c = 0; c < n; c++) x[c] = logarithm(x[c]);
}

static float dot(int n, const float *x, const float *y)
{
    float lanes[PH_LANES] = {0};
    for (int c = 0; c < ph_round_up(n, PH_LANES); c++)
        lanes[c % PH_LANES] = fmaf(x[c], y[c], lanes[c % PH_LANES]);
    return sum16(lanes);
}

static void dots(int m, int n, const float *x, int64_t ldx, const float *y, int64_t ldy,
                 float *sums)
{
    for (int i = 0; i < m; i++) sums[i] = dot(n, x + i * ldx, y + i * ldy);
}

static void deltas(int m, int n, const float *x, int64_t ldx, const float *y, int64_t ldy,
                   const float *lse, float *base, float *delta)
{
    for (int i = 0; i < m; i++) {
        int nothing = lse[i] == -INFINITY;
        base[i] = nothing ? INFINITY : (float)(lse[i] * PH_LOG2E);
        delta[i] = nothing ? 0 : dot(n, x + i * ldx, y + i * ldy);
    }
}

static void times(int n, float *y, const float *x)
{
    for (int c = 0; c < n; c++) y[c] *= x[c];
}

static void blend(int n, float *y, float a, const float *x, float b)
{
    for (int c = 0; c < n; c++) y[c] = fmaf(x[c], b, y[c] * a);
}

static void row_lane_max(int n, const float *s, float *lane_max)
{
    for (int l = 0; l < PH_LANES; l++) lane_max[l] = -INFINITY;
    for (int c = 0; c < n; c++)
        lane_max[c % PH_LANES] = max(lane_max[c % PH_LANES], s[c]);
}

static void clip(int m, int n, float *s, const int *lo, const int *hi, float *lane_max)
{
    for (int i = 0; i < m; i++, s += PH_STRIP_LD) {
        for (int c = 0; c < n; c++)
            if (c < lo[i] || c >= hi[i]) s[c] = -INFINITY;
        row_lane_max(n, s, lane_max + i * PH_LANES);
    }
}

static void lane_sums(int m, const float *lanes, float *total)
{
    for (int i = 0; i < m; i++) total[i] = sum16(lanes + i * PH_LANES);
}

static void add_bias(int n, float *s, const float *bias, float factor)
{
    for (int c = 0; c < n; c++) {
        float sum = fmaf(bias[c], factor, s[c]);
        if (sum < -FLT_MAX) sum = -FLT_MAX; /* a finite bias must not exclude */
        s[c] = bias[c] == -INFINITY ? -INFINITY : sum;
    }
}

static void add_alibi(int m, int n, float *s, const float *slope, const float *first,
                      float *lane_max)
{
    for (int i = 0; i < m; i++, s += PH_STRIP_LD, lane_max += PH_LANES) {
        for (int c = 0; c < n; c++)
            s[c] = fmaf(-slope[i], fabsf(first[i] + (float)c), s[c]);
        row_lane_max(n, s, lane_max);
    }
}

static void softcap(int m, int n, float *s, float cap, float *lane_max, float *derivative)
{
    float here;
    for (int i = 0; i < m; i++, s += PH_STRIP_LD, lane_max += PH_LANES) {
        for (int c = 0; c < n; c++) {
            s[c] = cap_ref(s[c], cap, 1.0f / cap, &here);
            if (derivative) derivative[i * PH_STRIP_LD + c] = here;
        }
        for (int c = n; derivative && c % PH_LANES; c++)
            derivative[i * PH_STRIP_LD + c] = 0;
        row_lane_max(n, s, lane_max);
    }
}

static void hide(int n, float *s, const uint8_t *visible)
{
    for (int c = 0; c < n; c++)
        if (!visible[c]) s[c] = -INFINITY;
}

static void dropout(int n, float *f, uint64_t key, uint32_t first, uint32_t limit,
                    float keep)
{
    for (int c = 0; c < n; c++)
        f[c] = ph_rng_at(key, first + (uint32_t)c) < limit ? 0 : keep;
}

/* ---- mixed heads, and rows that are not softmax ---- */

/* sum_h w[h] x[h] of one column */
static float over_heads(int heads, const float *w, const float *x, int64_t ld)
{
    float sum = 0;
    for (int h = 0; h < heads; h++) sum = fmaf(w[h * PH_STRIP_LD], x[h * ld], sum);
    return sum;
}

static void compose(int heads, int rank, int n, const float *w1, const float *w2,
                    const float *g, const float *x, float *y, int64_t ld)
{
    int64_t part = (int64_t)heads * PH_STRIP_LD;
    for (int c = 0; c < n; c++) {
        float hidden[PH_RANK_MAX];
        for (int r = 0; r < rank; r++)
            hidden[r] = over_heads(heads, w1 + r * part + c, x + c, ld);
        for (int h = 0; h < heads; h++) {
            int64_t at = (int64_t)h * PH_STRIP_LD + c;
            float sum = fmaf(g[at], x[h * ld + c], y[h * ld + c]);
            for (int r = 0; r < rank; r++) sum = fmaf(w2[r * part + at], hidden[r], sum);
            y[h * ld + c] = sum;
        }
    }
}

static void decompose(int heads, int rank, int rows, int n, const float *w1,
                      const float *w2, const float *x, const float *dy, int64_t ld,
                      float *dw1, float *dw2, float *dg, float *scratch)
{
    int64_t part = (int64_t)heads * PH_STRIP_LD;
    (void)scratch;
    for (int i = 0; i < rows; i++, x += PH_STRIP_LD, dy += PH_STRIP_LD)
        for (int c = 0; c < n; c++)
            for (int h = 0; h < heads; h++) {
                int64_t at = (int64_t)h * PH_STRIP_LD + c;
                float in = x[h * ld + c], out = dy[h * ld + c];
                dg[at] = fmaf(in, out, dg[at]);
                for (int r = 0; r < rank; r++) {
                    float hidden = over_heads(heads, w1 + r * part + c, x + c, ld);
                    float e = over_heads(heads, w2 + r * part + c, dy + c, ld);
                    dw1[r * part + at] = fmaf(e, in, dw1[r * part + at]);
                    dw2[r * part + at] = fmaf(hidden, out, dw2[r * part + at]);
                }
            }
}

static void center(int n, const float *p, float delta, float *dp)
{
    for (int c = 0; c < n; c++) dp[c] = p[c] == 0 ? 0 : p[c] * (dp[c] - delta);
}

static void gram(int m, int n, int k, const float *x, int64_t ldx, const float *y,
                 int64_t ldy, float *g, int64_t ldg)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) g[i * ldg + j] += dot(k, x + i * ldx, y + j * ldy);
}

static int near_row_max(int n, const float *s, float scale, float row_max, float *list)
{
    int count = 0;
    for (int c = 0; c < n; c++) {
        float x = (s[c] - row_max) * scale;
        if (x > -1) list[count++] = x;
    }
    return count;
}

/* see tmpl_math.h for the method */
static float log2_ref(float x)
{
    uint32_t bits = ph_bits(x) - 0x3f3504f3u;
    float e = (float)((int32_t)bits >> 23), p = -0x1.38b586p-4f;
    float f = ph_float((bits & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
    p = fmaf(p, f, 0x1.055b6cp-3f);
    p = fmaf(p, f, -0x1.0d8542p-3f);
    p = fmaf(p, f, 0x1.22da1cp-3f);
    p = fmaf(p, f, -0x1.547244p-3f);
    p = fmaf(p, f, 0x1.99a008p-3f);
    p = fmaf(p, f, -0x1.000226p-2f);
    p = fmaf(p, f, 0x1.555554p-2f);
    p = fmaf(f * f, fmaf(f, p, -0.5f), f);
    return fmaf(p, 0x1.715476p+0f, e);
}

/* u^a and u^(a-1) of u = 1 + t; see tmpl_joint.h */
static void power(float t, float a, float *p, float *derivative)
{
    float u = max(0, 1.0f + t), lost = t - (u - 1.0f);
    if (a == 1) {
        *p = u, *derivative = u > 0;
    } else if (a == 2) {
        *p = u * u, *derivative = u;
    } else if (u > 0) {
        float log = fmaf(lost, 0x1.715476p+0f, log2_ref(u));
        *p = exp2_ref(a * log), *derivative = exp2_ref((a - 1.0f) * log);
    } else {
        *p = *derivative = u;
    }
}

static void power_sums(int n, const float *x, float d, float a, float *sums)
{
    float high[PH_LANES] = {0}, low[PH_LANES] = {0}, p, derivative;
    for (int c = 0; c < n; c++) {
        power(x[c] - d, a, &p, &derivative);
        high[c % PH_LANES] += p;
        low[c % PH_LANES] += derivative;
    }
    sums[0] = sum16(high), sums[1] = sum16(low);
}

static void entmax(int n, float *s, float *derivative, float scale, float base, float a)
{
    for (int c = 0; c < n; c++) {
        float p, d;
        power((s[c] - base) * scale, a, &p, &d);
        s[c] = p;
        if (derivative) derivative[c] = d;
    }
}

/* ---- for the products of a layer ---- */

static void pack_panels(float *dst, int width, int64_t panel, const void *src,
                        int64_t stride, int k, int n, ph_dtype type)
{
    for (int kk = 0; kk < k; kk++) {
        const void *row = ph_at(src, type, kk * stride);
        for (int c = 0; c < ph_round_up(n, width); c++)
            dst[c / width * panel + kk * width + c % width] =
                c < n ? ph_element(row, type, c) : 0;
    }
}

static void add_rows(int m, int n, const float *x, float *y, int64_t ld)
{
    for (int i = 0; i < m; i++)
        for (int c = 0; c < n; c++) y[i * ld + c] += x[c];
}

static void product_few_rows(int m, int n, int k, const float *a, int64_t lda,
                             const void *b, int64_t ldb, ph_dtype type, float *c,
                             int64_t ldc)
{
    for (int kk = 0; kk < k; kk++)
        for (int j = 0; j < n; j++) {
            float right = ph_element(ph_at(b, type, kk * ldb), type, j);
            for (int i = 0; i < m; i++)
                c[i * ldc + j] = fmaf(a[i * lda + kk], right, c[i * ldc + j]);
        }
}

static void product_few_rows_t(int m, int n, int k, const float *a, int64_t lda,
                               const void *b, int64_t ldb, ph_dtype type, float *c,
                               int64_t ldc)
{
    for (int j = 0; j < n; j++)
        for (int kk = 0; kk < k; kk++) {
            float right = ph_element(ph_at(b, type, j * ldb), type, kk);
            for (int i = 0; i < m; i++)
                c[i * ldc + j] = fmaf(a[i * lda + kk], right, c[i * ldc + j]);
        }
}

#include "kernels/ref_head.h"

#define TABLE   ph_kernels_ref
#define NAME    "ref"
#define VECTORS NAME
#include "kernels/tmpl_table.h"
