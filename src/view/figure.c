/*
 * figure.c - the layout of a figure; see figure.h.
 *
 * Chosen heads: maps with words on both axes, as many in a row as fit, a scale below. All
 * heads: a grid of layers x heads of small maps without words. Rows of weights are read
 * one at a time and stored as colours of at most 256 x 256 cells.
 */
#include "view/figure.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "io/file.h"
#include "io/io.h"
#include "view/page.h"
#include "view/palette.h"
#include "view/report_heads.h"
#include "view/terminal.h"
#include "view/text.h"

enum {
    MARGIN = 12,
    GAP = 24,
    CELL = 12,         /* of a map with few words */
    MAX_SIDE = 512,    /* units of a large map, about */
    MAX_CELLS = 256,   /* rows or columns of a map */
    SMALL_CELLS = 32,  /* of a small map */
    SMALL_SIDE = 64,   /* its units, at most */
    WORD_COLUMNS = 16, /* of a word beside a map */
    SHEET_WIDTH = 1100,
    SCALE_HEIGHT = 34,
    MAX_UNITS = 20000 /* width or height of a sheet */
};

/* A map as it will be drawn: `pool` rows and keys share a cell. */
typedef struct plot {
    int rows, keys;           /* of the weights */
    int pool;                 /* rows and keys per cell */
    int lines, columns, size; /* cells, and units of each */
    int left, top;            /* units for the words; 0: there are none */
} plot;

typedef struct drawing {
    const ph_report *report;
    ph_sheet *sheet;
    const ph_io *io;
    float *row;      /* (keys) a row of weights */
    uint8_t *colors; /* (lines, columns) a map */
} drawing;

/* ---- colours ---- */

static void set_color(ph_sheet *sheet, int index, int red, int green, int blue)
{
    sheet->palette[index][0] = (unsigned char)red;
    sheet->palette[index][1] = (unsigned char)green;
    sheet->palette[index][2] = (unsigned char)blue;
}

/* Between two colours of the table, `part` sixteenths of the way. */
static void set_between(ph_sheet *sheet, int index, uint32_t from, uint32_t to, int part)
{
    int color[3];
    for (int c = 0; c < 3; c++) {
        int shift = 16 - 8 * c;
        int a = (int)(from >> shift & 255), b = (int)(to >> shift & 255);
        color[c] = (a * (16 - part) + b * part + 8) / 16;
    }
    set_color(sheet, index, color[0], color[1], color[2]);
}

/* Figures are for paper: always the light side of the table. */
static void set_heat(ph_sheet *sheet)
{
    const uint32_t *stops = ph_colors.ramp[0];
    for (int n = 0; n < PH_HEATS; n++) {
        int at = n * (PH_RAMP - 1) * 16 / (PH_HEATS - 1), stop = at / 16;
        if (stop > PH_RAMP - 2) stop = PH_RAMP - 2;
        set_between(sheet, PH_HEAT + n, stops[stop], stops[stop + 1], at - 16 * stop);
    }
}

void ph_sheet_colors(ph_sheet *sheet)
{
    set_color(sheet, PH_PAPER, 255, 255, 255);
    set_color(sheet, PH_BLACK, 20, 20, 20);
    set_color(sheet, PH_GREY, 110, 110, 110);
    set_color(sheet, PH_HATCH, 236, 236, 236);
    set_color(sheet, PH_ROLE_COLOR, 238, 238, 238);
    for (int n = 1; n <= PH_ROLE_COLORS; n++) /* a tint: a letter stands on it */
        set_between(sheet, PH_ROLE_COLOR + n, 0xffffff, ph_role_color(n)->light, 7);
    set_heat(sheet);
}

static int role_color(int role)
{
    return PH_ROLE_COLOR + (role == 0 ? 0 : 1 + (role - 1) % PH_ROLE_COLORS);
}

/* A letter on its colour. */
static void put_role(ph_sheet *sheet, int x, int y, int role, const char *glyph)
{
    int bars = ph_role_bars(role);
    ph_sheet_box(sheet, x, y, 9, 11, role_color(role));
    if (bars & 1) ph_sheet_box(sheet, x, y + 10, 9, 1, PH_BLACK);
    if (bars & 2) ph_sheet_box(sheet, x, y, 9, 1, PH_BLACK);
    ph_sheet_text(sheet, x + 2, y + 9, glyph, PH_LEFT, 0, PH_BLACK);
}

