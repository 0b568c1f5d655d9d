/* The idempotent producer against a broker that checks its numbers: each record once and in order, whatever gets lost. */
#include "client/producer_parts.h"
#include "tests/support/stub_broker.h"
#include "tests/support/suite.h"

#include <brook/brook.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_MS 15000
#define RECORDS_MAX 20000
#define PARTITIONS_MAX 3

struct fixture {
    struct stub_cluster *cluster;
    brook_config *config;
    brook_producer *producer;
    unsigned char reports[RECORDS_MAX];
    enum brook_outcome outcomes[RECORDS_MAX];
    int64_t offsets[RECORDS_MAX];
    int sent;
    int counts[3];
    int last_code;
    int refusal; /* that the stub answers: set before it is asked */
    char last_text[256];
    atomic_int step;
    bool is_greeted;    /* the stub's thread: the connection is new, nothing was produced over it */
    atomic_int hang_ups;
    atomic_int most_in_flight; /* batches of one partition seen without an answer */
    uint64_t dice;
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
    set(f, "batch.size", "500");
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

static void send_spread(struct fixture *f, int32_t partitions, int count)
{
    for (int i = 0; i < count; i++) {
        send_one(f, i % partitions);
        if (i % 50 == 0)
            brook_producer_poll(f->producer, 1);
    }
}

static void flush(struct fixture *f)
{
    ck_assert_int_eq(brook_producer_flush(f->producer, WAIT_MS), 0);
}

static void fixture_close(struct fixture *f)
{
    if (f->producer)
        brook_producer_close(f->producer, WAIT_MS);
    for (int i = 0; i < f->sent; i++)
        ck_assert_int_eq(f->reports[i], 1);
    brook_config_free(f->config);
    stub_cluster_free(f->cluster);
    free(f);
}

struct log_check {
    struct fixture *f;
    int last;
    unsigned char *seen;
};

static void check_record(void *arg, const struct record *record)
{
    struct log_check *c = arg;
    char text[16];
    snprintf(text, sizeof text, "%.*s", record->value_bytes, (const char *)record->value);
    int number = atoi(text);
    ck_assert_msg(!c->seen[number]++, "record %d is there twice", number);
    ck_assert_msg(number > c->last, "record %d comes behind %d", number, c->last);
    c->last = number;
    if (c->f->outcomes[number] == BROOK_STORED && c->f->offsets[number] >= 0)
        ck_assert_int_eq(c->f->offsets[number], record->offset);
}

/* Each record at most once, in order, at the offset that was reported; stored is there, not stored is not. */
static void check_logs(struct fixture *f, int32_t partitions)
{
    unsigned char *seen = calloc(RECORDS_MAX, 1);
    for (int32_t p = 0; p < partitions; p++) {
        struct log_check c = {.f = f, .last = -1, .seen = seen};
        stub_cluster_walk(f->cluster, "t", p, check_record, &c);
    }
    for (int i = 0; i < f->sent; i++) {
        if (f->outcomes[i] == BROOK_STORED)
            ck_assert_msg(seen[i] == 1, "record %d was lost", i);
        if (f->outcomes[i] == BROOK_NOT_STORED)
            ck_assert_msg(seen[i] == 0, "record %d was stored after all", i);
    }
    free(seen);
}

static bool is_produce(const struct stub_request *q)
{
    return q->request->body_case == BROOK__REQUEST__BODY_PRODUCE;
}

static void reply_code(const struct stub_request *q, int code, bool maybe_stored)
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
        answer.partitions[i]->has_maybe_stored = answer.partitions[i]->maybe_stored = maybe_stored;
    }
    response.body_case = BROOK__RESPONSE__BODY_PRODUCE;
    response.produce = &answer;
    stub_reply(q, &response, NULL, 0, 0);
    arena_free(a);
}

static void store_in_silence(const struct stub_request *q)
{
    size_t bytes;
    free(stub_render_default(q, &bytes));
}

/* ---- lost requests and answers ---------------------------------------------------------------------- */

/* About every fourth request is stored and its answer lost. Never the first one of a connection: what is repeated after a
 * hang-up may be four requests again, of which the first would meet the next hang-up, for ever. */
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
    atomic_fetch_add(&f->hang_ups, 1);
    store_in_silence(q);
    stub_close(q->connection);
    return STUB_DONE;
}

