/* The power goes while records are removed, by request and by retention. When it is back, what was said to be deleted
 * stays deleted, no offset is given again, and nothing was removed that was not to be. */
#include "broker/storage/data_dir.h"
#include "broker/storage/log.h"
#include "tests/support/batches.h"
#include "tests/support/power_cut.h"
#include "tests/support/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define T0 INT64_C(1700000000000)
#define LIVES 8
#define STEPS_MAX 60
#define WORLDS 60

struct world {
    uint64_t random;
    char root[PATH_MAX];
    struct log_settings settings;
    struct data_dir *dir;
    struct log *log;
    int64_t now_ms;
    int64_t start;       /* said to be the start */
    int64_t start_most;  /* asked for, perhaps in vain */
    int64_t durable_end; /* said to be on stable storage */
    struct known {
        int64_t base;
        int64_t end;
    } *batches; /* that are, or may be, in the log */
    size_t count;
};

static uint64_t below(struct world *w, uint64_t bound)
{
    return suite_random_below(&w->random, bound);
}

static void append(struct world *w)
{
    struct log_batch b = batches_make((int)below(w, 5) + 1, w->now_ms, 0, (size_t)below(w, 200), 1);
    int64_t base;
    if (log_append(w->log, &b, 1, 0, w->now_ms, &base, NULL) == 0) {
        w->batches = realloc(w->batches, (w->count + 1) * sizeof w->batches[0]);
        ck_assert_ptr_nonnull(w->batches);
        w->batches[w->count++] = (struct known){base, base + b.header.records_count};
    }
    batches_free(&b);
}

/* As a partition does it: first the checkpoint, then the log. */
static void trim(struct world *w)
{
    int64_t start = log_start_offset(w->log), end = log_end_offset(w->log);
    int64_t before = below(w, 4) == 0 ? end : start + (int64_t)below(w, (uint64_t)(end - start) + 1);
    w->start_most = before > w->start_most ? before : w->start_most;
    if (data_dir_raise_start(w->dir, "t", 0, before) != 0)
        return;
    log_trim(w->log, before, w->now_ms);
    w->start = before > w->start ? before : w->start;
}

static void retain(struct world *w)
{
    w->now_ms += (int64_t)below(w, 1500);
    int r = log_retain(w->log, w->now_ms);
    int64_t start = log_start_offset(w->log);
    w->start_most = start > w->start_most ? start : w->start_most;
    if (r > 0 && start > w->start)
        w->start = start;
}

static void checkpoint(struct world *w)
{
    int64_t start = log_start_offset(w->log);
    if (log_flush(w->log) != 0)
        return;
    struct data_dir_checkpoint entry = {"t", 0, log_durable_end(w->log), start, 0, 0, -1};
    w->durable_end = log_durable_end(w->log);
    data_dir_checkpoint(w->dir, &entry, 1, NULL);
}

static void live(struct world *w)
{
    power_cut_after((int)below(w, 90) + 1);
    for (int i = 0; i < STEPS_MAX && !power_is_cut(); i++) {
        unsigned what = (unsigned)below(w, 20);
        w->now_ms += 20;
        if (what == 0)
            retain(w);
        else if (what <= 2)
            trim(w);
        else if (what == 3)
            checkpoint(w);
        else
            append(w);
    }
    power_cut_after(0);
}

static void start(struct world *w)
{
    char path[PATH_MAX];
    struct brook_error error = {0};
    struct log_hint hint = {.recovery_point = -1, .start_offset = -1};
    size_t count;
    ck_assert_msg(data_dir_open(w->root, 1, "c", &w->dir, &error) == 0, "%s", error.text);
    const struct data_dir_partition *found = data_dir_partitions(w->dir, &count);
    if (count > 0)
        hint = found[0].hint;
    data_dir_partition_path(w->dir, "t", 0, path);
    int r = log_open(path, &w->settings, &hint, &w->log, NULL, &error);
    ck_assert_msg(r == 0, "it does not open: %s", error.text);
}

/* The batch that holds `offset` or is the next one. Returns false when there is none. */
static bool read_at(struct world *w, int64_t offset, struct known *ret)
{
    struct log_range range;
    uint8_t data[BATCH_HEADER_BYTES];
    struct batch_header h;
    ck_assert_int_eq(log_read(w->log, offset, log_end_offset(w->log), 1, true, 1 << 20, &range), 0);
    bool any = range.bytes > 0;
    if (any) {
        ck_assert_int_eq(pread(range.fd, data, sizeof data, range.position), (ssize_t)sizeof data);
        ck_assert_int_ne(batch_read_header(data, sizeof data, &h), -BROOK_E_BAD_BATCH);
        *ret = (struct known){h.base_offset, batch_last_offset(&h) + 1};
    }
    log_range_done(&range);
    return any;
}

/* What was durable and not deleted is there, each batch in its place. The rest may be lost: also from the
 * beginning, when nothing durable was before it. */
static void check(struct world *w)
{
    int64_t from = log_start_offset(w->log), end = log_end_offset(w->log), at = from;
    size_t i = 0, kept = 0;
    struct known found;
    ck_assert_int_ge(from, w->start);
    ck_assert_msg(end >= from && end >= w->durable_end, "the log ends at %lld: start %lld, durable %lld",
                  (long long)end, (long long)w->start, (long long)w->durable_end);
    for (; at < end && read_at(w, at, &found); at = found.end) {
        for (; i < w->count && w->batches[i].base != found.base; i++)
            ck_assert_msg(w->batches[i].end <= w->start_most || w->batches[i].end > w->durable_end,
                          "batch %lld to %lld is gone", (long long)w->batches[i].base, (long long)w->batches[i].end);
        ck_assert_uint_lt(i, w->count);
        ck_assert_int_eq(found.end, w->batches[i].end);
        w->batches[kept++] = w->batches[i++];
    }
    for (; i < w->count; i++)
        ck_assert_msg(w->batches[i].end <= w->start_most || w->batches[i].end > w->durable_end,
                      "batch %lld to %lld is gone", (long long)w->batches[i].base, (long long)w->batches[i].end);
    w->count = kept;
    w->durable_end = end; /* recovery has synced it */
    w->start = from;
    w->start_most = from;
}

static void stop(struct world *w)
{
    log_close(w->log);
    data_dir_close(w->dir, false);
}

static void one_world(uint64_t seed)
{
    struct world w = {.random = seed, .now_ms = T0};
    snprintf(w.root, sizeof w.root, "%s/disk", suite_directory());
    log_settings_default(&w.settings);
    w.settings.segment_bytes = 1500;
    w.settings.retention_ms = 1000;
    w.settings.file_delete_delay_ms = below(&w, 2) ? 0 : 500;
    power_begin(w.root);
    for (int i = 0; i < LIVES; i++) {
        start(&w);
        check(&w);
        live(&w);
        stop(&w);
        power_restore(&w.random);
    }
    start(&w);
    check(&w);
    stop(&w);
    free(w.batches);
    power_end();
}

START_TEST(what_was_deleted_stays_deleted_and_no_offset_is_given_again)
{
    uint64_t seed = suite_seed();
    for (int i = 0; i < WORLDS; i++)
        one_world(suite_random(&seed));
}
END_TEST

SUITE_MAIN("property/removal_power_cut",
           SUITE_TEST_SLOW(what_was_deleted_stays_deleted_and_no_offset_is_given_again, 120))
