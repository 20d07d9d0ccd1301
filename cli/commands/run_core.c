/*
 * run_core.c - core mode of `polyhead run`: q, k, v in, out and lse (and gradients) out;
 * and what layer mode shares with it: masks, lengths, gate, sink, statistics.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "commands/cmd_run.h"

const char *const run_core_names[] = {
    "q",       "k",         "v",          "bias",       "visible",  "q_lens",
    "kv_lens", "gate",      "sink",       "alibi",      "relative", "dout",
    "dlse",    "q_offsets", "kv_offsets", "page_table", NULL};

/* ---- shared with layer mode: tensors and options ---- */

static int read_mask(run_job *job, run_common *c)
{
    const run_options *o = job->options;
    ph_attn *a = &c->attn;
    int limited = o->causal || o->window.count > 0;
    if (o->has_offset) {
        a->anchor = PH_ANCHOR_OFFSET;
        a->q_offset = (int)o->offset;
    } else if (c->at_end || (c->ragged && limited)) {
        a->anchor = PH_ANCHOR_END;
    } else if (limited && a->q_len != a->kv_len) {
        return cli_fail(
            EXIT_USAGE,
            "option --offset is missing, expected the position of query 0 among "
            "the keys, because q_len is %d and kv_len is %d",
            a->q_len, a->kv_len);
    }
    if (!limited) return EXIT_OK;
    a->mask = o->window.count > 0 ? PH_MASK_BAND : PH_MASK_CAUSAL;
    a->band_left = (int)o->window.value[0];
    a->band_right = (int)o->window.value[1];
    if (o->causal) a->band_right = 0; /* what both allow: no key behind the position */
    return EXIT_OK;
}

/* bias and visible: (batch or 1, q_heads or 1, q_len or 1, kv_len). */
static int read_broadcast(run_job *job, const run_common *c, const char *name,
                          unsigned types, ph_broadcast *shape, const void **data)
{
    const ph_attn *a = &c->attn;
    const ph_tensor *tensor = run_find(job, name);
    const run_axis axes[] = {{"batch", a->batch, 1},
                             {"q_heads", a->q_heads, 1},
                             {"q_len", a->q_len, 1},
                             {"kv_len", a->kv_len, 0}};
    if (!tensor) return EXIT_OK;
    int rc = run_check(job, tensor, types, 4, axes);
    if (rc) return rc;
    *shape = (ph_broadcast){(int)tensor->shape[0], (int)tensor->shape[1],
                            (int)tensor->shape[2]};
    *data = tensor->data;
    return EXIT_OK;
}

static int read_visible(run_job *job, run_common *c)
{
    const void *data = NULL;
    const ph_tensor *tensor = run_find(job, "visible");
    int rc = read_broadcast(job, c, "visible", RUN_TYPE(BOOL) | RUN_TYPE(U8),
                            &c->attn.visible, &data);
    c->args.visible = data;
    for (size_t i = 0; rc == EXIT_OK && tensor && i < tensor->bytes; i++)
        if (c->args.visible[i] > 1)
            rc = cli_fail(EXIT_BAD_INPUT,
                          "%s: tensor 'visible' has %d at element %zu, "
                          "expected 0 or 1",
                          job->path, c->args.visible[i], i);
    return rc;
}

/* A tensor with one axis. */
static int read_vector(run_job *job, const char *name, unsigned type, const char *axis,
                       int size, const void **data)
{
    const ph_tensor *tensor = run_find(job, name);
    const run_axis axes[] = {{axis, size, 0}};
    if (!tensor) return EXIT_OK;
    *data = tensor->data;
    return run_check(job, tensor, type, 1, axes);
}

static int read_gate(run_job *job, run_common *c)
{
    const ph_attn *a = &c->attn;
    const ph_tensor *tensor = run_find(job, "gate");
    const run_axis row[] = {
        {"batch", a->batch, 0}, {"q_heads", a->q_heads, 0}, {"q_len", a->q_len, 0}};
    char expected[160];
    if (!tensor) return EXIT_OK;
    c->args.gate = tensor->data;
    c->attn.gate = tensor->rank == 3 ? PH_GATE_ROW : PH_GATE_HEAD;
    if (tensor->rank == 3) return run_check(job, tensor, RUN_TYPE(F32), 3, row);
    if (tensor->rank == 1) return run_check(job, tensor, RUN_TYPE(F32), 1, row + 1);
    snprintf(expected, sizeof expected,
             "F32 (q_heads = %d) or (batch = %d, q_heads = %d, "
             "q_len = %d)",
             a->q_heads, a->batch, a->q_heads, a->q_len);
    return run_wrong(job, tensor, expected);
}

