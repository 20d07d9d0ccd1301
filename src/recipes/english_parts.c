/*
 * english_parts.c - verbs and clauses of English sentences.
 */
#include <stdio.h>
#include <string.h>

#include "recipes/english_parts.h"

/* ---- verbs ------------------------------------------------------------------------- */

static int is_one(const phrase *p)
{
    return !p->plural && p->person == 3;
}

const char *ph_english_be(const phrase *p, int past)
{
    int i = p->person == 1 && !p->plural;
    if (past) return is_one(p) || i ? "was" : "were";
    return is_one(p) ? "is" : i ? "am" : "are";
}

/* "is" or, behind a pronoun, "'s". */
static const char *short_be(sentence *s, const phrase *p)
{
    static const char pronouns[] = " i you we they he she it that ";
    char found[WORD_BYTES + 2];
    snprintf(found, sizeof found, " %s ", s->count ? s->word[s->count - 1] : "?");
    if (p->at != s->count - 1 || !strstr(pronouns, found) || !chance(s, 50))
        return ph_english_be(p, 0);
    return is_one(p) ? "'s" : p->person == 1 && !p->plural ? "'m" : "'re";
}

static void put_be(sentence *s, const phrase *p)
{
    ph_append(s, chance(s, 50) ? ph_english_be(p, 1) : short_be(s, p), HELPER, -1);
    if (chance(s, 12)) ph_append(s, "not", HELPER, -1);
}

static void put_have(sentence *s, const phrase *p)
{
    int pronoun = p->at == s->count - 1 && p->person != 3;
    ph_append(s,
              chance(s, 30)              ? "had"
              : pronoun && chance(s, 30) ? "'ve"
              : is_one(p)                ? "has"
                                         : "have",
              HELPER, -1);
    if (!strcmp(s->word[s->count - 1], "'ve") || chance(s, 75)) return;
    if (chance(s, 40))
        strcat(s->word[s->count - 1], "n't");
    else
        ph_append_one_of(s, "not never already just", HELPER, -1);
}

/* "will not", "couldn't" */
static void put_modal(sentence *s, const phrase *p)
{
    int pronoun = p->at == s->count - 1 && p->person != 3, r = below(s, 100);
    if (r < 25) {
        ph_append_one_of(s, "couldn't can't won't wouldn't shouldn't cannot mustn't",
                         HELPER, -1);
    } else if (r < 35 && pronoun) {
        ph_append_one_of(s, "'ll 'll 'd", HELPER, -1);
    } else {
        ph_append_one_of(s, "will will can can must should might could would may shall",
                         HELPER, -1);
        if (chance(s, 15)) ph_append(s, "not", HELPER, -1);
    }
}

/* The auxiliaries of a random tense; returns the form of the verb. */
static word_form put_tense(sentence *s, const phrase *p)
{
    int one = is_one(p), r = below(s, 100);
    if (r < 40) return PAST;
    if (r < 58) return one ? THIRD : LEMMA;
    if (r < 66) {
        ph_append(s, "didn't", HELPER, -1);
    } else if (r < 70) {
        ph_append(s, one ? "doesn't" : "don't", HELPER, -1);
    } else if (r < 74) {
        ph_append(s, chance(s, 50) ? "did" : one ? "does" : "do", HELPER, -1);
        ph_append(s, "not", HELPER, -1);
    } else if (r < 86) {
        put_modal(s, p);
    } else if (r < 94) {
        put_be(s, p);
        return ING;
    } else {
        put_have(s, p);
        if (r < 99) return PARTICIPLE;
        ph_append(s, "been", HELPER, -1);
        return ING;
    }
    return LEMMA;
}

/* A verb without a subject of its own before it. */
verb_words ph_english_form(sentence *s, const word_list *list, word_form form, int link)
{
    verb_words v = {0};
    int which = ph_draw_word(s, list);
    v.at = ph_append_from(s, list, which, form, ACTOR, link);
    if (!ph_word_particle(list, which, v.particle)) v.particle[0] = 0;
    return v;
}

