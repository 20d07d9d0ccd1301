/*
 * run_rewrite.c - layer mode of `polyhead run`: tensors of IN that the library takes in
 * another form are rewritten before the layer sees them, their gradients afterwards.
 *
 *     --transposed   wq, wk, wv, wo (columns, in_dim) are seen as (in_dim, columns)
 *     value_memory   [memory | value_memory] becomes the one source of keys and values:
 *                    wk gets rows of zeros below its own, wv above
 */
#include <stdlib.h>
#include <string.h>

#include "commands/run_layer.h"

static size_t element_size(const ph_tensor *t)
{
    return ph_dtype_bytes(t->type, 1);
}

/* The gradient of this tensor in OUT, or NULL. */
static ph_tensor *find_gradient(run_job *job, const char *name)
{
    for (int i = 0; i < job->output_count; i++)
        if (job->outputs[i].name[0] == 'd' && !strcmp(job->outputs[i].name + 1, name))
            return &job->outputs[i];
    return NULL;
}

/* ---- --transposed ---- */

static const char *const matrices[] = {"wq", "wk", "wv", "wo"};

int run_is_matrix(const char *name)
{
    int found = 0;
    for (int i = 0; i < 4; i++) found |= !strcmp(name, matrices[i]);
    return found;
}

static void swap_axes(ph_tensor *t)
{
    size_t rows = t->shape[0];
    t->shape[0] = t->shape[1];
    t->shape[1] = rows;
}

/* The matrix stays in place: its shape becomes that of the product, (in_dim, columns),
   and the layer is told its form. */
static int view_matrix(run_job *job, const char *name)
{
    const run_axis axes[] = {{"columns", RUN_FREE, 0}, {"in_dim", RUN_FREE, 0}};
    const ph_tensor *given = run_find(job, name);
    if (!given) return EXIT_OK;
    int rc = run_check(job, given, RUN_FLOATS, 2, axes);
    if (rc) return rc;
    ph_tensor view = *given;
    swap_axes(&view);
    run_view(job, &view, RUN_SWAPPED);
    return EXIT_OK;
}

/* ---- value_memory ---- */

/* The sizes of both sources. */
typedef struct sources {
    const ph_tensor *memory, *value;
    size_t memory_dim, value_dim;
} sources;

/* Only what takes keys from wk and values from wv alone. */
static int check_variant(const run_job *job)
{
    static const char *const good[] = {"mha", "entmax", "sparsemax", "talking", "gated"};
    char quote[CLI_QUOTE_SIZE];
    const char *part = job->options->variant;
    while (part) {
        size_t n = strcspn(part, ":+");
        int found = 0;
        for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
            found |= strlen(good[i]) == n && !strncmp(good[i], part, n);
        if (!found)
            return cli_fail(EXIT_UNSUPPORTED,
                            "tensor 'value_memory' stands beside --variant %s, expected "
                            "mha, entmax, sparsemax, talking or gated",
                            cli_quote(job->options->variant, quote, sizeof quote));
        part = run_next_part(part);
    }
    return EXIT_OK;
}

static int find_sources(run_job *job, sources *s)
{
    const run_axis keys[] = {
        {"batch", RUN_FREE, 0}, {"kv_len", RUN_FREE, 0}, {"memory_dim", RUN_FREE, 0}};
    s->memory = run_find(job, "memory");
    if (!s->memory) return run_missing(job, "memory", "'value_memory' is there");
    int rc = run_check(job, s->memory, RUN_FLOATS, 3, keys);
    if (rc) return rc;
    const run_axis values[] = {{"batch", (int64_t)s->memory->shape[0], 0},
                               {"kv_len", (int64_t)s->memory->shape[1], 0},
                               {"value_dim", RUN_FREE, 0}};
    rc = run_check(job, s->value, 1u << s->memory->type, 3, values);
    s->memory_dim = s->memory->shape[2];
    s->value_dim = s->value->shape[2];
    return rc;
}

/* Copies `rows` pieces of `bytes`, which lie `from_step` and `to_step` bytes apart. */
static void copy_pieces(size_t rows, size_t bytes, const char *from, size_t from_step,
                        char *to, size_t to_step)
{
    for (size_t r = 0; bytes && r < rows; r++)
        memcpy(to + r * to_step, from + r * from_step, bytes);
}

static int join_sources(run_job *job, const sources *s)
{
    ph_tensor both = *s->memory;
    size_t size = element_size(&both), rows = both.shape[0] * both.shape[1];
    size_t left = s->memory_dim * size, right = s->value_dim * size;
    both.shape[2] = s->memory_dim + s->value_dim;
    char *data = run_replace(job, &both);
    if (!data) return EXIT_MEMORY;
    copy_pieces(rows, left, s->memory->data, left, data, left + right);
    copy_pieces(rows, right, s->value->data, right, data + left, left + right);
    return EXIT_OK;
}

