/*
 * grammar.c - what the grammars of both languages share.
 */
#include "recipes/grammar.h"

#include <stdio.h>
#include <string.h>

int ph_append(sentence *s, const char *word, relation role, int link)
{
    if (s->count == WORDS_MAX) {
        s->failed = 1;
        return WORDS_MAX - 1;
    }
    snprintf(s->word[s->count], WORD_BYTES, "%s", word);
    s->link[s->count] = link;
    s->role[s->count] = role;
    s->open[s->count] = 0;
    return s->count++;
}

int ph_append_one_of(sentence *s, const char *list, relation role, int link)
{
    word_list words;
    char word[WORD_BYTES];
    ph_split_list(&words, list);
    ph_word_form(&words, below(s, words.count), LEMMA, word);
    return ph_append(s, word, role, link);
}

void ph_link_rest(sentence *s, int first, int link)
{
    for (int i = first; i < s->count; i++)
        if (s->link[i] < 0) s->link[i] = link;
}

int ph_append_from(sentence *s, const word_list *list, int index, word_form form,
                   relation role, int link)
{
    char word[WORD_BYTES];
    ph_word_form(list, index, form, word);
    int at = ph_append(s, word, role, link);
    s->open[at] = 1;
    return at;
}

int ph_draw_word(sentence *s, const word_list *list)
{
    int chosen = below(s, list->count);
    return chosen;
}

noun_group ph_draw_group(sentence *s, unsigned groups)
{
    int bits = 0, g = -1;
    if (!groups) { /* of a frame that was not found */
        s->failed = 1;
        return THING;
    }
    for (unsigned left = groups; left; left &= left - 1) bits++;
    for (int n = below(s, bits); n >= 0; n--)
        for (g++; !(groups >> g & 1);) g++;
    return (noun_group)g;
}

int ph_draw_frame(sentence *s, const phrase *subject, unsigned objects)
{
    const verb_frame *frames = s->words->from->frames;
    for (int tries = 0; tries < 1000; tries++) {
        int f = below(s, s->words->frame_count);
        int fits = objects ? frames[f].objects & objects : !frames[f].objects;
        if (fits && frames[f].subjects >> subject->group & 1) return f;
    }
    s->failed = 1;
    return 0;
}

int ph_draw_frame_of(sentence *s, noun_group group)
{
    for (int tries = 0; tries < 100; tries++) {
        int f = below(s, s->words->frame_count);
        if (s->words->from->frames[f].objects >> group & 1) return f;
    }
    s->failed = 1;
    return 0;
}

void ph_set_link(sentence *s, const phrase *p, relation role, int link)
{
    s->role[p->at] = role;
    s->link[p->at] = link;
}

void ph_marry(sentence *s, const phrase *subject, int verb)
{
    if (s->link[subject->at] == -2) ph_set_link(s, subject, ACTOR, verb);
}

int ph_draw_adjective(sentence *s, noun_group group, unsigned but, quality *q)
{
    for (int tries = 0; tries < 40; tries++) {
        *q = (quality)below(s, QUALITIES);
        int index = below(s, s->words->adjectives[*q].count);
        if (!(ph_said_of[*q] >> group & 1)) continue;
        if (*q == OF_ALL && chance(s, 50)) continue;
        if (s->words->said_of[*q][index] & but) continue;
        return index;
    }
    s->failed = 1;
    return 0;
}

/* he, she, it or they; by person where it is not the third. */
int ph_alike(const phrase *a, const phrase *b)
{
    unsigned one = HUMAN >> a->group & 1, two = HUMAN >> b->group & 1;
    if (a->person != 3 || b->person != 3) return a->person == b->person;
    if (a->plural != b->plural) return 0;
    if (a->plural) return 1;
    if (one != two) return 0;
    return !one || !a->fixed || !b->fixed || a->he == b->he;
}

void ph_compose_one_of(sentence *s, const sentence_kind *kinds, int count)
{
    int all = 0;
    for (int i = 0; i < count; i++) all += kinds[i].weight;
    int drawn = below(s, all);
    while (drawn >= kinds->weight) drawn -= kinds++->weight;
    kinds->compose(s);
}
