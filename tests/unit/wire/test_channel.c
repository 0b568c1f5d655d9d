#include "proto/base/clock.h"
#include "proto/base/err.h"
#include "proto/base/pool.h"
#include "proto/wire/channel.h"
#include "proto/wire/frame.h"
#include "tests/support/stub_broker.h"
#include "tests/support/suite.h"
#include "tests/support/tcp_proxy.h"

#include <arpa/inet.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define POOL_BYTES ((size_t)256 << 20)
#define WAIT_MS 20000

struct fixture {
    struct event_base *base;
    struct pool *pool;
    struct stub_cluster *cluster;
    struct channel *channel;
    int ready, closed, replies;
    struct brook_error why;
    int errs[4096];      /* of replies, in the order they came */
    uint8_t marks[4096]; /* what they were about: args are (fixture, mark) pairs */
    bool free_in_callback;
    bool send_in_callback;
};
struct mark {
    struct fixture *f;
    uint8_t number;
};

static void on_ready(void *arg, const Brook__HelloResponse *hello)
{
    struct fixture *f = arg;
    f->ready++;
    ck_assert_int_eq(hello->broker_id, 1);
}

static void on_closed(void *arg, const struct brook_error *why)
{
    struct fixture *f = arg;
    f->closed++;
    f->why = *why;
}

static void fixture_open(struct fixture *f, int connect_timeout_ms)
{
    memset(f, 0, sizeof *f);
    f->base = event_base_new();
    ck_assert_int_eq(pool_new(POOL_BYTES, POOL_BYTES, &f->pool), 0);
    f->cluster = stub_cluster_new(1);
    struct channel_settings settings = {.base = f->base,
                                        .pool = f->pool,
                                        .client_id = "test",
                                        .software = "test",
                                        .frame_bytes_max = FRAME_BYTES_MAX_DEFAULT,
                                        .connect_timeout_ms = connect_timeout_ms};
    struct channel_events events = {.ready = on_ready, .closed = on_closed, .arg = f};
    ck_assert_int_eq(channel_new(&settings, &events, &f->channel), 0);
}

static void connect_port(struct fixture *f, int port)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)port)};
    ck_assert_int_eq(channel_connect(f->channel, (struct sockaddr *)&to, sizeof to), 0);
}

static void fixture_connect(struct fixture *f)
{
    connect_port(f, stub_cluster_port(f->cluster, 1));
}

static void fixture_close(struct fixture *f)
{
    channel_free(f->channel);
    stub_cluster_free(f->cluster);
    event_base_free(f->base);
    ck_assert_uint_eq(pool_bytes_in_use(f->pool), 0);
    pool_unref(f->pool);
}

static void wait_for(struct fixture *f, const int *counter, int wanted)
{
    struct timeval tick = {.tv_usec = 5000};
    int64_t until = clock_boot_ms() + WAIT_MS;
    while (*counter < wanted) {
        ck_assert_msg(clock_boot_ms() < until, "waited in vain: %d of %d", *counter, wanted);
        event_base_loopexit(f->base, &tick);
        event_base_loop(f->base, EVLOOP_ONCE);
    }
}

static int send_metadata(struct fixture *f, int deadline_ms, channel_callback *callback, void *arg)
{
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__MetadataRequest metadata = BROOK__METADATA_REQUEST__INIT;
    request.body_case = BROOK__REQUEST__BODY_METADATA;
    request.metadata = &metadata;
    return channel_send(f->channel, &request, NULL, 0, deadline_ms, callback, arg);
}

static void on_reply(void *arg, const struct channel_reply *reply)
{
    struct mark *mark = arg;
    struct fixture *f = mark->f;
    f->errs[f->replies] = reply->err;
    f->marks[f->replies] = mark->number;
    f->replies++;
    if (f->send_in_callback && f->replies < 100)
        ck_assert_int_eq(send_metadata(f, 1000, on_reply, mark), reply->err == 0 ? 0 : -BROOK_E_DISCONNECTED);
    if (f->free_in_callback) {
        channel_free(f->channel);
        f->channel = NULL;
        f->free_in_callback = false;
    }
}

