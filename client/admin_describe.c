#include "client/admin_parts.h"
#include "coordination/znodes.h"
#include "proto/base/clock.h"
#include "proto/wire/envelope.h"

#include <stdlib.h>
#include <string.h>

/* What a take function fills in: the face, and the arena that holds it. */
struct result {
    void *face;
    const char *asked; /* the group */
};

static int no_memory(struct brook_error *error)
{
    return brook_error_set(error, BROOK_E_NOMEM, "out of memory, or the answer is too large");
}

static int unexpected(struct brook_error *error)
{
    return brook_error_set(error, BROOK_E_BAD_ENVELOPE, "the broker answered something else");
}

static int give(struct result *result, void *face)
{
    admin_result_free(result->face);
    result->face = face;
    return 0;
}

static int run(brook_admin *admin, Brook__Request *request,
               int (*take)(struct admin_question *, const Brook__Response *, struct brook_error *),
               struct result *result, int timeout_ms, struct brook_error *error)
{
    struct admin_question q = {
        .ask = admin_ask_any, .request = request, .take = take, .arg = result, .repeatable = true};
    int r = admin_run(admin, &q, timeout_ms, error);
    if (r < 0)
        admin_result_free(result->face);
    return r;
}

/* ---- the cluster ------------------------------------------------------------------------------------ */

static const int32_t *copy_ids(struct arena *a, const int32_t *ids, size_t count)
{
    int32_t *copy = arena_alloc(a, (count + 1) * sizeof *copy);
    if (copy && count > 0)
        memcpy(copy, ids, count * sizeof *copy);
    return copy;
}

static const struct brook_partition *copy_partitions(struct arena *a, const Brook__TopicInfo *info)
{
    struct brook_partition *list = arena_alloc(a, (info->n_partitions + 1) * sizeof *list);
    for (size_t i = 0; list && i < info->n_partitions; i++) {
        const Brook__PartitionInfo *p = info->partitions[i];
        list[i] = (struct brook_partition){.partition = p->partition,
                                           .leader = p->leader,
                                           .leader_epoch = p->leader_epoch,
                                           .replicas = copy_ids(a, p->replicas, p->n_replicas),
                                           .replicas_count = p->n_replicas,
                                           .isr = copy_ids(a, p->isr, p->n_isr),
                                           .isr_count = p->n_isr,
                                           .offline = copy_ids(a, p->offline, p->n_offline),
                                           .offline_count = p->n_offline,
                                           .why_leaderless = p->has_reason ? admin_text(a, &p->reason) : NULL};
        if (!list[i].replicas || !list[i].isr || !list[i].offline)
            return NULL;
    }
    return list;
}

static const char *copy_topic_id(struct arena *a, const ProtobufCBinaryData *bytes)
{
    struct topic_id id;
    char text[TOPIC_ID_TEXT_BYTES];
    if (bytes->len != sizeof id.bytes)
        return "";
    memcpy(id.bytes, bytes->data, sizeof id.bytes);
    topic_id_format(&id, text);
    ProtobufCBinaryData formatted = envelope_text(text);
    return admin_text(a, &formatted);
}

static const struct brook_topic *copy_topics(struct arena *a, const Brook__MetadataResponse *answer)
{
    struct brook_topic *list = arena_alloc(a, (answer->n_topics + 1) * sizeof *list);
    for (size_t i = 0; list && i < answer->n_topics; i++) {
        const Brook__TopicInfo *info = answer->topics[i];
        list[i] = (struct brook_topic){.name = admin_text(a, &info->name),
                                       .topic_id = copy_topic_id(a, &info->topic_id),
                                       .partitions = copy_partitions(a, info),
                                       .partitions_count = info->n_partitions};
        envelope_status_read(info->status, &list[i].error);
        if (!list[i].partitions)
            return NULL;
    }
    return list;
}

