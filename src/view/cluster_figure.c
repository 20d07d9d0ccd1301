/*
 * cluster_figure.c - ph_clusters_write: the map of heads as SVG, a colour per cluster.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/format.h"
#include "io/file.h"
#include "io/unsafe.h"
#include "polyhead_clusters.h"
#include "view/bytes.h"
#include "view/palette.h"

enum { SIDE = 640, MARGIN = 48, HEADER = 40, DOT = 5 };

static void put(ph_bytes *out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void put(ph_bytes *out, const char *format, ...)
{
    char text[256];
    va_list list;
    va_start(list, format);
    int length = ph_format_list(text, sizeof text, format, list);
    va_end(list);
    ph_bytes_add(out, text, (size_t)length);
}

static void put_escaped(ph_bytes *out, const char *text)
{
    for (; *text; text++) {
        const char *entity = ph_markup_entity(*text);
        if (entity)
            ph_bytes_text(out, entity);
        else if ((unsigned char)*text >= ' ')
            ph_bytes_add(out, text, 1);
    }
}

/* Half of the widest range of coordinates: both axes have one scale. */
static double reach_of(const ph_clusters *c, int heads)
{
    double reach = 0, point[2];
    for (int h = 0; h < heads; h++) {
        ph_clusters_point(c, h, point);
        reach = fmax(reach, fmax(fabs(point[0]), fabs(point[1])));
    }
    return reach > 0 ? reach : 1;
}

static void draw_head(ph_bytes *out, const ph_clusters *c, int h, double reach,
                      const char *name)
{
    double point[2], unit = (SIDE / 2 - MARGIN) / reach;
    char color[8];
    snprintf(color, sizeof color, "#%06x",
             (unsigned)ph_role_color(1 + ph_clusters_of(c, h))->light & 0xffffffu);
    ph_clusters_point(c, h, point);
    double x = SIDE / 2 + unit * point[0], y = HEADER + SIDE / 2 - unit * point[1];
    put(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%d\" fill=\"%s\"><title>", x, y,
        (int)DOT, color);
    put_escaped(out, name);
    put(out, "</title></circle>\n<text x=\"%.1f\" y=\"%.1f\" fill=\"%s\">", x + DOT + 1,
        y - DOT, color);
    put_escaped(out, name);
    put(out, "</text>\n");
}

static void draw(ph_bytes *out, const ph_clusters *c, const char *title,
                 const char *const *names, int heads)
{
    put(out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
        "font-family=\"ui-monospace, 'DejaVu Sans Mono', monospace\" font-size=\"9\">\n",
        (int)SIDE, SIDE + HEADER);
    put(out, "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n");
    put(out, "<text x=\"12\" y=\"24\" font-size=\"13\" fill=\"#222222\">");
    put_escaped(out, title);
    put(out, "</text>\n");
    for (int h = 0; h < heads; h++) draw_head(out, c, h, reach_of(c, heads), names[h]);
    put(out, "</svg>\n");
}

ph_status ph_clusters_write(const ph_clusters *c, const char *path, const char *title,
                            const char *const *names, const ph_io *io)
{
    if (!c || !path || !title || !names)
        return ph_io_null(io, "clusters, path, title or names");
    ph_bytes bytes = {.io = io};
    ph_output output;
    draw(&bytes, c, title, names, ph_clusters_heads(c));
    ph_status status = bytes.status == PH_OK
                           ? ph_output_open(&output, path, io)
                           : ph_io_no_memory(io, bytes.count, "a figure");
    if (status == PH_OK) {
        status = ph_output_write(&output, bytes.data, bytes.count);
        if (status == PH_OK) status = ph_output_commit(&output);
        ph_output_abandon(&output);
    }
    ph_bytes_free(&bytes);
    return status;
}
