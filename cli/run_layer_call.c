/*
 * run_layer_call.c - layer mode of `polyhead run`: the layer that IN describes becomes a
 * ph_layer, is run, and its results come into OUT.
 *
 * A size of 0 is no size for the library, or means "as usual". Such a layer is run with a
 * size of 1 instead and zeros in all that IN holds no number of, which changes nothing.
 */
#include <string.h>

#include "polyhead_layer.h"
#include "run_layer.h"

typedef struct call {
    run_job *job;
    run_layer_job *m;
    ph_layer_desc desc;
    ph_layer_weights weights;
    ph_layer_args args;
    ph_layer_grads grads;
    float *gradient[RUN_PARAMETERS]; /* as the library gives them; NULL: not wanted */
    void *result[RUN_PARAMETERS];    /* as they stand in OUT, in their own types */
    int zero_scale; /* --scale 0, which the library would take for the default */
    int turned;     /* 1: keys from x, but queries at other positions: x is memory too */
    void *d_keys;   /* then: gradient of x as memory */
    float *heads;   /* in OUT */
} call;

/* ---- description ---- */

static int at_least_one(int size)
{
    return size > 0 ? size : 1;
}

static ph_form form_of(const run_matrix *w)
{
    return w->per_head ? PH_FORM_HEADS : PH_FORM_WHOLE;
}

static void describe(call *c)
{
    run_layer_job *m = c->m;
    const run_options *o = c->job->options;
    ph_attn *a = &m->common.attn;
    ph_layer_desc *d = &c->desc;
    int turns = m->rope_base > 0 && a->qk_dim > 0;
    a->dtype = o->has_dtype ? (ph_dtype)o->dtype : run_dtype(m->x->type);
    c->zero_scale = o->has_scale && (float)o->scale == 0;
    c->turned = turns && !m->memory && a->q_offset != 0;
    d->model_dim = at_least_one(m->model_dim);
    d->memory_dim = m->memory || c->turned ? at_least_one(m->memory_dim) : 0;
    d->concat = !m->parameter[WO];
    d->out_dim = d->concat ? 0 : at_least_one(m->out_dim);
    d->attn = *a;
    d->attn.qk_dim = at_least_one(a->qk_dim);
    d->attn.v_dim = at_least_one(a->v_dim);
    d->q_form = form_of(&m->q);
    d->k_form = form_of(&m->k);
    d->v_form = form_of(&m->v);
    d->rope = !turns                ? PH_ROPE_NONE
              : m->rope_interleaved ? PH_ROPE_INTERLEAVED
                                    : PH_ROPE_HALF;
    d->rope_base = (float)m->rope_base;
    d->qk_norm = o->qk_norm;
}

/* Numbers in each parameter as the library sees it. */
static void count_parameters(const ph_layer_desc *d, size_t *count)
{
    const ph_attn *a = &d->attn;
    size_t model = (size_t)d->model_dim, out = (size_t)d->out_dim;
    size_t source = d->memory_dim ? (size_t)d->memory_dim : model;
    size_t heads = (size_t)a->q_heads, dim = (size_t)a->qk_dim, v_dim = (size_t)a->v_dim;
    count[BQ] = heads * dim;
    count[BK] = (size_t)a->k_heads * dim;
    count[BV] = (size_t)a->v_heads * v_dim;
    count[BO] = out;
    count[WQ] = model * count[BQ];
    count[WK] = source * count[BK];
    count[WV] = source * count[BV];
    count[WO] = heads * v_dim * out;
    count[Q_NORM] = count[K_NORM] = dim;
}

/* ---- inputs ---- */

/* With --dtype a parameter is first rounded to that type, as if IN held it so. */
static int load_parameter(call *c, int i, size_t count, const float **data)
{
    run_job *job = c->job;
    const ph_tensor *given = c->m->parameter[i];
    const void *numbers = NULL;
    *data = NULL;
    if (!given) return EXIT_OK;
    if (given->bytes == 0) {
        *data = run_buffer(job, count, sizeof **data);
        return *data ? EXIT_OK : EXIT_MEMORY;
    }
    ph_tensor tensor = *given;
    int rc = EXIT_OK;
    if (job->options->has_dtype) {
        ph_dtype dtype = (ph_dtype)job->options->dtype;
        rc = run_converted(job, given, dtype, &tensor.data);
        tensor.type = run_type(dtype);
        tensor.bytes = count * run_dtype_size(dtype);
    }
    if (!rc) rc = run_converted(job, &tensor, PH_F32, &numbers);
    *data = numbers;
    return rc;
}

