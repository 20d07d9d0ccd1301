/*
 * moments.h - the mean of values that come one by one, and its standard error.
 */
#ifndef PH_BASE_MOMENTS_H
#define PH_BASE_MOMENTS_H

#include <math.h>

typedef struct ph_moments {
    double sum, squares;
} ph_moments;

static inline void ph_moments_add(ph_moments *m, double value)
{
    m->sum += value, m->squares += value * value;
}

static inline double ph_moments_mean(const ph_moments *m, int count)
{
    return m->sum / count;
}

/* 0 for one value. */
static inline double ph_moments_error(const ph_moments *m, int count)
{
    double mean = m->sum / count, variance = fmax(m->squares / count - mean * mean, 0);
    return count > 1 ? sqrt(variance / (count - 1)) : 0;
}

#endif
