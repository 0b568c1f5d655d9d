/* Finding a server: names and resolvers, lists of servers, servers that are silent, hang up or are full. */
#include "proto/base/clock.h"
#include "proto/base/diag.h"
#include "tests/support/caller.h"
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

START_TEST(numeric_addresses_never_depend_on_the_resolver)
{
    struct caller k;
    caller_init(&k);
    struct coordinator *c = caller_connect(&k, zookeeper_connect(zk, ""), 2000, NULL);
    int asked = atomic_load(&resolver_asked);
    atomic_store(&resolver_broken, 1);
    atomic_store(&resolver_sleep_ms, 6000);
    int64_t id = coordinator_session_id(c);
    for (int i = 0; i < 15; i++) {
        caller_idle(&k, 100);
        caller_sync(&k, c);
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
    atomic_store(&resolver_fails, 3);
    struct coordinator *c = caller_start(&k, connect, 2000);
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
    struct coordinator *c = caller_start(&k, connect, 1000);
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
    struct coordinator *c = caller_start(&k, "zk.test:1", 2000);
    coordinator_get(c, "/", caller_begin(&k));
    ck_assert_int_lt(caller_free_timed(c, false, 2500), 1500);
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
    struct coordinator *c = caller_start(&k, connect, 3000);
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

/* With so many and one more. */
static void find_from_every_place(int count)
{
    struct tcp_proxy *proxy = tcp_proxy_start(zookeeper_port(zk));
    for (int place = 0; place <= count; place++) {
        struct caller k;
        char connect[256] = "";
        for (int i = 0; i <= count; i++)
            snprintf(connect + strlen(connect), sizeof connect - strlen(connect), "%s127.0.0.1:%d", i ? "," : "",
                     i == place ? tcp_proxy_port(proxy) : zookeeper_free_port());
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

START_TEST(one_living_server_among_six_is_found_from_every_place)
{
    suite_parallel(find_from_every_place, 6);
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
    struct coordinator *c = caller_start(&k, connect, 4000);
    int64_t cpu = clock_cpu_ns(), began = clock_boot_ns();
    caller_idle(&k, 1500);
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

#define CLIENTS 8
#define ALLOWED 5

struct lines {
    _Atomic unsigned complaints;
};

static void count_lines(void *arg, enum diag_level level, const char *subject, const char *message)
{
    if (level >= DIAG_WARN && strstr(message, "no connection for"))
        atomic_fetch_add(&((struct lines *)arg)->complaints, 1);
}

static bool has_complained(void *arg)
{
    return atomic_load(&((struct lines *)arg)->complaints) >= CLIENTS - ALLOWED;
}

static bool is_connected(void *arg)
{
    return coordinator_is_connected(arg);
}

START_TEST(clients_beyond_the_servers_limit_wait_quietly_and_say_so)
{
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
    ck_assert(caller_wait(&k, has_complained, &lines, CALLER_TIMEOUT_MS));
    int64_t cpu = clock_cpu_ns(), began = clock_boot_ns();
    caller_idle(&k, 1000);
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
    for (int i = 0; i < CLIENTS; i++) {
        ck_assert(!c[i] || caller_wait(&k, is_connected, c[i], CALLER_TIMEOUT_MS));
        coordinator_free(c[i], false, 3000);
    }
    caller_done(&k);
    zookeeper_stop(small);
}
END_TEST

START_TEST(ipv6_works_in_brackets)
{
    struct caller k;
    struct zookeeper *v6 = zookeeper_start(&(struct zookeeper_options){.address = "::1"});
    caller_init(&k);
    struct coordinator *c = caller_connect(&k, zookeeper_connect(v6, "/six"), 4000, NULL);
    caller_sync(&k, c);
    coordinator_free(c, false, 3000);
    caller_done(&k);
    zookeeper_stop(v6);
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
        SUITE_TEST(ipv6_works_in_brackets),
    };
    zk = zookeeper_start(NULL);
    int r = suite_run("coordination/session_servers", tests, sizeof tests / sizeof tests[0]);
    zookeeper_stop(zk);
    return r;
}
