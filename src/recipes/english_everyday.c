/*
 * english_everyday.c - English as people type it first: questions, requests, greetings,
 * what there is, the weather.
 */
#include <string.h>

#include "recipes/english_parts.h"

static phrase put_whoever(sentence *s, unsigned groups)
{
    return chance(s, 55) ? ph_english_person(s) : ph_english_phrase(s, groups);
}

static void put_question_mark(sentence *s, int verb)
{
    if (chance(s, 92)) ph_append(s, "?", CLAUSE, verb);
}

/* ---- questions with "be" ----------------------------------------------------------- */

/* "is" and the subject behind it. */
static phrase put_be_subject(sentence *s, unsigned groups, int *be)
{
    int at = *be = ph_append(s, "is", ACTOR, -2);
    phrase p = put_whoever(s, groups);
    strcpy(s->word[at], ph_english_be(&p, chance(s, 35)));
    s->link[at] = p.at;
    ph_marry(s, &p, at);
    return p;
}

static const unsigned anything = ANYTHING | NAMED | 1 << CITY | 1 << NATURE;

/* Where is the station? How are you? What is the weather like? How old is she? */
static int ask_where(sentence *s)
{
    int be, r = below(s, 100), how = s->count;
    if (r < 12) {
        ph_append(s, "how", HELPER, how + 1);
        ph_append_one_of(s, "old big far long tall expensive many much deep high", HELPER,
                         how + 2);
    } else {
        ph_append_one_of(s, "where where where how how who what what why when", HELPER,
                         how + 1);
    }
    if (r >= 12 && r < 20) { /* what's */
        phrase p;
        be = ph_append(s, "'s", ACTOR, -2);
        p = ph_english_phrase(s, anything);
        s->link[be] = p.at;
        ph_marry(s, &p, be);
        return be;
    }
    phrase p = put_be_subject(s, anything, &be);
    if (r >= 94) ph_append_one_of(s, "like from", HELPER, be);
    if (!strcmp(s->word[how], "why")) ph_english_said(s, &p, 0);
    if (chance(s, 15)) ph_append_one_of(s, "today now tonight tomorrow", HELPER, be);
    return be;
}

/* Is the cat hungry? Are you from Paris? Is this your bag? Is it raining? */
static int ask_whether(sentence *s)
{
    int be, r = below(s, 100);
    if (r < 25) {
        be = ph_append(s, "is", HELPER, -2);
        phrase p = put_whoever(s, ALIVE);
        strcpy(s->word[be], ph_english_be(&p, chance(s, 30)));
        int f = ph_draw_frame(s, &p, chance(s, 50) ? ANY_OBJECT : 0);
        verb_words v = ph_english_form(s, &s->words->frames[f], ING, p.at);
        s->link[be] = v.at;
        ph_marry(s, &p, v.at);
        ph_english_object(s, f, ANY_OBJECT, &v);
        return v.at;
    }
    phrase p = put_be_subject(s, anything, &be);
    if (r < 55)
        ph_english_said(s, &p, 0);
    else if (r < 70)
        ph_english_place(s, be);
    else {
        phrase what = ph_english_phrase(s, HUMAN >> p.group & 1 ? 1u << PERSON
                                                                : GOODS | 1 << PLACE);
        ph_set_link(s, &what, STATE, p.at);
    }
    if (chance(s, 15)) ph_append_one_of(s, "today now tonight tomorrow", HELPER, be);
    return be;
}

/* What time is it? */
static int ask_time(sentence *s)
{
    int at = s->count;
    ph_append_one_of(s, "what which", DETERMINER, at + 1);
    ph_append_one_of(s, "time time day color year month", STATE, at + 3);
    ph_append_one_of(s, "is is was", ACTOR, at + 3);
    ph_append_one_of(s, "it it this that", ACTOR, at + 2);
    if (chance(s, 20)) ph_append_one_of(s, "now today", HELPER, at + 2);
    return at + 2;
}

/* ---- questions with an auxiliary --------------------------------------------------- */

static const char asking_words[] = "why why when how where where";

static int put_auxiliary(sentence *s)
{
    return ph_append_one_of(s,
                            "did did did does does does can can will could should must "
                            "would may didn't don't can't won't",
                            HELPER, -1);
}

/* "does" and "do" agree with the subject behind them. */
static void agree(sentence *s, int aux, const phrase *p)
{
    if (p->plural || p->person != 3) {
        if (!strcmp(s->word[aux], "does")) strcpy(s->word[aux], "do");
    } else if (!strcmp(s->word[aux], "don't"))
        strcpy(s->word[aux], "doesn't");
}

