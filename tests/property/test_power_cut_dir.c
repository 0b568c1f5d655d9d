/* The power goes at any call that touches a data directory: while it is made, while partitions are made in it, rolled,
 * retained, deleted and made anew, while checkpoints, identity and marker are written, while it is opened. What was said
 * to be done is done when the power is back: partitions with synced records are there with their topic's id and those that
 * were deleted are not, synced records are there, log starts that were checkpointed do not go back, a clean stop is
 * believed once, and only when it was one. A leader epoch that was kept as reached is there, and with it what was synced
 * before; it is never one of an earlier partition of that name. */
#include "broker/storage/data_dir.h"
#include "tests/support/batches.h"
#include "tests/support/power_cut.h"
#include "tests/support/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define T0 INT64_C(1700000000000)
#define PARTITIONS 3
#define LIVES 6
#define WORLDS 60
#define CLUSTER "wUxlYmA2Qzq9qPEkQJaYsg"

struct known {
    int64_t base_offset, end;
    uint32_t crc;
};

/* Before its first synced record nobody misses a new one. */
enum fate { IS_GONE, IS_BEING_MADE, IS_THERE, IS_BEING_DELETED };

struct place {
    struct log *log; /* NULL: not open */
    enum fate fate;
    uint8_t topic_id; /* of the one that is there, was or is being made */
    struct known *batches;
    size_t count;
    int64_t end;           /* where it ended last */
    int64_t promised;      /* it must not end below */
    int64_t start_promise; /* it must not start below */
    int32_t first_epoch; /* no epoch before was reached by the one that is there */
    int32_t epoch_promise, epoch_tried; /* the epoch it has reached lies between */
    int64_t start_seen;    /* nor above: that would be what an earlier one of its name had lost */
};

struct world {
    uint64_t random;
    char path[PATH_MAX];
    struct data_dir *dir;
    struct place places[PARTITIONS];
    uint8_t topic_ids;
    int32_t epoch; /* rises */
    bool may_be_clean, must_be_clean;
    unsigned flush_chance, clean_stops, cut_starts, opened, kept;
};

static uint64_t below(struct world *w, uint64_t bound)
{
    return suite_random_below(&w->random, bound);
}

static struct log_settings settings(void)
{
    struct log_settings s;
    log_settings_default(&s);
    s.segment_bytes = 2000;
    s.retention_bytes = 6000;
    s.file_delete_delay_ms = 0;
    return s;
}

/* ---- what is done ----------------------------------------------------------------------------------- */

static void promise(struct place *p, int64_t end)
{
    if (power_is_cut() || end <= p->promised)
        return;
    p->promised = end;
    p->fate = IS_THERE; /* names and all */
}

static void append(struct world *w, struct place *p)
{
    struct log_batch b =
        batches_make((int)below(w, 4) + 1, T0, 1, (size_t)below(w, 400), (uint32_t)below(w, UINT32_MAX));
    int64_t base;
    if (log_append(p->log, &b, 1, p->topic_id, T0, &base, NULL) == 0) {
        p->batches = realloc(p->batches, (p->count + 1) * sizeof p->batches[0]);
        ck_assert_ptr_nonnull(p->batches);
        p->batches[p->count++] =
            (struct known){.base_offset = base, .end = log_end_offset(p->log), .crc = b.header.crc};
    }
    p->end = log_end_offset(p->log);
    batches_free(&b);
}

static void retain(struct place *p)
{
    log_retain(p->log, T0);
    p->start_seen = log_start_offset(p->log);
}

static void flush(struct place *p)
{
    if (log_flush(p->log) == 0)
        promise(p, log_durable_end(p->log));
}

static void forget(struct place *p)
{
    free(p->batches);
    *p = (struct place){.topic_id = p->topic_id};
}

/* As hosting does: what checkpoints say of an earlier one of this name first, the topic's id last. */
static void make(struct world *w, int number)
{
    struct place *p = &w->places[number];
    struct log_settings s = settings();
    struct log_hint fresh = {.recovery_point = -1, .start_offset = -1};
    char path[PATH_MAX];
    uint8_t id[16] = {++w->topic_ids};
    forget(p);
    p->first_epoch = ++w->epoch;
    p->epoch_promise = p->epoch_tried = -1;
    p->topic_id = w->topic_ids;
    p->fate = IS_BEING_MADE;
    data_dir_partition_path(w->dir, "t", number, path);
    if (data_dir_forget(w->dir, "t", number) != 0 || log_open(path, &s, &fresh, &p->log, NULL, NULL) != 0)
        return;
    if (data_dir_write_topic_id(w->dir, "t", number, id) == 0)
        return;
    log_close(p->log);
    p->log = NULL;
}

