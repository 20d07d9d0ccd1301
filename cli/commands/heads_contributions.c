/*
 * heads_contributions.c - `polyhead heads --contributions` and `--circuit`: what heads
 * write, how far they differ, and what one prefers by its weights alone.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "commands/cmd_look.h"
#include "framework/json.h"
#include "framework/term.h"
#include "polyhead_circuits.h"

/* What is known of one layer; NaN: not of this kind of attention. */
typedef struct layer_facts {
    const float *share;    /* (heads), or NULL */
    double within, across; /* mean distance of heads in the layer, and to other layers */
    double one, all;       /* effective ranks */
} layer_facts;

typedef struct stack_facts {
    const look_source *source;
    int index;
    const ph_stack *stack;
    layer_facts *layers;
    look_heads heads;
} stack_facts;

/* ---- measuring ---- */

/* Means over the pairs of heads inside a layer, and of one inside with one outside. */
static void average_distances(stack_facts *f, const ph_clusters *distances)
{
    for (int l = 0; l < f->stack->layers; l++) {
        double sum[2] = {0};
        int count[2] = {0};
        for (int a = 0; a < f->heads.count; a++)
            for (int b = 0; b < f->heads.count; b++) {
                int other = f->heads.picks[b].layer != l;
                if (f->heads.picks[a].layer != l || a == b) continue;
                sum[other] += ph_clusters_distance(distances, a, b);
                count[other]++;
            }
        f->layers[l].within = count[0] ? sum[0] / count[0] : (double)NAN;
        f->layers[l].across = count[1] ? sum[1] / count[1] : (double)NAN;
    }
}

static int measure_distances(stack_facts *f)
{
    ph_clusters *distances = NULL;
    int rc = heads_distances(f->source, f->index, &f->heads, &distances);
    if (rc == EXIT_OK) average_distances(f, distances);
    ph_clusters_free(distances);
    return rc;
}

static void measure_layer(stack_facts *f, int l)
{
    const look_source *s = f->source;
    layer_facts *layer = &f->layers[l];
    int site = ph_scene_site(s->scene, f->index, l);
    const float *shares = f->stack->contribution;
    layer->share = shares ? shares + (size_t)l * (size_t)f->stack->heads : NULL;
    if (ph_qk_ranks(s->model, s->reading, site, &layer->one, &layer->all, NULL, NULL))
        layer->one = layer->all = (double)NAN;
}

static int open_facts(stack_facts *f)
{
    const look_wish wish = {.stack = f->stack->name};
    f->layers = calloc((size_t)f->stack->layers, sizeof *f->layers);
    if (!f->layers)
        return cli_fail(EXIT_MEMORY, "out of memory for the heads of a stack");
    int rc = look_select(&f->source->report, &wish, &f->heads);
    for (int l = 0; l < f->stack->layers && rc == EXIT_OK; l++) measure_layer(f, l);
    return rc == EXIT_OK ? measure_distances(f) : rc;
}

static void close_facts(stack_facts *f)
{
    free(f->layers);
    free(f->heads.picks);
}

/* ---- printing ---- */

enum { BAR = 24, SHARES_IN_A_LINE = 12 };

static void put_number(double value, int width, int digits)
{
    if (isnan(value))
        printf("%*s", width, "-");
    else
        printf("%*.*f", width, digits, value);
}

static void print_shares(const stack_facts *f)
{
    printf("%sshare of what the attention of a layer writes, by head; a layer sums to "
           "1%s\n",
           term_on(stdout, TERM_BOLD), term_on(stdout, TERM_PLAIN));
    for (int l = 0; l < f->stack->layers; l++) {
        printf("%5d ", l + 1);
        for (int h = 0; h < f->stack->heads; h++) {
            if (h && h % SHARES_IN_A_LINE == 0) printf("\n%6s", "");
            put_number((double)f->layers[l].share[h], 6, 2);
        }
        putchar('\n');
    }
}

static void put_bar(double value, double most)
{
    int cells = isnan(value) || most <= 0 ? 0 : (int)(value / most * BAR + 0.5);
    fputs("  ", stdout);
    for (int i = 0; i < cells; i++) putchar('#');
}

static void print_differences(const stack_facts *f)
{
    double most = 0;
    int dim = ph_model_config(f->source->model)->model_dim;
    for (int l = 0; l < f->stack->layers; l++)
        most = fmax(most, isnan(f->layers[l].within) ? 0 : f->layers[l].within);
    printf("\n%slayer  heads differ  from others  rank of a head  of all, of %d%s\n",
           term_on(stdout, TERM_BOLD), dim, term_on(stdout, TERM_PLAIN));
    for (int l = 0; l < f->stack->layers; l++) {
        const layer_facts *layer = &f->layers[l];
        printf("%5d", l + 1);
        put_number(layer->within, 14, 3);
        put_number(layer->across, 13, 3);
        put_number(layer->one, 16, 1);
        put_number(layer->all, 15, 1);
        put_bar(layer->within, most);
        putchar('\n');
    }
}

