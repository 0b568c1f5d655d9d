/* Brokers that die, bounce, double, lose ZooKeeper and stop. */
#include "tests/support/brokers.h"
#include "tests/support/suite.h"
#include "tests/support/zookeeper.h"

#include "proto/base/clock.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SESSION_MS 2000

/* A producer that numbers its records per partition and remembers what was acknowledged. */
struct writer {
    brook_config *config;
    brook_producer *producer;
    int32_t partitions;
    int64_t sent;
    int64_t stored;
    int64_t failed;
    uint8_t *acknowledged; /* by number */
    size_t room;
};

static void on_report(void *arg, const struct brook_report *report)
{
    struct writer *w = arg;
    if (report->outcome == BROOK_STORED) {
        w->acknowledged[(intptr_t)report->opaque] = 1;
        w->stored++;
    } else {
        w->failed++;
    }
}

static void writer_open(struct writer *w, struct brokers *b, int32_t partitions, size_t room)
{
    struct brook_error error = {0};
    memset(w, 0, sizeof *w);
    w->partitions = partitions;
    w->room = room;
    w->acknowledged = calloc(room, 1);
    w->config = brokers_config(b);
    ck_assert_int_eq(brook_config_set(w->config, "acks", "all", &error), 0);
    ck_assert_int_eq(brook_config_set(w->config, "delivery.timeout.ms", "60000", &error), 0);
    ck_assert_msg(brook_producer_new(w->config, &w->producer, &error) == 0, "%s", error.text);
    brook_producer_on_report(w->producer, on_report, w);
}

static void writer_send(struct writer *w, int64_t count)
{
    struct brook_error error = {0};
    for (int64_t i = 0; i < count; i++) {
        int64_t number = w->sent++;
        ck_assert_uint_lt((size_t)number, w->room);
        struct brook_record r = {.topic = "t", .partition = (int32_t)(number % w->partitions), .value = &number,
                                 .value_bytes = sizeof number, .opaque = (void *)(intptr_t)number};
        ck_assert_msg(brook_producer_send(w->producer, &r, BROOK_SEND_WAIT, &error) == 0, "%s", error.text);
    }
    brook_producer_poll(w->producer, 0);
}

static void writer_close(struct writer *w)
{
    brook_producer_close(w->producer, 1000);
    brook_config_free(w->config);
    free(w->acknowledged);
}

/* Read all of `t` from the start: every acknowledged number must be there; offsets contiguous. Returns records read. */
static int64_t check_log(struct brokers *b, const struct writer *w)
{
    struct brook_error error = {0};
    brook_consumer *consumer;
    brook_admin *admin;
    struct brook_position at[16], ends[16];
    uint8_t *seen = calloc(w->room, 1);
    ck_assert_ptr_nonnull(seen);
    for (int32_t p = 0; p < w->partitions; p++) {
        at[p] = (struct brook_position){"t", p, BROOK_OFFSET_EARLIEST};
        ends[p] = (struct brook_position){"t", p, BROOK_OFFSET_LATEST};
    }
    ck_assert_int_eq(brook_admin_new(w->config, &admin, &error), 0);
    ck_assert_msg(brook_admin_list_offsets(admin, ends, NULL, (size_t)w->partitions, 10000, &error) == 0, "%s",
                  error.text);
    ck_assert_int_eq(brook_consumer_new(w->config, &consumer, &error), 0);
    ck_assert_int_eq(brook_consumer_assign(consumer, at, (size_t)w->partitions, &error), 0);
    int64_t total = 0, read = 0, next[16] = {0};
    for (int32_t p = 0; p < w->partitions; p++)
        total += ends[p].offset;
    while (read < total) {
        brook_batch *batch;
        struct brook_message m;
        int64_t number;
        ck_assert_msg(brook_consumer_poll(consumer, 10000, &batch, &error) == 0, "%s", error.text);
        int32_t p = brook_batch_partition(batch);
        while (brook_batch_next(batch, &m) == 0) {
            ck_assert_int_eq(m.offset, next[p]++);
            ck_assert_uint_eq(m.value_bytes, sizeof number);
            memcpy(&number, m.value, sizeof number);
            ck_assert(number >= 0 && number < w->sent && number % w->partitions == p);
            seen[number] = 1;
            read++;
        }
        brook_batch_release(batch);
    }
    for (int64_t i = 0; i < w->sent; i++)
        ck_assert_msg(seen[i] || !w->acknowledged[i], "record %lld was acknowledged and is gone", (long long)i);
    brook_consumer_close(consumer, 1000);
    brook_admin_free(admin);
    free(seen);
    return read;
}

