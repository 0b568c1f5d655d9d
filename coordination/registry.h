/* The broker registry: this broker's entry in /brokers/ids, and its epoch.
 *
 * One multi sets /brokers/epochs/<id>, whose znode version is the broker epoch, and creates the ephemeral
 * /brokers/ids/<id> that names it. So no two registrations share an epoch, and "the same broker" is the same
 * id with the same epoch. The entry comes back by itself when somebody deletes it; in a new session
 * registry_register() has to be called again.
 *
 * Threads: all calls and events on the thread that drains the inbox.
 */
#ifndef BROOK_COORDINATION_REGISTRY_H
#define BROOK_COORDINATION_REGISTRY_H

#include "coordination/coordinator.h"
#include "coordination/znodes.h"

struct registry;

struct registry_settings {
    int32_t broker_id;
    const char *host; /* copied, all three */
    int32_t port;
    const char *rack; /* NULL: none */
};

struct registry_events {
    void (*registered)(void *arg, int64_t broker_epoch);
    /* A live broker has the id, or ZooKeeper will never take the entry: the sentence says whose it is. It is
     * not tried again before registry_register() or registry_tick(). */
    void (*refused)(void *arg, const struct brook_error *error);
    /* The entry has vanished while the session lives. It is being made again. */
    void (*vanished)(void *arg);
    void *arg;
};

/* Does nothing yet. Makes a new incarnation. Returns 0 or -BROOK_E_NOMEM. */
int registry_new(struct coordinator *coordinator, struct inbox *inbox,
                 const struct registry_settings *settings, const struct registry_events *events,
                 struct registry **ret_registry);
/* No event comes after this; the entry is left to the session. NULL is fine. */
void registry_free(struct registry *registry);

/* Register in the present session, with `clean_from`: the epoch that stopped cleanly before, or -1, and `disk_from`:
 * that which the data directories were last registered with, or -1. Waits for
 * the entry of an earlier session to go, as long as that may live. */
void registry_register(struct registry *registry, int64_t clean_from, int64_t disk_from);
/* The session is gone, and the entry with it. */
void registry_expired(struct registry *registry);
/* Once a second or so: what failed for a reason that may pass is tried again. */
void registry_tick(struct registry *registry);
/* This broker is about to stop: its entry says so from now on ("draining"), and brokers are told. Answered by nobody:
 * what becomes of it is seen in the cluster's state. While it is not registered, the next entry says it. */
void registry_drain(struct registry *registry);
/* Its replicas whose logs are offline ("offline"), by topic, numbers rising, likewise. Takes the list and what is in
 * it. */
void registry_set_offline(struct registry *registry, struct znode_change_partitions *list, size_t count);
/* Remove the entry, and make it no more. `call` is answered when that is done. */
void registry_unregister(struct registry *registry, struct coordinator_call call);

/* Of the present registration; -1 while there is none. */
int64_t registry_broker_epoch(const struct registry *registry);
const char *registry_incarnation(const struct registry *registry);
#endif
