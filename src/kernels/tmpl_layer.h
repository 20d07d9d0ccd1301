/*
 * tmpl_layer.h - what the products of a layer need besides tmpl_gemm.h: packing of rows
 * that lie along a panel, and products of few rows that stream their right operand.
 */

/* One line of a panel of W floats from n >= 1 elements. A panel narrower than its vectors
   (MR = 12, VL = 16) is stored over its end: those lanes belong to the next line, which
   is written later; only the last line must stop (`last`). */
V void panel_line(const int W, float *dst, const void *src, int n, ph_dtype type,
                  const int last)
{
    UNROLL
    for (int v = 0; v < W; v += VL) {
        int inside = ph_min(VL, W - v), part = ph_max(0, ph_min(n - v, VL));
        vec x = part > 0 ? load_part(src, type, v, part) : v_zero();
        if (last && inside < VL)
            v_store_n(dst + v, x, inside);
        else
            v_store(dst + v, x);
    }
}

/* Rows are short, so the processor does not see what comes next; asked for in the second
   cache, more lines can be on their way than in the first. */
enum { PANEL_AHEAD = 8 };

V void pack_panels_of(const int W, float *dst, int64_t panel, const void *src,
                      int64_t stride, int k, int n, ph_dtype type)
{
    for (int kk = 0; kk < k; kk++) {
        const void *row = ph_at(src, type, kk * stride);
        float *to = dst + (int64_t)kk * W;
        for (int c = 0; c < n; c += W, to += panel) {
            const void *at = ph_at(row, type, c);
            /* full vectors may read columns of the next panel, never beyond n */
            int here = ph_round_up(W, VL);
            for (int f = 0; f < W; f += PH_LANES)
                __builtin_prefetch(ph_at(at, type, PANEL_AHEAD * stride + f), 0, 2);
            if (n - c < here) here = ph_min(n - c, W);
            if (kk < k - 1)
                panel_line(W, to, at, here, type, 0);
            else
                panel_line(W, to, at, here, type, 1);
        }
    }
}

static void pack_panels(float *dst, int width, int64_t panel, const void *src,
                        int64_t stride, int k, int n, ph_dtype type)
{
    if (width == NR && type == PH_F32)
        pack_panels_of(NR, dst, panel, src, stride, k, n, PH_F32);
    else if (width == NR)
        pack_panels_of(NR, dst, panel, src, stride, k, n, type);
    else if (type == PH_F32)
        pack_panels_of(MR, dst, panel, src, stride, k, n, PH_F32);
    else
        pack_panels_of(MR, dst, panel, src, stride, k, n, type);
}

static void add_rows(int m, int n, const float *x, float *y, int64_t ld)
{
    int c = 0;
    for (; c + VL <= n; c += VL) {
        vec add = v_load(x + c);
        for (int i = 0; i < m; i++)
            v_store(y + i * ld + c, v_add(v_load(y + i * ld + c), add));
    }
    if (c == n) return;
    vec add = v_load_n(x + c, n - c);
    for (int i = 0; i < m; i++)
        v_store_n(y + i * ld + c, v_add(v_load_n(y + i * ld + c, n - c), add), n - c);
}

/* ---- few rows ---- */

/* steps of k, rows held in registers, rows of b that are fetched before they are used */
enum { DEPTH = 4, FLOCK = VL == 16 ? 4 : 2, AHEAD = 2 * DEPTH };

/* c[i][j] += a[i][0..K) b[0..K)[j] for M rows: K*M factors stay in registers. fetch: 1
   for the first rows; the others find b in the cache and cover what is on its way. */
V void stream_rows(const int M, const int K, const int fetch, int n, const float *a,
                   int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc)
{
    vec left[FLOCK][DEPTH], right[DEPTH];
    int j = 0;
    UNROLL
    for (int i = 0; i < M; i++)
        UNROLL
        for (int q = 0; q < K; q++) left[i][q] = v_set1(a[i * lda + q]);
    for (; j + VL <= n; j += VL) {
        UNROLL
        for (int q = 0; q < K; q++) right[q] = v_load(b + q * ldb + j);
        UNROLL
        for (int q = 0; q < K && fetch; q++)
            __builtin_prefetch(b + (q + AHEAD) * ldb + j, 0, 3);
        UNROLL
        for (int i = 0; i < M; i++) {
            vec sum = v_load(c + i * ldc + j);
            UNROLL
            for (int q = 0; q < K; q++) sum = v_fma(left[i][q], right[q], sum);
            v_store(c + i * ldc + j, sum);
        }
    }
    if (j == n) return;
    UNROLL
    for (int q = 0; q < K; q++) right[q] = v_load_n(b + q * ldb + j, n - j);
    UNROLL
    for (int i = 0; i < M; i++) {
        vec sum = v_load_n(c + i * ldc + j, n - j);
        UNROLL
        for (int q = 0; q < K; q++) sum = v_fma(left[i][q], right[q], sum);
        v_store_n(c + i * ldc + j, sum, n - j);
    }
}

V void stream_step(const int K, int m, int n, const float *a, int64_t lda, const float *b,
                   int64_t ldb, float *c, int64_t ldc)
{
    int i = m < FLOCK ? 1 : FLOCK;
    if (m < FLOCK)
        stream_rows(1, K, 1, n, a, lda, b, ldb, c, ldc);
    else
        stream_rows(FLOCK, K, 1, n, a, lda, b, ldb, c, ldc);
    for (; i + FLOCK <= m; i += FLOCK)
        stream_rows(FLOCK, K, 0, n, a + i * lda, lda, b, ldb, c + i * ldc, ldc);
    for (; i < m; i++)
        stream_rows(1, K, 0, n, a + i * lda, lda, b, ldb, c + i * ldc, ldc);
}

static void stream(int m, int n, int k, const float *a, int64_t lda, const float *b,
                   int64_t ldb, float *c, int64_t ldc)
{
    int kk = 0;
    for (; kk + DEPTH <= k; kk += DEPTH)
        stream_step(DEPTH, m, n, a + kk, lda, b + kk * ldb, ldb, c, ldc);
    for (; kk < k; kk++) stream_step(1, m, n, a + kk, lda, b + kk * ldb, ldb, c, ldc);
}
