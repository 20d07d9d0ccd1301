/*
 * terminal.c - a report on the terminal: headline, grid of heads, findings, and for a
 * single head its measures. The heat maps are in terminal_map.c.
 *
 * Three output modes: 256 colours, UTF-8 shades without colour, ASCII. No line is wider
 * than the screen, none ends in blanks.
 */
#include "view/terminal.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/format.h"
#include "io/io.h"
#include "view/page.h"
#include "view/palette.h"
#include "view/report_heads.h"
#include "view/text.h"

enum {
    USUAL_WIDTH = 80,
    LEAST_WIDTH = 40,
    WIDE_ENOUGH = 64, /* for the rule behind a role */
    ROLE_LINES = 3,   /* for the heads of one role by one measure */
    INDENT = 6,       /* where the name of a role begins, */
    RULE = 26,        /* its rule, */
    HEADS = 44,       /* its heads, */
    NEXT_LINE = 24,   /* and those of the second line */
    MAX_MAPS = 4
};

/* ---- writing ---- */

static void write_bytes(const ph_screen *screen, const char *bytes, size_t count)
{
    if (count > 0) screen->how->write(screen->how->user, bytes, count);
}

void ph_put(const ph_screen *screen, const char *text)
{
    static const char blanks[] = "                ";
    while (*text) {
        size_t visible = strcspn(text, " ");
        if (*text == '\n') *screen->blanks = 0;
        for (int n; visible > 0 && *screen->blanks > 0; *screen->blanks -= n) {
            n = *screen->blanks < 16 ? *screen->blanks : 16;
            write_bytes(screen, blanks, (size_t)n);
        }
        write_bytes(screen, text, visible);
        text += visible;
        *screen->blanks += *text == ' ';
        text += *text == ' ';
    }
}

void ph_putf(const ph_screen *screen, const char *format, ...)
{
    char text[512];
    va_list list;
    va_start(list, format);
    ph_format_list(text, sizeof text, format, list);
    va_end(list);
    ph_put(screen, text);
}

void ph_put_blanks(const ph_screen *screen, int count)
{
    if (count > 0) *screen->blanks += count;
}

void ph_put_ink(const ph_screen *screen, ph_ink ink)
{
    static const char *const codes[] = {
        [PH_INK_PLAIN] = "\033[0m", [PH_INK_BOLD] = "\033[1m", [PH_INK_DIM] = "\033[2m"};
    if (screen->how->colors) ph_put(screen, codes[ink]);
}

void ph_put_word(const ph_screen *screen, const char *word, int columns, int right)
{
    char clean[PH_WORD_BYTES], fitted[2 * PH_WORD_BYTES + 8];
    if (columns > PH_WORD_BYTES) columns = PH_WORD_BYTES;
    ph_text_clean(word, screen->how->ascii, clean, sizeof clean);
    ph_text_fit(clean, columns, screen->how->ascii, right, fitted, sizeof fitted);
    ph_put(screen, fitted);
}

/* A title, made safe and cut to the screen. */
static void put_bold(const ph_screen *screen, const char *title)
{
    char clean[PH_WORD_BYTES];
    size_t bytes =
        (size_t)screen->width < sizeof clean ? (size_t)screen->width : sizeof clean;
    ph_text_clean(title, screen->how->ascii, clean, bytes);
    ph_put_ink(screen, PH_INK_BOLD);
    ph_put(screen, clean);
    ph_put_ink(screen, PH_INK_PLAIN);
}

/* Text wrapped at the screen's width; further lines are indented. */
static void put_wrapped(const ph_screen *screen, const char *text, int column, int indent)
{
    char one[PH_WORD_BYTES];
    int fresh = 1;
    while (*text) {
        size_t length = strcspn(text, " ");
        snprintf(one, sizeof one, "%.*s", (int)length, text);
        int columns = ph_text_columns(one);
        if (!fresh && column + 1 + columns > screen->width) {
            ph_put(screen, "\n");
            ph_put_blanks(screen, indent);
            column = indent;
            fresh = 1;
        }
        ph_put(screen, fresh ? "" : " ");
        ph_put(screen, one);
        column += columns + !fresh;
        fresh = 0;
        text += length + (text[length] == ' ');
    }
    ph_put(screen, "\n");
}

