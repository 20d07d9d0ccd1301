/*
 * test_tokens_refused.c - files of tokenizers that lie: every field in turn is missing,
 * of another type or out of range. Each is refused with a sentence that names it, and
 * nothing is left behind. Lists from GGUF files and memory that runs out, too.
 */
#include "check.h"
#include "polyhead_text.h"

static char sentence[500];
static long live; /* blocks not yet freed */
static long left; /* allocations until one fails; -1: none does */

static void *take(void *user, size_t bytes)
{
    (void)user;
    if (left == 0) return NULL;
    if (left > 0) left--;
    live++;
    return malloc(bytes);
}

static void give(void *user, void *block)
{
    (void)user;
    live -= block != NULL;
    free(block);
}

static const ph_io io = {
    .alloc = take, .release = give, .error = sentence, .error_size = sizeof sentence};

/* ---- files ---- */

#define ADDED(id, text)                                                                  \
    "{\"id\":" #id ",\"content\":\"" text "\",\"single_word\":false,\"lstrip\":false,"   \
    "\"rstrip\":false,\"normalized\":false,\"special\":true}"
#define WORDPIECE                                                                        \
    "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\","                         \
    "\"continuing_subword_prefix\":\"##\",\"max_input_chars_per_word\":100,"             \
    "\"vocab\":{\"[UNK]\":0,\"a\":1,\"##b\":2}}"
#define BPE(fields, vocab, merges)                                                       \
    "{\"model\":{\"type\":\"BPE\"," fields "\"vocab\":" vocab ",\"merges\":" merges "}}"
#define UNIGRAM(fields, vocab)                                                           \
    "{\"model\":{\"type\":\"Unigram\"," fields "\"vocab\":" vocab "}}"
#define WITH(section, value) "{\"" section "\":" value "," WORDPIECE "}"
#define VOCAB                "{\"a\":0,\"b\":1,\"ab\":2}"

typedef struct lie {
    const char *file, *says; /* a part of the sentence */
    ph_status status;
} lie;

static void refuse(const char *file, size_t size, const char *says, ph_status status)
{
    ph_tokenizer *t = (ph_tokenizer *)sentence;
    sentence[0] = 0;
    left = -1;
    ph_status found = ph_tokenizer_parse(&t, "f", file, size, &io);
    CHECK(found == status && !t, "%s\n      gives %d %s", file, (int)found, sentence);
    CHECK(strstr(sentence, says), "%s\n      says     %s\n      expected %s", file,
          sentence, says);
    CHECK(live == 0, "%s leaves %ld blocks", file, live);
}

static void refuse_all(const lie *lies)
{
    for (; lies->file; lies++) {
        ph_status status = lies->status ? lies->status : PH_BAD_FILE;
        refuse(lies->file, strlen(lies->file), lies->says, status);
    }
}

static void structure(void)
{
    static const lie lies[] = {
        {"", "'f' is empty, expected a tokenizer", 0},
        {" \n", "'f' is empty, expected a tokenizer", 0},
        {"{", "not valid JSON", 0},
        {"{}", "no object `model`", 0},
        {"{\"model\":[]}", "no object `model`", 0},
        {"{\"model\":{\"type\":\"WordLevel\",\"vocab\":{}}}",
         "WordLevel needs an unk_token", 0},
        {"{\"model\":{\"type\":\"WordLevel\",\"vocab\":{},\"unk_token\":\"u\"}}",
         "unk_token 'u' is not in the vocabulary", 0},
        {"{\"model\":{\"type\":\"WordLevel\",\"vocab\":[]}}", "an object `vocab`", 0},
        {"{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true},"
         "\"model\":{\"type\":\"Magic\",\"vocab\":{}}}",
         "the model 'Magic' is not supported", PH_UNSUPPORTED},
        {"{\"model\":{\"vocab\":{}}}", "is not supported", PH_UNSUPPORTED},
        {"{\"model\":{\"type\":\"BPE\",\"type\":\"BPE\"}}", "twice", 0},
        {"{\"a\":[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]}", "not valid JSON", 0},
        {WITH("truncation", "{\"max_length\":-1}"), "truncation.max_length", 0},
        {WITH("truncation", "7"), "truncation.max_length", 0},
        {WITH("padding", "{\"pad_id\":\"x\"}"), "padding.pad_id", 0},
        {WITH("padding", "{\"pad_id\":4194304}"), "padding.pad_id", 0},
        {0}};
    refuse_all(lies);
}

