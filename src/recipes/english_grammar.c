/*
 * english_grammar.c - English sentences of the recipe "pronouns".
 */
#include <string.h>

#include "recipes/english_parts.h"

/* ---- sentences --------------------------------------------------------------------- */

static void plain(sentence *s)
{
    ph_english_stop(s, ph_english_clause(s).verb);
}

/* What is said of one of two phrases; a pronoun that fits both needs words that do not.
   Returns the verb. */
static int say_of(sentence *s, const phrase *whose, const phrase *other)
{
    unsigned but = ph_alike(whose, other) ? 1u << other->group : 0;
    int living = ALIVE >> whose->group & 1, r = below(s, 100);
    phrase p = ph_english_pronoun(s, whose, SUBJECT_FORM);
    if (but >> whose->group & 1) s->failed = 1;
    if (r < 72 || !(ACTIVE >> whose->group & 1)) return ph_english_state(s, &p, but).verb;
    if (but & ACTIVE) s->failed = 1; /* both could do it */
    clause c = r < 90 || !living
                   ? ph_english_action(s, &p, r < 80 && living ? ANY_OBJECT : 0)
                   : ph_english_wish(s, &p);
    ph_english_adverbs(s, c.verb);
    return c.verb;
}

/* ... because PRONOUN was ADJECTIVE; or the same as a second sentence */
static void give_reason(sentence *s, const clause *c)
{
    int r = below(s, 100), next;
    if (r < 70)
        ph_append_one_of(s, "because because because because since as", REASON, c->verb);
    else if (r < 80)
        ph_append_one_of(s, "when while although but if until", CLAUSE, c->verb);
    else
        ph_append(s, ".", CLAUSE, c->verb);
    if (chance(s, 50))
        next = say_of(s, &c->subject, &c->object);
    else
        next = say_of(s, &c->object, &c->subject);
    ph_english_stop(s, r < 80 ? c->verb : next);
}

static void reason(sentence *s)
{
    phrase subject = chance(s, 12) ? ph_english_person(s)
                                   : ph_english_phrase(s, ACTIVE | 1 << VEHICLE);
    clause c = ph_english_action(s, &subject, ANY_OBJECT);
    give_reason(s, &c);
}

/* Two people: he or she tells who is meant. */
static void people(sentence *s)
{
    const unsigned men = 1 << MAN | 1 << HE_NAME, women = 1 << WOMAN | 1 << SHE_NAME;
    int man_first = chance(s, 50);
    phrase subject = ph_english_phrase(s, man_first ? men : women);
    clause c = ph_english_action(s, &subject, man_first ? women : men);
    give_reason(s, &c);
}

/* S was ADJECTIVE, so PRONOUN V ... */
static void result(sentence *s)
{
    phrase subject = ph_english_phrase(s, ACTIVE | 1 << VEHICLE);
    clause c = ph_english_state(s, &subject, 0);
    if (chance(s, 60)) ph_append(s, ",", CLAUSE, c.verb);
    if (chance(s, 70))
        ph_append(s, "so", REASON, c.verb);
    else
        ph_append_one_of(s, "and but", CLAUSE, c.verb);
    phrase p = ph_english_pronoun(s, &subject, SUBJECT_FORM);
    clause next = ph_english_action(s, &p, chance(s, 60) ? ANY_OBJECT : 0);
    ph_english_adverbs(s, next.verb);
    ph_english_stop(s, c.verb);
}

/* S V O and V PRONOUN: the object again */
static void twice(sentence *s)
{
    phrase subject = ph_english_phrase(s, ALIVE);
    clause c = ph_english_action(s, &subject, ANY_OBJECT);
    ph_append_one_of(s, "and and and but", CLAUSE, c.verb);
    if (chance(s, 20)) ph_append(s, "then", HELPER, s->count + 1);
    int f = ph_draw_frame(s, &subject, 1u << c.object.group);
    verb_words v = ph_english_form(s, &s->words->frames[f], PAST, subject.at);
    phrase again = ph_english_pronoun(s, &c.object, OBJECT_FORM);
    if (s->link[again.at] == -2) ph_set_link(s, &again, OBJECT, v.at);
    ph_english_particle(s, &v);
    if (chance(s, 20)) ph_english_adverbs(s, v.at);
    ph_english_stop(s, c.verb);
}

/* S V O and V O: the subject again */
static void chain(sentence *s)
{
    phrase subject = chance(s, 40) ? ph_english_person(s) : ph_english_phrase(s, ALIVE);
    clause c = ph_english_predicate(s, &subject);
    if (chance(s, 15)) ph_append(s, ",", CLAUSE, c.verb);
    ph_append_one_of(s, "and and and and but or", CLAUSE, c.verb);
    clause next = ph_english_action(s, &subject, chance(s, 65) ? ANY_OBJECT : 0);
    ph_english_adverbs(s, next.verb);
    ph_english_stop(s, c.verb);
}

/* S V his O */
static void owner(sentence *s)
{
    phrase subject = chance(s, 25) ? ph_english_person(s) : ph_english_phrase(s, ALIVE);
    int f = ph_draw_frame(s, &subject, ANY_OBJECT & ~BARE);
    unsigned groups = s->words->from->frames[f].objects & ~(unsigned)BARE;
    verb_words v = ph_english_verb(s, &s->words->frames[f], &subject);
    ph_english_particle(s, &v);
    noun_group g = ph_draw_group(s, groups);
    phrase his = ph_english_pronoun(s, &subject, OWNER_FORM);
    phrase what = ph_english_noun(s, g, chance(s, 20) && !(UNCOUNTED >> g & 1));
    ph_set_link(s, &what, OBJECT, v.at);
    if (s->link[his.at] == -2) ph_set_link(s, &his, DETERMINER, what.at);
    ph_english_adverbs(s, v.at);
    if (chance(s, 15)) { /* and could not open the door */
        ph_append_one_of(s, "and and but", CLAUSE, v.at);
        ph_english_action(s, &subject, chance(s, 65) ? ANY_OBJECT : 0);
    }
    ph_english_stop(s, v.at);
}

