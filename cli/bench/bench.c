/*
 * bench.c - `polyhead bench`: how fast, and how near to what this machine can do.
 *
 * Absolute times on shared machines vary two-fold and prove nothing. So the machine's own
 * limits are measured again and again between the runs of a shape, with as many threads:
 * noise hits both. A share compares the best run with the best measured limit.
 */
#define _POSIX_C_SOURCE 200809L
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/machine.h"
#include "bench/probe.h"
#include "framework/json.h"
#include "framework/panel.h"
#include "framework/term.h"

typedef struct bench_options {
    ph_sizes threads;
    double seconds;
    const char *filter;
    int list, variants, json;
    ph_machine machine; /* threads unused */
} bench_options;

/* clang-format off */
#define AT(field) offsetof(bench_options, field)
static const ph_option table[] = {
    {.name = "filter", .letter = 'f', .kind = PH_OPT_TEXT, .at = AT(filter),
     .group = "What to measure",
     .help = "only shapes (variants) whose name contains TEXT"},
    {.name = "list", .letter = 'l', .kind = PH_OPT_FLAG, .at = AT(list),
     .help = "print the shapes and measure nothing"},
    {.name = "variants", .kind = PH_OPT_FLAG, .at = AT(variants),
     .help = "what each head variant costs, as ratios to plain attention; NAMEs "
             "are theirs then"},
    {.name = "seconds", .letter = 's', .kind = PH_OPT_REAL, .metavar = "S", .least = 0.01,
     .most = 86400, .at = AT(seconds), .fallback = "60",
     .help = "time for everything; each shape is run at least three times, however long"},
    {.name = "json", .kind = PH_OPT_FLAG, .at = AT(json), .group = "Output",
     .help = "one JSON object instead of a table"},
    {.name = "threads", .letter = 't', .kind = PH_OPT_SIZES, .metavar = "N[,N...]",
     .high = 1024, .fewest = 1, .longest = 4, .at = AT(threads), .fallback = "1,0",
     .group = "Where to run", .help = "numbers of threads to measure with; 0: all"},
    {.name = "device", .kind = PH_OPT_CHOICE, .choices = cli_device_names,
     .at = AT(machine.device), .fallback = "cpu",
     .help = "cpu, or cuda: shapes of its own, in the groups forward, decode, f32 and "
             "backward"},
    PH_OPTION_ISA(bench_options, machine),
    {.name = NULL}};
/* clang-format on */

/* ---- one measurement ---- */

enum { SAMPLES = 4096, LEAST_RUNS = 3 };

typedef struct bench_result {
    int threads, runs;
    double least, median;   /* seconds */
    double peak, bandwidth; /* best FLOP/s and bytes/s measured in between; 0: not */
} bench_result;

/* What a run of the command holds. */
typedef struct bench_session {
    const bench_options *options;
    const bench_shape **shapes; /* chosen, ended by NULL */
    int count;
    ph_ctx *ctx[PH_SIZES_MAX]; /* one per number of threads */
    int ctx_count;
    double peak[PH_SIZES_MAX], bandwidth[PH_SIZES_MAX]; /* best seen with each ctx */
    probe *probe;
    double each; /* seconds for one shape with one number of threads */
} bench_session;

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The limits, in a few milliseconds; reading needs longer to leave the caches. */
static void measure_limits(bench_session *s, const bench_job *job, bench_result *r)
{
    r->peak = fmax(r->peak, 1e9 * probe_flops(s->probe, r->threads, 0.004));
    if (job->bytes)
        r->bandwidth = fmax(r->bandwidth, 1e9 * probe_read(s->probe, r->threads, 0.02));
}

