#include "proto/base/err.h"
#include "proto/wire/frame.h"
#include "tests/unit/client/consumer_fixture.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

START_TEST(assigned_partitions_are_read_from_where_was_asked)
{
    static const struct {
        int64_t asked, first;
    } cases[] = {
        {0, 0}, {13, 13}, {BROOK_OFFSET_EARLIEST, 0}, {BROOK_OFFSET_NONE, 0}, {BROOK_OFFSET_STORED, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct consumer_fixture f;
        fixture_open(&f, 1);
        stub_cluster_add_topic(f.cluster, "t", 1);
        fixture_append(&f, "t", 0, 10, 0);
        fixture_append(&f, "t", 0, 10, 0);
        fixture_assign(&f, "t", 0, cases[i].asked);
        int64_t at = cases[i].first;
        fixture_read_to(&f, 0, &at, 20);
        fixture_append(&f, "t", 0, 5, 0);
        fixture_read_to(&f, 0, &at, 25);
        fixture_close(&f);
    }
}
END_TEST

START_TEST(latest_skips_what_is_there)
{
    struct consumer_fixture f;
    fixture_open(&f, 1);
    stub_cluster_add_topic(f.cluster, "t", 1);
    fixture_append(&f, "t", 0, 10, 0);
    fixture_assign(&f, "t", 0, BROOK_OFFSET_LATEST);
    brook_batch *batch;
    ck_assert_int_eq(brook_consumer_poll(f.consumer, 200, &batch, NULL), -BROOK_E_AGAIN);
    int64_t at;
    ck_assert_int_eq(brook_consumer_position(f.consumer, "t", 0, &at), 0);
    ck_assert_int_eq(at, 10);
    fixture_append(&f, "t", 0, 3, 0);
    fixture_read_to(&f, 0, &at, 13);
    fixture_close(&f);
}
END_TEST

START_TEST(a_stored_offset_is_taken_up)
{
    struct consumer_fixture f;
    fixture_open(&f, 1);
    stub_cluster_add_topic(f.cluster, "t", 1);
    fixture_append(&f, "t", 0, 20, 0);
    fixture_set(&f, "group.id", "g");
    fixture_store(&f, "t", 0, 7);
    fixture_assign(&f, "t", 0, BROOK_OFFSET_STORED);
    int64_t at = 7, stored;
    fixture_read_to(&f, 0, &at, 20);
    ck_assert_int_eq(brook_consumer_committed(f.consumer, "t", 0, WAIT_MS, &stored, &f.error), 0);
    ck_assert_int_eq(stored, 7);
    ck_assert_int_eq(brook_consumer_committed(f.consumer, "t", 1, WAIT_MS, &stored, &f.error), 0);
    ck_assert_int_eq(stored, BROOK_OFFSET_NONE);
    fixture_close(&f);
}
END_TEST

START_TEST(a_broker_without_sessions_is_served_too)
{
    struct consumer_fixture f;
    fixture_open(&f, 1);
    f.no_sessions = true;
    stub_cluster_add_topic(f.cluster, "t", 1);
    fixture_append(&f, "t", 0, 10, 0);
    fixture_assign(&f, "t", 0, 0);
    int64_t at = 0;
    fixture_read_to(&f, 0, &at, 10);
    fixture_append(&f, "t", 0, 10, 0);
    fixture_read_to(&f, 0, &at, 20);
    fixture_close(&f);
}
END_TEST

#define MANY 24

struct names {
    _Atomic unsigned pulls, named;
};

static enum stub_verdict count_names(void *arg, const struct stub_request *q)
{
    struct names *n = arg;
    if (q->request->body_case == BROOK__REQUEST__BODY_PULL) {
        n->pulls++;
        n->named += (unsigned)q->request->pull->n_partitions;
    }
    return STUB_PASS;
}

START_TEST(sessions_name_only_what_changed)
{
    struct consumer_fixture f;
    struct brook_position positions[MANY];
    struct names names = {0};
    fixture_open(&f, 2);
    f.function = count_names;
    f.function_arg = &names;
    stub_cluster_add_topic(f.cluster, "t", MANY);
    for (int i = 0; i < MANY; i++)
        positions[i] = (struct brook_position){"t", i, 0};
    fixture_start(&f);
    ck_assert_int_eq(brook_consumer_assign(f.consumer, positions, MANY, &f.error), 0);
    for (int round = 0; round < 20; round++) {
        int32_t partition = (round * 7) % MANY;
        fixture_append(&f, "t", partition, 2, 0);
        int64_t at = stub_cluster_end_offset(f.cluster, "t", partition) - 2;
        fixture_read_to(&f, partition, &at, at + 2);
    }
    /* All once, then one for each batch that came. */
    ck_assert_uint_ge(names.pulls, 20);
    ck_assert_uint_le(names.named, MANY + 20 + 10);
    fixture_close(&f);
}
END_TEST

START_TEST(all_partitions_come_each_in_order)
{
    struct consumer_fixture f;
    struct brook_position positions[MANY];
    int64_t at[MANY] = {0};
    fixture_open(&f, 3);
    fixture_set(&f, "max.partition.fetch.bytes", "2000");
    stub_cluster_add_topic(f.cluster, "t", MANY);
    for (int i = 0; i < MANY; i++) {
        positions[i] = (struct brook_position){"t", i, 0};
        for (int k = 0; k < 20; k++)
            fixture_append(&f, "t", i, 5, 100);
    }
    fixture_start(&f);
    ck_assert_int_eq(brook_consumer_assign(f.consumer, positions, MANY, &f.error), 0);
    for (int64_t sum = 0; sum < MANY * 100;) {
        brook_batch *batch = fixture_poll(&f);
        int64_t *next = &at[brook_batch_partition(batch)];
        sum -= *next;
        *next = fixture_check_batch(&f, batch, *next);
        sum += *next;
        brook_batch_release(batch);
    }
    fixture_close(&f);
}
END_TEST

/* ---- seek, pause ---- */

START_TEST(a_seek_drops_what_was_fetched)
{
    struct consumer_fixture f;
    fixture_open(&f, 1);
    stub_cluster_add_topic(f.cluster, "t", 1);
    for (int i = 0; i < 50; i++)
        fixture_append(&f, "t", 0, 10, 0);
    fixture_assign(&f, "t", 0, 0);
    uint64_t random = suite_seed();
    for (int i = 0; i < 60; i++) {
        int64_t to = (int64_t)suite_random_below(&random, 500), at;
        ck_assert_int_eq(brook_consumer_seek(f.consumer, "t", 0, to, &f.error), 0);
        ck_assert_int_eq(brook_consumer_position(f.consumer, "t", 0, &at), 0);
        ck_assert_int_eq(at, to);
        if (i % 3 == 0)
            continue; /* another one right behind */
        brook_batch *batch = fixture_poll(&f);
        ck_assert_int_gt(fixture_check_batch(&f, batch, to), to);
        brook_batch_release(batch);
    }
    ck_assert_int_eq(brook_consumer_seek(f.consumer, "t", 0, BROOK_OFFSET_EARLIEST, &f.error), 0);
    int64_t at = 0;
    fixture_read_to(&f, 0, &at, 500);
    ck_assert_int_eq(brook_consumer_seek(f.consumer, "t", 1, 0, &f.error), -BROOK_E_NOT_ASSIGNED);
    ck_assert_int_eq(brook_consumer_seek(f.consumer, "t", 0, -7, &f.error), -BROOK_E_INVALID);
    fixture_close(&f);
}
END_TEST

/* Answers pulls from these two places late, the second one later; each once. */
struct delay {
    int64_t first, second;
    _Atomic unsigned waiting;
};

static enum stub_verdict delay_two(void *arg, const struct stub_request *q)
{
    struct delay *d = arg;
    if (q->request->body_case != BROOK__REQUEST__BODY_PULL || q->request->pull->n_partitions != 1)
        return STUB_PASS;
    int64_t offset = q->request->pull->partitions[0]->offset;
    if (!(d->waiting == 0 && offset == d->first) && !(d->waiting == 1 && offset == d->second))
        return STUB_PASS;
    stub_reply_default(q, offset == d->first ? 100 : 250);
    d->waiting++;
    return STUB_DONE;
}

static bool is_waiting(void *arg)
{
    return ((struct delay *)arg)->waiting > 0;
}

/* `start` = 80: the first pull of the session is late, and nothing can follow before its answer; else another
 * pull goes out besides. */
static void seek_during_pull(int64_t start)
{
    struct consumer_fixture f;
    struct delay delay = {.first = 80, .second = 15};
    brook_batch *batch;
    fixture_open(&f, 1);
    stub_cluster_add_topic(f.cluster, "t", 1);
    for (int i = 0; i < 10; i++)
        fixture_append(&f, "t", 0, 10, 0);
    f.function = delay_two;
    f.function_arg = &delay;
    fixture_assign(&f, "t", 0, start);
    if (start != 80) {
        ck_assert_int_eq(brook_consumer_poll(f.consumer, 50, &batch, NULL), -BROOK_E_AGAIN);
        ck_assert_int_eq(brook_consumer_seek(f.consumer, "t", 0, 80, &f.error), 0);
    }
    ck_assert(suite_wait(is_waiting, &delay, WAIT_MS));
    ck_assert_int_eq(brook_consumer_seek(f.consumer, "t", 0, 15, &f.error), 0);
    int64_t at = 15;
    fixture_read_to(&f, 0, &at, 100);
    fixture_close(&f);
}

START_TEST(answers_that_were_on_their_way_when_a_seek_came_are_void)
{
    seek_during_pull(80);
    seek_during_pull(100);
}
END_TEST

START_TEST(a_paused_partition_rests_and_goes_on_where_it_was)
{
    struct consumer_fixture f;
    fixture_open(&f, 1);
    stub_cluster_add_topic(f.cluster, "t", 2);
    for (int i = 0; i < 5; i++)
        fixture_append(&f, "t", 0, 10, 40000);
    fixture_start(&f);
    struct brook_position both[] = {{"t", 0, 0}, {"t", 1, 0}};
    ck_assert_int_eq(brook_consumer_assign(f.consumer, both, 2, &f.error), 0);
    brook_batch *batch = fixture_poll(&f);
    int64_t at = fixture_check_batch(&f, batch, 0), other = 0;
    brook_batch_release(batch);
    ck_assert_int_lt(at, 50);
    ck_assert_int_eq(brook_consumer_pause(f.consumer, "t", 0, &f.error), 0);
    fixture_append(&f, "t", 1, 3, 0);
    fixture_read_to(&f, 1, &other, 3);
    ck_assert_int_eq(brook_consumer_poll(f.consumer, 100, &batch, NULL), -BROOK_E_AGAIN);
    ck_assert_int_eq(brook_consumer_resume(f.consumer, "t", 0, &f.error), 0);
    fixture_read_to(&f, 0, &at, 50);
    fixture_close(&f);
}
END_TEST

static enum stub_verdict answer_by_time(void *arg, const struct stub_request *q)
{
    if (q->request->body_case != BROOK__REQUEST__BODY_LIST_OFFSETS ||
        q->request->list_offsets->partitions[0]->query != BROOK__OFFSET_QUERY__BY_TIME)
        return STUB_PASS;
    if (q->number == 0) {
        stub_reply_error(q, BROOK_E_NOT_LEADER, "");
        return STUB_DONE;
    }
    if (q->number > 1)
        return STUB_DONE; /* silence */
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__ListOffsetsResponse body = BROOK__LIST_OFFSETS_RESPONSE__INIT;
    Brook__ListedOffset listed = BROOK__LISTED_OFFSET__INIT, *pointer = &listed;
    listed.has_offset = 1;
    listed.offset = q->request->list_offsets->partitions[0]->timestamp - 1000;
    body.n_partitions = 1;
    body.partitions = &pointer;
    response.body_case = BROOK__RESPONSE__BODY_LIST_OFFSETS;
    response.list_offsets = &body;
    stub_reply(q, &response, NULL, 0, 0);
    return STUB_DONE;
}

START_TEST(a_seek_to_a_time_asks_the_leader)
{
    struct consumer_fixture f;
    fixture_open(&f, 1);
    f.function = answer_by_time;
    stub_cluster_add_topic(f.cluster, "t", 1);
    fixture_append(&f, "t", 0, 20, 0);
    fixture_assign(&f, "t", 0, 0);
    ck_assert_int_eq(brook_consumer_seek_to_time(f.consumer, "t", 0, 1015, WAIT_MS, &f.error), 0);
    int64_t at = 15;
    fixture_read_to(&f, 0, &at, 20);
    ck_assert_int_eq(brook_consumer_seek_to_time(f.consumer, "t", 0, 1015, 50, &f.error), -BROOK_E_TIMED_OUT);
    ck_assert_int_eq(brook_consumer_seek_to_time(f.consumer, "x", 0, 1015, 0, &f.error),
                     -BROOK_E_NOT_ASSIGNED);
    fixture_close(&f);
}
END_TEST

/* ---- memory ---- */

START_TEST(batches_that_are_out_stop_the_flow_until_they_come_back)
{
    struct consumer_fixture f;
    fixture_open(&f, 1);
    fixture_set(&f, "queued.max.bytes", "1000000");
    fixture_set(&f, "max.partition.fetch.bytes", "100000");
    stub_cluster_add_topic(f.cluster, "t", 1);
    for (int i = 0; i < 100; i++)
        fixture_append(&f, "t", 0, 10, 5000);
    fixture_assign(&f, "t", 0, 0);
    brook_batch *held[100];
    size_t count = 0;
    while (brook_consumer_poll(f.consumer, 300, &held[count], NULL) == 0)
        count++;
    ck_assert_uint_ge(count, 4);
    ck_assert_uint_le(count, 25); /* of fifty thousand bytes or more each */
    int64_t at = 0;
    for (size_t i = 0; i < count; i++) {
        at = fixture_check_batch(&f, held[i], at);
        brook_batch_release(held[i]);
    }
    fixture_read_to(&f, 0, &at, 1000);
    fixture_close(&f);
}
END_TEST

static int64_t memory_of(struct consumer_fixture *f)
{
    char *text = brook_consumer_statistics(f->consumer);
    const char *at = strstr(text, "\"memory_bytes\":");
    int64_t bytes = at ? atoll(at + strlen("\"memory_bytes\":")) : -1;
    free(text);
    return bytes;
}

START_TEST(what_is_fetched_ahead_stays_within_its_limit)
{
    struct consumer_fixture f;
    struct brook_position positions[MANY];
    fixture_open(&f, 1);
    fixture_set(&f, "queued.max.bytes", "1000000");
    fixture_set(&f, "max.partition.fetch.bytes", "200000");
    stub_cluster_add_topic(f.cluster, "t", MANY);
    for (int i = 0; i < MANY; i++) {
        positions[i] = (struct brook_position){"t", i, 0};
        for (int k = 0; k < 4; k++)
            fixture_append(&f, "t", i, 10, 10000);
    }
    fixture_start(&f);
    ck_assert_int_eq(brook_consumer_assign(f.consumer, positions, MANY, &f.error), 0);
    const struct timespec step = {.tv_nsec = 10000000};
    for (int i = 0; i < 40; i++) {
        /* One pull may be on its way, and slabs are powers of two. */
        ck_assert_int_le(memory_of(&f), 3 << 20);
        nanosleep(&step, NULL);
    }
    ck_assert_int_gt(memory_of(&f), 0);
    for (int64_t sum = 0; sum < MANY * 40;) {
        brook_batch *batch = fixture_poll(&f);
        struct brook_message m;
        while (brook_batch_next(batch, &m) == 0)
            sum++;
        brook_batch_release(batch);
    }
    fixture_close(&f);
}
END_TEST

START_TEST(expanded_batches_that_are_out_count_with_their_size)
{
    struct consumer_fixture f;
    fixture_open(&f, 1);
    fixture_set(&f, "queued.max.bytes", "2000000");
    stub_cluster_add_topic(f.cluster, "t", 1);
    for (int i = 0; i < 60; i++)
        fixture_append_compressed(&f, "t", 0, 10, 30000);
    fixture_assign(&f, "t", 0, 0);
    brook_batch *held[60];
    size_t count = 0;
    while (brook_consumer_poll(f.consumer, 200, &held[count], NULL) == 0)
        count++;
    ck_assert_uint_ge(count, 2);
    ck_assert_uint_le(count, 8);
    int64_t at = 0;
    for (size_t i = 0; i < count; i++) {
        at = fixture_check_batch(&f, held[i], at);
        brook_batch_release(held[i]);
    }
    fixture_read_to(&f, 0, &at, 600);
    fixture_close(&f);
}
END_TEST

/* A broker that sends partial batches when more was not asked for. */
static enum stub_verdict cut_to_limit(void *arg, const struct stub_request *q)
{
    size_t bytes, most;
    if (q->request->body_case != BROOK__REQUEST__BODY_PULL || q->request->pull->n_partitions != 1)
        return STUB_PASS;
    uint8_t *frame = stub_render_default(q, &bytes);
    struct frame_prefix prefix;
    struct arena *arena;
    Brook__Response *response;
    ck_assert_int_eq(frame_parse(frame, bytes, UINT32_MAX, ENVELOPE_BYTES_MAX_BROKER, &prefix, NULL), 0);
    ck_assert_int_eq(arena_new(1 << 20, &arena), 0);
    envelope_unpack_response(arena, frame + FRAME_PREFIX_BYTES, prefix.envelope_bytes, &response);
    most = q->request->pull->partitions[0]->max_bytes;
    if (prefix.records_bytes > most) {
        response->pull->partitions[0]->records_bytes = (uint32_t)most;
        stub_reply(q, response, frame + FRAME_PREFIX_BYTES + prefix.envelope_bytes, most, 0);
    } else {
        stub_reply_default(q, 0);
    }
    arena_free(arena);
    free(frame);
    return STUB_DONE;
}

START_TEST(a_partial_first_batch_makes_the_consumer_ask_for_more)
{
    static const char *const limits[] = {"1", "60", "61", "100", "5000"};
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        struct consumer_fixture f;
        fixture_open(&f, 1);
        f.no_sessions = true;
        f.function = cut_to_limit;
        fixture_set(&f, "max.partition.fetch.bytes", limits[i]);
        stub_cluster_add_topic(f.cluster, "t", 1);
        for (int k = 0; k < 5; k++)
            fixture_append(&f, "t", 0, 10, 700);
        fixture_assign(&f, "t", 0, 0);
        int64_t at = 0;
        fixture_read_to(&f, 0, &at, 50);
        fixture_close(&f);
    }
}
END_TEST