/* A bias by distance: its reach follows from the number of columns. */
static int read_relative(run_job *job, run_common *c)
{
    const ph_tensor *tensor = run_find(job, "relative");
    const run_axis axes[] = {{"q_heads", c->attn.q_heads, 0},
                             {"2*reach + 1", RUN_FREE, 0}};
    if (!tensor) return EXIT_OK;
    int rc = run_check(job, tensor, RUN_TYPE(F32), 2, axes);
    if (rc) return rc;
    if (tensor->shape[1] % 2 == 0 || tensor->shape[1] < 3)
        return run_wrong(job, tensor, "an odd number of distances, at least 3");
    c->args.relative = tensor->data;
    c->attn.reach = (int)(tensor->shape[1] / 2);
    return EXIT_OK;
}

static int read_dlse(run_job *job, run_common *c)
{
    const ph_attn *a = &c->attn;
    const ph_tensor *tensor = run_find(job, "dlse");
    const run_axis axes[] = {
        {"batch", a->batch, 0}, {"q_heads", a->q_heads, 0}, {"q_len", a->q_len, 0}};
    if (!tensor) return EXIT_OK;
    if (!c->backward) return run_missing(job, "dout", "'dlse' is there");
    c->grads.dlse = tensor->data;
    return run_check(job, tensor, RUN_TYPE(F32), 3, axes);
}

static void read_numbers(const run_options *o, run_common *c)
{
    c->attn.variant = o->variant;
    c->attn.backward = c->backward;
    c->attn.scale = (float)o->scale;
    c->attn.softcap = o->softcap > 0 ? fmaxf((float)o->softcap, FLT_MIN) : 0;
    c->attn.dropout = (float)o->dropout;
    c->args.seed = (uint64_t)o->seed;
}

int run_read_common(run_job *job, run_common *c)
{
    const ph_attn *a = &c->attn;
    const void *bias = NULL, *sink = NULL, *alibi = NULL, *q_lens = NULL, *kv_lens = NULL;
    int rc = read_broadcast(job, c, "bias", RUN_TYPE(F32), &c->attn.bias, &bias);
    read_numbers(job->options, c);
    if (!rc) rc = read_visible(job, c);
    if (!rc) rc = read_vector(job, "q_lens", RUN_TYPE(I32), "batch", a->batch, &q_lens);
    if (!rc) rc = read_vector(job, "kv_lens", RUN_TYPE(I32), "batch", a->batch, &kv_lens);
    if (!rc) rc = read_gate(job, c);
    if (!rc) rc = read_vector(job, "sink", RUN_TYPE(F32), "q_heads", a->q_heads, &sink);
    if (!rc) rc = read_vector(job, "alibi", RUN_TYPE(F32), "q_heads", a->q_heads, &alibi);
    if (!rc) rc = read_relative(job, c);
    if (!rc) rc = read_dlse(job, c);
    if (!rc) rc = read_mask(job, c);
    c->args.bias = bias;
    c->args.sink = sink;
    c->args.alibi = alibi;
    c->args.q_lens = q_lens;
    c->args.kv_lens = kv_lens;
    return rc;
}

int run_make_looks(run_job *job, run_common *c)
{
    const run_options *o = job->options;
    size_t batch = (size_t)c->attn.batch, heads = (size_t)c->attn.q_heads;
    size_t q_len = (size_t)c->attn.q_len, kv_len = (size_t)c->attn.kv_len;
    const size_t rows[] = {batch, heads, q_len, kv_len},
                 columns[] = {batch, heads, kv_len};
    c->args.lse = run_output(job, "lse", PH_F32, 3, rows);
    if (!c->args.lse) return EXIT_MEMORY;
    if (o->weights) {
        c->look.weights = run_output(job, "weights", PH_F32, 4, rows);
        if (!c->look.weights) return EXIT_MEMORY;
    }
    if (o->stats) {
        c->look.col_sum = run_output(job, "col_sum", PH_F32, 3, columns);
        c->look.entropy = run_output(job, "entropy", PH_F32, 3, rows);
        if (!c->look.col_sum || !c->look.entropy) return EXIT_MEMORY;
    }
    if (o->weights || o->stats) c->args.look = &c->look;
    return EXIT_OK;
}

