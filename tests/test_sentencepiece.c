/*
 * test_sentencepiece.c - source.spm and vocab.json of a Marian model as a tokenizer: ids
 * of texts, and files that are cut off or lie.
 */
#define _GNU_SOURCE
#include <unistd.h>

#include "check.h"
#include "model/model_text.h"
#include "text/sentencepiece.h"

#define FOLDER "tests/golden/checkpoints/marian/"

static char pieces[8192], vocab[8192];
static size_t pieces_size, vocab_size;

static size_t load(const char *path, char *to, size_t capacity)
{
    FILE *file = fopen(path, "rb");
    CHECK(file, "cannot read %s", path);
    size_t size = fread(to, 1, capacity - 1, file);
    to[size] = 0;
    fclose(file);
    return size;
}

static void load_both(void)
{
    pieces_size = load(FOLDER "source.spm", pieces, sizeof pieces);
    vocab_size = load(FOLDER "vocab.json", vocab, sizeof vocab);
}

static ph_status convert(size_t size, char *error, size_t error_size)
{
    ph_io io = {.error = error, .error_size = error_size};
    char copy[sizeof vocab], *json;
    size_t length;
    unsigned char *exact = malloc(size ? size : 1); /* a byte behind it is a fault */
    memcpy(copy, vocab, sizeof copy);
    memcpy(exact, pieces, size);
    ph_spm_files files = {"pieces", "vocab", exact, size, copy, strlen(copy)};
    ph_status status = ph_spm_to_json(&files, &json, &length, &io);
    CHECK(status == PH_OK ? json && strlen(json) == length : !json, "a wrong result");
    ph_io_release(&io, json);
    free(exact);
    return status;
}

typedef struct known_ids {
    const char *text;
    int count;
    int32_t ids[12];
} known_ids;

static void compare_ids(const ph_tokenizer *t, const known_ids *texts, size_t text_count)
{
    char error[512] = "";
    ph_io io = {.error = error, .error_size = sizeof error};
    ph_encoder *encoder;
    CHECK(ph_encoder_create(&encoder, t, &io) == PH_OK, "%s", error);
    for (size_t i = 0; i < text_count; i++) {
        const ph_text_token *found;
        size_t count;
        ph_encode_args args = {.text = texts[i].text, .length = strlen(texts[i].text)};
        CHECK(ph_encode(encoder, &args, &found, &count) == PH_OK, "%s", error);
        CHECK(count == (size_t)texts[i].count, "'%s': %zu tokens", texts[i].text, count);
        for (size_t k = 0; k < count; k++)
            CHECK(found[k].id == texts[i].ids[k], "'%s': token %zu is %d", texts[i].text,
                  k, found[k].id);
    }
    ph_encoder_free(encoder);
}

/* Whole words, characters, blanks in a row, a ligature by the map of characters, what
   only the target has, a piece without an id, a language, an end mark: ids of
   MarianTokenizer (transformers 5.22, sentencepiece 0.2.2). */
static void ids(void)
{
    static const known_ids texts[] = {
        {"the cat", 3, {3, 4, 0}},
        {"  the \t cat ", 3, {3, 4, 0}},
        {"ab", 3, {2, 35, 0}},
        {"cab", 4, {2, 11, 35, 0}},
        {"\xef\xac\x81", 4, {2, 14, 17, 0}},
        {"Katze sat", 8, {2, 1, 9, 28, 39, 13, 5, 0}},
        {"target0 mat", 10, {2, 28, 9, 26, 15, 13, 28, 1, 8, 0}},
        {"xyz", 3, {2, 1, 0}},
        {"\xc3\x84", 3, {2, 1, 0}},
        {"\xc3\x9f", 3, {2, 38, 0}},
        {">>deu<< the mat", 4, {36, 3, 8, 0}}};
    char error[512] = "";
    ph_io io = {.error = error, .error_size = sizeof error};
    ph_tokenizer *t;
    CHECK(ph_tokenizer_open(&t, FOLDER, &io) == PH_OK, "%s", error);
    compare_ids(t, texts, sizeof texts / sizeof texts[0]);
    ph_tokenizer_free(t);
}

/* What a decoder reads is cut by target.spm: the same reference, text_target. A file of
   ours keeps both tokenizers. */