static void vocabularies(void)
{
    static const lie lies[] = {
        {BPE("", "[]", "[]"), "an object `vocab`", 0},
        {BPE("", "{\"a\":-1}", "[]"), "the id of 'a' is no whole number", 0},
        {BPE("", "{\"a\":1.5}", "[]"), "the id of 'a' is no whole number", 0},
        {BPE("", "{\"a\":\"0\"}", "[]"), "the id of 'a' is no whole number", 0},
        {BPE("", "{\"a\":4194304}", "[]"), "has id 4194304, expected at most", 0},
        {BPE("", "{\"a\":99999999999999999999999}", "[]"), "no whole number", 0},
        {BPE("", "{\"a\":3,\"b\":3}", "[]"), "two tokens have id 3", 0},
        {BPE("", VOCAB, "{}"), "an array `merges`", 0},
        {BPE("", VOCAB, "[7]"), "merge 0 is no pair", 0},
        {BPE("", VOCAB, "[\"ab\"]"), "merge 0 is no pair", 0},
        {BPE("", VOCAB, "[\"a b c\"]"), "merge 0 is no pair", 0},
        {BPE("", VOCAB, "[[\"a\",\"b\"],[\"a\"]]"), "merge 1 is no pair", 0},
        {BPE("", VOCAB, "[[\"a\",1]]"), "merge 0 is no pair", 0},
        {BPE("", VOCAB, "[\"a x\"]"), "merge 0 to 'ax' has a token", 0},
        {BPE("", VOCAB, "[\"b a\"]"), "merge 0 to 'ba' has a token", 0},
        {BPE("\"unk_token\":\"?\",", VOCAB, "[]"), "unk_token '?' is not", 0},
        {BPE("\"unk_token\":7,", VOCAB, "[]"), "unk_token is no string", 0},
        {BPE("\"dropout\":0.1,", VOCAB, "[]"), "BPE with dropout", PH_UNSUPPORTED},
        {BPE("\"end_of_word_suffix\":\"</w>\",", VOCAB, "[]"), "end_of_word_suffix",
         PH_UNSUPPORTED},
        {BPE("\"continuing_subword_prefix\":\"##\",", VOCAB, "[]"),
         "continuing_subword_prefix", PH_UNSUPPORTED},
        {BPE("\"fuse_unk\":1,", VOCAB, "[]"), "fuse_unk of 'BPE': expected true", 0},
        {BPE("\"byte_fallback\":\"\",", VOCAB, "[]"), "byte_fallback", 0},
        {BPE("\"ignore_merges\":[],", VOCAB, "[]"), "ignore_merges", 0},
        {UNIGRAM("\"unk_id\":0,", "{}"), "an array `vocab`", 0},
        {UNIGRAM("\"unk_id\":0,", "[]"), "an array `vocab`", 0},
        {UNIGRAM("", "[[\"a\",1]]"), "unk_id", 0},
        {UNIGRAM("\"unk_id\":1,", "[[\"a\",1]]"), "unk_id is not in", 0},
        {UNIGRAM("\"unk_id\":0,", "[[\"a\"]]"), "entry 0 is no [text, score]", 0},
        {UNIGRAM("\"unk_id\":0,", "[[\"a\",0],[1,0]]"), "entry 1 is no", 0},
        {UNIGRAM("\"unk_id\":0,", "[[\"a\",\"0\"]]"), "entry 0 is no", 0},
        {UNIGRAM("\"unk_id\":0,", "[[\"a\",1e999]]"), "not valid JSON", 0},
        {UNIGRAM("\"unk_id\":0,\"unknown_pieces\":{},", "[[\"a\",1]]"),
         "an array `unknown_pieces`", 0},
        {UNIGRAM("\"unk_id\":0,\"unknown_pieces\":[[\"b\",1],[2,1]],", "[[\"a\",1]]"),
         "unknown_pieces: entry 1 is no [text, score]", 0},
        {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}}}", "needs an unk_token",
         0},
        {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0},\"unk_token\":\"a\"}}",
         "continuing_subword_prefix of 'WordPiece'", 0},
        {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0},\"unk_token\":\"a\","
         "\"continuing_subword_prefix\":\"\"}}",
         "max_input_chars_per_word", 0},
        {0}};
    refuse_all(lies);
}

