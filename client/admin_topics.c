#include "client/admin_parts.h"
#include "proto/base/clock.h"
#include "proto/base/names.h"
#include "proto/wire/envelope.h"

#include <stdlib.h>
#include <string.h>

static int check_name(const char *topic, struct brook_error *error)
{
    if (topic && name_is_legal_topic(topic, strlen(topic)))
        return 0;
    return brook_error_set(error, BROOK_E_ILLEGAL_NAME, "\"%.100s\" is not a legal topic name",
                           topic ? topic : "");
}

static int unexpected(struct brook_error *error)
{
    return brook_error_set(error, BROOK_E_BAD_ENVELOPE, "the broker answered something else");
}

/* The only topic's result. */
static int take_results(Brook__TopicResult *const *results, size_t count, struct brook_error *error)
{
    return count == 1 ? envelope_status_read(results[0]->status, error) : unexpected(error);
}

/* ---- create ----------------------------------------------------------------------------------------- */

static int take_created(struct admin_question *q, const Brook__Response *response, struct brook_error *error)
{
    if (response->body_case != BROOK__RESPONSE__BODY_CREATE_TOPICS)
        return unexpected(error);
    return take_results(response->create_topics->topics, response->create_topics->n_topics, error);
}

static int take_leaders(struct admin_question *q, const Brook__Response *response, struct brook_error *error)
{
    if (response->body_case != BROOK__RESPONSE__BODY_METADATA || response->metadata->n_topics != 1)
        return unexpected(error);
    const Brook__TopicInfo *topic = response->metadata->topics[0];
    if (envelope_status_code(topic->status))
        return envelope_status_read(topic->status, error);
    for (size_t i = 0; i < topic->n_partitions; i++)
        if (topic->partitions[i]->leader < 0)
            return brook_error_set(error, BROOK_E_NO_LEADER, "partition %d has no leader yet",
                                   topic->partitions[i]->partition);
    return topic->n_partitions > 0 ? 0
                                   : brook_error_set(error, BROOK_E_NO_LEADER, "no partition is there yet");
}

/* The broker that is asked may learn of the new topic a moment later: UNKNOWN_TOPIC is passing here, too. */
static int wait_for_leaders(brook_admin *admin, const char *topic, int timeout_ms, struct brook_error *error)
{
    ProtobufCBinaryData name = envelope_text(topic);
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__MetadataRequest metadata = BROOK__METADATA_REQUEST__INIT;
    metadata.n_topics = 1;
    metadata.topics = &name;
    request.body_case = BROOK__REQUEST__BODY_METADATA;
    request.metadata = &metadata;
    struct admin_question q = {
        .ask = admin_ask_any, .request = &request, .take = take_leaders, .repeatable = true};
    return admin_run(admin, &q, timeout_ms, error);
}

static int create(brook_admin *admin, Brook__NewTopic *topic, bool validate_only, int timeout_ms,
                  struct brook_error *error)
{
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__CreateTopicsRequest body = BROOK__CREATE_TOPICS_REQUEST__INIT;
    body.n_topics = 1;
    body.topics = &topic;
    body.has_validate_only = 1;
    body.validate_only = validate_only;
    body.has_timeout_ms = 1;
    body.timeout_ms = (uint32_t)(timeout_ms < 0 ? INT32_MAX : timeout_ms);
    request.body_case = BROOK__REQUEST__BODY_CREATE_TOPICS;
    request.create_topics = &body;
    struct admin_question q = {
        .ask = admin_ask_any, .request = &request, .take = take_created, .repeatable = validate_only};
    return admin_run(admin, &q, timeout_ms, error);
}

