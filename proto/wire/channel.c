#include "proto/wire/channel.h"

#include "proto/base/clock.h"
#include "proto/base/err.h"
#include "proto/base/pool.h"
#include "proto/wire/frame.h"
#include "proto/wire/intake.h"
#include "proto/wire/outbox.h"
#include "proto/wire/pending.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NS_PER_MS 1000000LL
#define NEVER INT64_MAX
#define GATHER_MAX 128
/* Received and sent per turn before others get theirs. */
#define RECEIVES_PER_TURN 8
#define SEND_BYTES_PER_TURN ((size_t)8 << 20)
/* A receive that can fill this much is worth setting SO_RCVLOWAT for. */
#define LOWAT_BYTES_MIN ((size_t)64 << 10)
#define LOWAT_BYTES_MAX ((size_t)256 << 10)
/* What one reply's messages may take in memory. */
#define REPLY_BUDGET_BYTES ((size_t)64 << 20)
#define POOL_RETRY_MS 5

/* A request without a reply, until the socket has taken it. */
struct oneway {
    uint64_t first, end; /* pieces */
    void (*sent)(void *arg, int err);
    void *arg;
};

struct channel {
    struct channel_settings settings;
    struct channel_events events;
    char *client_id, *software;
    char peer[INET6_ADDRSTRLEN + 16];

    int fd;
    enum channel_state state;
    bool tcp_connected;
    bool blocked;    /* the socket takes no more: waiting for it */
    bool starved;    /* the pool has no slab: receiving nothing */
    bool flushing;   /* the flush event is active */
    bool closing;    /* requests are being ended */
    bool doomed;     /* channel_free() was called inside a callback */
    unsigned depth;  /* of our own event handlers */
    unsigned connection; /* counts them */
    int lowat;

    struct event *readable, *writable, *flush, *timer;
    int64_t timer_at_ns;
    int64_t now_ns;           /* of this turn */
    int64_t connect_until_ns;
    int64_t deadline_first_ns; /* no live request has an earlier deadline */
    int64_t received_ns, used_ns;
    int64_t retry_ns;

    uint64_t hello_id;
    uint64_t hello_end; /* pieces that may leave before Hello was answered */
    struct outbox outbox;
    struct pending pending;
    struct intake intake;
    struct arena *arena;
    struct oneway *oneways; /* a ring, its capacity a power of two */
    size_t oneways_capacity;
    uint64_t oneways_head, oneways_tail;
};

static void close_connection(struct channel *c, int code, const char *text);

/* ---- time -------------------------------------------------------------------------------------------- */

