/*
 * corpus.c - the recipes that learn from a user's file.
 *
 *     text   windows of one text; the last tenth is kept for tests
 *     pairs  lines "source TAB target"; one line in ten is kept for tests
 *
 * Both work by characters; a text with more than 1,024 different ones, or with bytes that
 * are no UTF-8, is read byte by byte.
 */
#include <stdlib.h>
#include <string.h>

#include "io/file.h"
#include "model/recipes.h"

enum { CHARS_MOST = 1024, FILE_MOST = 1 << 30, LINE_MOST = 512, TEST_SHARE = 10 };

typedef struct corpus {
    char *bytes; /* the file, closed by NUL */
    size_t size;
    int32_t *tokens; /* text: all of it; pairs: source, target, source, ... */
    size_t count;
    size_t held;   /* text: tokens from here on are for tests */
    size_t *start; /* pairs: (2 * lines + 1) where each side begins */
    size_t lines;
} corpus;

static ph_status no_memory(const ph_data *data)
{
    return ph_fail(data->ctx, PH_OUT_OF_MEMORY, "no memory for %s", data->train->file);
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
    return status;
}

/* Bytes of the character at s, 0 if it is no UTF-8. */
static int char_bytes(const unsigned char *s, size_t left)
{
    int length = s[0] < 0x80   ? 1
                 : s[0] < 0xC2 ? 0
                 : s[0] < 0xE0 ? 2
                 : s[0] < 0xF0 ? 3
                 : s[0] < 0xF5 ? 4
                               : 0;
    if ((size_t)length > left) return 0;
    for (int i = 1; i < length; i++)
        if ((s[i] & 0xC0) != 0x80) return 0;
    return s[0] ? length : 0;
}

static uint32_t code_of(const unsigned char *s, int length)
{
    uint32_t code = length == 1 ? s[0] : s[0] & (0x7Fu >> length);
    for (int i = 1; i < length; i++) code = code << 6 | (s[i] & 0x3F);
    return code & 0x1FFFFF;
}

static void text_of(uint32_t code, char out[5])
{
    int n = 0;
    if (code < 0x80) {
        out[n++] = (char)code;
    } else if (code < 0x800) {
        out[n++] = (char)(0xC0 | code >> 6);
    } else if (code < 0x10000) {
        out[n++] = (char)(0xE0 | code >> 12);
        out[n++] = (char)(0x80 | (code >> 6 & 0x3F));
    } else {
        out[n++] = (char)(0xF0 | code >> 18);
        out[n++] = (char)(0x80 | (code >> 12 & 0x3F));
        out[n++] = (char)(0x80 | (code >> 6 & 0x3F));
    }
    if (code >= 0x80) out[n++] = (char)(0x80 | (code & 0x3F));
    out[n] = 0;
}

/* Models that were begun when the TAB of "pairs" counted as a sign go on with it. */
static int knows_tab(const ph_data *data)
{
    const ph_vocab *v = data->known;
    return v && (v->split == PH_SPLIT_BYTES || ph_vocab_find(v, "\t", 1) >= 0);
}

/* Signs that stand between the texts of "pairs", not in them. */
static int separates(const ph_data *data, uint32_t code)
{
    if (strcmp(data->train->recipe, "pairs")) return 0;
    return code == '\n' || (code == '\t' && !knows_tab(data));
}

