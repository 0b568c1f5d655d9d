#include "client/consumer_position.h"
#include "proto/base/err.h"
#include "tests/support/suite.h"

#include <brook/types.h>

static const int codes[] = {
#define X(number, name, advice, text) (number),
    BROOK_ERRORS(X)
#undef X
        2,
    99, 100, 777, 100000};
#define CODES (sizeof codes / sizeof codes[0])

static struct consumer_position at(enum reset_policy reset, int64_t offset)
{
    struct consumer_position p;
    position_start(&p, reset, offset);
    return p;
}

START_TEST(a_number_is_known_at_once)
{
    struct consumer_position p = at(RESET_NONE, 0);
    ck_assert_int_eq(p.phase, POSITION_KNOWN);
    ck_assert_int_eq(p.offset, 0);
    ck_assert(position_is_due(&p, 0));
}
END_TEST

START_TEST(no_pull_error_but_out_of_range_by_the_leader_moves_the_position)
{
    for (size_t i = 0; i < CODES; i++) {
        if (codes[i] == 0)
            continue;
        struct consumer_position p = at(RESET_EARLIEST, 42);
        struct position_effects e = position_on_pull_error(&p, -codes[i], true, 1000);
        if (codes[i] == BROOK_E_OFFSET_OUT_OF_RANGE) {
            ck_assert_int_eq(p.phase, POSITION_ASK_LOG);
            ck_assert(e.was_reset);
            continue;
        }
        ck_assert_int_eq(p.phase, POSITION_KNOWN);
        ck_assert_int_eq(p.offset, 42);
        ck_assert(!e.was_reset);
        ck_assert(!position_is_due(&p, 1000));
        ck_assert(position_is_due(&p, 1000 + POSITION_BACKOFF_MS_MAX));
    }
}
END_TEST

START_TEST(out_of_range_by_another_than_the_leader_is_no_fact)
{
    struct consumer_position p = at(RESET_EARLIEST, 42);
    struct position_effects e = position_on_pull_error(&p, BROOK_E_OFFSET_OUT_OF_RANGE, false, 0);
    ck_assert_int_eq(p.phase, POSITION_KNOWN);
    ck_assert_int_eq(p.offset, 42);
    ck_assert(e.refresh && !e.was_reset && e.report == 0);
}
END_TEST

START_TEST(no_answer_about_the_stored_offset_but_none_resets)
{
    for (size_t i = 0; i < CODES; i++) {
        struct consumer_position p = at(RESET_EARLIEST, BROOK_OFFSET_STORED);
        position_on_stored(&p, codes[i], codes[i] == 0 ? 7 : BROOK_OFFSET_NONE, 0);
        if (codes[i] == 0) {
            ck_assert_int_eq(p.offset, 7);
        } else if (codes[i] == BROOK_E_NO_OFFSET) {
            ck_assert_int_eq(p.phase, POSITION_ASK_LOG);
        } else {
            ck_assert_int_eq(p.phase, POSITION_ASK_STORED);
            ck_assert(!position_is_due(&p, 0));
        }
    }
    struct consumer_position p = at(RESET_LATEST, BROOK_OFFSET_STORED);
    position_on_stored(&p, 0, BROOK_OFFSET_NONE, 0);
    ck_assert_int_eq(p.phase, POSITION_ASK_LOG);
    ck_assert_int_eq(p.query, BROOK_OFFSET_LATEST);
}
END_TEST

START_TEST(failures_to_list_the_log_are_tried_again)
{
    for (size_t i = 0; i < CODES; i++) {
        struct consumer_position p = at(RESET_NONE, BROOK_OFFSET_LATEST);
        position_on_log(&p, codes[i], codes[i] == 0 ? 9 : -1, 0);
        ck_assert_int_eq(p.phase, codes[i] == 0 ? POSITION_KNOWN : POSITION_ASK_LOG);
    }
    struct consumer_position p = at(RESET_NONE, BROOK_OFFSET_LATEST);
    position_on_log(&p, 0, -1, 0); /* success without a number is none */
    ck_assert_int_eq(p.phase, POSITION_ASK_LOG);
}
END_TEST

START_TEST(reset_none_reports_and_waits_for_a_seek)
{
    struct consumer_position p = at(RESET_NONE, 42);
    struct position_effects e = position_on_pull_error(&p, BROOK_E_OFFSET_OUT_OF_RANGE, true, 0);
    ck_assert_int_eq(e.report, BROOK_E_OFFSET_OUT_OF_RANGE);
    ck_assert_int_eq(p.phase, POSITION_STUCK);
    ck_assert_int_eq(p.offset, 42);
    ck_assert(!position_is_due(&p, INT64_MAX));

    e = position_start(&p, RESET_NONE, BROOK_OFFSET_NONE);
    ck_assert_int_eq(e.report, BROOK_E_NO_OFFSET);
    ck_assert_int_eq(p.phase, POSITION_STUCK);
}
END_TEST

