/* Consumers of the library against real brokers and ZooKeeper. */
#include "tests/support/brokers.h"
#include "tests/support/suite.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_MS 20000
#define PARTITIONS 6

static void set(brook_config *config, const char *key, const char *value)
{
    struct brook_error error = {0};
    ck_assert_msg(brook_config_set(config, key, value, &error) == 0, "%s", error.text);
}

static brook_config *config_for(struct brokers *b, const char *group)
{
    brook_config *config = brokers_config(b);
    set(config, "group.id", group);
    set(config, "auto.offset.reset", "earliest");
    set(config, "session.timeout.ms", "2000");
    return config;
}

static brook_consumer *open_consumer(const brook_config *config)
{
    struct brook_error error = {0};
    brook_consumer *consumer;
    ck_assert_msg(brook_consumer_new(config, &consumer, &error) == 0, "%s", error.text);
    return consumer;
}

/* Record n is the number n, in partition n % PARTITIONS. */
static void produce(struct brokers *b, const char *topic, int64_t first, int64_t count)
{
    struct brook_error error = {0};
    brook_config *config = brokers_config(b);
    brook_producer *producer;
    ck_assert_msg(brook_producer_new(config, &producer, &error) == 0, "%s", error.text);
    for (int64_t n = first; n < first + count; n++) {
        struct brook_record record = {
            .topic = topic, .partition = (int32_t)(n % PARTITIONS), .value = &n, .value_bytes = sizeof n};
        ck_assert_msg(brook_producer_send(producer, &record, BROOK_SEND_WAIT, &error) == 0, "%s", error.text);
    }
    ck_assert_int_eq(brook_producer_close(producer, WAIT_MS), 0);
    brook_config_free(config);
}

/* ---- groups ---- */

struct tally {
    _Atomic int32_t *times; /* each number was seen so often */
    int64_t numbers;
    _Atomic int64_t seen; /* different ones */
};

struct reader {
    pthread_t thread;
    const brook_config *config;
    struct tally *tally;
    _Atomic bool is_over;
    int close_result;
};

static void count_batch(struct tally *tally, brook_batch *batch)
{
    struct brook_message m;
    while (brook_batch_next(batch, &m) == 0) {
        int64_t n;
        ck_assert_uint_eq(m.value_bytes, sizeof n);
        memcpy(&n, m.value, sizeof n);
        ck_assert(n >= 0 && n < tally->numbers);
        if (atomic_fetch_add(&tally->times[n], 1) == 0)
            tally->seen++;
    }
}

static void *run_member(void *arg)
{
    struct reader *m = arg;
    struct brook_error error;
    const char *topic = "t";
    brook_consumer *consumer = open_consumer(m->config);
    ck_assert_int_eq(brook_consumer_subscribe(consumer, &topic, 1, &error), 0);
    while (!m->is_over) {
        brook_batch *batch;
        if (brook_consumer_poll(consumer, 20, &batch, &error) < 0)
            continue;
        count_batch(m->tally, batch);
        brook_batch_release(batch);
    }
    m->close_result = brook_consumer_close(consumer, WAIT_MS);
    return NULL;
}

static void start(struct reader *m, const brook_config *config, struct tally *tally)
{
    *m = (struct reader){.config = config, .tally = tally};
    ck_assert_int_eq(pthread_create(&m->thread, NULL, run_member, m), 0);
}

static void stop(struct reader *m)
{
    m->is_over = true;
    pthread_join(m->thread, NULL);
    ck_assert_int_eq(m->close_result, 0);
}

static bool all_seen(void *arg)
{
    struct tally *tally = arg;
    return tally->seen == tally->numbers;
}

START_TEST(planned_hand_overs_lose_nothing_and_repeat_nothing)
{
    enum { ROUNDS = 12, PER_ROUND = 600 };
    struct brokers *b = brokers_start(2, NULL);
    struct tally tally = {.numbers = ROUNDS * PER_ROUND};
    struct reader members[3];
    brook_config *config = config_for(b, "g");
    /* Only hand-overs commit. */
    set(config, "auto.commit.interval.ms", "3600000");
    set(config, "rebalance.settle.ms", "20");
    tally.times = calloc((size_t)tally.numbers, sizeof *tally.times);
    brokers_create_topic(b, "t", PARTITIONS);
    start(&members[0], config, &tally);
    for (int round = 0; round < ROUNDS; round++) {
        int place = 1 + round % 2;
        if (round > 1)
            stop(&members[place]);
        start(&members[place], config, &tally);
        produce(b, "t", round * PER_ROUND, PER_ROUND);
    }
    ck_assert(suite_wait(all_seen, &tally, WAIT_MS));
    for (int i = 0; i < 3; i++)
        stop(&members[i]);
    int64_t repeated = 0;
    for (int64_t n = 0; n < tally.numbers; n++)
        repeated += tally.times[n] - 1;
    ck_assert_int_eq(repeated, 0);
    free(tally.times);
    brook_config_free(config);
    brokers_free(b);
}
END_TEST

