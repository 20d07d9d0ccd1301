/*
 * run_paged.c - core mode of `polyhead run` with keys and values in pages: page_table and
 * kv_lens against k and v.
 */
#include <limits.h>

#include "commands/cmd_run.h"

/* Every sequence must fit into its pages. */
static int check_paged_lens(run_job *job, size_t batch, size_t capacity)
{
    const ph_tensor *lens = run_find(job, "kv_lens");
    const run_axis axis[] = {{"batch", (int64_t)batch, 0}};
    if (!lens) return run_missing(job, "kv_lens", "'page_table' is there");
    int rc = run_check(job, lens, RUN_TYPE(I32), 1, axis);
    for (size_t b = 0; !rc && b < batch; b++) {
        int len = ((const int32_t *)lens->data)[b];
        if (len < 0 || (size_t)len > capacity)
            rc =
                cli_fail(EXIT_BAD_INPUT,
                         "%s: tensor 'kv_lens' has %d at element %zu, expected 0 to %zu, "
                         "what its pages hold",
                         job->path, len, b, capacity);
    }
    return rc;
}

/* The entries that kv_lens needs. */
static int check_pages(run_job *job, const ph_tensor *table, size_t pages, size_t len)
{
    const int32_t *lens = run_find(job, "kv_lens")->data, *page = table->data;
    size_t slots = table->shape[1];
    for (size_t b = 0; b < table->shape[0]; b++)
        for (size_t p = 0; p * len < (size_t)lens[b]; p++)
            if (page[b * slots + p] < 0 || (size_t)page[b * slots + p] >= pages)
                return cli_fail(EXIT_BAD_INPUT,
                                "%s: tensor 'page_table' has %d at (%zu, %zu), expected "
                                "one of the %zu pages of 'k'",
                                job->path, page[b * slots + p], b, p, pages);
    return EXIT_OK;
}

/* Nothing else of a call makes sense with gradients. */
static int check_beside(run_job *job)
{
    static const char *const gradients[] = {"dout", "dlse"};
    for (size_t i = 0; i < 2; i++)
        if (run_find(job, gradients[i]))
            return cli_fail(EXIT_BAD_INPUT,
                            "%s: tensor '%s' stands beside 'page_table', expected "
                            "forward only",
                            job->path, gradients[i]);
    return EXIT_OK;
}

int run_paged_inputs(run_job *job)
{
    const ph_tensor *table = run_find(job, "page_table");
    const ph_tensor *q = run_find(job, "q"), *k = run_find(job, "k");
    const run_axis any[] = {{"batch", RUN_FREE, 0},
                            {"q_heads", RUN_FREE, 0},
                            {"q_len", RUN_FREE, 0},
                            {"qk_dim", RUN_FREE, 0}};
    int rc = check_beside(job);
    if (!rc) rc = run_check(job, q, RUN_FLOATS, 4, any);
    if (rc) return rc;
    const run_axis slots[] = {{"batch", (int64_t)q->shape[0], 0},
                              {"max_pages", RUN_FREE, 0}};
    const run_axis keys[] = {{"pages", RUN_FREE, 0},
                             {"k_heads", RUN_FREE, 0},
                             {"page_len", RUN_FREE, 0},
                             {"qk_dim", (int64_t)q->shape[3], 0}};
    rc = run_check(job, table, RUN_TYPE(I32), 2, slots);
    if (!rc) rc = run_check(job, k, 1u << q->type, 4, keys);
    if (rc) return rc;
    const run_axis values[] = {{"pages", (int64_t)k->shape[0], 0},
                               {"v_heads", RUN_FREE, 0},
                               {"page_len", (int64_t)k->shape[2], 0},
                               {"v_dim", RUN_FREE, 0}};
    rc = run_check(job, run_find(job, "v"), 1u << q->type, 4, values);
    if (!rc) rc = check_paged_lens(job, q->shape[0], table->shape[1] * k->shape[2]);
    if (rc) return rc;
    if (table->shape[1] * k->shape[2] > INT_MAX)
        return run_wrong(job, table, "pages for fewer than 2^31 keys");
    return check_pages(job, table, k->shape[0], k->shape[2]);
}
