/* Controllers and leaders that wake at the worst moment, writes whose outcome nobody knows, and a ZooKeeper that is away:
 * nothing changes that may not, and nothing stops that need not. */
#include "tests/cluster/replicated.h"

#include "proto/base/clock.h"
#include "proto/wire/envelope.h"
#include "tests/support/raw_client.h"
#include "tests/support/tcp_proxy.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- a leader that slept -------------------------------------------------------------------------------- */

struct described {
    int port;
    struct topic_id topic_id;
};

static struct described describe(struct replicated *r, int32_t broker)
{
    struct brook_error error = {0};
    struct brook_cluster *cluster;
    struct described d = {0};
    const char *topic = "t";
    ck_assert_msg(brook_admin_describe_cluster(r->admin, &topic, 1, 10000, &cluster, &error) == 0, "%s", error.text);
    for (size_t i = 0; i < cluster->brokers_count; i++)
        if (cluster->brokers[i].id == broker)
            d.port = cluster->brokers[i].port;
    ck_assert_int_eq(topic_id_parse(cluster->topics[0].topic_id, &d.topic_id), 0);
    brook_cluster_free(cluster);
    ck_assert_int_gt(d.port, 0);
    return d;
}

static int produced(struct raw_client *c)
{
    const Brook__Response *response = raw_receive(c);
    ck_assert_ptr_nonnull(response);
    int code = raw_status(response);
    return code ? code : envelope_status_code(response->produce->partitions[0]->status);
}

static bool is_stopped(void *arg)
{
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)*(const pid_t *)arg);
    FILE *f = fopen(path, "re");
    bool is_read = f && fgets(text, sizeof text, f);
    if (f)
        fclose(f);
    const char *state = strrchr(text, ')');
    return is_read && state && state[1] == ' ' && state[2] == 'T';
}

/* When this returns it does nothing any more. */
static void put_to_sleep(struct replicated *r, int32_t broker)
{
    pid_t pid = brokers_pid(r->b, broker);
    brokers_signal(r->b, broker, SIGSTOP);
    ck_assert(replicated_wait(r, is_stopped, &pid, REPLICATED_WAIT_MS));
}

START_TEST(a_leader_that_slept_through_its_deposition_acknowledges_nothing)
{
    struct replicated *r = replicated_begin(3, NULL);
    uint8_t batch[2000];
    struct raw_client queued;
    replicated_topic(r, "t", 2, 3, NULL);
    replicated_send(r, 2000);
    replicated_flush(r);
    int32_t leader = replicated_leader(r, "t", 0);
    struct described d = describe(r, leader);
    size_t bytes = raw_batch(batch, sizeof batch, 1, 100);
    raw_open(&queued, d.port);
    replicated_send(r, 500);
    put_to_sleep(r, leader);
    for (int i = 0; i < 20; i++) /* in its socket when it wakes */
        raw_send_produce(&queued, &d.topic_id, 0, BROOK__ACKS__ACKS_ALL, batch, bytes);
    replicated_wait_other_leader(r, "t", 0, leader);
    replicated_send(r, 2000);
    replicated_flush(r); /* with the two others */
    brokers_signal(r->b, leader, SIGCONT);
    for (int i = 0; i < 20; i++)
        ck_assert_int_ne(produced(&queued), 0);
    raw_close(&queued);
    replicated_wait_isr(r, "123");
    replicated_check(r);
    replicated_end(r);
}
END_TEST

/* ---- a controller that slept ---------------------------------------------------------------------------- */

static void put(struct replicated *r, const char *path, const char *text)
{
    coordinator_create(r->zk, path, text, strlen(text), ZNODE_PERSISTENT, caller_begin(&r->caller));
    ck_assert_int_eq(caller_end(&r->caller)->err, 0);
}

/* A topic as somebody writes it by hand: making it is the controller's, in several writes. */
static void put_topic(struct replicated *r, const char *name, int partitions)
{
    char text[8192], path[64];
    struct topic_id id;
    char id_text[TOPIC_ID_TEXT_BYTES];
    topic_id_random(&id);
    topic_id_format(&id, id_text);
    size_t at = (size_t)snprintf(text, sizeof text, "{\"version\":3,\"topic_id\":\"%s\",\"partitions\":{", id_text);
    for (int p = 0; p < partitions; p++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s\"%d\":[%d,%d,%d]", p ? "," : "", p, 1 + p % 3,
                               1 + (p + 1) % 3, 1 + (p + 2) % 3);
    snprintf(text + at, sizeof text - at, "}}");
    snprintf(path, sizeof path, "/brokers/topics/%s", name);
    put(r, path, text);
}

