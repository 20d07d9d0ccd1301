/*
 * cmd_compare.c - `polyhead compare RECIPE --variants LIST`: a bake-off of heads.
 *
 * Another option of training or of the model may be swept: every variant with every value
 * of it. All of them train at the same budget: same samples, same steps, same seeds. Each
 * training runs in a process of its own, one after the other, so that memory is counted
 * apart. Arithmetic per token is what ph_model_flops counts, three times: the backward
 * pass has two products for each of the forward pass.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "commands/cmd_plot.h"
#include "commands/cmd_train.h"
#include "commands/train_log.h"
#include "framework/json.h"
#include "framework/term.h"

enum { VARIANTS_MOST = 16, SEEDS_MOST = 32, NAME_MOST = PH_VARIANT_TEXT };
enum { VALUE_MOST = 64 };

typedef struct compare_options {
    const char *variants, *sweep, *heads, *out, *file;
    int match, json;
    int has_variants;
    int64_t seeds, test;
    train_change change;
    ph_machine machine;
} compare_options;

#define AT(field) offsetof(compare_options, field)

static const ph_option table[] = {
    {.name = "variants",
     .kind = PH_OPT_TEXT,
     .metavar = "LIST",
     .at = AT(variants),
     .given = AT(has_variants),
     .fallback = "mha,gqa:2,mqa",
     .help = "head variants with commas between; SELF/CROSS: another one for "
             "cross-attention"},
    {.name = "heads",
     .kind = PH_OPT_TEXT,
     .metavar = "N[,N...]",
     .at = AT(heads),
     .help = "heads of each layer; several numbers are compared, as --sweep heads=1,2,4"},
    {.name = "sweep",
     .kind = PH_OPT_TEXT,
     .metavar = "NAME=A,B,...",
     .at = AT(sweep),
     .help = "compare values of another option of training or of the model, such as "
             "positions=rope,alibi; yes and no for those without a value"},
    {.name = "seeds",
     .kind = PH_OPT_INT,
     .metavar = "N",
     .low = 1,
     .high = SEEDS_MOST,
     .at = AT(seeds),
     .fallback = "3",
     .help = "trainings of each variant"},
    {.name = "match",
     .kind = PH_OPT_FLAG,
     .at = AT(match),
     .help = "change the width of feed-forward layers so that all have about as many "
             "parameters as the first"},
    {.name = "test",
     .kind = PH_OPT_INT,
     .metavar = "N",
     .low = 1,
     .high = 1000000,
     .at = AT(test),
     .fallback = "1000",
     .help = "unseen texts of the test"},
    {.name = "file",
     .kind = PH_OPT_TEXT,
     .metavar = "FILE",
     .at = AT(file),
     .help = "what recipes text and pairs learn from"},
    {.name = "output",
     .letter = 'o',
     .kind = PH_OPT_TEXT,
     .metavar = "DIR",
     .at = AT(out),
     .fallback = "runs/compare",
     .help = "where logs and the page compare.html go"},
    {.name = "json",
     .kind = PH_OPT_FLAG,
     .at = AT(json),
     .help = "one JSON object instead of the table"},
    PH_TRAIN_OPTIONS_BUT_HEADS(compare_options, change),
    PH_MACHINE_OPTIONS(compare_options, machine),
    {.name = NULL}};

/* One training's result, sent through a pipe. */
typedef struct compare_result {
    double loss, token_accuracy, exact_match, per_second;
    long peak_kib;
} compare_result;

typedef struct compare_entry {
    char name[NAME_MOST]; /* what the table calls it */
    char variant[NAME_MOST];
    char value[VALUE_MOST]; /* of the swept option; "": none is */
    ph_train train;
    int64_t parameters;
    double arithmetic; /* operations per token */
    compare_result results[SEEDS_MOST];
    char folder[SEEDS_MOST][4200];
} compare_entry;

/* ---- the list ---- */

/* Whether what follows a comma is one more option of the variant before it: no name of a
   variant has an equals sign before its colon. */
static int goes_on(const char *rest)
{
    return rest[strcspn(rest, ",:=")] == '=';
}

