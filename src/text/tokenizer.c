/*
 * tokenizer.c - making and freeing tokenizers, and what several files share; see
 * tokenizer.h.
 */
#include "text/tokenizer.h"

#include <math.h>
#include <string.h>

#include "base/base.h"
#include "base/rng.h"
#include "io/file.h"
#include "io/utf8.h"
#include "text/byte_alphabet.h"

#define MAX_FILE ((size_t)1 << 28) /* bytes; the largest known file has 34 MB */

/* ---- memory ---- */

ph_status ph_tokenizer_new(ph_tokenizer **out, const ph_io *io)
{
    ph_tokenizer *t = ph_io_alloc(io, sizeof *t);
    *out = t;
    if (!t) return ph_io_no_memory(io, sizeof *t, "a tokenizer");
    memset(t, 0, sizeof *t);
    t->io = ph_io_hooks(io);
    t->tokens.io = io; /* while it is read, for sentences */
    t->tokens.seed = ph_rng_mix((uintptr_t)t);
    t->model.tokens = &t->tokens;
    t->model.unknown = t->padding = PH_TOKEN_NONE;
    ph_unicode_fill(&t->unicode);
    return PH_OK;
}

static void free_steps(ph_tokenizer *t, ph_step *steps, size_t count)
{
    for (size_t i = 0; i < count; i++) ph_io_release(&t->io, steps[i].charsmap.bytes);
    ph_io_release(&t->io, steps);
}

void ph_tokenizer_free(ph_tokenizer *t)
{
    if (!t) return;
    ph_io io = t->io;
    t->tokens.io = &io;
    ph_token_table_free(&t->tokens);
    ph_trie_free(&t->model.trie, &io);
    ph_io_release(&io, t->model.scores);
    ph_io_release(&io, t->model.pairs);
    free_steps(t, t->normalizers, t->normalizer_count);
    free_steps(t, t->splitters, t->splitter_count);
    ph_trie_free(&t->raw.trie, &io);
    ph_trie_free(&t->normalized.trie, &io);
    ph_io_release(&io, t->added);
    ph_io_release(&io, t->single.items);
    ph_io_release(&io, t->pair.items);
    ph_io_release(&io, t->decoders);
    for (size_t i = 0; i < t->text_count; i++) ph_io_release(&io, t->texts[i]);
    ph_io_release(&io, t->texts);
    ph_io_release(&io, t);
}

char *ph_tokenizer_copy(ph_tokenizer *t, const char *text, size_t length)
{
    void *texts = t->texts;
    ph_status status = ph_io_grow(&t->io, &texts, &t->text_capacity, t->text_count + 1,
                                  sizeof *t->texts);
    t->texts = texts;
    char *copy = status == PH_OK ? ph_io_alloc(&t->io, length + 1) : NULL;
    if (!copy) return NULL;
    memcpy(copy, text, length);
    copy[length] = 0;
    t->texts[t->text_count++] = copy;
    return copy;
}

/* ---- lists ---- */

/* Published tokenizers have up to ten steps; decoders call each other. */
static ph_status check_steps(const ph_tokenizer *t, size_t count)
{
    enum { MOST = 64 };
    if (count < MOST) return PH_OK;
    return ph_io_fail(t->tokens.io, PH_UNSUPPORTED,
                      "more than %d normalizers, pre-tokenizers or decoders are not "
                      "supported",
                      MOST);
}

static ph_status add_step(ph_tokenizer *t, ph_step **steps, size_t *count,
                          size_t *capacity, ph_step step)
{
    void *items = *steps;
    PH_TRY(check_steps(t, *count));
    ph_status status = ph_io_grow(&t->io, &items, capacity, *count + 1, sizeof step);
    *steps = items;
    if (status == PH_OK) (*steps)[(*count)++] = step;
    return status;
}

ph_status ph_add_normalizer(ph_tokenizer *t, ph_step step)
{
    return add_step(t, &t->normalizers, &t->normalizer_count, &t->normalizer_capacity,
                    step);
}

ph_status ph_add_splitter(ph_tokenizer *t, ph_step step)
{
    return add_step(t, &t->splitters, &t->splitter_count, &t->splitter_capacity, step);
}

ph_status ph_add_decoder(ph_tokenizer *t, ph_decode_step step)
{
    void *items = t->decoders;
    PH_TRY(check_steps(t, t->decoder_count));
    ph_status status = ph_io_grow(&t->io, &items, &t->decoder_capacity,
                                  t->decoder_count + 1, sizeof step);
    t->decoders = items;
    if (status == PH_OK) t->decoders[t->decoder_count++] = step;
    return status;
}

