/* Observations: what is delivered is what is, across lost links and new sessions. */
#include "tests/support/caller.h"
#include "tests/support/fake_zookeeper.h"
#include "tests/support/suite.h"
#include "tests/support/tcp_proxy.h"
#include "tests/support/zookeeper.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct zookeeper *zk;

struct wish {
    const struct got *got;
    int err;
    const char *data; /* NULL: any */
};

static bool is_so(void *arg)
{
    const struct wish *w = arg;
    return w->got->count && w->got->err == w->err && (!w->data || strcmp(w->got->data, w->data) == 0);
}

static void wait_for(struct caller *k, const struct got *got, int err, const char *data)
{
    struct wish w = {got, err, data};
    if (!caller_wait(k, is_so, &w, CALLER_TIMEOUT_MS))
        ck_abort_msg("not delivered: %s \"%s\"; last was %s \"%s\"", brook_error_name(err), data ? data : "",
                     brook_error_name(got->err), got->data);
}

struct many {
    const struct got *got;
    unsigned count;
};

static bool came_so_often(void *arg)
{
    const struct many *m = arg;
    return m->got->count >= m->count;
}

static void set(struct caller *k, struct coordinator *c, const char *path, const char *data)
{
    coordinator_set(c, path, data, strlen(data), -1, caller_begin(k));
    ck_assert_int_eq(caller_end(k)->err, 0);
}

static bool has_only_m(void *arg)
{
    const struct got *got = arg;
    return got->err == 0 && got->children_count == 1 && strcmp(got->children[0], "m") == 0;
}

START_TEST(data_is_followed_from_absent_to_gone_and_back)
{
    struct caller k;
    struct got got = {0};
    caller_init(&k);
    struct coordinator *c = caller_connect(&k, zookeeper_connect(zk, "/data"), 4000, NULL);
    struct observation *o = coordinator_observe(c, OBSERVE_DATA, "/n", 0, &k.inbox, got_copy, &got);
    wait_for(&k, &got, -BROOK_E_NO_NODE, NULL);
    coordinator_create(c, "/n", "1", 1, ZNODE_PERSISTENT, caller_begin(&k));
    wait_for(&k, &got, 0, "1");
    ck_assert_int_eq(got.stat.version, 0);
    set(&k, c, "/n", "2");
    wait_for(&k, &got, 0, "2");
    coordinator_delete(c, "/n", -1, caller_begin(&k));
    wait_for(&k, &got, -BROOK_E_NO_NODE, NULL);
    coordinator_create(c, "/n", "3", 1, ZNODE_PERSISTENT, caller_begin(&k));
    wait_for(&k, &got, 0, "3");
    observation_free(o);
    unsigned count = got.count;
    set(&k, c, "/n", "4");
    caller_idle(&k, 100);
    ck_assert_uint_eq(got.count, count);
    coordinator_free(c, false, 3000);
    caller_done(&k);
}
END_TEST

START_TEST(children_are_followed_also_of_what_does_not_exist_yet)
{
    struct caller k;
    struct got got = {0};
    caller_init(&k);
    struct coordinator *c = caller_connect(&k, zookeeper_connect(zk, "/children"), 4000, NULL);
    struct observation *o = coordinator_observe(c, OBSERVE_CHILDREN, "/d", 0, &k.inbox, got_copy, &got);
    wait_for(&k, &got, -BROOK_E_NO_NODE, NULL);
    coordinator_create(c, "/d", NULL, 0, ZNODE_PERSISTENT, caller_begin(&k));
    wait_for(&k, &got, 0, NULL);
    ck_assert_uint_eq(got.children_count, 0);
    coordinator_create(c, "/d/m", NULL, 0, ZNODE_EPHEMERAL, caller_begin(&k));
    ck_assert(caller_wait(&k, has_only_m, &got, CALLER_TIMEOUT_MS));
    observation_free(o);
    coordinator_free(c, false, 3000);
    caller_done(&k);
}
END_TEST

START_TEST(equal_states_come_once_unless_poked)
{
    struct caller k;
    struct got got = {0};
    struct fake_zookeeper *fake = fake_zookeeper_start();
    fake_zookeeper_put(fake, "/n", "x");
    caller_init(&k);
    struct coordinator *c = caller_connect(&k, fake_zookeeper_connect(fake, ""), 1000, NULL);
    struct observation *o = coordinator_observe(c, OBSERVE_DATA, "/n", 0, &k.inbox, got_copy, &got);
    wait_for(&k, &got, 0, "x");
    /* Read again after the link was lost, but the same session and state: nothing new. */
    unsigned reads = fake_zookeeper_count(fake, FAKE_GET);
    fake_zookeeper_cut(fake);
    caller_wait_event(&k, COORDINATOR_CONNECTED, 1);
    coordinator_sync(c, "/", caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, 0);
    ck_assert_uint_gt(fake_zookeeper_count(fake, FAKE_GET), reads);
    ck_assert_uint_eq(got.count, 1);
    observation_poke(o);
    ck_assert(caller_wait(&k, came_so_often, &(struct many){&got, 2}, CALLER_TIMEOUT_MS));
    /* A new session always delivers. */
    fake_zookeeper_expire(fake);
    caller_wait_event(&k, COORDINATOR_EXPIRED, 0);
    ck_assert(caller_wait(&k, came_so_often, &(struct many){&got, 3}, CALLER_TIMEOUT_MS));
    ck_assert_uint_eq(got.count, 3);
    ck_assert_uint_eq(got.generation, 2);
    observation_free(o);
    coordinator_free(c, false, 3000);
    caller_done(&k);
    fake_zookeeper_stop(fake);
}
END_TEST

