/*
 * chinese_grammar.c - Chinese sentences of the recipe "pronouns".
 */
#include <string.h>

#include "recipes/grammar.h"

/* ---- nouns ------------------------------------------------------------------------- */

static int is_human(noun_group g)
{
    return HUMAN >> g & 1;
}

static const char *measure_of(noun_group g)
{
    static const char *const words[NOUN_GROUPS] = {[ANIMAL] = "只 只 只 条 头 匹",
                                                   [MACHINE] = "台 个",
                                                   [VEHICLE] = "辆 辆 个",
                                                   [WAY] = "条 条 座 个",
                                                   [PLACE] = "个 座",
                                                   [THING] = "个 个 个 把 块 本 张",
                                                   [FURNITURE] = "张 把 个",
                                                   [FOOD] = "个 个 块",
                                                   [DRINK] = "杯",
                                                   [PLANT] = "朵 棵 个",
                                                   [CLOTHES] = "件 条 个",
                                                   [WRITING] = "个 本 篇",
                                                   [PERSON] = "个 个 位"};
    return words[g] ? words[g] : "个";
}

static phrase put_phrase(sentence *s, unsigned groups)
{
    const lexicon *w = s->words;
    phrase p = {.group = ph_draw_group(s, groups), .person = 3};
    int name = NAMED >> p.group & 1, first = s->count, r = below(s, 100);
    int which = ph_draw_word(s, &w->nouns[p.group]);
    p.he = p.group == MAN || p.group == HE_NAME || (p.group == PERSON && chance(s, 50));
    p.fixed = p.group != PERSON;
    if (!name && r < 45) {
        ph_append_one_of(s, "那 那 那 这 这 一 一 一 两 三 几 每 四 五 某", DETERMINER,
                         -1);
        p.plural = strstr("两三几四五", s->word[first]) != NULL;
        ph_append_one_of(s, measure_of(p.group), DETERMINER, -1);
    } else if (!name && r < 53) {
        int whose = ph_append_one_of(s, "我 我 你 我们 你们 大家", DETERMINER, -1);
        ph_append(s, "的", HELPER, whose);
    } else if (!name && r < 58) {
        ph_append_one_of(s, "那 这", DETERMINER, -1);
        ph_append(s, "些", DETERMINER, -1);
        p.plural = 1;
    }
    if (!name && chance(s, 28)) {
        quality q;
        int index = ph_draw_adjective(s, p.group, 0, &q);
        if (chance(s, 12)) ph_append_one_of(s, "很 非常 最", HELPER, s->count + 1);
        int at = ph_append_from(s, &w->adjectives[q], index, LEMMA, PROPERTY, -1);
        if (chance(s, 85)) ph_append(s, "的", HELPER, at);
    }
    p.at = ph_append_from(s, &w->nouns[p.group], which, LEMMA, ACTOR, -2);
    for (int i = first; i < p.at; i++)
        if (s->link[i] == -1) s->link[i] = p.at;
    if ((1 << PERSON | 1 << MAN | 1 << WOMAN) >> p.group & 1 &&
        chance(s, p.plural ? 0 : 15)) {
        ph_append(s, "们", HELPER, p.at);
        p.plural = 1;
    }
    return p;
}

/* 和 and a second noun */
static phrase put_long_phrase(sentence *s, unsigned groups)
{
    phrase p = put_phrase(s, groups);
    if (chance(s, 6)) {
        int and = ph_append_one_of(s, "和 和 和 跟", CLAUSE, -2);
        phrase other = put_phrase(s, 1u << p.group);
        s->link[and] = other.at;
        ph_set_link(s, &other, CLAUSE, p.at);
        p.plural = 1;
    }
    return p;
}

static const char *pronoun_of(const phrase *p)
{
    if (p->person == 1) return p->plural ? "我们" : "我";
    if (p->person == 2) return p->plural ? "你们" : "你";
    if (!is_human(p->group)) return p->plural ? "它们" : "它";
    return p->plural ? (p->he ? "他们" : "她们") : p->he ? "他" : "她";
}

