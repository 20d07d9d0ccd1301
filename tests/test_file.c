/*
 * test_file.c - files replaced atomically, odd targets and sources, and every system call
 * failing in turn.
 *
 * src/io/file.c is compiled into this program with its system calls replaced by the
 * versions below, which count and fail when told to; the rest of the library comes from
 * the archive and uses them too.
 */
#define _XOPEN_SOURCE     700
#define _FILE_OFFSET_BITS 64
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "io/directory.h"
#include "polyhead_io.h"

/* ---- system calls that fail ---- */

static struct {
    int count;   /* calls so far */
    int fail_at; /* 0: never */
    int forever; /* 1: all later ones too */
    int number;  /* errno; 0: a short count where there is one */
    int shorten; /* 1: every read and write moves one byte */
} fault;

static int fails(void)
{
    fault.count++;
    if (fault.fail_at == 0 || fault.number == 0) return 0;
    if (fault.forever ? fault.count < fault.fail_at : fault.count != fault.fail_at)
        return 0;
    errno = fault.number;
    return 1;
}

static int test_openat(int directory, const char *path, int flags, mode_t mode)
{
    return fails() ? -1 : openat(directory, path, flags, mode);
}

static int test_fstat(int fd, struct stat *info)
{
    return fails() ? -1 : fstat(fd, info);
}

static ssize_t test_pread(int fd, void *to, size_t count, off_t offset)
{
    return fails() ? -1 : pread(fd, to, fault.shorten && count > 1 ? 1 : count, offset);
}

static ssize_t test_write(int fd, const void *from, size_t count)
{
    return fails() ? -1 : write(fd, from, fault.shorten && count > 1 ? 1 : count);
}

static int test_fsync(int fd)
{
    return fails() ? -1 : fsync(fd);
}

static int test_fchmod(int fd, mode_t mode)
{
    return fails() ? -1 : fchmod(fd, mode);
}

static int test_renameat(int from, const char *old, int to, const char *new)
{
    return fails() ? -1 : renameat(from, old, to, new);
}

static int test_close(int fd) /* a failed close closes all the same */
{
    int result = close(fd);
    return fails() ? -1 : result;
}

#define openat   test_openat
#define fstat    test_fstat
#define pread    test_pread
#define write    test_write
#define fsync    test_fsync
#define fchmod   test_fchmod
#define renameat test_renameat
#define close    test_close
#include "io/file.c"
#undef openat
#undef fstat
#undef pread
#undef write
#undef fsync
#undef fchmod
#undef renameat
#undef close

/* ---- a folder of our own ---- */

static char folder[64];
static char error[512];
static ph_io io = {.error = error, .error_size = sizeof error};

static const char *in_folder(const char *name)
{
    static char path[2][6000];
    static int which;
    which = !which;
    snprintf(path[which], sizeof path[which], "%s/%s", folder, name);
    return path[which];
}

static void clear_folder(void)
{
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        const char *path = in_folder(e->d_name);
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && unlink(path))
            rmdir(path);
    }
    if (d) closedir(d);
}

static int files_in_folder(void)
{
    int count = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;)
        count += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    if (d) closedir(d);
    return count;
}

static void put_file(const char *name, const void *bytes, size_t size)
{
    FILE *f = fopen(in_folder(name), "wb");
    CHECK(f && fwrite(bytes, 1, size, f) == size && fclose(f) == 0, "cannot write %s",
          name);
}

static size_t get_file(const char *name, char *bytes, size_t size)
{
    FILE *f = fopen(in_folder(name), "rb");
    CHECK(f, "no file %s", name);
    size_t count = fread(bytes, 1, size, f);
    fclose(f);
    return count;
}

static int lowest_free_fd(void)
{
    int fd = open("/dev/null", O_RDONLY);
    close(fd);
    return fd;
}

/* ---- what is written ---- */

