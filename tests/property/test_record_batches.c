/* Random records, written, compressed, expanded and walked: what comes out is what went in. */
#include "tests/support/suite.h"

#include "proto/base/err.h"
#include "proto/record/record.h"

#include <string.h>

#define RECORDS_MAX 300
#define HEADERS_MAX 5
#define BATCH_BYTES (256u << 10)

struct model {
    struct record_view records[RECORDS_MAX];
    struct record_header headers[RECORDS_MAX][HEADERS_MAX];
    int32_t count;
};

static uint8_t soup[70000]; /* where keys and values point into */

/* Lengths: mostly small, at the steps of the varint often, sometimes large. */
static int32_t random_length(uint64_t *state)
{
    static const int32_t steps[] = {0, 1, 62, 63, 64, 65, 8190, 8191, 8192, 8193};
    switch (suite_random_below(state, 8)) {
    case 0:
        return 0;
    case 1:
        return steps[suite_random_below(state, 10)];
    case 2:
        return (int32_t)suite_random_below(state, suite_random_below(state, 10) ? 2000 : 65000);
    default:
        return (int32_t)suite_random_below(state, 100);
    }
}

/* NULL now and then. */
static const void *random_bytes(uint64_t *state, int32_t *ret_length)
{
    *ret_length = random_length(state);
    if (suite_random_below(state, 6) == 0) {
        *ret_length = 0;
        return NULL;
    }
    return soup + suite_random_below(state, sizeof soup - (size_t)*ret_length);
}

static int64_t random_timestamp(uint64_t *state)
{
    switch (suite_random_below(state, 20)) {
    case 0:
        return (int64_t)suite_random(state);
    case 1:
        return -1;
    default:
        return 1700000000000 + (int64_t)suite_random_below(state, 10000);
    }
}

static void random_record(uint64_t *state, struct record_view *r, struct record_header *headers)
{
    *r = (struct record_view){.timestamp = random_timestamp(state), .headers = headers};
    r->key = random_bytes(state, &r->key_bytes);
    r->value = random_bytes(state, &r->value_bytes);
    if (suite_random_below(state, 3) == 0)
        r->headers_count = (int32_t)suite_random_below(state, HEADERS_MAX + 1);
    for (int32_t i = 0; i < r->headers_count; i++) {
        headers[i].key_bytes = (int32_t)suite_random_below(state, 70);
        headers[i].key = soup + suite_random_below(state, 1000);
        headers[i].value = random_bytes(state, &headers[i].value_bytes);
    }
}

static void write_model(uint64_t *state, struct model *m, struct batch_writer *w)
{
    int32_t wanted = 1 + (int32_t)suite_random_below(state, RECORDS_MAX);
    for (m->count = 0; m->count < wanted; m->count++) {
        struct record_view *r = &m->records[m->count];
        random_record(state, r, m->headers[m->count]);
        size_t before = w->bytes, bytes_max = record_bytes_max(r);
        int result = batch_writer_add(w, r);
        if (result < 0) {
            ck_assert_int_eq(result, -BROOK_E_AGAIN);
            ck_assert_uint_gt(bytes_max, w->capacity - before);
            ck_assert_uint_eq(w->bytes, before);
            break;
        }
        ck_assert_uint_le(w->bytes - before, bytes_max);
    }
}

static void assert_same_bytes(const void *got, int32_t got_bytes, const void *wanted, int32_t wanted_bytes)
{
    ck_assert_int_eq(got == NULL, wanted == NULL);
    ck_assert_int_eq(got_bytes, wanted_bytes);
    if (wanted_bytes > 0)
        ck_assert_mem_eq(got, wanted, (size_t)wanted_bytes);
}

static void assert_same_record(const struct record *got, const struct record_view *wanted)
{
    ck_assert_int_eq(got->timestamp, wanted->timestamp);
    assert_same_bytes(got->key, got->key_bytes, wanted->key, wanted->key_bytes);
    assert_same_bytes(got->value, got->value_bytes, wanted->value, wanted->value_bytes);
    ck_assert_int_eq(got->headers_count, wanted->headers_count);
    const uint8_t *at = got->headers;
    struct record_header h;
    for (int32_t i = 0; i < wanted->headers_count; i++) {
        ck_assert_int_eq(record_next_header(got, &at, &h), 0);
        assert_same_bytes(h.key, h.key_bytes, wanted->headers[i].key, wanted->headers[i].key_bytes);
        assert_same_bytes(h.value, h.value_bytes, wanted->headers[i].value, wanted->headers[i].value_bytes);
    }
    ck_assert_int_eq(record_next_header(got, &at, &h), -BROOK_E_AGAIN);
}

