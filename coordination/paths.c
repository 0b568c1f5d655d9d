#include "coordination/paths.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *write_path(struct path *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

static const char *write_path(struct path *p, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(p->text, sizeof p->text, format, args);
    va_end(args);
    assert(n > 0 && (size_t)n < sizeof p->text);
    return p->text;
}

const char *path_broker_id(struct path *p, int32_t broker_id)
{
    return write_path(p, PATH_BROKER_IDS "/%" PRId32, broker_id);
}

const char *path_broker_epoch(struct path *p, int32_t broker_id)
{
    return write_path(p, PATH_BROKER_EPOCHS "/%" PRId32, broker_id);
}

const char *path_topic(struct path *p, const char *topic)
{
    return write_path(p, PATH_TOPICS "/%s", topic);
}

const char *path_partitions(struct path *p, const char *topic)
{
    return write_path(p, PATH_TOPICS "/%s/partitions", topic);
}

const char *path_partition(struct path *p, const char *topic, int32_t partition)
{
    return write_path(p, PATH_TOPICS "/%s/partitions/%" PRId32, topic, partition);
}

const char *path_partition_state(struct path *p, const char *topic, int32_t partition)
{
    return write_path(p, PATH_TOPICS "/%s/partitions/%" PRId32 "/state", topic, partition);
}

const char *path_topic_broker(struct path *p, const char *topic, int32_t broker_id)
{
    return write_path(p, PATH_TOPICS "/%s/brokers/%" PRId32, topic, broker_id);
}

const char *path_topic_brokers(struct path *p, const char *topic)
{
    return write_path(p, PATH_TOPICS "/%s/brokers", topic);
}

const char *path_topic_mark(struct path *p, const char *topic, const char *topic_id)
{
    return write_path(p, PATH_TOPICS "/%s/id_%s", topic, topic_id);
}

const char *path_topic_ends(struct path *p, const char *topic)
{
    return write_path(p, PATH_TOPICS "/%s/ends", topic);
}

const char *path_topic_end(struct path *p, const char *topic, int32_t broker_id)
{
    return write_path(p, PATH_TOPICS "/%s/ends/%" PRId32, topic, broker_id);
}

const char *path_broker_config(struct path *p, int32_t broker_id)
{
    return write_path(p, PATH_CONFIG_BROKERS "/%" PRId32, broker_id);
}

const char *path_change(struct path *p, const char *child)
{
    return write_path(p, PATH_CHANGES "/%s", child);
}

const char *path_topic_config(struct path *p, const char *topic)
{
    return write_path(p, PATH_CONFIG_TOPICS "/%s", topic);
}

const char *path_delete_topic(struct path *p, const char *topic)
{
    return write_path(p, PATH_DELETE_TOPICS "/%s", topic);
}

const char *path_group(struct path *p, const char *group)
{
    return write_path(p, PATH_CONSUMERS "/%s", group);
}

const char *path_group_ids(struct path *p, const char *group)
{
    return write_path(p, PATH_CONSUMERS "/%s/ids", group);
}

const char *path_group_member(struct path *p, const char *group, const char *member)
{
    return write_path(p, PATH_CONSUMERS "/%s/ids/%s", group, member);
}

const char *path_group_assignment(struct path *p, const char *group)
{
    return write_path(p, PATH_CONSUMERS "/%s/assignment", group);
}

const char *path_group_owners(struct path *p, const char *group, const char *topic)
{
    return write_path(p, PATH_CONSUMERS "/%s/owners%s%s", group, topic ? "/" : "", topic ? topic : "");
}

const char *path_owner(struct path *p, const char *group, const char *topic, int32_t partition)
{
    return write_path(p, PATH_CONSUMERS "/%s/owners/%s/%" PRId32, group, topic, partition);
}

const char *path_group_offsets(struct path *p, const char *group, const char *topic)
{
    return write_path(p, PATH_CONSUMERS "/%s/offsets%s%s", group, topic ? "/" : "", topic ? topic : "");
}

const char *path_offset(struct path *p, const char *group, const char *topic, int32_t partition)
{
    return write_path(p, PATH_CONSUMERS "/%s/offsets/%s/%" PRId32, group, topic, partition);
}

/* Decimal digits only, no more than `max`; -1 otherwise. */
static int64_t parse_digits(const char *text, int64_t max)
{
    int64_t value = 0;
    if (!*text)
        return -1;
    for (; *text; text++) {
        if (*text < '0' || *text > '9')
            return -1;
        value = value * 10 + (*text - '0');
        if (value > max)
            return -1;
    }
    return value;
}

/* ZooKeeper prints a signed 32-bit counter with ten digits: past its end the numbers turn negative. */
#define SEQUENCE_DIGITS 10

int64_t path_sequence(const char *child)
{
    size_t n = strlen(child);
    if (n < SEQUENCE_DIGITS)
        return -1;
    return parse_digits(child + n - SEQUENCE_DIGITS, INT32_MAX);
}

int32_t path_partition_number(const char *child)
{
    if (child[0] == '0' && child[1])
        return -1;
    return (int32_t)parse_digits(child, INT32_MAX);
}
