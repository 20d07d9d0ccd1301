/*
 * sentencepiece.c - a model of SentencePiece and a vocabulary as a tokenizer.json.
 *
 * Such a model is a protocol buffer. What is read of it, by number of field:
 *
 *     1  pieces       1 text, 2 score (float), 3 type (1 normal, 4 given by the user)
 *     2  trainer      3 kind of model (1 Unigram)
 *     3  normalizer   2 a precompiled map of characters
 *
 * A field is a key, number * 8 + wire type, and a value: 0 a varint, 1 eight bytes, 2 a
 * length and so many bytes, 5 four bytes.
 */
#include "text/sentencepiece.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "io/json_write.h"
#include "io/sort.h"
#include "text/json_tree.h"
#include "text/section_json.h"

static const char mark[] = "\xe2\x96\x81"; /* U+2581, a blank in SentencePiece */

enum { NORMAL = 1, USER = 4, UNIGRAM = 1 };

typedef struct spm_bytes {
    const unsigned char *at;
    size_t size;
} spm_bytes;

typedef struct spm_piece {
    const char *text;
    size_t length;
    float score;
    int has_id;
} spm_piece;

typedef struct spm_job {
    const ph_spm_files *files;
    const ph_io *io;
    spm_piece *pieces;
    size_t count, capacity;
    spm_bytes charsmap;
    const char **tokens; /* (token_count) texts by id */
    size_t token_count;
    ph_json_text json;
} spm_job;

static ph_status bad(const spm_job *j, const char *why)
{
    return ph_io_fail(j->io, PH_BAD_FILE, "'%.200s': %s", j->files->pieces_name, why);
}

/* ---- the protocol buffer ---- */

/* A varint of at most 64 bits; 0: it ends too early. */
static int take_varint(spm_bytes *b, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; shift < 64 && b->size; shift += 7) {
        unsigned char byte = *b->at++;
        b->size--;
        *value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) return 1;
    }
    return 0;
}

/* The next field: its number, and its value as a number or as bytes; 0: there is none, or
   it is cut off (b->size is not 0 then). */
static int take_field(spm_bytes *b, uint64_t *number, uint64_t *value, spm_bytes *bytes)
{
    spm_bytes rest = *b;
    uint64_t key, length;
    if (!take_varint(&rest, &key)) return 0;
    *number = key >> 3, *value = 0, *bytes = (spm_bytes){0};
    if ((key & 7) == 0) {
        if (!take_varint(&rest, value)) return 0;
    } else {
        length = (key & 7) == 1 ? 8 : (key & 7) == 5 ? 4 : 0;
        if ((key & 7) == 2 && !take_varint(&rest, &length)) return 0;
        if (!length && (key & 7) != 2) return 0;
        if (length > rest.size) return 0;
        *bytes = (spm_bytes){rest.at, (size_t)length};
        rest.at += length, rest.size -= (size_t)length;
    }
    *b = rest;
    return 1;
}

static ph_status add_piece(spm_job *j, spm_bytes b)
{
    uint64_t number, value, type = NORMAL;
    spm_bytes bytes;
    spm_piece piece = {0};
    while (take_field(&b, &number, &value, &bytes)) {
        if (number == 1) piece.text = (const char *)bytes.at, piece.length = bytes.size;
        if (number == 2 && bytes.size == 4) memcpy(&piece.score, bytes.at, 4);
        if (number == 3) type = value;
    }
    if (b.size) return bad(j, "a piece is cut off");
    if (type != NORMAL && type != USER) return PH_OK;
    void *list = j->pieces;
    PH_TRY(ph_io_grow(j->io, &list, &j->capacity, j->count + 1, sizeof *j->pieces));
    j->pieces = list;
    j->pieces[j->count++] = piece;
    return PH_OK;
}

/* One field of a message; 0: it has none. */
static int find_field(spm_bytes message, uint64_t wanted, uint64_t *value,
                      spm_bytes *bytes)
{
    uint64_t number;
    while (take_field(&message, &number, value, bytes))
        if (number == wanted) return 1;
    return 0;
}

