/* What one broker does with one partition, from the partition's state as read from ZooKeeper.
 *
 * Decides and remembers; the shell changes the partition (end the old role, then take the new one) and says when that
 * is done. A step that failed half way is decided again from the same state: the epoch counts as acted on only when
 * the change is complete, but from its beginning older states are refused. Pure, no clock; one per partition, guarded
 * by its owner. Knows no log but the epoch of its last record.
 */
#ifndef BROOK_REPLICATION_REPLICA_ROLE_H
#define BROOK_REPLICATION_REPLICA_ROLE_H

#include "coordination/znodes.h"

enum replica_duty {
    REPLICA_IDLE,   /* nothing is led or followed: no leader, or not this registration of the one it names */
    REPLICA_LEAD,
    REPLICA_FOLLOW,
    REPLICA_LEAVE   /* not assigned to this broker (any more) */
};

enum replica_verdict {
    REPLICA_KEEP,   /* as it is: only the in-sync replicas may have changed (leader_state_read()) */
    REPLICA_CHANGE, /* carry out the step, then replica_role_completed() */
    REPLICA_REFUSE  /* the state is older than what this broker acts on, or than its log */
};

/* What this broker is, when it looks at the state. */
struct replica_self {
    int32_t broker_id;
    int64_t broker_epoch; /* of the present registration */
    int32_t log_epoch;    /* of the last record in the log, -1: none */
    bool is_assigned;
};

struct replica_step {
    enum replica_duty duty;
    int32_t leader; /* -1: none */
    int32_t leader_epoch;
};

struct replica_role {
    struct replica_step step; /* begun last; all zero and epoch -1 at first */
    bool is_complete;
};

/* Nothing was done yet. Also after the partition was closed and opened again. */
void replica_role_init(struct replica_role *role);

/* What to do about `state`. Refused: a leader epoch below that of the step begun last, or below the log's; another
 * leader at the same epoch. The same epoch again: kept if complete, else to be done again. This broker leads only if
 * the state lists its present broker epoch: the state of an earlier life is waited out (REPLICA_IDLE) until the
 * controller has written another; whoever leads already at that epoch goes on, also under a new registration.
 * Fills *ret unless refused. Changes nothing. */
enum replica_verdict replica_role_decide(const struct replica_role *role, const struct replica_self *self,
                                         const struct znode_state *state, struct replica_step *ret);
/* The step is being carried out: from now on the old duty has ended and older states are refused. */
void replica_role_begin(struct replica_role *role, const struct replica_step *step);
/* It was carried out wholly. Not called: the next state of that epoch makes it again. */
void replica_role_completed(struct replica_role *role);

/* May this replica answer a comparison (election.h) at `leader_epoch`? Only when it has applied the leaderless state
 * of exactly that epoch: its log stays as it is until it applies a newer one. Returns 0; -BROOK_E_FENCED_EPOCH: it
 * knows a newer epoch; -BROOK_E_UNKNOWN_EPOCH: not yet there; -BROOK_E_INVALID: that epoch has a leader. */
int replica_role_may_report(const struct replica_role *role, int32_t leader_epoch);
#endif
