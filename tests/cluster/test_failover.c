/* Clients while leaders change: nothing that was accepted is reported as failed, and how long they stand still. The
 * times are printed; what is compared are bounds that a slow machine keeps too. */
#include "proto/base/clock.h"
#include "tests/support/brokers.h"
#include "tests/support/suite.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_MS 60000
#define SESSION_MS 2000

struct bench {
    struct brokers *b;
    brook_config *config;
    brook_admin *admin;
    struct brook_error error;
};

static void begin(struct bench *x)
{
    struct brokers_options options = {.session_timeout_ms = SESSION_MS};
    memset(x, 0, sizeof *x);
    x->b = brokers_start(3, &options);
    x->config = brokers_config(x->b);
    ck_assert_int_eq(brook_config_set(x->config, "linger.ms", "0", NULL), 0);
    ck_assert_int_eq(brook_config_set(x->config, "delivery.timeout.ms", "60000", NULL), 0);
    ck_assert_int_eq(brook_admin_new(x->config, &x->admin, &x->error), 0);
}

static void end(struct bench *x)
{
    brook_admin_free(x->admin);
    brook_config_free(x->config);
    brokers_free(x->b);
}

/* ---- what the cluster says --------------------------------------------------------------------------- */

struct wish {
    struct bench *x;
    const char *topic;
    size_t isr;
    int32_t leader;
};

static bool is_granted(void *arg)
{
    struct wish *w = arg;
    struct brook_cluster *cluster;
    struct brook_error error;
    if (brook_admin_describe_cluster(w->x->admin, &w->topic, 1, 5000, &cluster, &error) < 0)
        return false;
    bool is = cluster->topics_count == 1 && cluster->topics[0].partitions_count > 0;
    if (is) {
        const struct brook_partition *p = &cluster->topics[0].partitions[0];
        w->leader = p->leader;
        is = p->leader >= 0 && p->isr_count >= w->isr;
    }
    brook_cluster_free(cluster);
    return is;
}

static int32_t wait_leader(struct bench *x, const char *topic, size_t isr)
{
    struct wish w = {.x = x, .topic = topic, .isr = isr};
    ck_assert_msg(suite_wait(is_granted, &w, WAIT_MS), "%s: no leader with %zu in sync", topic, isr);
    return w.leader;
}

static void create(struct bench *x, const char *topic)
{
    int r = brook_admin_create_topic(x->admin, topic, 1, 3, NULL, 0, false, WAIT_MS, &x->error);
    ck_assert_msg(r == 0, "%s", x->error.text);
    wait_leader(x, topic, 3);
}

/* ---- one record after the other ---------------------------------------------------------------------- */

struct flow {
    brook_producer *producer;
    int64_t stored, failed;
    int64_t last_ms, longest_ms; /* between two reports */
    bool is_out;
};

static void on_report(void *arg, const struct brook_report *report)
{
    struct flow *f = arg;
    int64_t now_ms = clock_boot_ms();
    if (report->outcome != BROOK_STORED)
        fprintf(stderr, "# not stored: %s\n", report->error.text);
    f->stored += report->outcome == BROOK_STORED;
    f->failed += report->outcome != BROOK_STORED;
    if (now_ms - f->last_ms > f->longest_ms)
        f->longest_ms = now_ms - f->last_ms;
    f->last_ms = now_ms;
    f->is_out = false;
}

static void flow_begin(struct bench *x, struct flow *f, const char *acks)
{
    memset(f, 0, sizeof *f);
    brook_config *config = brook_config_copy(x->config);
    ck_assert_int_eq(brook_config_set(config, "acks", acks, NULL), 0);
    ck_assert_int_eq(brook_producer_new(config, &f->producer, &x->error), 0);
    brook_config_free(config);
    brook_producer_on_report(f->producer, on_report, f);
    f->last_ms = clock_boot_ms();
}

