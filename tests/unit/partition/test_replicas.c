/* A partition with other replicas: what the leader's high watermark waits for, and what a follower stores. */
#include "broker/partition/partition.h"

#include "broker/storage/flusher.h"
#include "proto/base/clock.h"
#include "tests/support/batches.h"
#include "tests/support/epochs_of.h"
#include "tests/support/faulty_io.h"
#include "tests/unit/storage/fixture.h"

#include <string.h>

static const uint8_t topic_id[16] = {1};

static struct partition *make(const char *name)
{
    struct log_settings s = fixture_settings();
    s.segment_bytes = 1 << 20;
    struct log *log = fixture_open(fixture_log_path(name), &s, &fixture_clean);
    struct partition *p = NULL;
    ck_assert_int_eq(partition_new("orders", 3, topic_id, &log, &p), 0);
    return p;
}

static struct partition_marks marks_of(struct partition *p)
{
    struct partition_marks m;
    partition_marks(p, &m);
    return m;
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

/* One record with acks=all. */
static void produce(struct partition *p, struct produce *q, struct inbox *inbox)
{
    memset(q, 0, sizeof *q);
    q->batch = batches_make(1, T0, 0, 100, 1);
    q->append = (struct partition_append){.batches = &q->batch,
                                          .batches_count = 1,
                                          .inbox = inbox,
                                          .wait_for_all = true,
                                          .done = count_answer};
    partition_enqueue(p, &q->append);
    partition_drain(p, inbox);
    inbox_drain(inbox);
}

static int replicate(struct partition *p, int32_t follows_at, int32_t batch_epoch, int64_t offset, int64_t mark)
{
    struct log_batch b = batches_make(2, T0, 1, 10, (uint32_t)offset);
    struct brook_error error;
    batches_place(&b, offset, batch_epoch);
    int r = partition_append_replicated(p, follows_at, &b, 1, mark, &error);
    batches_free(&b);
    return r;
}

static void count_wake(struct partition_waiter *w)
{
    w->offset = -1;
}

START_TEST(the_high_watermark_waits_for_the_other_replicas)
{
    struct partition *p = make("waits");
    struct inbox inbox;
    struct produce q;
    inbox_init(&inbox);
    ck_assert_int_eq(partition_lead_with(p, 4, 0, 0, 3), 0);
    produce(p, &q, &inbox);
    ck_assert_int_eq(q.answers, 0);
    ck_assert_int_eq(marks_of(p).log_end, 1);
    ck_assert_int_eq(marks_of(p).high_watermark, 0);
    struct partition_waiter consumer = {.offset = 0, .inbox = &inbox, .wake = count_wake};
    struct partition_waiter follower = {.offset = 1, .end = PARTITION_LOG_END, .inbox = &inbox, .wake = count_wake};
    ck_assert(partition_wait(p, &consumer));
    ck_assert(partition_wait(p, &follower));

    ck_assert(!partition_set_replicas(p, 3, 1, 3)); /* of a leader before */
    inbox_drain(&inbox);
    ck_assert_int_eq(q.answers, 0);
    ck_assert(partition_set_replicas(p, 4, 1, 3));
    inbox_drain(&inbox);
    ck_assert_int_eq(q.answers, 1);
    ck_assert_int_eq(q.append.error.code, 0);
    ck_assert_int_eq(consumer.offset, -1);
    ck_assert_int_eq(follower.offset, 1);
    batches_free(&q.batch);
    produce(p, &q, &inbox);
    ck_assert_int_eq(follower.offset, -1);
    ck_assert_int_eq(q.answers, 0);

    ck_assert(partition_set_replicas(p, 4, 0, 3)); /* a replica is back with less: the mark does not fall */
    ck_assert_int_eq(marks_of(p).high_watermark, 1);
    partition_stop_leading(p);
    inbox_drain(&inbox);
    ck_assert_int_eq(q.append.error.code, BROOK_E_NOT_LEADER);
    batches_free(&q.batch);
    partition_unref(p);
    inbox_done(&inbox);
}
END_TEST

START_TEST(too_few_replicas_refuse_before_and_say_so_after)
{
    struct partition *p = make("few");
    struct inbox inbox;
    struct produce first, second;
    inbox_init(&inbox);
    ck_assert_int_eq(partition_lead_with(p, 4, 0, 0, 2), 0);
    partition_set_min_in_sync(p, 2);
    produce(p, &first, &inbox);
    ck_assert_int_eq(first.answers, 0);
    ck_assert(partition_set_replicas(p, 4, INT64_MAX, 1)); /* the other one left */
    ck_assert_int_eq(marks_of(p).high_watermark, 0);
    produce(p, &second, &inbox);
    ck_assert_int_eq(second.append.error.code, BROOK_E_NOT_ENOUGH_REPLICAS);
    ck_assert_str_eq(second.append.error.text, "partition orders/3: 1 replicas in sync, min.insync.replicas is 2");
    ck_assert_int_eq(marks_of(p).log_end, 1);
    ck_assert(partition_cancel(p, &first.append));
    ck_assert_int_eq(first.append.error.code, BROOK_E_NOT_ENOUGH_REPLICAS_AFTER_APPEND);
    partition_set_min_in_sync(p, 1);
    ck_assert_int_eq(marks_of(p).high_watermark, 1);
    batches_free(&first.batch);
    batches_free(&second.batch);
    partition_unref(p);
    inbox_done(&inbox);
}
END_TEST

START_TEST(a_follower_stores_what_its_leader_sends_and_nothing_else)
{
    struct partition *p = make("follows");
    struct inbox inbox;
    inbox_init(&inbox);
    ck_assert_int_eq(replicate(p, 4, 4, 0, 0), -BROOK_E_FENCED_EPOCH);
    ck_assert_int_eq(partition_follow(p, 4), 0);
    ck_assert_int_eq(replicate(p, 4, 3, 0, 1), 0);
    ck_assert_int_eq(replicate(p, 4, 4, 2, 100), 0);
    ck_assert_int_eq(marks_of(p).log_end, 4);
    ck_assert_int_eq(marks_of(p).high_watermark, 4);
    ck_assert(marks_of(p).is_follower);
    ck_assert_int_eq(epoch_before(partition_log(p), 2), 3);
    ck_assert_int_eq(replicate(p, 4, 4, 2, 100), -BROOK_E_OFFSET_OUT_OF_RANGE); /* twice */
    ck_assert_int_eq(replicate(p, 3, 3, 4, 100), -BROOK_E_FENCED_EPOCH);
    ck_assert_int_eq(partition_follow(p, 3), -BROOK_E_FENCED_EPOCH);
    struct produce q;
    produce(p, &q, &inbox);
    ck_assert_int_eq(q.append.error.code, BROOK_E_NOT_LEADER);
    batches_free(&q.batch);
    ck_assert_int_eq(partition_append_replicated(p, 4, NULL, 0, 2, NULL), 0); /* no records; marks never fall */
    ck_assert_int_eq(marks_of(p).high_watermark, 4);
    partition_unref(p);
    inbox_done(&inbox);
}
END_TEST

START_TEST(a_follower_cuts_at_its_own_epoch_only)
{
    struct partition *p = make("cuts");
    ck_assert_int_eq(partition_follow(p, 4), 0);
    for (int64_t offset = 0; offset < 10; offset += 2)
        ck_assert_int_eq(replicate(p, 4, 4, offset, 4), 0);
    ck_assert_int_eq(partition_truncate(p, 3, 6, NULL), -BROOK_E_FENCED_EPOCH);
    ck_assert_int_eq(partition_truncate(p, 4, 6, NULL), 0);
    ck_assert_int_eq(marks_of(p).log_end, 6);
    ck_assert_int_eq(marks_of(p).high_watermark, 4);
    ck_assert_int_eq(partition_truncate(p, 4, 2, NULL), 0);
    ck_assert_int_eq(marks_of(p).high_watermark, 2);
    ck_assert_int_eq(replicate(p, 4, 4, 2, 0), 0);
    ck_assert_int_eq(partition_lead_with(p, 5, 0, 0, 2), 0);
    ck_assert_int_eq(partition_truncate(p, 5, 0, NULL), -BROOK_E_FENCED_EPOCH); /* leaders do not */
    partition_unref(p);
}
END_TEST

START_TEST(a_follower_left_behind_starts_over_where_the_leaders_log_begins)
{
    struct partition *p = make("over");
    ck_assert_int_eq(partition_follow(p, 4), 0);
    ck_assert_int_eq(replicate(p, 4, 3, 0, 1), 0);
    ck_assert_int_eq(replicate(p, 4, 4, 2, 1), 0);
    ck_assert_int_eq(partition_start_over(p, 4, 100, NULL), 0);
    ck_assert_int_eq(marks_of(p).log_start, 100);
    ck_assert_int_eq(marks_of(p).log_end, 100);
    ck_assert_int_eq(marks_of(p).high_watermark, 100);
    ck_assert_int_eq(log_last_epoch(partition_log(p)), -1);
    ck_assert_int_eq(replicate(p, 4, 4, 100, 101), 0);
    ck_assert_int_eq(marks_of(p).log_end, 102);
    ck_assert_int_eq(epoch_before(partition_log(p), 101), 4);
    ck_assert_int_eq(partition_start_over(p, 4, 7, NULL), 0); /* nothing of it was the leader's */
    ck_assert_int_eq(marks_of(p).log_start, 7);
    ck_assert_int_eq(marks_of(p).log_end, 7);
    ck_assert_int_eq(replicate(p, 4, 4, 7, 0), 0);
    ck_assert_int_eq(partition_start_over(p, 4, 100, NULL), 0);
    ck_assert_int_eq(replicate(p, 4, 4, 100, 0), 0);
    partition_unref(p);
    struct log_settings s = fixture_settings();
    struct log *log = fixture_open(fixture_log_path("over"), &s, &fixture_unclean);
    ck_assert_int_eq(log_start_offset(log), 100);
    ck_assert_int_eq(log_end_offset(log), 102);
    log_close(log);
}
END_TEST

START_TEST(readers_of_a_follower_are_woken_by_the_leaders_mark_and_by_its_end)
{
    struct partition *p = make("readers");
    struct inbox inbox;
    inbox_init(&inbox);
    ck_assert_int_eq(partition_follow(p, 4), 0);
    struct partition_waiter reader = {.offset = 0, .inbox = &inbox, .wake = count_wake};
    ck_assert(partition_wait(p, &reader));
    ck_assert_int_eq(replicate(p, 4, 4, 0, 0), 0);
    inbox_drain(&inbox);
    ck_assert_int_eq(reader.offset, 0);
    ck_assert_int_eq(partition_append_replicated(p, 4, NULL, 0, 1, NULL), 0);
    inbox_drain(&inbox);
    ck_assert_int_eq(reader.offset, -1);
    reader = (struct partition_waiter){.offset = 2, .inbox = &inbox, .wake = count_wake};
    ck_assert(partition_wait(p, &reader));
    ck_assert_int_eq(partition_lead_with(p, 5, 0, 0, 2), 0);
    inbox_drain(&inbox);
    ck_assert_int_eq(reader.offset, -1);
    partition_unref(p);
    inbox_done(&inbox);
}
END_TEST

static bool is_woken(void *arg)
{
    struct partition_waiter *w = arg;
    inbox_drain(w->inbox);
    return w->offset < 0;
}

START_TEST(a_followers_safe_end_is_what_is_on_its_disk_where_the_topic_says_fsync)
{
    struct partition *p = make("safe");
    struct inbox inbox;
    struct flusher *f;
    inbox_init(&inbox);
    faulty_reset();
    ck_assert_int_eq(flusher_new(2, &f), 0);
    partition_use_flusher(p, f);
    struct durability d = {.mode = DURABILITY_FSYNC, .flush_messages = 1, .flush_ms = 1};
    partition_set_durability(p, &d);
    ck_assert_int_eq(partition_follow(p, 4), 0);
    faulty_stall(FAULTY_DATASYNC);
    ck_assert_int_eq(replicate(p, 4, 4, 0, 0), 0);
    ck_assert_int_eq(marks_of(p).log_end, 2);
    ck_assert_int_eq(marks_of(p).safe_end, 0);
    struct partition_waiter fetcher = {.offset = 1, .end = PARTITION_SAFE_END, .inbox = &inbox, .wake = count_wake};
    ck_assert(partition_wait(p, &fetcher));
    faulty_release();
    ck_assert(suite_wait(is_woken, &fetcher, 10000)); /* nobody but the leader, far away, waits for that sync */
    ck_assert_int_eq(marks_of(p).safe_end, 2);
    partition_stop_leading(p);
    flusher_free(f);
    partition_unref(p);
    inbox_done(&inbox);
}
END_TEST

START_TEST(a_high_watermark_starts_where_the_checkpoint_says)
{
    struct partition *p = make("start");
    ck_assert_int_eq(partition_follow(p, 4), 0);
    for (int64_t offset = 0; offset < 10; offset += 2)
        ck_assert_int_eq(replicate(p, 4, 4, offset, 0), 0);
    partition_start_at(p, 7);
    ck_assert_int_eq(marks_of(p).high_watermark, 7);
    partition_start_at(p, 70);
    ck_assert_int_eq(marks_of(p).high_watermark, 10);
    partition_start_at(p, -1);
    ck_assert_int_eq(marks_of(p).high_watermark, 0);
    ck_assert_int_eq(partition_lead_with(p, 5, 0, 8, 2), 0);
    ck_assert_int_eq(marks_of(p).high_watermark, 8);
    partition_unref(p);
}
END_TEST

START_TEST(a_deletion_wakes_followers_and_whoever_waits_for_them)
{
    struct partition *p = make("deletion");
    struct inbox inbox;
    struct produce q;
    int64_t start;
    struct brook_error error;
    inbox_init(&inbox);
    ck_assert_int_eq(partition_lead_with(p, 4, 0, 0, 2), 0);
    for (int i = 0; i < 3; i++) {
        produce(p, &q, &inbox);
        partition_set_replicas(p, 4, i + 1, 2);
        inbox_drain(&inbox);
        batches_free(&q.batch);
    }
    ck_assert_int_eq(marks_of(p).replicated_start, -1);
    struct partition_waiter follower = {
        .offset = 3, .end = PARTITION_LOG_END, .heeds_deletions = true, .inbox = &inbox, .wake = count_wake};
    struct partition_waiter consumer = {.offset = 3, .inbox = &inbox, .wake = count_wake};
    struct partition_waiter deletion = {
        .offset = 1, .end = PARTITION_REPLICATED_START, .inbox = &inbox, .wake = count_wake};
    ck_assert(partition_wait(p, &follower));
    ck_assert(partition_wait(p, &consumer));
    ck_assert_int_eq(partition_delete_records(p, 2, false, &start, &error), 0);
    inbox_drain(&inbox);
    ck_assert_int_eq(follower.offset, -1);
    ck_assert_int_eq(consumer.offset, 3); /* it has what there is */
    ck_assert_int_eq(marks_of(p).deleted_start, 2);
    ck_assert(partition_wait(p, &deletion));
    ck_assert(partition_set_replicas_start(p, 4, 1));
    ck_assert(!partition_set_replicas_start(p, 3, 2));
    inbox_drain(&inbox);
    ck_assert_int_eq(deletion.offset, 1);
    ck_assert(partition_set_replicas_start(p, 4, 2));
    inbox_drain(&inbox);
    ck_assert_int_eq(deletion.offset, -1);
    partition_stop_leading(p);
    partition_unref(p);
    inbox_drain(&inbox);
    inbox_done(&inbox);
}
END_TEST

START_TEST(a_follower_begins_where_its_leader_does_and_says_so_when_it_is_kept)
{
    struct partition *p = make("begins");
    struct brook_error error;
    ck_assert_int_eq(partition_follow(p, 5), 0);
    ck_assert_int_eq(replicate(p, 5, 5, 0, 2), 0);
    ck_assert_int_eq(replicate(p, 5, 5, 2, 4), 0);
    ck_assert_int_eq(partition_raise_start(p, 4, 1, &error), -BROOK_E_FENCED_EPOCH);
    ck_assert_int_eq(marks_of(p).log_start, 0);
    ck_assert_int_eq(partition_raise_start(p, 5, 3, &error), 0);
    ck_assert_int_eq(marks_of(p).log_start, 3);
    ck_assert_int_eq(marks_of(p).kept_start, 3);
    ck_assert_int_eq(partition_raise_start(p, 5, 2, &error), 0); /* late: it does not go back */
    ck_assert_int_eq(marks_of(p).log_start, 3);
    ck_assert_int_eq(marks_of(p).kept_start, 3);
    partition_unref(p);
}
END_TEST

SUITE_MAIN("partition/replicas", SUITE_TEST(the_high_watermark_waits_for_the_other_replicas),
           SUITE_TEST(too_few_replicas_refuse_before_and_say_so_after),
           SUITE_TEST(a_follower_stores_what_its_leader_sends_and_nothing_else),
           SUITE_TEST(a_follower_cuts_at_its_own_epoch_only),
           SUITE_TEST(a_follower_left_behind_starts_over_where_the_leaders_log_begins),
           SUITE_TEST(readers_of_a_follower_are_woken_by_the_leaders_mark_and_by_its_end),
           SUITE_TEST(a_followers_safe_end_is_what_is_on_its_disk_where_the_topic_says_fsync),
           SUITE_TEST(a_deletion_wakes_followers_and_whoever_waits_for_them),
           SUITE_TEST(a_follower_begins_where_its_leader_does_and_says_so_when_it_is_kept),
           SUITE_TEST(a_high_watermark_starts_where_the_checkpoint_says))
