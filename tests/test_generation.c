/*
 * test_generation.c - decoders and encoder-decoders obey generation_config.json as
 * transformers does (tests/golden/checkpoints/generation.py): alone, in a batch, out of a
 * file of ours and out of a folder that is written; what counts for nothing is named, and
 * what cannot be meant refused.
 */
#define _GNU_SOURCE
#include "settings_bed.h"
#include "model/generate.h"

enum { NEW = 20, MOST = 40 };

/* A line of generation.tsv. */
typedef struct sample {
    char name[32], settings[512];
    int32_t prompt[MOST], text[MOST];
    int prompt_count, text_count;
} sample;

static int read_tokens(const char *from, int32_t *tokens)
{
    int count = 0;
    for (char *end; count < MOST; from = end) {
        long token = strtol(from, &end, 10);
        if (end == from) break;
        tokens[count++] = (int32_t)token;
    }
    return count;
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
    snprintf(s->name, sizeof s->name, "%.31s", field[0]);
    snprintf(s->settings, sizeof s->settings, "%.511s", field[1]);
    s->prompt_count = read_tokens(field[2], s->prompt);
    s->text_count = read_tokens(field[3], s->text);
    return 1;
}

static void compare_text(const ph_model *m, const sample *s, const char *how)
{
    ph_generated texts[3] = {0};
    for (int i = 0; i < 3; i++) { /* the second ends early, and another begins there */
        texts[i].prompt = s->prompt, texts[i].prompt_count = s->prompt_count;
        texts[i].limit = i == 1 ? 3 : NEW;
    }
    CHECK(ph_generate_all(m, &(ph_generation){.batch = 2}, texts, 3, NULL, NULL) == PH_OK,
          "%s", ph_error(m->ctx));
    for (int i = 0; i < 3; i++) {
        int expected = ph_min(s->text_count, texts[i].limit);
        CHECK(texts[i].count == expected &&
                  (!expected || !memcmp(texts[i].tokens, s->text,
                                        (size_t)expected * sizeof *s->text)),
              "%s%s %s: text %d has %d tokens, expected %d, or others", how, s->name,
              s->settings, i, texts[i].count, expected);
        ph_ctx_release(m->ctx, texts[i].tokens);
    }
}

/* From a file of ours, and from the folder that it is exported to. */
static void compare_written(ph_model *m, const sample *s)
{
    char own[128], to[128], remove[300];
    ph_model *again;
    snprintf(own, sizeof own, "%s/own.safetensors", folder);
    snprintf(to, sizeof to, "%s/out", folder);
    CHECK(ph_model_own(m) == PH_OK && ph_model_write(m, own) == PH_OK, "%s",
          ph_error(m->ctx));
    CHECK(ph_model_read(&again, m->ctx, own) == PH_OK, "%s", ph_error(m->ctx));
    compare_text(again, s, "stored ");
    ph_model_free(again);
    int whole = strcmp(s->name, "gemma") != 0; /* it rounds its scale (test_export) */
    CHECK(!whole || ph_model_export(m->ctx, own, to, NULL) == PH_OK, "%s: %s", s->name,
          ph_error(m->ctx));
    if (!whole) strcpy(to, own);
    CHECK(ph_model_read(&again, m->ctx, to) == PH_OK, "%s", ph_error(m->ctx));
    compare_text(again, s, "exported ");
    ph_model_free(again);
    snprintf(remove, sizeof remove, "rm -rf %s %s", own, to);
    CHECK(!system(remove), "%s", remove);
}

static void golden_texts(void)
{
    static sample s;
    ph_ctx *ctx = open_ctx();
    FILE *file = fopen(FOLDER "generation.tsv", "rb");
    int count = 0;
    CHECK(file, "no generation.tsv");
    begin_folder();
    while (next_sample(file, &s)) {
        ph_model *m;
        make_with(s.name, s.settings);
        CHECK(ph_model_read(&m, ctx, folder) == PH_OK, "%s: %s", s.name, ph_error(ctx));
        compare_text(m, &s, "");
        if (count++ % 5 != 4) compare_written(m, &s);
        ph_model_free(m);
    }
    CHECK(count == 45, "%d texts", count);
    fclose(file);
    remove_folder();
    ph_close(ctx);
}

