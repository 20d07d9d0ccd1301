/*
 * amx.c - products of bf16 tiles with AMX; the rest is AVX-512.
 *
 * Eight tile registers of 16 lines by 64 bytes:
 *
 *     0 1 2 3   sums, 16 x 16 in f32
 *     4 5       left operand, 16 rows x 32 numbers (weigh: a part of the weights)
 *     6 7       right operand, pairs of 32 numbers x 16 columns
 *
 * One instruction multiplies 16 x 32 by 32 x 16 in 16 cycles and has a latency of 52, so
 * four sums are in flight.
 */
#include "kernels/kernels.h"

#if defined(__x86_64__)
#include "kernels/vec_avx512.h"

#include "kernels/tmpl_math.h"
#include "kernels/tmpl_tops.h"

#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(                                                            \
    __attribute__((target("avx2,fma,f16c,avx512f,avx512dq,avx512bw,avx512vl,"            \
                          "avx512bf16,amx-tile,amx-bf16"))),                             \
    apply_to = function)
#else
#pragma GCC target("avx512bf16,amx-tile,amx-bf16")
#endif

/* What was written before is in memory: gcc does not know that tiles are read from it. */
#define WRITTEN() __asm__ volatile("" : : : "memory")

enum { TILE = PH_TILE * PH_STEP, LINE = 64 }; /* numbers of a tile; bytes of its lines */

/* What the hardware reads: one palette of eight tiles. */
typedef struct layout {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16]; /* of a line */
    uint8_t lines[16];
} layout;

static void begin(int rows)
{
    layout tiles = {.palette = 1};
    for (int t = 0; t < 8; t++) {
        tiles.bytes[t] = LINE;
        tiles.lines[t] = (uint8_t)(t < 6 ? rows : PH_TILE);
    }
    __asm__ volatile("" : : "r"(&tiles) : "memory"); /* see WRITTEN */
    _tile_loadconfig(&tiles);
}

static void end(void)
{
    _tile_release();
}

/* ---- packing ---- */

/* n <= 32 numbers of a row from `at` on, the rest 0 */
V __m512i numbers(const void *row, int at, int n)
{
    const uint16_t *p = (const uint16_t *)row + at;
    if (n >= PH_STEP) return _mm512_loadu_si512(p);
    return _mm512_maskz_loadu_epi16((1u << n) - 1, p);
}

static void pack_rows(uint16_t *dst, const void *const *rows, int count, int k)
{
    for (int at = 0; at < k; at += PH_STEP)
        for (int r = 0; r < PH_TILE; r++, dst += PH_STEP)
            _mm512_storeu_si512(dst, r < count ? numbers(rows[r], at, k - at)
                                               : _mm512_setzero_si512());
}

static void pack_across(uint16_t *dst, const void *const *rows, int count, int k,
                        int64_t ahead)
{
    for (int at = 0; at < k; at += PH_STEP, dst += TILE) {
        vec r[PH_TILE];
#pragma GCC unroll 16
        for (int i = 0; i < PH_TILE; i++) {
            r[i] = v_zero();
            if (i >= count) continue;
            __builtin_prefetch((const uint16_t *)rows[i] + at + ahead / 2, 0, 2);
            r[i] = v_float(numbers(rows[i], at, k - at));
        }
        v_transpose(r);
#pragma GCC unroll 16
        for (int i = 0; i < PH_TILE; i++) _mm512_storeu_ps(dst + i * PH_STEP, r[i]);
    }
}

/* 16 numbers of a row, or the n < 16 that are left, each in the low half of 32 bits */
V __m512i spread(const uint16_t *p, int n)
{
    __m256i x = n >= PH_TILE ? _mm256_loadu_si256((const __m256i *)p)
                             : _mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1), p);
    return _mm512_cvtepu16_epi32(x);
}

