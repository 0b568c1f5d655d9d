/* The budget of descriptors: many logs and segments, few open files, and nothing lost by closing. */
#include "broker/storage/open_files.h"

#include "tests/support/faulty_io.h"
#include "tests/unit/storage/fixture.h"

#include <dirent.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BUDGET 20
#define LOGS 500

static struct open_files *new_budget(size_t max)
{
    struct open_files *files = NULL;
    ck_assert_int_eq(open_files_new(max, &files), 0);
    return files;
}

static struct open_files_counts counts_of(struct open_files *files)
{
    struct open_files_counts c;
    open_files_counts(files, &c);
    return c;
}

static struct log *open_in(struct open_files *files, const char *name, const struct log_settings *s, bool clean)
{
    struct log_hint hint = {.clean = clean, .recovery_point = -1, .start_offset = -1, .files = files};
    return fixture_open(fixture_log_path(name), s, &hint);
}

static int descriptors(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");
    ck_assert_ptr_nonnull(dir);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

/* ---- many logs -------------------------------------------------------------------------------------- */

static struct log *logs[LOGS];

static void open_all(struct open_files *files, const struct log_settings *s)
{
    for (int i = 0; i < LOGS; i++) {
        char name[32];
        snprintf(name, sizeof name, "many-%d", i);
        logs[i] = open_in(files, name, s, true);
    }
}

static void close_all(void)
{
    for (int i = 0; i < LOGS; i++)
        ck_assert_int_eq(log_close(logs[i]), 0);
}

START_TEST(many_logs_share_few_descriptors)
{
    struct log_settings s = fixture_settings();
    faulty_reset();
    struct open_files *files = new_budget(BUDGET);
    int before = descriptors();
    open_all(files, &s);
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < LOGS; i++) {
            fixture_append(logs[i], 1, T0, 10);
            if (i % 100 == 0)
                ck_assert_int_le(descriptors(), before + BUDGET);
        }
    for (int i = 0; i < LOGS; i++)
        ck_assert_int_eq(fixture_read_all(logs[i], 0, true), 3);
    struct open_files_counts c = counts_of(files);
    ck_assert_uint_le(c.most, BUDGET);
    ck_assert_uint_ge(c.opened, 2 * LOGS);
    ck_assert_uint_ge(c.synced, 2 * (LOGS - BUDGET)); /* each was dirty when it had to go */
    close_all();
    open_files_unref(files);
    ck_assert_int_le(descriptors(), before);
}
END_TEST

/* Idle: after a checkpoint's flush and two looks. */
static void rest_all(void)
{
    for (int i = 0; i < LOGS; i++) {
        ck_assert_int_eq(log_flush(logs[i]), 0);
        for (int look = 0; look < 2; look++)
            if (log_can_rest(logs[i], INT64_MAX))
                log_rest(logs[i]);
        ck_assert(!log_can_rest(logs[i], INT64_MAX));
    }
}

START_TEST(an_idle_log_costs_no_descriptor_and_little_memory)
{
    struct log_settings s = fixture_settings();
    faulty_reset();
    struct open_files *files = new_budget(OPEN_FILES_UNLIMITED);
    size_t before = mallinfo2().uordblks;
    open_all(files, &s);
    size_t empty = (mallinfo2().uordblks - before) / LOGS;
    ck_assert_uint_eq(counts_of(files).open, 0);
    for (int i = 0; i < LOGS; i++)
        for (int k = 0; k < 3; k++)
            fixture_append(logs[i], 1, T0, 10);
    ck_assert_uint_eq(counts_of(files).open, LOGS);
    size_t busy = (mallinfo2().uordblks - before) / LOGS;
    rest_all();
    size_t idle = (mallinfo2().uordblks - before) / LOGS; /* under a sanitizer all are 0 */
    printf("# bytes of a log: empty %zu, in use %zu, idle %zu\n", empty, busy, idle);
    ck_assert_uint_eq(counts_of(files).open, 0);
    ck_assert_uint_lt(empty, 1536);
    ck_assert_uint_lt(idle, 1536);
    ck_assert_uint_ge(busy, 2 * idle); /* or there was nothing to give up */
    for (int i = 0; i < LOGS; i++) {
        fixture_append(logs[i], 1, T0, 10);
        ck_assert_int_eq(fixture_read_all(logs[i], 0, true), 4);
    }
    close_all();
    open_files_unref(files);
}
END_TEST

