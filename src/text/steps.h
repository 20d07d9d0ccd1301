/*
 * steps.h - what happens to a text before the model cuts it into tokens: normalizers
 * rewrite it, pre-tokenizers split it into pieces.
 *
 * Both are lists of the same few steps, which act on every piece in turn; a text that is
 * being normalized is a single piece.
 */
#ifndef PH_TEXT_STEPS_H
#define PH_TEXT_STEPS_H

#include "text/aligned.h"
#include "text/charsmap.h"
#include "text/pattern.h"

typedef enum ph_step_kind {
    PH_STEP_BERT = 0,      /* BERT's cleaning, by clean, chinese, accents, lowercase */
    PH_STEP_LOWERCASE,     /* per code point, full mappings */
    PH_STEP_NORMAL_FORM,   /* compose, compatibility: NFC, NFD, NFKC, NFKD */
    PH_STEP_STRIP_ACCENTS, /* drops all marks */
    PH_STEP_STRIP,         /* white space at the left, the right end */
    PH_STEP_CHARSMAP,      /* a precompiled character map */
    PH_STEP_REPLACE,       /* pattern by text */
    PH_STEP_PREPEND,       /* text before a piece, as `when` says */
    PH_STEP_SPLIT          /* by pattern, behavior, invert */
} ph_step_kind;

typedef enum ph_prepend_when {
    PH_PREPEND_ALWAYS = 0,
    PH_PREPEND_MISSING,       /* unless the piece begins with the text */
    PH_PREPEND_MISSING_FIRST, /* the same, and only at the start of the original text */
    PH_PREPEND_NEVER
} ph_prepend_when;

typedef enum ph_split_behavior {
    PH_SPLIT_REMOVED = 0,
    PH_SPLIT_ISOLATED,
    PH_SPLIT_MERGED_WITH_PREVIOUS,
    PH_SPLIT_MERGED_WITH_NEXT,
    PH_SPLIT_CONTIGUOUS
} ph_split_behavior;

typedef struct ph_step {
    ph_step_kind kind;
    ph_pattern pattern;
    const char *text; /* of REPLACE and PREPEND */
    size_t length;
    ph_charsmap charsmap;
    ph_prepend_when when;
    ph_split_behavior behavior;
    int invert;
    int clean, chinese, accents, lowercase; /* of BERT */
    int compose, compatibility;             /* of NORMAL_FORM */
    int left, right;                        /* of STRIP */
} ph_step;

typedef struct ph_text_range {
    uint32_t start, end; /* bytes of an aligned text */
} ph_text_range;

/* Pieces of an aligned text, and a second text and list that a step writes to. */
typedef struct ph_pieces {
    const ph_io *io;
    const ph_unicode *unicode;
    ph_aligned text, next_text;
    ph_text_range *items, *next_items;
    size_t count, capacity, next_count, next_capacity;
    ph_changes changes, sorted; /* scratch of the normal forms */
    ph_aligned decomposed;      /* scratch of BERT's cleaning */
} ph_pieces;

void ph_pieces_init(ph_pieces *pieces, const ph_unicode *unicode, const ph_io *io);
void ph_pieces_free(ph_pieces *pieces);

/* Makes [start, end) of the original, or of a text that was rewritten, the only piece; of
   an empty one there is none. */
ph_status ph_pieces_load(ph_pieces *pieces, const char *original, size_t start,
                         size_t end);
ph_status ph_pieces_load_part(ph_pieces *pieces, const ph_aligned *text, size_t start,
                              size_t end);
ph_status ph_pieces_run(ph_pieces *pieces, const ph_step *steps, size_t count);

/* One rewriting step on [start, end) of pieces->text; appends to pieces->next_text. */
ph_status ph_step_normal_form(ph_pieces *pieces, const ph_step *step,
                              ph_text_range range);
ph_status ph_step_bert(ph_pieces *pieces, const ph_step *step, ph_text_range range);
ph_status ph_step_charsmap(ph_pieces *pieces, const ph_step *step, ph_text_range range);

#endif
