/* The producer when brokers fail: order, retries, exactly one report per record. */
#include "proto/base/clock.h"
#include "tests/support/stub_broker.h"
#include "tests/support/suite.h"

#include <brook/brook.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WAIT_MS 15000
#define RECORDS_MAX 200000
#define PARTITIONS_MAX 4

struct fixture {
    struct stub_cluster *cluster;
    brook_config *config;
    brook_producer *producer;
    unsigned char reports[RECORDS_MAX]; /* how often each record was reported */
    enum brook_outcome outcomes[RECORDS_MAX];
    int64_t offsets[RECORDS_MAX];
    int sent;
    int64_t counts[3];
    int last_code;
    char last_text[256];
    atomic_int step; /* of the stub's function */
    bool is_greeted; /* on its thread: the connection is new, nothing was produced over it */
};

static void on_report(void *arg, const struct brook_report *report)
{
    struct fixture *f = arg;
    size_t number = (uintptr_t)report->opaque - 1;
    f->reports[number]++;
    f->outcomes[number] = report->outcome;
    f->offsets[number] = report->offset;
    f->counts[report->outcome]++;
    if (report->error.code) {
        f->last_code = report->error.code;
        snprintf(f->last_text, sizeof f->last_text, "%s", report->error.text);
    }
    ck_assert_int_eq(report->error.code == 0, report->outcome == BROOK_STORED);
}

static void set(struct fixture *f, const char *key, const char *value)
{
    struct brook_error error;
    ck_assert_msg(brook_config_set(f->config, key, value, &error) == 0, "%s", error.text);
}

static struct fixture *fixture_open(unsigned brokers, int32_t partitions)
{
    struct fixture *f = calloc(1, sizeof *f);
    f->cluster = stub_cluster_new(brokers);
    stub_cluster_add_topic(f->cluster, "t", partitions);
    ck_assert_int_eq(brook_config_new(&f->config), 0);
    set(f, "bootstrap.servers", stub_cluster_servers(f->cluster));
    set(f, "linger.ms", "0");
    set(f, "retry.backoff.ms", "5");
    set(f, "reconnect.backoff.ms", "5");
    set(f, "batch.size", "2000");
    return f;
}

static void fixture_start(struct fixture *f, stub_function *function)
{
    struct brook_error error;
    stub_cluster_on_request(f->cluster, function, f);
    ck_assert_msg(brook_producer_new(f->config, &f->producer, &error) == 0, "%s", error.text);
    brook_producer_on_report(f->producer, on_report, f);
}

static void send_one(struct fixture *f, int32_t partition)
{
    char text[16];
    snprintf(text, sizeof text, "%d", f->sent);
    struct brook_record record = {.topic = "t",
                                  .partition = partition,
                                  .value = text,
                                  .value_bytes = strlen(text),
                                  .opaque = (void *)(uintptr_t)(++f->sent)};
    ck_assert_int_eq(brook_producer_send(f->producer, &record, BROOK_SEND_WAIT, NULL), 0);
}

/* Spread over many small requests: pauses let what is there go. */
static void send_spread(struct fixture *f, int32_t partitions, int count)
{
    for (int i = 0; i < count; i++) {
        send_one(f, i % partitions);
        if (i % 50 == 0)
            brook_producer_poll(f->producer, 1);
    }
}

static void check_reported_once(const struct fixture *f)
{
    for (int i = 0; i < f->sent; i++)
        ck_assert_msg(f->reports[i] == 1, "record %d was reported %d times", i, f->reports[i]);
}

static void fixture_close(struct fixture *f)
{
    if (f->producer)
        brook_producer_close(f->producer, WAIT_MS);
    check_reported_once(f);
    brook_config_free(f->config);
    stub_cluster_free(f->cluster);
    free(f);
}

/* What the log of one partition holds. */
struct log_check {
    struct fixture *f;
    int last; /* the highest number so far */
    int64_t duplicates;
    bool in_order;       /* first appearances rise */
    unsigned char *seen; /* per number */
};

static void check_record(void *arg, const struct record *record)
{
    struct log_check *c = arg;
    char text[16];
    snprintf(text, sizeof text, "%.*s", record->value_bytes, (const char *)record->value);
    int number = atoi(text);
    if (c->seen[number]++) {
        c->duplicates++;
        return;
    }
    if (number <= c->last)
        c->in_order = false;
    c->last = number;
}

