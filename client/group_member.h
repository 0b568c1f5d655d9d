/* What one member of a consumer group decides: a pure machine, step(state, event) -> effects.
 *
 * It knows who it is, the group's assignment, the state of each of its partitions, and the time it is told.
 * It has no I/O, no clock and no threads: its driver (group_driver.h) turns answers of ZooKeeper into events
 * and carries effects out. Every decision is taken again and again from the state ("level-triggered"), so a
 * lost or late event costs time and nothing else.
 *
 *     registered?   none -> registering -> member -> unregistering -> none
 *     a partition   free -> claiming -> owned -> draining -> releasing -> free
 *                             |  '-> blocked (somebody else's: watched, claimed when it goes)
 *                             '----> held (the owner node may be ours though memory has dropped it: to be
 *                                    claimed again or released)
 *     the group     a newer view than the assignment's -> settle -> read all -> compute -> write by CAS
 *
 * Rules it keeps, whatever the schedule:
 *   - a partition is delivered (between ADD and DRAIN or LOST) only while its owner node was confirmed to be
 *     ours in this session; when the lease ends, the session ends or the ids node is gone, all are LOST in
 *     that same step;
 *   - a release never waits for a claim; a claim waits as long as it takes; nothing is tried a fixed number
 *     of times;
 *   - what is owned and still assigned is never touched by a change.
 *
 * Time is in ms of one clock that never goes back (CLOCK_BOOTTIME). One thread at a time.
 */
#ifndef BROOK_CLIENT_GROUP_MEMBER_H
#define BROOK_CLIENT_GROUP_MEMBER_H

#include "coordination/assign.h"
#include "coordination/group_view.h"
#include "coordination/znodes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct group_member;
struct topic_patterns;

struct group_member_settings {
    /* Member id of a static member; NULL: it is `host` and the session id. Borrowed, as `host` is. */
    const char *static_id;
    const char *host; /* short, of the alphabet of names */
    enum assign_strategy strategy;
    int drain_ms;    /* the application's time to finish what it holds */
    int settle_ms;   /* about how long changes are let come together */
    int max_poll_ms; /* without a poll for this long: leave until the next */
    bool deliver_without_lease; /* act on the end of the session only, not on the end of the lease */
    uint64_t seed;              /* of the jitter */
};

/* ---- events ------------------------------------------------------------------------------------------- */

enum group_event_kind {
    GROUP_EVENT_TICK,
    GROUP_EVENT_SUBSCRIBE, /* topics, topics_count, is_pattern: join, or another subscription */
    GROUP_EVENT_LEAVE,     /* keep: stay registered, so that the next process resumes */
    /* generation, session_id, session_timeout_ms: the session is up (again); resumed: an earlier process had
     * it, and what that owned is still there */
    GROUP_EVENT_CONNECTED,
    GROUP_EVENT_EXPIRED,      /* the session is gone with all that it owned */
    GROUP_EVENT_REGISTERED,   /* op, err */
    GROUP_EVENT_UNREGISTERED, /* op, err */
    GROUP_EVENT_IDS,          /* err (0 or NO_NODE), names, names_count, zxid (pzxid of ids) */
    GROUP_EVENT_ASSIGNMENT,   /* assignment (taken over, zeroed), or NULL: there is none */
    GROUP_EVENT_TOPICS,       /* names, names_count: all topics there are (for patterns) */
    GROUP_EVENT_TOPIC,        /* topic; exists, zxid (mzxid), topic_id */
    GROUP_EVENT_VIEW,         /* op, err, view */
    GROUP_EVENT_WRITTEN,      /* op, err */
    GROUP_EVENT_CLAIMED,      /* op, topic, partition, err (as of ownership_claim), offset, version */
    GROUP_EVENT_RELEASED,     /* op, topic, partition, err */
    GROUP_EVENT_OWNER,        /* topic, partition, exists, ours: of a watched owner node */
    GROUP_EVENT_HELD,         /* topic, partition: one of the owner nodes that LIST_OWNED found */
    GROUP_EVENT_LISTED,       /* op, err: that were all of them */
    GROUP_EVENT_DRAINED,      /* topic, partition: the consumer is done with it, its last commit included */
    GROUP_EVENT_DOUBT,        /* topic, partition, err: a commit was refused, or its outcome is not known */
    GROUP_EVENT_VERIFIED      /* op, topic, partition, err, ours, offset, version */
};

/* Flat; each kind says above what it uses. Strings are borrowed for the call. */
struct group_event {
    enum group_event_kind kind;
    int64_t now_ms;
    int64_t lease_until_ms; /* 0: none */
    int64_t polled_ms;      /* of the last poll; INT64_MAX: one is running */
    uint64_t op;
    int err; /* 0 or negative */
    const char *topic;
    int32_t partition;
    int64_t offset;
    int32_t version;
    bool exists;
    bool ours;
    bool resumed;
    bool keep;
    bool is_pattern;
    int64_t zxid;
    struct topic_id topic_id;
    const char *const *names;
    size_t names_count;
    uint64_t generation;
    int64_t session_id;
    int session_timeout_ms;
    struct znode_assignment *assignment;
    struct group_view *view;
};

