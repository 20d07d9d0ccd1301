/*
 * tmpl_few_rows_t.h - products of few rows with a transposed matrix read in place (out,
 * in), written once in the vector vocabulary; tmpl_few_rows.h has those with (in, out).
 *
 * Each c is one chain over k, so lanes must be rows of b, and b is transposed in
 * registers: f32, f16 and bf16 as squares, blocks as words of 32 bits that hold 4 or 8
 * elements, which become floats in lanes.
 */

/* Blocks run in two vectors of rows side by side: one chain would wait for its own
   latency. Squares of f32 leave no registers for that. */
enum { T_GROUPS = 2, T_ROWS = T_GROUPS * VL };

/* Which part of the rows of b that come next has been prefetched. */
typedef struct rows_ahead {
    const char *at, *end; /* of the current row */
    int64_t ld;
    int bytes, rows; /* of a row; rows left */
} rows_ahead;

/* Prefetches the next `lines` cache lines, in memory order, into L2. Tiles read several
   rows side by side, an order that hardware prefetchers do not follow. */
V void prefetch_ahead(rows_ahead *a, const int lines)
{
    if (a->end - a->at >= lines * LINE) {
        UNROLL
        for (int i = 0; i < lines; i++) __builtin_prefetch(a->at + i * LINE, 0, 2);
        a->at += lines * LINE;
        return;
    }
    for (int i = 0; i < lines && a->rows > 0; i++) {
        __builtin_prefetch(a->at, 0, 2);
        a->at += LINE;
        if (a->at < a->end) continue;
        a->end += a->ld, a->at = a->end - a->bytes;
        a->rows--;
    }
}

/* `count` rows of b from b on, contiguous ones as one row; none is valid memory for
   prefetches only. */
V rows_ahead rows_from(const char *b, int64_t ld, int bytes, int count)
{
    if (ld == bytes && count > 0) bytes *= count, count = 1;
    return (rows_ahead){b, b + bytes, ld, bytes, bytes ? count : 0};
}

enum { FIRST_LINES = 256 }; /* prefetched before the first rows */

/* A tile: rows of b, k elements each, of which the first n exist. Rows of squares have
   pointers, and those behind repeat the last one; rows of blocks all exist, `ld` bytes
   apart. Meanwhile the rows of the next tile are prefetched. */
typedef struct row_tile {
    const char *rows[PH_NR_MAX];
    int64_t ld;
    int k, n;
    rows_ahead next;
} row_tile;

/* Sums of M rows of c and G vectors of columns. */
V void load_sums(const int M, const int G, const float *c, int64_t ldc, int n, vec *sums)
{
    UNROLL
    for (int i = 0; i < M; i++) UNROLL
    for (int g = 0; g < G; g++)
        sums[i * G + g] =
            load_part(c + i * ldc, PH_F32, g * VL, ph_max(0, ph_min(n - g * VL, VL)));
}

V void store_sums(const int M, const int G, const vec *sums, int n, float *c, int64_t ldc)
{
    UNROLL
    for (int i = 0; i < M; i++) UNROLL
    for (int g = 0; g < G; g++)
        store_part(c + i * ldc, PH_F32, g * VL, ph_max(0, ph_min(n - g * VL, VL)),
                   sums[i * G + g]);
}

/* ---- squares ---- */

V void few_rows_t_squares(const int M, const ph_dtype type, row_tile *b, const float *a,
                          int64_t lda, float *c, int64_t ldc)
{
    const int lines = PH_LANES * ph_div_up(SQUARE(type) * (int)ph_dtype_size(type), LINE);
    rows_ahead further = b->next;
    vec sums[FEW_ROWS * GROUP];
    int at = 0;
    load_sums(M, GROUP, c, ldc, b->n, sums);
    for (; at + SQUARE(type) <= b->k; at += SQUARE(type)) {
        prefetch_ahead(&further, lines);
        UNROLL
        for (int g = 0; g < GROUP; g++)
            add_square(M, type, b->rows + g * VL, at, SQUARE(type), a, lda, sums + g,
                       GROUP);
    }
    if (at < b->k) UNROLL
    for (int g = 0; g < GROUP; g++)
        add_square(M, type, b->rows + g * VL, at, b->k - at, a, lda, sums + g, GROUP);
    store_sums(M, GROUP, sums, b->n, c, ldc);
    b->next = further;
}

