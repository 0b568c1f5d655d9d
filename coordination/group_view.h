/* Read a group from ZooKeeper once: its members, its assignment, the topics they want, its owners.
 *
 * A sync first, then the assignment, then the registry and the topics: what is returned is at least as new as
 * any assignment that was written before, so that a CAS on `assignment_version` never replaces a newer view
 * by an older one. The parts are read one after another and may differ by a change in between, whose watchers
 * will see to it. Reads: one per member and topic; one per owned partition only with GROUP_VIEW_OWNERS (for
 * describing a group). Loop thread; the answer comes through `inbox`.
 */
#ifndef BROOK_COORDINATION_GROUP_VIEW_H
#define BROOK_COORDINATION_GROUP_VIEW_H

#include "coordination/znodes.h"
#include "proto/base/inbox.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct coordinator;
struct topic_patterns;

struct group_view_member {
    char *id;
    int64_t czxid;            /* the oldest member has the smallest */
    int64_t ephemeral_owner;
    struct znode_member data; /* all empty when the node made no sense */
};
struct group_view_topic {
    char *name;
    int64_t zxid; /* mzxid of the topic node */
    int32_t partitions_count;
};
struct group_view_owner {
    char *topic;
    int32_t partition;
    char *member;
};
struct group_view {
    int64_t ids_pzxid; /* 0: there is no registry */
    struct group_view_member *members; /* by id */
    size_t members_count;
    struct group_view_topic *topics; /* those that exist and that a member subscribes to, by name */
    size_t topics_count;
    struct group_view_owner *owners; /* with GROUP_VIEW_OWNERS: by topic, then partition */
    size_t owners_count;
    bool has_assignment; /* and it makes sense */
    struct znode_assignment assignment;
    int32_t assignment_version; /* -1: there is no node */
};
void group_view_done(struct group_view *view);

/* Whether a member's subscription takes a topic in. */
bool group_view_subscribes(const struct group_view_member *member, const char *topic,
                           struct topic_patterns *patterns);

#define GROUP_VIEW_TOPICS 1u /* also the topics that are subscribed to */
#define GROUP_VIEW_OWNERS 2u /* also who owns what */

/* `view` is good during the call; parts of it may be taken over by zeroing them. NULL when err is not 0. */
typedef void group_view_callback(void *arg, int err, struct group_view *view);
struct group_view_read;
/* `patterns` is borrowed until the callback; NULL without GROUP_VIEW_TOPICS.
 * Returns NULL: out of memory. Else one callback, unless group_view_cancel() comes first. */
struct group_view_read *group_view_read(struct coordinator *coordinator, struct inbox *inbox,
                                        const char *group, unsigned flags, struct topic_patterns *patterns,
                                        group_view_callback *callback, void *arg);
/* The callback does not run any more. Not after it ran. NULL is fine. */
void group_view_cancel(struct group_view_read *read);
#endif
