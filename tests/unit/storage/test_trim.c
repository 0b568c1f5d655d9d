/* Deleting the beginning of a log: by request, and what crashes leave of any removal. */
#include "broker/storage/data_dir.h"
#include "broker/storage/log_state.h"
#include "proto/base/cleanup.h"
#include "tests/support/batches.h"
#include "tests/support/faulty_io.h"
#include "tests/unit/storage/fixture.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RECORDS_IN_BATCH 5

/* Batches of five records; a segment holds three of them. */
static struct log *filled(const char *path, const struct log_settings *s, int batches)
{
    faulty_reset(); /* syncs are counted only */
    struct log *log = fixture_open(path, s, &fixture_clean);
    for (int i = 0; i < batches; i++)
        fixture_append(log, RECORDS_IN_BATCH, T0 + i, 100);
    return log;
}

static struct log_settings small_segments(void)
{
    struct log_settings s = fixture_settings();
    s.segment_bytes = 2000;
    return s;
}

static void assert_begins(struct log *log, int64_t start)
{
    struct log_range range;
    ck_assert_int_eq(log_start_offset(log), start);
    if (start > 0)
        ck_assert_int_eq(log_read(log, start - 1, INT64_MAX, 1 << 20, true, 1 << 20, &range),
                         -BROOK_E_OFFSET_OUT_OF_RANGE);
    if (start < log_end_offset(log))
        ck_assert_int_le(fixture_read_first(log, start).base_offset, start);
}

START_TEST(every_offset_can_be_the_new_start)
{
    struct log_settings s = small_segments();
    for (int64_t before = 0; before <= 60; before++) {
        char name[32];
        snprintf(name, sizeof name, "every-%d", (int)before);
        const char *path = fixture_log_path(name);
        struct log *log = filled(path, &s, 12);
        ck_assert_uint_eq(log_segments_count(log), 4);
        int removed = log_trim(log, before, T0);
        ck_assert_int_eq(removed, before == 60 ? 4 : before / 15);
        assert_begins(log, before);
        ck_assert_int_eq(log_end_offset(log), 60);
        ck_assert_int_eq(fixture_count_files(path, ".log"), before == 60 ? 1 : 4 - removed);
        ck_assert_int_eq(log_trim(log, before / 2, T0), 0); /* it does not go back */
        assert_begins(log, before);
        fixture_append(log, RECORDS_IN_BATCH, T0, 100);
        ck_assert_int_eq(log_end_offset(log), 65);
        ck_assert_int_eq(log_close(log), 0);
    }
}
END_TEST

