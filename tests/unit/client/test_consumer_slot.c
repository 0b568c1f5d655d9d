#include "client/consumer_slot.h"
#include "proto/base/err.h"
#include "tests/support/suite.h"

static const int codes[] = {
#define X(number, name, advice, text) (number),
    BROOK_ERRORS(X)
#undef X
        99,
    777};
#define CODES (sizeof codes / sizeof codes[0])

START_TEST(one_is_in_flight_and_the_newest_waits)
{
    struct commit_slot s;
    commit_slot_init(&s);
    uint64_t a = commit_slot_want(&s, 10);
    commit_slot_begin(&s);
    uint64_t b = commit_slot_want(&s, 20), c = commit_slot_want(&s, 15);
    ck_assert(!commit_slot_has_work(&s));
    ck_assert_int_eq(commit_slot_end(&s, 0), COMMIT_DONE);
    int code = -1;
    ck_assert(commit_slot_has_ended(&s, a, &code) && code == 0);
    ck_assert(!commit_slot_has_ended(&s, b, &code));
    ck_assert(commit_slot_has_work(&s));
    commit_slot_begin(&s);
    ck_assert_int_eq(s.sent, 15); /* a rewind that was asked for last wins */
    commit_slot_end(&s, 0);
    ck_assert(commit_slot_has_ended(&s, b, &code) && commit_slot_has_ended(&s, c, &code));
    ck_assert(!commit_slot_has_work(&s));
}
END_TEST

START_TEST(unchanged_values_are_not_written)
{
    struct commit_slot s;
    commit_slot_init(&s);
    ck_assert_uint_ne(commit_slot_want(&s, 10), 0);
    commit_slot_begin(&s);
    commit_slot_end(&s, 0);
    ck_assert_uint_eq(commit_slot_want(&s, 10), 0);
    ck_assert(!commit_slot_has_work(&s));
    ck_assert_uint_ne(commit_slot_want(&s, 11), 0);
    ck_assert_uint_ne(commit_slot_want(&s, 10), 0); /* takes the other's place */
    ck_assert_int_eq(s.waiting, 10);
}
END_TEST

START_TEST(zero_is_an_offset)
{
    struct commit_slot s;
    commit_slot_init(&s);
    ck_assert_uint_ne(commit_slot_want(&s, 0), 0);
    ck_assert(commit_slot_has_work(&s));
}
END_TEST

START_TEST(a_retry_never_replaces_a_newer_value)
{
    struct commit_slot s;
    commit_slot_init(&s);
    commit_slot_want(&s, 10);
    commit_slot_begin(&s);
    commit_slot_want(&s, 20);
    ck_assert_int_eq(commit_slot_end(&s, BROOK_E_COORDINATION_LOST), COMMIT_AGAIN);
    commit_slot_begin(&s);
    ck_assert_int_eq(s.sent, 20);
}
END_TEST

START_TEST(every_code_ends_the_value_or_keeps_it_waiting)
{
    for (size_t i = 0; i < CODES; i++) {
        struct commit_slot s;
        commit_slot_init(&s);
        uint64_t number = commit_slot_want(&s, 10);
        commit_slot_begin(&s);
        enum commit_verdict verdict = commit_slot_end(&s, -codes[i]);
        enum brook_advice advice = brook_error_advice(codes[i]);
        int code = -1;
        ck_assert(commit_slot_has_ended(&s, number, &code) == (verdict != COMMIT_AGAIN));
        ck_assert(commit_slot_has_work(&s) == (verdict == COMMIT_AGAIN));
        ck_assert((s.stored == 10) == (codes[i] == 0));
        if (advice == BROOK_ADVICE_FIX || advice == BROOK_ADVICE_FATAL || advice == BROOK_ADVICE_FENCED)
            ck_assert(verdict == COMMIT_FAILED && code == codes[i]);
    }
}
END_TEST

START_TEST(abandoned_values_end_with_the_reason)
{
    struct commit_slot s;
    int code;
    commit_slot_init(&s);
    uint64_t a = commit_slot_want(&s, 10);
    commit_slot_begin(&s);
    uint64_t b = commit_slot_want(&s, 20);
    commit_slot_abandon(&s, BROOK_E_CLOSED);
    ck_assert(commit_slot_has_ended(&s, a, &code) && code == BROOK_E_CLOSED);
    ck_assert(commit_slot_has_ended(&s, b, &code) && code == BROOK_E_CLOSED);
    ck_assert(!commit_slot_has_work(&s));
}
END_TEST

SUITE_MAIN("client/consumer_slot", SUITE_TEST(one_is_in_flight_and_the_newest_waits),
           SUITE_TEST(unchanged_values_are_not_written), SUITE_TEST(zero_is_an_offset),
           SUITE_TEST(a_retry_never_replaces_a_newer_value),
           SUITE_TEST(every_code_ends_the_value_or_keeps_it_waiting),
           SUITE_TEST(abandoned_values_end_with_the_reason))
