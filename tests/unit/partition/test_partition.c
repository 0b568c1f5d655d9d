#include "broker/partition/partition.h"

#include "proto/base/clock.h"
#include "tests/support/batches.h"
#include "tests/support/faulty_io.h"
#include "tests/unit/storage/fixture.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

static const uint8_t topic_id[16] = {1};

static struct partition *make(const char *name)
{
    struct log_settings s = fixture_settings();
    s.segment_bytes = 1 << 20;
    struct log *log = fixture_open(fixture_log_path(name), &s, &fixture_clean);
    struct partition *p = NULL;
    ck_assert_int_eq(partition_new("orders", 3, topic_id, &log, &p), 0);
    ck_assert_ptr_null(log);
    return p;
}

static struct partition *make_leader(const char *name)
{
    struct partition *p = make(name);
    ck_assert_int_eq(partition_lead_with(p, 1, 0, INT64_MAX, 1), 0);
    return p;
}

/* One produce of one batch. */
struct produce {
    struct partition_append append;
    struct log_batch batch;
    int answers;
};

static void count_answer(struct partition_append *a)
{
    CONTAINER_OF(a, struct produce, append)->answers++;
}

static void produce_init(struct produce *q, struct inbox *inbox, int records, bool wait_for_all)
{
    memset(q, 0, sizeof *q);
    q->batch = batches_make(records, T0, 0, 100, 1);
    q->append.batches = &q->batch;
    q->append.batches_count = 1;
    q->append.inbox = inbox;
    q->append.wait_for_all = wait_for_all;
    q->append.done = count_answer;
}

static void append_one(struct partition *p, struct inbox *inbox)
{
    struct produce q;
    produce_init(&q, inbox, 1, false);
    partition_enqueue(p, &q.append);
    partition_drain(p, inbox);
    ck_assert_int_eq(q.answers, 1);
    batches_free(&q.batch);
}

START_TEST(appends_of_the_own_loop_are_answered_inside_drain)
{
    struct partition *p = make_leader("own");
    struct inbox inbox;
    ck_assert_int_eq(inbox_init(&inbox), 0);
    struct produce q[3];
    for (int i = 0; i < 3; i++) {
        produce_init(&q[i], &inbox, i + 1, i == 1);
        partition_enqueue(p, &q[i].append);
        ck_assert_int_eq(q[i].answers, 0);
    }
    partition_drain(p, &inbox);
    int64_t expected[] = {0, 1, 3};
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(q[i].answers, 1);
        ck_assert_int_eq(q[i].append.error.code, 0);
        ck_assert_int_eq(q[i].append.base_offset, expected[i]);
        batches_free(&q[i].batch);
    }
    ck_assert(!inbox_drain(&inbox));
    struct partition_marks m;
    partition_marks(p, &m);
    ck_assert_int_eq(m.log_end, 6);
    ck_assert_int_eq(m.high_watermark, 6);
    ck_assert_int_eq(m.leader_epoch, 1);
    ck_assert_int_eq(partition_unref(p), 0);
    inbox_done(&inbox);
}
END_TEST

START_TEST(what_is_queued_is_written_in_one_call)
{
    faulty_reset();
    struct partition *p = make_leader("merge");
    struct inbox mine, other;
    inbox_init(&mine);
    inbox_init(&other);
    append_one(p, &mine); /* the first one of an epoch also writes the epoch's file */
    struct produce q[200];
    for (int i = 0; i < 200; i++) {
        produce_init(&q[i], i % 2 ? &mine : &other, 1, false);
        partition_enqueue(p, &q[i].append);
    }
    int before = faulty_calls(FAULTY_PWRITEV);
    partition_drain(p, &mine);
    ck_assert_int_eq(faulty_calls(FAULTY_PWRITEV) - before, 1);
    for (int i = 0; i < 200; i++) {
        ck_assert_int_eq(q[i].answers, i % 2);
        ck_assert_int_eq(q[i].append.base_offset, i + 1);
    }
    ck_assert(inbox_drain(&other));
    for (int i = 0; i < 200; i++) {
        ck_assert_int_eq(q[i].answers, 1);
        batches_free(&q[i].batch);
    }
    ck_assert_int_eq(fixture_read_all(partition_log(p), 0, true), 201);
    partition_unref(p);
    inbox_done(&mine);
    inbox_done(&other);
}
END_TEST

