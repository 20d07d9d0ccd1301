/*
 * products.c - matrix products of a model's sublayers, w (in, out), stored row-major or
 * transposed, in any type:
 *
 *     y = x w + b        dx = dy w^T        dw = x^T dy        db = sum of the rows of dy
 */
#include "kernels/kernels.h"
#include "model/model.h"

/* w as the right operand: (in, out), or its transpose. */
static void set_matrix(ph_gemm *g, ph_matrix w, int in, int out, int transposed)
{
    int linear = w.form == PH_FORM_LINEAR, row_length = linear ? in : out;
    g->b = w.data, g->b_type = w.type;
    g->b_row = linear == transposed ? row_length : 1;
    g->b_col = linear == transposed ? 1 : row_length;
}

ph_gemm ph_product(int rows, int in, int out, const float *x, ph_matrix w, const float *b,
                   float *y)
{
    ph_gemm g = {.m = rows, .n = out, .k = in, .a = x, .a_row = in, .a_col = 1};
    set_matrix(&g, w, in, out, 0);
    g.c = y, g.c_row = out, g.bias = b;
    return g;
}

ph_gemm ph_product_transposed(int rows, int in, int out, const float *y, ph_matrix w,
                              float *x)
{
    ph_gemm g = {.m = rows, .n = in, .k = out, .a = y, .a_row = out, .a_col = 1};
    set_matrix(&g, w, in, out, 1);
    g.c = x, g.c_row = in;
    return g;
}

ph_gemm ph_product_of_gradients(const ph_model *m, ph_gemm g)
{
    g.tiles = m->ctx->kernels->f32_tiles;
    return g;
}

ph_gemm ph_product_dx(const ph_model *m, int rows, int in, int out, const float *dy,
                      ph_matrix w, float *dx)
{
    return ph_product_of_gradients(m, ph_product_transposed(rows, in, out, dy, w, dx));
}

ph_gemm ph_product_dw(const ph_model *m, int rows, int in, int out, const float *x,
                      const float *dy, float *dw)
{
    ph_gemm g = {.m = in, .n = out, .k = rows, .a = x, .a_row = 1, .a_col = in};
    g.b = dy, g.b_row = out, g.b_col = 1, g.c = dw, g.c_row = out;
    return ph_product_of_gradients(m, g);
}

ph_gemm ph_product_db(int rows, int out, const float *ones, const float *dy, float *db)
{
    return ph_product(1, rows, out, ones, ph_matrix_of(dy), NULL, db);
}

ph_status ph_model_multiply(const ph_model *m, const ph_gemm *list, int count)
{
    void *space;
    size_t bytes = ph_gemm_bytes(m->ctx, list, count);
    PH_TRY(ph_ctx_scratch(m->ctx, bytes, &space));
    ph_gemm_run(m->ctx, list, count, (ph_workspace){space, bytes});
    return PH_OK;
}
