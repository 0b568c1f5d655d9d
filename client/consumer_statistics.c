#include "client/consumer.h"
#include "proto/base/pool.h"

#include <jansson.h>

/* `{}` members that could not be made are left out: a snapshot is for people and monitors. */
static void put(json_t *object, const char *key, int64_t value)
{
    json_object_set_new(object, key, json_integer(value));
}

static json_t *describe_partition(const struct consumer_partition *p)
{
    json_t *object = json_object();
    json_object_set_new(object, "topic", json_string(p->topic));
    put(object, "partition", p->partition);
    put(object, "position", p->delivered);
    put(object, "processed", progress_processed(&p->progress));
    put(object, "high_watermark", p->high_watermark);
    put(object, "lag",
        p->delivered >= 0 && p->high_watermark >= p->delivered ? p->high_watermark - p->delivered : -1);
    put(object, "queued_bytes", (int64_t)p->queued_bytes);
    put(object, "batches_out", p->batches_out);
    json_object_set_new(object, "paused", json_boolean(p->is_paused));
    json_object_set_new(object, "draining", json_boolean(p->life == PARTITION_DRAINING));
    return object;
}

static void describe_counters(json_t *object, const struct consumer_counters *n)
{
    put(object, "records", (int64_t)n->records);
    put(object, "bytes", (int64_t)n->bytes);
    put(object, "batches", (int64_t)n->batches);
    put(object, "pulls", (int64_t)n->pulls);
    put(object, "replies", (int64_t)n->replies);
    put(object, "replies_bytes", (int64_t)n->replies_bytes);
    put(object, "pull_errors", (int64_t)n->pull_errors);
    put(object, "damaged", (int64_t)n->damaged);
    put(object, "resets", (int64_t)n->resets);
    put(object, "dropped_bytes", (int64_t)n->dropped_bytes);
}

char *brook_consumer_statistics(brook_consumer *c)
{
    json_t *root = json_object();
    json_t *partitions = json_array();
    struct consumer_partition *p, *next;
    json_object_set_new(root, "group", json_string(c->group_id));
    put(root, "memory_bytes",
        (int64_t)(pool_bytes_in_use(client_pool(c->client)) + pool_bytes_in_use(c->set->pool)));
    set_lock(c->set);
    describe_counters(root, &c->set->counters);
    put(root, "batches_out", c->set->batches_out);
    put(root, "bytes_out", (int64_t)c->set->bytes_out);
    HASH_ITER (hh_name, c->set->by_name, p, next)
        json_array_append_new(partitions, describe_partition(p));
    set_unlock(c->set);
    json_object_set_new(root, "partitions", partitions);
    char *text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    return text;
}