static void components(void)
{
    static const lie lies[] = {
        {WITH("normalizer", "7"), "normalizer: expected an object", 0},
        {WITH("normalizer", "{\"type\":\"Nmt\"}"), "the normalizer 'Nmt' is not",
         PH_UNSUPPORTED},
        {WITH("normalizer", "{}"), "the normalizer 'component'", PH_UNSUPPORTED},
        {WITH("normalizer", "{\"type\":\"Sequence\"}"), "normalizers of 'Sequence'", 0},
        {WITH("normalizer", "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"X\"}]}"),
         "the normalizer 'X'", PH_UNSUPPORTED},
        {WITH("normalizer", "{\"type\":\"BertNormalizer\"}"), "clean_text", 0},
        {WITH("normalizer", "{\"type\":\"Strip\",\"strip_left\":0}"), "strip_left", 0},
        {WITH("normalizer", "{\"type\":\"Prepend\",\"prepend\":1}"), "prepend of", 0},
        {WITH("normalizer", "{\"type\":\"Replace\",\"content\":\"\"}"), "pattern of", 0},
        {WITH("normalizer",
              "{\"type\":\"Replace\",\"content\":\"\",\"pattern\":{\"String\":\"\"}}"),
         "pattern of 'Replace': expected some text", 0},
        {WITH("normalizer",
              "{\"type\":\"Replace\",\"content\":\"\",\"pattern\":{\"Regex\":\"a+\"}}"),
         "the pattern 'a+' (Regex) is not supported", PH_UNSUPPORTED},
        {WITH("normalizer", "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"a\"}"),
         "character map", 0},
        {WITH("normalizer",
              "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"////////////\"}"),
         "character map", 0},
        {WITH("pre_tokenizer", "{\"type\":\"UnicodeScripts\"}"),
         "the pre_tokenizer 'UnicodeScripts'", PH_UNSUPPORTED},
        {WITH("pre_tokenizer", "{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"}}"),
         "behavior of 'Split'", 0},
        {WITH("pre_tokenizer", "{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},"
                               "\"behavior\":\"isolated\",\"invert\":false}"),
         "behavior of 'Split': expected Removed", 0},
        {WITH("pre_tokenizer", "{\"type\":\"Digits\"}"), "individual_digits", 0},
        {WITH("pre_tokenizer", "{\"type\":\"Metaspace\",\"replacement\":\"\"}"),
         "replacement of", 0},
        {WITH("pre_tokenizer",
              "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"x\"}"),
         "prepend_scheme of", 0},
        {WITH("pre_tokenizer", "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}"),
         "ByteLevel is supported with the model BPE only", PH_UNSUPPORTED},
        {WITH("pre_tokenizer",
              "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\","
              "\"add_prefix_space\":true},{\"type\":\"Whitespace\"}]}"),
         "behind ByteLevel", PH_UNSUPPORTED},
        {"{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true},"
         "\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"vocab\":" VOCAB
         ",\"merges\":[]}}",
         "byte_fallback behind the pre_tokenizer ByteLevel", PH_UNSUPPORTED},
        {WITH("decoder", "{\"type\":\"CTC\"}"), "the decoder 'CTC'", PH_UNSUPPORTED},
        {WITH("decoder", "{\"type\":\"WordPiece\",\"prefix\":\"##\"}"), "cleanup", 0},
        {WITH("decoder", "{\"type\":\"Strip\",\"content\":\"\",\"start\":0,\"stop\":0}"),
         "content of 'Strip'", 0},
        {WITH("decoder", "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},"
                         "{\"type\":\"ByteFallback\"}]}"),
         "behind Fuse", PH_UNSUPPORTED},
        {0}};
    refuse_all(lies);
}

