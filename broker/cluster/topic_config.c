#include "broker/cluster/topic_config.h"

#include "coordination/znodes.h"

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
};

#define FIELD(member) offsetof(struct topic_config, member), sizeof(((struct topic_config *)0)->member)

static const struct setting settings[] = {
    {"file.delete.delay.ms", FIELD(log.file_delete_delay_ms), 0, INT64_MAX,
     "How long removed segment files stay on disk under their .deleted name."},
    {"index.interval.bytes", FIELD(log.index_interval_bytes), 0, INT32_MAX,
     "Bytes of log between two entries of the offset index."},
    {"max.message.bytes", FIELD(message_bytes_max), 64, 100 << 20,
     "Largest record batch, in bytes, that the topic takes."},
    {"min.insync.replicas", FIELD(min_insync_replicas), 1, ZNODE_REPLICAS_MAX,
     "Replicas that must be in sync for a produce with acks=all."},
    {"retention.bytes", FIELD(log.retention_bytes), -1, INT64_MAX,
     "Bytes of log that a partition keeps; -1: without limit."},
    {"retention.ms", FIELD(log.retention_ms), -1, INT64_MAX,
     "Age in milliseconds at which records are removed; -1: never."},
    {"segment.bytes", FIELD(log.segment_bytes), 1024, INT32_MAX, "Bytes at which a new segment is begun."},
    {"segment.index.bytes", FIELD(log.segment_index_bytes), 64, INT32_MAX,
     "Largest size of a segment's index file, in bytes."},
    {"segment.ms", FIELD(log.segment_ms), 1, INT64_MAX,
     "Age in milliseconds at which a new segment is begun even if the old one is not full."},
};
#define SETTINGS_COUNT (sizeof settings / sizeof settings[0])

static const struct setting *find_setting(const char *key)
{
    for (size_t i = 0; i < SETTINGS_COUNT; i++)
        if (!strcmp(settings[i].key, key))
            return &settings[i];
    return NULL;
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

static int apply_entry(struct topic_config *config, const struct znode_config_entry *entry,
                       struct brook_error *error)
{
    if (!strcmp(entry->key, "durability"))
        return brook_error_set(error, BROOK_E_INVALID_CONFIG,
                               "durability: this version does not offer the setting");
    const struct setting *s = find_setting(entry->key);
    if (!s)
        return brook_error_set(error, BROOK_E_INVALID_CONFIG, "%.100s: no such topic setting", entry->key);
    int64_t value;
    if (!parse(entry->value, &value))
        return brook_error_set(error, BROOK_E_INVALID_CONFIG, "%s: \"%.60s\" is not a whole number", s->key,
                               entry->value);
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

void topic_config_visit(const struct topic_config *config, topic_config_visitor *visitor, void *arg)
{
    for (size_t i = 0; i < SETTINGS_COUNT; i++) {
        char value[24];
        snprintf(value, sizeof value, "%" PRId64, load(config, &settings[i]));
        visitor(arg, settings[i].key, value, settings[i].description);
    }
}
