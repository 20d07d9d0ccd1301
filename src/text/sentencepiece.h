/*
 * sentencepiece.h - the files of a Marian model as a tokenizer.json.
 */
#ifndef PH_TEXT_SENTENCEPIECE_H
#define PH_TEXT_SENTENCEPIECE_H

#include "io/io.h"

/* pieces: source.spm or target.spm, a model of SentencePiece; vocab: vocab.json,
   {piece: id}, which is changed. Both have names for messages. */
typedef struct ph_spm_files {
    const char *pieces_name, *vocab_name;
    const unsigned char *pieces;
    size_t pieces_size;
    char *vocab;
    size_t vocab_size;
} ph_spm_files;

/* *json, which ph_io_release gives back, ends with NUL. Tokens that are no pieces have a
   score of null in it: no text is cut into them; pieces without an id stand in a list
   `unknown_pieces`: a text is cut into them, and they are the unknown token then. */
ph_status ph_spm_to_json(const ph_spm_files *files, char **json, size_t *length,
                         const ph_io *io);

#endif
