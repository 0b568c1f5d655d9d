#include "broker/room_settings.h"

#include <string.h>
#include <unistd.h>

#define RESERVED_MAX 512
/* More open files make nothing faster. */
#define OPEN_FILES_ENOUGH ((size_t)100000)

struct handler_settings room_settings_handlers(const struct settings *s)
{
    return (struct handler_settings){
        .broker_id = s->broker_id,
        .frame_bytes_max = (uint32_t)s->socket_request_max_bytes,
        .message_bytes_max = s->message_max_bytes,
        .partitions_per_request_max = (uint32_t)s->request_max_partitions,
        .topics_per_request_max = (uint32_t)s->request_max_partitions,
        .pull_bytes_max = (uint32_t)s->fetch_max_bytes,
        .pull_wait_ms_max = (uint32_t)s->fetch_max_wait_ms,
        .request_timeout_ms_max = (uint32_t)s->request_max_timeout_ms,
        .pull_sessions_per_connection_max = (uint32_t)s->fetch_max_sessions,
        .pulls_parked_per_connection_max = (uint32_t)s->fetch_max_parked,
        .expanded_bytes_max = (uint32_t)s->request_max_expanded_bytes,
    };
}

static int io_threads(const struct settings *s)
{
    if (s->num_io_threads > 0)
        return s->num_io_threads;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    return cpus < 1 ? 1 : cpus > 256 ? 256 : (int)cpus;
}

struct net_settings room_settings_net(const struct settings *s)
{
    return (struct net_settings){
        .threads_count = io_threads(s),
        .disk_threads_count = s->num_disk_threads,
        .frame_bytes_max = (uint32_t)s->socket_request_max_bytes,
        .queued_bytes_max = (size_t)s->queued_max_bytes,
        .requests_in_flight_max = (uint32_t)s->queued_max_requests,
        .output_bytes_max = (size_t)s->queued_max_reply_bytes,
        .connections_max = (uint32_t)s->max_connections,
        .connections_per_address_max = (uint32_t)s->max_connections_per_ip,
        .hello_ms_max = s->connection_setup_timeout_ms,
        .idle_ms_max = s->connections_max_idle_ms,
        .frame_ms_max = s->socket_request_timeout_ms,
        .frame_bytes_per_s_min = (uint32_t)s->socket_request_min_rate,
        .send_ms_max = s->socket_send_timeout_ms,
        .stop_ms_max = s->shutdown_flush_ms,
        .send_buffer_bytes = s->socket_send_buffer_bytes > 0 ? s->socket_send_buffer_bytes : 0,
        .receive_buffer_bytes = s->socket_receive_buffer_bytes > 0 ? s->socket_receive_buffer_bytes : 0,
    };
}

/* For what is neither connection nor segment: loops, ZooKeeper, directories, index files while they are looked at. */
static uint64_t reserved(uint64_t descriptors)
{
    return descriptors / 8 < RESERVED_MAX ? descriptors / 8 : RESERVED_MAX;
}

size_t room_settings_open_files(const struct settings *s, uint64_t descriptors)
{
    uint64_t left = descriptors - reserved(descriptors), connections = (uint64_t)s->max_connections;
    uint64_t share = connections < left / 2 ? left - connections : left / 2;
    if (s->log_open_files_max > 0)
        return (size_t)s->log_open_files_max < share ? (size_t)s->log_open_files_max : (size_t)share;
    return share < OPEN_FILES_ENOUGH ? (size_t)share : OPEN_FILES_ENOUGH;
}

uint32_t room_settings_connections(const struct settings *s, uint64_t descriptors, size_t open_files)
{
    uint64_t left = descriptors - reserved(descriptors) - open_files;
    return left < (uint64_t)s->max_connections ? (uint32_t)left : (uint32_t)s->max_connections;
}

