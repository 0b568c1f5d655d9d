/* The file `partition.metadata` of a partition's directory: which topic of that name this is. Stateless.
 *
 *     version: 0
 *     topic_id: AQIDBAUGBwgJCgsMDQ4PEA          (base64url of the 16 bytes; no newline at the end)
 */
#ifndef BROOK_STORAGE_PARTITION_METADATA_H
#define BROOK_STORAGE_PARTITION_METADATA_H

#include "proto/base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define PARTITION_METADATA_FILE "partition.metadata"
#define TOPIC_ID_BYTES 16
#define TOPIC_ID_TEXT_BYTES 22

/* Returns 0; -BROOK_E_NOT_FOUND; -BROOK_E_INVALID (garbled, or the zero id). */
int partition_metadata_load(const char *path, uint8_t ret_topic_id[TOPIC_ID_BYTES]);
/* Replaced atomically, and with `durable` synced. Returns 0; -BROOK_E_INVALID for the zero id; a storage error. */
int partition_metadata_save(const char *path, const uint8_t topic_id[TOPIC_ID_BYTES], bool durable,
                            struct brook_error *error);
/* The 22 characters of an id. */
void partition_metadata_encode(const uint8_t id[TOPIC_ID_BYTES], char text[TOPIC_ID_TEXT_BYTES + 1]);
#endif
