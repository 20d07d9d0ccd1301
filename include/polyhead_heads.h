/*
 * polyhead_heads.h - measuring heads: what each one does, as measurements and labels
 *
 *     ph_heads_create   accumulators for layers x heads
 *     ph_heads_begin    starts a text: its length, what is known of its tokens
 *     ph_heads_add      rows of one head's weights, in order, a few at a time
 *     ph_heads_end      ends the text; its averages are added to those of earlier texts
 *     ph_heads_read     the measurements of one head                   -> ph_head_stats
 *     ph_head_labels    which rules fired on them, and with what value       -> ph_label
 *     ph_survey_create  all of this for reports of polyhead_view.h
 *     ph_rollout        what a row draws from the input through all layers
 *
 * One pass over every row: nothing of size rows x keys is stored, and the memory of a
 * head does not grow with the text. Sums are double and run in the order of the rows, so
 * heads may be fed in any order, or by several threads as long as each head has one.
 *
 * Rows and keys. Weights are A[i][j], row i a query, column j a key. Row i has position
 * p = i + q_offset among the keys. Padding is cut off by the caller. Every measure leaves
 * out rows whose weights are all zero and, in causal maps, the row at p = 0, which can
 * see nothing but itself. An average runs over the rows of a text, then over texts with
 * equal weight.
 */
#ifndef POLYHEAD_HEADS_H
#define POLYHEAD_HEADS_H

#include "polyhead_io.h"
#include "polyhead_view.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- measures ---------------------------------------------------------------------- */

typedef enum ph_measure {
    PH_PREV = 0,  /* weight on the key at p - 1, averaged over all n rows */
    PH_NEXT,      /* at p + 1 */
    PH_SELF,      /* at p */
    PH_FIRST,     /* on key 0, the sink */
    PH_SEP,       /* on separators */
    PH_PUNCT,     /* on full stops and commas */
    PH_BARE_PREV, /* the same with the sink (key 0) removed and rows renormalised */
    PH_BARE_NEXT,
    PH_BARE_SELF,
    PH_BARE_SEP,
    PH_BARE_PUNCT,
    PH_BARE_DUPLICATE, /* as PH_DUPLICATE and PH_INDUCTION below */
    PH_BARE_INDUCTION,
    PH_SEP_SEP,          /* on separators, rows of separators only */
    PH_REST_SEP,         /* on separators, the other rows only */
    PH_ENTROPY,          /* -sum A ln A */
    PH_BREADTH,          /* entropy / ln(keys the row may see), rows that may see two */
    PH_CONFIDENCE,       /* largest weight of a row; separators neither row nor key */
    PH_DISTANCE,         /* sum A |j - p| */
    PH_POSITIONAL,       /* share of rows whose largest weight is at the commonest offset,
                            of the rows where that offset is inside */
    PH_DUPLICATE,        /* on earlier keys of the same token, rows that have one */
    PH_DUPLICATE_CHANCE, /* what uniform weights would give there */
    PH_INDUCTION,        /* on keys just after an earlier token like this, such rows */
    PH_INDUCTION_CHANCE,
    PH_PREFIX_ENTRY, /* the same weights, averaged over entries instead of rows */
    PH_RAREST,       /* rows whose largest weight is on the rarest token of the text */
    PH_RARE,         /* ... on one of the two rarest; only texts whose rarest token is not
                        among the PH_COMMON_TOKENS most frequent */
    PH_RARE_CHANCE,
    PH_LINK, /* largest margin of a relation over its best fixed offset */
    PH_PATCH_DISTANCE, /* pictures: sum A d / sum A over patches, d between the centres of
                          row and key in pixels; rows of patches only */
    PH_MEASURES
} ph_measure;

enum {
    PH_REACH = 32, /* offsets from -32 to 32 are counted separately */
    PH_OFFSETS = 2 * PH_REACH + 1,
    PH_COMMON_TOKENS = 500,
    PH_MAX_MEASURES = 64, /* sizes of arrays, in any version */
    PH_MAX_LABELS = 32,
    PH_MAX_RELATIONS = 32
};

