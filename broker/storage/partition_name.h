/* The name of a partition's directory: "<topic>-<number>", split at the last dash. Pure, any thread. */
#ifndef BROOK_STORAGE_PARTITION_NAME_H
#define BROOK_STORAGE_PARTITION_NAME_H

#include <stdbool.h>
#include <stdint.h>

/* False (nothing is filled in then) for any other name: no dash, an illegal topic, a number that is not the plain
 * form of one in [0, 2^31 - 1], or something behind it ("-delete", "-stray", "-future"). */
bool partition_name_parse(const char *name, char ret_topic[256], int32_t *ret_partition);
#endif