START_TEST(a_batch_larger_than_every_limit_comes_whole)
{
    struct consumer_fixture f;
    fixture_open(&f, 1);
    fixture_set(&f, "max.partition.fetch.bytes", "1");
    fixture_set(&f, "fetch.max.bytes", "1");
    fixture_set(&f, "queued.max.bytes", "65536");
    stub_cluster_add_topic(f.cluster, "t", 1);
    fixture_append(&f, "t", 0, 1, 300000);
    fixture_append(&f, "t", 0, 3, 10);
    fixture_assign(&f, "t", 0, 0);
    int64_t at = 0;
    fixture_read_to(&f, 0, &at, 4);
    fixture_close(&f);
}
END_TEST

START_TEST(no_partition_waits_for_another_to_end)
{
    struct consumer_fixture f;
    struct brook_position both[] = {{"t", 0, 0}, {"t", 1, 0}};
    fixture_open(&f, 1);
    fixture_set(&f, "max.partition.fetch.bytes", "20000");
    stub_cluster_add_topic(f.cluster, "t", 2);
    for (int i = 0; i < 200; i++)
        fixture_append(&f, "t", 0, 10, 1000);
    fixture_start(&f);
    ck_assert_int_eq(brook_consumer_assign(f.consumer, both, 2, &f.error), 0);
    brook_batch_release(fixture_poll(&f));
    fixture_append(&f, "t", 1, 10, 10);
    int polls = 0;
    const struct timespec work = {.tv_nsec = 5000000}; /* time enough to fetch more */
    for (bool seen = false; !seen; polls++) {
        brook_batch *batch = fixture_poll(&f);
        seen = brook_batch_partition(batch) == 1;
        nanosleep(&work, NULL);
        brook_batch_release(batch);
    }
    ck_assert_int_le(polls, 12);
    fixture_close(&f);
}
END_TEST

