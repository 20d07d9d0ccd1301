/*
 * prune_report.c - what `polyhead prune` found: tables, JSON, the curve.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "commands/cmd_plot.h"
#include "commands/cmd_prune.h"
#include "framework/json.h"
#include "framework/term.h"

enum { POINTS = 11, RANDOM_ORDERS = 5 };

static int count_removed(const pruning *x)
{
    int count = 0;
    for (int h = 0; h < x->heads; h++) count += x->removed[h];
    return count;
}

/* ---- the table ---- */

static void print_line(const char *name, const ph_estimate *values, int stages)
{
    printf("%-14s", name);
    for (int i = 0; i < stages; i++)
        printf("%11.4f +-%7.4f", values[i].value, values[i].error);
    putchar('\n');
}

static void print_sites(const pruning *x)
{
    printf("\n%s%-12s heads that are left%s\n", term_on(stdout, TERM_BOLD), "layer",
           term_on(stdout, TERM_PLAIN));
    for (int h = 0; h < x->heads;) {
        const char *site = x->place[h].site, *stack;
        int left = 0, all = 0, layer = prune_layer(&x->place[h], &stack);
        printf("%-8s %3d ", stack, layer);
        for (; h < x->heads && !strcmp(x->place[h].site, site); h++, all++) {
            if (x->removed[h]) continue;
            printf(" %d", x->place[h].head + 1);
            left++;
        }
        printf("%s (of %d)\n", left ? "" : " none", all);
    }
}

static void print_losses(const pruning *x)
{
    static const char *const names[] = {"whole", "removed", "tuned"};
    int stages = x->o->tune ? 3 : 2;
    ph_estimate loss[3], accuracy[3], exact[3];
    for (int i = 0; i < stages; i++)
        loss[i] = x->result[i].loss, accuracy[i] = x->result[i].accuracy,
        exact[i] = x->result[i].exact;
    printf("%s%-14s", term_on(stdout, TERM_BOLD), "");
    for (int i = 0; i < stages; i++) printf("%20s", names[i]);
    puts(term_on(stdout, TERM_PLAIN));
    print_line("loss", loss, stages);
    print_line(x->whole_test ? "cosine" : "accuracy", accuracy, stages);
    if (!x->whole_test) print_line("exact match", exact, stages);
}

void prune_print(const pruning *x)
{
    printf("%-14s%d of %d are left\n", "heads", x->heads - count_removed(x), x->heads);
    printf("%-14s%lld, %.3f of %lld\n", "parameters", (long long)x->parameters[1],
           (double)x->parameters[1] / (double)x->parameters[0],
           (long long)x->parameters[0]);
    if (prune_has_texts(x)) print_losses(x);
    if (x->o->gates)
        printf("%-14s%d gates of %d ended between open and closed\n", "gates",
               x->undecided, x->heads);
    print_sites(x);
}

/* ---- JSON ---- */

static void stage_json(ph_json_writer *j, const char *name, const ph_result *r)
{
    ph_json_begin_object(j, name);
    ph_json_double(j, "loss", r->loss.value);
    ph_json_double(j, "loss_error", r->loss.error);
    ph_json_double(j, "accuracy", r->accuracy.value);
    ph_json_double(j, "exact_match", r->exact.value);
    ph_json_end(j);
}

void prune_print_json(const pruning *x)
{
    ph_json_writer j = json_begin("polyhead.prune/1");
    ph_json_integer(&j, "heads", x->heads);
    ph_json_integer(&j, "removed", count_removed(x));
    ph_json_integer(&j, "parameters", x->parameters[0]);
    ph_json_integer(&j, "parameters_left", x->parameters[1]);
    if (prune_has_texts(x)) {
        stage_json(&j, "whole", &x->result[PRUNE_WHOLE]);
        stage_json(&j, "pruned", &x->result[PRUNE_REMOVED]);
    }
    if (x->o->tune) stage_json(&j, "tuned", &x->result[PRUNE_TUNED]);
    if (x->o->gates) ph_json_integer(&j, "undecided_gates", x->undecided);
    ph_json_begin_array(&j, "removed_heads");
    for (int h = 0; h < x->heads; h++) {
        if (!x->removed[h]) continue;
        ph_json_begin_object(&j, NULL);
        ph_json_string(&j, "site", x->place[h].site);
        ph_json_integer(&j, "head", x->place[h].head);
        ph_json_end(&j);
    }
    json_end(&j);
}

/* ---- the curve ---- */

