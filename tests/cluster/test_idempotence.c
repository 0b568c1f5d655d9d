/* Idempotent producers with real brokers: answers that are lost behind the append, brokers that are killed, producers that
 * the brokers have forgotten, and numbers that wrap. */
#include "broker/storage/producer_snapshot.h"
#include "client/producer_parts.h"
#include "tests/support/brokers.h"
#include "tests/support/suite.h"
#include "tests/support/tcp_proxy.h"

#include <arpa/inet.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BROKERS 3
#define PARTITIONS 4
#define RECORDS_MAX 400000

/* A broker is reached through a proxy of its own. */
static struct tcp_proxy *proxies[BROKERS + 1];

static int free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
    close(fd);
    return ntohs(at.sin_port);
}

static void place(void *arg, const struct zookeeper *zookeeper, int id, struct brokers_place *p)
{
    int port = free_port();
    if (!proxies[id])
        proxies[id] = tcp_proxy_start(port);
    tcp_proxy_retarget(proxies[id], port);
    snprintf(p->listeners, sizeof p->listeners, "127.0.0.1:%d", port);
    snprintf(p->advertised, sizeof p->advertised, "127.0.0.1:%d", tcp_proxy_port(proxies[id]));
}

/* ---- a producer in a thread of its own -------------------------------------------------------------------- */

struct run {
    brook_producer *producer;
    atomic_int sent;
    atomic_bool stop;
    int stored, others;
    int64_t offsets[RECORDS_MAX];
    char last_text[256];
};

static void on_report(void *arg, const struct brook_report *report)
{
    struct run *run = arg;
    if (report->outcome == BROOK_STORED)
        run->stored++;
    else
        run->others++, snprintf(run->last_text, sizeof run->last_text, "%s", report->error.text);
    run->offsets[(uintptr_t)report->opaque - 1] = report->outcome == BROOK_STORED ? report->offset : -2;
}

static void send_number(struct run *run, const char *topic, int32_t partitions)
{
    char text[16];
    int number = atomic_load(&run->sent);
    struct brook_error error;
    struct brook_record r = {.topic = topic, .partition = number % partitions, .value = text};
    r.value_bytes = (size_t)snprintf(text, sizeof text, "%d", number);
    r.opaque = (void *)(uintptr_t)(number + 1);
    ck_assert_msg(brook_producer_send(run->producer, &r, BROOK_SEND_WAIT, &error) == 0, "%s", error.text);
    atomic_store(&run->sent, number + 1);
}

static void *produce(void *arg)
{
    struct run *run = arg;
    while (!atomic_load(&run->stop) && atomic_load(&run->sent) < RECORDS_MAX) {
        send_number(run, "t", PARTITIONS);
        if (atomic_load(&run->sent) % 20 == 0)
            brook_producer_poll(run->producer, 1);
    }
    return NULL;
}

static struct run *run_new(struct brokers *b, const char *batch_size)
{
    struct run *run = calloc(1, sizeof *run);
    struct brook_error error;
    brook_config *config = brokers_config(b);
    brook_config_set(config, "batch.size", batch_size, NULL);
    brook_config_set(config, "linger.ms", "1", NULL);
    brook_config_set(config, "retry.backoff.ms", "10", NULL);
    ck_assert_msg(brook_producer_new(config, &run->producer, &error) == 0, "%s", error.text);
    brook_producer_on_report(run->producer, on_report, run);
    brook_config_free(config);
    return run;
}

static void run_end(struct run *run)
{
    ck_assert_int_eq(brook_producer_flush(run->producer, 60000), 0);
    ck_assert_msg(run->others == 0, "%d records failed: %s", run->others, run->last_text);
    ck_assert_int_eq(run->stored, atomic_load(&run->sent));
    brook_producer_close(run->producer, 1000);
}

/* ---- the log ---------------------------------------------------------------------------------------------- */

/* Each number that is this partition's once, in order, at the offset that was reported. Returns how many. */
static int check_partition(struct brokers *b, const char *topic, int32_t partition, int32_t partitions, int sent,
                           const struct run *run)
{
    brook_consumer *consumer;
    brook_batch *batch;
    struct brook_message m;
    struct brook_error error;
    brook_config *config = brokers_config(b);
    struct brook_position at = {topic, partition, 0};
    int count = 0, expected = partition;
    brook_config_set(config, "auto.offset.reset", "earliest", NULL);
    ck_assert_int_eq(brook_consumer_new(config, &consumer, &error), 0);
    ck_assert_int_eq(brook_consumer_assign(consumer, &at, 1, &error), 0);
    while (expected < sent) {
        int r = brook_consumer_poll(consumer, 30000, &batch, &error);
        ck_assert_msg(r == 0, "%s/%d: %d is missing: %s", topic, partition, expected, error.text);
        while (brook_batch_next(batch, &m) == 0) {
            char text[16];
            snprintf(text, sizeof text, "%.*s", (int)m.value_bytes, (const char *)m.value);
            ck_assert_msg(atoi(text) == expected, "%s/%d at %lld: %s, not %d", topic, partition,
                          (long long)m.offset, text, expected);
            if (run->offsets[expected] >= 0)
                ck_assert_int_eq(run->offsets[expected], m.offset);
            expected += partitions;
            count++;
        }
        brook_batch_release(batch);
    }
    /* And nothing behind them. */
    ck_assert_int_eq(brook_consumer_poll(consumer, 200, &batch, &error), -BROOK_E_AGAIN);
    brook_consumer_close(consumer, 1000);
    brook_config_free(config);
    return count;
}

