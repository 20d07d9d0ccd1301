/*
 * tmpl_rows.h - softmax, masks and biases on rows of scores, written once in the vector
 * vocabulary.
 *
 * Scores are in base 2: logits times log2(e). Strips are PH_STRIP_LD floats a row.
 */
#include "kernels/tmpl_row_max.h"

static void softmax(int m, int n, float *s, const float *lane_max, float *row_max,
                    float *sum, float *rescale)
{
    float base[PH_LANES];
    raise_row_max(m, lane_max, row_max, rescale, base);
    for (int i = 0; i < m; i++, s += PH_STRIP_LD, sum += PH_LANES) {
        const vec from = v_set1(base[i]), shrink = v_set1(rescale[i]);
        vec total[GROUP];
        for (int v = 0; v < GROUP; v++) total[v] = v_mul(v_load(sum + v * VL), shrink);
        for (int c = 0; c < n; c += PH_LANES)
#pragma GCC unroll 4
            for (int v = 0; v < GROUP; v++) {
                vec p = v_exp2(v_sub(v_load(s + c + v * VL), from));
                v_store(s + c + v * VL, p);
                total[v] = v_add(total[v], p);
            }
        for (int v = 0; v < GROUP; v++) v_store(sum + v * VL, total[v]);
    }
}

V void gradient_row(int n, float *s, float *dp, const float *drop,
                    const float *derivative, float lse, float delta, const int dropped,
                    const int derives)
{
    const vec base = v_set1(lse), shift = v_set1(delta), zero = v_zero();
    for (int c = 0; c < n; c += VL) {
        vec score = v_load(s + c), g = v_load(dp + c);
        vec p = v_exp2(v_sub(score, base));
        if (dropped) g = v_mul(g, v_load(drop + c));
        vec ds = v_mul(p, v_sub(g, shift));
        if (derives) ds = v_mul(ds, v_load(derivative + c));
        v_store(dp + c, v_select(v_eq(score, MINUS_INF), zero, ds));
        v_store(s + c, dropped ? v_mul(p, v_load(drop + c)) : p);
    }
}

static void gradient(int m, int n, float *s, float *dp, const float *drop,
                     const float *derivative, const float *lse, const float *delta)
{
    for (int i = 0; i < m; i++, s += PH_STRIP_LD, dp += PH_STRIP_LD) {
        if (drop && derivative)
            gradient_row(n, s, dp, drop, derivative, lse[i], delta[i], 1, 1);
        else if (drop)
            gradient_row(n, s, dp, drop, NULL, lse[i], delta[i], 1, 0);
        else if (derivative)
            gradient_row(n, s, dp, NULL, derivative, lse[i], delta[i], 0, 1);
        else
            gradient_row(n, s, dp, NULL, NULL, lse[i], delta[i], 0, 0);
        if (drop) drop += PH_STRIP_LD;
        if (derivative) derivative += PH_STRIP_LD;
    }
}

static void weights(int n, float *s, float lse)
{
    const vec base = v_set1(lse);
    for (int c = 0; c < n; c += VL) v_store(s + c, v_exp2(v_sub(v_load(s + c), base)));
}

static void logs(int n, float *x)
{
    for (int c = 0; c < n; c += VL) v_store(x + c, v_log(v_load(x + c)));
}

static float dot(int n, const float *x, const float *y)
{
    vec total[GROUP];
    for (int v = 0; v < GROUP; v++) total[v] = v_zero();
    for (int c = 0; c < n; c += PH_LANES)
        for (int v = 0; v < GROUP; v++)
            total[v] = v_fma(v_load(x + c + v * VL), v_load(y + c + v * VL), total[v]);
    return v_sum16(total);
}

static void dots(int m, int n, const float *x, int64_t ldx, const float *y, int64_t ldy,
                 float *sums)
{
    for (int i = 0; i < m; i++) sums[i] = dot(n, x + i * ldx, y + i * ldy);
}