/* Order in every log; what was reported stored is there, what was reported not stored is not. */
static int64_t check_logs(struct fixture *f, int32_t partitions)
{
    unsigned char *seen = calloc(RECORDS_MAX, 1);
    int64_t duplicates = 0;
    for (int32_t p = 0; p < partitions; p++) {
        struct log_check c = {.f = f, .last = -1, .in_order = true, .seen = seen};
        stub_cluster_walk(f->cluster, "t", p, check_record, &c);
        ck_assert_msg(c.in_order, "partition %d is out of order", p);
        duplicates += c.duplicates;
    }
    for (int i = 0; i < f->sent; i++) {
        if (f->outcomes[i] == BROOK_STORED)
            ck_assert_msg(seen[i] >= 1, "record %d was lost", i);
        if (f->outcomes[i] == BROOK_NOT_STORED)
            ck_assert_msg(seen[i] == 0, "record %d was stored after all", i);
    }
    free(seen);
    return duplicates;
}

static void flush(struct fixture *f)
{
    ck_assert_int_eq(brook_producer_flush(f->producer, WAIT_MS), 0);
}

/* Fill a ProduceResponse in which every partition has `code`. */
static void reply_code(const struct stub_request *q, int code)
{
    struct arena *a;
    ck_assert_int_eq(arena_new(1 << 20, &a), 0);
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__ProduceResponse answer = BROOK__PRODUCE_RESPONSE__INIT;
    answer.n_partitions = q->request->produce->n_partitions;
    answer.partitions = arena_alloc(a, answer.n_partitions * sizeof *answer.partitions);
    for (size_t i = 0; i < answer.n_partitions; i++) {
        answer.partitions[i] = arena_alloc(a, sizeof **answer.partitions);
        brook__produced_partition__init(answer.partitions[i]);
        answer.partitions[i]->status = envelope_status(a, code, NULL);
    }
    response.body_case = BROOK__RESPONSE__BODY_PRODUCE;
    response.produce = &answer;
    stub_reply(q, &response, NULL, 0, 0);
    arena_free(a);
}

static bool is_produce(const struct stub_request *q)
{
    return q->request->body_case == BROOK__REQUEST__BODY_PRODUCE;
}

/* ---- batches that are too large --------------------------------------------------------------------- */

struct limit {
    struct fixture *f;
    size_t bytes;      /* of a batch */
    size_t hello;      /* the same, but told in Hello; 0: not */
    atomic_int refused;
    size_t largest;
};

static void reply_hello(const struct stub_request *q, size_t message_bytes_max)
{
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__HelloResponse hello = BROOK__HELLO_RESPONSE__INIT;
    hello.has_version = hello.has_broker_id = hello.has_message_bytes_max = 1;
    hello.version = 1;
    hello.broker_id = q->broker_id;
    hello.message_bytes_max = (uint32_t)message_bytes_max;
    response.body_case = BROOK__RESPONSE__BODY_HELLO;
    response.hello = &hello;
    stub_reply(q, &response, NULL, 0, 0);
}

/* As a broker does: one batch that is too large refuses all of its entry (here: there is one). */
static enum stub_verdict limit_batches(void *arg, const struct stub_request *q)
{
    struct limit *limit = arg;
    if (q->request->body_case == BROOK__REQUEST__BODY_HELLO && limit->hello) {
        reply_hello(q, limit->hello);
        return STUB_DONE;
    }
    if (!is_produce(q))
        return STUB_PASS;
    bool refuse = false;
    struct batch_header h;
    for (size_t at = 0; at < q->records_bytes; at += h.total_bytes) {
        ck_assert_int_eq(batch_read_header(q->records + at, q->records_bytes - at, &h), 0);
        limit->largest = h.total_bytes > limit->largest ? h.total_bytes : limit->largest;
        refuse |= h.total_bytes > limit->bytes;
    }
    if (!refuse)
        return STUB_PASS;
    atomic_fetch_add(&limit->refused, 1);
    reply_code(q, BROOK_E_MESSAGE_TOO_LARGE);
    return STUB_DONE;
}

