/*
 * token_gguf.c - tokenizers from the arrays of a GGUF file.
 *
 * Such a file names a model and, for byte-level BPE, how text is split; what else a
 * tokenizer.json would say follows from the names.
 */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "io/utf8.h"
#include "text/tokenizer.h"

enum token_type { UNKNOWN_TYPE = 2, CONTROL_TYPE = 3, USER_TYPE = 4, BYTE_TYPE = 6 };

static const char mark[] = "\xe2\x96\x81"; /* U+2581, a blank in SentencePiece */

typedef struct gguf_setup {
    ph_tokenizer *t;
    const ph_gguf_tokens *from;
    const ph_io *io;
} gguf_setup;

static ph_status bad(const gguf_setup *g, const char *why)
{
    return ph_io_fail(g->io, PH_BAD_FILE, "the tokenizer of the GGUF file: %s", why);
}

static int type_of(const gguf_setup *g, size_t i)
{
    return g->from->types ? g->from->types[i] : 0;
}

/* ---- the vocabulary ---- */

/* WordPiece tokens are stored with a mark where a word begins, and bare elsewhere. */
static ph_status add_word(const gguf_setup *g, size_t i, ph_chars token)
{
    const size_t length = sizeof mark - 1;
    char small[256];
    int special = type_of(g, i) == CONTROL_TYPE || type_of(g, i) == UNKNOWN_TYPE ||
                  (!g->from->types && token.length > 1 && token.text[0] == '[' &&
                   token.text[token.length - 1] == ']');
    if (special) return ph_token_table_add(&g->t->tokens, i, token.text, token.length);
    if (token.length >= length && !memcmp(token.text, mark, length))
        return ph_token_table_add(&g->t->tokens, i, token.text + length,
                                  token.length - length);
    if (token.length > sizeof small - 2)
        return bad(g, "a token is longer than 254 bytes");
    memcpy(small, "##", 2);
    memcpy(small + 2, token.text, token.length);
    return ph_token_table_add(&g->t->tokens, i, small, token.length + 2);
}

static ph_status add_tokens(const gguf_setup *g)
{
    int words = !strcmp(g->from->model, "bert");
    if (!g->from->tokens || g->from->count == 0) return bad(g, "it has no tokens");
    PH_TRY(ph_token_table_expect(&g->t->tokens, g->from->count));
    for (size_t i = 0; i < g->from->count; i++) {
        ph_chars token = g->from->tokens[i];
        if (ph_utf8_valid(token.text, token.length) != token.length)
            return ph_io_fail(g->io, PH_BAD_FILE,
                              "the tokenizer of the GGUF file: token %zu is not valid "
                              "UTF-8",
                              i);
        if (words)
            PH_TRY(add_word(g, i, token));
        else
            PH_TRY(ph_token_table_add(&g->t->tokens, i, token.text, token.length));
        g->t->tokens.entries[i].byte = type_of(g, i) == BYTE_TYPE;
    }
    return PH_OK;
}

/* Control and user tokens are found in the text before anything else. */
static ph_status add_special_tokens(const gguf_setup *g)
{
    for (size_t i = 0; i < g->from->count; i++) {
        int type = type_of(g, i);
        ph_token_entry *e = &g->t->tokens.entries[i];
        if (type != UNKNOWN_TYPE && type != CONTROL_TYPE && type != USER_TYPE) continue;
        if (e->length == 0) continue;
        e->added = 1;
        PH_TRY(ph_add_token(
            g->t, (ph_added_token){.id = (int32_t)i,
                                   .text = ph_token_text(&g->t->tokens, (int32_t)i),
                                   .length = e->length,
                                   .special = type != USER_TYPE}));
    }
    return PH_OK;
}

static ph_status check_id(const gguf_setup *g, int32_t id, const char *what)
{
    if (ph_token_known(&g->t->tokens, id)) return PH_OK;
    return ph_io_fail(g->io, PH_BAD_FILE,
                      "the tokenizer of the GGUF file: %s is %d, expected the id of a "
                      "token",
                      what, (int)id);
}

/* bos A eos, where the file wants them. */
static ph_status add_template(const gguf_setup *g, int bos, int eos, int32_t end)
{
    ph_tokenizer *t = g->t;
    if (bos) PH_TRY(check_id(g, g->from->bos, "bos_token_id"));
    if (eos) PH_TRY(check_id(g, end, "the id of the last token"));
    t->has_template = bos || eos;
    for (int i = 0; i < 2; i++) {
        ph_template *list = i ? &t->pair : &t->single;
        for (int part = 0; part <= i; part++) {
            if (bos) PH_TRY(ph_template_add(t, list, g->from->bos, part));
            PH_TRY(ph_template_add(t, list, part ? PH_TEMPLATE_B : PH_TEMPLATE_A, part));
            if (eos) PH_TRY(ph_template_add(t, list, end, part));
        }
    }
    return PH_OK;
}

