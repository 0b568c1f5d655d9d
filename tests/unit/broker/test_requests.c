/* Metadata, list_offsets, and what holds for every request. */
#include "broker/partition/partition.h"
#include "proto/base/clock.h"
#include "proto/wire/envelope.h"
#include "tests/support/rig.h"
#include "tests/support/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct case_ {
    struct rig rig;
    struct topic_id t;
    struct raw_client c;
};

static void begin(struct case_ *x)
{
    rig_prepare(&x->rig);
    x->t = fake_cluster_add_topic(x->rig.cluster, "orders", 3);
    fake_cluster_add_topic(x->rig.cluster, "logs", 1);
    rig_start(&x->rig);
    raw_open(&x->c, x->rig.port);
}

static void end(struct case_ *x)
{
    raw_close(&x->c);
    rig_stop(&x->rig);
}

static Brook__MetadataResponse *metadata(struct raw_client *c, bool all, const char *const *names,
                                         size_t count)
{
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__MetadataRequest asked = BROOK__METADATA_REQUEST__INIT;
    ProtobufCBinaryData topics[16];
    for (size_t i = 0; i < count; i++)
        topics[i] = envelope_text(names[i]);
    asked.has_all = all;
    asked.all = all;
    asked.n_topics = count;
    asked.topics = topics;
    request.body_case = BROOK__REQUEST__BODY_METADATA;
    request.metadata = &asked;
    Brook__Response *r = raw_ask(c, &request, NULL, 0);
    ck_assert_int_eq(raw_status(r), 0);
    return r->metadata;
}

START_TEST(metadata_names_brokers_topics_and_leaders)
{
    static const char *const names[] = {"orders", "nothing", "bad/name", ""};
    struct case_ x;
    begin(&x);
    fake_cluster_set_leader(x.rig.cluster, "orders", 1, 2, 5);
    fake_cluster_set_leader(x.rig.cluster, "orders", 2, -1, 6);
    fake_cluster_settle(x.rig.cluster);
    Brook__MetadataResponse *m = metadata(&x.c, false, names, 4);
    ck_assert_uint_eq(m->n_brokers, 1);
    ck_assert_int_eq(m->brokers[0]->broker_id, 1);
    ck_assert_uint_eq(m->brokers[0]->port, (uint32_t)x.rig.port);
    ck_assert(envelope_bytes_equal(&m->cluster_id, "fake"));
    ck_assert_int_eq(m->controller_id, 1);
    ck_assert_uint_eq(m->n_topics, 4);
    const Brook__TopicInfo *t = m->topics[0];
    ck_assert(envelope_bytes_equal(&t->name, "orders"));
    ck_assert_mem_eq(t->topic_id.data, x.t.bytes, 16);
    ck_assert_uint_eq(t->n_partitions, 3);
    ck_assert_int_eq(t->partitions[0]->leader, 1);
    ck_assert_uint_eq(t->partitions[0]->n_isr, 1);
    ck_assert_int_eq(t->partitions[1]->leader, 2);
    ck_assert_int_eq(t->partitions[1]->leader_epoch, 5);
    ck_assert_int_eq(t->partitions[2]->error, BROOK_E_NO_LEADER);
    ck_assert_int_eq(envelope_status_code(m->topics[1]->status), BROOK_E_UNKNOWN_TOPIC);
    ck_assert_int_eq(envelope_status_code(m->topics[2]->status), BROOK_E_ILLEGAL_NAME);
    ck_assert_int_eq(envelope_status_code(m->topics[3]->status), BROOK_E_ILLEGAL_NAME);
    m = metadata(&x.c, true, NULL, 0);
    ck_assert_uint_eq(m->n_topics, 2);
    m = metadata(&x.c, false, NULL, 0);
    ck_assert_uint_eq(m->n_topics, 0);
    end(&x);
}
END_TEST

/* PB-03: names are bytes, and all of them count. */
START_TEST(names_with_anything_in_them_are_refused)
{
    static const struct {
        const char *bytes;
        size_t count;
    } names[] = {{"a\0b", 3}, {"orders\0", 7}, {"\xff", 1}, {"..", 2}, {"/", 1}};
    struct case_ x;
    begin(&x);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        Brook__Request request = BROOK__REQUEST__INIT;
        Brook__MetadataRequest asked = BROOK__METADATA_REQUEST__INIT;
        ProtobufCBinaryData topic = envelope_bytes(names[i].bytes, names[i].count);
        asked.n_topics = 1;
        asked.topics = &topic;
        request.body_case = BROOK__REQUEST__BODY_METADATA;
        request.metadata = &asked;
        Brook__Response *r = raw_ask(&x.c, &request, NULL, 0);
        ck_assert_int_eq(envelope_status_code(r->metadata->topics[0]->status), BROOK_E_ILLEGAL_NAME);
        ck_assert_uint_eq(r->metadata->topics[0]->name.len, names[i].count);
    }
    end(&x);
}
END_TEST

