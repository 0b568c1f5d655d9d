#include "broker/partition/partition.h"
#include "proto/base/clock.h"
#include "proto/record/batch.h"
#include "proto/wire/envelope.h"
#include "tests/support/rig.h"
#include "tests/support/suite.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

struct case_ {
    struct rig rig;
    struct topic_id t;
    struct raw_client c;      /* pulls */
    struct raw_client writer; /* produces, on another loop */
};

static void begin(struct case_ *x, int32_t partitions)
{
    rig_prepare(&x->rig);
    x->t = fake_cluster_add_topic(x->rig.cluster, "t", partitions);
    rig_start(&x->rig);
    raw_open(&x->c, x->rig.port);
    raw_open(&x->writer, x->rig.port);
}

static void end(struct case_ *x)
{
    raw_close(&x->c);
    raw_close(&x->writer);
    rig_stop(&x->rig);
}

/* Count of whole batches in the records of the last reply; their first offset. */
static size_t count_batches(const struct raw_client *c, int64_t *ret_first)
{
    struct batch_header h;
    size_t count = 0;
    *ret_first = -1;
    for (size_t at = 0; at < c->records_bytes; at += h.total_bytes) {
        if (batch_read_header(c->records + at, c->records_bytes - at, &h) < 0)
            break;
        ck_assert_int_eq(batch_check_crc(c->records + at, &h), 0);
        if (!count++)
            *ret_first = h.base_offset;
    }
    return count;
}

static int status_of(const Brook__PulledPartition *p)
{
    return envelope_status_code(p->status);
}

START_TEST(records_come_back_as_they_were_written)
{
    struct case_ x;
    struct raw_pull pull;
    int64_t first;
    begin(&x, 1);
    for (int i = 0; i < 10; i++)
        raw_produce(&x.writer, &x.t, 0, 100);
    raw_pull_init(&pull, &x.t, 0, 0);
    Brook__PullResponse *r = raw_pull(&x.c, &pull);
    ck_assert_uint_eq(r->n_partitions, 1);
    ck_assert_int_eq(r->partitions[0]->high_watermark, 10);
    ck_assert_int_eq(r->partitions[0]->log_end_offset, 10);
    ck_assert_int_eq(r->partitions[0]->log_start_offset, 0);
    ck_assert_uint_eq(r->partitions[0]->records_bytes, x.c.records_bytes);
    ck_assert_uint_eq(count_batches(&x.c, &first), 10);
    ck_assert_int_eq(first, 0);
    pull.entries[0].offset = 7;
    raw_pull(&x.c, &pull);
    ck_assert_uint_eq(count_batches(&x.c, &first), 3);
    ck_assert_int_eq(first, 7);
    pull.entries[0].offset = 10;
    r = raw_pull(&x.c, &pull);
    ck_assert_uint_eq(x.c.records_bytes, 0);
    ck_assert_int_eq(r->partitions[0]->high_watermark, 10);
    end(&x);
}
END_TEST

START_TEST(with_interval_only_what_is_flushed_is_pulled)
{
    struct case_ x;
    struct raw_pull pull;
    int64_t first;
    begin(&x, 1);
    struct partition *p = fake_cluster_partition(x.rig.cluster, "t", 0);
    struct durability seldom = {.mode = DURABILITY_INTERVAL, .flush_messages = 1000, .flush_ms = 3600000};
    partition_set_durability(p, &seldom);
    raw_produce(&x.writer, &x.t, 0, 100);
    ck_assert_int_eq(partition_flush(p), 0);
    raw_produce(&x.writer, &x.t, 0, 100);
    raw_pull_init(&pull, &x.t, 0, 0);
    Brook__PullResponse *r = raw_pull(&x.c, &pull);
    ck_assert_uint_eq(count_batches(&x.c, &first), 1);
    ck_assert_int_eq(r->partitions[0]->high_watermark, 2);
    pull.entries[0].offset = 1;
    pull.max_wait_ms = 10;
    r = raw_pull(&x.c, &pull);
    ck_assert_uint_eq(x.c.records_bytes, 0);
    ck_assert_int_eq(status_of(r->partitions[0]), 0);
    ck_assert_int_eq(partition_flush(p), 0);
    raw_pull(&x.c, &pull);
    ck_assert_uint_eq(count_batches(&x.c, &first), 1);
    ck_assert_int_eq(first, 1);
    end(&x);
}
END_TEST

START_TEST(an_offset_outside_the_log_is_told_with_the_marks)
{
    struct case_ x;
    struct raw_pull pull;
    begin(&x, 1);
    raw_produce(&x.writer, &x.t, 0, 100);
    raw_pull_init(&pull, &x.t, 0, 2);
    pull.max_wait_ms = 20000; /* errors do not wait */
    Brook__PullResponse *r = raw_pull(&x.c, &pull);
    ck_assert_int_eq(status_of(r->partitions[0]), BROOK_E_OFFSET_OUT_OF_RANGE);
    ck_assert_int_eq(r->partitions[0]->log_end_offset, 1);
    ck_assert_ptr_nonnull(
        memmem(r->partitions[0]->status->text.data, r->partitions[0]->status->text.len, "t/0", 3));
    end(&x);
}
END_TEST

