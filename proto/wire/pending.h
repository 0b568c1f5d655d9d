/* Requests of a channel that have no reply yet, in the order sent, found by correlation id.
 *
 * An id is the place in a table and a serial number, so finding needs no hash and an id never returns. A
 * request that was given up keeps its place until its late reply has come (or the connection has ended): a
 * reply is never taken for another request's. Plain memory, used again; no clock, no sockets. One thread.
 */
#ifndef BROOK_WIRE_PENDING_H
#define BROOK_WIRE_PENDING_H

#include "proto/wire/channel.h"

/* Places in the table: requests in flight and late ones together. */
#define PENDING_MAX ((1u << CHANNEL_PLACE_BITS) - 1)
#define PENDING_NONE UINT32_MAX

struct pending_request {
    uint64_t correlation_id;
    channel_callback *callback; /* NULL: nobody cares */
    void *arg;
    int64_t sent_ns;
    int64_t deadline_ns; /* INT64_MAX: none */
    uint64_t first, end; /* pieces of the outbox */
    uint32_t previous, next;
    bool live; /* waits for its reply */
    bool late; /* was given up, the reply may still come */
};

struct pending {
    struct pending_request *table;
    uint32_t capacity;
    uint32_t used; /* places ever given out */
    uint32_t free; /* head of the list of free places */
    uint32_t first, last;
    uint32_t live_count, late_count;
    uint64_t serial;
};

void pending_init(struct pending *p);
void pending_done(struct pending *p);

/* A new live request at the end of the order; id and place in the order are filled in, the rest is the
 * caller's. NULL: the table is full (or out of memory). Good until the next pending_add(). */
struct pending_request *pending_add(struct pending *p);
/* Live or late; NULL: no such id. */
struct pending_request *pending_find(struct pending *p, uint64_t correlation_id);
/* The first live request, and the one after; NULL at the end. */
struct pending_request *pending_first(struct pending *p);
struct pending_request *pending_next(struct pending *p, const struct pending_request *request);
/* The request is over. */
void pending_remove(struct pending *p, struct pending_request *request);
/* Not live any more, but its reply is still to be recognised. */
void pending_give_up(struct pending *p, struct pending_request *request);
/* The connection has ended: late replies will not come. */
void pending_forget_late(struct pending *p);
#endif
