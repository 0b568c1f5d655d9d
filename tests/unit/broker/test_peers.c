/* Peers that are broken, hostile, or somebody else: NP-01, 02, 03, 15, RL-04, PB-01 to 03, LE-02, LE-10. */
#include "proto/base/clock.h"
#include "proto/base/pool.h"
#include "proto/wire/envelope.h"
#include "proto/wire/frame.h"
#include "tests/support/rig.h"
#include "tests/support/suite.h"

#include "config.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

struct case_ {
    struct rig rig;
    struct topic_id t;
    struct raw_client good; /* must be served whatever happens */
};

static void prepare(struct case_ *x)
{
    rig_prepare(&x->rig);
    x->t = fake_cluster_add_topic(x->rig.cluster, "t", 1);
}

static void start(struct case_ *x)
{
    rig_start(&x->rig);
    raw_open(&x->good, x->rig.port);
    raw_produce(&x->good, &x->t, 0, 10);
}

static void begin(struct case_ *x)
{
    prepare(x);
    start(x);
}

static void end(struct case_ *x)
{
    raw_produce(&x->good, &x->t, 0, 10);
    raw_close(&x->good);
    ck_assert(rig_wait_connections(&x->rig, 0, 5000));
    rig_stop(&x->rig);
}

static int open_descriptors(void)
{
    int count = 0;
    DIR *d = opendir("/proc/self/fd");
    while (readdir(d))
        count++;
    closedir(d);
    return count;
}

/* Send bytes, give back what the broker says until it closes (which it must). */
static size_t answer_to(struct case_ *x, const void *data, size_t bytes, char *to, size_t capacity)
{
    struct raw_client c;
    size_t have = 0;
    ssize_t n;
    raw_connect(&c, x->rig.port);
    raw_send_bytes(&c, data, bytes);
    struct pollfd fd = {.fd = c.fd, .events = POLLIN};
    while (have < capacity - 1 && poll(&fd, 1, 10000) > 0 &&
           (n = recv(c.fd, to + have, capacity - 1 - have, 0)) > 0)
        have += (size_t)n;
    to[have] = '\0';
    ck_assert(raw_is_closed(&c, 10000));
    raw_close(&c);
    return have;
}

/* ---- other protocols ----------------------------------------------------------------------------------- */

START_TEST(http_is_answered_in_http)
{
    struct case_ x;
    char got[1000];
    begin(&x);
    answer_to(&x, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27, got, sizeof got);
    ck_assert_int_eq(strncmp(got, "HTTP/1.1 400 ", 13), 0);
    const char *body = strstr(got, "\r\n\r\n");
    ck_assert_ptr_nonnull(body);
    ck_assert_uint_eq(strlen(body + 4), 57);
    ck_assert_ptr_nonnull(strstr(got, "Content-Length: 57\r\n"));
    ck_assert(rig_warned_of(&x.rig, "HTTP"));
    end(&x);
}
END_TEST

START_TEST(tls_gets_an_alert)
{
    static const uint8_t hello[] = {0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03};
    struct case_ x;
    char got[100];
    begin(&x);
    ck_assert_uint_eq(answer_to(&x, hello, sizeof hello, got, sizeof got), 7);
    ck_assert_int_eq(got[0], 0x15);
    ck_assert(rig_warned_of(&x.rig, "TLS"));
    end(&x);
}
END_TEST

START_TEST(kafka_is_recognised)
{
    /* ApiVersions v3, correlation id 1, client id "x" */
    static const uint8_t versions[] = {0, 0, 0, 13, 0, 18, 0, 3, 0, 0, 0, 1, 0, 1, 'x', 0, 0};
    struct case_ x;
    char got[100];
    begin(&x);
    ck_assert_uint_eq(answer_to(&x, versions, sizeof versions, got, sizeof got), 0);
    ck_assert(rig_warned_of(&x.rig, "Kafka"));
    end(&x);
}
END_TEST

