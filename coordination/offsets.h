/* The offset registry as a broker serves it: commits of many partitions in few conditional writes, and
 * reading.
 *
 * Commits of a member are multi { check ids/<member>, set offset with the expected version, ... } of up to
 * OFFSETS_PER_MULTI partitions of that member. Commits without a member are multi { create the owner node,
 * set, delete the owner node, ... }: an owner node in the way means OWNED. Per partition one write is under
 * way at a time, the rest wait in order. After one refusal in a multi its partitions are written singly, so
 * each gets its own answer. Success is never inferred: an answer that was lost is OUTCOME_UNKNOWN, and the
 * member finds out itself.
 *
 * What this does not know: whether a topic exists (callers look first), who owns what.
 * Threads: offsets_commit() and offsets_fetch() from any; the work is done on the thread that drains `inbox`;
 * replies run on the thread that drains the inbox of the call.
 */
#ifndef BROOK_COORDINATION_OFFSETS_H
#define BROOK_COORDINATION_OFFSETS_H

#include "proto/base/inbox.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct coordinator;
struct offsets;

#define OFFSETS_PER_MULTI 100
#define OFFSETS_ENTRIES_MAX 10000   /* of one commit: beyond it -BROOK_E_TOO_MANY */
#define OFFSETS_WAITING_MAX 200000  /* entries accepted and not answered: beyond it -BROOK_E_BUSY */
#define OFFSETS_FETCHED_MAX 100000  /* nodes of one fetch: beyond it -BROOK_E_TOO_MANY */

/* Returns 0 or -BROOK_E_NOMEM. Both are borrowed for the object's life. */
int offsets_new(struct coordinator *coordinator, struct inbox *inbox, struct offsets **ret_offsets);
/* On the thread of `inbox`; no calls may come any more. What waits is answered with -BROOK_E_CLOSED before
 * this returns, what is under way is answered as the coordinator answers it: drain `inbox` once more after
 * coordinator_free(). NULL is fine. */
void offsets_free(struct offsets *offsets);

struct offsets_entry {
    const char *topic;
    int32_t partition;
    int64_t offset;           /* next to read; -1: forget it (the node becomes empty) */
    int32_t expected_version; /* with a member */
};
struct offsets_result {
    /* 0; -BROOK_E_FENCED (the version has moved on, or there is no offset node: not owned); _STALE_MEMBER
     * (ids/<member> is gone); _OWNED (without a member); _OUTCOME_UNKNOWN; _COORDINATION_LOST (not written);
     * _INVALID (a number below its range); _ILLEGAL_NAME (topic); _BUSY; _NOMEM; _CLOSED; _ZOOKEEPER_AUTH. */
    int err;
    int32_t version; /* after success; else -1. Without a member: -1 */
};
struct offsets_commit_reply {
    const struct offsets_result *results; /* in the order of the entries */
    size_t count;
};
typedef void offsets_commit_callback(void *arg, const struct offsets_commit_reply *reply);

/* Everything is copied. `member` NULL: a simple consumer. Exactly one reply, good during the callback.
 * Returns 0, or -BROOK_E_NOMEM, _TOO_MANY, _BUSY, _ILLEGAL_NAME (group or member), _INVALID (no entries):
 * then nothing is called. */
int offsets_commit(struct offsets *offsets, const char *group, const char *member,
                   const struct offsets_entry *entries, size_t count, struct inbox *inbox,
                   offsets_commit_callback *callback, void *arg);

struct offsets_fetched {
    const char *topic;
    int32_t partition;
    int64_t offset;  /* -1: none is stored, which is not an error */
    int32_t version;
    int err;         /* of this node: could not find out, or -BROOK_E_BAD_ZNODE */
};
struct offsets_fetch_reply {
    int err; /* 0; or why nothing could be found out: _COORDINATION_LOST, _TOO_MANY, _OUTCOME_UNKNOWN, ... */
    const struct offsets_fetched *fetched; /* by topic name, then partition number */
    size_t count;                          /* 0 also when there is no such group */
};
typedef void offsets_fetch_callback(void *arg, const struct offsets_fetch_reply *reply);

/* What is stored for `topics` (copied; count 0: all topics of the group), as of now: reads after a sync.
 * Exactly one reply. Returns as above. */
int offsets_fetch(struct offsets *offsets, const char *group, const char *const *topics, size_t topics_count,
                  struct inbox *inbox, offsets_fetch_callback *callback, void *arg);
#endif
