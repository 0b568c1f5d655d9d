/* The only place that knows path names. `cell`-sized buffers: PATH_BYTES_MAX always suffices for legal names
 * (proto/base/names.h). All functions write a NUL-terminated path and return `buffer`. Pure, any thread.
 */
#ifndef BROOK_COORDINATION_PATHS_H
#define BROOK_COORDINATION_PATHS_H

#include <stddef.h>
#include <stdint.h>

#define PATH_BYTES_MAX 512

#define PATH_CLUSTER_ID "/cluster/id"
#define PATH_BROKER_IDS "/brokers/ids"
#define PATH_BROKER_EPOCHS "/brokers/epochs"
#define PATH_TOPICS "/brokers/topics"
#define PATH_CHANGES "/brokers/changes"
#define PATH_CHANGE_PREFIX "/brokers/changes/change_"
#define PATH_CONTROLLER "/controller"
#define PATH_CONTROLLER_EPOCH "/controller_epoch"
#define PATH_CONFIG_TOPICS "/config/topics"
#define PATH_CONFIG_BROKERS "/config/brokers"
#define PATH_CONFIG_BROKERS_DEFAULT "/config/brokers/<default>" /* of all, as Kafka calls it */
#define PATH_CONFIG_CHANGES "/config/changes"
#define PATH_DELETE_TOPICS "/admin/delete_topics"
#define PATH_DELETED_TOPICS "/admin/deleted_topics"
#define PATH_REASSIGN "/admin/reassign_partitions"
#define PATH_REASSIGN_THROTTLE "/admin/reassign_throttle"
#define PATH_PREFERRED_ELECTION "/admin/preferred_replica_election"
#define PATH_PRODUCER_ID_BLOCK "/latest_producer_id_block"
#define PATH_CONSUMERS "/consumers"

struct path {
    char text[PATH_BYTES_MAX];
};

const char *path_broker_id(struct path *p, int32_t broker_id);
const char *path_broker_epoch(struct path *p, int32_t broker_id);
const char *path_topic(struct path *p, const char *topic);
const char *path_partitions(struct path *p, const char *topic);
const char *path_partition(struct path *p, const char *topic, int32_t partition);
const char *path_partition_state(struct path *p, const char *topic, int32_t partition);
const char *path_topic_mark(struct path *p, const char *topic, const char *topic_id);
const char *path_topic_broker(struct path *p, const char *topic, int32_t broker_id);
const char *path_topic_brokers(struct path *p, const char *topic);
const char *path_topic_ends(struct path *p, const char *topic);
const char *path_topic_end(struct path *p, const char *topic, int32_t broker_id);
const char *path_broker_config(struct path *p, int32_t broker_id);
const char *path_change(struct path *p, const char *child);
const char *path_topic_config(struct path *p, const char *topic);
const char *path_delete_topic(struct path *p, const char *topic);
const char *path_group(struct path *p, const char *group);
const char *path_group_ids(struct path *p, const char *group);
const char *path_group_member(struct path *p, const char *group, const char *member);
const char *path_group_assignment(struct path *p, const char *group);
const char *path_group_owners(struct path *p, const char *group, const char *topic); /* topic NULL: all */
const char *path_owner(struct path *p, const char *group, const char *topic, int32_t partition);
const char *path_group_offsets(struct path *p, const char *group, const char *topic); /* topic NULL: all */
const char *path_offset(struct path *p, const char *group, const char *topic, int32_t partition);

/* The number at the end of a sequential node's name ("change_0000000012" -> 12), or -1. */
int64_t path_sequence(const char *child);
/* A partition directory's name to its number, or -1 for anything but canonical decimal. */
int32_t path_partition_number(const char *child);
#endif
