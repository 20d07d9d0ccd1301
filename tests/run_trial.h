/*
 * run_trial.h - trials of `polyhead run`: tensors in, the program started, what it
 * wrote and said back.
 *
 * The program is $POLYHEAD, else build/polyhead. All happens in a folder of its own.
 */
#ifndef RUN_TRIAL_H
#define RUN_TRIAL_H

#include "polyhead_io.h"

enum { TRIAL_TENSORS = 40 };

/* The tensors of one IN file; filled by the functions below, data is not copied. */
typedef struct trial {
    ph_tensor tensor[TRIAL_TENSORS];
    int count;
} trial;

/* What one start of the program left. */
typedef struct trial_result {
    int code;        /* exit code, or -1 when it died */
    char said[4096]; /* stderr */
    size_t peak;     /* largest resident memory, in bytes */
    ph_file *out;    /* OUT, or NULL when there is none */
} trial_result;

int trial_begin(void); /* makes the folder; 0 if good */
void trial_end(void);
const char *
trial_path(const char *name); /* within the folder; good until the next call */

/* A tensor of up to four axes; sizes below 0 end the list. */
void trial_add(trial *b, const char *name, ph_dtype type, const void *data, int n0,
               int n1, int n2, int n3);

extern size_t trial_memory; /* limit of the next start's address space; 0: none */

/* Runs "polyhead run IN -o OUT words..."; words are split at blanks. The older OUT is
   removed first. `out` must be released by trial_free. */
trial_result trial_run(const trial *b, const char *words);

/* The same with nothing prepared or read: any command line after "polyhead". */
trial_result trial_start(const char *words);
void trial_free(trial_result *result);

#endif
