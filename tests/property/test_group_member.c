#include "tests/property/group_world.h"
#include "tests/support/suite.h"

#include <stdio.h>

#define RUNS 40
#define CHAOS_STEPS 150

/* Everything at once. Members 0 and 1 are static. */
static void chaos(struct world *w)
{
    int member = (int)world_random(w, 6);
    int topic = (int)world_random(w, WORLD_TOPICS);
    unsigned mask = (unsigned)world_random(w, 1u << WORLD_TOPICS);
    if (!world_is_running(w, member)) {
        world_start(w, member, mask, member < 2);
        return;
    }
    switch (world_random(w, 14)) {
    case 0: world_kill(w, member); break;
    case 1: world_leave(w, member); break;
    case 2: world_resubscribe(w, member, mask); break;
    case 3: world_freeze(w, member, (int)world_random(w, 2 * WORLD_TIMEOUT_MS)); break;
    case 4: world_cut(w, member, (int)world_random(w, 2 * WORLD_TIMEOUT_MS)); break;
    case 5: world_stop_polling(w, member, (int)world_random(w, 2 * WORLD_MAX_POLL_MS)); break;
    case 6: world_take_id(w, member); break;
    case 7: world_slow(w, member, (int)world_random(w, 2 * WORLD_DRAIN_MS)); break;
    case 8: world_topic_make(w, topic, 1 + (int32_t)world_random(w, WORLD_PARTITIONS)); break;
    case 9: world_topic_grow(w, topic, 1 + (int32_t)world_random(w, WORLD_PARTITIONS)); break;
    case 10: world_topic_delete(w, topic); break;
    default: break;
    }
}

START_TEST(any_schedule_has_one_deliverer_fences_commits_and_settles)
{
    uint64_t seed = suite_seed();
    for (int run = 0; run < suite_rounds(RUNS); run++) {
        uint64_t run_seed = seed + (uint64_t)run;
        struct world *w = world_new(run_seed);
        world_topic_make(w, 0, 5);
        world_topic_make(w, 1, WORLD_PARTITIONS);
        world_set_faults(w, true);
        for (int i = 0; i < CHAOS_STEPS; i++) {
            chaos(w);
            world_run(w, 20 + (int)world_random(w, 400));
        }
        ck_assert_msg(world_settles(w, 60000), "run %d: not settled (BROOK_SEED=%llu)", run,
                      (unsigned long long)run_seed);
        world_free(w);
    }
}
END_TEST

/* ---- one promise each --------------------------------------------------------------------------------- */

static struct world *world_of(int members, int32_t partitions)
{
    struct world *w = world_new(suite_seed());
    world_topic_make(w, 0, partitions);
    for (int i = 0; i < members; i++)
        world_start(w, i, 1, false);
    ck_assert(world_settles(w, 20000));
    return w;
}

static int delivered_by(const struct world *w, int member)
{
    int count = 0;
    for (int32_t p = 0; p < WORLD_PARTITIONS; p++)
        count += world_delivers(w, member, 0, p);
    return count;
}

START_TEST(killed_members_partitions_are_read_within_timeout_and_a_second)
{
    struct world *w = world_of(3, 8);
    world_kill(w, 0);
    int64_t killed = world_now(w);
    world_run(w, WORLD_TIMEOUT_MS + 3000);
    ck_assert_int_le(world_last_unowned(w) - killed, WORLD_TIMEOUT_MS + 1000);
    ck_assert_int_eq(delivered_by(w, 1), 4);
    ck_assert_int_eq(delivered_by(w, 2), 4);
    world_free(w);
}
END_TEST

START_TEST(polite_leave_hands_over_within_a_second)
{
    struct world *w = world_of(3, 8);
    world_leave(w, 0);
    int64_t left = world_now(w);
    world_run(w, 3000);
    ck_assert(!world_is_running(w, 0));
    ck_assert_int_le(world_last_unowned(w) - left, 1000);
    world_free(w);
}
END_TEST

