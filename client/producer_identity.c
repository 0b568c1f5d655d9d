/* Idempotence: the producer id, and the numbers by which brokers tell a repeated batch from a new one.
 *
 * A batch is numbered when it is first sent, after the one before it. The rules that keep each record once and in order:
 *
 *   - A batch goes out again under the number that it had, as long as it may be stored under it.
 *   - A broker stores a batch only behind its predecessor. So when one was refused for certain, nothing behind it is
 *     stored, and nothing can be any more under the old epoch once a batch of the next one is: then, and only when
 *     nothing of the partition is on its way, all that waits is numbered anew from 0 in the next epoch.
 *   - A refused number says something only of the first batch in line: others may just have come too early.
 *   - The first in line that may be stored, and whose number is refused, is reported as maybe stored.
 *
 * Epochs are a partition's own: nobody else has the producer id. All of it on the loop.
 */
#include "client/metadata_cache.h"
#include "client/producer_parts.h"
#include "proto/base/clock.h"
#include "proto/record/batch.h"

#include <assert.h>
#include <string.h>

/* ---- the producer id -------------------------------------------------------------------------------- */

static void put_on_agenda(brook_producer *p, struct produce_partition *q, int64_t ignored)
{
    producer_agenda(p, q);
}

/* A broker without ZooKeeper may have no ids left where another has some. A connection more each time, for
 * client_any_channel() to choose among. */
static void meet_another_broker(brook_producer *p)
{
    const struct metadata_broker *brokers;
    size_t count = metadata_brokers(client_metadata(p->client), &brokers);
    if (count)
        client_channel(p->client, brokers[(size_t)p->id_failures % count].broker_id, CLIENT_LANE_REQUESTS);
}

static void got_id(void *arg, const struct channel_reply *reply)
{
    brook_producer *p = arg;
    struct brook_error error = {.code = -reply->err};
    p->is_asking_id = false;
    if (reply->err == 0)
        envelope_status_read(reply->response->status, &error);
    const Brook__InitProducerResponse *body = NULL;
    if (reply->err == 0 && reply->response->body_case == BROOK__RESPONSE__BODY_INIT_PRODUCER)
        body = reply->response->init_producer;
    if (!error.code && (!body || body->producer_id < 0 || body->producer_epoch < 0 ||
                        body->producer_epoch > INT16_MAX))
        brook_error_set(&error, BROOK_E_OUTCOME_UNKNOWN, "a reply without a producer id");
    if (error.code) {
        brook_error_set(&p->id_error, error.code, "no producer id: %.200s",
                        error.text[0] ? error.text : brook_error_text(error.code));
        p->id_retry_ms = clock_boot_ms() + producer_back_off_ms(p, ++p->id_failures);
        if (error.code == BROOK_E_COORDINATION_LOST)
            meet_another_broker(p);
    } else {
        p->producer_id = body->producer_id;
        p->producer_epoch = (int16_t)body->producer_epoch;
        p->id_error.code = 0;
        p->id_failures = 0;
        producer_each_partition(p, put_on_agenda, 0);
    }
    producer_pump_later(p);
}

static bool is_final(const struct brook_error *error)
{
    enum brook_advice advice = brook_error_advice(error->code);
    return error->code && (advice == BROOK_ADVICE_FIX || advice == BROOK_ADVICE_FATAL);
}

static void fail_waiting(brook_producer *p, struct produce_partition *q, int64_t ignored)
{
    if (q->producer_id < 0 && !q->in_flight)
        producer_partition_fail(p, q, p->id_error.code);
}

static void ask(brook_producer *p)
{
    struct channel *channel = client_any_channel(p->client);
    if (!channel)
        return; /* when there is one, the pass is called again */
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__InitProducerRequest body = BROOK__INIT_PRODUCER_REQUEST__INIT;
    body.has_timeout_ms = 1;
    body.timeout_ms = (uint32_t)p->request_timeout_ms;
    request.body_case = BROOK__REQUEST__BODY_INIT_PRODUCER;
    request.init_producer = &body;
    p->is_asking_id = channel_send(channel, &request, NULL, 0, p->request_timeout_ms, got_id, p) == 0;
}

int64_t producer_identity_pass(brook_producer *p, int64_t now_ms)
{
    if (!p->is_idempotent || p->producer_id >= 0 || p->is_asking_id)
        return INT64_MAX;
    pthread_mutex_lock(&p->lock);
    bool is_wanted = p->unreported > p->delivering;
    pthread_mutex_unlock(&p->lock);
    if (!is_wanted)
        return INT64_MAX;
    if (now_ms < p->id_retry_ms)
        return p->id_retry_ms;
    if (is_final(&p->id_error)) { /* what waits hears of it; the next record is worth another try */
        producer_each_partition(p, fail_waiting, 0);
        p->id_error.code = 0;
    }
    ask(p);
    return INT64_MAX;
}

/* ---- numbers ---------------------------------------------------------------------------------------- */

int producer_batches_room(const brook_producer *p, const struct produce_partition *q)
{
    int most = p->batches_offered < p->partition_in_flight_max ? p->batches_offered : p->partition_in_flight_max;
    return most - q->batches_in_flight;
}

