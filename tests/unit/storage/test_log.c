#include "tests/unit/storage/fixture.h"

#include <string.h>

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

SUITE_MAIN("storage/log", SUITE_TEST(an_empty_log_begins_at_zero),
           SUITE_TEST(what_was_appended_is_read_back_before_and_after_reopening))
