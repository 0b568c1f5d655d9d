/* What the leader of one partition knows of the other replicas at its epoch: their positions, who is in sync, and
 * how far the high watermark may go. The in-sync replicas (ISR) change by compare-and-set; from sending a change until
 * its outcome is certain, all members of the stored ISR and of the proposed one hold the high watermark back.
 *
 * Pure: no I/O, no clock (times are milliseconds of one steady clock, passed in), no memory but the caller's. Not
 * thread safe: one owner, or one lock. README.md says how the partition, the cluster thread and the pull handler
 * use it. A new epoch is a new leader_state_begin(): earlier positions are forgotten.
 *
 *      IDLE --propose, confirm--> SENT --applied------------------------> IDLE
 *                                  |  --refused, unknown--> READ (sync, then leader_state_read())
 *      READ --newer version------> IDLE (adopted: certain what became of the change)
 *      READ --same version-------> IDLE, but the change still counts; the next proposal writes the stored ISR
 *                                  once more, and when that has succeeded the change can not be applied any more
 */
#ifndef BROOK_REPLICATION_LEADER_STATE_H
#define BROOK_REPLICATION_LEADER_STATE_H

#include "broker/partition/watermark.h"
#include "broker/replication/epoch_history.h"
#include "coordination/znodes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One replica as the leader knows it; the leader's own has only what the ISR says. Plain data. */
struct leader_replica {
    int32_t broker_id;
    bool is_assigned;
    bool is_draining;       /* as the view says */
    int64_t live_epoch;     /* its registration as the view says; -1: not alive, -2: not told */
    int64_t listed_epoch;   /* with which the stored ISR lists it; -1 */
    int64_t proposed_epoch; /* with which the change in question lists it; -1 */
    int64_t broker_epoch;   /* newest that it pulled with; -1: none */
    int64_t end;            /* its log end as of its last pull at this leader epoch, of that broker epoch; -1: none */
    int64_t safe_end;       /* what it holds safely; at most `end`; -1: none */
    int64_t log_start;      /* where its log begins for good, as of then; -1: not known */
    int64_t pulled_ms;      /* when that was */
    int64_t leader_end;     /* the leader's log end then */
    int64_t caught_up_ms;   /* up to then it had all that the leader had */
};

enum leader_change { LEADER_IDLE, LEADER_PROPOSED, LEADER_SENT, LEADER_READ };

struct leader_state {
    int32_t self; /* index into replicas */
    int32_t leader_epoch;
    int32_t controller_epoch;
    int64_t epoch_start; /* first offset of this epoch */
    int64_t log_start;   /* of the leader's own log, as far as it was told */
    bool awaits_reach;   /* that it leads at this epoch is not on its disk yet */
    int32_t version;     /* of the state node as stored */
    int64_t lag_ms_max;
    enum leader_change change;
    uint32_t stored;   /* ISR as stored: bits are indexes into replicas */
    uint32_t proposed; /* the change that is sent, or whose outcome is not certain; 0: none */
    uint32_t sent;     /* what the write in flight says: `proposed`, or `stored` once more */
    int32_t sent_version; /* on which it is conditional */
    int32_t replicas_count;
    int32_t replicas_max;
    struct leader_replica replicas[];
};

/* Bytes of a leader_state for up to `replicas_max` (at most ZNODE_REPLICAS_MAX) replicas: those assigned, and during
 * a reassignment those of both lists. */
size_t leader_state_bytes(int32_t replicas_max);
/* Make memory of that size a leader_state that leads nothing. */
void leader_state_init(struct leader_state *s, int32_t replicas_max);

/* ---- the epoch -------------------------------------------------------------------------------------- */

struct leader_beginning {
    int32_t broker_id;
    const struct znode_replicas *replicas; /* assigned ones */
    const struct znode_state *state;       /* names this broker as leader */
    int32_t version;
    const struct epoch_history *history; /* of the leader's own log */
    int64_t lag_ms_max;                  /* replica.lag.time.max.ms */
    int64_t now_ms;
    /* This process led at this epoch before, and what it had sent to change the ISR is forgotten: it may be stored, now
     * or later. Until it is certain that it can not be any more (READ, and the stored ISR written once more) every
     * replica that could have joined counts. */
    bool is_again;
};
/* Lead at state->leader_epoch: positions are forgotten, the epoch begins at the end of the log (or where its first
 * record is, when the epoch is taken up again). Until leader_state_brokers() everybody counts as alive.
 * Returns 0; -BROOK_E_INVALID when the state does not name this broker as a leader in the ISR; -BROOK_E_TOO_MANY when
 * there are more replicas than the memory has room for. After a failure it leads nothing. */
int leader_state_begin(struct leader_state *s, const struct leader_beginning *b);
/* Other replicas are assigned from now on (a reassignment, seen in the topic's node). Those that are not any more stay
 * until they are out of the ISR. Returns 0 or -BROOK_E_TOO_MANY, with nothing changed. */
int leader_state_assign(struct leader_state *s, const struct znode_replicas *replicas, int64_t now_ms);
/* Of a topic whose members count by their disks (made with durability=fsync): nothing is committed at this epoch before the leader's
 * disk knows that it has reached it, as a comparison of logs after a power cut will ask (election.h). After
 * leader_state_begin(), which awaits nothing: true; false as soon as it is there. */
void leader_state_await_reach(struct leader_state *s, bool awaits);
/* What the newest view says of a broker: its broker epoch (-1: not alive), and whether it is about to stop. Only a
 * hint: no promise hangs on it. */
void leader_state_broker(struct leader_state *s, int32_t broker_id, int64_t broker_epoch, bool is_draining);

