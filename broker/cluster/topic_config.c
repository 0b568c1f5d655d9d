#include "broker/cluster/topic_config.h"

#include "coordination/znodes.h"
#include "proto/base/ratio.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct setting {
    const char *key;
    size_t position; /* in struct topic_config */
    size_t bytes;    /* 4 or 8 */
    int64_t min;
    int64_t max;
    const char *description;
    const char *const *names; /* of the values from `min` to `max`; NULL: it is a number */
};

#define FIELD(member) offsetof(struct topic_config, member), sizeof(((struct topic_config *)0)->member)

static const char *const durability_names[] = {
    [DURABILITY_BY_REPLICAS] = "",
    [DURABILITY_FSYNC] = "fsync",
    [DURABILITY_REPLICATED] = "replicated",
    [DURABILITY_INTERVAL] = "interval",
};

static const char *const switch_names[] = {"false", "true"};

static const char *const cleanup_names[] = {
    [CLEANUP_DELETE] = "delete",
    [CLEANUP_COMPACT] = "compact",
    [CLEANUP_COMPACT_DELETE] = "compact,delete",
    [CLEANUP_DELETE_COMPACT] = "delete,compact",
};

static const char *const timestamp_names[] = {
    [TIMESTAMP_CREATE] = "CreateTime",
    [TIMESTAMP_LOG_APPEND] = "LogAppendTime",
};

/* In the place of names: a ratio, kept in millionths. */
static const char *const as_ratio[] = {NULL};

static const struct setting settings[] = {
    {"cleanup.policy", FIELD(log.cleanup_policy), 0, CLEANUP_DELETE_COMPACT,
     "What happens to old records. delete: they go by age and size; compact: of each key the last one stays; "
     "compact,delete: both. A topic that is compacted takes records with a key only.",
     cleanup_names},
    {"delete.retention.ms", FIELD(log.delete_retention_ms), 0, INT64_MAX,
     "With compaction: how long a tombstone (a key without a value) stays after it was first compacted.", NULL},
    {"durability", FIELD(durability.mode), DURABILITY_REPLICATED, DURABILITY_INTERVAL,
     "What an acknowledgement of acks=all means. fsync (the default for one replica): on stable storage; "
     "replicated (for more): in the page cache of all replicas in sync; interval: likewise, and consumers "
     "see a record once it is flushed.",
     durability_names},
    {"file.delete.delay.ms", FIELD(log.file_delete_delay_ms), 0, INT64_MAX,
     "How long removed segment files stay on disk under their .deleted name.", NULL},
    {"flush.messages", FIELD(durability.flush_messages), 1, INT64_MAX,
     "With durability=interval: records that may lie unflushed.", NULL},
    {"flush.ms", FIELD(durability.flush_ms), 0, INT64_MAX,
     "With durability=interval: how many milliseconds a record may lie unflushed.", NULL},
    {"index.interval.bytes", FIELD(log.index_interval_bytes), 0, INT32_MAX,
     "Bytes of log between two entries of the offset index.", NULL},
    {"max.compaction.lag.ms", FIELD(log.max_compaction_lag_ms), 1, INT64_MAX,
     "With compaction: records that have waited for so long are compacted whatever the ratio.", NULL},
    {"max.message.bytes", FIELD(message_bytes_max), 64, 100 << 20,
     "Largest record batch, in bytes, that the topic takes.", NULL},
    {"message.timestamp.after.max.ms", FIELD(timestamp_after_ms_max), 0, INT64_MAX,
     "How far ahead of the broker's clock the timestamps of a batch may be, in milliseconds.", NULL},
    {"message.timestamp.before.max.ms", FIELD(timestamp_before_ms_max), 0, INT64_MAX,
     "How far behind the broker's clock the first timestamp of a batch may be, in milliseconds.", NULL},
    {"message.timestamp.type", FIELD(log.timestamp_type), TIMESTAMP_CREATE, TIMESTAMP_LOG_APPEND,
     "Which time records have. CreateTime: what their producer says; LogAppendTime: the broker's clock when it appended "
     "them, whatever the producer says.",
     timestamp_names},
    {"min.cleanable.dirty.ratio", FIELD(log.min_dirty_ppm), 0, RATIO_ONE_PPM,
     "With compaction: a log is compacted when more of it than this was not yet.", as_ratio},
    {"min.compaction.lag.ms", FIELD(log.min_compaction_lag_ms), 0, INT64_MAX,
     "With compaction: records stay uncompacted for at least so long.", NULL},
    {"min.insync.replicas", FIELD(min_insync_replicas), 1, ZNODE_REPLICAS_MAX,
     "Replicas that must be in sync for a produce with acks=all.", NULL},
    {"retention.bytes", FIELD(log.retention_bytes), -1, INT64_MAX,
     "Bytes of log that a partition keeps; -1: without limit.", NULL},
    {"retention.ms", FIELD(log.retention_ms), -1, INT64_MAX,
     "Age in milliseconds at which records are removed; -1: never.", NULL},
    {"segment.bytes", FIELD(log.segment_bytes), 1024, INT32_MAX, "Bytes at which a new segment is begun.",
     NULL},
    {"segment.index.bytes", FIELD(log.segment_index_bytes), 64, INT32_MAX,
     "Largest size of a segment's index file, in bytes.", NULL},
    {"segment.ms", FIELD(log.segment_ms), 1, INT64_MAX,
     "Age in milliseconds at which a new segment is begun even if the old one is not full.", NULL},
    {"unclean.leader.election.enable", FIELD(unclean_election), 0, 1,
     "Whether a replica that is not in sync may lead when no other is left: records that were acknowledged may "
     "be lost.",
     switch_names},
};
#define SETTINGS_COUNT (sizeof settings / sizeof settings[0])

