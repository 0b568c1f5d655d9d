#include "client/producer_parts.h"
#include "proto/base/clock.h"
#include "proto/record/codec.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* Beside the records: replies, compression, and batches that grow. */
#define POOL_SLACK_BYTES ((size_t)256 << 20)

/* ---- making ----------------------------------------------------------------------------------------- */

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
    int r = producer_identity_init(p, config, error);
    if (r == 0)
        r = client_new(config, 2 * p->buffer_bytes_max + POOL_SLACK_BYTES, &p->client, error);
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

/* ---- waiting ---------------------------------------------------------------------------------------- */

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

void producer_end_deferred_close(brook_producer *p)
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
    producer_end_deferred_close(p);
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
    producer_end_deferred_close(p);
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

/* ---- ending ----------------------------------------------------------------------------------------- */

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
