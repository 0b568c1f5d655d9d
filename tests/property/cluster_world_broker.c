/* One broker: its log, its role, its followers or its leader. */
#include "tests/property/cluster_world_private.h"

#include <string.h>

/* ---- the log ---------------------------------------------------------------------------------------- */

struct epoch_history broker_history(const struct broker *b)
{
    return (struct epoch_history){b->entries, (size_t)b->entries_count, 0, b->log_end};
}

int32_t broker_safe_end(const struct broker *b)
{
    int32_t mode = b->is_fsync ? DURABILITY_FSYNC : DURABILITY_REPLICATED;
    return (int32_t)durability_safe_end(mode, b->log_end, b->durable_end);
}

static void note_epoch(struct broker *b, int32_t offset)
{
    int32_t epoch = b->log[offset].epoch;
    if (!b->entries_count || b->entries[b->entries_count - 1].epoch < epoch)
        b->entries[b->entries_count++] = (struct epoch_entry){epoch, offset};
}

void broker_rebuild_epochs(struct broker *b)
{
    b->entries_count = 0;
    for (int32_t i = 0; i < b->log_end; i++)
        note_epoch(b, i);
}

void broker_append(struct world *w, struct broker *b, struct record record)
{
    b->log[b->log_end] = record;
    note_epoch(b, b->log_end);
    w->held[record.value] |= (uint8_t)bit(broker_id(w, b));
    check_append(w, b, b->log_end++);
}

void broker_drop_log(struct broker *b)
{
    b->log_end = b->disk_end = b->durable_end = b->mark_on_disk = b->entries_count = 0;
    b->reached_epoch = b->reached_on_disk = b->told_start = -1;
    b->high_watermark = 0;
    b->kept_count = 0;
    b->old_view.is_valid = false; /* what is read from now on is newer */
    replica_role_init(&b->role);
    follower_state_init(&b->follower);
    leader_state_init(&b->leader, BROKERS_MAX);
}

/* The cut is not on the disk before the next sync: a power cut may bring back what was there. */
void broker_cut(struct world *w, struct broker *b, int32_t end)
{
    check_cut(w, b, end);
    if (end < b->log_end)
        w->counts->cuts++;
    b->log_end = end < b->log_end ? end : b->log_end;
    if (b->durable_end > b->log_end)
        b->durable_end = b->log_end;
    b->high_watermark = watermark_within(b->high_watermark, b->log_end);
    broker_rebuild_epochs(b);
}

void broker_sync(struct world *w, struct broker *b)
{
    if (!b->is_up)
        return;
    memcpy(b->disk, b->log, sizeof b->disk);
    for (int32_t i = 0; i < b->log_end; i++)
        w->durable[b->log[i].value] |= (uint8_t)bit(broker_id(w, b));
    b->disk_end = b->durable_end = b->log_end;
    broker_move_mark(w, b);
}

/* ---- leading ---------------------------------------------------------------------------------------- */

static void acknowledge(struct world *w, struct broker *b)
{
    while (b->acknowledged < b->log_end && watermark_answer(&b->limits, b->high_watermark, b->acknowledged) == 0) {
        check_acknowledged(w, b, b->acknowledged);
        b->acknowledged++;
    }
}

void broker_move_mark(struct world *w, struct broker *b)
{
    if (!broker_leads(b))
        return;
    int64_t before = b->high_watermark;
    b->high_watermark = watermark_lead(&b->limits, before, broker_safe_end(b));
    check_mark(w, b, before);
    acknowledge(w, b);
}

void broker_publish(struct world *w, struct broker *b)
{
    if (!broker_leads(b))
        return;
    uint32_t proposed = b->leader.proposed;
    if (is_broken(w, CLUSTER_UNION))
        b->leader.proposed = 0;
    leader_state_limits(&b->leader, &b->limits);
    b->leader.proposed = proposed;
    b->limits.min_in_sync = is_broken(w, CLUSTER_MIN_INSYNC) ? 1 : w->min_in_sync;
    broker_move_mark(w, b);
}

void broker_produce(struct world *w, struct broker *b)
{
    if (!broker_leads(b) || b->log_end == LOG_MAX || w->next_value == VALUES_MAX || !watermark_has_enough(&b->limits))
        return;
    struct record record = {(int16_t)b->leader.leader_epoch, w->next_value++};
    TRACE(w, "broker %d appends %d at %d, epoch %d", broker_id(w, b), record.value, b->log_end, record.epoch);
    broker_append(w, b, record);
    broker_move_mark(w, b);
}

