/* What a log knows of idempotent producers: over appends, failures, restarts, cuts and retention. */
#include "tests/support/faulty_io.h"
#include "tests/unit/storage/fixture.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct log_settings settings;
static const char *path;

static struct log *begin(const char *name)
{
    static char copy[PATH_MAX];
    faulty_reset();
    settings = fixture_settings();
    snprintf(copy, sizeof copy, "%s", fixture_log_path(name));
    path = copy;
    return fixture_open(path, &settings, &fixture_clean);
}

static struct log *reopen(struct log *log, const struct log_hint *hint)
{
    log_close(log);
    return fixture_open(path, &settings, hint);
}

/* As a process that is killed: nothing is written at the end. */
static struct log *crash(struct log *log)
{
    char aside[PATH_MAX];
    snprintf(aside, sizeof aside, "%s-crashed", path);
    suite_remove_tree(aside);
    fixture_copy_directory(path, aside);
    log_close(log);
    suite_remove_tree(path);
    rename(aside, path);
    return fixture_open(path, &settings, &fixture_unclean);
}

struct sent {
    int result; /* of judging or appending */
    bool is_duplicate;
    int64_t offset;
};

/* One batch through judging and appending, as a leader does it. */
static struct sent send_sized(struct log *log, int64_t id, int epoch, int32_t sequence, int records, size_t bytes)
{
    struct log_batch b = batches_make(records, T0, 0, bytes, (uint32_t)sequence);
    struct log_judgement j;
    struct brook_error error = {0};
    int64_t base;
    batches_sign(&b, id, (int16_t)epoch, sequence);
    log_judge_begin(log);
    struct sent sent = {.offset = -1};
    sent.result = log_judge(log, &b, 1, T0, &j, &error);
    sent.is_duplicate = sent.result == 0 && j.duplicates == 1;
    if (sent.result != 0 || sent.is_duplicate)
        log_judge_end(log);
    else
        sent.result = log_append(log, &b, 1, 0, T0, &base, &error);
    if (sent.result == 0)
        sent.offset = b.header.base_offset;
    batches_free(&b);
    return sent;
}

static struct sent send(struct log *log, int64_t id, int epoch, int32_t sequence, int records)
{
    return send_sized(log, id, epoch, sequence, records, 10);
}

#define NEW(...) \
    do { \
        struct sent s_ = send(__VA_ARGS__); \
        ck_assert_int_eq(s_.result, 0); \
        ck_assert(!s_.is_duplicate); \
    } while (0)
#define REPEATED(at, ...) \
    do { \
        struct sent s_ = send(__VA_ARGS__); \
        ck_assert_int_eq(s_.result, 0); \
        ck_assert(s_.is_duplicate); \
        ck_assert_int_eq(s_.offset, at); \
    } while (0)
#define REFUSED(code, ...) ck_assert_int_eq(send(__VA_ARGS__).result, -(code))

START_TEST(log_without_idempotent_batches_has_no_snapshot)
{
    struct log *log = begin("none");
    for (int i = 0; i < 100; i++)
        fixture_append(log, 3, T0, 40);
    log = reopen(log, &fixture_clean);
    ck_assert_uint_gt(log_segments_count(log), 2);
    ck_assert_int_eq(fixture_count_files(path, ".snapshot"), 0);
    log_close(log);
}
END_TEST

START_TEST(state_survives_clean_and_unclean_restarts)
{
    struct log *log = begin("restarts");
    NEW(log, 7, 0, 0, 4);
    NEW(log, 8, 2, 0, 1);
    NEW(log, 7, 0, 4, 2);
    log = crash(log); /* from the batches alone */
    ck_assert_int_eq(fixture_count_files(path, ".snapshot"), 0);
    REPEATED(0, log, 7, 0, 0, 4);
    REPEATED(5, log, 7, 0, 4, 2);
    REFUSED(BROOK_E_OUT_OF_SEQUENCE, log, 7, 0, 7, 1);
    log = reopen(log, &fixture_clean); /* from the snapshot alone */
    ck_assert_int_eq(fixture_count_files(path, ".snapshot"), 1);
    REPEATED(5, log, 7, 0, 4, 2);
    REPEATED(4, log, 8, 2, 0, 1);
    REFUSED(BROOK_E_PRODUCER_FENCED, log, 8, 1, 1, 1);
    NEW(log, 7, 0, 6, 1);
    log = crash(log); /* from both */
    REPEATED(4, log, 8, 2, 0, 1);
    REPEATED(7, log, 7, 0, 6, 1);
    NEW(log, 8, 2, 1, 1);
    log_close(log);
}
END_TEST

