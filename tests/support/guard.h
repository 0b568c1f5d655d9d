/* Bytes that end where memory ends: the byte behind them is unreadable and unwritable, so that assembly code
 * and system libraries, which no sanitizer sees into, are caught in the act (SIGSEGV fails the test). */
#ifndef BROOK_TESTS_GUARD_H
#define BROOK_TESTS_GUARD_H

#include <stddef.h>
#include <stdint.h>

struct guard {
    uint8_t *map;
    size_t map_bytes;
    uint8_t *end; /* the first forbidden byte */
};

/* Room for up to `bytes_max` bytes in front of the end. Aborts when there is no memory. */
void guard_init(struct guard *guard, size_t bytes_max);
void guard_done(struct guard *guard);
/* The last `bytes` bytes of the room, for the caller to fill. */
uint8_t *guard_room(const struct guard *guard, size_t bytes);
/* The same with a copy of `data` in it. */
uint8_t *guard_copy(const struct guard *guard, const void *data, size_t bytes);
#endif
