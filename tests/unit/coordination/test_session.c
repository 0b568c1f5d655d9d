/* Keeping a session: hanging servers, stopping, chroots, listeners. */
#include "proto/base/clock.h"
#include "tests/support/caller.h"
#include "tests/support/fake_zookeeper.h"
#include "tests/support/suite.h"
#include "tests/support/zookeeper.h"

#include <string.h>

static struct zookeeper *zk;

START_TEST(a_server_that_is_down_for_a_while_keeps_the_session)
{
    struct caller k;
    struct zookeeper *own = zookeeper_start(NULL);
    caller_init(&k);
    struct coordinator *c = caller_connect(&k, zookeeper_connect(own, ""), 20000, NULL);
    int64_t id = coordinator_session_id(c);
    zookeeper_kill(own);
    caller_wait_event(&k, COORDINATOR_SUSPENDED, 0);
    caller_idle(&k, 300);
    zookeeper_restart(own);
    caller_wait_event(&k, COORDINATOR_CONNECTED, 1);
    ck_assert(coordinator_session_id(c) == id);
    ck_assert_uint_eq(coordinator_generation(c), 1);
    caller_sync(&k, c);
    coordinator_free(c, false, 3000);
    caller_done(&k);
    zookeeper_stop(own);
}
END_TEST

START_TEST(a_hanging_server_ends_the_lease_in_time)
{
    struct caller k;
    caller_init(&k);
    struct coordinator *c = caller_connect(&k, zookeeper_connect(zk, ""), 6000, NULL);
    caller_sync(&k, c);
    zookeeper_pause(zk);
    int64_t paused = clock_boot_ns();
    caller_wait_event(&k, COORDINATOR_SUSPENDED, 0);
    /* Due at two thirds after the last reply; at the latest before the server may give the session up. */
    ck_assert(clock_boot_ns() - paused < (int64_t)6000 * 1000000);
    ck_assert(coordinator_lease_until_ns(c) <= paused + (int64_t)6000 * 1000000);
    zookeeper_continue(zk);
    caller_wait_event(&k, COORDINATOR_CONNECTED, 1);
    coordinator_free(c, false, 3000);
    caller_done(&k);
}
END_TEST

START_TEST(stopping_is_bounded_while_the_server_hangs)
{
    static const int bounds_ms[] = {100, 1000};
    for (int keep = 0; keep < 2; keep++)
        for (int busy = 0; busy < 2; busy++)
            for (size_t i = 0; i < 2; i++) {
                struct caller k;
                caller_init(&k);
                struct coordinator *c = caller_connect(&k, zookeeper_connect(zk, ""), 20000, NULL);
                caller_sync(&k, c);
                zookeeper_pause(zk);
                if (busy)
                    coordinator_set(c, "/", "x", 1, -1, caller_begin(&k));
                int64_t took = caller_free_timed(c, keep, bounds_ms[i]);
                zookeeper_continue(zk);
                /* The session, which it must not wait for, has 20 s. */
                ck_assert_msg(took <= bounds_ms[i] + 3000, "took %lld ms of %d", (long long)took,
                              bounds_ms[i]);
                inbox_drain(&k.inbox);
                ck_assert_int_eq(k.got.err, busy ? -BROOK_E_CLOSED : 0);
                caller_done(&k);
            }
}
END_TEST

START_TEST(stopping_closes_the_session_even_under_load)
{
    struct caller k, other;
    static struct got got;
    caller_init(&k);
    caller_init(&other);
    struct coordinator *watcher = caller_connect(&other, zookeeper_connect(zk, "/load"), 10000, NULL);
    for (int round = 0; round < 10; round++) {
        struct coordinator *c = caller_connect(&k, zookeeper_connect(zk, "/load"), 10000, NULL);
        coordinator_create(c, "/e", NULL, 0, ZNODE_EPHEMERAL, caller_begin(&k));
        ck_assert_int_eq(caller_end(&k)->err, 0);
        for (size_t i = 0; i < 800; i++)
            coordinator_get(c, "/e",
                            (struct coordinator_call){.inbox = &k.inbox, .callback = got_copy, .arg = &got});
        /* Until the first replies show that they are on their way. */
        got.count = 0;
        while (!got.count)
            caller_idle(&k, 1);
        ck_assert_int_lt(caller_free_timed(c, false, 3000), 1000);
        coordinator_exists(watcher, "/e", caller_begin(&other));
        ck_assert_int_eq(caller_end(&other)->err, -BROOK_E_NO_NODE);
        while (inbox_drain(&k.inbox))
            ;
    }
    coordinator_free(watcher, false, 3000);
    caller_done(&k);
    caller_done(&other);
}
END_TEST

