/* Notifications: "announce, do not command".
 *
 * Whoever writes cluster state names what it wrote in a new node of /brokers/changes, in the same multi.
 * Every broker watches that one directory, reads the nodes that are new to it, and reads again what they
 * name. The numbers are consecutive, so whoever was away sees whether it missed one that was swept; then it
 * reads everything. The newest is never removed: it carries the number to compare with.
 *
 * What this does not know: what the names mean, and what "everything" is.
 * Threads: all calls and all events on the thread that drains the inbox.
 */
#ifndef BROOK_COORDINATION_CHANGES_H
#define BROOK_COORDINATION_CHANGES_H

#include "coordination/coordinator.h"
#include "coordination/znodes.h"

/* How many notifications the sweeper leaves; it begins at CHANGES_KEPT + CHANGES_SWEPT_MIN. */
#define CHANGES_KEPT 200
#define CHANGES_SWEPT_MIN 50
/* More new ones than this are not read singly: everything is read instead. */
#define CHANGES_READ_MAX 500

struct changes;

struct changes_events {
    /* Something was named. `change` is borrowed. In the order in which they were written. */
    void (*changed)(void *arg, const struct znode_change *change);
    /* Something may have been missed (also once at the beginning): read everything that is followed this way.
     * What is announced later comes through `changed`. */
    void (*lost)(void *arg);
    void *arg;
};

/* Begin to watch. Returns 0 or -BROOK_E_NOMEM. The coordinator and the inbox are borrowed. */
int changes_new(struct coordinator *coordinator, struct inbox *inbox, const struct changes_events *events,
                struct changes **ret_changes);
/* No event comes after this. NULL is fine. */
void changes_free(struct changes *changes);

/* Whether this process removes old ones (the controller does). */
void changes_sweep(struct changes *changes, bool sweep);
/* Number of the newest one applied or under way; -1: none yet. */
int64_t changes_last(const struct changes *changes);

/* Add the creation of a notification to a multi. Returns 0 or -BROOK_E_NOMEM. */
int changes_announce(struct coordinator_multi *multi, const struct znode_change *change);
#endif
