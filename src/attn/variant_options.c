/*
 * variant_options.c - reads the options of a variant: "key=value,key=value".
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/variant.h"
#include "base/ctx.h"
#include "io/number.h"

/* One "key=value" of the text; a value alone has an empty key. */
typedef struct piece {
    const char *key, *value;
    int key_length, length; /* of the value */
} piece;

static piece next_piece(const char *text, size_t *used)
{
    size_t n = strcspn(text, ",");
    const char *equal = memchr(text, '=', n);
    piece p = {.key = text, .value = text, .length = (int)n};
    if (equal) {
        p.key_length = (int)(equal - text);
        p.value = equal + 1;
        p.length = (int)(text + n - p.value);
    }
    *used = n + (text[n] == ',');
    return p;
}

static int find(const ph_variant_option *list, int count, const piece *p)
{
    for (int i = 0; i < count; i++)
        if ((int)strlen(list[i].key) == p->key_length &&
            !memcmp(list[i].key, p->key, (size_t)p->key_length))
            return i;
    return -1;
}

static ph_status unknown(ph_ctx *ctx, const char *variant, const ph_variant_option *list,
                         int count, const piece *p)
{
    char known[128] = "";
    int length = p->key_length ? p->key_length : p->length;
    for (int i = 0, n = 0; i < count && n < (int)sizeof known; i++)
        n += snprintf(known + n, sizeof known - (size_t)n, "%s%s", i ? ", " : "",
                      list[i].key[0] ? list[i].key : list[i].words);
    if (!count)
        return ph_fail(ctx, PH_BAD_ARGUMENT, "variant %s has no options, found \"%.*s\"",
                       variant, length, p->key);
    return ph_fail(ctx, PH_BAD_ARGUMENT,
                   "variant %s has no option \"%.*s\", expected: %s", variant, length,
                   p->key, known);
}

static ph_status take_number(ph_ctx *ctx, const char *variant, const ph_variant_option *o,
                             const piece *p)
{
    double x;
    if (ph_number_parse(p->value, (size_t)p->length, &x) || x < o->least || x > o->most ||
        (o->whole && x != floor(x)))
        return ph_fail(ctx, PH_BAD_ARGUMENT,
                       "option %s%sof variant %s is \"%.*s\", expected a %s from %g to "
                       "%g",
                       o->key, *o->key ? " " : "", variant, p->length, p->value,
                       o->whole ? "whole number" : "number", o->least, o->most);
    *o->number = x;
    return PH_OK;
}

static ph_status take_word(ph_ctx *ctx, const char *variant, const ph_variant_option *o,
                           const piece *p)
{
    const char *word = o->words;
    for (int i = 0;; i++) {
        size_t n = strcspn(word, "|");
        if ((int)n == p->length && !memcmp(word, p->value, n)) {
            *o->word = i;
            return PH_OK;
        }
        if (!word[n]) break;
        word += n + 1;
    }
    return ph_fail(ctx, PH_BAD_ARGUMENT,
                   "option %s%sof variant %s is \"%.*s\", expected one of %s", o->key,
                   *o->key ? " " : "", variant, p->length, p->value, o->words);
}

ph_status ph_options_read(ph_ctx *ctx, const char *variant, const char *text,
                          const ph_variant_option *list, int count)
{
    unsigned seen = 0;
    for (size_t used; *text; text += used) {
        piece p = next_piece(text, &used);
        int i = find(list, count, &p);
        if (i < 0) return unknown(ctx, variant, list, count, &p);
        if (seen >> i & 1)
            return ph_fail(ctx, PH_BAD_ARGUMENT,
                           "option %s of variant %s is given twice, expected once",
                           *list[i].key ? list[i].key : list[i].words, variant);
        seen |= 1u << i;
        PH_TRY(list[i].number ? take_number(ctx, variant, &list[i], &p)
                              : take_word(ctx, variant, &list[i], &p));
    }
    return PH_OK;
}