typedef struct ph_measure_info {
    const char *key;  /* "prev", as in JSON, CSV and the page's filter line */
    const char *name; /* "previous token" */
    const char *help; /* its definition in one sentence */
} ph_measure_info;

PH_API const ph_measure_info *ph_measure_about(ph_measure measure); /* NULL: no such */

/* How well one head finds the partners of one relation. */
typedef struct ph_link_score {
    int64_t links;    /* how many there were */
    int64_t right;    /* the row's largest weight, itself and separators left out, is on
                         the partner */
    int64_t baseline; /* how many a head that always attends at best_offset gets right */
    int best_offset;  /* commonest distance, key minus row, up to PH_REACH; of equally
                         common ones the shortest, then the one to the left */
} ph_link_score;

typedef struct ph_head_stats {
    double value[PH_MAX_MEASURES];  /* NaN: the texts held nothing to measure it on */
    int64_t count[PH_MAX_MEASURES]; /* rows, entries or links behind the value */
    int64_t rows, skipped;          /* rows counted, rows left out */
    int64_t invalid; /* rows that do not sum to 1 within 4e-3, or with weights that are
                        negative or non-finite; non-finite rows are left out */
    int64_t texts;
    int top_offset;           /* of PH_POSITIONAL */
    int64_t hits[PH_OFFSETS]; /* rows by offset of their largest weight, -PH_REACH.. */
    double mass[PH_OFFSETS];  /* mean weight at each offset */
    int relation;             /* of PH_LINK; -1: none */
    ph_link_score link[PH_MAX_RELATIONS];
    uint64_t reserved[8];
} ph_head_stats;

/* ---- texts ------------------------------------------------------------------------- */

/* Classes of tokens, as bits. */
enum { PH_CLASS_SEPARATOR = 1, PH_CLASS_PUNCTUATION = 2 };

/* The classes of a token from its text: separators are [SEP], </s>, <eos>, <sep>, <|...|>
   and the like; punctuation is exactly a full stop or a comma (Latin or Chinese). Markers
   of leading blanks (U+2581, U+0120, a blank) are ignored. */
PH_API uint8_t ph_token_classes(const char *token);

/* A known relation between two tokens: row `from` should attend to key `to`. */
typedef struct ph_link {
    int from, to, relation; /* relation < PH_MAX_RELATIONS */
} ph_link;

/* What is known of a text. Pointers that are NULL: not known, and what needs it is not
   measured. They must stay until ph_heads_end. */
typedef struct ph_heads_text {
    int rows, keys;
    int q_offset;           /* position of row 0 among the keys */
    int causal;             /* 1: row i sees keys up to its position */
    int cross;              /* 1: rows are tokens of another text than the keys */
    const int32_t *ids;     /* (keys) equal ids are the same token */
    const uint8_t *classes; /* (keys) PH_CLASS_ bits */
    const int32_t *ranks;   /* (keys) 0 is the most frequent token; negative: not known */
    const ph_link *links;   /* not for cross; both ends inside the text */
    int link_count;
    int patch_first;   /* a picture: its first patch, row by row from there */
    int patch_columns; /* patches of a row; 0: there is no picture */
    int patch_size;    /* pixels of a side */
    uint64_t reserved[3];
} ph_heads_text;

/* ---- accumulators ------------------------------------------------------------------ */

typedef struct ph_heads ph_heads;

PH_API ph_status ph_heads_create(ph_heads **out, int layers, int heads, const ph_io *io);
PH_API void ph_heads_free(ph_heads *heads); /* accepts NULL */

PH_API ph_status ph_heads_begin(ph_heads *heads, const ph_heads_text *text,
                                const ph_io *io);
/* Rows row0 .. row0 + rows - 1 of one head, (rows, keys). Each head's rows come in order,
   each once; a row that never comes is not counted. */
PH_API ph_status ph_heads_add(ph_heads *heads, int layer, int head, int row0, int rows,
                              const float *weights);
PH_API void ph_heads_end(ph_heads *heads);

PH_API ph_status ph_heads_read(const ph_heads *heads, int layer, int head,
                               ph_head_stats *out);

