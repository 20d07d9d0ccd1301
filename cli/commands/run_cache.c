/*
 * run_cache.c - layer mode of `polyhead run` with caches: past, k_cache and v_cache in
 * IN, x holds the next tokens, OUT has the caches with those appended.
 *
 * They keep their type: what x appends is rounded to it and read like the past.
 */
#include <string.h>

#include "commands/run_layer.h"

static const char *const names[RUN_CACHE_TENSORS] = {"past", "k_cache", "v_cache"};

/* Caches are for decoding: neither gradients nor keys from elsewhere go with them. */
static int check_beside(run_job *job)
{
    static const char *const others[] = {"memory", "value_memory", "kv_lens", "dout"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (run_find(job, others[i]))
            return cli_fail(EXIT_BAD_INPUT,
                            "%s: tensor '%s' stands beside 'k_cache', expected forward "
                            "self-attention over the 'past' tokens of the cache and x",
                            job->path, others[i]);
    if (!job->options->has_offset) return EXIT_OK;
    return cli_fail(EXIT_USAGE, "option --offset is given, expected none with 'k_cache': "
                                "'past' says the position of x");
}

int run_find_caches(run_job *job, run_layer_job *m)
{
    int given = 0, rc = EXIT_OK;
    for (int i = 0; i < RUN_CACHE_TENSORS; i++)
        given += (m->cache[i] = run_find(job, names[i])) != NULL;
    if (!given) return EXIT_OK;
    for (int i = 0; i < RUN_CACHE_TENSORS; i++)
        if (!m->cache[i])
            return run_missing(job, names[i], "past, k_cache and v_cache come together");
    const run_axis rows[] = {{"batch", m->common.attn.batch, 0}};
    const run_axis any[] = {{"batch", m->common.attn.batch, 0},
                            {"k_heads", RUN_FREE, 0},
                            {"capacity", RUN_FREE, 0},
                            {"qk_dim", RUN_FREE, 0}};
    rc = check_beside(job);
    if (!rc) rc = run_check(job, m->cache[RUN_PAST], RUN_TYPE(I32), 1, rows);
    if (!rc) rc = run_check(job, m->cache[RUN_K_CACHE], RUN_FLOATS, 4, any);
    if (rc) return rc;
    m->common.at_end = 1;
    m->common.attn.kv_len = (int)m->cache[RUN_K_CACHE]->shape[2];
    return EXIT_OK;
}

ph_dtype run_cache_type(const run_job *job, const run_layer_job *m)
{
    const run_options *o = job->options;
    return o->has_dtype ? (ph_dtype)o->dtype : m->cache[RUN_K_CACHE]->type;
}

/* Both caches against the layer; one that keeps something else is not for IN. */
static int check_caches(run_job *job, const run_layer_job *m, const ph_layer *layer)
{
    const ph_attn *a = ph_layer_about(layer).attn;
    const ph_layer_caches size = ph_layer_cache(layer);
    size_t tokens = (size_t)a->batch * (size_t)a->kv_len *
                    ph_dtype_bytes(run_cache_type(job, m), 1);
    if (size.extra || size.k != tokens * (size_t)a->k_heads * (size_t)a->qk_dim ||
        size.v != tokens * (size_t)a->v_heads * (size_t)a->v_dim)
        return cli_fail(EXIT_UNSUPPORTED,
                        "tensor 'k_cache' stands beside --variant %s, which caches other "
                        "tensors than k and v, expected another variant",
                        m->variant);
    const run_axis keys[] = {{"batch", a->batch, 0},
                             {"k_heads", a->k_heads, 0},
                             {"capacity", a->kv_len, 0},
                             {"qk_dim", a->qk_dim, 0}};
    const run_axis values[] = {{"batch", a->batch, 0},
                               {"v_heads", a->v_heads, 0},
                               {"capacity", a->kv_len, 0},
                               {"v_dim", a->v_dim, 0}};
    const unsigned one_type = 1u << m->cache[RUN_K_CACHE]->type;
    int rc = run_check(job, m->cache[RUN_K_CACHE], RUN_FLOATS, 4, keys);
    if (!rc) rc = run_check(job, m->cache[RUN_V_CACHE], one_type, 4, values);
    return rc;
}

/* A cache in OUT, which the call appends to. */
static int make_cache(run_job *job, run_layer_job *m, int i, void **cache, size_t *bytes)
{
    const ph_tensor *given = m->cache[i];
    ph_dtype type = run_cache_type(job, m);
    size_t count = given->bytes / ph_dtype_bytes(given->type, 1);
    *cache = run_output(job, names[i], type, 4, given->shape);
    if (!*cache) return EXIT_MEMORY;
    *bytes = count * ph_dtype_bytes(type, 1);
    return cli_exit_code(ph_tensor_convert(given, type, *cache));
}

int run_make_caches(run_job *job, run_layer_job *m, const ph_layer *layer,
                    ph_layer_args *args)
{
    int rc = check_caches(job, m, layer);
    if (!rc) rc = make_cache(job, m, RUN_K_CACHE, &args->k_cache, &args->k_cache_size);
    if (!rc) rc = make_cache(job, m, RUN_V_CACHE, &args->v_cache, &args->v_cache_size);
    args->past = m->cache[RUN_PAST]->data;
    return rc;
}
