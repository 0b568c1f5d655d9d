/* A log beside a model of it (an array of batches with their bytes), under a random schedule: appends as
 * leader and as follower with gaps, reads with random budgets and ends, lookups by time, retention,
 * truncation, flushes, clean and unclean restarts with torn tails. BROOK_SEED replays. */
#include "tests/unit/storage/fixture.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BATCHES_MAX 6000

struct model_batch {
    uint8_t *bytes;
    struct batch_header header;
    int64_t timestamp;
    int64_t step;
};

struct world {
    uint64_t random;
    char path[1024];
    struct log_settings settings;
    struct log *log;
    struct model_batch batches[BATCHES_MAX];
    size_t count;
    int64_t start;
    int64_t end;
    int32_t epoch;
};

static uint64_t below(struct world *w, uint64_t bound)
{
    return suite_random_below(&w->random, bound);
}

static int64_t last_of(const struct model_batch *b)
{
    return batch_last_offset(&b->header);
}

/* ---- the model's side -----------------------------------------------------------------------------------
 */

static void model_drop_end(struct world *w, size_t keep)
{
    while (w->count > keep)
        free(w->batches[--w->count].bytes);
}

static void model_drop_start(struct world *w, size_t gone)
{
    for (size_t i = 0; i < gone; i++)
        free(w->batches[i].bytes);
    memmove(w->batches, w->batches + gone, (w->count - gone) * sizeof w->batches[0]);
    w->count -= gone;
}

/* The first batch that ends at or above `offset`. */
static size_t model_find(const struct world *w, int64_t offset)
{
    size_t i = 0;
    while (i < w->count && last_of(&w->batches[i]) < offset)
        i++;
    return i;
}

static void model_add(struct world *w, const struct log_batch *b, int64_t timestamp, int64_t step)
{
    struct model_batch *m = &w->batches[w->count++];
    m->header = b->header;
    m->timestamp = timestamp;
    m->step = step;
    m->bytes = malloc(b->header.total_bytes);
    memcpy(m->bytes, b->data, b->header.total_bytes);
    w->end = batch_last_offset(&b->header) + 1;
}

/* ---- steps ----------------------------------------------------------------------------------------------
 */

static void check_positions(struct world *w)
{
    ck_assert_int_eq(log_end_offset(w->log), w->end);
    ck_assert_int_eq(log_start_offset(w->log), w->start);
    ck_assert_int_le(log_durable_end(w->log), w->end);
}

static void step_append(struct world *w)
{
    struct log_batch batches[12];
    int64_t timestamps[12], steps[12], base = w->end;
    size_t count = 1 + below(w, 12);
    bool follower = below(w, 3) == 0;
    if (w->count + count > BATCHES_MAX)
        return;
    if (below(w, 10) == 0)
        w->epoch++;
    for (size_t i = 0; i < count; i++) {
        int records = 1 + (int)below(w, 5);
        timestamps[i] = T0 + (int64_t)below(w, 5000);
        steps[i] = (int64_t)below(w, 20) - 5;
        batches[i] =
            below(w, 4) == 0
                ? batches_make_compressed(CODEC_LZ4, records, timestamps[i], steps[i], below(w, 300), 1)
                : batches_make(records, timestamps[i], steps[i], below(w, 300), (uint32_t)i);
        if (follower && below(w, 4) == 0)
            base += (int64_t)below(w, 2) ? 3 : 5000;
        if (follower)
            batches_place(&batches[i], base, w->epoch);
        base += records;
    }
    int64_t got = w->end;
    int r = follower ? log_append_as_follower(w->log, batches, count, T0, NULL)
                     : log_append(w->log, batches, count, w->epoch, T0, &got, NULL);
    ck_assert_int_eq(r, 0);
    ck_assert_int_eq(got, w->end);
    for (size_t i = 0; i < count; i++) {
        if (!follower)
            ck_assert_int_eq(batches[i].header.base_offset, w->end);
        model_add(w, &batches[i], timestamps[i], steps[i]);
        batches_free(&batches[i]);
    }
}

static void check_range(struct world *w, const struct log_range *range, int64_t offset, int64_t end,
                        size_t budget)
{
    size_t i = model_find(w, offset), first = i, at = 0;
    uint8_t *data = malloc(range->bytes + 1);
    if (range->bytes > 0)
        ck_assert_int_eq(pread(range->fd, data, range->bytes, range->position), (ssize_t)range->bytes);
    for (; at < range->bytes; i++) {
        ck_assert_uint_lt(i, w->count);
        const struct model_batch *m = &w->batches[i];
        size_t n = range->bytes - at < m->header.total_bytes ? range->bytes - at : m->header.total_bytes;
        ck_assert_int_lt(last_of(m), end);
        ck_assert_mem_eq(data + at, m->bytes, n);
        at += n;
    }
    if (range->bytes == 0) /* nothing that may be seen */
        ck_assert(first == w->count || last_of(&w->batches[first]) >= end);
    else
        ck_assert_uint_le(range->bytes, budget > w->batches[first].header.total_bytes
                                            ? budget
                                            : w->batches[first].header.total_bytes);
    free(data);
}

