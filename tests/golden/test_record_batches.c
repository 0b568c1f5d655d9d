#include "tests/golden/vectors.h"
#include "tests/support/suite.h"

#include "proto/base/err.h"
#include "proto/record/record.h"

#include <stdio.h>

static const struct record_header header = {"h", "x", 1, 1};
static const struct record_view first_records[] = {
    {.key = "k1", .key_bytes = 2, .value = "hello", .value_bytes = 5, .timestamp = GOLDEN_T0},
    {.value = "world", .value_bytes = 5, .timestamp = GOLDEN_T0 + 5, .headers = &header, .headers_count = 1},
};

static void add_first_records(struct batch_writer *w)
{
    for (unsigned i = 0; i < 2; i++)
        ck_assert_int_eq(batch_writer_add(w, &first_records[i]), 0);
}

static void assert_equals(const char *hex, const void *bytes, size_t count)
{
    uint8_t golden[GOLDEN_BYTES_MAX];
    ck_assert_uint_eq(count, golden_bytes(hex, golden));
    ck_assert_mem_eq(bytes, golden, count);
}

static void write_idempotent(uint8_t *buffer, size_t capacity, size_t *ret_bytes)
{
    const struct record_view r = {
        .key = "k", .key_bytes = 1, .value = "v", .value_bytes = 1, .timestamp = GOLDEN_T0};
    struct batch_writer w;
    batch_writer_init(&w, buffer, capacity);
    ck_assert_int_eq(batch_writer_add(&w, &r), 0);
    *ret_bytes = batch_writer_finish(&w, 4000, 3, 7);
    batch_patch(buffer, 0, 0);
}

START_TEST(plain_batch_equals_kafkas)
{
    uint8_t buffer[256];
    struct batch_writer w;
    batch_writer_init(&w, buffer, sizeof buffer);
    add_first_records(&w);
    size_t n = batch_writer_finish(&w, -1, -1, -1);
    batch_patch(buffer, 0, 0);
    assert_equals(GOLDEN_PLAIN, buffer, n);
}
END_TEST

START_TEST(tombstone_batch_equals_kafkas)
{
    const struct record_view r = {.key = "k2", .key_bytes = 2, .timestamp = GOLDEN_T0 + 10};
    uint8_t buffer[256];
    struct batch_writer w;
    batch_writer_init(&w, buffer, sizeof buffer);
    ck_assert_int_eq(batch_writer_add(&w, &r), 0);
    size_t n = batch_writer_finish(&w, -1, -1, -1);
    batch_patch(buffer, 2, 0);
    assert_equals(GOLDEN_SECOND, buffer, n);
}
END_TEST

START_TEST(idempotent_batch_equals_kafkas)
{
    uint8_t buffer[256];
    size_t n;
    write_idempotent(buffer, sizeof buffer, &n);
    assert_equals(GOLDEN_IDEMPOTENT, buffer, n);
}
END_TEST

START_TEST(header_written_by_hand_equals_kafkas_transactional_batch)
{
    uint8_t buffer[256];
    size_t n;
    struct batch_header h;
    write_idempotent(buffer, sizeof buffer, &n);
    ck_assert_int_eq(batch_read_header(buffer, n, &h), 0);
    h.attributes = BATCH_TRANSACTIONAL;
    batch_write_header(buffer, &h);
    assert_equals(GOLDEN_TRANSACTIONAL, buffer, n);
}
END_TEST

static void assert_compressed(enum codec_id id, const char *hex)
{
    uint8_t plain[256], packed[1024];
    struct batch_writer w;
    struct codec *codec;
    size_t n;
    ck_assert_int_eq(codec_new(&codec), 0);
    batch_writer_init(&w, plain, sizeof plain);
    add_first_records(&w);
    ck_assert_int_eq(batch_writer_finish_compressed(&w, codec, id, -1, -1, -1, packed, sizeof packed, &n), 0);
    batch_patch(packed, 0, 0);
    assert_equals(hex, packed, n);
    codec_free(codec);
}

/* Not here: gzip, whose bytes may depend on the processor that isa-l finds, and zstd, another level. */
START_TEST(compressed_batches_equal_kafkas)
{
    assert_compressed(CODEC_NONE, GOLDEN_PLAIN);
    assert_compressed(CODEC_SNAPPY, GOLDEN_SNAPPY);
    assert_compressed(CODEC_LZ4, GOLDEN_LZ4);
}
END_TEST

static void assert_first_records(struct record_walker *w)
{
    struct record r;
    struct record_header h;
    ck_assert_int_eq(record_walker_next(w, &r), 0);
    ck_assert_int_eq(r.offset, 0);
    ck_assert_int_eq(r.timestamp, GOLDEN_T0);
    ck_assert_int_eq(r.key_bytes, 2);
    ck_assert_mem_eq(r.key, "k1", 2);
    ck_assert_int_eq(r.value_bytes, 5);
    ck_assert_mem_eq(r.value, "hello", 5);
    ck_assert_int_eq(r.headers_count, 0);

    ck_assert_int_eq(record_walker_next(w, &r), 0);
    ck_assert_int_eq(r.offset, 1);
    ck_assert_int_eq(r.timestamp, GOLDEN_T0 + 5);
    ck_assert_ptr_null(r.key);
    ck_assert_mem_eq(r.value, "world", 5);
    ck_assert_int_eq(r.headers_count, 1);
    const uint8_t *at = r.headers;
    ck_assert_int_eq(record_next_header(&r, &at, &h), 0);
    ck_assert_int_eq(h.key_bytes, 1);
    ck_assert_mem_eq(h.key, "h", 1);
    ck_assert_int_eq(h.value_bytes, 1);
    ck_assert_mem_eq(h.value, "x", 1);
    ck_assert_int_eq(record_next_header(&r, &at, &h), -BROOK_E_AGAIN);
    ck_assert_int_eq(record_walker_next(w, &r), -BROOK_E_AGAIN);
}

