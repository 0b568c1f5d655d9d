/* Whose data directory this is: the file `meta.properties`, written as version 0 (Kafka's ZooKeeper mode). Stateless.
 *
 *     #
 *     #Tue Nov 14 22:13:20 UTC 2023
 *     broker.id=1
 *     cluster.id=<22 characters>
 *     version=0
 *
 * Lines in any order, `#` begins a comment, other keys are passed over. Version 1 (of KRaft) is read as well: it says
 * `node.id` for `broker.id` and must have both ids. A file without a version line, or that does not end in a
 * newline, was not written to its end: it means "not known".
 */
#ifndef BROOK_STORAGE_IDENTITY_H
#define BROOK_STORAGE_IDENTITY_H

#include "proto/base/err.h"

#include <stdint.h>

#define IDENTITY_FILE "meta.properties"
#define CLUSTER_ID_BYTES_MAX 63

struct identity {
    int32_t broker_id;                         /* -1: not said */
    char cluster_id[CLUSTER_ID_BYTES_MAX + 1]; /* "": not said */
};

/* Returns 0; -BROOK_E_NOT_FOUND; -BROOK_E_INVALID (not known); -BROOK_E_UNSUPPORTED_VERSION (a later one);
 * -BROOK_E_STORAGE_ERROR. */
int identity_load(const char *path, struct identity *ret_identity);
/* Replaced atomically and synced. */
int identity_save(const char *path, const struct identity *identity, struct brook_error *error);
#endif
