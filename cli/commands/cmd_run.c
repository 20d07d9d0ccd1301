/*
 * cmd_run.c - `polyhead run IN -o OUT`: attention over the tensors of a safetensors file.
 *
 * IN is read and checked as a whole before anything is computed, and OUT is written at
 * the end, under another name first: whatever is refused leaves an older OUT as it was,
 * and IN and OUT may be the same file.
 */
#define _POSIX_C_SOURCE 200809L
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands/cmd_run.h"

#define AT(field) offsetof(run_options, field)

/* clang-format off */
static const ph_option table[] = {
    {.name = "output", .letter = 'o', .kind = PH_OPT_TEXT, .metavar = "OUT",
     .at = AT(out), .help = "safetensors file to write; '-': standard output (required)"},
    {.name = "dtype", .kind = PH_OPT_CHOICE, .choices = cli_dtype_names, .at = AT(dtype),
     .given = AT(has_dtype), .help = "convert to this type first; results come in it"},

    {.name = "variant", .kind = PH_OPT_TEXT, .metavar = "SPEC", .at = AT(variant),
     .group = "What to compute",
     .help = "head variant, as listed by 'polyhead variants' (default: mha)"},
    {.name = "causal", .kind = PH_OPT_FLAG, .at = AT(causal),
     .help = "a query sees the keys up to its own position"},
    {.name = "window", .kind = PH_OPT_SIZES, .metavar = "LEFT,RIGHT", .at = AT(window),
     .low = -1, .high = INT_MAX, .fewest = 2, .longest = 2,
     .help = "a query sees this many keys to either side of its position; -1: no limit"},
    {.name = "offset", .kind = PH_OPT_INT, .metavar = "N", .at = AT(offset),
     .given = AT(has_offset), .low = INT_MIN, .high = INT_MAX,
     .help = "position of query 0 among the keys; required with --causal or --window "
             "when there are more or fewer queries than keys"},
    {.name = "scale", .kind = PH_OPT_REAL, .metavar = "S", .at = AT(scale),
     .given = AT(has_scale), .least = -1e30, .most = 1e30,
     .help = "factor on q.k (default: 1/sqrt(qk_dim))"},
    {.name = "softcap", .kind = PH_OPT_REAL, .metavar = "C", .at = AT(softcap),
     .least = 0, .most = 1e30, .help = "logits become C * tanh(logit / C); 0: they stay"},
    {.name = "dropout", .kind = PH_OPT_REAL, .metavar = "P", .at = AT(dropout),
     .least = 0, .most = 1, .help = "probability that a weight is dropped, below 1"},
    {.name = "seed", .kind = PH_OPT_INT, .metavar = "N", .at = AT(seed), .low = 0,
     .high = INT64_MAX, .help = "of the dropout"},

    {.name = "weights", .kind = PH_OPT_FLAG, .at = AT(weights),
     .group = "What to look at",
     .help = "also write the full 'weights' (batch, q_heads, q_len, kv_len), and in "
             "layer mode 'heads' (batch, q_heads, q_len, v_dim), what comes before wo"},
    {.name = "stats", .kind = PH_OPT_FLAG, .at = AT(stats),
     .help = "also write 'col_sum' (batch, q_heads, kv_len) and 'entropy' (batch, "
             "q_heads, q_len) of the weights"},

    {.name = "heads", .kind = PH_OPT_INT, .metavar = "H", .at = AT(heads), .low = 1,
     .high = 65536, .group = "Layer mode", .help = "number of query heads"},
    {.name = "k-heads", .kind = PH_OPT_INT, .metavar = "K", .at = AT(k_heads), .low = 1,
     .high = 65536, .help = "number of key heads (default: as many as queries)"},
    {.name = "v-heads", .kind = PH_OPT_INT, .metavar = "V", .at = AT(v_heads), .low = 1,
     .high = 65536, .help = "number of value heads (default: as many as queries)"},
    {.name = "rope", .kind = PH_OPT_TEXT, .metavar = "BASE[,half|interleaved]",
     .at = AT(rope), .help = "rotary positions with this base; half is the default"},
    {.name = "rope-dims", .kind = PH_OPT_INT, .metavar = "N", .at = AT(rope_dims),
     .low = 2, .high = 1 << 20,
     .help = "leading elements of a head that --rope rotates, even (default: all)"},
    {.name = "yarn", .kind = PH_OPT_SIZES, .metavar = "FACTOR,LENGTH", .at = AT(yarn),
     .low = 1, .high = INT_MAX, .fewest = 2, .longest = 2,
     .help = "positions of --rope stretched by FACTOR beyond the LENGTH trained on"},
    {.name = "qk-norm", .kind = PH_OPT_FLAG, .at = AT(qk_norm),
     .help = "RMS norm over each head of q and k, with gains 'q_norm' and 'k_norm'"},
    {.name = "balance", .kind = PH_OPT_REAL, .metavar = "BETA", .at = AT(balance),
     .least = 0, .most = 1e30,
     .help = "weight of the load-balance loss of a router in the gradients"},
    {.name = "transposed", .kind = PH_OPT_FLAG, .at = AT(transposed),
     .help = "wq, wk, wv, wo are stored as nn.Linear stores them, (columns, in_dim); "
             "their gradients too"},
    PH_MACHINE_OPTIONS(run_options, machine),
    {.name = "device", .kind = PH_OPT_CHOICE, .choices = cli_device_names,
     .at = AT(machine.device), .fallback = "cpu",
     .help = "where to compute; cuda: core mode on an H100 or H200"},
    {.name = NULL}};
