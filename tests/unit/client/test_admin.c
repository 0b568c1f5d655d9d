#include "proto/base/clock.h"
#include "tests/support/stub_broker.h"
#include "tests/support/suite.h"

#include <brook/brook.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_MS 10000

struct fixture {
    struct stub_cluster *cluster;
    brook_config *config;
    brook_admin *admin;
    struct brook_error error;
};

static void fixture_open(struct fixture *f, unsigned brokers, stub_function *function, void *arg)
{
    memset(f, 0, sizeof *f);
    f->cluster = stub_cluster_new(brokers);
    stub_cluster_on_request(f->cluster, function, arg);
    ck_assert_int_eq(brook_config_new(&f->config), 0);
    brook_config_set(f->config, "bootstrap.servers", stub_cluster_servers(f->cluster), NULL);
    brook_config_set(f->config, "reconnect.backoff.ms", "10", NULL);
    ck_assert_msg(brook_admin_new(f->config, &f->admin, &f->error) == 0, "%s", f->error.text);
}

static void fixture_close(struct fixture *f)
{
    brook_admin_free(f->admin);
    brook_config_free(f->config);
    stub_cluster_free(f->cluster);
}

/* ---- topics ----------------------------------------------------------------------------------------- */

struct creation {
    int code;
    unsigned passing; /* so many NOT_CONTROLLER first */
    bool hang_up;     /* after carrying it out */
    unsigned validated;
    char setting[64];
};

static enum stub_verdict create_topics(void *arg, const struct stub_request *q)
{
    struct creation *c = arg;
    if (q->request->body_case != BROOK__REQUEST__BODY_CREATE_TOPICS)
        return STUB_PASS;
    const Brook__NewTopic *asked = q->request->create_topics->topics[0];
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__CreateTopicsResponse answer = BROOK__CREATE_TOPICS_RESPONSE__INIT;
    Brook__TopicResult result = BROOK__TOPIC_RESULT__INIT, *list[] = {&result};
    Brook__Status status = BROOK__STATUS__INIT;
    status.has_code = 1;
    status.code = q->number < c->passing ? BROOK_E_NOT_CONTROLLER : c->code;
    result.status = status.code ? &status : NULL;
    c->validated += q->request->create_topics->validate_only ? 1 : 0;
    if (asked->n_configs > 0)
        snprintf(c->setting, sizeof c->setting, "%.*s=%.*s", (int)asked->configs[0]->key.len,
                 (const char *)asked->configs[0]->key.data, (int)asked->configs[0]->value.len,
                 (const char *)asked->configs[0]->value.data);
    char name[256];
    snprintf(name, sizeof name, "%.*s", (int)asked->name.len, (const char *)asked->name.data);
    if (!status.code && !q->request->create_topics->validate_only)
        stub_cluster_add_topic(q->cluster, name, asked->partitions);
    answer.n_topics = 1;
    answer.topics = list;
    response.body_case = BROOK__RESPONSE__BODY_CREATE_TOPICS;
    response.create_topics = &answer;
    if (c->hang_up)
        stub_close(q->connection);
    else
        stub_reply(q, &response, NULL, 0, 0);
    return STUB_DONE;
}

START_TEST(a_topic_is_created_with_its_settings)
{
    struct fixture f;
    struct creation c = {.passing = 2};
    struct brook_setting settings[] = {{"retention.ms", "1000"}};
    fixture_open(&f, 2, create_topics, &c);
    ck_assert_int_eq(brook_admin_create_topic(f.admin, "t", 3, 1, settings, 1, true, WAIT_MS, &f.error), 0);
    ck_assert_int_gt(c.validated, 0);
    ck_assert_int_eq(stub_cluster_end_offset(f.cluster, "t", 2), -1);
    ck_assert_int_eq(brook_admin_create_topic(f.admin, "t", 3, 1, settings, 1, false, WAIT_MS, &f.error), 0);
    ck_assert_int_eq(stub_cluster_end_offset(f.cluster, "t", 2), 0);
    ck_assert_str_eq(c.setting, "retention.ms=1000");
    fixture_close(&f);
}
END_TEST

