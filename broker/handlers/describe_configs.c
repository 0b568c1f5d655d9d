/* DescribeConfigs: a topic's effective settings as the view has them, or the broker's own. */
#include "broker/handlers/handlers.h"

#include "broker/cluster/cluster.h"

#include <string.h>

/* Entries as they are visited. */
struct listing {
    struct request *request;
    Brook__DescribedEntry **entries;
    size_t count;
    size_t capacity;
    bool is_cut;
};

static void count_entry(void *arg, const char *key, const char *value, const char *description)
{
    ++*(size_t *)arg;
}

static void add_entry(void *arg, const char *key, const char *value, bool is_default, const char *description)
{
    struct listing *l = arg;
    struct request *r = l->request;
    Brook__DescribedEntry *entry = request_new(r, Brook__DescribedEntry, brook__described_entry__init);
    l->is_cut = l->is_cut || !entry || l->count == l->capacity;
    if (l->is_cut)
        return;
    entry->has_key = entry->has_value = entry->has_description = entry->has_is_default = true;
    entry->key = request_reply_bytes(r, key, strlen(key));
    entry->value = request_reply_bytes(r, value, strlen(value));
    entry->description = envelope_text(description);
    entry->is_default = is_default;
    l->is_cut = !entry->key.data || (*value && !entry->value.data);
    l->entries[l->count++] = entry;
}

static bool listing_begin(struct listing *l, struct request *r, size_t capacity)
{
    *l = (struct listing){.request = r, .capacity = capacity};
    l->entries = request_reply_alloc(r, (capacity + 1) * sizeof l->entries[0]);
    return l->entries != NULL;
}

/* ---- topics ----------------------------------------------------------------------------------------- */

/* Both configurations are visited in the same order: the k-th default belongs to the k-th entry. */
struct compared {
    struct listing listing;
    char (*defaults)[24];
    size_t defaults_count;
    size_t at;
};

static void note_default(void *arg, const char *key, const char *value, const char *description)
{
    struct compared *c = arg;
    strncpy(c->defaults[c->defaults_count++], value, sizeof c->defaults[0] - 1);
}

static void add_compared(void *arg, const char *key, const char *value, const char *description)
{
    struct compared *c = arg;
    add_entry(&c->listing, key, value, !strcmp(c->defaults[c->at++], value), description);
}

static int describe_topic(struct request *r, const ProtobufCBinaryData *name, Brook__DescribedConfig *out)
{
    const struct view_topic *topic = view_topic(r->loop->view, name->data, name->len);
    out->has_topic = true;
    out->topic = *name;
    if (!topic) {
        struct brook_error error;
        brook_error_set(&error, BROOK_E_UNKNOWN_TOPIC, "there is no topic %.*s",
                        (int)(name->len < 200 ? name->len : 200), (const char *)name->data);
        out->status = request_status(r, &error);
        return out->status ? 0 : -BROOK_E_NOMEM;
    }
    size_t count = 0;
    topic_config_visit(&topic->config, count_entry, &count);
    struct compared c = {.defaults = request_reply_alloc(r, count * sizeof c.defaults[0])};
    if (!c.defaults || !listing_begin(&c.listing, r, count))
        return -BROOK_E_NOMEM;
    struct topic_config defaults = *cluster_topic_defaults(r->loop->cluster);
    topic_config_resolve(&defaults, view_topic_replicas(topic));
    topic_config_visit(&defaults, note_default, &c);
    topic_config_visit(&topic->config, add_compared, &c);
    out->n_entries = c.listing.count;
    out->entries = c.listing.entries;
    return c.listing.is_cut ? -BROOK_E_NOMEM : 0;
}

static int describe_topics(struct request *r, const Brook__DescribeConfigsRequest *asked,
                           Brook__DescribeConfigsResponse *body)
{
    if (!asked->n_topics)
        return 0;
    body->topics = request_reply_alloc(r, asked->n_topics * sizeof body->topics[0]);
    if (!body->topics)
        return -BROOK_E_NOMEM;
    for (size_t i = 0; i < asked->n_topics; i++) {
        body->topics[i] = request_new(r, Brook__DescribedConfig, brook__described_config__init);
        if (!body->topics[i] || describe_topic(r, &asked->topics[i], body->topics[i]))
            return -BROOK_E_NOMEM;
        body->n_topics++;
    }
    return 0;
}

/* ---- the broker ------------------------------------------------------------------------------------- */

static void count_setting(void *arg, const char *key, const char *value, bool is_default,
                          const char *description)
{
    ++*(size_t *)arg;
}

static int describe_broker(struct request *r, Brook__DescribeConfigsResponse *body)
{
    const struct handler_settings *settings = r->loop->settings;
    size_t count = 0;
    struct listing l;
    if (!settings->visit_settings)
        return 0;
    settings->visit_settings(settings->settings, count_setting, &count);
    if (!listing_begin(&l, r, count))
        return -BROOK_E_NOMEM;
    settings->visit_settings(settings->settings, add_entry, &l);
    body->n_broker = l.count;
    body->broker = l.entries;
    return l.is_cut ? -BROOK_E_NOMEM : 0;
}

void handle_describe_configs(struct request *r)
{
    const Brook__DescribeConfigsRequest *asked = r->message->describe_configs;
    uint32_t most = r->loop->settings->topics_per_request_max;
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__DescribeConfigsResponse body = BROOK__DESCRIBE_CONFIGS_RESPONSE__INIT;
    if (!r->loop->view) {
        request_fail(r, BROOK_E_BROKER_NOT_AVAILABLE, "the broker knows nothing of the cluster yet");
        return;
    }
    if (asked->n_topics > most) {
        request_fail(r, BROOK_E_TOO_MANY, "%zu topics in one request, at most %u are allowed",
                     asked->n_topics, most);
        return;
    }
    if (describe_topics(r, asked, &body) || (asked->broker && describe_broker(r, &body))) {
        request_fail(r, BROOK_E_NOMEM, "the answer would be too large: ask for fewer topics at once");
        return;
    }
    response.body_case = BROOK__RESPONSE__BODY_DESCRIBE_CONFIGS;
    response.describe_configs = &body;
    request_reply(r, &response, NULL, 0);
}
