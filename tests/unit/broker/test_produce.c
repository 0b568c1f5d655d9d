#include "broker/partition/partition.h"
#include "proto/base/clock.h"
#include "proto/record/batch.h"
#include "proto/wire/envelope.h"
#include "tests/support/rig.h"
#include "tests/support/suite.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

static int64_t end_of(struct rig *rig, const char *topic, int32_t number)
{
    struct partition_marks marks;
    partition_marks(fake_cluster_partition(rig->cluster, topic, number), &marks);
    return marks.log_end;
}

START_TEST(a_record_is_stored_and_answered_with_its_offset)
{
    struct rig rig;
    struct raw_client c;
    rig_prepare(&rig);
    struct topic_id t = fake_cluster_add_topic(rig.cluster, "t", 1);
    rig_start(&rig);
    raw_open(&c, rig.port);
    for (int64_t i = 0; i < 10; i++)
        ck_assert_int_eq(raw_produce(&c, &t, 0, 100), i);
    ck_assert_int_eq(end_of(&rig, "t", 0), 10);
    raw_close(&c);
    rig_stop(&rig);
}
END_TEST

START_TEST(pipelined_requests_get_consecutive_offsets)
{
    enum { COUNT = 3000 };
    struct rig rig;
    struct raw_client c;
    uint8_t batch[1000];
    rig_prepare(&rig);
    struct topic_id t = fake_cluster_add_topic(rig.cluster, "t", 1);
    rig_start(&rig);
    raw_open(&c, rig.port);
    size_t bytes = raw_batch(batch, sizeof batch, 1, 200);
    uint64_t first = c.correlation_id + 1;
    for (int i = 0; i < COUNT; i++)
        raw_send_produce(&c, &t, 0, BROOK__ACKS__ACKS_LEADER, batch, bytes);
    for (int i = 0; i < COUNT; i++) {
        Brook__Response *r = raw_receive(&c);
        ck_assert_ptr_nonnull(r);
        ck_assert_int_eq(raw_status(r), 0);
        ck_assert_int_eq(r->produce->partitions[0]->base_offset, (int64_t)(r->correlation_id - first));
    }
    ck_assert_int_eq(end_of(&rig, "t", 0), COUNT);
    raw_close(&c);
    rig_stop(&rig);
}
END_TEST

START_TEST(acks_all_is_answered_when_all_have_it)
{
    struct rig rig;
    struct raw_client c;
    uint8_t batch[1000];
    rig_prepare(&rig);
    struct topic_id t = fake_cluster_add_topic(rig.cluster, "t", 1);
    rig_start(&rig);
    raw_open(&c, rig.port);
    raw_send_produce(&c, &t, 0, BROOK__ACKS__ACKS_ALL, batch, raw_batch(batch, sizeof batch, 3, 50));
    Brook__Response *r = raw_receive(&c);
    ck_assert_int_eq(raw_status(r), 0);
    ck_assert_ptr_null(r->produce->partitions[0]->status);
    ck_assert_int_eq(end_of(&rig, "t", 0), 3);
    raw_close(&c);
    rig_stop(&rig);
}
END_TEST

START_TEST(acks_none_is_not_answered)
{
    struct rig rig;
    struct raw_client c;
    uint8_t batch[1000];
    rig_prepare(&rig);
    struct topic_id t = fake_cluster_add_topic(rig.cluster, "t", 1);
    rig_start(&rig);
    raw_open(&c, rig.port);
    size_t bytes = raw_batch(batch, sizeof batch, 1, 50);
    for (int i = 0; i < 5; i++)
        raw_send_produce(&c, &t, 0, BROOK__ACKS__ACKS_NONE, batch, bytes);
    ck_assert_int_eq(raw_produce(&c, &t, 0, 10),
                     5); /* the first answer is the first request's that wants one */
    raw_close(&c);
    rig_stop(&rig);
}
END_TEST

