/* A partition that is moved about while brokers die, drain and come back: the steps between the lists, and
 * what is true of the state after each. */
#include "broker/cluster/reassignment.h"
#include "tests/property/controller_model.h"

#define ROUNDS 100000

static const struct controller_ends no_ends;

struct world {
    struct cluster_model m;
    struct reassignment r;
    struct reassignment_list origin; /* the set before whatever runs */
    struct znode_state state;
    uint64_t seed;
};

static struct znode_replicas replicas_of(const struct reassignment_list *list)
{
    return (struct znode_replicas){(int32_t *)(uintptr_t)list->brokers, list->count};
}

static bool in_list(const struct reassignment_list *list, int32_t broker)
{
    return contains(list->brokers, list->count, broker);
}

static struct reassignment_list random_list(struct world *w)
{
    struct reassignment_list list = {0};
    int32_t first = (int32_t)suite_random_below(&w->seed, BROKERS_MAX);
    int32_t count = 1 + (int32_t)suite_random_below(&w->seed, 4);
    int32_t step = suite_random_below(&w->seed, 2) ? 1 : 3;
    for (int32_t i = 0; i < count; i++)
        list.brokers[list.count++] = (first + i * step) % BROKERS_MAX;
    return list;
}

static struct controller_case case_of(const struct world *w, const struct znode_replicas *replicas)
{
    return (struct controller_case){
        .replicas = replicas, .state = &w->state, .alive = &w->m.alive, .ends = &no_ends};
}

/* A member that has every acknowledged record: it was counted, and has not lost its page cache since. */
static bool has_all(const struct world *w, const struct znode_state *state, int32_t broker)
{
    int64_t epoch = epoch_in(state, broker);
    const struct controller_broker *b = &w->m.brokers[broker];
    return w->m.is_alive[broker] && epoch != -2 && (epoch == b->broker_epoch || epoch == b->clean_from);
}

/* What the leader does: replicas that live catch up, those that are away are dropped. */
static void leader_tends(struct world *w)
{
    struct znode_state *s = &w->state;
    if (s->leader < 0 || !w->m.is_alive[s->leader] ||
        epoch_in(s, s->leader) != w->m.brokers[s->leader].broker_epoch)
        return;
    int32_t b = (int32_t)suite_random_below(&w->seed, BROKERS_MAX);
    bool is_member = epoch_in(s, b) != -2;
    if (in_list(&w->r.replicas, b) && w->m.is_alive[b] && !is_member && !w->m.brokers[b].draining) {
        s->isr[s->isr_count] = b;
        s->isr_epochs[s->isr_count++] = w->m.brokers[b].broker_epoch;
    } else if (is_member && !w->m.is_alive[b] && b != s->leader) {
        int32_t at = 0;
        for (int32_t i = 0; i < s->isr_count; i++) {
            s->isr_epochs[at] = s->isr_epochs[i];
            s->isr[at] = s->isr[i];
            at += s->isr[i] != b;
        }
        s->isr_count = at;
    }
}

static void check_lists(const struct world *w)
{
    const struct reassignment *r = &w->r;
    for (int32_t i = 0; i < r->replicas.count; i++) {
        ck_assert(!contains(r->replicas.brokers, i, r->replicas.brokers[i]));
        int32_t b = r->replicas.brokers[i];
        if (!reassignment_is_running(r))
            continue;
        ck_assert_int_eq(in_list(&r->removing, b), !in_list(&r->target, b));
        ck_assert_int_eq(in_list(&r->adding, b), !in_list(&w->origin, b));
    }
    for (int32_t i = 0; i < r->target.count && reassignment_is_running(r); i++)
        ck_assert(in_list(&r->replicas, r->target.brokers[i]));
    /* Whoever is named as coming or going is there. */
    for (int32_t i = 0; i < r->adding.count; i++)
        ck_assert(in_list(&r->replicas, r->adding.brokers[i]));
    for (int32_t i = 0; i < r->removing.count; i++)
        ck_assert(in_list(&r->replicas, r->removing.brokers[i]));
}

static void change_course(struct world *w)
{
    struct reassignment next;
    struct reassignment_list target = random_list(w);
    if (suite_random_below(&w->seed, 3) == 0) {
        int err = reassignment_cancel(&w->r, &next);
        ck_assert_int_eq(err, reassignment_is_running(&w->r) ? 0 : -BROOK_E_NO_REASSIGNMENT);
        if (err)
            return;
        ck_assert_int_eq(next.target.count, w->origin.count);
        for (int32_t i = 0; i < next.target.count; i++)
            ck_assert_int_eq(next.target.brokers[i], w->origin.brokers[i]);
    } else {
        ck_assert_int_eq(reassignment_begin(&w->r, &target, &next, NULL), 0);
    }
    w->r = next;
    if (!reassignment_is_running(&w->r))
        w->origin = w->r.replicas;
}

/* A step is taken only if nothing that was acknowledged can be lost by it. */
static bool take_step(struct world *w)
{
    struct znode_replicas all = replicas_of(&w->r.replicas), target = replicas_of(&w->r.target);
    struct controller_case c = case_of(w, &all);
    struct znode_state next;
    enum reassignment_verdict verdict = reassignment_step(&w->r, &c, &next);
    ck_assert_int_eq(verdict == REASSIGNMENT_NONE, !reassignment_is_running(&w->r));
    if (verdict != REASSIGNMENT_FINISH)
        return false;
    check_state(&target, &next, &w->m);
    ck_assert_int_ge(next.leader, 0);
    ck_assert_int_eq(next.leader_epoch, w->state.leader_epoch + 1);
    ck_assert(has_all(w, &w->state, next.leader));
    for (int32_t i = 0; i < next.isr_count; i++)
        ck_assert(epoch_in(&w->state, next.isr[i]) != -2);
    if (!reassignment_is_cancelled(&w->r))
        for (int32_t i = 0; i < w->r.target.count; i++)
            ck_assert(has_all(w, &w->state, w->r.target.brokers[i]));
    w->state = next;
    reassignment_finish(&w->r);
    w->origin = w->r.replicas;
    return true;
}

