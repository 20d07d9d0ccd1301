/*
 * polyhead_maps.h - anybody's attention maps, from a file, as a report to look at
 *
 *     ph_maps_read    a safetensors file of weights, and files of words     -> ph_maps
 *     ph_maps_report  its axes, stacks and weights
 *
 * Weights. Tensors F32, F16 or BF16 of rank 4 (layers, heads, rows, keys), or of rank 3
 * (heads, rows, keys) or 4 (1, heads, rows, keys), one per layer. Tensors whose names
 * differ in their last number only are the layers of one stack, in the order of that
 * number; other names are other stacks ("encoder", "decoder", "cross"). Layers of a stack
 * may have different numbers of heads. A stack is taken as causal when every weight above
 * the bottom-right aligned diagonal is exactly zero.
 *
 * Words. One per line, or one JSON list of strings; tokenizers' markers of a leading
 * blank (U+2581, U+0120) are removed. Without a file, words are numbered. `tokens` are
 * the keys, and the rows too unless `row_tokens` is given; a stack takes the text whose
 * length fits, and a stack with "cross" in its name has rows of row_tokens and keys of
 * tokens.
 */
#ifndef POLYHEAD_MAPS_H
#define POLYHEAD_MAPS_H

#include "polyhead_view.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ph_maps_files {
    const char *weights;
    const char *tokens;     /* or NULL */
    const char *row_tokens; /* or NULL */
    uint64_t reserved[2];
} ph_maps_files;

typedef struct ph_maps ph_maps;

PH_API ph_status ph_maps_read(ph_maps **out, const ph_maps_files *files, const ph_io *io);
PH_API void ph_maps_free(ph_maps *maps); /* accepts NULL */

/* Fills title, axes, stacks and weights; the report lives as long as the maps. */
PH_API ph_report ph_maps_report(const ph_maps *maps);

#ifdef __cplusplus
}
#endif
#endif