static const struct setting *find_setting(const char *key)
{
    for (size_t i = 0; i < SETTINGS_COUNT; i++)
        if (!strcmp(settings[i].key, key))
            return &settings[i];
    return NULL;
}

bool topic_config_knows(const char *key)
{
    return find_setting(key) != NULL;
}

static int64_t load(const struct topic_config *config, const struct setting *s)
{
    const char *at = (const char *)config + s->position;
    int32_t narrow;
    int64_t wide;
    if (s->bytes == sizeof narrow) {
        memcpy(&narrow, at, sizeof narrow);
        return narrow;
    }
    memcpy(&wide, at, sizeof wide);
    return wide;
}

static void store(struct topic_config *config, const struct setting *s, int64_t value)
{
    char *at = (char *)config + s->position;
    int32_t narrow = (int32_t)value;
    if (s->bytes == sizeof narrow)
        memcpy(at, &narrow, sizeof narrow);
    else
        memcpy(at, &value, sizeof value);
}

static bool parse(const char *text, int64_t *ret)
{
    char *end;
    if (*text != '-' && (*text < '0' || *text > '9')) /* no blanks, no plus sign */
        return false;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno || end == text || *end)
        return false;
    *ret = value;
    return true;
}

static bool find_name(const struct setting *s, const char *text, int64_t *ret)
{
    for (int64_t i = s->min; i <= s->max; i++)
        if (!strcmp(s->names[i], text)) {
            *ret = i;
            return true;
        }
    return false;
}

bool topic_config_parse_durability(const char *name, int32_t *ret_mode)
{
    int64_t mode;
    if (!find_name(find_setting("durability"), name, &mode))
        return false;
    *ret_mode = (int32_t)mode;
    return true;
}

bool topic_config_parse_timestamp_type(const char *name, int64_t *ret_type)
{
    return find_name(find_setting("message.timestamp.type"), name, ret_type);
}

bool topic_config_parse_cleanup(const char *name, int32_t *ret_policy)
{
    int64_t policy;
    if (!find_name(find_setting("cleanup.policy"), name, &policy))
        return false;
    *ret_policy = (int32_t)policy;
    return true;
}

