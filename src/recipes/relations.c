/*
 * relations.c - the names of relations, and which one a link is.
 *
 * A model answers which word a word belongs to. How they belong together follows from the
 * classes of both words in the lexicon, their order and what stands before the first: it
 * is a rule about the answer, not a second answer.
 */
#include "recipes/relations.h"

#include <string.h>

#include "polyhead_train.h"
#include "recipes/lexicon.h"

static const char *const names[RELATIONS] = {
    [DETERMINER] = "determiner", [PROPERTY] = "property",   [ACTOR] = "actor",
    [OBJECT] = "object",         [REFERENCE] = "reference", [HELPER] = "helper",
    [STATE] = "state",           [CIRCUMSTANCE] = "place",  [REASON] = "reason",
    [CLAUSE] = "clause"};

const char *ph_relation_name(int i)
{
    return i >= 0 && i < RELATIONS ? names[i] : NULL;
}

/* ---- classes of a word ------------------------------------------------------------- */

/* Bits: those of function words are 1 << function_class. */
enum {
    NOUN = 1 << FUNCTIONS,
    VERB = NOUN << 1,
    ADJECTIVE = VERB << 1,
    ADVERB = ADJECTIVE << 1
};

/* Whether a form could be one of an entry: some part of it begins alike. */
static int begins_alike(const char *entry, const char *word)
{
    for (;; entry++) {
        if (entry[0] == word[0] && (!word[1] || entry[1] == word[1])) return 1;
        while (*entry && *entry != ' ' && *entry != '/') entry++;
        if (*entry != '/') return 0;
    }
}

static int in_list(const char *text, const char *word, word_form last)
{
    word_list list;
    char form[WORD_BYTES];
    ph_split_list(&list, text);
    for (int i = 0; i < list.count; i++) {
        if (!begins_alike(list.text + list.at[i], word)) continue;
        for (int f = LEMMA; f <= (int)last; f++) {
            ph_word_form(&list, i, (word_form)f, form);
            if (!strcmp(form, word)) return 1;
        }
    }
    return 0;
}

static unsigned classes_in(const vocabulary *v, const char *word)
{
    unsigned found = 0;
    for (int f = 0; f < FUNCTIONS; f++)
        if (in_list(v->function[f], word, LEMMA)) found |= 1u << f;
    for (int g = 0; g < NOUN_GROUPS; g++)
        if (in_list(v->nouns[g], word, PLURAL)) found |= NOUN;
    for (int q = 0; q < QUALITIES; q++)
        if (in_list(v->adjectives[q], word, LEMMA)) found |= ADJECTIVE;
    for (int f = 0; v->frames[f].verbs; f++)
        if (in_list(v->frames[f].verbs, word, ING)) found |= VERB;
    if (in_list(v->giving, word, ING) || in_list(v->saying, word, ING) ||
        in_list(v->wanting, word, ING))
        found |= VERB;
    if (in_list(v->manner, word, LEMMA) || in_list(v->frequency, word, LEMMA) ||
        in_list(v->when, word, LEMMA))
        found |= ADVERB;
    return found;
}

static unsigned classes_of(const char *word)
{
    char small[WORD_BYTES];
    size_t length = strlen(word);
    if (length >= sizeof small) return 0;
    for (size_t i = 0; i <= length; i++)
        small[i] = (char)(word[i] >= 'A' && word[i] <= 'Z' ? word[i] + 32 : word[i]);
    return classes_in((unsigned char)word[0] > 127 ? &ph_chinese : &ph_english, small);
}

/* ---- rules ------------------------------------------------------------------------- */

/* "picked up the block": these go with the verb before them. */
static int is_particle(const char *word)
{
    return !strcmp(word, "up") || !strcmp(word, "down") || !strcmp(word, "off");
}

/* What stands before a noun and all that belongs to it: its preposition or "and"; not the
   verb it belongs to, which may be such a word too ("like", 给). */
static unsigned before_phrase(const char *const *words, int noun, int verb)
{
    const unsigned within = 1 << DETERMINERS | ADJECTIVE;
    int at = noun - 1;
    for (; at >= 0; at--) {
        unsigned c = classes_of(words[at]);
        if (c & 1 << PREPOSITIONS ||
            !(c & within || !strcmp(words[at], "的") || !strcmp(words[at], "very")))
            return at == verb || is_particle(words[at])
                       ? 0
                       : c & (1 << PREPOSITIONS | 1 << CONJUNCTIONS | 1 << BEING);
    }
    return 0;
}

static relation of_noun(const char *const *words, int from, int to, unsigned target)
{
    unsigned before = before_phrase(words, from, to);
    int ba = from > 0 && !strcmp(words[from - 1], "把"), behind = to < from;
    if (target & (VERB | 1 << BEING)) {
        if (ba || (!behind && before & 1 << PREPOSITIONS && words[from][0] < 0))
            return ba ? OBJECT : CIRCUMSTANCE;
        if (!behind) return ACTOR;
        return before & 1 << PREPOSITIONS ? CIRCUMSTANCE : OBJECT;
    }
    if (target & ADJECTIVE && !(target & NOUN)) return STATE;
    if (before & 1 << CONJUNCTIONS) return CLAUSE;
    return before & 1 << BEING ? STATE : CIRCUMSTANCE;
}

static relation of_pronoun(int from, int to, unsigned target)
{
    if (target & (NOUN | 1 << PRONOUNS) && to < from) return REFERENCE;
    if (target & (VERB | 1 << BEING)) return to > from ? ACTOR : OBJECT;
    if (target & ADJECTIVE) return STATE;
    return to > from ? DETERMINER : REFERENCE;
}

int ph_relation_of(const char *const *words, int from, int to)
{
    const unsigned acting = VERB | 1 << BEING;
    unsigned own = classes_of(words[from]), target = classes_of(words[to]);
    int noun = (target & (NOUN | 1 << PRONOUNS)) != 0;
    if (!own || !target || from == to) return -1;
    if (own & 1 << STOPS) return CLAUSE;
    if (!strcmp(words[from], "把")) return HELPER;
    if (own & 1 << HELPERS && target & VERB && to == from + 1) return HELPER;
    if (own & 1 << REASONS && !(target & ADJECTIVE && to == from + 1)) return REASON;
    if (own & 1 << PRONOUNS && to < from) return of_pronoun(from, to, target);
    if (own & 1 << DETERMINERS && target & NOUN && to > from) return DETERMINER;
    if (own & 1 << PREPOSITIONS && target & NOUN && to > from) return CIRCUMSTANCE;
    if (own & 1 << CONJUNCTIONS) return CLAUSE;
    if (own & 1 << PRONOUNS) return of_pronoun(from, to, target);
    if (own & acting && noun && !(own & NOUN && before_phrase(words, from, to)))
        return ACTOR;
    if (own & ADJECTIVE && noun) return to > from ? PROPERTY : STATE;
    if (own & NOUN) return of_noun(words, from, to, target);
    return HELPER;
}
