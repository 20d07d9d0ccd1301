/*
 * train_log.c - log.jsonl of a training.
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "commands/train_log.h"

enum { TEXT_MOST = 8192 }; /* of options or a configuration in JSON */

/* The step a line belongs to; 0: the head of the log. */
static int line_step(const char *line)
{
    return strncmp(line, "{\"step\":", 8) ? 0 : atoi(line + 8);
}

/* Copies the lines up to `step` of the old log into the new one. */
static void keep_lines(const char *path, int step, FILE *to)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;
    FILE *from = step ? fopen(path, "r") : NULL;
    while (from && (length = getline(&line, &capacity, from)) > 0) {
        if (line[length - 1] != '\n' || line_step(line) > step) break;
        fputs(line, to);
    }
    if (from) fclose(from);
    free(line);
}

int train_log_open(train_log *log, const char *directory, int step, int to_stdout)
{
    char path[4200], fresh[4200];
    *log = (train_log){.to_stdout = to_stdout};
    snprintf(path, sizeof path, "%s/log.jsonl", directory);
    snprintf(fresh, sizeof fresh, "%s/log.jsonl.new", directory);
    log->file = fopen(fresh, "w");
    if (!log->file) return cli_fail(EXIT_IO, "%s: %s", fresh, strerror(errno));
    keep_lines(path, step, log->file);
    if (fflush(log->file) || rename(fresh, path)) {
        int reason = errno;
        train_log_close(log);
        return cli_fail(EXIT_IO, "%s: %s", path, strerror(reason));
    }
    return EXIT_OK;
}

void train_log_close(train_log *log)
{
    if (log->file) fclose(log->file);
    log->file = NULL;
}

static void say(train_log *log, const char *format, ...) CLI_PRINTF(2, 3);

static void say(train_log *log, const char *format, ...)
{
    FILE *const to[2] = {log->file, log->to_stdout ? stdout : NULL};
    for (int i = 0; i < 2; i++) {
        va_list list;
        if (!to[i]) continue;
        va_start(list, format);
        vfprintf(to[i], format, list);
        va_end(list);
        fflush(to[i]);
    }
}

void train_log_begin(train_log *log, const ph_train *train, int64_t parameters)
{
    char config[TEXT_MOST], text[TEXT_MOST];
    ph_config_print(&train->config, config, sizeof config);
    ph_train_print(train, text, sizeof text);
    say(log,
        "{\"schema\":\"polyhead.train/1\",\"train\":%s,\"config\":%s,"
        "\"parameters\":%lld}\n",
        text, config, (long long)parameters);
}

void train_log_step(train_log *log, const ph_progress *p, double per_second,
                    double seconds)
{
    say(log,
        "{\"step\":%d,\"loss\":%.9g,\"lr\":%.9g,\"grad_norm\":%.9g,"
        "\"tokens_per_second\":%.6g,\"seconds\":%.6g}\n",
        p->step, p->loss, p->lr, p->grad_norm, per_second, seconds);
}

void train_log_test(train_log *log, int step, const ph_score *s)
{
    say(log,
        "{\"step\":%d,\"test_loss\":%.9g,\"token_accuracy\":%.9g,"
        "\"exact_match\":%.9g,\"texts\":%d}\n",
        step, s->loss, s->token_accuracy, s->exact_match, s->texts);
}
