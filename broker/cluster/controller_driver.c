#include "broker/cluster/controller_driver.h"

#include "broker/cluster/controller_driver_internal.h"
#include "coordination/paths.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/diag.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void outdated(void *arg)
{
    struct controller_driver *d = arg;
    if (d->is_active)
        d->s.outdated(d->s.arg);
}

int controller_driver_new(const struct controller_driver_settings *settings,
                          struct controller_driver **ret_driver)
{
    struct controller_driver *d = calloc(1, sizeof *d);
    if (!d)
        return -BROOK_E_NOMEM;
    d->s = *settings;
    d->plans = (struct controller_wishes){.kind = ZNODE_WISH_REASSIGN, .version = -1};
    d->elections = (struct controller_wishes){.kind = ZNODE_WISH_ELECT, .version = -1};
    struct topic_deletions_settings deletions = {
        .coordinator = settings->coordinator,
        .inbox = settings->inbox,
        .diag = settings->diag,
        .outdated = outdated,
        .arg = d,
    };
    if (topic_deletions_new(&deletions, &d->deletions)) {
        free(d);
        return -BROOK_E_NOMEM;
    }
    *ret_driver = d;
    return 0;
}

void controller_driver_free(struct controller_driver *d)
{
    if (!d)
        return;
    controller_wishes_stop(d);
    controller_chunk_free(d->chunk);
    topic_deletions_free(d->deletions);
    free(d);
}

void controller_driver_start(struct controller_driver *d, int32_t epoch, int32_t epoch_version)
{
    d->is_active = true;
    d->term++;
    d->epoch = epoch;
    d->epoch_version = epoch_version;
    d->all_is_due = true;
    d->doubt_ms = d->retry_ms = INT64_MAX;
    d->is_ending_throttle = false;
    d->throttle_ms = 0;
    d->rebalance_ms = clock_boot_ms() + d->s.rebalance_interval_ms;
    controller_wishes_start(d);
    topic_deletions_start(d->deletions, epoch_version);
}

void controller_driver_stop(struct controller_driver *d)
{
    d->is_active = false;
    d->term++;
    d->all_is_due = false;
    topic_deletions_stop(d->deletions);
    controller_wishes_stop(d);
    controller_drop_chunk(d);
}

bool controller_driver_is_active(const struct controller_driver *d)
{
    return d->is_active;
}

/* ---- deciding --------------------------------------------------------------------------------------- */

void controller_look_at(const struct controller_driver *d, const struct image_topic *topic, int32_t number,
                        struct controller_look *ret)
{
    const struct image_partition *p = &topic->partitions[number];
    bool has_state = image_partition_state(p, &ret->state);
    ret->ends.ends = ret->list;
    ret->ends.count = image_ends_of(topic, number, ret->list, ZNODE_REPLICAS_MAX);
    ret->offline_count = 0;
    for (int32_t i = 0; image_has_offline(d->s.image) && i < topic->node.replicas[number].count; i++) {
        int32_t id = topic->node.replicas[number].brokers[i];
        if (ret->offline_count < ZNODE_REPLICAS_MAX && image_is_offline(d->s.image, id, topic->name, number))
            ret->offline[ret->offline_count++] = id;
    }
    ret->partition = (struct controller_case){
        .replicas = &topic->node.replicas[number],
        .state = has_state ? &ret->state : NULL,
        .alive = image_alive(d->s.image),
        .unclean = topic->config.unclean_election || p->wish == IMAGE_WISH_UNCLEAN,
        .leave_out_absent = p->doubt_ms && clock_boot_ms() >= p->doubt_ms,
        .ends = &ret->ends,
        .is_durable = topic->is_made_fsync,
        .offline = ret->offline,
        .offline_count = ret->offline_count,
    };
}

/* A partition whose leader can only be found by comparing logs: what brokers told is read once by each
 * controller, and whoever is away is waited for, for a while. */
static void tend_doubt(struct controller_driver *d, struct image_topic *topic, int32_t number,
                       const struct controller_look *look)
{
    struct image_partition *p = &topic->partitions[number];
    if (!controller_wants_ends(&look->partition)) {
        p->doubt_ms = 0;
        return;
    }
    if (!p->doubt_ms)
        p->doubt_ms = clock_boot_ms() + d->s.absent_wait_ms;
    if (!look->partition.leave_out_absent && p->doubt_ms < d->doubt_ms)
        d->doubt_ms = p->doubt_ms;
    if (topic->ends_term == d->term || p->leader >= 0)
        return;
    topic->ends_term = d->term;
    state_reader_read_ends(d->s.reader, topic->name);
}

/* The partition has the leader that it can have now. Is it to be moved, or to be led by another? */
static bool consider_wishes(struct controller_driver *d, struct image_topic *topic, int32_t number,
                            const struct controller_look *look)
{
    struct controller_decision decision = {.verdict = CONTROLLER_ELECT};
    struct reassignment move;
    controller_move_of(&topic->node, number, &move);
    bool is_fresh = topic->node_version >= topic->assigned_version;
    bool is_finish =
        is_fresh && reassignment_step(&move, &look->partition, &decision.state) == REASSIGNMENT_FINISH;
    bool is_preferred = !is_finish && (d->prefer_all || topic->partitions[number].wish) &&
                        controller_prefer(&look->partition, &decision.state);
    if (!is_finish && !is_preferred)
        return true;
    decision.state.controller_epoch = d->epoch;
    return controller_add_state(d, topic, number, &decision, is_finish);
}