static void assert_walk_is_model(const uint8_t *batch, const struct batch_header *h, struct codec *codec,
                                 const struct model *m)
{
    const void *records;
    size_t bytes;
    struct record_walker w;
    struct record r;
    ck_assert_int_eq(batch_records(batch, h, codec, BATCH_BYTES, &records, &bytes), 0);
    ck_assert_int_eq(record_walker_init(&w, h, records, bytes), 0);
    for (int32_t i = 0; i < m->count; i++) {
        ck_assert_int_eq(record_walker_next(&w, &r), 0);
        ck_assert_int_eq(r.offset, h->base_offset + i);
        assert_same_record(&r, &m->records[i]);
    }
    ck_assert_int_eq(record_walker_next(&w, &r), -BROOK_E_AGAIN);
}

static void check_codec(uint64_t *state, struct codec *codec, enum codec_id id, struct batch_writer *w,
                        const struct model *m)
{
    static uint8_t packed[2 * BATCH_BYTES];
    struct batch_header h;
    size_t n;
    ck_assert_uint_le(BATCH_HEADER_BYTES + codec_bound(id, w->bytes - BATCH_HEADER_BYTES), sizeof packed);
    ck_assert_int_eq(batch_writer_finish_compressed(w, codec, id, -1, -1, -1, packed, sizeof packed, &n), 0);
    int64_t base = (int64_t)(suite_random(state) >> 2);
    batch_patch(packed, base, 9);
    ck_assert_int_eq(batch_check_produced(packed, n, n, &h, NULL), 0);
    ck_assert_int_eq(h.base_offset, base);
    ck_assert_int_eq(h.records_count, m->count);
    ck_assert_int_eq(batch_last_offset(&h), base + m->count - 1);
    assert_walk_is_model(packed, &h, codec, m);
}

START_TEST(what_is_written_is_what_is_walked)
{
    static struct model m;
    static uint8_t buffer[BATCH_BYTES];
    uint64_t state = suite_seed();
    struct codec *codec;
    ck_assert_int_eq(codec_new(&codec), 0);
    for (size_t i = 0; i < sizeof soup; i++)
        soup[i] = (uint8_t)(suite_random(&state) >> (i / 1000 % 64));
    for (int round = 0; round < suite_rounds(300); round++) {
        struct batch_writer w;
        size_t capacity = 400 + suite_random_below(&state, sizeof buffer - 400);
        batch_writer_init(&w, buffer, capacity);
        write_model(&state, &m, &w);
        if (m.count == 0)
            continue;
        for (int id = CODEC_NONE; id <= CODEC_ZSTD; id++)
            check_codec(&state, codec, (enum codec_id)id, &w, &m);
        struct batch_header h;
        size_t n = batch_writer_finish(&w, 5, 6, 7);
        ck_assert_int_eq(batch_check_produced(buffer, n, n, &h, NULL), 0);
        assert_walk_is_model(buffer, &h, codec, &m);
    }
    codec_free(codec);
}
END_TEST

/* Any byte of any batch may change: an error, or (where the checksum does not reach) the same records. */
START_TEST(changed_batches_are_errors_or_the_same_records)
{
    static struct model m;
    static uint8_t buffer[4096], packed[8192];
    uint64_t state = suite_seed();
    struct codec *codec;
    ck_assert_int_eq(codec_new(&codec), 0);
    for (int round = 0; round < suite_rounds(20000); round++) {
        if (round % 100 == 0) {
            struct batch_writer w;
            do {
                batch_writer_init(&w, buffer, sizeof buffer);
                write_model(&state, &m, &w);
            } while (m.count == 0);
            size_t n;
            ck_assert_int_eq(batch_writer_finish_compressed(&w, codec, (enum codec_id)(round / 100 % 5), -1,
                                                            -1, -1, packed, sizeof packed, &n),
                             0);
        }
        struct batch_header h;
        ck_assert_int_eq(batch_read_header(packed, sizeof packed, &h), 0);
        size_t n = h.total_bytes, at = suite_random_below(&state, n);
        uint8_t saved = packed[at];
        packed[at] ^= (uint8_t)(1 + suite_random_below(&state, 255));
        if (batch_check_produced(packed, n, n, &h, NULL) == 0)
            assert_walk_is_model(packed, &h, codec, &m);
        packed[at] = saved;
    }
    codec_free(codec);
}
END_TEST

SUITE_MAIN("property/record_batches", SUITE_TEST_SLOW(what_is_written_is_what_is_walked, 60),
           SUITE_TEST_SLOW(changed_batches_are_errors_or_the_same_records, 60))
