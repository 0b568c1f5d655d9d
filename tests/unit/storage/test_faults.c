#include "broker/storage/partition_metadata.h"
#include "tests/support/faulty_io.h"
#include "tests/unit/storage/fixture.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* A sequence of appends, small and large, single and merged, over several rolls. Failing ones are tried again
 * after healing. Returns how many records are stored. */
static int64_t append_through(struct log *log, int appends)
{
    int64_t next = 0;
    for (int i = 0; i < appends; i++) {
        int count = 1 + i % 3 * 4;
        struct log_batch batches[16];
        int64_t base = -1;
        for (int k = 0; k < count; k++)
            batches[k] = batches_make(1 + k % 3, T0 + i, 1, 150, (uint32_t)i);
        struct brook_error error = {0};
        int r = log_append(log, batches, (size_t)count, i / 6, T0 + i, &base, &error);
        if (r != 0) {
            ck_assert(r == -BROOK_E_STORAGE_FULL || r == -BROOK_E_STORAGE_ERROR);
            ck_assert_int_eq(base, -1);
            ck_assert_int_eq(log_end_offset(log), next);
            ck_assert(strlen(error.text) > 0);
            faulty_reset();
            ck_assert_int_eq(log_append(log, batches, (size_t)count, i / 6, T0 + i, &base, &error), 0);
        }
        ck_assert_int_eq(base, next);
        for (int k = 0; k < count; k++) {
            next += 1 + k % 3;
            batches_free(&batches[k]);
        }
        ck_assert_int_eq(log_end_offset(log), next);
    }
    return next;
}

#define APPENDS 16

static struct log_settings settings(void)
{
    struct log_settings s = fixture_settings();
    s.segment_bytes = 3000;
    return s;
}

static void assert_sound(const char *path, struct log *log, int64_t records)
{
    struct log_settings s = settings();
    ck_assert_int_eq(fixture_read_all(log, 0, true), records);
    ck_assert_int_eq(log_close(log), 0);
    for (int unclean = 0; unclean < 2; unclean++) {
        struct log_recovery recovery;
        log = fixture_open_reporting(path, &s, unclean ? &fixture_unclean : &fixture_clean, &recovery);
        ck_assert_int_eq(recovery.bytes_cut, 0);
        ck_assert_int_eq(fixture_read_all(log, 0, true), records);
        ck_assert_int_eq(log_close(log), 0);
    }
}

static int calls_of_a_quiet_run(unsigned kinds)
{
    struct log_settings s = settings();
    const char *path = fixture_log_path("quiet");
    suite_remove_tree(path);
    struct log *log = fixture_open(path, &s, &fixture_clean);
    faulty_reset();
    append_through(log, APPENDS);
    int calls = faulty_calls(kinds);
    ck_assert_int_eq(log_close(log), 0);
    return calls;
}

START_TEST(append_fails_whole_at_every_disk_call)
{
    struct log_settings s = settings();
    int calls = calls_of_a_quiet_run(FAULTY_CHANGES);
    ck_assert_int_gt(calls, 2 * APPENDS);
    for (int k = 1; k <= calls; k++) {
        const char *path = fixture_log_path("kth");
        suite_remove_tree(path);
        struct log *log = fixture_open(path, &s, &fixture_clean);
        faulty_fail(FAULTY_CHANGES, k, 1, k % 2 ? ENOSPC : EIO);
        int64_t records = append_through(log, APPENDS);
        faulty_reset();
        assert_sound(path, log, records);
    }
}
END_TEST

START_TEST(append_fails_whole_at_every_short_write)
{
    struct log_settings s = settings();
    int writes = calls_of_a_quiet_run(FAULTY_PWRITEV);
    for (int k = 1; k <= writes; k++) {
        for (int goes_on = 0; goes_on < 2; goes_on++) {
            const char *path = fixture_log_path("short");
            suite_remove_tree(path);
            struct log *log = fixture_open(path, &s, &fixture_clean);
            faulty_shorten(k, 1 + (size_t)k * 37 % 200, goes_on ? 0 : ENOSPC);
            int64_t records = append_through(log, APPENDS);
            ck_assert(faulty_struck() || !goes_on); /* after a failure the rule is gone already */
            faulty_reset();
            assert_sound(path, log, records);
        }
    }
}
END_TEST