START_TEST(requests_queued_while_connecting_are_answered)
{
    struct fixture f;
    fixture_open(&f, 2000);
    ck_assert_int_eq(send_metadata(&f, 1000, on_reply, NULL), -BROOK_E_DISCONNECTED);
    fixture_connect(&f);
    struct mark marks[100];
    for (uint8_t i = 0; i < 100; i++) {
        marks[i] = (struct mark){&f, i};
        ck_assert_int_eq(send_metadata(&f, 1000, on_reply, &marks[i]), 0);
    }
    ck_assert_uint_eq(channel_requests_in_flight(f.channel), 100);
    wait_for(&f, &f.replies, 100);
    for (int i = 0; i < 100; i++) {
        ck_assert_int_eq(f.errs[i], 0);
        ck_assert_int_eq(f.marks[i], i);
    }
    ck_assert_int_eq(f.ready, 1);
    ck_assert_uint_eq(channel_requests_in_flight(f.channel), 0);
    ck_assert_uint_eq(channel_bytes_queued(f.channel), 0);
    fixture_close(&f);
}
END_TEST

/* The first metadata request is answered late, and out of order. */
static enum stub_verdict late_first(void *arg, const struct stub_request *q)
{
    if (q->request->body_case != BROOK__REQUEST__BODY_METADATA || q->number != 0)
        return STUB_PASS;
    stub_reply_default(q, *(int *)arg);
    return STUB_DONE;
}

START_TEST(a_late_reply_is_not_taken_for_another_requests)
{
    struct fixture f;
    int delay_ms = 300;
    fixture_open(&f, 5000);
    stub_cluster_on_request(f.cluster, late_first, &delay_ms);
    fixture_connect(&f);
    wait_for(&f, &f.ready, 1);
    struct mark one = {&f, 1}, two = {&f, 2};
    send_metadata(&f, 50, on_reply, &one);
    wait_for(&f, &f.replies, 1);
    ck_assert_int_eq(f.errs[0], -BROOK_E_TIMED_OUT);
    send_metadata(&f, 3000, on_reply, &two);
    wait_for(&f, &f.replies, 2);
    ck_assert_int_eq(f.errs[1], 0);
    ck_assert_int_eq(f.marks[1], 2);
    /* The late one arrives and is dropped; the connection lives on. */
    int64_t until = clock_boot_ms() + 500;
    struct timeval tick = {.tv_usec = 20000};
    while (clock_boot_ms() < until) {
        event_base_loopexit(f.base, &tick);
        event_base_loop(f.base, EVLOOP_ONCE);
    }
    send_metadata(&f, 3000, on_reply, &one);
    wait_for(&f, &f.replies, 3);
    ck_assert_int_eq(f.errs[2], 0);
    ck_assert_int_eq(f.closed, 0);
    fixture_close(&f);
}
END_TEST

START_TEST(replies_may_overtake_each_other)
{
    struct fixture f;
    int delay_ms = 100;
    fixture_open(&f, 5000);
    stub_cluster_on_request(f.cluster, late_first, &delay_ms);
    fixture_connect(&f);
    struct mark one = {&f, 1}, two = {&f, 2};
    send_metadata(&f, 3000, on_reply, &one);
    send_metadata(&f, 3000, on_reply, &two);
    wait_for(&f, &f.replies, 2);
    ck_assert_int_eq(f.marks[0], 2);
    ck_assert_int_eq(f.marks[1], 1);
    ck_assert_int_eq(f.errs[0] | f.errs[1], 0);
    fixture_close(&f);
}
END_TEST

/* ---- what a broken peer does ------------------------------------------------------------------------ */

static enum stub_verdict wrong_id(void *arg, const struct stub_request *q)
{
    if (q->request->body_case != BROOK__REQUEST__BODY_METADATA)
        return STUB_PASS;
    Brook__Request *request = (Brook__Request *)(uintptr_t)q->request;
    request->correlation_id = *(uint64_t *)arg;
    return STUB_PASS;
}

START_TEST(an_unknown_correlation_id_closes_the_connection)
{
    static const uint64_t ids[] = {0, 1, 12345678, UINT64_MAX};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        struct fixture f;
        uint64_t id = ids[i];
        fixture_open(&f, 5000);
        stub_cluster_on_request(f.cluster, wrong_id, &id);
        fixture_connect(&f);
        struct mark one = {&f, 1};
        send_metadata(&f, 3000, on_reply, &one);
        wait_for(&f, &f.closed, 1);
        ck_assert_int_eq(f.replies, 1);
        ck_assert_int_eq(f.errs[0], -BROOK_E_DISCONNECTED);
        ck_assert_int_eq(f.why.code, BROOK_E_BAD_FRAME);
        ck_assert_int_eq(channel_get_state(f.channel), CHANNEL_IDLE);
        fixture_close(&f);
    }
}
END_TEST

