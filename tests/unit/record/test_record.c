#include "tests/golden/vectors.h"
#include "tests/support/guard.h"
#include "tests/support/suite.h"

#include "proto/base/err.h"
#include "proto/record/record.h"

#define BYTES(text) text, sizeof text - 1

/* Walks the bytes to their end or first error, and touches everything that the walker hands out. Returns the
 * records seen or the error. */
static int walk(const struct batch_header *h, const uint8_t *data, size_t bytes)
{
    struct record_walker w;
    struct record r;
    int count = 0;
    int result = record_walker_init(&w, h, data, bytes);
    while (result == 0 && (result = record_walker_next(&w, &r)) == 0) {
        count++;
        volatile uint8_t touched = 0;
        for (int32_t i = 0; i < r.key_bytes; i++)
            touched ^= ((const uint8_t *)r.key)[i];
        for (int32_t i = 0; i < r.value_bytes; i++)
            touched ^= ((const uint8_t *)r.value)[i];
        struct record_header header;
        int32_t headers = 0;
        const uint8_t *at = r.headers;
        int more;
        while ((more = record_next_header(&r, &at, &header)) == 0) {
            headers++;
            ck_assert_ptr_nonnull(header.key);
            ck_assert_int_ge(header.key_bytes, 0);
            ck_assert_int_ge(header.value_bytes, 0);
            for (int32_t i = 0; i < header.value_bytes; i++)
                touched ^= ((const uint8_t *)header.value)[i];
        }
        ck_assert_int_eq(more, -BROOK_E_AGAIN);
        ck_assert_int_eq(headers, r.headers_count);
        ck_assert_ptr_eq(at, r.headers_end);
    }
    return result == -BROOK_E_AGAIN ? count : result;
}

static int walk_one(const char *bytes, size_t count)
{
    const struct batch_header h = {.records_count = 1, .last_offset_delta = 5};
    struct guard guard;
    guard_init(&guard, count);
    int r = walk(&h, guard_copy(&guard, bytes, count), count);
    guard_done(&guard);
    return r;
}

START_TEST(good_records_are_seen)
{
    ck_assert_int_eq(walk_one(BYTES("\x0c\0\0\0\1\1\0")), 1);     /* the smallest */
    ck_assert_int_eq(walk_one(BYTES("\x0c\0\0\x0a\1\1\0")), 1);   /* the last delta of the range */
    ck_assert_int_eq(walk_one(BYTES("\x0c\0\0\0\0\0\0")), 1);     /* empty key and value */
    ck_assert_int_eq(walk_one(BYTES("\x0c\7\0\0\1\1\0")), 1);     /* attributes mean nothing yet */
    ck_assert_int_eq(walk_one(BYTES("\x10\0\0\0\1\1\2\0\1")), 1); /* a header "" = null */
    ck_assert_int_eq(walk_one(BYTES("\x0e\0\0\0\1\1\x80\0")), 1); /* zero in two bytes */
}
END_TEST

START_TEST(bad_records_are_refused)
{
    static const struct {
        const char *what, *bytes;
        size_t count;
    } bad[] = {
        {"length negative", BYTES("\x01\0\0\0\1\1\0")},
        {"length too small", BYTES("\x0a\0\0\0\1\1\0")},
        {"length beyond the end", BYTES("\x0e\0\0\0\1\1\0")},
        {"length that never ends", BYTES("\xff\xff\xff\xff\xff\xff\xff")},
        {"headers count cut in its middle", BYTES("\x0c\0\0\0\1\1\x80")},
        {"record ends before its length", BYTES("\x0e\0\0\0\1\1\0\0")},
        {"bytes behind the last record", BYTES("\x0c\0\0\0\1\1\0\0")},
        {"timestamp that never ends", BYTES("\x1e\0\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\0\0\1\1")},
        {"offset delta negative", BYTES("\x0c\0\0\x01\1\1\0")},
        {"offset delta beyond the batch", BYTES("\x0c\0\0\x0c\1\1\0")},
        {"key length below -1", BYTES("\x0c\0\0\0\3\1\0")},
        {"key beyond the record", BYTES("\x0c\0\0\0\x06\1\0")},
        {"key of 2 GiB", BYTES("\x14\0\0\0\xfe\xff\xff\xff\x0f\1\0")},
        {"value length below -1", BYTES("\x0c\0\0\0\1\3\0")},
        {"value beyond the record", BYTES("\x0c\0\0\0\1\4\0")},
        {"headers count negative", BYTES("\x0c\0\0\0\1\1\1")},
        {"header missing", BYTES("\x0c\0\0\0\1\1\2")},
        {"2^31 - 1 headers", BYTES("\x18\0\0\0\1\1\xfe\xff\xff\xff\x0f\0\1")},
        {"header key null", BYTES("\x10\0\0\0\1\1\2\1\1")},
        {"header value beyond the record", BYTES("\x10\0\0\0\1\1\2\0\2")},
        {"header value below -1", BYTES("\x10\0\0\0\1\1\2\0\3")},
        {"bytes behind the last header", BYTES("\x12\0\0\0\1\1\2\0\1\0")},
    };
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++)
        ck_assert_msg(walk_one(bad[i].bytes, bad[i].count) == -BROOK_E_BAD_BATCH, "%s", bad[i].what);
}
END_TEST

