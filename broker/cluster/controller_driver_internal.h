/* Inside of the controller at work, shared by controller_driver.c (what is decided, and when), controller_writes.c
 * (states and assignments on their way to ZooKeeper) and controller_wishes.c (what is asked for in /admin), and by
 * nobody else.
 */
#ifndef BROOK_CLUSTER_CONTROLLER_DRIVER_INTERNAL_H
#define BROOK_CLUSTER_CONTROLLER_DRIVER_INTERNAL_H

#include "broker/cluster/controller_driver.h"
#include "broker/cluster/quota.h"
#include "broker/cluster/reassignment.h"
#include "broker/cluster/topic_deletion.h"

/* A state that was decided on. */
struct controller_item {
    char *topic;
    struct topic_id topic_id;
    int32_t number;
    enum controller_verdict verdict;
    enum controller_safety safety;
    bool is_finish; /* the end of a move: the topic's node is written with it */
    int32_t former_leader;
    struct znode_state state;
    int32_t version; /* that the node gets by it */
    size_t op; /* index of the state's op in the multi */
};

/* One multi: states of any topics, assignments that go with them, and the notification. */
struct controller_chunk {
    struct controller_driver *driver;
    uint64_t term;
    struct coordinator_multi *multi;
    size_t count;
    struct controller_item items[CONTROLLER_STATES_PER_WRITE];
};

/* One node of /admin, read and not yet carried out. */
struct controller_wishes {
    enum znode_wish_kind kind;
    struct observation *observation; /* while controller */
    struct znode_wishes wishes;
    int32_t version; /* -1: there is nothing */
    bool is_marked;  /* the partitions carry their wish (elections) */
    bool is_busy;    /* a write of the node is under way */
    bool is_senseless;
    int64_t until_ms; /* elections that can not be held are given up */
};

struct controller_driver {
    struct controller_driver_settings s;
    bool is_active;
    uint64_t term; /* counts seats taken and lost: answers of an earlier one are recognised */
    int32_t epoch;
    int32_t epoch_version;
    struct controller_chunk *chunk; /* being filled */
    unsigned in_flight;
    bool all_is_due;
    bool prefer_all; /* at this look at everything, preferred replicas are given their leadership back */
    unsigned refusals; /* in a row */
    int64_t not_before_ms;
    int64_t rebalance_ms;
    int64_t doubt_ms; /* the earliest end of waiting for replicas that are away; INT64_MAX: none is waited for */
    int64_t retry_ms; /* when the first of the states that could not be written is tried again; INT64_MAX: none is */
    struct topic_deletions *deletions;
    struct controller_wishes plans;
    struct controller_wishes elections;
    bool is_ending_throttle; /* a write of that is under way */
    int64_t throttle_ms;     /* not before */
};

/* controller_writes.c */
void controller_chunk_free(struct controller_chunk *chunk);
/* Forget what was not sent. */
void controller_drop_chunk(struct controller_driver *d);
/* Write the state with the next chunk. Returns false: no room or no memory, decide again later. */
bool controller_add_state(struct controller_driver *d, struct image_topic *topic, int32_t number,
                          const struct controller_decision *decision, bool is_finish);
void controller_send(struct controller_driver *d);
/* Make the directories that somebody else made in part. */
void controller_mend(struct controller_driver *d, struct image_topic *topic);
/* After a refusal: not at once again. */
void controller_back_off(struct controller_driver *d);
/* The partition's move as reassignment.h takes it. */
void controller_move_of(const struct znode_topic *node, int32_t number, struct reassignment *ret);
/* A copy of the node with some moves changed (`moves[i]` is of partition `numbers[i]`, rising). Returns its text,
 * or NULL: out of memory. */
char *controller_encode_moved(const struct znode_topic *node, const int32_t *numbers,
                              const struct reassignment *moves, size_t count);

/* controller_wishes.c */
void controller_wishes_start(struct controller_driver *d);
void controller_wishes_stop(struct controller_driver *d);
/* Carry out what can be now. Returns when to call again. */
int64_t controller_wishes_run(struct controller_driver *d, int64_t now_ms);

/* controller_driver.c */
/* What there is to know about a partition. `state`, `ends` (of ZNODE_REPLICAS_MAX entries in `list`) and `offline` are
 * filled and pointed to. */
struct controller_look {
    struct controller_case partition;
    struct znode_state state;
    struct controller_ends ends;
    struct controller_end list[ZNODE_REPLICAS_MAX];
    int32_t offline[ZNODE_REPLICAS_MAX];
    int32_t offline_count;
};
void controller_look_at(const struct controller_driver *d, const struct image_topic *topic, int32_t number,
                        struct controller_look *ret);
#endif
