/* Elections and placement under random clusters: what the invariants of replication ask of each single
 * decision, and of the sequence of them. */
#include "broker/cluster/controller.h"
#include "tests/support/suite.h"

#include <string.h>

#define BROKERS_MAX 8
#define ROUNDS 200000

struct cluster_model {
    bool is_alive[BROKERS_MAX];
    struct controller_broker brokers[BROKERS_MAX];
    struct controller_broker list[BROKERS_MAX];
    struct controller_brokers alive;
};

static void refresh(struct cluster_model *m)
{
    m->alive = (struct controller_brokers){m->list, 0};
    for (int i = 0; i < BROKERS_MAX; i++)
        if (m->is_alive[i])
            m->list[m->alive.count++] = m->brokers[i];
}

static void begin(struct cluster_model *m)
{
    memset(m, 0, sizeof *m);
    for (int i = 0; i < BROKERS_MAX; i++)
        m->brokers[i] = (struct controller_broker){.broker_id = i, .broker_epoch = 1, .clean_from = -1};
    refresh(m);
}

/* A broker dies, comes (cleanly or not), bounces, or begins to drain. */
static void stir(struct cluster_model *m, uint64_t *seed)
{
    int i = (int)suite_random_below(seed, BROKERS_MAX);
    struct controller_broker *b = &m->brokers[i];
    switch (suite_random_below(seed, 4)) {
    case 0:
        m->is_alive[i] = false;
        break;
    case 1:
    case 2: {
        bool clean = suite_random_below(seed, 2);
        b->clean_from = clean ? b->broker_epoch : -1;
        b->broker_epoch++;
        b->draining = false;
        m->is_alive[i] = true;
        break;
    }
    case 3:
        b->draining = m->is_alive[i];
        break;
    }
    refresh(m);
}

static bool contains(const int32_t *list, int32_t count, int32_t broker)
{
    for (int32_t i = 0; i < count; i++)
        if (list[i] == broker)
            return true;
    return false;
}

static int64_t epoch_in(const struct znode_state *s, int32_t broker)
{
    for (int32_t i = 0; i < s->isr_count; i++)
        if (s->isr[i] == broker)
            return s->isr_epochs[i];
    return -2;
}

static void check_state(const struct znode_replicas *replicas, const struct znode_state *s,
                        const struct cluster_model *m)
{
    ck_assert_int_ge(s->isr_count, 1);
    for (int32_t i = 0; i < s->isr_count; i++) {
        ck_assert(contains(replicas->brokers, replicas->count, s->isr[i]));
        ck_assert(!contains(s->isr, i, s->isr[i]));
    }
    if (s->leader < 0)
        return;
    ck_assert(m->is_alive[s->leader]);
    ck_assert_int_eq(epoch_in(s, s->leader), m->brokers[s->leader].broker_epoch);
}

/* Who may have every acknowledged record: members of the last ISR that kept their page cache. */
static bool is_safe(const struct znode_state *before, const struct cluster_model *m, int32_t broker)
{
    int64_t epoch = epoch_in(before, broker);
    return epoch != -2 && (before->isr_count == 1 || epoch == m->brokers[broker].broker_epoch ||
                           (epoch >= 0 && epoch == m->brokers[broker].clean_from));
}

START_TEST(elections_keep_the_invariants)
{
    uint64_t seed = suite_seed();
    struct cluster_model m;
    begin(&m);
    struct znode_state state;
    bool has_state = false;
    int32_t brokers[4];
    struct znode_replicas replicas = {brokers, 0};
    for (int round = 0; round < ROUNDS; round++) {
        if (!has_state) { /* another partition */
            replicas.count = 1 + (int32_t)suite_random_below(&seed, 4);
            int32_t first = (int32_t)suite_random_below(&seed, BROKERS_MAX);
            for (int32_t i = 0; i < replicas.count; i++)
                brokers[i] = (first + i) % BROKERS_MAX;
        }
        stir(&m, &seed);
        struct znode_state next;
        memset(&next, 0xff, sizeof next);
        enum controller_verdict verdict =
            controller_decide(&replicas, has_state ? &state : NULL, &m.alive, false, &next);
        if (verdict == CONTROLLER_KEEP) {
            /* Nothing better was possible: the leader is well, or nobody may lead. */
            ck_assert(has_state);
            bool well = state.leader >= 0 && m.is_alive[state.leader] &&
                        epoch_in(&state, state.leader) == m.brokers[state.leader].broker_epoch;
            for (int32_t i = 0; !well && i < replicas.count; i++)
                ck_assert(!m.is_alive[brokers[i]] || !is_safe(&state, &m, brokers[i]));
        } else {
            check_state(&replicas, &next, &m);
            ck_assert_int_eq(next.leader_epoch, has_state ? state.leader_epoch + 1 : 0);
            if (verdict == CONTROLLER_ELECT)
                ck_assert(is_safe(&state, &m, next.leader));
            if (verdict == CONTROLLER_OFFLINE) {
                ck_assert_int_eq(next.leader, -1);
                ck_assert_int_eq(next.isr_count, state.isr_count);
                for (int32_t i = 0; i < replicas.count; i++)
                    ck_assert(!m.is_alive[brokers[i]] || !is_safe(&state, &m, brokers[i]));
            }
            /* Deciding again on what was decided changes nothing. */
            struct znode_state again;
            ck_assert_int_eq(controller_decide(&replicas, &next, &m.alive, false, &again), CONTROLLER_KEEP);
            state = next;
            has_state = true;
        }
        if (suite_random_below(&seed, 50) == 0)
            has_state = false;
    }
}
END_TEST

