/*
 * panel.c - matrices side by side and numbers for people; see panel.h.
 */
#include <math.h>
#include <string.h>

#include "framework/panel.h"
#include "polyhead_picture.h"

enum { MOST_DECIMALS = 4, INDENT = 3, GAP = 3 };

/* The fewest decimals that show every number of the panel, up to the limit. */
static int decimals_of(const panel *p)
{
    for (int decimals = 1; decimals < MOST_DECIMALS; decimals++) {
        double unit = pow(10, decimals);
        int enough = 1;
        for (int i = 0; i < p->rows * p->cols; i++)
            enough &= fabs(p->data[i] * unit - round(p->data[i] * unit)) < 1e-4 * unit;
        if (enough) return decimals;
    }
    return MOST_DECIMALS;
}

/* A number without the minus of a zero that only rounding made negative. */
static int cell(char *buffer, size_t size, float value, int decimals)
{
    double half = 0.5 * pow(10, -decimals);
    return snprintf(buffer, size, "%.*f", decimals,
                    fabsf(value) < half ? 0.0 : (double)value);
}

static int cell_width(const panel *p, int decimals)
{
    char buffer[64];
    int width = 0;
    for (int i = 0; i < p->rows * p->cols; i++) {
        int n = cell(buffer, sizeof buffer, p->data[i], decimals);
        width = n > width ? n : width;
    }
    return width;
}

/* Bracket, a blank and a number per column, blank, bracket. */
static int panel_width(const panel *p)
{
    int numbers = p->cols * (cell_width(p, decimals_of(p)) + 2) + 2;
    int title = ph_text_columns(p->title);
    return title > numbers ? title : numbers;
}

static int print_row(FILE *out, const panel *p, int row)
{
    char buffer[64];
    int decimals = decimals_of(p), width = cell_width(p, decimals), used = 2;
    if (row >= p->rows) return 0;
    fprintf(out, "[%s", term_on(out, p->style));
    for (int c = 0; c < p->cols; c++) {
        cell(buffer, sizeof buffer, p->data[row * p->cols + c], decimals);
        used += fprintf(out, "%s%*s", c ? "  " : " ", width, buffer);
    }
    fprintf(out, "%s ]", term_on(out, TERM_PLAIN));
    return used + 1;
}

void panel_row(FILE *out, const panel *panels, int count)
{
    int rows = 0;
    for (int i = 0; i < count; i++) rows = panels[i].rows > rows ? panels[i].rows : rows;
    for (int row = -1; row < rows; row++) {
        int pad =
            INDENT; /* printed only before something, so that no line ends in blanks */
        for (int i = 0; i < count; i++) {
            const panel *p = &panels[i];
            int used = 0;
            if (row < p->rows) fprintf(out, "%*s", pad, "");
            if (row < 0) {
                fprintf(out, "%s%s%s", term_on(out, p->style), p->title,
                        term_on(out, TERM_PLAIN));
                used = ph_text_columns(p->title);
            } else {
                used = print_row(out, p, row);
            }
            pad = (row < p->rows ? 0 : pad) + panel_width(p) - used + GAP;
        }
        fputc('\n', out);
    }
    fputc('\n', out);
}

const char *panel_count(double value, const char *unit, char *buffer, size_t size)
{
    static const char *const steps[] = {"", "K", "M", "G", "T", "P", "E"};
    int step = 0;
    double scaled = value;
    for (; fabs(scaled) >= 999.5 && step < 6; step++) scaled /= 1000;
    int whole = step == 0 && value == floor(value);
    int decimals = whole || fabs(scaled) >= 99.95 ? 0 : fabs(scaled) >= 9.995 ? 1 : 2;
    const char *blank = *steps[step] || *unit ? " " : "";
    snprintf(buffer, size, "%.*f%s%s%s", decimals, scaled, blank, steps[step], unit);
    return buffer;
}

const char *panel_time(double seconds, char *buffer, size_t size)
{
    static const struct {
        double below, factor;
        const char *unit;
    } steps[] = {{1e-6, 1e9, "ns"}, {1e-3, 1e6, "us"}, {1, 1e3, "ms"}, {1e300, 1, "s"}};
    int i = 0;
    while (seconds >= steps[i].below && i < 3) i++;
    double value = seconds * steps[i].factor;
    snprintf(buffer, size, "%.*f %s",
             value >= 99.95   ? 0
             : value >= 9.995 ? 1
                              : 2,
             value, steps[i].unit);
    return buffer;
}
