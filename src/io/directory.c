/*
 * directory.c - directories that appear whole or not at all; see directory.h.
 */
#define _XOPEN_SOURCE 700 /* mkdir, O_DIRECTORY */
#include "io/directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "io/file.h"
#include "io/temporary.h"

static ph_status cannot_write(const ph_directory *d, int number)
{
    return ph_io_fail(d->io, PH_IO_ERROR, "cannot write '%.200s': %s", d->target,
                      ph_io_system_error(number).text);
}

static int is_empty(const char *path)
{
    DIR *list = opendir(path);
    int entries = 0;
    if (!list) return 0;
    while (readdir(list)) entries++;
    closedir(list);
    return entries <= 2; /* . and .. */
}

/* rename() refuses a directory that is not empty, but only after all the work. */
static ph_status check_target(const ph_directory *d)
{
    struct stat info;
    if (stat(d->target, &info) != 0)
        return errno == ENOENT ? PH_OK : cannot_write(d, errno);
    if (is_empty(d->target)) return PH_OK;
    return ph_io_fail(d->io, PH_IO_ERROR,
                      "'%.200s' exists, expected a directory that is new or empty",
                      d->target);
}

/* Removes what killed writers of the same target left beside it. */
static void clear_stale(const char *target)
{
    const char *slash = strrchr(target, '/');
    char parent[PH_DIRECTORY_PATH] = ".";
    if (slash)
        snprintf(parent, sizeof parent, "%.*s", (int)(slash - target + 1), target);
    int directory = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0) return;
    ph_temporary_clear(directory, slash ? slash + 1 : target);
    close(directory);
}

ph_status ph_directory_create(ph_directory *d, const char *path, const ph_io *io)
{
    size_t length = strlen(path);
    d->io = io, d->temporary[0] = 0, d->held = -1;
    while (length > 1 && path[length - 1] == '/') length--;
    if (length == 0 || length + 40 > sizeof d->target)
        return ph_io_fail(io, PH_IO_ERROR, "the path '%.200s' is %s", path,
                          length ? "too long" : "empty");
    memcpy(d->target, path, length);
    d->target[length] = 0;
    PH_TRY(check_target(d));
    clear_stale(d->target);
    for (int i = 0; i < 1000; i++) {
        ph_temporary_name(d->temporary, sizeof d->temporary, d->target, i);
        if (mkdir(d->temporary, 0777) == 0) {
            d->held = open(d->temporary, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            if (d->held >= 0) ph_temporary_hold(d->held);
            return PH_OK;
        }
        if (errno != EEXIST) break;
    }
    d->temporary[0] = 0; /* it is not ours */
    return cannot_write(d, errno);
}

ph_status ph_directory_file(const ph_directory *d, const char *name,
                            char path[PH_DIRECTORY_PATH])
{
    int length = snprintf(path, PH_DIRECTORY_PATH, "%s/%s", d->temporary, name);
    if (length < 0 || length >= PH_DIRECTORY_PATH)
        return ph_io_fail(d->io, PH_IO_ERROR, "the path '%.200s' is too long", d->target);
    for (char *at = path + strlen(d->temporary) + 1; (at = strchr(at, '/')); at++) {
        *at = 0;
        if (mkdir(path, 0777) != 0 && errno != EEXIST) return cannot_write(d, errno);
        *at = '/';
    }
    return PH_OK;
}

ph_status ph_directory_write(const ph_directory *d, const char *name, const void *bytes,
                             size_t count)
{
    char path[PH_DIRECTORY_PATH];
    ph_output output;
    PH_TRY(ph_directory_file(d, name, path));
    PH_TRY(ph_output_open(&output, path, d->io));
    ph_status status = ph_output_write(&output, bytes, count);
    if (status == PH_OK) status = ph_output_commit(&output);
    ph_output_abandon(&output);
    return status;
}

static void release(ph_directory *d)
{
    if (d->held >= 0) close(d->held);
    d->held = -1, d->temporary[0] = 0;
}

ph_status ph_directory_commit(ph_directory *d)
{
    if (rename(d->temporary, d->target) != 0) return cannot_write(d, errno);
    release(d);
    return PH_OK;
}

void ph_directory_abandon(ph_directory *d)
{
    if (!d->temporary[0]) return;
    ph_temporary_remove(AT_FDCWD, d->temporary);
    release(d);
}
