/*
 * terminal_map.c - heat maps on the terminal.
 *
 * Small texts get one line per row and 1 to 3 columns per key, words on both axes: the
 * row's word at the left, the keys' words downwards above their columns. A single map
 * gets its weights printed into the cells, in per cent. Texts that do not fit are
 * max-pooled into a picture with indices on its axes.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "io/io.h"
#include "view/palette.h"
#include "view/report_heads.h"
#include "view/terminal.h"
#include "view/text.h"

enum {
    GAP = 2,         /* columns between maps */
    MAX_ROWS = 64,   /* lines of a map with words */
    MIN_SLOT = 22,   /* columns of a map and its title */
    MAX_HEADING = 9, /* lines of the words above */
    MASKED = -1      /* a cell that causality hides */
};

/* How a map is cut: `pool` rows and keys make one cell. */
typedef struct map_layout {
    int label; /* columns of the words at the left */
    int cell;  /* columns of a cell */
    int rows, keys;
    int pool_rows, pool_keys; /* 1: words on the axes */
    int lines, cells;         /* of the picture */
    int numbers;              /* 1: weights are printed */
    int heading;              /* lines of the words above */
    int slot;                 /* columns a map takes beside others, its title fits */
} map_layout;

/* ---- colours and shades ---- */

static const char *const shades[] = {"\xc2\xb7", "\xe2\x96\x91", "\xe2\x96\x92",
                                     "\xe2\x96\x93", "\xe2\x96\x88"};
static const char *const ramp[] = {".", ":", "-", "=", "+", "*", "#", "%", "@"};

static int level_of(float weight, int levels)
{
    if (!(weight > 0)) return 0; /* NaN too */
    if (weight >= 1) return levels - 1;
    return (int)(sqrtf(weight) * (float)levels);
}

static int level_count(const ph_screen *screen)
{
    if (screen->how->colors) return PH_TERMINAL_RAMP;
    return screen->how->ascii ? 9 : 5;
}

void ph_put_cell(const ph_screen *screen, float weight, int columns, const char *text)
{
    int level = level_of(weight, level_count(screen));
    if (weight < 0)
        ph_put_blanks(screen, columns);
    else if (screen->how->colors)
        ph_putf(screen, "\033[38;5;%d;48;5;%dm%*s\033[0m", level < 7 ? 255 : 16,
                ph_colors.terminal[level], columns, text ? text : "");
    else if (text)
        ph_putf(screen, "%*s", columns, text);
    else
        for (int n = 0; n < columns; n++)
            ph_put(screen, screen->how->ascii ? ramp[level] : shades[level]);
}

static void put_scale(const ph_screen *screen, int numbers)
{
    int levels = level_count(screen);
    if (numbers) ph_put(screen, "  weights in per cent\n");
    if (numbers && !screen->how->colors) return;
    ph_put(screen, "  weight 0 ");
    for (int n = 0; n < levels; n++) {
        float middle = ((float)n + 0.5f) / (float)levels;
        ph_put_cell(screen, middle * middle, 2, NULL);
    }
    float half = (float)(levels / 2) / (float)levels;
    ph_put(screen, " 1");
    if (screen->width >= 60)
        ph_putf(screen, "   (%.2f in the middle)", (double)(half * half));
    if (screen->width >= 80) ph_put(screen, "; rows look at columns");
    ph_put(screen, "\n");
}

/* ---- layout ---- */

static const ph_axis *rows_of(const ph_screen *screen, const ph_pick *pick)
{
    return &screen->report->axes[screen->report->stacks[pick->stack].q_axis];
}

static const ph_axis *keys_of(const ph_screen *screen, const ph_pick *pick)
{
    return &screen->report->axes[screen->report->stacks[pick->stack].k_axis];
}

static int word_columns(const ph_screen *screen, const char *word)
{
    char clean[PH_WORD_BYTES];
    ph_text_clean(word, screen->how->ascii, clean, sizeof clean);
    return ph_text_columns(clean);
}

