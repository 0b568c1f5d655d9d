/* brookd's settings: one table with name, type, default, range, unit and a sentence, Kafka's names where the
 * thing is the same. The table makes the parser, --print-settings, the example file and DescribeConfigs.
 *
 * A file has `key=value` lines, lines that begin with '#' (comments) and blank lines; -o key=value overrides
 * it. A '#' that begins a value, or follows a blank in it, is a fault. Whatever is wrong (unknown or repeated
 * keys, bad values, contradictions) is listed in full, and nothing is started. Plain data after loading.
 */
#ifndef BROOK_BROKER_SETTINGS_H
#define BROOK_BROKER_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define SETTINGS_MAX 96

struct settings {
    /* who and where */
    int32_t broker_id;
    char *listeners;
    char *advertised_listeners;
    char *broker_rack;
    char *log_dirs;
    char *zookeeper_connect;
    int32_t zookeeper_session_timeout_ms;
    /* threads */
    int32_t num_io_threads;
    int32_t num_disk_threads;
    /* topics */
    int32_t num_partitions;
    int32_t default_replication_factor;
    int32_t min_insync_replicas;
    int32_t num_replica_fetchers;
    int64_t replica_lag_time_max_ms;
    int32_t replica_fetch_max_bytes;
    int32_t replica_fetch_response_max_bytes;
    int32_t replica_fetch_wait_max_ms;
    int32_t replica_socket_timeout_ms;
    char *unclean_election;
    char *auto_rebalance;
    int32_t rebalance_interval_s;
    int32_t absent_wait_ms;
    int64_t replication_quota_bytes;
    int32_t message_max_bytes;
    /* logs */
    int64_t log_segment_bytes;
    int64_t log_roll_ms;
    int32_t log_roll_hours;
    int64_t log_retention_ms;
    int32_t log_retention_hours;
    int64_t log_retention_bytes;
    int64_t log_message_timestamp_before_max_ms;
    int64_t log_message_timestamp_after_max_ms;
    int64_t log_retention_check_interval_ms;
    int32_t log_index_size_max_bytes;
    int32_t log_index_interval_bytes;
    int64_t log_segment_delete_delay_ms;
    int64_t log_dir_min_free_bytes;
    int32_t producer_ids_per_partition_max;
    int64_t producer_id_expiration_ms;
    int32_t log_open_files_max;
    char *log_durability;
    int64_t log_flush_interval_messages;
    int64_t log_flush_interval_ms;
    /* compaction */
    char *log_cleanup_policy;
    char *log_message_timestamp_type;
    int32_t log_cleaner_threads;
    int64_t log_cleaner_dedupe_buffer_size;
    int64_t log_cleaner_io_max_bytes_per_second;
    int64_t log_cleaner_backoff_ms;
    int64_t log_cleaner_delete_retention_ms;
    int32_t log_cleaner_min_cleanable_ratio;
    int64_t log_cleaner_min_compaction_lag_ms;
    int64_t log_cleaner_max_compaction_lag_ms;
    /* connections and requests */
    int32_t max_connections;
    int32_t max_connections_per_ip;
    int32_t connections_max_idle_ms;
    int32_t connection_setup_timeout_ms;
    int32_t socket_request_max_bytes;
    int32_t socket_request_timeout_ms;
    int32_t socket_request_min_rate;
    int32_t socket_send_timeout_ms;
    int32_t socket_send_buffer_bytes;
    int32_t socket_receive_buffer_bytes;
    int64_t queued_max_bytes;
    int32_t queued_max_requests;
    int32_t queued_max_reply_bytes;
    int32_t fetch_max_bytes;
    int32_t fetch_max_wait_ms;
    int32_t fetch_max_sessions;
    int32_t fetch_max_parked;
    int32_t request_max_partitions;
    int32_t request_max_timeout_ms;
    int32_t request_max_expanded_bytes;
    /* the end, and what is said */
    int32_t controlled_shutdown_max_ms;
    int32_t shutdown_flush_ms;
    char *log_level;
    char *log_format;
    /* which were given, by row of the table */
    bool is_given[SETTINGS_MAX];
};

/* What is wrong, a line each. */
struct settings_faults {
    char **lines;
    size_t count;
};
void settings_faults_done(struct settings_faults *faults);

/* Read `file` (NULL: none), then `overrides`. Returns 0 and the settings (settings_free()), or
 * -BROOK_E_CONFIG with at least one fault, or -BROOK_E_NOMEM. */
int settings_load(const char *file, const char *const *overrides, size_t overrides_count,
                  struct settings **ret, struct settings_faults *faults);
void settings_free(struct settings *settings);
/* The table with its defaults. Returns 0 or -BROOK_E_NOMEM. */
int settings_default(struct settings **ret);

/* The table as a configuration file: sentences as comments, what was not given commented out. */
void settings_print(const struct settings *settings, FILE *to);

typedef void settings_visitor(void *arg, const char *name, const char *value, bool is_default,
                              const char *description);
void settings_visit(const struct settings *settings, settings_visitor *visitor, void *arg);

/* Each setting that differs, and whether it may change while the broker runs. */
typedef void settings_change(void *arg, const char *name, const char *from, const char *to, bool at_run_time);
void settings_compare(const struct settings *from, const struct settings *to, settings_change *change,
                      void *arg);

/* Take over from `from` what may change while the broker runs. Returns 0 or -BROOK_E_NOMEM (some are taken
 * then). */
int settings_take_over(struct settings *to, const struct settings *from);

/* ---- derived ------------------------------------------------------------------------------------------- */

/* Split a comma separated list; free() the array, whose strings lie in it. NULL: out of memory. */
char **settings_split(const char *list, size_t *ret_count);
/* "PLAINTEXT://host:port" or "host:port" without its scheme; NULL for other schemes. Points into `listener`.
 */
const char *settings_strip_scheme(const char *listener);
int64_t settings_retention_ms(const struct settings *s);
int64_t settings_roll_ms(const struct settings *s);
#endif
