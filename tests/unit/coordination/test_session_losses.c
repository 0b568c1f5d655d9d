/* Links and sessions that are lost again and again, at any moment, with whatever is under way. */
#include "coordination/ephemeral.h"
#include "tests/support/caller.h"
#include "tests/support/fake_zookeeper.h"
#include "tests/support/suite.h"
#include "tests/support/tcp_proxy.h"
#include "tests/support/zookeeper.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static struct zookeeper *zk;

/* Several at the same time: most of it is waiting until it may be tried again. */
#define PARTS 6

static void expire_again_and_again(int number)
{
    struct caller k;
    struct got data = {0}, children = {0};
    struct fake_zookeeper *fake = fake_zookeeper_start();
    fake_zookeeper_put(fake, "/n", "x");
    caller_init(&k);
    struct coordinator *c = caller_connect(&k, fake_zookeeper_connect(fake, ""), 2000, NULL);
    struct observation *o = coordinator_observe(c, OBSERVE_DATA, "/n", 0, &k.inbox, got_copy, &data);
    struct observation *p =
        coordinator_observe(c, OBSERVE_CHILDREN, "/absent", 0, &k.inbox, got_copy, &children);
    for (uint64_t i = 1; i <= 60 / PARTS; i++) {
        k.events_count = 0;
        fake_zookeeper_script(fake, (struct fake_rule){.op = FAKE_SET, .answer = FAKE_EXPIRE});
        coordinator_set(c, "/n", "y", 1, -1, caller_begin(&k));
        int err = caller_end(&k)->err;
        ck_assert_msg(err == -BROOK_E_OUTCOME_UNKNOWN || err == -BROOK_E_SESSION_EXPIRED, "%s",
                      brook_error_name(err));
        size_t at = caller_wait_event(&k, COORDINATOR_EXPIRED, 0);
        ck_assert_uint_eq(k.events[at].generation, i);
        at = caller_wait_event(&k, COORDINATOR_CONNECTED, at);
        ck_assert_uint_eq(k.events[at].generation, i + 1);
    }
    observation_free(o);
    observation_free(p);
    coordinator_free(c, false, 3000);
    caller_done(&k);
    ck_assert_uint_ge(data.count, 2);
    fake_zookeeper_stop(fake);
}

START_TEST(sessions_expire_again_and_again_without_leaks)
{
    suite_parallel(expire_again_and_again, PARTS);
}
END_TEST

#define LINKS_LOST 200

static void lose_links(int number)
{
    struct caller k;
    struct got data = {0};
    struct fake_zookeeper *fake = fake_zookeeper_start();
    fake_zookeeper_put(fake, "/n", "x");
    caller_init(&k);
    struct coordinator *c = caller_connect(&k, fake_zookeeper_connect(fake, ""), 300, NULL);
    struct observation *o = coordinator_observe(c, OBSERVE_DATA, "/n", 0, &k.inbox, got_copy, &data);
    for (int i = 0; i < LINKS_LOST / PARTS; i++) {
        k.events_count = 0;
        fake_zookeeper_cut(fake);
        caller_wait_event(&k, COORDINATOR_CONNECTED, 0);
    }
    ck_assert_uint_eq(coordinator_generation(c), 1);
    observation_free(o);
    coordinator_free(c, false, 3000);
    caller_done(&k);
    fake_zookeeper_stop(fake);
}

START_TEST(links_are_lost_hundreds_of_times_without_leaks)
{
    suite_parallel(lose_links, PARTS);
}
END_TEST

/* Of all parts: a few cuts may all come between writes. */
static atomic_int outcomes_unknown;

/* Writes in flight meet a cut at any moment, also within the library's sending: one reply each, and the
 * node's version lies between those that succeeded and those that may have. */
