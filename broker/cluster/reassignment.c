#include "broker/cluster/reassignment.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

static bool holds(const struct reassignment_list *list, int32_t broker_id)
{
    for (int32_t i = 0; i < list->count; i++)
        if (list->brokers[i] == broker_id)
            return true;
    return false;
}

static void append(struct reassignment_list *list, int32_t broker_id)
{
    assert(list->count < ZNODE_REPLICAS_MAX);
    list->brokers[list->count++] = broker_id;
}

/* Those of `a` that `b` does not hold, in their order. */
static struct reassignment_list without(const struct reassignment_list *a, const struct reassignment_list *b)
{
    struct reassignment_list ret = {0};
    for (int32_t i = 0; i < a->count; i++)
        if (!holds(b, a->brokers[i]))
            append(&ret, a->brokers[i]);
    return ret;
}

static struct znode_replicas as_replicas(const struct reassignment_list *list)
{
    return (struct znode_replicas){(int32_t *)(uintptr_t)list->brokers, list->count};
}

bool reassignment_is_running(const struct reassignment *r)
{
    return r->adding.count || r->removing.count;
}

bool reassignment_is_cancelled(const struct reassignment *r)
{
    return r->adding.count && without(&r->adding, &r->removing).count == 0;
}

/* ---- course ----------------------------------------------------------------------------------------- */

static int check_target(const struct reassignment_list *target, struct brook_error *error)
{
    if (target->count < 1)
        return brook_error_set(error, BROOK_E_INVALID_REPLICAS, "a partition needs at least one replica");
    for (int32_t i = 0; i < target->count; i++) {
        struct reassignment_list before = *target;
        before.count = i;
        if (holds(&before, target->brokers[i]))
            return brook_error_set(error, BROOK_E_INVALID_REPLICAS, "broker %" PRId32 " is named twice",
                                   target->brokers[i]);
    }
    return 0;
}

int reassignment_begin(const struct reassignment *now, const struct reassignment_list *target,
                       struct reassignment *ret, struct brook_error *error)
{
    int err = check_target(target, error);
    if (err)
        return err;
    struct reassignment_list old = without(&now->replicas, &now->adding);
    struct reassignment_list adding = without(target, &old);
    /* What is being added and is not wanted any more may be in sync, even lead: it goes at the end as the old
     * ones do. */
    struct reassignment_list dropped = without(&now->adding, target);
    if (old.count + adding.count + dropped.count > ZNODE_REPLICAS_MAX)
        return brook_error_set(error, BROOK_E_INVALID_REPLICAS,
                               "old and new replicas together are more than %d", ZNODE_REPLICAS_MAX);
    struct reassignment next = {.replicas = old, .adding = adding, .target = *target};
    for (int32_t i = 0; i < adding.count; i++)
        append(&next.replicas, adding.brokers[i]);
    for (int32_t i = 0; i < dropped.count; i++) {
        append(&next.replicas, dropped.brokers[i]);
        append(&next.adding, dropped.brokers[i]);
    }
    next.removing = without(&next.replicas, target);
    if (!reassignment_is_running(&next))
        next.replicas = *target;
    *ret = next;
    return 0;
}

int reassignment_cancel(const struct reassignment *now, struct reassignment *ret)
{
    if (!reassignment_is_running(now))
        return -BROOK_E_NO_REASSIGNMENT;
    struct reassignment next = *now;
    next.target = without(&now->replicas, &now->adding);
    next.removing = now->adding; /* none: nothing was added yet, and nothing has to go */
    *ret = next;
    return 0;
}

void reassignment_finish(struct reassignment *r)
{
    r->replicas = r->target;
    memset(&r->adding, 0, sizeof r->adding);
    memset(&r->removing, 0, sizeof r->removing);
}

/* ---- step ------------------------------------------------------------------------------------------- */

static bool may_lead(const struct controller_case *c, int32_t broker_id)
{
    return controller_counts(c, broker_id) && !controller_is_leaving(c, broker_id);
}

static bool is_complete(const struct reassignment *r, const struct controller_case *c)
{
    int32_t in_sync = 0;
    for (int32_t i = 0; i < r->target.count; i++)
        in_sync += may_lead(c, r->target.brokers[i]);
    return reassignment_is_cancelled(r) ? in_sync > 0 : in_sync == r->target.count;
}

static int32_t leader_of(const struct reassignment *r, const struct controller_case *c)
{
    int32_t leader = c->state->leader;
    if (leader >= 0 && holds(&r->target, leader) && may_lead(c, leader))
        return leader;
    for (int32_t i = 0; i < r->target.count; i++)
        if (may_lead(c, r->target.brokers[i]))
            return r->target.brokers[i];
    return -1;
}

enum reassignment_verdict reassignment_step(const struct reassignment *r, const struct controller_case *partition,
                                            struct znode_state *ret_state)
{
    if (!reassignment_is_running(r))
        return REASSIGNMENT_NONE;
    struct znode_replicas target = as_replicas(&r->target), all = as_replicas(&r->replicas);
    /* Who counts is judged among all: being the only one left is no merit. */
    struct controller_case judged = *partition;
    judged.replicas = &all;
    if (!partition->state || !is_complete(r, &judged))
        return REASSIGNMENT_WAIT;
    struct znode_state next = *partition->state;
    next.leader = leader_of(r, &judged);
    assert(next.leader >= 0);
    next.leader_epoch++;
    judged.replicas = &target;
    controller_carry_isr(&judged, &next);
    *ret_state = next;
    return REASSIGNMENT_FINISH;
}
