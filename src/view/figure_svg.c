/*
 * figure_svg.c - a figure as SVG; see figure.h.
 *
 * A large map is one path per colour, made of runs of cells; small ones are images inside
 * the file. Nothing outside the file is referred to.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/format.h"
#include "io/unsafe.h"
#include "view/figure.h"
#include "view/png_write.h"

static void put(ph_sheet *sheet, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

static void put(ph_sheet *sheet, const char *format, ...)
{
    char text[256];
    va_list list;
    va_start(list, format);
    int length = ph_format_list(text, sizeof text, format, list);
    va_end(list);
    ph_bytes_add(sheet->out, text, (size_t)length);
}

static void put_color(ph_sheet *sheet, int color)
{
    const unsigned char *rgb = sheet->palette[color];
    put(sheet, "#%02x%02x%02x", rgb[0], rgb[1], rgb[2]);
}

static void put_escaped(ph_sheet *sheet, const char *text)
{
    for (; *text; text++) {
        const char *entity = ph_markup_entity(*text);
        if (entity)
            ph_bytes_text(sheet->out, entity);
        else
            ph_bytes_add(sheet->out, text, 1);
    }
}

void ph_sheet_open(ph_sheet *sheet, int width, int height)
{
    put(sheet, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\"",
        width * 3 / 2, height * 3 / 2);
    put(sheet,
        " viewBox=\"0 0 %d %d\" font-family=\"ui-monospace, 'DejaVu Sans Mono', "
        "'Noto Sans Mono CJK SC', monospace\" font-size=\"%d\" xml:space=\"preserve\">\n",
        width, height, (int)PH_FIGURE_LINE);
    put(sheet, "<rect width=\"%d\" height=\"%d\" fill=\"", width, height);
    put_color(sheet, PH_PAPER);
    put(sheet, "\"/>\n");
}

void ph_sheet_box(ph_sheet *sheet, int x, int y, int width, int height, int color)
{
    put(sheet, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"", x, y, width,
        height);
    put_color(sheet, color);
    put(sheet, "\"/>\n");
}

void ph_sheet_text(ph_sheet *sheet, int x, int y, const char *text, ph_anchor_at anchor,
                   int upright, int color)
{
    static const char *const anchors[] = {"start", "middle", "end"};
    if (!*text) return;
    put(sheet, "<text x=\"%d\" y=\"%d\" text-anchor=\"%s\" fill=\"", x, y,
        anchors[anchor]);
    put_color(sheet, color);
    put(sheet, "\"");
    if (upright) put(sheet, " transform=\"rotate(-90 %d %d)\"", x, y);
    put(sheet, ">");
    put_escaped(sheet, text);
    put(sheet, "</text>\n");
}

/* Runs of one colour, in units of cells. */
static void put_runs(ph_sheet *sheet, int rows, int columns, const uint8_t *colors,
                     int color)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns;) {
            int end = j;
            while (end < columns && colors[i * columns + end] == color) end++;
            if (end > j) put(sheet, "M%d %dh%dv1h-%dz", j, i, end - j, end - j);
            j = end > j ? end : j + 1;
        }
}

void ph_sheet_map(ph_sheet *sheet, int x, int y, int size, int rows, int columns,
                  const uint8_t *colors)
{
    char used[PH_PALETTE] = {0};
    for (int n = 0; n < rows * columns; n++) used[colors[n]] = 1;
    put(sheet,
        "<g transform=\"translate(%d %d) scale(%d)\" shape-rendering=\"crispEdges\">\n",
        x, y, size);
    for (int color = 0; color < PH_PALETTE; color++) {
        if (!used[color]) continue;
        put(sheet, "<path fill=\"");
        put_color(sheet, color);
        put(sheet, "\" d=\"");
        put_runs(sheet, rows, columns, colors, color);
        put(sheet, "\"/>\n");
    }
    put(sheet, "</g>\n");
}

void ph_sheet_image(ph_sheet *sheet, int x, int y, int size, int rows, int columns,
                    const uint8_t *colors)
{
    ph_bytes png = {.io = sheet->out->io};
    if (rows == 0 || columns == 0) return;
    ph_png_write(&png, &(ph_png){.width = columns,
                                 .height = rows,
                                 .pixels = colors,
                                 .colors = PH_PALETTE,
                                 .palette = (const unsigned char(*)[3])sheet->palette});
    put(sheet,
        "<image x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" "
        "style=\"image-rendering:pixelated\" href=\"data:image/png;base64,",
        x, y, columns * size, rows * size);
    if (png.status == PH_OK)
        ph_bytes_base64(sheet->out, png.data, png.count);
    else
        sheet->out->status = png.status;
    put(sheet, "\"/>\n");
    ph_bytes_free(&png);
}

void ph_sheet_close(ph_sheet *sheet)
{
    put(sheet, "</svg>\n");
}
