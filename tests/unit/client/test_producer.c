#include "proto/base/clock.h"
#include "tests/support/stub_broker.h"
#include "tests/support/suite.h"

#include <brook/brook.h>
#include <jansson.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAIT_MS 10000

struct fixture {
    struct stub_cluster *cluster;
    brook_config *config;
    brook_producer *producer;
    int64_t stored, not_stored, maybe;
    int64_t next_offset[64]; /* per partition, of the reports */
    bool offsets_in_order;
    int last_code;
    char last_text[256];
    void *last_opaque;
};

static void on_report(void *arg, const struct brook_report *report)
{
    struct fixture *f = arg;
    if (report->outcome == BROOK_STORED) {
        f->stored++;
        if (report->offset >= 0 && report->offset != f->next_offset[report->partition]++)
            f->offsets_in_order = false;
    } else if (report->outcome == BROOK_NOT_STORED) {
        f->not_stored++;
    } else {
        f->maybe++;
    }
    if (report->error.code) {
        f->last_code = report->error.code;
        snprintf(f->last_text, sizeof f->last_text, "%s", report->error.text);
    }
    f->last_opaque = report->opaque;
}

static void set(struct fixture *f, const char *key, const char *value)
{
    struct brook_error error;
    ck_assert_msg(brook_config_set(f->config, key, value, &error) == 0, "%s", error.text);
}

static void fixture_open(struct fixture *f, unsigned brokers)
{
    memset(f, 0, sizeof *f);
    f->offsets_in_order = true;
    f->cluster = stub_cluster_new(brokers);
    ck_assert_int_eq(brook_config_new(&f->config), 0);
    set(f, "bootstrap.servers", stub_cluster_servers(f->cluster));
    set(f, "linger.ms", "1");
    set(f, "retry.backoff.ms", "10");
}

static void fixture_start(struct fixture *f, bool with_reports)
{
    struct brook_error error;
    ck_assert_msg(brook_producer_new(f->config, &f->producer, &error) == 0, "%s", error.text);
    if (with_reports)
        brook_producer_on_report(f->producer, on_report, f);
}

static void fixture_close(struct fixture *f)
{
    if (f->producer)
        brook_producer_close(f->producer, WAIT_MS);
    brook_config_free(f->config);
    stub_cluster_free(f->cluster);
}

static int send_text(struct fixture *f, const char *topic, int32_t partition, const char *key,
                     const char *value)
{
    struct brook_record record = {.topic = topic,
                                  .partition = partition,
                                  .key = key,
                                  .key_bytes = key ? strlen(key) : 0,
                                  .value = value,
                                  .value_bytes = value ? strlen(value) : 0,
                                  .opaque = f};
    return brook_producer_send(f->producer, &record, 0, NULL);
}

static void send_numbers(struct fixture *f, const char *topic, int32_t partition, int count)
{
    char text[32];
    for (int i = 0; i < count; i++) {
        snprintf(text, sizeof text, "%d", i);
        struct brook_record record = {
            .topic = topic, .partition = partition, .value = text, .value_bytes = strlen(text)};
        ck_assert_int_eq(brook_producer_send(f->producer, &record, BROOK_SEND_WAIT, NULL), 0);
    }
}

struct numbers {
    int next;
    bool in_order;
};
static void check_number(void *arg, const struct record *record)
{
    struct numbers *n = arg;
    char text[32];
    snprintf(text, sizeof text, "%d", n->next++);
    if ((size_t)record->value_bytes != strlen(text) || memcmp(record->value, text, strlen(text)) != 0)
        n->in_order = false;
}

static void check_numbers(struct fixture *f, const char *topic, int32_t partition, int count)
{
    struct numbers n = {.in_order = true};
    ck_assert_int_eq(stub_cluster_walk(f->cluster, topic, partition, check_number, &n), count);
    ck_assert(n.in_order);
}

