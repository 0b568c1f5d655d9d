/* What a subscription brings: by pattern, by each strategy, and in the event loop of an application. */
#include "tests/support/brokers.h"
#include "tests/support/suite.h"

#include "proto/base/clock.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_MS 20000

static void set(brook_config *config, const char *key, const char *value)
{
    struct brook_error error = {0};
    ck_assert_msg(brook_config_set(config, key, value, &error) == 0, "%s", error.text);
}

static brook_config *config_for(struct brokers *b)
{
    brook_config *config = brokers_config(b);
    set(config, "group.id", "g");
    set(config, "auto.offset.reset", "earliest");
    set(config, "session.timeout.ms", "4000");
    set(config, "rebalance.settle.ms", "20");
    return config;
}

static brook_consumer *open_consumer(const brook_config *config)
{
    struct brook_error error = {0};
    brook_consumer *consumer;
    ck_assert_msg(brook_consumer_new(config, &consumer, &error) == 0, "%s", error.text);
    return consumer;
}

/* `count` records into each partition. */
static void produce(struct brokers *b, const char *topic, int32_t partitions, int64_t count)
{
    struct brook_error error = {0};
    brook_config *config = brokers_config(b);
    brook_producer *producer;
    ck_assert_msg(brook_producer_new(config, &producer, &error) == 0, "%s", error.text);
    for (int64_t n = 0; n < count * partitions; n++) {
        struct brook_record record = {.topic = topic,
                                      .partition = (int32_t)(n % partitions),
                                      .value = topic,
                                      .value_bytes = strlen(topic)};
        ck_assert_msg(brook_producer_send(producer, &record, BROOK_SEND_WAIT, &error) == 0, "%s", error.text);
    }
    ck_assert_int_eq(brook_producer_close(producer, WAIT_MS), 0);
    brook_config_free(config);
}

/* The conditions here wait by themselves; suite_wait() would count their turns. */
static bool wait_for(bool (*condition)(void *arg), void *arg)
{
    int64_t until = clock_boot_ms() + WAIT_MS;
    while (clock_boot_ms() < until)
        if (condition(arg))
            return true;
    return false;
}

/* ---- what is assigned ---- */

struct member_state {
    brook_consumer *consumer;
    char has[256];        /* "a/0 a/1 b/0 ": sorted */
    const char *expected;
    int64_t read;         /* records */
    int64_t read_of_last; /* of the topic below */
    const char *topic;
};

static int by_place(const void *a, const void *b)
{
    const struct brook_position *x = a, *y = b;
    int order = strcmp(x->topic, y->topic);
    return order ? order : x->partition - y->partition;
}

/* Poll once, and note what is assigned. */
static void turn(struct member_state *m)
{
    struct brook_position *positions;
    struct brook_message message;
    brook_batch *batch;
    size_t count, at = 0;
    if (brook_consumer_poll(m->consumer, 10, &batch, NULL) == 0) {
        for (; brook_batch_next(batch, &message) == 0; m->read++) {
            const char *topic = brook_batch_topic(batch);
            ck_assert_uint_eq(message.value_bytes, strlen(topic));
            ck_assert_mem_eq(message.value, topic, message.value_bytes);
            m->read_of_last += m->topic && strcmp(topic, m->topic) == 0;
        }
        brook_batch_release(batch);
    }
    ck_assert_int_eq(brook_consumer_assignment(m->consumer, &positions, &count), 0);
    if (count)
        qsort(positions, count, sizeof *positions, by_place);
    m->has[0] = '\0';
    for (size_t i = 0; i < count; i++)
        at += (size_t)snprintf(m->has + at, sizeof m->has - at, "%s/%d ", positions[i].topic,
                               (int)positions[i].partition);
    free(positions);
}

/* `arg`: members, the last without a consumer. */
static bool all_have_what_they_should(void *arg)
{
    bool fits = true;
    for (struct member_state *m = arg; m->consumer; m++) {
        turn(m);
        fits = fits && strcmp(m->has, m->expected) == 0;
    }
    return fits;
}

static void expect(struct member_state *members)
{
    bool fits = wait_for(all_have_what_they_should, members);
    for (struct member_state *m = members; m->consumer && !fits; m++)
        fprintf(stderr, "# has \"%s\", not \"%s\"\n", m->has, m->expected);
    ck_assert(fits);
}

