/*
 * cmd_importance.c - `polyhead importance MODEL`: what every head is worth.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "commands/cmd_importance.h"
#include "framework/json.h"
#include "framework/term.h"

typedef struct importance_options {
    prune_data data;
    const char *methods, *html;
    int normalise, json, csv;
    ph_machine machine;
} importance_options;

#define AT(field) offsetof(importance_options, field)
/* clang-format off */
static const ph_option table[] = {
    PRUNE_DATA_OPTIONS(importance_options, data),
    {.name = "method", .kind = PH_OPT_TEXT, .metavar = "NAME,...", .at = AT(methods),
     .fallback = "path,token,confidence",
     .help = "token and sample (gradients) and confidence take one pass for all heads, "
             "path three, lrp_ratio and lrp_ab (layer-wise relevance) two to six; "
             "zero, mean, resampled and alone one for each; all"},
    {.name = "normalise", .kind = PH_OPT_FLAG, .at = AT(normalise),
     .help = "divide token and sample by their norm in each layer"},
    {.name = "csv", .kind = PH_OPT_FLAG, .at = AT(csv), .group = "How",
     .help = "every number as CSV"},
    {.name = "json", .kind = PH_OPT_FLAG, .at = AT(json),
     .help = "every number and its definition as one JSON object"},
    {.name = "html", .kind = PH_OPT_TEXT, .metavar = "FILE", .at = AT(html),
     .help = "also write a page: a grid of heads for each method, coloured by worth"},
    PH_MACHINE_OPTIONS(importance_options, machine),
    {.name = NULL}};
/* clang-format on */

static int choose_methods(const char *list, worths *w)
{
    if (!strcmp(list, "all")) {
        for (int i = 0; i < PH_WORTHS; i++) w->method[w->count++] = (ph_worth)i;
        w->all = 1;
        return EXIT_OK;
    }
    for (const char *at = list; *at;) {
        size_t length = strcspn(at, ",");
        if (w->count == PH_WORTHS) return cli_fail(EXIT_USAGE, "a method stands twice");
        int rc = prune_method(at, length, &w->method[w->count++]);
        if (rc) return rc;
        at += length + (at[length] == ',');
    }
    return EXIT_OK;
}

static int has_layered(const worths *w)
{
    int count = 0;
    for (int i = 0; i < w->count; i++) count += prune_layered(w->method[i]);
    return count > 0;
}

/* Whether every method takes such a model, before anything is read or measured. Of all
   methods, those of relevance are the last, and not for every variant. */
static int check_methods(const prune_input *p, worths *w)
{
    for (int i = 0; i < w->count; i++) {
        ph_status status = ph_worth_check(p->in.m, w->method[i]);
        if (status == PH_OK) continue;
        if (!w->all || status != PH_UNSUPPORTED)
            return cli_fail_status(status, p->in.ctx);
        fprintf(stderr, "polyhead: left out: %s\n", ph_error(p->in.ctx));
        w->count = i;
    }
    return EXIT_OK;
}

static int measure(prune_input *p, ph_eval *eval, int normalise, worths *w)
{
    w->heads = ph_model_heads(p->in.m), w->texts = ph_eval_texts(eval);
    w->place = calloc((size_t)w->heads + 1, sizeof *w->place);
    if (!w->place) return cli_fail(EXIT_MEMORY, "out of memory");
    for (int h = 0; h < w->heads; h++) ph_model_head(p->in.m, h, &w->place[h]);
    ph_status status = ph_eval_loss(eval, NULL, &w->whole);
    for (int i = 0; i < w->count && status == PH_OK; i++) {
        w->value[i] = calloc((size_t)w->heads + 1, sizeof **w->value);
        if (!w->value[i]) return cli_fail(EXIT_MEMORY, "out of memory");
        term_progress((double)i / w->count, ph_worth_name(w->method[i]));
        ph_worth method = w->method[i];
        status = ph_importance(eval, method, NULL, w->value[i]);
        if (status == PH_OK && normalise && prune_layered(method))
            ph_importance_normalise(p->in.m, w->value[i]);
    }
    term_progress_end();
    return status == PH_OK ? EXIT_OK : cli_fail_status(status, p->in.ctx);
}