static uint8_t heat_of(float weight)
{
    if (weight >= 1) return PH_HEAT + PH_HEATS - 1;
    int level = weight > 0 ? (int)(sqrtf(weight) * (PH_HEATS - 1) + 0.5f) : 0;
    return (uint8_t)(PH_HEAT + level);
}

/* ---- one map ---- */

enum { WORD_BYTES = 2 * PH_WORD_BYTES };

/* A word, cut; with a mark where the model does not know it. */
static void show_word(const ph_axis *axis, int n, char word[WORD_BYTES])
{
    char clean[PH_WORD_BYTES];
    ph_text_clean(axis->tokens[n], 0, clean, sizeof clean);
    int columns = ph_text_columns(clean);
    ph_text_fit(clean, columns < WORD_COLUMNS ? columns : WORD_COLUMNS, 0, 0, word,
                WORD_BYTES - 1);
    if (axis->unknown && axis->unknown[n]) strcat(word, "?");
}

static int widest_word(const ph_axis *axis)
{
    char word[WORD_BYTES];
    int most = 0;
    for (int n = 0; n < axis->count; n++) {
        show_word(axis, n, word);
        int units = PH_LETTER * ph_text_columns(word);
        most = units > most ? units : most;
    }
    return most;
}

static plot plan_plot(const drawing *d, const ph_pick *pick, int small)
{
    const ph_report *report = d->report;
    const ph_stack *stack = &report->stacks[pick->stack];
    const ph_axis *rows = &report->axes[stack->q_axis],
                  *keys = &report->axes[stack->k_axis];
    int longer = rows->count > keys->count ? rows->count : keys->count;
    int most = small ? SMALL_CELLS : MAX_CELLS;
    plot p = {.rows = rows->count, .keys = keys->count};
    p.pool = longer > most ? (longer + most - 1) / most : 1;
    p.lines = (p.rows + p.pool - 1) / p.pool;
    p.columns = (p.keys + p.pool - 1) / p.pool;
    int cells = (longer + p.pool - 1) / p.pool, side = small ? SMALL_SIDE : MAX_SIDE;
    p.size = cells > 0 ? side / cells : CELL;
    if (p.size > CELL) p.size = CELL;
    if (p.size < 1) p.size = 1;
    if (small || p.size < 8 || p.pool > 1) {
        p.left = small ? 0 : 5 * PH_LETTER;
        p.top = small ? 0 : PH_FIGURE_LINE;
        return p;
    }
    p.left = widest_word(rows) + 4;
    p.top = widest_word(keys) + 4;
    return p;
}

/* The colours of a map: of each cell the largest weight. */
static ph_status color_map(drawing *d, const ph_pick *pick, const plot *p)
{
    const ph_stack *stack = &d->report->stacks[pick->stack];
    ph_status status = PH_OK;
    memset(d->colors, PH_HATCH, (size_t)p->lines * (size_t)p->columns);
    for (int i = 0; i < p->rows && status == PH_OK; i++) {
        uint8_t *line = d->colors + (size_t)(i / p->pool) * (size_t)p->columns;
        int seen = stack->causal ? i + stack->q_offset + 1 : p->keys;
        status = d->report->weights(d->report->user, pick->stack, pick->layer, pick->head,
                                    i, 1, d->row);
        for (int j = 0; j < seen && j < p->keys && status == PH_OK; j++) {
            uint8_t color = heat_of(d->row[j]), *cell = &line[j / p->pool];
            if (*cell == PH_HATCH || color > *cell) *cell = color;
        }
    }
    return status;
}

/* ---- a map with words ---- */