struct made {
    struct replicated *r;
    const char *topic;
    int partitions;
};

static bool is_made(void *arg)
{
    struct made *m = arg;
    for (int p = 0; p < m->partitions; p++) {
        struct znode_state state;
        if (!replicated_state(m->r, m->topic, p, &state, NULL) || state.leader < 0 || state.isr_count != 3)
            return false;
    }
    return true;
}

static void wait_made(struct replicated *r, const char *topic, int partitions)
{
    struct made m = {r, topic, partitions};
    ck_assert_msg(replicated_wait(r, is_made, &m, REPLICATED_WAIT_MS), "%s has no leaders", topic);
}

static int64_t controller_epoch(struct replicated *r)
{
    coordinator_get(r->zk, PATH_CONTROLLER_EPOCH, caller_begin(&r->caller));
    const struct got *got = caller_end(&r->caller);
    ck_assert_int_eq(got->err, 0);
    return got->stat.version;
}

START_TEST(a_controller_that_slept_through_its_term_writes_nothing_more)
{
    struct replicated *r = replicated_begin(3, NULL);
    uint64_t seed = suite_seed();
    char name[16];
    replicated_topic(r, "t", 3, 3, NULL);
    for (int round = 0; round < 2; round++) {
        int32_t old = replicated_wait_controller(r, -1);
        int resigned = replicated_count_said(r, old, "not the controller any more");
        snprintf(name, sizeof name, "h%d", round);
        put_topic(r, name, 90);
        usleep((useconds_t)suite_random_below(&seed, 40000)); /* somewhere between its writes */
        put_to_sleep(r, old);
        replicated_send(r, 100);
        replicated_wait_controller(r, old);
        replicated_wait_other_leader(r, "t", 0, old);
        int64_t epoch = controller_epoch(r);
        brokers_signal(r->b, old, SIGCONT);
        replicated_wait_said(r, old, "not the controller any more", resigned + 1);
        replicated_wait_isr(r, "123");
        wait_made(r, name, 90);
        ck_assert_int_eq(controller_epoch(r), epoch);
        replicated_flush(r);
    }
    replicated_check(r);
    replicated_end(r);
}
END_TEST

/* ---- versions and outcomes ------------------------------------------------------------------------------ */

/* The node gets a new version and says what it said. */
static void rewrite_state(struct replicated *r, int32_t partition)
{
    struct path path;
    char text[4096];
    path_partition_state(&path, "t", partition);
    coordinator_get(r->zk, path.text, caller_begin(&r->caller));
    const struct got *got = caller_end(&r->caller);
    ck_assert_int_eq(got->err, 0);
    snprintf(text, sizeof text, "%s", got->data);
    coordinator_set(r->zk, path.text, text, strlen(text), -1, caller_begin(&r->caller));
    ck_assert_int_eq(caller_end(&r->caller)->err, 0);
}

START_TEST(a_state_rewritten_behind_its_leaders_back_is_read_again)
{
    struct replicated *r = replicated_begin(3, NULL);
    char others[32];
    replicated_topic(r, "t", 1, 3, NULL);
    int32_t leader = replicated_leader(r, "t", 0), dead = leader % 3 + 1;
    snprintf(others, sizeof others, "%d%d", leader, 6 - leader - dead);
    for (int i = 0; i < 3; i++)
        rewrite_state(r, 0);
    /* Stopped, it stays registered: only its leader can take it out. */
    put_to_sleep(r, dead);
    replicated_send(r, 100);
    replicated_wait_isr(r, others);
    replicated_flush(r);
    brokers_signal(r->b, dead, SIGCONT);
    rewrite_state(r, 0);
    replicated_wait_isr(r, "123");
    replicated_check(r);
    replicated_end(r);
}
END_TEST

static struct tcp_proxy *proxies[4];

static void through_proxy(void *arg, const struct zookeeper *zookeeper, int id, struct brokers_place *place)
{
    (void)arg;
    if (!proxies[id])
        proxies[id] = tcp_proxy_start(zookeeper_port(zookeeper));
    snprintf(place->zookeeper, sizeof place->zookeeper, "127.0.0.1:%d/brook", tcp_proxy_port(proxies[id]));
}

struct version {
    struct replicated *r;
    int32_t than;
};

