#include "broker/partition/partition.h"

#include "broker/storage/flusher.h"
#include "tests/support/batches.h"
#include "tests/support/faulty_io.h"
#include "tests/unit/storage/fixture.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static const uint8_t topic_id[16] = {1};

static struct partition *make(const char *name, struct flusher *flusher, struct durability durability)
{
    struct log_settings s = fixture_settings();
    s.segment_bytes = 1 << 20;
    struct log *log = fixture_open(fixture_log_path(name), &s, &fixture_clean);
    struct partition *p = NULL;
    ck_assert_int_eq(partition_new("orders", 3, topic_id, &log, &p), 0);
    partition_use_flusher(p, flusher);
    partition_set_durability(p, &durability);
    ck_assert_int_eq(partition_lead_with(p, 1, 0, INT64_MAX, 1), 0);
    return p;
}

static const struct durability fsync_mode = {.mode = DURABILITY_FSYNC};
static const struct durability replicated = {.mode = DURABILITY_REPLICATED};

static struct durability interval(int64_t messages, int64_t ms)
{
    return (struct durability){.mode = DURABILITY_INTERVAL, .flush_messages = messages, .flush_ms = ms};
}

struct produce {
    struct partition_append append;
    struct log_batch batch;
    int answers;
};

static void count_answer(struct partition_append *a)
{
    CONTAINER_OF(a, struct produce, append)->answers++;
}

static void produce(struct partition *p, struct produce *q, struct inbox *inbox, bool wait_for_all)
{
    memset(q, 0, sizeof *q);
    q->batch = batches_make(1, T0, 0, 100, 1);
    q->append.batches = &q->batch;
    q->append.batches_count = 1;
    q->append.inbox = inbox;
    q->append.wait_for_all = wait_for_all;
    q->append.done = count_answer;
    partition_enqueue(p, &q->append);
    partition_drain(p, inbox);
}

static void append_one(struct partition *p, struct inbox *inbox)
{
    struct produce q;
    produce(p, &q, inbox, false);
    ck_assert_int_eq(q.answers, 1);
    batches_free(&q.batch);
}

struct wait {
    struct inbox *inbox;
    struct produce *produce;
    struct partition *partition;
    int64_t visible_end;
};

static bool is_answered(void *arg)
{
    struct wait *w = arg;
    inbox_drain(w->inbox);
    return w->produce->answers > 0;
}

static void wait_for_answer(struct inbox *inbox, struct produce *q)
{
    struct wait w = {.inbox = inbox, .produce = q};
    ck_assert(suite_wait(is_answered, &w, 5000));
    batches_free(&q->batch);
}

static struct partition_marks marks_of(struct partition *p)
{
    struct partition_marks m;
    partition_marks(p, &m);
    return m;
}

static bool is_visible(void *arg)
{
    struct wait *w = arg;
    return marks_of(w->partition).visible_end >= w->visible_end;
}

static void wait_until_visible(struct partition *p, int64_t end)
{
    struct wait w = {.partition = p, .visible_end = end};
    ck_assert(suite_wait(is_visible, &w, 5000));
}

static bool are_stalled(void *arg)
{
    return faulty_stalled() >= *(int *)arg;
}

static void wait_until_stalled(int count)
{
    ck_assert(suite_wait(are_stalled, &count, 5000));
}

static struct flusher *begin(struct inbox *inbox)
{
    struct flusher *f = NULL;
    faulty_reset();
    ck_assert_int_eq(inbox_init(inbox), 0);
    ck_assert_int_eq(flusher_new(FLUSHER_THREADS_MAX, &f), 0);
    return f;
}

static void end(struct flusher *f, struct partition *p, struct inbox *inbox)
{
    faulty_release();
    partition_stop_leading(p);
    flusher_free(f);
    inbox_drain(inbox);
    partition_unref(p);
    inbox_done(inbox);
}

static void count_wake(struct partition_waiter *w)
{
    w->offset++;
}

/* ---- fsync ----------------------------------------------------------------------------------------------
 */

