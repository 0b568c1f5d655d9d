/* Adding partitions to a topic: the next node, by compare-and-set. */
#include "broker/cluster/intents_internal.h"
#include "coordination/changes.h"
#include "coordination/paths.h"
#include "proto/base/cleanup.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void grown(void *arg, const struct coordinator_reply *reply)
{
    struct intent *i = intent_end(arg);
    if (!i)
        return;
    if (!reply->err)
        intent_written(i);
    else if (reply->err == -BROOK_E_BAD_VERSION || intent_is_unknown(reply->err)) {
        i->may_be_sent = i->may_be_sent || intent_is_unknown(reply->err);
        intent_grow(i);
    } else {
        intent_fail_plainly(i, reply->err == -BROOK_E_NO_NODE ? BROOK_E_UNKNOWN_TOPIC : reply->err);
    }
}

/* `node` as read, with the new partitions behind the old ones. NULL with *ret_err. */
static char *grow(struct intent *i, const struct znode_topic *node, int *ret_err)
{
    int32_t more = i->partitions - node->partitions_count;
    AUTO_FREE int32_t *brokers = NULL;
    AUTO_FREE struct znode_replicas *replicas = malloc((size_t)i->partitions * sizeof *replicas);
    struct znode_topic next = *node;
    *ret_err = -BROOK_E_NOMEM;
    if (!replicas)
        return NULL;
    next.partitions_count = i->partitions;
    next.replicas = replicas;
    memcpy(replicas, node->replicas, (size_t)node->partitions_count * sizeof *replicas);
    *ret_err = intent_place(i, node->replicas, node->partitions_count, more, i->result.replicas,
                     replicas + node->partitions_count, &brokers);
    if (*ret_err)
        return NULL;
    char *text = znode_encode_topic(&next);
    *ret_err = text ? 0 : -BROOK_E_NOMEM;
    return text;
}

static void send_grown(struct intent *i, const struct znode_topic *node, int32_t version)
{
    struct path path;
    char *topics[] = {i->topic};
    struct znode_change change = {.topics = topics, .topics_count = 1};
    int err;
    AUTO_FREE char *text = grow(i, node, &err);
    if (!text)
        return intent_fail_placing(i, err);
    if (i->validate_only)
        return intent_answer(i);
    struct coordinator_multi *multi = coordinator_multi_new();
    if (!multi)
        return intent_fail_plainly(i, BROOK_E_NOMEM);
    coordinator_multi_set(multi, path_topic(&path, i->topic), text, strlen(text), version);
    if (changes_announce(multi, &change)) {
        coordinator_multi_free(multi);
        return intent_fail_plainly(i, BROOK_E_NOMEM);
    }
    coordinator_multi_send(i->all->s.coordinator, &multi, intent_begin(i, grown));
}

static void grown_read(void *arg, const struct coordinator_reply *reply)
{
    struct intent *i = intent_end(arg);
    struct znode_topic node;
    struct brook_error error;
    if (!i)
        return;
    if (reply->err)
        return intent_fail_plainly(i, reply->err == -BROOK_E_NO_NODE ? BROOK_E_UNKNOWN_TOPIC : reply->err);
    if (znode_decode_topic(reply->data, reply->data_bytes, &node, &error))
        return intent_fail(i, error.code, "topic %s: %s", i->topic, error.text);
    i->result.topic_id = node.topic_id;
    i->result.partitions = i->partitions;
    i->result.replicas = intent_replicas_of(&node);
    if (image_is_deleting(i->all->s.image, i->topic))
        intent_fail_plainly(i, BROOK_E_TOPIC_BEING_DELETED);
    else if (i->may_be_sent && node.partitions_count == i->partitions)
        intent_written(i);
    else if (i->partitions <= node.partitions_count || i->partitions > ZNODE_PARTITIONS_MAX)
        intent_fail(i, BROOK_E_INVALID_PARTITIONS,
             "topic %s has %" PRId32 " partitions; it can grow to %d, and %" PRId32 " was asked for",
             i->topic, node.partitions_count, ZNODE_PARTITIONS_MAX, i->partitions);
    else
        send_grown(i, &node, reply->stat.version);
    znode_topic_done(&node);
}

void intent_grow(struct intent *i)
{
    struct path path;
    coordinator_get(i->all->s.coordinator, path_topic(&path, i->topic), intent_begin(i, grown_read));
}
