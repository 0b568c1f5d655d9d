/* The power goes at any call that touches a file. What was promised must be there when it is back, and the
 * log goes on: with `fsync` every record that was acknowledged to acks=all, with `fsync` and `interval` every
 * record that consumers were shown, with any durability whole batches without a gap. */
#include "broker/partition/partition.h"

#include "broker/storage/flusher.h"
#include "tests/support/batches.h"
#include "tests/support/power_cut.h"
#include "tests/support/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define T0 INT64_C(1700000000000)
#define LIVES 6
#define APPENDS_MAX 120

/* What is known of a batch: where it must be, and what is in it. */
struct known {
    int64_t base_offset;
    int64_t end;
    uint32_t crc;
};

struct world {
    uint64_t random;
    char path[PATH_MAX];
    struct durability durability;
    struct inbox inbox;
    struct flusher *flusher;
    struct partition *partition;
    int32_t leader_epoch;
    struct known *batches;
    size_t count;
    int64_t promised;       /* the log must not end below */
    int64_t recovery_point; /* as a checkpoint would have it */
};

struct produce {
    struct world *world;
    struct partition_append append;
    struct log_batch batch;
};

static uint64_t below(struct world *w, uint64_t bound)
{
    return suite_random_below(&w->random, bound);
}

static void promise(struct world *w, int64_t end)
{
    if (end > w->promised)
        w->promised = end;
}

/* ---- producing ------------------------------------------------------------------------------------------
 */

static void answered(struct partition_append *a)
{
    struct produce *q = CONTAINER_OF(a, struct produce, append);
    struct world *w = q->world;
    if (a->error.code == 0 && a->wait_for_all && w->durability.mode == DURABILITY_FSYNC)
        promise(w, a->last_offset + 1);
    batches_free(&q->batch);
    free(q);
}

static void produce(struct world *w)
{
    struct produce *q = calloc(1, sizeof *q);
    ck_assert_ptr_nonnull(q);
    int64_t end = log_end_offset(partition_log(w->partition));
    q->world = w;
    q->batch =
        batches_make((int)below(w, 4) + 1, T0, 1, (size_t)below(w, 300), (uint32_t)below(w, UINT32_MAX));
    struct known known = {.base_offset = end, .crc = q->batch.header.crc};
    known.end = end + batch_last_offset(&q->batch.header) - q->batch.header.base_offset + 1;
    q->append.batches = &q->batch;
    q->append.batches_count = 1;
    q->append.inbox = &w->inbox;
    q->append.wait_for_all = below(w, 2) == 0;
    q->append.done = answered;
    partition_enqueue(w->partition, &q->append);
    partition_drain(w->partition, &w->inbox);
    if (log_end_offset(partition_log(w->partition)) == end)
        return; /* it failed, and took nothing */
    ck_assert_int_eq(log_end_offset(partition_log(w->partition)), known.end);
    w->batches = realloc(w->batches, (w->count + 1) * sizeof w->batches[0]);
    ck_assert_ptr_nonnull(w->batches);
    w->batches[w->count++] = known;
}

/* Consumers are shown what is visible now. */
static void consume(struct world *w)
{
    struct partition_marks m;
    partition_marks(w->partition, &m);
    if (w->durability.mode != DURABILITY_REPLICATED)
        promise(w, m.visible_end);
}

static void checkpoint(struct world *w)
{
    int r = partition_flush(w->partition);
    int64_t durable_end = log_durable_end(partition_log(w->partition));
    if (r == 0 && !power_is_cut())
        w->recovery_point = durable_end;
}

static void live(struct world *w)
{
    power_cut_after((int)below(w, 100) + 1);
    for (int i = 0; i < APPENDS_MAX && !power_is_cut(); i++) {
        produce(w);
        inbox_drain(&w->inbox);
        if (below(w, 5) == 0)
            consume(w);
        if (below(w, 25) == 0)
            checkpoint(w);
    }
    power_cut_after(0);
}

/* ---- the end and the beginning of a life ----------------------------------------------------------------
 */

static void stop(struct world *w)
{
    partition_stop_leading(w->partition);
    flusher_free(w->flusher);
    inbox_drain(&w->inbox);
    partition_unref(w->partition);
    w->partition = NULL;
}

