/* Inside of cluster_world.h, shared by its files. Broker ids are indexes; sets of brokers are bits. */
#ifndef BROOK_TESTS_CLUSTER_WORLD_PRIVATE_H
#define BROOK_TESTS_CLUSTER_WORLD_PRIVATE_H

#include "broker/cluster/reassignment.h"
#include "broker/partition/durability.h"
#include "broker/partition/watermark.h"
#include "broker/replication/follower_state.h"
#include "broker/replication/leader_state.h"
#include "broker/replication/replica_role.h"
#include "tests/property/cluster_world.h"

#include <stdio.h>

#define BROKERS_MAX 5
#define LOG_MAX 24
#define EPOCHS_MAX 64
#define VALUES_MAX 512
#define MESSAGES_MAX 12
#define LATE_MAX 4
#define OPS_MAX 10
#define RECORDS_PER_PULL 3
#define LAG_MS_MAX 60

struct record {
    int16_t epoch;
    uint16_t value;
};

/* The state as it is kept here: small. */
struct state {
    int32_t leader, leader_epoch, controller_epoch;
    uint32_t isr;
    int32_t isr_epochs[BROKERS_MAX];
};

/* The topic's node: where its partition is, and where it is moved to. Small, too. */
struct list {
    int8_t count;
    int8_t brokers[BROKERS_MAX];
};
struct placement {
    struct list replicas, adding, removing, target;
};

/* A view of ZooKeeper: what somebody read at some time. */
struct view {
    bool is_valid;
    int32_t topic; /* which of that name */
    struct placement placement;
    int32_t placement_version;
    int32_t version;
    struct state state;
    int32_t live_epochs[BROKERS_MAX]; /* -1: not alive */
    int32_t clean_from[BROKERS_MAX];
    int32_t disk_from[BROKERS_MAX];
    uint32_t draining;
};

/* A write of the state, from being sent to its end. */
enum op_stage { OP_NONE, OP_SENT, OP_ANSWERED, OP_GHOST /* nobody waits for it any more */ };
struct op {
    enum op_stage stage;
    bool is_controllers, is_comparison, gives_up;
    bool is_finish; /* of a move: writes the placement as well */
    int32_t topic;
    struct placement placement;
    int32_t placement_version;
    int32_t broker;
    int32_t life;
    int32_t term;    /* of the controller */
    int32_t version; /* on which it is conditional */
    struct state state;
    uint32_t joins; /* whose epochs are checked */
    enum leader_outcome outcome;
    int32_t new_version;
};

enum message_kind {
    MESSAGE_NONE,
    MESSAGE_PULL,
    MESSAGE_PULLED,
    MESSAGE_ASK,
    MESSAGE_TOLD,
    MESSAGE_COMPARE,
    MESSAGE_REPORT
};
struct message {
    enum message_kind kind;
    int32_t from, to;
    int32_t topic;
    int32_t life; /* of whoever asked: answers go to nobody else */
    struct leader_pull pull;
    int32_t error;
    int32_t asked;
    struct epoch_end told;
    int64_t high_watermark, epoch_start;
    int32_t records_count;
    struct record records[RECORDS_PER_PULL];
    struct controller_end report;
};

struct controller {
    bool is_active; /* believes to be it */
    int32_t epoch;
    int32_t term;
    bool is_busy; /* a write is on its way */
    struct view view;
    bool leaves_out; /* has waited long enough for those that are away */
    bool has_decision, is_comparison;
    bool gives_up; /* what only they may have */
    bool is_finish;
    struct state decision;
    int32_t decision_version;
    struct controller_end reports[BROKERS_MAX]; /* broker epoch -1: none */
};