/* ---- blocks ---- */

/* Rows of a tile by few registers, as addressing modes add them up: every eighth row, and
   1, 3, 5 and 7 rows. */
typedef struct block_rows {
    const char *eighth[T_ROWS / 8];
    int64_t ld1, ld3, ld5, ld7;
} block_rows;

V block_rows rows_of_tile(const row_tile *b)
{
    block_rows r = {.ld1 = b->ld, .ld3 = 3 * b->ld, .ld5 = 5 * b->ld, .ld7 = 7 * b->ld};
    for (int i = 0; i < T_ROWS / 8; i++) r.eighth[i] = b->rows[0] + 8 * i * b->ld;
    return r;
}

V const char *row_at(const block_rows *r, const int i)
{
    const char *p = r->eighth[i / 8];
    const int odd = i % 8;
    return odd == 7   ? p + r->ld7
           : odd == 6 ? p + 2 * r->ld3
           : odd == 5 ? p + r->ld5
           : odd == 3 ? p + r->ld3
                      : p + odd * r->ld1;
}

V void next_block(block_rows *r, int64_t bytes)
{
    UNROLL
    for (int i = 0; i < T_ROWS / 8; i++) r->eighth[i] += bytes;
}

/* Scales and minima of a block of all rows. */
typedef struct block_halves {
    uint16_t scale[T_ROWS], least[T_ROWS];
} block_halves;

/* The same as floats; scale[g][p] is divided by 2^4p; by 2^24 in Q8_0 and, as that of a
   sub-block, in Q4_K and Q5_K; by 2^26 in Q6_K. */
typedef struct block_scales {
    vec scale[T_GROUPS][4], least[T_GROUPS];
} block_scales;

/* volatile: through memory, which costs the vector units nothing; compilers would insert
   halves into vectors one by one. */
V void stage_half(volatile uint16_t *to, const char *from)
{
    uint16_t half;
    memcpy(&half, from, sizeof half);
    *to = half;
}

/* `count` rows from `first` on. */
V void stage_halves(const ph_dtype type, const block_rows *rows, const int first,
                    const int count, block_halves *to)
{
    UNROLL
    for (int i = first; i < first + count; i++) {
        const int with_least = type == PH_Q4_1 || type == PH_Q4_K || type == PH_Q5_K;
        stage_half(&to->scale[i], row_at(rows, i) + ph_k_scale_at(type));
        if (with_least) stage_half(&to->least[i], row_at(rows, i) + 2);
    }
}

V block_scales load_scales(const ph_dtype type, const block_halves *from)
{
    block_scales s;
    UNROLL
    for (int g = 0; g < T_GROUPS; g++) {
        const vec scale = v_load_f16(from->scale + g * VL);
        UNROLL
        for (int p = 0; p < 4; p++)
            s.scale[g][p] = v_mul(
                scale, v_set1(type == PH_Q8_0 ? 0x1p-24f : 1.0f / (float)(1 << 4 * p)));
        s.least[g] = type == PH_Q4_1 ? v_load_f16(from->least + g * VL) : v_zero();
    }
    return s;
}

/* The nibble at bit p of each word of a block: its bits below the exponent of 2^23 make a
   float, exactly. scale is that of the block divided by 2^p. */
V vec unpack_nibble(const ph_dtype type, const int p, vint words, vec scale, vec least)
{
    const float zero = type == PH_Q4_0 ? 8 : 0;
    const vint bits = vi_and_xor(words, vi_set1(0xfu << p), vi_set1(0x4b000000u));
    const vec n = v_sub(v_float(bits), v_set1(0x1p23f + zero * (float)(1 << p)));
    return type == PH_Q4_1 ? v_fma(n, scale, least) : v_mul(n, scale);
}

/* Element e of four in each word; `high`: the upper nibbles of four bytes. An int8 in the
   top byte is 2^24 times itself. */
