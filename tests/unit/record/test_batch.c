#include "tests/golden/vectors.h"
#include "tests/support/guard.h"
#include "tests/support/suite.h"

#include "proto/base/err.h"
#include "proto/record/batch.h"
#include "proto/record/big_endian.h"

#include <stdio.h>

/* A good batch to spoil. */
struct sample {
    uint8_t bytes[GOLDEN_BYTES_MAX];
    size_t count;
    struct batch_header header;
};

static struct sample sample(const char *hex)
{
    struct sample s;
    s.count = golden_bytes(hex, s.bytes);
    ck_assert_int_eq(batch_read_header(s.bytes, s.count, &s.header), 0);
    return s;
}

static int produced(const struct sample *s)
{
    struct batch_header h;
    struct brook_error error = {0};
    int r = batch_check_produced(s->bytes, s->count, 1 << 20, &h, &error);
    ck_assert_int_eq(r, batch_check_produced(s->bytes, s->count, 1 << 20, &h, NULL));
    if (r < 0) {
        ck_assert_int_eq(error.code, -r);
        ck_assert_str_ne(error.text, "");
    }
    return r;
}

/* What a producer would get for the sample with its header changed by `change`, the checksum right. */
#define PRODUCED_WITH(change)                                                                                \
    __extension__({                                                                                          \
        struct sample s_ = sample(GOLDEN_IDEMPOTENT);                                                        \
        struct batch_header *h = &s_.header;                                                                 \
        change;                                                                                              \
        batch_write_header(s_.bytes, h);                                                                     \
        produced(&s_);                                                                                       \
    })

START_TEST(header_is_read_field_by_field)
{
    struct sample s = sample(GOLDEN_IDEMPOTENT);
    const struct batch_header *h = &s.header;
    ck_assert_int_eq(h->base_offset, 0);
    ck_assert_uint_eq(h->total_bytes, s.count);
    ck_assert_int_eq(h->leader_epoch, 0);
    ck_assert_uint_eq(h->crc, 0xe9c0de0c);
    ck_assert_int_eq(h->attributes, 0);
    ck_assert_int_eq(h->last_offset_delta, 0);
    ck_assert_int_eq(h->base_timestamp, GOLDEN_T0);
    ck_assert_int_eq(h->max_timestamp, GOLDEN_T0);
    ck_assert_int_eq(h->producer_id, 4000);
    ck_assert_int_eq(h->producer_epoch, 3);
    ck_assert_int_eq(h->base_sequence, 7);
    ck_assert_int_eq(h->records_count, 1);
}
END_TEST

START_TEST(every_truncation_asks_for_more)
{
    struct sample s = sample(GOLDEN_PLAIN);
    struct guard guard;
    guard_init(&guard, s.count);
    for (size_t n = 0; n < s.count; n++) {
        struct batch_header h = {.total_bytes = 1};
        ck_assert_int_eq(batch_read_header(guard_copy(&guard, s.bytes, n), n, &h), -BROOK_E_AGAIN);
        ck_assert_uint_eq(h.total_bytes, n < BATCH_HEADER_BYTES ? 1 : s.count);
        int r = batch_check_produced(guard_copy(&guard, s.bytes, n), n, 1 << 20, &h, NULL);
        ck_assert_int_eq(r, -BROOK_E_BAD_BATCH);
    }
    guard_done(&guard);
}
END_TEST

START_TEST(bytes_that_are_no_batch_are_refused)
{
    struct batch_header h;
    uint8_t zeros[BATCH_HEADER_BYTES] = {0};
    ck_assert_int_eq(batch_read_header(zeros, sizeof zeros, &h), -BROOK_E_BAD_BATCH);

    struct sample s = sample(GOLDEN_PLAIN);
    static const int32_t lengths[] = {0, 48, -1, INT32_MIN};
    for (unsigned i = 0; i < 4; i++) {
        be32_write(s.bytes + 8, (uint32_t)lengths[i]);
        ck_assert_int_eq(batch_read_header(s.bytes, s.count, &h), -BROOK_E_BAD_BATCH);
    }
    be32_write(s.bytes + 8, INT32_MAX);
    ck_assert_int_eq(batch_read_header(s.bytes, s.count, &h), -BROOK_E_AGAIN);
    ck_assert_uint_eq(h.total_bytes, (size_t)INT32_MAX + 12);
    ck_assert_int_eq(produced(&s), -BROOK_E_MESSAGE_TOO_LARGE);
}
END_TEST