#define MANY ((PARTITION_DRAIN_ROUNDS_MAX + 1) * PARTITION_DRAIN_BATCHES_MAX)

START_TEST(a_loop_that_has_done_its_share_hands_the_rest_to_the_loop_that_waits)
{
    faulty_reset();
    struct partition *p = make_leader("share");
    struct inbox mine, other;
    inbox_init(&mine);
    inbox_init(&other);
    append_one(p, &mine);
    static struct produce q[MANY];
    for (int i = 0; i < MANY; i++) {
        produce_init(&q[i], &other, 1, false);
        partition_enqueue(p, &q[i].append);
    }
    partition_drain(p, &mine);
    ck_assert_int_eq(log_end_offset(partition_log(p)), 1 + MANY - PARTITION_DRAIN_BATCHES_MAX);
    inbox_drain(&other); /* answers, and the wish to go on */
    inbox_drain(&other);
    ck_assert_int_eq(log_end_offset(partition_log(p)), 1 + MANY);
    for (int i = 0; i < MANY; i++) {
        ck_assert_int_eq(q[i].answers, 1);
        ck_assert_int_eq(q[i].append.base_offset, 1 + i);
        batches_free(&q[i].batch);
    }
    partition_unref(p);
    inbox_done(&mine);
    inbox_done(&other);
}
END_TEST

START_TEST(nobody_writes_who_does_not_lead)
{
    struct partition *p = make("follower");
    struct inbox inbox;
    inbox_init(&inbox);
    struct produce q;
    produce_init(&q, &inbox, 1, false);
    partition_enqueue(p, &q.append);
    ck_assert_int_eq(q.answers, 0);
    inbox_drain(&inbox);
    ck_assert_int_eq(q.answers, 1);
    ck_assert_int_eq(q.append.error.code, BROOK_E_NOT_LEADER);

    ck_assert_int_eq(partition_lead_with(p, 5, 0, INT64_MAX, 1), 0);
    ck_assert_int_eq(partition_lead_with(p, 4, 0, INT64_MAX, 1), -BROOK_E_FENCED_EPOCH);
    partition_enqueue(p, &q.append);
    partition_stop_leading(p);
    partition_drain(p, &inbox);
    inbox_drain(&inbox);
    ck_assert_int_eq(q.answers, 2);
    ck_assert_int_eq(q.append.error.code, BROOK_E_NOT_LEADER);
    ck_assert_int_eq(log_end_offset(partition_log(p)), 0);
    batches_free(&q.batch);
    partition_unref(p);
    inbox_done(&inbox);
}
END_TEST

START_TEST(a_failed_write_answers_all_of_its_appends_and_the_next_one_works)
{
    struct partition *p = make_leader("fail");
    struct inbox inbox;
    inbox_init(&inbox);
    struct produce q[3];
    for (int i = 0; i < 3; i++)
        produce_init(&q[i], &inbox, 1, true);
    partition_enqueue(p, &q[0].append);
    partition_enqueue(p, &q[1].append);
    faulty_fail(FAULTY_PWRITEV, 1, 1, ENOSPC);
    partition_drain(p, &inbox);
    faulty_reset();
    ck_assert_int_eq(q[0].append.error.code, BROOK_E_STORAGE_FULL);
    ck_assert_int_eq(q[1].append.error.code, BROOK_E_STORAGE_FULL);
    partition_enqueue(p, &q[2].append);
    partition_drain(p, &inbox);
    ck_assert_int_eq(q[2].append.error.code, 0);
    ck_assert_int_eq(q[2].append.base_offset, 0);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(q[i].answers, 1);
        batches_free(&q[i].batch);
    }
    partition_unref(p);
    inbox_done(&inbox);
}
END_TEST

/* ---- waiters ---------------------------------------------------------------------------------------- */

struct reader {
    struct partition_waiter waiter;
    int wakes;
};

static void count_wake(struct partition_waiter *w)
{
    CONTAINER_OF(w, struct reader, waiter)->wakes++;
}

static void reader_init(struct reader *r, struct inbox *inbox, int64_t offset)
{
    memset(r, 0, sizeof *r);
    r->waiter.offset = offset;
    r->waiter.inbox = inbox;
    r->waiter.wake = count_wake;
}

