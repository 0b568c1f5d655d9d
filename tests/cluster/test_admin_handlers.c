/* Handlers of administration and groups over a real cluster thread and ZooKeeper: what they answer, request
 * by request. The test is the I/O loop. */
#include "broker/handlers/handlers.h"
#include "tests/cluster/node.h"

#include "proto/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct zookeeper *zk;

/* ---- a loop ----------------------------------------------------------------------------------------- */

struct bench {
    struct request_loop face; /* first: ops get it back */
    struct handler_settings settings;
    struct request_peer peer;
    struct world *w;
    struct node *n;
    struct arena *arena; /* of replies, until they are packed */
    struct arena *kept;  /* what was answered */
    Brook__Response *response;
    unsigned answers;
};

static struct bench bench;

static void take_reply(struct request *r, Brook__Response *response, struct log_range *ranges,
                       size_t ranges_count)
{
    static uint8_t packed[1 << 20];
    size_t bytes = brook__response__get_packed_size(response);
    ck_assert_uint_le(bytes, sizeof packed);
    brook__response__pack(response, packed);
    arena_reset(bench.kept);
    ck_assert_int_eq(envelope_unpack_response(bench.kept, packed, bytes, &bench.response), 0);
    bench.answers++;
    request_done(r);
    free(r);
    arena_reset(bench.arena);
}

static void no_end(struct request *r, const struct brook_error *why)
{
    ck_abort_msg("ended without an answer");
}

static const struct request_ops ops = {.reply = take_reply, .end = no_end};

static void visit_settings(const void *settings, request_setting_visitor *visitor, void *arg)
{
    visitor(arg, "broker.id", "1", false, "Number of this broker.");
    visitor(arg, "broker.rack", "", true, "Where it stands.");
}

static void begin_with(const char *chroot, int32_t replicas_max)
{
    memset(&bench, 0, sizeof bench);
    bench.w = world_begin(zk, chroot);
    bench.n = world_node(bench.w, 1);
    bench.n->replicas_max = replicas_max;
    node_start(bench.w, bench.n);
    node_wait_ready(bench.w, bench.n);
    ck_assert_int_eq(arena_new(1 << 20, &bench.arena), 0);
    ck_assert_int_eq(arena_new(4 << 20, &bench.kept), 0);
    bench.settings = (struct handler_settings){.broker_id = 1,
                                               .partitions_per_request_max = 1000,
                                               .topics_per_request_max = 100,
                                               .request_timeout_ms_max = 30000,
                                               .visit_settings = visit_settings};
    bench.face = (struct request_loop){.inbox = &bench.n->inbox,
                                       .cluster = bench.n->cluster,
                                       .settings = &bench.settings,
                                       .diag = &bench.n->diag,
                                       .reply_arena = bench.arena,
                                       .ops = &ops};
}

static void begin(const char *chroot)
{
    begin_with(chroot, 0);
}

static void end(void)
{
    world_end(bench.w);
    arena_free(bench.arena);
    arena_free(bench.kept);
}

static bool is_answered(void *arg)
{
    return bench.answers > 0;
}

/* Carry a request out, wait for the answer. */
static Brook__Response *ask(void (*handler)(struct request *r), const Brook__Request *message)
{
    struct request *r = calloc(1, sizeof *r);
    bench.answers = 0;
    bench.face.view = bench.n->view;
    request_init(r, &bench.face, &bench.peer);
    r->message = message;
    handler(r);
    world_wait(bench.w, is_answered, NULL);
    ck_assert_uint_eq(bench.answers, 1);
    return bench.response;
}

static int code_of(const Brook__Status *status)
{
    return envelope_status_code(status);
}

/* ---- topics ----------------------------------------------------------------------------------------- */

static Brook__NewTopic new_topic(const char *name, int32_t partitions, int32_t replicas)
{
    Brook__NewTopic topic = BROOK__NEW_TOPIC__INIT;
    topic.has_name = topic.has_partitions = topic.has_replicas = true;
    topic.name = envelope_text(name);
    topic.partitions = partitions;
    topic.replicas = replicas;
    return topic;
}

