/* Requests by the time at which they must be looked at: a binary heap, so that a loop needs one timer for
 * all. Grows with the requests in flight, which are limited; knows no clock. One thread.
 */
#ifndef BROOK_NET_DEADLINES_H
#define BROOK_NET_DEADLINES_H

#include "broker/handlers/request.h"

struct deadlines {
    struct request **heap; /* from index 1 on */
    size_t count;
    size_t capacity;
};

void deadlines_done(struct deadlines *d);
/* Room for `count` requests in all, so that deadlines_set() can not fail. Returns 0 or -BROOK_E_NOMEM. */
int deadlines_reserve(struct deadlines *d, size_t count);
/* Put the request in at `when_ns` (anew if it was in), or take it out when that is 0. */
void deadlines_set(struct deadlines *d, struct request *r, int64_t when_ns);
/* Take out and return a request that is due at `now_ns`, or NULL. */
struct request *deadlines_pop_due(struct deadlines *d, int64_t now_ns);
/* The earliest time; 0: none. */
int64_t deadlines_earliest(const struct deadlines *d);
#endif
