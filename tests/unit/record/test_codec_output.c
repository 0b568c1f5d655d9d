#include "tests/support/suite.h"

#include "proto/base/err.h"
#include "proto/record/codec_output.h"

#include <string.h>

static void fill(struct codec_output *out, size_t bytes)
{
    while (bytes > 0) {
        uint8_t *at;
        size_t room;
        ck_assert_int_eq(codec_output_room(out, 1, &at, &room), 0);
        ck_assert_uint_gt(room, 0);
        size_t n = room < bytes ? room : bytes;
        memset(at, 7, n);
        ck_assert_int_eq(codec_output_wrote(out, n), 0);
        bytes -= n;
    }
}

static void use(struct codec_buffer *buffer, size_t bytes)
{
    struct codec_output out;
    codec_output_init(&out, buffer, (size_t)1 << 30);
    fill(&out, bytes);
    ck_assert_uint_eq(out.bytes, bytes);
    codec_output_done(&out);
}

START_TEST(at_the_limit_one_byte_more_is_an_error)
{
    struct codec_buffer buffer = {0};
    struct codec_output out;
    uint8_t *at;
    size_t room;
    codec_output_init(&out, &buffer, 100000);
    fill(&out, 100000);
    ck_assert_uint_le(buffer.capacity, 100000);
    ck_assert_int_eq(codec_output_room(&out, 1, &at, &room), 0);
    ck_assert_uint_gt(room, 0);
    memset(at, 0, room);
    ck_assert_int_eq(codec_output_wrote(&out, 0), 0);
    ck_assert_int_eq(codec_output_wrote(&out, 1), -BROOK_E_EXPANDS_TOO_FAR);
    ck_assert_int_eq(codec_output_reserve(&out, 0), 0);
    ck_assert_int_eq(codec_output_reserve(&out, 1), -BROOK_E_EXPANDS_TOO_FAR);
    codec_buffer_done(&buffer);
}
END_TEST

START_TEST(fixed_room_never_grows)
{
    uint8_t room_of_ten[10];
    struct codec_output out;
    uint8_t *at;
    size_t room;
    codec_output_init_fixed(&out, room_of_ten, sizeof room_of_ten);
    ck_assert_int_eq(codec_output_room(&out, 1000, &at, &room), 0);
    ck_assert_ptr_eq(at, room_of_ten);
    ck_assert_uint_eq(room, 10);
    ck_assert_int_eq(codec_output_reserve(&out, 11), -BROOK_E_EXPANDS_TOO_FAR);
    ck_assert_int_eq(codec_output_wrote(&out, 10), 0);
    ck_assert_int_eq(codec_output_room(&out, 1000, &at, &room), 0);
    ck_assert(at < room_of_ten || at >= room_of_ten + 10);
}
END_TEST

START_TEST(growing_keeps_what_was_written)
{
    struct codec_buffer buffer = {0};
    struct codec_output out;
    codec_output_init(&out, &buffer, 1 << 24);
    for (int i = 0; i < 100; i++) {
        ck_assert_int_eq(codec_output_reserve(&out, 100000), 0);
        memset(out.data + out.bytes, i, 100000);
        ck_assert_int_eq(codec_output_wrote(&out, 100000), 0);
    }
    for (int i = 0; i < 100; i++)
        for (int j = 0; j < 100000; j += 99999)
            ck_assert_int_eq(out.data[i * 100000 + j], i);
    codec_buffer_done(&buffer);
}
END_TEST

START_TEST(buffer_stays_in_place_from_use_to_use)
{
    struct codec_buffer buffer = {0};
    use(&buffer, 1 << 20);
    const uint8_t *data = buffer.data;
    for (int i = 0; i < 1000; i++) {
        use(&buffer, 1000);
        ck_assert_ptr_eq(buffer.data, data);
    }
    codec_buffer_done(&buffer);
}
END_TEST

START_TEST(huge_buffer_is_given_back_when_it_is_little_used)
{
    struct codec_buffer buffer = {0};
    use(&buffer, 32 << 20);
    ck_assert_uint_ge(buffer.capacity, 32 << 20);
    for (int i = 0; i < 200; i++)
        use(&buffer, 1000);
    ck_assert_uint_le(buffer.capacity, 1 << 20);
    codec_buffer_done(&buffer);
}
END_TEST

START_TEST(huge_buffer_that_is_used_now_and_then_stays)
{
    struct codec_buffer buffer = {0};
    for (int i = 0; i < 400; i++) {
        use(&buffer, i % 50 == 0 ? 32 << 20 : 1000);
        ck_assert_uint_ge(buffer.capacity, 32 << 20);
    }
    codec_buffer_done(&buffer);
}
END_TEST

START_TEST(a_smaller_limit_holds_in_a_larger_buffer)
{
    struct codec_buffer buffer = {0};
    struct codec_output out;
    uint8_t *at;
    size_t room;
    use(&buffer, 1 << 20);
    codec_output_init(&out, &buffer, 10);
    ck_assert_int_eq(codec_output_room(&out, 1000, &at, &room), 0);
    ck_assert_uint_eq(room, 10);
    codec_buffer_done(&buffer);
}
END_TEST

SUITE_MAIN("record/codec_output", SUITE_TEST(at_the_limit_one_byte_more_is_an_error),
           SUITE_TEST(fixed_room_never_grows), SUITE_TEST(growing_keeps_what_was_written),
           SUITE_TEST(buffer_stays_in_place_from_use_to_use),
           SUITE_TEST(huge_buffer_is_given_back_when_it_is_little_used),
           SUITE_TEST(huge_buffer_that_is_used_now_and_then_stays),
           SUITE_TEST(a_smaller_limit_holds_in_a_larger_buffer))
