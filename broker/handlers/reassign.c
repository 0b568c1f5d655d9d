/* Reassign: a petition to the controller. */
#include "broker/handlers/handlers.h"

#include "broker/handlers/partition_results.h"

#include <string.h>

static void done(struct request *r, Brook__PartitionResult **results, size_t count)
{
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__ReassignResponse body = BROOK__REASSIGN_RESPONSE__INIT;
    body.partitions = results;
    body.n_partitions = count;
    response.body_case = BROOK__RESPONSE__BODY_REASSIGN;
    response.reassign = &body;
    request_reply(r, &response, NULL, 0);
}

/* Returns false when the request was answered. */
static bool read_replicas(struct request *r, const Brook__PartitionPlan *plan, struct znode_replicas *ret)
{
    if (plan->n_replicas > ZNODE_REPLICAS_MAX) {
        request_fail(r, BROOK_E_INVALID_REPLICAS, "%zu replicas of a partition, at most %d are allowed",
                     plan->n_replicas, ZNODE_REPLICAS_MAX);
        return false;
    }
    ret->brokers = request_alloc(r, (plan->n_replicas + 1) * sizeof *ret->brokers);
    if (!ret->brokers) {
        request_fail(r, BROOK_E_NOMEM, NULL);
        return false;
    }
    ret->count = (int32_t)plan->n_replicas;
    if (plan->n_replicas)
        memcpy(ret->brokers, plan->replicas, plan->n_replicas * sizeof *ret->brokers);
    for (int32_t i = 0; i < ret->count; i++)
        if (ret->brokers[i] < 0) {
            request_fail(r, BROOK_E_INVALID_REPLICAS, "a broker's number is not negative");
            return false;
        }
    return true;
}

void handle_reassign(struct request *r)
{
    const Brook__ReassignRequest *asked = r->message->reassign;
    struct partition_results *all = partition_results_begin(r, asked->n_partitions, done);
    if (!all)
        return;
    for (size_t i = 0; i < asked->n_partitions; i++) {
        const Brook__PartitionPlan *plan = asked->partitions[i];
        if (!partition_results_name(all, i, &plan->topic) || !read_replicas(r, plan, &all->wishes.list[i].replicas))
            return;
        all->wishes.list[i].partition = plan->partition;
    }
    partition_results_ask(all, ZNODE_WISH_REASSIGN, asked->quota_bytes, asked->validate_only, asked->timeout_ms);
}
