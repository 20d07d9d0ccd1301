/*
 * models.h - the four models that cut a piece of text into tokens: WordPiece, WordLevel,
 * BPE and Unigram.
 *
 * A model is immutable; what a call needs beside it is ph_cutter, one per thread.
 */
#ifndef PH_TEXT_MODELS_H
#define PH_TEXT_MODELS_H

#include "text/token_table.h"
#include "text/trie.h"

typedef enum ph_model_kind {
    PH_MODEL_WORDPIECE = 0,
    PH_MODEL_BPE,
    PH_MODEL_UNIGRAM,
    PH_MODEL_WORDLEVEL /* a piece is a token, or unknown */
} ph_model_kind;

typedef struct ph_pair_slot {
    uint64_t pair; /* left id << 32 | right id; UINT64_MAX: free */
    uint32_t rank;
    int32_t merged; /* id of the union */
} ph_pair_slot;

typedef struct ph_cut_model {
    ph_model_kind kind;
    const ph_token_table *tokens;
    int32_t unknown;    /* id of the unknown token, or PH_TOKEN_NONE */
    int32_t bytes[256]; /* BPE on bytes: their ids; else ids of <0x00> to <0xFF> */
    int byte_fallback, fuse_unknown;

    /* WordPiece and Unigram */
    ph_trie trie;
    size_t max_characters; /* of a WordPiece piece */
    uint32_t continuing;   /* node of the trie behind the prefix of later parts */
    int has_continuing;
    double *scores, unknown_score; /* of Unigram, by id */

    /* BPE */
    int byte_level, ignore_merges;
    int32_t ascii[128]; /* ids of ASCII characters */
    ph_pair_slot *pairs;
    size_t pair_slots;     /* more than there are pairs, or 0 */
    const char *word_mark; /* begins words that no merge joins; NULL: no such mark */
    size_t word_mark_length;
} ph_cut_model;

typedef struct ph_cut { /* one token of a piece */
    int32_t id;
    uint32_t start, end; /* bytes of the piece */
} ph_cut;

typedef struct ph_symbol {
    int32_t id;
    uint32_t length;      /* bytes; 0: merged into the one before */
    int32_t before, next; /* indices; -1: none */
} ph_symbol;

typedef struct ph_merge {
    uint32_t rank;
    int32_t at, merged;
} ph_merge;

typedef struct ph_path {
    double score;
    int32_t id;
    uint32_t start;
} ph_path;

/* Scratch of one thread, and what the last calls appended. */
typedef struct ph_cutter {
    const ph_io *io;
    ph_cut *cuts;
    size_t count, capacity;
    ph_symbol *symbols;
    size_t symbol_count, symbol_capacity;
    ph_merge *heap;
    size_t heap_count, heap_capacity;
    ph_path *paths;
    size_t path_capacity;
    char *mapped; /* a piece in the alphabet of byte-level vocabularies */
    size_t mapped_capacity;
} ph_cutter;

void ph_cutter_free(ph_cutter *cutter);
ph_status ph_cutter_add(ph_cutter *cutter, int32_t id, size_t start, size_t end);

/* Appends the tokens of a piece; a piece is valid UTF-8 and not empty. */
ph_status ph_cut_piece(const ph_cut_model *model, ph_cutter *cutter, const char *piece,
                       size_t length);
ph_status ph_cut_bpe(const ph_cut_model *model, ph_cutter *cutter, const char *piece,
                     size_t length);
ph_status ph_cut_unigram(const ph_cut_model *model, ph_cutter *cutter, const char *piece,
                         size_t length);

/* The token of the model with that text; added tokens that are no part of it are not. */
int32_t ph_model_find(const ph_cut_model *model, const char *text, size_t length);

/* Fills bytes[] with the ids of "<0x00>" to "<0xFF>". */
void ph_model_find_bytes(ph_cut_model *model);

/* Makes the table of pairs empty for `count` of them, or adds one; the last of equal
   pairs counts. */
ph_status ph_model_pairs(ph_cut_model *model, size_t count, const ph_io *io);
void ph_model_add_pair(ph_cut_model *model, int32_t left, int32_t right, uint32_t rank,
                       int32_t merged);

/* Finds out if no merge joins what stands before a blank with the blank: then words can
   be cut one by one, which is faster than a long text at once. */
void ph_model_find_words(ph_cut_model *model);

#endif
