#include "broker/net/connection.h"

#include "broker/handlers/handlers.h"
#include "broker/net/disk_threads.h"
#include "broker/net/dispatch.h"
#include "broker/net/listener_counts.h"
#include "proto/base/diag.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MS ((int64_t)1000000)
/* Of one connection before the others have their turn. */
#define REQUESTS_PER_TURN 512
#define OUTPUT_BYTES_PER_TURN ((size_t)4 << 20)
#define LINGER_MS 2000
#define COMPLAINTS_PER_10_S 10

static void on_readable(evutil_socket_t fd, short events, void *arg);
static void on_writable(evutil_socket_t fd, short events, void *arg);

/* ---- making and ending --------------------------------------------------------------------------------- */

static void write_name(struct connection *c)
{
    char host[INET6_ADDRSTRLEN] = "?";
    if (c->address.ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)&c->address;
        inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
        snprintf(c->name, sizeof c->name, "%s:%d", host, ntohs(in->sin_port));
    } else if (c->address.ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)&c->address;
        inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof host);
        snprintf(c->name, sizeof c->name, "[%s]:%d", host, ntohs(in6->sin6_port));
    } else {
        snprintf(c->name, sizeof c->name, "local");
    }
}

/* What can not be set is a loss of comfort, not of the connection (a local socket has none of these). */
static void set_options(int fd, const struct net_settings *s)
{
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    unsigned timeout_ms = (unsigned)s->send_ms_max;
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
    if (s->send_buffer_bytes)
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &s->send_buffer_bytes, sizeof s->send_buffer_bytes);
    if (s->receive_buffer_bytes)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &s->receive_buffer_bytes, sizeof s->receive_buffer_bytes);
}

struct connection *connection_new(struct io_loop *loop, int fd, const struct sockaddr_storage *address)
{
    struct connection *c = calloc(1, sizeof *c);
    if (!c) {
        close(fd);
        return NULL;
    }
    c->fd = fd;
    c->loop = loop;
    c->address = *address;
    c->peer.name = c->name;
    write_name(c);
    set_options(fd, &loop->settings);
    input_init(&c->in, loop->buffers, loop->frames);
    output_init(&c->out, loop->buffers, &loop->spares);
    event_assign(&c->readable, loop->base, fd, EV_READ | EV_PERSIST, on_readable, c);
    event_assign(&c->writable, loop->base, fd, EV_WRITE | EV_PERSIST, on_writable, c);
    if (event_add(&c->readable, NULL) < 0) {
        close(fd);
        free(c);
        return NULL;
    }
    c->reads = true;
    c->opened_ns = c->read_ns = c->used_ns = c->sent_ns = loop->face.now_ns;
    TAILQ_INSERT_TAIL(&loop->connections, c, in_connections);
    return c;
}

static bool is_dead(const struct connection *c)
{
    return c->state == CONNECTION_DOOMED || c->state == CONNECTION_BURIED;
}

static void mark_dirty(struct connection *c)
{
    if (!c->is_dirty && !is_dead(c)) {
        c->is_dirty = true;
        TAILQ_INSERT_TAIL(&c->loop->dirty, c, in_dirty);
    }
}

static void mark_ready(struct connection *c)
{
    if (!c->is_ready && !is_dead(c)) {
        c->is_ready = true;
        TAILQ_INSERT_TAIL(&c->loop->ready, c, in_ready);
    }
}

static void leave_lists(struct connection *c)
{
    if (c->is_ready)
        TAILQ_REMOVE(&c->loop->ready, c, in_ready);
    if (c->is_dirty)
        TAILQ_REMOVE(&c->loop->dirty, c, in_dirty);
    if (c->is_starved)
        TAILQ_REMOVE(&c->loop->starved, c, in_starved);
    c->is_ready = c->is_dirty = c->is_starved = false;
}

void connection_close(struct connection *c)
{
    if (c->state == CONNECTION_OPEN) {
        c->state = CONNECTION_CLOSING;
        mark_dirty(c);
    }
}

void connection_doom(struct connection *c)
{
    if (is_dead(c))
        return;
    leave_lists(c);
    c->state = CONNECTION_DOOMED;
    TAILQ_REMOVE(&c->loop->connections, c, in_connections);
    TAILQ_INSERT_TAIL(&c->loop->doomed, c, in_connections);
}