/* Numbers times 0: what they give, NaN and infinity included, as with a scale of 0. */
static int erase(call *c, size_t count, const float **data)
{
    if (!*data) return EXIT_OK;
    float *zero = run_buffer(c->job, count, sizeof *zero);
    if (!zero) return EXIT_MEMORY;
    for (size_t i = 0; i < count; i++) zero[i] = (*data)[i] * 0;
    *data = zero;
    return EXIT_OK;
}

static int load_weights(call *c, const size_t *count)
{
    const float *data[RUN_PARAMETERS];
    int rc = EXIT_OK;
    for (int i = 0; i < RUN_PARAMETERS && !rc; i++)
        rc = load_parameter(c, i, count[i], &data[i]);
    if (!rc && c->zero_scale) rc = erase(c, count[WQ], &data[WQ]);
    if (!rc && c->zero_scale) rc = erase(c, count[BQ], &data[BQ]);
    if (rc) return rc;
    c->weights = (ph_layer_weights){.wq = data[WQ],
                                    .wk = data[WK],
                                    .wv = data[WV],
                                    .wo = data[WO],
                                    .bq = data[BQ],
                                    .bk = data[BK],
                                    .bv = data[BV],
                                    .bo = data[BO],
                                    .q_norm = data[Q_NORM],
                                    .k_norm = data[K_NORM]};
    return EXIT_OK;
}

/* x, memory or dout in the type of the layer, `width` numbers to a row. */
static int load_rows(call *c, const ph_tensor *tensor, int width, const void **data)
{
    ph_dtype dtype = c->desc.attn.dtype;
    size_t rows = tensor->shape[0] * tensor->shape[1];
    if (tensor->bytes) return run_converted(c->job, tensor, dtype, data);
    *data = run_buffer(c->job, rows * (size_t)width, run_dtype_size(dtype));
    return *data ? EXIT_OK : EXIT_MEMORY;
}

static int out_columns(const call *c)
{
    const ph_attn *a = &c->desc.attn;
    return c->desc.concat ? a->q_heads * a->v_dim : c->desc.out_dim;
}

/* With --rope a query turns by its position among the keys. */
static int load_positions(call *c)
{
    const ph_attn *a = &c->desc.attn;
    if (c->desc.rope == PH_ROPE_NONE || a->q_offset == 0) return EXIT_OK;
    int32_t *past = run_buffer(c->job, (size_t)a->batch, sizeof *past);
    if (!past) return EXIT_MEMORY;
    for (int b = 0; b < a->batch; b++) past[b] = a->q_offset;
    c->args.past = past;
    return EXIT_OK;
}

static int load_inputs(call *c)
{
    const run_layer_job *m = c->m;
    const ph_layer_desc *d = &c->desc;
    c->args.attn = m->common.args;
    int rc = load_rows(c, m->x, d->model_dim, &c->args.x);
    if (!rc && m->memory) rc = load_rows(c, m->memory, d->memory_dim, &c->args.memory);
    if (c->turned) c->args.memory = c->args.x;
    if (!rc && m->dout) rc = load_rows(c, m->dout, out_columns(c), &c->grads.dout);
    if (!rc) rc = load_positions(c);
    return rc;
}

/* ---- outputs ---- */

/* Room for what is computed but has no number in OUT. */
static int spare(call *c, size_t rows, int width, void **data)
{
    *data = run_buffer(c->job, rows * (size_t)width, run_dtype_size(c->desc.attn.dtype));
    return *data ? EXIT_OK : EXIT_MEMORY;
}

