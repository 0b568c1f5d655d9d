#include "client/producer_parts.h"
#include "proto/record/record.h"

#include <assert.h>
#include <stdlib.h>

/* The records of a batch, walked as often as needed. */
struct source {
    struct batch_header header;
    const void *data;
    size_t bytes;
    struct record_header *headers; /* of the record that is looked at */
    size_t headers_room;
};

/* Where to cut. */
struct cut {
    int32_t records[2];
    size_t bytes[2]; /* room that they need */
};

static int open_source(brook_producer *p, const struct produce_batch *batch, struct source *s)
{
    int r = batch_read_header(batch->data, batch->data_bytes, &s->header);
    if (r < 0)
        return r;
    return batch_records(batch->data, &s->header, p->codec, batch->writer.bytes, &s->data, &s->bytes);
}

/* The next record as the writer takes it. -BROOK_E_AGAIN: that was all. */
static int next_view(struct source *s, struct record_walker *w, struct record_view *ret)
{
    struct record record;
    int r = record_walker_next(w, &record);
    if (r < 0)
        return r;
    size_t count = (size_t)record.headers_count;
    if (count > s->headers_room) {
        struct record_header *wider = realloc(s->headers, count * sizeof *wider);
        if (!wider)
            return -BROOK_E_NOMEM;
        s->headers = wider;
        s->headers_room = count;
    }
    const uint8_t *at = record.headers;
    for (size_t i = 0; i < count; i++)
        record_next_header(&record, &at, &s->headers[i]);
    *ret = (struct record_view){.key = record.key,
                                .value = record.value,
                                .headers = s->headers,
                                .key_bytes = record.key_bytes,
                                .value_bytes = record.value_bytes,
                                .headers_count = record.headers_count,
                                .timestamp = record.timestamp};
    return 0;
}

/* The first half takes records until it has half of the bytes; the last record is always the second's. */
static int find_cut(struct source *s, struct cut *ret)
{
    struct record_walker w;
    struct record_view view;
    struct cut cut = {.bytes = {BATCH_HEADER_BYTES, BATCH_HEADER_BYTES}};
    int r = record_walker_init(&w, &s->header, s->data, s->bytes);
    while (r == 0 && (r = next_view(s, &w, &view)) == 0) {
        bool last = cut.records[0] == s->header.records_count - 1;
        int half = last || cut.records[1] > 0 || cut.bytes[0] > s->bytes / 2;
        if (cut.records[0] == 0)
            half = 0;
        cut.records[half]++;
        cut.bytes[half] += record_bytes_max(&view);
    }
    *ret = cut;
    return r == -BROOK_E_AGAIN ? 0 : r;
}

static int make_half(brook_producer *p, const struct produce_batch *batch, size_t bytes, int32_t records,
                     struct produce_batch **ret)
{
    struct produce_batch *half;
    pthread_mutex_lock(&p->lock);
    int r = producer_batch_spare(p, bytes, &half);
    pthread_mutex_unlock(&p->lock);
    if (r < 0)
        return r;
    half->partition = batch->partition;
    half->sequence = batch->sequence;
    half->opened_ms = batch->opened_ms;
    half->maybe = batch->maybe;
    half->producer_id = batch->producer_id;
    half->producer_epoch = batch->producer_epoch;
    half->base_sequence = batch->base_sequence;
    *ret = half;
    for (int32_t i = 0; p->report && r == 0 && i < records; i++)
        r = producer_batch_opaque_room(half, (size_t)i);
    return r;
}

static void drop(brook_producer *p, struct produce_batch *batch)
{
    if (!batch)
        return;
    pthread_mutex_lock(&p->lock);
    producer_batch_drop_memory(p, batch);
    producer_batch_recycle(p, batch);
    pthread_mutex_unlock(&p->lock);
}

static int copy_records(brook_producer *p, struct source *s, const struct produce_batch *batch,
                        const struct cut *cut, struct produce_batch *halves[2])
{
    struct record_walker w;
    struct record_view view;
    int32_t number = 0;
    int r = record_walker_init(&w, &s->header, s->data, s->bytes);
    while (r == 0 && (r = next_view(s, &w, &view)) == 0) {
        struct produce_batch *half = halves[number >= cut->records[0]];
        if (p->report)
            producer_batch_set_opaque(half, (size_t)half->writer.records_count,
                                      producer_batch_opaque(batch, (size_t)number));
        r = batch_writer_add(&half->writer, &view);
        assert(r == 0);
        number++;
    }
    return r == -BROOK_E_AGAIN ? 0 : r;
}

int producer_split(brook_producer *p, struct produce_batch *batch, struct produce_batch *ret_halves[2])
{
    struct source source = {0};
    struct cut cut;
    struct produce_batch *halves[2] = {NULL, NULL};
    int r = open_source(p, batch, &source);
    if (r == 0)
        r = find_cut(&source, &cut);
    for (int i = 0; i < 2 && r == 0; i++)
        r = make_half(p, batch, cut.bytes[i], cut.records[i], &halves[i]);
    if (r == 0)
        r = copy_records(p, &source, batch, &cut, halves);
    free(source.headers);
    if (r < 0) {
        drop(p, halves[0]);
        drop(p, halves[1]);
        return r;
    }
    halves[1]->sequence += (uint64_t)cut.records[0];
    halves[1]->base_sequence =
        (int32_t)(((uint32_t)batch->base_sequence + (uint32_t)cut.records[0]) & INT32_MAX);
    drop(p, batch);
    ret_halves[0] = halves[0];
    ret_halves[1] = halves[1];
    return 0;
}
