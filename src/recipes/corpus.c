/*
 * corpus.c - the recipes that learn from a user's file.
 *
 *     text   windows of one text; the last tenth is held out for tests
 *     pairs  lines "source TAB target"; one source in ten is held out, at least one
 *
 * Both tokenize by characters. A file with more than 1,024 different ones, with a NUL or
 * with bytes that are not valid UTF-8 is tokenized by bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "io/file.h"
#include "io/utf8.h"
#include "recipes/recipes.h"

enum {
    CHARS_MOST = 1024,
    FILE_MOST = 1 << 30,
    LINE_MOST = 512,
    PAIRS_LEAST = 20,
    TEST_SHARE = 10
};

typedef struct corpus {
    char *bytes; /* the file, closed by NUL */
    size_t size;
    int32_t *tokens; /* text: all of it; pairs: source, target, source, ... */
    size_t count;
    size_t held;   /* text: the first held-out token; pairs: index into order */
    size_t *start; /* pairs: (texts + 1) where each source and target begins in tokens */
    size_t texts;  /* two for each pair */
    size_t *order; /* pairs: those for training, then those held out */
} corpus;

static ph_status no_memory(const ph_data *data)
{
    return ph_fail(data->ctx, PH_OUT_OF_MEMORY, "no memory for %s", data->train->file);
}

/* A resumed training needs the bytes it began with: other text would give its tokens and
   samples another meaning. */
static ph_status check_hash(ph_data *data, const corpus *c)
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

static ph_status read_file(ph_data *data, corpus *c)
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
        status = no_memory(data);
    else if ((status = ph_source_read(&source, 0, c->bytes, c->size, &io)) != PH_OK)
        ph_fail(data->ctx, status, "%s", error);
    else
        c->bytes[c->size] = 0;
    ph_source_close(&source);
    return status == PH_OK ? check_hash(data, c) : status;
}

/* Bytes of the character here and its code point; 0: not valid UTF-8, or NUL, which no
   token can hold. */
static int decode(const corpus *c, size_t at, uint32_t *point)
{
    return c->bytes[at] ? ph_utf8_decode(c->bytes + at, c->size - at, point) : 0;
}

/* Marks every character of the file; returns how many different ones there are, or -1
   where it must be tokenized by bytes. */
static int mark_chars(const corpus *c, uint8_t *seen)
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