/* One record at a time until so many more are stored. */
static void flow_run(struct bench *x, struct flow *f, const char *topic, int64_t count)
{
    int64_t until_ms = clock_boot_ms() + WAIT_MS, goal = f->stored + count;
    while (f->stored < goal) {
        struct brook_record r = {.topic = topic, .partition = 0, .value = "0123456789", .value_bytes = 10};
        if (!f->is_out) {
            ck_assert_int_eq(brook_producer_send(f->producer, &r, BROOK_SEND_WAIT, &x->error), 0);
            f->is_out = true;
        }
        brook_producer_poll(f->producer, 100);
        ck_assert_msg(clock_boot_ms() < until_ms, "stands still after %ld", (long)f->stored);
        ck_assert_int_eq(f->failed, 0);
    }
}

static void flow_end(struct flow *f)
{
    brook_producer_close(f->producer, 1000);
}

START_TEST(a_killed_leader_costs_a_producer_its_session_and_little_more)
{
    struct bench x;
    struct flow f;
    begin(&x);
    create(&x, "t");
    flow_begin(&x, &f, "all");
    for (int round = 0; round < 3; round++) {
        flow_run(&x, &f, "t", 100);
        int32_t leader = wait_leader(&x, "t", 3);
        f.longest_ms = 0;
        f.last_ms = clock_boot_ms();
        brokers_kill(x.b, leader);
        flow_run(&x, &f, "t", 100);
        fprintf(stderr, "# killed: longest time without an answer %ld ms\n", (long)f.longest_ms);
        ck_assert_int_lt(f.longest_ms, 3 * SESSION_MS + 4000);
        brokers_restart(x.b, leader);
    }
    flow_end(&f);
    end(&x);
}
END_TEST

START_TEST(a_leader_that_stops_costs_a_producer_less_than_a_second)
{
    struct bench x;
    struct flow f;
    begin(&x);
    create(&x, "t");
    flow_begin(&x, &f, "all");
    for (int round = 0; round < 3; round++) {
        flow_run(&x, &f, "t", 100);
        int32_t leader = wait_leader(&x, "t", 3);
        f.longest_ms = 0;
        f.last_ms = clock_boot_ms();
        brokers_signal(x.b, leader, SIGTERM);
        int64_t began_ms = clock_boot_ms();
        while (clock_boot_ms() - began_ms < SESSION_MS)
            flow_run(&x, &f, "t", 10);
        fprintf(stderr, "# stopped: longest time without an answer %ld ms\n", (long)f.longest_ms);
        ck_assert_int_lt(f.longest_ms, SESSION_MS);
        ck_assert_int_eq(brokers_stop(x.b, leader, WAIT_MS), 0);
        brokers_restart(x.b, leader);
    }
    flow_end(&f);
    end(&x);
}
END_TEST

/* ---- a topic made anew ------------------------------------------------------------------------------- */

/* Until the consumer has the record of that number. */
static int64_t read_number(struct bench *x, brook_consumer *consumer, int number)
{
    struct brook_message m;
    brook_batch *batch;
    int64_t began_ms = clock_boot_ms();
    for (;;) {
        ck_assert_msg(clock_boot_ms() - began_ms < WAIT_MS, "record %d does not come", number);
        int r = brook_consumer_poll(consumer, 100, &batch, &x->error);
        if (r == -BROOK_E_AGAIN || r == -BROOK_E_UNKNOWN_TOPIC || r == -BROOK_E_UNKNOWN_PARTITION)
            continue;
        ck_assert_msg(r == 0, "%s", x->error.text);
        bool is_there = false;
        while (brook_batch_next(batch, &m) == 0)
            is_there |= m.value_bytes == sizeof number && memcmp(m.value, &number, sizeof number) == 0;
        brook_batch_release(batch);
        if (is_there)
            return clock_boot_ms() - began_ms;
    }
}