/* The rest of a question whose words from `first` on belong to the verb. */
static int put_asked(sentence *s, int first, int aux, int with_object)
{
    int objects = with_object && chance(s, 70);
    phrase p = put_whoever(s, objects ? ALIVE : ACTING & ~(1 << PLANT | 1 << FOOD));
    agree(s, aux, &p);
    if (chance(s, 6)) ph_append_one_of(s, "please always often really ever", HELPER, -1);
    int f = ph_draw_frame(s, &p, objects ? ANY_OBJECT : 0);
    verb_words v = ph_english_form(s, &s->words->frames[f], LEMMA, p.at);
    for (int i = first; i < v.at; i++)
        if (s->link[i] == -1) s->link[i] = v.at;
    ph_marry(s, &p, v.at);
    ph_english_object(s, f, ANY_OBJECT, &v);
    if (chance(s, 25)) ph_english_adverbs(s, v.at);
    return v.at;
}

/* What do you want? Who did she see?: the object is what is asked. */
static int put_asked_object(sentence *s, int first)
{
    int aux = put_auxiliary(s);
    phrase p = put_whoever(s, ALIVE);
    agree(s, aux, &p);
    int f = ph_draw_frame(s, &p, ANY_OBJECT);
    verb_words v = ph_english_form(s, &s->words->frames[f], LEMMA, p.at);
    for (int i = first; i < v.at; i++)
        if (s->link[i] == -1) s->link[i] = v.at;
    ph_marry(s, &p, v.at);
    ph_english_particle(s, &v);
    if (chance(s, 25)) ph_english_adverbs(s, v.at);
    return v.at;
}

/* How many children do you have? Which color do you prefer? How much does it cost? */
static int ask_which(sentence *s)
{
    int first = s->count, r = below(s, 100);
    if (r < 15) {
        ph_append(s, "how", HELPER, first + 1);
        ph_append(s, r < 11 ? "much" : "long", HELPER, -1);
        return put_asked(s, first, put_auxiliary(s), 0);
    }
    int how = r < 50;
    if (how) {
        ph_append(s, "how", HELPER, first + 1);
        ph_append(s, r < 40 ? "many" : "much", DETERMINER, -2);
    } else {
        ph_append_one_of(s, "which which what whose", DETERMINER, -2);
    }
    unsigned groups = how && r >= 40 ? UNCOUNTED
                                     : PEOPLE | GOODS | 1 << FOOD | 1 << IDEA |
                                           1 << ANIMAL | 1 << WRITING | 1 << PLACE;
    noun_group g = ph_draw_group(s, groups);
    phrase what = ph_english_noun(s, g, how && r < 40);
    s->link[first + how] = what.at;
    ph_set_link(s, &what, OBJECT, -1);
    s->named = 0;
    return put_asked_object(s, first);
}

/* Did S V O? Have you seen ...? Would you like some tea? */
static int ask_deed(sentence *s)
{
    int first = s->count, r = below(s, 100);
    if (r < 15) { /* have you ever seen */
        int have = ph_append(s, "have", HELPER, -1);
        phrase p = put_whoever(s, ALIVE);
        if (!p.plural && p.person == 3) strcpy(s->word[have], "has");
        if (chance(s, 30)) ph_append_one_of(s, "ever already never", HELPER, -1);
        int f = ph_draw_frame(s, &p, chance(s, 60) ? ANY_OBJECT : 0);
        verb_words v = ph_english_form(s, &s->words->frames[f], PARTICIPLE, p.at);
        for (int i = first; i < v.at; i++)
            if (s->link[i] == -1) s->link[i] = v.at;
        ph_marry(s, &p, v.at);
        ph_english_object(s, f, ANY_OBJECT, &v);
        return v.at;
    }
    if (r < 30) { /* do you want to ... */
        int aux = put_auxiliary(s);
        phrase p = put_whoever(s, ALIVE);
        agree(s, aux, &p);
        verb_words v = ph_english_form(s, &s->words->wanting, LEMMA, p.at);
        s->link[aux] = v.at;
        ph_marry(s, &p, v.at);
        int to = ph_append(s, "to", HELPER, -2);
        int f = ph_draw_frame(s, &p, chance(s, 60) ? ANY_OBJECT : 0);
        verb_words next = ph_english_form(s, &s->words->frames[f], LEMMA, p.at);
        s->link[to] = next.at;
        ph_english_object(s, f, ANY_OBJECT, &next);
        return v.at;
    }
    if (r < 55) ph_append_one_of(s, asking_words, HELPER, -1);
    return put_asked(s, first, put_auxiliary(s), 1);
}

