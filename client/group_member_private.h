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
    bool hurried;      /* draining: the first part of its time is over */
    uint64_t op;       /* of the claim or release under way */
    uint64_t verify_op; /* of the verification under way */
    int64_t not_before_ms;
    int64_t verify_not_before_ms;
    int retry_ms;
    int64_t deadline_ms; /* draining: the end of this part; blocked: the alarm, and another try */
};

struct member_topic {
    UT_hash_handle hh;
    bool watched;
    bool subscribed; /* by us */
    bool listed;     /* in the list of topics */
    bool known;      /* its node was seen since it is watched */
    bool exists;
    int64_t zxid;
    int64_t agreed_zxid; /* of the assignment's view; 0: not in the assignment */
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

    /* As of the last event. */
    int64_t now_ms;
    int64_t lease_until_ms;
    int64_t polled_ms;

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
    /* The session was an earlier process's: what it owned is to be found out. */
    bool list_owned;
    uint64_t list_op;
    int64_t list_not_before_ms;
    int list_retry_ms;

    /* The group as it was seen last. */
    bool ids_known;
    int64_t ids_pzxid;
    char **ids; /* sorted */
    size_t ids_count;
    bool assignment_known;
    bool has_assignment;
    struct znode_assignment assignment;
    bool topics_known;
    bool mark;  /* what is desired is to be worked out anew */
    bool watch; /* what is to be watched, likewise */

    /* The round of assigning. */
    int64_t round_due_ms; /* 0: none is due */
    uint64_t round_op;
    int round_retry_ms;
    struct znode_assignment written; /* what WRITE lends out */

    struct member_topic *topics; /* uthash */
    size_t topics_count;
    size_t partitions_count;    /* of all topics, for the room of effects */
    size_t busy;                /* partitions that are neither free nor kept */
    bool reconcile;             /* all partitions are to be looked at */
    int64_t partitions_due_ms;  /* when they are, at the latest */

    struct group_effect *effects; /* a ring */
    size_t effects_capacity;
    size_t effects_first;
    size_t effects_count;
    size_t effects_reserved;
};

/* group_member.c */
uint64_t member_next_op(struct group_member *m);
/* 0 .. below bound - 1; 0 for a bound below 1. */
int64_t member_random(struct group_member *m, int64_t bound);
/* Double *retry_ms within its limits; returns when to try again. */
int64_t member_backoff(struct group_member *m, int *retry_ms);
/* Queue an effect: there is room (member_reserve()). */
void member_push(struct group_member *m, struct group_effect effect);
void member_report(struct group_member *m, enum group_report report, int err, const char *topic,
                   int32_t partition);
/* Make room for what a step may queue, with this many topics and partitions more. */
int member_reserve(struct group_member *m, size_t more);
/* Registered, and neither leaving nor away. */
bool member_takes_part(const struct group_member *m);
bool member_has_lease(const struct group_member *m);

/* group_member_topics.c: the table of topics, and which of them are watched */
struct member_topic *member_topic_find(const struct group_member *m, const char *name);
/* Finds or makes. NULL: out of memory. */
struct member_topic *member_topic_get(struct group_member *m, const char *name);
int member_topic_grow(struct group_member *m, struct member_topic *t, int32_t partitions_count);
void member_topics_free(struct group_member *m);
int member_set_subscription(struct group_member *m, const char *const *topics, size_t count, bool is_pattern);
void member_clear_subscription(struct group_member *m);
/* Watch what is to be watched, and no more. */
int member_watch_topics(struct group_member *m);
/* None is watched any more, and nothing known of them. */
void member_forget_topics(struct group_member *m);
int member_topics_event(struct group_member *m, const struct group_event *e);
void member_topic_event(struct group_member *m, const struct group_event *e);

/* group_member_partitions.c: the life of a partition */
void member_partition_event(struct group_member *m, const struct group_event *e);
/* Look at every partition: claim, drain, release what is due. */
void member_reconcile(struct group_member *m);
/* Lease, session or registration are over: nothing is delivered any more. `session_lives`: owner nodes may
 * still be ours. */
void member_drop_all(struct group_member *m, bool session_lives);
/* The topic was made anew: drop its partitions, to be claimed again. */
void member_drop_topic(struct group_member *m, struct member_topic *t);
/* What was kept for the next process may be wanted by this one after all. */
void member_unkeep(struct group_member *m);

/* group_member_round.c: the group's assignment */
int member_ids_event(struct group_member *m, const struct group_event *e);
int member_assignment_event(struct group_member *m, const struct group_event *e);
int member_view_event(struct group_member *m, const struct group_event *e);
void member_written_event(struct group_member *m, const struct group_event *e);
/* Work out what is assigned to us. */
int member_mark_desired(struct group_member *m);
/* Begin, put off or forget a round. */
void member_round(struct group_member *m);
bool member_view_is_stale(const struct group_member *m);
bool member_is_listed(const struct group_member *m);
/* Nothing is known of ids and assignment any more. */
void member_forget_group(struct group_member *m);

/* group_compute.c: pure */
/* The next assignment for a view. Returns 0, -BROOK_E_NOMEM, or -BROOK_E_UNSUPPORTED (strategy or algorithm
 * version of the oldest member are not known here). */
int group_compute(const struct group_view *view, struct topic_patterns *patterns,
                  struct znode_assignment *ret);
/* Whether the view's assignment was made from this very view. */
bool group_view_is_current(const struct group_view *view);
#endif
