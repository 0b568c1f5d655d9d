/* Controllers: the one that holds the seat, and those that still believe they do. */
#include "tests/property/cluster_world_private.h"

#include <string.h>

void controller_seize(struct world *w, struct broker *b)
{
    int32_t id = broker_id(w, b);
    bool is_registered = b->broker_epoch >= 0 && w->ids[id].is_live && w->ids[id].life == b->life;
    if (!b->is_up || b->is_cut || !is_registered || w->controller >= 0)
        return;
    w->controller = id;
    w->controller_epoch++;
    int32_t term = b->controller.term + 1;
    b->controller = (struct controller){.is_active = true, .epoch = w->controller_epoch, .term = term};
    for (int32_t i = 0; i < BROKERS_MAX; i++)
        b->controller.reports[i].broker_epoch = -1;
    TRACE(w, "broker %d is controller, epoch %d", id, w->controller_epoch);
}

static bool counts_on_disk(const struct world *w)
{
    return w->was_fsync || (w->is_fsync && is_broken(w, CLUSTER_FSYNC_LATE));
}

static int32_t kept_from(const struct world *w, const struct view *view, int32_t broker)
{
    if (!counts_on_disk(w))
        return view->clean_from[broker];
    return is_broken(w, CLUSTER_EMPTY_DISK) ? view->state.isr_epochs[broker] : view->disk_from[broker];
}

static enum controller_verdict decide(struct world *w, const struct view *view, const struct znode_state *state,
                                      struct znode_state *next)
{
    struct controller_broker list[BROKERS_MAX];
    struct controller_brokers alive = {list, 0};
    for (int32_t i = 0; i < w->brokers; i++)
        if (view->live_epochs[i] >= 0)
            list[alive.count++] = (struct controller_broker){.broker_id = i,
                                                             .broker_epoch = view->live_epochs[i],
                                                             .clean_from = kept_from(w, view, i),
                                                             .draining = view->draining & bit(i)};
    return controller_decide(&w->replicas, state, &alive, false, next);
}

static enum election_verdict compare(struct world *w, const struct controller *c, struct znode_state state,
                                     struct znode_state *next)
{
    struct election_replica replicas[BROKERS_MAX];
    for (int32_t i = 0; i < w->replicas_count; i++) {
        int32_t id = w->assigned[i];
        replicas[i] = (struct election_replica){.broker_id = id,
                                                .broker_epoch = c->view.live_epochs[id],
                                                .kept_from = kept_from(w, &c->view, id),
                                                .report = c->reports[id]};
        if (is_broken(w, CLUSTER_FREEZE))
            replicas[i].report.leader_epoch = state.leader_epoch;
    }
    if (is_broken(w, CLUSTER_FREEZE))
        state.leader = -1;
    bool leave_out = is_broken(w, CLUSTER_SOLE_LIVE) || c->leaves_out;
    return election_compare(replicas, w->replicas_count, &state, leave_out, next);
}

static bool somebody_is_absent(const struct world *w, const struct view *view)
{
    for (int32_t i = 0; i < w->replicas_count; i++)
        if (view->live_epochs[w->assigned[i]] < 0)
            return true;
    return false;
}

static void hold(struct controller *c, const struct znode_state *next, bool is_comparison)
{
    state_from_znode(next, &c->decision);
    c->decision.controller_epoch = c->epoch;
    c->decision_version = c->view.version;
    c->has_decision = true;
    c->is_comparison = is_comparison;
}

/* Another in-sync replica is to lead, as when leadership is given back to the preferred one. */
static bool move_leader(struct world *w, const struct view *view, struct znode_state *next)
{
    int32_t id = w->assigned[world_below(w, (uint32_t)w->replicas_count)];
    bool is_moved = view->version >= 0 && view->state.leader >= 0 && view->state.leader != id &&
                    (view->state.isr & bit(id)) && view->state.isr_epochs[id] == view->live_epochs[id];
    if (is_moved) {
        state_to_znode(&view->state, next);
        next->leader = id;
        next->leader_epoch++;
    }
    return is_moved;
}

