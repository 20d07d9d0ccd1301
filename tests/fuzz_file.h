/* fuzz_file.h - an input as a file that has a name, for readers that take paths. */
#ifndef FUZZ_FILE_H
#define FUZZ_FILE_H

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"

/* The caller defines _GNU_SOURCE. Memory, not a disk: fuzzers open thousands a second. */
typedef struct fuzz_file {
    int fd;
    char path[40];
} fuzz_file;

static inline fuzz_file fuzz_file_open(const void *data, size_t size)
{
    fuzz_file file = {.fd = memfd_create("fuzz", 0)};
    REQUIRE(file.fd >= 0);
    REQUIRE(write(file.fd, data, size) == (ssize_t)size);
    snprintf(file.path, sizeof file.path, "/proc/self/fd/%d", file.fd);
    return file;
}

#endif
