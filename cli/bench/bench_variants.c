/*
 * bench_variants.c - `polyhead bench --variants`: what each head variant costs,
 * as a ratio to plain attention.
 *
 * Attention alone, 8 heads of 64, causal, float. Every round runs each variant once, so
 * noise hits all of them; a ratio compares best with best, the other is the median over
 * the rounds of ratios within a round. mohsa reads windows of an array by strides, moh
 * skips the rows whose gate is 0, as the layers do.
 */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/probe.h"
#include "bench/work.h"
#include "framework/json.h"
#include "framework/term.h"

enum { HEADS = 8, DIM = 64, OVERLAP = 8, EXTRAS = 16, BUFFERS = 48, ROUNDS = 256 };

typedef struct bench_variant {
    const char *name, *variant;
    int overlap;     /* elements on each side that a head shares with its neighbours */
    int active;      /* heads whose gate is not 0, for every token; 0: no gate */
    int sink, alibi; /* 1: there is one */
    float softcap;
    double forward, both; /* the ratio to stay below; 0: none is set */
} bench_variant;

#define WIDER(factor) ((factor) * (DIM + 2.0 * OVERLAP) / DIM)

static const bench_variant entries[] = {
    {.name = "mha"},
    {.name = "gated", .active = HEADS, .forward = 1.1, .both = 1.1},
    {.name = "sink", .sink = 1, .forward = 1.1, .both = 1.1},
    {.name = "soft-cap", .softcap = 50, .forward = 1.1, .both = 1.1},
    {.name = "alibi", .alibi = 1, .forward = 1.1, .both = 1.1},
    {.name = "mohsa:overlap=8",
     .overlap = OVERLAP,
     .forward = WIDER(1.1),
     .both = WIDER(1.15)},
    {.name = "moh, 4 of 8 heads", .active = 4, .forward = 0.6, .both = 0.6},
    {.name = "moh, 6 of 8 heads", .active = 6, .forward = 0.82, .both = 0.82},
    {.name = "entmax:alpha=1.5",
     .variant = "entmax:alpha=1.5",
     .forward = 2.0,
     .both = 1.8},
    {.name = "entmax:alpha=1.3", .variant = "entmax:alpha=1.3"},
    {.name = "sparsemax", .variant = "sparsemax"},
    {.name = "talking", .variant = "talking", .forward = 2.0, .both = 2.2},
    {.name = "dcmha:rank=2", .variant = "dcmha:rank=2", .forward = 2.5, .both = 2.8}};

enum { ENTRIES = sizeof entries / sizeof entries[0] };

/* ---- one variant, ready to run ---- */

typedef struct trial {
    ph_plan *plan;
    ph_args args;
    ph_grads grads;
    const float *extra[EXTRAS];
    float *dextra[EXTRAS];
    void *memory[BUFFERS];
    int buffers;
    double forward[ROUNDS], both[ROUNDS]; /* seconds */
} trial;

/* Random floats that belong to the trial; NULL: no memory. */
static float *floats(trial *t, size_t count, float scale)
{
    float *x = aligned_alloc(64, (count * sizeof(float) + 63) / 64 * 64);
    t->memory[t->buffers] = x;
    if (!x) return NULL;
    work_fill(x, count, PH_F32, (uint64_t)t->buffers << 40);
    for (size_t i = 0; i < count; i++) x[i] *= scale;
    t->buffers++;
    return x;
}

/* Gates: the first `active` heads of every token, counted from another head each. */
static float *make_gate(trial *t, const bench_variant *e, int len)
{
    float *gate = floats(t, (size_t)HEADS * (size_t)len, 0.25f);
    for (int h = 0; gate && h < HEADS; h++)
        for (int i = 0; i < len; i++) {
            int on = (h + i * 5) % HEADS < e->active;
            gate[h * len + i] = on ? 1 + gate[h * len + i] : 0;
        }
    return gate;
}

static ph_attn describe(const bench_variant *e, int len)
{
    int dim = DIM + 2 * e->overlap;
    ph_attn a = {.batch = 1,
                 .q_heads = HEADS,
                 .q_len = len,
                 .kv_len = len,
                 .qk_dim = dim,
                 .scale = 0.125f,
                 .softcap = e->softcap,
                 .mask = PH_MASK_CAUSAL,
                 .gate = PH_GATE_ROW,
                 .variant = e->variant,
                 .backward = 1};
    if (e->overlap) { /* windows of one row per token */
        int64_t row = HEADS * DIM + 2 * e->overlap, all = HEADS * dim;
        a.q = a.k = a.v = (ph_strides){row * len, DIM, row};
        a.out = a.dq = a.dk = a.dv = (ph_strides){all * len, dim, all};
    }
    return a;
}