START_TEST(complaints_are_limited)
{
    struct case_ x;
    char got[1000];
    begin(&x);
    for (int i = 0; i < 100; i++)
        answer_to(&x, "GET / HTTP/1.1\r\n\r\n", 18, got, sizeof got);
    ck_assert_uint_le(rig_warnings(&x.rig), 40); /* two loops, ten each, perhaps over the edge of a period */
    end(&x);
}
END_TEST

/* ---- lengths ------------------------------------------------------------------------------------------- */

static void expect_refusal(struct case_ *x, struct raw_client *c, uint32_t frame, uint32_t envelope)
{
    uint8_t prefix[8] = {(uint8_t)(frame >> 24),   (uint8_t)(frame >> 16),    (uint8_t)(frame >> 8),
                         (uint8_t)frame,           (uint8_t)(envelope >> 24), (uint8_t)(envelope >> 16),
                         (uint8_t)(envelope >> 8), (uint8_t)envelope};
    raw_send_bytes(c, prefix, sizeof prefix);
    Brook__Response *r = raw_receive(c);
    ck_assert_ptr_nonnull(r);
    ck_assert(raw_status(r) == BROOK_E_BAD_FRAME || raw_status(r) == BROOK_E_FRAME_TOO_LARGE);
    ck_assert_uint_gt(r->status->text.len, 10);
    ck_assert(raw_is_closed(c, 10000));
}

START_TEST(lengths_that_lie_are_refused_with_a_reason)
{
    static const uint32_t lengths[][2] = {{0, 0},
                                          {3, 0},
                                          {4, 1},
                                          {100, 97},
                                          {0x7fffffff, 10},
                                          {0xffffffff, 0xffffffff},
                                          {(8 << 20) + 1, 10},
                                          {8 << 20, (1 << 20) + 1}};
    struct case_ x;
    begin(&x);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        struct raw_client c;
        raw_open(&c, x.rig.port);
        expect_refusal(&x, &c, lengths[i][0], lengths[i][1]);
        raw_close(&c);
    }
    end(&x);
}
END_TEST

START_TEST(before_hello_a_frame_is_small)
{
    struct case_ x;
    struct raw_client c;
    begin(&x);
    raw_connect(&c, x.rig.port);
    expect_refusal(&x, &c, FRAME_BYTES_MAX_FIRST + 1, 10);
    raw_close(&c);
    end(&x);
}
END_TEST

START_TEST(hello_comes_first)
{
    struct case_ x;
    struct raw_client c;
    begin(&x);
    raw_connect(&c, x.rig.port);
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__MetadataRequest metadata = BROOK__METADATA_REQUEST__INIT;
    request.body_case = BROOK__REQUEST__BODY_METADATA;
    request.metadata = &metadata;
    ck_assert_int_eq(raw_status(raw_ask(&c, &request, NULL, 0)), BROOK_E_BAD_FRAME);
    ck_assert(raw_is_closed(&c, 5000));
    raw_close(&c);
    end(&x);
}
END_TEST

START_TEST(a_hello_cut_at_each_byte_is_understood)
{
    struct case_ x;
    begin(&x);
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__HelloRequest hello = BROOK__HELLO_REQUEST__INIT;
    request.body_case = BROOK__REQUEST__BODY_HELLO;
    request.hello = &hello;
    hello.has_software = true;
    hello.software = envelope_text("somebody 1.0");
    size_t bytes;
    uint8_t *frame = raw_frame(&request, NULL, 0, &bytes);
    for (size_t cut = 1; cut < bytes; cut++) {
        struct raw_client c;
        raw_connect(&c, x.rig.port);
        raw_send_bytes(&c, frame, cut);
        ck_assert(raw_is_silent(&c, 3));
        raw_send_bytes(&c, frame + cut, bytes - cut);
        Brook__Response *r = raw_receive(&c);
        ck_assert_ptr_nonnull(r);
        ck_assert_int_eq(raw_status(r), 0);
        ck_assert_uint_eq(r->hello->version, 1);
        raw_close(&c);
    }
    free(frame);
    end(&x);
}
END_TEST

