/*
 * file_model.c - the model and the post-processor of a tokenizer.json.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/size.h"
#include "io/number.h"
#include "io/utf8.h"
#include "text/byte_alphabet.h"
#include "text/tokenizer_file.h"

static ph_status bad_model(ph_tokenizer_file *file, const char *why)
{
    return ph_io_fail(file->io, PH_BAD_FILE, "'%.200s': model: %s", file->name, why);
}

/* ---- vocabularies ---- */

static ph_status read_vocab(ph_tokenizer_file *file, const ph_json_node *model)
{
    const ph_json_node *vocab = ph_json_get(&file->tree, model, "vocab");
    if (!vocab || vocab->kind != PH_JSON_OBJECT)
        return bad_model(file, "expected an object `vocab` of tokens and ids");
    const ph_json_node *node = ph_json_first(&file->tree, vocab);
    PH_TRY(ph_token_table_expect(&file->t->tokens, vocab->members));
    for (; node; node = ph_json_after(&file->tree, node)) {
        size_t id = 0;
        if (ph_json_node_size(node, &id))
            return ph_io_fail(file->io, PH_BAD_FILE,
                              "'%.200s': model.vocab: the id of %s is no whole number",
                              file->name, ph_io_quote(node->key, node->key_length).text);
        PH_TRY(ph_token_table_add(&file->t->tokens, id, node->key, node->key_length));
    }
    return PH_OK;
}

/* The unknown token by its text; it must be in the vocabulary. */
static ph_status read_unknown(ph_tokenizer_file *file, const ph_json_node *model)
{
    const ph_json_node *node = ph_json_get(&file->tree, model, "unk_token");
    if (!ph_json_is_set(node)) return PH_OK;
    if (node->kind != PH_JSON_STRING) return bad_model(file, "unk_token is no string");
    file->t->model.unknown =
        ph_token_table_find(&file->t->tokens, node->text, node->length);
    if (file->t->model.unknown == PH_TOKEN_NONE)
        return ph_io_fail(file->io, PH_BAD_FILE,
                          "'%.200s': model: unk_token %s is not in the vocabulary",
                          file->name, ph_io_quote(node->text, node->length).text);
    return PH_OK;
}

static ph_status read_wordpiece(ph_tokenizer_file *file, const ph_json_node *model)
{
    const char *prefix = NULL;
    size_t length = 0;
    PH_TRY(read_vocab(file, model));
    PH_TRY(read_unknown(file, model));
    if (file->t->model.unknown == PH_TOKEN_NONE)
        return bad_model(file, "WordPiece needs an unk_token");
    PH_TRY(ph_file_text(file, model, "continuing_subword_prefix", &prefix, &length));
    PH_TRY(ph_file_size(file, model, "max_input_chars_per_word",
                        &file->t->model.max_characters));
    return ph_setup_wordpiece_trie(file->t, prefix, length, file->io);
}

static ph_status read_wordlevel(ph_tokenizer_file *file, const ph_json_node *model)
{
    file->t->model.kind = PH_MODEL_WORDLEVEL;
    PH_TRY(read_vocab(file, model));
    PH_TRY(read_unknown(file, model));
    if (file->t->model.unknown == PH_TOKEN_NONE)
        return bad_model(file, "WordLevel needs an unk_token");
    return PH_OK;
}

/* ---- BPE ---- */

/* A merge is "left right" or ["left", "right"]. */
static int split_merge(ph_tokenizer_file *file, const ph_json_node *node, ph_chars *left,
                       ph_chars *right)
{
    if (node->kind == PH_JSON_STRING) {
        const char *blank = memchr(node->text, ' ', node->length);
        if (!blank) return -1;
        *left = (ph_chars){node->text, (size_t)(blank - node->text)};
        *right = (ph_chars){blank + 1, node->length - left->length - 1};
        return memchr(right->text, ' ', right->length) ? -1 : 0;
    }
    if (node->kind != PH_JSON_ARRAY || node->members != 2) return -1;
    const ph_json_node *a = ph_json_first(&file->tree, node);
    const ph_json_node *b = ph_json_after(&file->tree, a);
    if (a->kind != PH_JSON_STRING || b->kind != PH_JSON_STRING) return -1;
    *left = (ph_chars){a->text, a->length};
    *right = (ph_chars){b->text, b->length};
    return 0;
}

