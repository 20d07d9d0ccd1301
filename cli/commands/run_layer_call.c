/*
 * run_layer_call.c - layer mode of `polyhead run`: the layer that IN describes becomes a
 * ph_layer, is run, and its results come into OUT.
 *
 * A size of 0 is no size for the library, or means "as usual". Such a layer is run with a
 * size of 1 instead and zeros in all that IN holds no number of, which changes nothing.
 */
#include <float.h>
#include <string.h>

#include "commands/run_layer.h"

typedef struct layer_call {
    run_job *job;
    run_layer_job *m;
    ph_layer_info info;
    const float *list[RUN_PARAMETERS];
    ph_layer_weights weights;
    ph_layer_args args;
    ph_layer_grads grads;
    float *d_keys;        /* x is memory too: gradient of x as memory */
    void *out_16, *dx_16; /* and where out and dx stand in OUT, if not as floats */
    float *heads;         /* in OUT */
} layer_call;

/* ---- description ---- */

static int at_least_one(int size)
{
    return size > 0 ? size : 1;
}

static ph_form form_of(const run_job *job, const run_matrix *w)
{
    if (job->options->transposed) return PH_FORM_LINEAR;
    return w->per_head ? PH_FORM_HEADS : PH_FORM_WHOLE;
}

/* The type that a matrix has in IN, or gets by --dtype. */
static ph_dtype type_of(run_job *job, const char *name)
{
    const ph_tensor *w = run_find(job, name);
    if (!w || !w->bytes) return PH_F32;
    return job->options->has_dtype ? (ph_dtype)job->options->dtype : w->type;
}

/* How matrices are stored; the library reads them in place. */
static void describe_matrices(run_job *job, run_layer_job *m)
{
    ph_layer_desc *d = &m->desc;
    d->q_form = form_of(job, &m->q);
    d->k_form = form_of(job, &m->k);
    d->v_form = form_of(job, &m->v);
    if (job->options->transposed && !d->concat) d->o_form = PH_FORM_LINEAR;
    d->wq_dtype = m->zero_scale ? PH_F32 : type_of(job, "wq");
    d->wk_dtype = type_of(job, "wk");
    d->wv_dtype = type_of(job, "wv");
    d->wo_dtype = type_of(job, "wo");
}

/* A scale of 0 is the default to the library. Plain queries can be erased instead; where
   a variant reads them for more than scores, the least scale there is does the same. */
static void settle_scale(run_layer_job *m, const run_options *o)
{
    int zero = o->has_scale && (float)o->scale == 0;
    m->zero_scale = zero && m->plain;
    if (zero && !m->plain) m->desc.attn.scale = FLT_TRUE_MIN;
}

static void describe(run_job *job, run_layer_job *m)
{
    const run_options *o = job->options;
    ph_attn *a = &m->common.attn;
    ph_layer_desc *d = &m->desc;
    int rotates = m->rope_base > 0 && a->qk_dim > 0;
    a->dtype = o->has_dtype ? (ph_dtype)o->dtype : m->x->type;
    a->variant = m->variant;
    m->shifted = rotates && !m->memory && a->q_offset != 0;
    d->model_dim = at_least_one(m->model_dim);
    d->memory_dim = m->memory || m->shifted ? at_least_one(m->memory_dim) : 0;
    d->concat = !m->wo;
    d->out_dim = d->concat ? 0 : at_least_one(m->out_dim);
    d->attn = *a;
    if (m->shifted) d->attn.dtype = PH_F32; /* two gradients of x are rounded as one */
    d->attn.qk_dim = at_least_one(a->qk_dim);
    d->attn.v_dim = at_least_one(a->v_dim);
    d->rope = !rotates              ? PH_ROPE_NONE
              : m->rope_interleaved ? PH_ROPE_INTERLEAVED
                                    : PH_ROPE_HALF;
    d->rope_base = (float)m->rope_base;
    d->rope_dims = (int)o->rope_dims;
    if (o->yarn.count) {
        d->rope_scaling = PH_ROPE_YARN;
        d->rope_factor = (float)o->yarn.value[0];
        d->rope_length = (int)o->yarn.value[1];
    }
    d->qk_norm = o->qk_norm;
    d->cache = m->common.at_end;
    if (d->cache) d->attn.kv_dtype = run_cache_type(job, m);
    settle_scale(m, o);
    describe_matrices(job, m);
    run_ragged_plan(job, d->memory_dim > 0, &d->attn, &m->common.args);
}

