/* The consumer and the producer against the broker's real network side and real partitions. */
#include "proto/base/err.h"
#include "tests/support/rig.h"
#include "tests/support/suite.h"

#include <brook/brook.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PARTITIONS 20
#define WAIT_MS 10000

struct scene {
    struct rig rig;
    brook_config *config;
    brook_consumer *consumer;
    struct brook_error error;
};

static void set(struct scene *s, const char *key, const char *value)
{
    int r = brook_config_set(s->config, key, value, &s->error);
    ck_assert_msg(r == 0, "%s", s->error.text);
}

static void scene_open(struct scene *s, int32_t partitions)
{
    char servers[32];
    memset(s, 0, sizeof *s);
    rig_prepare(&s->rig);
    fake_cluster_add_topic(s->rig.cluster, "t", partitions);
    rig_start(&s->rig);
    ck_assert_int_eq(brook_config_new(&s->config), 0);
    snprintf(servers, sizeof servers, "127.0.0.1:%d", s->rig.port);
    set(s, "bootstrap.servers", servers);
    set(s, "linger.ms", "0");
}

static void assign_all(struct scene *s, int32_t partitions)
{
    struct brook_position positions[PARTITIONS];
    int r = brook_consumer_new(s->config, &s->consumer, &s->error);
    ck_assert_msg(r == 0, "%s", s->error.text);
    for (int32_t i = 0; i < partitions; i++)
        positions[i] = (struct brook_position){"t", i, 0};
    ck_assert_int_eq(brook_consumer_assign(s->consumer, positions, (size_t)partitions, &s->error), 0);
}

static void scene_close(struct scene *s)
{
    brook_consumer_close(s->consumer, WAIT_MS);
    brook_config_free(s->config);
    rig_stop(&s->rig);
}

struct writer {
    struct scene *scene;
    int64_t count; /* per partition */
    int32_t partitions;
    int64_t not_stored;
};

/* Values are "partition/number", in order per partition. */
static void *write_all(void *arg)
{
    struct writer *w = arg;
    struct brook_error error;
    brook_producer *producer;
    if (brook_producer_new(w->scene->config, &producer, &error) < 0)
        return NULL;
    for (int64_t n = 0; n < w->count; n++)
        for (int32_t i = 0; i < w->partitions; i++) {
            char value[32];
            int bytes = snprintf(value, sizeof value, "%d/%lld", i, (long long)n);
            struct brook_record record = {
                .topic = "t", .partition = i, .value = value, .value_bytes = (size_t)bytes};
            if (brook_producer_send(producer, &record, BROOK_SEND_WAIT, &error) < 0)
                w->not_stored++;
            brook_producer_poll(producer, 0);
        }
    w->not_stored += brook_producer_close(producer, WAIT_MS);
    return NULL;
}

static int64_t check(brook_batch *batch, int64_t next)
{
    struct brook_message m;
    char value[32];
    while (brook_batch_next(batch, &m) == 0) {
        int bytes =
            snprintf(value, sizeof value, "%d/%lld", brook_batch_partition(batch), (long long)m.offset);
        ck_assert_int_eq(m.offset, next);
        ck_assert_uint_eq(m.value_bytes, (size_t)bytes);
        ck_assert(memcmp(m.value, value, (size_t)bytes) == 0);
        next++;
    }
    return next;
}

/* Seek, pause and resume at random; what comes next must be what was asked for. */
static void disturb(struct scene *s, uint64_t *random, int64_t *at, bool *is_paused)
{
    int32_t i = (int32_t)suite_random_below(random, PARTITIONS);
    switch (suite_random_below(random, 12)) {
    case 0:
        at[i] = at[i] > 0 ? (int64_t)suite_random_below(random, (uint64_t)at[i]) : 0;
        ck_assert_int_eq(brook_consumer_seek(s->consumer, "t", i, at[i], NULL), 0);
        break;
    case 1:
        is_paused[i] = !is_paused[i];
        ck_assert_int_eq(is_paused[i] ? brook_consumer_pause(s->consumer, "t", i, NULL)
                                      : brook_consumer_resume(s->consumer, "t", i, NULL),
                         0);
        break;
    default:
        break;
    }
}

static void resume_all(struct scene *s, bool *is_paused)
{
    for (int32_t i = 0; i < PARTITIONS; i++)
        if (is_paused[i]) {
            is_paused[i] = false;
            ck_assert_int_eq(brook_consumer_resume(s->consumer, "t", i, NULL), 0);
        }
}

static void read_while_writing(const char *codec, const char *fetch_bytes, int disturbances)
{
    struct scene s;
    struct writer w = {&s, 1500, PARTITIONS, 0};
    int64_t at[PARTITIONS] = {0};
    bool is_paused[PARTITIONS] = {false};
    pthread_t thread;
    uint64_t random = suite_seed();
    scene_open(&s, PARTITIONS);
    set(&s, "compression", codec);
    set(&s, "batch.size", "2000");
    set(&s, "max.partition.fetch.bytes", fetch_bytes);
    assign_all(&s, PARTITIONS);
    pthread_create(&thread, NULL, write_all, &w);
    for (int done = 0; done < PARTITIONS;) {
        brook_batch *batch;
        int r = brook_consumer_poll(s.consumer, disturbances > 0 ? 3 : WAIT_MS, &batch, &s.error);
        ck_assert_msg(r == 0 || (disturbances > 0 && r == -BROOK_E_AGAIN), "%s", s.error.text);
        if (r == 0) {
            int32_t i = brook_batch_partition(batch);
            ck_assert(!is_paused[i]);
            at[i] = check(batch, at[i]);
            brook_batch_release(batch);
        }
        if (disturbances > 0 && --disturbances > 0)
            disturb(&s, &random, at, is_paused);
        else
            resume_all(&s, is_paused);
        done = 0;
        for (int i = 0; i < PARTITIONS; i++)
            done += at[i] == w.count;
    }
    pthread_join(thread, NULL);
    ck_assert_int_eq(w.not_stored, 0);
    char *text = brook_consumer_statistics(s.consumer);
    fprintf(stderr, "# %.600s\n", text);
    free(text);
    scene_close(&s);
}

