/*
 * wait.c - a line on stderr while something takes long; see term.h.
 *
 * A forward pass over a long text cannot say how far it is, so a thread of its own says
 * for how long it has been going on. The line is drawn under a lock and never after the
 * end of the wait.
 */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "framework/term.h"

enum { FIRST = 2 }; /* seconds before the line appears */

static struct {
    pthread_t thread;
    int running;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    int over, shown;
    const char *what;
} waiting = {.lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};

static void *draw(void *arg)
{
    struct timespec until;
    (void)arg;
    pthread_mutex_lock(&waiting.lock);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += FIRST;
    for (int seconds = FIRST; !waiting.over; seconds++, until.tv_sec++) {
        while (!waiting.over &&
               pthread_cond_timedwait(&waiting.ended, &waiting.lock, &until) == 0);
        if (waiting.over) break;
        fprintf(stderr, "\r\033[K%s: %d s", waiting.what, seconds);
        fflush(stderr);
        waiting.shown = 1;
    }
    pthread_mutex_unlock(&waiting.lock);
    return NULL;
}

void term_wait(const char *what)
{
    const char *term = getenv("TERM");
    if (waiting.running || !isatty(STDERR_FILENO) || !term || !strcmp(term, "dumb"))
        return;
    waiting.what = what, waiting.over = waiting.shown = 0;
    waiting.running = pthread_create(&waiting.thread, NULL, draw, NULL) == 0;
}

void term_wait_end(void)
{
    if (!waiting.running) return;
    pthread_mutex_lock(&waiting.lock);
    waiting.over = 1;
    pthread_cond_signal(&waiting.ended);
    pthread_mutex_unlock(&waiting.lock);
    pthread_join(waiting.thread, NULL);
    waiting.running = 0;
    if (!waiting.shown) return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
}
