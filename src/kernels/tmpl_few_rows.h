/*
 * tmpl_few_rows.h - products of few rows with a matrix read in place (in, out), written
 * once in the vector vocabulary: gemv and skinny gemm, bound by reading b in the type it
 * is stored in. tmpl_few_rows_t.h has those with (out, in).
 *
 * Elements become f32 in registers. Both storage orders of b sum each c as one chain over
 * k, with columns of c in lanes, so they give the same bits.
 */

/* Prefetch distances in rows of b: into L2, where more lines can be in flight, and again
   into L1. A single row is memory-bound whatever it does; several rows compute long
   enough to find b in L1. */
enum { PREFETCH_L2 = 32, PREFETCH_L1 = 8 };

/* Most rows whose sums fit into registers: at all, and for tiles of 2 * NR columns. More
   rows are cut into groups that share b through cache, DEEP steps at a time. A slab is
   SHALLOW rows of b: few streams, which hardware prefetchers follow. */
enum {
    MAX_ROWS = VL == 8 ? 3 : MR,
    MAX_WIDE_ROWS = VL == 16  ? 4
                    : VL == 8 ? 3
                              : 2,
    SHALLOW = 8,
    DEEP = 64,
    WIDE_COLUMNS = 2 * NR
};

/* Rows up to which a stored type is converted in registers; more rows share a converted
   block of b in L1. */
enum { MAX_CONVERTED_ROWS = VL == 16 ? 4 : 2 };

/* c[i][j] += sum_k a[i][k] b[k][j] for M rows and NV vectors of columns from `at` on, all
   sums in registers; part > 0: one vector of so many columns. */
V void few_rows_tile(const int M, const int NV, const int part, const ph_dtype type,
                     int k, const float *a, int64_t lda, const char *b, int64_t ldb,
                     int at, float *c, int64_t ldc)
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
        for (int f = 0; f < ph_offset(type, NV * VL); f += LINE) {
            const char *line = b + ph_offset(type, at) + f;
            __builtin_prefetch(line + PREFETCH_L2 * ldb, 0, 2);
            if (M > 1) __builtin_prefetch(line + PREFETCH_L1 * ldb, 0, 3);
        }
        UNROLL
        for (int v = 0; v < NV; v++)
            right[v] = load_part(b, type, at + v * VL, part ? part : VL);
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

V void few_rows_product(const int M, const ph_dtype type, int n, int k, const float *a,
                        int64_t lda, const void *b, int64_t ldb, float *c, int64_t ldc)
{
    const int64_t line = ph_offset(type, ldb);
    int j = 0;
    for (; M <= MAX_WIDE_ROWS && j + 2 * NR <= n; j += 2 * NR)
        few_rows_tile(M, 2 * NR / VL, 0, type, k, a, lda, b, line, j, c + j, ldc);
    for (; j + NR <= n; j += NR)
        few_rows_tile(M, NR / VL, 0, type, k, a, lda, b, line, j, c + j, ldc);
    if (ph_dtype_is_block(type)) return;
    for (; j + VL <= n; j += VL)
        few_rows_tile(M, 1, 0, type, k, a, lda, b, line, j, c + j, ldc);
    if (j < n) few_rows_tile(M, 1, n - j, type, k, a, lda, b, line, j, c + j, ldc);
}

typedef void few_rows_fn(int n, int k, const float *a, int64_t lda, const void *b,
                         int64_t ldb, float *c, int64_t ldc);
#define FEW_ROWS_OF(M)                                                                   \
    static void few_rows_##M(int n, int k, const float *a, int64_t lda, const void *b,   \
                             int64_t ldb, float *c, int64_t ldc)                         \
    {                                                                                    \
        few_rows_product(M, PH_F32, n, k, a, lda, b, ldb, c, ldc);                       \
    }