static struct durability durability(const struct settings *s)
{
    struct durability d = {.flush_messages = s->log_flush_interval_messages,
                           .flush_ms = s->log_flush_interval_ms};
    if (s->log_durability) /* the table lets known names through only */
        topic_config_parse_durability(s->log_durability, &d.mode);
    return d;
}

static struct log_settings logs(const struct settings *s)
{
    struct log_settings l = {.segment_bytes = s->log_segment_bytes,
                             .segment_ms = settings_roll_ms(s),
                             .segment_index_bytes = s->log_index_size_max_bytes,
                             .index_interval_bytes = s->log_index_interval_bytes,
                             .retention_ms = settings_retention_ms(s),
                             .retention_bytes = s->log_retention_bytes,
                             .file_delete_delay_ms = s->log_segment_delete_delay_ms,
                             .producers_max = s->producer_ids_per_partition_max,
                             .producer_expiration_ms = s->producer_id_expiration_ms,
                             .delete_retention_ms = s->log_cleaner_delete_retention_ms,
                             .min_compaction_lag_ms = s->log_cleaner_min_compaction_lag_ms,
                             .max_compaction_lag_ms = s->log_cleaner_max_compaction_lag_ms,
                             .min_dirty_ppm = s->log_cleaner_min_cleanable_ratio};
    topic_config_parse_cleanup(s->log_cleanup_policy, &l.cleanup_policy); /* known, as above */
    topic_config_parse_timestamp_type(s->log_message_timestamp_type, &l.timestamp_type);
    return l;
}

struct cluster_settings room_settings_cluster(const struct settings *s)
{
    return (struct cluster_settings){
        .broker_id = s->broker_id,
        .rack = s->broker_rack,
        .zookeeper_connect = s->zookeeper_connect,
        .zookeeper_session_timeout_ms = s->zookeeper_session_timeout_ms,
        .disk_threads_count = s->num_disk_threads,
        .open_files_max = (size_t)s->log_open_files_max,
        .partitions_default = s->num_partitions,
        .replicas_default = s->default_replication_factor,
        .replicas_max = CLUSTER_REPLICAS_MAX,
        .rebalance_leaders = !strcmp(s->auto_rebalance, "true"),
        .rebalance_interval_ms = (int64_t)s->rebalance_interval_s * 1000,
        .absent_wait_ms = s->absent_wait_ms,
        .replication_quota_bytes = s->replication_quota_bytes,
        .cleaner = {.threads = s->log_cleaner_threads,
                    .map_bytes = s->log_cleaner_dedupe_buffer_size,
                    .bytes_per_s = s->log_cleaner_io_max_bytes_per_second,
                    .backoff_ms = s->log_cleaner_backoff_ms,
                    .expanded_bytes_max = s->request_max_expanded_bytes},
        .retention_check_ms = s->log_retention_check_interval_ms,
        .free_bytes_min = s->log_dir_min_free_bytes,
        .replication = {.fetchers = s->num_replica_fetchers,
                        .lag_ms_max = s->replica_lag_time_max_ms,
                        .fetch_bytes_max = (uint32_t)s->replica_fetch_response_max_bytes,
                        .fetch_partition_bytes = (uint32_t)s->replica_fetch_max_bytes,
                        .fetch_wait_ms_max = (uint32_t)s->replica_fetch_wait_max_ms,
                        .fetch_timeout_ms = s->replica_socket_timeout_ms,
                        .frame_bytes_max = (uint32_t)s->socket_request_max_bytes},
        .controlled_shutdown_ms_max = s->controlled_shutdown_max_ms,
        .topic_defaults = {.log = logs(s),
                           .durability = durability(s),
                           .message_bytes_max = s->message_max_bytes,
                           .min_insync_replicas = s->min_insync_replicas,
                           .timestamp_before_ms_max = s->log_message_timestamp_before_max_ms,
                           .timestamp_after_ms_max = s->log_message_timestamp_after_max_ms,
                           .unclean_election = !strcmp(s->unclean_election, "true")},
    };
}
