/*
 * report_case.c - made-up reports; see report_case.h.
 */
#include "report_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

/* ---- patterns ---- */

typedef enum pattern {
    PREVIOUS,
    NEXT,
    SELF,
    FIRST,
    BROAD,
    NEAR,
    BLOCKS,
    REPEATS,
    PATTERNS
} pattern;

static const ph_role roles[] = {
    {'.', "none", "no label", "no rule applies"},
    {'P', "prev", "previous token", "prev > 0.50: share of the mass on key row - 1"},
    {'N', "next", "next token", "next > 0.50: share of the mass on key row + 1"},
    {'S', "self", "same token", "self > 0.50: share of the mass on the diagonal"},
    {'F', "first", "first token", "first > 0.60: share of the mass on key 0"},
    {'B', "broad", "broad", "entropy above 78 % of what it can be"}};

static const ph_metric metrics[] = {
    {"prev", "previous token", "Mean over rows of the weight on key row - 1.", 0.5f, 0},
    {"next", "next token", "Mean over rows of the weight on key row + 1.", 0.5f, 0},
    {"self", "same token", "Mean over rows of the weight on the diagonal.", 0.5f, 0},
    {"first", "first token", "Mean over rows of the weight on key 0.", 0.6f, 0},
    {"confidence", "confidence", "Mean over rows of the largest weight.", 0, 0}};

enum { METRICS = sizeof metrics / sizeof *metrics, REACH = 6, DIM = 32 };

static pattern pattern_of(int layer, int head)
{
    return (pattern)((layer * 3 + head) % PATTERNS);
}

/* A number in [0, 1) that depends on its place alone. */
static double noise(const report_case *c, int s, int layer, int head, int i, int j)
{
    uint64_t state = c->seed * 0xd6e8feb86659fd93u + (uint64_t)s * 0xa0761d6478bd642fu +
                     (uint64_t)(layer * 4096 + head) * 0xe7037ed1a0b428dbu +
                     (uint64_t)i * 0x8ebc6af09c88c6e3u +
                     (uint64_t)j * 0x589965cc75374cc3u;
    return (double)(check_random(&state) >> 40) / 16777216.0;
}

/* How much row i wants key j, before rows are made to sum to one. */
static double wish(const report_case *c, int s, int layer, int head, int i, int j)
{
    static const double strong = 40;
    double drawn = noise(c, s, layer, head, i, j), base = 0.02 + 0.3 * drawn;
    if (c->noisy) return base * drawn * drawn;
    int step = j - i;
    switch (pattern_of(layer, head)) {
    case PREVIOUS: return base + (step == -1 ? strong : 0);
    case NEXT: return base + (step == 1 ? strong : 0);
    case SELF: return base + (step == 0 ? strong : 0);
    case FIRST: return base + (j == 0 ? strong : 0);
    case BROAD: return base + 1;
    case NEAR: return base + 4.0 / (1 + step * step);
    case BLOCKS: return base + (i / 4 == j / 4 ? 2 : 0);
    default:
        return base + (step % 5 == 0 ? 3.0 / (1 + 0.1 * (step < 0 ? -step : step)) : 0);
    }
}

static int seen_by(const ph_stack *stack, int keys, int i)
{
    int limit = i + stack->q_offset + 1;
    if (!stack->causal) return keys;
    return limit < 0 ? 0 : limit < keys ? limit : keys;
}

/* ---- the functions of the report ---- */

static void vector(const report_case *c, int s, int layer, int head, int key, int n,
                   float *out)
{
    for (int d = 0; d < DIM; d++)
        out[d] = (float)(4 * noise(c, s + 10 + key, layer, head, n, d) - 2);
    for (int d = 0; d < DIM / 4; d++) /* words at the same place of a block are alike */
        out[d] += (float)(3 * noise(c, s + 30, layer, head, n / 3, d) - 1.5);
}

static double learned_wish(const report_case *c, int s, int layer, int head, int i, int j)
{
    float q[DIM], k[DIM];
    double dot = 0;
    vector(c, s, layer, head, 0, i, q);
    vector(c, s, layer, head, 1, j, k);
    for (int d = 0; d < DIM; d++) dot += (double)q[d] * k[d];
    return exp(dot * (double)c->stacks[s].scale);
}

static double any_wish(const report_case *c, int s, int layer, int head, int i, int j)
{
    int drawn = c->learned && layer == c->stacks[s].layers - 1;
    return (drawn ? learned_wish : wish)(c, s, layer, head, i, j);
}

