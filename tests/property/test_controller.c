/* Elections under random clusters: what the invariants of replication ask of each single
 * decision, and of the sequence of them. */
#include "tests/property/controller_model.h"

#define ROUNDS 200000

/* Who may have every acknowledged record: members of the last ISR that kept their page cache; and who is the only one
 * that ever had any. */
static bool is_safe(const struct znode_replicas *replicas, const struct znode_state *before,
                    const struct cluster_model *m, int32_t broker)
{
    int64_t epoch = epoch_in(before, broker);
    bool is_alone = before->isr_count == 1 && (epoch < 0 || replicas->count == 1);
    return epoch != -2 && (is_alone || epoch == m->brokers[broker].broker_epoch ||
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
    for (int round = 0; round < suite_rounds(ROUNDS); round++) {
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
            elect_untold(&replicas, has_state ? &state : NULL, &m.alive, false, &next);
        if (verdict == CONTROLLER_KEEP) {
            /* Nothing better was possible: the leader is well, or nobody may lead. */
            ck_assert(has_state);
            bool well = state.leader >= 0 && m.is_alive[state.leader] &&
                        epoch_in(&state, state.leader) == m.brokers[state.leader].broker_epoch;
            for (int32_t i = 0; !well && i < replicas.count; i++)
                ck_assert(!m.is_alive[brokers[i]] || !is_safe(&replicas, &state, &m, brokers[i]));
        } else {
            check_state(&replicas, &next, &m);
            ck_assert_int_eq(next.leader_epoch, has_state ? state.leader_epoch + 1 : 0);
            if (verdict == CONTROLLER_ELECT)
                ck_assert(is_safe(&replicas, &state, &m, next.leader));
            if (verdict == CONTROLLER_OFFLINE) {
                ck_assert_int_eq(next.leader, -1);
                ck_assert_int_eq(next.isr_count, state.isr_count);
                for (int32_t i = 0; i < replicas.count; i++)
                    ck_assert(!m.is_alive[brokers[i]] || !is_safe(&replicas, &state, &m, brokers[i]));
            }
            /* Deciding again on what was decided changes nothing. */
            struct znode_state again;
            ck_assert_int_eq(elect_untold(&replicas, &next, &m.alive, false, &again), CONTROLLER_KEEP);
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
                           next = {0};
        int healthy = 0;
        for (int i = 0; i < 3; i++) {
            m.is_alive[i] = i == 0 || suite_random_below(&seed, 2);
            m.brokers[i].draining = i == 0 || suite_random_below(&seed, 2);
            healthy += m.is_alive[i] && !m.brokers[i].draining;
        }
        refresh(&m);
        enum controller_verdict verdict = elect_untold(&replicas, &state, &m.alive, false, &next);
        ck_assert_int_eq(verdict, healthy ? CONTROLLER_ELECT : CONTROLLER_KEEP);
        if (healthy)
            ck_assert(!m.brokers[next.leader].draining);
    }
}
END_TEST

/* The new leader need not write the state once more: its first acknowledgement waits for the living only. */
START_TEST(who_is_away_leaves_the_isr_with_the_old_leader)
{
    struct cluster_model m;
    int32_t brokers[] = {0, 1, 2, 3};
    struct znode_replicas replicas = {brokers, 4};
    struct znode_state state = {.leader = 0, .isr_count = 4, .isr = {3, 0, 1, 2}, .isr_epochs = {1, 1, 1, 1}}, next;
    begin(&m);
    m.is_alive[0] = m.is_alive[2] = m.is_alive[3] = true;
    refresh(&m);
    ck_assert_int_eq(elect_untold(&replicas, &state, &m.alive, false, &next), CONTROLLER_KEEP); /* its leader's */
    m.is_alive[0] = false;
    refresh(&m);
    ck_assert_int_eq(elect_untold(&replicas, &state, &m.alive, false, &next), CONTROLLER_ELECT);
    ck_assert_int_eq(next.leader, 2);
    ck_assert_int_eq(next.isr_count, 2);
    ck_assert_int_eq(next.isr[0], 3);
    ck_assert_int_eq(next.isr[1], 2);
    m.is_alive[2] = m.is_alive[3] = false; /* nobody: then all of them may come back */
    refresh(&m);
    ck_assert_int_eq(elect_untold(&replicas, &state, &m.alive, false, &next), CONTROLLER_OFFLINE);
    ck_assert_int_eq(next.isr_count, 4);
}
END_TEST

/* Logs that are offline are as if their brokers were about to stop, each for its own partition. */
START_TEST(offline_leader_hands_over_while_another_in_sync_can_lead)
{
    uint64_t seed = suite_seed();
    struct cluster_model m;
    int32_t brokers[] = {0, 1, 2}, offline[3];
    struct znode_replicas replicas = {brokers, 3};
    struct controller_ends none = {0};
    for (int round = 0; round < 1000; round++) {
        begin(&m);
        struct znode_state state = {.leader = 0, .isr_count = 3, .isr = {0, 1, 2}, .isr_epochs = {1, 1, 1}}, unused;
        struct controller_case c = {.replicas = &replicas, .state = &state, .alive = &m.alive, .ends = &none,
                                    .offline = offline};
        struct controller_decision d;
        int healthy = 0;
        for (int i = 0; i < 3; i++) {
            m.is_alive[i] = i == 0 || suite_random_below(&seed, 2);
            m.brokers[i].draining = suite_random_below(&seed, 4) == 0;
            bool is_offline = i == 0 || suite_random_below(&seed, 2);
            if (is_offline)
                offline[c.offline_count++] = i;
            healthy += m.is_alive[i] && !m.brokers[i].draining && !is_offline;
        }
        refresh(&m);
        controller_elect(&c, &d);
        ck_assert_int_eq(d.verdict, healthy ? CONTROLLER_ELECT : CONTROLLER_KEEP);
        if (!healthy)
            continue;
        check_state(&replicas, &d.state, &m);
        ck_assert(!contains(offline, c.offline_count, d.state.leader));
        for (int32_t i = 0; i < d.state.isr_count; i++)
            ck_assert(!contains(offline, c.offline_count, d.state.isr[i]) || !m.is_alive[d.state.isr[i]]);
        /* Offline, it is not given its leadership back. */
        c.state = &d.state;
        ck_assert(!controller_prefer(&c, &unused) || unused.leader != 0);
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
    ck_assert_int_eq(elect_untold(&replicas, &state, &m.alive, false, &next), CONTROLLER_OFFLINE);
    ck_assert_int_eq(elect_untold(&replicas, &state, &m.alive, true, &next), CONTROLLER_OFFLINE);
    struct controller_end end = {.broker_id = 1, .broker_epoch = 1, .leader_epoch = next.leader_epoch, .end = 3};
    struct controller_ends ends = {&end, 1};
    struct controller_case c = {.replicas = &replicas, .state = &next, .alive = &m.alive, .ends = &ends};
    struct controller_decision d;
    controller_elect(&c, &d);
    ck_assert_int_eq(d.verdict, CONTROLLER_KEEP);
    c.unclean = true;
    controller_elect(&c, &d);
    ck_assert_int_eq(d.verdict, CONTROLLER_ELECT);
    ck_assert_int_eq(d.safety, CONTROLLER_UNCLEAN);
    ck_assert_int_eq(d.state.leader, 1);
    ck_assert_int_eq(d.state.isr_count, 1);
    ck_assert_int_eq(d.state.isr[0], 1);
    m.is_alive[0] = true;
    refresh(&m);
    ck_assert_int_eq(elect_untold(&replicas, &state, &m.alive, true, &next), CONTROLLER_KEEP);
    /* It is back before the other one was chosen, as it was. */
    controller_elect(&c, &d);
    ck_assert_int_eq(d.safety, CONTROLLER_SAFE);
    ck_assert_int_eq(d.state.leader, 0);
}
END_TEST

/* One replica each: it leads whenever it lives, in a new epoch after each of its
 * deaths. */
START_TEST(sole_replica_leads_when_it_lives_and_nobody_else_ever_does)
{
    uint64_t seed = suite_seed();
    struct cluster_model m;
    begin(&m);
    int32_t brokers[] = {3};
    struct znode_replicas replicas = {brokers, 1};
    struct znode_state state, next;
    ck_assert_int_eq(elect_untold(&replicas, NULL, &m.alive, false, &state), CONTROLLER_CREATE);
    for (int round = 0; round < suite_rounds(20000); round++) {
        struct znode_state before = state;
        stir(&m, &seed);
        if (elect_untold(&replicas, &state, &m.alive, false, &next) != CONTROLLER_KEEP)
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

/* ---- with knowledge of logs ------------------------------------------------------------------------- */

struct logs {
    struct controller_end list[BROKERS_MAX];
    struct controller_ends ends;
};

/* Every live replica tells, but for `silent`. */
static void tell(struct logs *l, const struct cluster_model *m, const struct znode_replicas *replicas,
                 const struct znode_state *state, int32_t silent, uint64_t *seed)
{
    l->ends = (struct controller_ends){l->list, 0};
    for (int32_t i = 0; i < replicas->count; i++) {
        int32_t b = replicas->brokers[i];
        if (!m->is_alive[b] || b == silent)
            continue;
        l->list[l->ends.count++] =
            (struct controller_end){.broker_id = b,
                                    .broker_epoch = m->brokers[b].broker_epoch,
                                    .leader_epoch = state->leader_epoch,
                                    .last_epoch = (int32_t)suite_random_below(seed, 3),
                                    .end = (int64_t)suite_random_below(seed, 4) - 1};
    }
}

static const struct controller_end *end_of(const struct logs *l, int32_t broker)
{
    for (size_t i = 0; i < l->ends.count; i++)
        if (l->list[i].broker_id == broker)
            return &l->list[i];
    return NULL;
}

static void check_longest(const struct logs *l, int32_t leader)
{
    const struct controller_end *best = end_of(l, leader);
    ck_assert_ptr_nonnull(best);
    ck_assert_int_ge(best->end, 0);
    for (size_t i = 0; i < l->ends.count; i++) {
        const struct controller_end *e = &l->list[i];
        ck_assert(e->end < 0 || e->last_epoch < best->last_epoch ||
                  (e->last_epoch == best->last_epoch && e->end <= best->end));
    }
}

/* After power was lost everywhere: nobody is trusted more than its log is long. */
START_TEST(longest_log_leads_when_all_in_sync_lost_their_page_cache)
{
    uint64_t seed = suite_seed();
    int32_t brokers[] = {0, 1, 2, 3};
    struct znode_replicas replicas = {brokers, 4};
    unsigned elected = 0;
    for (int round = 0; round < suite_rounds(50000); round++) {
        struct cluster_model m;
        struct logs l = {0};
        struct controller_decision d;
        begin(&m);
        struct znode_state state = {.leader = 0, .leader_epoch = 5};
        state.isr_count = 1 + (int32_t)suite_random_below(&seed, 3);
        bool all_live = true;
        for (int32_t i = 0; i < 4; i++) {
            m.is_alive[i] = suite_random_below(&seed, 5) > 0;
            m.brokers[i].broker_epoch = 2;
            if (i < state.isr_count) {
                state.isr[i] = i;
                state.isr_epochs[i] = 1;
                all_live = all_live && m.is_alive[i];
            }
        }
        refresh(&m);
        bool unclean = suite_random_below(&seed, 4) == 0;
        bool leave_out = suite_random_below(&seed, 2);
        struct controller_case c = {&replicas, &state, &m.alive, unclean, leave_out, &l.ends, false, NULL, 0};
        /* First everybody stops following. Ends of before do not count. */
        tell(&l, &m, &replicas, &state, -1, &seed);
        controller_elect(&c, &d);
        ck_assert_int_eq(d.verdict, CONTROLLER_OFFLINE);
        state = d.state;
        controller_elect(&c, &d);
        ck_assert_int_eq(d.verdict, CONTROLLER_KEEP);
        ck_assert_int_eq(controller_wants_ends(&c), m.alive.count > 0 && (all_live || unclean));
        int32_t silent = suite_random_below(&seed, 3) ? -1 : (int32_t)suite_random_below(&seed, 4);
        tell(&l, &m, &replicas, &state, silent, &seed);
        controller_elect(&c, &d);
        if (silent >= 0 && m.is_alive[silent])
            ck_assert_int_eq(d.verdict, CONTROLLER_KEEP);
        if (!all_live && !unclean)
            ck_assert_int_eq(d.verdict, CONTROLLER_KEEP);
        if (m.alive.count < 4 && !leave_out && !unclean) /* whoever is away may have more */
            ck_assert_int_eq(d.verdict, CONTROLLER_KEEP);
        if (d.verdict == CONTROLLER_KEEP)
            continue;
        elected++;
        ck_assert_int_eq(d.safety, all_live ? CONTROLLER_COMPARED : CONTROLLER_UNCLEAN);
        check_state(&replicas, &d.state, &m);
        check_longest(&l, d.state.leader);
    }
    ck_assert_uint_gt(elected, 1000);
}
END_TEST

/* A follower that came back is a death first: it may not stay in the ISR as the one it was. */
START_TEST(member_that_bounced_leaves_the_isr_or_is_listed_anew)
{
    int32_t brokers[] = {0, 1, 2};
    struct znode_replicas replicas = {brokers, 3};
    struct znode_state state = {
        .leader = 0, .leader_epoch = 3, .isr_count = 3, .isr = {0, 1, 2}, .isr_epochs = {1, 1, 1}};
    struct cluster_model m;
    struct controller_decision d;
    struct controller_ends none = {0};
    begin(&m);
    m.is_alive[0] = m.is_alive[1] = true; /* 2 is away: the leader's to drop */
    m.brokers[1].broker_epoch = 2;
    refresh(&m);
    struct controller_case c = {&replicas, &state, &m.alive, false, false, &none, false, NULL, 0};
    controller_elect(&c, &d);
    ck_assert_int_eq(d.verdict, CONTROLLER_ELECT);
    ck_assert_int_eq(d.state.leader, 0);
    ck_assert_int_eq(d.state.leader_epoch, 4);
    ck_assert_int_eq(epoch_in(&d.state, 1), -2);
    ck_assert_int_eq(epoch_in(&d.state, 2), 1);
    m.brokers[1].clean_from = 1;
    refresh(&m);
    controller_elect(&c, &d);
    ck_assert_int_eq(d.verdict, CONTROLLER_ELECT);
    ck_assert_int_eq(epoch_in(&d.state, 1), 2);
}
END_TEST

/* All three died at once, two are back with their disks. */
START_TEST(of_a_durable_topic_the_disk_that_was_registered_counts)
{
    int32_t brokers[] = {0, 1, 2};
    struct znode_replicas replicas = {brokers, 3};
    struct znode_state state = {
        .leader = 2, .leader_epoch = 3, .isr_count = 3, .isr = {0, 1, 2}, .isr_epochs = {4, 5, 6}};
    struct cluster_model m;
    struct controller_decision d;
    struct controller_ends none = {0};
    begin(&m);
    m.is_alive[0] = m.is_alive[1] = true;
    m.brokers[0] = (struct controller_broker){.broker_id = 0, .broker_epoch = 7, .clean_from = -1, .disk_from = 3};
    m.brokers[1] = (struct controller_broker){.broker_id = 1, .broker_epoch = 8, .clean_from = -1, .disk_from = 5};
    refresh(&m);
    struct controller_case c = {&replicas, &state, &m.alive, false, false, &none, .is_durable = true};
    controller_elect(&c, &d);
    ck_assert_int_eq(d.verdict, CONTROLLER_ELECT);
    ck_assert_int_eq(d.safety, CONTROLLER_SAFE);
    ck_assert_int_eq(d.state.leader, 1);
    ck_assert_int_eq(epoch_in(&d.state, 0), -2); /* an older disk than the one it was counted with */
    ck_assert_int_eq(epoch_in(&d.state, 1), 8);
    ck_assert_int_eq(epoch_in(&d.state, 2), -2); /* away: it may come back */
    m.brokers[1].disk_from = -1; /* empty */
    refresh(&m);
    controller_elect(&c, &d);
    ck_assert_int_eq(d.verdict, CONTROLLER_OFFLINE);
    m.brokers[1].disk_from = 5;
    refresh(&m);
    c.is_durable = false;
    controller_elect(&c, &d);
    ck_assert_int_eq(d.verdict, CONTROLLER_OFFLINE);
}
END_TEST

START_TEST(preferred_replica_leads_again_only_when_it_is_in_sync)
{
    uint64_t seed = suite_seed();
    int32_t brokers[] = {0, 1, 2};
    struct znode_replicas replicas = {brokers, 3};
    struct controller_ends none = {0};
    for (int round = 0; round < suite_rounds(20000); round++) {
        struct cluster_model m;
        struct znode_state next;
        struct znode_state state = {
            .leader = 1, .leader_epoch = 3, .isr_count = 2, .isr = {1, 0}, .isr_epochs = {1, 1}};
        begin(&m);
        m.is_alive[0] = m.is_alive[1] = m.is_alive[2] = true;
        refresh(&m);
        for (int i = 0; i < 3; i++)
            stir(&m, &seed);
        struct controller_case c = {&replicas, &state, &m.alive, false, false, &none, false, NULL, 0};
        bool may = m.is_alive[0] && m.brokers[0].broker_epoch == 1 && !m.brokers[0].draining;
        bool well = m.is_alive[1] && m.brokers[1].broker_epoch == 1;
        bool is_given = controller_prefer(&c, &next);
        if (!may)
            ck_assert(!is_given);
        if (!is_given)
            continue;
        ck_assert(well);
        ck_assert_int_eq(next.leader, 0);
        ck_assert_int_eq(next.leader_epoch, 4);
        check_state(&replicas, &next, &m);
    }
}
END_TEST

START_TEST(draining_followers_leave_the_isr_while_others_remain)
{
    int32_t brokers[] = {0, 1};
    struct znode_replicas replicas = {brokers, 2};
    struct znode_state state = {.leader = 0, .isr_count = 2, .isr = {0, 1}, .isr_epochs = {1, 1}}, next;
    struct cluster_model m;
    begin(&m);
    m.is_alive[0] = m.is_alive[1] = true;
    m.brokers[1].draining = true;
    refresh(&m);
    ck_assert_int_eq(elect_untold(&replicas, &state, &m.alive, false, &next), CONTROLLER_ELECT);
    ck_assert_int_eq(next.leader, 0);
    ck_assert_int_eq(next.isr_count, 1);
    m.brokers[0].draining = true; /* all of them: then nobody has to go */
    refresh(&m);
    ck_assert_int_eq(elect_untold(&replicas, &state, &m.alive, false, &next), CONTROLLER_KEEP);
}
END_TEST

SUITE_MAIN("property/controller", SUITE_TEST_SLOW(elections_keep_the_invariants, 60),
           SUITE_TEST(draining_leader_stays_only_when_there_is_no_other),
           SUITE_TEST(who_is_away_leaves_the_isr_with_the_old_leader),
           SUITE_TEST(offline_leader_hands_over_while_another_in_sync_can_lead),
           SUITE_TEST(unclean_election_takes_a_live_replica_only_as_the_last_resort),
           SUITE_TEST(sole_replica_leads_when_it_lives_and_nobody_else_ever_does),
           SUITE_TEST_SLOW(longest_log_leads_when_all_in_sync_lost_their_page_cache, 60),
           SUITE_TEST(member_that_bounced_leaves_the_isr_or_is_listed_anew),
           SUITE_TEST(of_a_durable_topic_the_disk_that_was_registered_counts),
           SUITE_TEST(preferred_replica_leads_again_only_when_it_is_in_sync),
           SUITE_TEST(draining_followers_leave_the_isr_while_others_remain))