START_TEST(a_batch_larger_than_asked_for_comes_all_the_same)
{
    static const uint32_t limits[] = {0, 1, 100, 99999};
    struct case_ x;
    struct raw_pull pull;
    int64_t first;
    begin(&x, 1);
    raw_produce(&x.writer, &x.t, 0, 100000);
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        raw_pull_init(&pull, &x.t, 0, 0);
        pull.max_bytes = limits[i];
        raw_pull(&x.c, &pull);
        ck_assert_uint_eq(count_batches(&x.c, &first), 1);
        raw_pull_init(&pull, &x.t, 0, 0);
        pull.entries[0].max_bytes = limits[i];
        raw_pull(&x.c, &pull);
        ck_assert_uint_eq(count_batches(&x.c, &first), 1);
    }
    end(&x);
}
END_TEST

START_TEST(a_long_poll_wakes_when_another_loop_appends)
{
    struct case_ x;
    struct raw_pull pull;
    int64_t first;
    begin(&x, 1);
    for (int64_t i = 0; i < 50; i++) {
        raw_pull_init(&pull, &x.t, 0, i);
        pull.max_wait_ms = 20000;
        raw_send_pull(&x.c, &pull);
        if (i % 10 == 0)
            ck_assert(raw_is_silent(&x.c, 30));
        raw_produce(&x.writer, &x.t, 0, 100);
        int64_t began = clock_boot_ms();
        ck_assert_int_eq(raw_status(raw_receive(&x.c)), 0);
        ck_assert_int_lt(clock_boot_ms() - began, 10000);
        ck_assert_uint_eq(count_batches(&x.c, &first), 1);
        ck_assert_int_eq(first, i);
    }
    end(&x);
}
END_TEST

START_TEST(a_long_poll_ends_at_its_time_and_not_before)
{
    struct case_ x;
    struct raw_pull pull;
    begin(&x, 1);
    raw_pull_init(&pull, &x.t, 0, 0);
    pull.max_wait_ms = 120;
    int64_t began = clock_boot_ms();
    Brook__PullResponse *r = raw_pull(&x.c, &pull);
    ck_assert_int_ge(clock_boot_ms() - began, 119);
    ck_assert_uint_eq(x.c.records_bytes, 0);
    ck_assert_uint_eq(r->n_partitions, 1); /* the marks, which it did not know */
    ck_assert_int_eq(r->partitions[0]->high_watermark, 0);
    end(&x);
}
END_TEST

START_TEST(waiting_is_capped)
{
    struct case_ x;
    struct raw_pull pull;
    rig_prepare(&x.rig);
    x.rig.handler_settings.pull_wait_ms_max = 50;
    x.t = fake_cluster_add_topic(x.rig.cluster, "t", 1);
    rig_start(&x.rig);
    raw_open(&x.c, x.rig.port);
    raw_open(&x.writer, x.rig.port);
    raw_pull_init(&pull, &x.t, 0, 0);
    pull.max_wait_ms = UINT32_MAX;
    raw_pull(&x.c, &pull);
    end(&x);
}
END_TEST

START_TEST(min_bytes_waits_for_enough)
{
    struct case_ x;
    struct raw_pull pull;
    int64_t first;
    begin(&x, 2);
    raw_pull_init(&pull, &x.t, 0, 0);
    pull.entries[1] = pull.entries[0];
    pull.entries[1].partition = 1;
    pull.count = 2;
    pull.max_wait_ms = 20000;
    pull.min_bytes = 1000;
    raw_send_pull(&x.c, &pull);
    for (int i = 0; i < 4; i++) {
        raw_produce(&x.writer, &x.t, i % 2, 150);
        ck_assert(raw_is_silent(&x.c, 30));
    }
    raw_produce(&x.writer, &x.t, 0, 500);
    ck_assert_int_eq(raw_status(raw_receive(&x.c)), 0);
    ck_assert_uint_ge(x.c.records_bytes, 1000);
    ck_assert_uint_eq(count_batches(&x.c, &first), 5);
    /* and at its time with what there is */
    pull.entries[0].offset = 2;
    pull.entries[1].offset = 2;
    pull.max_wait_ms = 60;
    raw_pull(&x.c, &pull);
    ck_assert_uint_gt(x.c.records_bytes, 0);
    ck_assert_uint_lt(x.c.records_bytes, 1000);
    end(&x);
}
END_TEST

