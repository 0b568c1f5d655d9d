/* A short run of the nemesis; scripts/nemesis runs long ones. */
#include "tests/cluster/nemesis/nemesis.h"
#include "tests/support/suite.h"

START_TEST(nothing_acknowledged_is_lost_in_a_short_run)
{
    static const enum fault_kind plan[] = {FAULT_KILL, FAULT_PAUSE_LONG, FAULT_EMPTY_DISK, FAULT_CUT_ZOOKEEPER};
    struct nemesis_options o = {.brokers = 3,
                                .replicas = 3,
                                .partitions = 3,
                                .producers = 2,
                                .groups = 1,
                                .members = 2,
                                .seed = suite_seed(),
                                .plan = plan,
                                .plan_count = suite_is_quick() ? 1 : sizeof plan / sizeof plan[0],
                                .talk = stderr};
    struct nemesis_report r;
    nemesis_run(&o, &r);
    nemesis_report_print(&o, &r, stderr);
    ck_assert(nemesis_is_fine(&r));
    ck_assert_uint_eq(r.faults_count, o.plan_count);
    nemesis_report_done(&r);
}
END_TEST

SUITE_MAIN("cluster/nemesis", SUITE_TEST_SLOW(nothing_acknowledged_is_lost_in_a_short_run, 150))