static int64_t earliest(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t idle_until(const struct channel *c)
{
    bool applies = c->settings.idle_timeout_ms > 0 && c->state == CHANNEL_READY;
    return applies ? c->used_ns + c->settings.idle_timeout_ms * NS_PER_MS : NEVER;
}

/* One timer for connecting, deadlines, idleness and a pool that ran dry. */
static void arm_timer(struct channel *c)
{
    int64_t at = earliest(c->deadline_first_ns, c->connect_until_ns);
    at = earliest(at, earliest(idle_until(c), c->retry_ns));
    if (c->fd < 0)
        at = NEVER;
    if (at >= c->timer_at_ns)
        return;
    int64_t wait_ns = at > c->now_ns + NS_PER_MS ? at - c->now_ns : NS_PER_MS;
    struct timeval wait = {.tv_sec = wait_ns / 1000000000, .tv_usec = (wait_ns % 1000000000) / 1000};
    if (event_add(c->timer, &wait) == 0)
        c->timer_at_ns = at;
}

/* ---- ending requests --------------------------------------------------------------------------------- */

/* Take the request out and tell its owner. */
static void end_request(struct channel *c, struct pending_request *request, const struct channel_reply *reply)
{
    channel_callback *callback = request->callback;
    void *arg = request->arg;
    if (request->live && reply->err == -BROOK_E_TIMED_OUT)
        pending_give_up(&c->pending, request);
    else
        pending_remove(&c->pending, request);
    if (callback)
        callback(arg, reply);
}

static struct oneway *oneway_at(struct channel *c, uint64_t number)
{
    return &c->oneways[number & (c->oneways_capacity - 1)];
}

static void end_oneways(struct channel *c, int err)
{
    while (c->oneways_head != c->oneways_tail) {
        struct oneway one = *oneway_at(c, c->oneways_head++);
        int why = err == -BROOK_E_DISCONNECTED && outbox_is_whole(&c->outbox, one.first)
                      ? -BROOK_E_CONNECT_FAILED : err;
        if (one.sent)
            one.sent(one.arg, why);
    }
}

static void end_requests(struct channel *c, int err)
{
    struct pending_request *request;
    while ((request = pending_first(&c->pending))) {
        bool unsent = err == -BROOK_E_DISCONNECTED && outbox_is_whole(&c->outbox, request->first);
        struct channel_reply reply = {.err = unsent ? -BROOK_E_CONNECT_FAILED : err,
                                      .round_trip_ns = c->now_ns - request->sent_ns};
        end_request(c, request, &reply);
    }
    end_oneways(c, err);
    pending_forget_late(&c->pending);
    outbox_reset(&c->outbox);
}

static void drop_socket(struct channel *c)
{
    if (c->readable)
        event_free(c->readable);
    if (c->writable)
        event_free(c->writable);
    c->readable = c->writable = NULL;
    event_del(c->timer);
    event_del(c->flush);
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
    c->state = CHANNEL_IDLE;
    c->tcp_connected = c->blocked = c->starved = c->flushing = false;
    c->timer_at_ns = c->connect_until_ns = c->deadline_first_ns = c->retry_ns = NEVER;
    c->lowat = 1;
    intake_reset(&c->intake);
}

static void close_connection(struct channel *c, int code, const char *text)
{
    if (c->fd < 0 || c->closing)
        return;
    struct brook_error why;
    brook_error_set(&why, code, "%s: %s", c->peer, text);
    c->closing = true;
    drop_socket(c);
    end_requests(c, -BROOK_E_DISCONNECTED);
    c->closing = false;
    if (!c->doomed && c->events.closed)
        c->events.closed(c->events.arg, &why);
}

/* ---- sending ----------------------------------------------------------------------------------------- */

static void wait_writable(struct channel *c)
{
    c->blocked = true;
    event_add(c->writable, NULL);
}

static void finish_oneways(struct channel *c)
{
    while (c->oneways_head != c->oneways_tail) {
        struct oneway one = *oneway_at(c, c->oneways_head);
        if (one.end > outbox_head(&c->outbox))
            return;
        c->oneways_head++;
        if (one.sent)
            one.sent(one.arg, 0);
    }
}

static void flush_later(struct channel *c)
{
    if (c->flushing || c->blocked || !c->tcp_connected)
        return;
    c->flushing = true;
    event_active(c->flush, EV_WRITE, 1);
}

static void flush_now(struct channel *c)
{
    size_t sent_in_turn = 0;
    while (c->tcp_connected && c->outbox.bytes > 0 && !c->blocked) {
        struct iovec iov[GATHER_MAX];
        struct msghdr message = {.msg_iov = iov};
        uint64_t until = c->state == CHANNEL_READY ? UINT64_MAX : c->hello_end;
        message.msg_iovlen = outbox_gather(&c->outbox, until, iov, GATHER_MAX);
        if (message.msg_iovlen == 0)
            return;
        if (sent_in_turn >= SEND_BYTES_PER_TURN) {
            flush_later(c);
            return;
        }
        size_t gathered = 0;
        for (size_t i = 0; i < message.msg_iovlen; i++)
            gathered += iov[i].iov_len;
        ssize_t n = sendmsg(c->fd, &message, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN) {
            close_connection(c, BROOK_E_DISCONNECTED, strerror(errno));
            return;
        }
        if (n > 0)
            outbox_consume(&c->outbox, (size_t)n);
        if (n < 0 || (size_t)n < gathered)
            wait_writable(c);
        sent_in_turn += n > 0 ? (size_t)n : 0;
    }
    /* What was dropped at the front is gone, too. */
    outbox_consume(&c->outbox, 0);
}

/* ---- receiving --------------------------------------------------------------------------------------- */

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
        close_connection(c, BROOK_E_BAD_FRAME, "the first reply is not the answer to Hello");
        return;
    }
    if (envelope_status_read(response->status, &error) < 0) {
        close_connection(c, error.code, error.text);
        return;
    }
    if (response->body_case != BROOK__RESPONSE__BODY_HELLO || response->hello->version != 1) {
        close_connection(c, BROOK_E_UNSUPPORTED_VERSION, brook_error_text(BROOK_E_UNSUPPORTED_VERSION));
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
        flush_later(c);
}

