/* Record batch, format v2: header, checks, and the writer.
 *
 * The format is Apache Kafka's (magic 2); broker/storage/FORMAT.md draws it. A batch travels and lies on disk
 * as the same bytes: the broker changes only base offset and leader epoch, which the checksum leaves out (and, where a
 * topic asks for it, the time of all its records, with the checksum).
 * Nothing here does I/O, keeps global state, or knows the network. Any thread, one writer per thread.
 *
 *      0  base offset        i64   |  21  attributes        i16  |  51  producer epoch  i16
 *      8  batch length       i32   |  23  last offset delta i32  |  53  base sequence   i32
 *     12  leader epoch       i32   |  27  base timestamp    i64  |  57  records count   i32
 *     16  magic (2)          i8    |  35  max timestamp     i64  |  61  records ...
 *     17  CRC-32C of 21..end u32   |  43  producer id       i64  |
 */
#ifndef BROOK_RECORD_BATCH_H
#define BROOK_RECORD_BATCH_H

#include "proto/record/codec.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BATCH_HEADER_BYTES 61
#define BATCH_MAGIC 2
/* Bytes in front of what `batch length` counts. */
#define BATCH_PREFIX_BYTES 12
#define BATCH_RECORDS_MAX 1000000
/* The smallest record: null key, null value, no headers, each field in one byte. */
#define RECORD_BYTES_MIN 7

enum batch_attribute {
    BATCH_CODEC_MASK = 0x07,
    BATCH_LOG_APPEND_TIME = 0x08,
    BATCH_TRANSACTIONAL = 0x10,
    BATCH_CONTROL = 0x20,
    BATCH_DELETE_HORIZON = 0x40
};

/* The header in host order. `total_bytes` = 12 + batch length. */
struct batch_header {
    int64_t base_offset;
    size_t total_bytes;
    int32_t leader_epoch;
    uint32_t crc;
    int16_t attributes;
    int32_t last_offset_delta;
    int64_t base_timestamp;
    int64_t max_timestamp;
    int64_t producer_id;
    int16_t producer_epoch;
    int32_t base_sequence;
    int32_t records_count;
};

static inline int64_t batch_last_offset(const struct batch_header *h)
{
    return h->base_offset + h->last_offset_delta;
}

/* Read the header of the batch at `data`, of which `bytes` are at hand.
 * Returns 0; -BROOK_E_AGAIN when fewer than BATCH_HEADER_BYTES are at hand or the batch goes on behind `bytes`
 * (with at least the header at hand, *ret_header is filled in that case too); -BROOK_E_UNSUPPORTED_FORMAT for
 * magic 0 or 1; -BROOK_E_BAD_BATCH for a length below 49, an unknown magic, a negative base offset, last
 * offset delta or records count, or a last offset at the end of 64 bits (so that "last offset + 1" is always
 * good). A run of zero bytes is a BAD_BATCH. */
int batch_read_header(const void *data, size_t bytes, struct batch_header *ret_header);

/* Check the batch's checksum; all of it (h->total_bytes) must be at `data`.
 * Returns 0 or -BROOK_E_CORRUPT_BATCH. */
int batch_check_crc(const void *data, const struct batch_header *h);

/* What a producer may send: CRC right, known attribute bits only, none of control, transactional, delete
 * horizon, log append time; 1 <= records count <= BATCH_RECORDS_MAX, last offset delta = count - 1, known
 * codec, producer id, epoch and sequence all there or all -1, total size at most `message_bytes_max`. Bytes
 * behind the batch are not looked at: compare `bytes` with total_bytes. Fills *ret_header or, on failure, a
 * sentence in *error (may be NULL).
 * Returns 0, -BROOK_E_BAD_BATCH, -BROOK_E_CORRUPT_BATCH, -BROOK_E_MESSAGE_TOO_LARGE,
 * -BROOK_E_UNSUPPORTED_CODEC or -BROOK_E_UNSUPPORTED_FORMAT. */
struct brook_error;
int batch_check_produced(const void *data, size_t bytes, size_t message_bytes_max,
                         struct batch_header *ret_header, struct brook_error *error);

/* Set the two fields that the checksum does not cover. */
void batch_patch(void *data, int64_t base_offset, int32_t leader_epoch);

/* LogAppendTime: all its records have the time `now_ms` from here on. A new max timestamp, the attribute, and the checksum
 * over all of the batch (h->total_bytes at `data`); in *h too. */
void batch_stamp(void *data, struct batch_header *h, int64_t now_ms);

/* Write a whole header in front of the records that lie behind it already: `h` as it is, but for `crc`, which
 * is computed. For who makes batches of other kinds, or changes one (a new max timestamp needs a new CRC). */
void batch_write_header(void *data, const struct batch_header *h);

/* ---- writing ----------------------------------------------------------------------------------------- */

struct record_header { /* one header of a record */
    const void *key;   /* UTF-8, not NULL */
    const void *value; /* NULL: null */
    int32_t key_bytes;
    int32_t value_bytes;
};

/* What a record holds. Borrowed pointers; NULL key or value means null, which is not the same as empty. */
struct record_view {
    const void *key;
    const void *value;
    const struct record_header *headers;
    int32_t key_bytes;
    int32_t value_bytes;
    int32_t headers_count;
    int64_t timestamp; /* ms */
};

/* Writes records one by one into a buffer of the caller's, header space in front. Plain data: it may be
 * copied and thrown away at any time; `buffer` is borrowed. */
struct batch_writer {
    uint8_t *buffer;
    size_t capacity;
    size_t bytes; /* written so far, header included */
    int64_t base_timestamp;
    int64_t max_timestamp;
    int32_t records_count;
};

/* Room that a record needs at most in a batch (an upper bound that costs no loop over its bytes).
 * 64-bit, so that absurd lengths do not wrap. */
size_t record_bytes_max(const struct record_view *record);

/* `capacity` >= BATCH_HEADER_BYTES. */
void batch_writer_init(struct batch_writer *w, void *buffer, size_t capacity);
/* Append one record. Returns 0, or -BROOK_E_AGAIN when record_bytes_max() of it is more than the room left or
 * the count is at its limit (the batch is as before then). */
int batch_writer_add(struct batch_writer *w, const struct record_view *record);
/* Fill in the header and the checksum: an uncompressed batch with base offset 0 and leader epoch -1, ready
 * to send. `producer_id` -1 for none (then pass -1 for epoch and sequence). Needs at least one record.
 * Returns the batch's total bytes. */
size_t batch_writer_finish(struct batch_writer *w, int64_t producer_id, int16_t producer_epoch,
                           int32_t base_sequence);
/* The same, with the records compressed into `to` (of `to_capacity` bytes, not overlapping; codec_bound() of
 * the records plus BATCH_HEADER_BYTES always suffices). Returns 0 and *ret_bytes, or an error of codec.h. */
int batch_writer_finish_compressed(struct batch_writer *w, struct codec *codec, enum codec_id id,
                                   int64_t producer_id, int16_t producer_epoch, int32_t base_sequence,
                                   void *to, size_t to_capacity, size_t *ret_bytes);
#endif
