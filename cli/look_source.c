/*
 * look_source.c - the report that look and heads work on: read, measured, and a choice of
 * its heads.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "look.h"

int look_open(look_source *source, const look_choice *choice)
{
    char error[CLI_ERROR_SIZE] = "";
    const ph_io io = {.error = error, .error_size = sizeof error};
    const ph_maps_files files = {choice->weights, choice->tokens, choice->row_tokens};
    memset(source, 0, sizeof *source);
    if (!choice->weights)
        return cli_fail(EXIT_USAGE,
                        "option --weights is missing, expected a file of maps");
    ph_status status = ph_maps_read(&source->maps, &files, &io);
    if (status == PH_OK) {
        source->report = ph_maps_report(source->maps);
        status = ph_survey_create(&source->survey, &source->report, &io);
    }
    if (status == PH_OK)
        status = ph_survey_text(source->survey, &source->report, NULL, &io);
    if (status == PH_OK)
        status = ph_survey_end(source->survey, &source->report, NULL, &io);
    if (status == PH_OK) return EXIT_OK;
    return cli_fail(cli_exit_code(status), "%s", *error ? error : ph_status_text(status));
}

void look_close(look_source *source)
{
    ph_survey_free(source->survey);
    ph_maps_free(source->maps);
    memset(source, 0, sizeof *source);
}

/* ---- choosing heads ---- */

static int widest(const ph_report *report, int layers)
{
    int most = 0;
    for (int s = 0; s < report->stack_count; s++) {
        int n = layers ? report->stacks[s].layers : report->stacks[s].heads;
        most = n > most ? n : most;
    }
    return most;
}

static int is_there(const ph_stack *stack, int layer, int head)
{
    return !stack->absent || !stack->absent[layer * stack->heads + head];
}

int look_select(const ph_report *report, int64_t layer, int64_t head, look_heads *out)
{
    size_t room = 0;
    if (layer > widest(report, 1))
        return cli_fail(EXIT_USAGE, "--layer is %lld, expected 1 to %d", (long long)layer,
                        widest(report, 1));
    if (head > widest(report, 0))
        return cli_fail(EXIT_USAGE, "--head is %lld, expected 1 to %d", (long long)head,
                        widest(report, 0));
    for (int s = 0; s < report->stack_count; s++)
        room += (size_t)report->stacks[s].layers * (size_t)report->stacks[s].heads;
    out->count = 0;
    out->picks = calloc(room ? room : 1, sizeof *out->picks);
    if (!out->picks) return cli_fail(EXIT_MEMORY, "out of memory");
    for (int s = 0; s < report->stack_count; s++)
        for (int l = 0; l < report->stacks[s].layers; l++)
            for (int h = 0; h < report->stacks[s].heads; h++) {
                int wanted = (!layer || layer == l + 1) && (!head || head == h + 1);
                if (wanted && is_there(&report->stacks[s], l, h))
                    out->picks[out->count++] = (ph_pick){s, l, h};
            }
    if (out->count > 0) return EXIT_OK;
    return cli_fail(EXIT_USAGE, "layer %lld has no head %lld", (long long)layer,
                    (long long)head);
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
