#include "client/producer_parts.h"
#include "proto/base/clock.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>

/* How often delivery timeouts are looked at: a tenth of them, within these bounds. */
#define EXPIRY_MS_MIN 10
#define EXPIRY_MS_MAX 1000

/* ---- from the senders to the loop ------------------------------------------------------------------- */

void producer_wake(brook_producer *p)
{
    inbox_post(client_inbox(p->client), &p->wake);
}

void producer_ready(brook_producer *p, struct produce_partition *partition)
{
    if (partition->ready)
        return;
    partition->ready = true;
    partition->ready_next = NULL;
    *p->ready_tail = partition;
    p->ready_tail = &partition->ready_next;
}

void producer_agenda(brook_producer *p, struct produce_partition *partition)
{
    if (partition->on_agenda)
        return;
    partition->on_agenda = true;
    partition->agenda_next = NULL;
    *p->agenda_tail = partition;
    p->agenda_tail = &partition->agenda_next;
}

/* ---- one look (loop) -------------------------------------------------------------------------------- */

/* Open batches that have lingered long enough: their partitions come on the agenda. */
static void mark_due(brook_producer *p, int64_t now_ms)
{
    bool all = p->flushes > 0 || p->hurry || p->linger_ms == 0;
    for (struct produce_batch *b = p->open_first; b; b = b->open_next) {
        if (!all && now_ms - b->opened_ms < p->linger_ms)
            break;
        b->partition->due = true;
        producer_agenda(p, b->partition);
    }
    p->hurry = false;
}

static void add_counters(brook_producer *p)
{
    p->counters.requests_sent += p->requests_sent;
    p->counters.batches_sent += p->batches_sent;
    p->counters.bytes_sent += p->bytes_sent;
    p->counters.retries += p->retries;
    p->requests_sent = p->batches_sent = p->bytes_sent = p->retries = 0;
}

/* Under the lock, briefly: what the senders have left goes over to the loop. An open batch that is due is
 * closed only when it can leave now; until then it takes more records. */
static void collect(brook_producer *p, int64_t now_ms)
{
    pthread_mutex_lock(&p->lock);
    add_counters(p);
    while (p->ready_head) {
        struct produce_partition *partition = p->ready_head;
        p->ready_head = partition->ready_next;
        partition->ready = false;
        producer_agenda(p, partition);
    }
    p->ready_tail = &p->ready_head;
    mark_due(p, now_ms);
    for (struct produce_partition *q = p->agenda_head; q; q = q->agenda_next) {
        batch_list_splice(&q->backlog, &q->closed);
        if (!q->due || !q->open || q->backlog.head || !producer_can_send(p, q, now_ms))
            continue;
        producer_batch_close(p, q);
        batch_list_splice(&q->backlog, &q->closed);
    }
    p->linger_armed = false;
    pthread_mutex_unlock(&p->lock);
}

static void rest(brook_producer *p, struct produce_partition *partition)
{
    if (partition->resting)
        return;
    partition->resting = true;
    partition->resting_next = p->resting;
    p->resting = partition;
}

static void plan(brook_producer *p, int64_t now_ms)
{
    while (p->agenda_head) {
        struct produce_partition *q = p->agenda_head;
        p->agenda_head = q->agenda_next;
        q->on_agenda = false;
        if (!q->backlog.head || q->in_target)
            continue;
        if (producer_can_send(p, q, now_ms)) {
            struct produce_target *target = producer_target(p, q->leader);
            if (target)
                producer_target_push(target, q);
        } else if (q->retry_ms > now_ms) {
            rest(p, q);
        }
    }
    p->agenda_tail = &p->agenda_head;
}

