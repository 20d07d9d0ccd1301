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
 * Tiles 0 to 4 have as many rows as a strip. In scores_in_place the keys are the left
 * operand: accumulators in 5, keys in 6, query rows in 7.
 *
 * TDPBF16PS multiplies 16 x 32 by 32 x 16 in 16 cycles with a latency of 52, so four
 * accumulators are kept in flight.
 */
#include "kernels/kernels.h"

#if defined(__x86_64__)
#include "kernels/amx_tiles.h"
#include "kernels/tmpl_row_max.h"

enum { PHASES = 6 };

/* The operand of LDTILECFG. */
typedef struct tile_config {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16]; /* of a row */
    uint8_t lines[16];
} tile_config;

static void begin(int rows)
{
    tile_config tiles = {.palette = 1};
    for (int t = 0; t < 8; t++) {
        tiles.bytes[t] = LINE;
        tiles.lines[t] = (uint8_t)(t < 5 ? rows : PH_AMX_TILE);
    }
    __asm__ volatile("" : : "r"(&tiles) : "memory"); /* see TILE_BARRIER */
    _tile_loadconfig(&tiles);
}

static void end(void)
{
    _tile_release();
}

/* ---- packing ---- */

/* n <= 32 elements of a row from `at` on, the rest 0 */
V __m512i load_elements(const void *row, int at, int n)
{
    const uint16_t *p = (const uint16_t *)row + at;
    if (n >= PH_AMX_STEP) return _mm512_loadu_si512(p);
    return _mm512_maskz_loadu_epi16((1u << n) - 1, p);
}

static void pack_rows(uint16_t *dst, const void *const *rows, int count, int k)
{
    for (int at = 0; at < k; at += PH_AMX_STEP)
        for (int r = 0; r < PH_AMX_TILE; r++, dst += PH_AMX_STEP)
            _mm512_storeu_si512(dst, r < count ? load_elements(rows[r], at, k - at)
                                               : _mm512_setzero_si512());
}

static void pack_panel(uint16_t *dst, const void *const *rows, int count, int k,
                       int64_t prefetch_bytes)
{
    for (int at = 0; at < k; at += PH_AMX_STEP, dst += TILE) {
        vec r[PH_AMX_TILE];
#pragma GCC unroll 16
        for (int i = 0; i < PH_AMX_TILE; i++) {
            r[i] = v_zero();
            if (i >= count) continue;
            __builtin_prefetch((const uint16_t *)rows[i] + at + prefetch_bytes / 2, 0, 2);
            r[i] = v_float(load_elements(rows[i], at, k - at));
        }
        v_transpose(r);
#pragma GCC unroll 16
        for (int i = 0; i < PH_AMX_TILE; i++)
            _mm512_storeu_ps(dst + i * PH_AMX_STEP, r[i]);
    }
}

/* 16 elements of a row, or its last n < 16, each zero-extended to 32 bits */
V __m512i widen(const uint16_t *p, int n)
{
    __m256i x = n >= PH_AMX_TILE
                    ? _mm256_loadu_si256((const __m256i *)p)
                    : _mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1), p);
    return _mm512_cvtepu16_epi32(x);
}

/* Extreme magnitudes of the elements packed so far, for ph_is_normal. */
typedef struct magnitudes {
    __m512i largest, least; /* least is stored minus 1, so that zeros drop out */
} magnitudes;

V magnitudes no_magnitudes(void)
{
    return (magnitudes){_mm512_setzero_si512(), _mm512_set1_epi16(-1)};
}

V void track_magnitudes(magnitudes *s, __m512i elements)
{
    __m512i size = _mm512_and_si512(elements, _mm512_set1_epi16(0x7fff));
    s->largest = _mm512_max_epu16(s->largest, size);
    s->least = _mm512_min_epu16(s->least, _mm512_sub_epi16(size, _mm512_set1_epi16(1)));
}

V int are_normal(const magnitudes *s)
{
    return !_mm512_cmpge_epu16_mask(s->largest, _mm512_set1_epi16(0x7f80)) &&
           !_mm512_cmplt_epu16_mask(s->least, _mm512_set1_epi16(0x7f));
}