START_TEST(batches_outlive_the_consumer)
{
    struct consumer_fixture f;
    fixture_open(&f, 1);
    stub_cluster_add_topic(f.cluster, "t", 1);
    fixture_append(&f, "t", 0, 10, 100);
    fixture_append(&f, "t", 0, 10, 100);
    fixture_assign(&f, "t", 0, 0);
    brook_batch *batch = fixture_poll(&f);
    fixture_close(&f);
    ck_assert_str_eq(brook_batch_topic(batch), "t");
    ck_assert_int_eq(fixture_check_batch(&f, batch, 0), 20);
    brook_batch_release(batch);
    brook_batch_release(NULL);
}
END_TEST

/* ---- threads ---- */

#define WORKERS 3

struct shelf {
    pthread_mutex_t lock;
    brook_batch *batches[512];
    size_t count;
    bool is_over;
};

static void *work(void *arg)
{
    struct shelf *shelf = arg;
    for (;;) {
        pthread_mutex_lock(&shelf->lock);
        brook_batch *batch = shelf->count > 0 ? shelf->batches[--shelf->count] : NULL;
        bool is_over = shelf->is_over;
        pthread_mutex_unlock(&shelf->lock);
        struct brook_message m;
        while (batch && brook_batch_next(batch, &m) == 0)
            ;
        brook_batch_release(batch);
        if (!batch && is_over)
            return NULL;
    }
}