/* Those whose back-off is over come on the agenda. Returns when the next one's will be. */
static int64_t wake_resting(brook_producer *p, int64_t now_ms)
{
    int64_t next_ms = INT64_MAX;
    for (struct produce_partition **at = &p->resting; *at;) {
        struct produce_partition *q = *at;
        if (q->retry_ms > now_ms) {
            next_ms = q->retry_ms < next_ms ? q->retry_ms : next_ms;
            at = &q->resting_next;
            continue;
        }
        *at = q->resting_next;
        q->resting = false;
        producer_agenda(p, q);
    }
    return next_ms;
}

/* ---- delivery.timeout.ms ---------------------------------------------------------------------------- */

/* Why a batch that was given up had not been stored by then; NULL: not known. */
static const char *cause(brook_producer *p, const struct produce_batch *batch)
{
    if (batch->text)
        return batch->text;
    if (p->id_error.code && p->producer_id < 0 && batch->producer_id < 0)
        return p->id_error.text;
    if (batch->partition->leader < 0)
        return "the partition has no leader";
    struct channel *channel = client_channel(p->client, batch->partition->leader, CLIENT_LANE_REQUESTS);
    bool connected = channel && channel_get_state(channel) == CHANNEL_READY;
    return connected || !client_last_error(p->client)->code ? NULL : client_last_error(p->client)->text;
}

const char *producer_give_up_text(int code, const char *why, char *buffer, size_t bytes)
{
    if (!why || (code != BROOK_E_TIMED_OUT && code != BROOK_E_PURGED))
        return NULL;
    snprintf(buffer, bytes, "%s; %s", brook_error_text(code), why);
    return buffer;
}

static void fail_batch(brook_producer *p, struct produce_batch *batch, int code)
{
    char buffer[PRODUCER_TEXT_BYTES];
    const char *text = producer_give_up_text(code, cause(p, batch), buffer, sizeof buffer);
    if (!text && code == p->id_error.code && p->producer_id < 0)
        text = p->id_error.text;
    producer_gave_up(p, batch, code);
    producer_complete(p, batch, batch->maybe ? BROOK_MAYBE_STORED : BROOK_NOT_STORED, -1, code, text);
}

static void take_over(brook_producer *p, struct produce_partition *q)
{
    pthread_mutex_lock(&p->lock);
    if (q->open)
        producer_batch_close(p, q);
    batch_list_splice(&q->backlog, &q->closed);
    pthread_mutex_unlock(&p->lock);
}

void producer_partition_fail(brook_producer *p, struct produce_partition *q, int code)
{
    take_over(p, q);
    for (struct produce_batch *batch; (batch = batch_list_pop(&q->backlog));)
        fail_batch(p, batch, code);
}

static bool open_is_old(brook_producer *p, struct produce_partition *q, int64_t before_ms)
{
    pthread_mutex_lock(&p->lock);
    bool old = (q->open && q->open->opened_ms <= before_ms) ||
               (q->closed.head && q->closed.head->opened_ms <= before_ms);
    pthread_mutex_unlock(&p->lock);
    return old;
}

static void expire_partition(brook_producer *p, struct produce_partition *q, int64_t now_ms)
{
    int64_t before_ms = now_ms - p->delivery_timeout_ms;
    if (open_is_old(p, q, before_ms))
        take_over(p, q);
    while (q->backlog.head && q->backlog.head->opened_ms <= before_ms)
        fail_batch(p, batch_list_pop(&q->backlog), BROOK_E_TIMED_OUT);
}

void producer_each_partition(brook_producer *p, producer_partition_visitor *visit, int64_t arg)
{
    pthread_mutex_lock(&p->lock);
    struct produce_topic *topic = p->topics;
    pthread_mutex_unlock(&p->lock);
    while (topic) {
        for (int32_t i = 0; i < topic->partitions_made; i++)
            visit(p, topic->partitions[i], arg);
        pthread_mutex_lock(&p->lock);
        topic = topic->hh.next;
        pthread_mutex_unlock(&p->lock);
    }
}