START_TEST(a_failure_without_acks_closes_the_connection)
{
    struct rig rig;
    struct raw_client c;
    uint8_t batch[1000];
    rig_prepare(&rig);
    struct topic_id t = fake_cluster_add_topic(rig.cluster, "t", 1);
    rig_start(&rig);
    size_t bytes = raw_batch(batch, sizeof batch, 1, 50);
    raw_open(&c, rig.port);
    raw_send_produce(&c, &t, 7, BROOK__ACKS__ACKS_NONE, batch, bytes);
    ck_assert(raw_is_closed(&c, 5000));
    raw_close(&c);
    raw_open(&c, rig.port);
    batch[40] ^= 1; /* the checksum is wrong now */
    raw_send_produce(&c, &t, 0, BROOK__ACKS__ACKS_NONE, batch, bytes);
    ck_assert(raw_is_closed(&c, 5000));
    raw_close(&c);
    ck_assert_int_eq(end_of(&rig, "t", 0), 0);
    ck_assert_uint_eq(rig_warnings(&rig), 2);
    rig_stop(&rig);
}
END_TEST

/* Two entries: the first good, the second damaged at one byte. */
static Brook__Response *ask_two(struct raw_client *c, const struct topic_id *t, const uint8_t *records,
                                size_t first, size_t second)
{
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__ProduceRequest produce = BROOK__PRODUCE_REQUEST__INIT;
    Brook__ProducePartition entries[2], *pointers[2] = {&entries[0], &entries[1]};
    for (int i = 0; i < 2; i++) {
        brook__produce_partition__init(&entries[i]);
        entries[i].has_topic_id = entries[i].has_partition = entries[i].has_records_bytes = true;
        entries[i].topic_id = envelope_bytes(t->bytes, 16);
        entries[i].partition = i;
        entries[i].records_bytes = (uint32_t)(i ? second : first);
    }
    produce.n_partitions = 2;
    produce.partitions = pointers;
    request.body_case = BROOK__REQUEST__BODY_PRODUCE;
    request.produce = &produce;
    return raw_ask(c, &request, records, first + second);
}

START_TEST(one_bad_batch_refuses_all_with_nothing_written)
{
    struct rig rig;
    struct raw_client c;
    uint8_t records[2000];
    rig_prepare(&rig);
    struct topic_id t = fake_cluster_add_topic(rig.cluster, "t", 2);
    rig_start(&rig);
    raw_open(&c, rig.port);
    size_t first = raw_batch(records, 1000, 1, 50);
    size_t second = raw_batch(records + first, 1000, 2, 30);
    ck_assert_int_eq(raw_status(ask_two(&c, &t, records, first, second)), 0);
    for (size_t at = 8; at < second; at++) { /* the base offset is the broker's to write */
        if (at >= 12 && at < 16)             /* so is the leader epoch */
            continue;
        records[first + at] ^= 0x55;
        Brook__Response *r = ask_two(&c, &t, records, first, second);
        ck_assert_msg(raw_status(r) != 0, "damage at byte %zu was taken", at);
        ck_assert_uint_gt(r->status->text.len, 5);
        records[first + at] ^= 0x55;
    }
    ck_assert_int_eq(end_of(&rig, "t", 0), 1);
    ck_assert_int_eq(end_of(&rig, "t", 1), 2);
    raw_close(&c);
    rig_stop(&rig);
}
END_TEST

START_TEST(records_that_do_not_add_up_are_refused)
{
    struct rig rig;
    struct raw_client c;
    uint8_t records[2000];
    rig_prepare(&rig);
    struct topic_id t = fake_cluster_add_topic(rig.cluster, "t", 2);
    rig_start(&rig);
    raw_open(&c, rig.port);
    size_t first = raw_batch(records, 1000, 1, 50), second = raw_batch(records + first, 1000, 1, 50);
    ck_assert_int_eq(raw_status(ask_two(&c, &t, records, first - 1, second)), BROOK_E_BAD_BATCH);
    ck_assert_int_eq(raw_status(ask_two(&c, &t, records, first + second, 0)), BROOK_E_BAD_BATCH);
    ck_assert_int_eq(raw_status(ask_two(&c, &t, records, first, second - 1)), BROOK_E_BAD_BATCH);
    ck_assert_int_eq(end_of(&rig, "t", 0), 0);
    raw_close(&c);
    rig_stop(&rig);
}
END_TEST

