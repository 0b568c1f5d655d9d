/* The first thing a broker does with ZooKeeper: make the directories that everybody relies on, and agree on
 * the cluster's id. Whoever comes first writes it; everybody else takes what is there.
 *
 * Threads: as of coordinator.h.
 */
#ifndef BROOK_COORDINATION_BOOTSTRAP_H
#define BROOK_COORDINATION_BOOTSTRAP_H

#include "coordination/coordinator.h"

/* `cluster_id` is borrowed for the callback, NULL on failure: what a call answered, or -BROOK_E_BAD_ZNODE. */
typedef void bootstrap_callback(void *arg, int err, const char *cluster_id);

/* Exactly one answer. May be called again after a failure. `may_found`: a new cluster is made when there is
 * none; else that is answered -BROOK_E_NO_NODE. */
void bootstrap_cluster(struct coordinator *coordinator, bool may_found, struct inbox *inbox,
                       bootstrap_callback *callback, void *arg);
#endif