/* Only members that are about to stop are to go: their leader takes them out. If both tried, one of the two would be
 * refused, with all that it writes in the same transaction: elections, here. */
static bool is_for_its_leader(const struct controller_look *look, const struct controller_decision *decision)
{
    const struct controller_case *c = &look->partition;
    if (decision->verdict != CONTROLLER_ELECT || decision->state.leader != look->state.leader)
        return false;
    for (int32_t i = 0; i < look->state.isr_count; i++) {
        int32_t member = look->state.isr[i];
        if (!controller_is_assigned(c->replicas, member) ||
            (controller_find_broker(c->alive, member) && !controller_is_same_life(c, member)))
            return false;
    }
    return true;
}

/* Its state could not be written a short while ago. */
static bool has_to_wait(struct controller_driver *d, const struct image_partition *p)
{
    if (!p->failures || clock_boot_ms() >= p->not_before_ms)
        return false;
    if (p->not_before_ms < d->retry_ms)
        d->retry_ms = p->not_before_ms;
    return true;
}

/* Returns false when there is no room for another decision now. */
static bool consider_partition(struct controller_driver *d, struct image_topic *topic, int32_t number)
{
    struct controller_look look;
    struct controller_decision decision;
    /* What makes no sense is not written over, nor does it spoil what others are written with. */
    if (topic->partitions[number].is_busy || topic->partitions[number].is_unreadable ||
        has_to_wait(d, &topic->partitions[number]))
        return true;
    controller_look_at(d, topic, number, &look);
    controller_elect(&look.partition, &decision);
    tend_doubt(d, topic, number, &look);
    if (decision.verdict == CONTROLLER_KEEP || is_for_its_leader(&look, &decision))
        return consider_wishes(d, topic, number, &look);
    if (decision.verdict == CONTROLLER_CREATE && topic->has_odd_directories && !topic->is_mended) {
        controller_mend(d, topic);
        return true;
    }
    decision.state.controller_epoch = d->epoch;
    return controller_add_state(d, topic, number, &decision, false);
}

void controller_driver_read_ends(struct controller_driver *d, const char *topic)
{
    if (d->is_active && image_find(d->s.image, topic))
        state_reader_read_ends(d->s.reader, topic);
}

void controller_driver_consider(struct controller_driver *d, struct image_topic *topic)
{
    if (!d->is_active || d->all_is_due || topic->is_being_deleted)
        return;
    topic->has_directory = false;
    for (int32_t i = 0; i < topic->node.partitions_count && !topic->has_directory; i++)
        topic->has_directory = topic->partitions[i].version >= 0 || topic->partitions[i].is_busy;
    for (int32_t i = 0; i < topic->node.partitions_count; i++)
        if (!consider_partition(d, topic, i)) {
            d->all_is_due = true;
            return;
        }
}

void controller_driver_consider_all(struct controller_driver *d)
{
    d->all_is_due = d->is_active;
}

/* Leaders are given back at the times set, and whoever is waited for is so only until its time. */
static int64_t look_at_clock(struct controller_driver *d, int64_t now_ms)
{
    if (d->s.rebalance_leaders && now_ms >= d->rebalance_ms) {
        d->rebalance_ms = now_ms + d->s.rebalance_interval_ms;
        d->prefer_all = d->all_is_due = true;
    }
    if (now_ms >= d->doubt_ms) {
        d->doubt_ms = INT64_MAX; /* the look finds out for whom else */
        d->all_is_due = true;
    }
    if (now_ms >= d->retry_ms) {
        d->retry_ms = INT64_MAX;
        d->all_is_due = true;
    }
    int64_t next = d->s.rebalance_leaders ? d->rebalance_ms : INT64_MAX;
    next = d->retry_ms < next ? d->retry_ms : next;
    return d->doubt_ms < next ? d->doubt_ms : next;
}

static void look_at_everything(struct controller_driver *d)
{
    d->all_is_due = false;
    d->doubt_ms = d->retry_ms = INT64_MAX;
    for (size_t i = 0; i < image_topics_count(d->s.image) && !d->all_is_due; i++)
        controller_driver_consider(d, image_topic_at(d->s.image, i));
    if (!d->all_is_due)
        d->prefer_all = false;
}

int64_t controller_driver_run(struct controller_driver *d, int64_t now_ms)
{
    if (!d->is_active || !state_reader_is_complete(d->s.reader) || !image_knows_deleting(d->s.image))
        return INT64_MAX;
    int64_t next = look_at_clock(d, now_ms);
    bool may_look = state_reader_is_idle(d->s.reader) && d->in_flight < CONTROLLER_WRITES_IN_FLIGHT_MAX;
    if (d->all_is_due && may_look && now_ms >= d->not_before_ms)
        look_at_everything(d);
    controller_send(d);
    int64_t wishes = controller_wishes_run(d, now_ms);
    next = wishes < next ? wishes : next;
    for (size_t i = 0; i < image_deleting_count(d->s.image); i++)
        topic_deletions_want(d->deletions, image_deleting_at(d->s.image, i));
    if (d->all_is_due && now_ms < d->not_before_ms && d->not_before_ms < next)
        next = d->not_before_ms;
    if (image_deleting_count(d->s.image) && now_ms + TOPIC_DELETION_RETRY_MS < next)
        next = now_ms + TOPIC_DELETION_RETRY_MS;
    return next;
}