static phrase put_person(sentence *s)
{
    int k = below(s, 9);
    phrase p = {.group = k == 8 ? ANIMAL : PERSON,
                .person = k < 3   ? 1
                          : k < 5 ? 2
                                  : 3,
                .plural = k == 2 || k == 4 || k == 7,
                .he = k == 5 || k == 7,
                .fixed = 1};
    s->combination = s->combination * 31 + (uint32_t)k;
    p.at = ph_append(s, pronoun_of(&p), ACTOR, -2);
    return p;
}

static phrase put_pronoun(sentence *s, const phrase *of)
{
    phrase p = *of;
    p.at = ph_append(s, pronoun_of(of), REFERENCE, of->at);
    p.fixed = 1;
    return p;
}

/* ---- verbs ------------------------------------------------------------------------- */

/* 在 NOUN 里, before a verb that comes later: links stay -1. Returns the noun. */
static phrase put_place(sentence *s)
{
    static const struct {
        const char *prepositions, *behind;
        unsigned groups;
    } kinds[] = {{"在 在 在 从 到", "里 里 里面 外面 旁边 附近 前面", 1 << PLACE},
                 {"在 在 从", "上 上 上 下 旁边 下面", 1 << FURNITURE},
                 {"在 在 从 向", "上 边 旁边 里 附近", 1 << WAY},
                 {"在 从", "下 旁边 上 里", 1 << PLANT | 1 << VEHICLE},
                 {"跟 和 为 对 给 向", "", HUMAN},
                 {"用", "", 1 << THING | 1 << MACHINE | 1 << BODY}};
    int k = below(s, (int)(sizeof kinds / sizeof kinds[0]));
    int at = ph_append_one_of(s, kinds[k].prepositions, CIRCUMSTANCE, -2);
    phrase p = put_phrase(s, kinds[k].groups);
    s->link[at] = p.at;
    if (kinds[k].behind[0] && chance(s, 85))
        ph_append_one_of(s, kinds[k].behind, HELPER, p.at);
    ph_set_link(s, &p, CIRCUMSTANCE, -1);
    return p;
}

/* What stands before a verb: time, negation, adverb, place. */
static void put_before(sentence *s, int *denied)
{
    const lexicon *w = s->words;
    int r = below(s, 100);
    if (chance(s, 7))
        ph_append_from(s, &w->when, ph_draw_word(s, &w->when), LEMMA, HELPER, -1);
    else if (chance(s, 4))
        ph_append_from(s, &w->nouns[TIME], ph_draw_word(s, &w->nouns[TIME]), LEMMA,
                       HELPER, -1);
    if (chance(s, 10))
        ph_append_from(s, &w->frequency, ph_draw_word(s, &w->frequency), LEMMA, HELPER,
                       -1);
    *denied = r < 20;
    if (r < 20)
        ph_append_one_of(s, "没有 没有 没有 没 不 不 不想 不会 不能", HELPER, -1);
    else if (r < 32)
        ph_append_one_of(s, "会 能 可以 应该 必须 想 要 可能", HELPER, -1);
    if (chance(s, 10)) {
        ph_append_from(s, &w->manner, ph_draw_word(s, &w->manner), LEMMA, HELPER, -1);
        if (chance(s, 25)) ph_append(s, "地", HELPER, s->count - 1);
    }
    if (chance(s, 22)) put_place(s);
}

static int put_verb(sentence *s, const word_list *list, const phrase *subject, int first,
                    int denied)
{
    int at = ph_append_from(s, list, ph_draw_word(s, list), LEMMA, ACTOR, subject->at);
    ph_link_rest(s, first, at);
    ph_marry(s, subject, at);
    if (!denied && chance(s, 55)) ph_append_one_of(s, "了 了 了 了 过 着", HELPER, at);
    return at;
}

/* 我, 你, 他: somebody whom the text does not name; not the subject. */
static phrase put_whom(sentence *s)
{
    phrase p = {.group = PERSON, .person = 3, .he = chance(s, 50), .fixed = 1};
    int r = below(s, 6);
    if (r < 2) p.person = 1 + r;
    p.plural = r == 2 || (r < 2 && chance(s, 40));
    s->combination = s->combination * 31 + (uint32_t)r;
    p.at = ph_append(s, pronoun_of(&p), OBJECT, -2);
    return p;
}

