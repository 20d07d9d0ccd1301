/*
 * chinese_parts.c - nouns, verbs and clauses of Chinese sentences.
 */
#include <string.h>

#include "recipes/chinese_parts.h"

/* ---- nouns ------------------------------------------------------------------------- */

static int is_human(noun_group g)
{
    return HUMAN >> g & 1;
}

static const char *measure_of(noun_group g)
{
    static const char *const words[NOUN_GROUPS] = {[ANIMAL] = "只 只 只 条 头 匹 群",
                                                   [MACHINE] = "台 台 个 部",
                                                   [VEHICLE] = "辆 辆 个 艘 架",
                                                   [WAY] = "条 条 座 个",
                                                   [PLACE] = "个 个 座 家 间 所",
                                                   [THING] = "个 个 个 把 块 本 张 支 根",
                                                   [FURNITURE] = "张 把 个",
                                                   [FOOD] = "个 个 块 份 碗 斤",
                                                   [DRINK] = "杯 杯 瓶",
                                                   [PLANT] = "朵 棵 个",
                                                   [CLOTHES] = "件 条 双 个",
                                                   [WRITING] = "个 本 篇 部 首 封",
                                                   [PERSON] = "个 个 位 名",
                                                   [IDEA] = "个 个 种 次",
                                                   [NATURE] = "场 个",
                                                   [MATTER] = "些 点"};
    return words[g] ? words[g] : "个";
}

void ph_chinese_count(sentence *s, phrase *p)
{
    int first =
        ph_append_one_of(s,
                         "那 那 那 那 这 这 这 一 一 一 一 两 两 三 几 每 四 五 六 "
                         "七 八 九 十 二十 一百 某 哪 另 半 1 2 3 4 5 6 7 8 9 10 100",
                         DETERMINER, -1);
    p->plural = !strstr("那这一每某哪另半1", s->word[first]);
    ph_append_one_of(s, measure_of(p->group), DETERMINER, -1);
}

/* 我 的, 我 before kin, 小明 的 */
static void put_owner(sentence *s, noun_group group)
{
    int kin = group == MAN || group == WOMAN, whose;
    if (chance(s, 25)) {
        const word_list *list = &s->words->nouns[ph_draw_group(s, HUMAN | 1 << CITY)];
        whose = ph_append_from(s, list, ph_draw_word(s, list), LEMMA, DETERMINER, -1);
    } else {
        whose = ph_append_one_of(
            s, s->named ? "我 我 你 我们 你们 大家" : "我 我 你 我们 你们 他 她 他们",
            DETERMINER, -1);
    }
    if (!kin || chance(s, 50)) ph_append(s, "的", HELPER, whose);
}

static void put_adjective(sentence *s, noun_group group)
{
    quality q;
    int index = ph_draw_adjective(s, group, 0, &q);
    if (chance(s, 12)) ph_append_one_of(s, "很 非常 最 更", HELPER, s->count + 1);
    int at = ph_append_from(s, &s->words->adjectives[q], index, LEMMA, PROPERTY, -1);
    if (chance(s, strlen(s->word[at]) == 3 ? 60 : 90)) ph_append(s, "的", HELPER, at);
}

static void put_determiner(sentence *s, phrase *p)
{
    int r = below(s, 100);
    if (r < 42) {
        ph_chinese_count(s, p);
    } else if (r < 54) {
        put_owner(s, p->group);
    } else if (r < 58) {
        ph_append_one_of(s, "那 这", DETERMINER, -1);
        ph_append(s, "些", DETERMINER, -1);
        p->plural = 1;
    } else if (r < 61) {
        ph_append_one_of(s, "很多 许多 所有 一些 不少", DETERMINER, -1);
        p->plural = 1;
    }
}

phrase ph_chinese_phrase(sentence *s, unsigned groups)
{
    const lexicon *w = s->words;
    phrase p = {.group = ph_draw_group(s, groups), .person = 3};
    int bare = BARE >> p.group & 1, first = s->count;
    int which = ph_draw_word(s, &w->nouns[p.group]);
    p.he = p.group == MAN || p.group == HE_NAME || (p.group == PERSON && chance(s, 50));
    p.fixed = p.group != PERSON;
    if (!bare) put_determiner(s, &p);
    if (!bare && chance(s, 28)) put_adjective(s, p.group);
    p.at = ph_append_from(s, &w->nouns[p.group], which, LEMMA, ACTOR, -2);
    s->named = 1;
    for (int i = first; i < p.at; i++)
        if (s->link[i] == -1) s->link[i] = p.at;
    if (PEOPLE >> p.group & 1 && chance(s, p.plural ? 0 : 15)) {
        ph_append(s, "们", HELPER, p.at);
        p.plural = 1;
    }
    return p;
}