static ph_status add_merge(ph_tokenizer_file *file, ph_chars left, ph_chars right,
                           uint32_t rank)
{
    const ph_token_table *tokens = &file->t->tokens;
    char small[512], *whole = small;
    size_t length = left.length + right.length;
    if (length > sizeof small) whole = ph_io_alloc(file->io, length);
    if (!whole) return PH_OUT_OF_MEMORY;
    memcpy(whole, left.text, left.length);
    memcpy(whole + left.length, right.text, right.length);
    int32_t a = ph_token_table_find(tokens, left.text, left.length);
    int32_t b = ph_token_table_find(tokens, right.text, right.length);
    int32_t merged = ph_token_table_find(tokens, whole, length);
    ph_io_quoted quoted = ph_io_quote(whole, length);
    if (whole != small) ph_io_release(file->io, whole);
    if (a == PH_TOKEN_NONE || b == PH_TOKEN_NONE || merged == PH_TOKEN_NONE)
        return ph_io_fail(file->io, PH_BAD_FILE,
                          "'%.200s': model.merges: merge %u to %s has a token that is "
                          "not in the vocabulary",
                          file->name, (unsigned)rank, quoted.text);
    ph_model_add_pair(&file->t->model, a, b, rank, merged);
    return PH_OK;
}

static ph_status read_merges(ph_tokenizer_file *file, const ph_json_node *model)
{
    const ph_json_node *merges = ph_json_get(&file->tree, model, "merges");
    uint32_t rank = 0;
    if (!merges || merges->kind != PH_JSON_ARRAY)
        return bad_model(file, "expected an array `merges`");
    PH_TRY(ph_model_pairs(&file->t->model, merges->members, file->io));
    const ph_json_node *node = ph_json_first(&file->tree, merges);
    for (; node; node = ph_json_after(&file->tree, node)) {
        ph_chars left, right;
        if (node->kind == PH_JSON_STRING && !strncmp(node->text, "#version", 8)) continue;
        if (split_merge(file, node, &left, &right))
            return ph_io_fail(file->io, PH_BAD_FILE,
                              "'%.200s': model.merges: merge %u is no pair of texts",
                              file->name, (unsigned)rank);
        PH_TRY(add_merge(file, left, right, rank++));
    }
    return PH_OK;
}

/* What changes the symbols or the merges in ways that no published model uses. */
static ph_status refuse_rare(ph_tokenizer_file *file, const ph_json_node *model)
{
    static const char *const fields[] = {"continuing_subword_prefix",
                                         "end_of_word_suffix", "dropout"};
    for (int i = 0; i < 3; i++) {
        const ph_json_node *node = ph_json_get(&file->tree, model, fields[i]);
        double value = 0;
        if (!ph_json_is_set(node) || ph_json_equals(node, "")) continue;
        if (!ph_json_node_double(node, &value) && value == 0) continue;
        return ph_io_fail(file->io, PH_UNSUPPORTED,
                          "'%.200s': model: BPE with %s is not supported", file->name,
                          fields[i]);
    }
    return PH_OK;
}

/* Where a byte-level vocabulary has every byte, byte_fallback has nothing to do. */
static int has_all_bytes(const ph_token_table *tokens)
{
    int known = 1;
    for (int i = 0; i < 256; i++) {
        char text[4];
        uint32_t point = ph_byte_alphabet_char((unsigned char)i);
        size_t length = (size_t)ph_utf8_encode(point, text);
        known &= ph_token_table_find(tokens, text, length) != PH_TOKEN_NONE;
    }
    return known;
}

static ph_status read_bpe(ph_tokenizer_file *file, const ph_json_node *model)
{
    ph_cut_model *m = &file->t->model;
    m->kind = PH_MODEL_BPE;
    PH_TRY(refuse_rare(file, model));
    PH_TRY(ph_file_flag(file, model, "fuse_unk", 0, &m->fuse_unknown));
    PH_TRY(ph_file_flag(file, model, "byte_fallback", 0, &m->byte_fallback));
    PH_TRY(ph_file_flag(file, model, "ignore_merges", 0, &m->ignore_merges));
    PH_TRY(read_vocab(file, model));
    PH_TRY(read_unknown(file, model));
    if (m->byte_level && m->byte_fallback && !has_all_bytes(&file->t->tokens))
        return ph_io_fail(file->io, PH_UNSUPPORTED,
                          "'%.200s': byte_fallback behind the pre_tokenizer ByteLevel is "
                          "supported with a vocabulary of all bytes only",
                          file->name);
    return read_merges(file, model);
}

/* ---- Unigram ---- */

/* The digits of a number as one integer, as many as fit, and the power of ten that is
   left to it. */