START_TEST(cold_records_are_read_and_sent)
{
    struct case_ x;
    struct raw_pull pull;
    int64_t first;
    begin(&x, 1);
    for (int i = 0; i < 6; i++)
        raw_produce(&x.writer, &x.t, 0, 900000);
    struct log *log = partition_log(fake_cluster_partition(x.rig.cluster, "t", 0));
    raw_pull_init(&pull, &x.t, 0, 0);
    pull.max_bytes = pull.entries[0].max_bytes = 4 << 20;
    for (int round = 0; round < 5; round++) {
        struct log_range range;
        ck_assert_int_eq(log_flush(log), 0);
        ck_assert_int_eq(log_read(log, 0, 1, 1 << 20, true, 1 << 20, &range), 0);
        posix_fadvise(range.fd, 0, 0, POSIX_FADV_DONTNEED);
        log_range_done(&range);
        raw_send_pull(&x.c, &pull);
        if (round == 3) { /* leaves while the disk is read */
            raw_close(&x.c);
            raw_open(&x.c, x.rig.port);
            continue;
        }
        ck_assert_int_eq(raw_status(raw_receive(&x.c)), 0);
        ck_assert_uint_eq(count_batches(&x.c, &first), 4);
        ck_assert_int_eq(first, 0);
    }
    end(&x);
}
END_TEST

/* ---- sessions ------------------------------------------------------------------------------------------ */

static void session_init(struct raw_pull *pull, struct case_ *x, size_t partitions)
{
    raw_pull_init(pull, &x->t, 0, 0);
    pull->session_epoch = 0;
    pull->count = partitions;
    for (size_t i = 1; i < partitions; i++) {
        pull->entries[i] = pull->entries[0];
        pull->entries[i].partition = (int32_t)i;
    }
}

START_TEST(a_session_names_only_what_changed)
{
    struct case_ x;
    struct raw_pull pull;
    int64_t first;
    begin(&x, 3);
    raw_produce(&x.writer, &x.t, 1, 100);
    session_init(&pull, &x, 3);
    Brook__PullResponse *r = raw_pull(&x.c, &pull);
    ck_assert_uint_ne(r->session_id, 0);
    ck_assert_uint_eq(r->n_partitions, 3); /* all marks are news */
    ck_assert_uint_eq(count_batches(&x.c, &first), 1);
    pull.session_id = r->session_id;
    pull.session_epoch = 1;
    pull.count = 1;
    pull.entries[0].partition = 1;
    pull.entries[0].offset = 1;
    r = raw_pull(&x.c, &pull);
    ck_assert_uint_eq(r->n_partitions, 0); /* nothing moved */
    raw_produce(&x.writer, &x.t, 2, 100);
    pull.session_epoch = 2;
    pull.count = 0;
    pull.max_wait_ms = 10000; /* should the wake-up still be on its way */
    r = raw_pull(&x.c, &pull);
    ck_assert_uint_eq(r->n_partitions, 1);
    ck_assert_int_eq(r->partitions[0]->partition, 2);
    ck_assert_int_eq(r->partitions[0]->high_watermark, 1);
    ck_assert_uint_eq(count_batches(&x.c, &first), 1);
    end(&x);
}
END_TEST

/* A second pull may be under way before the client has seen the first one's answer. */
START_TEST(what_was_sent_is_not_sent_again_before_it_is_named_again)
{
    struct case_ x;
    struct raw_pull pull;
    int64_t first;
    begin(&x, 3);
    for (int32_t i = 0; i < 3; i++)
        raw_produce(&x.writer, &x.t, i, 100);
    session_init(&pull, &x, 3);
    pull.session_id = raw_pull(&x.c, &pull)->session_id;
    ck_assert_uint_eq(count_batches(&x.c, &first), 3);
    pull.count = 0;
    pull.session_epoch = 1;
    raw_pull(&x.c, &pull);
    ck_assert_uint_eq(x.c.records_bytes, 0);
    raw_produce(&x.writer, &x.t, 0, 100); /* nor does what comes behind it make it awake */
    pull.session_epoch = 2;
    raw_pull(&x.c, &pull);
    ck_assert_uint_eq(x.c.records_bytes, 0);
    /* Named where it was: all of it again. Named behind: the rest. */
    pull.session_epoch = 3;
    pull.count = 1;
    raw_pull(&x.c, &pull);
    ck_assert_uint_eq(count_batches(&x.c, &first), 2);
    pull.session_epoch = 4;
    pull.entries[0].offset = 1;
    raw_pull(&x.c, &pull);
    ck_assert_uint_eq(count_batches(&x.c, &first), 1);
    ck_assert_int_eq(first, 1);
    end(&x);
}
END_TEST

