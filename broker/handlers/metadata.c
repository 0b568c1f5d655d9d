/* Metadata: brokers, topics and leaders as this loop's view has them. */
#include "broker/handlers/handlers.h"

#include "proto/base/names.h"

#include <string.h>

static int add_brokers(struct request *r, Brook__MetadataResponse *body)
{
    size_t count;
    const struct view_broker *brokers = view_brokers(r->loop->view, &count);
    if (!count)
        return 0;
    body->brokers = request_reply_alloc(r, count * sizeof body->brokers[0]);
    Brook__BrokerInfo *infos = request_reply_alloc(r, count * sizeof infos[0]);
    if (!body->brokers || !infos)
        return -BROOK_E_NOMEM;
    for (size_t i = 0; i < count; i++) {
        Brook__BrokerInfo *info = body->brokers[i] = &infos[i];
        brook__broker_info__init(info);
        info->has_broker_id = info->has_host = info->has_port = true;
        info->broker_id = brokers[i].broker_id;
        info->host = envelope_text(brokers[i].host);
        info->port = (uint32_t)brokers[i].port;
        if (brokers[i].rack) {
            info->has_rack = true;
            info->rack = envelope_text(brokers[i].rack);
        }
    }
    body->n_brokers = count;
    return 0;
}

/* Pointers into the view: it stays until the reply is packed. */
static int add_partitions(struct request *r, const struct view_topic *topic, Brook__TopicInfo *info)
{
    size_t count = (size_t)topic->partitions_count;
    if (!count)
        return 0;
    info->partitions = request_reply_alloc(r, count * sizeof info->partitions[0]);
    Brook__PartitionInfo *infos = request_reply_alloc(r, count * sizeof infos[0]);
    if (!info->partitions || !infos)
        return -BROOK_E_NOMEM;
    for (size_t i = 0; i < count; i++) {
        const struct view_partition *p = &topic->partitions[i];
        Brook__PartitionInfo *out = info->partitions[i] = &infos[i];
        brook__partition_info__init(out);
        out->has_partition = out->has_leader = out->has_leader_epoch = true;
        out->partition = (int32_t)i;
        out->leader = p->leader;
        out->leader_epoch = p->leader_epoch;
        out->n_replicas = (size_t)p->replicas_count;
        out->replicas = (int32_t *)(uintptr_t)p->replicas;
        out->n_isr = (size_t)p->isr_count;
        out->isr = (int32_t *)(uintptr_t)p->isr;
        out->n_offline = (size_t)p->offline_count;
        out->offline = (int32_t *)(uintptr_t)p->offline;
        if (p->leader < 0) {
            out->has_error = true;
            out->error = BROOK_E_NO_LEADER;
        }
        if (p->leader < 0 && p->why_leaderless && r->message->metadata->explain) {
            out->has_reason = true;
            out->reason = envelope_text(p->why_leaderless);
        }
    }
    info->n_partitions = count;
    return 0;
}

static int fill_topic(struct request *r, const struct view_topic *topic, Brook__TopicInfo *info)
{
    info->has_name = info->has_topic_id = true;
    info->name = envelope_text(topic->name);
    info->topic_id = envelope_bytes(topic->topic_id.bytes, sizeof topic->topic_id.bytes);
    if (topic->being_deleted) {
        struct brook_error error;
        brook_error_set(&error, BROOK_E_TOPIC_BEING_DELETED, "topic %s is being deleted", topic->name);
        info->status = request_status(r, &error);
        return info->status ? 0 : -BROOK_E_NOMEM;
    }
    return add_partitions(r, topic, info);
}

