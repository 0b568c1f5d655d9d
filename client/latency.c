#include "client/latency.h"

/* Below 4 each value has its own class; then the two bits behind the first one split each power of two. */
static unsigned class_of(int64_t us)
{
    uint64_t u = us > 0 ? (uint64_t)us : 0;
    if (u < 4)
        return (unsigned)u;
    unsigned bits = 63 - (unsigned)__builtin_clzll(u);
    unsigned class = 4 * (bits - 1) + (unsigned)((u >> (bits - 2)) & 3);
    return class < LATENCY_CLASSES ? class : LATENCY_CLASSES - 1;
}

static int64_t upper_end(unsigned class)
{
    if (class < 4)
        return class;
    unsigned bits = class / 4 + 1;
    return (int64_t)((5ull + class % 4) << (bits - 2)) - 1;
}

void latency_add(struct latency *l, int64_t us)
{
    l->counts[class_of(us)]++;
    l->count++;
    l->sum_us += us;
    if (us > l->max_us)
        l->max_us = us;
}

int64_t latency_percentile(const struct latency *l, double share)
{
    uint64_t wanted = (uint64_t)(share * (double)l->count + 0.5), seen = 0;
    for (unsigned i = 0; i < LATENCY_CLASSES && l->count > 0; i++) {
        seen += l->counts[i];
        if (seen >= wanted && l->counts[i] > 0)
            return i < LATENCY_CLASSES - 1 && upper_end(i) < l->max_us ? upper_end(i) : l->max_us;
    }
    return l->max_us;
}