/* Runs the job until its time is over, the limits measured every 50 ms. */
static ph_status sample(bench_session *s, const bench_job *job, void *state,
                        bench_result *r, double *times)
{
    double start = probe_clock(), next_limits = 0;
    ph_status status = PH_OK;
    while (status == PH_OK && r->runs < SAMPLES) {
        double now = probe_clock();
        if (r->runs >= LEAST_RUNS && now - start > s->each) break;
        if (now >= next_limits) {
            measure_limits(s, job, r);
            now = probe_clock();
            next_limits = now + 0.05;
        }
        status = job->run(state);
        times[r->runs++] = probe_clock() - now;
    }
    measure_limits(s, job, r);
    return status;
}

static int measure(bench_session *s, const bench_shape *shape, ph_ctx *ctx,
                   bench_result *r)
{
    static double times[SAMPLES];
    ph_status status = PH_OK;
    void *state = shape->job->open(ctx, shape, &status);
    *r = (bench_result){.threads = ph_threads(ctx)};
    if (state) status = shape->job->run(state); /* warm */
    if (status == PH_OK) status = sample(s, shape->job, state, r, times);
    if (state) shape->job->close(state);
    if (status != PH_OK) {
        const char *sentence = ph_error(ctx);
        return cli_fail(cli_exit_code(status), "%s: %s", shape->name,
                        *sentence ? sentence : ph_status_text(status));
    }
    qsort(times, (size_t)r->runs, sizeof times[0], ascending);
    r->least = times[0];
    r->median = times[r->runs / 2];
    return EXIT_OK;
}

/* ---- output ---- */

static void print_head(const bench_session *s, const char *cpu)
{
    printf("%s, kernels %s\n\n", cpu, ph_isa(s->ctx[0]));
    printf("%s%-24s %3s %8s %8s %8s %5s %6s %6s%s\n", term_on(stdout, TERM_DIM), "shape",
           "thr", "least", "median", "GFLOP/s", "peak", "GB/s", "read",
           term_on(stdout, TERM_PLAIN));
}

/* What the shares are of. */
static void print_limits(const bench_session *s)
{
    char peak[32], bandwidth[32];
    printf("\npeak: fused multiply-adds (%s); read: memory; measured between the runs\n",
           probe_isa(s->probe));
    for (int c = 0; c < s->ctx_count; c++) {
        int threads = ph_threads(s->ctx[c]);
        printf("%d thread%s: %s", threads, threads == 1 ? "" : "s",
               panel_count(s->peak[c], "FLOP/s", peak, sizeof peak));
        if (s->bandwidth[c] > 0)
            printf(", %s",
                   panel_count(s->bandwidth[c], "B/s", bandwidth, sizeof bandwidth));
        putchar('\n');
    }
}

/* Near the limit is green, far from it yellow. */
static void print_share(double share)
{
    term_style style = share >= 0.75 ? TERM_GOOD : share < 0.5 ? TERM_WARN : TERM_PLAIN;
    printf(" %s%3.0f %%%s", term_on(stdout, style), 100 * share,
           term_on(stdout, TERM_PLAIN));
}

/* What fits into the last-level cache is not read from memory, run after run. */
static int from_memory(const bench_shape *shape)
{
    machine_facts facts;
    machine_look(&facts);
    return shape->job->bytes(shape) > (double)facts.cache[2];
}

static void print_result(const bench_shape *shape, const bench_result *r)
{
    char least[24], median[24];
    double flops = shape->job->flops(shape) / r->least;
    printf("%s%-24s%s %3d %8s %8s %8.1f", term_on(stdout, TERM_NAME), shape->name,
           term_on(stdout, TERM_PLAIN), r->threads,
           panel_time(r->least, least, sizeof least),
           panel_time(r->median, median, sizeof median), 1e-9 * flops);
    print_share(flops / r->peak);
    if (shape->job->bytes) {
        double bytes = shape->job->bytes(shape) / r->least;
        printf(" %6.1f ", 1e-9 * bytes);
        if (from_memory(shape))
            print_share(bytes / r->bandwidth);
        else
            fputs(" cache", stdout);
    }
    putchar('\n');
    fflush(stdout);
}

