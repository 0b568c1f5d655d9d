#include "tests/support/guard.h"
#include "tests/support/suite.h"

#include "proto/base/err.h"
#include "proto/record/record.h"

#include <stdlib.h>
#include <string.h>

static const struct record_view tiny = {.timestamp = 5};

static void assert_one_record(const void *batch, size_t bytes, const struct record_view *wanted)
{
    struct batch_header h;
    struct record_walker w;
    struct record r;
    ck_assert_int_eq(batch_check_produced(batch, bytes, bytes, &h, NULL), 0);
    ck_assert_uint_eq(h.total_bytes, bytes);
    ck_assert_int_eq(record_walker_init(&w, &h, (const uint8_t *)batch + 61, bytes - 61), 0);
    ck_assert_int_eq(record_walker_next(&w, &r), 0);
    ck_assert_int_eq(r.value_bytes, wanted->value_bytes);
    ck_assert_int_eq(r.timestamp, wanted->timestamp);
    if (wanted->value_bytes > 0)
        ck_assert_mem_eq(r.value, wanted->value, (size_t)wanted->value_bytes);
    ck_assert_int_eq(record_walker_next(&w, &r), -BROOK_E_AGAIN);
}

/* The length's own size is guessed from an upper bound: every size around its steps must come out right. */
START_TEST(records_of_every_size_are_whole)
{
    static uint8_t value[20000];
    for (size_t i = 0; i < sizeof value; i++)
        value[i] = (uint8_t)(i * 13);
    struct guard guard;
    guard_init(&guard, 32768);
    for (int32_t n = 0; n <= (int32_t)sizeof value; n += n < 300 || (n > 8000 && n < 8300) ? 1 : 97) {
        const struct record_view r = {.value = value, .value_bytes = n, .timestamp = n};
        size_t room = BATCH_HEADER_BYTES + record_bytes_max(&r);
        uint8_t *buffer = guard_room(&guard, room);
        struct batch_writer w;
        batch_writer_init(&w, buffer, room);
        ck_assert_int_eq(batch_writer_add(&w, &r), 0);
        ck_assert_uint_le(w.bytes, room);
        assert_one_record(buffer, batch_writer_finish(&w, -1, -1, -1), &r);
    }
    guard_done(&guard);
}
END_TEST

START_TEST(bound_holds_for_many_headers)
{
    static const char key[100];
    struct record_header headers[300];
    static uint8_t buffer[1 << 16];
    for (int i = 0; i < 300; i++)
        headers[i] = (struct record_header){key, i % 2 ? key : NULL, i % 100, i % 2 ? 64 : 0};
    for (int32_t count = 0; count <= 300; count++) {
        const struct record_view r = {.headers = headers, .headers_count = count};
        struct batch_writer w;
        batch_writer_init(&w, buffer, sizeof buffer);
        ck_assert_int_eq(batch_writer_add(&w, &r), 0);
        ck_assert_uint_le(w.bytes - BATCH_HEADER_BYTES, record_bytes_max(&r));
        ck_assert_uint_ge(w.bytes - BATCH_HEADER_BYTES + (size_t)count * 9 + 36, record_bytes_max(&r));
    }
}
END_TEST

START_TEST(record_without_room_leaves_the_batch_as_it_was)
{
    static const uint8_t value[100];
    const struct record_view r = {.value = value, .value_bytes = 100};
    uint8_t buffer[512];
    struct batch_writer w;
    batch_writer_init(&w, buffer, sizeof buffer);
    while (batch_writer_add(&w, &r) == 0)
        ;
    ck_assert_int_ge(w.records_count, 3);
    struct batch_writer before = w;
    ck_assert_int_eq(batch_writer_add(&w, &r), -BROOK_E_AGAIN);
    ck_assert_mem_eq(&w, &before, sizeof w);
    ck_assert_int_eq(batch_writer_add(&w, &tiny), 0);
    struct batch_header h;
    size_t n = batch_writer_finish(&w, -1, -1, -1);
    ck_assert_int_eq(batch_check_produced(buffer, n, n, &h, NULL), 0);
    ck_assert_int_eq(h.records_count, before.records_count + 1);
}
END_TEST

START_TEST(absurd_lengths_fit_nowhere)
{
    uint8_t buffer[256];
    struct batch_writer w;
    batch_writer_init(&w, buffer, sizeof buffer);
    const struct record_header bad_key = {"k", NULL, -1, 0}, bad_value = {"k", "v", 1, INT32_MIN};
    const struct record_view records[] = {
        {.key = "k", .key_bytes = -1},
        {.value = "v", .value_bytes = INT32_MIN},
        {.key = "k", .key_bytes = INT32_MAX, .value = "v", .value_bytes = INT32_MAX},
        {.headers = &bad_key, .headers_count = 1},
        {.headers = &bad_value, .headers_count = 1},
    };
    for (unsigned i = 0; i < 5; i++) {
        ck_assert_uint_ge(record_bytes_max(&records[i]), INT32_MAX);
        ck_assert_int_eq(batch_writer_add(&w, &records[i]), -BROOK_E_AGAIN);
    }
    ck_assert_int_eq(w.records_count, 0);
}
END_TEST

