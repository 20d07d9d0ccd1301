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

/* Which part of the rows of b that come next has been prefetched. */
typedef struct rows_ahead {
    const char *at, *end; /* of the current row */
    int64_t ld;
    int bytes, rows; /* of a row; rows left */
} rows_ahead;

enum { FIRST_LINES = 256 }; /* prefetched before the first rows */

/* Prefetches the next `lines` cache lines, in memory order, into L2. Squares read 16 rows
   a line at a time, an order that hardware prefetchers do not follow; rows are long, so
   there is time. */
V void prefetch_ahead(rows_ahead *a, int lines)
{
    for (int i = 0; i < lines && a->rows > 0; i++) {
        __builtin_prefetch(a->at, 0, 2);
        a->at += LINE;
        if (a->at < a->end) continue;
        a->end += a->ld, a->at = a->end - a->bytes;
        a->rows--;
    }
}

/* `count` rows of b from b on; none is valid memory for prefetches only. */
V rows_ahead rows_from(const char *b, int64_t ld, int bytes, int count)
{
    return (rows_ahead){b, b + bytes, ld, bytes, bytes ? count : 0};
}

/* M rows against up to 16 of n rows of b, ldb bytes apart; beyond n the last one is
   repeated. Meanwhile the next 16 rows are prefetched. */
V void few_rows_t_tile(const int M, const ph_dtype type, int n, int k, const float *a,
                       int64_t lda, const char *b, int64_t ldb, float *c, int64_t ldc)
{
    const int lines = PH_LANES * ph_div_up(SQUARE(type) * (int)ph_dtype_size(type), LINE);
    rows_ahead ahead = rows_from(b + PH_LANES * ldb, ldb, (int)ph_offset(type, k),
                                 ph_min(n - PH_LANES, PH_LANES));
    const char *rows[PH_LANES];
    vec sums[FEW_ROWS * GROUP];
    int at = 0;
    for (int i = 0; i < PH_LANES; i++) rows[i] = b + ph_min(i, n - 1) * ldb;
    UNROLL
    for (int i = 0; i < M; i++) UNROLL
    for (int g = 0; g < GROUP; g++)
        sums[i * GROUP + g] = load_part(c + i * ldc, PH_F32, g * VL,
                                        ph_max(0, ph_min(n - g * VL, VL)));
    for (; at + SQUARE(type) <= k; at += SQUARE(type)) {
        prefetch_ahead(&ahead, lines);
        UNROLL
        for (int g = 0; g < GROUP; g++)
            add_square(M, type, rows + g * VL, at, SQUARE(type), a, lda, sums + g, GROUP);
    }
    if (at < k) UNROLL
    for (int g = 0; g < GROUP; g++)
        add_square(M, type, rows + g * VL, at, k - at, a, lda, sums + g, GROUP);
    UNROLL
    for (int i = 0; i < M; i++) UNROLL
    for (int g = 0; g < GROUP; g++)
        store_part(c + i * ldc, PH_F32, g * VL, ph_max(0, ph_min(n - g * VL, VL)),
                   sums[i * GROUP + g]);
}

/* ---- transposed b in blocks ---- */

/* Elements are unpacked in lanes, a lane for each row of b: the bytes of VL rows are
   transposed as 32-bit words, which hold 4 or 8 elements of a row each. Two or more
   groups of VL rows run side by side to hide the latency of the chains. */
enum {
    ROWS_T = 32,
    GROUPS_T = ROWS_T / VL,
    CHUNK_T = 8,      /* blocks of a row staged at a time */
    BYTES_T = 4 * VL, /* bytes of a row that are transposed at a time */
};

/* Blocks of ROWS_T rows, their scales and minima apart from the bytes of elements. */
typedef struct staged_blocks {
    _Alignas(PH_ALIGN) uint8_t bytes[ROWS_T][CHUNK_T * PH_QUANT_BLOCK];
    uint16_t scale[CHUNK_T][ROWS_T], least[CHUNK_T][ROWS_T];
} staged_blocks;

/* Bytes of the elements of a block. */
#define PACKED_BYTES(type) ((type) == PH_Q8_0 ? PH_QUANT_BLOCK : PH_QUANT_BLOCK / 2)