START_TEST(workers_release_in_any_order)
{
    struct consumer_fixture f;
    pthread_t workers[WORKERS];
    static struct shelf shelf;
    pthread_mutex_init(&shelf.lock, NULL);
    fixture_open(&f, 1);
    fixture_set(&f, "group.id", "g");
    fixture_set(&f, "auto.commit.interval.ms", "10");
    fixture_set(&f, "max.partition.fetch.bytes", "3000");
    stub_cluster_add_topic(f.cluster, "t", 1);
    for (int i = 0; i < 300; i++)
        fixture_append(&f, "t", 0, 10, 100);
    fixture_assign(&f, "t", 0, 0);
    for (int i = 0; i < WORKERS; i++)
        pthread_create(&workers[i], NULL, work, &shelf);
    for (int64_t at = 0; at < 3000;) {
        brook_batch *batch = fixture_poll(&f);
        ck_assert_int_eq(brook_consumer_position(f.consumer, "t", 0, &at), 0);
        pthread_mutex_lock(&shelf.lock);
        shelf.batches[shelf.count++] = batch;
        pthread_mutex_unlock(&shelf.lock);
    }
    pthread_mutex_lock(&shelf.lock);
    shelf.is_over = true;
    pthread_mutex_unlock(&shelf.lock);
    for (int i = 0; i < WORKERS; i++)
        pthread_join(workers[i], NULL);
    ck_assert(fixture_wait_stored(&f, "t", 0, 3000));
    fixture_close(&f);
}
END_TEST