static void print_facts(const stack_facts *f)
{
    char word[LOOK_WORD];
    const layer_facts *first = f->layers; /* NaN: a pointer, alone in its stack */
    if (!f->stack->contribution && isnan(first->within) && isnan(first->one)) return;
    if (f->source->report.stack_count > 1)
        printf("%s%s%s\n", term_on(stdout, TERM_BOLD), look_word(f->stack->name, word),
               term_on(stdout, TERM_PLAIN));
    if (f->stack->contribution) print_shares(f);
    print_differences(f);
    putchar('\n');
}

static void print_notes(void)
{
    term_wrap(stdout,
              "A share is the part of the output that lies along what the head adds "
              "through its rows of W_O; a negative one works against the others. Heads "
              "differ by the Jensen-Shannon divergence of their weights in nats, 0 to "
              "0.693, within the layer and from heads of other layers; bars draw the "
              "first. Ranks are effective ones of W_Q W_K^T: where that of all heads is "
              "far below heads times that of one, collaborative heads could share "
              "directions.",
              0, 0, term_width(stdout, 90));
}

static void json_facts(ph_json_writer *j, const stack_facts *f)
{
    ph_json_begin_object(j, NULL);
    ph_json_string(j, "stack", f->stack->name);
    ph_json_begin_array(j, "layers");
    for (int l = 0; l < f->stack->layers; l++) {
        const layer_facts *layer = &f->layers[l];
        ph_json_begin_object(j, NULL);
        ph_json_begin_array(j, "shares");
        for (int h = 0; h < f->stack->heads && layer->share; h++)
            ph_json_float(j, NULL, layer->share[h]);
        ph_json_end(j);
        ph_json_double(j, "divergence_within", layer->within);
        ph_json_double(j, "divergence_across", layer->across);
        ph_json_double(j, "effective_rank_of_a_head", layer->one);
        ph_json_double(j, "effective_rank_of_all", layer->all);
        ph_json_end(j);
    }
    ph_json_end(j);
    ph_json_end(j);
}

int heads_contributions(const look_source *source, int json)
{
    ph_json_writer j;
    int rc = EXIT_OK;
    if (json) {
        j = json_begin("polyhead.contributions/1");
        ph_json_string(&j, "title", source->report.title);
        ph_json_begin_array(&j, "stacks");
    }
    for (int k = 0; k < source->report.stack_count && rc == EXIT_OK; k++) {
        stack_facts f = {
            .source = source, .index = k, .stack = &source->report.stacks[k]};
        rc = open_facts(&f);
        if (rc == EXIT_OK && json) json_facts(&j, &f);
        if (rc == EXIT_OK && !json) print_facts(&f);
        close_facts(&f);
    }
    if (json) json_end(&j);
    if (rc == EXIT_OK && !json) print_notes();
    return rc;
}

/* ---- circuits ---- */

enum { MOST_TOKENS = 64, PAIRS = 10, WRITES = 4 };

enum { WORD_COLUMNS = 16 };

typedef struct circuit_run {
    ph_pick at;
    const look_source *source;
    ph_circuit *circuit;
    int32_t tokens[MOST_TOKENS]; /* of the text, each once */
    int count;
    double *scores, *writes;
} circuit_run;

/* Tokens of the text; beyond MOST_TOKENS none. */
static void list_tokens(circuit_run *r, int axis)
{
    const int32_t *ids = ph_scene_ids(r->source->scene, axis);
    for (int i = 0; i < r->source->report.axes[axis].count; i++) {
        int known = 0;
        for (int n = 0; n < r->count; n++) known |= r->tokens[n] == ids[i];
        if (!known && r->count < MOST_TOKENS) r->tokens[r->count++] = ids[i];
    }
}

static const char *word_of(const circuit_run *r, int32_t token, char word[LOOK_WORD])
{
    char spelt[LOOK_WORD];
    return look_word(ph_model_spell(r->source->model, token, spelt, sizeof spelt), word);
}

/* The index of the largest, which is taken out. */
static int take_largest(double *values, int count)
{
    int best = 0;
    for (int i = 1; i < count; i++)
        if (values[i] > values[best]) best = i;
    values[best] = -INFINITY;
    return best;
}

static void print_pairs(circuit_run *r, ph_json_writer *j)
{
    char a[LOOK_WORD], b[LOOK_WORD];
    int all = r->count * r->count;
    if (j) ph_json_begin_array(j, "qk");
    if (!j)
        puts("By its weights alone: embeddings go straight into this head, without\n"
             "positions and without what earlier layers add. In the text it may look\n"
             "elsewhere: polyhead look shows that.\n\n"
             "Token pairs it prefers (QK circuit), score before the softmax:");
    for (int n = 0; n < PAIRS && n < all; n++) {
        int best = 0;
        for (int i = 1; i < all; i++)
            if (r->scores[i] > r->scores[best]) best = i;
        double score = r->scores[best];
        take_largest(r->scores, all);
        word_of(r, r->tokens[best / r->count], a);
        word_of(r, r->tokens[best % r->count], b);
        if (!j) {
            fputs("  ", stdout);
            term_pad(stdout, a, WORD_COLUMNS);
            fputs(" looks at  ", stdout);
            term_pad(stdout, b, WORD_COLUMNS);
            printf(" %8.2f\n", score);
            continue;
        }
        ph_json_begin_object(j, NULL);
        ph_json_string(j, "from", a);
        ph_json_string(j, "to", b);
        ph_json_double(j, "score", score);
        ph_json_end(j);
    }
    if (j) ph_json_end(j);
}

