/*
 * rollout.c - attention rollout; see polyhead_heads.h.
 *
 * The product of all layers' matrices is never made: a row vector goes through them from
 * the last layer to the first, so memory is a few rows and work one pass over weights.
 */
#include <string.h>

#include "base/size.h"
#include "io/io.h"
#include "polyhead_heads.h"

enum { BLOCK_WEIGHTS = 1 << 16 }; /* read at once */

typedef struct rollout {
    const ph_report *report;
    const ph_stack *stack;
    int index, keys;
    int rows;       /* of a block */
    float *block;   /* (rows, keys) */
    double *now;    /* (keys) behind this layer, */
    double *before; /* (keys) and before it */
} rollout;

static int is_absent(const rollout *r, int layer, int head)
{
    return r->stack->absent && r->stack->absent[layer * r->stack->heads + head];
}

/* Adds `share` of what row i attends to; a row of zeros passes on its own input. */
static void add_row(const rollout *r, int i, const float *weights, double share)
{
    int seen = r->stack->causal ? i + r->stack->q_offset + 1 : r->keys;
    double sum = 0;
    if (seen > r->keys) seen = r->keys;
    for (int j = 0; j < seen; j++) sum += (double)weights[j];
    if (!(sum > 0)) {
        r->before[i] += share;
        return;
    }
    for (int j = 0; j < seen; j++) r->before[j] += share * (double)weights[j] / sum;
}

static int is_needed(const rollout *r, int row, int rows)
{
    int needed = 0;
    for (int i = row; i < row + rows; i++) needed |= r->now[i] != 0;
    return needed;
}

static ph_status add_head(const rollout *r, int layer, int head, double share)
{
    for (int row = 0; row < r->keys; row += r->rows) {
        int rows = r->keys - row < r->rows ? r->keys - row : r->rows;
        if (!is_needed(r, row, rows)) continue;
        ph_status status = r->report->weights(r->report->user, r->index, layer, head, row,
                                              rows, r->block);
        if (status != PH_OK) return status;
        for (int i = 0; i < rows; i++)
            if (r->now[row + i] != 0)
                add_row(r, row + i, r->block + (size_t)i * (size_t)r->keys,
                        share * r->now[row + i]);
    }
    return PH_OK;
}

/* From behind the layer to before it: half stays, the heads share the other half. */
static ph_status go_through(const rollout *r, int layer)
{
    int heads = 0;
    for (int h = 0; h < r->stack->heads; h++) heads += !is_absent(r, layer, h);
    for (int j = 0; j < r->keys; j++) r->before[j] = r->now[j] * (heads ? 0.5 : 1);
    for (int h = 0; h < r->stack->heads; h++) {
        if (is_absent(r, layer, h)) continue;
        ph_status status = add_head(r, layer, h, 0.5 / heads);
        if (status != PH_OK) return status;
    }
    memcpy(r->now, r->before, (size_t)r->keys * sizeof *r->now);
    return PH_OK;
}

static ph_status roll_out(const rollout *r, int row, float *out)
{
    memset(r->now, 0, (size_t)r->keys * sizeof *r->now);
    r->now[row] = 1;
    for (int l = r->stack->layers - 1; l >= 0; l--) {
        ph_status status = go_through(r, l);
        if (status != PH_OK) return status;
    }
    for (int j = 0; j < r->keys; j++) out[j] = (float)r->now[j];
    return PH_OK;
}

ph_status ph_rollout(const ph_report *report, int stack, int row, float *out,
                     const ph_io *io)
{
    if (!report || !out) return ph_io_null(io, "report or out");
    if (stack < 0 || stack >= report->stack_count)
        return ph_io_fail(io, PH_BAD_ARGUMENT, "there is no such stack");
    rollout r = {.report = report, .stack = &report->stacks[stack], .index = stack};
    if (r.stack->q_axis != r.stack->k_axis || r.stack->q_offset)
        return ph_io_fail(io, PH_UNSUPPORTED,
                          "rollout needs self-attention of whole texts");
    r.keys = report->axes[r.stack->k_axis].count;
    if (row < 0 || row >= r.keys)
        return ph_io_fail(io, PH_BAD_ARGUMENT, "row is %d, expected 0 to %d", row,
                          r.keys - 1);
    size_t keys = (size_t)r.keys;
    r.rows = (int)(BLOCK_WEIGHTS / keys ? BLOCK_WEIGHTS / keys : 1);
    if (r.rows > r.keys) r.rows = r.keys;
    size_t bytes = keys * (size_t)r.rows * sizeof(float);
    r.now = ph_io_alloc(io, 2 * keys * sizeof *r.now);
    r.block = ph_io_alloc(io, bytes);
    if (r.now) r.before = r.now + keys;
    ph_status status =
        r.now && r.block ? roll_out(&r, row, out) : ph_io_no_memory(io, bytes, "weights");
    ph_io_release(io, r.block);
    ph_io_release(io, r.now);
    return status;
}