static int produce_status(struct raw_client *c, const struct topic_id *t, int32_t partition,
                          const void *batch, size_t bytes, char *text, size_t capacity)
{
    raw_send_produce(c, t, partition, BROOK__ACKS__ACKS_ALL, batch, bytes);
    Brook__Response *r = raw_receive(c);
    ck_assert_ptr_nonnull(r);
    ck_assert_int_eq(raw_status(r), 0);
    const Brook__Status *status = r->produce->partitions[0]->status;
    if (status)
        snprintf(text, capacity, "%.*s", (int)status->text.len, (const char *)status->text.data);
    return envelope_status_code(status);
}

START_TEST(acks_that_nobody_knows_are_refused)
{
    struct rig rig;
    struct raw_client c;
    uint8_t batch[1000];
    rig_prepare(&rig);
    struct topic_id t = fake_cluster_add_topic(rig.cluster, "t", 1);
    rig_start(&rig);
    raw_open(&c, rig.port);
    raw_send_produce(&c, &t, 0, 7, batch, raw_batch(batch, sizeof batch, 1, 50));
    ck_assert_int_eq(raw_status(raw_receive(&c)), BROOK_E_INVALID);
    ck_assert_int_eq(end_of(&rig, "t", 0), 0);
    raw_close(&c);
    rig_stop(&rig);
}
END_TEST

START_TEST(a_partition_tells_its_own_troubles)
{
    struct rig rig;
    struct raw_client c;
    uint8_t batch[1000];
    char text[300] = "";
    struct topic_config config;
    rig_prepare(&rig);
    struct topic_id t = fake_cluster_add_topic(rig.cluster, "t", 3), nobody = {{9}};
    fake_cluster_topic_defaults(&config);
    config.message_bytes_max = 200;
    struct topic_id small = fake_cluster_add_topic_with(rig.cluster, "small", 1, &config);
    fake_cluster_topic_defaults(&config);
    config.min_insync_replicas = 2;
    struct topic_id lonely = fake_cluster_add_topic_with(rig.cluster, "lonely", 1, &config);
    struct topic_id gone = fake_cluster_add_topic(rig.cluster, "gone", 1);
    fake_cluster_delete_topic(rig.cluster, "gone");
    fake_cluster_set_leader(rig.cluster, "t", 1, 2, 9);
    fake_cluster_set_leader(rig.cluster, "t", 2, -1, 9);
    partition_set_min_in_sync(fake_cluster_partition(rig.cluster, "lonely", 0), 2);
    rig_start(&rig);
    raw_open(&c, rig.port);
    size_t bytes = raw_batch(batch, sizeof batch, 1, 300);
    ck_assert_int_eq(produce_status(&c, &t, 0, batch, bytes, text, sizeof text), 0);
    ck_assert_int_eq(produce_status(&c, &t, 3, batch, bytes, text, sizeof text), BROOK_E_UNKNOWN_PARTITION);
    ck_assert_int_eq(produce_status(&c, &nobody, 0, batch, bytes, text, sizeof text), BROOK_E_UNKNOWN_TOPIC);
    ck_assert_int_eq(produce_status(&c, &t, 1, batch, bytes, text, sizeof text), BROOK_E_NOT_LEADER);
    ck_assert_str_eq(text, "partition t/1: leader is broker 2, not 1 (epoch 9)");
    ck_assert_int_eq(produce_status(&c, &t, 2, batch, bytes, text, sizeof text), BROOK_E_NO_LEADER);
    ck_assert_int_eq(produce_status(&c, &small, 0, batch, bytes, text, sizeof text),
                     BROOK_E_MESSAGE_TOO_LARGE);
    ck_assert_int_eq(produce_status(&c, &lonely, 0, batch, bytes, text, sizeof text),
                     BROOK_E_NOT_ENOUGH_REPLICAS);
    ck_assert_str_eq(text, "partition lonely/0: 1 replicas in sync, min.insync.replicas is 2");
    ck_assert_int_eq(produce_status(&c, &gone, 0, batch, bytes, text, sizeof text),
                     BROOK_E_TOPIC_BEING_DELETED);
    ck_assert_int_eq(end_of(&rig, "small", 0) + end_of(&rig, "lonely", 0) + end_of(&rig, "gone", 0), 0);
    /* The leader knows better than the view, which may be old. */
    partition_set_min_in_sync(fake_cluster_partition(rig.cluster, "lonely", 0), 1);
    ck_assert_int_eq(produce_status(&c, &lonely, 0, batch, bytes, text, sizeof text), 0);
    raw_close(&c);
    rig_stop(&rig);
}
END_TEST

