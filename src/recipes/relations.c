/*
 * relations.c - the names of relations, and which one a link is.
 *
 * A model answers which word a word belongs to. How they belong together follows from its
 * answers for the whole text: which word belongs to which, in which order, and of which
 * classes of the lexicon. It is a rule about the answers, not a second answer.
 */
#include "recipes/relations.h"

#include <stdlib.h>
#include <string.h>

#include "polyhead_train.h"
#include "recipes/lexicon.h"

static const char *const names[RELATIONS] = {
    [DETERMINER] = "determiner", [PROPERTY] = "property",   [ACTOR] = "actor",
    [OBJECT] = "object",         [REFERENCE] = "reference", [HELPER] = "helper",
    [STATE] = "state",           [CIRCUMSTANCE] = "place",  [REASON] = "reason",
    [CLAUSE] = "clause"};

const char *ph_relation_name(int i)
{
    return i >= 0 && i < RELATIONS ? names[i] : NULL;
}

/* Of what the model answers with less than this, one in six is wrong on its grammars; of
   what it says about pronouns below 0.9, half on other texts (docs/HEADS.md). */
static float clear_from(int i)
{
    return i == REFERENCE ? 0.9f : 0.7f;
}

const char *ph_link_name(int i, float p)
{
    return p < clear_from(i) ? "unsure" : ph_relation_name(i);
}

/* ---- classes of a word ------------------------------------------------------------- */

/* Bits: those of function words are 1 << function_class. */
enum {
    NOUN = 1 << FUNCTIONS,
    VERB = NOUN << 1,
    ADJECTIVE = VERB << 1,
    ADVERB = ADJECTIVE << 1,
    LINKING = ADVERB << 1, /* "become" */
    WHEN = LINKING << 1    /* "night", "monday" */
};

/* Whether a form could be one of an entry: some part of it begins alike. */
static int begins_alike(const char *entry, const char *word)
{
    for (;; entry++) {
        if (entry[0] == word[0] && (!word[1] || entry[1] == word[1])) return 1;
        while (*entry && *entry != ' ' && *entry != '/') entry++;
        if (*entry != '/') return 0;
    }
}

static int in_list(const char *text, const char *word, word_form last)
{
    word_list list;
    char form[WORD_BYTES];
    ph_split_list(&list, text);
    for (int i = 0; i < list.count; i++) {
        if (!begins_alike(list.text + list.at[i], word)) continue;
        for (int f = LEMMA; f <= (int)last; f++) {
            ph_word_form(&list, i, (word_form)f, form);
            if (!strcmp(form, word)) return 1;
        }
    }
    return 0;
}

static unsigned classes_in(const vocabulary *v, const char *word)
{
    unsigned found = 0;
    for (int f = 0; f < FUNCTIONS; f++)
        if (in_list(v->function[f], word, LEMMA)) found |= 1u << f;
    for (int g = 0; g < NOUN_GROUPS; g++)
        if (in_list(v->nouns[g], word, PLURAL)) found |= g == TIME ? NOUN | WHEN : NOUN;
    for (int q = 0; q < QUALITIES; q++)
        if (in_list(v->adjectives[q], word, LEMMA)) found |= ADJECTIVE;
    for (int f = 0; v->frames[f].verbs; f++)
        if (in_list(v->frames[f].verbs, word, ING)) found |= VERB;
    if (in_list(v->giving, word, ING) || in_list(v->saying, word, ING) ||
        in_list(v->wanting, word, ING) || in_list(v->enjoying, word, ING) ||
        in_list(v->asking, word, ING))
        found |= VERB;
    if (in_list(v->linking, word, ING)) found |= VERB | LINKING;
    if (in_list(v->comparing, word, LEMMA)) found |= ADJECTIVE;
    if (in_list(v->manner, word, LEMMA) || in_list(v->frequency, word, LEMMA) ||
        in_list(v->when, word, LEMMA))
        found |= ADVERB;
    return found;
}

static unsigned classes_of(const char *word)
{
    char small[WORD_BYTES];
    size_t length = strlen(word);
    if (length >= sizeof small) return 0;
    for (size_t i = 0; i <= length; i++)
        small[i] = (char)(word[i] >= 'A' && word[i] <= 'Z' ? word[i] + 32 : word[i]);
    int chinese = (unsigned char)word[0] > 127;
    unsigned found = classes_in(chinese ? &ph_chinese : &ph_english, small);
    return found ? found : classes_in(chinese ? &ph_english : &ph_chinese, small);
}

/* ---- rules ------------------------------------------------------------------------- */

