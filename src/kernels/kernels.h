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
 *     across (rows turned)      a panel of mr (or nr) rows, k-major:  p[k*ld + row]
 *
 *         row 0  row 1 ... row mr-1 |      one line per k, so a kernel reads a line,
 *         ------------------------- |      broadcasts its parts (left operand) or loads
 *   k=0     .      .          .     |      it as vectors (right operand)
 *   k=1     .      .          .     v
 *
 *     along (rows as they are)  r[row*ld + k]
 *
 * Columns: a row that kernels write has room for its length rounded up to 16; where a
 * contract says "padded" the extra columns are written with zeros. Packed operands have
 * PH_PACK_SLACK floats of room behind them. m <= mr, m, n, k >= 1. No aliasing.
 */
#ifndef PH_KERNELS_KERNELS_H
#define PH_KERNELS_KERNELS_H

#include "base/base.h"

#define PH_LOG2E 1.4426950408889634
#define PH_LN2   0.69314718055994531

enum {
    PH_STRIP_LD = 128,  /* columns of a score strip, and keys in a block */
    PH_SPLIT = 512,     /* keys whose softmax runs on its own, then is merged in order */
    PH_LANES = 16,      /* lanes of a row sum */
    PH_PACK_SLACK = 64, /* floats that may be written behind a packed operand */
    PH_FETCH = 128,     /* bytes asked for ahead, per step of a product */
    PH_ASK = 8,         /* the same where a step takes its time */
    PH_RANK_MAX = 16,   /* largest rank of the key part of a mix */
    PH_MR_MAX = 12,     /* largest mr of any table */
    PH_TILE = 16,       /* rows of a tile, and columns of a tile of sums */
    PH_STEP = 32,       /* numbers of a tile's row, or of its column, in bf16 */
    PH_PARTS = 3,       /* parts of an f32 number in bf16 */
    PH_WIDE = 32,       /* rows and columns of one product of parts */
    PH_FEW = 2,         /* rows that are better multiplied without tiles */
    PH_STRIP_MAX = 16,  /* largest strip: mr rows, or those of a tile */
    PH_NR_MAX = 32      /* largest nr of any table */
};

/*
 * Products of bf16 numbers as they are, for units that multiply pairs of them (AMX). A
 * product of two such numbers is exact in f32, and sums are f32. Operands come in tiles
 * of PH_TILE lines of PH_STEP numbers, 1 KB each, behind each other:
 *
 *     rows     left operand     line r holds 32 numbers of row r
 *     pairs    right operand    line i holds two numbers of each of 16 columns side by
 *                               side: 2i and 2i+1 of the step, or i and i+16 (weigh)
 *
 * What one step of 32 numbers adds to a sum, numbers below 2^-126 being 0 everywhere:
 *
 *     even = chain of fused multiply-adds over the first numbers of the pairs, from 0
 *     odd  = the same over the second ones
 *     sum  = sum + (even + odd)
 *
 * Softmax weights are f32 and go in as three parts of 8 bits, which together are the
 * weight exactly: p = high + middle + low. A step adds the product of the high parts,
 * then of the middle, then of the low ones.
 *
 * Matrices of any f32 numbers go in as up to three parts, each rounded to the nearest:
 * x = x0 + x1 + x2 exactly. The product of two such leaves out what is below 2^-24 of it;
 * a step adds, small ones first,
 *
 *     a0 b2    a0 b1    a1 b1    a1 b0    a2 b0    a0 b0
 *
 * of which those with a part that is 0 everywhere add nothing and may be left out. Lines
 * (rows of the left operand, columns of the right one) come PH_WIDE at a time, in two
 * groups of PH_TILE.
 */

/* Tiles of one operand of a product of parts, 1 or PH_PARTS: how many numbers lie between
   a tile and its like in the next part, in the second group of lines, in the next
   step. */
typedef struct ph_operand {
    const uint16_t *tiles;
    int parts;
    int64_t part, group, step;
} ph_operand;