/* Its waiter was registered while there was too little for an answer. */
START_TEST(what_waited_for_more_rests_too_once_it_is_sent)
{
    struct case_ x;
    struct raw_pull pull;
    int64_t first;
    begin(&x, 2);
    raw_produce(&x.writer, &x.t, 0, 100);
    session_init(&pull, &x, 2);
    pull.min_bytes = 1000;
    pull.max_wait_ms = 20000;
    raw_send_pull(&x.c, &pull);
    ck_assert(raw_is_silent(&x.c, 50));
    raw_produce(&x.writer, &x.t, 1, 2000);
    pull.session_id = raw_receive(&x.c)->pull->session_id;
    ck_assert_uint_eq(count_batches(&x.c, &first), 2);
    raw_produce(&x.writer, &x.t, 0, 2000);
    pull.session_epoch = 1;
    pull.count = 0;
    pull.max_wait_ms = 100;
    raw_pull(&x.c, &pull);
    ck_assert_uint_eq(x.c.records_bytes, 0);
    end(&x);
}
END_TEST

START_TEST(what_is_forgotten_is_not_sent_any_more)
{
    struct case_ x;
    struct raw_pull pull;
    begin(&x, 2);
    session_init(&pull, &x, 2);
    pull.session_id = raw_pull(&x.c, &pull)->session_id;
    pull.session_epoch = 1;
    pull.count = 0;
    pull.forget_count = 1;
    pull.forget[0] = pull.entries[0];
    raw_pull(&x.c, &pull);
    raw_produce(&x.writer, &x.t, 0, 100);
    raw_produce(&x.writer, &x.t, 1, 100);
    pull.session_epoch = 2;
    pull.forget_count = 0;
    pull.max_wait_ms = 10000;
    Brook__PullResponse *r = raw_pull(&x.c, &pull);
    ck_assert_uint_eq(r->n_partitions, 1);
    ck_assert_int_eq(r->partitions[0]->partition, 1);
    end(&x);
}
END_TEST

static int pull_status(struct raw_client *c, const struct raw_pull *pull)
{
    raw_send_pull(c, pull);
    Brook__Response *r = raw_receive(c);
    ck_assert_ptr_nonnull(r);
    return raw_status(r);
}

START_TEST(session_ids_and_epochs_are_checked)
{
    struct case_ x;
    struct raw_pull pull;
    begin(&x, 1);
    session_init(&pull, &x, 1);
    uint32_t id = raw_pull(&x.c, &pull)->session_id;
    pull.session_id = id + 100;
    pull.session_epoch = 1;
    ck_assert_int_eq(pull_status(&x.c, &pull), BROOK_E_UNKNOWN_PULL_SESSION);
    pull.session_id = id;
    pull.session_epoch = 2;
    ck_assert_int_eq(pull_status(&x.c, &pull), BROOK_E_BAD_PULL_SESSION_EPOCH);
    pull.session_epoch = -2;
    ck_assert_int_eq(pull_status(&x.c, &pull), BROOK_E_BAD_PULL_SESSION_EPOCH);
    pull.session_id = 0;
    pull.session_epoch = 3;
    ck_assert_int_eq(pull_status(&x.c, &pull), BROOK_E_BAD_PULL_SESSION_EPOCH);
    pull.session_id = id;
    pull.session_epoch = 1;
    ck_assert_int_eq(pull_status(&x.c, &pull), 0); /* the faults above have not moved it */
    ck_assert_int_eq(pull_status(&x.c, &pull), BROOK_E_BAD_PULL_SESSION_EPOCH);
    /* a session is its connection's */
    pull.session_epoch = 2;
    ck_assert_int_eq(pull_status(&x.writer, &pull), BROOK_E_UNKNOWN_PULL_SESSION);
    /* begun anew under epoch 0, ended by epoch -1 */
    pull.session_epoch = 0;
    id = raw_pull(&x.c, &pull)->session_id;
    pull.session_id = id;
    pull.session_epoch = -1;
    ck_assert_uint_eq(raw_pull(&x.c, &pull)->session_id, 0);
    pull.session_epoch = 1;
    ck_assert_int_eq(pull_status(&x.c, &pull), BROOK_E_UNKNOWN_PULL_SESSION);
    end(&x);
}
END_TEST

START_TEST(a_newer_pull_supersedes_the_parked_one)
{
    struct case_ x;
    struct raw_pull pull;
    begin(&x, 1);
    session_init(&pull, &x, 1);
    pull.session_id = raw_pull(&x.c, &pull)->session_id;
    pull.session_epoch = 1;
    pull.count = 0;
    pull.max_wait_ms = 20000;
    raw_send_pull(&x.c, &pull);
    uint64_t parked = x.c.correlation_id;
    ck_assert(raw_is_silent(&x.c, 30));
    pull.session_epoch = 2;
    raw_send_pull(&x.c, &pull);
    Brook__Response *r = raw_receive(&x.c);
    ck_assert_uint_eq(r->correlation_id, parked);
    ck_assert_int_eq(raw_status(r), BROOK_E_SUPERSEDED);
    ck_assert(raw_is_silent(&x.c, 30));
    raw_produce(&x.writer, &x.t, 0, 10);
    r = raw_receive(&x.c);
    ck_assert_uint_eq(r->correlation_id, parked + 1);
    ck_assert_uint_eq(r->pull->n_partitions, 1);
    end(&x);
}
END_TEST