static void delete(struct place *p)
{
    p->fate = IS_BEING_DELETED;
    if (log_delete(&p->log) == 0 && !power_is_cut())
        p->fate = IS_GONE;
}

/* Of several at once, as after a failover; each log is on the disk before. */
static void keep_epochs(struct world *w)
{
    struct data_dir_start list[PARTITIONS];
    size_t count = 0;
    w->epoch++;
    for (int i = 0; i < PARTITIONS; i++) {
        struct place *p = &w->places[i];
        if (!p->log || below(w, 3) == 0)
            continue;
        flush(p);
        p->epoch_tried = w->epoch;
        list[count++] = (struct data_dir_start){"t", i, w->epoch};
    }
    bool done = data_dir_keep_reached(w->dir, list, count) == 0 && !power_is_cut();
    for (size_t i = 0; done && i < count; i++) {
        struct place *p = &w->places[list[i].partition];
        p->epoch_promise = w->epoch;
        w->kept++;
    }
}

static void checkpoint(struct world *w, bool flush_first)
{
    struct data_dir_checkpoint entries[PARTITIONS];
    int64_t starts[PARTITIONS];
    size_t count = 0;
    for (int i = 0; i < PARTITIONS; i++) {
        struct place *p = &w->places[i];
        if (!p->log)
            continue;
        if (flush_first)
            flush(p);
        starts[i] = log_start_offset(p->log);
        entries[count++] =
            (struct data_dir_checkpoint){"t", i, log_durable_end(p->log), starts[i], log_end_offset(p->log), 0, -1};
    }
    bool done = data_dir_checkpoint(w->dir, entries, count, NULL) == 0 && !power_is_cut();
    for (int i = 0; done && i < PARTITIONS; i++)
        if (w->places[i].log)
            w->places[i].start_promise = starts[i];
}

static void act(struct world *w)
{
    int number = (int)below(w, PARTITIONS);
    struct place *p = &w->places[number];
    if (!p->log)
        make(w, number);
    else if (below(w, w->flush_chance) == 0)
        flush(p);
    else if (below(w, 20) == 0)
        retain(p);
    else if (below(w, 25) == 0)
        checkpoint(w, true);
    else if (below(w, 20) == 0)
        keep_epochs(w);
    else if (below(w, 30) == 0)
        delete(p);
    else
        append(w, p);
}

static void live(struct world *w)
{
    for (int i = 0; i < 400 && !power_is_cut(); i++)
        act(w);
}

/* All closed, told, and then the marker: in hosting's order. */
static void stop_cleanly(struct world *w)
{
    struct data_dir_checkpoint entries[PARTITIONS];
    size_t count = 0;
    bool is_well = true;
    for (int i = 0; i < PARTITIONS; i++) {
        struct place *p = &w->places[i];
        if (!p->log)
            continue;
        int64_t start = log_start_offset(p->log), end = log_end_offset(p->log);
        is_well = log_close(p->log) == 0 && is_well;
        p->log = NULL;
        if (is_well)
            promise(p, end);
        p->epoch_tried = ++w->epoch;
        entries[count++] = (struct data_dir_checkpoint){"t", i, end, start, end, 0, w->epoch};
    }
    is_well = is_well && data_dir_checkpoint(w->dir, entries, count, NULL) == 0;
    if (!is_well)
        return;
    w->may_be_clean = true;
    for (size_t i = 0; !power_is_cut() && i < count; i++)
        w->places[entries[i].partition].epoch_promise = entries[i].reached_epoch;
    if (data_dir_mark_clean(w->dir) == 0 && !power_is_cut())
        w->must_be_clean = true;
}

static void stop(struct world *w)
{
    for (int i = 0; i < PARTITIONS; i++) {
        log_close(w->places[i].log);
        w->places[i].log = NULL;
    }
    data_dir_close(w->dir, false);
    w->dir = NULL;
}