static Brook__CreateTopicsResponse *create(Brook__NewTopic **topics, size_t count)
{
    Brook__Request message = BROOK__REQUEST__INIT;
    Brook__CreateTopicsRequest body = BROOK__CREATE_TOPICS_REQUEST__INIT;
    body.topics = topics;
    body.n_topics = count;
    message.create_topics = &body;
    Brook__Response *response = ask(handle_create_topics, &message);
    ck_assert_int_eq(response->body_case, BROOK__RESPONSE__BODY_CREATE_TOPICS);
    return response->create_topics;
}

START_TEST(each_topic_of_a_request_gets_its_own_answer)
{
    begin("/h-create");
    Brook__NewTopic good = new_topic("good", 3, 1), bad = new_topic("b/ad", 1, 1),
                    two = new_topic("two", 1, 2);
    Brook__NewTopic plain = new_topic("plain", 0, 0);
    Brook__ConfigEntry entry = BROOK__CONFIG_ENTRY__INIT, *entries[] = {&entry};
    entry.key = envelope_text("retention.ms");
    entry.value = envelope_text("12345");
    entry.has_key = entry.has_value = true;
    good.configs = entries;
    good.n_configs = 1;
    Brook__NewTopic *topics[] = {&good, &bad, &two, &plain};
    Brook__CreateTopicsResponse *answer = create(topics, 4);
    ck_assert_uint_eq(answer->n_topics, 4);
    ck_assert_int_eq(code_of(answer->topics[0]->status), 0);
    ck_assert_int_eq(answer->topics[0]->partitions, 3);
    ck_assert_uint_eq(answer->topics[0]->topic_id.len, 16);
    ck_assert_int_eq(code_of(answer->topics[1]->status), BROOK_E_ILLEGAL_NAME);
    ck_assert_int_eq(code_of(answer->topics[2]->status), BROOK_E_INVALID_REPLICATION);
    ck_assert_int_eq(code_of(answer->topics[3]->status), 0);
    ck_assert_int_eq(answer->topics[3]->partitions, 1);
    ck_assert_int_eq(answer->topics[3]->replicas, 1);
    ck_assert_int_eq(node_topic(bench.n, "good")->config.log.retention_ms, 12345);
    end();
}
END_TEST

START_TEST(topics_are_grown_and_deleted)
{
    begin("/h-delete");
    Brook__NewTopic topic = new_topic("t", 2, 1), *topics[] = {&topic};
    create(topics, 1);
    Brook__Request message = BROOK__REQUEST__INIT;
    Brook__AddPartitionsRequest grow = BROOK__ADD_PARTITIONS_REQUEST__INIT;
    grow.topic = envelope_text("t");
    grow.partitions = 5;
    message.add_partitions = &grow;
    Brook__Response *response = ask(handle_add_partitions, &message);
    ck_assert_int_eq(code_of(response->add_partitions->topic->status), 0);
    ck_assert_int_eq(response->add_partitions->topic->partitions, 5);
    ck_assert_int_eq(node_topic(bench.n, "t")->partitions_count, 5);
    response = ask(handle_add_partitions, &message);
    ck_assert_int_eq(code_of(response->add_partitions->topic->status), BROOK_E_INVALID_PARTITIONS);

    Brook__DeleteTopicsRequest delete = BROOK__DELETE_TOPICS_REQUEST__INIT;
    ProtobufCBinaryData names[] = {envelope_text("t"), envelope_text("other"), envelope_bytes("a\0b", 3)};
    delete.topics = names;
    delete.n_topics = 3;
    message = (Brook__Request)BROOK__REQUEST__INIT;
    message.delete_topics = &delete;
    delete.validate_only = true;
    response = ask(handle_delete_topics, &message);
    ck_assert_int_eq(code_of(response->delete_topics->topics[0]->status), 0);
    ck_assert_ptr_nonnull(node_topic(bench.n, "t"));
    delete.validate_only = false;
    response = ask(handle_delete_topics, &message);
    ck_assert_uint_eq(response->delete_topics->n_topics, 3);
    ck_assert_int_eq(code_of(response->delete_topics->topics[0]->status), 0);
    ck_assert_int_eq(code_of(response->delete_topics->topics[1]->status), BROOK_E_UNKNOWN_TOPIC);
    ck_assert_int_eq(code_of(response->delete_topics->topics[2]->status), BROOK_E_ILLEGAL_NAME);
    ck_assert_ptr_null(node_topic(bench.n, "t"));
    end();
}
END_TEST

