/*
 * chinese_everyday.c - Chinese as people type it first: questions, requests, greetings,
 * what there is, the weather.
 */
#include <string.h>

#include "recipes/chinese_parts.h"

static phrase put_whoever(sentence *s, unsigned groups)
{
    return chance(s, 55) ? ph_chinese_person(s) : ph_chinese_phrase(s, groups);
}

/* ---- questions --------------------------------------------------------------------- */

/* ... 吗 */
static int ask_whether(sentence *s)
{
    int verb = ph_chinese_clause(s).verb;
    ph_append_one_of(s, "吗 吗 吗 吗 吧 呢 没有", HELPER, verb);
    return verb;
}

/* S 在 哪里, S 是 谁, S 怎么样 */
static int ask_where(sentence *s)
{
    int r = below(s, 100), verb;
    phrase p = r < 35 ? put_whoever(s, ANYTHING | NAMED | 1 << CITY)
                      : put_whoever(s, ANYTHING | NAMED | 1 << NATURE);
    if (r < 35) {
        verb = ph_append(s, "在", ACTOR, p.at);
        ph_append_one_of(s, "哪里 哪儿", CIRCUMSTANCE, verb);
    } else if (r < 60) {
        verb = ph_append(s, "是", ACTOR, p.at);
        ph_append_one_of(s, "谁 什么 什么 哪里", STATE, p.at);
    } else if (r < 80) {
        verb = ph_append_one_of(s, "怎么样 怎么了 多大 多少 几岁", STATE, p.at);
        ph_set_link(s, &p, STATE, verb);
        return verb;
    } else { /* 你 呢 */
        ph_append(s, "呢", HELPER, p.at);
        ph_set_link(s, &p, CLAUSE, p.at);
        return p.at;
    }
    ph_marry(s, &p, verb);
    return verb;
}

/* 谁 V O */
static int ask_who(sentence *s)
{
    phrase p = {.at = ph_append(s, "谁", ACTOR, -2), .group = PERSON, .person = 3};
    return chance(s, 80) ? ph_chinese_action(s, &p, ANY_OBJECT).verb
                         : ph_chinese_state(s, &p, 0).verb;
}

/* S V 什么; S 叫 什么 名字; S V 几 个 O */
static int ask_what(sentence *s)
{
    int denied = 0, r = below(s, 100);
    phrase p = put_whoever(s, ALIVE);
    int f = ph_draw_frame(s, &p, ANY_OBJECT & ~BARE), first = s->count;
    ph_chinese_before(s, &denied);
    if (r < 12) {
        int verb = ph_append_one_of(s, "叫 叫 有 是", ACTOR, p.at);
        ph_link_rest(s, first, verb);
        ph_marry(s, &p, verb);
        ph_append(s, "什么", DETERMINER, verb + 2);
        ph_append_one_of(s, "名字 名字 问题 颜色", OBJECT, verb);
        return verb;
    }
    int verb = ph_chinese_verb(s, &s->words->frames[f], &p, first, denied);
    if (r < 45) {
        ph_append_one_of(s, "什么 什么 谁", OBJECT, verb);
        return verb;
    }
    phrase o = {
        .group = ph_draw_group(s, s->words->from->frames[f].objects & ~(unsigned)BARE)};
    int many = s->count;
    if (r < 70) {
        ph_append_one_of(s, "什么 什么 多少 哪些", DETERMINER, -1);
    } else {
        ph_append_one_of(s, "几 哪", DETERMINER, -1);
        ph_append_one_of(s, "个 个 只 本 件 种", DETERMINER, -1);
    }
    const word_list *list = &s->words->nouns[o.group];
    o.at = ph_append_from(s, list, ph_draw_word(s, list), LEMMA, OBJECT, verb);
    for (int i = many; i < o.at; i++) s->link[i] = o.at;
    return verb;
}

/* S 为什么 V O, S 什么时候 V */
static int ask_why(sentence *s)
{
    int denied = 0, objects = chance(s, 60);
    phrase p = put_whoever(s, ACTING);
    if (objects && !(ALIVE >> p.group & 1)) objects = 0;
    int f = ph_draw_frame(s, &p, objects ? ANY_OBJECT : 0), first = s->count;
    ph_append_one_of(s, "为什么 为什么 怎么 什么时候", HELPER, -1);
    ph_chinese_before(s, &denied);
    int verb = ph_chinese_verb(s, &s->words->frames[f], &p, first, denied);
    if (objects) {
        phrase o = ph_chinese_phrase(s, s->words->from->frames[f].objects);
        ph_set_link(s, &o, OBJECT, verb);
    }
    return verb;
}