V vec unpack(const ph_dtype type, const int e, const int high, vint words,
             const block_scales *s, const int g)
{
    if (type == PH_Q8_0 || ph_dtype_is_k(type)) {
        const vec n = v_from_int(vi_top_byte(words, e));
        if (type == PH_Q4_K || type == PH_Q5_K)
            return v_fma(n, s->scale[g][0], s->least[g]);
        return v_mul(n, s->scale[g][0]);
    }
    const int p = 8 * (e % 2) + 4 * high;
    const vint half = e < 2 ? words : vi_srl(words, 16);
    return unpack_nibble(type, p, half, s->scale[g][p / 4], s->least[g]);
}

/* Word w of the rows of group g. */
typedef vint row_words[4][T_GROUPS];

V void load_words(const block_rows *rows, const int at, const int w, row_words to)
{
    UNROLL
    for (int g = 0; g < T_GROUPS; g++) {
        const char *quad[VL / 4];
        UNROLL
        for (int i = 0; i < VL / 4; i++) quad[i] = row_at(rows, g * VL + w + 4 * i) + at;
        to[w][g] = vi_load_quads(quad);
    }
}

V void transpose_words(row_words words)
{
    UNROLL
    for (int g = 0; g < T_GROUPS; g++) {
        vint r[4] = {words[0][g], words[1][g], words[2][g], words[3][g]};
        vi_transpose_quads(r);
        UNROLL
        for (int w = 0; w < 4; w++) words[w][g] = r[w];
    }
}

/* Four elements of a word of each row, consecutive in k, times those of a from `at` on;
   `high`: the upper nibbles of four bytes. a: the same for each group. */
V void add_word(const int M, const ph_dtype type, const int high, const vint *words,
                const block_scales *s, const float *const *a, int at, int64_t lda,
                vec *sums)
{
    UNROLL
    for (int e = 0; e < 4; e++) UNROLL
    for (int g = 0; g < T_GROUPS; g++) {
        const vec right = unpack(type, e, high, words[g], s, g);
        UNROLL
        for (int i = 0; i < M; i++)
            sums[i * T_GROUPS + g] =
                v_fma(v_set1(a[g][i * lda + at + e]), right, sums[i * T_GROUPS + g]);
    }
}

/* 16 bytes of each row at a time. What the next 16 bytes need is loaded between the
   chains of these; behind them it would find the scheduler full. */
V void few_rows_t_blocks(const int M, const ph_dtype type, row_tile *b, const float *a,
                         int64_t lda, float *c, int64_t ldc)
{
    const int size = (int)ph_offset(type, PH_QUANT_BLOCK);
    const int units = type == PH_Q8_0 ? 2 : 1, passes = 3 - units;
    const int first = size - 16 * units, part = T_ROWS / (4 * passes);
    const int lines = ph_div_up(T_ROWS * size, LINE), all = b->k / PH_QUANT_BLOCK;
    /* The compiler must not see that both are a: an operand that each multiply-add
       broadcasts from memory is free, one in a register takes an instruction. */
    const float *volatile hidden = a;
    const float *const left[T_GROUPS] = {a, hidden};
    block_rows rows = rows_of_tile(b);
    rows_ahead further = b->next;
    block_halves halves[2];
    row_words words, next;
    vec sums[4 * T_GROUPS];
    load_sums(M, T_GROUPS, c, ldc, b->n, sums);
    UNROLL
    for (int i = 0; i < T_ROWS; i += 8) stage_halves(type, &rows, i, 8, &halves[0]);
    UNROLL
    for (int w = 0; w < 4; w++) load_words(&rows, first, w, words);
    transpose_words(words);
    for (int q = 0; q < all; q++) {
        const block_scales s = load_scales(type, &halves[q % 2]);
        prefetch_ahead(&further, lines);
        UNROLL
        for (int u = 0; u < units; u++) {
            const int last = u + 1 == units, at = first + (last ? 0 : 16);
            if (last && q + 1 < all) next_block(&rows, size);
            UNROLL
            for (int h = 0; h < passes; h++) UNROLL
            for (int w = 0; w < 4; w++) {
                const int e = q * PH_QUANT_BLOCK + ((u * passes + h) * 4 + w) * 4;
                if (last)
                    stage_halves(type, &rows, (h * 4 + w) * part, part,
                                 &halves[(q + 1) % 2]);
                if (h == 0) load_words(&rows, at, w, next);
                add_word(M, type, h, words[w], &s, left, e, lda, sums);
            }
            transpose_words(next);
            memcpy(words, next, sizeof words);
        }
    }
    store_sums(M, T_GROUPS, sums, b->n, c, ldc);
    b->next = further;
}