void connection_complain(struct connection *c, const char *why)
{
    struct io_loop *loop = c->loop;
    if (loop->face.now_ns - loop->complained_ns > 10000 * MS) {
        loop->complained_ns = loop->face.now_ns;
        loop->complaints = 0;
    }
    if (loop->complaints++ < COMPLAINTS_PER_10_S)
        diag_log(loop->face.diag, DIAG_WARN, c->name, "closing the connection: %s", why);
}

static void set_reading(struct connection *c, bool reads)
{
    if (c->reads == reads)
        return;
    if (reads ? event_add(&c->readable, NULL) < 0 : event_del(&c->readable) < 0)
        connection_doom(c);
    else
        c->reads = reads;
}

static void set_writing(struct connection *c, bool writes)
{
    if (c->writes == writes)
        return;
    if (writes ? event_add(&c->writable, NULL) < 0 : event_del(&c->writable) < 0)
        connection_doom(c);
    else
        c->writes = writes;
}

static void tell_requests(struct connection *c)
{
    struct request *next;
    for (struct request *r = c->requests; r; r = next) {
        next = r->next;
        r->is_gone = true;
        if (r->on_gone)
            r->on_gone(r);
    }
}

void connection_bury(struct connection *c)
{
    assert(is_dead(c));
    if (c->state == CONNECTION_DOOMED) {
        c->state = CONNECTION_BURIED;
        event_del(&c->readable);
        event_del(&c->writable);
        close(c->fd);
        c->fd = -1;
        listener_counts_remove(c->loop->counts, &c->address);
        input_done(&c->in);
        output_done(&c->out);
        TAILQ_INSERT_TAIL(&c->loop->buried, c, in_connections);
        c->requests_count++; /* so that nobody frees it under our feet */
        tell_requests(c);
        c->requests_count--;
    } else {
        TAILQ_INSERT_TAIL(&c->loop->buried, c, in_connections);
    }
    if (!c->requests_count)
        connection_free(c);
}

void connection_free(struct connection *c)
{
    TAILQ_REMOVE(&c->loop->buried, c, in_connections);
    handlers_peer_gone(&c->peer);
    free(c);
}

void connection_request_ended(struct connection *c)
{
    assert(c->requests_count > 0);
    c->requests_count--;
    c->used_ns = c->loop->face.now_ns;
    if (c->state == CONNECTION_BURIED && !c->requests_count) {
        TAILQ_REMOVE(&c->loop->buried, c, in_connections);
        TAILQ_INSERT_TAIL(&c->loop->doomed, c, in_connections);
    } else if (c->is_blocked || c->state != CONNECTION_OPEN) {
        mark_dirty(c);
    }
}

/* ---- reading ------------------------------------------------------------------------------------------- */

static bool is_over_limit(const struct connection *c)
{
    return c->requests_count >= c->loop->settings.requests_in_flight_max ||
           c->out.bytes >= c->loop->settings.output_bytes_max;
}

/* Reading goes on when half of what is allowed is free again, not at the first byte: telling the kernel
 * costs. */
static bool is_well_below_limit(const struct connection *c)
{
    return c->requests_count <= c->loop->settings.requests_in_flight_max / 2 &&
           c->out.bytes <= c->loop->settings.output_bytes_max / 2;
}

static void starve(struct connection *c)
{
    if (c->is_starved)
        return;
    c->is_starved = true;
    TAILQ_INSERT_TAIL(&c->loop->starved, c, in_starved);
}

/* A status without a correlation id: the stream can not be followed any further. */
static void refuse_stream(struct connection *c, const struct brook_error *error)
{
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__Status status = BROOK__STATUS__INIT;
    status.has_code = true;
    status.code = error->code;
    status.has_text = true;
    status.text = envelope_text(error->text);
    response.status = &status;
    connection_reply(c, &response, NULL, 0);
    connection_complain(c, error->text);
    connection_close(c);
}

