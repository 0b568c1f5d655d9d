/* AddPartitions: an intent of the cluster thread's. */
#include "broker/handlers/handlers.h"

#include "broker/handlers/topic_results.h"

static void done(struct topic_results *all)
{
    struct request *r = all->request;
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__AddPartitionsResponse body = BROOK__ADD_PARTITIONS_RESPONSE__INIT;
    Brook__TopicResult **messages = topic_results_messages(all);
    if (!messages) {
        request_fail(r, BROOK_E_NOMEM, NULL);
        return;
    }
    body.topic = messages[0];
    response.body_case = BROOK__RESPONSE__BODY_ADD_PARTITIONS;
    response.add_partitions = &body;
    request_reply(r, &response, NULL, 0);
}

void handle_add_partitions(struct request *r)
{
    const Brook__AddPartitionsRequest *asked = r->message->add_partitions;
    struct topic_results *all = topic_results_begin(r, 1, done);
    if (!all)
        return;
    if (topic_results_name(all, 0, &asked->topic)) {
        topic_results_add(all);
        cluster_add_partitions(r->loop->cluster, all->topics[0].name, asked->partitions, asked->validate_only,
                               request_timeout_ms(r, asked->timeout_ms), r->loop->inbox,
                               topic_results_answered, &all->topics[0]);
    }
    topic_results_one_done(all);
}