static void on_reply(struct channel *c, const Brook__Response *response, const struct intake_frame *frame)
{
    struct pending_request *request =
        response->has_correlation_id ? pending_find(&c->pending, response->correlation_id) : NULL;
    if (!request) {
        close_connection(c, BROOK_E_BAD_FRAME, "a reply to a request that was not sent");
        return;
    }
    if (request->end > outbox_head(&c->outbox)) {
        close_connection(c, BROOK_E_BAD_FRAME, "a reply to a request that is still being sent");
        return;
    }
    struct channel_reply reply = {.response = response,
                                  .records = frame->slab ? frame->slab->data : NULL,
                                  .records_bytes = frame->records_bytes,
                                  .slab = frame->slab,
                                  .round_trip_ns = c->now_ns - request->sent_ns};
    if (request->live)
        end_request(c, request, &reply);
    else
        pending_remove(&c->pending, request);
}

static void on_frame(struct channel *c, const struct intake_frame *frame)
{
    Brook__Response *response;
    arena_reset(c->arena);
    if (envelope_unpack_response(c->arena, frame->envelope, frame->envelope_bytes, &response) < 0) {
        close_connection(c, BROOK_E_BAD_ENVELOPE, "a reply that makes no sense");
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
    close_connection(c, BROOK_E_NOT_BROOK, stranger(what));
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
        close_connection(c, BROOK_E_NOMEM, brook_error_text(BROOK_E_NOMEM));
    else if (r < 0 && r != -BROOK_E_AGAIN)
        close_connection(c, error.code, error.text);
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
        close_connection(c, BROOK_E_NOMEM, brook_error_text(BROOK_E_NOMEM));
        return false;
    }
    size_t room = iov[0].iov_len + (n > 1 ? iov[1].iov_len : 0);
    ssize_t got = n == 1 ? recv(c->fd, iov[0].iov_base, iov[0].iov_len, 0) : readv(c->fd, iov, (int)n);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (got <= 0) {
        const char *text = got == 0 ? "the peer closed the connection" : strerror(errno);
        close_connection(c, BROOK_E_DISCONNECTED, text);
        return false;
    }
    c->received_ns = c->used_ns = c->now_ns;
    unsigned connection = c->connection;
    intake_received(&c->intake, (size_t)got);
    take_frames(c);
    return c->fd >= 0 && c->connection == connection && !c->starved && (size_t)got == room;
}

/* ---- events ------------------------------------------------------------------------------------------ */

static void enter(struct channel *c)
{
    c->depth++;
    c->now_ns = clock_boot_ns();
}

static void destroy(struct channel *c)
{
    drop_socket(c);
    event_free(c->timer);
    event_free(c->flush);
    outbox_done(&c->outbox);
    pending_done(&c->pending);
    intake_done(&c->intake);
    arena_free(c->arena);
    free(c->oneways);
    free(c->client_id);
    free(c->software);
    free(c);
}

static void leave(struct channel *c)
{
    if (--c->depth > 0)
        return;
    if (c->doomed)
        destroy(c);
    else
        arm_timer(c);
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct channel *c = arg;
    enter(c);
    for (int i = 0; i < RECEIVES_PER_TURN && receive_once(c); i++)
        ;
    if (c->fd >= 0)
        set_lowat(c);
    leave(c);
}

static void finish_connect(struct channel *c)
{
    int error = 0;
    socklen_t bytes = sizeof error;
    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &bytes) < 0)
        error = errno;
    if (error) {
        close_connection(c, BROOK_E_CONNECT_FAILED, strerror(error));
        return;
    }
    c->tcp_connected = true;
    event_add(c->readable, NULL);
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
    struct channel *c = arg;
    enter(c);
    c->blocked = false;
    if (!c->tcp_connected)
        finish_connect(c);
    if (c->fd >= 0)
        flush_now(c);
    if (c->fd >= 0)
        finish_oneways(c);
    leave(c);
}

static void on_flush(evutil_socket_t fd, short what, void *arg)
{
    struct channel *c = arg;
    enter(c);
    c->flushing = false;
    flush_now(c);
    if (c->fd >= 0)
        finish_oneways(c);
    leave(c);
}

/* A deadline has come. A request of which nothing has left is taken back; one that is half out, or whose peer has
 * been silent for longer than a connection may take to be made, costs the connection. */
