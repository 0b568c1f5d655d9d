/* Shared by the files of leader_state.h and by nobody else. */
#ifndef BROOK_REPLICATION_LEADER_INTERNAL_H
#define BROOK_REPLICATION_LEADER_INTERNAL_H

#include "broker/replication/leader_state.h"

#define LEADER_LIVE_UNKNOWN (-2) /* the view has not said yet */

static inline uint32_t leader_bit(int32_t index)
{
    return (uint32_t)1 << index;
}

static inline int32_t leader_count(uint32_t members)
{
    return __builtin_popcount(members);
}

/* NULL: no replica. */
struct leader_replica *leader_find(struct leader_state *s, int32_t broker_id);
/* Take the stored ISR from `state`. Returns 0; -BROOK_E_TOO_MANY; -BROOK_E_NOT_LEADER when the leader is not in
 * it. */
int leader_take_isr(struct leader_state *s, const struct znode_state *state, int64_t now_ms);
#endif
