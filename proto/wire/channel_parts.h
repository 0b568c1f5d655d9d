/* The channel's insides, shared by its files: channel.c makes, connects and ends it, channel_send.c fills and
 * empties the outbox, channel_receive.c takes replies, channel_time.c keeps deadlines. The loop's thread
 * only.
 *
 * Callbacks may send, close or free. So each event handler is bracketed by channel_enter() and
 * channel_leave(): memory goes when the last one leaves; and whoever called a callback looks at `fd` (and
 * `connection`) again afterwards.
 */
#ifndef BROOK_WIRE_CHANNEL_PARTS_H
#define BROOK_WIRE_CHANNEL_PARTS_H

#include "proto/wire/channel.h"
#include "proto/wire/intake.h"
#include "proto/wire/outbox.h"
#include "proto/wire/pending.h"

#include <event2/event.h>
#include <netinet/in.h>

#define NS_PER_MS 1000000LL
#define NEVER INT64_MAX

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
    bool blocked;        /* the socket takes no more: waiting for it */
    bool starved;        /* the pool has no slab: receiving nothing */
    bool flushing;       /* the flush event is active */
    bool closing;        /* requests are being ended */
    bool doomed;         /* channel_free() was called inside a callback */
    unsigned depth;      /* of our own event handlers */
    unsigned connection; /* counts them */
    int lowat;

    struct event *readable, *writable, *flush, *timer;
    int64_t timer_at_ns;
    int64_t now_ns; /* of this turn */
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

static inline int64_t earliest(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- channel.c -------------------------------------------------------------------------------------- */
void channel_enter(struct channel *c);
void channel_leave(struct channel *c);
/* End all requests and the connection, and tell the owner. */
void channel_close_connection(struct channel *c, int code, const char *text);
/* Take the request out and tell its owner. */
void channel_end_request(struct channel *c, struct pending_request *request,
                         const struct channel_reply *reply);

/* ---- channel_send.c --------------------------------------------------------------------------------- */
/* Put a frame into the outbox: `request` with the correlation id that it has. */
int channel_pack(struct channel *c, Brook__Request *request, const struct iovec *records,
                 size_t records_count, bool copy_all);
/* Let what is queued leave: at the end of this turn, or now. */
void channel_flush_later(struct channel *c);
void channel_flush_now(struct channel *c);
void channel_on_flush(evutil_socket_t fd, short what, void *arg);
/* Requests without a reply: those that have left; all, with `err`. */
void channel_finish_oneways(struct channel *c);
void channel_end_oneways(struct channel *c, int err);

/* ---- channel_receive.c ------------------------------------------------------------------------------ */
void channel_on_readable(evutil_socket_t fd, short what, void *arg);
/* Go on with what was received when the pool had no room. */
void channel_resume_receiving(struct channel *c);

/* ---- channel_time.c --------------------------------------------------------------------------------- */
void channel_arm_timer(struct channel *c);
void channel_on_timer(evutil_socket_t fd, short what, void *arg);
#endif
