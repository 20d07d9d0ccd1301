/*
 * token_lists.c - tokenizers from plain lists of tokens: vocab.txt of BERT, tokenizer.bin
 * of llama2.c, and the merges that scores stand for.
 */
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "io/sort.h"
#include "io/utf8.h"
#include "text/tokenizer.h"

/* ---- BERT ---- */

static ph_status add_named(ph_tokenizer *t, const char *text, int32_t *id)
{
    size_t length = strlen(text);
    *id = ph_token_table_find(&t->tokens, text, length);
    if (*id == PH_TOKEN_NONE || t->tokens.entries[*id].added) return PH_OK;
    t->tokens.entries[*id].added = 1;
    return ph_add_token(
        t, (ph_added_token){
               .id = *id, .text = text, .length = (uint32_t)length, .special = 1});
}

ph_status ph_add_bert_template(ph_tokenizer *t, int32_t cls, int32_t sep)
{
    for (int i = 0; i < 2; i++) {
        ph_template *list = i ? &t->pair : &t->single;
        PH_TRY(ph_template_add(t, list, cls, 0));
        PH_TRY(ph_template_add(t, list, PH_TEMPLATE_A, 0));
        PH_TRY(ph_template_add(t, list, sep, 0));
    }
    PH_TRY(ph_template_add(t, &t->pair, PH_TEMPLATE_B, 1));
    t->has_template = 1;
    return ph_template_add(t, &t->pair, sep, 1);
}

/* Everything but the vocabulary, which is there already. */
static ph_status setup_words(ph_tokenizer *t, const char *name,
                             const ph_word_options *options, const ph_io *io)
{
    int32_t unknown, cls, sep, pad, mask;
    PH_TRY(add_named(t, "[UNK]", &unknown));
    PH_TRY(add_named(t, "[CLS]", &cls));
    PH_TRY(add_named(t, "[SEP]", &sep));
    PH_TRY(add_named(t, "[PAD]", &pad));
    PH_TRY(add_named(t, "[MASK]", &mask));
    if (unknown == PH_TOKEN_NONE || cls == PH_TOKEN_NONE || sep == PH_TOKEN_NONE)
        return ph_io_fail(io, PH_BAD_FILE,
                          "'%.200s' is no vocabulary of BERT: it lacks [UNK], [CLS] or "
                          "[SEP]",
                          name);
    t->model.unknown = unknown;
    t->model.max_characters = 100;
    t->padding = pad;
    PH_TRY(ph_add_bert_template(t, cls, sep));
    PH_TRY(ph_setup_bert(t, options));
    PH_TRY(ph_add_decoder(
        t, (ph_decode_step){
               .kind = PH_DECODE_WORDPIECE, .text = "##", .length = 2, .cleanup = 1}));
    return ph_setup_wordpiece_trie(t, "##", 2, io);
}

/* White space at the end of a line is not part of the token. */
static size_t trimmed(const ph_tokenizer *t, const char *line, size_t length)
{
    while (length > 0) {
        size_t last = length - 1;
        uint32_t point = 0;
        while (last > 0 && ((unsigned char)line[last] & 0xc0) == 0x80) last--;
        ph_utf8_decode(line + last, length - last, &point);
        if (!(ph_char_flags(&t->unicode, point) & PH_CHAR_SPACE)) break;
        length = last;
    }
    return length;
}

ph_status ph_read_vocab_txt(ph_tokenizer *t, const char *name, const char *bytes,
                            size_t size, const ph_io *io)
{
    const ph_word_options usual = {0};
    size_t valid = ph_utf8_valid(bytes, size), id = 0;
    if (valid < size)
        return ph_io_fail(io, PH_BAD_FILE,
                          "'%.200s' is no tokenizer: expected JSON, words in UTF-8 or a "
                          "tokenizer.bin, but byte %zu is none of these",
                          name, valid);
    for (size_t at = 0; at < size; id++) {
        const char *end = memchr(bytes + at, '\n', size - at);
        size_t length = end ? (size_t)(end - bytes) - at : size - at;
        PH_TRY(ph_token_table_add(&t->tokens, id, bytes + at,
                                  trimmed(t, bytes + at, length)));
        at += length + 1;
    }
    return setup_words(t, name, &usual, io);
}

