#include "broker/replication/election.h"
#include "tests/support/suite.h"

/* Broker 1 was the sole member at broker epoch 5; 2 and 3 are assigned too. */
static struct election_replica r[3];
static struct znode_state state, next;

static void begin(void)
{
    for (int i = 0; i < 3; i++)
        r[i] = (struct election_replica){
            .broker_id = i + 1, .broker_epoch = 5, .kept_from = -1, .report = {.broker_epoch = -1}};
    state = (struct znode_state){.leader = 1, .leader_epoch = 7, .isr_count = 1, .isr = {1}, .isr_epochs = {5}};
}

static void report(int i, int32_t last_epoch, int64_t end)
{
    r[i].report = (struct election_report){r[i].broker_epoch, state.leader_epoch, last_epoch, end};
}

static enum election_verdict compare(bool leave_out)
{
    return election_compare(r, 3, &state, leave_out, &next);
}

START_TEST(member_that_counts_or_is_away_leaves_no_doubt)
{
    begin();
    ck_assert_int_eq(compare(false), ELECTION_CERTAIN);
    r[0].broker_epoch = 6;
    r[0].kept_from = 5;
    ck_assert_int_eq(compare(false), ELECTION_CERTAIN);
    r[0].broker_epoch = -1;
    r[0].kept_from = -1;
    ck_assert_int_eq(compare(false), ELECTION_CERTAIN);
    r[0].broker_epoch = 6;
    ck_assert_int_eq(election_compare(r, 1, &state, false, &next), ELECTION_CERTAIN);
    state.isr_epochs[0] = -1;
    ck_assert_int_eq(compare(false), ELECTION_CERTAIN);
}
END_TEST

START_TEST(longest_log_leads_after_all_reported_at_the_leaderless_epoch)
{
    begin();
    r[0].broker_epoch = 6;
    ck_assert_int_eq(compare(false), ELECTION_FREEZE);
    ck_assert_int_eq(next.leader, -1);
    ck_assert_int_eq(next.leader_epoch, 8);
    ck_assert_int_eq(next.isr_count, 1);
    state = next;
    report(0, 4, 90);
    report(1, 4, 100);
    ck_assert_int_eq(compare(false), ELECTION_ASK);
    ck_assert(election_lacks_report(&r[2], &state));
    report(2, 3, 120);
    ck_assert_int_eq(compare(false), ELECTION_LEAD);
    ck_assert_int_eq(next.leader, 2);
    ck_assert_int_eq(next.leader_epoch, 9);
    ck_assert_int_eq(next.isr_count, 1);
    ck_assert_int_eq(next.isr[0], 2);
    ck_assert_int_eq(next.isr_epochs[0], 5);
    report(0, 4, 100); /* of equals the member */
    ck_assert_int_eq(compare(false), ELECTION_LEAD);
    ck_assert_int_eq(next.leader, 1);
    r[1].broker_epoch = 6; /* it bounced after its report */
    ck_assert_int_eq(compare(false), ELECTION_ASK);
    ck_assert(election_lacks_report(&r[1], &state));
}
END_TEST

START_TEST(absent_replica_is_waited_for_unless_it_may_be_left_out)
{
    begin();
    r[0].broker_epoch = 6;
    r[1].broker_epoch = -1;
    state.leader = -1;
    report(0, 4, 90);
    report(2, 4, 80);
    ck_assert_int_eq(compare(false), ELECTION_ASK);
    ck_assert(!election_lacks_report(&r[1], &state));
    ck_assert_int_eq(compare(true), ELECTION_LEAD);
    ck_assert_int_eq(next.leader, 1);
}
END_TEST

START_TEST(members_that_are_all_back_and_do_not_count_are_compared_too)
{
    begin();
    state.isr_count = 2;
    state.isr[1] = 2;
    state.isr_epochs[1] = 4;
    r[0].broker_epoch = 6;
    ck_assert_int_eq(compare(false), ELECTION_FREEZE);
    r[1].kept_from = 4;
    ck_assert_int_eq(compare(false), ELECTION_CERTAIN);
}
END_TEST

SUITE_MAIN("replication/election", SUITE_TEST(member_that_counts_or_is_away_leaves_no_doubt),
           SUITE_TEST(longest_log_leads_after_all_reported_at_the_leaderless_epoch),
           SUITE_TEST(absent_replica_is_waited_for_unless_it_may_be_left_out),
           SUITE_TEST(members_that_are_all_back_and_do_not_count_are_compared_too))