static void write_and_cut(int number)
{
    enum { ROUNDS = 60 / PARTS, WRITES = 40 };
    struct got *got = calloc(WRITES, sizeof *got);
    struct caller k;
    char connect[64], node[16];
    uint64_t seed = suite_seed() + (uint64_t)number;
    int done = 0, open = 0;
    struct tcp_proxy *proxy = tcp_proxy_start(zookeeper_port(zk));
    snprintf(connect, sizeof connect, "127.0.0.1:%d/cuts", tcp_proxy_port(proxy));
    snprintf(node, sizeof node, "/n%d", number);
    caller_init(&k);
    struct coordinator *c = caller_connect(&k, connect, 2000, NULL);
    coordinator_create(c, node, NULL, 0, ZNODE_PERSISTENT, caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, 0);
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t cut = suite_random_below(&seed, WRITES);
        k.events_count = 0;
        memset(got, 0, WRITES * sizeof *got);
        for (size_t i = 0; i < WRITES; i++) {
            coordinator_set(
                c, node, "x", 1, -1,
                (struct coordinator_call){.inbox = &k.inbox, .callback = got_copy, .arg = &got[i]});
            if (i == cut)
                tcp_proxy_cut(proxy);
            if (suite_random_below(&seed, 4) == 0)
                caller_idle(&k, 0);
        }
        caller_sync(&k, c);
        for (size_t i = 0; i < WRITES; i++) {
            ck_assert_uint_eq(got[i].count, 1);
            ck_assert_msg(got[i].err == 0 || got[i].err == -BROOK_E_OUTCOME_UNKNOWN, "%s",
                          brook_error_name(got[i].err));
            done += got[i].err == 0;
            open += got[i].err != 0;
        }
    }
    coordinator_exists(c, node, caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, 0);
    ck_assert_int_ge(k.got.stat.version, done);
    ck_assert_int_le(k.got.stat.version, done + open);
    ck_assert_uint_eq(coordinator_generation(c), 1);
    atomic_fetch_add(&outcomes_unknown, open);
    coordinator_free(c, false, 3000);
    caller_done(&k);
    tcp_proxy_stop(proxy);
    free(got);
}

START_TEST(writes_meet_cuts_and_every_one_is_answered_once)
{
    suite_seed();
    suite_parallel(write_and_cut, PARTS);
    ck_assert_int_gt(atomic_load(&outcomes_unknown), 0);
}
END_TEST

static void *expire_at_random(void *arg)
{
    struct fake_zookeeper *fake = arg;
    uint64_t seed = suite_seed();
    for (int i = 0; i < 40; i++) {
        usleep((useconds_t)suite_random_below(&seed, 3000));
        if (suite_random_below(&seed, 2))
            fake_zookeeper_expire(fake);
        else
            fake_zookeeper_cut(fake);
    }
    return NULL;
}

/* Stops arrive at any moment of connecting, losing, expiring, claiming, observing. */
START_TEST(stopping_at_any_moment_answers_all_and_leaves_nothing)
{
    struct fake_zookeeper *fake = fake_zookeeper_start();
    uint64_t seed = suite_seed();
    fake_zookeeper_put(fake, "/n", "x");
    for (int round = 0; round < 60; round++) {
        pthread_t thread;
        struct caller k;
        struct got seen = {0}, got[6] = {0};
        caller_init(&k);
        pthread_create(&thread, NULL, expire_at_random, fake);
        struct coordinator *c = caller_start(&k, fake_zookeeper_connect(fake, round % 2 ? "/deep/down" : ""), 500);
        struct observation *o = coordinator_observe(c, OBSERVE_DATA, "/n", 5, &k.inbox, got_copy, &seen);
        struct coordinator_call call = {.inbox = &k.inbox, .callback = got_copy};
        for (size_t i = 0; i < 6; i++) {
            call.arg = &got[i];
            switch (i) {
            case 0:
                coordinator_create_path(c, "/a/b/c", NULL, 0, call);
                break;
            case 1:
                ephemeral_claim_node(c, "/e", NULL, 0, -1, call);
                break;
            case 2:
                coordinator_wait_gone(c, "/n", 10000, call);
                break;
            case 3:
                coordinator_delete_own(c, "/e", call);
                break;
            case 4:
                coordinator_set(c, "/n", "y", 1, -1, call);
                break;
            default:
                coordinator_get(c, "/n", call);
                break;
            }
            caller_idle(&k, (int)suite_random_below(&seed, 12));
        }
        if (round % 3 == 0)
            observation_free(o);
        ck_assert_int_lt(caller_free_timed(c, round % 5 == 0, 1000), 1300);
        while (inbox_drain(&k.inbox))
            ;
        for (size_t i = 0; i < 6; i++)
            ck_assert_uint_eq(got[i].count, 1);
        if (round % 3 != 0)
            observation_free(o);
        caller_done(&k);
        pthread_join(thread, NULL);
    }
    fake_zookeeper_stop(fake);
}
END_TEST