/* 多少 钱; S 多少 钱 */
static int ask_price(sentence *s)
{
    int at = s->count, subject = chance(s, 60);
    phrase p = {.at = -1};
    if (subject) p = ph_chinese_phrase(s, GOODS | 1 << FOOD | 1 << DRINK);
    at = ph_append(s, "多少", DETERMINER, s->count + 1);
    ph_append(s, "钱", subject ? STATE : CLAUSE, subject ? p.at : at + 1);
    if (subject) ph_set_link(s, &p, STATE, at + 1);
    return at + 1;
}

/* S V A 还是 B */
static int ask_choice(sentence *s)
{
    phrase p = put_whoever(s, HUMAN);
    int first = s->count, denied = 0, f = ph_draw_frame(s, &p, ANY_OBJECT & ~BARE);
    unsigned groups = s->words->from->frames[f].objects & ~(unsigned)BARE;
    ph_chinese_before(s, &denied);
    int verb = ph_chinese_verb(s, &s->words->frames[f], &p, first, 1);
    phrase a = ph_chinese_phrase(s, groups);
    ph_set_link(s, &a, OBJECT, verb);
    int or = ph_append(s, "还是", CLAUSE, -2);
    phrase b = ph_chinese_phrase(s, 1u << a.group);
    s->link[or] = b.at;
    ph_set_link(s, &b, CLAUSE, a.at);
    return verb;
}

void ph_chinese_question(sentence *s)
{
    static int (*const kinds[])(sentence *) = {
        ask_whether, ask_whether, ask_whether, ask_whether, ask_where, ask_where,
        ask_where,   ask_who,     ask_what,    ask_what,    ask_what,  ask_why,
        ask_why,     ask_why,     ask_price,   ask_choice};
    int verb = kinds[below(s, (int)(sizeof kinds / sizeof kinds[0]))](s);
    if (chance(s, 92)) ph_append(s, "？", CLAUSE, verb);
}

/* ---- requests ---------------------------------------------------------------------- */

/* 请 V O; 别 V; 请 帮 我 V; V 吧: the verb has nobody to belong to. */
void ph_chinese_request(sentence *s)
{
    const phrase you = {.at = -1, .group = PERSON, .person = 2};
    int first = s->count, r = below(s, 100), verb;
    if (r < 75) ph_append_one_of(s, "请 请 请 别 别 不要 快 不用", HELPER, -1);
    if (chance(s, 20)) { /* 帮 我 V O */
        verb = ph_append_one_of(s, "帮 帮 让 给 叫", CLAUSE, s->count);
        phrase who = ph_chinese_whom(s);
        ph_set_link(s, &who, OBJECT, verb);
        int f = ph_draw_frame(s, &you, chance(s, 60) ? ANY_OBJECT : 0);
        ph_chinese_bare_verb(s, f, ACTOR, who.at);
    } else if (chance(s, 20)) { /* 给 我 一 杯 水 */
        const word_list *list = &s->words->giving;
        verb = ph_append_from(s, list, ph_draw_word(s, list), LEMMA, CLAUSE, s->count);
        phrase to = chance(s, 60) ? ph_chinese_whom(s) : ph_chinese_phrase(s, HUMAN);
        ph_set_link(s, &to, OBJECT, verb);
        phrase what = ph_chinese_phrase(s, GOODS | 1 << FOOD | 1 << DRINK);
        ph_set_link(s, &what, OBJECT, verb);
    } else {
        int f = ph_draw_frame(s, &you, chance(s, 60) ? ANY_OBJECT : 0);
        verb = ph_chinese_bare_verb(s, f, CLAUSE, s->count);
    }
    ph_link_rest(s, first, verb);
    if (chance(s, r < 75 ? 8 : 70)) ph_append_one_of(s, "吧 吧 了 一下", HELPER, verb);
    ph_chinese_stop(s, verb);
}

/* ---- greetings --------------------------------------------------------------------- */

/* 你好; 谢谢 你 的 帮助; 早上 好: returns the word that the others belong to. */
static int put_greeting(sentence *s)
{
    int at = s->count, r = below(s, 100);
    if (r < 60) {
        ph_append_one_of(s,
                         "你好 你好 您好 大家好 再见 对不起 没关系 不客气 晚安 请问 请问 "
                         "早 早上好 晚上好 是的 好的 对 不 好 谢谢 欢迎 没问题 生日快乐",
                         CLAUSE, at);
        return at;
    }
    ph_append_one_of(s, "谢谢 谢谢 欢迎 感谢 祝", CLAUSE, at);
    if (chance(s, 60)) {
        phrase who = chance(s, 70) ? ph_chinese_whom(s) : ph_chinese_phrase(s, NAMED);
        ph_set_link(s, &who, OBJECT, at);
    } else {
        int whose = ph_append_one_of(s, "你 您 你们 大家", DETERMINER, -2);
        ph_append(s, "的", HELPER, whose);
        s->link[whose] = ph_append_one_of(s, "帮助 支持 礼物 回答 信 邀请", OBJECT, at);
    }
    s->named = 0;
    return at;
}