static const float numbers[] = {1, 2, 3, 4, 5, 6};
static const ph_tensor two[] = {
    {.name = "b", .type = PH_U8, .rank = 1, .shape = {3}, .data = "xyz"},
    {.name = "a", .type = PH_F32, .rank = 2, .shape = {2, 3}, .data = numbers}};

static ph_status write_two(const char *name)
{
    error[0] = 0;
    return ph_file_write(in_folder(name), two, 2, NULL, 0, &io);
}

/* ---- targets ---- */

static void keeps_permissions(void)
{
    struct stat info;
    put_file("x", "old", 3);
    chmod(in_folder("x"), 0604);
    CHECK(write_two("x") == PH_OK, "%s", error);
    CHECK(stat(in_folder("x"), &info) == 0 && (info.st_mode & 0777) == 0604, "mode %o",
          (unsigned)info.st_mode);
    mode_t mask = umask(027);
    CHECK(write_two("new") == PH_OK, "%s", error);
    umask(mask);
    CHECK(stat(in_folder("new"), &info) == 0 && (info.st_mode & 0777) == 0640, "mode %o",
          (unsigned)info.st_mode);
}

static void follows_links(void)
{
    struct stat info;
    put_file("real", "old", 3);
    CHECK(symlink("real", in_folder("link")) == 0, "symlink");
    CHECK(write_two("link") == PH_OK, "%s", error);
    CHECK(lstat(in_folder("link"), &info) == 0 && S_ISLNK(info.st_mode), "link is gone");
    CHECK(stat(in_folder("real"), &info) == 0 && info.st_size > 100, "not followed");
    CHECK(symlink("nowhere", in_folder("dangling")) == 0, "symlink");
    CHECK(write_two("dangling") == PH_IO_ERROR, "dangling");
    CHECK(strstr(error, "dangling': it is a symbolic link to nothing"), "%s", error);
    CHECK(symlink("loop", in_folder("loop")) == 0, "symlink");
    CHECK(write_two("loop") == PH_IO_ERROR, "loop");
}

static void bad_targets(void)
{
    static char name[5000];
    clear_folder();
    mkdir(in_folder("dir"), 0777);
    put_file("file", "old", 3);
    memset(name, 'n', sizeof name - 1);
    struct {
        const char *name, *words;
    } list[] = {{"dir", "dir': it is a directory"},
                {"dir/", "dir/': it is a directory"},
                {"none/x", "none/x': its directory: No such file"},
                {"none/", "none/': the name ends with '/'"},
                {"file/x", "file/x': Not a directory"},
                {name, "the name is too long"},
                {name + 4000, "File name too long"}};
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        CHECK(write_two(list[i].name) == PH_IO_ERROR, "%s was written", list[i].name);
        CHECK(strstr(error, list[i].words), "\"%s\" lacks \"%s\"", error, list[i].words);
        CHECK(strncmp(error, "cannot write '", 14) == 0, "%s", error);
    }
    CHECK(files_in_folder() == 2, "%d files", files_in_folder());
    CHECK(ph_file_write("", two, 2, NULL, 0, &io) == PH_IO_ERROR, "empty name");
}

static void devices(void)
{
    CHECK(ph_file_write("/dev/null", two, 2, NULL, 0, &io) == PH_OK, "%s", error);
    if (access("/dev/full", W_OK) != 0) SKIP("no /dev/full");
    CHECK(ph_file_write("/dev/full", two, 2, NULL, 0, &io) == PH_IO_ERROR, "/dev/full");
    CHECK(strstr(error, "cannot write '/dev/full': No space left on device"), "%s",
          error);
}

