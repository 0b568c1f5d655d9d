/* Who of a group reads what: the pure function behind /consumers/<G>/assignment.
 *
 * Given the members, the topics with their subscribers, and who has what now, a strategy says who shall have
 * what. Every member that computes it from the same input gets the same answer; input may come from a znode
 * that anybody wrote, so nothing is assumed of it. Per topic, among its subscribers:
 *
 *     range       partitions in order, in runs; the first subscribers get the remainder (Kafka's paper)
 *     roundrobin  partitions dealt out one by one, each topic going on where the one before it ended
 *     sticky      balanced within one, and with the fewest moves that this allows
 *
 * Knows neither ZooKeeper nor names of topics and members: they are indexes here. Pure, any thread.
 */
#ifndef BROOK_COORDINATION_ASSIGN_H
#define BROOK_COORDINATION_ASSIGN_H

#include <stddef.h>
#include <stdint.h>

/* Raised when a strategy's answer changes for the same input: members of another version do not compute. */
#define ASSIGN_ALGORITHM_VERSION 1

enum assign_strategy { ASSIGN_RANGE, ASSIGN_ROUNDROBIN, ASSIGN_STICKY };

/* "range", "roundrobin", "sticky". Returns 0 or -BROOK_E_INVALID. */
int assign_strategy_parse(const char *name, enum assign_strategy *ret_strategy);
const char *assign_strategy_name(enum assign_strategy strategy);

/* One topic. `subscribers` are indexes below members_count, in any order; what is out of range or there twice
 * is passed over. `owner` has one index per partition: in, who has it now (anything but a subscriber:
 * nobody); out, who shall have it (-1: nobody, only when there is no subscriber). */
struct assign_topic {
    const int32_t *subscribers;
    size_t subscribers_count;
    int32_t *owner;
    int32_t partitions_count; /* not above 0: the topic is passed over */
};

/* Rewrite the owners of all topics. The order of topics and of members counts: callers sort topics by name
 * and members by age, so that a newcomer is the last and disturbs range and roundrobin least. Returns 0, or
 * -BROOK_E_NOMEM with the owners as they were. */
int assign_compute(enum assign_strategy strategy, struct assign_topic *topics, size_t topics_count,
                   size_t members_count);
#endif
