/*
 * english_parts.h - parts of English sentences: nouns (english_nouns.c), verbs and
 * clauses (english_parts.c). Each appends words to a sentence and links them; what a
 * phrase itself belongs to, its caller says.
 */
#ifndef PH_RECIPES_ENGLISH_PARTS_H
#define PH_RECIPES_ENGLISH_PARTS_H

#include "recipes/grammar.h"

enum { SUBJECT_FORM = 0, OBJECT_FORM, OWNER_FORM };

/* ---- nouns ---- */

phrase ph_english_phrase(sentence *s, unsigned groups);
phrase ph_english_long_phrase(sentence *s, unsigned groups); /* with "and" or "of" */
phrase ph_english_noun(sentence *s, noun_group group, int plural); /* and adjectives */
void ph_english_place(sentence *s, int of);
void ph_english_time(sentence *s, int of); /* "last night" */
phrase ph_english_person(sentence *s);
phrase ph_english_whom(sentence *s, int verb);
phrase ph_english_pronoun(sentence *s, const phrase *of, int form);

/* ---- verbs ---- */

/* A verb with what stands before it; `particle` gets the one that may follow. */
typedef struct verb_words {
    int at;
    char particle[WORD_BYTES];
} verb_words;

const char *ph_english_be(const phrase *p, int past);
int ph_english_being(sentence *s, const phrase *subject); /* "was", "will not be" */
verb_words ph_english_verb(sentence *s, const word_list *list, const phrase *subject);
verb_words ph_english_form(sentence *s, const word_list *list, word_form form, int link);
void ph_english_particle(sentence *s, verb_words *v);
void ph_english_adverbs(sentence *s, int verb);
phrase ph_english_object(sentence *s, int f, unsigned groups, verb_words *v);
void ph_english_degree(sentence *s);

/* ---- clauses ---- */

clause ph_english_action(sentence *s, const phrase *subject, unsigned objects);
clause ph_english_state(sentence *s, const phrase *subject, unsigned but);
void ph_english_said(sentence *s, const phrase *subject, unsigned but); /* "too tired" */
void ph_english_gift(sentence *s, clause *c);
clause ph_english_wish(sentence *s, const phrase *subject);
clause ph_english_predicate(sentence *s, const phrase *subject);
phrase ph_english_subject(sentence *s);
clause ph_english_clause(sentence *s);
void ph_english_stop(sentence *s, int verb);

/* ---- sentences of everyday talk (english_everyday.c) ---- */

void ph_english_question(sentence *s);
void ph_english_request(sentence *s);
void ph_english_greeting(sentence *s);
void ph_english_existence(sentence *s);
void ph_english_weather(sentence *s);

#endif
