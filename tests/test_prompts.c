/*
 * test_prompts.c - what files of sentence-transformers 6 say of texts before they become
 * vectors: a prompt, lowercase, how long they may be. A text has the bits of the one that
 * sentence-transformers makes of it; kept in our own files and exported.
 */
#define _GNU_SOURCE
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "polyhead_model.h"
#include "polyhead_prune.h"

#define PLAIN   "tests/golden/checkpoints/bert-sentence"
#define PROMPTS "config_sentence_transformers.json"
#define LIMITS  "sentence_bert_config.json"

enum { DIM = 32 };

static char folder[64];
static ph_ctx *ctx;

/* Files of a folder that is bert-sentence otherwise, and a text with the one that it is
   for the folder as it was; NULL: refused with a sentence that holds `other`. */
static const struct {
    const char *name, *content, *second_name, *second_content;
    const char *text, *same, *other;
} cases_of[] = {
    {PROMPTS,
     "{\"prompts\": {\"query\": \"the cat \", \"a.b\": \"dog \"}, "
     "\"default_prompt_name\": \"query\"}",
     0, 0, "sat", "the cat sat", 0},
    {PROMPTS, "{\"prompts\": {\"a.b\": \"dog \"}, \"default_prompt_name\": \"a.b\"}", 0,
     0, "sat", "dog sat", 0},
    {PROMPTS, "{\"prompts\": {\"query\": \"the cat \"}, \"default_prompt_name\": null}",
     0, 0, "sat", "sat", 0},
    {PROMPTS, "{\"prompts\": {}, \"default_prompt_name\": \"document\"}", 0, 0, "sat",
     "sat", 0},
    {PROMPTS, "{\"prompts\": {\"a\": \"x\"}, \"default_prompt_name\": \"b\"}", 0, 0,
     "sat", 0, "default_prompt_name is 'b', expected one of the prompts"},
    {PROMPTS, "{\"prompts\": {\"a\": \"x\"}, \"default_prompt_name\": \"a\"}",
     "1_Pooling/config.json", "{\"pooling_mode\": \"mean\", \"include_prompt\": false}",
     "sat", 0, "include_prompt of 1_Pooling/config.json is false"},
    {LIMITS, "{\"do_lower_case\": true}", "tokenizer_config.json",
     "{\"do_lower_case\": false}", "The CAT sat", "the cat sat", 0},
    {LIMITS, "{\"do_lower_case\": false}", "tokenizer_config.json",
     "{\"do_lower_case\": false}", "The CAT sat", "[UNK] [UNK] sat", 0},
    {LIMITS, "{\"max_seq_length\": null}", "tokenizer_config.json",
     "{\"model_max_length\": 7}", "a b c d e f g h", "a b c d e", 0},
    {LIMITS, "{}", "tokenizer_config.json", "{\"max_len\": 7}", "a b c d e f g h",
     "a b c d e", 0},
    {LIMITS, "{\"max_seq_length\": 8}", "tokenizer_config.json",
     "{\"model_max_length\": 7}", "a b c d e f g h", "a b c d e f", 0},
    {LIMITS, "{}", "tokenizer_config.json",
     "{\"model_max_length\": 1000000000000000019884624838656}", "a b c d e f g h",
     "a b c d e f g h", 0},
    {LIMITS, "{\"max_seq_length\": 8}", "tokenizer_config.json",
     "{\"truncation_side\": \"left\"}", "a b c d e f g h", "c d e f g h", 0},
    {LIMITS, "{}", "tokenizer_config.json", "{\"model_max_length\": \"7\"}", "a", 0,
     "tokenizer_config.json: model_max_length is '7', expected a number of tokens"},
    {LIMITS, "{}", "tokenizer_config.json", "{\"truncation_side\": \"top\"}", "a", 0,
     "truncation_side is 'top', expected left or right"},
};

enum { CASES = sizeof cases_of / sizeof cases_of[0] };

/* ---- folders ----------------------------------------------------------------------- */

static const char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_file(const char *name, const char *text)
{
    if (!name) return;
    unlink(path_of(name));
    FILE *file = fopen(path_of(name), "wb");
    CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0, "cannot write %s", name);
}

static void begin_folder(int i)
{
    char command[256];
    snprintf(folder, sizeof folder, "/tmp/test_sentence_XXXXXX");
    CHECK(mkdtemp(folder), "no folder");
    snprintf(command, sizeof command, "cp -r " PLAIN "/. %s && chmod -R u+w %s", folder,
             folder);
    CHECK(system(command) == 0, "cannot copy");
    write_file(cases_of[i].name, cases_of[i].content);
    write_file(cases_of[i].second_name, cases_of[i].second_content);
}

