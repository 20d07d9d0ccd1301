/*
 * lexicon.c - lists of words: splitting them, and the forms of English lemmas.
 */
#include "recipes/lexicon.h"

#include <stdio.h>
#include <string.h>

const unsigned ph_said_of[QUALITIES] = {[OF_LIVING] = ALIVE,
                                        [OF_HUMAN] = HUMAN,
                                        [OF_MACHINE] = 1 << MACHINE | 1 << VEHICLE,
                                        [OF_WAY] = 1 << WAY,
                                        [OF_PLACE] = 1 << PLACE | 1 << CITY,
                                        [OF_THING] = 1 << THING | 1 << FURNITURE,
                                        [OF_FOOD] = 1 << FOOD,
                                        [OF_DRINK] = 1 << DRINK,
                                        [OF_PLANT] = 1 << PLANT,
                                        [OF_CLOTHES] = 1 << CLOTHES,
                                        [OF_WRITING] =
                                            1 << WRITING | 1 << IDEA | 1 << ACTIVITY,
                                        [OF_NATURE] = 1 << NATURE,
                                        [OF_ALL] = (1 << NOUN_GROUPS) - 1};

void ph_split_list(word_list *list, const char *text)
{
    list->text = text;
    list->count = 0;
    for (size_t at = 0; text && list->count < LIST_MOST;) {
        at += strspn(text + at, " ");
        if (!text[at]) break;
        list->at[list->count++] = (uint16_t)at;
        at += strcspn(text + at, " ");
    }
}

/* ---- forms of English lemmas ------------------------------------------------------- */

static int ends_in(const char *word, const char *any_of)
{
    size_t length = strlen(word);
    return length > 0 && strchr(any_of, word[length - 1]) != NULL;
}

/* A consonant and y: "carry", not "play". */
static int ends_in_y(const char *word)
{
    size_t length = strlen(word);
    return length > 1 && word[length - 1] == 'y' && !strchr("aeiou", word[length - 2]);
}

static void add_s(char *word)
{
    size_t length = strlen(word);
    int hissing = ends_in(word, "sxz") || (length > 1 && word[length - 1] == 'h' &&
                                           strchr("cs", word[length - 2]));
    if (ends_in_y(word))
        strcpy(word + length - 1, "ies");
    else
        strcat(word, hissing || !strcmp(word, "go") ? "es" : "s");
}

static void add_ed(char *word, int doubled)
{
    size_t length = strlen(word);
    if (ends_in_y(word))
        strcpy(word + length - 1, "ied");
    else if (doubled)
        snprintf(word + length, WORD_BYTES - length, "%ced", word[length - 1]);
    else
        strcat(word, ends_in(word, "e") ? "d" : "ed");
}

static void add_ing(char *word, int doubled)
{
    size_t length = strlen(word);
    int silent = length > 2 && word[length - 1] == 'e' && word[length - 2] != 'e';
    if (length > 2 && !strcmp(word + length - 2, "ie"))
        strcpy(word + length - 2, "ying");
    else if (doubled)
        snprintf(word + length, WORD_BYTES - length, "%cing", word[length - 1]);
    else
        strcpy(word + length - silent, "ing");
}

/* The n-th text between slashes of an entry; returns its length, 0: there is none. */
static int part_of(const char *entry, int n, const char **part)
{
    size_t length = strcspn(entry, " ");
    const char *end = entry + length;
    for (; n > 0; n--) {
        while (entry < end && *entry != '/') entry++;
        if (entry == end) return 0;
        entry++;
    }
    *part = entry;
    return (int)strcspn(entry, "/ ");
}

/* The lemma without its marks; returns whether its last letter is doubled. */
static int lemma_of(const char *entry, char word[WORD_BYTES])
{
    int length = (int)strcspn(entry, "/ +=");
    snprintf(word, WORD_BYTES, "%.*s", length, entry);
    return entry[length] == '+';
}

/* The grammar writes have, do and be, but two of them are verbs of their own too. */
static void regular_form(char *word, word_form form, int doubled)
{
    if (form == THIRD && !strcmp(word, "have"))
        strcpy(word, "has");
    else if (form == THIRD && !strcmp(word, "do"))
        strcpy(word, "does");
    else if (form == THIRD)
        add_s(word);
    else if (form == ING)
        add_ing(word, doubled);
    else if (form != LEMMA)
        add_ed(word, doubled);
}

void ph_word_form(const word_list *list, int index, word_form form, char word[WORD_BYTES])
{
    const char *entry = list->text + list->at[index], *part;
    int doubled = lemma_of(entry, word), verb = 0, length = 0;
    if ((unsigned char)word[0] > 127) return;
    verb = part_of(entry, 2, &part) > 0; /* two parts: past and participle */
    if (form == PAST || form == PARTICIPLE) length = part_of(entry, form - 1, &part);
    if (form == PLURAL && !verb) length = part_of(entry, 1, &part);
    if (length)
        snprintf(word, WORD_BYTES, "%.*s", length, part);
    else
        regular_form(word, form, doubled);
}

int ph_word_particle(const word_list *list, int index, char word[WORD_BYTES])
{
    const char *entry = list->text + list->at[index];
    size_t mark = strcspn(entry, "/ =");
    if (entry[mark] != '=') return 0;
    snprintf(word, WORD_BYTES, "%.*s", (int)strcspn(entry + mark + 1, "/ "),
             entry + mark + 1);
    return 1;
}