static ph_status read_pieces(spm_job *j)
{
    spm_bytes b = {j->files->pieces, j->files->pieces_size}, bytes, inner;
    uint64_t number, value;
    while (take_field(&b, &number, &value, &bytes)) {
        if (number == 1) PH_TRY(add_piece(j, bytes));
        if (number == 2 && find_field(bytes, 3, &value, &inner) && value != UNIGRAM)
            return bad(j, "expected a Unigram model");
        if (number == 3 && find_field(bytes, 2, &value, &inner)) j->charsmap = inner;
    }
    if (b.size || !j->count) return bad(j, "no model of SentencePiece, or cut off");
    return PH_OK;
}

static int by_text(const void *a, const void *b)
{
    const spm_piece *x = a, *y = b;
    size_t least = x->length < y->length ? x->length : y->length;
    int order = least ? memcmp(x->text, y->text, least) : 0;
    return order ? order : (x->length > y->length) - (x->length < y->length);
}

/* ---- the vocabulary ---- */

static ph_status read_tokens(spm_job *j, const ph_json_tree *tree)
{
    const ph_json_node *n = ph_json_first(tree, &tree->nodes[0]);
    size_t count = tree->nodes[0].members, id;
    if (tree->nodes[0].kind != PH_JSON_OBJECT || !count)
        return ph_io_fail(j->io, PH_BAD_FILE, "'%.200s': expected an object of ids",
                          j->files->vocab_name);
    j->tokens = ph_io_alloc(j->io, count * sizeof *j->tokens);
    if (!j->tokens) return ph_io_no_memory(j->io, count, "a vocabulary");
    memset(j->tokens, 0, count * sizeof *j->tokens);
    j->token_count = count;
    for (; n; n = ph_json_after(tree, n)) {
        if (ph_json_node_size(n, &id) || id >= count || j->tokens[id] ||
            strlen(n->key) != n->key_length)
            return ph_io_fail(j->io, PH_BAD_FILE,
                              "'%.200s': the id of %s is no number below %zu of its own",
                              j->files->vocab_name,
                              ph_io_quote(n->key, n->key_length).text, count);
        j->tokens[id] = n->key;
    }
    return PH_OK;
}

static size_t id_of(const spm_job *j, const char *text)
{
    size_t id = 0;
    while (id < j->token_count && strcmp(j->tokens[id], text)) id++;
    return id;
}

/* ---- writing ---- */

static void write_charsmap(spm_job *j, ph_json_writer *json)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *from = j->charsmap.at;
    size_t size = j->charsmap.size, at = 0;
    char *text = ph_io_alloc(j->io, size / 3 * 4 + 8);
    if (!text) {
        j->json.status = ph_io_no_memory(j->io, size, "a map of characters");
        return;
    }
    for (size_t i = 0; i < size; i += 3) {
        unsigned long three = (unsigned long)from[i] << 16;
        if (i + 1 < size) three |= (unsigned long)from[i + 1] << 8;
        if (i + 2 < size) three |= from[i + 2];
        for (int k = 0; k < 4; k++) text[at++] = digits[three >> (18 - 6 * k) & 63];
        if (i + 1 >= size) text[at - 2] = '=';
        if (i + 2 >= size) text[at - 1] = '=';
    }
    text[at] = 0;
    ph_json_begin_object(json, "normalizer");
    ph_json_string(json, "type", "Precompiled");
    ph_json_string(json, "precompiled_charsmap", text);
    ph_json_end(json);
    ph_io_release(j->io, text);
}

/* Marks, and names of languages that a text begins with: ">>fra<<". */
static int is_added(const char *token)
{
    size_t length = strlen(token);
    if (!strcmp(token, "</s>") || !strcmp(token, "<unk>") || !strcmp(token, "<pad>"))
        return 1;
    return length > 4 && !strncmp(token, ">>", 2) && !strcmp(token + length - 2, "<<");
}

static void write_added(const spm_job *j, ph_json_writer *json)
{
    ph_json_begin_array(json, "added_tokens");
    for (size_t id = 0; id < j->token_count; id++) {
        if (!is_added(j->tokens[id])) continue;
        ph_json_begin_object(json, NULL);
        ph_json_integer(json, "id", (int64_t)id);
        ph_json_string(json, "content", j->tokens[id]);
        ph_json_bool(json, "single_word", 0);
        ph_json_bool(json, "lstrip", 0);
        ph_json_bool(json, "rstrip", 0);
        ph_json_bool(json, "normalized", 0);
        ph_json_bool(json, "special", 1);
        ph_json_end(json);
    }
    ph_json_end(json);
}

