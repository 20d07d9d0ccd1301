/*
 * polyhead_convert.h - attention of another kind from the weights a model has
 *
 *     ph_convert  mha -> gqa:G, mqa    key and value heads are aligned and merged
 *                 gqa -> mha           exact: heads are copied
 *                 mha -> collab:R      one query and key for all heads, by decomposition
 *                 mha -> a variant     its heads begin with the weights of plain ones
 *
 * Merging. A value head may be multiplied by any matrix R whose inverse goes to its rows
 * of wo, and a key head by an orthogonal R if its queries are too; with rotary positions
 * R consists of one rotation for each rotated pair. Such an R changes nothing, so heads
 * of a group are first brought as close together as these R allow, and only merging loses
 * something. What "close" means is measured on texts; without texts, on the weights.
 *
 * The rules of polyhead.h hold here too: a conversion that is refused leaves the model as
 * it was.
 */
#ifndef POLYHEAD_CONVERT_H
#define POLYHEAD_CONVERT_H

#include "polyhead_model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ph_alignment {
    PH_ALIGN_FULL = 0, /* as freely as positions allow: rotary ones pair by pair */
    PH_ALIGN_PAIR,     /* keys pair by pair whatever the positions, values freely */
    PH_ALIGN_NONE
} ph_alignment;

typedef enum ph_grouping {
    PH_GROUP_SIMILAR = 0, /* heads that are close after alignment: the best groups up to
                             16 heads, simulated annealing beyond. ALiBi and T5 positions
                             belong to head numbers: PH_GROUP_CONSECUTIVE there */
    PH_GROUP_CONSECUTIVE
} ph_grouping;

typedef enum ph_merging {
    PH_MERGE_FIT = 0, /* least squares: what loses least of the scores and of the output
                         of a group, with any matrices R in place of rotations. The mean
                         where heads are not aligned */
    PH_MERGE_MEAN,
    PH_MERGE_FIRST, /* the first head of each group */
    PH_MERGE_RANDOM /* new values, as ph_model_create makes them */
} ph_merging;

typedef struct ph_conversion {
    char to[PH_VARIANT_TEXT]; /* "gqa:G", "mqa", "mha", "collab:R"; "collab": with the
                                 smallest R that has the error below; or variants that
                                 have the weights of plain heads, "mohsa:overlap=2", also
                                 as a list, as in ph_config */
    ph_alignment align;
    ph_grouping group;
    ph_merging merge;
    int renorm;     /* 1: merged heads get back the norm of their members. Means of
                       heads that differ are short, and short keys flatten the softmax */
    double error;   /* "collab": of the scores of every layer, at most */
    int max_tokens; /* of a text; 0: 512 */
    uint64_t seed;  /* of simulated annealing, PH_MERGE_RANDOM, and what dcmha adds */
    uint64_t reserved[8];
} ph_conversion;

/* What one attention site lost, on the texts. Errors are relative: the root of the mean
   square of the difference over that of the original. */
typedef struct ph_converted_site {
    ph_site_kind kind;
    int decoder, layer;
    double key_error; /* of keys; collab: of the scores; variants: NaN */
    double value_error; /* variants: NaN */
    double key_norm; /* of merged heads over that of their members, before renorm */
    double value_norm;
    int kv_heads;        /* before */
    const int *group_of; /* (kv_heads) the new head that each went into; or NULL */
    uint64_t reserved[4];
} ph_converted_site;

typedef struct ph_conversion_report {
    int site_count;
    const ph_converted_site *sites;
    double loss, converted_loss; /* mean per predicted token of the texts kept for the
                                    test; NaN where the model predicts no next token */
    double distance;             /* relative, of the output of the last stack there */
    int64_t kv_bytes, converted_kv_bytes; /* cached for a token, all layers, as f32 */
    int64_t parameters, converted_parameters;
    int tokens, test_tokens; /* that errors, and the loss, were measured on */
    uint64_t reserved[8];
} ph_conversion_report;

/* Converts all attention of the model, which then owns all its parameters as f32; what
   uses the model goes first. texts: to align heads by, and (the second half of them, or
   the only one) to measure the loss on; an encoder-decoder needs pairs, an encoder of
   pictures takes paths; NULL: weights only. report: NULL, or freed by
   ph_conversion_report_free. Takes memory for a second model as f32 and, for every site,
   a matrix of (model_dim + 1)^2 doubles. */
PH_API ph_status ph_convert(ph_model *model, const ph_conversion *how,
                            const ph_texts *texts, ph_conversion_report **report);
PH_API void ph_conversion_report_free(ph_conversion_report *report); /* accepts NULL */

#ifdef __cplusplus
}
#endif
#endif
