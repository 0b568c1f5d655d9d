/* Which batches keep their header in a compacted log although no record of theirs is left: what would be known
 * from nowhere else.
 *
 *   - the last batch of a producer: its sequence number tells a repeated batch from a new one
 *   - the first batch of a leader epoch: from it the epoch's start is found when the epoch file is lost
 *
 * (And the last batch of each segment that is written, which is its writer's business.) Producers are
 * remembered up to a limit; of those beyond it all headers stay. One thread.
 */
#ifndef BROOK_STORAGE_COMPACTION_KEEP_H
#define BROOK_STORAGE_COMPACTION_KEEP_H

#include "proto/record/batch.h"

/* 16 bytes each, at most half of the places filled. */
#define COMPACTION_PRODUCERS_MAX 65536
/* A producer that has been silent for so long (by its timestamps) is forgotten. */
#define COMPACTION_PRODUCER_MS ((int64_t)24 * 3600 * 1000)

struct compaction_keep { /* zeroed: nothing known */
    struct producer_last *producers;
    size_t places;
    size_t count;
    bool is_full;
    int32_t epoch_seen;
};

void compaction_keep_done(struct compaction_keep *k);
/* Forget all. */
void compaction_keep_clear(struct compaction_keep *k);
/* First all batches are shown, in order ... Returns 0 or -BROOK_E_NOMEM. */
int compaction_keep_learn(struct compaction_keep *k, const struct batch_header *h);
/* ... then the same again: does the header stay? */
bool compaction_keep_header(struct compaction_keep *k, const struct batch_header *h, int64_t now_ms);
#endif
