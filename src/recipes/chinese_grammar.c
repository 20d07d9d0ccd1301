/*
 * chinese_grammar.c - Chinese sentences of the recipe "pronouns".
 */
#include <string.h>

#include "recipes/chinese_parts.h"

static void plain(sentence *s)
{
    ph_chinese_stop(s, ph_chinese_clause(s).verb);
}

/* ---- sentences --------------------------------------------------------------------- */

/* What is said of one of two phrases, in words that do not fit the other. Returns the
   verb. */
static int say_of(sentence *s, const phrase *whose, const phrase *other)
{
    unsigned but = ph_alike(whose, other) ? 1u << other->group : 0;
    int living = ALIVE >> whose->group & 1, r = below(s, 100);
    phrase p = ph_chinese_pronoun(s, whose);
    if (but >> whose->group & 1) s->failed = 1;
    if (r < 75 || !(ACTIVE >> whose->group & 1)) return ph_chinese_state(s, &p, but).verb;
    if (but & ACTIVE) s->failed = 1; /* both could do it */
    return ph_chinese_action(s, &p, r < 85 && living ? ANY_OBJECT : 0).verb;
}

/* ... ，因为 PRONOUN ADJECTIVE */
static void give_reason(sentence *s, const clause *c)
{
    int r = below(s, 100), next;
    ph_append(s, r < 78 ? "，" : "。", CLAUSE, c->verb);
    if (r < 68)
        ph_append_one_of(s, "因为 因为 因为 由于", REASON, c->verb);
    else if (r < 78)
        ph_append_one_of(s, "但是 可是 不过", CLAUSE, c->verb);
    if (chance(s, 50))
        next = say_of(s, &c->subject, &c->object);
    else
        next = say_of(s, &c->object, &c->subject);
    ph_chinese_stop(s, r < 78 ? c->verb : next);
}

static void reason(sentence *s)
{
    phrase subject = chance(s, 12) ? ph_chinese_person(s)
                                   : ph_chinese_phrase(s, ACTIVE | 1 << VEHICLE);
    clause c = ph_chinese_action(s, &subject, ANY_OBJECT);
    give_reason(s, &c);
}

/* Two people: 他 or 她 tells who is meant. */
static void people(sentence *s)
{
    const unsigned men = 1 << MAN | 1 << HE_NAME, women = 1 << WOMAN | 1 << SHE_NAME;
    int man_first = chance(s, 50);
    phrase subject = ph_chinese_phrase(s, man_first ? men : women);
    clause c = ph_chinese_action(s, &subject, man_first ? women : men);
    give_reason(s, &c);
}

/* 因为 S ADJECTIVE ，所以 PRONOUN V ... */
static void result(sentence *s)
{
    int because = chance(s, 60) ? ph_append(s, "因为", REASON, -2) : -1;
    phrase subject = ph_chinese_phrase(s, ACTIVE | 1 << VEHICLE);
    clause c = ph_chinese_state(s, &subject, 0);
    int comma = ph_append(s, "，", CLAUSE, -2);
    int so = chance(s, 80) ? ph_append(s, "所以", REASON, -2) : -1;
    phrase p = ph_chinese_pronoun(s, &subject);
    clause next = ph_chinese_action(s, &p, chance(s, 65) ? ANY_OBJECT : 0);
    s->link[comma] = next.verb;
    if (because >= 0) s->link[because] = next.verb;
    if (so >= 0) s->link[so] = next.verb;
    (void)c;
    ph_chinese_stop(s, next.verb);
}

