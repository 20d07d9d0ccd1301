/*
 * temporary.h - names under which files and directories are written before they are
 * renamed, and what killed writers left of them.
 *
 * The name is PREFIX.polyhead-PID-N.tmp, and its writer holds a lock on it, which ends
 * with the process however it ends. So a temporary without a lock whose process is gone
 * is stale, and the next writer into its folder removes it.
 */
#ifndef PH_IO_TEMPORARY_H
#define PH_IO_TEMPORARY_H

#include <stddef.h>

/* The name of attempt n. */
void ph_temporary_name(char *to, size_t size, const char *prefix, int n);

/* Locks a temporary of this process, which ends with the descriptor. Where the file
   system has no locks, nothing is ever found to be stale. */
void ph_temporary_hold(int fd);

/* Removes the stale ones with this prefix from a directory. */
void ph_temporary_clear(int directory, const char *prefix);

/* Removes a file, or a directory with what is in it. */
void ph_temporary_remove(int directory, const char *name);

#endif
