/*
 * merge_files.c - vocab.json and merges.txt of byte-level BPE as a tokenizer.json; see
 * merge_files.h.
 *
 * The files themselves hold tokens and merges only. How text is split, which tokens are
 * special and what is put around a text follow from the class of the tokenizer, with the
 * options of tokenizer_config.json.
 */
#include "text/merge_files.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/rng.h"
#include "text/json_tree.h"
#include "text/section_json.h"
#include "text/tokenizer.h"

enum { BOS, EOS, UNK, SEP, PAD, CLS, MASK, NAMED };

static const char *const keys[NAMED] = {"bos_token", "eos_token", "unk_token",
                                        "sep_token", "pad_token", "cls_token",
                                        "mask_token"};
static const char *const lists[] = {"additional_special_tokens", "extra_special_tokens"};

typedef enum merge_kind { GPT2, ROBERTA, WHISPER, QWEN2 } merge_kind;

#define END "<|endoftext|>"
static const char *const usual[][NAMED] = {
    [GPT2] = {END, END, END},
    [ROBERTA] = {"<s>", "</s>", "<unk>", "</s>", "<pad>", "<s>", "<mask>"},
    [WHISPER] = {END, END, END},
    [QWEN2] = {[EOS] = END, [UNK] = END, [PAD] = END}};

/* Classes of tokenizers, then types of models for folders that name no class. */
static const struct {
    const char *name;
    merge_kind kind;
} classes[] = {{"GPT2Tokenizer", GPT2},    {"RobertaTokenizer", ROBERTA},
               {"BartTokenizer", ROBERTA}, {"WhisperTokenizer", WHISPER},
               {"Qwen2Tokenizer", QWEN2},  {"gpt2", GPT2},
               {"roberta", ROBERTA},       {"bart", ROBERTA},
               {"whisper", WHISPER},       {"qwen2", QWEN2},
               {"qwen2_moe", QWEN2},       {"qwen3", QWEN2},
               {"qwen3_moe", QWEN2}};

/* Doubled backslashes: the pattern stands in JSON. */
#define QWEN2_SPLIT                                                                      \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?i:'s|'t|'re|'ve|'m|'ll|'d)"          \
    "|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}"                                  \
    "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)"      \
    "|\\\\s+\"},\"behavior\":\"Isolated\",\"invert\":false}"

typedef struct named_token {
    const char *text;         /* NULL: there is none */
    const ph_json_node *node; /* what the file says of it; NULL: the class says it */
    ph_merge_file file;
} named_token;

typedef struct merge_job {
    const ph_merge_text *files;
    const ph_io *io;
    ph_json_tree trees[PH_MERGE_FILES];
    merge_kind kind;
    const ph_json_node *decoder; /* added_tokens_decoder; NULL: older files say it */
    named_token named[NAMED];
    ph_token_table tokens;   /* the vocabulary, then added tokens */
    ph_token_table specials; /* texts of special tokens; their ids mean nothing */
    ph_json_text json;
    ph_json_writer out;
} merge_job;

/* ---- fields ---- */

static ph_status bad(const merge_job *j, ph_merge_file file, const char *field,
                     const char *expected)
{
    return ph_io_fail(j->io, PH_BAD_FILE, "'%.200s': %s: expected %s",
                      j->files[file].name, field, expected);
}

/* A member of the file's object, NULL: none. */
static const ph_json_node *get(const merge_job *j, ph_merge_file file, const char *key)
{
    return j->trees[file].count
               ? ph_json_get(&j->trees[file], &j->trees[file].nodes[0], key)
               : NULL;
}

static ph_status read_flag(const merge_job *j, ph_merge_file file,
                           const ph_json_node *node, const char *key, int usual_value,
                           unsigned char *out)
{
    const ph_json_node *flag = ph_json_get(&j->trees[file], node, key);
    *out =
        (unsigned char)(ph_json_is_set(flag) ? flag->kind == PH_JSON_TRUE : usual_value);
    if (!ph_json_is_set(flag) || *out || flag->kind == PH_JSON_FALSE) return PH_OK;
    return bad(j, file, key, "true or false");
}

static ph_status read_option(const merge_job *j, const char *key, int usual_value,
                             unsigned char *out)
{
    *out = (unsigned char)usual_value;
    if (!j->trees[PH_MERGE_OPTIONS].count) return PH_OK;
    return read_flag(j, PH_MERGE_OPTIONS, &j->trees[PH_MERGE_OPTIONS].nodes[0], key,
                     usual_value, out);
}

