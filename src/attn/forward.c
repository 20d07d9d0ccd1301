/*
 * forward.c - who computes which rows.
 *
 * Rows are cut into work items of plan->rows; an item packs each block of k once and
 * keeps it in cache for all its rows. Items with many keys come first, so that the last
 * ones to be handed out are small. Where there are few rows but many keys (decoding) the
 * keys are cut instead: decode.c.
 */
#include "attn/decode.h"
#include "attn/head.h"
#include "attn/stream.h"

void ph_forward_measure(ph_plan *plan)
{
    ph_arena lane = {0};
    ph_stream stream;
    if (ph_plan_is_joint(plan)) {
        ph_joint_forward_measure(plan);
        return;
    }
    ph_stream_take(plan, &lane, plan->rows, plan->by_split ? 1 : plan->splits, &stream);
    size_t head = ph_head_forward_bytes(plan);
    plan->lane_bytes[PH_DO_FORWARD] = lane.used > head ? lane.used : head;
    plan->shared_bytes[PH_DO_FORWARD] = plan->by_split ? ph_decode_bytes(plan) : 0;
}

/* All keys, split by split; the first one is the whole so far. */
static void run_splits(const ph_call *call, ph_stream *st)
{
    int start = st->rows->low / PH_SPLIT * PH_SPLIT;
    ph_running_reset(st->rows->count, &st->whole);
    for (int j = start; j < st->rows->high; j += PH_SPLIT) {
        ph_stream_run(call, st, j, j + PH_SPLIT);
        if (j > start) {
            ph_stream_merge(call, st->rows->count, &st->whole, &st->split);
        } else {
            ph_running first = st->split;
            st->split = st->whole;
            st->whole = first;
        }
    }
}

/* Rows [first, end) of a group, head by head: row = token * group + n. */
static int run_heads(const ph_call *call, ph_arena arena, int batch, int head, int first,
                     int end)
{
    int group = call->plan->group;
    for (int n = 0; n < group; n++) {
        int from = ph_div_up(ph_max(first - n, 0), group);
        int to = ph_div_up(ph_max(end - n, 0), group);
        if (!ph_head_forward(call, arena, batch, head + n, from, to)) return 0;
    }
    return 1;
}

static void run_item(void *arg, int lane, int index)
{
    const ph_call *call = arg;
    const ph_plan *plan = call->plan;
    const ph_attn *a = call->attn;
    int pairs = a->batch * plan->groups, pair = index % pairs;
    int batch = pair / plan->groups, head = pair % plan->groups * plan->group;
    int first = (plan->row_blocks - 1 - index / pairs) * plan->rows;
    int end = ph_min(first + plan->rows, a->q_len * plan->group);
    ph_arena arena = ph_call_lane(call, lane);
    ph_stream st;

    if (run_heads(call, arena, batch, head, first, end)) return;
    ph_stream_take(plan, &arena, plan->rows, plan->splits, &st);
    ph_rows_begin(call, st.rows, batch, head, plan->group);
    ph_stream_clear(call, st.rows, first, end);
    ph_rows_gather(call, st.rows, first, end, plan->rows);
    if (st.rows->count == 0) return;
    ph_stream_begin(call, &st);
    run_splits(call, &st);
    ph_stream_finish(call, st.rows, &st.whole);
}

void ph_attn_forward(const ph_call *call)
{
    const ph_plan *plan = call->plan;
    int pairs = call->attn->batch * plan->groups;
    if (ph_plan_is_joint(plan))
        ph_joint_forward(call);
    else if (plan->by_split)
        ph_decode(call);
    else if (plan->row_blocks == 1)
        ph_ctx_spread(plan->ctx, pairs, run_item, (void *)call);
    else
        ph_ctx_run(plan->ctx, pairs * plan->row_blocks, run_item, (void *)call);
}
