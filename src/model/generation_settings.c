/*
 * generation_settings.c - how a checkpoint wants its texts generated, by its
 * generation_config.json, or config.json in folders without one: what logit_rules.c
 * obeys, and the names of what counts for nothing here.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "checkpoint/checkpoint.h"
#include "model/model_text.h"

/* Where settings stand: a generation_config.json counts alone. */
typedef struct settings {
    ph_model *m;
    const ph_values *values;
    const char *prefix;
} settings;

static const char *prefix_of(const ph_values *values)
{
    static const char prefix[] = "generation.";
    for (size_t i = 0; i < values->count; i++)
        if (!strncmp(values->list[i].key, prefix, sizeof prefix - 1)) return prefix;
    return "";
}

/* A setting; NULL: it is absent or null. */
static const ph_value *find(const settings *s, const char *name)
{
    char key[96];
    snprintf(key, sizeof key, "%s%s", s->prefix, name);
    const ph_value *v = ph_values_find(s->values, key);
    return v && v->kind != PH_VALUE_NULL ? v : NULL;
}

static ph_status fail(const settings *s, const ph_value *v, const char *expected)
{
    return ph_fail(s->m->ctx, PH_BAD_FILE, "%s is %s, expected %s",
                   ph_value_field(v->key).text, ph_value_show(v).text, expected);
}

/* ---- numbers ----------------------------------------------------------------------- */

/* A whole number; absent: 0. */
static ph_status find_count(const settings *s, const char *name, int *count)
{
    const ph_value *v = find(s, name);
    *count = v ? ph_token_of(v) : 0;
    return *count >= 0 ? PH_OK : fail(s, v, "a whole number from 0 to 16777215");
}

static ph_status find_penalty(const settings *s, float *penalty)
{
    const ph_value *v = find(s, "repetition_penalty");
    if (!v) return PH_OK;
    float x = v->kind == PH_VALUE_NUMBER ? (float)v->number : 0;
    if (!(x >= 1e-3f && x <= 1e3f)) return fail(s, v, "a number from 0.001 to 1000");
    *penalty = x == 1 ? 0 : x;
    return PH_OK;
}

/* How many tokens come before an end may: min_new_tokens wins. What Whisper begins with
   is no new token to transformers. */
static ph_status find_least(const settings *s)
{
    ph_marks *marks = &s->m->marks;
    PH_TRY(find_count(s, "min_new_tokens", &marks->min_tokens));
    if (marks->min_tokens && s->m->config.mels) marks->min_tokens += marks->forced_count;
    return find(s, "min_new_tokens") ? PH_OK
                                     : find_count(s, "min_length", &marks->min_length);
}

/* An end that is forced where a text is full: one, or one of a list; -1: none. */
static ph_status find_forced_end(const settings *s, int *forced)
{
    const ph_value *v = find(s, "forced_eos_token_id");
    int none = v && v->kind == PH_VALUE_NUMBER && v->number == -1;
    *forced = v && !none;
    if (!*forced || v->kind == PH_VALUE_LIST || ph_token_of(v) >= 0) return PH_OK;
    return fail(s, v, "a token");
}

/* How many tokens at most; absent: 0. A forced end is one of them in transformers, and
   none here. */
static ph_status find_most(const settings *s, const char *name, int forced, int *most)
{
    const ph_value *v = find(s, name);
    if (!v) return PH_OK;
    if (v->kind != PH_VALUE_NUMBER || !(v->number >= 1 && v->number <= INT32_MAX) ||
        v->number != floor(v->number))
        return fail(s, v, "a whole number from 1 to 2147483647");
    *most = (int)v->number - (forced && v->number > 1);
    return PH_OK;
}

/* max_new_tokens wins. The length of the model is no limit of its own. What Whisper
   begins with counts for neither. */
