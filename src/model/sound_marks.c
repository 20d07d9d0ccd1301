/*
 * sound_marks.c - what a text begins with that is made of sound, by the configuration of
 * a published checkpoint: its language, its task, and a mark that there are no
 * timestamps. As transformers decides it: a language or a task that is named counts,
 * otherwise the list of older files, and a language that nothing names is found.
 */
#include <stdio.h>
#include <string.h>

#include "checkpoint/checkpoint.h"
#include "model/model_text.h"

/* Names of languages and their codes, in the order of the names. */
static const struct {
    const char *name, *code;
} languages[] = {
    {"afrikaans", "af"}, {"albanian", "sq"}, {"amharic", "am"}, {"arabic", "ar"},
    {"armenian", "hy"}, {"assamese", "as"}, {"azerbaijani", "az"}, {"bashkir", "ba"},
    {"basque", "eu"}, {"belarusian", "be"}, {"bengali", "bn"}, {"bosnian", "bs"},
    {"breton", "br"}, {"bulgarian", "bg"}, {"burmese", "my"}, {"cantonese", "yue"},
    {"castilian", "es"}, {"catalan", "ca"}, {"chinese", "zh"}, {"croatian", "hr"},
    {"czech", "cs"}, {"danish", "da"}, {"dutch", "nl"}, {"english", "en"},
    {"estonian", "et"}, {"faroese", "fo"}, {"finnish", "fi"}, {"flemish", "nl"},
    {"french", "fr"}, {"galician", "gl"}, {"georgian", "ka"}, {"german", "de"},
    {"greek", "el"}, {"gujarati", "gu"}, {"haitian", "ht"}, {"haitian creole", "ht"},
    {"hausa", "ha"}, {"hawaiian", "haw"}, {"hebrew", "he"}, {"hindi", "hi"},
    {"hungarian", "hu"}, {"icelandic", "is"}, {"indonesian", "id"}, {"italian", "it"},
    {"japanese", "ja"}, {"javanese", "jw"}, {"kannada", "kn"}, {"kazakh", "kk"},
    {"khmer", "km"}, {"korean", "ko"}, {"lao", "lo"}, {"latin", "la"}, {"latvian", "lv"},
    {"letzeburgesch", "lb"}, {"lingala", "ln"}, {"lithuanian", "lt"},
    {"luxembourgish", "lb"}, {"macedonian", "mk"}, {"malagasy", "mg"}, {"malay", "ms"},
    {"malayalam", "ml"}, {"maltese", "mt"}, {"mandarin", "zh"}, {"maori", "mi"},
    {"marathi", "mr"}, {"moldavian", "ro"}, {"moldovan", "ro"}, {"mongolian", "mn"},
    {"myanmar", "my"}, {"nepali", "ne"}, {"norwegian", "no"}, {"nynorsk", "nn"},
    {"occitan", "oc"}, {"panjabi", "pa"}, {"pashto", "ps"}, {"persian", "fa"},
    {"polish", "pl"}, {"portuguese", "pt"}, {"punjabi", "pa"}, {"pushto", "ps"},
    {"romanian", "ro"}, {"russian", "ru"}, {"sanskrit", "sa"}, {"serbian", "sr"},
    {"shona", "sn"}, {"sindhi", "sd"}, {"sinhala", "si"}, {"sinhalese", "si"},
    {"slovak", "sk"}, {"slovenian", "sl"}, {"somali", "so"}, {"spanish", "es"},
    {"sundanese", "su"}, {"swahili", "sw"}, {"swedish", "sv"}, {"tagalog", "tl"},
    {"tajik", "tg"}, {"tamil", "ta"}, {"tatar", "tt"}, {"telugu", "te"}, {"thai", "th"},
    {"tibetan", "bo"}, {"turkish", "tr"}, {"turkmen", "tk"}, {"ukrainian", "uk"},
    {"urdu", "ur"}, {"uzbek", "uz"}, {"valencian", "ca"}, {"vietnamese", "vi"},
    {"welsh", "cy"}, {"yiddish", "yi"}, {"yoruba", "yo"}};

enum { LANGUAGES = sizeof languages / sizeof languages[0] };

/* A field of generation_config.json; NULL: it is absent or null. */
static const ph_value *find(const ph_values *values, const char *name)
{
    char key[96];
    snprintf(key, sizeof key, "generation.%s", name);
    const ph_value *v = ph_values_find(values, key);
    return v && v->kind != PH_VALUE_NULL ? v : NULL;
}

static ph_status fail(const ph_model *m, const ph_value *v, const char *expected)
{
    return ph_fail(m->ctx, PH_BAD_FILE, "%s is %s, expected %s",
                   ph_value_field(v->key).text, ph_value_show(v).text, expected);
}

/* ---- languages --------------------------------------------------------------------- */

