/*
 * test_tokens.c - tokenizers against what the reference said: 2200 hard strings through
 * 19 tokenizers of every kind (tests/golden_tokens), and what must hold for any text.
 */
#include "check.h"
#include "polyhead_text.h"

static const char folder[] = "tests/golden_tokens/";
static char sentence[500];
static const ph_io io = {.error = sentence, .error_size = sizeof sentence};

typedef struct bytes {
    char *data;
    size_t size;
} bytes;

static bytes read_whole(const char *name)
{
    char path[300];
    bytes b = {0};
    snprintf(path, sizeof path, "%s%s", folder, name);
    FILE *file = fopen(path, "rb");
    CHECK(file, "%s cannot be opened", path);
    fseek(file, 0, SEEK_END);
    b.size = (size_t)ftell(file);
    rewind(file);
    b.data = malloc(b.size + 1);
    CHECK(fread(b.data, 1, b.size, file) == b.size, "%s cannot be read", path);
    fclose(file);
    return b;
}

typedef struct bed {
    ph_tokenizer *t;
    ph_encoder *e;
    ph_detokenizer *d, *bare;
} bed;

static bed open_bed(const char *name)
{
    char path[300];
    bed b;
    snprintf(path, sizeof path, "%s%s.json", folder, name);
    CHECK(ph_tokenizer_read(&b.t, path, &io) == PH_OK, "%s: %s", path, sentence);
    CHECK(ph_encoder_create(&b.e, b.t, &io) == PH_OK, "%s", sentence);
    CHECK(ph_detokenizer_create(&b.d, b.t, 0, &io) == PH_OK, "%s", sentence);
    CHECK(ph_detokenizer_create(&b.bare, b.t, 1, &io) == PH_OK, "%s", sentence);
    return b;
}

static void close_bed(bed *b)
{
    ph_detokenizer_free(b->bare);
    ph_detokenizer_free(b->d);
    ph_encoder_free(b->e);
    ph_tokenizer_free(b->t);
}

/* ---- the hash of tests/golden_tokens/make.py ---- */

static uint64_t fnv(uint64_t hash, const void *data, size_t size)
{
    const unsigned char *b = data;
    for (size_t i = 0; i < size; i++) hash = (hash ^ b[i]) * 0x100000001b3u;
    return hash;
}

static uint64_t hash_tokens(uint64_t hash, const ph_text_token *tokens, size_t count)
{
    uint32_t n = (uint32_t)count;
    hash = fnv(hash, &n, 4);
    for (size_t i = 0; i < count; i++) {
        int32_t row[] = {tokens[i].id, tokens[i].type, (int32_t)tokens[i].start,
                         (int32_t)tokens[i].end};
        hash = fnv(hash, row, sizeof row);
    }
    return hash;
}

static uint64_t hash_encoded(uint64_t hash, bed *b, const ph_encode_args *args)
{
    const ph_text_token *tokens;
    size_t count;
    CHECK(ph_encode(b->e, args, &tokens, &count) == PH_OK, "%s", sentence);
    return hash_tokens(hash, tokens, count);
}

static uint64_t hash_decoded(uint64_t hash, ph_detokenizer *d, bed *b,
                             const ph_encode_args *args)
{
    const ph_text_token *tokens;
    const char *text;
    size_t count, length;
    ph_encode(b->e, args, &tokens, &count);
    for (size_t i = 0; i < count; i++) {
        CHECK(ph_detokenize(d, tokens[i].id, &text, &length) == PH_OK, "%s", sentence);
        hash = fnv(hash, text, length);
    }
    CHECK(ph_detokenize_end(d, &text, &length) == PH_OK, "%s", sentence);
    return fnv(hash, text, length);
}

static uint64_t hash_string(bed *b, ph_chars text, ph_chars other, int pair)
{
    ph_encode_args args = {.text = text.text, .length = text.length};
    uint64_t hash = hash_encoded(0xcbf29ce484222325u, b, &args);
    args.bare = 1;
    hash = hash_encoded(hash, b, &args);
    args.bare = 0;
    hash = hash_decoded(hash, b->d, b, &args);
    hash = hash_decoded(hash, b->bare, b, &args);
    if (!pair) return hash;
    args.pair = other.text;
    args.pair_length = other.length;
    args.max_tokens = 24;
    return hash_encoded(hash, b, &args);
}