/* ---- what must be there ----------------------------------------------------------------------------- */

static bool read_at(struct log *log, int64_t offset, struct batch_header *ret)
{
    struct log_range range;
    uint8_t data[BATCH_HEADER_BYTES];
    ck_assert_int_eq(log_read(log, offset, log_end_offset(log), 1, true, 1 << 20, &range), 0);
    bool any = range.bytes > 0;
    if (any) {
        ck_assert_int_eq(pread(range.fd, data, sizeof data, range.position), (ssize_t)sizeof data);
        int r = batch_read_header(data, sizeof data, ret);
        ck_assert(r == 0 || r == -BROOK_E_AGAIN);
    }
    log_range_done(&range);
    return any;
}

/* Every batch is one that was put there, in its place; what is missing was not promised, or lies below the start. */
static void check_batches(struct place *p)
{
    struct batch_header h;
    int64_t start = log_start_offset(p->log), at = start, end = log_end_offset(p->log);
    size_t i = 0, kept = 0;
    while (i < p->count && p->batches[i].end <= start)
        i++;
    for (; at < end && read_at(p->log, at, &h); i++) {
        for (; i < p->count && p->batches[i].base_offset != h.base_offset; i++)
            ck_assert_int_ge(p->batches[i].base_offset, p->promised);
        ck_assert_uint_lt(i, p->count);
        ck_assert_int_eq(batch_last_offset(&h) + 1, p->batches[i].end);
        ck_assert_uint_eq(h.crc, p->batches[i].crc);
        at = p->batches[i].end;
        p->batches[kept++] = p->batches[i];
    }
    for (; i < p->count; i++)
        ck_assert_int_ge(p->batches[i].base_offset, p->promised);
    p->count = kept;
}

static void check_log(struct world *w, struct place *p, bool was_clean)
{
    int64_t start = log_start_offset(p->log), end = log_end_offset(p->log);
    ck_assert_msg(end >= p->promised, "the log ends at %lld and %lld was promised", (long long)end,
                  (long long)p->promised);
    ck_assert_msg(start >= p->start_promise, "the log starts at %lld and %lld was checkpointed", (long long)start,
                  (long long)p->start_promise);
    /* It may begin further on where nothing before that was promised: the first of it was lost. */
    ck_assert_msg(start <= p->start_seen || p->promised <= p->start_seen, "the log starts at %lld and did so at %lld", (long long)start,
                  (long long)p->start_seen);
    if (was_clean)
        ck_assert_int_eq(end, p->end);
    int32_t epoch = data_dir_reached(w->dir, "t", (int32_t)(p - w->places));
    ck_assert_int_ge(epoch, p->epoch_promise);
    ck_assert_int_le(epoch, p->epoch_tried);
    ck_assert(epoch < 0 || epoch >= p->first_epoch);
    p->epoch_promise = p->epoch_tried = epoch;
    check_batches(p);
    p->end = end;
    p->start_seen = start;
    p->promised = end; /* what opening found it has synced */
    w->opened++;
}

/* One that was found. Those without a topic's id were not finished, and are empty. Returns false when the power went. */
static bool open_found(struct world *w, const struct data_dir_partition *found, bool was_clean)
{
    struct place *p = &w->places[found->partition];
    struct log_settings s = settings();
    struct brook_error error = {0};
    char path[PATH_MAX];
    data_dir_partition_path(w->dir, "t", found->partition, path);
    int r = log_open(path, &s, &found->hint, &p->log, NULL, &error);
    if (power_is_cut())
        return false;
    ck_assert_msg(r == 0, "it does not open: %s", error.text);
    if (found->topic_id[0] == 0) {
        ck_assert_int_eq(p->promised, 0);
        if (log_end_offset(p->log) == 0)
            return log_delete(&p->log) == 0 || power_is_cut();
        log_close(p->log); /* records that were never synced, of nobody knows which topic */
        p->log = NULL;
        return data_dir_set_aside(w->dir, "t", found->partition) == 0 || power_is_cut();
    }
    ck_assert_int_eq(found->topic_id[0], p->topic_id);
    ck_assert(p->fate != IS_GONE);
    check_log(w, p, was_clean);
    if (p->end > 0)
        p->fate = IS_THERE;
    return true;
}

