/* Topics that were deleted: their ids, for brokers that were away.
 *
 * A broker finds a directory whose topic id ZooKeeper does not have. Was the topic deleted, or is this the
 * wrong ZooKeeper, or a restored one? Only a tombstone tells: it is written in the multi that removes the
 * topic. What has none is never deleted. The newest TOMBSTONES_KEPT are kept; nodes of /admin/deleted_topics
 * are named
 * "<topic id>-<sequence>" and empty.
 *
 * Threads: as of coordinator.h.
 */
#ifndef BROOK_COORDINATION_TOMBSTONES_H
#define BROOK_COORDINATION_TOMBSTONES_H

#include "coordination/coordinator.h"
#include "coordination/znodes.h"

#define TOMBSTONES_KEPT 1000

/* Add one to a multi. */
void tombstones_add(struct coordinator_multi *multi, const struct topic_id *topic_id);

/* `ids` are borrowed for the callback. */
typedef void tombstones_callback(void *arg, int err, const struct topic_id *ids, size_t count);
/* All there are. Exactly one answer. `sweep`: remove the oldest beyond TOMBSTONES_KEPT (the controller does).
 */
void tombstones_read(struct coordinator *coordinator, bool sweep, struct inbox *inbox,
                     tombstones_callback *callback, void *arg);
#endif
