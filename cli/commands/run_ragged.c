/*
 * run_ragged.c - `polyhead run` with sequences side by side, without padding (q_offsets,
 * kv_offsets).
 *
 * A ragged batch is read as one batch row of total_q and total_kv tokens, so all checks
 * hold for it; then the plan or the layer learns where the sequences are.
 */
#include <limits.h>
#include <string.h>

#include "commands/cmd_run.h"

/* ---- ragged: tensors ---- */

/* Tensors that get a batch axis of 1 before the checks, and lose it in OUT. */
typedef struct ragged_tensor {
    const char *name;
    int rank; /* in IN */
    unsigned types;
} ragged_tensor;

static const ragged_tensor core_tensors[] = {
    {"q", 3, RUN_FLOATS},    {"k", 3, RUN_FLOATS},       {"v", 3, RUN_FLOATS},
    {"dout", 3, RUN_FLOATS}, {"gate", 2, RUN_TYPE(F32)}, {"dlse", 2, RUN_TYPE(F32)}};
static const ragged_tensor layer_tensors[] = {{"x", 2, RUN_FLOATS},
                                              {"memory", 2, RUN_FLOATS},
                                              {"dout", 2, RUN_FLOATS},
                                              {"gate", 2, RUN_TYPE(F32)},
                                              {"dlse", 2, RUN_TYPE(F32)}};

static int refuse_beside(run_job *job, const char *name, const char *beside,
                         const char *expected)
{
    return cli_fail(EXIT_BAD_INPUT, "%s: tensor '%s' stands beside '%s', expected %s",
                    job->path, name, beside, expected);
}

static int check_offsets(run_job *job, const char *name, size_t count, size_t total)
{
    const ph_tensor *t = run_find(job, name);
    if (!t) return run_missing(job, name, "q_offsets and kv_offsets come together");
    const run_axis axis[] = {{"sequences + 1", count ? (int64_t)count : RUN_FREE, 0}};
    int rc = run_check(job, t, RUN_TYPE(I32), 1, axis);
    if (rc) return rc;
    if (t->shape[0] < 1) return run_wrong(job, t, "at least one element");
    const int32_t *at = t->data;
    size_t last = t->shape[0] - 1;
    for (size_t i = 0; i <= last; i++) {
        int64_t least = i == 0 ? 0 : i == last ? (int64_t)total : at[i - 1];
        int64_t most = i == 0 ? 0 : (int64_t)total;
        if (at[i] < least || at[i] > most)
            return cli_fail(EXIT_BAD_INPUT,
                            "%s: tensor '%s' has %d at %zu, expected ascending offsets "
                            "from 0 to the total of %zu",
                            job->path, name, at[i], i, total);
    }
    return EXIT_OK;
}

static int check_beside_offsets(run_job *job)
{
    static const char *const others[] = {"bias", "visible", "q_lens", "kv_lens",
                                         "value_memory"};
    const run_options *o = job->options;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (run_find(job, others[i]))
            return refuse_beside(job, others[i], "q_offsets",
                                 "none of bias, visible, q_lens, kv_lens, value_memory");
    const char *wrong = o->weights                    ? "--weights"
                        : o->machine.device != PH_CPU ? "--device"
                                                      : NULL;
    if (!wrong) return EXIT_OK;
    return cli_fail(EXIT_UNSUPPORTED,
                    "option %s is given, expected none with tensor 'q_offsets'", wrong);
}

static int add_batch_axis(run_job *job, const ragged_tensor *t)
{
    const run_axis axes[] = {
        {"heads", RUN_FREE, 0}, {"total", RUN_FREE, 0}, {"dim", RUN_FREE, 0}};
    const ph_tensor *given = run_find(job, t->name);
    int by_head = given && given->rank == 1 && !strcmp(t->name, "gate");
    if (!given || by_head) return EXIT_OK;
    int rc = run_check(job, given, t->types, t->rank, axes + (3 - t->rank));
    if (rc) return rc;
    ph_tensor view = *given;
    view.rank = t->rank + 1;
    view.shape[0] = 1;
    for (int i = 0; i < t->rank; i++) view.shape[i + 1] = given->shape[i];
    run_view(job, &view, RUN_BATCH_ADDED);
    return EXIT_OK;
}

