#include "broker/cluster/intents.h"

#include "broker/cluster/config_change.h"
#include "broker/cluster/placement.h"
#include "coordination/changes.h"
#include "coordination/paths.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK_MS 20 /* between two looks whether a deletion is through */

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
    int64_t config_zxid;    /* ALTER: of its last change, ours when it was written */
};

struct intents {
    struct intents_settings s;
    struct intent *waiting;
    size_t count;
    uint64_t turn; /* where the next placement begins */
};

static void intent_free(struct intent *i)
{
    free(i->topic);
    free(i->node);
    znode_config_done(&i->config);
    free(i);
}

static int copy_config(struct intent *i, const struct znode_config *config)
{
    i->config.entries = calloc(config->count + 1, sizeof *i->config.entries);
    if (!i->config.entries)
        return -BROOK_E_NOMEM;
    for (size_t k = 0; k < config->count; k++) {
        struct znode_config_entry *entry = &i->config.entries[i->config.count++];
        entry->key = strdup(config->entries[k].key);
        entry->value = config->entries[k].value ? strdup(config->entries[k].value) : NULL;
        if (!entry->key || (config->entries[k].value && !entry->value))
            return -BROOK_E_NOMEM;
    }
    return 0;
}

struct intent *intent_new(enum intent_kind kind, const char *topic, int32_t partitions, int32_t replicas,
                          const struct znode_config *config, bool validate_only, int timeout_ms,
                          struct inbox *inbox, cluster_topic_callback *callback, void *arg)
{
    struct intent *i;
    do
        i = calloc(1, sizeof *i);
    while (!i); /* somebody waits for the answer; what holds the memory is about to give some back */
    i->kind = kind;
    i->topic = strdup(topic);
    i->partitions = partitions;
    i->replicas = replicas;
    i->validate_only = validate_only;
    i->deadline_ms = clock_boot_ms() + timeout_ms;
    i->inbox = inbox;
    i->callback = callback;
    i->arg = arg;
    i->is_broken = !i->topic || (config && copy_config(i, config));
    return i;
}

/* ---- answering -------------------------------------------------------------------------------------- */

/* The answer travels by itself, so that the intent may still be pointed to by a call. */
struct answer {
    struct inbox_item item;
    cluster_topic_callback *callback;
    void *arg;
    struct cluster_topic_result result;
};

static void deliver(struct inbox_item *item)
{
    AUTO_FREE struct answer *answer = CONTAINER_OF(item, struct answer, item);
    answer->callback(answer->arg, &answer->result);
}

static void remove_waiting(struct intent *i)
{
    if (!i->all)
        return;
    struct intent **at = &i->all->waiting;
    while (*at && *at != i)
        at = &(*at)->next;
    if (*at) {
        *at = i->next;
        i->all->count--;
    }
}

/* The only way out. */
static void answer(struct intent *i)
{
    struct answer *a;
    do
        a = malloc(sizeof *a);
    while (!a);
    *a = (struct answer){.item.run = deliver, .callback = i->callback, .arg = i->arg, .result = i->result};
    remove_waiting(i);
    inbox_post(i->inbox, &a->item);
    i->is_answered = true;
    if (!i->is_calling)
        intent_free(i);
}

