/* Deleting a topic: the intent in /admin/delete_topics, which the controller carries out (topic_deletion.h). */
#include "broker/cluster/intents_internal.h"
#include "coordination/paths.h"

static void send_delete(struct intent *i);

static void delete_written(void *arg, const struct coordinator_reply *reply)
{
    struct intent *i = intent_end(arg);
    if (!i)
        return;
    bool is_again = i->may_be_sent;
    if (!reply->err || (is_again && reply->err == -BROOK_E_NODE_EXISTS))
        return intent_written(i);
    if (intent_is_unknown(reply->err)) {
        i->may_be_sent = true;
        return send_delete(i);
    }
    if (reply->err == -BROOK_E_NODE_EXISTS)
        intent_fail_plainly(i, BROOK_E_TOPIC_BEING_DELETED);
    else if (reply->err == -BROOK_E_NO_NODE && reply->failed_op == 0 && is_again)
        intent_answer(i); /* written then, and carried out since */
    else if (reply->err == -BROOK_E_NO_NODE && reply->failed_op == 0)
        intent_fail_plainly(i, BROOK_E_UNKNOWN_TOPIC);
    else
        intent_fail_plainly(i, reply->err);
}

static void send_delete(struct intent *i)
{
    struct path path;
    struct coordinator_multi *multi = coordinator_multi_new();
    if (!multi)
        return intent_fail_plainly(i, BROOK_E_NOMEM);
    coordinator_multi_check(multi, path_topic(&path, i->topic), -1);
    coordinator_multi_create(multi, path_delete_topic(&path, i->topic), NULL, 0, ZNODE_PERSISTENT);
    coordinator_multi_send(i->all->s.coordinator, &multi, intent_begin(i, delete_written));
}

static void doomed_read(void *arg, const struct coordinator_reply *reply)
{
    struct intent *i = intent_end(arg);
    struct znode_topic node;
    if (!i)
        return;
    if (reply->err)
        return intent_fail_plainly(i, reply->err == -BROOK_E_NO_NODE ? BROOK_E_UNKNOWN_TOPIC : reply->err);
    if (!znode_decode_topic(reply->data, reply->data_bytes, &node, NULL)) {
        i->result.topic_id = node.topic_id;
        i->result.partitions = node.partitions_count;
        znode_topic_done(&node);
    }
    if (!i->validate_only)
        send_delete(i);
    else if (image_is_deleting(i->all->s.image, i->topic))
        intent_fail_plainly(i, BROOK_E_TOPIC_BEING_DELETED);
    else
        intent_answer(i);
}

void intent_delete(struct intent *i)
{
    struct path path;
    coordinator_get(i->all->s.coordinator, path_topic(&path, i->topic), intent_begin(i, doomed_read));
}
