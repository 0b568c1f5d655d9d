#include "broker/replication/leader_state.h"
#include "tests/support/suite.h"

#include <stdlib.h>

/* Broker 1 leads at epoch 5, which begins at 100; the epochs before: 3 from 0, 4 from 60. Brokers 2 and 3 follow. */
static const struct epoch_entry entries[] = {{3, 0}, {4, 60}};
static struct epoch_history history = {entries, 2, 0, 100};
static int32_t brokers[] = {1, 2, 3};
static const struct znode_replicas replicas = {brokers, 3};
static struct leader_state *s;
static int32_t reached; /* what followers say */
static int64_t begins;

static void lead_as(const struct znode_state *state, bool is_again)
{
    history = (struct epoch_history){entries, 2, 0, 100};
    reached = 5;
    begins = 0;
    s = malloc(leader_state_bytes(4));
    leader_state_init(s, 4);
    struct leader_beginning b = {.broker_id = 1,
                                 .replicas = &replicas,
                                 .state = state,
                                 .version = 7,
                                 .history = &history,
                                 .lag_ms_max = 1000,
                                 .now_ms = 0,
                                 .is_again = is_again};
    ck_assert_int_eq(leader_state_begin(s, &b), 0);
}

static void lead(const struct znode_state *state)
{
    lead_as(state, false);
}

static const struct znode_state all = {
    .leader = 1, .leader_epoch = 5, .isr_count = 3, .isr = {1, 2, 3}, .isr_epochs = {11, 12, 13}};
static const struct znode_state sole = {
    .leader = 1, .leader_epoch = 5, .isr_count = 1, .isr = {1}, .isr_epochs = {11}};

static void end(void)
{
    free(s);
}

static int pull_at(int32_t broker, int64_t epoch, int64_t offset, int32_t last_epoch, int64_t now_ms)
{
    struct leader_pull pull = {.broker_id = broker,
                               .broker_epoch = epoch,
                               .current_epoch = 5,
                               .offset = offset,
                               .last_epoch = last_epoch,
                               .safe_end = offset,
                               .reached_epoch = reached,
                               .log_start = begins};
    return leader_state_pull(s, &history, &pull, now_ms);
}

static bool propose(int64_t high_watermark, int64_t now_ms, struct leader_isr_change *change)
{
    return leader_state_propose(s, high_watermark, now_ms, change) && leader_state_confirm(s, high_watermark);
}

/* What the partition would make of what the leader knows. */
static struct watermark_limits limits(int32_t min_in_sync)
{
    struct watermark_limits ret = {.min_in_sync = min_in_sync};
    leader_state_limits(s, &ret);
    return ret;
}

static int64_t mark_after(int32_t min_in_sync, int64_t high_watermark, int64_t safe_end)
{
    struct watermark_limits l = limits(min_in_sync);
    return watermark_lead(&l, high_watermark, safe_end);
}

static int answer(int32_t min_in_sync, int64_t high_watermark, int64_t last_offset)
{
    struct watermark_limits l = limits(min_in_sync);
    return watermark_answer(&l, high_watermark, last_offset);
}

START_TEST(high_watermark_is_the_least_safe_end_and_never_goes_back)
{
    lead(&all);
    ck_assert_int_eq(leader_state_replicated_end(s), -1);
    ck_assert_int_eq(mark_after(1, 50, 100), 50);
    ck_assert_int_eq(pull_at(2, 12, 90, 4, 1), 0);
    ck_assert_int_eq(mark_after(1, 50, 100), 50);
    ck_assert_int_eq(pull_at(3, 13, 80, 4, 1), 0);
    ck_assert_int_eq(mark_after(1, 50, 100), 80);
    ck_assert_int_eq(mark_after(1, 85, 100), 85);
    ck_assert_int_eq(mark_after(1, 50, 70), 70);
    ck_assert_int_eq(mark_after(4, 50, 100), 50);
    struct watermark_limits l = limits(4);
    ck_assert(!watermark_has_enough(&l));
    ck_assert_int_eq(answer(4, 80, 80), -BROOK_E_NOT_ENOUGH_REPLICAS_AFTER_APPEND);
    ck_assert_int_eq(answer(4, 80, 79), 0); /* passed when there were enough */
    ck_assert_int_eq(answer(3, 80, 79), 0);
    ck_assert_int_eq(answer(3, 80, 80), -BROOK_E_AGAIN);
    end();
    lead(&sole);
    ck_assert_int_eq(leader_state_replicated_end(s), INT64_MAX);
    end();
}
END_TEST

