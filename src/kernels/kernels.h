/*
 * kernels.h - the micro-kernels: pointers and sizes, no knowledge of attention.
 *
 * One table per instruction set, all made from the same templates; `ref` is the same in
 * plain loops and is what the others are checked against, bit by bit.
 *
 * Order of sums. Every kernel fixes the order in which each number is summed, so that the
 * result depends neither on tile sizes nor on the instruction set:
 *   - a product C[i][j] is one chain of fused multiply-adds over k = 0, 1, 2, ...
 *   - a sum along a row runs in 16 lanes, lane = column mod 16, each lane in column
 *     order; the lanes are added by halves: i + (i+8), then i + (i+4), i + (i+2),
 *     i + (i+1).
 *
 * Layouts. `mr` x `nr` is the register tile. A score strip is up to mr rows of
 * PH_STRIP_LD floats. Operands of products come in three forms:
 *
 *     packed panel    mr (or nr) rows, K-major:  p[k*ld + row]
 *
 *         row 0  row 1 ... row mr-1 |      one line per k: a kernel broadcasts its
 *         ------------------------- |      elements (left operand) or loads it as
 *   k=0     .      .          .     |      vectors (right operand)
 *   k=1     .      .          .     v
 *
 *     row-major       r[row*ld + k]
 *
 * Columns: a row that kernels write has the capacity of its length rounded up to 16;
 * where a contract says "padded" the extra columns are written with zeros. Behind packed
 * operands PH_PACK_SLACK floats may be overwritten. m <= mr, m, n, k >= 1. No aliasing.
 */
#ifndef PH_KERNELS_KERNELS_H
#define PH_KERNELS_KERNELS_H

#include "kernels/whole_head.h"

/*
 * Products of bf16 without conversion, for units that multiply pairs of elements (AMX). A
 * product of two bf16 is exact in f32, and sums are f32. Operands are contiguous tiles of
 * PH_AMX_TILE rows of PH_AMX_STEP elements, 1 KB each:
 *
 *     rows     left operand     row r holds 32 elements of row r
 *     pairs    right operand    row i holds two elements of each of 16 columns,
 *                               interleaved: 2i and 2i+1 of the step, or i and i+16 (P V)
 *
 * What one step of 32 elements adds to a sum, subnormals being flushed to 0 everywhere:
 *
 *     even = chain of fused multiply-adds over the first elements of the pairs, from 0
 *     odd  = the same over the second ones
 *     sum  = sum + (even + odd)
 *
 * Softmax weights are f32 and are split by truncation into three bf16 terms that add up
 * to the weight exactly: p = high + middle + low. A step adds the product of the high
 * terms, then of the middle, then of the low ones.
 *
 * Any other f32 matrix is split into up to three terms, each rounded to nearest:
 * x = x0 + x1 + x2 exactly (bf16x3). The product of two such omits what is below 2^-24 of
 * it; a step adds, small ones first,
 *
 *     a0 b2    a0 b1    a1 b1    a1 b0    a2 b0    a0 b0
 *
 * of which those with a term that is 0 everywhere add nothing and may be skipped. Lines
 * (rows of the left operand, columns of the right one) come PH_AMX_BLOCK at a time, in
 * two groups of PH_AMX_TILE.
 */

/* One operand of a bf16x3 product, of 1 or PH_BF16_TERMS terms. term, group, step: the
   distances in elements to the same tile of the next term, to the second group of lines,
   to the next step of k. */
typedef struct ph_operand {
    const uint16_t *tiles;
    int terms;
    int64_t term, group, step;
} ph_operand;

/* The layout of split_bf16x3: tile ((term * 2 + group) * steps + step). */
static inline ph_operand ph_bf16x3_operand(const uint16_t *tiles, int terms, int steps)
{
    const int64_t tile = PH_AMX_TILE * PH_AMX_STEP;
    return (ph_operand){tiles, terms, 2 * steps * tile, steps * tile, tile};
}