int brook_admin_create_topic(brook_admin *admin, const char *topic, int32_t partitions, int32_t replicas,
                             const struct brook_setting *settings, size_t settings_count, bool validate_only,
                             int timeout_ms, struct brook_error *error)
{
    int r = check_name(topic, error);
    if (r < 0)
        return r;
    Brook__NewTopic new_topic = BROOK__NEW_TOPIC__INIT;
    Brook__ConfigEntry *entries = calloc(settings_count + 1, sizeof *entries);
    Brook__ConfigEntry **list = calloc(settings_count + 1, sizeof *list);
    for (size_t i = 0; entries && list && i < settings_count; i++) {
        brook__config_entry__init(&entries[i]);
        entries[i].has_key = entries[i].has_value = 1;
        entries[i].key = envelope_text(settings[i].key);
        entries[i].value = envelope_text(settings[i].value);
        list[i] = &entries[i];
    }
    new_topic.has_name = new_topic.has_partitions = new_topic.has_replicas = 1;
    new_topic.name = envelope_text(topic);
    new_topic.partitions = partitions;
    new_topic.replicas = replicas;
    new_topic.n_configs = settings_count;
    new_topic.configs = list;
    int64_t until_ms = clock_boot_ms() + timeout_ms;
    if (entries && list)
        r = create(admin, &new_topic, validate_only, timeout_ms, error);
    else
        r = brook_error_set(error, BROOK_E_NOMEM, "out of memory");
    free(entries);
    free(list);
    if (r < 0 || validate_only)
        return r;
    int64_t left_ms = until_ms - clock_boot_ms();
    return wait_for_leaders(admin, topic, timeout_ms < 0 ? -1 : left_ms > 0 ? (int)left_ms : 0, error);
}

/* ---- delete, grow ----------------------------------------------------------------------------------- */

static int take_deleted(struct admin_question *q, const Brook__Response *response, struct brook_error *error)
{
    if (response->body_case != BROOK__RESPONSE__BODY_DELETE_TOPICS)
        return unexpected(error);
    return take_results(response->delete_topics->topics, response->delete_topics->n_topics, error);
}

/* An unknown topic is no passing matter here: asking again does not help. */
static int take_deleted_for_good(struct admin_question *q, const Brook__Response *response,
                                 struct brook_error *error)
{
    int *code = q->arg;
    int r = take_deleted(q, response, error);
    *code = r;
    return r == -BROOK_E_UNKNOWN_TOPIC ? 0 : r;
}

int brook_admin_delete_topic(brook_admin *admin, const char *topic, int timeout_ms, struct brook_error *error)
{
    int r = check_name(topic, error);
    if (r < 0)
        return r;
    int code = 0;
    ProtobufCBinaryData name = envelope_text(topic);
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__DeleteTopicsRequest body = BROOK__DELETE_TOPICS_REQUEST__INIT;
    body.n_topics = 1;
    body.topics = &name;
    body.has_timeout_ms = 1;
    body.timeout_ms = (uint32_t)(timeout_ms < 0 ? INT32_MAX : timeout_ms);
    request.body_case = BROOK__REQUEST__BODY_DELETE_TOPICS;
    request.delete_topics = &body;
    struct admin_question q = {
        .ask = admin_ask_any, .request = &request, .take = take_deleted_for_good, .arg = &code};
    r = admin_run(admin, &q, timeout_ms, error);
    if (r == 0 && code == -BROOK_E_UNKNOWN_TOPIC)
        return brook_error_set(error, BROOK_E_UNKNOWN_TOPIC, "there is no topic %s", topic);
    return r;
}

static int take_grown(struct admin_question *q, const Brook__Response *response, struct brook_error *error)
{
    int *code = q->arg;
    if (response->body_case != BROOK__RESPONSE__BODY_ADD_PARTITIONS || !response->add_partitions->topic)
        return unexpected(error);
    *code = envelope_status_read(response->add_partitions->topic->status, error);
    return *code == -BROOK_E_UNKNOWN_TOPIC ? 0 : *code;
}

