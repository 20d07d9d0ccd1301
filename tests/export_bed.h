/*
 * export_bed.h - a folder for what a case of an export writes. Included after
 * _GNU_SOURCE.
 */
#ifndef EXPORT_BED_H
#define EXPORT_BED_H

#include <dirent.h>
#include <ftw.h>
#include <unistd.h>

#include "check.h"

#define FOLDER "tests/golden/checkpoints/"

static char place[64]; /* of everything that a case writes */

static inline int remove_entry(const char *path, const struct stat *info, int kind,
                               struct FTW *at)
{
    (void)info, (void)kind, (void)at;
    return remove(path);
}

static inline void begin(void)
{
    strcpy(place, "/tmp/polyhead-export-XXXXXX");
    CHECK(mkdtemp(place) != NULL, "no temporary folder");
}

static inline void end(void)
{
    nftw(place, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static inline const char *in_place(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", place, name);
    return path;
}

static inline int entries(const char *path)
{
    int count = 0;
    DIR *d = opendir(path);
    CHECK(d != NULL, "%s is no directory", path);
    for (struct dirent *e; (e = readdir(d));) count += e->d_name[0] != '.';
    closedir(d);
    return count;
}

#endif
