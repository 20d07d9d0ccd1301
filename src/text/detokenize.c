/*
 * detokenize.c - tokens to text, as they come: each decoder of a tokenizer is a stage
 * that takes a text and hands texts on, and holds back what later tokens may change.
 */
#include <string.h>

#include "base/base.h"
#include "io/utf8.h"
#include "text/byte_alphabet.h"
#include "text/tokenizer.h"

typedef struct buffer {
    char *bytes;
    size_t length, capacity;
} buffer;

typedef struct stage {
    size_t tokens;   /* seen since the text began */
    size_t stripped; /* characters taken from the start */
    int started;     /* STRIP: something else has come */
    int joined;      /* what comes are parts of one text */
    buffer held, work;
} stage;

struct ph_detokenizer {
    ph_io io;
    const ph_tokenizer *tokenizer;
    int skip_special;
    stage *stages;
    buffer out;
};

static const char unknown_character[] = "\xef\xbf\xbd"; /* U+FFFD */

/* ---- making and freeing ---- */

ph_status ph_detokenizer_create(ph_detokenizer **out, const ph_tokenizer *tokenizer,
                                int skip_special, const ph_io *io)
{
    if (out) *out = NULL;
    if (!out || !tokenizer) return ph_io_null(io, "out or tokenizer");
    size_t bytes = tokenizer->decoder_count * sizeof(stage);
    ph_detokenizer *d = ph_io_alloc(io, sizeof *d);
    stage *stages = ph_io_alloc(io, bytes);
    int joined = 0;
    if (!d || !stages) {
        ph_io_release(io, d);
        ph_io_release(io, stages);
        return ph_io_no_memory(io, sizeof *d + bytes, "a detokenizer");
    }
    memset(d, 0, sizeof *d);
    memset(stages, 0, bytes);
    d->io = io ? *io : (ph_io){0};
    d->tokenizer = tokenizer;
    d->skip_special = skip_special;
    d->stages = stages;
    for (size_t i = 0; i < tokenizer->decoder_count; i++) {
        ph_decoder_kind kind = tokenizer->decoders[i].kind;
        stages[i].joined = joined;
        joined |= kind == PH_DECODE_BYTES || kind == PH_DECODE_FUSE;
    }
    *out = d;
    return PH_OK;
}

void ph_detokenizer_free(ph_detokenizer *d)
{
    if (!d) return;
    ph_io io = d->io;
    for (size_t i = 0; i < d->tokenizer->decoder_count; i++) {
        ph_io_release(&io, d->stages[i].held.bytes);
        ph_io_release(&io, d->stages[i].work.bytes);
    }
    ph_io_release(&io, d->stages);
    ph_io_release(&io, d->out.bytes);
    ph_io_release(&io, d);
}

static ph_status append(ph_detokenizer *d, buffer *to, const char *bytes, size_t length)
{
    void *moved = to->bytes;
    ph_status status =
        ph_io_grow(&d->io, &moved, &to->capacity, to->length + length + 1, 1);
    to->bytes = moved;
    if (status != PH_OK) return status;
    if (length > 0) memcpy(to->bytes + to->length, bytes, length);
    to->length += length;
    to->bytes[to->length] = 0;
    return PH_OK;
}

static ph_status feed(ph_detokenizer *d, size_t index, const char *text, size_t length);

/* ---- bytes ---- */

/* Whether more bytes can make a character of these: the least or the largest do. */
static int may_go_on(const char *text, size_t length)
{
    uint32_t point;
    for (int fill = 0x80; fill <= 0xbf; fill += 0x3f) {
        char whole[4];
        memset(whole, fill, sizeof whole);
        memcpy(whole, text, length);
        if (ph_utf8_decode(whole, sizeof whole, &point) > (int)length) return 1;
    }
    return 0;
}

/* What stands at the start of bytes that are not valid UTF-8 there: the length of the
   longest part that could begin a character; *whole is 0 if it may go on. */