START_TEST(a_waiter_is_woken_once_and_only_when_there_is_something)
{
    struct partition *p = make_leader("wait");
    struct inbox mine, other;
    inbox_init(&mine);
    inbox_init(&other);
    struct reader here, there, later;
    reader_init(&here, &mine, 0);
    reader_init(&there, &other, 0);
    reader_init(&later, &other, 1);
    ck_assert(partition_wait(p, &here.waiter));
    ck_assert(partition_wait(p, &there.waiter));
    ck_assert(partition_wait(p, &later.waiter));
    append_one(p, &mine);
    ck_assert_int_eq(here.wakes, 1);
    ck_assert_int_eq(there.wakes, 0);
    ck_assert(there.waiter.posted);
    inbox_drain(&other);
    ck_assert_int_eq(there.wakes, 1);
    ck_assert_int_eq(later.wakes, 0);
    append_one(p, &mine);
    inbox_drain(&other);
    ck_assert_int_eq(here.wakes + there.wakes, 2);
    ck_assert_int_eq(later.wakes, 1);
    ck_assert(!partition_wait(p, &here.waiter));
    partition_unref(p);
    inbox_done(&mine);
    inbox_done(&other);
}
END_TEST

START_TEST(a_waiter_that_was_taken_back_is_not_woken)
{
    struct partition *p = make_leader("unwait");
    struct inbox mine, other;
    inbox_init(&mine);
    inbox_init(&other);
    struct reader registered, posted;
    reader_init(&registered, &other, 5);
    reader_init(&posted, &other, 0);
    ck_assert(partition_wait(p, &registered.waiter));
    ck_assert(partition_wait(p, &posted.waiter));
    partition_unwait(p, &registered.waiter);
    append_one(p, &mine);
    partition_unwait(p, &posted.waiter);
    ck_assert(posted.waiter.posted);
    partition_stop_leading(p);
    inbox_drain(&other);
    ck_assert(!posted.waiter.posted);
    ck_assert_int_eq(registered.wakes + posted.wakes, 0);
    partition_unref(p);
    inbox_done(&mine);
    inbox_done(&other);
}
END_TEST

START_TEST(waiters_learn_that_leading_ended)
{
    struct partition *p = make_leader("demoted");
    struct inbox inbox;
    inbox_init(&inbox);
    struct reader r;
    reader_init(&r, &inbox, 0);
    ck_assert(partition_wait(p, &r.waiter));
    partition_stop_leading(p);
    inbox_drain(&inbox);
    ck_assert_int_eq(r.wakes, 1);
    ck_assert(!partition_wait(p, &r.waiter));
    partition_unref(p);
    inbox_done(&inbox);
}
END_TEST

START_TEST(a_cancelled_append_is_answered_once_and_never_written)
{
    struct partition *p = make_leader("cancel");
    struct inbox inbox;
    inbox_init(&inbox);
    struct produce q, kept;
    produce_init(&q, &inbox, 1, true);
    produce_init(&kept, &inbox, 1, true);
    partition_enqueue(p, &q.append);
    partition_enqueue(p, &kept.append);
    ck_assert(partition_cancel(p, &q.append));
    ck_assert_int_eq(q.append.error.code, BROOK_E_TIMED_OUT);
    ck_assert(!partition_cancel(p, &q.append));
    partition_drain(p, &inbox);
    ck_assert_int_eq(q.answers, 1);
    ck_assert_int_eq(kept.answers, 1);
    ck_assert_int_eq(log_end_offset(partition_log(p)), 1);
    batches_free(&q.batch);
    batches_free(&kept.batch);
    partition_unref(p);
    inbox_done(&inbox);
}
END_TEST

