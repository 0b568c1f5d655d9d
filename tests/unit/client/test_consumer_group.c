/* The consumer as its group driver sees it, and the stream. */
#include "proto/base/err.h"
#include "tests/unit/client/consumer_fixture.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct heard {
    unsigned assigned, revoking, lost;
    int64_t last_offset;
    brook_consumer *commit_inside;
};

static void on_assigned(void *arg, const struct brook_position *positions, size_t count)
{
    struct heard *h = arg;
    h->assigned += (unsigned)count;
    h->last_offset = positions[0].offset;
}

static void on_revoking(void *arg, const struct brook_position *positions, size_t count)
{
    struct heard *h = arg;
    h->revoking += (unsigned)count;
    if (h->commit_inside) {
        brook_batch *batch;
        ck_assert_int_eq(brook_consumer_poll(h->commit_inside, 0, &batch, NULL), -BROOK_E_INVALID);
        ck_assert_int_eq(brook_consumer_commit(h->commit_inside, NULL, 0, BROOK_COMMIT_SYNC, WAIT_MS, NULL),
                         0);
    }
}

static void on_lost(void *arg, const struct brook_position *positions, size_t count)
{
    struct heard *h = arg;
    h->lost += (unsigned)count;
}

static void subscribe(struct consumer_fixture *f, struct heard *h, const char *auto_commit)
{
    fixture_open(f, 1);
    fixture_set(f, "group.id", "g");
    fixture_set(f, "enable.auto.commit", auto_commit);
    stub_cluster_add_topic(f->cluster, "t", 3);
    fixture_start(f);
    if (h) {
        struct brook_rebalance callbacks = {on_assigned, on_revoking, on_lost, h};
        brook_consumer_on_rebalance(f->consumer, &callbacks);
    }
    const char *topic = "t";
    ck_assert_int_eq(brook_consumer_subscribe(f->consumer, &topic, 1, &f->error), 0);
}

static bool is_drained(void *arg)
{
    return fake_group_drained() != -2;
}

static void poll_nothing(struct consumer_fixture *f, int ms)
{
    brook_batch *batch;
    ck_assert_int_eq(brook_consumer_poll(f->consumer, ms, &batch, &f->error), -BROOK_E_AGAIN);
}

START_TEST(a_claim_is_told_before_its_first_record)
{
    struct consumer_fixture f;
    struct heard h = {0};
    subscribe(&f, &h, "false");
    fixture_append(&f, "t", 0, 10, 0);
    poll_nothing(&f, 20);
    struct brook_position p = {"t", 0, 4};
    fake_group_do(FAKE_ASSIGNED, &p, 1);
    int64_t at = 4;
    brook_batch *batch = fixture_poll(&f);
    ck_assert_uint_eq(h.assigned, 1);
    ck_assert_int_eq(h.last_offset, 4);
    ck_assert_int_eq(fixture_check_batch(&f, batch, at), 10);
    brook_batch_release(batch);
    char id[32];
    ck_assert_int_eq(brook_consumer_member_id(f.consumer, id, sizeof id), 0);
    ck_assert_str_eq(id, "member-1");
    ck_assert_int_eq(brook_consumer_assign(f.consumer, &p, 1, &f.error), -BROOK_E_INVALID);
    fixture_close(&f);
    ck_assert_uint_eq(fake_group_leaves(), 1);
}
END_TEST

START_TEST(a_claim_without_a_stored_offset_begins_as_the_policy_says)
{
    struct consumer_fixture f;
    subscribe(&f, NULL, "false");
    fixture_append(&f, "t", 0, 10, 0);
    struct brook_position p = {"t", 0, BROOK_OFFSET_NONE};
    fake_group_do(FAKE_ASSIGNED, &p, 1);
    int64_t at = 0;
    fixture_read_to(&f, 0, &at, 10);
    fixture_close(&f);
}
END_TEST

