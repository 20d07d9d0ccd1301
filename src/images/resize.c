/*
 * resize.c - a picture at another size, with antialiasing.
 *
 * In the arithmetic of Pillow, so that a model sees the pixels it was trained on: rows
 * first, then columns, each output a sum of 8-bit inputs times 22-bit fixed-point
 * weights, rounded to 8 bits after either pass.
 */
#include <math.h>

#include "base/base.h"
#include "images/image.h"

enum { FRACTION = 22 };

/* What one axis needs: for output i, inputs first[i] to first[i] + taps - 1. */
typedef struct axis {
    int taps;
    int *first;
    int32_t *weights; /* (outputs, taps) */
} axis;

static double triangle(double x)
{
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

/* Keys' cubic with a = -1/2. */
static double cubic(double x)
{
    x = fabs(x);
    if (x < 1) return (1.5 * x - 2.5) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * -0.5 : 0;
}

/* Weights of one output; taps outside the picture, or the filter, are 0. */
static void weigh_output(axis *a, int i, int in, double scale, ph_resample filter)
{
    double wide = scale > 1 ? scale : 1, centre = (i + 0.5) * scale, sum = 0;
    double support = (filter == PH_RESAMPLE_BICUBIC ? 2 : 1) * wide;
    double (*f)(double) = filter == PH_RESAMPLE_BICUBIC ? cubic : triangle;
    int lo = (int)fmax(centre - support + 0.5, 0);
    int hi = (int)fmin(centre + support + 0.5, in);
    int32_t *to = a->weights + (size_t)i * (size_t)a->taps;
    a->first[i] = lo;
    for (int x = lo; x < hi; x++) sum += f((x - centre + 0.5) * (1 / wide));
    for (int x = lo; x < lo + a->taps; x++) {
        double w = x < hi ? f((x - centre + 0.5) * (1 / wide)) / sum : 0;
        to[x - lo] = (int32_t)(w * (1 << FRACTION) + (w < 0 ? -0.5 : 0.5));
    }
}

static ph_status create_axis(axis *a, int in, int out, ph_resample filter,
                             const ph_io *io)
{
    double scale = (double)in / out, wide = scale > 1 ? scale : 1;
    a->taps = (int)ceil((filter == PH_RESAMPLE_BICUBIC ? 2 : 1) * wide) * 2 + 1;
    size_t weights = (size_t)out * (size_t)a->taps * sizeof *a->weights;
    a->first = ph_io_alloc(io, (size_t)out * sizeof *a->first);
    a->weights = ph_io_alloc(io, weights);
    if (!a->first || !a->weights) return ph_io_no_memory(io, weights, "a picture");
    for (int i = 0; i < out; i++) weigh_output(a, i, in, scale, filter);
    return PH_OK;
}

static void free_axis(axis *a, const ph_io *io)
{
    if (a->first) ph_io_release(io, a->first);
    if (a->weights) ph_io_release(io, a->weights);
}

/* `in` samples, `step` apart. */
static uint8_t weigh(const axis *a, int i, const uint8_t *from, int in, size_t step)
{
    const int32_t *w = a->weights + (size_t)i * (size_t)a->taps;
    int count = in - a->first[i] < a->taps ? in - a->first[i] : a->taps;
    int64_t sum = 1 << (FRACTION - 1);
    from += (size_t)a->first[i] * step;
    for (int t = 0; t < count; t++) sum += (int64_t)w[t] * from[(size_t)t * step];
    return sum < 0 ? 0 : sum >> FRACTION > 255 ? 255 : (uint8_t)(sum >> FRACTION);
}

static void resize_rows(ph_image *out, const ph_image *in, const axis *a)
{
    for (int y = 0; y < out->height; y++)
        for (int x = 0; x < out->width; x++)
            for (int c = 0; c < 3; c++)
                out->rgb[3 * ((size_t)y * (size_t)out->width + (size_t)x) + (size_t)c] =
                    weigh(a, x, in->rgb + 3 * (size_t)y * (size_t)in->width + c,
                          in->width, 3);
}

static void resize_columns(ph_image *out, const ph_image *in, const axis *a)
{
    size_t row = 3 * (size_t)in->width;
    for (int y = 0; y < out->height; y++)
        for (size_t x = 0; x < row; x++)
            out->rgb[(size_t)y * row + x] = weigh(a, y, in->rgb + x, in->height, row);
}

ph_status ph_image_resize(ph_image *out, const ph_image *in, int width, int height,
                          ph_resample filter, const ph_io *io)
{
    axis across = {0}, down = {0};
    ph_image rows = {0};
    *out = (ph_image){0};
    ph_status status = create_axis(&across, in->width, width, filter, io);
    if (status == PH_OK) status = create_axis(&down, in->height, height, filter, io);
    if (status == PH_OK)
        status = ph_image_create(&rows, "the resized picture", (size_t)width,
                                 (size_t)in->height, io);
    if (status == PH_OK)
        status = ph_image_create(out, "the resized picture", (size_t)width,
                                 (size_t)height, io);
    if (status == PH_OK) {
        resize_rows(&rows, in, &across);
        resize_columns(out, &rows, &down);
    }
    free_axis(&across, io);
    free_axis(&down, io);
    ph_image_free(&rows, io);
    return status;
}
