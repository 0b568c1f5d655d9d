/* Whom a consumer reads from, and what it does when that one's log is not what was read before: replicas in its rack,
 * and leaders that lack records. */
#include "proto/base/err.h"
#include "tests/unit/client/consumer_fixture.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define LEADER 1
#define NEAR 2

/* ---- logs that were cut -------------------------------------------------------------------------------------- */

static void begin_read_all(struct consumer_fixture *f, const char *reset, int64_t *at)
{
    fixture_open(f, 1);
    fixture_set(f, "auto.offset.reset", reset);
    stub_cluster_add_topic(f->cluster, "t", 1);
    for (int i = 0; i < 4; i++)
        fixture_append(f, "t", 0, 10, 0);
    fixture_assign(f, "t", 0, 0);
    *at = 0;
    fixture_read_to(f, 0, at, 40);
}

static void expect_cut_at(struct consumer_fixture *f, int64_t offset)
{
    struct brook_position place;
    ck_assert_int_eq(fixture_poll_event(f), -BROOK_E_LOG_DIVERGED);
    brook_consumer_error_position(f->consumer, &place);
    ck_assert_str_eq(place.topic, "t");
    ck_assert_int_eq(place.offset, offset);
    ck_assert_ptr_nonnull(strstr(f->error.text, "are gone"));
}

START_TEST(records_that_were_read_and_are_gone_are_told_and_the_others_read)
{
    struct consumer_fixture f;
    int64_t at;
    begin_read_all(&f, "latest", &at);
    stub_cluster_cut(f.cluster, "t", 0, 20);
    for (int i = 0; i < 3; i++)
        fixture_append(&f, "t", 0, 10, 0); /* it is as long as before, and longer */
    expect_cut_at(&f, 20);
    at = 20;
    fixture_read_to(&f, 0, &at, 50);
    fixture_close(&f);
}
END_TEST

START_TEST(a_log_that_has_become_shorter_is_not_waited_for)
{
    struct consumer_fixture f;
    int64_t at;
    begin_read_all(&f, "earliest", &at);
    stub_cluster_cut(f.cluster, "t", 0, 30);
    expect_cut_at(&f, 30);
    fixture_append(&f, "t", 0, 5, 0);
    at = 30;
    fixture_read_to(&f, 0, &at, 35);
    stub_cluster_cut(f.cluster, "t", 0, 0);
    expect_cut_at(&f, 0);
    fixture_append(&f, "t", 0, 5, 0);
    at = 0;
    fixture_read_to(&f, 0, &at, 5);
    fixture_close(&f);
}
END_TEST

START_TEST(without_a_policy_it_waits_for_a_seek)
{
    struct consumer_fixture f;
    int64_t at;
    brook_batch *batch;
    begin_read_all(&f, "none", &at);
    stub_cluster_cut(f.cluster, "t", 0, 20);
    fixture_append(&f, "t", 0, 30, 0);
    expect_cut_at(&f, 20);
    ck_assert_int_eq(brook_consumer_poll(f.consumer, 200, &batch, &f.error), -BROOK_E_AGAIN);
    ck_assert_int_eq(brook_consumer_seek(f.consumer, "t", 0, 20, &f.error), 0);
    at = 20;
    fixture_read_to(&f, 0, &at, 50);
    fixture_close(&f);
}
END_TEST

static _Atomic int64_t asked_for; /* the offset that a pull named last */

static enum stub_verdict note_offset(void *arg, const struct stub_request *q)
{
    if (q->request->body_case == BROOK__REQUEST__BODY_PULL && q->request->pull->n_partitions == 1)
        asked_for = q->request->pull->partitions[0]->offset;
    return STUB_PASS;
}

static bool asks_for_ten(void *arg)
{
    return asked_for == 10;
}

START_TEST(what_was_fetched_and_not_given_out_is_replaced_without_a_word)
{
    struct consumer_fixture f;
    fixture_open(&f, 1);
    f.function = note_offset;
    stub_cluster_add_topic(f.cluster, "t", 1);
    fixture_append(&f, "t", 0, 10, 0);
    fixture_assign(&f, "t", 0, 0);
    int64_t at = 0;
    fixture_read_to(&f, 0, &at, 10);
    fixture_append(&f, "t", 0, 10, 0);
    struct pollfd p = {.fd = brook_consumer_fd(f.consumer), .events = POLLIN};
    ck_assert_int_eq(poll(&p, 1, WAIT_MS), 1); /* it is here, and waits for a poll */
    asked_for = -1;
    stub_cluster_cut(f.cluster, "t", 0, 10);
    ck_assert(suite_wait(asks_for_ten, NULL, WAIT_MS));
    fixture_append(&f, "t", 0, 10, 0);
    fixture_read_to(&f, 0, &at, 20);
    fixture_append(&f, "t", 0, 10, 0);
    fixture_read_to(&f, 0, &at, 30);
    fixture_close(&f);
}
END_TEST

/* ---- racks --------------------------------------------------------------------------------------------------- */

struct rack {
    _Atomic int code;        /* of the replica's answers; 0: it serves */
    _Atomic int sent_there;  /* times that the leader named it */
    _Atomic int by_near, by_leader; /* pulls answered with the log */
    _Atomic bool stays;      /* the last pull at the leader said so */
};

