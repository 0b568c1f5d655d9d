/* Administrative intents: what a request asks for is written to ZooKeeper, and answered when it is seen to be
 * done.
 *
 * Any broker does this. Making a topic is one multi (settings, topic node, notification), so a topic is there
 * whole or not at all; its states are the controller's to write. An outcome that is not known is settled by
 * trying again: every step is recognised when it is met a second time. Made by any thread (intent_*_new),
 * then the cluster thread's; answered on the thread of the inbox in the intent.
 */
#ifndef BROOK_CLUSTER_INTENTS_H
#define BROOK_CLUSTER_INTENTS_H

#include "broker/cluster/cluster.h"
#include "broker/cluster/image.h"
#include "broker/cluster/state_reader.h"

struct intent;
struct intents;

#define INTENTS_WAITING_MAX 10000 /* beyond it -BROOK_E_BUSY */

struct intents_settings {
    struct coordinator *coordinator;
    struct inbox *inbox; /* the cluster thread's */
    struct image *image;
    struct state_reader *reader;
    const struct topic_config *defaults;
    int32_t partitions_default;
    int32_t replicas_default;
    int32_t replicas_max;
};

enum intent_kind { INTENT_CREATE, INTENT_DELETE, INTENT_ADD_PARTITIONS, INTENT_ALTER };

/* Everything is copied. Never NULL: without memory the intent is answered so when it is submitted. `config`
 * may be NULL. */
struct intent *intent_new(enum intent_kind kind, const char *topic, int32_t partitions, int32_t replicas,
                          const struct znode_config *config, bool validate_only, int timeout_ms,
                          struct inbox *inbox, cluster_topic_callback *callback, void *arg);
/* Answer at once with a code and its text. Takes the intent. */
void intent_refuse(struct intent *intent, int code, const char *why);

int intents_new(const struct intents_settings *settings, struct intents **ret_intents);
/* After the coordinator was freed and the inbox drained: what waits is answered -BROOK_E_STOPPING. NULL is
 * fine. */
void intents_free(struct intents *intents);
/* Takes it. */
void intents_submit(struct intents *intents, struct intent *intent);
/* To be called every turn. `view_is_current`: everybody who asked has got a view of the image as it is now,
 * so what it shows to be done may be answered. Answers what has run out of time, too. Returns when to call
 * again. */
int64_t intents_tick(struct intents *intents, int64_t now_ms, bool view_is_current);
#endif
