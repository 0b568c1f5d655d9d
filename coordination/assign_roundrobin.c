#include "coordination/assign_plan.h"

/* The first subscriber at or after plan->next, in a circle. */
static size_t first_slot(const struct assign_plan *plan)
{
    for (size_t s = 0; s < plan->count; s++)
        if ((size_t)plan->subscribers[s] >= plan->next)
            return s;
    return 0;
}

void assign_roundrobin(struct assign_plan *plan, struct assign_topic *topic)
{
    size_t s = first_slot(plan);
    for (int32_t p = 0; p < topic->partitions_count; p++) {
        topic->owner[p] = plan->subscribers[s];
        plan->next = (size_t)plan->subscribers[s] + 1;
        s = (s + 1) % plan->count;
    }
}