struct owner_wait {
    brook_consumer *consumer;
    size_t count;
};

static bool owns(void *arg)
{
    struct owner_wait *w = arg;
    brook_batch *batch;
    struct brook_position *positions;
    size_t count;
    if (brook_consumer_poll(w->consumer, 10, &batch, NULL) == 0)
        brook_batch_release(batch);
    ck_assert_int_eq(brook_consumer_assignment(w->consumer, &positions, &count), 0);
    free(positions);
    return count == w->count;
}

START_TEST(owners_commit_and_strangers_do_not)
{
    struct brokers *b = brokers_start(1, NULL);
    struct brook_error error;
    brook_config *config = config_for(b, "g");
    set(config, "enable.auto.commit", "false");
    brokers_create_topic(b, "t", PARTITIONS);
    produce(b, "t", 0, 60);
    brook_consumer *simple = open_consumer(config), *owner = open_consumer(config);
    struct brook_position three = {"t", 0, 3}, five = {"t", 0, 5};
    int64_t stored;
    /* Nobody owns it yet. */
    int r = brook_consumer_commit(simple, &three, 1, BROOK_COMMIT_SYNC, WAIT_MS, &error);
    ck_assert_msg(r == 0, "%s", error.text);
    ck_assert_int_eq(brook_consumer_committed(simple, "t", 0, WAIT_MS, &stored, &error), 0);
    ck_assert_int_eq(stored, 3);
    ck_assert_int_eq(brook_consumer_committed(simple, "t", 1, WAIT_MS, &stored, &error), 0);
    ck_assert_int_eq(stored, BROOK_OFFSET_NONE);

    const char *topic = "t";
    struct owner_wait w = {owner, PARTITIONS};
    ck_assert_int_eq(brook_consumer_subscribe(owner, &topic, 1, &error), 0);
    ck_assert(suite_wait(owns, &w, WAIT_MS));
    r = brook_consumer_commit(simple, &five, 1, BROOK_COMMIT_SYNC, WAIT_MS, &error);
    ck_assert_int_eq(r, -BROOK_E_OWNED);
    r = brook_consumer_commit(owner, &five, 1, BROOK_COMMIT_SYNC, WAIT_MS, &error);
    ck_assert_msg(r == 0, "%s", error.text);
    ck_assert_int_eq(brook_consumer_committed(owner, "t", 0, WAIT_MS, &stored, &error), 0);
    ck_assert_int_eq(stored, 5);
    /* What was read is not stored by itself. */
    ck_assert_int_eq(brook_consumer_close(owner, WAIT_MS), 0);
    ck_assert_int_eq(brook_consumer_committed(simple, "t", 0, WAIT_MS, &stored, &error), 0);
    ck_assert_int_eq(stored, 5);
    brook_consumer_close(simple, WAIT_MS);
    brook_config_free(config);
    brokers_free(b);
}
END_TEST

/* ---- topics and brokers ---- */

static int64_t read_numbers(brook_consumer *consumer, int64_t count)
{
    int64_t read = 0;
    while (read < count) {
        brook_batch *batch;
        struct brook_message m;
        struct brook_error error;
        int r = brook_consumer_poll(consumer, WAIT_MS, &batch, &error);
        if (r < 0 && r != -BROOK_E_AGAIN)
            continue; /* the topic is unknown for a while */
        ck_assert_msg(r == 0, "%s", error.text);
        while (brook_batch_next(batch, &m) == 0)
            read++;
        brook_batch_release(batch);
    }
    return read;
}

START_TEST(a_topic_made_anew_is_read_on)
{
    struct brokers *b = brokers_start(1, NULL);
    struct brook_error error = {0};
    brook_admin *admin;
    brook_config *config = config_for(b, "g");
    brook_consumer *consumer = open_consumer(config);
    struct brook_position all[PARTITIONS];
    for (int32_t i = 0; i < PARTITIONS; i++)
        all[i] = (struct brook_position){"t", i, BROOK_OFFSET_EARLIEST};
    ck_assert_int_eq(brook_admin_new(config, &admin, &error), 0);
    ck_assert_int_eq(brook_consumer_assign(consumer, all, PARTITIONS, &error), 0);
    for (int i = 0; i < 4; i++) {
        brokers_create_topic(b, "t", PARTITIONS);
        produce(b, "t", 0, 600 + 60 * i);
        ck_assert_int_eq(read_numbers(consumer, 600 + 60 * i), 600 + 60 * i);
        int r = brook_admin_delete_topic(admin, "t", WAIT_MS, &error);
        ck_assert_msg(r == 0, "%s", error.text);
    }
    brook_admin_free(admin);
    brook_consumer_close(consumer, WAIT_MS);
    brook_config_free(config);
    brokers_free(b);
}
END_TEST

