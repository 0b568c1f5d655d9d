/* The batch that the application holds: a run of records, and the way back to the partition it came from.
 *
 * Lives until released, on any thread, also after its consumer is closed: it keeps the set and the reply's
 * slab.
 */
#ifndef BROOK_CLIENT_CONSUMER_BATCH_H
#define BROOK_CLIENT_CONSUMER_BATCH_H

#include "client/consumer_set.h"

struct brook_batch {
    struct record_run run;
    struct consumer_set *set; /* with a reference */
    struct consumer_partition *partition;
    struct slab *slab;
    int64_t first;
    int64_t next;
    int64_t end; /* the high watermark */
    uint64_t ticket;
    size_t charge_bytes;
    _Atomic int64_t processed; /* how far the holder has come, for those who tell (the stream) */
    struct brook_batch *idle_next;
};

#define SET_IDLE_BATCHES_MAX 64

/* An empty batch from the set's idle ones, or a new one; NULL: out of memory. [locked] */
struct brook_batch *batch_take(struct consumer_set *set);
/* Back to the idle ones; the run must be clear. [locked] */
void batch_give(struct consumer_set *set, struct brook_batch *batch);
#endif
