#include "broker/net/connection_internal.h"

#include "broker/handlers/handlers.h"
#include "broker/net/listener_counts.h"
#include "proto/base/diag.h"

#include <arpa/inet.h>
#include <assert.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* How long a peer may take to close after our last byte. */
#define LINGER_MS 2000
/* Log lines about peers, of one loop. */
#define COMPLAINTS_PER_10_S 10

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
    event_assign(&c->readable, loop->base, fd, EV_READ | EV_PERSIST, connection_on_readable, c);
    event_assign(&c->writable, loop->base, fd, EV_WRITE | EV_PERSIST, connection_on_writable, c);
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

bool connection_is_dead(const struct connection *c)
{
    return c->state == CONNECTION_DOOMED || c->state == CONNECTION_BURIED;
}

void connection_mark_dirty(struct connection *c)
{
    if (!c->is_dirty && !connection_is_dead(c)) {
        c->is_dirty = true;
        TAILQ_INSERT_TAIL(&c->loop->dirty, c, in_dirty);
    }
}

void connection_mark_ready(struct connection *c)
{
    if (!c->is_ready && !connection_is_dead(c)) {
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
        connection_mark_dirty(c);
    }
}

void connection_doom(struct connection *c)
{
    if (connection_is_dead(c))
        return;
    leave_lists(c);
    c->state = CONNECTION_DOOMED;
    TAILQ_REMOVE(&c->loop->connections, c, in_connections);
    TAILQ_INSERT_TAIL(&c->loop->doomed, c, in_connections);
}

void connection_complain(struct connection *c, const char *why)
{
    struct io_loop *loop = c->loop;
    if (loop->face.now_ns - loop->complained_ns > 10000 * NS_PER_MS) {
        loop->complained_ns = loop->face.now_ns;
        loop->complaints = 0;
    }
    if (loop->complaints++ < COMPLAINTS_PER_10_S)
        diag_log(loop->face.diag, DIAG_WARN, c->name, "closing the connection: %s", why);
}

void connection_set_reading(struct connection *c, bool reads)
{
    if (c->reads == reads)
        return;
    if (reads ? event_add(&c->readable, NULL) < 0 : event_del(&c->readable) < 0)
        connection_doom(c);
    else
        c->reads = reads;
}

void connection_set_writing(struct connection *c, bool writes)
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
    assert(connection_is_dead(c));
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
        connection_mark_dirty(c);
    }
}

/* ---- the end of a turn --------------------------------------------------------------------------------- */

bool connection_is_over_limit(const struct connection *c)
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

/* All is answered and sent. */
static void finish(struct connection *c)
{
    if (c->has_ended || shutdown(c->fd, SHUT_WR) < 0) {
        connection_doom(c);
        return;
    }
    c->state = CONNECTION_LINGERING;
    c->linger_until_ns = c->loop->face.now_ns + LINGER_MS * NS_PER_MS;
    connection_set_reading(c, true);
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
        connection_mark_ready(c);
    }
    bool is_paused = c->is_blocked || c->is_starved;
    count_pause(c, is_paused);
    connection_set_reading(c, !is_paused && !c->has_ended);
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
    if (connection_is_dead(c))
        return;
    if (c->state == CONNECTION_CLOSING && !c->has_woken) {
        c->has_woken = true;
        handlers_peer_wake(&c->peer);
    }
    if (!output_is_empty(&c->out) && !c->is_warming)
        connection_flush(c);
    if (c->state == CONNECTION_OPEN) {
        settle_reading(c);
    } else if (c->state == CONNECTION_CLOSING) {
        connection_set_reading(c, false);
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
    return c->loop->face.now_ns - c->half_ns > allowed_ms * NS_PER_MS;
}

static bool is_idle(const struct connection *c)
{
    int64_t last = c->used_ns > c->read_ns ? c->used_ns : c->read_ns;
    return !c->requests_count && output_is_empty(&c->out) &&
           c->loop->face.now_ns - last > c->loop->settings.idle_ms_max * NS_PER_MS;
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
        connection_read_once(c);
    if (connection_is_dead(c))
        return;
    if (c->state == CONNECTION_OPEN && !c->peer.version && now - c->opened_ns > s->hello_ms_max * NS_PER_MS)
        why = "it did not say hello in time";
    else if (!output_is_empty(&c->out) && !c->is_warming && now - c->sent_ns > s->send_ms_max * NS_PER_MS)
        why = "it does not read its answers";
    else if (frame_is_too_slow(c))
        why = "a frame was begun and not finished in time";
    if (why)
        connection_complain(c, why);
    if (why || is_idle(c))
        connection_doom(c);
    else if (!c->reads) /* there was no memory for a buffer */
        connection_mark_dirty(c);
}
