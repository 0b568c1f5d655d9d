#include "broker/replication/follower_state.h"
#include "tests/support/suite.h"

static struct follower_state f;

/* The leader's log and ours, as epochs; the leader answers the way a leader does. */
static void agree(const struct epoch_history *leader, const struct epoch_history *ours, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        ck_assert_int_eq(f.phase, FOLLOWER_ASK);
        struct epoch_end answer = epoch_history_end(leader, f.asked);
        ck_assert(follower_state_epoch_end(&f, ours, 9, f.asked, &answer));
    }
}

START_TEST(logs_that_part_are_cut_where_the_last_common_epoch_ends)
{
    /* leader: 1 [0,10) 3 [10,30) 7 [30,40); ours: 1 [0,10) 3 [10,20) 4 [20,25) 5 [25,50) */
    const struct epoch_entry theirs[] = {{1, 0}, {3, 10}, {7, 30}};
    const struct epoch_entry mine[] = {{1, 0}, {3, 10}, {4, 20}, {5, 25}};
    const struct epoch_history leader = {theirs, 3, 0, 40};
    struct epoch_history ours = {mine, 4, 0, 50};
    follower_state_init(&f);
    follower_state_begin(&f, 2, 9);
    ck_assert_int_eq(f.phase, FOLLOWER_PULL);
    follower_state_refused(&f, &ours, 9, -BROOK_E_LOG_DIVERGED, 0);
    agree(&leader, &ours, 1);
    ck_assert_int_eq(f.phase, FOLLOWER_CUT);
    ck_assert_int_eq(f.cut, 20);
    ck_assert(follower_state_cuts_committed(&f, 21));
    ck_assert(!follower_state_cuts_committed(&f, 20));
    ours = (struct epoch_history){mine, 2, 0, 20};
    follower_state_cut(&f, &ours);
    ck_assert_int_eq(f.phase, FOLLOWER_PULL);
}
END_TEST

START_TEST(question_goes_on_to_a_lower_epoch_until_both_have_it)
{
    /* leader: 1 [0,10) 4 [10,30); ours: 1 [0,15) 3 [15,20) 5 [20,22): asked 5 -> 4, ours below is 3 -> 1 */
    const struct epoch_entry theirs[] = {{1, 0}, {4, 10}};
    const struct epoch_entry mine[] = {{1, 0}, {3, 15}, {5, 20}};
    const struct epoch_history leader = {theirs, 2, 0, 30};
    const struct epoch_history ours = {mine, 3, 0, 22};
    follower_state_init(&f);
    follower_state_begin(&f, 2, 9);
    follower_state_refused(&f, &ours, 9, -BROOK_E_LOG_DIVERGED, 0);
    agree(&leader, &ours, 2);
    ck_assert_int_eq(f.phase, FOLLOWER_CUT);
    ck_assert_int_eq(f.cut, 10);
}
END_TEST

START_TEST(answers_of_another_epoch_or_question_change_nothing)
{
    const struct epoch_entry mine[] = {{1, 0}, {3, 15}};
    const struct epoch_history ours = {mine, 2, 0, 22};
    const struct epoch_end answer = {1, 10};
    follower_state_init(&f);
    follower_state_begin(&f, 2, 9);
    ck_assert(!follower_state_epoch_end(&f, &ours, 9, 3, &answer));
    follower_state_refused(&f, &ours, 8, -BROOK_E_LOG_DIVERGED, 0);
    ck_assert_int_eq(f.phase, FOLLOWER_PULL);
    follower_state_refused(&f, &ours, 9, -BROOK_E_LOG_DIVERGED, 0);
    ck_assert(!follower_state_epoch_end(&f, &ours, 8, 3, &answer));
    ck_assert(!follower_state_epoch_end(&f, &ours, 9, 1, &answer));
    ck_assert(!follower_state_may_append(&f, &ours, 9, 22));
    ck_assert(follower_state_epoch_end(&f, &ours, 9, 3, &answer));
    ck_assert_int_eq(f.cut, 10);
}
END_TEST

START_TEST(late_refusal_does_not_cut_what_this_leader_gave)
{
    const struct epoch_entry mine[] = {{1, 0}, {9, 15}};
    const struct epoch_history ours = {mine, 2, 0, 22};
    follower_state_init(&f);
    follower_state_begin(&f, 2, 9);
    follower_state_refused(&f, &ours, 9, -BROOK_E_LOG_DIVERGED, 0);
    ck_assert_int_eq(f.phase, FOLLOWER_PULL);
    ck_assert(follower_state_may_append(&f, &ours, 9, 22));
    ck_assert(!follower_state_may_append(&f, &ours, 9, 21));
    ck_assert(!follower_state_may_append(&f, &ours, 8, 22));
}
END_TEST

