#include "proto/base/err.h"
#include "proto/wire/frame.h"
#include "tests/support/suite.h"

#include <string.h>

static int parse(const char *bytes, size_t count, struct frame_prefix *ret)
{
    struct brook_error error;
    return frame_parse(bytes, count, 1000, 500, ret, &error);
}

START_TEST(a_written_prefix_is_read_back)
{
    uint8_t bytes[FRAME_PREFIX_BYTES];
    struct frame_prefix p;
    frame_write_prefix(bytes, 100, 200);
    ck_assert_int_eq(frame_parse(bytes, sizeof bytes, 1000, 500, &p, NULL), 0);
    ck_assert_uint_eq(p.frame_bytes, 304);
    ck_assert_uint_eq(p.envelope_bytes, 100);
    ck_assert_uint_eq(p.records_bytes, 200);
}
END_TEST

START_TEST(a_prefix_is_waited_for_but_a_wrong_length_is_not)
{
    struct frame_prefix p;
    ck_assert_int_eq(parse("\0\0\0", 3, &p), -BROOK_E_AGAIN);
    ck_assert_int_eq(parse("\0\0\0\x10\0\0\0", 7, &p), -BROOK_E_AGAIN);
    ck_assert_int_eq(parse("\0\0\3\xe9", 4, &p), -BROOK_E_FRAME_TOO_LARGE);
    ck_assert_int_eq(parse("\0\0\0\3", 4, &p), -BROOK_E_BAD_FRAME);
    ck_assert_int_eq(parse("GET ", 4, &p), -BROOK_E_FRAME_TOO_LARGE);
    ck_assert_int_eq(parse("\xff\xff\xff\xff", 4, &p), -BROOK_E_FRAME_TOO_LARGE);
}
END_TEST

START_TEST(limits_are_exact)
{
    struct frame_prefix p;
    ck_assert_int_eq(parse("\0\0\3\xe8\0\0\1\xf4", 8, &p), 0);
    ck_assert_int_eq(parse("\0\0\3\xe8\0\0\1\xf5", 8, &p), -BROOK_E_FRAME_TOO_LARGE);
    ck_assert_int_eq(parse("\0\0\0\4\0\0\0\0", 8, &p), 0);
    ck_assert_int_eq(parse("\0\0\0\4\0\0\0\1", 8, &p), -BROOK_E_BAD_FRAME);
    ck_assert_int_eq(parse("\0\0\0\x10\xff\xff\xff\xff", 8, &p), -BROOK_E_BAD_FRAME);
    /* 4 + envelope does not wrap to a small sum. */
    uint8_t wrap[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfc};
    ck_assert_int_eq(frame_parse(wrap, 8, UINT32_MAX, UINT32_MAX, &p, NULL), -BROOK_E_BAD_FRAME);
}
END_TEST

START_TEST(strangers_are_recognised)
{
    ck_assert_int_eq(frame_recognise("GET / HTTP/1.1\r\n", 16), FRAME_HTTP);
    ck_assert_int_eq(frame_recognise("HTTP/1.1 400 Bad", 16), FRAME_HTTP);
    ck_assert_int_eq(frame_recognise("POST /x", 7), FRAME_HTTP);
    ck_assert_int_eq(frame_recognise("\x16\x03\x01\x02\x00\x01", 6), FRAME_TLS);
    ck_assert_int_eq(frame_recognise("\x15\x03\x03\x00\x02\x02", 6), FRAME_TLS);
    /* ApiVersions 3 as librdkafka sends it first; Metadata 4. */
    ck_assert_int_eq(frame_recognise("\0\0\0\x2b\0\x12\0\x03\0\0\0\x01", 12), FRAME_KAFKA);
    ck_assert_int_eq(frame_recognise("\0\0\0\x1b\0\x03\0\x04\0\0\0\x01", 12), FRAME_KAFKA);
    ck_assert_int_eq(frame_recognise("SSH-2.0-OpenSSH", 15), FRAME_UNKNOWN);
    ck_assert_int_eq(frame_recognise("\0\0\0\0", 4), FRAME_UNKNOWN);
    ck_assert_int_eq(frame_recognise("\0\0\x10\1", 4), FRAME_UNKNOWN);
    ck_assert_int_eq(frame_recognise("\0\0\0\x20\0\0\0\x1c", 8), FRAME_BROOK);
    ck_assert_int_eq(frame_recognise("\0\0\x10\0", 4), FRAME_BROOK);
}
END_TEST

SUITE_MAIN("wire/frame", SUITE_TEST(a_written_prefix_is_read_back),
           SUITE_TEST(a_prefix_is_waited_for_but_a_wrong_length_is_not), SUITE_TEST(limits_are_exact),
           SUITE_TEST(strangers_are_recognised))
