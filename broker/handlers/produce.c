/* Produce: batches are checked where they lie, then queued to their partitions; the loop writes each
 * partition's queue once per turn. One bad batch refuses the whole request with nothing written; all other
 * troubles are a partition's own.
 */
#include "broker/handlers/handlers.h"

#include "broker/handlers/produce_keys.h"
#include "broker/partition/partition.h"
#include "proto/base/cleanup.h"

#include <assert.h>
#include <string.h>

#define TIMESTAMP_ABSENT (-1)
/* Far beyond what anybody needs who fills his batches. */
#define BATCHES_PER_REQUEST_MAX 65536

struct part {
    struct produce *produce;
    struct partition *partition; /* a reference; NULL: refused */
    struct partition_append append;
};

struct produce {
    struct request *request;
    bool wants_answer;
    uint32_t parts_count;
    uint32_t pending;
    struct part parts[];
};

/* ---- looking at what came ------------------------------------------------------------------------------ */

static int check_shape(const struct request *r, const Brook__ProduceRequest *asked, struct brook_error *error)
{
    uint32_t most = r->loop->settings->partitions_per_request_max;
    if (asked->n_partitions == 0)
        return brook_error_set(error, BROOK_E_INVALID, "a produce request without partitions");
    if ((int)asked->acks < BROOK__ACKS__ACKS_NONE || (int)asked->acks > BROOK__ACKS__ACKS_ALL)
        return brook_error_set(error, BROOK_E_INVALID, "acks %d is not known to this broker", (int)asked->acks);
    if (asked->n_partitions > most)
        return brook_error_set(error, BROOK_E_TOO_MANY,
                               "%zu partitions in one request, at most %u are allowed", asked->n_partitions,
                               most);
    uint64_t sum = 0;
    for (size_t i = 0; i < asked->n_partitions; i++)
        sum += asked->partitions[i]->records_bytes;
    if (sum != r->records_bytes)
        return brook_error_set(error, BROOK_E_BAD_FRAME,
                               "the entries say %llu bytes of records, the frame has %zu",
                               (unsigned long long)sum, r->records_bytes);
    return 0;
}

/* Batches that lie in the record bytes, by their lengths alone. */
static int count_batches(const struct request *r, const Brook__ProduceRequest *asked, size_t *ret_count,
                         struct brook_error *error)
{
    const uint8_t *at = r->records;
    size_t count = 0;
    for (size_t i = 0; i < asked->n_partitions; i++) {
        const Brook__ProducePartition *entry = asked->partitions[i];
        const uint8_t *end = at + entry->records_bytes;
        if (at == end)
            return brook_error_set(error, BROOK_E_BAD_BATCH, "entry %zu (partition %d) has no records", i,
                                   entry->partition);
        while (at < end) {
            struct batch_header h;
            int e = batch_read_header(at, (size_t)(end - at), &h);
            if (e == -BROOK_E_AGAIN)
                return brook_error_set(error, BROOK_E_BAD_BATCH,
                                       "entry %zu (partition %d): a batch is cut off", i, entry->partition);
            if (e < 0)
                return brook_error_set(error, e, "entry %zu (partition %d): %s", i, entry->partition,
                                       brook_error_text(e));
            at += h.total_bytes;
            count++;
        }
    }
    if (count > BATCHES_PER_REQUEST_MAX)
        return brook_error_set(error, BROOK_E_TOO_MANY, "%zu batches in one request, at most %d are allowed",
                               count, BATCHES_PER_REQUEST_MAX);
    *ret_count = count;
    return 0;
}

/* Check the batches of an entry. A too large one is the topic's refusal (in part->append.error), not a bad
 * one. */
static int check_batches(struct part *part, const Brook__ProducePartition *entry, uint8_t *at,
                         size_t message_bytes_max, struct brook_error *error)
{
    const uint8_t *end = at + entry->records_bytes;
    struct brook_error why;
    while (at < end) {
        struct log_batch *batch = &part->append.batches[part->append.batches_count++];
        batch->data = at;
        int e = batch_check_produced(at, (size_t)(end - at), message_bytes_max, &batch->header, &why);
        if (e == -BROOK_E_MESSAGE_TOO_LARGE) {
            if (!part->append.error.code)
                part->append.error = why;
            /* The check stops at the size: what it says about the rest needs a second look. */
            e = batch_check_produced(at, (size_t)(end - at), SIZE_MAX, &batch->header, &why);
        }
        if (e < 0)
            return brook_error_set(error, e, "partition %d, batch %zu: %.180s", entry->partition,
                                   part->append.batches_count - 1, why.text);
        at += batch->header.total_bytes;
    }
    return 0;
}

/* A topic that is compacted can not do with records without a key; others are not looked into. */
static void check_keys(struct request *r, struct part *part)
{
    struct partition_append *a = &part->append;
    for (size_t i = 0; i < a->batches_count && !a->error.code; i++)
        produce_check_keys(a->batches[i].data, &a->batches[i].header, &r->loop->codec,
                           r->loop->settings->expanded_bytes_max, &a->error);
}