START_TEST(old_formats_are_named_so_even_when_shorter_than_a_header)
{
    struct sample s = sample(GOLDEN_PLAIN);
    struct batch_header h;
    for (uint8_t magic = 0; magic < 2; magic++) {
        s.bytes[16] = magic;
        ck_assert_int_eq(batch_read_header(s.bytes, s.count, &h), -BROOK_E_UNSUPPORTED_FORMAT);
        ck_assert_int_eq(batch_check_produced(s.bytes, 34, 100, &h, NULL), -BROOK_E_UNSUPPORTED_FORMAT);
    }
    s.bytes[16] = 3;
    ck_assert_int_eq(produced(&s), -BROOK_E_BAD_BATCH);
}
END_TEST

START_TEST(offsets_beyond_64_bits_are_refused)
{
    struct batch_header h;
    struct sample s = sample(GOLDEN_PLAIN);
    batch_patch(s.bytes, -1, 0);
    ck_assert_int_eq(batch_read_header(s.bytes, s.count, &h), -BROOK_E_BAD_BATCH);
    batch_patch(s.bytes, INT64_MAX - 1, 0);
    ck_assert_int_eq(batch_read_header(s.bytes, s.count, &h), -BROOK_E_BAD_BATCH);
    batch_patch(s.bytes, INT64_MAX - 2, 0);
    ck_assert_int_eq(batch_read_header(s.bytes, s.count, &h), 0);
    ck_assert_int_eq(batch_last_offset(&h), INT64_MAX - 1);
}
END_TEST

START_TEST(patch_leaves_the_checksum_right)
{
    struct sample s = sample(GOLDEN_PLAIN);
    batch_patch(s.bytes, 123456789012345, 77);
    struct batch_header h;
    ck_assert_int_eq(batch_read_header(s.bytes, s.count, &h), 0);
    ck_assert_int_eq(h.base_offset, 123456789012345);
    ck_assert_int_eq(h.leader_epoch, 77);
    ck_assert_int_eq(batch_check_crc(s.bytes, &h), 0);
}
END_TEST

START_TEST(good_batches_may_be_produced)
{
    static const char *const hex[] = {GOLDEN_PLAIN, GOLDEN_GZIP, GOLDEN_SNAPPY,
                                      GOLDEN_LZ4,   GOLDEN_ZSTD, GOLDEN_IDEMPOTENT};
    for (unsigned i = 0; i < 6; i++) {
        struct sample s = sample(hex[i]);
        ck_assert_int_eq(produced(&s), 0);
    }
}
END_TEST

START_TEST(attributes_that_are_the_brokers_are_refused)
{
    ck_assert_int_eq(PRODUCED_WITH(h->attributes = 0), 0);
    ck_assert_int_eq(PRODUCED_WITH(h->attributes = BATCH_LOG_APPEND_TIME), -BROOK_E_BAD_BATCH);
    ck_assert_int_eq(PRODUCED_WITH(h->attributes = BATCH_TRANSACTIONAL), -BROOK_E_BAD_BATCH);
    ck_assert_int_eq(PRODUCED_WITH(h->attributes = BATCH_CONTROL), -BROOK_E_BAD_BATCH);
    ck_assert_int_eq(PRODUCED_WITH(h->attributes = BATCH_DELETE_HORIZON), -BROOK_E_BAD_BATCH);
    for (int bit = 7; bit < 16; bit++)
        ck_assert_int_eq(PRODUCED_WITH(h->attributes = (int16_t)(1 << bit)), -BROOK_E_BAD_BATCH);
    for (int16_t codec = 5; codec < 8; codec++)
        ck_assert_int_eq(PRODUCED_WITH(h->attributes = codec), -BROOK_E_UNSUPPORTED_CODEC);
}
END_TEST

