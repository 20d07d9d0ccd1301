/*
 * importance_page.c - `polyhead importance --html`: grids of heads, coloured by worth.
 */
#include <math.h>
#include <string.h>

#include "commands/cmd_importance.h"
#include "commands/cmd_plot.h"

/* Blue is worth, orange is harm: the loss falls without the head. Opacity is the value
   over the largest of the method. */
static void draw_cell(FILE *out, const ph_head_place *place, const ph_estimate *v,
                      double largest)
{
    double share = largest > 0 ? fabs(v->value) / largest : 0;
    const char *stack;
    int layer = prune_layer(place, &stack);
    fprintf(out,
            "<td style=\"background:rgba(%s,%.3f)\" "
            "title=\"%s %d-%d: %.6g +- %.2g\">%.3g",
            v->value < 0 ? "213,94,0" : "0,114,178", 0.75 * share, stack, layer,
            place->head + 1, v->value, v->error, v->value);
}

/* The row of the site that starts at head h; returns the first head of the next. */
static int draw_site(FILE *out, const ph_head_place *place, const ph_estimate *values,
                     int heads, int h, double largest)
{
    const char *site = place[h].site, *stack;
    int layer = prune_layer(&place[h], &stack);
    fprintf(out, "<tr><th>%s %d", stack, layer);
    for (int column = 0; h < heads && !strcmp(place[h].site, site); column++) {
        if (place[h].head == column)
            draw_cell(out, &place[h], &values[h], largest), h++;
        else
            fputs("<td>", out); /* removed before */
    }
    fputc('\n', out);
    return h;
}

void importance_grid(FILE *out, const ph_head_place *place, const ph_estimate *values,
                     int heads)
{
    double largest = 0;
    int columns = 0;
    for (int h = 0; h < heads; h++) {
        largest = fmax(largest, fabs(values[h].value));
        if (place[h].head >= columns) columns = place[h].head + 1;
    }
    fputs("<table><tr><th>layer", out);
    for (int i = 0; i < columns; i++) fprintf(out, "<th>%d", i + 1);
    fputc('\n', out);
    for (int h = 0; h < heads;) h = draw_site(out, place, values, heads, h, largest);
    fputs("</table>\n", out);
}

static void draw_grids(FILE *out, const void *what)
{
    const worths *w = what;
    fputs("<style>td{border:1px solid #8884;padding:3px 6px;text-align:right}</style>\n",
          out);
    fprintf(out,
            "<p>Loss %.4f +- %.4f, accuracy %.4f on %d texts. Rows are layers, columns "
            "heads; blue is worth, orange below 0.</p>\n",
            w->whole.loss.value, w->whole.loss.error, w->whole.accuracy.value, w->texts);
    for (int i = 0; i < w->count; i++) {
        fprintf(out, "<h2>%s</h2>\n<p>%s</p>\n", ph_worth_name(w->method[i]),
                ph_worth_help(w->method[i]));
        importance_grid(out, w->place, w->value[i], w->heads);
    }
}

int importance_page(const worths *w, const char *path)
{
    return plot_write(path, "What heads are worth", draw_grids, w);
}
