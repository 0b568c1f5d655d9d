/* Pulls of what is not in the page cache: cached reads fail, and reads of the disk wait until they are let
 * go. */
#include "broker/partition/partition.h"
#include "proto/record/batch.h"
#include "tests/support/faulty_io.h"
#include "tests/support/rig.h"
#include "tests/support/suite.h"

#include <errno.h>

#define ALWAYS 1000000
/* More than a log's tail in memory covers. */
#define BATCHES 200

struct case_ {
    struct rig rig;
    struct topic_id t;
    struct raw_client c;
    struct raw_client other; /* on the same loop: there is one */
};

static void begin(struct case_ *x)
{
    faulty_reset();
    rig_prepare(&x->rig);
    x->rig.net_settings.threads_count = 1;
    x->t = fake_cluster_add_topic(x->rig.cluster, "t", 2);
    rig_start(&x->rig);
    raw_open(&x->c, x->rig.port);
    raw_open(&x->other, x->rig.port);
    for (int i = 0; i < BATCHES; i++)
        raw_produce(&x->c, &x->t, 0, 1000);
    faulty_fail(FAULTY_PREAD_CACHED, 1, ALWAYS, EAGAIN);
    faulty_stall(FAULTY_PREAD);
}

static void end(struct case_ *x)
{
    raw_close(&x->c);
    raw_close(&x->other);
    rig_stop(&x->rig);
    faulty_reset();
}

static bool one_is_stalled(void *arg)
{
    (void)arg;
    return faulty_stalled() == 1;
}

static int64_t first_offset(const struct raw_client *c)
{
    struct batch_header h;
    ck_assert_int_eq(batch_read_header(c->records, c->records_bytes, &h), 0);
    return h.base_offset;
}

static void expect_from(struct case_ *x, int64_t offset)
{
    Brook__Response *r = raw_receive(&x->c);
    ck_assert_int_eq(raw_status(r), 0);
    ck_assert_uint_eq(r->pull->n_partitions, 1);
    ck_assert_int_eq(first_offset(&x->c), offset);
}

START_TEST(a_cold_reader_stalls_nobody_else)
{
    suite_use_disk();
    static const uint32_t waits_ms[] = {0, 20, 20000};
    struct case_ x;
    struct raw_pull pull;
    begin(&x);
    for (size_t i = 0; i < 3; i++) {
        faulty_stall(FAULTY_PREAD);
        raw_pull_init(&pull, &x.t, 0, 5);
        pull.max_wait_ms = waits_ms[i];
        raw_send_pull(&x.c, &pull);
        ck_assert(suite_wait(one_is_stalled, NULL, 5000));
        /* The loop goes on; and the pull is not told that there is nothing. */
        raw_produce(&x.other, &x.t, 1, 100);
        ck_assert(raw_is_silent(&x.c, 50));
        ck_assert_int_eq(faulty_stalled(), 1);
        faulty_release();
        expect_from(&x, 5);
    }
    end(&x);
}
END_TEST

START_TEST(a_cold_reader_delays_no_reader_at_the_tail_of_its_loop)
{
    suite_use_disk();
    struct case_ x;
    struct raw_pull cold, tail;
    begin(&x);
    raw_pull_init(&cold, &x.t, 0, 5);
    cold.max_wait_ms = 20000;
    raw_send_pull(&x.c, &cold);
    ck_assert(suite_wait(one_is_stalled, NULL, 5000));
    for (int64_t i = 0; i < 100; i++) {
        raw_produce(&x.other, &x.t, 0, 100);
        raw_pull_init(&tail, &x.t, 0, BATCHES + i);
        Brook__PullResponse *r = raw_pull(&x.other, &tail);
        ck_assert_uint_eq(r->n_partitions, 1);
        ck_assert_int_eq(first_offset(&x.other), BATCHES + i);
    }
    ck_assert_int_eq(faulty_stalled(), 1);
    faulty_release();
    expect_from(&x, 5);
    end(&x);
}
END_TEST