/* ---- agreement of ranks ---- */

/* The rank of head h; equal values share the mean of their ranks. */
static double rank_of(const ph_estimate *v, int heads, int h)
{
    double below = 0, equal = 0;
    for (int i = 0; i < heads; i++)
        below += v[i].value < v[h].value, equal += v[i].value == v[h].value;
    return below + (equal + 1) / 2;
}

/* Spearman: the correlation of ranks; 0 where one of them ranks nothing. */
static double agreement(const ph_estimate *a, const ph_estimate *b, int heads)
{
    double mean = (heads + 1) / 2.0, both = 0, first = 0, second = 0;
    for (int h = 0; h < heads; h++) {
        double x = rank_of(a, heads, h) - mean, y = rank_of(b, heads, h) - mean;
        both += x * y, first += x * x, second += y * y;
    }
    return first > 0 && second > 0 ? both / sqrt(first * second) : 0;
}

/* ---- printing ---- */

static void print_agreement(const worths *w)
{
    if (w->count < 2) return;
    printf("\n%s%-16s", term_on(stdout, TERM_BOLD), "rank correlation");
    for (int i = 0; i < w->count; i++) printf("%12s", ph_worth_name(w->method[i]));
    puts(term_on(stdout, TERM_PLAIN));
    for (int i = 0; i < w->count; i++) {
        printf("%-16s", ph_worth_name(w->method[i]));
        for (int k = 0; k < w->count; k++)
            printf("%12.2f", agreement(w->value[i], w->value[k], w->heads));
        putchar('\n');
    }
}

static void print_table(const worths *w)
{
    printf("loss %.4f +- %.4f, accuracy %.4f, %lld tokens of %d texts\n\n",
           w->whole.loss.value, w->whole.loss.error, w->whole.accuracy.value,
           (long long)w->whole.tokens, w->texts);
    printf("%s%-16s", term_on(stdout, TERM_BOLD), "head");
    for (int i = 0; i < w->count; i++) printf("%20s", ph_worth_name(w->method[i]));
    puts(term_on(stdout, TERM_PLAIN));
    for (int h = 0; h < w->heads; h++) {
        char name[32];
        const char *stack;
        int layer = prune_layer(&w->place[h], &stack);
        snprintf(name, sizeof name, "%d-%d", layer, w->place[h].head + 1);
        printf("%-9s%-7s", stack, name);
        for (int i = 0; i < w->count; i++)
            printf("%11.4g +-%7.2g", w->value[i][h].value, w->value[i][h].error);
        putchar('\n');
    }
    print_agreement(w);
    putchar('\n');
    for (int i = 0; i < w->count; i++)
        printf("%-11s %s\n", ph_worth_name(w->method[i]), ph_worth_help(w->method[i]));
}

static void print_csv(const worths *w)
{
    printf("site,head");
    for (int i = 0; i < w->count; i++)
        printf(",%s,%s_error", ph_worth_name(w->method[i]), ph_worth_name(w->method[i]));
    putchar('\n');
    for (int h = 0; h < w->heads; h++) {
        printf("%s,%d", w->place[h].site, w->place[h].head);
        for (int i = 0; i < w->count; i++)
            printf(",%.9g,%.9g", w->value[i][h].value, w->value[i][h].error);
        putchar('\n');
    }
}

static void print_methods(ph_json_writer *j, const worths *w)
{
    ph_json_begin_array(j, "methods");
    for (int i = 0; i < w->count; i++) {
        ph_json_begin_object(j, NULL);
        ph_json_string(j, "name", ph_worth_name(w->method[i]));
        ph_json_string(j, "help", ph_worth_help(w->method[i]));
        ph_json_begin_object(j, "rank_correlation");
        for (int k = 0; k < w->count; k++)
            ph_json_double(j, ph_worth_name(w->method[k]),
                           agreement(w->value[i], w->value[k], w->heads));
        ph_json_end(j);
        ph_json_end(j);
    }
    ph_json_end(j);
}