static void expire(brook_producer *p, int64_t now_ms)
{
    if (now_ms < p->expiry_ms)
        return;
    int64_t every_ms = p->delivery_timeout_ms / 10;
    every_ms = every_ms < EXPIRY_MS_MIN ? EXPIRY_MS_MIN : every_ms > EXPIRY_MS_MAX ? EXPIRY_MS_MAX : every_ms;
    p->expiry_ms = now_ms + every_ms;
    producer_topics_expire(p, now_ms, false);
    producer_each_partition(p, expire_partition, now_ms);
}

/* ---- the pass --------------------------------------------------------------------------------------- */

static void arm(brook_producer *p, int64_t now_ms, int64_t retry_ms)
{
    int64_t at_ms = INT64_MAX;
    pthread_mutex_lock(&p->lock);
    for (struct produce_batch *b = p->open_first; b && at_ms == INT64_MAX; b = b->open_next)
        if (!b->partition->due)
            at_ms = b->opened_ms + p->linger_ms;
    p->linger_armed = at_ms != INT64_MAX;
    bool busy = p->unreported > p->delivering;
    pthread_mutex_unlock(&p->lock);
    if (retry_ms < at_ms)
        at_ms = retry_ms;
    if (busy && p->expiry_ms < at_ms)
        at_ms = p->expiry_ms;
    if (at_ms == INT64_MAX || (p->timer_at_ms > now_ms && p->timer_at_ms <= at_ms))
        return;
    p->timer_at_ms = at_ms;
    client_timer_set(p->timer, at_ms > now_ms ? (int)(at_ms - now_ms) : 1);
}

static void pass(brook_producer *p)
{
    int64_t now_ms = clock_boot_ms();
    pthread_mutex_lock(&p->lock);
    bool new_topics = p->new_topics != NULL;
    pthread_mutex_unlock(&p->lock);
    if (new_topics)
        producer_topics_update(p);
    expire(p, now_ms);
    int64_t identity_ms = producer_identity_pass(p, now_ms);
    int64_t retry_ms = wake_resting(p, now_ms);
    collect(p, now_ms);
    plan(p, now_ms);
    for (struct produce_target *t = p->targets; t; t = t->next)
        producer_send_requests(p, t);
    for (struct produce_partition *q = p->resting; q; q = q->resting_next)
        retry_ms = q->retry_ms < retry_ms ? q->retry_ms : retry_ms;
    arm(p, now_ms, identity_ms < retry_ms ? identity_ms : retry_ms);
}

void producer_pump(brook_producer *p)
{
    /* Sending may fail at once and come back here. */
    if (p->pumping || p->stopped) {
        p->pump_again = true;
        return;
    }
    p->pumping = true;
    do {
        p->pump_again = false;
        pass(p);
    } while (p->pump_again);
    p->pumping = false;
}

void producer_pump_later(brook_producer *p)
{
    if (!p->stopped)
        event_active(p->pump_event, EV_TIMEOUT, 1);
}

static void on_pump(evutil_socket_t fd, short what, void *arg)
{
    producer_pump(arg);
}

static void purge_partition(brook_producer *p, struct produce_partition *q, int64_t ignored)
{
    producer_partition_fail(p, q, BROOK_E_PURGED);
}

void producer_purge_all(brook_producer *p)
{
    producer_topics_expire(p, 0, true);
    producer_each_partition(p, purge_partition, 0);
    producer_requests_purge(p);
}

/* ---- events ----------------------------------------------------------------------------------------- */

static void on_wake(struct inbox_item *item)
{
    brook_producer *p = CONTAINER_OF(item, brook_producer, wake);
    /* Only here: anywhere else the item may still be in the inbox, and would be posted twice. */
    pthread_mutex_lock(&p->lock);
    p->woken = false;
    pthread_mutex_unlock(&p->lock);
    producer_pump(p);
}

static void on_timer(void *arg)
{
    brook_producer *p = arg;
    p->timer_at_ms = 0;
    producer_pump(p);
}