static const char *type_name(const bench_shape *s)
{
    return s->dtype <= PH_BF16 ? cli_dtype_names[s->dtype]
                               : ph_dtype_name((ph_dtype)s->dtype);
}

static void json_shape(ph_json_writer *j, const bench_shape *shape)
{
    char text[32];
    ph_json_string(j, "name", shape->name);
    snprintf(text, sizeof text, "%.*s", bench_group(shape), shape->name);
    ph_json_string(j, "group", text);
    ph_json_integer(j, "batch", shape->batch);
    ph_json_integer(j, "q_heads", shape->q_heads);
    ph_json_integer(j, "kv_heads", shape->kv_heads);
    ph_json_integer(j, "q_len", shape->q_len);
    ph_json_integer(j, "kv_len", shape->kv_len);
    ph_json_integer(j, "head_dim", shape->dim);
    ph_json_string(j, "dtype", type_name(shape));
    ph_json_bool(j, "causal", shape->causal);
}

static void json_result(ph_json_writer *j, const bench_shape *shape,
                        const bench_result *r)
{
    double flops = shape->job->flops(shape);
    ph_json_begin_object(j, NULL);
    json_shape(j, shape);
    ph_json_integer(j, "threads", r->threads);
    ph_json_integer(j, "runs", r->runs);
    ph_json_double(j, "seconds_least", r->least);
    ph_json_double(j, "seconds_median", r->median);
    ph_json_double(j, "flops", flops);
    ph_json_double(j, "gflops", 1e-9 * flops / r->least);
    ph_json_double(j, "peak_gflops", 1e-9 * r->peak);
    ph_json_double(j, "share_of_peak", flops / r->least / r->peak);
    if (shape->job->bytes) {
        double bytes = shape->job->bytes(shape);
        ph_json_double(j, "bytes", bytes);
        ph_json_double(j, "gbytes", 1e-9 * bytes / r->least);
        ph_json_double(j, "read_gbytes", 1e-9 * r->bandwidth);
        ph_json_bool(j, "from_memory", from_memory(shape));
        ph_json_double(j, "share_of_read", bytes / r->least / r->bandwidth);
    }
    ph_json_end(j);
}

static int print_list(const bench_session *s)
{
    printf("%s%-25s %5s %5s %4s %5s %5s %4s %s%s\n", term_on(stdout, TERM_DIM), "shape",
           "batch", "heads", "over", "rows", "keys", "size", "type",
           term_on(stdout, TERM_PLAIN));
    for (int i = 0; i < s->count; i++) {
        const bench_shape *b = s->shapes[i];
        char batch[16] = "many"; /* as many as exceed the last-level cache */
        if (b->batch) snprintf(batch, sizeof batch, "%d", b->batch);
        printf("%s%-25s%s %5s %5d %4d %5d %5d %4d %s%s\n", term_on(stdout, TERM_NAME),
               b->name, term_on(stdout, TERM_PLAIN), batch, b->q_heads, b->kv_heads,
               b->q_len, b->kv_len, b->dim, type_name(b),
               b->causal ? ", causal" : "");
    }
    return EXIT_OK;
}

static int json_list(const bench_session *s)
{
    ph_json_writer j = json_begin("polyhead.bench.list/1");
    ph_json_begin_array(&j, "shapes");
    for (int i = 0; i < s->count; i++) {
        ph_json_begin_object(&j, NULL);
        json_shape(&j, s->shapes[i]);
        ph_json_end(&j);
    }
    ph_json_end(&j);
    json_end(&j);
    return EXIT_OK;
}

/* ---- choosing shapes ---- */

