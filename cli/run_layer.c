/*
 * run_layer.c - layer mode of `polyhead run`: x and the weights of a layer.
 *
 * Heads come from the options or, where a matrix is given per head, from its shape:
 *
 *     wq, wk, wv   (in_dim, heads*dim)  or  (heads, in_dim, dim)
 *     wo           (q_heads*v_dim, out_dim)  or  (q_heads, v_dim, out_dim)
 */
#include <string.h>

#include "run.h"

const char *const run_layer_names[] = {
    "x",    "memory", "wq",     "wk",     "wv",   "wo",      "bq",     "bk",
    "bv",   "bo",     "q_norm", "k_norm", "bias", "visible", "q_lens", "kv_lens",
    "gate", "sink",   "alibi",  "dout",   "dlse", NULL};

/* A matrix of the layer, found and measured. */
typedef struct matrix {
    const ph_tensor *tensor;
    int per_head; /* 1: (heads, in_dim, dim) */
    int heads, in_dim, dim;
} matrix;

typedef struct layer {
    run_common common;
    const ph_tensor *x, *memory;
    matrix q, k, v;
    const ph_tensor *wo, *bq, *bk, *bv, *bo, *q_norm, *k_norm, *dout;
    int model_dim, memory_dim, out_dim;
    double rope_base; /* 0: no rotary positions */
    int rope_interleaved;
} layer;

/* ---- sizes ---- */

static int check_x(run_job *job, layer *m)
{
    const run_axis any[] = {
        {"batch", RUN_FREE, 0}, {"q_len", RUN_FREE, 0}, {"model_dim", RUN_FREE, 0}};
    m->x = run_find(job, "x");
    m->memory = run_find(job, "memory");
    int rc = run_check(job, m->x, RUN_FLOATS, 3, any);
    if (rc) return rc;
    m->common.attn.batch = (int)m->x->shape[0];
    m->common.attn.q_len = m->common.attn.kv_len = (int)m->x->shape[1];
    m->model_dim = m->memory_dim = (int)m->x->shape[2];
    if (!m->memory) return EXIT_OK;
    const run_axis keys[] = {{"batch", m->common.attn.batch, 0},
                             {"kv_len", RUN_FREE, 0},
                             {"memory_dim", RUN_FREE, 0}};
    rc = run_check(job, m->memory, 1u << m->x->type, 3, keys);
    m->common.attn.kv_len = (int)m->memory->shape[1];
    m->memory_dim = (int)m->memory->shape[2];
    return rc;
}

/* Number of heads of a matrix that is not cut into heads. */
static int heads_from_options(const char *option, int64_t given, int fallback, matrix *w)
{
    if (!given && !fallback)
        return cli_fail(EXIT_USAGE,
                        "option --%s is missing, expected a number of heads, because "
                        "tensor '%s' is one matrix for all of them",
                        option, w->tensor->name);
    w->heads = given ? (int)given : fallback;
    return EXIT_OK;
}

/* wq, wk or wv: both forms. fallback: heads when the option is not given; 0: required. */
static int measure(run_job *job, const layer *m, const char *name, const char *option,
                   int64_t given, int fallback, int in_dim, matrix *w)
{
    const run_axis cut[] = {{"heads", given ? given : RUN_FREE, 0},
                            {"in_dim", in_dim, 0},
                            {"dim", RUN_FREE, 0}};
    const run_axis whole[] = {{"in_dim", in_dim, 0}, {"heads*dim", RUN_FREE, 0}};
    char expected[160];
    w->tensor = run_find(job, name);
    w->in_dim = in_dim;
    if (!w->tensor) return run_missing(job, name, "layer mode needs wq, wk and wv");
    w->per_head = w->tensor->rank == 3;
    int rc = w->per_head ? run_check(job, w->tensor, 1u << m->x->type, 3, cut)
                         : run_check(job, w->tensor, 1u << m->x->type, 2, whole);
    if (rc) return rc;
    if (w->per_head) {
        w->heads = (int)w->tensor->shape[0];
        w->dim = (int)w->tensor->shape[2];
        return w->heads ? EXIT_OK : run_wrong(job, w->tensor, "at least one head");
    }
    rc = heads_from_options(option, given, fallback, w);
    if (rc) return rc;
    w->dim = (int)w->tensor->shape[1] / w->heads;
    if ((int)w->tensor->shape[1] == w->dim * w->heads) return EXIT_OK;
    snprintf(expected, sizeof expected, "a number of columns that %d heads (--%s) divide",
             w->heads, option);
    return run_wrong(job, w->tensor, expected);
}

/* The sizes of one head, as wq says them, must hold for wk too. */
static int check_heads(run_job *job, const layer *m, const matrix *w, const char *option)
{
    char expected[200];
    if (m->q.heads % w->heads) {
        snprintf(expected, sizeof expected,
                 "a number of heads that divides the %d of 'wq'", m->q.heads);
        return run_wrong(job, w->tensor, expected);
    }
    if (w == &m->k && w->dim != m->q.dim) {
        snprintf(expected, sizeof expected,
                 "heads of qk_dim = %d as in 'wq', found %d heads of %d (--%s)", m->q.dim,
                 w->heads, w->dim, option);
        return run_wrong(job, w->tensor, expected);
    }
    return EXIT_OK;
}