void broker_ask_latest(struct world *w, struct broker *b)
{
    bool is_current = broker_leads(b) && w->has_state && b->topic == w->topic && w->state.leader == broker_id(w, b) &&
                      w->state.leader_epoch == b->leader.leader_epoch;
    bool is_known = broker_leads(b) && watermark_is_current(&b->limits, b->high_watermark);
    if (!is_current || (!is_known && !is_broken(w, CLUSTER_LATEST)))
        return;
    if (b->high_watermark < w->committed_end)
        world_fail(w, "`latest` goes back behind what consumers saw");
}

static struct op *new_isr_op(struct world *w, struct broker *b, const struct leader_isr_change *change)
{
    struct op *op = zookeeper_new_op(w);
    if (!op)
        return NULL;
    *op = (struct op){.stage = OP_SENT, .broker = broker_id(w, b), .life = b->life, .topic = b->topic, .version = change->version};
    state_from_znode(&change->state, &op->state);
    for (int32_t i = 0; i < change->checks_count; i++)
        op->joins |= bit(change->checks[i].broker_id);
    TRACE(w, "broker %d sends ISR %x (stored %x) at version %d", op->broker, op->state.isr, w->state.isr, op->version);
    return op;
}

void broker_change_isr(struct world *w, struct broker *b)
{
    struct leader_isr_change change;
    if (!broker_leads(b) || !zookeeper_new_op(w))
        return;
    int64_t epoch_start = b->leader.epoch_start;
    if (is_broken(w, CLUSTER_EPOCH_START))
        b->leader.epoch_start = 0;
    bool is_due = leader_state_propose(&b->leader, b->high_watermark, w->now, &change);
    b->leader.epoch_start = epoch_start;
    if (!is_due)
        return;
    broker_publish(w, b);
    if (leader_state_confirm(&b->leader, b->high_watermark))
        new_isr_op(w, b, &change);
    else
        broker_publish(w, b);
}

/* ---- the epoch that was reached --------------------------------------------------------------------- */

/* Of a topic that was made with fsync it is on the disk, and so is the log up to its start, before it is told to anybody. */
void broker_reach(struct world *w, struct broker *b)
{
    struct epoch_history history = broker_history(b);
    if (!broker_follows(b) || b->told_start < 0)
        return;
    int64_t safe_end = is_broken(w, CLUSTER_REACH_UNSAFE) ? b->log_end : broker_safe_end(b);
    int32_t reached = follower_state_reached(&b->follower, &history, safe_end, b->reached_epoch, b->told_start);
    if (reached == b->reached_epoch || (b->was_fsync && !w->is_healing && world_chance(w, 64)))
        return;
    if (b->was_fsync)
        b->reached_on_disk = reached;
    b->reached_epoch = reached;
    TRACE(w, "broker %d has reached epoch %d", broker_id(w, b), reached);
}

void broker_keep_reach(struct world *w, struct broker *b)
{
    if (!broker_leads(b) || !b->leader.awaits_reach)
        return;
    if (b->reached_on_disk < b->reached_epoch)
        b->reached_on_disk = b->reached_epoch;
    leader_state_await_reach(&b->leader, false);
    broker_publish(w, b);
}

/* ---- roles ------------------------------------------------------------------------------------------ */

static void see_brokers(struct broker *b, const struct view *view)
{
    for (int32_t i = 0; i < BROKERS_MAX; i++)
        leader_state_broker(&b->leader, i, view->live_epochs[i], view->draining & bit(i));
}

static void keep_positions(struct world *w, struct broker *b)
{
    if (!is_broken(w, CLUSTER_FORGET))
        return;
    for (int32_t i = 0; i < b->kept_count; i++)
        for (int32_t k = 0; k < b->leader.replicas_count; k++)
            if (b->leader.replicas[k].broker_id == b->kept[i].broker_id) {
                b->leader.replicas[k].broker_epoch = b->kept[i].broker_epoch;
                b->leader.replicas[k].safe_end = b->kept[i].safe_end;
            }
}

static void begin_leading(struct world *w, struct broker *b, const struct view *view)
{
    struct znode_state state;
    struct epoch_history history = broker_history(b);
    int32_t brokers[BROKERS_MAX];
    struct znode_replicas replicas = list_to_znode(&view->placement.replicas, brokers);
    state_to_znode(&view->state, &state);
    struct leader_beginning beginning = {.broker_id = broker_id(w, b),
                                         .replicas = &replicas,
                                         .state = &state,
                                         .version = view->version,
                                         .history = &history,
                                         .lag_ms_max = LAG_MS_MAX,
                                         .now_ms = w->now};
    if (leader_state_begin(&b->leader, &beginning)) {
        world_fail(w, "a leader can not begin");
        return;
    }
    b->acknowledged = (int32_t)b->leader.epoch_start;
    b->reached_epoch = b->leader.leader_epoch;
    leader_state_await_reach(&b->leader, b->was_fsync && b->reached_on_disk < b->reached_epoch &&
                                             !is_broken(w, CLUSTER_LEAD_UNKEPT));
    keep_positions(w, b);
    check_begin(w, b);
}

