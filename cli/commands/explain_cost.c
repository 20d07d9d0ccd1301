/*
 * explain_cost.c - `polyhead explain --shape`: what a layer costs, step by step.
 *
 * B sequences, Tq rows and Tk keys each, model_dim D, H heads and K key/value heads of
 * d = D/H, e bytes per number (causal: half of the attention):
 *
 *     step          parameters  FLOPs                bytes that must move
 *     q projection  D H d       2 B Tq D H d         e (weights + X + Q)
 *     k, v          D K d each  2 B Tq D K d each    e (weights + X + K) each
 *     scores                    2 B H Tq Tk d        e (Q + all keys)
 *     softmax                   5 B H Tq Tk          0: stays in registers and cache
 *     weights V                 2 B H Tq Tk d        e (all values + heads)
 *     output        H d D       2 B Tq D H d         e (weights + heads + output)
 *
 * A step takes at least FLOPs / peak and at least bytes / bandwidth; the longer one is
 * what limits it. FLOPs per byte (its intensity) against peak / bandwidth says the same.
 */
#include <math.h>
#include <string.h>

#include "bench/machine.h"
#include "bench/probe.h"
#include "commands/cmd_explain.h"
#include "framework/panel.h"

enum { STEPS = 7, SOFTMAX_FLOPS = 5 }; /* max, subtract, exp, sum, divide */

/* Which part of a layer a step belongs to: batching helps one and not the other. */
typedef enum cost_part { PROJECTION, ATTENTION } cost_part;

typedef struct cost_step {
    const char *name;
    cost_part part;
    double params; /* elements */
    double flops;
    double moved;  /* bytes read and written at least */
    double result; /* bytes of its result */
} cost_step;

typedef struct cost {
    cost_shape shape;
    cost_step step[STEPS];
    double cache; /* bytes of keys and values */
    double saved; /* bytes of scores that are never stored */
} cost;

typedef struct limits {
    double peak;      /* FLOP/s, all threads */
    double bandwidth; /* bytes/s, all threads */
    int threads;
    const char *isa; /* what peak and bandwidth were measured with */
} limits;

/* ---- counting ---- */

static cost_step projection(const char *name, double rows, double in, double out,
                            double e)
{
    return (cost_step){name,
                       PROJECTION,
                       in * out,
                       2 * rows * in * out,
                       e * (in * out + rows * (in + out)),
                       e * rows * out};
}

static cost count(const cost_shape *s)
{
    double e = s->dtype == PH_F32 ? 4 : 2, b = (double)s->batch, tk = (double)s->len;
    double tq = s->decode ? 1 : tk, dim = (double)s->model_dim, h = (double)s->heads;
    double d = dim / h, kv = (double)s->k_heads * d;
    double scores = b * h * tq * tk * (s->causal ? 0.5 : 1);
    double queries = e * b * tq * h * d, keys = e * b * tk * kv;
    cost c = {.shape = *s, .cache = 2 * keys, .saved = e * b * h * tq * tk};
    const cost_step steps[STEPS] = {
        projection("q projection", b * tq, dim, h * d, e),
        projection("k projection", b * tq, dim, kv, e),
        projection("v projection", b * tq, dim, kv, e),
        {"scores Q K^T", ATTENTION, 0, 2 * scores * d, queries + keys, 0},
        {"softmax", ATTENTION, 0, SOFTMAX_FLOPS * scores, 0, 0},
        {"weights V", ATTENTION, 0, 2 * scores * d, keys + queries, queries},
        projection("output proj.", b * tq, h * d, dim, e)};
    memcpy(c.step, steps, sizeof steps);
    return c;
}

/* The sum of all steps, or of those of one part. */
static cost_step total(const cost *c, int all, cost_part which)
{
    cost_step sum = {.name = "all", .part = which};
    for (int i = 0; i < STEPS; i++) {
        const cost_step *s = &c->step[i];
        if (!all && s->part != which) continue;
        sum.params += s->params;
        sum.flops += s->flops;
        sum.moved += s->moved;
        sum.result += s->result;
    }
    return sum;
}

static double intensity(const cost_step *s)
{
    return s->moved > 0 ? s->flops / s->moved : INFINITY;
}

static int is_compute(const cost_step *s, const limits *l)
{
    return s->flops / l->peak >= s->moved / l->bandwidth;
}

static double least_time(const cost_step *s, const limits *l)
{
    return fmax(s->flops / l->peak, s->moved / l->bandwidth);
}

