/* Which fault comes next: pure, from a seed and from what is possible now. The same seed gives the same wishes; what becomes
 * of them also depends on how fast the cluster gets over each.
 */
#ifndef BROOK_TESTS_NEMESIS_SCHEDULE_H
#define BROOK_TESTS_NEMESIS_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

enum fault_kind {
    FAULT_KILL,            /* SIGKILL; the broker comes back with its data, perhaps within its session */
    FAULT_BLACKOUT,        /* SIGKILL to all at once; they come back with their data, which is in the page cache */
    FAULT_STOP,            /* SIGTERM; it comes back with its data */
    FAULT_PAUSE,           /* SIGSTOP and SIGCONT, shorter than the session */
    FAULT_PAUSE_LONG,      /* longer than the session */
    FAULT_POWER_CUT,       /* SIGKILL, and what it had not synced is gone; it comes back, perhaps within its session */
    FAULT_POWER_CUT_ALL,   /* that of all at once; of fsync topics alone */
    FAULT_EMPTY_DISK,      /* SIGKILL, and it comes back with nothing; at once, or when it is in no ISR any more */
    FAULT_CUT_ZOOKEEPER,   /* a broker and ZooKeeper do not hear each other, one way or both */
    FAULT_CUT_ONE_WAY,     /* what one broker sends does not reach another */
    FAULT_CUT_BOTH,        /* two brokers do not hear each other */
    FAULT_ISOLATE,         /* a broker hears neither the other brokers nor ZooKeeper, but still the clients */
    FAULT_ZOOKEEPER_KILL,  /* ZooKeeper is killed and started again */
    FAULT_ZOOKEEPER_PAUSE, /* SIGSTOP and SIGCONT */
    FAULT_ELECT,           /* all partitions to their preferred leaders */
    FAULT_MOVE,            /* a partition to other replicas */
    FAULT_MOVE_SLOWLY,     /* that, with a throttle that lets it go on during other faults, until it is taken back */
    FAULT_DELETE,          /* records that all have read, below an offset, while they read on */
    FAULT_MEMBER_KILL,     /* a group's member is killed, and another takes its place */
    FAULT_MEMBER_PAUSE,    /* SIGSTOP longer than its session, and SIGCONT */
    FAULT_CALM,            /* none: all must be well again by itself */
    FAULT_KINDS
};
const char *fault_name(enum fault_kind kind);
/* FAULT_KINDS: there is none of that name. */
enum fault_kind fault_by_name(const char *name);
struct fault {
    enum fault_kind kind;
    int broker;
    int other;      /* the other broker of a cut */
    int partition;  /* to be moved, or whose records are deleted */
    int group, member;
    int direction;  /* of a cut from ZooKeeper: 0 both ways, 1 to it, 2 from it */
    bool quick;     /* an emptied disk is back at once */
    bool reset;     /* when a cut heals, connections end instead of going on */
    int lasts_ms;
    int pause_ms;   /* before the next one */
};

struct schedule {
    uint64_t random;
    int brokers, partitions, groups, members;
    int session_ms;
    bool may_lose_disk;    /* several replicas */
    bool may_move;
    bool may_cut_power;    /* the disks are such */
    bool is_all_on_disk;   /* fsync topics alone */
};
/* Must nothing else be wrong when it begins, and until all is well again? */
bool fault_wants_calm(const struct schedule *s, enum fault_kind kind);
struct schedule_view {
    bool is_broker_busy[10]; /* has a fault already */
    bool is_zookeeper_busy;
    bool is_member_busy;
    bool is_move_slow; /* the throttle is on */
};
/* The next fault; draws until it finds one that is possible. */
struct fault schedule_next(struct schedule *s, const struct schedule_view *view);
/* One of this kind, or what can be had of it. */
struct fault schedule_draw(struct schedule *s, enum fault_kind kind);
#endif
