/* Names to addresses without stopping the loop.
 *
 * getaddrinfo() may block for many seconds, so each lookup runs on a short-lived thread of its own and its
 * answer is posted to an inbox. A lookup that is given up is left to end by itself: nothing ever waits for
 * one.
 */
#ifndef BROOK_WIRE_RESOLVER_H
#define BROOK_WIRE_RESOLVER_H

#include "proto/base/inbox.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#define RESOLVER_ADDRESSES_MAX 8

struct resolver_address {
    struct sockaddr_storage address;
    socklen_t bytes;
};

/* The answer: addresses in the system's order; none and a text when the name is not known. Good during the
 * call. */
struct resolver_answer {
    const struct resolver_address *addresses;
    size_t count;
    const char *text; /* NULL: success */
};
typedef void resolver_callback(void *arg, const struct resolver_answer *answer);

/* An address written in numbers ("127.0.0.1", "::1"). Returns 0, or -BROOK_E_NOT_FOUND for a name. Pure. */
int resolver_parse(const char *host, uint16_t port, struct resolver_address *ret_address);

struct lookup;
/* Ask; `callback` runs once on the thread that drains `inbox`, unless lookup_cancel() comes first.
 * Returns 0, -BROOK_E_NOMEM or -BROOK_E_IO (no thread). */
int lookup_new(struct inbox *inbox, const char *host, uint16_t port, resolver_callback *callback, void *arg,
               struct lookup **ret_lookup);
/* The callback will not run any more. Only while it has not run; on the thread that drains the inbox. */
void lookup_cancel(struct lookup *lookup);
#endif
