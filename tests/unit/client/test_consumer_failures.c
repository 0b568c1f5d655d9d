#include "proto/base/diag.h"
#include "proto/base/err.h"
#include "tests/unit/client/consumer_fixture.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int codes[] = {
#define X(number, name, advice, text) (number),
    BROOK_ERRORS(X)
#undef X
        99,
    777};
#define CODES (sizeof codes / sizeof codes[0])
/* After most of them a client waits: several at a time. */
#define PARTS 6

/* ---- error codes ---- */

struct fault {
    Brook__Request__BodyCase body;
    int code;
    bool is_whole; /* of the request, not of its entry */
    _Atomic int left;
};

static void reply_entry_error(const struct stub_request *q, int code)
{
    struct arena *arena;
    ck_assert_int_eq(arena_new(1 << 20, &arena), 0);
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__PullResponse pull = BROOK__PULL_RESPONSE__INIT;
    Brook__PulledPartition pulled = BROOK__PULLED_PARTITION__INIT, *pulled_p = &pulled;
    Brook__ListOffsetsResponse list = BROOK__LIST_OFFSETS_RESPONSE__INIT;
    Brook__ListedOffset listed = BROOK__LISTED_OFFSET__INIT, *listed_p = &listed;
    Brook__FetchOffsetsResponse fetch = BROOK__FETCH_OFFSETS_RESPONSE__INIT;
    Brook__FetchedOffset fetched = BROOK__FETCHED_OFFSET__INIT, *fetched_p = &fetched;
    Brook__Status *status = envelope_status(arena, code, "");
    pulled.status = listed.status = fetched.status = status;
    if (q->request->body_case == BROOK__REQUEST__BODY_PULL) {
        response.body_case = BROOK__RESPONSE__BODY_PULL;
        response.pull = &pull;
        pull.n_partitions = q->request->pull->n_partitions > 0;
        pull.partitions = &pulled_p;
        pulled.has_topic_id = pulled.has_partition = 1;
        if (pull.n_partitions)
            pulled.topic_id = q->request->pull->partitions[0]->topic_id;
        pulled.partition = 0;
    } else if (q->request->body_case == BROOK__REQUEST__BODY_LIST_OFFSETS) {
        response.body_case = BROOK__RESPONSE__BODY_LIST_OFFSETS;
        response.list_offsets = &list;
        list.n_partitions = 1;
        list.partitions = &listed_p;
    } else {
        response.body_case = BROOK__RESPONSE__BODY_FETCH_OFFSETS;
        response.fetch_offsets = &fetch;
        fetch.n_offsets = 1;
        fetch.offsets = &fetched_p;
        fetched.has_topic = fetched.has_partition = 1;
        fetched.topic = envelope_text("t");
        fetched.partition = 0;
    }
    stub_reply(q, &response, NULL, 0, 0);
    arena_free(arena);
}

static enum stub_verdict inject(void *arg, const struct stub_request *q)
{
    struct fault *fault = arg;
    if (q->request->body_case != fault->body || atomic_load(&fault->left) <= 0)
        return STUB_PASS;
    /* In a session only those named can be answered for here. */
    if (!fault->is_whole && q->request->body_case == BROOK__REQUEST__BODY_PULL &&
        q->request->pull->n_partitions == 0)
        return STUB_PASS;
    atomic_fetch_sub(&fault->left, 1);
    if (fault->is_whole)
        stub_reply_error(q, fault->code, "");
    else
        reply_entry_error(q, fault->code);
    return STUB_DONE;
}