void controller_think(struct world *w, struct broker *b)
{
    struct controller *c = &b->controller;
    struct znode_state state, next;
    if (!b->is_up || b->is_cut || !c->is_active || c->has_decision)
        return;
    zookeeper_read(w, &c->view);
    c->leaves_out = w->may_leave_out && world_chance(w, 8);
    enum election_verdict verdict = ELECTION_CERTAIN;
    bool has_state = c->view.version >= 0;
    if (has_state) {
        state_to_znode(&c->view.state, &state);
        if (state.leader_epoch >= EPOCHS_MAX - 2)
            return;
        bool is_compared = state.isr_count > 1 || !is_broken(w, CLUSTER_SOLE);
        verdict = is_compared ? compare(w, c, state, &next) : ELECTION_CERTAIN;
    }
    if (!w->is_healing && world_chance(w, w->moves) && move_leader(w, &c->view, &next))
        hold(c, &next, false);
    else if (verdict == ELECTION_CERTAIN && decide(w, &c->view, has_state ? &state : NULL, &next) != CONTROLLER_KEEP)
        hold(c, &next, false);
    else if (verdict == ELECTION_FREEZE || verdict == ELECTION_LEAD)
        hold(c, &next, verdict == ELECTION_LEAD);
    c->leaves_out = c->leaves_out && c->is_comparison && somebody_is_absent(w, &c->view);
}

void controller_send(struct world *w, struct broker *b)
{
    struct controller *c = &b->controller;
    struct op *op = zookeeper_new_op(w);
    if (!b->is_up || b->is_cut || !c->is_active || !c->has_decision || c->is_busy || !op)
        return;
    *op = (struct op){.stage = OP_SENT,
                      .is_controllers = true,
                      .is_comparison = c->is_comparison,
                      .leaves_out = c->leaves_out,
                      .broker = broker_id(w, b),
                      .life = b->life,
                      .term = c->term,
                      .version = c->decision_version,
                      .state = c->decision};
    c->is_busy = true;
    c->has_decision = false;
    TRACE(w, "controller %d (epoch %d) sends leader %d, epoch %d, ISR %x at version %d%s", op->broker, c->epoch,
          op->state.leader, op->state.leader_epoch, op->state.isr, op->version,
          c->is_comparison ? ", by comparison" : "");
}

void controller_answered(struct world *w, struct broker *b, const struct op *op)
{
    (void)w;
    if (b->controller.term == op->term)
        b->controller.is_busy = false;
}

void controller_ask_report(struct world *w, struct broker *b)
{
    struct controller *c = &b->controller;
    struct znode_state state;
    bool is_leaderless = c->view.state.leader < 0 || is_broken(w, CLUSTER_FREEZE);
    if (!b->is_up || !c->is_active || c->view.version < 0 || !is_leaderless)
        return;
    state_to_znode(&c->view.state, &state);
    for (int32_t i = 0; i < w->replicas_count; i++) {
        int32_t id = w->assigned[i];
        struct election_replica replica = {.broker_id = id,
                                           .broker_epoch = c->view.live_epochs[id],
                                           .report = c->reports[id]};
        struct message *m = world_new_message(w);
        if (m && election_lacks_report(&replica, &state))
            *m = (struct message){.kind = MESSAGE_COMPARE,
                                  .from = broker_id(w, b),
                                  .to = id,
                                  .life = b->life,
                                  .asked = state.leader_epoch};
    }
}

void controller_take_report(struct world *w, struct broker *b, int32_t from, const struct election_report *report)
{
    TRACE(w, "controller %d hears of %d: epoch %d, end %d", broker_id(w, b), from, report->last_epoch,
          (int)report->log_end);
    b->controller.reports[from] = *report;
}