ph_status ph_template_add(ph_tokenizer *t, ph_template *list, int32_t id, int32_t type)
{
    void *items = list->items;
    ph_status status = ph_io_grow(&t->io, &items, &list->capacity, list->count + 1,
                                  sizeof(ph_template_item));
    list->items = items;
    if (status == PH_OK) list->items[list->count++] = (ph_template_item){id, type};
    return status;
}

ph_status ph_add_token(ph_tokenizer *t, ph_added_token token)
{
    enum { LONGEST = 4096 }; /* a text is compared with it at every place */
    void *items = t->added;
    if (token.length > LONGEST)
        return ph_io_fail(t->tokens.io, PH_UNSUPPORTED,
                          "an added token of more than %d bytes is not supported",
                          LONGEST);
    token.text = ph_tokenizer_copy(t, token.text, token.length);
    ph_status status =
        ph_io_grow(&t->io, &items, &t->added_capacity, t->added_count + 1, sizeof token);
    t->added = items;
    if (status != PH_OK || !token.text) return PH_OUT_OF_MEMORY;
    t->added[t->added_count++] = token;
    return PH_OK;
}

/* ---- what several files mean ---- */

ph_status ph_setup_byte_level(ph_tokenizer *t, int prefix_space, int use_regex)
{
    ph_step space = {.kind = PH_STEP_PREPEND, .text = " ", .length = 1};
    ph_step split = {.kind = PH_STEP_SPLIT, .behavior = PH_SPLIT_ISOLATED};
    split.pattern.kind = PH_PATTERN_GPT2;
    space.when = PH_PREPEND_MISSING;
    if (prefix_space) PH_TRY(ph_add_splitter(t, space));
    if (use_regex) PH_TRY(ph_add_splitter(t, split));
    t->model.byte_level = 1;
    return PH_OK;
}

ph_status ph_setup_bert(ph_tokenizer *t, const ph_word_options *options)
{
    ph_step clean = {.kind = PH_STEP_BERT, .clean = 1};
    ph_step space = {.kind = PH_STEP_SPLIT, .behavior = PH_SPLIT_REMOVED};
    ph_step marks = {.kind = PH_STEP_SPLIT, .behavior = PH_SPLIT_ISOLATED};
    clean.lowercase = !options->keep_case;
    clean.accents = options->strip_accents || (clean.lowercase && !options->keep_accents);
    clean.chinese = !options->keep_chinese;
    space.pattern =
        (ph_pattern){.kind = PH_PATTERN_CLASS, .flags = PH_CHAR_SPACE, .least = 1};
    marks.pattern =
        (ph_pattern){.kind = PH_PATTERN_CLASS, .flags = PH_CHAR_PUNCTUATION, .least = 1};
    PH_TRY(ph_add_normalizer(t, clean));
    PH_TRY(ph_add_splitter(t, space));
    return ph_add_splitter(t, marks);
}

ph_status ph_setup_metaspace(ph_tokenizer *t, const char *mark, size_t length,
                             ph_prepend_when when, int split)
{
    ph_step blanks = {.kind = PH_STEP_REPLACE, .text = mark, .length = length};
    ph_step before = {.kind = PH_STEP_PREPEND, .text = mark, .length = length};
    ph_step words = {.kind = PH_STEP_SPLIT, .behavior = PH_SPLIT_MERGED_WITH_NEXT};
    blanks.pattern = (ph_pattern){.text = " ", .length = 1};
    before.when = when;
    words.pattern = (ph_pattern){.text = mark, .length = length};
    PH_TRY(ph_add_splitter(t, blanks));
    if (when != PH_PREPEND_NEVER) PH_TRY(ph_add_splitter(t, before));
    return split ? ph_add_splitter(t, words) : PH_OK;
}

/* All tokens of the vocabulary, but those of Unigram without a score, and more keys as
   the model's trie. */
static ph_status build_trie(ph_tokenizer *t, const ph_trie_key *more, size_t more_count,
                            const ph_io *io)
{
    const double *scores = t->model.scores;
    size_t count = 0, most = t->tokens.count + more_count;
    ph_trie_key *keys = ph_io_alloc(io, most * sizeof *keys);
    if (!keys) return ph_io_no_memory(io, most * sizeof *keys, "a trie");
    for (size_t i = 0; i < more_count; i++)
        if (more[i].length) keys[count++] = more[i];
    for (size_t i = 0; i < t->tokens.count; i++) {
        if (!t->tokens.entries[i].used || t->tokens.entries[i].length == 0) continue;
        if (scores && isnan(scores[i])) continue;
        keys[count++] = (ph_trie_key){ph_token_text(&t->tokens, (int32_t)i),
                                      t->tokens.entries[i].length, (int32_t)i};
    }
    ph_status status = ph_trie_build(&t->model.trie, keys, count, io);
    ph_io_release(io, keys);
    return status;
}