/* A recovery point above them keeps the start from looking at the segments where they lie. */
START_TEST(producer_of_an_old_segment_is_known_after_a_crash)
{
    struct log *log = begin("old");
    NEW(log, 7, 0, 0, 4);
    for (int i = 0; i < 100; i++)
        fixture_append(log, 3, T0, 40);
    ck_assert_int_ge(fixture_count_files(path, ".snapshot"), 1);
    ck_assert_int_le(fixture_count_files(path, ".snapshot"), 2);
    struct log_hint hint = {.recovery_point = log_end_offset(log), .start_offset = -1};
    log_close(log);
    struct log_recovery found;
    log = fixture_open_reporting(path, &settings, &hint, &found);
    REPEATED(0, log, 7, 0, 0, 4);
    NEW(log, 7, 0, 4, 1);
    log_close(log);
}
END_TEST

START_TEST(snapshots_that_make_no_sense_are_made_up_for_by_the_batches)
{
    struct log *log = begin("damaged");
    NEW(log, 7, 0, 0, 4);
    for (int i = 0; i < 100; i++)
        fixture_append(log, 3, T0, 40);
    int64_t end = log_end_offset(log);
    char name[64];
    snprintf(name, sizeof name, "%020lld.snapshot", (long long)end);
    log = reopen(log, &fixture_clean);
    log_close(log);
    for (int64_t offset = 0; offset <= end; offset++) {
        char each[64];
        char full[PATH_MAX];
        snprintf(each, sizeof each, "%020lld.snapshot", (long long)offset);
        fixture_path(full, path, each);
        if (access(full, F_OK) == 0)
            fixture_store(path, each, "nonsense", 8);
    }
    log = fixture_open(path, &settings, &fixture_clean);
    REPEATED(0, log, 7, 0, 0, 4);
    REFUSED(BROOK_E_OUT_OF_SEQUENCE, log, 7, 0, 5, 1);
    log_close(log);
}
END_TEST

/* The tail that a snapshot tells of is torn off: what is sent again is new. */
START_TEST(snapshot_beyond_the_end_is_not_believed)
{
    struct log *log = begin("beyond");
    NEW(log, 7, 0, 0, 4);
    NEW(log, 7, 0, 4, 4);
    log_close(log);
    ck_assert_int_eq(fixture_count_files(path, ".snapshot"), 1);
    void *data;
    size_t bytes = fixture_load(path, "00000000000000000000.log", &data);
    fixture_store(path, "00000000000000000000.log", data, bytes - 1);
    free(data);
    log = fixture_open(path, &settings, &fixture_unclean);
    ck_assert_int_eq(log_end_offset(log), 4);
    ck_assert_int_eq(fixture_count_files(path, ".snapshot"), 0);
    NEW(log, 7, 0, 4, 4);
    REPEATED(0, log, 7, 0, 0, 4);
    log_close(log);
}
END_TEST

START_TEST(append_that_fails_at_any_disk_call_leaves_the_state_as_it_was)
{
    int failures = 0;
    for (int k = 1; k < 40; k++) {
        struct log *log = begin("fails");
        settings.segment_bytes = 600;
        log_configure(log, &settings);
        NEW(log, 7, 0, 0, 4);
        faulty_fail(FAULTY_CHANGES, k, 1, EIO);
        struct sent one = send_sized(log, 7, 0, 4, 2, 250); /* rolls */
        struct sent two = one.result == 0 ? send_sized(log, 7, 0, 6, 2, 250) : one;
        faulty_reset();
        failures += two.result != 0;
        if (log_offline_reason(log)) {
            log_close(log);
            suite_remove_tree(path);
            continue;
        }
        REPEATED(0, log, 7, 0, 0, 4);
        struct sent again = send_sized(log, 7, 0, one.result == 0 ? 6 : 4, 2, 250);
        ck_assert_int_eq(again.result, 0);
        ck_assert(again.is_duplicate == (two.result == 0));
        log = crash(log);
        REPEATED(0, log, 7, 0, 0, 4);
        REPEATED(4, log, 7, 0, 4, 2);
        NEW(log, 7, 0, one.result == 0 ? 8 : 6, 1);
        log_close(log);
        suite_remove_tree(path);
    }
    ck_assert_int_gt(failures, 3);
}
END_TEST

