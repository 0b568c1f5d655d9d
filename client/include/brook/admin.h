/* Administration: topics, settings, groups, the cluster. Calls wait up to `timeout_ms` for their answer.
 * Results are one block each, freed with their own function. One thread at a time per handle.
 */
#ifndef BROOK_ADMIN_H
#define BROOK_ADMIN_H

#include <brook/config.h>
#include <brook/types.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct brook_admin brook_admin;

int brook_admin_new(const brook_config *config, brook_admin **ret_admin, struct brook_error *error);
void brook_admin_free(brook_admin *admin);

struct brook_setting {
    const char *key;
    const char *value;
};

/* `partitions`, `replicas` 0: the cluster's defaults. Returns when the topic has leaders.
 * -BROOK_E_TOPIC_EXISTS, -BROOK_E_ILLEGAL_NAME, -BROOK_E_INVALID_PARTITIONS, -BROOK_E_INVALID_REPLICATION,
 * -BROOK_E_INVALID_CONFIG, ... `validate_only`: check, write nothing. */
int brook_admin_create_topic(brook_admin *admin, const char *topic, int32_t partitions, int32_t replicas,
                             const struct brook_setting *settings, size_t settings_count, bool validate_only,
                             int timeout_ms, struct brook_error *error);
int brook_admin_delete_topic(brook_admin *admin, const char *topic, int timeout_ms, struct brook_error *error);
/* `partitions`: the number afterwards. */
int brook_admin_add_partitions(brook_admin *admin, const char *topic, int32_t partitions, int timeout_ms,
                               struct brook_error *error);

struct brook_broker {
    int32_t id;
    const char *host;
    int32_t port;
    const char *rack; /* NULL: none */
};
struct brook_partition {
    int32_t partition;
    int32_t leader; /* -1: none */
    int32_t leader_epoch;
    const int32_t *replicas;
    size_t replicas_count;
    const int32_t *isr;
    size_t isr_count;
    const int32_t *offline; /* of the replicas those that live, but whose log is offline there (a disk failed) */
    size_t offline_count;
    const char *why_leaderless; /* and who is waited for: a sentence; NULL: it has a leader */
};
struct brook_topic {
    const char *name;
    const char *topic_id; /* 22 characters */
    struct brook_error error;
    const struct brook_partition *partitions;
    size_t partitions_count;
};
/* A node of ZooKeeper that makes no sense to the broker that answers: what it said before counts. */
struct brook_unreadable {
    const char *path;
    const char *reason;
    const char *topic; /* NULL: it is of none */
    int32_t partition; /* -1: of none */
};
struct brook_cluster {
    const char *cluster_id;
    int32_t controller; /* -1: none known */
    const struct brook_broker *brokers;
    size_t brokers_count;
    const struct brook_topic *topics;
    size_t topics_count;
    const struct brook_unreadable *unreadable; /* the first hundred */
    size_t unreadable_count;
};
/* `topics` NULL with count 0: all topics. */
int brook_admin_describe_cluster(brook_admin *admin, const char *const *topics, size_t count, int timeout_ms,
                                 struct brook_cluster **ret_cluster, struct brook_error *error);
void brook_cluster_free(struct brook_cluster *cluster);

struct brook_partition_name {
    const char *topic;
    int32_t partition;
};
/* Let preferred replicas (the first of each list) lead again; with `unclean` instead find leaders for partitions that
 * have none, among replicas that may not be in sync: acknowledged records may be lost. Returns when that is done. 0, or
 * the first partition's error, all of which are in errors[0 .. count) (NULL: not wanted):
 * -BROOK_E_PREFERRED_NOT_AVAILABLE, -BROOK_E_NO_LEADER, -BROOK_E_UNKNOWN_TOPIC, -BROOK_E_UNKNOWN_PARTITION; another
 * error is about all of them. */
int brook_admin_elect_leaders(brook_admin *admin, const struct brook_partition_name *partitions, size_t count,
                              bool unclean, int timeout_ms, struct brook_error *errors, struct brook_error *error);

struct brook_replica {
    int32_t broker_id;
    bool is_in_sync;
    int64_t end;       /* of its log, as the leader knows it; -1: not known */
    int64_t lag;       /* records that it lacks; -1: not known */
    int64_t behind_ms; /* since it had all; of one that never had, since this leader began */
};
struct brook_partition_replicas {
    const char *topic;
    int32_t partition;
    struct brook_error error; /* BROOK_E_NO_LEADER, BROOK_E_TIMED_OUT, ...: nothing below is known then (-1) */
    int32_t leader;           /* that answered */
    int32_t leader_epoch;
    int64_t start;          /* of the leader's log */
    int64_t high_watermark; /* consumers see what is below it */
    int64_t end;
    const struct brook_replica *replicas; /* the leader among them */
    size_t replicas_count;
};
struct brook_replicas {
    const struct brook_partition_replicas *list;
    size_t count;
};
/* How far the replicas of partitions are, asked of their leaders; answers in the order of `partitions`. A partition whose
 * leader can not be asked has an error of its own, and 0 is returned all the same. -BROOK_E_ILLEGAL_NAME,
 * -BROOK_E_INVALID, -BROOK_E_NOMEM. */
int brook_admin_describe_replicas(brook_admin *admin, const struct brook_partition_name *partitions, size_t count,
                                  int timeout_ms, struct brook_replicas **ret_replicas, struct brook_error *error);
void brook_replicas_free(struct brook_replicas *replicas);