static const Brook__DescribedEntry *find_entry(Brook__DescribedEntry **entries, size_t count, const char *key)
{
    for (size_t i = 0; i < count; i++)
        if (envelope_bytes_equal(&entries[i]->key, key))
            return entries[i];
    ck_abort_msg("no entry %s", key);
    return NULL;
}

START_TEST(settings_are_shown_with_what_is_default)
{
    begin("/h-configs");
    Brook__NewTopic topic = new_topic("t", 1, 1), *topics[] = {&topic};
    Brook__ConfigEntry entry = BROOK__CONFIG_ENTRY__INIT, *entries[2] = {&entry};
    Brook__ConfigEntry size = BROOK__CONFIG_ENTRY__INIT;
    size.key = envelope_text("max.message.bytes");
    size.value = envelope_text("4096");
    size.has_key = size.has_value = true;
    entry.key = envelope_text("segment.bytes");
    entry.value = envelope_text("4096");
    entries[1] = &size;
    topic.configs = entries;
    topic.n_configs = 2;
    entry.has_key = entry.has_value = true;
    create(topics, 1);
    Brook__Request message = BROOK__REQUEST__INIT;
    Brook__DescribeConfigsRequest body = BROOK__DESCRIBE_CONFIGS_REQUEST__INIT;
    ProtobufCBinaryData names[] = {envelope_text("t"), envelope_text("nope")};
    body.topics = names;
    body.n_topics = 2;
    body.broker = true;
    message.describe_configs = &body;
    Brook__DescribeConfigsResponse *answer = ask(handle_describe_configs, &message)->describe_configs;
    ck_assert_uint_eq(answer->n_topics, 2);
    const Brook__DescribedConfig *t = answer->topics[0];
    const Brook__DescribedEntry *set = find_entry(t->entries, t->n_entries, "segment.bytes");
    ck_assert(envelope_bytes_equal(&set->value, "4096"));
    ck_assert(!set->is_default);
    ck_assert(find_entry(t->entries, t->n_entries, "retention.ms")->is_default);
    const Brook__DescribedEntry *durability = find_entry(t->entries, t->n_entries, "durability");
    ck_assert(envelope_bytes_equal(&durability->value, "fsync")); /* it has one replica */
    ck_assert(durability->is_default);
    ck_assert_int_eq(code_of(answer->topics[1]->status), BROOK_E_UNKNOWN_TOPIC);
    ck_assert_uint_eq(answer->n_broker, 2);
    ck_assert(!find_entry(answer->broker, 2, "broker.id")->is_default);
    ck_assert(find_entry(answer->broker, 2, "broker.rack")->is_default);
    end();
}
END_TEST

/* "key=value" to be set, "key" to be taken away; NULL at the end. Returns the code. */
static int alter(const char *topic, bool validate_only, const char *const *changes)
{
    Brook__Request message = BROOK__REQUEST__INIT;
    Brook__AlterConfigsRequest body = BROOK__ALTER_CONFIGS_REQUEST__INIT;
    Brook__AlteredConfig altered = BROOK__ALTERED_CONFIG__INIT, *list[] = {&altered};
    Brook__ConfigEntry entries[8], *set[8];
    ProtobufCBinaryData unset[8];
    altered.has_topic = true;
    altered.topic = envelope_text(topic);
    altered.set = set;
    altered.unset = unset;
    for (size_t i = 0; changes[i]; i++) {
        const char *equals = strchr(changes[i], '=');
        if (!equals) {
            unset[altered.n_unset++] = envelope_text(changes[i]);
            continue;
        }
        brook__config_entry__init(&entries[i]);
        entries[i].has_key = entries[i].has_value = true;
        entries[i].key = envelope_bytes(changes[i], (size_t)(equals - changes[i]));
        entries[i].value = envelope_text(equals + 1);
        set[altered.n_set++] = &entries[i];
    }
    body.topics = list;
    body.n_topics = 1;
    body.validate_only = validate_only;
    message.alter_configs = &body;
    Brook__Response *response = ask(handle_alter_configs, &message);
    ck_assert_int_eq(response->body_case, BROOK__RESPONSE__BODY_ALTER_CONFIGS);
    ck_assert_uint_eq(response->alter_configs->n_topics, 1);
    return code_of(response->alter_configs->topics[0]->status);
}
#define CHANGES(...) (const char *const[]){__VA_ARGS__, NULL}