/* What split leaves: tile (part, group, step) is ((part * 2 + group) * steps + step). */
static inline ph_operand ph_split_operand(const uint16_t *tiles, int parts, int steps)
{
    const int64_t tile = PH_TILE * PH_STEP;
    return (ph_operand){tiles, parts, 2 * steps * tile, steps * tile, tile};
}

/* A strip of scores becomes weights, and these weigh values. softmax of ph_kernels on m
   rows and n columns of s, whose weights, times drop where it is not NULL (a strip of
   factors), become parts: for each 32 columns PH_PARTS tiles of rows, the columns in
   pairs (c, c+16); beyond n, weights are 0. Then

       c[i*ldc + j] = c[i*ldc + j] * alpha[i] + sum_k p[i][k] * v[k][j]     j < width

   n and width multiples of 16, v steps of pack_along; fresh: c is overwritten. c has as
   many rows as begin was told, those from m on are nobody's. parts has room for all n,
   and holds them at the end if `keep`. */
typedef struct ph_strip {
    int m, n;
    const float *s, *peak, *drop;
    float *top, *sum, *alpha;
    uint16_t *parts;
    int keep;
    const uint16_t *v;
    int width, fresh;
    float *c;
    int64_t ldc;
} ph_strip;

/* Scores of PH_STEP rows become weights, and what comes from behind them becomes the
   gradient of the scores: gradient of ph_kernels on m rows and n columns of scale * s and
   of dp, but that a weight is 0 too where s is -inf. Both become parts of 8 bits, as
   weights do above: p and ds as tiles of pairs, PH_PARTS for each 16 columns, the rows in
   pairs (i, i+16); ds_rows as tiles of rows, PH_PARTS for each 16 rows of each 32
   columns, the columns in pairs (c, c+16). n is a multiple of PH_STEP, m at most PH_STEP;
   the rows from m on are 0. */
typedef struct ph_slopes {
    int m, n;
    const float *s, *dp;       /* PH_STRIP_LD floats per row, here and in the next two */
    const float *drop, *slope; /* may be NULL */
    const float *lse, *delta;
    float scale;
    uint16_t *p, *ds, *ds_rows;
} ph_slopes;

