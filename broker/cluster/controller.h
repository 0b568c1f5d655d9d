/* What the controller decides about a partition: who leads it, and who counts as in sync. Pure: no clock, no
 * I/O, no memory kept.
 *
 * The shell (controller_driver.h) feeds it what ZooKeeper says and writes what it answers, fenced by the
 * controller epoch and by the version of the state it decided on. Where replicas go is placement.h's, how
 * they are moved reassignment.h's.
 */
#ifndef BROOK_CLUSTER_CONTROLLER_H
#define BROOK_CLUSTER_CONTROLLER_H

#include "coordination/znodes.h"

/* A live broker, as its registration says. */
struct controller_broker {
    int32_t broker_id;
    int64_t broker_epoch;
    int64_t clean_from; /* the broker epoch that stopped cleanly before this one; -1: none */
    int64_t disk_from;  /* the broker epoch that its data directories were last registered with; -1: none */
    bool draining;      /* it is about to stop */
    const char *rack;   /* borrowed; NULL: none */
};
/* Those alive, by id. */
struct controller_brokers {
    const struct controller_broker *brokers;
    size_t count;
};
/* NULL: not alive. */
const struct controller_broker *controller_find_broker(const struct controller_brokers *alive,
                                                       int32_t broker_id);

/* How far the log of a replica goes, as its broker told when the partition had no leader. */
struct controller_end {
    int32_t broker_id;
    int64_t broker_epoch; /* of the life that told */
    int32_t leader_epoch; /* of the state it had adopted: it follows nobody, so its log does not grow */
    int32_t last_epoch;   /* of its last record; -1: the log is empty, or can not be read */
    int64_t end;          /* log end offset; -1: the log can not be read */
};
struct controller_ends {
    const struct controller_end *ends;
    size_t count;
};

enum controller_verdict {
    CONTROLLER_KEEP,   /* the state is as it should be, or nothing can be done yet */
    CONTROLLER_CREATE, /* there was no state: the first one */
    CONTROLLER_ELECT,  /* another leader, or other members in sync: it is a new epoch */
    CONTROLLER_OFFLINE /* nobody may lead (yet): leader -1, the in-sync replicas stay as they are */
};
/* What an election is good for. */
enum controller_safety {
    CONTROLLER_SAFE,     /* the leader has every acknowledged record */
    CONTROLLER_COMPARED, /* all in sync lost what was not on the disk: the longest log leads */
    CONTROLLER_UNCLEAN   /* the leader was not in sync: acknowledged records may be gone */
};

/* One partition, and what there is to know about it. Everything is borrowed. */
struct controller_case {
    const struct znode_replicas *replicas;
    const struct znode_state *state; /* NULL: none has been written yet */
    const struct controller_brokers *alive;
    bool unclean;          /* unclean.leader.election.enable */
    bool leave_out_absent; /* replicas that are away were waited for long enough (election.h) */
    const struct controller_ends *ends;
    bool is_durable; /* durability is fsync, and was so since the topic was made */
    /* Live replicas whose logs are offline. They keep what they had, but can serve nobody: they are treated like those about
     * to stop. */
    const int32_t *offline;
    int32_t offline_count;
};
struct controller_decision {
    enum controller_verdict verdict;
    enum controller_safety safety;
    struct znode_state state; /* but for KEEP: all but its controller_epoch */
};

/* Decide. Every new state has the next leader epoch (the first one 0); its in-sync replicas are never none,
 * are assigned ones, and each carries the broker epoch it was counted with.
 *
 * A member counts only with the broker epoch that the state lists, or if that one stopped cleanly, or (`is_durable`) if
 * its disk is the one that was registered with it: a new
 * registration is a death first, and one that lost its page cache leaves the ISR. The first assigned replica
 * that counts leads, one that is about to stop, or whose log is offline, only if there is no other; where another leads,
 * those leave the ISR. With the choice of a leader members that are away leave it, too; where the leader is well it
 * takes them out itself.
 *
 * When every member of the ISR lives but none counts (all lost power), election.h decides: the partition goes
 * OFFLINE, so that its replicas stop following, then waits until they have told their logs' ends at that
 * epoch, and then the longest (last epoch, then end) leads: COMPARED. While members are away, which may have
 * kept what they had, nobody leads but by an unclean election, which goes the same way among those that live. */
void controller_elect(const struct controller_case *partition, struct controller_decision *ret);
/* Whether an election of the partition waits for (or would look at) the ends of its replicas. */
bool controller_wants_ends(const struct controller_case *partition);

/* The preferred replica (the first assigned one) leads again. Returns true, and a state as above, when it
 * does not lead, is alive and in sync and not about to stop, and the present leader is well. */
bool controller_prefer(const struct controller_case *partition, struct znode_state *ret);

/* ---- shared with reassignment.c ------------------------------------------------------------------------- */

bool controller_is_assigned(const struct znode_replicas *replicas, int32_t broker_id);
/* About to stop, or its log is offline: another one leads, if there is one. */
bool controller_is_leaving(const struct controller_case *partition, int32_t broker_id);
/* Whether the broker is a member of the ISR that lives and has all that was acknowledged. */
bool controller_counts(const struct controller_case *partition, int32_t broker_id);
/* Whether it counts by the very life that the state lists. */
bool controller_is_same_life(const struct controller_case *partition, int32_t broker_id);
/* The members that stay in the ISR when the partition's state is written anew, with their present broker
 * epochs: those that count, and those that are away, but are assigned. */
void controller_carry_isr(const struct controller_case *partition, struct znode_state *ret);
#endif