START_TEST(join_moves_the_fewest_and_pauses_no_partition_that_stays)
{
    struct world *w = world_of(2, 8);
    bool kept[2][WORLD_PARTITIONS];
    for (int m = 0; m < 2; m++)
        for (int32_t p = 0; p < WORLD_PARTITIONS; p++)
            kept[m][p] = world_delivers(w, m, 0, p);
    int drains = world_drains(w, 0) + world_drains(w, 1);
    int64_t joined = world_now(w);
    world_start(w, 2, 1, false);
    /* What is delivered at the end by whom it was before was delivered all along: a pause would be a
     * drain. */
    ck_assert(world_settles(w, 5000));
    ck_assert_int_le(world_last_unowned(w) - joined, 1000);
    ck_assert_int_eq(delivered_by(w, 2), 2);
    ck_assert_int_eq(world_drains(w, 0) + world_drains(w, 1) - drains, 2);
    int stayed = 0;
    for (int m = 0; m < 2; m++)
        for (int32_t p = 0; p < WORLD_PARTITIONS; p++)
            stayed += kept[m][p] && world_delivers(w, m, 0, p);
    ck_assert_int_eq(stayed, 6);
    world_free(w);
}
END_TEST

START_TEST(slow_application_gives_its_share_up_within_the_drain_time)
{
    struct world *w = world_of(1, 8);
    world_slow(w, 0, 300000);
    int64_t joined = world_now(w);
    world_start(w, 1, 1, false);
    world_run(w, WORLD_DRAIN_MS + 2000);
    ck_assert_int_eq(delivered_by(w, 1), 4);
    ck_assert_int_le(world_last_unowned(w) - joined, WORLD_DRAIN_MS + 1000);
    world_free(w);
}
END_TEST

START_TEST(claim_waits_out_any_drain_and_takes_over_when_it_ends)
{
    for (int spread = -50; spread <= 50; spread += 10) {
        struct world *w = world_of(1, 8);
        world_slow(w, 0, WORLD_DRAIN_MS + spread);
        world_start(w, 1, 1, false);
        ck_assert(world_settles(w, WORLD_DRAIN_MS + 2000));
        ck_assert_int_eq(delivered_by(w, 1), 4);
        world_free(w);
    }
}
END_TEST

START_TEST(frozen_member_delivers_nothing_after_its_session_and_rejoins)
{
    struct world *w = world_of(2, 8);
    world_freeze(w, 0, WORLD_TIMEOUT_MS * 3 / 2);
    world_run(w, WORLD_TIMEOUT_MS + 1000 - 50);
    ck_assert_int_eq(delivered_by(w, 1), 8);
    ck_assert(world_settles(w, 5000));
    ck_assert_int_eq(delivered_by(w, 0), 4);
    world_free(w);
}
END_TEST

START_TEST(member_whose_registration_vanishes_is_back_each_time)
{
    struct world *w = world_of(3, 8);
    for (int i = 0; i < 10; i++) {
        world_take_id(w, i % 3);
        world_run(w, 2000);
        ck_assert(world_settles(w, 1000));
        ck_assert_int_ge(world_reports(w, GROUP_REPORT_EVICTED), i + 1);
    }
    world_free(w);
}
END_TEST

START_TEST(member_that_expires_again_and_again_is_back_each_time)
{
    struct world *w = world_of(3, 8);
    for (int i = 0; i < 10; i++) {
        world_cut(w, 0, WORLD_TIMEOUT_MS + 200);
        world_run(w, WORLD_TIMEOUT_MS + 2200);
        ck_assert(world_settles(w, 1000));
    }
    world_free(w);
}
END_TEST

START_TEST(twenty_members_that_start_together_agree_in_few_rounds)
{
    struct world *w = world_of(0, 8);
    for (int i = 0; i < 20; i++) {
        world_start(w, i, 1, false);
        world_run(w, 100);
    }
    ck_assert(world_settles(w, 8000));
    int drains = 0;
    for (int i = 0; i < 20; i++)
        drains += world_drains(w, i);
    fprintf(stderr, "# %d assignments, %d reads of all members, %d drains\n", world_writes(w),
            world_member_reads(w), drains);
    ck_assert_int_le(world_writes(w), 40);
    ck_assert_int_le(world_member_reads(w), 80);
    ck_assert_int_le(drains, 20 * 4);
    world_free(w);
}
END_TEST

START_TEST(one_change_is_read_by_few_members_whatever_their_number)
{
    struct world *w = world_of(20, 8);
    int reads = world_member_reads(w);
    int writes = world_writes(w);
    world_kill(w, 7);
    world_run(w, WORLD_TIMEOUT_MS + 3000);
    ck_assert_int_le(world_member_reads(w) - reads, 4);
    ck_assert_int_le(world_writes(w) - writes, 2);
    world_free(w);
}
END_TEST

