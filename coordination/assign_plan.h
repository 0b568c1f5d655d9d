/* What the strategies share while assign_compute() walks the topics. Private to coordination/assign*.c. */
#ifndef BROOK_COORDINATION_ASSIGN_PLAN_H
#define BROOK_COORDINATION_ASSIGN_PLAN_H

#include "coordination/assign.h"

/* Arrays have members_count + 1 entries. Those by slot are valid below `count`. */
struct assign_plan {
    /* The topic at hand. */
    int32_t *subscribers; /* by slot: member index, ascending */
    size_t count;         /* of subscribers, above 0 when a strategy runs */
    int32_t *slot;        /* by member: its slot, -1 for those who do not subscribe */
    /* Scratch, by slot. */
    int32_t *held;
    int32_t *quota;
    int32_t *order;
    /* Across topics. */
    int64_t *total; /* by member: partitions given so far */
    size_t next;    /* roundrobin: member index after the one that was served last */
    size_t members_count;
};

/* Each rewrites topic->owner, all of it, with members of plan->subscribers. */
void assign_range(struct assign_plan *plan, struct assign_topic *topic);
void assign_roundrobin(struct assign_plan *plan, struct assign_topic *topic);
void assign_sticky(struct assign_plan *plan, struct assign_topic *topic);
#endif