START_TEST(a_drain_waits_for_callback_and_batches_and_commits_what_was_released)
{
    struct consumer_fixture f;
    struct heard h = {0};
    subscribe(&f, &h, "true");
    fixture_append(&f, "t", 0, 10, 0);
    struct brook_position p = {"t", 0, 0};
    fake_group_do(FAKE_ASSIGNED, &p, 1);
    brook_batch *batch = fixture_poll(&f);
    fixture_append(&f, "t", 0, 10, 0);
    fake_group_do(FAKE_REVOKING, &p, 1);
    int64_t lag;
    ck_assert_int_eq(brook_consumer_lag(f.consumer, "t", 0, &lag), -BROOK_E_NOT_ASSIGNED);
    ck_assert_int_eq(fake_group_drained(), -2);
    poll_nothing(&f, 50); /* the callback runs; no record comes */
    ck_assert_uint_eq(h.revoking, 1);
    ck_assert_int_eq(fake_group_drained(), -2);
    brook_batch_release(batch);
    ck_assert(suite_wait(is_drained, NULL, WAIT_MS));
    ck_assert_int_eq(fake_group_drained(), 10);
    ck_assert_uint_eq(h.lost, 0);
    /* It may come back. */
    p.offset = 15;
    fake_group_do(FAKE_ASSIGNED, &p, 1);
    int64_t at = 15;
    fixture_read_to(&f, 0, &at, 20);
    ck_assert_uint_eq(h.assigned, 2);
    fixture_close(&f);
}
END_TEST

START_TEST(on_revoking_may_commit)
{
    struct consumer_fixture f;
    struct heard h = {0};
    subscribe(&f, &h, "false");
    h.commit_inside = f.consumer;
    fixture_append(&f, "t", 0, 10, 0);
    struct brook_position p = {"t", 0, 0};
    fake_group_do(FAKE_ASSIGNED, &p, 1);
    brook_batch_release(fixture_poll(&f));
    fake_group_do(FAKE_REVOKING, &p, 1);
    poll_nothing(&f, 50);
    ck_assert_uint_eq(h.revoking, 1);
    ck_assert_int_eq(fake_group_committed(), 10);
    ck_assert(suite_wait(is_drained, NULL, WAIT_MS));
    ck_assert_int_eq(fake_group_drained(), -1); /* nothing by itself */
    fixture_close(&f);
}
END_TEST

START_TEST(without_callbacks_a_drain_needs_no_poll)
{
    struct consumer_fixture f;
    subscribe(&f, NULL, "true");
    struct brook_position p = {"t", 0, 0};
    fixture_append(&f, "t", 0, 10, 0);
    fake_group_do(FAKE_ASSIGNED, &p, 1);
    brook_batch *batch = fixture_poll(&f);
    fake_group_do(FAKE_REVOKING, &p, 1);
    brook_batch_release_at(batch, 6);
    ck_assert(suite_wait(is_drained, NULL, WAIT_MS));
    ck_assert_int_eq(fake_group_drained(), 6);
    fixture_close(&f);
}
END_TEST

START_TEST(a_drain_that_takes_too_long_is_cut_off)
{
    struct consumer_fixture f;
    struct heard h = {0};
    subscribe(&f, &h, "true");
    fixture_append(&f, "t", 0, 10, 0);
    fixture_append(&f, "t", 1, 10, 0);
    struct brook_position both[] = {{"t", 0, 0}, {"t", 1, 0}};
    fake_group_do(FAKE_ASSIGNED, both, 2);
    brook_batch *a = fixture_poll(&f), *b = fixture_poll(&f);
    ck_assert_uint_eq(h.assigned, 2);
    brook_batch_release_at(a, 3);
    fake_group_do(FAKE_REVOKING, both, 2);
    int64_t first = fake_group_drain_over("t", brook_batch_partition(b) == 0 ? 1 : 0);
    ck_assert_int_eq(first, 3);
    ck_assert_int_eq(fake_group_drain_over("t", brook_batch_partition(b)), 0);
    poll_nothing(&f, 50);
    ck_assert_uint_eq(h.revoking, 0); /* too late for that */
    ck_assert_uint_eq(h.lost, 2);
    fixture_check_batch(&f, b, 0);
    brook_batch_release(b);
    poll_nothing(&f, 20);
    ck_assert_int_eq(fake_group_drained(), -2);
    fixture_close(&f);
}
END_TEST