START_TEST(refusals_come_back_as_they_are)
{
    struct fixture f;
    struct creation c = {.code = BROOK_E_TOPIC_EXISTS};
    fixture_open(&f, 1, create_topics, &c);
    ck_assert_int_eq(brook_admin_create_topic(f.admin, "t", 3, 1, NULL, 0, false, WAIT_MS, &f.error),
                     -BROOK_E_TOPIC_EXISTS);
    ck_assert_int_eq(f.error.code, BROOK_E_TOPIC_EXISTS);
    ck_assert_int_eq(brook_admin_create_topic(f.admin, "a/b", 3, 1, NULL, 0, false, WAIT_MS, &f.error),
                     -BROOK_E_ILLEGAL_NAME);
    /* The stub does not know this one. */
    ck_assert_int_eq(brook_admin_delete_topic(f.admin, "t", WAIT_MS, &f.error), -BROOK_E_UNSUPPORTED);
    ck_assert_int_eq(brook_admin_add_partitions(f.admin, "t", 5, WAIT_MS, &f.error), -BROOK_E_UNSUPPORTED);
    fixture_close(&f);
}
END_TEST

START_TEST(a_lost_answer_to_a_change_is_not_asked_for_again)
{
    struct fixture f;
    struct creation c = {.hang_up = true};
    fixture_open(&f, 1, create_topics, &c);
    ck_assert_int_eq(brook_admin_create_topic(f.admin, "t", 3, 1, NULL, 0, false, WAIT_MS, &f.error),
                     -BROOK_E_DISCONNECTED);
    ck_assert_uint_eq(stub_cluster_requests(f.cluster, BROOK__REQUEST__BODY_CREATE_TOPICS), 1);
    fixture_close(&f);
}
END_TEST

/* ---- descriptions ----------------------------------------------------------------------------------- */

START_TEST(the_cluster_is_described)
{
    struct fixture f;
    struct brook_cluster *cluster;
    fixture_open(&f, 2, NULL, NULL);
    stub_cluster_add_topic(f.cluster, "a", 3);
    stub_cluster_add_topic(f.cluster, "b", 1);
    ck_assert_int_eq(brook_admin_describe_cluster(f.admin, NULL, 0, WAIT_MS, &cluster, &f.error), 0);
    ck_assert_str_eq(cluster->cluster_id, "stub");
    ck_assert_uint_eq(cluster->brokers_count, 2);
    ck_assert_str_eq(cluster->brokers[0].host, "127.0.0.1");
    ck_assert_uint_eq(cluster->topics_count, 2);
    brook_cluster_free(cluster);
    const char *names[] = {"a", "none"};
    ck_assert_int_eq(brook_admin_describe_cluster(f.admin, names, 2, WAIT_MS, &cluster, &f.error), 0);
    ck_assert_uint_eq(cluster->topics_count, 2);
    ck_assert_uint_eq(cluster->topics[0].partitions_count, 3);
    ck_assert_int_eq(cluster->topics[0].partitions[1].leader, 2);
    ck_assert_uint_eq(strlen(cluster->topics[0].topic_id), 22);
    ck_assert_int_eq(cluster->topics[1].error.code, BROOK_E_UNKNOWN_TOPIC);
    brook_cluster_free(cluster);
    fixture_close(&f);
}
END_TEST