START_TEST(a_log_that_is_read_keeps_its_descriptor)
{
    struct log_settings s = fixture_settings();
    faulty_reset();
    struct open_files *files = new_budget(OPEN_FILES_UNLIMITED);
    struct log *log = open_in(files, "read", &s, true);
    fixture_append(log, 1, T0, 10);
    ck_assert_int_eq(log_flush(log), 0);
    ck_assert(!log_can_rest(log, T0)); /* appended just then */
    ck_assert(log_can_rest(log, T0 + 1));
    log_rest(log);
    ck_assert_uint_eq(counts_of(files).open, 1);
    fixture_read_all(log, 0, true);
    log_rest(log);
    ck_assert_uint_eq(counts_of(files).open, 1);
    struct log_range range;
    ck_assert_int_eq(log_read(log, 0, 1, 1000, true, 1000, &range), 0);
    log_rest(log);
    log_rest(log); /* not used since, but pinned */
    ck_assert_uint_eq(counts_of(files).open, 1);
    log_range_done(&range);
    log_rest(log);
    ck_assert_uint_eq(counts_of(files).open, 0);
    ck_assert_int_eq(log_close(log), 0);
    open_files_unref(files);
}
END_TEST

/* ---- many segments ---------------------------------------------------------------------------------- */

static size_t resident_pages(void)
{
    size_t total, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(fscanf(f, "%zu %zu", &total, &resident), 2);
    fclose(f);
    return resident;
}

/* A sanitizer's allocator keeps what was freed for a while. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define IS_MEMORY_OURS false
#else
#define IS_MEMORY_OURS true
#endif

/* ST-21: segments of 64 KiB, 256 MiB of them (kept to 16 MiB): descriptors and memory stay flat. */
START_TEST(rolling_on_and_on_costs_no_descriptors_and_no_memory)
{
    struct log_settings s = fixture_settings();
    s.segment_bytes = 64 << 10;
    s.index_interval_bytes = 4096;
    s.retention_ms = -1;
    s.retention_bytes = 16 << 20;
    faulty_reset();
    struct open_files *files = new_budget(BUDGET);
    struct log *log = open_in(files, "rolling", &s, true);
    int bytes_total = suite_is_quick() ? 64 << 20 : 256 << 20, done = 0;
    size_t pages = 0;
    for (int i = 0; done < bytes_total; i++, done += 8 << 10) {
        fixture_append(log, 1, T0, 8 << 10);
        if (i % 64 != 0)
            continue;
        ck_assert_int_eq(log_flush(log), 0);
        ck_assert_int_ge(log_retain(log, T0), 0);
        ck_assert_uint_le(counts_of(files).most, BUDGET);
        if (!pages && done > 3 * s.retention_bytes / 2)
            pages = resident_pages();
    }
    ck_assert_uint_le(log_segments_count(log), 330); /* 7 batches each, and what came since */
    printf("# resident once the first had gone %zu pages, at the end %zu\n", pages, resident_pages());
    ck_assert(!IS_MEMORY_OURS || resident_pages() <= pages + pages / 10);
    ck_assert_int_eq(log_close(log), 0);
    open_files_unref(files);
}
END_TEST

/* ---- pins ------------------------------------------------------------------------------------------- */

START_TEST(a_range_keeps_its_descriptor_though_the_budget_is_used_up)
{
    struct log_settings s = fixture_settings();
    s.segment_bytes = 200;
    faulty_reset();
    struct open_files *files = new_budget(OPEN_FILES_MIN);
    struct log *log = open_in(files, "pinned", &s, true);
    for (int i = 0; i < 10; i++)
        fixture_append(log, 1, T0, 100); /* a segment each */
    ck_assert_int_eq(log_flush(log), 0);
    struct log_range ranges[8];
    for (int i = 0; i < 8; i++)
        ck_assert_int_eq(log_read(log, i, 10, 1000, true, 1000, &ranges[i]), 0);
    ck_assert_uint_ge(counts_of(files).open, 8); /* more than there should be, rather than none */
    for (int i = 0; i < 8; i++) {
        uint8_t bytes[BATCH_HEADER_BYTES];
        struct batch_header h;
        ck_assert_int_eq(pread(ranges[i].fd, bytes, sizeof bytes, ranges[i].position), (ssize_t)sizeof bytes);
        ck_assert_int_eq(batch_read_header(bytes, sizeof bytes, &h), -BROOK_E_AGAIN);
        ck_assert_int_eq(h.base_offset, i);
        log_range_done(&ranges[i]);
    }
    fixture_read_all(log, 0, true);
    ck_assert_uint_le(counts_of(files).open, OPEN_FILES_MIN);
    ck_assert_int_eq(log_close(log), 0);
    open_files_unref(files);
}
END_TEST