/* ---- pulls of followers ----------------------------------------------------------------------------- */

struct leader_pull {
    int32_t broker_id;
    int64_t broker_epoch;
    int32_t current_epoch;
    int64_t offset;     /* the end of its log */
    int32_t last_epoch; /* of the record before; -1: none */
    int64_t safe_end;
    int32_t reached_epoch; /* follower_state_reached() */
    int64_t log_start;     /* of its log, as far as it is on stable storage; -1: not said */
};
/* Take note of a follower's pull, when `history` is the leader's log at this moment. The position counts only if the
 * answer is 0, and the follower has reached the start of this epoch and knows it: a record of the epoch is safe
 * with it, or it says so by `reached_epoch`. (So nothing is committed at an epoch with replicas that would seem, in a comparison of
 * logs, to be of an older one: election.h.) The answer tells the follower epoch_start. After it the limits below may
 * have changed.
 * Returns 0: send what is at `offset`, up to the log's end;
 * -BROOK_E_FENCED_EPOCH, -BROOK_E_UNKNOWN_EPOCH: it knows an older, a newer leader epoch;
 * -BROOK_E_STALE_BROKER_EPOCH: a later life of it has pulled, or is in the view;
 * -BROOK_E_UNKNOWN_PARTITION: it is no replica of this partition, as far as this broker knows;
 * -BROOK_E_LOG_DIVERGED: its log is not a beginning of this one: it has to ask EpochEnd;
 * -BROOK_E_OFFSET_OUT_OF_RANGE: below the log's start: it goes on there. */
int leader_state_pull(struct leader_state *s, const struct epoch_history *history, const struct leader_pull *pull,
                      int64_t now_ms);
/* The answer to EpochEnd(current_epoch, epoch): 0 and *ret, or -BROOK_E_FENCED_EPOCH, -BROOK_E_UNKNOWN_EPOCH. */
int leader_state_epoch_end(const struct leader_state *s, const struct epoch_history *history, int32_t current_epoch,
                           int32_t epoch, struct epoch_end *ret);

/* ---- how far it is safe ----------------------------------------------------------------------------- */

/* The least safe end of the other members of the stored and the proposed ISR; INT64_MAX when there are none, -1
 * while that of one of them is not known (at its listed broker epoch). */
int64_t leader_state_replicated_end(const struct leader_state *s);
/* The least log start of the other members of both; INT64_MAX and -1 as above. Records below it do not come back,
 * whichever of them leads next. */
int64_t leader_state_replicated_start(const struct leader_state *s);
/* How many are in sync, the leader included: the lesser of the stored and the proposed ISR. */
int32_t leader_state_in_sync(const struct leader_state *s);
/* What the partition goes by from now on (watermark.h): all but its min_in_sync, which stays. */
void leader_state_limits(const struct leader_state *s, struct watermark_limits *limits);

/* ---- changing the in-sync replicas ------------------------------------------------------------------ */

/* One write: multi { check /brokers/epochs/<id> == epoch for each of `checks`, set the state with `version` }. */
struct leader_isr_change {
    struct znode_state state;
    int32_t version;
    int32_t checks_count; /* those that join: their registration must be the one that pulled */
    struct {
        int32_t broker_id;
        int64_t broker_epoch;
    } checks[ZNODE_REPLICAS_MAX];
};
/* The leader's own log begins at `log_start`: to be told before each of the next two. It only rises. */
void leader_state_starts_at(struct leader_state *s, int64_t log_start);
/* Whether the replica could join if this were looked at now: then leader_state_propose() is due. */
bool leader_state_could_join(struct leader_state *s, int32_t broker_id, int64_t high_watermark, int64_t now_ms);
/* Is a change due? Shrink: members not assigned, dead, draining, registered anew, whose log ends below the high
 * watermark (it has lost records), or not caught up for lag_ms_max (a pull catches up when it asks for the log's end as
 * of the pull before, as of then). Expand: assigned, alive, not
 * draining, caught up for no longer ago than that, with a safe end at or above the high watermark and the epoch's start,
 * and with a log that begins no lower than the leader's: what was deleted must not come back with it. The leader stays.
 * One write at a time; from here until its outcome is certain both ISRs count. Returns true and fills *ret: next
 * publish the new limits, then leader_state_confirm() with the high watermark read after that, then send. */
bool leader_state_propose(struct leader_state *s, int64_t high_watermark, int64_t now_ms,
                          struct leader_isr_change *ret);
/* The high watermark and the log's start may have moved between looking and publishing. False: somebody who was to join
 * is behind them; the proposal is withdrawn and must not be sent. */
bool leader_state_confirm(struct leader_state *s, int64_t high_watermark);

/* What became of the write. `version`: the node's new version, for LEADER_APPLIED only. */
enum leader_outcome {
    LEADER_APPLIED,
    LEADER_REFUSED, /* BADVERSION of the state or of a check, or no such node: read again */
    LEADER_UNKNOWN  /* may be applied, now or later: sync, then read again */
};
void leader_state_outcome(struct leader_state *s, enum leader_outcome outcome, int32_t version);
/* The node has to be read (with a sync before): leader_state_read() gets the answer. */
bool leader_state_wants_read(const struct leader_state *s);

/* The state as read, for any reason. Returns 0: taken note of (an older version than known is ignored, and has to be
 * read again if a read was wanted); -BROOK_E_NOT_LEADER: a newer epoch, or another leader: step down, by
 * replica_role_decide(). */
int leader_state_read(struct leader_state *s, const struct znode_state *state, int32_t version);
#endif
