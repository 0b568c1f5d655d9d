/* AlterConfigs: each topic is an intent of the cluster thread's. */
#include "broker/handlers/handlers.h"

#include "broker/handlers/topic_results.h"

static void done(struct topic_results *all)
{
    struct request *r = all->request;
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__AlterConfigsResponse body = BROOK__ALTER_CONFIGS_RESPONSE__INIT;
    body.topics = topic_results_messages(all);
    body.n_topics = all->count;
    if (!body.topics) {
        request_fail(r, BROOK_E_NOMEM, NULL);
        return;
    }
    response.body_case = BROOK__RESPONSE__BODY_ALTER_CONFIGS;
    response.alter_configs = &body;
    request_reply(r, &response, NULL, 0);
}

/* Settings to be set with their values, those to be taken away with NULL. Returns 0 or an error with a sentence. */
static int read_changes(struct request *r, const Brook__AlteredConfig *asked, struct znode_config *ret,
                        struct brook_error *error)
{
    size_t count = asked->n_set + asked->n_unset;
    if (count == 0)
        return brook_error_set(error, BROOK_E_INVALID_CONFIG, "no setting is named");
    ret->count = count;
    ret->entries = request_alloc(r, count * sizeof ret->entries[0]);
    if (!ret->entries)
        return brook_error_set(error, BROOK_E_NOMEM, "out of memory for %zu settings", count);
    for (size_t i = 0; i < count; i++) {
        bool is_set = i < asked->n_set;
        ret->entries[i].key = request_text(r, is_set ? &asked->set[i]->key : &asked->unset[i - asked->n_set]);
        ret->entries[i].value = is_set ? request_text(r, &asked->set[i]->value) : NULL;
        if (!ret->entries[i].key || (is_set && !ret->entries[i].value))
            return brook_error_set(error, BROOK_E_INVALID_CONFIG,
                                   "a setting needs a key and a value, without zero bytes");
    }
    return 0;
}

static void alter(struct topic_results *all, size_t index, const Brook__AlterConfigsRequest *request)
{
    struct request *r = all->request;
    struct topic_result *topic = &all->topics[index];
    const Brook__AlteredConfig *asked = request->topics[index];
    struct znode_config changes;
    if (!topic_results_name(all, index, &asked->topic) || read_changes(r, asked, &changes, &topic->result.error))
        return;
    topic_results_add(all);
    cluster_alter_config(r->loop->cluster, topic->name, &changes, request->validate_only,
                         request_timeout_ms(r, request->timeout_ms), r->loop->inbox, topic_results_answered, topic);
}

void handle_alter_configs(struct request *r)
{
    const Brook__AlterConfigsRequest *asked = r->message->alter_configs;
    struct topic_results *all = topic_results_begin(r, asked->n_topics, done);
    if (!all)
        return;
    for (size_t i = 0; i < all->count; i++)
        alter(all, i, asked);
    topic_results_one_done(all);
}
