/*
 * amx.c - attention on bf16 with AMX tiles: packing, scores, softmax, P V; what is not a
 * product is AVX-512.
 *
 * Eight tile registers of 16 rows by 64 bytes:
 *
 *     0 1 2 3   accumulators, 16 x 16 in f32
 *     4 5       left operand, 16 rows x 32 elements (P V: one term of the weights, in 4)
 *     6 7       right operand, 32 elements x 16 columns, in pairs
 *
 * Tiles 0 to 4 have as many rows as a strip. In scores_along the keys are the left
 * operand: accumulators in 5, keys in 6, query rows in 7.
 *
 * TDPBF16PS multiplies 16 x 32 by 32 x 16 in 16 cycles with a latency of 52, so four
 * accumulators are kept in flight.
 */
#include "kernels/kernels.h"

#if defined(__x86_64__)
#include "kernels/amx_tiles.h"
#include "kernels/tmpl_tops.h"

enum { TURNS = 6 };

/* The operand of LDTILECFG. */
typedef struct layout {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16]; /* of a row */
    uint8_t lines[16];
} layout;

static void begin(int rows)
{
    layout tiles = {.palette = 1};
    for (int t = 0; t < 8; t++) {
        tiles.bytes[t] = LINE;
        tiles.lines[t] = (uint8_t)(t < 5 ? rows : PH_TILE);
    }
    __asm__ volatile("" : : "r"(&tiles) : "memory"); /* see WRITTEN */
    _tile_loadconfig(&tiles);
}

static void end(void)
{
    _tile_release();
}

/* ---- packing ---- */

/* n <= 32 elements of a row from `at` on, the rest 0 */
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

/* 16 elements of a row, or its last n < 16, each zero-extended to 32 bits */
V __m512i spread(const uint16_t *p, int n)
{
    __m256i x = n >= PH_TILE ? _mm256_loadu_si256((const __m256i *)p)
                             : _mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1), p);
    return _mm512_cvtepu16_epi32(x);
}

/* Extreme magnitudes of the elements packed so far, for ph_is_plain. */
typedef struct sizes {
    __m512i largest, least; /* least is stored minus 1, so that zeros drop out */
} sizes;

V sizes no_sizes(void)
{
    return (sizes){_mm512_setzero_si512(), _mm512_set1_epi16(-1)};
}

V void see_sizes(sizes *s, __m512i numbers)
{
    __m512i size = _mm512_and_si512(numbers, _mm512_set1_epi16(0x7fff));
    s->largest = _mm512_max_epu16(s->largest, size);
    s->least = _mm512_min_epu16(s->least, _mm512_sub_epi16(size, _mm512_set1_epi16(1)));
}

V int are_plain(const sizes *s)
{
    return !_mm512_cmpge_epu16_mask(s->largest, _mm512_set1_epi16(0x7f80)) &&
           !_mm512_cmplt_epu16_mask(s->least, _mm512_set1_epi16(0x7f));
}

static int pack_along(uint16_t *dst, const void *const *rows, int count, int n,
                      int64_t ahead)
{
    sizes seen = no_sizes();
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
            see_sizes(&seen, pair);
            _mm512_storeu_si512(to, pair);
        }
    }
    return are_plain(&seen);
}

static int all_plain(const void *const *rows, int count, int n)
{
    sizes seen = no_sizes();
    for (int r = 0; r < count; r++)
        for (int c = 0; c < n; c += PH_STEP) see_sizes(&seen, numbers(rows[r], c, n - c));
    return are_plain(&seen);
}

static int pack_columns(uint16_t *dst, const void *const *rows, int count, int n)
{
    sizes seen = no_sizes();
    for (int c = 0; c < n; c += PH_TILE, dst += TILE) {
        vec r[PH_TILE];
#pragma GCC unroll 16
        for (int i = 0; i < PH_TILE; i++) {
            __m512i pair = _mm512_setzero_si512(), high = pair;
            if (i < count) pair = spread((const uint16_t *)rows[i] + c, n - c);
            if (i + PH_TILE < count)
                high = spread((const uint16_t *)rows[i + PH_TILE] + c, n - c);
            pair = _mm512_or_si512(pair, _mm512_slli_epi32(high, 16));
            see_sizes(&seen, pair);
            r[i] = v_float(pair);
        }
        v_transpose(r);
#pragma GCC unroll 16
        for (int i = 0; i < PH_TILE; i++) _mm512_storeu_ps(dst + i * PH_STEP, r[i]);
    }
    return are_plain(&seen);
}

