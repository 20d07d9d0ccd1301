/*
 * train_log.c - log.jsonl of a training.
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "commands/train_log.h"
#include "io/json_write.h"

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

/* ---- lines ---- */

static void write_line(void *user, const char *bytes, size_t count)
{
    const train_log *log = user;
    if (log->file) fwrite(bytes, 1, count, log->file);
    if (log->to_stdout) fwrite(bytes, 1, count, stdout);
}

static ph_json_writer begin_line(train_log *log)
{
    ph_json_writer json = {.write = write_line, .user = log};
    ph_json_begin_object(&json, NULL);
    return json;
}

/* Flushed, so that whoever follows the log sees whole lines. */
static void end_line(train_log *log, ph_json_writer *json)
{
    ph_json_end(json);
    write_line(log, "\n", 1);
    if (log->file) fflush(log->file);
    if (log->to_stdout) fflush(stdout);
}

void train_log_begin(train_log *log, const ph_train *train, int64_t parameters)
{
    char config[TEXT_MOST], text[TEXT_MOST];
    ph_json_writer json = begin_line(log);
    ph_config_print(&train->config, config, sizeof config);
    ph_train_print(train, text, sizeof text);
    ph_json_string(&json, "schema", "polyhead.train/1");
    ph_json_raw(&json, "train", text);
    ph_json_raw(&json, "config", config);
    ph_json_integer(&json, "parameters", parameters);
    end_line(log, &json);
}

void train_log_step(train_log *log, const ph_progress *p, double per_second,
                    double seconds)
{
    ph_json_writer json = begin_line(log);
    ph_json_integer(&json, "step", p->step);
    ph_json_float(&json, "loss", (float)p->loss);
    ph_json_float(&json, "lr", (float)p->lr);
    ph_json_float(&json, "grad_norm", (float)p->grad_norm);
    ph_json_float(&json, "tokens_per_second", (float)per_second);
    ph_json_float(&json, "seconds", (float)seconds);
    end_line(log, &json);
}

void train_log_test(train_log *log, int step, const ph_score *s)
{
    ph_json_writer json = begin_line(log);
    ph_json_integer(&json, "step", step);
    ph_json_float(&json, "test_loss", (float)s->loss);
    ph_json_float(&json, "token_accuracy", (float)s->token_accuracy);
    ph_json_float(&json, "exact_match", (float)s->exact_match);
    ph_json_integer(&json, "texts", s->texts);
    end_line(log, &json);
}