static void fill_row(const report_case *c, int s, int layer, int head, int i, double *row)
{
    const ph_stack *stack = &c->stacks[s];
    int keys = c->axes[stack->k_axis].count, seen = seen_by(stack, keys, i);
    double sum = 0;
    for (int j = 0; j < seen; j++) sum += row[j] = any_wish(c, s, layer, head, i, j);
    for (int j = 0; j < seen; j++) row[j] /= sum;
    if (!c->negative || seen == 0) return;
    double first = row[0]; /* less of the neighbour's: still sums to one */
    for (int j = 0; j < seen; j++)
        row[j] = 1.5 * row[j] - 0.5 * (j + 1 < seen ? row[j + 1] : first);
}

double report_case_weight(const report_case *c, int s, int layer, int head, int i, int j)
{
    double *row = calloc((size_t)c->axes[c->stacks[s].k_axis].count, sizeof *row);
    fill_row(c, s, layer, head, i, row);
    double w = row[j];
    free(row);
    return w;
}

static ph_status weights(void *user, int s, int layer, int head, int row0, int rows,
                         float *out)
{
    const report_case *c = user;
    const ph_stack *stack = &c->stacks[s];
    int keys = c->axes[stack->k_axis].count;
    double *row = calloc((size_t)keys, sizeof *row);
    if (!row) return PH_OUT_OF_MEMORY;
    for (int i = 0; i < rows; i++, out += keys) {
        int seen = seen_by(stack, keys, row0 + i);
        fill_row(c, s, layer, head, row0 + i, row);
        for (int j = 0; j < keys; j++) out[j] = j < seen ? (float)row[j] : NAN;
    }
    free(row);
    return PH_OK;
}

static ph_status vectors(void *user, int s, int layer, int head, float *q, float *k)
{
    const report_case *c = user;
    const ph_stack *stack = &c->stacks[s];
    for (int i = 0; i < c->axes[stack->q_axis].count; i++)
        vector(c, s, layer, head, 0, i, q + i * DIM);
    for (int j = 0; j < c->axes[stack->k_axis].count; j++)
        vector(c, s, layer, head, 1, j, k + j * DIM);
    return PH_OK;
}

/* ---- numbers of heads ---- */

static int role_of(const float *score)
{
    for (int m = 0; m < 4; m++)
        if (score[m] > metrics[m].threshold) return m + 1;
    return score[4] < 0.2f ? 5 : 0;
}

static void measure_head(report_case *c, int s, int layer, int head)
{
    const ph_stack *stack = &c->stacks[s];
    int rows = c->axes[stack->q_axis].count, keys = c->axes[stack->k_axis].count;
    int n = layer * stack->heads + head, count = rows < 32 ? rows : 32;
    float *score = c->scores[s] + n * METRICS,
          *offset = c->offsets[s] + n * (2 * REACH + 1);
    double *row = calloc((size_t)keys + 1, sizeof *row);
    for (int i = 0; i < count; i++) {
        double most = 0;
        fill_row(c, s, layer, head, i, row);
        for (int j = 0; j < seen_by(stack, keys, i); j++) {
            float share = (float)(row[j] / count);
            if (j - i >= -1 && j - i <= 1) score[j == i ? 2 : j > i] += share;
            if (j == 0) score[3] += share;
            if (abs(j - i) <= REACH) offset[j - i + REACH] += share;
            most = row[j] > most ? row[j] : most;
        }
        score[4] += (float)(most / count);
    }
    free(row);
    c->roles[s][n] = (uint8_t)role_of(score);
}

static void measure(report_case *c, int s)
{
    ph_stack *stack = &c->stacks[s];
    size_t heads = (size_t)stack->layers * (size_t)stack->heads;
    size_t keys = (size_t)c->axes[stack->k_axis].count;
    c->scores[s] = calloc(heads * METRICS, sizeof(float));
    c->offsets[s] = calloc(heads * (2 * REACH + 1), sizeof(float));
    c->norms[s] = calloc(heads * keys + 1, sizeof(float));
    c->roles[s] = calloc(heads, 1);
    for (size_t n = 0; n < heads; n++)
        measure_head(c, s, (int)n / stack->heads, (int)n % stack->heads);
    for (size_t n = 0; n < heads * keys; n++) /* the first word carries little */
        c->norms[s][n] = n % keys == 0 ? 0.1f : 1 + (float)(n % 7) / 8;
    stack->scores = c->scores[s];
    stack->offsets = c->offsets[s];
    stack->reach = REACH;
    stack->role = c->roles[s];
    stack->value_norm = c->norms[s];
}