static int pack_along(uint16_t *dst, const void *const *rows, int count, int n,
                      int64_t ahead)
{
    const __m512i without_sign = _mm512_set1_epi16(0x7fff), one = _mm512_set1_epi16(1);
    __m512i largest = _mm512_setzero_si512(), least = _mm512_set1_epi16(-1);
    for (int i = 0; i < PH_TILE; i++, dst += PH_STEP) {
        const uint16_t *low = i < count ? rows[i] : NULL;
        const uint16_t *high = i + PH_TILE < count ? rows[i + PH_TILE] : NULL;
        uint16_t *to = dst;
        for (int c = 0; c < n; c += PH_TILE, to += TILE) {
            __m512i pair = _mm512_setzero_si512();
            if (low) pair = spread(low + c, n - c);
            if (high)
                pair =
                    _mm512_or_si512(pair, _mm512_slli_epi32(spread(high + c, n - c), 16));
            if (low) __builtin_prefetch(low + c + ahead / 2, 0, 2);
            if (high) __builtin_prefetch(high + c + ahead / 2, 0, 2);
            __m512i size = _mm512_and_si512(pair, without_sign);
            largest = _mm512_max_epu16(largest, size);
            least = _mm512_min_epu16(least, _mm512_sub_epi16(size, one)); /* but for 0 */
            _mm512_storeu_si512(to, pair);
        }
    }
    return !_mm512_cmpge_epu16_mask(largest, _mm512_set1_epi16(0x7f80)) &&
           !_mm512_cmplt_epu16_mask(least, _mm512_set1_epi16(0x7f));
}

/* ---- products ---- */

/* Sums of 16 rows against N panels of 16 columns, N <= 4. */
V void score_tiles(const int N, int k, const uint16_t *a, const uint16_t *b, float *s)
{
    const int64_t panel = (int64_t)k * PH_TILE, ld = PH_STRIP_LD * (int64_t)sizeof *s;
    _tile_zero(0);
    if (N > 1) _tile_zero(1);
    if (N > 2) _tile_zero(2);
    if (N > 3) _tile_zero(3);
    for (int kk = 0; kk < k; kk += PH_STEP, a += TILE, b += TILE) {
        _tile_loadd(4, a, LINE);
        _tile_loadd(6, b, LINE);
        _tile_dpbf16ps(0, 4, 6);
        if (N > 1) _tile_loadd(7, b + panel, LINE);
        if (N > 1) _tile_dpbf16ps(1, 4, 7);
        if (N > 2) _tile_loadd(6, b + 2 * panel, LINE);
        if (N > 2) _tile_dpbf16ps(2, 4, 6);
        if (N > 3) _tile_loadd(7, b + 3 * panel, LINE);
        if (N > 3) _tile_dpbf16ps(3, 4, 7);
    }
    _tile_stored(0, s, ld);
    if (N > 1) _tile_stored(1, s + PH_TILE, ld);
    if (N > 2) _tile_stored(2, s + 2 * PH_TILE, ld);
    if (N > 3) _tile_stored(3, s + 3 * PH_TILE, ld);
}

static void scores(int m, int n, int k, const uint16_t *a, const uint16_t *b, float scale,
                   float *s, float *peak)
{
    const vec factor = v_set1(scale);
    int j = 0;
    for (; j + 4 * PH_TILE <= n; j += 4 * PH_TILE)
        score_tiles(4, k, a, b + (int64_t)j * k, s + j);
    if (n - j == 3 * PH_TILE) score_tiles(3, k, a, b + (int64_t)j * k, s + j);
    if (n - j == 2 * PH_TILE) score_tiles(2, k, a, b + (int64_t)j * k, s + j);
    if (n - j == PH_TILE) score_tiles(1, k, a, b + (int64_t)j * k, s + j);
    for (int i = 0; i < m; i++, s += PH_STRIP_LD, peak += PH_LANES) {
        vec highest = v_load(peak);
        for (int c = 0; c < n; c += VL) {
            vec x = v_mul(v_load(s + c), factor);
            v_store(s + c, x);
            highest = v_max(highest, x);
        }
        v_store(peak, highest);
    }
}

/* ---- softmax ---- */

