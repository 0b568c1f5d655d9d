#include "broker/handlers/topic_results.h"

#include <string.h>

struct topic_results *topic_results_begin(struct request *r, size_t count,
                                          void (*done)(struct topic_results *all))
{
    uint32_t most = r->loop->settings->topics_per_request_max;
    if (count > most) {
        request_fail(r, BROOK_E_TOO_MANY, "%zu topics in one request, at most %u are allowed", count, most);
        return NULL;
    }
    struct topic_results *all = request_alloc(r, sizeof *all + count * sizeof all->topics[0]);
    if (!all) {
        request_fail(r, BROOK_E_NOMEM, "out of memory for %zu topics", count);
        return NULL;
    }
    all->request = r;
    all->done = done;
    all->count = count;
    all->pending = 1;
    for (size_t i = 0; i < count; i++)
        all->topics[i].all = all;
    return all;
}

bool topic_results_name(struct topic_results *all, size_t index, const ProtobufCBinaryData *name)
{
    struct topic_result *topic = &all->topics[index];
    topic->name = request_text(all->request, name);
    if (!topic->name)
        brook_error_set(&topic->result.error, BROOK_E_ILLEGAL_NAME, "a topic name has no zero bytes in it");
    return topic->name != NULL;
}

void topic_results_add(struct topic_results *all)
{
    all->pending++;
}

void topic_results_answered(void *arg, const struct cluster_topic_result *result)
{
    struct topic_result *topic = arg;
    topic->result = *result;
    topic_results_one_done(topic->all);
}

void topic_results_one_done(struct topic_results *all)
{
    if (--all->pending == 0)
        all->done(all);
}

static int fill(struct request *r, const struct topic_result *topic, Brook__TopicResult *out)
{
    const struct cluster_topic_result *result = &topic->result;
    brook__topic_result__init(out);
    out->has_name = topic->name != NULL;
    if (topic->name)
        out->name = envelope_text(topic->name);
    if (!topic_id_is_zero(&result->topic_id)) {
        out->has_topic_id = true;
        out->topic_id = envelope_bytes(result->topic_id.bytes, sizeof result->topic_id.bytes);
    }
    out->has_partitions = out->has_replicas = true;
    out->partitions = result->partitions;
    out->replicas = result->replicas;
    out->status = request_status(r, &result->error);
    return !result->error.code || out->status ? 0 : -BROOK_E_NOMEM;
}

Brook__TopicResult **topic_results_messages(struct topic_results *all)
{
    struct request *r = all->request;
    Brook__TopicResult **list = request_reply_alloc(r, (all->count + 1) * sizeof list[0]);
    Brook__TopicResult *messages = request_reply_alloc(r, (all->count + 1) * sizeof messages[0]);
    if (!list || !messages)
        return NULL;
    for (size_t i = 0; i < all->count; i++) {
        list[i] = &messages[i];
        if (fill(r, &all->topics[i], &messages[i]))
            return NULL;
    }
    return list;
}
