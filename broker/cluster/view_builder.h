/* Making views: the cluster thread's side of view.h.
 *
 * A topic's part of a view is a block: filled once, then immutable and shared by every view until the topic
 * changes. Building a view takes one pointer and two table entries per topic, whatever the topics hold.
 * One thread (the cluster's) makes blocks and views; references may be dropped by any.
 */
#ifndef BROOK_CLUSTER_VIEW_BUILDER_H
#define BROOK_CLUSTER_VIEW_BUILDER_H

#include "broker/cluster/view.h"

#include <stdatomic.h>

struct view_block {
    _Atomic unsigned refs;
    uint32_t name_hash;
    uint32_t id_hash;
    struct view_topic topic;
    int32_t *numbers; /* of each partition the replicas, those in sync, its move, and those offline */
};

/* What a block is made from; partition pointers are borrowed, the block takes references of its own. */
struct view_block_source {
    const char *name;
    struct topic_id topic_id;
    const struct topic_config *config;
    bool being_deleted;
    int32_t partitions_count;
    /* `arg`, number -> the partition; lists and texts lie in memory that lives until the call for the next. */
    void (*partition)(const void *arg, int32_t number, struct view_partition *ret);
    const void *arg;
};
/* One reference for the caller. NULL: out of memory. */
struct view_block *view_block_new(const struct view_block_source *source);
struct view_block *view_block_ref(struct view_block *block);
void view_block_unref(struct view_block *block); /* NULL is fine */

struct view_source {
    uint64_t version;
    const char *cluster_id; /* NULL: not known */
    int32_t controller;
    const struct view_broker *brokers; /* by id; copied */
    size_t brokers_count;
    struct view_block *const *blocks; /* by name; the view takes references of its own */
    size_t blocks_count;
    const struct view_unreadable *unreadable; /* by path; copied, as many as are shown */
    size_t unreadable_count;
};
/* One reference for the caller. NULL: out of memory. */
struct view *view_new(const struct view_source *source);
#endif
