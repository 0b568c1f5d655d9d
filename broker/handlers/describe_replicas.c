/* DescribeReplicas: how far the replicas of partitions that are led here have come. Answered from memory. */
#include "broker/handlers/handlers.h"

#include "broker/partition/partition.h"
#include "broker/replication/replica.h"

/* What the leader knows of one partition, at one time. */
struct progress {
    struct partition_marks marks;
    struct replica_position replicas[ZNODE_REPLICAS_MAX];
    size_t count;
    int64_t end; /* the leader's */
};

static bool read_progress(struct replica *replica, int32_t self, struct progress *ret)
{
    partition_marks(replica_partition(replica), &ret->marks);
    ret->count = replica_positions(replica, ret->replicas);
    ret->end = -1;
    for (size_t i = 0; i < ret->count; i++)
        if (ret->replicas[i].broker_id == self)
            ret->end = ret->replicas[i].end;
    return ret->end >= 0;
}

static void fill_replica(const struct replica_position *from, int64_t end, bool is_self, int64_t now_ms,
                         Brook__ReplicaProgress *out)
{
    brook__replica_progress__init(out);
    out->has_broker_id = out->has_in_sync = out->has_log_end_offset = out->has_lag = out->has_behind_ms = true;
    out->broker_id = from->broker_id;
    out->in_sync = from->is_in_sync;
    out->log_end_offset = from->end;
    out->lag = from->end < 0 ? -1 : from->end < end ? end - from->end : 0;
    out->behind_ms = is_self || now_ms < from->caught_up_ms ? 0 : now_ms - from->caught_up_ms;
}

static int fill_replicas(struct request *r, const struct progress *p, Brook__PartitionReplicas *out)
{
    Brook__ReplicaProgress *messages = request_reply_alloc(r, p->count * sizeof messages[0]);
    out->replicas = request_reply_alloc(r, p->count * sizeof out->replicas[0]);
    if (!messages || !out->replicas)
        return -BROOK_E_NOMEM;
    for (size_t i = 0; i < p->count; i++) {
        fill_replica(&p->replicas[i], p->end, p->replicas[i].broker_id == r->loop->settings->broker_id,
                     r->loop->now_ns / 1000000, &messages[i]);
        out->replicas[i] = &messages[i];
    }
    out->n_replicas = p->count;
    out->has_leader_epoch = out->has_log_start_offset = out->has_high_watermark = out->has_log_end_offset = true;
    out->leader_epoch = p->marks.leader_epoch;
    out->log_start_offset = p->marks.log_start;
    out->high_watermark = p->marks.visible_end;
    out->log_end_offset = p->end;
    return 0;
}

static int fill(struct request *r, const Brook__DescribeReplicasPartition *entry, Brook__PartitionReplicas *out)
{
    const struct view_topic *topic;
    struct partition *partition;
    struct progress progress;
    struct brook_error error = {0};
    brook__partition_replicas__init(out);
    if (!request_find_led(r->loop, &entry->topic_id, entry->partition, entry->current_epoch, &topic, &partition,
                          &error)) {
        struct replica *replica = topic->partitions[entry->partition].replica;
        if (replica && read_progress(replica, r->loop->settings->broker_id, &progress))
            return fill_replicas(r, &progress, out);
        brook_error_set(&error, BROOK_E_NOT_LEADER, "partition %s/%d is not led by broker %d any more", topic->name,
                        entry->partition, r->loop->settings->broker_id);
    }
    out->status = request_status(r, &error);
    return out->status ? 0 : -BROOK_E_NOMEM;
}

void handle_describe_replicas(struct request *r)
{
    const Brook__DescribeReplicasRequest *asked = r->message->describe_replicas;
    if (request_refuse_many(r, asked->n_partitions))
        return;
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__DescribeReplicasResponse body = BROOK__DESCRIBE_REPLICAS_RESPONSE__INIT;
    Brook__PartitionReplicas *parts = request_reply_alloc(r, (asked->n_partitions + 1) * sizeof parts[0]);
    body.partitions = request_reply_alloc(r, (asked->n_partitions + 1) * sizeof body.partitions[0]);
    int e = parts && body.partitions ? 0 : -BROOK_E_NOMEM;
    for (size_t i = 0; i < asked->n_partitions && e == 0; i++) {
        e = fill(r, asked->partitions[i], &parts[i]);
        body.partitions[i] = &parts[i];
    }
    if (e < 0) {
        request_fail(r, BROOK_E_NOMEM, "out of memory for the answer");
        return;
    }
    body.n_partitions = asked->n_partitions;
    response.body_case = BROOK__RESPONSE__BODY_DESCRIBE_REPLICAS;
    response.describe_replicas = &body;
    request_reply(r, &response, NULL, 0);
}
