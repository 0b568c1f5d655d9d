/* ZooKeeper, as far as one partition needs it: a state with a version, broker epochs, registrations, the controller's
 * seat. Writes are applied late, answered late, or never; one that nobody waits for may still be applied. */
#include "tests/property/cluster_world_private.h"

#include <string.h>

void state_to_znode(const struct state *s, struct znode_state *ret)
{
    ret->controller_epoch = s->controller_epoch;
    ret->leader = s->leader;
    ret->leader_epoch = s->leader_epoch;
    ret->isr_count = 0;
    for (int32_t i = 0; i < BROKERS_MAX; i++)
        if (s->isr & bit(i)) {
            ret->isr[ret->isr_count] = i;
            ret->isr_epochs[ret->isr_count++] = s->isr_epochs[i];
        }
}

void state_from_znode(const struct znode_state *z, struct state *ret)
{
    *ret = (struct state){
        .leader = z->leader, .leader_epoch = z->leader_epoch, .controller_epoch = z->controller_epoch};
    for (int32_t i = 0; i < z->isr_count; i++) {
        ret->isr |= bit(z->isr[i]);
        ret->isr_epochs[z->isr[i]] = (int32_t)z->isr_epochs[i];
    }
}

struct znode_replicas list_to_znode(const struct list *list, int32_t brokers[BROKERS_MAX])
{
    for (int32_t i = 0; i < list->count; i++)
        brokers[i] = list->brokers[i];
    return (struct znode_replicas){brokers, list->count};
}

static void to_long(const struct list *list, struct reassignment_list *ret)
{
    ret->count = list->count;
    for (int32_t i = 0; i < list->count; i++)
        ret->brokers[i] = list->brokers[i];
}

static void to_short(const struct reassignment_list *list, struct list *ret)
{
    ret->count = (int8_t)list->count;
    for (int32_t i = 0; i < list->count; i++)
        ret->brokers[i] = (int8_t)list->brokers[i];
}

void placement_to_reassignment(const struct placement *p, struct reassignment *ret)
{
    to_long(&p->replicas, &ret->replicas);
    to_long(&p->adding, &ret->adding);
    to_long(&p->removing, &ret->removing);
    to_long(&p->target, &ret->target);
}

void placement_from_reassignment(const struct reassignment *r, struct placement *ret)
{
    to_short(&r->replicas, &ret->replicas);
    to_short(&r->adding, &ret->adding);
    to_short(&r->removing, &ret->removing);
    to_short(&r->target, &ret->target);
}

struct op *zookeeper_new_op(struct world *w)
{
    for (int i = 0; i < OPS_MAX; i++)
        if (w->ops[i].stage == OP_NONE)
            return &w->ops[i];
    return NULL;
}

void zookeeper_read(struct world *w, struct view *ret)
{
    *ret = (struct view){.is_valid = true,
                         .topic = w->topic,
                         .placement = w->placement,
                         .placement_version = w->placement_version,
                         .version = w->has_state ? w->version : -1,
                         .state = w->state};
    for (int32_t i = 0; i < BROKERS_MAX; i++) {
        ret->live_epochs[i] = w->ids[i].is_live ? w->epochs[i] : -1;
        ret->clean_from[i] = w->ids[i].clean_from;
        ret->disk_from[i] = w->ids[i].disk_from;
        ret->draining |= w->ids[i].is_draining ? bit(i) : 0;
    }
}

static bool joins_are_known(const struct world *w, const struct op *op)
{
    for (int32_t i = 0; i < BROKERS_MAX; i++)
        if ((op->joins & bit(i)) && op->state.isr_epochs[i] != w->epochs[i])
            return false;
    return true;
}

static bool is_allowed(const struct world *w, const struct op *op)
{
    if (op->is_controllers && op->state.controller_epoch != w->controller_epoch && !is_broken(w, CLUSTER_FENCE))
        return false;
    if (op->topic != w->topic && !is_broken(w, CLUSTER_IDENTITY))
        return false;
    if (op->is_finish && op->placement_version != w->placement_version)
        return false;
    if (op->version < 0 || !w->has_state)
        return op->version < 0 && !w->has_state;
    if (op->version != w->version && !is_broken(w, CLUSTER_VERSION))
        return false;
    return joins_are_known(w, op) || (!op->is_finish && is_broken(w, CLUSTER_JOIN_CHECK));
}

/* The second part of the same multi: the target is where the partition is. */
static void finish_move(struct world *w, const struct op *op)
{
    struct reassignment move;
    placement_to_reassignment(&op->placement, &move);
    reassignment_finish(&move);
    placement_from_reassignment(&move, &w->placement);
    w->placement_version++;
    w->counts->moved++;
}

static void count(struct world *w, const struct op *op)
{
    uint32_t before = w->state.isr, now = op->state.isr;
    if (op->is_controllers)
        return;
    w->counts->expansions += (now & ~before) != 0;
    w->counts->shrinks += (before & ~now) != 0;
}

void zookeeper_apply(struct world *w, struct op *op)
{
    if (op->stage != OP_SENT && op->stage != OP_GHOST)
        return;
    op->outcome = LEADER_REFUSED;
    if (is_allowed(w, op)) {
        count(w, op);
        if (op->is_finish)
            finish_move(w, op);
        check_write(w, op);
        w->has_state = true;
        w->state = op->state;
        op->new_version = ++w->version;
        op->outcome = LEADER_APPLIED;
        if (op->is_finish)
            check_moved(w);
        TRACE(w, "version %d: leader %d, epoch %d, ISR %x", w->version, w->state.leader, w->state.leader_epoch,
              w->state.isr);
    }
    op->stage = op->stage == OP_SENT ? OP_ANSWERED : OP_NONE;
}

static void tell(struct world *w, const struct op *op)
{
    struct broker *b = &w->b[op->broker];
    if (!b->is_up || b->life != op->life)
        return;
    if (op->outcome == LEADER_UNKNOWN) {
        w->counts->unknown++;
        TRACE(w, "broker %d does not know the outcome of its write at version %d", op->broker, op->version);
    }
    if (op->is_controllers) {
        controller_answered(w, b, op);
    } else if (broker_leads(b) && b->topic == op->topic && b->leader.leader_epoch == op->state.leader_epoch) {
        leader_state_outcome(&b->leader, op->outcome, op->new_version);
        broker_publish(w, b);
    }
}

void zookeeper_answer(struct world *w, struct op *op)
{
    if (op->stage != OP_ANSWERED || (w->b[op->broker].is_up && w->b[op->broker].is_paused))
        return;
    op->stage = OP_NONE;
    tell(w, op);
}

void zookeeper_forget(struct world *w, struct op *op)
{
    struct broker *b = &w->b[op->broker];
    if (op->stage == OP_GHOST && world_chance(w, 64))
        op->stage = OP_NONE; /* it never arrives */
    if ((op->stage != OP_ANSWERED && op->stage != OP_SENT) || (b->is_up && b->is_paused))
        return;
    op->outcome = LEADER_UNKNOWN;
    op->stage = op->stage == OP_SENT ? OP_GHOST : OP_NONE;
    tell(w, op);
}

void zookeeper_expire(struct world *w, int32_t broker)
{
    if (!w->ids[broker].is_live)
        return;
    TRACE(w, "the session of broker %d expires", broker);
    w->ids[broker].is_live = false;
    if (w->controller == broker)
        w->controller = -1;
}