/* Who wrote this book? What happened? Who is hungry? */
static int ask_who(sentence *s)
{
    phrase p = {.at = ph_append_one_of(s, "who who who what", ACTOR, -2),
                .group = PERSON,
                .person = 3};
    if (chance(s, 80))
        return ph_english_action(s, &p, chance(s, 80) ? ANY_OBJECT : 0).verb;
    return ph_english_state(s, &p, 0).verb;
}

/* Are there any questions? */
static int ask_existence(sentence *s)
{
    int be = ph_append(s, "is", ACTOR, -2);
    ph_append(s, "there", HELPER, be);
    phrase p = ph_english_phrase(s, ANYTHING);
    strcpy(s->word[be], ph_english_be(&p, chance(s, 30)));
    s->link[be] = p.at;
    ph_marry(s, &p, be);
    if (chance(s, 50)) ph_english_place(s, be);
    return be;
}

static int ask_object(sentence *s)
{
    int first = s->count;
    ph_append_one_of(s, "what what what who whom", OBJECT, -1);
    return put_asked_object(s, first);
}

void ph_english_question(sentence *s)
{
    static int (*const kinds[])(sentence *) = {
        ask_where,  ask_where, ask_where,  ask_whether, ask_whether,   ask_time,
        ask_which,  ask_which, ask_deed,   ask_deed,    ask_deed,      ask_deed,
        ask_object, ask_who,   ask_object, ask_who,     ask_existence, ask_deed};
    int kind = below(s, (int)(sizeof kinds / sizeof kinds[0]));
    put_question_mark(s, kinds[kind](s));
}

/* ---- requests ---------------------------------------------------------------------- */

/* Be careful! Don't be late. */
static int put_be_request(sentence *s, int first)
{
    const phrase you = {.at = -1, .group = PERSON, .person = 2};
    int be = ph_append(s, "be", CLAUSE, s->count);
    ph_link_rest(s, first, be);
    ph_english_degree(s);
    quality q;
    int index = ph_draw_adjective(s, you.group, 0, &q);
    ph_append_from(s, &s->words->adjectives[q], index, LEMMA, STATE, be);
    return be;
}

/* V O; give me the book; the verb has nobody to belong to. */
static int put_request(sentence *s, int first)
{
    const phrase you = {.at = -1, .group = PERSON, .person = 2};
    int r = below(s, 100), giving = r < 15;
    int f = giving ? 0 : ph_draw_frame(s, &you, r < 70 ? ANY_OBJECT : 0);
    const word_list *list = giving ? &s->words->giving : &s->words->frames[f];
    verb_words v = ph_english_form(s, list, LEMMA, s->count);
    s->role[v.at] = CLAUSE;
    ph_link_rest(s, first, v.at);
    clause c = {.subject = you, .verb = v.at};
    if (giving)
        ph_english_gift(s, &c);
    else
        ph_english_object(s, f, ANY_OBJECT, &v);
    if (!giving && r >= 70 && chance(s, 20))
        ph_append_one_of(s, "left right here home back up down in out away", HELPER,
                         v.at);
    ph_english_adverbs(s, v.at);
    return v.at;
}

/* Please open the window. Let's go home. Don't touch that, please! */
void ph_english_request(sentence *s)
{
    int first = s->count, r = below(s, 100);
    if (r < 25) ph_append(s, "please", HELPER, -1);
    if (r >= 20 && r < 45) ph_append_one_of(s, "don't don't never", HELPER, -1);
    if (r >= 45 && r < 55) ph_append(s, "let's", HELPER, -1);
    int verb = chance(s, 12) ? put_be_request(s, first) : put_request(s, first);
    if (r >= 90) {
        ph_append(s, ",", CLAUSE, verb);
        ph_append(s, "please", HELPER, verb);
    }
    ph_english_stop(s, verb);
}

/* ---- greetings --------------------------------------------------------------------- */

/* Hello, good morning, thank you very much: returns the word that others belong to. */
static int put_greeting(sentence *s)
{
    int r = below(s, 100), at = s->count;
    if (r < 40) {
        ph_append_one_of(
            s,
            "hello hello hi hey thanks goodbye bye sorry welcome yes no okay ok "
            "congratulations well oh",
            CLAUSE, at);
    } else if (r < 65) {
        ph_append_one_of(s, "good good good happy nice", PROPERTY, at + 1);
        ph_append_one_of(s, "morning evening afternoon night day luck job birthday",
                         CLAUSE, at + 1);
        at++;
    } else if (r < 85) {
        ph_append(s, "thank", CLAUSE, at);
        ph_append(s, "you", OBJECT, at);
        if (chance(s, 50)) {
            ph_append_one_of(s, "very so", HELPER, at + 3);
            ph_append(s, "much", HELPER, at);
        }
        if (chance(s, 25)) {
            int for_ = ph_append(s, "for", CIRCUMSTANCE, -2);
            phrase p = ph_english_phrase(s, ANYTHING);
            s->link[for_] = p.at;
            ph_set_link(s, &p, CIRCUMSTANCE, at);
        }
    } else if (r < 90) {
        ph_append_one_of(s, "excuse forgive", CLAUSE, at);
        ph_append(s, "me", OBJECT, at);
    } else {
        ph_append_one_of(s, "nice good great glad sorry happy", CLAUSE, at);
        ph_append(s, "to", HELPER, at + 2);
        ph_append_one_of(s, "meet see hear", ACTOR, at);
        ph_append_one_of(s, "you you that her him", OBJECT, at + 2);
    }
    return at;
}