/* V 在 PLACE 里 */
static void put_behind(sentence *s, int verb)
{
    int at = ph_append_one_of(s, "在 在 在 到", CIRCUMSTANCE, -2);
    phrase p = put_phrase(s, 1 << PLACE | 1 << FURNITURE | 1 << WAY | 1 << VEHICLE);
    s->link[at] = p.at;
    ph_set_link(s, &p, CIRCUMSTANCE, verb);
    if (chance(s, 85)) ph_append_one_of(s, "上 上 里 里 里面 旁边 下", HELPER, p.at);
}

/* A verb with one of these objects; 0: without. */
static clause put_action(sentence *s, const phrase *subject, unsigned objects)
{
    clause c = {.subject = *subject, .object = {.at = -1}};
    int f = ph_draw_frame(s, subject, objects);
    unsigned groups = s->words->from->frames[f].objects & objects;
    int first = s->count, denied = 0, before = groups && chance(s, 8);
    put_before(s, &denied);
    if (before) { /* 把 O V 了 */
        int ba = ph_append(s, "把", HELPER, -2);
        c.object = put_phrase(s, groups);
        s->link[ba] = c.object.at;
    }
    c.verb = put_verb(s, &s->words->frames[f], subject, first, denied);
    if (groups & PEOPLE && !before && chance(s, 15))
        c.object = put_whom(s);
    else if (groups && !before)
        c.object = put_long_phrase(s, groups);
    if (!groups && chance(s, 15)) put_behind(s, c.verb);
    if (groups) ph_set_link(s, &c.object, OBJECT, c.verb);
    if (!denied && chance(s, 12)) ph_append(s, "了", HELPER, c.verb);
    return c;
}

static clause put_state(sentence *s, const phrase *subject, unsigned but)
{
    quality q;
    clause c = {.subject = *subject, .object = {.at = -1}};
    int index = ph_draw_adjective(s, subject->group, but, &q), too = 0;
    if (chance(s, 12)) ph_append_one_of(s, "昨天 今天 现在 总是 也 都 已经", HELPER, -1);
    if (chance(s, 88)) {
        int at = ph_append_one_of(s, "太 太 很 很 很 非常 有点 真 不 十分 最 更 特别",
                                  HELPER, -1);
        too = !strcmp(s->word[at], "太");
    }
    c.verb =
        ph_append_from(s, &s->words->adjectives[q], index, LEMMA, STATE, subject->at);
    for (int i = c.verb - 1; i >= 0 && s->link[i] == -1; i--) s->link[i] = c.verb;
    if (s->link[subject->at] == -2) ph_set_link(s, subject, STATE, c.verb);
    if (chance(s, too ? 85 : 5)) ph_append(s, "了", HELPER, c.verb);
    return c;
}

/* 是 NOUN, 在 PLACE, 有 NOUN */
static clause put_being(sentence *s, const phrase *subject)
{
    clause c = {.subject = *subject, .object = {.at = -1}};
    if (chance(s, 45)) {
        c.verb = ph_append(s, "在", ACTOR, subject->at);
        phrase p = put_phrase(s, 1 << PLACE | 1 << FURNITURE | 1 << WAY);
        if (chance(s, 80))
            ph_append_one_of(s, "里 上 里面 旁边 附近 下 外面 前面 后面", HELPER, p.at);
        ph_set_link(s, &p, CIRCUMSTANCE, c.verb);
    } else {
        c.verb = ph_append_one_of(s, "是 是 是 不是", ACTOR, subject->at);
        phrase p =
            put_phrase(s, is_human(subject->group) ? 1u << PERSON : 1u << subject->group);
        ph_set_link(s, &p, STATE, subject->at);
    }
    ph_marry(s, subject, c.verb);
    return c;
}

static clause put_gift(sentence *s, const phrase *subject)
{
    clause c = {.subject = *subject};
    int first = s->count, denied = 0;
    put_before(s, &denied);
    c.verb = put_verb(s, &s->words->giving, subject, first, denied);
    phrase to = chance(s, 35) ? put_whom(s) : put_phrase(s, HUMAN | 1 << ANIMAL);
    ph_set_link(s, &to, OBJECT, c.verb);
    c.object = put_phrase(s, GOODS | 1 << FOOD);
    ph_set_link(s, &c.object, OBJECT, c.verb);
    return c;
}