/* Clusters of the longest word, up to the limit. */
static int longest(const ph_screen *screen, const ph_axis *axis, int limit)
{
    int most = 1;
    for (int n = 0; n < axis->count && most < limit; n++) {
        char clean[PH_WORD_BYTES];
        int columns, clusters = 0;
        ph_text_clean(axis->tokens[n], screen->how->ascii, clean, sizeof clean);
        const char *at = clean;
        for (size_t k; (k = ph_text_cluster(at, &columns)) > 0; at += k) clusters++;
        most = clusters > most ? clusters : most;
    }
    return most < limit ? most : limit;
}

static int is_unknown(const ph_axis *axis, int n)
{
    return axis->unknown && axis->unknown[n];
}

/* Columns of the widest word, up to the limit; an unknown one has a mark behind it. */
static int widest(const ph_screen *screen, const ph_axis *axis, int limit)
{
    int most = 1;
    for (int n = 0; n < axis->count && most < limit; n++) {
        int columns = word_columns(screen, axis->tokens[n]) + is_unknown(axis, n);
        most = columns > most ? columns : most;
    }
    return most < limit ? most : limit;
}

/* 1: some word holds a character of two columns. */
static int has_wide(const ph_screen *screen, const ph_axis *axis)
{
    char clean[PH_WORD_BYTES];
    for (int n = 0; n < axis->count; n++) {
        int columns;
        ph_text_clean(axis->tokens[n], screen->how->ascii, clean, sizeof clean);
        const char *at = clean;
        for (size_t k; (k = ph_text_cluster(at, &columns)) > 0; at += k)
            if (columns == 2) return 1;
    }
    return 0;
}

static int ceil_div(int a, int b)
{
    return (a + b - 1) / b;
}

/* A picture of at most the screen's width; a character is about twice as high as wide. */
static void layout_pooled(const ph_screen *screen, map_layout *plan)
{
    int columns = screen->width - plan->label - 2;
    plan->cell = 1;
    plan->pool_keys = ceil_div(plan->keys, columns);
    plan->cells = ceil_div(plan->keys, plan->pool_keys);
    int max_lines = columns / 2;
    plan->pool_rows = ceil_div(plan->rows, max_lines);
    if (plan->pool_rows < 2 * plan->pool_keys && plan->rows > 24)
        plan->pool_rows = 2 * plan->pool_keys;
    plan->lines = ceil_div(plan->rows, plan->pool_rows);
    plan->heading = 1;
    plan->numbers = 0;
}

static map_layout lay_out(const ph_screen *screen, const ph_pick *pick, int alone)
{
    const ph_axis *rows = rows_of(screen, pick), *keys = keys_of(screen, pick);
    map_layout plan = {.rows = rows->count, .keys = keys->count, .pool_rows = 1};
    plan.pool_keys = 1;
    plan.label = 9;
    if (rows->count > MAX_ROWS || keys->count > screen->width) {
        layout_pooled(screen, &plan);
        return plan;
    }
    plan.label = widest(screen, rows, PH_LABEL_COLUMNS);
    plan.heading = longest(screen, keys, MAX_HEADING);
    int columns = screen->width - plan.label - 2;
    plan.numbers = alone && keys->count * 3 <= columns;
    plan.cell = plan.numbers ? 3 : keys->count * 2 <= columns ? 2 : 1;
    plan.lines = rows->count;
    plan.cells = keys->count;
    plan.slot = plan.cells * plan.cell < MIN_SLOT ? MIN_SLOT : plan.cells * plan.cell;
    if (keys->count > columns || (plan.cell == 1 && has_wide(screen, keys))) {
        plan.label = 9;
        layout_pooled(screen, &plan);
    }
    return plan;
}

int ph_maps_that_fit(const ph_screen *screen, const ph_pick *pick)
{
    map_layout plan = lay_out(screen, pick, 0);
    if (plan.pool_keys > 1 || plan.pool_rows > 1) return 1;
    int count = (screen->width - plan.label - 1 + GAP) / (plan.slot + GAP);
    return count > 1 ? count : 1;
}

/* ---- weights ---- */

/* One line of cells: the largest weight of each, or MASKED where causality hides all of
   it. `row` is scratch for a row of weights. */
