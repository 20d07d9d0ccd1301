/*
 * decode.c - few queries against many keys: a work item is one split of the keys.
 *
 * All rows of a group share one read of k and v. Each split leaves its running softmax in
 * shared scratch; a second loop merges the splits of each (batch row, group) in order.
 * The splits are those of forward.c, so the bits are the same.
 */
#include "attn/decode.h"

#include "attn/online.h"

/* Running softmax of one split of an item, that is of one (batch row, group). */
static void take_split(const ph_plan *plan, char *shared, int item, int split,
                       ph_running *out)
{
    ph_arena count = {0};
    ph_running_take(plan, &count, plan->rows, out);
    size_t index = (size_t)item * (size_t)plan->splits + (size_t)split;
    ph_arena arena = ph_arena_of(shared + index * count.used, count.used);
    ph_running_take(plan, &arena, plan->rows, out);
}

size_t ph_decode_bytes(const ph_plan *plan)
{
    ph_arena count = {0};
    ph_running split;
    ph_running_take(plan, &count, plan->rows, &split);
    return count.used * (size_t)plan->attn.batch * (size_t)plan->groups *
           (size_t)plan->splits;
}

static void gather(const ph_call *call, ph_rows *rows, int item)
{
    const ph_plan *plan = call->plan;
    ph_rows_begin(call, rows, item / plan->groups, item % plan->groups * plan->group,
                  plan->group);
    ph_rows_gather(call, rows, 0, plan->rows, plan->rows);
}

static void run_split(void *arg, int lane, int index)
{
    const ph_call *call = arg;
    const ph_plan *plan = call->plan;
    int item = index / plan->splits, split = index % plan->splits;
    ph_arena arena = ph_call_lane(call, lane);
    ph_online st;
    ph_online_take(plan, &arena, plan->rows, 1, &st);
    take_split(plan, call->shared, item, split, &st.split);
    gather(call, st.rows, item);
    int first = split * PH_SPLIT;
    if (first >= st.rows->high || first + PH_SPLIT <= st.rows->low) return;
    ph_online_begin(call, &st);
    ph_online_run(call, &st, first, first + PH_SPLIT);
}

static void merge_item(void *arg, int lane, int item)
{
    const ph_call *call = arg;
    const ph_plan *plan = call->plan;
    ph_arena arena = ph_call_lane(call, lane);
    ph_online st;
    ph_online_take(plan, &arena, plan->rows, 1, &st);
    gather(call, st.rows, item);
    ph_online_clear(call, st.rows, 0, st.rows->extent.q_size * plan->group);
    ph_running_reset(st.rows->count, &st.whole);
    for (int j = st.rows->low / PH_SPLIT * PH_SPLIT; j < st.rows->high; j += PH_SPLIT) {
        ph_running split;
        take_split(plan, call->shared, item, j / PH_SPLIT, &split);
        ph_online_merge(call, st.rows->count, &st.whole, &split);
    }
    ph_online_finish(call, st.rows, &st.whole);
}

void ph_decode(const ph_call *call)
{
    int items = call->attn->batch * call->plan->groups;
    ph_ctx_run(call->plan->ctx, items * call->plan->splits, run_split, (void *)call);
    ph_ctx_run(call->plan->ctx, items, merge_item, (void *)call);
}
