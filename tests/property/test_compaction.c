/* A log that is compacted beside a model of it (an array of all records ever appended), under a random
 * schedule: appends of several codecs with keys, tombstones and records without a key, compaction with a small
 * map, a bound, and stops on its way, clean and unclean restarts, truncation, time that passes. After each step
 * every record that is there is the one that was appended, and each that is missing had to go or was free to.
 * BROOK_SEED replays. */
#include "broker/storage/compaction.h"
#include "tests/support/faulty_io.h"
#include "tests/support/keyed.h"
#include "tests/unit/storage/fixture.h"

#include <stdio.h>
#include <string.h>

#define RECORDS_MAX 20000

struct model_record {
    struct keyed keyed;
    int key;           /* -1: none */
    bool is_seen;      /* in the log at the last look */
    bool is_settled;   /* it was gone, rightly, when the log was cut: what replaced it may be gone too */
    int64_t first_ms;  /* of the first compaction that may have looked at it; 0: none */
    int64_t settled_ms; /* of the first that went through and covered its batch; 0: none */
    int64_t batch_end;
};

struct world {
    uint64_t random;
    char path[1024];
    struct log_settings settings;
    struct log *log;
    struct model_record records[RECORDS_MAX]; /* by offset */
    int64_t end;
    int64_t now_ms;
    int64_t cleaned; /* as the log says; the caller's checkpoint */
    int32_t epoch;
    int keys;
    int stop_after;
    int64_t touched;    /* compaction has looked at what is below */
    bool may_fall_back; /* the log was cut below that, and nothing was appended since */
};

static uint64_t below(struct world *w, uint64_t bound)
{
    return suite_random_below(&w->random, bound);
}

/* ---- what must hold ------------------------------------------------------------------------------------- */

/* The last record of the key below `end` behind `offset`; -1: none. */
static int64_t replaced_by(const struct world *w, int64_t offset)
{
    int key = w->records[offset].key;
    for (int64_t i = w->end - 1; key >= 0 && i > offset; i--)
        if (w->records[i].key == key)
            return i;
    return -1;
}

static void check_missing(struct world *w, int64_t offset)
{
    const struct model_record *m = &w->records[offset];
    bool was_compacted = m->first_ms > 0;
    if (m->is_settled)
        return;
    bool is_due = !m->keyed.has_value && w->now_ms >= m->first_ms + w->settings.delete_retention_ms;
    ck_assert_msg(was_compacted && (replaced_by(w, offset) >= 0 || is_due),
                  "the record at %lld is gone (first compacted at %lld, now %lld)", (long long)offset,
                  (long long)m->first_ms, (long long)w->now_ms);
}

static void check(struct world *w)
{
    struct keyed *list;
    size_t count = keyed_read_all(w->log, &list, NULL, NULL), next = 0;
    ck_assert_int_eq(log_end_offset(w->log), w->end);
    for (int64_t offset = 0; offset < w->end; offset++) {
        struct model_record *m = &w->records[offset];
        bool is_there = next < count && list[next].offset == offset;
        ck_assert_msg(m->is_seen || !is_there, "the record at %lld has come back", (long long)offset);
        if (is_there)
            ck_assert_msg(keyed_equal(&list[next++], &m->keyed), "the record at %lld is another one",
                          (long long)offset);
        else
            check_missing(w, offset);
        m->is_seen = is_there;
    }
    ck_assert_uint_eq(next, count);
    free(list);
}

/* After a compaction that went through: nothing is left of what had to go. */
static void check_gone(struct world *w, int64_t cleaned)
{
    for (int64_t offset = 0; offset < cleaned; offset++) {
        const struct model_record *m = &w->records[offset];
        if (!m->is_seen || m->key < 0)
            continue;
        for (int64_t i = offset + 1; i < cleaned; i++)
            ck_assert_msg(w->records[i].key != m->key, "the record at %lld was replaced by %lld and is there",
                          (long long)offset, (long long)i);
        bool is_due = !m->keyed.has_value && m->settled_ms > 0 &&
                      w->now_ms >= m->settled_ms + w->settings.delete_retention_ms;
        ck_assert_msg(!is_due, "the tombstone at %lld is still there", (long long)offset);
    }
}

/* ---- steps ---------------------------------------------------------------------------------------------- */

static void step_append(struct world *w)
{
    struct keyed list[40];
    int count = 1 + (int)below(w, below(w, 5) ? 6 : 40);
    if (w->end + count > RECORDS_MAX)
        return;
    w->epoch += below(w, 15) == 0;
    for (int i = 0; i < count; i++) {
        int64_t offset = w->end + i;
        int key = below(w, 20) ? (int)below(w, (uint64_t)w->keys) : -1;
        int value = key >= 0 && below(w, 5) == 0 ? -1 : (int)offset;
        list[i] = keyed_record(key, value, w->now_ms + (int64_t)below(w, 50) - 25);
        list[i].offset = offset;
        w->records[offset] =
            (struct model_record){.keyed = list[i], .key = key, .is_seen = true, .batch_end = w->end + count};
    }
    int64_t producer = below(w, 3) ? -1 : (int64_t)below(w, 3), base;
    struct log_batch b = keyed_batch((enum codec_id)below(w, 5), list, count, producer, (int32_t)w->end);
    ck_assert_int_eq(log_append(w->log, &b, 1, w->epoch, w->now_ms, &base, NULL), 0);
    ck_assert_int_eq(base, w->end);
    batches_free(&b);
    w->end += count;
    w->may_fall_back = false;
}

static bool go_on(void *arg, size_t bytes)
{
    struct world *w = arg;
    return w->stop_after < 0 || w->stop_after-- > 0;
}

