/*
 * gemm_few_rows.c - products of few rows (gemv and skinny gemm): bound by reading b,
 * which is therefore neither packed nor read twice.
 *
 *   FEW_ROWS  rows of b are contiguous: one row after the other, sums in registers
 *   FEW_ROWS_T  columns of b are contiguous (nn.Linear, logits from embeddings): squares
 *           of b are transposed in registers, as K is in decoding
 *
 * Elements of b become f32 in registers.
 */
#include "kernels/gemm_job.h"

typedef ph_gemm_job job;
typedef ph_gemm_area area;

/* Columns of one item, at most and at least. Where reading b is what takes the time they
   are more, and of the items that are wanted MERGED become one: narrow items of (in, out)
   read few bytes of every row, short ones of (out, in) begin with rows that nobody
   prefetched. */
enum { COLUMNS = 1024, LEAST = 64, WIDE = 4096, MERGED = 16 };

/* ---- decisions --------------------------------------------------------------------- */

/* Whether a is row-major f32 already. */
static int is_rows(const ph_gemm *g)
{
    return g->a_col == 1 && g->a_type == PH_F32 && !g->a_block;
}

/* Fewer where one thread must convert a first. */
int ph_gemm_row_major_rows(const job *j)
{
    if (j->g->b_col != 1) return 0;
    return is_rows(j->g) ? j->s->few_rows : j->k->mr;
}

int ph_gemm_transposed_rows(const job *j)
{
    return j->g->b_row == 1 && j->g->b_col != 1 ? j->k->few_rows : 0;
}

int ph_gemm_few_rows_choose(job *j, int wanted)
{
    const ph_gemm *g = j->g;
    int row_major = g->m <= ph_gemm_row_major_rows(j);
    if (!row_major && g->m > ph_gemm_transposed_rows(j)) return 0;
    int unit = ph_max(j->k->nr, PH_QUANT_BLOCK);
    if (row_major) unit = ph_max(unit, ph_quant_block(g->b_type));
    j->mode = row_major ? FEW_ROWS : FEW_ROWS_T;
    j->depth = g->k;
    j->rows = j->height = g->m;
    int few = g->m <= j->k->few_rows, most = few ? WIDE : COLUMNS;
    if (few) wanted = ph_div_up(wanted, MERGED);
    j->columns = ph_gemm_even_part(ph_div_up(g->n, unit), most / unit, wanted,
                                   ph_div_up(LEAST, unit)) *
                 unit;
    return 1;
}

/* ---- a as row-major f32 ------------------------------------------------------------ */

size_t ph_gemm_few_rows_packed(const job *j)
{
    return (size_t)j->g->m * (size_t)ph_round_up(j->g->k, PH_LANES);
}

static void load_row(const job *j, int i)
{
    const ph_gemm *g = j->g;
    for (int kk = 0, run; kk < g->k; kk += run) {
        run = g->k - kk;
        int64_t at = i * g->a_row + ph_gemm_block(g->a_block, g->a_step, kk, &run);
        ph_gemm_load(j->k, j->packed + i * j->left_ld + kk, g->a, g->a_type, at, run);
    }
}

void ph_gemm_few_rows_pack(job *j)
{
    const ph_gemm *g = j->g;
    j->left = j->packed;
    j->left_ld = ph_round_up(g->k, PH_LANES);
    if (is_rows(g)) {
        j->left = g->a;
        j->left_ld = g->a_row;
    } else if (g->a_col == 1) {
        for (int i = 0; i < g->m; i++) load_row(j, i);
    } else {
        for (int kk = 0; kk < g->k; kk++) {
            float column[PH_LANES];
            j->k->load_row(column, g->a, kk * g->a_col, g->m, g->a_type, 1.0f);
            for (int i = 0; i < g->m; i++) j->packed[i * j->left_ld + kk] = column[i];
        }
    }
}

/* ---- items ------------------------------------------------------------------------- */

static void multiply_row_major(const job *j, const area *r)
{
    const ph_gemm *g = j->g;
    for (int p = 0, run; p < r->cols; p += run) {
        run = r->cols - p;
        int64_t at = ph_gemm_block(g->b_block, g->b_step, r->j0 + p, &run);
        j->k->product_few_rows(g->m, run, g->k, j->left, j->left_ld,
                               ph_at(g->b, g->b_type, at), g->b_row, g->b_type, r->c + p,
                               r->ldc);
    }
}

static void multiply_transposed(const job *j, const area *r)
{
    const ph_gemm *g = j->g;
    for (int kk = 0, run; kk < g->k; kk += run) {
        run = g->k - kk;
        int64_t at = ph_gemm_block(g->b_block, g->b_step, kk, &run) + r->j0 * g->b_col;
        j->k->product_few_rows_t(g->m, r->cols, run, j->left + kk, j->left_ld,
                                 ph_at(g->b, g->b_type, at), g->b_col, g->b_type, r->c,
                                 r->ldc);
    }
}

void ph_gemm_few_rows(const job *j, ph_arena *lane, int item)
{
    const ph_gemm *g = j->g;
    float *copy =
        ph_arena_floats(lane, j->direct ? 0 : (size_t)g->m * (size_t)j->columns);
    if (item < 0) return;
    int j0 = item * j->columns;
    area r = {.rows = g->m, .j0 = j0, .cols = ph_min(j->columns, g->n - j0)};
    ph_gemm_begin(j, &r, copy, g->add);
    if (j->mode == FEW_ROWS_T)
        multiply_transposed(j, &r);
    else
        multiply_row_major(j, &r);
    if (g->bias) ph_gemm_bias(j, &r, 0, g->m);
    if (!j->direct) ph_gemm_copy(j, &r, 1);
}