static ph_status read_line(const ph_screen *screen, const ph_pick *pick,
                           const map_layout *plan, int line, float *row, float *cells)
{
    const ph_stack *stack = &screen->report->stacks[pick->stack];
    ph_status status = PH_OK;
    for (int c = 0; c < plan->cells; c++) cells[c] = MASKED;
    for (int i = line * plan->pool_rows;
         i < (line + 1) * plan->pool_rows && i < plan->rows && status == PH_OK; i++) {
        int seen = plan->keys;
        if (stack->causal && i + stack->q_offset + 1 < seen)
            seen = i + stack->q_offset + 1;
        status = screen->report->weights(screen->report->user, pick->stack, pick->layer,
                                         pick->head, i, 1, row);
        for (int j = 0; j < seen && status == PH_OK; j++) {
            float w = row[j] >= 0 ? row[j] : 0; /* NaN too */
            if (w > cells[j / plan->pool_keys]) cells[j / plan->pool_keys] = w;
        }
    }
    return status;
}

/* ---- axes ---- */

/* The cluster of a word in one line of the heading; words end at the map. */
static void put_letter(const ph_screen *screen, const char *word, int line,
                       const map_layout *plan)
{
    char clean[PH_WORD_BYTES], one[PH_WORD_BYTES];
    int columns = 0, clusters = 0;
    ph_text_clean(word, screen->how->ascii, clean, sizeof clean);
    const char *at = clean;
    for (size_t n; (n = ph_text_cluster(at, &columns)) > 0; at += n) clusters++;
    int cut = clusters > plan->heading, shown = cut ? plan->heading : clusters;
    int index = line - (plan->heading - shown);
    at = clean;
    for (int n = 0; n < index; n++) at += ph_text_cluster(at, &columns);
    size_t bytes = index >= 0 ? ph_text_cluster(at, &columns) : 0;
    if (bytes == 0) columns = 0;
    snprintf(one, sizeof one, "%.*s", (int)bytes, at);
    if (cut && line == plan->heading - 1) {
        snprintf(one, sizeof one, "%s", screen->how->ascii ? "~" : "\xe2\x8b\xae");
        columns = 1;
    }
    int before = plan->numbers ? plan->cell - 1 - (columns > 1) : 0;
    ph_put_blanks(screen, before);
    ph_put(screen, one);
    ph_put_blanks(screen, plan->cell - before - columns);
}

static void put_heading(const ph_screen *screen, const map_layout *plan,
                        const ph_pick *picks, int count)
{
    for (int line = 0; line < plan->heading; line++) {
        ph_put_blanks(screen, plan->label + 1);
        for (int n = 0; n < count; n++) {
            const ph_axis *keys = keys_of(screen, &picks[n]);
            if (n) ph_put_blanks(screen, GAP + plan->slot - plan->cells * plan->cell);
            for (int j = 0; j < keys->count; j++)
                put_letter(screen, keys->tokens[j], line, plan);
        }
        ph_put(screen, "\n");
    }
}

/* Indices above a pooled picture, one every ten cells. */
static void put_ticks(const ph_screen *screen, const map_layout *plan)
{
    ph_put_blanks(screen, plan->label + 1);
    for (int c = 0; c < plan->cells;) {
        char number[16] = "";
        int length = 0, step = plan->cells - c < 10 ? plan->cells - c : 10;
        if (step > 6 || c == 0)
            length = snprintf(number, sizeof number, "%d", c * plan->pool_keys + 1);
        ph_put(screen, number);
        ph_put_blanks(screen, step - length);
        c += step;
    }
    ph_put(screen, "\n");
}

static void put_row_label(const ph_screen *screen, const map_layout *plan,
                          const ph_axis *rows, int line)
{
    int row = line * plan->pool_rows;
    if (plan->pool_rows == 1 && plan->pool_keys == 1) {
        int unknown = is_unknown(rows, row);
        ph_put_word(screen, rows->tokens[row], plan->label - unknown, 1);
        ph_put(screen, unknown ? "?" : "");
    } else if (line % 4 == 0) {
        ph_putf(screen, "%*d", plan->label, row + 1);
    } else {
        ph_put_blanks(screen, plan->label);
    }
    ph_put(screen, " ");
}

/* ---- a strip of maps ---- */

