#include "broker/net/connection_internal.h"

#include "broker/net/dispatch.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

/* Of one connection before the others have their turn. */
#define REQUESTS_PER_TURN 512

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
    if (is_known)
        c->in.buffer_bytes = INPUT_BUFFER_BYTES;
    c->in.hold = !c->is_starved && !TAILQ_EMPTY(&c->loop->starved);
    return input_next(&c->in, frame_bytes_max, envelope_bytes_max, frame, error);
}

/* Carry out what has been read. */
static void process(struct connection *c)
{
    struct brook_error error;
    struct input_frame frame;
    connection_mark_dirty(c);
    if (!c->has_spoken && c->state == CONNECTION_OPEN && refuse_foreigner(c))
        return;
    for (unsigned served = 0; c->state == CONNECTION_OPEN && !c->is_starved; served++) {
        if (connection_is_over_limit(c)) {
            c->is_blocked = true;
            return;
        }
        if (served == REQUESTS_PER_TURN) {
            connection_mark_ready(c);
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

void connection_read_once(struct connection *c)
{
    ssize_t n = input_read(&c->in, c->fd);
    if (n == -BROOK_E_AGAIN)
        return;
    if (n == -BROOK_E_DISCONNECTED) {
        connection_doom(c);
        return;
    }
    if (n == -BROOK_E_BUSY) { /* no memory at all: look again with the periodic pass */
        connection_set_reading(c, false);
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

void connection_on_readable(evutil_socket_t fd, short events, void *arg)
{
    struct connection *c = arg;
    loop_turn_begin(c->loop);
    if (c->state == CONNECTION_LINGERING)
        discard(c);
    else if (c->state == CONNECTION_OPEN && !c->is_ready)
        connection_read_once(c);
}

void connection_on_writable(evutil_socket_t fd, short events, void *arg)
{
    struct connection *c = arg;
    loop_turn_begin(c->loop);
    connection_mark_dirty(c);
}

void connection_resume(struct connection *c)
{
    process(c);
}
