/*
 * word_list.c - words from a file, one per line or as a JSON list; see word_list.h.
 */
#include "view/word_list.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "io/file.h"
#include "io/io.h"
#include "io/json_read.h"

static ph_status no_memory(const ph_io *io, const char *path)
{
    return ph_io_fail(io, PH_OUT_OF_MEMORY, "%s: out of memory for its words", path);
}

ph_status ph_words_file(const char *path, char **bytes, size_t *size, const ph_io *io)
{
    ph_source source;
    ph_status status = ph_source_open(&source, path, io);
    if (status != PH_OK) return status;
    *size = source.size;
    *bytes = ph_io_alloc(io, *size + 1);
    status = *bytes ? ph_source_read(&source, 0, *bytes, *size, io) : no_memory(io, path);
    ph_source_close(&source);
    if (status == PH_OK) (*bytes)[*size] = 0;
    return status;
}

/* Skips a tokenizer's marker of a leading blank. */
static char *skip_marker(char *word)
{
    size_t length = !strncmp(word, "\xe2\x96\x81", 3) ? 3
                    : !strncmp(word, "\xc4\xa0", 2)   ? 2
                                                      : 0;
    return word[length] ? word + length : word;
}

static ph_status add(ph_words *out, size_t *capacity, char *word, const char *path,
                     const ph_io *io)
{
    void *list = out->words;
    if (out->count == INT_MAX)
        return ph_io_fail(io, PH_BAD_FILE, "%s: more than %d words", path, INT_MAX);
    ph_status status =
        ph_io_grow(io, &list, capacity, (size_t)out->count + 1, sizeof(char *));
    out->words = list;
    if (status != PH_OK) return no_memory(io, path);
    out->words[out->count++] = skip_marker(word);
    return PH_OK;
}

/* ---- lines ---- */

static ph_status split_lines(ph_words *out, size_t size, const char *path,
                             const ph_io *io)
{
    ph_status status = PH_OK;
    size_t capacity = 0;
    char *at = out->bytes, *end = out->bytes + size;
    if (memchr(at, 0, size))
        return ph_io_fail(io, PH_BAD_FILE, "%s: holds a NUL byte, expected text", path);
    while (at < end && status == PH_OK) {
        char *stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end;
        *stop = 0;
        if (stop > at && stop[-1] == '\r') stop[-1] = 0;
        status = add(out, &capacity, at, path, io);
        at = stop + 1;
    }
    return status;
}

/* ---- JSON ---- */

/* A list of strings begins like this; a first line "[CLS]" does not. */
static int is_json(const char *text)
{
    text += strspn(text, " \t\r\n");
    if (*text != '[') return 0;
    text++;
    text += strspn(text, " \t\r\n");
    return *text == '"' || *text == ']';
}

static ph_status bad_list(ph_json_reader *json, ph_json_token token, const char *path,
                          const ph_io *io)
{
    char why[200];
    if (token != PH_JSON_ERROR)
        return ph_io_fail(io, PH_BAD_FILE, "%s: the list holds %s, expected strings",
                          path, ph_json_token_words(token));
    ph_json_explain(json, why, sizeof why);
    return ph_io_fail(io, json->status, "%s: %s", path, why);
}

static ph_status parse_list(ph_words *out, size_t size, const char *path, const ph_io *io)
{
    ph_json_reader json;
    const ph_json_limits limits = {.depth = 1, .string = INT_MAX};
    size_t capacity = 0;
    ph_status status = PH_OK;
    ph_json_open(&json, out->bytes, size, limits, io);
    ph_json_token token = ph_json_next(&json); /* the bracket */
    if (token == PH_JSON_ARRAY) token = ph_json_next(&json);
    while (status == PH_OK && token == PH_JSON_STRING) {
        if (strlen(json.text) != json.length)
            status = ph_io_fail(io, PH_BAD_FILE, "%s: word %d holds a NUL", path,
                                out->count + 1);
        else
            status = add(out, &capacity, json.text, path, io);
        token = ph_json_next(&json);
    }
    if (status == PH_OK && token == PH_JSON_ARRAY_END) token = ph_json_next(&json);
    if (status == PH_OK && token != PH_JSON_END)
        status = bad_list(&json, token, path, io);
    ph_json_close(&json);
    return status;
}

/* ---- all of it ---- */

ph_status ph_words_read(ph_words *out, const char *path, const ph_io *io)
{
    size_t size = 0;
    memset(out, 0, sizeof *out);
    ph_status status = ph_words_file(path, &out->bytes, &size, io);
    if (status == PH_OK)
        status = is_json(out->bytes) ? parse_list(out, size, path, io)
                                     : split_lines(out, size, path, io);
    if (status != PH_OK) ph_words_free(out, io);
    return status;
}

ph_status ph_words_count(ph_words *out, int count, const ph_io *io)
{
    enum { DIGITS = 12 };
    memset(out, 0, sizeof *out);
    out->bytes = ph_io_alloc(io, (size_t)count * DIGITS);
    out->words = ph_io_alloc(io, (size_t)count * sizeof *out->words);
    if (!out->bytes || !out->words) {
        ph_words_free(out, io);
        return ph_io_fail(io, PH_OUT_OF_MEMORY, "out of memory for %d words", count);
    }
    for (int n = 0; n < count; n++) {
        char *word = out->bytes + (size_t)n * DIGITS;
        snprintf(word, DIGITS, "%d", n + 1);
        out->words[n] = word;
    }
    out->count = count;
    return PH_OK;
}

void ph_words_free(ph_words *words, const ph_io *io)
{
    ph_io_release(io, words->bytes);
    ph_io_release(io, words->words);
    memset(words, 0, sizeof *words);
}