static void begin_following(struct world *w, struct broker *b, const struct replica_step *step)
{
    follower_state_begin(&b->follower, step->leader, step->leader_epoch);
    b->told_start = -1;
    if (is_broken(w, CLUSTER_TRUNCATE))
        broker_cut(w, b, (int32_t)b->high_watermark);
}

/* Moved away: nobody has to keep anything here any more. */
static void leave(struct broker *b, int32_t leader_epoch)
{
    broker_drop_log(b);
    b->left_epoch = leader_epoch;
    b->generation++;
    b->disk_generation++;
}

static void change_role(struct world *w, struct broker *b, const struct view *view, const struct replica_step *step)
{
    if (b->role.step.duty == REPLICA_LEAD && b->leader.self >= 0) {
        memcpy(b->kept, b->leader.replicas, sizeof b->kept);
        b->kept_count = b->leader.replicas_count;
    }
    TRACE(w, "broker %d: duty %d, leader %d, epoch %d", broker_id(w, b), step->duty, step->leader, step->leader_epoch);
    replica_role_begin(&b->role, step);
    if (is_broken(w, CLUSTER_REMEMBER))
        replica_role_completed(&b->role);
    if (!w->is_healing && world_chance(w, 16)) {
        TRACE(w, "broker %d: the change fails half way", broker_id(w, b));
        return;
    }
    follower_state_init(&b->follower);
    if (step->duty == REPLICA_LEAVE) {
        leave(b, step->leader_epoch);
        return;
    }
    if (step->duty == REPLICA_LEAD)
        begin_leading(w, b, view);
    if (step->duty == REPLICA_FOLLOW)
        begin_following(w, b, step);
    replica_role_completed(&b->role);
}

static enum replica_verdict decide_role(struct world *w, struct broker *b, const struct view *view,
                                        struct replica_step *step)
{
    struct znode_state state;
    state_to_znode(&view->state, &state);
    struct epoch_history history = broker_history(b);
    struct replica_self self = {.broker_id = broker_id(w, b),
                                .broker_epoch = b->broker_epoch,
                                .log_epoch = epoch_history_last(&history),
                                .is_assigned = list_holds(&view->placement.replicas, broker_id(w, b))};
    struct replica_role role = b->role;
    if (is_broken(w, CLUSTER_OLD_LIFE) && state.leader == self.broker_id)
        self.broker_epoch = view->state.isr_epochs[self.broker_id];
    if (is_broken(w, CLUSTER_OLD_STATE)) {
        self.log_epoch = -1;
        if (state.leader_epoch < role.step.leader_epoch)
            replica_role_init(&role);
    }
    enum replica_verdict verdict = replica_role_decide(&role, &self, &state, step);
    if (verdict == REPLICA_CHANGE && step->leader_epoch < b->role.step.leader_epoch)
        replica_role_init(&b->role); /* a broken rule's */
    return verdict;
}

static void keep_role(struct world *w, struct broker *b, const struct view *view)
{
    struct znode_state state;
    if (!broker_leads(b))
        return;
    int32_t brokers[BROKERS_MAX];
    struct znode_replicas replicas = list_to_znode(&view->placement.replicas, brokers);
    bool wanted = leader_state_wants_read(&b->leader);
    state_to_znode(&view->state, &state);
    if (!leader_state_assign(&b->leader, &replicas, w->now))
        leader_state_read(&b->leader, &state, view->version);
    if (is_broken(w, CLUSTER_SETTLE) && wanted && !leader_state_wants_read(&b->leader))
        b->leader.proposed = 0;
}

void broker_look(struct world *w, struct broker *b)
{
    if (b->is_up && !b->is_cut && !b->view.is_valid)
        zookeeper_read(w, &b->view);
    if (b->view.is_valid && b->view.topic != b->topic && !w->is_healing && world_chance(w, 64))
        b->view.topic = b->topic; /* the topic's node was read before, the state now */
}

static void notice_expiry(struct world *w, struct broker *b)
{
    int32_t id = broker_id(w, b);
    if (w->ids[id].is_live && w->ids[id].life == b->life)
        return;
    b->knows_expired = true;
    b->controller.is_active = false;
}

