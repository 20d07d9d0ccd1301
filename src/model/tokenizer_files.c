/*
 * tokenizer_files.c - the tokenizer of a checkpoint or a folder: which of its files hold
 * it, and what tokenizer_config.json says on top of them.
 */
#define _XOPEN_SOURCE 700 /* stat */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "checkpoint/checkpoint.h"
#include "io/file.h"
#include "io/map.h"
#include "model/model_text.h"
#include "model/named_tokens.h"
#include "text/merge_files.h"
#include "text/sentencepiece.h"
#include "text/tokenizer.h"

/* ---- options beside the file ------------------------------------------------------- */

typedef enum token_class { OTHER = 0, BERT, BYTE_LEVEL, ROBERTA } token_class;

/* Classes of transformers, then types of models for folders that name no class. */
static const struct {
    const char *name;
    token_class class;
} classes[] = {{"BertTokenizer", BERT},
               {"DistilBertTokenizer", BERT},
               {"ElectraTokenizer", BERT},
               {"MPNetTokenizer", BERT},
               {"GPT2Tokenizer", BYTE_LEVEL},
               {"RobertaTokenizer", ROBERTA},
               {"BartTokenizer", ROBERTA},
               {"WhisperTokenizer", BYTE_LEVEL},
               {"bert", BERT},
               {"distilbert", BERT},
               {"gpt2", BYTE_LEVEL},
               {"roberta", ROBERTA},
               {"bart", ROBERTA},
               {"whisper", BYTE_LEVEL}};

/* A value of that kind, NULL: there is none; of another it is refused. */
static ph_status find_value(const ph_values *values, const char *key, ph_value_kind kind,
                            const char *expected, const ph_value **out, const ph_io *io)
{
    const ph_value *v = *out = ph_values_find(values, key);
    if (v && v->kind == PH_VALUE_NULL) *out = NULL;
    if (!*out || v->kind == kind) return PH_OK;
    return ph_io_fail(io, PH_BAD_FILE, "%s is %s, expected %s",
                      ph_value_field(key).text, ph_value_show(v).text, expected);
}

static token_class class_of(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++)
        if (strlen(classes[i].name) == length && !memcmp(classes[i].name, name, length))
            return classes[i].class;
    return OTHER;
}

/* The class that reads the tokenizer in transformers, and that of its type of models; of
   Mistral it is always the one that takes tokenizer.json as it is. */
static ph_status find_class(const ph_values *values, token_class *class,
                            token_class *usual, const ph_io *io)
{
    static const char *const keys[] = {"tokenizer_config.tokenizer_class",
                                       "tokenizer_class", "model_type"};
    const ph_value *found[3], *v = NULL;
    for (int i = 0; i < 3; i++) {
        PH_TRY(find_value(values, keys[i], PH_VALUE_TEXT, "a name", &found[i], io));
        if (!v) v = found[i];
    }
    *class = *usual = OTHER;
    if (found[2]) *usual = class_of(found[2]->text, found[2]->length);
    if (!v || (found[2] && !strcmp(found[2]->text, "mistral"))) return PH_OK;
    size_t length = v->length;
    if (length > 4 && !strcmp(v->text + length - 4, "Fast")) length -= 4;
    *class = class_of(v->text, length);
    return PH_OK;
}

static ph_status read_option(const ph_values *values, const char *key,
                             ph_token_option usual, ph_token_option *out, const ph_io *io)
{
    const ph_value *v;
    PH_TRY(find_value(values, key, PH_VALUE_BOOL, "true or false", &v, io));
    *out = !v ? usual : v->number != 0 ? PH_OPTION_YES : PH_OPTION_NO;
    return PH_OK;
}

/* Such a class makes its normalizer or pre-tokenizer itself: what is not said has the
   value that is usual there, whatever tokenizer.json says. */