static void elect(struct world *w)
{
    struct znode_replicas all = replicas_of(&w->r.replicas);
    struct controller_case c = case_of(w, &all);
    struct controller_decision decision;
    controller_elect(&c, &decision);
    if (decision.verdict != CONTROLLER_KEEP) {
        check_state(&all, &decision.state, &w->m);
        w->state = decision.state;
    }
}

static void begin_world(struct world *w)
{
    begin(&w->m);
    for (int i = 0; i < BROKERS_MAX; i++)
        w->m.is_alive[i] = true;
    refresh(&w->m);
    w->origin = random_list(w);
    memset(&w->r, 0, sizeof w->r);
    w->r.replicas = w->r.target = w->origin;
    struct znode_replicas all = replicas_of(&w->origin);
    elect_untold(&all, NULL, &w->m.alive, false, &w->state);
}

START_TEST(partitions_are_moved_without_losing_what_was_acknowledged)
{
    struct world w = {.seed = suite_seed()};
    begin_world(&w);
    unsigned finished = 0;
    for (int round = 0; round < suite_rounds(ROUNDS); round++) {
        switch (suite_random_below(&w.seed, 8)) {
        case 0:
            stir(&w.m, &w.seed);
            break;
        case 1:
            change_course(&w);
            break;
        case 2:
            finished += take_step(&w);
            break;
        case 3:
            elect(&w);
            break;
        default:
            leader_tends(&w);
        }
        check_lists(&w);
        if (suite_random_below(&w.seed, 200) == 0)
            begin_world(&w);
    }
    ck_assert_uint_gt(finished, (unsigned)suite_rounds(ROUNDS) / 1000);
}
END_TEST

/* When brokers stay up and followers catch up, every plan and every cancellation comes to its end. */
START_TEST(every_move_ends_when_the_brokers_stay)
{
    struct world w = {.seed = suite_seed()};
    for (int round = 0; round < suite_rounds(2000); round++) {
        begin_world(&w);
        for (int i = 0; i < 4; i++) {
            change_course(&w);
            leader_tends(&w);
        }
        struct reassignment_list target = reassignment_is_running(&w.r) ? w.r.target : w.r.replicas;
        for (int turn = 0; turn < 400 && reassignment_is_running(&w.r); turn++) {
            leader_tends(&w);
            elect(&w);
            take_step(&w);
        }
        ck_assert(!reassignment_is_running(&w.r));
        ck_assert_int_eq(w.r.replicas.count, target.count);
        for (int32_t i = 0; i < target.count; i++)
            ck_assert_int_eq(w.r.replicas.brokers[i], target.brokers[i]);
    }
}
END_TEST

START_TEST(cancelling_waits_for_an_old_replica_that_can_lead)
{
    struct world w = {.seed = 1};
    struct reassignment_list target = {2, {4, 5}};
    struct reassignment next;
    begin_world(&w);
    w.r.replicas = w.origin = (struct reassignment_list){2, {1, 2}};
    ck_assert_int_eq(reassignment_begin(&w.r, &target, &next, NULL), 0);
    w.r = next;
    ck_assert_int_eq(reassignment_cancel(&w.r, &next), 0);
    w.r = next;
    ck_assert(reassignment_is_cancelled(&w.r));
    w.state = (struct znode_state){
        .leader = 4, .leader_epoch = 7, .isr_count = 2, .isr = {4, 5}, .isr_epochs = {1, 1}};
    ck_assert(!take_step(&w)); /* 1 and 2 lack what 4 and 5 have acknowledged since */
    w.state.isr[1] = 2;
    ck_assert(take_step(&w));
    ck_assert_int_eq(w.state.leader, 2);
    ck_assert_int_eq(w.state.isr_count, 1);
    ck_assert_int_eq(w.r.replicas.brokers[0], 1);
}
END_TEST

START_TEST(lists_that_make_no_sense_are_refused)
{
    struct reassignment now = {.replicas = {2, {1, 2}}}, next;
    struct brook_error error;
    struct reassignment_list none = {0}, twice = {3, {1, 3, 1}}, many = {ZNODE_REPLICAS_MAX, {0}};
    for (int32_t i = 0; i < many.count; i++)
        many.brokers[i] = 100 + i;
    ck_assert_int_eq(reassignment_begin(&now, &none, &next, &error), -BROOK_E_INVALID_REPLICAS);
    ck_assert_int_eq(reassignment_begin(&now, &twice, &next, &error), -BROOK_E_INVALID_REPLICAS);
    ck_assert_int_eq(reassignment_begin(&now, &many, &next, &error), -BROOK_E_INVALID_REPLICAS);
    ck_assert_int_eq(reassignment_cancel(&now, &next), -BROOK_E_NO_REASSIGNMENT);
    struct reassignment_list other_order = {2, {2, 1}};
    ck_assert_int_eq(reassignment_begin(&now, &other_order, &next, &error), 0);
    ck_assert(!reassignment_is_running(&next));
    ck_assert_int_eq(next.replicas.brokers[0], 2);
}
END_TEST

SUITE_MAIN("property/reassignment",
           SUITE_TEST_SLOW(partitions_are_moved_without_losing_what_was_acknowledged, 60),
           SUITE_TEST_SLOW(every_move_ends_when_the_brokers_stay, 60),
           SUITE_TEST(cancelling_waits_for_an_old_replica_that_can_lead),
           SUITE_TEST(lists_that_make_no_sense_are_refused))