V void stage_blocks(const ph_dtype type, const char *const *rows, int first, int count,
                    staged_blocks *to)
{
    const int size = (int)ph_offset(type, PH_QUANT_BLOCK), bytes = PACKED_BYTES(type);
    for (int i = 0; i < ROWS_T; i++)
        for (int q = 0; q < count; q++) {
            const char *block = rows[i] + (first + q) * size;
            memcpy(&to->scale[q][i], block, 2);
            if (type == PH_Q4_1) memcpy(&to->least[q][i], block + 2, 2);
            memcpy(to->bytes[i] + q * bytes, block + size - bytes, (size_t)bytes);
        }
}

/* The element at bit p of each word: its bits below the exponent of 2^23 make a float,
   exactly. scale is that of the block divided by 2^p. */
V vec unpack(const ph_dtype type, const int p, vint words, vec scale, vec least)
{
    const uint32_t mask = type == PH_Q8_0 ? 0xff : 0xf;
    const uint32_t sign = type == PH_Q8_0 ? 0x80 : 0; /* int8: 128 more, as unsigned */
    const float zero = type == PH_Q8_0 ? 128 : type == PH_Q4_0 ? 8 : 0;
    const vint bits =
        vi_and_xor(words, vi_set1(mask << p), vi_set1(0x4b000000u | sign << p));
    const vec n = v_sub(v_float(bits), v_set1(0x1p23f + zero * (float)(1 << p)));
    return type == PH_Q4_1 ? v_fma(n, scale, least) : v_mul(n, scale);
}

/* Four elements of consecutive k, `high`: the upper nibbles of four bytes. */
V void add_word(const int M, const ph_dtype type, const int high, vint words,
                const vec scale[4], vec least, const float *a, int64_t lda, vec *sums)
{
    const int p = high ? 4 : 0;
    const vint upper = vi_srl(words, 16);
    const vec right[4] = {unpack(type, p, words, scale[p / 4], least),
                          unpack(type, p + 8, words, scale[p / 4 + 2], least),
                          unpack(type, p, upper, scale[p / 4], least),
                          unpack(type, p + 8, upper, scale[p / 4 + 2], least)};
    UNROLL
    for (int e = 0; e < 4; e++) UNROLL
    for (int i = 0; i < M; i++)
        sums[i * GROUPS_T] = v_fma(v_set1(a[i * lda + e]), right[e], sums[i * GROUPS_T]);
}

/* `count` words of every row, elements [0, 4 * count) of a block from a on. */
V void add_words(const int M, const ph_dtype type, const int high, const int count,
                 const vec words[][GROUPS_T], const uint16_t *scales,
                 const uint16_t *leasts, const float *a, int64_t lda, vec *sums)
{
    vec scale[GROUPS_T][4], least[GROUPS_T];
    UNROLL
    for (int g = 0; g < GROUPS_T; g++) {
        const vec s = v_load_f16(scales + g * VL);
        UNROLL
        for (int p = 0; p < 4; p++)
            scale[g][p] = v_mul(s, v_set1(1.0f / (float)(1 << 4 * p)));
        least[g] = type == PH_Q4_1 ? v_load_f16(leasts + g * VL) : v_zero();
    }
    UNROLL
    for (int e = 0; e < count; e++) UNROLL
    for (int g = 0; g < GROUPS_T; g++)
        add_word(M, type, high, v_bits(words[e][g]), scale[g], least[g], a + 4 * e, lda,
                 sums + g);
}

/* Adds `count` staged blocks, from a[0] on. */
V void add_blocks(const int M, const ph_dtype type, const staged_blocks *from, int count,
                  const float *a, int64_t lda, vec *sums)
{
    const int bytes = PACKED_BYTES(type), part = ph_min(BYTES_T, bytes);
    vec words[VL][GROUPS_T];
    for (int at = 0; at < count * bytes; at += BYTES_T) {
        UNROLL
        for (int g = 0; g < GROUPS_T; g++) {
            vec r[VL];
            UNROLL
            for (int i = 0; i < VL; i++) {
                const void *bytes_of_row = from->bytes[g * VL + i] + at;
                r[i] = v_load(bytes_of_row);
            }
            v_transpose(r);
            UNROLL
            for (int i = 0; i < VL; i++) words[i][g] = r[i];
        }
        UNROLL
        for (int u = 0; u < BYTES_T / part; u++) {
            const int q = (at + u * part) / bytes, in = (at + u * part) % bytes;
            const float *left = a + q * PH_QUANT_BLOCK + in;
            if (q >= count) return;
            add_words(M, type, 0, part / 4, words + u * part / 4, from->scale[q],
                      from->least[q], left, lda, sums);
            if (type == PH_Q8_0) continue;
            add_words(M, type, 1, part / 4, words + u * part / 4, from->scale[q],
                      from->least[q], left + bytes, lda, sums);
        }
    }
}

