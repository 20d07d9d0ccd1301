/*
 * corpus.c - the file that a recipe learns from: its bytes, its lines, its characters as
 * tokens.
 */
#include "recipes/corpus.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "io/file.h"
#include "io/utf8.h"

enum { CHARS_MOST = 1024, FILE_MOST = 1 << 30 };

ph_status ph_corpus_no_memory(const ph_data *data)
{
    return ph_fail(data->ctx, PH_OUT_OF_MEMORY, "no memory for %s", data->train->file);
}

/* ---- the file ---------------------------------------------------------------------- */

/* A resumed training needs the bytes it began with: other text would give its tokens and
   samples another meaning. */
static ph_status check_hash(ph_data *data, const ph_corpus *c)
{
    uint64_t expected = data->train->data_hash;
    data->hash = ph_hash_bytes(1, c->bytes, c->size);
    if (!expected || data->hash == expected) return PH_OK;
    return ph_fail(data->ctx, PH_BAD_FILE,
                   "%s has changed since the training began: its hash is %016llx, "
                   "expected %016llx",
                   data->train->file, (unsigned long long)data->hash,
                   (unsigned long long)expected);
}

static void skip_mark(ph_corpus *c)
{
    size_t mark = ph_utf8_mark(c->bytes, c->size);
    c->size -= mark;
    memmove(c->bytes, c->bytes + mark, c->size + 1);
}

static ph_status read_file(ph_data *data, ph_corpus *c)
{
    char error[512] = "";
    ph_source source;
    ph_io io = {.error = error, .error_size = sizeof error};
    ph_status status = ph_source_open(&source, data->train->file, &io);
    if (status != PH_OK) return ph_fail(data->ctx, status, "%s", error);
    c->size = source.size;
    if (c->size > FILE_MOST)
        status = ph_fail(data->ctx, PH_OUT_OF_MEMORY, "%s has %zu bytes, at most %d",
                         data->train->file, c->size, FILE_MOST);
    else if (!(c->bytes = malloc(c->size + 1)))
        status = ph_corpus_no_memory(data);
    else if ((status = ph_source_read(&source, 0, c->bytes, c->size, &io)) != PH_OK)
        ph_fail(data->ctx, status, "%s", error);
    else
        c->bytes[c->size] = 0;
    ph_source_close(&source);
    if (status == PH_OK) status = check_hash(data, c);
    if (status == PH_OK) skip_mark(c);
    return status;
}

ph_status ph_corpus_open(ph_data *data)
{
    ph_corpus *c = calloc(1, sizeof *c);
    if (!c) return ph_corpus_no_memory(data);
    data->own = c;
    return read_file(data, c);
}

void ph_corpus_close(ph_data *data)
{
    ph_corpus *c = data->own;
    if (!c) return;
    free(c->bytes);
    free(c->tokens);
    free(c->start);
    free(c->labels);
    free(c->label_start);
    free(c->order);
    free(c);
}

/* ---- lines ------------------------------------------------------------------------- */

void ph_corpus_strip_cr(ph_corpus *c)
{
    size_t used = 0;
    for (size_t i = 0; i < c->size; i++)
        if (c->bytes[i] != '\r' || (i + 1 < c->size && c->bytes[i + 1] != '\n'))
            c->bytes[used++] = c->bytes[i];
    c->size = used;
    c->bytes[used] = 0;
}

int ph_corpus_line(const ph_corpus *c, ph_line *line)
{
    do {
        if (line->next >= c->size) return 0;
        line->at = line->next, line->number++;
        const char *newline = memchr(c->bytes + line->at, '\n', c->size - line->at);
        line->end = newline ? (size_t)(newline - c->bytes) : c->size;
        line->next = line->end + 1;
    } while (line->at == line->end);
    return 1;
}

size_t ph_corpus_lines(const ph_corpus *c)
{
    size_t lines = 1;
    for (size_t i = 0; i < c->size; i++) lines += c->bytes[i] == '\n';
    return lines;
}

ph_status ph_corpus_bad_line(const ph_data *data, size_t line, const char *what)
{
    return ph_fail(data->ctx, PH_BAD_FILE, "%s, line %zu: %s", data->train->file, line,
                   what);
}

