/*
 * json_read.h - a strict JSON pull parser: the caller pulls one token after the other.
 *
 *     ph_json_reader json;
 *     ph_json_open(&json, text, length, limits, io);     the text is changed, see below
 *     while ((token = ph_json_next(&json)) > PH_JSON_END) ...
 *     if (token == PH_JSON_ERROR) ... json.status, json.message, json.at
 *     ph_json_close(&json);
 *
 * No tree is built and strings are not copied: they are decoded in place and ended by a
 * NUL, so they live as long as the text does. Memory is taken only
 * for the list of keys of the objects that are open.
 *
 * Strict means RFC 8259 and nothing more, all of it valid UTF-8, escapes exact
 * (surrogates in pairs), no key twice in an object, no number beyond the range of double,
 * limits on depth and on the length of strings.
 */
#ifndef PH_IO_JSON_READ_H
#define PH_IO_JSON_READ_H

#include "io/io.h"

typedef enum ph_json_token {
    PH_JSON_ERROR = 0, /* status, message and at say why; stays so */
    PH_JSON_END,       /* the document is over; stays so */
    PH_JSON_OBJECT,    /* { */
    PH_JSON_OBJECT_END,
    PH_JSON_ARRAY, /* [ */
    PH_JSON_ARRAY_END,
    PH_JSON_KEY,    /* text and length; its value is the next token */
    PH_JSON_STRING, /* text and length */
    PH_JSON_NUMBER, /* ph_json_as_size or ph_json_as_double */
    PH_JSON_TRUE,
    PH_JSON_FALSE,
    PH_JSON_NULL
} ph_json_token;

enum { PH_JSON_MAX_DEPTH = 64 };

typedef struct ph_json_limits {
    int depth;     /* open brackets, at most PH_JSON_MAX_DEPTH */
    size_t string; /* bytes of a decoded string or key */
} ph_json_limits;

/* A key of an open object, kept to find it a second time. */
typedef struct ph_json_key {
    uint32_t hash;
    uint32_t length;
    char *text;
} ph_json_key;

typedef struct ph_json_reader {
    char *input;     /* whole text */
    size_t size, at; /* its bytes; the next one to read, or where the error is */
    ph_json_limits limits;
    const ph_io *io;

    ph_json_token token; /* the last one returned */
    char *text;          /* string or key, decoded and closed by NUL; number as it is */
    size_t length;       /* its bytes; a string may hold NUL bytes */

    ph_status status;    /* of PH_JSON_ERROR: PH_BAD_FILE or PH_OUT_OF_MEMORY */
    const char *message; /* a constant half sentence: "expected ',' or ']'" */
    int twice;           /* 1: the error is the key in text, met a second time */

    int depth;                           /* open brackets */
    char open[PH_JSON_MAX_DEPTH];        /* '{' or '[' of each level */
    size_t first_key[PH_JSON_MAX_DEPTH]; /* where the keys of each level begin */
    ph_json_key *keys;                   /* of all open objects, innermost last */
    size_t key_count, key_capacity;
} ph_json_reader;

/* Checks the UTF-8 of all of it; the first ph_json_next reports what is wrong. The reader
   may be closed at any time. limits.depth beyond the maximum is lowered to it. */
void ph_json_open(ph_json_reader *json, char *text, size_t length, ph_json_limits limits,
                  const ph_io *io);
ph_json_token ph_json_next(ph_json_reader *json);
void ph_json_close(ph_json_reader *json);

/* After a token that begins a value: skips all of it, with every check. Returns
   PH_OK or the status of the error. */
ph_status ph_json_skip(ph_json_reader *json);

/* After PH_JSON_NUMBER. As a size: digits only, no sign, fraction or exponent, and it
   must fit. Return 0 if good, else -1; a double is always good. */
int ph_json_as_size(const ph_json_reader *json, size_t *out);
int ph_json_as_double(const ph_json_reader *json, double *out);

/* After PH_JSON_ERROR: what is wrong and where, as half a sentence. */
void ph_json_explain(const ph_json_reader *json, char *text, size_t size);

/* What a token is called in a sentence: "a string", "an array". */
const char *ph_json_token_words(ph_json_token token);

#endif