START_TEST(follower_below_the_leaders_start_goes_on_there_and_one_that_can_not_know_begins_anew)
{
    const struct epoch_entry mine[] = {{1, 0}};
    const struct epoch_history ours = {mine, 1, 0, 22}, empty = {NULL, 0, 50, 50};
    struct leader_pull pull;
    follower_state_init(&f);
    follower_state_begin(&f, 2, 9);
    follower_state_pull(&f, &ours, 3, 13, 22, 8, &pull);
    ck_assert_int_eq(pull.offset, 22);
    ck_assert_int_eq(pull.last_epoch, 1);
    follower_state_refused(&f, &ours, 9, -BROOK_E_OFFSET_OUT_OF_RANGE, 100);
    follower_state_pull(&f, &ours, 3, 13, 22, 8, &pull);
    ck_assert_int_eq(pull.offset, 100);
    ck_assert_int_eq(pull.safe_end, 100);
    follower_state_pull(&f, &ours, 3, 13, 20, 8, &pull);
    ck_assert_int_eq(pull.safe_end, 20);
    follower_state_init(&f);
    follower_state_begin(&f, 2, 9);
    follower_state_refused(&f, &empty, 9, -BROOK_E_LOG_DIVERGED, 0);
    ck_assert_int_eq(f.phase, FOLLOWER_CUT);
    ck_assert_int_eq(f.cut, 0);
}
END_TEST

START_TEST(follower_waits_for_a_newer_state_only_when_there_is_one)
{
    const struct epoch_history ours = {NULL, 0, 0, 0};
    follower_state_init(&f);
    follower_state_begin(&f, 2, 9);
    follower_state_refused(&f, &ours, 9, -BROOK_E_NOT_LEADER, 0); /* it has not read the state yet */
    ck_assert_int_eq(f.phase, FOLLOWER_PULL);
    follower_state_refused(&f, &ours, 9, -BROOK_E_FENCED_EPOCH, 0);
    ck_assert_int_eq(f.phase, FOLLOWER_IDLE);
}
END_TEST

START_TEST(epoch_is_reached_when_the_log_goes_up_to_its_start)
{
    const struct epoch_entry mine[] = {{1, 0}};
    const struct epoch_history ours = {mine, 1, 0, 22};
    struct leader_pull pull;
    follower_state_init(&f);
    follower_state_begin(&f, 2, 9);
    ck_assert_int_eq(follower_state_reached(&f, &ours, INT64_MAX, 3, 23), 3);
    ck_assert_int_eq(follower_state_reached(&f, &ours, INT64_MAX, 3, 22), 9);
    ck_assert_int_eq(follower_state_reached(&f, &ours, INT64_MAX, 10, 22), 10);
    follower_state_pull(&f, &ours, 3, 13, 22, 9, &pull);
    ck_assert_int_eq(pull.reached_epoch, 9);
    follower_state_refused(&f, &ours, 9, -BROOK_E_LOG_DIVERGED, 0);
    ck_assert_int_eq(follower_state_reached(&f, &ours, INT64_MAX, 3, 22), 3);
}
END_TEST

/* A power cut takes what is not on the disk: of a topic with durability=fsync that is not reached yet. */
START_TEST(epoch_is_reached_when_the_log_is_safe_up_to_its_start)
{
    const struct epoch_entry mine[] = {{1, 0}};
    const struct epoch_history ours = {mine, 1, 0, 22}, none = {NULL, 0, 0, 0};
    follower_state_init(&f);
    follower_state_begin(&f, 2, 9);
    ck_assert_int_eq(follower_state_reached(&f, &ours, 19, 3, 20), 3);
    ck_assert_int_eq(follower_state_reached(&f, &ours, 20, 3, 20), 9);
    follower_state_refused(&f, &none, 9, -BROOK_E_OFFSET_OUT_OF_RANGE, 30); /* what is below the leader's start is not missing */
    ck_assert_int_eq(follower_state_reached(&f, &none, 0, 3, 30), 9);
}
END_TEST

START_TEST(log_emptied_by_retention_still_says_how_it_ended)
{
    const struct epoch_entry last[] = {{4, 60}};
    const struct epoch_history empty = {last, 1, 60, 60}, full = {last, 1, 0, 60}, unknown = {NULL, 0, 60, 60};
    ck_assert_int_eq(epoch_history_before(&empty, 60), 4);
    ck_assert_int_eq(epoch_history_before(&unknown, 60), -1);
    ck_assert(epoch_history_fits(&empty, 60, -1)); /* nothing of it is left to differ */
    ck_assert(!epoch_history_fits(&full, 60, 4)); /* 59 is of no known epoch here */
}
END_TEST

SUITE_MAIN("replication/follower_state", SUITE_TEST(logs_that_part_are_cut_where_the_last_common_epoch_ends),
           SUITE_TEST(question_goes_on_to_a_lower_epoch_until_both_have_it),
           SUITE_TEST(answers_of_another_epoch_or_question_change_nothing),
           SUITE_TEST(late_refusal_does_not_cut_what_this_leader_gave),
           SUITE_TEST(follower_below_the_leaders_start_goes_on_there_and_one_that_can_not_know_begins_anew),
           SUITE_TEST(follower_waits_for_a_newer_state_only_when_there_is_one),
           SUITE_TEST(epoch_is_reached_when_the_log_goes_up_to_its_start),
           SUITE_TEST(epoch_is_reached_when_the_log_is_safe_up_to_its_start),
           SUITE_TEST(log_emptied_by_retention_still_says_how_it_ended))