/* The one partition's answer, before any records. */
static void answer(const struct stub_request *q, int32_t preferred, int code)
{
    struct arena *arena;
    ck_assert_int_eq(arena_new(1 << 20, &arena), 0);
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__PullResponse pull = BROOK__PULL_RESPONSE__INIT;
    Brook__PulledPartition pulled = BROOK__PULLED_PARTITION__INIT, *pulled_p = &pulled;
    response.body_case = BROOK__RESPONSE__BODY_PULL;
    response.pull = &pull;
    pull.n_partitions = 1;
    pull.partitions = &pulled_p;
    pulled.has_topic_id = pulled.has_partition = pulled.has_preferred_replica = 1;
    pulled.topic_id = q->request->pull->partitions[0]->topic_id;
    pulled.partition = 0;
    pulled.preferred_replica = preferred;
    if (code)
        pulled.status = envelope_status(arena, code, "");
    stub_reply(q, &response, NULL, 0, 0);
    arena_free(arena);
}

static enum stub_verdict serve_in_racks(void *arg, const struct stub_request *q)
{
    struct rack *r = arg;
    const Brook__PullRequest *asked = q->request->pull;
    if (q->request->body_case != BROOK__REQUEST__BODY_PULL || asked->n_partitions == 0)
        return STUB_PASS;
    if (q->broker_id == LEADER) {
        r->stays = asked->partitions[0]->stay;
        if (asked->client_rack.len == 6 && memcmp(asked->client_rack.data, "rack-b", 6) == 0 && !r->stays) {
            r->sent_there++;
            answer(q, NEAR, 0);
            return STUB_DONE;
        }
        r->by_leader++;
        return STUB_PASS;
    }
    if (r->code) {
        answer(q, -1, r->code);
        return STUB_DONE;
    }
    struct stub_request as_leader = *q;
    as_leader.broker_id = LEADER;
    r->by_near++;
    stub_reply_default(&as_leader, 2);
    return STUB_DONE;
}

static void begin_in_rack(struct consumer_fixture *f, struct rack *r, const char *rack)
{
    fixture_open(f, 2);
    f->no_sessions = true;
    f->function = serve_in_racks;
    f->function_arg = r;
    fixture_set(f, "client.rack", rack);
    stub_cluster_add_topic(f->cluster, "t", 1);
    fixture_append(f, "t", 0, 10, 0);
    fixture_assign(f, "t", 0, 0);
}

static void read_more(struct consumer_fixture *f, int64_t *at)
{
    fixture_append(f, "t", 0, 10, 0);
    fixture_read_to(f, 0, at, *at + 10);
}

START_TEST(a_consumer_reads_from_the_replica_in_its_rack)
{
    struct consumer_fixture f;
    struct rack r = {0};
    int64_t at = 0;
    begin_in_rack(&f, &r, "rack-b");
    fixture_read_to(&f, 0, &at, 10);
    ck_assert_int_eq(r.sent_there, 1);
    ck_assert_int_gt(r.by_near, 0);
    ck_assert_int_eq(r.by_leader, 0);
    read_more(&f, &at);
    ck_assert_int_eq(r.by_leader, 0);
    fixture_close(&f);
}
END_TEST

START_TEST(elsewhere_it_reads_from_the_leader)
{
    struct consumer_fixture f;
    struct rack r = {0};
    int64_t at = 0;
    begin_in_rack(&f, &r, "rack-c");
    fixture_read_to(&f, 0, &at, 10);
    read_more(&f, &at);
    ck_assert_int_eq(r.by_near, 0);
    fixture_close(&f);
}
END_TEST

/* Whatever the replica says about the partition is no fact: the leader is asked, and told that it is to serve it
 * itself. */
static void turns_back_at(int code)
{
    struct consumer_fixture f;
    struct rack r = {0};
    int64_t at = 0;
    begin_in_rack(&f, &r, "rack-b");
    fixture_set(&f, "auto.offset.reset", "none");
    fixture_read_to(&f, 0, &at, 10);
    r.code = code;
    read_more(&f, &at);
    ck_assert_int_gt(r.by_leader, 0);
    r.code = 0;
    for (int before = r.by_near; r.by_near == before;) /* later the replica is tried again */
        read_more(&f, &at);
    fixture_close(&f);
}

START_TEST(it_turns_back_to_the_leader_when_the_replica_can_not_serve)
{
    turns_back_at(BROOK_E_OFFSET_NOT_AVAILABLE);
    turns_back_at(BROOK_E_NOT_LEADER);
    turns_back_at(BROOK_E_OFFSET_OUT_OF_RANGE);
    turns_back_at(BROOK_E_LOG_DIVERGED);
}
END_TEST

START_TEST(it_turns_back_to_the_leader_when_the_replica_is_gone)
{
    struct consumer_fixture f;
    struct rack r = {0};
    int64_t at = 0;
    begin_in_rack(&f, &r, "rack-b");
    fixture_read_to(&f, 0, &at, 10);
    stub_cluster_stop_broker(f.cluster, NEAR);
    read_more(&f, &at);
    ck_assert_int_gt(r.by_leader, 0);
    ck_assert(r.stays);
    stub_cluster_start_broker(f.cluster, NEAR);
    for (int before = r.by_near; r.by_near == before;)
        read_more(&f, &at);
    fixture_close(&f);
}
END_TEST

SUITE_MAIN("client/consumer_leaders", SUITE_TEST(records_that_were_read_and_are_gone_are_told_and_the_others_read),
           SUITE_TEST(a_log_that_has_become_shorter_is_not_waited_for),
           SUITE_TEST(without_a_policy_it_waits_for_a_seek),
           SUITE_TEST(what_was_fetched_and_not_given_out_is_replaced_without_a_word),
           SUITE_TEST(a_consumer_reads_from_the_replica_in_its_rack), SUITE_TEST(elsewhere_it_reads_from_the_leader),
           SUITE_TEST_SLOW(it_turns_back_to_the_leader_when_the_replica_can_not_serve, 60),
           SUITE_TEST(it_turns_back_to_the_leader_when_the_replica_is_gone))
