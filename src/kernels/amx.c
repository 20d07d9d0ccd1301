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

const ph_pairs ph_pairs_amx = {
    .begin = begin,
    .end = end,
    .pack_rows = pack_rows,
    .pack_across = pack_across,
    .pack_along = pack_along,
    .scores = scores,
    .softmax = softmax,
    .weigh = weigh,
};

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
