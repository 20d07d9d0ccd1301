/*
 * sequences.c - checks where the sequences of a call are: lengths of dense batches,
 * offsets of ragged ones.
 */
#include "attn/plan.h"

/* Whether the offsets say where each sequence is; they are checked in every ctx. */
static ph_status check_offsets(const ph_plan *plan, const char *name,
                               const int32_t *offsets, int total, int longest)
{
    int batch = plan->attn.batch;
    if (!offsets)
        return ph_fail(plan->ctx, PH_BAD_ARGUMENT,
                       "%s is NULL, expected %d offsets in a ragged batch", name,
                       batch + 1);
    if (offsets[0] != 0 || offsets[batch] != total)
        return ph_fail(plan->ctx, PH_BAD_SHAPE,
                       "%s run from %d to %d, expected from 0 to the %d tokens", name,
                       offsets[0], offsets[batch], total);
    for (int b = 0; b < batch; b++) {
        int64_t len = (int64_t)offsets[b + 1] - offsets[b];
        if (len < 0 || len > longest)
            return ph_fail(plan->ctx, PH_BAD_SHAPE,
                           "%s[%d] is %d after %d, expected 0 to %d tokens more", name,
                           b + 1, offsets[b + 1], offsets[b], longest);
    }
    return PH_OK;
}

static ph_status unexpected(const ph_plan *plan, const char *name, const void *tensor)
{
    if (!tensor) return PH_OK;
    return ph_fail(plan->ctx, PH_BAD_ARGUMENT,
                   "%s is given, expected NULL because the batch is %s", name,
                   plan->attn.ragged ? "ragged" : "not ragged");
}

/* Lengths of dense batches, offsets of ragged ones. */
ph_status ph_check_sequences(const ph_plan *plan, const ph_args *args)
{
    const ph_attn *a = &plan->attn;
    int all = a->ragged == PH_RAGGED_ALL;
    PH_TRY(unexpected(plan, a->ragged ? "q_lens" : "q_offsets",
                      a->ragged ? args->q_lens : args->q_offsets));
    PH_TRY(unexpected(plan, all ? "kv_lens" : "kv_offsets",
                      all ? args->kv_lens : args->kv_offsets));
    if (a->ragged)
        PH_TRY(check_offsets(plan, "q_offsets", args->q_offsets, a->q_total, a->q_len));
    if (!all) return PH_OK;
    if (args->kv_offsets)
        return check_offsets(plan, "kv_offsets", args->kv_offsets, a->kv_total,
                             a->kv_len);
    return check_offsets(plan, "kv_offsets, which are q_offsets,", args->q_offsets,
                         a->kv_total, a->kv_len);
}
