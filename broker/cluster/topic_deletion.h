/* Removing deleted topics from ZooKeeper, as the controller.
 *
 * The intent is /admin/delete_topics/<T>, and it is the last thing that goes: whoever is controller finds it
 * and does all of this again, so every step may be repeated. First the offsets that groups stored are emptied
 * in place (their owners are left alone), then what is below the topic's node goes in chunks, then one multi
 * removes the node, the settings and the intent, leaves a tombstone with the topic id, and announces it. Each write
 * checks the controller's epoch and the intent, so one that comes late does nothing to a later topic of the name. The
 * cluster thread's alone.
 */
#ifndef BROOK_CLUSTER_TOPIC_DELETION_H
#define BROOK_CLUSTER_TOPIC_DELETION_H

#include "coordination/coordinator.h"

struct diag;
struct topic_deletions;

#define TOPIC_DELETIONS_IN_FLIGHT_MAX 8
#define TOPIC_DELETION_NODES_PER_WRITE 200
#define TOPIC_DELETION_RETRY_MS 200

struct topic_deletions_settings {
    struct coordinator *coordinator;
    struct inbox *inbox;
    const struct diag *diag;
    void (*outdated)(void *arg); /* a write was refused for its controller epoch */
    void *arg;
};

int topic_deletions_new(const struct topic_deletions_settings *settings,
                        struct topic_deletions **ret_deletions);
/* After the coordinator was freed and the inbox drained. NULL is fine. */
void topic_deletions_free(struct topic_deletions *deletions);

void topic_deletions_start(struct topic_deletions *deletions, int32_t epoch_version);
void topic_deletions_stop(struct topic_deletions *deletions);
/* Level-triggered: there is an intent for this topic. Nothing happens if it is being worked on, or failed a
 * moment ago, or too many are. */
void topic_deletions_want(struct topic_deletions *deletions, const char *topic);
#endif