static int make_results(call *c)
{
    run_layer_job *m = c->m;
    const ph_attn *a = &m->common.attn;
    size_t batch = (size_t)a->batch, heads = (size_t)a->q_heads, q_len = (size_t)a->q_len;
    const size_t out[] = {batch, q_len, (size_t)m->out_dim};
    const size_t values[] = {batch, heads, q_len, (size_t)a->v_dim};
    c->args.out = run_output(c->job, "out", run_type(a->dtype), 3, out);
    if (!c->args.out) return EXIT_MEMORY;
    int rc = m->out_dim ? EXIT_OK : spare(c, batch * q_len, out_columns(c), &c->args.out);
    if (!rc) rc = run_make_looks(c->job, &m->common);
    c->args.attn.lse = m->common.args.lse;
    c->args.attn.look = m->common.args.look;
    if (rc || !c->job->options->weights) return rc;
    c->heads = run_output(c->job, "heads", PH_TYPE_F32, 4, values);
    c->args.heads = run_buffer(c->job, batch * heads * q_len,
                               (size_t)c->desc.attn.v_dim * sizeof *c->heads);
    return c->heads && c->args.heads ? EXIT_OK : EXIT_MEMORY;
}

/* The gradient of a parameter: in OUT as IN has it, for the library as floats. */
static int make_gradient(call *c, int i, size_t count)
{
    static const char *const names[] = {"dwq", "dwk", "dwv", "dwo",     "dbq",
                                        "dbk", "dbv", "dbo", "dq_norm", "dk_norm"};
    const run_options *o = c->job->options;
    const ph_tensor *given = c->m->parameter[i];
    if (!given) return EXIT_OK;
    ph_type type = o->has_dtype ? run_type((ph_dtype)o->dtype) : given->type;
    c->result[i] = run_output(c->job, names[i], type, given->rank, given->shape);
    if (!c->result[i]) return EXIT_MEMORY;
    if (given->bytes == 0) return EXIT_OK;
    c->gradient[i] =
        type == PH_TYPE_F32 ? c->result[i] : run_buffer(c->job, count, sizeof(float));
    return c->gradient[i] ? EXIT_OK : EXIT_MEMORY;
}

/* dx or dmemory; NULL for the library where it has no number. */
static int make_rows(call *c, const ph_tensor *like, const char *name, void **data)
{
    *data = run_output(c->job, name, run_type(c->desc.attn.dtype), 3, like->shape);
    if (!*data) return EXIT_MEMORY;
    if (like->bytes == 0) *data = NULL;
    return EXIT_OK;
}

static int make_gradients(call *c, const size_t *count)
{
    run_common *common = &c->m->common;
    ph_layer_grads *g = &c->grads;
    int rc = make_rows(c, c->m->x, "dx", &g->dx);
    if (!rc && c->m->memory) rc = make_rows(c, c->m->memory, "dmemory", &g->dmemory);
    if (!rc && c->turned) {
        rc = spare(c, c->m->x->shape[0] * c->m->x->shape[1], c->desc.model_dim,
                   &c->d_keys);
        g->dmemory = c->d_keys;
    }
    for (int i = 0; i < RUN_PARAMETERS && !rc; i++) rc = make_gradient(c, i, count[i]);
    if (!rc) rc = run_make_common_grads(c->job, common);
    float *const *d = c->gradient;
    g->dwq = d[WQ], g->dwk = d[WK], g->dwv = d[WV], g->dwo = d[WO];
    g->dbq = d[BQ], g->dbk = d[BK], g->dbv = d[BV], g->dbo = d[BO];
    g->dq_norm = d[Q_NORM], g->dk_norm = d[K_NORM];
    g->dlse = common->grads.dlse;
    g->dbias = common->grads.dbias;
    g->dgate = common->grads.dgate;
    g->dsink = common->grads.dsink;
    return rc;
}

/* ---- the call ---- */

/* What the library keeps between forward and backward, aligned to 64. */
static int make_saved(call *c, const ph_layer *layer)
{
    char *room = run_buffer(c->job, ph_layer_saved(layer) + 64, 1);
    if (!room) return EXIT_MEMORY;
    c->args.saved = room + (64 - (uintptr_t)room % 64);
    return EXIT_OK;
}

