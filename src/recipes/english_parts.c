/*
 * english_parts.c - nouns, verbs and clauses of English sentences.
 */
#include <string.h>

#include "recipes/english_parts.h"

/* ---- nouns ------------------------------------------------------------------------- */

static int is_name(noun_group g)
{
    return NAMED >> g & 1;
}

static void put_determiner(sentence *s, const phrase *p, const char *next)
{
    static const char one[] =
        "the the the the the a a a this that my your our every another "
        "each no";
    static const char several[] =
        "the the the the these those some many two three four my your "
        "our all several few five ten most";
    if (is_name(p->group)) return;
    if (s->count == 0 && chance(s, 5)) { /* whose, the text does not say */
        ph_append_one_of(s, "his her their its", DETERMINER, -1);
        return;
    }
    if (UNCOUNTED >> p->group & 1) {
        if (chance(s, 70)) ph_append_one_of(s, "the the some my this no", DETERMINER, -1);
    } else if (p->plural) {
        if (chance(s, 80)) ph_append_one_of(s, several, DETERMINER, -1);
    } else {
        int at = ph_append_one_of(s, one, DETERMINER, -1);
        if (!strcmp(s->word[at], "a") && strchr("aeiou", next[0]))
            strcpy(s->word[at], "an");
    }
}

/* A phrase without what may follow its noun. The noun has no link yet. */
phrase ph_english_phrase(sentence *s, unsigned groups)
{
    const lexicon *w = s->words;
    phrase p = {.group = ph_draw_group(s, groups), .person = 3};
    int counted = !(UNCOUNTED >> p.group & 1), first = s->count;
    int which = ph_draw_word(s, &w->nouns[p.group]), described = chance(s, 30);
    quality q = OF_ALL;
    int adjective = described ? ph_draw_adjective(s, p.group, 0, &q) : 0;
    int degree = described && chance(s, 8);
    char noun[WORD_BYTES], next[WORD_BYTES];
    p.plural = counted && !is_name(p.group) && chance(s, 25);
    p.he = p.group == MAN || p.group == HE_NAME || (p.group == PERSON && chance(s, 50));
    p.fixed = p.group != PERSON;
    ph_word_form(&w->nouns[p.group], which, p.plural ? PLURAL : LEMMA, noun);
    ph_word_form(&w->adjectives[q], adjective, LEMMA, next);
    put_determiner(s, &p, degree ? "very" : described ? next : noun);
    if (!is_name(p.group) && described) {
        if (degree) ph_append(s, "very", HELPER, s->count + 1);
        ph_append_from(s, &w->adjectives[q], adjective, LEMMA, PROPERTY, -1);
        if (chance(s, 10)) ph_append_one_of(s, "old little big red new", PROPERTY, -1);
    }
    p.at = ph_append(s, noun, ACTOR, -2);
    s->open[p.at] = 1;
    for (int i = first; i < p.at; i++)
        if (s->link[i] == -1) s->link[i] = p.at;
    return p;
}

/* "in the garden", of a verb or noun. */
void ph_english_place(sentence *s, int of)
{
    static const struct {
        const char *prepositions;
        unsigned groups;
    } kinds[] = {
        {"in at near behind inside outside to from into in in around", 1 << PLACE},
        {"on on on under near behind", 1 << FURNITURE},
        {"across through near over along on by in", 1 << WAY},
        {"with", 1 << THING | HUMAN | 1 << BODY},
        {"in on during before after at in", 1 << TIME},
        {"for to with without from", HUMAN},
        {"by in on from", 1 << VEHICLE},
        {"under near behind in", 1 << PLANT | 1 << NATURE},
        {"about of in", 1 << WRITING | 1 << IDEA}};
    int k = below(s, (int)(sizeof kinds / sizeof kinds[0]));
    if (chance(s, 35)) k = below(s, 3);
    int preposition = ph_append_one_of(s, kinds[k].prepositions, CIRCUMSTANCE, -2);
    phrase p = ph_english_phrase(s, kinds[k].groups);
    s->link[preposition] = p.at;
    ph_set_link(s, &p, CIRCUMSTANCE, of);
}