START_TEST(versions_that_do_not_meet_are_refused)
{
    struct case_ x;
    struct raw_client c;
    begin(&x);
    raw_connect(&c, x.rig.port);
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__HelloRequest hello = BROOK__HELLO_REQUEST__INIT;
    request.body_case = BROOK__REQUEST__BODY_HELLO;
    request.hello = &hello;
    hello.has_version_min = hello.has_version_max = true;
    hello.version_min = 2;
    hello.version_max = 9;
    ck_assert_int_eq(raw_status(raw_ask(&c, &request, NULL, 0)), BROOK_E_UNSUPPORTED_VERSION);
    hello.version_min = 1;
    Brook__Response *r = raw_ask(&c, &request, NULL, 0);
    ck_assert_int_eq(raw_status(r), 0);
    ck_assert_uint_eq(r->hello->version, 1);
    raw_close(&c);
    end(&x);
}
END_TEST

/* ---- memory -------------------------------------------------------------------------------------------- */

START_TEST(announced_frames_cost_their_budget_only)
{
    enum { COUNT = 100 };
    struct case_ x;
    struct raw_client c[COUNT];
    begin(&x);
    size_t before = rig_resident_bytes();
    for (int i = 0; i < COUNT; i++) {
        uint8_t start_of_frame[9];
        raw_open(&c[i], x.rig.port);
        frame_write_prefix(start_of_frame, 100, (8 << 20) - 200);
        start_of_frame[8] = 0;
        raw_send_bytes(&c[i], start_of_frame, 9);
    }
    for (int i = 0; i < 50; i++)
        raw_produce(&x.good, &x.t, 0, 100); /* small frames are served while large ones wait */
    ck_assert_uint_lt(rig_resident_bytes(), before + ((size_t)32 << 20));
    for (int i = 0; i < COUNT; i++)
        raw_close(&c[i]);
    end(&x);
}
END_TEST

/* Two senders of large frames, room for one: both get through, one after the other. */
START_TEST(a_budget_used_up_makes_others_wait_and_go_on)
{
    struct case_ x;
    struct raw_client c[6];
    static uint8_t records[1 << 21];
    prepare(&x);
    x.rig.net_settings.threads_count = 1;
    x.rig.net_settings.frame_bytes_max = 2 << 20;
    x.rig.net_settings.queued_bytes_max = 3 << 20;
    start(&x);
    size_t bytes = raw_batch(records, sizeof records, 1, 1500000);
    for (int i = 0; i < 6; i++)
        raw_open(&c[i], x.rig.port);
    size_t frame_bytes = 0;
    uint8_t *frames[6];
    for (int i = 0; i < 6; i++) {
        Brook__Request request = BROOK__REQUEST__INIT;
        Brook__ProduceRequest produce = BROOK__PRODUCE_REQUEST__INIT;
        Brook__ProducePartition entry = BROOK__PRODUCE_PARTITION__INIT, *entries = &entry;
        entry.has_topic_id = entry.has_partition = entry.has_records_bytes = true;
        entry.topic_id = envelope_bytes(x.t.bytes, 16);
        entry.partition = 0;
        entry.records_bytes = (uint32_t)bytes;
        produce.n_partitions = 1;
        produce.partitions = &entries;
        request.body_case = BROOK__REQUEST__BODY_PRODUCE;
        request.produce = &produce;
        frames[i] = raw_frame(&request, records, bytes, &frame_bytes);
        raw_send_bytes(&c[i], frames[i], 50000); /* all have begun */
    }
    ck_assert(raw_is_silent(&c[0], 30));
    for (int i = 0; i < 6; i++) { /* in the order in which they came they have room */
        raw_send_bytes(&c[i], frames[i] + 50000, frame_bytes - 50000);
        Brook__Response *r = raw_receive(&c[i]);
        ck_assert_ptr_nonnull(r);
        ck_assert_int_eq(raw_status(r), 0);
        raw_produce(&x.good, &x.t, 0, 10);
        free(frames[i]);
    }
    for (int i = 0; i < 6; i++)
        raw_close(&c[i]);
    end(&x);
}
END_TEST