/* Reads 5..20 of a partition while the fault lasts. Returns the first code that poll reported, 0: none. */
static int read_through(struct fault *fault, int64_t start, const char *reset, int64_t first)
{
    struct consumer_fixture f;
    int reported = 0;
    fixture_open(&f, 1);
    f.no_sessions = !fault->is_whole;
    f.function = inject;
    f.function_arg = fault;
    fixture_set(&f, "group.id", "g");
    fixture_set(&f, "auto.offset.reset", reset);
    fixture_set(&f, "enable.auto.commit", "false");
    stub_cluster_add_topic(f.cluster, "t", 1);
    fixture_append(&f, "t", 0, 20, 0);
    fixture_store(&f, "t", 0, 5);
    fixture_assign(&f, "t", 0, start);
    for (int64_t at = first; at < 20 && reported == 0;) {
        brook_batch *batch;
        int r = brook_consumer_poll(f.consumer, WAIT_MS, &batch, &f.error);
        ck_assert_msg(r != -BROOK_E_AGAIN, "code %d: nothing came", fault->code);
        if (r < 0) {
            struct brook_position place;
            brook_consumer_error_position(f.consumer, &place);
            ck_assert_int_eq(-r, fault->code);
            if (place.topic)
                ck_assert_str_eq(place.topic, "t");
            if (fault->code == BROOK_E_OFFSET_OUT_OF_RANGE || fault->code == BROOK_E_NO_OFFSET)
                reported = -r; /* waits for a seek */
            continue;
        }
        at = fixture_check_batch(&f, batch, at);
        brook_batch_release(batch);
    }
    fixture_close(&f);
    return reported;
}

static void fail_partition(int number)
{
    for (size_t i = (size_t)number; i < CODES; i += PARTS) {
        if (codes[i] == 0)
            continue;
        struct fault fault = {BROOK__REQUEST__BODY_PULL, codes[i], false, 1};
        int reported = read_through(&fault, 5, "none", 5);
        ck_assert_int_eq(reported, codes[i] == BROOK_E_OFFSET_OUT_OF_RANGE ? codes[i] : 0);
    }
    struct fault fault = {BROOK__REQUEST__BODY_PULL, BROOK_E_OFFSET_OUT_OF_RANGE, false, 1};
    ck_assert_int_eq(read_through(&fault, 5, "earliest", 0), 0);
}

START_TEST(no_code_of_a_partition_moves_the_position_but_out_of_range)
{
    suite_parallel(fail_partition, PARTS);
}
END_TEST

struct warnings {
    char text[300]; /* of the last one */
    int count;
};
static void on_log(void *arg, int level, const char *subject, const char *message)
{
    struct warnings *w = arg;
    if (level < DIAG_WARN || !strstr(message, "offset"))
        return;
    w->count++;
    snprintf(w->text, sizeof w->text, "%s", message);
}

/* Read a log of ten records from `start` to its end. */
static void read_logged(const char *reset, int64_t start, struct warnings *w)
{
    struct consumer_fixture f;
    int64_t at = 0;
    *w = (struct warnings){0};
    fixture_open(&f, 1);
    fixture_set(&f, "auto.offset.reset", reset);
    brook_config_set_log(f.config, on_log, w);
    stub_cluster_add_topic(f.cluster, "t", 1);
    fixture_append(&f, "t", 0, 10, 0);
    fixture_assign(&f, "t", 0, start);
    fixture_read_to(&f, 0, &at, 10);
    fixture_close(&f);
}

START_TEST(an_offset_out_of_range_is_told_with_the_range)
{
    struct consumer_fixture f;
    struct warnings w;
    fixture_open(&f, 1);
    fixture_set(&f, "auto.offset.reset", "none");
    stub_cluster_add_topic(f.cluster, "t", 1);
    fixture_append(&f, "t", 0, 10, 0);
    fixture_assign(&f, "t", 0, 99);
    ck_assert_int_eq(fixture_poll_event(&f), -BROOK_E_OFFSET_OUT_OF_RANGE);
    ck_assert_str_eq(f.error.text, "partition t/0: offset 99 is out of range: the log goes from 0 to 10");
    fixture_close(&f);
    read_logged("earliest", 99, &w);
    ck_assert_int_eq(w.count, 1);
    ck_assert_str_eq(w.text, "partition t/0: offset 99 is out of range: the log goes from 0 to 10; "
                             "going to the earliest (auto.offset.reset)");
}
END_TEST

