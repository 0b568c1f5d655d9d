#include "client/partitioner.h"

uint32_t murmur2(const void *data, size_t bytes)
{
    const uint32_t m = 0x5bd1e995;
    const uint8_t *p = data;
    uint32_t h = 0x9747b28cu ^ (uint32_t)bytes;
    for (size_t n = bytes / 4; n > 0; n--, p += 4) {
        uint32_t k = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        k *= m;
        k ^= k >> 24;
        k *= m;
        h *= m;
        h ^= k;
    }
    size_t rest = bytes % 4;
    if (rest == 3)
        h ^= (uint32_t)p[2] << 16;
    if (rest >= 2)
        h ^= (uint32_t)p[1] << 8;
    if (rest >= 1) {
        h ^= p[0];
        h *= m;
    }
    h ^= h >> 13;
    h *= m;
    h ^= h >> 15;
    return h;
}

int32_t partition_of_key(const void *key, size_t key_bytes, int32_t partitions_count)
{
    return (int32_t)((murmur2(key, key_bytes) & 0x7fffffff) % (uint32_t)partitions_count);
}