static int parse_value(const struct setting *s, const char *text, int64_t *ret, struct brook_error *error)
{
    int32_t ppm;
    if (s->names == as_ratio) {
        if (!ratio_parse(text, &ppm))
            return brook_error_set(error, BROOK_E_INVALID_CONFIG, "%s: \"%.60s\" is not a number from 0 to 1",
                                   s->key, text);
        *ret = ppm;
        return 0;
    }
    if (s->names && !find_name(s, text, ret))
        return brook_error_set(error, BROOK_E_INVALID_CONFIG, "%s: there is no \"%.60s\"", s->key, text);
    if (!s->names && !parse(text, ret))
        return brook_error_set(error, BROOK_E_INVALID_CONFIG, "%s: \"%.60s\" is not a whole number", s->key,
                               text);
    return 0;
}

static int apply_entry(struct topic_config *config, const struct znode_config_entry *entry,
                       struct brook_error *error)
{
    const struct setting *s = find_setting(entry->key);
    if (!s)
        return brook_error_set(error, BROOK_E_INVALID_CONFIG, "%.100s: no such topic setting", entry->key);
    int64_t value = 0;
    int err = parse_value(s, entry->value, &value, error);
    if (err)
        return err;
    if (value < s->min || value > s->max)
        return brook_error_set(error, BROOK_E_INVALID_CONFIG,
                               "%s: %" PRId64 " is outside %" PRId64 " to %" PRId64, s->key, value, s->min,
                               s->max);
    store(config, s, value);
    return 0;
}

int topic_config_apply(const struct topic_config *defaults, const struct znode_config *entries,
                       struct topic_config *ret, struct brook_error *error)
{
    struct topic_config config = *defaults;
    for (size_t i = 0; entries && i < entries->count; i++) {
        int err = apply_entry(&config, &entries->entries[i], error);
        if (err)
            return err;
    }
    *ret = config;
    return 0;
}

size_t topic_config_apply_usable(const struct topic_config *defaults, const struct znode_config *entries,
                                 struct topic_config *ret, struct brook_error *error)
{
    size_t refused = 0;
    *ret = *defaults;
    for (size_t i = 0; entries && i < entries->count; i++)
        if (apply_entry(ret, &entries->entries[i], refused ? NULL : error))
            refused++;
    return refused;
}

int topic_config_check_sizes(const struct topic_config *config, const struct znode_config *entries,
                             struct brook_error *error)
{
    bool is_own = false;
    for (size_t i = 0; entries && i < entries->count; i++)
        is_own = is_own || !strcmp(entries->entries[i].key, "segment.bytes") ||
                 !strcmp(entries->entries[i].key, "max.message.bytes");
    if (!is_own || config->log.segment_bytes >= config->message_bytes_max)
        return 0;
    return brook_error_set(error, BROOK_E_INVALID_CONFIG,
                           "segment.bytes=%" PRId64 " is less than max.message.bytes=%" PRId32
                           ": a segment has to hold the largest batch",
                           config->log.segment_bytes, config->message_bytes_max);
}

int topic_config_check_replicas(const struct topic_config *config, int32_t replicas, struct brook_error *error)
{
    if (config->min_insync_replicas <= replicas)
        return 0;
    return brook_error_set(error, BROOK_E_INVALID_CONFIG,
                           "min.insync.replicas=%" PRId32 ": more than the %" PRId32 " replica%s of each partition",
                           config->min_insync_replicas, replicas, replicas == 1 ? "" : "s");
}

void topic_config_resolve(struct topic_config *config, int32_t replicas)
{
    config->durability.mode = durability_mode_for(config->durability.mode, replicas);
}

void topic_config_visit(const struct topic_config *config, topic_config_visitor *visitor, void *arg)
{
    for (size_t i = 0; i < SETTINGS_COUNT; i++) {
        char value[24];
        int64_t number = load(config, &settings[i]);
        if (settings[i].names == as_ratio)
            ratio_format((int32_t)number, value);
        else if (settings[i].names)
            snprintf(value, sizeof value, "%s", settings[i].names[number]);
        else
            snprintf(value, sizeof value, "%" PRId64, number);
        visitor(arg, settings[i].key, value, settings[i].description);
    }
}
