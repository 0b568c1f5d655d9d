#include "coordination/assign_plan.h"

void assign_range(struct assign_plan *plan, struct assign_topic *topic)
{
    int32_t count = (int32_t)plan->count;
    int32_t share = topic->partitions_count / count;
    int32_t remainder = topic->partitions_count % count;
    int32_t p = 0;
    for (int32_t s = 0; s < count; s++) {
        int32_t end = p + share + (s < remainder);
        while (p < end)
            topic->owner[p++] = plan->subscribers[s];
    }
}