static size_t stamped_batch(void *to, size_t capacity, int64_t first, int64_t second)
{
    struct batch_writer w;
    struct record_view record = {.value = "v", .value_bytes = 1, .timestamp = first};
    batch_writer_init(&w, to, capacity);
    ck_assert_int_eq(batch_writer_add(&w, &record), 0);
    record.timestamp = second;
    ck_assert_int_eq(batch_writer_add(&w, &record), 0);
    return batch_writer_finish(&w, -1, -1, -1);
}

START_TEST(timestamps_outside_the_topics_window_are_refused)
{
    enum { DAY = 86400000 };
    const int64_t now = clock_wall_ms();
    const struct {
        int64_t first, second;
        bool is_refused;
    } table[] = {
        {now, now, false},
        {now - DAY + 60000, now, false},
        {now - DAY - 60000, now, true},
        {now, now + DAY - 60000, false},
        {now, now + DAY + 60000, true},
        {now * 1000, now * 1000, true},
        {now / 1000, now / 1000, true},
        {0, 0, true},
        {-1, -1, false}, /* without a timestamp */
        {now, INT64_MAX - 1000000000, true},
        {INT64_MAX, INT64_MAX, true},
        {INT64_MIN, INT64_MIN, true},
    };
    struct rig rig;
    struct raw_client c;
    uint8_t batch[1000];
    char text[300] = "";
    struct topic_config config;
    int64_t stored = 0;
    rig_prepare(&rig);
    fake_cluster_topic_defaults(&config);
    struct topic_id open = fake_cluster_add_topic_with(rig.cluster, "open", 1, &config);
    config.timestamp_before_ms_max = config.timestamp_after_ms_max = DAY;
    struct topic_id t = fake_cluster_add_topic_with(rig.cluster, "t", 1, &config);
    rig_start(&rig);
    raw_open(&c, rig.port);
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        size_t bytes = stamped_batch(batch, sizeof batch, table[i].first, table[i].second);
        int code = produce_status(&c, &t, 0, batch, bytes, text, sizeof text);
        ck_assert_msg(code == (table[i].is_refused ? BROOK_E_INVALID_TIMESTAMP : 0), "%zu: %d %s", i, code, text);
        ck_assert_int_eq(produce_status(&c, &open, 0, batch, bytes, text, sizeof text), 0);
        stored += table[i].is_refused ? 0 : 2;
    }
    ck_assert_int_eq(end_of(&rig, "t", 0), stored);
    raw_close(&c);
    rig_stop(&rig);
}
END_TEST

/* One batch of records that have a key, but for the last one (with `keyless`). */
static size_t keyed_batch(uint8_t *to, size_t capacity, enum codec_id id, bool keyless)
{
    uint8_t plain[1000];
    struct batch_writer w;
    struct codec *codec;
    size_t bytes;
    batch_writer_init(&w, plain, sizeof plain);
    for (int i = 0; i < 3; i++) {
        struct record_view r = {.key = keyless && i == 2 ? NULL : "key", .key_bytes = 3, .timestamp = 1};
        ck_assert_int_eq(batch_writer_add(&w, &r), 0);
    }
    ck_assert_int_eq(codec_new(&codec), 0);
    if (id == CODEC_NONE)
        memcpy(to, plain, bytes = batch_writer_finish(&w, -1, -1, -1));
    else
        ck_assert_int_eq(batch_writer_finish_compressed(&w, codec, id, -1, -1, -1, to, capacity, &bytes), 0);
    codec_free(codec);
    return bytes;
}