/* A token that is forced costs a text nothing, so it does not choose between texts. */
static void golden_beams(void)
{
    static sample s;
    ph_ctx *ctx = open_ctx();
    FILE *file = fopen(FOLDER "beams.tsv", "rb");
    int count = 0;
    CHECK(file, "no beams.tsv");
    begin_folder();
    for (; next_sample(file, &s); count++) {
        ph_model *m;
        make_with(s.name, s.settings);
        CHECK(ph_model_read(&m, ctx, folder) == PH_OK, "%s: %s", s.name, ph_error(ctx));
        ph_generated t = {
            .prompt = s.prompt, .prompt_count = s.prompt_count, .limit = NEW};
        CHECK(ph_generate_all(m, &(ph_generation){.beams = 4}, &t, 1, NULL, NULL) ==
                  PH_OK,
              "%s", ph_error(ctx));
        CHECK(t.count == s.text_count &&
                  !memcmp(t.tokens, s.text, (size_t)t.count * sizeof *t.tokens),
              "line %d, %s %s: %d tokens, expected %d, or others", count + 1, s.name,
              s.settings, t.count, s.text_count);
        ph_ctx_release(ctx, t.tokens);
        ph_model_free(m);
    }
    CHECK(count == 24, "%d texts", count);
    fclose(file);
    remove_folder();
    ph_close(ctx);
}

/* Folders without the file have its settings in config.json; with it, it alone counts. */
static void older_folders(void)
{
    static const char field[] = "\"vocab_size\": 97";
    static const char more[] = "\"repetition_penalty\": 1.5, "
                               "\"no_repeat_ngram_size\": 2, "
                               "\"bad_words_ids\": [[5], [6, 7]], \"vocab_size\": 97";
    ph_ctx *ctx = open_ctx();
    begin_folder();
    for (int with = 0; with < 2; with++) {
        ph_model *m;
        make_with("llama", with ? "{}" : NULL);
        copy_file("llama", "config.json", field, more);
        CHECK(ph_model_read(&m, ctx, folder) == PH_OK, "%s", ph_error(ctx));
        CHECK((m->marks.penalty > 1) == !with && (m->marks.no_repeat == 2) == !with &&
                  m->banned_count == (with ? 0 : 5),
              "%d: %g, %d, %d", with, (double)m->marks.penalty, m->marks.no_repeat,
              m->banned_count);
        ph_model_free(m);
    }
    remove_folder();
    ph_close(ctx);
}

/* Beams and samples keep to the rules too. */
static void other_ways(void)
{
    static const char settings[] =
        "{\"decoder_start_token_id\": 2, \"eos_token_id\": 2, \"pad_token_id\": 1, "
        "\"repetition_penalty\": 1.4, \"no_repeat_ngram_size\": 2, "
        "\"min_new_tokens\": 9, \"bad_words_ids\": [[40], [50, 60]], "
        "\"suppress_tokens\": [41]}";
    static const int32_t source[] = {7, 20, 33, 8};
    ph_ctx *ctx = open_ctx();
    ph_model *m;
    begin_folder();
    make_with("bart-forced", settings);
    CHECK(ph_model_read(&m, ctx, folder) == PH_OK, "%s", ph_error(ctx));
    for (int i = 0; i < 12; i++) {
        ph_generated t = {
            .prompt = source, .prompt_count = 4, .limit = 30, .number = (uint64_t)i};
        ph_generation how = {.beams = i < 4 ? i + 2 : 0, .temperature = i < 4 ? 0 : 3};
        CHECK(ph_generate_all(m, &how, &t, 1, NULL, NULL) == PH_OK, "%s", ph_error(ctx));
        CHECK(t.count >= 9, "%d tokens", t.count);
        for (int k = 0; k < t.count; k++) {
            CHECK(t.tokens[k] != 40 && t.tokens[k] != 41, "%d comes", t.tokens[k]);
            CHECK(!k || t.tokens[k - 1] != 50 || t.tokens[k] != 60, "50, 60 come");
            for (int j = 1; j < k; j++)
                CHECK(memcmp(t.tokens + k - 1, t.tokens + j - 1, 2 * sizeof *t.tokens),
                      "tokens %d and %d twice", k - 1, k);
        }
        ph_ctx_release(ctx, t.tokens);
    }
    ph_model_free(m);
    remove_folder();
    ph_close(ctx);
}

/* What would change a text and does not is named, also behind a file of ours. */
static void ignored(void)
{
    static const struct {
        const char *settings, *names;
    } all[] = {
        {"{}", NULL},
        {"{\"do_sample\": true, \"temperature\": 0.7, \"top_k\": 20, \"top_p\": 0.8}",
         NULL},
        {"{\"num_beams\": 1, \"length_penalty\": 2.0, \"guidance_scale\": 1, "
         "\"encoder_repetition_penalty\": 1.0, \"sequence_bias\": null}",
         NULL},
        {"{\"length_penalty\": 2.0, \"num_beams\": 4, \"max_length\": 142}",
         "num_beams, length_penalty"},
        {"{\"encoder_no_repeat_ngram_size\": 2, \"sequence_bias\": [[[4], -2.0]], "
         "\"exponential_decay_length_penalty\": [5, 1.1], \"guidance_scale\": 1.5}",
         "encoder_no_repeat_ngram_size, sequence_bias, exponential_decay_length_penalty, "
         "guidance_scale"}};
    ph_ctx *ctx = open_ctx();
    begin_folder();
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        ph_model *m, *again;
        make_with("gpt2", all[i].settings);
        CHECK(ph_model_read(&m, ctx, folder) == PH_OK, "%s", ph_error(ctx));
        CHECK(ph_model_own(m) == PH_OK && ph_model_write(m, path_of("own")) == PH_OK &&
                  ph_model_read(&again, ctx, path_of("own")) == PH_OK,
              "%s", ph_error(ctx));
        const char *found[] = {ph_model_ignored(m), ph_model_ignored(again)};
        for (int k = 0; k < 2; k++)
            CHECK(all[i].names ? found[k] && !strcmp(found[k], all[i].names) : !found[k],
                  "%s: %s", all[i].settings, found[k] ? found[k] : "none");
        ph_model_free(m);
        ph_model_free(again);
        unlink(path_of("own"));
    }
    remove_folder();
    ph_close(ctx);
}

