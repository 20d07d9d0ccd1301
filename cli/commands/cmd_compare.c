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

#include "commands/cmd_compare.h"
#include "commands/train_log.h"
#include "framework/term.h"
#include "polyhead_prune.h"

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

/* What each head is worth to the trained model, on samples it has not seen, as a file
   beside the log; models whose heads are mixed have none. */
static int write_heads(ph_ctx *ctx, ph_trainer *t, const char *folder)
{
    enum { TEXTS = 64 };
    ph_model *m = ph_trainer_model(t);
    ph_eval *eval = NULL;
    ph_estimate *worth = calloc((size_t)ph_model_heads(m) + 1, sizeof *worth);
    if (!worth) return cli_fail(EXIT_MEMORY, "out of memory");
    ph_status status = ph_eval_recipe(&eval, m, ph_trainer_options(t), TEXTS, 0);
    if (status == PH_OK) status = ph_importance(eval, PH_WORTH_TOKEN, NULL, worth);
    int rc = status == PH_OUT_OF_MEMORY
                 ? cli_fail_status(status, ctx)
                 : compare_write_heads(m, status == PH_OK ? worth : NULL, folder);
    ph_eval_free(eval);
    free(worth);
    return rc;
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
    if (!rc && seed == 0) rc = write_heads(ctx, t, e->folder[seed]);
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

/* ---- the command ---- */

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
    const compare_report report = {base, entries, count, seeds};
    if (o->json)
        compare_print_json(&report);
    else
        compare_print_table(&report);
    if (!o->json && swept.values) compare_print_bars(&report);
    return compare_page(&report, o->out, !o->json);
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
        "texts as mean and deviation over the seeds; the page compare.html has the "
        "table, what each head of the first seed is worth, and curves of the means with "
        "the range between the seeds.",
    .examples = examples,
    .options = table,
    .size = sizeof(compare_options),
    .word = "RECIPE",
    .fewest_words = 1,
    .most_words = 1,
    .run = run};
