/* The file that says which registration of the broker a data directory is of. Stateless. */
#ifndef BROOK_STORAGE_REGISTERED_H
#define BROOK_STORAGE_REGISTERED_H

#include <stddef.h>
#include <stdint.h>

#define REGISTERED_FILE ".brook_registered"

struct registered {
    int64_t broker_epoch;
    int32_t directories; /* data directories that the broker had then */
};
/* Returns 0; -BROOK_E_NOT_FOUND; -BROOK_E_INVALID (can not be read, or makes no sense: proves nothing). */
int registered_load(const char *path, struct registered *ret);
/* Replaced atomically and synced. Returns 0 or a storage error. */
int registered_save(const char *path, const struct registered *registered);
#endif