/* ---- texts ---- */

static void take_words(report_case *c, int axis, const char *name,
                       const char *const *from, int known, int count)
{
    char **words = calloc((size_t)count + 1, sizeof *words);
    for (int i = 0; i < count; i++) {
        const char *word = from[i % known];
        words[i] = malloc(strlen(word) + 16);
        if (i < known)
            strcpy(words[i], word);
        else
            sprintf(words[i], "%s%d", word, i / known);
    }
    c->words[axis] = words;
    c->axes[axis] = (ph_axis){
        .name = name, .tokens = (const char *const *)words, .count = count};
    if (c->report.axis_count <= axis) c->report.axis_count = axis + 1;
}

static const char *const animal[] = {"The", "animal", "didn",    "'t", "cross",
                                     "the", "street", "because", "it", "was",
                                     "too", "tired",  "."};
static const char *const chinese[] = {"那只", "动物", "没有", "过", "马路", "，",
                                      "因为", "它",   "太",   "累", "了",   "。"};
static const char *const hostile[] = {"</script>",
                                      "<!--",
                                      "<img src=x onerror=alert(1)>",
                                      "\"quotes'",
                                      "&amp;",
                                      "line\nbreak",
                                      "\x01\x1b[31mred",
                                      "\xe2\x80\xaeright\xe2\x80\xac",
                                      "bad\xff\xfe",
                                      "\xe2\x80\xa8",
                                      "",
                                      " ",
                                      "\xf0\x9f\x98\x80",
                                      "e\xcc\x81",
                                      "]]>",
                                      "${1}",
                                      "\\u0041"};

enum { ANIMAL = 13, CHINESE = 12, HOSTILE = 17 };

/* ---- the cases ---- */

static ph_stack *add_stack(report_case *c, const char *name, int layers, int heads, int q,
                           int k, int causal)
{
    ph_stack *stack = &c->stacks[c->report.stack_count++];
    *stack = (ph_stack){.name = name,
                        .layers = layers,
                        .heads = heads,
                        .q_axis = q,
                        .k_axis = k,
                        .causal = causal,
                        .scale = 0.1767767f};
    return stack;
}

static const ph_outcome outcomes[] = {
    {.text = "animal", .value = 0.8125f, .about = 1},
    {.text = "street", .value = 0.125f, .about = 2}};

static void make_demo(report_case *c)
{
    take_words(c, 0, "text", animal, ANIMAL, ANIMAL);
    ph_stack *stack = add_stack(c, "encoder", 6, 8, 0, 0, 0);
    stack->qk_dim = DIM;
    stack->pair_step = DIM / 2;
    c->learned = 1;
    c->report.text = "The animal didn't cross the street because it was too tired.";
    c->report.found =
        "8 previous-token heads, 6 broad heads, 12% of the mass on the first "
        "word.";
    c->report.outcome_title = "What “it” stands for";
    c->report.outcomes = outcomes;
    c->report.outcome_count = 2;
}

static const ph_outcome links[] = {
    {.text = "it -> because", .value = 0.9f, .about = 8},
    {.text = "was -> too", .value = 0.8f, .about = 9}};

/* Head h answers for rows h, h + 4, ...; head 3 matters most. */
static void make_answers(report_case *c)
{
    take_words(c, 0, "text", animal, ANIMAL, ANIMAL);
    ph_stack *stack = add_stack(c, "links", 1, 4, 0, 0, 0);
    c->share = calloc(4 * ANIMAL, sizeof *c->share);
    c->effect = calloc(4, sizeof *c->effect);
    c->unknown = calloc(ANIMAL, 1);
    for (int n = 0; n < 4 * ANIMAL; n++)
        c->share[n] = n % ANIMAL % 4 == n / ANIMAL ? 0.97f : 0.01f;
    for (int h = 0; h < 4; h++) c->effect[h] = 0.1f * (float)(h + 1);
    c->unknown[6] = 1;
    stack->share = c->share;
    stack->effect = c->effect;
    c->axes[0].unknown = c->unknown;
    c->report.text = "The animal didn't cross the street because it was too tired.";
    c->report.outcome_title = "what each word belongs to";
    c->report.outcomes = links;
    c->report.outcome_count = 2;
}