static ph_status check_chars(const ph_chars *tokens, size_t count, const ph_io *io)
{
    for (size_t i = 0; i < count; i++)
        if (ph_utf8_valid(tokens[i].text, tokens[i].length) != tokens[i].length)
            return ph_io_fail(io, PH_BAD_FILE, "token %zu is not valid UTF-8", i);
    return PH_OK;
}

static ph_status add_words(ph_tokenizer *t, const ph_chars *tokens, size_t count,
                           const ph_io *io)
{
    PH_TRY(check_chars(tokens, count, io));
    for (size_t i = 0; i < count; i++)
        PH_TRY(ph_token_table_add(&t->tokens, i, tokens[i].text, tokens[i].length));
    return PH_OK;
}

ph_status ph_tokenizer_of_words(ph_tokenizer **out, const ph_chars *tokens, size_t count,
                                const ph_word_options *options, const ph_io *io)
{
    const ph_word_options usual = {0};
    ph_tokenizer *t = NULL;
    if (out) *out = NULL;
    if (!out || (count && !tokens)) return ph_io_null(io, "out or tokens");
    PH_TRY(ph_tokenizer_new(&t, io));
    ph_status status = add_words(t, tokens, count, io);
    if (status == PH_OK)
        status = setup_words(t, "the list of words", options ? options : &usual, io);
    return ph_tokenizer_deliver(t, status, out, io);
}

/* ---- merges from scores ---- */

typedef struct scored {
    float score;
    int32_t id;
} scored;