/* Record `large` (-1: none) has 5000 bytes, one in ten headers. */
static void send_sizes(struct fixture *f, int count, int large)
{
    static char text[5000];
    static const struct brook_header headers[2] = {{"a", 1, "1", 1}, {"b", 1, NULL, 0}};
    for (int i = 0; i < count; i++) {
        int length = snprintf(text, sizeof text, "%d", i);
        text[length] = ' ';
        struct brook_record record = {.topic = "t",
                                      .value = text,
                                      .value_bytes = i == large ? sizeof text : (size_t)length + 1,
                                      .headers = headers,
                                      .headers_count = i % 10 ? 0 : 2,
                                      .opaque = (void *)(uintptr_t)(++f->sent)};
        ck_assert_int_eq(brook_producer_send(f->producer, &record, BROOK_SEND_WAIT, NULL), 0);
    }
}

static struct fixture *limit_open(struct limit *limit)
{
    struct fixture *f = fixture_open(1, 1);
    limit->f = f;
    set(f, "linger.ms", "50");
    set(f, "batch.size", "100000");
    return f;
}

static void limit_start(struct fixture *f, struct limit *limit)
{
    fixture_start(f, NULL);
    stub_cluster_on_request(f->cluster, limit_batches, limit);
}

START_TEST(a_batch_that_is_too_large_is_cut_until_it_fits)
{
    static const char *const codecs[] = {"none", "zstd"};
    for (int i = 0; i < 2; i++) {
        struct limit limit = {.bytes = i ? 500 : 3000};
        struct fixture *f = limit_open(&limit);
        set(f, "compression", codecs[i]);
        set(f, "retries", i ? "0" : "100"); /* to cut is not to try again */
        set(f, "max.in.flight.requests.per.partition", "1");
        limit_start(f, &limit);
        send_sizes(f, 20000, -1);
        flush(f);
        ck_assert_int_eq(f->counts[BROOK_STORED], 20000);
        ck_assert_int_eq(check_logs(f, 1), 0);
        for (int number = 0; number < 20000; number++)
            ck_assert_int_eq(f->offsets[number], number);
        /* The partition has learned: what comes now is small at once. */
        ck_assert_int_gt(limit.refused, 0);
        limit.refused = 0;
        send_spread(f, 1, 3000);
        flush(f);
        ck_assert_int_eq(limit.refused, 0);
        fixture_close(f);
    }
}
END_TEST

START_TEST(only_the_record_that_is_too_large_itself_fails)
{
    struct limit limit = {.bytes = 4000};
    struct fixture *f = limit_open(&limit);
    limit_start(f, &limit);
    send_sizes(f, 3000, 1234);
    flush(f);
    ck_assert_int_eq(f->counts[BROOK_STORED], 2999);
    ck_assert_int_eq(f->outcomes[1234], BROOK_NOT_STORED);
    ck_assert_int_eq(f->last_code, BROOK_E_MESSAGE_TOO_LARGE);
    ck_assert_int_eq(check_logs(f, 1), 0);
    fixture_close(f);
}
END_TEST

START_TEST(what_is_cut_is_reported_once_with_several_requests_on_their_way)
{
    struct limit limit = {.bytes = 1500};
    struct fixture *f = fixture_open(1, 1);
    set(f, "batch.size", "2000");
    set(f, "max.in.flight.requests.per.partition", "5");
    set(f, "max.request.size", "4000");
    limit_start(f, &limit);
    send_sizes(f, 5000, -1);
    flush(f);
    ck_assert_int_eq(f->counts[BROOK_STORED], 5000);
    ck_assert_int_eq(f->counts[BROOK_MAYBE_STORED], 0);
    fixture_close(f);
}
END_TEST

START_TEST(no_batch_is_larger_than_the_broker_says_it_takes)
{
    struct limit limit = {.bytes = 3000, .hello = 3000};
    struct fixture *f = fixture_open(1, 1);
    set(f, "linger.ms", "50");
    set(f, "batch.size", "100000");
    limit_start(f, &limit);
    send_one(f, 0); /* so that the connection is there */
    flush(f);
    send_spread(f, 1, 5000);
    flush(f);
    ck_assert_int_eq(f->counts[BROOK_STORED], 5001);
    ck_assert_uint_le(limit.largest, 3000);
    ck_assert_uint_gt(limit.largest, 1000);
    ck_assert_int_eq(limit.refused, 0);
    fixture_close(f);
}
END_TEST

