#include "coordination/bootstrap.h"

#include "coordination/paths.h"
#include "coordination/znodes.h"
#include "proto/base/cleanup.h"

#include <stdlib.h>
#include <string.h>

static const char *const directories[] = {
    PATH_BROKER_IDS,    PATH_BROKER_EPOCHS, PATH_TOPICS,         PATH_CHANGES,
    PATH_CONFIG_TOPICS, PATH_DELETE_TOPICS, PATH_DELETED_TOPICS, PATH_CONSUMERS,
};
#define DIRECTORIES_COUNT (sizeof directories / sizeof directories[0])

struct bootstrap {
    struct coordinator *coordinator;
    struct inbox *inbox;
    bootstrap_callback *callback;
    void *arg;
    bool may_found;
    unsigned waiting;
    int err;
};

static void finish(struct bootstrap *b, int err, const char *cluster_id)
{
    b->callback(b->arg, err, cluster_id);
    free(b);
}

static struct coordinator_call call_of(struct bootstrap *b, coordinator_callback *callback)
{
    return (struct coordinator_call){.inbox = b->inbox, .callback = callback, .arg = b, .urgent = true};
}

static void id_read(void *arg, const struct coordinator_reply *reply)
{
    struct bootstrap *b = arg;
    AUTO_FREE char *id = NULL;
    int err = reply->err;
    if (!err)
        err = znode_decode_cluster_id(reply->data, reply->data_bytes, &id, NULL);
    finish(b, err, id);
}

/* Made now, or there already, or it is not known: reading tells. */
static void id_made(void *arg, const struct coordinator_reply *reply)
{
    struct bootstrap *b = arg;
    if (reply->err && reply->err != -BROOK_E_NODE_EXISTS && reply->err != -BROOK_E_OUTCOME_UNKNOWN)
        finish(b, reply->err, NULL);
    else
        coordinator_get(b->coordinator, PATH_CLUSTER_ID, call_of(b, id_read));
}

static void id_looked_up(void *arg, const struct coordinator_reply *reply)
{
    struct bootstrap *b = arg;
    if (reply->err != -BROOK_E_NO_NODE || !b->may_found)
        return id_read(arg, reply);
    struct topic_id random;
    char text[TOPIC_ID_TEXT_BYTES];
    topic_id_random(&random);
    topic_id_format(&random, text);
    AUTO_FREE char *node = znode_encode_cluster_id(text);
    if (!node)
        return finish(b, -BROOK_E_NOMEM, NULL);
    coordinator_create_path(b->coordinator, PATH_CLUSTER_ID, node, strlen(node), call_of(b, id_made));
}

static void directory_made(void *arg, const struct coordinator_reply *reply)
{
    struct bootstrap *b = arg;
    if (reply->err && reply->err != -BROOK_E_NODE_EXISTS && !b->err)
        b->err = reply->err;
    if (--b->waiting)
        return;
    if (b->err)
        finish(b, b->err, NULL);
    else
        coordinator_get(b->coordinator, PATH_CLUSTER_ID, call_of(b, id_looked_up));
}

void bootstrap_cluster(struct coordinator *coordinator, bool may_found, struct inbox *inbox,
                       bootstrap_callback *callback, void *arg)
{
    struct bootstrap *b = calloc(1, sizeof *b);
    if (!b) {
        callback(arg, -BROOK_E_NOMEM, NULL);
        return;
    }
    *b = (struct bootstrap){coordinator, inbox, callback, arg, may_found, DIRECTORIES_COUNT, 0};
    for (size_t i = 0; i < DIRECTORIES_COUNT; i++)
        coordinator_create_path(coordinator, directories[i], NULL, 0, call_of(b, directory_made));
}