/* ---- K types ---- */

/* A block of each row, transposed: word i of the rows of group g. Of Q6_K the scale is
   missing, which ends the block. */
enum { K_WORDS = PH_Q6_K_BYTES / 16 * 4, K_PARTS = PH_K_BLOCK / PH_QUANT_BLOCK };
typedef struct k_words {
    vint word[K_WORDS][T_GROUPS];
    block_halves halves;
} k_words;

/* Of sub-blocks: a scale for every 32 elements, or 16, and a minimum, negative. */
typedef struct k_scales {
    vec scale[2 * K_PARTS][T_GROUPS], least[K_PARTS][T_GROUPS];
} k_scales;

/* Part u of eight of a block. */
V void load_k_part(const ph_dtype type, const block_rows *rows, int u, k_words *to)
{
    for (int q = u; q < ph_quant_bytes(type) / 16; q += K_PARTS) {
        UNROLL
        for (int w = 0; w < 4; w++) load_words(rows, 16 * q, w, to->word + 4 * q);
        transpose_words(to->word + 4 * q);
    }
    if (u > 0) return;
    UNROLL
    for (int i = 0; i < T_ROWS; i += 8) stage_halves(type, rows, i, 8, &to->halves);
}

/* Six bits of number u of eight; ph_k_steps has them of one row. Words 1 to 3 of a block
   are its bytes 4 to 15. */
V vint six_bits(const vint (*word)[T_GROUPS], const int g, const int u, const int minimum)
{
    const vint first = word[1 + minimum][g], last = word[3][g];
    if (u < 4) return vi_and(vi_srl_by(first, 8 * u), vi_set1(63));
    const vint low = vi_and(vi_srl_by(last, 8 * (u - 4) + 4 * minimum), vi_set1(15));
    return vi_and_xor(vi_srl_by(first, 8 * (u - 4) + 2), vi_set1(0x30), low);
}

V void load_k_scales(const ph_dtype type, const k_words *from, k_scales *to)
{
    UNROLL
    for (int g = 0; g < T_GROUPS; g++) {
        const vec s = v_load_f16(from->halves.scale + g * VL);
        if (type == PH_Q6_K) { /* a is 2^24 times itself */
            const vec unit = v_mul(s, v_set1(0x1p-50f));
            UNROLL
            for (int i = 0; i < 2 * K_PARTS; i++) {
                const vint a = from->word[PH_Q6_K_SCALES / 4 + i / 4][g];
                to->scale[i][g] = v_mul(v_from_int(vi_top_byte(a, i % 4)), unit);
            }
            continue;
        }
        const vec unit = v_mul(s, v_set1(0x1p-24f));
        const vec m = v_mul(v_load_f16(from->halves.least + g * VL), v_set1(-1));
        UNROLL
        for (int u = 0; u < K_PARTS; u++) {
            to->scale[u][g] = v_mul(v_from_int(six_bits(from->word, g, u, 0)), unit);
            to->least[u][g] = v_mul(v_from_int(six_bits(from->word, g, u, 1)), m);
        }
    }
}

/* Word w of a sub-block as four bytes: n, or 4 (n - 32) in Q6_K, which is an int8. */
V vint k_bytes(const ph_dtype type, const k_words *from, const ph_k_bits *at, const int w,
               const int g)
{
    const vint nibbles = vi_srl_by(from->word[at->nibble / 4 + w][g], at->shift);
    const vint low = vi_and(nibbles, vi_set1(0x0f0f0f0f));
    if (type == PH_Q4_K) return low;
    const vint high = vi_srl_by(from->word[at->high / 4 + w][g], at->high_shift);
    const uint32_t mask = type == PH_Q5_K ? 0x10101010 : 0x30303030;
    const vint n = vi_and_xor(vi_sll(high, 4), vi_set1(mask), low);
    return type == PH_Q5_K ? n : vi_xor(vi_sll(n, 2), vi_set1(0x80808080u));
}