typedef struct ph_pairs {
    /* Around the calls of scores and weigh on one thread; strips have up to `rows` rows,
       at most PH_TILE. */
    void (*begin)(int rows);
    void (*end)(void);

    /* Rows [0, count) of k numbers as tiles of rows, a tile per step; padded with zeros,
       missing rows too. */
    void (*pack_rows)(uint16_t *dst, const void *const *rows, int count, int k);

    /* Up to PH_TILE rows, turned: tiles of pairs whose columns are the rows, a tile per
       step; padded with zeros. Asks for what lies `ahead` bytes behind each row. */
    void (*pack_across)(uint16_t *dst, const void *const *rows, int count, int k,
                        int64_t ahead);

    /* Up to PH_STEP rows as they are: tiles of pairs (i, i+16), one per PH_TILE columns;
       padded with zeros. Returns 1 if every number is plain, see ph_is_plain. */
    int (*pack_along)(uint16_t *dst, const void *const *rows, int count, int n,
                      int64_t ahead);

    /* Whether every number of `count` rows of n is plain. */
    int (*all_plain)(const void *const *rows, int count, int n);

    /* Up to PH_STEP rows whose columns become lines: tiles of rows, the numbers of a line
       in pairs (i, i+16), one per PH_TILE columns; padded, and returns, as pack_along. */
    int (*pack_columns)(uint16_t *dst, const void *const *rows, int count, int n);

    /* s[i][j] = scale * sum_k a[i][k] * b[j][k] for i < m, j < n; k a multiple of
       PH_STEP, n of 16; a one strip of pack_rows, b panels of pack_across. Raises peak as
       scores of ph_kernels does; where peak is NULL scale counts as 1. s has as many rows
       as begin was told, those from m on are nobody's. */
    void (*scores)(int m, int n, int k, const uint16_t *a, const uint16_t *b, float scale,
                   float *s, float *peak);

    /* The same for keys as they lie, b[j*ldb + k]: a is pack_across of its rows, n a
       multiple of PH_TILE. Asks for what lies `ahead` bytes behind each key. */
    void (*scores_along)(int m, int n, int k, const uint16_t *a, const uint16_t *b,
                         int64_t ldb, int64_t ahead, float scale, float *s, float *peak);

    void (*attend)(const ph_strip *strip);

    /* The same for m <= PH_FEW rows and values as they lie, v[k*ldv + j], of which the
       first `keys` are there; width is a multiple of PH_STEP, parts are not written. Asks
       for what lies `ahead` bytes behind each. Returns 0, and has done nothing, where a
       value is not plain; also where a sum is not finite, and for very wide ones. */
    int (*attend_along)(const ph_strip *strip, const uint16_t *v, int64_t ldv, int keys,
                        int64_t ahead);

    /* Returns 0 where some ds is not finite, 1 where all are below 2^16 in size; between
       these, either. */
    int (*slopes)(const ph_slopes *slopes);

    /* Up to PH_WIDE lines of k numbers, f32 or bf16, as parts; padded with zeros, missing
       lines too. In memory the numbers of a line (along) or those of all lines for one k
       are neighbours, and the next line, or k, is `stride` numbers further. They become
       tiles of rows, or of pairs (i, i+16). Returns how many parts were written: 1 or
       PH_PARTS, the others being 0. */
    int (*split)(uint16_t *dst, const void *from, ph_dtype type, int64_t stride,
                 int lines, int k, int along, int pairs);

    /* c[i*ldc + j] (+)= sum_k a[i][k] * b[k][j] for i < m, j < PH_WIDE. c has a row for
       each of the tiles used: as many as begin was told, or PH_WIDE if m is above
       that. */
    void (*multiply)(int m, int steps, const ph_operand *a, const ph_operand *b, float *c,
                     int64_t ldc, int add);

    /* What split and multiply make of b[k*ldb + j], j < n, for a b that is used once: c
       is added to, its rows as for multiply, its columns from n up to a multiple of 16
       are nobody's. a holds all of k. Reads b along its rows, PH_STEP of them at a
       time. */
    void (*stream)(int m, int n, int k, const ph_operand *a, const float *b, int64_t ldb,
                   float *c, int64_t ldc);

    /* The same for m <= PH_FEW rows, outside of begin and end. May return 0 where a
       number on the way is below 2^-126: c is nobody's then. */
    int (*few)(int m, int n, int k, const ph_operand *a, const float *b, int64_t ldb,
               float *c, int64_t ldc);
} ph_pairs;

/* Memory that is needed next, for kernels that have time to prefetch it. */
enum { PH_PREFETCH = 5 };
typedef struct ph_prefetch {
    struct {
        const char *at, *end;
    } part[PH_PREFETCH];
    int done; /* parts that have been prefetched */
} ph_prefetch;

/* Where the next `bytes` of it begin, or NULL: nowhere. A rest of a part that would leave
   more than an eighth of them unused is left out. */
static inline const void *ph_prefetch_take(ph_prefetch *p, int64_t bytes)
{
    for (; p->done < PH_PREFETCH; p->done++) {
        const char *at = p->part[p->done].at;
        if (p->part[p->done].end - at < bytes - bytes / 8) continue;
        p->part[p->done].at += bytes;
        return at;
    }
    return NULL;
}

/* Keys that rows see by position: row r is of token (phase + r) / group, and token i sees
   the keys [lo + i, hi + i). lo and hi are at most 2^20 in size. */
typedef struct ph_window {
    int lo, hi, group, phase;
} ph_window;

/* What the scores of rows go through between the product and the softmax, in this order:
   bias, bias by distance, ALiBi, soft-cap; then a bias of -inf and `visible` exclude
   keys. Arrays have an entry for each row; NULL (cap: 0) leaves a step out. */
typedef struct ph_score_mods {
    const float *const *bias;      /* from key 0 on; added times log2(e) */
    const float *const *relative;  /* the same, from a table by distance */
    const float *alibi;            /* slopes times log2(e) */
    const float *distance;         /* of key 0 from the row's position, for alibi */
    float cap;                     /* in base 2 */
    const uint8_t *const *visible; /* from key 0 on; 0 hides */
} ph_score_mods;