/* Groups, each before its shapes, and shapes. */
static const char *const *known_names(void)
{
    enum { MOST = 255 };
    static const char *names[MOST + 1];
    static char groups[MOST][24];
    int count = 0;
    for (const bench_shape *s = bench_shapes; s->name && count < MOST - 1; s++) {
        snprintf(groups[count], sizeof groups[count], "%.*s", bench_group(s), s->name);
        if (s == bench_shapes ||
            strncmp(s->name, s[-1].name, (size_t)bench_group(s) + 1)) {
            names[count] = groups[count];
            count++;
        }
        names[count++] = s->name;
    }
    names[count] = NULL;
    return names;
}

static int matches(const bench_shape *s, const char *word)
{
    int group = bench_group(s);
    if ((int)strlen(word) == group && !strncmp(word, s->name, (size_t)group)) return 1;
    return !fnmatch(word, s->name, 0);
}

static int check_words(int count, const char *const *words)
{
    char quote[CLI_QUOTE_SIZE];
    for (int i = 0; i < count; i++) {
        int found = 0;
        for (const bench_shape *s = bench_shapes; s->name; s++)
            found |= matches(s, words[i]);
        if (found) continue;
        const char *near = cli_nearest(words[i], known_names());
        cli_quote(words[i], quote, sizeof quote);
        if (near)
            return cli_fail(EXIT_USAGE, "no shape %s: did you mean %s?", quote, near);
        return cli_fail(EXIT_USAGE, "no shape %s: 'polyhead bench --list' names them",
                        quote);
    }
    return EXIT_OK;
}

static int choose(bench_session *s, int count, const char *const *words)
{
    int all = 0, rc = check_words(count, words);
    while (bench_shapes[all].name) all++;
    s->shapes = calloc((size_t)all + 1, sizeof *s->shapes);
    if (!s->shapes) return cli_fail(EXIT_MEMORY, "out of memory");
    for (int i = 0; i < all && rc == EXIT_OK; i++) {
        const bench_shape *shape = &bench_shapes[i];
        int wanted = count == 0;
        for (int w = 0; w < count; w++) wanted |= matches(shape, words[w]);
        if (s->options->filter && !strstr(shape->name, s->options->filter)) wanted = 0;
        if (wanted) s->shapes[s->count++] = shape;
    }
    if (rc == EXIT_OK && s->count == 0)
        rc = cli_fail(EXIT_USAGE, "no shape is left to measure: 'polyhead bench --list'");
    return rc;
}

/* ---- the command ---- */

/* A ctx for each number of threads, each number once. */
static int open_all(bench_session *s)
{
    const ph_sizes *threads = &s->options->threads;
    int most = 1;
    for (int i = 0; i < threads->count; i++) {
        ph_machine machine = s->options->machine;
        machine.threads = threads->value[i];
        int rc = cli_open(&s->ctx[s->ctx_count], &machine, 0), known = 0;
        if (rc) return rc;
        int n = ph_threads(s->ctx[s->ctx_count]);
        for (int k = 0; k < s->ctx_count; k++) known |= ph_threads(s->ctx[k]) == n;
        if (known)
            ph_close(s->ctx[s->ctx_count]);
        else
            s->ctx_count++;
        most = n > most ? n : most;
    }
    s->each = s->options->seconds / (s->count ? s->count : 1) / s->ctx_count;
    s->probe = probe_open(most, ph_isa(s->ctx[0]));
    return s->probe ? EXIT_OK : cli_fail(EXIT_MEMORY, "out of memory");
}

static int measure_shape(bench_session *s, int index, ph_json_writer *j)
{
    bench_shape shape = *s->shapes[index];
    if (!bench_fit(&shape)) {
        cli_warn("%s left out: not enough memory", shape.name);
        return EXIT_OK;
    }
    for (int c = 0; c < s->ctx_count; c++) {
        bench_result r;
        int done = index * s->ctx_count + c;
        term_progress((double)done / (s->count * s->ctx_count), shape.name);
        int rc = measure(s, &shape, s->ctx[c], &r);
        term_progress_end();
        if (rc) return rc;
        s->peak[c] = fmax(s->peak[c], r.peak);
        s->bandwidth[c] = fmax(s->bandwidth[c], r.bandwidth);
        if (j)
            json_result(j, &shape, &r);
        else
            print_result(&shape, &r);
    }
    return EXIT_OK;
}