/* S V O ，就 V PRONOUN: the object again; or another object */
static void twice(sentence *s)
{
    int again = chance(s, 60);
    phrase subject =
        !again && chance(s, 40) ? ph_chinese_person(s) : ph_chinese_phrase(s, ALIVE);
    clause c = ph_chinese_action(s, &subject, ANY_OBJECT);
    ph_append(s, "，", CLAUSE, c.verb);
    if (!again) {
        if (chance(s, 40)) ph_append_one_of(s, "然后 但是 而且 并且", CLAUSE, c.verb);
        ph_chinese_action(s, &subject, chance(s, 60) ? ANY_OBJECT : 0);
        ph_chinese_stop(s, c.verb);
        return;
    }
    int first = s->count, f = ph_draw_frame(s, &subject, 1u << c.object.group);
    if (chance(s, 70)) ph_append_one_of(s, "就 又 也", HELPER, -1);
    int next =
        ph_append_from(s, &s->words->frames[f], ph_draw_word(s, &s->words->frames[f]),
                       LEMMA, ACTOR, subject.at);
    ph_link_rest(s, first, next);
    if (chance(s, 50)) ph_append(s, "了", HELPER, next);
    phrase it = ph_chinese_pronoun(s, &c.object);
    if (s->link[it.at] == -2) ph_set_link(s, &it, OBJECT, next);
    ph_chinese_stop(s, c.verb);
}

/* S V 他 的 O */
static void owner(sentence *s)
{
    phrase subject = chance(s, 25) ? ph_chinese_person(s) : ph_chinese_phrase(s, ALIVE);
    int f = ph_draw_frame(s, &subject, ANY_OBJECT & ~BARE), first = s->count, denied = 0;
    ph_chinese_before(s, &denied);
    int verb = ph_chinese_verb(s, &s->words->frames[f], &subject, first, denied);
    noun_group g = ph_draw_group(s, s->words->from->frames[f].objects & ~(unsigned)BARE);
    phrase his = chance(s, 80)
                     ? ph_chinese_pronoun(s, &subject)
                     : (phrase){.at = ph_append(s, "自己", REFERENCE, subject.at)};
    ph_append(s, "的", HELPER, his.at);
    phrase what = {.at = ph_append_from(s, &s->words->nouns[g],
                                        ph_draw_word(s, &s->words->nouns[g]), LEMMA,
                                        OBJECT, verb)};
    if (s->link[his.at] == -2) ph_set_link(s, &his, DETERMINER, what.at);
    ph_chinese_stop(s, verb);
}

/* 那 个 V O 的 NOUN, S V 的 NOUN */
static phrase put_relative(sentence *s)
{
    int first = s->count, verb, f;
    phrase noun = {.group = ph_draw_group(s, PEOPLE | 1 << ANIMAL)};
    if (chance(s, 60)) {
        if (chance(s, 30)) ph_chinese_count(s, &noun);
        f = ph_draw_frame(s, &noun, chance(s, 75) ? ANY_OBJECT : 0);
        verb = ph_chinese_bare_verb(s, f, ACTOR, -2);
        ph_append(s, "的", HELPER, verb);
        int last = s->count;
        noun = ph_chinese_phrase(s, 1u << noun.group);
        for (int i = first; i < last; i++)
            if (s->link[i] < 0) s->link[i] = noun.at;
        return noun;
    }
    phrase other = chance(s, 40) ? ph_chinese_person(s) : ph_chinese_phrase(s, ALIVE);
    f = ph_draw_frame(s, &other, ANY_OBJECT & ~BARE);
    verb = ph_chinese_verb(s, &s->words->frames[f], &other, s->count, 1);
    ph_append(s, "的", HELPER, verb);
    return ph_chinese_phrase(s, s->words->from->frames[f].objects & ~(unsigned)BARE);
}

static void relative(sentence *s)
{
    if (chance(s, 70)) {
        phrase subject = put_relative(s);
        ph_chinese_stop(s, ph_chinese_predicate(s, &subject).verb);
        return;
    }
    phrase subject = ph_chinese_person(s);
    int verb =
        ph_append_one_of(s, "认识 喜欢 看见 找到 有 是 记得 想", ACTOR, subject.at);
    ph_marry(s, &subject, verb);
    phrase object = put_relative(s);
    ph_set_link(s, &object, OBJECT, verb);
    if (!strcmp(s->word[verb], "是")) ph_set_link(s, &object, STATE, subject.at);
    ph_chinese_stop(s, verb);
}

