/* CreateTopics: each topic is an intent of the cluster thread's. */
#include "broker/handlers/handlers.h"

#include "broker/handlers/topic_results.h"

static void done(struct topic_results *all)
{
    struct request *r = all->request;
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__CreateTopicsResponse body = BROOK__CREATE_TOPICS_RESPONSE__INIT;
    body.topics = topic_results_messages(all);
    body.n_topics = all->count;
    if (!body.topics) {
        request_fail(r, BROOK_E_NOMEM, NULL);
        return;
    }
    response.body_case = BROOK__RESPONSE__BODY_CREATE_TOPICS;
    response.create_topics = &body;
    request_reply(r, &response, NULL, 0);
}

/* Settings as the cluster thread takes them. Returns 0 or an error with a sentence. */
static int read_config(struct request *r, const Brook__NewTopic *asked, struct znode_config *ret,
                       struct brook_error *error)
{
    ret->count = asked->n_configs;
    ret->entries = request_alloc(r, (asked->n_configs + 1) * sizeof ret->entries[0]);
    if (!ret->entries)
        return brook_error_set(error, BROOK_E_NOMEM, "out of memory for %zu settings", asked->n_configs);
    for (size_t i = 0; i < asked->n_configs; i++) {
        ret->entries[i].key = request_text(r, &asked->configs[i]->key);
        ret->entries[i].value = request_text(r, &asked->configs[i]->value);
        if (!ret->entries[i].key || !ret->entries[i].value)
            return brook_error_set(error, BROOK_E_INVALID_CONFIG,
                                   "a setting needs a key and a value, without zero bytes");
    }
    return 0;
}

static void create(struct topic_results *all, size_t index, const Brook__NewTopic *asked,
                   const Brook__CreateTopicsRequest *request)
{
    struct request *r = all->request;
    struct topic_result *topic = &all->topics[index];
    struct znode_config config;
    if (!topic_results_name(all, index, &asked->name) || read_config(r, asked, &config, &topic->result.error))
        return;
    struct cluster_new_topic wanted = {topic->name, asked->partitions, asked->replicas, &config};
    topic_results_add(all);
    cluster_create_topic(r->loop->cluster, &wanted, request->validate_only,
                         request_timeout_ms(r, request->timeout_ms), r->loop->inbox, topic_results_answered,
                         topic);
}

void handle_create_topics(struct request *r)
{
    const Brook__CreateTopicsRequest *asked = r->message->create_topics;
    struct topic_results *all = topic_results_begin(r, asked->n_topics, done);
    if (!all)
        return;
    for (size_t i = 0; i < all->count; i++)
        create(all, i, asked->topics[i], asked);
    topic_results_one_done(all);
}
