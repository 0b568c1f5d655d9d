#include "broker/cluster/controller.h"

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

static bool is_assigned(const struct znode_replicas *replicas, int32_t broker_id)
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

/* Whether this registration of the broker is the one that the state counted. */
static bool is_same_life(const struct znode_state *state, int32_t index,
                         const struct controller_broker *broker)
{
    return broker && state->isr_epochs[index] == broker->broker_epoch;
}

static bool is_in_sync(const struct znode_state *state, int32_t index, const struct controller_broker *broker)
{
    if (!broker)
        return false;
    if (is_same_life(state, index, broker) || state->isr_count == 1)
        return true;
    return state->isr_epochs[index] >= 0 && state->isr_epochs[index] == broker->clean_from;
}

/* The members that stay when `leader` takes over: those in sync, and those that are away but may come back
 * with their data: only their leader may drop these. A member that lives and lost its page cache is out at
 * once. */
static void carry_isr(const struct znode_replicas *replicas, const struct znode_state *state,
                      const struct controller_brokers *alive, struct znode_state *ret)
{
    ret->isr_count = 0;
    for (int32_t i = 0; i < state->isr_count; i++) {
        const struct controller_broker *broker = controller_find_broker(alive, state->isr[i]);
        if (!is_assigned(replicas, state->isr[i]) || (broker && !is_in_sync(state, i, broker)))
            continue;
        int32_t at = ret->isr_count++;
        ret->isr[at] = state->isr[i];
        ret->isr_epochs[at] = broker ? broker->broker_epoch : state->isr_epochs[i];
    }
}

static void lead_alone(struct znode_state *ret, const struct controller_broker *leader)
{
    ret->leader = leader->broker_id;
    ret->isr_count = 1;
    ret->isr[0] = leader->broker_id;
    ret->isr_epochs[0] = leader->broker_epoch;
}

/* The first assigned replica that lives and is in sync; one that is about to stop only if there is no other.
 */
static const struct controller_broker *choose(const struct znode_replicas *replicas,
                                              const struct znode_state *state,
                                              const struct controller_brokers *alive)
{
    const struct controller_broker *second_best = NULL;
    for (int32_t i = 0; i < replicas->count; i++) {
        const struct controller_broker *broker = controller_find_broker(alive, replicas->brokers[i]);
        int32_t index = isr_index(state, replicas->brokers[i]);
        if (index < 0 || !is_in_sync(state, index, broker))
            continue;
        if (!broker->draining)
            return broker;
        if (!second_best)
            second_best = broker;
    }
    return second_best;
}

static const struct controller_broker *first_alive(const struct znode_replicas *replicas,
                                                   const struct controller_brokers *alive)
{
    for (int32_t i = 0; i < replicas->count; i++) {
        const struct controller_broker *broker = controller_find_broker(alive, replicas->brokers[i]);
        if (broker)
            return broker;
    }
    return NULL;
}

static enum controller_verdict create(const struct znode_replicas *replicas,
                                      const struct controller_brokers *alive, struct znode_state *ret)
{
    struct znode_state state = {.leader = -1, .leader_epoch = 0};
    const struct controller_broker *leader = NULL;
    for (int32_t i = 0; i < replicas->count && i < ZNODE_REPLICAS_MAX; i++) {
        const struct controller_broker *broker = controller_find_broker(alive, replicas->brokers[i]);
        if (!broker)
            continue;
        state.isr[state.isr_count] = broker->broker_id;
        state.isr_epochs[state.isr_count++] = broker->broker_epoch;
        if (!leader || (leader->draining && !broker->draining))
            leader = broker;
    }
    if (leader) {
        state.leader = leader->broker_id;
    } else if (replicas->count > 0) {
        /* Nobody has data yet, so whoever is preferred may lead when it comes. */
        state.isr_count = 1;
        state.isr[0] = replicas->brokers[0];
        state.isr_epochs[0] = -1;
    } else {
        return CONTROLLER_KEEP;
    }
    *ret = state;
    return CONTROLLER_CREATE;
}

/* A leader that goes on leading: alive since it was counted, still assigned, not about to stop while another
 * could. */
static bool leader_is_well(const struct znode_replicas *replicas, const struct znode_state *state,
                           const struct controller_brokers *alive)
{
    int32_t index = isr_index(state, state->leader);
    const struct controller_broker *leader = controller_find_broker(alive, state->leader);
    if (index < 0 || !is_same_life(state, index, leader) || !is_assigned(replicas, state->leader))
        return false;
    if (!leader->draining)
        return true;
    const struct controller_broker *other = choose(replicas, state, alive);
    return !other || other->draining;
}

enum controller_verdict controller_decide(const struct znode_replicas *replicas,
                                          const struct znode_state *state,
                                          const struct controller_brokers *alive, bool unclean,
                                          struct znode_state *ret)
{
    if (!state)
        return create(replicas, alive, ret);
    if (state->leader >= 0 && leader_is_well(replicas, state, alive))
        return CONTROLLER_KEEP;

    struct znode_state next = *state;
    next.leader_epoch = state->leader_epoch + 1;
    const struct controller_broker *leader = choose(replicas, state, alive);
    if (leader) {
        carry_isr(replicas, state, alive, &next);
        next.leader = leader->broker_id;
        assert(isr_index(&next, next.leader) >= 0);
        *ret = next;
        return CONTROLLER_ELECT;
    }
    leader = unclean ? first_alive(replicas, alive) : NULL;
    if (leader) {
        lead_alone(&next, leader);
        *ret = next;
        return CONTROLLER_ELECT;
    }
    if (state->leader < 0)
        return CONTROLLER_KEEP;
    next.leader = -1;
    *ret = next;
    return CONTROLLER_OFFLINE;
}

int controller_place(const struct controller_brokers *alive, uint64_t start, int32_t count, int32_t *brokers)
{
    size_t usable = 0;
    for (size_t i = 0; i < alive->count; i++)
        usable += !alive->brokers[i].draining;
    bool any = usable == 0;
    if (any)
        usable = alive->count;
    if (!usable)
        return brook_error_set(NULL, BROOK_E_BROKER_NOT_AVAILABLE, "no broker is alive");
    size_t at = (size_t)(start % usable); /* the at-th usable one */
    size_t index = 0;
    for (size_t seen = 0;; index++) {
        if (!any && alive->brokers[index].draining)
            continue;
        if (seen++ == at)
            break;
    }
    for (int32_t i = 0; i < count; i++) {
        brokers[i] = alive->brokers[index].broker_id;
        do
            index = (index + 1) % alive->count;
        while (!any && alive->brokers[index].draining);
    }
    return 0;
}
