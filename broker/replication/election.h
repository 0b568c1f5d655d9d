/* Elections in doubt: when every member of the in-sync replicas has lost, or may have lost, its end of the log.
 *
 * An election is certain as long as one member of the ISR lives that counts: by its listed broker epoch, or because it
 * kept its data from then on; controller_elect() makes it, without calling this. When all members are back and none counts (the typical
 * case: the sole member had a power cut), the longest log leads, by (last epoch, end), whoever has it, and the
 * shell says so loudly. The last epoch is that of the last record, or a newer one that the replica has reached
 * (follower_state_reached()): a leader that wrote nothing may have committed what was there before, and a log with a
 * record of an older leader that nobody else has must not seem newer. A replica that left the ISR before may
 * have more than one that stayed.
 *
 * How the controller comes to know: first a leaderless state of a new epoch is written (ELECTION_FREEZE). Then
 * every replica, once it has applied exactly that state (replica_role_may_report()), tells its last epoch, its end and
 * its broker epoch, unasked, in a znode (broker/cluster/ends.h): so its log stays as reported until a newer state. One that bounces after its report has another broker epoch, and the
 * report counts no more.
 * Whoever is elected leads only at the broker epoch it reported with.
 *
 * Pure; no clock, no memory kept. Knows one partition at a time.
 */
#ifndef BROOK_REPLICATION_ELECTION_H
#define BROOK_REPLICATION_ELECTION_H

#include "coordination/znodes.h"

/* What a replica said about its log. */
struct election_report {
    int64_t broker_epoch; /* -1: no report */
    int32_t leader_epoch; /* of the leaderless state that it had applied */
    int32_t last_epoch;   /* of its last record, or that it has reached, whichever is newer; -1: none */
    int64_t log_end;
};

/* An assigned replica, in the assignment's order. */
struct election_replica {
    int32_t broker_id;
    int64_t broker_epoch; /* -1: not alive */
    /* The earlier broker epoch from which it kept everything: its registration's clean_from. -1: none. */
    int64_t kept_from;
    struct election_report report;
};

enum election_verdict {
    ELECTION_CERTAIN, /* no doubt to be settled by logs: the caller's own rules hold */
    ELECTION_FREEZE,  /* write *ret: nobody leads, at a new epoch, same ISR */
    ELECTION_ASK,     /* reports are missing: election_lacks_report() says whose; those, and absent ones, are waited for */
    ELECTION_LEAD     /* write *ret: the longest log leads, alone in the ISR */
};

/* `leave_out_absent`: replicas that are not alive were waited for long enough, and whatever only they have may be given
 * up (else a replica that is cut off, with records that were acknowledged when it was in sync, would lose them by
 * coming back late). Fills *ret, all but controller_epoch, for FREEZE and LEAD. The in-sync replicas of `state`
 * must be assigned. */
enum election_verdict election_compare(const struct election_replica *replicas, int32_t count,
                                       const struct znode_state *state, bool leave_out_absent,
                                       struct znode_state *ret);
/* Alive, and not yet heard at the epoch of `state` in its present life. */
bool election_lacks_report(const struct election_replica *replica, const struct znode_state *state);
#endif
