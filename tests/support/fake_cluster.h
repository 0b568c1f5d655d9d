/* A cluster without ZooKeeper: the functions of broker/cluster/cluster.h over a fixed view and real
 * partitions in a directory, so that loops and handlers run inside a test program. Link it in front of
 * libcluster.a. The test's thread calls everything but what handlers call.
 */
#ifndef BROOK_TESTS_FAKE_CLUSTER_H
#define BROOK_TESTS_FAKE_CLUSTER_H

#include "broker/cluster/cluster.h"

#define FAKE_CLUSTER_BROKER 1

struct cluster *fake_cluster_new(const char *directory);
void fake_cluster_free(struct cluster *cluster);
/* Where clients are told that the broker is; publish. */
void fake_cluster_set_port(struct cluster *cluster, int port);

/* Make a topic with `partitions` partitions led here at epoch 1 and publish. Never fails. */
struct topic_id fake_cluster_add_topic(struct cluster *cluster, const char *name, int32_t partitions);
/* The same with settings of its own. */
struct topic_id fake_cluster_add_topic_with(struct cluster *cluster, const char *name, int32_t partitions,
                                            const struct topic_config *config);
void fake_cluster_topic_defaults(struct topic_config *config);
/* Borrowed. */
struct partition *fake_cluster_partition(struct cluster *cluster, const char *topic, int32_t number);
/* Let another broker lead, or this one again at a higher epoch; publish. */
void fake_cluster_set_leader(struct cluster *cluster, const char *topic, int32_t number, int32_t leader,
                             int32_t epoch);
/* Publish the topic as being deleted. */
void fake_cluster_delete_topic(struct cluster *cluster, const char *name);
/* Wait until each subscribed loop has the newest view. */
void fake_cluster_settle(struct cluster *cluster);
#endif
