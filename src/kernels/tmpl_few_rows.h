/*
 * tmpl_few_rows.h - products of few rows with a matrix read in place, written once in the
 * vector vocabulary: gemv and skinny gemm, bound by reading b in the type it is stored
 * in.
 *
 * Elements become f32 in registers. Both storage orders of b sum each c as one chain over
 * k, so they give the same bits: row-major b is read a line after the other, columns of
 * c in lanes; transposed b in squares of VL rows of b, which are transposed in registers.
 */

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
    DEEP = 64,
    WIDE_COLUMNS = 2 * NR
};

/* Rows up to which a stored type is converted in registers; more rows share a converted
   block of b in L1. */
enum { MAX_CONVERTED_ROWS = 2 };

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
    int wide = groups > 1 ? WIDE_COLUMNS : n, deep = groups > 1 ? DEEP : k;
    for (int j = 0; j < n; j += wide)
        for (int kk = 0; kk < k; kk += deep)
            for (int i = 0; i < m; i += part)
                few_rows_products[ph_min(part, m - i)](
                    ph_min(wide, n - j), ph_min(deep, k - kk), a + i * lda + kk, lda,
                    b + kk * ldb + j, ldb, c + i * ldc + j, ldc);
}

/* b is converted block by block into L1 */
static void few_rows_converted(int m, int n, int k, const float *a, int64_t lda,
                               const void *b, int64_t ldb, ph_dtype type, float *c,
                               int64_t ldc)
{
    _Alignas(PH_ALIGN) float block[DEEP * WIDE_COLUMNS];
    for (int j = 0; j < n; j += WIDE_COLUMNS)
        for (int kk = 0; kk < k; kk += DEEP) {
            int deep = ph_min(DEEP, k - kk), wide = ph_min(WIDE_COLUMNS, n - j);
            for (int i = 0; i < deep; i++)
                load_row(block + i * WIDE_COLUMNS, ph_at(b, type, (kk + i) * ldb + j),
                         wide, type, 1.0f);
            few_rows_f32(m, wide, deep, a + kk, lda, block, WIDE_COLUMNS, c + j, ldc);
        }
}

static void product_few_rows(int m, int n, int k, const float *a, int64_t lda,
                             const void *b, int64_t ldb, ph_dtype type, float *c,
                             int64_t ldc)
{
    if (type == PH_F32)
        few_rows_f32(m, n, k, a, lda, b, ldb, c, ldc);
    else if (m > MAX_CONVERTED_ROWS)
        few_rows_converted(m, n, k, a, lda, b, ldb, type, c, ldc);
    else if (m == 2)
        EACH_TYPE(type, few_rows_product(2, TYPE, n, k, a, lda, b, ldb, c, ldc))
    else
        EACH_TYPE(type, few_rows_product(1, TYPE, n, k, a, lda, b, ldb, c, ldc))
}

/* ---- transposed b ---- */

enum { SUMS = NR / VL }; /* vectors of sums of one row */

/* M rows against up to NR of n rows of b, ldb bytes apart; beyond n the last one is
   repeated. Meanwhile the next NR rows are brought into cache. */
