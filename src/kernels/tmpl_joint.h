/*
 * tmpl_joint.h - kernels of mixed heads (talking heads, DCMHA) and of entmax.
 *
 * entmax: u = max(1 + scale*(s - base), 0), p = u^a, with u^(a-1) for its derivative.
 * a = 1 and a = 2 need no logarithm.
 */
/* sum_h w[h] x[h] of one vector of columns */
V vec over_heads(int heads, const float *w, const float *x, int64_t ld)
{
    vec sum = v_zero();
    for (int h = 0; h < heads; h++)
        sum = v_fma(v_load(w + h * PH_STRIP_LD), v_load(x + h * ld), sum);
    return sum;
}

V void compose_column(const int R, int heads, const float *w1, const float *w2,
                      const float *g, const float *x, float *y, int64_t ld)
{
    const int64_t part = (int64_t)heads * PH_STRIP_LD;
    vec hidden[PH_RANK_MAX];
    for (int r = 0; r < R; r++) hidden[r] = over_heads(heads, w1 + r * part, x, ld);
    for (int h = 0; h < heads; h++) {
        int64_t at = (int64_t)h * PH_STRIP_LD;
        vec sum = v_fma(v_load(g + at), v_load(x + h * ld), v_load(y + h * ld));
        for (int r = 0; r < R; r++)
            sum = v_fma(v_load(w2 + r * part + at), hidden[r], sum);
        v_store(y + h * ld, sum);
    }
}

static void compose(int heads, int rank, int n, const float *w1, const float *w2,
                    const float *g, const float *x, float *y, int64_t ld)
{
    for (int c = 0; c < n; c += VL) {
        if (rank == 1)
            compose_column(1, heads, w1 + c, w2 + c, g + c, x + c, y + c, ld);
        else if (rank == 2)
            compose_column(2, heads, w1 + c, w2 + c, g + c, x + c, y + c, ld);
        else
            compose_column(rank, heads, w1 + c, w2 + c, g + c, x + c, y + c, ld);
    }
}

/* One vector of columns: hidden and e of every row first, into
   scratch[(2*r + which)*rows + i]; then head by head with sums in registers. */
V void decompose_column(const int R, int heads, int rows, const float *w1,
                        const float *w2, const float *x, const float *dy, int64_t ld,
                        float *dw1, float *dw2, float *dg, float *scratch)
{
    const int64_t part = (int64_t)heads * PH_STRIP_LD;
    for (int i = 0; i < rows; i++)
        for (int r = 0; r < R; r++) {
            float *to = scratch + ((int64_t)2 * r * rows + i) * VL;
            v_store(to, over_heads(heads, w1 + r * part, x + i * PH_STRIP_LD, ld));
            v_store(to + rows * VL,
                    over_heads(heads, w2 + r * part, dy + i * PH_STRIP_LD, ld));
        }
    for (int h = 0; h < heads; h++) {
        int64_t at = (int64_t)h * PH_STRIP_LD;
        vec one[PH_RANK_MAX], two[PH_RANK_MAX], diagonal = v_load(dg + at);
        for (int r = 0; r < R; r++)
            one[r] = v_load(dw1 + r * part + at), two[r] = v_load(dw2 + r * part + at);
        for (int i = 0; i < rows; i++) {
            vec in = v_load(x + h * ld + i * PH_STRIP_LD);
            vec out = v_load(dy + h * ld + i * PH_STRIP_LD);
            diagonal = v_fma(in, out, diagonal);
            for (int r = 0; r < R; r++) {
                const float *from = scratch + ((int64_t)2 * r * rows + i) * VL;
                two[r] = v_fma(v_load(from), out, two[r]);
                one[r] = v_fma(v_load(from + rows * VL), in, one[r]);
            }
        }
        v_store(dg + at, diagonal);
        for (int r = 0; r < R; r++)
            v_store(dw1 + r * part + at, one[r]), v_store(dw2 + r * part + at, two[r]);
    }
}

static void decompose(int heads, int rank, int rows, int n, const float *w1,
                      const float *w2, const float *x, const float *dy, int64_t ld,
                      float *dw1, float *dw2, float *dg, float *scratch)
{
    for (int c = 0; c < n; c += VL) {
        if (rank == 2)
            decompose_column(2, heads, rows, w1 + c, w2 + c, x + c, dy + c, ld, dw1 + c,
                             dw2 + c, dg + c, scratch);
        else
            decompose_column(rank, heads, rows, w1 + c, w2 + c, x + c, dy + c, ld,
                             dw1 + c, dw2 + c, dg + c, scratch);
    }
}

static void center(int n, const float *p, float delta, float *dp)
{
    const vec shift = v_set1(delta), zero = v_zero();
    for (int c = 0; c < n; c += VL) {
        vec weight = v_load(p + c);
        vec ds = v_mul(weight, v_sub(v_load(dp + c), shift));
        v_store(dp + c, v_select(v_eq(weight, zero), zero, ds));
    }
}

enum { GRAM = VL == 16 ? 4 : 2 }; /* rows and columns of the register tile of gram */