/* ---- order ------------------------------------------------------------------------------------------ */

static enum stub_verdict fail_every_third(void *arg, const struct stub_request *q)
{
    static const int codes[] = {BROOK_E_NOT_ENOUGH_REPLICAS, BROOK_E_BUSY,       BROOK_E_STORAGE_FULL,
                                BROOK_E_CORRUPT_BATCH,       BROOK_E_NOT_LEADER, 4711,
                                BROOK_E_REQUEST_EXPIRED};
    if (!is_produce(q) || q->number % 3)
        return STUB_PASS;
    reply_code(q, codes[q->number / 3 % 7]);
    return STUB_DONE;
}

START_TEST(a_batch_that_is_sent_again_never_comes_behind_a_later_one)
{
    struct fixture *f = fixture_open(1, 2);
    fixture_start(f, fail_every_third);
    send_spread(f, 2, 3000);
    flush(f);
    ck_assert_int_eq(f->counts[BROOK_STORED], 3000);
    ck_assert_int_eq(check_logs(f, 2), 0);
    ck_assert_uint_gt(stub_cluster_requests(f->cluster, BROOK__REQUEST__BODY_PRODUCE), 20);
    fixture_close(f);
}
END_TEST

static enum stub_verdict whole_request_error(void *arg, const struct stub_request *q)
{
    if (!is_produce(q) || q->number % 2)
        return STUB_PASS;
    stub_reply_error(q, BROOK_E_BUSY, "too many requests");
    return STUB_DONE;
}

START_TEST(an_error_of_the_whole_request_is_one_of_each_batch)
{
    struct fixture *f = fixture_open(1, 3);
    fixture_start(f, whole_request_error);
    send_spread(f, 3, 600);
    flush(f);
    ck_assert_int_eq(f->counts[BROOK_STORED], 600);
    ck_assert_int_eq(check_logs(f, 3), 0);
    fixture_close(f);
}
END_TEST

/* One partition of a request fails, the others do not. */
static enum stub_verdict fail_partition_one(void *arg, const struct stub_request *q)
{
    struct fixture *f = arg;
    if (!is_produce(q))
        return STUB_PASS;
    for (size_t i = 0; i < q->request->produce->n_partitions; i++)
        if (q->request->produce->partitions[i]->partition == 1 && atomic_fetch_add(&f->step, 1) % 2 == 0) {
            /* An id that nobody knows: UNKNOWN_TOPIC for this entry. */
            q->request->produce->partitions[i]->topic_id.data[15] ^= 0xff;
        }
    return STUB_PASS;
}

START_TEST(each_partition_of_a_request_is_judged_for_itself)
{
    struct fixture *f = fixture_open(1, 4);
    fixture_start(f, fail_partition_one);
    send_spread(f, 4, 2000);
    flush(f);
    ck_assert_int_eq(f->counts[BROOK_STORED], 2000);
    ck_assert_int_eq(check_logs(f, 4), 0);
    fixture_close(f);
}
END_TEST

/* ---- lost answers ----------------------------------------------------------------------------------- */

/* About every fourth request; never the first one of a connection, or repeats could fall into step with it for ever. */
static enum stub_verdict store_and_hang_up(void *arg, const struct stub_request *q)
{
    struct fixture *f = arg;
    if (!is_produce(q)) {
        f->is_greeted |= q->request->body_case == BROOK__REQUEST__BODY_HELLO;
        return STUB_PASS;
    }
    bool is_first = f->is_greeted;
    f->is_greeted = false;
    if (atomic_fetch_add(&f->step, 1) % 4 != 1 || is_first)
        return STUB_PASS;
    size_t bytes;
    free(stub_render_default(q, &bytes)); /* stored, but not said */
    stub_close(q->connection);
    return STUB_DONE;
}

START_TEST(without_idempotence_a_lost_answer_may_duplicate_but_not_lose_or_reorder)
{
    struct fixture *f = fixture_open(1, 2);
    set(f, "enable.idempotence", "false");
    fixture_start(f, store_and_hang_up);
    send_spread(f, 2, 1000);
    flush(f);
    ck_assert_int_eq(f->counts[BROOK_STORED], 1000);
    ck_assert_int_gt(check_logs(f, 2), 0);
    fixture_close(f);
}
END_TEST