/* ---- roles and names ---- */

void ph_put_role(const ph_screen *screen, int role, int wide)
{
    const ph_report *report = screen->report;
    char glyph = role < report->role_count ? report->roles[role].glyph : '.';
    const char *pad = wide ? " " : "";
    static const char *const bars[] = {"", "4;", "53;", "4;53;"};
    if (screen->how->colors && role > 0)
        ph_putf(screen, "\033[1;%s38;5;16;48;5;%dm%s%c%s\033[0m",
                bars[ph_role_bars(role)], ph_role_color(role)->terminal, pad, glyph, pad);
    else if (role == 0 && !screen->how->ascii)
        ph_putf(screen, "%s\xc2\xb7%s", pad, pad);
    else
        ph_putf(screen, "%s%c%s", pad, glyph, pad);
}

const char *ph_pick_name(const ph_report *report, const ph_pick *pick, char text[64])
{
    const char *stack = report->stacks[pick->stack].name;
    int several = report->stack_count > 1 && stack;
    snprintf(text, 64, "%.40s%s%d-%d", several ? stack : "", several ? " " : "",
             pick->layer + 1, pick->head + 1);
    return text;
}

/* ---- headline ---- */

/* " · 14 tokens · 4 layers × 8 heads" */
static void describe_sizes(const ph_screen *screen, char *text, size_t size)
{
    const ph_report *report = screen->report;
    const char *dot = screen->how->ascii ? "," : " \xc2\xb7";
    const char *times = screen->how->ascii ? "x" : "\xc3\x97";
    size_t used = 0;
    text[0] = 0;
    for (int a = 0; a < report->axis_count && used < size; a++) {
        const ph_axis *axis = &report->axes[a];
        int alone = report->axis_count == 1;
        used += (size_t)snprintf(text + used, size - used, "%s %d %.20s%s", dot,
                                 axis->count, alone ? "token" : axis->name,
                                 alone && axis->count != 1 ? "s" : "");
    }
    const ph_stack *stack = report->stacks;
    if (report->stack_count == 1 && used < size)
        snprintf(text + used, size - used, "%s %d layer%s %s %d head%s", dot,
                 stack->layers, stack->layers == 1 ? "" : "s", times, stack->heads,
                 stack->heads == 1 ? "" : "s");
}

static void put_headline(const ph_screen *screen)
{
    const ph_report *report = screen->report;
    char title[PH_WORD_BYTES], sizes[512], text[2 * PH_WORD_BYTES];
    size_t bytes =
        (size_t)screen->width < sizeof text ? (size_t)screen->width : sizeof text;
    size_t title_bytes = bytes < 61 ? bytes : 61;
    ph_text_clean(report->title ? report->title : "", screen->how->ascii, title,
                  title_bytes);
    describe_sizes(screen, sizes, sizeof sizes);
    put_bold(screen, title);
    put_wrapped(screen, sizes, ph_text_columns(title), 2);
    if (!report->text || !*report->text) return;
    ph_text_clean(report->text, screen->how->ascii, text, bytes);
    ph_put_ink(screen, PH_INK_DIM);
    ph_put(screen, text);
    ph_put_ink(screen, PH_INK_PLAIN);
    ph_put(screen, "\n");
}

/* ---- the grid ---- */