/* Which weights are dropped, as `dropout` below has it. */
typedef struct ph_drop {
    const uint32_t *low, *high; /* (rows) halves of their keys; NULL: no dropout */
    uint32_t first, limit;      /* first: the index of key 0 */
    float keep;
} ph_drop;

/* A whole head of attention; rows are q_ld, k_ld, ... floats apart.

       s = mods(scale q k^T)     p = 2^(s - max s)     out = gate drop(p) v / sum of p

   Where a row sees no key out is 0 and lse -inf, or the sink. v is finite where a key is
   hidden from some rows only: [lo, lo + rows - 1) and [hi, hi + rows - 1); with bias or
   visible everywhere. */
typedef struct ph_head {
    int rows, keys, k_dim, v_dim;
    ph_window window; /* of group 1, lo and hi in [-rows, keys] */
    const float *q, *k, *v;
    int64_t q_ld, k_ld, v_ld, out_ld;
    float scale; /* of q, times log2(e) */
    ph_score_mods mods;
    ph_drop drop;
    const float *gate; /* (rows), or NULL: 1 */
    const float *sink; /* one logit that takes part but has no value; or NULL */
    float *out;
    float *lse;           /* (rows) natural logarithm, or NULL: not wanted */
    ph_prefetch prefetch; /* meanwhile: k, q and v of another head */
    float *room;          /* ph_head_floats */
} ph_head;

/* Running sums of a row: maximum, 16 lanes, weighted sum of v. */
static inline int64_t ph_running_floats(int v_pad)
{
    return 1 + PH_LANES + v_pad;
}

/* Room for scores of a block, rows that are turned and their running sums, of all rows if
   there are several splits; and for v of a split where its rows must be filled up. */
static inline size_t ph_head_floats(int rows, int keys, int k_dim, int v_dim)
{
    int64_t k_pad = ph_round_up(k_dim, PH_LANES), v_pad = ph_round_up(v_dim, PH_LANES);
    int64_t kept = keys > PH_SPLIT ? ph_round_up(rows, PH_NR_MAX) : PH_NR_MAX;
    int64_t running = ph_running_floats((int)v_pad);
    int64_t values = v_pad > v_dim ? ph_min(keys, PH_SPLIT) * v_pad : 0;
    return (size_t)(kept * (k_pad + running) + PH_NR_MAX * (running + PH_STRIP_LD) +
                    values);
}

/* Where a gradient goes. */
enum {
    PH_SUMS_NEW, /* to = scale * sum */
    PH_SUMS_ON,  /* dk, dv: the same, and the sum goes on from what is there */
    PH_SUMS_ADD  /* dq: to += sum */
};
typedef struct ph_sums {
    float *to; /* NULL: not wanted */
    int64_t ld;
    float scale;
    int how;
} ph_sums;

/* The backward pass of a head, or of a part of it: rows against keys.

       p = 2^(s - lse)    ds = p (drop dout v^T - delta) (derivative of the soft-cap)
       dq = ds k          dk = ds^T q          dv = (drop p)^T dout

   Rows of the window's group of heads stand side by side. Rows of q, k, v and dout have
   zeros behind k_dim and v_dim up to the next 16; k, q and dout are finite where a key is
   hidden from a row. */
enum { PH_TILE_ROWS = 192, PH_TILE_KEYS = 256, PH_TILE_PIECE = 48 };
typedef struct ph_head_tile {
    int rows, keys; /* at most PH_TILE_ROWS, PH_TILE_KEYS */
    int k_dim, v_dim;
    ph_window window;
    const float *q, *k, *v, *dout;
    int64_t q_ld, k_ld, v_ld, dout_ld;
    float scale; /* of q, times log2(e) */
    ph_score_mods mods;
    ph_drop drop;
    const float *lse, *delta; /* (rows) lse in base 2, +inf: a row without p */
    ph_sums dq, dk, dv;
    ph_prefetch prefetch; /* meanwhile */
    float *room;          /* ph_head_tile_floats */
} ph_head_tile;