struct hammer {
    struct log *log;
    _Atomic bool *stop;
    uint64_t random;
    pthread_t thread;
};

static void *read_on(void *arg)
{
    struct hammer *h = arg;
    while (!*h->stop) {
        struct log_range range;
        int64_t offset = (int64_t)suite_random_below(&h->random, (uint64_t)log_end_offset(h->log));
        int r = suite_random_below(&h->random, 2)
                    ? log_read(h->log, offset, INT64_MAX, 1000, true, 1000, &range)
                    : log_read_cached(h->log, offset, INT64_MAX, 1000, true, 1000, &range);
        if (r == -BROOK_E_LOCKED)
            continue;
        ck_assert_int_eq(r, 0);
        uint8_t bytes[BATCH_HEADER_BYTES];
        struct batch_header header;
        ck_assert_int_eq(pread(range.fd, bytes, sizeof bytes, range.position), (ssize_t)sizeof bytes);
        ck_assert_int_eq(batch_read_header(bytes, sizeof bytes, &header), -BROOK_E_AGAIN);
        ck_assert_int_eq(header.base_offset, offset); /* one record a batch: another file's would differ */
        log_range_done(&range);
    }
    return NULL;
}

/* Descriptors are closed, and their numbers given again, under the hands of whoever does not pin. */
START_TEST(readers_and_writers_of_many_segments_never_meet_a_foreign_descriptor)
{
    enum { READERS = 2, APPENDS = 300, SIDES = 8 };
    struct log_settings s = fixture_settings();
    s.segment_bytes = 400;
    faulty_reset();
    struct open_files *files = new_budget(6);
    struct log *log = open_in(files, "hammered", &s, true), *sides[SIDES];
    for (int i = 0; i < SIDES; i++) {
        char name[32];
        snprintf(name, sizeof name, "side-%d", i);
        sides[i] = open_in(files, name, &s, true);
    }
    fixture_append(log, 1, T0, 100);
    _Atomic bool stop = false;
    struct hammer h[READERS];
    uint64_t seed = suite_seed();
    for (int i = 0; i < READERS; i++) {
        h[i] = (struct hammer){.log = log, .stop = &stop, .random = suite_random(&seed)};
        ck_assert_int_eq(pthread_create(&h[i].thread, NULL, read_on, &h[i]), 0);
    }
    for (int i = 0; i < APPENDS; i++) {
        fixture_append(log, 1, T0, 100);
        fixture_append(sides[i % SIDES], 1, T0, 100);
        if (i % 20 == 0)
            ck_assert_int_eq(log_flush(log), 0);
    }
    stop = true;
    for (int i = 0; i < READERS; i++)
        pthread_join(h[i].thread, NULL);
    ck_assert_int_eq(fixture_read_all(log, 0, true), APPENDS + 1);
    for (int i = 0; i < SIDES; i++) {
        fixture_read_all(sides[i], 0, true);
        ck_assert_int_eq(log_close(sides[i]), 0);
    }
    ck_assert_int_eq(log_close(log), 0);
    open_files_unref(files);
}
END_TEST

/* ---- writes that were not synced --------------------------------------------------------------------- */

struct syncs {
    struct open_files *files;
    uint64_t count;
};

static bool were_synced(void *arg)
{
    const struct syncs *s = arg;
    return counts_of(s->files).synced >= s->count;
}

