/* Walk records and touch every byte that the walker hands out; shared by the targets that end there. */
#ifndef BROOK_TESTS_FUZZ_WALK_H
#define BROOK_TESTS_FUZZ_WALK_H

#include "proto/base/err.h"
#include "proto/record/record.h"
#include "tests/fuzz/target.h"

static inline unsigned touch(const void *data, int32_t bytes)
{
    unsigned sum = 0;
    FUZZ_CHECK(bytes >= 0 && (data || bytes == 0));
    for (int32_t i = 0; i < bytes; i++)
        sum += ((const uint8_t *)data)[i];
    return sum;
}

static inline unsigned touch_record(const struct record *r)
{
    struct record_header h;
    const uint8_t *at = r->headers;
    unsigned sum = touch(r->key, r->key_bytes) + touch(r->value, r->value_bytes);
    int32_t headers = 0;
    int result;
    while ((result = record_next_header(r, &at, &h)) == 0) {
        sum += touch(h.key, h.key_bytes) + touch(h.value, h.value_bytes);
        headers++;
    }
    FUZZ_CHECK(result == -BROOK_E_AGAIN && headers == r->headers_count && at == r->headers_end);
    return sum;
}

static inline void walk_records(const struct batch_header *h, const void *data, size_t bytes)
{
    struct record_walker w;
    struct record r;
    int64_t offset = h->base_offset - 1;
    int32_t count = 0;
    volatile unsigned sum = 0;
    int result = record_walker_init(&w, h, data, bytes);
    while (result == 0 && (result = record_walker_next(&w, &r)) == 0) {
        FUZZ_CHECK(r.offset > offset && r.offset <= batch_last_offset(h));
        offset = r.offset;
        count++;
        sum += touch_record(&r);
    }
    FUZZ_CHECK(result == -BROOK_E_AGAIN ? count == h->records_count : result == -BROOK_E_BAD_BATCH);
}
#endif