static Brook__ListedOffset *list(struct case_ *x, int32_t partition, int query, int64_t timestamp)
{
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__ListOffsetsRequest asked = BROOK__LIST_OFFSETS_REQUEST__INIT;
    Brook__ListOffsetsPartition entry = BROOK__LIST_OFFSETS_PARTITION__INIT, *entries = &entry;
    entry.has_topic_id = entry.has_partition = entry.has_query = entry.has_timestamp = true;
    entry.topic_id = envelope_bytes(x->t.bytes, 16);
    entry.partition = partition;
    entry.query = (Brook__OffsetQuery)query;
    entry.timestamp = timestamp;
    asked.n_partitions = 1;
    asked.partitions = &entries;
    request.body_case = BROOK__REQUEST__BODY_LIST_OFFSETS;
    request.list_offsets = &asked;
    Brook__Response *r = raw_ask(&x->c, &request, NULL, 0);
    ck_assert_int_eq(raw_status(r), 0);
    ck_assert_uint_eq(r->list_offsets->n_partitions, 1);
    return r->list_offsets->partitions[0];
}

START_TEST(offsets_are_found_at_both_ends_and_by_time)
{
    enum { EARLIEST = BROOK__OFFSET_QUERY__EARLIEST, LATEST = BROOK__OFFSET_QUERY__LATEST };
    struct case_ x;
    uint8_t batch[4000];
    begin(&x);
    size_t bytes = raw_batch(batch, sizeof batch, 10, 20); /* times 1700000000001 to ...010 */
    raw_send_produce(&x.c, &x.t, 0, BROOK__ACKS__ACKS_LEADER, batch, bytes);
    ck_assert_int_eq(raw_status(raw_receive(&x.c)), 0);
    ck_assert_int_eq(list(&x, 0, EARLIEST, -1)->offset, 0);
    Brook__ListedOffset *l = list(&x, 0, LATEST, -1);
    ck_assert_int_eq(l->offset, 10);
    ck_assert_int_eq(l->leader_epoch, 1);
    ck_assert_int_eq(l->timestamp, -1);
    l = list(&x, 0, BROOK__OFFSET_QUERY__BY_TIME, 1700000000004);
    ck_assert_int_eq(l->offset, 3);
    ck_assert_int_eq(l->timestamp, 1700000000004);
    ck_assert_int_eq(list(&x, 0, BROOK__OFFSET_QUERY__BY_TIME, 0)->offset, 0);
    l = list(&x, 0, BROOK__OFFSET_QUERY__BY_TIME, 1800000000000);
    ck_assert_int_eq(l->offset, 10);
    ck_assert_int_eq(l->timestamp, -1);
    ck_assert_int_eq(list(&x, 1, LATEST, -1)->offset, 0);
    ck_assert_int_eq(envelope_status_code(list(&x, 8, LATEST, -1)->status), BROOK_E_UNKNOWN_PARTITION);
    ck_assert_int_eq(envelope_status_code(list(&x, 0, 77, -1)->status), BROOK_E_UNSUPPORTED);
    end(&x);
}
END_TEST

static Brook__EpochEnd *epoch_end(struct case_ *x, int32_t partition, int32_t current_epoch, int32_t epoch)
{
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__EpochEndRequest asked = BROOK__EPOCH_END_REQUEST__INIT;
    Brook__EpochEndPartition entry = BROOK__EPOCH_END_PARTITION__INIT, *entries = &entry;
    entry.has_topic_id = entry.has_partition = entry.has_current_epoch = entry.has_epoch = true;
    entry.topic_id = envelope_bytes(x->t.bytes, 16);
    entry.partition = partition;
    entry.current_epoch = current_epoch;
    entry.epoch = epoch;
    asked.n_partitions = 1;
    asked.partitions = &entries;
    request.body_case = BROOK__REQUEST__BODY_EPOCH_END;
    request.epoch_end = &asked;
    Brook__Response *r = raw_ask(&x->c, &request, NULL, 0);
    ck_assert_int_eq(raw_status(r), 0);
    ck_assert_uint_eq(r->epoch_end->n_partitions, 1);
    return r->epoch_end->partitions[0];
}