/* Several appends in one write, one of them a repetition of another. */
START_TEST(batches_written_together_are_judged_in_order)
{
    struct log *log = begin("together");
    struct log_batch b[3], all[2];
    struct log_judgement j;
    struct brook_error error = {0};
    int64_t base;
    for (int i = 0; i < 3; i++)
        b[i] = batches_make(2, T0, 0, 10, (uint32_t)i);
    batches_sign(&b[0], 7, 0, 0);
    batches_sign(&b[1], 7, 0, 2);
    batches_sign(&b[2], 7, 0, 0);
    log_judge_begin(log);
    ck_assert_int_eq(log_judge(log, &b[1], 1, T0, &j, &error), -BROOK_E_UNKNOWN_PRODUCER);
    ck_assert_int_eq(log_judge(log, &b[0], 1, T0, &j, &error), 0);
    ck_assert_int_eq(log_judge(log, &b[1], 1, T0, &j, &error), 0);
    ck_assert_uint_eq(j.duplicates, 0);
    ck_assert_int_eq(log_judge(log, &b[2], 1, T0, &j, &error), 0);
    ck_assert_uint_eq(j.duplicates, 1);
    ck_assert_int_eq(b[2].header.base_offset, 0);
    ck_assert_int_eq(j.last_offset, 1);
    all[0] = b[0], all[1] = b[1];
    ck_assert_int_eq(log_append(log, all, 2, 0, T0, &base, &error), 0);
    ck_assert_int_eq(log_end_offset(log), 4);
    /* One append of which the beginning is there already. */
    batches_sign(&b[0], 7, 0, 2);
    batches_sign(&b[1], 7, 0, 4);
    log_judge_begin(log);
    ck_assert_int_eq(log_judge(log, b, 2, T0, &j, &error), 0);
    ck_assert_uint_eq(j.duplicates, 1);
    ck_assert_int_eq(b[0].header.base_offset, 2);
    ck_assert_int_eq(b[1].header.base_offset, 4);
    ck_assert_int_eq(log_append(log, b + 1, 1, 0, T0, &base, &error), 0);
    /* Not of one producer, not in sequence. */
    batches_sign(&b[0], 7, 0, 6);
    batches_sign(&b[1], 8, 0, 0);
    log_judge_begin(log);
    ck_assert_int_eq(log_judge(log, b, 2, T0, &j, &error), -BROOK_E_BAD_BATCH);
    batches_sign(&b[1], 7, 0, 9);
    ck_assert_int_eq(log_judge(log, b, 2, T0, &j, &error), -BROOK_E_OUT_OF_SEQUENCE);
    log_judge_end(log);
    NEW(log, 7, 0, 6, 2);
    for (int i = 0; i < 3; i++)
        batches_free(&b[i]);
    log_close(log);
}
END_TEST

START_TEST(follower_keeps_the_state_and_a_cut_takes_it_back)
{
    struct log *log = begin("follower");
    struct brook_error error = {0};
    int64_t offset = 0;
    for (int i = 0; i < 60; i++) {
        struct log_batch b = batches_make(2, T0, 0, 100, (uint32_t)i);
        batches_sign(&b, 7 + i % 2, 0, i / 2 * 2);
        batches_place(&b, offset, 3);
        ck_assert_int_eq(log_append_as_follower(log, &b, 1, T0, &error), 0);
        offset += 2;
        batches_free(&b);
    }
    ck_assert_uint_gt(log_segments_count(log), 2);
    REPEATED(118, log, 8, 0, 58, 2);
    /* A little, as far as it is remembered; then far back, into an older segment. */
    ck_assert_int_eq(log_truncate(log, 116, &error), 0);
    REPEATED(114, log, 8, 0, 56, 2);
    NEW(log, 8, 0, 58, 2);
    ck_assert_int_eq(log_truncate(log, 20, &error), 0);
    REPEATED(18, log, 8, 0, 8, 2);
    REPEATED(16, log, 7, 0, 8, 2);
    REFUSED(BROOK_E_OUT_OF_SEQUENCE, log, 7, 0, 12, 2);
    NEW(log, 7, 0, 10, 2);
    ck_assert_int_eq(log_start_over(log, 500, T0, &error), 0);
    REFUSED(BROOK_E_UNKNOWN_PRODUCER, log, 7, 0, 12, 2);
    ck_assert_int_eq(fixture_count_files(path, ".snapshot"), 0);
    log_close(log);
}
END_TEST

START_TEST(retention_leaves_producers_until_they_expire)
{
    struct log *log = begin("retention");
    settings.retention_ms = 1000;
    settings.producer_expiration_ms = 100000;
    log_configure(log, &settings);
    NEW(log, 7, 0, 0, 4);
    ck_assert_int_eq(log_retain(log, T0 + 5000), 1);
    ck_assert_int_eq(log_start_offset(log), 4);
    REPEATED(0, log, 7, 0, 0, 4);
    log = crash(log);
    REPEATED(0, log, 7, 0, 0, 4);
    NEW(log, 7, 0, 4, 1);
    log_retain(log, T0 + 200000);
    REFUSED(BROOK_E_UNKNOWN_PRODUCER, log, 7, 0, 5, 1);
    NEW(log, 7, 1, 0, 1);
    log_close(log);
}
END_TEST

SUITE_MAIN("storage/producers", SUITE_TEST(log_without_idempotent_batches_has_no_snapshot),
           SUITE_TEST(state_survives_clean_and_unclean_restarts),
           SUITE_TEST(producer_of_an_old_segment_is_known_after_a_crash),
           SUITE_TEST(snapshots_that_make_no_sense_are_made_up_for_by_the_batches),
           SUITE_TEST(snapshot_beyond_the_end_is_not_believed),
           SUITE_TEST(append_that_fails_at_any_disk_call_leaves_the_state_as_it_was),
           SUITE_TEST(batches_written_together_are_judged_in_order),
           SUITE_TEST(follower_keeps_the_state_and_a_cut_takes_it_back),
           SUITE_TEST(retention_leaves_producers_until_they_expire))