static int check_matrices(run_job *job, layer *m)
{
    const run_options *o = job->options;
    ph_attn *a = &m->common.attn;
    int rc = measure(job, m, "wq", "heads", o->heads, 0, m->model_dim, &m->q);
    if (!rc)
        rc = measure(job, m, "wk", "k-heads", o->k_heads, m->q.heads, m->memory_dim,
                     &m->k);
    if (!rc)
        rc = measure(job, m, "wv", "v-heads", o->v_heads, m->q.heads, m->memory_dim,
                     &m->v);
    if (!rc) rc = check_heads(job, m, &m->k, "k-heads");
    if (!rc) rc = check_heads(job, m, &m->v, "v-heads");
    a->q_heads = m->q.heads;
    a->k_heads = m->k.heads;
    a->v_heads = m->v.heads;
    a->qk_dim = m->q.dim;
    a->v_dim = m->v.dim;
    return rc;
}

static int check_wo(run_job *job, layer *m)
{
    int rows = m->q.heads * m->v.dim;
    const run_axis whole[] = {{"q_heads*v_dim", rows, 0}, {"out_dim", RUN_FREE, 0}};
    const run_axis cut[] = {
        {"q_heads", m->q.heads, 0}, {"v_dim", m->v.dim, 0}, {"out_dim", RUN_FREE, 0}};
    m->wo = run_find(job, "wo");
    m->out_dim = rows;
    if (!m->wo) return EXIT_OK;
    int rank = m->wo->rank == 3 ? 3 : 2;
    int rc = run_check(job, m->wo, 1u << m->x->type, rank, rank == 3 ? cut : whole);
    m->out_dim = (int)m->wo->shape[rank - 1];
    return rc;
}

/* An optional tensor with one axis, of the type of x. */
static int check_vector(run_job *job, const layer *m, const char *name, const char *axis,
                        int size, const ph_tensor **tensor)
{
    const run_axis axes[] = {{axis, size, 0}};
    *tensor = run_find(job, name);
    return *tensor ? run_check(job, *tensor, 1u << m->x->type, 1, axes) : EXIT_OK;
}

static int check_vectors(run_job *job, layer *m)
{
    const char *columns = "heads*dim";
    int rc = check_vector(job, m, "bq", columns, m->q.heads * m->q.dim, &m->bq);
    if (!rc) rc = check_vector(job, m, "bk", columns, m->k.heads * m->k.dim, &m->bk);
    if (!rc) rc = check_vector(job, m, "bv", columns, m->v.heads * m->v.dim, &m->bv);
    if (!rc) rc = check_vector(job, m, "bo", "out_dim", m->out_dim, &m->bo);
    if (!rc) rc = check_vector(job, m, "q_norm", "qk_dim", m->q.dim, &m->q_norm);
    if (!rc) rc = check_vector(job, m, "k_norm", "qk_dim", m->q.dim, &m->k_norm);
    if (!rc && m->bo && !m->wo) rc = run_missing(job, "wo", "'bo' is there");
    return rc;
}

static int check_dout(run_job *job, layer *m)
{
    const run_axis axes[] = {{"batch", m->common.attn.batch, 0},
                             {"q_len", m->common.attn.q_len, 0},
                             {"out_dim", m->out_dim, 0}};
    m->dout = run_find(job, "dout");
    m->common.backward = m->dout != NULL;
    return m->dout ? run_check(job, m->dout, RUN_FLOATS, 3, axes) : EXIT_OK;
}

/* ---- options ---- */

/* "BASE", "BASE,half" or "BASE,interleaved" */
static int read_rope(run_job *job, layer *m)
{
    char base[64], quote[CLI_QUOTE_SIZE];
    const char *text = job->options->rope;
    if (!text) return EXIT_OK;
    size_t length = strcspn(text, ",");
    const char *layout = text[length] ? text + length + 1 : "half";
    int good = length < sizeof base;
    if (good) {
        memcpy(base, text, length);
        base[length] = 0;
        good = cli_read_real(base, &m->rope_base) && m->rope_base > 0;
    }
    m->rope_interleaved = !strcmp(layout, "interleaved");
    if (good && (m->rope_interleaved || !strcmp(layout, "half"))) return EXIT_OK;
    return cli_fail(
        EXIT_USAGE,
        "option --rope is '%s', expected a base above 0, and after a comma half "
        "or interleaved",
        cli_quote(text, quote, sizeof quote));
}

static int check_norm(run_job *job, const layer *m)
{
    if (!job->options->qk_norm && (m->q_norm || m->k_norm))
        return cli_fail(
            EXIT_USAGE,
            "option --qk-norm is missing, expected because tensor '%s' is there",
            m->q_norm ? "q_norm" : "k_norm");
    if (!job->options->qk_norm) return EXIT_OK;
    if (!m->q_norm) return run_missing(job, "q_norm", "--qk-norm is given");
    if (!m->k_norm) return run_missing(job, "k_norm", "--qk-norm is given");
    return EXIT_OK;
}

int run_layer(run_job *job)
{
    layer m = {0};
    int rc = run_check_names(job, "layer mode", run_layer_names);
    if (!rc) rc = check_x(job, &m);
    if (!rc) rc = check_matrices(job, &m);
    if (!rc) rc = check_wo(job, &m);
    if (!rc) rc = check_vectors(job, &m);
    if (!rc) rc = check_dout(job, &m);
    if (!rc) rc = read_rope(job, &m);
    if (!rc) rc = check_norm(job, &m);
    if (!rc) rc = run_read_common(job, &m.common);
    if (rc) return rc;
    return cli_fail(EXIT_UNSUPPORTED,
                    "%s: tensor 'x' asks for layer mode, which this build does not have",
                    job->path);
}
