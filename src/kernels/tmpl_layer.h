/*
 * tmpl_layer.h - what the products of a layer need besides tmpl_gemm.h: packing of
 * row-major matrices into panels, and products of few rows.
 */

/* One line of a panel of W floats from n >= 1 elements. If the panel is narrower than a
   vector (MR = 12, VL = 16) the store runs into the next line, which is written later;
   only the last line must stop at its end (`last`). */
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

/* Rows are too short for the hardware prefetchers. Prefetched into L2, more lines can be
   in flight than into L1. */
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

/* Prefetch distances in rows of b: into L2, where more lines can be in flight, and again
   into L1. A single row is memory-bound whatever it does; several rows compute long
   enough to find b in L1. */
enum { PREFETCH_L2 = 32, PREFETCH_L1 = 8 };

/* Most rows whose sums fit into registers: at all, and for tiles of 2 * NR columns. More
   rows are cut into groups that share b through cache, DEEP steps at a time. */
enum {
    MAX_ROWS = VL == 8 ? 3 : MR,
    MAX_WIDE_ROWS = VL == 16  ? 4
                    : VL == 8 ? 3
                              : 2,
    DEEP = 64
};

/* c[i][j] += sum_k a[i][k] b[k][j] for M rows and NV vectors of columns, all sums in
   registers; part > 0: one vector of so many columns. */
V void few_rows_tile(const int M, const int NV, const int part, int k, const float *a,
                     int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc)
{
    vec acc[MR][2 * NR / VL], right[2 * NR / VL];
    const float *rows[MR / 3]; /* three rows share a register */
    UNROLL
    for (int g = 0; g < MR / 3; g++) rows[g] = a + 3 * g * lda;
    UNROLL
    for (int i = 0; i < M; i++) UNROLL
    for (int v = 0; v < NV; v++)
        acc[i][v] = part ? v_load_n(c + i * ldc, part) : v_load(c + i * ldc + v * VL);
    for (int kk = 0; kk < k; kk++, b += ldb) {
        UNROLL
        for (int j = 0; j < NV * VL; j += PH_LANES) {
            __builtin_prefetch(b + PREFETCH_L2 * ldb + j, 0, 2);
            if (M > 1) __builtin_prefetch(b + PREFETCH_L1 * ldb + j, 0, 3);
        }
        UNROLL
        for (int v = 0; v < NV; v++)
            right[v] = part ? v_load_n(b, part) : v_load(b + v * VL);
        UNROLL
        for (int i = 0; i < M; i++) {
            vec left = v_set1(rows[i / 3][i % 3 * lda + kk]);
            UNROLL
            for (int v = 0; v < NV; v++) acc[i][v] = v_fma(left, right[v], acc[i][v]);
        }
    }
    UNROLL
    for (int i = 0; i < M; i++) UNROLL
    for (int v = 0; v < NV; v++) {
        if (part)
            v_store_n(c + i * ldc, acc[i][v], part);
        else
            v_store(c + i * ldc + v * VL, acc[i][v]);
    }
}

V void few_rows_product(const int M, int n, int k, const float *a, int64_t lda,
                        const float *b, int64_t ldb, float *c, int64_t ldc)
{
    int j = 0;
    for (; M <= MAX_WIDE_ROWS && j + 2 * NR <= n; j += 2 * NR)
        few_rows_tile(M, 2 * NR / VL, 0, k, a, lda, b + j, ldb, c + j, ldc);
    for (; j + NR <= n; j += NR)
        few_rows_tile(M, NR / VL, 0, k, a, lda, b + j, ldb, c + j, ldc);
    for (; j + VL <= n; j += VL)
        few_rows_tile(M, 1, 0, k, a, lda, b + j, ldb, c + j, ldc);
    if (j < n) few_rows_tile(M, 1, n - j, k, a, lda, b + j, ldb, c + j, ldc);
}

typedef void few_rows_fn(int n, int k, const float *a, int64_t lda, const float *b,
                         int64_t ldb, float *c, int64_t ldc);
#define FEW_ROWS_OF(M)                                                                   \
    static void few_rows_##M(int n, int k, const float *a, int64_t lda, const float *b,  \
                             int64_t ldb, float *c, int64_t ldc)                         \
    {                                                                                    \
        few_rows_product(M, n, k, a, lda, b, ldb, c, ldc);                               \
    }
#define FEW_ROWS_ENTRY(M) few_rows_##M,
EACH_ROW(FEW_ROWS_OF)
static few_rows_fn *const few_rows_products[MR + 1] = {0, EACH_ROW(FEW_ROWS_ENTRY)};

static void product_few_rows(int m, int n, int k, const float *a, int64_t lda,
                             const float *b, int64_t ldb, float *c, int64_t ldc)
{
    int groups = ph_max(ph_div_up(m, MAX_ROWS), 1), part = ph_div_up(m, groups);
    int wide = groups > 1 ? 2 * NR : n, deep = groups > 1 ? DEEP : k;
    for (int j = 0; j < n; j += wide)
        for (int kk = 0; kk < k; kk += deep)
            for (int i = 0; i < m; i += part)
                few_rows_products[ph_min(part, m - i)](
                    ph_min(wide, n - j), ph_min(deep, k - kk), a + i * lda + kk, lda,
                    b + kk * ldb + j, ldb, c + i * ldc + j, ldc);
}
