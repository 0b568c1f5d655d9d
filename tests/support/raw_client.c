#include "tests/support/raw_client.h"

#include "proto/record/batch.h"
#include "proto/wire/envelope.h"
#include "proto/wire/frame.h"
#include "tests/support/suite.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PATIENCE_MS 10000

void raw_socket(struct raw_client *c)
{
    *c = (struct raw_client){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    ck_assert_int_ge(c->fd, 0);
}

void raw_connect_socket(struct raw_client *c, int port)
{
    const int on = 1;
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    ck_assert_int_eq(connect(c->fd, (struct sockaddr *)&address, sizeof address), 0);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void raw_connect(struct raw_client *c, int port)
{
    raw_socket(c);
    raw_connect_socket(c, port);
}

static void drop_reply(struct raw_client *c)
{
    if (c->response)
        brook__response__free_unpacked(c->response, NULL);
    c->response = NULL;
}

void raw_close(struct raw_client *c)
{
    drop_reply(c);
    free(c->frame);
    free(c->held);
    if (c->fd >= 0)
        close(c->fd);
    *c = (struct raw_client){.fd = -1};
}

void raw_open(struct raw_client *c, int port)
{
    raw_connect(c, port);
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__HelloRequest hello = BROOK__HELLO_REQUEST__INIT;
    request.body_case = BROOK__REQUEST__BODY_HELLO;
    request.hello = &hello;
    Brook__Response *response = raw_ask(c, &request, NULL, 0);
    ck_assert_ptr_nonnull(response);
    ck_assert_int_eq(raw_status(response), 0);
}

void raw_hold(struct raw_client *c)
{
    c->holds = true;
}

void raw_release(struct raw_client *c)
{
    uint8_t *held = c->held;
    c->holds = false;
    c->held = NULL;
    raw_send_bytes(c, held, c->held_bytes);
    c->held_bytes = 0;
    free(held);
}

void raw_send_bytes(struct raw_client *c, const void *data, size_t bytes)
{
    const uint8_t *at = data;
    if (c->holds) {
        c->held = realloc(c->held, c->held_bytes + bytes);
        ck_assert_ptr_nonnull(c->held);
        memcpy(c->held + c->held_bytes, data, bytes);
        c->held_bytes += bytes;
        return;
    }
    while (bytes) {
        ssize_t n = send(c->fd, at, bytes, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) /* closed by the broker: what comes next will tell */
            return;
        at += n;
        bytes -= (size_t)n;
    }
}

uint8_t *raw_frame(const Brook__Request *request, const void *records, size_t records_bytes,
                   size_t *ret_bytes)
{
    size_t envelope = brook__request__get_packed_size(request);
    *ret_bytes = FRAME_PREFIX_BYTES + envelope + records_bytes;
    uint8_t *frame = malloc(*ret_bytes);
    ck_assert_ptr_nonnull(frame);
    frame_write_prefix(frame, (uint32_t)envelope, (uint32_t)records_bytes);
    brook__request__pack(request, frame + FRAME_PREFIX_BYTES);
    if (records_bytes)
        memcpy(frame + FRAME_PREFIX_BYTES + envelope, records, records_bytes);
    return frame;
}

void raw_send(struct raw_client *c, Brook__Request *request, const void *records, size_t records_bytes)
{
    size_t bytes;
    request->has_correlation_id = true;
    request->correlation_id = ++c->correlation_id;
    if (c->deadline_ms) {
        request->has_deadline_ms = true;
        request->deadline_ms = c->deadline_ms;
    }
    uint8_t *frame = raw_frame(request, records, records_bytes, &bytes);
    raw_send_bytes(c, frame, bytes);
    free(frame);
}

static bool wait_readable(struct raw_client *c, int ms)
{
    struct pollfd poll_fd = {.fd = c->fd, .events = POLLIN};
    return poll(&poll_fd, 1, ms) > 0;
}

/* False at the end of the stream. */
static bool receive_all(struct raw_client *c, void *to, size_t bytes)
{
    uint8_t *at = to;
    while (bytes) {
        ck_assert_msg(wait_readable(c, PATIENCE_MS), "no reply");
        ssize_t n = recv(c->fd, at, bytes, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

Brook__Response *raw_receive(struct raw_client *c)
{
    uint8_t prefix_bytes[FRAME_PREFIX_BYTES];
    struct frame_prefix prefix;
    drop_reply(c);
    if (!receive_all(c, prefix_bytes, sizeof prefix_bytes))
        return NULL;
    ck_assert_int_eq(frame_parse(prefix_bytes, sizeof prefix_bytes, UINT32_MAX, UINT32_MAX, &prefix, NULL),
                     0);
    size_t body = (size_t)prefix.envelope_bytes + prefix.records_bytes;
    if (body > c->frame_capacity) {
        free(c->frame);
        c->frame = malloc(body);
        c->frame_capacity = body;
        ck_assert_ptr_nonnull(c->frame);
    }
    if (!receive_all(c, c->frame, body))
        return NULL;
    c->response = brook__response__unpack(NULL, prefix.envelope_bytes, c->frame);
    ck_assert_ptr_nonnull(c->response);
    c->records = c->frame + prefix.envelope_bytes;
    c->records_bytes = prefix.records_bytes;
    return c->response;
}

Brook__Response *raw_ask(struct raw_client *c, Brook__Request *request, const void *records,
                         size_t records_bytes)
{
    raw_send(c, request, records, records_bytes);
    Brook__Response *response = raw_receive(c);
    if (response && response->has_correlation_id)
        ck_assert_uint_eq(response->correlation_id, c->correlation_id);
    return response;
}

bool raw_is_silent(struct raw_client *c, int ms)
{
    return !wait_readable(c, ms);
}

bool raw_is_closed(struct raw_client *c, int ms)
{
    char waste[65536];
    while (wait_readable(c, ms)) {
        ssize_t n = recv(c->fd, waste, sizeof waste, 0);
        if (n == 0 || (n < 0 && errno != EINTR))
            return true;
    }
    return false;
}

int raw_status(const Brook__Response *response)
{
    return envelope_status_code(response->status);
}

/* ---- requests ------------------------------------------------------------------------------------------ */

size_t raw_batch(void *to, size_t capacity, int count, size_t value_bytes)
{
    struct batch_writer w;
    uint8_t *value = malloc(value_bytes + 1);
    ck_assert_ptr_nonnull(value);
    memset(value, 'v', value_bytes);
    struct record_view record = {
        .value = value, .value_bytes = (int32_t)value_bytes, .timestamp = 1700000000000};
    batch_writer_init(&w, to, capacity);
    for (int i = 0; i < count; i++) {
        record.timestamp++;
        ck_assert_int_eq(batch_writer_add(&w, &record), 0);
    }
    free(value);
    return batch_writer_finish(&w, -1, -1, -1);
}

void raw_send_produce(struct raw_client *c, const struct topic_id *topic, int32_t partition, int acks,
                      const void *records, size_t bytes)
{
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__ProduceRequest produce = BROOK__PRODUCE_REQUEST__INIT;
    Brook__ProducePartition entry = BROOK__PRODUCE_PARTITION__INIT, *entries = &entry;
    entry.has_topic_id = entry.has_partition = entry.has_records_bytes = true;
    entry.topic_id = envelope_bytes(topic->bytes, sizeof topic->bytes);
    entry.partition = partition;
    entry.records_bytes = (uint32_t)bytes;
    produce.has_acks = true;
    produce.acks = (Brook__Acks)acks;
    produce.n_partitions = 1;
    produce.partitions = &entries;
    request.body_case = BROOK__REQUEST__BODY_PRODUCE;
    request.produce = &produce;
    raw_send(c, &request, records, bytes);
}

int64_t raw_produce(struct raw_client *c, const struct topic_id *topic, int32_t partition, size_t value_bytes)
{
    size_t capacity = value_bytes + 256;
    uint8_t *records = malloc(capacity);
    ck_assert_ptr_nonnull(records);
    raw_send_produce(c, topic, partition, BROOK__ACKS__ACKS_LEADER, records,
                     raw_batch(records, capacity, 1, value_bytes));
    free(records);
    Brook__Response *response = raw_receive(c);
    ck_assert_ptr_nonnull(response);
    ck_assert_int_eq(raw_status(response), 0);
    ck_assert_int_eq((int)response->body_case, BROOK__RESPONSE__BODY_PRODUCE);
    ck_assert_uint_eq(response->produce->n_partitions, 1);
    ck_assert_int_eq(envelope_status_code(response->produce->partitions[0]->status), 0);
    return response->produce->partitions[0]->base_offset;
}

void raw_pull_init(struct raw_pull *p, const struct topic_id *topic, int32_t partition, int64_t offset)
{
    *p = (struct raw_pull){.session_epoch = -1, .min_bytes = 1, .max_bytes = 1 << 20};
    p->count = 1;
    p->entries[0] = (struct raw_pull_entry){topic, partition, offset, 1 << 20, -1, -1};
}

static void fill_entry(const struct raw_pull_entry *from, Brook__PullPartition *to)
{
    brook__pull_partition__init(to);
    to->has_topic_id = to->has_partition = to->has_offset = to->has_max_bytes = to->has_current_epoch = true;
    to->topic_id = envelope_bytes(from->topic->bytes, sizeof from->topic->bytes);
    to->partition = from->partition;
    to->offset = from->offset;
    to->max_bytes = from->max_bytes;
    to->current_epoch = from->current_epoch;
    to->has_last_epoch = from->last_epoch >= 0;
    to->last_epoch = from->last_epoch;
}

void raw_send_pull(struct raw_client *c, const struct raw_pull *p)
{
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__PullRequest pull = BROOK__PULL_REQUEST__INIT;
    Brook__PullPartition entries[128], *pointers[128];
    Brook__PullForget forgets[16], *forget_pointers[16];
    for (size_t i = 0; i < p->count; i++) {
        fill_entry(&p->entries[i], &entries[i]);
        pointers[i] = &entries[i];
    }
    for (size_t i = 0; i < p->forget_count; i++) {
        brook__pull_forget__init(&forgets[i]);
        forgets[i].has_topic_id = forgets[i].has_partition = true;
        forgets[i].topic_id = envelope_bytes(p->forget[i].topic->bytes, sizeof p->forget[i].topic->bytes);
        forgets[i].partition = p->forget[i].partition;
        forget_pointers[i] = &forgets[i];
    }
    pull.has_session_id = pull.has_session_epoch = pull.has_max_wait_ms = pull.has_min_bytes =
        pull.has_max_bytes = true;
    pull.session_id = p->session_id;
    pull.session_epoch = p->session_epoch;
    pull.max_wait_ms = p->max_wait_ms;
    pull.min_bytes = p->min_bytes;
    pull.max_bytes = p->max_bytes;
    pull.n_partitions = p->count;
    pull.partitions = pointers;
    pull.n_forget = p->forget_count;
    pull.forget = forget_pointers;
    request.body_case = BROOK__REQUEST__BODY_PULL;
    request.pull = &pull;
    raw_send(c, &request, NULL, 0);
}

Brook__PullResponse *raw_pull(struct raw_client *c, const struct raw_pull *p)
{
    raw_send_pull(c, p);
    Brook__Response *response = raw_receive(c);
    ck_assert_ptr_nonnull(response);
    ck_assert_int_eq(raw_status(response), 0);
    ck_assert_int_eq((int)response->body_case, BROOK__RESPONSE__BODY_PULL);
    return response->pull;
}
