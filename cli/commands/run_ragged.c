/*
 * run_ragged.c - core mode of `polyhead run` with sequences side by side, without padding
 * (q_offsets, kv_offsets).
 *
 * A ragged batch is read as one batch row of total_q and total_kv tokens, so all checks
 * of core mode hold for it; attention then runs once per sequence, on strided views of
 * that row.
 */
#include <limits.h>
#include <string.h>

#include "commands/cmd_run.h"

/* ---- ragged: tensors ---- */

/* Tensors that get a batch axis of 1 before the checks, and lose it in OUT. */
static const struct {
    const char *name;
    int rank; /* in IN */
} with_batch[] = {{"q", 3}, {"k", 3}, {"v", 3}, {"dout", 3}, {"gate", 2}, {"dlse", 2}};

static int refuse_beside(run_job *job, const char *name, const char *beside,
                         const char *expected)
{
    return cli_fail(EXIT_BAD_INPUT, "%s: tensor '%s' stands beside '%s', expected %s",
                    job->path, name, beside, expected);
}

static int check_offsets(run_job *job, const char *name, size_t count, size_t total)
{
    char expected[120];
    const ph_tensor *t = run_find(job, name);
    if (!t) return run_missing(job, name, "q_offsets and kv_offsets come together");
    const run_axis axis[] = {{"sequences + 1", count ? (int64_t)count : RUN_FREE, 0}};
    int rc = run_check(job, t, RUN_TYPE(I32), 1, axis);
    if (rc) return rc;
    if (t->shape[0] < 1) return run_wrong(job, t, "at least one element");
    const int32_t *at = t->data;
    size_t last = t->shape[0] - 1;
    int good = at[0] == 0 && (size_t)at[last] == total && at[last] >= 0;
    for (size_t i = 0; i < last; i++) good &= at[i] <= at[i + 1];
    if (good) return EXIT_OK;
    snprintf(expected, sizeof expected, "ascending offsets from 0 to the total of %zu",
             total);
    return cli_fail(EXIT_BAD_INPUT, "%s: tensor '%s' holds others, expected %s",
                    job->path, name, expected);
}

static int check_beside_offsets(run_job *job)
{
    static const char *const others[] = {"bias", "visible", "q_lens", "kv_lens"};
    const run_options *o = job->options;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (run_find(job, others[i]))
            return refuse_beside(job, others[i], "q_offsets",
                                 "none of bias, visible, q_lens, kv_lens");
    const char *wrong = o->weights                    ? "--weights"
                        : o->stats                    ? "--stats"
                        : o->dropout > 0              ? "--dropout"
                        : o->machine.device != PH_CPU ? "--device"
                                                      : NULL;
    if (!wrong) return EXIT_OK;
    return cli_fail(EXIT_UNSUPPORTED,
                    "option %s is given, expected none with tensor 'q_offsets'", wrong);
}

static int add_batch_axis(run_job *job, const char *name, int rank)
{
    const run_axis axes[] = {
        {"heads", RUN_FREE, 0}, {"total", RUN_FREE, 0}, {"dim", RUN_FREE, 0}};
    const ph_tensor *given = run_find(job, name);
    if (!given || (rank == 2 && given->rank == 1)) return EXIT_OK; /* gate by head */
    int rc = run_check(job, given, rank == 3 ? RUN_FLOATS : RUN_TYPE(F32), rank, axes);
    if (rc) return rc;
    ph_tensor view = *given;
    view.rank = rank + 1;
    view.shape[0] = 1;
    for (int i = 0; i < rank; i++) view.shape[i + 1] = given->shape[i];
    run_view(job, &view);
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
    for (size_t i = 0; !rc && i < sizeof with_batch / sizeof with_batch[0]; i++)
        rc = add_batch_axis(job, with_batch[i].name, with_batch[i].rank);
    return rc;
}

void run_ragged_outputs(run_job *job)
{
    static const char *const list[] = {"out", "lse", "dq", "dk", "dv", "dgate"};
    for (int i = 0; i < job->output_count; i++)
        for (size_t n = 0; n < sizeof list / sizeof list[0]; n++) {
            ph_tensor *t = &job->outputs[i];
            if (strcmp(t->name, list[n]) || t->rank < 3) continue;
            t->rank--;
            memmove(t->shape, t->shape + 1, (size_t)t->rank * sizeof t->shape[0]);
        }
}

/* ---- ragged: one call per sequence ---- */

typedef struct ragged {
    run_job *job;
    const run_common *all; /* one batch row of all sequences */
    int q_start, q_len, kv_start, kv_len;
    float *lse, *dlse, *gate, *dgate, *dsink, *drelative; /* of one sequence */
} ragged;

static ph_strides strides_of(int total, int dim, int heads)
{
    int64_t head = (int64_t)total * dim;
    return (ph_strides){head * heads, head, dim};
}

static ph_attn attn_of(const ragged *r)
{
    ph_attn a = r->all->attn;
    int v_dim = a.v_dim ? a.v_dim : a.qk_dim;
    a.q = strides_of(a.q_len, a.qk_dim, a.q_heads);
    a.k = strides_of(a.kv_len, a.qk_dim, a.k_heads);
    a.v = strides_of(a.kv_len, v_dim, a.v_heads);
    a.out = strides_of(a.q_len, v_dim, a.q_heads);
    a.q_len = r->q_len;
    a.kv_len = r->kv_len;
    return a;
}