/* ---- strings ---- */

enum { STRINGS = 2200 };
static bytes string_file;

static void find_strings(ph_chars *strings)
{
    if (!string_file.data) string_file = read_whole("strings.bin");
    size_t at = 0;
    for (int i = 0; i < STRINGS; i++) {
        uint32_t length;
        CHECK(at + 4 <= string_file.size, "strings.bin ends at string %d", i);
        memcpy(&length, string_file.data + at, 4);
        strings[i] = (ph_chars){string_file.data + at + 4, length};
        at += 4 + length;
    }
    CHECK(at == string_file.size, "strings.bin has more than %d strings", STRINGS);
}

static void print_tokens(bed *b, ph_chars text)
{
    const ph_text_token *tokens;
    size_t count;
    ph_encode(b->e, &(ph_encode_args){.text = text.text, .length = text.length}, &tokens,
              &count);
    for (size_t i = 0; i < count && i < 100; i++)
        printf(" %d[%zu,%zu)", (int)tokens[i].id, tokens[i].start, tokens[i].end);
    printf("\n");
}

static void replay(const char *name)
{
    static ph_chars strings[STRINGS];
    char path[100];
    uint64_t expected;
    int wrong = 0;
    snprintf(path, sizeof path, "%s.gold", name);
    bytes gold = read_whole(path);
    bed b = open_bed(name);
    find_strings(strings);
    CHECK(gold.size == 8 * STRINGS, "%s has %zu bytes", path, gold.size);
    for (int i = 0; i < STRINGS; i++) {
        memcpy(&expected, gold.data + 8 * i, 8);
        if (hash_string(&b, strings[i], strings[(i + 1) % STRINGS], i % 8 == 0) ==
            expected)
            continue;
        if (wrong++ < 3) {
            printf("    %s, string %d:", name, i);
            print_tokens(&b, strings[i]);
        }
    }
    close_bed(&b);
    free(gold.data);
    CHECK(wrong == 0, "%s: %d of %d strings differ from the reference", name, wrong,
          STRINGS);
}