static const struct brook_broker *copy_brokers(struct arena *a, const Brook__MetadataResponse *answer)
{
    struct brook_broker *list = arena_alloc(a, (answer->n_brokers + 1) * sizeof *list);
    for (size_t i = 0; list && i < answer->n_brokers; i++) {
        const Brook__BrokerInfo *info = answer->brokers[i];
        list[i] = (struct brook_broker){.id = info->broker_id,
                                        .host = admin_text(a, &info->host),
                                        .port = (int32_t)info->port,
                                        .rack = info->has_rack ? admin_text(a, &info->rack) : NULL};
    }
    return list;
}

static const struct brook_unreadable *copy_unreadable(struct arena *a, const Brook__MetadataResponse *answer)
{
    struct brook_unreadable *list = arena_alloc(a, (answer->n_unreadable + 1) * sizeof *list);
    for (size_t i = 0; list && i < answer->n_unreadable; i++) {
        const Brook__UnreadableNode *node = answer->unreadable[i];
        list[i] = (struct brook_unreadable){.path = admin_text(a, &node->path),
                                            .reason = admin_text(a, &node->reason),
                                            .topic = node->has_topic ? admin_text(a, &node->topic) : NULL,
                                            .partition = node->partition};
    }
    return list;
}

static int take_cluster(struct admin_question *q, const Brook__Response *response, struct brook_error *error)
{
    if (response->body_case != BROOK__RESPONSE__BODY_METADATA)
        return unexpected(error);
    const Brook__MetadataResponse *answer = response->metadata;
    struct arena *a;
    struct brook_cluster *cluster = admin_result_new(sizeof *cluster, &a);
    if (!cluster)
        return no_memory(error);
    *cluster = (struct brook_cluster){.cluster_id = admin_text(a, &answer->cluster_id),
                                      .controller = answer->controller_id,
                                      .brokers = copy_brokers(a, answer),
                                      .brokers_count = answer->n_brokers,
                                      .topics = copy_topics(a, answer),
                                      .topics_count = answer->n_topics,
                                      .unreadable = copy_unreadable(a, answer),
                                      .unreadable_count = answer->n_unreadable};
    if (!cluster->brokers || !cluster->topics || !cluster->unreadable) {
        admin_result_free(cluster);
        return no_memory(error);
    }
    return give(q->arg, cluster);
}

int brook_admin_describe_cluster(brook_admin *admin, const char *const *topics, size_t count, int timeout_ms,
                                 struct brook_cluster **ret_cluster, struct brook_error *error)
{
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__MetadataRequest body = BROOK__METADATA_REQUEST__INIT;
    struct result result = {0};
    ProtobufCBinaryData *names = calloc(count + 1, sizeof *names);
    if (!names)
        return no_memory(error);
    for (size_t i = 0; i < count; i++)
        names[i] = envelope_text(topics[i]);
    body.n_topics = count;
    body.topics = names;
    body.has_all = 1;
    body.all = count == 0;
    body.has_explain = body.explain = 1;
    request.body_case = BROOK__REQUEST__BODY_METADATA;
    request.metadata = &body;
    int r = run(admin, &request, take_cluster, &result, timeout_ms, error);
    free(names);
    if (r == 0)
        *ret_cluster = result.face;
    return r;
}

void brook_cluster_free(struct brook_cluster *cluster)
{
    admin_result_free(cluster);
}

/* ---- settings --------------------------------------------------------------------------------------- */

static int take_entries(struct result *result, Brook__DescribedEntry *const *entries, size_t count,
                        struct brook_error *error)
{
    struct arena *a;
    struct brook_config_entries *face = admin_result_new(sizeof *face, &a);
    struct brook_config_entry *list = face ? arena_alloc(a, (count + 1) * sizeof *list) : NULL;
    if (!list) {
        admin_result_free(face);
        return no_memory(error);
    }
    for (size_t i = 0; i < count; i++)
        list[i] = (struct brook_config_entry){.key = admin_text(a, &entries[i]->key),
                                              .value = admin_text(a, &entries[i]->value),
                                              .description = admin_text(a, &entries[i]->description),
                                              .is_default = entries[i]->is_default};
    face->entries = list;
    face->count = count;
    return give(result, face);
}

