/* Kafka's `.snapshot` of a segment's directory: what each producer had sent up to the offset in the file's
 * name. FORMAT.md draws it. Knows the bytes; what they mean is producer_state.h's. Stateless, any thread.
 */
#ifndef BROOK_STORAGE_PRODUCER_SNAPSHOT_H
#define BROOK_STORAGE_PRODUCER_SNAPSHOT_H

#include <stddef.h>
#include <stdint.h>

struct producer_snapshot_entry {
    int64_t producer_id;
    int16_t producer_epoch;
    int32_t last_sequence;
    int64_t last_offset;
    int32_t offset_delta; /* of the last batch */
    int64_t timestamp;    /* ms */
    int32_t coordinator_epoch;
    int64_t transaction_first_offset; /* -1: none is open */
};

/* Check a whole file's bytes: version, checksum, count. Returns 0 and the number of entries;
 * -BROOK_E_UNSUPPORTED_VERSION; -BROOK_E_INVALID. */
int producer_snapshot_check(const void *data, size_t bytes, size_t *ret_count);
/* The entry at `place`, below the count of a file that was checked. */
void producer_snapshot_read(const void *data, size_t place, struct producer_snapshot_entry *ret_entry);


/* Bytes of a whole file of `count` entries. */
size_t producer_snapshot_bytes(size_t count);
/* Fill the entry at `place` of a file that is being made; when all are there, finish it. */
void producer_snapshot_write(void *data, size_t place, const struct producer_snapshot_entry *entry);
void producer_snapshot_finish(void *data, size_t count);

/* ---- aborted transactions ---------------------------------------------------------------------------- */

/* An entry of a `.txnindex`, 34 bytes: version 0 i16, then these. */
#define ABORTED_TRANSACTION_BYTES 34
struct aborted_transaction {
    int64_t producer_id;
    int64_t first_offset;
    int64_t last_offset;
    int64_t last_stable_offset;
};
/* Returns 0 or -BROOK_E_UNSUPPORTED_VERSION. */
int aborted_transaction_read(const uint8_t entry[ABORTED_TRANSACTION_BYTES],
                             struct aborted_transaction *ret_transaction);
#endif
