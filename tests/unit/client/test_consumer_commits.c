#include "proto/base/err.h"
#include "tests/unit/client/consumer_fixture.h"

#include <stdlib.h>
#include <string.h>

static void open_group(struct consumer_fixture *f, const char *auto_commit, const char *interval_ms)
{
    fixture_open(f, 1);
    fixture_set(f, "group.id", "g");
    fixture_set(f, "enable.auto.commit", auto_commit);
    fixture_set(f, "auto.commit.interval.ms", interval_ms);
    fixture_set(f, "max.partition.fetch.bytes", "100"); /* a batch each time */
    stub_cluster_add_topic(f->cluster, "t", 2);
}

START_TEST(a_commit_stores_what_was_released)
{
    struct consumer_fixture f;
    open_group(&f, "false", "10");
    for (int i = 0; i < 3; i++)
        fixture_append(&f, "t", 0, 10, 100);
    fixture_assign(&f, "t", 0, 0);
    brook_batch *a = fixture_poll(&f), *b = fixture_poll(&f), *c = fixture_poll(&f);
    ck_assert_int_eq(brook_consumer_commit(f.consumer, NULL, 0, BROOK_COMMIT_SYNC, WAIT_MS, &f.error), 0);
    ck_assert_int_eq(fixture_stored(&f, "t", 0), 0);
    brook_batch_release(b);
    ck_assert_int_eq(brook_consumer_commit(f.consumer, NULL, 0, BROOK_COMMIT_SYNC, WAIT_MS, &f.error), 0);
    ck_assert_int_eq(fixture_stored(&f, "t", 0), 0);
    brook_batch_release(a);
    ck_assert_int_eq(brook_consumer_commit(f.consumer, NULL, 0, BROOK_COMMIT_SYNC, WAIT_MS, &f.error), 0);
    ck_assert_int_eq(fixture_stored(&f, "t", 0), 20);
    brook_batch_release_at(c, 23);
    ck_assert_int_eq(brook_consumer_commit(f.consumer, NULL, 0, BROOK_COMMIT_ASYNC, 0, &f.error), 0);
    ck_assert(fixture_wait_stored(&f, "t", 0, 23));
    fixture_close(&f);
    ck_assert_int_eq(f.stored[0].offset, 23);
}
END_TEST

START_TEST(given_positions_are_stored_as_they_are_also_backwards)
{
    struct consumer_fixture f;
    open_group(&f, "false", "10");
    fixture_start(&f);
    for (int64_t offset = 9; offset >= 0; offset--) {
        struct brook_position both[] = {{"t", 0, offset}, {"t", 1, 100 + offset}};
        ck_assert_int_eq(brook_consumer_commit(f.consumer, both, 2, BROOK_COMMIT_SYNC, WAIT_MS, &f.error), 0);
        ck_assert_int_eq(fixture_stored(&f, "t", 0), offset);
        ck_assert_int_eq(fixture_stored(&f, "t", 1), 100 + offset);
    }
    struct brook_position bad = {"t", 0, -1};
    ck_assert_int_eq(brook_consumer_commit(f.consumer, &bad, 1, BROOK_COMMIT_SYNC, 0, &f.error),
                     -BROOK_E_INVALID);
    fixture_close(&f);
}
END_TEST

START_TEST(of_many_commits_the_last_one_stays)
{
    struct consumer_fixture f;
    open_group(&f, "false", "10");
    fixture_start(&f);
    uint64_t random = suite_seed();
    for (int round = 0; round < 20; round++) {
        int64_t last = 0;
        for (int i = 0; i < 30; i++) {
            last = (int64_t)suite_random_below(&random, 1000);
            struct brook_position one = {"t", 0, last};
            ck_assert_int_eq(brook_consumer_commit(f.consumer, &one, 1, BROOK_COMMIT_ASYNC, 0, &f.error), 0);
        }
        struct brook_position one = {"t", 0, last};
        ck_assert_int_eq(brook_consumer_commit(f.consumer, &one, 1, BROOK_COMMIT_SYNC, WAIT_MS, &f.error), 0);
        ck_assert_int_eq(fixture_stored(&f, "t", 0), last);
    }
    ck_assert_uint_le(fixture_stored_writes(&f), 20 * 31);
    fixture_close(&f);
}
END_TEST

START_TEST(auto_commit_follows_what_is_released_and_writes_it_once)
{
    struct consumer_fixture f;
    open_group(&f, "true", "10");
    for (int i = 0; i < 3; i++)
        fixture_append(&f, "t", 0, 10, 100);
    fixture_assign(&f, "t", 0, 0);
    brook_batch *a = fixture_poll(&f), *b = fixture_poll(&f);
    brook_batch_release(b);
    ck_assert(fixture_wait_stored(&f, "t", 0, 0));
    brook_batch_release(a);
    ck_assert(fixture_wait_stored(&f, "t", 0, 20));
    unsigned writes = fixture_stored_writes(&f);
    brook_batch *batch = NULL;
    ck_assert_int_eq(brook_consumer_poll(f.consumer, WAIT_MS, &batch, NULL), 0);
    ck_assert_int_eq(brook_consumer_poll(f.consumer, 200, &a, NULL), -BROOK_E_AGAIN); /* many intervals */
    ck_assert_uint_eq(fixture_stored_writes(&f), writes);
    brook_batch_release(batch);
    brook_consumer_close(f.consumer, WAIT_MS); /* commits the last of it */
    f.consumer = NULL;
    ck_assert_int_eq(fixture_stored(&f, "t", 0), 30);
    fixture_close(&f);
}
END_TEST

