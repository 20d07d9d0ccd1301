/*
 * tokenizer.h - what a tokenizer consists of. Readers of files fill one in through the
 * functions below; encode.c and detokenize.c use it.
 */
#ifndef PH_TEXT_TOKENIZER_H
#define PH_TEXT_TOKENIZER_H

#include "polyhead_text.h"
#include "text/models.h"
#include "text/steps.h"

typedef struct ph_added_token {
    int32_t id;
    const char *text; /* as it is searched for, and decoded */
    uint32_t length;
    unsigned char special, normalized, single_word, left, right; /* strips white space */
} ph_added_token;

/* Added tokens that are searched for together: in the raw text, or in the normalized. */
typedef struct ph_added_set {
    ph_trie trie; /* text -> index of the added token */
    size_t count;
    unsigned char begins[256]; /* bytes a token begins with */
} ph_added_set;

enum { PH_TEMPLATE_A = -1, PH_TEMPLATE_B = -2 };

typedef struct ph_template_item {
    int32_t id;   /* of a token, or PH_TEMPLATE_A, PH_TEMPLATE_B */
    int32_t type; /* token type; -1: as it is */
} ph_template_item;

typedef struct ph_template {
    ph_template_item *items;
    size_t count, capacity;
} ph_template;

typedef enum ph_decoder_kind {
    PH_DECODE_JOIN =
        0,           /* a separator between tokens: what a file without decoder means */
    PH_DECODE_BYTES, /* the byte alphabet back to bytes */
    PH_DECODE_WORDPIECE, /* blanks between words */
    PH_DECODE_METASPACE,
    PH_DECODE_REPLACE,
    PH_DECODE_BYTE_FALLBACK,
    PH_DECODE_FUSE,
    PH_DECODE_STRIP
} ph_decoder_kind;

typedef struct ph_decode_step {
    ph_decoder_kind kind;
    ph_pattern pattern;
    const char *text; /* prefix of WordPiece, mark of Metaspace, content, character */
    size_t length;
    size_t left, right; /* of STRIP */
    int cleanup;        /* of WordPiece */
    int keep_first;     /* of Metaspace: the first mark stays a blank */
} ph_decode_step;

typedef struct ph_tokenizer {
    ph_io io; /* hooks */
    ph_unicode unicode;
    ph_token_table tokens;
    ph_cut_model model;
    ph_step *normalizers, *splitters;
    size_t normalizer_count, normalizer_capacity, splitter_count, splitter_capacity;
    ph_added_token *added;
    size_t added_count, added_capacity;
    ph_added_set raw, normalized;
    ph_template single, pair;
    int has_template;
    int trim_offsets, trim_keeps_one; /* blanks are not part of a token's offsets */
    ph_decode_step *decoders;
    size_t decoder_count, decoder_capacity;
    char **texts; /* texts that steps point to */
    size_t text_count, text_capacity;
    size_t max_tokens; /* what the file says; not applied */
    int32_t padding;
} ph_tokenizer;

/* What tokenizer_config.json and sentence_bert_config.json say of a tokenizer, on top of
   its file. */
typedef enum ph_token_option {
    PH_OPTION_UNSAID = 0, /* as the file has it */
    PH_OPTION_NO,
    PH_OPTION_YES
} ph_token_option;

typedef struct ph_token_options {
    ph_token_option lowercase, accents, chinese; /* of BERT's normalizer */
    ph_token_option prefix_space;                /* of ByteLevel alone */
    ph_token_option trim_offsets, trim_keeps_one; /* byte-level within a template */
    ph_token_option lowercase_first; /* before all normalizers, unless one does it */
} ph_token_options;

/* Before a tokenizer is finished: its steps become those that the options ask for. Steps
   that a tokenizer does not have are left alone. */
ph_status ph_tokenizer_apply(ph_tokenizer *t, const ph_token_options *options);

/* The options that would make its steps what they are. */
ph_token_options ph_tokenizer_options(const ph_tokenizer *t);

/* ph_tokenizer_read and ph_tokenizer_parse with options; NULL: none. */
ph_status ph_tokenizer_read_as(ph_tokenizer **out, const char *path,
                               const ph_token_options *options, const ph_io *io);
ph_status ph_tokenizer_parse_as(ph_tokenizer **out, const char *name, const void *bytes,
                                size_t size, const ph_token_options *options,
                                const ph_io *io);

/* An empty tokenizer; to be freed by ph_tokenizer_free at any stage. */
ph_status ph_tokenizer_new(ph_tokenizer **out, const ph_io *io);

/* A copy of a text that lives as long as the tokenizer; NULL: no memory. */
char *ph_tokenizer_copy(ph_tokenizer *t, const char *text, size_t length);

ph_status ph_add_normalizer(ph_tokenizer *t, ph_step step);
ph_status ph_add_splitter(ph_tokenizer *t, ph_step step);
ph_status ph_add_decoder(ph_tokenizer *t, ph_decode_step step);
ph_status ph_template_add(ph_tokenizer *t, ph_template *list, int32_t id, int32_t type);

/* An added token; its text is copied. After the last one ph_tokenizer_finish makes it
   ready: tries, tables of bytes and the like. */
ph_status ph_add_token(ph_tokenizer *t, ph_added_token token);
ph_status ph_tokenizer_finish(ph_tokenizer *t, const ph_io *io);

/* The end of every reader: *out becomes the finished tokenizer, or it is freed. */
ph_status ph_tokenizer_deliver(ph_tokenizer *t, ph_status status, ph_tokenizer **out,
                               const ph_io *io);

/* The steps and decoders that several kinds of files mean. */
ph_status ph_setup_byte_level(ph_tokenizer *t, int prefix_space, int use_regex);
ph_status ph_setup_bert(ph_tokenizer *t, const ph_word_options *options);
ph_status ph_setup_metaspace(ph_tokenizer *t, const char *mark, size_t length,
                             ph_prepend_when when, int split);
ph_status ph_setup_wordpiece_trie(ph_tokenizer *t, const char *prefix, size_t length,
                                  const ph_io *io);
ph_status ph_add_bert_template(ph_tokenizer *t, int32_t cls, int32_t sep);
/* more: pieces without an id; scores of the model are those of their values. */
ph_status ph_setup_unigram(ph_tokenizer *t, const ph_trie_key *more, size_t more_count,
                           const ph_io *io);

/* One reader per kind of file; they fill an empty tokenizer. The bytes may be changed. */
ph_status ph_read_tokenizer_json(ph_tokenizer *t, const char *name, char *bytes,
                                 size_t size, const ph_io *io);
ph_status ph_read_vocab_txt(ph_tokenizer *t, const char *name, const char *bytes,
                            size_t size, const ph_io *io);
ph_status ph_read_tokenizer_bin(ph_tokenizer *t, const char *name, const char *bytes,
                                size_t size, const ph_io *io);

/* Merges from scores: every pair whose union is a token, the best score first. */
ph_status ph_merges_of_scores(ph_tokenizer *t, const float *scores, size_t count,
                              const ph_io *io);

/* The tokens so far were a prompt: what is held back of them is no part of the text that
   goes on. */
ph_status ph_detokenize_prompt(ph_detokenizer *d);

/* ---- added tokens in a text ---- */

typedef struct ph_found {
    size_t start, end;
    const ph_added_token *token;
} ph_found;

/* The next added token of the set in [*at, length), white space it swallows included;
   `taken` is the end of the one before. Moves *at behind it. 0: there is none. */
int ph_added_find(const ph_tokenizer *t, const ph_added_set *set, const char *text,
                  size_t length, size_t *at, size_t taken, int special_as_text,
                  ph_found *found);

#endif