/* It waited for longer than whoever sent it: it may have been sent again by now. */
START_TEST(an_append_that_has_expired_in_the_queue_is_not_written)
{
    struct partition *p = make_leader("expired");
    struct inbox inbox;
    inbox_init(&inbox);
    struct produce q[5];
    int64_t now_ns = clock_boot_ns();
    int64_t expires_ns[] = {now_ns - 1, 0, now_ns - 1, now_ns + (int64_t)3600 * 1000000000, now_ns - 1};
    for (int i = 0; i < 5; i++) {
        produce_init(&q[i], &inbox, 1, i % 2 == 0);
        q[i].append.expires_ns = expires_ns[i];
        partition_enqueue(p, &q[i].append);
    }
    partition_drain(p, &inbox);
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(q[i].answers, 1);
        ck_assert_int_eq(q[i].append.error.code, i % 2 ? 0 : BROOK_E_REQUEST_EXPIRED);
        if (i % 2)
            ck_assert_int_eq(q[i].append.base_offset, i / 2);
    }
    ck_assert_int_eq(log_end_offset(partition_log(p)), 2);
    q[0].append.expires_ns = now_ns - 1; /* alone: nothing is left to be written */
    partition_enqueue(p, &q[0].append);
    partition_drain(p, &inbox);
    ck_assert_int_eq(q[0].answers, 2);
    ck_assert_int_eq(log_end_offset(partition_log(p)), 2);
    for (int i = 0; i < 5; i++)
        batches_free(&q[i].batch);
    partition_unref(p);
    inbox_done(&inbox);
}
END_TEST

/* ---- threads ---------------------------------------------------------------------------------------- */

struct drainer {
    struct partition *partition;
    struct inbox *inbox;
};

static void *drain_thread(void *arg)
{
    struct drainer *d = arg;
    partition_drain(d->partition, d->inbox);
    return NULL;
}

static bool one_is_stalled(void *arg)
{
    return faulty_stalled() == 1;
}

START_TEST(a_stalled_append_delays_no_reader_and_no_other_loop)
{
    faulty_reset();
    struct partition *p = make_leader("stall");
    struct inbox mine, other;
    inbox_init(&mine);
    inbox_init(&other);
    append_one(p, &mine);

    struct produce stuck, queued;
    produce_init(&stuck, &other, 1, false);
    produce_init(&queued, &mine, 1, false);
    partition_enqueue(p, &stuck.append);
    faulty_stall(FAULTY_PWRITEV);
    struct drainer d = {p, &other};
    pthread_t thread;
    pthread_create(&thread, NULL, drain_thread, &d);
    ck_assert(suite_wait(one_is_stalled, NULL, 5000));

    /* The write hangs. All of this must return, or the test runs into its time limit. */
    partition_enqueue(p, &queued.append);
    partition_drain(p, &mine);
    ck_assert_int_eq(queued.answers, 0);
    ck_assert_int_eq(fixture_read_all(partition_log(p), 0, true), 1);
    struct partition_marks m;
    partition_marks(p, &m);
    ck_assert_int_eq(m.log_end, 1);
    struct reader r;
    reader_init(&r, &mine, 1);
    ck_assert(partition_wait(p, &r.waiter));
    ck_assert_int_eq(faulty_stalled(), 1);
    ck_assert(!partition_cancel(p, &stuck.append));

    /* Whoever held the lock writes what was queued meanwhile. */
    faulty_release();
    pthread_join(thread, NULL);
    inbox_drain(&mine);
    ck_assert_int_eq(stuck.append.base_offset, 1);
    ck_assert_int_eq(queued.append.base_offset, 2);
    ck_assert_int_eq(stuck.answers, 1);
    ck_assert_int_eq(queued.answers, 1);
    ck_assert_int_eq(r.wakes, 1);
    batches_free(&stuck.batch);
    batches_free(&queued.batch);
    partition_unref(p);
    inbox_done(&mine);
    inbox_done(&other);
}
END_TEST

#define LOOPS 4
#define PRODUCES 300

struct loop {
    struct partition *partition;
    struct inbox inbox;
    struct produce produces[PRODUCES];
    int answered;
    struct reader reader;
    pthread_t thread;
};

static void loop_answer(struct partition_append *a)
{
    struct produce *q = CONTAINER_OF(a, struct produce, append);
    q->answers++;
    (*(int *)(void *)((char *)q->append.inbox - offsetof(struct loop, inbox) +
                      offsetof(struct loop, answered)))++;
}

/* Produces in flights of up to eight, and waits for them as a loop does: on its inbox. */
static void *run_loop(void *arg)
{
    struct loop *l = arg;
    int sent = 0, waits = 0;
    while (l->answered < PRODUCES) {
        while (sent < PRODUCES && sent - l->answered < 8) {
            produce_init(&l->produces[sent], &l->inbox, 1, sent % 3 == 0);
            l->produces[sent].append.done = loop_answer;
            partition_enqueue(l->partition, &l->produces[sent++].append);
        }
        partition_drain(l->partition, &l->inbox);
        if (l->reader.wakes == waits) { /* it is not registered: once more */
            struct partition_marks m;
            partition_marks(l->partition, &m);
            l->reader.waiter.offset = m.high_watermark;
            waits += partition_wait(l->partition, &l->reader.waiter);
        }
        if (l->answered < sent) {
            struct pollfd fd = {.fd = inbox_fd(&l->inbox), .events = POLLIN};
            poll(&fd, 1, 1000);
            inbox_drain(&l->inbox);
        }
    }
    return NULL;
}