static int fill(trial *t, const bench_variant *e, int len)
{
    size_t rows = (size_t)HEADS * (size_t)len,
           all = rows * (DIM + 2 * (size_t)e->overlap);
    ph_args *a = &t->args;
    ph_grads *g = &t->grads;
    a->q = floats(t, all, 2), a->k = floats(t, all, 2), a->v = floats(t, all, 2);
    a->out = floats(t, all, 1), a->lse = floats(t, rows, 1);
    g->dout = floats(t, all, 1), g->dq = floats(t, all, 1);
    g->dk = floats(t, all, 1), g->dv = floats(t, all, 1);
    if (e->active) a->gate = make_gate(t, e, len), g->dgate = floats(t, rows, 1);
    if (e->sink) a->sink = floats(t, HEADS, 1), g->dsink = floats(t, HEADS, 1);
    if (e->alibi) a->alibi = floats(t, HEADS, 0.01f);
    for (int i = 0; ph_plan_extra(t->plan, i); i++) {
        const ph_param *p = ph_plan_extra(t->plan, i);
        size_t n = ph_param_size(p);
        if (p->optional) continue;
        t->extra[i] = floats(t, n, 0.4f), t->dextra[i] = floats(t, n, 1);
    }
    a->extra = t->extra, g->dextra = t->dextra;
    for (int i = 0; i < t->buffers; i++)
        if (!t->memory[i]) return cli_fail(EXIT_MEMORY, "out of memory");
    return EXIT_OK;
}

static int run_once(ph_ctx *ctx, trial *t, int round)
{
    double start = probe_clock();
    ph_status status = ph_forward(t->plan, &t->args);
    double middle = probe_clock();
    if (status == PH_OK) status = ph_backward(t->plan, &t->args, &t->grads);
    t->forward[round] = middle - start;
    t->both[round] = probe_clock() - start;
    return status == PH_OK ? EXIT_OK : cli_fail_status(status, ctx);
}

static int open_trial(ph_ctx *ctx, trial *t, const bench_variant *e, int len)
{
    ph_attn a = describe(e, len);
    if (ph_plan_create(&t->plan, ctx, &a) != PH_OK)
        return cli_fail_status(PH_UNSUPPORTED, ctx);
    int rc = fill(t, e, len);
    return rc ? rc : run_once(ctx, t, 0); /* warm */
}

static void close_trial(trial *t)
{
    ph_plan_free(t->plan);
    for (int i = 0; i < t->buffers; i++) free(t->memory[i]);
}

/* ---- ratios ---- */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct ratio {
    double best, median;
} ratio;

static ratio compare(const double *times, const double *plain, int rounds)
{
    double within[ROUNDS], least = times[0], least_plain = plain[0];
    for (int i = 0; i < rounds; i++) {
        within[i] = times[i] / plain[i];
        if (times[i] < least) least = times[i];
        if (plain[i] < least_plain) least_plain = plain[i];
    }
    qsort(within, (size_t)rounds, sizeof within[0], ascending);
    return (ratio){least / least_plain, within[rounds / 2]};
}

static void print_ratio(ratio r, double goal)
{
    printf("  %5.2f %6.2f", r.best, r.median);
    if (goal > 0)
        printf("  %s%5.2f%s", term_on(stdout, r.best <= goal ? TERM_GOOD : TERM_BAD),
               goal, term_on(stdout, TERM_PLAIN));
    else
        printf("      -");
}

static void print_table(const trial *trials, int rounds, int len, int threads)
{
    printf("\nT = %d, %d thread%s, %d rounds%20sforward%13sforward and backward\n", len,
           threads, threads > 1 ? "s" : "", rounds, "", "");
    printf("  %-20s%9s%7s%7s%7s%9s%7s%7s%10s\n", "variant", "ms", "best", "median",
           "goal", "best", "median", "goal", "scratch");
    for (int i = 0; i < ENTRIES; i++) {
        const trial *t = &trials[i];
        if (!t->plan) continue;
        double least = t->both[0];
        for (int r = 0; r < rounds; r++)
            if (t->both[r] < least) least = t->both[r];
        printf("  %-20s%9.2f", entries[i].name, 1e3 * least);
        print_ratio(compare(t->forward, trials[0].forward, rounds), entries[i].forward);
        print_ratio(compare(t->both, trials[0].both, rounds), entries[i].both);
        printf("%7.1f MB\n", (double)ph_plan_workspace(t->plan) / 1e6);
    }
}