int run_ragged_inputs(run_job *job)
{
    const ph_tensor *q = run_find(job, "q"), *k = run_find(job, "k");
    const ph_tensor *offsets = run_find(job, "q_offsets");
    const run_axis axes[] = {
        {"heads", RUN_FREE, 0}, {"total", RUN_FREE, 0}, {"dim", RUN_FREE, 0}};
    int rc = check_beside_offsets(job);
    if (!rc && !offsets) rc = run_missing(job, "q_offsets", "'kv_offsets' is there");
    if (!rc) rc = run_check(job, q, RUN_FLOATS, 3, axes);
    if (!rc) rc = run_check(job, k, RUN_FLOATS, 3, axes);
    if (!rc) rc = check_offsets(job, "q_offsets", 0, q->shape[1]);
    if (!rc) rc = check_offsets(job, "kv_offsets", offsets->shape[0], k->shape[1]);
    for (size_t i = 0; !rc && i < sizeof core_tensors / sizeof core_tensors[0]; i++)
        rc = add_batch_axis(job, &core_tensors[i]);
    return rc;
}

int run_ragged_layer_inputs(run_job *job)
{
    const ph_tensor *x = run_find(job, "x"), *memory = run_find(job, "memory");
    const ph_tensor *offsets = run_find(job, "q_offsets");
    const run_axis axes[] = {{"total", RUN_FREE, 0}, {"model_dim", RUN_FREE, 0}};
    if (!offsets && !run_find(job, "kv_offsets")) return EXIT_OK;
    int rc = check_beside_offsets(job);
    if (!rc && run_find(job, "past"))
        rc = refuse_beside(job, "past", "q_offsets", "no caches there");
    if (!rc && !offsets) rc = run_missing(job, "q_offsets", "'kv_offsets' is there");
    if (!rc && !memory && run_find(job, "kv_offsets"))
        rc = run_missing(job, "memory", "'kv_offsets' is there");
    if (!rc) rc = run_check(job, x, RUN_FLOATS, 2, axes);
    if (!rc && memory) rc = run_check(job, memory, RUN_FLOATS, 2, axes);
    if (!rc) rc = check_offsets(job, "q_offsets", 0, x->shape[0]);
    if (!rc && memory)
        rc = check_offsets(job, "kv_offsets", offsets->shape[0], memory->shape[0]);
    for (size_t i = 0; !rc && i < sizeof layer_tensors / sizeof layer_tensors[0]; i++)
        rc = add_batch_axis(job, &layer_tensors[i]);
    return rc;
}

void run_ragged_outputs(run_job *job)
{
    static const char *const list[] = {"out",     "lse",   "dq",     "dk",
                                       "dv",      "dgate", "dx",     "col_sum",
                                       "entropy", "gate",  "dmemory"};
    for (int i = 0; i < job->output_count; i++)
        for (size_t n = 0; n < sizeof list / sizeof list[0]; n++) {
            ph_tensor *t = &job->outputs[i];
            if (strcmp(t->name, list[n]) || t->rank < 3) continue;
            t->rank--;
            memmove(t->shape, t->shape + 1, (size_t)t->rank * sizeof t->shape[0]);
        }
}

/* ---- ragged: the plan ---- */

static int longest(const int32_t *offsets, int sequences)
{
    int most = 0;
    for (int i = 0; i < sequences; i++)
        if (offsets[i + 1] - offsets[i] > most) most = offsets[i + 1] - offsets[i];
    return most;
}

void run_ragged_plan(run_job *job, int memory, ph_attn *a, ph_args *args)
{
    const ph_tensor *q = run_find(job, "q_offsets"), *kv = run_find(job, "kv_offsets");
    if (!q) return;
    const int32_t *keys = kv ? kv->data : q->data;
    args->q_offsets = q->data;
    args->kv_offsets = memory ? keys : NULL;
    a->ragged = PH_RAGGED_ALL;
    a->batch = (int)q->shape[0] - 1;
    a->q_total = a->q_len, a->kv_total = a->kv_len;
    a->q_len = longest(args->q_offsets, a->batch);
    a->kv_len = longest(keys, a->batch);
}
