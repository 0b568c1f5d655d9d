/* What producer, consumer and administration share. Plain data. */
#ifndef BROOK_TYPES_H
#define BROOK_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Let the partitioner choose. */
#define BROOK_PARTITION_ANY (-1)
/* Positions that are not numbers. */
#define BROOK_OFFSET_NONE (-1)
#define BROOK_OFFSET_EARLIEST (-2)
#define BROOK_OFFSET_LATEST (-3)
/* Where the group stands (the stored offset), else as auto.offset.reset says. */
#define BROOK_OFFSET_STORED (-4)

/* One header of a record. `value` NULL: null. */
struct brook_header {
    const void *key;
    size_t key_bytes;
    const void *value;
    size_t value_bytes;
};

/* A partition and a position in it. */
struct brook_position {
    const char *topic;
    int32_t partition;
    int64_t offset;
};

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