static int fill_asked(struct request *r, const ProtobufCBinaryData *name, Brook__TopicInfo *info)
{
    struct brook_error error;
    const struct view_topic *topic = NULL;
    info->has_name = true;
    info->name = *name;
    if (!name_is_legal_topic(name->data, name->len))
        brook_error_set(&error, BROOK_E_ILLEGAL_NAME,
                        "a topic name has 1 to %d characters of A-Z a-z 0-9 . _ -", TOPIC_NAME_BYTES_MAX);
    else if (!(topic = view_topic(r->loop->view, name->data, name->len)))
        brook_error_set(&error, BROOK_E_UNKNOWN_TOPIC, "there is no topic %.*s", (int)name->len,
                        (const char *)name->data);
    if (topic)
        return fill_topic(r, topic, info);
    info->status = request_status(r, &error);
    return info->status ? 0 : -BROOK_E_NOMEM;
}

static int add_topics(struct request *r, const Brook__MetadataRequest *asked, Brook__MetadataResponse *body)
{
    size_t count = asked->all ? view_topics_count(r->loop->view) : asked->n_topics;
    if (!count)
        return 0;
    body->topics = request_reply_alloc(r, count * sizeof body->topics[0]);
    Brook__TopicInfo *infos = request_reply_alloc(r, count * sizeof infos[0]);
    if (!body->topics || !infos)
        return -BROOK_E_NOMEM;
    for (size_t i = 0; i < count; i++) {
        body->topics[i] = &infos[i];
        brook__topic_info__init(&infos[i]);
        int result = asked->all ? fill_topic(r, view_topic_at(r->loop->view, i), &infos[i])
                                : fill_asked(r, &asked->topics[i], &infos[i]);
        if (result < 0)
            return result;
    }
    body->n_topics = count;
    return 0;
}

/* To those who ask for it: producers and consumers have no use for it. */
static int add_unreadable(struct request *r, Brook__MetadataResponse *body)
{
    size_t count;
    const struct view_unreadable *nodes = view_unreadable(r->loop->view, &count);
    if (!count)
        return 0;
    body->unreadable = request_reply_alloc(r, count * sizeof body->unreadable[0]);
    Brook__UnreadableNode *messages = request_reply_alloc(r, count * sizeof messages[0]);
    if (!body->unreadable || !messages)
        return -BROOK_E_NOMEM;
    for (size_t i = 0; i < count; i++) {
        Brook__UnreadableNode *out = body->unreadable[i] = &messages[i];
        brook__unreadable_node__init(out);
        out->has_path = out->has_reason = out->has_partition = true;
        out->path = envelope_text(nodes[i].path);
        out->reason = envelope_text(nodes[i].reason);
        out->partition = nodes[i].partition;
        out->has_topic = nodes[i].topic != NULL;
        if (nodes[i].topic)
            out->topic = envelope_text(nodes[i].topic);
    }
    body->n_unreadable = count;
    return 0;
}

void handle_metadata(struct request *r)
{
    const Brook__MetadataRequest *asked = r->message->metadata;
    const struct view *view = r->loop->view;
    if (!view) {
        request_fail(r, BROOK_E_BROKER_NOT_AVAILABLE, "the broker knows nothing of the cluster yet");
        return;
    }
    if (asked->n_topics > r->loop->settings->topics_per_request_max) {
        request_fail(r, BROOK_E_TOO_MANY, "%zu topics asked for at once, at most %u are allowed",
                     asked->n_topics, r->loop->settings->topics_per_request_max);
        return;
    }
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__MetadataResponse body = BROOK__METADATA_RESPONSE__INIT;
    if (view_cluster_id(view)) {
        body.has_cluster_id = true;
        body.cluster_id = envelope_text(view_cluster_id(view));
    }
    body.has_controller_id = true;
    body.controller_id = view_controller(view);
    int result = add_brokers(r, &body);
    if (result == 0)
        result = add_topics(r, asked, &body);
    if (result == 0 && asked->explain)
        result = add_unreadable(r, &body);
    if (result < 0) {
        request_fail(r, BROOK_E_TOO_MANY, "the answer would be too large: ask for fewer topics at once");
        return;
    }
    response.body_case = BROOK__RESPONSE__BODY_METADATA;
    response.metadata = &body;
    request_reply(r, &response, NULL, 0);
}