V void few_rows_t_tile(const int M, const ph_dtype type, int n, int k, const float *a,
                       int64_t lda, const char *b, int64_t ldb, float *c, int64_t ldc)
{
    const int bytes = (int)ph_offset(type, k);
    const int step = ph_div_up(NR, ph_max(ph_div_up(k, SQUARE(type)), 1));
    const char *rows[NR];
    vec sums[FEW_ROWS * SUMS];
    int at = 0, touched = NR;
    for (int i = 0; i < NR; i++) rows[i] = b + ph_min(i, n - 1) * ldb;
    UNROLL
    for (int i = 0; i < M; i++) UNROLL
    for (int g = 0; g < SUMS; g++)
        sums[i * SUMS + g] =
            load_part(c + i * ldc, PH_F32, g * VL, ph_max(0, ph_min(n - g * VL, VL)));
    for (; at + SQUARE(type) <= k; at += SQUARE(type), touched += step) {
        bring_rows(1, b, ldb, bytes, touched, ph_min(touched + step, n));
        UNROLL
        for (int g = 0; g < SUMS; g++)
            add_square(M, type, rows + g * VL, at, SQUARE(type), a, lda, sums + g, SUMS);
    }
    if (at < k) UNROLL
    for (int g = 0; g < SUMS; g++)
        add_square(M, type, rows + g * VL, at, k - at, a, lda, sums + g, SUMS);
    UNROLL
    for (int i = 0; i < M; i++) UNROLL
    for (int g = 0; g < SUMS; g++)
        store_part(c + i * ldc, PH_F32, g * VL, ph_max(0, ph_min(n - g * VL, VL)),
                   sums[i * SUMS + g]);
}

typedef void few_rows_t_fn(int n, int k, const float *a, int64_t lda, const char *b,
                           int64_t ldb, float *c, int64_t ldc);
#define FEW_ROWS_T_OF(M, type)                                                           \
    static void few_rows_t_##M##_##type(int n, int k, const float *a, int64_t lda,       \
                                        const char *b, int64_t ldb, float *c,            \
                                        int64_t ldc)                                     \
    {                                                                                    \
        few_rows_t_tile(M, type, n, k, a, lda, b, ldb, c, ldc);                          \
    }
#define FEW_ROWS_T_HALVES(M)                                                             \
    FEW_ROWS_T_OF(M, PH_F32) FEW_ROWS_T_OF(M, PH_F16) FEW_ROWS_T_OF(M, PH_BF16)
#define FEW_ROWS_T_BLOCKS(M)                                                             \
    FEW_ROWS_T_OF(M, PH_Q8_0) FEW_ROWS_T_OF(M, PH_Q4_0) FEW_ROWS_T_OF(M, PH_Q4_1)
#define FEW_ROWS_T_ENTRY(M)                                                              \
    {few_rows_t_##M##_PH_F32, few_rows_t_##M##_PH_F16, few_rows_t_##M##_PH_BF16},
EACH_FEW_ROWS(FEW_ROWS_T_HALVES)
FEW_ROWS_T_BLOCKS(1)
FEW_ROWS_T_BLOCKS(2)
static few_rows_t_fn *const few_rows_t_tiles[FEW_ROWS + 1][3] = {
    {0}, EACH_FEW_ROWS(FEW_ROWS_T_ENTRY)};
static few_rows_t_fn *const few_rows_t_blocks[MAX_CONVERTED_ROWS + 1][3] = {
    {0},
    {few_rows_t_1_PH_Q8_0, few_rows_t_1_PH_Q4_0, few_rows_t_1_PH_Q4_1},
    {few_rows_t_2_PH_Q8_0, few_rows_t_2_PH_Q4_0, few_rows_t_2_PH_Q4_1}};

static void product_few_rows_t(int m, int n, int k, const float *a, int64_t lda,
                               const void *b, int64_t ldb, ph_dtype type, float *c,
                               int64_t ldc)
{
    const int64_t line = ph_offset(type, ldb);
    const int blocks = ph_dtype_is_block(type), most = blocks ? MAX_CONVERTED_ROWS : m;
    bring_rows(1, b, line, (int)ph_offset(type, k), 0, ph_min(n, NR));
    for (int j = 0; j < n; j += NR)
        for (int i = 0; i < m; i += most) {
            int rows = ph_min(most, m - i);
            few_rows_t_fn *f = blocks ? few_rows_t_blocks[rows][type - PH_Q8_0]
                                      : few_rows_t_tiles[rows][type];
            f(n - j, k, a + i * lda, lda, (const char *)b + j * line, line,
              c + i * ldc + j, ldc);
        }
}