START_TEST(records_are_stored_in_order_and_reported_once_with_their_offsets)
{
    struct fixture f;
    fixture_open(&f, 1);
    stub_cluster_add_topic(f.cluster, "t", 1);
    fixture_start(&f, true);
    send_numbers(&f, "t", 0, 10000);
    ck_assert_int_eq(brook_producer_flush(f.producer, WAIT_MS), 0);
    ck_assert_int_eq(f.stored, 10000);
    ck_assert_int_eq(f.not_stored + f.maybe, 0);
    ck_assert(f.offsets_in_order);
    check_numbers(&f, "t", 0, 10000);
    ck_assert_int_eq(brook_producer_close(f.producer, WAIT_MS), 0);
    f.producer = NULL;
    fixture_close(&f);
}
END_TEST

START_TEST(without_a_callback_failures_are_counted)
{
    struct fixture f;
    fixture_open(&f, 2);
    stub_cluster_add_topic(f.cluster, "t", 4);
    fixture_start(&f, false);
    for (int32_t p = 0; p < 4; p++)
        send_numbers(&f, "t", p, 1000);
    ck_assert_int_eq(brook_producer_flush(f.producer, WAIT_MS), 0);
    ck_assert_int_eq(brook_producer_failures(f.producer), 0);
    for (int32_t p = 0; p < 4; p++)
        check_numbers(&f, "t", p, 1000);
    ck_assert_int_eq(send_text(&f, "missing", -1, NULL, "x"), 0);
    ck_assert_int_eq(brook_producer_flush(f.producer, WAIT_MS), 0);
    ck_assert_int_eq(brook_producer_failures(f.producer), 1);
    ck_assert_int_eq(brook_producer_close(f.producer, WAIT_MS), 1);
    f.producer = NULL;
    fixture_close(&f);
}
END_TEST

static bool send_and_poll(void *arg)
{
    struct fixture *f = arg;
    ck_assert_int_eq(send_text(f, "missing", -1, "k", "v"), 0);
    brook_producer_poll(f->producer, 20);
    return f->stored > 0;
}

START_TEST(a_topic_that_is_not_there_fails_after_two_answers)
{
    struct fixture f;
    fixture_open(&f, 1);
    fixture_start(&f, true);
    int64_t before = clock_boot_ms();
    ck_assert_int_eq(send_text(&f, "missing", -1, "k", "v"), 0);
    ck_assert_int_eq(brook_producer_flush(f.producer, WAIT_MS), 0);
    ck_assert_int_eq(f.not_stored, 1);
    ck_assert_int_eq(f.last_code, BROOK_E_UNKNOWN_TOPIC);
    ck_assert_ptr_eq(f.last_opaque, &f);
    ck_assert_uint_ge(stub_cluster_requests(f.cluster, BROOK__REQUEST__BODY_METADATA), 2);
    ck_assert_int_lt(clock_boot_ms() - before, WAIT_MS);
    /* Once it is there, it works. */
    stub_cluster_add_topic(f.cluster, "missing", 1);
    ck_assert(suite_wait(send_and_poll, &f, WAIT_MS));
    fixture_close(&f);
}
END_TEST

