#include "broker/storage/compaction_keep.h"

#include "proto/base/err.h"

#include <stdlib.h>

#define PLACES_FIRST 64

struct producer_last {
    int64_t id_plus_one; /* 0: free */
    int64_t base_offset;
};

void compaction_keep_done(struct compaction_keep *k)
{
    free(k->producers);
    *k = (struct compaction_keep){0};
}

void compaction_keep_clear(struct compaction_keep *k)
{
    compaction_keep_done(k);
    k->epoch_seen = -1;
}

static struct producer_last *look_up(struct producer_last *list, size_t places, int64_t id)
{
    /* Ids are given out in blocks, one after the other: a multiplication spreads them. */
    size_t place = (size_t)(((uint64_t)id * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (places - 1);
    while (list[place].id_plus_one && list[place].id_plus_one != id + 1)
        place = (place + 1) & (places - 1);
    return &list[place];
}

static int grow(struct compaction_keep *k)
{
    size_t places = k->places ? 2 * k->places : PLACES_FIRST;
    struct producer_last *list = calloc(places, sizeof *list);
    if (!list)
        return -BROOK_E_NOMEM;
    for (size_t i = 0; i < k->places; i++)
        if (k->producers[i].id_plus_one)
            *look_up(list, places, k->producers[i].id_plus_one - 1) = k->producers[i];
    free(k->producers);
    k->producers = list;
    k->places = places;
    return 0;
}

int compaction_keep_learn(struct compaction_keep *k, const struct batch_header *h)
{
    if (h->producer_id < 0 || h->producer_id == INT64_MAX)
        return 0;
    if (2 * k->count >= k->places && k->count < COMPACTION_PRODUCERS_MAX && grow(k) != 0)
        return -BROOK_E_NOMEM;
    struct producer_last *p = look_up(k->producers, k->places, h->producer_id);
    if (!p->id_plus_one) {
        if (k->count == COMPACTION_PRODUCERS_MAX) {
            k->is_full = true;
            return 0;
        }
        k->count++;
        p->id_plus_one = h->producer_id + 1;
    }
    p->base_offset = h->base_offset;
    return 0;
}

static bool is_last_of_producer(const struct compaction_keep *k, const struct batch_header *h)
{
    if (h->producer_id < 0 || h->producer_id == INT64_MAX)
        return false;
    struct producer_last *p = k->places ? look_up(k->producers, k->places, h->producer_id) : NULL;
    return p && p->id_plus_one ? p->base_offset == h->base_offset : k->is_full;
}

bool compaction_keep_header(struct compaction_keep *k, const struct batch_header *h, int64_t now_ms)
{
    bool begins_epoch = h->leader_epoch > k->epoch_seen;
    if (begins_epoch)
        k->epoch_seen = h->leader_epoch;
    bool is_silent = now_ms - h->max_timestamp > COMPACTION_PRODUCER_MS && h->max_timestamp <= now_ms;
    return begins_epoch || (is_last_of_producer(k, h) && !is_silent);
}