START_TEST(a_consumer_goes_on_when_its_brokers_come_back)
{
    struct brokers *b = brokers_start(2, NULL);
    struct brook_error error = {0};
    brook_config *config = config_for(b, "g");
    brook_consumer *consumer = open_consumer(config);
    struct brook_position all[PARTITIONS];
    for (int32_t i = 0; i < PARTITIONS; i++)
        all[i] = (struct brook_position){"t", i, 0};
    brokers_create_topic(b, "t", PARTITIONS);
    ck_assert_int_eq(brook_consumer_assign(consumer, all, PARTITIONS, &error), 0);
    for (int round = 0; round < 4; round++) {
        produce(b, "t", 0, 600);
        ck_assert_int_eq(read_numbers(consumer, 600), 600);
        int id = 1 + round % 2;
        brokers_kill(b, id);
        brokers_restart(b, id);
        ck_assert(brokers_wait_registered(b, 2, WAIT_MS));
    }
    int64_t at;
    for (int32_t i = 0; i < PARTITIONS; i++) {
        ck_assert_int_eq(brook_consumer_position(consumer, "t", i, &at), 0);
        ck_assert_int_eq(at, 400);
    }
    brook_consumer_close(consumer, WAIT_MS);
    brook_config_free(config);
    brokers_free(b);
}
END_TEST

static void *stop_stream(void *arg)
{
    const struct timespec a_while = {.tv_nsec = 300000000};
    nanosleep(&a_while, NULL);
    brook_stream_stop(arg);
    return NULL;
}

START_TEST(a_stream_takes_up_where_it_stopped)
{
    struct brokers *b = brokers_start(1, NULL);
    struct brook_error error = {0};
    brook_config *config = config_for(b, "g");
    brokers_create_topic(b, "t", PARTITIONS);
    produce(b, "t", 0, 300);
    uint8_t times[300] = {0};
    int64_t seen = 0, unfinished[3] = {0};
    /* The last record of each run was not finished: it comes again, in whatever order partitions come. */
    for (int run = 0; run < 3; run++) {
        brook_stream *stream;
        ck_assert_msg(brook_stream_open(config, "t", &stream, &error) == 0, "%s", error.text);
        for (int i = 0; i < 70; i++) {
            struct brook_message m;
            int64_t n;
            int r = brook_stream_next(stream, &m, &error);
            ck_assert_msg(r == 0, "%s", error.text);
            memcpy(&n, m.value, sizeof n);
            seen += times[n]++ == 0;
            unfinished[run] = n;
        }
        ck_assert_int_eq(brook_stream_close(stream, WAIT_MS), 0);
    }
    ck_assert_int_ge(seen, 3 * 70 - 2);
    brook_stream *stream;
    struct brook_message m;
    pthread_t thread;
    ck_assert_int_eq(brook_stream_open(config, "t", &stream, &error), 0);
    while (seen < 300 || times[unfinished[0]] < 2 || times[unfinished[1]] < 2 || times[unfinished[2]] < 2) {
        int64_t n;
        ck_assert_int_eq(brook_stream_next(stream, &m, &error), 0);
        memcpy(&n, m.value, sizeof n);
        seen += times[n]++ == 0;
    }
    for (int i = 0; i < 300; i++) /* nothing else came twice */
        ck_assert_int_eq(times[i], 1 + (i == unfinished[0]) + (i == unfinished[1]) + (i == unfinished[2]));
    pthread_create(&thread, NULL, stop_stream, stream);
    while (brook_stream_next(stream, &m, &error) != -BROOK_E_CLOSED)
        ;
    pthread_join(thread, NULL);
    ck_assert_int_eq(brook_stream_close(stream, WAIT_MS), 0);
    brook_config_free(config);
    brokers_free(b);
}
END_TEST

BROKERS_MAIN("cluster/consumers", SUITE_TEST_SLOW(planned_hand_overs_lose_nothing_and_repeat_nothing, 120),
           SUITE_TEST_SLOW(owners_commit_and_strangers_do_not, 60),
           SUITE_TEST_SLOW(a_topic_made_anew_is_read_on, 90),
           SUITE_TEST_SLOW(a_consumer_goes_on_when_its_brokers_come_back, 120),
           SUITE_TEST_SLOW(a_stream_takes_up_where_it_stopped, 90))
