/*
 * english_nouns.c - nouns of English sentences, with all that stands before and behind
 * them, and pronouns.
 */
#include <string.h>

#include "recipes/english_parts.h"

static int is_bare(noun_group g)
{
    return BARE >> g & 1;
}

/* "Anna 's": an owner where an article would stand. */
static void put_owner(sentence *s)
{
    static const char whose[] = "the the the the my your our this";
    noun_group g = ph_draw_group(s, HUMAN | 1 << ANIMAL);
    int bare = is_bare(g), first = s->count;
    if (!bare) ph_append_one_of(s, whose, DETERMINER, first + 1);
    const word_list *list = &s->words->nouns[g];
    int at = ph_append_from(s, list, ph_draw_word(s, list), LEMMA, DETERMINER, -1);
    ph_append(s, "'s", HELPER, at);
}

static void put_article(sentence *s, const phrase *p, const char *next)
{
    static const char one[] = "the the the the the the the the the the a a a a a a this "
                              "this that that my my your our every another each no one "
                              "any half 1";
    static const char several[] = "the the the the the the these those some some many "
                                  "many two two three my your our all several few most "
                                  "any no more both such";
    static const char numbers[] =
        "three four five six seven eight nine ten twenty thirty "
        "fifty hundred thousand 2 3 4 5 6 7 8 9 10 11 12 20 30 "
        "50 100 1000";
    static const char uncounted[] = "the the the some some my this no much more your our "
                                    "any enough less";
    if (UNCOUNTED >> p->group & 1) {
        if (chance(s, 70)) ph_append_one_of(s, uncounted, DETERMINER, -1);
    } else if (p->plural) {
        if (chance(s, 75))
            ph_append_one_of(s, chance(s, 15) ? numbers : several, DETERMINER, -1);
    } else if (!((1 << NATURE | 1 << FOOD) >> p->group & 1 && chance(s, 25))) {
        int at = ph_append_one_of(s, one, DETERMINER, -1);
        if (!strcmp(s->word[at], "a") && strchr("aeiou", next[0]))
            strcpy(s->word[at], "an");
    }
}

static void put_determiner(sentence *s, const phrase *p, const char *next)
{
    if (is_bare(p->group)) return;
    if (!s->named && chance(s, 6)) /* whose, the text does not say */
        ph_append_one_of(s, "his her their its", DETERMINER, -1);
    else if (chance(s, 5))
        put_owner(s);
    else
        put_article(s, p, next);
}

static void put_adjectives(sentence *s, quality q, int adjective, int degree)
{
    if (degree) ph_append_one_of(s, "very very really so", HELPER, s->count + 1);
    ph_append_from(s, &s->words->adjectives[q], adjective, LEMMA, PROPERTY, -1);
    if (chance(s, 10)) ph_append_one_of(s, "old little big red new", PROPERTY, -1);
}

static phrase put_noun(sentence *s, noun_group group, int plural, int article)
{
    const lexicon *w = s->words;
    phrase p = {.group = group, .plural = plural, .person = 3};
    int first = s->count, which = ph_draw_word(s, &w->nouns[group]);
    int described = chance(s, is_bare(group) ? 2 : 30);
    quality q = OF_ALL;
    int adjective = described ? ph_draw_adjective(s, group, 0, &q) : 0;
    int degree = described && chance(s, 8);
    char noun[WORD_BYTES], next[WORD_BYTES];
    p.he = group == MAN || group == HE_NAME || (group == PERSON && chance(s, 50));
    p.fixed = group != PERSON;
    ph_word_form(&w->nouns[group], which, plural ? PLURAL : LEMMA, noun);
    ph_word_form(&w->adjectives[q], adjective, LEMMA, next);
    if (article) put_determiner(s, &p, degree ? "very" : described ? next : noun);
    if (described) put_adjectives(s, q, adjective, degree);
    p.at = ph_append(s, noun, ACTOR, -2);
    s->open[p.at] = 1;
    s->named = 1;
    for (int i = first; i < p.at; i++)
        if (s->link[i] == -1) s->link[i] = p.at;
    return p;
}