static void expire_request(struct channel *c, struct pending_request *request)
{
    struct channel_reply reply = {.err = -BROOK_E_TIMED_OUT, .round_trip_ns = c->now_ns - request->sent_ns};
    if (outbox_is_whole(&c->outbox, request->first)) {
        outbox_drop(&c->outbox, request->first, request->end);
        reply.err = -BROOK_E_REQUEST_EXPIRED;
        end_request(c, request, &reply);
        return;
    }
    int64_t patience_ns = c->settings.connect_timeout_ms * NS_PER_MS;
    int64_t since_ns = c->received_ns > request->sent_ns ? c->received_ns : request->sent_ns;
    bool silent = c->now_ns - since_ns >= patience_ns;
    bool half = request->end > outbox_head(&c->outbox);
    uint64_t first = request->first;
    end_request(c, request, &reply);
    if (c->fd < 0)
        return;
    if (half && !outbox_is_whole(&c->outbox, first))
        close_connection(c, BROOK_E_TIMED_OUT, "the peer takes no more data");
    else if (silent)
        close_connection(c, BROOK_E_TIMED_OUT, "the peer has fallen silent");
}

static void expire_requests(struct channel *c)
{
    if (c->now_ns < c->deadline_first_ns)
        return;
    /* Callbacks may send, close or free: begin anew after each. */
    for (bool again = true; again && c->fd >= 0;) {
        again = false;
        c->deadline_first_ns = NEVER;
        for (struct pending_request *q = pending_first(&c->pending); q; q = pending_next(&c->pending, q)) {
            if (q->deadline_ns <= c->now_ns) {
                expire_request(c, q);
                again = true;
                break;
            }
            c->deadline_first_ns = earliest(c->deadline_first_ns, q->deadline_ns);
        }
    }
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct channel *c = arg;
    enter(c);
    c->timer_at_ns = NEVER;
    if (c->now_ns >= c->retry_ns) {
        c->retry_ns = NEVER;
        c->starved = false;
        event_add(c->readable, NULL);
        take_frames(c);
        if (c->fd >= 0)
            set_lowat(c);
    }
    if (c->fd >= 0 && c->now_ns >= c->connect_until_ns)
        close_connection(c, BROOK_E_CONNECT_FAILED,
                         c->tcp_connected ? "no answer to Hello in time" : "no connection in time");
    if (c->fd >= 0)
        expire_requests(c);
    if (c->fd >= 0 && c->now_ns >= idle_until(c)) {
        if (c->pending.live_count == 0 && c->outbox.bytes == 0)
            close_connection(c, BROOK_E_DISCONNECTED, "not used for a while");
        else
            c->used_ns = c->now_ns;
    }
    leave(c);
}

/* ---- the face ---------------------------------------------------------------------------------------- */

int channel_new(const struct channel_settings *settings, const struct channel_events *events,
                struct channel **ret_channel)
{
    struct channel *c = calloc(1, sizeof *c);
    if (!c)
        return -BROOK_E_NOMEM;
    c->settings = *settings;
    c->events = *events;
    c->fd = -1;
    pending_init(&c->pending);
    intake_init(&c->intake, settings->pool, FRAME_BYTES_MAX_FIRST, ENVELOPE_BYTES_MAX_BROKER);
    c->client_id = strdup(settings->client_id ? settings->client_id : "");
    c->software = strdup(settings->software ? settings->software : "");
    c->timer = evtimer_new(settings->base, on_timer, c);
    c->flush = event_new(settings->base, -1, 0, on_flush, c);
    if (!c->client_id || !c->software || !c->timer || !c->flush ||
        arena_new(REPLY_BUDGET_BYTES, &c->arena) < 0) {
        if (c->timer)
            event_free(c->timer);
        if (c->flush)
            event_free(c->flush);
        free(c->client_id);
        free(c->software);
        free(c);
        return -BROOK_E_NOMEM;
    }
    drop_socket(c);
    *ret_channel = c;
    return 0;
}

void channel_free(struct channel *c)
{
    if (!c || c->doomed)
        return;
    c->doomed = true;
    c->closing = true;
    c->depth++;
    drop_socket(c);
    end_requests(c, -BROOK_E_CLOSED);
    if (--c->depth == 0)
        destroy(c);
}

static void name_peer(struct channel *c, const struct sockaddr *address)
{
    char host[INET6_ADDRSTRLEN] = "?";
    if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *six = (const void *)address;
        inet_ntop(AF_INET6, &six->sin6_addr, host, sizeof host);
        snprintf(c->peer, sizeof c->peer, "[%s]:%u", host, ntohs(six->sin6_port));
    } else {
        const struct sockaddr_in *four = (const void *)address;
        inet_ntop(AF_INET, &four->sin_addr, host, sizeof host);
        snprintf(c->peer, sizeof c->peer, "%s:%u", host, ntohs(four->sin_port));
    }
}

