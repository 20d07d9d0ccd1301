/*
 * heads.h - the accumulators of polyhead_heads.h.
 *
 *     measure.c   begins a text, adds rows, ends the text
 *     row_sums.c  sums, entropy, distance and largest weight of a row
 *     read.c      from sums to measures
 *     labels.c    names, definitions, rules
 *     tokens.c    classes of tokens
 *
 * treebank.c and syntax.c are polyhead_treebank.h, clusters.c and plane.c
 * polyhead_clusters.h.
 */
#ifndef PH_HEADS_HEADS_H
#define PH_HEADS_HEADS_H

#include "heads/row_sums.h"
#include "polyhead_heads.h"

/* Sums of one head. */
typedef struct ph_tally {
    double text_sum[PH_MEASURES]; /* of the current text */
    int64_t text_count[PH_MEASURES];
    double total[PH_MEASURES];  /* sum of the averages of earlier texts */
    int64_t texts[PH_MEASURES]; /* that had anything to measure */
    int64_t count[PH_MEASURES]; /* rows or entries of all of them */
    int64_t rows, skipped, invalid;
    int64_t hits[PH_OFFSETS];     /* rows by offset of their largest weight */
    int64_t possible[PH_OFFSETS]; /* rows where that offset is inside */
    double mass[PH_OFFSETS];      /* weight at each offset, summed over rows */
    int64_t right[PH_MAX_RELATIONS];
} ph_tally;

/* Keys in ascending order. */
typedef struct ph_key_list {
    int32_t *keys;
    int count;
} ph_key_list;

struct ph_heads {
    int layers, heads;
    int64_t texts;   /* finished */
    ph_tally *tally; /* (layers, heads) */

    ph_heads_text text; /* the current one; its pointers are the caller's */
    int open;           /* 1: between begin and end */
    int32_t *earlier;   /* (keys) the last key before with the same id, or -1; or NULL */
    ph_link *links;     /* a copy, by row */
    ph_key_list separators, punctuation; /* of the text, key 0 left out */
    int rarest[2]; /* keys of the two rarest tokens; -1: none, or too common */

    int64_t links_of[PH_MAX_RELATIONS];                 /* in all texts */
    int64_t link_offsets[PH_MAX_RELATIONS][PH_OFFSETS]; /* by distance */

    ph_row_sums_fn *sum_row;
    ph_io hooks; /* memory; no error text */
};

/* The commonest of counts[-PH_REACH .. PH_REACH]; of equally common ones the shortest,
   then the one to the left. */
int ph_heads_commonest(const int64_t counts[PH_OFFSETS]);

#endif