START_TEST(counts_that_contradict_are_refused)
{
    ck_assert_int_eq(PRODUCED_WITH(h->records_count = 0), -BROOK_E_BAD_BATCH);
    ck_assert_int_eq(PRODUCED_WITH(h->records_count = -1), -BROOK_E_BAD_BATCH);
    ck_assert_int_eq(PRODUCED_WITH(h->last_offset_delta = 1), -BROOK_E_BAD_BATCH);
    ck_assert_int_eq(PRODUCED_WITH(h->last_offset_delta = -1), -BROOK_E_BAD_BATCH);
    ck_assert_int_eq(PRODUCED_WITH(h->records_count = 2), -BROOK_E_BAD_BATCH);
    /* 9 bytes can not hold two records, unless they are compressed. */
    ck_assert_int_eq(PRODUCED_WITH(h->records_count = 2; h->last_offset_delta = 1), -BROOK_E_BAD_BATCH);
    ck_assert_int_eq(
        PRODUCED_WITH(h->records_count = 2; h->last_offset_delta = 1; h->attributes = CODEC_ZSTD), 0);
    ck_assert_int_eq(PRODUCED_WITH(h->records_count = BATCH_RECORDS_MAX;
                                   h->last_offset_delta = BATCH_RECORDS_MAX - 1; h->attributes = CODEC_ZSTD),
                     0);
    ck_assert_int_eq(PRODUCED_WITH(h->records_count = BATCH_RECORDS_MAX + 1;
                                   h->last_offset_delta = BATCH_RECORDS_MAX; h->attributes = CODEC_ZSTD),
                     -BROOK_E_BAD_BATCH);
}
END_TEST

START_TEST(producer_id_epoch_and_sequence_go_together)
{
    ck_assert_int_eq(PRODUCED_WITH(h->producer_id = -1), -BROOK_E_BAD_BATCH);
    ck_assert_int_eq(PRODUCED_WITH(h->producer_id = -2), -BROOK_E_BAD_BATCH);
    ck_assert_int_eq(PRODUCED_WITH(h->producer_epoch = -1), -BROOK_E_BAD_BATCH);
    ck_assert_int_eq(PRODUCED_WITH(h->base_sequence = -1), -BROOK_E_BAD_BATCH);
    ck_assert_int_eq(PRODUCED_WITH(h->producer_id = -1; h->producer_epoch = -1; h->base_sequence = -1), 0);
}
END_TEST

START_TEST(batch_larger_than_allowed_is_refused_before_its_bytes_are_read)
{
    struct sample s = sample(GOLDEN_PLAIN);
    struct batch_header h;
    ck_assert_int_eq(batch_check_produced(s.bytes, s.count, s.count, &h, NULL), 0);
    ck_assert_int_eq(batch_check_produced(s.bytes, s.count, s.count - 1, &h, NULL),
                     -BROOK_E_MESSAGE_TOO_LARGE);
    ck_assert_int_eq(batch_check_produced(s.bytes, 61, s.count - 1, &h, NULL), -BROOK_E_MESSAGE_TOO_LARGE);
}
END_TEST

/* Behind the length the checksum covers all but the leader epoch and itself. */
START_TEST(every_changed_byte_is_noticed)
{
    struct sample good = sample(GOLDEN_PLAIN);
    for (size_t at = 0; at < good.count; at++)
        for (int change = 1; change < 256; change++) {
            struct sample s = good;
            s.bytes[at] ^= (uint8_t)change;
            int r = produced(&s);
            if (at >= 17)
                ck_assert_int_eq(r, -BROOK_E_CORRUPT_BATCH);
            else if (at >= 8 && (at < 12 || at >= 16))
                ck_assert_int_lt(r, 0);
        }
}
END_TEST

SUITE_MAIN("record/batch", SUITE_TEST(header_is_read_field_by_field),
           SUITE_TEST(every_truncation_asks_for_more), SUITE_TEST(bytes_that_are_no_batch_are_refused),
           SUITE_TEST(old_formats_are_named_so_even_when_shorter_than_a_header),
           SUITE_TEST(offsets_beyond_64_bits_are_refused), SUITE_TEST(patch_leaves_the_checksum_right),
           SUITE_TEST(good_batches_may_be_produced), SUITE_TEST(attributes_that_are_the_brokers_are_refused),
           SUITE_TEST(counts_that_contradict_are_refused),
           SUITE_TEST(producer_id_epoch_and_sequence_go_together),
           SUITE_TEST(batch_larger_than_allowed_is_refused_before_its_bytes_are_read),
           SUITE_TEST(every_changed_byte_is_noticed))
