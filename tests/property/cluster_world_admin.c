/* What administrators ask for: a topic that is deleted and made again, a partition that is moved. */
#include "tests/property/cluster_world_private.h"

/* A random order of some brokers. */
static void some_brokers(struct world *w, struct reassignment_list *ret)
{
    int32_t first = (int32_t)world_below(w, (uint32_t)w->brokers);
    ret->count = 1 + (int32_t)world_below(w, (uint32_t)w->brokers);
    for (int32_t i = 0; i < ret->count; i++)
        ret->brokers[i] = (first + i) % w->brokers;
}

/* Nodes of the old one are gone, versions and epochs begin anew, and its brokers do not know yet. */
void admin_remake_topic(struct world *w)
{
    struct reassignment_list replicas;
    some_brokers(w, &replicas);
    struct reassignment nothing = {.replicas = replicas, .target = replicas};
    w->topic++;
    placement_from_reassignment(&nothing, &w->placement);
    w->placement_version = 0;
    w->has_state = false;
    w->version = -1;
    w->state = (struct state){.leader = -1};
    w->was_fsync = w->is_fsync;
    w->min_in_sync = 1 + (int32_t)world_below(w, replicas.count > 1 ? 2 : 1);
    w->counts->remade++;
    check_begin_anew(w);
    TRACE(w, "the topic is deleted, and made again: topic %d", w->topic);
}

/* Begin a move, change its course, or take it back. */
void admin_move(struct world *w)
{
    struct reassignment now, next;
    struct reassignment_list target;
    struct brook_error error;
    placement_to_reassignment(&w->placement, &now);
    some_brokers(w, &target);
    bool is_done = world_chance(w, 64) ? !reassignment_cancel(&now, &next)
                                       : !reassignment_begin(&now, &target, &next, &error);
    if (!is_done)
        return;
    placement_from_reassignment(&next, &w->placement);
    w->placement_version++;
    TRACE(w, "the partition is to be on %d brokers, the first is %d", next.target.count, next.target.brokers[0]);
}
