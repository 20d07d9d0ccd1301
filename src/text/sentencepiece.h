/*
 * sentencepiece.h - the files of a Marian model as a tokenizer.json.
 */
#ifndef PH_TEXT_SENTENCEPIECE_H
#define PH_TEXT_SENTENCEPIECE_H

#include "io/io.h"

/* pieces: source.spm, a model of SentencePiece; vocab: vocab.json, {piece: id}, which is
   changed. Both have names for messages. */
typedef struct ph_spm_files {
    const char *pieces_name, *vocab_name;
    const unsigned char *pieces;
    size_t pieces_size;
    char *vocab;
    size_t vocab_size;
} ph_spm_files;

/* *json, which ph_io_release gives back, ends with NUL. Pieces that only the target has
   get a score so low that a text is cut into them only where nothing else fits; pieces of
   the source without an id are left out, and unknown. */
ph_status ph_spm_to_json(const ph_spm_files *files, char **json, size_t *length,
                         const ph_io *io);

#endif