/* ---- products ---- */

/* Scores of 16 rows against one panel of 16 keys, or two. */
V void score_tiles(const int two, int k, const uint16_t *a, const uint16_t *b, float *s)
{
    const int64_t panel = (int64_t)k * PH_TILE, ld = PH_STRIP_LD * (int64_t)sizeof *s;
    _tile_zero(0);
    _tile_zero(1);
    for (int kk = 0; kk < k; kk += PH_STEP, a += TILE, b += TILE) {
        _tile_loadd(4, a, LINE);
        _tile_loadd(6, b, LINE);
        _tile_dpbf16ps(0, 4, 6);
        if (two) _tile_loadd(7, b + panel, LINE);
        if (two) _tile_dpbf16ps(1, 4, 7);
    }
    _tile_stored(0, s, ld);
    if (two) _tile_stored(1, s + PH_TILE, ld);
}

static void scores(int m, int n, int k, const uint16_t *a, const uint16_t *b, float scale,
                   float *s, float *peak)
{
    const vec factor = v_set1(scale);
    int j = 0;
    for (; j + 2 * PH_TILE <= n; j += 2 * PH_TILE)
        score_tiles(1, k, a, b + (int64_t)j * k, s + j);
    if (j < n) score_tiles(0, k, a, b + (int64_t)j * k, s + j);
    for (int i = 0; i < m && peak; i++, s += PH_STRIP_LD, peak += PH_LANES) {
        vec highest = v_load(peak);
        for (int c = 0; c < n; c += VL) {
            vec x = v_mul(v_load(s + c), factor);
            v_store(s + c, x);
            highest = v_max(highest, x);
        }
        v_store(peak, highest);
    }
}

/* Scores of 16 keys against all query rows, one row per key. Prefetches `ahead` elements
   behind each key, in memory order and a few cache lines at a time: a burst would delay
   the tile loads. */
V void key_tile(int k, const uint16_t *a, const uint16_t *b, int64_t ldb, int64_t ahead,
                float *sums)
{
    int asked = 0;
    _tile_zero(5);
    for (int kk = 0; kk < k; kk += PH_STEP, a += TILE) {
        for (; asked * k < (kk + PH_STEP) * PH_TILE; asked++)
            for (int line = 0; line < k; line += PH_STEP)
                __builtin_prefetch(b + asked * ldb + line + ahead, 0, 2);
        _tile_loadd(6, b + kk, ldb * (int64_t)sizeof *b);
        _tile_loadd(7, a, LINE);
        _tile_dpbf16ps(5, 6, 7);
    }
    _tile_stored(5, sums, LINE);
}

/* The first four columns of a tile of scores, transposed: four 4 x 4 transposes, one in
   each 128-bit lane. */
V void turn_four(const float *sums, vec r[4])
{
    vec x[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const float *from = sums + i * PH_TILE;
        x[i] = _mm512_castps128_ps512(_mm_load_ps(from));
        x[i] = _mm512_mask_broadcast_f32x4(x[i], 0x00f0, _mm_load_ps(from + 4 * PH_TILE));
        x[i] = _mm512_mask_broadcast_f32x4(x[i], 0x0f00, _mm_load_ps(from + 8 * PH_TILE));
        x[i] =
            _mm512_mask_broadcast_f32x4(x[i], 0xf000, _mm_load_ps(from + 12 * PH_TILE));
    }
    vec a = _mm512_unpacklo_ps(x[0], x[1]), b = _mm512_unpackhi_ps(x[0], x[1]);
    vec c = _mm512_unpacklo_ps(x[2], x[3]), d = _mm512_unpackhi_ps(x[2], x[3]);
    r[0] = _mm512_shuffle_ps(a, c, 0x44), r[1] = _mm512_shuffle_ps(a, c, 0xee);
    r[2] = _mm512_shuffle_ps(b, d, 0x44), r[3] = _mm512_shuffle_ps(b, d, 0xee);
}