struct meddler {
    struct consumer_fixture *f;
    uint64_t seed;
    _Atomic bool *is_over;
};

static void *meddle(void *arg)
{
    struct meddler *m = arg;
    brook_consumer *c = m->f->consumer;
    struct brook_position *positions;
    size_t count;
    int64_t number;
    while (!*m->is_over) {
        switch (suite_random_below(&m->seed, 8)) {
        case 0:
            brook_consumer_seek(c, "t", 0, (int64_t)suite_random_below(&m->seed, 500), NULL);
            break;
        case 1:
            brook_consumer_pause(c, "t", 0, NULL);
            brook_consumer_resume(c, "t", 0, NULL);
            break;
        case 2:
            brook_consumer_lag(c, "t", 0, &number);
            break;
        case 3:
            free(brook_consumer_statistics(c));
            break;
        case 4:
            brook_consumer_commit(c, NULL, 0, BROOK_COMMIT_ASYNC, 0, NULL);
            break;
        case 5:
            brook_consumer_commit(c, NULL, 0, BROOK_COMMIT_SYNC, 1000, NULL);
            break;
        case 6:
            brook_consumer_committed(c, "t", 0, 1000, &number, NULL);
            break;
        default:
            if (brook_consumer_assignment(c, &positions, &count) == 0)
                free(positions);
            break;
        }
    }
    return NULL;
}