/* PB-01: an envelope of a megabyte that would unpack to fifty. */
static void expect_bad_envelope(struct case_ *x, const uint8_t *envelope, size_t bytes)
{
    struct raw_client c;
    uint8_t prefix[8];
    raw_open(&c, x->rig.port);
    frame_write_prefix(prefix, (uint32_t)bytes, 0);
    raw_send_bytes(&c, prefix, 8);
    raw_send_bytes(&c, envelope, bytes);
    Brook__Response *r = raw_receive(&c);
    ck_assert_ptr_nonnull(r);
    ck_assert_int_eq(raw_status(r), BROOK_E_BAD_ENVELOPE);
    ck_assert(raw_is_closed(&c, 10000));
    raw_close(&c);
}

/* A field of a request's body whose content is `pattern` again and again. */
static size_t make_bomb(uint8_t *to, size_t bytes, uint8_t body_tag, const uint8_t *pattern,
                        size_t pattern_bytes)
{
    size_t count = (bytes - 16) / pattern_bytes, inside = count * pattern_bytes, at = 0;
    to[at++] = body_tag;
    for (size_t left = inside;; left >>= 7) {
        to[at++] = (uint8_t)((left & 0x7f) | (left > 0x7f ? 0x80 : 0));
        if (left <= 0x7f)
            break;
    }
    for (size_t i = 0; i < count; i++, at += pattern_bytes)
        memcpy(to + at, pattern, pattern_bytes);
    return at;
}

START_TEST(envelopes_that_expand_are_refused)
{
    static const uint8_t empty_messages[] = {0x1a, 0x00}; /* produce.partitions: {} */
    static const uint8_t garbage[] = {0xff, 0xff, 0xff};
    struct case_ x;
    static uint8_t bomb[1 << 20];
    begin(&x);
    size_t before = rig_resident_bytes();
    size_t bytes = make_bomb(bomb, sizeof bomb, 0x62, empty_messages, sizeof empty_messages);
    expect_bad_envelope(&x, bomb, bytes);
    ck_assert_uint_lt(rig_resident_bytes(), before + ((size_t)40 << 20));
    bytes = make_bomb(bomb, sizeof bomb, 0x62, garbage, sizeof garbage);
    expect_bad_envelope(&x, bomb, bytes);
    end(&x);
}
END_TEST

/* ---- time ---------------------------------------------------------------------------------------------- */

START_TEST(silent_peers_are_closed)
{
    struct case_ x;
    struct raw_client silent, half_hello, idle;
    prepare(&x);
    x.rig.net_settings.hello_ms_max = 200;
    x.rig.net_settings.idle_ms_max = 800;
    start(&x);
    raw_connect(&silent, x.rig.port);
    raw_connect(&half_hello, x.rig.port);
    raw_send_bytes(&half_hello, "\0\0\0\x10\0", 5);
    raw_open(&idle, x.rig.port);
    ck_assert(raw_is_closed(&silent, 5000));
    ck_assert(raw_is_closed(&half_hello, 5000));
    raw_produce(&x.good, &x.t, 0, 10);
    ck_assert(raw_is_closed(&idle, 5000));
    ck_assert(raw_is_closed(&x.good, 5000)); /* idle too, by now */
    raw_close(&silent);
    raw_close(&half_hello);
    raw_close(&idle);
    raw_close(&x.good);
    raw_open(&x.good, x.rig.port);
    end(&x);
}
END_TEST

START_TEST(a_parked_pull_is_not_idle)
{
    struct case_ x;
    struct raw_client c;
    struct raw_pull pull;
    prepare(&x);
    x.rig.net_settings.idle_ms_max = 200;
    start(&x);
    raw_open(&c, x.rig.port);
    raw_pull_init(&pull, &x.t, 0, 1);
    pull.max_wait_ms = 1000;
    raw_pull(&c, &pull);
    raw_close(&c);
    raw_close(&x.good);
    raw_open(&x.good, x.rig.port);
    end(&x);
}
END_TEST