static int compute(call *c, const ph_layer *layer)
{
    int backward = c->m->common.backward;
    if (backward && make_saved(c, layer)) return EXIT_MEMORY;
    ph_status status = ph_layer_forward(layer, &c->weights, &c->args);
    if (status == PH_OK && backward)
        status = ph_layer_backward(layer, &c->weights, &c->args, &c->grads);
    return status == PH_OK ? EXIT_OK : cli_fail_status(status, c->job->ctx);
}

/* (batch, q_len, q_heads, v_dim) to (batch, q_heads, q_len, v_dim) */
static void turn_heads(const call *c)
{
    const ph_attn *a = &c->m->common.attn;
    size_t heads = (size_t)a->q_heads, len = (size_t)a->q_len, dim = (size_t)a->v_dim;
    size_t rows = (size_t)a->batch * heads * len;
    for (size_t row = 0; row < rows && dim; row++) {
        size_t i = row % len, h = row / len % heads, b = row / len / heads;
        memcpy(c->heads + row * dim, c->args.heads + ((b * len + i) * heads + h) * dim,
               dim * sizeof *c->heads);
    }
}

/* a += b, both of the layer's type. */
static int add_rows(call *c, void *a, const void *b)
{
    ph_type type = run_type(c->desc.attn.dtype);
    const ph_tensor *x = c->m->x;
    size_t count = x->shape[0] * x->shape[1] * x->shape[2];
    size_t bytes = count * run_dtype_size(c->desc.attn.dtype);
    ph_tensor left = {
        .type = type, .rank = 1, .shape = {count}, .data = a, .bytes = bytes};
    ph_tensor right = left, sum = left;
    float *one = run_buffer(c->job, count, sizeof *one);
    float *two = run_buffer(c->job, count, sizeof *two);
    if (!one || !two) return EXIT_MEMORY;
    right.data = b;
    sum.type = PH_TYPE_F32, sum.data = one, sum.bytes = count * sizeof *one;
    ph_tensor_convert(&left, PH_TYPE_F32, one);
    ph_tensor_convert(&right, PH_TYPE_F32, two);
    for (size_t i = 0; i < count; i++) one[i] += two[i];
    return cli_exit_code(ph_tensor_convert(&sum, type, a));
}

/* Gradients in the types in which they stand in OUT. */
static int finish_gradients(call *c, const size_t *count)
{
    if (c->zero_scale) { /* q has no say */
        const int of_q[] = {WQ, BQ, Q_NORM};
        for (int i = 0; i < 3; i++)
            if (c->gradient[of_q[i]])
                memset(c->gradient[of_q[i]], 0, count[of_q[i]] * sizeof(float));
    }
    for (int i = 0; i < RUN_PARAMETERS; i++) {
        if (!c->gradient[i] || c->gradient[i] == c->result[i]) continue;
        const ph_tensor *given = c->m->parameter[i];
        const run_options *o = c->job->options;
        ph_tensor wide = *given;
        wide.type = PH_TYPE_F32;
        wide.data = c->gradient[i];
        wide.bytes = count[i] * sizeof(float);
        ph_type type = o->has_dtype ? run_type((ph_dtype)o->dtype) : given->type;
        int rc = cli_exit_code(ph_tensor_convert(&wide, type, c->result[i]));
        if (rc) return rc;
    }
    return c->d_keys && c->grads.dx ? add_rows(c, c->grads.dx, c->d_keys) : EXIT_OK;
}

int run_layer_call(run_job *job, run_layer_job *m)
{
    call c = {.job = job, .m = m};
    size_t count[RUN_PARAMETERS];
    ph_layer *layer = NULL;
    describe(&c);
    ph_status status = ph_layer_create(&layer, job->ctx, &c.desc);
    if (status != PH_OK) return cli_fail_status(status, job->ctx);
    count_parameters(&c.desc, count);
    int rc = load_weights(&c, count);
    if (!rc) rc = load_inputs(&c);
    if (!rc) rc = make_results(&c);
    if (!rc && m->common.backward) rc = make_gradients(&c, count);
    if (!rc) rc = compute(&c, layer);
    if (!rc && c.heads) turn_heads(&c);
    if (!rc && m->common.backward) rc = finish_gradients(&c, count);
    ph_layer_free(layer);
    return rc;
}