/* Upper halves of two vectors, those of `first` in the low ones. */
V __m512i upper_halves(vec first, vec second)
{
    const __m512i mask = _mm512_set1_epi32((int)0xffff0000u);
    __m512i low = _mm512_srli_epi32(v_bits(first), 16);
    return _mm512_ternarylogic_epi32(mask, v_bits(second), low, 0xea); /* and, or */
}

V vec without_upper_half(vec x)
{
    const vint mask = vi_set1(0xffff0000u);
    return v_sub(x, v_float(vi_and(v_bits(x), mask)));
}

/* 32 weights become a line in each of three tiles: 8 bits, the next 8, the rest. */
V void split(vec first, vec second, uint16_t *to)
{
    _mm512_storeu_si512(to, upper_halves(first, second));
    first = without_upper_half(first), second = without_upper_half(second);
    _mm512_storeu_si512(to + TILE, upper_halves(first, second));
    first = without_upper_half(first), second = without_upper_half(second);
    _mm512_storeu_si512(to + 2 * TILE, upper_halves(first, second));
}

V vec softmax_row(int n, const float *s, const float *drop, float base, vec total,
                  uint16_t *to)
{
    const vec from = v_set1(base);
    for (int c = 0; c < n; c += PH_STEP, to += PH_PARTS * TILE) {
        vec a = v_exp2(v_sub(v_load(s + c), from)), b = v_zero();
        total = v_add(total, a);
        if (c + VL < n) b = v_exp2(v_sub(v_load(s + c + VL), from));
        if (c + VL < n) total = v_add(total, b);
        if (drop) a = v_mul(a, v_load(drop + c));
        if (drop && c + VL < n) b = v_mul(b, v_load(drop + c + VL));
        split(a, b, to);
    }
    return total;
}

static void softmax(int m, int n, const float *s, const float *peak, float *top,
                    float *sum, float *alpha, const float *drop, uint16_t *parts)
{
    float base[PH_LANES];
    raise_tops(m, peak, top, alpha, base);
    for (int i = 0; i < m; i++, s += PH_STRIP_LD, sum += PH_LANES, parts += PH_STEP) {
        vec total = v_mul(v_load(sum), v_set1(alpha[i]));
        if (drop)
            total = softmax_row(n, s, drop + i * PH_STRIP_LD, base[i], total, parts);
        else
            total = softmax_row(n, s, NULL, base[i], total, parts);
        v_store(sum, total);
    }
}

/* ---- weighted sums ---- */

/* One step of the tiles of sums c and, if `both`, d, whose right operands are in 6 and 7.
   A part of the weights is loaded while the one before is in use. */
#define WEIGH(c, d, both, p)                                                             \
    do {                                                                                 \
        _tile_loadd(4, p, LINE);                                                         \
        _tile_dpbf16ps(c, 4, 6);                                                         \
        if (both) _tile_dpbf16ps(d, 4, 7);                                               \
        _tile_loadd(5, p + TILE, LINE);                                                  \
        _tile_dpbf16ps(c, 5, 6);                                                         \
        if (both) _tile_dpbf16ps(d, 5, 7);                                               \
        _tile_loadd(4, p + 2 * TILE, LINE);                                              \
        _tile_dpbf16ps(c, 4, 6);                                                         \
        if (both) _tile_dpbf16ps(d, 4, 7);                                               \
    } while (0)

