/* A latency histogram: 64 sub-buckets per power of two, so that a value read back is at most 1.6% off. Counts whole
 * microseconds (or any unit). Plain data, one thread. */
#ifndef BROOK_CLI_HISTOGRAM_H
#define BROOK_CLI_HISTOGRAM_H

#include <jansson.h>
#include <stdint.h>

#define HISTOGRAM_BUCKETS (64 * 40)

struct histogram {
    uint64_t counts[HISTOGRAM_BUCKETS];
    uint64_t total;
    int64_t max;
};

void histogram_add(struct histogram *h, int64_t value);
/* The value below which `fraction` (0..1) of all lie; 0 when empty. */
int64_t histogram_percentile(const struct histogram *h, double fraction);
/* {"count":..,"p50":..,"p90":..,"p99":..,"p99.9":..,"max":..} */
json_t *histogram_json(const struct histogram *h);
#endif