struct cut {
    size_t keep; /* bytes of the reply that are sent */
    bool one_by_one;
    size_t whole; /* out: bytes of the reply */
};
static enum stub_verdict cut_reply(void *arg, const struct stub_request *q)
{
    struct cut *cut = arg;
    if (q->request->body_case == BROOK__REQUEST__BODY_HELLO)
        return STUB_PASS;
    uint8_t *frame = stub_render_default(q, &cut->whole);
    size_t bytes = cut->keep < cut->whole ? cut->keep : cut->whole;
    for (size_t i = 0; cut->one_by_one && i < bytes; i++) {
        stub_send_raw(q->connection, frame + i, 1);
        usleep(200);
    }
    if (!cut->one_by_one)
        stub_send_raw(q->connection, frame, bytes);
    if (bytes < cut->whole)
        stub_close(q->connection);
    free(frame);
    return STUB_DONE;
}

START_TEST(a_disconnect_at_every_byte_of_a_reply_is_one_failure)
{
    struct cut cut = {.keep = 0, .whole = 1};
    for (; cut.keep < cut.whole; cut.keep++) {
        struct fixture f;
        fixture_open(&f, 5000);
        stub_cluster_add_topic(f.cluster, "t", 2);
        stub_cluster_on_request(f.cluster, cut_reply, &cut);
        fixture_connect(&f);
        struct mark one = {&f, 1};
        send_metadata(&f, 3000, on_reply, &one);
        wait_for(&f, &f.closed, 1);
        ck_assert_int_eq(f.replies, 1);
        ck_assert_int_eq(f.errs[0], -BROOK_E_DISCONNECTED);
        fixture_close(&f);
    }
    ck_assert_uint_gt(cut.whole, 20);
}
END_TEST

START_TEST(a_reply_byte_by_byte_is_put_together)
{
    struct fixture f;
    struct cut cut = {.keep = SIZE_MAX, .one_by_one = true};
    fixture_open(&f, 5000);
    stub_cluster_on_request(f.cluster, cut_reply, &cut);
    fixture_connect(&f);
    struct mark one = {&f, 1};
    send_metadata(&f, 3000, on_reply, &one);
    wait_for(&f, &f.replies, 1);
    ck_assert_int_eq(f.errs[0], 0);
    fixture_close(&f);
}
END_TEST

struct raw {
    const void *data;
    size_t bytes;
};
static enum stub_verdict raw_hello(void *arg, const struct stub_request *q)
{
    const struct raw *raw = arg;
    stub_send_raw(q->connection, raw->data, raw->bytes);
    return STUB_DONE;
}

