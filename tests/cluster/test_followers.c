/* What followers know and do beside holding the records: where logs begin, logs with gaps, readers in their rack. */
#include "proto/base/clock.h"
#include "tests/support/brokers.h"
#include "tests/support/suite.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WAIT_MS 30000

struct bench {
    struct brokers *b;
    brook_config *config;
    brook_admin *admin;
    struct brook_error error;
};

static void begin(struct bench *x, const struct brokers_options *options)
{
    memset(x, 0, sizeof *x);
    x->b = brokers_start(3, options);
    x->config = brokers_config(x->b);
    ck_assert_int_eq(brook_config_set(x->config, "acks", "all", NULL), 0);
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
    int32_t leader; /* anybody but this one; -2: anybody */
    size_t isr;     /* at least so many */
    int32_t got;
    int64_t offset;
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
        w->got = p->leader;
        is = p->leader >= 0 && p->leader != w->leader && p->isr_count >= w->isr;
    }
    brook_cluster_free(cluster);
    return is;
}

/* Wait for a leader other than `not_this`, with so many in sync. */
static int32_t wait_leader(struct bench *x, const char *topic, int32_t not_this, size_t isr)
{
    struct wish w = {.x = x, .topic = topic, .leader = not_this, .isr = isr};
    ck_assert_msg(suite_wait(is_granted, &w, WAIT_MS), "no leader but %d with %zu in sync", not_this, isr);
    return w.got;
}

static void create(struct bench *x, const char *topic, const struct brook_setting *settings, size_t count)
{
    int r = brook_admin_create_topic(x->admin, topic, 1, 3, settings, count, false, WAIT_MS, &x->error);
    ck_assert_msg(r == 0, "%s", x->error.text);
    wait_leader(x, topic, -2, 3);
}

static int64_t offset_of(struct bench *x, const char *topic, int64_t which)
{
    struct brook_position at = {topic, 0, which};
    int r = brook_admin_list_offsets(x->admin, &at, NULL, 1, WAIT_MS, &x->error);
    ck_assert_msg(r == 0, "%s", x->error.text);
    return at.offset;
}

/* ---- records ----------------------------------------------------------------------------------------- */

static void count_failure(void *arg, const struct brook_report *report)
{
    *(int *)arg += report->outcome != BROOK_STORED;
}

/* Keys 0 to `keys` - 1 again and again; the value says which record it is. */
static void produce(struct bench *x, const char *topic, int first, int records, int keys)
{
    brook_producer *producer;
    int failures = 0;
    ck_assert_int_eq(brook_producer_new(x->config, &producer, &x->error), 0);
    brook_producer_on_report(producer, count_failure, &failures);
    for (int i = first; i < first + records; i++) {
        char key[16], value[128];
        int key_bytes = snprintf(key, sizeof key, "k%d", i % keys);
        int value_bytes = snprintf(value, sizeof value, "%0100d", i);
        struct brook_record r = {.topic = topic,
                                 .partition = 0,
                                 .key = key,
                                 .key_bytes = (size_t)key_bytes,
                                 .value = value,
                                 .value_bytes = (size_t)value_bytes};
        ck_assert_int_eq(brook_producer_send(producer, &r, BROOK_SEND_WAIT, &x->error), 0);
    }
    ck_assert_int_eq(brook_producer_flush(producer, WAIT_MS), 0);
    brook_producer_poll(producer, 0);
    ck_assert_int_eq(failures, 0);
    brook_producer_close(producer, 1000);
}

/* ---- deleting ---------------------------------------------------------------------------------------- */

START_TEST(deleted_records_do_not_come_back_with_another_leader)
{
    struct bench x;
    begin(&x, NULL);
    create(&x, "t", NULL, 0);
    produce(&x, "t", 0, 100, 100);
    for (int64_t start = 30; start <= 60; start += 30) {
        int32_t leader = wait_leader(&x, "t", -2, 3);
        struct brook_position at = {"t", 0, start};
        ck_assert_msg(brook_admin_delete_records(x.admin, &at, 1, false, WAIT_MS, &x.error) == 0, "%s", x.error.text);
        brokers_kill(x.b, leader);
        wait_leader(&x, "t", leader, 1);
        ck_assert_int_eq(offset_of(&x, "t", BROOK_OFFSET_EARLIEST), start);
        ck_assert_int_eq(offset_of(&x, "t", BROOK_OFFSET_LATEST), 100);
        brokers_restart(x.b, leader);
        wait_leader(&x, "t", -2, 3);
    }
    end(&x);
}
END_TEST

/* ---- compaction -------------------------------------------------------------------------------------- */

#define KEYS 10

struct table {
    int newest[KEYS]; /* by key, as read; -1: nothing */
    int64_t records, end;
};