static bool has_newer_version(void *arg)
{
    struct version *v = arg;
    struct znode_state state;
    int32_t version;
    return replicated_state(v->r, "t", 0, &state, &version) && version > v->than;
}

START_TEST(an_isr_change_whose_answer_is_lost_is_found_out_about)
{
    const struct brokers_options options = {.place = through_proxy, .session_timeout_ms = 8000};
    struct replicated *r = replicated_begin(3, &options);
    struct znode_state before, after;
    struct version v = {.r = r};
    char others[32];
    replicated_topic(r, "t", 1, 3, NULL);
    replicated_send(r, 10);
    replicated_flush(r);
    ck_assert(replicated_state(r, "t", 0, &before, &v.than));
    int32_t leader = before.leader, slow = leader % 3 + 1;
    snprintf(others, sizeof others, "%d%d", leader, 6 - leader - slow);
    tcp_proxy_set(proxies[leader], TCP_PROXY_SWALLOW_DOWN);
    put_to_sleep(r, slow);
    replicated_send(r, 10);
    ck_assert(replicated_wait(r, has_newer_version, &v, REPLICATED_WAIT_MS)); /* applied; its leader does not know */
    brokers_signal(r->b, slow, SIGCONT); /* and goes on pulling, at the same leader */
    tcp_proxy_set(proxies[leader], TCP_PROXY_PASS);
    tcp_proxy_cut(proxies[leader]);
    replicated_wait_isr(r, "123");
    replicated_flush(r);
    ck_assert(replicated_state(r, "t", 0, &after, NULL));
    ck_assert_int_eq(after.leader, leader);
    ck_assert_int_eq(after.leader_epoch, before.leader_epoch); /* its session lived: nobody was elected */
    replicated_check(r);
    replicated_end(r);
    for (int id = 1; id <= 3; id++)
        tcp_proxy_stop(proxies[id]);
}
END_TEST

/* ---- ZooKeeper is away ---------------------------------------------------------------------------------- */

static int outage_ms(void)
{
    const char *longer = getenv("BROOK_OUTAGE_S");
    return longer ? atoi(longer) * 1000 : 10000;
}

static int64_t consume(brook_consumer *consumer, int timeout_ms)
{
    struct brook_error error = {0};
    brook_batch *batch;
    struct brook_message m;
    int64_t count = 0;
    int e = brook_consumer_poll(consumer, timeout_ms, &batch, &error);
    ck_assert_msg(e == 0 || e == -BROOK_E_AGAIN, "%s", error.text);
    if (e)
        return 0;
    while (brook_batch_next(batch, &m) == 0)
        count++;
    brook_batch_release(batch);
    return count;
}

static void count_stored(void *arg, const struct brook_report *report)
{
    ck_assert_msg(report->outcome == BROOK_STORED, "%s", report->error.text);
    ++*(int *)arg;
}

/* With nothing set, and knowing one broker. */
static void produce_anew(int port)
{
    struct brook_error error = {0};
    brook_config *config;
    brook_producer *producer;
    char servers[32];
    int stored = 0;
    snprintf(servers, sizeof servers, "127.0.0.1:%d", port);
    ck_assert_int_eq(brook_config_new(&config), 0);
    ck_assert_int_eq(brook_config_set(config, "bootstrap.servers", servers, &error), 0);
    ck_assert_msg(brook_producer_new(config, &producer, &error) == 0, "%s", error.text);
    brook_producer_on_report(producer, count_stored, &stored);
    for (int p = 0; p < 3; p++) {
        struct brook_record record = {.topic = "young", .partition = p, .value = "v", .value_bytes = 1};
        ck_assert_msg(brook_producer_send(producer, &record, BROOK_SEND_WAIT, &error) == 0, "%s", error.text);
    }
    ck_assert_int_eq(brook_producer_flush(producer, 10000), 0);
    ck_assert_int_eq(stored, 3);
    brook_producer_close(producer, 1000);
    brook_config_free(config);
}

static int64_t producer_id_of(int port)
{
    struct raw_client client;
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__InitProducerRequest init = BROOK__INIT_PRODUCER_REQUEST__INIT;
    request.body_case = BROOK__REQUEST__BODY_INIT_PRODUCER;
    request.init_producer = &init;
    raw_open(&client, port);
    const Brook__Response *response = raw_ask(&client, &request, NULL, 0);
    ck_assert_ptr_nonnull(response);
    ck_assert_int_eq(raw_status(response), 0);
    int64_t id = response->init_producer->producer_id;
    raw_close(&client);
    return id;
}

