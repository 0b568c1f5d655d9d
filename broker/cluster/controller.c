#include "broker/cluster/controller.h"

#include "broker/replication/election.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static int compare_broker(const void *key, const void *entry)
{
    int32_t a = *(const int32_t *)key;
    int32_t b = ((const struct controller_broker *)entry)->broker_id;
    return (a > b) - (a < b);
}

const struct controller_broker *controller_find_broker(const struct controller_brokers *alive,
                                                       int32_t broker_id)
{
    if (!alive->count)
        return NULL;
    return bsearch(&broker_id, alive->brokers, alive->count, sizeof *alive->brokers, compare_broker);
}

bool controller_is_assigned(const struct znode_replicas *replicas, int32_t broker_id)
{
    for (int32_t i = 0; i < replicas->count; i++)
        if (replicas->brokers[i] == broker_id)
            return true;
    return false;
}

static int32_t isr_index(const struct znode_state *state, int32_t broker_id)
{
    for (int32_t i = 0; i < state->isr_count; i++)
        if (state->isr[i] == broker_id)
            return i;
    return -1;
}

/* ---- who counts ------------------------------------------------------------------------------------- */

bool controller_is_same_life(const struct controller_case *c, int32_t broker_id)
{
    int32_t index = isr_index(c->state, broker_id);
    const struct controller_broker *broker = controller_find_broker(c->alive, broker_id);
    return index >= 0 && broker && c->state->isr_epochs[index] == broker->broker_epoch;
}

/* The life of which the broker has kept all that was acknowledged: the listed one, if it is one of those. */
static int64_t kept_from(const struct controller_case *c, const struct controller_broker *broker, int64_t listed)
{
    return c->is_durable && broker->disk_from == listed ? broker->disk_from : broker->clean_from;
}

bool controller_counts(const struct controller_case *c, int32_t broker_id)
{
    int32_t index = isr_index(c->state, broker_id);
    const struct controller_broker *broker = controller_find_broker(c->alive, broker_id);
    if (index < 0 || !broker)
        return false;
    int64_t listed = c->state->isr_epochs[index];
    /* Nobody has data yet, or there is nobody else who ever had it. */
    if (c->state->isr_count == 1 && (listed < 0 || c->replicas->count == 1))
        return true;
    return listed == broker->broker_epoch || (listed >= 0 && listed == kept_from(c, broker, listed));
}

void controller_carry_isr(const struct controller_case *c, struct znode_state *ret)
{
    const struct znode_state *state = c->state;
    int32_t count = 0;
    for (int32_t i = 0; i < state->isr_count; i++) {
        const struct controller_broker *broker = controller_find_broker(c->alive, state->isr[i]);
        if (!controller_is_assigned(c->replicas, state->isr[i]) ||
            (broker && !controller_counts(c, state->isr[i])))
            continue;
        ret->isr[count] = state->isr[i];
        ret->isr_epochs[count++] = broker ? broker->broker_epoch : state->isr_epochs[i];
    }
    ret->isr_count = count;
}

/* Those that are away leave with the old leader, as the new one would have them leave at once. */
static void drop_absent(const struct controller_case *c, struct znode_state *state)
{
    int32_t count = 0;
    for (int32_t i = 0; i < state->isr_count; i++) {
        if (!controller_find_broker(c->alive, state->isr[i]))
            continue;
        state->isr[count] = state->isr[i];
        state->isr_epochs[count++] = state->isr_epochs[i];
    }
    state->isr_count = count;
}

bool controller_is_leaving(const struct controller_case *c, int32_t broker_id)
{
    const struct controller_broker *broker = controller_find_broker(c->alive, broker_id);
    for (int32_t i = 0; broker && i < c->offline_count; i++)
        if (c->offline[i] == broker_id)
            return true;
    return broker && broker->draining;
}

/* Those that are about to stop, or offline, make way for a leader that is not. */
static void drop_leaving(const struct controller_case *c, struct znode_state *state)
{
    int32_t count = 0;
    if (controller_is_leaving(c, state->leader))
        return;
    for (int32_t i = 0; i < state->isr_count; i++) {
        if (controller_is_leaving(c, state->isr[i]))
            continue;
        state->isr[count] = state->isr[i];
        state->isr_epochs[count++] = state->isr_epochs[i];
    }
    state->isr_count = count;
}

/* ---- the leader ------------------------------------------------------------------------------------- */

