/*
 * encode.c - text to tokens: added tokens are cut out, the rest is normalized, split and
 * handed to the model, then truncated and put into the template.
 */
#include <string.h>

#include "base/base.h"
#include "base/size.h"
#include "io/utf8.h"
#include "text/tokenizer.h"

/* A token of one text, before the template. */
typedef struct emitted {
    ph_text_token token;
    uint32_t lead, trail; /* blanks at its ends, where offsets leave them out */
} emitted;

typedef struct sequence {
    const char *text;
    size_t length;
    emitted *items;
    size_t first, count, capacity; /* truncation moves `first` and `count` */
} sequence;

struct ph_encoder {
    ph_io io; /* with the error text */
    const ph_tokenizer *tokenizer;
    ph_pieces pieces;
    ph_aligned whole; /* a normalized text that holds added tokens */
    ph_cutter cutter;
    sequence sequences[2];
    ph_text_token *tokens;
    size_t capacity;
};

ph_status ph_encoder_create(ph_encoder **out, const ph_tokenizer *tokenizer,
                            const ph_io *io)
{
    if (out) *out = NULL;
    if (!out || !tokenizer) return ph_io_null(io, "out or tokenizer");
    ph_encoder *e = ph_io_alloc(io, sizeof *e);
    *out = e;
    if (!e) return ph_io_no_memory(io, sizeof *e, "an encoder");
    memset(e, 0, sizeof *e);
    e->io = io ? *io : (ph_io){0};
    e->tokenizer = tokenizer;
    e->cutter.io = e->whole.io = &e->io;
    ph_pieces_init(&e->pieces, &tokenizer->unicode, &e->io);
    return PH_OK;
}

void ph_encoder_free(ph_encoder *e)
{
    if (!e) return;
    ph_io io = e->io;
    ph_pieces_free(&e->pieces);
    ph_aligned_free(&e->whole);
    ph_cutter_free(&e->cutter);
    for (int i = 0; i < 2; i++) ph_io_release(&io, e->sequences[i].items);
    ph_io_release(&io, e->tokens);
    ph_io_release(&io, e);
}

/* ---- tokens of one text ---- */

/* Blanks at the start of a token's text, and at its end: as characters of the alphabet
   of bytes, or as they are in added tokens. */
static int is_blank(const ph_tokenizer *t, uint32_t point)
{
    return point == 0x120 || ph_char_flags(&t->unicode, point) & PH_CHAR_SPACE;
}

static void count_blanks(const ph_tokenizer *t, const char *text, size_t length,
                         uint32_t *lead, uint32_t *trail)
{
    int inside = 0; /* was there anything but blanks? */
    *lead = *trail = 0;
    for (size_t i = 0; i < length;) {
        uint32_t point = 0;
        i += (size_t)ph_utf8_decode(text + i, length - i, &point);
        if (!is_blank(t, point)) {
            inside = 1;
            *trail = 0;
        } else {
            *lead += !inside;
            ++*trail;
        }
    }
}

/* `text` is what the token's blanks are counted in. */
static ph_status emit(ph_encoder *e, sequence *s, int32_t id, ph_text_span span,
                      const char *text, size_t length)
{
    const ph_tokenizer *t = e->tokenizer;
    void *items = s->items;
    emitted *item;
    ph_status status =
        ph_io_grow(&e->io, &items, &s->capacity, s->count + 1, sizeof(emitted));
    s->items = items;
    if (status != PH_OK) return status;
    item = &s->items[s->count++];
    *item = (emitted){.token = {.id = id,
                                .sequence = (int32_t)(s - e->sequences),
                                .special = t->tokens.entries[id].special,
                                .start = span.start,
                                .end = span.end}};
    if (t->trim_offsets) count_blanks(t, text, length, &item->lead, &item->trail);
    return PH_OK;
}

static ph_status cut_pieces(ph_encoder *e, sequence *s)
{
    const ph_tokenizer *t = e->tokenizer;
    const ph_aligned *text = &e->pieces.text;
    for (size_t i = 0; i < e->pieces.count; i++) {
        ph_text_range piece = e->pieces.items[i];
        e->cutter.count = 0;
        PH_TRY(ph_cut_piece(&t->model, &e->cutter, text->bytes + piece.start,
                            piece.end - piece.start));
        for (size_t k = 0; k < e->cutter.count; k++) {
            ph_cut cut = e->cutter.cuts[k];
            ph_text_span span = {text->spans[piece.start + cut.start].start,
                                 text->spans[piece.start + cut.end - 1].end};
            int raw = t->model.kind == PH_MODEL_UNIGRAM && cut.id == t->model.unknown;
            PH_TRY(emit(e, s, cut.id, span,
                        raw ? text->bytes + piece.start + cut.start
                            : ph_token_text(&t->tokens, cut.id),
                        raw ? cut.end - cut.start : t->tokens.entries[cut.id].length));
        }
    }
    return PH_OK;
}