/* Sub-block u, whose first element is that of a at `at`. */
V void add_k_part(const int M, const ph_dtype type, int u, const k_words *from,
                  const k_scales *scales, const float *const *a, int at, int64_t lda,
                  vec *sums)
{
    const ph_k_bits bits = ph_k_bits_of(type, u);
    UNROLL
    for (int w = 0; w < 8; w++) {
        const int i = type == PH_Q6_K ? 2 * u + w / 4 : u;
        vint bytes[T_GROUPS];
        block_scales s;
        UNROLL
        for (int g = 0; g < T_GROUPS; g++) {
            bytes[g] = k_bytes(type, from, &bits, w, g);
            s.scale[g][0] = scales->scale[i][g];
            s.least[g] = type == PH_Q6_K ? v_zero() : scales->least[u][g];
        }
        add_word(M, type, 0, bytes, &s, a, at + 4 * w, lda, sums);
    }
}

/* A block of each row at a time; the next one is transposed between the sub-blocks of
   this. */
V void few_rows_t_k(const int M, const ph_dtype type, row_tile *b, const float *a,
                    int64_t lda, float *c, int64_t ldc)
{
    const int size = ph_quant_bytes(type), all = b->k / PH_K_BLOCK;
    const int lines = ph_div_up(T_ROWS * size, LINE * K_PARTS);
    const float *volatile hidden = a; /* as in few_rows_t_blocks */
    const float *const left[T_GROUPS] = {a, hidden};
    block_rows rows = rows_of_tile(b);
    rows_ahead further = b->next;
    k_words words[2];
    k_scales scales;
    vec sums[4 * T_GROUPS];
    load_sums(M, T_GROUPS, c, ldc, b->n, sums);
    for (int u = 0; u < K_PARTS; u++) load_k_part(type, &rows, u, &words[0]);
    for (int q = 0; q < all; q++) {
        load_k_scales(type, &words[q % 2], &scales);
        if (q + 1 < all) next_block(&rows, size);
        for (int u = 0; u < K_PARTS; u++) {
            prefetch_ahead(&further, lines);
            if (q + 1 < all) load_k_part(type, &rows, u, &words[(q + 1) % 2]);
            add_k_part(M, type, u, &words[q % 2], &scales, left,
                       q * PH_K_BLOCK + u * PH_QUANT_BLOCK, lda, sums);
        }
    }
    store_sums(M, T_GROUPS, sums, b->n, c, ldc);
    b->next = further;
}

/* ---- all ---- */

typedef void few_rows_t_fn(row_tile *b, const float *a, int64_t lda, float *c,
                           int64_t ldc);
#define FEW_ROWS_T_OF(M, type, tile)                                                     \
    static void few_rows_t_##M##_##type(row_tile *b, const float *a, int64_t lda,        \
                                        float *c, int64_t ldc)                           \
    {                                                                                    \
        tile(M, type, b, a, lda, c, ldc);                                                \
    }
#define FEW_ROWS_T_SQUARES(M)                                                            \
    FEW_ROWS_T_OF(M, PH_F32, few_rows_t_squares)                                         \
    FEW_ROWS_T_OF(M, PH_F16, few_rows_t_squares)                                         \
    FEW_ROWS_T_OF(M, PH_BF16, few_rows_t_squares)
#define FEW_ROWS_T_BLOCKS(M)                                                             \
    FEW_ROWS_T_OF(M, PH_Q8_0, few_rows_t_blocks)                                         \
    FEW_ROWS_T_OF(M, PH_Q4_0, few_rows_t_blocks)                                         \
    FEW_ROWS_T_OF(M, PH_Q4_1, few_rows_t_blocks)                                         \
    FEW_ROWS_T_OF(M, PH_Q4_K, few_rows_t_k)                                              \
    FEW_ROWS_T_OF(M, PH_Q5_K, few_rows_t_k)                                              \
    FEW_ROWS_T_OF(M, PH_Q6_K, few_rows_t_k)