static void put_titles(const ph_screen *screen, const map_layout *plan,
                       const ph_pick *picks, int count)
{
    const ph_report *report = screen->report;
    for (int part = 0; part < 2; part++) {
        ph_put_blanks(screen, plan->label + 1);
        for (int n = 0; n < count; n++) {
            const ph_stack *stack = &report->stacks[picks[n].stack];
            int role = ph_report_role(report, &picks[n]);
            const char *why =
                stack->why ? stack->why[picks[n].layer * stack->heads + picks[n].head]
                           : NULL;
            const char *title = stack->share               ? "the answer"
                                : role < report->role_count ? report->roles[role].name
                                                            : "";
            char text[256], name[64];
            if (part == 0)
                snprintf(text, sizeof text, "%s %s",
                         ph_pick_name(report, &picks[n], name), title);
            else
                snprintf(text, sizeof text, "%s", why ? why : "");
            int columns = count == 1 ? screen->width - plan->label - 1 : plan->slot;
            if (n) ph_put_blanks(screen, GAP);
            ph_put_ink(screen, part ? PH_INK_DIM : PH_INK_BOLD);
            ph_put_word(screen, text, columns, 0);
            ph_put_ink(screen, PH_INK_PLAIN);
        }
        ph_put(screen, "\n");
    }
}

static void put_cells(const ph_screen *screen, const map_layout *plan, const float *cells)
{
    for (int c = 0; c < plan->cells; c++) {
        char number[16];
        int percent = (int)(100 * (cells[c] < 9 ? cells[c] : 9) + 0.5f);
        if (!plan->numbers || cells[c] < 0) {
            ph_put_cell(screen, cells[c], plan->cell, NULL);
            continue;
        }
        snprintf(number, sizeof number, "%d", percent);
        ph_put_cell(screen, cells[c], plan->cell, percent > 0 ? number : ".");
    }
}

static ph_status put_lines(const ph_screen *screen, const map_layout *plan,
                           const ph_pick *picks, int count, float *row, float *cells)
{
    ph_status status = PH_OK;
    for (int line = 0; line < plan->lines && status == PH_OK; line++) {
        put_row_label(screen, plan, rows_of(screen, picks), line);
        for (int n = 0; n < count && status == PH_OK; n++) {
            if (n) ph_put_blanks(screen, GAP + plan->slot - plan->cells * plan->cell);
            status = read_line(screen, &picks[n], plan, line, row, cells);
            if (status == PH_OK) put_cells(screen, plan, cells);
        }
        ph_put(screen, "\n");
    }
    return status;
}

static ph_status put_strip(const ph_screen *screen, const map_layout *plan,
                           const ph_pick *picks, int count)
{
    size_t columns = (size_t)plan->keys + 1;
    float *row = ph_io_alloc(screen->io, columns * sizeof *row);
    float *cells = ph_io_alloc(screen->io, columns * sizeof *cells);
    ph_status status = PH_OUT_OF_MEMORY;
    if (row && cells) {
        ph_put(screen, "\n");
        put_titles(screen, plan, picks, count);
        if (plan->pool_keys == 1 && plan->pool_rows == 1)
            put_heading(screen, plan, picks, count);
        else
            put_ticks(screen, plan);
        status = put_lines(screen, plan, picks, count, row, cells);
        if (plan->pool_rows > 1 || plan->pool_keys > 1)
            ph_putf(screen, "%*s cell: largest of %d x %d\n", plan->label, "",
                    plan->pool_rows, plan->pool_keys);
    }
    if (status != PH_OK)
        ph_io_fail(screen->io, status, "the weights to draw: %s", ph_status_text(status));
    ph_io_release(screen->io, row);
    ph_io_release(screen->io, cells);
    return status;
}

ph_status ph_put_maps(const ph_screen *screen, const ph_pick *picks, int count)
{
    ph_status status = PH_OK;
    int drawn = 0, numbers = 0;
    for (int n = 0; n < count && status == PH_OK;) {
        map_layout plan = lay_out(screen, &picks[n], count == 1);
        int fit = ph_maps_that_fit(screen, &picks[n]), together = 1;
        while (together < fit && n + together < count &&
               picks[n + together].stack == picks[n].stack)
            together++;
        if (plan.rows > 0 && plan.keys > 0) {
            status = put_strip(screen, &plan, picks + n, together);
            drawn = 1;
            numbers = plan.numbers;
        }
        n += together;
    }
    if (drawn && status == PH_OK) {
        ph_put(screen, "\n");
        put_scale(screen, numbers);
    }
    return status;
}
