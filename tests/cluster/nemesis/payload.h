/* The records of a nemesis run: a line of text that says who wrote it and as which one, and proves that it is whole.
 * "p<producer> s<sequence> <filler>"; the filler follows from both numbers. Pure. */
#ifndef BROOK_TESTS_NEMESIS_PAYLOAD_H
#define BROOK_TESTS_NEMESIS_PAYLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PAYLOAD_BYTES_MAX 320

/* Returns the number of bytes written, without NUL. */
size_t payload_write(char buffer[PAYLOAD_BYTES_MAX], int32_t producer, int64_t sequence);
/* False: it is not what payload_write() makes. */
bool payload_read(const char *data, size_t bytes, int32_t *ret_producer, int64_t *ret_sequence);
#endif
