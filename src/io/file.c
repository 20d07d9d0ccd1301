/*
 * file.c - reading regular files and replacing files atomically; see file.h.
 */
#define _XOPEN_SOURCE     700 /* pread, openat, renameat, realpath */
#define _FILE_OFFSET_BITS 64
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "io/temporary.h"

/* One call never moves more than this: some systems refuse larger counts, and a writer
   that is stopped ends with a call. */
#define MAX_READ  ((size_t)1 << 30)
#define MAX_WRITE ((size_t)1 << 24)

static int open_again(int directory, const char *path, int flags, mode_t mode)
{
    int fd;
    do fd = openat(directory, path, flags | O_CLOEXEC, mode);
    while (fd < 0 && errno == EINTR);
    return fd;
}

/* ---- in ---------------------------------------------------------------------------- */

static ph_status cannot_read(const ph_io *io, const char *path, int number)
{
    return ph_io_fail(io, PH_IO_ERROR, "cannot read '%.200s': %s", path,
                      ph_io_system_error(number).text);
}

static ph_status check_source(ph_source *source, const ph_io *io)
{
    struct stat info;
    if (fstat(source->fd, &info) != 0) return cannot_read(io, source->name, errno);
    if (S_ISDIR(info.st_mode))
        return ph_io_fail(io, PH_IO_ERROR, "cannot read '%.200s': it is a directory",
                          source->name);
    if (!S_ISREG(info.st_mode))
        return ph_io_fail(
            io, PH_IO_ERROR,
            "cannot read '%.200s': it is a pipe or device, expected a regular file",
            source->name);
    if (info.st_size < 0 || (uintmax_t)info.st_size > SIZE_MAX)
        return ph_io_fail(io, PH_OUT_OF_MEMORY, "'%.200s' is too large for this machine",
                          source->name);
    source->size = (size_t)info.st_size;
    return PH_OK;
}

/* Git writes a pointer, of less than 1024 bytes, in place of a large file where Git LFS
   is not installed. */
static ph_status refuse_pointer(const ph_source *source, const ph_io *io)
{
    static const char first[] = "version https://git-lfs";
    char bytes[sizeof first - 1];
    if (source->size < sizeof bytes || source->size >= 1024) return PH_OK;
    PH_TRY(ph_source_read(source, 0, bytes, sizeof bytes, io));
    if (memcmp(bytes, first, sizeof bytes)) return PH_OK;
    return ph_io_fail(io, PH_BAD_FILE,
                      "'%.200s' is a pointer of Git LFS, expected the file itself: 'git "
                      "lfs pull' in its folder fetches it",
                      source->name);
}