/* The text of a token: a string, or an object with `content`. */
static ph_status read_text(const merge_job *j, ph_merge_file file,
                           const ph_json_node *node, const char *field, const char **text)
{
    *text = "";
    if (node->kind == PH_JSON_OBJECT)
        node = ph_json_get(&j->trees[file], node, "content");
    if (!node || node->kind != PH_JSON_STRING || strlen(node->text) != node->length)
        return bad(j, file, field, "the text of a token, or an object with `content`");
    *text = node->text;
    return PH_OK;
}

static int32_t id_of(const merge_job *j, const char *text)
{
    return ph_token_table_find(&j->tokens, text, strlen(text));
}

/* ---- the class ---- */

static ph_status find_kind(merge_job *j)
{
    static const struct {
        ph_merge_file file;
        const char *key;
    } places[] = {{PH_MERGE_OPTIONS, "tokenizer_class"},
                  {PH_MERGE_MODEL, "tokenizer_class"},
                  {PH_MERGE_MODEL, "model_type"}};
    const ph_json_node *node = NULL;
    int place = 0;
    for (; place < 3; place++) {
        node = get(j, places[place].file, places[place].key);
        if (ph_json_is_set(node)) break;
    }
    if (place == 3)
        return bad(j, PH_MERGE_PAIRS, "the class of its tokenizer",
                   "tokenizer_class in tokenizer_config.json or model_type in "
                   "config.json");
    if (node->kind != PH_JSON_STRING)
        return bad(j, places[place].file, places[place].key, "a string");
    size_t length = node->length;
    if (length > 4 && !memcmp(node->text + length - 4, "Fast", 4)) length -= 4;
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        if (strlen(classes[i].name) != length) continue;
        if (memcmp(classes[i].name, node->text, length)) continue;
        j->kind = classes[i].kind;
        return PH_OK;
    }
    return ph_io_fail(j->io, PH_UNSUPPORTED,
                      "'%.200s': a tokenizer of merges.txt with the %s %s is not "
                      "supported: expected that of GPT-2, RoBERTa, Whisper or Qwen2, or "
                      "a tokenizer.json",
                      j->files[places[place].file].name, places[place].key,
                      ph_io_quote(node->text, node->length).text);
}

/* ---- the vocabulary ---- */

static ph_status add_id(merge_job *j, ph_merge_file file, const char *text, size_t id)
{
    const char *name = j->files[file].name;
    if (id > PH_TOKEN_MAX_ID)
        return ph_io_fail(j->io, PH_BAD_FILE,
                          "'%.200s': %s has id %zu, expected at most %d", name,
                          ph_io_quote(text, strlen(text)).text, id, PH_TOKEN_MAX_ID);
    if (ph_token_known(&j->tokens, (int64_t)id))
        return ph_io_fail(j->io, PH_BAD_FILE,
                          "'%.200s': %s has id %zu, which another token has", name,
                          ph_io_quote(text, strlen(text)).text, id);
    return ph_token_table_add(&j->tokens, id, text, strlen(text));
}

/* One entry of {token: id}. */
static ph_status read_entry(const merge_job *j, ph_merge_file file,
                            const ph_json_node *node, size_t *id)
{
    if (strlen(node->key) != node->key_length)
        return bad(j, file, "the texts of its tokens", "no zero bytes");
    if (!ph_json_node_size(node, id)) return PH_OK;
    return ph_io_fail(j->io, PH_BAD_FILE, "'%.200s': the id of %s: expected a number",
                      j->files[file].name, ph_io_quote(node->key, node->key_length).text);
}

static ph_status read_vocab(merge_job *j)
{
    const ph_json_tree *tree = &j->trees[PH_MERGE_VOCAB];
    const ph_json_node *node = ph_json_first(tree, &tree->nodes[0]);
    PH_TRY(ph_token_table_expect(&j->tokens, tree->nodes[0].members));
    for (; node; node = ph_json_after(tree, node)) {
        size_t id = 0;
        PH_TRY(read_entry(j, PH_MERGE_VOCAB, node, &id));
        if (id_of(j, node->key) != PH_TOKEN_NONE)
            return ph_io_fail(j->io, PH_BAD_FILE, "'%.200s': %s stands there twice",
                              j->files[PH_MERGE_VOCAB].name,
                              ph_io_quote(node->key, node->key_length).text);
        PH_TRY(add_id(j, PH_MERGE_VOCAB, node->key, id));
    }
    return PH_OK;
}

