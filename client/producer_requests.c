#include "client/producer_parts.h"
#include "proto/base/clock.h"

#include <stdlib.h>

/* ---- targets ---------------------------------------------------------------------------------------- */

struct produce_target *producer_target(brook_producer *p, int32_t broker_id)
{
    for (struct produce_target *t = p->targets; t; t = t->next)
        if (t->broker_id == broker_id)
            return t;
    struct produce_target *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->broker_id = broker_id;
    t->tail = &t->head;
    t->next = p->targets;
    p->targets = t;
    return t;
}

void producer_target_push(struct produce_target *t, struct produce_partition *q)
{
    q->in_target = true;
    q->target_next = NULL;
    *t->tail = q;
    t->tail = &q->target_next;
}

static struct produce_partition *target_pop(struct produce_target *t)
{
    struct produce_partition *q = t->head;
    if (!q)
        return NULL;
    if (!(t->head = q->target_next))
        t->tail = &t->head;
    q->in_target = false;
    return q;
}

/* A target without a connection is not looked through: who waits there for a leader that is none any more goes. */
void producer_target_leave(brook_producer *p, struct produce_partition *q)
{
    for (struct produce_target *t = p->targets; t; t = t->next)
        for (struct produce_partition **at = &t->head; *at; at = &(*at)->target_next) {
            if (*at != q)
                continue;
            if (!(*at = q->target_next))
                t->tail = at;
            q->in_target = false;
            return;
        }
}

static void target_push_front(struct produce_target *t, struct produce_partition *q)
{
    q->in_target = true;
    q->target_next = t->head;
    if (!t->head)
        t->tail = &q->target_next;
    t->head = q;
}

bool producer_can_send(const brook_producer *p, const struct produce_partition *q, int64_t now_ms)
{
    return q->leader >= 0 && !q->recovering && q->in_flight < p->partition_in_flight_max &&
           q->retry_ms <= now_ms && producer_has_identity(p, q);
}

/* ---- request objects -------------------------------------------------------------------------------- */

static struct produce_request *request_take(brook_producer *p, struct produce_target *t)
{
    struct produce_request *request = p->free_requests;
    if (request)
        p->free_requests = request->next;
    else if (!(request = malloc(sizeof *request)))
        return NULL;
    *request = (struct produce_request){.producer = p, .target = t, .previous = p->requests_last};
    batch_list_init(&request->batches);
    if (p->requests_last)
        p->requests_last->next = request;
    else
        p->requests_first = request;
    p->requests_last = request;
    return request;
}

void producer_request_give(brook_producer *p, struct produce_request *request)
{
    if (request->previous)
        request->previous->next = request->next;
    else
        p->requests_first = request->next;
    if (request->next)
        request->next->previous = request->previous;
    else
        p->requests_last = request->previous;
    request->next = p->free_requests;
    p->free_requests = request;
}

void producer_requests_free(brook_producer *p)
{
    while (p->free_requests) {
        struct produce_request *next = p->free_requests->next;
        free(p->free_requests);
        p->free_requests = next;
    }
    while (p->targets) {
        struct produce_target *next = p->targets->next;
        free(p->targets);
        p->targets = next;
    }
    free(p->iov);
    free(p->entries);
    free(p->entry_list);
}

/* ---- questions -------------------------------------------------------------------------------------- */

static int make_room(brook_producer *p, size_t iov_count)
{
    if (iov_count < p->iov_room)
        return 0;
    size_t room = p->iov_room ? 2 * p->iov_room : 64;
    struct iovec *wider = realloc(p->iov, room * sizeof *wider);
    if (!wider)
        return -BROOK_E_NOMEM;
    p->iov = wider;
    p->iov_room = room;
    return 0;
}

struct building {
    struct produce_request *request;
    size_t entries, iov_count, bytes;
    int64_t oldest_ms;
    bool is_full; /* what comes next has to go in a request of its own */
};

/* Whether the batch has a place in the request. The first one always has. */
static bool has_place(const brook_producer *p, const struct building *b, const struct produce_batch *batch)
{
    if (b->bytes == 0)
        return true;
    size_t bytes = batch->data ? batch->data_bytes : batch->writer.bytes;
    return !p->one_by_one && b->bytes + bytes <= p->request_bytes_max;
}

