/* Positions: seek, pause, and questions about where the consumer stands. */
#include "client/consumer.h"
#include "client/consumer_find.h"
#include "proto/base/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int not_assigned(struct brook_error *error, const char *topic, int32_t partition)
{
    return brook_error_set(error, BROOK_E_NOT_ASSIGNED,
                           "partition %.200s/%d is not assigned to this consumer", topic ? topic : "",
                           partition);
}

/* Takes the lock if the partition is there and read. */
static struct consumer_partition *find_and_lock(struct brook_consumer *c, const char *topic,
                                                int32_t partition)
{
    if (!topic || !name_is_legal_topic(topic, strlen(topic)))
        return NULL;
    set_lock(c->set);
    struct consumer_partition *p = set_find(c->set, topic, partition);
    if (p && p->life == PARTITION_LIVE)
        return p;
    set_unlock(c->set);
    return NULL;
}

int brook_consumer_seek(brook_consumer *c, const char *topic, int32_t partition, int64_t offset,
                        struct brook_error *error)
{
    if (offset < 0 && offset != BROOK_OFFSET_EARLIEST && offset != BROOK_OFFSET_LATEST &&
        offset != BROOK_OFFSET_STORED)
        return brook_error_set(error, BROOK_E_INVALID, "offset %lld is none", (long long)offset);
    struct consumer_partition *p = find_and_lock(c, topic, partition);
    if (!p)
        return not_assigned(error, topic, partition);
    set_seek(c->set, p, offset);
    set_unlock(c->set);
    return 0;
}

int brook_consumer_seek_to_time(brook_consumer *c, const char *topic, int32_t partition, int64_t timestamp_ms,
                                int timeout_ms, struct brook_error *error)
{
    if (!find_and_lock(c, topic, partition))
        return not_assigned(error, topic, partition);
    set_unlock(c->set);
    int64_t offset;
    int r =
        question_ask(c->fetcher, QUESTION_TIME, topic, partition, timestamp_ms, timeout_ms, &offset, error);
    return r < 0 ? r : brook_consumer_seek(c, topic, partition, offset, error);
}

static int pause_or_resume(brook_consumer *c, const char *topic, int32_t partition, bool is_paused,
                           struct brook_error *error)
{
    struct consumer_partition *p = find_and_lock(c, topic, partition);
    if (!p)
        return not_assigned(error, topic, partition);
    set_pause(c->set, p, is_paused);
    set_unlock(c->set);
    return 0;
}

int brook_consumer_pause(brook_consumer *c, const char *topic, int32_t partition, struct brook_error *error)
{
    return pause_or_resume(c, topic, partition, true, error);
}

int brook_consumer_resume(brook_consumer *c, const char *topic, int32_t partition, struct brook_error *error)
{
    return pause_or_resume(c, topic, partition, false, error);
}

int brook_consumer_position(brook_consumer *c, const char *topic, int32_t partition, int64_t *ret_offset)
{
    struct consumer_partition *p = find_and_lock(c, topic, partition);
    if (!p)
        return -BROOK_E_NOT_ASSIGNED;
    *ret_offset = p->delivered;
    set_unlock(c->set);
    return 0;
}

int brook_consumer_lag(brook_consumer *c, const char *topic, int32_t partition, int64_t *ret_records)
{
    struct consumer_partition *p = find_and_lock(c, topic, partition);
    if (!p)
        return -BROOK_E_NOT_ASSIGNED;
    bool is_known = p->delivered >= 0 && p->high_watermark >= p->delivered;
    *ret_records = is_known ? p->high_watermark - p->delivered : -1;
    set_unlock(c->set);
    return 0;
}

int brook_consumer_committed(brook_consumer *c, const char *topic, int32_t partition, int timeout_ms,
                             int64_t *ret_offset, struct brook_error *error)
{
    if (!c->group_id[0])
        return brook_error_set(error, BROOK_E_CONFIG, "group.id is not set");
    if (!topic || !name_is_legal_topic(topic, strlen(topic)))
        return brook_error_set(error, BROOK_E_ILLEGAL_NAME, "\"%.200s\" is not a legal topic name",
                               topic ? topic : "");
    return question_ask(c->fetcher, QUESTION_STORED, topic, partition, -1, timeout_ms, ret_offset, error);
}

int brook_consumer_assignment(brook_consumer *c, struct brook_position **ret_positions, size_t *ret_count)
{
    struct brook_position *positions = NULL;
    size_t count = 0, bytes = 0;
    struct consumer_partition *p, *next;
    set_lock(c->set);
    HASH_ITER (hh_name, c->set->by_name, p, next)
        if (p->life == PARTITION_LIVE) {
            bytes += sizeof *positions + strlen(p->topic) + 1;
            count++;
        }
    positions = malloc(bytes + 1);
    char *text = positions ? (char *)(positions + count) : NULL;
    size_t i = 0;
    if (positions)
        HASH_ITER (hh_name, c->set->by_name, p, next)
            if (p->life == PARTITION_LIVE) {
                size_t topic_bytes = strlen(p->topic) + 1;
                positions[i++] = (struct brook_position){text, p->partition, p->delivered};
                text = (char *)memcpy(text, p->topic, topic_bytes) + topic_bytes;
            }
    set_unlock(c->set);
    if (!positions)
        return -BROOK_E_NOMEM;
    *ret_positions = positions;
    *ret_count = count;
    return 0;
}

struct member_id {
    struct brook_consumer *c;
    char *buffer;
    size_t room;
};

static void read_member_id(void *arg)
{
    struct member_id *id = arg;
    group_member_id(atomic_load(&id->c->group), id->buffer, id->room);
}

int brook_consumer_member_id(brook_consumer *c, char *buffer, size_t room)
{
    struct member_id id = {c, buffer, room};
    if (room == 0)
        return -BROOK_E_INVALID;
    buffer[0] = '\0';
    if (atomic_load(&c->group))
        client_call(c->client, read_member_id, &id);
    return 0;
}
