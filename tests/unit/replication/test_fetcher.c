/* A fetcher against a leader that answers what the test says, when it says. */
#include "broker/replication/fetcher.h"

#include "broker/partition/partition.h"
#include "broker/replication/replica.h"
#include "proto/base/diag.h"
#include "tests/support/stub_broker.h"
#include "tests/unit/storage/fixture.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define WAIT_MS 15000
/* Long enough for an order to go out as a pull meanwhile. */
#define HELD_MS 300

static const uint8_t topic_id[16] = {1};

struct leader {
    atomic_int fenced_soon; /* a pull at epoch 1 is parked, and will be answered that it is fenced */
    atomic_int renamed;     /* a pull at epoch 2 has come */
    atomic_int served;
    struct log_batch batch; /* of epoch 2, at offset 0 */
};

static void answer(const struct stub_request *q, int code, const struct log_batch *batch, int delay_ms)
{
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__PullResponse pull = BROOK__PULL_RESPONSE__INIT;
    Brook__PulledPartition part = BROOK__PULLED_PARTITION__INIT, *parts = &part;
    Brook__Status status = BROOK__STATUS__INIT;
    status.has_code = 1;
    status.code = code;
    part.has_topic_id = part.has_partition = part.has_records_bytes = part.has_high_watermark = 1;
    part.has_log_start_offset = 1;
    part.topic_id = (ProtobufCBinaryData){sizeof topic_id, (uint8_t *)(intptr_t)topic_id};
    part.partition = 3;
    part.high_watermark = part.log_start_offset = 0;
    part.records_bytes = batch ? (uint32_t)batch->header.total_bytes : 0;
    part.status = code ? &status : NULL;
    pull.has_session_id = 1;
    pull.session_id = 7;
    pull.n_partitions = 1;
    pull.partitions = &parts;
    response.body_case = BROOK__RESPONSE__BODY_PULL;
    response.pull = &pull;
    stub_reply(q, &response, batch ? batch->data : NULL, part.records_bytes, delay_ms);
}

/* The first pull makes the session and is answered. The second is parked; its answer says that epoch 1 is over and comes
 * when epoch 2 has been asked for. */
static enum stub_verdict lead(void *arg, const struct stub_request *q)
{
    struct leader *l = arg;
    if (q->request->body_case != BROOK__REQUEST__BODY_PULL)
        return STUB_PASS;
    const Brook__PullRequest *pull = q->request->pull;
    bool names = pull->n_partitions > 0;
    if (names && pull->partitions[0]->current_epoch == 2 && pull->partitions[0]->offset == 0) {
        l->renamed++;
        answer(q, 0, &l->batch, 2 * HELD_MS);
    } else if (names && pull->partitions[0]->current_epoch == 1) {
        answer(q, 0, NULL, 0);
    } else if (!names && !l->fenced_soon) {
        answer(q, BROOK_E_FENCED_EPOCH, NULL, HELD_MS);
        l->fenced_soon++;
    }
    return STUB_DONE;
}

static bool is_set(void *arg)
{
    return *(atomic_int *)arg > 0;
}

static bool has_the_record(void *arg)
{
    struct partition_marks marks;
    partition_marks(arg, &marks);
    return marks.log_end == 1;
}

static void look_away(void *arg, struct replica *replica)
{
}

static struct partition *make(void)
{
    struct log_settings s = fixture_settings();
    struct log *log = fixture_open(fixture_log_path("follower"), &s, &fixture_clean);
    struct partition *p = NULL;
    ck_assert_int_eq(partition_new("orders", 3, topic_id, &log, &p), 0);
    return p;
}

