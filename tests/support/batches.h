/* Record batches for tests: built by the real writer, small, told apart by what is in them. */
#ifndef BROOK_TESTS_BATCHES_H
#define BROOK_TESTS_BATCHES_H

#include "broker/storage/log.h"
#include "proto/record/batch.h"

#include <stdint.h>

/* A batch of `records_count` records at `timestamp`, timestamp + step, ..., each with a value of
 * `value_bytes` bytes made from `tag`. Owns its memory (batches_free). */
struct log_batch batches_make(int records_count, int64_t timestamp, int64_t step, size_t value_bytes,
                              uint32_t tag);
/* The same, compressed. */
struct log_batch batches_make_compressed(enum codec_id codec, int records_count, int64_t timestamp,
                                         int64_t step, size_t value_bytes, uint32_t tag);
/* From hex digits, aborts on anything else. */
struct log_batch batches_from_hex(const char *hex);
/* Set the base offset in bytes and header. */
void batches_place(struct log_batch *b, int64_t base_offset, int32_t leader_epoch);
/* Make it a batch of this producer; the checksum follows. */
void batches_sign(struct log_batch *b, int64_t producer_id, int16_t producer_epoch, int32_t base_sequence);
void batches_free(struct log_batch *b);
#endif