/* Every token that lang_to_id names. */
static ph_status mark_languages(ph_model *m, const ph_values *values)
{
    static const char prefix[] = "generation.lang_to_id.";
    const ph_value *all = find(values, "lang_to_id");
    if (all && all->kind != PH_VALUE_OBJECT) return fail(m, all, "an object");
    for (size_t i = 0; i < values->count; i++) {
        const ph_value *v = &values->list[i];
        if (strncmp(v->key, prefix, sizeof prefix - 1) != 0) continue;
        int32_t token = ph_token_of(v);
        if (token < 0 || token >= m->config.vocab)
            return fail(m, v, "a token of the model");
        if (!m->suppressed) PH_TRY(ph_marks_suppress(m));
        m->suppressed[token] |= PH_LANGUAGE;
        m->marks.languages = 1;
    }
    return PH_OK;
}

/* The token of a language by its key in lang_to_id, its name or its code. */
static const ph_value *token_of_language(const ph_values *values, const ph_value *said)
{
    char text[32], key[64];
    size_t length = strlen(said->text);
    if (length >= sizeof text) return NULL;
    for (size_t i = 0; i <= length; i++) {
        char c = said->text[i];
        text[i] = c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
    }
    snprintf(key, sizeof key, "lang_to_id.%s", text);
    const ph_value *v = find(values, key);
    for (int i = 0; i < LANGUAGES && !v; i++) {
        if (strcmp(text, languages[i].name) != 0 && strcmp(text, languages[i].code) != 0)
            continue;
        snprintf(key, sizeof key, "lang_to_id.<|%s|>", languages[i].code);
        v = find(values, key);
    }
    return v;
}

static ph_status force_language(ph_model *m, const ph_values *values,
                                const ph_value *said)
{
    if (said->kind != PH_VALUE_TEXT) return fail(m, said, "a text");
    const ph_value *token = token_of_language(values, said);
    return token ? ph_marks_force(m, token)
                 : fail(m, said, "a language that lang_to_id has");
}

/* ---- tasks ------------------------------------------------------------------------- */

static ph_status force_task(ph_model *m, const ph_values *values, const ph_value *said)
{
    char key[64] = "task_to_id.transcribe";
    if (said) {
        int known = said->kind == PH_VALUE_TEXT && (!strcmp(said->text, "transcribe") ||
                                                    !strcmp(said->text, "translate"));
        if (!known) return fail(m, said, "'transcribe' or 'translate'");
        snprintf(key, sizeof key, "task_to_id.%s", said->text);
    }
    const ph_value *token = find(values, key);
    if (token) return ph_marks_force(m, token);
    return ph_fail(m->ctx, PH_BAD_FILE, "generation_config.json: %s is missing", key);
}

/* ---- the list of older files ------------------------------------------------------- */

/* [[1, token], [2, token], ...]; null is the language, if the model has any. */
static ph_status force_listed(ph_model *m, const ph_values *values, const ph_value *list)
{
    for (size_t i = 0; i < list->count; i++) {
        char key[64];
        snprintf(key, sizeof key, "%s.%zu.0", list->key, i);
        if (ph_values_around(values, key) ||
            ph_token_of(ph_values_find(values, key)) != (int)i + 1)
            return ph_fail(m->ctx, PH_UNSUPPORTED, "%s is not %zu, expected 1, 2, ...",
                           ph_value_field(key).text, i + 1);
        snprintf(key, sizeof key, "%s.%zu.1", list->key, i);
        const ph_value *v = ph_values_find(values, key);
        int none = !v || v->kind == PH_VALUE_NULL;
        if (!none || (!i && m->marks.languages)) PH_TRY(ph_marks_force(m, v));
    }
    return PH_OK;
}

/* It may stand in config.json too. */
static ph_status find_list(ph_model *m, const ph_values *values, const ph_value **list)
{
    *list = find(values, "forced_decoder_ids");
    if (!*list) *list = ph_values_find(values, "forced_decoder_ids");
    if (!*list || (*list)->kind == PH_VALUE_LIST) return PH_OK;
    if ((*list)->kind != PH_VALUE_NULL)
        return fail(m, *list, "a list of pairs of a place and a token");
    *list = NULL;
    return PH_OK;
}

/* ---- all of it --------------------------------------------------------------------- */

ph_status ph_marks_sound(ph_model *m, const ph_values *values)
{
    const ph_value *language = find(values, "language"), *task = find(values, "task");
    const ph_value *last = find(values, "no_timestamps_token_id"), *list;
    ph_marks *marks = &m->marks;
    PH_TRY(mark_languages(m, values));
    PH_TRY(find_list(m, values, &list));
    if (list && !language && !task) PH_TRY(force_listed(m, values, list));
    if (language)
        PH_TRY(force_language(m, values, language));
    else if (marks->languages && !marks->forced_count)
        PH_TRY(ph_marks_force(m, NULL));
    if (task || (language && find(values, "task_to_id")))
        PH_TRY(force_task(m, values, task));
    int said = marks->forced_count &&
               marks->forced[marks->forced_count - 1] == ph_token_of(last);
    return last && !said ? ph_marks_force(m, last) : PH_OK;
}
