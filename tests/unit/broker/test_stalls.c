/* What a disk that hangs may hold up, and what it may not; and what reading at the tail costs. Two loops; connections
 * go to them in turn. */
#include "broker/partition/partition.h"
#include "proto/record/batch.h"
#include "tests/support/faulty_io.h"
#include "tests/support/rig.h"
#include "tests/support/suite.h"

#include <errno.h>

#define PULLS 50

struct case_ {
    struct rig rig;
    struct topic_id t;
    struct raw_client writer; /* on one loop */
    struct raw_client c;      /* on the other one */
};

static void begin(struct case_ *x)
{
    faulty_reset();
    rig_prepare(&x->rig);
    x->t = fake_cluster_add_topic(x->rig.cluster, "t", 2);
    rig_start(&x->rig);
    raw_open(&x->writer, x->rig.port);
    raw_open(&x->c, x->rig.port);
    for (int i = 0; i < PULLS; i++)
        raw_produce(&x->writer, &x->t, 0, 1000);
}

static void end(struct case_ *x)
{
    raw_close(&x->writer);
    raw_close(&x->c);
    rig_stop(&x->rig);
    faulty_reset();
}

static bool one_is_stalled(void *arg)
{
    (void)arg;
    return faulty_stalled() == 1;
}

static void pull_one(struct case_ *x, int32_t partition, int64_t offset)
{
    struct raw_pull pull;
    struct batch_header h;
    raw_pull_init(&pull, &x->t, partition, offset);
    pull.entries[0].max_bytes = 1;
    Brook__PullResponse *r = raw_pull(&x->c, &pull);
    ck_assert_uint_eq(r->n_partitions, 1);
    ck_assert_int_eq(envelope_status_code(r->partitions[0]->status), 0);
    ck_assert_int_eq(batch_read_header(x->c.records, x->c.records_bytes, &h), 0);
    ck_assert_int_eq(h.base_offset, offset);
    ck_assert_int_eq(batch_check_crc(x->c.records, &h), 0);
}

static void send_one(struct raw_client *c, const struct topic_id *t, int32_t partition)
{
    uint8_t batch[4096];
    raw_send_produce(c, t, partition, 1, batch, raw_batch(batch, sizeof batch, 1, 100));
}

/* All of this must be answered while the write hangs; its own loop and its own partition's writers wait. */
START_TEST(a_stalled_append_delays_no_reader_of_its_partition_and_no_other_loop)
{
    struct case_ x;
    begin(&x);
    faulty_only("t-0/");
    faulty_stall(FAULTY_PWRITEV);
    send_one(&x.writer, &x.t, 0);
    ck_assert(suite_wait(one_is_stalled, NULL, 5000));
    for (int64_t i = 0; i < PULLS; i++) {
        pull_one(&x, 0, i);
        ck_assert_int_eq(raw_produce(&x.c, &x.t, 1, 100), i);
        pull_one(&x, 1, i);
    }
    send_one(&x.c, &x.t, 0); /* queues up behind it, and its loop goes on */
    struct raw_pull pull;
    raw_pull_init(&pull, &x.t, 1, 0);
    raw_send_pull(&x.c, &pull);
    ck_assert_ptr_nonnull(raw_receive(&x.c)->pull);
    ck_assert_int_eq(faulty_stalled(), 1);
    int before = faulty_calls(FAULTY_PWRITEV);
    faulty_release();
    ck_assert_int_eq(raw_status(raw_receive(&x.writer)), 0);
    ck_assert_int_eq(x.writer.response->produce->partitions[0]->base_offset, PULLS);
    ck_assert_int_eq(raw_status(raw_receive(&x.c)), 0);
    ck_assert_int_eq(x.c.response->produce->partitions[0]->base_offset, PULLS + 1);
    ck_assert_int_eq(faulty_calls(FAULTY_PWRITEV) - before, 2);
    end(&x);
}
END_TEST

START_TEST(what_queues_up_behind_a_write_is_written_in_one)
{
    struct case_ x;
    begin(&x);
    faulty_only("t-0/");
    faulty_stall(FAULTY_PWRITEV);
    send_one(&x.writer, &x.t, 0);
    ck_assert(suite_wait(one_is_stalled, NULL, 5000));
    for (int i = 0; i < PULLS; i++)
        send_one(&x.c, &x.t, 0);
    raw_produce(&x.c, &x.t, 1, 100); /* behind them on its connection: they are queued */
    int before = faulty_calls(FAULTY_PWRITEV);
    faulty_release();
    ck_assert_int_eq(raw_status(raw_receive(&x.writer)), 0);
    for (int i = 0; i < PULLS; i++) {
        ck_assert_int_eq(raw_status(raw_receive(&x.c)), 0);
        ck_assert_int_eq(x.c.response->produce->partitions[0]->base_offset, PULLS + 1 + i);
    }
    ck_assert_int_eq(faulty_calls(FAULTY_PWRITEV) - before, 2);
    end(&x);
}
END_TEST

/* Neither index nor header nor page cache is asked, and no file is opened: what is left is sending. */
START_TEST(reading_at_the_tail_looks_at_no_file)
{
    struct case_ x;
    begin(&x);
    unsigned looks = FAULTY_OPEN | FAULTY_PREAD | FAULTY_PREAD_CACHED;
    pull_one(&x, 0, 0);
    int before = faulty_calls(looks);
    for (int64_t i = 0; i < PULLS; i++)
        pull_one(&x, 0, i);
    ck_assert_int_eq(faulty_calls(looks), before);
    for (int64_t i = 0; i < PULLS; i++) {
        raw_produce(&x.writer, &x.t, 0, 1000);
        pull_one(&x, 0, PULLS + i);
    }
    ck_assert_int_eq(faulty_calls(looks), before);
    end(&x);
}
END_TEST

SUITE_MAIN("broker/stalls", SUITE_TEST(a_stalled_append_delays_no_reader_of_its_partition_and_no_other_loop),
           SUITE_TEST(what_queues_up_behind_a_write_is_written_in_one),
           SUITE_TEST(reading_at_the_tail_looks_at_no_file))
