/*
 * row_sums.h - what one pass over a row of weights gives.
 */
#ifndef PH_HEADS_ROW_SUMS_H
#define PH_HEADS_ROW_SUMS_H

typedef struct ph_row_sums {
    double sum;
    double entropy;  /* -sum w log w */
    double distance; /* sum of w |key - position| */
    int best;        /* key of the largest weight, the first of equal ones */
    int good;        /* 0: a weight is negative or non-finite; the sums are unspecified */
} ph_row_sums;

typedef ph_row_sums ph_row_sums_fn(const float *w, int keys, int position);

ph_row_sums_fn ph_row_sums_base, ph_row_sums_avx2, ph_row_sums_avx512;

/* For a CPU with these features (base/cpu.h); all give the same bits. */
ph_row_sums_fn *ph_row_sums_pick(unsigned features);

#endif