static ph_status find_limits(const settings *s)
{
    ph_marks *marks = &s->m->marks;
    int forced, most = s->m->config.max_len;
    int first = s->m->config.mels ? marks->forced_count : 0;
    PH_TRY(find_forced_end(s, &forced));
    PH_TRY(find_most(s, "max_new_tokens", forced, &marks->max_tokens));
    PH_TRY(find_most(s, "max_length", forced, &marks->max_length));
    marks->max_length = ph_min(marks->max_length, most);
    if (marks->max_length && s->m->config.mels) marks->max_length += first + 1;
    if (marks->max_tokens || marks->max_length >= most) marks->max_length = 0;
    marks->max_tokens = ph_min(marks->max_tokens, most);
    if (marks->max_tokens) marks->max_tokens += first;
    return PH_OK;
}

/* ---- tokens that are not generated ------------------------------------------------- */

static ph_status suppress(const settings *s, const char *name, int how)
{
    const ph_value *list = find(s, name);
    ph_value item;
    for (size_t i = 0; list && ph_values_item(s->values, list, i, &item); i++) {
        int32_t token = ph_token_of(&item);
        if (token < 0 || token >= s->m->config.vocab) continue;
        if (!s->m->suppressed) PH_TRY(ph_marks_suppress(s->m));
        s->m->suppressed[token] |= (uint8_t)how;
    }
    return PH_OK;
}

/* List i of bad_words_ids. */
static ph_status find_sequence(const settings *s, size_t i, const ph_value **list)
{
    char name[48];
    snprintf(name, sizeof name, "bad_words_ids.%zu", i);
    *list = find(s, name);
    if (*list && (*list)->kind == PH_VALUE_LIST && (*list)->count) return PH_OK;
    char key[64];
    snprintf(key, sizeof key, "%s%s", s->prefix, name);
    return ph_fail(s->m->ctx, PH_BAD_FILE, "%s is %s, expected a list of tokens",
                   ph_value_field(key).text,
                   !*list                              ? "null"
                   : (*list)->kind == PH_VALUE_LIST ? "empty"
                                                       : ph_value_show(*list).text);
}

/* Adds a sequence; *to counts what is stored, and stays where it is nothing: an end alone
   may come, whatever the list says, and a token that the model has not never does. */
static ph_status add_sequence(const settings *s, const ph_value *list, int32_t *out,
                              int *to)
{
    int count = 1;
    ph_value item;
    for (size_t i = 0; ph_values_item(s->values, list, i, &item); i++) {
        int32_t token = ph_token_of(&item);
        if (token < 0) return fail(s, &item, "a token");
        if (token >= s->m->config.vocab) return PH_OK;
        out[*to + count++] = token;
    }
    if (count == 2 && ph_is_end(s->m, out[*to + 1])) return PH_OK;
    out[*to] = count - 1;
    *to += count;
    return PH_OK;
}

static ph_status find_banned(const settings *s)
{
    const ph_value *lists = find(s, "bad_words_ids"), *list;
    size_t count = 0;
    if (!lists) return PH_OK;
    if (lists->kind != PH_VALUE_LIST) return fail(s, lists, "a list of lists of tokens");
    for (size_t i = 0; i < lists->count; i++) {
        PH_TRY(find_sequence(s, i, &list));
        count += list->count + 1;
    }
    if (!count) return PH_OK;
    int32_t *out = s->m->banned = ph_ctx_alloc(s->m->ctx, count * sizeof *out);
    if (!out)
        return ph_fail(s->m->ctx, PH_OUT_OF_MEMORY, "no memory for %zu tokens", count);
    for (size_t i = 0; i < lists->count; i++) {
        PH_TRY(find_sequence(s, i, &list));
        PH_TRY(add_sequence(s, list, out, &s->m->banned_count));
    }
    return PH_OK;
}

/* ---- what counts for nothing ------------------------------------------------------- */

enum {
    BOOL = 1 << PH_VALUE_BOOL,
    NUMBER = 1 << PH_VALUE_NUMBER,
    TEXT = 1 << PH_VALUE_TEXT,
    LIST = 1 << PH_VALUE_LIST,
    OBJECT = 1 << PH_VALUE_OBJECT
};