static void fail(struct intent *i, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void fail(struct intent *i, int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    brook_error_setv(&i->result.error, abs(code), format, args);
    va_end(args);
    answer(i);
}

static void fail_plainly(struct intent *i, int code)
{
    fail(i, code, "topic %s: %s", i->topic, brook_error_text(code));
}

void intent_refuse(struct intent *i, int code, const char *why)
{
    fail(i, code, "%s", why);
}

/* ---- calls ------------------------------------------------------------------------------------------ */

static struct coordinator_call begin(struct intent *i, coordinator_callback *callback)
{
    i->is_calling = true;
    return (struct coordinator_call){.inbox = i->all->s.inbox, .callback = callback, .arg = i};
}

/* NULL: it was answered meanwhile (its time was up). */
static struct intent *end(void *arg)
{
    struct intent *i = arg;
    i->is_calling = false;
    if (!i->is_answered)
        return i;
    intent_free(i);
    return NULL;
}

static bool is_unknown(int err)
{
    return err == -BROOK_E_OUTCOME_UNKNOWN || err == -BROOK_E_SESSION_EXPIRED;
}

static void written(struct intent *i)
{
    i->is_written = true; /* seen to be done at the end of this turn at the earliest */
}

/* ---- create ----------------------------------------------------------------------------------------- */

static void send_create(struct intent *i);

static void exists_because(void *arg, const struct coordinator_reply *reply)
{
    struct intent *i = end(arg);
    if (i)
        fail_plainly(i, reply->err == -BROOK_E_NO_NODE ? BROOK_E_TOPIC_EXISTS : BROOK_E_TOPIC_BEING_DELETED);
}

/* There is a topic of this name: ours, from an attempt whose answer was lost, or another one. */
static void existing_read(void *arg, const struct coordinator_reply *reply)
{
    struct intent *i = end(arg);
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
            return written(i);
    }
    if (reply->err)
        return fail_plainly(i, reply->err);
    coordinator_exists(i->all->s.coordinator, path_delete_topic(&path, i->topic), begin(i, exists_because));
}

static void created(void *arg, const struct coordinator_reply *reply)
{
    struct intent *i = end(arg);
    struct path path;
    if (!i)
        return;
    if (!reply->err)
        return written(i);
    if (reply->failed_op == 0 && (reply->err == -BROOK_E_NODE_EXISTS || reply->err == -BROOK_E_NO_NODE)) {
        i->config_exists = reply->err == -BROOK_E_NODE_EXISTS;
        return send_create(i);
    }
    if (reply->err == -BROOK_E_NODE_EXISTS) {
        coordinator_get(i->all->s.coordinator, path_topic(&path, i->topic), begin(i, existing_read));
        return;
    }
    if (is_unknown(reply->err)) {
        coordinator_get(i->all->s.coordinator, path_topic(&path, i->topic), begin(i, existing_read));
        return;
    }
    fail_plainly(i, reply->err);
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
        return fail_plainly(i, BROOK_E_NOMEM);
    }
    path_topic_config(&path, i->topic);
    if (i->config_exists)
        coordinator_multi_set(multi, path.text, config, strlen(config), -1);
    else
        coordinator_multi_create(multi, path.text, config, strlen(config), ZNODE_PERSISTENT);
    coordinator_multi_create(multi, path_topic(&path, i->topic), i->node, strlen(i->node), ZNODE_PERSISTENT);
    if (changes_announce(multi, &change)) {
        coordinator_multi_free(multi);
        return fail_plainly(i, BROOK_E_NOMEM);
    }
    coordinator_multi_send(i->all->s.coordinator, &multi, begin(i, created));
}

/* `count` lists of `each` brokers behind `existing` ones; all lie in one array, which is to be freed. */
static int place(struct intent *i, const struct znode_replicas *existing, int32_t existing_count,
                 int32_t count, int32_t each, struct znode_replicas *replicas, int32_t **ret_brokers)
{
    struct intents *all = i->all;
    int32_t *brokers = malloc((size_t)count * (size_t)each * sizeof *brokers);
    if (!brokers)
        return -BROOK_E_NOMEM;
    int err = placement_make(image_alive(all->s.image), existing, existing_count, all->turn++, count, each,
                             brokers, &i->result.error);
    if (err) {
        free(brokers);
        return err;
    }
    for (int32_t k = 0; k < count; k++)
        replicas[k] = (struct znode_replicas){brokers + (size_t)k * (size_t)each, each};
    *ret_brokers = brokers;
    return 0;
}