/* Each broker has a block of its own, and lives on it. */
static void begin_to_produce(const int *ports)
{
    int64_t ids[3];
    for (int i = 0; i < 3; i++) {
        ids[i] = producer_id_of(ports[i]);
        ck_assert_int_ge(ids[i], 0);
        for (int other = 0; other < i; other++)
            ck_assert_int_ne(ids[i] / 1000, ids[other] / 1000);
        produce_anew(ports[i]);
    }
}

/* Of the block that was taken last; -1: none was. */
static int64_t last_producer_id(struct replicated *r)
{
    int64_t last;
    coordinator_get(r->zk, PATH_PRODUCER_ID_BLOCK, caller_begin(&r->caller));
    const struct got *got = caller_end(&r->caller);
    if (got->err == -BROOK_E_NO_NODE)
        return -1;
    ck_assert_int_eq(got->err, 0);
    ck_assert_int_eq(znode_decode_producer_block(got->data, strlen(got->data), &last, NULL), 0);
    return last;
}

static bool have_blocks(void *arg)
{
    return last_producer_id(arg) >= 2999;
}

START_TEST(records_flow_on_while_zookeeper_is_away)
{
    struct replicated *r = replicated_begin(3, NULL);
    struct brook_error error = {0};
    brook_consumer *consumer;
    struct brook_position at[3];
    struct znode_state before[3], after;
    int64_t read = 0;
    int ports[3];
    replicated_topic(r, "t", 3, 3, "min.insync.replicas=2");
    replicated_topic(r, "young", 3, 3, "min.insync.replicas=2");
    for (int32_t p = 0; p < 3; p++) {
        ports[p] = describe(r, p + 1).port;
        ck_assert(replicated_state(r, "t", p, &before[p], NULL));
        at[p] = (struct brook_position){"t", p, BROOK_OFFSET_EARLIEST};
    }
    ck_assert(replicated_wait(r, have_blocks, r, REPLICATED_WAIT_MS));
    ck_assert_int_eq(brook_consumer_new(r->config, &consumer, &error), 0);
    ck_assert_int_eq(brook_consumer_assign(consumer, at, 3, &error), 0);
    replicated_send(r, 300);
    replicated_flush(r);
    while (read < 300)
        read += consume(consumer, 5000);
    zookeeper_kill(brokers_zookeeper(r->b));
    begin_to_produce(ports);
    int64_t until = clock_boot_ms() + outage_ms();
    int rounds = 0;
    for (; clock_boot_ms() < until; rounds++) {
        replicated_send(r, 30);
        replicated_flush(r);
        while (read < r->sent)
            read += consume(consumer, 5000);
        usleep(20000);
    }
    ck_assert_int_gt(rounds, 10);
    for (int id = 1; id <= 3; id++) {
        ck_assert_int_ge(replicated_count_said(r, id, "not ready: the connection to ZooKeeper is lost"), 1);
        ck_assert_int_eq(replicated_count_said(r, id, "stopped leading"), 0);
    }
    zookeeper_restart(brokers_zookeeper(r->b));
    for (int id = 1; id <= 3; id++)
        replicated_wait_said(r, id, "ready again", 1);
    replicated_wait_isr(r, "123");
    replicated_topic(r, "more", 3, 3, NULL);
    replicated_send(r, 300);
    replicated_flush(r);
    while (read < r->sent)
        read += consume(consumer, 5000);
    for (int32_t p = 0; p < 3; p++) {
        ck_assert(replicated_state(r, "t", p, &after, NULL));
        ck_assert_int_ge(after.leader_epoch, before[p].leader_epoch);
    }
    ck_assert_int_eq(last_producer_id(r), 2999); /* nobody took another block with the new registration */
    brook_consumer_close(consumer, 1000);
    replicated_check(r);
    replicated_end(r);
}
END_TEST

SUITE_MAIN("cluster/awake", SUITE_TEST_SLOW(a_leader_that_slept_through_its_deposition_acknowledges_nothing, 60),
           SUITE_TEST_SLOW(a_controller_that_slept_through_its_term_writes_nothing_more, 120),
           SUITE_TEST_SLOW(a_state_rewritten_behind_its_leaders_back_is_read_again, 60),
           SUITE_TEST_SLOW(an_isr_change_whose_answer_is_lost_is_found_out_about, 60),
           SUITE_TEST_SLOW(records_flow_on_while_zookeeper_is_away, 120))