/* ---- effects ------------------------------------------------------------------------------------------ */

enum group_effect_kind {
    /* Forget all requests and watches of partitions; new ones go behind those on their way. */
    GROUP_EFFECT_RESET,
    /* op; group_member_describe() says what. `replace`: make the node anew, so that all see it. */
    GROUP_EFFECT_REGISTER,
    GROUP_EFFECT_UNREGISTER,    /* op */
    GROUP_EFFECT_WATCH_GROUP,   /* follow ids and assignment */
    GROUP_EFFECT_UNWATCH_GROUP, /* neither, nor any topic */
    GROUP_EFFECT_CHECK_GROUP,   /* read both again now */
    GROUP_EFFECT_WATCH_TOPICS,  /* follow the list of topics */
    GROUP_EFFECT_WATCH_TOPIC,   /* topic */
    GROUP_EFFECT_UNWATCH_TOPIC, /* topic */
    GROUP_EFFECT_READ_VIEW,     /* op */
    GROUP_EFFECT_WRITE,         /* op, assignment (borrowed until WRITTEN), version (-1: create) */
    GROUP_EFFECT_LIST_OWNED,    /* op: which owner nodes are this session's */
    GROUP_EFFECT_CLAIM,         /* op, topic, partition */
    GROUP_EFFECT_RELEASE,       /* op, topic, partition */
    GROUP_EFFECT_VERIFY,        /* op, topic, partition */
    GROUP_EFFECT_WATCH_OWNER,   /* topic, partition */
    GROUP_EFFECT_UNWATCH_OWNER, /* topic, partition */
    /* To the consumer. */
    GROUP_EFFECT_ADD,   /* topic, partition, offset, version: deliver */
    GROUP_EFFECT_DRAIN, /* topic, partition: stop delivering, DRAINED is owed */
    /* topic, partition: three quarters of the time are over: commit what can be, DRAINED is owed */
    GROUP_EFFECT_HURRY,
    GROUP_EFFECT_REMOVE, /* topic, partition: given up */
    GROUP_EFFECT_LOST,   /* topic, partition: somebody else's already */
    /* topic, partition, offset, version: of a doubted commit: this is stored, and ours */
    GROUP_EFFECT_RESOLVED,
    GROUP_EFFECT_REPORT, /* report, err, topic and partition where it is about one */
    GROUP_EFFECT_LEFT    /* the end of a leave */
};

enum group_report {
    GROUP_REPORT_ID_IN_USE,  /* a static member's id belongs to another live session */
    GROUP_REPORT_UNREADABLE, /* a claim fails for the znode's content */
    GROUP_REPORT_BLOCKED,    /* assigned to us, owned by another for longer than drain plus session timeout */
    GROUP_REPORT_TOO_LARGE,  /* the assignment does not fit its node */
    GROUP_REPORT_STRATEGY,   /* the oldest member asks for what we do not know: others must assign */
    GROUP_REPORT_AWAY,       /* max.poll.interval.ms: leaving until the next poll */
    GROUP_REPORT_EVICTED,    /* the ids node was taken away */
    GROUP_REPORT_LEASE_OVER  /* no contact to ZooKeeper for a session timeout */
};

struct group_effect {
    enum group_effect_kind kind;
    uint64_t op;
    const char *topic; /* good for the machine's life */
    int32_t partition;
    int64_t offset;
    int32_t version;
    bool replace;
    enum group_report report;
    int err;
    const struct znode_assignment *assignment;
};

/* ---- the machine -------------------------------------------------------------------------------------- */

/* `patterns` and the strings of *settings are borrowed for the machine's life. Returns 0 or
 * -BROOK_E_NOMEM. */
int group_member_new(const struct group_member_settings *settings, struct topic_patterns *patterns,
                     struct group_member **ret_member);
void group_member_free(struct group_member *member);

/* Take an event in. Effects queue up for group_member_effect(). Returns 0, or -BROOK_E_NOMEM: then part of it
 * was put off, and the next tick goes on. Must not be called with an earlier time than before. */
int group_member_step(struct group_member *member, const struct group_event *event);
/* The next effect, in order; false: there is none. Steps may be taken while effects are still queued. */
bool group_member_effect(struct group_member *member, struct group_effect *ret_effect);
/* When the next tick is due, at the latest; INT64_MAX: no need. */
int64_t group_member_next_ms(const struct group_member *member);

/* "" before the first session. Good until the next session. */
const char *group_member_get_id(const struct group_member *member);
bool group_member_is_registered(const struct group_member *member);
/* The subscription for the ids node: topics, is_pattern, strategy, algorithm version are borrowed from the
 * machine, the rest is zero. */
void group_member_describe(const struct group_member *member, struct znode_member *ret_member);

/* For tests. Nothing is under way or due: assigned = owned, the assignment's view is what was seen last. */
bool group_member_is_quiet(const struct group_member *member);
#endif