static void add_batch(brook_producer *p, struct building *b, struct produce_batch *batch)
{
    batch->attempts++;
    p->iov[b->iov_count++] =
        (struct iovec){.iov_base = (void *)(uintptr_t)batch->data, .iov_len = batch->data_bytes};
    b->bytes += batch->data_bytes;
    if (batch->opened_ms < b->oldest_ms)
        b->oldest_ms = batch->opened_ms;
    batch_list_append(&b->request->batches, batch);
}

static void add_entry(brook_producer *p, struct building *b, const struct produce_partition *q, size_t bytes)
{
    Brook__ProducePartition *entry = &p->entries[b->entries];
    brook__produce_partition__init(entry);
    entry->has_topic_id = 1;
    entry->topic_id = envelope_bytes(q->topic->topic_id, sizeof q->topic->topic_id);
    entry->has_partition = 1;
    entry->partition = q->index;
    entry->has_records_bytes = 1;
    entry->records_bytes = (uint32_t)bytes;
    p->entry_list[b->entries++] = entry;
}

/* Whether the broker would take `batch` behind `last` in one append: their numbers go on. When one between them was
 * stored and the others have to be sent again, they do not. */
static bool goes_on(const struct produce_batch *last, const struct produce_batch *batch)
{
    uint32_t next = (uint32_t)last->base_sequence + (uint32_t)last->writer.records_count;
    return last->producer_id == batch->producer_id &&
           (batch->producer_id < 0 || (last->producer_epoch == batch->producer_epoch &&
                                       (int32_t)(next & INT32_MAX) == batch->base_sequence));
}

/* As many of the partition's batches as have a place. Returns whether any had. */
static bool add_partition(brook_producer *p, struct building *b, struct produce_partition *q)
{
    size_t before = b->bytes;
    bool alone = false;
    const struct produce_batch *last = NULL;
    producer_begin_anew(p, q);
    while (!alone && q->backlog.head && has_place(p, b, q->backlog.head) && producer_has_identity(p, q) &&
           make_room(p, b->iov_count) == 0) {
        struct produce_batch *batch = q->backlog.head;
        producer_number(p, q, batch);
        b->is_full = last && !goes_on(last, batch);
        if (b->is_full || producer_batch_finish(p, batch) < 0)
            break;
        last = batch;
        alone = batch->sequence < q->alone_below;
        batch->was_first = q->in_flight == 0 && b->bytes == before;
        add_batch(p, b, batch_list_pop(&q->backlog));
        q->batches_in_flight++;
    }
    if (b->bytes == before)
        return false;
    add_entry(p, b, q, b->bytes - before);
    q->in_flight++;
    return true;
}

static void fill(brook_producer *p, struct building *b, struct produce_target *t, int64_t now_ms)
{
    for (struct produce_partition *q; b->entries < PRODUCER_ENTRIES_MAX && (q = target_pop(t));) {
        if (q->leader != t->broker_id || !producer_can_send(p, q, now_ms) || !q->backlog.head) {
            producer_agenda(p, q);
            continue;
        }
        bool alone = q->backlog.head->sequence < q->alone_below;
        if (!add_partition(p, b, q)) {
            target_push_front(t, q);
            return;
        }
        /* More than one request of this partition may be on its way: it waits behind the others. */
        if (q->backlog.head && producer_can_send(p, q, now_ms))
            producer_target_push(t, q);
        /* No partition gets a second entry in a request. */
        if (p->one_by_one || alone || b->is_full)
            return;
    }
}

/* Nothing was sent: all as before. */
static void undo(brook_producer *p, struct building *b, int64_t now_ms)
{
    struct produce_partition *q = NULL;
    for (struct produce_batch *batch; (batch = batch_list_pop(&b->request->batches));) {
        batch->attempts--;
        batch->partition->batches_in_flight--;
        if (batch->partition != q) {
            q = batch->partition;
            q->in_flight--;
            q->retry_ms = now_ms + producer_back_off_ms(p, 1);
            producer_agenda(p, q);
        }
        producer_put_back(q, batch);
    }
    b->request->target->in_flight--;
    producer_request_give(p, b->request);
}

