/* Integers in network order at any address. Pure, any thread. */
#ifndef BROOK_RECORD_BIG_ENDIAN_H
#define BROOK_RECORD_BIG_ENDIAN_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

static inline uint16_t be16_read(const void *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return be16toh(v);
}

static inline uint32_t be32_read(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return be32toh(v);
}

static inline uint64_t be64_read(const void *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return be64toh(v);
}

static inline void be16_write(void *p, uint16_t value)
{
    uint16_t v = htobe16(value);
    memcpy(p, &v, sizeof v);
}

static inline void be32_write(void *p, uint32_t value)
{
    uint32_t v = htobe32(value);
    memcpy(p, &v, sizeof v);
}

static inline void be64_write(void *p, uint64_t value)
{
    uint64_t v = htobe64(value);
    memcpy(p, &v, sizeof v);
}
#endif
