#include "broker/handlers/request.h"

#include "broker/partition/partition.h"
#include "proto/base/clock.h"

#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct request_block {
    struct request_block *next;
    _Alignas(16) uint8_t memory[];
};

void request_init(struct request *r, struct request_loop *loop, struct request_peer *peer)
{
    memset(r, 0, offsetof(struct request, scratch));
    r->loop = loop;
    r->peer = peer;
}

void request_done(struct request *r)
{
    while (r->blocks) {
        struct request_block *next = r->blocks->next;
        free(r->blocks);
        r->blocks = next;
    }
}

void *request_alloc(struct request *r, size_t bytes)
{
    if (bytes > SIZE_MAX / 2)
        return NULL;
    size_t rounded = (bytes + 15) & ~(size_t)15;
    if (rounded <= sizeof r->scratch - r->scratch_used) {
        void *at = r->scratch + r->scratch_used;
        r->scratch_used += rounded;
        return memset(at, 0, rounded);
    }
    struct request_block *block = calloc(1, sizeof *block + rounded);
    if (!block)
        return NULL;
    block->next = r->blocks;
    r->blocks = block;
    return block->memory;
}

char *request_text(struct request *r, const ProtobufCBinaryData *bytes)
{
    if (bytes->len && memchr(bytes->data, '\0', bytes->len))
        return NULL;
    char *text = request_alloc(r, bytes->len + 1);
    if (text && bytes->len)
        memcpy(text, bytes->data, bytes->len);
    return text;
}

void *request_reply_alloc(struct request *r, size_t bytes)
{
    return arena_alloc(r->loop->reply_arena, bytes);
}

Brook__Status *request_status(struct request *r, const struct brook_error *error)
{
    return envelope_status(r->loop->reply_arena, error->code, error->text[0] ? error->text : NULL);
}

ProtobufCBinaryData request_reply_bytes(struct request *r, const void *data, size_t bytes)
{
    ProtobufCBinaryData copy = {0};
    if (bytes && (copy.data = request_reply_alloc(r, bytes))) {
        memcpy(copy.data, data, bytes);
        copy.len = bytes;
    }
    return copy;
}

void request_reply(struct request *r, Brook__Response *response, struct log_range *ranges,
                   size_t ranges_count)
{
    response->has_correlation_id = true;
    response->correlation_id = r->correlation_id;
    r->loop->ops->reply(r, response, ranges, ranges_count);
}

void request_fail_error(struct request *r, const struct brook_error *error)
{
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__Status status = BROOK__STATUS__INIT;
    status.has_code = true;
    status.code = error->code;
    status.has_text = true;
    status.text = envelope_text(error->text[0] ? error->text : brook_error_text(error->code));
    response.status = &status;
    request_reply(r, &response, NULL, 0);
}

void request_fail(struct request *r, int code, const char *format, ...)
{
    struct brook_error error = {.code = abs(code)};
    if (format) {
        va_list args;
        va_start(args, format);
        brook_error_setv(&error, code, format, args);
        va_end(args);
    }
    request_fail_error(r, &error);
}

void request_end(struct request *r)
{
    r->loop->ops->end(r, NULL);
}

void request_end_and_close(struct request *r, const struct brook_error *why)
{
    r->loop->ops->end(r, why);
}

void request_set_deadline(struct request *r, int64_t deadline_ns)
{
    r->loop->ops->set_deadline(r, deadline_ns);
}

bool request_is_expired(const struct request *r)
{
    return r->expires_ns && clock_boot_ns() > r->expires_ns;
}

bool request_refuse_many(struct request *r, size_t partitions_count)
{
    uint32_t most = r->loop->settings->partitions_per_request_max;
    if (partitions_count <= most)
        return false;
    request_fail(r, BROOK_E_TOO_MANY, "%zu partitions in one request, at most %u are allowed", partitions_count,
                 most);
    return true;
}

int request_timeout_ms(const struct request *r, uint32_t asked_ms)
{
    uint32_t most = r->loop->settings->request_timeout_ms_max;
    return (int)(asked_ms < most ? asked_ms : most);
}

