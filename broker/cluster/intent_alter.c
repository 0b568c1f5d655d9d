/* Changing settings of a topic: the next text of its settings' node, by compare-and-set. */
#include "broker/cluster/config_change.h"
#include "broker/cluster/intents_internal.h"
#include "coordination/changes.h"
#include "coordination/paths.h"
#include "proto/base/cleanup.h"

#include <stdlib.h>
#include <string.h>

static void read_settings(struct intent *i);

/* The node was made; what number its making has is known only from a look. */
static void made_settings_read(void *arg, const struct coordinator_reply *reply)
{
    struct intent *i = intent_end(arg);
    if (!i)
        return;
    i->config_zxid = reply->err ? -1 : reply->stat.mzxid;
    intent_written(i);
}

static void altered_for_good(struct intent *i, const struct coordinator_reply *reply)
{
    struct path path;
    if (i->config_version < 0) {
        coordinator_exists(i->all->s.coordinator, path_topic_config(&path, i->topic), intent_begin(i, made_settings_read));
        return;
    }
    i->config_zxid = reply->op_stats[1].mzxid;
    intent_written(i);
}

static void altered(void *arg, const struct coordinator_reply *reply)
{
    struct intent *i = intent_end(arg);
    if (!i)
        return;
    bool is_other = reply->err == -BROOK_E_BAD_VERSION || reply->err == -BROOK_E_NODE_EXISTS ||
                    (reply->err == -BROOK_E_NO_NODE && reply->failed_op == 1);
    if (!reply->err) {
        altered_for_good(i, reply);
    } else if (is_other || intent_is_unknown(reply->err)) {
        read_settings(i); /* somebody else has written them, or we have: looked at again */
    } else {
        intent_fail_plainly(i, reply->err == -BROOK_E_NO_NODE ? BROOK_E_UNKNOWN_TOPIC : reply->err);
    }
}

static void send_altered(struct intent *i, const struct znode_config *config)
{
    struct path path;
    char *topics[] = {i->topic};
    struct znode_change change = {.topics = topics, .topics_count = 1};
    struct coordinator_multi *multi = coordinator_multi_new();
    AUTO_FREE char *text = znode_encode_config(config);
    if (!multi || !text) {
        coordinator_multi_free(multi);
        return intent_fail_plainly(i, BROOK_E_NOMEM);
    }
    coordinator_multi_check(multi, path_topic(&path, i->topic), -1);
    path_topic_config(&path, i->topic);
    if (i->config_version < 0)
        coordinator_multi_create(multi, path.text, text, strlen(text), ZNODE_PERSISTENT);
    else
        coordinator_multi_set(multi, path.text, text, strlen(text), i->config_version);
    if (changes_announce(multi, &change)) {
        coordinator_multi_free(multi);
        return intent_fail_plainly(i, BROOK_E_NOMEM);
    }
    coordinator_multi_send(i->all->s.coordinator, &multi, intent_begin(i, altered));
}

static void settings_read(void *arg, const struct coordinator_reply *reply)
{
    struct intent *i = intent_end(arg);
    struct znode_config old = {0}, next = {0};
    struct brook_error error = {0};
    bool is_changed = false;
    if (!i)
        return;
    if (reply->err && reply->err != -BROOK_E_NO_NODE)
        return intent_fail_plainly(i, reply->err);
    i->config_version = reply->err ? -1 : reply->stat.version;
    i->config_zxid = reply->err ? -1 : reply->stat.mzxid;
    int err = reply->err ? 0 : znode_decode_config(reply->data, reply->data_bytes, &old, &error);
    if (!err)
        err = config_change_apply(&old, &i->config, i->all->s.defaults, i->replicas_least, &next, &is_changed,
                                  &error);
    if (err)
        intent_fail(i, error.code ? error.code : err, "topic %s: %s", i->topic,
             error.code ? error.text : brook_error_text(err));
    else if (i->validate_only)
        intent_answer(i);
    else if (is_changed)
        send_altered(i, &next);
    else
        intent_written(i); /* as it is already, perhaps by an attempt whose answer was lost */
    znode_config_done(&old);
    znode_config_done(&next);
}

static void read_settings(struct intent *i)
{
    struct path path;
    coordinator_get(i->all->s.coordinator, path_topic_config(&path, i->topic), intent_begin(i, settings_read));
}

static int32_t least_replicas(const struct znode_topic *node)
{
    int32_t least = ZNODE_REPLICAS_MAX;
    for (int32_t p = 0; p < node->partitions_count; p++) {
        const struct znode_move *move = znode_topic_move(node, p);
        int32_t count = move ? move->target.count : node->replicas[p].count;
        least = count < least ? count : least;
    }
    return least;
}

static void altered_topic_read(void *arg, const struct coordinator_reply *reply)
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
    i->result.partitions = node.partitions_count;
    i->result.replicas = intent_replicas_of(&node);
    i->replicas_least = least_replicas(&node);
    znode_topic_done(&node);
    if (image_is_deleting(i->all->s.image, i->topic))
        return intent_fail_plainly(i, BROOK_E_TOPIC_BEING_DELETED);
    read_settings(i);
}

void intent_alter(struct intent *i)
{
    struct path path;
    coordinator_get(i->all->s.coordinator, path_topic(&path, i->topic), intent_begin(i, altered_topic_read));
}
