/*
 * run_tensors.c - tensors of IN, found and checked by name, type and shape; tensors of
 * OUT and other memory of a run. See cmd_run.h.
 */
#define _DEFAULT_SOURCE /* madvise */
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "commands/cmd_run.h"

/* ---- sentences ---- */

/* Appends to a text of fixed size; what does not fit is cut. */
static void add(char *text, size_t size, const char *format, ...) CLI_PRINTF(3, 4);

static void add(char *text, size_t size, const char *format, ...)
{
    va_list list;
    size_t used = strlen(text);
    va_start(list, format);
    vsnprintf(text + used, size - used, format, list);
    va_end(list);
}

static void add_types(char *text, size_t size, unsigned set)
{
    int left = 0, first = 1;
    for (int i = 0; i < PH_DTYPE_COUNT; i++) left += (int)(set >> i & 1);
    for (int i = 0; i < PH_DTYPE_COUNT; i++) {
        if (!(set >> i & 1)) continue;
        add(text, size, "%s%s",
            first       ? ""
            : left == 1 ? " or "
                        : ", ",
            ph_dtype_name((ph_dtype)i));
        first = 0;
        left--;
    }
}

/* "F32 (batch = 2 or 1, kv_len)" */
static void add_shape(char *text, size_t size, unsigned set, int rank,
                      const run_axis *axes)
{
    add_types(text, size, set);
    add(text, size, " (");
    for (int i = 0; i < rank; i++) {
        add(text, size, "%s%s", i ? ", " : "", axes[i].name);
        if (axes[i].size != RUN_FREE)
            add(text, size, "%s%lld", *axes[i].name ? " = " : "",
                (long long)axes[i].size);
        if (axes[i].or_one && axes[i].size != 1) add(text, size, " or 1");
    }
    add(text, size, ")");
}

/* 1: the tensor is another than that of IN, but for its elements. */
static int is_view(const run_job *job, const ph_tensor *tensor, run_change change)
{
    for (int i = 0; i < job->replaced_count; i++)
        if (tensor == &job->replaced[i]) return job->changes[i] == change;
    return 0;
}

int run_wrong(const run_job *job, const ph_tensor *tensor, const char *expected)
{
    char found[200];
    int copied = is_view(job, tensor, RUN_COPIED);
    ph_tensor_describe(copied ? tensor : ph_file_find(job->in, tensor->name), found,
                       sizeof found);
    return cli_fail(EXIT_BAD_INPUT, "%s: tensor '%s'%s is %s, expected %s", job->path,
                    tensor->name, copied ? ", as rewritten," : "", found, expected);
}

int run_missing(const run_job *job, const char *name, const char *why)
{
    return cli_fail(EXIT_BAD_INPUT, "%s: tensor '%s' is missing, expected because %s",
                    job->path, name, why);
}

int run_failed(const run_job *job, ph_status status)
{
    int code = cli_exit_code(status);
    if (code != EXIT_BAD_INPUT) return cli_fail_status(status, job->ctx);
    return cli_fail(code, "%s: %s", job->path, ph_error(job->ctx));
}

/* ---- finding and checking ---- */

const ph_tensor *run_find(const run_job *job, const char *name)
{
    for (int i = job->replaced_count - 1; i >= 0; i--)
        if (!strcmp(job->replaced[i].name, name)) return &job->replaced[i];
    return ph_file_find(job->in, name);
}

static int is_listed(const char *name, const char *const *list)
{
    while (*list && strcmp(*list, name)) list++;
    return *list != NULL;
}

int run_check_names(const run_job *job, const char *mode, const char *const *known)
{
    const ph_tensor *tensor;
    char quote[CLI_QUOTE_SIZE], all[400] = "";
    for (size_t i = 0; (tensor = ph_file_tensor(job->in, i)) != NULL; i++) {
        if (is_listed(tensor->name, known)) continue;
        const char *near = cli_nearest(tensor->name, known);
        for (int k = 0; known[k]; k++)
            add(all, sizeof all, "%s%s", k ? ", " : "", known[k]);
        return cli_fail(EXIT_BAD_INPUT, "%s: tensor '%s' is unknown%s%s%s (%s knows %s)",
                        job->path, cli_quote(tensor->name, quote, sizeof quote),
                        near ? ", did you mean '" : "", near ? near : "",
                        near ? "'?" : "", mode, all);
    }
    return EXIT_OK;
}

static int fits(const ph_tensor *tensor, int rank, const run_axis *axes)
{
    int good = tensor->rank == rank;
    for (int i = 0; i < rank && good; i++) {
        size_t size = tensor->shape[i];
        good = axes[i].size == RUN_FREE || size == (size_t)axes[i].size ||
               (axes[i].or_one && size == 1);
    }
    return good;
}

