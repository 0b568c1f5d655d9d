#include "client/consumer_epochs.h"
#include "client/consumer_run.h"
#include "proto/base/err.h"
#include "proto/base/pool.h"
#include "tests/support/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOG_BYTES (4 << 20)

static struct codec *codec;
static struct pool *pool;
static struct run_reader reader;
static struct record_run run;
static uint8_t *log_data;
static size_t log_bytes;
static struct read_epochs epochs;

static void setup(void)
{
    ck_assert_int_eq(codec_new(&codec), 0);
    ck_assert_int_eq(pool_new(64 << 20, 1 << 20, &pool), 0);
    reader =
        (struct run_reader){.codec = codec, .pool = pool, .expanded_bytes_max = 8 << 20, .check_crc = true};
    memset(&run, 0, sizeof run);
    read_epochs_clear(&epochs);
    log_data = malloc(LOG_BYTES);
    log_bytes = 0;
}

static void teardown(void)
{
    run_clear(&run);
    codec_free(codec);
    pool_unref(pool);
    free(log_data);
}

/* Append a batch of `count` records "v<offset>" padded to `value_bytes`. */
static uint8_t *put(int64_t base, int count, enum codec_id id, size_t value_bytes)
{
    static uint8_t plain[LOG_BYTES];
    struct batch_writer w;
    char *value = calloc(1, value_bytes + 32);
    batch_writer_init(&w, plain, sizeof plain);
    for (int i = 0; i < count; i++) {
        int n = snprintf(value, 32, "v%lld", (long long)base + i);
        if ((size_t)n > value_bytes)
            value_bytes = (size_t)n;
        struct record_view view = {
            .value = value, .value_bytes = (int32_t)value_bytes, .timestamp = 1000 + base + i};
        ck_assert_int_eq(batch_writer_add(&w, &view), 0);
    }
    free(value);
    uint8_t *at = log_data + log_bytes;
    size_t bytes;
    if (id == CODEC_NONE) {
        bytes = batch_writer_finish(&w, -1, -1, -1);
        memcpy(at, plain, bytes);
    } else {
        ck_assert_int_eq(
            batch_writer_finish_compressed(&w, codec, id, -1, -1, -1, at, LOG_BYTES - log_bytes, &bytes), 0);
    }
    batch_patch(at, base, 1);
    log_bytes += bytes;
    return at;
}

/* Read everything from `position`; returns the offset behind, or an error with the place in *ret_at. */
static int64_t read_all(int64_t position, int64_t end, int *ret_count)
{
    size_t at = 0;
    int64_t next = position, expected = position;
    *ret_count = 0;
    while (at < log_bytes) {
        size_t used = 0;
        int r = run_fill(&run, &reader, log_data + at, log_bytes - at, next, end, &used, &next);
        if (r < 0)
            return r;
        ck_assert_uint_gt(used, 0);
        struct record record;
        while (run_next(&run, &record) == 0) {
            char text[32];
            int n = snprintf(text, sizeof text, "v%lld", (long long)record.offset);
            ck_assert_int_ge(record.offset, expected);
            ck_assert(memcmp(record.value, text, (size_t)n) == 0);
            ck_assert_int_eq(record.timestamp, 1000 + record.offset);
            expected = record.offset + 1;
            ++*ret_count;
        }
        run_clear(&run);
        at += used;
    }
    return next;
}

START_TEST(records_below_the_position_are_dropped)
{
    setup();
    put(0, 10, CODEC_NONE, 4);
    put(10, 10, CODEC_NONE, 4);
    int count;
    ck_assert_int_eq(read_all(13, 20, &count), 20);
    ck_assert_int_eq(count, 7);
    ck_assert_int_eq(read_all(0, -1, &count), 20);
    ck_assert_int_eq(count, 20);
    teardown();
}
END_TEST

START_TEST(every_codec_is_expanded_also_from_its_middle)
{
    for (enum codec_id id = CODEC_NONE; id <= CODEC_ZSTD; id++) {
        setup();
        for (int i = 0; i < 40; i++)
            put(i * 100, 100, id, 200);
        int count;
        ck_assert_int_eq(read_all(1250, 4000, &count), 4000);
        ck_assert_int_eq(count, 4000 - 1250);
        teardown();
    }
}
END_TEST

START_TEST(a_batch_that_expands_too_far_is_refused_in_bounds)
{
    for (enum codec_id id = CODEC_GZIP; id <= CODEC_ZSTD; id++) {
        setup();
        reader.expanded_bytes_max = 100000;
        put(0, 10, id, 200000);
        size_t used;
        int64_t next;
        ck_assert_int_eq(run_fill(&run, &reader, log_data, log_bytes, 0, -1, &used, &next),
                         -BROOK_E_EXPANDS_TOO_FAR);
        ck_assert_int_eq(next, 0);
        ck_assert_uint_eq(pool_bytes_in_use(pool), 0);
        teardown();
    }
}
END_TEST