/* Steps one after the other: each has its own limit. */
static double least_time_of(const cost *c, const limits *l, int all, cost_part which)
{
    double sum = 0;
    for (int i = 0; i < STEPS; i++)
        if (all || c->step[i].part == which) sum += least_time(&c->step[i], l);
    return sum;
}

/* ---- the machine ---- */

/* Half a second: the best of several short runs, since others disturb and never help. */
static int measure(ph_ctx *ctx, limits *l)
{
    l->threads = ph_threads(ctx);
    probe *p = probe_open(l->threads, ph_isa(ctx));
    if (!p) return cli_fail(EXIT_MEMORY, "out of memory while measuring the bandwidth");
    l->isa = probe_isa(p);
    for (int i = 0; i < 4; i++) {
        l->peak = fmax(l->peak, 1e9 * probe_flops(p, l->threads, 0.03));
        l->bandwidth = fmax(l->bandwidth, 1e9 * probe_read(p, l->threads, 0.06));
    }
    probe_close(p);
    if (l->peak > 0 && l->bandwidth > 0) return EXIT_OK;
    return cli_fail(EXIT_FAILED, "could not start %d threads to measure this machine",
                    l->threads);
}

/* ---- text ---- */

static const char *intensity_text(const cost_step *s, char *buffer, size_t size)
{
    if (s->moved <= 0) return "-";
    snprintf(buffer, size,
             intensity(s) >= 100  ? "%.0f"
             : intensity(s) >= 10 ? "%.1f"
                                  : "%.2f",
             intensity(s));
    return buffer;
}

static const char *amount(double value, const char *unit, char *buffer, size_t size)
{
    return value > 0 ? panel_count(value, unit, buffer, size) : "-";
}

/* What limits a step, in the colour of that. */
static void print_bound(const cost_step *s, const limits *l, int width)
{
    int compute = is_compute(s, l);
    printf("%s%*s%s", term_on(stdout, compute ? TERM_GOOD : TERM_WARN), width,
           compute ? "compute" : "memory", term_on(stdout, TERM_PLAIN));
}

static void print_step(const cost_step *s, const limits *l, double seconds, int bound)
{
    char p[24], f[24], m[24], k[24], i[24], t[24];
    printf("   %-13s %8s %8s %9s %9s %7s %8s%s", s->name,
           amount(s->params, "", p, sizeof p), amount(s->flops, "", f, sizeof f),
           amount(s->moved, "B", m, sizeof m), amount(s->result, "B", k, sizeof k),
           intensity_text(s, i, sizeof i), panel_time(seconds, t, sizeof t),
           bound ? " " : "");
    if (bound) print_bound(s, l, 0);
    putchar('\n');
}

/* Printed before the half second of measuring, so that something stands there at once. */
static void print_title(const cost_shape *s, int compare)
{
    printf("%sWhat multi-head attention costs%s: ", term_on(stdout, TERM_BOLD),
           term_on(stdout, TERM_PLAIN));
    if (s->decode)
        printf("one new token against %lld keys", (long long)s->len);
    else
        printf("%lld tokens%s", (long long)s->len, s->causal ? ", causal" : "");
    printf(", %s\n", cli_dtype_names[s->dtype]);
    printf("   model_dim %lld, %lld heads of %lld", (long long)s->model_dim,
           (long long)s->heads, (long long)(s->model_dim / s->heads));
    if (s->k_heads != s->heads)
        printf(", %lld key and value head%s", (long long)s->k_heads,
               s->k_heads > 1 ? "s" : "");
    if (!compare) printf(", batch %lld", (long long)s->batch);
    putchar('\n');
    fflush(stdout);
}

static void print_limits(const limits *l)
{
    char peak[32], bandwidth[32];
    printf("   This machine, measured now, %d thread%s: %s, %s,\n   so a step needs more "
           "than %s%.1f FLOP per byte%s to be limited by computing.\n\n",
           l->threads, l->threads == 1 ? "" : "s",
           panel_count(l->peak, "FLOP/s", peak, sizeof peak),
           panel_count(l->bandwidth, "B/s", bandwidth, sizeof bandwidth),
           term_on(stdout, TERM_BOLD), l->peak / l->bandwidth,
           term_on(stdout, TERM_PLAIN));
}

