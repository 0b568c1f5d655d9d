#include "coordination/assign.h"
#include "tests/support/suite.h"

#include "proto/base/err.h"

#include <stdlib.h>
#include <string.h>

#define ROUNDS 4000
#define MEMBERS_MAX 12
#define TOPICS_MAX 6
#define PARTITIONS_MAX 40

/* A random group. Owners and subscribers are sometimes nonsense: whoever wrote the znode may be mad. */
struct group {
    size_t members_count;
    size_t topics_count;
    struct assign_topic topics[TOPICS_MAX];
    int32_t subscribers[TOPICS_MAX][MEMBERS_MAX * 2];
    int32_t owner[TOPICS_MAX][PARTITIONS_MAX];
    int32_t before[TOPICS_MAX][PARTITIONS_MAX];
};

static int32_t random_member(uint64_t *state, size_t members_count)
{
    switch (suite_random_below(state, 20)) {
    case 0: return -1;
    case 1: return INT32_MAX;
    case 2: return INT32_MIN;
    case 3: return (int32_t)members_count;
    default: return (int32_t)suite_random_below(state, members_count + 1);
    }
}

static void group_make(struct group *g, uint64_t *state, size_t members_max, int partitions_max)
{
    memset(g, 0, sizeof *g);
    g->members_count = suite_random_below(state, members_max + 1);
    g->topics_count = suite_random_below(state, TOPICS_MAX + 1);
    for (size_t t = 0; t < g->topics_count; t++) {
        struct assign_topic *topic = &g->topics[t];
        topic->partitions_count = (int32_t)suite_random_below(state, (uint64_t)partitions_max + 2) - 1;
        topic->subscribers = g->subscribers[t];
        topic->subscribers_count = suite_random_below(state, 2 * g->members_count + 1);
        topic->owner = g->owner[t];
        for (size_t i = 0; i < topic->subscribers_count; i++)
            g->subscribers[t][i] = random_member(state, g->members_count);
        for (int32_t p = 0; p < topic->partitions_count; p++)
            g->owner[t][p] = random_member(state, g->members_count);
    }
    memcpy(g->before, g->owner, sizeof g->owner);
}

static bool subscribes(const struct group *g, size_t t, int32_t member)
{
    if (member < 0 || (size_t)member >= g->members_count)
        return false;
    for (size_t i = 0; i < g->topics[t].subscribers_count; i++)
        if (g->subscribers[t][i] == member)
            return true;
    return false;
}

static int32_t subscribers_count(const struct group *g, size_t t)
{
    int32_t count = 0;
    for (size_t m = 0; m < g->members_count; m++)
        count += subscribes(g, t, (int32_t)m);
    return count;
}

/* Every partition has exactly one owner, who subscribes; shares differ by at most one. */
static void check_complete_and_balanced(const struct group *g)
{
    for (size_t t = 0; t < g->topics_count; t++) {
        int32_t held[MEMBERS_MAX] = {0};
        int32_t subscribed = subscribers_count(g, t);
        for (int32_t p = 0; p < g->topics[t].partitions_count; p++) {
            int32_t owner = g->owner[t][p];
            if (subscribed == 0) {
                ck_assert_int_eq(owner, -1);
                continue;
            }
            ck_assert(subscribes(g, t, owner));
            held[owner]++;
        }
        if (g->topics[t].partitions_count <= 0 || subscribed == 0)
            continue;
        for (size_t m = 0; m < g->members_count; m++) {
            if (!subscribes(g, t, (int32_t)m))
                continue;
            ck_assert_int_ge(held[m], g->topics[t].partitions_count / subscribed);
            ck_assert_int_le(held[m], (g->topics[t].partitions_count + subscribed - 1) / subscribed);
        }
    }
}

START_TEST(every_strategy_gives_each_partition_one_subscriber_and_balances)
{
    uint64_t state = suite_seed();
    static struct group g;
    for (int round = 0; round < suite_rounds(ROUNDS); round++) {
        group_make(&g, &state, MEMBERS_MAX, PARTITIONS_MAX);
        enum assign_strategy strategy = (enum assign_strategy)suite_random_below(&state, 3);
        ck_assert_int_eq(assign_compute(strategy, g.topics, g.topics_count, g.members_count), 0);
        check_complete_and_balanced(&g);
    }
}
END_TEST

/* Number of partitions that a subscriber had and does not have afterwards. */
static int moves(const struct group *g, size_t t, const int32_t *after)
{
    int count = 0;
    for (int32_t p = 0; p < g->topics[t].partitions_count; p++)
        count += subscribes(g, t, g->before[t][p]) && g->before[t][p] != after[p];
    return count;
}

/* The fewest moves of any balanced assignment, by trying them all. */
static int fewest_moves(const struct group *g, size_t t)
{
    int32_t partitions = g->topics[t].partitions_count;
    int32_t subscribed = subscribers_count(g, t);
    int32_t members[MEMBERS_MAX];
    int32_t n = 0;
    for (size_t m = 0; m < g->members_count; m++)
        if (subscribes(g, t, (int32_t)m))
            members[n++] = (int32_t)m;
    long combinations = 1;
    for (int32_t p = 0; p < partitions; p++)
        combinations *= n;
    int best = partitions + 1;
    for (long c = 0; c < combinations; c++) {
        int32_t after[PARTITIONS_MAX];
        int32_t held[MEMBERS_MAX] = {0};
        long rest = c;
        for (int32_t p = 0; p < partitions; p++) {
            after[p] = members[rest % n];
            held[rest % n]++;
            rest /= n;
        }
        bool balanced = true;
        for (int32_t i = 0; i < n; i++)
            balanced = balanced && held[i] >= partitions / subscribed &&
                       held[i] <= (partitions + subscribed - 1) / subscribed;
        int m = moves(g, t, after);
        if (balanced && m < best)
            best = m;
    }
    return best;
}