/* A phrase that may have a second noun beside it. */
static phrase put_long_phrase(sentence *s, unsigned groups)
{
    phrase p = ph_english_phrase(s, groups);
    if (chance(s, 95)) return p;
    int and = ph_append(s, "and", CLAUSE, -2);
    phrase other = ph_english_phrase(s, 1u << p.group);
    s->link[and] = other.at;
    ph_set_link(s, &other, CLAUSE, p.at);
    p.plural = 1;
    return p;
}

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

/* I, you, we, they, he, she, it: nobody who was named before. */
phrase ph_english_person(sentence *s)
{
    int k = below(s, 7);
    phrase p = {.group = k < 6 ? PERSON : ANIMAL,
                .person = k == 1             ? 2
                          : k == 0 || k == 2 ? 1
                                             : 3,
                .plural = k == 2 || k == 3,
                .he = k == 4,
                .fixed = 1};
    s->combination = s->combination * 31 + (uint32_t)k;
    p.at = ph_append(s, pronoun_of(&p, SUBJECT_FORM), ACTOR, -2);
    return p;
}

phrase ph_english_pronoun(sentence *s, const phrase *of, int form)
{
    phrase p = *of;
    p.at = ph_append(s, pronoun_of(of, form), REFERENCE, of->at);
    p.fixed = 1;
    return p;
}

/* ---- verbs ------------------------------------------------------------------------- */

const char *ph_english_be(sentence *s, const phrase *p, int past)
{
    int one = !p->plural && p->person == 3;
    (void)s;
    if (past) return one || (p->person == 1 && !p->plural) ? "was" : "were";
    return one ? "is" : p->person == 1 && !p->plural ? "am" : "are";
}

/* The auxiliaries of a random tense; returns the form of the verb. */
static word_form put_tense(sentence *s, const phrase *p)
{
    int one = !p->plural && p->person == 3, r = below(s, 100);
    if (r < 44) return PAST;
    if (r < 60) return one ? THIRD : LEMMA;
    if (r < 70)
        ph_append(s, "didn't", HELPER, -1);
    else if (r < 73)
        ph_append(s, one ? "doesn't" : "don't", HELPER, -1);
    else if (r < 76) {
        ph_append_one_of(s, "did could can will would should do", HELPER, -1);
        ph_append(s, "not", HELPER, -1);
    } else if (r < 81)
        ph_append_one_of(s, "couldn't can't won't wouldn't shouldn't", HELPER, -1);
    else if (r < 88)
        ph_append_one_of(s, "will can must should might could would may", HELPER, -1);
    else if (r < 95) {
        ph_append(s, ph_english_be(s, p, chance(s, 60)), HELPER, -1);
        if (chance(s, 15)) ph_append(s, "not", HELPER, -1);
        return ING;
    } else {
        ph_append(s, chance(s, 40) ? "had" : one ? "has" : "have", HELPER, -1);
        return PARTICIPLE;
    }
    return LEMMA;
}

/* Verb number `which` of a list with all that stands before it; particle: where one that
   follows goes, empty: none. */
int ph_english_verb(sentence *s, const word_list *list, int which, const phrase *subject,
                    char particle[WORD_BYTES])
{
    int first = s->count;
    word_form form = put_tense(s, subject);
    if (chance(s, 8))
        ph_append_from(s, &s->words->frequency, ph_draw_word(s, &s->words->frequency),
                       LEMMA, HELPER, -1);
    else if (chance(s, 4))
        ph_append_from(s, &s->words->manner, ph_draw_word(s, &s->words->manner), LEMMA,
                       HELPER, -1);
    int at = ph_append_from(s, list, which, form, ACTOR, subject->at);
    ph_link_rest(s, first, at);
    if (!ph_word_particle(list, which, particle)) particle[0] = 0;
    return at;
}

void ph_english_particle(sentence *s, char particle[WORD_BYTES], int verb)
{
    if (particle[0]) ph_append(s, particle, HELPER, verb);
    particle[0] = 0;
}

