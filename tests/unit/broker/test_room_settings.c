/* Each setting of brookd arrives where it belongs: every one is given a value of its own in a file. */
#include "broker/room_settings.h"
#include "broker/settings_table.h"
#include "tests/support/suite.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct rooms {
    struct handler_settings handlers;
    struct net_settings net;
    struct cluster_settings cluster;
    int64_t rebalance_s; /* cluster's, in the setting's unit */
};

/* One field that has to have the value of `name`; a setting may go to several. */
struct place {
    const char *name;
    int64_t value;
    const char *field;
    size_t offset, bytes;
};
#define IN(name, value, field) \
    {name, value, #field, offsetof(struct rooms, field), sizeof(((struct rooms *)NULL)->field)}

static const struct place places[] = {
    IN("broker.id", 7, handlers.broker_id),
    IN("broker.id", 7, cluster.broker_id),
    IN("zookeeper.session.timeout.ms", 6001, cluster.zookeeper_session_timeout_ms),
    IN("num.io.threads", 11, net.threads_count),
    IN("num.disk.threads", 12, net.disk_threads_count),
    IN("num.disk.threads", 12, cluster.disk_threads_count),
    IN("num.partitions", 13, cluster.partitions_default),
    IN("default.replication.factor", 15, cluster.replicas_default),
    IN("min.insync.replicas", 14, cluster.topic_defaults.min_insync_replicas),
    IN("num.replica.fetchers", 18, cluster.replication.fetchers),
    IN("replica.lag.time.max.ms", 17003, cluster.replication.lag_ms_max),
    IN("replica.fetch.max.bytes", 17004, cluster.replication.fetch_partition_bytes),
    IN("replica.fetch.response.max.bytes", 17005, cluster.replication.fetch_bytes_max),
    IN("replica.fetch.wait.max.ms", 17006, cluster.replication.fetch_wait_ms_max),
    IN("replica.socket.timeout.ms", 17007, cluster.replication.fetch_timeout_ms),
    IN("leader.imbalance.check.interval.seconds", 16, rebalance_s),
    IN("leader.election.absent.wait.ms", 17001, cluster.absent_wait_ms),
    IN("replication.quota.bytes", 17002, cluster.replication_quota_bytes),
    IN("message.max.bytes", 1000001, handlers.message_bytes_max),
    IN("message.max.bytes", 1000001, cluster.topic_defaults.message_bytes_max),
    IN("log.segment.bytes", 50000001, cluster.topic_defaults.log.segment_bytes),
    IN("log.roll.ms", 70000001, cluster.topic_defaults.log.segment_ms),
    IN("log.retention.ms", 80000001, cluster.topic_defaults.log.retention_ms),
    IN("log.retention.bytes", 90000001, cluster.topic_defaults.log.retention_bytes),
    IN("log.retention.check.interval.ms", 60001, cluster.retention_check_ms),
    IN("log.index.size.max.bytes", 20000001, cluster.topic_defaults.log.segment_index_bytes),
    IN("log.index.interval.bytes", 5001, cluster.topic_defaults.log.index_interval_bytes),
    IN("log.segment.delete.delay.ms", 40001, cluster.topic_defaults.log.file_delete_delay_ms),
    IN("log.dir.min.free.bytes", 40002, cluster.free_bytes_min),
    IN("producer.ids.per.partition.max", 5007, cluster.topic_defaults.log.producers_max),
    IN("producer.id.expiration.ms", 40005, cluster.topic_defaults.log.producer_expiration_ms),
    IN("log.message.timestamp.before.max.ms", 40003, cluster.topic_defaults.timestamp_before_ms_max),
    IN("log.message.timestamp.after.max.ms", 40004, cluster.topic_defaults.timestamp_after_ms_max),
    IN("log.open.files.max", 4001, cluster.open_files_max),
    IN("log.flush.interval.messages", 10001, cluster.topic_defaults.durability.flush_messages),
    IN("log.flush.interval.ms", 1001, cluster.topic_defaults.durability.flush_ms),
    IN("log.cleaner.threads", 21, cluster.cleaner.threads),
    IN("log.cleaner.dedupe.buffer.size", 20000002, cluster.cleaner.map_bytes),
    IN("log.cleaner.io.max.bytes.per.second", 20000003, cluster.cleaner.bytes_per_s),
    IN("log.cleaner.backoff.ms", 1002, cluster.cleaner.backoff_ms),
    IN("log.cleaner.delete.retention.ms", 1003, cluster.topic_defaults.log.delete_retention_ms),
    IN("log.cleaner.min.compaction.lag.ms", 1004, cluster.topic_defaults.log.min_compaction_lag_ms),
    IN("log.cleaner.max.compaction.lag.ms", 1005, cluster.topic_defaults.log.max_compaction_lag_ms),
    IN("max.connections", 2001, net.connections_max),
    IN("max.connections.per.ip", 2002, net.connections_per_address_max),
    IN("connections.max.idle.ms", 30001, net.idle_ms_max),
    IN("connection.setup.timeout.ms", 30002, net.hello_ms_max),
    IN("socket.request.max.bytes", 100000001, net.frame_bytes_max),
    IN("socket.request.max.bytes", 100000001, handlers.frame_bytes_max),
    IN("socket.request.max.bytes", 100000001, cluster.replication.frame_bytes_max),
    IN("socket.request.timeout.ms", 30003, net.frame_ms_max),
    IN("socket.request.min.rate", 30004, net.frame_bytes_per_s_min),
    IN("socket.send.timeout.ms", 30005, net.send_ms_max),
    IN("socket.send.buffer.bytes", 30006, net.send_buffer_bytes),
    IN("socket.receive.buffer.bytes", 30007, net.receive_buffer_bytes),
    IN("queued.max.bytes", 200000001, net.queued_bytes_max),
    IN("queued.max.requests", 301, net.requests_in_flight_max),
    IN("queued.max.reply.bytes", 3000001, net.output_bytes_max),
    IN("fetch.max.bytes", 4000001, handlers.pull_bytes_max),
    IN("fetch.max.wait.ms", 30008, handlers.pull_wait_ms_max),
    IN("fetch.max.sessions", 302, handlers.pull_sessions_per_connection_max),
    IN("fetch.max.parked", 303, handlers.pulls_parked_per_connection_max),
    IN("request.max.partitions", 304, handlers.partitions_per_request_max),
    IN("request.max.partitions", 304, handlers.topics_per_request_max),
    IN("request.max.timeout.ms", 30009, handlers.request_timeout_ms_max),
    IN("request.max.expanded.bytes", 5000001, handlers.expanded_bytes_max),
    IN("request.max.expanded.bytes", 5000001, cluster.cleaner.expanded_bytes_max),
    IN("controlled.shutdown.max.ms", 30010, cluster.controlled_shutdown_ms_max),
    IN("shutdown.flush.ms", 30011, net.stop_ms_max),
};
#define PLACES_COUNT (sizeof places / sizeof places[0])

static const char *const texts[][2] = {
    {"listeners", "PLAINTEXT://127.0.0.1:1111"}, {"advertised.listeners", "there:2222"}, {"broker.rack", "north"},
    {"log.dirs", "/d/1,/d/2"}, {"zookeeper.connect", "z:3333/p"}, {"log.level", "warn"}, {"unclean.leader.election.enable", "true"},
    {"auto.leader.rebalance.enable", "false"}, {"log.format", "json"},
    {"log.durability", "interval"}, {"log.cleanup.policy", "compact"}, {"log.cleaner.min.cleanable.ratio", "0.25"},
    {"log.message.timestamp.type", "LogAppendTime"},
};
#define TEXTS_COUNT (sizeof texts / sizeof texts[0])

static int64_t read_place(const struct rooms *rooms, const struct place *p)
{
    const char *at = (const char *)rooms + p->offset;
    int32_t narrow;
    int64_t wide;
    if (p->bytes == sizeof narrow) {
        memcpy(&narrow, at, sizeof narrow);
        return narrow;
    }
    ck_assert_uint_eq(p->bytes, sizeof wide);
    memcpy(&wide, at, sizeof wide);
    return wide;
}

static void divide(const struct settings *s, struct rooms *rooms)
{
    *rooms = (struct rooms){.handlers = room_settings_handlers(s),
                            .net = room_settings_net(s),
                            .cluster = room_settings_cluster(s)};
    rooms->rebalance_s = rooms->cluster.rebalance_interval_ms / 1000;
}

static const char *write_file(void)
{
    static char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/brookd.conf", suite_directory());
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    for (size_t i = 0; i < PLACES_COUNT; i++)
        if (i == 0 || strcmp(places[i].name, places[i - 1].name) != 0)
            fprintf(f, "%s=%" PRId64 "\n", places[i].name, places[i].value);
    for (size_t i = 0; i < TEXTS_COUNT; i++)
        fprintf(f, "%s=%s\n", texts[i][0], texts[i][1]);
    fclose(f);
    return path;
}

START_TEST(every_setting_arrives_where_it_belongs)
{
    struct settings *s;
    struct settings_faults faults = {0};
    struct rooms rooms;
    int r = settings_load(write_file(), NULL, 0, &s, &faults);
    ck_assert_msg(r == 0, "%s", faults.count ? faults.lines[0] : "");
    divide(s, &rooms);
    for (size_t i = 0; i < PLACES_COUNT; i++) {
        int64_t value = read_place(&rooms, &places[i]);
        ck_assert_msg(value == places[i].value, "%s is %" PRId64 ", not the %" PRId64 " of %s", places[i].field,
                      value, places[i].value, places[i].name);
    }
    ck_assert_str_eq(rooms.cluster.rack, "north");
    ck_assert_int_eq(rooms.cluster.topic_defaults.log.cleanup_policy, CLEANUP_COMPACT);
    ck_assert_int_eq(rooms.cluster.topic_defaults.log.min_dirty_ppm, 250000);
    ck_assert_int_eq(rooms.cluster.topic_defaults.log.timestamp_type, TIMESTAMP_LOG_APPEND);
    ck_assert_str_eq(rooms.cluster.zookeeper_connect, "z:3333/p");
    ck_assert_int_eq(rooms.cluster.topic_defaults.durability.mode, DURABILITY_INTERVAL);
    ck_assert_int_eq(rooms.cluster.topic_defaults.unclean_election, 1);
    ck_assert(!rooms.cluster.rebalance_leaders);
    ck_assert_str_eq(s->listeners, "PLAINTEXT://127.0.0.1:1111");
    ck_assert_str_eq(s->advertised_listeners, "there:2222");
    ck_assert_str_eq(s->log_dirs, "/d/1,/d/2");
    ck_assert_str_eq(s->log_level, "warn");
    ck_assert_str_eq(s->log_format, "json");
    settings_free(s);
}
END_TEST

START_TEST(hours_and_the_systems_choice_arrive_too)
{
    static const char *const given[] = {"broker.id=1", "zookeeper.connect=z:1", "log.roll.hours=5",
                                        "log.retention.hours=6"};
    struct settings *s;
    struct settings_faults faults = {0};
    struct rooms rooms;
    ck_assert_int_eq(settings_load(NULL, given, 4, &s, &faults), 0);
    divide(s, &rooms);
    ck_assert_int_eq(rooms.cluster.topic_defaults.log.segment_ms, 5 * 3600000);
    ck_assert_int_eq(rooms.cluster.topic_defaults.log.retention_ms, 6 * 3600000);
    ck_assert_int_ge(rooms.net.threads_count, 1);
    ck_assert_int_eq(rooms.net.send_buffer_bytes, 0);
    ck_assert_int_eq(rooms.net.receive_buffer_bytes, 0);
    settings_free(s);
}
END_TEST

static bool is_swept(const char *name)
{
    for (size_t i = 0; i < PLACES_COUNT; i++)
        if (strcmp(places[i].name, name) == 0)
            return true;
    for (size_t i = 0; i < TEXTS_COUNT; i++)
        if (strcmp(texts[i][0], name) == 0)
            return true;
    return strcmp(name, "log.roll.hours") == 0 || strcmp(name, "log.retention.hours") == 0;
}

/* Without this the first test could pass by luck. */
START_TEST(the_sweep_leaves_no_setting_out_and_no_two_alike)
{
    for (size_t i = 0; i < settings_table_count; i++)
        ck_assert_msg(is_swept(settings_table[i].name), "where does %s go?", settings_table[i].name);
    for (size_t i = 0; i < PLACES_COUNT; i++) {
        const struct setting *row = settings_table_find(places[i].name, strlen(places[i].name));
        char value[32];
        snprintf(value, sizeof value, "%" PRId64, places[i].value);
        ck_assert_ptr_nonnull(row);
        ck_assert(!row->default_value || strcmp(row->default_value, value) != 0);
        for (size_t j = 0; j < i; j++)
            ck_assert((strcmp(places[i].name, places[j].name) == 0) == (places[i].value == places[j].value));
    }
}
END_TEST

static void share(const char *connections, const char *files, uint64_t descriptors, size_t want_files,
                  uint32_t want_connections)
{
    char a[64], b[64];
    const char *overrides[] = {"broker.id=1", "zookeeper.connect=z:1", a, b};
    struct settings *s;
    struct settings_faults faults = {0};
    snprintf(a, sizeof a, "max.connections=%s", connections);
    snprintf(b, sizeof b, "log.open.files.max=%s", files);
    ck_assert_int_eq(settings_load(NULL, overrides, 4, &s, &faults), 0);
    ck_assert_uint_eq(room_settings_open_files(s, descriptors), want_files);
    ck_assert_uint_eq(room_settings_connections(s, descriptors, want_files), want_connections);
    settings_free(s);
}

START_TEST(segments_and_connections_share_the_descriptors)
{
    share("10000", "0", 1024, 448, 448); /* 128 are for other things */
    share("100", "0", 1024, 796, 100);
    share("10000", "20", 1024, 20, 876);
    share("10000", "5000", 1024, 448, 448); /* more than there can be */
    share("10000", "0", 65536, 55024, 10000);
    share("10000", "0", UINT64_MAX, 100000, 10000);
}
END_TEST

SUITE_MAIN("broker/room_settings", SUITE_TEST(every_setting_arrives_where_it_belongs),
           SUITE_TEST(segments_and_connections_share_the_descriptors),
           SUITE_TEST(hours_and_the_systems_choice_arrive_too),
           SUITE_TEST(the_sweep_leaves_no_setting_out_and_no_two_alike))