static void send_bytes(struct connection *c, const void *data, size_t bytes)
{
    void *at = output_reserve(&c->out, bytes);
    if (at) {
        memcpy(at, data, bytes);
        output_commit(&c->out, bytes);
    }
    connection_close(c);
}

/* Before the first frame: somebody who speaks another protocol gets an answer in it, not a length check.
 * Returns whether the connection is being closed. */
static bool refuse_foreigner(struct connection *c)
{
    static const char http[] =
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n"
        "Content-Length: 57\r\n\r\nThis is a Brook broker: it speaks its own protocol here.\n";
    static const uint8_t tls_alert[] = {0x15, 0x03, 0x01, 0x00,
                                        0x02, 0x02, 0x28}; /* fatal, handshake failure */
    _Static_assert(sizeof "This is a Brook broker: it speaks its own protocol here.\n" == 58,
                   "Content-Length");
    size_t bytes;
    const uint8_t *data = input_peek(&c->in, &bytes);
    if (bytes < 4)
        return false;
    switch (frame_recognise(data, bytes)) {
    case FRAME_HTTP:
        connection_complain(c, "it speaks HTTP, on a port for Brook clients");
        send_bytes(c, http, sizeof http - 1);
        return true;
    case FRAME_TLS:
        connection_complain(c, "it speaks TLS, on a plain port");
        send_bytes(c, tls_alert, sizeof tls_alert);
        return true;
    case FRAME_KAFKA:
        connection_complain(c, "it speaks Kafka's protocol, not Brook's");
        connection_close(c);
        return true;
    default:
        return false;
    }
}

static int next_frame(struct connection *c, struct input_frame *frame, struct brook_error *error)
{
    bool is_known = c->peer.version > 0;
    uint32_t frame_bytes_max = is_known ? c->loop->settings.frame_bytes_max : FRAME_BYTES_MAX_FIRST;
    uint32_t envelope_bytes_max = c->peer.is_broker ? ENVELOPE_BYTES_MAX_BROKER : ENVELOPE_BYTES_MAX_CLIENT;
    c->in.hold = !c->is_starved && !TAILQ_EMPTY(&c->loop->starved);
    return input_next(&c->in, frame_bytes_max, envelope_bytes_max, frame, error);
}

/* Carry out what has been read. */
static void process(struct connection *c)
{
    struct brook_error error;
    struct input_frame frame;
    mark_dirty(c);
    if (!c->has_spoken && c->state == CONNECTION_OPEN && refuse_foreigner(c))
        return;
    for (unsigned served = 0; c->state == CONNECTION_OPEN && !c->is_starved; served++) {
        if (is_over_limit(c)) {
            c->is_blocked = true;
            return;
        }
        if (served == REQUESTS_PER_TURN) {
            mark_ready(c);
            return;
        }
        int r = next_frame(c, &frame, &error);
        if (r == -BROOK_E_BUSY)
            starve(c);
        else if (r < 0 && r != -BROOK_E_AGAIN)
            refuse_stream(c, &error);
        if (r < 0)
            break;
        c->has_spoken = true;
        c->half_ns = 0;
        dispatch_frame(c, &frame);
    }
    /* All whole frames are done: what a peer that has ended left half sent will never be whole. */
    if (c->has_ended && c->state == CONNECTION_OPEN && !c->is_starved)
        connection_close(c);
}