/* clang-format on */

/* ---- the way from IN to OUT ---- */

/* Appends standard input to *all. */
static int read_stdin(char **all, size_t *bytes)
{
    for (size_t capacity = 1 << 16;; capacity *= 2) {
        char *more = realloc(*all, capacity);
        if (!more) return cli_fail(EXIT_MEMORY, "out of memory: no %zu bytes", capacity);
        *all = more;
        *bytes += fread(more + *bytes, 1, capacity - *bytes, stdin);
        if (*bytes < capacity) break;
    }
    if (!ferror(stdin)) return EXIT_OK;
    return cli_fail(EXIT_IO, "cannot read standard input");
}

static int read_input(run_job *job)
{
    char error[CLI_ERROR_SIZE] = "", *all = NULL;
    size_t bytes = 0;
    const ph_io io = {.error = error, .error_size = sizeof error};
    if (strcmp(job->path, "-"))
        return cli_result(ph_file_read(&job->in, job->path, &io), error);
    job->path = "standard input";
    int rc = read_stdin(&all, &bytes);
    if (!rc) rc = cli_result(ph_file_parse(&job->in, job->path, all, bytes, &io), error);
    free(all);
    return rc;
}

static int write_output(run_job *job)
{
    char error[CLI_ERROR_SIZE] = "";
    const ph_io io = {.error = error, .error_size = sizeof error};
    const char *path = strcmp(job->options->out, "-") ? job->options->out : "/dev/stdout";
    ph_status status =
        ph_file_write(path, job->outputs, (size_t)job->output_count, NULL, 0, &io);
    return cli_result(status, error);
}

/* Which mode the names of IN mean. */
static int compute(run_job *job)
{
    int has_x = run_find(job, "x") != NULL;
    int has_core = run_find(job, "q") || run_find(job, "k") || run_find(job, "v");
    if (has_x && has_core)
        return cli_fail(
            EXIT_BAD_INPUT,
            "%s: tensor 'x' stands beside 'q', 'k' or 'v', expected either q, k "
            "and v (core mode) or x (layer mode)",
            job->path);
    if (has_x) return run_layer(job);
    if (has_core) return run_core(job);
    if (!run_find(job, "wq") && !run_find(job, "memory")) {
        int rc = run_check_names(job, "core mode", run_core_names);
        if (rc) return rc;
    }
    return cli_fail(
        EXIT_BAD_INPUT,
        "%s: tensor 'q' or 'x' is missing, expected q, k and v (core mode) or x "
        "(layer mode)",
        job->path);
}

static int check_usage(const run_options *options)
{
    if (!options->out)
        return cli_fail(EXIT_USAGE, "option -o is missing, expected the file to write");
    if (!strcmp(options->out, "-") && isatty(STDOUT_FILENO))
        return cli_fail(EXIT_USAGE,
                        "-o - would write binary data to the terminal, expected "
                        "a pipe or a file name");
    return EXIT_OK;
}

