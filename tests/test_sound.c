/*
 * test_sound.c - what texts of sound begin with by generation_config.json: languages,
 * tasks and the lists of older files as transformers reads them, and how the texts go on,
 * alone and with beams (tests/golden/checkpoints/sound.py); out of a file of ours and out
 * of a folder that is written; and what is refused.
 */
#define _GNU_SOURCE
#include "settings_bed.h"
#include "model/generate.h"
#include "model/model_text.h"

enum { NEW = 14, MOST = 24 };

/* A line of sound.tsv. */
typedef struct sample {
    char settings[768];
    int beams, first, count; /* tokens before the text, and with it */
    int32_t tokens[MOST];
} sample;

static void read_tokens(const char *from, sample *s)
{
    for (char *end; s->count < MOST; from = end) {
        long token = strtol(from, &end, 10);
        if (end == from) break;
        s->tokens[s->count++] = (int32_t)token;
    }
}

static int next_sample(FILE *file, sample *s)
{
    static char line[2048];
    char *field[4] = {line};
    if (!fgets(line, sizeof line, file)) return 0;
    for (int i = 1; i < 4; i++) {
        char *tab = strchr(field[i - 1], '\t');
        CHECK(tab, "not four fields: %s", line);
        *tab = 0, field[i] = tab + 1;
    }
    snprintf(s->settings, sizeof s->settings, "%.767s", field[0]);
    s->beams = atoi(field[1]);
    s->count = 0;
    read_tokens(field[2], s);
    s->first = s->count;
    read_tokens(field[3], s);
    return 1;
}

static void compare_text(const ph_model *m, const sample *s, const ph_tensor *features,
                         const char *how)
{
    ph_generated t = {.features = features->data,
                      .prompt_count = (int)features->shape[1] / 2,
                      .limit = s->first + NEW};
    CHECK(ph_generate_all(m, &(ph_generation){.beams = s->beams}, &t, 1, NULL, NULL) ==
              PH_OK,
          "%s", ph_error(m->ctx));
    CHECK(t.count == s->count &&
              !memcmp(t.tokens, s->tokens, (size_t)t.count * sizeof *t.tokens),
          "%s%s, %d beams: %d tokens, expected %d, or others", how, s->settings, s->beams,
          t.count, s->count);
    ph_ctx_release(m->ctx, t.tokens);
}

/* From a file of ours, and from the folder that it is exported to. */
static void compare_written(ph_model *m, const sample *s, const ph_tensor *features)
{
    char own[128], to[128], remove[300];
    ph_model *again;
    snprintf(own, sizeof own, "%s/own.safetensors", folder);
    snprintf(to, sizeof to, "%s/out", folder);
    CHECK(ph_model_own(m) == PH_OK && ph_model_write(m, own) == PH_OK, "%s",
          ph_error(m->ctx));
    CHECK(ph_model_export(m->ctx, own, to, NULL) == PH_OK, "%s", ph_error(m->ctx));
    for (int i = 0; i < 2; i++) {
        CHECK(ph_model_read(&again, m->ctx, i ? to : own) == PH_OK, "%s",
              ph_error(m->ctx));
        compare_text(again, s, features, i ? "exported " : "stored ");
        ph_model_free(again);
    }
    snprintf(remove, sizeof remove, "rm -rf %s %s", own, to);
    CHECK(!system(remove), "%s", remove);
}

static void golden_texts(void)
{
    static sample s;
    ph_ctx *ctx = open_ctx();
    ph_file *golden;
    FILE *file = fopen(FOLDER "sound.tsv", "rb");
    int count = 0;
    CHECK(file, "no sound.tsv");
    CHECK(ph_file_read(&golden, FOLDER "whisper/golden.safetensors", NULL) == PH_OK,
          "no features");
    const ph_tensor *features = ph_file_find(golden, "features");
    begin_folder();
    while (next_sample(file, &s)) {
        ph_model *m;
        make_with("whisper", s.settings);
        CHECK(ph_model_read(&m, ctx, folder) == PH_OK, "%s: %s", s.settings,
              ph_error(ctx));
        compare_text(m, &s, features, "");
        compare_written(m, &s, features);
        ph_model_free(m);
        count++;
    }
    CHECK(count == 44, "%d texts", count);
    fclose(file);
    ph_file_free(golden);
    remove_folder();
    ph_close(ctx);
}

/* A language is found, not drawn: samples begin with it too. */
static void samples(void)
{
    ph_ctx *ctx = open_ctx();
    float *features;
    ph_model *m;
    begin_folder();
    make_with("whisper", "{\"decoder_start_token_id\": 90, \"eos_token_id\": 96, "
              "\"lang_to_id\": {\"<|en|>\": 13, \"<|de|>\": 14}}");
    CHECK(ph_model_read(&m, ctx, folder) == PH_OK, "%s", ph_error(ctx));
    features = calloc((size_t)m->config.mels * 18, sizeof *features);
    for (int i = 0; i < 12; i++) {
        static int32_t first;
        ph_generated t = {
            .features = features, .prompt_count = 9, .limit = 3, .number = (uint64_t)i};
        ph_generation how = {.temperature = 20};
        CHECK(ph_generate_all(m, &how, &t, 1, NULL, NULL) == PH_OK, "%s", ph_error(ctx));
        if (!i) first = t.tokens[0];
        CHECK((first == 13 || first == 14) && t.tokens[0] == first, "it is %d",
              t.tokens[0]);
        ph_ctx_release(ctx, t.tokens);
    }
    free(features);
    ph_model_free(m);
    remove_folder();
    ph_close(ctx);
}