static const struct fake_rule terminal_rules[] = {
    {.op = FAKE_CONNECT, .apply = true, .answer = FAKE_AUTH_FAIL, .times = 2},
    {.op = FAKE_CONNECT, .apply = false, .answer = FAKE_CLOSE, .times = 10},
    {.op = FAKE_CONNECT, .apply = true, .answer = FAKE_CLOSE, .times = 8},
    {.op = FAKE_CONNECT, .apply = false, .answer = FAKE_STALL, .times = 1},
    {.op = FAKE_CONNECT, .apply = true, .answer = FAKE_EXPIRE, .times = 3},
};

static void meet_terminal_state(int number)
{
    struct caller k;
    struct fake_zookeeper *fake = fake_zookeeper_start();
    caller_init(&k);
    fake_zookeeper_script(fake, terminal_rules[number]);
    struct coordinator *c = caller_start(&k, fake_zookeeper_connect(fake, ""), 1000);
    caller_wait_event(&k, COORDINATOR_CONNECTED, 0);
    caller_idle(&k, 50);
    /* And once more in mid-life. */
    fake_zookeeper_script(fake, terminal_rules[number]);
    fake_zookeeper_cut(fake);
    caller_wait_event(&k, COORDINATOR_SUSPENDED, 0);
    for (int tries = 0; tries < 5; tries++) {
        coordinator_sync(c, "/", caller_begin(&k));
        if (caller_end(&k)->err == 0)
            break;
    }
    ck_assert_int_eq(k.got.err, 0);
    ck_assert_uint_eq(fake_zookeeper_rules(fake), 0);
    coordinator_free(c, false, 3000);
    caller_done(&k);
    fake_zookeeper_stop(fake);
}

START_TEST(terminal_states_of_a_handle_are_not_ours)
{
    suite_parallel(meet_terminal_state, sizeof terminal_rules / sizeof terminal_rules[0]);
}
END_TEST

START_TEST(exhausted_descriptors_are_waited_for)
{
    struct caller k;
    struct rlimit limit, none;
    struct fake_zookeeper *fake = fake_zookeeper_start();
    caller_init(&k);
    struct coordinator *c = caller_connect(&k, fake_zookeeper_connect(fake, ""), 1000, NULL);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    none.rlim_cur = 0;
    fake_zookeeper_expire(fake);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    caller_idle(&k, 700);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    size_t at = caller_wait_event(&k, COORDINATOR_EXPIRED, 0);
    caller_wait_event(&k, COORDINATOR_CONNECTED, at);
    coordinator_free(c, false, 3000);
    caller_done(&k);
    fake_zookeeper_stop(fake);
}
END_TEST

int main(void)
{
    const struct suite_test tests[] = {
        SUITE_TEST_SLOW(sessions_expire_again_and_again_without_leaks, 60),
        SUITE_TEST_SLOW(links_are_lost_hundreds_of_times_without_leaks, 60),
        SUITE_TEST_SLOW(writes_meet_cuts_and_every_one_is_answered_once, 60),
        SUITE_TEST_SLOW(stopping_at_any_moment_answers_all_and_leaves_nothing, 60),
        SUITE_TEST_SLOW(terminal_states_of_a_handle_are_not_ours, 60),
        SUITE_TEST(exhausted_descriptors_are_waited_for),
    };
    zk = zookeeper_start(NULL);
    int r = suite_run("coordination/session_losses", tests, sizeof tests / sizeof tests[0]);
    zookeeper_stop(zk);
    return r;
}