/* N tiles of sums, N <= 4; b steps lie `step` numbers apart. */
V void weigh_tiles(const int N, int steps, const uint16_t *p, const uint16_t *b,
                   int64_t step, float *c, int64_t ldc, int fresh)
{
    const int64_t ld = ldc * (int64_t)sizeof *c;
    if (fresh) {
        _tile_zero(0);
        if (N > 1) _tile_zero(1);
        if (N > 2) _tile_zero(2);
        if (N > 3) _tile_zero(3);
    } else {
        _tile_loadd(0, c, ld);
        if (N > 1) _tile_loadd(1, c + PH_TILE, ld);
        if (N > 2) _tile_loadd(2, c + 2 * PH_TILE, ld);
        if (N > 3) _tile_loadd(3, c + 3 * PH_TILE, ld);
    }
    for (int i = 0; i < steps; i++, p += PH_PARTS * TILE, b += step) {
        _tile_loadd(6, b, LINE);
        if (N > 1) _tile_loadd(7, b + TILE, LINE);
        WEIGH(0, 1, N > 1, p);
        if (N <= 2) continue;
        _tile_loadd(6, b + 2 * TILE, LINE);
        if (N > 3) _tile_loadd(7, b + 3 * TILE, LINE);
        WEIGH(2, 3, N > 3, p);
    }
    _tile_stored(0, c, ld);
    if (N > 1) _tile_stored(1, c + PH_TILE, ld);
    if (N > 2) _tile_stored(2, c + 2 * PH_TILE, ld);
    if (N > 3) _tile_stored(3, c + 3 * PH_TILE, ld);
}

static void weigh(int m, int n, int steps, const uint16_t *parts, const uint16_t *b,
                  float *c, int64_t ldc, const float *alpha)
{
    const int64_t step = (int64_t)n * PH_STEP;
    for (int i = 0; alpha && i < m; i++)
        for (int j = 0; j < n; j += VL)
            v_store(c + i * ldc + j, v_mul(v_load(c + i * ldc + j), v_set1(alpha[i])));
    int j = 0, fresh = !alpha;
    WRITTEN();
    for (; j + 4 * PH_TILE <= n; j += 4 * PH_TILE)
        weigh_tiles(4, steps, parts, b + j * PH_STEP, step, c + j, ldc, fresh);
    b += j * PH_STEP, c += j;
    if (n - j == 3 * PH_TILE) weigh_tiles(3, steps, parts, b, step, c, ldc, fresh);
    if (n - j == 2 * PH_TILE) weigh_tiles(2, steps, parts, b, step, c, ldc, fresh);
    if (n - j == PH_TILE) weigh_tiles(1, steps, parts, b, step, c, ldc, fresh);
}

/* ---- products of parts ---- */