START_TEST(application_that_does_not_poll_leaves_and_comes_back)
{
    struct world *w = world_of(2, 8);
    world_stop_polling(w, 0, WORLD_MAX_POLL_MS + 3000);
    world_run(w, WORLD_MAX_POLL_MS + 2500);
    ck_assert_int_eq(delivered_by(w, 0), 0);
    ck_assert_int_eq(delivered_by(w, 1), 8);
    ck_assert_int_eq(world_reports(w, GROUP_REPORT_AWAY), 1);
    world_run(w, 2500);
    ck_assert_int_eq(delivered_by(w, 0), 4);
    world_free(w);
}
END_TEST

START_TEST(static_member_that_restarts_in_time_keeps_its_partitions)
{
    struct world *w = world_new(suite_seed());
    world_topic_make(w, 0, 8);
    world_start(w, 0, 1, true);
    world_start(w, 1, 1, false);
    ck_assert(world_settles(w, 20000));
    int writes = world_writes(w);
    int drains = world_drains(w, 1);
    int32_t mine[WORLD_PARTITIONS];
    for (int32_t p = 0; p < WORLD_PARTITIONS; p++)
        mine[p] = world_owner(w, 0, p);
    world_kill(w, 0);
    world_run(w, WORLD_TIMEOUT_MS / 2);
    world_start(w, 0, 1, true);
    ck_assert(world_settles(w, 3000));
    for (int32_t p = 0; p < WORLD_PARTITIONS; p++)
        ck_assert_int_eq(world_owner(w, 0, p), mine[p]);
    ck_assert_int_eq(world_writes(w), writes);
    ck_assert_int_eq(world_drains(w, 1), drains);
    world_free(w);
}
END_TEST

START_TEST(topic_that_appears_grows_and_vanishes_is_followed)
{
    for (unsigned mask = 0; mask <= 1; mask++) {
        struct world *w = world_new(suite_seed());
        world_start(w, 0, mask, false);
        world_start(w, 1, mask, false);
        world_run(w, 2000);
        world_topic_make(w, 0, 2);
        ck_assert(world_settles(w, 2000));
        ck_assert_int_ge(world_owner(w, 0, 1), 0);
        world_topic_grow(w, 0, 7);
        world_run(w, 500);
        ck_assert(world_settles(w, 2000));
        ck_assert_int_ge(world_owner(w, 0, 6), 0);
        world_topic_make(w, 0, 3);
        world_run(w, 500);
        ck_assert(world_settles(w, 3000));
        ck_assert_int_eq(world_owner(w, 0, 3), -1);
        world_topic_delete(w, 0);
        world_run(w, 500);
        ck_assert(world_settles(w, 3000));
        ck_assert_int_eq(world_owner(w, 0, 0), -1);
        world_free(w);
    }
}
END_TEST

SUITE_MAIN("property/group_member",
           SUITE_TEST_SLOW(any_schedule_has_one_deliverer_fences_commits_and_settles, 120),
           SUITE_TEST(killed_members_partitions_are_read_within_timeout_and_a_second),
           SUITE_TEST(polite_leave_hands_over_within_a_second),
           SUITE_TEST(join_moves_the_fewest_and_pauses_no_partition_that_stays),
           SUITE_TEST(slow_application_gives_its_share_up_within_the_drain_time),
           SUITE_TEST(claim_waits_out_any_drain_and_takes_over_when_it_ends),
           SUITE_TEST(frozen_member_delivers_nothing_after_its_session_and_rejoins),
           SUITE_TEST(member_whose_registration_vanishes_is_back_each_time),
           SUITE_TEST(member_that_expires_again_and_again_is_back_each_time),
           SUITE_TEST(twenty_members_that_start_together_agree_in_few_rounds),
           SUITE_TEST(one_change_is_read_by_few_members_whatever_their_number),
           SUITE_TEST(application_that_does_not_poll_leaves_and_comes_back),
           SUITE_TEST(static_member_that_restarts_in_time_keeps_its_partitions),
           SUITE_TEST(topic_that_appears_grows_and_vanishes_is_followed))
