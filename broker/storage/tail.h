/* The last few batches of the active segment, in memory: whoever reads at the tail needs no index and no
 * file.
 *
 * A ring; batches rise by offset and lie back to back. Plain data, guarded by the log's lock.
 */
#ifndef BROOK_STORAGE_TAIL_H
#define BROOK_STORAGE_TAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A power of two. */
#define TAIL_BATCHES_MAX 64

struct tail_batch {
    int64_t base_offset;
    int64_t last_offset;
    int64_t max_timestamp;
    uint32_t position;
    uint32_t bytes;
};

struct tail {
    uint64_t pushed; /* ever; the newest lies at (pushed - 1) % TAIL_BATCHES_MAX */
    uint32_t count;
    struct tail_batch batches[TAIL_BATCHES_MAX];
};

void tail_reset(struct tail *t);
void tail_push(struct tail *t, const struct tail_batch *batch);
/* The i-th oldest, i < count. */
const struct tail_batch *tail_at(const struct tail *t, uint32_t i);
/* The place (for tail_at) of the first batch whose last offset is >= `offset`; `count` when all end below.
 * Only meaningful when `offset` is not below the oldest one's base offset: see tail_covers(). */
uint32_t tail_find(const struct tail *t, int64_t offset);
/* Whether the batch that holds or follows `offset` is certainly found by tail_find(). */
bool tail_covers(const struct tail *t, int64_t offset);
#endif