START_TEST(a_broker_killed_in_mid_append_keeps_what_it_acknowledged)
{
    struct brokers *b = brokers_start(3, NULL);
    struct writer w;
    uint64_t state = suite_seed();
    brokers_create_topic(b, "t", 6);
    writer_open(&w, b, 6, 1 << 20);
    for (int round = 0; round < 6; round++) {
        writer_send(&w, 20000);
        usleep((useconds_t)suite_random_below(&state, 30000));
        int id = 1 + round % 3;
        brokers_kill(b, id);
        writer_send(&w, 5000);
        brokers_restart(b, id);
        ck_assert(brokers_wait_registered(b, 3, SESSION_MS + 5000));
    }
    ck_assert_int_eq(brook_producer_flush(w.producer, 30000), 0);
    ck_assert_int_eq(w.failed, 0);
    ck_assert_int_eq(w.stored, w.sent);
    ck_assert_int_ge(check_log(b, &w), w.sent);
    writer_close(&w);
    brokers_free(b);
}
END_TEST

START_TEST(a_dead_brokers_partitions_wait_and_the_others_go_on)
{
    struct brokers *b = brokers_start(3, NULL);
    struct writer w;
    brokers_create_topic(b, "t", 6);
    writer_open(&w, b, 6, 1 << 16);
    writer_send(&w, 600);
    ck_assert_int_eq(brook_producer_flush(w.producer, 10000), 0);
    brokers_kill(b, 2);
    ck_assert(brokers_wait_registered(b, 2, SESSION_MS + 3000));
    writer_send(&w, 600);
    /* Two thirds have a leader and are stored; the rest waits. */
    for (int64_t until = clock_boot_ms() + 10000; w.stored < 1000 && clock_boot_ms() < until;)
        brook_producer_poll(w.producer, 50);
    ck_assert_int_eq(w.stored, 1000);
    ck_assert_int_eq(w.failed, 0);
    brokers_restart(b, 2);
    ck_assert_int_eq(brook_producer_flush(w.producer, 20000), 0);
    ck_assert_int_eq(w.stored, 1200);
    ck_assert_int_eq(check_log(b, &w), 1200);
    writer_close(&w);
    brokers_free(b);
}
END_TEST

START_TEST(a_second_broker_of_the_same_id_refuses_to_start_and_the_first_does_not_notice)
{
    struct brokers *b = brokers_start(3, NULL);
    struct writer w;
    char output[8192];
    brokers_create_topic(b, "t", 6);
    writer_open(&w, b, 6, 1 << 16);
    writer_send(&w, 600);
    int code = brokers_run_double(b, 1, 15000, output, sizeof output);
    ck_assert_msg(code > 0 && code < 128, "exit %d: %s", code, output);
    ck_assert_msg(strstr(output, "broker id 1 is in use"), "%s", output);
    writer_send(&w, 600);
    ck_assert_int_eq(brook_producer_flush(w.producer, 10000), 0);
    ck_assert_int_eq(w.stored, 1200);
    ck_assert(brokers_wait_registered(b, 3, 1000));
    writer_close(&w);
    brokers_free(b);
}
END_TEST

