/* Keeping a session: lists of servers, resolvers, hanging and confused servers, expiry, stopping. */
#include "coordination/ephemeral.h"
#include "proto/base/clock.h"
#include "proto/base/diag.h"
#include "tests/support/caller.h"
#include "tests/support/fake_zookeeper.h"
#include "tests/support/suite.h"
#include "tests/support/tcp_proxy.h"
#include "tests/support/zookeeper.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static struct zookeeper *zk;

/* ---- a resolver that can be told what to do; it stands in for the system's in this whole program --------
 */

static _Atomic int resolver_fails;    /* so many questions about names fail, then they work */
static _Atomic int resolver_sleep_ms; /* before any answer */
static _Atomic int resolver_broken;   /* everything fails, also what is written in numbers */
static _Atomic int resolver_asked;
static const char *_Atomic resolver_address = "127.0.0.1"; /* of every name */

int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **ret)
{
    static int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    struct in_addr v4;
    struct in6_addr v6;
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    atomic_fetch_add(&resolver_asked, 1);
    if (atomic_load(&resolver_sleep_ms))
        usleep((useconds_t)atomic_load(&resolver_sleep_ms) * 1000);
    if (atomic_load(&resolver_broken))
        return EAI_AGAIN;
    if (!host || inet_pton(AF_INET, host, &v4) == 1 || inet_pton(AF_INET6, host, &v6) == 1)
        return real(host, port, hints, ret);
    if (atomic_load(&resolver_fails) > 0) {
        atomic_fetch_sub(&resolver_fails, 1);
        return EAI_AGAIN;
    }
    return real(atomic_load(&resolver_address), port, hints, ret);
}

static struct coordinator *start(struct caller *k, const char *connect, int timeout_ms)
{
    struct coordinator_settings settings = {.connect = connect, .session_timeout_ms = timeout_ms};
    struct coordinator *c = NULL;
    ck_assert_int_eq(coordinator_new(&settings, &c, NULL), 0);
    caller_listen(k, c);
    return c;
}

static int64_t timed_free(struct coordinator *c, bool keep, int timeout_ms)
{
    int64_t before = clock_boot_ms();
    coordinator_free(c, keep, timeout_ms);
    return clock_boot_ms() - before;
}

static void sync_once(struct caller *k, struct coordinator *c)
{
    coordinator_sync(c, "/", caller_begin(k));
    ck_assert_int_eq(caller_end(k)->err, 0);
}

START_TEST(numeric_addresses_never_depend_on_the_resolver)
{
    struct caller k;
    caller_init(&k);
    struct coordinator *c = caller_connect(&k, zookeeper_connect(zk, ""), 4000, NULL);
    int asked = atomic_load(&resolver_asked);
    atomic_store(&resolver_broken, 1);
    atomic_store(&resolver_sleep_ms, 6000);
    int64_t id = coordinator_session_id(c);
    for (int i = 0; i < 30; i++) {
        caller_idle(&k, 100);
        sync_once(&k, c);
    }
    /* Asked once, it would have slept for longer than the session lives. */
    ck_assert_int_eq(atomic_load(&resolver_asked), asked);
    ck_assert(coordinator_session_id(c) == id);
    ck_assert_uint_eq(k.events_count, 1);
    coordinator_free(c, false, 3000);
    caller_done(&k);
}
END_TEST

START_TEST(names_are_asked_for_until_they_resolve)
{
    struct caller k;
    char connect[64];
    caller_init(&k);
    snprintf(connect, sizeof connect, "zk.test:%d", zookeeper_port(zk));
    atomic_store(&resolver_fails, 5);
    struct coordinator *c = start(&k, connect, 2000);
    caller_wait_event(&k, COORDINATOR_CONNECTED, 0);
    ck_assert_int_eq(atomic_load(&resolver_fails), 0);
    coordinator_free(c, false, 3000);
    caller_done(&k);
}
END_TEST

