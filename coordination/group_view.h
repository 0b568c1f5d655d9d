/* Read a group from ZooKeeper once: its members, its assignment, the topics they want, the owners.
 *
 * A sync first, then the assignment, then the registry and the topics: what is returned is at least as new as any
 * assignment that was written before, so a CAS on `assignment_version` never replaces a newer view by an older one.
 * The parts are read one after another and may disagree with each other by a change in between, whose watchers will
 * see to it. Reads: one per member and topic; one per owned partition only with GROUP_VIEW_OWNERS (for describing).
 * Loop thread: the reply comes through `inbox`.
 */
#ifndef BROOK_COORDINATION_GROUP_VIEW_H
#define BROOK_COORDINATION_GROUP_VIEW_H

#include "coordination/znodes.h"
#include "proto/base/inbox.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct coordinator;

struct group_view_member {
    char *id;
    int64_t czxid;           /* the oldest member has the smallest */
    int64_t ephemeral_owner;
    struct znode_member data;
};
struct group_view_topic {
    char *name;
    int64_t zxid; /* mzxid of the topic node */
    struct topic_id topic_id;
    int32_t partitions_count;
    char **owners; /* with GROUP_VIEW_OWNERS: per partition the member id, NULL: nobody */
};
struct group_view {
    int64_t ids_pzxid; /* 0: there is no such group */
    struct group_view_member *members; /* by id */
    size_t members_count;
    struct group_view_topic *topics; /* those that exist and somebody subscribed to (patterns are not resolved here,
                                      * see `names`), by name */
    size_t topics_count;
    bool has_assignment;
    struct znode_assignment assignment;
    int32_t assignment_version; /* -1: there is no node */
};
void group_view_done(struct group_view *view);

/* Whether a topic is wanted by a member whose subscription is a regular expression. The caller brings this, so that
 * there is one dialect in one place. Called on the loop. */
typedef bool group_view_matcher(void *arg, const char *pattern, const char *topic);

#define GROUP_VIEW_OWNERS 1u /* also who owns each partition of the topics and of the assignment */

/* `err` 0: *view is the callback's (it may take parts by zeroing them; the rest is freed afterwards). */
typedef void group_view_callback(void *arg, int err, struct group_view *view);
struct group_view_read;
/* `matcher` NULL: patterns match nothing (their topics are then those of the assignment). Returns NULL when out of memory; else exactly one callback,
 * unless group_view_read_cancel() comes first. */
struct group_view_read *group_view_read(struct coordinator *coordinator, struct inbox *inbox, const char *group,
                                        unsigned flags, group_view_matcher *matcher, void *matcher_arg,
                                        group_view_callback *callback, void *arg);
/* The callback does not run after this. NULL is fine; not after the callback ran. */
void group_view_read_cancel(struct group_view_read *read);
#endif