static int measure_all(bench_session *s)
{
    machine_facts facts;
    int rc = EXIT_OK;
    ph_json_writer j;
    machine_look(&facts);
    if (s->options->json) {
        j = json_begin("polyhead.bench/1");
        ph_json_string(&j, "version", ph_version());
        ph_json_string(&j, "cpu", facts.cpu);
        ph_json_string(&j, "isa", ph_isa(s->ctx[0]));
        ph_json_string(&j, "probe_isa", probe_isa(s->probe));
        ph_json_integer(&j, "read_buffer_bytes", (int64_t)probe_buffer_bytes(s->probe));
        ph_json_begin_array(&j, "results");
    } else {
        print_head(s, facts.cpu);
    }
    for (int i = 0; i < s->count && rc == EXIT_OK; i++)
        rc = measure_shape(s, i, s->options->json ? &j : NULL);
    if (s->options->json)
        json_end(&j);
    else if (rc == EXIT_OK)
        print_limits(s);
    return rc;
}

static int on_device(const bench_options *options, const bench_choice *choice)
{
    ph_ctx *ctx = NULL;
    if (options->variants || options->list)
        return cli_fail(EXIT_USAGE, "--device cuda goes without --variants and --list");
    int rc = cli_open(&ctx, &options->machine, 0);
    if (rc == EXIT_OK) rc = bench_device(ctx, choice, options->json);
    ph_close(ctx);
    return rc;
}

static int bench(const void *chosen, int count, const char *const *words)
{
    bench_session s = {.options = chosen};
    bench_choice choice = {words, count, s.options->filter};
    if (s.options->machine.device == PH_CUDA) return on_device(s.options, &choice);
    int variants = s.options->variants && !s.options->list;
    int rc = variants ? EXIT_OK : choose(&s, count, words);
    if (rc == EXIT_OK && s.options->list) {
        rc = s.options->json ? json_list(&s) : print_list(&s);
    } else if (rc == EXIT_OK) {
        rc = open_all(&s);
        if (rc == EXIT_OK && variants)
            rc = bench_variants(s.ctx, s.ctx_count, &choice, s.options->seconds,
                                s.options->json);
        else if (rc == EXIT_OK)
            rc = measure_all(&s);
    }
    for (int i = 0; i < s.ctx_count; i++) ph_close(s.ctx[i]);
    probe_close(s.probe);
    free(s.shapes);
    return rc;
}

static const char *const examples[] = {
    "polyhead bench",
    "everything, in about a minute, one thread and all threads",
    "polyhead bench decode --threads 1 --seconds 5",
    "one group, quickly",
    "polyhead bench --variants",
    "every head variant against plain attention",
    "polyhead bench --variants alibi soft-cap --threads 1",
    "two of them, more often in the same time",
    "polyhead bench --device cuda decode",
    "one token against caches in the memory of a GPU",
    "polyhead bench 'backward-*' --json",
    "for a program",
    NULL};

const ph_command command_bench = {
    .name = "bench",
    .summary = "speed of named shapes against the limits of this machine",
    .usage = "[NAME...] [options]",
    .about =
        "NAME is a shape, a group (short, training, prefill, long, odd, gqa, decode, "
        "paged, backward, layer, few-rows, ragged) or a pattern. GFLOP/s count useful "
        "work of the best run: causal half, backward five products, a layer its "
        "projections too, its training step forward and backward. Shares compare it with "
        "the best peak and read bandwidth measured in between, with as many threads and "
        "the instructions of the kernels in use (--isa).",
    .examples = examples,
    .options = table,
    .size = sizeof(bench_options),
    .word = "NAME",
    .most_words = CLI_WORDS_MAX,
    .known_words = known_names,
    .run = bench};
