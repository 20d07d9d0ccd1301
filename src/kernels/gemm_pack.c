/*
 * gemm_pack.c - packs a and b of a product, in any storage order, into K-major panels of
 * mr rows of a or nr columns of b.
 */
#include <string.h>

#include "kernels/gemm_job.h"

typedef ph_gemm_job job;

/* At most mr rows of a from i0 on, each contiguous along k or in blocks, as one panel. */
static void transpose_rows(const job *j, int i0, int rows, int k0, int len, float *to)
{
    const ph_gemm *g = j->g;
    int mr = j->k->mr;
    for (int kk = 0, run; kk < len; kk += run) {
        const void *row[PH_MR_MAX];
        run = len - kk;
        int64_t at = ph_gemm_block(g->a_block, g->a_step, k0 + kk, &run);
        for (int r = 0; r < rows; r++)
            row[r] = ph_at(g->a, g->a_type, (i0 + r) * g->a_row + at);
        j->k->pack_panel(to + (int64_t)kk * mr, mr, row, rows, run, g->a_type, 1.0f);
    }
}

void ph_gemm_pack_a(const job *j, int i0, int rows, int k0, int len, float *to)
{
    const ph_gemm *g = j->g;
    const void *start = ph_at(g->a, g->a_type, i0 * g->a_row + k0 * g->a_col);
    int mr = j->k->mr;
    if (g->a_col != 1)
        j->k->pack_panels(to, mr, j->a_step, start, g->a_col, len, rows, g->a_type);
    for (int i = 0; g->a_col == 1 && i < rows; i += mr, to += j->a_step)
        transpose_rows(j, i0 + i, ph_min(mr, rows - i), k0, len, to);
}

/* At most nr columns of b from j0 on, each contiguous along k, as one panel. */
static void transpose_panel(const job *j, int j0, int cols, int k0, int len, float *to)
{
    const ph_gemm *g = j->g;
    int nr = j->k->nr;
    for (int kk = 0, run; kk < len; kk += run) {
        const void *column[PH_NR_MAX];
        run = len - kk;
        int64_t at = ph_gemm_block(g->b_block, g->b_step, k0 + kk, &run);
        for (int c = 0; c < cols; c++)
            column[c] = ph_at(g->b, g->b_type, at + (j0 + c) * g->b_col);
        j->k->pack_panel(to + (int64_t)kk * nr, nr, column, cols, run, g->b_type, 1.0f);
    }
}

/* Columns in blocks whose edges fall inside panels. */
static void pack_blocks(const job *j, int j0, int cols, int k0, int len, float *to)
{
    const ph_gemm *g = j->g;
    int nr = j->k->nr, padded = ph_round_up(cols, nr);
    for (int c = 0, run; c < padded; c += run) {
        float *dst = to + c / nr * j->b_step + c % nr;
        run = c < cols ? ph_min(cols - c, nr - c % nr) : padded - c;
        int64_t at = ph_gemm_block(g->b_block, g->b_step, j0 + c, &run);
        for (int kk = 0; kk < len; kk++, dst += nr)
            if (c < cols)
                ph_gemm_load(j->k, dst, g->b, g->b_type, at + (k0 + kk) * g->b_row, run);
            else
                memset(dst, 0, (size_t)run * sizeof *dst);
    }
}

void ph_gemm_pack_b(const job *j, int j0, int cols, int k0, int len, float *to)
{
    const ph_gemm *g = j->g;
    int nr = j->k->nr;
    if (g->b_col != 1) {
        for (int c = 0; c < cols; c += nr, to += j->b_step)
            transpose_panel(j, j0 + c, ph_min(nr, cols - c), k0, len, to);
    } else if (g->b_block && g->b_block % nr) {
        pack_blocks(j, j0, cols, k0, len, to);
    } else {
        for (int c = 0, run; c < cols; c += run) {
            run = cols - c;
            int64_t at = ph_gemm_block(g->b_block, g->b_step, j0 + c, &run);
            j->k->pack_panels(to + c / nr * j->b_step, nr, j->b_step,
                              ph_at(g->b, g->b_type, at + k0 * g->b_row), g->b_row, len,
                              run, g->b_type);
        }
    }
}