/* Sent again and again until it is stored: while there is no topic, a record may be refused. */
static int64_t store_number(struct bench *x, struct flow *f, int number)
{
    int64_t began_ms = clock_boot_ms(), goal = f->stored + 1;
    while (f->stored < goal) {
        struct brook_record r = {.topic = "t", .partition = 0, .value = &number, .value_bytes = sizeof number};
        ck_assert_msg(clock_boot_ms() - began_ms < WAIT_MS, "record %d is not stored", number);
        if (!f->is_out && brook_producer_send(f->producer, &r, BROOK_SEND_WAIT, &x->error) == 0)
            f->is_out = true;
        brook_producer_poll(f->producer, 20);
    }
    return clock_boot_ms() - began_ms;
}

START_TEST(a_topic_made_anew_is_written_and_read_again_soon)
{
    struct bench x;
    struct flow f;
    brook_consumer *consumer;
    begin(&x);
    create(&x, "t");
    flow_begin(&x, &f, "all");
    struct brook_position at = {"t", 0, 0};
    ck_assert_int_eq(brook_config_set(x.config, "auto.offset.reset", "earliest", NULL), 0);
    ck_assert_int_eq(brook_consumer_new(x.config, &consumer, &x.error), 0);
    ck_assert_int_eq(brook_consumer_assign(consumer, &at, 1, &x.error), 0);
    store_number(&x, &f, 0);
    read_number(&x, consumer, 0);
    for (int round = 1; round <= 10; round++) {
        ck_assert_msg(brook_admin_delete_topic(x.admin, "t", WAIT_MS, &x.error) == 0, "%s", x.error.text);
        create(&x, "t");
        int64_t stored_ms = store_number(&x, &f, round), read_ms = read_number(&x, consumer, round);
        fprintf(stderr, "# made anew: stored after %ld ms, read %ld ms later\n", (long)stored_ms, (long)read_ms);
        ck_assert_int_lt(stored_ms, 5000);
        ck_assert_int_lt(read_ms, 5000);
    }
    brook_consumer_close(consumer, 1000);
    flow_end(&f);
    end(&x);
}
END_TEST

/* ---- nobody answers ---------------------------------------------------------------------------------- */

static int64_t end_of_log(struct bench *x, const char *topic)
{
    struct brook_position at = {topic, 0, BROOK_OFFSET_LATEST};
    int r = brook_admin_list_offsets(x->admin, &at, NULL, 1, WAIT_MS, &x->error);
    ck_assert_msg(r == 0, "%s", x->error.text);
    return at.offset;
}

START_TEST(a_producer_that_is_not_answered_learns_of_another_leader)
{
    struct bench x;
    struct flow f;
    begin(&x);
    create(&x, "t");
    flow_begin(&x, &f, "none");
    flow_run(&x, &f, "t", 100);
    for (int round = 0; round < 2; round++) {
        /* The preferred replica leads again by itself or not: whoever leads is made to move while it runs. */
        int32_t leader = wait_leader(&x, "t", 3);
        ck_assert_int_eq(brokers_stop(x.b, leader, WAIT_MS), 0);
        int64_t before = end_of_log(&x, "t"), began_ms = clock_boot_ms();
        while (end_of_log(&x, "t") < before + 10) {
            flow_run(&x, &f, "t", 1);
            ck_assert_int_lt(clock_boot_ms() - began_ms, 10000);
        }
        fprintf(stderr, "# acks=none: at the new leader after %ld ms\n", (long)(clock_boot_ms() - began_ms));
        brokers_restart(x.b, leader);
    }
    flow_end(&f);
    end(&x);
}
END_TEST

BROKERS_MAIN("cluster/failover", SUITE_TEST_SLOW(a_topic_made_anew_is_written_and_read_again_soon, 240),
           SUITE_TEST_SLOW(a_producer_that_is_not_answered_learns_of_another_leader, 120),
            SUITE_TEST_SLOW(a_killed_leader_costs_a_producer_its_session_and_little_more, 240),
           SUITE_TEST_SLOW(a_leader_that_stops_costs_a_producer_less_than_a_second, 240))