START_TEST(a_lost_link_comes_back_while_the_resolver_fails)
{
    struct caller k;
    char connect[64];
    struct tcp_proxy *proxy = tcp_proxy_start(zookeeper_port(zk));
    snprintf(connect, sizeof connect, "zk.test:%d", tcp_proxy_port(proxy));
    caller_init(&k);
    struct coordinator *c = caller_connect(&k, connect, 1000, NULL);
    atomic_store(&resolver_fails, 1000000);
    tcp_proxy_set(proxy, TCP_PROXY_REFUSE);
    tcp_proxy_cut(proxy);
    caller_wait_event(&k, COORDINATOR_SUSPENDED, 0);
    caller_idle(&k, 600);
    tcp_proxy_set(proxy, TCP_PROXY_PASS);
    caller_wait_event(&k, COORDINATOR_CONNECTED, 1);
    ck_assert_uint_eq(coordinator_generation(c), 1);
    coordinator_free(c, false, 3000);
    caller_done(&k);
    tcp_proxy_stop(proxy);
}
END_TEST

START_TEST(names_that_moved_are_looked_up_again)
{
    struct caller k;
    char connect[64];
    caller_init(&k);
    snprintf(connect, sizeof connect, "zk.test:%d", zookeeper_port(zk));
    atomic_store(&resolver_address, "127.0.0.77");
    struct coordinator *c = start(&k, connect, 1000);
    caller_idle(&k, 300);
    ck_assert_uint_eq(k.events_count, 0);
    atomic_store(&resolver_address, "127.0.0.1");
    caller_wait_event(&k, COORDINATOR_CONNECTED, 0);
    coordinator_free(c, false, 3000);
    caller_done(&k);
}
END_TEST

START_TEST(stopping_does_not_wait_for_the_resolver)
{
    struct caller k;
    caller_init(&k);
    atomic_store(&resolver_sleep_ms, 3000);
    struct coordinator *c = start(&k, "zk.test:1", 2000);
    coordinator_get(c, "/", caller_begin(&k));
    ck_assert_int_lt(timed_free(c, false, 2500), 1500);
    inbox_drain(&k.inbox);
    ck_assert_int_eq(k.got.err, -BROOK_E_CLOSED);
    caller_done(&k);
}
END_TEST

/* A loopback port where nobody answers: the backlog is full. */
static int black_hole(int fds[4])
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof here;
    fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(fds[0], (struct sockaddr *)&here, sizeof here), 0);
    ck_assert_int_eq(listen(fds[0], 0), 0);
    ck_assert_int_eq(getsockname(fds[0], (struct sockaddr *)&here, &bytes), 0);
    for (int i = 1; i < 4; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        connect(fds[i], (struct sockaddr *)&here, sizeof here);
    }
    return ntohs(here.sin_port);
}

START_TEST(silent_servers_do_not_cost_the_session)
{
    struct caller k;
    char connect[128];
    int holes[2][4];
    struct tcp_proxy *proxy = tcp_proxy_start(zookeeper_port(zk));
    snprintf(connect, sizeof connect, "127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d", black_hole(holes[0]),
             black_hole(holes[1]), tcp_proxy_port(proxy));
    caller_init(&k);
    struct coordinator *c = start(&k, connect, 3000);
    caller_wait_event(&k, COORDINATOR_CONNECTED, 0);
    for (int i = 0; i < 3; i++) {
        size_t from = k.events_count;
        tcp_proxy_cut(proxy);
        caller_wait_event(&k, COORDINATOR_CONNECTED, from);
    }
    /* Each time before the session was over. */
    ck_assert_uint_eq(coordinator_generation(c), 1);
    coordinator_free(c, false, 3000);
    caller_done(&k);
    tcp_proxy_stop(proxy);
}
END_TEST

START_TEST(one_living_server_among_six_is_found_from_every_place)
{
    struct tcp_proxy *proxy = tcp_proxy_start(zookeeper_port(zk));
    for (int count = 1; count <= 6; count++)
        for (int place = 0; place < count; place++) {
            struct caller k;
            char connect[256] = "";
            for (int i = 0; i < count; i++)
                snprintf(connect + strlen(connect), sizeof connect - strlen(connect), "%s127.0.0.1:%d",
                         i ? "," : "", i == place ? tcp_proxy_port(proxy) : zookeeper_free_port());
            caller_init(&k);
            struct coordinator *c = caller_connect(&k, connect, 2000, NULL);
            uint64_t accepted = tcp_proxy_accepted(proxy);
            tcp_proxy_cut(proxy);
            caller_wait_event(&k, COORDINATOR_CONNECTED, 1);
            /* Before the session was over. */
            ck_assert_uint_eq(coordinator_generation(c), 1);
            ck_assert_uint_le(tcp_proxy_accepted(proxy) - accepted, 2);
            coordinator_free(c, false, 3000);
            caller_done(&k);
        }
    tcp_proxy_stop(proxy);
}
END_TEST

