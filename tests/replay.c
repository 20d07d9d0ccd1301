/*
 * replay.c - runs stored inputs through a fuzz target, without a fuzzer.
 *
 *     fuzz_NAME FILE-OR-DIRECTORY...
 *
 * Every plain file named, and every plain file in a directory named, is handed to
 * LLVMFuzzerTestOneInput once, in order of its name. An empty input comes first.
 * A target that finds a fault crashes; surviving is passing. Each input lies in a block
 * of exactly its size, so that address checkers see a read past its end.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "fuzz.h"

static int passed, failed;

static void complain(const char *path, const char *why)
{
    printf("    %s: %s\n", path, why);
    failed++;
}

static void run_file(const char *path, size_t size)
{
    FILE *file = fopen(path, "rb");
    uint8_t *data = malloc(size ? size : 1);
    if (!file || !data || fread(data, 1, size, file) != size) {
        complain(path, "cannot be read");
    } else {
        printf("    %s\n", path); /* if the target crashes, this line names the culprit */
        fflush(stdout);
        LLVMFuzzerTestOneInput(data, size);
        passed++;
    }
    free(data);
    if (file) fclose(file);
}

static void run_path(const char *path, int depth);

static void run_directory(const char *path, int depth)
{
    struct dirent **entries;
    int count = scandir(path, &entries, NULL, alphasort);
    if (count < 0) {
        complain(path, strerror(errno));
        return;
    }
    for (int i = 0; i < count; i++) {
        char *inner = NULL;
        if (entries[i]->d_name[0] != '.' &&
            asprintf(&inner, "%s/%s", path, entries[i]->d_name) >= 0) {
            run_path(inner, depth + 1);
            free(inner);
        }
        free(entries[i]);
    }
    free(entries);
}

static void run_path(const char *path, int depth)
{
    struct stat info;
    if (stat(path, &info) != 0)
        complain(path, strerror(errno));
    else if (S_ISDIR(info.st_mode) && depth < 8)
        run_directory(path, depth);
    else if (S_ISREG(info.st_mode))
        run_file(path, (size_t)info.st_size);
}

int main(int argc, char **argv)
{
    LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
    passed++;
    for (int i = 1; i < argc; i++) run_path(argv[i], 0);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