START_TEST(what_can_not_be_sent_is_refused_at_once)
{
    struct fixture f;
    struct brook_error error;
    fixture_open(&f, 1);
    stub_cluster_add_topic(f.cluster, "t", 2);
    set(&f, "max.request.size", "2000");
    fixture_start(&f, true);
    send_numbers(&f, "t", 0, 1);
    ck_assert_int_eq(brook_producer_flush(f.producer, WAIT_MS), 0);
    static char big[3000];
    struct brook_record record = {.topic = "t", .partition = 0, .value = big, .value_bytes = 1990};
    ck_assert_int_eq(brook_producer_send(f.producer, &record, 0, &error), -BROOK_E_MESSAGE_TOO_LARGE);
    record.value_bytes = 3000;
    ck_assert_int_eq(brook_producer_send(f.producer, &record, 0, &error), -BROOK_E_MESSAGE_TOO_LARGE);
    record.value_bytes = 10;
    record.partition = 2;
    ck_assert_int_eq(brook_producer_send(f.producer, &record, 0, &error), -BROOK_E_UNKNOWN_PARTITION);
    ck_assert_msg(strstr(error.text, "2 partitions") != NULL, "%s", error.text);
    record.partition = -2;
    ck_assert_int_eq(brook_producer_send(f.producer, &record, 0, &error), -BROOK_E_INVALID);
    record.partition = 0;
    record.topic = "no/slash";
    ck_assert_int_eq(brook_producer_send(f.producer, &record, 0, &error), -BROOK_E_ILLEGAL_NAME);
    record.topic = NULL;
    ck_assert_int_eq(brook_producer_send(f.producer, &record, 0, &error), -BROOK_E_INVALID);
    struct brook_header header = {.key = NULL};
    record = (struct brook_record){.topic = "t", .partition = 0, .headers = &header, .headers_count = 1};
    ck_assert_int_eq(brook_producer_send(f.producer, &record, 0, &error), -BROOK_E_INVALID);
    ck_assert_int_eq(brook_producer_flush(f.producer, WAIT_MS), 0);
    ck_assert_int_eq(f.stored, 1);
    fixture_close(&f);
}
END_TEST

struct seen {
    int count;
    char key[16], value[16], header[16];
    bool key_null, value_null, header_null;
    int64_t timestamp;
};
static void see(void *arg, const struct record *record)
{
    struct seen *seen = arg;
    struct record_header header;
    const uint8_t *at = record->headers;
    seen->count++;
    seen->key_null = !record->key;
    seen->value_null = !record->value;
    snprintf(seen->key, sizeof seen->key, "%.*s", record->key_bytes, (const char *)record->key);
    snprintf(seen->value, sizeof seen->value, "%.*s", record->value_bytes, (const char *)record->value);
    seen->timestamp = record->timestamp;
    if (record->headers_count > 0 && record_next_header(record, &at, &header) == 0) {
        snprintf(seen->header, sizeof seen->header, "%.*s", header.key_bytes, (const char *)header.key);
        seen->header_null = !header.value;
    }
}

START_TEST(keys_headers_nulls_and_timestamps_arrive_as_given)
{
    for (int early = 0; early < 2; early++) {
        struct fixture f;
        struct seen seen = {0};
        fixture_open(&f, 1);
        stub_cluster_add_topic(f.cluster, "t", 1);
        fixture_start(&f, true);
        if (!early) {
            stub_cluster_add_topic(f.cluster, "u", 1);
            send_text(&f, "u", 0, NULL, "warm");
            brook_producer_flush(f.producer, WAIT_MS);
        }
        struct brook_header headers[20];
        for (int i = 0; i < 20; i++)
            headers[i] = (struct brook_header){.key = "trace", .key_bytes = 5};
        struct brook_record record = {.topic = early ? "t" : "u",
                                      .partition = -1,
                                      .timestamp = 1234567,
                                      .key = "",
                                      .key_bytes = 0,
                                      .value = NULL,
                                      .headers = headers,
                                      .headers_count = 20};
        ck_assert_int_eq(brook_producer_send(f.producer, &record, BROOK_SEND_BORROW, NULL), 0);
        ck_assert_int_eq(brook_producer_flush(f.producer, WAIT_MS), 0);
        stub_cluster_walk(f.cluster, record.topic, 0, see, &seen);
        ck_assert_int_eq(seen.timestamp, 1234567);
        ck_assert(!seen.key_null);
        ck_assert(seen.value_null);
        ck_assert_str_eq(seen.header, "trace");
        ck_assert(seen.header_null);
        fixture_close(&f);
    }
}
END_TEST

