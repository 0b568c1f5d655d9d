/* Locals that own: a cleanup attribute frees at scope end, TAKE hands over.
 *
 *     AUTO_FREE char *path = path_of(...);
 *     ...
 *     *ret_path = TAKE(path);      // path is NULL now, nothing is freed
 */
#ifndef BROOK_BASE_CLEANUP_H
#define BROOK_BASE_CLEANUP_H

#include <stdlib.h>
#include <unistd.h>

#define AUTO(function) __attribute__((cleanup(function)))
#define AUTO_FREE AUTO(cleanup_free)
#define AUTO_CLOSE AUTO(cleanup_close)

/* The value of `variable`, which becomes zero (NULL for pointers). */
#define TAKE(variable) \
    __extension__({ \
        __typeof__(variable) taken_ = (variable); \
        (variable) = (__typeof__(variable)) 0; \
        taken_; \
    })
/* The same for descriptors, which become -1. */
#define TAKE_FD(variable) \
    __extension__({ \
        int taken_ = (variable); \
        (variable) = -1; \
        taken_; \
    })

static inline void cleanup_free(void *pointer)
{
    free(*(void **)pointer);
}

static inline void cleanup_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
}
#endif