START_TEST(an_answer_about_the_old_epoch_does_not_stop_the_new_one)
{
    static const struct diag silent;
    struct leader l = {.batch = batches_make(1, T0, 0, 10, 1)};
    batches_place(&l.batch, 0, 2);
    struct stub_cluster *cluster = stub_cluster_new(1);
    stub_cluster_on_request(cluster, lead, &l);
    struct partition *p = make();
    struct inbox inbox;
    ck_assert_int_eq(inbox_init(&inbox), 0);
    struct replica_settings rs = {.broker_id = 2, .lag_ms_max = 10000, .inbox = &inbox, .wants_look = look_away};
    struct replica *replica;
    ck_assert_int_eq(replica_new(&rs, p, &replica), 0);
    struct fetcher_settings fs = {.broker_id = 2,
                                  .threads = 1,
                                  .bytes_max = 1 << 20,
                                  .partition_bytes_max = 1 << 20,
                                  .wait_ms_max = 30000,
                                  .request_timeout_ms = 30000,
                                  .frame_bytes_max = 1 << 24,
                                  .software = "test",
                                  .diag = &silent};
    struct fetchers *f;
    ck_assert_int_eq(fetchers_new(&fs, &f), 0);
    struct fetcher_leader leader = {1, "127.0.0.1", stub_cluster_port(cluster, 1)};
    ck_assert_int_eq(partition_follow(p, 1), 0);
    ck_assert_int_eq(fetchers_follow(f, replica, &leader, 1, 9), 0);
    ck_assert(suite_wait(is_set, &l.fenced_soon, WAIT_MS));
    ck_assert_int_eq(partition_follow(p, 2), 0);
    ck_assert_int_eq(fetchers_follow(f, replica, &leader, 2, 9), 0);
    ck_assert(suite_wait(is_set, &l.renamed, WAIT_MS));
    ck_assert(suite_wait(has_the_record, p, WAIT_MS));
    fetchers_free(f);
    replica_unref(replica);
    partition_unref(p);
    inbox_done(&inbox);
    batches_free(&l.batch);
    stub_cluster_free(cluster);
}
END_TEST

/* ---- many partitions ------------------------------------------------------------------------------------ */

#define MANY 20
#define BAD 7
#define RECORDS 3

/* A leader of MANY partitions with RECORDS records each; one record of one of them is rotten. */
struct many {
    atomic_int is_rotten;
    bool is_parted; /* it has no second record of epoch 1 */
    atomic_int asked_for_bad;
    atomic_int told; /* lines about it */
    struct log_batch batches[RECORDS];
    struct log_batch rotten;
};

static void serve(const struct stub_request *q, const struct many *m)
{
    static _Thread_local Brook__PulledPartition parts[MANY];
    static _Thread_local uint8_t records[MANY * 4096];
    Brook__PulledPartition *pointers[MANY];
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__PullResponse pull = BROOK__PULL_RESPONSE__INIT;
    const Brook__PullRequest *asked = q->request->pull;
    static Brook__Status diverged = BROOK__STATUS__INIT;
    size_t at = 0;
    diverged.has_code = 1;
    diverged.code = BROOK_E_LOG_DIVERGED;
    for (size_t i = 0; i < asked->n_partitions && pull.n_partitions < MANY; i++) {
        const Brook__PullPartition *entry = asked->partitions[i];
        if (entry->offset >= RECORDS)
            continue;
        bool is_bad = entry->partition == BAD && entry->offset == 1 && m->is_rotten;
        const struct log_batch *batch = is_bad ? &m->rotten : &m->batches[entry->offset];
        Brook__PulledPartition *part = &parts[pull.n_partitions];
        brook__pulled_partition__init(part);
        part->has_topic_id = part->has_partition = part->has_records_bytes = part->has_high_watermark = 1;
        part->topic_id = entry->topic_id;
        part->partition = entry->partition;
        part->high_watermark = RECORDS;
        pointers[pull.n_partitions++] = part;
        if (m->is_parted && entry->offset == 2 && entry->last_epoch == 1) {
            part->status = &diverged;
            continue;
        }
        part->records_bytes = (uint32_t)batch->header.total_bytes;
        memcpy(records + at, batch->data, batch->header.total_bytes);
        at += batch->header.total_bytes;
    }
    pull.has_session_id = 1;
    pull.session_id = 7;
    pull.partitions = pointers;
    response.body_case = BROOK__RESPONSE__BODY_PULL;
    response.pull = &pull;
    stub_reply(q, &response, records, at, pull.n_partitions ? 0 : 20);
}

static enum stub_verdict lead_many(void *arg, const struct stub_request *q)
{
    struct many *m = arg;
    if (q->request->body_case != BROOK__REQUEST__BODY_PULL)
        return STUB_PASS;
    for (size_t i = 0; i < q->request->pull->n_partitions; i++)
        m->asked_for_bad += q->request->pull->partitions[i]->partition == BAD &&
                            q->request->pull->partitions[i]->offset == 1;
    serve(q, m);
    return STUB_DONE;
}

