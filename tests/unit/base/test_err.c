#include "tests/support/suite.h"

#include "proto/base/err.h"

#include <ctype.h>
#include <limits.h>
#include <string.h>

struct entry {
    int number;
    const char *name, *text;
    enum brook_advice advice;
};
static const struct entry entries[] = {
#define X(number, name, advice, text) {number, #name, text, BROOK_ADVICE_##advice},
    BROOK_ERRORS(X)
#undef X
};
#define ENTRIES_COUNT ((int)(sizeof entries / sizeof entries[0]))

START_TEST(numbers_names_and_texts_are_unique)
{
    for (int i = 0; i < ENTRIES_COUNT; i++)
        for (int j = i + 1; j < ENTRIES_COUNT; j++) {
            ck_assert_int_ne(entries[i].number, entries[j].number);
            ck_assert_str_ne(entries[i].name, entries[j].name);
            ck_assert_str_ne(entries[i].text, entries[j].text);
        }
}
END_TEST

START_TEST(numbers_rise_and_texts_read_as_part_of_a_sentence)
{
    for (int i = 0; i < ENTRIES_COUNT; i++) {
        if (i > 0)
            ck_assert_int_gt(entries[i].number, entries[i - 1].number);
        size_t n = strlen(entries[i].text);
        ck_assert_uint_gt(n, 0);
        ck_assert(entries[i].text[n - 1] != '.' && entries[i].text[n - 1] != '\n');
        ck_assert(!isupper((unsigned char)entries[i].text[0]) ||
                  strncmp(entries[i].text, "ZooKeeper", 9) == 0);
    }
}
END_TEST

START_TEST(both_signs_answer_the_same)
{
    for (int i = 0; i < ENTRIES_COUNT; i++)
        for (int sign = -1; sign <= 1; sign += 2) {
            int code = sign * entries[i].number;
            ck_assert_str_eq(brook_error_name(code), entries[i].name);
            ck_assert_str_eq(brook_error_text(code), entries[i].text);
            ck_assert_int_eq(brook_error_advice(code), entries[i].advice);
        }
}
END_TEST

START_TEST(only_success_needs_no_advice)
{
    ck_assert_int_eq(BROOK_E_OK, 0);
    for (int i = 0; i < ENTRIES_COUNT; i++)
        ck_assert_int_eq(entries[i].advice == BROOK_ADVICE_NONE, entries[i].number == 0);
}
END_TEST

START_TEST(unknown_numbers_are_answered_by_range)
{
    static const struct {
        int code;
        enum brook_advice advice;
    } unknown[] = {{99, BROOK_ADVICE_FATAL},     {-99, BROOK_ADVICE_FATAL},  {16, BROOK_ADVICE_FATAL},
                   {102, BROOK_ADVICE_RETRY},    {-102, BROOK_ADVICE_RETRY}, {INT_MAX, BROOK_ADVICE_RETRY},
                   {INT_MIN, BROOK_ADVICE_RETRY}};
    for (unsigned i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        ck_assert_str_eq(brook_error_name(unknown[i].code), "UNKNOWN_ERROR");
        ck_assert_str_ne(brook_error_text(unknown[i].code), "");
        ck_assert_int_eq(brook_error_advice(unknown[i].code), unknown[i].advice);
    }
}
END_TEST

START_TEST(set_returns_the_negative_code_and_keeps_the_positive)
{
    struct brook_error e = {0};
    ck_assert_int_eq(brook_error_set(&e, BROOK_E_INVALID, "no %s %d", "topic", 3), -BROOK_E_INVALID);
    ck_assert_int_eq(e.code, BROOK_E_INVALID);
    ck_assert_str_eq(e.text, "no topic 3");
    ck_assert_int_eq(brook_error_set(&e, -BROOK_E_IO, "io"), -BROOK_E_IO);
    ck_assert_int_eq(e.code, BROOK_E_IO);
    ck_assert_int_eq(brook_error_set(NULL, BROOK_E_IO, "nowhere"), -BROOK_E_IO);
    ck_assert_int_lt(brook_error_set(&e, INT_MIN, "a peer's number"), 0);
    ck_assert_int_gt(e.code, 0);
}
END_TEST

START_TEST(too_long_sentence_is_cut)
{
    struct brook_error e;
    char text[2 * sizeof e.text];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    brook_error_set(&e, BROOK_E_IO, "%s", text);
    ck_assert_uint_eq(strlen(e.text), sizeof e.text - 1);
}
END_TEST

SUITE_MAIN("base/err", SUITE_TEST(numbers_names_and_texts_are_unique),
           SUITE_TEST(numbers_rise_and_texts_read_as_part_of_a_sentence),
           SUITE_TEST(both_signs_answer_the_same), SUITE_TEST(only_success_needs_no_advice),
           SUITE_TEST(unknown_numbers_are_answered_by_range),
           SUITE_TEST(set_returns_the_negative_code_and_keeps_the_positive),
           SUITE_TEST(too_long_sentence_is_cut))
