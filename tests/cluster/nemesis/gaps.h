/* Times in which a partition had something missing: no leader, or no acknowledgement. Any thread. */
#ifndef BROOK_TESTS_NEMESIS_GAPS_H
#define BROOK_TESTS_NEMESIS_GAPS_H

#include <stdbool.h>
#include <stdint.h>

struct gaps;
/* Aborts when out of memory. */
struct gaps *gaps_new(int32_t partitions);
void gaps_free(struct gaps *g);
/* It is (still, or again) missing, or it is not; at `now_ms`. */
void gaps_tell(struct gaps *g, int32_t partition, bool missing, int64_t now_ms);
/* It was seen just now, and was missing since it was seen last. */
void gaps_seen(struct gaps *g, int32_t partition, int64_t now_ms);
struct gap {
    int32_t partition; /* -1: there was none */
    int64_t from_ms, to_ms;
};
/* Of the gaps that meet [from_ms, to_ms] the longest; those that still last go to `to_ms`. */
struct gap gaps_longest(struct gaps *g, int64_t from_ms, int64_t to_ms);
#endif