/* Bytes that stay in a cache come faster than from memory; better said than hidden. */
static void print_cache_note(const cost *c)
{
    machine_facts facts;
    char need[32], have[32];
    machine_look(&facts);
    cost_step all = total(c, 1, PROJECTION);
    if (!facts.cache[2] || all.moved > (double)facts.cache[2]) return;
    printf("   All %s fit into the last-level cache (%s): called again and again,\n"
           "   memory-bound steps run faster here than their times from memory say.\n",
           panel_count(all.moved, "B", need, sizeof need),
           panel_count((double)facts.cache[2], "B", have, sizeof have));
}

static void print_one(const cost *c, const limits *l)
{
    char buffer[32], cache[32], per_row[32];
    print_limits(l);
    printf("   %s%-13s %8s %8s %9s %9s %7s %8s %s%s\n", term_on(stdout, TERM_DIM), "step",
           "params", "FLOPs", "moved", "result", "FLOP/B", "at least", "bound",
           term_on(stdout, TERM_PLAIN));
    for (int i = 0; i < STEPS; i++)
        print_step(&c->step[i], l, least_time(&c->step[i], l), 1);
    cost_step all = total(c, 1, PROJECTION);
    print_step(&all, l, least_time_of(c, l, 1, PROJECTION), 0);
    printf("\n   KV cache      %s (%s for each token of a sequence)\n",
           panel_count(c->cache, "B", cache, sizeof cache),
           panel_count(c->cache / (double)(c->shape.batch * c->shape.len), "B", per_row,
                       sizeof per_row));
    printf("   Never stored  %s of scores and as much of weights\n",
           panel_count(c->saved, "B", buffer, sizeof buffer));
    print_cache_note(c);
}

/* ---- two batches side by side ---- */

static void print_half(const cost_step *s, const limits *l, int width)
{
    char f[24], m[24], i[24];
    printf(" %7s %8s %6s ", amount(s->flops, "", f, sizeof f),
           amount(s->moved, "B", m, sizeof m), intensity_text(s, i, sizeof i));
    print_bound(s, l, width);
}

static void print_compared(const cost *one, const cost *many, const limits *l)
{
    print_limits(l);
    char title[32];
    snprintf(title, sizeof title, "batch %lld", (long long)many->shape.batch);
    printf("   %-12s  %s%-32s%s%s\n", "", term_on(stdout, TERM_BOLD), "batch 1", title,
           term_on(stdout, TERM_PLAIN));
    printf("   %s%-12s", term_on(stdout, TERM_DIM), "step");
    for (int i = 0; i < 2; i++)
        printf(" %7s %8s %6s %-*s", "FLOPs", "moved", "FLOP/B", i ? 0 : 7, "bound");
    printf("%s\n", term_on(stdout, TERM_PLAIN));
    for (int i = 0; i < STEPS; i++) {
        printf("   %-12s", one->step[i].name);
        print_half(&one->step[i], l, -7);
        print_half(&many->step[i], l, 0);
        putchar('\n');
    }
}

/* How many times less one sequence costs inside the batch than alone. */
static double gain_of(const cost *one, const cost *many, const limits *l, cost_part p)
{
    return least_time_of(one, l, 0, p) * (double)many->shape.batch /
           least_time_of(many, l, 0, p);
}

static void print_per_sequence(const cost *one, const cost *many, const limits *l)
{
    static const char *const names[] = {"projections", "attention"};
    char a[24], b[24], less[32];
    printf("\n   At least, for each %s:\n", one->shape.decode ? "new token" : "sequence");
    for (cost_part p = PROJECTION; p <= ATTENTION; p++) {
        double alone = least_time_of(one, l, 0, p), gain = gain_of(one, many, l, p);
        int better = gain > 1.05;
        snprintf(less, sizeof less, better ? "%.1f times less" : "the same", gain);
        printf("   %-12s %9s alone %9s in the batch   %s%s%s\n", names[p],
               panel_time(alone, a, sizeof a), panel_time(alone / gain, b, sizeof b),
               term_on(stdout, better ? TERM_GOOD : TERM_DIM), less,
               term_on(stdout, TERM_PLAIN));
    }
}