START_TEST(a_stalled_sync_holds_back_acknowledgements_of_all_and_nothing_else)
{
    struct inbox inbox;
    struct flusher *f = begin(&inbox);
    struct partition *p = make("stalled", f, fsync_mode);
    struct produce first, all, leader;
    produce(p, &first, &inbox, true);
    wait_for_answer(&inbox, &first);

    faulty_stall(FAULTY_DATASYNC);
    produce(p, &all, &inbox, true);
    wait_until_stalled(1);
    produce(p, &leader, &inbox, false);
    ck_assert_int_eq(leader.answers, 1);
    ck_assert_int_eq(leader.append.error.code, 0);
    inbox_drain(&inbox);
    ck_assert_int_eq(all.answers, 0);
    ck_assert_int_eq(marks_of(p).log_end, 3);
    ck_assert_int_eq(marks_of(p).high_watermark, 1);
    ck_assert_int_eq(marks_of(p).visible_end, 1);
    struct log_range range;
    ck_assert_int_eq(log_read(partition_log(p), 0, 1, 1 << 20, true, 1 << 20, &range), 0);
    ck_assert_uint_gt(range.bytes, 0);
    log_range_done(&range);
    struct partition_waiter reader = {.offset = 1, .inbox = &inbox, .wake = count_wake};
    ck_assert(partition_wait(p, &reader));

    faulty_release();
    wait_for_answer(&inbox, &all);
    ck_assert_int_eq(all.append.error.code, 0);
    ck_assert_int_eq(all.append.base_offset, 1);
    ck_assert_int_eq(reader.offset, 2);
    wait_until_visible(p, 3); /* nobody waits for the last one any more: it comes all the same */
    batches_free(&leader.batch);
    end(f, p, &inbox);
}
END_TEST

START_TEST(a_stalled_sync_delays_no_other_partition)
{
    struct inbox inbox;
    struct flusher *f = begin(&inbox);
    struct partition *p = make("hangs-0", f, fsync_mode), *other = make("goes-on-0", f, fsync_mode);
    struct produce stuck;
    faulty_only("hangs-0/");
    faulty_stall(FAULTY_DATASYNC);
    produce(p, &stuck, &inbox, true);
    wait_until_stalled(1);
    for (int i = 0; i < 8; i++) {
        struct produce q;
        struct partition_waiter reader = {.offset = 2 * i, .inbox = &inbox, .wake = count_wake};
        ck_assert(partition_wait(other, &reader));
        produce(other, &q, &inbox, true);
        wait_for_answer(&inbox, &q);
        ck_assert_int_eq(q.append.error.code, 0);
        ck_assert_int_eq(reader.offset, 2 * i + 1);
        append_one(other, &inbox);
        wait_until_visible(other, 2 * i + 2);
        append_one(p, &inbox); /* acks=leader of the partition that hangs */
    }
    ck_assert_int_eq(faulty_stalled(), 1);
    ck_assert_int_eq(stuck.answers, 0);
    ck_assert_int_eq(marks_of(p).log_end, 9);
    faulty_release();
    wait_for_answer(&inbox, &stuck);
    ck_assert_int_eq(stuck.append.error.code, 0);
    partition_stop_leading(other);
    partition_stop_leading(p);
    flusher_stop(f);
    ck_assert_int_eq(partition_unref(other), 0);
    end(f, p, &inbox);
}
END_TEST

START_TEST(an_acknowledgement_of_all_follows_the_sync_of_what_it_acknowledges)
{
    struct inbox inbox;
    struct flusher *f = begin(&inbox);
    struct partition *p = make("order", f, fsync_mode);
    for (int i = 0; i < 50; i++) {
        struct produce q;
        produce(p, &q, &inbox, true);
        wait_for_answer(&inbox, &q);
        ck_assert_int_eq(q.append.error.code, 0);
        ck_assert_int_gt(log_durable_end(partition_log(p)), q.append.base_offset);
        ck_assert_int_eq(faulty_calls(FAULTY_DATASYNC), i + 1);
    }
    end(f, p, &inbox);
}
END_TEST