static int pack_pairs(uint16_t *dst, const void *const *rows, int count, int n,
                      int64_t prefetch_bytes)
{
    magnitudes seen = no_magnitudes();
    for (int i = 0; i < PH_AMX_TILE; i++, dst += PH_AMX_STEP) {
        const uint16_t *low = i < count ? rows[i] : NULL;
        const uint16_t *high = i + PH_AMX_TILE < count ? rows[i + PH_AMX_TILE] : NULL;
        uint16_t *to = dst;
        for (int c = 0; c < n; c += PH_AMX_TILE, to += TILE) {
            __m512i pair = _mm512_setzero_si512();
            if (low) pair = widen(low + c, n - c);
            if (high)
                pair =
                    _mm512_or_si512(pair, _mm512_slli_epi32(widen(high + c, n - c), 16));
            if (low) __builtin_prefetch(low + c + prefetch_bytes / 2, 0, 2);
            if (high) __builtin_prefetch(high + c + prefetch_bytes / 2, 0, 2);
            track_magnitudes(&seen, pair);
            _mm512_storeu_si512(to, pair);
        }
    }
    return are_normal(&seen);
}

static int all_normal(const void *const *rows, int count, int n)
{
    magnitudes seen = no_magnitudes();
    for (int r = 0; r < count; r++)
        for (int c = 0; c < n; c += PH_AMX_STEP)
            track_magnitudes(&seen, load_elements(rows[r], c, n - c));
    return are_normal(&seen);
}

static int pack_columns(uint16_t *dst, const void *const *rows, int count, int n)
{
    magnitudes seen = no_magnitudes();
    for (int c = 0; c < n; c += PH_AMX_TILE, dst += TILE) {
        vec r[PH_AMX_TILE];
#pragma GCC unroll 16
        for (int i = 0; i < PH_AMX_TILE; i++) {
            __m512i pair = _mm512_setzero_si512(), high = pair;
            if (i < count) pair = widen((const uint16_t *)rows[i] + c, n - c);
            if (i + PH_AMX_TILE < count)
                high = widen((const uint16_t *)rows[i + PH_AMX_TILE] + c, n - c);
            pair = _mm512_or_si512(pair, _mm512_slli_epi32(high, 16));
            track_magnitudes(&seen, pair);
            r[i] = v_float(pair);
        }
        v_transpose(r);
#pragma GCC unroll 16
        for (int i = 0; i < PH_AMX_TILE; i++)
            _mm512_storeu_ps(dst + i * PH_AMX_STEP, r[i]);
    }
    return are_normal(&seen);
}

/* ---- products ---- */

/* Scores of 16 rows against one panel of 16 keys, or two. */
V void score_tiles(const int two, int k, const uint16_t *a, const uint16_t *b, float *s)
{
    const int64_t panel = (int64_t)k * PH_AMX_TILE, ld = PH_STRIP_LD * (int64_t)sizeof *s;
    _tile_zero(0);
    _tile_zero(1);
    for (int kk = 0; kk < k; kk += PH_AMX_STEP, a += TILE, b += TILE) {
        _tile_loadd(4, a, LINE);
        _tile_loadd(6, b, LINE);
        _tile_dpbf16ps(0, 4, 6);
        if (two) _tile_loadd(7, b + panel, LINE);
        if (two) _tile_dpbf16ps(1, 4, 7);
    }
    _tile_stored(0, s, ld);
    if (two) _tile_stored(1, s + PH_AMX_TILE, ld);
}

static void scores(int m, int n, int k, const uint16_t *a, const uint16_t *b, float scale,
                   float *s, float *lane_max)
{
    const vec factor = v_set1(scale);
    int j = 0;
    for (; j + 2 * PH_AMX_TILE <= n; j += 2 * PH_AMX_TILE)
        score_tiles(1, k, a, b + (int64_t)j * k, s + j);
    if (j < n) score_tiles(0, k, a, b + (int64_t)j * k, s + j);
    for (int i = 0; i < m && lane_max; i++, s += PH_STRIP_LD, lane_max += PH_LANES) {
        vec highest = v_load(lane_max);
        for (int c = 0; c < n; c += VL) {
            vec x = v_mul(v_load(s + c), factor);
            v_store(s + c, x);
            highest = v_max(highest, x);
        }
        v_store(lane_max, highest);
    }
}

