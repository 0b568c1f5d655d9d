#include "broker/replication/replica_role.h"

#include "proto/base/err.h"

#include <assert.h>

void replica_role_init(struct replica_role *role)
{
    *role = (struct replica_role){.step = {.duty = REPLICA_IDLE, .leader = -1, .leader_epoch = -1},
                                  .is_complete = true};
}

/* With which broker epoch the state lists the broker; -2: not at all. */
static int64_t listed_epoch(const struct znode_state *state, int32_t broker_id)
{
    for (int32_t i = 0; i < state->isr_count; i++)
        if (state->isr[i] == broker_id)
            return state->isr_epochs[i];
    return -2;
}

static enum replica_duty duty_of(const struct replica_self *self, const struct znode_state *state)
{
    if (!self->is_assigned)
        return REPLICA_LEAVE;
    if (state->leader < 0)
        return REPLICA_IDLE;
    if (state->leader != self->broker_id)
        return REPLICA_FOLLOW;
    return listed_epoch(state, self->broker_id) == self->broker_epoch ? REPLICA_LEAD : REPLICA_IDLE;
}

enum replica_verdict replica_role_decide(const struct replica_role *role, const struct replica_self *self,
                                         const struct znode_state *state, struct replica_step *ret)
{
    const struct replica_step *last = &role->step;
    if (state->leader_epoch < last->leader_epoch || state->leader_epoch < self->log_epoch)
        return REPLICA_REFUSE;
    struct replica_step step = {duty_of(self, state), state->leader, state->leader_epoch};
    bool is_same_epoch = step.leader_epoch == last->leader_epoch;
    if (is_same_epoch && step.leader != last->leader)
        return REPLICA_REFUSE;
    if (is_same_epoch && last->duty == REPLICA_LEAD && step.duty == REPLICA_IDLE)
        step.duty = REPLICA_LEAD; /* the same process under a new registration */
    *ret = step;
    return is_same_epoch && step.duty == last->duty && role->is_complete ? REPLICA_KEEP : REPLICA_CHANGE;
}

void replica_role_begin(struct replica_role *role, const struct replica_step *step)
{
    assert(step->leader_epoch >= role->step.leader_epoch);
    role->step = *step;
    role->is_complete = false;
}

void replica_role_completed(struct replica_role *role)
{
    role->is_complete = true;
}

int replica_role_may_report(const struct replica_role *role, int32_t leader_epoch)
{
    if (role->step.leader_epoch > leader_epoch)
        return -BROOK_E_FENCED_EPOCH;
    if (role->step.leader_epoch < leader_epoch || !role->is_complete)
        return -BROOK_E_UNKNOWN_EPOCH;
    return role->step.leader < 0 ? 0 : -BROOK_E_INVALID;
}