START_TEST(a_frame_that_stalls_is_closed_and_frees_its_budget)
{
    struct case_ x;
    struct raw_client c, after;
    static uint8_t records[1 << 21];
    uint8_t prefix[8];
    prepare(&x);
    x.rig.net_settings.threads_count = 1;
    x.rig.net_settings.frame_bytes_max = 2 << 20;
    x.rig.net_settings.queued_bytes_max = (2 << 20) + 4;
    x.rig.net_settings.frame_ms_max = 300;
    x.rig.net_settings.frame_bytes_per_s_min = 1 << 20;
    start(&x);
    raw_open(&c, x.rig.port);
    raw_open(&after, x.rig.port);
    frame_write_prefix(prefix, 100, 1500000);
    raw_send_bytes(&c, prefix, sizeof prefix);
    ck_assert(raw_is_silent(&c, 20));
    /* waits for the room that the stalled one holds, and has it when that is closed: its own clock stands
     * still */
    raw_send_produce(&after, &x.t, 0, BROOK__ACKS__ACKS_LEADER, records,
                     raw_batch(records, sizeof records, 1, 1200000));
    ck_assert_int_eq(raw_status(raw_receive(&after)), 0);
    ck_assert(raw_is_closed(&c, 5000));
    raw_close(&c);
    raw_close(&after);
    end(&x);
}
END_TEST

START_TEST(a_slow_but_steady_frame_is_taken)
{
    struct case_ x;
    struct raw_client c;
    static uint8_t records[300000];
    prepare(&x);
    x.rig.net_settings.frame_ms_max = 200;
    x.rig.net_settings.frame_bytes_per_s_min = 100000;
    start(&x);
    raw_open(&c, x.rig.port);
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__ProduceRequest produce = BROOK__PRODUCE_REQUEST__INIT;
    Brook__ProducePartition entry = BROOK__PRODUCE_PARTITION__INIT, *entries = &entry;
    size_t bytes = raw_batch(records, sizeof records, 1, 200000), frame_bytes;
    entry.has_topic_id = entry.has_partition = entry.has_records_bytes = true;
    entry.topic_id = envelope_bytes(x.t.bytes, 16);
    entry.partition = 0;
    entry.records_bytes = (uint32_t)bytes;
    produce.n_partitions = 1;
    produce.partitions = &entries;
    request.body_case = BROOK__REQUEST__BODY_PRODUCE;
    request.produce = &produce;
    uint8_t *frame = raw_frame(&request, records, bytes, &frame_bytes);
    for (size_t at = 0; at < frame_bytes; at += 10000) { /* 10 kB in 40 ms: 250 kB/s, 0.8 s in all */
        size_t piece = frame_bytes - at < 10000 ? frame_bytes - at : 10000;
        raw_send_bytes(&c, frame + at, piece);
        raw_is_silent(&c, at + piece < frame_bytes ? 40 : 0);
    }
    free(frame);
    Brook__Response *r = raw_receive(&c);
    ck_assert_ptr_nonnull(r);
    ck_assert_int_eq(raw_status(r), 0);
    raw_close(&c);
    end(&x);
}
END_TEST

/* ---- readers that do not read -------------------------------------------------------------------------- */

START_TEST(a_reader_that_does_not_read_is_bounded_and_closed)
{
    struct case_ x;
    struct raw_client c[4];
    struct raw_pull pull;
    prepare(&x);
    x.rig.net_settings.send_ms_max = 700;
    x.rig.net_settings.send_buffer_bytes = 65536;
    start(&x);
    for (int i = 0; i < 10; i++)
        raw_produce(&x.good, &x.t, 0, 500000);
    raw_pull_init(&pull, &x.t, 0, 1);
    pull.max_bytes = 4 << 20;
    pull.entries[0].max_bytes = 4 << 20;
    size_t before = rig_resident_bytes();
    for (int i = 0; i < 4; i++) {
        raw_open(&c[i], x.rig.port);
        fcntl(c[i].fd, F_SETFL, O_NONBLOCK);
        for (int j = 0; j < 500; j++)
            raw_send_pull(&c[i], &pull);
    }
    for (int i = 0; i < 20; i++)
        raw_produce(&x.good, &x.t, 0, 100);
    ck_assert_uint_lt(rig_resident_bytes(), before + ((size_t)32 << 20));
    ck_assert(rig_wait_connections(&x.rig, 1, 10000));
    for (int i = 0; i < 4; i++)
        raw_close(&c[i]);
    end(&x);
}
END_TEST