#define GOLDEN(name)                                                                     \
    static void golden_##name(void)                                                      \
    {                                                                                    \
        replay(#name);                                                                   \
    }
GOLDEN(bert_uncased)
GOLDEN(bert_cased)
GOLDEN(mixed)
GOLDEN(words)
GOLDEN(gpt2)
GOLDEN(roberta)
GOLDEN(smollm)
GOLDEN(llama3)
GOLDEN(qwen2)
GOLDEN(qwen35)
GOLDEN(o200k)
GOLDEN(tekken)
GOLDEN(llama2)
GOLDEN(llama2_new)
GOLDEN(gemma)
GOLDEN(t5)
GOLDEN(t5_new)
GOLDEN(albert)
GOLDEN(gaps)
GOLDEN(gaps_unknown)

/* ---- what holds for any text ---- */

/* A byte-level vocabulary loses nothing: what is decoded is the text, and its offsets
   cover the text without cutting a character. */
static void round_trip(void)
{
    static ph_chars strings[STRINGS];
    bed b = open_bed("llama3");
    find_strings(strings);
    for (int i = 0; i < STRINGS; i++) {
        ph_encode_args args = {strings[i].text, strings[i].length, .bare = 1,
                               .special_as_text = 1};
        uint64_t hash = hash_decoded(1, b.d, &b, &args);
        CHECK(hash == fnv(1, strings[i].text, strings[i].length),
              "string %d does not come back", i);
        const ph_text_token *tokens;
        size_t count, at = 0;
        ph_encode(b.e, &args, &tokens, &count);
        for (size_t k = 0; k < count; k++) {
            CHECK(tokens[k].start <= at && tokens[k].end > tokens[k].start &&
                      !tokens[k].special,
                  "string %d: token %zu at [%zu, %zu) behind %zu", i, k, tokens[k].start,
                  tokens[k].end, at);
            CHECK((strings[i].text[tokens[k].start] & 0xc0) != 0x80,
                  "string %d: token %zu cuts a character", i, k);
            at = tokens[k].end;
        }
        CHECK(at == strings[i].length, "string %d is not covered", i);
    }
    close_bed(&b);
}

static void special_as_text(void)
{
    const char text[] = "a<|endoftext|> b";
    bed b = open_bed("gpt2");
    ph_encode_args args = {.text = text, .length = strlen(text)};
    const ph_text_token *tokens;
    size_t count, special = 0;
    int32_t id = ph_tokenizer_id(b.t, "<|endoftext|>", 13);
    ph_encode(b.e, &args, &tokens, &count);
    for (size_t i = 0; i < count; i++) special += tokens[i].special && tokens[i].id == id;
    CHECK(special == 1, "%zu special tokens, expected 1", special);
    args.special_as_text = 1;
    ph_encode(b.e, &args, &tokens, &count);
    for (size_t i = 0; i < count; i++)
        CHECK(tokens[i].id != id && !tokens[i].special, "the text forged token %d", id);
    close_bed(&b);
}

/* Long runs: merging must not be quadratic, and equals merging of the same words. */
static void long_runs(void)
{
    enum { LENGTH = 100000 };
    char *text = malloc(LENGTH);
    const ph_text_token *tokens;
    size_t count;
    bed b = open_bed("llama2");
    for (int kind = 0; kind < 2; kind++) {
        memset(text, kind ? ' ' : 'a', LENGTH);
        CHECK(ph_encode(b.e, &(ph_encode_args){.text = text, .length = LENGTH}, &tokens,
                        &count) == PH_OK,
              "%s", sentence);
        CHECK(count > 100 && tokens[count - 1].end == LENGTH, "%zu tokens", count);
    }
    close_bed(&b);
    free(text);
}

/* A long text behind a short one in the same encoder, with added tokens in both. */
static void long_after_short(void)
{
    enum { TIMES = 20000 };
    static const char part[] = "the of and ";
    char *text = malloc(TIMES * (sizeof part - 1));
    bed b = open_bed("albert");
    const ph_text_token *tokens;
    size_t count, found = 0;
    int32_t id = ph_tokenizer_id(b.t, "NORM", 4);
    for (int i = 0; i < TIMES; i++)
        memcpy(text + (size_t)i * (sizeof part - 1), part, sizeof part - 1);
    memcpy(text, "norm", 4);
    for (int round = 0; round < 2; round++) {
        size_t length = (round ? TIMES : 1) * (sizeof part - 1);
        CHECK(ph_encode(b.e, &(ph_encode_args){.text = text, .length = length}, &tokens,
                        &count) == PH_OK,
              "%s", sentence);
    }
    for (size_t i = 0; i < count; i++) found += tokens[i].id == id;
    CHECK(found == 1 && count > TIMES, "%zu added tokens of %zu", found, count);
    close_bed(&b);
    free(text);
}

static void invalid_text(void)
{
    static const char *const texts[] = {"ab\xc3", "\xf0\x9f", "x\xed\xa0\x80", "\xff"};
    static const int places[] = {2, 0, 1, 0};
    bed b = open_bed("bert_uncased");
    for (int i = 0; i < 4; i++) {
        const ph_text_token *tokens = NULL;
        size_t count = 7;
        char expected[100];
        ph_encode_args args = {.text = texts[i], .length = strlen(texts[i])};
        snprintf(expected, sizeof expected, "the text is not valid UTF-8 at byte %d",
                 places[i]);
        CHECK(ph_encode(b.e, &args, &tokens, &count) == PH_BAD_VALUE, "taken: %d", i);
        CHECK(!strcmp(sentence, expected) && count == 7, "%s", sentence);
    }
    close_bed(&b);
}

static void truncated(void)
{
    const char text[] = "the of and to in a is that for it";
    bed b = open_bed("bert_uncased");
    ph_encode_args args = {.text = text, .length = strlen(text), .max_tokens = 6};
    const ph_text_token *tokens;
    size_t count;
    ph_encode(b.e, &args, &tokens, &count);
    CHECK(count == 6 && tokens[0].sequence == -1 && tokens[5].sequence == -1 &&
              tokens[1].start == 0,
          "%zu tokens", count);
    args.truncate_left = 1;
    ph_encode(b.e, &args, &tokens, &count);
    CHECK(count == 6 && tokens[4].end == strlen(text), "not cut at the left");
    args.max_tokens = 1;
    CHECK(ph_encode(b.e, &args, &tokens, &count) == PH_BAD_ARGUMENT &&
              strstr(sentence, "max_tokens is 1"),
          "%s", sentence);
    close_bed(&b);
}

/* One emoji as four byte tokens: nothing is shown before the last. */
static void stream(void)
{
    const char text[] = "\xf0\x9f\x99\x83";
    bed b = open_bed("gpt2");
    const ph_text_token *tokens;
    const char *shown;
    size_t count, length;
    ph_encode(b.e, &(ph_encode_args){.text = text, .length = 4, .bare = 1}, &tokens,
              &count);
    CHECK(count > 1, "one token");
    for (size_t i = 0; i < count; i++) {
        ph_detokenize(b.d, tokens[i].id, &shown, &length);
        CHECK(length == (i + 1 < count ? 0 : 4), "%zu bytes after token %zu", length, i);
    }
    CHECK(!memcmp(shown, text, 4), "another text");
    ph_detokenize(b.d, tokens[0].id, &shown, &length);
    ph_detokenize_end(b.d, &shown, &length);
    CHECK(length == 3 && !memcmp(shown, "\xef\xbf\xbd", 3), "%zu bytes at the end",
          length);
    close_bed(&b);
}

static void about(void)
{
    bed b = open_bed("bert_uncased");
    ph_tokenizer_info info = ph_tokenizer_about(b.t);
    size_t length = 0;
    CHECK(!strcmp(info.model, "WordPiece") && info.vocab_size == 900, "%s %zu",
          info.model, info.vocab_size);
    CHECK(info.unknown == 1 && info.added_tokens == 2 && info.padding == -1, "%d %zu %d",
          (int)info.unknown, info.added_tokens, (int)info.padding);
    CHECK(ph_tokenizer_id(b.t, "[CLS]", 5) == 2 && ph_tokenizer_is_special(b.t, 2) &&
              ph_tokenizer_id(b.t, "[CLS", 4) == -1,
          "[CLS]");
    CHECK(!strcmp(ph_tokenizer_token(b.t, 2, &length), "[CLS]") && length == 5,
          "token 2");
    CHECK(!ph_tokenizer_token(b.t, 900, NULL) && !ph_tokenizer_token(b.t, -1, NULL),
          "tokens that do not exist");
    close_bed(&b);
}

/* ---- settings of other people's files ---- */

#define WORDPIECE                                                                        \
    "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\","                         \
    "\"continuing_subword_prefix\":\"##\",\"max_input_chars_per_word\":100,"             \
    "\"vocab\":{\"[UNK]\":0,\"a\":1,\"##b\":2,\"ab\":3}}"
#define ADDED(id, text, alone, normal)                                                   \
    "\"added_tokens\":[{\"id\":" #id ",\"content\":\"" text "\",\"single_word\":" alone  \
    ",\"lstrip\":false,\"rstrip\":false,\"normalized\":" normal ",\"special\":false}]"

/* What tests/golden_tokens/fuzz.py --settings found, with what the reference says: an
   added token is none of the model's symbols; an unknown piece of Unigram keeps its
   blanks; \w of a Regex is another than that of Whitespace; a text that begins with
   nothing but an added token. And numbers alone, in threes or one by one, as DeepSeek's
   first step has them. */
#define NUMBERS(regex)                                                                   \
    "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex "\"},"      \
    "\"behavior\":\"Isolated\",\"invert\":false}," WORDPIECE "}"
static const struct {
    const char *file, *text, *tokens;
} settings[] = {
    {"{" ADDED(2, "\xc3\xa9", "true",
               "false") ",\"model\":{\"type\":\"BPE\",\"unk_token\":"
                        "\"<unk>\",\"fuse_unk\":true,"
                        "\"vocab\":{\"<unk>\":0,\"t\":1},\"merges\":[]}}",
     "t\xc3\xa9 \xc3\xa9", "1:0-1 0:1-4 2:4-6 "},
    {"{\"post_processor\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,"
     "\"trim_offsets\":true},\"model\":{\"type\":\"Unigram\",\"unk_id\":0,"
     "\"vocab\":[[\"<unk>\",0.0],[\"a\",-1.0]]}}",
     "a\n\n a", "1:0-1 0:4-4 1:4-5 "},
    {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":"
     "\"\\\\w+|[^\\\\w\\\\s]+\"},\"behavior\":\"Removed\",\"invert\":true}," WORDPIECE
     "}",
     "a\xc2\xb2"
     "b a\xe2\x80\x8d"
     "a",
     "0:0-4 1:5-6 0:6-9 1:9-10 "},
    {"{\"pre_tokenizer\":{\"type\":\"Whitespace\"}," WORDPIECE "}",
     "a\xc2\xb2"
     "b a\xe2\x80\x8d"
     "a",
     "1:0-1 0:1-3 0:3-4 0:5-10 "},
    {"{\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"}," ADDED(4, "N", "false",
                                                                "true") "," WORDPIECE "}",
     "  N a", "4:2-3 1:4-5 "},
    {NUMBERS("\\\\p{N}{1,3}"), "a12345\xd9\xa3" "a", "1:0-1 0:1-4 0:4-8 1:8-9 "},
    {NUMBERS("\\\\p{N}"), "a12\xc2\xbd", "1:0-1 0:1-2 0:2-3 0:3-5 "}};