/* 和 and a second noun */
phrase ph_chinese_long_phrase(sentence *s, unsigned groups)
{
    phrase p = ph_chinese_phrase(s, groups);
    if (chance(s, 6)) {
        int and = ph_append_one_of(s, "和 和 和 和 跟 或者 与 、 或", CLAUSE, -2);
        phrase other = ph_chinese_phrase(s, 1u << p.group);
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

/* 这, 大家: they name nobody, and no pronoun stands for them. */
static phrase put_indefinite(sentence *s)
{
    int thing = chance(s, 50);
    phrase p = {.group = thing ? THING : PERSON, .person = 3, .vague = 1};
    p.at = ph_append_one_of(s, thing ? "这 那 这些 那些" : "大家 有人 别人 人们 每人",
                            ACTOR, -2);
    return p;
}

phrase ph_chinese_person(sentence *s)
{
    int k = below(s, s->named ? 5 : 9);
    if (chance(s, 8)) return put_indefinite(s);
    phrase p = {.group = k == 8 ? ANIMAL : PERSON,
                .person = k < 3   ? 1
                          : k < 5 ? 2
                                  : 3,
                .plural = k == 2 || k == 4 || k == 7,
                .he = k == 5 || k == 7,
                .fixed = 1};
    p.at = ph_append(s, pronoun_of(&p), ACTOR, -2);
    if (k == 3 && chance(s, 20)) strcpy(s->word[p.at], "您");
    if (k == 2 && chance(s, 20)) strcpy(s->word[p.at], "咱们");
    if (p.person == 3) s->named = 1;
    return p;
}

/* 我 and 你 stand for nobody in the text: they belong where a noun would. */
phrase ph_chinese_pronoun(sentence *s, const phrase *of)
{
    phrase p = *of;
    int own = of->person != 3;
    if (of->vague) s->failed = 1;
    p.at = ph_append(s, pronoun_of(of), own ? ACTOR : REFERENCE, own ? -2 : of->at);
    p.fixed = 1;
    return p;
}

/* ---- verbs ------------------------------------------------------------------------- */

/* 我, 你, 他: somebody whom the text does not name; not the subject. */
phrase ph_chinese_whom(sentence *s)
{
    phrase p = {.group = PERSON, .person = 3, .he = chance(s, 50), .fixed = 1};
    int r = below(s, 6);
    if (r < 4) p.person = 1 + r / 2;
    p.plural = r == 4 || (r < 4 && chance(s, 35));
    p.at = ph_append(s, pronoun_of(&p), OBJECT, -2);
    return p;
}

/* 在 NOUN 里, before a verb that comes later: links stay -1. */
static void put_place(sentence *s)
{
    static const struct {
        const char *prepositions, *behind;
        unsigned groups;
    } kinds[] = {{"在 在 在 从 到", "里 里 里面 外面 旁边 附近 前面 中", 1 << PLACE},
                 {"在 在 从", "上 上 上 下 旁边 下面", 1 << FURNITURE},
                 {"在 在 从 向 往", "上 边 旁边 里 附近", 1 << WAY},
                 {"在 从", "下 旁边 上 里", 1 << PLANT | 1 << VEHICLE},
                 {"跟 和 为 对 给 给 向", "", HUMAN},
                 {"在 在 从", "", 1 << CITY},
                 {"用", "", 1 << THING | 1 << MACHINE | 1 << BODY}};
    int k = below(s, (int)(sizeof kinds / sizeof kinds[0]));
    int at = ph_append_one_of(s, kinds[k].prepositions, CIRCUMSTANCE, -2);
    phrase p = kinds[k].groups == HUMAN && chance(s, 45)
                   ? ph_chinese_whom(s)
                   : ph_chinese_phrase(s, kinds[k].groups);
    s->link[at] = p.at;
    if (kinds[k].behind[0] && chance(s, 80))
        ph_append_one_of(s, kinds[k].behind, HELPER, p.at);
    ph_set_link(s, &p, CIRCUMSTANCE, -1);
}

static void put_time(sentence *s)
{
    const lexicon *w = s->words;
    int r = below(s, 100);
    if (r < 8) ph_append_from(s, &w->when, ph_draw_word(s, &w->when), LEMMA, HELPER, -1);
    if (r >= 6 && r < 12)
        ph_append_from(s, &w->nouns[TIME], ph_draw_word(s, &w->nouns[TIME]), LEMMA,
                       HELPER, -1);
}

/* What stands before a verb: time, negation, adverb, place. */
void ph_chinese_before(sentence *s, int *denied)
{
    const lexicon *w = s->words;
    int r = below(s, 100);
    put_time(s);
    if (chance(s, 10))
        ph_append_from(s, &w->frequency, ph_draw_word(s, &w->frequency), LEMMA, HELPER,
                       -1);
    *denied = r < 20;
    if (r < 20)
        ph_append_one_of(s, "没有 没有 没有 没 没 不 不 不 不会 不能 不可以 还没",
                         HELPER, -1);
    else if (r < 34)
        ph_append_one_of(s, "会 会 能 能 可以 可以 应该 必须 可能 得", HELPER, -1);
    else if (r < 40) {
        ph_append_one_of(s, "在 正在", HELPER, -1);
        *denied = 1; /* no 了 behind the verb */
        return;
    }
    if (chance(s, 10)) {
        ph_append_from(s, &w->manner, ph_draw_word(s, &w->manner), LEMMA, HELPER, -1);
        if (chance(s, 25)) ph_append(s, "地", HELPER, s->count - 1);
    }
    if (chance(s, 22)) put_place(s);
}

int ph_chinese_verb(sentence *s, const word_list *list, const phrase *subject, int first,
                    int denied)
{
    int at = ph_append_from(s, list, ph_draw_word(s, list), LEMMA, ACTOR, subject->at);
    ph_link_rest(s, first, at);
    ph_marry(s, subject, at);
    if (!denied && chance(s, 50))
        ph_append_one_of(s, "了 了 了 了 过 着 一下 完", HELPER, at);
    return at;
}

/* V 在 PLACE 里 */
static void put_behind(sentence *s, int verb)
{
    int at = ph_append_one_of(s, "在 在 在 到", CIRCUMSTANCE, -2);
    phrase p = ph_chinese_phrase(s, 1 << PLACE | 1 << FURNITURE | 1 << WAY |
                                        1 << VEHICLE | 1 << CITY);
    s->link[at] = p.at;
    ph_set_link(s, &p, CIRCUMSTANCE, verb);
    if (p.group != CITY && chance(s, 80))
        ph_append_one_of(s, "上 上 里 里 里面 旁边 下", HELPER, p.at);
}

/* V 得 很 快 */
static void put_result(sentence *s, int verb)
{
    quality q;
    ph_append(s, "得", HELPER, verb);
    if (chance(s, 80))
        ph_append_one_of(s, "很 很 太 非常 不 真 更 特别", HELPER, s->count + 1);
    int index = ph_draw_adjective(s, PERSON, 0, &q);
    if (chance(s, 60))
        ph_append_one_of(s, "快 慢 好 早 晚 多 少 高 清楚 大声 漂亮", HELPER, verb);
    else
        ph_append_from(s, &s->words->adjectives[q], index, LEMMA, HELPER, verb);
}

/* A verb with one of these objects; 0: without. */
clause ph_chinese_action(sentence *s, const phrase *subject, unsigned objects)
{
    clause c = {.subject = *subject, .object = {.at = -1}};
    int f = ph_draw_frame(s, subject, objects);
    unsigned groups = s->words->from->frames[f].objects & objects;
    int first = s->count, denied = 0, before = groups && chance(s, 12);
    ph_chinese_before(s, &denied);
    if (before) { /* 把 O V 了 */
        int ba = ph_append(s, "把", HELPER, -2);
        c.object = ph_chinese_phrase(s, groups);
        s->link[ba] = c.object.at;
    }
    c.verb = ph_chinese_verb(s, &s->words->frames[f], subject, first, denied);
    if (groups & PEOPLE && !before && chance(s, 15))
        c.object = ph_chinese_whom(s);
    else if (groups && !before)
        c.object = ph_chinese_long_phrase(s, groups);
    if (!groups && c.verb == s->count - 1 && chance(s, 15))
        put_result(s, c.verb);
    else if (!groups && chance(s, 15))
        put_behind(s, c.verb);
    if (groups) ph_set_link(s, &c.object, OBJECT, c.verb);
    if (!denied && chance(s, 12)) ph_append(s, "了", HELPER, c.verb);
    return c;
}

clause ph_chinese_state(sentence *s, const phrase *subject, unsigned but)
{
    quality q;
    clause c = {.subject = *subject, .object = {.at = -1}};
    int index = ph_draw_adjective(s, subject->group, but, &q), too = 0;
    if (chance(s, 12))
        ph_append_one_of(s, "昨天 今天 现在 总是 也 都 已经 变得", HELPER, -1);
    if (chance(s, 88)) {
        int at = ph_append_one_of(
            s,
            "太 太 很 很 很 很 非常 有点 真 不 不 十分 最 更 特别 越来越 比较 好 挺 这么",
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

/* 是 NOUN, 在 PLACE, 是 红色 的 */
static clause put_being(sentence *s, const phrase *subject)
{
    clause c = {.subject = *subject, .object = {.at = -1}};
    int r = below(s, 100), first = s->count;
    if (chance(s, 10)) ph_append_one_of(s, "也 都 就 还 不 一直 以前 现在", HELPER, -1);
    if (r < 40) {
        c.verb = ph_append(s, "在", ACTOR, subject->at);
        phrase p = ph_chinese_phrase(s, 1 << PLACE | 1 << FURNITURE | 1 << WAY |
                                            (chance(s, 50) ? 1u << CITY : 0));
        if (p.group != CITY && chance(s, 80))
            ph_append_one_of(s, "里 上 里面 旁边 附近 下 外面 前面 后面", HELPER, p.at);
        ph_set_link(s, &p, CIRCUMSTANCE, c.verb);
    } else if (r < 55) {
        quality q;
        c.verb = ph_append_one_of(s, "是 是 是 不是", ACTOR, subject->at);
        int index = ph_draw_adjective(s, subject->group, 0, &q);
        int at =
            ph_append_from(s, &s->words->adjectives[q], index, LEMMA, STATE, subject->at);
        ph_append(s, "的", HELPER, at);
    } else {
        unsigned same = is_human(subject->group) ? 1u << PERSON | 1u << MAN | 1u << WOMAN
                        : subject->group == CITY ? 1u << PLACE
                        : BARE >> subject->group & 1 ? 1u << IDEA
                                                     : 1u << subject->group;
        c.verb = ph_append_one_of(s, "是 是 是 是 不是 叫", ACTOR, subject->at);
        if (!strcmp(s->word[c.verb], "叫")) same = NAMED;
        phrase p = ph_chinese_phrase(s, same);
        ph_set_link(s, &p, STATE, subject->at);
    }
    ph_link_rest(s, first, c.verb);
    ph_marry(s, subject, c.verb);
    return c;
}

/* 有 两 个 孩子 */
static clause put_having(sentence *s, const phrase *subject)
{
    clause c = {.subject = *subject};
    c.verb = ph_append_one_of(s, "有 有 有 没有", ACTOR, subject->at);
    c.object = ph_chinese_long_phrase(s, ANYTHING);
    ph_set_link(s, &c.object, OBJECT, c.verb);
    ph_marry(s, subject, c.verb);
    return c;
}

/* 比 香蕉 贵, 跟 香蕉 一样 贵 */
static clause put_comparison(sentence *s, const phrase *subject)
{
    quality q;
    clause c = {.subject = *subject, .object = {.at = -1}};
    int same = chance(s, 25);
    int than = ph_append_one_of(s, same ? "跟 和" : "比 比 比 没有", CIRCUMSTANCE, -2);
    phrase other = is_human(subject->group) && chance(s, 50)
                       ? ph_chinese_whom(s)
                       : ph_chinese_phrase(s, 1u << subject->group);
    s->link[than] = other.at;
    int helper = same            ? ph_append(s, "一样", HELPER, -1)
                 : chance(s, 15) ? ph_append_one_of(s, "更 还", HELPER, -1)
                                 : -1;
    int index = ph_draw_adjective(s, subject->group, 0, &q);
    c.verb =
        ph_append_from(s, &s->words->adjectives[q], index, LEMMA, STATE, subject->at);
    if (helper >= 0) s->link[helper] = c.verb;
    ph_set_link(s, &other, CIRCUMSTANCE, c.verb);
    if (s->link[subject->at] == -2) ph_set_link(s, subject, STATE, c.verb);
    if (!same && chance(s, 20)) ph_append_one_of(s, "多了 一点 得多", HELPER, c.verb);
    return c;
}

/* 被 狗 咬 了, 是 他 写 的 */
static clause put_passive(sentence *s, const phrase *subject)
{
    clause c = {.subject = *subject, .object = {.at = -1}};
    int f = ph_draw_frame_of(s, subject->group), first = s->count, shi = chance(s, 35);
    const word_list *list = &s->words->frames[f];
    if (chance(s, 15)) ph_append_one_of(s, "已经 昨天 刚刚 没有 也 都", HELPER, -1);
    int mark = ph_append_one_of(s, shi ? "是 是 不是" : "被 被 被 让", HELPER, -1);
    phrase who = {.at = -1};
    if (shi || chance(s, 60)) {
        who = chance(s, 45) ? ph_chinese_whom(s)
                            : ph_chinese_phrase(s, s->words->from->frames[f].subjects);
        if (!shi) s->link[mark] = who.at, s->role[mark] = CIRCUMSTANCE;
    }
    c.verb = ph_append_from(s, list, ph_draw_word(s, list), LEMMA, ACTOR,
                            shi ? who.at : subject->at);
    if (who.at >= 0) ph_set_link(s, &who, shi ? ACTOR : CIRCUMSTANCE, c.verb);
    ph_link_rest(s, first, c.verb);
    if (s->link[subject->at] == -2) ph_set_link(s, subject, shi ? OBJECT : ACTOR, c.verb);
    if (shi || chance(s, 85)) ph_append(s, shi ? "的" : "了", HELPER, c.verb);
    return c;
}

/* A verb of frame f with its objects, nothing before it. */
int ph_chinese_bare_verb(sentence *s, int f, relation role, int link)
{
    const word_list *list = &s->words->frames[f];
    unsigned objects = s->words->from->frames[f].objects;
    int verb = ph_append_from(s, list, ph_draw_word(s, list), LEMMA, role, link);
    if (!objects) return verb;
    phrase object = objects & PEOPLE && chance(s, 25)
                        ? ph_chinese_whom(s)
                        : ph_chinese_long_phrase(s, objects);
    ph_set_link(s, &object, OBJECT, verb);
    return verb;
}

/* 让 学生 写 作业 */
static clause put_demand(sentence *s, const phrase *subject)
{
    clause c = {.subject = *subject};
    int first = s->count, denied = 0;
    ph_chinese_before(s, &denied);
    c.verb = ph_append_from(s, &s->words->asking, ph_draw_word(s, &s->words->asking),
                            LEMMA, ACTOR, subject->at);
    ph_link_rest(s, first, c.verb);
    ph_marry(s, subject, c.verb);
    c.object = chance(s, 50) ? ph_chinese_whom(s) : ph_chinese_phrase(s, ALIVE);
    ph_set_link(s, &c.object, OBJECT, c.verb);
    int f = ph_draw_frame(s, &c.object, chance(s, 60) ? ANY_OBJECT : 0);
    ph_chinese_bare_verb(s, f, ACTOR, c.object.at);
    return c;
}

/* 去 中国 旅游, 来 上课 */
static clause put_trip(sentence *s, const phrase *subject)
{
    clause c = {.subject = *subject, .object = {.at = -1}};
    int first = s->count, denied = 0;
    ph_chinese_before(s, &denied);
    c.verb = ph_append_one_of(s, "去 去 去 来 回 到", ACTOR, subject->at);
    ph_link_rest(s, first, c.verb);
    ph_marry(s, subject, c.verb);
    if (chance(s, 75)) {
        c.object = ph_chinese_phrase(s, 1 << PLACE | 1 << CITY | 1 << WAY);
        ph_set_link(s, &c.object, OBJECT, c.verb);
    }
    if (c.object.at < 0 || chance(s, 55)) {
        int f = ph_draw_frame(s, subject, chance(s, 50) ? ANY_OBJECT : 0);
        ph_chinese_bare_verb(s, f, ACTOR, subject->at);
    }
    if (!denied && chance(s, 20)) ph_append(s, "了", HELPER, c.verb);
    return c;
}

static clause put_gift(sentence *s, const phrase *subject)
{
    clause c = {.subject = *subject};
    int first = s->count, denied = 0;
    ph_chinese_before(s, &denied);
    c.verb = ph_chinese_verb(s, &s->words->giving, subject, first, denied);
    phrase to =
        chance(s, 35) ? ph_chinese_whom(s) : ph_chinese_phrase(s, HUMAN | 1 << ANIMAL);
    ph_set_link(s, &to, OBJECT, c.verb);
    c.object = ph_chinese_phrase(s, GOODS | 1 << FOOD);
    ph_set_link(s, &c.object, OBJECT, c.verb);
    return c;
}

static clause put_wish(sentence *s, const phrase *subject)
{
    clause c = {.subject = *subject, .object = {.at = -1}};
    int first = s->count, denied = 0,
        f = ph_draw_frame(s, subject, chance(s, 60) ? ANY_OBJECT : 0);
    ph_chinese_before(s, &denied);
    c.verb = ph_append_from(s, &s->words->wanting, ph_draw_word(s, &s->words->wanting),
                            LEMMA, ACTOR, subject->at);
    ph_link_rest(s, first, c.verb);
    ph_marry(s, subject, c.verb);
    if (chance(s, 20)) { /* 想 去 中国 旅游 */
        int going = ph_append_one_of(s, "去 去 来 到", ACTOR, subject->at);
        phrase where = ph_chinese_phrase(s, 1 << PLACE | 1 << CITY);
        ph_set_link(s, &where, OBJECT, going);
        if (chance(s, 40)) return c;
    }
    ph_chinese_bare_verb(s, f, ACTOR, subject->at);
    return c;
}

/* ---- clauses ----------------------------------------------------------------------- */

static clause put_quiet(sentence *s, const phrase *subject, int r)
{
    int thing = (ANYTHING & ~ACTIVE) >> subject->group & 1;
    if (thing && r % 10 < 2) return put_passive(s, subject);
    if (r % 10 < 3) return put_comparison(s, subject);
    return r % 10 < 7 ? ph_chinese_state(s, subject, 0) : put_being(s, subject);
}

clause ph_chinese_predicate(sentence *s, const phrase *subject)
{
    int acting = ACTING >> subject->group & 1, r = below(s, 100);
    int human = is_human(subject->group), alive = ALIVE >> subject->group & 1;
    int transitive = (ACTIVE | 1 << VEHICLE) >> subject->group & 1;
    if (!acting || r < 20) return put_quiet(s, subject, acting ? r : below(s, 100));
    if (r < 23 && ANYTHING >> subject->group & 1) return put_passive(s, subject);
    if (human && r < 26) return put_having(s, subject);
    if (human && r < 31) return put_gift(s, subject);
    if (alive && r < 39) return put_wish(s, subject);
    if (human && r < 43) return put_demand(s, subject);
    if (alive && r < 48) return put_trip(s, subject);
    return ph_chinese_action(s, subject, transitive && r < 82 ? ANY_OBJECT : 0);
}

clause ph_chinese_clause(sentence *s)
{
    int early = chance(s, 6)
                    ? ph_append_from(s, &s->words->when, ph_draw_word(s, &s->words->when),
                                     LEMMA, HELPER, -2)
                    : -1;
    int r = below(s, 100);
    phrase subject =
        r < 24 ? ph_chinese_person(s)
               : ph_chinese_long_phrase(s, r < 74   ? ACTIVE | 1 << VEHICLE
                                           : r < 95 ? ANYTHING | 1 << NATURE | 1 << BODY
                                                    : 1 << CITY | 1 << ACTIVITY);
    clause c = ph_chinese_predicate(s, &subject);
    if (early >= 0) s->link[early] = c.verb;
    return c;
}

void ph_chinese_stop(sentence *s, int verb)
{
    if (chance(s, 4)) ph_append_one_of(s, "啊 呀 嘛 哦", HELPER, verb);
    if (chance(s, 90))
        ph_append_one_of(s,
                         chance(s, 95) ? "。 。 。 。 。 。 。 。 。 ！"
                                       : "… ； ： ” “ （ ） 《 》",
                         CLAUSE, verb);
}
