/* The cluster thread: this broker's part in the cluster.
 *
 * Registers the broker, stands for controller (and acts as it), follows what ZooKeeper says, opens, leads and closes
 * the partitions hosted here (logs on disk threads), publishes views, and carries the administrative intents of
 * handlers to ZooKeeper. Handlers call from I/O loops; answers come to their inbox.
 */
#ifndef BROOK_CLUSTER_CLUSTER_H
#define BROOK_CLUSTER_CLUSTER_H

#include "broker/cluster/hosting.h"
#include "broker/cluster/cleaner_settings.h"
#include "broker/cluster/view.h"
#include "proto/base/inbox.h"

struct cluster;
struct coordinator;
struct data_dir;
struct diag;
struct offsets;

/* Of a partition. */
#define CLUSTER_REPLICAS_MAX ZNODE_REPLICAS_MAX

struct cluster_settings {
    int32_t broker_id;
    const char *advertised_host;
    int32_t advertised_port;
    const char *rack;              /* NULL: none */
    const char *zookeeper_connect;
    int zookeeper_session_timeout_ms;
    const char *const *data_dirs;  /* log.dirs */
    size_t data_dirs_count;
    int disk_threads_count;
    size_t open_files_max;         /* segment files open at a time */
    int32_t partitions_default;    /* num.partitions */
    int32_t replicas_default;      /* default.replication.factor */
    int32_t replicas_max;          /* of a partition, at most ZNODE_REPLICAS_MAX; 1: partitions are not moved, either */
    bool rebalance_leaders;        /* auto.leader.rebalance.enable */
    int64_t rebalance_interval_ms; /* leader.imbalance.check.interval.seconds */
    int64_t absent_wait_ms;        /* leader.election.absent.wait.ms */
    int64_t replication_quota_bytes; /* replication.quota.bytes, unless ZooKeeper says otherwise */
    int64_t retention_check_ms;    /* log.retention.check.interval.ms */
    struct cleaner_settings cleaner; /* log.cleaner...: */
    int64_t free_bytes_min;        /* log.dir.min.free.bytes */
    struct hosting_replication replication;
    int64_t controlled_shutdown_ms_max; /* to hand over, and for ZooKeeper to confirm */
    struct topic_config topic_defaults;
    const struct diag *diag;
};

/* Lock the data directories, before anything is read or written in them; then connect, agree on the cluster
 * id, open logs, register: all that in the background; `ready` is posted once (views come before it) with
 * error 0, or with what makes the broker unable to start (id in use by a live broker, another cluster's
 * directory, ...). Unreachable ZooKeeper is not an error: it is waited for, and said once per while. */
struct cluster_events {
    struct inbox *inbox;
    void (*ready)(void *arg, const struct brook_error *error);
    void *arg;
};
/* Returns 0; -BROOK_E_LOCKED (another process has a data directory; the sentence names both); another
 * error. */
int cluster_new(const struct cluster_settings *settings, const struct cluster_events *events,
                struct cluster **ret_cluster, struct brook_error *error);
/* In this order at stop: cluster_drain (not ready any more; give up the controller's seat; unregister; waits,
 * but not longer than controlled_shutdown_ms_max whether ZooKeeper is there or not), then the I/O loops end, then
 * cluster_free (close logs, checkpoints, clean-stop marker, ZooKeeper session; join). */
void cluster_drain(struct cluster *cluster);
void cluster_free(struct cluster *cluster);

/* Each I/O loop subscribes once: `changed` runs on the loop with a reference that it owns. */
typedef void cluster_view_callback(void *arg, struct view *view);
int cluster_subscribe(struct cluster *cluster, struct inbox *inbox, cluster_view_callback *changed, void *arg);

struct coordinator *cluster_coordinator(struct cluster *cluster);
/* Where groups' offsets are committed to and fetched from; its work is done on the cluster thread. */
struct offsets *cluster_offsets(struct cluster *cluster);
/* Settings of topics that say nothing of their own. */
const struct topic_config *cluster_topic_defaults(const struct cluster *cluster);
/* Registered and serving; else a sentence why not. Any thread. */
bool cluster_is_ready(struct cluster *cluster, struct brook_error *why);

/* replication.quota.bytes as it is now: bytes per second for replicas that are not in sync yet, 0: no limit. Any
 * thread, an atomic load. */
int64_t cluster_replication_quota(const struct cluster *cluster);
/* The throttle of moves, likewise: for replicas that a reassignment adds. */
int64_t cluster_move_throttle(const struct cluster *cluster);

/* ---- administrative intents ------------------------------------------------------------------------------ */

struct cluster_new_topic {
    const char *name; /* checked here */
    int32_t partitions; /* 0: default */
    int32_t replicas;
    const struct znode_config *config;
};
struct cluster_topic_result {
    struct brook_error error; /* code 0: done */
    struct topic_id topic_id;
    int32_t partitions;
    int32_t replicas;
};
typedef void cluster_topic_callback(void *arg, const struct cluster_topic_result *result);

/* Answered once on `inbox`: when the topic exists and its partitions have leaders that this broker's view shows (or
 * at `timeout_ms`: -BROOK_E_TIMED_OUT, the intent stays). Arguments are copied. */
void cluster_create_topic(struct cluster *cluster, const struct cluster_new_topic *topic, bool validate_only,
                          int timeout_ms, struct inbox *inbox, cluster_topic_callback *cb, void *arg);
void cluster_delete_topic(struct cluster *cluster, const char *name, bool validate_only, int timeout_ms,
                          struct inbox *inbox, cluster_topic_callback *cb, void *arg);
/* `changes`: settings of the topic's own to be set, or taken away (value NULL). Answered when this broker's view has
 * them. -BROOK_E_INVALID_CONFIG with a sentence that names the key. */
void cluster_alter_config(struct cluster *cluster, const char *name, const struct znode_config *changes,
                          bool validate_only, int timeout_ms, struct inbox *inbox, cluster_topic_callback *cb,
                          void *arg);
void cluster_add_partitions(struct cluster *cluster, const char *name, int32_t partitions, bool validate_only,
                            int timeout_ms, struct inbox *inbox, cluster_topic_callback *cb, void *arg);

/* A producer id that nobody else has. Returns 0 and `callback` runs once on `inbox` (`err` as producer_ids.h says, or
 * -BROOK_E_STOPPING); or -BROOK_E_NOMEM. */
typedef void cluster_producer_id_callback(void *arg, int err, int64_t producer_id);
int cluster_new_producer_id(struct cluster *cluster, struct inbox *inbox, cluster_producer_id_callback *callback,
                            void *arg);

/* ---- petitions to the controller ----------------------------------------------------------------------- */

/* What is to be added to /admin/reassign_partitions or /admin/preferred_replica_election. */
struct cluster_petition {
    enum znode_wish_kind kind;
    const struct znode_wishes *wishes; /* checked here */
    int64_t throttle;                  /* with a plan: of all moves, bytes per second; -1: as it is */
    bool validate_only;
};
struct cluster_petition_result {
    struct brook_error error;         /* of the whole; code 0: look at the others */
    const struct brook_error *errors; /* per wish, in their order; code 0: done. Good during the callback */
    size_t count;
};
typedef void cluster_petition_callback(void *arg, const struct cluster_petition_result *result);

/* Answered once on `inbox`: when the controller has taken the plan over, or held the elections (or at `timeout_ms`:
 * -BROOK_E_TIMED_OUT, what was written stays). Arguments are copied. */
void cluster_petition(struct cluster *cluster, const struct cluster_petition *what, int timeout_ms,
                      struct inbox *inbox, cluster_petition_callback *cb, void *arg);
#endif
