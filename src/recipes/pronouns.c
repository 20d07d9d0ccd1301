/*
 * pronouns.c - the recipe "pronouns": sentences of two grammars, and for every word the
 * word it belongs to (grammar.h).
 *
 * The loss sees that word only: neither its relation nor anything about heads. Who "it"
 * is follows from the rest of the sentence: the street may be wide, not tired. One in ten
 * combinations of content words is held out for tests.
 */
#include <stdlib.h>
#include <string.h>

#include "recipes/grammar.h"

enum { TEST_SHARE = 10, UNKNOWN_SHARE = 40, MIXED_SHARE = 25, MIXED_LEAST = 3 };

/* ---- the lexicon ------------------------------------------------------------------- */

/* All groups that an adjective may be said of, by any of its meanings. */
static unsigned meanings(const lexicon *l, const char *adjective)
{
    unsigned groups = 0;
    char other[WORD_BYTES];
    for (int q = 0; q < QUALITIES; q++)
        for (int i = 0; i < l->adjectives[q].count; i++) {
            ph_word_form(&l->adjectives[q], i, LEMMA, other);
            if (!strcmp(other, adjective)) groups |= ph_said_of[q];
        }
    return groups;
}

/* Of a verb that has objects: "was broken" is then a passive. */
static int is_participle(const lexicon *l, const char *adjective)
{
    char form[WORD_BYTES];
    for (int f = 0; f < l->frame_count; f++)
        for (int i = 0; l->from->frames[f].objects && i < l->frames[f].count; i++) {
            ph_word_form(&l->frames[f], i, PARTICIPLE, form);
            if (!strcmp(form, adjective)) return 1;
        }
    return 0;
}

static void split_lists(lexicon *l, const vocabulary *from)
{
    char word[WORD_BYTES];
    l->from = from;
    for (int g = 0; g < NOUN_GROUPS; g++) ph_split_list(&l->nouns[g], from->nouns[g]);
    for (int q = 0; q < QUALITIES; q++)
        ph_split_list(&l->adjectives[q], from->adjectives[q]);
    for (l->frame_count = 0; from->frames[l->frame_count].verbs; l->frame_count++)
        ph_split_list(&l->frames[l->frame_count], from->frames[l->frame_count].verbs);
    ph_split_list(&l->giving, from->giving);
    ph_split_list(&l->saying, from->saying);
    ph_split_list(&l->wanting, from->wanting);
    ph_split_list(&l->enjoying, from->enjoying);
    ph_split_list(&l->asking, from->asking);
    ph_split_list(&l->linking, from->linking);
    ph_split_list(&l->comparing, from->comparing);
    ph_split_list(&l->manner, from->manner);
    ph_split_list(&l->frequency, from->frequency);
    ph_split_list(&l->when, from->when);
    for (int q = 0; q < QUALITIES; q++)
        for (int i = 0; i < l->adjectives[q].count; i++) {
            ph_word_form(&l->adjectives[q], i, LEMMA, word);
            l->said_of[q][i] = meanings(l, word);
            l->participle[q][i] = (uint8_t)is_participle(l, word);
        }
}

static ph_status add_forms(ph_data *data, const word_list *list, word_form last)
{
    char word[WORD_BYTES];
    for (int i = 0; i < list->count; i++) {
        for (int form = LEMMA; form <= (int)last; form++) {
            ph_word_form(list, i, (word_form)form, word);
            PH_TRY(ph_data_token(data, word));
        }
        if (ph_word_particle(list, i, word)) PH_TRY(ph_data_token(data, word));
    }
    return PH_OK;
}

static ph_status add_words(ph_data *data, lexicon *l)
{
    l->functions = PH_TOKEN_FIRST + data->token_count;
    for (int f = 0; f < FUNCTIONS; f++) {
        word_list words;
        ph_split_list(&words, l->from->function[f]);
        PH_TRY(add_forms(data, &words, LEMMA));
    }
    l->functions_end = PH_TOKEN_FIRST + data->token_count;
    for (int g = 0; g < NOUN_GROUPS; g++)
        PH_TRY(
            add_forms(data, &l->nouns[g], (BARE | UNCOUNTED) >> g & 1 ? LEMMA : PLURAL));
    for (int q = 0; q < QUALITIES; q++) PH_TRY(add_forms(data, &l->adjectives[q], LEMMA));
    for (int f = 0; f < l->frame_count; f++) PH_TRY(add_forms(data, &l->frames[f], ING));
    PH_TRY(add_forms(data, &l->giving, ING));
    PH_TRY(add_forms(data, &l->saying, ING));
    PH_TRY(add_forms(data, &l->wanting, ING));
    PH_TRY(add_forms(data, &l->enjoying, ING));
    PH_TRY(add_forms(data, &l->asking, ING));
    PH_TRY(add_forms(data, &l->linking, ING));
    PH_TRY(add_forms(data, &l->comparing, LEMMA));
    PH_TRY(add_forms(data, &l->manner, LEMMA));
    PH_TRY(add_forms(data, &l->frequency, LEMMA));
    return add_forms(data, &l->when, LEMMA);
}