START_TEST(a_leader_says_where_an_epoch_ends)
{
    struct case_ x;
    uint8_t batch[4000];
    begin(&x);
    size_t bytes = raw_batch(batch, sizeof batch, 10, 20);
    raw_send_produce(&x.c, &x.t, 0, BROOK__ACKS__ACKS_LEADER, batch, bytes);
    ck_assert_int_eq(raw_status(raw_receive(&x.c)), 0);
    Brook__EpochEnd *end_ = epoch_end(&x, 0, 1, 1);
    ck_assert_int_eq(end_->epoch, 1);
    ck_assert_int_eq(end_->end_offset, 10);
    end_ = epoch_end(&x, 0, -1, 7);
    ck_assert_int_eq(end_->epoch, 1);
    ck_assert_int_eq(end_->end_offset, 10);
    end_ = epoch_end(&x, 0, 1, 0);
    ck_assert_int_eq(end_->epoch, -1);
    ck_assert_int_eq(end_->end_offset, 0);
    ck_assert_int_eq(envelope_status_code(epoch_end(&x, 0, 0, 1)->status), BROOK_E_FENCED_EPOCH);
    ck_assert_int_eq(envelope_status_code(epoch_end(&x, 0, 2, 1)->status), BROOK_E_UNKNOWN_EPOCH);
    ck_assert_int_eq(envelope_status_code(epoch_end(&x, 8, 1, 1)->status), BROOK_E_UNKNOWN_PARTITION);
    end(&x);
}
END_TEST

static Brook__PartitionReplicas *describe_replicas(struct case_ *x, int32_t partition, int32_t current_epoch)
{
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__DescribeReplicasRequest asked = BROOK__DESCRIBE_REPLICAS_REQUEST__INIT;
    Brook__DescribeReplicasPartition entry = BROOK__DESCRIBE_REPLICAS_PARTITION__INIT, *entries = &entry;
    entry.has_topic_id = entry.has_partition = entry.has_current_epoch = true;
    entry.topic_id = envelope_bytes(x->t.bytes, 16);
    entry.partition = partition;
    entry.current_epoch = current_epoch;
    asked.n_partitions = 1;
    asked.partitions = &entries;
    request.body_case = BROOK__REQUEST__BODY_DESCRIBE_REPLICAS;
    request.describe_replicas = &asked;
    Brook__Response *r = raw_ask(&x->c, &request, NULL, 0);
    ck_assert_int_eq(raw_status(r), 0);
    ck_assert_uint_eq(r->describe_replicas->n_partitions, 1);
    return r->describe_replicas->partitions[0];
}

START_TEST(a_leader_says_how_far_replicas_are)
{
    struct case_ x;
    uint8_t batch[4000];
    begin(&x);
    size_t bytes = raw_batch(batch, sizeof batch, 10, 20);
    raw_send_produce(&x.c, &x.t, 0, BROOK__ACKS__ACKS_LEADER, batch, bytes);
    ck_assert_int_eq(raw_status(raw_receive(&x.c)), 0);
    Brook__PartitionReplicas *p = describe_replicas(&x, 0, -1);
    ck_assert_ptr_null(p->status);
    ck_assert_int_eq(p->leader_epoch, 1);
    ck_assert_int_eq(p->log_start_offset, 0);
    ck_assert_int_eq(p->high_watermark, 10);
    ck_assert_int_eq(p->log_end_offset, 10);
    ck_assert_uint_eq(p->n_replicas, 1);
    ck_assert_int_eq(p->replicas[0]->broker_id, 1);
    ck_assert(p->replicas[0]->in_sync);
    ck_assert_int_eq(p->replicas[0]->log_end_offset, 10);
    ck_assert_int_eq(p->replicas[0]->lag, 0);
    ck_assert_int_eq(p->replicas[0]->behind_ms, 0);
    ck_assert_int_eq(envelope_status_code(describe_replicas(&x, 0, 0)->status), BROOK_E_FENCED_EPOCH);
    ck_assert_int_eq(envelope_status_code(describe_replicas(&x, 8, -1)->status), BROOK_E_UNKNOWN_PARTITION);
    fake_cluster_set_leader(x.rig.cluster, "orders", 0, 2, 2);
    fake_cluster_settle(x.rig.cluster);
    p = describe_replicas(&x, 0, -1);
    ck_assert_int_eq(envelope_status_code(p->status), BROOK_E_NOT_LEADER);
    ck_assert_uint_eq(p->n_replicas, 0);
    end(&x);
}
END_TEST

