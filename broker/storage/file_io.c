#include "broker/storage/file_io.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

int io_open(const char *path, int flags)
{
    return open(path, flags | O_CLOEXEC, 0644);
}

int io_open_cached(const char *path, int flags)
{
#if defined(SYS_openat2) && defined(RESOLVE_CACHED)
    struct open_how how = {.flags = (unsigned)(flags | O_CLOEXEC), .resolve = RESOLVE_CACHED};
    int fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
    /* Kernels before 5.12, and sandboxes that know no openat2. */
    if (fd >= 0 || (errno != ENOSYS && errno != EINVAL && errno != EPERM))
        return fd;
#endif
    return io_open(path, flags);
}

int io_close(int fd)
{
    return close(fd);
}

ssize_t io_pread(int fd, void *buffer, size_t bytes, off_t position)
{
    return pread(fd, buffer, bytes, position);
}

ssize_t io_pread_cached(int fd, void *buffer, size_t bytes, off_t position)
{
    struct iovec part = {.iov_base = buffer, .iov_len = bytes};
    return preadv2(fd, &part, 1, position, RWF_NOWAIT);
}

ssize_t io_pwritev(int fd, const struct iovec *parts, int count, off_t position)
{
    return pwritev(fd, parts, count, position);
}

int io_truncate(int fd, off_t bytes)
{
    return ftruncate(fd, bytes);
}

int io_datasync(int fd)
{
    return fdatasync(fd);
}

int io_rename(const char *from, const char *to)
{
    return rename(from, to);
}

int io_unlink(const char *path)
{
    return unlink(path);
}

int io_mkdir(const char *path)
{
    return mkdir(path, 0755);
}

int io_rmdir(const char *path)
{
    return rmdir(path);
}

int io_sync_directory(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    int r = fsync(fd);
    int saved = errno;
    close(fd);
    errno = saved;
    return r;
}

int io_free_bytes(const char *path, int64_t *ret_bytes)
{
    struct statvfs st;
    if (statvfs(path, &st) != 0)
        return -1;
    if (st.f_flag & ST_RDONLY) {
        errno = EROFS;
        return -1;
    }
    *ret_bytes = (int64_t)(st.f_bavail * st.f_frsize);
    return 0;
}
