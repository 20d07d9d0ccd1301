/*
 * run_layer_params.c - layer mode of `polyhead run`: parameters by the list of the
 * library, so that a variant that brings tensors needs no line here.
 */
#include <stddef.h>
#include <string.h>

#include "commands/run_layer.h"

/* ---- finding ---- */

/* wo may be cut into heads: its first two axes are then one. */
static ph_param as_given(const run_job *job, const ph_param *p, const ph_tensor *tensor)
{
    ph_param cut = *p;
    const size_t *shape = tensor->shape;
    if (job->options->transposed && run_is_matrix(p->name))
        cut.dims[0] = p->dims[1], cut.dims[1] = p->dims[0];
    if (strcmp(p->name, "wo") || tensor->rank != 3) return cut;
    if (shape[0] * shape[1] != (size_t)p->dims[0]) return cut;
    cut.rank = 3;
    cut.dims[0] = (int)shape[0], cut.dims[1] = (int)shape[1], cut.dims[2] = p->dims[1];
    return cut;
}

/* Plain layers were checked before; what is empty there is not for the library. */
static int find_parameter(run_job *job, const run_layer_job *m, const ph_param *p,
                          const ph_tensor **tensor)
{
    int rc = run_find_param(job, p, tensor);
    if (rc || !*tensor || m->plain) return rc;
    ph_param given = as_given(job, p, *tensor);
    return run_check_param(job, *tensor, RUN_FLOATS, &given);
}

/* Names that are no parameters. */
static const char *const others[] = {
    "x",       "memory",  "value_memory", "q_offsets", "kv_offsets", "past",
    "k_cache", "v_cache", "bias",         "visible",   "q_lens",     "kv_lens",
    "gate",    "sink",    "alibi",        "relative",  "dout",       "dlse"};

int run_find_parameters(run_job *job, run_layer_job *m, const ph_layer *layer)
{
    enum { OTHERS = sizeof others / sizeof others[0] };
    const char *known[RUN_PARAMETERS + OTHERS + 1];
    int n = 0;
    for (int i = 0; i < OTHERS; i++) known[n++] = others[i];
    for (int i = 0; ph_layer_param(layer, i); i++) {
        const ph_param *p = ph_layer_param(layer, i);
        m->count[i] = ph_param_size(p);
        known[n++] = p->name;
        int rc = find_parameter(job, m, p, &m->parameter[i]);
        if (rc) return rc;
    }
    known[n] = NULL;
    return run_check_names(job, "this layer", known);
}

/* ---- loading ---- */

/* With --dtype a parameter is first rounded to that type, as if IN held it so. A matrix
   that the layer takes in that type stays in place. */
static int load(run_job *job, const ph_tensor *given, size_t count, ph_dtype taken,
                const void **data)
{
    *data = NULL;
    if (!given) return EXIT_OK;
    if (given->bytes == 0) {
        *data = run_buffer(job, count, sizeof(float));
        return *data ? EXIT_OK : EXIT_MEMORY;
    }
    ph_tensor tensor = *given;
    int rc = EXIT_OK;
    if (job->options->has_dtype) {
        ph_dtype dtype = (ph_dtype)job->options->dtype;
        rc = run_converted(job, given, dtype, &tensor.data);
        tensor.type = dtype;
        tensor.bytes = count * ph_dtype_bytes(dtype, 1);
    }
    return rc ? rc : run_converted(job, &tensor, taken, data);
}

/* Numbers times 0: what they give, NaN and infinity included, as with a scale of 0. */
static int erase(run_job *job, size_t count, const void **data)
{
    const float *given = *data;
    if (!given) return EXIT_OK;
    float *zero = run_buffer(job, count, sizeof *zero);
    if (!zero) return EXIT_MEMORY;
    for (size_t i = 0; i < count; i++) zero[i] = given[i] * 0;
    *data = zero;
    return EXIT_OK;
}

static int makes_queries(const char *name)
{
    return !strcmp(name, "wq") || !strcmp(name, "bq");
}