static void count_line(void *arg, enum diag_level level, const char *subject, const char *message)
{
    struct many *m = arg;
    m->told += level == DIAG_WARN && strstr(subject, "orders/7") && strstr(message, "trying on");
}

struct followers {
    struct partition *p[MANY];
    struct replica *r[MANY];
};

static bool others_are_through(void *arg)
{
    const struct followers *w = arg;
    for (int i = 0; i < MANY; i++) {
        struct partition_marks marks;
        partition_marks(w->p[i], &marks);
        if (i != BAD && (marks.log_end != RECORDS || marks.high_watermark != RECORDS))
            return false;
    }
    return true;
}

static bool was_tried_again(void *arg)
{
    const struct many *m = arg;
    return m->asked_for_bad >= 3 && m->told > 0;
}

static bool is_through(void *arg)
{
    struct partition_marks marks;
    partition_marks(arg, &marks);
    return marks.log_end == RECORDS;
}

static struct partition *make_many(int number)
{
    char name[32];
    struct log_settings s = fixture_settings();
    snprintf(name, sizeof name, "many-%d", number);
    struct log *log = fixture_open(fixture_log_path(name), &s, &fixture_clean);
    struct partition *p = NULL;
    ck_assert_int_eq(partition_new("orders", number, topic_id, &log, &p), 0);
    return p;
}

typedef int begin_cuts_fn(void *arg, struct partition *const *partitions, const int64_t *offsets, size_t count);
typedef void end_cuts_fn(void *arg, struct partition *const *partitions, size_t count);

static struct fetchers *start_cutting(const struct diag *diag, begin_cuts_fn *begin, end_cuts_fn *end, void *arg)
{
    struct fetcher_settings fs = {.broker_id = 2,
                                  .threads = 1,
                                  .bytes_max = 1 << 20,
                                  .partition_bytes_max = 1 << 20,
                                  .wait_ms_max = 30000,
                                  .request_timeout_ms = 30000,
                                  .frame_bytes_max = 1 << 24,
                                  .software = "test",
                                  .diag = diag,
                                  .begin_cuts = begin,
                                  .end_cuts = end,
                                  .arg = arg};
    struct fetchers *f = NULL;
    ck_assert_int_eq(fetchers_new(&fs, &f), 0);
    return f;
}

static struct fetchers *start(const struct diag *diag)
{
    return start_cutting(diag, NULL, NULL, NULL);
}

START_TEST(one_rotten_batch_stops_its_own_partition_and_no_other)
{
    struct many m = {.is_rotten = 1};
    const struct diag diag = {.level_min = DIAG_DEBUG, .sink = count_line, .sink_arg = &m};
    for (int i = 0; i < RECORDS; i++) {
        m.batches[i] = batches_make(1, T0, 0, 10, (uint32_t)i);
        batches_place(&m.batches[i], i, 1);
    }
    m.rotten = batches_make(1, T0, 0, 10, 1);
    batches_place(&m.rotten, 1, 1);
    ((uint8_t *)m.rotten.data)[m.rotten.header.total_bytes - 1] ^= 1;
    struct stub_cluster *cluster = stub_cluster_new(1);
    stub_cluster_on_request(cluster, lead_many, &m);
    struct followers w;
    struct inbox inbox;
    ck_assert_int_eq(inbox_init(&inbox), 0);
    struct replica_settings rs = {.broker_id = 2, .lag_ms_max = 10000, .inbox = &inbox, .wants_look = look_away};
    struct fetchers *f = start(&diag);
    struct fetcher_leader leader = {1, "127.0.0.1", stub_cluster_port(cluster, 1)};
    for (int i = 0; i < MANY; i++) {
        w.p[i] = make_many(i);
        ck_assert_int_eq(replica_new(&rs, w.p[i], &w.r[i]), 0);
        ck_assert_int_eq(partition_follow(w.p[i], 1), 0);
        ck_assert_int_eq(fetchers_follow(f, w.r[i], &leader, 1, 9), 0);
    }
    ck_assert(suite_wait(others_are_through, &w, WAIT_MS));
    ck_assert(suite_wait(was_tried_again, &m, WAIT_MS));
    struct partition_marks marks;
    partition_marks(w.p[BAD], &marks);
    ck_assert_int_eq(marks.log_end, 1); /* what was before it is stored */
    m.is_rotten = 0;
    ck_assert(suite_wait(is_through, w.p[BAD], WAIT_MS));
    fetchers_free(f);
    for (int i = 0; i < MANY; i++) {
        replica_unref(w.r[i]);
        partition_unref(w.p[i]);
    }
    inbox_done(&inbox);
    for (int i = 0; i < RECORDS; i++)
        batches_free(&m.batches[i]);
    batches_free(&m.rotten);
    stub_cluster_free(cluster);
}
END_TEST

