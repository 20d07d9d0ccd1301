/*
 * temporary.c - see temporary.h.
 */
#define _GNU_SOURCE /* flock */
#include "io/temporary.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MARK ".polyhead-"

void ph_temporary_name(char *to, size_t size, const char *prefix, int n)
{
    snprintf(to, size, "%s" MARK "%ld-%d.tmp", prefix, (long)getpid(), n);
}

void ph_temporary_hold(int fd)
{
    (void)flock(fd, LOCK_EX | LOCK_NB);
}

/* The process in a name as above, or 0. */
static long writer_of(const char *name, const char *prefix)
{
    size_t skip = strlen(prefix), mark = strlen(MARK);
    char *end;
    if (strncmp(name, prefix, skip) || strncmp(name + skip, MARK, mark)) return 0;
    const char *digits = name + skip + mark;
    if (!isdigit((unsigned char)*digits)) return 0;
    long pid = strtol(digits, &end, 10);
    if (*end != '-' || !isdigit((unsigned char)end[1])) return 0;
    end += 1 + strspn(end + 1, "0123456789");
    return strcmp(end, ".tmp") ? 0 : pid;
}

/* The process is gone, and no lock is held: a number says nothing about a process of
   another container, and a lock nothing in the instant before it is taken. */
static int is_stale(int directory, const char *name, long pid)
{
    if (pid <= 0 || (long)(pid_t)pid != pid) return 0;
    if (kill((pid_t)pid, 0) == 0 || errno != ESRCH) return 0;
    int fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return 0;
    int held = flock(fd, LOCK_EX | LOCK_NB) != 0;
    close(fd);
    return !held;
}

static DIR *list(int directory, const char *name)
{
    int fd = openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *found = fd < 0 ? NULL : fdopendir(fd);
    if (fd >= 0 && !found) close(fd);
    return found;
}

void ph_temporary_clear(int directory, const char *prefix)
{
    DIR *found = list(directory, ".");
    for (struct dirent *e; found && (e = readdir(found));) {
        long pid = writer_of(e->d_name, prefix);
        if (pid && is_stale(directory, e->d_name, pid))
            ph_temporary_remove(directory, e->d_name);
    }
    if (found) closedir(found);
}

void ph_temporary_remove(int directory, const char *name)
{
    DIR *inside = list(directory, name);
    for (struct dirent *e; inside && (e = readdir(inside));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            ph_temporary_remove(dirfd(inside), e->d_name);
    if (inside) closedir(inside);
    unlinkat(directory, name, inside ? AT_REMOVEDIR : 0);
}
