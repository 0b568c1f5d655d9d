/* What clients see of elections: "latest" before a new leader knows how far the records are safe, and logs that an
 * unclean election has cut, read by consumers that have read more of them. */
#include "tests/cluster/replicated.h"
#include "tests/support/raw_client.h"

#include "proto/base/clock.h"
#include "proto/base/err.h"
#include "proto/wire/envelope.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- latest ------------------------------------------------------------------------------------------------- */

static void read_assignment(struct replicated *r, int32_t replicas[3], struct topic_id *ret_id)
{
    struct path path;
    struct znode_topic t;
    coordinator_get(r->zk, path_topic(&path, "t"), caller_begin(&r->caller));
    const struct got *got = caller_end(&r->caller);
    ck_assert_int_eq(got->err, 0);
    ck_assert_int_eq(znode_decode_topic(got->data, got->data_bytes, &t, NULL), 0);
    ck_assert_int_eq(t.replicas[0].count, 3);
    memcpy(replicas, t.replicas[0].brokers, 3 * sizeof replicas[0]);
    *ret_id = t.topic_id;
    znode_topic_done(&t);
}

static int port_of(struct replicated *r, int32_t id)
{
    struct path path;
    struct znode_broker b;
    coordinator_get(r->zk, path_broker_id(&path, id), caller_begin(&r->caller));
    const struct got *got = caller_end(&r->caller);
    ck_assert_int_eq(got->err, 0);
    ck_assert_int_eq(znode_decode_broker(got->data, got->data_bytes, &b, NULL), 0);
    int port = b.port;
    znode_broker_done(&b);
    return port;
}

static off_t log_size(struct replicated *r, int32_t id)
{
    char path[2 * PATH_MAX];
    struct stat st = {0};
    snprintf(path, sizeof path, "%s/00000000000000000000.log", replicated_directory(r, id, "t", 0));
    return stat(path, &st) == 0 ? st.st_size : 0;
}

struct pair {
    struct replicated *r;
    int32_t leader, follower;
    off_t before;
};

static bool has_as_much(void *arg)
{
    struct pair *p = arg;
    return log_size(p->r, p->leader) > p->before && log_size(p->r, p->follower) == log_size(p->r, p->leader);
}

/* What the leader itself says, asked once: of LATEST, or BY_TIME of a time that no record has. */
static int end_of(struct replicated *r, const struct topic_id *topic, int32_t leader, int query, int64_t *ret_offset)
{
    struct raw_client c;
    raw_open(&c, port_of(r, leader));
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__ListOffsetsRequest body = BROOK__LIST_OFFSETS_REQUEST__INIT;
    Brook__ListOffsetsPartition entry = BROOK__LIST_OFFSETS_PARTITION__INIT, *entry_p = &entry;
    request.body_case = BROOK__REQUEST__BODY_LIST_OFFSETS;
    request.list_offsets = &body;
    body.n_partitions = 1;
    body.partitions = &entry_p;
    entry.has_topic_id = entry.has_partition = entry.has_query = true;
    entry.topic_id = envelope_bytes((uint8_t *)(uintptr_t)topic->bytes, sizeof topic->bytes);
    entry.partition = 0;
    entry.query = (Brook__OffsetQuery)query;
    entry.has_timestamp = true;
    entry.timestamp = INT64_MAX;
    raw_send(&c, &request, NULL, 0);
    Brook__Response *response = raw_receive(&c);
    ck_assert_int_eq(raw_status(response), 0);
    int code = envelope_status_code(response->list_offsets->partitions[0]->status);
    *ret_offset = response->list_offsets->partitions[0]->offset;
    raw_close(&c);
    return code;
}

struct question {
    brook_config *config;
    pthread_t thread;
    int result;
    struct brook_position latest;
};

static void *ask_latest(void *arg)
{
    struct question *q = arg;
    struct brook_error error = {0};
    brook_admin *admin;
    q->latest = (struct brook_position){"t", 0, BROOK_OFFSET_LATEST};
    q->result = brook_admin_new(q->config, &admin, &error);
    if (q->result)
        return NULL;
    q->result = brook_admin_list_offsets(admin, &q->latest, NULL, 1, 30000, &error);
    brook_admin_free(admin);
    return NULL;
}

/* The follower that comes next has records that the other one, which hangs, has not: nobody can say yet that they
 * stay. */
