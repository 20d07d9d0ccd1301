/*
 * file.h - bytes in from a regular file or from memory; bytes out into a file that
 * appears whole or not at all.
 *
 * Output: a temporary file in the directory of the target is written, synced and closed,
 * then renamed over the target, then the directory is synced. Whatever fails before the
 * rename leaves an older file as it was and removes the temporary one.
 */
#ifndef PH_IO_FILE_H
#define PH_IO_FILE_H

#include "io/io.h"

/* ---- in ---- */

typedef struct ph_source {
    const char *name;           /* for sentences */
    size_t size;                /* bytes, known before the first read */
    int fd;                     /* -1: the bytes are in memory */
    const unsigned char *bytes; /* or NULL */
} ph_source;

/* Opens a regular file; anything else (directory, pipe, device) is refused, and so is a
   pointer of Git LFS that stands in place of one. */
ph_status ph_source_open(ph_source *source, const char *path, const ph_io *io);

/* Whether to open a file that may be missing: 1 also for a link to nowhere or a folder
   that may not be searched, which opening then refuses with the reason. */
int ph_source_exists(const char *path);
ph_source ph_source_memory(const char *name, const void *bytes, size_t size);

/* Copies count bytes that begin at offset; the range must lie within size. Fails with
   PH_IO_ERROR if the file has become shorter meanwhile. */
ph_status ph_source_read(const ph_source *source, size_t offset, void *to, size_t count,
                         const ph_io *io);
void ph_source_close(ph_source *source);

/* ---- out ---- */

enum { PH_OUTPUT_PATH = 4096 };

typedef struct ph_output {
    const ph_io *io;
    const char *path;            /* as the caller named it, for sentences */
    int fd;                      /* being written, or -1 */
    int directory;               /* of the target, or -1: written straight through */
    char temporary[40];          /* name within the directory; "" when there is none */
    char target[PH_OUTPUT_PATH]; /* path of the target, symbolic links resolved */
    const char *target_name;     /* its last part */
} ph_output;

ph_status ph_output_open(ph_output *output, const char *path, const ph_io *io);
ph_status ph_output_write(ph_output *output, const void *bytes, size_t count);
ph_status ph_output_commit(ph_output *output); /* now the target has the new content */

/* Removes what is left of an output that failed; does nothing after a commit. Keeps the
   error sentence of the failure. */
void ph_output_abandon(ph_output *output);

/* A whole file at once. */
ph_status ph_output_save(const char *path, const void *bytes, size_t count,
                         const ph_io *io);

#endif
