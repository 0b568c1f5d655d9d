#include "broker/cluster/ends.h"

#include "coordination/changes.h"
#include "coordination/paths.h"
#include "coordination/topic_mark.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"

#include <stdlib.h>
#include <string.h>

#define SET_OP 1 /* behind the check of the topic */

struct ends {
    struct ends_settings s;
    bool is_due;
    int64_t not_before_ms;
};

/* A node on its way. */
struct telling {
    struct ends *ends;
    bool is_made; /* the node was there, or has been made */
    bool is_marked;
    struct topic_id topic_id;
    char *text;
    char topic[];
};

static void telling_free(struct telling *t)
{
    free(t->text);
    free(t);
}

int ends_new(const struct ends_settings *settings, struct ends **ret_ends)
{
    struct ends *e = calloc(1, sizeof *e);
    if (!e)
        return -BROOK_E_NOMEM;
    e->s = *settings;
    *ret_ends = e;
    return 0;
}

void ends_free(struct ends *e)
{
    free(e);
}

void ends_consider(struct ends *e, struct image_topic *topic)
{
    topic->is_ends_due = true;
    e->is_due = true;
}

/* ---- what there is to tell -------------------------------------------------------------------------- */

/* Returns false when a partition is not ready to tell: it is considered again when it was opened. */
static bool collect(struct ends *e, const struct image_topic *topic, struct znode_ends *ret)
{
    bool is_complete = true;
    ret->list = calloc((size_t)topic->node.partitions_count + 1, sizeof *ret->list);
    if (!ret->list)
        return false;
    for (int32_t i = 0; i < topic->node.partitions_count; i++) {
        const struct image_partition *p = &topic->partitions[i];
        struct znode_end *end = &ret->list[ret->count];
        if (p->version < 0 || p->leader >= 0 || topic->node.replicas[i].count < 2 ||
            !controller_is_assigned(&topic->node.replicas[i], e->s.broker_id))
            continue;
        *end = (struct znode_end){.partition = i, .leader_epoch = p->leader_epoch};
        if (hosting_end(e->s.hosting, topic, i, &end->last_epoch, &end->end))
            ret->count++;
        else
            is_complete = false;
    }
    return is_complete || ret->count;
}

/* FNV-1a; never 0. */
static uint64_t hash(const char *text)
{
    uint64_t h = 14695981039346656037u;
    for (; *text; text++)
        h = (h ^ (uint8_t)*text) * 1099511628211u;
    return h ? h : 1;
}

/* ---- telling ---------------------------------------------------------------------------------------- */

static void send(struct telling *t);

static void again(struct ends *e, const char *name)
{
    struct image_topic *topic = image_find(e->s.image, name);
    if (!topic)
        return;
    topic->ends_told = 0;
    ends_consider(e, topic);
    e->not_before_ms = clock_boot_ms() + ENDS_RETRY_MS;
}

static void made(void *arg, const struct coordinator_reply *reply)
{
    struct telling *t = arg;
    t->is_made = true;
    if (!reply->err || reply->err == -BROOK_E_NODE_EXISTS)
        return send(t);
    again(t->ends, t->topic);
    telling_free(t);
}

static void told(void *arg, const struct coordinator_reply *reply)
{
    struct telling *t = arg;
    struct path path;
    bool is_missing = reply->err == -BROOK_E_NO_NODE && reply->failed_op == SET_OP;
    if (is_missing && !t->is_made && image_find(t->ends->s.image, t->topic)) {
        struct coordinator_call call = {.inbox = t->ends->s.inbox, .callback = made, .arg = t};
        coordinator_create_path(t->ends->s.coordinator, path_topic_end(&path, t->topic, t->ends->s.broker_id), NULL,
                                0, call);
        return;
    }
    if (reply->err)
        again(t->ends, t->topic);
    telling_free(t);
}

/* It is told of the topic that is there: not of an earlier one of its name. */
static void check_topic(const struct telling *t, struct coordinator_multi *multi)
{
    struct path path;
    if (t->is_marked)
        topic_mark_check(multi, t->topic, &t->topic_id);
    else
        coordinator_multi_check(multi, path_topic(&path, t->topic), -1);
}

/* The entry of this registration is checked: a session that is over tells nothing. */
static void send(struct telling *t)
{
    struct ends *e = t->ends;
    struct path path;
    char *name = t->topic;
    struct znode_change change = {.ends = &name, .ends_count = 1};
    struct coordinator_multi *multi = coordinator_multi_new();
    struct coordinator_call call = {
        .inbox = e->s.inbox, .callback = told, .arg = t, .generation = coordinator_generation(e->s.coordinator)};
    if (multi) {
        check_topic(t, multi);
        coordinator_multi_set(multi, path_topic_end(&path, t->topic, e->s.broker_id), t->text, strlen(t->text), -1);
    }
    if (!multi || changes_announce(multi, &change)) {
        coordinator_multi_free(multi);
        again(e, t->topic);
        telling_free(t);
        return;
    }
    coordinator_multi_send(e->s.coordinator, &multi, call);
}

static void tell(struct ends *e, struct image_topic *topic, int64_t broker_epoch)
{
    struct znode_ends ends = {.broker_epoch = broker_epoch};
    AUTO_FREE char *text = NULL;
    if (collect(e, topic, &ends) && ends.count)
        text = znode_encode_ends(&ends);
    znode_ends_done(&ends);
    if (!text || hash(text) == topic->ends_told)
        return;
    size_t bytes = strlen(topic->name) + 1;
    struct telling *t = calloc(1, sizeof *t + bytes);
    if (!t)
        return again(e, topic->name);
    topic->ends_told = hash(text);
    t->ends = e;
    t->text = TAKE(text);
    t->is_marked = topic->node.is_marked;
    t->topic_id = topic->node.topic_id;
    memcpy(t->topic, topic->name, bytes);
    send(t);
}

int64_t ends_tick(struct ends *e, int64_t broker_epoch, int64_t now_ms)
{
    if (!e->is_due)
        return INT64_MAX;
    if (now_ms < e->not_before_ms)
        return e->not_before_ms;
    e->is_due = false;
    for (size_t i = 0; i < image_topics_count(e->s.image); i++) {
        struct image_topic *topic = image_topic_at(e->s.image, i);
        if (!topic->is_ends_due)
            continue;
        topic->is_ends_due = false;
        if (!topic->is_being_deleted)
            tell(e, topic, broker_epoch);
    }
    return INT64_MAX;
}
