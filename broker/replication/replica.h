/* A replica: one hosted partition's part in replication. The shell around replica_role and leader_state: it takes states
 * as read from ZooKeeper, carries out the change of role on the partition, keeps the positions of followers while
 * leading, and says which change of the in-sync replicas is due.
 *
 * Its lock comes before the partition's own, and is not held across a system call. Knows no network and writes nothing
 * to ZooKeeper; following is carried out by the fetcher.
 */
#ifndef BROOK_REPLICATION_REPLICA_H
#define BROOK_REPLICATION_REPLICA_H

#include "broker/replication/leader_state.h"
#include "broker/replication/replica_role.h"
#include "proto/base/inbox.h"

struct partition;
struct replica;

struct replica_settings {
    int32_t broker_id;
    int64_t lag_ms_max;  /* replica.lag.time.max.ms */
    struct inbox *inbox; /* the cluster thread's */
    /* A change of the in-sync replicas may be due: look (replica_propose()). On the thread of `inbox`; coalesced. */
    void (*wants_look)(void *arg, struct replica *replica);
    void *arg;
};

/* `settings` are borrowed for the replica's life, which ends before that of the inbox; a reference to the partition is
 * taken. Returns 0 or -BROOK_E_NOMEM. */
int replica_new(const struct replica_settings *settings, struct partition *partition, struct replica **ret_replica);
struct replica *replica_ref(struct replica *r);
void replica_unref(struct replica *r); /* NULL is fine */
struct partition *replica_partition(struct replica *r);

/* ---- the cluster thread's ------------------------------------------------------------------------------ */

/* What ZooKeeper says. */
struct replica_news {
    const struct znode_state *state;
    int32_t version;
    const struct znode_replicas *replicas; /* assigned, and being added */
    int64_t broker_epoch;                  /* of this broker's registration */
    bool is_assigned;
    bool is_again; /* it was led at this epoch before, by another replica object of this process */
    int32_t min_in_sync;
    int64_t now_ms; /* clock_boot_ns() in ms, as everywhere here */
};
/* Do what it asks for. REPLICA_CHANGE: the role was changed to *ret (the caller tells the fetcher); when that could
 * not be completed, the same news are a change again. Waits for an append of the former leader's records to
 * end, if one is being written. KEEP: *ret is the duty as it is. */
enum replica_verdict replica_take_news(struct replica *r, const struct replica_news *news, struct replica_step *ret);
/* The partition is let go of: no role any more. The next news begin anew. */
void replica_resign(struct replica *r);
/* What the newest view says of a broker (leader_state_broker()). */
void replica_take_broker(struct replica *r, int32_t broker_id, int64_t broker_epoch, bool is_draining);
/* Is a change of the in-sync replicas due? Then *ret has to be written, and its outcome told. The limits that it
 * needs are in force when this returns true. */
bool replica_propose(struct replica *r, int64_t now_ms, struct leader_isr_change *ret);
void replica_take_outcome(struct replica *r, int32_t leader_epoch, enum leader_outcome outcome, int32_t version);
/* After a refusal, or an unknown outcome: sync, then read the state and bring it as news. */
bool replica_wants_read(struct replica *r);

/* Not in sync yet: what it pulls counts against replication.quota.bytes; if it is so since a move adds it, against the
 * throttle of moves, too. Any thread may ask. */
void replica_set_catching_up(struct replica *r, bool is_catching_up, bool is_moved_here);
bool replica_is_catching_up(const struct replica *r);
bool replica_is_moved_here(const struct replica *r);

/* A topic that was made with durability=fsync, and never changed: its members count by their disks (controller.h). So the
 * epoch that it leads at is to be on the disk before anything is committed, that which it follows before the leader is told,
 * and when logs are compared it says of its own what is on the disk. To be set before it takes news; any thread may ask. */
void replica_set_counts_by_disk(struct replica *r, bool counts);
bool replica_counts_by_disk(const struct replica *r);

/* ---- any thread ----------------------------------------------------------------------------------------- */

/* A follower's pull: leader_state_pull(), or -BROOK_E_NOT_LEADER. With 0 what it answers is under way: records from
 * pull->offset up to the log's end. */
int replica_pull(struct replica *r, const struct leader_pull *pull, int64_t now_ms);
/* The newest leader epoch that this replica has reached (follower_state_reached()), -1 at first. Leading reaches its
 * own. It only rises. */
int32_t replica_reached_epoch(const struct replica *r);
void replica_reach_epoch(struct replica *r, int32_t leader_epoch);
/* That it has reached that epoch is on the disk (for all that is known at its start, too). A leader that waits for its
 * own commits from then on. It only rises, and is reached as well. */
void replica_epoch_kept(struct replica *r, int32_t leader_epoch);
/* The epoch that it leads at and waits to see kept; -1: none. */
int32_t replica_awaited_epoch(struct replica *r);
/* EpochEnd. A leader answers for its log (`current_epoch` -1: whoever asks does not know it). When nobody leads at
 * `current_epoch` and this replica has applied that, the question for INT32_MAX compares logs for an election: the answer is the replica's own last epoch and end, and *ret_broker_epoch
 * the registration that vouches for it. Returns 0, -BROOK_E_NOT_LEADER, -BROOK_E_FENCED_EPOCH,
 * -BROOK_E_UNKNOWN_EPOCH. */
int replica_epoch_end(struct replica *r, int32_t current_epoch, int32_t epoch, struct epoch_end *ret,
                      int64_t *ret_broker_epoch);

/* How far the others are, as this leader knows it. Returns how many were filled in, 0 when it does not lead. */
struct replica_position {
    int32_t broker_id;
    bool is_in_sync;
    int64_t end;         /* -1: it has not pulled at this epoch */
    int64_t caught_up_ms; /* of the same clock as now_ms; the leader's own: 0 */
};
size_t replica_positions(struct replica *r, struct replica_position ret[ZNODE_REPLICAS_MAX]);
#endif