static ph_status find_options(const ph_values *values, token_class class,
                              ph_token_options *o, const ph_io *io)
{
    const ph_value *modules;
    *o = (ph_token_options){0};
    PH_TRY(find_value(values, "modules.", PH_VALUE_LIST, "a list", &modules, io));
    if (modules)
        PH_TRY(read_option(values, "sentence.do_lower_case", PH_OPTION_NO,
                           &o->lowercase_first, io));
    if (class == BYTE_LEVEL || class == ROBERTA)
        PH_TRY(read_option(values, "tokenizer_config.add_prefix_space", PH_OPTION_NO,
                           &o->prefix_space, io));
    if (class == ROBERTA) { /* its template goes by both, for offsets */
        o->trim_keeps_one = o->prefix_space;
        return read_option(values, "tokenizer_config.trim_offsets", PH_OPTION_YES,
                           &o->trim_offsets, io);
    }
    if (class != BERT) return PH_OK;
    PH_TRY(read_option(values, "tokenizer_config.do_lower_case", PH_OPTION_YES,
                       &o->lowercase, io));
    PH_TRY(read_option(values, "tokenizer_config.strip_accents", o->lowercase,
                       &o->accents, io));
    return read_option(values, "tokenizer_config.tokenize_chinese_chars", PH_OPTION_YES,
                       &o->chinese, io);
}

/* ---- files of tokenizers ----------------------------------------------------------- */

static ph_status read_file(ph_tokenizer **out, const char *folder, size_t length,
                           const char *name, const ph_token_options *options,
                           const ph_io *io)
{
    char path[4096];
    int count = snprintf(path, sizeof path, "%.*s%s%s", (int)length, folder,
                         length && folder[length - 1] != '/' ? "/" : "", name);
    if (count < 0 || (size_t)count >= sizeof path || !ph_source_exists(path))
        return PH_OK;
    return ph_tokenizer_read_as(out, path, options, io);
}

/* ---- tokenizers of several files --------------------------------------------------- */

static ph_status convert_spm(const char *const paths[2], const ph_map maps[2],
                             char **json, size_t *length, const ph_io *io)
{
    char *vocab = ph_io_alloc(io, maps[1].size + 1);
    if (!vocab) return ph_io_no_memory(io, maps[1].size, "a vocabulary");
    if (maps[1].size) memcpy(vocab, maps[1].bytes, maps[1].size);
    vocab[maps[1].size] = 0;
    ph_spm_files files = {paths[0],     paths[1], maps[0].bytes,
                          maps[0].size, vocab,    maps[1].size};
    ph_status status = ph_spm_to_json(&files, json, length, io);
    ph_io_release(io, vocab);
    return status;
}

static ph_status join_spm(const char *folder, const char *name, char **json,
                          size_t *length, const ph_io *io)
{
    char paths[2][4096];
    const char *const names[2] = {paths[0], paths[1]};
    ph_map maps[2] = {{0}};
    int fits = 1;
    for (int i = 0; i < 2; i++) {
        int count =
            snprintf(paths[i], sizeof paths[i], "%s/%s", folder, i ? "vocab.json" : name);
        fits &= count > 0 && (size_t)count < sizeof paths[i];
    }
    if (!fits || !ph_source_exists(paths[0])) return PH_OK;
    ph_status status = ph_map_open(&maps[0], paths[0], io);
    if (status == PH_OK) status = ph_map_open(&maps[1], paths[1], io);
    if (status == PH_OK) status = convert_spm(names, maps, json, length, io);
    ph_map_close(&maps[0]);
    ph_map_close(&maps[1]);
    return status;
}

/* A whole file with a NUL behind it; none is there: text stays NULL. */
static ph_status load_text(ph_merge_text *file, const ph_io *io)
{
    ph_map map;
    if (!ph_source_exists(file->name)) return PH_OK;
    PH_TRY(ph_map_open(&map, file->name, io));
    file->text = ph_io_alloc(io, map.size + 1);
    if (file->text) {
        if (map.size) memcpy(file->text, map.bytes, map.size);
        file->text[file->size = map.size] = 0;
    }
    ph_map_close(&map);
    return file->text ? PH_OK : ph_io_no_memory(io, file->size, "a file");
}

static ph_status join_merges(const char *folder, char **json, size_t *length,
                             const ph_io *io)
{
    static const char *const names[PH_MERGE_FILES] = {"vocab.json",
                                                      "merges.txt",
                                                      "added_tokens.json",
                                                      "special_tokens_map.json",
                                                      "tokenizer_config.json",
                                                      "config.json"};
    char paths[PH_MERGE_FILES][4096];
    ph_merge_text files[PH_MERGE_FILES] = {{0}};
    ph_status status = PH_OK;
    for (int i = 0; i < PH_MERGE_FILES; i++) {
        int count = snprintf(paths[i], sizeof paths[i], "%s/%s", folder, names[i]);
        if (count < 0 || (size_t)count >= sizeof paths[i]) return PH_OK;
        files[i].name = paths[i];
    }
    if (!ph_source_exists(paths[PH_MERGE_PAIRS])) return PH_OK;
    for (int i = 0; i < PH_MERGE_FILES && status == PH_OK; i++)
        status = load_text(&files[i], io);
    if (status == PH_OK) status = ph_merges_to_json(files, json, length, io);
    for (int i = 0; i < PH_MERGE_FILES; i++) ph_io_release(io, files[i].text);
    return status;
}