static clause put_wish(sentence *s, const phrase *subject)
{
    clause c = {.subject = *subject, .object = {.at = -1}};
    int first = s->count, denied = 0,
        f = ph_draw_frame(s, subject, chance(s, 60) ? ANY_OBJECT : 0);
    put_before(s, &denied);
    c.verb = ph_append_from(s, &s->words->wanting, ph_draw_word(s, &s->words->wanting),
                            LEMMA, ACTOR, subject->at);
    ph_link_rest(s, first, c.verb);
    ph_marry(s, subject, c.verb);
    int verb =
        ph_append_from(s, &s->words->frames[f], ph_draw_word(s, &s->words->frames[f]),
                       LEMMA, ACTOR, subject->at);
    if (s->words->from->frames[f].objects) {
        c.object = put_phrase(s, s->words->from->frames[f].objects);
        ph_set_link(s, &c.object, OBJECT, verb);
    }
    return c;
}

/* ---- clauses ----------------------------------------------------------------------- */

static clause put_predicate(sentence *s, const phrase *subject)
{
    int active = ACTING >> subject->group & 1, r = below(s, 100);
    int transitive = (ACTIVE | 1 << VEHICLE) >> subject->group & 1;
    if (!active || r < 16)
        return r % 3 ? put_state(s, subject, 0) : put_being(s, subject);
    if (is_human(subject->group) && r < 21) return put_gift(s, subject);
    if (ALIVE >> subject->group & 1 && r < 28) return put_wish(s, subject);
    return put_action(s, subject, transitive && r < 76 ? ANY_OBJECT : 0);
}

static clause put_clause(sentence *s)
{
    int early = chance(s, 6)
                    ? ph_append_from(s, &s->words->when, ph_draw_word(s, &s->words->when),
                                     LEMMA, HELPER, -2)
                    : -1;
    int r = below(s, 100);
    phrase subject = r < 16 ? put_person(s)
                            : put_long_phrase(s, r < 78 ? ACTIVE | 1 << VEHICLE
                                                        : ANYTHING | 1 << NATURE);
    clause c = put_predicate(s, &subject);
    if (early >= 0) s->link[early] = c.verb;
    return c;
}

static void put_stop(sentence *s, int verb)
{
    if (chance(s, 90)) ph_append_one_of(s, "。 。 。 。 。 。 。 。 。 ！", CLAUSE, verb);
}

static void plain(sentence *s)
{
    put_stop(s, put_clause(s).verb);
}

/* ---- sentences --------------------------------------------------------------------- */

/* What is said of one of two phrases, in words that do not fit the other. Returns the
   verb. */
static int say_of(sentence *s, const phrase *whose, const phrase *other)
{
    unsigned but = ph_alike(whose, other) ? 1u << other->group : 0;
    int living = ALIVE >> whose->group & 1, r = below(s, 100);
    phrase p = put_pronoun(s, whose);
    if (but >> whose->group & 1) s->failed = 1;
    if (r < 75 || !(ACTIVE >> whose->group & 1)) return put_state(s, &p, but).verb;
    if (but & ACTIVE) s->failed = 1; /* both could do it */
    return put_action(s, &p, r < 85 && living ? ANY_OBJECT : 0).verb;
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
    put_stop(s, r < 78 ? c->verb : next);
}

static void reason(sentence *s)
{
    phrase subject = chance(s, 12) ? put_person(s) : put_phrase(s, ACTIVE | 1 << VEHICLE);
    clause c = put_action(s, &subject, ANY_OBJECT);
    give_reason(s, &c);
}

/* Two people: 他 or 她 tells who is meant. */
static void people(sentence *s)
{
    const unsigned men = 1 << MAN | 1 << HE_NAME, women = 1 << WOMAN | 1 << SHE_NAME;
    int man_first = chance(s, 50);
    phrase subject = put_phrase(s, man_first ? men : women);
    clause c = put_action(s, &subject, man_first ? women : men);
    give_reason(s, &c);
}