static void targets(void)
{
    static const known_ids texts[] = {{"the cat", 9, {2, 28, 16, 13, 2, 11, 9, 28, 0}},
                                      {"Katze sat", 6, {37, 2, 27, 9, 28, 0}},
                                      {"a\xc3\x9f", 4, {2, 9, 38, 0}},
                                      {"cab", 5, {2, 11, 9, 10, 0}},
                                      {"target0 mat", 6, {40, 2, 21, 9, 28, 0}},
                                      {"xyz", 5, {2, 32, 33, 39, 0}}};
    char path[] = "/tmp/polyhead-targets-XXXXXX";
    ph_ctx *ctx;
    ph_model *m;
    int file = mkstemp(path), count = 0;
    int32_t *tokens;
    CHECK(file >= 0 && close(file) == 0, "no temporary file");
    CHECK(ph_open(&ctx, NULL) == PH_OK, "no ctx");
    CHECK(ph_model_read(&m, ctx, FOLDER) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_model_own(m) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_model_write(m, path) == PH_OK, "%s", ph_error(ctx));
    for (int again = 0; again < 2; again++) {
        compare_ids(m->target_tokenizer, texts, sizeof texts / sizeof texts[0]);
        CHECK(ph_tokens_take_target(m, "Katze sat", 3, &tokens, &count) == PH_OK, "%s",
              ph_error(ctx));
        CHECK(count == 3 && tokens[0] == 37 && tokens[2] == 0, "%d tokens", count);
        ph_ctx_release(ctx, tokens);
        ph_model_free(m);
        if (!again) CHECK(ph_model_read(&m, ctx, path) == PH_OK, "%s", ph_error(ctx));
    }
    ph_close(ctx);
    remove(path);
}

/* Cut off anywhere: refused, unless it is cut between two fields. */
static void cut_off(void)
{
    char error[512];
    int refused = 0;
    load_both();
    CHECK(convert(pieces_size, error, sizeof error) == PH_OK, "%s", error);
    for (size_t size = 0; size < pieces_size; size++)
        refused += convert(size, error, sizeof error) != PH_OK;
    CHECK(refused > (int)pieces_size - 60, "%d of %zu lengths are refused", refused,
          pieces_size);
}

/* Any byte changed: no fault, whatever becomes of it. */
static void changed_bytes(void)
{
    char error[512];
    uint64_t random = check_seed;
    int refused = 0;
    load_both();
    for (int i = 0; i < 3000; i++) {
        size_t at = check_random(&random) % pieces_size;
        char old = pieces[at];
        pieces[at] = (char)check_random(&random);
        refused += convert(pieces_size, error, sizeof error) != PH_OK;
        pieces[at] = old;
    }
    CHECK(refused > 0, "none is refused");
}

static void lies(void)
{
    static const struct {
        const char *from, *to, *sentence;
    } list[] = {{"the\": 3", "the\": 97", "no number below 97"},
                {"the\": 3", "the\": 4", "no number below 97 of its own"},
                {"the\": 3", "the\": \"3\"", "no number below 97"},
                {"the\": 3", "the\": -3", "no number below 97"},
                {"\"</s>\"", "\"</t>\"", "expected tokens </s> and <unk>"},
                {"\"<unk>\"", "\"<unknown>\"", "expected tokens </s> and <unk>"},
                {"{", "[", "vocab"}};
    char error[512];
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        char rest[sizeof vocab];
        load_both();
        char *at = strstr(vocab, list[i].from);
        CHECK(at, "no %s", list[i].from);
        strcpy(rest, at + strlen(list[i].from));
        sprintf(at, "%s%s", list[i].to, rest);
        CHECK(convert(pieces_size, error, sizeof error) != PH_OK, "%s is accepted",
              list[i].to);
        CHECK(strstr(error, list[i].sentence), "%s: %s", list[i].to, error);
    }
    load_both();
    char *kind = memmem(pieces, pieces_size, "\x12\x02\x18\x01", 4);
    CHECK(kind, "no trainer");
    kind[3] = 2;
    CHECK(convert(pieces_size, error, sizeof error) == PH_BAD_FILE &&
              strstr(error, "expected a Unigram model"),
          "%s", error);
}

static const check_case cases[] = {{"ids", ids},         {"targets", targets},
                                   {"cut_off", cut_off}, {"changed_bytes", changed_bytes},
                                   {"lies", lies},       {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
