/*
 * decode.c - few queries against many keys: a work item is one split of the keys.
 *
 * All rows of a group share one read of k and v. Each item leaves the running softmax of
 * its split in shared memory; a second loop merges the splits of each group in order. The
 * splits are those of forward.c, so the bits are too.
 */
#include "attn/decode.h"

#include "attn/stream.h"

/* Running sums of one split of one (batch row, group). */
static void take_part(const ph_plan *plan, char *shared, int pair, int split,
                      ph_running *out)
{
    ph_arena count = {0};
    ph_running_take(plan, &count, plan->rows, out);
    size_t place = (size_t)pair * (size_t)plan->splits + (size_t)split;
    ph_arena arena = ph_arena_of(shared + place * count.used, count.used);
    ph_running_take(plan, &arena, plan->rows, out);
}

size_t ph_decode_bytes(const ph_plan *plan)
{
    ph_arena count = {0};
    ph_running part;
    ph_running_take(plan, &count, plan->rows, &part);
    return count.used * (size_t)plan->attn.batch * (size_t)plan->groups *
           (size_t)plan->splits;
}

static void gather(const ph_call *call, ph_rows *rows, int pair)
{
    const ph_plan *plan = call->plan;
    ph_rows_begin(call, rows, pair / plan->groups, pair % plan->groups * plan->group,
                  plan->group);
    ph_rows_gather(call, rows, 0, plan->rows, plan->rows);
}

static void run_split(void *arg, int lane, int index)
{
    const ph_call *call = arg;
    const ph_plan *plan = call->plan;
    int pair = index / plan->splits, split = index % plan->splits;
    ph_arena arena = ph_call_lane(call, lane);
    ph_stream st;
    ph_stream_take(plan, &arena, plan->rows, 1, &st);
    take_part(plan, call->shared, pair, split, &st.split);
    gather(call, st.rows, pair);
    int first = split * PH_SPLIT;
    if (first >= st.rows->high || first + PH_SPLIT <= st.rows->low) return;
    ph_stream_begin(call, &st);
    ph_stream_run(call, &st, first, first + PH_SPLIT);
}

static void merge_pair(void *arg, int lane, int pair)
{
    const ph_call *call = arg;
    const ph_plan *plan = call->plan;
    ph_arena arena = ph_call_lane(call, lane);
    ph_stream st;
    ph_stream_take(plan, &arena, plan->rows, 1, &st);
    gather(call, st.rows, pair);
    ph_stream_clear(call, st.rows, 0, call->attn->q_len * plan->group);
    ph_running_reset(st.rows->count, &st.whole);
    for (int j = st.rows->low / PH_SPLIT * PH_SPLIT; j < st.rows->high; j += PH_SPLIT) {
        ph_running part;
        take_part(plan, call->shared, pair, j / PH_SPLIT, &part);
        ph_stream_merge(call, st.rows->count, &st.whole, &part);
    }
    ph_stream_finish(call, st.rows, &st.whole);
}

void ph_decode(const ph_call *call)
{
    int pairs = call->attn->batch * call->plan->groups;
    ph_ctx_run(call->plan->ctx, pairs * call->plan->splits, run_split, (void *)call);
    ph_ctx_run(call->plan->ctx, pairs, merge_pair, (void *)call);
}
