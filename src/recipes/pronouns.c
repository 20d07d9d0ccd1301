/*
 * pronouns.c - the recipe "pronouns": sentences from a grammar, in English and Chinese,
 * and for every word the word it belongs to.
 *
 *     The animal didn't cross the street because it was too tired .
 *
 *     determiner, adjective -> noun          pronoun -> noun it stands for
 *     verb -> subject                        object -> verb
 *     auxiliary, particle, adverb -> verb    "too" -> adjective
 *     "because", "and", full stop -> main verb
 *     adjective behind a verb -> what it is said of; a subject -> itself
 *
 * Who "it" is follows from the adjective: the street may be wide, not tired. One in ten
 * combinations of subject, verb, object and adjective is held out for tests.
 */
#include <string.h>

#include "recipes/lexicon.h"
#include "recipes/recipes.h"

enum { WORDS_MAX = 28, TEST_SHARE = 10, UNKNOWN_SHARE = 40 };

/* Kinds of links, one for each link head of the model. */
typedef enum role {
    ARTICLE = 0, /* and measure word -> noun */
    COLOUR,      /* adjective -> noun */
    VERB,        /* -> subject */
    OBJECT,      /* -> verb */
    PRONOUN,     /* -> what it stands for */
    HELPER,      /* auxiliary, adverb, particle -> verb; degree -> adjective */
    STATE,       /* "was", "tired" -> what they are said of */
    CLAUSE,      /* conjunction, punctuation -> main verb; a subject stands for itself */
    ROLES
} role;

static const char roles[] = "article;adjective;verb;object;pronoun;helper;state;clause";

typedef struct sentence {
    const char *word[WORDS_MAX];
    int link[WORDS_MAX];
    int role[WORDS_MAX];
    uint8_t open[WORDS_MAX]; /* 1: a word that could be any other of its kind */
    int count;
    int language;
    uint32_t combination; /* mixed from the words that matter */
    ph_draw draw;
} sentence;

static int below(sentence *s, int n)
{
    return ph_draw_below(&s->draw, n);
}

static int put(sentence *s, const char *word, role kind, int link)
{
    s->word[s->count] = word;
    s->link[s->count] = link;
    s->role[s->count] = kind;
    s->open[s->count] = 0;
    return s->count++;
}

static int pick(sentence *s, const char *const *list, int most)
{
    int count = 0;
    while (count < most && list[count]) count++;
    int chosen = below(s, count);
    s->combination = s->combination * 31 + (uint32_t)chosen + 1;
    return chosen;
}

static int mass(const sentence *s, noun_group g) /* nouns of several: no "a" */
{
    (void)s;
    return g == PEOPLE || g == PLANTS;
}

/* ---- parts ------------------------------------------------------------------------- */

static const char *article(sentence *s, noun_group g)
{
    static const char *const single[] = {"the", "the", "the", "a", "this"};
    return mass(s, g) ? "the" : single[below(s, 5)];
}

/* Puts a noun with its article and perhaps an adjective; the noun links to `link`, or to
   itself where that is -1. Returns its index. */
static int put_noun(sentence *s, noun_group g, int link)
{
    const char *const *group = nouns[s->language][g];
    int which = pick(s, group, 20), count = 0, first = s->count;
    while (count < 20 && group[count]) count++;
    int name = (g == MAN || g == WOMAN) && which >= count - NAMES;
    int coloured = !name && below(s, 3) == 0;
    const char *looks = adjectives[s->language][LOOKS][below(s, 8)];
    if (s->language == ENGLISH) {
        if (!name) put(s, article(s, g), ARTICLE, -1);
        if (coloured) put(s, looks, COLOUR, -1);
    } else {
        if (!name && !mass(s, g) && below(s, 2)) {
            put(s, below(s, 2) ? "那" : "这", ARTICLE, -1);
            put(s, g == ANIMAL ? "只" : "个", ARTICLE, -1);
        }
        if (coloured) put(s, looks, COLOUR, -1), put(s, "的", HELPER, s->count - 1);
    }
    int noun = put(s, group[which], link < 0 ? CLAUSE : OBJECT, 0);
    s->link[noun] = link < 0 ? noun : link;
    s->open[noun] = 1;
    for (int i = first; i < noun; i++)
        if (s->link[i] < 0) s->link[i] = noun;
    return noun;
}

/* Verb with auxiliary and particle; links to `subject`. Returns its index. */
static int put_verb(sentence *s, const action *v, int subject, int may_deny)
{
    int denied = may_deny && below(s, 2), how = below(s, 8);
    const char *adverb = how < 4 && !denied ? adverbs[s->language][how] : NULL;
    int at = s->count + (denied || adverb);
    if (s->language == CHINESE) {
        if (denied) put(s, below(s, 2) ? "没有" : "不想", HELPER, at);
        if (adverb) put(s, adverb, HELPER, at);
        put(s, v->chinese, VERB, subject);
        if (!denied) put(s, "了", HELPER, at);
        return at;
    }
    if (denied) put(s, below(s, 2) ? "didn't" : "couldn't", HELPER, at);
    if (adverb) put(s, adverb, HELPER, at);
    put(s, denied ? v->base : v->past, VERB, subject);
    s->open[at] = 1;
    if (v->particle) put(s, v->particle, HELPER, at);
    return at;
}