static int deadline_ms(const brook_producer *p, const struct building *b, int64_t now_ms)
{
    int64_t left_ms = b->oldest_ms + p->delivery_timeout_ms - now_ms;
    if (left_ms < 1)
        left_ms = 1;
    return left_ms < p->request_timeout_ms ? (int)left_ms : p->request_timeout_ms;
}

static int send_request(brook_producer *p, struct building *b, struct channel *channel, int64_t now_ms)
{
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__ProduceRequest produce = BROOK__PRODUCE_REQUEST__INIT;
    int deadline = deadline_ms(p, b, now_ms);
    produce.has_acks = 1;
    produce.acks = (Brook__Acks)p->acks;
    produce.has_timeout_ms = 1;
    /* A little less than we wait, so that the broker's answer arrives before we give up. */
    produce.timeout_ms = (uint32_t)(deadline - (deadline < 5000 ? deadline / 10 : 500));
    produce.n_partitions = b->entries;
    produce.partitions = p->entry_list;
    request.body_case = BROOK__REQUEST__BODY_PRODUCE;
    request.produce = &produce;
    if (p->acks == BROOK__ACKS__ACKS_NONE) {
        b->request->oneway = true;
        return channel_send_oneway(channel, &request, p->iov, b->iov_count, producer_on_sent, b->request);
    }
    return channel_send(channel, &request, p->iov, b->iov_count, deadline, producer_on_reply, b->request);
}

static void count_request(brook_producer *p, const struct building *b)
{
    p->requests_sent++;
    p->batches_sent += (int64_t)b->iov_count;
    p->bytes_sent += (int64_t)b->bytes;
}

static bool send_one(brook_producer *p, struct produce_target *t, struct channel *channel, int64_t now_ms)
{
    struct building b = {.request = request_take(p, t), .oldest_ms = INT64_MAX};
    if (!b.request)
        return false;
    t->in_flight++;
    fill(p, &b, t, now_ms);
    if (b.entries == 0) {
        t->in_flight--;
        producer_request_give(p, b.request);
        return false;
    }
    if (send_request(p, &b, channel, now_ms) < 0) {
        undo(p, &b, now_ms);
        return false;
    }
    count_request(p, &b);
    return true;
}

void producer_send_requests(brook_producer *p, struct produce_target *t)
{
    if (!t->head || t->in_flight >= p->in_flight_max)
        return;
    /* Batches are made only for a connection that takes them; until then they go on filling. */
    struct channel *channel = client_channel(p->client, t->broker_id, CLIENT_LANE_REQUESTS);
    if (!channel) {
        if (!metadata_broker(client_metadata(p->client), t->broker_id))
            metadata_refresh(client_metadata(p->client));
        return;
    }
    if (channel_get_state(channel) != CHANNEL_READY)
        return;
    int64_t now_ms = clock_boot_ms();
    while (t->head && t->in_flight < p->in_flight_max && send_one(p, t, channel, now_ms))
        ;
}

/* ---- giving up -------------------------------------------------------------------------------------- */

/* The channel still borrows the batch's memory: the report goes on its way in a batch of its own. */
static void purge_batch(brook_producer *p, struct produce_batch *batch)
{
    struct produce_batch *report = calloc(1, sizeof *report);
    if (batch->purged || !report) {
        free(report);
        return;
    }
    report->partition = batch->partition;
    report->producer_id = -1;
    report->opened_ms = batch->opened_ms;
    report->writer.records_count = batch->writer.records_count;
    report->opaque = batch->opaque;
    report->opaques = batch->opaques;
    report->opaques_room = batch->opaques_room;
    batch->opaques = NULL;
    batch->opaques_room = 0;
    batch->purged = true;
    producer_complete(p, report, BROOK_MAYBE_STORED, -1, BROOK_E_PURGED, NULL);
}

void producer_requests_purge(brook_producer *p)
{
    for (struct produce_request *r = p->requests_first; r; r = r->next)
        for (struct produce_batch *batch = r->batches.head; batch; batch = batch->next)
            purge_batch(p, batch);
}