/* ---- special tokens ---- */

static ph_status note_special(merge_job *j, const char *text)
{
    return ph_token_table_add(&j->specials, j->specials.count, text, strlen(text));
}

/* special_tokens_map.json counts only beside the older added_tokens.json. */
static ph_status read_named(merge_job *j)
{
    for (int i = 0; i < NAMED; i++) {
        named_token *named = &j->named[i];
        *named = (named_token){.text = usual[j->kind][i], .file = PH_MERGE_SPECIAL};
        if (!j->decoder) named->node = get(j, PH_MERGE_SPECIAL, keys[i]);
        if (!named->node) {
            named->file = PH_MERGE_OPTIONS;
            named->node = get(j, PH_MERGE_OPTIONS, keys[i]);
        }
        if (named->node && !ph_json_is_set(named->node)) named->text = NULL;
        if (ph_json_is_set(named->node))
            PH_TRY(read_text(j, named->file, named->node, keys[i], &named->text));
        if (named->text) PH_TRY(note_special(j, named->text));
    }
    return PH_OK;
}

typedef ph_status special_reader(merge_job *j, ph_merge_file file,
                                 const ph_json_node *node, const char *text);

/* Runs `read` on special tokens that have no name of their own. */
static ph_status each_other(merge_job *j, special_reader *read)
{
    for (int i = 0; i < 4; i++) {
        const ph_merge_file file = i < 2 ? PH_MERGE_SPECIAL : PH_MERGE_OPTIONS;
        if (file == PH_MERGE_SPECIAL && j->decoder) continue;
        const ph_json_node *list = get(j, file, lists[i % 2]);
        if (!ph_json_is_set(list)) continue;
        if (list->kind != PH_JSON_ARRAY && list->kind != PH_JSON_OBJECT)
            return bad(j, file, lists[i % 2], "a list of tokens");
        const ph_json_node *node = ph_json_first(&j->trees[file], list);
        for (; node; node = ph_json_after(&j->trees[file], node)) {
            const char *text;
            PH_TRY(read_text(j, file, node, lists[i % 2], &text));
            PH_TRY(read(j, file, node, text));
        }
    }
    return PH_OK;
}

static ph_status note_other(merge_job *j, ph_merge_file file, const ph_json_node *node,
                            const char *text)
{
    (void)file, (void)node;
    return note_special(j, text);
}

/* ---- writing ---- */

static void write_token(merge_job *j, const ph_added_token *token)
{
    j->tokens.entries[token->id].added = 1;
    ph_json_begin_object(&j->out, NULL);
    ph_json_integer(&j->out, "id", token->id);
    ph_json_string(&j->out, "content", token->text);
    ph_json_bool(&j->out, "single_word", token->single_word);
    ph_json_bool(&j->out, "lstrip", token->left);
    ph_json_bool(&j->out, "rstrip", token->right);
    ph_json_bool(&j->out, "normalized", token->normalized);
    ph_json_bool(&j->out, "special", token->special);
    ph_json_end(&j->out);
}

/* What an object says of a token; it is special already if another place says so. */
static ph_status read_flags(const merge_job *j, ph_merge_file file,
                            const ph_json_node *node, ph_added_token *token)
{
    unsigned char special = 0;
    PH_TRY(read_flag(j, file, node, "special", 0, &special));
    token->special |= special;
    PH_TRY(read_flag(j, file, node, "normalized", !token->special, &token->normalized));
    PH_TRY(read_flag(j, file, node, "single_word", 0, &token->single_word));
    PH_TRY(read_flag(j, file, node, "lstrip", 0, &token->left));
    return read_flag(j, file, node, "rstrip", 0, &token->right);
}

/* A token with an id of its own, outside the vocabulary or in it. */
static ph_status write_added(merge_job *j, ph_merge_file file, const ph_json_node *node,
                             const char *text, size_t id)
{
    int32_t known = id_of(j, text);
    if (known == PH_TOKEN_NONE)
        PH_TRY(add_id(j, file, text, id));
    else if ((size_t)known != id || j->tokens.entries[id].added)
        return ph_io_fail(j->io, PH_BAD_FILE, "'%.200s': %s has id %zu, but %d before it",
                          j->files[file].name, ph_io_quote(text, strlen(text)).text, id,
                          (int)known);
    ph_added_token token = {.id = (int32_t)id, .text = text};
    token.special =
        ph_token_table_find(&j->specials, text, strlen(text)) != PH_TOKEN_NONE;
    token.normalized = !token.special;
    if (node->kind == PH_JSON_OBJECT) PH_TRY(read_flags(j, file, node, &token));
    write_token(j, &token);
    return PH_OK;
}