/* Scores of 16 keys against all query rows, one row per key. Prefetches
   `prefetch_elements` elements behind each key, in memory order and a few cache lines at
   a time: a burst would delay the tile loads. */
V void key_tile(int k, const uint16_t *a, const uint16_t *b, int64_t ldb,
                int64_t prefetch_elements, float *sums)
{
    int prefetched = 0;
    _tile_zero(5);
    for (int kk = 0; kk < k; kk += PH_AMX_STEP, a += TILE) {
        for (; prefetched * k < (kk + PH_AMX_STEP) * PH_AMX_TILE; prefetched++)
            for (int line = 0; line < k; line += PH_AMX_STEP)
                __builtin_prefetch(b + prefetched * ldb + line + prefetch_elements, 0, 2);
        _tile_loadd(6, b + kk, ldb * (int64_t)sizeof *b);
        _tile_loadd(7, a, LINE);
        _tile_dpbf16ps(5, 6, 7);
    }
    _tile_stored(5, sums, LINE);
}

/* The first four columns of a tile of scores, transposed: four 4 x 4 transposes, one in
   each 128-bit lane. */
V void transpose_four(const float *sums, vec r[4])
{
    vec x[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const float *from = sums + i * PH_AMX_TILE;
        x[i] = _mm512_castps128_ps512(_mm_load_ps(from));
        x[i] = _mm512_mask_broadcast_f32x4(x[i], 0x00f0,
                                           _mm_load_ps(from + 4 * PH_AMX_TILE));
        x[i] = _mm512_mask_broadcast_f32x4(x[i], 0x0f00,
                                           _mm_load_ps(from + 8 * PH_AMX_TILE));
        x[i] = _mm512_mask_broadcast_f32x4(x[i], 0xf000,
                                           _mm_load_ps(from + 12 * PH_AMX_TILE));
    }
    vec a = _mm512_unpacklo_ps(x[0], x[1]), b = _mm512_unpackhi_ps(x[0], x[1]);
    vec c = _mm512_unpacklo_ps(x[2], x[3]), d = _mm512_unpackhi_ps(x[2], x[3]);
    r[0] = _mm512_shuffle_ps(a, c, 0x44), r[1] = _mm512_shuffle_ps(a, c, 0xee);
    r[2] = _mm512_shuffle_ps(b, d, 0x44), r[3] = _mm512_shuffle_ps(b, d, 0xee);
}

/* Scales and stores 16 columns of up to `most` rows and updates their lane maxima. */
V void store_scores(const int most, int m, const vec *r, vec factor, float *s,
                    float *lane_max)
{
#pragma GCC unroll 16
    for (int i = 0; i < most; i++) {
        float *highest = lane_max + i * PH_LANES;
        vec x = v_mul(r[i], factor);
        if (i >= m) break;
        v_store(s + i * PH_STRIP_LD, x);
        if (lane_max) v_store(highest, v_max(v_load(highest), x));
    }
}

static void scores_in_place(int m, int n, int k, const uint16_t *a, const uint16_t *b,
                            int64_t ldb, int64_t prefetch_bytes, float scale, float *s,
                            float *lane_max)
{
    _Alignas(PH_ALIGN) float sums[PH_AMX_TILE * PH_AMX_TILE];
    const vec factor = v_set1(lane_max ? scale : 1);
    for (int j = 0; j < n; j += PH_AMX_TILE, b += PH_AMX_TILE * ldb, s += PH_AMX_TILE) {
        vec r[PH_AMX_TILE];
        key_tile(k, a, b, ldb, prefetch_bytes / 2, sums);
        TILE_BARRIER();
        if (m <= 4) {
            transpose_four(sums, r);
            store_scores(4, m, r, factor, s, lane_max);
            continue;
        }
#pragma GCC unroll 16
        for (int i = 0; i < PH_AMX_TILE; i++) r[i] = v_load(sums + i * PH_AMX_TILE);
        v_transpose(r);
        store_scores(PH_AMX_TILE, m, r, factor, s, lane_max);
    }
}