/* Splits at commas between variants; one with a backslash before it is never such.
   Returns how many, or -1. */
static int split_list(const char *list, compare_entry *entries)
{
    int count = 0;
    size_t used = 0;
    for (const char *c = list;; c++) {
        if (!*c || (*c == ',' && !(used && goes_on(c + 1)))) {
            if (!used) return -1;
            entries[count++].variant[used] = 0;
            used = 0;
            if (!*c) return count;
            if (count == VARIANTS_MOST) return -1;
            continue;
        }
        if (*c == '\\' && c[1] == ',') c++;
        if (used + 1 >= NAME_MOST) return -1;
        entries[count].variant[used++] = *c;
    }
}

/* The option that is swept, "heads" for --heads 1,2,4, and its values. One number of
   heads is an option like others. */
typedef struct sweep {
    char name[32];
    const char *values; /* with commas between; NULL: nothing is swept */
} sweep;

static int find_sweep(const compare_options *o, sweep *s)
{
    const char *equals = o->sweep ? strchr(o->sweep, '=') : NULL;
    int heads = o->heads && strchr(o->heads, ',');
    size_t length = equals ? (size_t)(equals - o->sweep) : 0;
    *s = (sweep){.name = "heads", .values = heads ? o->heads : NULL};
    if (!o->sweep) return EXIT_OK;
    if (heads)
        return cli_fail(EXIT_USAGE, "--heads and --sweep: one option is swept at a time");
    if (!length || !equals[1] || length >= sizeof s->name)
        return cli_fail(EXIT_USAGE, "--sweep is '%s', expected NAME=A,B,...", o->sweep);
    memcpy(s->name, o->sweep, length);
    s->name[length] = 0;
    s->values = equals + 1;
    return EXIT_OK;
}

/* Every variant with every value. Returns how many entries, or -1. */
static int multiply_entries(compare_entry *entries, int count, const sweep *s)
{
    char values[VARIANTS_MOST][VALUE_MOST];
    int n = 0;
    for (const char *at = s->values; at; n++) {
        size_t length = strcspn(at, ",");
        if (n == VARIANTS_MOST || !length || length >= VALUE_MOST) return -1;
        snprintf(values[n], VALUE_MOST, "%.*s", (int)length, at);
        at = at[length] ? at + length + 1 : NULL;
    }
    if (count * n > VARIANTS_MOST) return -1;
    for (int i = count * n - 1; i >= 0; i--) { /* from the end: in place */
        compare_entry *e = &entries[i];
        memmove(e->variant, entries[i / n].variant, NAME_MOST);
        memcpy(e->value, values[i % n], VALUE_MOST);
    }
    return count * n;
}

static void name_entry(compare_entry *e, const sweep *s, int variants)
{
    if (!s->values)
        snprintf(e->name, sizeof e->name, "%s", e->variant);
    else if (variants > 1)
        snprintf(e->name, sizeof e->name, "%.160s %s=%.50s", e->variant, s->name,
                 e->value);
    else
        snprintf(e->name, sizeof e->name, "%s=%.50s", s->name, e->value);
}

/* All entries with their names. Returns how many, or 0 with a sentence. */
static int list_entries(const compare_options *o, const sweep *s, compare_entry *entries)
{
    const char *list = s->values && !o->has_variants ? "mha" : o->variants;
    int variants = split_list(list, entries);
    int count = variants > 0 && s->values ? multiply_entries(entries, variants, s)
                                          : variants;
    for (int i = 0; i < count; i++) name_entry(&entries[i], s, variants);
    if (count >= 1) return count;
    cli_fail(EXIT_USAGE,
             variants < 1 ? "--variants needs 1 to %d names with single commas between"
                          : "at most %d trainings, variants times values, with single "
                            "commas between",
             VARIANTS_MOST);
    return 0;
}

/* Operations of training on one token of a longest text: the backward pass costs twice
   as much as the forward pass. */
static ph_status arithmetic_of(const ph_model *m, double *to)
{
    int len = ph_model_config(m)->max_len;
    double flops = 0;
    ph_status status = ph_model_flops(m, len, &flops);
    *to = 3 * flops / len;
    return status;
}

