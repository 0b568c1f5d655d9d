/* Changing the in-sync replicas by compare-and-set. */
#include "broker/replication/leader_internal.h"
#include "broker/replication/leader_state.h"

#include <assert.h>

/* What was committed in a member's sight it must have: one whose log ends before that has lost records. Its safe end may
 * be lower, when durability became fsync. */
static bool has_lost_records(const struct leader_replica *r, int64_t high_watermark)
{
    return r->broker_epoch == r->listed_epoch && r->end >= 0 && r->end < high_watermark;
}

/* A member is dropped for good reasons only: until that is stored it counts. */
static bool has_to_leave(const struct leader_state *s, const struct leader_replica *r, int64_t high_watermark,
                         int64_t now_ms)
{
    bool is_dead = r->live_epoch != LEADER_LIVE_UNKNOWN && r->live_epoch != r->listed_epoch;
    bool is_another_life = r->broker_epoch > r->listed_epoch;
    return !r->is_assigned || is_dead || is_another_life || r->is_draining || has_lost_records(r, high_watermark) ||
           now_ms - r->caught_up_ms > s->lag_ms_max;
}

/* One that would have to leave at once for its lag does not join: with nothing written, its last position may be as far
 * as the high watermark for ever. */
static bool may_join(const struct leader_state *s, const struct leader_replica *r, int64_t high_watermark,
                     int64_t now_ms)
{
    bool is_alive = r->live_epoch == LEADER_LIVE_UNKNOWN || r->live_epoch == r->broker_epoch;
    return r->is_assigned && is_alive && !r->is_draining && r->broker_epoch >= 0 && r->safe_end >= high_watermark &&
           r->safe_end >= s->epoch_start && r->log_start >= s->log_start &&
           now_ms - r->caught_up_ms <= s->lag_ms_max;
}

bool leader_state_could_join(struct leader_state *s, int32_t broker_id, int64_t high_watermark, int64_t now_ms)
{
    const struct leader_replica *r = leader_find(s, broker_id);
    uint32_t bit = r ? leader_bit((int32_t)(r - s->replicas)) : 0;
    return bit && s->change == LEADER_IDLE && !((s->stored | s->proposed) & bit) &&
           may_join(s, r, high_watermark, now_ms);
}

/* Leaving comes first and alone: a member that is to join may prove to be of an earlier life, and the whole write
 * fails then. */
static uint32_t wanted_isr(const struct leader_state *s, int64_t high_watermark, int64_t now_ms)
{
    uint32_t leaving = 0, joining = 0;
    for (int32_t i = 0; i < s->replicas_count; i++) {
        const struct leader_replica *r = &s->replicas[i];
        if (i == s->self)
            continue;
        if (!(s->stored & leader_bit(i)))
            joining |= may_join(s, r, high_watermark, now_ms) ? leader_bit(i) : 0;
        else if (has_to_leave(s, r, high_watermark, now_ms))
            leaving |= leader_bit(i);
    }
    return leaving ? s->stored & ~leaving : s->stored | joining;
}

/* What the node is to say with `members` in sync. */
static void write_change(const struct leader_state *s, uint32_t members, struct leader_isr_change *ret)
{
    ret->version = s->version;
    ret->checks_count = 0;
    ret->state.controller_epoch = s->controller_epoch;
    ret->state.leader = s->replicas[s->self].broker_id;
    ret->state.leader_epoch = s->leader_epoch;
    ret->state.isr_count = 0;
    for (int32_t i = 0; i < s->replicas_count; i++) {
        const struct leader_replica *r = &s->replicas[i];
        bool joins = !(s->stored & leader_bit(i));
        if (!(members & leader_bit(i)))
            continue;
        int32_t at = ret->state.isr_count++;
        ret->state.isr[at] = r->broker_id;
        ret->state.isr_epochs[at] = joins ? r->proposed_epoch : r->listed_epoch;
        if (!joins)
            continue;
        ret->checks[ret->checks_count].broker_id = r->broker_id;
        ret->checks[ret->checks_count++].broker_epoch = r->proposed_epoch;
    }
}

static void set_proposed(struct leader_state *s, uint32_t members)
{
    s->proposed = members;
    for (int32_t i = 0; i < s->replicas_count; i++) {
        struct leader_replica *r = &s->replicas[i];
        r->proposed_epoch = s->stored & leader_bit(i) ? r->listed_epoch : r->broker_epoch;
    }
}

void leader_state_starts_at(struct leader_state *s, int64_t log_start)
{
    if (log_start > s->log_start)
        s->log_start = log_start;
}

bool leader_state_propose(struct leader_state *s, int64_t high_watermark, int64_t now_ms,
                          struct leader_isr_change *ret)
{
    if (s->change != LEADER_IDLE || s->self < 0)
        return false;
    if (s->proposed) {
        s->sent = s->stored;
    } else {
        s->sent = wanted_isr(s, high_watermark, now_ms);
        if (s->sent == s->stored)
            return false;
        set_proposed(s, s->sent);
    }
    write_change(s, s->sent, ret);
    s->sent_version = s->version;
    s->change = LEADER_PROPOSED;
    return true;
}

bool leader_state_confirm(struct leader_state *s, int64_t high_watermark)
{
    if (s->change != LEADER_PROPOSED)
        return false;
    uint32_t joining = s->sent & ~s->stored;
    for (int32_t i = 0; i < s->replicas_count; i++)
        if ((joining & leader_bit(i)) &&
            (s->replicas[i].safe_end < high_watermark || s->replicas[i].log_start < s->log_start)) {
            s->change = LEADER_IDLE;
            s->proposed = 0;
            return false;
        }
    s->change = LEADER_SENT;
    return true;
}

static void store_sent(struct leader_state *s)
{
    bool is_change = s->sent == s->proposed;
    for (int32_t i = 0; is_change && i < s->replicas_count; i++)
        if (s->sent & leader_bit(i))
            s->replicas[i].listed_epoch = s->replicas[i].proposed_epoch;
    s->stored = s->sent;
    s->proposed = 0;
}

void leader_state_outcome(struct leader_state *s, enum leader_outcome outcome, int32_t version)
{
    if (s->change != LEADER_SENT)
        return;
    s->change = LEADER_IDLE;
    if (s->sent_version != s->version)
        return; /* a newer version was read meanwhile: it is certain already what became of this one */
    if (outcome == LEADER_APPLIED) {
        store_sent(s);
        s->version = version;
    } else {
        s->change = LEADER_READ;
    }
    s->sent = 0;
}

bool leader_state_wants_read(const struct leader_state *s)
{
    return s->change == LEADER_READ;
}

int leader_state_read(struct leader_state *s, const struct znode_state *state, int32_t version)
{
    if (s->self < 0 || state->leader_epoch > s->leader_epoch ||
        (state->leader_epoch == s->leader_epoch && state->leader != s->replicas[s->self].broker_id))
        return -BROOK_E_NOT_LEADER;
    if (state->leader_epoch < s->leader_epoch || version < s->version)
        return 0;
    if (version > s->version) {
        int r = leader_take_isr(s, state, 0);
        if (r)
            return r;
        s->version = version;
        s->proposed = 0;
    }
    bool is_decided = s->change == LEADER_READ || (s->change == LEADER_PROPOSED && !s->proposed);
    if (is_decided)
        s->change = LEADER_IDLE;
    return 0;
}
