/* Topic settings: one table with name, type, range, default and a sentence; Kafka's names where the thing is the
 * same. Pure, any thread.
 */
#ifndef BROOK_CLUSTER_TOPIC_CONFIG_H
#define BROOK_CLUSTER_TOPIC_CONFIG_H

#include "broker/partition/durability.h"
#include "broker/storage/log.h"
#include "proto/base/err.h"

struct znode_config;

struct topic_config {
    struct log_settings log;      /* segment.bytes, segment.ms, segment.index.bytes, index.interval.bytes,
                                     retention.ms, retention.bytes, file.delete.delay.ms, cleanup.policy,
                                     delete.retention.ms, min.cleanable.dirty.ratio,
                                     min.compaction.lag.ms, max.compaction.lag.ms, message.timestamp.type */
    struct durability durability; /* durability, flush.messages, flush.ms */
    int32_t message_bytes_max;    /* max.message.bytes */
    int32_t min_insync_replicas;  /* min.insync.replicas */
    int32_t unclean_election;     /* unclean.leader.election.enable: 0 or 1 */
    int64_t timestamp_before_ms_max; /* message.timestamp.before.max.ms */
    int64_t timestamp_after_ms_max;  /* message.timestamp.after.max.ms */
};

/* Apply `entries` over `defaults`. Unknown keys and bad values are refused with -BROOK_E_INVALID_CONFIG and a
 * sentence that names the key. */
int topic_config_apply(const struct topic_config *defaults, const struct znode_config *entries,
                       struct topic_config *ret, struct brook_error *error);
/* The same for settings that are in force already (somebody may have written the znode by hand): entries that can not
 * be used are left out. Returns how many those were; `error` then says what is wrong with the first. */
size_t topic_config_apply_usable(const struct topic_config *defaults, const struct znode_config *entries,
                                 struct topic_config *ret, struct brook_error *error);
/* Whether there is a setting of that name. */
bool topic_config_knows(const char *key);
/* A mode of durability by its name. Returns false when there is none of that name. */
bool topic_config_parse_durability(const char *name, int32_t *ret_mode);
/* Whether a topic of so many replicas (the least that a partition has) can ever satisfy them. Returns 0, or
 * -BROOK_E_INVALID_CONFIG with a sentence that names the key. */
int topic_config_check_replicas(const struct topic_config *config, int32_t replicas, struct brook_error *error);
/* Whether a segment holds the largest batch, if the topic's own `entries` say anything of either. Returns 0, or
 * -BROOK_E_INVALID_CONFIG with a sentence that names both keys. */
int topic_config_check_sizes(const struct topic_config *config, const struct znode_config *entries,
                             struct brook_error *error);
/* What was left to depend on the number of replicas (the least that a partition has) is decided. */
void topic_config_resolve(struct topic_config *config, int32_t replicas);
/* The same for a cleanup policy, and a type of timestamps. */
bool topic_config_parse_cleanup(const char *name, int32_t *ret_policy);
bool topic_config_parse_timestamp_type(const char *name, int64_t *ret_type);
/* Each setting's key, effective value as text, and sentence. */
typedef void topic_config_visitor(void *arg, const char *key, const char *value, const char *description);
void topic_config_visit(const struct topic_config *config, topic_config_visitor *visitor, void *arg);
#endif