/* Parameters of a training's model, and its arithmetic where wanted. */
static int count_parameters(const compare_options *o, const ph_train *train,
                            int64_t *parameters, double *arithmetic)
{
    ph_ctx *ctx;
    ph_trainer *t = NULL;
    int rc = cli_open(&ctx, &o->machine, 0);
    if (rc) return rc;
    ph_status status = ph_trainer_create(&t, ctx, train);
    const ph_model *m = status == PH_OK ? ph_trainer_model(t) : NULL;
    if (m) *parameters = ph_model_parameters(m);
    if (m && arithmetic) status = arithmetic_of(m, arithmetic);
    if (status != PH_OK) rc = cli_fail_status(status, ctx);
    ph_trainer_free(t);
    ph_close(ctx);
    return rc;
}

/* Parameters grow linearly with the width: two models tell how fast. */
static int match_width(const compare_options *o, ph_train *train, int64_t aim)
{
    ph_train wider = *train;
    int64_t at = 0, more = 0;
    int width = train->config.ff_dim ? train->config.ff_dim : 4 * train->config.model_dim;
    train->config.ff_dim = width;
    wider.config.ff_dim = width + 8;
    int rc = count_parameters(o, train, &at, NULL);
    if (!rc) rc = count_parameters(o, &wider, &more, NULL);
    if (rc || more <= at) return rc;
    double step = (double)(more - at) / 8;
    int change = (int)lround((double)(aim - at) / step);
    train->config.ff_dim = width + change < 4 ? 4 : width + change;
    return EXIT_OK;
}

/* "talking" is for self-attention, "talking/merged" has one for cross-attention too. */
static void name_variants(compare_entry *e)
{
    ph_config *c = &e->train.config;
    size_t self = strcspn(e->variant, "/");
    snprintf(c->variant, sizeof c->variant, "%.*s", (int)self, e->variant);
    if (e->variant[self])
        snprintf(c->cross, sizeof c->cross, "%s", e->variant + self + 1);
}

static int prepare(const compare_options *o, const ph_train *base, const sweep *s,
                   compare_entry *e, int64_t aim)
{
    e->train = *base;
    name_variants(e);
    int rc = s->values ? train_set(&e->train, s->name, e->value) : EXIT_OK;
    if (!rc && o->match && aim) rc = match_width(o, &e->train, aim);
    return rc ? rc : count_parameters(o, &e->train, &e->parameters, &e->arithmetic);
}

/* ---- one training, in a process of its own ---- */

/* DIR/NUMBER-NAME-SEED: the number in the list keeps variants apart whose names differ
   only in signs that a file name should not have, or late. */
static void folder_of(const compare_options *o, compare_entry *e, int number, int seed)
{
    char safe[64];
    size_t n = 0;
    for (; e->name[n] && n + 1 < sizeof safe; n++)
        safe[n] = strchr(":,;=/ ", e->name[n]) ? '-' : e->name[n];
    safe[n] = 0;
    snprintf(e->folder[seed], sizeof e->folder[seed], "%s/%d-%s-%d", o->out, number, safe,
             seed + 1);
}

static int train_all(ph_ctx *ctx, ph_trainer *t, train_log *log, const compare_options *o,
                     compare_result *r)
{
    const ph_train *train = ph_trainer_options(t);
    int64_t tokens = 0;
    ph_progress p = {0};
    ph_score score;
    double began = train_now();
    train_log_begin(log, train, ph_model_parameters(ph_trainer_model(t)));
    while (p.step < train->steps) {
        ph_status status = ph_trainer_step(t, &p);
        if (status != PH_OK) return cli_fail_status(status, ctx);
        tokens += p.tokens;
        double passed = train_now() - began;
        r->per_second = passed > 0 ? (double)tokens / passed : 0;
        if (p.step % 10 == 0 || p.step == train->steps)
            train_log_step(log, &p, r->per_second, passed);
        if (isatty(STDERR_FILENO) && p.step % 10 == 0)
            term_progress((double)p.step / train->steps, train->config.variant);
    }
    term_progress_end();
    ph_status status = ph_trainer_test(t, (int)o->test, &score);
    if (status != PH_OK) return cli_fail_status(status, ctx);
    train_log_test(log, p.step, &score);
    r->loss = score.loss, r->token_accuracy = score.token_accuracy,
    r->exact_match = score.exact_match;
    return EXIT_OK;
}