/* The first assigned replica that counts; one that is about to stop, or offline, only if there is no other. */
static const struct controller_broker *choose(const struct controller_case *c)
{
    const struct controller_broker *second_best = NULL;
    for (int32_t i = 0; i < c->replicas->count; i++) {
        const struct controller_broker *broker = controller_find_broker(c->alive, c->replicas->brokers[i]);
        if (!controller_counts(c, c->replicas->brokers[i]))
            continue;
        if (!controller_is_leaving(c, broker->broker_id))
            return broker;
        if (!second_best)
            second_best = broker;
    }
    return second_best;
}

/* A leader that goes on leading: alive since it was counted, still assigned, not about to stop or offline while
 * another could. */
static bool leader_is_well(const struct controller_case *c)
{
    int32_t leader = c->state->leader;
    if (leader < 0 || !controller_is_same_life(c, leader) || !controller_is_assigned(c->replicas, leader))
        return false;
    if (!controller_is_leaving(c, leader))
        return true;
    const struct controller_broker *other = choose(c);
    return !other || controller_is_leaving(c, other->broker_id);
}

static const struct controller_end *find_end(const struct controller_case *c,
                                             const struct controller_broker *broker)
{
    for (size_t i = 0; i < c->ends->count; i++) {
        const struct controller_end *end = &c->ends->ends[i];
        if (end->broker_id == broker->broker_id && end->broker_epoch == broker->broker_epoch &&
            end->leader_epoch == c->state->leader_epoch)
            return end;
    }
    return NULL;
}

static bool is_longer(const struct controller_end *a, const struct controller_end *b)
{
    return a->last_epoch != b->last_epoch ? a->last_epoch > b->last_epoch : a->end > b->end;
}

/* Of those that live the one with the longest log; of equals one in the ISR, then the first assigned. NULL: not
 * all have told, or none has a log. */
static const struct controller_broker *longest_alive(const struct controller_case *c)
{
    const struct controller_broker *best = NULL;
    const struct controller_end *best_end = NULL;
    for (int32_t i = 0; i < c->replicas->count; i++) {
        const struct controller_broker *broker = controller_find_broker(c->alive, c->replicas->brokers[i]);
        const struct controller_end *end = broker ? find_end(c, broker) : NULL;
        if (broker && !end)
            return NULL;
        if (!broker || end->end < 0)
            continue;
        bool is_equal = best && !is_longer(end, best_end) && !is_longer(best_end, end);
        if (!best || is_longer(end, best_end) ||
            (is_equal && isr_index(c->state, broker->broker_id) >= 0 &&
             isr_index(c->state, best->broker_id) < 0)) {
            best = broker;
            best_end = end;
        }
    }
    return best;
}

static bool all_members_live(const struct controller_case *c)
{
    for (int32_t i = 0; i < c->state->isr_count; i++)
        if (!controller_find_broker(c->alive, c->state->isr[i]))
            return false;
    return true;
}

static bool some_replica_lives(const struct controller_case *c)
{
    for (int32_t i = 0; i < c->replicas->count; i++)
        if (controller_find_broker(c->alive, c->replicas->brokers[i]))
            return true;
    return false;
}

bool controller_wants_ends(const struct controller_case *c)
{
    return c->state && c->replicas->count > 1 && !leader_is_well(c) && !choose(c) && some_replica_lives(c) &&
           (all_members_live(c) || c->unclean);
}

/* ---- verdicts --------------------------------------------------------------------------------------- */

static void lead_alone(struct znode_state *ret, const struct controller_broker *leader)
{
    ret->leader = leader->broker_id;
    ret->isr_count = 1;
    ret->isr[0] = leader->broker_id;
    ret->isr_epochs[0] = leader->broker_epoch;
}

static void create(const struct controller_case *c, struct controller_decision *ret)
{
    struct znode_state state = {.leader = -1};
    const struct controller_broker *leader = NULL;
    for (int32_t i = 0; i < c->replicas->count && i < ZNODE_REPLICAS_MAX; i++) {
        const struct controller_broker *broker = controller_find_broker(c->alive, c->replicas->brokers[i]);
        if (!broker)
            continue;
        state.isr[state.isr_count] = broker->broker_id;
        state.isr_epochs[state.isr_count++] = broker->broker_epoch;
        if (!leader || (controller_is_leaving(c, leader->broker_id) && !controller_is_leaving(c, broker->broker_id)))
            leader = broker;
    }
    if (c->replicas->count == 0)
        return;
    if (leader) {
        state.leader = leader->broker_id;
        drop_leaving(c, &state);
    } else {
        /* Nobody has data yet, so whoever is preferred may lead when it comes. */
        state.isr_count = 1;
        state.isr[0] = c->replicas->brokers[0];
        state.isr_epochs[0] = -1;
    }
    ret->verdict = CONTROLLER_CREATE;
    ret->state = state;
}