/* One step of the online softmax on a strip of scores, and its product with V: softmax of
   ph_kernels on m rows and n columns of s. The weights, times drop (a strip of factors,
   or NULL), are split into terms: for each 32 columns PH_BF16_TERMS tiles of rows, the
   columns in pairs (c, c+16); beyond n, weights are 0. Then

       c[i*ldc + j] = c[i*ldc + j] * rescale[i] + sum_k p[i][k] * v[k][j]     j < width

   n and width are multiples of 16, v comes from pack_pairs; fresh: c is overwritten. c
   has as many rows as begin was given; those from m on are unspecified. terms has the
   capacity for all n, and holds them at the end if `keep`. */
typedef struct ph_strip {
    int m, n;
    const float *s, *lane_max, *drop;
    float *row_max, *sum, *rescale;
    uint16_t *terms;
    int keep;
    const uint16_t *v;
    int width, fresh;
    float *c;
    int64_t ldc;
} ph_strip;

/* P and dS of up to PH_AMX_STEP rows: gradient of ph_kernels on m rows and n columns of
   scale * s and of dp, except that p is 0 too where s is -inf. Both are split into terms
   as weights are above: p and ds as tiles of pairs, PH_BF16_TERMS for each 16 columns,
   the rows in pairs (i, i+16); ds_rows as tiles of rows, PH_BF16_TERMS for each 16 rows
   of each 32 columns, the columns in pairs (c, c+16). n is a multiple of PH_AMX_STEP, m
   at most PH_AMX_STEP; rows from m on are 0. */
typedef struct ph_score_grad {
    int m, n;
    const float *s, *dp; /* PH_STRIP_LD floats per row, here and in the next two */
    const float *drop, *derivative; /* may be NULL */
    const float *lse, *delta;
    float scale;
    uint16_t *p, *ds, *ds_rows;
} ph_score_grad;

