/*
 * stop.c - signals that end the program once what it had begun to write is removed.
 */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>

#include "framework/cli.h"

static volatile sig_atomic_t stopped_by;

static void caught(int number)
{
    stopped_by = number;
}

int cli_stopped(void *unused)
{
    (void)unused;
    return stopped_by != 0;
}

void cli_stop_on_signals(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = caught, .sa_flags = (int)SA_RESETHAND};
    struct sigaction before;
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < 3; i++) /* nohup stays nohup */
        if (sigaction(signals[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(signals[i], &action, NULL);
}

void cli_end_if_stopped(void)
{
    if (!stopped_by) return;
    signal(stopped_by, SIG_DFL);
    raise(stopped_by);
}
