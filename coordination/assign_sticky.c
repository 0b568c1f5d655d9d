#include "coordination/assign_plan.h"

#include <stdbool.h>

static int32_t slot_of(const struct assign_plan *plan, int32_t member)
{
    return member >= 0 && (size_t)member < plan->members_count ? plan->slot[member] : -1;
}

/* Who gets one of the partitions that do not divide evenly: those who hold more than the even share keep it,
 * so that nothing moves for it; among equals the one with less to do so far, then the first. */
static bool goes_before(const struct assign_plan *plan, int32_t a, int32_t b, int32_t share)
{
    bool a_holds = plan->held[a] > share;
    bool b_holds = plan->held[b] > share;
    if (a_holds != b_holds)
        return a_holds;
    int64_t a_total = plan->total[plan->subscribers[a]];
    int64_t b_total = plan->total[plan->subscribers[b]];
    return a_total != b_total ? a_total < b_total : a < b;
}

/* Heap order by goes_before, the last in front: sifts the root of order[0..count) down. */
static void sift(struct assign_plan *plan, size_t root, size_t count, int32_t share)
{
    for (;;) {
        size_t child = 2 * root + 1;
        if (child >= count)
            return;
        if (child + 1 < count && goes_before(plan, plan->order[child], plan->order[child + 1], share))
            child++;
        if (!goes_before(plan, plan->order[root], plan->order[child], share))
            return;
        int32_t swap = plan->order[root];
        plan->order[root] = plan->order[child];
        plan->order[child] = swap;
        root = child;
    }
}

static void sort_order(struct assign_plan *plan, int32_t share)
{
    for (size_t s = 0; s < plan->count; s++)
        plan->order[s] = (int32_t)s;
    for (size_t root = plan->count / 2; root-- > 0;)
        sift(plan, root, plan->count, share);
    for (size_t end = plan->count; end-- > 1;) {
        int32_t swap = plan->order[0];
        plan->order[0] = plan->order[end];
        plan->order[end] = swap;
        sift(plan, 0, end, share);
    }
}

static void set_quotas(struct assign_plan *plan, const struct assign_topic *topic)
{
    int32_t share = topic->partitions_count / (int32_t)plan->count;
    int32_t remainder = topic->partitions_count % (int32_t)plan->count;
    for (size_t s = 0; s < plan->count; s++)
        plan->held[s] = 0;
    for (int32_t p = 0; p < topic->partitions_count; p++) {
        int32_t s = slot_of(plan, topic->owner[p]);
        if (s >= 0)
            plan->held[s]++;
    }
    sort_order(plan, share);
    for (size_t i = 0; i < plan->count; i++) {
        int32_t quota = share + ((int32_t)i < remainder);
        plan->quota[plan->order[i]] = quota;
        plan->total[plan->subscribers[plan->order[i]]] += quota;
    }
}

void assign_sticky(struct assign_plan *plan, struct assign_topic *topic)
{
    set_quotas(plan, topic);
    for (int32_t p = 0; p < topic->partitions_count; p++) {
        int32_t s = slot_of(plan, topic->owner[p]);
        if (s >= 0 && plan->quota[s] > 0)
            plan->quota[s]--;
        else
            topic->owner[p] = -1;
    }
    size_t s = 0;
    for (int32_t p = 0; p < topic->partitions_count; p++) {
        if (topic->owner[p] >= 0)
            continue;
        while (plan->quota[s] == 0)
            s++;
        plan->quota[s]--;
        topic->owner[p] = plan->subscribers[s];
    }
}