/* The place was found in the page cache; the records are not there, which comes out when they are to be sent. */
START_TEST(records_that_are_cold_when_they_are_sent_delay_nobody_else)
{
    suite_use_disk();
    struct case_ x;
    struct raw_pull cold, tail;
    begin(&x);
    faulty_reset();
    raw_pull_init(&cold, &x.t, 0, 5);
    raw_pull(&x.c, &cold);
    int looks = faulty_calls(FAULTY_PREAD_CACHED); /* the last two of them at the records */
    ck_assert_int_gt(looks, 2);
    faulty_fail(FAULTY_PREAD_CACHED, looks - 1, ALWAYS, EAGAIN);
    faulty_stall(FAULTY_PREAD);
    raw_send_pull(&x.c, &cold);
    ck_assert(suite_wait(one_is_stalled, NULL, 5000));
    for (int64_t i = 0; i < 100; i++) {
        raw_produce(&x.other, &x.t, 1, 100);
        raw_pull_init(&tail, &x.t, 1, i);
        ck_assert_uint_eq(raw_pull(&x.other, &tail)->n_partitions, 1);
        ck_assert_int_eq(first_offset(&x.other), i);
    }
    ck_assert_int_eq(faulty_stalled(), 1);
    faulty_release();
    expect_from(&x, 5);
    end(&x);
}
END_TEST

START_TEST(a_cold_partition_holds_up_no_other_one_of_its_pull)
{
    suite_use_disk();
    struct case_ x;
    struct raw_pull pull;
    begin(&x);
    raw_pull_init(&pull, &x.t, 0, 5);
    pull.session_epoch = 0;
    pull.count = 2;
    pull.max_wait_ms = 20000;
    pull.entries[1] = pull.entries[0];
    pull.entries[1].partition = 1;
    pull.entries[1].offset = 0;
    raw_send_pull(&x.c, &pull);
    ck_assert(suite_wait(one_is_stalled, NULL, 5000));
    raw_produce(&x.other, &x.t, 1, 100);
    Brook__Response *r = raw_receive(&x.c);
    ck_assert_uint_eq(r->pull->n_partitions, 1);
    ck_assert_int_eq(r->pull->partitions[0]->partition, 1);
    ck_assert_int_eq(first_offset(&x.c), 0);
    /* The next pull finds the load under way, and moves on; what was loaded for is not sent. */
    pull.session_id = r->pull->session_id;
    pull.session_epoch = 1;
    pull.count = 1;
    pull.entries[0].offset = 7;
    raw_send_pull(&x.c, &pull);
    ck_assert(raw_is_silent(&x.c, 30));
    faulty_release();
    expect_from(&x, 7);
    end(&x);
}
END_TEST

START_TEST(who_leaves_or_stops_while_the_disk_is_read_harms_nobody)
{
    suite_use_disk();
    struct case_ x;
    struct raw_pull pull;
    begin(&x);
    raw_pull_init(&pull, &x.t, 0, 5);
    pull.max_wait_ms = 20000;
    raw_send_pull(&x.c, &pull);
    ck_assert(suite_wait(one_is_stalled, NULL, 5000));
    raw_close(&x.c);
    raw_produce(&x.other, &x.t, 1, 100);
    faulty_release();
    raw_open(&x.c, x.rig.port);
    raw_send_pull(&x.c, &pull);
    expect_from(&x, 5);
    raw_send_pull(&x.c, &pull);
    end(&x);
}
END_TEST

START_TEST(what_can_not_be_read_from_the_disk_is_told)
{
    suite_use_disk();
    struct case_ x;
    struct raw_pull pull;
    begin(&x);
    faulty_reset();
    faulty_fail(FAULTY_PREAD_CACHED | FAULTY_PREAD, 1, ALWAYS, EAGAIN);
    raw_pull_init(&pull, &x.t, 0, 5);
    pull.max_wait_ms = 20000;
    raw_send_pull(&x.c, &pull);
    Brook__Response *r = raw_receive(&x.c);
    ck_assert_uint_eq(r->pull->n_partitions, 1);
    ck_assert_int_eq(envelope_status_code(r->pull->partitions[0]->status), BROOK_E_STORAGE_ERROR);
    end(&x);
}
END_TEST

SUITE_MAIN("broker/cold_pull", SUITE_TEST(a_cold_reader_stalls_nobody_else),
           SUITE_TEST(a_cold_reader_delays_no_reader_at_the_tail_of_its_loop),
           SUITE_TEST(records_that_are_cold_when_they_are_sent_delay_nobody_else),
           SUITE_TEST(a_cold_partition_holds_up_no_other_one_of_its_pull),
           SUITE_TEST(who_leaves_or_stops_while_the_disk_is_read_harms_nobody),
           SUITE_TEST(what_can_not_be_read_from_the_disk_is_told))