START_TEST(the_oldest_parked_pull_makes_room_for_the_newest)
{
    struct case_ x;
    struct raw_pull pull;
    begin(&x, 1);
    raw_pull_init(&pull, &x.t, 0, 0);
    pull.max_wait_ms = 20000;
    uint64_t first = x.c.correlation_id + 1;
    for (int i = 0; i < 8; i++)
        raw_send_pull(&x.c, &pull);
    ck_assert(raw_is_silent(&x.c, 50));
    raw_send_pull(&x.c, &pull);
    Brook__Response *r = raw_receive(&x.c);
    ck_assert_uint_eq(r->correlation_id, first);
    ck_assert_int_eq(raw_status(r), 0);
    ck_assert_uint_eq(x.c.records_bytes, 0);
    raw_produce(&x.writer, &x.t, 0, 10);
    for (int i = 0; i < 8; i++)
        ck_assert_int_eq(raw_status(raw_receive(&x.c)), 0);
    end(&x);
}
END_TEST

START_TEST(the_oldest_session_makes_room_for_the_newest)
{
    struct case_ x;
    struct raw_pull pull;
    uint32_t ids[5];
    begin(&x, 1);
    for (int i = 0; i < 5; i++) {
        session_init(&pull, &x, 1);
        ids[i] = raw_pull(&x.c, &pull)->session_id;
        for (int j = 0; j < i; j++)
            ck_assert_uint_ne(ids[i], ids[j]);
    }
    pull.session_epoch = 1;
    pull.session_id = ids[0];
    ck_assert_int_eq(pull_status(&x.c, &pull), BROOK_E_UNKNOWN_PULL_SESSION);
    pull.session_id = ids[1];
    ck_assert_int_eq(pull_status(&x.c, &pull), 0);
    end(&x);
}
END_TEST

/* 64 partitions with a backlog of 8 batches each, room for 2 batches in a pull. */
START_TEST(every_partition_is_served_in_turn)
{
    enum { PARTITIONS = 64 };
    struct case_ x;
    struct raw_pull pull;
    int64_t offsets[PARTITIONS] = {0};
    begin(&x, PARTITIONS);
    for (int32_t i = 0; i < PARTITIONS * 8; i++)
        raw_produce(&x.writer, &x.t, i % PARTITIONS, 1000);
    session_init(&pull, &x, PARTITIONS);
    pull.max_bytes = 2200;
    for (int32_t epoch = 1; epoch <= 64; epoch++) {
        Brook__PullResponse *r = raw_pull(&x.c, &pull);
        size_t at = 0;
        pull.session_id = r->session_id;
        pull.session_epoch = epoch;
        pull.count = 0;
        for (size_t i = 0; i < r->n_partitions; i++) {
            const Brook__PulledPartition *p = r->partitions[i];
            struct batch_header h;
            for (size_t used = 0;
                 used < p->records_bytes &&
                 batch_read_header(x.c.records + at + used, p->records_bytes - used, &h) == 0;
                 used += h.total_bytes)
                offsets[p->partition] = batch_last_offset(&h) + 1;
            at += p->records_bytes;
            if (!p->records_bytes)
                continue;
            pull.entries[pull.count] =
                (struct raw_pull_entry){&x.t, p->partition, offsets[p->partition], 1 << 20, -1, -1};
            pull.count++;
        }
        ck_assert_uint_gt(at, 0);
    }
    for (int i = 0; i < PARTITIONS; i++)
        ck_assert_msg(offsets[i] > 0, "partition %d was never served", i);
    end(&x);
}
END_TEST

START_TEST(a_parked_pull_hears_that_leading_has_ended)
{
    struct case_ x;
    struct raw_pull pull;
    begin(&x, 2);
    session_init(&pull, &x, 2);
    pull.session_id = raw_pull(&x.c, &pull)->session_id;
    pull.session_epoch = 1;
    pull.count = 0;
    pull.max_wait_ms = 20000;
    raw_send_pull(&x.c, &pull);
    ck_assert(raw_is_silent(&x.c, 30));
    fake_cluster_set_leader(x.rig.cluster, "t", 1, 2, 7);
    Brook__Response *r = raw_receive(&x.c);
    ck_assert_uint_eq(r->pull->n_partitions, 1);
    ck_assert_int_eq(r->pull->partitions[0]->partition, 1);
    ck_assert_int_eq(status_of(r->pull->partitions[0]), BROOK_E_NOT_LEADER);
    end(&x);
}
END_TEST