static int wants(int flag, int usual)
{
    return flag < 0 ? usual : flag;
}

static ph_status copy_scores(const gguf_setup *g, double **out)
{
    double *scores = ph_io_alloc(g->io, g->from->count * sizeof *scores);
    *out = scores;
    if (!scores) return PH_OUT_OF_MEMORY;
    for (size_t i = 0; i < g->from->count; i++) {
        if (!isfinite(g->from->scores[i])) return bad(g, "a score is not finite");
        scores[i] = g->from->scores[i];
    }
    return PH_OK;
}

/* ---- SentencePiece ---- */

static ph_status setup_sentencepiece_decoder(const gguf_setup *g, int prefix)
{
    const ph_decode_step steps[] = {
        {.kind = PH_DECODE_REPLACE,
         .pattern = {.text = mark, .length = sizeof mark - 1},
         .text = " ",
         .length = 1},
        {.kind = PH_DECODE_BYTE_FALLBACK},
        {.kind = PH_DECODE_FUSE},
        {.kind = PH_DECODE_STRIP, .text = " ", .length = 1, .left = 1}};
    for (int i = 0; i < 3 + prefix; i++) PH_TRY(ph_add_decoder(g->t, steps[i]));
    return PH_OK;
}

static ph_status setup_llama(const gguf_setup *g)
{
    ph_tokenizer *t = g->t;
    int prefix = wants(g->from->add_space_prefix, 1);
    ph_step before = {.kind = PH_STEP_PREPEND, .text = mark, .length = sizeof mark - 1};
    ph_step blanks = {.kind = PH_STEP_REPLACE, .text = mark, .length = sizeof mark - 1};
    blanks.pattern = (ph_pattern){.text = " ", .length = 1};
    if (!g->from->scores) return bad(g, "llama has no scores");
    for (size_t i = 0; i < g->from->count; i++)
        if (g->from->scores[i] != g->from->scores[i]) return bad(g, "a score is NaN");
    PH_TRY(add_special_tokens(g));
    if (prefix) PH_TRY(ph_add_normalizer(t, before));
    PH_TRY(ph_add_normalizer(t, blanks));
    t->model.kind = PH_MODEL_BPE;
    t->model.byte_fallback = t->model.fuse_unknown = 1;
    t->model.unknown = g->from->unknown;
    if (g->from->unknown >= 0) PH_TRY(check_id(g, g->from->unknown, "unknown_token_id"));
    PH_TRY(ph_merges_of_scores(t, g->from->scores, g->from->count, g->io));
    PH_TRY(setup_sentencepiece_decoder(g, prefix));
    return add_template(g, wants(g->from->add_bos, g->from->bos >= 0),
                        wants(g->from->add_eos, 0), g->from->eos);
}

static ph_status setup_t5(const gguf_setup *g)
{
    ph_tokenizer *t = g->t;
    int prefix = wants(g->from->add_space_prefix, 1);
    ph_step space = {.kind = PH_STEP_SPLIT, .behavior = PH_SPLIT_REMOVED};
    ph_step map = {.kind = PH_STEP_CHARSMAP};
    space.pattern =
        (ph_pattern){.kind = PH_PATTERN_CLASS, .flags = PH_CHAR_SPACE, .least = 1};
    if (!g->from->scores) return bad(g, "t5 has no scores");
    PH_TRY(add_special_tokens(g));
    if (g->from->charsmap_size > 0) {
        unsigned char *bytes = ph_io_alloc(g->io, g->from->charsmap_size);
        if (!bytes) return PH_OUT_OF_MEMORY;
        memcpy(bytes, g->from->charsmap, g->from->charsmap_size);
        int wrong = ph_charsmap_open(&map.charsmap, bytes, g->from->charsmap_size);
        if (wrong || ph_add_normalizer(t, map) != PH_OK) {
            ph_io_release(g->io, bytes);
            return bad(g, "precompiled_charsmap is no character map");
        }
    }
    if (wants(g->from->remove_extra_whitespaces, 1)) PH_TRY(ph_add_splitter(t, space));
    PH_TRY(ph_setup_metaspace(t, mark, sizeof mark - 1,
                              prefix ? PH_PREPEND_MISSING : PH_PREPEND_NEVER, 1));
    PH_TRY(check_id(g, g->from->unknown, "unknown_token_id"));
    t->model.unknown = g->from->unknown;
    PH_TRY(copy_scores(g, &t->model.scores));
    PH_TRY(ph_setup_unigram(t, NULL, 0, g->io));
    PH_TRY(ph_add_decoder(t, (ph_decode_step){.kind = PH_DECODE_METASPACE,
                                              .text = mark,
                                              .length = sizeof mark - 1,
                                              .keep_first = !prefix}));
    return add_template(g, wants(g->from->add_bos, 0), wants(g->from->add_eos, 1),
                        g->from->eos);
}

