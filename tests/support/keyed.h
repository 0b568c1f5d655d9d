/* Records with keys, for tests of compaction: batches made of them, and all of a log's records read back. */
#ifndef BROOK_TESTS_KEYED_H
#define BROOK_TESTS_KEYED_H

#include "broker/storage/log.h"
#include "proto/record/codec.h"

#include <stdbool.h>
#include <stdint.h>

#define KEYED_TEXT_BYTES 24

/* Key and value are texts; in a read record `header` is the value of its header "h". */
struct keyed {
    int64_t offset;
    int64_t timestamp;
    bool has_key, has_value, has_header;
    char key[KEYED_TEXT_BYTES];
    char value[KEYED_TEXT_BYTES];
    char header[KEYED_TEXT_BYTES];
};

/* A record with key "k<key>" (none below 0) and value "v<value>" (a tombstone below 0). */
struct keyed keyed_record(int key, int value, int64_t timestamp);
bool keyed_equal(const struct keyed *a, const struct keyed *b);

/* A batch of them (batches_free()); `producer_id` -1 for none. */
struct log_batch keyed_batch(enum codec_id codec, const struct keyed *records, int count, int64_t producer_id,
                             int32_t sequence);

/* All records and the number of batches (whether empty or not) of the log, from its start. Checks checksums and
 * that offsets rise, or fails the test. The caller frees *ret_records. */
size_t keyed_read_all(struct log *log, struct keyed **ret_records, size_t *ret_batches, size_t *ret_empty);
#endif