START_TEST(epochs_of_leaders_are_compared)
{
    struct case_ x;
    struct raw_pull pull;
    begin(&x, 1);
    fake_cluster_set_leader(x.rig.cluster, "t", 0, FAKE_CLUSTER_BROKER, 5);
    fake_cluster_settle(x.rig.cluster);
    raw_pull_init(&pull, &x.t, 0, 0);
    pull.entries[0].current_epoch = 4;
    ck_assert_int_eq(status_of(raw_pull(&x.c, &pull)->partitions[0]), BROOK_E_FENCED_EPOCH);
    pull.entries[0].current_epoch = 6;
    ck_assert_int_eq(status_of(raw_pull(&x.c, &pull)->partitions[0]), BROOK_E_UNKNOWN_EPOCH);
    pull.entries[0].current_epoch = 5;
    ck_assert_int_eq(status_of(raw_pull(&x.c, &pull)->partitions[0]), 0);
    end(&x);
}
END_TEST

static const Brook__PulledPartition *pull_after(struct case_ *x, int64_t offset, int32_t last_epoch,
                                                int32_t current_epoch)
{
    struct raw_pull pull;
    raw_pull_init(&pull, &x->t, 0, offset);
    pull.entries[0].last_epoch = last_epoch;
    pull.entries[0].current_epoch = current_epoch;
    return raw_pull(&x->c, &pull)->partitions[0];
}

static void expect_parted(struct case_ *x, int64_t offset, int32_t last_epoch, int32_t epoch, int64_t end)
{
    const Brook__PulledPartition *part = pull_after(x, offset, last_epoch, 5);
    ck_assert_int_eq(status_of(part), BROOK_E_LOG_DIVERGED);
    ck_assert_int_eq(part->diverged_epoch, epoch);
    ck_assert_int_eq(part->diverged_at, end);
    ck_assert_uint_eq(part->records_bytes, 0);
}

/* Four records of epoch 1, four of epoch 5. */
START_TEST(a_consumer_that_has_read_another_log_is_told_where_they_part)
{
    struct case_ x;
    begin(&x, 1);
    for (int i = 0; i < 4; i++)
        raw_produce(&x.writer, &x.t, 0, 10);
    fake_cluster_set_leader(x.rig.cluster, "t", 0, FAKE_CLUSTER_BROKER, 5);
    fake_cluster_settle(x.rig.cluster);
    for (int i = 0; i < 4; i++)
        raw_produce(&x.writer, &x.t, 0, 10);

    ck_assert_int_eq(status_of(pull_after(&x, 3, 1, 5)), 0);
    ck_assert_int_eq(status_of(pull_after(&x, 4, 1, 5)), 0);
    ck_assert_int_eq(status_of(pull_after(&x, 5, 5, 5)), 0);
    ck_assert_int_eq(status_of(pull_after(&x, 8, 5, 5)), 0);
    ck_assert_int_eq(status_of(pull_after(&x, 5, -1, 5)), 0); /* it does not know */
    ck_assert_int_eq(status_of(pull_after(&x, 0, 3, 5)), 0);  /* nothing is before that */
    expect_parted(&x, 5, 1, 1, 4);  /* it has read more of epoch 1 than there is */
    expect_parted(&x, 3, 5, 5, 8);
    expect_parted(&x, 6, 3, 1, 4);
    expect_parted(&x, 9, 5, 5, 8);  /* the log is shorter */
    expect_parted(&x, 20, 7, 5, 8);
    expect_parted(&x, 3, 0, -1, 0);
    ck_assert_int_eq(status_of(pull_after(&x, 9, -1, 5)), BROOK_E_OFFSET_OUT_OF_RANGE);

    fake_cluster_set_leader(x.rig.cluster, "t", 0, 2, 6);
    ck_assert_int_eq(partition_follow(fake_cluster_partition(x.rig.cluster, "t", 0), 6), 0);
    fake_cluster_settle(x.rig.cluster);
    ck_assert_int_eq(status_of(pull_after(&x, 5, 1, 6)), BROOK_E_OFFSET_NOT_AVAILABLE); /* the leader may say more */
    end(&x);
}
END_TEST

/* As the fetcher does with what a leader sends. */
static void replicate(struct partition *p, const void *record, size_t bytes, int64_t offset, int64_t high_watermark)
{
    struct log_batch b = {.data = (uint8_t *)(uintptr_t)record};
    struct brook_error error;
    if (bytes) {
        batch_patch(b.data, offset, 2);
        ck_assert_int_eq(batch_read_header(b.data, bytes, &b.header), 0);
    }
    ck_assert_int_eq(partition_append_replicated(p, 2, &b, bytes ? 1 : 0, high_watermark, &error), 0);
}