int request_find_topic(const struct request_loop *loop, const ProtobufCBinaryData *topic_id,
                       const struct view_topic **ret, struct brook_error *error)
{
    if (!loop->view)
        return brook_error_set(error, BROOK_E_BROKER_NOT_AVAILABLE,
                               "the broker knows nothing of the cluster yet");
    if (topic_id->len != sizeof(struct topic_id))
        return brook_error_set(error, BROOK_E_INVALID, "a topic id has 16 bytes, not %zu", topic_id->len);
    const struct view_topic *topic = view_topic_by_id(loop->view, topic_id->data);
    if (!topic) {
        struct topic_id id;
        char text[TOPIC_ID_TEXT_BYTES];
        memcpy(id.bytes, topic_id->data, sizeof id.bytes);
        topic_id_format(&id, text);
        return brook_error_set(error, BROOK_E_UNKNOWN_TOPIC, "no topic has the id %s", text);
    }
    if (topic->being_deleted)
        return brook_error_set(error, BROOK_E_TOPIC_BEING_DELETED, "topic %s is being deleted", topic->name);
    *ret = topic;
    return 0;
}

static int check_epoch(const struct view_topic *topic, int32_t number, int32_t asked, int32_t ours,
                       struct brook_error *error)
{
    if (asked < 0 || asked == ours)
        return 0;
    if (asked < ours)
        return brook_error_set(error, BROOK_E_FENCED_EPOCH,
                               "partition %s/%d: leader epoch %d is over, it is %d now", topic->name, number,
                               asked, ours);
    return brook_error_set(error, BROOK_E_UNKNOWN_EPOCH,
                           "partition %s/%d: leader epoch %d is not known here, it is %d", topic->name,
                           number, asked, ours);
}

int request_find_led(const struct request_loop *loop, const ProtobufCBinaryData *topic_id, int32_t partition,
                     int32_t current_epoch, const struct view_topic **ret_topic,
                     struct partition **ret_partition, struct brook_error *error)
{
    const struct view_topic *topic;
    int r = request_find_topic(loop, topic_id, &topic, error);
    if (r < 0)
        return r;
    if (partition < 0 || partition >= topic->partitions_count)
        return brook_error_set(error, BROOK_E_UNKNOWN_PARTITION, "topic %s has %d partitions, there is no %d",
                               topic->name, topic->partitions_count, partition);
    const struct view_partition *p = &topic->partitions[partition];
    int32_t epoch;
    if (!p->local || !partition_is_leader(p->local, &epoch)) {
        if (p->leader < 0)
            return brook_error_set(error, BROOK_E_NO_LEADER, "partition %s/%d has no leader (epoch %d): %.300s",
                                   topic->name, partition, p->leader_epoch,
                                   p->why_leaderless ? p->why_leaderless : "it is waited for");
        if (p->leader == loop->settings->broker_id && p->offline_here)
            return brook_error_set(error, BROOK_E_LOG_OFFLINE, "partition %s/%d: its log on broker %d is offline: %.300s",
                                   topic->name, partition, p->leader, p->offline_here);
        if (p->leader == loop->settings->broker_id)
            return brook_error_set(
                error, BROOK_E_NOT_LEADER,
                "partition %s/%d: this broker is about to lead it, or about to stop (epoch %d)", topic->name,
                partition, p->leader_epoch);
        return brook_error_set(error, BROOK_E_NOT_LEADER,
                               "partition %s/%d: leader is broker %d, not %d (epoch %d)", topic->name,
                               partition, p->leader, loop->settings->broker_id, p->leader_epoch);
    }
    r = check_epoch(topic, partition, current_epoch, epoch, error);
    if (r < 0)
        return r;
    *ret_topic = topic;
    *ret_partition = p->local;
    return 0;
}

int request_find_read(const struct request_loop *loop, const ProtobufCBinaryData *topic_id, int32_t partition,
                      int32_t current_epoch, const struct view_topic **ret_topic,
                      struct partition **ret_partition, struct brook_error *error)
{
    const struct view_topic *topic;
    struct partition_marks marks;
    bool is_there = current_epoch >= 0 && request_find_topic(loop, topic_id, &topic, NULL) == 0 && partition >= 0 &&
                    partition < topic->partitions_count && topic->partitions[partition].local;
    if (is_there)
        partition_marks(topic->partitions[partition].local, &marks);
    if (!is_there || !marks.is_follower)
        return request_find_led(loop, topic_id, partition, current_epoch, ret_topic, ret_partition, error);
    int r = check_epoch(topic, partition, current_epoch, marks.leader_epoch, error);
    if (r < 0)
        return r;
    *ret_topic = topic;
    *ret_partition = topic->partitions[partition].local;
    return 0;
}
