/* What one witness noted, in order: records with the offsets it knows them by. Plain data; each is one thread's. */
#ifndef BROOK_TESTS_NEMESIS_TRAIL_H
#define BROOK_TESTS_NEMESIS_TRAIL_H

#include <stddef.h>
#include <stdint.h>

struct trail_entry {
    int32_t partition;
    int32_t producer; /* -1: bytes that no producer wrote */
    int64_t sequence;
    int64_t offset;
};
struct trail {
    struct trail_entry *entries;
    size_t count;
    size_t room;
};
/* Aborts when out of memory. */
void trail_add(struct trail *t, struct trail_entry entry);
void trail_done(struct trail *t);
#endif