START_TEST(a_failed_sync_acknowledges_nothing_and_is_never_tried_again)
{
    struct inbox inbox;
    struct flusher *f = begin(&inbox);
    struct partition *p = make("failed", f, fsync_mode);
    struct produce good, bad[2], later;
    produce(p, &good, &inbox, true);
    wait_for_answer(&inbox, &good);
    faulty_fail(FAULTY_DATASYNC, 1, 1, EIO);
    faulty_stall(FAULTY_DATASYNC);
    for (int i = 0; i < 2; i++)
        produce(p, &bad[i], &inbox, true);
    wait_until_stalled(1);
    faulty_release();
    for (int i = 0; i < 2; i++) {
        wait_for_answer(&inbox, &bad[i]);
        ck_assert_int_eq(bad[i].append.error.code, BROOK_E_STORAGE_ERROR);
        ck_assert_ptr_nonnull(strstr(bad[i].append.error.text, "sync failed"));
    }
    produce(p, &later, &inbox, true);
    wait_for_answer(&inbox, &later);
    ck_assert_int_eq(later.append.error.code, BROOK_E_LOG_OFFLINE);
    ck_assert_int_eq(marks_of(p).high_watermark, 1);
    ck_assert_int_ne(partition_flush(p), 0);
    ck_assert_int_eq(faulty_calls(FAULTY_DATASYNC), 1);
    end(f, p, &inbox);
}
END_TEST

#define SHARERS 64

START_TEST(those_who_wait_for_one_log_share_its_sync)
{
    struct inbox inbox;
    struct flusher *f = begin(&inbox);
    struct partition *p = make("shared", f, fsync_mode);
    static struct produce q[SHARERS];
    struct produce first;
    faulty_stall(FAULTY_DATASYNC);
    produce(p, &first, &inbox, true);
    wait_until_stalled(1);
    for (int i = 0; i < SHARERS; i++)
        produce(p, &q[i], &inbox, true);
    faulty_release();
    wait_for_answer(&inbox, &first);
    for (int i = 0; i < SHARERS; i++) {
        wait_for_answer(&inbox, &q[i]);
        ck_assert_int_eq(q[i].append.error.code, 0);
    }
    ck_assert_int_eq(faulty_calls(FAULTY_DATASYNC), 2);
    end(f, p, &inbox);
}
END_TEST

#define LOGS 8

START_TEST(many_logs_are_synced_in_parallel)
{
    struct inbox inbox;
    struct flusher *f = begin(&inbox);
    struct partition *p[LOGS];
    static struct produce q[LOGS];
    for (int i = 0; i < LOGS; i++) {
        char name[32];
        snprintf(name, sizeof name, "parallel-%d", i);
        p[i] = make(name, f, fsync_mode);
    }
    faulty_stall(FAULTY_DATASYNC);
    for (int i = 0; i < LOGS; i++)
        produce(p[i], &q[i], &inbox, true);
    wait_until_stalled(LOGS);
    faulty_release();
    for (int i = 0; i < LOGS; i++)
        wait_for_answer(&inbox, &q[i]);
    for (int i = 1; i < LOGS; i++)
        partition_stop_leading(p[i]);
    flusher_stop(f);
    for (int i = 1; i < LOGS; i++)
        ck_assert_int_eq(partition_unref(p[i]), 0);
    end(f, p[0], &inbox);
}
END_TEST

START_TEST(what_nobody_waits_for_is_synced_soon_and_rarely)
{
    struct inbox inbox;
    struct flusher *f = begin(&inbox);
    struct partition *p = make("lazy", f, fsync_mode);
    for (int i = 0; i < 200; i++)
        append_one(p, &inbox);
    wait_until_visible(p, 200);
    /* As many as times of PARTITION_LAZY_FLUSH_MS have passed; a machine that is this slow would fail
     * elsewhere. */
    ck_assert_int_lt(faulty_calls(FAULTY_DATASYNC), 50);
    end(f, p, &inbox);
}
END_TEST

START_TEST(a_reader_that_comes_hurries_the_sync)
{
    struct inbox inbox;
    struct flusher *f = begin(&inbox);
    struct partition *p = make("hurried", f, interval(1000000, 3600000));
    append_one(p, &inbox); /* waits in the flusher for an hour */
    partition_set_durability(p, &fsync_mode);
    struct partition_waiter reader = {.offset = 0, .inbox = &inbox, .wake = count_wake};
    if (partition_wait(p, &reader))
        wait_until_visible(p, 1);
    partition_unwait(p, &reader);
    end(f, p, &inbox);
}
END_TEST

/* ---- interval -------------------------------------------------------------------------------------------
 */

