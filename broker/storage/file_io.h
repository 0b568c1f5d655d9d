/* The seam under all file I/O of this folder: one thin function per system call, nothing else.
 *
 * Each answers as the call it stands for: -1 and errno on failure, short counts passed on. There is no state
 * and no hook here: a test program that wants the k-th call to fail, fall short, wait or be remembered links
 * tests/support/faulty_io.c, which defines the same functions, and the archive's own object is then not
 * taken. So production pays nothing, and a test sees every call in its order. Any thread.
 */
#ifndef BROOK_STORAGE_FILE_IO_H
#define BROOK_STORAGE_FILE_IO_H

#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

/* Close-on-exec, mode 0644 where O_CREAT is among the `flags`. */
int io_open(const char *path, int flags);
/* For reading or writing what is there: -1 and EAGAIN where the disk would have to be waited for to find the name. On a
 * system that can not tell it waits. */
int io_open_cached(const char *path, int flags);
int io_close(int fd);
ssize_t io_pread(int fd, void *buffer, size_t bytes, off_t position);
/* Only what is in the page cache: -1 and EAGAIN where the disk would have to be waited for; -1 and EOPNOTSUPP
 * on a file system that can not tell. */
ssize_t io_pread_cached(int fd, void *buffer, size_t bytes, off_t position);
/* `count` is at most IOV_MAX. */
ssize_t io_pwritev(int fd, const struct iovec *parts, int count, off_t position);
int io_truncate(int fd, off_t bytes);
int io_datasync(int fd);
int io_rename(const char *from, const char *to);
int io_unlink(const char *path);
/* Mode 0755. */
int io_mkdir(const char *path);
int io_rmdir(const char *path);
/* Make the names in the directory durable. */
int io_sync_directory(const char *path);
/* Bytes that may still be written on the file system that holds `path`; -1 and EROFS where none may be. */
int io_free_bytes(const char *path, int64_t *ret_bytes);
#endif