/* Heads of one block of columns, with their indices above. */
static void put_grid_block(const ph_screen *screen, int index, int first, int count,
                           int cell)
{
    const ph_stack *stack = &screen->report->stacks[index];
    ph_put_ink(screen, PH_INK_DIM);
    ph_put(screen, "      head ");
    for (int h = first; h < first + count; h++) {
        if (cell == 1)
            ph_putf(screen, "%s", (h + 1) % 10 ? " " : "'");
        else
            ph_putf(screen, "%*d%s", cell - 1, h + 1, h + 1 < 100 ? " " : "");
    }
    ph_put_ink(screen, PH_INK_PLAIN);
    ph_put(screen, "\n");
    for (int l = 0; l < stack->layers; l++) {
        ph_put_ink(screen, PH_INK_DIM);
        ph_putf(screen, "%s %3d  ", l ? "     " : "layer", l + 1);
        ph_put_ink(screen, PH_INK_PLAIN);
        for (int h = first; h < first + count; h++) {
            int absent = stack->absent && stack->absent[l * stack->heads + h];
            int role = stack->role ? stack->role[l * stack->heads + h] : 0;
            if (absent)
                ph_put(screen, cell == 1 ? " " : "   ");
            else
                ph_put_role(screen, role, cell > 1);
        }
        ph_put(screen, "\n");
    }
}

static void put_grid(const ph_screen *screen, int index)
{
    const ph_stack *stack = &screen->report->stacks[index];
    int columns = screen->width - 12;
    int cell = stack->heads * 3 <= columns ? 3 : 1, at_once = columns / cell;
    ph_put(screen, "\n");
    if (screen->report->stack_count > 1 && stack->name) {
        put_bold(screen, stack->name);
        ph_put(screen, "\n");
    }
    for (int first = 0; first < stack->heads; first += at_once) {
        int left = stack->heads - first;
        put_grid_block(screen, index, first, left < at_once ? left : at_once, cell);
    }
}

/* ---- what was found ---- */

static const char *why_of(const ph_report *report, const ph_pick *pick)
{
    const ph_stack *stack = &report->stacks[pick->stack];
    const char *why =
        stack->why ? stack->why[pick->layer * stack->heads + pick->head] : NULL;
    return why ? why : "";
}

/* A parsed reason: in "prev 0.84 > 0.50" the measure is "prev", the rule "> 0.50" and the
   value "0.84". Reasons of further labels, after a comma, are left out. */
typedef struct reason {
    char measure[32], number[64], rule[32];
} reason;

static reason take_apart(const char *why)
{
    reason r = {"", "", ""};
    size_t end = strcspn(why, ","), first = strcspn(why, " ,");
    size_t compare = first + strcspn(why + first, ">,");
    snprintf(r.measure, sizeof r.measure, "%.*s", (int)first, why);
    if (compare > first + 1)
        snprintf(r.number, sizeof r.number, "%.*s", (int)(compare - first - 2),
                 why + first + 1);
    if (compare < end)
        snprintf(r.rule, sizeof r.rule, "%.*s", (int)(end - compare), why + compare);
    return r;
}

/* Measure and threshold of a label, behind its name or, where that is too wide, below it.
   Returns the column behind them. */
static int put_rule(const ph_screen *screen, int column, const reason *why)
{
    int wide = screen->width >= WIDE_ENOUGH;
    int first = wide ? RULE : INDENT, heads = wide ? HEADS : NEXT_LINE;
    char rule[80] = "";
    if (why->measure[0])
        snprintf(rule, sizeof rule, "%s %s", why->measure, why->rule);
    if (column > first && rule[0]) ph_put(screen, "\n"), column = 0;
    if (column < first) ph_put_blanks(screen, first - column), column = first;
    ph_putf(screen, "%-*s", heads > column ? heads - column : 0, rule);
    column += (int)strlen(rule);
    return column > heads ? column : heads;
}

/* The heads of one role by one measure, with their values, as many as three lines hold;
   the name of the stack precedes its first head. */