/* ---- cuts -------------------------------------------------------------------------------------------------- */

/* A leader of epoch 2 from whose log all MANY part behind the first record; their disk refuses once. */
struct parted {
    struct many m;
    atomic_int rounds; /* of cuts */
    atomic_int refused;
    atomic_int open; /* rounds that have not ended */
};

static void say_ends(const struct stub_request *q)
{
    Brook__EpochEnd ends[MANY], *pointers[MANY];
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__EpochEndResponse body = BROOK__EPOCH_END_RESPONSE__INIT;
    for (size_t i = 0; i < q->request->epoch_end->n_partitions && i < MANY; i++) {
        brook__epoch_end__init(&ends[i]);
        ends[i].has_epoch = ends[i].has_end_offset = 1;
        ends[i].epoch = 1;
        ends[i].end_offset = 1;
        pointers[body.n_partitions++] = &ends[i];
    }
    body.partitions = pointers;
    response.body_case = BROOK__RESPONSE__BODY_EPOCH_END;
    response.epoch_end = &body;
    stub_reply(q, &response, NULL, 0, 0);
}

static enum stub_verdict lead_parted(void *arg, const struct stub_request *q)
{
    struct parted *d = arg;
    if (q->request->body_case == BROOK__REQUEST__BODY_EPOCH_END) {
        say_ends(q);
        return STUB_DONE;
    }
    if (q->request->body_case != BROOK__REQUEST__BODY_PULL)
        return STUB_PASS;
    serve(q, &d->m);
    return STUB_DONE;
}

static int begin_cuts(void *arg, struct partition *const *partitions, const int64_t *offsets, size_t count)
{
    struct parted *d = arg;
    for (size_t i = 0; i < count; i++)
        ck_assert_int_eq(offsets[i], 1);
    ck_assert_int_eq(d->open, 0);
    d->rounds++;
    if (d->refused++ == 0)
        return -BROOK_E_STORAGE_ERROR;
    d->open++;
    return 0;
}

static void end_cuts(void *arg, struct partition *const *partitions, size_t count)
{
    struct parted *d = arg;
    for (size_t i = 0; i < count; i++) {
        struct partition_marks marks;
        partition_marks(partitions[i], &marks);
        ck_assert_int_eq(marks.log_end, 1);
    }
    d->open--;
}

static bool all_have_epoch_2(void *arg)
{
    const struct followers *w = arg;
    for (int i = 0; i < MANY; i++) {
        struct partition_marks marks;
        partition_marks(w->p[i], &marks);
        if (marks.log_end != RECORDS || log_last_epoch(partition_log(w->p[i])) != 2)
            return false;
    }
    return true;
}

/* Records 0 and 1, of epoch 1. */
static void fill_old(struct partition *p)
{
    struct brook_error error;
    ck_assert_int_eq(partition_follow(p, 1), 0);
    for (int i = 0; i < 2; i++) {
        struct log_batch batch = batches_make(1, T0, 0, 10, (uint32_t)i);
        batches_place(&batch, i, 1);
        ck_assert_int_eq(partition_append_replicated(p, 1, &batch, 1, 1, &error), 0);
        batches_free(&batch);
    }
}

