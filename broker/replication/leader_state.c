/* The leader's epoch, its replicas, and how far it is safe. */
#include "broker/replication/leader_state.h"

#include "broker/replication/leader_internal.h"

#include <assert.h>
#include <string.h>

size_t leader_state_bytes(int32_t replicas_max)
{
    return sizeof(struct leader_state) + (size_t)replicas_max * sizeof(struct leader_replica);
}

void leader_state_init(struct leader_state *s, int32_t replicas_max)
{
    assert(replicas_max > 0 && replicas_max <= ZNODE_REPLICAS_MAX);
    memset(s, 0, sizeof *s);
    s->self = -1;
    s->leader_epoch = -1;
    s->replicas_max = replicas_max;
}

struct leader_replica *leader_find(struct leader_state *s, int32_t broker_id)
{
    for (int32_t i = 0; i < s->replicas_count; i++)
        if (s->replicas[i].broker_id == broker_id)
            return &s->replicas[i];
    return NULL;
}

static struct leader_replica *find_or_add(struct leader_state *s, int32_t broker_id, int64_t now_ms)
{
    struct leader_replica *r = leader_find(s, broker_id);
    if (r || s->replicas_count == s->replicas_max)
        return r;
    r = &s->replicas[s->replicas_count++];
    *r = (struct leader_replica){
        .broker_id = broker_id,
        .live_epoch = LEADER_LIVE_UNKNOWN,
        .listed_epoch = -1,
        .proposed_epoch = -1,
        .broker_epoch = -1,
        .end = -1,
        .safe_end = -1,
        .pulled_ms = -1,
        .caught_up_ms = now_ms,
    };
    return r;
}

int leader_take_isr(struct leader_state *s, const struct znode_state *state, int64_t now_ms)
{
    uint32_t stored = 0;
    for (int32_t i = 0; i < state->isr_count; i++) {
        const struct leader_replica *r = find_or_add(s, state->isr[i], now_ms);
        if (!r)
            return -BROOK_E_TOO_MANY;
        stored |= leader_bit((int32_t)(r - s->replicas));
    }
    if (s->self < 0 || !(stored & leader_bit(s->self)))
        return -BROOK_E_NOT_LEADER;
    for (int32_t i = 0; i < state->isr_count; i++)
        leader_find(s, state->isr[i])->listed_epoch = state->isr_epochs[i];
    s->stored = stored;
    s->controller_epoch = state->controller_epoch;
    return 0;
}

/* Where the epoch began: at its first record if there is one already. */
static int64_t epoch_start_of(const struct epoch_history *history, int32_t leader_epoch)
{
    bool is_taken_up = history->count > 0 && history->entries[history->count - 1].epoch == leader_epoch;
    return is_taken_up ? history->entries[history->count - 1].start_offset : history->log_end;
}

static int add_assigned(struct leader_state *s, const struct znode_replicas *replicas, int64_t now_ms)
{
    for (int32_t i = 0; i < replicas->count; i++) {
        struct leader_replica *r = find_or_add(s, replicas->brokers[i], now_ms);
        if (!r)
            return -BROOK_E_TOO_MANY;
        r->is_assigned = true;
    }
    return 0;
}

/* Whoever is assigned may be in a change that was sent before; with which epoch nobody remembers. */
static void doubt(struct leader_state *s)
{
    uint32_t all = 0;
    for (int32_t i = 0; i < s->replicas_count; i++) {
        struct leader_replica *r = &s->replicas[i];
        all |= leader_bit(i);
        r->proposed_epoch = s->stored & leader_bit(i) ? r->listed_epoch : -1;
    }
    if (all == leader_bit(s->self))
        return;
    s->proposed = all;
    s->change = LEADER_READ;
}

int leader_state_begin(struct leader_state *s, const struct leader_beginning *b)
{
    leader_state_init(s, s->replicas_max);
    if (b->state->leader != b->broker_id)
        return -BROOK_E_INVALID;
    int r = add_assigned(s, b->replicas, b->now_ms);
    struct leader_replica *self = r ? NULL : find_or_add(s, b->broker_id, b->now_ms);
    if (self) {
        s->self = (int32_t)(self - s->replicas);
        r = leader_take_isr(s, b->state, b->now_ms);
    }
    if (r || !self) {
        leader_state_init(s, s->replicas_max);
        return r == -BROOK_E_NOT_LEADER ? -BROOK_E_INVALID : -BROOK_E_TOO_MANY;
    }
    s->leader_epoch = b->state->leader_epoch;
    s->version = b->version;
    s->epoch_start = epoch_start_of(b->history, s->leader_epoch);
    s->log_start = b->history->log_start;
    s->lag_ms_max = b->lag_ms_max;
    if (b->is_again)
        doubt(s);
    return 0;
}