static ph_status split_and_cut(ph_encoder *e, sequence *s)
{
    PH_TRY(
        ph_pieces_run(&e->pieces, e->tokenizer->splitters, e->tokenizer->splitter_count));
    return cut_pieces(e, s);
}

/* A part of the normalized text between added tokens. */
static ph_status cut_part(ph_encoder *e, sequence *s, size_t start, size_t end)
{
    if (start >= end) return PH_OK;
    PH_TRY(ph_pieces_load_part(&e->pieces, &e->whole, start, end));
    return split_and_cut(e, s);
}

/* The normalized text lies in pieces.text, and there are added tokens to look for. */
static ph_status cut_around_added(ph_encoder *e, sequence *s, int special_as_text)
{
    const ph_tokenizer *t = e->tokenizer;
    ph_aligned text = e->pieces.text;
    size_t at = 0, taken = 0, length = text.length;
    ph_found found;
    e->pieces.text = e->whole;
    e->whole = text;
    e->pieces.text.limit = text.limit;
    while (ph_added_find(t, &t->normalized, e->whole.bytes, length, &at, taken,
                         special_as_text, &found)) {
        const ph_text_span *spans = e->whole.spans;
        PH_TRY(cut_part(e, s, taken, found.start));
        PH_TRY(emit(e, s, found.token->id,
                    (ph_text_span){spans[found.start].start, spans[found.end - 1].end},
                    e->whole.bytes + found.start, found.end - found.start));
        taken = found.end;
    }
    return cut_part(e, s, taken, length);
}

/* [start, end) of the text holds no added token that is looked for in the raw text. */
static ph_status encode_part(ph_encoder *e, sequence *s, size_t start, size_t end,
                             int special_as_text)
{
    const ph_tokenizer *t = e->tokenizer;
    if (start >= end) return PH_OK;
    PH_TRY(ph_pieces_load(&e->pieces, s->text, start, end));
    PH_TRY(ph_pieces_run(&e->pieces, t->normalizers, t->normalizer_count));
    if (e->pieces.count == 0) return PH_OK;
    if (t->normalized.count > 0) return cut_around_added(e, s, special_as_text);
    return split_and_cut(e, s);
}

static ph_status check_text(ph_encoder *e, const char *text, size_t length)
{
    size_t valid = ph_utf8_valid(text, length);
    if (length > INT32_MAX)
        return ph_io_fail(&e->io, PH_BAD_ARGUMENT,
                          "the text has %zu bytes, expected at most 2147483647", length);
    if (valid < length)
        return ph_io_fail(&e->io, PH_BAD_VALUE, "the text is not valid UTF-8 at byte %zu",
                          valid);
    return PH_OK;
}

static ph_status encode_text(ph_encoder *e, sequence *s, int special_as_text)
{
    const ph_tokenizer *t = e->tokenizer;
    size_t at = 0, taken = 0;
    ph_found found;
    s->first = s->count = 0;
    while (ph_added_find(t, &t->raw, s->text, s->length, &at, taken, special_as_text,
                         &found)) {
        PH_TRY(encode_part(e, s, taken, found.start, special_as_text));
        PH_TRY(emit(e, s, found.token->id,
                    (ph_text_span){(uint32_t)found.start, (uint32_t)found.end},
                    s->text + found.start, found.end - found.start));
        taken = found.end;
    }
    return encode_part(e, s, taken, s->length, special_as_text);
}

/* ---- offsets without blanks ---- */

static void trim(const ph_tokenizer *t, const sequence *s, emitted *item, int first)
{
    size_t start = item->token.start, end = item->token.end, back = end;
    uint32_t lead = item->lead, trail = item->trail;
    if (t->trim_keeps_one && lead == 1 && (first || start == 0)) lead = 0;
    for (; lead > 0 && start < end; lead--) {
        uint32_t point;
        start += (size_t)ph_utf8_decode(s->text + start, s->length - start, &point);
    }
    for (; trail > 0 && back > 0; trail--) {
        back--;
        while (back > 0 && ((unsigned char)s->text[back] & 0xc0) == 0x80) back--;
    }
    if (trail == 0) end = back > start ? back : start;
    item->token.start = start;
    item->token.end = end;
}

/* ---- truncation ---- */

static void truncate_to(sequence *s, size_t count, int left)
{
    if (count >= s->count) return;
    if (left) s->first += s->count - count;
    s->count = count;
}