/* M x N dot products at once, each in 16 lanes. */
V void gram_part(const int M, const int N, int k, const float *x, int64_t ldx,
                 const float *y, int64_t ldy, float *g, int64_t ldg)
{
    vec sum[GRAM][GRAM][GROUP];
#pragma GCC unroll 4
    for (int i = 0; i < M; i++)
#pragma GCC unroll 4
        for (int j = 0; j < N; j++)
#pragma GCC unroll 4
            for (int v = 0; v < GROUP; v++) sum[i][j][v] = v_zero();
    for (int c = 0; c < k; c += PH_LANES)
#pragma GCC unroll 4
        for (int v = 0; v < GROUP; v++) {
            int at = c + v * VL;
#pragma GCC unroll 4
            for (int i = 0; i < M; i++)
#pragma GCC unroll 4
                for (int j = 0; j < N; j++)
                    sum[i][j][v] = v_fma(v_load(x + i * ldx + at),
                                         v_load(y + j * ldy + at), sum[i][j][v]);
        }
#pragma GCC unroll 4
    for (int i = 0; i < M; i++)
#pragma GCC unroll 4
        for (int j = 0; j < N; j++) g[i * ldg + j] += v_sum16(sum[i][j]);
}

static void gram(int m, int n, int k, const float *x, int64_t ldx, const float *y,
                 int64_t ldy, float *g, int64_t ldg)
{
    int i = 0;
    for (; i + GRAM <= m; i += GRAM, x += GRAM * ldx, g += GRAM * ldg) {
        int j = 0;
        for (; j + GRAM <= n; j += GRAM)
            gram_part(GRAM, GRAM, k, x, ldx, y + j * ldy, ldy, g + j, ldg);
        for (; j < n; j++) gram_part(GRAM, 1, k, x, ldx, y + j * ldy, ldy, g + j, ldg);
    }
    for (; i < m; i++, x += ldx, g += ldg)
        for (int j = 0; j < n; j++)
            gram_part(1, 1, k, x, ldx, y + j * ldy, ldy, g + j, ldg);
}

static int near_row_max(int n, const float *s, float scale, float row_max, float *list)
{
    const vec times = v_set1(scale), high = v_set1(row_max), limit = v_set1(-1.0f);
    int count = 0;
    for (int c = 0; c < n; c += VL) {
        vec x = v_mul(v_sub(v_load(s + c), high), times);
        count += v_pack(list + count, x, v_lt(limit, x));
    }
    return count;
}

enum { ONE, TWO, ANY }; /* the power a */

/* u^a and u^(a-1) of u = 1 + t, both 0 where u <= 0. log2(u) is corrected for the
   rounding of 1 + t, which a large a would amplify. */
V void power(const int kind, vec t, vec a, vec a1, vec *p, vec *derivative)
{
    const vec zero = v_zero(), one = v_set1(1.0f);
    vec u = v_max(zero, v_add(one, t));
    vmask inside = v_lt(zero, u);
    if (kind == ONE) {
        *p = u, *derivative = v_select(inside, one, zero);
    } else if (kind == TWO) {
        *p = v_mul(u, u), *derivative = u;
    } else {
        vec lost = v_sub(t, v_sub(u, one));
        vec log = v_fma(lost, v_set1(0x1.715476p+0f), v_log2(u));
        *p = v_select(inside, v_exp2(v_mul(a, log)), u);
        *derivative = v_select(inside, v_exp2(v_mul(a1, log)), u);
    }
}

V void power_sums_of(const int kind, int n, const float *x, float d, float a, float *sums)
{
    const vec from = v_set1(d), high = v_set1(a), low = v_set1(a - 1.0f);
    vec total[2][GROUP];
    for (int v = 0; v < GROUP; v++) total[0][v] = total[1][v] = v_zero();
    for (int c = 0; c < n; c += PH_LANES)
        for (int v = 0; v < GROUP; v++) {
            vec p, derivative;
            power(kind, v_sub(v_load(x + c + v * VL), from), high, low, &p, &derivative);
            total[0][v] = v_add(total[0][v], p);
            total[1][v] = v_add(total[1][v], derivative);
        }
    sums[0] = v_sum16(total[0]), sums[1] = v_sum16(total[1]);
}

static void power_sums(int n, const float *x, float d, float a, float *sums)
{
    if (a == 1)
        power_sums_of(ONE, n, x, d, a, sums);
    else if (a == 2)
        power_sums_of(TWO, n, x, d, a, sums);
    else
        power_sums_of(ANY, n, x, d, a, sums);
}

V void entmax_of(const int kind, int n, float *s, float *derivative, float scale,
                 float base, float a)
{
    const vec times = v_set1(scale), from = v_set1(base), high = v_set1(a);
    const vec low = v_set1(a - 1.0f);
    for (int c = 0; c < n; c += VL) {
        vec p, d;
        power(kind, v_mul(v_sub(v_load(s + c), from), times), high, low, &p, &d);
        v_store(s + c, p);
        if (derivative) v_store(derivative + c, d);
    }
}

static void entmax(int n, float *s, float *derivative, float scale, float base, float a)
{
    if (a == 1)
        entmax_of(ONE, n, s, derivative, scale, base, a);
    else if (a == 2)
        entmax_of(TWO, n, s, derivative, scale, base, a);
    else
        entmax_of(ANY, n, s, derivative, scale, base, a);
}