static void start(struct world *w)
{
    static const uint8_t topic_id[16] = {1};
    struct log_settings settings;
    struct log_hint hint = {.recovery_point = w->recovery_point, .start_offset = -1};
    struct brook_error error = {0};
    struct log *log = NULL;
    log_settings_default(&settings);
    settings.segment_bytes = 3000;
    int r = log_open(w->path, &settings, &hint, &log, NULL, &error);
    ck_assert_msg(r == 0, "it does not open: %s", error.text);
    ck_assert_int_eq(partition_new("t", 0, topic_id, &log, &w->partition), 0);
    ck_assert_int_eq(flusher_new(4, &w->flusher), 0);
    partition_use_flusher(w->partition, w->flusher);
    partition_set_durability(w->partition, &w->durability);
    ck_assert_int_eq(partition_lead_with(w->partition, ++w->leader_epoch, 0, INT64_MAX, 1), 0);
}

/* The header of the batch that holds `offset` or is the next one. Returns false when there is none. */
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

/* Every batch that is there is one that was put there, in its place, and nothing is missing that was
 * promised. (What was not may be: where a newer segment's name survived and an older one's last batches did
 * not, the offsets of those are not given again.) */
static void check(struct world *w)
{
    struct log *log = partition_log(w->partition);
    struct batch_header h;
    size_t i = 0, kept = 0;
    int64_t end = log_end_offset(log), at = 0;
    ck_assert_msg(end >= w->promised, "the log ends at %lld and %lld was promised", (long long)end,
                  (long long)w->promised);
    ck_assert_int_eq(log_start_offset(log), 0);
    for (; at < end && read_at(log, at, &h); i++) {
        for (; i < w->count && w->batches[i].base_offset != h.base_offset; i++)
            ck_assert_int_ge(w->batches[i].base_offset, w->promised);
        ck_assert_uint_lt(i, w->count);
        ck_assert_int_eq(batch_last_offset(&h) + 1, w->batches[i].end);
        ck_assert_uint_eq(h.crc, w->batches[i].crc);
        at = w->batches[i].end;
        w->batches[kept++] = w->batches[i];
    }
    for (; i < w->count; i++)
        ck_assert_int_ge(w->batches[i].base_offset, w->promised);
    w->count = kept;
    w->promised = w->durability.mode == DURABILITY_REPLICATED ? 0 : end;
}

static void one_world(uint64_t seed, enum durability_mode mode)
{
    struct world w = {.random = seed, .leader_epoch = 0, .recovery_point = -1};
    char root[PATH_MAX];
    w.durability = (struct durability){.mode = (int32_t)mode,
                                       .flush_messages = (int64_t)below(&w, 20) + 1,
                                       .flush_ms = (int64_t)below(&w, 5)};
    snprintf(root, sizeof root, "%s/disk", suite_directory());
    snprintf(w.path, sizeof w.path, "%.3000s/t-0", root);
    power_begin(root);
    ck_assert_int_eq(inbox_init(&w.inbox), 0);
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
    inbox_done(&w.inbox);
    free(w.batches);
    power_end();
}

#define WORLDS 30

static void many_worlds(enum durability_mode mode)
{
    uint64_t seed = suite_seed();
    for (int i = 0; i < WORLDS; i++)
        one_world(suite_random(&seed), mode);
}

START_TEST(with_fsync_nothing_acknowledged_or_shown_is_lost)
{
    many_worlds(DURABILITY_FSYNC);
}
END_TEST

START_TEST(with_interval_nothing_shown_is_lost)
{
    many_worlds(DURABILITY_INTERVAL);
}
END_TEST

START_TEST(with_replicated_the_log_opens_to_whole_batches_and_goes_on)
{
    many_worlds(DURABILITY_REPLICATED);
}
END_TEST

SUITE_MAIN("property/power_cut", SUITE_TEST_SLOW(with_fsync_nothing_acknowledged_or_shown_is_lost, 60),
           SUITE_TEST_SLOW(with_interval_nothing_shown_is_lost, 60),
           SUITE_TEST_SLOW(with_replicated_the_log_opens_to_whole_batches_and_goes_on, 60))