#define TEMPLATE(single, pair, specials)                                                 \
    WITH("post_processor", "{\"type\":\"TemplateProcessing\",\"single\":[" single        \
                           "],\"pair\":[" pair "],\"special_tokens\":{" specials "}}")
#define PART(kind, id, type) "{\"" kind "\":{\"id\":\"" id "\",\"type_id\":" type "}}"

#define TRIM "{\"type\":\"ByteLevel\",\"trim_offsets\":true,\"add_prefix_space\":false}"

static void templates(void)
{
    static const lie lies[] = {
        {WITH("post_processor", "{\"type\":\"X\"}"), "the post_processor 'X'",
         PH_UNSUPPORTED},
        {WITH("post_processor", "{\"type\":\"TemplateProcessing\"}"),
         "`single` and `pair`", 0},
        {TEMPLATE("7", "", ""), "SpecialToken or Sequence", 0},
        {TEMPLATE(PART("Sequence", "A", "-1"), "", ""), "type_id", 0},
        {TEMPLATE(PART("Sequence", "B", "0"), "", ""), "expected a Sequence A", 0},
        {TEMPLATE(PART("SpecialToken", "x", "0"), "", ""), "no entry in special_tokens",
         0},
        {TEMPLATE(PART("SpecialToken", "x", "0"), "", "\"x\":{\"ids\":[3]}"),
         "not in the vocabulary", 0},
        {TEMPLATE(PART("SpecialToken", "x", "0"), "", "\"x\":{\"ids\":[-1]}"),
         "not in the vocabulary", 0},
        {TEMPLATE(PART("SpecialToken", "x", "0"), "", "\"x\":{\"ids\":1}"),
         "no entry in special_tokens", 0},
        {WITH("post_processor", "{\"type\":\"BertProcessing\",\"sep\":[\"a\",1]}"),
         "cls of 'BertProcessing'", 0},
        {WITH("post_processor",
              "{\"type\":\"BertProcessing\",\"sep\":[\"a\",9],\"cls\":[\"a\",1]}"),
         "sep of 'BertProcessing'", 0},
        {WITH("post_processor", "{\"type\":\"ByteLevel\"}"), "trim_offsets", 0},
        {WITH("post_processor",
              "{\"type\":\"Sequence\",\"processors\":[" TRIM "," TRIM "]}"),
         "trim_offsets behind another post_processor", PH_UNSUPPORTED},
        {WITH("post_processor",
              "{\"type\":\"Sequence\",\"processors\":[{\"type\":\"BertProcessing\","
              "\"sep\":[\"a\",1],\"cls\":[\"a\",1]}," TRIM "]}"),
         "trim_offsets behind another post_processor", PH_UNSUPPORTED},
        {WITH("added_tokens", "{}"), "added_tokens: expected an array", 0},
        {WITH("added_tokens", "[7]"), "`content`", 0},
        {WITH("added_tokens", "[{\"content\":\"x\"}]"), "id of 'x'", 0},
        {WITH("added_tokens", "[" ADDED(-1, "x") "]"), "id of 'x': expected a whole", 0},
        {WITH("added_tokens", "[{\"content\":\"x\",\"id\":9}]"), "special of 'x'", 0},
        {WITH("added_tokens", "[" ADDED(9, "a") "]"), "'a' has id 9, but 1", 0},
        {WITH("added_tokens", "[" ADDED(1, "x") "]"), "'x' has id 1, which another", 0},
        {WITH("added_tokens", "[" ADDED(9, "x") "," ADDED(9, "x") "]"), "twice", 0},
        {WITH("added_tokens", "[" ADDED(99999999, "x") "]"), "has id 99999999", 0},
        {0}};
    refuse_all(lies);
}