/* A greeting before a clause belongs to its verb. */
static void lead_on(sentence *s, int greeting, int comma, int verb)
{
    s->link[greeting] = verb;
    if (comma >= 0) s->link[comma] = verb;
}

/* Hello Anna! Good morning, how are you? Yes, I like it. See you tomorrow. */
void ph_english_greeting(sentence *s)
{
    if (chance(s, 10)) {
        int at = ph_append(s, "see", CLAUSE, 0);
        ph_append(s, "you", OBJECT, at);
        ph_append_one_of(s, "tomorrow later soon tonight again there then", HELPER, at);
        ph_english_stop(s, at);
        return;
    }
    int at = put_greeting(s);
    if (chance(s, 25)) {
        phrase who = ph_english_phrase(s, NAMED);
        ph_set_link(s, &who, CLAUSE, at);
        s->named = 0;
    }
    if (chance(s, 50)) {
        if (chance(s, 90)) ph_append_one_of(s, ". ! !", CLAUSE, at);
        return;
    }
    int comma = chance(s, 80) ? ph_append_one_of(s, ", , , , !", CLAUSE, -2) : -1;
    if (chance(s, 50)) {
        int verb = chance(s, 50) ? ask_where(s) : ask_deed(s);
        put_question_mark(s, verb);
        lead_on(s, at, comma, verb);
    } else {
        int verb = ph_english_clause(s).verb;
        ph_english_stop(s, verb);
        lead_on(s, at, comma, verb);
    }
}

/* ---- what there is ----------------------------------------------------------------- */

/* There is a cat in the garden. There's nothing here. */
void ph_english_existence(sentence *s)
{
    int past = chance(s, 45), no = chance(s, 10);
    ph_append(s, "there", HELPER, s->count + 1);
    int at = ph_append(s, "is", ACTOR, -2);
    phrase p = ph_english_long_phrase(s, ANYTHING | 1 << NATURE);
    const char *be = ph_english_be(&p, past);
    if (no)
        strcpy(s->word[at],
               p.plural ? (past ? "weren't" : "aren't") : (past ? "wasn't" : "isn't"));
    else
        strcpy(s->word[at], !strcmp(be, "is") && chance(s, 30) ? "'s" : be);
    s->link[at] = p.at;
    ph_marry(s, &p, at);
    if (chance(s, 70)) ph_english_place(s, at);
    if (chance(s, 10)) ph_append_one_of(s, "today now here outside tonight", HELPER, at);
    ph_english_stop(s, at);
}

/* It is raining. It was very cold last night. Will it rain tomorrow? */
void ph_english_weather(sentence *s)
{
    phrase it = {.group = NATURE, .person = 3};
    int r = below(s, 100), verb;
    static const char falling[] = "rain snow";
    word_list list;
    ph_split_list(&list, falling);
    if (r < 10) { /* will it rain */
        ph_append_one_of(s, "will did does could", HELPER, 2);
        it.at = ph_append(s, "it", ACTOR, 2);
        verb = ph_english_form(s, &list, LEMMA, it.at).at;
    } else if (r < 20) {
        ph_append_one_of(s, "is was", HELPER, 2);
        it.at = ph_append(s, "it", ACTOR, 2);
        verb = ph_english_form(s, &list, ING, it.at).at;
    } else if (r < 50) {
        it.at = ph_append(s, "it", ACTOR, -2);
        verb = ph_english_verb(s, &list, &it).at;
    } else {
        it.at = ph_append(s, "it", ACTOR, -2);
        verb = ph_english_being(s, &it);
        ph_english_degree(s);
        ph_append_one_of(s,
                         "cold hot warm cool sunny rainy cloudy windy foggy dark late "
                         "early humid freezing nice wet dry",
                         STATE, it.at);
    }
    if (chance(s, 60)) ph_english_adverbs(s, verb);
    if (r < 20)
        put_question_mark(s, verb);
    else
        ph_english_stop(s, verb);
}
