/*
 * run_layer_variant.c - layer mode of `polyhead run`: names of tensors that variants
 * bring, and sizes that only those tensors say.
 *
 *     collab   wq, wk (in_dim, R)        R is the width that all heads share
 *     mla      w_dkv, kv_norm, w_uv, and wq, or w_dq, q_norm, w_uq
 */
#include <stdlib.h>
#include <string.h>

#include "commands/run_layer.h"

static const char *const usual[] = {
    "x",       "memory",   "value_memory", "q_offsets", "kv_offsets", "past",
    "k_cache", "v_cache",  "wq",           "wk",        "wv",         "wo",
    "bq",      "bk",       "bv",           "bo",        "q_norm",     "k_norm",
    "bias",    "visible",  "q_lens",       "kv_lens",   "gate",       "sink",
    "alibi",   "relative", "dout",         "dlse",      NULL};

/* ---- names ---- */

const char *run_next_part(const char *text)
{
    const char *plus = strchr(text, '+');
    return plus ? plus + 1 : NULL;
}

static int starts_with(const char *text, const char *name)
{
    size_t length = strlen(name);
    return !strncmp(text, name, length) && (!text[length] || strchr(":+", text[length]));
}

int run_variant_is(const run_job *job, const char *name)
{
    int found = 0;
    for (const char *p = job->options->variant; p; p = run_next_part(p))
        found |= starts_with(p, name);
    return found;
}

typedef struct names {
    const char *list[96];
    char text[2048]; /* those that come from descriptions of variants */
    int count;
    size_t used;
} names;

static void add_name(names *n, const char *name, size_t length)
{
    int capacity = (int)(sizeof n->list / sizeof n->list[0]) - 1;
    if (n->count >= capacity || n->used + length + 1 > sizeof n->text) return;
    n->list[n->count++] = n->text + n->used;
    memcpy(n->text + n->used, name, length);
    n->used += length + 1;
}

/* "name (shape) meaning" in every line */
static void add_lines(names *n, const char *lines)
{
    while (lines && *lines) {
        add_name(n, lines, strcspn(lines, " \n"));
        lines += strcspn(lines, "\n");
        lines += *lines == '\n';
    }
}

int run_layer_names_check(run_job *job)
{
    names *n = run_buffer(job, 1, sizeof *n);
    if (!n) return EXIT_MEMORY;
    for (int i = 0; usual[i]; i++) add_name(n, usual[i], strlen(usual[i]));
    for (int i = 0; ph_variant_list(i); i++)
        if (run_variant_is(job, ph_variant_list(i)->name))
            add_lines(n, ph_variant_list(i)->tensors);
    return run_check_names(job, "layer mode", n->list);
}

/* ---- sizes ---- */

/* Adds "key=value" to the options of the variant `name` in m->variant, unless the user
   has given that key. */
static void add_option(run_layer_job *m, const char *name, const char *key, int value)
{
    char *part = m->variant, rest[sizeof m->variant], with_equal[32];
    while (!starts_with(part, name)) part = strchr(part, '+') + 1;
    char *end = part + strcspn(part, "+");
    snprintf(with_equal, sizeof with_equal, "%s=", key);
    char *given = strstr(part, with_equal);
    if (given && given < end) return;
    snprintf(rest, sizeof rest, "%s", end);
    int options = memchr(part, ':', (size_t)(end - part)) != NULL;
    size_t capacity = sizeof m->variant - (size_t)(end - m->variant);
    snprintf(end, capacity, "%c%s%d%s", options ? ',' : ':', with_equal, value, rest);
}

/* The number of heads must be said: no matrix of these variants is cut into heads. */
static int need_heads(run_job *job, const char *variant, int *heads)
{
    *heads = (int)job->options->heads;
    if (*heads) return EXIT_OK;
    return cli_fail(EXIT_USAGE,
                    "option --heads is missing, expected a number of heads with "
                    "--variant %s",
                    variant);
}

static int measure_collab(run_job *job, run_layer_job *m)
{
    const run_options *o = job->options;
    ph_attn *a = &m->common.attn;
    int rc = need_heads(job, "collab", &a->q_heads);
    if (!rc) rc = run_measure(job, "wq", "heads", 1, 1, m->model_dim, &m->q);
    if (!rc) rc = run_measure(job, "wk", "k-heads", 1, 1, m->memory_dim, &m->k);
    if (!rc)
        rc = run_measure(job, "wv", "v-heads", o->v_heads, a->q_heads, m->memory_dim,
                         &m->v);
    if (rc) return rc;
    a->k_heads = (int)o->k_heads;
    a->v_heads = m->v.heads;
    a->qk_dim = m->q.dim;
    a->v_dim = m->v.dim;
    if (run_find(job, "content")) add_option(m, "collab", "content", 1);
    return EXIT_OK;
}

/* A matrix or vector that only gives away one of its sizes. */
static int size_of(run_job *job, const char *name, int rank, const char *why, int *size)
{
    const run_axis axes[] = {{"rows", RUN_FREE, 0}, {"columns", RUN_FREE, 0}};
    const ph_tensor *tensor = run_find(job, name);
    if (!tensor) return run_missing(job, name, why);
    int rc = run_check(job, tensor, RUN_FLOATS, rank, axes + 2 - rank);
    *size = rc ? 0 : (int)tensor->shape[rank - 1];
    return rc;
}

/* How many of `columns` one head has. */
static int share(run_job *job, const char *name, int columns, int heads, int *dim)
{
    char expected[96];
    *dim = columns / heads;
    if (*dim > 0 && *dim * heads == columns) return EXIT_OK;
    snprintf(expected, sizeof expected,
             "a number of columns that %d heads (--heads) divide", heads);
    return run_wrong(job, run_find(job, name), expected);
}

static int measure_mla(run_job *job, run_layer_job *m)
{
    const char *why = "variant mla has it", *up = run_find(job, "w_dq") ? "w_uq" : "wq";
    ph_attn *a = &m->common.attn;
    int latent = 0, q_latent = 0, q = 0, v = 0;
    int rc = need_heads(job, "mla", &a->q_heads);
    if (!rc) rc = size_of(job, up, 2, why, &q);
    if (!rc) rc = size_of(job, "w_uv", 2, why, &v);
    if (!rc) rc = size_of(job, "kv_norm", 1, why, &latent);
    if (!rc && run_find(job, "w_dq")) rc = size_of(job, "q_norm", 1, why, &q_latent);
    if (!rc) rc = share(job, up, q, a->q_heads, &a->qk_dim);
    if (!rc) rc = share(job, "w_uv", v, a->q_heads, &a->v_dim);
    if (rc) return rc;
    m->q = (run_matrix){run_find(job, up), 0, a->q_heads, m->model_dim, a->qk_dim};
    a->k_heads = (int)job->options->k_heads;
    a->v_heads = (int)job->options->v_heads;
    add_option(m, "mla", "latent", latent);
    if (q_latent) add_option(m, "mla", "q_latent", q_latent);
    return EXIT_OK;
}

int run_measure_variant(run_job *job, run_layer_job *m)
{
    const char *given = job->options->variant;
    if (given && strlen(given) > 200)
        return cli_fail(EXIT_USAGE, "option --variant has %zu characters, expected 200",
                        strlen(given));
    snprintf(m->variant, sizeof m->variant, "%s", given ? given : "mha");
    if (run_variant_is(job, "collab")) return measure_collab(job, m);
    if (run_variant_is(job, "mla")) return measure_mla(job, m);
    return EXIT_OK;
}
