/*
 * unknown_words.c - which words of a text a model does not know: it reads them all as one
 * token, so what it says about them is a guess from where they stand.
 */
#include "commands/unknown_words.h"

#include <stdlib.h>
#include <string.h>

#include "framework/cli.h"

enum { SHOWN = 8 };

static int is_listed(const unknown_words *u, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = u->list; *at && (at = strstr(at, word)); at++)
        if ((at == u->list || at[-1] == ' ') && (!at[length] || at[length] == ','))
            return 1;
    return 0;
}

static void add_word(unknown_words *u, const char *text, const ph_word *word)
{
    char name[UNKNOWN_LIST];
    size_t room = sizeof u->list - u->used;
    const char *quote = text[word->start] == ' ' ? "'" : ""; /* a blank shows in quotes */
    int length = snprintf(name, sizeof name, "%s%.*s%s", quote, word->length,
                          text + word->start, quote);
    u->unknown++;
    if (is_listed(u, name)) return;
    if (u->listed == SHOWN || (size_t)length + 3 > room) {
        u->left_out++;
        return;
    }
    u->used +=
        (size_t)snprintf(u->list + u->used, room, "%s%s", u->used ? ", " : "", name);
    u->listed++;
}

void unknown_words_add(unknown_words *u, const ph_model *m, const char *text)
{
    int count = 0;
    if (ph_model_split(m, text, NULL, 0, &count) != PH_OK || count < 1) return;
    ph_word *words = malloc((size_t)count * sizeof *words);
    if (words && ph_model_split(m, text, words, count, &count) == PH_OK)
        for (int i = 0; i < count; i++) {
            u->words++;
            if (!ph_model_knows(m, words[i].token)) add_word(u, text, &words[i]);
        }
    free(words);
}

void unknown_words_warn(const unknown_words *u)
{
    if (!u->unknown) return;
    cli_warn(
        "%lld of %lld words %s not in the model's vocabulary, which knows nothing about "
        "%s: %s%s",
        u->unknown, u->words, u->unknown == 1 ? "is" : "are",
        u->unknown == 1 ? "it" : "them", u->list,
        !u->left_out ? "" : u->used ? ", ..." : "...");
}

void warn_unknown_words(const ph_model *m, const char *const *texts, int count)
{
    unknown_words u = {0};
    for (int n = 0; n < count; n++) unknown_words_add(&u, m, texts[n]);
    unknown_words_warn(&u);
}
