/*
 * look_source.c - the report that look and heads work on, read and measured.
 */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "commands/cmd_look.h"
#include "commands/ignored_settings.h"
#include "commands/refused_text.h"
#include "commands/unknown_words.h"
#include "framework/term.h"
#include "io/utf8.h"

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
    const char *inner = ctx ? ph_error(ctx) : ""; /* of the model, where it was asked */
    if (!*t->error) return cli_fail_status(status, ctx);
    if (!*inner) return cli_result(status, t->error);
    return cli_fail(cli_exit_code(status), "%s (%s)", t->error, inner);
}

/* ---- maps of a file ---- */

static ph_status survey_maps(look_source *source, const ph_io *io)
{
    int32_t *ranks[] = {look_ranks(source, &source->report, NULL, 0),
                        look_ranks(source, &source->report, NULL, 1)};
    const ph_survey_facts facts = {.ranks = (const int32_t *const *)ranks,
                                   .ctx = source->ctx};
    ph_status status = ph_survey_text(source->survey, &source->report, &facts, io);
    free(ranks[0]);
    free(ranks[1]);
    return status;
}

static int open_maps(look_source *source, const look_choice *choice)
{
    trouble t;
    const ph_io *io = &no_trouble(&t)->io;
    const ph_maps_files files = {.weights = choice->weights,
                                 .tokens = choice->tokens,
                                 .row_tokens = choice->row_tokens};
    int rc = cli_open(&source->ctx, &choice->machine, 0);
    if (rc) return rc;
    ph_status status = ph_maps_read(&source->maps, &files, io);
    if (status == PH_OK) {
        source->report = ph_maps_report(source->maps);
        status = ph_survey_create(&source->survey, &source->report, io);
    }
    if (status == PH_OK) status = survey_maps(source, io);
    if (status == PH_OK)
        status = ph_survey_end(source->survey, &source->report, NULL, io);
    return report_trouble(&t, status, NULL);
}

/* ---- texts ---- */

enum { SENTENCES = 200, MOST_TEXT = 1 << 20 };

/* All of a file, at most a megabyte, closed by a NUL, as the only text. The end of its
   last line is not part of it. */
static int read_text(look_source *source, FILE *file, const char *name)
{
    size_t used = 0;
    source->bytes = malloc(MOST_TEXT + 2);
    if (!source->bytes) return cli_fail(EXIT_MEMORY, "out of memory");
    for (size_t n; (n = fread(source->bytes + used, 1, MOST_TEXT + 1 - used, file)) > 0;)
        used += n;
    if (ferror(file)) return cli_fail(EXIT_IO, "%s: cannot be read", name);
    if (used > MOST_TEXT)
        return cli_fail(EXIT_BAD_INPUT, "%s: more than %d bytes of text", name,
                        (int)MOST_TEXT);
    while (used > 0 && memchr("\r\n", source->bytes[used - 1], 2)) used--;
    source->bytes[used] = 0;
    if (strlen(source->bytes) != used)
        return cli_fail(EXIT_BAD_INPUT, "%s: the text holds a NUL byte", name);
    source->texts[0] = source->bytes + ph_utf8_mark(source->bytes, used);
    return EXIT_OK;
}

/* Lines that are not empty, each a text. */
static int split_lines(look_source *source)
{
    const char **list = calloc(cli_most_lines(source->bytes), sizeof *list);
    char *end = source->bytes + strlen(source->bytes);
    char *first = source->bytes + ph_utf8_mark(source->bytes, strlen(source->bytes));
    size_t next;
    if (!list) return cli_fail(EXIT_MEMORY, "out of memory");
    free(source->texts);
    source->texts = list;
    source->text_count = 0;
    for (char *at = first; at < end; at += next) {
        at[cli_line(at, (size_t)(end - at), &next)] = 0;
        if (at[strspn(at, " \t")]) list[source->text_count++] = at;
    }
    if (source->text_count > 0) return EXIT_OK;
    return cli_fail(EXIT_BAD_INPUT, "the file holds no text");
}

static int reads_text(const look_source *source)
{
    const ph_config *c = ph_model_config(source->model);
    return !c->image_size && !c->mels;
}

/* What is named is a picture, or features of sound: the library opens it. */
static int get_path(look_source *source, const look_choice *choice)
{
    source->texts[0] = choice->file ? choice->file : choice->text;
    if (source->texts[0]) return EXIT_OK;
    if (ph_model_config(source->model)->mels)
        return cli_fail(EXIT_USAGE,
                        "the model reads sound: name a .npy or safetensors file of "
                        "features");
    return cli_fail(EXIT_USAGE, "the model reads pictures: name a PNG, JPEG or PPM file");
}