START_TEST(without_retries_a_lost_answer_is_reported_as_such_and_nothing_is_stored_twice)
{
    struct fixture *f = fixture_open(1, 2);
    set(f, "retries", "0");
    fixture_start(f, store_and_hang_up);
    send_spread(f, 2, 1000);
    flush(f);
    ck_assert_int_gt(f->counts[BROOK_MAYBE_STORED], 0);
    ck_assert_int_eq(f->counts[BROOK_NOT_STORED], 0);
    ck_assert_int_eq(f->last_code, BROOK_E_DISCONNECTED);
    ck_assert_int_eq(check_logs(f, 2), 0);
    fixture_close(f);
}
END_TEST

static enum stub_verdict swallow(void *arg, const struct stub_request *q)
{
    return is_produce(q) ? STUB_DONE : STUB_PASS;
}

START_TEST(silence_ends_at_the_delivery_timeout)
{
    struct fixture *f = fixture_open(1, 2);
    set(f, "delivery.timeout.ms", "600");
    set(f, "request.timeout.ms", "200");
    fixture_start(f, swallow);
    int64_t begin = clock_boot_ms();
    send_spread(f, 2, 100);
    flush(f);
    ck_assert_int_lt(clock_boot_ms() - begin, WAIT_MS);
    ck_assert_int_eq(f->counts[BROOK_STORED], 0);
    ck_assert_int_gt(f->counts[BROOK_MAYBE_STORED], 0);
    ck_assert_int_eq(f->last_code, BROOK_E_TIMED_OUT);
    fixture_close(f);
}
END_TEST

static enum stub_verdict full_for_ever(void *arg, const struct stub_request *q)
{
    if (!is_produce(q))
        return STUB_PASS;
    stub_reply_error(q, BROOK_E_STORAGE_FULL, "the disk of broker 1 is full");
    return STUB_DONE;
}

/* Whether time or the application ends it. */
START_TEST(what_is_given_up_says_why_the_last_attempt_failed)
{
    for (int purge = 0; purge < 2; purge++) {
        struct fixture *f = fixture_open(1, 1);
        set(f, "delivery.timeout.ms", purge ? "600000" : "300");
        set(f, "retry.backoff.ms", purge ? "300000" : "5");
        set(f, "retry.backoff.max.ms", purge ? "300000" : "1000");
        fixture_start(f, full_for_ever);
        send_one(f, 0);
        while (purge && stub_cluster_requests(f->cluster, BROOK__REQUEST__BODY_PRODUCE) == 0)
            brook_producer_poll(f->producer, 1);
        if (purge) {
            brook_producer_poll(f->producer, 200); /* the refusal comes back */
            brook_producer_purge(f->producer);
        }
        flush(f);
        ck_assert_int_eq(f->counts[BROOK_NOT_STORED], 1);
        ck_assert_msg(strstr(f->last_text, "the disk of broker 1 is full") != NULL, "%s", f->last_text);
        fixture_close(f);
    }
}
END_TEST

static enum stub_verdict refuse_for_good(void *arg, const struct stub_request *q)
{
    if (!is_produce(q))
        return STUB_PASS;
    reply_code(q, BROOK_E_MESSAGE_TOO_LARGE);
    return STUB_DONE;
}

START_TEST(a_refusal_for_good_is_reported_without_a_retry)
{
    struct fixture *f = fixture_open(1, 1);
    fixture_start(f, refuse_for_good);
    send_one(f, 0);
    flush(f);
    ck_assert_int_eq(f->counts[BROOK_NOT_STORED], 1);
    ck_assert_int_eq(f->last_code, BROOK_E_MESSAGE_TOO_LARGE);
    ck_assert_uint_eq(stub_cluster_requests(f->cluster, BROOK__REQUEST__BODY_PRODUCE), 1);
    fixture_close(f);
}
END_TEST

/* ---- leaders ---------------------------------------------------------------------------------------- */

START_TEST(a_leader_that_moves_is_followed)
{
    struct fixture *f = fixture_open(3, 3);
    fixture_start(f, NULL);
    for (int round = 0; round < 12; round++) {
        send_spread(f, 3, 150);
        for (int32_t p = 0; p < 3; p++)
            stub_cluster_set_leader(f->cluster, "t", p, round % 5 == 4 ? -1 : 1 + (p + round) % 3);
    }
    for (int32_t p = 0; p < 3; p++)
        stub_cluster_set_leader(f->cluster, "t", p, 2);
    flush(f);
    ck_assert_int_eq(f->counts[BROOK_STORED], f->sent);
    check_logs(f, 3);
    fixture_close(f);
}
END_TEST

