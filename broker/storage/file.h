/* Small things done with whole files, on top of file_io.h: read and write everything, replace atomically,
 * turn errno into an error. Knows no format. Any thread; blocks on the disk.
 */
#ifndef BROOK_STORAGE_FILE_H
#define BROOK_STORAGE_FILE_H

#include "broker/storage/file_io.h"
#include "proto/base/err.h"

#include <stdbool.h>
#include <stddef.h>

/* Fill *error (may be NULL) with the sentence, errno's text behind it, and return -BROOK_E_STORAGE_FULL where
 * errno says that there is no room (ENOSPC, EDQUOT), else -BROOK_E_STORAGE_ERROR. */
int storage_error(struct brook_error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Whether the failure (an errno) is the disk's. The process may be short of descriptors or memory instead, and the
 * disk may be full. */
bool storage_is_broken(int error);

/* Read up to `bytes`, going on after short reads. Returns what was read, which is less than asked for only at
 * the file's end; -1 and errno on failure. */
ssize_t file_read(int fd, void *buffer, size_t bytes, off_t position);
/* The same without waiting for a disk: -1 and EAGAIN when not all of it is in the page cache. On a file
 * system that can not tell it waits. */
ssize_t file_read_cached(int fd, void *buffer, size_t bytes, off_t position);
/* Write all of `parts` (any number; the array is used up), going on after short writes: the call that follows
 * a short one says why. Returns 0, or -1 and errno; part of it may be in the file then. */
int file_writev(int fd, struct iovec *parts, size_t count, off_t position);
int file_write(int fd, const void *data, size_t bytes, off_t position);

/* Put `data` in the place of `path` (or make it): written beside it as "<path>.tmp", renamed. With `durable`
 * the new content is on stable storage before the name points to it, and the name before this returns.
 * Returns 0, -BROOK_E_STORAGE_FULL or -BROOK_E_STORAGE_ERROR; `path` is as it was then. */
int file_replace(const char *path, const void *data, size_t bytes, bool durable, struct brook_error *error);

/* Read a small file. The caller frees *ret_data, which ends in a NUL that is not counted. Returns 0;
 * -BROOK_E_NOT_FOUND; -BROOK_E_TOO_MANY above `bytes_max`; -BROOK_E_NOMEM; -BROOK_E_STORAGE_ERROR. */
int file_load(const char *path, size_t bytes_max, char **ret_data, size_t *ret_bytes);

/* Sync the directory that holds `path`. Returns 0, or -1 and errno. */
int file_sync_parent(const char *path);
#endif