static int child(const compare_options *o, compare_entry *e, int seed, int pipe_end)
{
    ph_ctx *ctx;
    ph_trainer *t = NULL;
    train_log log = {0};
    compare_result r = {0};
    ph_train train = e->train;
    train.seed += (uint64_t)seed;
    if (train_make_directory(e->folder[seed]))
        return cli_fail(EXIT_IO, "%s: %s", e->folder[seed], strerror(errno));
    int rc = train_lock_directory(e->folder[seed]);
    if (!rc) rc = cli_open(&ctx, &o->machine, 0);
    if (rc) return rc;
    ph_status status = ph_trainer_create(&t, ctx, &train);
    if (status != PH_OK) rc = cli_fail_status(status, ctx);
    if (!rc) rc = train_log_open(&log, e->folder[seed], 0, 0);
    if (!rc) rc = train_all(ctx, t, &log, o, &r);
    r.peak_kib = train_peak_kib();
    if (!rc && write(pipe_end, &r, sizeof r) != (ssize_t)sizeof r)
        rc = cli_fail(EXIT_IO, "a result was lost: %s", strerror(errno));
    train_log_close(&log);
    ph_trainer_free(t);
    ph_close(ctx);
    return rc;
}

static int train_one(const compare_options *o, compare_entry *e, int seed)
{
    int ends[2], status = 0;
    if (pipe(ends)) return cli_fail(EXIT_IO, "no pipe: %s", strerror(errno));
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0) return cli_fail(EXIT_FAILED, "no process: %s", strerror(errno));
    if (pid == 0) {
        close(ends[0]);
        int rc = child(o, e, seed, ends[1]);
        fflush(NULL);
        _exit(rc);
    }
    close(ends[1]);
    ssize_t got = read(ends[0], &e->results[seed], sizeof(compare_result));
    close(ends[0]);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    if (WIFEXITED(status) && WEXITSTATUS(status)) return WEXITSTATUS(status);
    if (!WIFEXITED(status) || got != (ssize_t)sizeof(compare_result))
        return cli_fail(EXIT_FAILED, "the training of %s ended early", e->name);
    return EXIT_OK;
}

/* ---- the table ---- */

typedef struct spread {
    double mean, deviation;
} spread;

static spread mean_over_seeds(const compare_entry *e, int seeds, size_t at)
{
    spread s = {0, 0};
    for (int i = 0; i < seeds; i++)
        s.mean +=
            *(const double *)(const void *)((const char *)&e->results[i] + at) / seeds;
    for (int i = 0; i < seeds; i++) {
        double x = *(const double *)(const void *)((const char *)&e->results[i] + at);
        s.deviation += (x - s.mean) * (x - s.mean) / (seeds > 1 ? seeds - 1 : 1);
    }
    s.deviation = sqrt(s.deviation);
    return s;
}

static long peak_of(const compare_entry *e, int seeds)
{
    long most = 0;
    for (int i = 0; i < seeds; i++)
        if (e->results[i].peak_kib > most) most = e->results[i].peak_kib;
    return most;
}

/* Everything about a variant in one line; a narrow terminal gets no deviations of what is
   right. `name` columns for the name. */