int ph_source_exists(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

ph_status ph_source_open(ph_source *source, const char *path, const ph_io *io)
{
    ph_status status = PH_OK;
    *source = (ph_source){.name = path, .fd = -1};
    if (!path) return ph_io_null(io, "path");
    /* O_NONBLOCK: a pipe without a writer must be refused, not waited for. */
    source->fd = open_again(AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
    if (source->fd < 0) return cannot_read(io, path, errno);
    status = check_source(source, io);
    if (status == PH_OK) status = refuse_pointer(source, io);
    if (status != PH_OK) ph_source_close(source);
    return status;
}

ph_source ph_source_memory(const char *name, const void *bytes, size_t size)
{
    return (ph_source){.name = name, .size = size, .fd = -1, .bytes = bytes};
}

ph_status ph_source_read(const ph_source *source, size_t offset, void *to, size_t count,
                         const ph_io *io)
{
    size_t done = 0;
    if (source->fd < 0) {
        if (count > 0) memcpy(to, source->bytes + offset, count);
        return PH_OK;
    }
    while (done < count) {
        size_t want = count - done < MAX_READ ? count - done : MAX_READ;
        ssize_t got = pread(source->fd, (char *)to + done, want, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return cannot_read(io, source->name, errno);
        if (got == 0)
            return ph_io_fail(io, PH_IO_ERROR,
                              "cannot read '%.200s': it became shorter while it was read",
                              source->name);
        done += (size_t)got;
    }
    return PH_OK;
}

void ph_source_close(ph_source *source)
{
    if (source->fd >= 0) close(source->fd);
    source->fd = -1;
}

/* ---- out --------------------------------------------------------------------------- */

static ph_status cannot_write(const ph_output *output, const char *why)
{
    return ph_io_fail(output->io, PH_IO_ERROR, "cannot write '%.200s': %s", output->path,
                      why);
}

static ph_status cannot_write_number(const ph_output *output, int number)
{
    return cannot_write(output, ph_io_system_error(number).text);
}

/* Opens the directory of the target, where the temporary file will be. */
static ph_status open_directory(ph_output *output)
{
    char *slash = strrchr(output->target, '/');
    output->target_name = slash ? slash + 1 : output->target;
    if (*output->target_name == 0) return cannot_write(output, "the name ends with '/'");
    if (slash) *slash = 0;
    const char *name = !slash ? "." : slash == output->target ? "/" : output->target;
    output->directory = open_again(AT_FDCWD, name, O_RDONLY | O_DIRECTORY, 0);
    int number = errno;
    if (slash) *slash = '/';
    if (output->directory >= 0) return PH_OK;
    return ph_io_fail(output->io, PH_IO_ERROR, "cannot write '%.200s': its directory: %s",
                      output->path, ph_io_system_error(number).text);
}

static ph_status create_temporary(ph_output *output, mode_t mode)
{
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;
    PH_TRY(open_directory(output));
    ph_temporary_clear(output->directory, "");
    for (int i = 0; i < 1000 && output->fd < 0; i++) {
        ph_temporary_name(output->temporary, sizeof output->temporary, "", i);
        output->fd = open_again(output->directory, output->temporary, flags, 0666);
        if (output->fd < 0 && errno != EEXIST) break;
    }
    if (output->fd < 0) {
        output->temporary[0] = 0; /* it is not ours */
        return cannot_write_number(output, errno);
    }
    ph_temporary_hold(output->fd);
    if (mode != 0 && fchmod(output->fd, mode & 0777) != 0)
        return cannot_write_number(output, errno);
    return PH_OK;
}

/* A file that exists keeps its permissions and, if it was a link, stays one. */
static ph_status open_over(ph_output *output, const struct stat *old)
{
    if (S_ISDIR(old->st_mode)) return cannot_write(output, "it is a directory");
    if (!S_ISREG(old->st_mode)) {
        output->fd = open_again(AT_FDCWD, output->path, O_WRONLY | O_NOCTTY, 0);
        return output->fd < 0 ? cannot_write_number(output, errno) : PH_OK;
    }
    if (access(output->path, W_OK) != 0) return cannot_write_number(output, errno);
    if (!realpath(output->path, output->target))
        return cannot_write_number(output, errno);
    return create_temporary(output, old->st_mode);
}

static ph_status open_new(ph_output *output)
{
    struct stat link;
    if (lstat(output->path, &link) == 0 && S_ISLNK(link.st_mode))
        return cannot_write(output, "it is a symbolic link to nothing");
    strcpy(output->target, output->path);
    return create_temporary(output, 0);
}

ph_status ph_output_open(ph_output *output, const char *path, const ph_io *io)
{
    struct stat old;
    ph_status status = PH_OK;
    *output = (ph_output){.io = io, .path = path, .fd = -1, .directory = -1};
    if (!path) return ph_io_null(io, "path");
    if (strlen(path) >= sizeof output->target)
        status = cannot_write(output, "the name is too long");
    else if (stat(path, &old) == 0)
        status = open_over(output, &old);
    else if (errno == ENOENT)
        status = open_new(output);
    else
        status = cannot_write_number(output, errno);
    if (status != PH_OK) ph_output_abandon(output);
    return status;
}

ph_status ph_output_write(ph_output *output, const void *bytes, size_t count)
{
    const char *from = bytes;
    const ph_io *io = output->io;
    while (count > 0) {
        if (io && io->stopped && io->stopped(io->user))
            return cannot_write(output, "it was stopped");
        ssize_t done = write(output->fd, from, count < MAX_WRITE ? count : MAX_WRITE);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return cannot_write_number(output, done < 0 ? errno : ENOSPC);
        from += done;
        count -= (size_t)done;
    }
    return PH_OK;
}

/* close() that reports; after EINTR the descriptor is gone all the same. */
static ph_status close_checked(ph_output *output)
{
    int failed = close(output->fd) != 0 && errno != EINTR;
    output->fd = -1;
    return failed ? cannot_write_number(output, errno) : PH_OK;
}

/* Again only after a signal: an fsync that failed otherwise must not be repeated, since
   the second one may succeed although the data is lost. */
static int sync_again(int fd)
{
    int result;
    do result = fsync(fd);
    while (result != 0 && errno == EINTR);
    return result;
}

ph_status ph_output_commit(ph_output *output)
{
    if (output->directory < 0) return close_checked(output);
    if (sync_again(output->fd) != 0) return cannot_write_number(output, errno);
    PH_TRY(close_checked(output));
    if (renameat(output->directory, output->temporary, output->directory,
                 output->target_name) != 0)
        return cannot_write_number(output, errno);
    output->temporary[0] = 0;
    /* EINVAL: this file system has nothing to sync in a directory. */
    if (sync_again(output->directory) != 0 && errno != EINVAL)
        return ph_io_fail(
            output->io, PH_IO_ERROR,
            "'%.200s' is written, but its directory could not be synced: %s",
            output->path, ph_io_system_error(errno).text);
    close(output->directory);
    output->directory = -1;
    return PH_OK;
}

void ph_output_abandon(ph_output *output)
{
    if (output->fd >= 0) close(output->fd);
    if (output->temporary[0]) unlinkat(output->directory, output->temporary, 0);
    if (output->directory >= 0) close(output->directory);
    output->fd = output->directory = -1;
    output->temporary[0] = 0;
}

ph_status ph_output_save(const char *path, const void *bytes, size_t count,
                         const ph_io *io)
{
    ph_output output;
    PH_TRY(ph_output_open(&output, path, io));
    ph_status status = ph_output_write(&output, bytes, count);
    if (status == PH_OK) status = ph_output_commit(&output);
    if (status != PH_OK) ph_output_abandon(&output);
    return status;
}