/* Distance between the lines of two keys: p and ds of all rows, and so much more that
   lines do not meet in the same sets of a cache. */
static inline int ph_head_line(int rows)
{
    return 2 * ph_round_up(rows, PH_NR_MAX) + PH_LANES;
}

/* A transposed panel, the derivatives of the soft-cap of up to two pieces of keys, and p
   and ds. */
static inline size_t ph_head_tile_floats(int k_dim, int v_dim, int rows, int keys)
{
    int dim = ph_round_up(ph_max(k_dim, v_dim), PH_LANES);
    return (size_t)PH_NR_MAX * (size_t)(dim + 2 * PH_TILE_PIECE) +
           (size_t)ph_head_line(rows) * (size_t)keys;
}

/* Rows of a strip where so many are all there are: none of the strips is left with so few
   that its product has too few sums to run side by side. */
static inline int ph_even_strip(int rows, int mr)
{
    return ph_div_up(rows, ph_div_up(rows, mr));
}

typedef struct ph_kernels {
    const char *name;
    const char *vectors; /* the table whose f32 kernels these are; its own name in most */
    int mr, nr;
    int few;               /* rows up to which keys are better not packed for scores */
    const ph_pairs *pairs; /* for bf16 tensors; NULL: they are converted like f16 */
    int f32_tiles;         /* 1: for gradients of f32 ones too, with bits of their own */

    /* ---- packing: conversion to f32 happens here ---- */

    /* dst[k*ld + r] = scale * rows[r][k] for r < count; lanes r in [count, ld) become 0.
       count <= ld; up to PH_PACK_SLACK floats behind the last line may be overwritten. */
    void (*pack_across)(float *dst, int64_t ld, const void *const *rows, int count, int k,
                        ph_dtype type, float scale);

    /* dst[r*ld + c] = scale * rows[r][c] for c < n, padded. ld >= n rounded up to 16. */
    void (*pack_along)(float *dst, int64_t ld, const void *const *rows, int count, int n,
                       ph_dtype type, float scale);

    /* dst[c] = scale * src[c] in the given type, rounded once; -0 becomes +0. */
    void (*store_row)(void *dst, const float *src, int n, ph_dtype type, float scale);

    /* 1 if every one of rows x n floats is finite. n a multiple of 16. */
    int (*finite)(const float *x, int64_t ld, int rows, int n);

    /* ---- products ---- */

    /* s[i][j] = sum_k a[i*lda + k] * b[panel of j][k*nr + j mod nr], j < n, n a multiple
       of 16; b holds panels of nr columns behind each other, k*nr floats each. Raises
       peak[i*16 + lane] to the largest s of row i in each lane, unless peak is NULL; s
       has PH_STRIP_LD. */
    void (*scores)(int m, int n, int k, const float *a, int64_t lda, const float *b,
                   float *s, float *peak);

    /* The same product and peaks for few rows, against keys as they lie:
       s[i][j] = sum_k a[i*lda + k] * b[j*ldb + k], j < n, n any; columns from n up to a
       multiple of 16 repeat the last. Asks for the keys that come next. */
    void (*scores_along)(int m, int n, int k, const float *a, int64_t lda, const void *b,
                         int64_t ldb, ph_dtype type, float *s, float *peak);

    /* c[i*ldc + j] = c[i*ldc + j] * alpha[i] + sum_k p[i*PH_STRIP_LD + k] * b[k*ldb + j];
       alpha NULL: c is overwritten. n a multiple of 16. With few rows it waits for memory
       and asks for what comes next: PH_FETCH bytes from `fetch` on for each of the k
       steps of each nr columns; with more than two thirds of mr there is time, and it
       asks for nr bytes per step, k*n in all. Any address will do; NULL asks for
       nothing. */
    void (*weigh)(int m, int n, int k, const float *p, const float *b, int64_t ldb,
                  float *c, int64_t ldc, const float *alpha, const void *fetch);

    /* c[i*ldc + j] (+)= sum_k a[k*lda + i] * b[panel of j][k*ldb + j mod nr]; panels
       start `panel` floats apart (panel = nr and ldb a row length: b along). add 0: c is
       overwritten. n a multiple of 16. Asks for what comes next, as weigh does, but for
       PH_ASK bytes per step where there is time, and for each nr columns the same. */
    void (*product)(int m, int n, int k, const float *a, int64_t lda, const float *b,
                    int64_t ldb, int64_t panel, float *c, int64_t ldc, int add,
                    const void *fetch);

    /* All of a head: softmax and weigh over blocks of PH_STRIP_LD keys, splits of
       PH_SPLIT keys on their own and merged in order, as attn/stream.h has it. lse is the
       maximum times log 2, in double, plus the sum as logs leaves it, rounded. */
    void (*head_forward)(const ph_head *head);

    /* Each sum one chain over keys or rows in order. */
    void (*head_backward)(const ph_head_tile *tile);

    /* y[c] += a * x[c], c < n, n a multiple of 16. */
    void (*axpy)(int n, float a, const float *x, float *y);

    /* ---- rows ---- */

    /* One step of the online softmax on m rows of a strip, n columns (multiple of 16,
       hidden ones -inf), in base 2. top[i] is the running maximum, sum[i*16 + lane] the
       running sums; alpha[i] = 2^(old top - new top) is what earlier results shrink by.
       s becomes 2^(s - top). A row that has seen nothing keeps top = -inf. */
    void (*softmax)(int m, int n, float *s, const float *peak, float *top, float *sum,
                    float *alpha);

    /* s becomes p = 2^(s - lse[i]), dp becomes ds = p * (drop * dp - delta[i]) *
       slope. drop (a strip of factors) and slope (of the soft-cap, a strip too) may be
       NULL: 1; with drop s ends as drop * p. Where s is -inf both become 0. */
    void (*gradient)(int m, int n, float *s, float *dp, const float *drop,
                     const float *slope, const float *lse, const float *delta);

    /* s[c] = 2^(s[c] - lse); n any, room up to 16. Here, as in softmax and gradient, a
       score is not above what it is measured from, but for rounding. */
    void (*weights)(int n, float *s, float lse);

    /* x[c] = natural logarithm of x[c], positive and normal; n a multiple of 16. */
    void (*logs)(int n, float *x);

    /* sum_c x[c] * y[c] in 16 lanes; n any, x and y have room up to 16 and hold zeros. */
    float (*dot)(int n, const float *x, const float *y);

    /* sums[i] = dot of x[i*ldx..] and y[i*ldy..], i < m, m any. */
    void (*dots)(int m, int n, const float *x, int64_t ldx, const float *y, int64_t ldy,
                 float *sums);

    /* What the way back knows of m rows: delta[i] = x[i] . y[i], of dout and out, and
       base[i] = lse[i] in base 2; of a row that saw nothing, lse -inf, 0 and +inf. */
    void (*deltas)(int m, int n, const float *x, int64_t ldx, const float *y, int64_t ldy,
                   const float *lse, float *base, float *delta);

    /* y[c] *= x[c], n a multiple of 16. */
    void (*times)(int n, float *y, const float *x);

    /* y[c] = y[c] * a + x[c] * b, n a multiple of 16. */
    void (*blend)(int n, float *y, float a, const float *x, float b);

    /* peak[lane] = max over the row in each lane, from -inf. n a multiple of 16. */
    void (*row_peak)(int n, const float *s, float *peak);

    /* Hides columns outside [lo[i], hi[i]) of m rows of a strip, and peak[i*16 + lane]
       becomes what row_peak gives. n a multiple of 16, 0 <= lo <= hi <= n. */
    void (*clip)(int m, int n, float *s, const int *lo, const int *hi, float *peak);

    /* total[i] = the 16 lanes of row i, lanes[i*16..], added by halves; i < m. */
    void (*lane_sums)(int m, const float *lanes, float *total);

    /* s[c] += factor * bias[c] and -inf where bias[c] is -inf; c < n, any n. */
    void (*add_bias)(int n, float *s, const float *bias, float factor);

    /* m rows of s, n of each, n any with room up to 16; peak[i*16..]: what row_peak gives
       for row i where n is a multiple of 16.
       s[c] -= slope[i] * |first[i] + c|, whole numbers below 2^24. */
    void (*add_alibi)(int m, int n, float *s, const float *slope, const float *first,
                      float *peak);
    /* s[c] = cap * tanh(s[c] / cap); slope (a strip, or NULL): 1 - tanh^2 to its own last
       places, 0 where s is NaN; finite up to the next 16. */
    void (*softcap)(int m, int n, float *s, float cap, float *peak, float *slope);

    /* s[c] = -inf where visible[c] is 0; c < n, any n. */
    void (*hide)(int n, float *s, const uint8_t *visible);

    /* f[c] = 0 where the random number of (key, first + c) is below limit, else keep;
       n any, room up to 16. */
    void (*dropout)(int n, float *f, uint64_t key, uint32_t first, uint32_t limit,
                    float keep);

    /* dst[c] = scale * src[c], padded: one row of pack_along. */
    void (*load_row)(float *dst, const void *src, int n, ph_dtype type, float scale);

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
       room has space for 2 * rank * rows * 16 floats. */
    void (*decompose)(int heads, int rank, int rows, int n, const float *w1,
                      const float *w2, const float *x, const float *dy, int64_t ld,
                      float *dw1, float *dw2, float *dg, float *room);

    /* dp[c] = p[c] * (dp[c] - delta), and 0 where p[c] is 0; n a multiple of 16. */
    void (*center)(int n, const float *p, float delta, float *dp);

    /* g[i*ldg + j] += sum_c x[i*ldx + c] * y[j*ldy + c] for i < m, j < n, c < k, in 16
       lanes; k a multiple of 16. */
    void (*gram)(int m, int n, int k, const float *x, int64_t ldx, const float *y,
                 int64_t ldy, float *g, int64_t ldg);

    /* Lists scale * (s[c] - top) where that is above -1, in order; returns how many. n a
       multiple of 16; the list has room for 16 more than it holds. */
    int (*near_top)(int n, const float *s, float scale, float top, float *list);

    /* sums[0] = sum of u^a, sums[1] = sum of u^(a-1) over u = 1 + (x[c] - d) > 0, in 16
       lanes; n a multiple of 16, x[c] <= d, a >= 1. */
    void (*power_sums)(int n, const float *x, float d, float a, float *sums);

    /* s[c] = u^a, slope[c] = u^(a-1) where u = 1 + scale*(s[c] - base) > 0, else 0; u is
       at most 1 but for rounding. Near 1 the powers come from u - 1, which is not rounded
       to u first: a may be large. slope may be NULL; n a multiple of 16, a >= 1. */
    void (*entmax)(int n, float *s, float *slope, float scale, float base, float a);

    /* ---- for the products of a layer ---- */

    /* Rows that lie along panels: dst[c/width*panel + kk*width + c%width] =
       src[kk*stride + c], c < n; the last panel is filled with zeros. width is mr or
       nr. */
    void (*pack_panels)(float *dst, int width, int64_t panel, const void *src,
                        int64_t stride, int k, int n, ph_dtype type);

    /* y[i*ld + c] += x[c] for i < m, c < n; m and n any. */
    void (*add_rows)(int m, int n, const float *x, float *y, int64_t ld);

    /* c[i*ldc + j] += sum_k a[i*lda + k] * b[k*ldb + j], a line of b after the other, for
       few rows: m, n, k any. */
    void (*stream)(int m, int n, int k, const float *a, int64_t lda, const float *b,
                   int64_t ldb, float *c, int64_t ldc);
} ph_kernels;

/* Whether a bf16 number is 0 or of full precision: a step takes denormal numbers for 0,
   and three parts of a weight cannot multiply what is not finite. */
static inline int ph_is_plain(uint16_t x)
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

/* ph_pairs_ref says what the other does, in plain loops; no table has it. */
extern const ph_pairs ph_pairs_ref, ph_pairs_amx;

#endif
