/*
 * tokens.c - classes of tokens by their text.
 */
#include <string.h>

#include "heads/heads.h"

/* Skips tokenizers' markers of a leading blank. */
static const char *skip_blank(const char *token)
{
    static const char *const markers[] = {"\xe2\x96\x81", "\xc4\xa0", " "};
    for (int i = 0; i < 3; i++) {
        size_t length = strlen(markers[i]);
        if (!strncmp(token, markers[i], length) && token[length]) return token + length;
    }
    return token;
}

static int is_one_of(const char *token, const char *const *list)
{
    while (*list && strcmp(token, *list)) list++;
    return *list != NULL;
}

uint8_t ph_token_classes(const char *token)
{
    if (!token) return 0;
    static const char *const separators[] = {"[SEP]", "</s>",  "<eos>", "[EOS]",
                                             "<sep>", "<SEP>", "<EOS>", NULL};
    /* "." "," and their Chinese forms, U+3002 and U+FF0C */
    static const char *const stops[] = {".", ",", "\xe3\x80\x82", "\xef\xbc\x8c", NULL};
    token = skip_blank(token);
    size_t length = strlen(token);
    int framed =
        length > 4 && !strncmp(token, "<|", 2) && !strcmp(token + length - 2, "|>");
    if (framed || is_one_of(token, separators)) return PH_CLASS_SEPARATOR;
    return is_one_of(token, stops) ? PH_CLASS_PUNCTUATION : 0;
}
