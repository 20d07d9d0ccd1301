/*
 * gemm.h - matrix products of any size on the micro-kernels: projections, feed-forward.
 *
 *     c(i,j) = [c(i,j) +] sum_k a(i,k) b(k,j) [+ bias(j)]          i < m, j < n
 *
 * The bits. Every c(i,j) is one chain of fused multiply-adds over k = 0, 1, 2, ... that
 * starts from 0, or from c where it is added to; the bias is added at the end and the
 * result is rounded once to c's type. So it depends neither on blocking, threads and
 * instruction set, nor on m and n: a row alone gives the bits it gives in a batch.
 *
 * With `tiles`, where the table multiplies bf16 (ph_bf16_pairs) and a is neither f16 nor
 * in blocks, f32 is multiplied as a bf16x3 split in steps of 32, which is as accurate but
 * has bits of its own; again they depend only on the element's row and column. A
 * non-finite element is recomputed as the chain, and -0 becomes +0. Callers set it for
 * gradients of bf16, and of f32 where the table has f32_tiles.
 *
 * Strides make the forms: of a_row and a_col one is 1, and so of b_row and b_col.
 *
 *     y  = x w       a = x, a_col 1      b = w, b_col 1
 *     dx = dy w^T    a = dy, a_col 1     b = w, b_row 1, b_col = row length of w
 *     dw = x^T dy    a = x, a_row 1      b = dy, b_col 1
 *
 * Types. b is read in the type it is stored in and converted to f32 in registers or while
 * it is packed, so c has the bits of the same values stored as f32, in either storage
 * order. Rows of a block type lie along the axis with stride 1, whose length, the other
 * stride, b_block and b_step are then multiples of its block (ph_quant_block).
 *
 * Blocks. A matrix of a layer may be stored as one matrix per head, (heads, in, dim)
 * instead of (in, heads*dim). Its contiguous axis then comes in blocks of `dim` elements
 * that start in*dim elements apart: b_block = dim, b_step = in*dim, and the same for c.
 * So may the columns of a where they are contiguous; the gaps between its blocks are not
 * read.
 */
#ifndef PH_KERNELS_GEMM_H
#define PH_KERNELS_GEMM_H

#include "base/arena.h"
#include "base/ctx.h"

enum { PH_GEMM_MAX = 10 }; /* products in one call */

typedef struct ph_gemm {
    int m, n, k; /* any, 0 included */

    const void *a; /* (m, k): a[i*a_row + k*a_col] */
    ph_dtype a_type;
    int64_t a_row, a_col;
    int a_block; /* as b_block, along k; with a_col 1 */
    int64_t a_step;
    int same_a; /* 1: all of this as in the product before it in the list */

    const void *b; /* (k, n): b[k*b_row + j*b_col] */
    ph_dtype b_type;
    int64_t b_row, b_col;
    int b_block;    /* 0: none; else element e of the axis with stride 1 lies at */
    int64_t b_step; /* e / b_block * b_step + e % b_block */

    void *c; /* (m, n): c[i*c_row + j]; must not overlap a, b, bias */
    ph_dtype c_type;
    int64_t c_row;
    int c_block; /* as b_block, along j */
    int64_t c_step;

    const float *bias; /* (n), or NULL */
    int add;           /* 1: to what c holds */
    int tiles;         /* 1: f32 may be multiplied as a bf16x3 split */
} ph_gemm;

/* Bytes of workspace that suffice for ph_gemm_run on the list, or part of it, with any
   number of rows up to m in each product. Pointers in the list are not read. */
size_t ph_gemm_bytes(const ph_ctx *ctx, const ph_gemm *list, int count);

/* Computes `count` <= PH_GEMM_MAX independent products concurrently. What it carves is
   checked against the size of the workspace. */
void ph_gemm_run(ph_ctx *ctx, const ph_gemm *list, int count, ph_workspace work);

/* ---- matrices that are packed once ------------------------------------------------- */

/* A b whose panels lie in memory of the caller. Products of the ctx with that address,
   type, storage order and size use them, with the same bits; b must not change until
   ph_gemm_forget. */
typedef struct ph_prepacked {
    const void *b;
    ph_dtype type;
    int n, k;
    int64_t b_row;
    const float *panels;
    struct ph_prepacked *next;
} ph_prepacked;

/* Floats of the panels of a (k, n) matrix. */
size_t ph_gemm_prepack_floats(const ph_ctx *ctx, int k, int n);

/* Packs b of a product without blocks; several threads may do so at once. Then the entry
   joins those of the ctx. */
void ph_gemm_prepack(const ph_ctx *ctx, const ph_gemm *g, float *panels);
void ph_gemm_remember(ph_ctx *ctx, const ph_gemm *g, const float *panels,
                      ph_prepacked *entry);
void ph_gemm_forget(ph_ctx *ctx, const ph_prepacked *entry);

#endif
