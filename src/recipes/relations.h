/*
 * relations.h - kinds of links between words: one table for terminal, page and figures.
 */
#ifndef PH_RECIPES_RELATIONS_H
#define PH_RECIPES_RELATIONS_H

typedef enum relation {
    DETERMINER = 0, /* article, number, measure word, "my" -> noun */
    PROPERTY,       /* adjective -> noun behind it */
    ACTOR,          /* subject -> verb, verb -> subject */
    OBJECT,         /* -> verb */
    REFERENCE,      /* pronoun -> what it stands for */
    HELPER,         /* auxiliary, adverb, particle -> verb; degree -> adjective */
    STATE,          /* "tired" -> what it is said of */
    CIRCUMSTANCE,   /* preposition -> noun; noun of a place, time or means -> verb */
    REASON,         /* "because", "so" -> main verb */
    CLAUSE, /* other conjunctions, punctuation -> main verb; second of two nouns */
    RELATIONS
} relation;

#endif