START_TEST(the_chroot_is_made_level_by_level)
{
    struct caller k;
    caller_init(&k);
    struct coordinator *c = caller_connect(&k, zookeeper_connect(zk, "/x/y/z"), 4000, NULL);
    coordinator_create(c, "/n", "1", 1, ZNODE_PERSISTENT, caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, 0);
    coordinator_free(c, false, 3000);
    c = caller_connect(&k, zookeeper_connect(zk, ""), 4000, NULL);
    coordinator_get(c, "/x/y/z/n", caller_begin(&k));
    ck_assert_str_eq(caller_end(&k)->data, "1");
    coordinator_free(c, false, 3000);
    caller_done(&k);
}
END_TEST

START_TEST(a_chroot_that_exists_needs_no_rights_above_it)
{
    struct caller k;
    struct fake_zookeeper *fake = fake_zookeeper_start();
    fake_zookeeper_put(fake, "/x", "");
    fake_zookeeper_script(fake, (struct fake_rule){.op = FAKE_CREATE, .error = -102, .times = 1000});
    caller_init(&k);
    /* Missing below what we may not write to: said, and tried again. */
    struct coordinator *c = caller_start(&k, fake_zookeeper_connect(fake, "/x/y"), 1000);
    coordinator_get(c, "/", caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, -BROOK_E_COORDINATION_LOST);
    ck_assert_uint_eq(k.events_count, 0);
    fake_zookeeper_put(fake, "/x/y", "");
    caller_wait_event(&k, COORDINATOR_CONNECTED, 0);
    coordinator_free(c, false, 3000);
    /* It exists: nothing is created. */
    unsigned creates = fake_zookeeper_count(fake, FAKE_CREATE);
    k.events_count = 0;
    c = caller_connect(&k, fake_zookeeper_connect(fake, "/x/y"), 1000, NULL);
    ck_assert_uint_eq(fake_zookeeper_count(fake, FAKE_CREATE), creates);
    coordinator_free(c, false, 3000);
    caller_done(&k);
    fake_zookeeper_stop(fake);
}
END_TEST

START_TEST(a_late_listener_learns_the_present_state)
{
    struct caller k, late;
    caller_init(&k);
    caller_init(&late);
    struct coordinator *c = caller_connect(&k, zookeeper_connect(zk, ""), 4000, NULL);
    caller_listen(&late, c);
    caller_wait_event(&late, COORDINATOR_CONNECTED, 0);
    ck_assert(late.events[0].session_id == coordinator_session_id(c));
    coordinator_free(c, false, 3000);
    caller_done(&k);
    caller_done(&late);
}
END_TEST

int main(void)
{
    const struct suite_test tests[] = {
        SUITE_TEST(a_server_that_is_down_for_a_while_keeps_the_session),
        SUITE_TEST(a_hanging_server_ends_the_lease_in_time),
        SUITE_TEST(stopping_is_bounded_while_the_server_hangs),
        SUITE_TEST(stopping_closes_the_session_even_under_load),
        SUITE_TEST(the_chroot_is_made_level_by_level),
        SUITE_TEST(a_chroot_that_exists_needs_no_rights_above_it),
        SUITE_TEST(a_late_listener_learns_the_present_state),
    };
    zk = zookeeper_start(NULL);
    int r = suite_run("coordination/session", tests, sizeof tests / sizeof tests[0]);
    zookeeper_stop(zk);
    return r;
}