/* The lesson in one sentence, with the numbers. */
static void print_conclusion(const cost *one, const cost *many, const limits *l)
{
    cost_step before = total(one, 0, PROJECTION), after = total(many, 0, PROJECTION);
    cost_step attention = total(many, 0, ATTENTION);
    double weights = before.params * (one->shape.dtype == PH_F32 ? 4 : 2);
    double gain = gain_of(one, many, l, PROJECTION);
    long long n = many->shape.batch;
    char text[700], w[32], keys[32];
    if (gain > 1.05)
        snprintf(
            text, sizeof text,
            "Batching helps the projections and not the attention itself: the "
            "projections read their %s of weights once for %lld %s instead of once for "
            "each, rise from %.2f to %.1f FLOP per byte, and each costs %.1f times less; "
            "the attention reads every sequence's own %s of keys and values, stays at "
            "%.2f FLOP per byte, and takes %lld times as long for %lld times the work.",
            panel_count(weights, "B", w, sizeof w), n,
            one->shape.decode ? "tokens" : "sequences", intensity(&before),
            intensity(&after), gain, panel_count(one->cache, "B", keys, sizeof keys),
            intensity(&attention), n, n);
    else
        snprintf(
            text, sizeof text,
            "Already alone the projections do %.1f FLOP per byte where this machine "
            "needs %.1f, so computing limits them and a batch of %lld gains nothing. "
            "Batching pays where few tokens share the weights: see --decode.",
            intensity(&before), l->peak / l->bandwidth, n);
    fputs("\n   ", stdout);
    term_wrap(stdout, text, 3, 3, term_width(stdout, 80));
}

/* ---- JSON ---- */

static void json_cost(ph_json_writer *j, const cost *c, const limits *l)
{
    ph_json_begin_object(j, NULL);
    ph_json_integer(j, "batch", c->shape.batch);
    ph_json_double(j, "kv_cache_bytes", c->cache);
    ph_json_double(j, "scores_bytes_not_stored", c->saved);
    ph_json_double(j, "seconds_at_least", least_time_of(c, l, 1, PROJECTION));
    ph_json_begin_array(j, "steps");
    for (int i = 0; i < STEPS; i++) {
        const cost_step *s = &c->step[i];
        ph_json_begin_object(j, NULL);
        ph_json_string(j, "name", s->name);
        ph_json_string(j, "part", s->part == PROJECTION ? "projection" : "attention");
        ph_json_double(j, "params", s->params);
        ph_json_double(j, "flops", s->flops);
        ph_json_double(j, "bytes_moved", s->moved);
        ph_json_double(j, "bytes_result", s->result);
        ph_json_double(j, "flops_per_byte", intensity(s));
        ph_json_double(j, "seconds_at_least", least_time(s, l));
        ph_json_string(j, "bound", is_compute(s, l) ? "compute" : "memory");
        ph_json_end(j);
    }
    ph_json_end(j);
    ph_json_end(j);
}

static void print_json(const cost *costs, int n, const limits *l)
{
    const cost_shape *s = &costs[0].shape;
    ph_json_writer j = json_begin("polyhead.explain.cost/1");
    ph_json_integer(&j, "len", s->len);
    ph_json_integer(&j, "model_dim", s->model_dim);
    ph_json_integer(&j, "q_heads", s->heads);
    ph_json_integer(&j, "k_heads", s->k_heads);
    ph_json_bool(&j, "decode", s->decode);
    ph_json_bool(&j, "causal", s->causal);
    ph_json_string(&j, "dtype", cli_dtype_names[s->dtype]);
    ph_json_begin_object(&j, "machine");
    ph_json_integer(&j, "threads", l->threads);
    ph_json_string(&j, "probe_isa", l->isa);
    ph_json_double(&j, "flops_per_second", l->peak);
    ph_json_double(&j, "bytes_per_second", l->bandwidth);
    ph_json_end(&j);
    ph_json_begin_array(&j, "batches");
    for (int i = 0; i < n; i++) json_cost(&j, &costs[i], l);
    ph_json_end(&j);
    explain_shapes_json(&j, &costs[n - 1].shape);
    json_end(&j);
}

int explain_cost(ph_ctx *ctx, const cost_shape *shape, int compare, int as_json)
{
    cost_shape alone = *shape;
    if (compare) alone.batch = 1;
    const cost costs[2] = {count(&alone), count(shape)};
    limits l = {0};
    if (!as_json) print_title(&alone, compare);
    int rc = measure(ctx, &l);
    if (rc) return rc;
    if (as_json) {
        print_json(costs, compare ? 2 : 1, &l);
    } else if (compare) {
        print_compared(&costs[0], &costs[1], &l);
        print_per_sequence(&costs[0], &costs[1], &l);
        print_conclusion(&costs[0], &costs[1], &l);
    } else {
        print_one(&costs[0], &l);
    }
    return EXIT_OK;
}