START_TEST(what_is_lost_is_dropped_and_told)
{
    struct consumer_fixture f;
    struct heard h = {0};
    subscribe(&f, &h, "true");
    for (int i = 0; i < 20; i++)
        fixture_append(&f, "t", 0, 10, 50000);
    struct brook_position p = {"t", 0, 0};
    fake_group_do(FAKE_ASSIGNED, &p, 1);
    brook_batch *batch = fixture_poll(&f);
    fake_group_do(FAKE_LOST, &p, 1);
    poll_nothing(&f, 50);
    ck_assert_uint_eq(h.lost, 1);
    brook_batch_release(batch);
    /* A claim that was lost before poll could tell is not told at all. */
    fake_group_do(FAKE_ASSIGNED, &p, 1);
    fake_group_do(FAKE_LOST, &p, 1);
    poll_nothing(&f, 50);
    ck_assert_uint_eq(h.assigned, 1);
    ck_assert_uint_eq(h.lost, 1);
    fixture_close(&f);
}
END_TEST

START_TEST(nothing_is_handed_out_while_the_lease_says_no)
{
    struct consumer_fixture f;
    subscribe(&f, NULL, "true");
    fixture_append(&f, "t", 0, 10, 0);
    fake_group_may_deliver(false);
    struct brook_position p = {"t", 0, 0};
    fake_group_do(FAKE_ASSIGNED, &p, 1);
    poll_nothing(&f, 200);
    fake_group_may_deliver(true);
    int64_t at = 0;
    fixture_read_to(&f, 0, &at, 10);
    fixture_close(&f);
}
END_TEST

START_TEST(auto_commit_goes_through_the_group)
{
    struct consumer_fixture f;
    fixture_open(&f, 1);
    fixture_set(&f, "group.id", "g");
    fixture_set(&f, "auto.commit.interval.ms", "10");
    stub_cluster_add_topic(f.cluster, "t", 1);
    fixture_append(&f, "t", 0, 10, 0);
    fixture_start(&f);
    const char *topic = "t";
    ck_assert_int_eq(brook_consumer_subscribe(f.consumer, &topic, 1, &f.error), 0);
    struct brook_position p = {"t", 0, 5};
    fake_group_do(FAKE_ASSIGNED, &p, 1);
    brook_batch *batch = fixture_poll(&f);
    poll_nothing(&f, 100);
    ck_assert_int_eq(fake_group_committed(), -2); /* what is stored is not written again */
    brook_batch_release(batch);
    poll_nothing(&f, 100);
    ck_assert_int_eq(fake_group_committed(), 10);
    ck_assert_uint_eq(fixture_stored_writes(&f), 0);
    fixture_close(&f);
}
END_TEST

START_TEST(the_groups_troubles_come_out_of_poll)
{
    struct consumer_fixture f;
    struct brook_position place;
    subscribe(&f, NULL, "true");
    struct brook_error trouble;
    brook_error_set(&trouble, BROOK_E_EXISTS, "the member id is in use");
    fake_group_fail(&trouble);
    ck_assert_int_eq(fixture_poll_event(&f), -BROOK_E_EXISTS);
    ck_assert_str_eq(f.error.text, "the member id is in use");
    brook_consumer_error_position(f.consumer, &place);
    ck_assert_ptr_null(place.topic);
    poll_nothing(&f, 20);
    fixture_close(&f);
}
END_TEST

START_TEST(unsubscribe_leaves_and_assign_may_follow)
{
    struct consumer_fixture f;
    subscribe(&f, NULL, "true");
    fixture_append(&f, "t", 0, 10, 0);
    ck_assert_int_eq(brook_consumer_unsubscribe(f.consumer, &f.error), 0);
    ck_assert_uint_eq(fake_group_leaves(), 1);
    fixture_assign(&f, "t", 0, 0);
    int64_t at = 0;
    fixture_read_to(&f, 0, &at, 10);
    fixture_close(&f);
}
END_TEST

