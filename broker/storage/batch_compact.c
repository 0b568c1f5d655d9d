#include "broker/storage/batch_compact.h"

#include "proto/base/err.h"
#include "proto/record/big_endian.h"
#include "proto/record/record.h"
#include "proto/record/varint.h"

#include <stdlib.h>
#include <string.h>

/* A record whose timestamp is written against another base grows by at most this: delta and length. */
#define RECORD_GROWTH_MAX (VARLONG_BYTES_MAX + VARINT_BYTES_MAX)
/* Of the checksum; the header is drawn in batch.h. */
#define BATCH_AT_CRC 17

struct buffer {
    uint8_t *data;
    size_t capacity;
};

struct batch_compactor {
    struct codec *codec;
    struct buffer plain;  /* header and records in the clear */
    struct buffer packed; /* header and records compressed */
};

int batch_compactor_new(struct batch_compactor **ret_compactor)
{
    struct batch_compactor *c = calloc(1, sizeof *c);
    if (!c || codec_new(&c->codec) != 0) {
        free(c);
        return -BROOK_E_NOMEM;
    }
    *ret_compactor = c;
    return 0;
}

void batch_compactor_free(struct batch_compactor *c)
{
    if (!c)
        return;
    codec_free(c->codec);
    free(c->plain.data);
    free(c->packed.data);
    free(c);
}

static int reserve(struct buffer *b, size_t bytes)
{
    if (b->capacity >= bytes)
        return 0;
    free(b->data);
    b->data = malloc(bytes);
    b->capacity = b->data ? bytes : 0;
    return b->data ? 0 : -BROOK_E_NOMEM;
}

bool batch_is_compacted(const struct batch_header *h)
{
    return !(h->attributes & (BATCH_CONTROL | BATCH_TRANSACTIONAL));
}

/* Start walking. Returns 0, -BROOK_E_NOMEM, or another error for a batch that can not be looked into. */
static int open_batch(struct batch_compactor *c, const void *batch, const struct batch_header *h,
                      size_t expanded_bytes_max, struct record_walker *w, size_t *ret_bytes)
{
    const void *records;
    if (h->records_count == 0) { /* without a stream to expand */
        *ret_bytes = 0;
        return record_walker_init(w, h, (const uint8_t *)batch + BATCH_HEADER_BYTES, 0);
    }
    int r = batch_records(batch, h, c->codec, expanded_bytes_max, &records, ret_bytes);
    return r == 0 ? record_walker_init(w, h, records, *ret_bytes) : r;
}

/* ---- the keys ---------------------------------------------------------------------------------------- */

/* The walk goes over all records first: keys of a batch that turns out bad half way would stand for records
 * that stay. */
static int check_walk(struct record_walker w)
{
    struct record record;
    int r;
    while ((r = record_walker_next(&w, &record)) == 0)
        ;
    return r == -BROOK_E_AGAIN ? 0 : r;
}

int batch_put_keys(struct batch_compactor *c, const void *batch, const struct batch_header *h,
                   struct key_map *map, int64_t start_offset, int64_t end_offset, size_t expanded_bytes_max,
                   int64_t *ret_end)
{
    struct record_walker w;
    struct record record;
    size_t bytes;
    int64_t last = batch_last_offset(h) + 1;
    *ret_end = last < end_offset ? last : end_offset;
    if (!batch_is_compacted(h))
        return 0;
    int r = open_batch(c, batch, h, expanded_bytes_max, &w, &bytes);
    if (r == 0)
        r = check_walk(w);
    if (r != 0)
        return r == -BROOK_E_NOMEM ? r : 0;
    while (record_walker_next(&w, &record) == 0 && record.offset < end_offset) {
        if (record.offset < start_offset || !record.key)
            continue;
        if (key_map_put(map, record.key, (size_t)record.key_bytes, record.offset) != 0) {
            *ret_end = record.offset;
            return 0;
        }
    }
    return 0;
}

