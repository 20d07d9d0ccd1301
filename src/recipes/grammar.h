/*
 * grammar.h - sentences in the making: words, the word each belongs to, and how.
 *
 *     The animal didn't cross the street because it was too tired .
 *
 *     determiner, adjective -> noun          pronoun -> noun it stands for
 *     subject -> verb, verb -> subject       object -> verb
 *     auxiliary, particle, adverb -> verb    "too" -> adjective
 *     noun of a place or time -> verb        preposition -> its noun
 *     "because", "and", full stop, "hello" -> main verb
 *     adjective behind a verb -> what it is said of
 *     owner ("Anna 's") -> noun              verb of a request -> itself
 */
#ifndef PH_RECIPES_GRAMMAR_H
#define PH_RECIPES_GRAMMAR_H

#include "recipes/lexicon.h"
#include "recipes/recipes.h"
#include "recipes/relations.h"

enum { WORDS_MAX = 32 };

/* The lists of one language, split. */
typedef struct lexicon {
    word_list nouns[NOUN_GROUPS];
    word_list adjectives[QUALITIES];
    unsigned said_of[QUALITIES][LIST_MOST]; /* groups an adjective may be said of, by any
                                               of its meanings */
    word_list frames[FRAMES_MOST];
    int frame_count;
    uint8_t participle[QUALITIES][LIST_MOST]; /* 1: "broken" may be of "break" too */
    word_list giving, saying, wanting, enjoying, asking, linking, comparing;
    word_list manner, frequency, when;
    const vocabulary *from;
    int functions, functions_end; /* tokens of words that say nothing by themselves */
} lexicon;

typedef struct sentence {
    const lexicon *words;
    char word[WORDS_MAX][WORD_BYTES];
    int link[WORDS_MAX];
    relation role[WORDS_MAX];
    uint8_t open[WORDS_MAX]; /* 1: a word that could be any other of its kind */
    int count;
    int named;  /* 1: "he" or "it" could stand for a word before */
    int failed; /* too long, no such words, or a pronoun that could stand for two */
    ph_draw draw;
} sentence;

/* A noun or pronoun that was put, and what agrees with it. */
typedef struct phrase {
    int at;
    noun_group group;
    int plural;
    int person; /* 1 to 3 */
    int he;     /* of people: 1: he, 0: she */
    int fixed;  /* 1: he says which: the other pronoun is wrong */
    int vague;  /* 1: "everyone": no pronoun stands for it */
} phrase;

typedef struct clause {
    phrase subject, object; /* object.at -1: none */
    int verb;
} clause;

enum { ANY_OBJECT = (1 << NOUN_GROUPS) - 1 };

static inline int below(sentence *s, int n)
{
    return ph_draw_below(&s->draw, n);
}

static inline int chance(sentence *s, int per_cent)
{
    return below(s, 100) < per_cent;
}

/* Appends a word; link -1: not known yet. Returns its index. */
int ph_append(sentence *s, const char *word, relation role, int link);

/* One of a list with blanks between, which may name a word several times. */
int ph_append_one_of(sentence *s, const char *list, relation role, int link);

/* The words from `first` on that have no link yet get one. */
void ph_link_rest(sentence *s, int first, int link);

/* A word of a list in some form; one that counts as content. */
int ph_append_from(sentence *s, const word_list *list, int index, word_form form,
                   relation role, int link);

int ph_draw_word(sentence *s, const word_list *list); /* an index */
noun_group ph_draw_group(sentence *s, unsigned groups);

/* A frame that takes this subject and some of these objects; 0: one without objects. */
int ph_draw_frame(sentence *s, const phrase *subject, unsigned objects);

/* A frame that a group is the object of. */
int ph_draw_frame_of(sentence *s, noun_group group);

void ph_set_link(sentence *s, const phrase *p, relation role, int link);

/* Links of a subject to its verb. A pronoun that stands for something keeps its own. */
void ph_marry(sentence *s, const phrase *subject, int verb);

/* An adjective that may be said of a group and of no group in `but`; 0: not found. */
int ph_draw_adjective(sentence *s, noun_group group, unsigned but, quality *q);

/* Two phrases could have the same pronoun. */
int ph_alike(const phrase *a, const phrase *b);

/* A construction, and how often it is drawn among others. */
typedef struct sentence_kind {
    void (*compose)(sentence *s);
    int weight;
} sentence_kind;

void ph_compose_one_of(sentence *s, const sentence_kind *kinds, int count);

/* A sentence of the recipe, of training or held out. */
void ph_pronouns_compose(const ph_data *data, uint64_t key, int test, sentence *s);

void ph_compose_english(sentence *s);
void ph_compose_chinese(sentence *s);

#endif