START_TEST(damage_anywhere_in_a_batch_is_found_and_what_lies_before_is_read)
{
    setup();
    put(0, 5, CODEC_NONE, 4);
    uint8_t *second = put(5, 5, CODEC_NONE, 4);
    size_t end = log_bytes;
    uint8_t *third = put(10, 1, CODEC_NONE, 4);
    for (uint8_t *p = second; p < third; p++) {
        if (p >= second + 12 && p < second + 16)
            continue; /* the leader epoch means nothing to a reader */
        if (p >= second && p < second + 8 && p - second == 7)
            continue; /* a base offset a little off can not be told from a compacted log */
        *p ^= 0x80;
        size_t used;
        int64_t next;
        ck_assert_int_eq(run_fill(&run, &reader, log_data, end, 0, 11, &used, &next), 0);
        ck_assert_uint_eq(run.count, 1);
        ck_assert_int_eq(next, 5);
        run_clear(&run);
        if (used < end) { /* not taken for a partial batch */
            int r = run_fill(&run, &reader, log_data + used, end - used, 5, 11, &used, &next);
            ck_assert_int_lt(r, 0);
            ck_assert_int_eq(next, 5);
        }
        run_clear(&run);
        *p ^= 0x80;
    }
    teardown();
}
END_TEST

START_TEST(a_partial_batch_at_the_end_is_left_out)
{
    setup();
    put(0, 5, CODEC_NONE, 4);
    size_t first = log_bytes;
    put(5, 5, CODEC_NONE, 4);
    for (size_t bytes = first; bytes < log_bytes; bytes++) {
        size_t used;
        int64_t next;
        struct run_extent extent;
        ck_assert_int_eq(run_fill(&run, &reader, log_data, bytes, 0, 10, &used, &next), 0);
        ck_assert_uint_eq(used, bytes);
        ck_assert_int_eq(next, 5);
        run_clear(&run);
        run_measure(log_data, bytes, 0, 10, &epochs, &extent);
        ck_assert_uint_eq(extent.whole_bytes, first);
        ck_assert_int_eq(extent.next, 5);
        ck_assert_uint_eq(extent.needed_bytes, 0);
        run_measure(log_data, bytes, 5, 10, &epochs, &extent);
        ck_assert_uint_eq(extent.skip_bytes, first);
        ck_assert_uint_eq(extent.whole_bytes, 0);
        if (bytes - first >= BATCH_HEADER_BYTES)
            ck_assert_uint_eq(extent.needed_bytes, log_bytes - first);
    }
    teardown();
}
END_TEST

START_TEST(headers_that_make_no_sense_are_reported_not_followed)
{
    setup();
    put(0, 5, CODEC_NONE, 4);
    size_t first = log_bytes;
    uint8_t *second = put(5, 5, CODEC_NONE, 4);
    struct run_extent extent;
    run_measure(log_data, log_bytes, 0, 5, &epochs, &extent); /* at or above the high watermark */
    ck_assert(extent.is_bad);
    ck_assert_int_eq(extent.next, 5);
    batch_patch(second, 3, 0); /* goes back */
    run_measure(log_data, log_bytes, 0, 100, &epochs, &extent);
    ck_assert(extent.is_bad);
    ck_assert_uint_eq(extent.whole_bytes, log_bytes);
    memset(second, 0, BATCH_HEADER_BYTES); /* a zero tail */
    run_measure(log_data, log_bytes, 0, 100, &epochs, &extent);
    ck_assert(extent.is_bad);
    size_t used;
    int64_t next;
    ck_assert_int_eq(run_fill(&run, &reader, log_data, log_bytes, 0, 100, &used, &next), 0);
    ck_assert_uint_eq(used, first);
    run_clear(&run);
    ck_assert_int_lt(run_fill(&run, &reader, log_data + used, log_bytes - used, next, 100, &used, &next), 0);
    teardown();
}
END_TEST

START_TEST(compacted_logs_have_gaps_and_empty_batches)
{
    setup();
    put(0, 5, CODEC_NONE, 4);
    put(20, 5, CODEC_NONE, 4);
    int count;
    ck_assert_int_eq(read_all(10, 100, &count), 25);
    ck_assert_int_eq(count, 5);
    struct run_extent extent;
    run_measure(log_data, log_bytes, 10, 100, &epochs, &extent);
    ck_assert_int_eq(extent.next, 25);
    ck_assert(!extent.is_bad);
    teardown();
}
END_TEST

START_TEST(long_replies_are_taken_in_pieces)
{
    setup();
    for (int i = 0; i < 100; i++)
        put(i * 50, 50, i % 3 == 0 ? CODEC_LZ4 : CODEC_NONE, 600);
    int count;
    ck_assert_int_eq(read_all(0, 5000, &count), 5000);
    ck_assert_int_eq(count, 5000);
    ck_assert_uint_eq(pool_bytes_in_use(pool), 0);
    teardown();
}
END_TEST

SUITE_MAIN("client/consumer_run", SUITE_TEST(records_below_the_position_are_dropped),
           SUITE_TEST(every_codec_is_expanded_also_from_its_middle),
           SUITE_TEST(a_batch_that_expands_too_far_is_refused_in_bounds),
           SUITE_TEST(damage_anywhere_in_a_batch_is_found_and_what_lies_before_is_read),
           SUITE_TEST(a_partial_batch_at_the_end_is_left_out),
           SUITE_TEST(headers_that_make_no_sense_are_reported_not_followed),
           SUITE_TEST(compacted_logs_have_gaps_and_empty_batches),
           SUITE_TEST(long_replies_are_taken_in_pieces))