static ph_status print_writes(circuit_run *r, ph_json_writer *j)
{
    int vocab = ph_model_config(r->source->model)->vocab;
    char word[LOOK_WORD];
    ph_status status = PH_OK;
    if (j) ph_json_begin_array(j, "ov");
    if (!j) puts("\nWhat it writes where it looks at a token (OV circuit):");
    for (int n = 0; n < r->count && status == PH_OK; n++) {
        status = ph_circuit_writes(r->circuit, r->tokens[n], r->writes);
        if (status != PH_OK) break;
        word_of(r, r->tokens[n], word);
        if (j) ph_json_begin_object(j, NULL), ph_json_string(j, "token", word);
        if (j) ph_json_begin_array(j, "writes");
        if (!j) fputs("  ", stdout), term_pad(stdout, word, WORD_COLUMNS), putchar(' ');
        for (int k = 0; k < WRITES && k < vocab; k++) {
            word_of(r, take_largest(r->writes, vocab), word);
            if (j) ph_json_string(j, NULL, word);
            if (!j) printf("%s%s", k ? ", " : "", word);
        }
        if (j) ph_json_end(j), ph_json_end(j);
        if (!j) putchar('\n');
    }
    if (j) ph_json_end(j);
    return status;
}

/* Which head it is: "encoder 2-6, previous token". */
static void print_head(const circuit_run *r, ph_json_writer *j)
{
    const ph_report *report = &r->source->report;
    const ph_stack *stack = &report->stacks[r->at.stack];
    char name[64];
    int n = r->at.layer * stack->heads + r->at.head,
        role = stack->role ? stack->role[n] : 0;
    snprintf(name, sizeof name, "%d-%d", r->at.layer + 1, r->at.head + 1);
    if (j) {
        ph_json_string(j, "stack", stack->name);
        ph_json_string(j, "head", name);
        ph_json_string(j, "role", report->roles[role].key);
        return;
    }
    printf("%s%s %s%s%s%s\n\n", term_on(stdout, TERM_BOLD), stack->name, name,
           term_on(stdout, TERM_PLAIN), role ? ", " : "",
           role ? report->roles[role].name : "");
}

static int run_circuit(circuit_run *r, int json)
{
    size_t vocab = (size_t)ph_model_config(r->source->model)->vocab;
    r->scores = malloc((size_t)(r->count * r->count + 1) * sizeof *r->scores);
    r->writes = malloc(vocab * sizeof *r->writes);
    ph_status status = r->scores && r->writes ? PH_OK : PH_OUT_OF_MEMORY;
    if (status == PH_OK)
        status = ph_circuit_scores(r->circuit, r->tokens, r->count, r->scores);
    if (status == PH_OK) {
        ph_json_writer j;
        if (json) j = json_begin("polyhead.circuit/1");
        print_head(r, json ? &j : NULL);
        print_pairs(r, json ? &j : NULL);
        status = print_writes(r, json ? &j : NULL);
        if (json) json_end(&j);
    }
    free(r->scores);
    free(r->writes);
    return cli_result(status, "the circuits of the head");
}

static int find_stack(const look_source *source, const char *name)
{
    for (int k = 0; k < source->report.stack_count; k++)
        if (!name || !strcmp(source->report.stacks[k].name, name)) return k;
    return -1;
}

int heads_circuit(const look_source *source, const char *stack, const char *name,
                  int json)
{
    circuit_run r = {.source = source};
    char error[CLI_ERROR_SIZE] = "", rest = 0;
    const ph_io io = {.error = error, .error_size = sizeof error};
    int layer = 0, head = 0, k = find_stack(source, stack);
    if (k < 0) return cli_fail(EXIT_USAGE, "option --stack: there is no '%s'", stack);
    const ph_stack *s = &source->report.stacks[k];
    if (sscanf(name, "%d-%d%c", &layer, &head, &rest) != 2 || layer < 1 || head < 1 ||
        layer > s->layers || head > s->heads)
        return cli_fail(EXIT_USAGE,
                        "option --circuit: '%s' is no head, expected 1-1 to %d-%d", name,
                        s->layers, s->heads);
    ph_status status =
        ph_circuit_create(&r.circuit, source->model, source->reading,
                          ph_scene_site(source->scene, k, layer - 1), head - 1, &io);
    if (status != PH_OK) return cli_result(status, error);
    r.at = (ph_pick){k, layer - 1, head - 1};
    list_tokens(&r, s->q_axis);
    int rc = run_circuit(&r, json);
    ph_circuit_free(r.circuit);
    return rc;
}