/* The gradient of an F32 tensor of IN; NULL if IN has none. */
static int make_like(run_job *job, const char *name, float **data)
{
    const ph_tensor *tensor = run_find(job, name);
    if (!tensor) return EXIT_OK;
    *data = run_gradient(job, tensor, PH_F32);
    return *data ? EXIT_OK : EXIT_MEMORY;
}

int run_make_common_grads(run_job *job, run_common *c)
{
    int rc = make_like(job, "bias", &c->grads.dbias);
    if (!rc) rc = make_like(job, "gate", &c->grads.dgate);
    if (!rc) rc = make_like(job, "sink", &c->grads.dsink);
    if (!rc) rc = make_like(job, "relative", &c->grads.drelative);
    return rc;
}

/* ---- core mode ---- */

enum { EXTRAS = 24 }; /* more than any variant has */

typedef struct core {
    run_common common;
    const ph_tensor *q, *k, *v, *dout;
    const ph_tensor *table; /* page_table: k and v are in pages; or NULL */
    int ragged;             /* sequences side by side, without padding */
    int no_values;          /* v_dim is 0: computed with one column of zeros instead */
    int zero_scale;         /* --scale 0, which the library would take for the default */
    ph_plan *plan;
    const float *extra[EXTRAS]; /* the variant's tensors, as listed; NULL: not given */
    float *dextra[EXTRAS];
} core;

static int find_inputs(run_job *job, core *m)
{
    const char *why = "core mode needs q, k and v";
    m->q = run_find(job, "q");
    m->k = run_find(job, "k");
    m->v = run_find(job, "v");
    m->dout = run_find(job, "dout");
    m->common.backward = m->dout != NULL;
    if (!m->q) return run_missing(job, "q", why);
    if (!m->k) return run_missing(job, "k", why);
    if (!m->v) return run_missing(job, "v", why);
    return EXIT_OK;
}

/* Ragged tensors rewritten as core mode takes them; a page table checked. */
static int rewrite_inputs(run_job *job, core *m)
{
    m->ragged = run_find(job, "q_offsets") || run_find(job, "kv_offsets");
    m->table = run_find(job, "page_table");
    if (m->ragged && m->table)
        return cli_fail(EXIT_BAD_INPUT,
                        "%s: tensor 'page_table' stands beside 'q_offsets', expected one "
                        "of them",
                        job->path);
    m->common.ragged = m->ragged;
    if (m->table) return run_paged_inputs(job);
    int rc = m->ragged ? run_ragged_inputs(job) : EXIT_OK;
    return rc || !m->ragged ? rc : find_inputs(job, m);
}

/* k_heads and v_heads must divide q_heads; 0 heads divide nothing. */
static int check_heads(const run_job *job, const ph_tensor *tensor, int heads,
                       int q_heads)
{
    char expected[96];
    if (heads > 0 && q_heads % heads == 0) return EXIT_OK;
    snprintf(expected, sizeof expected,
             "a number of heads that divides the %d heads of 'q'", q_heads);
    return run_wrong(job, tensor, expected);
}

static int check_inputs(run_job *job, core *m)
{
    const ph_tensor *q = m->q, *k = m->k, *v = m->v;
    unsigned type = 1u << q->type;
    const run_axis any[] = {{"batch", RUN_FREE, 0},
                            {"q_heads", RUN_FREE, 0},
                            {"q_len", RUN_FREE, 0},
                            {"qk_dim", RUN_FREE, 0}};
    int rc = run_check(job, q, RUN_FLOATS, 4, any);
    if (rc) return rc;
    if (q->shape[1] == 0) return run_wrong(job, q, "at least one head");
    size_t blocks = m->table ? k->shape[0] : q->shape[0]; /* pages, or batch rows */
    const run_axis keys[] = {{"batch", (int64_t)blocks, 0},
                             {"k_heads", RUN_FREE, 0},
                             {"kv_len", RUN_FREE, 0},
                             {"qk_dim", (int64_t)q->shape[3], 0}};
    rc = run_check(job, k, type, 4, keys);
    if (rc) return rc;
    const run_axis values[] = {{"batch", (int64_t)blocks, 0},
                               {"v_heads", RUN_FREE, 0},
                               {"kv_len", (int64_t)k->shape[2], 0},
                               {"v_dim", RUN_FREE, 0}};
    rc = run_check(job, v, type, 4, values);
    if (!rc) rc = check_heads(job, k, (int)k->shape[1], (int)q->shape[1]);
    if (!rc) rc = check_heads(job, v, (int)v->shape[1], (int)q->shape[1]);
    return rc;
}