static void exclusively(void *arg, void (*work)(void *work_arg), void *work_arg)
{
    (void)arg;
    work(work_arg);
}

static void step_compact(struct world *w)
{
    struct compaction_settings s = {.map_bytes_max = 24 * (2 + (below(w, 2) ? below(w, 30) : 4000)),
                                    .expanded_bytes_max = 1 << 20,
                                    .go_on = go_on,
                                    .exclusively = exclusively,
                                    .arg = w};
    struct compaction_result result;
    struct brook_error error;
    int64_t bound = below(w, 3) ? w->end : (int64_t)below(w, (uint64_t)w->end + 1);
    w->stop_after = below(w, 4) ? -1 : (int)below(w, 200);
    for (int64_t i = 0; i < bound; i++)
        if (!w->records[i].first_ms)
            w->records[i].first_ms = w->now_ms;
    w->touched = bound > w->touched ? bound : w->touched;
    int64_t before = log_cleaned_offset(w->log);
    int r = log_compact(w->log, bound, w->now_ms, &s, &result, &error);
    ck_assert_msg(r == 0 || (r == -BROOK_E_CLOSED && w->stop_after < 0), "%d: %s", r, error.text);
    int64_t cleaned = log_cleaned_offset(w->log);
    ck_assert_int_ge(cleaned, before);
    ck_assert(cleaned <= bound || cleaned == before);
    check(w);
    if (r == 0 && cleaned > before)
        check_gone(w, cleaned);
    for (int64_t i = 0; r == 0 && i < cleaned; i++)
        if (w->records[i].batch_end <= cleaned && !w->records[i].settled_ms)
            w->records[i].settled_ms = w->now_ms;
    w->cleaned = cleaned;
}

/* Nobody truncates below what is compacted; the log must bear it all the same. */
static void step_truncate(struct world *w)
{
    int64_t low = below(w, 8) ? w->cleaned : 0;
    int64_t offset = low + (int64_t)below(w, (uint64_t)(w->end - low) + 1);
    if (below(w, 3))
        return;
    w->may_fall_back = w->may_fall_back || offset < w->touched;
    ck_assert_int_eq(log_truncate(w->log, offset, NULL), 0);
    w->end = log_end_offset(w->log);
    ck_assert_int_le(log_cleaned_offset(w->log), w->end);
    w->cleaned = log_cleaned_offset(w->log);
    /* What was replaced by something that is cut off now stays gone. */
    for (int64_t i = 0; i < w->end; i++)
        w->records[i].is_settled = !w->records[i].is_seen;
}

static void step_restart(struct world *w)
{
    struct log_hint hint = {.clean = below(w, 2), .recovery_point = -1, .start_offset = -1};
    hint.cleaned_offset = below(w, 4) ? w->cleaned : -1;
    ck_assert_int_eq(log_close(w->log), 0);
    w->log = fixture_open(w->path, &w->settings, &hint);
    /* A cut below what is compacted can leave the end in a gap; the log then goes on behind its last batch. */
    int64_t end = log_end_offset(w->log);
    ck_assert(end == w->end || (end < w->end && w->may_fall_back));
    for (; w->end > end; w->end--)
        ck_assert(!w->records[w->end - 1].is_seen);
    w->cleaned = log_cleaned_offset(w->log);
    check(w);
}

static void step_time(struct world *w)
{
    w->now_ms += (int64_t)below(w, 400);
}

static void step_find_time(struct world *w)
{
    int64_t wanted = T0 + (int64_t)below(w, (uint64_t)(w->now_ms - T0) + 100), expected = -1, got = -1, stamp;
    for (int64_t i = 0; i < w->end && expected < 0; i++)
        if (w->records[i].is_seen && w->records[i].keyed.timestamp >= wanted)
            expected = i;
    int r = log_find_time(w->log, wanted, INT64_MAX, 1 << 20, &got, &stamp);
    ck_assert(r == 0 || r == -BROOK_E_NOT_FOUND);
    ck_assert_int_eq(got, expected);
}

static void (*const steps[])(struct world *w) = {
    step_append, step_append, step_append,  step_append,   step_append,  step_append, step_compact,
    step_time,   step_time,   step_restart, step_truncate, step_find_time,
};

static void run_schedule(uint64_t seed, int steps_count)
{
    static struct world w;
    memset(&w, 0, sizeof w);
    w.random = seed;
    snprintf(w.path, sizeof w.path, "%s", fixture_log_path("compaction"));
    suite_remove_tree(w.path);
    w.now_ms = T0;
    w.keys = 1 + (int)below(&w, below(&w, 2) ? 20 : 400);
    w.settings = fixture_settings();
    w.settings.cleanup_policy = CLEANUP_COMPACT;
    w.settings.segment_bytes = 500 + (int64_t)below(&w, 8000);
    w.settings.index_interval_bytes = (int32_t)below(&w, 500);
    w.settings.delete_retention_ms = (int64_t)below(&w, 3000);
    w.log = fixture_open(w.path, &w.settings, &fixture_clean);
    for (int i = 0; i < steps_count; i++)
        steps[below(&w, sizeof steps / sizeof steps[0])](&w);
    check(&w);
    ck_assert_int_eq(log_close(w.log), 0);
}

START_TEST(a_compacted_log_holds_the_last_of_each_key)
{
    uint64_t seeds = suite_seed();
    faulty_reset(); /* syncs are counted only */
    for (int run = 0; run < (suite_is_quick() ? 15 : 60); run++)
        run_schedule(suite_random(&seeds), 200);
}
END_TEST

SUITE_MAIN("property/compaction", SUITE_TEST_SLOW(a_compacted_log_holds_the_last_of_each_key, 120))
