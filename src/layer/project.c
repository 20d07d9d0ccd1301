/*
 * project.c - projections and their gradients as matrix products, and padding rows.
 *
 *     y = x w + b      dx = dy w^T      dw = x^T dy      db = sum of the rows of dy
 *
 * A matrix per head, (heads, in, dim), is the matrix (in, heads*dim) with its columns in
 * blocks of `dim` with a stride of in*dim; the products read and write it in place, so
 * both forms run the same sums.
 */
#include <string.h>

#include "kernels/kernels.h"
#include "layer/layer.h"

static int in_blocks(const ph_projection *p)
{
    return p->form == PH_FORM_HEADS && p->heads > 1;
}

static int64_t block_step(const ph_projection *p)
{
    return (int64_t)p->in * p->dim;
}

/* Columns of the matrix. */
static int columns(const ph_projection *p)
{
    return p->heads * p->dim;
}

/* Row length of one block, or of the whole matrix. */
static int row_length(const ph_projection *p)
{
    return in_blocks(p) ? p->dim : columns(p);
}

ph_gemm ph_layer_product(const ph_projection *p, const float *weights, const float *bias,
                         int rows, const void *x, ph_dtype type, float *y)
{
    ph_gemm g = {.m = rows, .n = columns(p), .k = p->in, .tiles = p->tiles};
    g.a = x, g.a_type = type, g.a_row = p->in, g.a_col = 1;
    g.b = weights, g.b_row = row_length(p), g.b_col = 1;
    if (in_blocks(p)) g.b_block = p->dim, g.b_step = block_step(p);
    g.c = y ? y + p->pad : NULL, g.c_row = ph_projection_row(p), g.bias = bias;
    return g;
}

ph_gemm ph_layer_product_dx(const ph_projection *p, const float *weights, int rows,
                            const float *dy, float *dx, int add)
{
    ph_gemm g = {.m = rows, .n = p->in, .k = columns(p), .add = add};
    g.a = dy, g.a_row = ph_projection_width(p), g.a_col = 1;
    g.b = weights, g.b_row = 1, g.b_col = row_length(p);
    if (in_blocks(p)) g.b_block = p->dim, g.b_step = block_step(p);
    if (in_blocks(p) && p->dim == 1) /* (heads, in): contiguous along in */
        g.b_row = p->in, g.b_col = 1, g.b_block = 0;
    g.c = dx, g.c_row = p->in, g.tiles = p->back_tiles;
    return g;
}

ph_gemm ph_layer_product_dw(const ph_projection *p, int rows, const void *x,
                            ph_dtype type, const float *dy, float *dw)
{
    ph_gemm g = {.m = p->in, .n = columns(p), .k = rows, .tiles = p->back_tiles};
    g.a = x, g.a_type = type, g.a_row = 1, g.a_col = p->in;
    g.b = dy, g.b_row = ph_projection_width(p), g.b_col = 1;
    g.c = dw, g.c_row = row_length(p);
    if (in_blocks(p)) g.c_block = p->dim, g.c_step = block_step(p);
    return g;
}

ph_gemm ph_layer_sum(const ph_projection *p, int rows, const float *ones, const float *dy,
                     float *sums)
{
    ph_gemm g = {.m = 1, .n = columns(p), .k = rows};
    g.a = ones, g.a_row = rows, g.a_col = 1;
    g.b = dy, g.b_row = ph_projection_width(p), g.b_col = 1;
    g.c = sums, g.c_row = columns(p);
    return g;
}

/* ---- rows -------------------------------------------------------------------------- */

ph_tokens ph_layer_x_tokens(const ph_layer *l, const ph_layer_args *args)
{
    const ph_attn *a = &l->desc.attn;
    return (ph_tokens){l->q_rows, a->batch, a->q_len, args->attn.q_lens};
}

ph_tokens ph_layer_key_tokens(const ph_layer *l, const ph_layer_args *args)
{
    const ph_layer_desc *d = &l->desc;
    if (!d->memory_dim) { /* the tokens of x, of which keys may have fewer */
        ph_tokens keys = ph_layer_x_tokens(l, args);
        if (!d->cache) keys.lens = args->attn.kv_lens;
        return keys;
    }
    int cached = d->cache && !args->memory;
    return (ph_tokens){cached ? 0 : l->kv_rows, d->attn.batch,
                       cached ? 0 : d->attn.kv_len, args->attn.kv_lens};
}

typedef struct copy_job {
    const ph_kernels *kernels;
    const ph_tokens *tokens;
    int columns;
    void *to;
    const void *from;
    ph_dtype to_type, from_type;
} copy_job;

enum { COPY_ROWS = 32 }; /* of one item */

static void copy_row(const copy_job *j, int row)
{
    int n = j->columns;
    int64_t at = (int64_t)row * n;
    void *to = ph_at_out(j->to, j->to_type, at);
    const void *from = ph_at(j->from, j->from_type, at);
    if (!ph_tokens_has(j->tokens, row)) {
        memset(to, 0, (size_t)n * ph_dtype_size(j->to_type));
    } else if (j->from_type == j->to_type) {
        memcpy(to, from, (size_t)n * ph_dtype_size(j->to_type));
    } else if (j->from_type == PH_F32) {
        j->kernels->store_row(to, from, n, j->to_type, 1.0f);
    } else {
        float tail[PH_LANES]; /* load_row writes whole vectors, to may end before */
        int whole = n / PH_LANES * PH_LANES;
        if (whole) j->kernels->load_row(to, from, whole, j->from_type, 1.0f);
        if (whole == n) return;
        j->kernels->load_row(tail, ph_at(from, j->from_type, whole), n - whole,
                             j->from_type, 1.0f);
        memcpy((float *)to + whole, tail, (size_t)(n - whole) * sizeof *tail);
    }
}

static void copy_item(void *arg, int lane, int index)
{
    const copy_job *j = arg;
    int end = ph_min((index + 1) * COPY_ROWS, j->tokens->rows);
    (void)lane;
    for (int r = index * COPY_ROWS; r < end; r++) copy_row(j, r);
}

void ph_layer_copy(ph_ctx *ctx, const ph_tokens *tokens, int columns, void *to,
                   ph_dtype to_type, const void *from, ph_dtype from_type)
{
    copy_job j = {.kernels = ctx->kernels,
                  .tokens = tokens,
                  .columns = columns,
                  .to = to,
                  .from = from,
                  .to_type = to_type,
                  .from_type = from_type};
    ph_ctx_run(ctx, ph_div_up(tokens->rows, COPY_ROWS), copy_item, &j);
}

void ph_layer_clear(const ph_tokens *tokens, int columns, void *x, ph_dtype type)
{
    for (int b = 0; b < tokens->batch; b++) {
        int valid = ph_tokens_valid(tokens, b), all = ph_tokens_count(tokens, b);
        int64_t first = ((int64_t)ph_tokens_first(tokens, b) + valid) * columns;
        size_t count = (size_t)(all - valid) * (size_t)columns;
        if (count) memset(ph_at_out(x, type, first), 0, count * ph_dtype_size(type));
    }
}
