/* DeleteTopics: each topic is an intent of the cluster thread's. */
#include "broker/handlers/handlers.h"

#include "broker/handlers/topic_results.h"

static void done(struct topic_results *all)
{
    struct request *r = all->request;
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__DeleteTopicsResponse body = BROOK__DELETE_TOPICS_RESPONSE__INIT;
    body.topics = topic_results_messages(all);
    body.n_topics = all->count;
    if (!body.topics) {
        request_fail(r, BROOK_E_NOMEM, NULL);
        return;
    }
    response.body_case = BROOK__RESPONSE__BODY_DELETE_TOPICS;
    response.delete_topics = &body;
    request_reply(r, &response, NULL, 0);
}

void handle_delete_topics(struct request *r)
{
    const Brook__DeleteTopicsRequest *asked = r->message->delete_topics;
    struct topic_results *all = topic_results_begin(r, asked->n_topics, done);
    if (!all)
        return;
    for (size_t i = 0; i < all->count; i++) {
        if (!topic_results_name(all, i, &asked->topics[i]))
            continue;
        topic_results_add(all);
        cluster_delete_topic(r->loop->cluster, all->topics[i].name, asked->validate_only,
                             request_timeout_ms(r, asked->timeout_ms), r->loop->inbox, topic_results_answered,
                             &all->topics[i]);
    }
    topic_results_one_done(all);
}