START_TEST(pull_counts_only_at_this_epoch_of_the_newest_life_and_with_a_log_that_fits)
{
    lead(&all);
    struct leader_pull pull = {
        .broker_id = 2, .broker_epoch = 12, .current_epoch = 4, .offset = 90, .last_epoch = 4, .safe_end = 90};
    ck_assert_int_eq(leader_state_pull(s, &history, &pull, 1), -BROOK_E_FENCED_EPOCH);
    pull.current_epoch = 6;
    ck_assert_int_eq(leader_state_pull(s, &history, &pull, 1), -BROOK_E_UNKNOWN_EPOCH);
    ck_assert_int_eq(pull_at(9, 12, 90, 4, 1), -BROOK_E_UNKNOWN_PARTITION);
    ck_assert_int_eq(pull_at(1, 11, 90, 4, 1), -BROOK_E_UNKNOWN_PARTITION);
    ck_assert_int_eq(pull_at(2, 12, 90, 3, 1), -BROOK_E_LOG_DIVERGED);
    ck_assert_int_eq(pull_at(2, 12, 60, 4, 1), -BROOK_E_LOG_DIVERGED);
    ck_assert_int_eq(pull_at(2, 12, 101, 4, 1), -BROOK_E_LOG_DIVERGED);
    ck_assert_int_eq(pull_at(2, 12, 90, -1, 1), -BROOK_E_LOG_DIVERGED);
    history.log_start = 95;
    ck_assert_int_eq(pull_at(2, 12, 90, 4, 1), -BROOK_E_OFFSET_OUT_OF_RANGE);
    history.log_start = 0;
    ck_assert_int_eq(s->replicas[1].safe_end, -1);
    ck_assert_int_eq(pull_at(2, 12, 60, 3, 1), 0);
    ck_assert_int_eq(s->replicas[1].safe_end, 60);
    ck_assert_int_eq(pull_at(2, 14, 40, 4, 2), -BROOK_E_LOG_DIVERGED);
    ck_assert_int_eq(s->replicas[1].safe_end, -1);
    ck_assert_int_eq(pull_at(2, 12, 60, 3, 3), -BROOK_E_STALE_BROKER_EPOCH);
    leader_state_broker(s, 3, 15, false);
    ck_assert_int_eq(pull_at(3, 13, 60, 3, 3), -BROOK_E_STALE_BROKER_EPOCH);
    end();
}
END_TEST

START_TEST(follower_joins_only_from_the_start_of_the_epoch_and_with_a_check_of_its_registration)
{
    struct leader_isr_change change;
    lead(&sole);
    ck_assert_int_eq(pull_at(2, 12, 95, 4, 1), 0);
    ck_assert(!leader_state_propose(s, 90, 2, &change));
    ck_assert_int_eq(pull_at(2, 12, 100, 4, 3), 0);
    ck_assert(!leader_state_propose(s, 101, 4, &change));
    ck_assert(leader_state_propose(s, 100, 4, &change));
    ck_assert(!leader_state_confirm(s, 101)); /* moved on meanwhile */
    ck_assert_int_eq(s->proposed, 0);
    ck_assert(propose(100, 4, &change));
    ck_assert_int_eq(change.version, 7);
    ck_assert_int_eq(change.state.isr_count, 2);
    ck_assert_int_eq(change.state.isr_epochs[1], 12);
    ck_assert_int_eq(change.checks_count, 1);
    ck_assert_int_eq(change.checks[0].broker_id, 2);
    ck_assert_int_eq(change.checks[0].broker_epoch, 12);
    ck_assert_int_eq(mark_after(1, 100, 120), 100);
    ck_assert_int_eq(leader_state_in_sync(s), 1);
    leader_state_outcome(s, LEADER_APPLIED, 8);
    ck_assert_int_eq(leader_state_in_sync(s), 2);
    ck_assert_int_eq(leader_state_replicated_end(s), 100);
    end();
}
END_TEST