static uint64_t read_digits(const ph_json_node *node, int *power)
{
    uint64_t digits = 0;
    int full = 0, behind_point = 0;
    size_t i = 0;
    for (*power = 0; i < node->length; i++) {
        char c = node->text[i];
        unsigned digit = (unsigned)(c - '0');
        if (c == 'e' || c == 'E') break;
        if (c == '.') behind_point = 1;
        if (digit > 9) continue;
        full |= digits > (UINT64_MAX - digit) / 10;
        if (!full) digits = 10 * digits + digit;
        if (full != behind_point) *power += full ? 1 : -1;
    }
    int exponent = 0, negative = i + 1 < node->length && node->text[i + 1] == '-';
    for (i++; i < node->length; i++)
        if (node->text[i] >= '0' && node->text[i] <= '9' && exponent < 100000)
            exponent = 10 * exponent + (node->text[i] - '0');
    *power += negative ? -exponent : exponent;
    return digits;
}

/* A score as the reference reads it: its digits as a double, then one multiplication or
   division by a power of ten. That is not always the nearest double, and which of two
   equal paths wins hangs on the last bit. */
static int read_score(const ph_json_node *node, double *out)
{
    int power = 0;
    char text[16];
    double ten = 1, nearest = 0;
    if (ph_json_node_double(node, &nearest)) return -1;
    double value = (double)read_digits(node, &power);
    for (; power < -308 && value != 0; power += 308) value /= 1e308;
    if (power > 308) return value == 0 ? (*out = 0, 0) : -1;
    if (value != 0) {
        int length = snprintf(text, sizeof text, "1e%d", power < 0 ? -power : power);
        if (ph_number_read(text, (size_t)length, &ten)) return -1;
    }
    value = power < 0 ? value / ten : value * ten;
    *out = node->text[0] == '-' ? -value : value;
    return isfinite(value) ? 0 : -1;
}

/* Entry number `index` of a list of [text, score]; a score of null, as sentencepiece.c
   writes it, is that of a token which texts are not cut into. */
static ph_status read_piece(const ph_tokenizer_file *file, const ph_json_node *node,
                            const char *list, size_t index, ph_trie_key *key,
                            double *score)
{
    const ph_json_node *text = ph_json_first(&file->tree, node), *number = NULL;
    if (node->kind == PH_JSON_ARRAY && node->members == 2 && text->kind == PH_JSON_STRING)
        number = ph_json_after(&file->tree, text);
    *score = NAN;
    if (!number || (number->kind != PH_JSON_NULL && read_score(number, score)))
        return ph_io_fail(file->io, PH_BAD_FILE,
                          "'%.200s': model.%s: entry %zu is no [text, score]", file->name,
                          list, index);
    *key = (ph_trie_key){text->text, (uint32_t)text->length, 0};
    return PH_OK;
}

/* Tokens of the vocabulary, then pieces that have no id, behind them. */
static ph_status read_pieces(ph_tokenizer_file *file, const ph_json_node *vocab,
                             const ph_json_node *more, ph_trie_key *unknown)
{
    double *scores = file->t->model.scores;
    ph_trie_key key = {0};
    size_t id = 0;
    const ph_json_node *node = ph_json_first(&file->tree, vocab);
    for (; node; node = ph_json_after(&file->tree, node), id++) {
        PH_TRY(read_piece(file, node, "vocab", id, &key, &scores[id]));
        PH_TRY(ph_token_table_add(&file->t->tokens, id, key.text, key.length));
    }
    node = more ? ph_json_first(&file->tree, more) : NULL;
    for (size_t i = 0; node; node = ph_json_after(&file->tree, node), i++, id++) {
        PH_TRY(read_piece(file, node, "unknown_pieces", i, &unknown[i], &scores[id]));
        unknown[i].value = (int32_t)id;
        if (isnan(scores[id])) unknown[i].length = 0; /* no text is cut into it */
    }
    return PH_OK;
}

