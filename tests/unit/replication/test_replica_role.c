#include "broker/replication/replica_role.h"
#include "proto/base/err.h"
#include "tests/support/suite.h"

static struct replica_role role;
static struct replica_step step;

static enum replica_verdict decide(int32_t leader, int32_t epoch, int64_t listed, int64_t mine, int32_t log_epoch)
{
    struct replica_self self = {.broker_id = 1, .broker_epoch = mine, .log_epoch = log_epoch, .is_assigned = true};
    struct znode_state state = {
        .leader = leader, .leader_epoch = epoch, .isr_count = 2, .isr = {1, 2}, .isr_epochs = {listed, 5}};
    return replica_role_decide(&role, &self, &state, &step);
}

static void carry_out(void)
{
    replica_role_begin(&role, &step);
    replica_role_completed(&role);
}

START_TEST(older_states_are_refused_and_equal_ones_kept)
{
    replica_role_init(&role);
    ck_assert_int_eq(decide(2, 3, 5, 5, 4), REPLICA_REFUSE); /* below the log */
    ck_assert_int_eq(decide(2, 4, 5, 5, 4), REPLICA_CHANGE);
    ck_assert_int_eq(step.duty, REPLICA_FOLLOW);
    carry_out();
    ck_assert_int_eq(decide(2, 4, 5, 5, 4), REPLICA_KEEP);
    ck_assert_int_eq(decide(2, 3, 5, 5, -1), REPLICA_REFUSE);
    ck_assert_int_eq(decide(1, 4, 5, 5, 4), REPLICA_REFUSE); /* another leader of the same epoch */
    ck_assert_int_eq(decide(1, 5, 5, 5, 4), REPLICA_CHANGE);
    ck_assert_int_eq(step.duty, REPLICA_LEAD);
}
END_TEST

START_TEST(change_that_failed_half_way_is_made_again)
{
    replica_role_init(&role);
    ck_assert_int_eq(decide(1, 4, 5, 5, 3), REPLICA_CHANGE);
    replica_role_begin(&role, &step);
    ck_assert_int_eq(decide(2, 3, 5, 5, 3), REPLICA_REFUSE);
    ck_assert_int_eq(decide(1, 4, 5, 5, 3), REPLICA_CHANGE);
    ck_assert_int_eq(step.duty, REPLICA_LEAD);
    carry_out();
    ck_assert_int_eq(decide(1, 4, 5, 5, 3), REPLICA_KEEP);
}
END_TEST

START_TEST(state_of_an_earlier_life_is_waited_out_but_a_leader_goes_on_when_registered_anew)
{
    replica_role_init(&role);
    ck_assert_int_eq(decide(1, 4, 5, 6, 3), REPLICA_CHANGE);
    ck_assert_int_eq(step.duty, REPLICA_IDLE);
    carry_out();
    ck_assert_int_eq(decide(1, 5, 6, 6, 3), REPLICA_CHANGE);
    ck_assert_int_eq(step.duty, REPLICA_LEAD);
    carry_out();
    ck_assert_int_eq(decide(1, 5, 6, 7, 5), REPLICA_KEEP);
}
END_TEST

START_TEST(report_is_made_only_of_a_log_that_stands_still)
{
    replica_role_init(&role);
    ck_assert_int_eq(replica_role_may_report(&role, 4), -BROOK_E_UNKNOWN_EPOCH);
    ck_assert_int_eq(decide(-1, 4, 5, 5, 3), REPLICA_CHANGE);
    ck_assert_int_eq(step.duty, REPLICA_IDLE);
    replica_role_begin(&role, &step);
    ck_assert_int_eq(replica_role_may_report(&role, 4), -BROOK_E_UNKNOWN_EPOCH);
    replica_role_completed(&role);
    ck_assert_int_eq(replica_role_may_report(&role, 4), 0);
    ck_assert_int_eq(replica_role_may_report(&role, 3), -BROOK_E_FENCED_EPOCH);
    ck_assert_int_eq(decide(2, 5, 5, 5, 3), REPLICA_CHANGE);
    carry_out();
    ck_assert_int_eq(replica_role_may_report(&role, 5), -BROOK_E_INVALID);
}
END_TEST

START_TEST(unassigned_partition_is_left)
{
    struct replica_self self = {.broker_id = 3, .broker_epoch = 5, .log_epoch = -1};
    struct znode_state state = {.leader = 1, .leader_epoch = 4, .isr_count = 1, .isr = {1}, .isr_epochs = {5}};
    replica_role_init(&role);
    ck_assert_int_eq(replica_role_decide(&role, &self, &state, &step), REPLICA_CHANGE);
    ck_assert_int_eq(step.duty, REPLICA_LEAVE);
}
END_TEST

SUITE_MAIN("replication/replica_role", SUITE_TEST(older_states_are_refused_and_equal_ones_kept),
           SUITE_TEST(change_that_failed_half_way_is_made_again),
           SUITE_TEST(state_of_an_earlier_life_is_waited_out_but_a_leader_goes_on_when_registered_anew),
           SUITE_TEST(report_is_made_only_of_a_log_that_stands_still), SUITE_TEST(unassigned_partition_is_left))
