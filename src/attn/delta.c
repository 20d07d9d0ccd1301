/*
 * delta.c - dout . out of every row, and what follows from it.
 */
#include "attn/delta.h"

#include <math.h>

void ph_deltas_take(const ph_plan *plan, ph_arena *arena, ph_deltas *out)
{
    const ph_attn *a = &plan->attn;
    size_t heads = (size_t)a->batch * (size_t)a->q_heads;
    out->lse = ph_arena_floats(arena, (size_t)a->q_heads * ph_attn_rows(a));
    out->delta = ph_arena_floats(arena, (size_t)a->q_heads * ph_attn_rows(a));
    out->sums = ph_arena_take(arena, 2 * heads * sizeof(double));
}

typedef struct row_sums {
    double dgate, dsink;
} row_sums;

/* Whether a computed row saw no key: its dout, like a hidden value, must not be read.
   Only with a sink does lse leave the question open. */
static int sees_no_key(const ph_call *call, const ph_extent *extent, int batch, int head,
                       int token, float lse)
{
    const float *sink = call->args->sink;
    if (lse == -INFINITY || !sink || lse != sink[head]) return lse == -INFINITY;
    ph_rows row = {.batch = batch, .head = {head}, .token = {token}};
    ph_rows_interval(call->attn, extent, token, &row.lo[0], &row.hi[0]);
    for (int j = row.lo[0]; j < row.hi[0]; j++)
        if (ph_rows_sees(call, &row, 0, j)) return 0;
    return 1;
}

/* One computed row, from dout . out. */
static void finish_row(const ph_call *call, const ph_deltas *d, int head, int64_t index,
                       double product, row_sums *sums)
{
    const ph_args *args = call->args;
    const ph_grads *grads = call->grads;
    int per_row = call->attn->gate == PH_GATE_ROW;
    double lse = args->lse[index], dlse = 0;
    if (grads->dlse && lse != -INFINITY) dlse = grads->dlse[index];
    double delta = product - dlse;
    d->delta[index] = (float)delta;
    d->lse[index] = lse == -INFINITY ? INFINITY : (float)(lse * PH_LOG2E);
    if (args->gate) {
        double dgate = product / args->gate[per_row ? index : head];
        sums->dgate += dgate;
        if (grads->dgate && per_row) grads->dgate[index] = (float)dgate;
    }
    if (args->sink && args->sink[head] != -INFINITY)
        sums->dsink -= exp(args->sink[head] - lse) * delta;
}

/* n tokens of a head of dout or out, in f32: in place, or a copy. */
static const float *find_rows(const ph_call *call, const void *base, const ph_strides *s,
                              int batch, int head, int first, int n, float *scratch,
                              int64_t *ld)
{
    const ph_attn *a = call->attn;
    const void *from[PH_LANES];
    int pad = call->plan->v_pad, in_place = a->dtype == PH_F32 && a->v_dim == pad;
    for (int i = 0; i < n; i++)
        from[i] = ph_at(base, a->dtype, ph_row_at(call, s, batch, head, first + i));
    *ld = in_place ? s->time : pad;
    if (in_place) return from[0];
    call->kernels->pack_row_major(scratch, pad, from, n, a->v_dim, a->dtype, 1);
    return scratch;
}

/* dout . out of n tokens. */
static void make_products(const ph_call *call, ph_arena arena, int batch, int head,
                          int first, int n, float *products)
{
    const ph_attn *a = call->attn;
    int pad = call->plan->v_pad;
    int64_t ldx, ldy;
    float *x_scratch = ph_arena_floats(&arena, (size_t)PH_LANES * (size_t)pad);
    float *y_scratch = ph_arena_floats(&arena, (size_t)PH_LANES * (size_t)pad);
    const float *x = find_rows(call, call->grads->dout, &call->plan->backward.dout, batch,
                               ph_dout_head(call, head), first, n, x_scratch, &ldx);
    const float *y =
        find_rows(call, call->args->out, &a->out, batch, head, first, n, y_scratch, &ldy);
    call->kernels->dots(n, pad, x, ldx, y, ldy, products);
    float twin = ph_twin_factor(call, head);
    for (int i = 0; i < n && call->twin; i++) products[i] *= twin;
}

/* One row; the product counts only if the row saw a key. */
static void add_row(const ph_call *call, const ph_deltas *d, const ph_extent *extent,
                    int batch, int head, int token, float product, row_sums *sums)
{
    const ph_attn *a = call->attn;
    int64_t index = ph_row_index(call, batch, head, token);
    if (token >= extent->q_len || !ph_rows_active(call, batch, head, token)) {
        d->delta[index] = 0, d->lse[index] = INFINITY;
        if (call->grads->dgate && a->gate == PH_GATE_ROW) call->grads->dgate[index] = 0;
        return;
    }
    int nothing = sees_no_key(call, extent, batch, head, token, call->args->lse[index]);
    finish_row(call, d, head, index, nothing ? 0 : product, sums);
}

/* One kernel for all rows where there is no gate, sink or dlse and the tensors are f32 in
   place; returns how many rows it did. */
static int add_all_rows(const ph_call *call, const ph_deltas *d, int batch, int head,
                        int rows)
{
    const ph_attn *a = call->attn;
    const ph_strides *dout = &call->plan->backward.dout, *out = &a->out;
    int64_t index = ph_row_index(call, batch, head, 0);
    int simple = !call->args->gate && !call->args->sink && !call->grads->dlse;
    if (!simple || call->twin || a->dtype != PH_F32 || a->v_dim != call->plan->v_pad)
        return 0;
    call->kernels->deltas(
        rows, a->v_dim,
        (const float *)call->grads->dout + ph_row_at(call, dout, batch, head, 0),
        dout->time, (const float *)call->args->out + ph_row_at(call, out, batch, head, 0),
        out->time, call->args->lse + index, d->lse + index, d->delta + index);
    return rows;
}

void ph_deltas_head(const ph_call *call, const ph_deltas *d, ph_arena arena, int batch,
                    int head)
{
    const ph_attn *a = call->attn;
    ph_extent extent = ph_rows_extent(call, batch);
    row_sums sums = {0, 0};
    float products[PH_LANES];
    int item = batch * a->q_heads + head;
    for (int first = add_all_rows(call, d, batch, head, extent.q_len);
         first < extent.q_size; first += PH_LANES) {
        int n = ph_min(PH_LANES, extent.q_size - first);
        make_products(call, arena, batch, head, first, n, products);
        for (int i = 0; i < n; i++)
            add_row(call, d, &extent, batch, head, first + i, products[i], &sums);
    }
    d->sums[item] = sums.dgate;
    d->sums[a->batch * a->q_heads + item] = sums.dsink;
}

/* Adds the partial sums of all batch rows, in order. */
void ph_deltas_finish(const ph_call *call, const ph_deltas *d)
{
    const ph_attn *a = call->attn;
    const ph_grads *grads = call->grads;
    for (int h = 0; h < a->q_heads; h++) {
        double dgate = 0, dsink = 0;
        for (int b = 0; b < a->batch; b++) {
            dgate += d->sums[b * a->q_heads + h];
            dsink += d->sums[(a->batch + b) * a->q_heads + h];
        }
        if (grads->dgate && a->gate == PH_GATE_HEAD) grads->dgate[h] = (float)dgate;
        if (grads->dsink) grads->dsink[h] = (float)dsink;
    }
}