START_TEST(batches_of_every_codec_are_read)
{
    static const char *const hex[] = {GOLDEN_PLAIN, GOLDEN_GZIP, GOLDEN_SNAPPY, GOLDEN_LZ4, GOLDEN_ZSTD};
    struct codec *codec;
    ck_assert_int_eq(codec_new(&codec), 0);
    for (int i = 0; i < 5; i++) {
        uint8_t batch[GOLDEN_BYTES_MAX];
        size_t n = golden_bytes(hex[i], batch), records_bytes;
        struct batch_header h;
        struct record_walker w;
        const void *records;
        ck_assert_int_eq(batch_check_produced(batch, n, n, &h, NULL), 0);
        ck_assert_int_eq(h.attributes & BATCH_CODEC_MASK, i);
        ck_assert_int_eq(batch_records(batch, &h, codec, 30, &records, &records_bytes), 0);
        ck_assert_int_eq(record_walker_init(&w, &h, records, records_bytes), 0);
        assert_first_records(&w);
    }
    codec_free(codec);
}
END_TEST

START_TEST(commit_marker_is_read_and_a_producer_may_not_send_it)
{
    uint8_t batch[GOLDEN_BYTES_MAX];
    size_t n = golden_bytes(GOLDEN_COMMIT_MARKER, batch);
    struct batch_header h;
    struct record_walker w;
    struct record r;
    ck_assert_int_eq(batch_read_header(batch, n, &h), 0);
    ck_assert_int_eq(batch_check_crc(batch, &h), 0);
    ck_assert_int_eq(h.attributes, BATCH_CONTROL | BATCH_TRANSACTIONAL);
    ck_assert_int_eq(h.base_offset, 10);
    ck_assert_int_eq(h.producer_id, 4000);
    ck_assert_int_eq(h.base_sequence, -1);
    ck_assert_int_eq(record_walker_init(&w, &h, batch + BATCH_HEADER_BYTES, n - BATCH_HEADER_BYTES), 0);
    ck_assert_int_eq(record_walker_next(&w, &r), 0);
    ck_assert_int_eq(r.key_bytes, 4);
    ck_assert_mem_eq(r.key, "\0\0\0\1", 4);
    ck_assert_int_eq(batch_check_produced(batch, n, n, &h, NULL), -BROOK_E_BAD_BATCH);
}
END_TEST

START_TEST(segment_file_is_the_first_two_batches)
{
    char path[PATH_MAX];
    uint8_t file[GOLDEN_BYTES_MAX];
    snprintf(path, sizeof path, "%s/tests/golden/segment/00000000000000000000.log", getenv("top_srcdir"));
    FILE *f = fopen(path, "rb");
    ck_assert_ptr_nonnull(f);
    size_t n = fread(file, 1, sizeof file, f);
    fclose(f);
    assert_equals(GOLDEN_PLAIN GOLDEN_SECOND, file, n);

    struct batch_header h;
    struct record_walker w;
    struct record r;
    ck_assert_int_eq(batch_read_header(file, n, &h), 0);
    ck_assert_int_eq(batch_last_offset(&h), 1);
    size_t first = h.total_bytes;
    ck_assert_int_eq(batch_read_header(file + first, n - first, &h), 0);
    ck_assert_int_eq(batch_check_crc(file + first, &h), 0);
    ck_assert_uint_eq(first + h.total_bytes, n);
    ck_assert_int_eq(
        record_walker_init(&w, &h, file + first + BATCH_HEADER_BYTES, h.total_bytes - BATCH_HEADER_BYTES), 0);
    ck_assert_int_eq(record_walker_next(&w, &r), 0);
    ck_assert_int_eq(r.offset, 2);
    ck_assert_mem_eq(r.key, "k2", 2);
    ck_assert_ptr_null(r.value);
    ck_assert_int_eq(record_walker_next(&w, &r), -BROOK_E_AGAIN);
}
END_TEST

SUITE_MAIN("golden/record_batches", SUITE_TEST(plain_batch_equals_kafkas),
           SUITE_TEST(tombstone_batch_equals_kafkas), SUITE_TEST(idempotent_batch_equals_kafkas),
           SUITE_TEST(header_written_by_hand_equals_kafkas_transactional_batch),
           SUITE_TEST(compressed_batches_equal_kafkas), SUITE_TEST(batches_of_every_codec_are_read),
           SUITE_TEST(commit_marker_is_read_and_a_producer_may_not_send_it),
           SUITE_TEST(segment_file_is_the_first_two_batches))
