/*
 * helpers.c - schedules over depth, bounds of initialisation, slopes of ALiBi.
 */
#include <math.h>

#include "polyhead_layer.h"

int ph_mohsa_overlap(int schedule, int layer, int layers)
{
    int depth = schedule & PH_OVERLAP_REVERSE ? layers - layer - 1 : layer;
    if (schedule & PH_OVERLAP_HALF) depth /= 2;
    return depth + (schedule & PH_OVERLAP_PLUS_ONE ? 1 : 0);
}

float ph_depth_bound(int in_dim, int columns, int depth, float alpha, float power)
{
    double bound = sqrt(6.0 / ((double)in_dim + columns));
    return (float)(bound * alpha * pow(depth, -(double)power));
}

/* ---- positions --------------------------------------------------------------------- */

void ph_alibi_slopes(int heads, float *slopes)
{
    if (!slopes) return;
    int whole = 1;
    while (whole * 2 <= heads) whole *= 2;
    for (int h = 0; h < heads; h++) {
        int first = h < whole;
        double power = first ? (h + 1.0) / whole : (2 * (h - whole) + 1.0) / (2 * whole);
        slopes[h] = (float)exp2(-8 * power);
    }
}