/* The vocabulary: all characters but the separators, by code point; or bytes. */
static ph_status find_chars(ph_data *data, const corpus *c, const char *separators)
{
    enum { POINTS = 0x110000 };
    uint8_t *seen = calloc(POINTS / 8, 1);
    ph_status status = PH_OK;
    if (!seen) return no_memory(data);
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

static ph_status open_file(ph_data *data)
{
    corpus *c = calloc(1, sizeof *c);
    if (!c) return no_memory(data);
    data->own = c;
    return read_file(data, c);
}

static void close_file(ph_data *data)
{
    corpus *c = data->own;
    if (!c) return;
    free(c->bytes);
    free(c->tokens);
    free(c->start);
    free(c->order);
    free(c);
}

/* Tokens of bytes [at, end) of the file; returns how many. */
static size_t tokenize(const ph_data *data, size_t at, size_t end, int32_t *to)
{
    const corpus *c = data->own;
    size_t count = 0;
    while (at < end) {
        uint32_t point;
        int length = data->split == PH_SPLIT_BYTES ? 1 : decode(c, at, &point);
        to[count++] = data->split == PH_SPLIT_BYTES
                          ? PH_TOKEN_FIRST + (unsigned char)c->bytes[at]
                          : ph_vocab_find(&data->vocab, c->bytes + at, (size_t)length);
        at += (size_t)length;
    }
    return count;
}

/* ---- text -------------------------------------------------------------------------- */

static ph_status text_open(ph_data *data)
{
    data->source_len = data->train->config.max_len;
    PH_TRY(open_file(data));
    return find_chars(data, data->own, "");
}

static ph_status text_ready(ph_data *data)
{
    corpus *c = data->own;
    size_t least = 20 * ((size_t)data->source_len + 1);
    c->tokens = malloc((c->size + 1) * sizeof *c->tokens);
    if (!c->tokens) return no_memory(data);
    c->count = tokenize(data, 0, c->size, c->tokens);
    c->held = c->count - c->count / TEST_SHARE;
    if (c->count < least)
        return ph_fail(data->ctx, PH_BAD_FILE,
                       "%s has %zu characters, expected at least %zu (20 windows)",
                       data->train->file, c->count, least);
    return PH_OK;
}

static void text_sample(const ph_data *data, uint64_t key, int test, ph_sample *out)
{
    const corpus *c = data->own;
    size_t window = (size_t)data->source_len + 1;
    size_t first = test ? c->held : 0, last = (test ? c->count : c->held) - window;
    ph_draw d = {key, 0};
    uint64_t wide =
        (uint64_t)ph_draw_below(&d, 1 << 30) << 30 | (uint64_t)ph_draw_below(&d, 1 << 30);
    const int32_t *from = c->tokens + first + wide % (last - first + 1);
    for (int i = 0; i < data->source_len; i++)
        out->source[i] = from[i], out->labels[i] = from[i + 1];
    out->length = data->source_len;
}

static void text_defaults(ph_train *t)
{
    t->config = (ph_config){.arch = PH_ARCH_DECODER,
                            .layers = 4,
                            .model_dim = 128,
                            .heads = 4,
                            .max_len = 128,
                            .positions = PH_POS_ROPE,
                            .dropout = 0.1f};
    t->steps = 2000, t->batch = 16;
    t->lr = 1e-3f, t->warmup = 100;
}

const ph_recipe ph_recipe_text = {.name = "text",
                                  .help = "a decoder that learns to continue a text "
                                          "file, by characters",
                                  .needs_file = 1,
                                  .defaults = text_defaults,
                                  .open = text_open,
                                  .ready = text_ready,
                                  .close = close_file,
                                  .sample = text_sample};

/* ---- pairs ------------------------------------------------------------------------- */

static ph_status bad_line(const ph_data *data, size_t line, const char *what)
{
    return ph_fail(data->ctx, PH_BAD_FILE, "%s, line %zu: %s", data->train->file, line,
                   what);
}

/* Lines may end with CR LF: the CR belongs to the line end, not to the text. */
static void strip_cr(corpus *c)
{
    size_t used = 0;
    for (size_t i = 0; i < c->size; i++)
        if (c->bytes[i] != '\r' || (i + 1 < c->size && c->bytes[i + 1] != '\n'))
            c->bytes[used++] = c->bytes[i];
    c->size = used;
    c->bytes[used] = 0;
}

static ph_status pairs_open(ph_data *data)
{
    PH_TRY(open_file(data));
    strip_cr(data->own);
    return find_chars(data, data->own, "\t\n");
}

/* One text of a line; *longest is raised to its length. */
static ph_status add_text(ph_data *data, size_t line, size_t at, size_t end, int *longest)
{
    corpus *c = data->own;
    size_t count = tokenize(data, at, end, c->tokens + c->count);
    if (!count) return bad_line(data, line, "one side is empty, expected text TAB text");
    if (count > LINE_MOST)
        return bad_line(data, line, "one side has more than 512 tokens");
    c->start[c->texts++] = c->count;
    c->count += count;
    c->start[c->texts] = c->count;
    *longest = ph_max(*longest, (int)count);
    return PH_OK;
}

static ph_status add_line(ph_data *data, size_t line, size_t at, size_t end)
{
    const corpus *c = data->own;
    if (at == end) return PH_OK;
    const char *tab = memchr(c->bytes + at, '\t', end - at);
    if (!tab) return bad_line(data, line, "no TAB, expected text TAB text");
    size_t second = (size_t)(tab - c->bytes) + 1;
    if (memchr(c->bytes + second, '\t', end - second))
        return bad_line(data, line, "more than one TAB, expected text TAB text");
    PH_TRY(add_text(data, line, at, second - 1, &data->source_len));
    return add_text(data, line, second, end, &data->target_len);
}

static uint64_t source_hash(const corpus *c, size_t pair)
{
    uint64_t h = 0;
    for (size_t i = c->start[2 * pair]; i < c->start[2 * pair + 1]; i++)
        h = ph_rng_mix(h + (uint64_t)c->tokens[i]);
    return h;
}

/* Puts the pairs for training first in c->order. Pairs of one source stay together, so
   that no held-out source is trained on. One source in ten is held out by its hash; where
   that is none or all of them, as may happen in a small file, the one with the lowest. */
static ph_status hold_out(ph_data *data)
{
    corpus *c = data->own;
    size_t pairs = c->texts / 2, tests = 0;
    uint64_t lowest = UINT64_MAX;
    for (size_t i = 0; i < pairs; i++) {
        uint64_t h = source_hash(c, i);
        tests += h % TEST_SHARE == 0;
        lowest = h < lowest ? h : lowest;
    }
    int by_share = tests > 0 && tests < pairs;
    size_t back = pairs;
    for (size_t i = 0; i < pairs; i++) {
        uint64_t h = source_hash(c, i);
        int test = by_share ? h % TEST_SHARE == 0 : h == lowest;
        c->order[test ? --back : c->held++] = i;
    }
    if (c->held) return PH_OK;
    return ph_fail(
        data->ctx, PH_BAD_FILE,
        "%s has the same source in every pair, expected at least two different "
        "ones: one is held out for tests",
        data->train->file);
}

static ph_status pairs_ready(ph_data *data)
{
    corpus *c = data->own;
    size_t lines = 1, line = 1;
    for (size_t i = 0; i < c->size; i++) lines += c->bytes[i] == '\n';
    c->tokens = malloc((c->size + 1) * sizeof *c->tokens);
    c->start = malloc((2 * lines + 1) * sizeof *c->start);
    c->order = malloc(lines * sizeof *c->order);
    if (!c->tokens || !c->start || !c->order) return no_memory(data);
    for (size_t at = 0; at < c->size; line++) {
        const char *newline = memchr(c->bytes + at, '\n', c->size - at);
        size_t end = newline ? (size_t)(newline - c->bytes) : c->size;
        PH_TRY(add_line(data, line, at, end));
        at = end + 1;
    }
    if (c->texts < 2 * PAIRS_LEAST)
        return ph_fail(data->ctx, PH_BAD_FILE, "%s has %zu pair%s, expected at least %d",
                       data->train->file, c->texts / 2, c->texts == 2 ? "" : "s",
                       PAIRS_LEAST);
    data->target_len++; /* the start token */
    return hold_out(data);
}

static void pairs_sample(const ph_data *data, uint64_t key, int test, ph_sample *out)
{
    const corpus *c = data->own;
    size_t first = test ? c->held : 0, end = test ? c->texts / 2 : c->held;
    const size_t *at =
        c->start + 2 * c->order[first + ph_rng_key(key, 0, 0, 0) % (end - first)];
    ph_sample_pair(data, c->tokens + at[0], (int)(at[1] - at[0]), c->tokens + at[1],
                   (int)(at[2] - at[1]), out);
}

static void pairs_defaults(ph_train *t)
{
    t->config = (ph_config){.arch = PH_ARCH_ENCODER_DECODER,
                            .layers = 2,
                            .model_dim = 128,
                            .heads = 4,
                            .max_len = 64,
                            .dropout = 0.1f};
    t->steps = 4000, t->batch = 32;
    t->lr = 1e-3f, t->warmup = 300, t->smoothing = 0.1f;
}

const ph_recipe ph_recipe_pairs = {.name = "pairs",
                                   .help = "an encoder-decoder that learns from your own "
                                           "lines: text TAB text",
                                   .needs_file = 1,
                                   .defaults = pairs_defaults,
                                   .open = pairs_open,
                                   .ready = pairs_ready,
                                   .close = close_file,
                                   .sample = pairs_sample};