START_TEST(a_follower_serves_consumers_below_its_mark_and_says_nothing_about_ranges)
{
    struct case_ x;
    struct raw_pull pull;
    uint8_t record[512];
    begin(&x, 1);
    struct partition *p = fake_cluster_partition(x.rig.cluster, "t", 0);
    for (int i = 0; i < 4; i++)
        raw_produce(&x.writer, &x.t, 0, 10);
    fake_cluster_set_leader(x.rig.cluster, "t", 0, 2, 2);
    ck_assert_int_eq(partition_follow(p, 2), 0);
    fake_cluster_settle(x.rig.cluster);
    replicate(p, record, raw_batch(record, sizeof record, 1, 10), 4, 4);

    raw_pull_init(&pull, &x.t, 0, 0);
    ck_assert_int_eq(status_of(raw_pull(&x.c, &pull)->partitions[0]), BROOK_E_NOT_LEADER); /* it takes us for that */
    pull.entries[0].current_epoch = 1;
    ck_assert_int_eq(status_of(raw_pull(&x.c, &pull)->partitions[0]), BROOK_E_FENCED_EPOCH);
    pull.entries[0].current_epoch = 3;
    ck_assert_int_eq(status_of(raw_pull(&x.c, &pull)->partitions[0]), BROOK_E_UNKNOWN_EPOCH);
    pull.entries[0].current_epoch = 2;
    const Brook__PulledPartition *part = raw_pull(&x.c, &pull)->partitions[0];
    ck_assert_int_eq(status_of(part), 0);
    ck_assert_int_eq(part->high_watermark, 4);
    ck_assert_uint_gt(part->records_bytes, 0);
    pull.entries[0].offset = 6;
    ck_assert_int_eq(status_of(raw_pull(&x.c, &pull)->partitions[0]), BROOK_E_OFFSET_NOT_AVAILABLE);

    /* One that waits is told when the leader's mark has passed the record. */
    pull.entries[0].offset = 4;
    pull.max_wait_ms = 20000;
    ck_assert(!partition_has_readers(p));
    raw_send_pull(&x.c, &pull);
    ck_assert(raw_is_silent(&x.c, 100));
    ck_assert(partition_has_readers(p));
    replicate(p, NULL, 0, 5, 5);
    Brook__Response *response = raw_receive(&x.c);
    ck_assert_int_eq(raw_status(response), 0);
    ck_assert_uint_gt(response->pull->partitions[0]->records_bytes, 0);
    ck_assert(partition_has_readers(p)); /* it has waited */
    ck_assert(!partition_has_readers(p));
    end(&x);
}
END_TEST

START_TEST(half_a_follower_is_refused)
{
    struct case_ x;
    begin(&x, 1);
    for (int field = 0; field < 3; field++) {
        Brook__Request request = BROOK__REQUEST__INIT;
        Brook__PullRequest pull = BROOK__PULL_REQUEST__INIT;
        Brook__PullPartition entry = BROOK__PULL_PARTITION__INIT, *entries = &entry;
        entry.has_topic_id = entry.has_partition = entry.has_offset = true;
        entry.topic_id = envelope_bytes(x.t.bytes, 16);
        entry.partition = 0;
        entry.offset = 0;
        pull.n_partitions = 1;
        pull.partitions = &entries;
        if (field == 0)
            pull.has_replica_id = true, pull.replica_id = 2;
        else if (field == 1)
            pull.has_broker_epoch = true, pull.broker_epoch = 2;
        else
            entry.has_safe_end = true, entry.safe_end = 2;
        request.body_case = BROOK__REQUEST__BODY_PULL;
        request.pull = &pull;
        ck_assert_int_eq(raw_status(raw_ask(&x.c, &request, NULL, 0)), BROOK_E_INVALID);
    }
    end(&x);
}
END_TEST

START_TEST(nonsense_in_a_pull_is_refused)
{
    struct case_ x;
    struct raw_pull pull;
    begin(&x, 1);
    raw_pull_init(&pull, &x.t, 0, -5);
    ck_assert_int_eq(pull_status(&x.c, &pull), BROOK_E_INVALID);
    raw_pull_init(&pull, &x.t, 9, 0);
    ck_assert_int_eq(status_of(raw_pull(&x.c, &pull)->partitions[0]), BROOK_E_UNKNOWN_PARTITION);
    end(&x);
}
END_TEST

