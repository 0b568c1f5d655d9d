/* Handles of their own that take up sessions of earlier processes, in order to close them: their ephemeral
 * nodes go at once instead of after the session timeout. Session thread only; driven by its loop.
 */
#ifndef BROOK_COORDINATION_CLOSER_H
#define BROOK_COORDINATION_CLOSER_H

#include <poll.h>
#include <stddef.h>
#include <stdint.h>

struct coordinator;
struct session_key;

/* At most this many at a time. */
#define CLOSERS_MAX 4

/* `err`: 0: the session is gone for certain (and out of the session file); -BROOK_E_TIMED_OUT: no server said
 * so within the session timeout; -BROOK_E_CLOSED: stopping. */
typedef void closer_done_fn(void *arg, int err);
/* Returns 0, or -BROOK_E_BUSY when CLOSERS_MAX are at work or there are no addresses yet. */
int closer_start(struct coordinator *c, const struct session_key *key, closer_done_fn *done, void *arg);

size_t closer_count(const struct coordinator *c);
/* Fill `fds` (room for closer_count()) and lower *wake_ms. */
void closer_interest(struct coordinator *c, struct pollfd *fds, int64_t now_ms, int64_t *wake_ms);
void closer_process(struct coordinator *c, const struct pollfd *fds, size_t count, int64_t now_ms);
void closer_close_all(struct coordinator *c);
#endif