/* ---- softmax and P V ---- */

/* The bf16x3 split of 32 weights by truncation: one row in each of three tiles. */
V void store_terms(vec first, vec second, uint16_t *to)
{
    _mm512_storeu_si512(to, upper_halves(first, second));
    first = without_upper_half(first), second = without_upper_half(second);
    _mm512_storeu_si512(to + TILE, upper_halves(first, second));
    first = without_upper_half(first), second = without_upper_half(second);
    _mm512_storeu_si512(to + 2 * TILE, upper_halves(first, second));
}

/* Weights of rows [from, to) at columns c.. of one step: split into terms, and added to
   the row sums. */
V void softmax_rows(const ph_strip *x, const float *base, const int dropped, int c,
                    int from, int to, uint16_t *terms)
{
    const int both = c + VL < x->n;
    for (int i = from; i < to; i++) {
        const float *s = x->s + i * PH_STRIP_LD + c;
        const float *drop = dropped ? x->drop + i * PH_STRIP_LD + c : NULL;
        const vec row_max = v_set1(base[i]);
        vec a = v_exp2(v_sub(v_load(s), row_max)), b = v_zero();
        vec total = v_add(v_load(x->sum + i * PH_LANES), a);
        if (both) b = v_exp2(v_sub(v_load(s + VL), row_max));
        if (both) total = v_add(total, b);
        v_store(x->sum + i * PH_LANES, total);
        if (dropped) a = v_mul(a, v_load(drop));
        if (dropped && both) b = v_mul(b, v_load(drop + VL));
        store_terms(a, b, terms + i * PH_AMX_STEP);
    }
}

/* One term of the weights, through tile t, times the values in tiles 6 and 7. */
#define MULTIPLY_V(c, d, both, t, part)                                                  \
    do {                                                                                 \
        _tile_loadd(t, part, LINE);                                                      \
        _tile_dpbf16ps(c, t, 6);                                                         \
        if (both) _tile_dpbf16ps(d, t, 7);                                               \
    } while (0)

/* One of the PHASES products of a step: a term of its weights times two tiles of V. */
V void multiply_v_phase(const int phase, int N, const uint16_t *terms, const uint16_t *v)
{
    if (phase >= 3 && N <= 2) return;
    if (phase == 0) _tile_loadd(6, v, LINE);
    if (phase == 0 && N > 1) _tile_loadd(7, v + TILE, LINE);
    if (phase == 3) _tile_loadd(6, v + 2 * TILE, LINE);
    if (phase == 3 && N > 3) _tile_loadd(7, v + 3 * TILE, LINE);
    if (phase == 0) MULTIPLY_V(0, 1, N > 1, 4, terms);
    if (phase == 1) MULTIPLY_V(0, 1, N > 1, 4, terms + TILE);
    if (phase == 2) MULTIPLY_V(0, 1, N > 1, 4, terms + 2 * TILE);
    if (phase == 3) MULTIPLY_V(2, 3, N > 3, 4, terms);
    if (phase == 4) MULTIPLY_V(2, 3, N > 3, 4, terms + TILE);
    if (phase == 5) MULTIPLY_V(2, 3, N > 3, 4, terms + 2 * TILE);
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
    if (N > 1) _tile_loadd(1, c + PH_AMX_TILE, ld);
    if (N > 2) _tile_loadd(2, c + 2 * PH_AMX_TILE, ld);
    if (N > 3) _tile_loadd(3, c + 3 * PH_AMX_TILE, ld);
}

V void store_sums(const ph_strip *x, int N, float *c)
{
    const int64_t ld = x->ldc * (int64_t)sizeof *c;
    _tile_stored(0, c, ld);
    if (N > 1) _tile_stored(1, c + PH_AMX_TILE, ld);
    if (N > 2) _tile_stored(2, c + 2 * PH_AMX_TILE, ld);
    if (N > 3) _tile_stored(3, c + 3 * PH_AMX_TILE, ld);
}

