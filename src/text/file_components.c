/*
 * file_components.c - normalizers, pre-tokenizers and decoders of a tokenizer.json, each
 * made of the steps of steps.h.
 */
#include <string.h>

#include "base/base.h"
#include "text/tokenizer_file.h"

static int is(ph_tokenizer_file *file, const ph_json_node *node, const char *type)
{
    return ph_json_equals(ph_json_get(&file->tree, node, "type"), type);
}

/* ---- normalizers ---- */

static ph_status read_bert(ph_tokenizer_file *file, const ph_json_node *node)
{
    ph_step step = {.kind = PH_STEP_BERT};
    PH_TRY(ph_file_flag(file, node, "clean_text", -1, &step.clean));
    PH_TRY(ph_file_flag(file, node, "handle_chinese_chars", -1, &step.chinese));
    PH_TRY(ph_file_flag(file, node, "lowercase", -1, &step.lowercase));
    PH_TRY(ph_file_flag(file, node, "strip_accents", step.lowercase, &step.accents));
    return ph_add_normalizer(file->t, step);
}

static ph_status read_charsmap(ph_tokenizer_file *file, const ph_json_node *node)
{
    const ph_json_node *map = ph_json_get(&file->tree, node, "precompiled_charsmap");
    ph_step step = {.kind = PH_STEP_CHARSMAP};
    size_t size = 0;
    if (!map || map->kind != PH_JSON_STRING)
        return ph_file_bad(file, node, "precompiled_charsmap", "a string");
    unsigned char *bytes = ph_io_alloc(file->io, map->length);
    if (!bytes) return PH_OUT_OF_MEMORY;
    if (ph_base64_decode(map->text, map->length, bytes, &size) ||
        ph_charsmap_open(&step.charsmap, bytes, size)) {
        ph_io_release(file->io, bytes);
        return ph_file_bad(file, node, "precompiled_charsmap",
                           "a character map in base64");
    }
    ph_status status = ph_add_normalizer(file->t, step);
    if (status != PH_OK) ph_io_release(file->io, bytes);
    return status;
}

static ph_status read_strip(ph_tokenizer_file *file, const ph_json_node *node)
{
    ph_step step = {.kind = PH_STEP_STRIP};
    PH_TRY(ph_file_flag(file, node, "strip_left", -1, &step.left));
    PH_TRY(ph_file_flag(file, node, "strip_right", -1, &step.right));
    return ph_add_normalizer(file->t, step);
}

static ph_status read_replace(ph_tokenizer_file *file, const ph_json_node *node)
{
    ph_step step = {.kind = PH_STEP_REPLACE};
    PH_TRY(ph_file_pattern(file, node, &step.pattern));
    PH_TRY(ph_file_text(file, node, "content", &step.text, &step.length));
    return ph_add_normalizer(file->t, step);
}

static ph_status read_prepend(ph_tokenizer_file *file, const ph_json_node *node)
{
    ph_step step = {.kind = PH_STEP_PREPEND};
    PH_TRY(ph_file_text(file, node, "prepend", &step.text, &step.length));
    return ph_add_normalizer(file->t, step);
}

ph_status ph_file_normalizer(ph_tokenizer_file *file, const ph_json_node *node)
{
    static const struct {
        const char *type;
        ph_step step;
    } plain[] = {
        {"Lowercase", {.kind = PH_STEP_LOWERCASE}},
        {"StripAccents", {.kind = PH_STEP_STRIP_ACCENTS}},
        {"NFD", {.kind = PH_STEP_NORMAL_FORM}},
        {"NFC", {.kind = PH_STEP_NORMAL_FORM, .compose = 1}},
        {"NFKD", {.kind = PH_STEP_NORMAL_FORM, .compatibility = 1}},
        {"NFKC", {.kind = PH_STEP_NORMAL_FORM, .compose = 1, .compatibility = 1}},
    };
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        if (is(file, node, plain[i].type))
            return ph_add_normalizer(file->t, plain[i].step);
    if (is(file, node, "BertNormalizer")) return read_bert(file, node);
    if (is(file, node, "Precompiled")) return read_charsmap(file, node);
    if (is(file, node, "Strip")) return read_strip(file, node);
    if (is(file, node, "Replace")) return read_replace(file, node);
    if (is(file, node, "Prepend")) return read_prepend(file, node);
    return ph_file_refuse(file, "normalizer", node);
}

