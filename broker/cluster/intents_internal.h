/* Inside of the intents, shared by intents.c (life, answers, what is seen to be done) and the four machines
 * intent_create.c, intent_delete.c, intent_grow.c and intent_alter.c, and by nobody else.
 */
#ifndef BROOK_CLUSTER_INTENTS_INTERNAL_H
#define BROOK_CLUSTER_INTENTS_INTERNAL_H

#include "broker/cluster/intents.h"

struct intent {
    struct intent *next;
    struct intents *all;
    enum intent_kind kind;
    char *topic;
    int32_t partitions;
    int32_t replicas;
    struct znode_config config;
    bool validate_only;
    int64_t deadline_ms;
    int64_t check_ms;
    struct inbox *inbox;
    cluster_topic_callback *callback;
    void *arg;
    struct cluster_topic_result result;

    bool is_broken;   /* the copy is incomplete */
    bool is_calling;  /* a call is under way that points here */
    bool is_answered; /* the answer is given; the last call under way frees it */
    bool is_written;  /* waits to be seen done */
    bool config_exists;
    bool may_be_sent; /* an outcome was not known */
    char *node;       /* CREATE: the topic's znode */
    int32_t config_version; /* ALTER: of the settings' znode as read; -1: there is none */
    int32_t replicas_least; /* ALTER: that a partition has, or will have after its move */
    int64_t config_zxid;    /* ALTER: of its last change, ours when it was written */
};

struct intents {
    struct intents_settings s;
    struct intent *waiting;
    size_t count;
    uint64_t turn; /* where the next placement begins */
};

/* Where each machine begins. */
void intent_create(struct intent *i);
void intent_delete(struct intent *i);
void intent_grow(struct intent *i);
void intent_alter(struct intent *i);

/* A call of the intent's; one at a time. */
struct coordinator_call intent_begin(struct intent *i, coordinator_callback *callback);
/* In its callback. NULL: the intent was answered meanwhile, and is gone. */
struct intent *intent_end(void *arg);
/* Whether the call may have been carried out. */
bool intent_is_unknown(int err);
/* It stands in ZooKeeper: to be answered when the view shows it. */
void intent_written(struct intent *i);
/* The only way out. */
void intent_answer(struct intent *i);
void intent_fail(struct intent *i, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
void intent_fail_plainly(struct intent *i, int code);

/* `count` lists of `each` brokers beside `existing` ones. They lie in one array, *ret_brokers, which is to be freed. On
 * failure i->result.error may say more: intent_fail_placing(). */
int intent_place(struct intent *i, const struct znode_replicas *existing, int32_t existing_count, int32_t count,
                 int32_t each, struct znode_replicas *replicas, int32_t **ret_brokers);
void intent_fail_placing(struct intent *i, int err);
/* How many replicas a partition of the topic has, or is to have when nothing is being moved any more. */
int32_t intent_replicas_of(const struct znode_topic *node);
#endif
