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
    char particle[WORD_BYTES];
    ph_append_one_of(s, "and and and but", CLAUSE, c.verb);
    if (chance(s, 20)) ph_append(s, "then", HELPER, s->count + 1);
    int f = ph_draw_frame(s, &subject, 1u << c.object.group);
    const word_list *list = &s->words->frames[f];
    int which = ph_draw_word(s, list);
    int next = ph_append_from(s, list, which, PAST, ACTOR, subject.at);
    ph_english_pronoun(s, &c.object, OBJECT_FORM);
    if (ph_word_particle(list, which, particle)) ph_english_particle(s, particle, next);
    if (chance(s, 20)) ph_english_adverbs(s, next);
    ph_english_stop(s, c.verb);
}

/* S V his O */
static void owner(sentence *s)
{
    phrase subject = chance(s, 15) ? ph_english_person(s) : ph_english_phrase(s, ALIVE);
    int f = ph_draw_frame(s, &subject, ANY_OBJECT);
    const word_list *list = &s->words->frames[f];
    char particle[WORD_BYTES];
    int verb = ph_english_verb(s, list, ph_draw_word(s, list), &subject, particle);
    ph_marry(s, &subject, verb);
    ph_english_particle(s, particle, verb);
    noun_group g = ph_draw_group(s, s->words->from->frames[f].objects & ~(unsigned)NAMED);
    ph_english_pronoun(s, &subject, OWNER_FORM);
    quality q;
    int described = chance(s, 25),
        adjective = described ? ph_draw_adjective(s, g, 0, &q) : 0;
    if (described)
        ph_append_from(s, &s->words->adjectives[q], adjective, LEMMA, PROPERTY,
                       s->count + 1);
    ph_append_from(s, &s->words->nouns[g], ph_draw_word(s, &s->words->nouns[g]),
                   chance(s, 20) && !(UNCOUNTED >> g & 1) ? PLURAL : LEMMA, OBJECT, verb);
    ph_english_adverbs(s, verb);
    ph_english_stop(s, verb);
}

/* S that V O V ..., S that S V V ... */
static void relative(sentence *s)
{
    phrase subject = ph_english_phrase(s, PEOPLE | 1 << ANIMAL | 1 << MACHINE);
    int human = PEOPLE >> subject.group & 1;
    if (chance(s, 65)) {
        ph_append_one_of(s, human ? "who who that" : "that that which", REFERENCE,
                         subject.at);
        clause inner = ph_english_action(s, &subject, chance(s, 75) ? ANY_OBJECT : 0);
        s->link[subject.at] = -2;
        if (chance(s, 15)) ph_english_place(s, inner.verb);
    } else {
        if (chance(s, 80)) ph_append(s, "that", REFERENCE, subject.at);
        phrase other = ph_english_phrase(s, subject.group == MACHINE ? HUMAN : ALIVE);
        int f = ph_draw_frame(s, &other, 1u << subject.group);
        const word_list *list = &s->words->frames[f];
        char particle[WORD_BYTES];
        int verb = ph_english_verb(s, list, ph_draw_word(s, list), &other, particle);
        ph_marry(s, &other, verb);
        ph_english_particle(s, particle, verb);
    }
    clause c = ph_english_predicate(s, &subject);
    ph_english_stop(s, c.verb);
}

/* clause CONJUNCTION clause; CONJUNCTION clause, clause */
static void two_clauses(sentence *s)
{
    static const char conjunctions[] =
        "when while if although before after until because since but and so unless";
    if (chance(s, 40)) {
        int conjunction = ph_append_one_of(
            s, "when if because although while since after before", CLAUSE, -2);
        ph_english_clause(s);
        int comma = ph_append(s, ",", CLAUSE, -2);
        clause c = ph_english_clause(s);
        s->link[conjunction] = s->link[comma] = c.verb;
        if (strstr("because since", s->word[conjunction])) s->role[conjunction] = REASON;
        ph_english_stop(s, c.verb);
        return;
    }
    clause c = ph_english_clause(s);
    if (chance(s, 20)) ph_append(s, ",", CLAUSE, c.verb);
    int at = ph_append_one_of(s, conjunctions, CLAUSE, c.verb);
    if (strstr("because since so", s->word[at])) s->role[at] = REASON;
    ph_english_clause(s);
    ph_english_stop(s, c.verb);
}

static void saying(sentence *s)
{
    phrase subject = chance(s, 35) ? ph_english_person(s) : ph_english_phrase(s, HUMAN);
    char particle[WORD_BYTES];
    const word_list *list = &s->words->saying;
    int verb = ph_english_verb(s, list, ph_draw_word(s, list), &subject, particle);
    ph_marry(s, &subject, verb);
    if (chance(s, 65)) ph_append(s, "that", CLAUSE, verb);
    ph_english_clause(s);
    ph_english_stop(s, verb);
}