START_TEST(batch_takes_no_more_records_than_the_limit)
{
    size_t room = (size_t)BATCH_RECORDS_MAX * 16;
    uint8_t *buffer = malloc(room);
    struct batch_writer w;
    ck_assert_ptr_nonnull(buffer);
    batch_writer_init(&w, buffer, room);
    for (int i = 0; i < BATCH_RECORDS_MAX; i++)
        ck_assert_int_eq(batch_writer_add(&w, &tiny), 0);
    ck_assert_int_eq(batch_writer_add(&w, &tiny), -BROOK_E_AGAIN);
    size_t n = batch_writer_finish(&w, -1, -1, -1);
    struct batch_header h;
    ck_assert_int_eq(batch_check_produced(buffer, n, n, &h, NULL), 0);
    ck_assert_int_eq(h.records_count, BATCH_RECORDS_MAX);
    free(buffer);
}
END_TEST

START_TEST(timestamps_are_the_first_and_the_largest)
{
    static const int64_t times[] = {100, -5, INT64_MAX, INT64_MIN, 7};
    uint8_t buffer[512];
    struct batch_writer w;
    batch_writer_init(&w, buffer, sizeof buffer);
    for (unsigned i = 0; i < 5; i++)
        ck_assert_int_eq(batch_writer_add(&w, &(struct record_view){.timestamp = times[i]}), 0);
    size_t n = batch_writer_finish(&w, -1, -1, -1);
    struct batch_header h;
    struct record_walker walker;
    struct record r;
    ck_assert_int_eq(batch_read_header(buffer, n, &h), 0);
    ck_assert_int_eq(h.base_timestamp, 100);
    ck_assert_int_eq(h.max_timestamp, INT64_MAX);
    ck_assert_int_eq(record_walker_init(&walker, &h, buffer + 61, n - 61), 0);
    for (unsigned i = 0; i < 5; i++) {
        ck_assert_int_eq(record_walker_next(&walker, &r), 0);
        ck_assert_int_eq(r.timestamp, times[i]);
    }
}
END_TEST

START_TEST(finished_batch_names_its_producer)
{
    uint8_t buffer[128];
    struct batch_writer w;
    struct batch_header h;
    batch_writer_init(&w, buffer, sizeof buffer);
    ck_assert_int_eq(batch_writer_add(&w, &tiny), 0);
    size_t n = batch_writer_finish(&w, INT64_MAX, INT16_MAX, INT32_MAX);
    ck_assert_int_eq(batch_check_produced(buffer, n, n, &h, NULL), 0);
    ck_assert_int_eq(h.base_offset, 0);
    ck_assert_int_eq(h.leader_epoch, -1);
    ck_assert_int_eq(h.producer_id, INT64_MAX);
    ck_assert_int_eq(h.producer_epoch, INT16_MAX);
    ck_assert_int_eq(h.base_sequence, INT32_MAX);
}
END_TEST

START_TEST(compressing_into_too_little_room_fails_and_may_be_tried_again)
{
    static const uint8_t value[5000];
    uint8_t plain[8192], packed[8192];
    struct batch_writer w;
    struct codec *codec;
    size_t n = 1;
    ck_assert_int_eq(codec_new(&codec), 0);
    batch_writer_init(&w, plain, sizeof plain);
    ck_assert_int_eq(batch_writer_add(&w, &(struct record_view){.value = value, .value_bytes = 5000}), 0);
    for (int id = CODEC_NONE; id <= CODEC_ZSTD; id++) {
        for (size_t room = 0; room <= 63; room++)
            ck_assert_int_eq(
                batch_writer_finish_compressed(&w, codec, (enum codec_id)id, -1, -1, -1, packed, room, &n),
                -BROOK_E_AGAIN);
        ck_assert_uint_eq(n, 1);
        ck_assert_int_eq(
            batch_writer_finish_compressed(&w, codec, (enum codec_id)id, 1, 2, 3, packed, sizeof packed, &n),
            0);
        struct batch_header h;
        ck_assert_int_eq(batch_check_produced(packed, n, n, &h, NULL), 0);
        ck_assert_int_eq(h.attributes, id);
        ck_assert_int_eq(h.producer_epoch, 2);
        n = 1;
    }
    codec_free(codec);
}
END_TEST

SUITE_MAIN("record/batch_writer", SUITE_TEST(records_of_every_size_are_whole),
           SUITE_TEST(bound_holds_for_many_headers),
           SUITE_TEST(record_without_room_leaves_the_batch_as_it_was), SUITE_TEST(absurd_lengths_fit_nowhere),
           SUITE_TEST_SLOW(batch_takes_no_more_records_than_the_limit, 60),
           SUITE_TEST(timestamps_are_the_first_and_the_largest),
           SUITE_TEST(finished_batch_names_its_producer),
           SUITE_TEST(compressing_into_too_little_room_fails_and_may_be_tried_again))