START_TEST(a_server_that_hangs_up_is_not_hammered)
{
    struct caller k;
    char connect[64];
    struct tcp_proxy *proxy = tcp_proxy_start(zookeeper_port(zk));
    snprintf(connect, sizeof connect, "127.0.0.1:%d", tcp_proxy_port(proxy));
    caller_init(&k);
    tcp_proxy_set(proxy, TCP_PROXY_HANG_UP);
    struct coordinator *c = start(&k, connect, 4000);
    int64_t cpu = clock_cpu_ns(), began = clock_boot_ns();
    caller_idle(&k, 3000);
    cpu = clock_cpu_ns() - cpu;
    int64_t wall = clock_boot_ns() - began;
    ck_assert_uint_ge(tcp_proxy_accepted(proxy), 3);
    ck_assert_uint_le(tcp_proxy_accepted(proxy), 30);
    /* A thread that spins takes most of it. */
    ck_assert_msg(cpu < wall / 5, "%lld ms of CPU", (long long)cpu / 1000000);
    tcp_proxy_set(proxy, TCP_PROXY_PASS);
    caller_wait_event(&k, COORDINATOR_CONNECTED, 0);
    coordinator_free(c, false, 3000);
    caller_done(&k);
    tcp_proxy_stop(proxy);
}
END_TEST

struct lines {
    _Atomic unsigned complaints;
};

static void count_lines(void *arg, enum diag_level level, const char *subject, const char *message)
{
    if (level >= DIAG_WARN && strstr(message, "no connection for"))
        atomic_fetch_add(&((struct lines *)arg)->complaints, 1);
}

START_TEST(clients_beyond_the_servers_limit_wait_quietly_and_say_so)
{
    enum { CLIENTS = 8, ALLOWED = 5 };
    struct caller k;
    struct coordinator *c[CLIENTS];
    struct lines lines = {0};
    struct diag diag = {.level_min = DIAG_WARN, .sink = count_lines, .sink_arg = &lines};
    /* The question for readiness counts as a connection, too, for as long as it is open. */
    struct zookeeper *small = zookeeper_start(&(struct zookeeper_options){.connections_max = ALLOWED});
    struct coordinator_settings settings = {
        .connect = zookeeper_connect(small, ""), .session_timeout_ms = 1000, .diag = &diag};
    caller_init(&k);
    for (int i = 0; i < CLIENTS; i++) {
        ck_assert_int_eq(coordinator_new(&settings, &c[i], NULL), 0);
        caller_listen(&k, c[i]);
        /* The server counts those that it has taken in, so not all at once. */
        if (i < ALLOWED)
            caller_wait_event(&k, COORDINATOR_CONNECTED, k.events_count);
    }
    caller_idle(&k, 500);
    int64_t cpu = clock_cpu_ns(), began = clock_boot_ns();
    caller_idle(&k, 2000);
    cpu = clock_cpu_ns() - cpu;
    int64_t wall = clock_boot_ns() - began;
    int connected = 0;
    for (int i = 0; i < CLIENTS; i++)
        connected += coordinator_is_connected(c[i]);
    ck_assert_int_eq(connected, ALLOWED);
    ck_assert_uint_eq(atomic_load(&lines.complaints), CLIENTS - ALLOWED);
    ck_assert_msg(cpu < wall / 4, "%lld ms of CPU", (long long)cpu / 1000000);
    /* As places become free the others get in. */
    for (int i = 0; i < CLIENTS; i++)
        if (coordinator_is_connected(c[i])) {
            coordinator_free(c[i], false, 3000);
            c[i] = NULL;
        }
    caller_idle(&k, 3000);
    for (int i = 0; i < CLIENTS; i++) {
        ck_assert(!c[i] || coordinator_is_connected(c[i]));
        coordinator_free(c[i], false, 3000);
    }
    caller_done(&k);
    zookeeper_stop(small);
}
END_TEST

