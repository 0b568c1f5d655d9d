/* Replication and elections under random histories of a whole cluster (cluster_world.h), with the real pure cores.
 *
 * BROOK_SEED=N replays the schedule of that seed, step by step on stderr. BROOK_SCHEDULES=N runs so many of them, one
 * seed after the other. BROOK_BREAK=RULE breaks a rule, in both tests. */
#include "tests/property/cluster_world.h"
#include "config.h"
#include "tests/support/suite.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SCHEDULES 100000
#define SCHEDULES_QUICK 5000
#define BUDGET_S 45
#define SCHEDULES_MIN 5000 /* within the budget; under sanitizers, which are slow, and when in a hurry, fewer will do */
/* Within so many schedules a broken rule has to be found. */
#define SCHEDULES_BROKEN 1000000

static uint64_t wanted_schedules(uint64_t otherwise)
{
    const char *given = getenv("BROOK_SCHEDULES");
    return given ? strtoull(given, NULL, 0) : otherwise;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void say_counts(const struct cluster_counts *c, double took_s)
{
    fprintf(stderr,
            "# %" PRIu64 " schedules, %" PRIu64 " steps in %.1f s: committed %" PRIu64 ", acknowledged %" PRIu64
            ", elections %" PRIu64 " (compared %" PRIu64 "), joined %" PRIu64 ", left %" PRIu64 ", unknown %" PRIu64
            ", cuts %" PRIu64 ", kills %" PRIu64 ", power cuts %" PRIu64 ", lost disks %" PRIu64 ", pauses %" PRIu64
            ", bounces %" PRIu64 ", unclean %" PRIu64 ", moved %" PRIu64 ", made again %" PRIu64 ", excused %" PRIu64 ", healed %" PRIu64 "\n",
            c->schedules, c->steps, took_s, c->committed, c->acknowledged, c->elections, c->compared, c->expansions,
            c->shrinks, c->unknown, c->cuts, c->kills, c->power_cuts, c->empty_disks, c->pauses, c->bounces,
            c->unclean, c->moved, c->remade, c->excused, c->settled);
}

static enum cluster_rule wanted_rule(void)
{
    const char *given = getenv("BROOK_BREAK");
    for (int rule = 0; given && rule < CLUSTER_RULES_COUNT; rule++)
        if (strcmp(given, cluster_rule_name((enum cluster_rule)rule)) == 0)
            return (enum cluster_rule)rule;
    ck_assert_msg(!given, "no such rule: %s", given);
    return CLUSTER_NOTHING;
}

START_TEST(no_schedule_breaks_an_invariant)
{
    uint64_t first = suite_seed();
    bool is_replay = getenv("BROOK_SEED") && !getenv("BROOK_SCHEDULES");
    uint64_t schedules = is_replay ? 1 : wanted_schedules(suite_is_quick() ? SCHEDULES_QUICK : SCHEDULES);
    double began = seconds();
    struct cluster_counts counts = {0};
    for (uint64_t i = 0; i < schedules; i++) {
        const char *what = cluster_world_run(first + i, wanted_rule(), is_replay, &counts);
        ck_assert_msg(!what, "%s: schedule %" PRIu64 ", again with BROOK_SEED=%" PRIu64, what, i, first + i);
        if (!getenv("BROOK_SCHEDULES") && i % 256 == 0 && seconds() - began > BUDGET_S)
            break;
    }
    say_counts(&counts, seconds() - began);
    fprintf(stderr, "# %" PRIu64 " of %" PRIu64 " schedules were run\n", counts.schedules, schedules);
#ifndef BROOK_SANITIZED
    uint64_t least = schedules < SCHEDULES_MIN ? schedules : SCHEDULES_MIN;
    if (!suite_is_quick())
        ck_assert_msg(counts.schedules >= least, "only %" PRIu64 " schedules in %d s", counts.schedules, BUDGET_S);
#endif
    if (is_replay || counts.schedules < 1000)
        return;
    ck_assert_uint_gt(counts.compared, 0);
    ck_assert_uint_gt(counts.settled, 0);
    ck_assert_uint_gt(counts.unclean, 0);
    ck_assert_uint_gt(counts.moved, 0);
    ck_assert_uint_gt(counts.remade, 0);
    ck_assert_uint_lt(counts.excused, counts.schedules);
}
END_TEST

/* The schedule that is known to find it; if the model has changed since, any of many. NULL: not found. */
static const char *find(enum cluster_rule rule, uint64_t *ret_seed)
{
    struct cluster_counts counts = {0};
    bool is_anew = getenv("BROOK_SEED") != NULL;
    uint64_t first = suite_seed() | (cluster_rule_seed(rule) & CLUSTER_QUIET_SEED);
    *ret_seed = cluster_rule_seed(rule);
    const char *what = is_anew || !*ret_seed ? NULL : cluster_world_run(*ret_seed, rule, false, &counts);
    for (uint64_t i = 0; i < SCHEDULES_BROKEN && !what; i++) {
        *ret_seed = first + i;
        what = cluster_world_run(first + i, rule, false, &counts);
    }
    return what;
}

/* A model that finds nothing proves nothing. With BROOK_SEED the search begins there. */
START_TEST(each_rule_is_needed)
{
    for (int i = CLUSTER_NOTHING + 1; i < CLUSTER_RULES_COUNT; i++) {
        enum cluster_rule rule = (enum cluster_rule)i;
        uint64_t seed;
        bool is_wanted = wanted_rule() == rule;
        if (!is_wanted && (wanted_rule() != CLUSTER_NOTHING || !cluster_rule_seed(rule)))
            continue;
        const char *what = find(rule, &seed);
        fprintf(stderr, "# %-14s %s: seed %" PRIu64 "\n", cluster_rule_name(rule), what ? what : "NOT FOUND", seed);
        ck_assert_msg(what, "not found: %s", cluster_rule_text(rule));
        struct cluster_counts counts = {0};
        what = cluster_world_run(seed, CLUSTER_NOTHING, false, &counts);
        ck_assert_msg(!what, "%s, with no rule broken: BROOK_SEED=%" PRIu64, what, seed);
    }
}
END_TEST

/* Too unlikely to be found, so it is played. */
START_TEST(a_position_that_counts_early_costs_a_record)
{
    struct cluster_counts counts = {0};
    bool is_replay = getenv("BROOK_SEED") != NULL;
    const char *what = cluster_world_play(CLUSTER_NOTHING, is_replay, &counts);
    ck_assert_msg(!what, "%s, with no rule broken", what);
    ck_assert_uint_eq(counts.compared, 1);
    what = cluster_world_play(CLUSTER_COUNT_EARLY, is_replay, &counts);
    ck_assert_ptr_nonnull(what);
    ck_assert_str_eq(what, "a new leader lacks a committed record that a member of its ISR kept");
}
END_TEST

SUITE_MAIN("property/cluster_model", SUITE_TEST_SLOW(no_schedule_breaks_an_invariant, 600),
           SUITE_TEST_SLOW(each_rule_is_needed, 600), SUITE_TEST(a_position_that_counts_early_costs_a_record))
