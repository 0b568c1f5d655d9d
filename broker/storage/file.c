#include "broker/storage/file.h"

#include "proto/base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

int storage_error(struct brook_error *error, const char *format, ...)
{
    int saved = errno;
    int code = saved == ENOSPC || saved == EDQUOT ? BROOK_E_STORAGE_FULL : BROOK_E_STORAGE_ERROR;
    if (error) {
        va_list args;
        va_start(args, format);
        brook_error_setv(error, code, format, args);
        va_end(args);
        size_t used = strlen(error->text);
        char reason[96];
        snprintf(error->text + used, sizeof error->text - used, ": %s",
                 strerror_r(saved, reason, sizeof reason));
    }
    errno = saved;
    return -code;
}

bool storage_is_broken(int error)
{
    static const int others[] = {0, ENOSPC, EDQUOT, EMFILE, ENFILE, ENOMEM, EINTR, EAGAIN};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (error == others[i])
            return false;
    return true;
}

typedef ssize_t read_call(int fd, void *buffer, size_t bytes, off_t position);

static ssize_t read_all(read_call *call, int fd, void *buffer, size_t bytes, off_t position)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = call(fd, (char *)buffer + done, bytes - done, position + (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

ssize_t file_read(int fd, void *buffer, size_t bytes, off_t position)
{
    return read_all(io_pread, fd, buffer, bytes, position);
}

ssize_t file_read_cached(int fd, void *buffer, size_t bytes, off_t position)
{
    ssize_t n = read_all(io_pread_cached, fd, buffer, bytes, position);
    return n < 0 && errno == EOPNOTSUPP ? file_read(fd, buffer, bytes, position) : n;
}

/* Drop `bytes` that were written from the front. Returns how many parts are used up. */
static size_t consume(struct iovec *parts, size_t count, size_t bytes)
{
    size_t i = 0;
    while (i < count && bytes >= parts[i].iov_len)
        bytes -= parts[i++].iov_len;
    if (i < count) {
        parts[i].iov_base = (char *)parts[i].iov_base + bytes;
        parts[i].iov_len -= bytes;
    }
    return i;
}

int file_writev(int fd, struct iovec *parts, size_t count, off_t position)
{
    while (count > 0) {
        ssize_t n = io_pwritev(fd, parts, count < IOV_MAX ? (int)count : IOV_MAX, position);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0) { /* never seen, but must not loop */
            errno = EIO;
            return -1;
        }
        position += n;
        size_t used = consume(parts, count, (size_t)n);
        parts += used;
        count -= used;
    }
    return 0;
}

int file_write(int fd, const void *data, size_t bytes, off_t position)
{
    if (bytes == 0)
        return 0;
    struct iovec part = {.iov_base = (void *)(uintptr_t)data, .iov_len = bytes};
    return file_writev(fd, &part, 1, position);
}

int file_sync_parent(const char *path)
{
    char parent[PATH_MAX];
    const char *slash = strrchr(path, '/');
    if (!slash)
        return io_sync_directory(".");
    size_t bytes = slash == path ? 1 : (size_t)(slash - path);
    if (bytes >= sizeof parent) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(parent, path, bytes);
    parent[bytes] = '\0';
    return io_sync_directory(parent);
}

static int write_beside(const char *temporary, const void *data, size_t bytes, bool durable)
{
    int fd = io_open(temporary, O_WRONLY | O_CREAT | O_TRUNC);
    if (fd < 0)
        return -1;
    int r = file_write(fd, data, bytes, 0);
    if (r == 0 && durable)
        r = io_datasync(fd);
    int saved = errno;
    if (io_close(fd) != 0 && r == 0)
        return -1;
    errno = saved;
    return r;
}

int file_replace(const char *path, const void *data, size_t bytes, bool durable, struct brook_error *error)
{
    char temporary[PATH_MAX];
    if ((size_t)snprintf(temporary, sizeof temporary, "%s.tmp", path) >= sizeof temporary) {
        errno = ENAMETOOLONG;
        return storage_error(error, "%s", path);
    }
    if (write_beside(temporary, data, bytes, durable) != 0 || io_rename(temporary, path) != 0) {
        int r = storage_error(error, "writing %s", path), saved = errno;
        io_unlink(temporary);
        errno = saved;
        return r;
    }
    if (durable && file_sync_parent(path) != 0)
        return storage_error(error, "syncing the directory of %s", path);
    return 0;
}

static int load_open_file(int fd, size_t bytes_max, char **ret_data, size_t *ret_bytes)
{
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return -BROOK_E_STORAGE_ERROR;
    if ((uint64_t)st.st_size > bytes_max)
        return -BROOK_E_TOO_MANY;
    AUTO_FREE char *data = malloc((size_t)st.st_size + 1);
    if (!data)
        return -BROOK_E_NOMEM;
    ssize_t n = file_read(fd, data, (size_t)st.st_size, 0);
    if (n < 0)
        return -BROOK_E_STORAGE_ERROR;
    data[n] = '\0';
    *ret_bytes = (size_t)n;
    *ret_data = TAKE(data);
    return 0;
}

int file_load(const char *path, size_t bytes_max, char **ret_data, size_t *ret_bytes)
{
    int fd = io_open(path, O_RDONLY);
    if (fd < 0)
        return errno == ENOENT ? -BROOK_E_NOT_FOUND : -BROOK_E_STORAGE_ERROR;
    int r = load_open_file(fd, bytes_max, ret_data, ret_bytes);
    io_close(fd);
    return r;
}