static char *place_and_encode(struct intent *i, int *ret_err)
{
    AUTO_FREE int32_t *brokers = NULL;
    AUTO_FREE struct znode_replicas *replicas = calloc((size_t)i->partitions, sizeof *replicas);
    struct znode_topic node = {.partitions_count = i->partitions, .replicas = replicas};
    *ret_err = -BROOK_E_NOMEM;
    if (!replicas)
        return NULL;
    *ret_err = place(i, NULL, 0, i->partitions, i->replicas, replicas, &brokers);
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
        fail(i, BROOK_E_INVALID_PARTITIONS, "topic %s: %" PRId32 " partitions; allowed are 1 to %d", i->topic,
             i->partitions, ZNODE_PARTITIONS_MAX);
        return false;
    }
    int32_t most = i->all->s.replicas_max;
    if (i->replicas < 1 || i->replicas > most) {
        if (most == 1)
            fail(i, BROOK_E_INVALID_REPLICATION,
                 "topic %s: %" PRId32 " replicas asked for; this version keeps one replica", i->topic, i->replicas);
        else
            fail(i, BROOK_E_INVALID_REPLICATION, "topic %s: %" PRId32 " replicas; allowed are 1 to %" PRId32,
                 i->topic, i->replicas, most);
        return false;
    }
    return true;
}

/* With the sentence that placing left, if it left one. */
static void fail_placing(struct intent *i, int err)
{
    struct brook_error why = i->result.error;
    if (why.code)
        fail(i, why.code, "topic %s: %s", i->topic, why.text);
    else
        fail_plainly(i, err);
}

static void create(struct intent *i)
{
    struct intents *all = i->all;
    struct topic_config unused;
    struct brook_error error;
    int err;
    i->partitions = i->partitions ? i->partitions : all->s.partitions_default;
    i->replicas = i->replicas ? i->replicas : all->s.replicas_default;
    if (!check_counts(i))
        return;
    if (topic_config_apply(all->s.defaults, &i->config, &unused, &error))
        return fail(i, error.code, "topic %s: %s", i->topic, error.text);
    i->result.partitions = i->partitions;
    i->result.replicas = i->replicas;
    if (i->validate_only && image_is_deleting(all->s.image, i->topic))
        return fail_plainly(i, BROOK_E_TOPIC_BEING_DELETED);
    if (i->validate_only && image_find(all->s.image, i->topic))
        return fail_plainly(i, BROOK_E_TOPIC_EXISTS);
    i->node = place_and_encode(i, &err);
    if (!i->node)
        return fail_placing(i, err);
    if (i->validate_only) {
        memset(&i->result.topic_id, 0, sizeof i->result.topic_id);
        return answer(i);
    }
    send_create(i);
}

/* ---- delete ----------------------------------------------------------------------------------------- */

static void send_delete(struct intent *i);

static void delete_written(void *arg, const struct coordinator_reply *reply)
{
    struct intent *i = end(arg);
    if (!i)
        return;
    bool is_again = i->may_be_sent;
    if (!reply->err || (is_again && reply->err == -BROOK_E_NODE_EXISTS))
        return written(i);
    if (is_unknown(reply->err)) {
        i->may_be_sent = true;
        return send_delete(i);
    }
    if (reply->err == -BROOK_E_NODE_EXISTS)
        fail_plainly(i, BROOK_E_TOPIC_BEING_DELETED);
    else if (reply->err == -BROOK_E_NO_NODE && reply->failed_op == 0 && is_again)
        answer(i); /* written then, and carried out since */
    else if (reply->err == -BROOK_E_NO_NODE && reply->failed_op == 0)
        fail_plainly(i, BROOK_E_UNKNOWN_TOPIC);
    else
        fail_plainly(i, reply->err);
}

static void send_delete(struct intent *i)
{
    struct path path;
    struct coordinator_multi *multi = coordinator_multi_new();
    if (!multi)
        return fail_plainly(i, BROOK_E_NOMEM);
    coordinator_multi_check(multi, path_topic(&path, i->topic), -1);
    coordinator_multi_create(multi, path_delete_topic(&path, i->topic), NULL, 0, ZNODE_PERSISTENT);
    coordinator_multi_send(i->all->s.coordinator, &multi, begin(i, delete_written));
}