START_TEST(strangers_are_named_for_what_they_are)
{
    static const struct {
        struct raw raw;
        int code;
        const char *word;
    } cases[] = {{{"HTTP/1.1 400 Bad Request\r\n", 26}, BROOK_E_NOT_BROOK, "HTTP"},
                 {{"\x15\x03\x01\x00\x02\x02\x32", 7}, BROOK_E_NOT_BROOK, "TLS"},
                 {{"SSH-2.0-OpenSSH_9.2\r\n", 21}, BROOK_E_NOT_BROOK, "does not speak"},
                 {{"\0\0\0\x08\0\0\0\x04zzzz", 12}, BROOK_E_BAD_ENVELOPE, "no sense"},
                 {{"\0\0\0\x08\0\0\0\x14zzzz", 12}, BROOK_E_BAD_FRAME, "does not fit"},
                 {{"\0\0\0\x06\0\0\0\x02\x08\x63", 10}, BROOK_E_BAD_FRAME, "Hello"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fixture f;
        struct raw raw = cases[i].raw;
        fixture_open(&f, 5000);
        stub_cluster_on_request(f.cluster, raw_hello, &raw);
        fixture_connect(&f);
        struct mark one = {&f, 1};
        send_metadata(&f, 3000, on_reply, &one);
        wait_for(&f, &f.closed, 1);
        ck_assert_int_eq(f.why.code, cases[i].code);
        ck_assert_msg(strstr(f.why.text, cases[i].word) != NULL, "%s", f.why.text);
        ck_assert_int_eq(f.ready, 0);
        ck_assert_int_eq(f.errs[0], -BROOK_E_CONNECT_FAILED);
        fixture_close(&f);
    }
}
END_TEST

static enum stub_verdict refuse_version(void *arg, const struct stub_request *q)
{
    stub_reply_error(q, BROOK_E_UNSUPPORTED_VERSION, "version 7 is the least");
    return STUB_DONE;
}

START_TEST(a_refused_hello_says_why)
{
    struct fixture f;
    fixture_open(&f, 5000);
    stub_cluster_on_request(f.cluster, refuse_version, NULL);
    fixture_connect(&f);
    wait_for(&f, &f.closed, 1);
    ck_assert_int_eq(f.why.code, BROOK_E_UNSUPPORTED_VERSION);
    ck_assert_msg(strstr(f.why.text, "version 7 is the least") != NULL, "%s", f.why.text);
    fixture_close(&f);
}
END_TEST

static enum stub_verdict silent(void *arg, const struct stub_request *q)
{
    const bool *hello_too = arg;
    return q->request->body_case == BROOK__REQUEST__BODY_HELLO && !*hello_too ? STUB_PASS : STUB_DONE;
}

START_TEST(a_peer_that_never_says_hello_is_given_up_in_time)
{
    struct fixture f;
    bool hello_too = true;
    fixture_open(&f, 100);
    stub_cluster_on_request(f.cluster, silent, &hello_too);
    fixture_connect(&f);
    struct mark one = {&f, 1};
    send_metadata(&f, 60000, on_reply, &one);
    wait_for(&f, &f.closed, 1);
    ck_assert_int_eq(f.why.code, BROOK_E_CONNECT_FAILED);
    ck_assert_int_eq(f.errs[0], -BROOK_E_CONNECT_FAILED);
    fixture_close(&f);
}
END_TEST

START_TEST(a_request_not_sent_by_its_deadline_is_taken_back)
{
    struct fixture f;
    bool hello_too = true;
    fixture_open(&f, 400);
    stub_cluster_on_request(f.cluster, silent, &hello_too);
    fixture_connect(&f);
    struct mark one = {&f, 1}, two = {&f, 2};
    send_metadata(&f, 30, on_reply, &one);
    send_metadata(&f, 60000, on_reply, &two);
    wait_for(&f, &f.replies, 1);
    ck_assert_int_eq(f.errs[0], -BROOK_E_REQUEST_EXPIRED);
    ck_assert_int_eq(f.closed, 0);
    wait_for(&f, &f.closed, 1);
    ck_assert_int_eq(f.errs[1], -BROOK_E_CONNECT_FAILED);
    fixture_close(&f);
}
END_TEST

START_TEST(a_peer_that_falls_silent_costs_the_connection)
{
    struct fixture f;
    bool hello_too = false;
    fixture_open(&f, 100);
    stub_cluster_on_request(f.cluster, silent, &hello_too);
    fixture_connect(&f);
    struct mark one = {&f, 1}, two = {&f, 2};
    send_metadata(&f, 150, on_reply, &one);
    send_metadata(&f, 60000, on_reply, &two);
    wait_for(&f, &f.closed, 1);
    ck_assert_int_eq(f.errs[0], -BROOK_E_TIMED_OUT);
    ck_assert_int_eq(f.errs[1], -BROOK_E_DISCONNECTED);
    fixture_close(&f);
}
END_TEST

START_TEST(a_path_that_swallows_is_given_up_in_time)
{
    static const enum tcp_proxy_mode modes[] = {TCP_PROXY_SWALLOW_UP, TCP_PROXY_SWALLOW_DOWN,
                                                TCP_PROXY_SWALLOW, TCP_PROXY_STALL};
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++)
        for (int from_the_start = 0; from_the_start < 2; from_the_start++) {
            struct fixture f;
            fixture_open(&f, 200);
            struct tcp_proxy *proxy = tcp_proxy_start(stub_cluster_port(f.cluster, 1));
            if (from_the_start)
                tcp_proxy_set(proxy, modes[i]);
            connect_port(&f, tcp_proxy_port(proxy));
            if (!from_the_start) {
                wait_for(&f, &f.ready, 1);
                tcp_proxy_set(proxy, modes[i]);
            }
            struct mark one = {&f, 1}, two = {&f, 2};
            send_metadata(&f, 250, on_reply, &one);
            send_metadata(&f, 60000, on_reply, &two);
            wait_for(&f, &f.closed, 1);
            ck_assert_int_eq(f.replies, 2);
            ck_assert_int_eq(f.errs[0], from_the_start ? -BROOK_E_CONNECT_FAILED : -BROOK_E_TIMED_OUT);
            ck_assert_int_eq(f.errs[1], from_the_start ? -BROOK_E_CONNECT_FAILED : -BROOK_E_DISCONNECTED);
            tcp_proxy_stop(proxy);
            fixture_close(&f);
        }
}
END_TEST