START_TEST(a_slow_reader_gets_everything)
{
    struct case_ x;
    struct raw_client c;
    struct raw_pull pull;
    prepare(&x);
    x.rig.net_settings.output_bytes_max = 1 << 20;
    x.rig.net_settings.requests_in_flight_max = 3;
    start(&x);
    for (int i = 0; i < 3; i++)
        raw_produce(&x.good, &x.t, 0, 300000);
    raw_open(&c, x.rig.port);
    raw_pull_init(&pull, &x.t, 0, 1);
    for (int i = 0; i < 40; i++)
        raw_send_pull(&c, &pull);
    uint64_t first = c.correlation_id - 39;
    for (int i = 0; i < 40; i++) {
        Brook__Response *r = raw_receive(&c);
        ck_assert_ptr_nonnull(r);
        ck_assert_uint_eq(r->correlation_id, first + (uint64_t)i);
        ck_assert_uint_gt(c.records_bytes, 600000);
        if (i % 10 == 0)
            raw_is_silent(&c, 1);
    }
    raw_close(&c);
    end(&x);
}
END_TEST

/* ---- the end of a connection --------------------------------------------------------------------------- */

START_TEST(what_was_sent_before_a_half_close_is_carried_out)
{
    struct case_ x;
    struct raw_client c;
    struct raw_pull pull;
    uint8_t batch[1000];
    begin(&x);
    raw_open(&c, x.rig.port);
    size_t bytes = raw_batch(batch, sizeof batch, 1, 100);
    raw_pull_init(&pull, &x.t, 0, 2);
    pull.max_wait_ms = 20000;
    for (int i = 0; i < 100; i++)
        raw_send_produce(&c, &x.t, 0, BROOK__ACKS__ACKS_LEADER, batch, bytes);
    pull.entries[0].offset = 101;
    raw_send_pull(&c, &pull);
    raw_send_bytes(&c, "\0\0\1\0\0", 5); /* and half a frame, which is nothing */
    shutdown(c.fd, SHUT_WR);
    int64_t began = clock_boot_ms();
    for (int i = 0; i < 101; i++) {
        Brook__Response *r = raw_receive(&c);
        ck_assert_ptr_nonnull(r);
        ck_assert_int_eq(raw_status(r), 0);
    }
    ck_assert(raw_is_closed(&c, 5000));
    ck_assert_int_lt(clock_boot_ms() - began, 15000); /* the poll did not wait for its time */
    raw_close(&c);
    end(&x);
}
END_TEST

START_TEST(the_last_answer_arrives_before_the_end)
{
    struct case_ x;
    static uint8_t junk[300000];
    begin(&x);
    memset(junk, 0xff, sizeof junk);
    for (int i = 0; i < 50; i++) {
        struct raw_client c;
        raw_open(&c, x.rig.port);
        raw_send_bytes(&c, junk, sizeof junk); /* more than is read: a plain close would send a reset */
        Brook__Response *r = raw_receive(&c);
        ck_assert_ptr_nonnull(r);
        ck_assert_int_eq(raw_status(r), BROOK_E_FRAME_TOO_LARGE);
        char byte;
        ck_assert_int_eq(recv(c.fd, &byte, 1, 0), 0); /* an end, not a reset */
        raw_close(&c);
    }
    end(&x);
}
END_TEST

