#include "client/partitioner.h"
#include "client/producer_parts.h"
#include "proto/base/cleanup.h"

#include <assert.h>
#include <stdlib.h>
#include <time.h>

/* Headers of a record that need no memory of their own. */
#define HEADERS_HERE 16

int producer_add(brook_producer *p, struct produce_partition *partition, const struct record_view *view,
                 void *opaque)
{
    struct produce_batch *batch = partition->open;
    if (p->report && batch && producer_batch_opaque_room(batch, (size_t)batch->writer.records_count) < 0)
        return -BROOK_E_NOMEM;
    if (!batch || batch_writer_add(&batch->writer, view) < 0) {
        size_t bytes = record_bytes_max(view);
        int r = batch ? producer_batch_grow(p, batch, bytes) : -BROOK_E_AGAIN;
        if (r < 0) {
            if (batch) {
                producer_batch_close(p, partition);
                producer_ready(p, partition);
            }
            r = producer_batch_open(p, partition, bytes, &batch);
            if (r < 0)
                return r;
        }
        r = batch_writer_add(&batch->writer, view);
        assert(r == 0);
    }
    if (p->report)
        producer_batch_set_opaque(batch, (size_t)batch->writer.records_count - 1, opaque);
    bool full = batch->writer.bytes >= partition->batch_bytes || batch->writer.records_count >= p->batch_records_max;
    if (full)
        producer_batch_close(p, partition);
    else if (p->linger_ms == 0 || p->flushes > 0)
        partition->due = true;
    if (full || partition->due)
        producer_ready(p, partition);
    return 0;
}

/* Sizes become 32 bits here, once. */
static int check_record(const brook_producer *p, const struct brook_record *record, struct brook_error *error)
{
    if (!record->topic)
        return brook_error_set(error, BROOK_E_INVALID, "a record without a topic");
    if (record->partition < BROOK_PARTITION_ANY)
        return brook_error_set(error, BROOK_E_INVALID, "partition %d", record->partition);
    if (record->key_bytes > p->request_bytes_max || record->value_bytes > p->request_bytes_max ||
        record->headers_count > p->request_bytes_max)
        return brook_error_set(error, BROOK_E_MESSAGE_TOO_LARGE, "a record of %zu bytes is larger than %zu",
                               record->key_bytes + record->value_bytes, p->request_bytes_max);
    return 0;
}

static int view_headers(const brook_producer *p, const struct brook_record *record, struct record_header *to,
                        struct brook_error *error)
{
    for (size_t i = 0; i < record->headers_count; i++) {
        const struct brook_header *h = &record->headers[i];
        if (!h->key)
            return brook_error_set(error, BROOK_E_INVALID, "a header without a key");
        if (h->key_bytes > p->request_bytes_max || h->value_bytes > p->request_bytes_max)
            return brook_error_set(error, BROOK_E_MESSAGE_TOO_LARGE, "a header is larger than %zu bytes",
                                   p->request_bytes_max);
        to[i] = (struct record_header){.key = h->key,
                                       .key_bytes = (int32_t)h->key_bytes,
                                       .value = h->value,
                                       .value_bytes = (int32_t)h->value_bytes};
    }
    return 0;
}

static int64_t coarse_wall_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME_COARSE, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void view_record(const struct brook_record *record, const struct record_header *headers,
                        struct record_view *ret)
{
    *ret = (struct record_view){.key = record->key,
                                .value = record->value,
                                .headers = headers,
                                .key_bytes = (int32_t)record->key_bytes,
                                .value_bytes = (int32_t)record->value_bytes,
                                .headers_count = (int32_t)record->headers_count,
                                .timestamp = record->timestamp ? record->timestamp : coarse_wall_ms()};
}

/* The caller's function, which runs without the lock. */
static int ask_partitioner(brook_producer *p, const struct brook_record *record, int32_t count, int32_t *ret,
                           struct brook_error *error)
{
    pthread_mutex_unlock(&p->lock);
    int32_t chosen = p->partitioner(p->partitioner_arg, record, count);
    pthread_mutex_lock(&p->lock);
    if (chosen < 0 || chosen >= count)
        return brook_error_set(error, BROOK_E_UNKNOWN_PARTITION, "the partitioner chose %d of %d", chosen,
                               count);
    *ret = chosen;
    return 0;
}

