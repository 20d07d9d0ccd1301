/*
 * train_log.h - the log of a training: one JSON object per line.
 *
 *     {"schema":"polyhead.train/1","train":{...},"config":{...},"parameters":N}
 *     {"step":N,"loss":X,"lr":X,"grad_norm":X,"tokens_per_second":X,"seconds":X}
 *     {"step":N,"test_loss":X,"token_accuracy":X,"exact_match":X,"texts":N}
 */
#ifndef PH_CLI_TRAIN_LOG_H
#define PH_CLI_TRAIN_LOG_H

#include "commands/cmd_train.h"

typedef struct train_log {
    FILE *file;   /* DIRECTORY/log.jsonl, or NULL */
    int to_stdout; /* 1: the same lines there */
} train_log;

/* Opens the log; lines after `step` of an earlier run are dropped (0: all). Returns 0 or
   an exit code, the error printed. */
int train_log_open(train_log *log, const char *directory, int step, int to_stdout);
void train_log_close(train_log *log);

void train_log_begin(train_log *log, const ph_train *train, int64_t parameters);
void train_log_step(train_log *log, const ph_progress *p, double per_second,
                    double seconds);
void train_log_test(train_log *log, int step, const ph_score *score);

#endif