/* Mostly the read that was sent last; sometimes one from before, which comes late. */
static struct view next_view(struct world *w, struct broker *b)
{
    struct view view = b->view;
    if (!w->is_healing && b->old_view.is_valid && world_chance(w, 12))
        return b->old_view;
    b->view.is_valid = false;
    if (!w->is_healing && view.is_valid && world_chance(w, 24))
        b->old_view = view;
    return view;
}

/* Another topic of that name: the log that is here is of one that was deleted. */
static void take_topic(struct world *w, struct broker *b, const struct view *view)
{
    TRACE(w, "broker %d hosts topic %d now", broker_id(w, b), view->topic);
    broker_drop_log(b);
    b->topic = view->topic;
    b->placement_version = -1;
    b->left_epoch = 0;
    broker_configure(w, b); /* the settings are read behind the node */
}

/* A state may come late; the topic's node that goes with it is the newest that was read. */
static void take_placement(struct broker *b, struct view *view)
{
    if (view->placement_version < b->placement_version) {
        view->placement = b->placement;
        return;
    }
    b->placement = view->placement;
    b->placement_version = view->placement_version;
}

void broker_take_view(struct world *w, struct broker *b)
{
    struct view view = next_view(w, b);
    struct replica_step step;
    if (!b->is_up || !view.is_valid)
        return;
    b->seen_version = view.version;
    notice_expiry(w, b);
    if (view.topic > b->topic)
        take_topic(w, b, &view);
    if (view.version < 0 || b->broker_epoch < 0 || view.topic < b->topic)
        return;
    take_placement(b, &view);
    enum replica_verdict verdict = decide_role(w, b, &view, &step);
    if (verdict == REPLICA_REFUSE) {
        TRACE(w, "broker %d refuses epoch %d", broker_id(w, b), view.state.leader_epoch);
        return;
    }
    if (verdict == REPLICA_CHANGE)
        change_role(w, b, &view, &step);
    else
        keep_role(w, b, &view);
    if (broker_leads(b))
        see_brokers(b, &view);
    broker_publish(w, b);
}

void broker_configure(struct world *w, struct broker *b)
{
    b->is_fsync = w->is_fsync;
    b->was_fsync = w->was_fsync;
}

/* A registration is one multi; then it goes to the disk, and only then the broker acts as what it is registered. */
void broker_register(struct world *w, struct broker *b)
{
    int32_t id = broker_id(w, b);
    bool is_due = b->knows_expired || (b->broker_epoch < 0 && b->registering < 0);
    if (!b->is_up || b->is_cut || !is_due)
        return;
    if (b->registering >= 0 && world_chance(w, 128))
        b->epoch_on_disk = b->disk_from = b->registering; /* the one before has come so far */
    if (!is_broken(w, CLUSTER_BOUNCE) || !w->epochs[id])
        w->epochs[id]++;
    b->knows_expired = false;
    w->ids[id] = (struct registration){true, b->life, b->clean_from, b->disk_from, false};
    b->registering = w->epochs[id];
    if (w->controller == id)
        w->controller = -1;
    b->controller.is_active = false;
    TRACE(w, "broker %d registers: epoch %d, clean from %d, disk from %d", id, b->registering, w->ids[id].clean_from,
          w->ids[id].disk_from);
    if (!w->is_healing && world_chance(w, w->unnoted))
        world_chance(w, 96) ? fault_cut_power(w, b) : fault_end_process(w, b, false);
    else if (w->is_healing || world_chance(w, 192))
        broker_note(w, b);
}

/* What can not be written proves nothing, and holds up nobody. */
void broker_note(struct world *w, struct broker *b)
{
    if (!b->is_up || b->registering < 0)
        return;
    int32_t epoch = b->registering;
    bool fails = !w->is_healing && world_chance(w, 4);
    b->registering = -1;
    if (!fails || world_chance(w, 128))
        b->epoch_on_disk = epoch;
    b->disk_from = fails ? -1 : epoch;
    if (b->knows_expired)
        return; /* it is gone already */
    b->broker_epoch = b->clean_from = epoch;
    b->view.is_valid = false;
    if (b->first_epoch < 0)
        b->first_epoch = epoch;
    TRACE(w, "broker %d acts as epoch %d%s", broker_id(w, b), epoch, fails ? ", which is not on its disk" : "");
    if (w->is_restless && !w->is_healing && world_chance(w, 96)) {
        zookeeper_expire(w, broker_id(w, b));
        b->knows_expired = true;
        b->controller.is_active = false;
    }
}
