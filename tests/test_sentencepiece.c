/*
 * test_sentencepiece.c - source.spm and vocab.json of a Marian model as a tokenizer: ids
 * of texts, and files that are cut off or lie.
 */
#define _GNU_SOURCE
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

/* Whole words, characters, blanks in a row, a ligature by the map of characters, what
   only the target has, a piece without an id, a language, an end mark. */
static void ids(void)
{
    static const struct {
        const char *text;
        int count;
        int32_t ids[12];
    } texts[] = {{"the cat", 3, {3, 4, 0}},
                 {"  the \t cat ", 3, {3, 4, 0}},
                 {"ab", 3, {2, 35, 0}},
                 {"cab", 4, {2, 11, 35, 0}},
                 {"\xef\xac\x81", 4, {2, 14, 17, 0}},
                 {"Katze", 2, {37, 0}},
                 {"xyz", 5, {2, 32, 33, 39, 0}},
                 {"\xc3\x84", 3, {2, 1, 0}},
                 {"\xc3\x9f", 3, {2, 38, 0}},
                 {">>deu<< the mat", 4, {36, 3, 8, 0}}};
    char error[512] = "";
    ph_io io = {.error = error, .error_size = sizeof error};
    ph_tokenizer *t;
    ph_encoder *encoder;
    CHECK(ph_tokenizer_open(&t, FOLDER, &io) == PH_OK, "%s", error);
    CHECK(ph_encoder_create(&encoder, t, &io) == PH_OK, "%s", error);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
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
    ph_tokenizer_free(t);
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

static const check_case cases[] = {{"ids", ids},
                                   {"cut_off", cut_off},
                                   {"changed_bytes", changed_bytes},
                                   {"lies", lies},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