START_TEST(stopping_answers_what_waits)
{
    struct case_ x;
    struct raw_client c;
    struct raw_pull pull;
    begin(&x);
    raw_open(&c, x.rig.port);
    raw_pull_init(&pull, &x.t, 0, 1);
    pull.max_wait_ms = 20000;
    raw_send_pull(&c, &pull);
    ck_assert(raw_is_silent(&c, 50));
    int64_t began = clock_boot_ms();
    net_stop_accepting(x.rig.net);
    net_stop(x.rig.net);
    ck_assert_int_lt(clock_boot_ms() - began, 5000);
    ck_assert_int_eq(raw_status(raw_receive(&c)), 0);
    ck_assert(raw_is_closed(&c, 1000));
    raw_close(&c);
    raw_close(&x.good);
    fake_cluster_free(x.rig.cluster);
    net_free(x.rig.net);
}
END_TEST

/* ---- descriptors and counts ---------------------------------------------------------------------------- */

START_TEST(connections_have_a_limit)
{
    struct case_ x;
    struct raw_client c[10];
    prepare(&x);
    x.rig.net_settings.connections_per_address_max = 5;
    start(&x);
    for (int i = 0; i < 10; i++)
        raw_connect(&c[i], x.rig.port);
    for (int i = 4; i < 10; i++)
        ck_assert(raw_is_closed(&c[i], 5000));
    raw_produce(&x.good, &x.t, 0, 10);
    for (int i = 0; i < 10; i++)
        raw_close(&c[i]);
    ck_assert(rig_wait_connections(&x.rig, 1, 5000));
    raw_open(&c[0], x.rig.port);
    raw_close(&c[0]);
    end(&x);
}
END_TEST

START_TEST(descriptors_are_not_lost)
{
    struct case_ x;
    begin(&x);
    ck_assert(rig_wait_connections(&x.rig, 1, 5000));
    int before = open_descriptors();
    for (int i = 0; i < 1000; i++) {
        struct raw_client c;
        raw_connect(&c, x.rig.port);
        if (i % 3 == 1)
            raw_send_bytes(&c, "GET /", 5);
        else if (i % 3 == 2)
            raw_send_bytes(&c, "\0\0\0\x20", 4);
        raw_close(&c);
    }
    ck_assert(rig_wait_connections(&x.rig, 1, 10000));
    ck_assert_int_eq(open_descriptors(), before);
    end(&x);
}
END_TEST

START_TEST(without_descriptors_the_broker_rests_and_recovers)
{
    enum { COUNT = 60 };
    struct case_ x;
    struct raw_client c[COUNT];
    struct rlimit old, limit;
    begin(&x);
    for (int i = 0; i < COUNT; i++)
        raw_socket(&c[i]);
    getrlimit(RLIMIT_NOFILE, &old);
    limit = old;
    limit.rlim_cur = (rlim_t)open_descriptors() + COUNT / 2;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    for (int i = 0; i < COUNT; i++)
        raw_connect_socket(&c[i], x.rig.port);
    int64_t cpu = clock_cpu_ns(), began = clock_boot_ns();
    raw_is_silent(&x.good, 500);
    for (int i = 0; i < 20; i++)
        raw_produce(&x.good, &x.t, 0, 10);
    ck_assert_int_lt(clock_cpu_ns() - cpu,
                     (clock_boot_ns() - began) / 4); /* a listener that spins takes one CPU */
    for (int i = 0; i < COUNT; i++)
        raw_close(&c[i]);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &old), 0);
    raw_open(&c[0], x.rig.port);
    raw_produce(&c[0], &x.t, 0, 10);
    raw_close(&c[0]);
    end(&x);
}
END_TEST

START_TEST(an_idle_broker_does_nothing)
{
    struct case_ x;
    begin(&x);
    struct raw_client c[20];
    for (int i = 0; i < 20; i++)
        raw_open(&c[i], x.rig.port);
    struct rusage before, after;
    int64_t cpu = clock_cpu_ns(), began = clock_boot_ns();
    getrusage(RUSAGE_SELF, &before);
    raw_is_silent(&x.good, 3000);
    getrusage(RUSAGE_SELF, &after);
    int64_t wall = clock_boot_ns() - began;
#ifdef BROOK_SANITIZED /* the thread sanitizer has a thread of its own that wakes ten times a second */
    const int wakes_per_s = 60;
#else
    const int wakes_per_s = 20;
#endif
    ck_assert_int_lt(after.ru_nvcsw - before.ru_nvcsw, wakes_per_s * wall / 1000000000);
    ck_assert_int_lt(clock_cpu_ns() - cpu, wall / 20);
    for (int i = 0; i < 20; i++)
        raw_close(&c[i]);
    end(&x);
}
END_TEST