verb_words ph_english_verb(sentence *s, const word_list *list, const phrase *subject)
{
    const lexicon *w = s->words;
    int first = s->count;
    word_form form = put_tense(s, subject);
    if (chance(s, 8))
        ph_append_from(s, &w->frequency, ph_draw_word(s, &w->frequency), LEMMA, HELPER,
                       -1);
    else if (chance(s, 4))
        ph_append_from(s, &w->manner, ph_draw_word(s, &w->manner), LEMMA, HELPER, -1);
    verb_words v = ph_english_form(s, list, form, subject->at);
    ph_link_rest(s, first, v.at);
    ph_marry(s, subject, v.at);
    return v;
}

/* "was", "is not", "will be", "has never been" */
int ph_english_being(sentence *s, const phrase *subject)
{
    int first = s->count, r = below(s, 100), at;
    if (r < 12)
        put_modal(s, subject);
    else if (r < 18)
        put_have(s, subject);
    if (r < 18)
        at = ph_append(s, r < 12 ? "be" : "been", ACTOR, subject->at);
    else if (r < 28)
        at = ph_append(s,
                       is_one(subject) ? (r & 1 ? "isn't" : "wasn't")
                                       : (r & 1 ? "aren't" : "weren't"),
                       ACTOR, subject->at);
    else
        at = ph_append(s, r < 66 ? ph_english_be(subject, 1) : short_be(s, subject),
                       ACTOR, subject->at);
    ph_link_rest(s, first, at);
    ph_marry(s, subject, at);
    if (r >= 28 && chance(s, 12))
        ph_append_one_of(s, "not not not always never often also still already yet",
                         HELPER, at);
    return at;
}

void ph_english_particle(sentence *s, verb_words *v)
{
    if (v->particle[0]) ph_append(s, v->particle, HELPER, v->at);
    v->particle[0] = 0;
}

static void put_manner(sentence *s, int verb)
{
    const lexicon *w = s->words;
    int r = below(s, 100), next = s->count + 1;
    if (r < 20) { /* very much, a lot */
        ph_append(s, r < 12 ? "very" : "a", HELPER, next);
        ph_append(s, r >= 12 ? "lot" : r < 6 ? "much" : "well", HELPER, verb);
        return;
    }
    if (r < 28) ph_append_one_of(s, "very too so really", HELPER, next);
    ph_append_from(s, &w->manner, ph_draw_word(s, &w->manner), LEMMA, HELPER, verb);
}

void ph_english_adverbs(sentence *s, int verb)
{
    const lexicon *w = s->words;
    if (chance(s, 22)) ph_english_place(s, verb);
    int r = below(s, 100);
    if (r < 7)
        put_manner(s, verb);
    else if (r < 15)
        ph_append_from(s, &w->when, ph_draw_word(s, &w->when), LEMMA, HELPER, verb);
    else if (r < 20)
        ph_english_time(s, verb);
}

/* Object, of the given groups, and particle of a verb of frame f. */
phrase ph_english_object(sentence *s, int f, unsigned groups, verb_words *v)
{
    phrase object = {.at = -1};
    groups &= s->words->from->frames[f].objects;
    if (!groups || chance(s, 60)) ph_english_particle(s, v);
    if (groups & PEOPLE && chance(s, 25)) {
        object = ph_english_whom(s, v->at);
    } else if (groups && groups != ALIVE && chance(s, 3)) {
        object = (phrase){.at = ph_append_one_of(s, "this that something", OBJECT, v->at),
                          .group = THING,
                          .person = 3,
                          .vague = 1};
    } else if (groups) {
        object = ph_english_long_phrase(s, groups);
        ph_set_link(s, &object, OBJECT, v->at);
    }
    ph_english_particle(s, v);
    return object;
}

/* ---- what a subject does ----------------------------------------------------------- */

/* himself: no other pronoun can stand for it. */
static phrase put_reflexive(sentence *s, const phrase *of)
{
    static const char *const forms[] = {"myself",  "ourselves",  "yourself", "yourself",
                                        "himself", "themselves", "herself",  "itself"};
    int human = HUMAN >> of->group & 1, kind = 2 * (of->person - 1) + of->plural;
    if (kind == 4 && !of->he) kind = human ? 6 : 7;
    return (phrase){.at = ph_append(s, forms[kind], REFERENCE, of->at),
                    .group = of->group,
                    .person = 3,
                    .vague = 1};
}

