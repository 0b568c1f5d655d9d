/* The paper's broker registry: /brokers/topics/<T>/brokers/<id> says which partitions this broker serves now.
 *
 * For people who look into ZooKeeper; nothing is decided on it. So it may lag: changes of a topic are
 * coalesced and written at most once a second, a bounded number at a time; and it may be incomplete: entries
 * beyond the budget of ephemeral path bytes are left out, which is said once.
 *
 * Threads: all calls on the thread that drains the inbox.
 */
#ifndef BROOK_COORDINATION_SERVED_H
#define BROOK_COORDINATION_SERVED_H

#include "coordination/coordinator.h"

#define SERVED_PATH_BYTES_MAX (COORDINATOR_EPHEMERAL_PATH_BYTES_MAX / 2)
#define SERVED_IN_FLIGHT_MAX 64
#define SERVED_INTERVAL_MS 1000

struct served;

/* Returns 0 or -BROOK_E_NOMEM. */
int served_new(struct coordinator *coordinator, struct inbox *inbox, int32_t broker_id,
               const struct diag *diag, struct served **ret_served);
void served_free(struct served *served);

/* What is served of the topic from now on; nothing at all removes the entry. Returns 0 or -BROOK_E_NOMEM. */
int served_set(struct served *served, const char *topic, const int32_t *leads, size_t leads_count,
               const int32_t *follows, size_t follows_count);
/* The topic is gone, and its znodes with it: forget it without a word. */
void served_forget(struct served *served, const char *topic);
/* A new session: everything has to be written again. */
void served_expired(struct served *served);
/* Write what is due. Returns when to call again (the same clock), INT64_MAX: not before the next change. */
int64_t served_tick(struct served *served, int64_t now_ms);
#endif
