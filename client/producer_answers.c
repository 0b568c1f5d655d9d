#include "client/producer_parts.h"
#include "proto/base/clock.h"

#include <assert.h>

/* Back to its place in the sequence. */
void producer_put_back(struct produce_partition *q, struct produce_batch *batch)
{
    struct produce_batch **at = &q->backlog.head;
    while (*at && (*at)->sequence < batch->sequence)
        at = &(*at)->next;
    batch->next = *at;
    *at = batch;
    if (!batch->next)
        q->backlog.tail = &batch->next;
}

static bool is_in_time(const brook_producer *p, const struct produce_batch *batch)
{
    return batch->attempts <= p->retries_max &&
           clock_boot_ms() - batch->opened_ms < p->delivery_timeout_ms;
}

static bool is_worth_a_retry(const brook_producer *p, const struct produce_batch *batch, int code)
{
    enum brook_advice advice = brook_error_advice(code);
    if (code == BROOK_E_UNKNOWN_TOPIC && !batch->partition->topic->known)
        return false; /* the metadata agrees */
    bool may = advice == BROOK_ADVICE_RETRY || advice == BROOK_ADVICE_REFRESH ||
               advice == BROOK_ADVICE_UNKNOWN || code == BROOK_E_CLOSED;
    return may && is_in_time(p, batch);
}

/* One attempt has failed. */
static void fail_attempt(brook_producer *p, struct produce_batch *batch, int code, const char *text,
                         bool maybe_stored)
{
    struct produce_partition *q = batch->partition;
    enum brook_advice advice = brook_error_advice(code);
    if (advice == BROOK_ADVICE_UNKNOWN || code == BROOK_E_CLOSED || maybe_stored)
        batch->maybe = true;
    if (code == BROOK_E_CONNECT_FAILED)
        batch->attempts--; /* it never left */
    /* No answer at all may also mean that somebody else leads by now. */
    if (advice == BROOK_ADVICE_REFRESH || advice == BROOK_ADVICE_UNKNOWN)
        metadata_refresh(client_metadata(p->client));
    if (producer_is_refused_number(code) && is_in_time(p, batch) && producer_retry_number(p, batch))
        return;
    if (producer_is_refused_number(code) || !is_worth_a_retry(p, batch, code)) {
        producer_gave_up(p, batch, code);
        producer_complete(p, batch, batch->maybe ? BROOK_MAYBE_STORED : BROOK_NOT_STORED, -1, code, text);
        return;
    }
    p->retries++;
    producer_keep_text(batch, text && *text ? text : brook_error_text(code));
    q->recovering = q->backs_off = true;
    producer_put_back(q, batch);
}

static void lower_limit(brook_producer *p, struct produce_partition *q, size_t bytes)
{
    pthread_mutex_lock(&p->lock);
    if (bytes < q->batch_bytes)
        q->batch_bytes = bytes;
    pthread_mutex_unlock(&p->lock);
}

/* Too large is the batch, which the producer made, not yet a record: find it among several, cut it, and let
 * the partition's next ones be smaller. No attempt of `retries`, and nothing to wait for. Returns whether the
 * batch goes on. */
static bool make_smaller(brook_producer *p, struct produce_batch *batch, bool several)
{
    struct produce_partition *q = batch->partition;
    int32_t records = batch->writer.records_count;
    size_t half_bytes = batch->writer.bytes / 2;
    uint64_t end = batch->sequence + (uint64_t)records;
    struct produce_batch *halves[2] = {batch};
    if (!several && (records < 2 || producer_split(p, batch, halves) < 0))
        return false;
    if (several)
        batch->attempts--;
    else
        lower_limit(p, q, half_bytes);
    if (end > q->alone_below)
        q->alone_below = end;
    if (q->in_flight > 1)
        q->recovering = true;
    p->retries++;
    for (int i = 0; i < 2 && halves[i]; i++)
        producer_put_back(q, halves[i]);
    return true;
}

