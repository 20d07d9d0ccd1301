/*
 * run_layer.c - layer mode of `polyhead run`: x and the weights of a layer.
 *
 * Heads come from the options or, where a matrix is given per head, from its shape:
 *
 *     wq, wk, wv   (in_dim, heads*dim)  or  (heads, in_dim, dim)
 *     wo           (q_heads*v_dim, out_dim)  or  (q_heads, v_dim, out_dim)
 */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "commands/run_layer.h"

/* ---- sizes ---- */

static int check_x(run_job *job, run_layer_job *m)
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
static int heads_from_options(const char *option, int64_t given, int fallback,
                              run_matrix *w)
{
    if (!given && !fallback)
        return cli_fail(EXIT_USAGE,
                        "option --%s is missing, expected a number of heads, because "
                        "tensor '%s' is one matrix for all of them",
                        option, w->tensor->name);
    w->heads = given ? (int)given : fallback;
    return EXIT_OK;
}

int run_measure(run_job *job, const char *name, const char *option, int64_t given,
                int fallback, int in_dim, run_matrix *w)
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
    int rc = w->per_head ? run_check(job, w->tensor, RUN_FLOATS, 3, cut)
                         : run_check(job, w->tensor, RUN_FLOATS, 2, whole);
    if (rc) return rc;
    if (w->per_head) {
        w->heads = (int)w->tensor->shape[0];
        w->dim = (int)w->tensor->shape[2];
        if (!w->heads) return run_wrong(job, w->tensor, "at least one head");
        if (w->dim <= INT_MAX / w->heads) return EXIT_OK;
        return run_wrong(job, w->tensor, "fewer than 2^31 columns in all heads");
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
static int check_heads(run_job *job, const run_layer_job *m, const run_matrix *w,
                       const char *option)
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

static int check_matrices(run_job *job, run_layer_job *m)
{
    const run_options *o = job->options;
    ph_attn *a = &m->common.attn;
    int twins = run_variant_is(job, "diff2");
    int half = twins || run_variant_is(job, "diff"); /* two query heads to a value head */
    int rc = run_measure(job, "wq", "heads", o->heads, 0, m->model_dim, &m->q);
    if (!rc)
        rc = run_measure(job, "wk", "k-heads", o->k_heads,
                         twins ? (m->q.heads + 1) / 2 : m->q.heads, m->memory_dim, &m->k);
    if (!rc)
        rc = run_measure(job, "wv", "v-heads", o->v_heads,
                         half ? (m->q.heads + 1) / 2 : m->q.heads, m->memory_dim, &m->v);
    if (!rc) rc = check_heads(job, m, &m->k, "k-heads");
    if (!rc) rc = check_heads(job, m, &m->v, "v-heads");
    a->q_heads = m->q.heads;
    a->k_heads = m->k.heads;
    a->v_heads = m->v.heads;
    a->qk_dim = m->q.dim;
    a->v_dim = m->v.dim;
    return rc;
}

/* wo, where heads are the usual ones; a variant's is checked against its list. */
static int check_wo(run_job *job, run_layer_job *m)
{
    m->wo = run_find(job, "wo");
    if (!m->plain) {
        if (m->wo && m->wo->rank != 2 && m->wo->rank != 3)
            return run_wrong(job, m->wo, "2 axes, or 3: per head");
        if (m->wo) m->out_dim = (int)m->wo->shape[m->wo->rank - 1];
        return EXIT_OK;
    }
    if (m->v.dim > INT_MAX / m->q.heads)
        return run_wrong(job, m->v.tensor,
                         "fewer than 2^31 elements in all heads of out");
    int rows = m->q.heads * m->v.dim;
    const run_axis whole[] = {{"q_heads*v_dim", rows, 0}, {"out_dim", RUN_FREE, 0}};
    const run_axis cut[] = {
        {"q_heads", m->q.heads, 0}, {"v_dim", m->v.dim, 0}, {"out_dim", RUN_FREE, 0}};
    m->out_dim = rows;
    if (!m->wo) return EXIT_OK;
    int rank = m->wo->rank == 3 ? 3 : 2;
    int rc = run_check(job, m->wo, RUN_FLOATS, rank, rank == 3 ? cut : whole);
    m->out_dim = (int)m->wo->shape[rank - 1];
    return rc;
}

/* Biases and gains: each optional, one axis. */
static int check_vectors(run_job *job, const run_layer_job *m)
{
    const struct {
        const char *name;
        run_axis axis;
    } list[] = {{"bq", {"heads*dim", (int64_t)m->q.heads * m->q.dim, 0}},
                {"bk", {"heads*dim", (int64_t)m->k.heads * m->k.dim, 0}},
                {"bv", {"heads*dim", (int64_t)m->v.heads * m->v.dim, 0}},
                {"bo", {"out_dim", m->out_dim, 0}},
                {"q_norm", {"qk_dim", m->q.dim, 0}},
                {"k_norm", {"qk_dim", m->q.dim, 0}}};
    for (size_t i = 0; m->plain && i < sizeof list / sizeof list[0]; i++) {
        const ph_tensor *tensor = run_find(job, list[i].name);
        int rc = tensor ? run_check(job, tensor, RUN_FLOATS, 1, &list[i].axis) : EXIT_OK;
        if (rc) return rc;
    }
    if (run_find(job, "bo") && !m->wo) return run_missing(job, "wo", "'bo' is there");
    return EXIT_OK;
}

/* ---- options ---- */

static int check_rope_offset(run_job *job, const char *because)
{
    if (!job->options->has_offset || job->options->offset >= 0) return EXIT_OK;
    return cli_fail(EXIT_USAGE, "option --offset is %lld, expected 0 or more with %s",
                    (long long)job->options->offset, because);
}

/* Rotation takes the elements of a head in pairs, and positions from 0 on. */
static int check_rope_dims(run_job *job, const run_layer_job *m)
{
    char expected[120];
    if (m->q.dim % 2 && !job->options->rope_dims) {
        snprintf(expected, sizeof expected,
                 "heads of an even qk_dim because of --rope, found qk_dim = %d",
                 m->q.dim);
        return run_wrong(job, m->q.tensor, expected);
    }
    int64_t dims = job->options->rope_dims;
    if (dims % 2 || dims > m->q.dim)
        return cli_fail(EXIT_USAGE,
                        "option --rope-dims is %lld, expected an even number of at most "
                        "%d, the qk_dim",
                        (long long)dims, m->q.dim);
    return check_rope_offset(job, "--rope");
}

/* "BASE", "BASE,half" or "BASE,interleaved" */
static int read_rope(run_job *job, run_layer_job *m)
{
    char base[64], quote[CLI_QUOTE_SIZE];
    const char *text = job->options->rope;
    int latent = run_variant_is(job, "mla"); /* rotates by itself, in its own layout */
    if (!text && latent) m->rope_base = 10000, m->rope_interleaved = 1;
    if (!text && (job->options->rope_dims || job->options->yarn.count))
        return cli_fail(EXIT_USAGE, "option --rope is missing, expected with --%s",
                        job->options->rope_dims ? "rope-dims" : "yarn");
    if (!text) return latent ? check_rope_offset(job, "variant mla") : EXIT_OK;
    size_t length = strcspn(text, ",");
    const char *layout = text[length] ? text + length + 1 : "half";
    int good = length < sizeof base;
    if (good) {
        memcpy(base, text, length);
        base[length] = 0;
        good = cli_read_real(base, &m->rope_base) && (float)m->rope_base > 0 &&
               isfinite((float)m->rope_base);
    }
    m->rope_interleaved = !strcmp(layout, "interleaved");
    if (good && (m->rope_interleaved || !strcmp(layout, "half")))
        return latent ? check_rope_offset(job, "--rope") : check_rope_dims(job, m);
    return cli_fail(
        EXIT_USAGE,
        "option --rope is '%s', expected a base above 0, and after a comma half "
        "or interleaved",
        cli_quote(text, quote, sizeof quote));
}

static int check_norm(run_job *job)
{
    const char *names[2] = {"q_norm", "k_norm"};
    int wanted = job->options->qk_norm;
    if (run_variant_is(job, "mla")) return EXIT_OK; /* its q_norm is another one */
    for (int i = 0; i < 2; i++) {
        const ph_tensor *gain = run_find(job, names[i]);
        if (!wanted && gain)
            return cli_fail(
                EXIT_USAGE,
                "option --qk-norm is missing, expected because tensor '%s' is there",
                names[i]);
        if (wanted && !gain) return run_missing(job, names[i], "--qk-norm is given");
    }
    return EXIT_OK;
}

/* gqa and mqa become --k-heads and --v-heads, and the variant what is left of it. */
static int resolve_heads(run_job *job, run_options *own)
{
    ph_attn a = {.variant = own->variant,
                 .k_heads = (int)own->k_heads,
                 .v_heads = (int)own->v_heads};
    ph_status status = ph_variant_heads(job->ctx, &a);
    if (status != PH_OK) return cli_fail_status(status, job->ctx);
    own->variant = a.variant;
    own->k_heads = a.k_heads;
    own->v_heads = a.v_heads;
    job->options = own;
    return EXIT_OK;
}

static int run_as_given(run_job *job)
{
    run_layer_job m = {0};
    const char *variant = job->options->variant;
    int rc = run_layer_names_check(job);
    if (!rc) rc = run_rewrite_inputs(job);
    if (!rc) rc = run_ragged_layer_inputs(job);
    if (!rc) rc = check_x(job, &m);
    if (!rc) rc = run_find_caches(job, &m);
    if (!rc) rc = run_measure_variant(job, &m);
    if (!rc && !m.q.heads) rc = check_matrices(job, &m);
    m.plain = !variant || !strcmp(variant, "mha");
    if (!rc) rc = check_wo(job, &m);
    if (!rc) rc = check_vectors(job, &m);
    m.dout = run_find(job, "dout");
    m.common.backward = m.dout != NULL;
    m.common.ragged = run_find(job, "q_offsets") != NULL;
    if (!rc) rc = read_rope(job, &m);
    if (!rc) rc = check_norm(job);
    if (!rc) rc = run_read_common(job, &m.common);
    if (!rc) rc = run_layer_call(job, &m);
    if (!rc) rc = run_rewrite_gradients(job);
    if (!rc && run_find(job, "q_offsets")) run_ragged_outputs(job);
    return rc;
}

int run_layer(run_job *job)
{
    const run_options *given = job->options;
    run_options own = *given;
    int rc = resolve_heads(job, &own);
    if (!rc) rc = run_as_given(job);
    job->options = given;
    return rc;
}
