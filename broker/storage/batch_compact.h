/* Compaction of one batch: which of its records stay, and the batch that holds just those.
 *
 * Kept: the last record of each key, as far as the map knows; records at or above the map's end; records
 * without a key, which nothing ever replaces. A tombstone (null value) that is the last of its key stays until
 * the batch's delete horizon has passed, which the first compaction of the batch sets. Offsets, timestamps,
 * order and the batch's own range of offsets stay as they are. Control batches and those of transactions are
 * left alone: without the outcome of the transaction nobody knows what its records replace. Knows bytes, not
 * files. One thread.
 */
#ifndef BROOK_STORAGE_BATCH_COMPACT_H
#define BROOK_STORAGE_BATCH_COMPACT_H

#include "broker/storage/key_map.h"
#include "proto/record/batch.h"

struct batch_compact_rule {
    const struct key_map *map;
    int64_t map_end; /* the map has seen what is below */
    int64_t now_ms;
    int64_t delete_retention_ms;
    size_t expanded_bytes_max;
};

enum batch_verdict {
    BATCH_STAYS,    /* as the bytes it was */
    BATCH_SHRINKS,  /* to the batch that was made */
    BATCH_VANISHES, /* no record is left; batch_write_empty() keeps what its header tells, where that is wanted */
};

struct batch_compactor;

/* Returns 0 or -BROOK_E_NOMEM. */
int batch_compactor_new(struct batch_compactor **ret_compactor);
void batch_compactor_free(struct batch_compactor *c);

/* Whether compaction looks into the batch at all. */
bool batch_is_compacted(const struct batch_header *h);

/* Put the batch's keys below `end_offset` into the map. `batch` is whole and its checksum right. Returns 0 and
 * the offset behind the last record put (h's last + 1 when that were all); a batch that can not be expanded or
 * makes no sense puts nothing, and stays as it is. Or -BROOK_E_NOMEM. */
int batch_put_keys(struct batch_compactor *c, const void *batch, const struct batch_header *h,
                   struct key_map *map, int64_t start_offset, int64_t end_offset, size_t expanded_bytes_max,
                   int64_t *ret_end);

/* Judge the batch. With BATCH_SHRINKS *ret_data and *ret_header are the new one, good until the next call.
 * *ret_removed counts the records that go. Returns 0 or -BROOK_E_NOMEM. */
int batch_compact(struct batch_compactor *c, const void *batch, const struct batch_header *h,
                  const struct batch_compact_rule *rule, enum batch_verdict *ret_verdict,
                  const void **ret_data, struct batch_header *ret_header, int64_t *ret_removed);

/* A batch without records in place of `h`'s: same offsets, epoch, producer and sequence. */
void batch_write_empty(const struct batch_header *h, uint8_t to[BATCH_HEADER_BYTES],
                       struct batch_header *ret_header);
#endif