static size_t broken_part(const char *text, size_t length, int *whole)
{
    size_t at = 1;
    while (at < 3 && at < length && may_go_on(text, at + 1)) at++;
    *whole = at < length || !may_go_on(text, at);
    return at;
}

/* Hands on all whole characters that are held; broken ones become U+FFFD. */
static ph_status flush_bytes(ph_detokenizer *d, size_t index, int all)
{
    buffer *held = &d->stages[index].held, *work = &d->stages[index].work;
    size_t at = 0;
    work->length = 0;
    while (at < held->length) {
        size_t valid = ph_utf8_valid(held->bytes + at, held->length - at);
        int whole = 1;
        PH_TRY(append(d, work, held->bytes + at, valid));
        at += valid;
        if (at == held->length) break;
        size_t part = broken_part(held->bytes + at, held->length - at, &whole);
        if (!whole && !all) break;
        PH_TRY(append(d, work, unknown_character, 3));
        at += part;
    }
    memmove(held->bytes, held->bytes + at, held->length - at);
    held->length -= at;
    return work->length ? feed(d, index + 1, work->bytes, work->length) : PH_OK;
}

static ph_status take_bytes(ph_detokenizer *d, size_t index, const char *text,
                            size_t length)
{
    buffer *held = &d->stages[index].held;
    size_t before = held->length, count = 0;
    PH_TRY(append(d, held, text, length)); /* as many bytes as there can be */
    held->length = before + length;
    if (!ph_byte_alphabet_read(text, length, held->bytes + before, &count))
        held->length = before + count;
    else
        memcpy(held->bytes + before, text, length); /* not of the alphabet: as it is */
    return held->length ? flush_bytes(d, index, 0) : PH_OK;
}

/* ---- byte fallback ---- */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

/* The byte of "<0x0A>", or -1. */
static int byte_of(const char *text, size_t length)
{
    if (length != 6 || memcmp(text, "<0x", 3) || text[5] != '>') return -1;
    int high = hex_digit(text[3]), low = hex_digit(text[4]);
    return high < 0 || low < 0 ? -1 : 16 * high + low;
}

/* A run of byte tokens is a text, or one U+FFFD per byte. */
static ph_status flush_run(ph_detokenizer *d, size_t index)
{
    buffer *held = &d->stages[index].held;
    size_t count = held->length;
    held->length = 0;
    if (count == 0) return PH_OK;
    if (ph_utf8_valid(held->bytes, count) == count)
        return feed(d, index + 1, held->bytes, count);
    for (size_t i = 0; i < count; i++) PH_TRY(feed(d, index + 1, unknown_character, 3));
    return PH_OK;
}

static ph_status take_fallback(ph_detokenizer *d, size_t index, const char *text,
                               size_t length)
{
    int byte = byte_of(text, length);
    char c = (char)byte;
    if (byte >= 0) return append(d, &d->stages[index].held, &c, 1);
    PH_TRY(flush_run(d, index));
    return feed(d, index + 1, text, length);
}

/* ---- WordPiece ---- */

static ph_status replace_all(ph_detokenizer *d, buffer *text, buffer *scratch,
                             const char *from, const char *to)
{
    size_t from_length = strlen(from), at = 0;
    scratch->length = 0;
    while (at < text->length) {
        if (text->length - at >= from_length &&
            !memcmp(text->bytes + at, from, from_length)) {
            PH_TRY(append(d, scratch, to, strlen(to)));
            at += from_length;
        } else {
            PH_TRY(append(d, scratch, text->bytes + at++, 1));
        }
    }
    text->length = 0;
    return append(d, text, scratch->bytes, scratch->length);
}

static ph_status clean_up(ph_detokenizer *d, buffer *text, buffer *scratch)
{
    static const char *const pairs[][2] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        PH_TRY(replace_all(d, text, scratch, pairs[i][0], pairs[i][1]));
    return PH_OK;
}