/* Scales and stores 16 columns of up to `most` rows and updates their lane maxima. */
V void store_scores(const int most, int m, const vec *r, vec factor, float *s,
                    float *peak)
{
#pragma GCC unroll 16
    for (int i = 0; i < most; i++) {
        float *highest = peak + i * PH_LANES;
        vec x = v_mul(r[i], factor);
        if (i >= m) break;
        v_store(s + i * PH_STRIP_LD, x);
        if (peak) v_store(highest, v_max(v_load(highest), x));
    }
}

static void scores_along(int m, int n, int k, const uint16_t *a, const uint16_t *b,
                         int64_t ldb, int64_t ahead, float scale, float *s, float *peak)
{
    _Alignas(PH_ALIGN) float sums[PH_TILE * PH_TILE];
    const vec factor = v_set1(peak ? scale : 1);
    for (int j = 0; j < n; j += PH_TILE, b += PH_TILE * ldb, s += PH_TILE) {
        vec r[PH_TILE];
        key_tile(k, a, b, ldb, ahead / 2, sums);
        WRITTEN();
        if (m <= 4) {
            turn_four(sums, r);
            store_scores(4, m, r, factor, s, peak);
            continue;
        }
#pragma GCC unroll 16
        for (int i = 0; i < PH_TILE; i++) r[i] = v_load(sums + i * PH_TILE);
        v_transpose(r);
        store_scores(PH_TILE, m, r, factor, s, peak);
    }
}

/* ---- softmax and P V ---- */

/* The bf16x3 split of 32 weights by truncation: one row in each of three tiles. */
V void split(vec first, vec second, uint16_t *to)
{
    _mm512_storeu_si512(to, upper_halves(first, second));
    first = without_upper_half(first), second = without_upper_half(second);
    _mm512_storeu_si512(to + TILE, upper_halves(first, second));
    first = without_upper_half(first), second = without_upper_half(second);
    _mm512_storeu_si512(to + 2 * TILE, upper_halves(first, second));
}

/* Weights of rows [from, to) at columns c.. of one step: split into terms, and added to
   the row sums. */
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

/* One term of the weights, through tile t, times the values in tiles 6 and 7. */
#define WEIGH(c, d, both, t, part)                                                       \
    do {                                                                                 \
        _tile_loadd(t, part, LINE);                                                      \
        _tile_dpbf16ps(c, t, 6);                                                         \
        if (both) _tile_dpbf16ps(d, t, 7);                                               \
    } while (0)

/* One of the TURNS products of a step: a term of its weights times two tiles of V. */
V void weigh_turn(const int turn, int N, const uint16_t *parts, const uint16_t *v)
{
    if (turn >= 3 && N <= 2) return;
    if (turn == 0) _tile_loadd(6, v, LINE);
    if (turn == 0 && N > 1) _tile_loadd(7, v + TILE, LINE);
    if (turn == 3) _tile_loadd(6, v + 2 * TILE, LINE);
    if (turn == 3 && N > 3) _tile_loadd(7, v + 3 * TILE, LINE);
    if (turn == 0) WEIGH(0, 1, N > 1, 4, parts);
    if (turn == 1) WEIGH(0, 1, N > 1, 4, parts + TILE);
    if (turn == 2) WEIGH(0, 1, N > 1, 4, parts + 2 * TILE);
    if (turn == 3) WEIGH(2, 3, N > 3, 4, parts);
    if (turn == 4) WEIGH(2, 3, N > 3, 4, parts + TILE);
    if (turn == 5) WEIGH(2, 3, N > 3, 4, parts + 2 * TILE);
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

/* Software-pipelined: while AVX-512 computes the weights of one step, AMX multiplies V by
   those of the step before, into up to four accumulators. Between two products on one
   accumulator lie enough rows of exponentials to hide its latency. */
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

/* P V for up to four tiles of columns from j on, with the weights that attend_steps left
   in x->parts. */
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

const ph_pairs ph_pairs_amx = {
    .begin = begin,
    .end = end,
    .pack_rows = pack_rows,
    .pack_across = pack_across,
    .pack_along = pack_along,
    .all_plain = all_plain,
    .pack_columns = pack_columns,
    .scores = scores,
    .scores_along = scores_along,
    .attend = attend,
    .attend_along = ph_amx_attend_along,
    .slopes = ph_amx_slopes,
    .split = ph_amx_split,
    .multiply = ph_amx_multiply,
    .stream = ph_amx_stream,
    .few = ph_amx_few,
};

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