START_TEST(lost_answers_neither_duplicate_nor_reorder)
{
    struct fixture *f = fixture_open(1, 2);
    fixture_start(f, store_and_hang_up);
    send_spread(f, 2, 1500);
    flush(f);
    ck_assert_int_eq(f->counts[BROOK_STORED], 1500);
    check_logs(f, 2);
    ck_assert_int_ge(atomic_load(&f->hang_ups), 2);
    fixture_close(f);
}
END_TEST

static enum stub_verdict misbehave(void *arg, const struct stub_request *q)
{
    static const int codes[] = {BROOK_E_NOT_LEADER, BROOK_E_NOT_ENOUGH_REPLICAS, BROOK_E_STORAGE_FULL,
                                BROOK_E_REQUEST_EXPIRED, BROOK_E_OUTCOME_UNKNOWN};
    struct fixture *f = arg;
    if (!is_produce(q))
        return STUB_PASS;
    switch (suite_random_below(&f->dice, 14)) {
    case 0:
        stub_close(q->connection);
        return STUB_DONE;
    case 1:
    case 2:
        store_in_silence(q);
        stub_close(q->connection);
        return STUB_DONE;
    case 3:
        store_in_silence(q);
        reply_code(q, BROOK_E_NOT_LEADER, true);
        return STUB_DONE;
    case 4:
    case 5:
        reply_code(q, codes[suite_random_below(&f->dice, 5)], false);
        return STUB_DONE;
    case 6:
        stub_reply_default(q, (int)suite_random_below(&f->dice, 20));
        return STUB_DONE;
    default:
        return STUB_PASS;
    }
}

START_TEST(each_record_once_and_in_order_whatever_is_lost)
{
    uint64_t seed = suite_seed();
    for (int round = 0; round < (suite_is_quick() ? 2 : 8); round++) {
        struct fixture *f = fixture_open(1, PARTITIONS_MAX);
        f->dice = seed + (uint64_t)round;
        set(f, "compression", round % 3 == 1 ? "lz4" : "none");
        set(f, "max.request.size", round % 2 ? "1024" : "65536");
        fixture_start(f, misbehave);
        send_spread(f, PARTITIONS_MAX, 1500);
        flush(f);
        ck_assert_msg(f->counts[BROOK_STORED] == 1500, "%s", f->last_text);
        check_logs(f, PARTITIONS_MAX);
        fixture_close(f);
    }
}
END_TEST

/* Several are on their way at once, and never more than the broker remembers. */
static enum stub_verdict answer_late(void *arg, const struct stub_request *q)
{
    struct fixture *f = arg;
    if (!is_produce(q))
        return STUB_PASS;
    int batches = 0;
    struct batch_header h;
    for (size_t at = 0; at < q->records_bytes; at += h.total_bytes, batches++)
        ck_assert_int_eq(batch_read_header(q->records + at, q->records_bytes - at, &h), 0);
    int now = atomic_fetch_add(&f->step, batches) + batches;
    if (now > atomic_load(&f->most_in_flight))
        atomic_store(&f->most_in_flight, now);
    if (now < PRODUCER_BATCHES_IN_FLIGHT_MAX) { /* the answers come when the line is full */
        stub_reply_default(q, 150);
        return STUB_DONE;
    }
    atomic_store(&f->step, 0);
    stub_reply_default(q, 150);
    return STUB_DONE;
}

START_TEST(as_many_batches_as_the_broker_remembers_are_on_their_way)
{
    struct fixture *f = fixture_open(1, 1);
    set(f, "batch.size", "100");
    fixture_start(f, answer_late);
    for (int i = 0; i < 200; i++)
        send_one(f, 0);
    flush(f);
    ck_assert_int_eq(atomic_load(&f->most_in_flight), PRODUCER_BATCHES_IN_FLIGHT_MAX);
    ck_assert_int_eq(f->counts[BROOK_STORED], 200);
    check_logs(f, 1);
    fixture_close(f);
}
END_TEST

/* As a second address of a broker that has a connection already: it is ready, and no broker by id. */
static void be_ready_by_address(void *arg)
{
    brook_producer *p = arg;
    p->listener.channel_ready(p, -1, CLIENT_LANE_REQUESTS);
}