static int get_texts(look_source *source, const look_choice *choice)
{
    const char *name = choice->file;
    int rc = EXIT_OK;
    source->text_count = 1;
    source->texts = calloc(1, sizeof *source->texts);
    if (!source->texts) return cli_fail(EXIT_MEMORY, "out of memory");
    if (!reads_text(source)) return get_path(source, choice);
    source->texts[0] = choice->text ? choice->text : LOOK_SENTENCE;
    if (name) {
        FILE *file = fopen(name, "rb");
        if (!file)
            return cli_fail(EXIT_IO, "cannot read '%s': %s", name, strerror(errno));
        rc = read_text(source, file, name);
        fclose(file);
        if (rc == EXIT_OK) rc = split_lines(source);
    } else if (choice->text && !strcmp(choice->text, "-")) {
        rc = read_text(source, stdin, "standard input");
    }
    return rc;
}

/* ---- measuring ---- */

/* joined: the scene by words, whose texts say which are equal; or NULL. */
static ph_status survey_scene(look_source *source, const ph_scene *scene,
                              const ph_joined *joined, const ph_survey_facts *given,
                              const ph_io *io)
{
    const ph_report report = joined ? ph_joined_report(joined) : ph_scene_report(scene);
    const int32_t *const ids[] = {joined ? NULL : ph_scene_ids(scene, 0),
                                  joined ? NULL : ph_scene_ids(scene, 1)};
    int32_t *ranks[] = {look_ranks(source, &report, ids[0], 0),
                        look_ranks(source, &report, ids[1], 1)};
    ph_survey_facts facts = given ? *given : (ph_survey_facts){0};
    facts.ids = joined ? NULL : ids;
    facts.ctx = source->ctx;
    facts.ranks = (const int32_t *const *)ranks;
    ph_status status = ph_survey_text(source->survey, &report, &facts, io);
    free(ranks[0]);
    free(ranks[1]);
    return status;
}

/* One more text: every head, and whether it finds the links if any are given. words: how
   many the model must see for the links to fit; 0: any number. */
static ph_status survey_one(look_source *source, const char *text, int words,
                            const ph_survey_facts *given, const ph_io *io)
{
    ph_reading *reading = NULL;
    ph_scene *scene = NULL;
    ph_joined *joined = NULL;
    ph_status status = (source->plan.count ? ph_reading_create : ph_reading_prepare)(
        &reading, source->model, text, NULL);
    if (status == PH_OK && source->plan.count)
        status = ph_prune_run(&source->plan, reading, 0);
    if (status == PH_OK)
        status = ph_scene_create(&scene, source->model, reading, NULL, text, NULL, io);
    if (status == PH_OK && source->joined) status = ph_joined_create(&joined, scene, io);
    if (status == PH_OK && (words == 0 || ph_scene_report(scene).axes[0].count == words))
        status = survey_scene(source, scene, joined, given, io);
    ph_joined_free(joined);
    ph_scene_free(scene);
    ph_reading_free(reading);
    return status;
}

static ph_status survey_sentence(look_source *source, const ph_sentence *sentence,
                                 const ph_io *io)
{
    ph_link links[PH_SENTENCE_WORDS];
    int count = 0;
    for (int i = 0; i < sentence->words; i++)
        if (sentence->link[i] != i)
            links[count++] = (ph_link){i, sentence->link[i], sentence->role[i]};
    const ph_survey_facts facts = {.links = links, .link_count = count};
    return survey_one(source, sentence->text, sentence->words, &facts, io);
}

