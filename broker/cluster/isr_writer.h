/* The ISR writer: carries a leader's changes of the in-sync replicas to ZooKeeper.
 *
 * What is due at the same time goes together, up to ISR_STATES_PER_WRITE in a transaction: when a broker dies, thousands are
 * due at once, and each notification costs every broker a wake-up. The joiners' registrations are checked, and which
 * topics of these names there are (coordination/topic_mark.h); the states are set by their versions, and one notification names them; what came of it goes back to the replicas. The states
 * of a transaction that was refused, or may have happened, are read again after a sync and given to their owners as
 * news; whoever can not be read goes alone the next time. The cluster thread's alone. Decides nothing (leader_state.h
 * does).
 */
#ifndef BROOK_CLUSTER_ISR_WRITER_H
#define BROOK_CLUSTER_ISR_WRITER_H

#include "coordination/coordinator.h"
#include "coordination/znodes.h"

#include <stdbool.h>
#include <stdint.h>

struct diag;
struct image;
struct isr_writer;
struct replica;

#define ISR_STATES_PER_WRITE 100
/* Partitions with a write or a read under way; beyond it a look does nothing (isr_writer_take_look()). */
#define ISR_CHANGES_IN_FLIGHT_MAX 2000
#define ISR_GATHER_MS 20
#define ISR_RETRY_MS 200 /* after a refusal or an unknown outcome */

struct isr_writer_settings {
    struct coordinator *coordinator;
    struct inbox *inbox;
    const struct image *image; /* says whether a topic has a mark to be checked */
    int32_t broker_id;
    const struct diag *diag;
    /* A state was read: news for the partition. NULL: there is none. */
    void (*news)(void *arg, const char *topic, const struct topic_id *topic_id, int32_t number,
                 const struct znode_state *state, int32_t version);
    /* A state was read and makes no sense. */
    void (*odd)(void *arg, const char *topic, int32_t number);
    void *arg;
};

int isr_writer_new(const struct isr_writer_settings *settings, struct isr_writer **ret_writer);
/* After the coordinator was freed and the inbox drained. NULL is fine. */
void isr_writer_free(struct isr_writer *writer);
/* Look again at those that had to wait. Returns when to call again. */
int64_t isr_writer_tick(struct isr_writer *writer, int64_t now_ms);
/* If a change is due for the replica, which is led here, it goes with the next write; if its state has to be read, read
 * it. Nothing is done for a partition that has a write or a read under way. */
void isr_writer_look(struct isr_writer *writer, const char *topic, int32_t number, struct replica *replica,
                     int64_t now_ms);
/* At the end of a turn: write what has been due for ISR_GATHER_MS. Returns when to call again. */
int64_t isr_writer_send(struct isr_writer *writer, int64_t now_ms);
/* Whether to look at all again, soon: looks were turned away for too many under way, and there is room again; or states
 * were read after a refusal. Says so once. */
bool isr_writer_take_look(struct isr_writer *writer);
#endif