struct broker {
    int32_t topic;      /* whose log it is */
    int32_t left_epoch; /* of the state by which it let go of its log; 0: it never did */
    /* what a power cut leaves, and what it takes */
    struct record log[LOG_MAX];
    struct record disk[LOG_MAX]; /* the log as of the last sync */
    int32_t log_end, disk_end;
    int32_t durable_end;
    int32_t mark_on_disk;  /* high watermark checkpoint */
    int32_t clean_on_disk; /* epoch that stopped cleanly, -1 */
    int32_t epoch_on_disk; /* epoch registered last, -1 */
    int32_t reached_on_disk; /* leader epoch whose start the log has reached, as the disk says; -1 */
    struct epoch_entry entries[LOG_MAX];
    int32_t entries_count;
    int32_t generation;      /* counts the times that a process ended other than cleanly */
    int32_t disk_generation; /* counts lost disks */
    /* the process */
    bool is_up, is_paused, is_cut; /* cut: from ZooKeeper */
    bool is_fsync;                 /* the topic's durability as this broker knows it */
    bool was_fsync;                /* since it was made, likewise */
    int32_t life;
    int32_t broker_epoch; /* -1: not registered */
    int32_t first_epoch;  /* of this process */
    int32_t clean_from;   /* for the next registration */
    int32_t disk_from;
    int32_t registering; /* registered so, and it is not on the disk yet: nothing is done under it. -1: none */
    int32_t reached_epoch;
    int32_t told_start; /* of the epoch that is followed, -1: not told yet */
    bool knows_expired;
    struct view view;     /* a read that is on its way */
    struct view old_view; /* one that comes late, or once more */
    int32_t seen_version; /* of the state */
    struct placement placement; /* read last: topics' nodes are read in order */
    int32_t placement_version;
    struct replica_role role;
    struct follower_state follower;
    int64_t high_watermark;
    struct watermark_limits limits; /* while leading: as published for the partition */
    int32_t acknowledged;           /* while leading: below it all is answered */
    struct controller controller;
    union {
        struct leader_state leader;
        char leader_bytes[sizeof(struct leader_state) + BROKERS_MAX * sizeof(struct leader_replica)];
    };
    struct leader_replica kept[BROKERS_MAX]; /* positions of an earlier time: for a broken rule */
    int32_t kept_count;
};

struct registration {
    bool is_live;
    int32_t life;
    int32_t clean_from, disk_from;
    bool is_draining;
};

/* A record that was committed, and who had it when it was. */
struct committed {
    struct record record;
    uint32_t by;
    int32_t generation[BROKERS_MAX];
    int32_t leader_epoch; /* of who committed it */
    bool is_durable;
};

struct world {
    uint64_t random;
    enum cluster_rule broken;
    bool trace;
    const char *violation;
    struct cluster_counts *counts;
    int64_t now;
    int32_t step;
    /* the schedule's kind */
    int32_t brokers;
    int32_t min_in_sync;
    bool is_fsync;      /* the topic's setting */
    bool was_fsync;     /* since it was made */
    bool may_leave_out; /* the controller does not wait for absent replicas for ever */
    bool is_healing;
    bool is_gentle; /* no process ends */
    bool is_unclean; /* unclean.leader.election.enable */
    bool is_moved;   /* the partition is reassigned now and then */
    bool is_remade;  /* the topic is deleted now and then, and made again */
    bool is_quiet;  /* little is written */
    bool is_restless; /* sessions are short */
    uint32_t loss, faults, ticks, moves; /* of 256 */
    uint32_t unnoted; /* likewise: processes that end between a registration and its coming to the disk */
    /* ZooKeeper */
    int32_t topic; /* counts those of that name */
    struct placement placement;
    int32_t placement_version;
    bool has_state;
    struct state state;
    int32_t version;
    int32_t epochs[BROKERS_MAX];
    struct registration ids[BROKERS_MAX];
    int32_t controller, controller_epoch;
    struct op ops[OPS_MAX];
    uint32_t parted[BROKERS_MAX]; /* with whom no messages are exchanged */
    struct message messages[MESSAGES_MAX];
    struct message late[LATE_MAX]; /* pulls that come a second time, much later */
    struct broker b[BROKERS_MAX];
    /* the truth */
    struct committed committed[LOG_MAX];
    int32_t committed_end;
    int32_t commit_epoch; /* the newest at which something was committed */
    int32_t trusted_epoch; /* leaders below it were given up with what they had */
    bool is_excused;
    uint16_t next_value;
    uint8_t held[VALUES_MAX], durable[VALUES_MAX]; /* which brokers ever had the record, and on the disk */
    int8_t leader_of[EPOCHS_MAX];
    uint16_t value_at[EPOCHS_MAX][LOG_MAX]; /* 0: none */
    int64_t mark_of[BROKERS_MAX];
    int32_t mark_epoch[BROKERS_MAX];
};

#define TRACE(w, ...) \
    do { \
        if ((w)->trace) \
            world_say(w, __VA_ARGS__); \
    } while (0)
