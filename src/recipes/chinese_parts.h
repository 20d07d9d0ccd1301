/*
 * chinese_parts.h - parts of Chinese sentences: nouns, verbs, clauses. Each appends words
 * to a sentence and links them; what a phrase itself belongs to, its caller says.
 */
#ifndef PH_RECIPES_CHINESE_PARTS_H
#define PH_RECIPES_CHINESE_PARTS_H

#include "recipes/grammar.h"

/* ---- nouns ---- */

phrase ph_chinese_phrase(sentence *s, unsigned groups);
phrase ph_chinese_long_phrase(sentence *s, unsigned groups); /* with 和 */
void ph_chinese_count(sentence *s, phrase *p);               /* 那 个: links stay -1 */
phrase ph_chinese_person(sentence *s);
phrase ph_chinese_whom(sentence *s);
phrase ph_chinese_pronoun(sentence *s, const phrase *of);

/* ---- verbs and clauses ---- */

void ph_chinese_before(sentence *s, int *denied); /* time, negation, adverb, place */
int ph_chinese_verb(sentence *s, const word_list *list, const phrase *subject, int first,
                    int denied);
clause ph_chinese_action(sentence *s, const phrase *subject, unsigned objects);
clause ph_chinese_state(sentence *s, const phrase *subject, unsigned but);
int ph_chinese_bare_verb(sentence *s, int f, relation role, int link); /* and objects */
clause ph_chinese_predicate(sentence *s, const phrase *subject);
clause ph_chinese_clause(sentence *s);
void ph_chinese_stop(sentence *s, int verb);

/* ---- sentences of everyday talk (chinese_everyday.c) ---- */

void ph_chinese_question(sentence *s);
void ph_chinese_request(sentence *s);
void ph_chinese_greeting(sentence *s);
void ph_chinese_existence(sentence *s);
void ph_chinese_weather(sentence *s);

#endif