/* Words at every row and key, or their indices where words do not fit. */
static void put_axes(drawing *d, const ph_pick *pick, const plot *p, int x, int y)
{
    const ph_stack *stack = &d->report->stacks[pick->stack];
    const ph_axis *rows = &d->report->axes[stack->q_axis];
    const ph_axis *keys = &d->report->axes[stack->k_axis];
    int words = p->size >= 8 && p->pool == 1, middle = (p->size + 6) / 2;
    int step = words ? 1 : 1 + 39 / p->size;
    char text[WORD_BYTES];
    for (int i = 0; i < p->lines; i += step) {
        snprintf(text, sizeof text, "%d", i * p->pool + 1);
        if (words) show_word(rows, i, text);
        ph_sheet_text(d->sheet, x - 3, y + i * p->size + middle, text, PH_RIGHT, 0,
                       PH_BLACK);
    }
    for (int j = 0; j < p->columns; j += step) {
        snprintf(text, sizeof text, "%d", j * p->pool + 1);
        if (words) show_word(keys, j, text);
        ph_sheet_text(d->sheet, x + j * p->size + (words ? middle : 0), y - 3, text,
                       PH_LEFT, words, PH_BLACK);
    }
}

static void put_frame(drawing *d, const plot *p, int x, int y)
{
    int width = p->columns * p->size, height = p->lines * p->size;
    ph_sheet_box(d->sheet, x - 1, y - 1, width + 2, 1, PH_GREY);
    ph_sheet_box(d->sheet, x - 1, y + height, width + 2, 1, PH_GREY);
    ph_sheet_box(d->sheet, x - 1, y, 1, height, PH_GREY);
    ph_sheet_box(d->sheet, x + width, y, 1, height, PH_GREY);
}

enum { TITLE_HEIGHT = 2 * PH_FIGURE_LINE + 6 };

static int plot_width(const plot *p)
{
    int width = p->left + p->columns * p->size, title = 30 * PH_LETTER;
    return width > title ? width : title;
}

static int plot_height(const plot *p)
{
    return TITLE_HEIGHT + p->top + p->lines * p->size;
}

/* Title, reason, words, map, with its corner at (x, y). */
static ph_status put_plot(drawing *d, const ph_pick *pick, const plot *p, int x, int y)
{
    const ph_report *report = d->report;
    const ph_stack *stack = &report->stacks[pick->stack];
    int role = ph_report_role(report, pick), n = pick->layer * stack->heads + pick->head;
    char name[64], title[160], clean[160];
    snprintf(title, sizeof title, "%s  %s", ph_pick_name(report, pick, name),
             role < report->role_count ? report->roles[role].name : "");
    ph_text_clean(title, 0, clean, sizeof clean);
    ph_sheet_text(d->sheet, x, y + PH_FIGURE_LINE, clean, PH_LEFT, 0, PH_BLACK);
    ph_text_clean(stack->why && stack->why[n] ? stack->why[n] : "", 0,
                  clean, (size_t)(plot_width(p) / PH_LETTER) + 1);
    ph_sheet_text(d->sheet, x, y + 2 * PH_FIGURE_LINE, clean, PH_LEFT, 0, PH_GREY);
    int map_x = x + p->left, map_y = y + TITLE_HEIGHT + p->top;
    ph_status status = color_map(d, pick, p);
    if (status != PH_OK) return status;
    ph_sheet_map(d->sheet, map_x, map_y, p->size, p->lines, p->columns, d->colors);
    put_frame(d, p, map_x, map_y);
    put_axes(d, pick, p, map_x, map_y);
    return PH_OK;
}

/* The colours from 0 to 1, and what one cell means where several weights share it. */
static void put_scale(drawing *d, int x, int y, int pool)
{
    char note[80];
    ph_sheet_text(d->sheet, x, y + 9, "weight 0", PH_LEFT, 0, PH_BLACK);
    for (int n = 0; n < PH_HEATS; n++)
        ph_sheet_box(d->sheet, x + 54 + 2 * n, y, 2, 12, PH_HEAT + n);
    ph_sheet_text(d->sheet, x + 54 + 2 * PH_HEATS + 6, y + 9,
                   "1, by the square root: the middle is 0.25", PH_LEFT, 0, PH_BLACK);
    if (pool == 1) return;
    snprintf(note, sizeof note, "each cell is the largest of %d x %d weights", pool,
             pool);
    ph_sheet_text(d->sheet, x, y + 9 + PH_FIGURE_LINE + 2, note, PH_LEFT, 0, PH_GREY);
}

/* ---- chosen heads ---- */

