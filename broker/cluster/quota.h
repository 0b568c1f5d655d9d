/* The quota of replication that is in force: the broker's setting, over it what /config/brokers/<default> says for all
 * brokers, over that what /config/brokers/<id> says for this one. Both nodes are followed, so a throttle can be set and
 * lifted while a reassignment runs. All but quota_bytes(): the cluster thread's alone.
 */
#ifndef BROOK_CLUSTER_QUOTA_H
#define BROOK_CLUSTER_QUOTA_H

#include "coordination/coordinator.h"

#define QUOTA_KEY "replication.quota.bytes"

struct diag;
struct quota;

int quota_new(int64_t setting, const struct diag *diag, struct quota **ret_quota);
void quota_free(struct quota *quota); /* NULL is fine */
/* Follow ZooKeeper, from the first registration on. Returns 0 or -BROOK_E_NOMEM. */
int quota_watch(struct quota *quota, struct coordinator *coordinator, struct inbox *inbox, int32_t broker_id);
/* Before the coordinator is freed. NULL is fine. */
void quota_stop(struct quota *quota);
/* Bytes per second; 0: no limit. Any thread. */
int64_t quota_bytes(const struct quota *quota);
#endif