/* Loss and accuracy at POINTS numbers of heads that are left, from all to none. */
typedef struct prune_points {
    double left[POINTS], loss[POINTS], accuracy[POINTS];
} prune_points;

static int follow(pruning *x, const int *order, prune_points *to)
{
    uint8_t *off = calloc((size_t)x->heads + 1, 1);
    int rc = off ? EXIT_OK : cli_fail(EXIT_MEMORY, "out of memory"), gone = 0;
    for (int i = 0; i < POINTS && !rc; i++) {
        ph_result result = {0};
        int wanted = (int)((int64_t)x->heads * i / (POINTS - 1));
        for (; gone < wanted; gone++) off[order[gone]] = PH_HEAD_ZERO;
        ph_status status = ph_eval_loss(x->test, off, &result);
        if (status != PH_OK) rc = cli_fail_status(status, x->p.in.ctx);
        to->left[i] = x->heads - gone;
        to->loss[i] = result.loss.value, to->accuracy[i] = result.accuracy.value;
    }
    free(off);
    return rc;
}

/* Mean and range of the random orders. */
typedef struct prune_range {
    double mean[POINTS], low[POINTS], high[POINTS];
} prune_range;

static void spread(const prune_points *runs, int accuracy, prune_range *to)
{
    for (int i = 0; i < POINTS; i++) {
        to->mean[i] = 0, to->low[i] = INFINITY, to->high[i] = -INFINITY;
        for (int r = 0; r < RANDOM_ORDERS; r++) {
            double value = accuracy ? runs[r].accuracy[i] : runs[r].loss[i];
            to->mean[i] += value / RANDOM_ORDERS;
            to->low[i] = fmin(to->low[i], value), to->high[i] = fmax(to->high[i], value);
        }
    }
}

static int write_csv(const prune_points *own, const prune_range *loss,
                     const prune_range *accuracy, const char *path)
{
    FILE *out = fopen(path, "wx");
    if (!out)
        return cli_fail(EXIT_IO, "'%s' cannot be made, or is there already", path);
    fputs("heads,loss,accuracy,random_loss,random_accuracy\n", out);
    for (int i = 0; i < POINTS; i++)
        fprintf(out, "%.0f,%.9g,%.9g,%.9g,%.9g\n", own->left[i], own->loss[i],
                own->accuracy[i], loss->mean[i], accuracy->mean[i]);
    if (fclose(out) == 0) return EXIT_OK;
    int reason = errno;
    remove(path); /* fopen has made it: nothing half written stays */
    return cli_fail(EXIT_IO, "cannot write '%s': %s", path, strerror(reason));
}

static int draw(const pruning *x, const prune_points *own, const prune_range *loss,
                const prune_range *accuracy)
{
    const char *titles[] = {"Loss against heads that are left",
                            x->whole_test ? "Cosine against heads that are left"
                                          : "Accuracy against heads that are left",
                            NULL};
    const char *name = x->o->method;
    const plot_line lines[] = {
        {name, 0, POINTS, own->left, own->loss, NULL, NULL},
        {"random orders", 0, POINTS, own->left, loss->mean, loss->low, loss->high},
        {name, 1, POINTS, own->left, own->accuracy, NULL, NULL},
        {"random orders", 1, POINTS, own->left, accuracy->mean, accuracy->low,
         accuracy->high}};
    return plot_lines("Pruning", titles, lines, 4, x->o->curve);
}

int prune_curve(pruning *x)
{
    prune_points own, runs[RANDOM_ORDERS];
    prune_range loss, accuracy;
    int *order = calloc((size_t)x->heads + 1, sizeof *order);
    int rc = order ? follow(x, x->order, &own) : cli_fail(EXIT_MEMORY, "out of memory");
    for (int r = 0; r < RANDOM_ORDERS && !rc; r++) {
        const ph_order how = {.random = 1,
                              .groups = (ph_order_unit)x->o->structure,
                              .keep = (int)x->o->keep,
                              .seed = (uint64_t)x->o->seed + (uint64_t)r};
        ph_status status = ph_importance_order(x->score, &how, order);
        if (status != PH_OK) rc = cli_fail_status(status, x->p.in.ctx);
        if (!rc) rc = follow(x, order, &runs[r]);
    }
    free(order);
    if (rc) return rc;
    spread(runs, 0, &loss);
    spread(runs, 1, &accuracy);
    size_t length = strlen(x->o->curve);
    int csv = length > 4 && !strcmp(x->o->curve + length - 4, ".csv");
    return csv ? write_csv(&own, &loss, &accuracy, x->o->curve)
               : draw(x, &own, &loss, &accuracy);
}