/* Whether `stamp` is within the topic's window around `now_ms`; records without a timestamp are. */
static bool is_timely(const struct topic_config *config, int64_t now_ms, int64_t stamp)
{
    int64_t ahead;
    if (stamp == TIMESTAMP_ABSENT)
        return true;
    if (__builtin_sub_overflow(stamp, now_ms, &ahead))
        ahead = stamp < 0 ? -INT64_MAX : INT64_MAX;
    return ahead <= config->timestamp_after_ms_max && -ahead <= config->timestamp_before_ms_max;
}

/* By the headers alone, whose greatest stamp is what retention and lookups go by: records are not walked. */
static void check_timestamps(const struct view_topic *topic, int32_t partition, int64_t now_ms,
                             struct partition_append *append)
{
    for (size_t i = 0; i < append->batches_count; i++) {
        const struct batch_header *h = &append->batches[i].header;
        int64_t bad = !is_timely(&topic->config, now_ms, h->base_timestamp) ? h->base_timestamp : h->max_timestamp;
        if (is_timely(&topic->config, now_ms, bad))
            continue;
        brook_error_set(&append->error, BROOK_E_INVALID_TIMESTAMP,
                        "partition %.100s/%d: timestamp %lld of batch %zu is too far from the broker's clock, which "
                        "says %lld (ms)",
                        topic->name, partition, (long long)bad, i, (long long)now_ms);
        return;
    }
}

/* Find the partition of an entry and check its batches. Returns an error only when the whole request is bad.
 */
static int prepare(struct request *r, struct part *part, const Brook__ProducePartition *entry,
                   uint8_t *records, struct brook_error *error)
{
    const struct view_topic *topic = NULL;
    struct partition *partition = NULL;
    struct partition_append *append = &part->append;
    size_t message_bytes_max = (size_t)r->loop->settings->message_bytes_max;
    int e =
        request_find_led(r->loop, &entry->topic_id, entry->partition, -1, &topic, &partition, &append->error);
    if (e == 0)
        message_bytes_max = (size_t)topic->config.message_bytes_max;
    if (check_batches(part, entry, records, message_bytes_max, error) < 0)
        return -error->code;
    if (!append->error.code && log_settings_compact(&topic->config.log))
        check_keys(r, part);
    if (!append->error.code && topic->config.log.timestamp_type == TIMESTAMP_CREATE)
        check_timestamps(topic, entry->partition, r->loop->now_wall_ms, append);
    if (!append->error.code)
        part->partition = partition_ref(partition);
    return 0;
}

/* ---- answering ----------------------------------------------------------------------------------------- */

/* Repeated batches lie where they were stored the first time. */
static bool are_consecutive(const struct partition_append *a)
{
    for (size_t i = 1; i < a->batches_count; i++)
        if (a->batches[i].header.base_offset != batch_last_offset(&a->batches[i - 1].header) + 1)
            return false;
    return true;
}

static int fill_offsets(struct request *r, const struct partition_append *a, Brook__ProducedPartition *out)
{
    out->batch_offsets = request_reply_alloc(r, a->batches_count * sizeof out->batch_offsets[0]);
    if (!out->batch_offsets)
        return -BROOK_E_NOMEM;
    out->n_batch_offsets = a->batches_count;
    for (size_t i = 0; i < a->batches_count; i++)
        out->batch_offsets[i] = a->batches[i].header.base_offset;
    return 0;
}

static int fill_answer(struct request *r, const struct part *part, Brook__ProducedPartition *out)
{
    const struct partition_append *a = &part->append;
    brook__produced_partition__init(out);
    if (a->error.code) {
        out->status = request_status(r, &a->error);
        out->has_maybe_stored = out->maybe_stored = a->maybe_stored;
        return out->status ? 0 : -BROOK_E_NOMEM; /* without its status it would read as a success */
    }
    out->has_base_offset = out->has_log_start_offset = true;
    out->base_offset = a->base_offset;
    out->log_start_offset = a->log_start_offset;
    const struct batch_header *last = &a->batches[a->batches_count - 1].header;
    if (last->attributes & BATCH_LOG_APPEND_TIME) { /* not of one that was stored before */
        out->has_log_append_time = true;
        out->log_append_time = last->max_timestamp;
    }
    return a->duplicates > 0 && !are_consecutive(a) ? fill_offsets(r, a, out) : 0;
}

static int fill_body(struct produce *p, Brook__ProducedPartition *parts, Brook__ProduceResponse *body)
{
    for (uint32_t i = 0; i < p->parts_count; i++) {
        if (fill_answer(p->request, &p->parts[i], &parts[i]) < 0)
            return -BROOK_E_NOMEM;
        body->partitions[i] = &parts[i];
    }
    body->n_partitions = p->parts_count;
    return 0;
}