START_TEST(a_compacted_topic_takes_records_with_a_key_only)
{
    struct rig rig;
    struct raw_client c;
    uint8_t batch[2000];
    char text[300] = "";
    struct topic_config config;
    rig_prepare(&rig);
    fake_cluster_topic_defaults(&config);
    struct topic_id plain = fake_cluster_add_topic_with(rig.cluster, "plain", 1, &config);
    config.log.cleanup_policy = CLEANUP_COMPACT_DELETE;
    struct topic_id compacted = fake_cluster_add_topic_with(rig.cluster, "compacted", 1, &config);
    rig_start(&rig);
    raw_open(&c, rig.port);
    for (int id = CODEC_NONE; id <= CODEC_ZSTD; id++) {
        size_t bytes = keyed_batch(batch, sizeof batch, (enum codec_id)id, true);
        ck_assert_int_eq(produce_status(&c, &plain, 0, batch, bytes, text, sizeof text), 0);
        ck_assert_int_eq(produce_status(&c, &compacted, 0, batch, bytes, text, sizeof text),
                         BROOK_E_INVALID_RECORD);
        ck_assert_str_eq(text, "record 2 of a batch has no key, and the topic is compacted");
        ck_assert_int_eq(end_of(&rig, "compacted", 0), id * 3);
        bytes = keyed_batch(batch, sizeof batch, (enum codec_id)id, false);
        ck_assert_int_eq(produce_status(&c, &compacted, 0, batch, bytes, text, sizeof text), 0);
    }
    raw_close(&c);
    rig_stop(&rig);
}
END_TEST

struct stall {
    struct partition *partition;
    _Atomic bool is_held;
    _Atomic bool let_go;
};

static void hold(struct partition *p, void *arg)
{
    struct stall *s = arg;
    s->is_held = true;
    while (!s->let_go) {
        const struct timespec moment = {.tv_nsec = 1000000};
        nanosleep(&moment, NULL);
    }
}

static void *stall(void *arg)
{
    struct stall *s = arg;
    partition_with_append_lock(s->partition, hold, s);
    return NULL;
}

static bool is_held(void *arg)
{
    return ((struct stall *)arg)->is_held;
}

/* Appends wait in the queue while somebody holds the lock; their bytes lie in the connection's buffer, which
 * the requests behind them must not overwrite. */
