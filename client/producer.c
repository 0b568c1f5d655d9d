#include "client/partitioner.h"
#include "client/producer_parts.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/names.h"
#include "proto/record/codec.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* Headers of a record that need no memory of their own. */
#define HEADERS_HERE 16
/* Beside the records: replies, compression, and batches that grow. */
#define POOL_SLACK_BYTES ((size_t)256 << 20)

/* ---- making ------------------------------------------------------------------------------------------------ */

static int acks_of(const brook_config *config)
{
    /* all|leader|none|-1|1|0 */
    static const int acks[] = {BROOK__ACKS__ACKS_ALL, BROOK__ACKS__ACKS_LEADER, BROOK__ACKS__ACKS_NONE};
    return acks[config_number(config, CONFIG_ACKS) % 3];
}

static void read_settings(brook_producer *p, const brook_config *config)
{
    p->acks = acks_of(config);
    p->batch_bytes = (size_t)config_number(config, CONFIG_BATCH_SIZE);
    p->one_by_one = p->batch_bytes == 1;
    p->batch_records_max = config_int(config, CONFIG_BATCH_RECORDS_MAX);
    p->linger_ms = config_int(config, CONFIG_LINGER);
    p->codec_id = (enum codec_id)config_number(config, CONFIG_COMPRESSION);
    p->buffer_bytes_max = (size_t)config_number(config, CONFIG_BUFFER_MEMORY);
    p->delivery_timeout_ms = config_number(config, CONFIG_DELIVERY_TIMEOUT);
    p->retries_max = config_number(config, CONFIG_RETRIES);
    p->retry_back_off_ms = config_int(config, CONFIG_RETRY_BACKOFF);
    p->retry_back_off_ms_max = config_int(config, CONFIG_RETRY_BACKOFF_MAX);
    p->in_flight_max = config_int(config, CONFIG_MAX_IN_FLIGHT);
    p->partition_in_flight_max = config_int(config, CONFIG_MAX_IN_FLIGHT_PARTITION);
    if (p->partition_in_flight_max == 0)
        p->partition_in_flight_max = p->retries_max > 0 ? 1 : p->in_flight_max;
    p->request_bytes_max = (size_t)config_number(config, CONFIG_MAX_REQUEST_SIZE);
    p->request_timeout_ms = config_int(config, CONFIG_REQUEST_TIMEOUT);
    p->by_key = config_number(config, CONFIG_PARTITIONER) == 0;
    if (p->batch_bytes > p->request_bytes_max)
        p->batch_bytes = p->request_bytes_max;
}