START_TEST(a_stall_in_mid_frame_ends_with_the_deadline)
{
    struct fixture f;
    fixture_open(&f, 200);
    stub_cluster_add_topic(f.cluster, "t", 50);
    struct tcp_proxy *proxy = tcp_proxy_start(stub_cluster_port(f.cluster, 1));
    connect_port(&f, tcp_proxy_port(proxy));
    wait_for(&f, &f.ready, 1);
    tcp_proxy_cut_after(proxy, TCP_PROXY_DOWN, 20, 1);
    struct mark one = {&f, 1};
    send_metadata(&f, 300, on_reply, &one);
    wait_for(&f, &f.closed, 1);
    ck_assert_int_eq(f.errs[0], -BROOK_E_TIMED_OUT);
    tcp_proxy_stop(proxy);
    fixture_close(&f);
}
END_TEST

START_TEST(a_peer_that_takes_no_data_costs_the_connection)
{
    struct fixture f;
    size_t bytes = (size_t)64 << 20;
    uint8_t *records = calloc(bytes, 1);
    struct iovec iov = {records, bytes};
    fixture_open(&f, 60000);
    struct tcp_proxy *proxy = tcp_proxy_start(stub_cluster_port(f.cluster, 1));
    connect_port(&f, tcp_proxy_port(proxy));
    wait_for(&f, &f.ready, 1);
    tcp_proxy_set(proxy, TCP_PROXY_STALL);
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__ProduceRequest produce = BROOK__PRODUCE_REQUEST__INIT;
    request.body_case = BROOK__REQUEST__BODY_PRODUCE;
    request.produce = &produce;
    struct mark one = {&f, 1}, two = {&f, 2}, three = {&f, 3};
    channel_send(f.channel, &request, &iov, 1, 300, on_reply, &one);
    send_metadata(&f, 100, on_reply, &two);
    send_metadata(&f, 60000, on_reply, &three);
    wait_for(&f, &f.closed, 1);
    /* Behind the large one nothing had left: certain. */
    ck_assert_int_eq(f.marks[0], 2);
    ck_assert_int_eq(f.errs[0], -BROOK_E_REQUEST_EXPIRED);
    ck_assert_int_eq(f.errs[1], -BROOK_E_TIMED_OUT);
    ck_assert_int_eq(f.errs[2], -BROOK_E_CONNECT_FAILED);
    tcp_proxy_stop(proxy);
    fixture_close(&f);
    free(records);
}
END_TEST

START_TEST(a_refused_connection_is_an_event)
{
    struct fixture f;
    fixture_open(&f, 2000);
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(1)};
    ck_assert_int_eq(channel_connect(f.channel, (struct sockaddr *)&to, sizeof to), 0);
    ck_assert_int_eq(channel_connect(f.channel, (struct sockaddr *)&to, sizeof to), -BROOK_E_INVALID);
    wait_for(&f, &f.closed, 1);
    ck_assert_int_eq(f.why.code, BROOK_E_CONNECT_FAILED);
    /* And again, after the event. */
    fixture_connect(&f);
    wait_for(&f, &f.ready, 1);
    fixture_close(&f);
}
END_TEST

/* ---- records ---------------------------------------------------------------------------------------- */

static uint8_t pattern(size_t i)
{
    return (uint8_t)(i * 7 + i / 251);
}

