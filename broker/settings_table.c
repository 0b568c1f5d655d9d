#include "broker/settings_table.h"

#include "broker/settings.h"
#include "proto/base/ratio.h"

#include <string.h>

#define INT_MAX32 2147483647
#define AT(field) offsetof(struct settings, field)
#define INT(name, field, value, min, max, unit, run_time, text) \
    {name, SETTING_INT, AT(field), value, false, run_time, min, max, unit, NULL, text}
#define LONG(name, field, value, min, max, unit, run_time, text) \
    {name, SETTING_LONG, AT(field), value, false, run_time, min, max, unit, NULL, text}
#define TEXT(name, field, value, required, text) \
    {name, SETTING_TEXT, AT(field), value, required, false, 0, 0, "", NULL, text}
#define CHOICE(name, field, value, choices, run_time, text) \
    {name, SETTING_CHOICE, AT(field), value, false, run_time, 0, 0, "", choices, text}
#define STATIC false
#define RUN_TIME true

const struct setting settings_table[] = {
    {"broker.id", SETTING_INT, AT(broker_id), NULL, true, STATIC, 0, INT_MAX32, "", NULL,
     "The broker's number, unique in the cluster and the same for the life of its data."},
    TEXT("listeners", listeners, "PLAINTEXT://:9092", false,
         "Where clients connect, comma separated: PLAINTEXT://host:port; without a host on all addresses."),
    TEXT("advertised.listeners", advertised_listeners, NULL, false,
         "What clients are told: host:port that they can reach. Empty: the listener's own, or this machine's "
         "name."),
    TEXT("broker.rack", broker_rack, NULL, false, "Where the broker stands, for placing replicas apart."),
    TEXT("log.dirs", log_dirs, "/var/lib/brook", false, "Data directories, comma separated."),
    TEXT("zookeeper.connect", zookeeper_connect, NULL, true,
         "ZooKeeper ensemble: host:port,host:port,.../path; all brokers of a cluster use the same path."),
    INT("zookeeper.session.timeout.ms", zookeeper_session_timeout_ms, "18000", 200, 600000, "ms", STATIC,
        "After so long without contact ZooKeeper counts the broker as dead."),

    INT("num.io.threads", num_io_threads, "0", 0, 256, "threads", STATIC,
        "Threads that serve connections. 0: one per CPU."),
    INT("num.disk.threads", num_disk_threads, "2", 1, 64, "threads", STATIC,
        "Threads for work that may wait for a disk: recovery, retention, lookups by time."),

    INT("num.partitions", num_partitions, "1", 1, 20000, "partitions", STATIC,
        "Of a topic that does not say."),
    INT("default.replication.factor", default_replication_factor, "1", 1, 32, "replicas", STATIC,
        "Of a topic that does not say."),
    INT("min.insync.replicas", min_insync_replicas, "1", 1, 32, "replicas", STATIC,
        "Produces with acks=all are refused below so many replicas in sync; topics may say otherwise. Not "
        "more than a topic has replicas, or nothing can be written to it."),
    INT("num.replica.fetchers", num_replica_fetchers, "1", 1, 64, "threads", STATIC,
        "Threads that pull from the leaders of the partitions followed here."),
    LONG("replica.lag.time.max.ms", replica_lag_time_max_ms, "10000", 100, 3600000, "ms", STATIC,
         "A follower that did not reach its leader's end for so long leaves the in-sync replicas."),
    INT("replica.fetch.max.bytes", replica_fetch_max_bytes, "1048576", 1024, 1073741824, "bytes", STATIC,
        "A follower takes so much of one partition at a time; a larger batch is taken all the same."),
    INT("replica.fetch.response.max.bytes", replica_fetch_response_max_bytes, "10485760", 1024, 1073741824, "bytes",
        STATIC, "And so much in one answer of a leader."),
    INT("replica.fetch.wait.max.ms", replica_fetch_wait_max_ms, "500", 10, 60000, "ms", STATIC,
        "A leader that has nothing new answers a follower after so long."),
    INT("replica.socket.timeout.ms", replica_socket_timeout_ms, "30000", 100, 600000, "ms", STATIC,
        "A leader that does not answer for so much longer is asked again on a new connection."),
    CHOICE("unclean.leader.election.enable", unclean_election, "false", "false|true", STATIC,
           "Whether a replica that is not in sync may lead when no other is left: acknowledged records may be lost. "
           "Topics may say otherwise."),
    CHOICE("auto.leader.rebalance.enable", auto_rebalance, "true", "false|true", STATIC,
           "Give leadership back to preferred replicas (the first of each list) that are in sync again."),
    INT("leader.imbalance.check.interval.seconds", rebalance_interval_s, "300", 1, 86400, "s", STATIC,
        "How often that is looked at."),
    INT("leader.election.absent.wait.ms", absent_wait_ms, "30000", 0, 86400000, "ms", STATIC,
        "When all replicas in sync were stopped uncleanly, how long one that is away is waited for before the longest "
        "log of the others leads."),
    LONG("replication.quota.bytes", replication_quota_bytes, "0", 0, INT64_MAX, "bytes/s", STATIC,
         "How much the broker pulls from leaders for all replicas that are not in sync yet, after a restart as in a move. "
         "0: as much as it can. /config/brokers in ZooKeeper may say otherwise, until it is changed. The throttle of brook "
         "cluster reassign holds beside it, for replicas that moves add, and ends with the last move."),
    INT("message.max.bytes", message_max_bytes, "2097152", 100, 1073741824, "bytes", STATIC,
        "Largest record batch taken; topics may say otherwise (max.message.bytes)."),

    LONG("log.segment.bytes", log_segment_bytes, "1073741824", 16384, INT_MAX32, "bytes", STATIC,
         "A log goes on in a new file beyond this size."),
    LONG("log.roll.ms", log_roll_ms, NULL, 1, INT64_MAX / 1000000, "ms", STATIC,
         "Or when its oldest record is so old. Empty: log.roll.hours."),
    INT("log.roll.hours", log_roll_hours, "168", 1, 1000000, "hours", STATIC, "The same in hours."),
    LONG("log.retention.ms", log_retention_ms, NULL, -1, INT64_MAX / 1000000, "ms", STATIC,
         "Records older than this are removed, a file at a time. -1: never. Empty: log.retention.hours."),
    INT("log.retention.hours", log_retention_hours, "168", -1, 10000000, "hours", STATIC,
        "The same in hours. -1: never."),
    LONG("log.retention.bytes", log_retention_bytes, "-1", -1, INT64_MAX, "bytes", STATIC,
         "A partition's oldest files are removed beyond this size. -1: without limit."),
    LONG("log.retention.check.interval.ms", log_retention_check_interval_ms, "300000", 10, 86400000, "ms",
         STATIC, "How often that is looked at."),
    INT("log.index.size.max.bytes", log_index_size_max_bytes, "10485760", 4096, 1073741824, "bytes", STATIC,
        "A log goes on in a new file when an index has this size."),
    INT("log.index.interval.bytes", log_index_interval_bytes, "4096", 1, INT_MAX32, "bytes", STATIC,
        "An index entry for so many bytes of records."),
    LONG("log.segment.delete.delay.ms", log_segment_delete_delay_ms, "60000", 0, 86400000, "ms", STATIC,
         "Removed files are kept under another name for so long."),
    LONG("log.dir.min.free.bytes", log_dir_min_free_bytes, "67108864", 0, (int64_t)1 << 50, "bytes", STATIC,
         "A data directory with less room takes no records and no new partitions. It is what retention, checkpoints and "
         "the next start write into. 0: only what a failed write says counts."),
    CHOICE("log.message.timestamp.type", log_message_timestamp_type, "CreateTime", "CreateTime|LogAppendTime", STATIC,
           "Which time records have: what their producer says (CreateTime), or the broker's clock when it appended them "
           "(LogAppendTime). Topics may say otherwise (message.timestamp.type)."),
    LONG("log.message.timestamp.before.max.ms", log_message_timestamp_before_max_ms, "9223372036854775807", 0,
         INT64_MAX, "ms", STATIC,
         "A batch whose first record is stamped so much before the broker's clock is refused (INVALID_TIMESTAMP). Topics "
         "may say otherwise (message.timestamp.before.max.ms)."),
    LONG("log.message.timestamp.after.max.ms", log_message_timestamp_after_max_ms, "3600000", 0, INT64_MAX, "ms",
         STATIC,
         "And one that has a stamp so much ahead of it: mostly microseconds where milliseconds belong. Topics may say "
         "otherwise (message.timestamp.after.max.ms)."),
    INT("producer.ids.per.partition.max", producer_ids_per_partition_max, "5000", 1, 1000000, "producers", STATIC,
        "Idempotent producers that a partition remembers; beyond it those silent longest are forgotten."),
    LONG("producer.id.expiration.ms", producer_id_expiration_ms, "86400000", 1, INT64_MAX / 1000000, "ms", STATIC,
         "An idempotent producer that has sent a partition nothing for so long is forgotten there."),
    INT("log.open.files.max", log_open_files_max, "0", 0, 10000000, "files", STATIC,
        "Segment files open at a time; beyond it the one not used for the longest is closed. 0: what connections leave "
        "of the process's descriptors, half of them at least."),
    CHOICE("log.durability", log_durability, NULL, "fsync|replicated|interval", STATIC,
           "What an acknowledgement of acks=all means: on stable storage; in the page cache of the replicas in "
           "sync; or likewise, but shown to consumers once flushed. Topics may say otherwise (durability). "
           "Empty: fsync for topics of one replica, replicated for others."),
    LONG("log.flush.interval.messages", log_flush_interval_messages, "10000", 1, INT64_MAX, "records",
         STATIC,
         "With durability interval: records that may lie unflushed. Topics may say otherwise "
         "(flush.messages)."),
    LONG("log.flush.interval.ms", log_flush_interval_ms, "1000", 0, INT64_MAX, "ms", STATIC,
         "And for how long. Topics may say otherwise (flush.ms)."),
    CHOICE("log.cleanup.policy", log_cleanup_policy, "delete", "delete|compact|compact,delete|delete,compact",
           STATIC,
           "What happens to old records: they go by age and size (delete), or of each key the last one stays "
           "(compact), or both. Topics may say otherwise (cleanup.policy)."),
    INT("log.cleaner.threads", log_cleaner_threads, "1", 1, 64, "threads", STATIC,
        "Threads that compact logs."),
    LONG("log.cleaner.dedupe.buffer.size", log_cleaner_dedupe_buffer_size, "33554432", 1048576,
         (int64_t)1 << 40, "bytes", STATIC,
         "Memory for the keys of logs being compacted, of all these threads: 24 bytes a key, up to nine tenths. "
         "More keys take several passes."),
    LONG("log.cleaner.io.max.bytes.per.second", log_cleaner_io_max_bytes_per_second, "-1", -1, INT64_MAX,
         "bytes/s", STATIC, "Most that they read and write together. -1: without limit."),
    LONG("log.cleaner.backoff.ms", log_cleaner_backoff_ms, "15000", 10, 86400000, "ms", STATIC,
         "How often it is looked for logs to compact."),
    LONG("log.cleaner.delete.retention.ms", log_cleaner_delete_retention_ms, "86400000", 0, INT64_MAX, "ms",
         STATIC,
         "How long tombstones stay after they were first compacted. Topics may say otherwise "
         "(delete.retention.ms)."),
    {"log.cleaner.min.cleanable.ratio", SETTING_RATIO, AT(log_cleaner_min_cleanable_ratio), "0.5", false, STATIC,
     0, RATIO_ONE_PPM, "", NULL,
     "A log is compacted when more of it than this was not yet. Topics may say otherwise "
     "(min.cleanable.dirty.ratio)."},
    LONG("log.cleaner.min.compaction.lag.ms", log_cleaner_min_compaction_lag_ms, "0", 0, INT64_MAX, "ms", STATIC,
         "Records stay uncompacted for at least so long. Topics may say otherwise (min.compaction.lag.ms)."),
    LONG("log.cleaner.max.compaction.lag.ms", log_cleaner_max_compaction_lag_ms, "9223372036854775807", 1,
         INT64_MAX, "ms", STATIC,
         "Records that have waited for so long are compacted whatever the ratio. Topics may say otherwise "
         "(max.compaction.lag.ms)."),

    INT("max.connections", max_connections, "10000", 1, 1000000, "connections", RUN_TIME,
        "More are closed at once."),
    INT("max.connections.per.ip", max_connections_per_ip, "10000", 1, 1000000, "connections", RUN_TIME,
        "More from one address are closed at once."),
    INT("connections.max.idle.ms", connections_max_idle_ms, "600000", 100, INT_MAX32, "ms", RUN_TIME,
        "A connection without requests for so long is closed."),
    INT("connection.setup.timeout.ms", connection_setup_timeout_ms, "10000", 100, 3600000, "ms", RUN_TIME,
        "A connection that has not said hello by then is closed."),
    INT("socket.request.max.bytes", socket_request_max_bytes, "104857600", 65536, 1610612736, "bytes", STATIC,
        "Largest frame taken."),
    INT("socket.request.timeout.ms", socket_request_timeout_ms, "30000", 100, 3600000, "ms", RUN_TIME,
        "A frame that was begun must be whole by then; large ones have more, by the next setting."),
    INT("socket.request.min.rate", socket_request_min_rate, "16384", 1, INT_MAX32, "bytes/s", STATIC,
        "Each received byte of a frame gives it this much more time."),
    INT("socket.send.timeout.ms", socket_send_timeout_ms, "30000", 100, 3600000, "ms", RUN_TIME,
        "A connection that takes nothing of its answers for so long is closed."),
    INT("socket.send.buffer.bytes", socket_send_buffer_bytes, "-1", -1, 1073741824, "bytes", STATIC,
        "SO_SNDBUF. -1: the system's choice, which adapts."),
    INT("socket.receive.buffer.bytes", socket_receive_buffer_bytes, "-1", -1, 1073741824, "bytes", STATIC,
        "SO_RCVBUF. -1: the system's choice, which adapts."),
    LONG("queued.max.bytes", queued_max_bytes, "134217728", 65536, (int64_t)1 << 40, "bytes", STATIC,
         "Large frames being received or carried out, per I/O thread; beyond it connections are not read."),
    INT("queued.max.requests", queued_max_requests, "1000", 1, 1000000, "requests", STATIC,
        "Requests of one connection that are not answered yet; beyond it the connection is not read."),
    INT("queued.max.reply.bytes", queued_max_reply_bytes, "16777216", 65536, 1073741824, "bytes", STATIC,
        "Answers that one connection has not taken yet; beyond it the connection is not read."),
    INT("fetch.max.bytes", fetch_max_bytes, "57671680", 1024, 1073741824, "bytes", STATIC,
        "Most that one pull is answered, whatever it asks for."),
    INT("fetch.max.wait.ms", fetch_max_wait_ms, "60000", 0, 3600000, "ms", STATIC,
        "Longest that a pull waits for records, whatever it asks for."),
    INT("fetch.max.sessions", fetch_max_sessions, "16", 1, 1000, "sessions", STATIC,
        "Pull sessions of one connection; beyond it the oldest is forgotten."),
    INT("fetch.max.parked", fetch_max_parked, "64", 1, 10000, "requests", STATIC,
        "Waiting pulls of one connection; beyond it the oldest is answered."),
    INT("request.max.partitions", request_max_partitions, "10000", 1, 1000000, "partitions", STATIC,
        "Partitions, or topics, that one request may name."),
    INT("request.max.timeout.ms", request_max_timeout_ms, "120000", 1, 3600000, "ms", STATIC,
        "Longest that a request waits for replicas or for ZooKeeper, whatever it asks for."),
    INT("request.max.expanded.bytes", request_max_expanded_bytes, "134217728", 65536, INT_MAX32, "bytes",
        STATIC, "What one compressed batch may expand to where the broker has to look inside."),

    INT("controlled.shutdown.max.ms", controlled_shutdown_max_ms, "10000", 0, 3600000, "ms", STATIC,
        "How long a stopping broker may take to leave: three quarters of it to hand over the partitions that it leads, "
        "the rest until ZooKeeper has confirmed."),
    INT("shutdown.flush.ms", shutdown_flush_ms, "2000", 0, 60000, "ms", STATIC,
        "And how long it sends answers that are ready."),
    CHOICE("log.level", log_level, "info", "debug|info|warn|error", RUN_TIME, "What is said on stderr."),
    CHOICE("log.format", log_format, "text", "text|json", STATIC, "How: a line of text, or a JSON object."),
};
const size_t settings_table_count = sizeof settings_table / sizeof settings_table[0];
_Static_assert(sizeof settings_table / sizeof settings_table[0] <= SETTINGS_MAX,
               "is_given has a place for each");

const struct setting *settings_table_find(const char *name, size_t name_bytes)
{
    for (size_t i = 0; i < settings_table_count; i++)
        if (strlen(settings_table[i].name) == name_bytes &&
            memcmp(settings_table[i].name, name, name_bytes) == 0)
            return &settings_table[i];
    return NULL;
}