static void print_row(const compare_entry *e, int seeds, int name, int wide)
{
    spread loss = mean_over_seeds(e, seeds, offsetof(compare_result, loss));
    spread right = mean_over_seeds(e, seeds, offsetof(compare_result, token_accuracy));
    spread exact = mean_over_seeds(e, seeds, offsetof(compare_result, exact_match));
    spread speed = mean_over_seeds(e, seeds, offsetof(compare_result, per_second));
    printf("%-*s %8lld %8.2fM %7.0f %4ld  %.*f +- %.*f", name, e->name,
           (long long)e->parameters, e->arithmetic / 1e6, speed.mean,
           peak_of(e, seeds) / 1024, 3 + wide, loss.mean, 3 + wide, loss.deviation);
    if (wide)
        printf("  %6.2f +- %.2f %%  %6.2f +- %.2f %%\n", 100 * right.mean,
               100 * right.deviation, 100 * exact.mean, 100 * exact.deviation);
    else
        printf(" %5.1f %5.1f\n", 100 * right.mean, 100 * exact.mean);
}

static void print_table(const compare_entry *entries, int count, int seeds)
{
    enum { NUMBERS = 88 }; /* columns of the wide table behind the names */
    int name = (int)strlen("variant");
    for (int i = 0; i < count; i++)
        if ((int)strlen(entries[i].name) > name) name = (int)strlen(entries[i].name);
    int wide = !isatty(STDOUT_FILENO) || term_width(stdout, 1000) >= name + NUMBERS;
    printf("%s%-*s %8s %9s %7s %4s  %-*s", term_on(stdout, TERM_BOLD), name, "variant",
           "params", "FLOP/tok", "token/s", "MiB", 14 + 2 * wide, "loss (unseen)");
    if (wide)
        printf("  %-16s  %s", "token accuracy", "exact match");
    else
        printf(" %5s %5s", "token", "exact");
    printf("%s\n", term_on(stdout, TERM_PLAIN));
    for (int i = 0; i < count; i++) print_row(&entries[i], seeds, name, wide);
    if (!wide)
        printf("token, exact: token accuracy and exact match on unseen texts, %%\n");
}

/* The loss of each value as a bar: what a sweep is made for. */
static void print_bars(const compare_entry *entries, int count, int seeds)
{
    enum { BAR = 50 };
    double most = 0;
    int name = 0;
    for (int i = 0; i < count; i++) {
        spread loss = mean_over_seeds(&entries[i], seeds, offsetof(compare_result, loss));
        most = fmax(most, loss.mean);
        name = (int)strlen(entries[i].name) > name ? (int)strlen(entries[i].name) : name;
    }
    printf("\n%sloss on unseen texts%s\n", term_on(stdout, TERM_BOLD),
           term_on(stdout, TERM_PLAIN));
    for (int i = 0; i < count; i++) {
        spread loss = mean_over_seeds(&entries[i], seeds, offsetof(compare_result, loss));
        int cells = most > 0 ? (int)(loss.mean / most * BAR + 0.5) : 0;
        printf("%-*s %8.4f  ", name, entries[i].name, loss.mean);
        for (int n = 0; n < cells; n++) putchar('#');
        putchar('\n');
    }
}

static void print_spread(ph_json_writer *j, const char *key, spread s)
{
    ph_json_begin_object(j, key);
    ph_json_double(j, "mean", s.mean);
    ph_json_double(j, "deviation", s.deviation);
    ph_json_end(j);
}

static void print_json(const ph_train *base, const compare_entry *entries, int count,
                       int seeds)
{
    ph_json_writer j = json_begin("polyhead.compare/1");
    ph_json_string(&j, "recipe", base->recipe);
    ph_json_integer(&j, "steps", base->steps);
    ph_json_integer(&j, "batch", base->batch);
    ph_json_integer(&j, "seeds", seeds);
    ph_json_begin_array(&j, "variants");
    for (int i = 0; i < count; i++) {
        const compare_entry *e = &entries[i];
        ph_json_begin_object(&j, NULL);
        ph_json_string(&j, "variant", e->name);
        ph_json_integer(&j, "heads", e->train.config.heads);
        ph_json_integer(&j, "parameters", e->parameters);
        ph_json_integer(&j, "ff_dim", e->train.config.ff_dim);
        ph_json_double(&j, "flop_per_token", e->arithmetic);
        ph_json_integer(&j, "peak_kib", peak_of(e, seeds));
        print_spread(&j, "tokens_per_second",
                     mean_over_seeds(e, seeds, offsetof(compare_result, per_second)));
        print_spread(&j, "loss",
                     mean_over_seeds(e, seeds, offsetof(compare_result, loss)));
        print_spread(&j, "token_accuracy",
                     mean_over_seeds(e, seeds, offsetof(compare_result, token_accuracy)));
        print_spread(&j, "exact_match",
                     mean_over_seeds(e, seeds, offsetof(compare_result, exact_match)));
        ph_json_end(&j);
    }
    json_end(&j);
}