static int check_dout(run_job *job, const run_layer_job *m)
{
    const run_axis axes[] = {{"batch", m->common.attn.batch, 0},
                             {"q_len", m->common.attn.q_len, 0},
                             {"out_dim", m->out_dim, 0}};
    return m->dout ? run_check(job, m->dout, RUN_FLOATS, 3, axes) : EXIT_OK;
}

/* ---- inputs ---- */

/* x, memory or dout in the type of the layer, `width` elements to a row. */
static int load_rows(layer_call *c, const ph_tensor *tensor, int width, const void **data)
{
    ph_dtype dtype = c->m->desc.attn.dtype;
    size_t rows = tensor->shape[0] * tensor->shape[1];
    if (tensor->bytes) return run_converted(c->job, tensor, dtype, data);
    *data = run_buffer(c->job, rows * (size_t)width, ph_dtype_bytes(dtype, 1));
    return *data ? EXIT_OK : EXIT_MEMORY;
}

/* The position of the first query of a sequence whose last one stands at the last key. */
static int32_t position_at_end(const ph_args *args, int sequence)
{
    const int32_t *q = args->q_offsets + sequence, *kv = args->kv_offsets + sequence;
    return (kv[1] - kv[0]) - (q[1] - q[0]);
}

/* With --rope a query is rotated by its position among the keys. */
static int load_positions(layer_call *c)
{
    const ph_attn *a = &c->m->desc.attn;
    const ph_args *args = &c->m->common.args;
    int at_end = c->m->common.ragged && a->anchor == PH_ANCHOR_END && args->kv_offsets;
    if (c->m->desc.rope == PH_ROPE_NONE || (a->q_offset == 0 && !at_end)) return EXIT_OK;
    int32_t *past = run_buffer(c->job, (size_t)a->batch, sizeof *past);
    if (!past) return EXIT_MEMORY;
    for (int b = 0; b < a->batch; b++) {
        past[b] = at_end ? position_at_end(args, b) : a->q_offset;
        if (past[b] < 0)
            return cli_fail(EXIT_BAD_INPUT,
                            "%s: sequence %d has %d more queries than keys, expected "
                            "option --offset or at least as many keys with --rope",
                            c->job->path, b, -past[b]);
    }
    c->args.past = past;
    return EXIT_OK;
}

static int load_inputs(layer_call *c)
{
    const run_layer_job *m = c->m;
    const ph_layer_desc *d = &m->desc;
    c->args.attn = m->common.args;
    c->args.balance = (float)c->job->options->balance;
    int rc = load_rows(c, m->x, d->model_dim, &c->args.x);
    if (!rc && m->memory) rc = load_rows(c, m->memory, d->memory_dim, &c->args.memory);
    if (m->shifted) c->args.memory = c->args.x;
    if (!rc && m->dout) rc = load_rows(c, m->dout, c->info.out_dim, &c->grads.dout);
    if (!rc) rc = load_positions(c);
    return rc;
}

/* ---- outputs ---- */

/* Scratch for what is computed but not written to OUT. */
static int scratch(layer_call *c, size_t rows, int width, void **data)
{
    ph_dtype dtype = c->m->desc.attn.dtype;
    *data = run_buffer(c->job, rows * (size_t)width, ph_dtype_bytes(dtype, 1));
    return *data ? EXIT_OK : EXIT_MEMORY;
}

