/* A channel: one connection from the side that asks, on one event_base.
 *
 * Requests go out in the order sent, replies are matched by correlation id, each request ends exactly once:
 * with its reply, at its deadline, or with the connection. The channel says Hello by itself, connects again
 * only when asked to (channel_connect), never blocks, and resolves no names: addresses are numeric
 * (name resolution is the owner's, off the loop).
 *
 * Sending gathers: requests of one loop turn leave in one writev. Receiving reads small frames many at a time
 * and the records of a large one straight into a slab (with SO_RCVLOWAT), which the reply hands over.
 * All functions and callbacks: the loop's thread only. Nothing is freed inside a callback: channel_free() may
 * be called anywhere, callbacks stop at once, memory goes at the end of the turn.
 */
#ifndef BROOK_WIRE_CHANNEL_H
#define BROOK_WIRE_CHANNEL_H

#include "proto/wire/envelope.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* Requests in flight on one channel, those that were given up and not answered yet included. */
#define CHANNEL_PLACE_BITS 17
#define CHANNEL_REQUESTS_MAX ((1 << CHANNEL_PLACE_BITS) - 1)
/* Records up to this size are copied behind their envelope: cheaper than an entry of their own. */
#define CHANNEL_COPY_BYTES_MAX 2048

struct channel;
struct event_base;
struct pool;
struct slab;
struct brook_error;

enum channel_state { CHANNEL_IDLE, CHANNEL_CONNECTING, CHANNEL_READY };

struct channel_settings {
    struct event_base *base;
    struct pool *pool; /* slabs for record bytes of replies */
    const char *client_id;
    const char *software;
    uint32_t frame_bytes_max;
    int connect_timeout_ms; /* TCP and Hello together */
    int idle_timeout_ms;    /* 0: none */
};

struct channel_events {
    /* Hello was answered; `hello` is good during the call. */
    void (*ready)(void *arg, const Brook__HelloResponse *hello);
    /* The connection is gone (also: could not be made). All requests have been answered before. */
    void (*closed)(void *arg, const struct brook_error *why);
    void *arg;
};

/* The end of a request. `err` 0: `response` is there and its status is success or not (look); else
 * -BROOK_E_TIMED_OUT or -BROOK_E_DISCONNECTED (sent, at least in part: outcome unknown),
 * -BROOK_E_REQUEST_EXPIRED (its deadline came before a byte was sent), -BROOK_E_CONNECT_FAILED (the
 * connection ended before a byte was sent), -BROOK_E_CLOSED (channel_free()). `response` and `records` are
 * good during the call; to keep `records` longer take a reference on `slab` (NULL when records_bytes is 0;
 * the records begin at its first byte). */
struct channel_reply {
    int err;
    const Brook__Response *response;
    const uint8_t *records;
    size_t records_bytes;
    struct slab *slab;
    int64_t round_trip_ns;
};
typedef void channel_callback(void *arg, const struct channel_reply *reply);

/* Returns 0 or -BROOK_E_NOMEM. Strings of `settings` are copied; `base` and `pool` are borrowed. */
int channel_new(const struct channel_settings *settings, const struct channel_events *events,
                struct channel **ret_channel);
/* Ends every request with -BROOK_E_CLOSED during this call; nothing is called after it. NULL is fine. */
void channel_free(struct channel *channel);
/* Begin to connect (CHANNEL_IDLE only, not from a request's callback: wait for `closed`). `address` is
 * copied. Returns 0 and one of the events will follow; -BROOK_E_CONNECT_FAILED (refused at once, no socket
 * left); -BROOK_E_INVALID (not idle). */
int channel_connect(struct channel *channel, const struct sockaddr *address, socklen_t address_bytes);
enum channel_state channel_get_state(const struct channel *channel);
size_t channel_requests_in_flight(const struct channel *channel);
/* Bytes queued and not yet taken by the socket. */
size_t channel_bytes_queued(const struct channel *channel);

/* Pack `request` (correlation id, client id and, with a deadline, its deadline are filled in) and queue it
 * with its record bytes behind it. `request` and the array `records` are not kept; the bytes that `records`
 * names are borrowed until `callback` is called (NULL: nobody cares for the reply; then they are copied).
 * `deadline_ms`: from now; 0: none. Queued while connecting too.
 * Returns 0; -BROOK_E_DISCONNECTED (idle); -BROOK_E_FRAME_TOO_LARGE; -BROOK_E_TOO_MANY
 * (CHANNEL_REQUESTS_MAX); -BROOK_E_NOMEM: then nothing is called. */
int channel_send(struct channel *channel, Brook__Request *request, const struct iovec *records,
                 size_t records_count, int deadline_ms, channel_callback *callback, void *arg);
/* For requests without a reply (Produce with acks none): `records` are borrowed until `sent` is called, which
 * is when the socket took all of it (err 0) or the connection ended. `sent` may be NULL: then they are
 * copied. */
int channel_send_oneway(struct channel *channel, Brook__Request *request, const struct iovec *records,
                        size_t records_count, void (*sent)(void *arg, int err), void *arg);
#endif