/* "was too tired" after a subject that stands at `of` and agrees like `g`. */
static void put_state(sentence *s, noun_group g, quality q, int of)
{
    static const char *const degree[LANGUAGES][3] = {{"too", "very", "so"},
                                                     {"太", "很", "非常"}};
    int how = below(s, s->language == ENGLISH ? 4 : 3);
    const char *adjective =
        adjectives[s->language][q][pick(s, adjectives[s->language][q], 12)];
    if (s->language == ENGLISH) put(s, pronouns[ENGLISH][g][3], STATE, of);
    if (how < 3) put(s, degree[s->language][how], HELPER, s->count + 1);
    int at = put(s, adjective, STATE, of);
    if (s->language == CHINESE && how == 0) put(s, "了", HELPER, at);
}

static void put_stop(sentence *s, int main_verb)
{
    put(s, s->language == ENGLISH ? "." : "。", CLAUSE, main_verb);
}

static void put_because(sentence *s, int main_verb)
{
    if (s->language == CHINESE) put(s, "，", CLAUSE, main_verb);
    if (s->language == CHINESE)
        put(s, "因为", CLAUSE, main_verb);
    else
        put(s, below(s, 4) ? "because" : "since", CLAUSE, main_verb);
}

static quality state_of(noun_group g, quality of_object)
{
    return g == MACHINE                                         ? WORKING
           : g == WAY || g == THING || g == FOOD || g == PLANTS ? of_object
                                                                : ALIVE;
}

/* ---- sentences --------------------------------------------------------------------- */

/* S (not) V O because PRONOUN was ADJECTIVE */
static void reason(sentence *s)
{
    const verb_frame *f = &frames[below(s, FRAMES)];
    noun_group g = f->subjects[below(s, FRAME_SUBJECTS)];
    int subject = put_noun(s, g, -1);
    int verb = put_verb(s, &f->verbs[below(s, FRAME_VERBS)], subject, 1);
    int object = put_noun(s, f->object, verb), of_subject = below(s, 2);
    noun_group whose = of_subject ? g : f->object;
    put_because(s, verb);
    int pronoun =
        put(s, pronouns[s->language][whose][0], PRONOUN, of_subject ? subject : object);
    put_state(s, whose, state_of(whose, f->of_object), pronoun);
    put_stop(s, verb);
}

/* Two people; gender tells who is meant. */
static void people(sentence *s)
{
    noun_group first = below(s, 2) ? MAN : WOMAN, second = first == MAN ? WOMAN : MAN;
    int subject = put_noun(s, first, -1);
    int verb = put_verb(s, &meetings[below(s, MEETINGS)], subject, 1);
    int object = put_noun(s, second, verb), of_subject = below(s, 2);
    noun_group whose = of_subject ? first : second;
    put_because(s, verb);
    int pronoun =
        put(s, pronouns[s->language][whose][0], PRONOUN, of_subject ? subject : object);
    put_state(s, whose, ALIVE, pronoun);
    put_stop(s, verb);
}

/* S V O and V it: the object again */
static void twice(sentence *s)
{
    static const noun_group living[] = {ANIMAL, MAN, WOMAN, PEOPLE};
    noun_group first = living[below(s, 4)], second = living[below(s, 4)];
    int subject = put_noun(s, first, -1);
    int verb = put_verb(s, &meetings[below(s, MEETINGS)], subject, 0);
    int object = put_noun(s, second, verb);
    if (s->language == ENGLISH)
        put(s, "and", CLAUSE, verb);
    else
        put(s, "，", CLAUSE, verb), put(s, "就", HELPER, s->count + 1);
    action again = meetings[below(s, MEETINGS)];
    int next = put(s, s->language == ENGLISH ? again.past : again.chinese, VERB, subject);
    put(s, pronouns[s->language][second][1], PRONOUN, object);
    if (s->language == ENGLISH && below(s, 3) == 0) put(s, "quickly", HELPER, next);
    put_stop(s, verb);
}

/* S V his O */
static void owner(sentence *s)
{
    static const noun_group living[] = {ANIMAL, MAN, WOMAN, PEOPLE};
    noun_group first = living[below(s, 4)];
    const verb_frame *f = &frames[1 + below(s, FRAMES - 1)];
    int subject = put_noun(s, first, -1);
    int verb = put_verb(s, &f->verbs[below(s, FRAME_VERBS)], subject, 1);
    int his = put(s, pronouns[s->language][first][2], PRONOUN, subject);
    if (s->language == CHINESE) put(s, "的", HELPER, his);
    const char *const *group = nouns[s->language][f->object];
    put(s, group[pick(s, group, 20)], OBJECT, verb);
    put_stop(s, verb);
}

