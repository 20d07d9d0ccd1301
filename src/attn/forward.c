/*
 * forward.c - cuts the rows of a forward pass into work items and runs them.
 *
 * An item is up to plan->rows rows of one (batch row, group); it packs each block of k
 * once and reuses it from cache for all its rows. Items with many keys start first, so
 * that the last ones, which threads wait for, are short. Decoding has few rows and many
 * keys, so there the keys are split instead: decode.c.
 */
#include "attn/cut.h"
#include "attn/decode.h"
#include "attn/head.h"
#include "attn/online.h"

typedef struct forward_task {
    const ph_call *call;
    ph_work_cut cut; /* items are its blocks, times the groups */
} forward_task;

void ph_forward_measure(ph_plan *plan)
{
    ph_arena lane = {0}, shared = {0};
    ph_online online;
    ph_work_cut cut;
    if (ph_plan_is_joint(plan)) {
        ph_joint_forward_measure(plan);
        return;
    }
    ph_online_take(plan, &lane, plan->rows, plan->by_split ? 1 : plan->splits, &online);
    size_t head = ph_head_forward_bytes(plan);
    plan->lane_bytes[PH_DO_FORWARD] = lane.used > head ? lane.used : head;
    ph_cut_take(plan, &shared, &cut);
    plan->shared_bytes[PH_DO_FORWARD] =
        plan->by_split ? ph_decode_bytes(plan) : shared.used;
}

/* Gathers the rows for the online softmax; returns 0 if none is computed. */
static int begin_online(const ph_call *call, ph_online *st, int batch, int head,
                        int first, int end)
{
    ph_rows *rows = st->rows;
    ph_rows_begin(call, rows, batch, head, call->plan->group);
    ph_online_clear(call, rows, first, end);
    ph_rows_gather(call, rows, first, end, call->plan->rows);
    ph_running_reset(rows->count, &st->whole);
    if (rows->count) ph_online_begin(call, st);
    return rows->count;
}

/* Merges the split into the whole; the first split becomes the whole by a swap. */
static void merge_split(const ph_call *call, ph_online *st, int is_first)
{
    ph_running split = st->split;
    if (!is_first) {
        ph_online_merge(call, st->rows->count, &st->whole, &split);
        return;
    }
    st->split = st->whole;
    st->whole = split;
}

/* The first token of head n of a group whose row is not below `row`. */
static int token_from(int row, int n, int group)
{
    return group == 1 ? row : ph_div_up(ph_max(row - n, 0), group);
}

/* Rows [first, end) of a group, row = token * group + n: one head kernel per head where
   that fits, else the online softmax for the whole group. */
static void run_item(void *arg, int lane, int index)
{
    const forward_task *t = arg;
    const ph_call *call = t->call;
    const ph_plan *plan = call->plan;
    const int group = plan->group, in_cut = index / plan->groups;
    const ph_piece piece = ph_cut_find(&t->cut, in_cut);
    int batch = piece.batch, head = (index - in_cut * plan->groups) * group;
    int first = piece.block * plan->rows, done = 0;
    int end = ph_min(first + plan->rows, ph_rows_extent(call, batch).q_size * group);
    ph_arena arena = ph_call_lane(call, lane);
    ph_online st;
    while (done < group && ph_head_forward(call, arena, batch, head + done,
                                           token_from(first, done, group),
                                           token_from(end, done, group)))
        done++;
    if (done == group) return;
    ph_online_take(plan, &arena, plan->rows, plan->splits, &st);
    if (!begin_online(call, &st, batch, head, first, end)) return;
    int start = st.rows->low / PH_SPLIT * PH_SPLIT;
    for (int j = start; j < st.rows->high; j += PH_SPLIT) {
        ph_online_run(call, &st, j, j + PH_SPLIT);
        merge_split(call, &st, j == start);
    }
    ph_online_finish(call, st.rows, &st.whole);
}

static void run_rows(const ph_call *call)
{
    const ph_plan *plan = call->plan;
    int batch = call->attn->batch;
    ph_arena arena = ph_call_shared(call);
    forward_task t = {.call = call};
    ph_cut_take(plan, &arena, &t.cut);
    t.cut.block_major = 1;
    ph_cut_rows(call, 0, batch, plan->group, plan->rows, &t.cut);
    int items = t.cut.count * plan->groups, alike = items == batch * plan->groups;
    (alike ? ph_ctx_spread : ph_ctx_run)(plan->ctx, items, run_item, &t);
}

void ph_attn_forward(const ph_call *call)
{
    if (ph_plan_is_joint(call->plan))
        ph_joint_forward(call);
    else if (call->plan->by_split)
        ph_decode(call);
    else
        run_rows(call);
}