START_TEST(latest_waits_until_a_new_leader_knows)
{
    static const char *const settings[] = {"replica.lag.time.max.ms=60000", NULL};
    const struct brokers_options options = {.session_timeout_ms = 60000, .settings = settings}; /* nobody is given up */
    struct replicated *r = replicated_begin(3, &options);
    struct topic_id topic;
    int32_t replicas[3];
    int64_t offset;
    replicated_topic(r, "t", 1, 3, NULL);
    replicated_send(r, 50);
    replicated_flush(r);
    read_assignment(r, replicas, &topic);
    ck_assert_int_eq(replicated_leader(r, "t", 0), replicas[0]);
    if (replicated_wait_controller(r, -1) == replicas[2]) { /* it has to be awake */
        ck_assert_int_eq(brokers_stop(r->b, replicas[2], 20000), 0);
        replicated_wait_controller(r, replicas[2]);
        brokers_restart(r->b, replicas[2]);
        replicated_wait_isr(r, "123");
    }
    struct pair pair = {r, replicas[0], replicas[1], log_size(r, replicas[0])};
    brokers_signal(r->b, replicas[2], SIGSTOP);
    replicated_send(r, 20);
    ck_assert(replicated_wait(r, has_as_much, &pair, REPLICATED_WAIT_MS));
    brokers_signal(r->b, replicas[0], SIGTERM);
    ck_assert_int_eq(replicated_wait_other_leader(r, "t", 0, replicas[0]), replicas[1]);
    replicated_wait_said(r, replicas[1], "leading from offset 70", 1);

    struct question q = {.config = r->config};
    ck_assert_int_eq(pthread_create(&q.thread, NULL, ask_latest, &q), 0);
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(end_of(r, &topic, replicas[1], BROOK__OFFSET_QUERY__LATEST, &offset), BROOK_E_OFFSET_NOT_AVAILABLE);
        ck_assert_int_eq(end_of(r, &topic, replicas[1], BROOK__OFFSET_QUERY__BY_TIME, &offset), BROOK_E_OFFSET_NOT_AVAILABLE);
    }
    brokers_signal(r->b, replicas[2], SIGCONT);
    pthread_join(q.thread, NULL);
    ck_assert_int_eq(q.result, 0);
    ck_assert_int_ge(q.latest.offset, 70);
    replicated_flush(r);
    ck_assert_int_eq(end_of(r, &topic, replicas[1], BROOK__OFFSET_QUERY__LATEST, &offset), 0);
    ck_assert_int_eq(offset, 70);
    ck_assert_int_eq(end_of(r, &topic, replicas[1], BROOK__OFFSET_QUERY__BY_TIME, &offset), 0);
    ck_assert_int_eq(offset, 70);
    ck_assert_int_eq(brokers_stop(r->b, replicas[0], 20000), 0);
    brokers_restart(r->b, replicas[0]);
    replicated_wait_isr(r, "123");
    replicated_check(r);
    replicated_end(r);
}
END_TEST

/* ---- unclean elections --------------------------------------------------------------------------------------- */

static brook_consumer *start_reader(struct replicated *r, const char *reset, int64_t from)
{
    struct brook_error error = {0};
    brook_consumer *consumer;
    brook_config *config = brokers_config(r->b);
    const struct brook_position at = {"t", 0, from};
    ck_assert_int_eq(brook_config_set(config, "auto.offset.reset", reset, &error), 0);
    ck_assert_msg(brook_consumer_new(config, &consumer, &error) == 0, "%s", error.text);
    ck_assert_msg(brook_consumer_assign(consumer, &at, 1, &error) == 0, "%s", error.text);
    brook_config_free(config);
    return consumer;
}

/* Poll until records come or something is said; errors that pass by themselves are waited out by the library. Returns
 * the code, with the place that was named; of records the offset behind them. `first`: what they have to begin with. */