/* {"50256": {"content": ...}} of tokenizer_config.json */
static ph_status write_decoder(merge_job *j)
{
    const ph_json_tree *tree = &j->trees[PH_MERGE_OPTIONS];
    const ph_json_node *node = ph_json_first(tree, j->decoder);
    for (; node; node = ph_json_after(tree, node)) {
        const ph_json_node number = {
            .kind = PH_JSON_NUMBER, .text = node->key, .length = node->key_length};
        const char *text;
        size_t id = 0;
        if (!node->key_length || ph_json_node_size(&number, &id))
            return bad(j, PH_MERGE_OPTIONS, "added_tokens_decoder",
                       "ids of tokens as keys");
        PH_TRY(read_text(j, PH_MERGE_OPTIONS, node, "added_tokens_decoder", &text));
        PH_TRY(write_added(j, PH_MERGE_OPTIONS, node, text, id));
    }
    return PH_OK;
}

static ph_status write_older(merge_job *j)
{
    const ph_json_tree *tree = &j->trees[PH_MERGE_ADDED];
    const ph_json_node *node = tree->count ? ph_json_first(tree, &tree->nodes[0]) : NULL;
    for (; node; node = ph_json_after(tree, node)) {
        size_t id = 0;
        PH_TRY(read_entry(j, PH_MERGE_ADDED, node, &id));
        PH_TRY(write_added(j, PH_MERGE_ADDED, node, node->key, id));
    }
    return PH_OK;
}

/* A special token, unless it is written already or has no id. RoBERTa's <mask> takes the
   blank before it, where no file says otherwise: it stands for " word". */
static ph_status write_special(merge_job *j, ph_merge_file file, const ph_json_node *node,
                               const char *text)
{
    ph_added_token token = {.id = id_of(j, text), .text = text, .special = 1};
    if (token.id == PH_TOKEN_NONE || j->tokens.entries[token.id].added) return PH_OK;
    token.left = j->kind == ROBERTA && text == j->named[MASK].text;
    if (node && node->kind == PH_JSON_OBJECT) PH_TRY(read_flags(j, file, node, &token));
    write_token(j, &token);
    return PH_OK;
}

static ph_status write_all_added(merge_job *j)
{
    ph_json_begin_array(&j->out, "added_tokens");
    PH_TRY(j->decoder ? write_decoder(j) : write_older(j));
    for (int i = NAMED - 1; i >= 0; i--) /* a token with two names: the last counts */
        if (j->named[i].text)
            PH_TRY(
                write_special(j, j->named[i].file, j->named[i].node, j->named[i].text));
    PH_TRY(each_other(j, write_special));
    ph_json_end(&j->out);
    return PH_OK;
}

/* ---- what is put around a text ---- */

/* A token that stands around every text, so it must have an id. */
static ph_status find_mark(const merge_job *j, const char *text, ph_template_mark *mark)
{
    *mark = (ph_template_mark){.text = text, .id = text ? id_of(j, text) : 0};
    if (!text || mark->id != PH_TOKEN_NONE) return PH_OK;
    return ph_io_fail(j->io, PH_BAD_FILE,
                      "'%.200s': expected the token %s, which stands around every text",
                      j->files[PH_MERGE_VOCAB].name,
                      ph_io_quote(text, strlen(text)).text);
}

/* An option of Whisper's that names a token <|...|>. */
static ph_status add_option_mark(const merge_job *j, const char *key, char text[64],
                                 ph_template_marks *marks)
{
    const ph_json_node *node = get(j, PH_MERGE_OPTIONS, key);
    if (!ph_json_is_set(node)) return PH_OK;
    if (node->kind == PH_JSON_STRING && node->length < 32) {
        snprintf(text, 64, "<|%s|>", node->text);
        int32_t id = id_of(j, text);
        marks->before[marks->count++] = (ph_template_mark){text, id};
        if (id != PH_TOKEN_NONE) return PH_OK;
    }
    return bad(j, PH_MERGE_OPTIONS, key,
               "a name, such as en or transcribe, whose token <|name|> exists");
}

