/*
 * fuzz_vocab.c - any tokens as a vocabulary, any text split by it.
 *
 * Input: a byte that says how to split, tokens with a newline between, NUL, the text.
 *
 * Words come in order without overlap and lose nothing but blanks, a known token is what
 * the text says there, and a count of words does not depend on how many are stored.
 */
#include <string.h>

#include "fuzz.h"
#include "model/model.h"

enum { TOKENS_MOST = 256 };

static ph_ctx *ctx;

/* Splits at newlines, in place. */
static int list_tokens(char *text, const char **tokens)
{
    int count = 0;
    for (char *next; count < TOKENS_MOST; text = next + 1) {
        next = strchr(text, '\n');
        if (next) *next = 0;
        tokens[count++] = text;
        if (!next) break;
    }
    return count;
}

static int is_token(const char *token, const char *text, int length)
{
    for (int i = 0; i < length; i++, token++) {
        char small = (char)(text[i] >= 'A' && text[i] <= 'Z' ? text[i] + 32 : text[i]);
        if (*token == text[i] || *token == small) continue;
        if (*token != '\'' || strncmp(text + i, "\xe2\x80\x99", 3)) return 0;
        i += 2;
    }
    return *token == 0;
}

static void check_words(const ph_vocab *v, const char *text, const ph_word *words,
                        int count)
{
    int at = 0, size = (int)strlen(text);
    for (int i = 0; i < count; i++) {
        const ph_word *w = &words[i];
        for (; v->split == PH_SPLIT_WORDS && at < w->start; at++)
            REQUIRE(strchr(" \t\r\n", text[at]));
        REQUIRE(w->start == at && w->length > 0 && at + w->length <= size);
        REQUIRE(w->token >= PH_TOKEN_UNKNOWN || v->split != PH_SPLIT_BYTES);
        REQUIRE(w->token >= 0 && w->token < v->count);
        if (v->split != PH_SPLIT_BYTES && w->token != PH_TOKEN_UNKNOWN)
            REQUIRE(is_token(v->text[w->token], text + at, w->length));
        at += w->length;
    }
    for (; at < size; at++)
        REQUIRE(v->split == PH_SPLIT_WORDS && strchr(" \t\r\n", text[at]));
}

static void split_text(const ph_vocab *v, const char *text)
{
    size_t most = strlen(text) + 1;
    ph_word *words = malloc(most * sizeof *words), one;
    REQUIRE(words);
    int count = ph_vocab_split(v, text, words, (int)most);
    REQUIRE(count >= 0 && (size_t)count < most);
    check_words(v, text, words, count);
    REQUIRE(ph_vocab_split(v, text, &one, 1) == count);
    free(words);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *tokens[TOKENS_MOST];
    ph_vocab v;
    if (!ctx) REQUIRE(ph_open(&ctx, &(ph_options){.threads = 1}) == PH_OK);
    if (size == 0) return 0;
    char *copy = malloc(size + 1);
    REQUIRE(copy);
    memcpy(copy, data + 1, size - 1);
    copy[size - 1] = copy[size] = 0;
    const char *text = copy + strlen(copy) + 1;
    if (text > copy + size) text = copy + size;
    int count = list_tokens(copy, tokens);
    ph_status status = ph_vocab_create(&v, ctx, (ph_split)(data[0] % 3), tokens, count);
    REQUIRE(status == PH_OK || status == PH_BAD_VALUE);
    if (status == PH_OK) split_text(&v, text);
    ph_vocab_free(&v, ctx);
    free(copy);
    return 0;
}