/* As another user where this one may do everything. */
static void no_permission(void)
{
    uid_t me = geteuid();
    char bytes[8];
    clear_folder();
    put_file("x", "old", 3);
    put_file("secret", "old", 3);
    chmod(in_folder("secret"), 0);
    chmod(folder, 0555);
    if (me == 0 && seteuid(65534) != 0) SKIP("cannot become another user");
    ph_file *file = NULL;
    ph_status over = write_two("x"), fresh = write_two("y");
    char words[512];
    strcpy(words, error);
    ph_status secret = ph_file_read(&file, in_folder("secret"), &io);
    if (me == 0) CHECK(seteuid(me) == 0, "cannot become myself again");
    chmod(folder, 0755);
    CHECK(over == PH_IO_ERROR && fresh == PH_IO_ERROR, "%d %d", over, fresh);
    CHECK(strstr(words, "y': Permission denied"), "%s", words);
    CHECK(secret == PH_IO_ERROR && strstr(error, "cannot read") &&
              strstr(error, "Permission denied"),
          "%s", error);
    CHECK(get_file("x", bytes, sizeof bytes) == 3, "changed");
    CHECK(files_in_folder() == 2, "%d files", files_in_folder());
}

/* ---- sources ---- */

static void bad_sources(void)
{
    ph_file *file = (ph_file *)error;
    CHECK(ph_file_read(&file, in_folder("none"), &io) == PH_IO_ERROR && !file, "none");
    CHECK(strstr(error, "cannot read '") && strstr(error, "none': No such file"), "%s",
          error);
    CHECK(ph_file_read(&file, folder, &io) == PH_IO_ERROR, "directory");
    CHECK(strstr(error, "it is a directory"), "%s", error);
    CHECK(ph_file_read(&file, "/dev/null", &io) == PH_IO_ERROR, "device");
    CHECK(strstr(error, "pipe or device, expected a regular file"), "%s", error);
    CHECK(mkfifo(in_folder("pipe"), 0600) == 0, "mkfifo");
    CHECK(ph_file_read(&file, in_folder("pipe"), &io) == PH_IO_ERROR,
          "pipe"); /* no wait */
    put_file("empty", "", 0);
    CHECK(ph_file_read(&file, in_folder("empty"), &io) == PH_BAD_FILE, "empty");
    CHECK(strstr(error, "empty: 0 bytes are too few"), "%s", error);
}

/* Cut anywhere, or with a byte too many, a good file is a bad one. */
static void truncated(void)
{
    char bytes[1000] = {0};
    CHECK(write_two("x") == PH_OK, "%s", error);
    size_t size = get_file("x", bytes, sizeof bytes);
    for (size_t cut = 0; cut <= size + 1; cut++) {
        ph_file *file = NULL;
        put_file("cut", bytes, cut);
        ph_status status = ph_file_read(&file, in_folder("cut"), &io);
        CHECK(status == (cut == size ? PH_OK : PH_BAD_FILE),
              "%zu of %zu bytes: status %d", cut, size, status);
        ph_file_free(file);
    }
}

/* ---- every system call fails in turn ---- */

static void check_old(int turn)
{
    char bytes[8];
    int replaced = strstr(error, "is written, but its directory") != NULL;
    size_t size = get_file("x", bytes, sizeof bytes);
    CHECK(replaced ? size == 8 : size == 3 && !memcmp(bytes, "old", 3),
          "call %d failed (%s) and the old file changed", turn, error);
    CHECK(files_in_folder() == 1, "call %d: %d files are left", turn, files_in_folder());
}

static void write_faults(void)
{
    static const int numbers_of[] = {EIO, ENOSPC, EACCES};
    int fd = lowest_free_fd(), most = 0;
    for (int mode = 0; mode < 6; mode++)
        for (int turn = 1;; turn++) {
            clear_folder();
            put_file("x", "old", 3);
            memset(&fault, 0, sizeof fault);
            fault.fail_at = turn;
            fault.forever = mode >= 3;
            fault.number = numbers_of[mode % 3];
            ph_status status = write_two("x");
            fault.fail_at = 0;
            CHECK(lowest_free_fd() == fd, "turn %d leaks a descriptor", turn);
            if (fault.count < turn) {
                CHECK(status == PH_OK, "%s", error);
                break;
            }
            /* the very last close, of the directory, may fail without harm */
            if (status == PH_OK) continue;
            CHECK(status == PH_IO_ERROR, "turn %d: status %d", turn, status);
            CHECK(strstr(error, "x'"), "turn %d: \"%s\"", turn, error);
            check_old(turn);
            if (turn > most) most = turn;
        }
    CHECK(most >= 8, "only %d calls could fail", most);
}