/* The answers for a text, with the classes of its words. */
typedef struct answers {
    const char *const *words;
    const int *links;
    const unsigned *classes;
    int count;
} answers;

enum { VERBAL = VERB | 1 << BEING, NOMINAL = NOUN | 1 << PRONOUNS };

static int is_one_of(const char *word, const char *list)
{
    size_t length = strlen(word);
    for (const char *at = list; (at = strstr(at, word)); at += length)
        if ((at == list || at[-1] == ' ') && (!at[length] || at[length] == ' ')) return 1;
    return 0;
}

static int is_chinese(const answers *a, int i)
{
    return (unsigned char)a->words[i][0] > 127;
}

/* Whether one of these words belongs to word i. */
static int has_word(const answers *a, int i, const char *list)
{
    for (int k = 0; k < a->count; k++)
        if (k != i && a->links[k] == i && is_one_of(a->words[k], list)) return 1;
    return 0;
}

static int is_mutual(const answers *a, int i)
{
    return a->links[a->links[i]] == i;
}

/* "is" or "became" belong to the same subject: what follows is said of it. */
static int is_said(const answers *a, int from, int subject)
{
    for (int k = 0; k < from; k++)
        if (k != subject && a->links[k] == subject &&
            a->classes[k] & (1 << BEING | LINKING))
            return 1;
    return 0;
}

/* A comma or full stop between two words. */
static int is_cut(const answers *a, int one, int two)
{
    for (int k = one + 1; k < two; k++)
        if (a->classes[k] & 1 << STOPS) return 1;
    return 0;
}

static int has_article(const answers *a, int i)
{
    return has_word(a, i,
                    "the a an this these those my your our every each another some his "
                    "her its their no any one last next 那 这 一 每 某 的");
}

/* Many words are noun and verb. A verb has no article, and belongs to its subject. */
static int is_verb_here(const answers *a, int i)
{
    unsigned c = a->classes[i];
    int to = a->links[i];
    if (!(c & VERBAL)) return 0;
    if (!(c & (NOUN | ADJECTIVE)) || to == i || is_mutual(a, i)) return 1;
    if (c & NOUN && has_article(a, i)) return 0;
    return (a->classes[to] & NOMINAL) != 0;
}

/* "in", "of", 在: but not verbs that look the same, nor 把. */
static int has_preposition(const answers *a, int i)
{
    for (int k = 0; k < i; k++)
        if (a->links[k] == i && a->classes[k] & 1 << PREPOSITIONS && a->links[i] != k &&
            !is_one_of(a->words[k], "把 that"))
            return 1;
    return 0;
}

static int is_joined(const answers *a, int i)
{
    return has_word(a, i, "and or but 和 跟 与 或者 还是 或 、");
}

/* ---- by what a word is ---- */

static relation noun_to_verb(const answers *a, int from, int to)
{
    int before = from < to, chinese = is_chinese(a, from);
    if (is_mutual(a, from)) return ACTOR;
    if (!strcmp(a->words[to], "在")) return CIRCUMSTANCE;
    if (has_word(a, from, "把") && from < to) return OBJECT;
    if (has_preposition(a, from)) return CIRCUMSTANCE;
    if (a->classes[from] & WHEN) return chinese ? HELPER : CIRCUMSTANCE;
    if (before && is_one_of(a->words[to], "有 没有") && a->links[to] > to)
        return CIRCUMSTANCE;
    if (before && has_word(a, from, "good happy nice")) return CLAUSE;
    return OBJECT;
}

/* A name behind "hello", "you" behind "thank". */
static relation to_greeting(const answers *a, int from, int to)
{
    int thanks = is_one_of(a->words[to], "thank excuse forgive 谢谢 欢迎 感谢 祝");
    int near = is_chinese(a, from) ? !is_cut(a, to, from) : to == from - 1;
    if (has_preposition(a, from)) return CIRCUMSTANCE;
    return thanks && near ? OBJECT : CLAUSE;
}

static relation noun_to_noun(const answers *a, int from, int to)
{
    if (is_mutual(a, from)) return STATE;
    if (to > from) return DETERMINER;
    if (is_joined(a, from)) return CLAUSE;
    if (has_preposition(a, from)) return CIRCUMSTANCE;
    if (a->classes[from] & 1 << PRONOUNS &&
        !is_one_of(a->words[from], "什么 谁 哪里 mine yours"))
        return REFERENCE;
    return has_word(a, to, "good happy nice") && !is_said(a, from, to) ? CLAUSE : STATE;
}