/* Another log needs the descriptors, until there were `syncs` for that: what was written is not closed before. */
static void press(struct open_files *files, struct log *other, uint64_t syncs)
{
    for (int64_t i = 0; i < 8 * OPEN_FILES_MIN; i++) {
        struct log_range range;
        ck_assert_int_eq(log_read(other, i % (2 * OPEN_FILES_MIN), INT64_MAX, 1000, true, 1000, &range), 0);
        log_range_done(&range);
    }
    struct syncs wanted = {files, syncs};
    ck_assert(suite_wait(were_synced, &wanted, 10000));
    ck_assert_uint_le(counts_of(files).open, OPEN_FILES_MIN);
}

static struct log *open_other(struct open_files *files)
{
    struct log_settings s = fixture_settings();
    s.segment_bytes = 200;
    struct log *other = open_in(files, "other", &s, true);
    for (int i = 0; i < 2 * OPEN_FILES_MIN; i++)
        fixture_append(other, 1, T0, 100);
    ck_assert_int_eq(log_flush(other), 0);
    return other;
}

START_TEST(what_was_written_is_synced_before_it_is_closed)
{
    struct log_settings s = fixture_settings();
    faulty_reset();
    struct open_files *files = new_budget(OPEN_FILES_MIN);
    struct log *other = open_other(files);
    struct log *log = open_in(files, "dirty", &s, true);
    fixture_append(log, 1, T0, 10);
    uint64_t before = counts_of(files).synced;
    press(files, other, before + 1);
    ck_assert_uint_eq(counts_of(files).synced, before + 1);
    press(files, other, before + 1);
    ck_assert_uint_eq(counts_of(files).synced, before + 1); /* once */
    faulty_reset();
    ck_assert_int_eq(log_flush(log), 0); /* the names are still to be synced; the segment is closed, so it was */
    ck_assert_int_eq(log_durable_end(log), 1);
    ck_assert_int_eq(faulty_calls(FAULTY_DATASYNC), 0);
    ck_assert_int_eq(faulty_calls(FAULTY_SYNC_DIRECTORY), 2);
    ck_assert_int_eq(log_close(log), 0);
    ck_assert_int_eq(log_close(other), 0);
    open_files_unref(files);
}
END_TEST

START_TEST(a_sync_that_fails_there_takes_the_log_offline_for_good)
{
    struct log_settings s = fixture_settings();
    faulty_reset();
    struct open_files *files = new_budget(OPEN_FILES_MIN);
    struct log *other = open_other(files);
    struct log *log = open_in(files, "failing", &s, true);
    fixture_append(log, 1, T0, 10);
    uint64_t before = counts_of(files).synced;
    faulty_fail(FAULTY_DATASYNC, 1, 1, EIO); /* once: the next sync would say 0 */
    press(files, other, before + 1);
    ck_assert(faulty_struck());
    ck_assert(log_sync_failed(log));
    ck_assert_ptr_nonnull(strstr(log_offline_reason(log), strerror(EIO)));
    ck_assert_int_eq(log_flush(log), -BROOK_E_STORAGE_ERROR);
    ck_assert_int_eq(log_durable_end(log), 0);
    ck_assert_ptr_null(log_offline_reason(other));
    ck_assert_int_eq(log_close(log), -BROOK_E_STORAGE_ERROR);
    ck_assert_int_eq(log_close(other), 0);
    open_files_unref(files);
}
END_TEST

START_TEST(a_reader_that_may_not_wait_does_not_wait_for_a_sync)
{
    struct log_settings s = fixture_settings();
    s.segment_bytes = 200;
    faulty_reset();
    struct open_files *files = new_budget(OPEN_FILES_MIN);
    struct log *log = open_in(files, "locked", &s, true);
    for (int i = 0; i < OPEN_FILES_MIN; i++)
        fixture_append(log, 1, T0, 100);
    struct log *cold = open_other(files);
    faulty_stall(FAULTY_DATASYNC);
    for (int i = 0; i < OPEN_FILES_MIN; i++) { /* the log's last write makes all that is open dirty */
        struct log_settings one = fixture_settings();
        char name[32];
        snprintf(name, sizeof name, "stalled-%d", i);
        struct log *stalled = open_in(files, name, &one, true);
        fixture_append(stalled, 1, T0, 10);
        logs[i] = stalled;
    }
    struct log_range range;
    int r = -BROOK_E_LOCKED;
    for (int i = 0; i < 2 * OPEN_FILES_MIN; i++) {
        r = log_read_cached(cold, i, INT64_MAX, 1000, true, 1000, &range);
        if (r != 0)
            break;
        log_range_done(&range);
    }
    ck_assert_int_eq(r, -BROOK_E_LOCKED);
    faulty_release();
    ck_assert_int_eq(log_read(cold, 0, INT64_MAX, 1000, true, 1000, &range), 0);
    log_range_done(&range);
    for (int i = 0; i < OPEN_FILES_MIN; i++)
        ck_assert_int_eq(log_close(logs[i]), 0);
    ck_assert_int_eq(log_close(cold), 0);
    ck_assert_int_eq(log_close(log), 0);
    open_files_unref(files);
}
END_TEST