static enum stub_verdict describe(void *arg, const struct stub_request *q)
{
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__GroupMember member = BROOK__GROUP_MEMBER__INIT, *members[] = {&member};
    Brook__GroupPartition partition = BROOK__GROUP_PARTITION__INIT, *partitions[] = {&partition};
    Brook__GroupInfo group = BROOK__GROUP_INFO__INIT, *groups[] = {&group};
    Brook__DescribeGroupsResponse described = BROOK__DESCRIBE_GROUPS_RESPONSE__INIT;
    Brook__ListGroupsResponse listed = BROOK__LIST_GROUPS_RESPONSE__INIT;
    Brook__DescribeConfigsResponse configs = BROOK__DESCRIBE_CONFIGS_RESPONSE__INIT;
    Brook__DescribedEntry entry = BROOK__DESCRIBED_ENTRY__INIT, *entries[] = {&entry};
    Brook__DescribedConfig topic = BROOK__DESCRIBED_CONFIG__INIT, *topics[] = {&topic};
    ProtobufCBinaryData names[] = {envelope_text("g1"), envelope_text("g2")};
    ProtobufCBinaryData subscribed[] = {envelope_text("a")};
    switch (q->request->body_case) {
    case BROOK__REQUEST__BODY_DESCRIBE_GROUPS:
        member.member = envelope_text("m1");
        member.host = envelope_text("h");
        member.n_topics = 1;
        member.topics = subscribed;
        partition.topic = envelope_text("a");
        partition.partition = 1;
        partition.has_owner = 1;
        partition.owner = envelope_text("m1");
        partition.offset = 5;
        partition.has_offset = partition.has_partition = partition.has_topic = 1;
        member.has_member = member.has_host = 1;
        group.has_group = group.has_strategy = 1;
        group.group = q->request->describe_groups->groups[0];
        group.strategy = envelope_text("sticky");
        group.n_members = group.n_partitions = 1;
        group.members = members;
        group.partitions = partitions;
        described.n_groups = 1;
        described.groups = groups;
        response.body_case = BROOK__RESPONSE__BODY_DESCRIBE_GROUPS;
        response.describe_groups = &described;
        break;
    case BROOK__REQUEST__BODY_LIST_GROUPS:
        listed.n_groups = 2;
        listed.groups = names;
        response.body_case = BROOK__RESPONSE__BODY_LIST_GROUPS;
        response.list_groups = &listed;
        break;
    case BROOK__REQUEST__BODY_DESCRIBE_CONFIGS:
        entry.has_key = entry.has_value = entry.has_is_default = 1;
        entry.key = envelope_text("retention.ms");
        entry.value = envelope_text("7");
        entry.is_default = 1;
        configs.n_broker = q->request->describe_configs->broker ? 1 : 0;
        configs.broker = entries;
        topic.n_entries = 1;
        topic.entries = entries;
        configs.n_topics = q->request->describe_configs->n_topics;
        configs.topics = topics;
        response.body_case = BROOK__RESPONSE__BODY_DESCRIBE_CONFIGS;
        response.describe_configs = &configs;
        break;
    default:
        return STUB_PASS;
    }
    stub_reply(q, &response, NULL, 0, 0);
    return STUB_DONE;
}

START_TEST(groups_and_settings_are_described)
{
    struct fixture f;
    struct brook_names *names;
    struct brook_group *group;
    struct brook_config_entries *entries;
    fixture_open(&f, 2, describe, NULL);
    stub_cluster_add_topic(f.cluster, "a", 2);
    ck_assert_int_eq(brook_admin_list_groups(f.admin, WAIT_MS, &names, &f.error), 0);
    ck_assert_uint_eq(names->count, 2);
    ck_assert_str_eq(names->names[1], "g2");
    brook_names_free(names);
    ck_assert_int_eq(brook_admin_describe_group(f.admin, "g1", WAIT_MS, &group, &f.error), 0);
    ck_assert_str_eq(group->name, "g1");
    ck_assert_str_eq(group->members[0].topics[0], "a");
    ck_assert_str_eq(group->partitions[0].owner, "m1");
    ck_assert_ptr_null(group->partitions[0].assigned);
    ck_assert_int_eq(group->partitions[0].offset, 5);
    ck_assert_int_eq(group->partitions[0].end, 0);
    brook_group_free(group);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(brook_admin_describe_config(f.admin, i ? "a" : NULL, WAIT_MS, &entries, &f.error),
                         0);
        ck_assert_uint_eq(entries->count, 1);
        ck_assert_str_eq(entries->entries[0].value, "7");
        ck_assert(entries->entries[0].is_default);
        brook_config_entries_free(entries);
    }
    fixture_close(&f);
}
END_TEST

/* ---- offsets ---------------------------------------------------------------------------------------- */

static void fill(struct stub_cluster *cluster, const char *topic, int32_t partition, int records)
{
    uint8_t buffer[4096];
    struct batch_writer w;
    struct record_view record = {.value = "x", .value_bytes = 1};
    batch_writer_init(&w, buffer, sizeof buffer);
    for (int i = 0; i < records; i++)
        batch_writer_add(&w, &record);
    stub_cluster_append(cluster, topic, partition, buffer, batch_writer_finish(&w, -1, -1, -1));
}

