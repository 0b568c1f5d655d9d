/* The ISR writer: carries a leader's changes of the in-sync replicas to ZooKeeper.
 *
 * One transaction for each change: the joiners' registrations are checked, the state is set by its version, and the
 * change is announced; what came of it goes back to the replica. What was refused, or may have happened, is read again
 * after a sync and given to its owner as news. The cluster thread's alone. Decides nothing (leader_state.h does).
 */
#ifndef BROOK_CLUSTER_ISR_WRITER_H
#define BROOK_CLUSTER_ISR_WRITER_H

#include "coordination/coordinator.h"
#include "coordination/znodes.h"

#include <stdint.h>

struct diag;
struct isr_writer;
struct replica;

/* Writes and reads under way; beyond it a look does nothing, and is repeated by hosting's slow round. */
#define ISR_WRITES_IN_FLIGHT_MAX 300
#define ISR_RETRY_MS 200 /* after a refusal or an unknown outcome */

struct isr_writer_settings {
    struct coordinator *coordinator;
    struct inbox *inbox;
    int32_t broker_id;
    const struct diag *diag;
    /* A state was read: news for the partition. NULL: there is none. */
    void (*news)(void *arg, const char *topic, const struct topic_id *topic_id, int32_t number,
                 const struct znode_state *state, int32_t version);
    void *arg;
};

int isr_writer_new(const struct isr_writer_settings *settings, struct isr_writer **ret_writer);
/* After the coordinator was freed and the inbox drained. NULL is fine. */
void isr_writer_free(struct isr_writer *writer);
/* Look again at those that had to wait. Returns when to call again. */
int64_t isr_writer_tick(struct isr_writer *writer, int64_t now_ms);
/* If a change is due for the replica, which is led here, write it; if its state has to be read, read it. Nothing is done
 * for a partition that has a write or a read under way. */
void isr_writer_look(struct isr_writer *writer, const char *topic, int32_t number, struct replica *replica,
                     int64_t now_ms);
#endif