static ph_status open(ph_data *data)
{
    const vocabulary *const from[LANGUAGES] = {&ph_english, &ph_chinese};
    lexicon *both = malloc(LANGUAGES * sizeof *both);
    if (!both) return ph_fail(data->ctx, PH_OUT_OF_MEMORY, "no memory for a lexicon");
    data->own = both;
    data->split = PH_SPLIT_WORDS;
    data->source_len = WORDS_MAX;
    for (int l = 0; l < LANGUAGES; l++) {
        split_lists(&both[l], from[l]);
        PH_TRY(add_words(data, &both[l]));
    }
    return PH_OK;
}

static void close(ph_data *data)
{
    free(data->own);
}

/* ---- samples ----------------------------------------------------------------------- */

static int compose(const ph_data *data, sentence *s, uint64_t key, uint32_t attempt)
{
    const lexicon *both = data->own;
    s->draw = (ph_draw){ph_rng_key(key, attempt, 0, 0), 0};
    s->count = s->named = s->failed = 0;
    int language = below(s, LANGUAGES);
    s->words = &both[language];
    (language == ENGLISH ? ph_compose_english : ph_compose_chinese)(s);
    return !s->failed;
}

/* Mixed from the content words of a sentence, or from all where it has none ("How are
   you?"): the same sentence is never on both sides. */
static uint64_t combination(const ph_data *data, const sentence *s)
{
    uint64_t content = 0, all = 0;
    for (int i = 0; i < s->count; i++) {
        uint64_t token =
            (uint64_t)ph_vocab_find(&data->vocab, s->word[i], strlen(s->word[i]));
        int function = (int)token >= s->words->functions &&
                       (int)token < s->words->functions_end;
        all = ph_rng_mix(all + token);
        if (!function) content = ph_rng_mix(content + token);
    }
    return content ? content : all;
}

void ph_pronouns_compose(const ph_data *data, uint64_t key, int test, sentence *s)
{
    for (uint32_t attempt = 0;; attempt++)
        if (compose(data, s, key, attempt) &&
            (combination(data, s) % TEST_SHARE == 0) == (test != 0))
            return;
}

/* Some words change places and then belong to any word: in the long run to none more than
   to another, which teaches doubt about an order of words that no grammar has. */
static void mix_up(sentence *s)
{
    int length = MIXED_LEAST + below(s, s->count - MIXED_LEAST + 1);
    int first = below(s, s->count - length + 1), end = first + length;
    for (int i = 0; i < s->count; i++)
        if (s->link[i] >= first && s->link[i] < end) s->link[i] = -1;
    for (int i = first; i < end; i++) {
        int other = i + below(s, end - i);
        char word[WORD_BYTES];
        memcpy(word, s->word[i], WORD_BYTES);
        memcpy(s->word[i], s->word[other], WORD_BYTES);
        memcpy(s->word[other], word, WORD_BYTES);
        s->link[i] = below(s, s->count);
    }
}

static void sample(const ph_data *data, uint64_t key, int test, ph_sample *out)
{
    sentence s;
    ph_pronouns_compose(data, key, test, &s);
    if (!test && s.count >= MIXED_LEAST && below(&s, MIXED_SHARE) == 0) mix_up(&s);
    for (int i = 0; i < data->source_len; i++) {
        int there = i < s.count, hide = 0;
        if (there && s.open[i] && !test) hide = below(&s, UNKNOWN_SHARE) == 0;
        out->labels[i] = there ? s.link[i] : -1;
        out->source[i] = there ? ph_vocab_find(&data->vocab, s.word[i], strlen(s.word[i]))
                               : PH_TOKEN_PAD;
        if (hide) out->source[i] = PH_TOKEN_UNKNOWN;
    }
    out->length = s.count;
}

static void defaults(ph_train *t)
{
    t->config = (ph_config){.arch = PH_ARCH_ENCODER,
                            .layers = 2,
                            .model_dim = 64,
                            .heads = 8,
                            .ff_dim = 128,
                            .max_len = 64,
                            .positions = PH_POS_ROPE};
    t->steps = 30000, t->batch = 64;
    t->lr = 3e-3f, t->warmup = 400, t->schedule = PH_SCHEDULE_COSINE;
}

const ph_recipe ph_recipe_pronouns = {
    .name = "pronouns",
    .help = "an encoder that finds the word every word belongs to, English and Chinese",
    .defaults = defaults,
    .open = open,
    .close = close,
    .sample = sample};