START_TEST(offsets_are_asked_of_each_leader)
{
    struct fixture f;
    fixture_open(&f, 3, NULL, NULL);
    stub_cluster_add_topic(f.cluster, "a", 6);
    for (int32_t p = 0; p < 6; p++)
        fill(f.cluster, "a", p, p + 1);
    struct brook_position at[7];
    for (int32_t p = 0; p < 6; p++)
        at[p] = (struct brook_position){"a", p, p % 2 ? BROOK_OFFSET_EARLIEST : BROOK_OFFSET_LATEST};
    ck_assert_int_eq(brook_admin_list_offsets(f.admin, at, NULL, 6, WAIT_MS, &f.error), 0);
    for (int32_t p = 0; p < 6; p++)
        ck_assert_int_eq(at[p].offset, p % 2 ? 0 : p + 1);
    at[0] = (struct brook_position){"a", 0, BROOK_OFFSET_LATEST};
    at[1] = (struct brook_position){"a", 9, BROOK_OFFSET_LATEST};
    at[2] = (struct brook_position){"none", 0, BROOK_OFFSET_LATEST};
    ck_assert_int_eq(brook_admin_list_offsets(f.admin, at, NULL, 3, WAIT_MS, &f.error),
                     -BROOK_E_UNKNOWN_PARTITION);
    ck_assert_int_eq(at[0].offset, 1);
    ck_assert_int_eq(at[1].offset, BROOK_OFFSET_NONE);
    ck_assert_int_eq(at[2].offset, BROOK_OFFSET_NONE);
    fixture_close(&f);
}
END_TEST

START_TEST(replicas_are_described_by_each_leader)
{
    struct fixture f;
    struct brook_replicas *all;
    fixture_open(&f, 2, NULL, NULL);
    stub_cluster_add_topic(f.cluster, "a", 3);
    for (int32_t p = 0; p < 3; p++)
        fill(f.cluster, "a", p, p + 2);
    stub_cluster_set_leader(f.cluster, "a", 2, -1);
    struct brook_partition_name names[] = {{"a", 0}, {"a", 1}, {"a", 2}, {"a", 3}, {"none", 0}};
    int64_t begun_ms = clock_boot_ms();
    ck_assert_int_eq(brook_admin_describe_replicas(f.admin, names, 5, WAIT_MS, &all, &f.error), 0);
    ck_assert_int_lt(clock_boot_ms() - begun_ms, WAIT_MS); /* no leader is an answer */
    ck_assert_uint_eq(all->count, 5);
    for (int32_t p = 0; p < 2; p++) {
        const struct brook_partition_replicas *one = &all->list[p];
        ck_assert_str_eq(one->topic, "a");
        ck_assert_int_eq(one->partition, p);
        ck_assert_int_eq(one->error.code, 0);
        ck_assert_int_eq(one->end, p + 2);
        ck_assert_int_eq(one->high_watermark, p + 1);
        ck_assert_uint_eq(one->replicas_count, 2);
        ck_assert_int_eq(one->replicas[0].broker_id, one->leader);
        ck_assert(one->replicas[0].is_in_sync && !one->replicas[1].is_in_sync);
        ck_assert_int_eq(one->replicas[1].end, p + 1);
        ck_assert_int_eq(one->replicas[1].lag, 1);
        ck_assert_int_eq(one->replicas[1].behind_ms, 5);
    }
    ck_assert_int_eq(all->list[2].error.code, BROOK_E_NO_LEADER);
    ck_assert_int_eq(all->list[2].end, -1);
    ck_assert_uint_eq(all->list[2].replicas_count, 0);
    ck_assert_int_eq(all->list[3].error.code, BROOK_E_UNKNOWN_PARTITION);
    ck_assert_int_eq(all->list[4].error.code, BROOK_E_UNKNOWN_TOPIC);
    brook_replicas_free(all);
    names[1].partition = -1;
    ck_assert_int_eq(brook_admin_describe_replicas(f.admin, names, 2, WAIT_MS, &all, &f.error), -BROOK_E_INVALID);
    names[1].topic = "a/b";
    ck_assert_int_eq(brook_admin_describe_replicas(f.admin, names, 2, WAIT_MS, &all, &f.error),
                     -BROOK_E_ILLEGAL_NAME);
    fixture_close(&f);
}
END_TEST

START_TEST(offsets_follow_a_leader_and_wait_for_one)
{
    struct fixture f;
    fixture_open(&f, 2, NULL, NULL);
    stub_cluster_add_topic(f.cluster, "a", 1);
    fill(f.cluster, "a", 0, 3);
    struct brook_position at = {"a", 0, BROOK_OFFSET_LATEST};
    ck_assert_int_eq(brook_admin_list_offsets(f.admin, &at, NULL, 1, WAIT_MS, &f.error), 0);
    stub_cluster_set_leader(f.cluster, "a", 0, 2);
    at.offset = BROOK_OFFSET_LATEST;
    ck_assert_int_eq(brook_admin_list_offsets(f.admin, &at, NULL, 1, WAIT_MS, &f.error), 0);
    ck_assert_int_eq(at.offset, 3);
    stub_cluster_set_leader(f.cluster, "a", 0, -1);
    at.offset = BROOK_OFFSET_LATEST;
    ck_assert_int_eq(brook_admin_list_offsets(f.admin, &at, NULL, 1, 300, &f.error), -BROOK_E_TIMED_OUT);
    ck_assert_int_eq(at.offset, BROOK_OFFSET_NONE);
    fixture_close(&f);
}
END_TEST