/* ---- patterns ---- */

static bool has_read(void *arg)
{
    struct member_state *m = arg;
    turn(m);
    return m->read_of_last >= 30;
}

START_TEST(a_pattern_takes_in_topics_that_appear_later_and_lets_go_of_deleted_ones)
{
    struct brokers *b = brokers_start(1, NULL);
    struct brook_error error = {0};
    brook_config *config = config_for(b);
    brook_admin *admin;
    struct member_state m[2] = {{.consumer = open_consumer(config)}};
    ck_assert_int_eq(brook_admin_new(config, &admin, &error), 0);
    brokers_create_topic(b, "orders-a", 2);
    brokers_create_topic(b, "other", 1);

    ck_assert_int_eq(brook_consumer_subscribe_pattern(m->consumer, "orders-(", &error), -BROOK_E_INVALID);
    ck_assert_int_eq(brook_consumer_subscribe_pattern(m->consumer, "", &error), -BROOK_E_INVALID);
    int r = brook_consumer_subscribe_pattern(m->consumer, "orders-[a-z]", &error);
    ck_assert_msg(r == 0, "%s", error.text);
    m->expected = "orders-a/0 orders-a/1 ";
    expect(m);

    /* The whole name has to match. */
    brokers_create_topic(b, "my-orders-b", 1);
    brokers_create_topic(b, "orders-bb", 1);
    brokers_create_topic(b, "orders-b", 3);
    m->expected = "orders-a/0 orders-a/1 orders-b/0 orders-b/1 orders-b/2 ";
    expect(m);
    produce(b, "other", 1, 10);
    produce(b, "orders-bb", 1, 10);
    produce(b, "orders-b", 3, 10);
    m->topic = "orders-b";
    ck_assert(wait_for(has_read, m));
    ck_assert_int_eq(m->read, 30);

    ck_assert_int_eq(brook_admin_delete_topic(admin, "orders-a", WAIT_MS, &error), 0);
    m->expected = "orders-b/0 orders-b/1 orders-b/2 ";
    expect(m);
    /* Another pattern takes the place of this one. */
    ck_assert_int_eq(brook_consumer_subscribe_pattern(m->consumer, "o.*[er]", &error), 0);
    m->expected = "other/0 ";
    expect(m);
    brook_consumer_close(m->consumer, WAIT_MS);
    brook_admin_free(admin);
    brook_config_free(config);
    brokers_free(b);
}
END_TEST

/* ---- strategies ---- */

static bool newest_has_something(void *arg)
{
    struct member_state *m = arg;
    for (; m->consumer; m++)
        turn(m);
    return m[-1].has[0] != '\0';
}

static bool all_is_read(void *arg)
{
    int64_t read = 0;
    for (struct member_state *m = arg; m->consumer; m++) {
        turn(m);
        read += m->read;
    }
    ck_assert_int_le(read, 64);
    return read == 64;
}

/* Two topics of five and three partitions; members join one by one, and the oldest one's strategy holds. `shares`: of
 * the first, the second and the third in the end. */
static void divide(const char *strategy, const char *const shares[3])
{
    static const char *const topics[] = {"a", "b"};
    struct brokers *b = brokers_start(1, NULL);
    struct brook_error error = {0};
    brook_config *config = config_for(b);
    struct member_state m[4] = {0};
    brokers_create_topic(b, "a", 5);
    brokers_create_topic(b, "b", 3);
    produce(b, "a", 5, 8);
    produce(b, "b", 3, 8);
    for (int i = 0; i < 3; i++) {
        set(config, "partition.assignment.strategy", i ? "sticky" : strategy);
        m[i].consumer = open_consumer(config);
        ck_assert_int_eq(brook_consumer_subscribe(m[i].consumer, topics, 2, &error), 0);
        ck_assert(wait_for(newest_has_something, m));
    }
    for (int i = 0; i < 3; i++)
        m[i].expected = shares[i];
    expect(m);
    ck_assert(wait_for(all_is_read, m));
    for (int i = 0; i < 3; i++)
        brook_consumer_close(m[i].consumer, WAIT_MS);
    brook_config_free(config);
    brokers_free(b);
}

