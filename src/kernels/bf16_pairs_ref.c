/*
 * bf16_pairs_ref.c - ph_bf16_pairs in scalar loops: the contract, bit by bit, that the
 * AMX kernels are tested against. Only tests run it.
 */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "kernels/kernels.h"

enum {
    TILE = PH_AMX_TILE * PH_AMX_STEP,
    MAX_WIDTH = 256
}; /* elements; columns of attend_in_place */

static void begin(int rows)
{
    (void)rows;
}

static void end(void) {}

/* ---- packing ---- */

static uint16_t element(const void *const *rows, int count, int r, int k, int at)
{
    return r < count && at < k ? ((const uint16_t *)rows[r])[at] : 0;
}

static void pack_rows(uint16_t *dst, const void *const *rows, int count, int k)
{
    for (int at = 0; at < k; at += PH_AMX_STEP)
        for (int i = 0; i < TILE; i++)
            *dst++ = element(rows, count, i / PH_AMX_STEP, k, at + i % PH_AMX_STEP);
}

static void pack_panel(uint16_t *dst, const void *const *rows, int count, int k,
                       int64_t prefetch_bytes)
{
    (void)prefetch_bytes;
    for (int at = 0; at < k; at += PH_AMX_STEP)
        for (int i = 0; i < TILE; i++)
            *dst++ = element(rows, count, i % PH_AMX_STEP / 2, k,
                             at + i / PH_AMX_STEP * 2 + i % 2);
}

static int pack_pairs(uint16_t *dst, const void *const *rows, int count, int n,
                      int64_t prefetch_bytes)
{
    int normal = 1;
    (void)prefetch_bytes;
    for (int c = 0; c < n; c += PH_AMX_TILE)
        for (int i = 0; i < TILE; i++, dst++) {
            *dst = element(rows, count, i / PH_AMX_STEP + i % 2 * PH_AMX_TILE, n,
                           c + i % PH_AMX_STEP / 2);
            normal &= ph_is_normal(*dst);
        }
    return normal;
}

static int all_normal(const void *const *rows, int count, int n)
{
    int normal = 1;
    for (int r = 0; r < count; r++)
        for (int c = 0; c < n; c++)
            normal &= ph_is_normal(((const uint16_t *)rows[r])[c]);
    return normal;
}

static int pack_columns(uint16_t *dst, const void *const *rows, int count, int n)
{
    int normal = 1;
    for (int c = 0; c < n; c += PH_AMX_TILE)
        for (int i = 0; i < TILE; i++, dst++) {
            *dst = element(rows, count, i % PH_AMX_STEP / 2 + i % 2 * PH_AMX_TILE, n,
                           c + i / PH_AMX_STEP);
            normal &= ph_is_normal(*dst);
        }
    return normal;
}

/* ---- products ---- */

/* Flush to zero: subnormals become 0 of the same sign. */
static float flush(float x)
{
    return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}

static float add(float a, float b)
{
    return flush(flush(a) + flush(b));
}

/* Underflow is detected before rounding: a result that only rounds up to 2^-126 is
   flushed too. */
static float multiply_add(uint16_t a, uint16_t b, float c)
{
    float x = flush(ph_from_bf16(a)), y = flush(ph_from_bf16(b)), z = fmaf(x, y, c);
    if (fabsf(z) == 0x1p-126f && fabsf(fmaf(x * 0x1p60f, y, c * 0x1p60f)) < 0x1p-66f)
        return copysignf(0, z);
    return flush(z);
}

/* One step of 32: a row of the left operand, a column of the right one. */
static float step(float sum, const uint16_t *line, const uint16_t *tile, int column)
{
    float even = 0, odd = 0;
    for (int i = 0; i < PH_AMX_TILE; i++) {
        const uint16_t *pair = tile + i * PH_AMX_STEP + 2 * column;
        even = multiply_add(line[2 * i], pair[0], even);
        odd = multiply_add(line[2 * i + 1], pair[1], odd);
    }
    return add(sum, add(even, odd));
}

static void scores(int m, int n, int k, const uint16_t *a, const uint16_t *b, float scale,
                   float *s, float *lane_max)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            const uint16_t *panel = b + (int64_t)(j / PH_AMX_TILE) * k * PH_AMX_TILE;
            float sum = 0;
            for (int at = 0; at < k; at += PH_AMX_STEP)
                sum = step(sum, a + at * PH_AMX_TILE + i * PH_AMX_STEP,
                           panel + at * PH_AMX_TILE, j % PH_AMX_TILE);
            s[i * PH_STRIP_LD + j] = lane_max ? sum * scale : sum;
            if (!lane_max) continue;
            float *highest = &lane_max[i * PH_LANES + j % PH_LANES];
            *highest = *highest > sum * scale ? *highest : sum * scale;
        }
}