START_TEST(to_begin_where_nothing_is_stored_is_no_warning)
{
    struct warnings w;
    read_logged("earliest", BROOK_OFFSET_STORED, &w);
    ck_assert_msg(w.count == 0, "%s", w.text);
}
END_TEST

static void fail_pull(int number)
{
    for (size_t i = (size_t)number; i < CODES; i += PARTS) {
        if (codes[i] == 0)
            continue;
        struct fault fault = {BROOK__REQUEST__BODY_PULL, codes[i], true, 1};
        int reported = read_through(&fault, 5, "earliest", 5);
        ck_assert(reported == 0 || codes[i] == BROOK_E_OFFSET_OUT_OF_RANGE || codes[i] == BROOK_E_NO_OFFSET);
    }
}

START_TEST(no_code_of_a_whole_pull_moves_the_position)
{
    suite_parallel(fail_pull, PARTS);
}
END_TEST

static void fail_stored_offset(int number)
{
    for (size_t i = (size_t)number; i < CODES; i += PARTS) {
        if (codes[i] == 0)
            continue;
        struct fault fault = {BROOK__REQUEST__BODY_FETCH_OFFSETS, codes[i], false, 1};
        bool is_fact = codes[i] == BROOK_E_NO_OFFSET;
        ck_assert_int_eq(read_through(&fault, BROOK_OFFSET_STORED, "earliest", is_fact ? 0 : 5), 0);
        fault.left = 1;
        fault.is_whole = true;
        if (!is_fact)
            ck_assert_int_eq(read_through(&fault, BROOK_OFFSET_STORED, "earliest", 5), 0);
    }
}

START_TEST(no_code_about_the_stored_offset_resets_but_none)
{
    suite_parallel(fail_stored_offset, PARTS);
}
END_TEST

START_TEST(listing_the_log_is_tried_until_it_works)
{
    static const int few[] = {BROOK_E_NOT_LEADER, BROOK_E_OFFSET_NOT_AVAILABLE, BROOK_E_OFFSET_OUT_OF_RANGE,
                              BROOK_E_SERVER_ERROR, BROOK_E_BUSY};
    for (size_t i = 0; i < sizeof few / sizeof few[0]; i++) {
        struct fault fault = {BROOK__REQUEST__BODY_LIST_OFFSETS, few[i], i % 2 == 0, 2};
        ck_assert_int_eq(read_through(&fault, BROOK_OFFSET_EARLIEST, "none", 0), 0);
    }
}
END_TEST

/* ---- broken connections ---- */

struct cutter {
    Brook__Request__BodyCase body;
    _Atomic size_t at; /* of the next answer send only so many bytes; SIZE_MAX: all */
    _Atomic size_t frame_bytes;
};

static enum stub_verdict cut(void *arg, const struct stub_request *q)
{
    struct cutter *c = arg;
    if (q->request->body_case != c->body)
        return STUB_PASS;
    size_t at = atomic_exchange(&c->at, SIZE_MAX), bytes;
    if (at == SIZE_MAX)
        return STUB_PASS;
    uint8_t *frame = stub_render_default(q, &bytes);
    atomic_store(&c->frame_bytes, bytes);
    stub_send_raw(q->connection, frame, at < bytes ? at : bytes);
    stub_close(q->connection);
    free(frame);
    return STUB_DONE;
}

