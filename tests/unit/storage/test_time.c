#include "tests/unit/storage/fixture.h"

#include "broker/storage/retention.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- looking up a time --------------------------------------------------------------------------------- */

static int64_t find(struct log *log, int64_t timestamp, int64_t end)
{
    int64_t offset = -1, found;
    int r = log_find_time(log, timestamp, end, 1 << 20, &offset, &found);
    ck_assert(r == 0 || r == -BROOK_E_NOT_FOUND);
    if (r == 0)
        ck_assert_int_ge(found, timestamp);
    return offset;
}

START_TEST(a_time_is_found_to_the_record_in_every_codec)
{
    struct log_settings s = fixture_settings();
    for (enum codec_id codec = CODEC_NONE; codec <= CODEC_ZSTD; codec++) {
        char name[32];
        snprintf(name, sizeof name, "codec-%d", (int)codec);
        struct log *log = fixture_open(fixture_log_path(name), &s, &fixture_clean);
        for (int i = 0; i < 60; i++) {
            struct log_batch b = codec == CODEC_NONE
                                     ? batches_make(10, T0 + 100 * i, 10, 40, (uint32_t)i)
                                     : batches_make_compressed(codec, 10, T0 + 100 * i, 10, 40, (uint32_t)i);
            int64_t base;
            ck_assert_int_eq(log_append(log, &b, 1, 0, T0, &base, NULL), 0);
            batches_free(&b);
        }
        for (int64_t t = -15; t <= 5990; t += 5)
            ck_assert_int_eq(find(log, T0 + t, INT64_MAX), t <= 0 ? 0 : (t + 9) / 10);
        ck_assert_int_eq(find(log, T0 + 5991, INT64_MAX), -1);
        ck_assert_int_eq(find(log, T0 + 1000, 100), -1); /* it lies at the end offset itself */
        ck_assert_int_eq(find(log, T0 + 990, 100), 99);
        ck_assert_int_eq(log_close(log), 0);
    }
}
END_TEST

START_TEST(equal_and_falling_timestamps_give_the_first_that_fits)
{
    const int64_t stamps[] = {5, 5, 3, 9, 9, 1, 20, 7, 20, 2, 30, -1, 0, 30};
    const int count = sizeof stamps / sizeof stamps[0];
    struct log_settings s = fixture_settings();
    const int64_t sizes[] = {200, 1000, 100000}; /* a segment per batch, a few, one */
    for (int size = 0; size < 3; size++) {
        char name[32];
        snprintf(name, sizeof name, "falling-%d", size);
        s.segment_bytes = sizes[size];
        for (int reopened = 0; reopened < 2; reopened++) {
            struct log *log = fixture_open(fixture_log_path(name), &s, &fixture_clean);
            for (int i = 0; i < count && !reopened; i++)
                fixture_append(log, 1, stamps[i] < 0 ? -1 : T0 + stamps[i], 50);
            for (int64_t t = 0; t <= 31; t++) {
                int64_t expected = -1;
                for (int i = count - 1; i >= 0; i--)
                    if (stamps[i] >= t)
                        expected = i;
                ck_assert_int_eq(find(log, T0 + t, INT64_MAX), expected);
            }
            ck_assert_int_eq(log_close(log), 0);
        }
    }
}
END_TEST