static void lower_batch_bytes(brook_producer *p, struct produce_partition *q, int64_t bytes)
{
    pthread_mutex_lock(&p->lock);
    if (q->batch_bytes > (size_t)bytes)
        q->batch_bytes = (size_t)bytes;
    pthread_mutex_unlock(&p->lock);
}

/* No batch becomes larger than the brokers take. */
static void heed_limit(brook_producer *p, size_t bytes)
{
    pthread_mutex_lock(&p->lock);
    bool lower = bytes > 0 && bytes < p->batch_bytes;
    if (lower)
        p->batch_bytes = bytes;
    pthread_mutex_unlock(&p->lock);
    if (lower)
        producer_each_partition(p, lower_batch_bytes, (int64_t)bytes);
}

/* One that offers none keeps no order among several. */
static void heed_offer(brook_producer *p, int batches)
{
    batches = batches < 1 ? 1 : batches;
    if (batches < p->batches_offered)
        p->batches_offered = batches;
}

static void on_channel_ready(void *arg, int32_t broker_id, enum client_lane lane)
{
    brook_producer *p = arg;
    /* What one that is known by its address only has offered, nobody asks for: batches go to brokers by their id. */
    if (lane != CLIENT_LANE_REQUESTS || broker_id < 0)
        return;
    heed_limit(p, client_message_bytes_max(p->client, broker_id));
    heed_offer(p, client_idempotent_batches_max(p->client, broker_id));
    producer_pump(p);
}

static void on_channel_lost(void *arg, int32_t broker_id, enum client_lane lane,
                            const struct brook_error *why)
{
    brook_producer *p = arg;
    for (struct produce_target *t = p->targets; t; t = t->next)
        if (t->broker_id == broker_id && lane == CLIENT_LANE_REQUESTS) {
            metadata_refresh(client_metadata(p->client));
            producer_pump(p);
        }
}

static void on_metadata(void *arg)
{
    brook_producer *p = arg;
    producer_topics_update(p);
    producer_pump(p);
}

static void log_statistics(void *arg)
{
    brook_producer *p = arg;
    char *json = brook_producer_statistics(p);
    diag_log(client_diag(p->client), DIAG_INFO, "statistics", "%s", json ? json : "{}");
    free(json);
    client_timer_set(p->statistics_timer, config_int(client_config(p->client), CONFIG_STATISTICS_INTERVAL));
}

static void start_on_loop(void *arg)
{
    brook_producer *p = arg;
    client_listen(p->client, &p->listener);
    if (config_number(client_config(p->client), CONFIG_STATISTICS_INTERVAL) > 0)
        log_statistics(p);
}

int producer_sender_start(brook_producer *p)
{
    p->wake.run = on_wake;
    p->agenda_tail = &p->agenda_head;
    p->listener = (struct client_listener){.channel_ready = on_channel_ready,
                                           .channel_lost = on_channel_lost,
                                           .metadata_changed = on_metadata,
                                           .arg = p};
    p->entries = calloc(PRODUCER_ENTRIES_MAX, sizeof *p->entries);
    p->entry_list = calloc(PRODUCER_ENTRIES_MAX, sizeof *p->entry_list);
    p->pump_event = event_new(client_base(p->client), -1, 0, on_pump, p);
    p->timer = client_timer_new(p->client, on_timer, p);
    p->statistics_timer = client_timer_new(p->client, log_statistics, p);
    p->statistics_last_ms = clock_boot_ms();
    if (!p->entries || !p->entry_list || !p->pump_event || !p->timer || !p->statistics_timer)
        return -BROOK_E_NOMEM;
    client_call(p->client, start_on_loop, p);
    return 0;
}

void producer_sender_stop(brook_producer *p)
{
    p->stopped = true;
    client_unlisten(p->client, &p->listener);
    event_free(p->pump_event);
    client_timer_free(p->timer);
    client_timer_free(p->statistics_timer);
    /* A wake that is on its way runs before this: nothing posts any more. */
}
