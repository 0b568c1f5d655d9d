#include "proto/wire/channel_parts.h"

#include "proto/base/clock.h"
#include "proto/base/err.h"
#include "proto/wire/frame.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What one reply's messages may take in memory. */
#define REPLY_BUDGET_BYTES ((size_t)64 << 20)

/* ---- ending ----------------------------------------------------------------------------------------- */

/* Take the request out and tell its owner. */
void channel_end_request(struct channel *c, struct pending_request *request,
                         const struct channel_reply *reply)
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

static void end_requests(struct channel *c, int err)
{
    struct pending_request *request;
    while ((request = pending_first(&c->pending))) {
        bool unsent = err == -BROOK_E_DISCONNECTED && outbox_is_whole(&c->outbox, request->first);
        struct channel_reply reply = {.err = unsent ? -BROOK_E_CONNECT_FAILED : err,
                                      .round_trip_ns = c->now_ns - request->sent_ns};
        channel_end_request(c, request, &reply);
    }
    channel_end_oneways(c, err);
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

void channel_close_connection(struct channel *c, int code, const char *text)
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

void channel_enter(struct channel *c)
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

void channel_leave(struct channel *c)
{
    if (--c->depth > 0)
        return;
    if (c->doomed)
        destroy(c);
    else
        channel_arm_timer(c);
}

/* ---- connecting ------------------------------------------------------------------------------------- */

static void finish_connect(struct channel *c)
{
    int error = 0;
    socklen_t bytes = sizeof error;
    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &bytes) < 0)
        error = errno;
    if (error) {
        channel_close_connection(c, BROOK_E_CONNECT_FAILED, strerror(error));
        return;
    }
    c->tcp_connected = true;
    event_add(c->readable, NULL);
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
    struct channel *c = arg;
    channel_enter(c);
    c->blocked = false;
    if (!c->tcp_connected)
        finish_connect(c);
    if (c->fd >= 0)
        channel_flush_now(c);
    if (c->fd >= 0)
        channel_finish_oneways(c);
    channel_leave(c);
}

/* ---- the face --------------------------------------------------------------------------------------- */

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
    c->timer = evtimer_new(settings->base, channel_on_timer, c);
    c->flush = event_new(settings->base, -1, 0, channel_on_flush, c);
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
    int r = channel_pack(c, &request, NULL, 0, false);
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
    c->readable = event_new(c->settings.base, c->fd, EV_READ | EV_PERSIST, channel_on_readable, c);
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
    channel_arm_timer(c);
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