/* 因为 S ADJECTIVE ，所以 PRONOUN V ... */
static void result(sentence *s)
{
    int because = chance(s, 60) ? ph_append(s, "因为", REASON, -2) : -1;
    phrase subject = put_phrase(s, ACTIVE | 1 << VEHICLE);
    clause c = put_state(s, &subject, 0);
    int comma = ph_append(s, "，", CLAUSE, -2);
    int so = chance(s, 80) ? ph_append(s, "所以", REASON, -2) : -1;
    phrase p = put_pronoun(s, &subject);
    clause next = put_action(s, &p, chance(s, 65) ? ANY_OBJECT : 0);
    s->link[comma] = next.verb;
    if (because >= 0) s->link[because] = next.verb;
    if (so >= 0) s->link[so] = next.verb;
    (void)c;
    put_stop(s, next.verb);
}

static void twice(sentence *s)
{
    phrase subject = put_phrase(s, ALIVE);
    clause c = put_action(s, &subject, ANY_OBJECT);
    int first, f;
    ph_append(s, "，", CLAUSE, c.verb);
    first = s->count;
    if (chance(s, 70)) ph_append_one_of(s, "就 然后 又 也", HELPER, -1);
    f = ph_draw_frame(s, &subject, 1u << c.object.group);
    int next =
        ph_append_from(s, &s->words->frames[f], ph_draw_word(s, &s->words->frames[f]),
                       LEMMA, ACTOR, subject.at);
    ph_link_rest(s, first, next);
    if (chance(s, 50)) ph_append(s, "了", HELPER, next);
    put_pronoun(s, &c.object);
    put_stop(s, c.verb);
}

/* S V 他 的 O */
static void owner(sentence *s)
{
    phrase subject = chance(s, 15) ? put_person(s) : put_phrase(s, ALIVE);
    int f = ph_draw_frame(s, &subject, ANY_OBJECT), first = s->count, denied = 0;
    put_before(s, &denied);
    int verb = put_verb(s, &s->words->frames[f], &subject, first, denied);
    noun_group g = ph_draw_group(s, s->words->from->frames[f].objects & ~(unsigned)NAMED);
    phrase his = chance(s, 80)
                     ? put_pronoun(s, &subject)
                     : (phrase){.at = ph_append(s, "自己", REFERENCE, subject.at)};
    ph_append(s, "的", HELPER, his.at);
    ph_append_from(s, &s->words->nouns[g], ph_draw_word(s, &s->words->nouns[g]), LEMMA,
                   OBJECT, verb);
    put_stop(s, verb);
}

/* V O 的 S ..., S V 的 O ... */
static void relative(sentence *s)
{
    int first = s->count, f, verb, of;
    phrase subject, other = {.at = -1};
    if (chance(s, 60)) {
        phrase who = {.group = ph_draw_group(s, PEOPLE | 1 << ANIMAL)};
        f = ph_draw_frame(s, &who, ANY_OBJECT);
        verb = ph_append_from(s, &s->words->frames[f],
                              ph_draw_word(s, &s->words->frames[f]), LEMMA, ACTOR, -2);
        other = put_phrase(s, s->words->from->frames[f].objects);
        ph_set_link(s, &other, OBJECT, verb);
        of = ph_append(s, "的", HELPER, verb);
        subject = put_phrase(s, 1u << who.group);
        s->link[verb] = subject.at;
    } else {
        other = put_phrase(s, ALIVE);
        f = ph_draw_frame(s, &other, ANY_OBJECT);
        verb = put_verb(s, &s->words->frames[f], &other, s->count, 1);
        of = ph_append(s, "的", HELPER, verb);
        subject = put_phrase(s, s->words->from->frames[f].objects & ~(unsigned)NAMED);
    }
    (void)of, (void)first;
    put_stop(s, put_predicate(s, &subject).verb);
}

