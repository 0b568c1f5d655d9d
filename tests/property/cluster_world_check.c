/* The invariants of replication, against what only the model knows. Numbers in comments are those of the design. */
#include "tests/property/cluster_world_private.h"

#include <string.h>

static bool is_same(struct record a, struct record b)
{
    return a.epoch == b.epoch && a.value == b.value;
}

/* What is true of one topic is not of another of its name. */
static bool is_of_topic(const struct world *w, const struct broker *b)
{
    return b->topic == w->topic;
}

/* 3: the same epoch at the same offset is the same record, in every log. */
void check_append(struct world *w, const struct broker *b, int32_t offset)
{
    if (!is_of_topic(w, b))
        return;
    struct record record = b->log[offset];
    uint16_t *value = &w->value_at[record.epoch][offset];
    if (*value && *value != record.value)
        world_fail(w, "two records of one epoch at one offset");
    if (offset > 0 && b->log[offset - 1].epoch > record.epoch)
        world_fail(w, "epochs go back in a log");
    *value = record.value;
}

/* 5: a cut never takes a record that was committed up to the epoch that is followed. (What a later leader committed
 * without this replica it may cut: it counts for nothing there.) */
void check_cut(struct world *w, const struct broker *b, int32_t end)
{
    int32_t epoch = b->role.step.leader_epoch;
    if (epoch < w->trusted_epoch || !is_of_topic(w, b))
        return;
    for (int32_t i = end; i < b->log_end && i < w->committed_end; i++)
        if (w->committed[i].leader_epoch <= epoch && is_same(b->log[i], w->committed[i].record))
            world_fail(w, "a follower cuts a committed record");
}

static uint32_t counted(const struct broker *b)
{
    uint32_t members = 0;
    for (int32_t i = 0; i < b->leader.replicas_count; i++)
        if ((b->leader.stored | b->leader.proposed) & bit(i))
            members |= bit(b->leader.replicas[i].broker_id);
    return members;
}

/* The broker epoch that counts for the leader's `i`-th replica is of the process that runs now, and it has not let go of
 * its log since, by a state that the leader has not read. */
static bool is_running(const struct world *w, const struct broker *leader, int32_t i)
{
    const struct leader_replica *r = &leader->leader.replicas[i];
    const struct broker *b = &w->b[r->broker_id];
    return b == leader ||
           (b->is_up && b->left_epoch <= leader->leader.leader_epoch && b->first_epoch >= 0 && r->broker_epoch >= b->first_epoch && r->broker_epoch <= b->broker_epoch);
}

/* Whether the replica still has the record when it is committed: it may have lost it since it said that it has it. */
static bool has_now(const struct world *w, const struct broker *leader, int32_t i, int32_t offset)
{
    const struct broker *b = &w->b[leader->leader.replicas[i].broker_id];
    if (!is_of_topic(w, b) || offset >= b->log_end || !is_same(b->log[offset], leader->log[offset]))
        return false;
    return w->was_fsync ? offset < b->durable_end : is_running(w, leader, i);
}

static void note_holders(struct world *w, const struct broker *leader, struct committed *c, int32_t offset)
{
    for (int32_t i = 0; i < BROKERS_MAX; i++)
        c->generation[i] = -1;
    for (int32_t i = 0; i < leader->leader.replicas_count; i++) {
        int32_t id = leader->leader.replicas[i].broker_id;
        if (!(c->by & bit(id)))
            continue;
        if (has_now(w, leader, i, offset))
            c->generation[id] = c->is_durable ? w->b[id].disk_generation : w->b[id].generation;
        else if (is_running(w, leader, i))
            world_fail(w, "committed, and a member of the ISR that runs does not have it");
    }
}

static uint32_t assigned(const struct world *w)
{
    uint32_t all = 0;
    for (int32_t i = 0; i < w->placement.replicas.count; i++)
        all |= bit(w->placement.replicas.brokers[i]);
    return all;
}

