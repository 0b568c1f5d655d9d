/* Inside of the group machine: shared by group_member*.c only. */
#ifndef BROOK_CLIENT_GROUP_MEMBER_PRIVATE_H
#define BROOK_CLIENT_GROUP_MEMBER_PRIVATE_H

#include "client/group_member.h"
#include "proto/base/names.h"

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

/* Failed requests are repeated after this long, doubling up to the maximum. */
#define RETRY_MS 50
#define RETRY_MS_MAX 2000

enum member_state { MEMBER_NONE, MEMBER_REGISTERING, MEMBER_REGISTERED, MEMBER_UNREGISTERING };

enum partition_state {
    PARTITION_FREE,
    PARTITION_CLAIMING,
    PARTITION_BLOCKED,
    PARTITION_OWNED,
    PARTITION_DRAINING,
    PARTITION_RELEASING,
    PARTITION_HELD,
    PARTITION_KEPT /* given up in memory, left owned for the next process */
};

struct member_partition {
    enum partition_state state;
    bool desired;      /* assigned to us, and we want it */
    bool doubt;        /* a commit's outcome is to be found out */
    uint64_t op;       /* of the claim or release under way */
    uint64_t verify_op; /* of the verification under way */
    int64_t not_before_ms;
    int64_t verify_not_before_ms;
    int retry_ms;
    int64_t deadline_ms; /* draining: its end; blocked: the alarm */
};

struct member_topic {
    UT_hash_handle hh;
    bool watched;
    bool wanted;  /* while the set of watches is worked out */
    bool listed;  /* in the list of topics, and we subscribe to it */
    bool known;   /* its node was seen since it is watched */
    bool exists;
    int64_t zxid;
    struct topic_id topic_id;
    struct member_partition *partitions;
    int32_t partitions_count;
    int32_t assigned_count; /* of desired ones */
    char name[];
};

struct group_member {
    struct group_member_settings settings;
    struct topic_patterns *patterns;
    uint64_t random;
    uint64_t ops;

    /* What is wanted. */
    char **subscription;
    size_t subscription_count;
    bool is_pattern;
    bool subscribed;
    bool resubscribed; /* the ids node does not say it yet */
    bool leaving;
    bool keep;
    bool away;
    int64_t away_since_ms;

    /* The session. */
    bool session_up;
    uint64_t generation;
    int session_timeout_ms;
    bool lease_over; /* dropped all; waits for contact or for the end */

    /* The registration. */
    char id[MEMBER_ID_BYTES_MAX + 1];
    enum member_state state;
    uint64_t state_op;
    int64_t state_not_before_ms;
    int state_retry_ms;
    bool group_watched;
    bool topics_watched;
    bool list_owned; /* after a resumed registration */

    /* The group as it was seen last. */
    bool ids_known;
    int64_t ids_pzxid;
    size_t rank; /* how many others are to assign before us */
    char **ids;
    size_t ids_count;
    bool assignment_known;
    bool has_assignment;
    struct znode_assignment assignment;
    bool topics_known;

    /* The round of assigning. */
    int64_t round_due_ms; /* 0: none is due */
    uint64_t round_op;
    int round_retry_ms;
    struct znode_assignment written; /* what WRITE lends out */

    struct member_topic *topics; /* uthash */
    size_t partitions_count;     /* of all topics, for the room of effects */
    bool reconcile;              /* all partitions are to be looked at */

    struct group_effect *effects; /* a ring */
    size_t effects_capacity;
    size_t effects_first;
    size_t effects_count;
    size_t effects_reserved;
};

/* group_member.c */
uint64_t member_next_op(struct group_member *m);
/* 0 .. below bound - 1. */
int64_t member_random(struct group_member *m, int64_t bound);
void member_backoff(int *retry_ms, int64_t now_ms, int64_t *ret_not_before_ms);
/* Queue an effect: there is room (member_reserve()). */
void member_push(struct group_member *m, struct group_effect effect);
void member_report(struct group_member *m, enum group_report report, int err, const char *topic, int32_t partition);
/* Make room for what one step may queue with the present number of partitions plus `more`. */
int member_reserve(struct group_member *m, size_t more);
bool member_is_in(const struct group_member *m);

/* group_member_topics.c: the table of topics, and which of them are watched */
struct member_topic *member_topic_find(struct group_member *m, const char *name);
/* Finds or makes. NULL: out of memory. */
struct member_topic *member_topic_get(struct group_member *m, const char *name);
int member_topic_grow(struct group_member *m, struct member_topic *t, int32_t partitions_count);
void member_topics_free(struct group_member *m);
bool member_subscribes(const struct group_member *m, const char *topic);
/* Work out which topics are to be watched. */
void member_watch_topics(struct group_member *m);
void member_unwatch_topics(struct group_member *m);
void member_topics_event(struct group_member *m, const struct group_event *e);
void member_topic_event(struct group_member *m, const struct group_event *e);

/* group_member_partitions.c: the life of a partition */
void member_partition_event(struct group_member *m, const struct group_event *e);
/* Look at every partition: claim, drain, release what is due. */
void member_reconcile(struct group_member *m, int64_t now_ms);
/* The lease, the session or the registration is over: nothing is delivered any more. `session_lives`: owner nodes may
 * still be ours. */
void member_drop_all(struct group_member *m, bool session_lives);
/* Drop one topic's partitions, to be claimed again: it was made anew. */
void member_drop_topic(struct group_member *m, struct member_topic *t);
/* Nothing is owned, claimed or being released. */
bool member_holds_nothing(const struct group_member *m);
int64_t member_partitions_next_ms(const struct group_member *m);

/* group_member_round.c: the group's assignment */
int member_assignment_event(struct group_member *m, const struct group_event *e);
void member_ids_event(struct group_member *m, const struct group_event *e);
void member_round_event(struct group_member *m, const struct group_event *e);
/* Mark what is assigned to us. */
int member_mark_desired(struct group_member *m);
/* Begin, put off or forget a round. */
void member_round(struct group_member *m, int64_t now_ms);
bool member_view_is_stale(const struct group_member *m);
void member_forget_group(struct group_member *m);
/* The next assignment for a view: pure. Takes nothing over. Returns 0, -BROOK_E_NOMEM, or -BROOK_E_UNSUPPORTED (the
 * oldest member's strategy or version is not known). */
int group_compute(const struct group_view *view, struct topic_patterns *patterns, struct znode_assignment *ret);
/* Whether an assignment was made from this view. */
bool group_view_is_current(const struct group_view *view);
#endif