/* ---- byte-level BPE ---- */

/* How text is split, by the name that converters give. */
typedef struct named_split {
    const char *name;
    ph_pattern pattern;
    int digits, ignore_merges, compose, bos; /* bos: what is usual */
} named_split;

#define GPT2                                                                             \
    {                                                                                    \
        .kind = PH_PATTERN_GPT2                                                          \
    }
#define LLAMA3                                                                           \
    {                                                                                    \
        .kind = PH_PATTERN_LLAMA3, .digits = 3                                           \
    }
static const named_split splittings[] = {
    {"gpt-2", GPT2, 0, 0, 0, 0},
    {"default", GPT2, 0, 0, 0, 0}, /* as where none is named, and in transformers */
    {"olmo", GPT2, 0, 0, 0, 0},
    {"phi-2", GPT2, 0, 0, 0, 0},
    {"roberta-bpe", GPT2, 0, 0, 0, 1},
    {"smollm", GPT2, 1, 0, 0, 0},
    {"starcoder", GPT2, 1, 0, 0, 0},
    {"refact", GPT2, 1, 0, 0, 0},
    {"command-r", GPT2, 1, 0, 0, 1},
    {"llama-bpe", LLAMA3, 0, 1, 0, 1},
    {"llama3", LLAMA3, 0, 1, 0, 1},
    {"llama-v3", LLAMA3, 0, 1, 0, 1},
    {"qwen2", {.kind = PH_PATTERN_LLAMA3, .digits = 1}, 0, 0, 1, 0},
    {"deepseek-r1-qwen", {.kind = PH_PATTERN_LLAMA3, .digits = 1}, 0, 0, 0, 0},
    {"qwen35", {.kind = PH_PATTERN_LLAMA3, .digits = 1, .marks = 1}, 0, 0, 1, 0},
    {"gpt-4o", {.kind = PH_PATTERN_O200K, .digits = 3, .contractions = 1}, 0, 0, 0, 0},
    {"tekken", {.kind = PH_PATTERN_O200K, .digits = 1}, 0, 1, 0, 1},
};

static const named_split *find_splitting(const char *name)
{
    for (size_t i = 0; i < sizeof splittings / sizeof splittings[0]; i++)
        if (!strcmp(splittings[i].name, name)) return &splittings[i];
    return NULL;
}

static ph_status add_splitting(const gguf_setup *g, const named_split *s)
{
    ph_step digits = {.kind = PH_STEP_SPLIT, .behavior = PH_SPLIT_ISOLATED};
    ph_step split = {.kind = PH_STEP_SPLIT, .behavior = PH_SPLIT_ISOLATED};
    ph_step form = {.kind = PH_STEP_NORMAL_FORM, .compose = 1};
    digits.pattern =
        (ph_pattern){.kind = PH_PATTERN_CLASS, .flags = PH_CHAR_DIGIT, .least = 1};
    split.pattern = s->pattern;
    if (s->compose) PH_TRY(ph_add_normalizer(g->t, form));
    if (s->digits) PH_TRY(ph_add_splitter(g->t, digits));
    PH_TRY(ph_add_splitter(g->t, split));
    return ph_setup_byte_level(g->t, wants(g->from->add_space_prefix, 0), 0);
}

