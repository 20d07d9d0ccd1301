/*
 * guard.c - see guard.h. The page in front of a block holds how much was mapped.
 */
#define _GNU_SOURCE
#include "guard.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALIGN = 16 }; /* of what a hook returns */

static size_t round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

void *guard_alloc(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t body = round_up(bytes, page), whole = page + body + page;
    char *map =
        mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) return NULL;
    memcpy(map, &whole, sizeof whole);
    if (mprotect(map + page + body, page, PROT_NONE)) return NULL;
    return memset(map + page + body - bytes, 0xff, bytes);
}

void guard_free(void *block)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), whole;
    if (!block) return;
    char *map = (char *)block - (size_t)block % page - page;
    memcpy(&whole, map, sizeof whole);
    munmap(map, whole);
}

static void *alloc_hook(void *user, size_t bytes)
{
    (void)user;
    return guard_alloc(round_up(bytes, ALIGN));
}

static void release_hook(void *user, void *block)
{
    (void)user;
    guard_free(block);
}

ph_options guard_options(const char *isa, int threads)
{
    return (ph_options){
        .isa = isa, .threads = threads, .alloc = alloc_hook, .release = release_hook};
}
