/* What a caller is told when ZooKeeper, which is to name the brokers, is in the way. */
#include "coordination/coordinator.h"
#include "coordination/paths.h"
#include "tests/support/suite.h"
#include "tests/support/zookeeper.h"

#include <arpa/inet.h>
#include <brook/brook.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CALL_MS 700
#define WAIT_MS 10000

static struct zookeeper *zk;

struct fixture {
    brook_config *config;
    brook_admin *admin;
    struct brook_error error;
};

static void open_config(struct fixture *f, const char *connect)
{
    memset(f, 0, sizeof *f);
    ck_assert_int_eq(brook_config_new(&f->config), 0);
    ck_assert_int_eq(brook_config_set(f->config, "zookeeper.connect", connect, &f->error), 0);
}

static void fixture_open(struct fixture *f, const char *connect)
{
    open_config(f, connect);
    ck_assert_msg(brook_admin_new(f->config, &f->admin, &f->error) == 0, "%s", f->error.text);
}

static void fixture_close(struct fixture *f)
{
    brook_admin_free(f->admin);
    brook_config_free(f->config);
}

/* The sentence of a call that found nobody to ask. */
static const char *describe(struct fixture *f, int timeout_ms)
{
    struct brook_cluster *cluster = NULL;
    ck_assert_int_eq(brook_admin_describe_cluster(f->admin, NULL, 0, timeout_ms, &cluster, &f->error),
                     -BROOK_E_TIMED_OUT);
    return f->error.text;
}

#define expect(sentence, part) \
    do { \
        const char *said_ = (sentence); \
        ck_assert_msg(strstr(said_, part) != NULL, "\"%s\" does not say \"%s\"", said_, part); \
    } while (0)

START_TEST(a_zookeeper_that_is_not_there_is_named_by_every_call)
{
    struct fixture f;
    char part[80], connect[40];
    struct brook_names *names = NULL;
    int port = zookeeper_free_port();
    snprintf(connect, sizeof connect, "127.0.0.1:%d", port);
    snprintf(part, sizeof part, "ZooKeeper %s does not answer", connect);
    fixture_open(&f, connect);
    expect(describe(&f, CALL_MS), part);
    ck_assert_int_lt(brook_admin_create_topic(f.admin, "t", 1, 1, NULL, 0, false, CALL_MS, &f.error), 0);
    expect(f.error.text, part);
    ck_assert_int_lt(brook_admin_list_groups(f.admin, CALL_MS, &names, &f.error), 0);
    expect(f.error.text, part);
    fixture_close(&f);
}
END_TEST

