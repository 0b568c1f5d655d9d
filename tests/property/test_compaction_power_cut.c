/* The power goes at any call of a compaction, one run for each; then, and once more while the log is opened
 * again. What is there afterwards is the old content or the new, whole, group by group: every record that is
 * the last of its key, nothing twice, nothing that was never there. */
#include "broker/storage/compaction.h"
#include "tests/support/keyed.h"
#include "tests/support/power_cut.h"
#include "tests/unit/storage/fixture.h"

#include <stdio.h>
#include <string.h>

#define RECORDS_MAX 130

struct world {
    uint64_t random;
    char root[600];
    char path[PATH_MAX];
    struct log_settings settings;
    struct keyed records[RECORDS_MAX];
    int64_t end;
};

static uint64_t below(struct world *w, uint64_t bound)
{
    return suite_random_below(&w->random, bound);
}

/* NULL: the power is gone. */
static struct log *open_log(struct world *w)
{
    struct log_hint hint = {.recovery_point = -1, .start_offset = -1};
    struct brook_error error = {0};
    struct log *log = NULL;
    int r = log_open(w->path, &w->settings, &hint, &log, NULL, &error);
    ck_assert_msg(r == 0 || power_is_cut(), "it does not open: %s", error.text);
    return r == 0 ? log : NULL;
}

static void fill(struct world *w, struct log *log)
{
    w->end = 0;
    while (w->end + 12 < RECORDS_MAX) {
        int count = 1 + (int)below(w, 10);
        int64_t base;
        for (int i = 0; i < count; i++) {
            struct keyed *k = &w->records[w->end + i];
            *k = keyed_record((int)below(w, 25), below(w, 6) ? (int)(w->end + i) : -1, T0 + w->end + i);
            k->offset = w->end + i;
        }
        struct log_batch b =
            keyed_batch(below(w, 3) ? CODEC_NONE : CODEC_LZ4, w->records + w->end, count, -1, -1);
        ck_assert_int_eq(log_append(log, &b, 1, (int32_t)w->end / 50, T0, &base, NULL), 0);
        batches_free(&b);
        w->end += count;
    }
    ck_assert_int_eq(log_flush(log), 0);
}

static bool is_last(const struct world *w, int64_t offset)
{
    for (int64_t i = offset + 1; i < w->end; i++)
        if (!strcmp(w->records[i].key, w->records[offset].key))
            return false;
    return true;
}

static void check(struct world *w, struct log *log)
{
    struct keyed *list;
    size_t count = keyed_read_all(log, &list, NULL, NULL), next = 0;
    ck_assert_int_eq(log_end_offset(log), w->end);
    ck_assert_int_eq(log_start_offset(log), 0);
    for (int64_t i = 0; i < w->end; i++) {
        if (next < count && list[next].offset == i)
            ck_assert(keyed_equal(&list[next++], &w->records[i]));
        else
            ck_assert_msg(!is_last(w, i), "the last record of %s, at %lld, is gone", w->records[i].key,
                          (long long)i);
    }
    ck_assert_uint_eq(next, count);
    free(list);
}

static bool go_on(void *arg, size_t bytes)
{
    (void)arg;
    (void)bytes;
    return true;
}

static void exclusively(void *arg, void (*work)(void *work_arg), void *work_arg)
{
    (void)arg;
    work(work_arg);
}

static int compact(struct log *log, int64_t bound)
{
    struct compaction_settings s = {
        .map_bytes_max = 4000, .expanded_bytes_max = 1 << 20, .go_on = go_on, .exclusively = exclusively};
    struct compaction_result result;
    return log_compact(log, bound, T0, &s, &result, NULL);
}

/* Opens, with the power going once more on the way every other time. */
static struct log *open_again(struct world *w)
{
    power_restore(&w->random);
    if (below(w, 2)) {
        power_cut_after((int)below(w, 12) + 1);
        log_close(open_log(w));
        power_cut_after(0);
        power_restore(&w->random);
    }
    return open_log(w);
}

/* Returns false when the compaction needs fewer than `calls` calls. */
static bool cut_at(uint64_t seed, int calls)
{
    static struct world w;
    memset(&w, 0, sizeof w);
    w.random = seed;
    snprintf(w.root, sizeof w.root, "%s/power", suite_directory());
    snprintf(w.path, sizeof w.path, "%s/log", w.root);
    w.settings = fixture_settings();
    w.settings.cleanup_policy = CLEANUP_COMPACT;
    w.settings.segment_bytes = 600 + (int64_t)below(&w, 2000);
    power_begin(w.root);
    struct log *log = open_log(&w);
    ck_assert_ptr_nonnull(log);
    fill(&w, log);
    w.random += (uint64_t)calls; /* the same log, another fate */
    if (below(&w, 2))
        ck_assert_int_eq(compact(log, w.end / 2), 0);
    power_cut_after(calls);
    compact(log, w.end);
    bool was_cut = power_is_cut();
    power_cut_after(0);
    log_close(log);
    log = open_again(&w);
    check(&w, log);
    ck_assert_int_eq(compact(log, w.end), 0);
    check(&w, log);
    ck_assert_int_eq(log_close(log), 0);
    power_end();
    return was_cut;
}

START_TEST(the_power_may_go_at_any_call_of_a_compaction)
{
    uint64_t seeds = suite_seed();
    int cuts = 0;
    for (int run = 0; run < (suite_is_quick() ? 2 : 6); run++) {
        uint64_t seed = suite_random(&seeds);
        int calls = 1;
        while (cut_at(seed, calls))
            calls++;
        cuts += calls - 1;
    }
    ck_assert_int_gt(cuts, 20);
}
END_TEST

SUITE_MAIN("property/compaction_power_cut", SUITE_TEST_SLOW(the_power_may_go_at_any_call_of_a_compaction, 120))