/* What wo multiplies, with --weights. */
static int make_heads(layer_call *c)
{
    const ph_attn *a = &c->m->common.attn;
    int heads = c->info.heads, dim = c->m->plain ? a->v_dim : c->info.dim;
    size_t rows = (size_t)a->batch * (size_t)a->q_len * (size_t)heads;
    const size_t values[] = {(size_t)a->batch, (size_t)heads, (size_t)a->q_len,
                             (size_t)dim};
    c->heads = run_output(c->job, "heads", PH_F32, 4, values);
    c->args.heads = run_buffer(c->job, rows, (size_t)c->info.dim * sizeof *c->heads);
    return c->heads && c->args.heads ? EXIT_OK : EXIT_MEMORY;
}

/* What a router gives. */
static int make_routes(layer_call *c)
{
    const ph_attn *a = &c->m->common.attn;
    const size_t gate[] = {(size_t)a->batch, (size_t)c->info.attn->q_heads,
                           (size_t)a->q_len};
    const size_t one[] = {1};
    if (!c->info.balances && c->job->options->balance)
        return cli_fail(EXIT_USAGE, "option --balance belongs to moh and moh-norm, found "
                                    "a variant without a router");
    if (!c->info.balances) return EXIT_OK;
    c->args.gate_out = run_output(c->job, "gate", PH_F32, 3, gate);
    c->args.balance_loss = run_output(c->job, "balance_loss", PH_F32, 1, one);
    return c->args.gate_out && c->args.balance_loss ? EXIT_OK : EXIT_MEMORY;
}

static int make_results(layer_call *c)
{
    run_layer_job *m = c->m;
    const ph_attn *a = &m->common.attn;
    size_t batch = (size_t)a->batch, q_len = (size_t)a->q_len;
    const size_t out[] = {batch, q_len, (size_t)m->out_dim};
    c->args.out = run_output(c->job, "out", a->dtype, 3, out);
    if (!c->args.out) return EXIT_MEMORY;
    int wide = m->shifted && a->dtype != PH_F32, rc = EXIT_OK;
    if (wide) c->out_16 = c->args.out;
    if (wide || !m->out_dim)
        rc = scratch(c, batch * q_len, c->info.out_dim, &c->args.out);
    if (!rc) rc = run_make_looks(c->job, &m->common);
    c->args.attn.lse = m->common.args.lse;
    c->args.attn.look = m->common.args.look;
    if (!rc) rc = make_routes(c);
    return rc || !c->job->options->weights ? rc : make_heads(c);
}

/* dx or dmemory; NULL for the library where it has no number. */
static int make_rows(layer_call *c, const ph_tensor *like, const char *name, void **data)
{
    ph_dtype dtype = c->m->common.attn.dtype;
    *data = run_output(c->job, name, dtype, 3, like->shape);
    if (!*data) return EXIT_MEMORY;
    if (like->bytes == 0) *data = NULL;
    return EXIT_OK;
}

/* x is memory too: gradients of both, as floats. */
static int make_shifted(layer_call *c)
{
    const run_layer_job *m = c->m;
    size_t rows = m->x->shape[0] * m->x->shape[1];
    int rc = scratch(c, rows, m->desc.model_dim, &c->grads.dmemory);
    c->d_keys = c->grads.dmemory;
    if (rc || m->common.attn.dtype == PH_F32) return rc;
    c->dx_16 = c->grads.dx;
    return scratch(c, rows, m->desc.model_dim, &c->grads.dx);
}

static int make_gradients(layer_call *c, const ph_layer *layer)
{
    run_layer_job *m = c->m;
    run_common *common = &m->common;
    ph_layer_grads *g = &c->grads;
    int rc = make_rows(c, m->x, "dx", &g->dx);
    if (!rc && m->memory) rc = make_rows(c, m->memory, "dmemory", &g->dmemory);
    if (!rc && m->shifted) rc = make_shifted(c);
    if (!rc) rc = run_make_gradients(c->job, m, layer, g);
    if (!rc) rc = run_make_common_grads(c->job, common);
    g->dlse = common->grads.dlse;
    g->dbias = common->grads.dbias;
    g->dgate = common->grads.dgate;
    g->dsink = common->grads.dsink;
    g->drelative = common->grads.drelative;
    return rc;
}

/* ---- the call ---- */

