#include "client/producer_parts.h"
#include "proto/base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

/* Whose callbacks this thread is in, innermost first. */
struct frame {
    const brook_producer *producer;
    struct frame *outer;
};
static _Thread_local struct frame *frames;

bool producer_in_callback(const brook_producer *p)
{
    for (const struct frame *f = frames; f; f = f->outer)
        if (f->producer == p)
            return true;
    return false;
}

/* ---- ending batches --------------------------------------------------------------------------------- */

static void count(brook_producer *p, const struct produce_batch *batch)
{
    int64_t records = batch->writer.records_count;
    if (batch->outcome == BROOK_STORED)
        p->counters.records_stored += records;
    else if (batch->outcome == BROOK_NOT_STORED)
        p->counters.records_failed += records;
    else
        p->counters.records_maybe += records;
    latency_add(&p->latency, (clock_boot_ms() - batch->opened_ms) * 1000);
}

/* There is memory, or there are reports: under the lock. */
static void tell(brook_producer *p)
{
    if (p->room_waiters > 0)
        pthread_cond_broadcast(&p->room);
    if (p->report_waiters > 0)
        pthread_cond_broadcast(&p->reported);
}

static void queue_report(brook_producer *p, struct produce_batch *batch)
{
    bool first = !p->reports.head;
    batch_list_append(&p->reports, batch);
    if (first && p->fd >= 0)
        eventfd_write(p->fd, 1);
}

void producer_keep_text(struct produce_batch *batch, const char *text)
{
    /* `text` may be the batch's own. */
    char *copy = text && *text ? strdup(text) : NULL;
    free(batch->text);
    batch->text = copy;
}

void producer_complete(brook_producer *p, struct produce_batch *batch, enum brook_outcome outcome,
                       int64_t base_offset, int code, const char *text)
{
    batch->outcome = outcome;
    batch->base_offset = base_offset;
    batch->code = code;
    producer_keep_text(batch, text);
    pthread_mutex_lock(&p->lock);
    count(p, batch);
    producer_batch_drop_memory(p, batch);
    if (p->report) {
        queue_report(p, batch);
    } else {
        p->unreported -= batch->writer.records_count;
        producer_batch_recycle(p, batch);
    }
    tell(p);
    pthread_mutex_unlock(&p->lock);
}

void producer_complete_early(brook_producer *p, struct produce_topic *topic, struct early_record *early,
                             int code, const char *text)
{
    /* What it held goes now: reports may wait for long. */
    struct early_record *smaller = realloc(early, sizeof *early);
    if (smaller)
        early = smaller;
    struct produce_batch report = {.partition = &topic->nowhere,
                                   .sequence = (uint64_t)early->partition,
                                   .opaque = early->opaque,
                                   .opened_ms = early->opened_ms,
                                   .charge = early->charge,
                                   .writer = {.records_count = 1}};
    struct produce_batch *batch = &early->report;
    *batch = report;
    producer_complete(p, batch, BROOK_NOT_STORED, -1, code, text);
}

/* ---- reporting -------------------------------------------------------------------------------------- */

static void fill(const struct produce_batch *batch, struct brook_report *report)
{
    *report = (struct brook_report){.topic = batch->partition->topic->name,
                                    .partition = batch->partition->index,
                                    .outcome = batch->outcome};
    if (report->partition == PRODUCER_NOWHERE)
        report->partition = (int32_t)batch->sequence;
    if (!batch->code)
        return;
    const char *text = batch->text ? batch->text : brook_error_text(batch->code);
    if (report->partition < 0) /* its topic was never found */
        brook_error_set(&report->error, batch->code, "topic %s: %s", report->topic, text);
    else
        client_partition_error(&report->error, batch->code, report->topic, report->partition, text);
}

static void report_batch(brook_producer *p, const struct produce_batch *batch)
{
    struct brook_report report;
    fill(batch, &report);
    for (int32_t i = 0; i < batch->writer.records_count; i++) {
        report.offset = batch->base_offset < 0 ? -1 : batch->base_offset + i;
        report.opaque = producer_batch_opaque(batch, (size_t)i);
        p->report(p->report_arg, &report);
    }
}

static void take_reports(brook_producer *p, struct batch_list *ret)
{
    eventfd_t ignored;
    batch_list_init(ret);
    pthread_mutex_lock(&p->lock);
    batch_list_splice(ret, &p->reports);
    for (struct produce_batch *b = ret->head; b; b = b->next)
        p->delivering += b->writer.records_count;
    if (ret->head && p->fd >= 0)
        eventfd_read(p->fd, &ignored);
    pthread_mutex_unlock(&p->lock);
}

static void give_back(brook_producer *p, struct produce_batch *batch)
{
    pthread_mutex_lock(&p->lock);
    p->unreported -= batch->writer.records_count;
    p->delivering -= batch->writer.records_count;
    producer_batch_recycle(p, batch);
    tell(p);
    pthread_mutex_unlock(&p->lock);
}

int producer_reports_run(brook_producer *p)
{
    int ran = 0;
    struct batch_list list;
    struct frame frame = {.producer = p, .outer = frames};
    take_reports(p, &list);
    frames = &frame;
    for (struct produce_batch *batch; (batch = batch_list_pop(&list));) {
        report_batch(p, batch);
        ran += batch->writer.records_count;
        give_back(p, batch);
    }
    frames = frame.outer;
    return ran;
}
