/* How logs are compacted on a broker (log.cleaner...). Plain data. */
#ifndef BROOK_CLUSTER_CLEANER_SETTINGS_H
#define BROOK_CLUSTER_CLEANER_SETTINGS_H

#include <stdint.h>

struct cleaner_settings {
    int threads;                /* 0: nothing is compacted */
    int64_t map_bytes;          /* for keys, of all threads */
    int64_t bytes_per_s;        /* read and written by all; below 1: without limit */
    int64_t backoff_ms;         /* between two looks for what is due */
    int64_t expanded_bytes_max; /* of one batch */
};
#endif
