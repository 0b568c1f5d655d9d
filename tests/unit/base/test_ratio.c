#include "proto/base/ratio.h"

#include "tests/support/suite.h"

#include <string.h>

START_TEST(ratios_are_read_and_written)
{
    static const struct {
        const char *text;
        int32_t ppm;
        const char *written;
    } cases[] = {{"0", 0, "0.0"},          {"1", 1000000, "1.0"},         {"0.5", 500000, "0.5"},
                 {"0.50", 500000, "0.5"},  {"0.123456", 123456, "0.123456"}, {"0.000001", 1, "0.000001"},
                 {"1.000000", 1000000, "1.0"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int32_t ppm = -1;
        char text[RATIO_TEXT_BYTES];
        ck_assert(ratio_parse(cases[i].text, &ppm));
        ck_assert_int_eq(ppm, cases[i].ppm);
        ratio_format(ppm, text);
        ck_assert_str_eq(text, cases[i].written);
    }
}
END_TEST

START_TEST(what_is_no_ratio_is_refused)
{
    static const char *const bad[] = {"", "2", "1.1", "1.000001", "-0", "0.", ".5", "0.1234567", "0.5 ", " 0.5",
                                      "0,5", "0.5e1", "00.5"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int32_t ppm = 7;
        ck_assert_msg(!ratio_parse(bad[i], &ppm), "\"%s\" is taken", bad[i]);
        ck_assert_int_eq(ppm, 7);
    }
}
END_TEST

SUITE_MAIN("base/ratio", SUITE_TEST(ratios_are_read_and_written), SUITE_TEST(what_is_no_ratio_is_refused))