/* As scores, with the operands swapped: the order within a step is the same. */
static void scores_in_place(int m, int n, int k, const uint16_t *a, const uint16_t *b,
                            int64_t ldb, int64_t prefetch_bytes, float scale, float *s,
                            float *lane_max)
{
    (void)prefetch_bytes;
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float sum = 0;
            for (int at = 0; at < k; at += PH_AMX_STEP)
                sum = step(sum, b + j * ldb + at, a + at * PH_AMX_TILE, i);
            s[i * PH_STRIP_LD + j] = lane_max ? sum * scale : sum;
            if (!lane_max) continue;
            float *highest = &lane_max[i * PH_LANES + j % PH_LANES];
            *highest = *highest > sum * scale ? *highest : sum * scale;
        }
}

/* ---- weights ---- */

static void truncate_bf16x3(float x, int at, uint16_t *to)
{
    for (int p = 0; p < PH_BF16_TERMS; p++) {
        uint16_t upper = (uint16_t)(ph_bits(x) >> 16);
        to[p * TILE + at] = upper;
        x -= ph_from_bf16(upper);
    }
}

/* Softmax weights of the strip, split into terms. */
static void softmax_weights(const ph_strip *x)
{
    float p[PH_AMX_TILE * PH_STRIP_LD];
    memcpy(p, x->s, ((size_t)(x->m - 1) * PH_STRIP_LD + (size_t)x->n) * sizeof *p);
    ph_kernels_ref.softmax(x->m, x->n, p, x->lane_max, x->row_max, x->sum, x->rescale);
    for (int i = 0; i < x->m; i++)
        for (int c = 0; c < ph_round_up(x->n, PH_AMX_STEP); c++) {
            float weight = c < x->n ? p[i * PH_STRIP_LD + c] : 0;
            if (c < x->n && x->drop) weight *= x->drop[i * PH_STRIP_LD + c];
            truncate_bf16x3(weight, c % PH_AMX_TILE * 2 + c % PH_AMX_STEP / PH_AMX_TILE,
                            x->terms + c / PH_AMX_STEP * PH_BF16_TERMS * TILE +
                                i * PH_AMX_STEP);
        }
}

static void attend(const ph_strip *x)
{
    softmax_weights(x);
    for (int i = 0; i < x->m; i++)
        for (int j = 0; j < x->width; j++) {
            float *c = x->c + i * x->ldc + j, sum = x->fresh ? 0 : *c * x->rescale[i];
            for (int t = 0; t < ph_div_up(x->n, PH_AMX_STEP) * PH_BF16_TERMS; t++) {
                int64_t at = (int64_t)(t / PH_BF16_TERMS) * x->width +
                             j / PH_AMX_TILE * PH_AMX_TILE;
                sum = step(sum, x->terms + t * TILE + i * PH_AMX_STEP,
                           x->v + at * PH_AMX_STEP, j % PH_AMX_TILE);
            }
            *c = sum;
        }
}

static int attend_in_place(const ph_strip *strip, const uint16_t *v, int64_t ldv,
                           int keys, int64_t prefetch_bytes)
{
    uint16_t tiles[PH_STRIP_LD * MAX_WIDTH];
    const void *rows[PH_STRIP_LD];
    ph_strip x = *strip;
    if (x.width > MAX_WIDTH) return 0;
    for (int k = 0; k < keys; k++) rows[k] = v + k * ldv;
    for (int k = 0; k < keys; k += PH_AMX_STEP)
        if (!pack_pairs(tiles + k * x.width, rows + k, ph_min(PH_AMX_STEP, keys - k),
                        x.width, prefetch_bytes))
            return 0;
    x.v = tiles;
    attend(&x);
    return 1;
}

/* ---- gradients of scores ---- */

/* Row r of p and ds, PH_STRIP_LD floats each. */
static void score_grad_row(const ph_score_grad *x, int r, float *p, float *ds)
{
    int at = r * PH_STRIP_LD;
    for (int c = 0; c < x->n; c++) p[c] = ds[c] = 0;
    if (r >= x->m) return;
    for (int c = 0; c < x->n; c++) p[c] = x->s[at + c] * x->scale, ds[c] = x->dp[at + c];
    ph_kernels_ref.gradient(1, x->n, p, ds, x->drop ? x->drop + at : NULL,
                            x->derivative ? x->derivative + at : NULL, x->lse + r,
                            x->delta + r);
    for (int c = 0; c < x->n; c++)
        if (x->s[at + c] * x->scale == -INFINITY) p[c] = 0;
}

static int score_grad(const ph_score_grad *x)
{
    float p[PH_STRIP_LD], ds[PH_STRIP_LD];
    int small = 1;
    for (int r = 0; r < PH_AMX_STEP; r++) {
        int i = r % PH_AMX_TILE, half = r / PH_AMX_TILE;
        score_grad_row(x, r, p, ds);
        for (int c = 0; c < x->n; c++) {
            int64_t column = c / PH_AMX_TILE * PH_BF16_TERMS * TILE;
            int64_t block = (c / PH_AMX_STEP * 2 + half) * PH_BF16_TERMS * TILE;
            int at = i * PH_AMX_STEP + c % PH_AMX_TILE * 2 + half;
            truncate_bf16x3(p[c], at, x->p + column);
            truncate_bf16x3(ds[c], at, x->ds + column);
            truncate_bf16x3(ds[c],
                            i * PH_AMX_STEP + c % PH_AMX_TILE * 2 +
                                c % PH_AMX_STEP / PH_AMX_TILE,
                            x->ds_rows + block);
            small &= fabsf(ds[c]) < 0x1p16f;
        }
    }
    return small;
}