/* A variant this build does not have is refused before its tensors would be. */
static int check_variant(const char *spec)
{
    char known[400] = "", quote[CLI_QUOTE_SIZE];
    size_t length = spec ? strcspn(spec, ":+") : 0; /* of its first part */
    int found = !spec;
    for (int i = 0; ph_variant_list(i) && !found; i++) {
        const char *name = ph_variant_list(i)->name;
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", name);
        found = strlen(name) == length && !strncmp(name, spec, length);
    }
    if (found) return EXIT_OK;
    return cli_fail(EXIT_UNSUPPORTED, "--variant is '%s', this build has: %s",
                    cli_quote(spec, quote, sizeof quote), known);
}

static int run(const void *given, int count, const char *const *words)
{
    run_job job = {.options = given, .path = words[0]};
    (void)count;
    int rc = check_usage(given);
    if (rc == EXIT_OK) rc = check_variant(job.options->variant);
    /* Checked: NaN in a mask or a gate is refused. */
    if (rc == EXIT_OK) rc = cli_open(&job.ctx, &job.options->machine, 1);
    if (rc == EXIT_OK) rc = read_input(&job);
    if (rc == EXIT_OK) rc = compute(&job);
    if (rc == EXIT_OK) rc = write_output(&job);
    for (int i = 0; i < job.buffer_count; i++) free(job.buffers[i]);
    ph_file_free(job.in);
    ph_close(job.ctx);
    return rc;
}

static const char *const examples[] = {
    "polyhead run in.safetensors -o out.safetensors --causal",
    "causal attention of q, k, v; with dout in the file also its gradients",
    "polyhead run layer.safetensors -o out.safetensors --heads 8 --rope 10000",
    "a whole layer from x, wq, wk, wv, wo, with rotary positions", NULL};

const ph_command command_run = {
    .name = "run",
    .summary = "attention over your own tensors, safetensors in and out",
    .usage = "IN.safetensors -o OUT.safetensors [options]",
    .about =
        "Core mode, when IN holds q (batch, q_heads, q_len, qk_dim), k (batch, k_heads, "
        "kv_len, qk_dim) and v (batch, v_heads, kv_len, v_dim), all F32, F16 or BF16. "
        "Optional: bias (batch or 1, q_heads or 1, q_len or 1, kv_len) F32; visible, "
        "same shape, BOOL or U8; q_lens and kv_lens (batch) I32; gate (q_heads) or "
        "(batch, q_heads, q_len) F32; sink and alibi (q_heads) F32; "
        "relative (q_heads, odd) F32, a bias by distance. OUT holds out and lse; with "
        "dout (and dlse) in IN also dq, dk, dv, dbias, dgate, dsink, "
        "drelative.\n"
        "\n"
        "Sequences without padding: q (q_heads, total_q, qk_dim), k, v likewise, and "
        "q_offsets, kv_offsets (sequences + 1) I32 where each begins; OUT has the same "
        "layout, and the last query of a sequence stands at its last key. Keys in pages: "
        "k (pages, k_heads, page_len, qk_dim), v likewise, page_table (batch, max_pages) "
        "I32 and kv_lens; forward only.\n"
        "\n"
        "Layer mode, when IN holds x (batch, q_len, model_dim): memory (batch, kv_len, "
        "memory_dim) for cross-attention, and value_memory (batch, kv_len, value_dim) if "
        "values come from elsewhere; wq, wk, wv (in_dim, heads*dim) or per head "
        "(heads, in_dim, dim); wo (q_heads*v_dim, out_dim) or (q_heads, v_dim, "
        "out_dim); bq, bk, bv, bo; the optional tensors of core mode. y = x w + b: a "
        "matrix of nn.Linear is the transpose (--transposed). Each parameter may be "
        "F32, F16 or BF16. With dout (batch, q_len, out_dim) OUT holds the gradient of "
        "everything in IN that has one, in its layout and type. Without padding: x "
        "(total, model_dim) and q_offsets, memory likewise with kv_offsets.\n"
        "\n"
        "Decoding: with past (batch) I32, k_cache (batch, k_heads, capacity, qk_dim) and "
        "v_cache (batch, v_heads, capacity, v_dim) x holds the tokens that follow the "
        "past ones, and OUT the caches with those appended, keys after norm and "
        "rotation. Forward only.\n"
        "\n"
        "IN may be '-', standard input. Unknown tensor names are refused. A refused "
        "input leaves an older OUT as it was.",
    .examples = examples,
    .options = table,
    .size = sizeof(run_options),
    .word = "IN",
    .fewest_words = 1,
    .most_words = 1,
    .run = run};