int64_t producer_back_off_ms(const brook_producer *p, int failures)
{
    int64_t ms = p->retry_back_off_ms;
    for (int i = 1; i < failures && ms < p->retry_back_off_ms_max; i++)
        ms *= 2;
    return ms < p->retry_back_off_ms_max ? ms : p->retry_back_off_ms_max;
}

/* One of the partition's requests is over. */
static void partition_returned(brook_producer *p, struct produce_partition *q)
{
    assert(q->in_flight > 0);
    q->in_flight--;
    if (q->in_flight == 0 && q->recovering) {
        if (q->backs_off)
            q->retry_ms = clock_boot_ms() + producer_back_off_ms(p, ++q->failures);
        q->recovering = q->backs_off = false;
    } else if (!q->recovering) {
        q->failures = 0;
    }
    assert(q->in_flight > 0 || q->batches_in_flight == 0);
    producer_agenda(p, q);
}

/* What a reply says about one entry; code 0: stored. */
struct verdict {
    struct brook_error error;
    int64_t base_offset;
    bool several;      /* batches */
    bool maybe_stored; /* in spite of the error */
    const Brook__ProducedPartition *produced; /* stored; NULL: nothing more is known */
    size_t place;                             /* of the batch among the entry's */
};

static void read_verdict(const struct channel_reply *reply, bool oneway, size_t entry, struct verdict *v)
{
    v->error.code = -reply->err;
    v->error.text[0] = '\0';
    v->base_offset = -1;
    v->maybe_stored = false;
    v->produced = NULL;
    v->place = 0;
    if (reply->err < 0 || oneway)
        return; /* of a one-way request nothing is known but that it left */
    const Brook__Response *response = reply->response;
    if (envelope_status_read(response->status, &v->error) < 0)
        return;
    if (response->body_case != BROOK__RESPONSE__BODY_PRODUCE || entry >= response->produce->n_partitions) {
        v->error.code = BROOK_E_OUTCOME_UNKNOWN;
        return;
    }
    const Brook__ProducedPartition *produced = response->produce->partitions[entry];
    v->maybe_stored = produced->maybe_stored;
    if (envelope_status_read(produced->status, &v->error) < 0)
        return;
    v->base_offset = produced->base_offset;
    v->produced = produced;
}

static void end_batch(brook_producer *p, struct produce_batch *batch, struct verdict *v)
{
    int32_t records = batch->writer.records_count;
    batch->partition->batches_in_flight--;
    if (v->produced && v->place < v->produced->n_batch_offsets)
        v->base_offset = v->produced->batch_offsets[v->place];
    v->place++;
    if (batch->purged) {
        pthread_mutex_lock(&p->lock);
        producer_batch_drop_memory(p, batch);
        producer_batch_recycle(p, batch);
        pthread_mutex_unlock(&p->lock);
    } else if (v->error.code == BROOK_E_MESSAGE_TOO_LARGE && make_smaller(p, batch, v->several)) {
        return;
    } else if (v->error.code) {
        fail_attempt(p, batch, v->error.code, v->error.text, v->maybe_stored);
    } else {
        batch->partition->restarts = 0;
        producer_complete(p, batch, BROOK_STORED, v->base_offset, 0, NULL);
    }
    if (v->base_offset >= 0)
        v->base_offset += records;
}

/* The batches of a request, each run of one partition judged by its entry. */
void producer_on_reply(void *arg, const struct channel_reply *reply)
{
    struct produce_request *request = arg;
    brook_producer *p = request->producer;
    struct verdict verdict;
    struct produce_partition *q = NULL;
    size_t entry = 0;
    request->target->in_flight--;
    for (struct produce_batch *batch; (batch = batch_list_pop(&request->batches));) {
        if (batch->partition != q) {
            if (q)
                partition_returned(p, q);
            q = batch->partition;
            read_verdict(reply, request->oneway, entry++, &verdict);
            verdict.several = request->batches.head && request->batches.head->partition == q;
        }
        end_batch(p, batch, &verdict);
    }
    if (q)
        partition_returned(p, q);
    producer_request_give(p, request);
    producer_pump_later(p);
}

void producer_on_sent(void *arg, int err)
{
    struct channel_reply reply = {.err = err};
    producer_on_reply(arg, &reply);
}