static void answer(struct produce *p)
{
    struct request *r = p->request;
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__ProduceResponse body = BROOK__PRODUCE_RESPONSE__INIT;
    Brook__ProducedPartition one, *one_pointer = &one;
    Brook__ProducedPartition *parts = &one;
    body.partitions = &one_pointer;
    if (p->parts_count > 1) {
        parts = request_reply_alloc(r, p->parts_count * sizeof parts[0]);
        body.partitions = request_reply_alloc(r, p->parts_count * sizeof body.partitions[0]);
    }
    if (!parts || !body.partitions || fill_body(p, parts, &body) < 0) {
        request_fail(r, BROOK_E_OUTCOME_UNKNOWN, "no memory for the answer that says what was stored");
        return;
    }
    response.body_case = BROOK__RESPONSE__BODY_PRODUCE;
    response.produce = &body;
    request_reply(r, &response, NULL, 0);
}

static const struct brook_error *first_error(const struct produce *p)
{
    for (uint32_t i = 0; i < p->parts_count; i++)
        if (p->parts[i].append.error.code)
            return &p->parts[i].append.error;
    return NULL;
}

static void finish(struct produce *p)
{
    if (p->wants_answer) {
        answer(p);
        return;
    }
    const struct brook_error *failure = first_error(p);
    if (failure)
        request_end_and_close(p->request, failure);
    else
        request_end(p->request);
}

static void one_is_done(struct partition_append *a)
{
    struct part *part = CONTAINER_OF(a, struct part, append);
    struct produce *p = part->produce;
    partition_unref(TAKE(part->partition));
    assert(p->pending > 0);
    if (--p->pending == 0)
        finish(p);
}

static void give_up(struct request *r)
{
    struct produce *p = r->state;
    /* The last one cancelled may end the request, and with it `p`. */
    uint32_t count = p->parts_count;
    p->pending++;
    for (uint32_t i = 0; i < count; i++)
        if (p->parts[i].partition)
            partition_cancel(p->parts[i].partition, &p->parts[i].append);
    if (--p->pending == 0)
        finish(p);
}

/* ---- the request --------------------------------------------------------------------------------------- */

static struct produce *produce_new(struct request *r, const Brook__ProduceRequest *asked,
                                   size_t batches_count)
{
    size_t head = sizeof(struct produce) + asked->n_partitions * sizeof(struct part);
    struct produce *p = request_alloc(r, head + batches_count * sizeof(struct log_batch));
    if (!p)
        return NULL;
    p->request = r;
    p->wants_answer = asked->acks != BROOK__ACKS__ACKS_NONE;
    p->parts_count = (uint32_t)asked->n_partitions;
    p->parts[0].append.batches = (struct log_batch *)(void *)((uint8_t *)p + head);
    return p;
}

static int prepare_all(struct request *r, struct produce *p, const Brook__ProduceRequest *asked,
                       struct brook_error *error)
{
    uint8_t *records = r->records;
    struct log_batch *batches = p->parts[0].append.batches;
    for (uint32_t i = 0; i < p->parts_count; i++) {
        struct part *part = &p->parts[i];
        part->produce = p;
        part->append.batches = batches;
        part->append.wait_for_all = asked->acks == BROOK__ACKS__ACKS_ALL;
        part->append.inbox = r->loop->inbox;
        part->append.expires_ns = r->expires_ns;
        part->append.done = one_is_done;
        if (prepare(r, part, asked->partitions[i], records, error) < 0)
            return -error->code;
        records += asked->partitions[i]->records_bytes;
        batches += part->append.batches_count;
    }
    return 0;
}

static void drop_partitions(struct produce *p)
{
    for (uint32_t i = 0; i < p->parts_count; i++)
        partition_unref(TAKE(p->parts[i].partition));
}

static void refuse(struct request *r, const Brook__ProduceRequest *asked, const struct brook_error *error)
{
    if (asked->acks == BROOK__ACKS__ACKS_NONE)
        request_end_and_close(r, error);
    else
        request_fail_error(r, error);
}

static void enqueue_all(struct request *r, struct produce *p)
{
    p->pending = 1; /* our own, so that the end comes once */
    for (uint32_t i = 0; i < p->parts_count; i++) {
        struct part *part = &p->parts[i];
        if (!part->partition)
            continue;
        p->pending++;
        partition_enqueue(part->partition, &part->append);
        r->loop->ops->touch(r->loop, part->partition);
    }
    if (--p->pending == 0)
        finish(p);
}

void handle_produce(struct request *r)
{
    const Brook__ProduceRequest *asked = r->message->produce;
    struct brook_error error;
    struct produce *p = NULL;
    size_t batches_count = 0;
    int e = check_shape(r, asked, &error);
    if (e == 0)
        e = count_batches(r, asked, &batches_count, &error);
    if (e == 0 && !(p = produce_new(r, asked, batches_count)))
        e = brook_error_set(&error, BROOK_E_NOMEM, "out of memory for %zu partitions", asked->n_partitions);
    if (e == 0 && (e = prepare_all(r, p, asked, &error)) < 0)
        drop_partitions(p);
    if (e < 0) {
        refuse(r, asked, &error);
        return;
    }
    r->state = p;
    if (asked->acks == BROOK__ACKS__ACKS_ALL) {
        r->on_deadline = give_up;
        request_set_deadline(r,
                             r->loop->now_ns + (int64_t)request_timeout_ms(r, asked->timeout_ms) * 1000000);
    }
    enqueue_all(r, p);
}
