/*
 * helpers.c - numbers that a model needs while its layers are made: schedules over depth,
 * bounds of initialisation.
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