static ph_status take_wordpiece(ph_detokenizer *d, size_t index, const char *text,
                                size_t length)
{
    const ph_decode_step *step = &d->tokenizer->decoders[index];
    stage *s = &d->stages[index];
    s->work.length = 0;
    if (s->tokens++ > 0) {
        if (length >= step->length && !memcmp(text, step->text, step->length)) {
            text += step->length;
            length -= step->length;
        } else {
            PH_TRY(append(d, &s->work, " ", 1));
        }
    }
    PH_TRY(append(d, &s->work, text, length));
    if (step->cleanup && memchr(s->work.bytes, ' ', s->work.length))
        PH_TRY(clean_up(d, &s->work, &s->held));
    s->held.length = 0;
    return feed(d, index + 1, s->work.bytes, s->work.length);
}

/* ---- the others ---- */

/* Each match becomes `by`; a text of no bytes drops it. */
static ph_status take_replace(ph_detokenizer *d, size_t index, const ph_pattern *pattern,
                              const char *by, size_t by_length, const char *text,
                              size_t length)
{
    buffer *work = &d->stages[index].work;
    size_t at = 0, end = 0;
    work->length = 0;
    while (at < length) {
        size_t found =
            ph_pattern_find(pattern, &d->tokenizer->unicode, text, length, at, &end);
        PH_TRY(append(d, work, text + at, found - at));
        if (found < length) PH_TRY(append(d, work, by, by_length));
        at = end;
    }
    return feed(d, index + 1, work->bytes, work->length);
}

static ph_status take_metaspace(ph_detokenizer *d, size_t index, const char *text,
                                size_t length)
{
    const ph_decode_step *step = &d->tokenizer->decoders[index];
    const ph_pattern mark = {.text = step->text, .length = step->length};
    int drop = d->stages[index].tokens++ == 0 && !step->keep_first;
    return take_replace(d, index, &mark, " ", !drop, text, length);
}

static int is_at(const ph_decode_step *step, const char *text, size_t left)
{
    return left >= step->length && !memcmp(text, step->text, step->length);
}

/* A token of its own: up to `left` characters off its start, `right` off its end. */
static ph_status strip_token(ph_detokenizer *d, size_t index, const char *text,
                             size_t length)
{
    const ph_decode_step *step = &d->tokenizer->decoders[index];
    size_t n = step->length;
    for (size_t i = 0; i < step->left && is_at(step, text, length); i++) {
        text += n;
        length -= n;
    }
    for (size_t i = 0;
         i < step->right && length >= n && is_at(step, text + length - n, n); i++)
        length -= n;
    return feed(d, index + 1, text, length);
}

/* Parts of one text: what may be its end is held back. */
static ph_status strip_joined(ph_detokenizer *d, size_t index, const char *text,
                              size_t length)
{
    const ph_decode_step *step = &d->tokenizer->decoders[index];
    stage *s = &d->stages[index];
    size_t most = step->right * step->length, tail = 0;
    while (!s->started && s->stripped < step->left && is_at(step, text, length)) {
        text += step->length;
        length -= step->length;
        s->stripped++;
    }
    if (length == 0) return PH_OK;
    s->started = 1;
    PH_TRY(append(d, &s->held, text, length));
    while (
        tail + step->length <= s->held.length && tail < most &&
        is_at(step, s->held.bytes + s->held.length - tail - step->length, step->length))
        tail += step->length;
    s->work.length = 0;
    PH_TRY(append(d, &s->work, s->held.bytes, s->held.length - tail));
    memmove(s->held.bytes, s->held.bytes + s->held.length - tail, tail);
    s->held.length = tail;
    return feed(d, index + 1, s->work.bytes, s->work.length);
}

static ph_status take_join(ph_detokenizer *d, size_t index, const char *text,
                           size_t length)
{
    const ph_decode_step *step = &d->tokenizer->decoders[index];
    if (d->stages[index].tokens++ > 0)
        PH_TRY(feed(d, index + 1, step->text, step->length));
    return feed(d, index + 1, text, length);
}