START_TEST(member_leaves_when_it_lags_is_dead_drains_or_is_registered_anew_and_counts_until_then)
{
    struct leader_isr_change change;
    lead(&all);
    ck_assert_int_eq(pull_at(2, 12, 90, 4, 500), 0);
    history.log_end = 110;
    ck_assert_int_eq(pull_at(2, 12, 100, 4, 900), 0); /* all that there was at 500 */
    ck_assert_int_eq(pull_at(3, 13, 100, 4, 1200), 0);
    ck_assert(!leader_state_propose(s, 90, 1000, &change));
    ck_assert(propose(90, 1501, &change)); /* 2 was caught up at 500; 3 at 0 */
    ck_assert_int_eq(change.state.isr_count, 1);
    ck_assert_int_eq(leader_state_replicated_end(s), 100);
    ck_assert_int_eq(leader_state_in_sync(s), 1);
    leader_state_outcome(s, LEADER_APPLIED, 8);
    ck_assert_int_eq(leader_state_replicated_end(s), INT64_MAX);
    end();

    lead(&all);
    leader_state_broker(s, 2, -1, false);
    ck_assert(propose(90, 1, &change));
    ck_assert_int_eq(change.state.isr_count, 2);
    ck_assert_int_eq(change.state.isr[1], 3);
    end();
    lead(&all);
    leader_state_broker(s, 3, 13, true);
    leader_state_broker(s, 2, 14, false);
    ck_assert(propose(90, 1, &change));
    ck_assert_int_eq(change.state.isr_count, 1);
    ck_assert_int_eq(change.state.isr[0], 1);
    end();
}
END_TEST

START_TEST(unknown_outcome_counts_until_a_later_write_has_succeeded)
{
    struct leader_isr_change change;
    lead(&all);
    ck_assert_int_eq(pull_at(2, 12, 100, 4, 1), 0);
    leader_state_broker(s, 3, -1, false);
    ck_assert(propose(90, 2, &change));
    leader_state_outcome(s, LEADER_UNKNOWN, 0);
    ck_assert(leader_state_wants_read(s));
    ck_assert(!leader_state_propose(s, 90, 3, &change));
    ck_assert_int_eq(leader_state_read(s, &all, 7), 0);
    ck_assert(!leader_state_wants_read(s));
    ck_assert_int_ne(s->proposed, 0);
    ck_assert_int_eq(leader_state_in_sync(s), 2);
    ck_assert(propose(90, 4, &change)); /* what is stored, once more */
    ck_assert_int_eq(change.state.isr_count, 3);
    ck_assert_int_eq(change.checks_count, 0);
    leader_state_outcome(s, LEADER_APPLIED, 8);
    ck_assert_int_eq(s->proposed, 0);
    ck_assert_int_eq(leader_state_in_sync(s), 3);
    end();
}
END_TEST

START_TEST(refused_write_is_followed_by_a_read_that_is_adopted_or_ends_the_leadership)
{
    struct leader_isr_change change;
    struct znode_state newer = all;
    lead(&all);
    leader_state_broker(s, 3, -1, false);
    ck_assert(propose(90, 2, &change));
    leader_state_outcome(s, LEADER_REFUSED, 0);
    ck_assert(leader_state_wants_read(s));
    ck_assert_int_eq(leader_state_read(s, &all, 6), 0);
    ck_assert(leader_state_wants_read(s)); /* that was an older one */
    ck_assert_int_eq(leader_state_read(s, &all, 9), 0);
    ck_assert(propose(90, 3, &change));
    ck_assert_int_eq(change.version, 9);
    ck_assert_int_eq(leader_state_read(s, &sole, 10), 0); /* before the answer */
    ck_assert_int_eq(leader_state_in_sync(s), 1);
    leader_state_outcome(s, LEADER_REFUSED, 0);
    ck_assert(!leader_state_wants_read(s));
    ck_assert_int_eq(s->version, 10);
    newer.leader_epoch = 6;
    ck_assert_int_eq(leader_state_read(s, &newer, 11), -BROOK_E_NOT_LEADER);
    end();
}
END_TEST

START_TEST(position_counts_only_when_the_follower_knows_that_it_has_reached_the_epoch)
{
    const struct epoch_entry written[] = {{3, 0}, {4, 60}, {5, 100}};
    lead(&all);
    reached = 4;
    ck_assert_int_eq(pull_at(2, 12, 100, 4, 1), 0);
    ck_assert_int_eq(s->replicas[1].safe_end, -1);
    reached = 5;
    ck_assert_int_eq(pull_at(2, 12, 100, 4, 1), 0);
    ck_assert_int_eq(s->replicas[1].safe_end, 100);
    reached = -1;
    history = (struct epoch_history){written, 3, 0, 110};
    ck_assert_int_eq(pull_at(2, 12, 101, 5, 1), 0); /* it has a record of the epoch */
    ck_assert_int_eq(s->replicas[1].safe_end, 101);
    const struct leader_pull unsynced = {.broker_id = 2,
                                         .broker_epoch = 12,
                                         .current_epoch = 5,
                                         .offset = 105,
                                         .last_epoch = 5,
                                         .safe_end = 100,
                                         .reached_epoch = -1};
    ck_assert_int_eq(leader_state_pull(s, &history, &unsynced, 1), 0); /* not where it counts */
    ck_assert_int_eq(s->replicas[1].safe_end, -1);
    end();
}
END_TEST