/* One matrix of a head, or of all, or one stored row of a transposed one: where its own
   elements stand among zeros. */
typedef struct padding {
    size_t heads, piece, step, start; /* bytes but for heads */
} padding;

static padding measure_padding(const run_job *job, const ph_tensor *w, size_t above,
                               size_t all)
{
    size_t size = element_size(w), row = w->shape[w->rank - 1] * size;
    if (job->options->transposed)
        return (padding){w->shape[1], w->shape[0] * size, all * size, above * size};
    return (padding){.heads = w->rank == 3 ? w->shape[0] : 1,
                     .piece = w->shape[w->rank - 2] * row,
                     .step = all * row,
                     .start = above * row};
}

/* wk or wv with rows of zeros for the source it does not read. */
static int pad_matrix(run_job *job, const char *name, size_t in_dim, size_t above,
                      size_t all)
{
    const run_axis cut[] = {
        {"heads", RUN_FREE, 0}, {"in_dim", (int64_t)in_dim, 0}, {"dim", RUN_FREE, 0}};
    const run_axis whole[] = {{"in_dim", (int64_t)in_dim, 0}, {"heads*dim", RUN_FREE, 0}};
    const ph_tensor *w = run_find(job, name);
    if (!w) return run_missing(job, name, "layer mode needs wq, wk and wv");
    int rank = w->rank == 3 ? 3 : 2;
    int rc = run_check(job, w, RUN_FLOATS, rank, rank == 3 ? cut : whole);
    if (rc) return rc;
    ph_tensor padded = *w;
    padding p = measure_padding(job, w, above, all);
    padded.shape[rank - 2] = all;
    char *data = run_replace(job, &padded);
    if (!data) return EXIT_MEMORY;
    copy_pieces(p.heads, p.piece, w->data, p.piece, data + p.start, p.step);
    return EXIT_OK;
}

static int unpad_gradient(run_job *job, const char *name, size_t in_dim, size_t above,
                          size_t all)
{
    ph_tensor *g = find_gradient(job, name);
    if (!g) return EXIT_OK;
    ph_tensor own = *g;
    own.shape[own.rank - 2] = in_dim;
    padding p = measure_padding(job, &own, above, all);
    char *data = run_buffer(job, p.heads, p.piece ? p.piece : 1);
    if (!data) return EXIT_MEMORY;
    copy_pieces(p.heads, p.piece, (const char *)g->data + p.start, p.step, data, p.piece);
    own.data = data;
    *g = own;
    return EXIT_OK;
}

static int split_gradient(run_job *job, const sources *s)
{
    ph_tensor *g = find_gradient(job, "memory");
    if (!g) return EXIT_OK;
    size_t size = element_size(g), rows = g->shape[0] * g->shape[1];
    size_t left = s->memory_dim * size, right = s->value_dim * size;
    char *keys = run_buffer(job, rows, left ? left : 1);
    char *values = run_gradient(job, s->value, g->type);
    if (!keys || !values) return EXIT_MEMORY;
    copy_pieces(rows, left, g->data, left + right, keys, left);
    copy_pieces(rows, right, (const char *)g->data + left, left + right, values, right);
    g->shape[2] = s->memory_dim;
    g->data = keys;
    return EXIT_OK;
}

/* ---- both ---- */

int run_rewrite_inputs(run_job *job)
{
    sources s = {.value = run_find(job, "value_memory")};
    int rc = EXIT_OK;
    for (size_t i = 0; job->options->transposed && !rc && i < 4; i++)
        rc = view_matrix(job, matrices[i]);
    if (rc || !s.value) return rc;
    rc = check_variant(job);
    if (!rc) rc = find_sources(job, &s);
    if (rc) return rc;
    size_t all = s.memory_dim + s.value_dim;
    rc = pad_matrix(job, "wk", s.memory_dim, 0, all);
    if (!rc) rc = pad_matrix(job, "wv", s.value_dim, s.memory_dim, all);
    return rc ? rc : join_sources(job, &s);
}

int run_rewrite_gradients(run_job *job)
{
    sources s = {.value = run_find(job, "value_memory")};
    int rc = EXIT_OK;
    if (s.value) {
        size_t all = run_find(job, "memory")->shape[2];
        s.value_dim = s.value->shape[2];
        s.memory_dim = all - s.value_dim;
        rc = unpad_gradient(job, "wk", s.memory_dim, 0, all);
        if (!rc) rc = unpad_gradient(job, "wv", s.value_dim, s.memory_dim, all);
        if (!rc) rc = split_gradient(job, &s);
    }
    for (size_t i = 0; job->options->transposed && i < 4; i++) {
        ph_tensor *g = find_gradient(job, matrices[i]);
        if (g) swap_axes(g);
    }
    return rc;
}