START_TEST(every_codec_arrives)
{
    static const char *const codecs[] = {"none", "gzip", "snappy", "lz4", "zstd"};
    for (size_t i = 0; i < 5; i++) {
        struct fixture f;
        fixture_open(&f, 1);
        stub_cluster_add_topic(f.cluster, "t", 1);
        set(&f, "compression", codecs[i]);
        set(&f, "batch.size", "20000");
        fixture_start(&f, true);
        send_numbers(&f, "t", 0, 20000);
        ck_assert_int_eq(brook_producer_flush(f.producer, WAIT_MS), 0);
        ck_assert_int_eq(f.stored, 20000);
        check_numbers(&f, "t", 0, 20000);
        fixture_close(&f);
    }
}
END_TEST

START_TEST(one_record_per_request_when_asked)
{
    struct fixture f;
    fixture_open(&f, 1);
    stub_cluster_add_topic(f.cluster, "t", 3);
    set(&f, "batch.size", "1");
    set(&f, "max.in.flight.requests.per.connection", "1000");
    set(&f, "max.in.flight.requests.per.partition", "1000");
    fixture_start(&f, true);
    for (int32_t p = 0; p < 3; p++)
        send_numbers(&f, "t", p, 500);
    ck_assert_int_eq(brook_producer_flush(f.producer, WAIT_MS), 0);
    ck_assert_int_eq(f.stored, 1500);
    ck_assert_uint_eq(stub_cluster_requests(f.cluster, BROOK__REQUEST__BODY_PRODUCE), 1500);
    ck_assert(f.offsets_in_order);
    for (int32_t p = 0; p < 3; p++)
        check_numbers(&f, "t", p, 500);
    fixture_close(&f);
}
END_TEST

START_TEST(requests_combine_the_partitions_of_a_broker)
{
    struct fixture f;
    fixture_open(&f, 1);
    stub_cluster_add_topic(f.cluster, "t", 50);
    set(&f, "linger.ms", "200");
    fixture_start(&f, true);
    for (int32_t p = 0; p < 50; p++)
        send_numbers(&f, "t", p, 10);
    ck_assert_int_eq(brook_producer_flush(f.producer, WAIT_MS), 0);
    ck_assert_int_eq(f.stored, 500);
    ck_assert_uint_le(stub_cluster_requests(f.cluster, BROOK__REQUEST__BODY_PRODUCE), 5);
    fixture_close(&f);
}
END_TEST

START_TEST(a_key_always_goes_to_kafkas_partition)
{
    struct fixture f;
    fixture_open(&f, 1);
    stub_cluster_add_topic(f.cluster, "t", 10);
    fixture_start(&f, true);
    /* murmur2("foobar") = -790332482, "21" = -973932308 (Kafka's UtilsTest) */
    send_text(&f, "t", -1, "foobar", "a");
    send_text(&f, "t", -1, "21", "b");
    brook_producer_flush(f.producer, WAIT_MS);
    send_text(&f, "t", -1, "foobar", "c");
    brook_producer_flush(f.producer, WAIT_MS);
    ck_assert_int_eq(stub_cluster_end_offset(f.cluster, "t", (-790332482 & 0x7fffffff) % 10), 2);
    ck_assert_int_eq(stub_cluster_end_offset(f.cluster, "t", (-973932308 & 0x7fffffff) % 10), 1);
    fixture_close(&f);
}
END_TEST

START_TEST(without_a_key_a_batch_stays_on_one_partition_and_the_next_moves_on)
{
    struct fixture f;
    fixture_open(&f, 1);
    stub_cluster_add_topic(f.cluster, "t", 8);
    set(&f, "batch.records.max", "10");
    fixture_start(&f, true);
    send_text(&f, "t", 0, NULL, "warm");
    brook_producer_flush(f.producer, WAIT_MS);
    for (int i = 0; i < 2000; i++)
        while (send_text(&f, "t", -1, NULL, "x") != 0)
            brook_producer_poll(f.producer, 1);
    brook_producer_flush(f.producer, WAIT_MS);
    int used = 0;
    int64_t all = 0;
    for (int32_t p = 0; p < 8; p++) {
        int64_t end = stub_cluster_end_offset(f.cluster, "t", p);
        used += end > 0;
        all += end;
    }
    ck_assert_int_eq(all, 2001);
    ck_assert_int_ge(used, 7);
    fixture_close(&f);
}
END_TEST