static void json_table(ph_json_writer *j, const trial *trials, int rounds, int len,
                       int threads)
{
    for (int i = 0; i < ENTRIES; i++) {
        if (!trials[i].plan) continue;
        ratio forward = compare(trials[i].forward, trials[0].forward, rounds);
        ratio both = compare(trials[i].both, trials[0].both, rounds);
        ph_json_begin_object(j, NULL);
        ph_json_string(j, "variant", entries[i].name);
        ph_json_integer(j, "length", len);
        ph_json_integer(j, "threads", threads);
        ph_json_integer(j, "rounds", rounds);
        ph_json_double(j, "forward_best", forward.best);
        ph_json_double(j, "forward_median", forward.median);
        ph_json_double(j, "forward_goal", entries[i].forward);
        ph_json_double(j, "both_best", both.best);
        ph_json_double(j, "both_median", both.median);
        ph_json_double(j, "both_goal", entries[i].both);
        ph_json_integer(j, "scratch_bytes", (int64_t)ph_plan_workspace(trials[i].plan));
        ph_json_end(j);
    }
}

/* ---- which of them ---- */

/* Plain attention always is: the others are compared with it. */
static int is_chosen(const bench_choice *choice, const char *name)
{
    int found = choice->count == 0;
    for (int i = 0; i < choice->count; i++) found |= !fnmatch(choice->words[i], name, 0);
    return found && (!choice->filter || strstr(name, choice->filter));
}

static int check_choice(const bench_choice *choice)
{
    const char *names[ENTRIES + 1] = {NULL};
    int left = 0;
    char quote[CLI_QUOTE_SIZE];
    for (int i = 0; i < ENTRIES; i++)
        names[i] = entries[i].name, left += is_chosen(choice, entries[i].name);
    for (int w = 0; w < choice->count; w++) {
        bench_choice one = {&choice->words[w], 1, NULL};
        int found = 0;
        for (int i = 0; i < ENTRIES; i++) found |= is_chosen(&one, names[i]);
        if (found) continue;
        const char *near = cli_nearest(choice->words[w], names);
        cli_quote(choice->words[w], quote, sizeof quote);
        return cli_fail(EXIT_USAGE, "no variant %s to measure%s%s%s", quote,
                        near ? ": did you mean " : "", near ? near : "", near ? "?" : "");
    }
    if (left) return EXIT_OK;
    return cli_fail(EXIT_USAGE, "no variant is left to measure");
}

static int measure(ph_ctx *ctx, int len, const bench_choice *choice, double seconds,
                   ph_json_writer *j)
{
    trial *trials = calloc(ENTRIES, sizeof *trials);
    double end = probe_clock() + seconds;
    int rc = trials ? EXIT_OK : cli_fail(EXIT_MEMORY, "out of memory"), rounds = 0;
    for (int i = 0; i < ENTRIES && !rc; i++)
        if (i == 0 || is_chosen(choice, entries[i].name))
            rc = open_trial(ctx, &trials[i], &entries[i], len);
    for (; !rc && rounds < ROUNDS && (rounds < 3 || probe_clock() < end); rounds++)
        for (int i = 0; i < ENTRIES && !rc; i++)
            if (trials[i].plan) rc = run_once(ctx, &trials[i], rounds);
    if (!rc && j)
        json_table(j, trials, rounds, len, ph_threads(ctx));
    else if (!rc)
        print_table(trials, rounds, len, ph_threads(ctx));
    for (int i = 0; trials && i < ENTRIES; i++) close_trial(&trials[i]);
    free(trials);
    return rc;
}

int bench_variants(ph_ctx *const *ctx, int count, const bench_choice *choice,
                   double seconds, int as_json)
{
    static const int lens[] = {1024, 4096};
    ph_json_writer j;
    int rc = check_choice(choice);
    if (rc) return rc;
    if (as_json) {
        j = json_begin("polyhead.bench-variants/1");
        ph_json_begin_array(&j, "results");
    } else {
        printf("Attention alone, %d heads of %d, causal, float; ratios to mha.\n", HEADS,
               DIM);
    }
    for (int l = 0; l < 2; l++)
        for (int c = 0; c < count && !rc; c++)
            rc = measure(ctx[c], lens[l], choice, seconds / 2 / count,
                         as_json ? &j : NULL);
    if (as_json) json_end(&j);
    return rc;
}