static ph_status write_whisper(merge_job *j)
{
    char language[64], task[64];
    unsigned char timestamps;
    ph_template_marks marks = {.count = 1, .second_type = 1};
    PH_TRY(find_mark(j, "<|startoftranscript|>", &marks.before[0]));
    PH_TRY(find_mark(j, j->named[EOS].text, &marks.after));
    PH_TRY(read_option(j, "predict_timestamps", 0, &timestamps));
    PH_TRY(add_option_mark(j, "language", language, &marks));
    PH_TRY(add_option_mark(j, "task", task, &marks));
    if (!timestamps)
        PH_TRY(find_mark(j, "<|notimestamps|>", &marks.before[marks.count++]));
    ph_json_template(&j->out, &marks);
    return PH_OK;
}

static ph_status write_ends(merge_job *j)
{
    unsigned char bos, eos;
    ph_template_marks marks = {.around_both = 1, .second_type = 1};
    PH_TRY(read_option(j, "add_bos_token", 0, &bos));
    PH_TRY(read_option(j, "add_eos_token", 0, &eos));
    if (bos && j->named[BOS].text)
        PH_TRY(find_mark(j, j->named[BOS].text, &marks.before[marks.count++]));
    if (eos) PH_TRY(find_mark(j, j->named[EOS].text, &marks.after));
    if (marks.count || marks.after.text) ph_json_template(&j->out, &marks);
    return PH_OK;
}

static ph_status write_roberta(merge_job *j, int prefix)
{
    static const int which[] = {SEP, CLS};
    unsigned char trim;
    PH_TRY(read_option(j, "trim_offsets", 1, &trim));
    ph_json_begin_object(&j->out, "post_processor");
    ph_json_string(&j->out, "type", "RobertaProcessing");
    for (int i = 0; i < 2; i++) {
        const char *text = j->named[which[i]].text;
        ph_template_mark mark;
        if (!text) return bad(j, PH_MERGE_OPTIONS, keys[which[i]], "a token");
        PH_TRY(find_mark(j, text, &mark));
        ph_json_begin_array(&j->out, i ? "cls" : "sep");
        ph_json_string(&j->out, NULL, text);
        ph_json_integer(&j->out, NULL, mark.id);
        ph_json_end(&j->out);
    }
    ph_json_bool(&j->out, "trim_offsets", trim);
    ph_json_bool(&j->out, "add_prefix_space", prefix);
    ph_json_end(&j->out);
    return PH_OK;
}

/* ---- the other sections ---- */

static void write_byte_level(merge_job *j, const char *key, int prefix, int regex)
{
    ph_json_begin_object(&j->out, key);
    ph_json_string(&j->out, "type", "ByteLevel");
    ph_json_bool(&j->out, "add_prefix_space", prefix);
    ph_json_bool(&j->out, "trim_offsets", 1);
    ph_json_bool(&j->out, "use_regex", regex);
    ph_json_end(&j->out);
}

static void write_qwen2(merge_job *j, int prefix)
{
    ph_json_raw(&j->out, "normalizer", "{\"type\":\"NFC\"}");
    ph_json_begin_object(&j->out, "pre_tokenizer");
    ph_json_string(&j->out, "type", "Sequence");
    ph_json_begin_array(&j->out, "pretokenizers");
    ph_json_raw(&j->out, NULL, QWEN2_SPLIT);
    write_byte_level(j, NULL, prefix, 0);
    ph_json_end(&j->out);
    ph_json_end(&j->out);
}

/* Lines "left right"; one that says the version of the format is no merge. */
static ph_status write_merges(merge_job *j)
{
    const ph_merge_text *file = &j->files[PH_MERGE_PAIRS];
    size_t number = 1;
    if (memchr(file->text, 0, file->size))
        return bad(j, PH_MERGE_PAIRS, "its lines", "no zero bytes");
    ph_json_begin_array(&j->out, "merges");
    for (char *line = file->text; *line; number++) {
        char *end = line + strcspn(line, "\n"), *next = *end ? end + 1 : end;
        if (end > line && end[-1] == '\r') end--;
        *end = 0;
        const char *blank = strchr(line, ' ');
        if (*line && strncmp(line, "#version", 8)) {
            if (!blank || blank == line || !blank[1] || strchr(blank + 1, ' '))
                return ph_io_fail(j->io, PH_BAD_FILE,
                                  "'%.200s': line %zu: expected two tokens with a blank "
                                  "between them",
                                  file->name, number);
            ph_json_string(&j->out, NULL, line);
        }
        line = next;
    }
    ph_json_end(&j->out);
    return PH_OK;
}