START_TEST(count_that_can_not_be_is_refused_at_once)
{
    static const char bytes[] = "\x0c\0\0\0\1\1\0";
    struct batch_header h = {.records_count = 2};
    ck_assert_int_eq(walk(&h, (const uint8_t *)bytes, 7), -BROOK_E_BAD_BATCH);
    h.records_count = INT32_MAX;
    ck_assert_int_eq(walk(&h, (const uint8_t *)bytes, 7), -BROOK_E_BAD_BATCH);
    h.records_count = -1;
    ck_assert_int_eq(walk(&h, (const uint8_t *)bytes, 7), -BROOK_E_BAD_BATCH);
    h.records_count = 0;
    ck_assert_int_eq(walk(&h, (const uint8_t *)bytes, 7), -BROOK_E_BAD_BATCH);
    ck_assert_int_eq(walk(&h, (const uint8_t *)bytes, 0), 0);
}
END_TEST

START_TEST(offsets_may_have_gaps_but_must_rise)
{
    const struct batch_header h = {.base_offset = 1000, .records_count = 2, .last_offset_delta = 9};
    static const char gap[] = "\x0c\0\0\x04\1\1\0\x0c\0\0\x12\1\1\0",
                      same[] = "\x0c\0\0\4\1\1\0\x0c\0\0\4\1\1\0";
    struct record_walker w;
    struct record r;
    ck_assert_int_eq(record_walker_init(&w, &h, gap, 14), 0);
    ck_assert_int_eq(record_walker_next(&w, &r), 0);
    ck_assert_int_eq(r.offset, 1002);
    ck_assert_int_eq(record_walker_next(&w, &r), 0);
    ck_assert_int_eq(r.offset, 1009);
    ck_assert_int_eq(record_walker_next(&w, &r), -BROOK_E_AGAIN);
    ck_assert_int_eq(walk(&h, (const uint8_t *)same, 14), -BROOK_E_BAD_BATCH);
}
END_TEST

START_TEST(log_append_time_is_the_batches)
{
    const struct batch_header h = {
        .records_count = 1, .attributes = BATCH_LOG_APPEND_TIME, .base_timestamp = 3, .max_timestamp = 99};
    struct record_walker w;
    struct record r;
    ck_assert_int_eq(record_walker_init(&w, &h, "\x0c\0\x08\0\1\1\0", 7), 0);
    ck_assert_int_eq(record_walker_next(&w, &r), 0);
    ck_assert_int_eq(r.timestamp, 99);
}
END_TEST

START_TEST(failed_walk_leaves_the_record_untouched)
{
    const struct batch_header h = {.records_count = 1};
    struct record_walker w;
    struct record r = {.offset = 42};
    ck_assert_int_eq(record_walker_init(&w, &h, "\x0c\0\0\0\1\1\1", 7), 0);
    ck_assert_int_eq(record_walker_next(&w, &r), -BROOK_E_BAD_BATCH);
    ck_assert_int_eq(r.offset, 42);
    ck_assert_int_eq(record_walker_next(&w, &r), -BROOK_E_BAD_BATCH);
}
END_TEST

START_TEST(every_truncation_is_refused_within_bounds)
{
    uint8_t batch[GOLDEN_BYTES_MAX];
    size_t n = golden_bytes(GOLDEN_PLAIN, batch);
    struct batch_header h;
    struct guard guard;
    ck_assert_int_eq(batch_read_header(batch, n, &h), 0);
    guard_init(&guard, n);
    for (size_t cut = 0; cut < n - 61; cut++)
        ck_assert_int_eq(walk(&h, guard_copy(&guard, batch + 61, cut), cut), -BROOK_E_BAD_BATCH);
    ck_assert_int_eq(walk(&h, guard_copy(&guard, batch + 61, n - 61), n - 61), 2);
    guard_done(&guard);
}
END_TEST

START_TEST(every_changed_byte_stays_within_bounds)
{
    uint8_t batch[GOLDEN_BYTES_MAX];
    size_t n = golden_bytes(GOLDEN_PLAIN, batch);
    struct batch_header h;
    struct guard guard;
    ck_assert_int_eq(batch_read_header(batch, n, &h), 0);
    guard_init(&guard, n);
    uint8_t *data = guard_copy(&guard, batch + 61, n - 61);
    for (size_t at = 0; at < n - 61; at++)
        for (int change = 1; change < 256; change++) {
            data[at] ^= (uint8_t)change;
            int r = walk(&h, data, n - 61);
            ck_assert(r == 2 || r == -BROOK_E_BAD_BATCH);
            data[at] ^= (uint8_t)change;
        }
    guard_done(&guard);
}
END_TEST

SUITE_MAIN("record/record", SUITE_TEST(good_records_are_seen), SUITE_TEST(bad_records_are_refused),
           SUITE_TEST(count_that_can_not_be_is_refused_at_once),
           SUITE_TEST(offsets_may_have_gaps_but_must_rise), SUITE_TEST(log_append_time_is_the_batches),
           SUITE_TEST(failed_walk_leaves_the_record_untouched),
           SUITE_TEST(every_truncation_is_refused_within_bounds),
           SUITE_TEST(every_changed_byte_stays_within_bounds))