/* Frames made of good ones by changing bytes: whatever comes of it, the broker lives and serves others. */
START_TEST(random_damage_harms_nobody)
{
    struct case_ x;
    struct raw_client c;
    uint64_t random = suite_seed();
    uint8_t batch[1000];
    begin(&x);
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__ProduceRequest produce = BROOK__PRODUCE_REQUEST__INIT;
    Brook__ProducePartition entry = BROOK__PRODUCE_PARTITION__INIT, *entries = &entry;
    size_t batch_bytes = raw_batch(batch, sizeof batch, 3, 100), bytes;
    entry.has_topic_id = entry.has_partition = entry.has_records_bytes = true;
    entry.topic_id = envelope_bytes(x.t.bytes, 16);
    entry.partition = 0;
    entry.records_bytes = (uint32_t)batch_bytes;
    produce.n_partitions = 1;
    produce.partitions = &entries;
    request.body_case = BROOK__REQUEST__BODY_PRODUCE;
    request.produce = &produce;
    uint8_t *frame = raw_frame(&request, batch, batch_bytes, &bytes), *copy = malloc(bytes);
    for (int i = 0; i < 500; i++) {
        memcpy(copy, frame, bytes);
        for (uint64_t n = 1 + suite_random_below(&random, 3); n; n--)
            copy[suite_random_below(&random, bytes)] = (uint8_t)suite_random(&random);
        raw_open(&c, x.rig.port);
        raw_send_bytes(&c, copy, 1 + (size_t)suite_random_below(&random, bytes));
        if (i % 4 == 0)
            shutdown(c.fd, SHUT_WR);
        raw_is_silent(&c, 1);
        raw_close(&c);
    }
    free(frame);
    free(copy);
    end(&x);
}
END_TEST

SUITE_MAIN("broker/peers", SUITE_TEST(http_is_answered_in_http), SUITE_TEST(tls_gets_an_alert),
           SUITE_TEST(kafka_is_recognised), SUITE_TEST(complaints_are_limited),
           SUITE_TEST(lengths_that_lie_are_refused_with_a_reason), SUITE_TEST(before_hello_a_frame_is_small),
           SUITE_TEST(hello_comes_first), SUITE_TEST(a_hello_cut_at_each_byte_is_understood),
           SUITE_TEST(versions_that_do_not_meet_are_refused),
           SUITE_TEST(announced_frames_cost_their_budget_only),
           SUITE_TEST(a_budget_used_up_makes_others_wait_and_go_on),
           SUITE_TEST(envelopes_that_expand_are_refused), SUITE_TEST(silent_peers_are_closed),
           SUITE_TEST(a_parked_pull_is_not_idle),
           SUITE_TEST(a_frame_that_stalls_is_closed_and_frees_its_budget),
           SUITE_TEST(a_slow_but_steady_frame_is_taken),
           SUITE_TEST(a_reader_that_does_not_read_is_bounded_and_closed),
           SUITE_TEST(a_slow_reader_gets_everything),
           SUITE_TEST(what_was_sent_before_a_half_close_is_carried_out),
           SUITE_TEST(the_last_answer_arrives_before_the_end), SUITE_TEST(stopping_answers_what_waits),
           SUITE_TEST(connections_have_a_limit), SUITE_TEST(descriptors_are_not_lost),
           SUITE_TEST(without_descriptors_the_broker_rests_and_recovers),
           SUITE_TEST(an_idle_broker_does_nothing), SUITE_TEST(random_damage_harms_nobody))