static void discard(struct connection *c)
{
    char waste[16384];
    ssize_t n = recv(c->fd, waste, sizeof waste, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        connection_doom(c);
}

static void read_once(struct connection *c)
{
    ssize_t n = input_read(&c->in, c->fd);
    if (n == -BROOK_E_AGAIN)
        return;
    if (n == -BROOK_E_DISCONNECTED) {
        connection_doom(c);
        return;
    }
    if (n == -BROOK_E_BUSY) { /* no memory at all: look again with the periodic pass */
        set_reading(c, false);
        return;
    }
    if (n == 0) {
        c->has_ended = true;
    } else {
        c->read_ns = c->loop->face.now_ns;
        c->half_bytes += (uint64_t)n;
    }
    process(c);
}

static void on_readable(evutil_socket_t fd, short events, void *arg)
{
    struct connection *c = arg;
    loop_turn_begin(c->loop);
    if (c->state == CONNECTION_LINGERING)
        discard(c);
    else if (c->state == CONNECTION_OPEN && !c->is_ready)
        read_once(c);
}

static void on_writable(evutil_socket_t fd, short events, void *arg)
{
    struct connection *c = arg;
    loop_turn_begin(c->loop);
    mark_dirty(c);
}

void connection_resume(struct connection *c)
{
    process(c);
}

/* ---- answering ----------------------------------------------------------------------------------------- */

static void drop_ranges(struct log_range *ranges, size_t count)
{
    for (size_t i = 0; i < count; i++)
        log_range_done(&ranges[i]);
}

void connection_reply(struct connection *c, Brook__Response *response, struct log_range *ranges,
                      size_t ranges_count)
{
    if (is_dead(c)) {
        drop_ranges(ranges, ranges_count);
        return;
    }
    size_t records = 0;
    for (size_t i = 0; i < ranges_count; i++)
        records += ranges[i].bytes;
    size_t envelope = brook__response__get_packed_size(response);
    assert(envelope + records < UINT32_MAX - 4);
    if (output_is_empty(&c->out))
        c->sent_ns = c->loop->face.now_ns;
    uint8_t *at = output_reserve(&c->out, FRAME_PREFIX_BYTES + envelope);
    int r = -BROOK_E_NOMEM;
    if (at) {
        frame_write_prefix(at, (uint32_t)envelope, (uint32_t)records);
        brook__response__pack(response, at + FRAME_PREFIX_BYTES);
        r = output_commit(&c->out, FRAME_PREFIX_BYTES + envelope);
    }
    for (size_t i = 0; i < ranges_count; i++) {
        int added = output_add_range(&c->out, &ranges[i]);
        r = r < 0 ? r : added;
    }
    if (r < 0) {
        connection_complain(c, "out of memory for an answer");
        connection_doom(c);
        return;
    }
    mark_dirty(c);
}

/* On a disk thread. What can not be read will fail again, and be told, when it is sent. */
static void read_cold(struct disk_work *work)
{
    struct connection *c = CONTAINER_OF(work, struct connection, warming);
    char waste[65536];
    size_t done = 0;
    posix_fadvise(c->cold.fd, c->cold.position, (off_t)c->cold.bytes, POSIX_FADV_WILLNEED);
    while (done < c->cold.bytes) {
        ssize_t n = pread(c->cold.fd, waste, sizeof waste, c->cold.position + (off_t)done);
        if (n == 0 || (n < 0 && errno != EINTR))
            break;
        done += n > 0 ? (size_t)n : 0;
    }
}

static void go_on_warm(struct disk_work *work)
{
    struct connection *c = CONTAINER_OF(work, struct connection, warming);
    loop_turn_begin(c->loop);
    close(c->cold.fd);
    c->is_warming = false;
    c->sent_ns = c->loop->face.now_ns;
    output_warmed(&c->out, &c->cold);
    mark_dirty(c);
    connection_request_ended(c);
}

/* Let a disk thread wait for the disk instead of the loop. Without a descriptor for that the loop waits. */
static void warm(struct connection *c, const struct output_cold *cold)
{
    c->cold = *cold;
    c->cold.fd = c->loop->disk_threads ? dup(cold->fd) : -1;
    if (c->cold.fd < 0) {
        output_warmed(&c->out, cold);
        mark_dirty(c);
        return;
    }
    c->is_warming = true;
    c->requests_count++;
    c->warming = (struct disk_work){.run = read_cold, .done = go_on_warm, .inbox = &c->loop->inbox};
    disk_threads_submit(c->loop->disk_threads, &c->warming);
}

static void flush(struct connection *c)
{
    size_t sent;
    struct output_cold cold;
    int r = output_flush(&c->out, c->fd, OUTPUT_BYTES_PER_TURN, &sent, &cold);
    if (sent)
        c->sent_ns = c->loop->face.now_ns;
    if (r == -BROOK_E_STORAGE_ERROR)
        connection_complain(c, "records that were promised can not be read from the log");
    if (r == 0 || r == -BROOK_E_AGAIN || r == -BROOK_E_BUSY) {
        set_writing(c, r < 0);
    } else if (r == -BROOK_E_LOCKED) {
        set_writing(c, false);
        warm(c, &cold);
    } else {
        connection_doom(c);
    }
}

/* All is answered and sent. */
static void finish(struct connection *c)
{
    if (c->has_ended || shutdown(c->fd, SHUT_WR) < 0) {
        connection_doom(c);
        return;
    }
    c->state = CONNECTION_LINGERING;
    c->linger_until_ns = c->loop->face.now_ns + LINGER_MS * MS;
    set_reading(c, true);
}

/* Time in which we do not read by our own choice is not held against the peer. */
static void count_pause(struct connection *c, bool is_paused)
{
    int64_t now = c->loop->face.now_ns;
    if (is_paused && !c->paused_ns) {
        c->paused_ns = now;
    } else if (!is_paused && c->paused_ns) {
        if (c->half_ns)
            c->half_ns += now - c->paused_ns;
        c->paused_ns = 0;
    }
}

static void settle_reading(struct connection *c)
{
    if (c->is_blocked && is_well_below_limit(c)) {
        c->is_blocked = false;
        mark_ready(c);
    }
    bool is_paused = c->is_blocked || c->is_starved;
    count_pause(c, is_paused);
    set_reading(c, !is_paused && !c->has_ended);
    if (c->state != CONNECTION_OPEN || is_paused || c->is_ready)
        return;
    input_settle(&c->in, c->fd);
    if (!c->half_ns && input_is_half(&c->in)) {
        c->half_ns = c->read_ns;
        c->half_bytes = 0;
    }
}

void connection_settle(struct connection *c)
{
    if (is_dead(c))
        return;
    if (c->state == CONNECTION_CLOSING && !c->has_woken) {
        c->has_woken = true;
        handlers_peer_wake(&c->peer);
    }
    if (!output_is_empty(&c->out) && !c->is_warming)
        flush(c);
    if (c->state == CONNECTION_OPEN) {
        settle_reading(c);
    } else if (c->state == CONNECTION_CLOSING) {
        set_reading(c, false);
        if (c->state == CONNECTION_CLOSING && !c->requests_count && output_is_empty(&c->out))
            finish(c);
    }
}

/* ---- the periodic look --------------------------------------------------------------------------------- */

static bool frame_is_too_slow(const struct connection *c)
{
    const struct net_settings *s = &c->loop->settings;
    if (!c->half_ns || c->paused_ns)
        return false;
    int64_t allowed_ms = s->frame_ms_max;
    if (s->frame_bytes_per_s_min)
        allowed_ms += (int64_t)(c->half_bytes * 1000 / s->frame_bytes_per_s_min);
    return c->loop->face.now_ns - c->half_ns > allowed_ms * MS;
}

static bool is_idle(const struct connection *c)
{
    int64_t last = c->used_ns > c->read_ns ? c->used_ns : c->read_ns;
    return !c->requests_count && output_is_empty(&c->out) &&
           c->loop->face.now_ns - last > c->loop->settings.idle_ms_max * MS;
}

void connection_check(struct connection *c)
{
    int64_t now = c->loop->face.now_ns;
    const struct net_settings *s = &c->loop->settings;
    const char *why = NULL;
    if (c->state == CONNECTION_LINGERING) {
        if (now > c->linger_until_ns)
            connection_doom(c);
        return;
    }
    /* The kernel wakes us only for a good part of a large frame: see how far it has come before judging. */
    if (c->reads && c->in.lowat > 1 && c->state == CONNECTION_OPEN && !c->is_ready)
        read_once(c);
    if (is_dead(c))
        return;
    if (c->state == CONNECTION_OPEN && !c->peer.version && now - c->opened_ns > s->hello_ms_max * MS)
        why = "it did not say hello in time";
    else if (!output_is_empty(&c->out) && !c->is_warming && now - c->sent_ns > s->send_ms_max * MS)
        why = "it does not read its answers";
    else if (frame_is_too_slow(c))
        why = "a frame was begun and not finished in time";
    if (why)
        connection_complain(c, why);
    if (why || is_idle(c))
        connection_doom(c);
    else
        mark_dirty(c);
}
