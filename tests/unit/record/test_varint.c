#include "tests/support/suite.h"

#include "proto/record/varint.h"

#include <string.h>

struct sample {
    int64_t value;
    const char *bytes;
    size_t count;
};
#define SAMPLE(value, bytes)                                                                                 \
    {                                                                                                        \
        value, bytes, sizeof bytes - 1                                                                       \
    }

static const struct sample ints[] = {
    SAMPLE(0, "\x00"),
    SAMPLE(-1, "\x01"),
    SAMPLE(1, "\x02"),
    SAMPLE(63, "\x7e"),
    SAMPLE(-64, "\x7f"),
    SAMPLE(64, "\x80\x01"),
    SAMPLE(-65, "\x81\x01"),
    SAMPLE(300, "\xd8\x04"),
    SAMPLE(8191, "\xfe\x7f"),
    SAMPLE(-8192, "\xff\x7f"),
    SAMPLE(8192, "\x80\x80\x01"),
    SAMPLE(1048575, "\xfe\xff\x7f"),
    SAMPLE(1048576, "\x80\x80\x80\x01"),
    SAMPLE(134217727, "\xfe\xff\xff\x7f"),
    SAMPLE(134217728, "\x80\x80\x80\x80\x01"),
    SAMPLE(INT32_MAX, "\xfe\xff\xff\xff\x0f"),
    SAMPLE(INT32_MIN, "\xff\xff\xff\xff\x0f"),
};

static const struct sample longs[] = {
    SAMPLE(2147483648, "\x80\x80\x80\x80\x10"),
    SAMPLE(-2147483649, "\x81\x80\x80\x80\x10"),
    SAMPLE(1700000000000, "\x80\xa0\xab\xfe\xf9\x62"),
    SAMPLE(INT64_MAX, "\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
    SAMPLE(INT64_MIN, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
};

static void assert_long(const struct sample *s)
{
    uint8_t buffer[VARLONG_BYTES_MAX];
    int64_t value;
    ck_assert_int_eq(varlong_write(buffer, s->value) - buffer, (int)s->count);
    ck_assert_mem_eq(buffer, s->bytes, s->count);
    ck_assert_uint_eq(varlong_bytes(s->value), s->count);
    ck_assert_ptr_eq(varlong_read(buffer, buffer + s->count, &value), buffer + s->count);
    ck_assert_int_eq(value, s->value);
    for (size_t cut = 0; cut < s->count; cut++)
        ck_assert_ptr_null(varlong_read(buffer, buffer + cut, &value));
}

START_TEST(ints_have_the_bytes_of_the_format)
{
    for (unsigned i = 0; i < sizeof ints / sizeof ints[0]; i++) {
        const struct sample *s = &ints[i];
        uint8_t buffer[VARINT_BYTES_MAX];
        int32_t value;
        ck_assert_int_eq(varint_write(buffer, (int32_t)s->value) - buffer, (int)s->count);
        ck_assert_mem_eq(buffer, s->bytes, s->count);
        ck_assert_uint_eq(varint_bytes((int32_t)s->value), s->count);
        ck_assert_ptr_eq(varint_read(buffer, buffer + s->count, &value), buffer + s->count);
        ck_assert_int_eq(value, s->value);
        for (size_t cut = 0; cut < s->count; cut++)
            ck_assert_ptr_null(varint_read(buffer, buffer + cut, &value));
        assert_long(s);
    }
}
END_TEST

START_TEST(longs_have_the_bytes_of_the_format)
{
    for (unsigned i = 0; i < sizeof longs / sizeof longs[0]; i++)
        assert_long(&longs[i]);
}
END_TEST

START_TEST(integers_too_long_or_too_large_are_refused)
{
    int32_t i;
    int64_t l;
    static const uint8_t six[] = {0x80, 0x80, 0x80, 0x80, 0x80, 0x00};
    static const uint8_t bit_33[] = {0xff, 0xff, 0xff, 0xff, 0x1f};
    static const uint8_t eleven[] = {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00};
    static const uint8_t bit_65[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02};
    ck_assert_ptr_null(varint_read(six, six + sizeof six, &i));
    ck_assert_ptr_null(varint_read(bit_33, bit_33 + sizeof bit_33, &i));
    ck_assert_ptr_null(varlong_read(eleven, eleven + sizeof eleven, &l));
    ck_assert_ptr_null(varlong_read(bit_65, bit_65 + sizeof bit_65, &l));
}
END_TEST

START_TEST(any_integer_comes_back)
{
    uint64_t state = suite_seed();
    for (int i = 0; i < 100000; i++) {
        uint64_t r = suite_random(&state);
        int64_t wanted = (int64_t)(r >> suite_random_below(&state, 64)), got;
        if (r & 1)
            wanted = -wanted;
        uint8_t buffer[VARLONG_BYTES_MAX];
        uint8_t *end = varlong_write(buffer, wanted);
        ck_assert_uint_eq((size_t)(end - buffer), varlong_bytes(wanted));
        ck_assert_ptr_eq(varlong_read(buffer, end, &got), end);
        ck_assert_int_eq(got, wanted);
        int32_t narrow = (int32_t)wanted, narrow_got;
        end = varint_write(buffer, narrow);
        ck_assert_uint_eq((size_t)(end - buffer), varint_bytes(narrow));
        ck_assert_ptr_eq(varint_read(buffer, end, &narrow_got), end);
        ck_assert_int_eq(narrow_got, narrow);
    }
}
END_TEST

SUITE_MAIN("record/varint", SUITE_TEST(ints_have_the_bytes_of_the_format),
           SUITE_TEST(longs_have_the_bytes_of_the_format),
           SUITE_TEST(integers_too_long_or_too_large_are_refused), SUITE_TEST(any_integer_comes_back))