static int choose(brook_producer *p, struct produce_topic *topic, const struct brook_record *record,
                  int32_t *ret, struct brook_error *error)
{
    int32_t count = topic->partitions_count;
    if (record->partition >= count)
        return brook_error_set(error, BROOK_E_UNKNOWN_PARTITION, "topic %s has %d partitions, no number %d",
                               topic->name, count, record->partition);
    if (record->partition >= 0)
        *ret = record->partition;
    else if (p->partitioner)
        return ask_partitioner(p, record, count, ret, error);
    else if (p->by_key && record->key)
        *ret = partition_of_key(record->key, record->key_bytes, count);
    else
        *ret = producer_topic_choose(p, topic);
    return 0;
}

static int put(brook_producer *p, const struct brook_record *record, const struct record_view *view,
               struct brook_error *error)
{
    struct produce_topic *topic;
    int32_t partition = 0;
    int r = producer_topic(p, record->topic, &topic);
    if (r < 0)
        return r;
    if (!topic->known)
        return producer_topic_hold(p, topic, view, record->partition, record->opaque);
    r = choose(p, topic, record, &partition, error);
    return r < 0 ? r : producer_add(p, topic->partitions[partition], view, record->opaque);
}

/* Wait for memory, under the lock. */
static int wait_for_room(brook_producer *p)
{
    if (producer_ask_wake(p))
        producer_wake(p);
    p->room_waiters++;
    pthread_cond_wait(&p->room, &p->lock);
    p->room_waiters--;
    return p->closing ? -BROOK_E_CLOSED : 0;
}

static int send_view(brook_producer *p, const struct brook_record *record, const struct record_view *view,
                     unsigned flags, struct brook_error *error)
{
    bool may_wait = (flags & BROOK_SEND_WAIT) && !producer_in_callback(p);
    pthread_mutex_lock(&p->lock);
    int r = p->closing ? -BROOK_E_CLOSED : 0;
    while (r == 0) {
        r = put(p, record, view, error);
        if (r != -BROOK_E_QUEUE_FULL)
            break;
        p->counters.queue_full++;
        p->hurry = true; /* what lingers holds memory */
        if (!may_wait)
            break;
        r = wait_for_room(p);
    }
    bool wake = false;
    if (r == 0) {
        p->counters.records_accepted++;
        p->counters.bytes_accepted += (int64_t)(record->key_bytes + record->value_bytes);
        p->unreported++;
        /* The loop must look when something is to leave, or when nothing makes it look by itself. */
        if (p->ready_head || p->new_topics || !p->linger_armed)
            wake = producer_ask_wake(p);
    }
    pthread_mutex_unlock(&p->lock);
    if (wake)
        producer_wake(p);
    return r;
}

static int send_with_headers(brook_producer *p, const struct brook_record *record, unsigned flags,
                             struct brook_error *error)
{
    struct record_header here[HEADERS_HERE];
    AUTO_FREE struct record_header *more = NULL;
    struct record_header *headers = here;
    if (record->headers_count > HEADERS_HERE) {
        headers = more = calloc(record->headers_count, sizeof *more);
        if (!more)
            return brook_error_set(error, BROOK_E_NOMEM, "out of memory");
    }
    int r = view_headers(p, record, headers, error);
    if (r < 0)
        return r;
    struct record_view view;
    view_record(record, headers, &view);
    size_t bytes = record_bytes_max(&view) + BATCH_HEADER_BYTES;
    if (bytes > p->request_bytes_max)
        return brook_error_set(error, BROOK_E_MESSAGE_TOO_LARGE,
                               "a record of %zu bytes with its batch is larger than %zu", bytes,
                               p->request_bytes_max);
    return send_view(p, record, &view, flags, error);
}

int brook_producer_send(brook_producer *p, const struct brook_record *record, unsigned flags,
                        struct brook_error *error)
{
    if (error)
        error->code = 0;
    int r = check_record(p, record, error);
    if (r == 0)
        r = send_with_headers(p, record, flags, error);
    if (r < 0 && error && error->code == 0)
        brook_error_set(error, -r, "topic %.200s: %s", record->topic, brook_error_text(r));
    return r;
}