/* Sequences that are too long, and one that doubles a text sixty times. */
static void too_much(void)
{
    static const char twice[] =
        "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aa\"}";
    static char file[20000];
    ph_tokenizer *t = NULL;
    ph_encoder *e = NULL;
    const ph_text_token *tokens;
    size_t count;
    for (int steps = 60; steps <= 70; steps += 10) {
        int at =
            sprintf(file, "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[");
        for (int i = 0; i < steps; i++)
            at += sprintf(file + at, "%s%s", i ? "," : "", twice);
        sprintf(file + at, "]}," WORDPIECE "}");
        if (steps > 64)
            refuse(file, strlen(file), "more than 64 normalizers", PH_UNSUPPORTED);
        else
            CHECK(ph_tokenizer_parse(&t, "f", file, strlen(file), &io) == PH_OK, "%s",
                  sentence);
        if (t) CHECK(ph_encoder_create(&e, t, &io) == PH_OK, "%s", sentence);
        if (t)
            CHECK(ph_encode(e, &(ph_encode_args){.text = "a", .length = 1}, &tokens,
                            &count) == PH_UNSUPPORTED &&
                      strstr(sentence, "more than 64 bytes of each byte"),
                  "%s", sentence);
        ph_encoder_free(e);
        ph_tokenizer_free(t);
        t = NULL;
        e = NULL;
    }
}

/* ---- lists ---- */

static void words(void)
{
    static const char missing[] = "[PAD]\n[UNK]\n[CLS]\na\n";
    static const char invalid[] = "[UNK]\n[CLS]\n[SEP]\n\xff\n";
    static const char good[] = "[UNK]\n[CLS]\n[SEP]\na \n##b";
    ph_tokenizer *t;
    refuse(missing, strlen(missing), "it lacks [UNK], [CLS] or [SEP]", PH_BAD_FILE);
    refuse(invalid, strlen(invalid), "but byte 18 is none of these", PH_BAD_FILE);
    CHECK(ph_tokenizer_parse(&t, "f", good, strlen(good), &io) == PH_OK, "%s", sentence);
    CHECK(ph_tokenizer_id(t, "a", 1) == 3 && ph_tokenizer_id(t, "##b", 3) == 4, "lines");
    ph_tokenizer_free(t);
    CHECK(live == 0, "%ld blocks", live);
}

/* A tokenizer.bin of 3 marks, 256 bytes and " ", "a", " a". */
static size_t make_bin(char *out)
{
    static const char *const marks[] = {"<unk>", "\n<s>\n", "\n</s>\n"};
    static const char *const last[] = {" ", "a", " a"};
    size_t at = 4;
    memcpy(out, "\4\0\0", 4);
    for (int i = 0; i < 262; i++) {
        char name[16];
        float score = (float)-i;
        if (i >= 3 && i < 259)
            snprintf(name, sizeof name, "<0x%02X>", (unsigned)(i - 3));
        else
            strcpy(name, i < 3 ? marks[i] : last[i - 259]);
        int32_t length = (int32_t)strlen(name);
        memcpy(out + at, &score, 4);
        memcpy(out + at + 4, &length, 4);
        memcpy(out + at + 8, name, (size_t)length);
        at += 8 + (size_t)length;
    }
    return at;
}

