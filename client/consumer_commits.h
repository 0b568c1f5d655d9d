/* Commits of a consumer that is no member of its group: plain writes of offsets, through any broker.
 *
 * One write per partition is in flight, newer values wait (consumer_slot.h); all that is due goes in one
 * request; failures that may pass are tried again for as long as the object lives. A broker refuses where a
 * member owns the partition (OWNED). Members commit through client/group_driver.h instead. Loop thread only.
 */
#ifndef BROOK_CLIENT_CONSUMER_COMMITS_H
#define BROOK_CLIENT_CONSUMER_COMMITS_H

#include <brook/types.h>
#include <stddef.h>

struct client;
struct commits;

/* `which`: the first position that failed; NULL when none did. */
typedef void commits_callback(void *arg, int err, const struct brook_position *which);

/* `group` is borrowed. Returns 0 or -BROOK_E_NOMEM. */
int commits_new(struct client *client, const char *group, int request_timeout_ms,
                struct commits **ret_commits);
/* Answers what waits with -BROOK_E_CLOSED. NULL is fine. */
void commits_close(struct commits *commits);
/* Store these. `done` is called once, perhaps from in here, when all have ended: 0, or the first failure. It
 * may be NULL. Values that are stored already are not written again. */
void commits_commit(struct commits *commits, const struct brook_position *positions, size_t count,
                    commits_callback *done, void *arg);
#endif