/* ---- pre-tokenizers ---- */

static ph_status read_behavior(ph_tokenizer_file *file, const ph_json_node *node,
                               ph_split_behavior usual, ph_split_behavior *out)
{
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    const ph_json_node *member = ph_json_get(&file->tree, node, "behavior");
    *out = usual;
    if (!member) return PH_OK;
    for (int i = 0; i < 5; i++) {
        if (!ph_json_equals(member, names[i])) continue;
        *out = (ph_split_behavior)i;
        return PH_OK;
    }
    return ph_file_bad(file, node, "behavior",
                       "Removed, Isolated, MergedWithPrevious, MergedWithNext or "
                       "Contiguous");
}

static ph_status read_split(ph_tokenizer_file *file, const ph_json_node *node)
{
    ph_step step = {.kind = PH_STEP_SPLIT};
    PH_TRY(ph_file_pattern(file, node, &step.pattern));
    if (!ph_json_get(&file->tree, node, "behavior"))
        return ph_file_bad(file, node, "behavior", "a string");
    PH_TRY(read_behavior(file, node, PH_SPLIT_ISOLATED, &step.behavior));
    PH_TRY(ph_file_flag(file, node, "invert", -1, &step.invert));
    return ph_add_splitter(file->t, step);
}

static ph_status split_class(ph_tokenizer_file *file, uint32_t flags,
                             ph_split_behavior behavior)
{
    ph_step step = {.kind = PH_STEP_SPLIT, .behavior = behavior};
    step.pattern = (ph_pattern){.kind = PH_PATTERN_CLASS, .flags = flags, .least = 1};
    return ph_add_splitter(file->t, step);
}

static ph_status read_byte_level(ph_tokenizer_file *file, const ph_json_node *node)
{
    int prefix = 0, regex = 0;
    PH_TRY(ph_file_flag(file, node, "add_prefix_space", -1, &prefix));
    PH_TRY(ph_file_flag(file, node, "use_regex", 1, &regex));
    return ph_setup_byte_level(file->t, prefix, regex);
}

static ph_status read_metaspace(ph_tokenizer_file *file, const ph_json_node *node)
{
    const char *mark = NULL;
    size_t length = 0;
    ph_prepend_when when = PH_PREPEND_NEVER;
    int split = 1;
    PH_TRY(ph_file_metaspace(file, node, &mark, &length, &when));
    PH_TRY(ph_file_flag(file, node, "split", 1, &split));
    return ph_setup_metaspace(file->t, mark, length, when, split);
}

static ph_status read_digits(ph_tokenizer_file *file, const ph_json_node *node)
{
    int alone = 0;
    PH_TRY(ph_file_flag(file, node, "individual_digits", -1, &alone));
    return split_class(file, PH_CHAR_DIGIT,
                       alone ? PH_SPLIT_ISOLATED : PH_SPLIT_CONTIGUOUS);
}

static ph_status read_whitespace(ph_tokenizer_file *file)
{
    ph_step step = {.kind = PH_STEP_SPLIT, .behavior = PH_SPLIT_REMOVED, .invert = 1};
    step.pattern.kind = PH_PATTERN_WORDS;
    return ph_add_splitter(file->t, step);
}

