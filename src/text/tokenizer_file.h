/*
 * tokenizer_file.h - a tokenizer.json while it is read: fields with their checks, and the
 * sections that are lists of components.
 */
#ifndef PH_TEXT_TOKENIZER_FILE_H
#define PH_TEXT_TOKENIZER_FILE_H

#include "text/json_tree.h"
#include "text/tokenizer.h"

typedef struct ph_tokenizer_file {
    ph_tokenizer *t;
    ph_json_tree tree;
    const char *name; /* of the file, for sentences */
    const ph_io *io;
} ph_tokenizer_file;

/* One component of a section: "normalizer", "pre_tokenizer", "post_processor" or
   "decoder", and the function for it. */
typedef ph_status ph_component_reader(ph_tokenizer_file *file, const ph_json_node *node);

/* Runs `read` on a component, or on each member of a Sequence; `list` is the key of its
   members. A section that is null has none. */
ph_status ph_file_components(ph_tokenizer_file *file, const ph_json_node *section,
                             const char *what, const char *list,
                             ph_component_reader *read);

/* PH_UNSUPPORTED with the name of the component; PH_BAD_FILE with the name of a field. */
ph_status ph_file_refuse(ph_tokenizer_file *file, const char *what,
                         const ph_json_node *node);
ph_status ph_file_bad(ph_tokenizer_file *file, const ph_json_node *node,
                      const char *field, const char *expected);

/* Fields of a component. usual: what a missing one means; -1: it must be there. */
ph_status ph_file_flag(ph_tokenizer_file *file, const ph_json_node *node,
                       const char *field, int usual, int *out);
ph_status ph_file_text(ph_tokenizer_file *file, const ph_json_node *node,
                       const char *field, const char **text, size_t *length);
ph_status ph_file_size(ph_tokenizer_file *file, const ph_json_node *node,
                       const char *field, size_t *out);

/* {"String": text} or {"Regex": expression} under `pattern`. */
ph_status ph_file_pattern(ph_tokenizer_file *file, const ph_json_node *node,
                          ph_pattern *pattern);

/* replacement, prepend_scheme and the older add_prefix_space of Metaspace. */
ph_status ph_file_metaspace(ph_tokenizer_file *file, const ph_json_node *node,
                            const char **mark, size_t *length, ph_prepend_when *when);

ph_component_reader ph_file_normalizer, ph_file_splitter, ph_file_processor,
    ph_file_decoder;
ph_status ph_file_model(ph_tokenizer_file *file, const ph_json_node *model);

#endif