phrase ph_english_noun(sentence *s, noun_group group, int plural)
{
    return put_noun(s, group, plural, 0);
}

/* A phrase without what may follow its noun. The noun has no link yet. */
phrase ph_english_phrase(sentence *s, unsigned groups)
{
    noun_group g = ph_draw_group(s, groups);
    int counted = !((UNCOUNTED | BARE) >> g & 1);
    return put_noun(s, g, counted && chance(s, 25), 1);
}

phrase ph_english_long_phrase(sentence *s, unsigned groups)
{
    phrase p = ph_english_phrase(s, groups);
    int r = below(s, 100);
    if (r < 6) {
        int and = ph_append_one_of(s, "and and and and or", CLAUSE, -2);
        phrase other = ph_english_phrase(s, 1u << p.group);
        s->link[and] = other.at;
        ph_set_link(s, &other, CLAUSE, p.at);
        p.plural = 1;
    } else if (r < 9 && !is_bare(p.group)) {
        int of = ph_append(s, "of", CIRCUMSTANCE, -2);
        phrase whole = ph_english_phrase(s, ANYTHING | NAMED | 1 << CITY);
        s->link[of] = whole.at;
        ph_set_link(s, &whole, CIRCUMSTANCE, p.at);
    }
    return p;
}

/* ---- places and times -------------------------------------------------------------- */

/* "at home", "in front of the house", "to Anna 's house" */
static void put_preposition(sentence *s, const char *list, unsigned groups, int of)
{
    int front = groups & 1 << PLACE && chance(s, 4), first = s->count;
    if (front) {
        ph_append(s, "in", CIRCUMSTANCE, -2);
        ph_append_one_of(s, "front front front back", CIRCUMSTANCE, -2);
        ph_append(s, "of", CIRCUMSTANCE, -2);
    } else {
        ph_append_one_of(s, list, CIRCUMSTANCE, -2);
    }
    int last = s->count;
    phrase p = ph_english_phrase(s, groups);
    for (int i = first; i < last; i++) s->link[i] = p.at;
    ph_set_link(s, &p, CIRCUMSTANCE, of);
}

static void put_fixed_place(sentence *s, int of)
{
    static const char *const pairs[][2] = {
        {"at", "home home home work school night noon"},
        {"to", "work school bed church"},
        {"in", "bed school town"},
        {"on", "time foot holiday vacation"},
        {"for", "breakfast lunch dinner fun"},
        {"in", "2024 2025 2026"},
        {"by", "car bus train plane bike"}};
    int k = below(s, (int)(sizeof pairs / sizeof pairs[0])), at = s->count;
    ph_append(s, pairs[k][0], CIRCUMSTANCE, at + 1);
    ph_append_one_of(s, pairs[k][1], CIRCUMSTANCE, of);
}

/* "in the garden", of a verb or noun. */
void ph_english_place(sentence *s, int of)
{
    static const struct {
        const char *prepositions;
        unsigned groups;
    } kinds[] = {
        {"in in in in at at near behind inside outside to to from into around beside "
         "towards within",
         1 << PLACE},
        {"on on on on under near behind onto upon", 1 << FURNITURE},
        {"across through near over along on by in above below", 1 << WAY},
        {"in in in to from near", 1 << CITY},
        {"with", 1 << THING | HUMAN | 1 << BODY},
        {"in on during before after at in until", 1 << TIME},
        {"for to with without from against between among", HUMAN},
        {"by in on from", 1 << VEHICLE},
        {"under near behind in over", 1 << PLANT | 1 << NATURE | 1 << PLACE},
        {"about in", 1 << WRITING | 1 << IDEA | 1 << ACTIVITY},
        {"in into from on under", 1 << THING}};
    int k = below(s, (int)(sizeof kinds / sizeof kinds[0]));
    if (chance(s, 10)) {
        put_fixed_place(s, of);
        return;
    }
    if (chance(s, 35)) k = below(s, 4);
    if (chance(s, 6)) { /* "with me" */
        int at = ph_append_one_of(s, "with for to from", CIRCUMSTANCE, s->count + 1);
        phrase whom = ph_english_whom(s, of);
        s->link[at] = whom.at;
        s->role[whom.at] = CIRCUMSTANCE;
        return;
    }
    put_preposition(s, kinds[k].prepositions, kinds[k].groups, of);
}