static void check_all(struct brokers *b, const struct run *run)
{
    int count = 0, sent = run->sent;
    for (int32_t p = 0; p < PARTITIONS; p++)
        count += check_partition(b, "t", p, PARTITIONS, sent, run);
    ck_assert_int_eq(count, sent);
}

/* ---- faults ----------------------------------------------------------------------------------------------- */

struct progress {
    struct run *run;
    struct tcp_proxy *proxy;
    uint64_t bytes;
    int sent;
};

static bool has_arrived(void *arg)
{
    const struct progress *p = arg;
    return tcp_proxy_bytes(p->proxy, TCP_PROXY_UP) > p->bytes;
}

static bool has_sent(void *arg)
{
    const struct progress *p = arg;
    return atomic_load(&p->run->sent) >= p->sent;
}

/* What the broker answers is thrown away until more requests have come in; then the connections are cut. */
static void lose_answers(struct run *run, int id)
{
    struct progress p = {.run = run, .proxy = proxies[id]};
    tcp_proxy_set(p.proxy, TCP_PROXY_SWALLOW_DOWN);
    for (int i = 0; i < 3; i++) {
        p.bytes = tcp_proxy_bytes(p.proxy, TCP_PROXY_UP);
        suite_wait(has_arrived, &p, 300);
    }
    tcp_proxy_cut(p.proxy);
    tcp_proxy_set(p.proxy, TCP_PROXY_PASS);
}

static void wait_for_more(struct run *run, int records)
{
    struct progress p = {.run = run, .sent = atomic_load(&run->sent) + records};
    suite_wait(has_sent, &p, 5000);
}

static void torment(struct brokers *b, struct run *run, int rounds)
{
    uint64_t dice = suite_seed();
    for (int round = 0; round < rounds; round++) {
        int id = 1 + (int)suite_random_below(&dice, BROKERS);
        lose_answers(run, id);
        if (round % 4 == 3) {
            brokers_kill(b, id);
            brokers_restart(b, id);
            ck_assert(brokers_wait_registered(b, BROKERS, 30000));
        }
        wait_for_more(run, 200);
    }
}

static void lost_answers_and_kills(int replicas)
{
    static const char *const replicated[] = {"min.insync.replicas=2", "default.replication.factor=3", NULL};
    struct brokers_options options = {.place = place, .settings = replicas > 1 ? replicated : NULL};
    struct brokers *b = brokers_start(BROKERS, &options);
    struct brook_error error = {0};
    brook_config *config = brokers_config(b);
    brook_admin *admin;
    pthread_t thread;
    ck_assert_int_eq(brook_admin_new(config, &admin, &error), 0);
    ck_assert_msg(brook_admin_create_topic(admin, "t", PARTITIONS, replicas, NULL, 0, false, 20000, &error) == 0, "%s",
                  error.text);
    struct run *run = run_new(b, "200");
    ck_assert_int_eq(pthread_create(&thread, NULL, produce, run), 0);
    torment(b, run, suite_is_quick() ? 4 : 16);
    atomic_store(&run->stop, true);
    pthread_join(thread, NULL);
    run_end(run);
    check_all(b, run);
    ck_assert_int_gt(atomic_load(&run->sent), 1000);
    brook_admin_free(admin);
    brook_config_free(config);
    brokers_free(b);
    free(run);
}

START_TEST(lost_answers_and_killed_brokers_leave_each_record_once_and_in_order)
{
    lost_answers_and_kills(1);
}
END_TEST

START_TEST(so_do_leaders_that_change)
{
    lost_answers_and_kills(3);
}
END_TEST

/* ---- forgotten producers ---------------------------------------------------------------------------------- */

struct log_start {
    brook_admin *admin;
    int64_t wanted;
};

static bool is_removed(void *arg)
{
    const struct log_start *s = arg;
    struct brook_position at = {"short", 0, BROOK_OFFSET_EARLIEST};
    return brook_admin_list_offsets(s->admin, &at, NULL, 1, 5000, NULL) == 0 && at.offset >= s->wanted;
}