static void commit(struct world *w, const struct broker *b, int32_t offset)
{
    struct committed *c = &w->committed[offset];
    c->record = b->log[offset];
    c->by = counted(b);
    c->is_durable = w->was_fsync;
    c->leader_epoch = b->leader.leader_epoch;
    if (w->commit_epoch < c->leader_epoch)
        w->commit_epoch = c->leader_epoch;
    if ((c->by & w->held[c->record.value]) != c->by)
        world_fail(w, "committed, and a member of the ISR never had it");
    if (w->was_fsync && (c->by & w->durable[c->record.value]) != c->by)
        world_fail(w, "committed, and a member of the ISR never had it on its disk");
    note_holders(w, b, c, offset);
    c->by &= assigned(w); /* its leader may not have heard yet that a move has ended: as in check_moved() */
    w->committed_end = offset + 1;
    w->counts->committed++;
}

/* 2: the high watermark does not go back; what it passed stays as it is. */
void check_mark(struct world *w, const struct broker *b, int64_t before)
{
    if (b->high_watermark < before || b->high_watermark > b->log_end)
        world_fail(w, "the high watermark goes back, or beyond the log");
    if (b->leader.leader_epoch < w->trusted_epoch || !is_of_topic(w, b))
        return;
    for (int32_t i = (int32_t)before; i < b->high_watermark; i++) {
        if (i >= w->committed_end) {
            while (w->committed_end <= i)
                commit(w, b, w->committed_end);
        } else if (!is_same(b->log[i], w->committed[i].record)) {
            world_fail(w, "another record is committed at an offset");
        }
    }
}

void check_acknowledged(struct world *w, const struct broker *b, int32_t offset)
{
    w->counts->acknowledged++;
    if (!is_of_topic(w, b))
        return;
    if (__builtin_popcount(w->held[b->log[offset].value]) < w->min_in_sync)
        world_fail(w, "acknowledged by fewer than min.insync.replicas");
    if (b->leader.leader_epoch >= w->trusted_epoch && offset >= w->committed_end)
        world_fail(w, "acknowledged before it is committed");
}

/* Does one of those who made up the ISR then still have to have the record? */
static bool is_kept(const struct world *w, const struct committed *c)
{
    for (int32_t i = 0; i < w->brokers; i++) {
        const struct broker *b = &w->b[i];
        if ((c->by & bit(i)) && c->generation[i] == (c->is_durable ? b->disk_generation : b->generation))
            return true;
    }
    return false;
}

static int32_t common_end(const struct world *w, const struct broker *b)
{
    int32_t end = 0;
    while (end < w->committed_end && end < b->log_end && is_same(b->log[end], w->committed[end].record))
        end++;
    return end;
}

static void excuse(struct world *w, const struct broker *b, int32_t leader_epoch)
{
    int32_t end = common_end(w, b);
    if (end == w->committed_end)
        return;
    TRACE(w, "records from %d on are lost with all who had them", end);
    w->committed_end = end;
    w->is_excused = true;
    if (w->trusted_epoch < leader_epoch)
        w->trusted_epoch = leader_epoch;
}

/* 1, 3: one leader an epoch, and it has every committed record that one who had it kept. */
void check_begin(struct world *w, const struct broker *b)
{
    int32_t epoch = b->leader.leader_epoch;
    int8_t id = (int8_t)broker_id(w, b);
    w->counts->elections++;
    if (!is_of_topic(w, b))
        return;
    if (w->leader_of[epoch] >= 0 && w->leader_of[epoch] != id)
        world_fail(w, "two leaders of one epoch");
    w->leader_of[epoch] = id;
    w->mark_of[id] = b->high_watermark;
    if (epoch < w->trusted_epoch)
        return;
    for (int32_t i = common_end(w, b); i < w->committed_end; i++)
        if (w->committed[i].leader_epoch <= epoch && is_kept(w, &w->committed[i]))
            world_fail(w, "a new leader lacks a committed record that a member of its ISR kept");
    if (epoch >= w->commit_epoch) /* else it begins late, and there is a later one */
        excuse(w, b, epoch);
}

/* 5: who joins has all that is committed (unless a power cut has just taken it: then it registers anew). */
static void check_join(struct world *w, int32_t id)
{
    const struct broker *b = &w->b[id];
    int32_t end = common_end(w, b);
    if (is_of_topic(w, b) && b->is_up && b->broker_epoch == w->epochs[id] && end < w->committed_end)
        world_fail(w, "a replica joins the ISR and lacks a committed record");
}

