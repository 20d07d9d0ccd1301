/*
 * project.c - projections and their gradients as matrix products, and rows by length.
 *
 *     y = x w + b      dx = dy w^T      dw = x^T dy      db = sum of the rows of dy
 *
 * A matrix per head, (heads, in, dim), is the matrix (in, heads*dim) with its columns in
 * blocks of `dim` that lie in*dim apart; the products read and write it as it is, so both
 * forms run the same sums.
 */
#include <string.h>

#include "kernels/kernels.h"
#include "layer/layer.h"

static int in_blocks(const ph_layer_matrix *w)
{
    return w->form == PH_FORM_HEADS && w->heads > 1;
}

static int64_t block_step(const ph_layer_matrix *w)
{
    return (int64_t)w->in * w->dim;
}

/* Row length of one block, or of the whole. */
static int row_length(const ph_layer_matrix *w)
{
    return in_blocks(w) ? w->dim : ph_layer_columns(w);
}

ph_gemm ph_layer_product(const ph_layer_matrix *w, const float *weights,
                         const float *bias, int rows, const void *x, ph_dtype type,
                         float *y)
{
    int columns = ph_layer_columns(w);
    ph_gemm g = {.m = rows, .n = columns, .k = w->in};
    g.a = x, g.a_type = type, g.a_row = w->in, g.a_col = 1;
    g.b = weights, g.b_row = row_length(w), g.b_col = 1;
    if (in_blocks(w)) g.b_block = w->dim, g.b_step = block_step(w);
    g.c = y, g.c_row = columns, g.bias = bias;
    return g;
}

ph_gemm ph_layer_product_dx(const ph_layer_matrix *w, const float *weights, int rows,
                            const float *dy, float *dx, int add)
{
    int columns = ph_layer_columns(w);
    ph_gemm g = {.m = rows, .n = w->in, .k = columns, .add = add};
    g.a = dy, g.a_row = columns, g.a_col = 1;
    g.b = weights, g.b_row = 1, g.b_col = row_length(w);
    if (in_blocks(w)) g.b_block = w->dim, g.b_step = block_step(w);
    if (in_blocks(w) && w->dim == 1) /* (heads, in): contiguous along in */
        g.b_row = w->in, g.b_col = 1, g.b_block = 0;
    g.c = dx, g.c_row = w->in;
    return g;
}

ph_gemm ph_layer_product_dw(const ph_layer_matrix *w, int rows, const void *x,
                            ph_dtype type, const float *dy, float *dw)
{
    int columns = ph_layer_columns(w);
    ph_gemm g = {.m = w->in, .n = columns, .k = rows};
    g.a = x, g.a_type = type, g.a_row = 1, g.a_col = w->in;
    g.b = dy, g.b_row = columns, g.b_col = 1;
    g.c = dw, g.c_row = row_length(w);
    if (in_blocks(w)) g.c_block = w->dim, g.c_step = block_step(w);
    return g;
}

ph_gemm ph_layer_sum(int rows, int columns, const float *ones, const float *y,
                     float *sums)
{
    ph_gemm g = {.m = 1, .n = columns, .k = rows};
    g.a = ones, g.a_row = rows, g.a_col = 1;
    g.b = y, g.b_row = columns, g.b_col = 1;
    g.c = sums, g.c_row = columns;
    return g;
}

/* ---- rows -------------------------------------------------------------------------- */

typedef struct copy_job {
    const ph_kernels *kernels;
    ph_layer_rows rows;
    void *to;
    const void *from;
    ph_dtype to_type, from_type;
} copy_job;

enum { COPY_ROWS = 32 }; /* of one item */

static void copy_row(const copy_job *j, int row)
{
    int n = j->rows.columns, b = row / j->rows.len, t = row % j->rows.len;
    int64_t at = (int64_t)row * n;
    void *to = ph_at_out(j->to, j->to_type, at);
    const void *from = ph_at(j->from, j->from_type, at);
    if (j->rows.lens && t >= j->rows.lens[b]) {
        memset(to, 0, (size_t)n * ph_dtype_size(j->to_type));
    } else if (j->from_type == j->to_type) {
        memcpy(to, from, (size_t)n * ph_dtype_size(j->to_type));
    } else if (j->from_type == PH_F32) {
        j->kernels->store_row(to, from, n, j->to_type, 1.0f);
    } else {
        float part[PH_LANES]; /* load_row pads its row; the last part goes through here */
        int whole = n / PH_LANES * PH_LANES;
        if (whole) j->kernels->load_row(to, from, whole, j->from_type, 1.0f);
        if (whole == n) return;
        j->kernels->load_row(part, ph_at(from, j->from_type, whole), n - whole,
                             j->from_type, 1.0f);
        memcpy((float *)to + whole, part, (size_t)(n - whole) * sizeof *part);
    }
}

static void copy_item(void *arg, int lane, int index)
{
    const copy_job *j = arg;
    int first = index * COPY_ROWS, rows = j->rows.batch * j->rows.len;
    (void)lane;
    for (int r = first; r < ph_min(first + COPY_ROWS, rows); r++) copy_row(j, r);
}

void ph_layer_copy(ph_ctx *ctx, ph_layer_rows rows, void *to, ph_dtype to_type,
                   const void *from, ph_dtype from_type)
{
    copy_job j = {.kernels = ctx->kernels,
                  .rows = rows,
                  .to = to,
                  .from = from,
                  .to_type = to_type,
                  .from_type = from_type};
    ph_ctx_run(ctx, ph_div_up(rows.batch * rows.len, COPY_ROWS), copy_item, &j);
}

void ph_layer_clear(ph_layer_rows rows, void *x, ph_dtype type)
{
    for (int b = 0; rows.lens && b < rows.batch; b++) {
        int64_t first = ((int64_t)b * rows.len + rows.lens[b]) * rows.columns;
        size_t count = (size_t)(rows.len - rows.lens[b]) * (size_t)rows.columns;
        if (count) memset(ph_at_out(x, type, first), 0, count * ph_dtype_size(type));
    }
}