ph_status ph_setup_wordpiece_trie(ph_tokenizer *t, const char *prefix, size_t length,
                                  const ph_io *io)
{
    uint32_t node = 0;
    size_t i = 0;
    PH_TRY(build_trie(t, NULL, 0, io));
    for (; i < length; i++) {
        node = ph_trie_step(&t->model.trie, node, (unsigned char)prefix[i]);
        if (node == 0) break;
    }
    t->model.kind = PH_MODEL_WORDPIECE;
    t->model.continuing = node;
    t->model.has_continuing = i == length;
    return PH_OK;
}

ph_status ph_setup_unigram(ph_tokenizer *t, const ph_trie_key *more, size_t more_count,
                           const ph_io *io)
{
    double lowest = INFINITY;
    for (size_t i = 0; i < more_count; i++)
        if (t->model.scores[more[i].value] < lowest)
            lowest = t->model.scores[more[i].value];
    for (size_t i = 0; i < t->tokens.count; i++)
        if (t->tokens.entries[i].used && t->model.scores[i] < lowest)
            lowest = t->model.scores[i];
    t->model.kind = PH_MODEL_UNIGRAM;
    t->model.unknown_score = lowest - 10;
    ph_model_find_bytes(&t->model);
    return build_trie(t, more, more_count, io);
}

/* ---- ready for use ---- */

static void find_characters(ph_cut_model *model)
{
    for (int i = 0; i < 256; i++) {
        char text[4];
        unsigned char byte = (unsigned char)i;
        if (i < 128) {
            text[0] = (char)byte;
            model->ascii[i] = ph_model_find(model, text, 1);
        }
        if (!model->byte_level) continue;
        size_t length = (size_t)ph_utf8_encode(ph_byte_alphabet_char(byte), text);
        model->bytes[i] = ph_model_find(model, text, length);
    }
    if (!model->byte_level) ph_model_find_bytes(model);
}

/* The text a normalized added token is searched by, and decoded to. */
static ph_status normalize_added(ph_tokenizer *t, ph_added_token *token, const ph_io *io)
{
    ph_pieces pieces;
    ph_pieces_init(&pieces, &t->unicode, io);
    ph_status status = ph_pieces_load(&pieces, token->text, 0, token->length);
    if (status == PH_OK)
        status = ph_pieces_run(&pieces, t->normalizers, t->normalizer_count);
    if (status == PH_OK && pieces.count > 0) {
        token->length = (uint32_t)pieces.text.length;
        token->text = ph_tokenizer_copy(t, pieces.text.bytes, pieces.text.length);
        if (!token->text) status = PH_OUT_OF_MEMORY;
    } else {
        token->length = 0;
    }
    ph_pieces_free(&pieces);
    return status;
}

static ph_status build_added(ph_tokenizer *t, ph_added_set *set, int normalized,
                             const ph_io *io)
{
    size_t count = 0;
    ph_trie_key *keys = ph_io_alloc(io, t->added_count * sizeof *keys);
    if (!keys) return ph_io_no_memory(io, t->added_count * sizeof *keys, "added tokens");
    for (size_t i = 0; i < t->added_count; i++) {
        const ph_added_token *a = &t->added[i];
        if (a->normalized != normalized || a->length == 0) continue;
        keys[count++] = (ph_trie_key){a->text, a->length, (int32_t)i};
        set->begins[(unsigned char)a->text[0]] = 1;
    }
    set->count = count;
    ph_status status = ph_trie_build(&set->trie, keys, count, io);
    ph_io_release(io, keys);
    return status;
}

ph_status ph_tokenizer_finish(ph_tokenizer *t, const ph_io *io)
{
    if (t->model.kind == PH_MODEL_BPE) {
        find_characters(&t->model);
        if (!t->model.byte_level) ph_model_find_words(&t->model);
    }
    for (size_t i = 0; i < t->added_count; i++) {
        ph_added_token *a = &t->added[i];
        t->tokens.entries[a->id].special |= a->special;
        if (a->normalized && t->normalizer_count > 0) PH_TRY(normalize_added(t, a, io));
        t->tokens.entries[a->id].added = (uint32_t)i + 1;
    }
    PH_TRY(build_added(t, &t->raw, 0, io));
    PH_TRY(build_added(t, &t->normalized, 1, io));
    t->tokens.io = &t->io;
    return PH_OK;
}

ph_status ph_tokenizer_deliver(ph_tokenizer *t, ph_status status, ph_tokenizer **out,
                               const ph_io *io)
{
    if (status == PH_OK) status = ph_tokenizer_finish(t, io);
    if (status == PH_OUT_OF_MEMORY)
        ph_io_fail(io, status, "out of memory while a tokenizer is made");
    if (status == PH_OK)
        *out = t;
    else
        ph_tokenizer_free(t);
    return status;
}