START_TEST(nothing_is_committed_while_the_epoch_is_to_be_kept)
{
    lead(&all);
    int64_t before = leader_state_replicated_end(s);
    leader_state_await_reach(s, true);
    ck_assert_int_eq(leader_state_replicated_end(s), -1);
    leader_state_await_reach(s, false);
    ck_assert_int_eq(leader_state_replicated_end(s), before);
    end();
}
END_TEST

START_TEST(latest_is_not_available_before_the_high_watermark_reaches_the_epoch)
{
    lead(&all);
    struct watermark_limits l = limits(1);
    ck_assert(!watermark_is_current(&l, 99));
    ck_assert(watermark_is_current(&l, 100));
    end();
}
END_TEST

START_TEST(replicas_come_and_go_and_those_that_count_stay)
{
    int32_t others[] = {1, 4, 5, 6};
    const struct znode_replicas new_list = {others, 4};
    const struct znode_replicas short_list = {others, 2};
    struct leader_isr_change change;
    lead(&all);
    ck_assert_int_eq(leader_state_assign(s, &new_list, 5), -BROOK_E_TOO_MANY);
    ck_assert_int_eq(s->replicas_count, 3);
    ck_assert_int_eq(leader_state_assign(s, &short_list, 5), 0);
    ck_assert_int_eq(s->replicas_count, 4);
    ck_assert(propose(90, 6, &change)); /* 2 and 3 are not assigned any more */
    ck_assert_int_eq(change.state.isr_count, 1);
    ck_assert_int_eq(leader_state_replicated_end(s), -1);
    leader_state_outcome(s, LEADER_APPLIED, 8);
    ck_assert_int_eq(leader_state_assign(s, &new_list, 7), 0);
    ck_assert_int_eq(s->replicas_count, 4);
    ck_assert_int_eq(s->replicas[s->self].broker_id, 1);
    ck_assert_int_eq(pull_at(6, 21, 100, 4, 8), 0);
    ck_assert(propose(90, 9, &change));
    ck_assert_int_eq(change.state.isr[1], 6);
    end();
}
END_TEST

START_TEST(deleted_records_count_as_deleted_when_all_in_sync_say_so_and_others_do_not_join)
{
    struct leader_isr_change change;
    struct znode_state two = {
        .leader = 1, .leader_epoch = 5, .isr_count = 2, .isr = {1, 2}, .isr_epochs = {11, 12}};
    lead(&two);
    ck_assert_int_eq(leader_state_replicated_start(s), -1);
    ck_assert_int_eq(pull_at(2, 12, 100, 4, 1), 0);
    ck_assert_int_eq(leader_state_replicated_start(s), 0);
    leader_state_starts_at(s, 40);
    ck_assert_int_eq(pull_at(3, 13, 100, 4, 1), 0); /* it still has what was deleted */
    ck_assert(!propose(100, 1, &change));
    begins = 40;
    ck_assert_int_eq(pull_at(2, 12, 100, 4, 2), 0);
    ck_assert_int_eq(leader_state_replicated_start(s), 40);
    begins = 39;
    ck_assert_int_eq(pull_at(3, 13, 100, 4, 2), 0);
    ck_assert(!propose(100, 2, &change));
    begins = 40;
    ck_assert_int_eq(pull_at(3, 13, 100, 4, 3), 0);
    /* More is deleted between looking and publishing. */
    ck_assert(leader_state_propose(s, 100, 3, &change));
    leader_state_starts_at(s, 50);
    ck_assert(!leader_state_confirm(s, 100));
    begins = 50;
    ck_assert_int_eq(pull_at(3, 13, 100, 4, 4), 0);
    ck_assert(propose(100, 4, &change));
    ck_assert_int_eq(change.state.isr_count, 3);
    ck_assert_int_eq(leader_state_replicated_start(s), 40);
    ck_assert_int_eq(pull_at(2, 14, 100, 4, 5), 0); /* another life of it says nothing of the one that is listed */
    ck_assert_int_eq(leader_state_replicated_start(s), -1);
    end();
    lead(&sole);
    ck_assert_int_eq(leader_state_replicated_start(s), INT64_MAX);
    end();
}
END_TEST