START_TEST(calls_of_other_threads_do_not_disturb)
{
    struct consumer_fixture f;
    pthread_t threads[WORKERS];
    struct meddler meddlers[WORKERS];
    _Atomic bool is_over = false;
    uint64_t seed = suite_seed();
    fixture_open(&f, 1);
    fixture_set(&f, "group.id", "g");
    fixture_set(&f, "max.partition.fetch.bytes", "3000");
    stub_cluster_add_topic(f.cluster, "t", 1);
    for (int i = 0; i < 50; i++)
        fixture_append(&f, "t", 0, 10, 100);
    fixture_assign(&f, "t", 0, 0);
    for (int i = 0; i < WORKERS; i++) {
        meddlers[i] = (struct meddler){&f, seed + (uint64_t)i, &is_over};
        pthread_create(&threads[i], NULL, meddle, &meddlers[i]);
    }
    for (int i = 0; i < 1000; i++) {
        brook_batch *batch;
        if (brook_consumer_poll(f.consumer, 1, &batch, NULL) < 0)
            continue;
        struct brook_message m;
        if (brook_batch_next(batch, &m) == 0)
            fixture_check_batch(&f, batch, m.offset + 1);
        brook_batch_release(batch);
    }
    is_over = true;
    for (int i = 0; i < WORKERS; i++)
        pthread_join(threads[i], NULL);
    ck_assert_int_eq(brook_consumer_seek(f.consumer, "t", 0, 0, &f.error), 0);
    int64_t at = 0;
    fixture_read_to(&f, 0, &at, 500);
    fixture_close(&f);
}
END_TEST