START_TEST(a_stalled_disk_stalls_its_partition_only)
{
    struct rig rig;
    struct raw_client c;
    uint8_t batch[4000];
    pthread_t thread;
    rig_prepare(&rig);
    struct topic_id t = fake_cluster_add_topic(rig.cluster, "t", 2);
    rig_start(&rig);
    raw_open(&c, rig.port);
    struct stall s = {.partition = fake_cluster_partition(rig.cluster, "t", 0)};
    pthread_create(&thread, NULL, stall, &s);
    ck_assert(suite_wait(is_held, &s, 5000));
    size_t bytes = raw_batch(batch, sizeof batch, 1, 3000);
    for (int i = 0; i < 100; i++)
        raw_send_produce(&c, &t, 0, BROOK__ACKS__ACKS_LEADER, batch, bytes);
    bytes = raw_batch(batch, sizeof batch, 3, 900); /* others, which must not be found among those */
    for (int i = 0; i < 100; i++) {
        struct raw_client other;
        raw_send_produce(&c, &t, 1, BROOK__ACKS__ACKS_LEADER, batch, bytes);
        Brook__Response *r = raw_receive(&c);
        ck_assert_int_eq(raw_status(r), 0);
        if (i % 50 == 0) {
            raw_open(&other, rig.port);
            raw_produce(&other, &t, 1, 10);
            raw_close(&other);
        }
    }
    ck_assert_int_eq(end_of(&rig, "t", 0), 0);
    s.let_go = true;
    pthread_join(thread, NULL);
    for (int i = 0; i < 100; i++)
        ck_assert_int_eq(raw_status(raw_receive(&c)), 0);
    ck_assert_int_eq(end_of(&rig, "t", 0), 100);
    struct raw_pull pull;
    raw_pull_init(&pull, &t, 0, 0);
    raw_pull(&c, &pull);
    struct batch_header h;
    size_t n = 0;
    for (size_t at = 0; at < c.records_bytes; at += h.total_bytes, n++) {
        ck_assert_int_eq(batch_read_header(c.records + at, c.records_bytes - at, &h), 0);
        ck_assert_int_eq(h.base_offset, (int64_t)n);
        ck_assert_int_eq(h.records_count, 1);
        ck_assert_int_eq(batch_check_crc(c.records + at, &h), 0);
    }
    ck_assert_uint_eq(n, 100);
    raw_close(&c);
    rig_stop(&rig);
}
END_TEST

START_TEST(acks_none_goes_on_at_the_limit_of_requests)
{
    struct rig rig;
    struct raw_client c;
    uint8_t batch[1000];
    pthread_t thread;
    rig_prepare(&rig);
    rig.net_settings.requests_in_flight_max = 2;
    struct topic_id t = fake_cluster_add_topic(rig.cluster, "t", 1);
    rig_start(&rig);
    raw_open(&c, rig.port);
    struct stall s = {.partition = fake_cluster_partition(rig.cluster, "t", 0)};
    pthread_create(&thread, NULL, stall, &s);
    ck_assert(suite_wait(is_held, &s, 5000));
    size_t bytes = raw_batch(batch, sizeof batch, 1, 50);
    raw_hold(&c);
    for (int i = 0; i < 101; i++)
        raw_send_produce(&c, &t, 0, BROOK__ACKS__ACKS_NONE, batch, bytes);
    raw_release(&c);
    ck_assert(raw_is_silent(&c, 50));
    s.let_go = true;
    pthread_join(thread, NULL);
    ck_assert_int_eq(raw_produce(&c, &t, 0, 10), 101);
    raw_close(&c);
    rig_stop(&rig);
}
END_TEST

START_TEST(a_produce_that_waits_is_given_up_at_its_timeout)
{
    struct rig rig;
    struct raw_client c;
    uint8_t batch[1000];
    pthread_t thread;
    rig_prepare(&rig);
    rig.handler_settings.request_timeout_ms_max = 100;
    struct topic_id t = fake_cluster_add_topic(rig.cluster, "t", 1);
    rig_start(&rig);
    raw_open(&c, rig.port);
    struct stall s = {.partition = fake_cluster_partition(rig.cluster, "t", 0)};
    pthread_create(&thread, NULL, stall, &s);
    ck_assert(suite_wait(is_held, &s, 5000));
    char text[300];
    int64_t began = clock_boot_ms();
    int status = produce_status(&c, &t, 0, batch, raw_batch(batch, sizeof batch, 1, 50), text, sizeof text);
    ck_assert_int_eq(status, BROOK_E_TIMED_OUT);
    ck_assert_int_ge(clock_boot_ms() - began, 99);
    s.let_go = true;
    pthread_join(thread, NULL);
    ck_assert_int_eq(raw_produce(&c, &t, 0, 10), 0);
    raw_close(&c);
    rig_stop(&rig);
}
END_TEST

