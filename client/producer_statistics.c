#include "client/producer_parts.h"
#include "proto/base/clock.h"

#include <jansson.h>
#include <stdlib.h>

struct snapshot {
    struct producer_counters now, last;
    struct latency latency;
    int64_t unreported, used_bytes;
    double seconds; /* since the last snapshot */
};

static void take_snapshot(brook_producer *p, struct snapshot *s)
{
    int64_t now_ms = clock_boot_ms();
    pthread_mutex_lock(&p->lock);
    s->now = p->counters;
    s->last = p->statistics_last;
    s->latency = p->latency;
    s->unreported = p->unreported;
    s->used_bytes = (int64_t)p->used_bytes;
    s->seconds = (double)(now_ms - p->statistics_last_ms) / 1000;
    p->statistics_last = p->counters;
    p->statistics_last_ms = now_ms;
    pthread_mutex_unlock(&p->lock);
}

static json_t *describe_rates(const struct snapshot *s)
{
    double seconds = s->seconds > 0.001 ? s->seconds : 0.001;
    return json_pack("{s:f, s:f, s:f, s:f}", "seconds", s->seconds, "records_per_second",
                     (double)(s->now.records_stored - s->last.records_stored) / seconds, "bytes_per_second",
                     (double)(s->now.bytes_sent - s->last.bytes_sent) / seconds, "requests_per_second",
                     (double)(s->now.requests_sent - s->last.requests_sent) / seconds);
}

static json_t *describe_latency(const struct latency *l)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I}", "batches", (json_int_t)l->count, "p50",
                     (json_int_t)latency_percentile(l, 0.5), "p99", (json_int_t)latency_percentile(l, 0.99),
                     "max", (json_int_t)l->max_us, "mean",
                     (json_int_t)(l->count ? l->sum_us / (int64_t)l->count : 0));
}

static json_t *describe_records(const struct producer_counters *c)
{
    return json_pack("{s:I, s:I, s:I, s:I}", "accepted", (json_int_t)c->records_accepted, "stored",
                     (json_int_t)c->records_stored, "not_stored", (json_int_t)c->records_failed,
                     "maybe_stored", (json_int_t)c->records_maybe);
}

char *brook_producer_statistics(brook_producer *p)
{
    struct snapshot s;
    take_snapshot(p, &s);
    json_t *json =
        json_pack("{s:s, s:o, s:o, s:o, s:{s:I, s:I, s:I, s:I}, s:{s:I, s:I, s:I, s:I, s:I}}", "kind",
                  "producer", "records", describe_records(&s.now), "rates", describe_rates(&s), "latency_us",
                  describe_latency(&s.latency), "queue", "records", (json_int_t)s.unreported, "bytes",
                  (json_int_t)s.used_bytes, "bytes_max", (json_int_t)p->buffer_bytes_max, "refused",
                  (json_int_t)s.now.queue_full, "sent", "bytes", (json_int_t)s.now.bytes_sent, "record_bytes",
                  (json_int_t)s.now.bytes_accepted, "batches", (json_int_t)s.now.batches_sent, "requests",
                  (json_int_t)s.now.requests_sent, "retries", (json_int_t)s.now.retries);
    if (!json)
        return NULL;
    char *text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    return text;
}