/* ---- the vocabulary ---- */

ph_tokenizer_info ph_tokenizer_about(const ph_tokenizer *t)
{
    if (!t) return (ph_tokenizer_info){.unknown = -1, .padding = -1};
    static const char *const names[] = {"WordPiece", "BPE", "Unigram", "WordLevel"};
    ph_tokenizer_info info = {.model = names[t->model.kind],
                              .vocab_size = t->tokens.count,
                              .unknown = t->model.unknown,
                              .padding = t->padding,
                              .max_tokens = t->max_tokens};
    for (size_t i = 0; t->has_template && i < t->single.count; i++)
        info.added_tokens += t->single.items[i].id >= 0;
    return info;
}

int32_t ph_tokenizer_id(const ph_tokenizer *t, const char *text, size_t length)
{
    if (!t || !text) return -1;
    return ph_token_table_find(&t->tokens, text, length);
}

const char *ph_tokenizer_token(const ph_tokenizer *t, int32_t id, size_t *length)
{
    if (!t || !ph_token_known(&t->tokens, id)) return NULL;
    if (length) *length = t->tokens.entries[id].length;
    return ph_token_text(&t->tokens, id);
}

int ph_tokenizer_is_special(const ph_tokenizer *t, int32_t id)
{
    return t && ph_token_known(&t->tokens, id) && t->tokens.entries[id].special;
}

/* ---- files ---- */

static int ends_in(const char *name, const char *tail)
{
    size_t length = strlen(name), count = strlen(tail);
    return length >= count && !strcmp(name + length - count, tail);
}

/* tokenizer.bin begins with a small number and a float; JSON and words with text. What
   begins like none of these is what its name says, so that it is refused as that. */
static ph_status read_any(ph_tokenizer *t, const char *name, char *bytes, size_t size,
                          const ph_io *io)
{
    size_t at = 0;
    while (at < size && strchr(" \t\r\n", bytes[at]) && bytes[at]) at++;
    if (at == size)
        return ph_io_fail(io, PH_BAD_FILE, "'%.200s' is empty, expected a tokenizer",
                          name);
    if (bytes[at] == '{' || ends_in(name, ".json"))
        return ph_read_tokenizer_json(t, name, bytes, size, io);
    if ((size >= 4 && bytes[2] == 0 && bytes[3] == 0) || ends_in(name, ".bin"))
        return ph_read_tokenizer_bin(t, name, bytes, size, io);
    return ph_read_vocab_txt(t, name, bytes, size, io);
}

static ph_status read_source(ph_tokenizer **out, const ph_source *source,
                             const ph_token_options *options, const ph_io *io)
{
    ph_tokenizer *t = NULL;
    char *bytes = NULL;
    if (source->size > MAX_FILE || (io && io->max_bytes && source->size > io->max_bytes))
        return ph_io_fail(io, PH_OUT_OF_MEMORY, "'%.200s' is too large for a tokenizer",
                          source->name);
    bytes = ph_io_alloc(io, source->size + 1);
    if (!bytes) return ph_io_no_memory(io, source->size + 1, "the file");
    ph_status status = ph_source_read(source, 0, bytes, source->size, io);
    bytes[source->size] = 0;
    if (status == PH_OK) status = ph_tokenizer_new(&t, io);
    if (status == PH_OK) status = read_any(t, source->name, bytes, source->size, io);
    if (status == PH_OK && options) status = ph_tokenizer_apply(t, options);
    ph_io_release(io, bytes);
    return ph_tokenizer_deliver(t, status, out, io);
}

ph_status ph_tokenizer_read_as(ph_tokenizer **out, const char *path,
                               const ph_token_options *options, const ph_io *io)
{
    ph_source source;
    if (out) *out = NULL;
    if (!out || !path) return ph_io_null(io, "out or path");
    PH_TRY(ph_source_open(&source, path, io));
    ph_status status = read_source(out, &source, options, io);
    ph_source_close(&source);
    return status;
}

ph_status ph_tokenizer_read(ph_tokenizer **out, const char *path, const ph_io *io)
{
    return ph_tokenizer_read_as(out, path, NULL, io);
}

ph_status ph_tokenizer_parse_as(ph_tokenizer **out, const char *name, const void *bytes,
                                size_t size, const ph_token_options *options,
                                const ph_io *io)
{
    if (out) *out = NULL;
    if (!out || !name || (size && !bytes)) return ph_io_null(io, "out, name or bytes");
    ph_source source = ph_source_memory(name, bytes, size);
    return read_source(out, &source, options, io);
}

ph_status ph_tokenizer_parse(ph_tokenizer **out, const char *name, const void *bytes,
                             size_t size, const ph_io *io)
{
    return ph_tokenizer_parse_as(out, name, bytes, size, NULL, io);
}