/* Chinese adjectives are verbs of their own; a word that is both needs a degree. */
static int is_quality(const answers *a, int i)
{
    if (!(a->classes[i] & ADJECTIVE) || !is_chinese(a, i)) return 0;
    return !(a->classes[i] & VERBAL) ||
           has_word(
               a, i,
               "很 太 非常 有点 真 十分 最 更 特别 越来越 比较 好 挺 这么 一样 变得");
}

static relation of_noun(const answers *a, int from, int to)
{
    unsigned target = a->classes[to];
    int verb = is_verb_here(a, to);
    if (is_mutual(a, from) && is_quality(a, to)) return STATE;
    if (verb) return noun_to_verb(a, from, to);
    if (is_chinese(a, from) && a->classes[from] & WHEN) return HELPER;
    if (target & ADJECTIVE && !(target & NOMINAL))
        return has_preposition(a, from) ? CIRCUMSTANCE : STATE;
    return noun_to_noun(a, from, to);
}

static relation of_adjective(const answers *a, int from, int to)
{
    unsigned target = a->classes[to];
    if (to < from && has_word(a, to, "得")) return HELPER;
    if (is_joined(a, from) && target & (ADJECTIVE | NOMINAL)) return CLAUSE;
    if (target & NOMINAL) return to > from && !is_mutual(a, from) ? PROPERTY : STATE;
    if (target & ADJECTIVE) return to < from ? CLAUSE : HELPER;
    if (from == 0 && to > from) return CLAUSE; /* "nice to meet you" */
    return is_chinese(a, from) ? HELPER : STATE;
}

/* An adjective that could be a verb stands before its noun, or behind "is". */
static relation of_verb(const answers *a, int from, int to)
{
    unsigned own = a->classes[from];
    int before = to > from && !is_mutual(a, from);
    if (is_quality(a, from)) return before ? PROPERTY : STATE;
    if (!(own & ADJECTIVE) || own & 1 << BEING) return ACTOR;
    for (int k = from + 1; before && k < to; k++)
        if (a->links[k] == from && a->classes[k] & NOMINAL) return ACTOR;
    if (before) return PROPERTY;
    return to < from && is_said(a, from, to) ? STATE : ACTOR;
}

/* What, when: of a question, or before a clause. */
static relation of_question(const answers *a, int from, int to)
{
    int next = from + 1;
    int asks = next == to || (next < a->count && a->links[next] == to &&
                              a->classes[next] & (1 << HELPERS | 1 << BEING));
    if (is_mutual(a, from)) return ACTOR;
    if (is_one_of(a->words[from], "what who whom")) return next == to ? HELPER : OBJECT;
    return asks || strcmp(a->words[from], "when") ? HELPER : CLAUSE;
}

/* "that": before a clause, or what is seen. */
static relation of_that(const answers *a, int from, int to)
{
    if (is_mutual(a, from)) return ACTOR;
    if (has_preposition(a, from)) return CIRCUMSTANCE;
    for (int k = from + 1; k < a->count && to < from; k++)
        if (is_verb_here(a, k) && a->links[k] > from) return CLAUSE;
    return OBJECT;
}

/* ---- by what it belongs to ---- */

static relation to_verb(const answers *a, int from, int to)
{
    unsigned own = a->classes[from];
    if (own & 1 << REASONS) return REASON;
    if (own & (1 << HELPERS | ADVERB | 1 << BEING)) return HELPER;
    if (own & 1 << CONJUNCTIONS) return CLAUSE;
    if (own & NOMINAL) return noun_to_verb(a, from, to);
    if (own & ADJECTIVE) return of_adjective(a, from, to);
    return HELPER;
}

/* 's: "is", an owner's, or the auxiliary of a verb. */
static relation of_short_form(const answers *a, int from, int to)
{
    if (to > from) return is_verb_here(a, to) && !is_mutual(a, from) ? HELPER : ACTOR;
    return a->classes[to] & 1 << PRONOUNS ? ACTOR : HELPER;
}

/* 和: "and", or "with" before a verb that comes later. */
static relation of_and(const answers *a, int from, int to)
{
    int other = a->links[to];
    return other < from && a->classes[other] & NOMINAL ? CLAUSE : CIRCUMSTANCE;
}

/* 一 把 椅子, or the mark of an object. */
static relation of_ba(const answers *a, int from, int to)
{
    int counted =
        from > 0 && a->links[from - 1] == to && a->classes[from - 1] & 1 << DETERMINERS;
    return counted ? DETERMINER : HELPER;
}