static ph_status read_unigram(ph_tokenizer_file *file, const ph_json_node *model)
{
    const ph_json_node *vocab = ph_json_get(&file->tree, model, "vocab");
    const ph_json_node *more = ph_json_get(&file->tree, model, "unknown_pieces");
    ph_cut_model *m = &file->t->model;
    size_t unknown = 0;
    if (!vocab || vocab->kind != PH_JSON_ARRAY || vocab->members == 0)
        return bad_model(file, "expected an array `vocab` of [text, score]");
    if (more && more->kind != PH_JSON_ARRAY)
        return bad_model(file, "expected an array `unknown_pieces` of [text, score]");
    PH_TRY(ph_file_size(file, model, "unk_id", &unknown));
    if (unknown >= vocab->members)
        return bad_model(file, "unk_id is not in the vocabulary");
    PH_TRY(ph_file_flag(file, model, "byte_fallback", 0, &m->byte_fallback));
    m->unknown = (int32_t)unknown;
    size_t more_count = more ? more->members : 0;
    m->scores = ph_io_alloc(file->io, (vocab->members + more_count) * sizeof *m->scores);
    ph_trie_key *keys = ph_io_alloc(file->io, (more_count + 1) * sizeof *keys);
    ph_status status =
        m->scores && keys ? read_pieces(file, vocab, more, keys) : PH_OUT_OF_MEMORY;
    if (status == PH_OK) status = ph_setup_unigram(file->t, keys, more_count, file->io);
    ph_io_release(file->io, keys);
    return status;
}

ph_status ph_file_model(ph_tokenizer_file *file, const ph_json_node *model)
{
    const ph_json_node *type = ph_json_get(&file->tree, model, "type");
    const ph_json_node *vocab = ph_json_get(&file->tree, model, "vocab");
    int merges =
        ph_json_get(&file->tree, model, "merges") != NULL; /* old files: no type */
    int bpe = type ? ph_json_equals(type, "BPE") : merges;
    int unigram = type ? ph_json_equals(type, "Unigram")
                       : vocab && vocab->kind == PH_JSON_ARRAY;
    int wordpiece =
        type ? ph_json_equals(type, "WordPiece")
             : ph_json_get(&file->tree, model, "continuing_subword_prefix") != NULL;
    int wordlevel = ph_json_equals(type, "WordLevel");
    if (!bpe && !unigram && !wordpiece && !wordlevel)
        return ph_file_refuse(file, "model", model);
    if (file->t->model.byte_level && !bpe)
        return ph_io_fail(
            file->io, PH_UNSUPPORTED,
            "'%.200s': the pre_tokenizer ByteLevel is supported with the model "
            "BPE only",
            file->name);
    if (bpe) return read_bpe(file, model);
    if (wordlevel) return read_wordlevel(file, model);
    return unigram ? read_unigram(file, model) : read_wordpiece(file, model);
}

/* ---- the post-processor ---- */

static ph_status bad_template(ph_tokenizer_file *file, const char *why)
{
    return ph_io_fail(file->io, PH_BAD_FILE, "'%.200s': post_processor: %s", file->name,
                      why);
}

/* All ids of a special token of the template. */
static ph_status add_special(ph_tokenizer_file *file, ph_template *list,
                             const ph_json_node *specials, const ph_json_node *name,
                             int32_t type)
{
    const ph_json_node *special = NULL, *ids, *node;
    if (name && name->kind == PH_JSON_STRING)
        special = ph_json_get(&file->tree, specials, name->text);
    ids = ph_json_get(&file->tree, special, "ids");
    if (!ids || ids->kind != PH_JSON_ARRAY)
        return bad_template(file,
                            "a token of the template has no entry in special_tokens");
    for (node = ph_json_first(&file->tree, ids); node;
         node = ph_json_after(&file->tree, node)) {
        size_t id = 0;
        if (ph_json_node_size(node, &id) || id > PH_TOKEN_MAX_ID ||
            !ph_token_known(&file->t->tokens, (int64_t)id))
            return bad_template(file, "an id of special_tokens is not in the vocabulary");
        PH_TRY(ph_template_add(file->t, list, (int32_t)id, type));
    }
    return PH_OK;
}

static ph_status read_template_item(ph_tokenizer_file *file, ph_template *list,
                                    const ph_json_node *specials,
                                    const ph_json_node *node)
{
    const ph_json_node *special = ph_json_get(&file->tree, node, "SpecialToken");
    const ph_json_node *text = ph_json_get(&file->tree, node, "Sequence");
    const ph_json_node *item = special ? special : text;
    const ph_json_node *name = ph_json_get(&file->tree, item, "id");
    size_t type = 0;
    if (ph_json_node_size(ph_json_get(&file->tree, item, "type_id"), &type) ||
        type > INT32_MAX)
        return bad_template(file, "expected a SpecialToken or Sequence with a type_id");
    if (special) return add_special(file, list, specials, name, (int32_t)type);
    if (ph_json_equals(name, "A"))
        return ph_template_add(file->t, list, PH_TEMPLATE_A, (int32_t)type);
    if (ph_json_equals(name, "B") && list == &file->t->pair)
        return ph_template_add(file->t, list, PH_TEMPLATE_B, (int32_t)type);
    return bad_template(file, "expected a Sequence A, or B in `pair`");
}