/* Parked pulls of many clients on idle partitions, dropped at random: nothing stays behind. */
START_TEST(clients_that_leave_take_their_waiters_along)
{
    struct case_ x;
    uint64_t random = suite_seed();
    begin(&x, 20);
    for (int round = 0; round < 30; round++) {
        struct raw_client clients[10];
        for (int i = 0; i < 10; i++) {
            struct raw_pull pull;
            raw_open(&clients[i], x.rig.port);
            session_init(&pull, &x, 20);
            pull.max_wait_ms = 20000;
            raw_send_pull(&clients[i], &pull);
        }
        if (suite_random_below(&random, 2))
            raw_produce(&x.writer, &x.t, (int32_t)suite_random_below(&random, 20), 10);
        for (int i = 0; i < 10; i++) {
            struct linger reset = {.l_onoff = (int)suite_random_below(&random, 2)};
            setsockopt(clients[i].fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
            raw_close(&clients[i]);
        }
    }
    ck_assert(rig_wait_connections(&x.rig, 2, 5000));
    for (int32_t i = 0; i < 20; i++)
        raw_produce(&x.writer, &x.t, i, 10); /* wakes whoever is left: a dangling waiter would be used here */
    end(&x);
}
END_TEST

struct churn {
    struct case_ *x;
    _Atomic bool stop;
};

static void *produce_on(void *arg)
{
    struct churn *churn = arg;
    struct raw_client c;
    uint64_t random = 7;
    raw_open(&c, churn->x->rig.port);
    while (!churn->stop)
        raw_produce(&c, &churn->x->t, (int32_t)suite_random_below(&random, 8), 10);
    raw_close(&c);
    return NULL;
}

/* A reader of a session that sees every offset of every partition once and in order while two loops write. */
START_TEST(a_session_misses_nothing_while_others_write)
{
    struct case_ x;
    struct raw_pull pull;
    int64_t offsets[8] = {0}, seen = 0;
    pthread_t threads[2];
    begin(&x, 8);
    struct churn churn = {.x = &x};
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, produce_on, &churn);
    session_init(&pull, &x, 8);
    pull.max_wait_ms = 5000;
    pull.max_bytes = 3000;
    for (int32_t epoch = 1; seen < 3000; epoch++) {
        Brook__PullResponse *r = raw_pull(&x.c, &pull);
        const uint8_t *at = x.c.records;
        ck_assert_uint_gt(x.c.records_bytes,
                          0); /* a wake-up that is lost waits five seconds and brings nothing */
        pull.session_id = r->session_id;
        pull.session_epoch = epoch;
        pull.count = 0;
        for (size_t i = 0; i < r->n_partitions; i++) {
            const Brook__PulledPartition *p = r->partitions[i];
            struct batch_header h;
            const uint8_t *stop = at + p->records_bytes;
            ck_assert_int_eq(status_of(p), 0);
            for (; at < stop && batch_read_header(at, (size_t)(stop - at), &h) == 0; at += h.total_bytes) {
                ck_assert_int_eq(h.base_offset, offsets[p->partition]);
                offsets[p->partition] = batch_last_offset(&h) + 1;
                seen++;
            }
            at = stop;
            pull.entries[pull.count++] =
                (struct raw_pull_entry){&x.t, p->partition, offsets[p->partition], 1 << 20, -1, -1};
        }
    }
    churn.stop = true;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    end(&x);
}
END_TEST

SUITE_MAIN("broker/pull", SUITE_TEST(records_come_back_as_they_were_written),
           SUITE_TEST(an_offset_outside_the_log_is_told_with_the_marks),
           SUITE_TEST(a_batch_larger_than_asked_for_comes_all_the_same),
           SUITE_TEST(a_long_poll_wakes_when_another_loop_appends),
           SUITE_TEST(a_long_poll_ends_at_its_time_and_not_before), SUITE_TEST(waiting_is_capped),
           SUITE_TEST(with_interval_only_what_is_flushed_is_pulled),
           SUITE_TEST(min_bytes_waits_for_enough), SUITE_TEST(cold_records_are_read_and_sent),
           SUITE_TEST(a_session_names_only_what_changed),
           SUITE_TEST(what_was_sent_is_not_sent_again_before_it_is_named_again),
           SUITE_TEST(what_waited_for_more_rests_too_once_it_is_sent),
           SUITE_TEST(what_is_forgotten_is_not_sent_any_more), SUITE_TEST(session_ids_and_epochs_are_checked),
           SUITE_TEST(a_newer_pull_supersedes_the_parked_one),
           SUITE_TEST(the_oldest_parked_pull_makes_room_for_the_newest),
           SUITE_TEST(the_oldest_session_makes_room_for_the_newest),
           SUITE_TEST(every_partition_is_served_in_turn),
           SUITE_TEST(a_parked_pull_hears_that_leading_has_ended), SUITE_TEST(epochs_of_leaders_are_compared),
           SUITE_TEST(a_consumer_that_has_read_another_log_is_told_where_they_part),
           SUITE_TEST(a_follower_serves_consumers_below_its_mark_and_says_nothing_about_ranges),
           SUITE_TEST(half_a_follower_is_refused), SUITE_TEST(nonsense_in_a_pull_is_refused),
           SUITE_TEST(clients_that_leave_take_their_waiters_along),
           SUITE_TEST(a_session_misses_nothing_while_others_write))