/* Read the whole log. */
static void read_table(struct bench *x, const char *topic, struct table *t)
{
    struct brook_message m;
    brook_consumer *consumer;
    brook_batch *batch;
    int64_t end = offset_of(x, topic, BROOK_OFFSET_LATEST), until_ms = clock_boot_ms() + WAIT_MS;
    struct brook_position at = {topic, 0, BROOK_OFFSET_EARLIEST};
    *t = (struct table){.end = 0};
    for (int i = 0; i < KEYS; i++)
        t->newest[i] = -1;
    ck_assert_int_eq(brook_consumer_new(x->config, &consumer, &x->error), 0);
    ck_assert_int_eq(brook_consumer_assign(consumer, &at, 1, &x->error), 0);
    while (t->end < end) {
        ck_assert_msg(clock_boot_ms() < until_ms, "stands still at %ld of %ld", (long)t->end, (long)end);
        int r = brook_consumer_poll(consumer, 1000, &batch, &x->error);
        if (r == -BROOK_E_AGAIN)
            continue;
        ck_assert_msg(r == 0, "%s", x->error.text);
        while (brook_batch_next(batch, &m) == 0) {
            char value[128];
            snprintf(value, sizeof value, "%.*s", (int)m.value_bytes, (const char *)m.value);
            int key = atoi((const char *)m.key + 1) % KEYS;
            ck_assert_int_gt(atoi(value), t->newest[key]);
            t->newest[key] = atoi(value);
            ck_assert_int_ge(m.offset, t->end);
            t->end = m.offset + 1;
            t->records++;
        }
        brook_batch_release(batch);
    }
    brook_consumer_close(consumer, 1000);
}

static void check_table(struct bench *x, const char *topic, int records)
{
    struct table t;
    read_table(x, topic, &t);
    ck_assert_int_eq(t.end, records);
    for (int key = 0; key < KEYS; key++)
        ck_assert_int_eq(t.newest[key], records - KEYS + key);
}

/* Bytes of the partition's segments on that broker. */
static int64_t bytes_at(struct bench *x, int id, const char *topic)
{
    char command[512];
    int64_t bytes = 0;
    snprintf(command, sizeof command, "cat %s/%s-0/*.log 2>/dev/null | wc -c", brokers_data_directory(x->b, id), topic);
    FILE *f = popen(command, "re");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(fscanf(f, "%ld", &bytes), 1);
    pclose(f);
    return bytes;
}

struct size_wish {
    struct bench *x;
    int id;
    int64_t most;
};

static bool is_compacted(void *arg)
{
    struct size_wish *w = arg;
    int64_t bytes = bytes_at(w->x, w->id, "c");
    return bytes > 0 && bytes < w->most;
}

static void wait_compacted(struct bench *x, int id, int64_t most)
{
    struct size_wish w = {x, id, most};
    ck_assert_msg(suite_wait(is_compacted, &w, WAIT_MS), "broker %d still has %ld bytes", id, (long)bytes_at(x, id, "c"));
}

START_TEST(logs_with_gaps_replicate_and_hold_the_same_whoever_leads)
{
    static const char *const often[] = {"log.retention.check.interval.ms=50", "log.cleaner.backoff.ms=50", NULL};
    static const struct brook_setting settings[] = {
        {"cleanup.policy", "compact"}, {"segment.bytes", "8192"}, {"max.message.bytes", "8192"}, {"min.cleanable.dirty.ratio", "0.01"}};
    struct brokers_options options = {.settings = often};
    struct bench x;
    char command[512];
    begin(&x, &options);
    ck_assert_int_eq(brook_config_set(x.config, "batch.size", "2000", NULL), 0);
    create(&x, "c", settings, 3);
    produce(&x, "c", 0, 2000, KEYS);
    for (int id = 1; id <= 3; id++)
        wait_compacted(&x, id, 60000);
    check_table(&x, "c", 2000);
    /* One comes back with an empty disk and has to take the gaps as they are; another one was away. */
    int32_t leader = wait_leader(&x, "c", -2, 3), empty = leader % 3 + 1, away = empty % 3 + 1;
    brokers_kill(x.b, empty);
    snprintf(command, sizeof command, "rm -rf %s", brokers_data_directory(x.b, empty));
    ck_assert_int_eq(system(command), 0);
    brokers_kill(x.b, away);
    wait_leader(&x, "c", -2, 1);
    produce(&x, "c", 2000, 1000, KEYS);
    brokers_restart(x.b, empty);
    brokers_restart(x.b, away);
    wait_leader(&x, "c", -2, 3);
    produce(&x, "c", 3000, 1000, KEYS);
    check_table(&x, "c", 4000);
    /* Each of them leads, and all others follow it. */
    for (int round = 0; round < 3; round++) {
        leader = wait_leader(&x, "c", -2, 3);
        brokers_kill(x.b, leader);
        wait_leader(&x, "c", leader, 1);
        check_table(&x, "c", 4000 + 500 * round);
        produce(&x, "c", 4000 + 500 * round, 500, KEYS);
        brokers_restart(x.b, leader);
        wait_leader(&x, "c", -2, 3);
        check_table(&x, "c", 4500 + 500 * round);
    }
    for (int id = 1; id <= 3; id++)
        wait_compacted(&x, id, 60000);
    end(&x);
}
END_TEST

/* ---- racks ------------------------------------------------------------------------------------------- */