START_TEST(more_than_everything_is_everything)
{
    struct log_settings s = small_segments();
    const char *path = fixture_log_path("beyond");
    struct log *log = filled(path, &s, 4);
    ck_assert_int_eq(log_trim(log, 1000, T0), 2);
    ck_assert_int_eq(log_start_offset(log), 20);
    ck_assert_int_eq(log_end_offset(log), 20);
    ck_assert_int_eq(log_bytes(log), 0);
    ck_assert_int_eq(log_trim(log, 1000, T0), 0);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

/* The list of segments and where readers may look are two things: the one must not outlive the other. */
START_TEST(readers_at_the_end_see_what_comes_after_everything_is_gone)
{
    struct log_settings s = small_segments();
    s.retention_ms = 1000;
    for (int by_retention = 0; by_retention < 2; by_retention++) {
        struct log *log = filled(fixture_log_path(by_retention ? "seen-retain" : "seen-trim"), &s, 4);
        struct log_range range;
        ck_assert_int_eq(by_retention ? log_retain(log, T0 + 5000) : log_trim(log, 20, T0), 2);
        ck_assert_int_eq(log_start_offset(log), 20);
        /* Before anything is appended: what is visible is the new segment, not one whose memory is given back.
         * (No reader follows the pointer as long as there is nothing to read: so it is looked at here.) */
        ck_assert_ptr_eq(log->visible_segment, log_active(log));
        ck_assert_int_eq(log->visible_bytes, 0);
        ck_assert_int_eq(log_read(log, 20, INT64_MAX, 1 << 20, true, 1 << 20, &range), 0);
        ck_assert_uint_eq(range.bytes, 0);
        log_range_done(&range);
        int64_t offset, timestamp;
        ck_assert_int_eq(log_find_time(log, 0, INT64_MAX, 1 << 20, &offset, &timestamp), -BROOK_E_NOT_FOUND);
        fixture_append(log, RECORDS_IN_BATCH, T0 + 9000, 100);
        ck_assert_int_eq(fixture_read_all(log, 20, true), RECORDS_IN_BATCH);
        ck_assert_int_eq(log_close(log), 0);
    }
}
END_TEST

/* Names may reach the disk in another order than they were made in: then the new segment's must not come last. */
START_TEST(the_names_that_stay_are_synced_before_others_go)
{
    struct log_settings s = small_segments();
    s.retention_ms = 1000;
    for (int by_retention = 0; by_retention < 2; by_retention++) {
        struct log *log = filled(fixture_log_path(by_retention ? "names-retain" : "names-trim"), &s, 4);
        size_t count, at = 0;
        faulty_record();
        ck_assert_int_eq(by_retention ? log_retain(log, T0 + 5000) : log_trim(log, 20, T0), 2);
        const struct faulty_call *calls = faulty_history(&count);
        while (at < count && calls[at].kind != FAULTY_RENAME)
            at++;
        ck_assert(at > 0 && at < count);
        ck_assert_int_eq(calls[at - 1].kind, FAULTY_SYNC_DIRECTORY);
        bool is_synced_after = false;
        for (size_t i = at; i < count; i++)
            is_synced_after = (is_synced_after && calls[i].kind != FAULTY_RENAME) ||
                              calls[i].kind == FAULTY_SYNC_DIRECTORY;
        ck_assert(is_synced_after);
        ck_assert_int_eq(log_close(log), 0);
    }
}
END_TEST

START_TEST(a_truncation_does_not_give_deleted_offsets_again)
{
    struct log_settings s = small_segments();
    for (int64_t start = 0; start < 30; start += 4)
        for (int64_t target = 0; target <= 31; target++) {
            char name[40];
            snprintf(name, sizeof name, "cut-%d-%d", (int)start, (int)target);
            const char *path = fixture_log_path(name);
            struct log *log = filled(path, &s, 6);
            ck_assert_int_ge(log_trim(log, start, T0), 0);
            ck_assert_int_eq(log_truncate(log, target, NULL), 0);
            int64_t asked = target > start ? target : start;
            int64_t base = asked / RECORDS_IN_BATCH * RECORDS_IN_BATCH;
            int64_t end = asked >= 30 ? 30 : base > start ? base : start;
            ck_assert_int_eq(log_end_offset(log), end);
            assert_begins(log, start);
            for (int again = 0; again < 2; again++) {
                ck_assert_int_eq(fixture_append(log, RECORDS_IN_BATCH, T0, 100), end);
                end += RECORDS_IN_BATCH;
                ck_assert_int_eq(fixture_read_first(log, end - 1).base_offset, end - RECORDS_IN_BATCH);
                ck_assert_int_eq(log_close(log), 0);
                struct log_hint hint = {.clean = again == 0, .recovery_point = -1, .start_offset = start};
                log = fixture_open(path, &s, &hint);
                ck_assert_int_eq(log_end_offset(log), end);
                assert_begins(log, start);
            }
            ck_assert_int_eq(log_close(log), 0);
        }
}
END_TEST

/* The records were deleted, and their start was made durable, before they were on stable storage themselves. */
START_TEST(after_a_crash_the_log_goes_on_behind_what_was_deleted)
{
    struct log_settings s = small_segments();
    for (int64_t left = 0; left <= 4; left++) {
        char name[32];
        snprintf(name, sizeof name, "lost-%d", (int)left);
        const char *path = fixture_log_path(name);
        struct log *log = filled(path, &s, (int)left);
        int64_t end = log_end_offset(log);
        ck_assert_int_eq(log_close(log), 0);
        struct log_hint hint = {.clean = false, .recovery_point = 3, .start_offset = 17};
        for (int again = 0; again < 3; again++) {
            log = fixture_open(path, &s, &hint);
            ck_assert_int_eq(log_start_offset(log), 17);
            ck_assert_int_eq(log_end_offset(log), end > 17 ? end : 17);
            ck_assert_int_eq(log_close(log), 0);
        }
        log = fixture_open(path, &s, &hint);
        ck_assert_int_eq(fixture_append(log, 1, T0, 10), end > 17 ? end : 17);
        ck_assert_int_ge(log_retain(log, T0), 0);
        ck_assert_int_eq(log_start_offset(log), 17);
        ck_assert_int_eq(fixture_read_first(log, 17).base_offset, end > 17 ? 15 : 17);
        ck_assert_int_eq(log_close(log), 0);
    }
}
END_TEST

/* ---- the checkpoint ---------------------------------------------------------------------------------- */

static int64_t start_on_disk(const char *path)
{
    AUTO_FREE char *text = NULL;
    void *data;
    size_t bytes = fixture_load(path, "log-start-offset-checkpoint", &data);
    text = data;
    text[bytes] = '\0';
    const char *line = strstr(text, "t 0 ");
    return line ? strtoll(line + 4, NULL, 10) : -1;
}

START_TEST(a_raised_start_is_on_the_disk_at_once_and_does_not_go_back)
{
    char path[PATH_MAX], partition[PATH_MAX];
    struct data_dir *dir;
    struct brook_error error;
    snprintf(path, sizeof path, "%s", fixture_log_path("raised"));
    ck_assert_int_eq(data_dir_open(path, 1, "c", &dir, &error), 0);
    data_dir_partition_path(dir, "t", 0, partition);
    ck_assert_int_eq(mkdir(partition, 0755), 0);
    ck_assert_int_eq(data_dir_raise_start(dir, "t", 0, 40), 0);
    ck_assert_int_eq(start_on_disk(path), 40);
    ck_assert_int_eq(data_dir_raise_start(dir, "t", 0, 30), 0);
    ck_assert_int_eq(start_on_disk(path), 40);
    /* A checkpoint whose numbers were taken before */
    struct data_dir_checkpoint old = {"t", 0, 50, 10, 50, 0, -1};
    ck_assert_int_eq(data_dir_checkpoint(dir, &old, 1, NULL), 0);
    ck_assert_int_eq(start_on_disk(path), 40);
    ck_assert_int_eq(data_dir_forget(dir, "t", 0), 0);
    ck_assert_int_eq(start_on_disk(path), -1);
    ck_assert_int_eq(data_dir_raise_start(dir, "t", 0, 2), 0);
    ck_assert_int_eq(start_on_disk(path), 2);
    ck_assert_int_eq(data_dir_close(dir, false), 0);
    ck_assert_int_eq(data_dir_open(path, 1, "c", &dir, &error), 0);
    size_t count;
    const struct data_dir_partition *found = data_dir_partitions(dir, &count);
    ck_assert_uint_eq(count, 1);
    ck_assert_int_eq(found[0].hint.start_offset, 2);
    ck_assert_int_eq(data_dir_close(dir, false), 0);
}
END_TEST

/* Records `base` to `base` + 4 in one batch. */
static int follow(struct log *log, int64_t base)
{
    struct log_batch b = batches_make(RECORDS_IN_BATCH, T0, 0, 10, 0);
    batches_place(&b, base, 0);
    int r = log_append_as_follower(log, &b, 1, T0, NULL);
    batches_free(&b);
    return r;
}

static void assert_inside(struct log *log, int64_t start, int64_t base)
{
    assert_begins(log, start);
    ck_assert_int_eq(fixture_read_first(log, start).base_offset, base);
    ck_assert_int_eq(log_end_offset(log), base + RECORDS_IN_BATCH);
}

START_TEST(a_follower_may_begin_inside_a_batch)
{
    struct log_settings s = small_segments();
    const char *path = fixture_log_path("inside");
    struct log *log = fixture_open(path, &s, &fixture_clean);
    ck_assert_int_eq(log_start_over(log, 7, T0, NULL), 0);
    ck_assert_int_eq(follow(log, 2), -BROOK_E_OFFSET_OUT_OF_RANGE); /* ends at the start */
    ck_assert_int_eq(follow(log, 5), 0);
    assert_inside(log, 7, 5);
    ck_assert_int_eq(fixture_count_files(path, ".log"), 1);
    ck_assert_int_eq(fixture_count_files(path, "00000000000000000005.log"), 1);
    ck_assert_int_eq(follow(log, 8), -BROOK_E_OFFSET_OUT_OF_RANGE); /* only the first one may */
    ck_assert_int_eq(follow(log, 10), 0);
    ck_assert_int_eq(log_close(log), 0);

    struct log_hint hint = fixture_unclean;
    hint.start_offset = hint.recovery_point = 7;
    log = fixture_open(path, &s, &hint);
    ck_assert_int_eq(log_start_offset(log), 7);
    ck_assert_int_eq(log_end_offset(log), 15);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

START_TEST(a_torn_batch_around_the_start_is_taken_again)
{
    struct log_settings s = small_segments();
    const char *path = fixture_log_path("inside-torn");
    char file[PATH_MAX];
    struct log *log = fixture_open(path, &s, &fixture_clean);
    ck_assert_int_eq(log_start_over(log, 7, T0, NULL), 0);
    ck_assert_int_eq(follow(log, 5), 0);
    ck_assert_int_eq(log_close(log), 0);
    fixture_path(file, path, "00000000000000000005.log");
    ck_assert_int_eq(truncate(file, 70), 0);
    struct log_hint hint = fixture_unclean;
    hint.start_offset = hint.recovery_point = 7;
    log = fixture_open(path, &s, &hint);
    ck_assert_int_eq(log_start_offset(log), 7);
    ck_assert_int_eq(log_end_offset(log), 7);
    ck_assert_int_eq(follow(log, 5), 0);
    assert_inside(log, 7, 5);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

START_TEST(what_lies_below_the_start_is_not_in_the_way)
{
    struct log_settings s = small_segments();
    const char *path = fixture_log_path("inside-behind");
    struct log *log = filled(path, &s, 4);
    ck_assert_int_eq(log_close(log), 0);
    struct log_hint hint = fixture_unclean;
    hint.start_offset = 27; /* of a log that was longer */
    log = fixture_open(path, &s, &hint);
    ck_assert_int_eq(log_end_offset(log), 27);
    ck_assert_uint_gt(log_segments_count(log), 1);
    ck_assert_int_eq(follow(log, 25), 0);
    assert_inside(log, 27, 25);
    ck_assert_uint_eq(log_segments_count(log), 1);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

SUITE_MAIN("storage/trim", SUITE_TEST(every_offset_can_be_the_new_start),
           SUITE_TEST(more_than_everything_is_everything),
           SUITE_TEST(readers_at_the_end_see_what_comes_after_everything_is_gone),
           SUITE_TEST(the_names_that_stay_are_synced_before_others_go),
           SUITE_TEST(a_truncation_does_not_give_deleted_offsets_again),
           SUITE_TEST(after_a_crash_the_log_goes_on_behind_what_was_deleted),
           SUITE_TEST(a_raised_start_is_on_the_disk_at_once_and_does_not_go_back),
           SUITE_TEST(a_follower_may_begin_inside_a_batch), SUITE_TEST(a_torn_batch_around_the_start_is_taken_again),
           SUITE_TEST(what_lies_below_the_start_is_not_in_the_way))
