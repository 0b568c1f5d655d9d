/* EpochEnd: where a leader epoch ends in this leader's log. Answered from memory. */
#include "broker/handlers/handlers.h"

#include "broker/replication/replica.h"

static int fill(struct request *r, const Brook__EpochEndPartition *entry, Brook__EpochEnd *out)
{
    const struct view_topic *topic;
    struct partition *p;
    struct brook_error error = {0};
    brook__epoch_end__init(out);
    if (request_find_led(r->loop, &entry->topic_id, entry->partition, entry->current_epoch, &topic, &p,
                         &error) < 0) {
        out->status = request_status(r, &error);
        return out->status ? 0 : -BROOK_E_NOMEM;
    }
    struct replica *replica = topic->partitions[entry->partition].replica;
    struct epoch_end end;
    int64_t broker_epoch;
    int e = replica ? replica_epoch_end(replica, entry->current_epoch, entry->epoch, &end, &broker_epoch)
                    : -BROOK_E_NOT_LEADER;
    if (e < 0) {
        brook_error_set(&error, e, "partition %s/%d: %s", topic->name, entry->partition, brook_error_text(e));
        out->status = request_status(r, &error);
        return out->status ? 0 : -BROOK_E_NOMEM;
    }
    out->has_epoch = out->has_end_offset = true;
    out->epoch = end.epoch;
    out->end_offset = end.end;
    return 0;
}

void handle_epoch_end(struct request *r)
{
    const Brook__EpochEndRequest *asked = r->message->epoch_end;
    if (request_refuse_many(r, asked->n_partitions))
        return;
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__EpochEndResponse body = BROOK__EPOCH_END_RESPONSE__INIT;
    Brook__EpochEnd *parts = request_reply_alloc(r, (asked->n_partitions + 1) * sizeof parts[0]);
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
    response.body_case = BROOK__RESPONSE__BODY_EPOCH_END;
    response.epoch_end = &body;
    request_reply(r, &response, NULL, 0);
}
