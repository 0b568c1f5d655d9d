/* Which partition a record with a key belongs to: the same one as with Kafka's own producer. Pure, any
 * thread. */
#ifndef BROOK_CLIENT_PARTITIONER_H
#define BROOK_CLIENT_PARTITIONER_H

#include <stddef.h>
#include <stdint.h>

/* Kafka's murmur2 (32 bits, seed 0x9747b28c). */
uint32_t murmur2(const void *data, size_t bytes);

/* (murmur2(key) & 0x7fffffff) % count; `partitions_count` > 0. */
int32_t partition_of_key(const void *key, size_t key_bytes, int32_t partitions_count);
#endif