static int take_broker_config(struct admin_question *q, const Brook__Response *response,
                              struct brook_error *error)
{
    if (response->body_case != BROOK__RESPONSE__BODY_DESCRIBE_CONFIGS)
        return unexpected(error);
    return take_entries(q->arg, response->describe_configs->broker, response->describe_configs->n_broker,
                        error);
}

static int take_topic_config(struct admin_question *q, const Brook__Response *response,
                             struct brook_error *error)
{
    if (response->body_case != BROOK__RESPONSE__BODY_DESCRIBE_CONFIGS ||
        response->describe_configs->n_topics != 1)
        return unexpected(error);
    const Brook__DescribedConfig *topic = response->describe_configs->topics[0];
    int r = envelope_status_read(topic->status, error);
    return r < 0 ? r : take_entries(q->arg, topic->entries, topic->n_entries, error);
}

int brook_admin_describe_config(brook_admin *admin, const char *topic, int timeout_ms,
                                struct brook_config_entries **ret_entries, struct brook_error *error)
{
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__DescribeConfigsRequest body = BROOK__DESCRIBE_CONFIGS_REQUEST__INIT;
    struct result result = {0};
    ProtobufCBinaryData name = envelope_text(topic ? topic : "");
    body.n_topics = topic ? 1 : 0;
    body.topics = &name;
    body.has_broker = 1;
    body.broker = !topic;
    request.body_case = BROOK__REQUEST__BODY_DESCRIBE_CONFIGS;
    request.describe_configs = &body;
    int r = run(admin, &request, topic ? take_topic_config : take_broker_config, &result, timeout_ms, error);
    if (r == 0)
        *ret_entries = result.face;
    return r;
}

void brook_config_entries_free(struct brook_config_entries *entries)
{
    admin_result_free(entries);
}

/* ---- groups ----------------------------------------------------------------------------------------- */

static const char *const *copy_names(struct arena *a, const ProtobufCBinaryData *names, size_t count)
{
    const char **list = arena_alloc(a, (count + 1) * sizeof *list);
    for (size_t i = 0; list && i < count; i++)
        list[i] = admin_text(a, &names[i]);
    return list;
}

static int take_groups(struct admin_question *q, const Brook__Response *response, struct brook_error *error)
{
    if (response->body_case != BROOK__RESPONSE__BODY_LIST_GROUPS)
        return unexpected(error);
    struct arena *a;
    struct brook_names *face = admin_result_new(sizeof *face, &a);
    if (!face)
        return no_memory(error);
    face->count = response->list_groups->n_groups;
    face->names = copy_names(a, response->list_groups->groups, face->count);
    if (!face->names) {
        admin_result_free(face);
        return no_memory(error);
    }
    return give(q->arg, face);
}

int brook_admin_list_groups(brook_admin *admin, int timeout_ms, struct brook_names **ret_names,
                            struct brook_error *error)
{
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__ListGroupsRequest body = BROOK__LIST_GROUPS_REQUEST__INIT;
    struct result result = {0};
    request.body_case = BROOK__REQUEST__BODY_LIST_GROUPS;
    request.list_groups = &body;
    int r = run(admin, &request, take_groups, &result, timeout_ms, error);
    if (r == 0)
        *ret_names = result.face;
    return r;
}

void brook_names_free(struct brook_names *names)
{
    admin_result_free(names);
}

static const struct brook_group_member *copy_members(struct arena *a, const Brook__GroupInfo *info)
{
    struct brook_group_member *list = arena_alloc(a, (info->n_members + 1) * sizeof *list);
    for (size_t i = 0; list && i < info->n_members; i++) {
        const Brook__GroupMember *m = info->members[i];
        list[i] = (struct brook_group_member){.id = admin_text(a, &m->member),
                                              .host = admin_text(a, &m->host),
                                              .topics = copy_names(a, m->topics, m->n_topics),
                                              .topics_count = m->n_topics,
                                              .is_pattern = m->is_pattern};
        if (!list[i].topics)
            return NULL;
    }
    return list;
}