/* Lays the maps out in rows; draws them, or only measures the sheet. */
static ph_status flow(drawing *d, const ph_pick *picks, int count, int draw, int *width,
                      int *height)
{
    int x = MARGIN, y = MARGIN, row_height = 0, pool = 1;
    ph_status status = PH_OK;
    for (int n = 0; n < count && status == PH_OK; n++) {
        plot p = plan_plot(d, &picks[n], 0);
        if (x > MARGIN && x + plot_width(&p) > SHEET_WIDTH) {
            x = MARGIN;
            y += row_height + GAP;
            row_height = 0;
        }
        if (draw) status = put_plot(d, &picks[n], &p, x, y);
        x += plot_width(&p);
        *width = x > *width ? x : *width;
        x += GAP;
        row_height = plot_height(&p) > row_height ? plot_height(&p) : row_height;
        pool = p.pool > pool ? p.pool : pool;
    }
    y += row_height + GAP / 2;
    if (draw && status == PH_OK) put_scale(d, MARGIN, y, pool);
    *height = y + SCALE_HEIGHT;
    return status;
}

static ph_status draw_picks(drawing *d, const ph_pick *picks, int count, int draw,
                            int *width, int *height)
{
    *width = 460; /* the scale's */
    ph_status status = flow(d, picks, count, draw, width, height);
    *width += MARGIN;
    return status;
}

/* ---- all heads ---- */

static ph_status put_small(drawing *d, const ph_pick *pick, int x, int y, int *pool)
{
    plot p = plan_plot(d, pick, 1);
    int role = ph_report_role(d->report, pick);
    const char glyph[2] = {
        role < d->report->role_count ? d->report->roles[role].glyph : '.', 0};
    ph_status status = color_map(d, pick, &p);
    if (status != PH_OK) return status;
    ph_sheet_image(d->sheet, x, y, p.size, p.lines, p.columns, d->colors);
    put_frame(d, &p, x, y);
    if (role > 0) {
        int right = x + p.columns * p.size;
        put_role(d->sheet, right + 3, y, role, glyph);
    }
    *pool = p.pool > *pool ? p.pool : *pool;
    return PH_OK;
}

enum { SMALL_STEP = SMALL_SIDE + 16, SMALL_LEFT = 30 };

static ph_status draw_stack(drawing *d, int index, int draw, int *y, int *pool)
{
    const ph_stack *stack = &d->report->stacks[index];
    ph_status status = PH_OK;
    char text[80];
    if (d->report->stack_count > 1 && stack->name) {
        ph_text_clean(stack->name, 0, text, sizeof text);
        if (draw) ph_sheet_text(d->sheet, MARGIN, *y + 9, text, PH_LEFT, 0, PH_BLACK);
        *y += PH_FIGURE_LINE + 6;
    }
    for (int h = 0; h < stack->heads && draw; h++) {
        snprintf(text, sizeof text, "%d", h + 1);
        ph_sheet_text(d->sheet, MARGIN + SMALL_LEFT + h * SMALL_STEP + SMALL_SIDE / 2,
                       *y + 9, text, PH_MIDDLE, 0, PH_GREY);
    }
    *y += PH_FIGURE_LINE + 4;
    for (int l = 0; l < stack->layers; l++) {
        snprintf(text, sizeof text, "%d", l + 1);
        if (draw)
            ph_sheet_text(d->sheet, MARGIN + SMALL_LEFT - 8, *y + SMALL_SIDE / 2, text,
                           PH_RIGHT, 0, PH_GREY);
        for (int h = 0; h < stack->heads && draw && status == PH_OK; h++) {
            const ph_pick pick = {index, l, h};
            if (stack->absent && stack->absent[l * stack->heads + h]) continue;
            status = put_small(d, &pick, MARGIN + SMALL_LEFT + h * SMALL_STEP, *y, pool);
        }
        *y += SMALL_STEP;
    }
    return status;
}

/* A line of text at the left; *width grows to hold it. */
static void put_line(drawing *d, int x, int y, const char *text, int draw, int *width)
{
    int right = x + PH_LETTER * ph_text_columns(text) + MARGIN;
    if (right > *width) *width = right;
    if (draw) ph_sheet_text(d->sheet, x, y + 9, text, PH_LEFT, 0, PH_BLACK);
}

/* The roles that occur, each with its letter, colour and rule; a rule that the one above
   has too is not repeated. */
