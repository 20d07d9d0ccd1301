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
#include <stdlib.h>
#include <string.h>

#include "bench/machine.h"
#include "bench/probe.h"
#include "commands/cmd_explain.h"
#include "framework/panel.h"
#include "polyhead_picture.h"

enum { STEPS = 7, SOFTMAX_FLOPS = 5 }; /* max, subtract, exp, sum, divide */

/* Which part of a layer a step belongs to: batching helps one and not the other. */
typedef enum cost_part { PROJECTION, ATTENTION } cost_part;

typedef struct cost_step {
    const char *name, *zh;
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

static cost_step projection(const char *name, const char *zh, double rows, double in,
                            double out, double e)
{
    return (cost_step){name,
                       zh,
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
        projection("q projection", "q 投影", b * tq, dim, h * d, e),
        projection("k projection", "k 投影", b * tq, dim, kv, e),
        projection("v projection", "v 投影", b * tq, dim, kv, e),
        {"scores Q K^T", "分数 Q K^T", ATTENTION, 0, 2 * scores * d, queries + keys, 0},
        {"softmax", "softmax", ATTENTION, 0, SOFTMAX_FLOPS * scores, 0, 0},
        {"weights V", "权重乘 V", ATTENTION, 0, 2 * scores * d, keys + queries, queries},
        projection("output proj.", "输出投影", b * tq, h * d, dim, e)};
    memcpy(c.step, steps, sizeof steps);
    return c;
}

/* The sum of all steps, or of those of one part. */
static cost_step total(const cost *c, int all, cost_part which)
{
    cost_step sum = {.name = "all", .zh = "合计", .part = which};
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

/* A cell of a table: to the left in columns < 0, like printf's width. */
static void put_cell(const char *text, int columns)
{
    int pad = abs(columns) - ph_text_columns(text);
    printf("%*s%s%*s", columns > 0 && pad > 0 ? pad : 0, "", text,
           columns < 0 && pad > 0 ? pad : 0, "");
}

/* What limits a step, in the colour of that. */
static void print_bound(const cost_step *s, const limits *l, int width, int zh)
{
    int compute = is_compute(s, l);
    fputs(term_on(stdout, compute ? TERM_GOOD : TERM_WARN), stdout);
    put_cell(compute ? explain_say(zh, "compute", "计算")
                     : explain_say(zh, "memory", "内存"),
             width);
    fputs(term_on(stdout, TERM_PLAIN), stdout);
}

static void print_step(const cost_step *s, const limits *l, double seconds, int bound,
                       int zh)
{
    char p[24], f[24], m[24], k[24], i[24], t[24];
    fputs("   ", stdout);
    put_cell(explain_say(zh, s->name, s->zh), -13);
    printf(" %8s %8s %9s %9s %7s %8s%s",
           amount(s->params, "", p, sizeof p), amount(s->flops, "", f, sizeof f),
           amount(s->moved, "B", m, sizeof m), amount(s->result, "B", k, sizeof k),
           intensity_text(s, i, sizeof i), panel_time(seconds, t, sizeof t),
           bound ? " " : "");
    if (bound) print_bound(s, l, 0, zh);
    putchar('\n');
}

/* Printed before the half second of measuring, so that something stands there at once. */
static void print_title(const cost_shape *s, int compare, int zh)
{
    printf("%s%s%s: ", term_on(stdout, TERM_BOLD),
           explain_say(zh, "What multi-head attention costs", "多头注意力的代价"),
           term_on(stdout, TERM_PLAIN));
    if (s->decode)
        printf(explain_say(zh, "one new token against %lld keys",
                           "一个新词元对 %lld 个键"),
               (long long)s->len);
    else
        printf(explain_say(zh, "%lld tokens%s", "%lld 个词元%s"), (long long)s->len,
               s->causal ? explain_say(zh, ", causal", "，因果") : "");
    printf(", %s\n", cli_dtype_names[s->dtype]);
    printf(explain_say(zh, "   model_dim %lld, %lld heads of %lld",
                       "   model_dim %lld，%lld 个头，每头 %lld 维"),
           (long long)s->model_dim, (long long)s->heads,
           (long long)(s->model_dim / s->heads));
    if (s->k_heads != s->heads)
        printf(explain_say(zh, ", %lld key and value head%s", "，%lld 个键值头%s"),
               (long long)s->k_heads, s->k_heads > 1 && !zh ? "s" : "");
    if (!compare)
        printf(explain_say(zh, ", batch %lld", "，批量 %lld"), (long long)s->batch);
    putchar('\n');
    fflush(stdout);
}

static void print_limits(const limits *l, int zh)
{
    char peak[32], bandwidth[32];
    printf(explain_say(zh,
                       "   This machine, measured now, %d thread%s: %s, %s,\n"
                       "   so a step needs more than %s%.1f FLOP per byte%s to be "
                       "limited by computing.\n\n",
                       "   本机此刻测得，%d 个线程%s: %s，%s，\n"
                       "   所以一步每字节多于 %s%.1f FLOP%s 时才受计算限制。\n\n"),
           l->threads, l->threads == 1 || zh ? "" : "s",
           panel_count(l->peak, "FLOP/s", peak, sizeof peak),
           panel_count(l->bandwidth, "B/s", bandwidth, sizeof bandwidth),
           term_on(stdout, TERM_BOLD), l->peak / l->bandwidth,
           term_on(stdout, TERM_PLAIN));
}

/* Bytes that stay in a cache come faster than from memory; better said than hidden. */
static void print_cache_note(const cost *c, int zh)
{
    machine_facts facts;
    char need[32], have[32];
    machine_look(&facts);
    cost_step all = total(c, 1, PROJECTION);
    if (!facts.cache[2] || all.moved > (double)facts.cache[2]) return;
    printf(explain_say(
               zh,
               "   All %s fit into the last-level cache (%s): called again and again,\n"
               "   memory-bound steps run faster here than their times from memory "
               "say.\n",
               "   全部 %s 放得进末级缓存（%s）：反复调用时，\n"
               "   受内存限制的步骤比按内存算出的时间更快。\n"),
           panel_count(all.moved, "B", need, sizeof need),
           panel_count((double)facts.cache[2], "B", have, sizeof have));
}

static void print_heading(int zh)
{
    static const struct {
        const char *en, *zh;
        int columns;
    } cells[] = {{"step", "步骤", -13},   {"params", "参数", 9},  {"FLOPs", "FLOPs", 9},
                 {"moved", "搬运", 10},   {"result", "结果", 10}, {"FLOP/B", "FLOP/B", 8},
                 {"at least", "至少", 9}, {" bound", " 受限于", 0}};
    printf("   %s", term_on(stdout, TERM_DIM));
    for (int i = 0; i < 8; i++)
        put_cell(explain_say(zh, cells[i].en, cells[i].zh), cells[i].columns);
    printf("%s\n", term_on(stdout, TERM_PLAIN));
}

static void print_one(const cost *c, const limits *l, int zh)
{
    char buffer[32], cache[32], per_row[32];
    print_limits(l, zh);
    print_heading(zh);
    for (int i = 0; i < STEPS; i++)
        print_step(&c->step[i], l, least_time(&c->step[i], l), 1, zh);
    cost_step all = total(c, 1, PROJECTION);
    print_step(&all, l, least_time_of(c, l, 1, PROJECTION), 0, zh);
    printf(explain_say(zh, "\n   KV cache      %s (%s for each token of a sequence)\n",
                       "\n   KV 缓存       %s（序列的每个词元 %s）\n"),
           panel_count(c->cache, "B", cache, sizeof cache),
           panel_count(c->cache / (double)(c->shape.batch * c->shape.len), "B", per_row,
                       sizeof per_row));
    printf(explain_say(zh, "   Never stored  %s of scores and as much of weights\n",
                       "   从不保存      %s 的分数，和同样多的权重\n"),
           panel_count(c->saved, "B", buffer, sizeof buffer));
    print_cache_note(c, zh);
}

/* ---- two batches side by side ---- */

static void print_half(const cost_step *s, const limits *l, int width, int zh)
{
    char f[24], m[24], i[24];
    printf(" %7s %8s %6s ", amount(s->flops, "", f, sizeof f),
           amount(s->moved, "B", m, sizeof m), intensity_text(s, i, sizeof i));
    print_bound(s, l, width, zh);
}

static void print_compared_heading(long long batch, int zh)
{
    char title[32];
    snprintf(title, sizeof title, explain_say(zh, "batch %lld", "批量 %lld"), batch);
    printf("   %-12s  %s", "", term_on(stdout, TERM_BOLD));
    put_cell(explain_say(zh, "batch 1", "批量 1"), -32);
    printf("%s%s\n   %s", title, term_on(stdout, TERM_PLAIN), term_on(stdout, TERM_DIM));
    put_cell(explain_say(zh, "step", "步骤"), -12);
    for (int i = 0; i < 2; i++) {
        printf(" %7s ", "FLOPs");
        put_cell(explain_say(zh, "moved", "搬运"), 8);
        printf(" %6s ", "FLOP/B");
        put_cell(explain_say(zh, "bound", "受限于"), i ? 0 : -7);
    }
    printf("%s\n", term_on(stdout, TERM_PLAIN));
}

static void print_compared(const cost *one, const cost *many, const limits *l, int zh)
{
    print_limits(l, zh);
    print_compared_heading((long long)many->shape.batch, zh);
    for (int i = 0; i < STEPS; i++) {
        fputs("   ", stdout);
        put_cell(explain_say(zh, one->step[i].name, one->step[i].zh), -12);
        print_half(&one->step[i], l, -7, zh);
        print_half(&many->step[i], l, 0, zh);
        putchar('\n');
    }
}

/* How many times less one sequence costs inside the batch than alone. */
static double gain_of(const cost *one, const cost *many, const limits *l, cost_part p)
{
    return least_time_of(one, l, 0, p) * (double)many->shape.batch /
           least_time_of(many, l, 0, p);
}

static void print_per_sequence(const cost *one, const cost *many, const limits *l, int zh)
{
    static const char *const names[] = {"projections", "attention"};
    static const char *const zh_names[] = {"投影", "注意力"};
    char a[24], b[24], less[48];
    printf(explain_say(zh, "\n   At least, for each %s:\n", "\n   每个%s至少:\n"),
           one->shape.decode ? explain_say(zh, "new token", "新词元")
                             : explain_say(zh, "sequence", "序列"));
    for (cost_part p = PROJECTION; p <= ATTENTION; p++) {
        double alone = least_time_of(one, l, 0, p), gain = gain_of(one, many, l, p);
        int better = gain > 1.05;
        if (better)
            snprintf(less, sizeof less, explain_say(zh, "%.1f times less", "降到 1/%.1f"),
                     gain);
        else
            snprintf(less, sizeof less, "%s", explain_say(zh, "the same", "相同"));
        fputs("   ", stdout);
        put_cell(explain_say(zh, names[p], zh_names[p]), -12);
        printf(explain_say(zh, " %9s alone %9s in the batch   %s%s%s\n",
                           " 单独 %9s，批量中 %9s   %s%s%s\n"),
               panel_time(alone, a, sizeof a), panel_time(alone / gain, b, sizeof b),
               term_on(stdout, better ? TERM_GOOD : TERM_DIM), less,
               term_on(stdout, TERM_PLAIN));
    }
}

/* The lesson in one sentence, with the numbers. */
static void print_conclusion(const cost *one, const cost *many, const limits *l, int zh)
{
    cost_step before = total(one, 0, PROJECTION), after = total(many, 0, PROJECTION);
    cost_step attention = total(many, 0, ATTENTION);
    double weights = before.params * (one->shape.dtype == PH_F32 ? 4 : 2);
    double gain = gain_of(one, many, l, PROJECTION);
    long long n = many->shape.batch;
    char text[900], w[32], keys[32];
    static const char *const helps[] = {
        "Batching helps the projections and not the attention itself: the projections "
        "read their %s of weights once for %lld %s instead of once for each, rise from "
        "%.2f to %.1f FLOP per byte, and each costs %.1f times less; the attention reads "
        "every sequence's own %s of keys and values, stays at %.2f FLOP per byte, and "
        "takes %lld times as long for %lld times the work.",
        "批量有助于投影，不助于注意力本身：投影的 %s 权重为 %lld 个%s只读一次，每字节从 "
        "%.2f 升到 %.1f FLOP，每个的代价降到 1/%.1f；注意力要读每个序列自己的 %s 键和值，"
        "停在每字节 %.2f FLOP，用 %lld 倍的时间做 %lld 倍的工作。"};
    static const char *const gains_nothing[] = {
        "Already alone the projections do %.1f FLOP per byte where this machine needs "
        "%.1f, so computing limits them and a batch of %lld gains nothing. Batching pays "
        "where few tokens share the weights: see --decode.",
        "单独时投影每字节已做 %.1f FLOP，而本机只需 %.1f，所以受计算限制，批量 %lld 没有"
        "收益。少数词元共用权重时批量才有用：见 --decode。"};
    if (gain > 1.05)
        snprintf(text, sizeof text, helps[zh], panel_count(weights, "B", w, sizeof w), n,
                 one->shape.decode ? explain_say(zh, "tokens", "词元")
                                   : explain_say(zh, "sequences", "序列"),
                 intensity(&before), intensity(&after), gain,
                 panel_count(one->cache, "B", keys, sizeof keys), intensity(&attention),
                 n, n);
    else
        snprintf(text, sizeof text, gains_nothing[zh], intensity(&before),
                 l->peak / l->bandwidth, n);
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

int explain_cost(ph_ctx *ctx, const cost_shape *shape, int compare, int chinese,
                 int as_json)
{
    cost_shape alone = *shape;
    if (compare) alone.batch = 1;
    const cost costs[2] = {count(&alone), count(shape)};
    limits l = {0};
    if (!as_json) print_title(&alone, compare, chinese);
    int rc = measure(ctx, &l);
    if (rc) return rc;
    if (as_json) {
        print_json(costs, compare ? 2 : 1, &l);
    } else if (compare) {
        print_compared(&costs[0], &costs[1], &l, chinese);
        print_per_sequence(&costs[0], &costs[1], &l, chinese);
        print_conclusion(&costs[0], &costs[1], &l, chinese);
    } else {
        print_one(&costs[0], &l, chinese);
    }
    return EXIT_OK;
}