static void put_heads(const ph_screen *screen, int role, const char *measure, int column)
{
    const ph_report *report = screen->report;
    int lines = 1, shown = 0, found = 0, stack = -1;
    char name[64], clean[80], entry[160];
    for (ph_pick at = {0, 0, -1}; ph_report_next(report, &at);) {
        reason why = take_apart(why_of(report, &at));
        if (ph_report_role(report, &at) != role || strcmp(why.measure, measure)) continue;
        found++;
        ph_text_clean(ph_pick_name(report, &at, name), screen->how->ascii, clean,
                      sizeof clean);
        const char *blank = at.stack == stack ? strrchr(clean, ' ') : NULL;
        int has = why.number[0] != 0;
        snprintf(entry, sizeof entry, "  %s%s%s%s", blank ? blank + 1 : clean,
                 has ? " (" : "", why.number, has ? ")" : "");
        int columns = ph_text_columns(entry);
        int more = lines == ROLE_LINES ? 9 : 0; /* columns of "+12 more" */
        if (shown < found - 1) continue;
        if (column + columns + more > screen->width) {
            if (lines == ROLE_LINES || NEXT_LINE + columns > screen->width) continue;
            lines++;
            ph_put(screen, "\n");
            ph_put_blanks(screen, NEXT_LINE);
            column = NEXT_LINE;
        }
        ph_put(screen, entry);
        column += columns;
        stack = at.stack;
        shown++;
    }
    if (found > shown && column + 9 > screen->width)
        ph_put(screen, "\n"), ph_put_blanks(screen, NEXT_LINE);
    if (found > shown) ph_putf(screen, "  +%d more", found - shown);
    ph_put(screen, "\n");
}

/* Whether no head before this one has the role by the same measure. */
static int is_first(const ph_report *report, const ph_pick *pick, int role,
                    const char *measure)
{
    for (ph_pick at = {0, 0, -1}; ph_report_next(report, &at);) {
        if (at.stack == pick->stack && at.layer == pick->layer && at.head == pick->head)
            break;
        if (ph_report_role(report, &at) == role &&
            !strcmp(take_apart(why_of(report, &at)).measure, measure))
            return 0;
    }
    return 1;
}

/* Letter and name of a role, then its heads, those by one measure together: one that a
   head has without the first token is another one. Returns how many there are. */
static int put_role_lines(const ph_screen *screen, int role)
{
    const ph_report *report = screen->report;
    int found = 0, column = 0;
    for (ph_pick at = {0, 0, -1}; ph_report_next(report, &at);) {
        if (ph_report_role(report, &at) != role) continue;
        reason why = take_apart(why_of(report, &at));
        if (found++ == 0) {
            char name[32];
            column = INDENT + snprintf(name, sizeof name, "%-18.24s",
                                       report->roles[role].name);
            ph_put(screen, "  ");
            ph_put_role(screen, role, 1);
            ph_putf(screen, " %s", name);
        }
        if (!is_first(report, &at, role, why.measure)) continue;
        put_heads(screen, role, why.measure, put_rule(screen, column, &why));
        column = 0;
    }
    return found;
}

/* Share of all weight on the first token; NaN: not known. */
static double sink_share(const ph_report *report)
{
    double sum = 0;
    int count = 0, metric = 0;
    while (metric < report->metric_count && strcmp(report->metrics[metric].key, "first"))
        metric++;
    if (metric == report->metric_count) return (double)NAN;
    for (ph_pick at = {0, 0, -1}; ph_report_next(report, &at);) {
        const float *scores = ph_report_scores(report, &at);
        if (!scores || isnan(scores[metric])) continue;
        sum += (double)scores[metric];
        count++;
    }
    return sum / count;
}

static void put_findings(const ph_screen *screen)
{
    const ph_report *report = screen->report;
    int heads = 0, labelled = 0;
    double sink = sink_share(report);
    for (ph_pick at = {0, 0, -1}; ph_report_next(report, &at);) heads++;
    if (heads == 0 || report->role_count == 0) return;
    ph_put(screen, "\n");
    for (int role = 1; role < report->role_count; role++)
        labelled += put_role_lines(screen, role);
    ph_put(screen, "  ");
    ph_put_role(screen, 0, 1);
    char line[160];
    int used = snprintf(line, sizeof line, "%d of %d heads", heads - labelled, heads);
    if (!isnan(sink))
        ph_format(line + used, sizeof line - (size_t)used,
                  "; first token: %.0f %% of all weight", 100 * sink);
    ph_putf(screen, " %-18s  ", report->roles[0].name);
    put_wrapped(screen, line, 26, 26);
}