START_TEST(a_pull_cut_at_any_byte_is_pulled_again)
{
    struct consumer_fixture f;
    struct cutter c = {.body = BROOK__REQUEST__BODY_PULL, .at = SIZE_MAX};
    fixture_open(&f, 1);
    f.no_sessions = true;
    f.function = cut;
    f.function_arg = &c;
    stub_cluster_add_topic(f.cluster, "t", 1);
    fixture_append(&f, "t", 0, 3, 0);
    fixture_assign(&f, "t", 0, 0);
    int64_t at = 0;
    fixture_read_to(&f, 0, &at, 3);
    size_t frame_bytes = 100;
    for (size_t i = 0; i <= frame_bytes; i += 5) {
        atomic_store(&c.at, i);
        ck_assert_int_eq(brook_consumer_seek(f.consumer, "t", 0, (int64_t)(i % 3), &f.error), 0);
        at = (int64_t)(i % 3);
        fixture_read_to(&f, 0, &at, 3);
        if (atomic_load(&c.frame_bytes) > 0)
            frame_bytes = atomic_load(&c.frame_bytes);
    }
    fixture_close(&f);
}
END_TEST

static enum stub_verdict swallow_once(void *arg, const struct stub_request *q)
{
    return q->request->body_case == BROOK__REQUEST__BODY_PULL && q->number == 1 ? STUB_DONE : STUB_PASS;
}

START_TEST(a_broker_that_falls_silent_is_asked_again)
{
    struct consumer_fixture f;
    fixture_open(&f, 1);
    fixture_set(&f, "request.timeout.ms", "200");
    fixture_set(&f, "fetch.max.wait.ms", "50");
    f.function = swallow_once;
    stub_cluster_add_topic(f.cluster, "t", 1);
    fixture_append(&f, "t", 0, 3, 0);
    fixture_assign(&f, "t", 0, 0);
    int64_t at = 0;
    fixture_read_to(&f, 0, &at, 3);
    fixture_append(&f, "t", 0, 3, 0);
    fixture_read_to(&f, 0, &at, 6);
    fixture_close(&f);
}
END_TEST

START_TEST(a_wait_longer_than_the_request_timeout_breaks_nothing)
{
    struct consumer_fixture f;
    fixture_open(&f, 1);
    fixture_set(&f, "request.timeout.ms", "100");
    fixture_set(&f, "fetch.max.wait.ms", "2000");
    stub_cluster_add_topic(f.cluster, "t", 1);
    fixture_assign(&f, "t", 0, 0);
    brook_batch *batch;
    ck_assert_int_eq(brook_consumer_poll(f.consumer, 700, &batch, NULL), -BROOK_E_AGAIN);
    ck_assert_uint_le(stub_cluster_connections_made(f.cluster), 2);
    fixture_close(&f);
}
END_TEST

static enum stub_verdict garble(void *arg, const struct stub_request *q)
{
    if (q->request->body_case != BROOK__REQUEST__BODY_PULL || q->number > 3)
        return STUB_PASS;
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__PullResponse pull = BROOK__PULL_RESPONSE__INIT;
    Brook__PulledPartition pulled = BROOK__PULLED_PARTITION__INIT, *pointer = &pulled;
    uint8_t id[16] = {1};
    if (q->number > 0) { /* at first a reply without a body */
        response.body_case = BROOK__RESPONSE__BODY_PULL;
        response.pull = &pull;
        pull.n_partitions = 1;
        pull.partitions = &pointer;
        pulled.has_records_bytes = pulled.has_topic_id = 1;
        pulled.records_bytes = q->number == 1 ? 0xffffffff : 3;
        pulled.topic_id = envelope_bytes(id, q->number == 2 ? 3 : 16); /* nobody's */
    }
    stub_reply(q, &response, "abc", 3, 0);
    return STUB_DONE;
}

START_TEST(replies_that_make_no_sense_change_nothing)
{
    struct consumer_fixture f;
    fixture_open(&f, 1);
    f.function = garble;
    stub_cluster_add_topic(f.cluster, "t", 1);
    fixture_append(&f, "t", 0, 3, 0);
    fixture_assign(&f, "t", 0, 0);
    int64_t at = 0;
    while (at < 3) {
        brook_batch *batch;
        int r = brook_consumer_poll(f.consumer, WAIT_MS, &batch, &f.error);
        ck_assert_int_ne(r, -BROOK_E_AGAIN);
        if (r < 0)
            continue; /* the broker is said to be mad */
        at = fixture_check_batch(&f, batch, at);
        brook_batch_release(batch);
    }
    fixture_close(&f);
}
END_TEST

