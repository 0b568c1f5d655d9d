/* Zig-zag base-128 integers as record batches use them (protocol buffers' sint32 / sint64).
 * Pure, any thread. Writers need VARINT_BYTES_MAX or VARLONG_BYTES_MAX bytes of room. */
#ifndef BROOK_RECORD_VARINT_H
#define BROOK_RECORD_VARINT_H

#include <stddef.h>
#include <stdint.h>

#define VARINT_BYTES_MAX 5
#define VARLONG_BYTES_MAX 10

static inline uint8_t *varlong_write(uint8_t *p, int64_t value)
{
    uint64_t u = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    while (u >= 0x80) {
        *p++ = (uint8_t)(u | 0x80);
        u >>= 7;
    }
    *p++ = (uint8_t)u;
    return p;
}

static inline uint8_t *varint_write(uint8_t *p, int32_t value)
{
    uint32_t u = ((uint32_t)value << 1) ^ (uint32_t)(value >> 31);
    while (u >= 0x80) {
        *p++ = (uint8_t)(u | 0x80);
        u >>= 7;
    }
    *p++ = (uint8_t)u;
    return p;
}

static inline size_t varlong_bytes(int64_t value)
{
    uint64_t u = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    return ((size_t)(63 - __builtin_clzll(u | 1)) / 7) + 1;
}

static inline size_t varint_bytes(int32_t value)
{
    return varlong_bytes(value);
}

/* Read one integer from [p, end). Returns the byte behind it, or NULL when the input ends or is too long. */
static inline const uint8_t *varint_read(const uint8_t *p, const uint8_t *end, int32_t *ret_value)
{
    uint32_t u = 0;
    for (unsigned shift = 0; shift < 35; shift += 7) {
        if (p == end)
            return NULL;
        uint8_t b = *p++;
        if (shift == 28 && b > 0x0f)
            return NULL;
        u |= (uint32_t)(b & 0x7f) << shift;
        if (b < 0x80) {
            *ret_value = (int32_t)((u >> 1) ^ (0u - (u & 1)));
            return p;
        }
    }
    return NULL;
}

static inline const uint8_t *varlong_read(const uint8_t *p, const uint8_t *end, int64_t *ret_value)
{
    uint64_t u = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
        if (p == end)
            return NULL;
        uint8_t b = *p++;
        if (shift == 63 && b > 0x01)
            return NULL;
        u |= (uint64_t)(b & 0x7f) << shift;
        if (b < 0x80) {
            *ret_value = (int64_t)((u >> 1) ^ (0u - (u & 1)));
            return p;
        }
    }
    return NULL;
}
#endif
