/*
 * english_parts.h - parts of English sentences: nouns, verbs, clauses. Each appends words
 * to a sentence and links them; what a phrase itself belongs to, its caller says.
 */
#ifndef PH_RECIPES_ENGLISH_PARTS_H
#define PH_RECIPES_ENGLISH_PARTS_H

#include "recipes/grammar.h"

enum { SUBJECT_FORM = 0, OBJECT_FORM, OWNER_FORM };

phrase ph_english_phrase(sentence *s, unsigned groups);
void ph_english_place(sentence *s, int of);
phrase ph_english_person(sentence *s);
phrase ph_english_pronoun(sentence *s, const phrase *of, int form);
const char *ph_english_be(sentence *s, const phrase *p, int past);
int ph_english_verb(sentence *s, const word_list *list, int which, const phrase *subject,
                    char particle[WORD_BYTES]);
void ph_english_particle(sentence *s, char particle[WORD_BYTES], int verb);
void ph_english_adverbs(sentence *s, int verb);
phrase ph_english_object(sentence *s, int f, unsigned groups, int verb,
                         char particle[WORD_BYTES]);
clause ph_english_action(sentence *s, const phrase *subject, unsigned objects);
void ph_english_degree(sentence *s);
clause ph_english_state(sentence *s, const phrase *subject, unsigned but);
clause ph_english_wish(sentence *s, const phrase *subject);
clause ph_english_predicate(sentence *s, const phrase *subject);
clause ph_english_clause(sentence *s);
void ph_english_stop(sentence *s, int verb);

#endif
