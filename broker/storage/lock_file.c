#include "broker/storage/lock_file.h"

#include "broker/storage/file.h"
#include "proto/base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

/* Who holds a lock that is known to be held: the kernel tells of a POSIX lock, as Java's, by pid; of an open file
 * description's lock (-1 there) the file tells, which a program that writes nothing into it may have left stale.
 */
static long owner_of(int fd, const struct flock *held)
{
    if (held->l_pid > 0)
        return held->l_pid;
    char text[32] = "";
    ssize_t n = file_read(fd, text, sizeof text - 1, 0);
    return n > 0 ? strtol(text, NULL, 10) : 0;
}

static bool ask(int fd, struct flock *ret_held)
{
    *ret_held = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_GETLK, ret_held) == 0 && ret_held->l_type != F_UNLCK;
}

static int refuse(const char *path, int fd, struct brook_error *error)
{
    struct flock held;
    long owner = ask(fd, &held) ? owner_of(fd, &held) : 0;
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

bool lock_file_is_taken(const char *path, long *ret_owner)
{
    struct flock held;
    AUTO_CLOSE int fd = io_open(path, O_RDONLY);
    if (fd < 0 || !ask(fd, &held))
        return false;
    *ret_owner = owner_of(fd, &held);
    return true;
}
