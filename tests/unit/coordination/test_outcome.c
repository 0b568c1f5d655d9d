/* What a lost, stalled or confused link does to requests in flight, against a scripted server. */
#include "tests/support/caller.h"
#include "tests/support/fake_zookeeper.h"
#include "tests/support/suite.h"

#include <string.h>

#define TIMEOUT_MS 600

static _Thread_local struct fake_zookeeper *fake;
static _Thread_local struct caller k;
static _Thread_local struct coordinator *c;

static void begin(void)
{
    fake = fake_zookeeper_start();
    fake_zookeeper_put(fake, "/n", "old");
    caller_init(&k);
    c = caller_connect(&k, fake_zookeeper_connect(fake, ""), TIMEOUT_MS, NULL);
}

static void end(void)
{
    coordinator_free(c, false, 3000);
    caller_done(&k);
    fake_zookeeper_stop(fake);
}

static const enum fake_answer losses[] = {FAKE_CLOSE, FAKE_STALL, FAKE_WRONG_XID, FAKE_EXPIRE};
#define LOSSES (sizeof losses / sizeof losses[0])

/* Send one write of the given kind and wait. */
static int write_once(enum fake_op op)
{
    struct coordinator_multi *m;
    switch (op) {
    case FAKE_CREATE:
        coordinator_create(c, "/made", "x", 1, ZNODE_PERSISTENT, caller_begin(&k));
        break;
    case FAKE_SET:
        coordinator_set(c, "/n", "new", 3, 0, caller_begin(&k));
        break;
    case FAKE_DELETE:
        coordinator_delete(c, "/n", 0, caller_begin(&k));
        break;
    default:
        m = coordinator_multi_new();
        coordinator_multi_set(m, "/n", "new", 3, 0);
        coordinator_multi_create(m, "/made", "", 0, ZNODE_PERSISTENT);
        coordinator_multi_send(c, &m, caller_begin(&k));
        break;
    }
    return caller_end(&k)->err;
}

/* Whether the write is in the tree. */
static bool is_applied(enum fake_op op)
{
    if (op == FAKE_CREATE)
        return fake_zookeeper_version(fake, "/made") >= 0;
    if (op == FAKE_DELETE)
        return fake_zookeeper_version(fake, "/n") < 0;
    return fake_zookeeper_version(fake, "/n") == 1;
}

static void lose_write(enum fake_op op, enum fake_answer loss, bool apply)
{
    begin();
    fake_zookeeper_script(fake, (struct fake_rule){.op = op, .apply = apply, .answer = loss});
    int err = write_once(op);
    ck_assert_msg(err == -BROOK_E_OUTCOME_UNKNOWN || err == -BROOK_E_SESSION_EXPIRED, "op %d loss %d apply %d: %s",
                  (int)op, (int)loss, apply, brook_error_name(err));
    ck_assert_int_eq(is_applied(op), apply);
    /* Nothing is sent again behind the caller's back. */
    ck_assert_uint_eq(fake_zookeeper_count(fake, op), 1);
    /* And what the advice says works: sync, then read. */
    coordinator_sync(c, "/", caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, 0);
    coordinator_exists(c, op == FAKE_CREATE ? "/made" : "/n", caller_begin(&k));
    bool found = caller_end(&k)->err == 0;
    ck_assert_int_eq(found, op == FAKE_CREATE ? apply : op == FAKE_DELETE ? !apply : 1);
    end();
}

static void lose_writes(int number)
{
    static const enum fake_op ops[] = {FAKE_CREATE, FAKE_SET, FAKE_DELETE, FAKE_MULTI};
    for (size_t o = 0; o < sizeof ops / sizeof ops[0]; o++)
        for (int apply = 0; apply < 2; apply++)
            lose_write(ops[o], losses[number], apply);
}

START_TEST(writes_that_lose_their_link_are_unknown_whether_applied_or_not)
{
    suite_parallel(lose_writes, LOSSES);
}
END_TEST

static void lose_reads(int number)
{
    static const enum fake_op ops[] = {FAKE_GET, FAKE_EXISTS, FAKE_CHILDREN, FAKE_SYNC};
    for (size_t o = 0; o < sizeof ops / sizeof ops[0]; o++) {
        begin();
        fake_zookeeper_script(fake, (struct fake_rule){.op = ops[o], .answer = losses[number]});
        if (ops[o] == FAKE_GET)
            coordinator_get(c, "/n", caller_begin(&k));
        else if (ops[o] == FAKE_EXISTS)
            coordinator_exists(c, "/n", caller_begin(&k));
        else if (ops[o] == FAKE_CHILDREN)
            coordinator_children(c, "/n", caller_begin(&k));
        else
            coordinator_sync(c, "/n", caller_begin(&k));
        ck_assert_int_eq(caller_end(&k)->err, 0);
        end();
    }
}

START_TEST(reads_that_lose_their_link_are_read_again)
{
    suite_parallel(lose_reads, LOSSES);
}
END_TEST

START_TEST(throttled_requests_are_sent_again)
{
    begin();
    fake_zookeeper_script(fake, (struct fake_rule){.op = FAKE_SET, .error = -127, .times = 2});
    coordinator_set(c, "/n", "new", 3, 0, caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, 0);
    ck_assert_int_eq(fake_zookeeper_version(fake, "/n"), 1);
    end();
}
END_TEST

/* Whoever was not sent yet when the confused reply came goes out on the next connection, and is answered well. Returns
 * how many neighbours were caught in flight. */
