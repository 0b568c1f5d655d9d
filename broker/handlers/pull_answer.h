/* How a pull is answered: the ready entries of its session are looked at in turn, and either an answer is
 * sent or the request is parked until something comes or its time is over. The loop's thread only.
 */
#ifndef BROOK_HANDLERS_PULL_ANSWER_H
#define BROOK_HANDLERS_PULL_ANSWER_H

#include "broker/handlers/pull_session.h"

/* The request is the session's parked one from here on, within the limits of the broker; it may be answered
 * inside this call. No other is parked. A temporary session ends with its answer. */
void pull_park(struct pull_session *s, struct request *r, const Brook__PullRequest *asked);
/* Look at what is ready and answer the parked pull if there is enough, an error, or if it is time. Returns
 * whether it answered. */
bool pull_serve(struct pull_session *s, bool is_time);
/* Answer the parked pull at once with nothing but a status (0: success). */
/* A pull of a follower has come: the partitions that it did not name, since it has all of them, count as asked for
 * again, at most this often. */
#define PULL_REFRESH_MS 500
void pull_refresh(struct pull_session *session);
void pull_send_empty(struct pull_session *s, int status_code);
#endif