static void place_in_rack(void *arg, const struct zookeeper *zookeeper, int id, struct brokers_place *place)
{
    (void)arg;
    (void)zookeeper;
    snprintf(place->rack, sizeof place->rack, "rack-%d", id);
}

struct reader {
    brook_consumer *consumer;
    _Atomic int near, back; /* as its log says */
    int64_t next;
};

static void on_log(void *arg, int level, const char *subject, const char *line)
{
    struct reader *r = arg;
    (void)level;
    (void)subject;
    if (getenv("BROOK_TALK"))
        fprintf(stderr, "# %s %s\n", subject, line);
    r->near += strstr(line, "which is in rack") != NULL;
    r->back += strstr(line, "reading from the leader again") != NULL;
}

static void reader_begin(struct bench *x, struct reader *r, const char *topic, const char *rack)
{
    memset(r, 0, sizeof *r);
    brook_config *config = brook_config_copy(x->config);
    ck_assert_int_eq(brook_config_set(config, "client.rack", rack, NULL), 0);
    ck_assert_int_eq(brook_config_set(config, "auto.offset.reset", "none", NULL), 0);
    brook_config_set_log(config, on_log, r);
    ck_assert_int_eq(brook_consumer_new(config, &r->consumer, &x->error), 0);
    struct brook_position at = {topic, 0, 0};
    ck_assert_int_eq(brook_consumer_assign(r->consumer, &at, 1, &x->error), 0);
    brook_config_free(config);
}

/* Read up to `end`: all records, in order. */
static void reader_run(struct bench *x, struct reader *r, int64_t end)
{
    struct brook_message m;
    brook_batch *batch;
    int64_t until_ms = clock_boot_ms() + WAIT_MS;
    while (r->next < end) {
        ck_assert_msg(clock_boot_ms() < until_ms, "stands still at %ld of %ld", (long)r->next, (long)end);
        int got = brook_consumer_poll(r->consumer, 1000, &batch, &x->error);
        if (got == -BROOK_E_TIMED_OUT || got == -BROOK_E_AGAIN)
            continue;
        ck_assert_msg(got == 0, "%s", x->error.text);
        while (brook_batch_next(batch, &m) == 0)
            ck_assert_int_eq(m.offset, r->next++);
        brook_batch_release(batch);
    }
}

static bool has_gone_near(void *arg)
{
    return ((struct reader *)arg)->near > 0;
}

START_TEST(a_consumer_reads_from_its_rack_and_goes_back_to_the_leader_when_that_fails)
{
    struct brokers_options options = {.place = place_in_rack};
    struct bench x;
    struct reader near, far, same;
    char rack[32];
    begin(&x, &options);
    create(&x, "t", NULL, 0);
    produce(&x, "t", 0, 100, 100);
    int32_t leader = wait_leader(&x, "t", -2, 3), follower = leader % 3 + 1;
    snprintf(rack, sizeof rack, "rack-%d", follower);
    reader_begin(&x, &near, "t", rack);
    reader_begin(&x, &far, "t", "rack-9");
    snprintf(rack, sizeof rack, "rack-%d", leader);
    reader_begin(&x, &same, "t", rack);
    reader_run(&x, &near, 100);
    reader_run(&x, &far, 100);
    reader_run(&x, &same, 100);
    ck_assert(suite_wait(has_gone_near, &near, WAIT_MS));
    /* Each record is there when the leader has told the follower that all have it, not when a pull has timed out. */
    int64_t began_ms = clock_boot_ms();
    for (int i = 0; i < 20; i++) {
        produce(&x, "t", 100 + i, 1, 100);
        reader_run(&x, &near, 101 + i);
    }
    fprintf(stderr, "# 20 records, each read from the follower: %ld ms\n", (long)(clock_boot_ms() - began_ms));
    ck_assert_int_lt(clock_boot_ms() - began_ms, 20 * 250);
    ck_assert_int_eq(near.near, 1);
    ck_assert_int_eq(near.back, 0);

    brokers_kill(x.b, follower);
    produce(&x, "t", 120, 100, 100);
    reader_run(&x, &near, 220);
    ck_assert_int_ge(near.back, 1);
    brokers_restart(x.b, follower);
    wait_leader(&x, "t", -2, 3);

    /* Another leader. */
    brokers_kill(x.b, leader);
    wait_leader(&x, "t", leader, 1);
    produce(&x, "t", 220, 100, 100);
    reader_run(&x, &near, 320);
    reader_run(&x, &far, 320);
    reader_run(&x, &same, 320);
    ck_assert_int_eq(far.near, 0);
    brook_consumer_close(near.consumer, 1000);
    brook_consumer_close(far.consumer, 1000);
    brook_consumer_close(same.consumer, 1000);
    end(&x);
}
END_TEST

BROKERS_MAIN("cluster/followers", SUITE_TEST_SLOW(logs_with_gaps_replicate_and_hold_the_same_whoever_leads, 240), SUITE_TEST_SLOW(a_consumer_reads_from_its_rack_and_goes_back_to_the_leader_when_that_fails, 180), SUITE_TEST_SLOW(deleted_records_do_not_come_back_with_another_leader, 180))
