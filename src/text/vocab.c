/*
 * vocab.c - tokenization: text to token ids.
 *
 * A vocabulary is one allocation: pointers, a hash table and the texts. Words are
 * looked up as written, then in lowercase, so "The" and "the" may be one word.
 */
#include <string.h>

#include "base/size.h"
#include "io/utf8.h"
#include "text/vocab.h"

static const char *const special_tokens[PH_TOKEN_FIRST] = {"<pad>", "<s>", "</s>",
                                                           "<unk>"};

static uint32_t hash(const char *text, size_t length)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < length; i++) h = (h ^ (unsigned char)text[i]) * 16777619u;
    return h ^ h >> 15;
}

int ph_vocab_find(const ph_vocab *v, const char *text, size_t length)
{
    if (!v->slot_count) return -1;
    unsigned mask = (unsigned)v->slot_count - 1;
    for (unsigned at = hash(text, length) & mask; v->slots[at] >= 0;
         at = (at + 1) & mask) {
        const char *found = v->text[v->slots[at]];
        if (!strncmp(found, text, length) && !found[length]) return v->slots[at];
    }
    return -1;
}

static void insert(ph_vocab *v, int token)
{
    unsigned mask = (unsigned)v->slot_count - 1;
    unsigned at = hash(v->text[token], strlen(v->text[token])) & mask;
    while (v->slots[at] >= 0) at = (at + 1) & mask;
    v->slots[at] = token;
}

static ph_status fill(ph_vocab *v, ph_ctx *ctx, const char *const *tokens, char *text)
{
    memset(v->slots, -1, (size_t)v->slot_count * sizeof *v->slots);
    for (int i = 0; i < v->count; i++) {
        const char *from =
            i < PH_TOKEN_FIRST ? special_tokens[i] : tokens[i - PH_TOKEN_FIRST];
        size_t length = strlen(from);
        if (ph_vocab_find(v, from, length) >= 0)
            return ph_fail(ctx, PH_BAD_VALUE, "the vocabulary holds \"%.40s\" twice",
                           from);
        v->text[i] = memcpy(text, from, length + 1);
        text += length + 1;
        if (i >= PH_TOKEN_FIRST) v->longest = ph_max(v->longest, (int)length);
        insert(v, i);
    }
    return PH_OK;
}

ph_status ph_vocab_create(ph_vocab *v, ph_ctx *ctx, ph_split split,
                          const char *const *tokens, int count)
{
    size_t bytes = 0;
    *v = (ph_vocab){.split = split};
    if (split == PH_SPLIT_BYTES) v->count = PH_TOKEN_FIRST + 256;
    if (split == PH_SPLIT_BYTES || !tokens) return PH_OK;
    if (count < 0 || count > 1 << 24)
        return ph_fail(ctx, PH_BAD_ARGUMENT, "%d tokens, expected 0 to %d", count,
                       1 << 24);
    v->count = count + PH_TOKEN_FIRST;
    for (v->slot_count = 16; v->slot_count < 2 * v->count;) v->slot_count *= 2;
    for (int i = 0; i < PH_TOKEN_FIRST; i++) bytes += strlen(special_tokens[i]) + 1;
    for (int i = 0; i < count; i++)
        if (ph_size_add(bytes, strlen(tokens[i]) + 1, &bytes))
            return ph_fail(ctx, PH_OUT_OF_MEMORY, "the vocabulary is too large");
    size_t texts = (size_t)v->count * sizeof *v->text;
    size_t slots = (size_t)v->slot_count * sizeof *v->slots;
    char *memory = ph_ctx_alloc(ctx, texts + slots + bytes);
    if (!memory) return ph_fail(ctx, PH_OUT_OF_MEMORY, "no memory for a vocabulary");
    v->memory = memory;
    v->text = (const char **)(void *)memory;
    v->slots = (int *)(void *)(memory + texts);
    return fill(v, ctx, tokens, memory + texts + slots);
}

void ph_vocab_free(ph_vocab *v, ph_ctx *ctx)
{
    ph_ctx_release(ctx, v->memory);
    *v = (ph_vocab){0};
}

