#include "tests/unit/storage/fixture.h"

#include <pthread.h>
#include <stdio.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

/* One writer that appends, rolls, retains and truncates never; many readers at the tail, behind it and by
 * time, and a flusher. What the readers must never see: a checksum that is wrong, an offset that is not the
 * next. */

#define READERS 4

struct stage {
    struct log *log;
    _Atomic bool over;
    _Atomic int64_t records_read;
    int appends;
};

/* Read one range at *next; checks it and moves on. Returns whether there was anything. */
static bool read_one(struct stage *st, int64_t *next, size_t budget, uint8_t *buffer, size_t capacity)
{
    struct log_range range;
    int64_t end = log_end_offset(st->log);
    int r = log_read(st->log, *next, end, budget, true, capacity, &range);
    if (r == -BROOK_E_OFFSET_OUT_OF_RANGE) { /* retention was quicker */
        ck_assert_int_lt(*next, log_start_offset(st->log));
        *next = log_start_offset(st->log);
        return true;
    }
    ck_assert_int_eq(r, 0);
    size_t at = 0;
    struct batch_header h;
    if (range.bytes > 0)
        ck_assert_int_eq(pread(range.fd, buffer, range.bytes, range.position), (ssize_t)range.bytes);
    while (at < range.bytes && batch_read_header(buffer + at, range.bytes - at, &h) == 0) {
        ck_assert_int_eq(batch_check_crc(buffer + at, &h), 0);
        ck_assert_int_lt(batch_last_offset(&h), end);
        ck_assert_int_le(h.base_offset, *next);
        ck_assert_int_ge(batch_last_offset(&h), *next);
        *next = batch_last_offset(&h) + 1;
        atomic_fetch_add(&st->records_read, h.records_count);
        at += h.total_bytes;
    }
    bool any = range.bytes > 0;
    ck_assert(!any || at > 0);
    log_range_done(&range);
    return any;
}

static void *run_reader(void *arg)
{
    struct stage *st = arg;
    size_t capacity = 1 << 16;
    uint8_t *buffer = malloc(capacity);
    int64_t next = 0;
    for (;;) {
        bool over = atomic_load(&st->over);
        if (!read_one(st, &next, 2000, buffer, capacity) && over)
            break;
    }
    ck_assert_int_eq(next, log_end_offset(st->log));
    free(buffer);
    return NULL;
}

static void *run_seeker(void *arg)
{
    struct stage *st = arg;
    size_t capacity = 1 << 16;
    uint8_t *buffer = malloc(capacity);
    uint64_t random = suite_seed();
    while (!atomic_load(&st->over)) {
        int64_t start = log_start_offset(st->log), end = log_end_offset(st->log);
        int64_t next = start + (int64_t)suite_random_below(&random, (uint64_t)(end - start) + 1), offset,
                stamp;
        read_one(st, &next, 5000, buffer, capacity);
        int r = log_find_time(st->log, T0 + next, end, 1 << 20, &offset, &stamp);
        ck_assert_msg(r == 0 || r == -BROOK_E_NOT_FOUND, "%d", r);
        if (r == 0)
            ck_assert_int_ge(stamp, T0 + next);
    }
    free(buffer);
    return NULL;
}

static void *run_flusher(void *arg)
{
    struct stage *st = arg;
    int64_t last = 0;
    while (!atomic_load(&st->over)) {
        ck_assert_int_eq(log_flush(st->log), 0);
        int64_t durable = log_durable_end(st->log);
        ck_assert_int_ge(durable, last);
        last = durable;
    }
    return NULL;
}

static void *run_flusher_loosely(void *arg)
{
    struct stage *st = arg;
    while (!atomic_load(&st->over))
        ck_assert_int_eq(log_flush(st->log), 0);
    return NULL;
}

static void write_all(struct stage *st)
{
    for (int i = 0; i < st->appends; i++) {
        struct log_batch batches[8];
        size_t count = 1 + (size_t)i % 8;
        int64_t base, end = log_end_offset(st->log);
        for (size_t k = 0; k < count; k++)
            batches[k] = batches_make(1 + (int)k % 3, T0 + end, 0, 60, (uint32_t)i);
        ck_assert_int_eq(log_append(st->log, batches, count, 0, T0 + end, &base, NULL), 0);
        ck_assert_int_eq(base, end);
        for (size_t k = 0; k < count; k++)
            batches_free(&batches[k]);
        if (i % 64 == 63)
            ck_assert_int_ge(log_retain(st->log, T0), 0);
    }
}

static void run(struct stage *st, const char *name, int64_t retention_bytes)
{
    struct log_settings s = fixture_settings();
    s.segment_bytes = 20000;
    s.retention_ms = -1;
    s.retention_bytes = retention_bytes;
    s.index_interval_bytes = 500;
    st->log = fixture_open(fixture_log_path(name), &s, &fixture_clean);
    pthread_t threads[READERS + 2];
    for (int i = 0; i < READERS; i++)
        pthread_create(&threads[i], NULL, run_reader, st);
    pthread_create(&threads[READERS], NULL, run_seeker, st);
    pthread_create(&threads[READERS + 1], NULL, run_flusher, st);
    write_all(st);
    atomic_store(&st->over, true);
    for (int i = 0; i < READERS + 2; i++)
        pthread_join(threads[i], NULL);
}

START_TEST(readers_see_all_of_an_append_or_nothing)
{
    struct stage st = {.appends = 1500};
    suite_seed();
    run(&st, "tail", -1);
    ck_assert_int_ge(atomic_load(&st.records_read), READERS * log_end_offset(st.log));
    ck_assert_int_eq(log_close(st.log), 0);
}
END_TEST

