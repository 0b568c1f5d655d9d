/* Placement: on which brokers the replicas of new partitions go. Pure.
 *
 * Racks come first: the replicas of a partition stand in as many racks as there are (or as there are
 * replicas), and no rack has more than one replica more than another while that one still has brokers free.
 * Then evenness: where racks do not forbid it, any two brokers differ by at most one replica, and any two by
 * at most one leader. Then deaths: the first in sync takes over, so the seconds of what one broker leads are
 * spread over all others that may be second; without racks two of these differ by at most two partitions of
 * a topic that is placed at once. Topics of few partitions are spread by `start`. Brokers without a rack count as each in a rack of its own while no broker has one, and
 * else as all in one. Draining brokers are used only when there would be too few otherwise.
 */
#ifndef BROOK_CLUSTER_PLACEMENT_H
#define BROOK_CLUSTER_PLACEMENT_H

#include "broker/cluster/controller.h"

/* Place `count` partitions with `replicas` replicas each, beside those that the topic has (`existing`, of any
 * brokers; they are counted, not moved). `start`: any number; topics with different ones begin at different
 * brokers, and go on differently: of n * (n - 1) in a row each has its own pair of first and second. Fills brokers[0 .. count * replicas): partition by partition, the first is the preferred leader.
 * Returns 0, -BROOK_E_BROKER_NOT_AVAILABLE when nobody lives, -BROOK_E_INVALID_REPLICATION when fewer than
 * `replicas` live, or -BROOK_E_NOMEM. */
int placement_make(const struct controller_brokers *alive, const struct znode_replicas *existing,
                   int32_t existing_count, uint64_t start, int32_t count, int32_t replicas, int32_t *brokers,
                   struct brook_error *error);
#endif