static int32_t third(void *arg, const struct brook_record *record, int32_t partitions_count)
{
    ck_assert_int_eq(partitions_count, 5);
    return record->key ? 3 : 99;
}

START_TEST(the_callers_partitioner_decides)
{
    struct fixture f;
    fixture_open(&f, 1);
    stub_cluster_add_topic(f.cluster, "t", 5);
    fixture_start(&f, true);
    brook_producer_set_partitioner(f.producer, third, NULL);
    send_text(&f, "t", 0, NULL, "warm");
    brook_producer_flush(f.producer, WAIT_MS);
    ck_assert_int_eq(send_text(&f, "t", -1, "k", "v"), 0);
    ck_assert_int_eq(send_text(&f, "t", -1, NULL, "v"), -BROOK_E_UNKNOWN_PARTITION);
    brook_producer_flush(f.producer, WAIT_MS);
    ck_assert_int_eq(stub_cluster_end_offset(f.cluster, "t", 3), 1);
    fixture_close(&f);
}
END_TEST

START_TEST(unacknowledged_records_are_reported_once_sent)
{
    struct fixture f;
    fixture_open(&f, 1);
    stub_cluster_add_topic(f.cluster, "t", 1);
    set(&f, "acks", "none");
    fixture_start(&f, true);
    send_numbers(&f, "t", 0, 5000);
    ck_assert_int_eq(brook_producer_flush(f.producer, WAIT_MS), 0);
    ck_assert_int_eq(f.stored, 5000);
    for (int i = 0; i < 500 && stub_cluster_end_offset(f.cluster, "t", 0) < 5000; i++)
        usleep(10000);
    check_numbers(&f, "t", 0, 5000);
    fixture_close(&f);
}
END_TEST

START_TEST(the_descriptor_is_readable_while_reports_wait)
{
    struct fixture f;
    fixture_open(&f, 1);
    stub_cluster_add_topic(f.cluster, "t", 1);
    fixture_start(&f, true);
    struct pollfd fd = {.fd = brook_producer_fd(f.producer), .events = POLLIN};
    ck_assert_int_eq(poll(&fd, 1, 0), 0);
    send_text(&f, "t", 0, NULL, "x");
    ck_assert_int_eq(poll(&fd, 1, WAIT_MS), 1);
    ck_assert_int_eq(brook_producer_poll(f.producer, 0), 1);
    ck_assert_int_eq(poll(&fd, 1, 0), 0);
    fixture_close(&f);
}
END_TEST

/* ---- bounds ----------------------------------------------------------------------------------------- */

static enum stub_verdict swallow_produce(void *arg, const struct stub_request *q)
{
    return q->request->body_case == BROOK__REQUEST__BODY_PRODUCE ? STUB_DONE : STUB_PASS;
}

START_TEST(a_full_buffer_refuses_and_takes_more_when_there_is_room)
{
    struct fixture f;
    fixture_open(&f, 1);
    stub_cluster_add_topic(f.cluster, "t", 1);
    stub_cluster_on_request(f.cluster, swallow_produce, NULL);
    set(&f, "buffer.memory", "65536");
    set(&f, "request.timeout.ms", "300");
    set(&f, "batch.size", "1000");
    fixture_start(&f, true);
    static char value[100];
    struct brook_record record = {.topic = "t", .partition = 0, .value = value, .value_bytes = sizeof value};
    int r = 0, accepted = 0;
    for (; accepted < 10000 && (r = brook_producer_send(f.producer, &record, 0, NULL)) == 0; accepted++)
        ;
    ck_assert_int_eq(r, -BROOK_E_QUEUE_FULL);
    ck_assert_int_lt(accepted, 700);
    ck_assert_int_gt(accepted, 200);
    stub_cluster_on_request(f.cluster, NULL, NULL);
    ck_assert_int_eq(brook_producer_flush(f.producer, WAIT_MS), 0);
    ck_assert_int_eq(f.stored, accepted);
    ck_assert_int_eq(brook_producer_send(f.producer, &record, 0, NULL), 0);
    fixture_close(&f);
}
END_TEST