/* ---- deleting records ---------------------------------------------------------------------------------- */

#define NOT_GIVEN INT64_MIN

static Brook__DeletedRecords *delete_records(struct case_ *x, int32_t partition, int64_t before, bool validate_only)
{
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__DeleteRecordsRequest asked = BROOK__DELETE_RECORDS_REQUEST__INIT;
    Brook__DeleteRecordsPartition entry = BROOK__DELETE_RECORDS_PARTITION__INIT, *entries = &entry;
    entry.has_topic_id = entry.has_partition = true;
    entry.topic_id = envelope_bytes(x->t.bytes, 16);
    entry.partition = partition;
    entry.has_before_offset = before != NOT_GIVEN;
    entry.before_offset = before;
    asked.n_partitions = 1;
    asked.partitions = &entries;
    asked.has_validate_only = true;
    asked.validate_only = validate_only;
    request.body_case = BROOK__REQUEST__BODY_DELETE_RECORDS;
    request.delete_records = &asked;
    Brook__Response *r = raw_ask(&x->c, &request, NULL, 0);
    ck_assert_int_eq(raw_status(r), 0);
    ck_assert_uint_eq(r->delete_records->n_partitions, 1);
    return r->delete_records->partitions[0];
}

static int refused(const Brook__DeletedRecords *deleted)
{
    ck_assert_int_eq(deleted->log_start_offset, -1);
    return envelope_status_code(deleted->status);
}

static int pull_status(struct case_ *x, int64_t offset)
{
    struct raw_pull pull;
    raw_pull_init(&pull, &x->t, 0, offset);
    return envelope_status_code(raw_pull(&x->c, &pull)->partitions[0]->status);
}

START_TEST(deleted_records_are_out_of_range_and_the_start_says_so)
{
    enum { EARLIEST = BROOK__OFFSET_QUERY__EARLIEST };
    struct case_ x;
    begin(&x);
    for (int i = 0; i < 10; i++)
        raw_produce(&x.c, &x.t, 0, 20);
    ck_assert_int_eq(delete_records(&x, 0, 6, true)->log_start_offset, 6);
    ck_assert_int_eq(list(&x, 0, EARLIEST, -1)->offset, 0);
    ck_assert_int_eq(pull_status(&x, 0), 0);
    ck_assert_int_eq(delete_records(&x, 0, 6, false)->log_start_offset, 6);
    ck_assert_int_eq(list(&x, 0, EARLIEST, -1)->offset, 6);
    ck_assert_int_eq(list(&x, 0, BROOK__OFFSET_QUERY__BY_TIME, 0)->offset, 6);
    ck_assert_int_eq(pull_status(&x, 5), BROOK_E_OFFSET_OUT_OF_RANGE);
    ck_assert_int_eq(pull_status(&x, 6), 0);
    ck_assert_int_eq(delete_records(&x, 0, 3, false)->log_start_offset, 6);

    ck_assert_int_eq(refused(delete_records(&x, 0, 11, false)), BROOK_E_OFFSET_OUT_OF_RANGE);
    ck_assert_int_eq(refused(delete_records(&x, 0, -2, false)), BROOK_E_OFFSET_OUT_OF_RANGE);
    ck_assert_int_eq(refused(delete_records(&x, 0, NOT_GIVEN, false)), BROOK_E_INVALID);
    ck_assert_int_eq(refused(delete_records(&x, 7, 1, false)), BROOK_E_UNKNOWN_PARTITION);
    ck_assert_int_eq(delete_records(&x, 0, -1, false)->log_start_offset, 10);
    ck_assert_int_eq(raw_produce(&x.c, &x.t, 0, 20), 10);
    ck_assert_int_eq(pull_status(&x, 10), 0);

    fake_cluster_set_leader(x.rig.cluster, "orders", 0, 2, 5);
    fake_cluster_settle(x.rig.cluster);
    ck_assert_int_eq(refused(delete_records(&x, 0, -1, false)), BROOK_E_NOT_LEADER);
    end(&x);
}
END_TEST