static void step_read(struct world *w)
{
    int64_t offset = w->start + (int64_t)below(w, (uint64_t)(w->end - w->start) + 1);
    int64_t end = below(w, 2) ? INT64_MAX : w->start + (int64_t)below(w, (uint64_t)(w->end - w->start) + 1);
    if (below(w, 3) == 0 && w->end - w->start > 20)
        offset = w->end - (int64_t)below(w, 20);
    size_t budget = 1 + below(w, 8000);
    struct log_range range;
    ck_assert_int_eq(log_read(w->log, offset, end, budget, true, 1 << 20, &range), 0);
    check_range(w, &range, offset, end, budget);
    log_range_done(&range);
}

static void step_find_time(struct world *w)
{
    int64_t wanted = T0 + (int64_t)below(w, 5200) - 100, expected = -1, got = -1, stamp;
    for (size_t i = 0; i < w->count && expected < 0; i++) {
        const struct model_batch *m = &w->batches[i];
        for (int k = 0; k < m->header.records_count && expected < 0; k++)
            if (m->timestamp + m->step * k >= wanted && m->header.base_offset + k >= w->start)
                expected = m->header.base_offset + k;
    }
    int r = log_find_time(w->log, wanted, INT64_MAX, 1 << 20, &got, &stamp);
    ck_assert(r == 0 || r == -BROOK_E_NOT_FOUND);
    ck_assert_int_eq(got, expected);
}

static void step_retain(struct world *w)
{
    w->settings.retention_bytes = below(w, 2) ? -1 : (int64_t)below(w, 60000);
    w->settings.retention_ms = below(w, 2) ? -1 : (int64_t)below(w, 5000);
    int64_t now = T0 + (int64_t)below(w, 7000);
    log_configure(w->log, &w->settings);
    int r = log_retain(w->log, now);
    ck_assert_int_ge(r, 0);
    int64_t start = log_start_offset(w->log), kept = 0;
    ck_assert_int_ge(start, w->start);
    for (size_t i = 0; i < w->count; i++) {
        const struct model_batch *m = &w->batches[i];
        if (m->header.base_offset >= start)
            kept += (int64_t)m->header.total_bytes;
        else if (w->settings.retention_bytes < 0) /* dropped for its age */
            ck_assert_int_gt(now - m->header.max_timestamp, w->settings.retention_ms);
    }
    if (r > 0 && w->settings.retention_ms < 0)
        ck_assert_int_ge(kept, w->settings.retention_bytes);
    model_drop_start(w, model_find(w, start));
    w->start = start;
}

static void step_truncate(struct world *w)
{
    int64_t offset = w->end - (int64_t)below(w, below(w, 4) ? 40 : (uint64_t)(w->end - w->start) + 10);
    if (below(w, 3) == 0 && w->count > 0) { /* on a batch's edge, one below, one above */
        const struct model_batch *m = &w->batches[w->count - 1 - below(w, w->count < 50 ? w->count : 50)];
        offset = m->header.base_offset - 1 + (int64_t)below(w, 3);
    }
    ck_assert_int_eq(log_truncate(w->log, offset, NULL), 0);
    if (offset < w->start)
        offset = w->start;
    if (offset >= w->end)
        return;
    size_t keep = model_find(w, offset);
    w->end = keep < w->count && w->batches[keep].header.base_offset < offset
                 ? w->batches[keep].header.base_offset
                 : offset;
    model_drop_end(w, keep);
    if (w->start > w->end)
        w->start = w->end;
}

static void step_flush(struct world *w)
{
    ck_assert_int_eq(log_flush(w->log), 0);
    ck_assert_int_eq(log_durable_end(w->log), w->end);
}

/* ---- restarts -------------------------------------------------------------------------------------------
 */

/* Base offset of the newest segment's file. */
static int64_t newest_base(const char *path)
{
    int64_t newest = -1;
    DIR *dir = opendir(path);
    struct dirent *entry;
    while ((entry = readdir(dir))) {
        char *end;
        long long base = strtoll(entry->d_name, &end, 10);
        if (end == entry->d_name + 20 && strcmp(end, ".log") == 0 && base > newest)
            newest = base;
    }
    closedir(dir);
    return newest;
}

