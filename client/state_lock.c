#include "client/state_lock.h"

#include "proto/base/cleanup.h"
#include "proto/base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>

int state_lock_take(const char *path, int *ret_fd, struct brook_error *error)
{
    AUTO_CLOSE int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return brook_error_set(error, BROOK_E_IO, "state.dir: %s: %s", path, strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK)
            return brook_error_set(error, BROOK_E_LOCKED, "state.dir: %s is in use by another process", path);
        return brook_error_set(error, BROOK_E_IO, "state.dir: %s: %s", path, strerror(errno));
    }
    *ret_fd = TAKE_FD(fd);
    return 0;
}