/* ---- the verdict ------------------------------------------------------------------------------------- */

/* What a walk over a batch found. */
struct findings {
    int64_t removed;
    int32_t kept;
    size_t kept_bytes;
    int64_t max_timestamp; /* of those kept */
    bool has_tombstone;    /* kept, and older values of its key are gone */
    bool is_straddling;    /* a tombstone lies beyond the map's end */
};

static bool is_replaced(const struct record *record, const struct batch_compact_rule *rule)
{
    return record->key && record->offset < rule->map_end &&
           key_map_find(rule->map, record->key, (size_t)record->key_bytes) > record->offset;
}

static bool stays(const struct record *record, const struct batch_header *h,
                  const struct batch_compact_rule *rule)
{
    if (is_replaced(record, rule))
        return false;
    bool is_tombstone = record->key && !record->value;
    bool is_due = (h->attributes & BATCH_DELETE_HORIZON) && h->base_timestamp <= rule->now_ms;
    return !(is_tombstone && is_due && record->offset < rule->map_end);
}

static void find(struct findings *f, const struct record *record, const struct batch_compact_rule *rule,
                 size_t bytes)
{
    f->kept++;
    f->kept_bytes += bytes;
    if (f->kept == 1 || record->timestamp > f->max_timestamp)
        f->max_timestamp = record->timestamp;
    if (record->key && !record->value) {
        f->has_tombstone = true;
        f->is_straddling = f->is_straddling || record->offset >= rule->map_end;
    }
}

/* Walk, and gather what stays at `to` (which has room for all). */
static int gather(struct record_walker w, const struct batch_header *h,
                  const struct batch_compact_rule *rule, uint8_t *to, struct findings *ret_findings)
{
    struct findings f = {0};
    struct record record;
    int r;
    const uint8_t *start = w.at;
    while ((r = record_walker_next(&w, &record)) == 0) {
        size_t bytes = (size_t)(w.at - start);
        if (stays(&record, h, rule)) {
            memcpy(to + f.kept_bytes, start, bytes);
            find(&f, &record, rule, bytes);
        } else {
            f.removed++;
        }
        start = w.at;
    }
    *ret_findings = f;
    return r == -BROOK_E_AGAIN ? 0 : r;
}

/* Write one record with a timestamp counted from another base. Returns the byte behind it. */
static uint8_t *write_moved(uint8_t *to, const uint8_t *record, const uint8_t *end, int64_t from_base,
                            int64_t to_base)
{
    int32_t length;
    int64_t delta = 0;
    const uint8_t *body = varint_read(record, end, &length);
    const uint8_t *rest = varlong_read(body + 1, end, &delta);
    uint8_t moved[VARLONG_BYTES_MAX];
    delta = (int64_t)((uint64_t)delta + (uint64_t)from_base - (uint64_t)to_base);
    size_t delta_bytes = (size_t)(varlong_write(moved, delta) - moved);
    size_t rest_bytes = (size_t)(end - rest);
    to = varint_write(to, (int32_t)(1 + delta_bytes + rest_bytes));
    *to++ = *body; /* attributes */
    memcpy(to, moved, delta_bytes);
    memcpy(to + delta_bytes, rest, rest_bytes);
    return to + delta_bytes + rest_bytes;
}

/* The same as gather(), with timestamps against `to_base`. The walk has gone well once already. */
static size_t gather_moved(struct record_walker w, const struct batch_header *h,
                           const struct batch_compact_rule *rule, int64_t to_base, uint8_t *to)
{
    struct record record;
    uint8_t *at = to;
    const uint8_t *start = w.at;
    while (record_walker_next(&w, &record) == 0) {
        if (stays(&record, h, rule))
            at = write_moved(at, start, w.at, h->base_timestamp, to_base);
        start = w.at;
    }
    return (size_t)(at - to);
}