static const struct brook_group_partition *copy_owned(struct arena *a, const Brook__GroupInfo *info)
{
    struct brook_group_partition *list = arena_alloc(a, (info->n_partitions + 1) * sizeof *list);
    for (size_t i = 0; list && i < info->n_partitions; i++) {
        const Brook__GroupPartition *p = info->partitions[i];
        list[i] =
            (struct brook_group_partition){.topic = admin_text(a, &p->topic),
                                           .partition = p->partition,
                                           .owner = p->has_owner ? admin_text(a, &p->owner) : NULL,
                                           .assigned = p->has_assigned ? admin_text(a, &p->assigned) : NULL,
                                           .offset = p->offset,
                                           .end = -1};
    }
    return list;
}

static int take_group(struct admin_question *q, const Brook__Response *response, struct brook_error *error)
{
    if (response->body_case != BROOK__RESPONSE__BODY_DESCRIBE_GROUPS ||
        response->describe_groups->n_groups != 1)
        return unexpected(error);
    const Brook__GroupInfo *info = response->describe_groups->groups[0];
    int r = envelope_status_read(info->status, error);
    if (r < 0)
        return r;
    struct arena *a;
    struct brook_group *group = admin_result_new(sizeof *group, &a);
    if (!group)
        return no_memory(error);
    *group = (struct brook_group){.name = admin_text(a, &info->group),
                                  .strategy = admin_text(a, &info->strategy),
                                  .members = copy_members(a, info),
                                  .members_count = info->n_members,
                                  .partitions = copy_owned(a, info),
                                  .partitions_count = info->n_partitions};
    if (!group->members || !group->partitions) {
        admin_result_free(group);
        return no_memory(error);
    }
    return give(q->arg, group);
}

/* The ends of the logs, as far as they can be had: lag is worth less than an answer. */
static void add_ends(brook_admin *admin, struct brook_group *group, int timeout_ms)
{
    struct brook_group_partition *list = (struct brook_group_partition *)(uintptr_t)group->partitions;
    struct brook_position *positions = calloc(group->partitions_count + 1, sizeof *positions);
    if (!positions)
        return;
    for (size_t i = 0; i < group->partitions_count; i++)
        positions[i] = (struct brook_position){
            .topic = list[i].topic, .partition = list[i].partition, .offset = BROOK_OFFSET_LATEST};
    if (group->partitions_count > 0)
        brook_admin_list_offsets(admin, positions, NULL, group->partitions_count, timeout_ms, NULL);
    for (size_t i = 0; i < group->partitions_count; i++)
        list[i].end = positions[i].offset >= 0 ? positions[i].offset : -1;
    free(positions);
}

int brook_admin_describe_group(brook_admin *admin, const char *group, int timeout_ms,
                               struct brook_group **ret_group, struct brook_error *error)
{
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__DescribeGroupsRequest body = BROOK__DESCRIBE_GROUPS_REQUEST__INIT;
    struct result result = {0};
    ProtobufCBinaryData name = envelope_text(group);
    int64_t begun_ms = clock_boot_ms();
    body.n_groups = 1;
    body.groups = &name;
    request.body_case = BROOK__REQUEST__BODY_DESCRIBE_GROUPS;
    request.describe_groups = &body;
    int r = run(admin, &request, take_group, &result, timeout_ms, error);
    if (r < 0)
        return r;
    int64_t left_ms = timeout_ms - (clock_boot_ms() - begun_ms);
    add_ends(admin, result.face, timeout_ms < 0 ? -1 : left_ms > 0 ? (int)left_ms : 0);
    *ret_group = result.face;
    return 0;
}

void brook_group_free(struct brook_group *group)
{
    admin_result_free(group);
}