/* A name that the kernel does not have in memory is looked up elsewhere. */
START_TEST(a_file_that_can_not_be_opened_at_once_is_left_to_another_thread)
{
    struct log_settings s = fixture_settings();
    faulty_reset();
    struct log *log = open_in(NULL, "cold", &s, true);
    fixture_append(log, 1, T0, 10);
    ck_assert_int_eq(log_close(log), 0);
    log = open_in(NULL, "cold", &s, true);
    struct log_range range;
    faulty_fail(FAULTY_OPEN_CACHED, 1, 1, EAGAIN);
    ck_assert_int_eq(log_read_cached(log, 0, 1, 1000, true, 1000, &range), -BROOK_E_LOCKED);
    ck_assert_int_eq(log_read(log, 0, 1, 1000, true, 1000, &range), 0);
    log_range_done(&range);
    ck_assert_int_eq(log_close(log), 0);
}
END_TEST

/* ---- the cost of opening ----------------------------------------------------------------------------- */

static int calls_to_open_all(bool clean, const struct log_settings *s)
{
    faulty_reset();
    for (int i = 0; i < LOGS; i++) {
        char name[32];
        snprintf(name, sizeof name, "many-%d", i);
        logs[i] = open_in(NULL, name, s, clean);
    }
    return faulty_calls(~0u);
}

/* Making a directory that is there, and looking for the epochs of a log: what an empty log costs, clean or not. */
START_TEST(an_empty_log_opens_with_a_few_calls_and_no_sync)
{
    struct log_settings s = fixture_settings();
    int made = calls_to_open_all(true, &s);
    ck_assert_int_eq(faulty_calls(FAULTY_DATASYNC | FAULTY_SYNC_DIRECTORY), 0);
    close_all();
    int clean = calls_to_open_all(true, &s);
    close_all();
    int unclean = calls_to_open_all(false, &s);
    ck_assert_int_eq(faulty_calls(FAULTY_DATASYNC | FAULTY_SYNC_DIRECTORY), 0);
    close_all();
    printf("# calls: to make %d, to open %d, after a crash %d\n", made / LOGS, clean / LOGS, unclean / LOGS);
    ck_assert_int_le(made, 3 * LOGS);
    ck_assert_int_le(clean, 2 * LOGS);
    ck_assert_int_le(unclean, 2 * LOGS);
}
END_TEST

SUITE_MAIN("storage/open_files", SUITE_TEST(many_logs_share_few_descriptors),
           SUITE_TEST(an_idle_log_costs_no_descriptor_and_little_memory),
           SUITE_TEST(a_log_that_is_read_keeps_its_descriptor),
           SUITE_TEST_SLOW(rolling_on_and_on_costs_no_descriptors_and_no_memory, 60),
           SUITE_TEST(a_range_keeps_its_descriptor_though_the_budget_is_used_up),
           SUITE_TEST(readers_and_writers_of_many_segments_never_meet_a_foreign_descriptor),
           SUITE_TEST(what_was_written_is_synced_before_it_is_closed),
           SUITE_TEST(a_sync_that_fails_there_takes_the_log_offline_for_good),
           SUITE_TEST(a_reader_that_may_not_wait_does_not_wait_for_a_sync),
           SUITE_TEST(a_file_that_can_not_be_opened_at_once_is_left_to_another_thread),
           SUITE_TEST(an_empty_log_opens_with_a_few_calls_and_no_sync))
