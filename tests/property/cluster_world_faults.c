/* What happens to brokers. */
#include "tests/property/cluster_world_private.h"

#include <string.h>

static void abandon_ops(struct world *w, int32_t broker)
{
    for (int i = 0; i < OPS_MAX; i++) {
        struct op *op = &w->ops[i];
        if (op->broker != broker || op->stage == OP_NONE)
            continue;
        op->stage = op->stage == OP_ANSWERED ? OP_NONE : OP_GHOST;
    }
}

/* Killed: the page cache stays, but nobody knows that. */
void fault_end_process(struct world *w, struct broker *b, bool is_clean)
{
    if (!b->is_up)
        return;
    TRACE(w, "broker %d %s", broker_id(w, b), is_clean ? "stops" : "is killed");
    if (is_clean) {
        broker_sync(w, b);
        b->clean_on_disk = b->broker_epoch;
        b->mark_on_disk = (int32_t)b->high_watermark;
        b->reached_on_disk = b->reached_epoch;
    } else {
        b->generation++;
        w->counts->kills++;
    }
    b->is_up = b->is_paused = false;
    b->controller.is_active = false;
    abandon_ops(w, broker_id(w, b));
}

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* Either the log as it was at the last sync, or some of what came later as well. */
void fault_cut_power(struct world *w, struct broker *b)
{
    fault_end_process(w, b, false);
    w->counts->power_cuts++;
    if (world_chance(w, 128)) {
        memcpy(b->log, b->disk, sizeof b->log);
        b->log_end = b->disk_end;
    } else if (b->log_end > b->durable_end) {
        b->log_end = b->durable_end + (int32_t)world_below(w, (uint32_t)(b->log_end - b->durable_end));
    }
    memcpy(b->disk, b->log, sizeof b->disk);
    b->disk_end = b->durable_end = b->log_end;
    for (int32_t i = 0; i < b->log_end; i++)
        w->durable[b->log[i].value] |= (uint8_t)bit(broker_id(w, b));
    broker_rebuild_epochs(b);
    TRACE(w, "broker %d loses power: its log ends at %d", broker_id(w, b), b->log_end);
}

void fault_lose_disk(struct world *w, struct broker *b)
{
    fault_end_process(w, b, false);
    TRACE(w, "broker %d loses its disk", broker_id(w, b));
    w->counts->empty_disks++;
    b->generation++;
    b->disk_generation++;
    b->log_end = b->disk_end = b->durable_end = b->mark_on_disk = b->entries_count = 0;
    b->clean_on_disk = b->epoch_on_disk = b->reached_on_disk = -1;
}

void fault_start(struct world *w, struct broker *b)
{
    if (b->is_up)
        return;
    TRACE(w, "broker %d starts", broker_id(w, b));
    if (w->ids[broker_id(w, b)].is_live)
        w->counts->bounces++;
    b->is_up = true;
    b->is_paused = b->is_cut = false;
    b->life++;
    b->clean_from = is_broken(w, CLUSTER_CLEAN) ? b->epoch_on_disk : b->clean_on_disk;
    b->disk_from = b->epoch_on_disk;
    b->clean_on_disk = -1;
    b->broker_epoch = b->first_epoch = b->registering = b->told_start = -1;
    b->reached_epoch = is_broken(w, CLUSTER_KEPT) ? -1 : b->reached_on_disk;
    b->knows_expired = false;
    b->view.is_valid = b->old_view.is_valid = false;
    b->seen_version = b->placement_version = -1;
    broker_configure(w, b);
    b->high_watermark = least(b->mark_on_disk, b->log_end);
    b->controller = (struct controller){.term = b->controller.term};
    replica_role_init(&b->role);
    follower_state_init(&b->follower);
    leader_state_init(&b->leader, BROKERS_MAX);
    b->kept_count = 0;
}