/* A clause about the subject of an earlier one, by its pronoun, or about another. */
static clause put_next(sentence *s, const phrase *before)
{
    if (!before || !chance(s, 40)) return ph_chinese_clause(s);
    phrase p = ph_chinese_pronoun(s, before);
    return ph_chinese_predicate(s, &p);
}

/* The subject of a clause, where a pronoun can stand for nothing else in it. */
static const phrase *only_subject(const clause *c)
{
    return c->object.at < 0 || !ph_alike(&c->subject, &c->object) ? &c->subject : NULL;
}

/* 因为 ... ，所以 ...; 当 ... 时候 ， ... */
static void condition_first(sentence *s)
{
    int conjunction = ph_append_one_of(
        s, "如果 如果 虽然 因为 当 因为 要是 只要 只有 即使", CLAUSE, -2);
    int because = !strcmp(s->word[conjunction], "因为"), then = -1;
    clause a = ph_chinese_clause(s);
    if (!strcmp(s->word[conjunction], "当")) {
        if (chance(s, 60)) ph_append(s, "的", HELPER, a.verb);
        ph_append(s, "时候", CLAUSE, a.verb);
    }
    int comma = ph_append(s, "，", CLAUSE, -2);
    if (chance(s, 50))
        then = ph_append(s,
                         because                                ? "所以"
                         : strcmp(s->word[conjunction], "虽然") ? "那么"
                                                                : "但是",
                         because ? REASON : CLAUSE, -2);
    clause c = put_next(s, only_subject(&a));
    if (because) s->role[conjunction] = REASON;
    s->link[conjunction] = s->link[comma] = c.verb;
    if (then >= 0) s->link[then] = c.verb;
    ph_chinese_stop(s, c.verb);
}

static void two_clauses(sentence *s)
{
    if (chance(s, 50)) {
        condition_first(s);
        return;
    }
    clause c = ph_chinese_clause(s);
    ph_append(s, "，", CLAUSE, c.verb);
    if (chance(s, 80)) {
        int at = ph_append_one_of(s, "但是 所以 然后 而且 因为 可是 不过 或者", CLAUSE,
                                  c.verb);
        if (strstr("所以 因为", s->word[at])) s->role[at] = REASON;
    }
    put_next(s, only_subject(&c));
    ph_chinese_stop(s, c.verb);
}

/* S 说 ..., S 告诉 O ... */
static void saying(sentence *s)
{
    phrase subject = chance(s, 45) ? ph_chinese_person(s) : ph_chinese_phrase(s, HUMAN);
    int first = s->count, told = chance(s, 20);
    word_list telling;
    phrase whom = {.at = -1};
    ph_split_list(&telling, "告诉 告诉 问 提醒");
    int verb = ph_chinese_verb(s, told ? &telling : &s->words->saying, &subject, first,
                               chance(s, 70));
    if (told) {
        whom = chance(s, 50) ? ph_chinese_whom(s) : ph_chinese_phrase(s, HUMAN);
        ph_set_link(s, &whom, OBJECT, verb);
    }
    if (chance(s, 25)) ph_append_one_of(s, "， ， ：", CLAUSE, verb);
    put_next(s, told && ph_alike(&subject, &whom) ? NULL : &subject);
    ph_chinese_stop(s, verb);
}

void ph_compose_chinese(sentence *s)
{
    static const sentence_kind kinds[] = {
        {reason, 12}, {people, 3}, {plain, 8}, {twice, 4}, {owner, 3}, {relative, 4},
        {two_clauses, 5}, {result, 2}, {saying, 3}, {ph_chinese_question, 7},
        {ph_chinese_request, 3}, {ph_chinese_greeting, 2}, {ph_chinese_existence, 2},
        {ph_chinese_weather, 1}};
    ph_compose_one_of(s, kinds, (int)(sizeof kinds / sizeof kinds[0]));
}
