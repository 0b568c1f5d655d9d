/* Controllers: the one that holds the seat, and those that still believe they do. */
#include "tests/property/cluster_world_private.h"

#include <string.h>

void controller_seize(struct world *w, struct broker *b)
{
    int32_t id = broker_id(w, b);
    bool is_registered = b->broker_epoch >= 0 && b->registering < 0 && w->ids[id].is_live && w->ids[id].life == b->life;
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

/* All that an election goes by. */
struct question {
    struct controller_broker list[BROKERS_MAX];
    struct controller_brokers alive;
    struct controller_end ends_list[BROKERS_MAX];
    struct controller_ends ends;
    struct znode_state state;
    int32_t brokers[BROKERS_MAX];
    struct znode_replicas replicas;
    struct controller_case partition;
};

static struct controller_broker describe_broker(const struct world *w, const struct view *view, int32_t i)
{
    struct controller_broker b = {.broker_id = i,
                                  .broker_epoch = view->live_epochs[i],
                                  .clean_from = view->clean_from[i],
                                  .disk_from = view->disk_from[i],
                                  .draining = view->draining & bit(i)};
    if (is_broken(w, CLUSTER_EMPTY_DISK))
        b.disk_from = view->state.isr_epochs[i];
    if (is_broken(w, CLUSTER_SOLE) && view->version >= 0 && view->state.isr == bit(i))
        b.clean_from = view->state.isr_epochs[i];
    return b;
}

static void ask(const struct world *w, const struct controller *c, struct question *q)
{
    const struct view *view = &c->view;
    q->alive = (struct controller_brokers){q->list, 0};
    q->ends = (struct controller_ends){q->ends_list, 0};
    for (int32_t i = 0; i < w->brokers; i++) {
        if (view->live_epochs[i] >= 0)
            q->list[q->alive.count++] = describe_broker(w, view, i);
        if (c->reports[i].broker_epoch >= 0)
            q->ends_list[q->ends.count++] = c->reports[i];
    }
    state_to_znode(&view->state, &q->state);
    q->replicas = list_to_znode(&view->placement.replicas, q->brokers);
    q->partition = (struct controller_case){.replicas = &q->replicas,
                                            .state = view->version >= 0 ? &q->state : NULL,
                                            .alive = &q->alive,
                                            .unclean = w->is_unclean,
                                            .leave_out_absent = c->leaves_out || is_broken(w, CLUSTER_SOLE_LIVE),
                                            .ends = &q->ends,
                                            .is_durable = counts_on_disk(w)};
}

/* As if all had stopped following, and told so. */
static void forget_to_freeze(struct question *q, struct controller_decision *ret)
{
    q->state.leader = -1;
    for (size_t i = 0; i < q->ends.count; i++)
        q->ends_list[i].leader_epoch = q->state.leader_epoch;
    controller_elect(&q->partition, ret);
}

static void elect(const struct world *w, struct question *q, struct controller_decision *ret)
{
    controller_elect(&q->partition, ret);
    if (is_broken(w, CLUSTER_FREEZE) && ret->verdict == CONTROLLER_OFFLINE && controller_wants_ends(&q->partition))
        forget_to_freeze(q, ret);
}

static bool somebody_is_absent(const struct view *view)
{
    for (int32_t i = 0; i < view->placement.replicas.count; i++)
        if (view->live_epochs[view->placement.replicas.brokers[i]] < 0)
            return true;
    return false;
}

static void hold(struct world *w, struct controller *c, const struct controller_decision *d, bool is_finish)
{
    state_from_znode(&d->state, &c->decision);
    c->decision.controller_epoch = c->epoch;
    c->decision_version = c->view.version;
    c->has_decision = true;
    c->is_comparison = d->verdict == CONTROLLER_ELECT && d->safety == CONTROLLER_COMPARED;
    bool leaves_out = (c->leaves_out || w->is_unclean) && somebody_is_absent(&c->view);
    bool is_unclean = d->verdict == CONTROLLER_ELECT && d->safety == CONTROLLER_UNCLEAN;
    c->gives_up = is_unclean || (c->is_comparison && leaves_out);
    c->is_finish = is_finish;
    w->counts->unclean += is_unclean;
}

/* Another in-sync replica is to lead, as when leadership is given back to the preferred one. */
static bool move_leader(struct world *w, struct question *q, struct controller_decision *ret)
{
    int32_t count = q->replicas.count;
    int32_t at = (int32_t)world_below(w, (uint32_t)count);
    int32_t preferred[BROKERS_MAX];
    for (int32_t i = 0; i < count; i++)
        preferred[i] = q->brokers[(at + i) % count];
    struct znode_replicas replicas = {preferred, count};
    q->partition.replicas = &replicas;
    bool is_moved = controller_prefer(&q->partition, &ret->state);
    q->partition.replicas = &q->replicas;
    if (is_moved)
        ret->verdict = CONTROLLER_ELECT;
    return is_moved;
}

/* What the controller decides when the partition has the leader that it can have: a move may end. */
static bool finish_move(const struct controller *c, const struct question *q, struct controller_decision *ret)
{
    struct reassignment move;
    placement_to_reassignment(&c->view.placement, &move);
    bool is_finish = reassignment_step(&move, &q->partition, &ret->state) == REASSIGNMENT_FINISH;
    if (is_finish)
        ret->verdict = CONTROLLER_ELECT;
    return is_finish;
}

static void look(struct world *w, struct controller *c)
{
    int32_t topic = c->view.topic;
    zookeeper_read(w, &c->view);
    for (int32_t i = 0; topic != c->view.topic && i < BROKERS_MAX; i++)
        c->reports[i].broker_epoch = -1;
}

void controller_think(struct world *w, struct broker *b)
{
    struct controller *c = &b->controller;
    struct controller_decision decision = {0};
    struct question q;
    if (!b->is_up || b->is_cut || !c->is_active || c->has_decision)
        return;
    look(w, c);
    if (c->view.version >= 0 && c->view.state.leader_epoch >= EPOCHS_MAX - 2)
        return;
    c->leaves_out = w->may_leave_out && world_chance(w, 8);
    ask(w, c, &q);
    bool is_moved = !w->is_healing && world_chance(w, w->moves) && move_leader(w, &q, &decision);
    if (!is_moved)
        elect(w, &q, &decision);
    bool is_finish = decision.verdict == CONTROLLER_KEEP && finish_move(c, &q, &decision);
    if (decision.verdict != CONTROLLER_KEEP)
        hold(w, c, &decision, is_finish);
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
                      .gives_up = c->gives_up,
                      .is_finish = c->is_finish,
                      .topic = c->view.topic,
                      .placement = c->view.placement,
                      .placement_version = c->view.placement_version,
                      .broker = broker_id(w, b),
                      .life = b->life,
                      .term = c->term,
                      .version = c->decision_version,
                      .state = c->decision};
    for (int32_t i = 0; op->is_finish && i < w->brokers && !is_broken(w, CLUSTER_MOVE_CHECK); i++)
        if ((op->state.isr & bit(i)) && c->view.live_epochs[i] >= 0)
            op->joins |= bit(i);
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
    bool is_leaderless = c->view.state.leader < 0 || is_broken(w, CLUSTER_FREEZE);
    if (!b->is_up || !c->is_active || c->view.version < 0 || !is_leaderless)
        return;
    for (int32_t i = 0; i < c->view.placement.replicas.count; i++) {
        int32_t id = c->view.placement.replicas.brokers[i];
        const struct controller_end *known = &c->reports[id];
        bool is_missing = known->broker_epoch != c->view.live_epochs[id] ||
                          known->leader_epoch != c->view.state.leader_epoch;
        struct message *m = world_new_message(w);
        if (m && is_missing && c->view.live_epochs[id] >= 0)
            *m = (struct message){.kind = MESSAGE_COMPARE,
                                  .from = broker_id(w, b),
                                  .to = id,
                                  .topic = c->view.topic,
                                  .life = b->life,
                                  .asked = c->view.state.leader_epoch};
    }
}

void controller_take_report(struct world *w, struct broker *b, int32_t topic, const struct controller_end *report)
{
    if (topic != b->controller.view.topic)
        return;
    TRACE(w, "controller %d hears of %d: epoch %d, end %d", broker_id(w, b), report->broker_id, report->last_epoch,
          (int)report->end);
    b->controller.reports[report->broker_id] = *report;
}
