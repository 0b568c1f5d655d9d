#include "broker/replication/election.h"

static const struct election_replica *find(const struct election_replica *replicas, int32_t count, int32_t broker_id)
{
    for (int32_t i = 0; i < count; i++)
        if (replicas[i].broker_id == broker_id)
            return &replicas[i];
    return NULL;
}

/* A member that has all that the in-sync replicas had. */
static bool counts(const struct election_replica *replica, int64_t listed_epoch)
{
    return listed_epoch == replica->broker_epoch || (listed_epoch >= 0 && listed_epoch == replica->kept_from);
}

/* All members are back, and none counts. */
static bool is_in_doubt(const struct election_replica *replicas, int32_t count, const struct znode_state *state)
{
    if (count < 2)
        return false; /* there is nobody to compare with */
    for (int32_t i = 0; i < state->isr_count; i++) {
        const struct election_replica *member = find(replicas, count, state->isr[i]);
        if (!member || member->broker_epoch < 0 || counts(member, state->isr_epochs[i]))
            return false;
        if (state->isr_epochs[i] < 0)
            return false; /* nobody has led yet */
    }
    return true;
}

static bool has_report(const struct election_replica *replica, const struct znode_state *state)
{
    return replica->report.broker_epoch >= 0 && replica->report.broker_epoch == replica->broker_epoch &&
           replica->report.leader_epoch == state->leader_epoch;
}

bool election_lacks_report(const struct election_replica *replica, const struct znode_state *state)
{
    return replica->broker_epoch >= 0 && !has_report(replica, state);
}

static bool is_listed(const struct znode_state *state, int32_t broker_id)
{
    for (int32_t i = 0; i < state->isr_count; i++)
        if (state->isr[i] == broker_id)
            return true;
    return false;
}

static bool is_longer(const struct election_replica *a, const struct election_replica *b,
                      const struct znode_state *state)
{
    if (a->report.last_epoch != b->report.last_epoch)
        return a->report.last_epoch > b->report.last_epoch;
    if (a->report.log_end != b->report.log_end)
        return a->report.log_end > b->report.log_end;
    return is_listed(state, a->broker_id) && !is_listed(state, b->broker_id);
}

/* NULL: somebody has to be heard first. */
static const struct election_replica *longest(const struct election_replica *replicas, int32_t count,
                                              const struct znode_state *state, bool leave_out_absent)
{
    const struct election_replica *best = NULL;
    for (int32_t i = 0; i < count; i++) {
        bool is_absent = replicas[i].broker_epoch < 0;
        if (is_absent && leave_out_absent)
            continue;
        if (is_absent || election_lacks_report(&replicas[i], state))
            return NULL;
        if (!best || is_longer(&replicas[i], best, state))
            best = &replicas[i];
    }
    return best;
}

enum election_verdict election_compare(const struct election_replica *replicas, int32_t count,
                                       const struct znode_state *state, bool leave_out_absent,
                                       struct znode_state *ret)
{
    if (!is_in_doubt(replicas, count, state))
        return ELECTION_CERTAIN;
    struct znode_state next = *state;
    next.leader_epoch++;
    if (state->leader >= 0) {
        next.leader = -1;
        *ret = next;
        return ELECTION_FREEZE;
    }
    const struct election_replica *leader = longest(replicas, count, state, leave_out_absent);
    if (!leader)
        return ELECTION_ASK;
    next.leader = leader->broker_id;
    next.isr_count = 1;
    next.isr[0] = leader->broker_id;
    next.isr_epochs[0] = leader->broker_epoch;
    *ret = next;
    return ELECTION_LEAD;
}