/* The vocabulary of all characters in the order of their codes, or bytes. */
static ph_status find_chars(ph_data *data, const corpus *c)
{
    enum { CODES = 0x200000 };
    uint8_t *seen = calloc(CODES / 8, 1);
    int distinct = 0, length = 1;
    if (!seen) return no_memory(data);
    for (size_t at = 0; at < c->size && length; at += (size_t)length) {
        const unsigned char *s = (const unsigned char *)c->bytes + at;
        if (!(length = char_bytes(s, c->size - at))) break;
        uint32_t code = code_of(s, length);
        distinct += !(seen[code / 8] >> code % 8 & 1);
        seen[code / 8] |= (uint8_t)(1 << code % 8);
    }
    data->split = length && distinct <= CHARS_MOST ? PH_SPLIT_CHARS : PH_SPLIT_BYTES;
    ph_status status = PH_OK;
    for (uint32_t code = 1; code < CODES && data->split == PH_SPLIT_CHARS; code++) {
        char text[5];
        if (!(seen[code / 8] >> code % 8 & 1)) continue;
        if (separates(data, code)) continue;
        text_of(code, text);
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
    PH_TRY(read_file(data, c));
    return find_chars(data, c);
}

static void close_file(ph_data *data)
{
    corpus *c = data->own;
    if (!c) return;
    free(c->bytes);
    free(c->tokens);
    free(c->start);
    free(c);
}

/* Tokens of [text, end); returns how many. */
static size_t tokens_of(const ph_data *data, const char *text, size_t length, int32_t *to)
{
    size_t count = 0;
    for (size_t at = 0; at < length;) {
        int step = 1, token;
        if (data->split == PH_SPLIT_BYTES) {
            token = PH_TOKEN_FIRST + (unsigned char)text[at];
        } else {
            step = char_bytes((const unsigned char *)text + at, length - at);
            token = ph_vocab_find(&data->vocab, text + at, (size_t)step);
        }
        to[count++] = token;
        at += (size_t)step;
    }
    return count;
}

/* ---- text -------------------------------------------------------------------------- */

static ph_status text_open(ph_data *data)
{
    data->source_len = data->train->config.max_len;
    return open_file(data);
}

static ph_status text_ready(ph_data *data)
{
    corpus *c = data->own;
    size_t least = 20 * ((size_t)data->source_len + 1);
    c->tokens = malloc((c->size + 1) * sizeof *c->tokens);
    if (!c->tokens) return no_memory(data);
    c->count = tokens_of(data, c->bytes, c->size, c->tokens);
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
                                  .help = "a decoder that learns to go on with a text "
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

/* One side of a line; its longest so far is kept in *longest. */
static ph_status add_side(ph_data *data, corpus *c, size_t line, const char *text,
                          size_t length, int *longest)
{
    size_t count = tokens_of(data, text, length, c->tokens + c->count);
    if (!count) return bad_line(data, line, "one side is empty, expected text TAB text");
    if (count > LINE_MOST)
        return bad_line(data, line, "one side has more than 512 signs");
    c->count += count;
    *longest = ph_max(*longest, (int)count);
    return PH_OK;
}

static ph_status add_line(ph_data *data, corpus *c, size_t line, const char *text,
                          size_t length)
{
    const char *tab = memchr(text, '\t', length);
    if (length && text[length - 1] == '\r') length--;
    if (!length) return PH_OK;
    if (!tab) return bad_line(data, line, "no TAB, expected text TAB text");
    size_t first = (size_t)(tab - text);
    if (!knows_tab(data) && memchr(tab + 1, '\t', length - first - 1))
        return bad_line(data, line, "more than one TAB, expected text TAB text");
    c->start[2 * c->lines] = c->count;
    PH_TRY(add_side(data, c, line, text, first, &data->source_len));
    c->start[2 * c->lines + 1] = c->count;
    PH_TRY(add_side(data, c, line, tab + 1, length - first - 1, &data->target_len));
    c->start[2 * ++c->lines] = c->count;
    return PH_OK;
}

static ph_status pairs_ready(ph_data *data)
{
    corpus *c = data->own;
    size_t lines = 1, line = 1;
    for (size_t i = 0; i < c->size; i++) lines += c->bytes[i] == '\n';
    c->tokens = malloc((c->size + 1) * sizeof *c->tokens);
    c->start = malloc((2 * lines + 3) * sizeof *c->start);
    if (!c->tokens || !c->start) return no_memory(data);
    for (size_t at = 0; at < c->size; line++) {
        const char *end = memchr(c->bytes + at, '\n', c->size - at);
        size_t length = end ? (size_t)(end - c->bytes) - at : c->size - at;
        PH_TRY(add_line(data, c, line, c->bytes + at, length));
        at += length + 1;
    }
    if (c->lines < 20)
        return ph_fail(data->ctx, PH_BAD_FILE, "%s has %zu pairs, expected at least 20",
                       data->train->file, c->lines);
    data->target_len++; /* the start mark */
    return PH_OK;
}

static int is_test(const corpus *c, size_t pair)
{
    uint64_t mixed = 0;
    for (size_t i = c->start[2 * pair]; i < c->start[2 * pair + 1]; i++)
        mixed = ph_rng_mix(mixed + (uint64_t)c->tokens[i]);
    return mixed % TEST_SHARE == 0;
}

static void pairs_sample(const ph_data *data, uint64_t key, int test, ph_sample *out)
{
    enum { TRIES = 4096 }; /* a file of few pairs may have none for tests */
    const corpus *c = data->own;
    size_t pair = 0;
    for (uint32_t attempt = 0; attempt < TRIES; attempt++) {
        pair = (size_t)(ph_rng_key(key, attempt, 0, 0) % c->lines);
        if (is_test(c, pair) == (test != 0)) break;
    }
    const size_t *at = c->start + 2 * pair;
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
                                   .open = open_file,
                                   .ready = pairs_ready,
                                   .close = close_file,
                                   .sample = pairs_sample};