int brook_admin_add_partitions(brook_admin *admin, const char *topic, int32_t partitions, int timeout_ms,
                               struct brook_error *error)
{
    int r = check_name(topic, error);
    if (r < 0)
        return r;
    int code = 0;
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__AddPartitionsRequest body = BROOK__ADD_PARTITIONS_REQUEST__INIT;
    body.has_topic = body.has_partitions = body.has_timeout_ms = 1;
    body.topic = envelope_text(topic);
    body.partitions = partitions;
    body.timeout_ms = (uint32_t)(timeout_ms < 0 ? INT32_MAX : timeout_ms);
    request.body_case = BROOK__REQUEST__BODY_ADD_PARTITIONS;
    request.add_partitions = &body;
    struct admin_question q = {.ask = admin_ask_any, .request = &request, .take = take_grown, .arg = &code};
    r = admin_run(admin, &q, timeout_ms, error);
    if (r == 0 && code == -BROOK_E_UNKNOWN_TOPIC)
        return brook_error_set(error, BROOK_E_UNKNOWN_TOPIC, "there is no topic %s", topic);
    return r;
}

/* ---- settings --------------------------------------------------------------------------------------- */

static int take_altered(struct admin_question *q, const Brook__Response *response, struct brook_error *error)
{
    int *code = q->arg;
    if (response->body_case != BROOK__RESPONSE__BODY_ALTER_CONFIGS || response->alter_configs->n_topics != 1)
        return unexpected(error);
    *code = envelope_status_read(response->alter_configs->topics[0]->status, error);
    return *code == -BROOK_E_UNKNOWN_TOPIC ? 0 : *code;
}

static int alter(brook_admin *admin, Brook__AlteredConfig *altered, bool validate_only, int timeout_ms,
                 struct brook_error *error)
{
    int code = 0;
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__AlterConfigsRequest body = BROOK__ALTER_CONFIGS_REQUEST__INIT;
    body.n_topics = 1;
    body.topics = &altered;
    body.has_validate_only = body.has_timeout_ms = 1;
    body.validate_only = validate_only;
    body.timeout_ms = (uint32_t)(timeout_ms < 0 ? INT32_MAX : timeout_ms);
    request.body_case = BROOK__REQUEST__BODY_ALTER_CONFIGS;
    request.alter_configs = &body;
    /* Setting the same again changes nothing. */
    struct admin_question q = {
        .ask = admin_ask_any, .request = &request, .take = take_altered, .arg = &code, .repeatable = true};
    int r = admin_run(admin, &q, timeout_ms, error);
    if (r == 0 && code == -BROOK_E_UNKNOWN_TOPIC)
        return brook_error_set(error, BROOK_E_UNKNOWN_TOPIC, "there is no topic %.*s", (int)altered->topic.len,
                               (const char *)altered->topic.data);
    return r;
}

int brook_admin_alter_config(brook_admin *admin, const char *topic, const struct brook_setting *settings,
                             size_t count, bool validate_only, int timeout_ms, struct brook_error *error)
{
    int r = check_name(topic, error);
    if (r < 0)
        return r;
    Brook__AlteredConfig altered = BROOK__ALTERED_CONFIG__INIT;
    Brook__ConfigEntry *entries = calloc(count + 1, sizeof *entries);
    Brook__ConfigEntry **set = calloc(count + 1, sizeof *set);
    ProtobufCBinaryData *unset = calloc(count + 1, sizeof *unset);
    altered.has_topic = 1;
    altered.topic = envelope_text(topic);
    altered.set = set;
    altered.unset = unset;
    for (size_t i = 0; entries && set && unset && i < count; i++) {
        if (!settings[i].value) {
            unset[altered.n_unset++] = envelope_text(settings[i].key);
            continue;
        }
        brook__config_entry__init(&entries[i]);
        entries[i].has_key = entries[i].has_value = 1;
        entries[i].key = envelope_text(settings[i].key);
        entries[i].value = envelope_text(settings[i].value);
        set[altered.n_set++] = &entries[i];
    }
    if (entries && set && unset)
        r = alter(admin, &altered, validate_only, timeout_ms, error);
    else
        r = brook_error_set(error, BROOK_E_NOMEM, "out of memory");
    free(entries);
    free(set);
    free(unset);
    return r;
}