START_TEST(a_server_that_is_down_for_a_while_keeps_the_session)
{
    struct caller k;
    struct zookeeper *own = zookeeper_start(NULL);
    caller_init(&k);
    struct coordinator *c = caller_connect(&k, zookeeper_connect(own, ""), 20000, NULL);
    int64_t id = coordinator_session_id(c);
    zookeeper_kill(own);
    caller_wait_event(&k, COORDINATOR_SUSPENDED, 0);
    caller_idle(&k, 1500);
    zookeeper_restart(own);
    caller_wait_event(&k, COORDINATOR_CONNECTED, 1);
    ck_assert(coordinator_session_id(c) == id);
    ck_assert_uint_eq(coordinator_generation(c), 1);
    sync_once(&k, c);
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
    sync_once(&k, c);
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
                sync_once(&k, c);
                zookeeper_pause(zk);
                if (busy)
                    coordinator_set(c, "/", "x", 1, -1, caller_begin(&k));
                int64_t took = timed_free(c, keep, bounds_ms[i]);
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
        ck_assert_int_lt(timed_free(c, false, 3000), 1000);
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

START_TEST(sessions_expire_again_and_again_without_leaks)
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
    for (uint64_t i = 1; i <= 60; i++) {
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
END_TEST

START_TEST(links_are_lost_hundreds_of_times_without_leaks)
{
    struct caller k;
    struct got data = {0};
    struct fake_zookeeper *fake = fake_zookeeper_start();
    fake_zookeeper_put(fake, "/n", "x");
    caller_init(&k);
    struct coordinator *c = caller_connect(&k, fake_zookeeper_connect(fake, ""), 300, NULL);
    struct observation *o = coordinator_observe(c, OBSERVE_DATA, "/n", 0, &k.inbox, got_copy, &data);
    for (int i = 0; i < 100; i++) {
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
END_TEST

/* Writes in flight meet a cut at any moment, also within the library's sending: one reply each, and the
 * node's version lies between those that succeeded and those that may have. */
START_TEST(writes_meet_cuts_and_every_one_is_answered_once)
{
    enum { ROUNDS = 60, WRITES = 40 };
    static struct got got[WRITES];
    struct caller k;
    char connect[64];
    uint64_t seed = suite_seed();
    int done = 0, open = 0;
    struct tcp_proxy *proxy = tcp_proxy_start(zookeeper_port(zk));
    snprintf(connect, sizeof connect, "127.0.0.1:%d/cuts", tcp_proxy_port(proxy));
    caller_init(&k);
    struct coordinator *c = caller_connect(&k, connect, 2000, NULL);
    coordinator_create(c, "/n", NULL, 0, ZNODE_PERSISTENT, caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, 0);
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t cut = suite_random_below(&seed, WRITES);
        k.events_count = 0;
        memset(got, 0, sizeof got);
        for (size_t i = 0; i < WRITES; i++) {
            coordinator_set(
                c, "/n", "x", 1, -1,
                (struct coordinator_call){.inbox = &k.inbox, .callback = got_copy, .arg = &got[i]});
            if (i == cut)
                tcp_proxy_cut(proxy);
            if (suite_random_below(&seed, 4) == 0)
                caller_idle(&k, 0);
        }
        sync_once(&k, c);
        for (size_t i = 0; i < WRITES; i++) {
            ck_assert_uint_eq(got[i].count, 1);
            ck_assert_msg(got[i].err == 0 || got[i].err == -BROOK_E_OUTCOME_UNKNOWN, "%s",
                          brook_error_name(got[i].err));
            done += got[i].err == 0;
            open += got[i].err != 0;
        }
    }
    coordinator_exists(c, "/n", caller_begin(&k));
    ck_assert_int_eq(caller_end(&k)->err, 0);
    ck_assert_int_ge(k.got.stat.version, done);
    ck_assert_int_le(k.got.stat.version, done + open);
    ck_assert_uint_eq(coordinator_generation(c), 1);
    ck_assert_int_gt(open, 0);
    coordinator_free(c, false, 3000);
    caller_done(&k);
    tcp_proxy_stop(proxy);
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
        struct coordinator *c = start(&k, fake_zookeeper_connect(fake, round % 2 ? "/deep/down" : ""), 500);
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
        ck_assert_int_lt(timed_free(c, round % 5 == 0, 1000), 1300);
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

START_TEST(terminal_states_of_a_handle_are_not_ours)
{
    static const struct fake_rule rules[] = {
        {.op = FAKE_CONNECT, .apply = true, .answer = FAKE_AUTH_FAIL, .times = 2},
        {.op = FAKE_CONNECT, .apply = false, .answer = FAKE_CLOSE, .times = 10},
        {.op = FAKE_CONNECT, .apply = true, .answer = FAKE_CLOSE, .times = 8},
        {.op = FAKE_CONNECT, .apply = false, .answer = FAKE_STALL, .times = 1},
        {.op = FAKE_CONNECT, .apply = true, .answer = FAKE_EXPIRE, .times = 3},
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        struct caller k;
        struct fake_zookeeper *fake = fake_zookeeper_start();
        caller_init(&k);
        fake_zookeeper_script(fake, rules[i]);
        struct coordinator *c = start(&k, fake_zookeeper_connect(fake, ""), 1000);
        caller_wait_event(&k, COORDINATOR_CONNECTED, 0);
        caller_idle(&k, 50);
        /* And once more in mid-life. */
        fake_zookeeper_script(fake, rules[i]);
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
    struct coordinator *c = start(&k, fake_zookeeper_connect(fake, "/x/y"), 1000);
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

START_TEST(ipv6_works_in_brackets)
{
    struct caller k;
    struct zookeeper *v6 = zookeeper_start(&(struct zookeeper_options){.address = "::1"});
    caller_init(&k);
    struct coordinator *c = caller_connect(&k, zookeeper_connect(v6, "/six"), 4000, NULL);
    sync_once(&k, c);
    coordinator_free(c, false, 3000);
    caller_done(&k);
    zookeeper_stop(v6);
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
        SUITE_TEST(numeric_addresses_never_depend_on_the_resolver),
        SUITE_TEST(names_are_asked_for_until_they_resolve),
        SUITE_TEST(a_lost_link_comes_back_while_the_resolver_fails),
        SUITE_TEST(names_that_moved_are_looked_up_again),
        SUITE_TEST(stopping_does_not_wait_for_the_resolver),
        SUITE_TEST(silent_servers_do_not_cost_the_session),
        SUITE_TEST_SLOW(one_living_server_among_six_is_found_from_every_place, 60),
        SUITE_TEST(a_server_that_hangs_up_is_not_hammered),
        SUITE_TEST(clients_beyond_the_servers_limit_wait_quietly_and_say_so),
        SUITE_TEST(a_server_that_is_down_for_a_while_keeps_the_session),
        SUITE_TEST(a_hanging_server_ends_the_lease_in_time),
        SUITE_TEST(stopping_is_bounded_while_the_server_hangs),
        SUITE_TEST(stopping_closes_the_session_even_under_load),
        SUITE_TEST_SLOW(sessions_expire_again_and_again_without_leaks, 60),
        SUITE_TEST_SLOW(links_are_lost_hundreds_of_times_without_leaks, 60),
        SUITE_TEST_SLOW(writes_meet_cuts_and_every_one_is_answered_once, 60),
        SUITE_TEST_SLOW(stopping_at_any_moment_answers_all_and_leaves_nothing, 60),
        SUITE_TEST_SLOW(terminal_states_of_a_handle_are_not_ours, 60),
        SUITE_TEST(exhausted_descriptors_are_waited_for),
        SUITE_TEST(the_chroot_is_made_level_by_level),
        SUITE_TEST(a_chroot_that_exists_needs_no_rights_above_it),
        SUITE_TEST(ipv6_works_in_brackets),
        SUITE_TEST(a_late_listener_learns_the_present_state),
    };
    zk = zookeeper_start(NULL);
    int r = suite_run("coordination/session", tests, sizeof tests / sizeof tests[0]);
    zookeeper_stop(zk);
    return r;
}