START_TEST(an_address_says_nothing_of_how_many_batches_may_be_on_their_way)
{
    struct fixture *f = fixture_open(1, 1);
    set(f, "batch.size", "100");
    fixture_start(f, answer_late);
    client_call(f->producer->client, be_ready_by_address, f->producer);
    for (int i = 0; i < 200; i++)
        send_one(f, 0);
    flush(f);
    ck_assert_int_eq(atomic_load(&f->most_in_flight), PRODUCER_BATCHES_IN_FLIGHT_MAX);
    fixture_close(f);
}
END_TEST

/* ---- numbers that are not taken --------------------------------------------------------------------- */

START_TEST(unknown_producer_begins_anew)
{
    struct fixture *f = fixture_open(1, 1);
    fixture_start(f, NULL);
    for (int round = 0; round < 3; round++) {
        send_spread(f, 1, 500);
        flush(f);
        stub_cluster_forget_producers(f->cluster, "t", 0);
    }
    ck_assert_int_eq(f->counts[BROOK_STORED], 1500);
    check_logs(f, 1);
    fixture_close(f);
}
END_TEST

static enum stub_verdict refuse_the_third(void *arg, const struct stub_request *q)
{
    struct fixture *f = arg;
    if (!is_produce(q) || atomic_fetch_add(&f->step, 1) != 2)
        return STUB_PASS;
    reply_code(q, BROOK_E_INVALID_TIMESTAMP, false);
    return STUB_DONE;
}

START_TEST(refused_batch_is_a_gap_that_the_next_ones_get_over)
{
    struct fixture *f = fixture_open(1, 1);
    set(f, "max.request.size", "1024");
    fixture_start(f, refuse_the_third);
    send_spread(f, 1, 2000);
    flush(f);
    ck_assert_int_gt(f->counts[BROOK_NOT_STORED], 0);
    ck_assert_int_lt(f->counts[BROOK_NOT_STORED], 500);
    ck_assert_int_eq(f->counts[BROOK_NOT_STORED] + f->counts[BROOK_STORED], 2000);
    ck_assert_int_eq(f->last_code, BROOK_E_INVALID_TIMESTAMP);
    check_logs(f, 1);
    fixture_close(f);
}
END_TEST

/* The answer is lost, and then the broker forgets: nobody can tell any more. */
static enum stub_verdict store_and_forget(void *arg, const struct stub_request *q)
{
    struct fixture *f = arg;
    if (!is_produce(q) || atomic_fetch_add(&f->step, 1) != 1)
        return STUB_PASS;
    store_in_silence(q);
    stub_cluster_forget_producers(f->cluster, "t", 0);
    stub_close(q->connection);
    return STUB_DONE;
}

START_TEST(what_nobody_can_tell_is_reported_as_maybe_stored_and_not_sent_anew)
{
    struct fixture *f = fixture_open(1, 1);
    fixture_start(f, store_and_forget);
    send_one(f, 0);
    flush(f);
    send_one(f, 0);
    flush(f);
    ck_assert_int_eq(f->outcomes[1], BROOK_MAYBE_STORED);
    ck_assert_int_eq(f->last_code, BROOK_E_UNKNOWN_PRODUCER);
    send_spread(f, 1, 100);
    flush(f);
    ck_assert_int_eq(f->counts[BROOK_STORED], 101);
    check_logs(f, 1);
    ck_assert_int_eq(stub_cluster_end_offset(f->cluster, "t", 0), 102);
    fixture_close(f);
}
END_TEST

/* A leader that is deposed has written it, and says so. */
static enum stub_verdict store_and_resign(void *arg, const struct stub_request *q)
{
    struct fixture *f = arg;
    if (!is_produce(q) || atomic_fetch_add(&f->step, 1) != 1)
        return STUB_PASS;
    store_in_silence(q);
    stub_cluster_forget_producers(f->cluster, "t", 0);
    reply_code(q, BROOK_E_NOT_LEADER, true);
    return STUB_DONE;
}

START_TEST(what_a_deposed_leader_has_written_is_not_sent_anew_either)
{
    struct fixture *f = fixture_open(1, 1);
    fixture_start(f, store_and_resign);
    send_one(f, 0);
    flush(f);
    send_one(f, 0);
    flush(f);
    ck_assert_int_eq(f->outcomes[1], BROOK_MAYBE_STORED);
    check_logs(f, 1);
    fixture_close(f);
}
END_TEST

/* Three are on their way and lost. Then the first is refused for a while, and so are those behind it, for their numbers:
 * that says nothing of them. */
