/*
 * project.c - the rows of a layer's tensors: copies, conversion, padding.
 */
#include <string.h>

#include "kernels/kernels.h"
#include "layer/layer.h"

ph_tokens ph_layer_x_tokens(const ph_layer *l, const ph_layer_args *args)
{
    const ph_attn *a = &l->desc.attn;
    return (ph_tokens){l->q_rows, a->batch, a->q_len, args->attn.q_lens,
                       a->ragged ? args->attn.q_offsets : NULL};
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
                       cached ? 0 : d->attn.kv_len, args->attn.kv_lens,
                       args->attn.kv_offsets};
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
        if (whole) j->kernels->load_row(to, from, 0, whole, j->from_type, 1.0f);
        if (whole == n) return;
        j->kernels->load_row(tail, from, whole, n - whole, j->from_type, 1.0f);
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