static void reopen(struct world *w, const struct log_hint *hint)
{
    struct log_recovery recovery;
    int64_t newest = newest_base(w->path);
    w->log = fixture_open_reporting(w->path, &w->settings, hint, &recovery);
    if (hint->clean) /* whatever went before, what was closed is in order */
        ck_assert_int_eq(recovery.indexes_rebuilt, 0);
    bool any = w->count > 0 && w->batches[w->count - 1].header.base_offset >= newest;
    int64_t behind = w->count > 0 ? last_of(&w->batches[w->count - 1]) + 1 : newest;
    /* Nothing but its name is there, and what would be before it was not synced. */
    bool is_name_only = !any && !hint->clean && behind > hint->recovery_point && behind >= hint->start_offset;
    w->end = any || is_name_only ? behind : newest;
    if (w->start > w->end)
        w->start = w->end;
    ck_assert_int_eq(log_durable_end(w->log), w->end);
}

/* Tear the newest segment somewhere above what is durable, perhaps with noise behind. */
static void tear(struct world *w, int64_t durable)
{
    int64_t newest = newest_base(w->path), position = 0, safe = 0;
    char file[PATH_MAX];
    snprintf(file, sizeof file, "%s/%020" PRId64 ".log", w->path, newest);
    for (size_t i = 0; i < w->count; i++) {
        const struct model_batch *m = &w->batches[i];
        if (m->header.base_offset < newest)
            continue;
        position += (int64_t)m->header.total_bytes;
        if (last_of(m) < durable)
            safe = position;
    }
    int64_t size = safe + (int64_t)below(w, (uint64_t)(position - safe) + 1);
    ck_assert_int_eq(truncate(file, size), 0);
    if (below(w, 2) == 0)
        ck_assert_int_eq(truncate(file, size + (int64_t)below(w, 300)), 0); /* zeros */
    position = 0;
    for (size_t i = 0; i < w->count; i++) {
        if (w->batches[i].header.base_offset < newest)
            continue;
        position += (int64_t)w->batches[i].header.total_bytes;
        if (position > size && !(size + 300 >= position)) {
            model_drop_end(w, i);
            break;
        }
        if (position > size) { /* zeros may complete it: let the file say */
            uint8_t *data = malloc(w->batches[i].header.total_bytes);
            FILE *f = fopen(file, "rb");
            fseek(f, position - (int64_t)w->batches[i].header.total_bytes, SEEK_SET);
            size_t n = fread(data, 1, w->batches[i].header.total_bytes, f);
            fclose(f);
            bool whole = n == w->batches[i].header.total_bytes && memcmp(data, w->batches[i].bytes, n) == 0;
            free(data);
            if (!whole) {
                model_drop_end(w, i);
                break;
            }
        }
    }
}

static void step_restart(struct world *w)
{
    struct log_hint hint = {.clean = below(w, 2), .recovery_point = -1, .start_offset = w->start};
    int64_t durable = log_durable_end(w->log);
    ck_assert_int_eq(log_close(w->log), 0);
    if (!hint.clean) {
        if (below(w, 2) && durable >= w->start) /* a log that started over has nothing durable yet */
            hint.recovery_point = durable - (int64_t)below(w, (uint64_t)(durable - w->start) + 1);
        if (below(w, 2))
            tear(w, durable);
    }
    reopen(w, &hint);
}

static void (*const steps[])(struct world *w) = {
    step_append, step_append, step_append,  step_append,   step_read,
    step_read,   step_read,   step_read,    step_read,     step_read,
    step_flush,  step_retain, step_restart, step_truncate, step_find_time,
};

static void run_schedule(uint64_t seed, int steps_count)
{
    static struct world w;
    memset(&w, 0, sizeof w);
    w.random = seed;
    snprintf(w.path, sizeof w.path, "%s", fixture_log_path("model"));
    suite_remove_tree(w.path);
    w.settings = fixture_settings();
    w.settings.segment_bytes = 500 + (int64_t)below(&w, 20000);
    w.settings.index_interval_bytes = (int32_t)below(&w, 2000);
    w.log = fixture_open(w.path, &w.settings, &fixture_clean);
    for (int i = 0; i < steps_count; i++) {
        steps[below(&w, sizeof steps / sizeof steps[0])](&w);
        check_positions(&w);
    }
    ck_assert_int_eq(log_close(w.log), 0);
    model_drop_end(&w, 0);
}

START_TEST(a_log_does_what_its_model_does)
{
    uint64_t seeds = suite_seed();
    for (int run = 0; run < suite_rounds(25); run++)
        run_schedule(suite_random(&seeds), 200);
}
END_TEST

SUITE_MAIN("property/log_model", SUITE_TEST_SLOW(a_log_does_what_its_model_does, 120))