START_TEST(follower_that_pulls_no_more_does_not_come_and_go)
{
    struct leader_isr_change change;
    lead(&all);
    ck_assert_int_eq(pull_at(2, 12, 100, 4, 10), 0);
    ck_assert_int_eq(pull_at(3, 13, 100, 4, 10), 0);
    /* 3 stops, and nothing is written: its position stays as far as the high watermark. */
    ck_assert_int_eq(pull_at(2, 12, 100, 4, 1500), 0);
    ck_assert(propose(100, 1500, &change));
    ck_assert_int_eq(change.state.isr_count, 2);
    leader_state_outcome(s, LEADER_APPLIED, 8);
    ck_assert(!propose(100, 1500, &change));
    ck_assert_int_eq(pull_at(3, 13, 100, 4, 1600), 0);
    ck_assert(propose(100, 1600, &change));
    ck_assert_int_eq(change.state.isr_count, 3);
    end();
}
END_TEST

START_TEST(member_whose_log_has_become_shorter_than_what_was_committed_leaves)
{
    struct leader_isr_change change;
    lead(&all);
    ck_assert_int_eq(pull_at(2, 12, 100, 4, 10), 0);
    ck_assert_int_eq(pull_at(3, 13, 100, 4, 10), 0);
    ck_assert(!propose(100, 20, &change));
    ck_assert_int_eq(pull_at(3, 13, 90, 4, 20), 0);
    ck_assert(propose(100, 20, &change));
    ck_assert_int_eq(change.state.isr_count, 2);
    ck_assert_int_eq(change.state.isr[1], 2);
    end();
}
END_TEST

START_TEST(epoch_that_is_taken_up_again_waits_for_all_who_may_have_joined)
{
    struct leader_isr_change change;
    lead_as(&sole, true);
    ck_assert_int_eq(leader_state_replicated_end(s), -1);
    ck_assert(leader_state_wants_read(s));
    ck_assert_int_eq(leader_state_read(s, &sole, 7), 0);
    ck_assert_int_eq(leader_state_replicated_end(s), -1); /* it may be applied still */
    ck_assert(propose(100, 1, &change));
    ck_assert_int_eq(change.state.isr_count, 1);
    ck_assert_int_eq(change.version, 7);
    leader_state_outcome(s, LEADER_APPLIED, 8);
    ck_assert_int_eq(leader_state_replicated_end(s), INT64_MAX);
    end();
    lead_as(&sole, true);
    ck_assert_int_eq(leader_state_read(s, &all, 8), 0); /* it was applied */
    ck_assert_int_eq(leader_state_replicated_end(s), -1);
    ck_assert_int_eq(pull_at(2, 12, 100, 4, 1), 0);
    ck_assert_int_eq(pull_at(3, 13, 100, 4, 1), 0);
    ck_assert_int_eq(leader_state_replicated_end(s), 100);
    end();
    lead_as(&all, true); /* all count already */
    ck_assert_int_eq(leader_state_read(s, &all, 7), 0);
    ck_assert_int_eq(pull_at(2, 12, 100, 4, 1), 0);
    ck_assert_int_eq(pull_at(3, 13, 100, 4, 1), 0);
    ck_assert_int_eq(leader_state_replicated_end(s), 100);
    ck_assert(propose(100, 1, &change));
    leader_state_outcome(s, LEADER_APPLIED, 8);
    ck_assert_int_eq(leader_state_replicated_end(s), 100);
    ck_assert(!propose(100, 1, &change));
    end();
}
END_TEST

SUITE_MAIN("replication/leader_state", SUITE_TEST(high_watermark_is_the_least_safe_end_and_never_goes_back),
           SUITE_TEST(pull_counts_only_at_this_epoch_of_the_newest_life_and_with_a_log_that_fits),
           SUITE_TEST(follower_joins_only_from_the_start_of_the_epoch_and_with_a_check_of_its_registration),
           SUITE_TEST(member_leaves_when_it_lags_is_dead_drains_or_is_registered_anew_and_counts_until_then),
           SUITE_TEST(unknown_outcome_counts_until_a_later_write_has_succeeded),
           SUITE_TEST(refused_write_is_followed_by_a_read_that_is_adopted_or_ends_the_leadership),
           SUITE_TEST(position_counts_only_when_the_follower_knows_that_it_has_reached_the_epoch),
           SUITE_TEST(nothing_is_committed_while_the_epoch_is_to_be_kept),
           SUITE_TEST(latest_is_not_available_before_the_high_watermark_reaches_the_epoch),
           SUITE_TEST(replicas_come_and_go_and_those_that_count_stay),
           SUITE_TEST(follower_that_pulls_no_more_does_not_come_and_go),
           SUITE_TEST(member_whose_log_has_become_shorter_than_what_was_committed_leaves),
           SUITE_TEST(epoch_that_is_taken_up_again_waits_for_all_who_may_have_joined),
           SUITE_TEST(deleted_records_count_as_deleted_when_all_in_sync_say_so_and_others_do_not_join))