static unsigned confuse_eight_writes(void)
{
    struct got got[8] = {0};
    unsigned unknown = 0;
    fake_zookeeper_script(fake, (struct fake_rule){.op = FAKE_SET, .apply = true, .answer = FAKE_WRONG_XID});
    for (size_t i = 0; i < 8; i++)
        coordinator_set(c, "/n", "x", 1, -1,
                        (struct coordinator_call){.inbox = &k.inbox, .callback = got_copy, .arg = &got[i]});
    caller_wait_event(&k, COORDINATOR_CONNECTED, k.events_count);
    coordinator_sync(c, "/", caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, 0);
    ck_assert_int_eq(got[0].err, -BROOK_E_OUTCOME_UNKNOWN);
    for (size_t i = 0; i < 8; i++) {
        ck_assert_uint_eq(got[i].count, 1);
        ck_assert(got[i].err == 0 || got[i].err == -BROOK_E_OUTCOME_UNKNOWN);
        /* In the order sent: nobody in flight is answered well behind one who was not. */
        ck_assert(i == 0 || got[i - 1].err != 0 || got[i].err == 0);
        unknown += i > 0 && got[i].err != 0;
    }
    return unknown;
}

START_TEST(neighbours_of_a_confused_reply_all_learn_that_it_is_unknown)
{
    begin();
    unsigned caught = 0;
    for (int i = 0; i < 50 && !caught; i++)
        caught = confuse_eight_writes();
    ck_assert_uint_gt(caught, 0);
    end();
}
END_TEST

START_TEST(a_session_bound_write_is_not_carried_into_the_next_session)
{
    begin();
    k.generation = coordinator_generation(c);
    ck_assert_uint_eq(k.generation, 1);
    fake_zookeeper_expire(fake);
    caller_wait_event(&k, COORDINATOR_EXPIRED, 0);
    coordinator_set(c, "/n", "new", 3, -1, caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, -BROOK_E_SESSION_EXPIRED);
    ck_assert_int_eq(fake_zookeeper_version(fake, "/n"), 0);
    caller_wait_event(&k, COORDINATOR_CONNECTED, 1);
    ck_assert_uint_eq(coordinator_generation(c), 2);
    coordinator_set(c, "/n", "new", 3, -1, caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, -BROOK_E_SESSION_EXPIRED);
    end();
}
END_TEST

START_TEST(calls_without_a_connection_are_given_up_after_the_session_timeout)
{
    begin();
    fake_zookeeper_script(fake, (struct fake_rule){.op = FAKE_CONNECT, .answer = FAKE_CLOSE, .times = 10000});
    fake_zookeeper_cut(fake);
    caller_wait_event(&k, COORDINATOR_SUSPENDED, 0);
    coordinator_set(c, "/n", "new", 3, -1, caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, -BROOK_E_COORDINATION_LOST);
    coordinator_get(c, "/n", caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, -BROOK_E_COORDINATION_LOST);
    ck_assert_int_eq(fake_zookeeper_version(fake, "/n"), 0);
    end();
}
END_TEST

START_TEST(reads_and_pings_do_not_renew_the_lease)
{
    begin();
    coordinator_sync(c, "/", caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, 0);
    fake_zookeeper_script(fake, (struct fake_rule){.op = FAKE_SYNC, .error = -127, .times = 10000});
    caller_idle(&k, 50);
    int64_t until = coordinator_lease_until_ns(c);
    for (int i = 0; i < 5; i++) {
        coordinator_get(c, "/n", caller_begin(&k));
        ck_assert_int_eq(caller_end(&k)->err, 0);
        caller_idle(&k, 50);
    }
    ck_assert(coordinator_lease_until_ns(c) == until);
    coordinator_set(c, "/n", "x", 1, -1, caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, 0);
    ck_assert(coordinator_lease_until_ns(c) == k.got.sent_ns + (int64_t)TIMEOUT_MS * 1000000);
    end();
}
END_TEST

START_TEST(closing_answers_everything_that_is_outstanding)
{
    struct got got[64] = {0};
    begin();
    fake_zookeeper_script(fake, (struct fake_rule){.op = FAKE_SET, .answer = FAKE_STALL});
    for (size_t i = 0; i < 64; i++)
        coordinator_set(c, "/n", "x", 1, -1,
                        (struct coordinator_call){.inbox = &k.inbox, .callback = got_copy, .arg = &got[i]});
    coordinator_create_path(c, "/p/q", NULL, 0, caller_begin(&k));
    coordinator_free(c, false, 200);
    inbox_drain(&k.inbox);
    for (size_t i = 0; i < 64; i++) {
        ck_assert_uint_eq(got[i].count, 1);
        ck_assert_int_eq(got[i].err, -BROOK_E_CLOSED);
    }
    ck_assert_uint_eq(k.got.count, 1);
    ck_assert_int_eq(k.got.err, -BROOK_E_CLOSED);
    caller_done(&k);
    fake_zookeeper_stop(fake);
}
END_TEST

SUITE_MAIN("coordination/outcome",
           SUITE_TEST_SLOW(writes_that_lose_their_link_are_unknown_whether_applied_or_not, 60),
           SUITE_TEST_SLOW(reads_that_lose_their_link_are_read_again, 40),
           SUITE_TEST(throttled_requests_are_sent_again),
           SUITE_TEST(neighbours_of_a_confused_reply_all_learn_that_it_is_unknown),
           SUITE_TEST(a_session_bound_write_is_not_carried_into_the_next_session),
           SUITE_TEST(calls_without_a_connection_are_given_up_after_the_session_timeout),
           SUITE_TEST(reads_and_pings_do_not_renew_the_lease),
           SUITE_TEST(closing_answers_everything_that_is_outstanding))