static const struct log_settings *settings_of(const char *topic)
{
    return &node_topic(bench.n, topic)->config.log;
}

START_TEST(settings_are_altered_one_by_one)
{
    begin("/h-alter");
    Brook__NewTopic t = new_topic("t", 2, 1), *topics[] = {&t};
    create(topics, 1);
    struct log_settings standard = *settings_of("t");
    ck_assert_int_eq(alter("t", true, CHANGES("retention.ms=1000")), 0);
    ck_assert_int_eq(settings_of("t")->retention_ms, standard.retention_ms);
    /* When it is answered the view has them. */
    ck_assert_int_eq(alter("t", false, CHANGES("retention.ms=1000", "retention.bytes=5000")), 0);
    ck_assert_int_eq(settings_of("t")->retention_ms, 1000);
    ck_assert_int_eq(settings_of("t")->retention_bytes, 5000);
    ck_assert_int_eq(alter("t", false, CHANGES("retention.bytes=6000", "retention.ms")), 0);
    ck_assert_int_eq(settings_of("t")->retention_ms, standard.retention_ms);
    ck_assert_int_eq(settings_of("t")->retention_bytes, 6000);
    ck_assert_str_eq(admin_get(bench.w, "/config/topics/t")->data,
                     "{\"version\":1,\"config\":{\"retention.bytes\":\"6000\"}}");
    int32_t version = admin_get(bench.w, "/config/topics/t")->stat.version;
    ck_assert_int_eq(alter("t", false, CHANGES("retention.bytes=6000")), 0);
    ck_assert_int_eq(admin_get(bench.w, "/config/topics/t")->stat.version, version); /* nothing to write */

    ck_assert_int_eq(alter("t", false, CHANGES("retention.ms=soon")), BROOK_E_INVALID_CONFIG);
    ck_assert_int_eq(alter("t", false, CHANGES("segment.bytes=2048", "no.such=1")), BROOK_E_INVALID_CONFIG);
    ck_assert_int_eq(alter("t", false, CHANGES("no.such")), BROOK_E_INVALID_CONFIG);
    ck_assert_int_eq(alter("t", false, CHANGES("retention.ms=1", "retention.ms")), BROOK_E_INVALID_CONFIG);
    ck_assert_int_eq(settings_of("t")->segment_bytes, standard.segment_bytes);
    ck_assert_int_eq(alter("u", false, CHANGES("retention.ms=1")), BROOK_E_UNKNOWN_TOPIC);
    ck_assert_int_eq(alter("b/ad", false, CHANGES("retention.ms=1")), BROOK_E_ILLEGAL_NAME);
    end();
}
END_TEST

START_TEST(settings_that_nobody_wrote_and_those_written_by_hand_are_altered)
{
    begin("/h-alter-hand");
    Brook__NewTopic t = new_topic("t", 1, 1), *topics[] = {&t};
    create(topics, 1);
    ck_assert_int_eq(admin_delete(bench.w, "/config/topics/t"), 0);
    ck_assert_int_eq(alter("t", false, CHANGES("retention.ms=2000")), 0);
    ck_assert_int_eq(settings_of("t")->retention_ms, 2000);
    ck_assert_int_eq(admin_set(bench.w, "/config/topics/t",
                               "{\"version\":1,\"config\":{\"by.hand\":\"x\",\"segment.ms\":\"70\"}}", -1),
                     0);
    ck_assert_int_eq(alter("t", false, CHANGES("retention.ms=3000")), BROOK_E_INVALID_CONFIG); /* by.hand */
    ck_assert_int_eq(alter("t", false, CHANGES("retention.ms=3000", "by.hand")), 0);
    ck_assert_int_eq(settings_of("t")->retention_ms, 3000);
    ck_assert_int_eq(settings_of("t")->segment_ms, 70);
    end();
}
END_TEST

/* ---- offsets and groups ----------------------------------------------------------------------------- */