static void binary(void)
{
    char file[8192];
    size_t size = make_bin(file);
    ph_tokenizer *t;
    ph_encoder *e;
    const ph_text_token *tokens;
    const int32_t expected[] = {1, 261, 261, 3 + 0xc3, 3 + 0xa9};
    size_t count;
    CHECK(ph_tokenizer_parse(&t, "f", file, size, &io) == PH_OK, "%s", sentence);
    CHECK(ph_encoder_create(&e, t, &io) == PH_OK, "%s", sentence);
    ph_encode(e, &(ph_encode_args){.text = "a a\xc3\xa9", .length = 5}, &tokens, &count);
    CHECK(count == 5, "%zu tokens", count);
    for (int i = 0; i < 5; i++)
        CHECK(tokens[i].id == expected[i], "token %d is %d", i, (int)tokens[i].id);
    ph_encoder_free(e);
    ph_tokenizer_free(t);
    refuse(file, size - 1, "token 261 does not fit", PH_BAD_FILE);
    refuse(file, 4, "has 0 tokens", PH_BAD_FILE);
    refuse(file, 4 + 13, "has 1 tokens", PH_BAD_FILE);
    memcpy(file + 8, "\377\377\377\377", 4);
    refuse(file, size, "token 0 does not fit", PH_BAD_FILE);
    memcpy(file + 8, "\377\377\377\177", 4);
    refuse(file, size, "token 0 does not fit", PH_BAD_FILE);
    make_bin(file);
    memcpy(file + 4, "\0\0\300\177", 4);
    refuse(file, size, "the score of token 0 is NaN", PH_BAD_FILE);
    make_bin(file);
    file[12] = '\377';
    refuse(file, size, "token 0 is not valid UTF-8", PH_BAD_FILE);
}

#define CHARS(text)                                                                      \
    {                                                                                    \
        text, sizeof text - 1                                                            \
    }

static void refuse_gguf(ph_gguf_tokens tokens, const char *says, ph_status status)
{
    ph_tokenizer *t = (ph_tokenizer *)sentence;
    sentence[0] = 0;
    ph_status found = ph_tokenizer_of_gguf(&t, &tokens, &io);
    CHECK(found == status && !t && strstr(sentence, says), "%d %s, expected %s",
          (int)found, sentence, says);
    CHECK(live == 0, "%ld blocks are left", live);
}

static void gguf(void)
{
    static const ph_chars list[] = {CHARS("<unk>"), CHARS("<s>"), CHARS("a"),
                                    CHARS("b"),     CHARS("ab"),  CHARS("\xc4\xa0")};
    static const ph_chars merges[] = {CHARS("a b")}, none[] = {CHARS("ab")},
                          unknown[] = {CHARS("a x")}, invalid[] = {CHARS("\xff")};
    static const float scores[] = {0, 0, -1, -2, -3, -4};
    static const int32_t types[] = {2, 3, 1, 1, 1, 1};
    static const unsigned char map[] = {9, 9, 9, 9, 9, 9, 9, 9};
    ph_gguf_tokens good = {.model = "gpt2",
                           .tokens = list,
                           .count = 6,
                           .types = types,
                           .merges = merges,
                           .merge_count = 1,
                           .bos = -1,
                           .eos = -1,
                           .unknown = -1,
                           .separator = -1,
                           .padding = -1,
                           .add_bos = -1,
                           .add_eos = -1,
                           .add_space_prefix = -1,
                           .remove_extra_whitespaces = -1},
                   bad = good;
    ph_tokenizer *t;
    left = -1;
    CHECK(ph_tokenizer_of_gguf(&t, &good, &io) == PH_OK, "%s", sentence);
    ph_tokenizer_free(t);
    bad.pre = "deepseek-r1-qwen"; /* DeepSeek-R1-Distill-Qwen, split as Qwen 2 is */
    CHECK(ph_tokenizer_of_gguf(&t, &bad, &io) == PH_OK, "%s", sentence);
    ph_tokenizer_free(t);
    bad.pre = "default";
    CHECK(ph_tokenizer_of_gguf(&t, &bad, &io) == PH_OK, "%s", sentence);
    ph_tokenizer_free(t);
    bad.model = "rwkv";
    refuse_gguf(bad, "is 'rwkv', expected llama", PH_UNSUPPORTED);
    bad.model = NULL;
    refuse_gguf(bad, "expected llama, gpt2", PH_UNSUPPORTED);
    bad = good, bad.pre = "falcon";
    refuse_gguf(bad, "splits by 'falcon'", PH_UNSUPPORTED);
    bad = good, bad.count = 0;
    refuse_gguf(bad, "it has no tokens", PH_BAD_FILE);
    bad = good, bad.tokens = invalid, bad.count = 1, bad.types = NULL;
    refuse_gguf(bad, "token 0 is not valid UTF-8", PH_BAD_FILE);
    bad = good, bad.merges = NULL;
    refuse_gguf(bad, "gpt2 has no merges", PH_BAD_FILE);
    bad = good, bad.merges = none;
    refuse_gguf(bad, "a merge is no pair", PH_BAD_FILE);
    bad = good, bad.merges = unknown;
    refuse_gguf(bad, "merge 0 to 'ax' has a token", PH_BAD_FILE);
    bad = good, bad.add_bos = 1;
    refuse_gguf(bad, "bos_token_id is -1", PH_BAD_FILE);
    bad = good, bad.add_eos = 1, bad.eos = 6;
    refuse_gguf(bad, "is 6, expected the id of a token", PH_BAD_FILE);
    bad = good, bad.model = "llama";
    refuse_gguf(bad, "llama has no scores", PH_BAD_FILE);
    bad.scores = scores, bad.unknown = 77;
    refuse_gguf(bad, "unknown_token_id is 77", PH_BAD_FILE);
    bad.model = "t5";
    refuse_gguf(bad, "unknown_token_id is 77", PH_BAD_FILE);
    bad.unknown = 0, bad.charsmap = map, bad.charsmap_size = sizeof map;
    refuse_gguf(bad, "no character map", PH_BAD_FILE);
    bad.model = "bert";
    refuse_gguf(bad, "the id of [CLS] is -1", PH_BAD_FILE);
}

