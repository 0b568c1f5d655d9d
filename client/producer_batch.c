#include "client/producer_parts.h"
#include "proto/base/clock.h"
#include "proto/base/pool.h"
#include "proto/record/codec.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* What a batch object and a pointer per record weigh beside the records. */
#define BATCH_OVERHEAD_BYTES 64
#define OPAQUES_MIN 16
/* A partition's first batch begins with this much. */
#define FIRST_BYTES ((size_t)4 << 10)

static bool fits(const brook_producer *p, size_t bytes)
{
    return p->overdraft || p->used_bytes == 0 || p->used_bytes + bytes <= p->buffer_bytes_max;
}

static size_t power_of_two(size_t bytes)
{
    return bytes <= 1 ? 1 : (size_t)1 << (64 - __builtin_clzll(bytes - 1));
}

/* A piece of the shared slab, which lives as long as its last piece. */
static int take_small(brook_producer *p, struct produce_batch *batch, size_t bytes, uint8_t **ret_data)
{
    bytes = (bytes + 15) & ~(size_t)15;
    if (p->shared && p->shared->capacity - p->shared_used < bytes) {
        slab_unref(p->shared);
        p->shared = NULL;
    }
    if (!p->shared) {
        p->shared = pool_take(client_pool(p->client), PRODUCER_SHARED_SLAB_BYTES);
        p->shared_used = 0;
    }
    if (!p->shared)
        return -BROOK_E_NOMEM;
    batch->slab = slab_ref(p->shared);
    *ret_data = p->shared->data + p->shared_used;
    p->shared_used += bytes;
    return 0;
}

/* Room for `bytes`, or for as much more as comes with them, up to `most`. */
static int take_memory(brook_producer *p, struct produce_batch *batch, size_t bytes, size_t most)
{
    uint8_t *data;
    if (bytes <= PRODUCER_SMALL_BYTES) {
        if (!fits(p, bytes + BATCH_OVERHEAD_BYTES))
            return -BROOK_E_QUEUE_FULL;
        int r = take_small(p, batch, bytes, &data);
        if (r < 0)
            return r;
        batch->charge = bytes + BATCH_OVERHEAD_BYTES;
    } else {
        size_t capacity = bytes < POOL_SLAB_BYTES_MIN ? POOL_SLAB_BYTES_MIN : power_of_two(bytes);
        if (!fits(p, capacity))
            return -BROOK_E_QUEUE_FULL;
        batch->slab = pool_take(client_pool(p->client), capacity);
        if (!batch->slab)
            return -BROOK_E_NOMEM;
        data = batch->slab->data;
        size_t usable = batch->slab->capacity < most ? batch->slab->capacity : most;
        bytes = bytes > usable ? bytes : usable;
        batch->charge = batch->slab->capacity;
    }
    p->used_bytes += batch->charge;
    batch_writer_init(&batch->writer, data, bytes);
    return 0;
}

static struct produce_batch *batch_take(brook_producer *p)
{
    struct produce_batch *batch = p->free_batches;
    if (!batch) {
        batch = calloc(1, sizeof *batch);
        if (batch)
            batch->producer_id = -1;
        return batch;
    }
    p->free_batches = batch->next;
    void **opaques = batch->opaques;
    size_t room = batch->opaques_room;
    memset(batch, 0, sizeof *batch);
    batch->opaques = opaques;
    batch->opaques_room = room;
    batch->producer_id = -1;
    return batch;
}

static void open_append(brook_producer *p, struct produce_batch *batch)
{
    batch->open_previous = p->open_last;
    if (p->open_last)
        p->open_last->open_next = batch;
    else
        p->open_first = batch;
    p->open_last = batch;
}

static void open_remove(brook_producer *p, struct produce_batch *batch)
{
    if (batch->open_previous)
        batch->open_previous->open_next = batch->open_next;
    else
        p->open_first = batch->open_next;
    if (batch->open_next)
        batch->open_next->open_previous = batch->open_previous;
    else
        p->open_last = batch->open_previous;
}

int producer_batch_open(brook_producer *p, struct produce_partition *partition, size_t record_bytes,
                        struct produce_batch **ret_batch)
{
    struct produce_batch *batch = batch_take(p);
    if (!batch)
        return -BROOK_E_NOMEM;
    /* As much as the last ones needed; it grows when there is more to come. */
    size_t usual = partition->usual_bytes ? partition->usual_bytes : FIRST_BYTES;
    size_t bytes = usual < partition->batch_bytes ? usual : partition->batch_bytes;
    if (bytes < record_bytes + BATCH_HEADER_BYTES)
        bytes = record_bytes + BATCH_HEADER_BYTES;
    int r = take_memory(p, batch, bytes, partition->batch_bytes);
    if (r < 0) {
        producer_batch_recycle(p, batch);
        return r;
    }
    batch->partition = partition;
    batch->sequence = partition->sequence;
    batch->opened_ms = clock_boot_ms();
    partition->open = batch;
    open_append(p, batch);
    *ret_batch = batch;
    return 0;
}