static Brook__CommitOffsetsResponse *commit(Brook__CommitOffset **offsets, size_t count)
{
    Brook__Request message = BROOK__REQUEST__INIT;
    Brook__CommitOffsetsRequest body = BROOK__COMMIT_OFFSETS_REQUEST__INIT;
    body.group = envelope_text("g");
    body.has_group = true;
    body.offsets = offsets;
    body.n_offsets = count;
    message.commit_offsets = &body;
    Brook__Response *response = ask(handle_commit_offsets, &message);
    ck_assert_int_eq(response->body_case, BROOK__RESPONSE__BODY_COMMIT_OFFSETS);
    return response->commit_offsets;
}

static Brook__CommitOffset offset_of(const char *topic, int32_t partition, int64_t offset)
{
    Brook__CommitOffset o = BROOK__COMMIT_OFFSET__INIT;
    o.topic = envelope_text(topic);
    o.has_topic = o.has_partition = o.has_offset = true;
    o.partition = partition;
    o.offset = offset;
    return o;
}

START_TEST(offsets_are_stored_for_what_exists_and_fetched)
{
    begin("/h-offsets");
    Brook__NewTopic topic = new_topic("t", 3, 1), *topics[] = {&topic};
    create(topics, 1);
    Brook__CommitOffset a = offset_of("t", 0, 0), b = offset_of("t", 2, 42), beyond = offset_of("t", 3, 1);
    Brook__CommitOffset unknown = offset_of("u", 0, 1), other = offset_of("t", 1, 1);
    uint8_t wrong_id[16] = {1};
    other.has_topic_id = true;
    other.topic_id = envelope_bytes(wrong_id, sizeof wrong_id);
    Brook__CommitOffset *offsets[] = {&unknown, &a, &beyond, &b, &other};
    Brook__CommitOffsetsResponse *answer = commit(offsets, 5);
    ck_assert_uint_eq(answer->n_offsets, 5);
    ck_assert_int_eq(code_of(answer->offsets[0]->status), BROOK_E_UNKNOWN_TOPIC);
    ck_assert_int_eq(code_of(answer->offsets[1]->status), 0);
    ck_assert_int_eq(code_of(answer->offsets[2]->status), BROOK_E_UNKNOWN_PARTITION);
    ck_assert_int_eq(code_of(answer->offsets[3]->status), 0);
    ck_assert_int_eq(code_of(answer->offsets[4]->status), BROOK_E_TOPIC_ID_MISMATCH);
    ck_assert_str_eq(admin_get(bench.w, "/consumers/g/offsets/t/2")->data, "42");
    ck_assert(!admin_exists(bench.w, "/consumers/g/offsets/u"));

    Brook__Request message = BROOK__REQUEST__INIT;
    Brook__FetchOffsetsRequest body = BROOK__FETCH_OFFSETS_REQUEST__INIT;
    body.group = envelope_text("g");
    message.fetch_offsets = &body;
    Brook__FetchOffsetsResponse *fetched = ask(handle_fetch_offsets, &message)->fetch_offsets;
    ck_assert_uint_eq(fetched->n_offsets, 2);
    ck_assert(envelope_bytes_equal(&fetched->offsets[0]->topic, "t"));
    ck_assert_int_eq(fetched->offsets[0]->partition, 0);
    ck_assert_int_eq(fetched->offsets[0]->offset, 0);
    ck_assert_int_eq(fetched->offsets[1]->partition, 2);
    ck_assert_int_eq(fetched->offsets[1]->offset, 42);
    body.group = envelope_text("nobody");
    ck_assert_uint_eq(ask(handle_fetch_offsets, &message)->fetch_offsets->n_offsets, 0);
    end();
}
END_TEST

