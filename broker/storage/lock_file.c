#include "broker/storage/lock_file.h"

#include "broker/storage/file.h"
#include "proto/base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

static int refuse(const char *path, int fd, struct brook_error *error)
{
    char text[32] = "";
    ssize_t n = file_read(fd, text, sizeof text - 1, 0);
    long owner = n > 0 ? strtol(text, NULL, 10) : 0;
    if (owner > 0)
        return brook_error_set(error, BROOK_E_LOCKED, "%s is locked by process %ld", path, owner);
    return brook_error_set(error, BROOK_E_LOCKED, "%s is locked by another process", path);
}

int lock_file_take(const char *path, int *ret_fd, struct brook_error *error)
{
    AUTO_CLOSE int fd = io_open(path, O_RDWR | O_CREAT);
    if (fd < 0)
        return storage_error(error, "opening %s", path);
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(fd, F_OFD_SETLK, &whole) != 0)
        return errno == EAGAIN || errno == EACCES ? refuse(path, fd, error)
                                                  : storage_error(error, "locking %s", path);
    char text[32];
    int n = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    /* Only a help for people: a full disk must not keep a broker from starting. */
    if (io_truncate(fd, 0) == 0)
        (void)file_write(fd, text, (size_t)n, 0);
    *ret_fd = TAKE_FD(fd);
    return 0;
}
