/* Claiming a node that names this process: a broker's id, the controller's, a member's.
 *
 * The node is ephemeral and there can be only one. When it is there already, the question is whose it is:
 * this session's (a reply was lost, or we asked twice), an earlier incarnation's of ours (its session is in
 * the session file: it is taken up and closed, which removes the node at once), or somebody else's (then only
 * waiting helps). ephemeral_claim() does all of that; the two pieces it is made of can be used alone.
 *
 * Any thread; replies as in coordinator.h: one per call, run by the inbox of the call. A claim that is under
 * way when the session expires answers -BROOK_E_SESSION_EXPIRED: claim again in the new one.
 */
#ifndef BROOK_COORDINATION_EPHEMERAL_H
#define BROOK_COORDINATION_EPHEMERAL_H

#include "coordination/coordinator.h"

/* How much longer than a session's timeout its node may stay: the server rounds up to its ticks. */
#define EPHEMERAL_WAIT_MARGIN_MS 3000

/* Carry out *multi, one of whose ops creates the ephemeral node `path`, until that node is ours. Takes *multi
 * and nulls it; it is sent again as often as needed, only after it was certainly not carried out.
 * `wait_ms`: how long to wait for somebody else's node to go; negative: as long as a session of our own
 * timeout may last, plus EPHEMERAL_WAIT_MARGIN_MS.
 * Reply: 0 with op_stats: the multi was carried out now. 0 without op_stats (NULL), with stat and data: the
 * node was there and is this session's, from an attempt whose reply was lost: read what else the multi wrote.
 * -BROOK_E_NODE_EXISTS with stat and data of somebody else's node (ephemeral_explain() makes a sentence).
 * Everything else as of a multi (-BROOK_E_BAD_VERSION with failed_op: another op's condition did not hold).
 */
void ephemeral_claim(struct coordinator *c, const char *path, struct coordinator_multi **multi, int wait_ms,
                     struct coordinator_call call);
/* The same with a single create. */
void ephemeral_claim_node(struct coordinator *c, const char *path, const void *data, size_t data_bytes,
                          int wait_ms, struct coordinator_call call);

/* Fill *error with whose node is in the way. `what` is the subject of the sentence ("broker id 3"). Returns
 * reply->err. */
int ephemeral_explain(const struct coordinator_reply *reply, const char *what, struct brook_error *error);

/* Close a session that an earlier process with our session file had: its ephemeral nodes go at once.
 * Reply: 0: that session is gone for certain. -BROOK_E_NOT_FOUND: not one of ours. -BROOK_E_INVALID: it is
 * the present session. -BROOK_E_TIMED_OUT: no server said anything within the session timeout. */
void coordinator_close_earlier_session(struct coordinator *c, int64_t session_id,
                                       struct coordinator_call call);

/* Wait until `path` does not exist. Reply: 0, or after `timeout_ms` -BROOK_E_NODE_EXISTS with stat and data.
 */
void coordinator_wait_gone(struct coordinator *c, const char *path, int timeout_ms,
                           struct coordinator_call call);
#endif