START_TEST(with_interval_all_is_answered_at_once_and_seen_once_flushed)
{
    struct inbox inbox;
    struct flusher *f = begin(&inbox);
    struct partition *p = make("interval", f, interval(3, 3600000));
    struct produce q[3];
    struct partition_waiter reader = {.offset = 0, .inbox = &inbox, .wake = count_wake};
    for (int i = 0; i < 2; i++) {
        produce(p, &q[i], &inbox, true);
        ck_assert_int_eq(q[i].answers, 1);
        batches_free(&q[i].batch);
    }
    ck_assert_int_eq(marks_of(p).high_watermark, 2);
    ck_assert_int_eq(marks_of(p).visible_end, 0);
    ck_assert(partition_wait(p, &reader));
    produce(p, &q[2], &inbox, true);
    ck_assert_int_eq(q[2].answers, 1);
    batches_free(&q[2].batch);
    wait_until_visible(p, 3);
    inbox_drain(&inbox);
    ck_assert_int_eq(reader.offset, 1);
    ck_assert_int_eq(faulty_calls(FAULTY_DATASYNC), 1);
    end(f, p, &inbox);
}
END_TEST

START_TEST(with_interval_a_record_is_seen_after_its_time)
{
    struct inbox inbox;
    struct flusher *f = begin(&inbox);
    struct partition *p = make("time", f, interval(1000000, 30));
    append_one(p, &inbox);
    wait_until_visible(p, 1);
    append_one(p, &inbox);
    wait_until_visible(p, 2);
    end(f, p, &inbox);
}
END_TEST

/* ---- changes --------------------------------------------------------------------------------------------
 */

START_TEST(a_change_of_durability_lowers_no_high_watermark_and_lets_go_who_waited)
{
    struct inbox inbox;
    struct flusher *f = begin(&inbox);
    struct partition *p = make("change", f, replicated);
    for (int i = 0; i < 3; i++)
        append_one(p, &inbox);
    ck_assert_int_eq(marks_of(p).high_watermark, 3);
    faulty_stall(FAULTY_DATASYNC);
    partition_set_durability(p, &fsync_mode);
    ck_assert_int_eq(marks_of(p).high_watermark, 3);
    ck_assert_int_eq(marks_of(p).visible_end, 3);
    struct produce q;
    produce(p, &q, &inbox, true);
    inbox_drain(&inbox);
    ck_assert_int_eq(q.answers, 0);
    ck_assert_int_eq(marks_of(p).high_watermark, 3);
    partition_set_durability(p, &replicated);
    inbox_drain(&inbox);
    ck_assert_int_eq(q.answers, 1);
    ck_assert_int_eq(q.append.error.code, 0);
    ck_assert_int_eq(marks_of(p).high_watermark, 4);
    struct durability seldom = interval(1000, 3600000);
    partition_set_durability(p, &seldom);
    ck_assert_int_eq(marks_of(p).high_watermark, 4);
    ck_assert_int_eq(marks_of(p).visible_end, 0);
    faulty_release();
    ck_assert_int_eq(partition_flush(p), 0);
    ck_assert_int_eq(marks_of(p).visible_end, 4);
    batches_free(&q.batch);
    end(f, p, &inbox);
}
END_TEST

START_TEST(a_stopped_flusher_gives_its_references_back)
{
    struct inbox inbox;
    struct flusher *f = begin(&inbox);
    struct partition *p = make("stopped", f, interval(1000, 3600000));
    append_one(p, &inbox);
    flusher_stop(f);
    append_one(p, &inbox); /* refused by the flusher, and nothing worse */
    ck_assert_int_eq(log_durable_end(partition_log(p)), 0);
    ck_assert_int_eq(partition_unref(p), 0); /* the last one: closes, and so syncs */
    flusher_free(f);
    inbox_done(&inbox);
}
END_TEST

START_TEST(a_shorter_interval_holds_at_once)
{
    struct inbox inbox;
    struct flusher *f = begin(&inbox);
    struct partition *p = make("shorter", f, interval(1000, 3600000));
    append_one(p, &inbox); /* waits in the flusher for an hour */
    struct durability soon = interval(1000, 1);
    partition_set_durability(p, &soon);
    wait_until_visible(p, 1);
    append_one(p, &inbox);
    wait_until_visible(p, 2);
    end(f, p, &inbox);
}
END_TEST

static _Atomic(struct log *) released_log;

static void note_release(void *arg, struct log *log)
{
    atomic_store(&released_log, log);
}

static bool is_released(void *arg)
{
    return atomic_load(&released_log) != NULL;
}