int run_load_parameters(run_job *job, run_layer_job *m, const ph_layer *layer,
                        const float *list[RUN_PARAMETERS], ph_layer_weights *w)
{
#define FIELD(name) #name, offsetof(ph_layer_weights, name)
    static const struct {
        const char *name;
        size_t at;
    } fields[] = {{FIELD(wq)}, {FIELD(wk)}, {FIELD(wv)}, {FIELD(wo)},     {FIELD(bq)},
                  {FIELD(bk)}, {FIELD(bv)}, {FIELD(bo)}, {FIELD(q_norm)},
                  {FIELD(k_norm)}};
    int named = ph_layer_named(layer);
    for (int i = 0; ph_layer_param(layer, i); i++) {
        const ph_param *p = ph_layer_param(layer, i);
        const void *data;
        int rc = load(job, m->parameter[i], m->count[i], p->dtype, &data);
        if (!rc && m->zero_scale && makes_queries(p->name))
            rc = erase(job, m->count[i], &data);
        if (rc) return rc;
        list[i] = data;
        for (size_t f = 0; i < named && f < sizeof fields / sizeof fields[0]; f++)
            if (!strcmp(fields[f].name, p->name))
                memcpy((char *)w + fields[f].at, &data, sizeof data);
    }
    w->extra = list + named;
    return EXIT_OK;
}

/* ---- gradients ---- */

static ph_dtype type_in_out(const run_job *job, const ph_tensor *given)
{
    const run_options *o = job->options;
    return o->has_dtype ? (ph_dtype)o->dtype : given->type;
}

/* The gradient of a parameter: in OUT as IN has it, for the library as floats. */
static int make_gradient(run_job *job, run_layer_job *m, int i)
{
    const ph_tensor *given = m->parameter[i];
    if (!given) return EXIT_OK;
    ph_dtype type = type_in_out(job, given);
    m->result[i] = run_gradient(job, given, type);
    if (!m->result[i]) return EXIT_MEMORY;
    if (given->bytes == 0) return EXIT_OK;
    m->gradient[i] =
        type == PH_F32 ? m->result[i] : run_buffer(job, m->count[i], sizeof(float));
    return m->gradient[i] ? EXIT_OK : EXIT_MEMORY;
}

int run_make_gradients(run_job *job, run_layer_job *m, const ph_layer *layer,
                       ph_layer_grads *g)
{
    const struct {
        const char *name;
        float **field;
    } fields[] = {{"wq", &g->dwq},        {"wk", &g->dwk}, {"wv", &g->dwv},
                  {"wo", &g->dwo},        {"bq", &g->dbq}, {"bk", &g->dbk},
                  {"bv", &g->dbv},        {"bo", &g->dbo}, {"q_norm", &g->dq_norm},
                  {"k_norm", &g->dk_norm}};
    int named = ph_layer_named(layer);
    for (int i = 0; ph_layer_param(layer, i); i++) {
        const char *name = ph_layer_param(layer, i)->name;
        int rc = make_gradient(job, m, i);
        if (rc) return rc;
        for (size_t f = 0; i < named && f < sizeof fields / sizeof fields[0]; f++)
            if (!strcmp(fields[f].name, name)) *fields[f].field = m->gradient[i];
    }
    g->dextra = m->gradient + named;
    return EXIT_OK;
}

int run_finish_gradients(run_job *job, run_layer_job *m, const ph_layer *layer)
{
    for (int i = 0; ph_layer_param(layer, i); i++) {
        const char *name = ph_layer_param(layer, i)->name;
        if (!m->gradient[i]) continue;
        if (m->zero_scale && (makes_queries(name) || !strcmp(name, "q_norm")))
            memset(m->gradient[i], 0, m->count[i] * sizeof(float)); /* q has no say */
        if (m->gradient[i] == m->result[i]) continue;
        ph_tensor wide = *m->parameter[i];
        wide.type = PH_F32;
        wide.data = m->gradient[i];
        wide.bytes = m->count[i] * sizeof(float);
        ph_dtype type = type_in_out(job, m->parameter[i]);
        int rc = cli_exit_code(ph_tensor_convert(&wide, type, m->result[i]));
        if (rc) return rc;
    }
    return EXIT_OK;
}