START_TEST(draining_leader_stays_only_when_there_is_no_other)
{
    uint64_t seed = suite_seed();
    struct cluster_model m;
    int32_t brokers[] = {0, 1, 2};
    struct znode_replicas replicas = {brokers, 3};
    for (int round = 0; round < 1000; round++) {
        begin(&m);
        struct znode_state state = {.leader = 0, .isr_count = 3, .isr = {0, 1, 2}, .isr_epochs = {1, 1, 1}},
                           next;
        int healthy = 0;
        for (int i = 0; i < 3; i++) {
            m.is_alive[i] = i == 0 || suite_random_below(&seed, 2);
            m.brokers[i].draining = i == 0 || suite_random_below(&seed, 2);
            healthy += m.is_alive[i] && !m.brokers[i].draining;
        }
        refresh(&m);
        enum controller_verdict verdict = controller_decide(&replicas, &state, &m.alive, false, &next);
        ck_assert_int_eq(verdict, healthy ? CONTROLLER_ELECT : CONTROLLER_KEEP);
        if (healthy)
            ck_assert(!m.brokers[next.leader].draining);
    }
}
END_TEST

START_TEST(unclean_election_takes_a_live_replica_only_as_the_last_resort)
{
    struct cluster_model m;
    int32_t brokers[] = {0, 1};
    struct znode_replicas replicas = {brokers, 2};
    struct znode_state state = {.leader = 0,
                                .leader_epoch = 4,
                                .isr_count = 1,
                                .isr = {0},
                                .isr_epochs = {1}},
                       next;
    begin(&m);
    m.is_alive[1] = true;
    refresh(&m);
    ck_assert_int_eq(controller_decide(&replicas, &state, &m.alive, false, &next), CONTROLLER_OFFLINE);
    ck_assert_int_eq(controller_decide(&replicas, &state, &m.alive, true, &next), CONTROLLER_ELECT);
    ck_assert_int_eq(next.leader, 1);
    ck_assert_int_eq(next.isr_count, 1);
    ck_assert_int_eq(next.isr[0], 1);
    m.is_alive[0] = true;
    refresh(&m);
    ck_assert_int_eq(controller_decide(&replicas, &state, &m.alive, true, &next), CONTROLLER_KEEP);
}
END_TEST

/* One replica each, as this version keeps: it leads whenever it lives, in a new epoch after each of its
 * deaths. */
START_TEST(sole_replica_leads_when_it_lives_and_nobody_else_ever_does)
{
    uint64_t seed = suite_seed();
    struct cluster_model m;
    begin(&m);
    int32_t brokers[] = {3};
    struct znode_replicas replicas = {brokers, 1};
    struct znode_state state, next;
    ck_assert_int_eq(controller_decide(&replicas, NULL, &m.alive, false, &state), CONTROLLER_CREATE);
    for (int round = 0; round < 20000; round++) {
        struct znode_state before = state;
        stir(&m, &seed);
        if (controller_decide(&replicas, &state, &m.alive, false, &next) != CONTROLLER_KEEP)
            state = next;
        ck_assert_int_eq(state.leader, m.is_alive[3] ? 3 : -1);
        ck_assert_int_eq(state.isr_count, 1);
        ck_assert_int_eq(state.isr[0], 3);
        bool same_life =
            before.leader == 3 && m.is_alive[3] && before.isr_epochs[0] == m.brokers[3].broker_epoch;
        bool still_away = before.leader < 0 && !m.is_alive[3];
        ck_assert_int_eq(state.leader_epoch, before.leader_epoch + (same_life || still_away ? 0 : 1));
    }
}
END_TEST

START_TEST(placement_is_balanced_within_one_and_spares_those_that_drain)
{
    uint64_t seed = suite_seed();
    for (int round = 0; round < 20000; round++) {
        struct cluster_model m;
        int32_t placed[300], per_broker[BROKERS_MAX] = {0};
        int32_t count = 1 + (int32_t)suite_random_below(&seed, 300);
        int usable = 0;
        begin(&m);
        for (int i = 0; i < BROKERS_MAX; i++) {
            m.is_alive[i] = suite_random_below(&seed, 2);
            m.brokers[i].draining = suite_random_below(&seed, 4) == 0;
            usable += m.is_alive[i] && !m.brokers[i].draining;
        }
        refresh(&m);
        int err = controller_place(&m.alive, suite_random(&seed), count, placed);
        ck_assert_int_eq(err, m.alive.count ? 0 : -BROOK_E_BROKER_NOT_AVAILABLE);
        if (err)
            continue;
        for (int32_t i = 0; i < count; i++) {
            ck_assert(m.is_alive[placed[i]]);
            per_broker[placed[i]]++;
        }
        int32_t least = count, most = 0;
        for (int i = 0; i < BROKERS_MAX; i++) {
            bool takes = m.is_alive[i] && (!m.brokers[i].draining || !usable);
            ck_assert(takes || per_broker[i] == 0);
            if (!takes)
                continue;
            least = per_broker[i] < least ? per_broker[i] : least;
            most = per_broker[i] > most ? per_broker[i] : most;
        }
        ck_assert_int_le(most - least, 1);
    }
}
END_TEST

SUITE_MAIN("property/controller", SUITE_TEST_SLOW(elections_keep_the_invariants, 60),
           SUITE_TEST(draining_leader_stays_only_when_there_is_no_other),
           SUITE_TEST(unclean_election_takes_a_live_replica_only_as_the_last_resort),
           SUITE_TEST(sole_replica_leads_when_it_lives_and_nobody_else_ever_does),
           SUITE_TEST_SLOW(placement_is_balanced_within_one_and_spares_those_that_drain, 60))
