#include "broker/storage/producer_snapshot.h"

#include "proto/base/err.h"
#include "proto/record/big_endian.h"
#include "proto/record/crc32c.h"

#define VERSION 1
#define CRC_AT 2
#define CRC_FROM 6
#define COUNT_AT 6
#define ENTRIES_AT 10
#define ENTRY_BYTES 46

int producer_snapshot_check(const void *data, size_t bytes, size_t *ret_count)
{
    const uint8_t *p = data;
    if (bytes < ENTRIES_AT)
        return -BROOK_E_INVALID;
    if (be16_read(p) != VERSION)
        return -BROOK_E_UNSUPPORTED_VERSION;
    size_t count = be32_read(p + COUNT_AT);
    if ((bytes - ENTRIES_AT) % ENTRY_BYTES != 0 || (bytes - ENTRIES_AT) / ENTRY_BYTES != count ||
        crc32c(0, p + CRC_FROM, bytes - CRC_FROM) != be32_read(p + CRC_AT))
        return -BROOK_E_INVALID;
    *ret_count = count;
    return 0;
}

void producer_snapshot_read(const void *data, size_t place, struct producer_snapshot_entry *ret_entry)
{
    const uint8_t *p = (const uint8_t *)data + ENTRIES_AT + place * ENTRY_BYTES;
    *ret_entry = (struct producer_snapshot_entry){
        .producer_id = (int64_t)be64_read(p),
        .producer_epoch = (int16_t)be16_read(p + 8),
        .last_sequence = (int32_t)be32_read(p + 10),
        .last_offset = (int64_t)be64_read(p + 14),
        .offset_delta = (int32_t)be32_read(p + 22),
        .timestamp = (int64_t)be64_read(p + 26),
        .coordinator_epoch = (int32_t)be32_read(p + 34),
        .transaction_first_offset = (int64_t)be64_read(p + 38),
    };
}

size_t producer_snapshot_bytes(size_t count)
{
    return ENTRIES_AT + count * ENTRY_BYTES;
}

void producer_snapshot_write(void *data, size_t place, const struct producer_snapshot_entry *entry)
{
    uint8_t *p = (uint8_t *)data + ENTRIES_AT + place * ENTRY_BYTES;
    be64_write(p, (uint64_t)entry->producer_id);
    be16_write(p + 8, (uint16_t)entry->producer_epoch);
    be32_write(p + 10, (uint32_t)entry->last_sequence);
    be64_write(p + 14, (uint64_t)entry->last_offset);
    be32_write(p + 22, (uint32_t)entry->offset_delta);
    be64_write(p + 26, (uint64_t)entry->timestamp);
    be32_write(p + 34, (uint32_t)entry->coordinator_epoch);
    be64_write(p + 38, (uint64_t)entry->transaction_first_offset);
}

void producer_snapshot_finish(void *data, size_t count)
{
    uint8_t *p = data;
    be16_write(p, VERSION);
    be32_write(p + COUNT_AT, (uint32_t)count);
    be32_write(p + CRC_AT, crc32c(0, p + CRC_FROM, producer_snapshot_bytes(count) - CRC_FROM));
}

int aborted_transaction_read(const uint8_t entry[ABORTED_TRANSACTION_BYTES],
                             struct aborted_transaction *ret_transaction)
{
    if (be16_read(entry) != 0)
        return -BROOK_E_UNSUPPORTED_VERSION;
    *ret_transaction = (struct aborted_transaction){
        .producer_id = (int64_t)be64_read(entry + 2),
        .first_offset = (int64_t)be64_read(entry + 10),
        .last_offset = (int64_t)be64_read(entry + 18),
        .last_stable_offset = (int64_t)be64_read(entry + 26),
    };
    return 0;
}