START_TEST(groups_are_listed_and_described_as_zookeeper_has_them)
{
    begin("/h-groups");
    struct world *w = bench.w;
    ck_assert_int_eq(admin_create(w, "/consumers/g/ids/m1",
                                  "{\"version\":1,\"subscription\":{\"t\":1},\"pattern\":\"static\","
                                  "\"timestamp\":\"1\",\"host\":\"box\",\"strategy\":\"sticky\"}"),
                     0);
    ck_assert_int_eq(admin_create(w, "/consumers/g/owners/t/0", "m1"), 0);
    ck_assert_int_eq(admin_create(w, "/consumers/g/offsets/t/0", "7"), 0);
    ck_assert_int_eq(admin_create(w, "/consumers/g/offsets/t/10", "8"), 0);
    ck_assert_int_eq(admin_create(w, "/consumers/g/offsets/t/2", ""), 0);
    ck_assert_int_eq(admin_create(w, "/consumers/a/offsets", ""), 0);
    Brook__Request message = BROOK__REQUEST__INIT;
    Brook__ListGroupsRequest list = BROOK__LIST_GROUPS_REQUEST__INIT;
    message.list_groups = &list;
    Brook__ListGroupsResponse *listed = ask(handle_list_groups, &message)->list_groups;
    ck_assert_uint_eq(listed->n_groups, 2);
    ck_assert(envelope_bytes_equal(&listed->groups[0], "a"));
    ck_assert(envelope_bytes_equal(&listed->groups[1], "g"));

    message = (Brook__Request)BROOK__REQUEST__INIT;
    Brook__DescribeGroupsRequest body = BROOK__DESCRIBE_GROUPS_REQUEST__INIT;
    ProtobufCBinaryData names[] = {envelope_text("g"), envelope_text("none"), envelope_text("il/legal")};
    body.groups = names;
    body.n_groups = 3;
    message.describe_groups = &body;
    Brook__DescribeGroupsResponse *answer = ask(handle_describe_groups, &message)->describe_groups;
    ck_assert_uint_eq(answer->n_groups, 3);
    const Brook__GroupInfo *g = answer->groups[0];
    ck_assert_int_eq(code_of(g->status), 0);
    ck_assert_uint_eq(g->n_members, 1);
    ck_assert(envelope_bytes_equal(&g->members[0]->member, "m1"));
    ck_assert(envelope_bytes_equal(&g->members[0]->host, "box"));
    ck_assert_uint_eq(g->n_partitions, 2);
    ck_assert_int_eq(g->partitions[0]->partition, 0);
    ck_assert(envelope_bytes_equal(&g->partitions[0]->owner, "m1"));
    ck_assert_int_eq(g->partitions[0]->offset, 7);
    ck_assert_int_eq(g->partitions[1]->partition, 10);
    ck_assert(!g->partitions[1]->has_owner);
    ck_assert_int_eq(g->partitions[1]->offset, 8);
    ck_assert_int_eq(code_of(answer->groups[1]->status), BROOK_E_UNKNOWN_GROUP);
    ck_assert_int_eq(code_of(answer->groups[2]->status), BROOK_E_ILLEGAL_NAME);
    end();
}
END_TEST

/* ---- the controller's affairs ----------------------------------------------------------------------- */

static Brook__ReassignResponse *reassign(const char *topic, int32_t partition, int32_t *replicas, size_t count,
                                         int64_t quota)
{
    static Brook__Request message;
    static Brook__ReassignRequest body;
    static Brook__PartitionPlan plan, *plans[] = {&plan};
    message = (Brook__Request)BROOK__REQUEST__INIT;
    body = (Brook__ReassignRequest)BROOK__REASSIGN_REQUEST__INIT;
    plan = (Brook__PartitionPlan)BROOK__PARTITION_PLAN__INIT;
    plan.topic = envelope_text(topic);
    plan.partition = partition;
    plan.replicas = replicas;
    plan.n_replicas = count;
    body.partitions = plans;
    body.n_partitions = 1;
    body.quota_bytes = quota;
    message.reassign = &body;
    Brook__ReassignResponse *answer = ask(handle_reassign, &message)->reassign;
    ck_assert_uint_eq(answer->n_partitions, 1);
    ck_assert_int_eq(answer->partitions[0]->partition, partition);
    return answer;
}

static Brook__ListReassignmentsResponse *list_moves(void)
{
    static Brook__Request message;
    static Brook__ListReassignmentsRequest body;
    message = (Brook__Request)BROOK__REQUEST__INIT;
    body = (Brook__ListReassignmentsRequest)BROOK__LIST_REASSIGNMENTS_REQUEST__INIT;
    message.list_reassignments = &body;
    return ask(handle_list_reassignments, &message)->list_reassignments;
}

static bool throttle_is(void *arg)
{
    return cluster_move_throttle(bench.n->cluster) == *(int64_t *)arg;
}