START_TEST(a_lookup_outlives_its_client)
{
    struct case_ x;
    begin(&x);
    for (int i = 0; i < 50; i++) {
        struct raw_client c;
        Brook__Request request = BROOK__REQUEST__INIT;
        Brook__ListOffsetsRequest asked = BROOK__LIST_OFFSETS_REQUEST__INIT;
        Brook__ListOffsetsPartition entry = BROOK__LIST_OFFSETS_PARTITION__INIT, *entries = &entry;
        entry.has_topic_id = entry.has_partition = entry.has_query = true;
        entry.topic_id = envelope_bytes(x.t.bytes, 16);
        entry.partition = 0;
        entry.query = BROOK__OFFSET_QUERY__BY_TIME;
        asked.n_partitions = 1;
        asked.partitions = &entries;
        request.body_case = BROOK__REQUEST__BODY_LIST_OFFSETS;
        request.list_offsets = &asked;
        raw_open(&c, x.rig.port);
        raw_send(&c, &request, NULL, 0);
        raw_close(&c);
    }
    end(&x);
}
END_TEST

START_TEST(an_unknown_request_is_answered)
{
    struct case_ x;
    /* field 99 of Request, which this version does not have: {correlation_id: 7, 99: {}} */
    static const uint8_t frame[] = {0, 0, 0, 9, 0, 0, 0, 5, 0x08, 7, 0x9a, 0x06, 0x00};
    begin(&x);
    raw_send_bytes(&x.c, frame, sizeof frame);
    Brook__Response *r = raw_receive(&x.c);
    ck_assert_uint_eq(r->correlation_id, 7);
    ck_assert_int_eq(raw_status(r), BROOK_E_UNSUPPORTED);
    metadata(&x.c, true, NULL, 0); /* and the connection goes on */
    end(&x);
}
END_TEST

START_TEST(records_behind_a_request_without_records_are_refused)
{
    struct case_ x;
    begin(&x);
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__MetadataRequest asked = BROOK__METADATA_REQUEST__INIT;
    request.body_case = BROOK__REQUEST__BODY_METADATA;
    request.metadata = &asked;
    ck_assert_int_eq(raw_status(raw_ask(&x.c, &request, "records", 7)), BROOK_E_BAD_FRAME);
    end(&x);
}
END_TEST

START_TEST(too_much_in_one_request_is_refused)
{
    struct case_ x;
    begin(&x);
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__MetadataRequest asked = BROOK__METADATA_REQUEST__INIT;
    ProtobufCBinaryData *topics = calloc(1001, sizeof *topics);
    for (int i = 0; i < 1001; i++)
        topics[i] = envelope_text("orders");
    asked.n_topics = 1001;
    asked.topics = topics;
    request.body_case = BROOK__REQUEST__BODY_METADATA;
    request.metadata = &asked;
    ck_assert_int_eq(raw_status(raw_ask(&x.c, &request, NULL, 0)), BROOK_E_TOO_MANY);
    asked.n_topics = 1000;
    ck_assert_int_eq(raw_status(raw_ask(&x.c, &request, NULL, 0)), 0);
    free(topics);
    char client_id[300];
    memset(client_id, 'x', sizeof client_id);
    asked.n_topics = 0;
    request.has_client_id = true;
    request.client_id = envelope_bytes(client_id, 256);
    ck_assert_int_eq(raw_status(raw_ask(&x.c, &request, NULL, 0)), BROOK_E_INVALID);
    request.client_id.len = 255;
    ck_assert_int_eq(raw_status(raw_ask(&x.c, &request, NULL, 0)), 0);
    end(&x);
}
END_TEST