static void write_metaspace(ph_json_writer *json, const char *key)
{
    ph_json_begin_object(json, key);
    ph_json_string(json, "type", "Metaspace");
    ph_json_string(json, "replacement", mark);
    ph_json_string(json, "prepend_scheme", "always");
    ph_json_bool(json, "split", 1);
    ph_json_end(json);
}

static void write_template(const spm_job *j, ph_json_writer *json)
{
    const ph_template_marks marks = {.after = {"</s>", (int64_t)id_of(j, "</s>")}};
    ph_json_template(json, &marks);
}

static void write_piece(const char *text, float score, ph_json_writer *json)
{
    ph_json_begin_array(json, NULL);
    ph_json_string(json, NULL, text);
    ph_json_float(json, NULL, score); /* NAN becomes null */
    ph_json_end(json);
}

static void write_unknown(spm_job *j, ph_json_writer *json)
{
    ph_json_begin_array(json, "unknown_pieces");
    for (size_t i = 0; i < j->count; i++) {
        const spm_piece *piece = &j->pieces[i];
        if (piece->has_id) continue;
        char *text = ph_io_alloc(j->io, piece->length + 1);
        if (!text) {
            j->json.status = ph_io_no_memory(j->io, piece->length, "a piece");
            return;
        }
        if (piece->length) memcpy(text, piece->text, piece->length);
        text[piece->length] = 0;
        write_piece(text, piece->score, json);
        ph_io_release(j->io, text);
    }
    ph_json_end(json);
}

static void write_model(spm_job *j, ph_json_writer *json)
{
    ph_json_begin_object(json, "model");
    ph_json_string(json, "type", "Unigram");
    ph_json_integer(json, "unk_id", (int64_t)id_of(j, "<unk>"));
    ph_json_begin_array(json, "vocab");
    for (size_t id = 0; id < j->token_count; id++) {
        const spm_piece key = {.text = j->tokens[id], .length = strlen(j->tokens[id])};
        spm_piece *found = bsearch(&key, j->pieces, j->count, sizeof *j->pieces, by_text);
        write_piece(key.text, found ? found->score : NAN, json);
        if (found) found->has_id = 1;
    }
    ph_json_end(json);
    write_unknown(j, json);
    ph_json_bool(json, "byte_fallback", 0);
    ph_json_end(json);
}

static ph_status write_all(spm_job *j)
{
    ph_json_writer json = {.write = ph_json_text_append, .user = &j->json};
    if (id_of(j, "</s>") == j->token_count || id_of(j, "<unk>") == j->token_count)
        return ph_io_fail(j->io, PH_BAD_FILE, "'%.200s': expected tokens </s> and <unk>",
                          j->files->vocab_name);
    ph_json_begin_object(&json, NULL);
    ph_json_string(&json, "version", "1.0");
    write_added(j, &json);
    if (j->charsmap.size) write_charsmap(j, &json);
    ph_json_begin_object(&json, "pre_tokenizer");
    ph_json_string(&json, "type", "Sequence");
    ph_json_begin_array(&json, "pretokenizers");
    ph_json_begin_object(&json, NULL);
    ph_json_string(&json, "type", "WhitespaceSplit");
    ph_json_end(&json);
    write_metaspace(&json, NULL);
    ph_json_end(&json);
    ph_json_end(&json);
    write_template(j, &json);
    write_metaspace(&json, "decoder");
    write_model(j, &json);
    ph_json_end(&json);
    return j->json.status;
}

static ph_status convert(spm_job *j, ph_json_tree *tree)
{
    PH_TRY(read_pieces(j));
    ph_sort(j->pieces, j->count, sizeof *j->pieces, by_text);
    PH_TRY(ph_json_tree_read(tree, j->files->vocab_name, j->files->vocab,
                             j->files->vocab_size, j->io));
    PH_TRY(read_tokens(j, tree));
    return write_all(j);
}

ph_status ph_spm_to_json(const ph_spm_files *files, char **json, size_t *length,
                         const ph_io *io)
{
    spm_job j = {.files = files, .io = io, .json = {.io = io}};
    ph_json_tree tree = {0};
    ph_status status = convert(&j, &tree);
    ph_json_tree_free(&tree);
    ph_io_release(io, j.pieces);
    ph_io_release(io, j.tokens);
    *json = status == PH_OK ? j.json.bytes : NULL, *length = j.json.length;
    if (status != PH_OK) ph_io_release(io, j.json.bytes);
    return status;
}