/* ---- leaders ---- */

START_TEST(the_leader_is_followed)
{
    struct consumer_fixture f;
    fixture_open(&f, 3);
    stub_cluster_add_topic(f.cluster, "t", 1);
    fixture_assign(&f, "t", 0, 0);
    int64_t at = 0;
    for (int i = 0; i < 6; i++) {
        stub_cluster_set_leader(f.cluster, "t", 0, 1 + i % 3);
        fixture_append(&f, "t", 0, 5, 0);
        fixture_read_to(&f, 0, &at, 5 * (i + 1));
    }
    stub_cluster_set_leader(f.cluster, "t", 0, -1);
    fixture_append(&f, "t", 0, 5, 0);
    brook_batch *batch;
    ck_assert_int_eq(brook_consumer_poll(f.consumer, 200, &batch, NULL), -BROOK_E_AGAIN);
    stub_cluster_set_leader(f.cluster, "t", 0, 2);
    fixture_read_to(&f, 0, &at, 35);
    fixture_close(&f);
}
END_TEST

START_TEST(a_broker_that_is_down_costs_its_own_partitions_only)
{
    struct consumer_fixture f;
    fixture_open(&f, 2);
    stub_cluster_add_topic(f.cluster, "t", 2); /* 0: broker 1, 1: broker 2 */
    fixture_start(&f);
    struct brook_position both[] = {{"t", 0, 0}, {"t", 1, 0}};
    ck_assert_int_eq(brook_consumer_assign(f.consumer, both, 2, &f.error), 0);
    int64_t at[2] = {0};
    fixture_append(&f, "t", 1, 5, 0);
    fixture_read_to(&f, 1, &at[1], 5);
    stub_cluster_stop_broker(f.cluster, 2);
    for (int i = 1; i <= 5; i++) {
        fixture_append(&f, "t", 0, 5, 0);
        fixture_read_to(&f, 0, &at[0], 5 * i);
    }
    fixture_append(&f, "t", 1, 5, 0);
    stub_cluster_start_broker(f.cluster, 2);
    fixture_read_to(&f, 1, &at[1], 10);
    fixture_close(&f);
}
END_TEST

START_TEST(a_consumer_may_start_before_any_broker_or_topic)
{
    struct consumer_fixture f;
    fixture_open(&f, 1);
    stub_cluster_stop_broker(f.cluster, 1);
    fixture_assign(&f, "t", 0, 0);
    brook_batch *batch;
    ck_assert_int_eq(brook_consumer_poll(f.consumer, 100, &batch, NULL), -BROOK_E_AGAIN);
    stub_cluster_start_broker(f.cluster, 1);
    ck_assert_int_eq(fixture_poll_event(&f), -BROOK_E_UNKNOWN_TOPIC);
    stub_cluster_add_topic(f.cluster, "t", 1);
    fixture_append(&f, "t", 0, 5, 0);
    int64_t at = 0;
    fixture_read_to(&f, 0, &at, 5);
    fixture_close(&f);
}
END_TEST

START_TEST(a_topic_made_anew_is_read_from_its_beginning)
{
    struct consumer_fixture f;
    fixture_open(&f, 1);
    stub_cluster_add_topic(f.cluster, "t", 1);
    fixture_append(&f, "t", 0, 50, 0);
    fixture_assign(&f, "t", 0, 0);
    for (int i = 0; i < 6; i++) {
        int64_t at = 0;
        int count = 50 + i * (i % 2 ? 5 : -5); /* more than before, and fewer */
        fixture_read_to(&f, 0, &at, stub_cluster_end_offset(f.cluster, "t", 0));
        stub_cluster_remove_topic(f.cluster, "t");
        stub_cluster_add_topic(f.cluster, "t", 1);
        fixture_append(&f, "t", 0, count, 0);
    }
    fixture_close(&f);
}
END_TEST