/* A verb with one of these objects; 0: without. */
clause ph_english_action(sentence *s, const phrase *subject, unsigned objects)
{
    int f = ph_draw_frame(s, subject, objects);
    clause c = {.subject = *subject};
    verb_words v = ph_english_verb(s, &s->words->frames[f], subject);
    c.verb = v.at;
    if (s->words->from->frames[f].objects & objects & PEOPLE && !subject->vague &&
        chance(s, 15)) {
        c.object = put_reflexive(s, subject);
        ph_english_particle(s, &v);
    } else {
        c.object = ph_english_object(s, f, objects, &v);
    }
    return c;
}

/* was broken by the ball */
static clause put_passive(sentence *s, const phrase *subject)
{
    clause c = {.subject = *subject, .object = {.at = -1}};
    int f = ph_draw_frame_of(s, subject->group), first = s->count, r = below(s, 100);
    if (r < 15)
        put_modal(s, subject), ph_append(s, "be", HELPER, -1);
    else if (r < 25)
        put_have(s, subject), ph_append(s, "been", HELPER, -1);
    else
        put_be(s, subject);
    verb_words v = ph_english_form(s, &s->words->frames[f], PARTICIPLE, subject->at);
    c.verb = v.at;
    ph_link_rest(s, first, v.at);
    ph_marry(s, subject, v.at);
    ph_english_particle(s, &v);
    if (chance(s, 45)) {
        int by = ph_append(s, "by", CIRCUMSTANCE, -2);
        phrase who = ph_english_phrase(s, s->words->from->frames[f].subjects);
        s->link[by] = who.at;
        ph_set_link(s, &who, CIRCUMSTANCE, c.verb);
    }
    return c;
}

/* "me the book", "the book to Anna" */
void ph_english_gift(sentence *s, clause *c)
{
    const unsigned goods = GOODS | 1 << FOOD;
    if (chance(s, 55)) {
        phrase to =
            chance(s, 45) ? ph_english_whom(s, c->verb) : ph_english_phrase(s, ALIVE);
        ph_set_link(s, &to, OBJECT, c->verb);
        c->object = ph_english_phrase(s, goods);
        ph_set_link(s, &c->object, OBJECT, c->verb);
        return;
    }
    c->object = ph_english_phrase(s, goods);
    ph_set_link(s, &c->object, OBJECT, c->verb);
    int to = ph_append_one_of(s, "to to to for", CIRCUMSTANCE, -2);
    phrase whom =
        chance(s, 25) ? ph_english_whom(s, c->verb) : ph_english_phrase(s, ALIVE);
    s->link[to] = whom.at;
    ph_set_link(s, &whom, CIRCUMSTANCE, c->verb);
}

static clause put_gift(sentence *s, const phrase *subject)
{
    clause c = {.subject = *subject};
    verb_words v = ph_english_verb(s, &s->words->giving, subject);
    c.verb = v.at;
    ph_english_gift(s, &c);
    return c;
}

/* "to eat the cake": what `who` wants to do. */
static phrase put_infinitive(sentence *s, const phrase *who)
{
    int to = ph_append(s, "to", HELPER, -2);
    if (chance(s, 12)) { /* "to become a doctor" */
        s->link[to] = ph_append_one_of(s, "be become", ACTOR, who->at);
        if (HUMAN >> who->group & 1 && chance(s, 50)) {
            phrase what = ph_english_phrase(s, 1u << PERSON);
            ph_set_link(s, &what, STATE, who->at);
        } else {
            ph_english_said(s, who, 0);
        }
        return (phrase){.at = -1};
    }
    int f = ph_draw_frame(s, who, chance(s, 60) ? ANY_OBJECT : 0);
    verb_words v = ph_english_form(s, &s->words->frames[f], LEMMA, who->at);
    s->link[to] = v.at;
    phrase object = ph_english_object(s, f, ANY_OBJECT, &v);
    if (chance(s, 25)) ph_english_adverbs(s, v.at);
    return object;
}