static void retain(struct partition *p, void *arg)
{
    log_retain(partition_log(p), T0);
}

START_TEST(many_loops_append_and_every_offset_is_given_once)
{
    faulty_reset();
    struct partition *p = make_leader("loops");
    static struct loop loops[LOOPS];
    for (int i = 0; i < LOOPS; i++) {
        loops[i].partition = p;
        inbox_init(&loops[i].inbox);
        reader_init(&loops[i].reader, &loops[i].inbox, 0);
    }
    for (int i = 0; i < LOOPS; i++)
        pthread_create(&loops[i].thread, NULL, run_loop, &loops[i]);
    for (int i = 0; i < 50; i++)
        partition_with_append_lock(p, retain, NULL);
    for (int i = 0; i < LOOPS; i++)
        pthread_join(loops[i].thread, NULL);
    partition_stop_leading(p);

    static bool seen[LOOPS * PRODUCES];
    for (int i = 0; i < LOOPS; i++) {
        inbox_drain(&loops[i].inbox);
        for (int k = 0; k < PRODUCES; k++) {
            struct produce *q = &loops[i].produces[k];
            ck_assert_int_eq(q->answers, 1);
            ck_assert_int_eq(q->append.error.code, 0);
            ck_assert_int_lt(q->append.base_offset, LOOPS * PRODUCES);
            ck_assert(!seen[q->append.base_offset]);
            seen[q->append.base_offset] = true;
            if (k > 0)
                ck_assert_int_gt(q->append.base_offset, loops[i].produces[k - 1].append.base_offset);
            batches_free(&q->batch);
        }
    }
    ck_assert_int_eq(fixture_read_all(partition_log(p), 0, true), LOOPS * PRODUCES);
    partition_unref(p);
    for (int i = 0; i < LOOPS; i++)
        inbox_done(&loops[i].inbox);
}
END_TEST

/* ---- readers at the tail ---------------------------------------------------------------------------- */

#define TAIL_READERS 8
#define TAIL_RECORDS 6000

struct tail_reader {
    struct partition *partition;
    struct inbox inbox;
    struct reader reader;
    int64_t next;
    pthread_t thread;
};

/* Everything that may be seen from r->next on: checksums right, offsets without a gap, nothing beyond the mark. */
static void read_what_is_there(struct tail_reader *r)
{
    static _Thread_local uint8_t buffer[1 << 16];
    struct partition_marks m;
    struct log_range range;
    struct batch_header h;
    partition_marks(r->partition, &m);
    ck_assert_int_eq(log_read(partition_log(r->partition), r->next, m.visible_end, sizeof buffer, true, sizeof buffer, &range),
                     0);
    if (range.bytes)
        ck_assert_int_eq(pread(range.fd, buffer, range.bytes, range.position), (ssize_t)range.bytes);
    for (size_t at = 0; at < range.bytes; at += h.total_bytes) {
        if (batch_read_header(buffer + at, range.bytes - at, &h) != 0 || h.total_bytes > range.bytes - at)
            break; /* cut by the budget */
        ck_assert_int_eq(h.base_offset, r->next);
        ck_assert_int_eq(batch_check_crc(buffer + at, &h), 0);
        r->next = batch_last_offset(&h) + 1;
        ck_assert_int_le(r->next, m.visible_end);
    }
    log_range_done(&range);
}

static void *follow_tail(void *arg)
{
    struct tail_reader *r = arg;
    while (r->next < TAIL_RECORDS) {
        int wakes = r->reader.wakes;
        r->reader.waiter.offset = r->next;
        if (partition_wait(r->partition, &r->reader.waiter))
            while (r->reader.wakes == wakes) {
                struct pollfd fd = {.fd = inbox_fd(&r->inbox), .events = POLLIN};
                poll(&fd, 1, 1000);
                inbox_drain(&r->inbox);
            }
        read_what_is_there(r);
    }
    return NULL;
}