static void read_faults(void)
{
    int fd = lowest_free_fd(), turn = 1;
    clear_folder();
    CHECK(write_two("x") == PH_OK, "%s", error);
    for (;; turn++) {
        ph_file *file = NULL;
        memset(&fault, 0, sizeof fault);
        fault.fail_at = turn;
        fault.number = EIO;
        error[0] = 0;
        ph_status status = ph_file_read(&file, in_folder("x"), &io);
        ph_file_free(file);
        CHECK(lowest_free_fd() == fd, "turn %d leaks a descriptor", turn);
        if (fault.count < turn) break;
        if (status == PH_OK) continue; /* the close */
        CHECK(status == PH_IO_ERROR, "turn %d: status %d", turn, status);
        CHECK(strstr(error, "Input/output error"), "turn %d: \"%s\"", turn, error);
    }
    memset(&fault, 0, sizeof fault);
    CHECK(turn >= 6, "only %d calls", turn);
}

/* A signal or a short count at any call changes nothing. */
static void interrupted(void)
{
    char expected[1000], found[1000];
    clear_folder();
    CHECK(write_two("x") == PH_OK, "%s", error);
    size_t size = get_file("x", expected, sizeof expected);
    for (int turn = 1; turn < 14; turn++) {
        ph_file *file = NULL;
        memset(&fault, 0, sizeof fault);
        fault.fail_at = turn;
        fault.number = EINTR;
        fault.shorten = 1;
        ph_status status = write_two("y");
        fault.count = 0;
        ph_status again =
            status == PH_OK ? ph_file_read(&file, in_folder("y"), &io) : status;
        memset(&fault, 0, sizeof fault);
        ph_file_free(file);
        if (status == PH_IO_ERROR && strstr(error, "Interrupted")) continue;
        CHECK(status == PH_OK && (again == PH_OK || strstr(error, "Interrupted")), "%s",
              error);
        CHECK(get_file("y", found, sizeof found) == size, "size");
        CHECK(memcmp(expected, found, size) == 0, "bytes in turn %d", turn);
    }
}

/* ---- memory ---- */

static int allocations_left, blocks;

static void *failing_alloc(void *user, size_t bytes)
{
    (void)user;
    if (allocations_left-- <= 0) return NULL;
    blocks++;
    return malloc(bytes);
}

static void release(void *user, void *ptr)
{
    (void)user;
    blocks -= ptr != NULL;
    free(ptr);
}

static void no_memory(void)
{
    ph_io failing = {.alloc = failing_alloc,
                     .release = release,
                     .error = error,
                     .error_size = sizeof error};
    int turn = 0;
    clear_folder();
    put_file("x", "old", 3);
    for (;; turn++) {
        ph_file *file = NULL;
        allocations_left = turn;
        ph_status status = ph_file_write(in_folder("x"), two, 2, NULL, 0, &failing);
        if (status == PH_OK) {
            status = ph_file_read(&file, in_folder("x"), &failing);
            put_file("x", "old", 3);
        }
        CHECK(status == PH_OK || status == PH_OUT_OF_MEMORY, "status %d", status);
        CHECK(status == PH_OK || strstr(error, "out of memory: no "), "%s", error);
        ph_file_free(file);
        CHECK(blocks == 0, "turn %d leaks", turn);
        check_old(turn);
        if (status == PH_OK) break;
    }
    CHECK(turn >= 9, "only %d allocations", turn);
}