START_TEST(a_broker_restarted_at_once_after_a_kill_registers_within_the_session_timeout)
{
    struct brokers_options o = {.session_timeout_ms = 4000};
    struct brokers *b = brokers_start(3, &o);
    brokers_create_topic(b, "t", 6);
    for (int round = 0; round < 3; round++) {
        struct writer w;
        brokers_kill(b, 1);
        int64_t killed = clock_boot_ms();
        brokers_restart(b, 1);
        writer_open(&w, b, 6, 1 << 16);
        writer_send(&w, 60);
        ck_assert_int_eq(brook_producer_flush(w.producer, 20000), 0);
        int64_t took = clock_boot_ms() - killed;
        fprintf(stderr, "# serving again %lld ms after the kill\n", (long long)took);
#ifndef BROOK_SANITIZED
        ck_assert_msg(took < 4000, "%lld ms", (long long)took);
#endif
        writer_close(&w);
    }
    brokers_free(b);
}
END_TEST

/* The test stops it. */
static const struct brokers_options own_zookeeper = {.own_zookeeper = true};

static void zookeeper_gone(int gone_ms)
{
    struct brokers *b = brokers_start(3, &own_zookeeper);
    struct writer w;
    struct member m;
    static const char *const settings[] = {"session.timeout.ms=2000", "auto.commit.interval.ms=100", NULL};
    brokers_create_topic(b, "t", 6);
    writer_open(&w, b, 6, 1 << 20);
    member_start(b, &m, "m", "g", "t", settings);
    writer_send(&w, 600);
    ck_assert_int_eq(brook_producer_flush(w.producer, 10000), 0);
    zookeeper_kill(brokers_zookeeper(b));
    /* Producing goes on meanwhile. */
    for (int64_t until = clock_boot_ms() + gone_ms; clock_boot_ms() < until;) {
        writer_send(&w, 60);
        brook_producer_poll(w.producer, 100);
    }
    ck_assert_int_eq(brook_producer_flush(w.producer, 10000), 0);
    zookeeper_restart(brokers_zookeeper(b));
    ck_assert(brokers_wait_registered(b, 3, 20000));
    brokers_create_topic(b, "after", 3);
    writer_send(&w, 600);
    ck_assert_int_eq(brook_producer_flush(w.producer, 10000), 0);
    ck_assert_int_eq(w.stored, w.sent);
    for (int64_t until = clock_boot_ms() + 20000; member_lines(&m) < w.sent && clock_boot_ms() < until;)
        usleep(20000);
    ck_assert_int_ge(member_lines(&m), w.sent);
    ck_assert_int_eq(member_stop(&m, 10000), 0);
    for (int id = 1; id <= 3; id++)
        ck_assert_int_eq(brokers_stop(b, id, 10000), 0);
    writer_close(&w);
    brokers_free(b);
}

START_TEST(zookeeper_gone_for_less_than_a_session_needs_no_restart)
{
    zookeeper_gone(SESSION_MS / 3);
}
END_TEST

START_TEST(zookeeper_gone_for_longer_than_a_session_needs_no_restart)
{
    zookeeper_gone(SESSION_MS * 2);
}
END_TEST

START_TEST(sigterm_stops_a_broker_quickly_with_zookeeper_there_stopped_or_gone)
{
    struct brokers *b = brokers_start(3, &own_zookeeper);
    brokers_create_topic(b, "t", 6);
    int64_t at = clock_boot_ms();
    ck_assert_int_eq(brokers_stop(b, 1, 5000), 0);
    fprintf(stderr, "# stopped in %lld ms\n", (long long)(clock_boot_ms() - at));
    zookeeper_pause(brokers_zookeeper(b));
    ck_assert_int_eq(brokers_stop(b, 2, 8000), 0);
    zookeeper_continue(brokers_zookeeper(b));
    zookeeper_kill(brokers_zookeeper(b));
    ck_assert_int_eq(brokers_stop(b, 3, 8000), 0);
    brokers_free(b);
}
END_TEST

START_TEST(a_stopping_broker_waits_for_zookeeper_as_long_as_it_was_told)
{
    static const char *const settings[] = {"controlled.shutdown.max.ms=4500", NULL};
    /* Longer than that, so that silence does not end the connection first. */
    struct brokers_options o = {.session_timeout_ms = 20000, .tick_ms = 2000, .settings = settings};
    struct brokers *b = brokers_start(1, &o);
    zookeeper_pause(brokers_zookeeper(b));
    int64_t began = clock_boot_ms();
    ck_assert_int_eq(brokers_stop(b, 1, 20000), 0);
    ck_assert_int_ge(clock_boot_ms() - began, 4500);
    zookeeper_continue(brokers_zookeeper(b));
    brokers_free(b);
}
END_TEST