/* Settings under which transformers would choose other tokens without sampling. */
static const struct {
    const char *name;
    int kinds;            /* that its value may be ... */
    const char *expected; /* ... in words */
    double neutral;       /* a number that changes nothing; -1: all do */
    int beams;            /* 1: changes nothing without several beams */
} others[] = {{"num_beams", NUMBER, "a number", 1, 0},
              {"num_beam_groups", NUMBER, "a number", 1, 1},
              {"diversity_penalty", NUMBER, "a number", 0, 1},
              {"length_penalty", NUMBER, "a number", 1, 1},
              {"penalty_alpha", NUMBER, "a number", 0, 0},
              {"encoder_repetition_penalty", NUMBER, "a number", 1, 0},
              {"encoder_no_repeat_ngram_size", NUMBER, "a number", 0, 0},
              {"sequence_bias", LIST, "a list", -1, 0},
              {"exponential_decay_length_penalty", LIST, "a list", -1, 0},
              {"guidance_scale", NUMBER, "a number", 1, 0},
              {"forced_decoder_ids", LIST, "a list", -1, 0},
              {"return_timestamps", BOOL, "true or false", 0, 0},
              {"force_words_ids", LIST, "a list", -1, 0},
              {"watermarking_config", OBJECT, "an object", -1, 0},
              {"stop_strings", TEXT | LIST, "a text or a list of them", -1, 0},
              {"token_healing", BOOL, "true or false", 0, 0},
              {"max_time", NUMBER, "a number", -1, 0}};

enum { OTHERS = sizeof others / sizeof others[0] };

/* sound_marks.c obeys the first of these, and the second means nothing without sound. */
static int is_of_sound(const settings *s, int i)
{
    return s->m->config.mels ? !strcmp(others[i].name, "forced_decoder_ids")
                             : !strcmp(others[i].name, "return_timestamps");
}

/* Whether setting i is there and changes something. */
static ph_status find_other(const settings *s, int i, int *changes)
{
    const ph_value *v = is_of_sound(s, i) ? NULL : find(s, others[i].name);
    *changes = 0;
    if (!v) return PH_OK;
    if (!(others[i].kinds & 1 << v->kind))
        return fail(s, v, others[i].expected);
    int number = v->kind == PH_VALUE_NUMBER || v->kind == PH_VALUE_BOOL;
    *changes = !number || v->number != others[i].neutral;
    return PH_OK;
}

static ph_status list_ignored(const settings *s)
{
    char list[40 * OTHERS] = "";
    int beams = 0, changes;
    for (int i = 0; i < OTHERS; i++) {
        size_t used = strlen(list);
        PH_TRY(find_other(s, i, &changes));
        if (!i) beams = changes;
        if (changes && (beams || !others[i].beams))
            snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "",
                     others[i].name);
    }
    if (!list[0]) return PH_OK;
    s->m->ignored = ph_ctx_alloc(s->m->ctx, strlen(list) + 1);
    if (!s->m->ignored)
        return ph_fail(s->m->ctx, PH_OUT_OF_MEMORY, "no memory for names of settings");
    strcpy(s->m->ignored, list);
    return PH_OK;
}

const char *ph_model_ignored(const ph_model *m)
{
    return m ? m->ignored : NULL;
}

/* ---- all of them ------------------------------------------------------------------- */

ph_status ph_settings_import(ph_model *m, const ph_values *values)
{
    const settings s = {m, values, prefix_of(values)};
    const ph_value *first = m->config.mels ? NULL : find(&s, "forced_bos_token_id");
    if (first) PH_TRY(ph_marks_force(m, first));
    PH_TRY(find_least(&s));
    PH_TRY(find_limits(&s));
    PH_TRY(find_count(&s, "no_repeat_ngram_size", &m->marks.no_repeat));
    PH_TRY(find_penalty(&s, &m->marks.penalty));
    PH_TRY(find_banned(&s));
    PH_TRY(suppress(&s, "suppress_tokens", PH_NEVER));
    PH_TRY(suppress(&s, "begin_suppress_tokens", PH_NOT_FIRST));
    PH_TRY(ph_marks_check(m));
    return list_ignored(&s);
}
