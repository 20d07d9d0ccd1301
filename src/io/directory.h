/*
 * directory.h - a directory that appears whole or not at all.
 *
 * Its files are written into a temporary directory beside the target, which is renamed
 * when all of them are there. A target that exists is refused unless it is empty.
 */
#ifndef PH_IO_DIRECTORY_H
#define PH_IO_DIRECTORY_H

#include "io/io.h"

enum { PH_DIRECTORY_PATH = 4096 };

typedef struct ph_directory {
    const ph_io *io;
    char target[PH_DIRECTORY_PATH];
    char temporary[PH_DIRECTORY_PATH]; /* "": there is none */
    int held;                          /* the temporary one, locked; or -1 */
} ph_directory;

ph_status ph_directory_create(ph_directory *directory, const char *path, const ph_io *io);

/* The path under which a file of it is to be written now; "a/b" makes directory a. */
ph_status ph_directory_file(const ph_directory *directory, const char *name,
                            char path[PH_DIRECTORY_PATH]);

/* Writes a small file. */
ph_status ph_directory_write(const ph_directory *directory, const char *name,
                             const void *bytes, size_t count);

ph_status ph_directory_commit(ph_directory *directory);

/* Removes what is left of one that failed; does nothing after a commit. */
void ph_directory_abandon(ph_directory *directory);

#endif