/* PC-02: retention takes the last record, and the producer's state goes with the time. */
START_TEST(producer_goes_on_after_its_records_and_its_state_are_gone)
{
    static const char *const settings[] = {"log.retention.ms=200", "log.retention.check.interval.ms=50",
                                           "producer.id.expiration.ms=300", NULL};
    struct brokers_options options = {.settings = settings};
    struct brokers *b = brokers_start(1, &options);
    struct brook_error error = {0};
    brook_config *config = brokers_config(b);
    struct log_start start = {0};
    ck_assert_int_eq(brook_admin_new(config, &start.admin, &error), 0);
    brokers_create_topic(b, "short", 1);
    struct run *run = run_new(b, "1000");
    for (int round = 1; round <= 3; round++) {
        for (int i = 0; i < 10; i++)
            send_number(run, "short", 1);
        ck_assert_int_eq(brook_producer_flush(run->producer, 20000), 0);
        ck_assert_msg(run->others == 0, "%s", run->last_text);
        start.wanted = run->sent;
        ck_assert(suite_wait(is_removed, &start, 20000));
        usleep(400000); /* the producer's silence is what is tested */
    }
    ck_assert_int_eq(run->producer->topics->partitions[0]->producer_epoch > 0, true);
    run_end(run);
    brook_admin_free(start.admin);
    brook_config_free(config);
    brokers_free(b);
    free(run);
}
END_TEST

/* ---- the largest number ----------------------------------------------------------------------------------- */

#define WRAP_IDS 4000
#define WRAP_FIRST (INT32_MAX - 2)

/* As if every producer had come to WRAP_FIRST there: a snapshot in the place of the one that the clean stop left. */
static void write_snapshot(const struct brokers *b)
{
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/t-0/%020d.snapshot", brokers_data_directory(b, 1), 1);
    ck_assert_int_eq(access(path, F_OK), 0);
    size_t bytes = producer_snapshot_bytes(WRAP_IDS);
    void *data = calloc(1, bytes);
    for (int i = 0; i < WRAP_IDS; i++) {
        struct producer_snapshot_entry e = {.producer_id = i,
                                            .last_sequence = WRAP_FIRST - 1,
                                            .timestamp = INT64_MAX,
                                            .coordinator_epoch = -1,
                                            .transaction_first_offset = -1};
        producer_snapshot_write(data, (size_t)i, &e);
    }
    producer_snapshot_finish(data, WRAP_IDS);
    FILE *f = fopen(path, "we");
    ck_assert_uint_eq(fwrite(data, 1, bytes, f), bytes);
    ck_assert_int_eq(fclose(f), 0);
    free(data);
}

/* PC-03, with restarts of the broker in the middle. */
START_TEST(sequence_wraps_while_the_broker_restarts)
{
    struct brokers *b = brokers_start(1, NULL);
    brokers_create_topic(b, "t", 1);
    struct run *first = run_new(b, "1");
    send_number(first, "t", 1);
    run_end(first);
    ck_assert_int_eq(brokers_stop(b, 1, 20000), 0);
    write_snapshot(b);
    brokers_restart(b, 1);
    ck_assert(brokers_wait_registered(b, 1, 20000));
    struct run *run = run_new(b, "1");
    run->producer->first_sequence = WRAP_FIRST;
    run->sent = 1;
    run->stored = 1; /* the first run's */
    run->offsets[0] = 0;
    for (int i = 0; i < 10; i++) {
        send_number(run, "t", 1);
        if (i == 2)
            ck_assert_int_eq(brook_producer_flush(run->producer, 20000), 0);
        if (i == 2 || i == 6) {
            brokers_kill(b, 1);
            brokers_restart(b, 1);
        }
    }
    ck_assert_int_eq(brook_producer_flush(run->producer, 30000), 0);
    ck_assert_int_eq(run->producer->topics->partitions[0]->producer_epoch, 0);
    ck_assert_int_eq(run->producer->topics->partitions[0]->next_sequence, 7);
    run_end(run);
    ck_assert_int_eq(check_partition(b, "t", 0, 1, 11, run), 11);
    brokers_free(b);
    free(first);
    free(run);
}
END_TEST

BROKERS_MAIN("cluster/idempotence",
           SUITE_TEST_SLOW(lost_answers_and_killed_brokers_leave_each_record_once_and_in_order, 180),
           SUITE_TEST_SLOW(so_do_leaders_that_change, 240),
           SUITE_TEST_SLOW(producer_goes_on_after_its_records_and_its_state_are_gone, 90),
           SUITE_TEST_SLOW(sequence_wraps_while_the_broker_restarts, 90))
