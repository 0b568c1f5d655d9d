/* Reassignment: moving a partition from some brokers to others, step by step. Pure.
 *
 * Its whole state is in the topic's znode: `replicas` are the old set with the new ones behind it; `adding`
 * are those that were not there before, `removing` those that are to go; `target` is the list in its order.
 * There are two writes. The first adds: everybody who is assigned follows. The second, when every replica of
 * the target is in sync, is one multi over state and topic: the leader is one of the target, the ISR holds
 * nobody else, the replicas are the target. Nothing lies between them that a new controller could not see.
 *
 * Cancelling makes the old set the target: `removing` is then what was being added. It needs no waiting but
 * for one old replica that is in sync and can lead, so that nothing acknowledged is lost.
 */
#ifndef BROOK_CLUSTER_REASSIGNMENT_H
#define BROOK_CLUSTER_REASSIGNMENT_H

#include "broker/cluster/controller.h"

/* Lists of a partition; plain arrays, so that steps are values. */
struct reassignment_list {
    int32_t count;
    int32_t brokers[ZNODE_REPLICAS_MAX];
};
struct reassignment {
    struct reassignment_list replicas; /* those who hold the partition now */
    struct reassignment_list adding;
    struct reassignment_list removing;
    struct reassignment_list target;
};

enum reassignment_verdict {
    REASSIGNMENT_NONE,  /* nothing is being moved */
    REASSIGNMENT_WAIT,  /* not all of the target are in sync */
    REASSIGNMENT_FINISH /* write *ret_state, and the target as the partition's replicas */
};

bool reassignment_is_running(const struct reassignment *r);
/* Whether it goes back to the old set. */
bool reassignment_is_cancelled(const struct reassignment *r);

/* Begin, or change course: from whatever is under way to `target`. The old set stays the old set. Returns 0, or
 * -BROOK_E_INVALID_REPLICAS: an empty list, one with a broker twice, or more than ZNODE_REPLICAS_MAX in all.
 * If no broker comes or goes, `replicas` is `target` at once and nothing runs. */
int reassignment_begin(const struct reassignment *now, const struct reassignment_list *target,
                       struct reassignment *ret, struct brook_error *error);
/* Back to the old set. Returns 0, or -BROOK_E_NO_REASSIGNMENT when nothing runs. */
int reassignment_cancel(const struct reassignment *now, struct reassignment *ret);
/* What is left of it when it is finished. */
void reassignment_finish(struct reassignment *r);

/* Decide what to do now. `partition` says state, live brokers and durability; its replicas are not looked at.
 * FINISH fills *ret_state (all but its controller_epoch): a new leader epoch, led by one of the target: the
 * present leader if it is one and well, else the first. One of the target that drains, or is offline, holds it up. */
enum reassignment_verdict reassignment_step(const struct reassignment *r,
                                            const struct controller_case *partition,
                                            struct znode_state *ret_state);
#endif
