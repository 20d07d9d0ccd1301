/*
 * polyhead_text.h - text to tokens and back, as published models expect it
 *
 *     ph_tokenizer_read   tokenizer.json, vocab.txt or tokenizer.bin     -> ph_tokenizer
 *     ph_encode           a text: ids, and where in the text they stand
 *     ph_detokenize       ids, one after the other: text
 *
 * Models: WordPiece, WordLevel, byte-level BPE, BPE with byte fallback, Unigram. Ids and
 * offsets are those of the reference implementation, the package `tokenizers`; a file
 * with a component that is not known here is refused with its name.
 *
 * A tokenizer is immutable and may be shared by threads; encoders and detokenizers belong
 * to one thread. Text is UTF-8; invalid bytes are refused, with their place.
 */
#ifndef POLYHEAD_TEXT_H
#define POLYHEAD_TEXT_H

#include "polyhead_io.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ph_tokenizer ph_tokenizer;

/* Reads a file, or its bytes from memory (`name` stands in error sentences):
   tokenizer.json, BERT's vocab.txt (taken for a model without capitals; else use
   ph_tokenizer_of_words) or tokenizer.bin of llama2.c, told apart by content. Memory
   hooks in io must live as long as the tokenizer. PH_BAD_FILE: malformed.
   PH_UNSUPPORTED: a component is not known. */
PH_API ph_status ph_tokenizer_read(ph_tokenizer **out, const char *path, const ph_io *io);
PH_API ph_status ph_tokenizer_parse(ph_tokenizer **out, const char *name,
                                    const void *bytes, size_t size, const ph_io *io);
PH_API void ph_tokenizer_free(ph_tokenizer *tokenizer); /* accepts NULL */

/* The tokenizer of a model: a Hugging Face folder, with the options that its
   tokenizer_config.json has; a GGUF file; or a file as above. */
PH_API ph_status ph_tokenizer_open(ph_tokenizer **out, const char *path, const ph_io *io);

/* ---- tokenizers without a tokenizer.json ---- */

typedef struct ph_chars {
    const char *text; /* UTF-8, need not end with NUL */
    size_t length;
} ph_chars;

/* BERT from the lines of vocab.txt; the index of a token is its id. */
typedef struct ph_word_options {
    int keep_case;     /* 1: a model with capitals (do_lower_case false) */
    int keep_accents;  /* 1: accents stay although capitals go (strip_accents false) */
    int strip_accents; /* 1: accents go although capitals stay */
    int keep_chinese;  /* 1: no blanks around Chinese characters */
} ph_word_options;

PH_API ph_status ph_tokenizer_of_words(ph_tokenizer **out, const ph_chars *tokens,
                                       size_t count, const ph_word_options *options,
                                       const ph_io *io);

/* The arrays under `tokenizer.ggml.` in a GGUF file. Zero and NULL: absent; ids are -1
   when absent. */
typedef struct ph_gguf_tokens {
    const char *model;      /* "llama", "gpt2", "bert" or "t5" */
    const char *pre;        /* how gpt2 splits: "llama-bpe", "smollm", ... */
    const ph_chars *tokens; /* `count` of them */
    size_t count;
    const float *scores;    /* `count`, of llama and t5 */
    const int32_t *types;   /* `count`; 3 control, 4 user, 6 byte, ... */
    const ph_chars *merges; /* "left right", of gpt2 */
    size_t merge_count;
    int32_t bos, eos, unknown, separator, padding;
    int add_bos, add_eos;          /* 0 no, 1 yes, -1 absent: what is usual */
    int add_space_prefix;          /* the same */
    int remove_extra_whitespaces;  /* the same */
    const unsigned char *charsmap; /* precompiled_charsmap, of t5 */
    size_t charsmap_size;
} ph_gguf_tokens;

PH_API ph_status ph_tokenizer_of_gguf(ph_tokenizer **out, const ph_gguf_tokens *tokens,
                                      const ph_io *io);

/* ---- the vocabulary ---- */

typedef struct ph_tokenizer_info {
    const char *model; /* "WordPiece", "WordLevel", "BPE", "Unigram" */
    size_t vocab_size; /* one more than the largest id */
    int32_t unknown;   /* ids, -1 where there is none or the file does not say */
    int32_t padding;
    size_t max_tokens;   /* the truncation a file asks for; 0: none. Never applied: the
                             caller decides, see ph_encode_args */
    size_t added_tokens; /* tokens the template puts around one text */
} ph_tokenizer_info;

PH_API ph_tokenizer_info ph_tokenizer_about(const ph_tokenizer *tokenizer);

/* The id of a token by its text as the file spells it, or -1. */
PH_API int32_t ph_tokenizer_id(const ph_tokenizer *tokenizer, const char *text,
                               size_t length);

/* The text of a token as the file spells it, with a NUL behind it; NULL: no such id. */
PH_API const char *ph_tokenizer_token(const ph_tokenizer *tokenizer, int32_t id,
                                      size_t *length);

PH_API int ph_tokenizer_is_special(const ph_tokenizer *tokenizer, int32_t id);

/* ---- text to tokens ---- */

typedef struct ph_text_token {
    int32_t id;
    int32_t type;      /* token type: 0, or 1 in the second text of a pair */
    int32_t sequence;  /* 0 first text, 1 second, -1: the template put it there */
    int32_t special;   /* 1: a special token, from the text or from the template */
    size_t start, end; /* bytes of its text; 0, 0 for tokens of the template */
} ph_text_token;

typedef struct ph_encode_args {
    const char *text;
    size_t length;
    const char *pair; /* a second text, or NULL */
    size_t pair_length;
    int bare;            /* 1: without the tokens of the template */
    int special_as_text; /* 1: the text cannot spell special tokens; for untrusted text */
    size_t max_tokens;   /* truncate to this many, the template's included; 0: all */
    int truncate_left;   /* 1: from the start of the text */
} ph_encode_args;

typedef struct ph_encoder ph_encoder;

/* Memory hooks and error text of io are used by all calls on the encoder. */
PH_API ph_status ph_encoder_create(ph_encoder **out, const ph_tokenizer *tokenizer,
                                   const ph_io *io);
PH_API void ph_encoder_free(ph_encoder *encoder); /* accepts NULL */

/* The tokens live until the next call. PH_BAD_VALUE: the text is not valid UTF-8. */
PH_API ph_status ph_encode(ph_encoder *encoder, const ph_encode_args *args,
                           const ph_text_token **tokens, size_t *count);

/* ---- tokens to text ---- */

typedef struct ph_detokenizer ph_detokenizer;

PH_API ph_status ph_detokenizer_create(ph_detokenizer **out,
                                       const ph_tokenizer *tokenizer, int skip_special,
                                       const ph_io *io);
PH_API void ph_detokenizer_free(ph_detokenizer *detokenizer); /* accepts NULL */

/* Appends a token: *text is what can be shown now, always whole characters; what may
   still change is held back. Unknown ids are left out. The text lives until the next
   call. */
PH_API ph_status ph_detokenize(ph_detokenizer *detokenizer, int32_t id, const char **text,
                               size_t *length);

/* What was held back; the next token then begins a new text. */
PH_API ph_status ph_detokenize_end(ph_detokenizer *detokenizer, const char **text,
                                   size_t *length);

#ifdef __cplusplus
}
#endif
#endif