static void deltas(int m, int n, const float *x, int64_t ldx, const float *y, int64_t ldy,
                   const float *lse, float *base, float *delta)
{
    const float inf = __builtin_inff();
    dots(m, n, x, ldx, y, ldy, delta);
    for (int i = 0; i < m; i++) {
        base[i] = lse[i] == -inf ? inf : (float)(lse[i] * PH_LOG2E);
        delta[i] = lse[i] == -inf ? 0 : delta[i];
    }
}

static void axpy(int n, float a, const float *x, float *y)
{
    const vec factor = v_set1(a);
    for (int c = 0; c < n; c += VL)
        v_store(y + c, v_fma(factor, v_load(x + c), v_load(y + c)));
}

static void times(int n, float *y, const float *x)
{
    for (int c = 0; c < n; c += VL) v_store(y + c, v_mul(v_load(y + c), v_load(x + c)));
}

static void blend(int n, float *y, float a, const float *x, float b)
{
    const vec old = v_set1(a), new = v_set1(b);
    for (int c = 0; c < n; c += VL)
        v_store(y + c, v_fma(v_load(x + c), new, v_mul(v_load(y + c), old)));
}

static void row_lane_max(int n, const float *s, float *lane_max)
{
    for (int v = 0; v < GROUP; v++) v_store(lane_max + v * VL, MINUS_INF);
    for (int c = 0; c < n; c += PH_LANES)
        for (int v = 0; v < GROUP; v++) {
            float *p = lane_max + v * VL;
            v_store(p, v_max(v_load(p), v_load(s + c + v * VL)));
        }
}

static void clip(int m, int n, float *s, const int *lo, const int *hi, float *lane_max)
{
    for (int i = 0; i < m; i++, s += PH_STRIP_LD, lane_max += PH_LANES) {
        const vec low = v_set1((float)lo[i]), high = v_set1((float)hi[i]);
        vec highest[GROUP], at = v_iota();
        for (int v = 0; v < GROUP; v++) highest[v] = MINUS_INF;
        for (int c = 0; c < n; c += PH_LANES)
#pragma GCC unroll 4
            for (int v = 0; v < GROUP; v++, at = v_add(at, v_set1(VL))) {
                vec x = v_select(v_lt(at, high), v_load(s + c + v * VL), MINUS_INF);
                x = v_select(v_lt(at, low), MINUS_INF, x);
                v_store(s + c + v * VL, x);
                highest[v] = v_max(highest[v], x);
            }
        for (int v = 0; v < GROUP; v++) v_store(lane_max + v * VL, highest[v]);
    }
}

/* VL rows at once: each is reduced to one vector, then a transpose makes the remaining
   reduction vertical. */
static void lane_sums(int m, const float *lanes, float *total)
{
    for (int first = 0; first < m; first += VL) {
        vec r[VL];
#pragma GCC unroll 16
        for (int i = 0; i < VL; i++) {
            const float *row = lanes + (first + i) * PH_LANES;
            r[i] = v_zero();
            if (first + i >= m) continue;
            vec g[GROUP];
            for (int v = 0; v < GROUP; v++) g[v] = v_load(row + v * VL);
            for (int half = GROUP / 2; half; half /= 2)
                for (int v = 0; v < half; v++) g[v] = v_add(g[v], g[v + half]);
            r[i] = g[0];
        }
        v_transpose(r);
#pragma GCC unroll 4
        for (int half = VL / 2; half; half /= 2)
#pragma GCC unroll 8
            for (int i = 0; i < half; i++) r[i] = v_add(r[i], r[i + half]);
        if (m - first >= VL)
            v_store(total + first, r[0]);
        else
            v_store_n(total + first, r[0], m - first);
    }
}

V vec biased(vec s, vec bias, vec factor)
{
    /* a finite bias must not exclude, even if it overflows in base 2 */
    vec sum = v_max(v_set1(-__FLT_MAX__), v_fma(bias, factor, s));
    return v_select(v_eq(bias, MINUS_INF), MINUS_INF, sum);
}