struct sought {
    struct consumer_fixture *f;
    _Atomic unsigned beginnings; /* batches from offset 0 on */
    _Atomic bool is_over;
    unsigned seen;
};

static void *count_beginnings(void *arg)
{
    struct sought *s = arg;
    while (!s->is_over) {
        brook_batch *batch;
        struct brook_message m;
        if (brook_consumer_poll(s->f->consumer, 5, &batch, NULL) < 0)
            continue;
        if (brook_batch_next(batch, &m) == 0 && m.offset == 0)
            s->beginnings++;
        brook_batch_release(batch);
    }
    return NULL;
}

static bool has_begun(void *arg)
{
    struct sought *s = arg;
    return s->beginnings > s->seen;
}

START_TEST(a_seek_in_the_middle_of_a_poll_is_not_lost)
{
    struct consumer_fixture f;
    struct sought s = {.f = &f};
    pthread_t thread;
    fixture_open(&f, 1);
    stub_cluster_add_topic(f.cluster, "t", 1);
    for (int i = 0; i < 40; i++)
        fixture_append_compressed(&f, "t", 0, 10, 400000); /* long to expand */
    fixture_assign(&f, "t", 0, 0);
    pthread_create(&thread, NULL, count_beginnings, &s);
    uint64_t random = suite_seed();
    for (int i = 0; i < 100; i++) {
        ck_assert(suite_wait(has_begun, &s, WAIT_MS));
        const struct timespec pause = {.tv_nsec = (long)suite_random_below(&random, 8000000)};
        nanosleep(&pause, NULL);
        s.seen = s.beginnings;
        ck_assert_int_eq(brook_consumer_seek(f.consumer, "t", 0, 0, &f.error), 0);
    }
    s.is_over = true;
    pthread_join(thread, NULL);
    fixture_close(&f);
}
END_TEST

/* ---- what it says about itself ---- */