/* Each write is torn and others run in the middle of it: an end published before its bytes are there is found out. */
START_TEST(readers_at_the_tail_see_whole_batches_while_a_producer_runs)
{
    faulty_reset();
    struct partition *p = make_leader("tail");
    static struct tail_reader readers[TAIL_READERS];
    struct inbox inbox;
    inbox_init(&inbox);
    faulty_tear();
    for (int i = 0; i < TAIL_READERS; i++) {
        readers[i] = (struct tail_reader){.partition = p};
        inbox_init(&readers[i].inbox);
        reader_init(&readers[i].reader, &readers[i].inbox, 0);
        pthread_create(&readers[i].thread, NULL, follow_tail, &readers[i]);
    }
    for (int i = 0; i < TAIL_RECORDS;) {
        struct produce q[3];
        for (int k = 0; k < 3; k++) {
            produce_init(&q[k], &inbox, 1 + k, k == 1);
            partition_enqueue(p, &q[k].append);
        }
        partition_drain(p, &inbox);
        i += 6;
        for (int k = 0; k < 3; k++) {
            ck_assert_int_eq(q[k].answers, 1);
            batches_free(&q[k].batch);
        }
    }
    for (int i = 0; i < TAIL_READERS; i++) {
        pthread_join(readers[i].thread, NULL);
        ck_assert_int_eq(readers[i].next, TAIL_RECORDS);
        inbox_done(&readers[i].inbox);
    }
    faulty_reset();
    partition_unref(p);
    inbox_done(&inbox);
}
END_TEST

static void delete_released(void *arg, struct log *log)
{
    *(int *)arg = log_delete(&log);
}

START_TEST(a_deleted_partition_frees_its_name_with_the_last_reference_and_its_files_at_last)
{
    int deleted = -1;
    struct partition *p = make_leader("deleted-0");
    struct inbox inbox;
    inbox_init(&inbox);
    append_one(p, &inbox);
    struct log_range range;
    ck_assert_int_eq(log_read(partition_log(p), 0, 1, 1000, true, 1000, &range), 0);
    partition_on_release(p, delete_released, &deleted);
    partition_ref(p);
    partition_stop_leading(p);
    partition_unref(p);
    ck_assert_int_eq(access(fixture_log_path("deleted-0"), F_OK), 0);
    partition_unref(p);
    ck_assert_int_eq(deleted, 0);
    ck_assert_int_ne(access(fixture_log_path("deleted-0"), F_OK), 0);
    uint8_t byte;
    ck_assert_int_eq(pread(range.fd, &byte, 1, range.position), 1);
    ck_assert_int_eq(fixture_count_files(suite_directory(), "-delete"), 1);
    log_range_done(&range);
    ck_assert_int_eq(fixture_count_files(suite_directory(), "-delete"), 0);
    inbox_done(&inbox);
}
END_TEST

/* ---- deleting records ------------------------------------------------------------------------------- */

struct keeper {
    struct partition *p;
    int result;
    int calls;
    int64_t start;
    int64_t start_before;
};

static int keep_start(void *arg, int64_t start_offset)
{
    struct keeper *k = arg;
    struct partition_marks m;
    partition_marks(k->p, &m);
    k->calls++;
    k->start = start_offset;
    k->start_before = m.log_start;
    return k->result;
}

static int64_t start_of(struct partition *p)
{
    struct partition_marks m;
    partition_marks(p, &m);
    return m.log_start;
}