int producer_batch_grow(brook_producer *p, struct produce_batch *batch, size_t record_bytes)
{
    struct batch_writer *w = &batch->writer;
    size_t most = batch->partition->batch_bytes;
    size_t needed = w->bytes + record_bytes;
    if (needed > most || w->capacity >= most)
        return -BROOK_E_AGAIN;
    struct produce_batch wider = {0};
    size_t bytes = 4 * w->capacity < needed ? needed : 4 * w->capacity;
    if (bytes > most)
        bytes = most;
    if (take_memory(p, &wider, bytes, most) < 0)
        return -BROOK_E_AGAIN;
    memcpy(wider.writer.buffer, w->buffer, w->bytes);
    w->buffer = wider.writer.buffer;
    w->capacity = wider.writer.capacity;
    slab_unref(batch->slab);
    p->used_bytes -= batch->charge;
    batch->slab = wider.slab;
    batch->charge = wider.charge;
    return w->capacity >= needed ? 0 : -BROOK_E_AGAIN;
}

int producer_batch_spare(brook_producer *p, size_t bytes, struct produce_batch **ret_batch)
{
    struct produce_batch *batch = batch_take(p);
    if (!batch)
        return -BROOK_E_NOMEM;
    p->overdraft = true;
    int r = take_memory(p, batch, bytes, bytes);
    p->overdraft = false;
    if (r < 0) {
        producer_batch_recycle(p, batch);
        return r;
    }
    *ret_batch = batch;
    return 0;
}

int producer_batch_opaque_room(struct produce_batch *batch, size_t number)
{
    if (number == 0 || number < batch->opaques_room)
        return 0;
    size_t room = batch->opaques_room ? 2 * batch->opaques_room : OPAQUES_MIN;
    void **wider = realloc(batch->opaques, room * sizeof *wider);
    if (!wider)
        return -BROOK_E_NOMEM;
    batch->opaques = wider;
    batch->opaques_room = room;
    return 0;
}

void producer_batch_close(brook_producer *p, struct produce_partition *partition)
{
    struct produce_batch *batch = partition->open;
    open_remove(p, batch);
    batch_list_append(&partition->closed, batch);
    partition->open = NULL;
    partition->sequence += (uint64_t)batch->writer.records_count;
    partition->due = false;
    /* Between this batch and what was usual, so that one small batch does not make all others grow again. */
    size_t bytes = batch->writer.bytes;
    partition->usual_bytes =
        bytes > partition->usual_bytes ? bytes + bytes / 8 : (3 * partition->usual_bytes + bytes) / 4;
    if (partition->topic->sticky == partition->index)
        partition->topic->sticky = -1;
}

static int16_t epoch_of(const struct produce_batch *batch)
{
    return batch->producer_id < 0 ? -1 : batch->producer_epoch;
}

static int32_t sequence_of(const struct produce_batch *batch)
{
    return batch->producer_id < 0 ? -1 : batch->base_sequence;
}

static int compress(brook_producer *p, struct produce_batch *batch)
{
    struct batch_writer *w = &batch->writer;
    size_t room = BATCH_HEADER_BYTES + codec_bound(p->codec_id, w->bytes - BATCH_HEADER_BYTES);
    struct slab *slab = pool_take(client_pool(p->client), room);
    if (!slab)
        return -BROOK_E_NOMEM;
    size_t bytes;
    int r = batch_writer_finish_compressed(w, p->codec, p->codec_id, batch->producer_id, epoch_of(batch),
                                           sequence_of(batch), slab->data, room, &bytes);
    if (r < 0 || bytes >= w->bytes) {
        slab_unref(slab);
        return r < 0 ? r : -BROOK_E_AGAIN;
    }
    slab_unref(batch->slab);
    batch->slab = slab;
    batch->data = slab->data;
    batch->data_bytes = bytes;
    return 0;
}

int producer_batch_finish(brook_producer *p, struct produce_batch *batch)
{
    if (batch->data)
        return 0;
    /* What does not get smaller goes as it is. */
    if (p->codec_id != CODEC_NONE && compress(p, batch) == 0)
        return 0;
    batch->data_bytes =
        batch_writer_finish(&batch->writer, batch->producer_id, epoch_of(batch), sequence_of(batch));
    batch->data = batch->writer.buffer;
    return 0;
}

void producer_batch_drop_memory(brook_producer *p, struct produce_batch *batch)
{
    slab_unref(batch->slab);
    batch->slab = NULL;
    batch->data = NULL;
    /* Reports count, too, until they are fetched: else they would pile up without limit. */
    size_t keeps =
        p->report ? BATCH_OVERHEAD_BYTES + (size_t)batch->writer.records_count * sizeof(void *) : 0;
    p->used_bytes += keeps - batch->charge;
    batch->charge = keeps;
}

void producer_batch_recycle(brook_producer *p, struct produce_batch *batch)
{
    free(batch->text);
    batch->text = NULL;
    p->used_bytes -= batch->charge;
    batch->charge = 0;
    batch->next = p->free_batches;
    p->free_batches = batch;
}

void producer_batches_free(brook_producer *p)
{
    while (p->free_batches) {
        struct produce_batch *next = p->free_batches->next;
        free(p->free_batches->opaques);
        free(p->free_batches);
        p->free_batches = next;
    }
    slab_unref(p->shared);
}