/* ---- deleting records ------------------------------------------------------------------------------- */

struct deletions { /* the stub's threads write here */
    unsigned hang_ups; /* so many requests are carried out and not answered */
    int64_t starts[8];
    _Atomic unsigned validated;
};

/* Partition p ends at 100 + p. */
static enum stub_verdict delete_records(void *arg, const struct stub_request *q)
{
    struct deletions *d = arg;
    if (q->request->body_case != BROOK__REQUEST__BODY_DELETE_RECORDS)
        return STUB_PASS;
    const Brook__DeleteRecordsRequest *asked = q->request->delete_records;
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__DeleteRecordsResponse answer = BROOK__DELETE_RECORDS_RESPONSE__INIT;
    Brook__DeletedRecords results[8], *list[8];
    Brook__Status status = BROOK__STATUS__INIT;
    status.has_code = 1;
    status.code = BROOK_E_OFFSET_OUT_OF_RANGE;
    d->validated += asked->validate_only ? 1 : 0;
    for (size_t i = 0; i < asked->n_partitions; i++) {
        const Brook__DeleteRecordsPartition *entry = asked->partitions[i];
        int64_t end = 100 + entry->partition;
        brook__deleted_records__init(&results[i]);
        list[i] = &results[i];
        ck_assert_int_eq(q->broker_id, 1 + entry->partition % 3);
        if (entry->before_offset > end) {
            results[i].status = &status;
            continue;
        }
        results[i].has_log_start_offset = 1;
        results[i].log_start_offset = entry->before_offset < 0 ? end : entry->before_offset;
        if (!asked->validate_only)
            d->starts[entry->partition] = results[i].log_start_offset;
    }
    if (d->hang_ups > 0) {
        d->hang_ups--;
        stub_close(q->connection);
        return STUB_DONE;
    }
    answer.n_partitions = asked->n_partitions;
    answer.partitions = list;
    response.body_case = BROOK__RESPONSE__BODY_DELETE_RECORDS;
    response.delete_records = &answer;
    stub_reply(q, &response, NULL, 0, 0);
    return STUB_DONE;
}

START_TEST(records_are_deleted_at_each_leader)
{
    struct fixture f;
    struct deletions d = {0};
    fixture_open(&f, 3, delete_records, &d);
    stub_cluster_add_topic(f.cluster, "a", 4);
    struct brook_position at[4] = {{"a", 0, 7}, {"a", 1, BROOK_OFFSET_LATEST}, {"a", 2, 500}, {"a", 3, 0}};
    ck_assert_int_eq(brook_admin_delete_records(f.admin, at, 2, true, WAIT_MS, &f.error), 0);
    ck_assert_uint_eq(d.validated, 2);
    ck_assert_int_eq(d.starts[0] + d.starts[1], 0);
    at[0].offset = 7;
    at[1].offset = BROOK_OFFSET_LATEST;
    ck_assert_int_eq(brook_admin_delete_records(f.admin, at, 4, false, WAIT_MS, &f.error),
                     -BROOK_E_OFFSET_OUT_OF_RANGE);
    ck_assert_ptr_nonnull(strstr(f.error.text, "a/2"));
    ck_assert_int_eq(at[0].offset, 7);
    ck_assert_int_eq(at[1].offset, 101);
    ck_assert_int_eq(at[2].offset, BROOK_OFFSET_NONE);
    ck_assert_int_eq(at[3].offset, 0);
    at[0].offset = BROOK_OFFSET_EARLIEST;
    ck_assert_int_eq(brook_admin_delete_records(f.admin, at, 1, false, WAIT_MS, &f.error), -BROOK_E_INVALID);
    fixture_close(&f);
}
END_TEST

