/*
 * kernel_mods.c - random options of scores for the checks of heads.
 */
#include "kernel_mods.h"

#include <math.h>

#include "kernel_bed.h"

enum { ROWS = 256 };

static const float *bias_rows[ROWS], *relative_rows[ROWS];
static const uint8_t *visible_rows[ROWS];
static float alibi[ROWS], distance[ROWS];
static uint32_t low[ROWS], high[ROWS];

static void fill_bias(float *x, int n)
{
    for (int i = 0; i < n; i++) x[i] = bed_between(-3, 3);
    for (int i = 0; i < n; i += 1 + bed_below(20))
        x[i] = bed_below(3) ? -INFINITY : bed_below(2) ? -3e38f : 0;
}

/* rows x keys floats, or one row for all. */
static const float *const *bias_of(int slot, int rows, int keys, const float **out)
{
    int lines = bed_below(3) ? rows : 1;
    float *x = bed_floats(slot, (int64_t)lines * keys, bed_below(2));
    fill_bias(x, lines * keys);
    for (int i = 0; i < rows; i++) out[i] = x + (lines > 1 ? i * keys : 0);
    return out;
}

static const uint8_t *const *visible_of(int rows, int keys)
{
    size_t bytes = (size_t)rows * (size_t)keys;
    uint8_t *x = bed_place(12, bytes, bed_below(2));
    for (size_t i = 0; i < bytes; i++) x[i] = (uint8_t)(bed_below(3) * bed_below(100));
    for (int i = 0; i < rows; i++) visible_rows[i] = x + i * keys;
    return visible_rows;
}

ph_score_mods bed_mods(int rows, int keys)
{
    ph_score_mods mods = {0};
    if (bed_below(2)) return mods;
    if (bed_below(2)) mods.bias = bias_of(10, rows, keys, bias_rows);
    if (bed_below(4) == 0) mods.relative = bias_of(11, rows, keys, relative_rows);
    if (bed_below(4) == 0) mods.cap = bed_between(0.5f, 20);
    if (bed_below(3) == 0) mods.visible = visible_of(rows, keys);
    if (bed_below(3)) return mods;
    for (int i = 0; i < rows; i++) {
        alibi[i] = bed_between(0, 1);
        distance[i] = (float)(bed_below(600) - 300);
    }
    mods.alibi = alibi, mods.distance = distance;
    return mods;
}

int bed_mods_hide(const ph_score_mods *mods)
{
    return mods->bias || mods->relative || mods->visible;
}

ph_drop bed_drop(int rows)
{
    if (bed_below(3)) return (ph_drop){0};
    for (int i = 0; i < rows; i++)
        low[i] = (uint32_t)bed_random(), high[i] = (uint32_t)bed_random();
    return (ph_drop){low, high, (uint32_t)bed_below(5000), 1u << 30, 4.0f / 3};
}