bool producer_has_identity(const brook_producer *p, const struct produce_partition *q)
{
    return !p->is_idempotent || ((q->producer_id >= 0 || p->producer_id >= 0) && producer_batches_room(p, q) > 0);
}

/* The header of a batch that was finished with another number, or none. */
static void sign_again(struct produce_batch *batch)
{
    struct batch_header h;
    if (!batch->data || batch_read_header(batch->data, batch->data_bytes, &h) < 0)
        return;
    h.producer_id = batch->producer_id;
    h.producer_epoch = batch->producer_epoch;
    h.base_sequence = batch->base_sequence;
    batch_write_header((void *)(uintptr_t)batch->data, &h);
}

void producer_number(brook_producer *p, struct produce_partition *q, struct produce_batch *batch)
{
    if (!p->is_idempotent || batch->producer_id >= 0)
        return;
    if (q->producer_id < 0) {
        q->producer_id = p->producer_id;
        q->producer_epoch = p->producer_epoch;
        q->next_sequence = p->first_sequence;
    }
    assert(q->producer_id >= 0);
    batch->producer_id = q->producer_id;
    batch->producer_epoch = q->producer_epoch;
    batch->base_sequence = q->next_sequence;
    q->next_sequence =
        (int32_t)(((uint32_t)q->next_sequence + (uint32_t)batch->writer.records_count) & INT32_MAX);
    sign_again(batch);
}

static void next_epoch(brook_producer *p, struct produce_partition *q)
{
    q->next_sequence = 0;
    if (q->producer_epoch < INT16_MAX) {
        q->producer_epoch++;
        return;
    }
    /* Used up: a new id. Other partitions keep the old one. */
    if (p->producer_id == q->producer_id)
        p->producer_id = -1;
    q->producer_id = -1;
}

void producer_begin_anew(brook_producer *p, struct produce_partition *q)
{
    if (!q->is_broken || q->in_flight > 0)
        return;
    q->is_broken = false;
    if (q->producer_id < 0)
        return;
    next_epoch(p, q);
    for (struct produce_batch *b = q->backlog.head; b; b = b->next) {
        b->producer_id = -1;
        b->maybe = false; /* it came behind a batch that is not there: it is not there either */
    }
}

void producer_break(brook_producer *p, struct produce_partition *q)
{
    if (!p->is_idempotent || q->producer_id < 0)
        return;
    q->is_broken = true;
    if (q->in_flight > 0)
        q->recovering = true;
}

void producer_gave_up(brook_producer *p, const struct produce_batch *batch, int code)
{
    /* Of one that may be stored the broker has to say what it expects next; a fenced producer stays fenced. */
    if (batch->producer_id >= 0 && !batch->maybe && code != BROOK_E_PRODUCER_FENCED)
        producer_break(p, batch->partition);
}

bool producer_is_refused_number(int code)
{
    return code == BROOK_E_OUT_OF_SEQUENCE || code == BROOK_E_UNKNOWN_PRODUCER;
}

bool producer_retry_number(brook_producer *p, struct produce_batch *batch)
{
    struct produce_partition *q = batch->partition;
    if (batch->producer_id < 0)
        return false;
    if (!batch->was_first) {
        batch->attempts--; /* it came before its predecessor, which was the one that failed */
        q->recovering = true;
    } else if (batch->maybe) {
        return false;
    } else {
        q->recovering = true;
        q->is_broken = true;
        if (q->restarts++ > 0)
            q->backs_off = true;
    }
    p->retries++;
    producer_put_back(q, batch);
    return true;
}

/* ---- settings --------------------------------------------------------------------------------------- */

/* What does not go together with idempotence; NULL: nothing. */
static const char *contradiction(const brook_producer *p)
{
    if (p->acks != BROOK__ACKS__ACKS_ALL)
        return "acks is not all";
    if (p->retries_max == 0)
        return "retries is 0";
    if (p->partition_in_flight_max > PRODUCER_BATCHES_IN_FLIGHT_MAX)
        return "max.in.flight.requests.per.partition is above 5";
    return NULL;
}

int producer_identity_init(brook_producer *p, const brook_config *config, struct brook_error *error)
{
    const char *why = contradiction(p);
    p->producer_id = -1;
    p->batches_offered = PRODUCER_BATCHES_IN_FLIGHT_MAX;
    p->is_idempotent = config_flag(config, CONFIG_ENABLE_IDEMPOTENCE) && !why;
    if (why && config_flag(config, CONFIG_ENABLE_IDEMPOTENCE) &&
        config_is_set(config, CONFIG_ENABLE_IDEMPOTENCE))
        return brook_error_set(error, BROOK_E_CONFIG, "enable.idempotence is true, but %s", why);
    if (p->is_idempotent && p->partition_in_flight_max == 0)
        p->partition_in_flight_max = PRODUCER_BATCHES_IN_FLIGHT_MAX;
    else if (p->partition_in_flight_max == 0)
        p->partition_in_flight_max = p->retries_max > 0 ? 1 : p->in_flight_max;
    return 0;
}
