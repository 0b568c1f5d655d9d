/* Short runs of the nemesis; scripts/nemesis runs long ones. */
#include "tests/cluster/nemesis/nemesis.h"
#include "tests/support/power_disk.h"
#include "tests/support/suite.h"

static bool is_of_power(enum fault_kind kind)
{
    return kind == FAULT_POWER_CUT || kind == FAULT_POWER_CUT_ALL;
}

static void run(enum topics_kind topics, const enum fault_kind *plan, size_t plan_count)
{
    struct nemesis_options o = {.brokers = 3,
                                .topics = topics,
                                .replicas = 3,
                                .partitions = 4,
                                .producers = 2,
                                .groups = 1,
                                .members = 2,
                                .seed = suite_seed(),
                                .plan = plan,
                                .plan_count = plan_count,
                                .talk = stderr};
    struct nemesis_report r;
    const char *why = power_disks_begin(suite_directory());
    o.has_power_disks = !why;
    while (why && o.plan_count && is_of_power(plan[o.plan_count - 1]))
        o.plan_count--;
    nemesis_run(&o, &r);
    nemesis_report_print(&o, &r, stderr);
    ck_assert(nemesis_is_fine(&r));
    ck_assert_uint_eq(r.faults_count, o.plan_count);
    nemesis_report_done(&r);
}

/* What needs a disk whose power can be cut comes last. */
START_TEST(nothing_acknowledged_is_lost_in_a_short_run)
{
    static const enum fault_kind plan[] = {FAULT_KILL,          FAULT_PAUSE_LONG, FAULT_EMPTY_DISK,
                                           FAULT_CUT_ZOOKEEPER, FAULT_DELETE,     FAULT_POWER_CUT};
    run(TOPICS_BOTH, plan, suite_is_quick() ? 1 : sizeof plan / sizeof plan[0]);
}
END_TEST

START_TEST(nothing_on_disk_is_lost_when_all_die_at_once)
{
    static const enum fault_kind plan[] = {FAULT_BLACKOUT, FAULT_POWER_CUT_ALL, FAULT_POWER_CUT, FAULT_POWER_CUT_ALL};
    run(TOPICS_FSYNC, plan, sizeof plan / sizeof plan[0]);
}
END_TEST

SUITE_MAIN("cluster/nemesis", SUITE_TEST_SLOW(nothing_acknowledged_is_lost_in_a_short_run, 180),
           SUITE_TEST_SLOW(nothing_on_disk_is_lost_when_all_die_at_once, 120))