START_TEST(bursts_coalesce_within_the_delay)
{
    struct caller k;
    struct got got = {0};
    caller_init(&k);
    struct coordinator *c = caller_connect(&k, zookeeper_connect(zk, "/burst"), 4000, NULL);
    coordinator_create(c, "/n", "0", 1, ZNODE_PERSISTENT, caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, 0);
    struct observation *o = coordinator_observe(c, OBSERVE_DATA, "/n", 200, &k.inbox, got_copy, &got);
    wait_for(&k, &got, 0, "0");
    for (int i = 0; i < 50; i++)
        set(&k, c, "/n", i == 49 ? "last" : "between");
    wait_for(&k, &got, 0, "last");
    ck_assert_uint_le(got.count, 4);
    observation_free(o);
    coordinator_free(c, false, 3000);
    caller_done(&k);
}
END_TEST

/* A writer flips the node without a pause while the observer's link is cut at random. */
START_TEST(final_view_is_the_final_value_after_a_thousand_flips)
{
    struct caller writer, reader;
    struct got got = {0}, children = {0};
    char connect[64], text[16];
    uint64_t seed = suite_seed();
    struct tcp_proxy *proxy = tcp_proxy_start(zookeeper_port(zk));
    snprintf(connect, sizeof connect, "127.0.0.1:%d/flip", tcp_proxy_port(proxy));
    caller_init(&writer);
    caller_init(&reader);
    struct coordinator *w = caller_connect(&writer, zookeeper_connect(zk, "/flip"), 4000, NULL);
    struct coordinator *r = caller_connect(&reader, connect, 4000, NULL);
    struct observation *o = coordinator_observe(r, OBSERVE_DATA, "/n", 0, &reader.inbox, got_copy, &got);
    struct observation *d =
        coordinator_observe(r, OBSERVE_CHILDREN, "/", 0, &reader.inbox, got_copy, &children);
    for (int i = 0; i < 1000; i++) {
        snprintf(text, sizeof text, "%d", i);
        if (i % 2 == 0)
            coordinator_create(w, "/n", text, strlen(text), ZNODE_PERSISTENT, caller_begin(&writer));
        else
            coordinator_delete(w, "/n", -1, caller_begin(&writer));
        ck_assert_int_eq(caller_end(&writer)->err, 0);
        inbox_drain(&reader.inbox);
        if (suite_random_below(&seed, 100) == 0)
            tcp_proxy_cut(proxy);
        /* The view is right at rest, wherever the run stops. */
        if (i % 100 == 98)
            wait_for(&reader, &got, 0, text);
        if (i % 100 == 99)
            wait_for(&reader, &got, -BROOK_E_NO_NODE, NULL);
    }
    coordinator_create(w, "/m", NULL, 0, ZNODE_PERSISTENT, caller_begin(&writer));
    ck_assert_int_eq(caller_end(&writer)->err, 0);
    ck_assert(caller_wait(&reader, has_only_m, &children, CALLER_TIMEOUT_MS));
    observation_free(o);
    observation_free(d);
    coordinator_free(r, false, 3000);
    coordinator_free(w, false, 3000);
    caller_done(&reader);
    caller_done(&writer);
    tcp_proxy_stop(proxy);
}
END_TEST

/* How many watches the server holds, all sessions. */
static int watches(void)
{
    char answer[4096];
    int n = zookeeper_ask(zk, "wchs", answer, sizeof answer, 1000);
    const char *total = n > 0 ? strstr(answer, "Total watches:") : NULL;
    return total ? atoi(total + strlen("Total watches:")) : -1;
}

static bool has_no_watches(void *arg)
{
    return watches() == *(int *)arg;
}

