#include "broker/handlers/partition_results.h"

#include "proto/base/names.h"

struct partition_results *partition_results_begin(struct request *r, size_t count,
                                                  void (*done)(struct request *r, Brook__PartitionResult **results,
                                                               size_t count))
{
    if (request_refuse_many(r, count))
        return NULL;
    struct partition_results *all = request_alloc(r, sizeof *all);
    struct znode_wish *list = request_alloc(r, (count + 1) * sizeof *list);
    if (!all || !list) {
        request_fail(r, BROOK_E_NOMEM, "out of memory for %zu partitions", count);
        return NULL;
    }
    all->request = r;
    all->wishes = (struct znode_wishes){.list = list, .count = count};
    all->done = done;
    return all;
}

bool partition_results_name(struct partition_results *all, size_t index, const ProtobufCBinaryData *name)
{
    char *text = request_text(all->request, name);
    if (!text || !name_is_legal_topic(name->data, name->len)) {
        request_fail(all->request, BROOK_E_ILLEGAL_NAME, "entry %zu: a topic name has 1 to %d characters of A-Z a-z 0-9 . _ -",
                     index, TOPIC_NAME_BYTES_MAX);
        return false;
    }
    all->wishes.list[index].topic = text;
    return true;
}

static int fill(struct request *r, const struct znode_wish *wish, const struct brook_error *error,
                Brook__PartitionResult *out)
{
    brook__partition_result__init(out);
    out->has_topic = out->has_partition = true;
    out->topic = envelope_text(wish->topic);
    out->partition = wish->partition;
    out->status = request_status(r, error);
    return !error->code || out->status ? 0 : -BROOK_E_NOMEM;
}

static void answered(void *arg, const struct cluster_petition_result *result)
{
    struct partition_results *all = arg;
    struct request *r = all->request;
    if (result->error.code) {
        request_fail_error(r, &result->error);
        return;
    }
    Brook__PartitionResult **list = request_reply_alloc(r, (result->count + 1) * sizeof list[0]);
    Brook__PartitionResult *messages = request_reply_alloc(r, (result->count + 1) * sizeof messages[0]);
    int err = list && messages ? 0 : -BROOK_E_NOMEM;
    for (size_t i = 0; !err && i < result->count; i++) {
        list[i] = &messages[i];
        err = fill(r, &all->wishes.list[i], &result->errors[i], &messages[i]);
    }
    if (err)
        request_fail(r, BROOK_E_NOMEM, NULL);
    else
        all->done(r, list, result->count);
}

void partition_results_ask(struct partition_results *all, enum znode_wish_kind kind, int64_t throttle,
                           bool validate_only, uint32_t timeout_ms)
{
    struct request *r = all->request;
    struct cluster_petition petition = {kind, &all->wishes, throttle, validate_only};
    cluster_petition(r->loop->cluster, &petition, request_timeout_ms(r, timeout_ms), r->loop->inbox, answered, all);
}
