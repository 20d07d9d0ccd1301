/*
 * gemm_job.h - one product with its blocking: what gemm.c decides, and what it shares
 * with gemm_few_rows.c, gemm_pack.c and gemm_tiles.c.
 */
#ifndef PH_KERNELS_GEMM_JOB_H
#define PH_KERNELS_GEMM_JOB_H

#include "base/arena.h"
#include "kernels/gemm.h"
#include "kernels/kernels.h"

/* Blocking for one register tile, by the sizes of a core's caches. */
typedef struct ph_gemm_sizes {
    int mr;         /* of the register tile that this is for */
    int few_rows;   /* up to so many rows FEW_ROWS is fastest */
    int kc;         /* longer: c is loaded and stored less often */
    int columns;    /* of an item at most: kc * columns floats of b are half of L2 */
    int max_packed; /* floats of a packed in a round: as many pages as the TLB covers */
} ph_gemm_sizes;

typedef enum ph_gemm_mode { EMPTY, FEW_ROWS, FEW_ROWS_T, PACKED, TILED } ph_gemm_mode;

/* One product of the list and its blocking. */
typedef struct ph_gemm_job {
    const ph_gemm *g;
    const ph_kernels *k;
    const ph_gemm_sizes *s;
    ph_gemm_mode mode;
    int direct;        /* c is row-major f32: the micro-kernel writes it directly */
    int depth, height; /* k and rows of one round */
    int k_rounds, rounds;
    int kc;                 /* steps of k between two packings of b */
    int rows, columns;      /* of one item */
    int strip;              /* rows of a packed panel of a, at most mr */
    int64_t a_step, b_step; /* floats from one packed panel to the next */
    float *packed;     /* PACKED: panels of a for each block of k; FEW_ROWS, FEW_ROWS_T:
                               a as row-major f32; TILED: as AMX tiles */
    const float *panels; /* of all of b, packed before (gemm_prepack.c); or NULL */
    int64_t panel_step;  /* floats from one of these to the next */
    int shared;        /* packed is that of the previous product */
    int once;          /* TILED: b is used once and not packed */
    const float *left; /* FEW_ROWS, FEW_ROWS_T: a, with its row length */
    int64_t left_ld;

    /* the current round */
    int k0, k_len, i0, i_len; /* its range of k and of the rows */
    int packs, items;         /* items of the two loops */
} ph_gemm_job;

/* A rectangle of c. */
typedef struct ph_gemm_area {
    int i0, rows, j0, cols;
    float *c; /* its first element, in c or in a copy */
    int64_t ldc;
} ph_gemm_area;

/* Cuts `total` into equal parts of at most `most`: as few as that needs, or as many as
   `wanted` as long as a part keeps `least`. Returns the size of a part. */
int ph_gemm_even_part(int total, int most, int wanted, int least);

/* Offset of element e of an axis in blocks; *run shrinks to what is contiguous there. */
int64_t ph_gemm_block(int block, int64_t step, int e, int *run);

/* Copies a rectangle of c into floats at area->c, or those back into c. */
void ph_gemm_copy(const ph_gemm_job *job, const ph_gemm_area *area, int out);

/* n elements from `at` on as floats. */
void ph_gemm_load(const ph_kernels *k, float *to, const void *from, ph_dtype type,
                  int64_t at, int n);

/* Points the rectangle at c or at a copy, and loads or clears its initial sums. */
void ph_gemm_begin(const ph_gemm_job *job, ph_gemm_area *area, float *copy, int add);

/* The bias of `count` rows of a rectangle. */
void ph_gemm_bias(const ph_gemm_job *job, const ph_gemm_area *area, int first, int count);

/* Decides how a product of a list of `count` runs. */
void ph_gemm_choose(ph_gemm_job *job, const ph_ctx *ctx, const ph_gemm *g, int count);

/* Adds `len` steps of k from kk on to a rectangle of c; a and b are packed, `buffer` is
   a register tile. After the last step the bias is added while the rows are in L1.
   Meanwhile panels of b from `next` on are prefetched, or those of a; NULL: of a. */
void ph_gemm_steps(const ph_gemm_job *job, const ph_gemm_area *area, int kk, int len,
                   const float *a, const float *b, const float *next, float *buffer);

/* The rectangle that an item of the current round owns; its c is not set. */
ph_gemm_area ph_gemm_own(const ph_gemm_job *job, int item);

/* ---- gemm_pack.c ---- */

/* Packs rows i0.. of a into panels of mr rows, and columns j0.. of b into panels of nr
   columns, `len` steps of k from k0 on. */
void ph_gemm_pack_a(const ph_gemm_job *job, int i0, int rows, int k0, int len, float *to);
void ph_gemm_pack_b(const ph_gemm_job *job, int j0, int cols, int k0, int len, float *to);

/* ---- gemm_prepack.c ---- */

enum { PH_GEMM_PAD = 16 }; /* floats between panels: avoids cache-set conflicts */

/* Sets the panels of b and their step where they are packed already. */
void ph_gemm_find_panels(ph_gemm_job *job, const ph_ctx *ctx);

/* ---- gemm_own_rows.c ---- */

/* Bytes of workspace; 0: the list is not for it. Runs the list, or returns 0. */
size_t ph_gemm_own_rows_bytes(const ph_ctx *ctx, const ph_gemm *list, int count);
int ph_gemm_own_rows(ph_ctx *ctx, const ph_gemm *list, int count, ph_workspace work);

/* ---- gemm_few_rows.c ---- */

/* Decides on FEW_ROWS or FEW_ROWS_T, or returns 0. */
int ph_gemm_few_rows_choose(ph_gemm_job *job, int wanted);

/* The most rows for which each of the two modes is taken; 0: it does not apply. */
int ph_gemm_row_major_rows(const ph_gemm_job *job);
int ph_gemm_transposed_rows(const ph_gemm_job *job);

/* Floats of `packed`; converts a to row-major f32 before the loops. */
size_t ph_gemm_few_rows_packed(const ph_gemm_job *job);
void ph_gemm_few_rows_pack(ph_gemm_job *job);

/* Carves the scratch of a lane and computes an item in it; item -1: measures only. */
void ph_gemm_few_rows(const ph_gemm_job *job, ph_arena *lane, int item);

/* ---- gemm_tiles.c ---- */

void ph_gemm_tiled_choose(ph_gemm_job *job, int wanted, int count);

/* Whether the rows of a round are packed once for all items, or by each item itself. */
int ph_gemm_tiled_shares_a(const ph_gemm_job *job);

/* Upper bounds over all row counts up to m: floats of `packed`, bytes of a lane. */
size_t ph_gemm_tiled_packed(const ph_gemm_job *job);
size_t ph_gemm_tiled_lane(const ph_gemm_job *job);

/* Items of the first loop in this round, and one of them. */
int ph_gemm_tiled_packs(const ph_gemm_job *job);
void ph_gemm_tiled_pack(const ph_gemm_job *job, int item);

/* Carves the scratch of a lane and computes an item in it; item -1: measures only.
   has_b: the lane already holds the packed columns of the item. */
void ph_gemm_tiled(const ph_gemm_job *job, ph_arena *lane, int item, int has_b);

#endif