static void set_options(struct channel *c)
{
    int on = 1;
    unsigned patience_ms = 30000;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(c->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(c->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &patience_ms, sizeof patience_ms);
}

static int pack(struct channel *c, Brook__Request *request, const struct iovec *records, size_t records_count,
                bool copy_all);

static int queue_hello(struct channel *c)
{
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__HelloRequest hello = BROOK__HELLO_REQUEST__INIT;
    hello.has_version_min = hello.has_version_max = 1;
    hello.version_min = hello.version_max = 1;
    hello.has_software = 1;
    hello.software = envelope_text(c->software);
    request.body_case = BROOK__REQUEST__BODY_HELLO;
    request.hello = &hello;
    struct pending_request *slot = pending_add(&c->pending);
    if (!slot)
        return -BROOK_E_NOMEM;
    slot->first = outbox_tail(&c->outbox);
    slot->deadline_ns = NEVER;
    slot->sent_ns = c->now_ns;
    request.correlation_id = c->hello_id = slot->correlation_id;
    int r = pack(c, &request, NULL, 0, false);
    if (r < 0) {
        pending_remove(&c->pending, slot);
        return r;
    }
    slot->end = c->hello_end = outbox_tail(&c->outbox);
    return 0;
}

static int open_socket(struct channel *c, const struct sockaddr *address, socklen_t address_bytes)
{
    c->fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->fd < 0)
        return -BROOK_E_CONNECT_FAILED;
    set_options(c);
    c->readable = event_new(c->settings.base, c->fd, EV_READ | EV_PERSIST, on_readable, c);
    c->writable = event_new(c->settings.base, c->fd, EV_WRITE, on_writable, c);
    if (!c->readable || !c->writable)
        return -BROOK_E_NOMEM;
    if (connect(c->fd, address, address_bytes) < 0 && errno != EINPROGRESS)
        return -BROOK_E_CONNECT_FAILED;
    return event_add(c->writable, NULL) < 0 ? -BROOK_E_NOMEM : 0;
}

int channel_connect(struct channel *c, const struct sockaddr *address, socklen_t address_bytes)
{
    if (c->state != CHANNEL_IDLE || c->closing || c->doomed)
        return -BROOK_E_INVALID;
    name_peer(c, address);
    c->connection++;
    c->now_ns = clock_boot_ns();
    int r = open_socket(c, address, address_bytes);
    if (r == 0)
        r = queue_hello(c);
    if (r < 0) {
        drop_socket(c);
        return r;
    }
    c->state = CHANNEL_CONNECTING;
    c->received_ns = c->now_ns;
    c->intake.frame_bytes_max = FRAME_BYTES_MAX_FIRST;
    c->connect_until_ns = c->now_ns + c->settings.connect_timeout_ms * NS_PER_MS;
    arm_timer(c);
    return 0;
}

enum channel_state channel_get_state(const struct channel *c)
{
    return c->state;
}

size_t channel_requests_in_flight(const struct channel *c)
{
    bool hello = c->state == CHANNEL_CONNECTING;
    return c->pending.live_count - (hello ? 1 : 0);
}

size_t channel_bytes_queued(const struct channel *c)
{
    return c->outbox.bytes;
}

const char *channel_peer(const struct channel *c)
{
    return c->peer;
}

static void copy_records(uint8_t *to, const struct iovec *records, size_t records_count)
{
    for (size_t i = 0; i < records_count; i++) {
        if (records[i].iov_len > 0)
            memcpy(to, records[i].iov_base, records[i].iov_len);
        to += records[i].iov_len;
    }
}