static void set_elected(struct controller_decision *ret, const struct znode_state *next,
                        enum controller_safety safety)
{
    ret->verdict = CONTROLLER_ELECT;
    ret->safety = safety;
    ret->state = *next;
}

/* The leader is well. What became of those in sync? */
static void tend_isr(const struct controller_case *c, struct controller_decision *ret)
{
    struct znode_state next = *c->state;
    controller_carry_isr(c, &next);
    drop_leaving(c, &next);
    bool same = next.isr_count == c->state->isr_count;
    for (int32_t i = 0; same && i < next.isr_count; i++)
        same = next.isr[i] == c->state->isr[i] && next.isr_epochs[i] == c->state->isr_epochs[i];
    if (same)
        return;
    next.leader_epoch++;
    set_elected(ret, &next, CONTROLLER_SAFE);
}

static void go_offline(const struct controller_case *c, struct controller_decision *ret)
{
    if (c->state->leader < 0)
        return;
    ret->verdict = CONTROLLER_OFFLINE;
    ret->state = *c->state;
    ret->state.leader = -1;
    ret->state.leader_epoch++;
}

/* Members of the ISR are away: whoever leads meanwhile may lack what they have. */
static void elect_unclean(const struct controller_case *c, struct controller_decision *ret)
{
    const struct controller_broker *leader = c->unclean && c->state->leader < 0 ? longest_alive(c) : NULL;
    if (!leader) {
        go_offline(c, ret);
        return;
    }
    struct znode_state next = *c->state;
    next.leader_epoch++;
    lead_alone(&next, leader);
    set_elected(ret, &next, CONTROLLER_UNCLEAN);
}

static void describe_replica(const struct controller_case *c, int32_t broker_id, struct election_replica *ret)
{
    const struct controller_broker *broker = controller_find_broker(c->alive, broker_id);
    const struct controller_end *end = broker ? find_end(c, broker) : NULL;
    int32_t index = isr_index(c->state, broker_id);
    int64_t listed = index >= 0 ? c->state->isr_epochs[index] : -1;
    *ret = (struct election_replica){.broker_id = broker_id,
                                     .broker_epoch = broker ? broker->broker_epoch : -1,
                                     .kept_from = broker ? kept_from(c, broker, listed) : -1,
                                     .report.broker_epoch = -1};
    if (end)
        ret->report =
            (struct election_report){end->broker_epoch, end->leader_epoch, end->last_epoch, end->end};
}

/* Nobody who counts is alive. */
static void elect_in_doubt(const struct controller_case *c, struct controller_decision *ret)
{
    struct election_replica replicas[ZNODE_REPLICAS_MAX];
    struct znode_state next;
    int32_t count = c->replicas->count < ZNODE_REPLICAS_MAX ? c->replicas->count : ZNODE_REPLICAS_MAX;
    for (int32_t i = 0; i < count; i++)
        describe_replica(c, c->replicas->brokers[i], &replicas[i]);
    switch (election_compare(replicas, count, c->state, c->leave_out_absent || c->unclean, &next)) {
    case ELECTION_CERTAIN:
        elect_unclean(c, ret);
        break;
    case ELECTION_FREEZE:
        go_offline(c, ret);
        break;
    case ELECTION_ASK:
        break;
    case ELECTION_LEAD:
        if (find_end(c, controller_find_broker(c->alive, next.leader))->end >= 0)
            set_elected(ret, &next, CONTROLLER_COMPARED);
        break;
    }
}

void controller_elect(const struct controller_case *c, struct controller_decision *ret)
{
    assert(c->ends);
    *ret = (struct controller_decision){.verdict = CONTROLLER_KEEP};
    if (!c->state)
        return create(c, ret);
    if (leader_is_well(c))
        return tend_isr(c, ret);
    const struct controller_broker *leader = choose(c);
    if (!leader)
        return elect_in_doubt(c, ret);
    struct znode_state next = *c->state;
    next.leader_epoch++;
    next.leader = leader->broker_id;
    controller_carry_isr(c, &next);
    drop_absent(c, &next);
    drop_leaving(c, &next);
    assert(isr_index(&next, next.leader) >= 0);
    set_elected(ret, &next, CONTROLLER_SAFE);
}

bool controller_prefer(const struct controller_case *c, struct znode_state *ret)
{
    if (!c->state || !c->replicas->count || !leader_is_well(c))
        return false;
    int32_t preferred = c->replicas->brokers[0];
    if (c->state->leader == preferred || controller_is_leaving(c, preferred) || !controller_is_same_life(c, preferred))
        return false;
    struct znode_state next = *c->state;
    next.leader_epoch++;
    next.leader = preferred;
    controller_carry_isr(c, &next);
    drop_leaving(c, &next);
    *ret = next;
    return true;
}
