/* A whole cluster around one partition, as a model: brokers with logs (page cache, and what is on the disk), leaders,
 * followers, controllers, and a ZooKeeper with versions, multis, sessions, late and lost answers. It runs the real
 * pure cores (broker/replication, broker/partition/watermark.h, controller_elect()) through one random schedule per seed;
 * after each step the invariants of replication are checked against the truth that only the model knows: which
 * records were committed, and by whom. In some schedules the partition is moved by reassignment, its topic is deleted
 * and made again under the same name, or unclean elections are allowed.
 *
 * No clock, no I/O but the trace, no allocation. A rule can be broken, one at a time, to see that its absence is found.
 */
#ifndef BROOK_TESTS_CLUSTER_WORLD_H
#define BROOK_TESTS_CLUSTER_WORLD_H

#include <stdbool.h>
#include <stdint.h>

/* In a seed: nobody moves the partition, or deletes its topic. What needs a long history of few brokers is found there. */
#define CLUSTER_QUIET_SEED (UINT64_C(1) << 63)

/* X(name, the first seed from 1 on that finds it (0: not found yet), what is broken) */
#define CLUSTER_RULES(X) \
    X(NOTHING, 0, "no rule is broken") \
    X(UNION, 102, "the high watermark waits for the stored ISR only while a change is in flight") \
    X(SETTLE, 2718, "a change that is not seen in the next read counts as not applied") \
    X(EPOCH_START, 508, "joining the ISR needs the high watermark only, not the start of the epoch") \
    X(POSITION_EPOCH, 6932, "a follower's position counts whichever broker epoch it pulls with") \
    X(JOIN_CHECK, 3667, "an ISR expansion does not check the follower's registration") \
    X(LAST_EPOCH, 20, "a pull's last_epoch is not compared with the leader's history") \
    X(FORGET, 3176, "a new leader keeps the positions of the time it led before") \
    X(TRUNCATE, 9, "a new follower cuts to its high watermark, and does not ask for epochs") \
    X(FENCE, 41, "controller writes do not check /controller_epoch") \
    X(VERSION, 1, "writes of the state do not check its version") \
    X(SOLE, 228, "a sole member leads after an unclean stop, without a comparison") \
    X(SOLE_LIVE, 39340, "logs are compared of the live replicas only") \
    X(REACHED, CLUSTER_QUIET_SEED | 30540, "logs are compared by the epochs of their records alone") \
    X(COUNT_EARLY, 0, "a position counts before the follower knows that it has reached the epoch") \
    X(FREEZE, 1501, "logs are compared while they may still change") \
    X(MIN_INSYNC, 3, "the high watermark moves with fewer than min.insync.replicas") \
    X(BOUNCE, 5, "a broker that registers anew keeps its broker epoch") \
    X(CLEAN, 641, "a broker says that it stopped cleanly when it did not") \
    X(EMPTY_DISK, 228, "an fsync topic counts a member whatever disk it came back with") \
    X(FSYNC_LATE, 15925, "a topic that becomes fsync counts unclean members at once") \
    X(LATEST, 97, "`latest` is answered before the high watermark has reached the epoch's start") \
    X(OLD_STATE, 7847, "a broker acts on a state older than the one it acts on") \
    X(OLD_LIFE, 5, "a broker leads by a state that lists an earlier life of it") \
    X(FENCED_PULL, 2510, "a pull of an older leader epoch counts") \
    X(MOVE_CHECK, 1964, "the end of a move does not check the registrations of those who stay") \
    X(IDENTITY, 9, "writes of the state do not check which topic of that name it is") \
    X(REMEMBER, 36, "an epoch counts as acted on when the change has begun") \
    X(KEPT, CLUSTER_QUIET_SEED | 30540, "the epoch that was reached is not kept over a stop") \
    X(REACH_UNSAFE, 0, "an epoch is kept as reached before the log is on the disk up to its start") \
    X(LEAD_UNKEPT, CLUSTER_QUIET_SEED | 30540, "a leader of an fsync topic commits before its epoch is on its disk") \
    X(REPORT_UNSAFE, 0, "an fsync topic's logs are compared with what is not on the disk")

enum cluster_rule {
#define X(name, seed, text) CLUSTER_##name,
    CLUSTER_RULES(X)
#undef X
        CLUSTER_RULES_COUNT
};
const char *cluster_rule_name(enum cluster_rule rule);
const char *cluster_rule_text(enum cluster_rule rule);
uint64_t cluster_rule_seed(enum cluster_rule rule);

/* What one schedule, or many, came to. */
struct cluster_counts {
    uint64_t schedules;
    uint64_t steps;
    uint64_t committed, acknowledged;
    uint64_t elections, compared; /* leaders that began; of these after a comparison of logs */
    uint64_t expansions, shrinks;
    uint64_t unknown;     /* outcomes that were not known */
    uint64_t cuts;        /* truncations */
    uint64_t kills, power_cuts, empty_disks, pauses, bounces;
    uint64_t unclean, moved, remade; /* elections, moves that ended, topics made again */
    uint64_t excused;     /* schedules in which all who had a record were lost */
    uint64_t settled;     /* schedules that were healed at their end, and all came right */
};

/* Run the schedule of `seed`. Returns NULL, or what went wrong. `trace`: say each step on stderr. */
const char *cluster_world_run(uint64_t seed, enum cluster_rule broken, bool trace, struct cluster_counts *counts);
/* Play the history of cluster_world_script.c, which breaking COUNT_EARLY makes go wrong. */
const char *cluster_world_play(enum cluster_rule broken, bool trace, struct cluster_counts *counts);
#endif