/* ---- settings of a running broker ---- */

struct describer {
    pthread_t thread;
    brook_admin *admin;
    const char *level; /* waited for */
    _Atomic bool is_over;
    _Atomic int64_t rounds;
};

/* What the broker says its log.level is, and whether that is the default. */
static bool shows_level(void *arg)
{
    struct describer *d = arg;
    struct brook_config_entries *entries;
    struct brook_error error = {0};
    bool is_there = false;
    int r = brook_admin_describe_config(d->admin, NULL, 10000, &entries, &error);
    ck_assert_msg(r == 0, "%s", error.text);
    for (size_t i = 0; i < entries->count; i++) {
        const struct brook_config_entry *e = &entries->entries[i];
        if (strcmp(e->key, "log.level") != 0)
            continue;
        ck_assert_msg(!strcmp(e->value, "info") || !strcmp(e->value, "error"), "%s", e->value);
        ck_assert_int_eq(e->is_default, !strcmp(e->value, "info"));
        is_there = strcmp(e->value, d->level) == 0;
    }
    brook_config_entries_free(entries);
    d->rounds++;
    return is_there;
}

static void *describe(void *arg)
{
    struct describer *d = arg;
    while (!d->is_over)
        shows_level(d);
    return NULL;
}

START_TEST(a_broker_describes_its_settings_while_it_reloads_them)
{
    static const char *const quiet[] = {"log.level=error", NULL};
    struct brokers *b = brokers_start(1, NULL);
    brook_config *config = brokers_config(b);
    struct brook_error error;
    struct describer asker = {.level = ""}, watcher = {0};
    ck_assert_int_eq(brook_admin_new(config, &asker.admin, &error), 0);
    ck_assert_int_eq(brook_admin_new(config, &watcher.admin, &error), 0);
    ck_assert_int_eq(pthread_create(&asker.thread, NULL, describe, &asker), 0);
    for (int round = 0; round < 20; round++) {
        watcher.level = round % 2 ? "info" : "error";
        brokers_reload(b, 1, round % 2 ? NULL : quiet);
        ck_assert(suite_wait(shows_level, &watcher, 10000));
    }
    asker.is_over = true;
    pthread_join(asker.thread, NULL);
    ck_assert_int_gt(asker.rounds, 0);
    /* 0 also says that a sanitizer found nothing. */
    ck_assert_int_eq(brokers_stop(b, 1, 20000), 0);
    brook_admin_free(asker.admin);
    brook_admin_free(watcher.admin);
    brook_config_free(config);
    brokers_free(b);
}
END_TEST

BROKERS_MAIN("cluster/brokers", SUITE_TEST_SLOW(a_broker_killed_in_mid_append_keeps_what_it_acknowledged, 120),
           SUITE_TEST_SLOW(a_dead_brokers_partitions_wait_and_the_others_go_on, 60),
           SUITE_TEST_SLOW(a_second_broker_of_the_same_id_refuses_to_start_and_the_first_does_not_notice, 60),
           SUITE_TEST_SLOW(a_broker_restarted_at_once_after_a_kill_registers_within_the_session_timeout, 60),
           SUITE_TEST_SLOW(zookeeper_gone_for_less_than_a_session_needs_no_restart, 90),
           SUITE_TEST_SLOW(zookeeper_gone_for_longer_than_a_session_needs_no_restart, 90),
           SUITE_TEST_SLOW(a_stopping_broker_waits_for_zookeeper_as_long_as_it_was_told, 60),
           SUITE_TEST_SLOW(a_broker_describes_its_settings_while_it_reloads_them, 60),
           SUITE_TEST_SLOW(sigterm_stops_a_broker_quickly_with_zookeeper_there_stopped_or_gone, 60))
