/*
 * projection.c - a projection and its gradients as matrix products.
 *
 *     y = x w + b      dx = dy w^T      dw = x^T dy      db = sum of the rows of dy
 *
 * w is read and its gradient written in the form and type it is stored in, so all forms
 * run the same sums. A matrix per head, (heads, in, dim), is the matrix (in, heads*dim)
 * with its columns in blocks of `dim` with a stride of in*dim.
 */
#include "variants/kind.h"

/* Where the element of input i and column j lies: at + i * row + j * col, unless columns
   come in blocks. */
typedef struct matrix_layout {
    int64_t at, row, col;
    int block; /* 0: none; of columns */
    int64_t step;
} matrix_layout;

static matrix_layout layout_of(const ph_projection *p)
{
    const int64_t in = p->all_in ? p->all_in : p->in, dim = p->dim;
    const int64_t columns = (p->all_heads ? p->all_heads : p->heads) * dim;
    if (p->form == PH_FORM_LINEAR)
        return (matrix_layout){
            .at = p->first_head * dim * in + p->first_in, .row = 1, .col = in};
    if (p->form == PH_FORM_WHOLE)
        return (matrix_layout){
            .at = p->first_in * columns + p->first_head * dim, .row = columns, .col = 1};
    return (matrix_layout){.at = (p->first_head * in + p->first_in) * dim,
                           .row = dim,
                           .col = 1,
                           .block = p->heads > 1 ? p->dim : 0,
                           .step = in * dim};
}

/* Columns of the matrix. */
static int columns(const ph_projection *p)
{
    return p->heads * p->dim;
}

ph_gemm ph_projection_product(const ph_projection *p, const void *w, const float *bias,
                              int rows, const void *x, ph_dtype type, float *y)
{
    const matrix_layout l = layout_of(p);
    ph_gemm g = {.m = rows, .n = columns(p), .k = p->in, .tiles = p->tiles};
    g.a = x, g.a_type = type, g.a_row = p->in, g.a_col = 1;
    g.b = w ? ph_at(w, p->type, l.at) : NULL, g.b_type = p->type;
    g.b_row = l.row, g.b_col = l.col, g.b_block = l.block, g.b_step = l.step;
    g.c = y ? y + p->pad : NULL, g.c_row = ph_projection_row(p), g.bias = bias;
    return g;
}

ph_gemm ph_projection_dx(const ph_projection *p, const void *w, int rows, const float *dy,
                         float *dx, int add)
{
    const matrix_layout l = layout_of(p);
    ph_gemm g = {.m = rows, .n = p->in, .k = columns(p), .add = add};
    g.a = dy, g.a_row = ph_projection_width(p), g.a_col = 1;
    g.b = w ? ph_at(w, p->type, l.at) : NULL, g.b_type = p->type;
    g.b_row = l.col, g.b_col = l.row, g.b_block = l.block, g.b_step = l.step;
    if (l.block == 1) /* (heads, in): contiguous along in */
        g.b_row = l.step, g.b_col = 1, g.b_block = 0;
    g.c = dx, g.c_row = p->in, g.tiles = p->back_tiles;
    return g;
}

ph_gemm ph_projection_dw(const ph_projection *p, int rows, const void *x, ph_dtype type,
                         int64_t x_row, const float *dy, float *dw)
{
    const matrix_layout l = layout_of(p);
    const int64_t dy_row = ph_projection_width(p);
    ph_gemm g = {.m = p->in, .n = columns(p), .k = rows, .tiles = p->back_tiles};
    g.a = x, g.a_type = type, g.a_row = 1, g.a_col = x_row;
    g.b = dy, g.b_row = dy_row, g.b_col = 1;
    g.c = dw ? dw + l.at : NULL, g.c_row = l.row, g.c_block = l.block, g.c_step = l.step;
    if (p->form != PH_FORM_LINEAR) return g;
    g.m = columns(p), g.n = p->in;
    g.a = dy, g.a_type = PH_F32, g.a_col = dy_row;
    g.b = x, g.b_type = type, g.b_row = x_row;
    g.c_row = l.col;
    return g;
}

ph_gemm ph_projection_sum(const ph_projection *p, int rows, const float *ones,
                          const float *dy, float *sums)
{
    ph_gemm g = {.m = 1, .n = columns(p), .k = rows};
    g.a = ones, g.a_row = rows, g.a_col = 1;
    g.b = dy, g.b_row = ph_projection_width(p), g.b_col = 1;
    g.c = sums, g.c_row = columns(p);
    return g;
}

float ph_projection_element(const ph_projection *p, const void *w, int i, int column)
{
    const matrix_layout l = layout_of(p);
    int64_t at = l.block ? column / l.block * l.step + column % l.block : column * l.col;
    return ph_element(w, p->type, l.at + i * l.row + at);
}

int ph_projection_stored_row(const ph_projection *p)
{
    const int heads = p->all_heads ? p->all_heads : p->heads;
    if (p->form == PH_FORM_LINEAR) return p->all_in ? p->all_in : p->in;
    return p->form == PH_FORM_HEADS ? p->dim : heads * p->dim;
}