static int check_dout(run_job *job, const core *m)
{
    const ph_tensor *q = m->q;
    const run_axis axes[] = {{"batch", (int64_t)q->shape[0], 0},
                             {"q_heads", (int64_t)q->shape[1], 0},
                             {"q_len", (int64_t)q->shape[2], 0},
                             {"v_dim", (int64_t)m->v->shape[3], 0}};
    return m->dout ? run_check(job, m->dout, RUN_FLOATS, 4, axes) : EXIT_OK;
}

static int check_options(const run_job *job)
{
    const run_options *o = job->options;
    const char *wrong = o->heads        ? "--heads"
                        : o->k_heads    ? "--k-heads"
                        : o->v_heads    ? "--v-heads"
                        : o->rope       ? "--rope"
                        : o->qk_norm    ? "--qk-norm"
                        : o->balance    ? "--balance"
                        : o->transposed ? "--transposed"
                        : o->rope_dims  ? "--rope-dims"
                        : o->yarn.count ? "--yarn"
                                        : NULL;
    if (!wrong) return EXIT_OK;
    return cli_fail(EXIT_USAGE,
                    "option %s belongs to layer mode, but %s holds q, k, v "
                    "(core mode), whose shapes say it",
                    wrong, job->path);
}

static void fill_sizes(const run_job *job, core *m)
{
    const ph_tensor *q = m->q, *k = m->k, *v = m->v;
    ph_attn *a = &m->common.attn;
    a->batch = (int)q->shape[0];
    a->q_heads = (int)q->shape[1];
    a->k_heads = (int)k->shape[1];
    a->v_heads = (int)v->shape[1];
    a->q_len = (int)q->shape[2];
    a->kv_len = (int)k->shape[2];
    a->qk_dim = (int)q->shape[3];
    a->v_dim = (int)v->shape[3];
    a->dtype = job->options->has_dtype ? (ph_dtype)job->options->dtype : q->type;
    if (m->table && k->shape[2]) {
        a->page_len = (int)k->shape[2];
        a->pages = (int)k->shape[0];
        a->kv_len = (int)m->table->shape[1] * a->page_len;
        m->common.args.page_table = m->table->data;
    }
    m->no_values = a->v_dim == 0 && a->qk_dim != 0;
    m->zero_scale = job->options->has_scale && (float)job->options->scale == 0;
}

/* The library reads a v_dim of 0 as "like qk_dim": one column of zeros does the same. */
static int stand_in(run_job *job, core *m)
{
    run_common *c = &m->common;
    size_t size = ph_dtype_bytes(c->attn.dtype, 1), batch = (size_t)c->attn.batch;
    size_t rows = batch * (size_t)c->attn.q_heads * (size_t)c->attn.q_len;
    c->attn.v_dim = 1;
    c->args.v = run_buffer(job, m->v->shape[0] * m->v->shape[1] * m->v->shape[2], size);
    c->args.out = run_buffer(job, rows, size);
    c->grads.dout = run_buffer(job, rows, size);
    return c->args.v && c->args.out && c->grads.dout ? EXIT_OK : EXIT_MEMORY;
}

/* q times 0: the same scores as a scale of 0, NaN and infinity included. */
static int erase_queries(run_job *job, core *m)
{
    run_common *c = &m->common;
    const void *wide = NULL;
    int rc = run_converted(job, m->q, PH_F32, &wide);
    size_t count = m->q->bytes / ph_dtype_bytes(m->q->type, 1);
    float *zero = rc ? NULL : run_buffer(job, count, sizeof *zero);
    if (!zero) return EXIT_MEMORY;
    for (size_t i = 0; i < count; i++) zero[i] = ((const float *)wide)[i] * 0;
    ph_tensor erased = *m->q;
    erased.type = PH_F32;
    erased.data = zero;
    erased.bytes = count * sizeof *zero;
    c->attn.scale = 1;
    return run_converted(job, &erased, c->attn.dtype, &c->args.q);
}

static int load_inputs(run_job *job, core *m)
{
    run_common *c = &m->common;
    ph_dtype dtype = c->attn.dtype;
    int rc = m->zero_scale ? erase_queries(job, m)
                           : run_converted(job, m->q, dtype, &c->args.q);
    if (!rc) rc = run_converted(job, m->k, dtype, &c->args.k);
    if (!rc) rc = run_converted(job, m->v, dtype, &c->args.v);
    if (!rc && m->dout) rc = run_converted(job, m->dout, dtype, &c->grads.dout);
    return rc;
}