/* Software-pipelined: while AVX-512 computes the weights of one step, AMX multiplies V by
   those of the step before, into up to four accumulators. Between two products on one
   accumulator lie enough rows of exponentials to hide its latency. */
V void attend_steps(const ph_strip *x, const float *base, const int m, const int dropped)
{
    const int N = ph_min(x->width / PH_AMX_TILE, 4),
              ring = x->width <= 4 * PH_AMX_TILE && !x->keep;
    const int64_t values = (int64_t)x->width * PH_AMX_STEP;
    const uint16_t *last = NULL, *v = x->v;
    start_sums(x, N, x->c);
    for (int c = 0; c < x->n; c += PH_AMX_STEP) {
        int at = ring ? c / PH_AMX_STEP % 2 : c / PH_AMX_STEP;
        uint16_t *terms = x->terms + at * (PH_BF16_TERMS * TILE);
#pragma GCC unroll 6
        for (int phase = 0; phase < PHASES; phase++) {
            softmax_rows(x, base, dropped, c, m * phase / PHASES,
                         m * (phase + 1) / PHASES, terms);
            if (last) multiply_v_phase(phase, N, last, v);
        }
        if (last) v += values;
        last = terms;
        TILE_BARRIER();
    }
#pragma GCC unroll 6
    for (int phase = 0; phase < PHASES; phase++) multiply_v_phase(phase, N, last, v);
    store_sums(x, N, x->c);
}

/* P V for up to four tiles of columns from j on, with the weights that attend_steps left
   in x->terms. */
static void multiply_v_columns(const ph_strip *x, int j)
{
    const int N = ph_min((x->width - j) / PH_AMX_TILE, 4);
    start_sums(x, N, x->c + j);
    for (int s = 0; s * PH_AMX_STEP < x->n; s++)
#pragma GCC unroll 6
        for (int phase = 0; phase < PHASES; phase++)
            multiply_v_phase(phase, N, x->terms + s * (PH_BF16_TERMS * TILE),
                             x->v + ((int64_t)s * x->width + j) * PH_AMX_STEP);
    store_sums(x, N, x->c + j);
}

static void attend(const ph_strip *x)
{
    float base[PH_LANES];
    raise_row_max(x->m, x->lane_max, x->row_max, x->rescale, base);
    for (int i = 0; i < x->m; i++) {
        const vec rescale = v_set1(x->rescale[i]);
        float *c = x->c + i * x->ldc, *sum = x->sum + i * PH_LANES;
        v_store(sum, v_mul(v_load(sum), rescale));
        for (int j = 0; j < x->width && !x->fresh; j += VL)
            v_store(c + j, v_mul(v_load(c + j), rescale));
    }
    TILE_BARRIER();
    if (x->drop)
        attend_steps(x, base, x->m, 1);
    else if (x->m == PH_AMX_TILE)
        attend_steps(x, base, PH_AMX_TILE, 0);
    else
        attend_steps(x, base, x->m, 0);
    for (int j = 4 * PH_AMX_TILE; j < x->width; j += 4 * PH_AMX_TILE)
        multiply_v_columns(x, j);
}

const ph_bf16_pairs ph_bf16_pairs_amx = {
    .begin = begin,
    .end = end,
    .pack_rows = pack_rows,
    .pack_panel = pack_panel,
    .pack_pairs = pack_pairs,
    .all_normal = all_normal,
    .pack_columns = pack_columns,
    .scores = scores,
    .scores_in_place = scores_in_place,
    .attend = attend,
    .attend_in_place = ph_amx_attend_in_place,
    .score_grad = ph_amx_score_grad,
    .split_bf16x3 = ph_amx_split_bf16x3,
    .multiply = ph_amx_multiply,
    .multiply_in_place = ph_amx_multiply_in_place,
    .multiply_few_rows = ph_amx_multiply_few_rows,
};

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