/* ---- the stream ---- */

static void *stop_later(void *arg)
{
    const struct timespec a_while = {.tv_nsec = 50000000};
    nanosleep(&a_while, NULL);
    brook_stream_stop(arg);
    return NULL;
}

START_TEST(a_stream_gives_one_record_after_the_other_until_it_is_stopped)
{
    struct consumer_fixture f;
    brook_stream *stream;
    struct brook_message m;
    pthread_t thread;
    fixture_open(&f, 1);
    fixture_set(&f, "group.id", "g");
    stub_cluster_add_topic(f.cluster, "t", 1);
    fixture_append(&f, "t", 0, 7, 0);
    fixture_append(&f, "t", 0, 7, 0);
    ck_assert_int_eq(brook_stream_open(f.config, "t", &stream, &f.error), 0);
    struct brook_position p = {"t", 0, 0};
    fake_group_do(FAKE_ASSIGNED, &p, 1);
    for (int64_t at = 0; at < 14; at++) {
        ck_assert_int_eq(brook_stream_next(stream, &m, &f.error), 0);
        ck_assert_int_eq(m.offset, at);
        ck_assert_int_eq(brook_stream_partition(stream), 0);
    }
    pthread_create(&thread, NULL, stop_later, stream);
    ck_assert_int_eq(brook_stream_next(stream, &m, &f.error), -BROOK_E_CLOSED);
    ck_assert_int_eq(brook_stream_next(stream, &m, &f.error), -BROOK_E_CLOSED);
    pthread_join(thread, NULL);
    ck_assert_int_eq(brook_stream_close(stream, WAIT_MS), 0);
    fixture_close(&f);
}
END_TEST

START_TEST(a_record_of_a_stream_is_processed_when_the_next_is_asked_for)
{
    struct consumer_fixture f;
    brook_stream *stream;
    struct brook_message m;
    fixture_open(&f, 1);
    fixture_set(&f, "group.id", "g");
    stub_cluster_add_topic(f.cluster, "t", 1);
    fixture_append(&f, "t", 0, 7, 0);
    ck_assert_int_eq(brook_stream_open(f.config, "t", &stream, &f.error), 0);
    struct brook_position p = {"t", 0, 0};
    fake_group_do(FAKE_ASSIGNED, &p, 1);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(brook_stream_next(stream, &m, &f.error), 0);
    fake_group_do(FAKE_REVOKING, &p, 1);
    ck_assert_int_eq(fake_group_drain_over("t", 0), 3);
    ck_assert_int_eq(brook_stream_close(stream, WAIT_MS), 0);
    fixture_close(&f);
}
END_TEST

SUITE_MAIN("client/consumer_group", SUITE_TEST(a_claim_is_told_before_its_first_record),
           SUITE_TEST(a_claim_without_a_stored_offset_begins_as_the_policy_says),
           SUITE_TEST(a_drain_waits_for_callback_and_batches_and_commits_what_was_released),
           SUITE_TEST(on_revoking_may_commit), SUITE_TEST(without_callbacks_a_drain_needs_no_poll),
           SUITE_TEST(a_drain_that_takes_too_long_is_cut_off), SUITE_TEST(what_is_lost_is_dropped_and_told),
           SUITE_TEST(nothing_is_handed_out_while_the_lease_says_no),
           SUITE_TEST(auto_commit_goes_through_the_group), SUITE_TEST(the_groups_troubles_come_out_of_poll),
           SUITE_TEST(unsubscribe_leaves_and_assign_may_follow),
           SUITE_TEST(a_stream_gives_one_record_after_the_other_until_it_is_stopped),
           SUITE_TEST(a_record_of_a_stream_is_processed_when_the_next_is_asked_for))