static int opens_text(const answers *a, int from, int to)
{
    int first = from == 0 || a->links[0] == from;
    return first && a->classes[from] & 1 << GREETINGS && to > from &&
           !is_one_of(a->words[from], "please") && !is_mutual(a, from) &&
           (is_chinese(a, from) ? is_cut(a, from, to) : is_verb_here(a, to));
}

/* Words that are one of a kind; RELATIONS: another. */
static relation by_word(const answers *a, int from, int to)
{
    const char *word = a->words[from];
    unsigned own = a->classes[from], target = a->classes[to];
    int next = from + 1 < a->count && a->links[from + 1] == from;
    int owner = next && to > from + 1 &&
                ((!strcmp(a->words[from + 1], "'s") && own & NOUN) ||
                 (!strcmp(a->words[from + 1], "的") && own & 1 << PRONOUNS));
    if (!strcmp(word, "'s")) return of_short_form(a, from, to);
    if (owner) return DETERMINER;
    if (opens_text(a, from, to)) return CLAUSE;
    if (!strcmp(word, "把")) return of_ba(a, from, to);
    if (is_one_of(word, "和 跟 与 或者 还是 或") && target & NOMINAL)
        return of_and(a, from, to);
    if (is_one_of(word, "的 了 过 着 地 得 们 not")) return HELPER;
    if (is_one_of(word, "怎么样 怎么了 多大 几岁 多少") && to < from) return STATE;
    if (own & 1 << REASONS && is_chinese(a, from)) return REASON;
    if (is_one_of(word, "what who whom when where why how") && is_verb_here(a, to))
        return of_question(a, from, to);
    if (!strcmp(word, "that") && is_verb_here(a, to)) return of_that(a, from, to);
    if (own & (NOMINAL | VERB) && target & 1 << GREETINGS && to < from &&
        a->links[to] >= to && !is_mutual(a, from) && !is_verb_here(a, from))
        return to_greeting(a, from, to);
    return RELATIONS;
}

static int is_preposition(const answers *a, int from, int to)
{
    return a->classes[from] & 1 << PREPOSITIONS && a->classes[to] & NOMINAL &&
           to > from && !is_verb_here(a, to);
}

/* "was" and "can" before a verb that has a subject of its own. */
static int is_auxiliary(const answers *a, int from, int to)
{
    int subject = a->links[to];
    return a->classes[from] & (1 << BEING | 1 << HELPERS) && a->classes[to] & VERB &&
           to > from && subject != from && subject != to &&
           a->classes[subject] & NOMINAL && is_verb_here(a, to);
}

static relation rule(const answers *a, int from)
{
    int to = a->links[from], mutual = is_mutual(a, from);
    unsigned own = a->classes[from], target = a->classes[to];
    relation known = own & 1 << STOPS ? CLAUSE : by_word(a, from, to);
    if (known != RELATIONS) return known;
    if (mutual && is_verb_here(a, from) && target & NOMINAL &&
        !(own & NOUN && target & VERB))
        return of_verb(a, from, to);
    if (mutual && own & NOMINAL) return of_noun(a, from, to);
    if (!mutual && is_chinese(a, from) && own & 1 << HELPERS && to == from - 1)
        return HELPER;
    if (own & NOUN && !is_verb_here(a, from) &&
        (has_article(a, from) || has_preposition(a, from)))
        return of_noun(a, from, to);
    if (is_auxiliary(a, from, to)) return HELPER;
    if (own & 1 << DETERMINERS && target & NOUN && to > from && !is_verb_here(a, to))
        return DETERMINER;
    if (is_preposition(a, from, to)) return CIRCUMSTANCE;
    if (is_verb_here(a, to)) return to_verb(a, from, to);
    if (is_verb_here(a, from) && target & (NOMINAL | ADJECTIVE))
        return of_verb(a, from, to);
    if (own & ADJECTIVE) return of_adjective(a, from, to);
    if (own & NOMINAL) return of_noun(a, from, to);
    if (own & 1 << CONJUNCTIONS) return CLAUSE;
    return HELPER;
}

ph_status ph_relations_of(const char *const *words, const int *links, int count,
                          int *relations)
{
    if (!words || !links || !relations) return PH_BAD_ARGUMENT;
    unsigned *classes = malloc((size_t)count * sizeof *classes + 1);
    if (!classes) return PH_OUT_OF_MEMORY;
    const answers a = {words, links, classes, count};
    for (int i = 0; i < count; i++) classes[i] = classes_of(words[i]);
    for (int i = 0; i < count; i++)
        relations[i] =
            links[i] == i || !classes[i] || !classes[links[i]] ? -1 : (int)rule(&a, i);
    free(classes);
    return PH_OK;
}