void world_say(struct world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The first violation is kept. */
void world_fail(struct world *w, const char *what);

static inline uint32_t bit(int32_t i)
{
    return (uint32_t)1 << i;
}
uint32_t world_below(struct world *w, uint32_t bound);
bool world_chance(struct world *w, uint32_t of_256);
static inline bool is_broken(const struct world *w, enum cluster_rule rule)
{
    return w->broken == rule;
}
/* As many brokers, all with a replica, in which nothing happens but what is done to it. */
struct world *world_make_plain(int32_t brokers, enum cluster_rule broken, bool trace, struct cluster_counts *counts);
bool list_holds(const struct list *list, int32_t broker);

/* logs */
struct epoch_history broker_history(const struct broker *b);
int32_t broker_safe_end(const struct broker *b);
void broker_append(struct world *w, struct broker *b, struct record record);
void broker_cut(struct world *w, struct broker *b, int32_t end);
void broker_sync(struct world *w, struct broker *b);
void broker_rebuild_epochs(struct broker *b);
/* The partition is let go of, and its log with it. */
void broker_drop_log(struct broker *b);
int32_t broker_id(const struct world *w, const struct broker *b);
static inline bool broker_leads(const struct broker *b)
{
    return b->is_up && b->role.is_complete && b->role.step.duty == REPLICA_LEAD;
}
static inline bool broker_follows(const struct broker *b)
{
    return b->is_up && b->role.is_complete && b->role.step.duty == REPLICA_FOLLOW;
}

/* steps: each does nothing when it does not apply */
void broker_produce(struct world *w, struct broker *b);
void broker_move_mark(struct world *w, struct broker *b);
void broker_publish(struct world *w, struct broker *b); /* what the leader knows has changed */
void broker_look(struct world *w, struct broker *b);      /* send a read of the state */
void broker_take_view(struct world *w, struct broker *b); /* its answer comes */
void broker_follow(struct world *w, struct broker *b);
void broker_change_isr(struct world *w, struct broker *b);
void broker_ask_latest(struct world *w, struct broker *b);
void broker_configure(struct world *w, struct broker *b); /* it learns the topic's settings */
void broker_register(struct world *w, struct broker *b);
void broker_note(struct world *w, struct broker *b); /* the registration reaches the disk */
void broker_reach(struct world *w, struct broker *b); /* the epoch that is followed */
void broker_keep_reach(struct world *w, struct broker *b); /* the epoch that is led, on the disk */

struct message *world_new_message(struct world *w);
void world_deliver(struct world *w, struct message *m);
void world_deliver_late(struct world *w);
void broker_handle(struct world *w, struct broker *b, const struct message *m);

struct op *zookeeper_new_op(struct world *w);
void zookeeper_apply(struct world *w, struct op *op);
void zookeeper_answer(struct world *w, struct op *op);
void zookeeper_forget(struct world *w, struct op *op); /* the asker is told that nothing is known */
void zookeeper_read(struct world *w, struct view *ret);
void zookeeper_expire(struct world *w, int32_t broker);

void controller_seize(struct world *w, struct broker *b);
void controller_think(struct world *w, struct broker *b);
void controller_send(struct world *w, struct broker *b);
void controller_ask_report(struct world *w, struct broker *b);
void controller_take_report(struct world *w, struct broker *b, int32_t topic, const struct controller_end *report);
void controller_answered(struct world *w, struct broker *b, const struct op *op);

void fault_end_process(struct world *w, struct broker *b, bool is_clean);
void fault_cut_power(struct world *w, struct broker *b);
void fault_lose_disk(struct world *w, struct broker *b);
void fault_start(struct world *w, struct broker *b);

/* what administrators do */
void admin_remake_topic(struct world *w);
void admin_move(struct world *w);

/* checks */
void check_append(struct world *w, const struct broker *b, int32_t offset);
void check_cut(struct world *w, const struct broker *b, int32_t end);
void check_mark(struct world *w, const struct broker *b, int64_t before);
void check_acknowledged(struct world *w, const struct broker *b, int32_t offset);
void check_begin(struct world *w, const struct broker *b);
void check_write(struct world *w, const struct op *op);
void check_moved(struct world *w); /* a move has ended */
void check_begin_anew(struct world *w); /* another topic of the name */
void check_all(struct world *w);

/* conversions */
struct znode_replicas list_to_znode(const struct list *list, int32_t brokers[BROKERS_MAX]);
void placement_to_reassignment(const struct placement *p, struct reassignment *ret);
void placement_from_reassignment(const struct reassignment *r, struct placement *ret);
void state_to_znode(const struct state *s, struct znode_state *ret);
void state_from_znode(const struct znode_state *z, struct state *ret);
#endif
