/*
 * amx_bf16x3.c - the bf16x3 split of f32 matrices, and their products with AMX.
 */
#include "kernels/kernels.h"

#if defined(__x86_64__)
#include "kernels/amx_tiles.h"

/* ---- the split ---- */

/* n elements, at most 16 of them, as floats; the rest 0 */
V vec load_some(const void *from, ph_dtype type, int64_t at, int n)
{
    __mmask16 mask = n >= PH_AMX_TILE ? 0xffff : n <= 0 ? 0 : (__mmask16)((1u << n) - 1);
    if (type == PH_F32) return _mm512_maskz_loadu_ps(mask, (const float *)from + at);
    __m256i x = _mm256_maskz_loadu_epi16(mask, (const uint16_t *)from + at);
    return v_float(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

/* The source of a tile; lines and k: how many remain from here on. */
typedef struct source {
    const void *from;
    ph_dtype type;
    int64_t stride;
    int lines, k, k_contiguous, full; /* full: a full tile, nothing is masked */
} source;

/* Row i of a tile before any transpose: first and second elements of its pairs. */
V void load_row(const source *s, int i, vec *low, vec *high)
{
    int64_t at = i * s->stride,
            next = s->k_contiguous ? PH_AMX_TILE : PH_AMX_TILE * s->stride;
    int n = PH_AMX_TILE, more = PH_AMX_TILE;
    if (!s->full && s->k_contiguous) n = i < s->lines ? s->k : 0, more = n - PH_AMX_TILE;
    if (!s->full && !s->k_contiguous)
        n = i < s->k ? s->lines : 0, more = i + PH_AMX_TILE < s->k ? s->lines : 0;
    *low = load_some(s->from, s->type, at, n);
    *high = load_some(s->from, s->type, at + next, more);
}

/* x rounded to bf16, in the upper half of each lane; the lower half is unspecified. */
V vec round_bf16(vec x)
{
    return v_float(_mm512_add_epi32(v_bits(x), vi_set1(0x8000)));
}

/* What rounding to bf16 leaves over: exact in f32. */
V vec residual(vec x)
{
    return v_sub(x, v_float(vi_and(v_bits(round_bf16(x)), vi_set1(0xffff0000u))));
}

V void store_tile(uint16_t *dst, vec lines[PH_AMX_TILE], int transpose)
{
    if (transpose) v_transpose(lines);
#pragma GCC unroll 16
    for (int i = 0; i < PH_AMX_TILE; i++)
        _mm512_storeu_ps(dst + i * PH_AMX_STEP, lines[i]);
}

/* One tile of first terms; returns 1 if they are exact, so that the others are 0. */
V int split_first(uint16_t *dst, const source *s, int transpose)
{
    vec to[PH_AMX_TILE];
    __m512i bits = _mm512_setzero_si512();
#pragma GCC unroll 16
    for (int i = 0; i < PH_AMX_TILE; i++) {
        vec low, high;
        load_row(s, i, &low, &high);
        to[i] = v_float(upper_halves(round_bf16(low), round_bf16(high)));
        if (s->type == PH_F32)
            bits = _mm512_or_si512(bits, _mm512_or_si512(v_bits(low), v_bits(high)));
    }
    store_tile(dst, to, transpose);
    return !_mm512_test_epi32_mask(bits, vi_set1(0xffff));
}

/* One tile of second terms, and `term` elements behind it one of third terms. */
V void split_rest(uint16_t *dst, int64_t term, const source *s, int transpose)
{
    vec second[PH_AMX_TILE], third[PH_AMX_TILE];
#pragma GCC unroll 16
    for (int i = 0; i < PH_AMX_TILE; i++) {
        vec low, high;
        load_row(s, i, &low, &high);
        low = residual(low), high = residual(high);
        second[i] = v_float(upper_halves(round_bf16(low), round_bf16(high)));
        third[i] = v_float(upper_halves(residual(low), residual(high)));
    }
    store_tile(dst, second, transpose);
    store_tile(dst + term, third, transpose);
}

/* One tile of first terms, or of the others; returns 0 if the first are not exact. */
V int split_tile(const int others, uint16_t *dst, int64_t term, source s, int transpose)
{
    int full = s.lines >= PH_AMX_TILE && s.k >= PH_AMX_STEP;
    if (others && full)
        s.full = 1, split_rest(dst, term, &s, transpose);
    else if (others)
        split_rest(dst, term, &s, transpose);
    else if (full)
        return s.full = 1, split_first(dst, &s, transpose);
    else
        return split_first(dst, &s, transpose);
    return 0;
}

/* All tiles of first terms, then those of the others unless all of them are 0. */
V int split_bf16x3_as(const ph_dtype type, const int k_contiguous, const int transpose,
                      uint16_t *dst, const void *from, int64_t stride, int lines, int k)
{
    int64_t term = (int64_t)PH_AMX_BLOCK * ph_round_up(k, PH_AMX_STEP);
    int all = 1;
    for (int others = 0; others <= !all; others++)
        for (int line = 0; line < PH_AMX_BLOCK; line += PH_AMX_TILE)
            for (int kk = 0; kk < k; kk += PH_AMX_STEP, dst += TILE) {
                int64_t at = k_contiguous ? line * stride + kk : kk * stride + line;
                source s = {.from = ph_at(from, type, at),
                            .type = type,
                            .stride = stride,
                            .lines = lines - line,
                            .k = k - kk,
                            .k_contiguous = k_contiguous};
                all &= split_tile(others, dst, term, s, transpose);
            }
    return all ? 1 : PH_BF16_TERMS;
}

int ph_amx_split_bf16x3(uint16_t *dst, const void *from, ph_dtype type, int64_t stride,
                        int lines, int k, int k_contiguous, int pairs)
{
    int transpose = k_contiguous == pairs;
#define SPLIT(t, a, u)                                                                   \
    if (type == (t) && k_contiguous == (a) && transpose == (u))                          \
    return split_bf16x3_as(t, a, u, dst, from, stride, lines, k)
    SPLIT(PH_F32, 0, 0);
    SPLIT(PH_F32, 0, 1);
    SPLIT(PH_F32, 1, 0);
    SPLIT(PH_F32, 1, 1);
    SPLIT(PH_BF16, 0, 0);
    SPLIT(PH_BF16, 0, 1);
    SPLIT(PH_BF16, 1, 0);
#undef SPLIT
    return split_bf16x3_as(PH_BF16, 1, 1, dst, from, stride, lines, k);
}

/* ---- products ---- */

enum { LONG = 8 }; /* steps from which four accumulators are faster than two */

/* Term p: both row groups of the left operand, one column group of the right one. */
#define LOAD_LEFT(t, u, p)                                                               \
    do {                                                                                 \
        _tile_loadd(t, left + (p)*a->term, LINE);                                        \
        if (two) _tile_loadd(u, left + (p)*a->term + a->group, LINE);                    \
    } while (0)
#define LOAD_RIGHT(t, p) _tile_loadd(t, right + (p)*b->term, LINE)
#define MULTIPLY(t, u, right)                                                            \
    do {                                                                                 \
        _tile_dpbf16ps(0, t, right);                                                     \
        if (two) _tile_dpbf16ps(1, u, right);                                            \
    } while (0)

/* One column of tiles, two rows of them or one. TDPBF16PS issues back to back on one
   accumulator; what stalls is loading and storing accumulators with nothing to multiply
   meanwhile. So a column is finished before the next begins. */
V void multiply_column(const int two, const int a_terms, const int b_terms, int steps,
                       const ph_operand *a, const ph_operand *b, const uint16_t *right,
                       float *c, int64_t ldc, int add)
{
    const uint16_t *left = a->tiles;
    const int64_t ld = ldc * (int64_t)sizeof *c;
    _tile_zero(0);
    _tile_zero(1);
    if (add) _tile_loadd(0, c, ld);
    if (add && two) _tile_loadd(1, c + PH_AMX_TILE * ldc, ld);
    for (int s = 0; s < steps; s++, left += a->step, right += b->step) {
        LOAD_LEFT(4, 5, 0);
        if (b_terms > 1) {
            LOAD_RIGHT(6, 2);
            MULTIPLY(4, 5, 6);
            LOAD_RIGHT(7, 1);
            MULTIPLY(4, 5, 7);
        }
        if (a_terms > 1) LOAD_LEFT(2, 3, 1);
        if (a_terms > 1 && b_terms > 1) MULTIPLY(2, 3, 7);
        LOAD_RIGHT(6, 0);
        if (a_terms > 1) {
            MULTIPLY(2, 3, 6);
            LOAD_LEFT(2, 3, 2);
            MULTIPLY(2, 3, 6);
        }
        MULTIPLY(4, 5, 6);
    }
    _tile_stored(0, c, ld);
    if (two) _tile_stored(1, c + PH_AMX_TILE * ldc, ld);
}

/* Four accumulators at once: fewer operand loads, but a longer prologue and epilogue, so
   only for long k. */
#define LOAD_LEFTS(p) LOAD_LEFT(4, 5, p)
#define LOAD_RIGHTS(p)                                                                   \
    do {                                                                                 \
        LOAD_RIGHT(6, p);                                                                \
        _tile_loadd(7, right + (p)*b->term + b->group, LINE);                            \
    } while (0)
#define MULTIPLY_ALL()                                                                   \
    do {                                                                                 \
        _tile_dpbf16ps(0, 4, 6);                                                         \
        _tile_dpbf16ps(1, 5, 6);                                                         \
        _tile_dpbf16ps(2, 4, 7);                                                         \
        _tile_dpbf16ps(3, 5, 7);                                                         \
    } while (0)

V void multiply_square(const int a_terms, const int b_terms, int steps,
                       const ph_operand *a, const ph_operand *b, float *c, int64_t ldc,
                       int add)
{
    const int two = 1; /* for LOAD_LEFT */
    const uint16_t *left = a->tiles, *right = b->tiles;
    const int64_t ld = ldc * (int64_t)sizeof *c;
    float *below = c + PH_AMX_TILE * ldc;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (add) _tile_loadd(0, c, ld);
    if (add) _tile_loadd(1, below, ld);
    if (add) _tile_loadd(2, c + PH_AMX_TILE, ld);
    if (add) _tile_loadd(3, below + PH_AMX_TILE, ld);
    for (int s = 0; s < steps; s++, left += a->step, right += b->step) {
        if (b_terms > 1) {
            LOAD_LEFTS(0);
            LOAD_RIGHTS(2);
            MULTIPLY_ALL();
            LOAD_RIGHTS(1);
            MULTIPLY_ALL();
        }
        if (a_terms > 1) LOAD_LEFTS(1);
        if (a_terms > 1 && b_terms > 1) MULTIPLY_ALL();
        LOAD_RIGHTS(0);
        if (a_terms > 1) {
            MULTIPLY_ALL();
            LOAD_LEFTS(2);
            MULTIPLY_ALL();
        }
        if (a_terms > 1 || b_terms == 1) LOAD_LEFTS(0);
        MULTIPLY_ALL();
    }
    _tile_stored(0, c, ld);
    _tile_stored(1, below, ld);
    _tile_stored(2, c + PH_AMX_TILE, ld);
    _tile_stored(3, below + PH_AMX_TILE, ld);
}

V void multiply_tiles(const int two, const int a_terms, const int b_terms, int steps,
                      const ph_operand *a, const ph_operand *b, float *c, int64_t ldc,
                      int add)
{
    if (two && steps >= LONG) {
        multiply_square(a_terms, b_terms, steps, a, b, c, ldc, add);
        return;
    }
    multiply_column(two, a_terms, b_terms, steps, a, b, b->tiles, c, ldc, add);
    multiply_column(two, a_terms, b_terms, steps, a, b, b->tiles + b->group,
                    c + PH_AMX_TILE, ldc, add);
}

void ph_amx_multiply(int m, int steps, const ph_operand *a, const ph_operand *b, float *c,
                     int64_t ldc, int add)
{
    TILE_BARRIER();
#define MULTIPLY_AS(t, p, q)                                                             \
    if ((m > PH_AMX_TILE) == (t) && (a->terms > 1) == ((p) > 1) &&                       \
        (b->terms > 1) == ((q) > 1))                                                     \
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

/* ---- a right operand that is used once, split on the fly ---- */

/* First terms of a tile of pairs; returns 1 if they are exact. */
V int try_one_term(uint16_t *to, const source *s)
{
    __m512i bits = _mm512_setzero_si512();
    vec low, high;
#pragma GCC unroll 16
    for (int i = 0; i < PH_AMX_TILE; i++, to += PH_AMX_STEP) {
        load_row(s, i, &low, &high);
        _mm512_store_si512(to, upper_halves(round_bf16(low), round_bf16(high)));
        bits = _mm512_ternarylogic_epi32(bits, v_bits(low), v_bits(high), 0xfe); /* or */
    }
    return !_mm512_test_epi32_mask(bits, vi_set1(0xffff));
}

/* All three terms of a tile of pairs, one tile behind the other. */
V void split_all(uint16_t *to, const source *s)
{
    vec low, high;
#pragma GCC unroll 16
    for (int i = 0; i < PH_AMX_TILE; i++, to += PH_AMX_STEP) {
        load_row(s, i, &low, &high);
        _mm512_store_si512(to, upper_halves(round_bf16(low), round_bf16(high)));
        low = residual(low), high = residual(high);
        _mm512_store_si512(to + TILE, upper_halves(round_bf16(low), round_bf16(high)));
        _mm512_store_si512(to + 2 * TILE, upper_halves(residual(low), residual(high)));
    }
}

/* Returns how many terms were written. A matrix is rarely mixed, so one term is tried
   only if it was enough for the tile before. */
V int split_once(uint16_t *to, const source *s, int last)
{
    if (last == 1 && try_one_term(to, s)) return 1;
    split_all(to, s);
    return PH_BF16_TERMS;
}

V void multiply_in_place_as(const int two, const int a_terms, int n, int k,
                            const ph_operand *a, const float *b, int64_t ldb, float *c,
                            int64_t ldc)
{
    _Alignas(PH_ALIGN) uint16_t tiles[PH_BF16_TERMS * TILE];
    ph_operand left = *a, right = {tiles, PH_BF16_TERMS, TILE, 0, 0};
    int terms = 1;
    for (int kk = 0; kk < k; kk += PH_AMX_STEP, left.tiles += a->step)
        for (int j = 0; j < n; j += PH_AMX_TILE) {
            source s = {.from = b + kk * ldb + j,
                        .stride = ldb,
                        .lines = n - j,
                        .k = k - kk,
                        .full = 1};
            if (s.lines < PH_AMX_TILE || s.k < PH_AMX_STEP)
                s.full = 0, terms = split_once(tiles, &s, terms);
            else
                terms = split_once(tiles, &s, terms);
            TILE_BARRIER();
            if (terms > 1)
                multiply_column(two, a_terms, PH_BF16_TERMS, 1, &left, &right, tiles,
                                c + j, ldc, 1);
            else
                multiply_column(two, a_terms, 1, 1, &left, &right, tiles, c + j, ldc, 1);
        }
}

void ph_amx_multiply_in_place(int m, int n, int k, const ph_operand *a, const float *b,
                              int64_t ldb, float *c, int64_t ldc)
{
    if (m > PH_AMX_TILE && a->terms > 1)
        multiply_in_place_as(1, PH_BF16_TERMS, n, k, a, b, ldb, c, ldc);
    else if (m > PH_AMX_TILE)
        multiply_in_place_as(1, 1, n, k, a, b, ldb, c, ldc);
    else if (a->terms > 1)
        multiply_in_place_as(0, PH_BF16_TERMS, n, k, a, b, ldb, c, ldc);
    else
        multiply_in_place_as(0, 1, n, k, a, b, ldb, c, ldc);
}

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