START_TEST(position_lag_assignment_and_statistics_agree)
{
    struct consumer_fixture f;
    fixture_open(&f, 1);
    stub_cluster_add_topic(f.cluster, "t", 1);
    fixture_append(&f, "t", 0, 10, 0);
    fixture_assign(&f, "t", 0, 4);
    int64_t at = 4, lag;
    fixture_read_to(&f, 0, &at, 10);
    ck_assert_int_eq(brook_consumer_lag(f.consumer, "t", 0, &lag), 0);
    ck_assert_int_eq(lag, 0);
    ck_assert_int_eq(brook_consumer_lag(f.consumer, "t", 5, &lag), -BROOK_E_NOT_ASSIGNED);
    struct brook_position *positions;
    size_t count;
    ck_assert_int_eq(brook_consumer_assignment(f.consumer, &positions, &count), 0);
    ck_assert_uint_eq(count, 1);
    ck_assert_str_eq(positions[0].topic, "t");
    ck_assert_int_eq(positions[0].offset, 10);
    free(positions);
    char *text = brook_consumer_statistics(f.consumer);
    ck_assert_ptr_nonnull(strstr(text, "\"records\":6,"));
    ck_assert_ptr_nonnull(strstr(text, "\"position\":10"));
    free(text);
    char id[8];
    ck_assert_int_eq(brook_consumer_member_id(f.consumer, id, sizeof id), 0);
    ck_assert_str_eq(id, "");
    fixture_close(&f);
}
END_TEST

START_TEST(wrong_calls_are_refused_with_a_sentence)
{
    struct consumer_fixture f;
    fixture_open(&f, 1);
    fixture_start(&f);
    struct brook_position twice[] = {{"t", 0, 0}, {"t", 0, 0}}, bad_name = {"a/b", 0, 0},
                          bad_offset = {"t", 0, -9};
    ck_assert_int_eq(brook_consumer_assign(f.consumer, twice, 2, &f.error), -BROOK_E_INVALID);
    ck_assert_ptr_nonnull(strstr(f.error.text, "twice"));
    ck_assert_int_eq(brook_consumer_assign(f.consumer, &bad_name, 1, &f.error), -BROOK_E_ILLEGAL_NAME);
    ck_assert_int_eq(brook_consumer_assign(f.consumer, &bad_offset, 1, &f.error), -BROOK_E_INVALID);
    ck_assert_int_eq(brook_consumer_commit(f.consumer, twice, 1, BROOK_COMMIT_SYNC, 0, &f.error),
                     -BROOK_E_CONFIG);
    const char *topic = "t";
    ck_assert_int_eq(brook_consumer_subscribe(f.consumer, &topic, 1, &f.error), -BROOK_E_CONFIG);
    fixture_close(&f);
}
END_TEST

SUITE_MAIN("client/consumer_read", SUITE_TEST(assigned_partitions_are_read_from_where_was_asked),
           SUITE_TEST(latest_skips_what_is_there), SUITE_TEST(a_stored_offset_is_taken_up),
           SUITE_TEST(a_broker_without_sessions_is_served_too), SUITE_TEST(sessions_name_only_what_changed),
           SUITE_TEST(all_partitions_come_each_in_order), SUITE_TEST(a_seek_drops_what_was_fetched),
           SUITE_TEST(answers_that_were_on_their_way_when_a_seek_came_are_void),
           SUITE_TEST(a_paused_partition_rests_and_goes_on_where_it_was),
           SUITE_TEST(a_seek_to_a_time_asks_the_leader),
           SUITE_TEST(batches_that_are_out_stop_the_flow_until_they_come_back),
           SUITE_TEST(what_is_fetched_ahead_stays_within_its_limit),
           SUITE_TEST(expanded_batches_that_are_out_count_with_their_size),
           SUITE_TEST(a_partial_first_batch_makes_the_consumer_ask_for_more),
           SUITE_TEST(a_batch_larger_than_every_limit_comes_whole),
           SUITE_TEST(no_partition_waits_for_another_to_end), SUITE_TEST(batches_outlive_the_consumer),
           SUITE_TEST(workers_release_in_any_order), SUITE_TEST(calls_of_other_threads_do_not_disturb),
           SUITE_TEST(a_seek_in_the_middle_of_a_poll_is_not_lost),
           SUITE_TEST(position_lag_assignment_and_statistics_agree),
           SUITE_TEST(wrong_calls_are_refused_with_a_sentence))