/* Put the frame into the outbox. */
static int pack(struct channel *c, Brook__Request *request, const struct iovec *records, size_t records_count,
                bool copy_all)
{
    size_t records_bytes = 0;
    for (size_t i = 0; i < records_count; i++)
        records_bytes += records[i].iov_len;
    request->has_correlation_id = 1;
    if (c->client_id[0]) {
        request->has_client_id = 1;
        request->client_id = envelope_text(c->client_id);
    }
    size_t envelope_bytes = brook__request__get_packed_size(request);
    if (envelope_bytes > ENVELOPE_BYTES_MAX_BROKER || records_bytes > UINT32_MAX - 4 - envelope_bytes)
        return -BROOK_E_FRAME_TOO_LARGE;

    bool copy = copy_all || records_bytes <= CHANNEL_COPY_BYTES_MAX;
    size_t own = FRAME_PREFIX_BYTES + envelope_bytes + (copy ? records_bytes : 0);
    uint8_t *to = outbox_reserve(&c->outbox, own, 1 + (copy ? 0 : records_count));
    if (!to)
        return -BROOK_E_NOMEM;
    frame_write_prefix(to, (uint32_t)envelope_bytes, (uint32_t)records_bytes);
    brook__request__pack(request, to + FRAME_PREFIX_BYTES);
    if (copy)
        copy_records(to + FRAME_PREFIX_BYTES + envelope_bytes, records, records_count);
    outbox_commit(&c->outbox, own);
    for (size_t i = 0; !copy && i < records_count; i++)
        if (records[i].iov_len > 0)
            outbox_borrow(&c->outbox, records[i].iov_base, records[i].iov_len);
    return 0;
}

/* The first send of a turn reads the clock for all. */
static void begin_send(struct channel *c)
{
    if (c->depth == 0 && !c->flushing)
        c->now_ns = clock_boot_ns();
}

static void end_send(struct channel *c)
{
    c->used_ns = c->now_ns;
    flush_later(c);
    if (c->depth == 0)
        arm_timer(c);
}

int channel_send(struct channel *c, Brook__Request *request, const struct iovec *records, size_t records_count,
                 int deadline_ms, channel_callback *callback, void *arg)
{
    if (c->state == CHANNEL_IDLE || c->closing)
        return -BROOK_E_DISCONNECTED;
    begin_send(c);
    if (c->pending.live_count + c->pending.late_count >= CHANNEL_REQUESTS_MAX)
        return -BROOK_E_TOO_MANY;
    struct pending_request *slot = pending_add(&c->pending);
    if (!slot)
        return -BROOK_E_NOMEM;
    request->correlation_id = slot->correlation_id;
    if (deadline_ms > 0 && !request->has_deadline_ms) {
        request->has_deadline_ms = 1;
        request->deadline_ms = (uint32_t)deadline_ms;
    }
    slot->first = outbox_tail(&c->outbox);
    int r = pack(c, request, records, records_count, callback == NULL);
    if (r < 0) {
        pending_remove(&c->pending, slot);
        return r;
    }
    slot->end = outbox_tail(&c->outbox);
    slot->callback = callback;
    slot->arg = arg;
    slot->sent_ns = c->now_ns;
    slot->deadline_ns = deadline_ms > 0 ? c->now_ns + deadline_ms * NS_PER_MS : NEVER;
    c->deadline_first_ns = earliest(c->deadline_first_ns, slot->deadline_ns);
    end_send(c);
    return 0;
}

static int grow_oneways(struct channel *c)
{
    size_t queued = (size_t)(c->oneways_tail - c->oneways_head);
    if (queued < c->oneways_capacity)
        return 0;
    size_t capacity = c->oneways_capacity ? c->oneways_capacity * 2 : 64;
    struct oneway *wider = malloc(capacity * sizeof *wider);
    if (!wider)
        return -BROOK_E_NOMEM;
    for (uint64_t n = c->oneways_head; n != c->oneways_tail; n++)
        wider[n & (capacity - 1)] = *oneway_at(c, n);
    free(c->oneways);
    c->oneways = wider;
    c->oneways_capacity = capacity;
    return 0;
}

int channel_send_oneway(struct channel *c, Brook__Request *request, const struct iovec *records,
                        size_t records_count, void (*sent)(void *arg, int err), void *arg)
{
    if (c->state == CHANNEL_IDLE || c->closing)
        return -BROOK_E_DISCONNECTED;
    begin_send(c);
    int r = grow_oneways(c);
    if (r < 0)
        return r;
    request->correlation_id = ++c->pending.serial << CHANNEL_PLACE_BITS | PENDING_MAX;
    uint64_t first = outbox_tail(&c->outbox);
    r = pack(c, request, records, records_count, sent == NULL);
    if (r < 0)
        return r;
    *oneway_at(c, c->oneways_tail++) =
        (struct oneway){.first = first, .end = outbox_tail(&c->outbox), .sent = sent, .arg = arg};
    end_send(c);
    return 0;
}
