/*
 * polyhead_treebank.h - heads against syntax: does a head attend from a word to the word
 * it depends on?
 *
 *     ph_treebank_read   sentences, words and dependencies of a CoNLL-U file
 *     ph_syntax_create   counters for every relation and head
 *     ph_syntax_begin    starts a sentence: which token belongs to which word
 *     ph_syntax_add      the weights of one head on it
 *     ph_syntax_read     the best head of a relation, and what a fixed offset reaches
 *
 * Tokens are joined to words: a word's column is the sum of the columns of its tokens,
 * its row the mean of their rows. Marks like [CLS] belong to no word and are left out.
 * A head predicts for every word the other word with the largest weight, in two
 * directions: the dependent attends to its head word (PH_TO_HEAD), or the head word
 * attends to the dependent (PH_FROM_HEAD: the largest weight of the dependent's column).
 * Of equal weights the first counts; without any weight on another word there is no
 * prediction. The baseline always predicts the word at a fixed offset from -3 to 2.
 *
 * The rules of polyhead.h hold here too.
 */
#ifndef POLYHEAD_TREEBANK_H
#define POLYHEAD_TREEBANK_H

#include "polyhead_io.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- treebanks --------------------------------------------------------------------- */

typedef struct ph_treebank ph_treebank;

/* A word as it stands in the text. The words that CoNLL-U makes of one (a range like
   "1-2") are one here. */
typedef struct ph_tree_word {
    int start, length; /* bytes in the text */
} ph_tree_word;

typedef struct ph_dependency {
    int dependent, head; /* words, from 0; head -1: the root */
    int relation;
} ph_dependency;

typedef struct ph_tree {
    const char *text; /* forms, with a blank between unless SpaceAfter=No */
    const ph_tree_word *words;
    int word_count;
    const ph_dependency *dependencies; /* those within one word are left out */
    int dependency_count;
    int line; /* of its first word in the file */
} ph_tree;

/* Reads a CoNLL-U file, or its bytes from memory. A malformed line is refused with its
   number. */
PH_API ph_status ph_treebank_read(ph_treebank **out, const char *path, const ph_io *io);
PH_API ph_status ph_treebank_parse(ph_treebank **out, const char *name, const char *bytes,
                                   size_t size, const ph_io *io);
PH_API void ph_treebank_free(ph_treebank *treebank); /* accepts NULL */

/* The i-th sentence and the name of the i-th relation; NULL after the last. Relation 0 is
   "all", which every dependency belongs to besides its own. */
PH_API const ph_tree *ph_treebank_sentence(const ph_treebank *treebank, int i);
PH_API const char *ph_treebank_relation(const ph_treebank *treebank, int i);

/* ---- scores ------------------------------------------------------------------------ */

typedef enum ph_direction { PH_TO_HEAD = 0, PH_FROM_HEAD, PH_DIRECTIONS } ph_direction;

typedef struct ph_syntax ph_syntax;

/* The treebank must outlive it. heads: how many there are in all, counted from 0. */
PH_API ph_status ph_syntax_create(ph_syntax **out, const ph_treebank *treebank, int heads,
                                  const ph_io *io);
PH_API void ph_syntax_free(ph_syntax *syntax); /* accepts NULL */

/* Sentence i has been read as `tokens` tokens; word_of (tokens) says the word of each,
   in order, or -1. Dependencies of words without a token are not counted. Ends the
   sentence before. */
PH_API ph_status ph_syntax_begin(ph_syntax *syntax, int i, const int *word_of, int tokens,
                                 const ph_io *io);

/* The weights of one head on this sentence, (tokens, tokens). causal 1: those of keys
   after the row are not read. */
PH_API ph_status ph_syntax_add(ph_syntax *syntax, int head, int causal,
                               const float *weights);

typedef struct ph_syntax_score {
    int64_t words; /* dependents of this relation that were counted */
    int head;      /* best one; -1: there was nothing to predict */
    ph_direction direction;
    int64_t right;    /* that it predicts */
    int offset;       /* best fixed one */
    int64_t baseline; /* that it predicts */
} ph_syntax_score;

PH_API ph_status ph_syntax_read(const ph_syntax *syntax, int relation,
                                ph_syntax_score *out);

/* What one head predicts of a relation; -1: no such head or relation. */
PH_API int64_t ph_syntax_right(const ph_syntax *syntax, int relation, int head,
                               ph_direction direction);

#ifdef __cplusplus
}
#endif
#endif
