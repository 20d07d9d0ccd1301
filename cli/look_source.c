/*
 * look_source.c - the report that look and heads work on: read, measured, and a choice of
 * its heads.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "look.h"

/* Where sentences of the library land. */
typedef struct trouble {
    char error[CLI_ERROR_SIZE];
    ph_io io;
} trouble;

static trouble *no_trouble(trouble *t)
{
    t->error[0] = 0;
    t->io = (ph_io){.error = t->error, .error_size = sizeof t->error};
    return t;
}

static int report_trouble(const trouble *t, ph_status status, const ph_ctx *ctx)
{
    if (status == PH_OK) return EXIT_OK;
    if (!*t->error) return cli_fail_status(status, ctx);
    return cli_fail(cli_exit_code(status), "%s", t->error);
}

/* ---- maps of a file ---- */

static int open_maps(look_source *source, const look_choice *choice)
{
    trouble t;
    const ph_io *io = &no_trouble(&t)->io;
    const ph_maps_files files = {choice->weights, choice->tokens, choice->row_tokens};
    ph_status status = ph_maps_read(&source->maps, &files, io);
    if (status == PH_OK) {
        source->report = ph_maps_report(source->maps);
        status = ph_survey_create(&source->survey, &source->report, io);
    }
    if (status == PH_OK)
        status = ph_survey_text(source->survey, &source->report, NULL, io);
    if (status == PH_OK)
        status = ph_survey_end(source->survey, &source->report, NULL, io);
    return report_trouble(&t, status, NULL);
}

/* ---- a model and a text ---- */

enum { SENTENCES = 200, MOST_TEXT = 1 << 20 };

/* All of standard input, at most a megabyte. */
static int read_stdin(look_source *source, const char **text)
{
    size_t used = 0;
    source->text = malloc(MOST_TEXT + 2);
    if (!source->text) return cli_fail(EXIT_MEMORY, "out of memory");
    for (size_t n; (n = fread(source->text + used, 1, MOST_TEXT + 1 - used, stdin)) > 0;)
        used += n;
    if (ferror(stdin)) return cli_fail(EXIT_IO, "standard input cannot be read");
    if (used > MOST_TEXT)
        return cli_fail(EXIT_BAD_INPUT, "the text has more than %d bytes",
                        (int)MOST_TEXT);
    source->text[used] = 0;
    if (strlen(source->text) != used)
        return cli_fail(EXIT_BAD_INPUT, "the text holds a NUL byte");
    *text = source->text;
    return EXIT_OK;
}

/* One unseen sentence: every head, and whether it finds the links. */
static ph_status survey_sentence(look_source *source, const ph_sentence *sentence,
                                 const ph_io *io)
{
    ph_reading *reading = NULL;
    ph_scene *scene = NULL;
    ph_link links[PH_SENTENCE_WORDS];
    int count = 0;
    for (int i = 0; i < sentence->words; i++)
        if (sentence->link[i] != i)
            links[count++] = (ph_link){i, sentence->link[i], sentence->role[i]};
    ph_status status = ph_reading_create(&reading, source->model, sentence->text, NULL);
    if (status == PH_OK)
        status =
            ph_scene_create(&scene, source->model, reading, "", sentence->text, NULL, io);
    if (status == PH_OK) {
        const ph_report report = ph_scene_report(scene);
        const ph_survey_facts facts = {.links = links, .link_count = count};
        if (report.axes[0].count == sentence->words)
            status = ph_survey_text(source->survey, &report, &facts, io);
    }
    ph_scene_free(scene);
    ph_reading_free(reading);
    return status;
}

/* "article;verb" becomes two names. */
static void name_relations(look_source *source)
{
    char *at = source->roles;
    snprintf(at, sizeof source->roles, "%s", ph_model_config(source->model)->roles);
    while (*at && source->relation_count < PH_MOST_RELATIONS) {
        source->relations[source->relation_count++] = at;
        at += strcspn(at, ";");
        if (*at) *at++ = 0;
    }
}

/* The embedded model knows a grammar: its heads are judged by sentences of it. */
static ph_status survey_sentences(look_source *source, const ph_io *io)
{
    ph_sentences *sentences = NULL;
    ph_sentence sentence;
    ph_status status = ph_sentences_create(&sentences, source->ctx);
    for (int n = 0; n < SENTENCES && status == PH_OK; n++) {
        ph_sentences_get(sentences, (uint64_t)n, &sentence);
        status = survey_sentence(source, &sentence, io);
    }
    ph_sentences_free(sentences);
    name_relations(source);
    source->sentences = SENTENCES;
    return status;
}

static ph_status survey_model(look_source *source, int embedded, const ph_io *io)
{
    const int32_t *const ids[] = {ph_scene_ids(source->scene, 0),
                                  ph_scene_ids(source->scene, 1)};
    const ph_survey_facts facts = {.ids = ids};
    ph_status status = ph_survey_create(&source->survey, &source->report, io);
    if (status == PH_OK && embedded)
        status = survey_sentences(source, io);
    else if (status == PH_OK)
        status = ph_survey_text(source->survey, &source->report, &facts, io);
    if (status != PH_OK) return status;
    return ph_survey_end(source->survey, &source->report,
                         source->relation_count ? source->relations : NULL, io);
}