#define FEW_ROWS_ENTRY(M) few_rows_##M,
EACH_ROW(FEW_ROWS_OF)
static few_rows_fn *const few_rows_products[MR + 1] = {0, EACH_ROW(FEW_ROWS_ENTRY)};

/* b is f32 */
static void few_rows_f32(int m, int n, int k, const float *a, int64_t lda, const float *b,
                         int64_t ldb, float *c, int64_t ldc)
{
    int groups = ph_max(ph_div_up(m, MAX_ROWS), 1), part = ph_div_up(m, groups);
    int wide = groups > 1 ? WIDE_COLUMNS : n;
    for (int j = 0; j < n; j += wide)
        for (int i = 0; i < m; i += part)
            few_rows_products[ph_min(part, m - i)](ph_min(wide, n - j), k, a + i * lda,
                                                   lda, b + j, ldb, c + i * ldc + j, ldc);
}

/* b is converted, a few of its columns at a time, into L1; K types always: a vector of
   them takes as long as several rows to multiply */
static void few_rows_converted(int m, int n, int k, const float *a, int64_t lda,
                               const void *b, int64_t ldb, ph_dtype type, float *c,
                               int64_t ldc)
{
    _Alignas(PH_ALIGN) float block[DEEP * WIDE_COLUMNS];
    for (int j = 0; j < n; j += WIDE_COLUMNS) {
        int wide = ph_min(WIDE_COLUMNS, n - j);
        for (int i = 0; i < k; i++)
            load_row(block + i * WIDE_COLUMNS, b, i * ldb + j, wide, type, 1.0f);
        few_rows_f32(m, wide, k, a, lda, block, WIDE_COLUMNS, c + j, ldc);
    }
}

/* At most DEEP rows of b, or any number of f32. */
static void few_rows_slab(int m, int n, int k, const float *a, int64_t lda, const void *b,
                          int64_t ldb, ph_dtype type, float *c, int64_t ldc)
{
    if (type == PH_F32)
        few_rows_f32(m, n, k, a, lda, b, ldb, c, ldc);
    else if (m > MAX_CONVERTED_ROWS || ph_dtype_is_k(type))
        few_rows_converted(m, n, k, a, lda, b, ldb, type, c, ldc);
    else if (m == 1)
        EACH_SMALL_TYPE(type, few_rows_product(1, TYPE, n, k, a, lda, b, ldb, c, ldc))
    else if (m == 2)
        EACH_SMALL_TYPE(type, few_rows_product(2, TYPE, n, k, a, lda, b, ldb, c, ldc))
    else if (m == 3)
        EACH_SMALL_TYPE(type, few_rows_product(3, TYPE, n, k, a, lda, b, ldb, c, ldc))
    else
        EACH_SMALL_TYPE(type, few_rows_product(4, TYPE, n, k, a, lda, b, ldb, c, ldc))
}

/* Where reading b takes the time it is read along its rows, slab by slab: in tiles that
   go down all of k each access would be another page. More rows compute: their sums stay
   in registers, or c of some columns in L1. */
static void product_few_rows(int m, int n, int k, const float *a, int64_t lda,
                             const void *b, int64_t ldb, ph_dtype type, float *c,
                             int64_t ldc)
{
    enum { PAGE = 4096 };
    const int slabs = type == PH_F32 ? m == 1 && ph_offset(type, ldb) >= PAGE
                                     : m <= MAX_CONVERTED_ROWS && !ph_dtype_is_k(type);
    const int wide = slabs ? n : ph_max(WIDE_COLUMNS, ph_quant_block(type));
    const int deep = slabs ? SHALLOW : type != PH_F32 || m > MAX_ROWS ? DEEP : k;
    for (int j = 0; j < n; j += wide)
        for (int kk = 0; kk < k; kk += deep)
            few_rows_slab(m, ph_min(wide, n - j), ph_min(deep, k - kk), a + kk, lda,
                          ph_at(b, type, kk * ldb + j), ldb, type, c + j, ldc);
}