/* The longer text first; then both to the half. */
static void truncate_pair(sequence *a, sequence *b, size_t most, int left)
{
    size_t shorter = a->count < b->count ? a->count : b->count, longer;
    if (a->count + b->count <= most) return;
    longer = shorter > most || most - shorter < shorter ? shorter : most - shorter;
    if (shorter + longer > most) {
        shorter = most / 2;
        longer = shorter + most % 2;
    }
    int a_is_longer = a->count > b->count;
    truncate_to(a, a_is_longer ? longer : shorter, left);
    truncate_to(b, a_is_longer ? shorter : longer, left);
}

/* ---- the template ---- */

static const ph_template *template_of(const ph_tokenizer *t, int pair)
{
    static ph_template_item plain_items[] = {{PH_TEMPLATE_A, 0}, {PH_TEMPLATE_B, 1}};
    static const ph_template plain[] = {{plain_items, 1, 1}, {plain_items, 2, 2}};
    if (!t->has_template) return &plain[pair];
    return pair ? &t->pair : &t->single;
}

static size_t count_added(const ph_template *list)
{
    size_t count = 0;
    for (size_t i = 0; i < list->count; i++) count += list->items[i].id >= 0;
    return count;
}

static void put_sequence(ph_encoder *e, const sequence *s, int type, size_t *at)
{
    const ph_tokenizer *t = e->tokenizer;
    for (size_t i = 0; i < s->count; i++) {
        emitted *item = &s->items[s->first + i];
        if (t->trim_offsets) trim(t, s, item, i == 0);
        e->tokens[*at] = item->token;
        e->tokens[(*at)++].type = type;
    }
}

static ph_status put_all(ph_encoder *e, const ph_template *list, int bare, size_t *count)
{
    void *tokens = e->tokens;
    size_t need = 0, at = 0;
    for (size_t i = 0; i < list->count; i++) {
        int32_t id = list->items[i].id;
        need += id >= 0 ? 1 : e->sequences[id == PH_TEMPLATE_B].count;
    }
    ph_status status = ph_io_grow(&e->io, &tokens, &e->capacity, need, sizeof *e->tokens);
    e->tokens = tokens;
    if (status != PH_OK) return status;
    for (size_t i = 0; i < list->count; i++) {
        ph_template_item item = list->items[i];
        if (item.id < 0)
            put_sequence(e, &e->sequences[item.id == PH_TEMPLATE_B], item.type, &at);
        else if (!bare)
            e->tokens[at++] = (ph_text_token){
                .id = item.id, .type = item.type, .sequence = -1, .special = 1};
    }
    *count = at;
    return PH_OK;
}

static ph_status truncate_all(ph_encoder *e, const ph_encode_args *args,
                              const ph_template *list)
{
    size_t added = args->bare ? 0 : count_added(list);
    if (args->max_tokens == 0) return PH_OK;
    if (args->max_tokens < added)
        return ph_io_fail(&e->io, PH_BAD_ARGUMENT,
                          "max_tokens is %zu, but the template alone has %zu tokens",
                          args->max_tokens, added);
    if (args->pair)
        truncate_pair(&e->sequences[0], &e->sequences[1], args->max_tokens - added,
                      args->truncate_left);
    else
        truncate_to(&e->sequences[0], args->max_tokens - added, args->truncate_left);
    return PH_OK;
}

static ph_status encode_both(ph_encoder *e, const ph_encode_args *args)
{
    sequence *a = &e->sequences[0], *b = &e->sequences[1];
    a->text = args->text;
    a->length = args->length;
    b->text = args->pair;
    b->length = args->pair ? args->pair_length : 0;
    b->first = b->count = 0;
    PH_TRY(check_text(e, a->text, a->length));
    if (args->pair) PH_TRY(check_text(e, b->text, b->length));
    PH_TRY(encode_text(e, a, args->special_as_text));
    return args->pair ? encode_text(e, b, args->special_as_text) : PH_OK;
}

ph_status ph_encode(ph_encoder *e, const ph_encode_args *args,
                    const ph_text_token **tokens, size_t *count)
{
    if (!e) return PH_BAD_ARGUMENT;
    if (!args || !tokens || !count || (args->length && !args->text))
        return ph_io_null(&e->io, "args, its text, tokens or count");
    const ph_template *list = template_of(e->tokenizer, args->pair != NULL);
    size_t found = 0;
    ph_status status = encode_both(e, args);
    if (status == PH_OK) status = truncate_all(e, args, list);
    if (status == PH_OK) status = put_all(e, list, args->bare, &found);
    if (status == PH_OUT_OF_MEMORY)
        return ph_io_fail(&e->io, status, "out of memory while a text is encoded");
    if (status == PH_UNSUPPORTED)
        return ph_io_fail(&e->io, status,
                          "the tokenizer makes more than 64 bytes of each byte of the "
                          "text");
    if (status != PH_OK) return status;
    *tokens = e->tokens;
    *count = found;
    return PH_OK;
}
