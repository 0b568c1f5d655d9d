/* The controller's seat: the ephemeral node /controller, taken together with the next /controller_epoch in
 * one multi.
 *
 * Whoever holds it writes cluster state, and every such write checks that /controller_epoch still has the
 * version that was given with the seat. So a holder that was paused and replaced can not write, whatever it
 * believes.
 *
 * Threads: all calls and events on the thread that drains the inbox.
 */
#ifndef BROOK_COORDINATION_CONTROLLER_SEAT_H
#define BROOK_COORDINATION_CONTROLLER_SEAT_H

#include "coordination/coordinator.h"

struct controller_seat;

struct controller_seat_events {
    /* Who sits there; -1: nobody, or not known. */
    void (*changed)(void *arg, int32_t broker_id);
    /* It is ours: write `epoch` into states and check /controller_epoch for `epoch_version` with every write.
     */
    void (*elected)(void *arg, int32_t epoch, int32_t epoch_version);
    /* It is not ours any more. */
    void (*lost)(void *arg);
    void *arg;
};

/* Begin to watch; nothing is claimed yet. Returns 0 or -BROOK_E_NOMEM. */
int controller_seat_new(struct coordinator *coordinator, struct inbox *inbox, int32_t broker_id,
                        const struct controller_seat_events *events, struct controller_seat **ret_seat);
/* No event comes after this; the node is left to the session. NULL is fine. */
void controller_seat_free(struct controller_seat *seat);

/* Claim the seat whenever it is free, from now on (a registered broker does). */
void controller_seat_stand(struct controller_seat *seat);
/* Keep the seat if it is ours, but claim it no more (who is about to stop would soon give it up again), until
 * controller_seat_stand(). */
void controller_seat_leave_to_others(struct controller_seat *seat);
/* The session is gone, and the seat with it: `lost` is called if it was ours. Stand again after registering.
 */
void controller_seat_expired(struct controller_seat *seat);
/* A write was refused for its epoch: somebody else sits there. Calls `lost`; goes on standing. */
void controller_seat_outdated(struct controller_seat *seat);
/* Stand no more and give the node up, if it is ours. `call` is answered when that is done. */
void controller_seat_release(struct controller_seat *seat, struct coordinator_call call);
/* Once a second or so: a claim that failed for a reason that may pass is tried again. */
void controller_seat_tick(struct controller_seat *seat);
#endif