/* ---- splitting --------------------------------------------------------------------- */

/* Bytes of the UTF-8 character here; 1 for a byte that begins no valid one. The NUL that
   ends the text ends a character too, so four bytes may always be read. */
static int char_length(const char *text)
{
    uint32_t point;
    int length = ph_utf8_decode(text, 4, &point);
    return length ? length : 1;
}

static const char curly[] = "\xe2\x80\x99"; /* U+2019, an apostrophe as editors set it */

/* Letters of scripts that separate words by spaces, all of them below U+0800; 0: none. */
static int plain_letter(const char *text)
{
    uint32_t c = 0;
    int length = ph_utf8_decode(text, 4, &c);
    int ascii = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                (c >= 'A' && c <= 'Z') || c == '\'';
    return length == 1 ? ascii : length == 2 && c >= 0xC0 ? 2 : 0;
}

/* A curly apostrophe counts where a letter follows; elsewhere it closes a quotation. */
static int letter_length(const char *text)
{
    if (strncmp(text, curly, 3)) return plain_letter(text);
    return plain_letter(text + 3) ? 3 : 0;
}

/* The word as written, or in lowercase with plain apostrophes. */
static int find_any_case(const ph_vocab *v, const char *text, int length)
{
    char plain[256];
    size_t used = 0;
    int token = ph_vocab_find(v, text, (size_t)length);
    if (token >= 0 || length > (int)sizeof plain) return token;
    for (int i = 0; i < length; i++) {
        int apostrophe = length - i >= 3 && !memcmp(text + i, curly, 3);
        char c = apostrophe ? '\'' : text[i];
        plain[used++] = (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
        if (apostrophe) i += 2;
    }
    return ph_vocab_find(v, plain, used);
}

/* The longest known word that begins here, at least one character. */
static int longest_known(const ph_vocab *v, const char *text, int *token)
{
    int best = char_length(text), length = 0;
    *token = -1;
    while (text[length] && length < v->longest) {
        length += char_length(text + length);
        int found = ph_vocab_find(v, text, (size_t)length);
        if (found >= 0) best = length, *token = found;
    }
    return best;
}

/* Where the last apostrophe of a word begins; 0: it has none behind its first letter. */
static int last_apostrophe(const char *text, int length)
{
    int at = length - 1;
    for (; at > 0; at--)
        if (text[at] == '\'' || !strncmp(text + at, curly, 3)) break;
    return at;
}

/* An unknown word may be a known one and a short form of the next: "girl's". */
static int take_word(const ph_vocab *v, const char *text, int *token)
{
    int length = 0, step;
    while ((step = letter_length(text + length)) > 0) length += step;
    if (!length) return longest_known(v, text, token);
    *token = find_any_case(v, text, length);
    int at = *token < 0 ? last_apostrophe(text, length) : 0;
    if (at > 0 && find_any_case(v, text + at, length - at) >= 0) {
        length = at;
        *token = find_any_case(v, text, length);
    }
    return length;
}

static int take(const ph_vocab *v, const char *text, int *token)
{
    int length = 1;
    if (v->split == PH_SPLIT_WORDS) return take_word(v, text, token);
    if (v->split == PH_SPLIT_BYTES) {
        *token = PH_TOKEN_FIRST + (unsigned char)text[0];
    } else {
        length = char_length(text);
        *token = ph_vocab_find(v, text, (size_t)length);
    }
    return length;
}

int ph_vocab_split(const ph_vocab *v, const char *text, ph_word *words, int capacity)
{
    int count = 0, at = 0, token;
    for (;;) {
        while (v->split == PH_SPLIT_WORDS && text[at] && strchr(" \t\r\n", text[at]))
            at++;
        if (!text[at]) return count;
        int length = take(v, text + at, &token);
        if (token < 0) token = PH_TOKEN_UNKNOWN;
        if (count < capacity)
            words[count] = (ph_word){.token = token, .start = at, .length = length};
        count++;
        at += length;
    }
}