/* ---- damage ---- */

START_TEST(damage_is_told_again_and_again_and_can_be_passed)
{
    struct consumer_fixture f;
    struct brook_position place;
    fixture_open(&f, 1);
    stub_cluster_add_topic(f.cluster, "t", 2);
    fixture_append(&f, "t", 0, 5, 0);
    fixture_append_damaged(&f, "t", 0, 5);
    fixture_append(&f, "t", 0, 5, 0);
    fixture_start(&f);
    struct brook_position both[] = {{"t", 0, 0}, {"t", 1, 0}};
    ck_assert_int_eq(brook_consumer_assign(f.consumer, both, 2, &f.error), 0);
    int64_t at = 0, other = 0;
    fixture_read_to(&f, 0, &at, 5);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(fixture_poll_event(&f), -BROOK_E_CORRUPT_BATCH);
        ck_assert_ptr_nonnull(strstr(f.error.text, "t/0 at offset 5"));
        brook_consumer_error_position(f.consumer, &place);
        ck_assert(strcmp(place.topic, "t") == 0 && place.partition == 0 && place.offset == 5);
        ck_assert_int_eq(brook_consumer_position(f.consumer, "t", 0, &at), 0);
        ck_assert_int_eq(at, 5);
        fixture_append(&f, "t", 1, 2, 0);
        while (other < 2 * (i + 1)) {
            brook_batch *batch;
            if (brook_consumer_poll(f.consumer, WAIT_MS, &batch, &f.error) < 0)
                continue; /* the damage again */
            ck_assert_int_eq(brook_batch_partition(batch), 1);
            other = fixture_check_batch(&f, batch, other);
            brook_batch_release(batch);
        }
    }
    ck_assert_int_eq(brook_consumer_seek(f.consumer, "t", 0, 10, &f.error), 0);
    at = 10;
    fixture_read_to(&f, 0, &at, 15);
    fixture_close(&f);
}
END_TEST

START_TEST(checksums_may_be_left_unchecked)
{
    struct consumer_fixture f;
    fixture_open(&f, 1);
    fixture_set(&f, "check.crcs", "false");
    stub_cluster_add_topic(f.cluster, "t", 1);
    fixture_append_damaged(&f, "t", 0, 5);
    fixture_assign(&f, "t", 0, 0);
    brook_batch_release(fixture_poll(&f));
    fixture_close(&f);
}
END_TEST

SUITE_MAIN("client/consumer_failures",
           SUITE_TEST_SLOW(no_code_of_a_partition_moves_the_position_but_out_of_range, 60),
           SUITE_TEST_SLOW(no_code_of_a_whole_pull_moves_the_position, 90),
           SUITE_TEST_SLOW(no_code_about_the_stored_offset_resets_but_none, 60),
           SUITE_TEST(an_offset_out_of_range_is_told_with_the_range),
           SUITE_TEST(to_begin_where_nothing_is_stored_is_no_warning),
           SUITE_TEST(listing_the_log_is_tried_until_it_works),
           SUITE_TEST_SLOW(a_pull_cut_at_any_byte_is_pulled_again, 60),
           SUITE_TEST(a_broker_that_falls_silent_is_asked_again),
           SUITE_TEST(a_wait_longer_than_the_request_timeout_breaks_nothing),
           SUITE_TEST(replies_that_make_no_sense_change_nothing), SUITE_TEST(the_leader_is_followed),
           SUITE_TEST(a_broker_that_is_down_costs_its_own_partitions_only),
           SUITE_TEST(a_consumer_may_start_before_any_broker_or_topic),
           SUITE_TEST(a_topic_made_anew_is_read_from_its_beginning),
           SUITE_TEST(damage_is_told_again_and_again_and_can_be_passed),
           SUITE_TEST(checksums_may_be_left_unchecked))