START_TEST(a_full_disk_is_told_from_a_broken_one)
{
    struct log_settings s = settings();
    struct log *log = fixture_open(fixture_log_path("codes"), &s, &fixture_clean);
    const int errors[] = {ENOSPC, EDQUOT, EIO, EROFS};
    const int codes[] = {-BROOK_E_STORAGE_FULL, -BROOK_E_STORAGE_FULL, -BROOK_E_STORAGE_ERROR,
                         -BROOK_E_STORAGE_ERROR};
    for (int i = 0; i < 4; i++) {
        struct log_batch b = batches_make(1, T0, 0, 10, 0);
        int64_t base;
        faulty_fail(FAULTY_PWRITEV, 1, 1, errors[i]);
        ck_assert_int_eq(log_append(log, &b, 1, 0, T0, &base, NULL), codes[i]);
        batches_free(&b);
    }
    faulty_reset();
    ck_assert_int_eq(fixture_append(log, 1, T0, 10), 0);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

START_TEST(a_log_that_can_not_be_cut_back_goes_offline_and_still_reads)
{
    struct log_settings s = settings();
    const char *path = fixture_log_path("offline");
    struct log *log = fixture_open(path, &s, &fixture_clean);
    fixture_append(log, 3, T0, 10);
    ck_assert_ptr_null(log_offline_reason(log));
    struct log_batch b = batches_make(1, T0, 0, 100, 0);
    int64_t base;
    /* The write falls short, its continuation and the truncation fail. */
    faulty_fail(FAULTY_TRUNCATE, 1, 1000, EIO);
    ck_assert_int_eq(fixture_append(log, 1, T0, 10), 3);
    faulty_fail(FAULTY_PWRITEV | FAULTY_TRUNCATE, 1, 1000, EIO);
    ck_assert_int_eq(log_append(log, &b, 1, 0, T0, &base, NULL), -BROOK_E_STORAGE_ERROR);
    faulty_reset();
    ck_assert_ptr_nonnull(log_offline_reason(log));
    ck_assert(!log_sync_failed(log));
    struct brook_error error = {0};
    ck_assert_int_eq(log_append(log, &b, 1, 0, T0, &base, &error), -BROOK_E_LOG_OFFLINE);
    ck_assert_ptr_nonnull(strstr(error.text, "cut back"));
    ck_assert_int_eq(log_retain(log, T0), -BROOK_E_LOG_OFFLINE);
    ck_assert_int_eq(fixture_read_all(log, 0, true), 4);
    ck_assert_int_eq(log_close(log), -BROOK_E_STORAGE_ERROR);
    log = fixture_open(path, &s, &fixture_unclean);
    ck_assert_int_eq(fixture_append(log, 1, T0, 10), 4);
    ck_assert_int_eq(log_close(log), 0);
    batches_free(&b);
}
END_TEST

/* ---- syncing ------------------------------------------------------------------------------------------- */

START_TEST(a_failed_sync_takes_the_log_offline_and_is_not_tried_again)
{
    struct log_settings s = settings();
    struct log *log = fixture_open(fixture_log_path("sync"), &s, &fixture_clean);
    fixture_append(log, 1, T0, 10);
    ck_assert_int_eq(log_flush(log), 0);
    ck_assert_int_eq(log_durable_end(log), 1);
    fixture_append(log, 1, T0, 10);
    faulty_fail(FAULTY_DATASYNC, 1, 1, EIO);
    ck_assert_int_eq(log_flush(log), -BROOK_E_STORAGE_ERROR);
    faulty_reset();
    ck_assert_int_eq(log_durable_end(log), 1);
    ck_assert_int_eq(log_flush(log), -BROOK_E_STORAGE_ERROR);
    ck_assert_int_eq(faulty_calls(FAULTY_DATASYNC), 0);
    ck_assert_ptr_nonnull(log_offline_reason(log));
    ck_assert(log_sync_failed(log));
    ck_assert_int_eq(log_close(log), -BROOK_E_STORAGE_ERROR);
}
END_TEST

START_TEST(nothing_is_synced_twice)
{
    struct log_settings s = settings();
    struct log *log = fixture_open(fixture_log_path("once"), &s, &fixture_clean);
    fixture_append(log, 1, T0, 10);
    ck_assert_int_eq(log_flush(log), 0);
    faulty_reset();
    ck_assert_int_eq(log_flush(log), 0);
    ck_assert_int_eq(faulty_calls(FAULTY_DATASYNC | FAULTY_SYNC_DIRECTORY), 0);
    fixture_append(log, 1, T0, 10);
    ck_assert_int_eq(log_flush(log), 0);
    ck_assert_int_eq(faulty_calls(FAULTY_DATASYNC), 1);
    ck_assert_int_eq(faulty_calls(FAULTY_SYNC_DIRECTORY), 0);
    ck_assert_int_eq(log_close(log), 0);
    ck_assert_int_eq(faulty_calls(FAULTY_DATASYNC), 1);
}
END_TEST

/* The syncs of one flush over three segments, as one string. */
START_TEST(a_flush_syncs_old_segments_then_the_directory_then_the_newest)
{
    struct log_settings s = settings();
    struct log *log = fixture_open(fixture_log_path("order"), &s, &fixture_clean);
    s.segment_bytes = 200;
    log_configure(log, &s);
    fixture_append(log, 1, T0, 100);
    ck_assert_int_eq(log_flush(log), 0); /* the first one names the log too */
    for (int i = 0; i < 3; i++)
        fixture_append(log, 1, T0, 100); /* a segment each */
    ck_assert_uint_eq(log_segments_count(log), 4);
    faulty_reset();
    faulty_record();
    ck_assert_int_eq(log_flush(log), 0);
    size_t count;
    const struct faulty_call *calls = faulty_history(&count);
    const char *const expected[] = {"00000000000000000001.log", "00000000000000000002.log", "order",
                                    "00000000000000000003.log"};
    ck_assert_uint_eq(count, 4);
    for (size_t i = 0; i < count; i++) {
        ck_assert_int_eq(calls[i].kind, i == 2 ? FAULTY_SYNC_DIRECTORY : FAULTY_DATASYNC);
        ck_assert_str_eq(calls[i].name, expected[i]);
    }
    ck_assert_int_eq(log_durable_end(log), 4);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

/* Making one syncs nothing, since nothing depends on it yet. Then all that leads to a record is durable before it
 * counts: the topic id, the directory's own name, the segment's name, the bytes. */
START_TEST(a_new_log_is_named_durably_before_it_counts_as_durable)
{
    struct log_settings s = settings();
    static const uint8_t id[16] = {1};
    char path[PATH_MAX];
    faulty_reset();
    struct log *log = fixture_open(fixture_log_path("named"), &s, &fixture_clean);
    fixture_path(path, fixture_log_path("named"), PARTITION_METADATA_FILE);
    ck_assert_int_eq(partition_metadata_save(path, id, false, NULL), 0);
    ck_assert_int_eq(log_flush(log), 0);
    ck_assert_int_eq(faulty_calls(FAULTY_DATASYNC | FAULTY_SYNC_DIRECTORY), 0);
    fixture_append(log, 1, T0, 10);
    faulty_reset();
    faulty_record();
    ck_assert_int_eq(log_flush(log), 0);
    ck_assert_int_eq(log_durable_end(log), 1);
    size_t count, syncs = 0;
    const struct faulty_call *calls = faulty_history(&count);
    const char *parent = strrchr(suite_directory(), '/') + 1;
    const char *const expected[] = {PARTITION_METADATA_FILE, parent, "named", "00000000000000000000.log"};
    for (size_t i = 0; i < count; i++)
        if (calls[i].kind & (FAULTY_DATASYNC | FAULTY_SYNC_DIRECTORY)) {
            ck_assert_uint_lt(syncs, 4);
            ck_assert_str_eq(calls[i].name, expected[syncs++]);
        }
    ck_assert_uint_eq(syncs, 4);
    fixture_append(log, 1, T0, 10);
    faulty_reset();
    ck_assert_int_eq(log_flush(log), 0);
    ck_assert_int_eq(faulty_calls(FAULTY_DATASYNC | FAULTY_SYNC_DIRECTORY), 1);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

/* Nobody knows whether a log that was found empty was ever synced; one that was found with records after a crash may
 * have had none that were. */
START_TEST(a_log_that_was_found_is_named_durably_too)
{
    struct log_settings s = settings();
    char copy[PATH_MAX];
    faulty_reset();
    ck_assert_int_eq(log_close(fixture_open(fixture_log_path("found"), &s, &fixture_clean)), 0);
    ck_assert_int_eq(faulty_calls(FAULTY_DATASYNC | FAULTY_SYNC_DIRECTORY), 0);
    struct log *log = fixture_open(fixture_log_path("found"), &s, &fixture_clean);
    fixture_append(log, 1, T0, 10);
    faulty_reset();
    ck_assert_int_eq(log_flush(log), 0);
    ck_assert_int_eq(faulty_calls(FAULTY_SYNC_DIRECTORY), 2);
    fixture_append(log, 1, T0, 10);
    snprintf(copy, sizeof copy, "%.3000s-again", fixture_log_path("found"));
    fixture_copy_directory(fixture_log_path("found"), copy);
    ck_assert_int_eq(log_close(log), 0);
    faulty_reset();
    log = fixture_open(copy, &s, &fixture_unclean);
    ck_assert_int_eq(faulty_calls(FAULTY_SYNC_DIRECTORY), 2);
    ck_assert_int_eq(faulty_calls(FAULTY_DATASYNC), 1);
    ck_assert_int_eq(log_durable_end(log), 2);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

START_TEST(a_replaced_file_is_synced_before_its_name_and_its_name_after)
{
    struct log_settings s = settings();
    struct log *log = fixture_open(fixture_log_path("replace"), &s, &fixture_clean);
    fixture_append(log, 1, T0, 10);
    ck_assert_int_eq(log_flush(log), 0);
    ck_assert_int_eq(log_truncate(log, 0, NULL), 0); /* the epoch file has to be written at the close */
    faulty_reset();
    faulty_record();
    ck_assert_int_eq(log_close(log), 0);
    size_t count, sync = 0, renamed = 0, directory = 0;
    const struct faulty_call *calls = faulty_history(&count);
    for (size_t i = 0; i < count; i++) {
        if (calls[i].kind == FAULTY_DATASYNC && !strcmp(calls[i].name, "leader-epoch-checkpoint.tmp"))
            sync = i + 1;
        if (calls[i].kind == FAULTY_RENAME && !strcmp(calls[i].name, "leader-epoch-checkpoint"))
            renamed = i + 1;
        if (calls[i].kind == FAULTY_SYNC_DIRECTORY && renamed && !directory)
            directory = i + 1;
    }
    ck_assert(sync > 0 && renamed > sync && directory > renamed);
}
END_TEST

START_TEST(opening_fails_at_every_disk_call_and_harms_nothing)
{
    struct log_settings s = settings();
    const char *path = fixture_log_path("opening");
    struct log *log = fixture_open(path, &s, &fixture_clean);
    int64_t records = append_through(log, APPENDS);
    ck_assert_int_eq(log_close(log), 0);
    bool struck = true;
    for (int k = 1; struck; k++) {
        struct brook_error error = {0};
        faulty_fail(FAULTY_CHANGES | FAULTY_PREAD, k, 1, EIO);
        int r = log_open(path, &s, &fixture_unclean, &log, NULL, &error);
        struck = faulty_struck();
        faulty_reset();
        if (r == 0)
            ck_assert_int_eq(log_close(log), 0);
        else
            ck_assert_msg(strlen(error.text) > 0, "call %d: %d without a word", k, r);
        log = fixture_open(path, &s, &fixture_unclean);
        ck_assert_int_eq(fixture_read_all(log, 0, true), records);
        ck_assert_int_eq(log_close(log), 0);
    }
}
END_TEST

static void *flush_thread(void *arg)
{
    ck_assert_int_eq(log_flush(arg), 0);
    return NULL;
}

static bool one_is_stalled(void *arg)
{
    return faulty_stalled() == 1;
}

START_TEST(a_sync_says_nothing_about_what_was_cut_and_written_anew_meanwhile)
{
    struct log_settings s = settings();
    faulty_reset();
    struct log *log = fixture_open(fixture_log_path("meanwhile"), &s, &fixture_clean);
    for (int i = 0; i < 4; i++)
        fixture_append(log, 1, T0, 10);
    faulty_stall(FAULTY_DATASYNC);
    pthread_t thread;
    pthread_create(&thread, NULL, flush_thread, log);
    ck_assert(suite_wait(one_is_stalled, NULL, 5000));
    ck_assert_int_eq(log_truncate(log, 1, NULL), 0);
    for (int i = 0; i < 4; i++)
        fixture_append(log, 1, T0, 20);
    faulty_release();
    pthread_join(thread, NULL);
    ck_assert_int_le(log_durable_end(log), 1);
    ck_assert_int_eq(log_flush(log), 0);
    ck_assert_int_eq(log_durable_end(log), 5);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

START_TEST(a_log_opens_and_reads_on_a_full_disk)
{
    struct log_settings s = settings();
    const char *path = fixture_log_path("full");
    faulty_reset();
    struct log *log = fixture_open(path, &s, &fixture_clean);
    int64_t records = append_through(log, APPENDS);
    ck_assert_int_eq(log_close(log), 0);
    faulty_fail(FAULTY_PWRITEV, 1, 1 << 30, ENOSPC);
    log = fixture_open(path, &s, &fixture_unclean);
    ck_assert_int_eq(fixture_read_all(log, 0, true), records);
    int64_t offset, timestamp;
    ck_assert_int_eq(log_find_time(log, T0 + 5, INT64_MAX, 1 << 20, &offset, &timestamp), 0);
    struct log_batch b = batches_make(1, T0, 0, 10, 0);
    int64_t base;
    ck_assert_int_eq(log_append(log, &b, 1, 9, T0, &base, NULL), -BROOK_E_STORAGE_FULL);
    faulty_reset(); /* there is room again: service returns, and so do the indexes */
    ck_assert_int_eq(log_append(log, &b, 1, 9, T0, &base, NULL), 0);
    ck_assert_int_eq(base, records);
    ck_assert_int_eq(log_retain(log, T0), 0);
    ck_assert_int_eq(fixture_read_all(log, 0, true), records + 1);
    ck_assert_int_eq(log_close(log), 0);
    struct log_recovery recovery;
    log = fixture_open_reporting(path, &s, &fixture_clean, &recovery);
    ck_assert_int_le(recovery.indexes_rebuilt, 1); /* the one that was active */
    ck_assert_int_eq(fixture_read_all(log, 0, true), records + 1);
    ck_assert_int_eq(log_close(log), 0);
    batches_free(&b);
}
END_TEST

/* ---- removing ------------------------------------------------------------------------------------------ */

/* Whether there is no segment that begins at the log's end: such a one is empty, and needs no index. */
static bool ends_in_records(const char *path, int64_t end)
{
    char name[64];
    snprintf(name, sizeof name, "%020lld.log", (long long)end);
    return fixture_count_files(path, name) == 0;
}

/* Whatever a removal that failed half way leaves, the log must open again, read whole, and be free of
 * leftovers. */
static void assert_opens_after(const char *path, int64_t end_min, int64_t end_max)
{
    struct log_settings s = settings();
    struct log *log = fixture_open(path, &s, &fixture_unclean);
    int64_t start = log_start_offset(log), end = log_end_offset(log);
    ck_assert_int_ge(end, end_min);
    ck_assert_int_le(end, end_max);
    ck_assert_int_eq(fixture_read_all(log, start, true), end - start);
    ck_assert_int_eq(fixture_count_files(path, ".deleted"), 0);
    ck_assert_int_eq(fixture_count_files(path, ".log"), (int)log_segments_count(log));
    int with_records = (int)log_segments_count(log) - !ends_in_records(path, end);
    ck_assert_int_ge(fixture_count_files(path, ".timeindex"), with_records);
    ck_assert_int_le(fixture_count_files(path, ".timeindex"), (int)log_segments_count(log));
    ck_assert_int_eq(log_close(log), 0);
}

/* What a cached read answers when the k-th of its looks at the page cache finds nothing: the same range as
 * without that, or that it would have to wait; and it never does. */
START_TEST(a_cached_read_never_waits_for_the_disk)
{
    suite_use_disk();
    struct log_settings s = fixture_settings();
    faulty_reset();
    struct log *log = fixture_open(fixture_log_path("cached"), &s, &fixture_clean);
    int64_t end = append_through(log, 60);
    ck_assert_uint_gt(log_segments_count(log), 2);
    int refusals = 0;
    for (int64_t offset = 0; offset < end; offset += 7) {
        struct log_range waited, got;
        ck_assert_int_eq(log_read(log, offset, end - 1, 1500, true, 1 << 20, &waited), 0);
        for (int k = 1;; k++) {
            faulty_fail(FAULTY_PREAD_CACHED, k, 1, EAGAIN);
            int r = log_read_cached(log, offset, end - 1, 1500, true, 1 << 20, &got);
            ck_assert_int_eq(faulty_calls(FAULTY_PREAD), 0);
            ck_assert(r == 0 || (r == -BROOK_E_LOCKED && faulty_struck()));
            refusals += r != 0;
            if (r != 0)
                continue;
            ck_assert_int_eq(got.position, waited.position);
            ck_assert(got.bytes == waited.bytes || faulty_struck()); /* perhaps not cut to whole batches */
            log_range_done(&got);
            if (!faulty_struck())
                break;
        }
        /* Where the file system can not tell, it waits after all. */
        faulty_fail(FAULTY_PREAD_CACHED, 1, 1000000, EOPNOTSUPP);
        ck_assert_int_eq(log_read_cached(log, offset, end - 1, 1500, true, 1 << 20, &got), 0);
        ck_assert_int_eq(got.position, waited.position);
        ck_assert_uint_eq(got.bytes, waited.bytes);
        log_range_done(&got);
        log_range_done(&waited);
    }
    ck_assert_int_gt(refusals, 10);
    faulty_reset();
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

START_TEST(retention_may_fail_at_every_disk_call)
{
    struct log_settings s = settings();
    s.retention_ms = 1000;
    bool struck = true;
    for (int k = 1; struck; k++) {
        const char *path = fixture_log_path("retain");
        suite_remove_tree(path);
        faulty_reset();
        struct log *log = fixture_open(path, &s, &fixture_clean);
        int64_t records = append_through(log, APPENDS);
        faulty_fail(FAULTY_CHANGES, k, 1, EIO);
        int r = log_retain(log, T0 + 5000);
        struck = faulty_struck();
        ck_assert(r >= 0 || r == -BROOK_E_STORAGE_ERROR);
        ck_assert_int_eq(log_end_offset(log), records);
        int64_t start = log_start_offset(log);
        if (k % 2) { /* go on: it must come right by itself */
            faulty_reset();
            ck_assert_int_ge(log_retain(log, T0 + 5000), 0);
            ck_assert_int_eq(log_start_offset(log), records);
            ck_assert_int_eq(fixture_append(log, 1, T0, 10), records);
            records++;
        } else {
            ck_assert_int_eq(fixture_read_all(log, start, true), records - start);
        }
        faulty_reset();
        ck_assert_int_eq(log_close(log), 0);
        assert_opens_after(path, records, records);
    }
}
END_TEST

START_TEST(a_truncation_that_fails_anywhere_leaves_a_log_that_opens)
{
    struct log_settings s = settings();
    bool struck = true;
    for (int k = 1; struck; k++) {
        const char *path = fixture_log_path("truncate");
        suite_remove_tree(path);
        faulty_reset();
        struct log *log = fixture_open(path, &s, &fixture_clean);
        int64_t records = append_through(log, APPENDS);
        faulty_fail(FAULTY_CHANGES, k, 1, EIO);
        int r = log_truncate(log, records / 2, NULL);
        struck = faulty_struck();
        faulty_reset();
        ck_assert(r == 0 || log_offline_reason(log) != NULL || log_end_offset(log) == records);
        log_close(log);
        assert_opens_after(path, r == 0 ? records / 2 - 3 : 0, r == 0 ? records / 2 : records);
    }
}
END_TEST

SUITE_MAIN("storage/faults", SUITE_TEST_SLOW(append_fails_whole_at_every_disk_call, 60),
           SUITE_TEST_SLOW(append_fails_whole_at_every_short_write, 60),
           SUITE_TEST(a_full_disk_is_told_from_a_broken_one),
           SUITE_TEST(a_cached_read_never_waits_for_the_disk),
           SUITE_TEST(a_log_that_can_not_be_cut_back_goes_offline_and_still_reads),
           SUITE_TEST(a_failed_sync_takes_the_log_offline_and_is_not_tried_again),
           SUITE_TEST(nothing_is_synced_twice),
           SUITE_TEST(a_flush_syncs_old_segments_then_the_directory_then_the_newest),
           SUITE_TEST(a_new_log_is_named_durably_before_it_counts_as_durable),
           SUITE_TEST(a_log_that_was_found_is_named_durably_too),
           SUITE_TEST(a_replaced_file_is_synced_before_its_name_and_its_name_after),
           SUITE_TEST_SLOW(opening_fails_at_every_disk_call_and_harms_nothing, 60),
           SUITE_TEST(a_sync_says_nothing_about_what_was_cut_and_written_anew_meanwhile),
           SUITE_TEST(a_log_opens_and_reads_on_a_full_disk),
           SUITE_TEST(retention_may_fail_at_every_disk_call),
           SUITE_TEST(a_truncation_that_fails_anywhere_leaves_a_log_that_opens))
