/* What the controller decides: who leads, and where new replicas go. Pure: no clock, no I/O, no memory kept.
 *
 * The shell (controller_driver.h) feeds it what ZooKeeper says and writes what it answers, fenced by the
 * controller epoch and by the version of the state it decided on.
 */
#ifndef BROOK_CLUSTER_CONTROLLER_H
#define BROOK_CLUSTER_CONTROLLER_H

#include "coordination/znodes.h"

/* A live broker, as its registration says. */
struct controller_broker {
    int32_t broker_id;
    int64_t broker_epoch;
    int64_t clean_from; /* the broker epoch that stopped cleanly before this one; -1: none */
    bool draining;
};
/* Those alive, by id. */
struct controller_brokers {
    const struct controller_broker *brokers;
    size_t count;
};
/* NULL: not alive. */
const struct controller_broker *controller_find_broker(const struct controller_brokers *alive,
                                                       int32_t broker_id);

enum controller_verdict {
    CONTROLLER_KEEP,   /* the state is as it should be */
    CONTROLLER_CREATE, /* there was no state: the first one */
    CONTROLLER_ELECT,  /* another leader, or the same one after a restart: it is a new epoch */
    CONTROLLER_OFFLINE /* nobody may lead: leader -1, the in-sync replicas stay as they are */
};

/* Decide on one partition. `state` NULL: none has been written yet. `unclean`: a live replica that is not in
 * sync may be made leader when there is no other (it may lack records). Anything but KEEP fills *ret, all but
 * its controller_epoch: the leader epoch is one higher than before, the in-sync replicas are never empty and
 * are assigned ones only, and each carries the broker epoch it was counted with. A member of the ISR counts
 * only with the broker epoch that the state lists, or if that one stopped cleanly: a new registration is a
 * death first. The sole member counts all the same: there is nobody else who has the data. */
enum controller_verdict controller_decide(const struct znode_replicas *replicas,
                                          const struct znode_state *state,
                                          const struct controller_brokers *alive, bool unclean,
                                          struct znode_state *ret);

/* Place `count` new partitions of one replica each, in turn over the live brokers from position `start` on
 * (any number): any two brokers differ by at most one. Draining brokers get none while there are others.
 * Returns 0 or -BROOK_E_BROKER_NOT_AVAILABLE when nobody lives; fills brokers[0 .. count). */
int controller_place(const struct controller_brokers *alive, uint64_t start, int32_t count, int32_t *brokers);
#endif