typedef struct ph_bf16_pairs {
    /* Configure and release the tiles of this thread, around the products below; strips
       have up to `rows` rows, at most PH_AMX_TILE. */
    void (*begin)(int rows);
    void (*end)(void);

    /* Rows [0, count) of k elements as tiles of rows, a tile per step; padded with zeros,
       missing rows too. */
    void (*pack_rows)(uint16_t *dst, const void *const *rows, int count, int k);

    /* Up to PH_AMX_TILE rows, transposed: tiles of pairs whose columns are the rows, a
       tile per step; padded with zeros. Prefetches at that distance behind each row. */
    void (*pack_panel)(uint16_t *dst, const void *const *rows, int count, int k,
                       int64_t prefetch_bytes);

    /* Up to PH_AMX_STEP rows, not transposed: tiles of pairs (i, i+16), one per
       PH_AMX_TILE columns; padded with zeros. Returns 1 if ph_is_normal holds for every
       element. */
    int (*pack_pairs)(uint16_t *dst, const void *const *rows, int count, int n,
                      int64_t prefetch_bytes);

    /* Whether ph_is_normal holds for every element of `count` rows of n. */
    int (*all_normal)(const void *const *rows, int count, int n);

    /* Up to PH_AMX_STEP rows, transposed, as left operand: tiles of rows whose elements
       are in pairs (i, i+16), one per PH_AMX_TILE columns; padding and result as in
       pack_pairs. */
    int (*pack_columns)(uint16_t *dst, const void *const *rows, int count, int n);

    /* s[i][j] = scale * sum_k a[i][k] * b[j][k] for i < m, j < n; k a multiple of
       PH_AMX_STEP, n of 16; a one strip of pack_rows, b panels of pack_panel. Updates
       lane_max as scores of ph_kernels does; if lane_max is NULL, scale is taken as 1. s
       has as many rows as begin was given; those from m on are unspecified. */
    void (*scores)(int m, int n, int k, const uint16_t *a, const uint16_t *b, float scale,
                   float *s, float *lane_max);

    /* The same for row-major keys in place, b[j*ldb + k]: a is pack_panel of its rows, n
       a multiple of PH_AMX_TILE. Prefetches at that distance behind each key. */
    void (*scores_in_place)(int m, int n, int k, const uint16_t *a, const uint16_t *b,
                            int64_t ldb, int64_t prefetch_bytes, float scale, float *s,
                            float *lane_max);

    void (*attend)(const ph_strip *strip);

    /* The same for m <= PH_FEW_ROWS rows and row-major values in place, v[k*ldv + j], of
       which the first `keys` exist; width is a multiple of PH_AMX_STEP, terms are not
       written. Prefetches at that distance behind each value. Returns 0, with nothing
       written, where a value is subnormal or non-finite, a sum is non-finite, or width is
       very large. */
    int (*attend_in_place)(const ph_strip *strip, const uint16_t *v, int64_t ldv,
                           int keys, int64_t prefetch_bytes);

    /* Returns 0 if some ds is non-finite, 1 if all magnitudes are below 2^16; else
       either. */
    int (*score_grad)(const ph_score_grad *x);

    /* The bf16x3 split of up to PH_AMX_BLOCK lines of k elements, f32 or bf16; padded
       with zeros, missing lines too. Either each line is contiguous (k_contiguous), or
       the elements of all lines for one k are; the next line, or k, is `stride` elements
       further. They become tiles of rows, or of pairs (i, i+16). Returns how many terms
       were written: 1 or PH_BF16_TERMS, the others being 0. */
    int (*split_bf16x3)(uint16_t *dst, const void *from, ph_dtype type, int64_t stride,
                        int lines, int k, int k_contiguous, int pairs);

    /* c[i*ldc + j] (+)= sum_k a[i][k] * b[k][j] for i < m, j < PH_AMX_BLOCK. All rows of
       the tiles used are written: as many as begin was given, or PH_AMX_BLOCK if m is
       above that. */
    void (*multiply)(int m, int steps, const ph_operand *a, const ph_operand *b, float *c,
                     int64_t ldc, int add);

    /* split_bf16x3 and multiply for a b that is used once, read in place: b[k*ldb + j],
       j < n, PH_AMX_STEP rows at a time. c is added to, its rows as for multiply; its
       columns from n up to a multiple of 16 are unspecified. a holds all of k. */
    void (*multiply_in_place)(int m, int n, int k, const ph_operand *a, const float *b,
                              int64_t ldb, float *c, int64_t ldc);

    /* The same for m <= PH_FEW_ROWS rows, outside of begin and end. May return 0 where an
       operand or a result is subnormal: c is unspecified then. */
    int (*multiply_few_rows)(int m, int n, int k, const ph_operand *a, const float *b,
                             int64_t ldb, float *c, int64_t ldc);
} ph_bf16_pairs;

/* Rows of a strip if `rows` are cut evenly: a short last strip would have too few
   independent sums to hide the latency of the FMA. */
static inline int ph_even_strip(int rows, int mr)
{
    return ph_div_up(rows, ph_div_up(rows, mr));
}

typedef void ph_few_rows_fn(int m, int n, int k, const float *a, int64_t lda,
                            const void *b, int64_t ldb, ph_dtype type, float *c,
                            int64_t ldc);