START_TEST(a_partition_that_ends_is_not_held_until_its_time_to_flush)
{
    struct inbox inbox;
    struct flusher *f = begin(&inbox);
    struct partition *p = make("ends", f, interval(1000, 3600000));
    partition_on_release(p, note_release, NULL);
    append_one(p, &inbox);
    partition_stop_leading(p);
    partition_unref(p);
    ck_assert(suite_wait(is_released, NULL, 5000));
    ck_assert_int_eq(log_close(atomic_load(&released_log)), 0);
    flusher_free(f);
    inbox_done(&inbox);
}
END_TEST

/* ---- threads --------------------------------------------------------------------------------------------
 */

#define LOOPS 3
#define PRODUCES 200

struct loop {
    struct partition **partitions;
    struct inbox inbox;
    struct produce produces[PRODUCES];
    pthread_t thread;
};

static int answered(const struct loop *l)
{
    int n = 0;
    for (int i = 0; i < PRODUCES; i++)
        n += l->produces[i].answers;
    return n;
}

static void *run_loop(void *arg)
{
    struct loop *l = arg;
    for (int sent = 0; answered(l) < PRODUCES;) {
        for (; sent < PRODUCES && sent - answered(l) < 8; sent++)
            produce(l->partitions[sent % 2], &l->produces[sent], &l->inbox, sent % 5 != 0);
        struct pollfd fd = {.fd = inbox_fd(&l->inbox), .events = POLLIN};
        if (answered(l) < sent)
            poll(&fd, 1, 1000);
        inbox_drain(&l->inbox);
    }
    return NULL;
}

START_TEST(loops_and_flusher_answer_each_append_once)
{
    struct inbox inbox;
    struct flusher *f = begin(&inbox);
    struct partition *p[2] = {make("loops-0", f, fsync_mode), make("loops-1", f, fsync_mode)};
    static struct loop loops[LOOPS];
    struct durability often = interval(5, 1);
    for (int i = 0; i < LOOPS; i++) {
        loops[i].partitions = p;
        inbox_init(&loops[i].inbox);
        pthread_create(&loops[i].thread, NULL, run_loop, &loops[i]);
    }
    for (int i = 0; i < 100; i++) {
        partition_set_durability(p[1], i % 3 == 0 ? &fsync_mode : i % 3 == 1 ? &replicated : &often);
        ck_assert_int_eq(partition_flush(p[i % 2]), 0);
    }
    partition_set_durability(p[1], &fsync_mode);
    for (int i = 0; i < LOOPS; i++) {
        pthread_join(loops[i].thread, NULL);
        for (int k = 0; k < PRODUCES; k++) {
            ck_assert_int_eq(loops[i].produces[k].answers, 1);
            ck_assert_int_eq(loops[i].produces[k].append.error.code, 0);
            batches_free(&loops[i].produces[k].batch);
        }
    }
    wait_until_visible(p[0], LOOPS * PRODUCES / 2);
    wait_until_visible(p[1], LOOPS * PRODUCES / 2);
    flusher_stop(f);
    ck_assert_int_eq(partition_unref(p[1]), 0);
    end(f, p[0], &inbox);
    for (int i = 0; i < LOOPS; i++)
        inbox_done(&loops[i].inbox);
}
END_TEST

SUITE_MAIN("partition/durability",
           SUITE_TEST(a_stalled_sync_holds_back_acknowledgements_of_all_and_nothing_else),
           SUITE_TEST(a_stalled_sync_delays_no_other_partition),
           SUITE_TEST(an_acknowledgement_of_all_follows_the_sync_of_what_it_acknowledges),
           SUITE_TEST(a_failed_sync_acknowledges_nothing_and_is_never_tried_again),
           SUITE_TEST(those_who_wait_for_one_log_share_its_sync),
           SUITE_TEST(many_logs_are_synced_in_parallel),
           SUITE_TEST(what_nobody_waits_for_is_synced_soon_and_rarely),
           SUITE_TEST(a_reader_that_comes_hurries_the_sync),
           SUITE_TEST(with_interval_all_is_answered_at_once_and_seen_once_flushed),
           SUITE_TEST(with_interval_a_record_is_seen_after_its_time),
           SUITE_TEST(a_change_of_durability_lowers_no_high_watermark_and_lets_go_who_waited),
           SUITE_TEST(a_stopped_flusher_gives_its_references_back),
           SUITE_TEST(a_shorter_interval_holds_at_once),
           SUITE_TEST(a_partition_that_ends_is_not_held_until_its_time_to_flush),
           SUITE_TEST(loops_and_flusher_answer_each_append_once))
