#include "client/cli/histogram.h"

static unsigned bucket_of(uint64_t value)
{
    if (value < 64)
        return (unsigned)value;
    unsigned shift = (unsigned)(63 - __builtin_clzll(value)) - 6;
    unsigned bucket = (shift + 1) * 64 + (unsigned)((value >> shift) & 63);
    return bucket < HISTOGRAM_BUCKETS ? bucket : HISTOGRAM_BUCKETS - 1;
}

static int64_t bucket_value(unsigned bucket)
{
    if (bucket < 64)
        return bucket;
    unsigned shift = bucket / 64 - 1;
    return (int64_t)((64u + bucket % 64) + 1) << shift;
}

void histogram_add(struct histogram *h, int64_t value)
{
    if (value < 0)
        value = 0;
    h->counts[bucket_of((uint64_t)value)]++;
    h->total++;
    if (value > h->max)
        h->max = value;
}

int64_t histogram_percentile(const struct histogram *h, double fraction)
{
    uint64_t wanted = (uint64_t)((double)h->total * fraction);
    uint64_t seen = 0;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += h->counts[i];
        if (seen > wanted)
            return bucket_value(i) < h->max ? bucket_value(i) : h->max;
    }
    return h->max;
}

json_t *histogram_json(const struct histogram *h)
{
    return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I}", "count", (json_int_t)h->total, "p50",
                     (json_int_t)histogram_percentile(h, 0.50), "p90", (json_int_t)histogram_percentile(h, 0.90),
                     "p99", (json_int_t)histogram_percentile(h, 0.99), "p99.9",
                     (json_int_t)histogram_percentile(h, 0.999), "max", (json_int_t)h->max);
}