static bool more_is_stored(void *arg)
{
    struct fixture *f = arg;
    int64_t before = stub_cluster_end_offset(f->cluster, "t", 0);
    send_spread(f, 1, 10);
    brook_producer_poll(f->producer, 20);
    return stub_cluster_end_offset(f->cluster, "t", 0) > before;
}

START_TEST(unacknowledged_records_follow_a_leader_that_moved)
{
    struct fixture *f = fixture_open(2, 1);
    set(f, "acks", "none");
    fixture_start(f, NULL);
    ck_assert(suite_wait(more_is_stored, f, WAIT_MS));
    for (int round = 0; round < 4; round++) {
        stub_cluster_set_leader(f->cluster, "t", 0, 1 + (round + 1) % 2);
        ck_assert(suite_wait(more_is_stored, f, WAIT_MS));
        ck_assert(suite_wait(more_is_stored, f, WAIT_MS));
    }
    flush(f);
    fixture_close(f);
}
END_TEST

START_TEST(records_that_wait_for_a_dead_leader_go_to_the_next_one)
{
    struct fixture *f = fixture_open(2, 2);
    fixture_start(f, NULL);
    send_spread(f, 2, 10);
    flush(f);
    stub_cluster_stop_broker(f->cluster, 1);
    /* It waits for a connection to broker 1, which does not come. */
    send_one(f, 0);
    ck_assert_int_eq(brook_producer_flush(f->producer, 100), -BROOK_E_TIMED_OUT);
    stub_cluster_set_leader(f->cluster, "t", 0, 2);
    flush(f);
    ck_assert_int_eq(f->counts[BROOK_STORED], 11);
    fixture_close(f);
}
END_TEST

static enum stub_verdict first_broker_is_silent(void *arg, const struct stub_request *q)
{
    struct fixture *f = arg;
    if (!is_produce(q) || q->broker_id != 1)
        return STUB_PASS;
    f->step++;
    return STUB_DONE;
}

static bool has_taken_a_step(void *arg)
{
    struct fixture *f = arg;
    return f->step > 0;
}

START_TEST(a_leader_that_does_not_answer_is_asked_about)
{
    struct fixture *f = fixture_open(2, 1);
    set(f, "request.timeout.ms", "300");
    set(f, "connect.timeout.ms", "60000"); /* how long silence does not cost the connection */
    fixture_start(f, first_broker_is_silent);
    send_one(f, 0);
    ck_assert(suite_wait(has_taken_a_step, f, WAIT_MS));
    stub_cluster_set_leader(f->cluster, "t", 0, 2);
    flush(f);
    ck_assert_int_eq(f->counts[BROOK_STORED], 1);
    fixture_close(f);
}
END_TEST

START_TEST(a_broker_that_is_gone_costs_its_partitions_only)
{
    struct fixture *f = fixture_open(2, 2);
    set(f, "delivery.timeout.ms", "1500");
    fixture_start(f, NULL);
    send_spread(f, 2, 10);
    flush(f);
    stub_cluster_stop_broker(f->cluster, 1);
    send_spread(f, 2, 10);
    flush(f);
    ck_assert_int_eq(f->counts[BROOK_STORED], 15);
    ck_assert_int_eq(f->counts[BROOK_STORED] + f->counts[BROOK_NOT_STORED] + f->counts[BROOK_MAYBE_STORED],
                     20);
    stub_cluster_start_broker(f->cluster, 1);
    send_spread(f, 2, 10);
    flush(f);
    ck_assert_int_eq(f->counts[BROOK_STORED], 25);
    check_logs(f, 2);
    fixture_close(f);
}
END_TEST