static enum stub_verdict send_records(void *arg, const struct stub_request *q)
{
    const size_t *bytes = arg;
    if (q->request->body_case != BROOK__REQUEST__BODY_PULL)
        return STUB_PASS;
    uint8_t *records = malloc(*bytes + 1);
    for (size_t i = 0; i < *bytes; i++)
        records[i] = pattern(i);
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__PullResponse pull = BROOK__PULL_RESPONSE__INIT;
    response.body_case = BROOK__RESPONSE__BODY_PULL;
    response.pull = &pull;
    stub_reply(q, &response, records, *bytes, 0);
    free(records);
    return STUB_DONE;
}

struct pulled {
    int count;
    size_t bytes;
    struct slab *slab;
};
static void on_pulled(void *arg, const struct channel_reply *reply)
{
    struct pulled *pulled = arg;
    ck_assert_int_eq(reply->err, 0);
    ck_assert_uint_eq(reply->records_bytes, pulled->bytes);
    bool right = true;
    for (size_t i = 0; i < reply->records_bytes; i++)
        right &= reply->records[i] == pattern(i);
    ck_assert(right);
    ck_assert_int_eq(reply->slab == NULL, reply->records_bytes == 0);
    slab_unref(pulled->slab);
    pulled->slab = reply->slab ? slab_ref(reply->slab) : NULL;
    pulled->count++;
}

static void pull(struct fixture *f, struct pulled *pulled)
{
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__PullRequest body = BROOK__PULL_REQUEST__INIT;
    request.body_case = BROOK__REQUEST__BODY_PULL;
    request.pull = &body;
    ck_assert_int_eq(channel_send(f->channel, &request, NULL, 0, 5000, on_pulled, pulled), 0);
}

START_TEST(records_of_any_size_arrive_in_slabs_that_can_be_kept)
{
    static const size_t sizes[] = {0, 1, 100, 16384, 65000, 65536, 100000, 300000, 5000000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct fixture f;
        size_t bytes = sizes[i];
        struct pulled pulled = {.bytes = bytes};
        fixture_open(&f, 2000);
        stub_cluster_on_request(f.cluster, send_records, &bytes);
        fixture_connect(&f);
        for (int j = 0; j < 3; j++)
            pull(&f, &pulled);
        wait_for(&f, &pulled.count, 3);
        slab_unref(pulled.slab);
        fixture_close(&f);
    }
}
END_TEST

struct produced {
    size_t bytes;
    int good;
};
static enum stub_verdict check_records(void *arg, const struct stub_request *q)
{
    struct produced *expected = arg;
    if (q->request->body_case != BROOK__REQUEST__BODY_PRODUCE)
        return STUB_PASS;
    bool good = q->records_bytes == expected->bytes;
    for (size_t i = 0; good && i < q->records_bytes; i++)
        good = q->records[i] == pattern(i);
    if (!good) {
        stub_close(q->connection);
        return STUB_DONE;
    }
    if (q->request->produce->acks != BROOK__ACKS__ACKS_NONE) {
        Brook__Response response = BROOK__RESPONSE__INIT;
        stub_reply(q, &response, NULL, 0, 0);
    }
    return STUB_DONE;
}

static void on_sent(void *arg, int err)
{
    int *count = arg;
    ck_assert_int_eq(err, 0);
    (*count)++;
}

START_TEST(borrowed_records_leave_whole_behind_their_envelope)
{
    static const size_t sizes[] = {1, 2048, 2049, 100000, 20000000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct fixture f;
        struct produced expected = {.bytes = sizes[i]};
        int sent = 0;
        uint8_t *records = malloc(sizes[i]);
        for (size_t j = 0; j < sizes[i]; j++)
            records[j] = pattern(j);
        struct iovec iov[] = {{records, sizes[i] / 3}, {records + sizes[i] / 3, sizes[i] - sizes[i] / 3}};
        fixture_open(&f, 2000);
        stub_cluster_on_request(f.cluster, check_records, &expected);
        fixture_connect(&f);
        Brook__Request request = BROOK__REQUEST__INIT;
        Brook__ProduceRequest produce = BROOK__PRODUCE_REQUEST__INIT;
        request.body_case = BROOK__REQUEST__BODY_PRODUCE;
        request.produce = &produce;
        struct mark one = {&f, 1};
        produce.has_acks = 1;
        for (int j = 0; j < 3; j++) {
            produce.acks = BROOK__ACKS__ACKS_NONE;
            ck_assert_int_eq(channel_send_oneway(f.channel, &request, iov, 2, on_sent, &sent), 0);
            produce.acks = BROOK__ACKS__ACKS_ALL;
            ck_assert_int_eq(channel_send(f.channel, &request, iov, 2, WAIT_MS, on_reply, &one), 0);
        }
        wait_for(&f, &f.replies, 3);
        ck_assert_int_eq(sent, 3);
        ck_assert_int_eq(f.errs[0] | f.errs[1] | f.errs[2], 0);
        fixture_close(&f);
        free(records);
    }
}
END_TEST