static void doomed_read(void *arg, const struct coordinator_reply *reply)
{
    struct intent *i = end(arg);
    struct znode_topic node;
    if (!i)
        return;
    if (reply->err)
        return fail_plainly(i, reply->err == -BROOK_E_NO_NODE ? BROOK_E_UNKNOWN_TOPIC : reply->err);
    if (!znode_decode_topic(reply->data, reply->data_bytes, &node, NULL)) {
        i->result.topic_id = node.topic_id;
        i->result.partitions = node.partitions_count;
        znode_topic_done(&node);
    }
    if (!i->validate_only)
        send_delete(i);
    else if (image_is_deleting(i->all->s.image, i->topic))
        fail_plainly(i, BROOK_E_TOPIC_BEING_DELETED);
    else
        answer(i);
}

/* ---- add partitions --------------------------------------------------------------------------------- */

static void read_grown(struct intent *i);

static void grown(void *arg, const struct coordinator_reply *reply)
{
    struct intent *i = end(arg);
    if (!i)
        return;
    if (!reply->err)
        written(i);
    else if (reply->err == -BROOK_E_BAD_VERSION || is_unknown(reply->err)) {
        i->may_be_sent = i->may_be_sent || is_unknown(reply->err);
        read_grown(i);
    } else {
        fail_plainly(i, reply->err == -BROOK_E_NO_NODE ? BROOK_E_UNKNOWN_TOPIC : reply->err);
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
    *ret_err = place(i, node->replicas, node->partitions_count, more, i->result.replicas,
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
        return fail_placing(i, err);
    if (i->validate_only)
        return answer(i);
    struct coordinator_multi *multi = coordinator_multi_new();
    if (!multi)
        return fail_plainly(i, BROOK_E_NOMEM);
    coordinator_multi_set(multi, path_topic(&path, i->topic), text, strlen(text), version);
    if (changes_announce(multi, &change)) {
        coordinator_multi_free(multi);
        return fail_plainly(i, BROOK_E_NOMEM);
    }
    coordinator_multi_send(i->all->s.coordinator, &multi, begin(i, grown));
}

static void grown_read(void *arg, const struct coordinator_reply *reply)
{
    struct intent *i = end(arg);
    struct znode_topic node;
    struct brook_error error;
    if (!i)
        return;
    if (reply->err)
        return fail_plainly(i, reply->err == -BROOK_E_NO_NODE ? BROOK_E_UNKNOWN_TOPIC : reply->err);
    if (znode_decode_topic(reply->data, reply->data_bytes, &node, &error))
        return fail(i, error.code, "topic %s: %s", i->topic, error.text);
    i->result.topic_id = node.topic_id;
    i->result.partitions = i->partitions;
    i->result.replicas = node.partitions_count ? node.replicas[0].count : 0;
    if (image_is_deleting(i->all->s.image, i->topic))
        fail_plainly(i, BROOK_E_TOPIC_BEING_DELETED);
    else if (i->may_be_sent && node.partitions_count == i->partitions)
        written(i);
    else if (i->partitions <= node.partitions_count || i->partitions > ZNODE_PARTITIONS_MAX)
        fail(i, BROOK_E_INVALID_PARTITIONS,
             "topic %s has %" PRId32 " partitions; it can grow to %d, and %" PRId32 " was asked for",
             i->topic, node.partitions_count, ZNODE_PARTITIONS_MAX, i->partitions);
    else
        send_grown(i, &node, reply->stat.version);
    znode_topic_done(&node);
}

static void read_grown(struct intent *i)
{
    struct path path;
    coordinator_get(i->all->s.coordinator, path_topic(&path, i->topic), begin(i, grown_read));
}

/* ---- alter ------------------------------------------------------------------------------------------ */

static void read_settings(struct intent *i);

/* The node was made; what number its making has is known only from a look. */
static void made_settings_read(void *arg, const struct coordinator_reply *reply)
{
    struct intent *i = end(arg);
    if (!i)
        return;
    i->config_zxid = reply->err ? -1 : reply->stat.mzxid;
    written(i);
}

static void altered_for_good(struct intent *i, const struct coordinator_reply *reply)
{
    struct path path;
    if (i->config_version < 0) {
        coordinator_exists(i->all->s.coordinator, path_topic_config(&path, i->topic), begin(i, made_settings_read));
        return;
    }
    i->config_zxid = reply->op_stats[1].mzxid;
    written(i);
}

static void altered(void *arg, const struct coordinator_reply *reply)
{
    struct intent *i = end(arg);
    if (!i)
        return;
    bool is_other = reply->err == -BROOK_E_BAD_VERSION || reply->err == -BROOK_E_NODE_EXISTS ||
                    (reply->err == -BROOK_E_NO_NODE && reply->failed_op == 1);
    if (!reply->err) {
        altered_for_good(i, reply);
    } else if (is_other || is_unknown(reply->err)) {
        read_settings(i); /* somebody else has written them, or we have: looked at again */
    } else {
        fail_plainly(i, reply->err == -BROOK_E_NO_NODE ? BROOK_E_UNKNOWN_TOPIC : reply->err);
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
        return fail_plainly(i, BROOK_E_NOMEM);
    }
    coordinator_multi_check(multi, path_topic(&path, i->topic), -1);
    path_topic_config(&path, i->topic);
    if (i->config_version < 0)
        coordinator_multi_create(multi, path.text, text, strlen(text), ZNODE_PERSISTENT);
    else
        coordinator_multi_set(multi, path.text, text, strlen(text), i->config_version);
    if (changes_announce(multi, &change)) {
        coordinator_multi_free(multi);
        return fail_plainly(i, BROOK_E_NOMEM);
    }
    coordinator_multi_send(i->all->s.coordinator, &multi, begin(i, altered));
}

static void settings_read(void *arg, const struct coordinator_reply *reply)
{
    struct intent *i = end(arg);
    struct znode_config old = {0}, next = {0};
    struct brook_error error = {0};
    bool is_changed = false;
    if (!i)
        return;
    if (reply->err && reply->err != -BROOK_E_NO_NODE)
        return fail_plainly(i, reply->err);
    i->config_version = reply->err ? -1 : reply->stat.version;
    i->config_zxid = reply->err ? -1 : reply->stat.mzxid;
    int err = reply->err ? 0 : znode_decode_config(reply->data, reply->data_bytes, &old, &error);
    if (!err)
        err = config_change_apply(&old, &i->config, i->all->s.defaults, &next, &is_changed, &error);
    if (err)
        fail(i, error.code ? error.code : err, "topic %s: %s", i->topic,
             error.code ? error.text : brook_error_text(err));
    else if (i->validate_only)
        answer(i);
    else if (is_changed)
        send_altered(i, &next);
    else
        written(i); /* as it is already, perhaps by an attempt whose answer was lost */
    znode_config_done(&old);
    znode_config_done(&next);
}

static void read_settings(struct intent *i)
{
    struct path path;
    coordinator_get(i->all->s.coordinator, path_topic_config(&path, i->topic), begin(i, settings_read));
}

static void altered_topic_read(void *arg, const struct coordinator_reply *reply)
{
    struct intent *i = end(arg);
    struct znode_topic node;
    struct brook_error error;
    if (!i)
        return;
    if (reply->err)
        return fail_plainly(i, reply->err == -BROOK_E_NO_NODE ? BROOK_E_UNKNOWN_TOPIC : reply->err);
    if (znode_decode_topic(reply->data, reply->data_bytes, &node, &error))
        return fail(i, error.code, "topic %s: %s", i->topic, error.text);
    i->result.topic_id = node.topic_id;
    i->result.partitions = node.partitions_count;
    i->result.replicas = node.partitions_count ? node.replicas[0].count : 0;
    znode_topic_done(&node);
    if (image_is_deleting(i->all->s.image, i->topic))
        return fail_plainly(i, BROOK_E_TOPIC_BEING_DELETED);
    read_settings(i);
}

static void alter(struct intent *i)
{
    struct path path;
    coordinator_get(i->all->s.coordinator, path_topic(&path, i->topic), begin(i, altered_topic_read));
}

/* The image was made from these settings, or from later ones. */
static bool is_in_force(const struct intent *i)
{
    const struct image_topic *topic = image_find(i->all->s.image, i->topic);
    return topic && topic_id_equal(&topic->node.topic_id, &i->result.topic_id) &&
           topic->config_zxid >= i->config_zxid;
}

/* ---- seen to be done -------------------------------------------------------------------------------- */

static bool is_led(const struct intent *i)
{
    const struct image_topic *topic = image_find(i->all->s.image, i->topic);
    if (!topic || !topic_id_equal(&topic->node.topic_id, &i->result.topic_id) ||
        topic->node.partitions_count < i->partitions)
        return false;
    for (int32_t p = 0; p < topic->node.partitions_count; p++)
        if (topic->partitions[p].leader < 0)
            return false;
    return true;
}

static void intent_gone(void *arg, const struct coordinator_reply *reply)
{
    struct intent *i = end(arg);
    if (i && reply->err == -BROOK_E_NO_NODE)
        answer(i);
}

/* Not in the image can mean that it was never read: only the intent's own end is proof. */
static void check_deleted(struct intent *i)
{
    const struct image_topic *topic = image_find(i->all->s.image, i->topic);
    struct path path;
    if (i->is_calling || (topic && topic_id_equal(&topic->node.topic_id, &i->result.topic_id)))
        return;
    coordinator_exists(i->all->s.coordinator, path_delete_topic(&path, i->topic), begin(i, intent_gone));
}

/* Returns when to look again. */
static int64_t check(struct intent *i, int64_t now_ms)
{
    if (i->kind != INTENT_DELETE) {
        if (i->kind == INTENT_ALTER ? is_in_force(i) : is_led(i))
            answer(i);
        return INT64_MAX;
    }
    if (now_ms < i->check_ms)
        return i->check_ms;
    i->check_ms = now_ms + CHECK_MS;
    check_deleted(i);
    return i->check_ms;
}

int64_t intents_tick(struct intents *all, int64_t now_ms, bool view_is_current)
{
    int64_t due = INT64_MAX;
    for (struct intent *i = all->waiting, *next; i; i = next) {
        next = i->next;
        if (now_ms >= i->deadline_ms) {
            fail(i, BROOK_E_TIMED_OUT, "topic %s: not done in time; %s", i->topic,
                 i->is_written ? "it will be carried out" : "it may be carried out");
            continue;
        }
        due = i->deadline_ms < due ? i->deadline_ms : due;
        int64_t again = i->is_written && view_is_current ? check(i, now_ms) : INT64_MAX;
        due = again < due ? again : due;
    }
    return due;
}

/* ---- life ------------------------------------------------------------------------------------------- */

int intents_new(const struct intents_settings *settings, struct intents **ret_intents)
{
    struct intents *all = calloc(1, sizeof *all);
    if (!all)
        return -BROOK_E_NOMEM;
    all->s = *settings;
    struct topic_id random;
    topic_id_random(&random);
    memcpy(&all->turn, random.bytes, sizeof all->turn);
    *ret_intents = all;
    return 0;
}

void intents_free(struct intents *all)
{
    if (!all)
        return;
    while (all->waiting)
        fail_plainly(all->waiting, BROOK_E_STOPPING);
    free(all);
}

void intents_submit(struct intents *all, struct intent *i)
{
    struct path path;
    if (i->is_broken)
        return intent_refuse(i, BROOK_E_NOMEM, "out of memory");
    if (all->count >= INTENTS_WAITING_MAX)
        return fail_plainly(i, BROOK_E_BUSY);
    i->all = all;
    i->next = all->waiting;
    all->waiting = i;
    all->count++;
    if (!name_is_legal_topic(i->topic, strlen(i->topic)))
        fail(i, BROOK_E_ILLEGAL_NAME,
             "topic name \"%.60s\": allowed are up to %d letters, digits, '.', '_' and '-'", i->topic,
             TOPIC_NAME_BYTES_MAX);
    else if (i->kind == INTENT_CREATE)
        create(i);
    else if (i->kind == INTENT_ALTER)
        alter(i);
    else if (i->kind == INTENT_DELETE)
        coordinator_get(all->s.coordinator, path_topic(&path, i->topic), begin(i, doomed_read));
    else
        read_grown(i);
}