static void *send_many(void *arg)
{
    struct fixture *f = arg;
    static char value[1000];
    struct brook_record record = {.topic = "t", .partition = 0, .value = value, .value_bytes = sizeof value};
    for (int i = 0; i < 2000; i++)
        ck_assert_int_eq(brook_producer_send(f->producer, &record, BROOK_SEND_WAIT, NULL), 0);
    return NULL;
}

START_TEST(many_threads_share_a_small_buffer_by_waiting)
{
    struct fixture f;
    pthread_t threads[4];
    fixture_open(&f, 1);
    stub_cluster_add_topic(f.cluster, "t", 1);
    set(&f, "buffer.memory", "100000");
    set(&f, "batch.size", "10000");
    fixture_start(&f, false);
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, send_many, &f);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    ck_assert_int_eq(brook_producer_flush(f.producer, WAIT_MS), 0);
    ck_assert_int_eq(stub_cluster_end_offset(f.cluster, "t", 0), 8000);
    fixture_close(&f);
}
END_TEST

/* ---- waking up -------------------------------------------------------------------------------------- */

static int64_t switches(void)
{
    char name[64];
    int64_t sum = 0;
    snprintf(name, sizeof name, "/proc/%d/task", getpid());
    char command[128];
    snprintf(command, sizeof command, "cat %s/*/status 2>&1", name);
    FILE *pipe = popen(command, "r");
    char line[256];
    while (fgets(line, sizeof line, pipe)) {
        long long n;
        if (sscanf(line, "voluntary_ctxt_switches: %lld", &n) == 1)
            sum += n;
    }
    pclose(pipe);
    return sum;
}

START_TEST(an_idle_producer_sleeps)
{
    static const char *const lingers[] = {"0", "1", "900000"};
    for (int i = 0; i < 3; i++) {
        struct fixture f;
        fixture_open(&f, 1);
        stub_cluster_add_topic(f.cluster, "t", 1);
        set(&f, "linger.ms", lingers[i]);
        set(&f, "batch.size", "1");
        fixture_start(&f, true);
        send_numbers(&f, "t", 0, 100);
        ck_assert_int_eq(brook_producer_flush(f.producer, WAIT_MS), 0);
        int64_t cpu = clock_cpu_ns(), before = switches();
        usleep(500000);
        ck_assert_int_lt(switches() - before, 60);
        ck_assert_int_lt(clock_cpu_ns() - cpu, 100000000);
        fixture_close(&f);
    }
}
END_TEST

START_TEST(a_producer_without_a_broker_does_not_spin)
{
    struct fixture f;
    fixture_open(&f, 1);
    set(&f, "bootstrap.servers", "127.0.0.1:1,localhost:1");
    set(&f, "reconnect.backoff.ms", "1");
    set(&f, "reconnect.backoff.max.ms", "50");
    set(&f, "linger.ms", "0");
    set(&f, "delivery.timeout.ms", "700");
    fixture_start(&f, true);
    send_text(&f, "t", 0, NULL, "x");
    int64_t cpu = clock_cpu_ns(), before = switches();
    usleep(500000);
    ck_assert_int_lt(switches() - before, 250);
    ck_assert_int_lt(clock_cpu_ns() - cpu, 100000000);
    ck_assert_int_eq(brook_producer_flush(f.producer, WAIT_MS), 0);
    ck_assert_int_eq(f.not_stored, 1);
    ck_assert_int_eq(f.last_code, BROOK_E_TIMED_OUT);
    fixture_close(&f);
}
END_TEST