static enum stub_verdict lose_three_refuse_one(void *arg, const struct stub_request *q)
{
    struct fixture *f = arg;
    if (!is_produce(q))
        return STUB_PASS;
    int step = atomic_fetch_add(&f->step, 1);
    if (step == 3)
        stub_close(q->connection);
    if (step >= 1 && step <= 3)
        return STUB_DONE;
    if (step != 4)
        return STUB_PASS;
    reply_code(q, BROOK_E_NOT_ENOUGH_REPLICAS, false);
    return STUB_DONE;
}

START_TEST(numbers_that_come_too_early_are_sent_again)
{
    struct fixture *f = fixture_open(1, 1);
    set(f, "batch.size", "1");
    fixture_start(f, lose_three_refuse_one);
    send_one(f, 0);
    flush(f);
    for (int i = 0; i < 5; i++)
        send_one(f, 0);
    flush(f);
    ck_assert_msg(f->counts[BROOK_STORED] == 6, "%s", f->last_text);
    ck_assert_int_eq(f->producer->topics->partitions[0]->producer_epoch, 0);
    check_logs(f, 1);
    fixture_close(f);
}
END_TEST

static enum stub_verdict fence(void *arg, const struct stub_request *q)
{
    if (!is_produce(q))
        return STUB_PASS;
    reply_code(q, BROOK_E_PRODUCER_FENCED, false);
    return STUB_DONE;
}

START_TEST(fenced_producer_is_told_so)
{
    struct fixture *f = fixture_open(1, 1);
    fixture_start(f, fence);
    send_spread(f, 1, 100);
    flush(f);
    ck_assert_int_eq(f->counts[BROOK_NOT_STORED], 100);
    ck_assert_int_eq(f->last_code, BROOK_E_PRODUCER_FENCED);
    fixture_close(f);
}
END_TEST

/* PC-03: over the largest number, with answers lost on the way. */
START_TEST(sequence_wraps_on_both_sides)
{
    struct fixture *f = fixture_open(1, 1);
    set(f, "batch.size", "1");
    fixture_start(f, store_and_hang_up);
    f->producer->first_sequence = INT32_MAX - 2;
    stub_cluster_know_producer(f->cluster, "t", 0, 0, INT32_MAX - 2);
    for (int i = 0; i < 30; i++)
        send_one(f, 0);
    flush(f);
    ck_assert_int_eq(f->counts[BROOK_STORED], 30);
    check_logs(f, 1);
    ck_assert_int_eq(stub_cluster_end_offset(f->cluster, "t", 0), 30);
    ck_assert_int_ge(atomic_load(&f->hang_ups), 2);
    fixture_close(f);
}
END_TEST

/* ---- topics ----------------------------------------------------------------------------------------- */

START_TEST(topic_made_anew_gets_new_numbers)
{
    struct fixture *f = fixture_open(1, 1);
    fixture_start(f, NULL);
    for (int round = 0; round < 3; round++) {
        int before = f->counts[BROOK_STORED];
        send_spread(f, 1, 200);
        flush(f);
        ck_assert_msg(f->counts[BROOK_STORED] == before + 200, "%s", f->last_text);
        ck_assert_int_eq(stub_cluster_end_offset(f->cluster, "t", 0), 200);
        stub_cluster_add_topic(f->cluster, "t", 1);
    }
    fixture_close(f);
}
END_TEST

/* ---- the producer id -------------------------------------------------------------------------------- */

static enum stub_verdict refuse_ids(void *arg, const struct stub_request *q)
{
    struct fixture *f = arg;
    if (q->request->body_case != BROOK__REQUEST__BODY_INIT_PRODUCER || atomic_load(&f->step) == 0)
        return STUB_PASS;
    if (atomic_load(&f->step) > 0)
        atomic_fetch_sub(&f->step, 1);
    stub_reply_error(q, f->refusal, "not now");
    return STUB_DONE;
}

START_TEST(producer_id_is_asked_for_until_there_is_one)
{
    struct fixture *f = fixture_open(1, 2);
    atomic_store(&f->step, 4);
    f->refusal = BROOK_E_COORDINATION_LOST;
    fixture_start(f, refuse_ids);
    send_spread(f, 2, 100);
    flush(f);
    ck_assert_int_eq(f->counts[BROOK_STORED], 100);
    ck_assert_uint_eq(stub_cluster_requests(f->cluster, BROOK__REQUEST__BODY_INIT_PRODUCER), 5);
    fixture_close(f);
}
END_TEST