/* Behind a noun: who V O, that S V. The noun's own link stays as it is. */
static void put_relative(sentence *s, const phrase *noun)
{
    int link = s->link[noun->at], human = PEOPLE >> noun->group & 1;
    relation role = s->role[noun->at];
    if (ACTIVE >> noun->group & 1 && chance(s, 65)) {
        ph_append_one_of(s, human ? "who who that" : "that that which", REFERENCE,
                         noun->at);
        s->link[noun->at] = -2;
        if (chance(s, 60))
            ph_english_action(s, noun, chance(s, 75) ? ANY_OBJECT : 0);
        else
            ph_english_predicate(s, noun);
    } else {
        if (chance(s, 80)) ph_append(s, "that", REFERENCE, noun->at);
        phrase other = chance(s, 35) ? ph_english_person(s) : ph_english_phrase(s, HUMAN);
        int f = ph_draw_frame(s, &other, 1u << noun->group);
        verb_words v = ph_english_verb(s, &s->words->frames[f], &other);
        ph_english_particle(s, &v);
        if (chance(s, 20))
            ph_append_one_of(s, "yesterday today here again", HELPER, v.at);
    }
    s->link[noun->at] = link, s->role[noun->at] = role;
}

/* S who V ... V ..., S V O that ... */
static void relative(sentence *s)
{
    const unsigned told = PEOPLE | 1 << ANIMAL | 1 << MACHINE;
    if (chance(s, 65)) {
        phrase subject = ph_english_phrase(s, told | 1 << THING | 1 << WRITING);
        put_relative(s, &subject);
        ph_english_stop(s, ph_english_predicate(s, &subject).verb);
        return;
    }
    phrase subject = chance(s, 60) ? ph_english_person(s) : ph_english_phrase(s, HUMAN);
    int f = ph_draw_frame(s, &subject, told | GOODS | 1 << FOOD);
    unsigned groups = s->words->from->frames[f].objects & (told | GOODS | 1 << FOOD);
    verb_words v = ph_english_verb(s, &s->words->frames[f], &subject);
    ph_english_particle(s, &v);
    phrase object = ph_english_phrase(s, groups);
    ph_set_link(s, &object, OBJECT, v.at);
    put_relative(s, &object);
    ph_english_stop(s, v.at);
}

/* A clause about the subject of an earlier one, by its pronoun, or about another. */
static clause put_next(sentence *s, const phrase *before)
{
    if (!before || !chance(s, 40)) return ph_english_clause(s);
    phrase p = ph_english_pronoun(s, before, SUBJECT_FORM);
    return ph_english_predicate(s, &p);
}

/* The subject of a clause, where a pronoun can stand for nothing else in it. */
static const phrase *only_subject(const clause *c)
{
    return c->object.at < 0 || !ph_alike(&c->subject, &c->object) ? &c->subject : NULL;
}

/* clause CONJUNCTION clause; CONJUNCTION clause, clause */
static void two_clauses(sentence *s)
{
    static const char conjunctions[] =
        "when while if although before after until because since but and so unless or "
        "though";
    if (chance(s, 40)) {
        int conjunction = ph_append_one_of(
            s, "when if because although while since after before", CLAUSE, -2);
        clause first = ph_english_clause(s);
        int comma = ph_append(s, ",", CLAUSE, -2);
        clause c = put_next(s, only_subject(&first));
        s->link[conjunction] = s->link[comma] = c.verb;
        if (strstr("because since", s->word[conjunction])) s->role[conjunction] = REASON;
        ph_english_stop(s, c.verb);
        return;
    }
    clause c = ph_english_clause(s);
    if (chance(s, 20)) ph_append(s, ",", CLAUSE, c.verb);
    int at = ph_append_one_of(s, conjunctions, CLAUSE, c.verb);
    if (strstr("because since so", s->word[at])) s->role[at] = REASON;
    put_next(s, only_subject(&c));
    ph_english_stop(s, c.verb);
}

/* I think that she is right. He told me that he was tired. */
static void saying(sentence *s)
{
    phrase subject = chance(s, 50) ? ph_english_person(s) : ph_english_phrase(s, HUMAN);
    int told = chance(s, 15), verb;
    phrase whom = {.at = -1};
    if (told) {
        word_list telling;
        ph_split_list(&telling, "tell/told/told promise warn");
        verb = ph_english_verb(s, &telling, &subject).at;
        whom = chance(s, 50) ? ph_english_whom(s, verb) : ph_english_phrase(s, HUMAN);
        ph_set_link(s, &whom, OBJECT, verb);
    } else {
        verb = ph_english_verb(s, &s->words->saying, &subject).at;
    }
    if (chance(s, 60))
        ph_append_one_of(s, "that that that that whether if", CLAUSE, verb);
    put_next(s, told && ph_alike(&subject, &whom) ? NULL : &subject);
    ph_english_stop(s, verb);
}

void ph_compose_english(sentence *s)
{
    static const sentence_kind kinds[] = {
        {reason, 12}, {people, 3}, {plain, 7}, {twice, 2}, {chain, 3}, {owner, 3},
        {relative, 4}, {two_clauses, 5}, {result, 2}, {saying, 3},
        {ph_english_question, 7}, {ph_english_request, 3}, {ph_english_greeting, 2},
        {ph_english_existence, 2}, {ph_english_weather, 1}};
    ph_compose_one_of(s, kinds, (int)(sizeof kinds / sizeof kinds[0]));
}