START_TEST(readers_survive_retention)
{
    struct stage st = {.appends = 1500};
    suite_seed();
    run(&st, "retained", 40000);
    ck_assert_int_gt(log_start_offset(st.log), 0);
    ck_assert_int_eq(log_close(st.log), 0);
}
END_TEST

/* What a range shows while its segment is being cut is the loops' business (they drop such ranges first);
 * that log_read() itself stays sound is the log's. */
static void *run_cut_reader(void *arg)
{
    struct stage *st = arg;
    uint64_t random = suite_seed();
    while (!atomic_load(&st->over)) {
        int64_t end = log_end_offset(st->log);
        int64_t offset = (int64_t)suite_random_below(&random, (uint64_t)end + 1), found, stamp;
        struct log_range range;
        int r = log_read(st->log, offset, end, 3000, true, 1 << 20, &range);
        ck_assert_msg(r == 0 || r == -BROOK_E_OFFSET_OUT_OF_RANGE, "read at %lld: %d", (long long)offset, r);
        if (r == 0)
            log_range_done(&range);
        log_find_time(st->log, T0 + offset, end, 1 << 20, &found, &stamp);
        atomic_fetch_add(&st->records_read, 1);
    }
    return NULL;
}

START_TEST(readers_survive_truncation)
{
    struct stage st = {0};
    struct log_settings s = fixture_settings();
    uint64_t random = suite_seed();
    s.segment_bytes = 5000;
    s.index_interval_bytes = 300;
    st.log = fixture_open(fixture_log_path("cut"), &s, &fixture_clean);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, i < 2 ? run_cut_reader : run_flusher_loosely, &st);
    for (int i = 0; i < 3000; i++) {
        int64_t end = log_end_offset(st.log);
        fixture_append(st.log, 1 + i % 4, T0 + end, (size_t)i % 200);
        if (i % 10 == 9)
            ck_assert_int_eq(log_truncate(st.log, end - (int64_t)suite_random_below(&random, 60), NULL), 0);
    }
    atomic_store(&st.over, true);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    ck_assert_int_gt(atomic_load(&st.records_read), 0);
    ck_assert_int_eq(fixture_read_all(st.log, 0, true), log_end_offset(st.log));
    ck_assert_int_eq(log_close(st.log), 0);
}
END_TEST

/* ---- a slow reader of the oldest segment ------------------------------------------------------------- */

#define SLOW_ROUNDS 100
#define SLOW_PIECE 64

struct slow_reader {
    struct log *log;
    _Atomic bool has_begun;
    int64_t records; /* -1: it was told that they are gone */
};

/* Take a range, then read it piece by piece while others remove the segment. */
static void *read_slowly(void *arg)
{
    struct slow_reader *reader = arg;
    struct log_range range;
    static uint8_t data[1 << 16];
    size_t at = 0;
    int r = log_read(reader->log, 0, INT64_MAX, sizeof data, true, sizeof data, &range);
    atomic_store(&reader->has_begun, true);
    if (r != 0) {
        ck_assert_int_eq(r, -BROOK_E_OFFSET_OUT_OF_RANGE);
        reader->records = -1;
        return NULL;
    }
    for (size_t done = 0; done < range.bytes; done += SLOW_PIECE) {
        size_t want = range.bytes - done < SLOW_PIECE ? range.bytes - done : SLOW_PIECE;
        ck_assert_int_eq(pread(range.fd, data + done, want, range.position + (off_t)done), (ssize_t)want);
        sched_yield();
    }
    struct batch_header h;
    for (; at < range.bytes && batch_read_header(data + at, range.bytes - at, &h) == 0; at += h.total_bytes) {
        ck_assert_int_eq(batch_check_crc(data + at, &h), 0);
        reader->records += h.records_count;
    }
    ck_assert_uint_eq(at, range.bytes);
    log_range_done(&range);
    return NULL;
}

START_TEST(a_slow_reader_of_a_segment_that_goes_has_all_of_it_or_is_told)
{
    struct log_settings s = fixture_settings();
    int read_whole = 0;
    s.segment_bytes = 5000;
    s.retention_ms = 1000;
    for (int round = 0; round < SLOW_ROUNDS; round++) {
        char name[32];
        snprintf(name, sizeof name, "slow-%d", round);
        const char *path = fixture_log_path(name);
        struct slow_reader reader = {.log = fixture_open(path, &s, &fixture_clean)};
        for (int i = 0; i < 100; i++)
            fixture_append(reader.log, 1, T0, 100);
        int64_t whole = fixture_read_first(reader.log, 0).records_count * (5000 / (BATCH_HEADER_BYTES + 110));
        pthread_t thread;
        ck_assert_int_eq(pthread_create(&thread, NULL, read_slowly, &reader), 0);
        while (round % 4 && !atomic_load(&reader.has_begun))
            sched_yield();
        ck_assert_int_gt(round % 2 ? log_retain(reader.log, T0 + 5000) : log_trim(reader.log, 60, T0), 0);
        pthread_join(thread, NULL);
        ck_assert(reader.records == -1 || reader.records >= whole);
        read_whole += reader.records > 0;
        ck_assert_int_eq(fixture_count_files(path, ".deleted"), 0); /* the space is given back */
        ck_assert_int_eq(log_close(reader.log), 0);
    }
    ck_assert_int_gt(read_whole, 0);
}
END_TEST

SUITE_MAIN("storage/readers",
           SUITE_TEST_SLOW(a_slow_reader_of_a_segment_that_goes_has_all_of_it_or_is_told, 120),
            SUITE_TEST_SLOW(readers_see_all_of_an_append_or_nothing, 60),
           SUITE_TEST_SLOW(readers_survive_retention, 60), SUITE_TEST_SLOW(readers_survive_truncation, 60))
