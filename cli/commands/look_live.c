/*
 * look_live.c - `polyhead look --serve`: the page over HTTP until Ctrl-C.
 */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stdatomic.h>

#include "commands/cmd_look.h"
#include "framework/term.h"

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
    printf("The page is live at %s%s%s\nCtrl-C ends it.\n", term_on(stdout, TERM_BOLD),
           address, term_on(stdout, TERM_PLAIN));
    fflush(stdout);
}

/* Roles of the embedded model were measured on sentences of its own and hold for every
   text; those of other models are measured on the text that is shown. */
static ph_status serve(const look_source *source, const look_choice *choice,
                       const char *plan, const ph_serve *how, const ph_io *io)
{
    const ph_live_model live = {.model = source->model,
                                .ctx = source->ctx,
                                .title = source->report.title,
                                .text = source->report.text,
                                .target = choice->target,
                                .plan = plan,
                                .save_as = "polyhead-plan",
                                .measured = source->sentences ? &source->report : NULL};
    return source->model ? ph_serve_model(&live, how, io)
                         : ph_serve_report(&source->report, how, io);
}

int look_serve(const look_source *source, const look_choice *choice, const char *plan,
               int port)
{
    char error[CLI_ERROR_SIZE] = "";
    const ph_io io = {.error = error, .error_size = sizeof error};
    const ph_serve how = {.port = port, .stopped = was_signalled, .ready = say_ready};
    struct sigaction on = {.sa_handler = on_signal}, old[2];
    if (plan && !source->model) return cli_fail(EXIT_USAGE, "--plan needs a model");
    sigaction(SIGINT, &on, &old[0]);
    sigaction(SIGTERM, &on, &old[1]);
    ph_status status = serve(source, choice, plan, &how, &io);
    sigaction(SIGINT, &old[0], NULL);
    sigaction(SIGTERM, &old[1], NULL);
    return cli_result(status, error);
}