void ph_english_adverbs(sentence *s, int verb)
{
    const lexicon *w = s->words;
    if (chance(s, 22)) ph_english_place(s, verb);
    if (chance(s, 7))
        ph_append_from(s, &w->manner, ph_draw_word(s, &w->manner), LEMMA, HELPER, verb);
    else if (chance(s, 8))
        ph_append_from(s, &w->when, ph_draw_word(s, &w->when), LEMMA, HELPER, verb);
}

/* me, you, him: somebody whom the text does not name; not the subject. */
static phrase put_whom(sentence *s, int verb)
{
    phrase p = {.group = PERSON, .person = 3, .he = chance(s, 50), .fixed = 1};
    int r = below(s, 6);
    if (r < 2) p.person = 1 + r;
    p.plural = r == 2 || (r < 2 && chance(s, 40));
    s->combination = s->combination * 31 + (uint32_t)r;
    p.at = ph_append(s, pronoun_of(&p, OBJECT_FORM), OBJECT, verb);
    return p;
}

/* Object, of the given groups, and particle of a verb of frame f. */
phrase ph_english_object(sentence *s, int f, unsigned groups, int verb,
                         char particle[WORD_BYTES])
{
    phrase object = {.at = -1};
    groups &= s->words->from->frames[f].objects;
    if (!particle[0] || !groups || chance(s, 60)) ph_english_particle(s, particle, verb);
    if (groups & PEOPLE && chance(s, 15)) {
        object = put_whom(s, verb);
    } else if (groups) {
        object = put_long_phrase(s, groups);
        ph_set_link(s, &object, OBJECT, verb);
    }
    ph_english_particle(s, particle, verb);
    return object;
}

/* A verb with one of these objects; 0: without. */
clause ph_english_action(sentence *s, const phrase *subject, unsigned objects)
{
    int f = ph_draw_frame(s, subject, objects);
    const word_list *list = &s->words->frames[f];
    char particle[WORD_BYTES];
    clause c = {.subject = *subject};
    c.verb = ph_english_verb(s, list, ph_draw_word(s, list), subject, particle);
    ph_marry(s, subject, c.verb);
    c.object = ph_english_object(s, f, objects, c.verb, particle);
    return c;
}

void ph_english_degree(sentence *s)
{
    if (chance(s, 45))
        ph_append_one_of(s, "too too very very so quite really extremely more", HELPER,
                         s->count + 1);
}

/* "was too tired"; but: groups the adjective must not fit. */
clause ph_english_state(sentence *s, const phrase *subject, unsigned but)
{
    quality q;
    clause c = {.subject = *subject, .object = {.at = -1}};
    int negated = chance(s, 8), past = chance(s, 70);
    c.verb = ph_append(s, ph_english_be(s, subject, past), ACTOR, subject->at);
    ph_marry(s, subject, c.verb);
    if (negated) ph_append(s, "not", HELPER, c.verb);
    int adjective = ph_draw_adjective(s, subject->group, but, &q);
    ph_english_degree(s);
    ph_append_from(s, &s->words->adjectives[q], adjective, LEMMA, STATE, subject->at);
    return c;
}

/* was a teacher, was in the garden */
static clause put_being(sentence *s, const phrase *subject)
{
    clause c = {.subject = *subject, .object = {.at = -1}};
    c.verb = ph_append(s, ph_english_be(s, subject, chance(s, 60)), ACTOR, subject->at);
    ph_marry(s, subject, c.verb);
    if (chance(s, 60)) {
        ph_english_place(s, c.verb);
        return c;
    }
    phrase what = ph_english_phrase(
        s, HUMAN >> subject->group & 1 ? 1u << PERSON : 1u << subject->group);
    ph_set_link(s, &what, STATE, subject->at);
    return c;
}

