#include "proto/record/batch.h"

#include "proto/base/err.h"
#include "proto/record/varint.h"

#include <assert.h>
#include <string.h>

/* length, attributes, timestamp delta, offset delta, key length, value length, headers count */
#define RECORD_OVERHEAD_MAX (VARINT_BYTES_MAX + 1 + VARLONG_BYTES_MAX + 4 * VARINT_BYTES_MAX)

/* Bytes of a field that may be null. A negative length becomes one that fits nowhere. */
static inline size_t field_bytes(const void *data, int32_t bytes)
{
    return data ? (uint32_t)bytes : 0;
}

size_t record_bytes_max(const struct record_view *record)
{
    size_t bytes = RECORD_OVERHEAD_MAX + field_bytes(record->key, record->key_bytes) +
                   field_bytes(record->value, record->value_bytes);
    for (int32_t i = 0; i < record->headers_count; i++)
        bytes += 2 * VARINT_BYTES_MAX + (size_t)(uint32_t)record->headers[i].key_bytes +
                 field_bytes(record->headers[i].value, record->headers[i].value_bytes);
    return bytes;
}

void batch_writer_init(struct batch_writer *w, void *buffer, size_t capacity)
{
    assert(capacity >= BATCH_HEADER_BYTES);
    /* A batch's length is 31 bits. */
    *w = (struct batch_writer){.buffer = buffer,
                               .capacity = capacity < INT32_MAX ? capacity : INT32_MAX,
                               .bytes = BATCH_HEADER_BYTES};
}

static inline uint8_t *write_field(uint8_t *p, const void *data, int32_t bytes)
{
    if (!data) {
        *p++ = 1; /* -1: null */
        return p;
    }
    p = varint_write(p, bytes);
    memcpy(p, data, (size_t)bytes);
    return p + bytes;
}

static uint8_t *write_headers(uint8_t *p, const struct record_header *headers, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        p = varint_write(p, headers[i].key_bytes);
        memcpy(p, headers[i].key, (size_t)headers[i].key_bytes);
        p += headers[i].key_bytes;
        p = write_field(p, headers[i].value, headers[i].value_bytes);
    }
    return p;
}

/* The record behind its length. */
static inline uint8_t *write_body(uint8_t *p, const struct record_view *record, int64_t timestamp_delta,
                                  int32_t offset_delta)
{
    *p++ = 0; /* attributes: none are defined */
    p = varlong_write(p, timestamp_delta);
    p = varint_write(p, offset_delta);
    p = write_field(p, record->key, record->key_bytes);
    p = write_field(p, record->value, record->value_bytes);
    p = varint_write(p, record->headers_count);
    return record->headers_count ? write_headers(p, record->headers, record->headers_count) : p;
}

int batch_writer_add(struct batch_writer *w, const struct record_view *record)
{
    assert(record->headers_count >= 0);
    size_t bytes_max = record_bytes_max(record);
    if (bytes_max > w->capacity - w->bytes || w->records_count >= BATCH_RECORDS_MAX)
        return -BROOK_E_AGAIN;
    if (w->records_count == 0)
        w->base_timestamp = w->max_timestamp = record->timestamp;
    else if (record->timestamp > w->max_timestamp)
        w->max_timestamp = record->timestamp;
    /* Unsigned, since two absurd timestamps may lie further apart than int64_t reaches. */
    int64_t timestamp_delta = (int64_t)((uint64_t)record->timestamp - (uint64_t)w->base_timestamp);

    /* The length comes first but is known last. Its own size is all that must be known beforehand, and that
     * is nearly always the size that the upper bound needs; else the body is moved up. */
    uint8_t *start = w->buffer + w->bytes;
    size_t guess = varint_bytes((int32_t)bytes_max);
    uint8_t *body = start + guess;
    uint8_t *end = write_body(body, record, timestamp_delta, w->records_count);
    size_t length = (size_t)(end - body);
    uint8_t *behind_length = varint_write(start, (int32_t)length);
    if (behind_length != body)
        memmove(behind_length, body, length);
    w->bytes = (size_t)(behind_length + length - w->buffer);
    w->records_count++;
    return 0;
}

static struct batch_header writer_header(const struct batch_writer *w, int64_t producer_id,
                                         int16_t producer_epoch, int32_t base_sequence)
{
    assert(w->records_count > 0);
    return (struct batch_header){.total_bytes = w->bytes,
                                 .leader_epoch = -1,
                                 .last_offset_delta = w->records_count - 1,
                                 .base_timestamp = w->base_timestamp,
                                 .max_timestamp = w->max_timestamp,
                                 .producer_id = producer_id,
                                 .producer_epoch = producer_epoch,
                                 .base_sequence = base_sequence,
                                 .records_count = w->records_count};
}

size_t batch_writer_finish(struct batch_writer *w, int64_t producer_id, int16_t producer_epoch,
                           int32_t base_sequence)
{
    struct batch_header h = writer_header(w, producer_id, producer_epoch, base_sequence);
    batch_write_header(w->buffer, &h);
    return w->bytes;
}

int batch_writer_finish_compressed(struct batch_writer *w, struct codec *codec, enum codec_id id,
                                   int64_t producer_id, int16_t producer_epoch, int32_t base_sequence,
                                   void *to, size_t to_capacity, size_t *ret_bytes)
{
    if (to_capacity < BATCH_HEADER_BYTES)
        return -BROOK_E_AGAIN;
    size_t bytes;
    int r = codec_compress(codec, id, w->buffer + BATCH_HEADER_BYTES, w->bytes - BATCH_HEADER_BYTES,
                           (uint8_t *)to + BATCH_HEADER_BYTES, to_capacity - BATCH_HEADER_BYTES, &bytes);
    if (r < 0)
        return r;
    struct batch_header h = writer_header(w, producer_id, producer_epoch, base_sequence);
    h.attributes = (int16_t)id;
    h.total_bytes = BATCH_HEADER_BYTES + bytes;
    if (h.total_bytes > INT32_MAX)
        return -BROOK_E_AGAIN;
    batch_write_header(to, &h);
    *ret_bytes = h.total_bytes;
    return 0;
}