/* ---- labels ------------------------------------------------------------------------ */

/* A rule: a head has the label when its measure is above (or at) the threshold, was taken
   from at least `min_count` rows or links and, where there is a chance level, is at least
   PH_TIMES_CHANCE times that. Where the rule has a bare measure and a tenth of the weight
   or more is not on the first token, that one counts too: a sink takes the more weight
   the longer the text, and must not hide what a head does with the rest. */
enum { PH_TIMES_CHANCE = 3, PH_LABELS = 12 };

typedef struct ph_label_rule {
    char glyph;       /* 'P' */
    const char *key;  /* "prev" */
    const char *name; /* "previous token" */
    const char *help; /* the rule as a sentence, threshold included */
    ph_measure measure;
    int at; /* 1: a value equal to the threshold is enough */
    double threshold;
    int chance; /* measure of the chance level; -1: none */
    int bare;   /* measure without the first token; -1: none */
    int64_t min_count;
} ph_label_rule;

/* The i-th rule, most telling first; NULL after the last. */
PH_API const ph_label_rule *ph_label_rules(int i);

typedef struct ph_label {
    const ph_label_rule *rule;
    double value;
    int bare; /* 1: of the rule's bare measure */
} ph_label;

/* Every rule that fires, most telling first, but "self" before all others; returns how
   many, possibly none. */
PH_API int ph_head_labels(const ph_head_stats *head, ph_label labels[PH_MAX_LABELS]);

/* "prev 0.83 > 0.50", "positional -1 in 0.97 >= 0.90", "link coref +0.42 >= 0.10"; like
   snprintf. relations: names, or NULL. */
PH_API int ph_label_why(const ph_label *label, const ph_head_stats *head,
                        const char *const *relations, char *text, size_t size);

/* ---- whole reports ----------------------------------------------------------------- */

/* Measures every head of a report of polyhead_view.h, on its text and any number of
   others, and writes measures and labels into a report. */
typedef struct ph_survey ph_survey;

/* Reads only the stacks of the report: their layers and heads. */
PH_API ph_status ph_survey_create(ph_survey **out, const ph_report *report,
                                  const ph_io *io);
PH_API void ph_survey_free(ph_survey *survey); /* accepts NULL */

/* What is known of a text besides the words of its report; every field is optional. */
typedef struct ph_survey_facts {
    const int32_t *const *ids;     /* per axis; NULL: equal words are the same token */
    const uint8_t *const *classes; /* per axis; NULL: by ph_token_classes */
    const int32_t *const *ranks;   /* per axis */
    const ph_link *links;          /* within axis 0 */
    int link_count;
    ph_ctx *ctx; /* its threads measure several heads at a time, with the same bits;
                    NULL: the calling thread alone */
    uint64_t reserved[4];
} ph_survey_facts;

/* Reads every weight of a report with the same stacks once, a few rows at a time. */
PH_API ph_status ph_survey_text(ph_survey *survey, const ph_report *report,
                                const ph_survey_facts *facts, const ph_io *io);

/* Points the report's metrics, roles and found, and in a copy of its stacks scores,
   role, why and offsets, at what was found in all texts. The survey owns all of that,
   so the report must not be used after it is freed. relations: names of relations, or
   NULL. May be called once. */
PH_API ph_status ph_survey_end(ph_survey *survey, ph_report *report,
                               const char *const *relations, const ph_io *io);

/* Attention rollout (Abnar and Zuidema, 2020): how much of each token of the input is in
   row `row` behind the last layer of a self-attention stack, if a layer passes on half of
   its input and half of what its heads, averaged, attend to. out (keys), which sums to 1.
   A row of weights that does not sum to 1 counts as if it did; one of zeros passes on its
   input alone. Weights are read a few rows at a time. */
PH_API ph_status ph_rollout(const ph_report *report, int stack, int row, float *out,
                            const ph_io *io);

/* All measurements of one head; NULL: there is none. */
PH_API const ph_head_stats *ph_survey_head(const ph_survey *survey, int stack, int layer,
                                           int head);

#ifdef __cplusplus
}
#endif
#endif
