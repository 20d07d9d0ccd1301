/*
 * sink.h - a logit that takes part in a softmax but has no value.
 */
#ifndef PH_KERNELS_SINK_H
#define PH_KERNELS_SINK_H

#include <math.h>

/* Adds the sink to one row's softmax: updates its lse and the factor of its output. */
static inline void ph_add_sink(float sink, float *lse, float *factor)
{
    if (sink == -INFINITY) return;
    double high = *lse > sink ? *lse : sink;
    double both = high + log(exp(*lse - high) + exp(sink - high));
    *factor = (float)(*factor * exp(*lse - both));
    *lse = (float)both;
}

#endif