ph_status ph_tokens_joined(const char *folder, const char *name, char **json,
                           size_t *length, const ph_io *io)
{
    *json = NULL;
    return strcmp(name, "merges.txt") ? join_spm(folder, name, json, length, io)
                                      : join_merges(folder, json, length, io);
}

static ph_status read_joined(ph_tokenizer **out, const char *folder, const char *name,
                             const ph_token_options *options, const ph_io *io)
{
    char *json;
    size_t length;
    PH_TRY(ph_tokens_joined(folder, name, &json, &length, io));
    ph_status status =
        json ? ph_tokenizer_parse_as(out, name, json, length, options, io) : PH_OK;
    ph_io_release(io, json);
    return status;
}

/* ---- one file ---------------------------------------------------------------------- */

ph_status ph_values_add_file(ph_values *values, const char *folder, const char *name,
                             const char *prefix, const ph_io *io)
{
    char path[4096];
    ph_map map;
    size_t first = values->count;
    ph_value_kind kind = strcmp(prefix, "modules.") ? PH_VALUE_OBJECT : PH_VALUE_LIST;
    int count = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (count < 0 || (size_t)count >= sizeof path || !ph_source_exists(path))
        return PH_OK;
    PH_TRY(ph_map_open(&map, path, io));
    ph_status status =
        ph_values_read(values, path, prefix, (const char *)map.bytes, map.size, io);
    ph_map_close(&map);
    if (status != PH_OK) return status;
    return ph_values_check_root(values, first, kind, path, io);
}

/* What the class of transformers would make of the folder must be what the file says: a
   class of its own puts the tokens around a text, another one takes those of the file. */
static ph_status check(const ph_tokenizer *t, const ph_values *values, token_class class,
                       token_class usual, const char *folder, const char *file,
                       const ph_io *io)
{
    int own = class == BERT || class == ROBERTA || !strcmp(file, "vocab.txt");
    if (!own && usual != BERT && usual != ROBERTA) return PH_OK;
    const ph_value *said = ph_values_find(values, "tokenizer_config.tokenizer_class");
    if (class == ROBERTA && said && t->model.byte_level && !t->has_template)
        return ph_io_fail(io, PH_UNSUPPORTED,
                          "tokenizer.json puts no tokens around a text, as the class "
                          "RobertaTokenizer does, expected RobertaProcessing");
    return ph_named_tokens_check(t, values, folder, file, own, io);
}

/* tokenizer.json, or else vocab.txt, with what the folder says beside it. */
static ph_status read_one(ph_tokenizer **out, const ph_values *values, const char *folder,
                          ph_token_options *options, const ph_io *io)
{
    static const char *const names[] = {"tokenizer.json", "vocab.txt"};
    token_class class, usual;
    ph_status status = PH_OK;
    PH_TRY(ph_named_tokens_form(values, "tokenizer_config.", io));
    PH_TRY(find_class(values, &class, &usual, io));
    PH_TRY(find_options(values, class, options, io));
    for (int i = 0; i < 2 && !*out && status == PH_OK; i++) {
        status = read_file(out, folder, strlen(folder), names[i], options, io);
        if (*out) status = check(*out, values, class, usual, folder, names[i], io);
    }
    if (status == PH_OK) return PH_OK;
    ph_tokenizer_free(*out);
    *out = NULL;
    return status;
}

/* ---- the tokenizer of a checkpoint ------------------------------------------------- */

ph_status ph_tokens_read(ph_tokenizer **out, const ph_checkpoint *c, const char *path,
                         const ph_io *io)
{
    const char *slash = strrchr(path, '/');
    ph_token_options options;
    if (c->llama2c)
        return read_file(out, path, slash ? (size_t)(slash - path) + 1 : 0,
                         "tokenizer.bin", NULL, io);
    if (c->kind == PH_CHECKPOINT_GGUF) return ph_tokens_of_gguf(out, &c->values, io);
    PH_TRY(read_one(out, &c->values, path, &options, io));
    if (!*out) PH_TRY(read_joined(out, path, "merges.txt", &options, io));
    return *out ? PH_OK : read_joined(out, path, "source.spm", &options, io);
}