START_TEST(a_topic_made_anew_is_produced_to_again)
{
    struct fixture *f = fixture_open(1, 2);
    fixture_start(f, NULL);
    stub_cluster_set_leader(f->cluster, "t", 0, 1); /* epochs above those of the next topic */
    stub_cluster_set_leader(f->cluster, "t", 1, 1);
    for (int round = 0; round < 5; round++) {
        send_spread(f, 2, 20);
        flush(f);
        stub_cluster_add_topic(f->cluster, "t", 2);
    }
    send_spread(f, 2, 20);
    flush(f);
    ck_assert_int_eq(f->counts[BROOK_STORED], f->sent);
    fixture_close(f);
}
END_TEST

static enum stub_verdict forget_topic_once(void *arg, const struct stub_request *q)
{
    if (q->request->body_case == BROOK__REQUEST__BODY_METADATA && q->number == 1) {
        stub_cluster_on_request(q->cluster, NULL, NULL);
        for (size_t i = 0; i < q->request->metadata->n_topics; i++)
            q->request->metadata->topics[i].data[0] ^= 1;
    }
    return STUB_PASS;
}

START_TEST(a_topic_that_seems_to_vanish_once_loses_nothing)
{
    struct fixture *f = fixture_open(1, 1);
    set(f, "metadata.max.age.ms", "100");
    fixture_start(f, forget_topic_once);
    int64_t until = clock_boot_ms() + 500;
    while (clock_boot_ms() < until)
        send_spread(f, 1, 10);
    flush(f);
    ck_assert_int_eq(f->counts[BROOK_STORED], f->sent);
    ck_assert_int_eq(check_logs(f, 1), 0);
    fixture_close(f);
}
END_TEST

START_TEST(a_deleted_topic_ends_what_waits_for_it)
{
    struct fixture *f = fixture_open(1, 1);
    fixture_start(f, NULL);
    send_spread(f, 1, 10);
    flush(f);
    stub_cluster_remove_topic(f->cluster, "t");
    send_spread(f, 1, 10);
    flush(f);
    ck_assert_int_eq(f->counts[BROOK_STORED], 10);
    ck_assert_int_eq(f->counts[BROOK_NOT_STORED], 10);
    ck_assert_int_eq(f->last_code, BROOK_E_UNKNOWN_TOPIC);
    fixture_close(f);
}
END_TEST

/* ---- purge, close ----------------------------------------------------------------------------------- */

START_TEST(purge_reports_everything_at_once)
{
    struct fixture *f = fixture_open(1, 2);
    fixture_start(f, swallow);
    send_spread(f, 2, 1000);
    brook_producer_purge(f->producer);
    flush(f);
    ck_assert_int_eq(f->counts[BROOK_STORED], 0);
    ck_assert_int_gt(f->counts[BROOK_NOT_STORED], 0);
    ck_assert_int_eq(f->last_code, BROOK_E_PURGED);
    check_reported_once(f);
    /* And the producer goes on. */
    stub_cluster_stop_broker(f->cluster, 1);
    stub_cluster_on_request(f->cluster, NULL, NULL);
    stub_cluster_start_broker(f->cluster, 1);
    send_one(f, 0);
    flush(f);
    ck_assert_int_eq(f->counts[BROOK_STORED], 1);
    fixture_close(f);
}
END_TEST

START_TEST(close_reports_what_it_could_not_send)
{
    for (int with_broker = 0; with_broker < 2; with_broker++) {
        struct fixture *f = fixture_open(1, 1);
        if (!with_broker)
            set(f, "bootstrap.servers", "127.0.0.1:1");
        fixture_start(f, swallow);
        for (int i = 0; i < 100; i++)
            send_one(f, 0);
        ck_assert_int_eq(brook_producer_close(f->producer, 100), 100);
        f->producer = NULL;
        ck_assert_int_eq(f->counts[BROOK_NOT_STORED] + f->counts[BROOK_MAYBE_STORED], 100);
        fixture_close(f);
    }
}
END_TEST

/* ---- everything at once ----------------------------------------------------------------------------- */

