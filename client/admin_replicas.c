/* How far replicas are, as their leaders know it. */
#include "client/admin_leaders.h"
#include "proto/base/cleanup.h"
#include "proto/wire/envelope.h"

#include <stdlib.h>
#include <string.h>

/* The answers, in the arena of the result that they become. */
struct description {
    struct arena *arena;
    struct brook_partition_replicas *list;
};

static void fill_described(void *arg, size_t place, const struct metadata_topic *topic, union leaders_entry *entry)
{
    struct description *d = arg;
    Brook__DescribeReplicasPartition *to = &entry->described;
    brook__describe_replicas_partition__init(to);
    to->has_topic_id = to->has_partition = 1;
    to->topic_id = envelope_bytes(topic->topic_id, sizeof topic->topic_id);
    to->partition = d->list[place].partition;
    d->list[place].leader = topic->partitions[to->partition].leader;
}

static void wrap_described(void *arg, void *entries, size_t count, union leaders_body *body, Brook__Request *request)
{
    (void)arg;
    brook__describe_replicas_request__init(&body->description);
    body->description.n_partitions = count;
    body->description.partitions = entries;
    request->body_case = BROOK__REQUEST__BODY_DESCRIBE_REPLICAS;
    request->describe_replicas = &body->description;
}

static int64_t count_described(const Brook__Response *response)
{
    return response->body_case == BROOK__RESPONSE__BODY_DESCRIBE_REPLICAS
               ? (int64_t)response->describe_replicas->n_partitions
               : -1;
}

static const Brook__Status *take_described(void *arg, size_t place, const Brook__Response *response, size_t index)
{
    struct description *d = arg;
    struct brook_partition_replicas *to = &d->list[place];
    const Brook__PartitionReplicas *from = response->describe_replicas->partitions[index];
    struct brook_replica *list = arena_alloc(d->arena, (from->n_replicas + 1) * sizeof *list);
    for (size_t i = 0; list && i < from->n_replicas; i++) {
        const Brook__ReplicaProgress *r = from->replicas[i];
        list[i] = (struct brook_replica){r->broker_id, r->in_sync, r->log_end_offset, r->lag, r->behind_ms};
    }
    to->leader_epoch = from->leader_epoch;
    to->start = from->log_start_offset;
    to->high_watermark = from->high_watermark;
    to->end = from->log_end_offset;
    to->replicas = list;
    to->replicas_count = list ? from->n_replicas : 0;
    return from->status;
}

static const struct leaders_kind description = {fill_described, wrap_described, count_described, take_described, NULL};

/* A partition's answer, or why there is none. */
static void close_partition(const struct leaders_partition *p, struct brook_partition_replicas *to)
{
    if (p->state == LEADERS_DONE && !p->error.code)
        return;
    *to = (struct brook_partition_replicas){.topic = to->topic,
                                            .partition = to->partition,
                                            .leader = -1,
                                            .leader_epoch = -1,
                                            .start = -1,
                                            .high_watermark = -1,
                                            .end = -1,
                                            .error = p->error};
    if (!to->error.code)
        brook_error_set(&to->error, BROOK_E_TIMED_OUT, "%s/%d: no answer in time", to->topic, to->partition);
}

static int no_memory(struct brook_error *error)
{
    return brook_error_set(error, BROOK_E_NOMEM, "out of memory");
}

static int name_partitions(struct description *d, struct leaders_partition *asked,
                           const struct brook_partition_name *names, size_t count, struct brook_error *error)
{
    for (size_t i = 0; i < count; i++) {
        int r = leaders_check(names[i].topic, names[i].partition, error);
        if (r < 0)
            return r;
        d->list[i].topic = arena_string(d->arena, names[i].topic, strlen(names[i].topic));
        d->list[i].partition = names[i].partition;
        if (!d->list[i].topic)
            return no_memory(error);
        asked[i] = (struct leaders_partition){.topic = d->list[i].topic, .partition = names[i].partition};
    }
    return 0;
}

/* Ask, and put an answer or an error into each of the list. */
static int describe(brook_admin *admin, struct description *d, const struct brook_partition_name *names, size_t count,
                    int timeout_ms, struct brook_error *error)
{
    AUTO_FREE struct leaders_partition *asked = calloc(count + 1, sizeof *asked);
    if (!asked)
        return no_memory(error);
    int r = name_partitions(d, asked, names, count, error);
    if (r < 0 || count == 0)
        return r;
    r = leaders_ask(admin, &description, d, asked, count, false, timeout_ms, error);
    if (r == -BROOK_E_NOMEM)
        return r;
    for (size_t i = 0; i < count; i++)
        close_partition(&asked[i], &d->list[i]);
    return 0;
}

int brook_admin_describe_replicas(brook_admin *admin, const struct brook_partition_name *partitions, size_t count,
                                  int timeout_ms, struct brook_replicas **ret_replicas, struct brook_error *error)
{
    struct description d;
    struct brook_replicas *face = admin_result_new(sizeof *face, &d.arena);
    d.list = face ? arena_alloc(d.arena, (count + 1) * sizeof *d.list) : NULL;
    int r = d.list ? describe(admin, &d, partitions, count, timeout_ms, error) : no_memory(error);
    if (r < 0) {
        admin_result_free(face);
        return r;
    }
    face->list = d.list;
    face->count = count;
    *ret_replicas = face;
    return 0;
}

void brook_replicas_free(struct brook_replicas *replicas)
{
    admin_result_free(replicas);
}