START_TEST(a_zookeeper_that_accepts_and_stays_silent_is_named)
{
    struct fixture f;
    char part[80], connect[40];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(listen(fd, 16), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
    snprintf(connect, sizeof connect, "127.0.0.1:%d", ntohs(address.sin_port));
    snprintf(part, sizeof part, "ZooKeeper %s does not answer", connect);
    fixture_open(&f, connect);
    expect(describe(&f, CALL_MS), part);
    fixture_close(&f);
    close(fd);
}
END_TEST

START_TEST(a_name_that_the_resolver_does_not_know_is_named)
{
    struct fixture f;
    fixture_open(&f, "nosuch.host.invalid:2181");
    expect(describe(&f, 2000), "nosuch.host.invalid");
    fixture_close(&f);
}
END_TEST

START_TEST(a_chroot_without_brokers_is_named)
{
    struct fixture f;
    char part[120];
    const char *connect = zookeeper_connect(zk, "/nochroot");
    snprintf(part, sizeof part, "no broker is registered in %s", connect);
    fixture_open(&f, connect);
    expect(describe(&f, 1500), part);
    fixture_close(&f);
}
END_TEST

static void on_made(void *arg, const struct coordinator_reply *reply)
{
    ck_assert_int_eq(reply->err, 0);
    *(bool *)arg = true;
}

/* A broker that is registered, but does not listen. */
static void register_broker(const char *connect, int port)
{
    struct inbox inbox;
    struct coordinator *c;
    struct coordinator_settings settings = {.connect = connect, .session_timeout_ms = 4000};
    struct path path;
    char data[300];
    bool is_made = false;
    snprintf(data, sizeof data,
             "{\"version\":1,\"host\":\"127.0.0.1\",\"port\":%d,\"incarnation\":\"a\",\"features\":[]}", port);
    ck_assert_int_eq(inbox_init(&inbox), 0);
    ck_assert_int_eq(coordinator_new(&settings, &c, NULL), 0);
    coordinator_create_path(c, path_broker_id(&path, 1), data, strlen(data),
                            (struct coordinator_call){.inbox = &inbox, .callback = on_made, .arg = &is_made});
    while (!is_made) {
        struct pollfd ready = {.fd = inbox_fd(&inbox), .events = POLLIN};
        poll(&ready, 1, WAIT_MS);
        inbox_drain(&inbox);
    }
    coordinator_free(c, false, WAIT_MS);
    inbox_drain(&inbox);
    inbox_done(&inbox);
}

START_TEST(a_broker_that_zookeeper_names_is_blamed_itself)
{
    struct fixture f;
    char part[80], connect[80];
    int port = zookeeper_free_port();
    snprintf(connect, sizeof connect, "%s", zookeeper_connect(zk, "/deaf"));
    register_broker(connect, port);
    snprintf(part, sizeof part, "127.0.0.1:%d", port);
    fixture_open(&f, connect);
    expect(describe(&f, 1500), part);
    ck_assert_ptr_null(strstr(f.error.text, "ZooKeeper"));
    fixture_close(&f);
}
END_TEST

START_TEST(a_zookeeper_that_dies_is_named)
{
    struct fixture f;
    struct zookeeper *own = zookeeper_start(NULL);
    char connect[80], part[120];
    snprintf(connect, sizeof connect, "%s", zookeeper_connect(own, ""));
    fixture_open(&f, connect);
    expect(describe(&f, 1500), "no broker is registered");
    zookeeper_kill(own);
    snprintf(part, sizeof part, "ZooKeeper %s does not answer", connect);
    expect(describe(&f, 1500), part);
    fixture_close(&f);
    zookeeper_stop(own);
}
END_TEST

START_TEST(a_bad_connect_string_is_refused_at_once)
{
    static const char *const bad[] = {"garbage", "127.0.0.1", "127.0.0.1:2181,other", "a:x", "a:1,"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct fixture f;
        brook_producer *producer;
        brook_consumer *consumer;
        open_config(&f, bad[i]);
        ck_assert_int_eq(brook_admin_new(f.config, &f.admin, &f.error), -BROOK_E_CONFIG);
        expect(f.error.text, "zookeeper.connect: ");
        expect(f.error.text, "is not host:port");
        ck_assert_int_eq(brook_producer_new(f.config, &producer, &f.error), -BROOK_E_CONFIG);
        ck_assert_int_eq(brook_consumer_new(f.config, &consumer, &f.error), -BROOK_E_CONFIG);
        brook_config_free(f.config);
    }
}
END_TEST

int main(void)
{
    const struct suite_test tests[] = {
        SUITE_TEST(a_zookeeper_that_is_not_there_is_named_by_every_call),
        SUITE_TEST(a_zookeeper_that_accepts_and_stays_silent_is_named),
        SUITE_TEST(a_name_that_the_resolver_does_not_know_is_named),
        SUITE_TEST(a_chroot_without_brokers_is_named),
        SUITE_TEST(a_broker_that_zookeeper_names_is_blamed_itself),
        SUITE_TEST_SLOW(a_zookeeper_that_dies_is_named, 60),
        SUITE_TEST(a_bad_connect_string_is_refused_at_once),
    };
    zk = zookeeper_start(NULL);
    int r = suite_run("client/zookeeper", tests, sizeof tests / sizeof tests[0]);
    zookeeper_stop(zk);
    return r;
}