static void refused(void)
{
    static const bad_settings all[] = {
        {"{\"repetition_penalty\": 0}", "repetition_penalty is 0, expected"},
        {"{\"repetition_penalty\": -1.5}", "repetition_penalty is -1.5"},
        {"{\"repetition_penalty\": \"1\"}", "repetition_penalty is '1'"},
        {"{\"no_repeat_ngram_size\": 1.5}", "no_repeat_ngram_size is 1.5"},
        {"{\"min_new_tokens\": -1}", "min_new_tokens is -1"},
        {"{\"min_length\": 16777216}",
         "min_length is 16777216, expected a whole number from 0 to 16777215"},
        {"{\"bad_words_ids\": 7}", "bad_words_ids is 7, expected a list of lists"},
        {"{\"bad_words_ids\": [[4], 7]}", "bad_words_ids.1 is 7, expected a list"},
        {"{\"bad_words_ids\": [[]]}", "bad_words_ids.0 is empty"},
        {"{\"bad_words_ids\": [null]}", "bad_words_ids.0 is null"},
        {"{\"bad_words_ids\": [[4, -1]]}", "bad_words_ids.0.1 is -1"},
        {"{\"suppress_tokens\": 5}", "suppress_tokens is 5"},
        {"{\"eos_token_id\": {}}", "eos_token_id is an object, expected a token"},
        {"{\"forced_bos_token_id\": 97}",
         "forced_bos_token_id is 97, expected a token below 97"},
        {"{\"num_beams\": \"4\"}", "num_beams is '4', expected a number"},
        {"{\"max_length\": 0}",
         "max_length is 0, expected a whole number from 1 to 2147483647"},
        {"{\"max_new_tokens\": 2.5}", "max_new_tokens is 2.5, expected a whole"},
        {"{\"forced_eos_token_id\": \"x\"}", "forced_eos_token_id is 'x'"},
        {"{\"stop_strings\": 4}",
         "stop_strings is 4, expected a text or a list of them"}};
    refuse_settings("gpt2", all, sizeof all / sizeof all[0]);
}

/* Appends tokens, or lists of one each (before: "["). */
static void list_tokens(char *out, size_t size, const char *before, int from, int to)
{
    size_t used = strlen(out);
    for (int v = from; v < to; v++, used = strlen(out))
        snprintf(out + used, size - used, "%s%s%d%s", v > from ? ", " : "",
                 before, v, *before ? "]" : "");
}

/* Each of three settings leaves tokens, and all of them together none. */
static void nothing_left(void)
{
    ph_ctx *ctx = open_ctx();
    begin_folder();
    for (int left = 0; left < 3; left++) {
        static char settings[4096];
        ph_model *m;
        snprintf(settings, sizeof settings, "{\"suppress_tokens\": [");
        list_tokens(settings, sizeof settings, "", 0, 32);
        strcat(settings, "], \"begin_suppress_tokens\": [");
        list_tokens(settings, sizeof settings, "", 32, left == 1 ? 63 : 64);
        strcat(settings, "], \"bad_words_ids\": [[5, 6], ");
        list_tokens(settings, sizeof settings, "[", 64, left == 2 ? 96 : 97);
        strcat(settings, "]}");
        make_with("gpt2", settings);
        ph_status status = ph_model_read(&m, ctx, folder);
        if (left) {
            CHECK(status == PH_OK, "%d: %s", left, ph_error(ctx));
            ph_model_free(m);
            continue;
        }
        CHECK(status == PH_BAD_FILE &&
                  strstr(ph_error(ctx), "suppress_tokens, begin_suppress_tokens and "
                                        "bad_words_ids together leave no token of 97"),
              "%s", ph_error(ctx));
    }
    remove_folder();
    ph_close(ctx);
}

static const check_case cases[] = {
    {"golden_texts", golden_texts},   {"golden_beams", golden_beams},
    {"older_folders", older_folders}, {"other_ways", other_ways},
    {"ignored", ignored},             {"refused", refused},
    {"nothing_left", nothing_left},   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
