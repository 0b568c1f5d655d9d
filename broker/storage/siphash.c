#include "broker/storage/siphash.h"

#include <endian.h>
#include <string.h>

struct state {
    uint64_t v0, v1, v2, v3;
};

static inline uint64_t rotate(uint64_t x, int bits)
{
    return (x << bits) | (x >> (64 - bits));
}

static inline uint64_t read_word(const uint8_t *p)
{
    uint64_t word;
    memcpy(&word, p, sizeof word);
    return le64toh(word);
}

static inline void mix(struct state *s, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        s->v0 += s->v1;
        s->v1 = rotate(s->v1, 13) ^ s->v0;
        s->v0 = rotate(s->v0, 32);
        s->v2 += s->v3;
        s->v3 = rotate(s->v3, 16) ^ s->v2;
        s->v0 += s->v3;
        s->v3 = rotate(s->v3, 21) ^ s->v0;
        s->v2 += s->v1;
        s->v1 = rotate(s->v1, 17) ^ s->v2;
        s->v2 = rotate(s->v2, 32);
    }
}

static inline void take_word(struct state *s, uint64_t word)
{
    s->v3 ^= word;
    mix(s, 2);
    s->v0 ^= word;
}

static inline uint64_t give_word(struct state *s)
{
    mix(s, 4);
    return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

struct siphash siphash_128(const uint8_t secret[16], const void *data, size_t bytes)
{
    const uint8_t *p = data;
    uint64_t k0 = read_word(secret), k1 = read_word(secret + 8);
    struct state s = {.v0 = UINT64_C(0x736f6d6570736575) ^ k0,
                      .v1 = UINT64_C(0x646f72616e646f6d) ^ k1 ^ 0xee,
                      .v2 = UINT64_C(0x6c7967656e657261) ^ k0,
                      .v3 = UINT64_C(0x7465646279746573) ^ k1};
    size_t left = bytes;
    for (; left >= 8; left -= 8, p += 8)
        take_word(&s, read_word(p));
    uint8_t last[8] = {0};
    memcpy(last, p, left);
    last[7] = (uint8_t)bytes;
    take_word(&s, read_word(last));

    struct siphash hash;
    s.v2 ^= 0xee;
    hash.words[0] = give_word(&s);
    s.v1 ^= 0xdd;
    hash.words[1] = give_word(&s);
    return hash;
}