static void name_relations(look_source *source)
{
    const char *name;
    while ((name = ph_relation_name(source->relation_count)) != NULL)
        source->relations[source->relation_count++] = name;
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

/* ---- all texts ---- */

/* The given texts; one that is too long for the model is left out and counted. */
static ph_status survey_texts(look_source *source, const ph_io *io)
{
    int count = source->text_count > 1 && !source->frequencies.count;
    /* a single text has been read already: a long one takes too much to read twice */
    if (source->text_count == 1)
        return survey_scene(source, source->scene, source->joined, NULL, io);
    ph_status status = count ? look_ranks_count(source) : PH_OK;
    for (int n = 0; n < source->text_count && status == PH_OK; n++) {
        status = survey_one(source, source->texts[n], 0, NULL, io);
        if (status != PH_BAD_SHAPE) continue;
        source->left_out++;
        status = PH_OK;
    }
    return status;
}

static ph_status survey_model(look_source *source, const look_choice *choice,
                              const ph_io *io)
{
    ph_status status = ph_survey_create(&source->survey, &source->report, io);
    if (status == PH_OK)
        status = choice->model || choice->by_text ? survey_texts(source, io)
                                                  : survey_sentences(source, io);
    if (status == PH_OK)
        status = ph_survey_end(source->survey, &source->report,
                               source->relation_count ? source->relations : NULL, io);
    if (status != PH_OK || !source->sentences) return status;
    snprintf(source->found, sizeof source->found,
             "%s; measured on %d sentences that the model has not seen",
             source->report.found, source->sentences);
    source->report.found = source->found;
    return PH_OK;
}

/* ---- a model ---- */

/* A folder that holds a model stands for it, as everywhere. One of a training under way
   holds none yet: its newest checkpoint does, the last in the order of names. */
static const char *newest_in(const char *path, char buffer[LOOK_PATH])
{
    DIR *folder = opendir(path);
    char last[256] = "";
    int whole = 0;
    if (!folder) return path; /* a file, or nothing: the reader says so */
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        size_t length = strlen(entry->d_name), ending = strlen(".safetensors");
        whole |= !strcmp(entry->d_name, "config.json") ||
                 !strcmp(entry->d_name, "model.safetensors");
        if (entry->d_name[0] == '.' || length <= ending || length >= sizeof last ||
            strcmp(entry->d_name + length - ending, ".safetensors"))
            continue;
        if (strcmp(entry->d_name, last) > 0) strcpy(last, entry->d_name);
    }
    closedir(folder);
    if (whole || !*last) return path;
    snprintf(buffer, LOOK_PATH, "%s/%s", path, last);
    return buffer;
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* The model, and its plan where there is one. */
static const char *title_of(const look_choice *choice, int planned,
                            char buffer[LOOK_PATH])
{
    const char *model = choice->model ? last_part(choice->model) : "embedded model";
    if (!planned) return model;
    snprintf(buffer, LOOK_PATH, "%s, %s", model, last_part(choice->plan));
    return buffer;
}

/* The text as it is goes aside, and is run again as planned. */
static ph_status read_plan(look_source *source, const look_choice *choice,
                           const char *text, const ph_io *io)
{
    ph_status status = ph_prune_read(&source->plan, choice->plan, source->reading, io);
    if (status != PH_OK) return status;
    source->plain_reading = source->reading;
    source->reading = NULL;
    status = ph_scene_create(&source->plain_scene, source->model, source->plain_reading,
                             title_of(choice, 0, NULL), text, choice->target, io);
    if (status == PH_OK)
        status = ph_reading_create(&source->reading, source->model, text, choice->target);
    return status == PH_OK ? ph_prune_run(&source->plan, source->reading, 0) : status;
}

/* The text that is shown: the first that the model can read. */
static ph_status read_first(look_source *source, const look_choice *choice,
                            const ph_io *io)
{
    ph_status status = PH_BAD_SHAPE;
    const char *text = NULL;
    char title[LOOK_PATH];
    int passes =
        choice->unread || (choice->measures && !choice->weights_again && !choice->plan);
    for (int n = 0; n < source->text_count && status == PH_BAD_SHAPE; n++) {
        text = source->texts[n];
        status = (passes ? ph_reading_prepare : ph_reading_create)(
            &source->reading, source->model, text, choice->target);
    }
    if (status == PH_OK && choice->plan) status = read_plan(source, choice, text, io);
    if (status != PH_OK) return status;
    snprintf(source->title, sizeof source->title, "%s",
             title_of(choice, choice->plan != NULL, title));
    status = ph_scene_create(&source->scene, source->model, source->reading,
                             passes || choice->measures ? NULL : source->title, text,
                             choice->target, io);
    if (status == PH_OK && choice->plan)
        status = ph_scene_compare(source->plain_scene, source->scene, io);
    if (status == PH_OK && choice->words)
        status = ph_joined_create(&source->joined, source->scene, io);
    return status;
}

static int open_model(look_source *source, const look_choice *choice)
{
    trouble t;
    const ph_io *io = &no_trouble(&t)->io;
    char path[LOOK_PATH];
    int rc = cli_open(&source->ctx, &choice->machine, 0);
    if (rc) return rc;
    const char *file = choice->model ? newest_in(choice->model, path) : NULL;
    ph_status status = file ? ph_model_read(&source->model, source->ctx, file)
                            : ph_model_embedded(&source->model, source->ctx);
    if (status == PH_OK) rc = get_texts(source, choice);
    if (rc) return rc;
    if (status == PH_OK && choice->target &&
        ph_model_config(source->model)->arch != PH_ARCH_ENCODER_DECODER)
        return cli_fail(EXIT_USAGE, "--target is for an encoder-decoder, %s is none",
                        title_of(choice, 0, NULL));
    if (status == PH_OK) status = read_first(source, choice, io);
    if (status == PH_OK && reads_text(source))
        warn_unknown_words(source->model, source->texts, source->text_count);
    if (status == PH_OK && !choice->target &&
        ph_model_config(source->model)->arch == PH_ARCH_ENCODER_DECODER)
        warn_ignored_settings(source->model);
    if (status == PH_OK) {
        source->report = source->joined ? ph_joined_report(source->joined)
                                        : ph_scene_report(source->scene);
        source->report.title = source->title;
        if (!choice->unread) status = survey_model(source, choice, io);
    }
    if (status == PH_OK && file != choice->model)
        cli_warn("'%s' has no model.safetensors: %s is read", choice->model, file);
    const int from_file = source->bytes && choice->file;
    const text_origin from = {source->texts, source->text_count,
                              from_file ? choice->file : NULL, source->bytes};
    if (status != PH_OK && !*t.error && source->texts && reads_text(source))
        return fail_with_text(&from, source->model, source->ctx, status);
    return report_trouble(&t, status, source->ctx);
}

/* ---- either ---- */

/* Rows that are no probability distribution are shown, not hidden. */
static void warn_invalid_rows(const look_source *source)
{
    long long invalid = 0, rows = 0;
    for (int s = 0; s < source->report.stack_count; s++) {
        const ph_stack *stack = &source->report.stacks[s];
        for (int n = 0; n < stack->layers * stack->heads; n++) {
            const ph_head_stats *head =
                ph_survey_head(source->survey, s, n / stack->heads, n % stack->heads);
            invalid += head->invalid;
            rows += head->rows + head->skipped;
        }
    }
    if (invalid)
        cli_warn("%lld of %lld rows of weights do not add up to 1, or hold negative or "
                 "non-finite weights",
                 invalid, rows);
    if (source->left_out)
        cli_warn("%d of %d texts were left out: too long for the model", source->left_out,
                 source->text_count);
}

int look_open(look_source *source, const look_choice *choice)
{
    memset(source, 0, sizeof *source);
    int text = choice->text || choice->file;
    if (choice->weights && (choice->model || text))
        return cli_fail(EXIT_USAGE, "--weights brings its own maps: no %s with it",
                        text ? "text" : "--model");
    if (!choice->weights && (choice->tokens || choice->row_tokens))
        return cli_fail(EXIT_USAGE, "--tokens and --row-tokens need --weights");
    if (choice->weights && choice->words)
        return cli_fail(EXIT_USAGE, "--words joins tokens of a model, not of --weights");
    if (choice->weights && (choice->plan || choice->model || choice->target))
        return cli_fail(EXIT_USAGE,
                        "--weights needs no model: no --model, --plan, --target with it");
    int rc = choice->frequencies
                 ? look_frequencies_read(&source->frequencies, choice->frequencies)
                 : EXIT_OK;
    term_wait("reading and measuring");
    if (rc == EXIT_OK)
        rc = choice->weights ? open_maps(source, choice) : open_model(source, choice);
    term_wait_end();
    if (rc == EXIT_OK && source->survey) warn_invalid_rows(source);
    return rc;
}

void look_close(look_source *source)
{
    ph_survey_free(source->survey);
    ph_maps_free(source->maps);
    ph_joined_free(source->joined);
    ph_scene_free(source->scene);
    ph_scene_free(source->plain_scene);
    ph_reading_free(source->reading);
    ph_reading_free(source->plain_reading);
    ph_prune_free(&source->plan, NULL);
    ph_model_free(source->model);
    ph_close(source->ctx);
    free(source->ranks);
    free(source->frequencies.list);
    free(source->frequencies.bytes);
    free(source->bytes);
    free(source->texts);
    memset(source, 0, sizeof *source);
}