/* Numeric settings of producers, at both ends of their ranges. */
struct extreme {
    const char *key, *least, *most;
};
static const struct extreme extremes[] = {{"batch.size", "1", "1073741824"},
                                          {"batch.records.max", "1", "1000000"},
                                          {"linger.ms", "0", "900000"},
                                          {"buffer.memory", "65536", "1099511627776"},
                                          {"delivery.timeout.ms", "1", "31622400000"},
                                          {"retries", "0", "2147483647"},
                                          {"retry.backoff.ms", "1", "300000"},
                                          {"retry.backoff.max.ms", "1", "300000"},
                                          {"max.in.flight.requests.per.connection", "1", "100000"},
                                          {"max.in.flight.requests.per.partition", "0", "100000"},
                                          {"max.request.size", "1024", "1073741824"},
                                          {"metadata.max.age.ms", "100", "31622400000"},
                                          {"request.timeout.ms", "1", "3600000"},
                                          {"connect.timeout.ms", "1", "3600000"},
                                          {"reconnect.backoff.ms", "1", "3600000"},
                                          {"reconnect.backoff.max.ms", "1", "3600000"},
                                          {"connections.max.idle.ms", "0", "31622400000"},
                                          {"receive.frame.max.bytes", "4096", "4294967295"}};

static void check_asleep(const struct extreme *e, const char *value)
{
    int64_t cpu = clock_cpu_ns(), before = switches();
    usleep(100000);
    ck_assert_msg(switches() - before < 120 && clock_cpu_ns() - cpu < 30000000, "%s = %s does not sleep",
                  e->key, value);
}

START_TEST(every_setting_works_and_sleeps_at_both_ends_of_its_range)
{
    for (size_t i = 0; i < sizeof extremes / sizeof extremes[0]; i++)
        for (int end = 0; end < 2; end++) {
            const char *value = end ? extremes[i].most : extremes[i].least;
            struct fixture f;
            fixture_open(&f, 1);
            stub_cluster_add_topic(f.cluster, "t", 1);
            set(&f, "linger.ms", "1");
            set(&f, extremes[i].key, value);
            fixture_start(&f, true);
            send_numbers(&f, "t", 0, 20);
            ck_assert_msg(brook_producer_flush(f.producer, WAIT_MS) == 0, "%s = %s", extremes[i].key, value);
            ck_assert_int_eq(f.stored + f.not_stored + f.maybe, 20);
            check_asleep(&extremes[i], value);
            stub_cluster_stop_broker(f.cluster, 1);
            send_numbers(&f, "t", 0, 3);
            brook_producer_poll(f.producer, 20);
            check_asleep(&extremes[i], value);
            brook_producer_close(f.producer, 0);
            f.producer = NULL;
            ck_assert_int_eq(f.stored + f.not_stored + f.maybe, 23);
            fixture_close(&f);
        }
}
END_TEST

/* ---- re-entry --------------------------------------------------------------------------------------- */

struct reentry {
    struct fixture f;
    int left;
    bool close;
};
static void on_report_call_everything(void *arg, const struct brook_report *report)
{
    struct reentry *r = arg;
    on_report(&r->f, report);
    brook_producer *p = r->f.producer;
    if (!p || r->left-- <= 0)
        return;
    struct brook_record record = {.topic = "t", .partition = 0, .value = "again", .value_bytes = 5};
    int sent = brook_producer_send(p, &record, BROOK_SEND_WAIT, NULL);
    ck_assert(sent == 0 || (r->close && sent == -BROOK_E_CLOSED));
    brook_producer_poll(p, 0);
    if (r->left % 7 == 0)
        ck_assert_int_eq(brook_producer_flush(p, WAIT_MS), 0);
    if (r->left % 11 == 0)
        brook_producer_purge(p);
    brook_producer_fd(p);
    brook_producer_failures(p);
    free(brook_producer_statistics(p));
    if (r->close && r->left == 20) {
        brook_producer_close(p, WAIT_MS);
        r->f.producer = NULL;
    }
}

