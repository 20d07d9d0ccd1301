/*
 * t5.c - T5's buckets of distances.
 *
 * With n buckets in a direction: distances below n/2 have a bucket each; above,
 *
 *     bucket = n/2 + floor( ln(d / (n/2)) / ln(max / (n/2)) * n/2 ),  at most n - 1
 *
 * In double no integer distance is so close to the edge of a bucket that rounding could
 * move it: the published tables are reproduced exactly.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "layer/layer.h"

static ph_t5 with_defaults(const ph_t5 *t5)
{
    ph_t5 t = *t5;
    if (t.buckets <= 0) t.buckets = 32;
    if (t.max_distance <= 0) t.max_distance = 128;
    return t;
}

int ph_t5_bucket(const ph_t5 *t5, int distance)
{
    if (!t5) return 0;
    ph_t5 t = with_defaults(t5);
    int n = t.two_sided ? t.buckets / 2 : t.buckets, exact = n / 2;
    int after = t.two_sided && distance > 0 ? n : 0;
    int d = t.two_sided ? abs(distance) : ph_max(-distance, 0);
    if (d < exact || exact == 0) return after + ph_min(d, n - 1);
    double share = log((double)d / exact) / log((double)t.max_distance / exact);
    int bucket = d >= t.max_distance ? n - 1 : exact + (int)(share * (n - exact));
    return after + ph_min(bucket, n - 1);
}

void ph_t5_expand(const ph_t5 *t5, int q_heads, const float *table, float *relative)
{
    if (!t5 || !table || !relative) return;
    int reach = with_defaults(t5).max_distance;
    int64_t distances = 2 * (int64_t)reach + 1;
    for (int d = -reach; d <= reach; d++) {
        const float *row = table + (int64_t)ph_t5_bucket(t5, d) * q_heads;
        for (int h = 0; h < q_heads; h++) relative[h * distances + reach + d] = row[h];
    }
}

/* Distances of one bucket are neighbours: each bucket is one run of drelative. */
void ph_t5_reduce(const ph_t5 *t5, int q_heads, const float *drelative, float *dtable)
{
    if (!t5 || !drelative || !dtable) return;
    ph_t5 t = with_defaults(t5);
    int reach = t.max_distance;
    memset(dtable, 0, (size_t)t.buckets * (size_t)q_heads * sizeof *dtable);
    for (int first = -reach, end; first <= reach; first = end) {
        int bucket = ph_t5_bucket(t5, first);
        for (end = first + 1; end <= reach && ph_t5_bucket(t5, end) == bucket;) end++;
        for (int h = 0; h < q_heads; h++) {
            const float *row = drelative + h * (2 * (int64_t)reach + 1) + reach;
            double sum = 0;
            for (int d = first; d < end; d++) sum += row[d];
            dtable[(int64_t)bucket * q_heads + h] = (float)sum;
        }
    }
}