/* Put a header in front of the records in `plain`, compressed with the batch's own codec. */
static int finish(struct batch_compactor *c, struct batch_header *h, size_t records_bytes,
                  const void **ret_data)
{
    enum codec_id id = (enum codec_id)(h->attributes & BATCH_CODEC_MASK);
    uint8_t *data = c->plain.data;
    if (id != CODEC_NONE) {
        size_t bound = codec_bound(id, records_bytes);
        if (reserve(&c->packed, BATCH_HEADER_BYTES + bound) != 0)
            return -BROOK_E_NOMEM;
        data = c->packed.data;
        int r = codec_compress(c->codec, id, c->plain.data + BATCH_HEADER_BYTES, records_bytes,
                               data + BATCH_HEADER_BYTES, bound, &records_bytes);
        if (r != 0)
            return -BROOK_E_NOMEM;
    }
    h->total_bytes = BATCH_HEADER_BYTES + records_bytes;
    batch_write_header(data, h);
    h->crc = be32_read(data + BATCH_AT_CRC);
    *ret_data = data;
    return 0;
}

int batch_compact(struct batch_compactor *c, const void *batch, const struct batch_header *h,
                  const struct batch_compact_rule *rule, enum batch_verdict *ret_verdict,
                  const void **ret_data, struct batch_header *ret_header, int64_t *ret_removed)
{
    struct record_walker w;
    struct findings f;
    size_t bytes;
    *ret_verdict = BATCH_STAYS;
    *ret_removed = 0;
    if (!batch_is_compacted(h) || h->base_offset >= rule->map_end)
        return 0;
    int r = open_batch(c, batch, h, rule->expanded_bytes_max, &w, &bytes);
    if (r == 0)
        r = reserve(&c->plain, BATCH_HEADER_BYTES + bytes + (size_t)h->records_count * RECORD_GROWTH_MAX);
    if (r == 0)
        r = gather(w, h, rule, c->plain.data + BATCH_HEADER_BYTES, &f);
    if (r != 0) /* what can not be looked into stays as it is: nothing is lost */
        return r == -BROOK_E_NOMEM ? r : 0;
    *ret_removed = f.removed;
    if (f.kept == 0) {
        *ret_verdict = BATCH_VANISHES;
        return 0;
    }
    /* Beyond the map's end older values of the key may still lie in front: the delay has not begun. */
    bool begins_delay = f.has_tombstone && !f.is_straddling && !(h->attributes & BATCH_DELETE_HORIZON);
    if (f.removed == 0 && !begins_delay)
        return 0;
    struct batch_header made = *h;
    size_t kept_bytes = f.kept_bytes;
    made.records_count = f.kept;
    if (!(h->attributes & BATCH_LOG_APPEND_TIME)) /* else it is the time of all its records */
        made.max_timestamp = f.max_timestamp;
    if (begins_delay) {
        bool overflows = rule->now_ms > INT64_MAX - rule->delete_retention_ms;
        made.base_timestamp = overflows ? INT64_MAX : rule->now_ms + rule->delete_retention_ms;
        made.attributes |= BATCH_DELETE_HORIZON;
        kept_bytes = gather_moved(w, h, rule, made.base_timestamp, c->plain.data + BATCH_HEADER_BYTES);
    }
    r = finish(c, &made, kept_bytes, ret_data);
    if (r == 0) {
        *ret_verdict = BATCH_SHRINKS;
        *ret_header = made;
    }
    return r;
}

void batch_write_empty(const struct batch_header *h, uint8_t to[BATCH_HEADER_BYTES],
                       struct batch_header *ret_header)
{
    struct batch_header empty = *h;
    empty.total_bytes = BATCH_HEADER_BYTES;
    empty.attributes &= (int16_t)~(BATCH_CODEC_MASK | BATCH_DELETE_HORIZON);
    empty.base_timestamp = -1;
    empty.records_count = 0;
    batch_write_header(to, &empty);
    empty.crc = be32_read(to + BATCH_AT_CRC);
    *ret_header = empty;
}