/* ---- the command ---- */

/* A curve for each variant, the mean over its seeds. */
static int draw(const compare_options *o, compare_entry *entries, int count)
{
    const char *folders[VARIANTS_MOST][SEEDS_MOST];
    plot_run runs[VARIANTS_MOST];
    char path[4200];
    for (int i = 0; i < count; i++) {
        for (int s = 0; s < o->seeds; s++) folders[i][s] = entries[i].folder[s];
        runs[i] = (plot_run){entries[i].name, folders[i], (int)o->seeds};
    }
    snprintf(path, sizeof path, "%s/compare.html", o->out);
    int rc = plot_page(runs, count, path);
    if (!rc && !o->json) fprintf(stderr, "curves: %s\n", path);
    return rc;
}

static int bake(const compare_options *o, const ph_train *base, compare_entry *entries)
{
    int seeds = (int)o->seeds;
    sweep swept;
    int rc = find_sweep(o, &swept);
    if (rc) return rc;
    int count = list_entries(o, &swept, entries);
    if (count < 1) return EXIT_USAGE;
    for (int i = 0; i < count && !rc; i++)
        rc = prepare(o, base, &swept, &entries[i], i ? entries[0].parameters : 0);
    for (int s = 0; s < seeds && !rc; s++)
        for (int i = 0; i < count && !rc; i++) {
            folder_of(o, &entries[i], i + 1, s);
            rc = train_one(o, &entries[i], s);
        }
    if (rc) return rc;
    if (o->json)
        print_json(base, entries, count, seeds);
    else
        print_table(entries, count, seeds);
    if (!o->json && swept.values) print_bars(entries, count, seeds);
    return draw(o, entries, count);
}

static int run(const void *chosen, int count, const char *const *words)
{
    const compare_options *o = chosen;
    ph_train base = {0};
    (void)count;
    if (o->change.variant)
        return cli_fail(EXIT_USAGE, "--variant is of one training, expected --variants");
    int rc = train_defaults(words[0], &base);
    if (!rc) rc = train_apply(&o->change, &base);
    if (!rc && o->heads && !strchr(o->heads, ','))
        rc = train_set(&base, "heads", o->heads);
    if (!rc && o->file) rc = train_set_file(o->file, &base);
    if (rc) return rc;
    compare_entry *entries = calloc(VARIANTS_MOST, sizeof *entries);
    if (!entries) return cli_fail(EXIT_MEMORY, "out of memory");
    rc = bake(o, &base, entries);
    free(entries);
    return rc;
}

static const char *const examples[] = {
    "polyhead compare copy --variants mha,gqa:2,talking --steps 300 --seeds 2",
    "three kinds of heads on the same exercise",
    "polyhead compare copy --heads 1,2,4,8",
    "the same width cut into more heads",
    "polyhead compare copy --sweep positions=rope,alibi,t5 --match",
    "any other option of training or of the model",
    "polyhead compare dates --variants mha,moh:shared=1,top=2 --match",
    "with about as many parameters each", NULL};

const ph_command command_compare = {
    .name = "compare",
    .summary = "train head variants at the same budget and compare them",
    .usage = "RECIPE [--variants LIST] [options]",
    .about =
        "Same samples, same steps, several seeds. The table shows parameters, "
        "arithmetic per token, speed, peak memory, and loss and accuracy on unseen "
        "texts as mean and deviation over the seeds; the page compare.html draws the "
        "mean with the range between the seeds.",
    .examples = examples,
    .options = table,
    .size = sizeof(compare_options),
    .word = "RECIPE",
    .fewest_words = 1,
    .most_words = 1,
    .run = run};