/* The axes that the tensor has in IN; returns their number. */
static int own_axes(const run_job *job, const ph_tensor *tensor, int rank,
                    const run_axis *axes, run_axis *own)
{
    int skip = is_view(job, tensor, RUN_BATCH_ADDED);
    int swapped = is_view(job, tensor, RUN_SWAPPED);
    for (int i = 0; i < rank - skip; i++) {
        own[i] = axes[swapped ? rank - 1 - i : i + skip];
        if (skip && !strcmp(own[i].name, "q_len")) own[i].name = "total_q";
        if (skip && !strcmp(own[i].name, "kv_len")) own[i].name = "total_kv";
    }
    return rank - skip;
}

int run_check(const run_job *job, const ph_tensor *tensor, unsigned set, int rank,
              const run_axis *axes)
{
    char expected[400] = "";
    run_axis own[4];
    add_shape(expected, sizeof expected, set, own_axes(job, tensor, rank, axes, own),
              own);
    if (!(set >> tensor->type & 1) || !fits(tensor, rank, axes))
        return run_wrong(job, tensor, expected);
    for (int i = 0; i < rank; i++)
        if (tensor->shape[i] > INT_MAX) return run_wrong(job, tensor, "sizes below 2^31");
    return EXIT_OK;
}

int run_find_param(const run_job *job, const ph_param *param, const ph_tensor **tensor)
{
    *tensor = run_find(job, param->name);
    if (*tensor || param->optional) return EXIT_OK;
    return run_missing(job, param->name, "the variant needs it");
}

int run_check_param(const run_job *job, const ph_tensor *tensor, unsigned set,
                    const ph_param *param)
{
    run_axis axes[4];
    for (int d = 0; d < param->rank; d++) axes[d] = (run_axis){"", param->dims[d], 0};
    return run_check(job, tensor, set, param->rank, axes);
}

/* ---- memory ---- */

void *run_buffer(run_job *job, size_t count, size_t size)
{
    void *block = NULL;
    if (job->buffer_count < RUN_MOST_BUFFERS) block = calloc(count ? count : 1, size);
    if (block)
        job->buffers[job->buffer_count++] = block;
    else
        cli_fail(EXIT_MEMORY, "out of memory: no %zu x %zu bytes", count, size);
    return block;
}

void run_discard(const void *data, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), skip = -(uintptr_t)data % page;
    if (bytes < skip + page) return;
    madvise((char *)data + skip, (bytes - skip) / page * page, MADV_DONTNEED);
}

int run_converted(run_job *job, const ph_tensor *tensor, ph_dtype dtype,
                  const void **data)
{
    size_t size = ph_dtype_bytes(tensor->type, 1);
    *data = tensor->data;
    if (tensor->type == dtype) return EXIT_OK;
    void *copy = run_buffer(job, tensor->bytes / size, ph_dtype_bytes(dtype, 1));
    if (!copy) return EXIT_MEMORY;
    *data = copy;
    int rc = cli_exit_code(ph_tensor_convert(tensor, dtype, copy));
    run_discard(tensor->data, tensor->bytes);
    return rc;
}

/* Number of elements; SIZE_MAX when it cannot be counted, which no allocator gives. */
static size_t count_of(int rank, const size_t *shape)
{
    size_t count = 1;
    for (int i = 0; i < rank; i++) {
        if (shape[i] && count > SIZE_MAX / shape[i]) return SIZE_MAX;
        count *= shape[i];
    }
    return count;
}

void run_view(run_job *job, const ph_tensor *tensor, run_change change)
{
    job->changes[job->replaced_count] = change;
    job->replaced[job->replaced_count++] = *tensor;
}

void *run_replace(run_job *job, const ph_tensor *tensor)
{
    size_t count = count_of(tensor->rank, tensor->shape);
    size_t size = ph_dtype_bytes(tensor->type, 1);
    void *data = run_buffer(job, count, size);
    if (!data) return NULL;
    ph_tensor own = *tensor;
    own.data = data;
    own.bytes = count * size;
    run_view(job, &own, RUN_COPIED);
    return data;
}

void *run_output(run_job *job, const char *name, ph_dtype type, int rank,
                 const size_t *shape)
{
    ph_tensor *tensor = &job->outputs[job->output_count];
    void *data = run_buffer(job, count_of(rank, shape), ph_dtype_bytes(type, 1));
    if (!data) return NULL;
    *tensor = (ph_tensor){.name = name, .type = type, .rank = rank, .data = data};
    memcpy(tensor->shape, shape, (size_t)rank * sizeof shape[0]);
    job->output_count++;
    return data;
}

void *run_gradient(run_job *job, const ph_tensor *of, ph_dtype type)
{
    size_t size = strlen(of->name) + 2;
    char *name = run_buffer(job, size, 1); /* OUT keeps it */
    if (!name) return NULL;
    snprintf(name, size, "d%s", of->name);
    return run_output(job, name, type, of->rank, of->shape);
}
