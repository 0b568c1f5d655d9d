#include "tests/support/suite.h"

#include "proto/record/crc32c.h"

/* Bit by bit, as the polynomial says. */
static uint32_t slow_crc32c(uint32_t crc, const uint8_t *data, size_t bytes)
{
    crc = ~crc;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

START_TEST(check_value_is_right)
{
    ck_assert_uint_eq(crc32c(0, "123456789", 9), 0xe3069283u);
    ck_assert_uint_eq(crc32c(0, "", 0), 0);
    ck_assert_uint_eq(crc32c(0, NULL, 0), 0);
    ck_assert_uint_eq(crc32c(0x12345678, NULL, 0), 0x12345678);
}
END_TEST

START_TEST(every_length_and_alignment_equals_the_polynomial)
{
    uint64_t state = suite_seed();
    uint8_t data[1100];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)suite_random(&state);
    for (size_t start = 0; start < 17; start++)
        for (size_t bytes = 0; bytes <= 1024; bytes += bytes < 300 ? 1 : 61)
            ck_assert_uint_eq(crc32c(0, data + start, bytes), slow_crc32c(0, data + start, bytes));
}
END_TEST

START_TEST(sum_continues_where_it_stopped)
{
    uint8_t data[500];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 31);
    uint32_t whole = crc32c(0, data, sizeof data);
    for (size_t cut = 0; cut <= sizeof data; cut++)
        ck_assert_uint_eq(crc32c(crc32c(0, data, cut), data + cut, sizeof data - cut), whole);
}
END_TEST

SUITE_MAIN("record/crc32c", SUITE_TEST(check_value_is_right),
           SUITE_TEST(every_length_and_alignment_equals_the_polynomial),
           SUITE_TEST(sum_continues_where_it_stopped))