static bool is_in(const struct znode_replicas *replicas, int32_t broker_id)
{
    for (int32_t i = 0; i < replicas->count; i++)
        if (replicas->brokers[i] == broker_id)
            return true;
    return false;
}

/* Whether the replica is in an ISR that is stored, or may come to be. */
static bool counts(const struct leader_state *s, int32_t index)
{
    return index == s->self || ((s->stored | s->proposed | s->sent) & leader_bit(index));
}

/* Those assigned and those that still count have to be known of. Slots of others are used again. */
static bool has_room(const struct leader_state *s, const struct znode_replicas *replicas)
{
    int32_t count = replicas->count;
    for (int32_t i = 0; i < s->replicas_count; i++)
        count += counts(s, i) && !is_in(replicas, s->replicas[i].broker_id);
    return count <= s->replicas_max;
}

static uint32_t without(uint32_t members, int32_t index)
{
    uint32_t below = leader_bit(index) - 1;
    return (members & below) | ((members >> 1) & ~below);
}

static void remove_replica(struct leader_state *s, int32_t index)
{
    assert(index != s->self);
    s->replicas_count--;
    memmove(&s->replicas[index], &s->replicas[index + 1],
            (size_t)(s->replicas_count - index) * sizeof s->replicas[0]);
    s->stored = without(s->stored, index);
    s->proposed = without(s->proposed, index);
    s->sent = without(s->sent, index);
    s->self -= s->self > index;
}

int leader_state_assign(struct leader_state *s, const struct znode_replicas *replicas, int64_t now_ms)
{
    if (!has_room(s, replicas))
        return -BROOK_E_TOO_MANY;
    for (int32_t i = s->replicas_count - 1; i >= 0; i--) {
        s->replicas[i].is_assigned = is_in(replicas, s->replicas[i].broker_id);
        if (!s->replicas[i].is_assigned && !counts(s, i))
            remove_replica(s, i);
    }
    return add_assigned(s, replicas, now_ms);
}

void leader_state_broker(struct leader_state *s, int32_t broker_id, int64_t broker_epoch, bool is_draining)
{
    struct leader_replica *r = leader_find(s, broker_id);
    if (!r)
        return;
    r->live_epoch = broker_epoch;
    r->is_draining = is_draining;
}

void leader_state_await_reach(struct leader_state *s, bool awaits)
{
    s->awaits_reach = awaits;
}

/* ---- how far it is safe ----------------------------------------------------------------------------- */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* What the replica holds safely, if the position is of the life that is listed with `epoch`. */
static int64_t position_at(const struct leader_replica *r, int64_t epoch)
{
    return r->broker_epoch == epoch && epoch >= 0 ? r->safe_end : -1;
}

int64_t leader_state_replicated_end(const struct leader_state *s)
{
    int64_t end = s->awaits_reach ? -1 : INT64_MAX;
    for (int32_t i = 0; i < s->replicas_count; i++) {
        const struct leader_replica *r = &s->replicas[i];
        if (i == s->self)
            continue;
        if (s->stored & leader_bit(i))
            end = least(end, position_at(r, r->listed_epoch));
        if (s->proposed & leader_bit(i))
            end = least(end, position_at(r, r->proposed_epoch));
    }
    return end;
}

static int64_t start_at(const struct leader_replica *r, int64_t epoch)
{
    return r->broker_epoch == epoch && epoch >= 0 ? r->log_start : -1;
}

int64_t leader_state_replicated_start(const struct leader_state *s)
{
    int64_t start = INT64_MAX;
    for (int32_t i = 0; i < s->replicas_count; i++) {
        const struct leader_replica *r = &s->replicas[i];
        if (i == s->self)
            continue;
        if (s->stored & leader_bit(i))
            start = least(start, start_at(r, r->listed_epoch));
        if (s->proposed & leader_bit(i))
            start = least(start, start_at(r, r->proposed_epoch));
    }
    return start;
}

int32_t leader_state_in_sync(const struct leader_state *s)
{
    int32_t stored = leader_count(s->stored);
    int32_t proposed = s->proposed ? leader_count(s->proposed) : stored;
    return proposed < stored ? proposed : stored;
}

void leader_state_limits(const struct leader_state *s, struct watermark_limits *limits)
{
    limits->epoch_start = s->epoch_start;
    limits->replicated_end = leader_state_replicated_end(s);
    limits->in_sync = leader_state_in_sync(s);
}
