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
