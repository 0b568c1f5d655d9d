/* A histogram of durations in a fixed few hundred bytes: four classes per power of two, so about 19 % wide.
 * Pure. */
#ifndef BROOK_CLIENT_LATENCY_H
#define BROOK_CLIENT_LATENCY_H

#include <stdint.h>

#define LATENCY_CLASSES 160

struct latency {
    uint32_t counts[LATENCY_CLASSES];
    uint64_t count;
    int64_t sum_us, max_us;
};

void latency_add(struct latency *l, int64_t us);
/* The duration that `share` (0..1) of all do not exceed, in us; 0 without any. */
int64_t latency_percentile(const struct latency *l, double share);
#endif