/* The client has given up by then, and may have sent its records again elsewhere. */
START_TEST(a_produce_that_expires_while_it_waits_is_not_written)
{
    struct rig rig;
    struct raw_client c;
    uint8_t batch[1000];
    pthread_t thread;
    rig_prepare(&rig);
    struct topic_id t = fake_cluster_add_topic(rig.cluster, "t", 2);
    rig_start(&rig);
    raw_open(&c, rig.port);
    size_t bytes = raw_batch(batch, sizeof batch, 1, 50);
    struct stall s = {.partition = fake_cluster_partition(rig.cluster, "t", 0)};
    pthread_create(&thread, NULL, stall, &s);
    ck_assert(suite_wait(is_held, &s, 5000));
    c.deadline_ms = 300;
    raw_send_produce(&c, &t, 0, BROOK__ACKS__ACKS_LEADER, batch, bytes);
    c.deadline_ms = 0;
    raw_send_produce(&c, &t, 0, BROOK__ACKS__ACKS_LEADER, batch, bytes);
    raw_produce(&c, &t, 1, 50); /* both are in the queue */
    int64_t began_ms = clock_boot_ms();
    while (clock_boot_ms() - began_ms <= 310)
        ck_assert(raw_is_silent(&c, 10));
    s.let_go = true;
    pthread_join(thread, NULL);
    Brook__Response *r = raw_receive(&c);
    ck_assert_int_eq(raw_status(r), 0);
    ck_assert_int_eq(envelope_status_code(r->produce->partitions[0]->status), BROOK_E_REQUEST_EXPIRED);
    r = raw_receive(&c);
    ck_assert_int_eq(envelope_status_code(r->produce->partitions[0]->status), 0);
    ck_assert_int_eq(end_of(&rig, "t", 0), 1);
    raw_close(&c);
    rig_stop(&rig);
}
END_TEST

START_TEST(a_client_that_leaves_while_its_append_waits_harms_nobody)
{
    struct rig rig;
    struct raw_client c;
    uint8_t batch[1000];
    pthread_t thread;
    rig_prepare(&rig);
    struct topic_id t = fake_cluster_add_topic(rig.cluster, "t", 1);
    rig_start(&rig);
    struct stall s = {.partition = fake_cluster_partition(rig.cluster, "t", 0)};
    pthread_create(&thread, NULL, stall, &s);
    ck_assert(suite_wait(is_held, &s, 5000));
    size_t bytes = raw_batch(batch, sizeof batch, 1, 50);
    raw_open(&c, rig.port);
    for (int i = 0; i < 20; i++)
        raw_send_produce(&c, &t, 0, BROOK__ACKS__ACKS_LEADER, batch, bytes);
    struct linger reset = {.l_onoff = 1};
    ck_assert(raw_is_silent(&c, 50));
    setsockopt(c.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    raw_close(&c);
    ck_assert(rig_wait_connections(&rig, 0, 5000));
    s.let_go = true;
    pthread_join(thread, NULL);
    raw_open(&c, rig.port);
    ck_assert_int_eq(raw_produce(&c, &t, 0, 10), 20);
    raw_close(&c);
    rig_stop(&rig);
}
END_TEST

START_TEST(the_broker_can_stop_while_an_append_waits)
{
    struct rig rig;
    struct raw_client c;
    uint8_t batch[1000];
    pthread_t thread;
    rig_prepare(&rig);
    rig.net_settings.stop_ms_max = 100;
    struct topic_id t = fake_cluster_add_topic(rig.cluster, "t", 1);
    rig_start(&rig);
    struct stall s = {.partition = fake_cluster_partition(rig.cluster, "t", 0)};
    pthread_create(&thread, NULL, stall, &s);
    ck_assert(suite_wait(is_held, &s, 5000));
    raw_open(&c, rig.port);
    raw_send_produce(&c, &t, 0, BROOK__ACKS__ACKS_LEADER, batch, raw_batch(batch, sizeof batch, 1, 50));
    ck_assert(raw_is_silent(&c, 50));
    net_stop_accepting(rig.net);
    net_stop(rig.net);
    ck_assert(raw_is_closed(&c, 1000)); /* closing the logs may take long: the client asks another broker */
    s.let_go = true;
    pthread_join(thread, NULL);
    fake_cluster_free(rig.cluster);
    net_free(rig.net);
    raw_close(&c);
}
END_TEST

struct producer {
    struct rig *rig;
    const struct topic_id *topic;
    int count;
};

static void *produce_many(void *arg)
{
    struct producer *p = arg;
    struct raw_client c;
    raw_open(&c, p->rig->port);
    int64_t previous = -1;
    for (int i = 0; i < p->count; i++) {
        int64_t offset = raw_produce(&c, p->topic, 0, 20);
        ck_assert_int_gt(offset, previous);
        previous = offset;
    }
    raw_close(&c);
    return NULL;
}

START_TEST(loops_that_share_a_partition_lose_nothing)
{
    struct rig rig;
    pthread_t threads[4];
    rig_prepare(&rig);
    struct topic_id t = fake_cluster_add_topic(rig.cluster, "t", 1);
    rig_start(&rig);
    struct producer p = {&rig, &t, 300};
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, produce_many, &p);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    ck_assert_int_eq(end_of(&rig, "t", 0), 1200);
    rig_stop(&rig);
}
END_TEST

