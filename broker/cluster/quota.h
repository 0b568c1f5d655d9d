/* The two limits of replication that are in force.
 *
 * The quota stands until it is changed and holds for every replica that is not in sync: the broker's setting, over it what
 * /config/brokers/<default> says for all brokers, over that what /config/brokers/<id> says for this one.
 * The throttle is that of moves, /admin/reassign_throttle: it holds for replicas that a reassignment adds, beside the
 * quota, and the controller removes it when nothing is being moved any more.
 * All but quota_bytes() and quota_throttle(): the cluster thread's alone.
 */
#ifndef BROOK_CLUSTER_QUOTA_H
#define BROOK_CLUSTER_QUOTA_H

#include "coordination/coordinator.h"

#define QUOTA_KEY "replication.quota.bytes"

struct diag;
struct quota;

/* A node was read: `error` says why it can not be used, NULL: it can, or is not there. */
typedef void quota_report(void *arg, const char *path, const struct brook_error *error);

int quota_new(int64_t setting, const struct diag *diag, quota_report *report, void *arg, struct quota **ret_quota);
void quota_free(struct quota *quota); /* NULL is fine */
/* Follow ZooKeeper, from the first registration on. Returns 0 or -BROOK_E_NOMEM. */
int quota_watch(struct quota *quota, struct coordinator *coordinator, struct inbox *inbox, int32_t broker_id);
/* Before the coordinator is freed. NULL is fine. */
void quota_stop(struct quota *quota);
/* Bytes per second; 0: no limit. Any thread. */
int64_t quota_bytes(const struct quota *quota);
int64_t quota_throttle(const struct quota *quota);
/* Of /admin/reassign_throttle; -1: there is none, QUOTA_NOT_READ: that is not known yet. */
#define QUOTA_NOT_READ (-2)
int32_t quota_throttle_version(const struct quota *quota);
/* The controller's write of that node was refused: look at it again. */
void quota_look(struct quota *quota);
#endif