static ph_status add_merge(const gguf_setup *g, size_t rank)
{
    ph_chars merge = g->from->merges[rank];
    const ph_token_table *tokens = &g->t->tokens;
    const char *blank =
        merge.length > 1 ? memchr(merge.text + 1, ' ', merge.length - 1) : NULL;
    size_t left = blank ? (size_t)(blank - merge.text) : 0;
    size_t right = blank ? merge.length - left - 1 : 0;
    char whole[1024];
    if (right == 0 || left + right > sizeof whole)
        return bad(g, "a merge is no pair of texts");
    memcpy(whole, merge.text, left);
    memcpy(whole + left, blank + 1, right);
    int32_t a = ph_token_table_find(tokens, merge.text, left);
    int32_t b = ph_token_table_find(tokens, blank + 1, right);
    int32_t merged = ph_token_table_find(tokens, whole, left + right);
    if (a < 0 || b < 0 || merged < 0)
        return ph_io_fail(g->io, PH_BAD_FILE,
                          "the tokenizer of the GGUF file: merge %zu to %s has a token "
                          "that is not in the vocabulary",
                          rank, ph_io_quote(whole, left + right).text);
    ph_model_add_pair(&g->t->model, a, b, (uint32_t)rank, merged);
    return PH_OK;
}

static ph_status setup_gpt2(const gguf_setup *g)
{
    const char *name = g->from->pre ? g->from->pre : "gpt-2";
    const named_split *s = find_splitting(name);
    if (!s)
        return ph_io_fail(g->io, PH_UNSUPPORTED,
                          "the tokenizer of the GGUF file splits by %s, which is not "
                          "supported",
                          ph_io_quote(name, strlen(name)).text);
    if (!g->from->merges || g->from->merge_count >= UINT32_MAX)
        return bad(g, "gpt2 has no merges");
    PH_TRY(add_special_tokens(g));
    PH_TRY(add_splitting(g, s));
    g->t->model.kind = PH_MODEL_BPE;
    g->t->model.ignore_merges = s->ignore_merges;
    PH_TRY(ph_model_pairs(&g->t->model, g->from->merge_count, g->io));
    for (size_t i = 0; i < g->from->merge_count; i++) PH_TRY(add_merge(g, i));
    PH_TRY(ph_add_decoder(g->t, (ph_decode_step){.kind = PH_DECODE_BYTES}));
    return add_template(g, wants(g->from->add_bos, s->bos && g->from->bos >= 0),
                        wants(g->from->add_eos, 0), g->from->eos);
}

/* ---- WordPiece ---- */

static ph_status setup_bert(const gguf_setup *g)
{
    ph_tokenizer *t = g->t;
    int32_t cls = g->from->bos, sep = g->from->separator;
    if (sep < 0) sep = g->from->eos;
    if (cls < 0) cls = ph_token_table_find(&t->tokens, "[CLS]", 5);
    if (sep < 0) sep = ph_token_table_find(&t->tokens, "[SEP]", 5);
    t->model.unknown = g->from->unknown;
    PH_TRY(check_id(g, g->from->unknown, "unknown_token_id"));
    PH_TRY(check_id(g, cls, "the id of [CLS]"));
    PH_TRY(check_id(g, sep, "the id of [SEP]"));
    t->model.max_characters = 100;
    PH_TRY(add_special_tokens(g));
    PH_TRY(ph_setup_bert(t, &(ph_word_options){0}));
    PH_TRY(ph_add_bert_template(t, cls, sep));
    PH_TRY(ph_add_decoder(
        t, (ph_decode_step){
               .kind = PH_DECODE_WORDPIECE, .text = "##", .length = 2, .cleanup = 1}));
    return ph_setup_wordpiece_trie(t, "##", 2, g->io);
}

static ph_status setup(const gguf_setup *g)
{
    const char *model = g->from->model ? g->from->model : "";
    if (strcmp(model, "llama") && strcmp(model, "gpt2") && strcmp(model, "bert") &&
        strcmp(model, "t5"))
        return ph_io_fail(g->io, PH_UNSUPPORTED,
                          "the tokenizer of the GGUF file is %s, expected llama, gpt2, "
                          "bert or t5",
                          ph_io_quote(model, strlen(model)).text);
    PH_TRY(add_tokens(g));
    if (g->from->padding >= 0 && ph_token_known(&g->t->tokens, g->from->padding))
        g->t->padding = g->from->padding;
    if (model[0] == 'l') return setup_llama(g);
    if (model[0] == 'g') return setup_gpt2(g);
    return model[0] == 'b' ? setup_bert(g) : setup_t5(g);
}

ph_status ph_tokenizer_of_gguf(ph_tokenizer **out, const ph_gguf_tokens *tokens,
                               const ph_io *io)
{
    gguf_setup g = {.from = tokens, .io = io};
    if (out) *out = NULL;
    if (!out || !tokens) return ph_io_null(io, "out or tokens");
    PH_TRY(ph_tokenizer_new(&g.t, io));
    return ph_tokenizer_deliver(g.t, setup(&g), out, io);
}
