/*
 * map.c - a whole file as read-only memory; see map.h.
 */
#define _DEFAULT_SOURCE /* madvise */
#define _FILE_OFFSET_BITS 64
#include "io/map.h"

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"
#include "io/file.h"

ph_status ph_map_open(ph_map *map, const char *path, const ph_io *io)
{
    ph_source source;
    *map = (ph_map){0};
    PH_TRY(ph_source_open(&source, path, io));
    void *bytes = NULL;
    if (source.size > 0)
        bytes = mmap(NULL, source.size, PROT_READ, MAP_PRIVATE, source.fd, 0);
    int number = errno;
    ph_source_close(&source);
    if (bytes == MAP_FAILED)
        return ph_io_fail(io, PH_IO_ERROR, "cannot map '%.200s': %s", path,
                          ph_io_system_error(number).text);
    *map = (ph_map){bytes, source.size};
    return PH_OK;
}

void ph_map_close(ph_map *map)
{
    if (map->bytes) munmap((void *)map->bytes, map->size);
    *map = (ph_map){0};
}

/* Whole pages only: others hold what is before and behind. */
void ph_map_drop(const void *bytes, size_t count)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)bytes;
    uintptr_t first = (at + page - 1) / page * page, last = (at + count) / page * page;
    if (first < last) madvise((void *)first, last - first, MADV_DONTNEED);
}