START_TEST(what_is_written_is_read_once_and_in_order)
{
    read_while_writing("none", "3000", 0);
}
END_TEST

START_TEST(compressed_records_too)
{
    read_while_writing("lz4", "4194304", 0);
}
END_TEST

START_TEST(seeks_and_pauses_at_any_moment_lose_nothing)
{
    read_while_writing("none", "3000", 3000);
}
END_TEST

START_TEST(the_log_is_entered_at_both_ends_and_by_time)
{
    struct scene s;
    struct writer w = {&s, 100, 1, 0};
    int64_t at;
    brook_batch *batch;
    scene_open(&s, 1);
    write_all(&w);
    ck_assert_int_eq(w.not_stored, 0);
    assign_all(&s, 1);
    ck_assert_int_eq(brook_consumer_seek(s.consumer, "t", 0, BROOK_OFFSET_LATEST, &s.error), 0);
    ck_assert_int_eq(brook_consumer_poll(s.consumer, 200, &batch, &s.error), -BROOK_E_AGAIN);
    ck_assert_int_eq(brook_consumer_position(s.consumer, "t", 0, &at), 0);
    ck_assert_int_eq(at, 100);
    ck_assert_int_eq(brook_consumer_seek(s.consumer, "t", 0, BROOK_OFFSET_EARLIEST, &s.error), 0);
    ck_assert_int_eq(brook_consumer_poll(s.consumer, WAIT_MS, &batch, &s.error), 0);
    ck_assert_int_gt(check(batch, 0), 0);
    brook_batch_release(batch);
    ck_assert_int_eq(brook_consumer_seek_to_time(s.consumer, "t", 0, 1000, WAIT_MS, &s.error), 0);
    ck_assert_int_eq(brook_consumer_position(s.consumer, "t", 0, &at), 0);
    ck_assert_int_eq(at, 0);
    ck_assert_int_eq(brook_consumer_seek_to_time(s.consumer, "t", 0, INT64_MAX, WAIT_MS, &s.error), 0);
    ck_assert_int_eq(brook_consumer_position(s.consumer, "t", 0, &at), 0);
    ck_assert_int_eq(at, 100);
    /* Outside of the log: as the policy says. */
    ck_assert_int_eq(brook_consumer_seek(s.consumer, "t", 0, 5000, &s.error), 0);
    ck_assert_int_eq(brook_consumer_poll(s.consumer, 300, &batch, &s.error), -BROOK_E_AGAIN);
    ck_assert_int_eq(brook_consumer_position(s.consumer, "t", 0, &at), 0);
    ck_assert_int_eq(at, 100);
    scene_close(&s);
}
END_TEST

static bool is_quiet(void *arg)
{
    struct scene *s = arg;
    brook_batch *batch;
    return brook_consumer_poll(s->consumer, 100, &batch, NULL) == -BROOK_E_AGAIN;
}

START_TEST(a_waiting_pull_is_answered_when_something_comes)
{
    struct scene s;
    scene_open(&s, PARTITIONS);
    set(&s, "fetch.max.wait.ms", "20000");
    assign_all(&s, PARTITIONS);
    ck_assert(suite_wait(is_quiet, &s, WAIT_MS));
    brook_producer *producer;
    ck_assert_int_eq(brook_producer_new(s.config, &producer, &s.error), 0);
    for (int64_t n = 0; n < 5; n++)
        for (int32_t i = 0; i < PARTITIONS; i += 3) {
            char value[32];
            int bytes = snprintf(value, sizeof value, "%d/%lld", i, (long long)n);
            struct brook_record record = {
                .topic = "t", .partition = i, .value = value, .value_bytes = (size_t)bytes};
            ck_assert_int_eq(brook_producer_send(producer, &record, 0, &s.error), 0);
            brook_batch *batch;
            ck_assert_int_eq(brook_consumer_poll(s.consumer, WAIT_MS, &batch, &s.error), 0);
            ck_assert_int_eq(brook_batch_partition(batch), i);
            ck_assert_int_eq(check(batch, n), n + 1);
            brook_batch_release(batch);
        }
    ck_assert_int_eq(brook_producer_close(producer, WAIT_MS), 0);
    scene_close(&s);
}
END_TEST

SUITE_MAIN("client/consumer_broker", SUITE_TEST_SLOW(what_is_written_is_read_once_and_in_order, 60),
           SUITE_TEST_SLOW(compressed_records_too, 60),
           SUITE_TEST_SLOW(seeks_and_pauses_at_any_moment_lose_nothing, 60),
           SUITE_TEST(the_log_is_entered_at_both_ends_and_by_time),
           SUITE_TEST(a_waiting_pull_is_answered_when_something_comes))