static void check_controllers_write(struct world *w, const struct op *op)
{
    if (op->state.controller_epoch != w->controller_epoch)
        world_fail(w, "a controller of an older epoch writes");
    if (w->has_state && op->version != w->version)
        world_fail(w, "a controller writes a state that it has not read");
    if (w->has_state && op->state.leader_epoch <= w->state.leader_epoch)
        world_fail(w, "the leader epoch does not rise");
    if (op->is_comparison)
        w->counts->compared++;
    if (op->gives_up) {
        w->trusted_epoch = op->state.leader_epoch;
        excuse(w, &w->b[op->state.leader], op->state.leader_epoch);
    }
}

static void check_leaders_write(struct world *w, const struct op *op)
{
    if (op->version != w->version || op->broker != w->state.leader || op->state.leader_epoch != w->state.leader_epoch)
        world_fail(w, "an ISR is written by another than its leader, or over an unread state");
    for (int32_t i = 0; i < w->brokers; i++)
        if ((op->joins & bit(i)) && op->state.leader_epoch >= w->trusted_epoch)
            check_join(w, i);
}

/* 4, 6: before the write is applied. */
void check_write(struct world *w, const struct op *op)
{
    if (op->topic != w->topic)
        world_fail(w, "a state of a topic that was deleted is written into another of its name");
    if (!op->state.isr || (op->state.isr & ~assigned(w)))
        world_fail(w, "the ISR is empty, or has members that are not assigned");
    if (op->state.leader >= 0 && !(op->state.isr & bit(op->state.leader)))
        world_fail(w, "the leader is not in the ISR");
    if (op->is_controllers)
        check_controllers_write(w, op);
    else
        check_leaders_write(w, op);
}

/* After each step: the leader of the stored epoch has what is committed; no leader's mark has gone back. */
void check_all(struct world *w)
{
    for (int32_t i = 0; i < w->brokers; i++) {
        const struct broker *b = &w->b[i];
        if (!broker_leads(b) || !is_of_topic(w, b))
            continue;
        int32_t epoch = b->leader.leader_epoch;
        if (w->mark_epoch[i] == epoch && b->high_watermark < w->mark_of[i])
            world_fail(w, "the high watermark of a leader goes back");
        w->mark_epoch[i] = epoch;
        w->mark_of[i] = b->high_watermark;
        if (epoch < 0 || w->leader_of[epoch] != i)
            world_fail(w, "two leaders of one epoch, or one that has not begun");
        bool is_current = w->has_state && w->state.leader == i && w->state.leader_epoch == epoch;
        if (is_current && common_end(w, b) < w->committed_end)
            world_fail(w, "the leader lacks a committed record");
    }
}

/* Whoever has the record, of those who are in sync now; who runs since it was counted has to. */
static void keep_moved(struct world *w, struct committed *c, int32_t offset)
{
    uint32_t by = 0;
    bool is_due = is_kept(w, c); /* else all lost it who had it */
    for (int32_t i = 0; i < w->brokers; i++) {
        const struct broker *b = &w->b[i];
        if (!(w->state.isr & bit(i)))
            continue;
        bool runs = b->is_up && b->first_epoch >= 0 && b->first_epoch <= w->state.isr_epochs[i];
        bool has = is_of_topic(w, b) && offset < b->log_end && is_same(b->log[offset], c->record);
        if (!has && runs && is_due)
            world_fail(w, "a move ends, and a member of the ISR lacks a committed record");
        if (!has || !(c->is_durable ? offset < b->durable_end : runs))
            continue;
        by |= bit(i);
        c->generation[i] = c->is_durable ? b->disk_generation : b->generation;
    }
    bool is_known_anew = w->epochs[w->state.leader] != w->state.isr_epochs[w->state.leader];
    if (is_due && !by && is_known_anew)
        world_fail(w, "a move ends with a leader that was registered anew, and lacks a committed record");
    c->by = by;
}

/* The others go, and have to keep nothing. */
void check_moved(struct world *w)
{
    for (int32_t offset = 0; offset < w->committed_end; offset++)
        keep_moved(w, &w->committed[offset], offset);
}

void check_begin_anew(struct world *w)
{
    w->committed_end = w->commit_epoch = w->trusted_epoch = 0;
    memset(w->leader_of, -1, sizeof w->leader_of);
    memset(w->value_at, 0, sizeof w->value_at);
    for (int32_t i = 0; i < BROKERS_MAX; i++)
        w->mark_epoch[i] = -1;
}