static int poll_once(brook_consumer *c, int64_t first, int64_t *ret_offset, int64_t *ret_number)
{
    struct brook_error error = {0};
    struct brook_position place;
    struct brook_message m;
    brook_batch *batch;
    int64_t until = clock_boot_ms() + REPLICATED_WAIT_MS;
    int e;
    do
        e = brook_consumer_poll(c, 1000, &batch, &error);
    while (e == -BROOK_E_AGAIN && clock_boot_ms() < until);
    ck_assert_int_ne(e, -BROOK_E_AGAIN);
    if (e < 0) {
        brook_consumer_error_position(c, &place);
        *ret_offset = place.offset;
        return e;
    }
    while (brook_batch_next(batch, &m) == 0) {
        ck_assert_int_eq(m.offset, first++);
        ck_assert_uint_eq(m.value_bytes, sizeof *ret_number);
        memcpy(ret_number, m.value, sizeof *ret_number);
    }
    *ret_offset = first;
    brook_batch_release(batch);
    return 0;
}

/* Returns the number that the last record holds. */
static int64_t read_on(brook_consumer *c, int64_t from, int64_t end)
{
    int64_t number = -1;
    while (from < end)
        ck_assert_int_eq(poll_once(c, from, &from, &number), 0);
    ck_assert_int_eq(from, end);
    return number;
}

static void expect(brook_consumer *c, int code, int64_t offset)
{
    int64_t at = -1, number;
    ck_assert_int_eq(poll_once(c, 0, &at, &number), -code);
    ck_assert_int_eq(at, offset);
}

/* Offsets 50 to 99 were acknowledged and read, and are lost with the broker that had them; the other one, without
 * them, leads. */
static void lose_records(struct replicated *r, int32_t leader, int32_t stale)
{
    brokers_kill(r->b, leader);
    brokers_restart(r->b, stale);
    ck_assert_int_eq(replicated_wait_other_leader(r, "t", 0, leader), stale);
    memset(r->acknowledged + 50, 0, 50);
}

START_TEST(consumers_are_told_what_an_unclean_election_has_cut)
{
    struct replicated *r = replicated_begin(2, NULL);
    struct brook_error error = {0};
    char last[16];
    replicated_topic(r, "t", 1, 2, "unclean.leader.election.enable=true");
    int32_t leader = replicated_leader(r, "t", 0), stale = 3 - leader;
    snprintf(last, sizeof last, "%d", leader);
    replicated_send(r, 50);
    replicated_flush(r);
    brokers_kill(r->b, stale);
    replicated_wait_isr(r, last);
    replicated_send(r, 50);
    replicated_flush(r);
    brook_consumer *follows = start_reader(r, "latest", 0), *strict = start_reader(r, "none", 0);
    brook_consumer *rests = start_reader(r, "none", 0);
    ck_assert_int_eq(read_on(follows, 0, 100), 99);
    ck_assert_int_eq(read_on(strict, 0, 100), 99);
    ck_assert_int_eq(read_on(rests, 0, 100), 99);
    ck_assert_int_eq(brook_consumer_pause(rests, "t", 0, &error), 0);

    lose_records(r, leader, stale);
    expect(follows, BROOK_E_LOG_DIVERGED, 50);
    expect(strict, BROOK_E_LOG_DIVERGED, 50);
    /* One that never read there knows no better than that the offset is not in the log. */
    brook_consumer *above = start_reader(r, "none", 80), *resets = start_reader(r, "earliest", 80);
    expect(above, BROOK_E_OFFSET_OUT_OF_RANGE, 80);
    ck_assert_int_eq(read_on(resets, 0, 50), 49);

    replicated_send(r, 60); /* the log is longer than it was: offsets 50 to 109 */
    replicated_flush(r);
    ck_assert_int_eq(brook_consumer_resume(rests, "t", 0, &error), 0);
    expect(rests, BROOK_E_LOG_DIVERGED, 50);
    ck_assert_int_eq(read_on(follows, 50, 110), 159);
    ck_assert_int_eq(brook_consumer_seek(strict, "t", 0, 50, &error), 0);
    ck_assert_int_eq(read_on(strict, 50, 110), 159);
    ck_assert_int_eq(read_on(resets, 50, 110), 159);
    brokers_restart(r->b, leader);
    replicated_wait_isr(r, "12");
    replicated_check(r);
    brook_consumer *const all[] = {follows, strict, rests, above, resets};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        brook_consumer_close(all[i], 1000);
    replicated_end(r);
}
END_TEST

SUITE_MAIN("cluster/elections", SUITE_TEST_SLOW(consumers_are_told_what_an_unclean_election_has_cut, 90),
           SUITE_TEST_SLOW(latest_waits_until_a_new_leader_knows, 90))