/* M rows against up to ROWS_T of n rows of b; beyond n the last one is repeated. */
V void few_rows_t_blocks(const int M, const ph_dtype type, int n, int k, const float *a,
                         int64_t lda, const char *b, int64_t ldb, float *c, int64_t ldc)
{
    const int size = (int)ph_offset(type, PH_QUANT_BLOCK), all = k / PH_QUANT_BLOCK;
    const int lines = ph_div_up(ROWS_T * CHUNK_T * size, LINE);
    rows_ahead ahead = rows_from(b + ROWS_T * ldb, ldb, (int)ph_offset(type, k),
                                 ph_min(n - ROWS_T, ROWS_T));
    const char *rows[ROWS_T];
    staged_blocks staged;
    vec sums[MAX_CONVERTED_ROWS * GROUPS_T];
    for (int i = 0; i < ROWS_T; i++) rows[i] = b + ph_min(i, n - 1) * ldb;
    UNROLL
    for (int i = 0; i < M; i++) UNROLL
    for (int g = 0; g < GROUPS_T; g++)
        sums[i * GROUPS_T + g] = load_part(c + i * ldc, PH_F32, g * VL,
                                           ph_max(0, ph_min(n - g * VL, VL)));
    for (int q = 0; q < all; q += CHUNK_T) {
        int count = ph_min(CHUNK_T, all - q);
        stage_blocks(type, rows, q, count, &staged);
        prefetch_ahead(&ahead, lines);
        add_blocks(M, type, &staged, count, a + q * PH_QUANT_BLOCK, lda, sums);
    }
    UNROLL
    for (int i = 0; i < M; i++) UNROLL
    for (int g = 0; g < GROUPS_T; g++)
        store_part(c + i * ldc, PH_F32, g * VL, ph_max(0, ph_min(n - g * VL, VL)),
                   sums[i * GROUPS_T + g]);
}

typedef void few_rows_t_fn(int n, int k, const float *a, int64_t lda, const char *b,
                           int64_t ldb, float *c, int64_t ldc);
#define FEW_ROWS_T_OF(M, type)                                                           \
    static void few_rows_t_##M##_##type(int n, int k, const float *a, int64_t lda,       \
                                        const char *b, int64_t ldb, float *c,            \
                                        int64_t ldc)                                     \
    {                                                                                    \
        (ph_dtype_is_block(type) ? few_rows_t_blocks                                     \
                                 : few_rows_t_tile)(M, type, n, k, a, lda, b, ldb, c,    \
                                                    ldc);                                \
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
static few_rows_t_fn *const few_rows_t_blocks_of[MAX_CONVERTED_ROWS + 1][3] = {
    {0},
    {few_rows_t_1_PH_Q8_0, few_rows_t_1_PH_Q4_0, few_rows_t_1_PH_Q4_1},
    {few_rows_t_2_PH_Q8_0, few_rows_t_2_PH_Q4_0, few_rows_t_2_PH_Q4_1}};

static void product_few_rows_t(int m, int n, int k, const float *a, int64_t lda,
                               const void *b, int64_t ldb, ph_dtype type, float *c,
                               int64_t ldc)
{
    const int64_t line = ph_offset(type, ldb);
    const int blocks = ph_dtype_is_block(type), step = blocks ? ROWS_T : PH_LANES;
    const int most = blocks ? MAX_CONVERTED_ROWS : m;
    rows_ahead first = rows_from(b, line, (int)ph_offset(type, k), ph_min(n, step));
    prefetch_ahead(&first, FIRST_LINES);
    for (int j = 0; j < n; j += step)
        for (int i = 0; i < m; i += most) {
            int rows = ph_min(most, m - i);
            few_rows_t_fn *f = blocks ? few_rows_t_blocks_of[rows][type - PH_Q8_0]
                                      : few_rows_t_tiles[rows][type];
            f(n - j, k, a + i * lda, lda, (const char *)b + j * line, line,
              c + i * ldc + j, ldc);
        }
}