/* Of a batch with log append time the records' own stamps do not count: all have the greatest. */
START_TEST(log_append_time_counts_for_all_records_of_its_batch)
{
    struct log_settings s = fixture_settings();
    for (int codec = CODEC_NONE; codec <= CODEC_ZSTD; codec++) {
        char name[32];
        snprintf(name, sizeof name, "append-time-%d", codec);
        struct log *log = fixture_open(fixture_log_path(name), &s, &fixture_clean);
        int64_t base, offset, timestamp;
        for (int i = 0; i < 3; i++) {
            struct log_batch b = codec == CODEC_NONE ? batches_make(4, T0 + 10 * i, 1, 20, 1)
                                                     : batches_make_compressed((enum codec_id)codec, 4, T0 + 10 * i,
                                                                               1, 20, 1);
            if (i == 1) { /* in the middle, and later than what follows */
                b.header.attributes |= BATCH_LOG_APPEND_TIME;
                b.header.max_timestamp = T0 + 500;
                batch_write_header(b.data, &b.header);
            }
            ck_assert_int_eq(log_append(log, &b, 1, 0, T0, &base, NULL), 0);
            batches_free(&b);
        }
        const struct {
            int64_t time, offset, found;
        } table[] = {{0, 0, 0}, {3, 3, 3}, {4, 4, 500}, {11, 4, 500}, {500, 4, 500}};
        for (int again = 0; again < 2; again++) {
            for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
                ck_assert_int_eq(log_find_time(log, T0 + table[i].time, INT64_MAX, 1 << 20, &offset, &timestamp), 0);
                ck_assert_int_eq(offset, table[i].offset);
                ck_assert_int_eq(timestamp, T0 + table[i].found);
            }
            ck_assert_int_eq(log_find_time(log, T0 + 501, INT64_MAX, 1 << 20, &offset, &timestamp),
                             -BROOK_E_NOT_FOUND);
            ck_assert_int_eq(log_close(log), 0);
            log = fixture_open(fixture_log_path(name), &s, again ? &fixture_clean : &fixture_unclean);
        }
        ck_assert_int_eq(log_close(log), 0);
    }
}
END_TEST