static ph_status feed(ph_detokenizer *d, size_t index, const char *text, size_t length)
{
    if (index == d->tokenizer->decoder_count) return append(d, &d->out, text, length);
    const ph_decode_step *step = &d->tokenizer->decoders[index];
    switch (step->kind) {
    case PH_DECODE_JOIN: return take_join(d, index, text, length);
    case PH_DECODE_BYTES: return take_bytes(d, index, text, length);
    case PH_DECODE_WORDPIECE: return take_wordpiece(d, index, text, length);
    case PH_DECODE_METASPACE: return take_metaspace(d, index, text, length);
    case PH_DECODE_REPLACE:
        return take_replace(d, index, &step->pattern, step->text, step->length, text,
                            length);
    case PH_DECODE_BYTE_FALLBACK: return take_fallback(d, index, text, length);
    case PH_DECODE_STRIP:
        return (d->stages[index].joined ? strip_joined : strip_token)(d, index, text,
                                                                      length);
    default: return feed(d, index + 1, text, length); /* FUSE: stages know it as joined */
    }
}

/* ---- calls ---- */

static ph_status finish(ph_detokenizer *d, ph_status status, const char **text,
                        size_t *length)
{
    if (status == PH_OK) status = append(d, &d->out, "", 0);
    if (status != PH_OK) return ph_io_no_memory(&d->io, d->out.length, "a decoded text");
    *text = d->out.bytes;
    *length = d->out.length;
    return PH_OK;
}

ph_status ph_detokenize(ph_detokenizer *d, int32_t id, const char **text, size_t *length)
{
    if (!d) return PH_BAD_ARGUMENT;
    if (!text || !length) return ph_io_null(&d->io, "text or length");
    const ph_tokenizer *t = d->tokenizer;
    d->out.length = 0;
    if (!ph_token_known(&t->tokens, id)) return finish(d, PH_OK, text, length);
    const ph_token_entry *entry = &t->tokens.entries[id];
    const ph_added_token *added = entry->added ? &t->added[entry->added - 1] : NULL;
    const char *token = added ? added->text : ph_token_text(&t->tokens, id);
    size_t size = added ? added->length : entry->length;
    /* Only the text that was added is special, not what a normalizer made of it. */
    int special = entry->special && size == entry->length &&
                  !memcmp(token, ph_token_text(&t->tokens, id), size);
    if (special && d->skip_special) return finish(d, PH_OK, text, length);
    return finish(d, feed(d, 0, token, size), text, length);
}

/* Every stage hands on what it holds back, and forgets it. */
static ph_status flush_stages(ph_detokenizer *d)
{
    const ph_tokenizer *t = d->tokenizer;
    ph_status status = PH_OK;
    for (size_t i = 0; i < t->decoder_count && status == PH_OK; i++) {
        stage *s = &d->stages[i];
        if (t->decoders[i].kind == PH_DECODE_BYTES && s->held.length)
            status = flush_bytes(d, i, 1);
        if (t->decoders[i].kind == PH_DECODE_BYTE_FALLBACK) status = flush_run(d, i);
        s->held.length = 0;
    }
    return status;
}

ph_status ph_detokenize_prompt(ph_detokenizer *d)
{
    d->out.length = 0;
    ph_status status = flush_stages(d);
    return status == PH_OK ? PH_OK
                           : ph_io_no_memory(&d->io, d->out.length, "a decoded text");
}

ph_status ph_detokenize_end(ph_detokenizer *d, const char **text, size_t *length)
{
    if (!d) return PH_BAD_ARGUMENT;
    if (!text || !length) return ph_io_null(&d->io, "text or length");
    d->out.length = 0;
    ph_status status = flush_stages(d);
    for (size_t i = 0; i < d->tokenizer->decoder_count; i++) {
        stage *s = &d->stages[i];
        s->tokens = s->stripped = 0;
        s->started = 0;
    }
    return finish(d, status, text, length);
}