static void others_settings(void)
{
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        const char *file = settings[i].file, *text = settings[i].text;
        const ph_text_token *tokens;
        char found[200] = "";
        size_t count = 0, used = 0;
        bed b = {0};
        CHECK(ph_tokenizer_parse(&b.t, "file", file, strlen(file), &io) == PH_OK, "%s",
              sentence);
        CHECK(ph_encoder_create(&b.e, b.t, &io) == PH_OK, "%s", sentence);
        ph_encode_args args = {.text = text, .length = strlen(text)};
        CHECK(ph_encode(b.e, &args, &tokens, &count) == PH_OK, "%s", sentence);
        for (size_t k = 0; k < count && used < sizeof found; k++)
            used += (size_t)snprintf(found + used, sizeof found - used, "%d:%zu-%zu ",
                                     (int)tokens[k].id, tokens[k].start, tokens[k].end);
        CHECK(!strcmp(found, settings[i].tokens), "%s gives %s", file, found);
        close_bed(&b);
    }
}

#define CASE(name)                                                                       \
    {                                                                                    \
        "golden_" #name, golden_##name                                                   \
    }
static const check_case cases[] = {CASE(bert_uncased),
                                   CASE(bert_cased),
                                   CASE(mixed),
                                   CASE(words),
                                   CASE(gpt2),
                                   CASE(roberta),
                                   CASE(smollm),
                                   CASE(llama3),
                                   CASE(qwen2),
                                   CASE(qwen35),
                                   CASE(o200k),
                                   CASE(tekken),
                                   CASE(llama2),
                                   CASE(llama2_new),
                                   CASE(gemma),
                                   CASE(t5),
                                   CASE(t5_new),
                                   CASE(albert),
                                   CASE(gaps),
                                   CASE(gaps_unknown),
                                   {"round_trip", round_trip},
                                   {"special_as_text", special_as_text},
                                   {"long_runs", long_runs},
                                   {"long_after_short", long_after_short},
                                   {"invalid_text", invalid_text},
                                   {"truncated", truncated},
                                   {"stream", stream},
                                   {"about", about},
                                   {"others_settings", others_settings},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