static void print_json(const worths *w)
{
    ph_json_writer j = json_begin("polyhead.importance/1");
    ph_json_integer(&j, "texts", w->texts);
    ph_json_integer(&j, "tokens", w->whole.tokens);
    ph_json_double(&j, "loss", w->whole.loss.value);
    ph_json_double(&j, "loss_error", w->whole.loss.error);
    ph_json_double(&j, "accuracy", w->whole.accuracy.value);
    print_methods(&j, w);
    ph_json_begin_array(&j, "heads");
    for (int h = 0; h < w->heads; h++) {
        ph_json_begin_object(&j, NULL);
        ph_json_string(&j, "site", w->place[h].site);
        ph_json_integer(&j, "head", w->place[h].head);
        for (int i = 0; i < w->count; i++) {
            ph_json_begin_object(&j, ph_worth_name(w->method[i]));
            ph_json_double(&j, "value", w->value[i][h].value);
            ph_json_double(&j, "error", w->value[i][h].error);
            ph_json_end(&j);
        }
        ph_json_end(&j);
    }
    json_end(&j);
}

/* ---- the command ---- */

static int importance(const void *chosen, int count, const char *const *words)
{
    const importance_options *o = chosen;
    prune_input p = {0};
    ph_eval *eval = NULL;
    worths w = {0};
    (void)count;
    if (o->csv && o->json)
        return cli_fail(EXIT_USAGE, "--csv and --json exclude each other");
    int rc = choose_methods(o->methods, &w);
    if (!rc && o->normalise && !has_layered(&w))
        rc = cli_fail(EXIT_USAGE, "--normalise needs --method token or sample");
    if (!rc) rc = prune_open(&p, words[0], &o->data, 1, &o->machine);
    if (!rc) rc = check_methods(&p, &w);
    if (!rc) rc = prune_read(&p);
    if (!rc) rc = prune_eval(&p, p.in.m, PRUNE_ALL, &eval);
    if (!rc) rc = measure(&p, eval, o->normalise, &w);
    if (!rc && o->html) rc = importance_page(&w, o->html);
    if (!rc) (o->json ? print_json : o->csv ? print_csv : print_table)(&w);
    for (int i = 0; i < w.count; i++) free(w.value[i]);
    free(w.place);
    ph_eval_free(eval);
    prune_close(&p);
    return rc;
}

static const char *const examples[] = {
    "polyhead importance runs/dates --recipe dates",
    "gradient importance of every head on samples it has not seen",
    "polyhead importance all-MiniLM-L6-v2 --data sentences.txt --method all --csv",
    "all measures of every head of a sentence encoder, with their errors",
    "polyhead importance runs/dates --recipe dates --method zero,alone --html worth.html",
    "grids of heads, coloured by what the loss grows without each, and with it alone",
    NULL};

const ph_command command_importance = {
    .name = "importance",
    .summary = "what every head is worth",
    .usage = "MODEL --data FILE | --recipe NAME [options]",
    .about =
        "How much the loss depends on each head: by its gradient, by leaving the head "
        "out, by leaving all others of its layer out; and how much of the answers passes "
        "through it (layer-wise relevance). The loss is that of next tokens "
        "(decoder), of the target (encoder-decoder), of masked tokens, of the class or "
        "of links; sentence encoders, which have no labels, are measured by the distance "
        "to their own vectors (docs/SURGERY.md). Numbers are means over texts with their "
        "standard errors.",
    .examples = examples,
    .options = table,
    .size = sizeof(importance_options),
    .word = "MODEL",
    .fewest_words = 1,
    .most_words = 1,
    .run = importance};