/* am going, have, would like: before "to" */
static int put_intention(sentence *s, const phrase *subject)
{
    int first = s->count, r = below(s, 100), at;
    if (r < 50) {
        put_be(s, subject);
        at = ph_append(s, "going", ACTOR, subject->at);
    } else if (r < 75) {
        at = ph_append(s,
                       r < 60            ? "had"
                       : is_one(subject) ? "has"
                                         : "have",
                       ACTOR, subject->at);
    } else {
        ph_append(s, "would", HELPER, -1);
        at = ph_append_one_of(s, "like like love", ACTOR, subject->at);
    }
    ph_link_rest(s, first, at);
    ph_marry(s, subject, at);
    return at;
}

/* wanted to eat the cake; is going to eat it; likes eating cakes */
clause ph_english_wish(sentence *s, const phrase *subject)
{
    clause c = {.subject = *subject};
    int r = below(s, 100);
    if (r < 25) {
        c.verb = put_intention(s, subject);
    } else if (r < 40) {
        c.verb = ph_english_verb(s, &s->words->enjoying, subject).at;
        int f = ph_draw_frame(s, subject, chance(s, 60) ? ANY_OBJECT : 0);
        verb_words v = ph_english_form(s, &s->words->frames[f], ING, subject->at);
        c.object = ph_english_object(s, f, ANY_OBJECT, &v);
        return c;
    } else {
        c.verb = ph_english_verb(s, &s->words->wanting, subject).at;
    }
    c.object = put_infinitive(s, subject);
    return c;
}

/* told the patient to rest */
static clause put_demand(sentence *s, const phrase *subject)
{
    clause c = {.subject = *subject};
    c.verb = ph_english_verb(s, &s->words->asking, subject).at;
    phrase who = chance(s, 40) ? ph_english_whom(s, c.verb) : ph_english_phrase(s, ALIVE);
    ph_set_link(s, &who, OBJECT, c.verb);
    put_infinitive(s, &who);
    c.object = who;
    return c;
}

/* ---- what a subject is ------------------------------------------------------------- */

void ph_english_degree(sentence *s)
{
    if (chance(s, 45))
        ph_append_one_of(s,
                         "too too very very so quite really extremely more pretty rather",
                         HELPER, s->count + 1);
}

/* "too tired", of a subject that has its verb; but: groups the adjective must not fit. A
   participle would be a passive. */
void ph_english_said(sentence *s, const phrase *subject, unsigned but)
{
    quality q;
    int index = ph_draw_adjective(s, subject->group, but, &q);
    if (s->words->participle[q][index]) s->failed = 1;
    ph_english_degree(s);
    int at =
        ph_append_from(s, &s->words->adjectives[q], index, LEMMA, STATE, subject->at);
    if (but || !chance(s, 5)) return;
    int and = ph_append_one_of(s, "and and but", CLAUSE, s->count + 1);
    index = ph_draw_adjective(s, subject->group, but, &q);
    ph_append_from(s, &s->words->adjectives[q], index, LEMMA, CLAUSE, at);
    (void)and;
}

clause ph_english_state(sentence *s, const phrase *subject, unsigned but)
{
    clause c = {.subject = *subject, .object = {.at = -1}};
    c.verb = chance(s, 8) && ALIVE >> subject->group & 1
                 ? ph_english_verb(s, &s->words->linking, subject).at
                 : ph_english_being(s, subject);
    ph_english_said(s, subject, but);
    return c;
}

/* was bigger than Anna, as big as, more beautiful than */
static clause put_comparison(sentence *s, const phrase *subject)
{
    const lexicon *w = s->words;
    clause c = {.subject = *subject, .object = {.at = -1}};
    quality q = OF_ALL;
    int short_form = chance(s, 60), as = !short_form && chance(s, 40);
    c.verb = ph_english_being(s, subject);
    if (short_form && chance(s, 20)) ph_append(s, "much", HELPER, s->count + 1);
    if (!short_form) ph_append(s, as ? "as" : "more", HELPER, s->count + 1);
    int index = short_form ? ph_draw_word(s, &w->comparing)
                           : ph_draw_adjective(s, subject->group, 0, &q);
    int at = ph_append_from(s, short_form ? &w->comparing : &w->adjectives[q], index,
                            LEMMA, STATE, subject->at);
    if (short_form && chance(s, 25)) return c;
    int than = ph_append(s, as ? "as" : "than", CIRCUMSTANCE, -2);
    phrase other =
        chance(s, 30)
            ? (phrase){.at = ph_append_one_of(
                           s, "me you him her us them mine yours hers ours theirs this",
                           ACTOR, -2)}
            : ph_english_phrase(s, 1u << subject->group);
    s->link[than] = other.at;
    ph_set_link(s, &other, CIRCUMSTANCE, at);
    return c;
}