START_TEST(every_function_may_be_called_from_a_report)
{
    for (int closing = 0; closing < 2; closing++) {
        struct reentry r = {.left = 60, .close = closing};
        fixture_open(&r.f, 1);
        r.left = 60;
        stub_cluster_add_topic(r.f.cluster, "t", 1);
        fixture_start(&r.f, false);
        brook_producer_on_report(r.f.producer, on_report_call_everything, &r);
        brook_producer *p = r.f.producer;
        send_numbers(&r.f, "t", 0, 10);
        for (int i = 0; i < 1000 && r.f.producer && r.left > 0; i++)
            brook_producer_poll(p, 100);
        ck_assert_int_le(r.left, closing ? 20 : 0);
        fixture_close(&r.f);
    }
}
END_TEST

START_TEST(a_forked_child_may_free)
{
    struct fixture f;
    fixture_open(&f, 1);
    stub_cluster_add_topic(f.cluster, "t", 1);
    fixture_start(&f, true);
    send_numbers(&f, "t", 0, 100);
    pid_t child = fork();
    if (child == 0) {
        brook_producer_close(f.producer, 1000);
        _exit(0);
    }
    int status = 1;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(brook_producer_flush(f.producer, WAIT_MS), 0);
    ck_assert_int_eq(f.stored, 100);
    fixture_close(&f);
}
END_TEST

START_TEST(statistics_are_json_that_adds_up)
{
    struct fixture f;
    fixture_open(&f, 1);
    stub_cluster_add_topic(f.cluster, "t", 1);
    fixture_start(&f, true);
    send_numbers(&f, "t", 0, 100);
    brook_producer_flush(f.producer, WAIT_MS);
    char *text = brook_producer_statistics(f.producer);
    json_t *json = json_loads(text, 0, NULL);
    ck_assert_ptr_nonnull(json);
    json_t *records = json_object_get(json, "records");
    ck_assert_int_eq(json_integer_value(json_object_get(records, "accepted")), 100);
    ck_assert_int_eq(json_integer_value(json_object_get(records, "stored")), 100);
    ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(json, "queue"), "records")), 0);
    ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(json, "queue"), "bytes")), 0);
    json_decref(json);
    free(text);
    fixture_close(&f);
}
END_TEST

SUITE_MAIN("client/producer", SUITE_TEST(records_are_stored_in_order_and_reported_once_with_their_offsets),
           SUITE_TEST(without_a_callback_failures_are_counted),
           SUITE_TEST(a_topic_that_is_not_there_fails_after_two_answers),
           SUITE_TEST(what_can_not_be_sent_is_refused_at_once),
           SUITE_TEST(keys_headers_nulls_and_timestamps_arrive_as_given), SUITE_TEST(every_codec_arrives),
           SUITE_TEST(one_record_per_request_when_asked),
           SUITE_TEST(requests_combine_the_partitions_of_a_broker),
           SUITE_TEST(a_key_always_goes_to_kafkas_partition),
           SUITE_TEST(without_a_key_a_batch_stays_on_one_partition_and_the_next_moves_on),
           SUITE_TEST(the_callers_partitioner_decides),
           SUITE_TEST(unacknowledged_records_are_reported_once_sent),
           SUITE_TEST(the_descriptor_is_readable_while_reports_wait),
           SUITE_TEST(a_full_buffer_refuses_and_takes_more_when_there_is_room),
           SUITE_TEST(many_threads_share_a_small_buffer_by_waiting), SUITE_TEST(an_idle_producer_sleeps),
           SUITE_TEST(a_producer_without_a_broker_does_not_spin),
           SUITE_TEST_SLOW(every_setting_works_and_sleeps_at_both_ends_of_its_range, 60),
           SUITE_TEST(every_function_may_be_called_from_a_report), SUITE_TEST(a_forked_child_may_free),
           SUITE_TEST(statistics_are_json_that_adds_up))
