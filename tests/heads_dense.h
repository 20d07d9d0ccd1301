/*
 * heads_dense.h - the numbers of one head from whole matrices in double, written from
 * their definitions without a look at the library.
 */
#ifndef HEADS_DENSE_H
#define HEADS_DENSE_H

#include "polyhead_heads.h"

enum { DENSE_MOST = 104 };

/* A square map and what is known of its tokens. */
typedef struct dense {
    int n, causal;
    int patch_first, patch_columns, patch_size; /* of a picture, or 0 */
    double a[DENSE_MOST][DENSE_MOST];
    int id[DENSE_MOST], kind[DENSE_MOST], rank[DENSE_MOST];
} dense;

/* Every measure but PH_LINK, and the offset of PH_POSITIONAL. NaN: nothing to measure. */
void dense_all(const dense *d, double value[PH_MEASURES], int *offset);

#endif
