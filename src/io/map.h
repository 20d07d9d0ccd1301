/*
 * map.h - a whole file as read-only memory.
 *
 * Pages are read when they are touched and shared by all processes that map the file, so
 * opening costs nothing and nothing is copied. A file that is made shorter while it is
 * mapped ends the process: replace files, do not rewrite them in place.
 */
#ifndef PH_IO_MAP_H
#define PH_IO_MAP_H

#include "io/io.h"

typedef struct ph_map {
    const unsigned char *bytes; /* NULL for an empty file */
    size_t size;
} ph_map;

/* Maps a regular file; anything else is refused. */
ph_status ph_map_open(ph_map *map, const char *path, const ph_io *io);
void ph_map_close(ph_map *map); /* accepts a cleared one */

/* Pages of mapped bytes that will hardly be read again: the system may have them. */
void ph_map_drop(const void *bytes, size_t count);

#endif