ph_status ph_corpus_tab(const ph_data *data, const ph_line *line, const char *expected,
                        size_t *tab)
{
    const ph_corpus *c = data->own;
    const char *found = memchr(c->bytes + line->at, '\t', line->end - line->at);
    if (!found)
        return ph_fail(data->ctx, PH_BAD_FILE, "%s, line %zu: no TAB, expected %s",
                       data->train->file, line->number, expected);
    *tab = (size_t)(found - c->bytes);
    if (!memchr(found + 1, '\t', line->end - *tab - 1)) return PH_OK;
    return ph_fail(data->ctx, PH_BAD_FILE, "%s, line %zu: more than one TAB, expected %s",
                   data->train->file, line->number, expected);
}

/* ---- characters -------------------------------------------------------------------- */

/* Bytes of the character here and its code point; 0: not valid UTF-8, or NUL, which no
   token can hold. */
static int decode(const ph_corpus *c, size_t at, uint32_t *point)
{
    return c->bytes[at] ? ph_utf8_decode(c->bytes + at, c->size - at, point) : 0;
}

/* Marks every character of the file; returns how many different ones there are, or -1
   where it must be tokenized by bytes. */
static int mark_chars(const ph_corpus *c, uint8_t *seen)
{
    int distinct = 0, length;
    for (size_t at = 0; at < c->size; at += (size_t)length) {
        uint32_t point;
        if (!(length = decode(c, at, &point))) return -1;
        distinct += !(seen[point / 8] >> point % 8 & 1);
        seen[point / 8] |= (uint8_t)(1 << point % 8);
    }
    return distinct <= CHARS_MOST ? distinct : -1;
}

ph_status ph_corpus_find_chars(ph_data *data, const char *separators)
{
    enum { POINTS = 0x110000 };
    const ph_corpus *c = data->own;
    uint8_t *seen = calloc(POINTS / 8, 1);
    ph_status status = PH_OK;
    if (!seen) return ph_corpus_no_memory(data);
    data->split = mark_chars(c, seen) < 0 ? PH_SPLIT_BYTES : PH_SPLIT_CHARS;
    for (const char *s = separators; *s; s++) seen[*s / 8] &= (uint8_t) ~(1 << *s % 8);
    for (uint32_t point = 1; point < POINTS && data->split == PH_SPLIT_CHARS; point++) {
        char text[5] = "";
        if (!(seen[point / 8] >> point % 8 & 1)) continue;
        ph_utf8_encode(point, text);
        if ((status = ph_data_token(data, text)) != PH_OK) break;
    }
    free(seen);
    return status;
}

/* A token is at least one byte; tokens of an origin grow as they come. */
ph_status ph_corpus_reserve(ph_data *data, size_t texts)
{
    ph_corpus *c = data->own;
    c->capacity = data->origin ? 0 : c->size + 1;
    c->tokens = c->capacity ? malloc(c->capacity * sizeof *c->tokens) : NULL;
    c->start = calloc(texts + 1, sizeof *c->start);
    c->order = malloc((texts + 1) * sizeof *c->order);
    int good = (c->tokens || !c->capacity) && c->start && c->order;
    return good ? PH_OK : ph_corpus_no_memory(data);
}

void ph_corpus_tokenize(ph_data *data, size_t at, size_t end)
{
    ph_corpus *c = data->own;
    while (at < end) {
        uint32_t point;
        int length = data->split == PH_SPLIT_BYTES ? 1 : decode(c, at, &point);
        c->tokens[c->count++] =
            data->split == PH_SPLIT_BYTES
                ? PH_TOKEN_FIRST + (unsigned char)c->bytes[at]
                : ph_vocab_find(&data->vocab, c->bytes + at, (size_t)length);
        at += (size_t)length;
    }
}

/* ---- tests ------------------------------------------------------------------------- */

uint64_t ph_corpus_key(const ph_corpus *c, size_t text)
{
    uint64_t h = 0;
    for (size_t i = c->start[text]; i < c->start[text + 1]; i++)
        h = ph_rng_mix(h + (uint64_t)c->tokens[i]);
    return h;
}

ph_status ph_corpus_hold_out(ph_corpus *c, size_t samples, const uint64_t *keys)
{
    size_t tests = 0, back = samples;
    uint64_t lowest = UINT64_MAX;
    for (size_t i = 0; i < samples; i++) {
        tests += keys[i] % PH_TEST_SHARE == 0;
        lowest = keys[i] < lowest ? keys[i] : lowest;
    }
    int by_share = tests > 0 && tests < samples;
    c->held = 0;
    for (size_t i = 0; i < samples; i++) {
        int test = by_share ? keys[i] % PH_TEST_SHARE == 0 : keys[i] == lowest;
        c->order[test ? --back : c->held++] = i;
    }
    return c->held ? PH_OK : PH_BAD_FILE;
}