START_TEST(records_are_deleted_once_the_new_start_is_kept)
{
    faulty_reset();
    struct partition *p = make_leader("trim");
    struct keeper k = {.p = p};
    struct inbox inbox;
    struct brook_error error;
    int64_t start = -7;
    inbox_init(&inbox);
    partition_on_trim(p, keep_start, &k);
    for (int i = 0; i < 10; i++)
        append_one(p, &inbox);

    ck_assert_int_eq(partition_delete_records(p, 4, true, &start, &error), 0);
    ck_assert_int_eq(start, 4);
    ck_assert_int_eq(k.calls, 0);
    ck_assert_int_eq(start_of(p), 0);

    k.result = -BROOK_E_STORAGE_ERROR;
    ck_assert_int_eq(partition_delete_records(p, 4, false, &start, &error), -BROOK_E_STORAGE_ERROR);
    ck_assert_ptr_nonnull(strstr(error.text, "orders/3"));
    ck_assert_int_eq(start_of(p), 0);

    k.result = 0;
    ck_assert_int_eq(partition_delete_records(p, 4, false, &start, &error), 0);
    ck_assert_int_eq(start, 4);
    ck_assert_int_eq(k.start, 4);
    ck_assert_int_eq(k.start_before, 0); /* kept before it counted */
    ck_assert_int_eq(start_of(p), 4);
    ck_assert_int_eq(partition_delete_records(p, 2, false, &start, &error), 0);
    ck_assert_int_eq(start, 4);
    ck_assert_int_eq(start_of(p), 4);

    ck_assert_int_eq(partition_delete_records(p, 11, false, &start, &error), -BROOK_E_OFFSET_OUT_OF_RANGE);
    ck_assert_ptr_nonnull(strstr(error.text, "high watermark is 10"));
    ck_assert_int_eq(partition_delete_records(p, -2, false, &start, &error), -BROOK_E_OFFSET_OUT_OF_RANGE);
    ck_assert_int_eq(partition_delete_records(p, INT64_MAX, true, &start, &error), -BROOK_E_OFFSET_OUT_OF_RANGE);
    ck_assert_int_eq(partition_delete_records(p, -1, false, &start, &error), 0);
    ck_assert_int_eq(start, 10);
    append_one(p, &inbox);
    ck_assert_int_eq(fixture_read_all(partition_log(p), 10, true), 1);

    partition_stop_leading(p);
    ck_assert_int_eq(partition_delete_records(p, -1, false, &start, &error), -BROOK_E_NOT_LEADER);
    ck_assert_int_eq(partition_unref(p), 0);
    inbox_done(&inbox);
}
END_TEST

/* With `fsync` the high watermark is what is on the disk: nothing above may be deleted. */
START_TEST(only_what_is_below_the_high_watermark_can_be_deleted)
{
    faulty_reset();
    struct partition *p = make_leader("trim-fsync");
    struct durability fsync = {.mode = DURABILITY_FSYNC};
    struct inbox inbox;
    struct brook_error error;
    int64_t start;
    inbox_init(&inbox);
    partition_set_durability(p, &fsync);
    for (int i = 0; i < 3; i++)
        append_one(p, &inbox);
    ck_assert_int_eq(partition_flush(p), 0);
    append_one(p, &inbox);
    ck_assert_int_eq(partition_delete_records(p, 4, false, &start, &error), -BROOK_E_OFFSET_OUT_OF_RANGE);
    ck_assert_int_eq(partition_delete_records(p, -1, false, &start, &error), 0);
    ck_assert_int_eq(start, 3);
    ck_assert_int_eq(partition_unref(p), 0);
    inbox_done(&inbox);
}
END_TEST

SUITE_MAIN("partition/partition", SUITE_TEST(appends_of_the_own_loop_are_answered_inside_drain),
           SUITE_TEST(what_is_queued_is_written_in_one_call),
           SUITE_TEST(a_loop_that_has_done_its_share_hands_the_rest_to_the_loop_that_waits),
           SUITE_TEST(nobody_writes_who_does_not_lead),
           SUITE_TEST(a_failed_write_answers_all_of_its_appends_and_the_next_one_works),
           SUITE_TEST(a_waiter_is_woken_once_and_only_when_there_is_something),
           SUITE_TEST(a_waiter_that_was_taken_back_is_not_woken),
           SUITE_TEST(waiters_learn_that_leading_ended),
           SUITE_TEST(a_cancelled_append_is_answered_once_and_never_written),
           SUITE_TEST(an_append_that_has_expired_in_the_queue_is_not_written),
           SUITE_TEST(a_stalled_append_delays_no_reader_and_no_other_loop),
           SUITE_TEST_SLOW(many_loops_append_and_every_offset_is_given_once, 60),
           SUITE_TEST_SLOW(readers_at_the_tail_see_whole_batches_while_a_producer_runs, 60),
           SUITE_TEST(a_deleted_partition_frees_its_name_with_the_last_reference_and_its_files_at_last),
           SUITE_TEST(records_are_deleted_once_the_new_start_is_kept),
           SUITE_TEST(only_what_is_below_the_high_watermark_can_be_deleted))
