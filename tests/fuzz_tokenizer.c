/*
 * fuzz_tokenizer.c - any bytes as a file of a tokenizer, any text through it.
 *
 * Input: the file, then, behind a byte 0xff, the text; without one a few usual texts.
 *
 * A file that is refused gets a sentence. One that is taken must encode any text: ids are
 * in the vocabulary, offsets inside the text and on characters, and what is decoded is
 * UTF-8.
 */
#define _GNU_SOURCE /* memrchr */
#include <string.h>

#include "fuzz.h"
#include "io/utf8.h"
#include "polyhead_text.h"

static char sentence[300];
static const ph_io io = {.error = sentence, .error_size = sizeof sentence};

static void check_tokens(const ph_tokenizer *t, const ph_encode_args *args,
                         const ph_text_token *tokens, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const ph_text_token *k = &tokens[i];
        const char *text = k->sequence == 1 ? args->pair : args->text;
        size_t length = k->sequence == 1 ? args->pair_length : args->length;
        REQUIRE(ph_tokenizer_token(t, k->id, NULL));
        REQUIRE(k->start <= k->end && k->end <= length);
        REQUIRE(k->start == length || ((unsigned char)text[k->start] & 0xc0) != 0x80);
        REQUIRE(k->end == length || ((unsigned char)text[k->end] & 0xc0) != 0x80);
    }
    REQUIRE(args->max_tokens == 0 || count <= args->max_tokens);
}

static void decode(const ph_tokenizer *t, const ph_text_token *tokens, size_t count)
{
    ph_detokenizer *d = NULL;
    const char *text;
    size_t length;
    REQUIRE(ph_detokenizer_create(&d, t, (int)(count % 2), &io) == PH_OK);
    for (size_t i = 0; i < count; i++) {
        REQUIRE(ph_detokenize(d, tokens[i].id, &text, &length) == PH_OK);
        REQUIRE(ph_utf8_valid(text, length) == length);
    }
    REQUIRE(ph_detokenize_end(d, &text, &length) == PH_OK);
    REQUIRE(ph_utf8_valid(text, length) == length);
    ph_detokenizer_free(d);
}

static void use(const ph_tokenizer *t, const char *text, size_t length)
{
    ph_encoder *e = NULL;
    const ph_text_token *tokens;
    size_t count;
    int valid = ph_utf8_valid(text, length) == length;
    REQUIRE(ph_encoder_create(&e, t, &io) == PH_OK);
    for (int i = 0; i < 4; i++) {
        ph_encode_args args = {.text = text, .length = length, .special_as_text = i == 1};
        if (i == 2) args.pair = text, args.pair_length = length, args.bare = 1;
        if (i == 3) args.max_tokens = 8, args.truncate_left = 1;
        ph_status status = ph_encode(e, &args, &tokens, &count);
        if (!valid) REQUIRE(status == PH_BAD_VALUE);
        if (status != PH_OK && valid)
            REQUIRE(status == PH_BAD_ARGUMENT || status == PH_UNSUPPORTED);
        if (status != PH_OK) continue;
        check_tokens(t, &args, tokens, count);
        decode(t, tokens, count);
    }
    ph_encoder_free(e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const usual[] = {
        "",
        "a b  c",
        "Hello, w\xc3\xb6rld's 123 don't",
        "e\xcc\x81 \xe4\xb8\xad\xf0\x9f\x98\x80",
        "<s>[CLS]</s><unk>\xe2\x96\x81\xc4\xa0  \t\r\n\xe3\x80\x80",
        "\xef\xac\x81\x01\xcc\x81"};
    const uint8_t *text = size ? memrchr(data, 0xff, size) : NULL;
    size_t length = text ? (size_t)(text - data) : size;
    ph_tokenizer *t = NULL;
    sentence[0] = 0;
    ph_status status = ph_tokenizer_parse(&t, "file", data, length, &io);
    REQUIRE((status == PH_OK) == (t != NULL));
    REQUIRE(status == PH_OK || status == PH_BAD_FILE || status == PH_UNSUPPORTED);
    REQUIRE(status == PH_OK || sentence[0]);
    for (size_t i = 0; t && i < sizeof usual / sizeof usual[0]; i++)
        use(t, usual[i], strlen(usual[i]));
    if (t && text) use(t, (const char *)text + 1, size - length - 1);
    ph_tokenizer_free(t);
    return 0;
}