START_TEST(freed_observations_leave_no_watch_behind)
{
    struct caller k;
    struct got got[4] = {0};
    struct observation *o[4];
    caller_init(&k);
    struct coordinator *c = caller_connect(&k, zookeeper_connect(zk, "/unwatch"), 4000, NULL);
    int before = watches();
    coordinator_create(c, "/n", "x", 1, ZNODE_PERSISTENT, caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, 0);
    o[0] = coordinator_observe(c, OBSERVE_DATA, "/n", 0, &k.inbox, got_copy, &got[0]);
    o[1] = coordinator_observe(c, OBSERVE_DATA, "/n", 0, &k.inbox, got_copy, &got[1]);
    o[2] = coordinator_observe(c, OBSERVE_CHILDREN, "/n", 0, &k.inbox, got_copy, &got[2]);
    o[3] = coordinator_observe(c, OBSERVE_CHILDREN, "/absent", 0, &k.inbox, got_copy, &got[3]);
    wait_for(&k, &got[1], 0, "x");
    wait_for(&k, &got[2], 0, NULL);
    wait_for(&k, &got[3], -BROOK_E_NO_NODE, NULL);
    ck_assert_int_gt(watches(), before);
    /* One of two users of a path goes: the other still hears. */
    observation_free(o[0]);
    set(&k, c, "/n", "y");
    wait_for(&k, &got[1], 0, "y");
    observation_free(o[2]);
    set(&k, c, "/n", "z");
    wait_for(&k, &got[1], 0, "z");
    observation_free(o[1]);
    observation_free(o[3]);
    ck_assert(caller_wait(&k, has_no_watches, &before, 3000));
    coordinator_free(c, false, 3000);
    caller_done(&k);
}
END_TEST

START_TEST(budget_of_watched_bytes_is_kept_and_survives_a_lost_link)
{
    static struct observation *o[5000];
    struct caller k;
    struct got got = {0};
    char path[128], connect[64];
    size_t count = 0;
    struct tcp_proxy *proxy = tcp_proxy_start(zookeeper_port(zk));
    snprintf(connect, sizeof connect, "127.0.0.1:%d/budget", tcp_proxy_port(proxy));
    caller_init(&k);
    struct coordinator *c = caller_connect(&k, connect, 4000, NULL);
    for (;; count++) {
        snprintf(path, sizeof path, "/%0110zu", count);
        if (!(o[count] = coordinator_observe(c, OBSERVE_DATA, path, 0, &k.inbox, got_copy, &got)))
            break;
        ck_assert_uint_lt(count, 4999);
    }
    /* 111 bytes each and the chroot's 7. */
    ck_assert_uint_eq(count, COORDINATOR_WATCH_PATH_BYTES_MAX / 118);
    coordinator_sync(c, "/", caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, 0);
    uint64_t accepted = tcp_proxy_accepted(proxy);
    for (int i = 0; i < 3; i++) {
        tcp_proxy_cut(proxy);
        caller_wait_event(&k, COORDINATOR_CONNECTED, k.events_count);
        coordinator_sync(c, "/", caller_begin(&k));
        ck_assert_int_eq(caller_end(&k)->err, 0);
    }
    ck_assert_uint_le(tcp_proxy_accepted(proxy) - accepted, 6);
    /* What is given back can be used again. */
    observation_free(o[0]);
    coordinator_sync(c, "/", caller_begin(&k));
    caller_end(&k);
    o[0] = coordinator_observe(c, OBSERVE_DATA, path, 0, &k.inbox, got_copy, &got);
    ck_assert_ptr_nonnull(o[0]);
    for (size_t i = 0; i < count; i++)
        observation_free(o[i]);
    coordinator_free(c, false, 3000);
    caller_done(&k);
    tcp_proxy_stop(proxy);
}
END_TEST

START_TEST(observations_may_outlive_their_coordinator)
{
    struct caller k;
    struct got got = {0};
    caller_init(&k);
    struct coordinator *c = caller_connect(&k, zookeeper_connect(zk, "/outlive"), 4000, NULL);
    struct observation *o = coordinator_observe(c, OBSERVE_DATA, "/", 0, &k.inbox, got_copy, &got);
    wait_for(&k, &got, 0, NULL);
    /* One whose start the thread has never seen, maybe. */
    struct observation *late = coordinator_observe(c, OBSERVE_DATA, "/late", 0, &k.inbox, got_copy, &got);
    coordinator_free(c, false, 3000);
    observation_poke(o);
    observation_free(o);
    observation_free(late);
    caller_done(&k);
}
END_TEST

int main(void)
{
    const struct suite_test tests[] = {
        SUITE_TEST(data_is_followed_from_absent_to_gone_and_back),
        SUITE_TEST(children_are_followed_also_of_what_does_not_exist_yet),
        SUITE_TEST(equal_states_come_once_unless_poked),
        SUITE_TEST(bursts_coalesce_within_the_delay),
        SUITE_TEST_SLOW(final_view_is_the_final_value_after_a_thousand_flips, 60),
        SUITE_TEST(freed_observations_leave_no_watch_behind),
        SUITE_TEST_SLOW(budget_of_watched_bytes_is_kept_and_survives_a_lost_link, 60),
        SUITE_TEST(observations_may_outlive_their_coordinator),
    };
    zk = zookeeper_start(NULL);
    int r = suite_run("coordination/observe", tests, sizeof tests / sizeof tests[0]);
    zookeeper_stop(zk);
    return r;
}