/* ---- what killed writers leave ---- */

static long dead_process(void)
{
    pid_t child = fork();
    if (child == 0) _exit(0);
    CHECK(child > 0 && waitpid(child, NULL, 0) == child, "no process");
    return (long)child;
}

static const char *left_by(long pid, const char *format)
{
    static char name[64];
    snprintf(name, sizeof name, format, pid);
    return name;
}

static int exists(const char *name)
{
    struct stat info;
    return lstat(in_folder(name), &info) == 0;
}

static void stale_files(void)
{
    long dead = dead_process();
    const char *const others[] = {".polyhead-x-0.tmp", ".polyhead-1-0.tmpx",
                                  "polyhead.tmp"};
    for (int i = 0; i < 3; i++) put_file(others[i], "", 0);
    put_file(left_by(getppid(), ".polyhead-%ld-0.tmp"), "live", 4);
    put_file(left_by(dead, ".polyhead-%ld-0.tmp"), "half", 4);
    put_file(left_by(dead, ".polyhead-%ld-1.tmp"), "held", 4);
    int held = open(in_folder(left_by(dead, ".polyhead-%ld-1.tmp")), O_RDONLY);
    CHECK(flock(held, LOCK_EX | LOCK_NB) == 0, "no lock");
    CHECK(write_two("x") == PH_OK, "%s", error);
    for (int i = 0; i < 3; i++) CHECK(exists(others[i]), "%s is gone", others[i]);
    CHECK(exists(left_by(getppid(), ".polyhead-%ld-0.tmp")), "that of a live writer");
    CHECK(!exists(left_by(dead, ".polyhead-%ld-0.tmp")), "that of a dead one stays");
    CHECK(exists(left_by(dead, ".polyhead-%ld-1.tmp")), "one with a lock is gone");
    close(held);
    CHECK(write_two("x") == PH_OK, "%s", error);
    CHECK(!exists(left_by(dead, ".polyhead-%ld-1.tmp")), "without its lock it stays");
}

static void stale_directories(void)
{
    long dead = dead_process();
    ph_directory d;
    CHECK(mkdir(in_folder(left_by(dead, "out.polyhead-%ld-0.tmp")), 0777) == 0, "mkdir");
    put_file(left_by(dead, "out.polyhead-%ld-0.tmp/half"), "x", 1);
    CHECK(mkdir(in_folder(left_by(dead, "other.polyhead-%ld-0.tmp")), 0777) == 0,
          "mkdir");
    CHECK(ph_directory_create(&d, in_folder("out"), &io) == PH_OK, "%s", error);
    CHECK(!exists(left_by(dead, "out.polyhead-%ld-0.tmp")), "a half directory stays");
    CHECK(exists(left_by(dead, "other.polyhead-%ld-0.tmp")), "another target's is gone");
    CHECK(ph_directory_write(&d, "a/b", "x", 1) == PH_OK, "%s", error);
    ph_directory_abandon(&d);
    CHECK(!exists(left_by(getpid(), "out.polyhead-%ld-0.tmp")), "abandoned, it stays");
}

static const check_case cases[] = {{"keeps_permissions", keeps_permissions},
                                   {"follows_links", follows_links},
                                   {"bad_targets", bad_targets},
                                   {"devices", devices},
                                   {"no_permission", no_permission},
                                   {"bad_sources", bad_sources},
                                   {"truncated", truncated},
                                   {"write_faults", write_faults},
                                   {"read_faults", read_faults},
                                   {"interrupted", interrupted},
                                   {"no_memory", no_memory},
                                   {"stale_files", stale_files},
                                   {"stale_directories", stale_directories},
                                   {0, 0}};

int main(int argc, char **argv)
{
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.40s/polyhead-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(folder)) return 1;
    int failed = check_main(argc, argv, cases);
    chmod(folder, 0755);
    clear_folder();
    rmdir(folder);
    return failed;
}
