#include "proto/wire/channel_parts.h"

#include "proto/base/err.h"

static int64_t idle_until(const struct channel *c)
{
    bool applies = c->settings.idle_timeout_ms > 0 && c->state == CHANNEL_READY;
    return applies ? c->used_ns + c->settings.idle_timeout_ms * NS_PER_MS : NEVER;
}

/* One timer for connecting, deadlines, idleness and a pool that ran dry. */
void channel_arm_timer(struct channel *c)
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

/* A deadline has come. A request of which nothing has left is taken back; one that is half out, or whose peer
 * has been silent for longer than a connection may take to be made, costs the connection. */
static void expire_request(struct channel *c, struct pending_request *request)
{
    struct channel_reply reply = {.err = -BROOK_E_TIMED_OUT, .round_trip_ns = c->now_ns - request->sent_ns};
    if (outbox_is_whole(&c->outbox, request->first)) {
        outbox_drop(&c->outbox, request->first, request->end);
        reply.err = -BROOK_E_REQUEST_EXPIRED;
        channel_end_request(c, request, &reply);
        return;
    }
    int64_t patience_ns = c->settings.connect_timeout_ms * NS_PER_MS;
    int64_t since_ns = c->received_ns > request->sent_ns ? c->received_ns : request->sent_ns;
    bool silent = c->now_ns - since_ns >= patience_ns;
    bool half = request->end > outbox_head(&c->outbox);
    uint64_t first = request->first;
    channel_end_request(c, request, &reply);
    if (c->fd < 0)
        return;
    if (half && !outbox_is_whole(&c->outbox, first))
        channel_close_connection(c, BROOK_E_TIMED_OUT, "the peer takes no more data");
    else if (silent)
        channel_close_connection(c, BROOK_E_TIMED_OUT, "the peer has fallen silent");
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

void channel_on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct channel *c = arg;
    channel_enter(c);
    c->timer_at_ns = NEVER;
    if (c->now_ns >= c->retry_ns)
        channel_resume_receiving(c);
    if (c->fd >= 0 && c->now_ns >= c->connect_until_ns)
        channel_close_connection(c, BROOK_E_CONNECT_FAILED,
                                 c->tcp_connected ? "no answer to Hello in time" : "no connection in time");
    if (c->fd >= 0)
        expire_requests(c);
    if (c->fd >= 0 && c->now_ns >= idle_until(c)) {
        if (c->pending.live_count == 0 && c->outbox.bytes == 0)
            channel_close_connection(c, BROOK_E_DISCONNECTED, "not used for a while");
        else
            c->used_ns = c->now_ns;
    }
    channel_leave(c);
}