static ph_status write_model(merge_job *j)
{
    const ph_json_tree *tree = &j->trees[PH_MERGE_VOCAB];
    const ph_json_node *node = ph_json_first(tree, &tree->nodes[0]);
    ph_json_begin_object(&j->out, "model");
    ph_json_string(&j->out, "type", "BPE");
    ph_json_begin_object(&j->out, "vocab");
    for (; node; node = ph_json_after(tree, node))
        ph_json_integer(&j->out, node->key, id_of(j, node->key));
    ph_json_end(&j->out);
    PH_TRY(write_merges(j));
    ph_json_end(&j->out);
    return PH_OK;
}

static ph_status write_all(merge_job *j)
{
    unsigned char prefix;
    PH_TRY(read_option(j, "add_prefix_space", 0, &prefix));
    ph_json_begin_object(&j->out, NULL);
    ph_json_string(&j->out, "version", "1.0");
    PH_TRY(write_all_added(j));
    if (j->kind == QWEN2)
        write_qwen2(j, prefix);
    else
        write_byte_level(j, "pre_tokenizer", prefix, 1);
    PH_TRY(j->kind == ROBERTA   ? write_roberta(j, prefix)
           : j->kind == WHISPER ? write_whisper(j)
                                : write_ends(j));
    write_byte_level(j, "decoder", 1, 1);
    PH_TRY(write_model(j));
    ph_json_end(&j->out);
    return j->json.status;
}

/* ---- all files ---- */

static ph_status read_trees(merge_job *j)
{
    for (int i = 0; i < PH_MERGE_FILES; i++) {
        const ph_merge_text *file = &j->files[i];
        if (!file->text && (i == PH_MERGE_VOCAB || i == PH_MERGE_PAIRS))
            return ph_io_fail(j->io, PH_IO_ERROR,
                              "'%.200s' does not exist: expected vocab.json and "
                              "merges.txt beside each other",
                              file->name);
        if (!file->text || i == PH_MERGE_PAIRS) continue;
        PH_TRY(
            ph_json_tree_read(&j->trees[i], file->name, file->text, file->size, j->io));
        if (!j->trees[i].count || j->trees[i].nodes[0].kind != PH_JSON_OBJECT)
            return ph_io_fail(j->io, PH_BAD_FILE, "'%.200s': expected an object",
                              file->name);
    }
    return PH_OK;
}

static ph_status convert(merge_job *j)
{
    PH_TRY(read_trees(j));
    PH_TRY(find_kind(j));
    j->decoder = get(j, PH_MERGE_OPTIONS, "added_tokens_decoder");
    if (j->decoder && j->decoder->kind != PH_JSON_OBJECT)
        return bad(j, PH_MERGE_OPTIONS, "added_tokens_decoder", "an object");
    PH_TRY(read_vocab(j));
    PH_TRY(read_named(j));
    PH_TRY(each_other(j, note_other));
    return write_all(j);
}

ph_status ph_merges_to_json(const ph_merge_text files[PH_MERGE_FILES], char **json,
                            size_t *length, const ph_io *io)
{
    merge_job j = {.files = files, .io = io, .json = {.io = io}};
    j.out = (ph_json_writer){.write = ph_json_text_append, .user = &j.json};
    j.tokens.io = j.specials.io = io;
    j.tokens.seed = j.specials.seed = ph_rng_mix((uintptr_t)&j);
    ph_status status = convert(&j);
    if (status == PH_OUT_OF_MEMORY)
        ph_io_fail(io, status, "'%.200s': out of memory while it is read",
                   files[PH_MERGE_PAIRS].name);
    for (int i = 0; i < PH_MERGE_FILES; i++) ph_json_tree_free(&j.trees[i]);
    ph_token_table_free(&j.tokens);
    ph_token_table_free(&j.specials);
    *json = status == PH_OK ? j.json.bytes : NULL, *length = j.json.length;
    if (status != PH_OK) ph_io_release(io, j.json.bytes);
    return status;
}