/* A request that lies behind others in a full queue until its deadline has passed must not take effect. */
START_TEST(a_request_whose_time_is_over_has_no_effect)
{
    struct case_ x;
    struct raw_client c;
    struct raw_pull pull;
    uint8_t batch[1000];
    rig_prepare(&x.rig);
    x.rig.net_settings.requests_in_flight_max = 1;
    x.t = fake_cluster_add_topic(x.rig.cluster, "orders", 3);
    rig_start(&x.rig);
    raw_open(&c, x.rig.port);
    raw_open(&x.c, x.rig.port);
    raw_pull_init(&pull, &x.t, 1, 0);
    pull.max_wait_ms = 150;
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__ProduceRequest produce = BROOK__PRODUCE_REQUEST__INIT;
    Brook__ProducePartition entry = BROOK__PRODUCE_PARTITION__INIT, *entries = &entry;
    size_t bytes = raw_batch(batch, sizeof batch, 1, 10);
    entry.has_topic_id = entry.has_partition = entry.has_records_bytes = true;
    entry.topic_id = envelope_bytes(x.t.bytes, 16);
    entry.partition = 0;
    entry.records_bytes = (uint32_t)bytes;
    produce.n_partitions = 1;
    produce.partitions = &entries;
    request.body_case = BROOK__REQUEST__BODY_PRODUCE;
    request.produce = &produce;
    request.has_deadline_ms = true;
    request.deadline_ms = 50;
    raw_hold(&c); /* in one write, so that they are read together */
    raw_send_pull(&c, &pull);
    raw_send(&c, &request, batch, bytes);
    raw_release(&c);
    ck_assert_int_eq(raw_status(raw_receive(&c)), 0);
    ck_assert_int_eq(raw_status(raw_receive(&c)), BROOK_E_REQUEST_EXPIRED);
    struct partition_marks marks;
    partition_marks(fake_cluster_partition(x.rig.cluster, "orders", 0), &marks);
    ck_assert_int_eq(marks.log_end, 0);
    raw_close(&c);
    end(&x);
}
END_TEST

START_TEST(replies_carry_their_requests_number)
{
    struct case_ x;
    begin(&x);
    for (int body = BROOK__REQUEST__BODY_HELLO; body <= BROOK__REQUEST__BODY_EPOCH_END; body++) {
        /* an empty body of each kind, under correlation id 200 + body */
        uint8_t frame[] = {0,    0,
                           0,    10,
                           0,    0,
                           0,    6,
                           0x08, (uint8_t)((200 + body) | 0x80),
                           1,    (uint8_t)((body << 3 | 2) | 0x80),
                           1,    0};
        if (body < 16) {
            frame[11] = (uint8_t)(body << 3 | 2);
            frame[12] = 0;
            frame[7] = 5;
            frame[3] = 9;
        }
        raw_send_bytes(&x.c, frame, body < 16 ? 13 : 14);
        Brook__Response *r = raw_receive(&x.c);
        ck_assert_msg(r != NULL, "body %d", body);
        ck_assert_uint_eq(r->correlation_id, (uint64_t)(200 + body));
    }
    end(&x);
}
END_TEST

START_TEST(metadata_of_many_partitions_is_quick)
{
    struct case_ x;
    begin(&x);
    for (int i = 0; i < 10; i++) {
        char name[32];
        snprintf(name, sizeof name, "many-%d", i);
        fake_cluster_add_topic(x.rig.cluster, name, 25);
    }
    fake_cluster_settle(x.rig.cluster);
    int64_t one = INT64_MAX, all = INT64_MAX;
    static const char *const names[] = {"orders"};
    for (int i = 0; i < 10; i++) {
        int64_t began = clock_boot_ns();
        metadata(&x.c, false, names, 1);
        int64_t took = clock_boot_ns() - began;
        one = took < one ? took : one;
        began = clock_boot_ns();
        ck_assert_uint_eq(metadata(&x.c, true, NULL, 0)->n_topics, 12);
        took = clock_boot_ns() - began;
        all = took < all ? took : all;
    }
    fprintf(stderr, "# 1 topic %lld us, 254 partitions %lld us\n", (long long)(one / 1000),
            (long long)(all / 1000));
    ck_assert_int_lt(all, one * 100);
    end(&x);
}
END_TEST

SUITE_MAIN("broker/requests", SUITE_TEST(metadata_names_brokers_topics_and_leaders),
           SUITE_TEST(names_with_anything_in_them_are_refused),
           SUITE_TEST(offsets_are_found_at_both_ends_and_by_time), SUITE_TEST(a_leader_says_where_an_epoch_ends),
           SUITE_TEST(a_leader_says_how_far_replicas_are),
           SUITE_TEST(a_lookup_outlives_its_client),
           SUITE_TEST(deleted_records_are_out_of_range_and_the_start_says_so),
           SUITE_TEST(an_unknown_request_is_answered),
           SUITE_TEST(records_behind_a_request_without_records_are_refused),
           SUITE_TEST(too_much_in_one_request_is_refused),
           SUITE_TEST(a_request_whose_time_is_over_has_no_effect),
           SUITE_TEST(replies_carry_their_requests_number), SUITE_TEST(metadata_of_many_partitions_is_quick))