/* ---- bf16x3 ---- */

static float element_at(const void *from, ph_dtype type, int64_t at)
{
    return type == PH_F32 ? ((const float *)from)[at]
                          : ph_from_bf16(((const uint16_t *)from)[at]);
}

/* x rounded to bf16, ties away from 0. */
static uint16_t round_bf16(float x)
{
    return (uint16_t)((ph_bits(x) + 0x8000u) >> 16);
}

static int split_element(float x, uint16_t *to, int64_t term)
{
    float rest = x - ph_from_bf16(to[0] = round_bf16(x));
    to[term] = round_bf16(rest);
    to[2 * term] = (uint16_t)(ph_bits(rest - ph_from_bf16(to[term])) >> 16);
    return (ph_bits(x) & 0xffffu) != 0;
}

static int split_bf16x3(uint16_t *dst, const void *from, ph_dtype type, int64_t stride,
                        int lines, int k, int k_contiguous, int pairs)
{
    int steps = ph_div_up(k, PH_AMX_STEP), terms = 1;
    int64_t term = (int64_t)PH_AMX_BLOCK * steps * PH_AMX_STEP;
    for (int line = 0; line < PH_AMX_BLOCK; line++)
        for (int kk = 0; kk < steps * PH_AMX_STEP; kk++) {
            int r = line % PH_AMX_TILE, i = kk % PH_AMX_TILE,
                half = kk % PH_AMX_STEP / PH_AMX_TILE;
            int64_t tile =
                ((int64_t)(line / PH_AMX_TILE) * steps + kk / PH_AMX_STEP) * TILE;
            uint16_t *to = dst + tile +
                           (pairs ? i * PH_AMX_STEP + 2 * r : r * PH_AMX_STEP + 2 * i) +
                           half;
            float x = 0;
            if (line < lines && kk < k)
                x = element_at(from, type,
                               k_contiguous ? line * stride + kk : kk * stride + line);
            if (type == PH_BF16)
                *to = (uint16_t)(ph_bits(x) >> 16);
            else if (split_element(x, to, term))
                terms = PH_BF16_TERMS;
        }
    return terms;
}

/* The dot product of a row of one operand and a column of the other. */
static float dot_of_terms(float sum, int steps, const ph_operand *a, const uint16_t *line,
                          const ph_operand *b, const uint16_t *tile, int column)
{
    static const int order[][2] = {{0, 2}, {0, 1}, {1, 1}, {1, 0}, {2, 0}, {0, 0}};
    for (int s = 0; s < steps; s++)
        for (int o = 0; o < 6; o++) {
            int p = order[o][0], q = order[o][1];
            if (p < a->terms && q < b->terms)
                sum = step(sum, line + p * a->term + s * a->step,
                           tile + q * b->term + s * b->step, column);
        }
    return sum;
}

static void multiply(int m, int steps, const ph_operand *a, const ph_operand *b, float *c,
                     int64_t ldc, int add)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < PH_AMX_BLOCK; j++)
            c[i * ldc + j] = dot_of_terms(
                add ? c[i * ldc + j] : 0, steps, a,
                a->tiles + i / PH_AMX_TILE * a->group + i % PH_AMX_TILE * PH_AMX_STEP, b,
                b->tiles + j / PH_AMX_TILE * b->group, j % PH_AMX_TILE);
}

static void multiply_in_place(int m, int n, int k, const ph_operand *a, const float *b,
                              int64_t ldb, float *c, int64_t ldc)
{
    uint16_t tiles[PH_BF16_TERMS * PH_AMX_BLOCK * PH_AMX_STEP];
    for (int kk = 0; kk < k; kk += PH_AMX_STEP)
        for (int j = 0; j < n; j++) {
            split_bf16x3(tiles, b + kk * ldb + j, PH_F32, ldb, 1,
                         ph_min(PH_AMX_STEP, k - kk), 0, 1);
            ph_operand right = ph_bf16x3_operand(tiles, PH_BF16_TERMS, 1);
            for (int i = 0; i < m; i++) {
                const uint16_t *line = a->tiles + kk / PH_AMX_STEP * a->step +
                                       i / PH_AMX_TILE * a->group +
                                       i % PH_AMX_TILE * PH_AMX_STEP;
                float *sum = c + i * ldc + j;
                *sum = dot_of_terms(*sum, 1, a, line, &right, tiles, 0);
            }
        }
}

static int multiply_few_rows(int m, int n, int k, const ph_operand *a, const float *b,
                             int64_t ldb, float *c, int64_t ldc)
{
    multiply_in_place(m, n, k, a, b, ldb, c, ldc);
    return 1;
}

const ph_bf16_pairs ph_bf16_pairs_ref = {
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
    .attend_in_place = attend_in_place,
    .score_grad = score_grad,
    .split_bf16x3 = split_bf16x3,
    .multiply = multiply,
    .multiply_in_place = multiply_in_place,
    .multiply_few_rows = multiply_few_rows,
};
