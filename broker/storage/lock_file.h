/* One process per directory: the file `.lock` in it, locked as a whole with F_OFD_SETLK (which excludes
 * Kafka's lock too) and naming its owner's process id. The lock goes with the descriptor, so it can not
 * outlive a crash.
 */
#ifndef BROOK_STORAGE_LOCK_FILE_H
#define BROOK_STORAGE_LOCK_FILE_H

#include "proto/base/err.h"

#include <stdbool.h>

#define LOCK_FILE ".lock"

/* Returns 0 and the descriptor that holds the lock (close() lets go); -BROOK_E_LOCKED; a storage error. */
int lock_file_take(const char *path, int *ret_fd, struct brook_error *error);
/* Whether another process holds the lock, and which (0: it does not say). Only asks, and writes nothing. */
bool lock_file_is_taken(const char *path, long *ret_owner);
#endif
