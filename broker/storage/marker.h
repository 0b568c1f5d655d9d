/* The clean-stop marker's bytes: nothing (Kafkas of old), or {"version":0,"brokerEpoch":N}. Stateless. */
#ifndef BROOK_STORAGE_MARKER_H
#define BROOK_STORAGE_MARKER_H

#include <stdint.h>

#define MARKER_FILE ".kafka_cleanshutdown"

/* The broker epoch that the marker names, -1 for none. Returns 0; -BROOK_E_NOT_FOUND; -BROOK_E_INVALID (can not
 * be read, or makes no sense: promises nothing). */
int marker_load(const char *path, int64_t *ret_broker_epoch);
/* Replaced atomically and synced. Returns 0 or a storage error. */
int marker_save(const char *path, int64_t broker_epoch);
#endif