START_TEST(sticky_moves_the_fewest_partitions_that_balance_allows)
{
    uint64_t state = suite_seed();
    static struct group g;
    int compared = 0;
    for (int round = 0; round < suite_rounds(ROUNDS / 4); round++) {
        group_make(&g, &state, 4, 6);
        ck_assert_int_eq(assign_compute(ASSIGN_STICKY, g.topics, g.topics_count, g.members_count), 0);
        for (size_t t = 0; t < g.topics_count; t++) {
            if (subscribers_count(&g, t) == 0)
                continue;
            ck_assert_int_eq(moves(&g, t, g.owner[t]), fewest_moves(&g, t));
            compared++;
        }
    }
    ck_assert_int_gt(compared, 0);
}
END_TEST

START_TEST(sticky_answer_is_a_fixed_point)
{
    uint64_t state = suite_seed();
    static struct group g;
    for (int round = 0; round < suite_rounds(ROUNDS); round++) {
        group_make(&g, &state, MEMBERS_MAX, PARTITIONS_MAX);
        ck_assert_int_eq(assign_compute(ASSIGN_STICKY, g.topics, g.topics_count, g.members_count), 0);
        memcpy(g.before, g.owner, sizeof g.owner);
        ck_assert_int_eq(assign_compute(ASSIGN_STICKY, g.topics, g.topics_count, g.members_count), 0);
        ck_assert_int_eq(memcmp(g.before, g.owner, sizeof g.owner), 0);
    }
}
END_TEST

START_TEST(sticky_spreads_new_topics_over_all_members)
{
    enum { MEMBERS = 4, TOPICS = 8 };
    static const int32_t all[MEMBERS] = {0, 1, 2, 3};
    int32_t owner[TOPICS];
    struct assign_topic topics[TOPICS];
    for (int t = 0; t < TOPICS; t++) {
        owner[t] = -1;
        topics[t] = (struct assign_topic){all, MEMBERS, &owner[t], 1};
    }
    ck_assert_int_eq(assign_compute(ASSIGN_STICKY, topics, TOPICS, MEMBERS), 0);
    int held[MEMBERS] = {0};
    for (int t = 0; t < TOPICS; t++)
        held[owner[t]]++;
    for (int m = 0; m < MEMBERS; m++)
        ck_assert_int_eq(held[m], TOPICS / MEMBERS);
}
END_TEST

START_TEST(range_gives_runs_and_the_remainder_to_the_first)
{
    static const int32_t subscribers[] = {2, 0, 1};
    static const int32_t expected[] = {0, 0, 0, 1, 1, 1, 2, 2};
    int32_t owner[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    struct assign_topic topic = {subscribers, 3, owner, 8};
    ck_assert_int_eq(assign_compute(ASSIGN_RANGE, &topic, 1, 3), 0);
    ck_assert_int_eq(memcmp(owner, expected, sizeof owner), 0);
}
END_TEST

START_TEST(roundrobin_goes_on_where_the_topic_before_ended)
{
    static const int32_t all[] = {0, 1, 2};
    int32_t first[2] = {-1, -1};
    int32_t second[2] = {-1, -1};
    struct assign_topic topics[] = {{all, 3, first, 2}, {all, 3, second, 2}};
    ck_assert_int_eq(assign_compute(ASSIGN_ROUNDROBIN, topics, 2, 3), 0);
    ck_assert_int_eq(first[0], 0);
    ck_assert_int_eq(first[1], 1);
    ck_assert_int_eq(second[0], 2);
    ck_assert_int_eq(second[1], 0);
}
END_TEST

START_TEST(strategy_names_parse_back)
{
    for (int s = ASSIGN_RANGE; s <= ASSIGN_STICKY; s++) {
        enum assign_strategy parsed;
        ck_assert_int_eq(assign_strategy_parse(assign_strategy_name((enum assign_strategy)s), &parsed), 0);
        ck_assert_int_eq((int)parsed, s);
    }
    enum assign_strategy untouched;
    ck_assert_int_eq(assign_strategy_parse("best", &untouched), -BROOK_E_INVALID);
}
END_TEST

SUITE_MAIN("property/assign", SUITE_TEST(every_strategy_gives_each_partition_one_subscriber_and_balances),
           SUITE_TEST_SLOW(sticky_moves_the_fewest_partitions_that_balance_allows, 60),
           SUITE_TEST(sticky_answer_is_a_fixed_point), SUITE_TEST(sticky_spreads_new_topics_over_all_members),
           SUITE_TEST(range_gives_runs_and_the_remainder_to_the_first),
           SUITE_TEST(roundrobin_goes_on_where_the_topic_before_ended), SUITE_TEST(strategy_names_parse_back))
