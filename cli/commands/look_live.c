/*
 * look_live.c - `polyhead look --serve`: the page over HTTP until Ctrl-C.
 */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "commands/cmd_look.h"
#include "commands/prune_input.h"
#include "framework/term.h"

/* Texts of --data; no model. */
typedef struct live_data {
    const char *path;
    encoder_input in;
    const char **pairs;
} live_data;

static atomic_int signalled;

static void on_signal(int number)
{
    (void)number;
    signalled = 1;
}

static int was_signalled(void *user)
{
    (void)user;
    return signalled;
}

static void say_ready(void *user, const char *address)
{
    (void)user;
    term_wait_end();
    printf("The page is live at %s%s%s\nCtrl-C ends it.\n", term_on(stdout, TERM_BOLD),
           address, term_on(stdout, TERM_PLAIN));
    fflush(stdout);
}

/* ---- what heads are measured on ---- */

/* A word of a command line, in quotes where a shell needs them. */
static void add_word(char *command, size_t size, const char *word)
{
    size_t used = strlen(command);
    int plain = !word[strcspn(word, " \t\n'\"\\$`!*?[]{}()<>|&;~#")];
    if (used + 2 * strlen(word) + 8 > size) return;
    snprintf(command + used, size - used, plain ? " %s" : " '%s'", word);
}

/* How the heads of a saved plan are taken out of the model; the page adds its name. */
static void write_command(char *command, size_t size, const look_choice *choice,
                          const char *data)
{
    snprintf(command, size, "polyhead prune");
    add_word(command, size, choice->model ? choice->model : "pronouns");
    if (data) {
        add_word(command, size, "--data");
        add_word(command, size, data);
    }
    add_word(command, size, "--out");
    add_word(command, size, "pruned");
    add_word(command, size, "--plan");
}

/* ---- serving ---- */

/* Roles of the embedded model were measured on sentences of its own and hold for every
   text; those of other models are measured on the text that is shown. */
static ph_status serve(const look_source *source, const look_choice *choice,
                       const char *plan, const live_data *data, const ph_serve *how,
                       const ph_io *io)
{
    char command[LOOK_PATH];
    const ph_config *c = source->model ? ph_model_config(source->model) : NULL;
    const int reads_text = c && !c->image_size && !c->mels; /* as prune does */
    const ph_texts texts = {
        .texts = data->in.texts, .pairs = data->pairs, .count = data->in.count};
    const ph_live_model live = {.model = source->model,
                                .ctx = source->ctx,
                                .title = source->report.title,
                                .text = source->report.text,
                                .target = choice->target,
                                .words = choice->words,
                                .plan = plan,
                                .save_as = "polyhead-plan",
                                .measured = source->sentences ? &source->report : NULL,
                                .data = texts.count ? &texts : NULL,
                                .command = reads_text ? command : NULL};
    write_command(command, sizeof command, choice, data->path);
    return source->model ? ph_serve_model(&live, how, io)
                         : ph_serve_report(&source->report, how, io);
}

int look_serve(const look_source *source, const look_choice *choice, const char *plan,
               const char *data, int port)
{
    char error[CLI_ERROR_SIZE] = "";
    const ph_io io = {.error = error, .error_size = sizeof error};
    const ph_serve how = {.port = port, .stopped = was_signalled, .ready = say_ready};
    live_data texts = {.path = data};
    struct sigaction on = {.sa_handler = on_signal}, old[2];
    if ((plan || data) && !source->model)
        return cli_fail(EXIT_USAGE, "%s needs a model", plan ? "--plan" : "--data");
    cli_output_may_be_closed();
    int rc = data ? prune_texts(source->model, &texts.in, data, &texts.pairs) : EXIT_OK;
    if (rc == EXIT_OK) {
        sigaction(SIGINT, &on, &old[0]);
        sigaction(SIGTERM, &on, &old[1]);
        term_wait("reading and measuring");
        ph_status status = serve(source, choice, plan, &texts, &how, &io);
        term_wait_end();
        sigaction(SIGINT, &old[0], NULL);
        sigaction(SIGTERM, &old[1], NULL);
        rc = cli_result(status, error);
    }
    free((void *)texts.pairs);
    encoder_close(&texts.in);
    return rc;
}