static clause put_gift(sentence *s, const phrase *subject)
{
    const word_list *list = &s->words->giving;
    char particle[WORD_BYTES];
    clause c = {.subject = *subject};
    c.verb = ph_english_verb(s, list, ph_draw_word(s, list), subject, particle);
    ph_marry(s, subject, c.verb);
    if (chance(s, 50)) {
        phrase to = chance(s, 40) ? put_whom(s, c.verb) : ph_english_phrase(s, ALIVE);
        ph_set_link(s, &to, OBJECT, c.verb);
        c.object = ph_english_phrase(s, GOODS | 1 << FOOD);
        ph_set_link(s, &c.object, OBJECT, c.verb);
        return c;
    }
    c.object = ph_english_phrase(s, GOODS | 1 << FOOD);
    ph_set_link(s, &c.object, OBJECT, c.verb);
    int to = ph_append_one_of(s, "to to to for", CIRCUMSTANCE, -2);
    phrase whom = ph_english_phrase(s, ALIVE);
    s->link[to] = whom.at;
    ph_set_link(s, &whom, CIRCUMSTANCE, c.verb);
    return c;
}

/* wanted to eat the cake */
clause ph_english_wish(sentence *s, const phrase *subject)
{
    const word_list *list = &s->words->wanting;
    char particle[WORD_BYTES];
    clause c = {.subject = *subject};
    c.verb = ph_english_verb(s, list, ph_draw_word(s, list), subject, particle);
    ph_marry(s, subject, c.verb);
    int to = ph_append(s, "to", HELPER, -2);
    int f = ph_draw_frame(s, subject, chance(s, 60) ? ANY_OBJECT : 0);
    const word_list *verbs = &s->words->frames[f];
    int which = ph_draw_word(s, verbs);
    int verb = ph_append_from(s, verbs, which, LEMMA, ACTOR, subject->at);
    if (!ph_word_particle(verbs, which, particle)) particle[0] = 0;
    s->link[to] = verb;
    c.object = ph_english_object(s, f, ANY_OBJECT, verb, particle);
    return c;
}

/* ---- clauses ----------------------------------------------------------------------- */

/* Anything that a subject of this kind does or is. */
clause ph_english_predicate(sentence *s, const phrase *subject)
{
    int active = ACTING >> subject->group & 1, r = below(s, 100);
    int transitive = (ACTIVE | 1 << VEHICLE) >> subject->group & 1;
    clause c;
    if (!active || r < 14) {
        c = r % 3 ? ph_english_state(s, subject, 0) : put_being(s, subject);
    } else if (HUMAN >> subject->group & 1 && r < 20) {
        c = put_gift(s, subject);
    } else if (ALIVE >> subject->group & 1 && r < 27) {
        c = ph_english_wish(s, subject);
    } else {
        c = ph_english_action(s, subject, transitive && r < 72 ? ANY_OBJECT : 0);
    }
    ph_english_adverbs(s, c.verb);
    return c;
}

/* A place behind a subject can only be its own: the verb comes later. */
static phrase put_subject(sentence *s)
{
    int r = below(s, 100);
    if (r < 12) return ph_english_person(s);
    if (r < 14) /* "it rained" */
        return (phrase){
            .at = ph_append(s, "it", ACTOR, -2), .group = NATURE, .person = 3};
    phrase p =
        put_long_phrase(s, r < 70 ? ACTIVE | 1 << VEHICLE : ANYTHING | 1 << NATURE);
    if (chance(s, 7)) ph_english_place(s, p.at);
    return p;
}

clause ph_english_clause(sentence *s)
{
    int early = chance(s, 4)
                    ? ph_append_from(s, &s->words->when, ph_draw_word(s, &s->words->when),
                                     LEMMA, HELPER, -2)
                    : -1;
    int comma = early >= 0 && chance(s, 50) ? ph_append(s, ",", CLAUSE, -2) : -1;
    phrase subject = put_subject(s);
    clause c = ph_english_predicate(s, &subject);
    if (early >= 0) s->link[early] = c.verb;
    if (comma >= 0) s->link[comma] = c.verb;
    return c;
}

void ph_english_stop(sentence *s, int verb)
{
    if (chance(s, 90)) ph_append_one_of(s, ". . . . . . . . . !", CLAUSE, verb);
}