static void init_locks(brook_producer *p)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->room, &monotonic);
    pthread_cond_init(&p->reported, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static void producer_free(brook_producer *p)
{
    /* First: requests in flight end here, and their batches with them. */
    client_free(p->client);
    producer_topics_free(p);
    producer_requests_free(p);
    producer_batches_free(p);
    codec_free(p->codec);
    if (p->fd >= 0)
        close(p->fd);
    pthread_cond_destroy(&p->room);
    pthread_cond_destroy(&p->reported);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

int brook_producer_new(const brook_config *config, brook_producer **ret_producer, struct brook_error *error)
{
    brook_producer *p = calloc(1, sizeof *p);
    if (!p)
        return brook_error_set(error, BROOK_E_NOMEM, "out of memory");
    p->pid = getpid();
    p->fd = -1;
    p->random = (uint64_t)clock_boot_ns() * 0x9e3779b97f4a7c15u | 1;
    p->ready_tail = &p->ready_head;
    batch_list_init(&p->reports);
    init_locks(p);
    read_settings(p, config);
    int r = client_new(config, 2 * p->buffer_bytes_max + POOL_SLACK_BYTES, &p->client, error);
    if (r == 0 && (r = codec_new(&p->codec)) < 0)
        brook_error_set(error, BROOK_E_NOMEM, "out of memory");
    if (r == 0 && (r = producer_sender_start(p)) < 0)
        brook_error_set(error, -r, "the sender could not be started: %s", brook_error_text(r));
    if (r < 0) {
        producer_free(p);
        return r;
    }
    *ret_producer = p;
    return 0;
}

void brook_producer_on_report(brook_producer *p, brook_report_callback *callback, void *arg)
{
    p->report = callback;
    p->report_arg = arg;
}

void brook_producer_set_partitioner(brook_producer *p, brook_partitioner *partitioner, void *arg)
{
    p->partitioner = partitioner;
    p->partitioner_arg = arg;
}

/* ---- sending ----------------------------------------------------------------------------------------------- */

int producer_add(brook_producer *p, struct produce_partition *partition, const struct record_view *view, void *opaque)
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
    bool full = batch->writer.bytes >= p->batch_bytes || batch->writer.records_count >= p->batch_records_max;
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
        to[i] = (struct record_header){.key = h->key, .key_bytes = (int32_t)h->key_bytes, .value = h->value,
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
    *ret = (struct record_view){.key = record->key, .value = record->value, .headers = headers,
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
        return brook_error_set(error, BROOK_E_UNKNOWN_PARTITION, "the partitioner chose %d of %d", chosen, count);
    *ret = chosen;
    return 0;
}

static int choose(brook_producer *p, struct produce_topic *topic, const struct brook_record *record, int32_t *ret,
                  struct brook_error *error)
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

/* ---- waiting ----------------------------------------------------------------------------------------------- */

bool producer_wait(brook_producer *p, pthread_cond_t *condition, int64_t until_ms)
{
    if (until_ms == INT64_MAX) {
        pthread_cond_wait(condition, &p->lock);
        return true;
    }
    int64_t left_ms = until_ms - clock_boot_ms();
    if (left_ms <= 0)
        return false;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += left_ms / 1000;
    until.tv_nsec += left_ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_cond_timedwait(condition, &p->lock, &until);
    return true;
}

static void stop_on_loop(void *arg)
{
    producer_sender_stop(arg);
}

/* Nothing is unreported any more. */
static int64_t finish_close(brook_producer *p)
{
    int64_t failures = brook_producer_failures(p);
    client_call(p->client, stop_on_loop, p);
    producer_free(p);
    return failures;
}

/* Closed inside a callback that ran in this call: the producer ends with it. */
static void finish_deferred_close(brook_producer *p)
{
    if (p->free_later && !producer_in_callback(p))
        finish_close(p);
}

static int64_t until_of(int timeout_ms)
{
    return timeout_ms < 0 ? INT64_MAX : clock_boot_ms() + timeout_ms;
}

/* Inside a callback the records that it is about can not count: they are being reported. */
static bool is_flushed(const brook_producer *p, bool nested)
{
    return p->unreported <= (nested ? p->delivering : 0);
}

static int flush_until(brook_producer *p, int64_t until_ms)
{
    bool nested = producer_in_callback(p);
    pthread_mutex_lock(&p->lock);
    p->flushes++;
    bool wake = producer_ask_wake(p);
    pthread_mutex_unlock(&p->lock);
    if (wake)
        producer_wake(p);

    bool flushed = false, in_time = true;
    while (!flushed && in_time) {
        producer_reports_run(p);
        pthread_mutex_lock(&p->lock);
        flushed = is_flushed(p, nested);
        if (!flushed && !p->reports.head) {
            p->report_waiters++;
            in_time = producer_wait(p, &p->reported, until_ms);
            p->report_waiters--;
            flushed = is_flushed(p, nested);
        } else if (!flushed) {
            in_time = clock_boot_ms() < until_ms;
        }
        pthread_mutex_unlock(&p->lock);
    }
    pthread_mutex_lock(&p->lock);
    p->flushes--;
    pthread_mutex_unlock(&p->lock);
    return flushed ? 0 : -BROOK_E_TIMED_OUT;
}

int brook_producer_flush(brook_producer *p, int timeout_ms)
{
    int r = flush_until(p, until_of(timeout_ms));
    finish_deferred_close(p);
    return r;
}

int brook_producer_poll(brook_producer *p, int timeout_ms)
{
    int64_t until_ms = until_of(timeout_ms);
    int ran = producer_reports_run(p);
    while (ran == 0 && timeout_ms != 0) {
        pthread_mutex_lock(&p->lock);
        bool in_time = true;
        if (!p->reports.head) {
            p->report_waiters++;
            in_time = producer_wait(p, &p->reported, until_ms);
            p->report_waiters--;
        }
        pthread_mutex_unlock(&p->lock);
        ran = producer_reports_run(p);
        if (!in_time)
            break;
    }
    finish_deferred_close(p);
    return ran;
}

static void purge_on_loop(void *arg)
{
    producer_purge_all(arg);
}

void brook_producer_purge(brook_producer *p)
{
    client_call(p->client, purge_on_loop, p);
}

/* ---- ending ------------------------------------------------------------------------------------------------ */

/* In a forked child: threads, sockets and locks are the parent's. */
static void abandon(brook_producer *p)
{
    client_free(p->client);
    free(p);
}

int64_t brook_producer_close(brook_producer *p, int timeout_ms)
{
    if (!p)
        return 0;
    if (p->pid != getpid()) {
        abandon(p);
        return 0;
    }
    pthread_mutex_lock(&p->lock);
    p->closing = true;
    pthread_cond_broadcast(&p->room);
    pthread_mutex_unlock(&p->lock);
    if (flush_until(p, until_of(timeout_ms)) < 0) {
        brook_producer_purge(p);
        flush_until(p, INT64_MAX);
    }
    if (producer_in_callback(p)) {
        /* The call that runs the callback frees, once it has come back. */
        p->free_later = true;
        return brook_producer_failures(p);
    }
    return finish_close(p);
}

int64_t brook_producer_failures(const brook_producer *p)
{
    brook_producer *unlocked = (brook_producer *)(uintptr_t)p;
    pthread_mutex_lock(&unlocked->lock);
    int64_t failures = p->counters.records_failed + p->counters.records_maybe;
    pthread_mutex_unlock(&unlocked->lock);
    return failures;
}

int brook_producer_fd(const brook_producer *p)
{
    brook_producer *unlocked = (brook_producer *)(uintptr_t)p;
    pthread_mutex_lock(&unlocked->lock);
    if (p->fd < 0)
        unlocked->fd = eventfd(p->reports.head ? 1 : 0, EFD_CLOEXEC | EFD_NONBLOCK);
    int fd = p->fd;
    pthread_mutex_unlock(&unlocked->lock);
    return fd;
}
