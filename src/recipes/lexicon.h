/*
 * lexicon.h - the words of the recipe "pronouns", by word class and with the features its
 * grammar needs: what may do what to what, and what an adjective may be said of.
 *
 * A list is one string with blanks between its words. English lemmas may carry what the
 * rules of lexicon.c do not give: forms ("mouse/mice", "eat/ate/eaten"), a doubled last
 * letter ("stop+", stopped), a particle ("pick=up").
 */
#ifndef PH_RECIPES_LEXICON_H
#define PH_RECIPES_LEXICON_H

#include <stdint.h>

enum { ENGLISH = 0, CHINESE, LANGUAGES };

typedef enum noun_group {
    ANIMAL = 0,
    MAN,
    WOMAN,
    PERSON, /* he or she */
    HE_NAME,
    SHE_NAME,
    MACHINE,
    VEHICLE,
    WAY,
    PLACE,
    THING,
    FURNITURE,
    FOOD,
    DRINK,
    PLANT,
    CLOTHES,
    WRITING,
    IDEA,
    NATURE,
    MATTER, /* gold, sand: like drinks without a plural */
    BODY,
    TIME,
    CITY,     /* cities and countries by name */
    ACTIVITY, /* games, languages, subjects of school: without an article */
    NOUN_GROUPS
} noun_group;

/* Sets of groups. */
enum {
    PEOPLE = 1 << MAN | 1 << WOMAN | 1 << PERSON,
    NAMED = 1 << HE_NAME | 1 << SHE_NAME,
    HUMAN = PEOPLE | NAMED,
    ALIVE = HUMAN | 1 << ANIMAL,
    GOODS = 1 << THING | 1 << CLOTHES | 1 << WRITING | 1 << MACHINE | 1 << VEHICLE,
    ACTIVE = ALIVE | 1 << MACHINE,
    ACTING = ACTIVE | 1 << VEHICLE | 1 << NATURE | 1 << THING | 1 << FURNITURE |
             1 << CLOTHES | 1 << PLANT | 1 << FOOD | 1 << IDEA | 1 << ACTIVITY |
             1 << WRITING, /* subjects of some verb */
    UNCOUNTED = 1 << DRINK | 1 << MATTER,
    BARE = NAMED | 1 << CITY | 1 << ACTIVITY, /* never with an article */
    ANYTHING = (1 << TIME) - 1                /* all but time and names */
               - NAMED - (1 << BODY) - (1 << NATURE)
};

/* Classes of adjectives by what they are said of. */
typedef enum quality {
    OF_LIVING = 0,
    OF_HUMAN,
    OF_MACHINE,
    OF_WAY,
    OF_PLACE,
    OF_THING,
    OF_FOOD,
    OF_DRINK,
    OF_PLANT,
    OF_CLOTHES,
    OF_WRITING,
    OF_NATURE,
    OF_ALL, /* colour, size, age */
    QUALITIES
} quality;

extern const unsigned ph_said_of[QUALITIES]; /* sets of groups */

/* Verbs that take the same subjects and objects. objects 0: none. */
typedef struct verb_frame {
    const char *verbs;
    unsigned subjects, objects;
} verb_frame;

/* Classes of function words; a word may be in several. */
typedef enum function_class {
    DETERMINERS = 0,
    PRONOUNS,
    PREPOSITIONS,
    REASONS,
    CONJUNCTIONS,
    BEING,   /* verbs that may also be helpers */
    HELPERS, /* other auxiliaries, particles, degrees, question words */
    GREETINGS,
    STOPS,
    FUNCTIONS
} function_class;

enum { FRAMES_MOST = 32 }; /* the last entry ends the list */

/* All words of a language. Lists of verbs hold lemmas. */
typedef struct vocabulary {
    const char *nouns[NOUN_GROUPS];
    const char *adjectives[QUALITIES];
    verb_frame frames[FRAMES_MOST]; /* ended by one without verbs */
    const char *giving, *saying, *wanting;
    const char *enjoying;            /* "likes swimming" */
    const char *asking;              /* "asked her to come" */
    const char *linking;             /* "became tired" */
    const char *comparing;           /* "bigger" */
    const char *manner;              /* adverbs that stand beside a verb */
    const char *frequency;           /* adverbs that stand before it */
    const char *when;                /* adverbs at either end */
    const char *function[FUNCTIONS]; /* words that the grammar writes itself */
} vocabulary;

extern const vocabulary ph_english, ph_chinese;

/* ---- a list that has been split ---------------------------------------------------- */

enum { LIST_MOST = 240, WORD_BYTES = 32 };

typedef struct word_list {
    const char *text;
    int count;
    uint16_t at[LIST_MOST];
} word_list;

void ph_split_list(word_list *list, const char *text); /* NULL: an empty one */

/* Forms of English lemmas; of other words all are the word itself. */
typedef enum word_form {
    LEMMA = 0,
    PLURAL,
    THIRD = PLURAL, /* of a verb */
    PAST,
    PARTICIPLE,
    ING
} word_form;

void ph_word_form(const word_list *list, int index, word_form form,
                  char word[WORD_BYTES]);

/* The particle of a verb ("pick=up"); 0: it has none. */
int ph_word_particle(const word_list *list, int index, char word[WORD_BYTES]);

#endif