static bool is_found(const struct data_dir_partition *found, size_t count, int number)
{
    for (size_t i = 0; i < count; i++)
        if (found[i].partition == number)
            return true;
    return false;
}

/* Returns whether it is open; else the power went meanwhile. */
static bool start(struct world *w)
{
    struct brook_error error = {0};
    size_t count;
    int r = data_dir_open(w->path, 1, CLUSTER, &w->dir, &error);
    if (r != 0 && power_is_cut()) {
        w->must_be_clean = false; /* the marker may have been taken */
        return false;
    }
    ck_assert_msg(r == 0, "it does not open: %s", error.text);
    bool was_clean = data_dir_was_clean(w->dir, NULL);
    ck_assert(!was_clean || w->may_be_clean);
    ck_assert(was_clean || !w->must_be_clean);
    w->clean_stops += was_clean;
    w->must_be_clean = false;
    if (!power_is_cut())
        w->may_be_clean = false;
    size_t warnings;
    const char *const *text = data_dir_warnings(w->dir, &warnings);
    for (size_t i = 0; i < warnings && !power_is_cut(); i++)
        ck_assert_msg(strstr(text[i], "partition.metadata"), "%s", text[i]);
    const struct data_dir_partition *found = data_dir_partitions(w->dir, &count);
    for (int i = 0; i < PARTITIONS; i++) {
        ck_assert(w->places[i].fate != IS_THERE || is_found(found, count, i));
        if (!is_found(found, count, i) && !power_is_cut())
            w->places[i].fate = IS_GONE;
    }
    for (size_t i = 0; i < count; i++)
        if (!open_found(w, &found[i], was_clean))
            return false;
    return !power_is_cut();
}

/* ---- worlds ----------------------------------------------------------------------------------------- */

static void cut(struct world *w)
{
    power_cut_after(0);
    stop(w);
    power_restore(&w->random);
}

static void one_world(uint64_t seed, unsigned *clean_stops, unsigned *cut_starts, unsigned *opened, unsigned *kept)
{
    struct world w = {.random = seed};
    char root[PATH_MAX];
    w.flush_chance = below(&w, 2) ? 4 : 40;
    snprintf(root, sizeof root, "%s/disk", suite_directory());
    snprintf(w.path, sizeof w.path, "%.3000s/data", root);
    power_begin(root);
    for (int life = 0; life < LIVES; life++) {
        if (below(&w, 3) == 0)
            power_cut_after((int)below(&w, 40) + 1); /* perhaps while it starts */
        if (!start(&w)) {
            w.cut_starts++;
            cut(&w);
            continue;
        }
        power_cut_after((int)below(&w, 250) + 1);
        live(&w);
        if (below(&w, 2) == 0)
            power_cut_after((int)below(&w, 60) + 1);
        if (!power_is_cut())
            stop_cleanly(&w);
        cut(&w);
    }
    ck_assert(start(&w));
    stop(&w);
    *clean_stops += w.clean_stops;
    *cut_starts += w.cut_starts;
    *opened += w.opened;
    *kept += w.kept;
    for (int i = 0; i < PARTITIONS; i++)
        forget(&w.places[i]);
    power_end();
}

START_TEST(what_a_data_directory_was_told_to_keep_it_keeps)
{
    uint64_t seed = suite_seed();
    unsigned clean_stops = 0, cut_starts = 0, opened = 0, kept = 0;
    for (int i = 0; i < WORLDS; i++)
        one_world(suite_random(&seed), &clean_stops, &cut_starts, &opened, &kept);
    fprintf(stderr, "# %u clean stops, %u cuts while starting, %u logs opened, %u epochs kept\n", clean_stops, cut_starts,
            opened, kept);
    ck_assert_uint_gt(clean_stops, WORLDS / 10);
    ck_assert_uint_gt(cut_starts, WORLDS / 4);
    ck_assert_uint_gt(opened, 2 * WORLDS);
    ck_assert_uint_gt(kept, WORLDS);
}
END_TEST

SUITE_MAIN("property/power_cut_dir", SUITE_TEST_SLOW(what_a_data_directory_was_told_to_keep_it_keeps, 120))