static enum stub_verdict first_has_none(void *arg, const struct stub_request *q)
{
    struct fixture *f = arg;
    if (q->request->body_case != BROOK__REQUEST__BODY_INIT_PRODUCER || q->broker_id != 1)
        return STUB_PASS;
    atomic_fetch_add(&f->step, 1);
    stub_reply_error(q, BROOK_E_COORDINATION_LOST, "not now");
    return STUB_DONE;
}

START_TEST(another_broker_is_asked_for_a_producer_id_when_one_has_none)
{
    struct fixture *f = fixture_open(2, 2);
    char first[32];
    snprintf(first, sizeof first, "127.0.0.1:%d", stub_cluster_port(f->cluster, 1));
    set(f, "bootstrap.servers", first);
    fixture_start(f, first_has_none);
    send_spread(f, 2, 100);
    flush(f);
    ck_assert_int_eq(f->counts[BROOK_STORED], 100);
    ck_assert_int_ge(atomic_load(&f->step), 1);
    fixture_close(f);
}
END_TEST

START_TEST(brokers_that_give_no_producer_ids_fail_the_records)
{
    struct fixture *f = fixture_open(1, 1);
    atomic_store(&f->step, -1);
    f->refusal = BROOK_E_UNSUPPORTED;
    fixture_start(f, refuse_ids);
    send_spread(f, 1, 10);
    flush(f);
    ck_assert_int_eq(f->counts[BROOK_NOT_STORED], 10);
    ck_assert_int_eq(f->last_code, BROOK_E_UNSUPPORTED);
    ck_assert_msg(strstr(f->last_text, "no producer id") != NULL, "%s", f->last_text);
    fixture_close(f);
}
END_TEST

/* ---- settings --------------------------------------------------------------------------------------- */

static const struct contradiction {
    const char *key, *value;
} contradictions[] = {
    {"acks", "leader"}, {"acks", "none"}, {"retries", "0"}, {"max.in.flight.requests.per.partition", "6"}};

START_TEST(contradictions_are_refused_when_asked_for_and_else_switch_it_off)
{
    for (size_t i = 0; i < sizeof contradictions / sizeof contradictions[0]; i++) {
        struct fixture *f = fixture_open(1, 1);
        struct brook_error error;
        set(f, contradictions[i].key, contradictions[i].value);
        fixture_start(f, NULL);
        ck_assert(!f->producer->is_idempotent);
        send_spread(f, 1, 10);
        flush(f);
        ck_assert_uint_eq(stub_cluster_requests(f->cluster, BROOK__REQUEST__BODY_INIT_PRODUCER), 0);
        set(f, "enable.idempotence", "true");
        brook_producer *second = NULL;
        ck_assert_int_eq(brook_producer_new(f->config, &second, &error), -BROOK_E_CONFIG);
        ck_assert_msg(strstr(error.text, contradictions[i].key) != NULL, "%s", error.text);
        fixture_close(f);
    }
}
END_TEST

SUITE_MAIN("client/producer_idempotence", SUITE_TEST(lost_answers_neither_duplicate_nor_reorder),
           SUITE_TEST_SLOW(each_record_once_and_in_order_whatever_is_lost, 60),
           SUITE_TEST(as_many_batches_as_the_broker_remembers_are_on_their_way),
           SUITE_TEST(an_address_says_nothing_of_how_many_batches_may_be_on_their_way),
           SUITE_TEST(unknown_producer_begins_anew),
           SUITE_TEST(refused_batch_is_a_gap_that_the_next_ones_get_over),
           SUITE_TEST(what_nobody_can_tell_is_reported_as_maybe_stored_and_not_sent_anew),
           SUITE_TEST(what_a_deposed_leader_has_written_is_not_sent_anew_either),
           SUITE_TEST(numbers_that_come_too_early_are_sent_again), SUITE_TEST(fenced_producer_is_told_so), SUITE_TEST(sequence_wraps_on_both_sides),
           SUITE_TEST(topic_made_anew_gets_new_numbers), SUITE_TEST(producer_id_is_asked_for_until_there_is_one),
           SUITE_TEST(another_broker_is_asked_for_a_producer_id_when_one_has_none),
           SUITE_TEST(brokers_that_give_no_producer_ids_fail_the_records),
           SUITE_TEST(contradictions_are_refused_when_asked_for_and_else_switch_it_off))