START_TEST(large_batches_go_through)
{
    struct rig rig;
    struct raw_client c;
    rig_prepare(&rig);
    struct topic_id t = fake_cluster_add_topic(rig.cluster, "t", 1);
    rig_start(&rig);
    raw_open(&c, rig.port);
    for (int64_t i = 0; i < 20; i++)
        ck_assert_int_eq(raw_produce(&c, &t, 0, (size_t)(i * 99999)), i);
    raw_close(&c);
    rig_stop(&rig);
}
END_TEST

START_TEST(hundred_sequential_requests_are_quick)
{
    struct rig rig;
    struct raw_client c;
    int64_t worst = 0;
    rig_prepare(&rig);
    struct topic_id t = fake_cluster_add_topic(rig.cluster, "t", 1);
    rig_start(&rig);
    raw_open(&c, rig.port);
    int slow = 0;
    for (int i = 0; i < 200; i++) {
        int64_t began = clock_boot_ns();
        raw_produce(&c, &t, 0, 100);
        int64_t took = clock_boot_ns() - began;
        if (took > worst)
            worst = took;
        slow += took > 38000000; /* a delayed ACK takes 40 ms */
    }
    fprintf(stderr, "# slowest %lld us\n", (long long)(worst / 1000));
    ck_assert_int_lt(slow, 20);
    raw_close(&c);
    rig_stop(&rig);
}
END_TEST

SUITE_MAIN("broker/produce", SUITE_TEST(a_record_is_stored_and_answered_with_its_offset),
           SUITE_TEST(pipelined_requests_get_consecutive_offsets),
           SUITE_TEST(acks_all_is_answered_when_all_have_it), SUITE_TEST(acks_none_is_not_answered),
           SUITE_TEST(acks_none_goes_on_at_the_limit_of_requests),
           SUITE_TEST(a_failure_without_acks_closes_the_connection),
           SUITE_TEST(one_bad_batch_refuses_all_with_nothing_written),
           SUITE_TEST(records_that_do_not_add_up_are_refused), SUITE_TEST(timestamps_outside_the_topics_window_are_refused),
           SUITE_TEST(acks_that_nobody_knows_are_refused),
           SUITE_TEST(a_partition_tells_its_own_troubles),
           SUITE_TEST(a_compacted_topic_takes_records_with_a_key_only),
           SUITE_TEST(a_stalled_disk_stalls_its_partition_only),
           SUITE_TEST(a_produce_that_waits_is_given_up_at_its_timeout),
           SUITE_TEST(a_produce_that_expires_while_it_waits_is_not_written),
           SUITE_TEST(a_client_that_leaves_while_its_append_waits_harms_nobody),
           SUITE_TEST(the_broker_can_stop_while_an_append_waits),
           SUITE_TEST(loops_that_share_a_partition_lose_nothing), SUITE_TEST(large_batches_go_through),
           SUITE_TEST(hundred_sequential_requests_are_quick))
