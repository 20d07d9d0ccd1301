/*
 * run_trial.c - starts the program on tensors, brings back its results; see run_trial.h.
 */
#define _GNU_SOURCE /* wait4 */
#include "run_trial.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

size_t trial_memory;

static char folder[64];

int trial_begin(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.40s/polyhead-XXXXXX", base ? base : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

void trial_end(void)
{
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;)
        if (e->d_name[0] != '.' || strlen(e->d_name) > 2) unlink(trial_path(e->d_name));
    if (d) closedir(d);
    rmdir(folder);
}

const char *trial_path(const char *name)
{
    static char path[400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

void trial_add(trial *b, const char *name, ph_dtype type, const void *data, int n0,
               int n1, int n2, int n3)
{
    const int sizes[] = {n0, n1, n2, n3};
    ph_tensor t = {.name = name, .type = type, .data = data};
    while (t.rank < 4 && sizes[t.rank] >= 0) {
        t.shape[t.rank] = (size_t)sizes[t.rank];
        t.rank++;
    }
    b->tensor[b->count++] = t;
}

/* In the child: stderr to a file, nothing to stdout, then the program. */
static void become(char **args)
{
    int fd = open(trial_path("said"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const struct rlimit limit = {trial_memory, trial_memory};
    if (trial_memory && setrlimit(RLIMIT_AS, &limit) != 0) _exit(125);
    int null = open("/dev/null", O_WRONLY);
    if (dup2(fd, STDERR_FILENO) >= 0 && dup2(null, STDOUT_FILENO) >= 0)
        execv(args[0], args);
    _exit(126);
}

static void read_said(trial_result *result)
{
    FILE *f = fopen(trial_path("said"), "rb");
    size_t n = f ? fread(result->said, 1, sizeof result->said - 1, f) : 0;
    result->said[n] = 0;
    if (n > 0 && result->said[n - 1] == '\n') result->said[n - 1] = 0;
    if (f) fclose(f);
}

trial_result trial_start(const char *words)
{
    static char copy[4096];
    const char *program = getenv("POLYHEAD");
    trial_result result = {.code = -1};
    char *args[64];
    int count = 0, status = 0;
    args[count++] = (char *)(uintptr_t)(program ? program : "build/polyhead");
    snprintf(copy, sizeof copy, "%s", words);
    for (char *word = strtok(copy, " "); word && count < 63; word = strtok(NULL, " "))
        args[count++] = word;
    args[count] = NULL;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) become(args);
    trial_memory = 0;
    struct rusage used = {0};
    if (child > 0 && wait4(child, &status, 0, &used) == child && WIFEXITED(status))
        result.code = WEXITSTATUS(status);
    result.peak = (size_t)used.ru_maxrss * 1024;
    read_said(&result);
    return result;
}

trial_result trial_run(const trial *b, const char *words)
{
    char line[3000], in[400], out[400];
    trial_result result = {.code = -1};
    strcpy(in, trial_path("in.safetensors"));
    strcpy(out, trial_path("out.safetensors"));
    unlink(out);
    if (ph_file_write(in, b->tensor, (size_t)b->count, NULL, 0, NULL) != PH_OK)
        return result;
    snprintf(line, sizeof line, "run %s -o %s %s", in, out, words);
    result = trial_start(line);
    if (ph_file_read(&result.out, out, NULL) != PH_OK) result.out = NULL;
    return result;
}

void trial_free(trial_result *result)
{
    ph_file_free(result->out);
    result->out = NULL;
}