ph_status ph_file_splitter(ph_tokenizer_file *file, const ph_json_node *node)
{
    ph_split_behavior behavior;
    if (file->t->model.byte_level)
        return ph_io_fail(file->io, PH_UNSUPPORTED,
                          "'%.200s': a pre_tokenizer behind ByteLevel is not supported",
                          file->name);
    if (is(file, node, "ByteLevel")) return read_byte_level(file, node);
    if (is(file, node, "Split")) return read_split(file, node);
    if (is(file, node, "Metaspace")) return read_metaspace(file, node);
    if (is(file, node, "Digits")) return read_digits(file, node);
    if (is(file, node, "Whitespace")) return read_whitespace(file);
    if (is(file, node, "WhitespaceSplit"))
        return split_class(file, PH_CHAR_SPACE, PH_SPLIT_REMOVED);
    if (is(file, node, "BertPreTokenizer")) {
        PH_TRY(split_class(file, PH_CHAR_SPACE, PH_SPLIT_REMOVED));
        return split_class(file, PH_CHAR_PUNCTUATION, PH_SPLIT_ISOLATED);
    }
    if (is(file, node, "Punctuation")) {
        PH_TRY(read_behavior(file, node, PH_SPLIT_ISOLATED, &behavior));
        return split_class(file, PH_CHAR_PUNCTUATION, behavior);
    }
    return ph_file_refuse(file, "pre_tokenizer", node);
}

/* ---- decoders ---- */

static ph_status decode_wordpiece(ph_tokenizer_file *file, const ph_json_node *node)
{
    ph_decode_step step = {.kind = PH_DECODE_WORDPIECE};
    PH_TRY(ph_file_text(file, node, "prefix", &step.text, &step.length));
    PH_TRY(ph_file_flag(file, node, "cleanup", -1, &step.cleanup));
    return ph_add_decoder(file->t, step);
}

static ph_status decode_metaspace(ph_tokenizer_file *file, const ph_json_node *node)
{
    ph_decode_step step = {.kind = PH_DECODE_METASPACE};
    ph_prepend_when when = PH_PREPEND_NEVER;
    PH_TRY(ph_file_metaspace(file, node, &step.text, &step.length, &when));
    step.keep_first = when == PH_PREPEND_NEVER;
    return ph_add_decoder(file->t, step);
}

static ph_status decode_replace(ph_tokenizer_file *file, const ph_json_node *node)
{
    ph_decode_step step = {.kind = PH_DECODE_REPLACE};
    PH_TRY(ph_file_pattern(file, node, &step.pattern));
    PH_TRY(ph_file_text(file, node, "content", &step.text, &step.length));
    return ph_add_decoder(file->t, step);
}

static ph_status decode_strip(ph_tokenizer_file *file, const ph_json_node *node)
{
    ph_decode_step step = {.kind = PH_DECODE_STRIP};
    PH_TRY(ph_file_text(file, node, "content", &step.text, &step.length));
    PH_TRY(ph_file_size(file, node, "start", &step.left));
    PH_TRY(ph_file_size(file, node, "stop", &step.right));
    if (step.length == 0) return ph_file_bad(file, node, "content", "a character");
    return ph_add_decoder(file->t, step);
}

/* Behind Fuse and ByteLevel all tokens are one text, of which only the ends are known
   while it grows. */
static int is_joined(const ph_tokenizer *t)
{
    for (size_t i = 0; i < t->decoder_count; i++)
        if (t->decoders[i].kind == PH_DECODE_FUSE ||
            t->decoders[i].kind == PH_DECODE_BYTES)
            return 1;
    return 0;
}

ph_status ph_file_decoder(ph_tokenizer_file *file, const ph_json_node *node)
{
    if (is(file, node, "Strip")) return decode_strip(file, node);
    if (is_joined(file->t) && !is(file, node, "Fuse"))
        return ph_io_fail(file->io, PH_UNSUPPORTED,
                          "'%.200s': behind Fuse or ByteLevel only the decoder Strip is "
                          "supported",
                          file->name);
    if (is(file, node, "ByteLevel"))
        return ph_add_decoder(file->t, (ph_decode_step){.kind = PH_DECODE_BYTES});
    if (is(file, node, "ByteFallback"))
        return ph_add_decoder(file->t, (ph_decode_step){.kind = PH_DECODE_BYTE_FALLBACK});
    if (is(file, node, "Fuse"))
        return ph_add_decoder(file->t, (ph_decode_step){.kind = PH_DECODE_FUSE});
    if (is(file, node, "WordPiece")) return decode_wordpiece(file, node);
    if (is(file, node, "Metaspace")) return decode_metaspace(file, node);
    if (is(file, node, "Replace")) return decode_replace(file, node);
    return ph_file_refuse(file, "decoder", node);
}
