/* Making a topic: settings, node, mark and notification in one multi. */
#include "broker/cluster/intents_internal.h"
#include "coordination/changes.h"
#include "coordination/paths.h"
#include "coordination/topic_mark.h"
#include "proto/base/cleanup.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void send_create(struct intent *i);

static void exists_because(void *arg, const struct coordinator_reply *reply)
{
    struct intent *i = intent_end(arg);
    if (i)
        intent_fail_plainly(i, reply->err == -BROOK_E_NO_NODE ? BROOK_E_TOPIC_EXISTS : BROOK_E_TOPIC_BEING_DELETED);
}

/* There is a topic of this name: ours, from an attempt whose answer was lost, or another one. */
static void existing_read(void *arg, const struct coordinator_reply *reply)
{
    struct intent *i = intent_end(arg);
    struct znode_topic node;
    struct path path;
    if (!i)
        return;
    if (reply->err == -BROOK_E_NO_NODE)
        return send_create(i);
    if (!reply->err && !znode_decode_topic(reply->data, reply->data_bytes, &node, NULL)) {
        bool is_ours = topic_id_equal(&node.topic_id, &i->result.topic_id);
        znode_topic_done(&node);
        if (is_ours)
            return intent_written(i);
    }
    if (reply->err)
        return intent_fail_plainly(i, reply->err);
    coordinator_exists(i->all->s.coordinator, path_delete_topic(&path, i->topic), intent_begin(i, exists_because));
}

static void created(void *arg, const struct coordinator_reply *reply)
{
    struct intent *i = intent_end(arg);
    struct path path;
    if (!i)
        return;
    if (!reply->err)
        return intent_written(i);
    if (reply->failed_op == 0 && (reply->err == -BROOK_E_NODE_EXISTS || reply->err == -BROOK_E_NO_NODE)) {
        i->config_exists = reply->err == -BROOK_E_NODE_EXISTS;
        return send_create(i);
    }
    if (reply->err == -BROOK_E_NODE_EXISTS) {
        coordinator_get(i->all->s.coordinator, path_topic(&path, i->topic), intent_begin(i, existing_read));
        return;
    }
    if (intent_is_unknown(reply->err)) {
        coordinator_get(i->all->s.coordinator, path_topic(&path, i->topic), intent_begin(i, existing_read));
        return;
    }
    intent_fail_plainly(i, reply->err);
}

/* Settings that are there without a topic are left by somebody who wrote them and got no further: replaced.
 */
static void send_create(struct intent *i)
{
    struct path path;
    char *topics[] = {i->topic};
    struct znode_change change = {.topics = topics, .topics_count = 1};
    struct coordinator_multi *multi = coordinator_multi_new();
    AUTO_FREE char *config = znode_encode_config(&i->config);
    if (!multi || !config) {
        coordinator_multi_free(multi);
        return intent_fail_plainly(i, BROOK_E_NOMEM);
    }
    path_topic_config(&path, i->topic);
    if (i->config_exists)
        coordinator_multi_set(multi, path.text, config, strlen(config), -1);
    else
        coordinator_multi_create(multi, path.text, config, strlen(config), ZNODE_PERSISTENT);
    coordinator_multi_create(multi, path_topic(&path, i->topic), i->node, strlen(i->node), ZNODE_PERSISTENT);
    topic_mark_create(multi, i->topic, &i->result.topic_id);
    if (changes_announce(multi, &change)) {
        coordinator_multi_free(multi);
        return intent_fail_plainly(i, BROOK_E_NOMEM);
    }
    coordinator_multi_send(i->all->s.coordinator, &multi, intent_begin(i, created));
}

static char *place_and_encode(struct intent *i, int *ret_err)
{
    AUTO_FREE int32_t *brokers = NULL;
    AUTO_FREE struct znode_replicas *replicas = calloc((size_t)i->partitions, sizeof *replicas);
    struct znode_topic node = {.is_marked = true, .partitions_count = i->partitions, .replicas = replicas};
    *ret_err = -BROOK_E_NOMEM;
    if (!replicas)
        return NULL;
    *ret_err = intent_place(i, NULL, 0, i->partitions, i->replicas, replicas, &brokers);
    if (*ret_err)
        return NULL;
    topic_id_random(&i->result.topic_id);
    node.topic_id = i->result.topic_id;
    char *text = znode_encode_topic(&node);
    *ret_err = text ? 0 : -BROOK_E_NOMEM;
    return text;
}

static bool check_counts(struct intent *i)
{
    if (i->partitions < 1 || i->partitions > ZNODE_PARTITIONS_MAX) {
        intent_fail(i, BROOK_E_INVALID_PARTITIONS, "topic %s: %" PRId32 " partitions; allowed are 1 to %d", i->topic,
                    i->partitions, ZNODE_PARTITIONS_MAX);
        return false;
    }
    int32_t most = i->all->s.replicas_max;
    if (i->replicas < 1 || i->replicas > most) {
        intent_fail(i, BROOK_E_INVALID_REPLICATION, "topic %s: %" PRId32 " replicas; allowed are 1 to %" PRId32,
                    i->topic, i->replicas, most);
        return false;
    }
    return true;
}

void intent_create(struct intent *i)
{
    struct intents *all = i->all;
    struct topic_config config;
    struct brook_error error;
    int err;
    i->partitions = i->partitions ? i->partitions : all->s.partitions_default;
    i->replicas = i->replicas ? i->replicas : all->s.replicas_default;
    if (!check_counts(i))
        return;
    if (topic_config_apply(all->s.defaults, &i->config, &config, &error) ||
        topic_config_check_sizes(&config, &i->config, &error) ||
        topic_config_check_replicas(&config, i->replicas, &error))
        return intent_fail(i, error.code, "topic %s: %s", i->topic, error.text);
    i->result.partitions = i->partitions;
    i->result.replicas = i->replicas;
    if (i->validate_only && image_is_deleting(all->s.image, i->topic))
        return intent_fail_plainly(i, BROOK_E_TOPIC_BEING_DELETED);
    if (i->validate_only && image_find(all->s.image, i->topic))
        return intent_fail_plainly(i, BROOK_E_TOPIC_EXISTS);
    i->node = place_and_encode(i, &err);
    if (!i->node)
        return intent_fail_placing(i, err);
    if (i->validate_only) {
        memset(&i->result.topic_id, 0, sizeof i->result.topic_id);
        return intent_answer(i);
    }
    send_create(i);
}