void ph_chinese_greeting(sentence *s)
{
    int at = put_greeting(s);
    if (at == s->count - 1 && chance(s, 20)) {
        ph_append(s, "，", CLAUSE, at);
        phrase who = ph_chinese_phrase(s, NAMED);
        ph_set_link(s, &who, CLAUSE, at);
        s->named = 0;
    }
    if (chance(s, 50)) {
        if (chance(s, 90)) ph_append_one_of(s, "。 ！ ！", CLAUSE, at);
        return;
    }
    int comma = ph_append_one_of(s, "， ， ， ！", CLAUSE, -2);
    int ask = chance(s, 60), kind = below(s, 4), verb;
    verb = !ask        ? ph_chinese_clause(s).verb
           : kind == 0 ? ask_whether(s)
           : kind == 1 ? ask_why(s)
                       : ask_where(s);
    s->link[at] = s->link[comma] = verb;
    if (chance(s, 90)) ph_append(s, ask ? "？" : "。", CLAUSE, verb);
}

/* ---- what there is ----------------------------------------------------------------- */

/* PLACE 里 有 NOUN */
void ph_chinese_existence(sentence *s)
{
    phrase where =
        ph_chinese_phrase(s, 1 << PLACE | 1 << FURNITURE | 1 << WAY | 1 << CITY);
    if (where.group != CITY && chance(s, 85))
        ph_append_one_of(s, "里 上 旁边 下 附近 里面 前面", HELPER, where.at);
    int at = ph_append_one_of(s, "有 有 有 有 没有", ACTOR, -2);
    phrase what = ph_chinese_phrase(s, ANYTHING);
    ph_set_link(s, &where, CIRCUMSTANCE, at);
    ph_set_link(s, &what, ACTOR, at);
    s->link[at] = what.at;
    if (chance(s, 15)) {
        ph_append(s, "吗", HELPER, at);
        ph_append(s, "？", CLAUSE, at);
        return;
    }
    ph_chinese_stop(s, at);
}

/* 明天 会 下雨 吗; 今天 很 冷; 因为 下雨 ，所以 ...: what happens has no subject. */
static int put_weather(sentence *s)
{
    int first = s->count, verb;
    if (chance(s, 70))
        ph_append_one_of(s, "今天 昨天 明天 今晚 外面 现在 早上 晚上 冬天 夏天 这里 这里",
                         HELPER, -1);
    if (chance(s, 60)) {
        if (chance(s, 50))
            ph_append_one_of(s, "会 不会 没 没有 不 又 正在 可能 要", HELPER, -1);
        verb = ph_append_one_of(s, "下雨 下雨 下雪 刮风 打雷", CLAUSE, s->count);
        if (chance(s, 25)) ph_append(s, "了", HELPER, verb);
    } else {
        ph_append_one_of(s, "很 很 太 真 非常 有点 不 好 特别", HELPER, -1);
        verb = ph_append_one_of(s, "冷 热 暖和 凉快 舒服 晴 黑 晚", CLAUSE, s->count);
    }
    ph_link_rest(s, first, verb);
    return verb;
}

void ph_chinese_weather(sentence *s)
{
    int r = below(s, 100);
    if (r < 60) {
        int verb = put_weather(s);
        if (r < 20) ph_append(s, "吗", HELPER, verb);
        if (r < 20)
            ph_append(s, "？", CLAUSE, verb);
        else
            ph_chinese_stop(s, verb);
        return;
    }
    int why = r < 80, first = ph_append_one_of(s, why ? "因为" : "如果 要是 虽然",
                                               why ? REASON : CLAUSE, -2);
    put_weather(s);
    int comma = ph_append(s, "，", CLAUSE, -2);
    int so = chance(s, 60)
                 ? ph_append(s, why ? "所以" : "那么", why ? REASON : CLAUSE, -2)
                 : -1;
    int verb = ph_chinese_clause(s).verb;
    s->link[first] = s->link[comma] = verb;
    if (so >= 0) s->link[so] = verb;
    ph_chinese_stop(s, verb);
}