static void end_folder(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK(system(command) == 0, "%s stays", folder);
}

/* ---- vectors ----------------------------------------------------------------------- */

static void embed(const char *path, const char *text, float *vector)
{
    ph_model *m;
    CHECK(ph_model_read(&m, ctx, path) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_model_embed(m, &(ph_texts){.texts = &text, .count = 1}, vector) == PH_OK,
          "%s", ph_error(ctx));
    ph_model_free(m);
}

static void vectors(void)
{
    CHECK(ph_open(&ctx, &(ph_options){.threads = 1}) == PH_OK, "ph_open failed");
    for (int i = 0; i < CASES; i++) {
        float found[DIM], expected[DIM];
        ph_model *m;
        begin_folder(i);
        if (cases_of[i].same) {
            embed(folder, cases_of[i].text, found);
            embed(PLAIN, cases_of[i].same, expected);
            CHECK(!memcmp(found, expected, sizeof found), "%d: %s is not '%s'", i,
                  cases_of[i].content, cases_of[i].same);
        } else {
            CHECK(ph_model_read(&m, ctx, folder) != PH_OK, "%d: taken", i);
            CHECK(strstr(ph_error(ctx), cases_of[i].other), "%d: %s", i, ph_error(ctx));
        }
        end_folder();
    }
    ph_close(ctx);
}

/* What is made of a folder has its vectors. */
static void kept(void)
{
    CHECK(ph_open(&ctx, &(ph_options){.threads = 1}) == PH_OK, "ph_open failed");
    for (int i = 0; i < CASES; i++) {
        char own[128], exported[128];
        float found[DIM], expected[DIM];
        ph_model *m;
        if (!cases_of[i].same) continue;
        begin_folder(i);
        snprintf(own, sizeof own, "%s/own.safetensors", folder);
        snprintf(exported, sizeof exported, "%s/exported", folder);
        embed(folder, cases_of[i].text, expected);
        CHECK(ph_model_read(&m, ctx, folder) == PH_OK, "%s", ph_error(ctx));
        CHECK(ph_model_own(m) == PH_OK && ph_model_write(m, own) == PH_OK, "%s",
              ph_error(ctx));
        ph_model_free(m);
        embed(own, cases_of[i].text, found);
        CHECK(!memcmp(found, expected, sizeof found), "%d: own file", i);
        CHECK(ph_model_export(ctx, own, exported, NULL) == PH_OK, "%s", ph_error(ctx));
        embed(exported, cases_of[i].text, found);
        CHECK(!memcmp(found, expected, sizeof found), "%d: exported", i);
        end_folder();
    }
    ph_close(ctx);
}

/* What is looked at is what becomes the vector; words of the prompt are marks, and places
   those in the text. */
static void readings(void)
{
    static const char expected[] = "[CLS] the+ cat+ sat on [SEP] ";
    const char *text = "sat on";
    char found[256] = "";
    float vectors[2][DIM];
    ph_model *m;
    ph_reading *r;
    CHECK(ph_open(&ctx, &(ph_options){.threads = 1}) == PH_OK, "ph_open failed");
    begin_folder(0);
    CHECK(ph_model_read(&m, ctx, folder) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_model_embed(m, &(ph_texts){.texts = &text, .count = 1}, vectors[0]) == PH_OK,
          "%s", ph_error(ctx));
    CHECK(ph_reading_create(&r, m, text, NULL) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_reading_embedding(r, vectors[1]) == PH_OK, "%s", ph_error(ctx));
    CHECK(!memcmp(vectors[0], vectors[1], sizeof vectors[0]), "another vector");
    for (int i = 0; i < ph_reading_length(r, 0); i++) {
        const ph_word *w = ph_reading_word(r, 0, i);
        const char *name = ph_model_token(m, w->token);
        strcat(found, name);
        strcat(found, w->mark && *name != '[' ? "+ " : " ");
        CHECK(w->mark ? !w->length : !strncmp(text + w->start, name, (size_t)w->length),
              "%s is at %d, %d bytes", name, w->start, w->length);
    }
    CHECK(!strcmp(found, expected), "%s", found);
    ph_reading_free(r);
    ph_model_free(m);
    end_folder();
    ph_close(ctx);
}

static const check_case cases[] = {
    {"vectors", vectors}, {"kept", kept}, {"readings", readings}, {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