/* Rows of one sequence, (heads, total) to (heads, q_len), or with `back` vice versa. */
static void move_rows(const ragged *r, float *all, float *one, int back)
{
    size_t total = (size_t)r->all->attn.q_len, len = (size_t)r->q_len;
    for (int h = 0; all && h < r->all->attn.q_heads; h++) {
        float *row = all + (size_t)h * total + r->q_start, *own = one + (size_t)h * len;
        memcpy(back ? row : own, back ? own : row, len * sizeof *own);
    }
}

static void add_to(float *sum, const float *part, size_t count)
{
    for (size_t i = 0; sum && i < count; i++) sum[i] += part[i];
}

static const void *shift(const void *data, int tokens, int dim, ph_dtype dtype)
{
    return (const char *)data + (size_t)tokens * (size_t)dim * ph_dtype_bytes(dtype, 1);
}

static void *shift_out(void *data, int tokens, int dim, ph_dtype dtype)
{
    return data ? (char *)data + (size_t)tokens * (size_t)dim * ph_dtype_bytes(dtype, 1)
                : NULL;
}

static ph_args args_of(const ragged *r)
{
    const ph_attn *a = &r->all->attn;
    ph_args x = r->all->args;
    int v_dim = a->v_dim ? a->v_dim : a->qk_dim;
    x.q = shift(x.q, r->q_start, a->qk_dim, a->dtype);
    x.k = shift(x.k, r->kv_start, a->qk_dim, a->dtype);
    x.v = shift(x.v, r->kv_start, v_dim, a->dtype);
    x.out = shift_out(x.out, r->q_start, v_dim, a->dtype);
    x.lse = r->lse;
    if (a->gate == PH_GATE_ROW && x.gate) x.gate = r->gate;
    return x;
}

static ph_grads grads_of(const ragged *r)
{
    const ph_attn *a = &r->all->attn;
    ph_grads g = r->all->grads;
    int v_dim = a->v_dim ? a->v_dim : a->qk_dim;
    g.dout = shift(g.dout, r->q_start, v_dim, a->dtype);
    g.dq = shift_out(g.dq, r->q_start, a->qk_dim, a->dtype);
    g.dk = shift_out(g.dk, r->kv_start, a->qk_dim, a->dtype);
    g.dv = shift_out(g.dv, r->kv_start, v_dim, a->dtype);
    if (g.dlse) g.dlse = r->dlse;
    if (g.dgate) g.dgate = r->dgate;
    if (g.dsink) g.dsink = r->dsink;
    if (g.drelative) g.drelative = r->drelative;
    return g;
}

static ph_status compute(const ragged *r, const ph_plan *plan)
{
    const ph_args args = args_of(r);
    ph_status status = ph_forward(plan, &args);
    if (status != PH_OK || !r->all->backward) return status;
    const ph_grads grads = grads_of(r);
    return ph_backward(plan, &args, &grads);
}

/* What all sequences share is summed in their order. */
static void collect(const ragged *r)
{
    const ph_attn *a = &r->all->attn;
    const ph_grads *g = &r->all->grads;
    size_t heads = (size_t)a->q_heads;
    move_rows(r, r->all->args.lse, r->lse, 1);
    if (!r->all->backward) return;
    if (a->gate == PH_GATE_ROW)
        move_rows(r, g->dgate, r->dgate, 1);
    else
        add_to(g->dgate, r->dgate, heads);
    add_to(g->dsink, r->dsink, heads);
    add_to(g->drelative, r->drelative, heads * (2 * (size_t)a->reach + 1));
}

static ph_status run_sequence(const ragged *r)
{
    ph_plan *plan = NULL;
    const ph_attn a = attn_of(r);
    ph_status status = ph_plan_create(&plan, r->job->ctx, &a);
    move_rows(r, (float *)r->all->grads.dlse, r->dlse, 0);
    if (a.gate == PH_GATE_ROW) move_rows(r, (float *)r->all->args.gate, r->gate, 0);
    if (status == PH_OK) status = compute(r, plan);
    if (status == PH_OK) collect(r);
    ph_plan_free(plan);
    return status;
}

int run_ragged(run_job *job, const run_common *all)
{
    const ph_tensor *offsets = run_find(job, "q_offsets");
    const int32_t *q = offsets->data, *kv = run_find(job, "kv_offsets")->data;
    size_t heads = (size_t)all->attn.q_heads, rows = heads * (size_t)all->attn.q_len;
    ragged r = {.job = job, .all = all};
    float **const buffers[] = {&r.lse, &r.dlse, &r.gate, &r.dgate, &r.dsink};
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++)
        if (!(*buffers[i] = run_buffer(job, rows + heads, sizeof(float))))
            return EXIT_MEMORY;
    r.drelative = run_buffer(job, heads, (2 * (size_t)all->attn.reach + 1) * 4);
    if (!r.drelative) return EXIT_MEMORY;
    for (size_t s = 0; s + 1 < offsets->shape[0]; s++) {
        r.q_start = q[s], r.q_len = q[s + 1] - q[s];
        r.kv_start = kv[s], r.kv_len = kv[s + 1] - kv[s];
        ph_status status = r.q_len ? run_sequence(&r) : PH_OK;
        if (status != PH_OK) return cli_fail_status(status, job->ctx);
    }
    return EXIT_OK;
}
