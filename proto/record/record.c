#include "proto/record/record.h"

#include "proto/base/err.h"
#include "proto/record/varint.h"

int record_walker_init(struct record_walker *w, const struct batch_header *h, const void *data, size_t bytes)
{
    if (h->records_count < 0 || (size_t)h->records_count > bytes / RECORD_BYTES_MIN)
        return -BROOK_E_BAD_BATCH;
    const uint8_t *at = data;
    *w = (struct record_walker){.at = at,
                                .end = at + bytes,
                                .base_offset = h->base_offset,
                                .base_timestamp = h->base_timestamp,
                                .max_timestamp = h->max_timestamp,
                                .last_offset_delta = h->last_offset_delta,
                                .previous_delta = -1,
                                .left = h->records_count,
                                .log_append_time = (h->attributes & BATCH_LOG_APPEND_TIME) != 0};
    return 0;
}

/* Most varints in a record have one byte or two. */
static inline const uint8_t *read_int(const uint8_t *p, const uint8_t *end, int32_t *ret_value)
{
    if (end - p < 2)
        return varint_read(p, end, ret_value);
    int32_t u = p[0];
    if (u >= 0x80) {
        if (p[1] >= 0x80)
            return varint_read(p, end, ret_value);
        u = (u & 0x7f) | p[1] << 7;
        p++;
    }
    *ret_value = (u >> 1) ^ -(u & 1);
    return p + 1;
}

/* A length and so many bytes; null is only where the length is -1. NULL when it goes beyond `end`. */
static inline const uint8_t *read_field(const uint8_t *p, const uint8_t *end, const void **ret_data,
                                        int32_t *ret_bytes)
{
    int32_t bytes;
    p = read_int(p, end, &bytes);
    if (!p || bytes < -1 || bytes > end - p)
        return NULL;
    if (bytes < 0) {
        *ret_data = NULL;
        *ret_bytes = 0;
        return p;
    }
    *ret_data = p;
    *ret_bytes = bytes;
    return p + bytes;
}

static const uint8_t *read_header(const uint8_t *p, const uint8_t *end, struct record_header *h)
{
    p = read_field(p, end, &h->key, &h->key_bytes);
    return p && h->key ? read_field(p, end, &h->value, &h->value_bytes) : NULL;
}

static bool headers_are_good(const uint8_t *p, const uint8_t *end, int32_t count)
{
    struct record_header unused;
    for (; count > 0 && p; count--)
        p = read_header(p, end, &unused);
    return p == end;
}

/* What lies between attributes and headers. */
static inline const uint8_t *read_body(const uint8_t *p, const uint8_t *end, struct record *r,
                                       int64_t *ret_timestamp_delta, int32_t *ret_offset_delta)
{
    p = varlong_read(p, end, ret_timestamp_delta);
    if (p)
        p = read_int(p, end, ret_offset_delta);
    if (p)
        p = read_field(p, end, &r->key, &r->key_bytes);
    if (p)
        p = read_field(p, end, &r->value, &r->value_bytes);
    if (p)
        p = read_int(p, end, &r->headers_count);
    return p;
}

int record_walker_next(struct record_walker *w, struct record *ret_record)
{
    if (w->left == 0)
        return w->at == w->end ? -BROOK_E_AGAIN : -BROOK_E_BAD_BATCH;
    int32_t length;
    const uint8_t *p = read_int(w->at, w->end, &length);
    if (!p || length < RECORD_BYTES_MIN - 1 || length > w->end - p)
        return -BROOK_E_BAD_BATCH;
    const uint8_t *end = p + length;

    struct record r;
    int64_t timestamp_delta;
    int32_t offset_delta;
    p = read_body(p + 1, end, &r, &timestamp_delta, &offset_delta);
    if (!p || offset_delta <= w->previous_delta || offset_delta > w->last_offset_delta)
        return -BROOK_E_BAD_BATCH;
    if (r.headers_count == 0 ? p != end : r.headers_count < 0 || !headers_are_good(p, end, r.headers_count))
        return -BROOK_E_BAD_BATCH;

    r.headers = p;
    r.headers_end = end;
    r.offset = w->base_offset + offset_delta;
    r.timestamp = w->log_append_time ? w->max_timestamp
                                     : (int64_t)((uint64_t)w->base_timestamp + (uint64_t)timestamp_delta);
    *ret_record = r;
    w->at = end;
    w->previous_delta = offset_delta;
    w->left--;
    return 0;
}

int record_next_header(const struct record *record, const uint8_t **at, struct record_header *ret_header)
{
    if (*at == record->headers_end)
        return -BROOK_E_AGAIN;
    const uint8_t *next = read_header(*at, record->headers_end, ret_header);
    if (!next)
        return -BROOK_E_BAD_BATCH;
    *at = next;
    return 0;
}

int batch_records(const void *batch, const struct batch_header *h, struct codec *codec,
                  size_t expanded_bytes_max, const void **ret_data, size_t *ret_bytes)
{
    const uint8_t *records = (const uint8_t *)batch + BATCH_HEADER_BYTES;
    size_t bytes = h->total_bytes - BATCH_HEADER_BYTES;
    enum codec_id id = (enum codec_id)(h->attributes & BATCH_CODEC_MASK);
    if (id != CODEC_NONE)
        return codec_expand(codec, id, records, bytes, expanded_bytes_max, ret_data, ret_bytes);
    *ret_data = records;
    *ret_bytes = bytes;
    return 0;
}