START_TEST(without_auto_commit_nothing_is_stored_by_itself)
{
    struct consumer_fixture f;
    open_group(&f, "false", "10");
    fixture_append(&f, "t", 0, 10, 100);
    fixture_assign(&f, "t", 0, 0);
    brook_batch_release(fixture_poll(&f));
    brook_batch *batch;
    ck_assert_int_eq(brook_consumer_poll(f.consumer, 100, &batch, NULL), -BROOK_E_AGAIN);
    brook_consumer_close(f.consumer, WAIT_MS);
    f.consumer = NULL;
    ck_assert_int_eq(fixture_stored(&f, "t", 0), -1);
    fixture_close(&f);
}
END_TEST

START_TEST(every_offset_can_be_the_next_one)
{
    struct consumer_fixture f;
    open_group(&f, "false", "10");
    fixture_append(&f, "t", 0, 10, 0);
    for (int64_t next = 0; next <= 10; next++) {
        fixture_assign(&f, "t", 0, next == 0 ? 0 : BROOK_OFFSET_STORED);
        if (next < 10) {
            brook_batch *batch = fixture_poll(&f);
            struct brook_message m;
            ck_assert_int_eq(brook_batch_next(batch, &m), 0);
            ck_assert_int_eq(m.offset, next);
            brook_batch_release_at(batch, next + 1);
        }
        ck_assert_int_eq(brook_consumer_commit(f.consumer, NULL, 0, BROOK_COMMIT_SYNC, WAIT_MS, &f.error), 0);
        ck_assert_int_eq(fixture_stored(&f, "t", 0), next < 10 ? next + 1 : -1 + (next == 10) * 11);
        brook_consumer_close(f.consumer, WAIT_MS);
        f.consumer = NULL;
    }
    fixture_close(&f);
}
END_TEST

START_TEST(failures_that_pass_are_tried_again_others_are_told)
{
    static const struct {
        int code, expected;
    } cases[] = {{BROOK_E_OWNED, BROOK_E_OWNED},
                 {BROOK_E_FENCED, BROOK_E_FENCED},
                 {BROOK_E_ACCESS_DENIED, BROOK_E_ACCESS_DENIED},
                 {BROOK_E_COORDINATION_LOST, BROOK_E_TIMED_OUT},
                 {BROOK_E_OUTCOME_UNKNOWN, BROOK_E_TIMED_OUT}};
    struct consumer_fixture f;
    open_group(&f, "false", "10");
    fixture_start(&f);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct brook_position one = {"t", 0, 10 + (int64_t)i};
        f.commit_code = cases[i].code;
        ck_assert_int_eq(brook_consumer_commit(f.consumer, &one, 1, BROOK_COMMIT_SYNC, 250, &f.error),
                         -cases[i].expected);
        pthread_mutex_lock(&f.lock);
        f.commit_code = 0;
        pthread_mutex_unlock(&f.lock);
        if (cases[i].expected == BROOK_E_TIMED_OUT)
            ck_assert(fixture_wait_stored(&f, "t", 0, one.offset)); /* it goes on behind the caller's back */
    }
    struct brook_position unknown = {"nowhere", 0, 1};
    ck_assert_int_eq(brook_consumer_commit(f.consumer, &unknown, 1, BROOK_COMMIT_SYNC, WAIT_MS, &f.error),
                     -BROOK_E_UNKNOWN_TOPIC);
    ck_assert_ptr_nonnull(strstr(f.error.text, "nowhere/0"));
    fixture_close(&f);
}
END_TEST

static enum stub_verdict drop_first(void *arg, const struct stub_request *q)
{
    if (q->request->body_case != BROOK__REQUEST__BODY_COMMIT_OFFSETS || q->number > 0)
        return STUB_PASS;
    stub_close(q->connection);
    return STUB_DONE;
}

START_TEST(a_lost_answer_is_sent_again)
{
    struct consumer_fixture f;
    open_group(&f, "false", "10");
    f.function = drop_first;
    fixture_start(&f);
    struct brook_position one = {"t", 0, 10};
    ck_assert_int_eq(brook_consumer_commit(f.consumer, &one, 1, BROOK_COMMIT_SYNC, WAIT_MS, &f.error), 0);
    ck_assert_int_eq(fixture_stored(&f, "t", 0), 10);
    fixture_close(&f);
}
END_TEST

SUITE_MAIN("client/consumer_commits", SUITE_TEST(a_commit_stores_what_was_released),
           SUITE_TEST(given_positions_are_stored_as_they_are_also_backwards),
           SUITE_TEST(of_many_commits_the_last_one_stays),
           SUITE_TEST(auto_commit_follows_what_is_released_and_writes_it_once),
           SUITE_TEST(without_auto_commit_nothing_is_stored_by_itself),
           SUITE_TEST(every_offset_can_be_the_next_one),
           SUITE_TEST(failures_that_pass_are_tried_again_others_are_told),
           SUITE_TEST(a_lost_answer_is_sent_again))
