/*
 * test_reserved.c - structs of libpolyhead_model whose `reserved` is not 0 are refused by
 * name: they were not initialised, or have a field of a later version. Those of
 * libpolyhead are in test_install.sh, with two builds.
 */
#include "check.h"
#include "polyhead_heads.h"
#include "polyhead_maps.h"
#include "polyhead_picture.h"
#include "polyhead_scene.h"
#include "polyhead_train.h"

static char sentence[512];
static const ph_io io = {.error = sentence, .error_size = sizeof sentence};

/* The last word: a field of a later version takes the first ones. */
#define SET(words) ((words)[sizeof(words) / sizeof *(words)-1] = 1)

static void refused(ph_status status, const char *name, const char *error)
{
    CHECK(status == PH_BAD_ARGUMENT, "%s: status %d", name, (int)status);
    CHECK(!strncmp(error, name, strlen(name)) && strstr(error, ".reserved is not 0"),
          "%s: the error is \"%s\"", name, error);
}

static ph_status flat(void *user, int stack, int layer, int head, int row0, int rows,
                      float *out)
{
    (void)user, (void)stack, (void)layer, (void)head, (void)row0;
    for (int i = 0; i < rows; i++) out[i] = 1;
    return PH_OK;
}

static const ph_axis axis = {
    .name = "text", .tokens = (const char *[]){"word"}, .count = 1};
static ph_stack one_head;
static ph_report report;

static void begin_report(void)
{
    one_head = (ph_stack){.name = "encoder", .layers = 1, .heads = 1};
    report = (ph_report){.title = "model",
                         .text = "word",
                         .axes = &axis,
                         .axis_count = 1,
                         .stacks = &one_head,
                         .stack_count = 1,
                         .weights = flat};
}

static void pages(void)
{
    static const char path[] = "build/never-written";
    ph_page page = {0};
    ph_figure figure = {0};
    ph_terminal terminal = {0};
    begin_report();
    SET(page.reserved), SET(figure.reserved), SET(terminal.reserved);
    refused(ph_page_write(path, &report, NULL, &page, &io), "ph_page", sentence);
    refused(ph_figure_write(path, &report, &figure, &io), "ph_figure", sentence);
    refused(ph_terminal_write(&report, &terminal, &io), "ph_terminal", sentence);
    SET(report.reserved);
    refused(ph_page_write(path, &report, NULL, NULL, &io), "ph_report", sentence);
    begin_report();
    SET(one_head.reserved);
    refused(ph_page_write(path, &report, NULL, NULL, &io), "ph_stack", sentence);
    refused(ph_figure_write(path, &report, &(ph_figure){0}, &io), "ph_stack", sentence);
    refused(ph_terminal_write(&report, &(ph_terminal){0}, &io), "ph_stack", sentence);
}

static void live(void)
{
    ph_serve serve = {0};
    ph_live page = {0};
    ph_live_model model = {0};
    SET(page.reserved), SET(model.reserved);
    refused(ph_serve_run(&page, &serve, &io), "ph_live", sentence);
    refused(ph_serve_model(&model, &serve, &io), "ph_live_model", sentence);
    begin_report();
    SET(serve.reserved);
    refused(ph_serve_report(&report, &serve, &io), "ph_serve", sentence);
}

static void measures(void)
{
    ph_maps_files files = {0};
    ph_heads_text text = {0};
    ph_survey_facts facts = {0};
    ph_maps *maps;
    ph_heads *heads;
    ph_survey *survey;
    SET(files.reserved), SET(text.reserved), SET(facts.reserved);
    refused(ph_maps_read(&maps, &files, &io), "ph_maps_files", sentence);
    CHECK(ph_heads_create(&heads, 1, 1, &io) == PH_OK, "%s", sentence);
    refused(ph_heads_begin(heads, &text, &io), "ph_heads_text", sentence);
    begin_report();
    CHECK(ph_survey_create(&survey, &report, &io) == PH_OK, "%s", sentence);
    refused(ph_survey_text(survey, &report, &facts, &io), "ph_survey_facts", sentence);
    ph_survey_free(survey);
    ph_heads_free(heads);
}

static void models(void)
{
    ph_ctx *ctx;
    ph_model *model;
    ph_trainer *trainer;
    ph_train train = {0};
    CHECK(ph_open(&ctx, NULL) == PH_OK, "no ctx");
    CHECK(ph_train_defaults(&train, "copy") == PH_OK, "no recipe");
    ph_config config = train.config;
    SET(config.reserved);
    refused(ph_model_create(&model, ctx, &config, PH_SPLIT_WORDS, NULL, 0, 1),
            "ph_config", ph_error(ctx));
    SET(train.reserved);
    refused(ph_trainer_create(&trainer, ctx, &train), "ph_train", ph_error(ctx));
    CHECK(ph_train_defaults(&train, "copy") == PH_OK, "no recipe");
    SET(train.pace.reserved);
    refused(ph_trainer_create(&trainer, ctx, &train), "ph_pace", ph_error(ctx));
    ph_close(ctx);
}

static void texts(void)
{
    ph_ctx *ctx;
    ph_model *model;
    ph_train train = {0};
    char out[8];
    float vector[1024];
    ph_prompt prompt = {.text = "a", .out = out, .size = sizeof out};
    ph_texts some = {.texts = (const char *[]){"a"}, .count = 1};
    CHECK(ph_open(&ctx, NULL) == PH_OK, "no ctx");
    CHECK(ph_train_defaults(&train, "copy") == PH_OK, "no recipe");
    train.config.vocab = 16;
    CHECK(ph_model_create(&model, ctx, &train.config, PH_SPLIT_WORDS, NULL, 0, 1) ==
              PH_OK,
          "%s", ph_error(ctx));
    SET(prompt.reserved), SET(some.reserved);
    refused(ph_generate_batch(model, &prompt, 1, NULL), "ph_prompt", ph_error(ctx));
    refused(ph_model_embed(model, &some, vector), "ph_texts", ph_error(ctx));
    ph_model_free(model);
    ph_close(ctx);
}

static const check_case cases[] = {{"pages", pages},       {"live", live},
                                   {"measures", measures}, {"models", models},
                                   {"texts", texts},       {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