struct brook_partition_plan {
    const char *topic;
    int32_t partition;
    const int32_t *replicas; /* afterwards, the preferred leader first */
    size_t replicas_count;   /* 0: cancel the move that runs */
};
/* Move partitions to other brokers. Returns when the plan is taken over: brook_admin_list_reassignments() shows what
 * is still on its way. `quota_bytes`: bytes per second that each broker of the cluster may pull for replicas that moves
 * add, until nothing is being moved any more; 0 without limit, -1 as it is (count 0: only that is set, for what is being
 * moved). Errors as above: -BROOK_E_INVALID_REPLICAS,
 * -BROOK_E_BROKER_NOT_AVAILABLE, -BROOK_E_NO_REASSIGNMENT, ... `validate_only`: check, write nothing. */
int brook_admin_reassign(brook_admin *admin, const struct brook_partition_plan *plans, size_t count,
                         int64_t quota_bytes, bool validate_only, int timeout_ms, struct brook_error *errors,
                         struct brook_error *error);

struct brook_reassignment {
    const char *topic;
    int32_t partition;
    int32_t leader;          /* -1: none */
    const int32_t *replicas; /* that hold it now */
    size_t replicas_count;
    const int32_t *adding; /* of these, those that came for the move */
    size_t adding_count;
    const int32_t *removing; /* of these, those that go at its end */
    size_t removing_count;
    const int32_t *target; /* afterwards */
    size_t target_count;
    const int32_t *isr; /* it ends when all of the target are in here */
    size_t isr_count;
};
struct brook_reassignments {
    const struct brook_reassignment *list;
    size_t count;
    int64_t throttle_bytes; /* per second and broker, for replicas that moves add, until the last one has ended; 0: none */
    int64_t quota_bytes;    /* replication.quota.bytes of the broker that answered: of all that are not in sync; 0: none */
};
int brook_admin_list_reassignments(brook_admin *admin, int timeout_ms, struct brook_reassignments **ret_reassignments,
                                   struct brook_error *error);
void brook_reassignments_free(struct brook_reassignments *reassignments);

struct brook_config_entry {
    const char *key;
    const char *value;
    const char *description;
    bool is_default;
};
struct brook_config_entries {
    const struct brook_config_entry *entries;
    size_t count;
};
/* Settings of a topic; `topic` NULL: of the broker that answers. */
int brook_admin_describe_config(brook_admin *admin, const char *topic, int timeout_ms,
                                struct brook_config_entries **ret_entries, struct brook_error *error);
void brook_config_entries_free(struct brook_config_entries *entries);

/* Change settings of a topic while it is used; a value NULL takes the setting away, so that the broker's default
 * counts again. Settings that are not named stay. Returns when the broker that answers has them; all or nothing.
 * -BROOK_E_UNKNOWN_TOPIC, -BROOK_E_INVALID_CONFIG (the sentence names the key), ... `validate_only`: check, write
 * nothing. */
int brook_admin_alter_config(brook_admin *admin, const char *topic, const struct brook_setting *settings,
                             size_t count, bool validate_only, int timeout_ms, struct brook_error *error);

/* In/out: `offset` holds BROOK_OFFSET_EARLIEST or _LATEST and is replaced; with `timestamps` (ms, per entry; NULL:
 * none) the first offset at or after that time is looked up instead. Per-entry failures leave BROOK_OFFSET_NONE and
 * the first one is returned. */
int brook_admin_list_offsets(brook_admin *admin, struct brook_position *positions, const int64_t *timestamps,
                             size_t count, int timeout_ms, struct brook_error *error);

/* Delete the records below an offset, for good: no reader is given them again, whatever happens to the brokers.
 * In/out: `offset` is the first one to be kept, or BROOK_OFFSET_LATEST for deleting all that is committed; it is
 * replaced by the partition's first offset, which may be higher. Per-entry failures leave BROOK_OFFSET_NONE and the
 * first one is returned: -BROOK_E_OFFSET_OUT_OF_RANGE (beyond the high watermark), -BROOK_E_OUTCOME_UNKNOWN (only
 * with BROOK_OFFSET_LATEST: the answer was lost), ... `validate_only`: check, delete nothing. */
int brook_admin_delete_records(brook_admin *admin, struct brook_position *positions, size_t count,
                               bool validate_only, int timeout_ms, struct brook_error *error);

struct brook_names {
    const char *const *names;
    size_t count;
};
int brook_admin_list_groups(brook_admin *admin, int timeout_ms, struct brook_names **ret_names,
                            struct brook_error *error);
void brook_names_free(struct brook_names *names);

struct brook_group_member {
    const char *id;
    const char *host;
    const char *const *topics;
    size_t topics_count;
    bool is_pattern;
};
struct brook_group_partition {
    const char *topic;
    int32_t partition;
    const char *owner;    /* member id; NULL: nobody */
    const char *assigned; /* NULL: nobody */
    int64_t offset;       /* stored; BROOK_OFFSET_NONE */
    int64_t end;          /* high watermark; -1: not known */
};
struct brook_group {
    const char *name;
    const char *strategy; /* "" without members */
    const struct brook_group_member *members;
    size_t members_count;
    const struct brook_group_partition *partitions;
    size_t partitions_count;
};
int brook_admin_describe_group(brook_admin *admin, const char *group, int timeout_ms,
                               struct brook_group **ret_group, struct brook_error *error);
void brook_group_free(struct brook_group *group);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
