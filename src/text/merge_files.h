/*
 * merge_files.h - vocab.json and merges.txt of byte-level BPE as a tokenizer.json.
 */
#ifndef PH_TEXT_MERGE_FILES_H
#define PH_TEXT_MERGE_FILES_H

#include "io/io.h"

/* Files of one folder; only the first two must be there. */
typedef enum ph_merge_file {
    PH_MERGE_VOCAB,   /* vocab.json: {token: id} */
    PH_MERGE_PAIRS,   /* merges.txt: a pair of tokens per line, best first */
    PH_MERGE_ADDED,   /* added_tokens.json: {token: id} */
    PH_MERGE_SPECIAL, /* special_tokens_map.json: {"bos_token": token, ...} */
    PH_MERGE_OPTIONS, /* tokenizer_config.json: the class, options, both of the above */
    PH_MERGE_MODEL,   /* config.json: model_type where there is no class */
    PH_MERGE_FILES
} ph_merge_file;

/* text: NULL without such a file; else it has a NUL behind it, and is changed. */
typedef struct ph_merge_text {
    const char *name; /* for messages */
    char *text;
    size_t size;
} ph_merge_text;

/* *json, which ph_io_release gives back, ends with NUL. It says what the class of the
   tokenizer means in transformers; a class that is not known is refused by name. A
   special token that no file gives an id is left out: it has no embedding either. */
ph_status ph_merges_to_json(const ph_merge_text files[PH_MERGE_FILES], char **json,
                            size_t *length, const ph_io *io);

#endif
