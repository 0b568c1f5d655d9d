#include "proto/wire/channel_parts.h"

#include "proto/base/err.h"
#include "proto/base/pool.h"
#include "proto/wire/frame.h"

#include <errno.h>
#include <string.h>

/* Received per turn before others get theirs. */
#define RECEIVES_PER_TURN 8
/* A receive that can fill this much is worth setting SO_RCVLOWAT for. */
#define LOWAT_BYTES_MIN ((size_t)64 << 10)
#define LOWAT_BYTES_MAX ((size_t)256 << 10)
#define POOL_RETRY_MS 5

static const char *stranger(enum frame_foreign what)
{
    switch (what) {
    case FRAME_HTTP:
        return "the peer speaks HTTP, not Brook";
    case FRAME_TLS:
        return "the peer speaks TLS, not Brook";
    case FRAME_KAFKA:
        return "the peer speaks Kafka's protocol, not Brook";
    case FRAME_BROOK:
    case FRAME_UNKNOWN:
        break;
    }
    return "the peer does not speak Brook";
}

static void on_hello(struct channel *c, const Brook__Response *response)
{
    struct brook_error error;
    if (response->correlation_id != c->hello_id) {
        channel_close_connection(c, BROOK_E_BAD_FRAME, "the first reply is not the answer to Hello");
        return;
    }
    if (envelope_status_read(response->status, &error) < 0) {
        channel_close_connection(c, error.code, error.text);
        return;
    }
    if (response->body_case != BROOK__RESPONSE__BODY_HELLO || response->hello->version != 1) {
        channel_close_connection(c, BROOK_E_UNSUPPORTED_VERSION,
                                 brook_error_text(BROOK_E_UNSUPPORTED_VERSION));
        return;
    }
    pending_remove(&c->pending, pending_find(&c->pending, c->hello_id));
    c->state = CHANNEL_READY;
    c->connect_until_ns = NEVER;
    c->used_ns = c->now_ns;
    c->intake.frame_bytes_max = c->settings.frame_bytes_max;
    if (c->events.ready)
        c->events.ready(c->events.arg, response->hello);
    if (c->state == CHANNEL_READY)
        channel_flush_later(c);
}

static void on_reply(struct channel *c, const Brook__Response *response, const struct intake_frame *frame)
{
    struct pending_request *request =
        response->has_correlation_id ? pending_find(&c->pending, response->correlation_id) : NULL;
    if (!request) {
        channel_close_connection(c, BROOK_E_BAD_FRAME, "a reply to a request that was not sent");
        return;
    }
    if (request->end > outbox_head(&c->outbox)) {
        channel_close_connection(c, BROOK_E_BAD_FRAME, "a reply to a request that is still being sent");
        return;
    }
    struct channel_reply reply = {.response = response,
                                  .records = frame->slab ? frame->slab->data : NULL,
                                  .records_bytes = frame->records_bytes,
                                  .slab = frame->slab,
                                  .round_trip_ns = c->now_ns - request->sent_ns};
    if (request->live)
        channel_end_request(c, request, &reply);
    else
        pending_remove(&c->pending, request);
}

static void on_frame(struct channel *c, const struct intake_frame *frame)
{
    Brook__Response *response;
    arena_reset(c->arena);
    if (envelope_unpack_response(c->arena, frame->envelope, frame->envelope_bytes, &response) < 0) {
        channel_close_connection(c, BROOK_E_BAD_ENVELOPE, "a reply that makes no sense");
        return;
    }
    if (c->state == CHANNEL_READY)
        on_reply(c, response, frame);
    else
        on_hello(c, response);
}

static void starve(struct channel *c)
{
    c->starved = true;
    event_del(c->readable);
    c->retry_ns = c->now_ns + POOL_RETRY_MS * NS_PER_MS;
}

/* A peer that has not answered Hello and begins with something else is named for what it is. */
static bool refuse_stranger(struct channel *c)
{
    size_t bytes;
    const uint8_t *data = intake_peek(&c->intake, &bytes);
    if (c->state != CHANNEL_CONNECTING || bytes < 4 || c->intake.state != INTAKE_PREFIX)
        return false;
    enum frame_foreign what = frame_recognise(data, bytes);
    if (what == FRAME_BROOK)
        return false;
    channel_close_connection(c, BROOK_E_NOT_BROOK, stranger(what));
    return true;
}

static void take_frames(struct channel *c)
{
    struct brook_error error;
    struct intake_frame frame;
    int r = 0;
    if (refuse_stranger(c))
        return;
    while (c->fd >= 0 && (r = intake_next(&c->intake, &frame, &error)) == 0) {
        /* Own reference: a callback that closes the connection resets the intake. */
        struct slab *slab = frame.slab ? slab_ref(frame.slab) : NULL;
        on_frame(c, &frame);
        slab_unref(slab);
        if (c->intake.held)
            intake_release(&c->intake);
    }
    if (c->fd < 0)
        return;
    if (r == -BROOK_E_QUEUE_FULL)
        starve(c);
    else if (r == -BROOK_E_NOMEM)
        channel_close_connection(c, BROOK_E_NOMEM, brook_error_text(BROOK_E_NOMEM));
    else if (r < 0 && r != -BROOK_E_AGAIN)
        channel_close_connection(c, error.code, error.text);
}

/* Wake up once for many bytes while a large reply is on its way, and for any byte else. */
static void set_lowat(struct channel *c)
{
    size_t expected = intake_expected(&c->intake);
    int lowat = 1;
    if (expected > LOWAT_BYTES_MIN || c->lowat > 1)
        lowat = expected > LOWAT_BYTES_MAX ? (int)LOWAT_BYTES_MAX : expected > 0 ? (int)expected : 1;
    if (lowat == c->lowat)
        return;
    if (setsockopt(c->fd, SOL_SOCKET, SO_RCVLOWAT, &lowat, sizeof lowat) == 0)
        c->lowat = lowat;
}

/* Returns whether there may be more. */
static bool receive_once(struct channel *c)
{
    struct iovec iov[INTAKE_IOV_MAX];
    size_t n = intake_room(&c->intake, iov);
    if (n == 0) {
        channel_close_connection(c, BROOK_E_NOMEM, brook_error_text(BROOK_E_NOMEM));
        return false;
    }
    size_t room = iov[0].iov_len + (n > 1 ? iov[1].iov_len : 0);
    ssize_t got = n == 1 ? recv(c->fd, iov[0].iov_base, iov[0].iov_len, 0) : readv(c->fd, iov, (int)n);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (got <= 0) {
        const char *text = got == 0 ? "the peer closed the connection" : strerror(errno);
        channel_close_connection(c, BROOK_E_DISCONNECTED, text);
        return false;
    }
    c->received_ns = c->used_ns = c->now_ns;
    unsigned connection = c->connection;
    intake_received(&c->intake, (size_t)got);
    take_frames(c);
    return c->fd >= 0 && c->connection == connection && !c->starved && (size_t)got == room;
}

void channel_on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct channel *c = arg;
    channel_enter(c);
    for (int i = 0; i < RECEIVES_PER_TURN && receive_once(c); i++)
        ;
    if (c->fd >= 0)
        set_lowat(c);
    channel_leave(c);
}

void channel_resume_receiving(struct channel *c)
{
    c->retry_ns = NEVER;
    c->starved = false;
    event_add(c->readable, NULL);
    take_frames(c);
    if (c->fd >= 0)
        set_lowat(c);
}