/* Without generation_config.json config.json has the list; with it, it has it still where
   the other says nothing. */
static void older_folders(void)
{
    static const char from[] = "\"vocab_size\": 97", to[] =
        "\"forced_decoder_ids\": [[1, 20], [2, 21]], \"vocab_size\": 97";
    static const char *const settings[] = {NULL, "{}", "{\"forced_decoder_ids\": null}",
                                           "{\"forced_decoder_ids\": [[1, 30]]}"};
    ph_ctx *ctx = open_ctx();
    begin_folder();
    for (int i = 0; i < 4; i++) {
        ph_model *m;
        make_folder("whisper", "", "", "");
        if (settings[i]) make_with("whisper", settings[i]);
        copy_file("whisper", "config.json", from, to);
        CHECK(ph_model_read(&m, ctx, folder) == PH_OK, "%s", ph_error(ctx));
        CHECK(m->marks.forced_count == (i < 3 ? 2 : 1) &&
                  m->marks.forced[0] == (i < 3 ? 20 : 30),
              "%d: %d tokens, the first is %d", i, m->marks.forced_count,
              m->marks.forced[0]);
        ph_model_free(m);
    }
    remove_folder();
    ph_close(ctx);
}

/* What a text begins with counts for no limit, in transformers neither. */
static void limits(void)
{
    static const struct {
        const char *settings;
        int tokens; /* behind the start */
    } all[] = {{"{\"max_length\": 10}", 10},
               {"{\"max_new_tokens\": 10}", 10},
               {"{\"max_length\": 10, \"no_timestamps_token_id\": 92}", 11},
               {"{\"max_new_tokens\": 10, \"no_timestamps_token_id\": 92}", 11},
               {"{\"max_length\": 38, \"no_timestamps_token_id\": 92}", 39},
               {"{\"max_length\": 2147483647}", 39}};
    ph_ctx *ctx = open_ctx();
    begin_folder();
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        ph_model *m, *again;
        char to[128], remove[300];
        make_with("whisper", all[i].settings);
        snprintf(to, sizeof to, "%s/out", folder);
        snprintf(remove, sizeof remove, "rm -rf %s %s/own", to, folder);
        CHECK(ph_model_read(&m, ctx, folder) == PH_OK, "%s", ph_error(ctx));
        CHECK(ph_model_own(m) == PH_OK && ph_model_write(m, path_of("own")) == PH_OK &&
                  ph_model_export(ctx, path_of("own"), to, NULL) == PH_OK &&
                  ph_model_read(&again, ctx, to) == PH_OK,
              "%s", ph_error(ctx));
        int found[] = {ph_marks_limit(m, 1), ph_marks_limit(again, 1)};
        for (int k = 0; k < 2; k++)
            CHECK(found[k] == all[i].tokens, "%s: %d tokens", all[i].settings, found[k]);
        ph_model_free(m);
        ph_model_free(again);
        CHECK(!system(remove), "%s", remove);
    }
    remove_folder();
    ph_close(ctx);
}

/* Timestamps are not generated. */
static void ignored(void)
{
    ph_ctx *ctx = open_ctx();
    begin_folder();
    for (int i = 0; i < 2; i++) {
        ph_model *m;
        make_with("whisper",
                  i ? "{\"return_timestamps\": true}" : "{\"return_timestamps\": false}");
        CHECK(ph_model_read(&m, ctx, folder) == PH_OK, "%s", ph_error(ctx));
        const char *names = ph_model_ignored(m);
        CHECK(i ? names && !strcmp(names, "return_timestamps") : !names, "%s",
              names ? names : "none");
        ph_model_free(m);
    }
    remove_folder();
    ph_close(ctx);
}

#define LANGUAGES "\"lang_to_id\": {\"<|en|>\": 13, \"<|de|>\": 14}"

static void refused(void)
{
    static const bad_settings all[] = {
        {"{" LANGUAGES ", \"language\": \"klingon\"}",
         "language is 'klingon', expected a language that lang_to_id has"},
        {"{" LANGUAGES ", \"language\": \"french\"}", "language is 'french', expected"},
        {"{" LANGUAGES ", \"language\": \"a language with a name beyond any that is\"}",
         "language is 'a language"},
        {"{\"language\": \"de\"}", "language is 'de', expected"},
        {"{" LANGUAGES ", \"language\": [\"de\"]}", "language is a list"},
        {"{\"lang_to_id\": {\"<|en|>\": 97}}", "lang_to_id.<|en|> is 97, expected"},
        {"{\"lang_to_id\": {\"<|en|>\": \"x\"}}", "lang_to_id.<|en|> is 'x'"},
        {"{\"lang_to_id\": [4]}", "lang_to_id is a list"},
        {"{\"task\": \"sing\"}", "task is 'sing', expected 'transcribe' or 'translate'"},
        {"{\"task\": 4}", "task is 4"},
        {"{\"task\": \"translate\"}", "task_to_id.translate is missing"},
        {"{\"task\": \"translate\", \"task_to_id\": {\"translate\": 97}}",
         "task_to_id.translate is 97, expected a token below 97"},
        {"{\"forced_decoder_ids\": 7}", "forced_decoder_ids is 7, expected a list"},
        {"{\"forced_decoder_ids\": [[1]], \"return_timestamps\": 1}",
         "return_timestamps is 1, expected true or false"}};
    refuse_settings("whisper", all, sizeof all / sizeof all[0]);
}

static const check_case cases[] = {
    {"golden_texts", golden_texts}, {"samples", samples}, {"limits", limits},
    {"older_folders", older_folders}, {"ignored", ignored}, {"refused", refused},
    {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
