/* The view: what this broker knows of the cluster, as an immutable snapshot with a reference count.
 *
 * The cluster thread builds a new view when something changed and posts each I/O loop a reference of its own; a loop
 * swaps its pointer and drops the old one, so no pointer is shared and no lock is taken. Views are arrays of
 * immutable per-topic blocks: an unchanged topic's block is shared by many views, and publishing costs what changed
 * plus one pointer per topic. Reading: any thread that holds a reference.
 */
#ifndef BROOK_CLUSTER_VIEW_H
#define BROOK_CLUSTER_VIEW_H

#include "broker/cluster/topic_config.h"
#include "coordination/znodes.h"

#include <stdint.h>

struct partition;
struct replica;

struct view_broker {
    int32_t broker_id;
    char *host;
    int32_t port;
    char *rack; /* NULL: none */
};

struct view_partition {
    int32_t leader; /* -1: none */
    int32_t leader_epoch;
    int32_t replicas_count;
    int32_t isr_count;
    const int32_t *replicas;
    const int32_t *isr;
    /* While it is being moved (target_count is not 0): who came for that, who goes, and the list afterwards. */
    int32_t adding_count;
    int32_t removing_count;
    int32_t target_count;
    const int32_t *adding;
    const int32_t *removing;
    const int32_t *target;
    /* Those that live and whose logs of it are offline. */
    int32_t offline_count;
    const int32_t *offline;
    const char *why_leaderless; /* without leader; NULL: it has one */
    const char *offline_here;   /* why the log is offline, or can not be opened, on this broker; NULL: it is not */
    /* Hosted here (and open): a reference that lives as long as the block; else NULL. Whether it is led here is
     * partition_is_leader()'s to say: the view may be older. */
    struct partition *local;
    struct replica *replica; /* its part in replication, likewise */
};

struct view_topic {
    char *name;
    struct topic_id topic_id;
    struct topic_config config; /* effective: the topic's own settings over the broker's defaults, resolved */
    bool being_deleted;
    int32_t partitions_count;
    struct view_partition *partitions;
};

/* A znode that makes no sense; what it said before is what counts. */
struct view_unreadable {
    char *path;
    char *topic;       /* NULL: of none */
    int32_t partition; /* -1: of none */
    char *reason;
};
#define VIEW_UNREADABLE_MAX 100

struct view;

struct view *view_ref(struct view *view);
void view_unref(struct view *view); /* NULL is fine */

/* Counts views of this process, rising. */
uint64_t view_version(const struct view *view);
const char *view_cluster_id(const struct view *view);
int32_t view_controller(const struct view *view); /* -1: not known */
const struct view_broker *view_brokers(const struct view *view, size_t *ret_count); /* by id */
const struct view_broker *view_broker(const struct view *view, int32_t broker_id);  /* NULL: not alive */
/* By path; at most VIEW_UNREADABLE_MAX of them. */
const struct view_unreadable *view_unreadable(const struct view *view, size_t *ret_count);
/* Topics sorted by name. */
size_t view_topics_count(const struct view *view);
const struct view_topic *view_topic_at(const struct view *view, size_t index);
/* NULL: unknown. Names need not end in NUL. Hash lookups without allocation. */
const struct view_topic *view_topic(const struct view *view, const void *name, size_t name_bytes);
/* The least number of replicas that a partition of the topic has; at least 1. */
int32_t view_topic_replicas(const struct view_topic *topic);
const struct view_topic *view_topic_by_id(const struct view *view, const void *topic_id /* 16 bytes */);
#endif