static int make_outputs(run_job *job, core *m)
{
    run_common *c = &m->common;
    ph_dtype type = c->attn.dtype;
    const size_t out[] = {m->q->shape[0], m->q->shape[1], m->q->shape[2], m->v->shape[3]};
    c->args.out = run_output(job, "out", type, 4, out);
    if (!c->args.out) return EXIT_MEMORY;
    int rc = run_make_looks(job, c);
    if (!rc && m->dout) {
        c->grads.dq = run_output(job, "dq", type, 4, m->q->shape);
        c->grads.dk = run_output(job, "dk", type, 4, m->k->shape);
        c->grads.dv = run_output(job, "dv", type, 4, m->v->shape);
        if (!c->grads.dq || !c->grads.dk || !c->grads.dv) return EXIT_MEMORY;
        rc = run_make_common_grads(job, c);
    }
    if (!rc && m->no_values) {
        c->grads.dv = NULL;
        rc = stand_in(job, m);
    }
    return rc;
}

/* Names that IN may hold: those of core mode and the variant's, which a plan knows. */
static int check_names(run_job *job, const core *m)
{
    const char *known[64];
    int n = 0;
    for (; run_core_names[n]; n++) known[n] = run_core_names[n];
    for (int e = 0; ph_plan_extra(m->plan, e); e++)
        known[n++] = ph_plan_extra(m->plan, e)->name;
    known[n] = NULL;
    return run_check_names(job, "core mode", known);
}

/* Without a variant names are checked before anything else can be wrong. */
static int check_plain_names(run_job *job)
{
    return job->options->variant ? EXIT_OK
                                 : run_check_names(job, "core mode", run_core_names);
}

static int make_plan(run_job *job, core *m)
{
    run_ragged_plan(job, 1, &m->common.attn, &m->common.args);
    ph_status status = ph_plan_create(&m->plan, job->ctx, &m->common.attn);
    return status == PH_OK ? EXIT_OK : run_failed(job, status);
}

static int read_extra(run_job *job, core *m, const ph_param *param, int e)
{
    const ph_tensor *tensor = NULL;
    int rc = run_find_param(job, param, &tensor);
    if (rc || !tensor) return rc;
    m->extra[e] = tensor->data;
    rc = run_check_param(job, tensor, RUN_TYPE(F32), param);
    if (!rc && m->common.backward) rc = make_like(job, param->name, &m->dextra[e]);
    return rc;
}

static int read_extras(run_job *job, core *m)
{
    int rc = EXIT_OK;
    for (int e = 0; !rc && ph_plan_extra(m->plan, e); e++)
        rc = read_extra(job, m, ph_plan_extra(m->plan, e), e);
    m->common.args.extra = m->extra;
    m->common.grads.dextra = m->dextra;
    return rc;
}

static ph_status run_on_host(const core *m)
{
    const run_common *c = &m->common;
    ph_status status = ph_forward(m->plan, &c->args);
    if (status != PH_OK || !c->backward) return status;
    return ph_backward(m->plan, &c->args, &c->grads);
}

static int attend_batch(run_job *job, core *m)
{
    ph_status status = job->options->machine.device == PH_CPU
                           ? run_on_host(m)
                           : run_on_device(job, m->plan, &m->common);
    return status == PH_OK ? EXIT_OK : run_failed(job, status);
}

static int attend(run_job *job, core *m)
{
    run_common *c = &m->common;
    int rc = attend_batch(job, m);
    if (!rc && m->ragged) run_ragged_outputs(job);
    if (!rc && m->zero_scale && c->grads.dq)
        memset(c->grads.dq, 0,
               m->q->bytes / ph_dtype_bytes(m->q->type, 1) *
                   ph_dtype_bytes(c->attn.dtype, 1));
    return rc;
}

int run_core(run_job *job)
{
    core m = {0};
    int rc = check_plain_names(job);
    if (!rc) rc = check_options(job);
    if (!rc) rc = find_inputs(job, &m);
    if (!rc) rc = rewrite_inputs(job, &m);
    if (!rc) rc = check_inputs(job, &m);
    if (!rc) rc = check_dout(job, &m);
    if (!rc) fill_sizes(job, &m);
    if (!rc) rc = run_read_common(job, &m.common);
    if (!rc) rc = load_inputs(job, &m);
    if (!rc) rc = make_outputs(job, &m);
    if (!rc) rc = make_plan(job, &m);
    if (!rc) rc = check_names(job, &m);
    if (!rc) rc = read_extras(job, &m);
    if (!rc) rc = attend(job, &m);
    ph_plan_free(m.plan);
    return rc;
}
