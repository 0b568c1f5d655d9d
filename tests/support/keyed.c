#include "tests/support/keyed.h"

#include "proto/base/err.h"
#include "proto/record/record.h"
#include "tests/support/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct keyed keyed_record(int key, int value, int64_t timestamp)
{
    struct keyed r = {.timestamp = timestamp, .has_key = key >= 0, .has_value = value >= 0};
    if (key >= 0)
        snprintf(r.key, sizeof r.key, "k%d", key);
    if (value >= 0)
        snprintf(r.value, sizeof r.value, "v%d", value);
    r.has_header = value >= 0 && value % 3 == 0;
    if (r.has_header)
        snprintf(r.header, sizeof r.header, "h%d", value);
    return r;
}

bool keyed_equal(const struct keyed *a, const struct keyed *b)
{
    return a->offset == b->offset && a->timestamp == b->timestamp && a->has_key == b->has_key &&
           a->has_value == b->has_value && a->has_header == b->has_header && !strcmp(a->key, b->key) &&
           !strcmp(a->value, b->value) && !strcmp(a->header, b->header);
}

static void add(struct batch_writer *w, const struct keyed *k)
{
    struct record_header header = {
        .key = "h", .key_bytes = 1, .value = k->header, .value_bytes = (int32_t)strlen(k->header)};
    struct record_view view = {.key = k->has_key ? k->key : NULL,
                               .key_bytes = (int32_t)strlen(k->key),
                               .value = k->has_value ? k->value : NULL,
                               .value_bytes = (int32_t)strlen(k->value),
                               .headers = k->has_header ? &header : NULL,
                               .headers_count = k->has_header,
                               .timestamp = k->timestamp};
    ck_assert_int_eq(batch_writer_add(w, &view), 0);
}

struct log_batch keyed_batch(enum codec_id id, const struct keyed *records, int count, int64_t producer_id,
                             int32_t sequence)
{
    size_t capacity = BATCH_HEADER_BYTES + (size_t)count * 200, bytes;
    size_t packed = codec_bound(id, capacity) + BATCH_HEADER_BYTES;
    void *plain = malloc(capacity), *data = malloc(packed);
    struct codec *codec;
    struct batch_writer w;
    struct log_batch b = {.data = data};
    int16_t epoch = producer_id < 0 ? -1 : 0;
    sequence = producer_id < 0 ? -1 : sequence;
    ck_assert_int_eq(codec_new(&codec), 0);
    batch_writer_init(&w, plain, capacity);
    for (int i = 0; i < count; i++)
        add(&w, &records[i]);
    if (id == CODEC_NONE)
        memcpy(data, plain, bytes = batch_writer_finish(&w, producer_id, epoch, sequence));
    else
        ck_assert_int_eq(batch_writer_finish_compressed(&w, codec, id, producer_id, epoch, sequence, data,
                                                        packed, &bytes),
                         0);
    ck_assert_int_eq(batch_check_produced(data, bytes, SIZE_MAX, &b.header, NULL), 0);
    codec_free(codec);
    free(plain);
    return b;
}

/* ---- reading ----------------------------------------------------------------------------------------- */

struct reading {
    struct keyed *list;
    size_t count, capacity, batches, empty;
    int64_t next;
    struct codec *codec;
};

static void copy_text(char to[KEYED_TEXT_BYTES], const void *from, int32_t bytes)
{
    ck_assert_int_lt(bytes, KEYED_TEXT_BYTES);
    if (from)
        memcpy(to, from, (size_t)bytes);
}

static void take_record(struct reading *g, const struct record *r)
{
    if (g->count == g->capacity) {
        g->capacity = g->capacity ? 2 * g->capacity : 64;
        g->list = realloc(g->list, g->capacity * sizeof *g->list);
        ck_assert_ptr_nonnull(g->list);
    }
    struct keyed k = {.offset = r->offset, .timestamp = r->timestamp};
    struct record_header h;
    const uint8_t *at = r->headers;
    k.has_key = r->key != NULL;
    k.has_value = r->value != NULL;
    k.has_header = r->headers_count > 0;
    copy_text(k.key, r->key, r->key_bytes);
    copy_text(k.value, r->value, r->value_bytes);
    if (k.has_header) {
        ck_assert_int_eq(record_next_header(r, &at, &h), 0);
        copy_text(k.header, h.value, h.value_bytes);
    }
    ck_assert_int_ge(r->offset, g->next);
    g->next = r->offset + 1;
    g->list[g->count++] = k;
}

static void take_batch(struct reading *g, const uint8_t *data, const struct batch_header *h)
{
    struct record_walker w;
    struct record record;
    const void *records;
    size_t bytes;
    int r;
    int64_t max_timestamp = h->max_timestamp;
    ck_assert_int_eq(batch_check_crc(data, h), 0);
    ck_assert_int_ge(h->base_offset, g->next);
    g->next = h->base_offset;
    g->batches++;
    g->empty += h->records_count == 0;
    ck_assert_int_eq(batch_records(data, h, g->codec, SIZE_MAX / 2, &records, &bytes), 0);
    ck_assert_int_eq(record_walker_init(&w, h, records, bytes), 0);
    for (bool any = false; (r = record_walker_next(&w, &record)) == 0; any = true) {
        if (!any || record.timestamp > max_timestamp)
            max_timestamp = record.timestamp;
        take_record(g, &record);
    }
    ck_assert_int_eq(r, -BROOK_E_AGAIN);
    ck_assert_int_eq(h->max_timestamp, max_timestamp);
    g->next = batch_last_offset(h) + 1;
}

size_t keyed_read_all(struct log *log, struct keyed **ret_records, size_t *ret_batches, size_t *ret_empty)
{
    struct reading g = {.next = log_start_offset(log)};
    ck_assert_int_eq(codec_new(&g.codec), 0);
    for (int64_t end = log_end_offset(log), from = g.next; from < end;) {
        struct log_range range;
        ck_assert_int_eq(log_read(log, from, end, 20000, true, 1 << 24, &range), 0);
        if (range.bytes == 0)
            break;
        uint8_t *data = malloc(range.bytes);
        ck_assert_int_eq(pread(range.fd, data, range.bytes, range.position), (ssize_t)range.bytes);
        struct batch_header h;
        size_t at = 0;
        for (; at < range.bytes && batch_read_header(data + at, range.bytes - at, &h) == 0; at += h.total_bytes)
            take_batch(&g, data + at, &h);
        ck_assert_uint_gt(at, 0);
        from = g.next;
        free(data);
        log_range_done(&range);
    }
    codec_free(g.codec);
    *ret_records = g.list;
    if (ret_batches)
        *ret_batches = g.batches;
    if (ret_empty)
        *ret_empty = g.empty;
    return g.count;
}