void ph_english_time(sentence *s, int of)
{
    int at = s->count, which = chance(s, 50);
    ph_append_one_of(s, which ? "last last next" : "every this one",
                     which ? PROPERTY : DETERMINER, at + 1);
    ph_append_from(s, &s->words->nouns[TIME], ph_draw_word(s, &s->words->nouns[TIME]),
                   LEMMA, CIRCUMSTANCE, of);
}

/* ---- pronouns ---------------------------------------------------------------------- */

static const char *pronoun_of(const phrase *p, int form)
{
    static const char *const forms[][3] = {
        {"i", "me", "my"},         {"you", "you", "your"}, {"we", "us", "our"},
        {"they", "them", "their"}, {"he", "him", "his"},   {"she", "her", "her"},
        {"it", "it", "its"}};
    int human = HUMAN >> p->group & 1;
    int kind = p->person == 2   ? 1
               : p->person == 1 ? (p->plural ? 2 : 0)
               : p->plural      ? 3
               : !human         ? 6
               : p->he          ? 4
                                : 5;
    return forms[kind][form];
}

/* this, everyone: they name nobody, and no pronoun stands for them. */
static phrase put_indefinite(sentence *s)
{
    static const struct {
        const char *words;
        noun_group group;
        int plural;
    } kinds[] = {{"this that", THING, 0},
                 {"these those", THING, 1},
                 {"everyone nobody someone everybody somebody anyone anybody", PERSON, 0},
                 {"something nothing everything anything", THING, 0}};
    int k = below(s, (int)(sizeof kinds / sizeof kinds[0]));
    phrase p = {
        .group = kinds[k].group, .plural = kinds[k].plural, .person = 3, .vague = 1};
    p.at = ph_append_one_of(s, kinds[k].words, ACTOR, -2);
    return p;
}

/* I, you, we, they, he, she, it: nobody who was named before. */
phrase ph_english_person(sentence *s)
{
    int k = below(s, s->named ? 4 : 9);
    if (chance(s, 10)) return put_indefinite(s);
    phrase p = {.group = k < 8 ? PERSON : ANIMAL,
                .person = k < 2   ? 1
                          : k < 4 ? 2
                                  : 3,
                .plural = k == 1 || k == 4,
                .he = k == 5 || k == 6,
                .fixed = 1};
    p.at = ph_append(s, pronoun_of(&p, SUBJECT_FORM), ACTOR, -2);
    if (p.person == 3) s->named = 1;
    return p;
}

/* me, you, him: somebody whom the text does not name; not the subject. */
phrase ph_english_whom(sentence *s, int verb)
{
    phrase p = {.group = PERSON, .person = 3, .he = chance(s, 50), .fixed = 1};
    int r = below(s, 6);
    if (r < 4) p.person = 1 + r / 2;
    p.plural = r == 4 || (r < 4 && chance(s, 35));
    p.at = ph_append(s, pronoun_of(&p, OBJECT_FORM), OBJECT, verb);
    return p;
}

/* "I" and "you" stand for nobody in the text: they belong where a noun would. */
phrase ph_english_pronoun(sentence *s, const phrase *of, int form)
{
    phrase p = *of;
    int own = of->person != 3;
    if (of->vague) s->failed = 1;
    p.at = ph_append(s, pronoun_of(of, form), own ? ACTOR : REFERENCE, own ? -2 : of->at);
    p.fixed = 1;
    return p;
}