static int open_model(look_source *source, const look_choice *choice, const char *text)
{
    trouble t;
    const ph_io *io = &no_trouble(&t)->io;
    const char *slash = choice->model ? strrchr(choice->model, '/') : NULL;
    const char *title = slash           ? slash + 1
                        : choice->model ? choice->model
                                        : "embedded model";
    int rc = cli_open(&source->ctx, &choice->machine);
    if (rc == EXIT_OK && !strcmp(text, "-")) rc = read_stdin(source, &text);
    if (rc) return rc;
    ph_status status = choice->model
                           ? ph_model_read(&source->model, source->ctx, choice->model)
                           : ph_model_embedded(&source->model, source->ctx);
    if (status == PH_OK)
        status = ph_reading_create(&source->reading, source->model, text, choice->target);
    if (status == PH_OK)
        status = ph_scene_create(&source->scene, source->model, source->reading, title,
                                 text, choice->target, io);
    if (status == PH_OK) {
        source->report = ph_scene_report(source->scene);
        status = survey_model(source, !choice->model, io);
    }
    return report_trouble(&t, status, source->ctx);
}

/* ---- either ---- */

int look_open(look_source *source, const look_choice *choice, const char *text)
{
    memset(source, 0, sizeof *source);
    if (choice->weights && (choice->model || text))
        return cli_fail(EXIT_USAGE, "--weights brings its own maps: no %s with it",
                        text ? "text" : "--model");
    if (!choice->weights && (choice->tokens || choice->row_tokens))
        return cli_fail(EXIT_USAGE, "--tokens and --row-tokens need --weights");
    if (choice->weights) return open_maps(source, choice);
    return open_model(source, choice, text ? text : LOOK_SENTENCE);
}

void look_close(look_source *source)
{
    ph_survey_free(source->survey);
    ph_maps_free(source->maps);
    ph_scene_free(source->scene);
    ph_reading_free(source->reading);
    ph_model_free(source->model);
    ph_close(source->ctx);
    free(source->text);
    memset(source, 0, sizeof *source);
}

/* ---- choosing heads ---- */

static int is_wanted(const ph_stack *stack, const look_wish *wish, int layer, int head)
{
    if (wish->stack && strcmp(wish->stack, stack->name)) return 0;
    if (stack->absent && stack->absent[layer * stack->heads + head]) return 0;
    return (!wish->layer || wish->layer == layer + 1) &&
           (!wish->head || wish->head == head + 1);
}

/* What there is instead: the stack's names, or how many layers and heads. */
static int nothing_there(const ph_report *report, const look_wish *wish)
{
    char names[1200] = "", word[LOOK_WORD];
    int layers = 0, heads = 0, known = 0;
    for (int s = 0; s < report->stack_count; s++) {
        const ph_stack *stack = &report->stacks[s];
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%.60s", s ? ", " : "",
                 look_word(stack->name, word));
        if (wish->stack && strcmp(wish->stack, stack->name)) continue;
        known = 1;
        layers = stack->layers > layers ? stack->layers : layers;
        heads = stack->heads > heads ? stack->heads : heads;
    }
    if (!known)
        return cli_fail(EXIT_USAGE, "no stack '%s'; there are: %s",
                        look_word(wish->stack, word), names);
    if (wish->layer > layers)
        return cli_fail(EXIT_USAGE, "--layer is %lld, expected 1 to %d",
                        (long long)wish->layer, layers);
    if (wish->head > heads)
        return cli_fail(EXIT_USAGE, "--head is %lld, expected 1 to %d",
                        (long long)wish->head, heads);
    return cli_fail(EXIT_USAGE, "there is no such head");
}

int look_select(const ph_report *report, const look_wish *wish, look_heads *out)
{
    size_t room = 0;
    for (int s = 0; s < report->stack_count; s++)
        room += (size_t)report->stacks[s].layers * (size_t)report->stacks[s].heads;
    out->count = 0;
    out->chosen = wish->stack || wish->layer || wish->head;
    out->picks = calloc(room ? room : 1, sizeof *out->picks);
    if (!out->picks) return cli_fail(EXIT_MEMORY, "out of memory");
    for (int s = 0; s < report->stack_count; s++)
        for (int l = 0; l < report->stacks[s].layers; l++)
            for (int h = 0; h < report->stacks[s].heads; h++)
                if (is_wanted(&report->stacks[s], wish, l, h))
                    out->picks[out->count++] = (ph_pick){s, l, h};
    return out->count > 0 ? EXIT_OK : nothing_there(report, wish);
}

/* ---- words ---- */

const char *look_word(const char *word, char room[LOOK_WORD])
{
    ph_text_clean(word, 0, room, LOOK_WORD);
    return room;
}

int look_utf8(void)
{
    static const char *const variables[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (int i = 0; i < 3; i++) {
        const char *value = getenv(variables[i]);
        if (!value || !*value) continue;
        const char *charset = strchr(value, '.');
        return charset &&
               (!strncasecmp(charset, ".UTF-8", 6) || !strncasecmp(charset, ".UTF8", 5));
    }
    return 0;
}
