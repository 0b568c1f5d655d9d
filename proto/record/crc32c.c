#include "proto/record/crc32c.h"

#include <isa-l/crc.h>

/* isa-l takes an int. */
#define PIECE_BYTES ((size_t)1 << 30)

uint32_t crc32c(uint32_t crc, const void *data, size_t bytes)
{
    /* isa-l's prototype lacks the const; it only reads. */
    unsigned char *at = (unsigned char *)(uintptr_t)data;
    uint32_t state = ~crc;
    while (bytes > PIECE_BYTES) {
        state = crc32_iscsi(at, (int)PIECE_BYTES, state);
        at += PIECE_BYTES;
        bytes -= PIECE_BYTES;
    }
    if (bytes > 0)
        state = crc32_iscsi(at, (int)bytes, state);
    return ~state;
}
