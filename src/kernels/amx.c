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

enum { TURNS = 6 };
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

/* ---- weights, and what they weigh ---- */

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

/* Rows [from, to) of one step, columns from c on: weights into parts and sums. */
V void soften(const ph_strip *x, const float *base, const int dropped, int c, int from,
              int to, uint16_t *parts)
{
    const int both = c + VL < x->n;
    for (int i = from; i < to; i++) {
        const float *s = x->s + i * PH_STRIP_LD + c;
        const float *drop = dropped ? x->drop + i * PH_STRIP_LD + c : NULL;
        const vec top = v_set1(base[i]);
        vec a = v_exp2(v_sub(v_load(s), top)), b = v_zero();
        vec total = v_add(v_load(x->sum + i * PH_LANES), a);
        if (both) b = v_exp2(v_sub(v_load(s + VL), top));
        if (both) total = v_add(total, b);
        v_store(x->sum + i * PH_LANES, total);
        if (dropped) a = v_mul(a, v_load(drop));
        if (dropped && both) b = v_mul(b, v_load(drop + VL));
        split(a, b, parts + i * PH_STEP);
    }
}

/* A part of the weights in tile t against the values in 6 and 7. */
#define WEIGH(c, d, both, t, part)                                                       \
    do {                                                                                 \
        _tile_loadd(t, part, LINE);                                                      \
        _tile_dpbf16ps(c, t, 6);                                                         \
        if (both) _tile_dpbf16ps(d, t, 7);                                               \
    } while (0)

/* One of TURNS turns: a part of one step's weights against two tiles of values. */
V void weigh_turn(const int turn, int N, const uint16_t *parts, const uint16_t *v)
{
    if (turn >= 3 && N <= 2) return;
    if (turn == 0) _tile_loadd(6, v, LINE);
    if (turn == 0 && N > 1) _tile_loadd(7, v + TILE, LINE);
    if (turn == 3) _tile_loadd(6, v + 2 * TILE, LINE);
    if (turn == 3 && N > 3) _tile_loadd(7, v + 3 * TILE, LINE);
    if (turn == 0) WEIGH(0, 1, N > 1, 4, parts);
    if (turn == 1) WEIGH(0, 1, N > 1, 5, parts + TILE);
    if (turn == 2) WEIGH(0, 1, N > 1, 4, parts + 2 * TILE);
    if (turn == 3) WEIGH(2, 3, N > 3, 5, parts);
    if (turn == 4) WEIGH(2, 3, N > 3, 4, parts + TILE);
    if (turn == 5) WEIGH(2, 3, N > 3, 5, parts + 2 * TILE);
}

V void start_sums(const ph_strip *x, int N, float *c)
{
    const int64_t ld = x->ldc * (int64_t)sizeof *c;
    if (x->fresh) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        return;
    }
    _tile_loadd(0, c, ld);
    if (N > 1) _tile_loadd(1, c + PH_TILE, ld);
    if (N > 2) _tile_loadd(2, c + 2 * PH_TILE, ld);
    if (N > 3) _tile_loadd(3, c + 3 * PH_TILE, ld);
}

V void store_sums(const ph_strip *x, int N, float *c)
{
    const int64_t ld = x->ldc * (int64_t)sizeof *c;
    _tile_stored(0, c, ld);
    if (N > 1) _tile_stored(1, c + PH_TILE, ld);
    if (N > 2) _tile_stored(2, c + 2 * PH_TILE, ld);
    if (N > 3) _tile_stored(3, c + 3 * PH_TILE, ld);
}

/* Weights of each step; meanwhile the tiles weigh with those of the step before, for up
   to four tiles of sums. Between two turns on the same sums lie rows enough to hide the
   latency. */
V void attend_steps(const ph_strip *x, const float *base, const int m, const int dropped)
{
    const int N = ph_min(x->width / PH_TILE, 4),
              ring = x->width <= 4 * PH_TILE && !x->keep;
    const int64_t values = (int64_t)x->width * PH_STEP;
    const uint16_t *last = NULL, *v = x->v;
    start_sums(x, N, x->c);
    for (int c = 0; c < x->n; c += PH_STEP) {
        int at = ring ? c / PH_STEP % 2 : c / PH_STEP;
        uint16_t *parts = x->parts + at * (PH_PARTS * TILE);
#pragma GCC unroll 6
        for (int turn = 0; turn < TURNS; turn++) {
            soften(x, base, dropped, c, m * turn / TURNS, m * (turn + 1) / TURNS, parts);
            if (last) weigh_turn(turn, N, last, v);
        }
        if (last) v += values;
        last = parts;
        WRITTEN();
    }
#pragma GCC unroll 6
    for (int turn = 0; turn < TURNS; turn++) weigh_turn(turn, N, last, v);
    store_sums(x, N, x->c);
}

/* Four tiles of sums from column j on, from parts that are kept. */
static void weigh_columns(const ph_strip *x, int j)
{
    const int N = ph_min((x->width - j) / PH_TILE, 4);
    start_sums(x, N, x->c + j);
    for (int s = 0; s * PH_STEP < x->n; s++)
#pragma GCC unroll 6
        for (int turn = 0; turn < TURNS; turn++)
            weigh_turn(turn, N, x->parts + s * (PH_PARTS * TILE),
                       x->v + ((int64_t)s * x->width + j) * PH_STEP);
    store_sums(x, N, x->c + j);
}

static void attend(const ph_strip *x)
{
    float base[PH_LANES];
    raise_tops(x->m, x->peak, x->top, x->alpha, base);
    for (int i = 0; i < x->m; i++) {
        const vec alpha = v_set1(x->alpha[i]);
        float *c = x->c + i * x->ldc, *sum = x->sum + i * PH_LANES;
        v_store(sum, v_mul(v_load(sum), alpha));
        for (int j = 0; j < x->width && !x->fresh; j += VL)
            v_store(c + j, v_mul(v_load(c + j), alpha));
    }
    WRITTEN();
    if (x->drop)
        attend_steps(x, base, x->m, 1);
    else if (x->m == PH_TILE)
        attend_steps(x, base, PH_TILE, 0);
    else
        attend_steps(x, base, x->m, 0);
    for (int j = 4 * PH_TILE; j < x->width; j += 4 * PH_TILE) weigh_columns(x, j);
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
    .attend = attend,
    .split = split_lines,
    .multiply = multiply,
};

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