START_TEST(logs_that_part_together_are_cut_under_one_write)
{
    struct parted d = {.m.is_parted = true};
    static const struct diag silent;
    for (int i = 0; i < RECORDS; i++) {
        d.m.batches[i] = batches_make(1, T0, 0, 10, (uint32_t)i);
        batches_place(&d.m.batches[i], i, 2);
    }
    struct stub_cluster *cluster = stub_cluster_new(1);
    stub_cluster_on_request(cluster, lead_parted, &d);
    struct followers w;
    struct inbox inbox;
    ck_assert_int_eq(inbox_init(&inbox), 0);
    struct replica_settings rs = {.broker_id = 2, .lag_ms_max = 10000, .inbox = &inbox, .wants_look = look_away};
    struct fetchers *f = start_cutting(&silent, begin_cuts, end_cuts, &d);
    struct fetcher_leader leader = {1, "127.0.0.1", stub_cluster_port(cluster, 1)};
    for (int i = 0; i < MANY; i++) {
        w.p[i] = make_many(i);
        fill_old(w.p[i]);
        ck_assert_int_eq(replica_new(&rs, w.p[i], &w.r[i]), 0);
        ck_assert_int_eq(partition_follow(w.p[i], 2), 0);
    }
    for (int i = 0; i < MANY; i++)
        ck_assert_int_eq(fetchers_follow(f, w.r[i], &leader, 2, 9), 0);
    ck_assert(suite_wait(all_have_epoch_2, &w, WAIT_MS));
    /* The one that was refused, and what the leader answered at a time: not one by one. */
    ck_assert_int_ge(d.rounds, 2);
    ck_assert_int_lt(d.rounds, MANY / 2);
    fetchers_free(f);
    for (int i = 0; i < MANY; i++) {
        replica_unref(w.r[i]);
        partition_unref(w.p[i]);
    }
    inbox_done(&inbox);
    for (int i = 0; i < RECORDS; i++)
        batches_free(&d.m.batches[i]);
    stub_cluster_free(cluster);
}
END_TEST

/* ---- the wrong address ---------------------------------------------------------------------------------- */

static bool has_tried_twice(void *arg)
{
    return stub_cluster_connections_made(arg) >= 2;
}

START_TEST(another_broker_at_the_address_is_left_at_once)
{
    struct many m = {0};
    static const struct diag silent;
    for (int i = 0; i < RECORDS; i++) {
        m.batches[i] = batches_make(1, T0, 0, 10, (uint32_t)i);
        batches_place(&m.batches[i], i, 1);
    }
    struct stub_cluster *cluster = stub_cluster_new(2);
    stub_cluster_on_request(cluster, lead_many, &m);
    struct partition *p = make_many(0);
    struct inbox inbox;
    struct replica *r;
    ck_assert_int_eq(inbox_init(&inbox), 0);
    struct replica_settings rs = {.broker_id = 3, .lag_ms_max = 10000, .inbox = &inbox, .wants_look = look_away};
    ck_assert_int_eq(replica_new(&rs, p, &r), 0);
    struct diag diag = silent;
    diag.sink = count_line;
    diag.sink_arg = &m;
    struct fetchers *f = start(&diag);
    struct fetcher_leader wrong = {1, "127.0.0.1", stub_cluster_port(cluster, 2)};
    struct fetcher_leader right = {1, "127.0.0.1", stub_cluster_port(cluster, 1)};
    ck_assert_int_eq(partition_follow(p, 1), 0);
    ck_assert_int_eq(fetchers_follow(f, r, &wrong, 1, 9), 0);
    ck_assert(suite_wait(has_tried_twice, cluster, WAIT_MS));
    ck_assert_uint_eq(stub_cluster_requests(cluster, BROOK__REQUEST__BODY_PULL), 0);
    ck_assert_int_eq(fetchers_follow(f, r, &right, 1, 9), 0);
    ck_assert(suite_wait(is_through, p, WAIT_MS));
    fetchers_free(f);
    replica_unref(r);
    partition_unref(p);
    inbox_done(&inbox);
    for (int i = 0; i < RECORDS; i++)
        batches_free(&m.batches[i]);
    stub_cluster_free(cluster);
}
END_TEST

SUITE_MAIN("replication/fetcher", SUITE_TEST_SLOW(one_rotten_batch_stops_its_own_partition_and_no_other, 60),
           SUITE_TEST_SLOW(logs_that_part_together_are_cut_under_one_write, 60),
           SUITE_TEST_SLOW(another_broker_at_the_address_is_left_at_once, 60),
           SUITE_TEST_SLOW(an_answer_about_the_old_epoch_does_not_stop_the_new_one, 60))