static bool moves_are_seen(void *arg)
{
    const struct view_topic *t = node_topic(bench.n, "t");
    return (t->partitions[0].target_count > 0) == *(bool *)arg;
}

START_TEST(partitions_are_moved_listed_and_brought_back)
{
    bool yes = true, no = false;
    begin_with("/h-move", 3);
    node_start(bench.w, world_node(bench.w, 2));
    node_wait_ready(bench.w, world_node(bench.w, 2));
    ck_assert_int_eq(admin_create(bench.w, "/brokers/topics/t",
                                  "{\"version\":3,\"topic_id\":\"AAAAAAAAAAAAAAAAAAAAAQ\",\"partitions\":{\"0\":[1]}}"),
                     0);
    node_wait_leader(bench.w, bench.n, "t", 0, 1);
    node_wait_leader(bench.w, world_node(bench.w, 2), "t", 0, 1);
    int32_t both[] = {2, 1}, twice[] = {1, 1}, unknown[] = {9}, many[] = {1, 2, 3, 4};
    ck_assert_int_eq(code_of(reassign("t", 0, unknown, 1, -1)->partitions[0]->status), BROOK_E_BROKER_NOT_AVAILABLE);
    ck_assert_int_eq(code_of(reassign("t", 0, twice, 2, -1)->partitions[0]->status), BROOK_E_INVALID_REPLICAS);
    ck_assert_int_eq(code_of(reassign("t", 0, many, 4, -1)->partitions[0]->status), BROOK_E_INVALID_REPLICAS);
    ck_assert_int_eq(code_of(reassign("t", 1, both, 2, -1)->partitions[0]->status), BROOK_E_UNKNOWN_PARTITION);
    ck_assert_int_eq(code_of(reassign("none", 0, both, 2, -1)->partitions[0]->status), BROOK_E_UNKNOWN_TOPIC);
    ck_assert_int_eq(code_of(reassign("t", 0, NULL, 0, -1)->partitions[0]->status), BROOK_E_NO_REASSIGNMENT);
    ck_assert_uint_eq(list_moves()->n_partitions, 0);

    ck_assert_int_eq(code_of(reassign("t", 0, both, 2, 5000)->partitions[0]->status), 0);
    int64_t throttle = 5000, none = 0;
    world_wait(bench.w, throttle_is, &throttle);
    world_wait(bench.w, moves_are_seen, &yes);
    Brook__ListReassignmentsResponse *moves = list_moves();
    ck_assert_uint_eq(moves->n_partitions, 1);
    ck_assert_int_eq(moves->throttle_bytes, 5000);
    ck_assert_int_eq(moves->quota_bytes, 0);
    ck_assert(envelope_bytes_equal(&moves->partitions[0]->topic, "t"));
    ck_assert_uint_eq(moves->partitions[0]->n_adding, 1);
    ck_assert_int_eq(moves->partitions[0]->adding[0], 2);
    ck_assert_uint_eq(moves->partitions[0]->n_removing, 0);
    ck_assert_int_eq(moves->partitions[0]->target[0], 2);
    ck_assert_uint_eq(moves->partitions[0]->n_isr, 1);

    ck_assert_int_eq(code_of(reassign("t", 0, NULL, 0, -1)->partitions[0]->status), 0);
    world_wait(bench.w, moves_are_seen, &no);
    world_wait(bench.w, throttle_is, &none);
    ck_assert_uint_eq(list_moves()->n_partitions, 0);
    ck_assert_int_eq(list_moves()->throttle_bytes, 0);
    end();
}
END_TEST

START_TEST(nothing_is_moved_where_one_replica_is_kept)
{
    begin_with("/h-product", 1);
    ck_assert_int_eq(node_create(bench.w, bench.n, "t", 1), 0);
    int32_t self[] = {1};
    ck_assert_int_eq(code_of(reassign("t", 0, self, 1, -1)->partitions[0]->status), BROOK_E_UNSUPPORTED);
    end();
}
END_TEST