/* ---- re-entry --------------------------------------------------------------------------------------- */

START_TEST(a_channel_may_be_freed_and_used_in_its_callbacks)
{
    struct fixture f;
    fixture_open(&f, 2000);
    fixture_connect(&f);
    struct mark one = {&f, 1};
    f.send_in_callback = true;
    send_metadata(&f, 1000, on_reply, &one);
    wait_for(&f, &f.replies, 100);
    f.send_in_callback = false;
    f.free_in_callback = true;
    send_metadata(&f, 1000, on_reply, &one);
    send_metadata(&f, 1000, on_reply, &one);
    wait_for(&f, &f.replies, 102);
    ck_assert_int_eq(f.errs[100], 0);
    ck_assert_int_eq(f.errs[101], -BROOK_E_CLOSED);
    ck_assert_int_eq(f.closed, 0);
    fixture_close(&f);
}
END_TEST

START_TEST(a_channel_freed_idle_or_connecting_ends_its_requests)
{
    struct fixture f;
    fixture_open(&f, 2000);
    fixture_connect(&f);
    struct mark one = {&f, 1};
    send_metadata(&f, 1000, on_reply, &one);
    channel_free(f.channel);
    f.channel = NULL;
    ck_assert_int_eq(f.replies, 1);
    ck_assert_int_eq(f.errs[0], -BROOK_E_CLOSED);
    fixture_close(&f);
}
END_TEST

START_TEST(many_requests_share_system_calls)
{
    struct fixture f;
    fixture_open(&f, 2000);
    fixture_connect(&f);
    wait_for(&f, &f.ready, 1);
    static struct mark marks[2000];
    for (int i = 0; i < 2000; i++) {
        marks[i] = (struct mark){&f, (uint8_t)i};
        ck_assert_int_eq(send_metadata(&f, 5000, on_reply, &marks[i]), 0);
    }
    size_t queued = channel_bytes_queued(f.channel);
    ck_assert_uint_gt(queued, 2000 * 12);
    event_base_loop(f.base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
    ck_assert_uint_eq(channel_bytes_queued(f.channel), 0);
    wait_for(&f, &f.replies, 2000);
    for (int i = 0; i < 2000; i++)
        ck_assert_int_eq(f.marks[i], (uint8_t)i);
    fixture_close(&f);
}
END_TEST

SUITE_MAIN("wire/channel", SUITE_TEST(requests_queued_while_connecting_are_answered),
           SUITE_TEST(a_late_reply_is_not_taken_for_another_requests),
           SUITE_TEST(replies_may_overtake_each_other),
           SUITE_TEST(an_unknown_correlation_id_closes_the_connection),
           SUITE_TEST_SLOW(a_disconnect_at_every_byte_of_a_reply_is_one_failure, 60),
           SUITE_TEST(a_reply_byte_by_byte_is_put_together),
           SUITE_TEST(strangers_are_named_for_what_they_are), SUITE_TEST(a_refused_hello_says_why),
           SUITE_TEST(a_peer_that_never_says_hello_is_given_up_in_time),
           SUITE_TEST(a_request_not_sent_by_its_deadline_is_taken_back),
           SUITE_TEST(a_peer_that_falls_silent_costs_the_connection),
           SUITE_TEST(a_path_that_swallows_is_given_up_in_time),
           SUITE_TEST(a_stall_in_mid_frame_ends_with_the_deadline),
           SUITE_TEST(a_peer_that_takes_no_data_costs_the_connection),
           SUITE_TEST(a_refused_connection_is_an_event),
           SUITE_TEST(records_of_any_size_arrive_in_slabs_that_can_be_kept),
           SUITE_TEST(borrowed_records_leave_whole_behind_their_envelope),
           SUITE_TEST(a_channel_may_be_freed_and_used_in_its_callbacks),
           SUITE_TEST(a_channel_freed_idle_or_connecting_ends_its_requests),
           SUITE_TEST(many_requests_share_system_calls))