/* What the library keeps between forward and backward, aligned to 64. */
static int make_saved(layer_call *c, const ph_layer *layer)
{
    char *saved = run_buffer(c->job, ph_layer_saved(layer) + 64, 1);
    if (!saved) return EXIT_MEMORY;
    c->args.saved = saved + (64 - (uintptr_t)saved % 64);
    c->args.saved_size = ph_layer_saved(layer);
    return EXIT_OK;
}

static int compute(layer_call *c, const ph_layer *layer)
{
    int backward = c->m->common.backward;
    if (backward && make_saved(c, layer)) return EXIT_MEMORY;
    ph_status status = run_chunks_apply(c->job, c->m)
                           ? run_chunks(c->job, c->m, &c->weights, &c->args)
                           : ph_layer_forward(layer, &c->weights, &c->args);
    if (status == PH_OK && backward)
        status = ph_layer_backward(layer, &c->weights, &c->args, &c->grads);
    return status == PH_OK ? EXIT_OK : run_failed(c->job, status);
}

/* (batch, q_len, heads, dim) to (batch, heads, q_len, dim) */
static void transpose_heads(const layer_call *c)
{
    const ph_attn *a = &c->m->common.attn;
    size_t heads = (size_t)c->info.heads, len = (size_t)a->q_len;
    size_t dim = c->m->plain ? (size_t)a->v_dim : (size_t)c->info.dim;
    size_t rows = (size_t)a->batch * heads * len;
    for (size_t row = 0; row < rows && dim; row++) {
        size_t i = row % len, h = row / len % heads, b = row / len / heads;
        memcpy(c->heads + row * dim, c->args.heads + ((b * len + i) * heads + h) * dim,
               dim * sizeof *c->heads);
    }
}

/* `count` floats into their place in OUT. */
static int round_rows(const layer_call *c, const float *wide, size_t count, void *to)
{
    const ph_tensor tensor = {.type = PH_F32,
                              .rank = 1,
                              .shape = {count},
                              .data = wide,
                              .bytes = count * sizeof *wide};
    if (!to) return EXIT_OK;
    return cli_exit_code(ph_tensor_convert(&tensor, c->m->common.attn.dtype, to));
}

/* x is memory too: both gradients together, rounded once. */
static int finish_shifted(const layer_call *c)
{
    const ph_tensor *x = c->m->x;
    size_t rows = x->shape[0] * x->shape[1], count = rows * x->shape[2];
    float *dx = c->grads.dx;
    for (size_t i = 0; dx && c->d_keys && i < count; i++) dx[i] += c->d_keys[i];
    int rc = round_rows(c, c->args.out, rows * (size_t)c->m->out_dim, c->out_16);
    return rc || !dx ? rc : round_rows(c, dx, count, c->dx_16);
}

static int run_all(layer_call *c, const ph_layer *layer)
{
    run_job *job = c->job;
    run_layer_job *m = c->m;
    int backward = m->common.backward;
    int rc = run_find_parameters(job, m, layer);
    c->info = ph_layer_about(layer);
    if (!m->plain) m->out_dim = c->info.out_dim;
    if (!rc) rc = check_dout(job, m);
    if (!rc) rc = run_load_parameters(job, m, layer, c->list, &c->weights);
    if (!rc) rc = load_inputs(c);
    if (!rc) rc = make_results(c);
    if (!rc && m->common.at_end) rc = run_make_caches(job, m, layer, &c->args);
    if (!rc && backward) rc = make_gradients(c, layer);
    if (!rc) rc = compute(c, layer);
    if (!rc && c->heads) transpose_heads(c);
    if (!rc && backward) rc = run_finish_gradients(job, m, layer);
    if (!rc && m->shifted) rc = finish_shifted(c);
    return rc;
}

int run_layer_call(run_job *job, run_layer_job *m)
{
    layer_call c = {.job = job, .m = m};
    ph_layer *layer = NULL;
    describe(job, m);
    ph_status status = ph_layer_create(&layer, job->ctx, &m->desc);
    if (status != PH_OK) return run_failed(job, status);
    int rc = run_all(&c, layer);
    ph_layer_free(layer);
    return rc;
}