struct chaos {
    struct fixture *f;
    uint64_t random;
};
static enum stub_verdict misbehave(void *arg, const struct stub_request *q)
{
    struct chaos *chaos = arg;
    static const int codes[] = {BROOK_E_NOT_LEADER, BROOK_E_BUSY, BROOK_E_NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                                BROOK_E_STORAGE_ERROR, BROOK_E_TIMED_OUT};
    if (!is_produce(q))
        return STUB_PASS;
    size_t bytes;
    switch (suite_random_below(&chaos->random, 12)) {
    case 0:
        stub_close(q->connection);
        return STUB_DONE;
    case 1:
        free(stub_render_default(q, &bytes));
        stub_close(q->connection);
        return STUB_DONE;
    case 2:
        reply_code(q, codes[suite_random_below(&chaos->random, 5)]);
        return STUB_DONE;
    case 3:
        stub_reply_default(q, (int)suite_random_below(&chaos->random, 30));
        return STUB_DONE;
    case 4: { /* a reply that is cut */
        uint8_t *frame = stub_render_default(q, &bytes);
        stub_send_raw(q->connection, frame, suite_random_below(&chaos->random, bytes));
        free(frame);
        stub_close(q->connection);
        return STUB_DONE;
    }
    case 5:
        return suite_random_below(&chaos->random, 8) ? STUB_PASS : STUB_DONE; /* silence */
    default:
        return STUB_PASS;
    }
}

START_TEST(every_record_is_reported_once_whatever_the_brokers_do)
{
    uint64_t seed = suite_seed();
    for (int round = 0; round < 6; round++) {
        struct chaos chaos = {.random = seed + (uint64_t)round};
        uint64_t random = seed * 31 + (uint64_t)round;
        struct fixture *f = fixture_open(1, PARTITIONS_MAX);
        set(f, "request.timeout.ms", "300");
        set(f, "connect.timeout.ms", "300");
        set(f, "delivery.timeout.ms", round % 2 ? "800" : "60000");
        set(f, "retries", round == 5 ? "0" : "1000");
        set(f, "compression", round % 3 == 1 ? "lz4" : "none");
        fixture_start(f, NULL);
        stub_cluster_on_request(f->cluster, misbehave, &chaos);
        for (int i = 0; i < 4000; i++) {
            send_one(f, (int32_t)suite_random_below(&random, PARTITIONS_MAX));
            if (suite_random_below(&random, 100) == 0)
                brook_producer_poll(f->producer, (int)suite_random_below(&random, 10));
            if (suite_random_below(&random, 1500) == 0)
                brook_producer_purge(f->producer);
        }
        stub_cluster_on_request(f->cluster, NULL, NULL);
        flush(f);
        check_reported_once(f);
        check_logs(f, PARTITIONS_MAX);
        fixture_close(f);
    }
}
END_TEST

SUITE_MAIN("client/producer_failures", SUITE_TEST(a_batch_that_is_too_large_is_cut_until_it_fits),
           SUITE_TEST(only_the_record_that_is_too_large_itself_fails),
           SUITE_TEST(what_is_cut_is_reported_once_with_several_requests_on_their_way),
           SUITE_TEST(no_batch_is_larger_than_the_broker_says_it_takes),
           SUITE_TEST(a_batch_that_is_sent_again_never_comes_behind_a_later_one),
           SUITE_TEST(an_error_of_the_whole_request_is_one_of_each_batch),
           SUITE_TEST(each_partition_of_a_request_is_judged_for_itself),
           SUITE_TEST(without_idempotence_a_lost_answer_may_duplicate_but_not_lose_or_reorder),
           SUITE_TEST(without_retries_a_lost_answer_is_reported_as_such_and_nothing_is_stored_twice),
           SUITE_TEST(silence_ends_at_the_delivery_timeout),
           SUITE_TEST(what_is_given_up_says_why_the_last_attempt_failed),
           SUITE_TEST(a_refusal_for_good_is_reported_without_a_retry),
           SUITE_TEST(a_leader_that_moves_is_followed),
           SUITE_TEST(a_leader_that_does_not_answer_is_asked_about),
           SUITE_TEST(records_that_wait_for_a_dead_leader_go_to_the_next_one),
           SUITE_TEST(unacknowledged_records_follow_a_leader_that_moved),
           SUITE_TEST(a_broker_that_is_gone_costs_its_partitions_only),
           SUITE_TEST(a_topic_made_anew_is_produced_to_again),
           SUITE_TEST(a_topic_that_seems_to_vanish_once_loses_nothing),
           SUITE_TEST(a_deleted_topic_ends_what_waits_for_it), SUITE_TEST(purge_reports_everything_at_once),
           SUITE_TEST(close_reports_what_it_could_not_send),
           SUITE_TEST_SLOW(every_record_is_reported_once_whatever_the_brokers_do, 60))
