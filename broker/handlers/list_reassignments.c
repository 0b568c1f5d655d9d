/* ListReassignments: what is being moved, as this loop's view has it. */
#include "broker/handlers/handlers.h"

#include "broker/cluster/cluster.h"

static size_t count_moves(const struct view *view)
{
    size_t count = 0;
    for (size_t t = 0; t < view_topics_count(view); t++) {
        const struct view_topic *topic = view_topic_at(view, t);
        for (int32_t i = 0; i < topic->partitions_count; i++)
            count += topic->partitions[i].target_count > 0;
    }
    return count;
}

/* Pointers into the view: it stays until the reply is packed. */
static void set_list(const int32_t *numbers, int32_t count, int32_t **ret_list, size_t *ret_count)
{
    *ret_list = (int32_t *)(uintptr_t)numbers;
    *ret_count = (size_t)count;
}

static void fill(const struct view_topic *topic, int32_t number, Brook__RunningReassignment *out)
{
    const struct view_partition *p = &topic->partitions[number];
    brook__running_reassignment__init(out);
    out->has_topic = out->has_partition = out->has_leader = true;
    out->topic = envelope_text(topic->name);
    out->partition = number;
    out->leader = p->leader;
    set_list(p->replicas, p->replicas_count, &out->replicas, &out->n_replicas);
    set_list(p->adding, p->adding_count, &out->adding, &out->n_adding);
    set_list(p->removing, p->removing_count, &out->removing, &out->n_removing);
    set_list(p->target, p->target_count, &out->target, &out->n_target);
    set_list(p->isr, p->isr_count, &out->isr, &out->n_isr);
}

void handle_list_reassignments(struct request *r)
{
    const struct view *view = r->loop->view;
    if (!view) {
        request_fail(r, BROOK_E_BROKER_NOT_AVAILABLE, "the broker knows nothing of the cluster yet");
        return;
    }
    size_t count = count_moves(view);
    Brook__RunningReassignment **list = request_reply_alloc(r, (count + 1) * sizeof list[0]);
    Brook__RunningReassignment *messages = request_reply_alloc(r, (count + 1) * sizeof messages[0]);
    if (!list || !messages) {
        request_fail(r, BROOK_E_TOO_MANY, "the answer would be too large: %zu partitions are being moved", count);
        return;
    }
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__ListReassignmentsResponse body = BROOK__LIST_REASSIGNMENTS_RESPONSE__INIT;
    for (size_t t = 0; t < view_topics_count(view); t++) {
        const struct view_topic *topic = view_topic_at(view, t);
        for (int32_t i = 0; i < topic->partitions_count; i++) {
            if (!topic->partitions[i].target_count)
                continue;
            list[body.n_partitions] = &messages[body.n_partitions];
            fill(topic, i, list[body.n_partitions++]);
        }
    }
    body.partitions = list;
    body.has_throttle_bytes = body.has_quota_bytes = true;
    body.throttle_bytes = cluster_move_throttle(r->loop->cluster);
    body.quota_bytes = cluster_replication_quota(r->loop->cluster);
    response.body_case = BROOK__RESPONSE__BODY_LIST_REASSIGNMENTS;
    response.list_reassignments = &body;
    request_reply(r, &response, NULL, 0);
}
