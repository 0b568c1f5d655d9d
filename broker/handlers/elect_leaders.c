/* ElectLeaders: a petition to the controller. */
#include "broker/handlers/handlers.h"

#include "broker/handlers/partition_results.h"

static void done(struct request *r, Brook__PartitionResult **results, size_t count)
{
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__ElectLeadersResponse body = BROOK__ELECT_LEADERS_RESPONSE__INIT;
    body.partitions = results;
    body.n_partitions = count;
    response.body_case = BROOK__RESPONSE__BODY_ELECT_LEADERS;
    response.elect_leaders = &body;
    request_reply(r, &response, NULL, 0);
}

void handle_elect_leaders(struct request *r)
{
    const Brook__ElectLeadersRequest *asked = r->message->elect_leaders;
    struct partition_results *all = partition_results_begin(r, asked->n_partitions, done);
    if (!all)
        return;
    for (size_t i = 0; i < asked->n_partitions; i++) {
        if (!partition_results_name(all, i, &asked->partitions[i]->topic))
            return;
        all->wishes.list[i].partition = asked->partitions[i]->partition;
        all->wishes.list[i].unclean = asked->unclean;
    }
    partition_results_ask(all, ZNODE_WISH_ELECT, -1, false, asked->timeout_ms);
}