static int has_unknown_words(const ph_report *report)
{
    for (int a = 0; a < report->axis_count; a++)
        for (int i = 0; report->axes[a].unknown && i < report->axes[a].count; i++)
            if (report->axes[a].unknown[i]) return 1;
    return 0;
}

/* The predictions of the model: "it -> animal, reference 98 %". */
static void put_outcomes(const ph_screen *screen)
{
    const ph_report *report = screen->report;
    int column = screen->width;
    int none = report->outcome_count == 0;
    if (none && !has_unknown_words(report)) return;
    ph_put(screen, "\n");
    put_bold(screen, report->outcome_title ? report->outcome_title : "outcome");
    if (none)
        ph_put(screen, "\n  no answer: too few of these words are in the vocabulary");
    for (int n = 0; n < report->outcome_count; n++) {
        char text[PH_WORD_BYTES], item[PH_WORD_BYTES + 40];
        ph_text_clean(report->outcomes[n].text, screen->how->ascii, text, 36);
        const char *relation = report->outcomes[n].relation;
        ph_format(item, sizeof item, "%s%s%.20s %.0f %%", text, relation ? ", " : "",
                  relation ? relation : "", 100 * (double)report->outcomes[n].value);
        int columns = ph_text_columns(item) + 3;
        if (column + columns > screen->width) {
            ph_put(screen, "\n  ");
            column = 2 - 3;
        } else {
            ph_put(screen, "   ");
        }
        ph_put(screen, item);
        column += columns;
    }
    ph_put(screen, "\n");
}

/* ---- the card of one head ---- */

static void put_card(const ph_screen *screen, const ph_pick *pick)
{
    const ph_report *report = screen->report;
    const float *scores = ph_report_scores(report, pick);
    if (!scores) return;
    ph_put(screen, "\n");
    for (int m = 0; m < report->metric_count; m++) {
        const ph_metric *metric = &report->metrics[m];
        char limit[16] = "";
        if (isnan(scores[m])) continue;
        float least = metric->threshold;
        int has_label =
            least > 0 && (metric->at ? scores[m] >= least : scores[m] > least);
        if (least > 0)
            ph_format(limit, sizeof limit, "%s %.2f", metric->at ? ">=" : ">",
                      (double)least);
        ph_put_ink(screen, has_label ? PH_INK_BOLD : PH_INK_PLAIN);
        ph_putf(screen, "  %-17s%7.3f  %-8s", metric->key, (double)scores[m], limit);
        ph_put_ink(screen, PH_INK_PLAIN);
        put_wrapped(screen, metric->help, 36, 36);
    }
}

/* ---- all of it ---- */

ph_status ph_terminal_write(const ph_report *report, const ph_terminal *terminal,
                            const ph_io *io)
{
    if (!report || !terminal) return ph_io_null(io, "report or terminal");
    ph_pick usual[MAX_MAPS];
    const ph_pick *picks = terminal->picks;
    int blanks = 0;
    PH_IO_CHECK_RESERVED(io, "ph_terminal", terminal->reserved);
    PH_TRY(ph_report_check(report, io));
    if (!terminal->write) return ph_io_null(io, "ph_terminal.write");
    ph_screen screen = {report, terminal, io, terminal->width, &blanks};
    if (screen.width == 0) screen.width = USUAL_WIDTH;
    if (screen.width < LEAST_WIDTH) screen.width = LEAST_WIDTH;
    put_headline(&screen);
    put_outcomes(&screen);
    for (int s = 0; s < report->stack_count; s++) put_grid(&screen, s);
    put_findings(&screen);
    int count = terminal->pick_count;
    if (count == 0) {
        count = ph_report_picks(report, usual, MAX_MAPS);
        int fit = count > 0 ? ph_maps_that_fit(&screen, usual) : 0;
        if (!report->patch_columns) count = fit < count ? fit : count;
        picks = usual;
    }
    ph_status status = report->patch_columns ? ph_put_patches(&screen, picks, count)
                                             : ph_put_maps(&screen, picks, count);
    if (status == PH_OK && terminal->pick_count == 1) put_card(&screen, picks);
    return status;
}