START_TEST(range_gives_runs_of_each_topic)
{
    divide("range", (const char *const[]){"a/0 a/1 b/0 ", "a/2 a/3 b/1 ", "a/4 b/2 "});
}
END_TEST

START_TEST(roundrobin_deals_out_one_by_one_across_topics)
{
    divide("roundrobin", (const char *const[]){"a/0 a/3 b/1 ", "a/1 a/4 b/2 ", "a/2 b/0 "});
}
END_TEST

/* ---- an application's event loop ---- */

struct events {
    int assigned;
    int revoking;
};

static void on_assigned(void *arg, const struct brook_position *positions, size_t count)
{
    ((struct events *)arg)->assigned += (int)count;
}

static void on_revoking(void *arg, const struct brook_position *positions, size_t count)
{
    ((struct events *)arg)->revoking += (int)count;
}

/* Wait at the descriptor only, then take what is there without waiting; records taken. Each partition has at most
 * `end` records. */
static int64_t serve(brook_consumer *consumer, int64_t end)
{
    struct pollfd fd = {.fd = brook_consumer_fd(consumer), .events = POLLIN};
    struct brook_error error = {0};
    struct brook_message message;
    brook_batch *batch;
    int64_t read = 0;
    int r;
    ck_assert_msg(poll(&fd, 1, WAIT_MS) == 1, "the descriptor did not become readable");
    ck_assert_int_eq(fd.revents, POLLIN);
    while ((r = brook_consumer_poll(consumer, 0, &batch, &error)) == 0) {
        /* Of the last record of a partition both bounds are the same. */
        ck_assert_int_le(brook_batch_high_watermark(batch), end);
        for (; brook_batch_next(batch, &message) == 0; read++)
            ck_assert_int_gt(brook_batch_high_watermark(batch), message.offset);
        brook_batch_release(batch);
    }
    ck_assert_msg(r == -BROOK_E_AGAIN, "%s", error.text);
    return read;
}

static bool is_quiet(void *arg)
{
    struct pollfd fd = {.fd = brook_consumer_fd(arg), .events = POLLIN};
    brook_batch *batch;
    ck_assert_int_eq(brook_consumer_poll(arg, 0, &batch, NULL), -BROOK_E_AGAIN);
    return poll(&fd, 1, 0) == 0;
}

START_TEST(the_descriptor_alone_drives_a_consumer)
{
    enum { PARTITIONS = 3, COUNT = 200, ROUNDS = 5 };
    struct brokers *b = brokers_start(1, NULL);
    struct brook_error error = {0};
    const char *topic = "t";
    struct events events = {0};
    struct brook_rebalance callbacks = {
        .on_assigned = on_assigned, .on_revoking = on_revoking, .arg = &events};
    brook_config *config = config_for(b);
    brook_consumer *consumer = open_consumer(config);
    brokers_create_topic(b, topic, PARTITIONS);
    brook_consumer_on_rebalance(consumer, &callbacks);
    ck_assert(is_quiet(consumer));
    ck_assert_int_eq(brook_consumer_subscribe(consumer, &topic, 1, &error), 0);
    /* Callbacks are a reason to poll, too. */
    while (events.assigned < PARTITIONS)
        ck_assert_int_eq(serve(consumer, 0), 0);
    for (int round = 1; round <= ROUNDS; round++) {
        ck_assert(wait_for(is_quiet, consumer));
        produce(b, topic, PARTITIONS, COUNT);
        for (int64_t read = 0; read < PARTITIONS * COUNT;)
            read += serve(consumer, round * COUNT);
    }
    ck_assert(wait_for(is_quiet, consumer));
    ck_assert_int_eq(events.assigned, PARTITIONS);
    ck_assert_int_eq(brook_consumer_close(consumer, WAIT_MS), 0);
    ck_assert_int_eq(events.revoking, PARTITIONS);
    brook_config_free(config);
    brokers_free(b);
}
END_TEST

BROKERS_MAIN("cluster/subscriptions",
           SUITE_TEST_SLOW(a_pattern_takes_in_topics_that_appear_later_and_lets_go_of_deleted_ones, 90),
           SUITE_TEST_SLOW(range_gives_runs_of_each_topic, 60),
           SUITE_TEST_SLOW(roundrobin_deals_out_one_by_one_across_topics, 60),
           SUITE_TEST_SLOW(the_descriptor_alone_drives_a_consumer, 90))