#define FEW_ROWS_T_ENTRY(M)                                                              \
    {few_rows_t_##M##_PH_F32, few_rows_t_##M##_PH_F16, few_rows_t_##M##_PH_BF16},
#define FEW_ROWS_T_BLOCK_ENTRY(M)                                                        \
    {                                                                                    \
        few_rows_t_##M##_PH_Q8_0, few_rows_t_##M##_PH_Q4_0, few_rows_t_##M##_PH_Q4_1,    \
            few_rows_t_##M##_PH_Q4_K, few_rows_t_##M##_PH_Q5_K, few_rows_t_##M##_PH_Q6_K \
    }
EACH_FEW_ROWS(FEW_ROWS_T_SQUARES)
FEW_ROWS_T_BLOCKS(1)
FEW_ROWS_T_BLOCKS(2)
FEW_ROWS_T_BLOCKS(4)
static few_rows_t_fn *const few_rows_t_squares_of[FEW_ROWS + 1][3] = {
    {0}, EACH_FEW_ROWS(FEW_ROWS_T_ENTRY)};
static few_rows_t_fn *const few_rows_t_blocks_of[5][6] = {[1] = FEW_ROWS_T_BLOCK_ENTRY(1),
                                                          [2] = FEW_ROWS_T_BLOCK_ENTRY(2),
                                                          [4] =
                                                              FEW_ROWS_T_BLOCK_ENTRY(4)};

/* m rows against a tile of blocks: 4, 2 or 1 at a time. */
static void few_rows_t_full_tile(int m, ph_dtype type, row_tile *b, const float *a,
                                 int64_t lda, float *c, int64_t ldc)
{
    for (int i = 0, part; i < m; i += part) {
        part = m - i >= 4 ? 4 : m - i >= 2 ? 2 : 1;
        few_rows_t_blocks_of[part][type - PH_Q8_0](b, a + i * lda, lda, c + i * ldc, ldc);
    }
}

enum { EDGE_BYTES = 8 * PH_Q8_0_BYTES }; /* of a row that are copied at once */

/* A tile with fewer rows: their blocks are copied, a few along k at a time, and those
   behind them are zeros. */
static void few_rows_t_edge_tile(int m, ph_dtype type, row_tile *b, const float *a,
                                 int64_t lda, float *c, int64_t ldc)
{
    const int most = EDGE_BYTES / ph_quant_bytes(type) * ph_quant_block(type);
    char copy[T_ROWS * EDGE_BYTES] = {0};
    for (int kk = 0, len; kk < b->k; kk += len) {
        len = ph_min(b->k - kk, most);
        const int64_t bytes = ph_offset(type, len);
        row_tile tile = {.rows = {copy}, .ld = bytes, .k = len, .n = b->n};
        for (int i = 0; i < b->n; i++)
            memcpy(copy + i * bytes, b->rows[0] + i * b->ld + ph_offset(type, kk),
                   (size_t)bytes);
        few_rows_t_full_tile(m, type, &tile, a + kk, lda, c, ldc);
    }
}

static void product_few_rows_t(int m, int n, int k, const float *a, int64_t lda,
                               const void *b, int64_t ldb, ph_dtype type, float *c,
                               int64_t ldc)
{
    const int64_t ld = ph_offset(type, ldb);
    const int bytes = (int)ph_offset(type, k), blocks = ph_dtype_is_block(type);
    const int step = blocks ? T_ROWS : PH_LANES;
    const char *rows = b;
    rows_ahead first = rows_from(rows, ld, bytes, ph_min(n, step));
    prefetch_ahead(&first, FIRST_LINES);
    if (k == 0) return;
    for (int j = 0; j < n; j += step, rows += step * ld) {
        row_tile tile = {.ld = ld, .k = k, .n = n - j};
        tile.next = rows_from(rows + step * ld, ld, bytes, ph_min(tile.n - step, step));
        for (int i = 0; i < step; i++) tile.rows[i] = rows + ph_min(i, tile.n - 1) * ld;
        if (!blocks)
            few_rows_t_squares_of[m][type](&tile, a, lda, c + j, ldc);
        else
            (tile.n < T_ROWS ? few_rows_t_edge_tile : few_rows_t_full_tile)(
                m, type, &tile, a, lda, c + j, ldc);
    }
}