START_TEST(a_batch_that_expands_too_far_is_an_error_not_a_crash)
{
    struct log_settings s = fixture_settings();
    struct log *log = fixture_open(fixture_log_path("bomb"), &s, &fixture_clean);
    struct log_batch b = batches_make_compressed(CODEC_ZSTD, 100, T0, 1, 1000, 0);
    int64_t base, offset, timestamp;
    ck_assert_int_eq(log_append(log, &b, 1, 0, T0, &base, NULL), 0);
    ck_assert_int_eq(log_find_time(log, T0, INT64_MAX, 1000, &offset, &timestamp), -BROOK_E_EXPANDS_TOO_FAR);
    ck_assert_int_eq(log_find_time(log, T0, INT64_MAX, 1 << 20, &offset, &timestamp), 0);
    batches_free(&b);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

/* ---- retention ----------------------------------------------------------------------------------------- */

#define DAY ((int64_t)24 * 3600 * 1000)

START_TEST(age_is_told_by_believable_stamps_only)
{
    const int64_t now = T0;
    const int64_t unbelievable[] = {now * 1000, now / 1000, 0, -1, INT64_MAX, INT64_MIN, now + 2 * DAY};
    for (size_t i = 0; i < sizeof unbelievable / sizeof unbelievable[0]; i++) {
        struct retention_segment s = {.bytes = 1, .max_timestamp = unbelievable[i], .appended_ms = now};
        ck_assert_int_eq(retention_stamp(&s), now);
        ck_assert(!retention_is_expired(&s, 2000, now + 2000));
        ck_assert(retention_is_expired(&s, 2000, now + 2001));
    }
    struct retention_segment old = {.bytes = 1, .max_timestamp = now - 3 * DAY, .appended_ms = now};
    ck_assert(retention_is_expired(&old, 2 * DAY, now));
    ck_assert(!retention_is_expired(&old, -1, now));
    old.bytes = 0;
    ck_assert(!retention_is_expired(&old, 2 * DAY, now));
}
END_TEST

START_TEST(retention_takes_from_the_oldest_and_keeps_the_newest)
{
    struct retention_segment s[5];
    for (int i = 0; i < 5; i++)
        s[i] = (struct retention_segment){
            .base_offset = 10 * i, .bytes = 100, .max_timestamp = T0 + i, .appended_ms = T0};
    ck_assert_uint_eq(retention_count(s, 5, -1, -1, 0, T0 + DAY), 0);
    ck_assert_uint_eq(retention_count(s, 5, 10, -1, 0, T0 + 12), 2);
    ck_assert_uint_eq(retention_count(s, 5, 10, -1, 0, T0 + DAY), 4);
    ck_assert_uint_eq(retention_count(s, 5, -1, 300, 0, T0), 2);
    ck_assert_uint_eq(retention_count(s, 5, -1, 301, 0, T0), 1);
    ck_assert_uint_eq(retention_count(s, 5, -1, 0, 0, T0), 4);
    ck_assert_uint_eq(retention_count(s, 5, -1, -1, 20, T0), 2);
    ck_assert_uint_eq(retention_count(s, 5, -1, -1, 19, T0), 1);
    ck_assert_uint_eq(retention_count(s, 5, -1, -1, 1000, T0), 4);
    s[1].max_timestamp = T0 + 1000; /* a young one shields those behind it */
    ck_assert_uint_eq(retention_count(s, 5, 10, -1, 0, T0 + 500), 1);
    ck_assert_uint_eq(retention_count(s, 0, 10, 0, 0, T0), 0);
}
END_TEST

/* The broker's clock, whatever the producer said; what was there before keeps its own. */
START_TEST(a_log_with_append_time_stamps_what_it_appends)
{
    struct log_settings s = fixture_settings();
    struct log *log = fixture_open(fixture_log_path("stamped"), &s, &fixture_clean);
    int64_t base, offset, timestamp;
    for (int i = 0; i < 4; i++) {
        s.timestamp_type = i == 0 || i == 3 ? TIMESTAMP_CREATE : TIMESTAMP_LOG_APPEND;
        log_configure(log, &s);
        struct log_batch b = i == 2 ? batches_make_compressed(CODEC_LZ4, 3, 7000, 1, 20, 1) : batches_make(3, T0 + 900 * i, 1, 20, 1);
        ck_assert_int_eq(log_append(log, &b, 1, 0, T0 + 100 * i, &base, NULL), 0);
        ck_assert_int_eq(batch_check_crc(b.data, &b.header), 0);
        ck_assert_int_eq(!!(b.header.attributes & BATCH_LOG_APPEND_TIME), i == 1 || i == 2);
        struct batch_header stored = fixture_read_first(log, base);
        ck_assert_uint_eq(stored.crc, b.header.crc);
        ck_assert_int_eq(stored.max_timestamp, b.header.max_timestamp);
        batches_free(&b);
    }
    const struct {
        int64_t time, offset, found;
    } table[] = {{0, 0, 0}, {3, 3, 100}, {100, 3, 100}, {101, 6, 200}, {201, 9, 2700}, {2701, 10, 2701}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        ck_assert_int_eq(log_find_time(log, T0 + table[i].time, INT64_MAX, 1 << 20, &offset, &timestamp), 0);
        ck_assert_int_eq(offset, table[i].offset);
        ck_assert_int_eq(timestamp, T0 + table[i].found);
    }
    ck_assert_int_eq(fixture_read_all(log, 0, true), 12);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

static void append_stamped(struct log *log, int64_t timestamp, int64_t now)
{
    struct log_batch b = batches_make(1, timestamp, 0, 150, 0);
    int64_t base;
    ck_assert_int_eq(log_append(log, &b, 1, 0, now, &base, NULL), 0);
    batches_free(&b);
}

START_TEST(stray_stamps_neither_keep_old_segments_nor_drop_fresh_ones)
{
    struct log_settings s = fixture_settings();
    s.segment_bytes = 600;
    s.retention_ms = 2000;
    struct log *log = fixture_open(fixture_log_path("stray"), &s, &fixture_clean);
    const int64_t stray[] = {T0 * 1000, T0 / 1000, 0, -1, INT64_MAX};
    for (int i = 0; i < 40; i++)
        append_stamped(log, i % 2 ? T0 + i : stray[i / 2 % 5], T0 + i);
    ck_assert_int_eq(log_retain(log, T0 + 1000), 0);
    ck_assert_int_eq(log_start_offset(log), 0);
    for (int i = 0; i < 40; i++)
        append_stamped(log, i % 2 ? T0 + 3000 + i : stray[i / 2 % 5], T0 + 3000 + i);
    ck_assert_int_gt(log_retain(log, T0 + 3100), 0);
    int64_t start = log_start_offset(log);
    ck_assert_int_gt(start, 35);
    ck_assert_int_le(start, 40);
    ck_assert_int_eq(fixture_read_all(log, start, true), 80 - start);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

START_TEST(stamps_far_ahead_are_told_once)
{
    struct log_settings s = fixture_settings();
    s.segment_bytes = 600;
    s.retention_ms = 2000;
    struct log *log = fixture_open(fixture_log_path("ahead"), &s, &fixture_clean);
    append_stamped(log, T0 + RETENTION_FUTURE_MS_MAX, T0); /* a day: believed */
    log_retain(log, T0 + 1);
    ck_assert_int_eq(log_take_future_stamp(log), 0);
    for (int i = 0; i < 20; i++)
        append_stamped(log, T0 + 2 * RETENTION_FUTURE_MS_MAX, T0);
    ck_assert_int_gt(log_retain(log, T0 + RETENTION_FUTURE_MS_MAX + 2001), 0);
    ck_assert_int_eq(log_take_future_stamp(log), 2 * RETENTION_FUTURE_MS_MAX);
    ck_assert_int_eq(log_take_future_stamp(log), 0);
    append_stamped(log, T0 + 9 * RETENTION_FUTURE_MS_MAX, T0);
    log_retain(log, T0 + 1);
    ck_assert_int_eq(log_take_future_stamp(log), 0);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

START_TEST(the_next_offset_stays_when_all_data_is_gone)
{
    struct log_settings s = fixture_settings();
    const char *path = fixture_log_path("all-gone");
    s.segment_bytes = 600;
    s.retention_ms = 2000;
    struct log *log = fixture_open(path, &s, &fixture_clean);
    for (int i = 0; i < 20; i++)
        append_stamped(log, T0, T0);
    ck_assert_int_gt(log_retain(log, T0 + 2001), 5);
    for (int again = 0; again < 4; again++) {
        ck_assert_int_eq(log_start_offset(log), 20);
        ck_assert_int_eq(log_end_offset(log), 20);
        ck_assert_int_eq(log_bytes(log), 0);
        ck_assert_uint_eq(log_segments_count(log), 1);
        ck_assert_int_eq(log_retain(log, T0 + 999999), 0);
        ck_assert_int_eq(log_close(log), 0);
        ck_assert_int_eq(fixture_count_files(path, ".log"), 1);
        ck_assert_int_eq(fixture_count_files(path, ".deleted"), 0);
        log = fixture_open(path, &s, again % 2 ? &fixture_clean : &fixture_unclean);
    }
    append_stamped(log, T0, T0);
    ck_assert_int_eq(fixture_read_all(log, 20, true), 1);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

START_TEST(a_quiet_partition_expires_too)
{
    struct log_settings s = fixture_settings();
    s.retention_ms = 2000;
    struct log *log = fixture_open(fixture_log_path("quiet"), &s, &fixture_clean);
    append_stamped(log, T0, T0);
    ck_assert_int_eq(log_retain(log, T0 + 2000), 0);
    ck_assert_int_eq(log_retain(log, T0 + 2001), 1);
    ck_assert_int_eq(log_start_offset(log), 1);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

START_TEST(size_keeps_at_least_what_it_says)
{
    struct log_settings s = fixture_settings();
    s.segment_bytes = 600;
    s.retention_ms = -1;
    s.retention_bytes = 2000;
    struct log *log = fixture_open(fixture_log_path("bytes"), &s, &fixture_clean);
    for (int i = 0; i < 100; i++) {
        append_stamped(log, T0, T0);
        ck_assert_int_ge(log_retain(log, T0), 0);
        ck_assert_int_lt(log_bytes(log), 2000 + 600 + 300);
    }
    ck_assert_int_ge(log_bytes(log), 2000);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

START_TEST(a_reader_keeps_the_segment_that_retention_drops)
{
    struct log_settings s = fixture_settings();
    const char *path = fixture_log_path("held");
    s.segment_bytes = 600;
    s.retention_ms = 2000;
    struct log *log = fixture_open(path, &s, &fixture_clean);
    for (int i = 0; i < 20; i++)
        append_stamped(log, T0, T0);
    struct log_range range;
    ck_assert_int_eq(log_read(log, 0, INT64_MAX, 1 << 20, true, 1 << 20, &range), 0);
    ck_assert_int_gt(log_retain(log, T0 + 2001), 0);
    ck_assert_int_eq(fixture_count_files(path, ".log.deleted"), 1); /* the one in use */
    uint8_t bytes[600];
    struct batch_header h;
    ck_assert_int_eq(pread(range.fd, bytes, range.bytes, range.position), (ssize_t)range.bytes);
    ck_assert_int_eq(batch_read_header(bytes, range.bytes, &h), 0);
    ck_assert_int_eq(batch_check_crc(bytes, &h), 0);
    log_range_done(&range);
    ck_assert_int_eq(fixture_count_files(path, ".deleted"), 0);
    ck_assert_int_eq(log_read(log, 0, INT64_MAX, 1000, true, 1000, &range), -BROOK_E_OFFSET_OUT_OF_RANGE);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

START_TEST(deleted_files_stay_for_their_delay)
{
    struct log_settings s = fixture_settings();
    const char *path = fixture_log_path("delay");
    s.segment_bytes = 600;
    s.retention_ms = 2000;
    s.file_delete_delay_ms = 1000;
    struct log *log = fixture_open(path, &s, &fixture_clean);
    for (int i = 0; i < 20; i++)
        append_stamped(log, T0, T0);
    int removed = log_retain(log, T0 + 2001);
    ck_assert_int_gt(removed, 1);
    ck_assert_int_eq(fixture_count_files(path, ".log.deleted"), removed);
    ck_assert_int_eq(log_retain(log, T0 + 3000), 0);
    ck_assert_int_eq(fixture_count_files(path, ".log.deleted"), removed);
    ck_assert_int_eq(log_retain(log, T0 + 3001), 0);
    ck_assert_int_eq(fixture_count_files(path, ".deleted"), 0);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

SUITE_MAIN("storage/time", SUITE_TEST(a_time_is_found_to_the_record_in_every_codec),
           SUITE_TEST(equal_and_falling_timestamps_give_the_first_that_fits),
           SUITE_TEST(log_append_time_counts_for_all_records_of_its_batch),
           SUITE_TEST(a_log_with_append_time_stamps_what_it_appends),
           SUITE_TEST(stamps_far_ahead_are_told_once),
           SUITE_TEST(a_batch_that_expands_too_far_is_an_error_not_a_crash),
           SUITE_TEST(age_is_told_by_believable_stamps_only),
           SUITE_TEST(retention_takes_from_the_oldest_and_keeps_the_newest),
           SUITE_TEST(stray_stamps_neither_keep_old_segments_nor_drop_fresh_ones),
           SUITE_TEST(the_next_offset_stays_when_all_data_is_gone), SUITE_TEST(a_quiet_partition_expires_too),
           SUITE_TEST(size_keeps_at_least_what_it_says),
           SUITE_TEST(a_reader_keeps_the_segment_that_retention_drops),
           SUITE_TEST(deleted_files_stay_for_their_delay))
