#include "client/consumer_slot.h"
#include "proto/base/err.h"
#include "tests/support/suite.h"

#include <brook/types.h>

static const int codes[] = {
#define X(number, name, advice, text) (number),
    BROOK_ERRORS(X)
#undef X
    99, 777};
#define CODES (sizeof codes / sizeof codes[0])

START_TEST(one_is_in_flight_and_the_newest_waits)
{
    struct commit_slot s;
    commit_slot_init(&s, true, BROOK_OFFSET_NONE, 3);
    uint64_t a = commit_slot_want(&s, 10);
    commit_slot_begin(&s);
    uint64_t b = commit_slot_want(&s, 20), c = commit_slot_want(&s, 15);
    ck_assert(!commit_slot_has_work(&s));
    ck_assert_int_eq(commit_slot_end(&s, 0, 4), COMMIT_DONE);
    int code = -1;
    ck_assert(commit_slot_has_ended(&s, a, &code) && code == 0);
    ck_assert(!commit_slot_has_ended(&s, b, &code));
    ck_assert(commit_slot_has_work(&s));
    commit_slot_begin(&s);
    ck_assert_int_eq(s.sent, 15); /* a rewind that was asked for last wins */
    ck_assert_int_eq(s.version, 4);
    commit_slot_end(&s, 0, 5);
    ck_assert(commit_slot_has_ended(&s, b, &code) && commit_slot_has_ended(&s, c, &code));
    ck_assert(!commit_slot_is_busy(&s));
}
END_TEST

START_TEST(unchanged_values_are_not_written)
{
    struct commit_slot s;
    commit_slot_init(&s, false, 10, -1);
    ck_assert_uint_eq(commit_slot_want(&s, 10), 0);
    ck_assert(!commit_slot_is_busy(&s));
    ck_assert_uint_ne(commit_slot_want(&s, 11), 0);
    ck_assert_uint_ne(commit_slot_want(&s, 10), 0); /* takes the other's place */
}
END_TEST

START_TEST(a_retry_never_replaces_a_newer_value)
{
    struct commit_slot s;
    commit_slot_init(&s, true, BROOK_OFFSET_NONE, 0);
    commit_slot_want(&s, 10);
    commit_slot_begin(&s);
    commit_slot_want(&s, 20);
    ck_assert_int_eq(commit_slot_end(&s, BROOK_E_COORDINATION_LOST, -1), COMMIT_AGAIN);
    commit_slot_begin(&s);
    ck_assert_int_eq(s.sent, 20);
}
END_TEST

START_TEST(every_code_of_an_owner_ends_retries_or_is_found_out)
{
    for (size_t i = 0; i < CODES; i++) {
        struct commit_slot s;
        commit_slot_init(&s, true, BROOK_OFFSET_NONE, 0);
        uint64_t number = commit_slot_want(&s, 10);
        commit_slot_begin(&s);
        enum commit_verdict verdict = commit_slot_end(&s, -codes[i], 1);
        enum brook_advice advice = brook_error_advice(codes[i]);
        int code = -1;
        bool ended = commit_slot_has_ended(&s, number, &code);
        ck_assert(ended == (verdict == COMMIT_DONE || verdict == COMMIT_FAILED));
        ck_assert((s.stored == 10) == (codes[i] == 0));
        if (advice == BROOK_ADVICE_UNKNOWN || advice == BROOK_ADVICE_FENCED)
            ck_assert_int_eq(verdict, COMMIT_RESOLVE);
        if (advice == BROOK_ADVICE_FIX || advice == BROOK_ADVICE_FATAL)
            ck_assert(verdict == COMMIT_FAILED && code == codes[i]);
    }
}
END_TEST

START_TEST(without_an_owner_nothing_needs_to_be_found_out)
{
    for (size_t i = 0; i < CODES; i++) {
        struct commit_slot s;
        commit_slot_init(&s, false, BROOK_OFFSET_NONE, -1);
        commit_slot_want(&s, 10);
        commit_slot_begin(&s);
        ck_assert_int_ne(commit_slot_end(&s, codes[i], -1), COMMIT_RESOLVE);
    }
}
END_TEST

START_TEST(what_was_found_out_decides)
{
    struct commit_slot s;
    int code;
    commit_slot_init(&s, true, 5, 7);
    uint64_t number = commit_slot_want(&s, 10);
    commit_slot_begin(&s);
    commit_slot_end(&s, BROOK_E_DISCONNECTED, -1);
    ck_assert(!commit_slot_has_work(&s)); /* nothing is sent meanwhile */
    ck_assert_int_eq(commit_slot_resolved(&s, 5, 7), COMMIT_AGAIN);
    commit_slot_begin(&s);
    ck_assert_int_eq(s.sent, 10);
    commit_slot_end(&s, BROOK_E_DISCONNECTED, -1);
    ck_assert_int_eq(commit_slot_resolved(&s, 10, 8), COMMIT_DONE);
    ck_assert(commit_slot_has_ended(&s, number, &code) && code == 0);
    ck_assert_int_eq(s.version, 8);
}
END_TEST

START_TEST(abandoned_values_end_with_the_reason)
{
    struct commit_slot s;
    int code;
    commit_slot_init(&s, true, 5, 7);
    uint64_t a = commit_slot_want(&s, 10);
    commit_slot_begin(&s);
    uint64_t b = commit_slot_want(&s, 20);
    commit_slot_abandon(&s, BROOK_E_FENCED);
    ck_assert(commit_slot_has_ended(&s, a, &code) && code == BROOK_E_FENCED);
    ck_assert(commit_slot_has_ended(&s, b, &code) && code == BROOK_E_FENCED);
    ck_assert(!commit_slot_is_busy(&s));
}
END_TEST

SUITE_MAIN("client/consumer_slot", SUITE_TEST(one_is_in_flight_and_the_newest_waits),
           SUITE_TEST(unchanged_values_are_not_written), SUITE_TEST(a_retry_never_replaces_a_newer_value),
           SUITE_TEST(every_code_of_an_owner_ends_retries_or_is_found_out),
           SUITE_TEST(without_an_owner_nothing_needs_to_be_found_out), SUITE_TEST(what_was_found_out_decides),
           SUITE_TEST(abandoned_values_end_with_the_reason))