static int draw_legend(drawing *d, int y, int draw, int *width)
{
    const ph_report *report = d->report;
    const char *rule = "";
    for (int role = 1; role < report->role_count; role++) {
        const ph_role *r = &report->roles[role];
        int found = 0;
        char text[240], glyph[2] = {r->glyph, 0};
        for (ph_pick at = {0, 0, -1}; ph_report_next(report, &at);)
            found += ph_report_role(report, &at) == role;
        if (found == 0) continue;
        snprintf(text, sizeof text, "%s, %d: %s", r->name, found,
                 strcmp(rule, r->help) ? r->help : "likewise");
        rule = r->help;
        if (draw) put_role(d->sheet, MARGIN, y, role, glyph);
        put_line(d, MARGIN + 16, y, text, draw, width);
        y += 14;
    }
    return y;
}

static ph_status draw_grid(drawing *d, int draw, int *width, int *height)
{
    int y = MARGIN, pool = 1, heads = 0;
    char title[160];
    ph_status status = PH_OK;
    ph_text_clean(d->report->title ? d->report->title : "", 0, title,
                  sizeof title);
    *width = 480; /* the scale needs that */
    put_line(d, MARGIN, y, title, draw, width);
    y += PH_FIGURE_LINE + 8;
    for (int s = 0; s < d->report->stack_count && status == PH_OK; s++) {
        int count = d->report->stacks[s].heads;
        heads = count > heads ? count : heads;
        status = draw_stack(d, s, draw, &y, &pool);
    }
    y = draw_legend(d, y + 4, draw, width) + 8;
    if (draw && status == PH_OK) put_scale(d, MARGIN, y, pool);
    int maps = 2 * MARGIN + SMALL_LEFT + heads * SMALL_STEP;
    if (*width < maps) *width = maps;
    *height = y + SCALE_HEIGHT;
    return status;
}

/* ---- all of it ---- */

static ph_status draw_once(drawing *d, const ph_figure *figure, int draw, int *width,
                           int *height)
{
    if (figure->pick_count > 0)
        return draw_picks(d, figure->picks, figure->pick_count, draw, width, height);
    return draw_grid(d, draw, width, height);
}

static ph_status draw_all(drawing *d, const ph_figure *figure)
{
    int width = 0, height = 0;
    ph_status status = draw_once(d, figure, 0, &width, &height);
    if (status == PH_OK && (width > MAX_UNITS || height > MAX_UNITS))
        return ph_io_fail(
            d->io, PH_UNSUPPORTED,
            "a figure of %d x %d units, expected at most %d: choose a layer "
            "or a head",
            width, height, (int)MAX_UNITS);
    ph_sheet_open(d->sheet, width, height);
    if (status == PH_OK) status = draw_once(d, figure, 1, &width, &height);
    ph_sheet_close(d->sheet);
    if (status != PH_OK)
        return ph_io_fail(d->io, status, "the weights to draw: %s",
                          ph_status_text(status));
    return d->sheet->out->status;
}

ph_status ph_figure_write(const char *path, const ph_report *report,
                          const ph_figure *figure, const ph_io *io)
{
    if (!path || !report || !figure) return ph_io_null(io, "path, report or figure");
    ph_bytes bytes = {.io = io};
    PH_IO_CHECK_RESERVED(io, "ph_figure", figure->reserved);
    PH_TRY(ph_report_check(report, io));
    ph_sheet sheet = {.out = &bytes};
    size_t keys = 1;
    for (int a = 0; a < report->axis_count; a++)
        if ((size_t)report->axes[a].count > keys) keys = (size_t)report->axes[a].count;
    drawing d = {.report = report, .sheet = &sheet, .io = io};
    d.row = ph_io_alloc(io, keys * sizeof *d.row);
    d.colors = ph_io_alloc(io, MAX_CELLS * MAX_CELLS);
    ph_sheet_colors(&sheet);
    ph_status status = d.row && d.colors ? draw_all(&d, figure) : PH_OUT_OF_MEMORY;
    if (status == PH_OUT_OF_MEMORY) ph_io_fail(io, status, "out of memory for a figure");
    if (status == PH_OK) status = ph_output_save(path, bytes.data, bytes.count, io);
    ph_io_release(io, d.row);
    ph_io_release(io, d.colors);
    ph_bytes_free(&bytes);
    return status;
}