/* was a teacher, was in the garden, became a teacher */
static clause put_being(sentence *s, const phrase *subject)
{
    clause c = {.subject = *subject, .object = {.at = -1}};
    unsigned same = HUMAN >> subject->group & 1  ? 1u << PERSON
                    : subject->group == CITY     ? 1u << PLACE
                    : BARE >> subject->group & 1 ? 1u << IDEA
                                                 : 1u << subject->group;
    c.verb = ph_english_being(s, subject);
    int r = below(s, 100);
    if (r < 50) {
        ph_english_place(s, c.verb);
        return c;
    }
    if (r < 58) { /* here, at home */
        ph_append_one_of(s, "here there home away back outside inside", HELPER, c.verb);
        return c;
    }
    if (r < 64 && HUMAN >> subject->group & 1) same = NAMED;
    phrase what = ph_english_long_phrase(s, same);
    ph_set_link(s, &what, STATE, subject->at);
    return c;
}

/* ---- clauses ----------------------------------------------------------------------- */

/* Of subjects that do nothing by themselves. */
static clause put_quiet(sentence *s, const phrase *subject, int r)
{
    int thing = (ANYTHING & ~ACTIVE) >> subject->group & 1;
    if (thing && r % 10 < 3) return put_passive(s, subject);
    if (r % 10 < 4) return put_comparison(s, subject);
    return r % 10 < 8 ? ph_english_state(s, subject, 0) : put_being(s, subject);
}

/* Anything that a subject of this kind does or is. */
clause ph_english_predicate(sentence *s, const phrase *subject)
{
    int acting = ACTING >> subject->group & 1, r = below(s, 100);
    int human = HUMAN >> subject->group & 1, alive = ALIVE >> subject->group & 1;
    int transitive = (ACTIVE | 1 << VEHICLE) >> subject->group & 1;
    clause c;
    if (!acting || r < 20)
        c = put_quiet(s, subject, acting ? r : below(s, 100));
    else if (r < 23 && ANYTHING >> subject->group & 1)
        c = put_passive(s, subject);
    else if (human && r < 29)
        c = put_gift(s, subject);
    else if (alive && r < 40)
        c = ph_english_wish(s, subject);
    else if (human && r < 44)
        c = put_demand(s, subject);
    else
        c = ph_english_action(s, subject, transitive && r < 80 ? ANY_OBJECT : 0);
    ph_english_adverbs(s, c.verb);
    return c;
}

/* A place behind a subject can only be its own: the verb comes later. */
phrase ph_english_subject(sentence *s)
{
    int r = below(s, 100);
    if (r < 20) return ph_english_person(s);
    phrase p = ph_english_long_phrase(s, r < 70   ? ACTIVE | 1 << VEHICLE
                                         : r < 95 ? ANYTHING | 1 << NATURE | 1 << BODY
                                                  : 1 << CITY | 1 << ACTIVITY);
    if (chance(s, 6)) ph_english_place(s, p.at);
    return p;
}

clause ph_english_clause(sentence *s)
{
    int early = chance(s, 5)
                    ? ph_append_from(s, &s->words->when, ph_draw_word(s, &s->words->when),
                                     LEMMA, HELPER, -2)
                    : -1;
    int comma = early >= 0 && chance(s, 50) ? ph_append(s, ",", CLAUSE, -2) : -1;
    phrase subject = ph_english_subject(s);
    clause c = ph_english_predicate(s, &subject);
    if (early >= 0) s->link[early] = c.verb;
    if (comma >= 0) s->link[comma] = c.verb;
    return c;
}

void ph_english_stop(sentence *s, int verb)
{
    if (chance(s, 90))
        ph_append_one_of(s, chance(s, 95) ? ". . . . . . . . . !" : "... ; : - – ) ( \"",
                         CLAUSE, verb);
}