static int best_first(const void *left, const void *right)
{
    const scored *a = left, *b = right;
    if (a->score != b->score) return a->score > b->score ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

/* Counts, or adds, the pairs of tokens whose union is this token. */
static size_t pairs_of(ph_tokenizer *t, int32_t id, uint32_t rank, int add)
{
    const char *text = ph_token_text(&t->tokens, id);
    size_t length = t->tokens.entries[id].length, count = 0;
    for (size_t cut = 1; cut < length; cut++) {
        if (((unsigned char)text[cut] & 0xc0) == 0x80) continue;
        int32_t left = ph_token_table_find(&t->tokens, text, cut);
        int32_t right = ph_token_table_find(&t->tokens, text + cut, length - cut);
        if (left == PH_TOKEN_NONE || right == PH_TOKEN_NONE) continue;
        count++;
        if (add) ph_model_add_pair(&t->model, left, right, rank, id);
    }
    return count;
}

enum { MAX_MERGED = 256 }; /* bytes; the longest known token that is merged has 96 */

/* Tokens with equal scores share a rank, so that the leftmost pair wins. */
ph_status ph_merges_of_scores(ph_tokenizer *t, const float *scores, size_t count,
                              const ph_io *io)
{
    size_t pairs = 0, usable = 0;
    uint32_t rank = 0;
    scored *order = ph_io_alloc(io, count * sizeof *order);
    if (!order) return ph_io_no_memory(io, count * sizeof *order, "merges");
    for (size_t i = 0; i < count; i++) {
        const ph_token_entry *e = &t->tokens.entries[i];
        if (!e->used || e->added || e->byte || e->length > MAX_MERGED) continue;
        order[usable++] = (scored){scores[i], (int32_t)i};
        pairs += pairs_of(t, (int32_t)i, 0, 0);
    }
    ph_sort(order, usable, sizeof *order, best_first);
    ph_status status = ph_model_pairs(&t->model, pairs, io);
    for (size_t i = 0; i < usable && status == PH_OK; i++) {
        if (i > 0 && order[i].score != order[i - 1].score) rank++;
        pairs_of(t, order[i].id, rank, 1);
    }
    ph_io_release(io, order);
    return status;
}

/* ---- llama2.c ---- */

enum { BIN_BOS = 1, BIN_BYTES = 3 };

static int32_t read_int(const char *bytes)
{
    int32_t value;
    memcpy(&value, bytes, 4);
    return value;
}

/* Tokens 3 to 258 are bytes, whatever text older files have there. */
static ph_status add_bin_token(ph_tokenizer *t, size_t id, const char *text,
                               size_t length)
{
    char name[8];
    if (id < BIN_BYTES || id >= BIN_BYTES + 256)
        return ph_token_table_add(&t->tokens, id, text, length);
    snprintf(name, sizeof name, "<0x%02X>", (unsigned)(id - BIN_BYTES));
    PH_TRY(ph_token_table_add(&t->tokens, id, name, 6));
    t->tokens.entries[id].byte = 1;
    return PH_OK;
}

/* All tokens and their scores; *count becomes their number. */
static ph_status read_bin_tokens(ph_tokenizer *t, const char *name, const char *bytes,
                                 size_t size, float *scores, size_t *count,
                                 const ph_io *io)
{
    size_t at = 4;
    *count = 0;
    while (at < size) {
        int32_t length = size - at >= 8 ? read_int(bytes + at + 4) : -1;
        if (length < 0 || (size_t)length > size - at - 8)
            return ph_io_fail(io, PH_BAD_FILE,
                              "'%.200s': token %zu does not fit the file", name, *count);
        memcpy(&scores[*count], bytes + at, 4);
        if (scores[*count] != scores[*count])
            return ph_io_fail(io, PH_BAD_FILE, "'%.200s': the score of token %zu is NaN",
                              name, *count);
        if (ph_utf8_valid(bytes + at + 8, (size_t)length) != (size_t)length)
            return ph_io_fail(io, PH_BAD_FILE, "'%.200s': token %zu is not valid UTF-8",
                              name, *count);
        PH_TRY(add_bin_token(t, (*count)++, bytes + at + 8, (size_t)length));
        at += 8 + (size_t)length;
    }
    return PH_OK;
}

/* <unk> and the two marks; 256 bytes come behind them. */
static ph_status mark_bin_tokens(ph_tokenizer *t, const char *name, size_t count,
                                 const ph_io *io)
{
    if (count < BIN_BYTES + 256)
        return ph_io_fail(io, PH_BAD_FILE,
                          "'%.200s' has %zu tokens, expected 3 marks, 256 bytes and more",
                          name, count);
    for (int32_t i = 0; i < BIN_BYTES; i++) {
        ph_token_entry *e = &t->tokens.entries[i];
        e->added = 1;
        PH_TRY(ph_add_token(t, (ph_added_token){.id = i,
                                                .text = ph_token_text(&t->tokens, i),
                                                .length = e->length,
                                                .special = 1}));
    }
    return PH_OK;
}

static ph_status setup_bin(ph_tokenizer *t, const char *name, const float *scores,
                           size_t count, const ph_io *io)
{
    ph_step space = {.kind = PH_STEP_PREPEND, .text = " ", .length = 1};
    PH_TRY(mark_bin_tokens(t, name, count, io));
    t->model.kind = PH_MODEL_BPE;
    t->model.byte_fallback = t->model.fuse_unknown = 1;
    t->model.unknown = 0;
    PH_TRY(ph_merges_of_scores(t, scores, count, io));
    PH_TRY(ph_add_normalizer(t, space));
    for (int i = 0; i < 2; i++) {
        ph_template *list = i ? &t->pair : &t->single;
        PH_TRY(ph_template_add(t, list, BIN_BOS, 0));
        PH_TRY(ph_template_add(t, list, PH_TEMPLATE_A, 0));
    }
    PH_TRY(ph_template_add(t, &t->pair, BIN_BOS, 1));
    PH_TRY(ph_template_add(t, &t->pair, PH_TEMPLATE_B, 1));
    t->has_template = 1;
    PH_TRY(ph_add_decoder(t, (ph_decode_step){.kind = PH_DECODE_BYTE_FALLBACK}));
    PH_TRY(ph_add_decoder(t, (ph_decode_step){.kind = PH_DECODE_FUSE}));
    return ph_add_decoder(
        t,
        (ph_decode_step){.kind = PH_DECODE_STRIP, .text = " ", .length = 1, .left = 1});
}

ph_status ph_read_tokenizer_bin(ph_tokenizer *t, const char *name, const char *bytes,
                                size_t size, const ph_io *io)
{
    size_t count = 0;
    float *scores = ph_io_alloc(io, (size / 8 + 1) * sizeof *scores);
    if (!scores) return ph_io_no_memory(io, size / 2, "scores");
    ph_status status = read_bin_tokens(t, name, bytes, size, scores, &count, io);
    if (status == PH_OK) status = setup_bin(t, name, scores, count, io);
    ph_io_release(io, scores);
    return status;
}