/* S that V O was ADJECTIVE */
static void relative(sentence *s)
{
    static const noun_group living[] = {ANIMAL, MAN, WOMAN, PEOPLE};
    noun_group first = living[below(s, 4)], second = living[below(s, 4)];
    action v = meetings[below(s, MEETINGS)];
    int subject, at;
    if (s->language == ENGLISH) {
        subject = put_noun(s, first, -1);
        put(s, "that", PRONOUN, subject);
        at = put(s, v.past, VERB, subject);
        put_noun(s, second, at);
        put_state(s, first, ALIVE, subject);
    } else {
        at = put(s, v.chinese, VERB, -1);
        put_noun(s, second, at);
        put(s, "的", HELPER, at);
        subject = put_noun(s, first, -1);
        s->link[at] = subject;
        put_state(s, first, ALIVE, subject);
    }
    put_stop(s, subject);
}

/* S was ADJECTIVE */
static void plain(sentence *s)
{
    noun_group g = (noun_group)below(s, NOUN_GROUPS);
    static const quality of[] = {ALIVE,  WORKING,  ALIVE,   ALIVE,    ALIVE,
                                 OF_WAY, OF_THING, OF_FOOD, OF_PLANTS};
    int subject = put_noun(s, g, -1);
    put_state(s, g, of[g], subject);
    put_stop(s, subject);
}

static void compose(sentence *s, uint64_t key, uint32_t attempt)
{
    static void (*const kinds[])(sentence *) = {reason, reason,   reason,   reason,
                                                people, people,   twice,    twice,
                                                owner,  relative, relative, plain};
    s->draw = (ph_draw){ph_rng_key(key, attempt, 0, 0), 0};
    s->count = 0, s->combination = 0;
    s->language = below(s, LANGUAGES);
    int kind = below(s, 12);
    kinds[kind](s);
    s->combination = (uint32_t)ph_rng_mix(s->combination * 64u + (unsigned)kind * 2 +
                                          (unsigned)s->language);
}

/* ---- the recipe -------------------------------------------------------------------- */

static void sample(const ph_data *data, uint64_t key, int test, ph_sample *out)
{
    sentence s;
    for (uint32_t attempt = 0;; attempt++) {
        compose(&s, key, attempt);
        if ((s.combination % TEST_SHARE == 0) == (test != 0)) break;
    }
    for (int i = 0; i < data->source_len; i++) {
        int there = i < s.count, hide = 0;
        if (there && s.open[i] && !test) hide = below(&s, UNKNOWN_SHARE) == 0;
        out->labels[i] = there ? s.role[i] * data->source_len + s.link[i] : -1;
        out->source[i] = there ? ph_vocab_find(&data->vocab, s.word[i], strlen(s.word[i]))
                               : PH_TOKEN_PAD;
        if (hide) out->source[i] = PH_TOKEN_UNKNOWN;
    }
    out->length = s.count;
}

static ph_status add_group(ph_data *data, const char *const *words, int most)
{
    for (int i = 0; i < most && words[i]; i++)
        if (*words[i]) PH_TRY(ph_data_token(data, words[i]));
    return PH_OK;
}

static ph_status add_verb(ph_data *data, const action *v)
{
    const char *const words[] = {v->past, v->base, v->chinese, v->particle, NULL};
    return add_group(data, words, 4);
}

static ph_status open(ph_data *data)
{
    data->split = PH_SPLIT_WORDS;
    data->source_len = WORDS_MAX;
    PH_TRY(add_group(data, small_words, sizeof small_words / sizeof small_words[0]));
    for (int l = 0; l < LANGUAGES; l++) {
        for (int g = 0; g < NOUN_GROUPS; g++) {
            PH_TRY(add_group(data, nouns[l][g], 20));
            PH_TRY(add_group(data, pronouns[l][g], 4));
        }
        for (int q = 0; q < QUALITIES; q++) PH_TRY(add_group(data, adjectives[l][q], 12));
        PH_TRY(add_group(data, adverbs[l], 5));
    }
    for (int f = 0; f < FRAMES; f++)
        for (int v = 0; v < FRAME_VERBS; v++) PH_TRY(add_verb(data, &frames[f].verbs[v]));
    for (int v = 0; v < MEETINGS; v++) PH_TRY(add_verb(data, &meetings[v]));
    return PH_OK;
}

static void defaults(ph_train *t)
{
    t->config = (ph_config){.arch = PH_ARCH_ENCODER,
                            .layers = 2,
                            .model_dim = 64,
                            .heads = ROLES,
                            .ff_dim = 192,
                            .max_len = 64};
    strcpy(t->config.roles, roles);
    t->steps = 2000, t->batch = 64;
    t->lr = 2e-3f, t->warmup = 200, t->schedule = PH_SCHEDULE_COSINE;
}

const ph_recipe ph_recipe_pronouns = {
    .name = "pronouns",
    .help = "an encoder that finds the word every word belongs to, English and Chinese",
    .defaults = defaults,
    .open = open,
    .sample = sample};