static void two_clauses(sentence *s)
{
    if (chance(s, 50)) {
        int conjunction = ph_append_one_of(s, "如果 虽然 因为 当 因为", CLAUSE, -2);
        clause a = put_clause(s);
        if (!strcmp(s->word[conjunction], "当")) ph_append(s, "时候", CLAUSE, a.verb);
        int comma = ph_append(s, "，", CLAUSE, -2),
            because = !strcmp(s->word[conjunction], "因为");
        int then = chance(s, 50)
                       ? ph_append(s,
                                   because                                ? "所以"
                                   : strcmp(s->word[conjunction], "虽然") ? "就"
                                                                          : "但是",
                                   because ? REASON : CLAUSE, -2)
                       : -1;
        clause c = put_clause(s);
        if (because) s->role[conjunction] = REASON;
        s->link[conjunction] = s->link[comma] = c.verb;
        if (then >= 0) s->link[then] = c.verb;
        put_stop(s, c.verb);
        return;
    }
    clause c = put_clause(s);
    ph_append(s, "，", CLAUSE, c.verb);
    if (chance(s, 80)) {
        int at = ph_append_one_of(s, "但是 所以 然后 而且 因为 可是 不过 或者", CLAUSE,
                                  c.verb);
        if (strstr("所以 因为", s->word[at])) s->role[at] = REASON;
    }
    put_clause(s);
    put_stop(s, c.verb);
}

static void saying(sentence *s)
{
    phrase subject = chance(s, 35) ? put_person(s) : put_phrase(s, HUMAN);
    int first = s->count;
    int verb = put_verb(s, &s->words->saying, &subject, first, chance(s, 70));
    if (chance(s, 25)) ph_append(s, "，", CLAUSE, verb);
    put_clause(s);
    put_stop(s, verb);
}

/* ... 吗？ S 在 哪里？ 谁 V O？ S V 什么？ 为什么 ...? */
static void question(sentence *s)
{
    int r = below(s, 100), verb;
    if (r < 35) {
        verb = put_clause(s).verb;
        ph_append_one_of(s, "吗 吗 吗 吧 呢", HELPER, verb);
    } else if (r < 50) {
        phrase p = put_phrase(s, ANYTHING | NAMED);
        verb = ph_append(s, "在", ACTOR, p.at);
        ph_append(s, "哪里", CIRCUMSTANCE, verb);
        ph_set_link(s, &p, ACTOR, verb);
    } else if (r < 65) {
        phrase p = {.at = ph_append(s, "谁", ACTOR, -2), .group = PERSON, .person = 3};
        verb = put_action(s, &p, ANY_OBJECT).verb;
    } else {
        int what = r >= 82, first = s->count, denied = 0;
        phrase p = chance(s, 30) ? put_person(s) : put_phrase(s, ALIVE);
        int f = ph_draw_frame(s, &p, ANY_OBJECT);
        first = s->count;
        if (!what) ph_append_one_of(s, "为什么 为什么 怎么", HELPER, -1);
        put_before(s, &denied);
        verb = put_verb(s, &s->words->frames[f], &p, first, denied);
        if (what) {
            ph_append(s, "什么", OBJECT, verb);
        } else {
            phrase o = put_phrase(s, s->words->from->frames[f].objects);
            ph_set_link(s, &o, OBJECT, verb);
        }
    }
    if (chance(s, 92)) ph_append(s, "？", CLAUSE, verb);
}

/* PLACE 里 有 NOUN；请 V O */
static void few(sentence *s)
{
    if (chance(s, 50)) {
        phrase where = put_phrase(s, 1 << PLACE | 1 << FURNITURE | 1 << WAY);
        if (chance(s, 85))
            ph_append_one_of(s, "里 上 旁边 下 附近 里面 前面", HELPER, where.at);
        int at = ph_append_one_of(s, "有 有 有 没有", ACTOR, -2);
        phrase what = put_phrase(s, ANYTHING);
        ph_set_link(s, &where, CIRCUMSTANCE, at);
        ph_set_link(s, &what, ACTOR, at);
        s->link[at] = what.at;
        put_stop(s, at);
        return;
    }
    phrase you = {.group = PERSON, .person = 2};
    int f = ph_draw_frame(s, &you, ANY_OBJECT), first = s->count;
    ph_append_one_of(s, "请 请 别 不要 快", HELPER, -1);
    int verb =
        ph_append_from(s, &s->words->frames[f], ph_draw_word(s, &s->words->frames[f]),
                       LEMMA, CLAUSE, s->count);
    ph_link_rest(s, first, verb);
    phrase o = put_phrase(s, s->words->from->frames[f].objects);
    ph_set_link(s, &o, OBJECT, verb);
    put_stop(s, verb);
}

void ph_compose_chinese(sentence *s)
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
