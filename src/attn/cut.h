/*
 * cut.h - the sequences of a call, cut into blocks of rows or keys: which block of which
 * sequence is work item i.
 *
 * In a dense batch every sequence has as many blocks as the others. In a ragged one each
 * has its own, and the longest sequences come first: the last items, which threads wait
 * for, are then short.
 */
#ifndef PH_ATTN_CUT_H
#define PH_ATTN_CUT_H

#include "attn/rows.h"

typedef struct ph_work_cut {
    int count;       /* blocks of all sequences */
    int first;       /* sequences from this one on ... */
    int sequences;   /* ... are cut */
    int blocks;      /* dense: of each sequence */
    int block_major; /* dense: 1: the last block of every sequence comes first */
    int32_t *order;  /* ragged: (sequences) the longest first; NULL: dense */
    int32_t *starts; /* ragged: (sequences + 1) the first item of each, in that order */
} ph_work_cut;

/* Block `block` of a sequence. */
typedef struct ph_piece {
    int batch, block;
} ph_piece;

/* Takes scratch for a cut of all sequences. */
void ph_cut_take(const ph_plan *plan, ph_arena *arena, ph_work_cut *cut);

/* Cuts `sequences` sequences from `first` on into blocks of `size` rows, `per_token` of
   each token, or of `size` keys. */
void ph_cut_rows(const ph_call *call, int first, int sequences, int per_token, int size,
                 ph_work_cut *cut);
void ph_cut_keys(const ph_call *call, int first, int sequences, int size,
                 ph_work_cut *cut);

/* Item i < count; blocks of a sequence come from its last to its first. */
ph_piece ph_cut_find(const ph_work_cut *cut, int i);

#endif
