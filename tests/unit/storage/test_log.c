#include "tests/unit/storage/fixture.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

START_TEST(an_empty_log_begins_at_zero)
{
    struct log_settings s = fixture_settings();
    struct log *log = fixture_open(fixture_log_path("empty"), &s, &fixture_clean);
    ck_assert_int_eq(log_start_offset(log), 0);
    ck_assert_int_eq(log_end_offset(log), 0);
    struct log_range range;
    ck_assert_int_eq(log_read(log, 0, INT64_MAX, 1000, true, 1000, &range), 0);
    ck_assert_uint_eq(range.bytes, 0);
    log_range_done(&range);
    ck_assert_int_eq(log_read(log, 1, INT64_MAX, 1000, true, 1000, &range), -BROOK_E_OFFSET_OUT_OF_RANGE);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

START_TEST(what_was_appended_is_read_back_before_and_after_reopening)
{
    struct log_settings s = fixture_settings();
    const char *path = fixture_log_path("reopen");
    struct log *log = fixture_open(path, &s, &fixture_clean);
    int64_t records = 0;
    for (int i = 0; i < 200; i++) {
        ck_assert_int_eq(fixture_append(log, 1 + i % 5, T0 + i, 50), records);
        records += 1 + i % 5;
    }
    ck_assert_uint_gt(log_segments_count(log), 5);
    ck_assert_int_eq(fixture_read_all(log, 0, true), records);
    for (int64_t offset = 0; offset < records; offset++)
        ck_assert_int_le(fixture_read_first(log, offset).base_offset, offset);
    ck_assert_int_eq(log_close(log), 0);

    struct log_recovery recovery;
    log = fixture_open_reporting(path, &s, &fixture_clean, &recovery);
    ck_assert(!recovery.scanned);
    ck_assert_int_eq(recovery.indexes_rebuilt, 0);
    ck_assert_int_eq(log_end_offset(log), records);
    ck_assert_int_eq(fixture_read_all(log, 0, true), records);
    ck_assert_int_eq(fixture_append(log, 1, T0, 10), records);
    ck_assert_int_eq(log_close(log), 0);

    log = fixture_open_reporting(path, &s, &fixture_unclean, &recovery);
    ck_assert(recovery.scanned);
    ck_assert_int_eq(recovery.bytes_cut, 0);
    ck_assert_int_eq(recovery.bytes_scanned, log_bytes(log));
    ck_assert_int_eq(fixture_read_all(log, 0, true), records + 1);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

/* ---- Kafka's own bytes -------------------------------------------------------------------------------- */

#define GOLDEN_FIRST                                                                                         \
    "00000000000000000000004f0000000002e81177aa0000000000010000018bcfe568000000018bcfe56805ffffffffffffffff" \
    "ff"                                                                                                     \
    "ffffffffff000000021a000000046b310a68656c6c6f001e000a02010a776f726c640202680278"
#define GOLDEN_SECOND                                                                                        \
    "00000000000000020000003a000000000292083f090000000000000000018bcfe5680a0000018bcfe5680affffffffffffffff" \
    "ff"                                                                                                     \
    "ffffffffff0000000110000000046b320100"
static const uint8_t golden_index[] = {0, 0, 0, 2, 0, 0, 0, 0x5b};
static const uint8_t golden_time_index[] = {0, 0, 1, 0x8b, 0xcf, 0xe5, 0x68, 0x0a, 0, 0, 0, 2};

static void assert_file(const char *path, const char *name, const void *expected, size_t bytes)
{
    void *data;
    ck_assert_uint_eq(fixture_load(path, name, &data), bytes);
    ck_assert_mem_eq(data, expected, bytes);
    free(data);
}

static void golden_log(uint8_t bytes[161])
{
    struct log_batch first = batches_from_hex(GOLDEN_FIRST), second = batches_from_hex(GOLDEN_SECOND);
    ck_assert_uint_eq(first.header.total_bytes + second.header.total_bytes, 161);
    memcpy(bytes, first.data, 91);
    memcpy(bytes + 91, second.data, 70);
    batches_free(&first);
    batches_free(&second);
}

START_TEST(what_we_write_is_what_kafka_writes)
{
    struct log_settings s = fixture_settings();
    const char *path = fixture_log_path("golden-out");
    struct log *log = fixture_open(path, &s, &fixture_clean);
    struct log_batch batches[2] = {batches_from_hex(GOLDEN_FIRST), batches_from_hex(GOLDEN_SECOND)};
    uint8_t expected[161];
    golden_log(expected);
    batches_place(&batches[0], 77, -1); /* the broker sets both fields */
    batches_place(&batches[1], 0, -1);
    int64_t base;
    ck_assert_int_eq(log_append(log, batches, 2, 0, T0, &base, NULL), 0);
    ck_assert_int_eq(base, 0);
    ck_assert_int_eq(batches[1].header.base_offset, 2);
    ck_assert_int_eq(log_close(log), 0);
    assert_file(path, "00000000000000000000.log", expected, sizeof expected);
    assert_file(path, "00000000000000000000.index", golden_index, sizeof golden_index);
    assert_file(path, "00000000000000000000.timeindex", golden_time_index, sizeof golden_time_index);
    assert_file(path, "leader-epoch-checkpoint", "0\n1\n0 0\n", 8);
    batches_free(&batches[0]);
    batches_free(&batches[1]);
}
END_TEST

START_TEST(what_kafka_wrote_is_read)
{
    struct log_settings s = fixture_settings();
    char path[PATH_MAX];
    strcpy(path, fixture_log_path("golden-in"));
    mkdir(path, 0755);
    uint8_t bytes[161];
    golden_log(bytes);
    fixture_store(path, "00000000000000000000.log", bytes, sizeof bytes);
    fixture_store(path, "00000000000000000000.index", golden_index, sizeof golden_index);
    fixture_store(path, "00000000000000000000.timeindex", golden_time_index, sizeof golden_time_index);
    struct log_recovery recovery;
    struct log *log = fixture_open_reporting(path, &s, &fixture_clean, &recovery);
    ck_assert_int_eq(recovery.indexes_rebuilt, 0);
    ck_assert_int_eq(log_end_offset(log), 3);
    ck_assert_int_eq(fixture_read_all(log, 0, true), 3);
    ck_assert_int_eq(fixture_read_first(log, 1).base_offset, 0);
    ck_assert_int_eq(fixture_read_first(log, 2).base_offset, 2);
    int64_t offset, timestamp;
    ck_assert_int_eq(log_find_time(log, T0 + 1, INT64_MAX, 1000, &offset, &timestamp), 0);
    ck_assert_int_eq(offset, 1);
    ck_assert_int_eq(timestamp, T0 + 5);
    ck_assert_int_eq(log_close(log), 0);
    assert_file(path, "00000000000000000000.log", bytes, sizeof bytes);
}
END_TEST

START_TEST(indexes_do_not_depend_on_restarts)
{
    struct log_settings s = fixture_settings();
    s.index_interval_bytes = 300;
    s.segment_bytes = 1 << 20;
    char straight[PATH_MAX], restarted[PATH_MAX];
    strcpy(straight, fixture_log_path("straight"));
    strcpy(restarted, fixture_log_path("restarted"));
    struct log *a = fixture_open(straight, &s, &fixture_clean);
    struct log *b = fixture_open(restarted, &s, &fixture_clean);
    for (int i = 0; i < 300; i++) {
        fixture_append(a, 1, T0 + i, 60);
        fixture_append(b, 1, T0 + i, 60);
        if (i == 150 || i == 220) {
            ck_assert_int_eq(log_close(b), 0);
            b = fixture_open(restarted, &s, &fixture_clean);
        }
    }
    ck_assert_int_eq(log_close(a), 0);
    ck_assert_int_eq(log_close(b), 0);
    void *x;
    size_t bytes = fixture_load(straight, "00000000000000000000.index", &x);
    ck_assert_uint_gt(bytes, 400);
    assert_file(restarted, "00000000000000000000.index", x, bytes);
    free(x);
}
END_TEST

/* ---- rolling ------------------------------------------------------------------------------------------ */

START_TEST(a_segment_rolls_when_it_would_grow_beyond_its_size)
{
    struct log_settings s = fixture_settings();
    s.segment_bytes = 1000;
    struct log *log = fixture_open(fixture_log_path("size"), &s, &fixture_clean);
    for (int i = 0; i < 50; i++)
        fixture_append(log, 1, T0, 100);
    fixture_append(log, 1, T0, 5000); /* larger than a segment: one of its own */
    fixture_append(log, 1, T0, 100);
    ck_assert_int_eq(fixture_read_all(log, 0, true), 52);
    struct batch_header h = fixture_read_first(log, 0);
    size_t per_segment = 1000 / h.total_bytes;
    ck_assert_uint_eq(log_segments_count(log), (50 + per_segment - 1) / per_segment + 2);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

START_TEST(one_append_of_many_batches_rolls_on_its_way)
{
    struct log_settings s = fixture_settings();
    s.segment_bytes = 1000;
    struct log *log = fixture_open(fixture_log_path("split"), &s, &fixture_clean);
    struct log_batch batches[100];
    int64_t base;
    for (int i = 0; i < 100; i++)
        batches[i] = batches_make(2, T0 + i, 1, 100, (uint32_t)i);
    ck_assert_int_eq(log_append(log, batches, 100, 0, T0, &base, NULL), 0);
    ck_assert_int_eq(log_end_offset(log), 200);
    ck_assert_uint_gt(log_segments_count(log), 20);
    ck_assert_int_eq(fixture_read_all(log, 0, true), 200);
    for (int i = 0; i < 100; i++) {
        ck_assert_int_eq(batches[i].header.base_offset, 2 * i);
        batches_free(&batches[i]);
    }
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

static void append_at(struct log *log, int64_t now_ms)
{
    struct log_batch b = batches_make(1, T0, 0, 10, 0);
    int64_t base;
    ck_assert_int_eq(log_append(log, &b, 1, 0, now_ms, &base, NULL), 0);
    batches_free(&b);
}

START_TEST(a_segment_rolls_by_age_and_never_an_empty_one)
{
    struct log_settings s = fixture_settings();
    s.segment_ms = 1000;
    struct log *log = fixture_open(fixture_log_path("age"), &s, &fixture_clean);
    append_at(log, T0 + 5000000); /* the empty segment is old, but holds nothing */
    ck_assert_uint_eq(log_segments_count(log), 1);
    append_at(log, T0 + 5000999);
    ck_assert_uint_eq(log_segments_count(log), 1);
    append_at(log, T0 + 5001000);
    ck_assert_uint_eq(log_segments_count(log), 2);
    append_at(log, T0 + 5001001);
    ck_assert_uint_eq(log_segments_count(log), 2);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

START_TEST(a_segment_rolls_when_its_index_is_full)
{
    struct log_settings s = fixture_settings();
    s.segment_bytes = 1 << 20;
    s.segment_index_bytes = 80; /* ten entries, or six of the time index and one to spare */
    struct log *log = fixture_open(fixture_log_path("index-full"), &s, &fixture_clean);
    for (int i = 0; i < 100; i++)
        fixture_append(log, 1, T0, 10); /* one timestamp: the time index stays short */
    ck_assert_uint_ge(log_segments_count(log), 9);
    ck_assert_uint_le(log_segments_count(log), 11);
    ck_assert_int_eq(log_close(log), 0);
    log = fixture_open(fixture_log_path("time-index-full"), &s, &fixture_clean);
    for (int i = 0; i < 100; i++)
        fixture_append(log, 1, T0 + i, 10);
    ck_assert_uint_ge(log_segments_count(log), 14);
    ck_assert_int_eq(fixture_read_all(log, 0, true), 100);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

static int append_placed(struct log *log, int64_t base_offset)
{
    struct log_batch b = batches_make(1, T0, 0, 10, 0);
    batches_place(&b, base_offset, 0);
    int r = log_append_as_follower(log, &b, 1, T0, NULL);
    batches_free(&b);
    return r;
}

START_TEST(a_segment_rolls_before_its_relative_offsets_overflow)
{
    struct log_settings s = fixture_settings();
    const char *path = fixture_log_path("relative");
    const int64_t base = 7;
    const int64_t offsets[] = {base, base + INT32_MAX, base + INT32_MAX + INT64_C(1),
                               base + (INT64_C(1) << 33)};
    struct log *log = fixture_open(path, &s, &fixture_clean);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(append_placed(log, offsets[i]), 0);
    for (int again = 0; again < 2; again++) {
        ck_assert_int_eq(log_end_offset(log), offsets[3] + 1);
        ck_assert_int_eq(fixture_read_all(log, 7, false), 4);
        for (int i = 0; i < 4; i++) {
            ck_assert_int_eq(fixture_read_first(log, offsets[i]).base_offset, offsets[i]);
            if (i > 0) /* an offset in a gap is answered with what follows it */
                ck_assert_int_eq(fixture_read_first(log, offsets[i - 1] + 1).base_offset, offsets[i]);
        }
        ck_assert_int_eq(log_close(log), 0);
        log = fixture_open(path, &s, again ? &fixture_clean : &fixture_unclean);
    }
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

START_TEST(a_first_batch_far_away_replaces_the_empty_segment)
{
    struct log_settings s = fixture_settings();
    const char *path = fixture_log_path("far");
    struct log *log = fixture_open(path, &s, &fixture_clean);
    ck_assert_int_eq(append_placed(log, INT64_C(1) << 40), 0);
    ck_assert_uint_eq(log_segments_count(log), 1);
    ck_assert_int_eq(fixture_count_files(path, ".log"), 1);
    ck_assert_int_eq(log_start_offset(log), INT64_C(1) << 40);
    ck_assert_int_eq(fixture_read_all(log, log_start_offset(log), true), 1);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

START_TEST(a_follower_stores_only_what_continues_its_log)
{
    struct log_settings s = fixture_settings();
    struct log *log = fixture_open(fixture_log_path("follower"), &s, &fixture_clean);
    ck_assert_int_eq(append_placed(log, 5), 0);
    const int64_t wrong[] = {0, 4, 5};
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(append_placed(log, wrong[i]), -BROOK_E_OFFSET_OUT_OF_RANGE);
    ck_assert_int_eq(append_placed(log, 6), 0);
    ck_assert_int_eq(append_placed(log, 10), 0);
    struct log_batch pair[2] = {batches_make(1, T0, 0, 10, 0), batches_make(1, T0, 0, 10, 0)};
    batches_place(&pair[0], 12, 0);
    batches_place(&pair[1], 12, 0);
    ck_assert_int_eq(log_append_as_follower(log, pair, 2, T0, NULL), -BROOK_E_OFFSET_OUT_OF_RANGE);
    ck_assert_int_eq(log_end_offset(log), 11);
    ck_assert_int_eq(fixture_read_all(log, 0, false), 3);
    batches_free(&pair[0]);
    batches_free(&pair[1]);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

/* ---- reading ------------------------------------------------------------------------------------------ */

/* Bytes of a read, and the last offset of its last whole batch (-1: none). */
static size_t read_extent(struct log *log, int64_t offset, int64_t end, size_t bytes_max, int64_t *ret_last,
                          bool *ret_partial)
{
    struct log_range range;
    ck_assert_int_eq(log_read(log, offset, end, bytes_max, true, 1 << 20, &range), 0);
    size_t bytes = range.bytes, at = 0;
    uint8_t *data = malloc(bytes + 1);
    struct batch_header h;
    *ret_last = -1;
    if (bytes > 0)
        ck_assert_int_eq(pread(range.fd, data, bytes, range.position), (ssize_t)bytes);
    for (; at < bytes && batch_read_header(data + at, bytes - at, &h) == 0; at += h.total_bytes)
        *ret_last = batch_last_offset(&h);
    *ret_partial = at < bytes;
    free(data);
    log_range_done(&range);
    return bytes;
}

START_TEST(a_read_never_shows_a_batch_at_or_above_its_end)
{
    struct log_settings s = fixture_settings();
    s.segment_bytes = 20000;
    s.index_interval_bytes = 1000;
    struct log *log = fixture_open(fixture_log_path("end"), &s, &fixture_clean);
    for (int i = 0; i < 400; i++)
        fixture_append(log, 3, T0, 20);
    int64_t last;
    bool partial;
    for (int64_t end = 0; end <= 1200; end += 1) {
        int64_t from = end > 50 ? end - 50 : 0;
        size_t bytes = read_extent(log, from, end, 1 << 20, &last, &partial);
        int64_t batches_end = end / 3 * 3; /* only whole batches below the end may be seen */
        if (bytes == 0) {
            ck_assert_int_ge(from / 3 * 3 + 3, end);
            continue;
        }
        ck_assert(!partial);
        ck_assert_int_lt(last, end);
        /* All of them, unless a segment ends in between. */
        if (last + 1 != batches_end)
            ck_assert_uint_gt(read_extent(log, last + 1, end, 1 << 20, &last, &partial), 0);
    }
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

START_TEST(a_read_keeps_its_budget_and_ends_with_whole_batches_where_it_is_cheap)
{
    struct log_settings s = fixture_settings();
    s.segment_bytes = 1 << 20;
    struct log *log = fixture_open(fixture_log_path("budget"), &s, &fixture_clean);
    for (int i = 0; i < 1000; i++)
        fixture_append(log, 1, T0, 100);
    size_t one = fixture_read_first(log, 0).total_bytes;
    const int64_t from[] = {0, 500, 980}; /* files, files, memory */
    for (int i = 0; i < 3; i++) {
        for (size_t budget = 1; budget < 5 * one; budget += 13) {
            int64_t last;
            bool partial;
            size_t bytes = read_extent(log, from[i], 1000, budget, &last, &partial);
            ck_assert(!partial);
            ck_assert_uint_eq(bytes, budget < one ? one : budget / one * one);
        }
    }
    struct log_range range;
    ck_assert_int_eq(log_read(log, 990, 1000, one - 1, false, 1 << 20, &range), 0);
    ck_assert_uint_eq(range.bytes, 0);
    log_range_done(&range);
    ck_assert_int_eq(log_read(log, 990, 1000, one - 1, true, one - 1, &range), -BROOK_E_MESSAGE_TOO_LARGE);
    ck_assert_int_eq(log_read(log, 10, 1000, one - 1, true, one - 1, &range), -BROOK_E_MESSAGE_TOO_LARGE);
    ck_assert_int_eq(log_read(log, 1001, INT64_MAX, 1, true, 1, &range), -BROOK_E_OFFSET_OUT_OF_RANGE);
    ck_assert_int_eq(log_read(log, -1, INT64_MAX, 1, true, 1, &range), -BROOK_E_OFFSET_OUT_OF_RANGE);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

START_TEST(a_range_outlives_its_log)
{
    struct log_settings s = fixture_settings();
    struct log *log = fixture_open(fixture_log_path("outlive"), &s, &fixture_clean);
    fixture_append(log, 1, T0, 100);
    struct log_range range;
    ck_assert_int_eq(log_read(log, 0, 1, 1000, true, 1000, &range), 0);
    ck_assert_int_eq(log_close(log), 0);
    uint8_t bytes[1000];
    struct batch_header h;
    ck_assert_int_eq(pread(range.fd, bytes, range.bytes, range.position), (ssize_t)range.bytes);
    ck_assert_int_eq(batch_read_header(bytes, range.bytes, &h), 0);
    log_range_done(&range);
}
END_TEST

START_TEST(a_deleted_log_leaves_nothing_behind)
{
    struct log_settings s = fixture_settings();
    const char *path = fixture_log_path("gone-0");
    struct log *log = fixture_open(path, &s, &fixture_clean);
    for (int i = 0; i < 100; i++)
        fixture_append(log, 1, T0, 100);
    ck_assert_int_eq(log_delete(&log), 0);
    ck_assert_ptr_null(log);
    ck_assert_int_ne(access(path, F_OK), 0);
    ck_assert_int_eq(fixture_count_files(suite_directory(), "-delete"), 0);
    ck_assert_int_eq(log_delete(&log), 0);
}
END_TEST

START_TEST(a_log_that_nobody_uses_takes_no_descriptor)
{
    struct log_settings s = fixture_settings();
    const char *path = fixture_log_path("lazy");
    struct log *log = fixture_open(path, &s, &fixture_clean);
    for (int i = 0; i < 500; i++)
        fixture_append(log, 1, T0, 200);
    ck_assert_uint_gt(log_segments_count(log), 20);
    ck_assert_int_eq(log_close(log), 0);
    int before = fixture_count_files("/proc/self/fd", "");
    log = fixture_open(path, &s, &fixture_clean);
    ck_assert_int_eq(fixture_count_files("/proc/self/fd", ""), before);
    fixture_read_first(log, 0);
    ck_assert_int_eq(fixture_count_files("/proc/self/fd", ""), before + 1);
    fixture_read_all(log, 0, true);
    ck_assert_int_eq(log_close(log), 0);
    ck_assert_int_eq(fixture_count_files("/proc/self/fd", ""), before);
}
END_TEST

SUITE_MAIN("storage/log", SUITE_TEST(an_empty_log_begins_at_zero),
           SUITE_TEST(what_was_appended_is_read_back_before_and_after_reopening),
           SUITE_TEST(what_we_write_is_what_kafka_writes), SUITE_TEST(what_kafka_wrote_is_read),
           SUITE_TEST(indexes_do_not_depend_on_restarts),
           SUITE_TEST(a_segment_rolls_when_it_would_grow_beyond_its_size),
           SUITE_TEST(one_append_of_many_batches_rolls_on_its_way),
           SUITE_TEST(a_segment_rolls_by_age_and_never_an_empty_one),
           SUITE_TEST(a_segment_rolls_when_its_index_is_full),
           SUITE_TEST(a_segment_rolls_before_its_relative_offsets_overflow),
           SUITE_TEST(a_first_batch_far_away_replaces_the_empty_segment),
           SUITE_TEST(a_follower_stores_only_what_continues_its_log),
           SUITE_TEST(a_read_never_shows_a_batch_at_or_above_its_end),
           SUITE_TEST(a_read_keeps_its_budget_and_ends_with_whole_batches_where_it_is_cheap),
           SUITE_TEST(a_range_outlives_its_log), SUITE_TEST(a_deleted_log_leaves_nothing_behind),
           SUITE_TEST(a_log_that_nobody_uses_takes_no_descriptor))
