/* How long our session certainly lives. Pure: a few numbers and the rule about them; no clock, no thread.
 *
 * A server forgets a session when it has heard nothing for the timeout. It can not have heard a request
 * before we sent it, so a request that a quorum answered proves life until its *send* time plus the timeout.
 * Only syncs and writes count: a server that has lost its leader answers reads and pings of dead sessions.
 * Times are nanoseconds of clock_boot_ns().
 */
#ifndef BROOK_COORDINATION_LEASE_H
#define BROOK_COORDINATION_LEASE_H

#include <stdint.h>

struct lease {
    int64_t timeout_ns;
    int64_t proved_ns; /* send time of the newest request that counts; 0: none */
    int64_t asked_ns;  /* when the last sync for renewal was sent; 0: never */
};

/* A new session of `timeout_ms`; nothing is proved yet. */
void lease_start(struct lease *l, int timeout_ms);
/* The session went on, with another timeout maybe (the server tells it at every connect). */
void lease_set_timeout(struct lease *l, int timeout_ms);
/* There is no session. */
void lease_end(struct lease *l);
/* A sync or write sent at `sent_ns` succeeded. Older ones than known change nothing. */
void lease_renew(struct lease *l, int64_t sent_ns);
/* Until when the session certainly lives; 0: unknown. */
int64_t lease_until_ns(const struct lease *l);
/* When the next sync is due if no write comes first: a quarter of the timeout after the last success or
 * attempt. INT64_MAX without a session. */
int64_t lease_due_ns(const struct lease *l);
void lease_asked(struct lease *l, int64_t now_ns);
#endif