static void add_bias(int n, float *s, const float *bias, float factor)
{
    const vec times = v_set1(factor);
    int c = 0;
    for (; c + VL <= n; c += VL)
        v_store(s + c, biased(v_load(s + c), v_load(bias + c), times));
    if (c < n)
        v_store_n(s + c, biased(v_load_n(s + c, n - c), v_load_n(bias + c, n - c), times),
                  n - c);
}

static void add_alibi(int m, int n, float *s, const float *slope, const float *first,
                      float *lane_max)
{
    const vec step = v_set1(VL);
    for (int i = 0; i < m; i++, s += PH_STRIP_LD, lane_max += PH_LANES) {
        const vec times = v_set1(slope[i]);
        vec highest[GROUP], at = v_add(v_set1(first[i]), v_iota());
        for (int v = 0; v < GROUP; v++) highest[v] = MINUS_INF;
        for (int c = 0; c < n; c += PH_LANES)
#pragma GCC unroll 4
            for (int v = 0; v < GROUP; v++, at = v_add(at, step)) {
                vec x = v_fnma(times, v_abs(at), v_load(s + c + v * VL));
                v_store(s + c + v * VL, x);
                highest[v] = v_max(highest[v], x);
            }
        for (int v = 0; v < GROUP; v++) v_store(lane_max + v * VL, highest[v]);
    }
}

V void cap_row(int n, float *s, float cap, float *lane_max, const int derives,
               float *derivative)
{
    const vec high = v_set1(cap), inverse = v_set1(1.0f / cap);
    vec highest[GROUP], here = v_zero();
    for (int v = 0; v < GROUP; v++) highest[v] = MINUS_INF;
    for (int c = 0; c < n; c += PH_LANES)
#pragma GCC unroll 4
        for (int v = 0; v < GROUP; v++) {
            vec x = v_cap(v_load(s + c + v * VL), high, inverse, derives, &here);
            v_store(s + c + v * VL, x);
            highest[v] = v_max(highest[v], x);
            if (derives) /* a masked NaN must not propagate into ds */
                v_store(derivative + c + v * VL, v_select(v_eq(x, x), here, v_zero()));
        }
    for (int v = 0; v < GROUP; v++) v_store(lane_max + v * VL, highest[v]);
}

static void softcap(int m, int n, float *s, float cap, float *lane_max, float *derivative)
{
    for (int i = 0; i < m; i++, s += PH_STRIP_LD, lane_max += PH_LANES)
        if (derivative)
            cap_row(n, s, cap, lane_max, 1, derivative + i * PH_STRIP_LD);
        else
            cap_row(n, s, cap, lane_max, 0, NULL);
}

static void hide(int n, float *s, const uint8_t *visible)
{
    int c = 0;
    for (; c + VL <= n; c += VL)
        v_store(s + c, v_select(v_bytes(visible + c), v_load(s + c), MINUS_INF));
    for (; c < n; c++)
        if (!visible[c]) s[c] = -__builtin_inff();
}

/* The counter-based random number of key x in a row whose 64-bit key is high:low. */
V vint drop_hash(vint x, vint low, vint high)
{
    x = vi_add(vi_mul(x, vi_set1(0x9e3779b9u)), low);
    x = vi_mul(vi_xor(x, vi_srl(x, 16)), vi_set1(0x7feb352du));
    x = vi_mul(vi_xor(x, vi_srl(x, 15)), vi_set1(0x846ca68bu));
    return vi_xor(vi_xor(x, vi_srl(x, 16)), high);
}

static void dropout(int n, float *f, uint64_t key, uint32_t first, uint32_t limit,
                    float keep)
{
    const vint low = vi_set1((uint32_t)key), high = vi_set1((uint32_t)(key >> 32));
    const vint below = vi_set1(limit);
    for (int c = 0; c < n; c += VL) {
        vint x = vi_add(vi_set1(first + (uint32_t)c), vi_iota());
        x = drop_hash(x, low, high);
        v_store(f + c, v_select(vi_below(x, below), v_zero(), v_set1(keep)));
    }
}