START_TEST(lasting_trouble_is_told_once_and_again_after_it_was_over)
{
    struct consumer_position p = at(RESET_NONE, 42);
    ck_assert_int_eq(position_on_pull_error(&p, BROOK_E_ACCESS_DENIED, true, 0).report,
                     BROOK_E_ACCESS_DENIED);
    ck_assert_int_eq(position_on_pull_error(&p, BROOK_E_ACCESS_DENIED, true, 0).report, 0);
    position_on_records(&p, 42);
    ck_assert_int_eq(position_on_pull_error(&p, BROOK_E_ACCESS_DENIED, true, 0).report,
                     BROOK_E_ACCESS_DENIED);
}
END_TEST

START_TEST(an_unknown_topic_is_told_only_when_it_stays_unknown)
{
    struct consumer_position p = at(RESET_NONE, 42);
    int told = 0;
    for (int i = 0; i < 10; i++)
        told += position_on_pull_error(&p, BROOK_E_UNKNOWN_TOPIC, true, 0).report == BROOK_E_UNKNOWN_TOPIC;
    ck_assert_int_eq(told, 1);
}
END_TEST

START_TEST(damage_is_told_every_time_and_the_position_stays)
{
    struct consumer_position p = at(RESET_EARLIEST, 50);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(position_on_damage(&p, -BROOK_E_CORRUPT_BATCH, 45, 0).report, BROOK_E_CORRUPT_BATCH);
        ck_assert_int_eq(p.offset, 45);
        ck_assert(!position_is_due(&p, 0));
    }
}
END_TEST

START_TEST(records_that_are_gone_are_told_and_the_position_goes_back)
{
    struct consumer_position p;
    for (int policy = RESET_EARLIEST; policy <= RESET_NONE; policy++) {
        position_start(&p, (enum reset_policy)policy, 50);
        struct position_effects e = position_on_truncation(&p, 40);
        ck_assert_int_eq(e.report, BROOK_E_LOG_DIVERGED);
        ck_assert(!e.was_reset);
        ck_assert_int_eq(p.offset, 40);
        ck_assert_int_eq(p.phase, policy == RESET_NONE ? POSITION_STUCK : POSITION_KNOWN);
    }
}
END_TEST

START_TEST(pauses_grow_up_to_the_limit)
{
    struct consumer_position p = at(RESET_EARLIEST, 50);
    int64_t before = 0;
    for (int i = 0; i < 40; i++) {
        position_on_silence(&p, 0);
        ck_assert_int_ge(p.not_before_ms, before);
        ck_assert_int_le(p.not_before_ms, POSITION_BACKOFF_MS_MAX);
        before = p.not_before_ms;
    }
    ck_assert_int_eq(before, POSITION_BACKOFF_MS_MAX);
}
END_TEST

START_TEST(a_topic_made_anew_is_read_from_its_beginning)
{
    struct consumer_position p = at(RESET_LATEST, 50);
    position_topic_anew(&p);
    ck_assert_int_eq(p.phase, POSITION_ASK_LOG);
    ck_assert_int_eq(p.query, BROOK_OFFSET_EARLIEST);
    p = at(RESET_NONE, 50);
    ck_assert_int_eq(position_topic_anew(&p).report, BROOK_E_TOPIC_ID_MISMATCH);
    ck_assert_int_eq(p.phase, POSITION_STUCK);
}
END_TEST

SUITE_MAIN("client/consumer_position", SUITE_TEST(a_number_is_known_at_once),
           SUITE_TEST(no_pull_error_but_out_of_range_by_the_leader_moves_the_position),
           SUITE_TEST(out_of_range_by_another_than_the_leader_is_no_fact),
           SUITE_TEST(no_answer_about_the_stored_offset_but_none_resets),
           SUITE_TEST(failures_to_list_the_log_are_tried_again),
           SUITE_TEST(reset_none_reports_and_waits_for_a_seek),
           SUITE_TEST(lasting_trouble_is_told_once_and_again_after_it_was_over),
           SUITE_TEST(an_unknown_topic_is_told_only_when_it_stays_unknown),
           SUITE_TEST(damage_is_told_every_time_and_the_position_stays),
           SUITE_TEST(records_that_are_gone_are_told_and_the_position_goes_back),
           SUITE_TEST(pauses_grow_up_to_the_limit), SUITE_TEST(a_topic_made_anew_is_read_from_its_beginning))