/* Of a decoder's texts: as Marian is published, or as its export has it. */
ph_status ph_tokens_read_target(ph_tokenizer **out, const char *path, const ph_io *io)
{
    PH_TRY(read_file(out, path, strlen(path), "target_tokenizer.json", NULL, io));
    return *out ? PH_OK : read_joined(out, path, "target.spm", NULL, io);
}

/* ---- the tokenizer of a path ------------------------------------------------------- */

/* What the folder says of its tokenizer beside it. */
static ph_status read_values(ph_values *values, const char *folder, const ph_io *io)
{
    PH_TRY(ph_values_add_file(values, folder, "config.json", "", io));
    PH_TRY(ph_values_add_file(values, folder, "tokenizer_config.json",
                              "tokenizer_config.", io));
    PH_TRY(ph_values_add_file(values, folder, "modules.json", "modules.", io));
    for (int i = 0; ph_sentence_files[i]; i++) {
        size_t before = values->count;
        PH_TRY(ph_values_add_file(values, folder, ph_sentence_files[i], "sentence.", io));
        if (values->count > before) break;
    }
    return ph_values_sort(values, folder, io);
}

static ph_status open_folder(ph_tokenizer **out, const char *path, const ph_io *io)
{
    ph_values values = {.io = ph_io_hooks(io)};
    ph_token_options options = {0};
    ph_status status = read_values(&values, path, io);
    if (status == PH_OK) status = read_one(out, &values, path, &options, io);
    ph_values_free(&values);
    PH_TRY(status);
    if (!*out)
        PH_TRY(read_file(out, path, strlen(path), "tokenizer.bin", &options, io));
    if (!*out) PH_TRY(read_joined(out, path, "merges.txt", &options, io));
    if (!*out) PH_TRY(read_joined(out, path, "source.spm", &options, io));
    if (*out) return PH_OK;
    return ph_io_fail(io, PH_IO_ERROR,
                      "'%.200s' holds no tokenizer.json, vocab.txt, tokenizer.bin, "
                      "merges.txt or source.spm",
                      path);
}

static ph_status open_gguf(ph_tokenizer **out, const char *path, const ph_io *io)
{
    ph_checkpoint *c = NULL;
    PH_TRY(ph_checkpoint_open(&c, path, io));
    ph_status status = ph_tokens_of_gguf(out, &c->values, io);
    ph_checkpoint_free(c);
    if (status == PH_OK && !*out)
        return ph_io_fail(io, PH_BAD_FILE, "'%.200s' holds no tokenizer", path);
    return status;
}

static ph_status parse_gguf(ph_tokenizer **out, const char *name, const char *bytes,
                            size_t size, const ph_io *io)
{
    ph_checkpoint *c = ph_io_alloc(io, sizeof *c);
    if (!c) return ph_io_no_memory(io, sizeof *c, "a checkpoint");
    *c = (ph_checkpoint){.io = ph_io_hooks(io)};
    c->values.io = c->io;
    ph_status status = ph_gguf_read(c, name, (const unsigned char *)bytes, size, io);
    if (status == PH_OK) status = ph_tokens_of_gguf(out, &c->values, io);
    ph_checkpoint_free(c);
    if (status == PH_OK && !*out)
        return ph_io_fail(io, PH_BAD_FILE, "%s holds no tokenizer", name);
    return status;
}

ph_status ph_tokens_parse(ph_tokenizer **out, const char *name, const char *bytes,
                          size_t size, const ph_token_options *options, const ph_io *io)
{
    *out = NULL;
    if (size >= 4 && !memcmp(bytes, "GGUF", 4))
        return parse_gguf(out, name, bytes, size, io);
    return ph_tokenizer_parse_as(out, name, bytes, size, options, io);
}

static int begins_with_gguf(const char *path)
{
    char start[4] = "";
    FILE *file = fopen(path, "rb");
    if (!file) return 0;
    int found = fread(start, 1, 4, file) == 4 && !memcmp(start, "GGUF", 4);
    fclose(file);
    return found;
}

ph_status ph_tokenizer_open(ph_tokenizer **out, const char *path, const ph_io *io)
{
    struct stat info;
    if (out) *out = NULL;
    if (!out || !path) return ph_io_null(io, "out or path");
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        return open_folder(out, path, io);
    if (stat(path, &info) == 0 && S_ISREG(info.st_mode) && begins_with_gguf(path))
        return open_gguf(out, path, io);
    return ph_tokenizer_read(out, path, io);
}