/* Did S V O? Why did S V O? What did S V? Is S ADJECTIVE? Where is S? Who V O? */
static void question(sentence *s)
{
    int r = below(s, 100), verb, first = s->count;
    if (r < 15) {
        int who = ph_append_one_of(s, "who who what", ACTOR, -2);
        phrase p = {.at = who, .group = PERSON, .person = 3};
        verb = ph_english_action(s, &p, ANY_OBJECT).verb;
    } else if (r < 40) {
        int where =
            r < 28 ? ph_append_one_of(s, "where where why how what who", HELPER, -2) : -1;
        int at = ph_append(s, "is", ACTOR, -2);
        phrase p = ph_english_phrase(s, ANYTHING | NAMED);
        strcpy(s->word[at], ph_english_be(s, &p, chance(s, 40)));
        s->link[at] = p.at;
        ph_set_link(s, &p, ACTOR, at);
        if (where >= 0) s->link[where] = at;
        quality q;
        if (where < 0) {
            int adjective = ph_draw_adjective(s, p.group, 0, &q);
            ph_english_degree(s);
            ph_append_from(s, &s->words->adjectives[q], adjective, LEMMA, STATE, p.at);
        }
        verb = at;
    } else {
        int what = r >= 90;
        if (r >= 70)
            ph_append_one_of(s, what ? "what what who" : "why why when how where",
                             what ? OBJECT : HELPER, -1);
        int aux = ph_append_one_of(s, "did did did does can will could should must would",
                                   HELPER, -1);
        phrase p = chance(s, 30) ? ph_english_person(s) : ph_english_phrase(s, ALIVE);
        if (!strcmp(s->word[aux], "does") && (p.plural || p.person != 3))
            strcpy(s->word[aux], "do");
        int f = ph_draw_frame(s, &p, ANY_OBJECT),
            which = ph_draw_word(s, &s->words->frames[f]);
        char particle[WORD_BYTES];
        verb = ph_append_from(s, &s->words->frames[f], which, LEMMA, ACTOR, p.at);
        ph_link_rest(s, first, verb);
        ph_marry(s, &p, verb);
        if (!ph_word_particle(&s->words->frames[f], which, particle)) particle[0] = 0;
        if (!what) ph_english_object(s, f, ANY_OBJECT, verb, particle);
        ph_english_particle(s, particle, verb);
        if (chance(s, 25)) ph_english_adverbs(s, verb);
    }
    if (chance(s, 92)) ph_append(s, "?", CLAUSE, verb);
}

/* There is a cat in the garden. Open the door! */
static void few(sentence *s)
{
    if (chance(s, 50)) {
        int there = ph_append(s, "there", HELPER, s->count + 1), past = chance(s, 50);
        int at = ph_append(s, "is", ACTOR, -2);
        phrase p = ph_english_phrase(s, ANYTHING);
        (void)there;
        strcpy(s->word[at], ph_english_be(s, &p, past));
        s->link[at] = p.at;
        ph_set_link(s, &p, ACTOR, at);
        if (chance(s, 70)) ph_english_place(s, at);
        ph_english_stop(s, at);
        return;
    }
    phrase you = {.group = PERSON, .person = 2};
    int f = ph_draw_frame(s, &you, ANY_OBJECT), first = s->count,
        which = ph_draw_word(s, &s->words->frames[f]);
    char particle[WORD_BYTES];
    if (chance(s, 30)) ph_append(s, "please", HELPER, -1);
    if (chance(s, 20)) ph_append(s, "don't", HELPER, -1);
    int verb = ph_append_from(s, &s->words->frames[f], which, LEMMA, CLAUSE, s->count);
    ph_link_rest(s, first, verb);
    if (!ph_word_particle(&s->words->frames[f], which, particle)) particle[0] = 0;
    ph_english_object(s, f, ANY_OBJECT, verb, particle);
    ph_english_adverbs(s, verb);
    ph_english_stop(s, verb);
}

void ph_compose_english(sentence *s)
{
    static void (*const kinds[])(sentence *) = {
        reason,   reason,      reason,      reason,      reason,      reason,
        people,   people,      plain,       plain,       plain,       plain,
        twice,    twice,       owner,       owner,       relative,    relative,
        relative, two_clauses, two_clauses, two_clauses, two_clauses, result,
        result,   saying,      saying,      question,    question,    few};
    int kind = below(s, (int)(sizeof kinds / sizeof kinds[0]));
    kinds[kind](s);
    s->combination = s->combination * 64u + (unsigned)kind;
}
