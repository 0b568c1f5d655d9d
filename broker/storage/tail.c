#include "broker/storage/tail.h"

void tail_reset(struct tail *t)
{
    t->count = 0;
}

void tail_push(struct tail *t, const struct tail_batch *batch)
{
    t->batches[t->pushed++ % TAIL_BATCHES_MAX] = *batch;
    if (t->count < TAIL_BATCHES_MAX)
        t->count++;
}

const struct tail_batch *tail_at(const struct tail *t, uint32_t i)
{
    return &t->batches[(t->pushed - t->count + i) % TAIL_BATCHES_MAX];
}

uint32_t tail_find(const struct tail *t, int64_t offset)
{
    uint32_t low = 0, high = t->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (tail_at(t, middle)->last_offset < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool tail_covers(const struct tail *t, int64_t offset)
{
    return t->count > 0 && offset >= tail_at(t, 0)->base_offset;
}
