#include "client/consumer_batch.h"

#include "proto/base/cleanup.h"
#include "proto/base/err.h"
#include "proto/base/pool.h"

#include <stdlib.h>

struct brook_batch *batch_take(struct consumer_set *set)
{
    struct brook_batch *batch = set->idle_batches;
    if (!batch)
        return calloc(1, sizeof *batch);
    set->idle_batches = batch->idle_next;
    set->idle_batches_count--;
    return batch;
}

void batch_give(struct consumer_set *set, struct brook_batch *batch)
{
    if (set->idle_batches_count == SET_IDLE_BATCHES_MAX) {
        free(batch);
        return;
    }
    batch->idle_next = set->idle_batches;
    set->idle_batches = batch;
    set->idle_batches_count++;
}

const char *brook_batch_topic(const brook_batch *batch)
{
    return batch->partition->topic;
}

int32_t brook_batch_partition(const brook_batch *batch)
{
    return batch->partition->partition;
}

int64_t brook_batch_high_watermark(const brook_batch *batch)
{
    return batch->end;
}

int brook_batch_next(brook_batch *batch, struct brook_message *ret_message)
{
    struct record record;
    int r = run_next(&batch->run, &record);
    if (r < 0)
        return r;
    *ret_message = (struct brook_message){.offset = record.offset,
                                          .timestamp = record.timestamp,
                                          .key = record.key,
                                          .key_bytes = (size_t)record.key_bytes,
                                          .value = record.value,
                                          .value_bytes = (size_t)record.value_bytes,
                                          .headers_count = (size_t)record.headers_count,
                                          .headers_ = record.headers,
                                          .headers_end_ = record.headers_end};
    return 0;
}

int brook_message_header(const struct brook_message *message, size_t index, struct brook_header *ret_header)
{
    if (index >= message->headers_count)
        return -BROOK_E_INVALID;
    struct record record = {.headers = message->headers_, .headers_end = message->headers_end_};
    const uint8_t *at = record.headers;
    struct record_header header;
    for (size_t i = 0; i <= index; i++)
        if (record_next_header(&record, &at, &header) < 0)
            return -BROOK_E_INVALID;
    *ret_header = (struct brook_header){.key = header.key,
                                        .key_bytes = (size_t)header.key_bytes,
                                        .value = header.value,
                                        .value_bytes = (size_t)header.value_bytes};
    return 0;
}

void brook_batch_release(brook_batch *batch)
{
    if (batch)
        brook_batch_release_at(batch, batch->next);
}

void brook_batch_release_at(brook_batch *batch, int64_t next_offset)
{
    if (!batch)
        return;
    struct consumer_set *set = batch->set;
    run_clear(&batch->run);
    slab_unref(TAKE(batch->slab));
    set_lock(set);
    struct consumer_partition *p = TAKE(batch->partition);
    progress_release(&p->progress, batch->ticket, next_offset);
    set->batches_out--;
    set->bytes_out -= batch->charge_bytes;
    if (--p->batches_out == 0 && p->life == PARTITION_DRAINING)
        set_kick(set, p);
    if (set->is_starved)
        set_kick(set, NULL);
    set_signal(set);
    consumer_partition_unref(p);
    batch->set = NULL;
    batch_give(set, batch);
    set_unref_unlock(set);
}