/* 16 numbers, or the n < 16 that are there, as floats */
V vec some(const void *from, ph_dtype type, int64_t at, int n)
{
    __mmask16 mask = n >= PH_TILE ? 0xffff : n <= 0 ? 0 : (__mmask16)((1u << n) - 1);
    if (type == PH_F32) return _mm512_maskz_loadu_ps(mask, (const float *)from + at);
    __m256i x = _mm256_maskz_loadu_epi16(mask, (const uint16_t *)from + at);
    return v_float(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

/* Where the numbers of a tile lie: lines and steps of k that are left. */
typedef struct source {
    const void *from;
    ph_dtype type;
    int64_t stride;
    int lines, k, along, whole; /* whole: there is no edge */
} source;

/* What becomes line i of a tile as it lies: numbers 0 to 15 and 16 to 31 of its pairs. */
V void line_of(const source *s, int i, vec *low, vec *high)
{
    int64_t at = i * s->stride, next = s->along ? PH_TILE : PH_TILE * s->stride;
    int n = PH_TILE, more = PH_TILE;
    if (!s->whole && s->along) n = i < s->lines ? s->k : 0, more = n - PH_TILE;
    if (!s->whole && !s->along)
        n = i < s->k ? s->lines : 0, more = i + PH_TILE < s->k ? s->lines : 0;
    *low = some(s->from, s->type, at, n);
    *high = some(s->from, s->type, at + next, more);
}

/* The nearest number with 8 bits, and in the lower half of its bits something. */
V vec nearest(vec x)
{
    return v_float(_mm512_add_epi32(v_bits(x), vi_set1(0x8000)));
}

/* x - nearest(x) */
V vec rest_of(vec x)
{
    return v_sub(x, v_float(vi_and(v_bits(nearest(x)), vi_set1(0xffff0000u))));
}

V void store_tile(uint16_t *dst, vec lines[PH_TILE], int turn)
{
    if (turn) v_transpose(lines);
#pragma GCC unroll 16
    for (int i = 0; i < PH_TILE; i++) _mm512_storeu_ps(dst + i * PH_STEP, lines[i]);
}

/* One tile of the first parts; returns 1 if that is all there is of them. */
V int first_parts(uint16_t *dst, const source *s, int turn)
{
    vec to[PH_TILE];
    __m512i bits = _mm512_setzero_si512();
#pragma GCC unroll 16
    for (int i = 0; i < PH_TILE; i++) {
        vec low, high;
        line_of(s, i, &low, &high);
        to[i] = v_float(upper_halves(nearest(low), nearest(high)));
        if (s->type == PH_F32)
            bits = _mm512_or_si512(bits, _mm512_or_si512(v_bits(low), v_bits(high)));
    }
    store_tile(dst, to, turn);
    return !_mm512_test_epi32_mask(bits, vi_set1(0xffff));
}

/* One tile of the second parts, and one of the third `part` numbers behind it. */
V void other_parts(uint16_t *dst, int64_t part, const source *s, int turn)
{
    vec second[PH_TILE], third[PH_TILE];
#pragma GCC unroll 16
    for (int i = 0; i < PH_TILE; i++) {
        vec low, high;
        line_of(s, i, &low, &high);
        low = rest_of(low), high = rest_of(high);
        second[i] = v_float(upper_halves(nearest(low), nearest(high)));
        third[i] = v_float(upper_halves(rest_of(low), rest_of(high)));
    }
    store_tile(dst, second, turn);
    store_tile(dst + part, third, turn);
}

/* One tile of the first parts or of the others; returns 0 if there are others. */
V int parts_of(const int others, uint16_t *dst, int64_t part, source s, int turn)
{
    int whole = s.lines >= PH_TILE && s.k >= PH_STEP;
    if (others && whole)
        s.whole = 1, other_parts(dst, part, &s, turn);
    else if (others)
        other_parts(dst, part, &s, turn);
    else if (whole)
        return s.whole = 1, first_parts(dst, &s, turn);
    else
        return first_parts(dst, &s, turn);
    return 0;
}

/* All tiles: of the first parts, then of the others where there are any. */
V int split_as(const ph_dtype type, const int along, const int turn, uint16_t *dst,
               const void *from, int64_t stride, int lines, int k)
{
    int64_t part = (int64_t)PH_WIDE * ph_round_up(k, PH_STEP);
    int all = 1;
    for (int others = 0; others <= !all; others++)
        for (int line = 0; line < PH_WIDE; line += PH_TILE)
            for (int kk = 0; kk < k; kk += PH_STEP, dst += TILE) {
                int64_t at = along ? line * stride + kk : kk * stride + line;
                source s = {.from = ph_at(from, type, at),
                            .type = type,
                            .stride = stride,
                            .lines = lines - line,
                            .k = k - kk,
                            .along = along};
                all &= parts_of(others, dst, part, s, turn);
            }
    return all ? 1 : PH_PARTS;
}

static int split_lines(uint16_t *dst, const void *from, ph_dtype type, int64_t stride,
                       int lines, int k, int along, int pairs)
{
    int turn = along == pairs;
#define SPLIT(t, a, u)                                                                   \
    if (type == (t) && along == (a) && turn == (u))                                      \
    return split_as(t, a, u, dst, from, stride, lines, k)
    SPLIT(PH_F32, 0, 0);
    SPLIT(PH_F32, 0, 1);
    SPLIT(PH_F32, 1, 0);
    SPLIT(PH_F32, 1, 1);
    SPLIT(PH_BF16, 0, 0);
    SPLIT(PH_BF16, 0, 1);
    SPLIT(PH_BF16, 1, 0);
#undef SPLIT
    return split_as(PH_BF16, 1, 1, dst, from, stride, lines, k);
}

/* Loads part p of one operand, both groups. */
#define LEFT(p)                                                                          \
    do {                                                                                 \
        _tile_loadd(4, a + (p)*part, LINE);                                              \
        if (two) _tile_loadd(5, a + (p)*part + group, LINE);                             \
    } while (0)
#define RIGHT(p)                                                                         \
    do {                                                                                 \
        _tile_loadd(6, b + (p)*part, LINE);                                              \
        _tile_loadd(7, b + (p)*part + group, LINE);                                      \
    } while (0)
#define MULTIPLY()                                                                       \
    do {                                                                                 \
        _tile_dpbf16ps(0, 4, 6);                                                         \
        _tile_dpbf16ps(1, 4, 7);                                                         \
        if (two) _tile_dpbf16ps(2, 5, 6);                                                \
        if (two) _tile_dpbf16ps(3, 5, 7);                                                \
    } while (0)

/* One step; LEFT(0) is loaded first or already there. */
#define STEP_OF_PARTS()                                                                  \
    do {                                                                                 \
        LEFT(0);                                                                         \
        if (b_parts > 1) {                                                               \
            RIGHT(2);                                                                    \
            MULTIPLY();                                                                  \
            RIGHT(1);                                                                    \
            MULTIPLY();                                                                  \
        }                                                                                \
        if (a_parts > 1) {                                                               \
            LEFT(1);                                                                     \
            if (b_parts > 1) MULTIPLY();                                                 \
            RIGHT(0);                                                                    \
            MULTIPLY();                                                                  \
            LEFT(2);                                                                     \
            MULTIPLY();                                                                  \
            LEFT(0);                                                                     \
        } else {                                                                         \
            RIGHT(0);                                                                    \
        }                                                                                \
        MULTIPLY();                                                                      \
    } while (0)

/* Two columns of tiles, and two rows of them or one. */
V void multiply_tiles(const int two, const int a_parts, const int b_parts, int steps,
                      const uint16_t *a, const uint16_t *b, float *c, int64_t ldc,
                      int add)
{
    const int64_t group = (int64_t)steps * TILE, part = 2 * group;
    const int64_t ld = ldc * (int64_t)sizeof *c;
    float *below = c + PH_TILE * ldc;
    if (add) {
        _tile_loadd(0, c, ld);
        _tile_loadd(1, c + PH_TILE, ld);
        if (two) _tile_loadd(2, below, ld);
        if (two) _tile_loadd(3, below + PH_TILE, ld);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        if (two) _tile_zero(2);
        if (two) _tile_zero(3);
    }
    for (int s = 0; s < steps; s++, a += TILE, b += TILE) STEP_OF_PARTS();
    _tile_stored(0, c, ld);
    _tile_stored(1, c + PH_TILE, ld);
    if (two) _tile_stored(2, below, ld);
    if (two) _tile_stored(3, below + PH_TILE, ld);
}

static void multiply(int m, int steps, const uint16_t *a, int a_parts, const uint16_t *b,
                     int b_parts, float *c, int64_t ldc, int add)
{
    WRITTEN();
#define MULTIPLY_AS(t, p, q)                                                             \
    if ((m > PH_TILE) == (t) && (a_parts > 1) == ((p) > 1) &&                            \
        (b_parts > 1) == ((q) > 1))                                                      \
    multiply_tiles(t, p, q, steps, a, b, c, ldc, add)
    MULTIPLY_AS(0, 1, 1);
    MULTIPLY_AS(0, 1, 3);
    MULTIPLY_AS(0, 3, 1);
    MULTIPLY_AS(0, 3, 3);
    MULTIPLY_AS(1, 1, 1);
    MULTIPLY_AS(1, 1, 3);
    MULTIPLY_AS(1, 3, 1);
    MULTIPLY_AS(1, 3, 3);
#undef MULTIPLY_AS
}

const ph_pairs ph_pairs_amx = {
    .begin = begin,
    .end = end,
    .pack_rows = pack_rows,
    .pack_across = pack_across,
    .pack_along = pack_along,
    .scores = scores,
    .softmax = softmax,
    .weigh = weigh,
    .split = split_lines,
    .multiply = multiply,
};

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