/* ---- memory ---- */

/* Each allocation fails in turn: always an error, never a leak. */
static void out_of_memory(void)
{
    static const char file[] = "{\"added_tokens\":[" ADDED(
        9, "<s>") "],\"normalizer\":{\"type\":\"NFC\"},"
                  "\"pre_tokenizer\":{\"type\":\"Whitespace\"}," WORDPIECE "}";
    static const char text[] = "a\xcc\x81 ab<s>b";
    for (int n = 0;; n++) {
        ph_tokenizer *t = NULL;
        ph_encoder *e = NULL;
        ph_detokenizer *d = NULL;
        const ph_text_token *tokens;
        const char *shown;
        size_t count, length;
        left = n;
        sentence[0] = 0;
        ph_status status = ph_tokenizer_parse(&t, "f", file, strlen(file), &io);
        if (status == PH_OK) status = ph_encoder_create(&e, t, &io);
        if (status == PH_OK)
            status = ph_encode(e, &(ph_encode_args){.text = text, .length = strlen(text)},
                               &tokens, &count);
        if (status == PH_OK) status = ph_detokenizer_create(&d, t, 0, &io);
        if (status == PH_OK) status = ph_detokenize(d, 2, &shown, &length);
        ph_detokenizer_free(d);
        ph_encoder_free(e);
        ph_tokenizer_free(t);
        CHECK(live == 0, "allocation %d fails: %ld blocks are left", n, live);
        if (status == PH_OK) break;
        CHECK(status == PH_OUT_OF_MEMORY && strstr(sentence, "memory"),
              "allocation %d fails: %d %s", n, (int)status, sentence);
        CHECK(n < 1000, "never enough");
    }
}

static const check_case cases[] = {{"structure", structure},
                                   {"vocabularies", vocabularies},
                                   {"components", components},
                                   {"templates", templates},
                                   {"too_much", too_much},
                                   {"words", words},
                                   {"binary", binary},
                                   {"gguf", gguf},
                                   {"out_of_memory", out_of_memory},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