START_TEST(a_lost_answer_to_a_deletion_is_asked_for_again_where_that_does_no_harm)
{
    struct fixture f;
    struct deletions d = {.hang_ups = 1};
    fixture_open(&f, 3, delete_records, &d);
    stub_cluster_add_topic(f.cluster, "a", 1);
    struct brook_position at = {"a", 0, 7};
    ck_assert_int_eq(brook_admin_delete_records(f.admin, &at, 1, false, WAIT_MS, &f.error), 0);
    ck_assert_int_eq(at.offset, 7);
    ck_assert_uint_eq(stub_cluster_requests(f.cluster, BROOK__REQUEST__BODY_DELETE_RECORDS), 2);
    d.hang_ups = 1;
    at.offset = BROOK_OFFSET_LATEST;
    ck_assert_int_eq(brook_admin_delete_records(f.admin, &at, 1, false, WAIT_MS, &f.error),
                     -BROOK_E_OUTCOME_UNKNOWN);
    ck_assert_int_eq(at.offset, BROOK_OFFSET_NONE);
    ck_assert_uint_eq(stub_cluster_requests(f.cluster, BROOK__REQUEST__BODY_DELETE_RECORDS), 3);
    fixture_close(&f);
}
END_TEST

START_TEST(a_call_without_a_broker_says_what_stood_in_the_way)
{
    struct fixture f;
    struct brook_cluster *cluster;
    fixture_open(&f, 1, NULL, NULL);
    brook_admin_free(f.admin);
    brook_config_set(f.config, "bootstrap.servers", "127.0.0.1:1", NULL);
    ck_assert_int_eq(brook_admin_new(f.config, &f.admin, &f.error), 0);
    int64_t before = clock_boot_ms();
    ck_assert_int_eq(brook_admin_describe_cluster(f.admin, NULL, 0, 200, &cluster, &f.error),
                     -BROOK_E_TIMED_OUT);
    ck_assert_int_ge(clock_boot_ms() - before, 199);
    ck_assert_msg(strstr(f.error.text, "127.0.0.1:1") != NULL, "%s", f.error.text);
    fixture_close(&f);
}
END_TEST

static enum stub_verdict answer_late(void *arg, const struct stub_request *q)
{
    if (q->request->body_case != BROOK__REQUEST__BODY_METADATA || q->number > 0)
        return STUB_PASS;
    stub_reply_default(q, 200);
    return STUB_DONE;
}

START_TEST(an_answer_that_comes_too_late_belongs_to_no_later_call)
{
    struct fixture f;
    struct brook_cluster *cluster;
    fixture_open(&f, 1, answer_late, NULL);
    stub_cluster_add_topic(f.cluster, "a", 1);
    ck_assert_int_eq(brook_admin_describe_cluster(f.admin, NULL, 0, 50, &cluster, &f.error),
                     -BROOK_E_TIMED_OUT);
    for (int i = 0; i < 20; i++) {
        const char *name = i % 2 ? "a" : "b";
        ck_assert_int_eq(brook_admin_describe_cluster(f.admin, &name, 1, WAIT_MS, &cluster, &f.error), 0);
        ck_assert_str_eq(cluster->topics[0].name, name);
        brook_cluster_free(cluster);
    }
    fixture_close(&f);
}
END_TEST

/* ---- the controller's affairs ----------------------------------------------------------------------- */

struct affairs {
    int64_t quota;
    size_t replicas;
};