static void make_cross(report_case *c)
{
    take_words(c, 0, "target", animal, ANIMAL, 3);
    take_words(c, 1, "source", chinese, CHINESE, 5);
    add_stack(c, "encoder", 1, 4, 1, 1, 0);
    add_stack(c, "decoder", 1, 4, 0, 0, 1);
    add_stack(c, "cross", 1, 4, 0, 1, 0);
}

/* More keys than 16 bits count. */
static void make_wide(report_case *c)
{
    take_words(c, 0, "target", animal, ANIMAL, 16);
    take_words(c, 1, "source", animal, ANIMAL, 70000);
    add_stack(c, "cross", 1, 2, 0, 1, 0);
}

static void make_grouped(report_case *c)
{
    take_words(c, 0, "text", animal, ANIMAL, 7);
    ph_stack *stack = add_stack(c, "decoder", 3, 8, 0, 0, 1);
    stack->kv_heads = 2;
    c->absent = calloc(24, 1);
    c->absent[5] = c->absent[16] = 1;
    stack->absent = c->absent;
}

typedef struct shape {
    const char *name;
    int layers, heads, words, causal;
    const char *const *text;
    int known;
} shape;

static const shape shapes[] = {{"patterns", 1, 8, 9, 0, animal, ANIMAL},
                               {"causal", 2, 8, ANIMAL, 1, animal, ANIMAL},
                               {"negative", 2, 8, ANIMAL, 0, animal, ANIMAL},
                               {"chinese", 2, 4, CHINESE, 0, chinese, CHINESE},
                               {"single", 1, 1, 1, 0, animal, ANIMAL},
                               {"empty", 2, 2, 0, 0, animal, ANIMAL},
                               {"hostile", 2, 4, HOSTILE, 0, hostile, HOSTILE},
                               {"large", 12, 12, 128, 0, animal, ANIMAL},
                               {"noisy", 12, 12, 128, 0, animal, ANIMAL},
                               {"long", 12, 12, 512, 0, animal, ANIMAL},
                               {"longest", 1, 3, 4096, 1, animal, ANIMAL},
                               {"many", 1, 128, 8, 0, animal, ANIMAL}};

static int make_shape(report_case *c, const char *name)
{
    for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++) {
        const shape *s = &shapes[n];
        if (strcmp(s->name, name) != 0) continue;
        take_words(c, 0, "text", s->text, s->known, s->words);
        add_stack(c, "text", s->layers, s->heads, 0, 0, s->causal);
        return 0;
    }
    return -1;
}

static int make_texts(report_case *c, const char *name)
{
    if (!strcmp(name, "demo") || !strcmp(name, "other"))
        make_demo(c);
    else if (!strcmp(name, "answers"))
        make_answers(c);
    else if (!strcmp(name, "cross"))
        make_cross(c);
    else if (!strcmp(name, "wide"))
        make_wide(c);
    else if (!strcmp(name, "grouped"))
        make_grouped(c);
    else
        return make_shape(c, name);
    return 0;
}

int report_case_make(report_case *c, const char *name)
{
    memset(c, 0, sizeof *c);
    c->seed = strcmp(name, "other") ? 1 : 2;
    c->noisy = !strcmp(name, "noisy");
    c->negative = !strcmp(name, "negative");
    c->report = (ph_report){.title = name,
                            .axes = c->axes,
                            .stacks = c->stacks,
                            .metrics = metrics,
                            .metric_count = METRICS,
                            .roles = roles,
                            .role_count = sizeof roles / sizeof *roles,
                            .weights = weights,
                            .vectors = vectors,
                            .user = c};
    if (make_texts(c, name)) return -1;
    for (int s = 0; s < c->report.stack_count; s++) measure(c, s);
    return 0;
}

void report_case_free(report_case *c)
{
    for (int s = 0; s < REPORT_STACKS; s++) {
        free(c->scores[s]);
        free(c->offsets[s]);
        free(c->norms[s]);
        free(c->roles[s]);
    }
    for (int a = 0; a < c->report.axis_count; a++) {
        for (int i = 0; i < c->axes[a].count; i++) free(c->words[a][i]);
        free(c->words[a]);
    }
    free(c->absent), free(c->unknown), free(c->share), free(c->effect);
    free(c->why);
}
