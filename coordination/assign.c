#include "coordination/assign.h"

#include "coordination/assign_plan.h"
#include "proto/base/err.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {
    [ASSIGN_RANGE] = "range", [ASSIGN_ROUNDROBIN] = "roundrobin", [ASSIGN_STICKY] = "sticky"};

int assign_strategy_parse(const char *name, enum assign_strategy *ret_strategy)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0) {
            *ret_strategy = (enum assign_strategy)i;
            return 0;
        }
    return -BROOK_E_INVALID;
}

const char *assign_strategy_name(enum assign_strategy strategy)
{
    return names[strategy];
}

static int plan_init(struct assign_plan *plan, size_t members_count)
{
    *plan = (struct assign_plan){
        .slot = malloc((members_count + 1) * sizeof *plan->slot),
        .subscribers = malloc((members_count + 1) * sizeof *plan->subscribers),
        .held = malloc((members_count + 1) * sizeof *plan->held),
        .quota = malloc((members_count + 1) * sizeof *plan->quota),
        .total = calloc(members_count + 1, sizeof *plan->total),
        .order = malloc((members_count + 1) * sizeof *plan->order),
        .members_count = members_count,
    };
    bool complete =
        plan->slot && plan->subscribers && plan->held && plan->quota && plan->total && plan->order;
    return complete ? 0 : -BROOK_E_NOMEM;
}

static void plan_done(struct assign_plan *plan)
{
    free(plan->slot);
    free(plan->subscribers);
    free(plan->held);
    free(plan->quota);
    free(plan->total);
    free(plan->order);
}

/* The subscribers of a topic as a set, in order of their index; `slot` finds a member in it. */
static void plan_enter(struct assign_plan *plan, const struct assign_topic *topic)
{
    for (size_t m = 0; m < plan->members_count; m++)
        plan->slot[m] = -1;
    for (size_t i = 0; i < topic->subscribers_count; i++) {
        int32_t m = topic->subscribers[i];
        if (m >= 0 && (size_t)m < plan->members_count)
            plan->slot[m] = 0;
    }
    plan->count = 0;
    for (size_t m = 0; m < plan->members_count; m++)
        if (plan->slot[m] == 0) {
            plan->slot[m] = (int32_t)plan->count;
            plan->subscribers[plan->count++] = (int32_t)m;
        }
}

int assign_compute(enum assign_strategy strategy, struct assign_topic *topics, size_t topics_count,
                   size_t members_count)
{
    static void (*const strategies[])(struct assign_plan *,
                                      struct assign_topic *) = {[ASSIGN_RANGE] = assign_range,
                                                                [ASSIGN_ROUNDROBIN] = assign_roundrobin,
                                                                [ASSIGN_STICKY] = assign_sticky};

    struct assign_plan plan;
    int err = plan_init(&plan, members_count);
    for (size_t t = 0; !err && t < topics_count; t++) {
        if (topics[t].partitions_count <= 0)
            continue;
        plan_enter(&plan, &topics[t]);
        if (plan.count > 0)
            strategies[strategy](&plan, &topics[t]);
        else
            for (int32_t p = 0; p < topics[t].partitions_count; p++)
                topics[t].owner[p] = -1;
    }
    plan_done(&plan);
    return err;
}