typedef struct ph_kernels {
    const char *name;
    const char *vectors; /* the table whose f32 kernels these are; its own name in most */
    int mr, nr;
    int few_rows; /* rows up to which keys are better not packed for scores */
    const ph_bf16_pairs *bf16_pairs; /* for bf16; NULL: it is converted like f16 */
    int f32_tiles; /* 1: for gradients of f32 ones too, with bits of their own */

    /* ---- packing: conversion to f32 happens here. Rows of a block type begin with a
       block, and what is read of them is a multiple of 16 elements. ---- */

    /* dst[k*ld + r] = scale * rows[r][k] for r < count; lanes r in [count, ld) become 0.
       count <= ld; up to PH_PACK_SLACK floats behind the last line may be overwritten. */
    void (*pack_panel)(float *dst, int64_t ld, const void *const *rows, int count, int k,
                       ph_dtype type, float scale);

    /* dst[r*ld + c] = scale * rows[r][c] for c < n, padded. ld >= n rounded up to 16. */
    void (*pack_row_major)(float *dst, int64_t ld, const void *const *rows, int count,
                           int n, ph_dtype type, float scale);

    /* dst[c] = scale * src[c] in the given type, rounded once; -0 becomes +0. */
    void (*store_row)(void *dst, const float *src, int n, ph_dtype type, float scale);

    /* 1 if every one of rows x n floats is finite. n a multiple of 16. */
    int (*finite)(const float *x, int64_t ld, int rows, int n);

    /* ---- products ---- */

    /* s[i][j] = sum_k a[i*lda + k] * b[panel of j][k*nr + j mod nr], j < n, n a multiple
       of 16; b holds panels of nr columns behind each other, k*nr floats each. Raises
       lane_max[i*16 + lane] to the largest s of row i in each lane, unless lane_max is
       NULL; s has PH_STRIP_LD. */
    void (*scores)(int m, int n, int k, const float *a, int64_t lda, const float *b,
                   float *s, float *lane_max);

    /* The same product and lane maxima for few rows, against row-major keys in place:
       s[i][j] = sum_k a[i*lda + k] * b[j*ldb + k], j < n, n any; columns from n up to a
       multiple of 16 repeat the last. Prefetches the keys that follow, next_keys of them,
       up to 16, from `next` on; NULL: none do. */
    void (*scores_in_place)(int m, int n, int k, const float *a, int64_t lda,
                            const void *b, int64_t ldb, ph_dtype type, const void *next,
                            int next_keys, float *s, float *lane_max);

    /* c[i*ldc + j] = c[i*ldc + j] * rescale[i] + sum_k p[i*PH_STRIP_LD + k] * b[k*ldb +
       j]; rescale NULL: c is overwritten. n a multiple of 16. Few rows are memory-bound
       and prefetch PH_PREFETCH_BYTES from `prefetch` on for each of the k steps of each
       nr columns; more than two thirds of mr are compute-bound and prefetch nr bytes per
       step, k*n in all. Any address is valid; NULL prefetches nothing. */
    void (*multiply_v)(int m, int n, int k, const float *p, const float *b, int64_t ldb,
                       float *c, int64_t ldc, const float *rescale, const void *prefetch);

    /* c[i*ldc + j] (+)= sum_k a[k*lda + i] * b[panel of j][k*ldb + j mod nr]; panels
       start `panel` floats apart (row-major b: panel = nr, ldb its row length). add 0: c
       is overwritten. n a multiple of 16. Prefetches as multiply_v does, but only
       PH_PREFETCH_TRICKLE bytes per step when compute-bound, the same for each nr
       columns. */
    void (*product)(int m, int n, int k, const float *a, int64_t lda, const float *b,
                    int64_t ldb, int64_t panel, float *c, int64_t ldc, int add,
                    const void *prefetch);

    /* All of a head: softmax and weigh over blocks of PH_STRIP_LD keys, splits of
       PH_SPLIT keys on their own and merged in order, as attn/online.h has it. lse is the
       maximum times log 2, in double, plus the sum as logs leaves it, rounded. */
    void (*head_forward)(const ph_head *head);

    /* Each sum one chain over keys or rows in order. */
    void (*head_backward)(const ph_grad_block *tile);

    /* y[c] += a * x[c], c < n, n a multiple of 16. */
    void (*axpy)(int n, float a, const float *x, float *y);

    /* ---- rows ---- */

    /* One step of the online softmax on m rows of a strip, n columns (multiple of 16,
       hidden ones -inf), in base 2. row_max[i] is the running maximum, sum[i*16 + lane]
       the running sums; rescale[i] = 2^(old row_max - new row_max) is what earlier
       results shrink by. s becomes 2^(s - row_max). A row that has seen nothing keeps
       row_max = -inf. */
    void (*softmax)(int m, int n, float *s, const float *lane_max, float *row_max,
                    float *sum, float *rescale);

    /* s becomes p = 2^(s - lse[i]), dp becomes ds = p * (drop * dp - delta[i]) *
       derivative. drop (a strip of factors) and derivative (of the soft-cap, a strip too)
       may be NULL: 1; with drop s ends as drop * p. Where s is -inf both become 0. */
    void (*gradient)(int m, int n, float *s, float *dp, const float *drop,
                     const float *derivative, const float *lse, const float *delta);

    /* s[c] = 2^(s[c] - lse); n any, padded to 16. Here, as in softmax and gradient, a
       score is not above what it is measured from, but for rounding. */
    void (*weights)(int n, float *s, float lse);

    /* x[c] = natural logarithm of x[c], positive and normal; n a multiple of 16. */
    void (*logs)(int n, float *x);

    /* sum_c x[c] * y[c] in 16 lanes; n any, x and y are padded to 16 with zeros. */
    float (*dot)(int n, const float *x, const float *y);

    /* sums[i] = dot of x[i*ldx..] and y[i*ldy..], i < m, m any. */
    void (*dots)(int m, int n, const float *x, int64_t ldx, const float *y, int64_t ldy,
                 float *sums);

    /* Per-row inputs of the backward pass: delta[i] = x[i] . y[i], of dout and out, and
       base[i] = lse[i] in base 2; for a row without keys (lse -inf) 0 and +inf. */
    void (*deltas)(int m, int n, const float *x, int64_t ldx, const float *y, int64_t ldy,
                   const float *lse, float *base, float *delta);

    /* y[c] *= x[c], n a multiple of 16. */
    void (*times)(int n, float *y, const float *x);

    /* y[c] = y[c] * a + x[c] * b, n a multiple of 16. */
    void (*blend)(int n, float *y, float a, const float *x, float b);

    /* lane_max[lane] = max over the row in each lane, from -inf. n a multiple of 16. */
    void (*row_lane_max)(int n, const float *s, float *lane_max);

    /* Hides columns outside [lo[i], hi[i]) of m rows of a strip, and lane_max[i*16 +
       lane] becomes what row_lane_max gives. n a multiple of 16, 0 <= lo <= hi <= n. */
    void (*clip)(int m, int n, float *s, const int *lo, const int *hi, float *lane_max);

    /* total[i] = the 16 lanes of row i, lanes[i*16..], added by halves; i < m. */
    void (*lane_sums)(int m, const float *lanes, float *total);

    /* s[c] += factor * bias[c] and -inf where bias[c] is -inf; c < n, any n. */
    void (*add_bias)(int n, float *s, const float *bias, float factor);

    /* m rows of s, n of each, n any, padded to 16; lane_max[i*16..]: what
       row_lane_max gives for row i where n is a multiple of 16. s[c] -= slope[i] *
       |first[i] + c|, whole numbers below 2^24. */
    void (*add_alibi)(int m, int n, float *s, const float *slope, const float *first,
                      float *lane_max);
    /* s[c] = cap * tanh(s[c] / cap); derivative (a strip, or NULL): 1 - tanh^2 to its own
       last places, 0 where s is NaN; finite up to the next 16. */
    void (*softcap)(int m, int n, float *s, float cap, float *lane_max,
                    float *derivative);

    /* s[c] = -inf where visible[c] is 0; c < n, any n. */
    void (*hide)(int n, float *s, const uint8_t *visible);

    /* f[c] = 0 where the random number of (key, first + c) is below limit, else keep;
       n any, padded to 16. */
    void (*dropout)(int n, float *f, uint64_t key, uint32_t first, uint32_t limit,
                    float keep);

    /* dst[c] = scale * src[at + c], padded: one row of pack_row_major. In a block type at
       is a multiple of 16. */
    void (*load_row)(float *dst, const void *src, int64_t at, int n, ph_dtype type,
                     float scale);

    /* ---- mixed heads, and rows that are not softmax ---- */

    /* The key part of a mix on one row of each head: for c < n
           hidden[r] = sum_h w1[r][h][c] * x[h][c]
           y[h][c] += g[h][c] * x[h][c] + sum_r w2[r][h][c] * hidden[r]
       each a chain in the order of the indices. Rows of w1, w2 (rank, heads) and g
       (heads) are PH_STRIP_LD floats, those of x and y lie ld apart; n a multiple
       of 16. */
    void (*compose)(int heads, int rank, int n, const float *w1, const float *w2,
                    const float *g, const float *x, float *y, int64_t ld);

    /* Its gradients, summed over rows i (PH_STRIP_LD apart), each a chain over i:
           dw1[r][h][c] += e[r] * x[h][i][c]          e[r] = sum_h w2[r][h] * dy[h]
           dw2[r][h][c] += hidden[r] * dy[h][i][c]    dg[h][c] += x[h] * dy[h]
       scratch holds 2 * rank * rows * 16 floats. */
    void (*decompose)(int heads, int rank, int rows, int n, const float *w1,
                      const float *w2, const float *x, const float *dy, int64_t ld,
                      float *dw1, float *dw2, float *dg, float *scratch);

    /* dp[c] = p[c] * (dp[c] - delta), and 0 where p[c] is 0; n a multiple of 16. */
    void (*center)(int n, const float *p, float delta, float *dp);

    /* g[i*ldg + j] += sum_c x[i*ldx + c] * y[j*ldy + c] for i < m, j < n, c < k, in 16
       lanes; k a multiple of 16. */
    void (*gram)(int m, int n, int k, const float *x, int64_t ldx, const float *y,
                 int64_t ldy, float *g, int64_t ldg);

    /* Lists scale * (s[c] - row_max) where that is above -1, in order; returns how many.
       n a multiple of 16; the list has capacity for 16 more than it holds. */
    int (*near_row_max)(int n, const float *s, float scale, float row_max, float *list);

    /* sums[0] = sum of u^a, sums[1] = sum of u^(a-1) over u = 1 + (x[c] - d) > 0, in 16
       lanes; n a multiple of 16, x[c] <= d, a >= 1. */
    void (*power_sums)(int n, const float *x, float d, float a, float *sums);

    /* s[c] = u^a, derivative[c] = u^(a-1) where u = 1 + scale*(s[c] - base) > 0, else 0;
       u is at most 1 but for rounding. Near 1 the powers come from u - 1, which is not
       rounded to u first: a may be large. derivative may be NULL; n a multiple of 16, a
       >= 1. */
    void (*entmax)(int n, float *s, float *derivative, float scale, float base, float a);

    /* ---- for the products of a layer ---- */

    /* Rows to panels: dst[c/width*panel + kk*width + c%width] =
       src[kk*stride + c], c < n; the last panel is filled with zeros. width is mr or
       nr. */
    void (*pack_panels)(float *dst, int width, int64_t panel, const void *src,
                        int64_t stride, int k, int n, ph_dtype type);

    /* y[i*ld + c] += x[c] for i < m, c < n; m and n any. */
    void (*add_rows)(int m, int n, const float *x, float *y, int64_t ld);

    /* c[i*ldc + j] += sum_k a[i*lda + k] * b[k*ldb + j] for few rows, a line of b after
       the other: m, n, k any. Rows of block types are whole blocks. */
    ph_few_rows_fn *product_few_rows;

    /* The same with b transposed, b[j*ldb + k], read in place: m <= few_rows. */
    ph_few_rows_fn *product_few_rows_t;
} ph_kernels;

/* Whether a bf16 element is 0 or a normal number: AMX flushes subnormals to 0, and the
   terms of a split weight times Inf would give NaN. */
static inline int ph_is_normal(uint16_t x)
{
    unsigned size = x & 0x7fffu;
    return size == 0 || (size >= 0x80 && size < 0x7f80);
}

/* The tables this CPU can run, weakest ("ref") first, ended by NULL. */
const ph_kernels *const *ph_kernels_list(void);
const char *const *ph_kernels_names(void);

/* The best table whose name is at most `limit` in the list; NULL if the name is unknown.
   Without a limit (NULL) the best whose f32 has the bits of all. */
const ph_kernels *ph_kernels_pick(const char *limit);

extern const ph_kernels ph_kernels_ref, ph_kernels_avx2, ph_kernels_avx512,
    ph_kernels_amx, ph_kernels_amx_f32, ph_kernels_neon;

/* ph_bf16_pairs_ref says what the other does, in plain loops; no table has it. */
extern const ph_bf16_pairs ph_bf16_pairs_ref, ph_bf16_pairs_amx;

#endif