static ph_status read_template(ph_tokenizer_file *file, const ph_json_node *node)
{
    static const char *const fields[] = {"single", "pair"};
    ph_template *lists[] = {&file->t->single, &file->t->pair};
    const ph_json_node *specials = ph_json_get(&file->tree, node, "special_tokens");
    for (int i = 0; i < 2; i++) {
        const ph_json_node *items = ph_json_get(&file->tree, node, fields[i]);
        if (!items || items->kind != PH_JSON_ARRAY)
            return bad_template(file, "expected the arrays `single` and `pair`");
        for (items = ph_json_first(&file->tree, items); items;
             items = ph_json_after(&file->tree, items))
            PH_TRY(read_template_item(file, lists[i], specials, items));
    }
    return PH_OK;
}

/* ["[SEP]", 102] */
static ph_status read_pair_of(ph_tokenizer_file *file, const ph_json_node *node,
                              const char *field, int32_t *id)
{
    const ph_json_node *pair = ph_json_get(&file->tree, node, field);
    const ph_json_node *text = ph_json_first(&file->tree, pair);
    size_t value = 0;
    if (!pair || pair->members != 2 || text->kind != PH_JSON_STRING ||
        ph_json_node_size(ph_json_after(&file->tree, text), &value) ||
        value > PH_TOKEN_MAX_ID || !ph_token_known(&file->t->tokens, (int64_t)value))
        return ph_file_bad(file, node, field, "a token of the vocabulary and its id");
    *id = (int32_t)value;
    return PH_OK;
}

/* [CLS] A [SEP] B [SEP] of BERT; <s> A </s></s> B </s> of RoBERTa. */
static ph_status read_cls_sep(ph_tokenizer_file *file, const ph_json_node *node,
                              int roberta)
{
    ph_tokenizer *t = file->t;
    int32_t cls, sep, second = roberta ? 0 : 1;
    PH_TRY(read_pair_of(file, node, "cls", &cls));
    PH_TRY(read_pair_of(file, node, "sep", &sep));
    for (int i = 0; i < 2; i++) {
        ph_template *list = i ? &t->pair : &t->single;
        PH_TRY(ph_template_add(t, list, cls, 0));
        PH_TRY(ph_template_add(t, list, PH_TEMPLATE_A, 0));
        PH_TRY(ph_template_add(t, list, sep, 0));
    }
    if (roberta) PH_TRY(ph_template_add(t, &t->pair, sep, 0));
    PH_TRY(ph_template_add(t, &t->pair, PH_TEMPLATE_B, second));
    return ph_template_add(t, &t->pair, sep, second);
}

static ph_status read_trim(ph_tokenizer_file *file, const ph_json_node *node)
{
    int trim = 0, prefix = 0;
    PH_TRY(ph_file_flag(file, node, "trim_offsets", -1, &trim));
    PH_TRY(ph_file_flag(file, node, "add_prefix_space", -1, &prefix));
    if (trim && (file->t->trim_offsets || file->t->has_template))
        return ph_io_fail(file->io, PH_UNSUPPORTED,
                          "'%.200s': trim_offsets behind another post_processor is not "
                          "supported",
                          file->name);
    if (trim) file->t->trim_keeps_one = prefix;
    file->t->trim_offsets |= trim;
    return PH_OK;
}

ph_status ph_file_processor(ph_tokenizer_file *file, const ph_json_node *node)
{
    const ph_json_node *type = ph_json_get(&file->tree, node, "type");
    int roberta = ph_json_equals(type, "RobertaProcessing");
    int bert = ph_json_equals(type, "BertProcessing");
    if (ph_json_equals(type, "ByteLevel")) return read_trim(file, node);
    if (!roberta && !bert && !ph_json_equals(type, "TemplateProcessing"))
        return ph_file_refuse(file, "post_processor", node);
    if (file->t->has_template)
        return ph_io_fail(file->io, PH_UNSUPPORTED,
                          "'%.200s': a second template in post_processor is not "
                          "supported",
                          file->name);
    if (roberta) PH_TRY(read_trim(file, node));
    file->t->has_template = 1;
    if (roberta || bert) return read_cls_sep(file, node, roberta);
    return read_template(file, node);
}