static enum stub_verdict conduct(void *arg, const struct stub_request *q)
{
    struct affairs *a = arg;
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__Status status = BROOK__STATUS__INIT;
    Brook__PartitionResult good = BROOK__PARTITION_RESULT__INIT, bad = good, *results[] = {&good, &bad};
    Brook__ElectLeadersResponse elected = BROOK__ELECT_LEADERS_RESPONSE__INIT;
    Brook__ReassignResponse moved = BROOK__REASSIGN_RESPONSE__INIT;
    Brook__ListReassignmentsResponse listed = BROOK__LIST_REASSIGNMENTS_RESPONSE__INIT;
    Brook__RunningReassignment running = BROOK__RUNNING_REASSIGNMENT__INIT, *list[] = {&running};
    int32_t replicas[] = {1, 2, 3};
    status.has_code = 1;
    status.code = BROOK_E_PREFERRED_NOT_AVAILABLE;
    bad.status = &status;
    response.body_case = (Brook__Response__BodyCase)q->request->body_case;
    switch (q->request->body_case) {
    case BROOK__REQUEST__BODY_ELECT_LEADERS:
        elected.n_partitions = q->request->elect_leaders->n_partitions;
        elected.partitions = results;
        response.elect_leaders = &elected;
        break;
    case BROOK__REQUEST__BODY_REASSIGN:
        a->quota = q->request->reassign->quota_bytes;
        a->replicas = q->request->reassign->n_partitions ? q->request->reassign->partitions[0]->n_replicas : 99;
        moved.n_partitions = q->request->reassign->n_partitions;
        moved.partitions = results;
        response.reassign = &moved;
        break;
    case BROOK__REQUEST__BODY_LIST_REASSIGNMENTS:
        running.has_topic = running.has_partition = 1;
        running.topic = envelope_text("a");
        running.partition = 4;
        running.replicas = replicas;
        running.n_replicas = 3;
        running.adding = replicas + 2;
        running.n_adding = 1;
        running.removing = replicas;
        running.n_removing = 1;
        running.target = replicas + 1;
        running.n_target = 2;
        listed.n_partitions = 1;
        listed.partitions = list;
        response.list_reassignments = &listed;
        break;
    default:
        return STUB_PASS;
    }
    stub_reply(q, &response, NULL, 0, 0);
    return STUB_DONE;
}

START_TEST(elections_and_moves_answer_for_each_partition)
{
    struct fixture f;
    struct affairs a = {0};
    struct brook_error errors[2];
    const struct brook_partition_name names[] = {{"a", 0}, {"a", 1}};
    const int32_t replicas[] = {2, 3};
    const struct brook_partition_plan plans[] = {{"a", 0, replicas, 2}, {"a", 1, NULL, 0}};
    struct brook_reassignments *running;
    fixture_open(&f, 1, conduct, &a);
    ck_assert_int_eq(brook_admin_elect_leaders(f.admin, names, 2, false, WAIT_MS, errors, &f.error),
                     -BROOK_E_PREFERRED_NOT_AVAILABLE);
    ck_assert_int_eq(errors[0].code, 0);
    ck_assert_int_eq(errors[1].code, BROOK_E_PREFERRED_NOT_AVAILABLE);
    ck_assert_int_eq(brook_admin_elect_leaders(f.admin, names, 1, false, WAIT_MS, NULL, &f.error), 0);
    ck_assert_int_eq(brook_admin_reassign(f.admin, plans, 2, 5000, false, WAIT_MS, errors, &f.error),
                     -BROOK_E_PREFERRED_NOT_AVAILABLE);
    ck_assert_int_eq(a.quota, 5000);
    ck_assert_uint_eq(a.replicas, 2);
    ck_assert_int_eq(brook_admin_reassign(f.admin, plans + 1, 1, -1, false, WAIT_MS, NULL, &f.error), 0);
    ck_assert_uint_eq(a.replicas, 0);
    ck_assert_int_eq(brook_admin_list_reassignments(f.admin, WAIT_MS, &running, &f.error), 0);
    ck_assert_uint_eq(running->count, 1);
    ck_assert_str_eq(running->list[0].topic, "a");
    ck_assert_int_eq(running->list[0].partition, 4);
    ck_assert_int_eq(running->list[0].adding[0], 3);
    ck_assert_int_eq(running->list[0].removing[0], 1);
    ck_assert_uint_eq(running->list[0].target_count, 2);
    brook_reassignments_free(running);
    fixture_close(&f);
}
END_TEST

SUITE_MAIN("client/admin", SUITE_TEST(a_topic_is_created_with_its_settings),
           SUITE_TEST(refusals_come_back_as_they_are),
           SUITE_TEST(a_lost_answer_to_a_change_is_not_asked_for_again), SUITE_TEST(the_cluster_is_described),
           SUITE_TEST(groups_and_settings_are_described), SUITE_TEST(offsets_are_asked_of_each_leader),
           SUITE_TEST(replicas_are_described_by_each_leader), SUITE_TEST(offsets_follow_a_leader_and_wait_for_one),
           SUITE_TEST(records_are_deleted_at_each_leader),
           SUITE_TEST(a_lost_answer_to_a_deletion_is_asked_for_again_where_that_does_no_harm),
           SUITE_TEST(elections_and_moves_answer_for_each_partition),
           SUITE_TEST(a_call_without_a_broker_says_what_stood_in_the_way),
           SUITE_TEST(an_answer_that_comes_too_late_belongs_to_no_later_call))
