/* Plans over lists of brokers. */
#include "client/cli/reassign_plan.h"
#include "tests/support/suite.h"

#include <brook/brook.h>
#include <string.h>

#define BROKERS 6
#define PARTITIONS 40

static const char *const racks[] = {"a", "b", "c"};

struct world {
    struct brook_broker brokers[BROKERS];
    int32_t lists[PARTITIONS][3];
    struct brook_partition partitions[PARTITIONS];
    struct brook_topic topic;
    struct brook_cluster cluster;
};

/* Partitions with `replicas` replicas at random places. */
static void world_make(struct world *w, bool has_racks, size_t replicas, uint64_t *seed)
{
    memset(w, 0, sizeof *w);
    for (int i = 0; i < BROKERS; i++)
        w->brokers[i] = (struct brook_broker){.id = i + 1, .host = "h", .rack = has_racks ? racks[i % 3] : NULL};
    for (int p = 0; p < PARTITIONS; p++) {
        int32_t first = (int32_t)suite_random_below(seed, BROKERS);
        for (size_t k = 0; k < replicas; k++)
            w->lists[p][k] = 1 + (first + (int32_t)k) % BROKERS;
        w->partitions[p] =
            (struct brook_partition){.partition = p, .replicas = w->lists[p], .replicas_count = replicas};
    }
    w->topic = (struct brook_topic){.name = "t", .partitions = w->partitions, .partitions_count = PARTITIONS};
    w->cluster = (struct brook_cluster){
        .brokers = w->brokers, .brokers_count = BROKERS, .topics = &w->topic, .topics_count = 1};
}

static void apply(struct world *w, const struct plan *plan)
{
    for (size_t i = 0; i < plan->count; i++) {
        struct brook_partition *p = &w->partitions[plan->list[i].partition];
        ck_assert_str_eq(plan->list[i].topic, "t");
        p->replicas_count = plan->list[i].replicas_count;
        memcpy(w->lists[p->partition], plan->list[i].replicas, p->replicas_count * sizeof(int32_t));
    }
}

static bool is_in(const int32_t *list, size_t count, int32_t broker)
{
    for (size_t i = 0; i < count; i++)
        if (list[i] == broker)
            return true;
    return false;
}

static void check_spread(const struct world *w, const int32_t *brokers, size_t count)
{
    size_t per_broker[BROKERS + 1] = {0}, all = 0;
    for (int p = 0; p < PARTITIONS; p++)
        for (size_t k = 0; k < w->partitions[p].replicas_count; k++, all++) {
            int32_t b = w->lists[p][k];
            ck_assert(is_in(brokers, count, b));
            ck_assert(!is_in(w->lists[p], k, b));
            per_broker[b]++;
        }
    for (size_t i = 0; i < count; i++) {
        ck_assert_uint_ge(per_broker[brokers[i]], all / count);
        ck_assert_uint_le(per_broker[brokers[i]], (all + count - 1) / count);
    }
}

START_TEST(partitions_are_spread_over_the_brokers_named)
{
    uint64_t seed = suite_seed();
    for (int round = 0; round < 500; round++) {
        struct world w;
        struct plan plan;
        struct brook_error error = {0};
        size_t replicas = 1 + suite_random_below(&seed, 3);
        const int32_t some[] = {2, 3, 4, 6}, every[] = {1, 2, 3, 4, 5, 6};
        bool is_some = suite_random_below(&seed, 2);
        const int32_t *brokers = is_some ? some : every;
        size_t count = is_some ? 4 : 6;
        world_make(&w, false, replicas, &seed);
        int32_t wanted = suite_random_below(&seed, 2) ? 0 : 2;
        ck_assert_msg(!plan_make(&w.cluster, brokers, count, wanted, &plan, &error), "%s", error.text);
        apply(&w, &plan);
        plan_done(&plan);
        check_spread(&w, brokers, count);
        for (int p = 0; p < PARTITIONS; p++)
            ck_assert_uint_eq(w.partitions[p].replicas_count, wanted ? (size_t)wanted : replicas);
    }
}
END_TEST

START_TEST(replicas_end_in_different_racks)
{
    uint64_t seed = suite_seed();
    const int32_t every[] = {1, 2, 3, 4, 5, 6};
    for (int round = 0; round < 200; round++) {
        struct world w;
        struct plan plan;
        struct brook_error error = {0};
        world_make(&w, true, 1, &seed);
        ck_assert_int_eq(plan_make(&w.cluster, every, 6, 3, &plan, &error), 0);
        apply(&w, &plan);
        plan_done(&plan);
        for (int p = 0; p < PARTITIONS; p++)
            for (int k = 1; k < 3; k++)
                for (int i = 0; i < k; i++)
                    ck_assert_int_ne(w.lists[p][k] % 3, w.lists[p][i] % 3);
    }
}
END_TEST

START_TEST(what_is_spread_already_stays)
{
    struct world w;
    struct plan plan;
    struct brook_error error = {0};
    uint64_t seed = 1;
    const int32_t every[] = {1, 2, 3, 4, 5, 6}, unknown[] = {1, 9};
    world_make(&w, false, 2, &seed);
    w.topic.partitions_count = BROKERS * 6; /* the same number on each */
    for (int p = 0; p < PARTITIONS; p++)
        for (int k = 0; k < 2; k++)
            w.lists[p][k] = 1 + (p + k) % BROKERS;
    ck_assert_int_eq(plan_make(&w.cluster, every, 6, 0, &plan, &error), 0);
    size_t moved = 0;
    for (size_t i = 0; i < plan.count; i++)
        for (size_t k = 0; k < 2; k++)
            moved += !is_in(w.lists[plan.list[i].partition], 2, plan.list[i].replicas[k]);
    ck_assert_uint_eq(moved, 0);
    plan_done(&plan);
    ck_assert_int_lt(plan_make(&w.cluster, unknown, 2, 0, &plan, &error), 0);
    ck_assert_int_lt(plan_make(&w.cluster, every, 1, 2, &plan, &error), 0);
}
END_TEST

SUITE_MAIN("cli/reassign_plan", SUITE_TEST(partitions_are_spread_over_the_brokers_named),
           SUITE_TEST(replicas_end_in_different_racks), SUITE_TEST(what_is_spread_already_stays))