START_TEST(elections_answer_for_each_partition)
{
    begin("/h-elect");
    ck_assert_int_eq(node_create(bench.w, bench.n, "t", 1), 0);
    Brook__Request message = BROOK__REQUEST__INIT;
    Brook__ElectLeadersRequest body = BROOK__ELECT_LEADERS_REQUEST__INIT;
    Brook__PartitionName good = BROOK__PARTITION_NAME__INIT, bad = BROOK__PARTITION_NAME__INIT, *names[] = {&good, &bad};
    good.topic = bad.topic = envelope_text("t");
    good.partition = 0;
    bad.partition = 7;
    body.partitions = names;
    body.n_partitions = 2;
    message.elect_leaders = &body;
    Brook__ElectLeadersResponse *answer = ask(handle_elect_leaders, &message)->elect_leaders;
    ck_assert_uint_eq(answer->n_partitions, 2);
    ck_assert_int_eq(code_of(answer->partitions[0]->status), 0);
    ck_assert_int_eq(code_of(answer->partitions[1]->status), BROOK_E_UNKNOWN_PARTITION);
    ck_assert(!admin_exists(bench.w, PATH_PREFERRED_ELECTION));
    good.topic = envelope_text("il/legal");
    ck_assert_int_eq(code_of(ask(handle_elect_leaders, &message)->status), BROOK_E_ILLEGAL_NAME);
    end();
}
END_TEST

/* Nobody may make more replicas than the one setting allows; when it does they are placed apart. */
START_TEST(topics_of_several_replicas_are_placed_when_that_is_allowed)
{
    begin_with("/h-replicas", 3);
    Brook__Request message = BROOK__REQUEST__INIT;
    Brook__CreateTopicsRequest body = BROOK__CREATE_TOPICS_REQUEST__INIT;
    Brook__NewTopic topic = BROOK__NEW_TOPIC__INIT, *topics[] = {&topic};
    topic.name = envelope_text("t");
    topic.partitions = 4;
    topic.replicas = 2;
    body.topics = topics;
    body.n_topics = 1;
    message.create_topics = &body;
    Brook__CreateTopicsResponse *answer = ask(handle_create_topics, &message)->create_topics;
    ck_assert_int_eq(code_of(answer->topics[0]->status), BROOK_E_INVALID_REPLICATION); /* one broker lives */
    node_start(bench.w, world_node(bench.w, 2));
    node_wait_ready(bench.w, world_node(bench.w, 2));
    topic.replicas = 4;
    answer = ask(handle_create_topics, &message)->create_topics;
    ck_assert_int_eq(code_of(answer->topics[0]->status), BROOK_E_INVALID_REPLICATION);
    topic.replicas = 2;
    answer = ask(handle_create_topics, &message)->create_topics;
    ck_assert_int_eq(code_of(answer->topics[0]->status), 0);
    int led[3] = {0};
    for (int32_t i = 0; i < 4; i++) {
        const struct view_partition *p = &node_topic(bench.n, "t")->partitions[i];
        ck_assert_int_eq(p->replicas_count, 2);
        ck_assert_int_eq(p->isr_count, 2);
        ck_assert_int_ne(p->replicas[0], p->replicas[1]);
        led[p->leader]++;
    }
    ck_assert_int_eq(led[1], 2);
    ck_assert_int_eq(led[2], 2);
    end();
}
END_TEST

int main(void)
{
    zk = zookeeper_start(NULL);
    const struct suite_test tests[] = {
        SUITE_TEST(each_topic_of_a_request_gets_its_own_answer),
        SUITE_TEST(topics_are_grown_and_deleted),
        SUITE_TEST(settings_are_altered_one_by_one),
        SUITE_TEST(settings_that_nobody_wrote_and_those_written_by_hand_are_altered),
        SUITE_TEST(settings_are_shown_with_what_is_default),
        SUITE_TEST(offsets_are_stored_for_what_exists_and_fetched),
        SUITE_TEST(groups_are_listed_and_described_as_zookeeper_has_them),
        SUITE_TEST_SLOW(partitions_are_moved_listed_and_brought_back, 60),
        SUITE_TEST(nothing_is_moved_where_one_replica_is_kept),
        SUITE_TEST(elections_answer_for_each_partition),
        SUITE_TEST_SLOW(topics_of_several_replicas_are_placed_when_that_is_allowed, 60),
    };
    int r = suite_run("cluster/admin_handlers", tests, sizeof tests / sizeof tests[0]);
    zookeeper_stop(zk);
    return r;
}
