/*
 * jpeg_pixels.c - coefficients of blocks become samples, samples pixels; see jpeg.h.
 *
 * The inverse transform is that of the standard in floats, rounded once; colours of half
 * the resolution are interpolated between the centres of their samples, as libjpeg does.
 */
#include <string.h>

#include "base/base.h"
#include "images/jpeg.h"

static uint8_t to_byte(int value)
{
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* ---- samples ----------------------------------------------------------------------- */

/* basis[u][x] = c(u) / 2 cos((2 x + 1) u pi / 16) */
static void make_basis(float basis[8][8])
{
    static const float quarter[9] = {1.0f,         0.980785280f, 0.923879533f,
                                     0.831469612f, 0.707106781f, 0.555570233f,
                                     0.382683432f, 0.195090322f, 0.0f};
    for (int u = 0; u < 8; u++)
        for (int x = 0; x < 8; x++) {
            int angle = (2 * x + 1) * u % 32;
            if (angle > 16) angle = 32 - angle;
            float cosine = angle > 8 ? -quarter[16 - angle] : quarter[angle];
            basis[u][x] = 0.5f * (u ? cosine : quarter[4]);
        }
}

/* Rows, then columns. */
static void transform(const float basis[8][8], const int16_t *block,
                      const uint16_t *quant, uint8_t *to, size_t stride)
{
    float values[64] = {0}, rows[8][8] = {{0}};
    for (int k = 0; k < 64; k++) {
        int at = ph_jpeg_zigzag[k];
        values[at] = (float)block[at] * quant[k];
    }
    for (int v = 0; v < 8; v++)
        for (int u = 0; u < 8; u++)
            for (int x = 0; x < 8; x++) rows[v][x] += values[8 * v + u] * basis[u][x];
    for (int y = 0; y < 8; y++) {
        float line[8] = {0};
        for (int v = 0; v < 8; v++)
            for (int x = 0; x < 8; x++) line[x] += rows[v][x] * basis[v][y];
        for (int x = 0; x < 8; x++) {
            float level = line[x] + 128.5f;
            to[(size_t)y * stride + (size_t)x] = (uint8_t)(level < 0     ? 0
                                                           : level > 255 ? 255
                                                                         : level);
        }
    }
}

static void make_samples(const ph_jpeg *j, const ph_jpeg_part *part)
{
    float basis[8][8];
    size_t stride = 8 * (size_t)part->across;
    make_basis(basis);
    for (int y = 0; y < part->down; y++)
        for (int x = 0; x < part->across; x++) {
            size_t block = (size_t)y * (size_t)part->across + (size_t)x;
            transform(basis, part->blocks + 64 * block, j->quant[part->quant],
                      part->samples + 8 * (size_t)y * stride + 8 * (size_t)x, stride);
        }
}

/* ---- full resolution --------------------------------------------------------------- */

/* Three parts of the nearest row or column and one of the next to it, in halves of it. */
static int mix_rows(const ph_jpeg_part *part, int half, int rows, int y, int x)
{
    size_t stride = 8 * (size_t)part->across;
    int near = half ? y / 2 : y, next = near + (y % 2 ? 1 : -1);
    const uint8_t *row = part->samples + (size_t)near * stride;
    if (!half) return 4 * row[x];
    next = ph_min(ph_max(next, 0), rows - 1);
    return 3 * row[x] + part->samples[(size_t)next * stride + (size_t)x];
}

/* What is added before a sum of 16 parts is divided: halves are rounded up and down in
   turn, so that the mean stays. */
static int rounding(int across, int down, int x, int y)
{
    if (across == 2 && down == 2) return x % 2 ? 7 : 8;
    return (across == 2 ? x : y) % 2 ? 8 : 4;
}

/* One row of a component at the resolution of the picture. */
static void spread_row(const ph_jpeg *j, const ph_jpeg_part *part, int y, uint8_t *to)
{
    int across = j->h / part->h, down = j->v / part->v;
    int columns = ph_div_up(j->width, across), rows = ph_div_up(j->height, down);
    if (across > 2 || down > 2 || (across == 1 && down == 1)) { /* rare: repeated */
        const uint8_t *row =
            part->samples + (size_t)(y / down) * 8 * (size_t)part->across;
        for (int x = 0; x < j->width; x++) to[x] = row[x / across];
        return;
    }
    for (int x = 0; x < j->width; x++) {
        int near = across == 2 ? x / 2 : x, next = near + (x % 2 ? 1 : -1);
        int sum = mix_rows(part, down == 2, rows, y, near);
        next = ph_min(ph_max(next, 0), columns - 1);
        sum = across == 2 ? 3 * sum + mix_rows(part, down == 2, rows, y, next) : 4 * sum;
        to[x] = (uint8_t)((sum + rounding(across, down, x, y)) >> 4);
    }
}

/* ---- colours ----------------------------------------------------------------------- */

/* Y, Cb and Cr, in units of 2^-16. */
static void put_pixel(int y, int cb, int cr, uint8_t *to)
{
    enum { ONE = 1 << 16, HALF = ONE / 2 };
    cb -= 128, cr -= 128;
    to[0] = to_byte(y + (((int)(1.402 * ONE + 0.5) * cr + HALF) >> 16));
    to[1] = to_byte(y + ((-(int)(0.344136286 * ONE + 0.5) * cb -
                          (int)(0.714136286 * ONE + 0.5) * cr + HALF) >>
                         16));
    to[2] = to_byte(y + (((int)(1.772 * ONE + 0.5) * cb + HALF) >> 16));
}

void ph_jpeg_pixels(const ph_jpeg *j, uint8_t *rgb)
{
    uint8_t rows[PH_JPEG_PARTS][PH_IMAGE_SIDE];
    for (int i = 0; i < j->part_count; i++) make_samples(j, &j->parts[i]);
    for (int y = 0; y < j->height; y++) {
        for (int i = 0; i < j->part_count; i++) spread_row(j, &j->parts[i], y, rows[i]);
        for (int x = 0; x < j->width; x++, rgb += 3) {
            int grey = j->part_count == 1;
            if (grey || j->rgb)
                for (int c = 0; c < 3; c++) rgb[c] = rows[grey ? 0 : c][x];
            else
                put_pixel(rows[0][x], rows[1][x], rows[2][x], rgb);
        }
    }
}
