/* How far records are safe: the rules of the high watermark, and of what hangs on it. Inline functions over plain data,
 * so that what a produce and a pull go by is word for word what tests/property/test_cluster_model.c takes through
 * histories of a whole cluster. No clock, no lock; offsets count records.
 */
#ifndef BROOK_PARTITION_WATERMARK_H
#define BROOK_PARTITION_WATERMARK_H

#include "proto/base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* What a leader goes by. The first three are of its epoch, and say what is known of the other replicas
 * (broker/replication/leader_state.h); the last is the topic's setting. */
struct watermark_limits {
    int64_t epoch_start;    /* the log's end when the epoch began */
    int64_t replicated_end; /* what all others that count hold safely; INT64_MAX: there are none; -1: one is not known */
    int32_t in_sync;        /* how many count, the leader included */
    int32_t min_in_sync;
};

static inline int64_t watermark_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* min.insync.replicas is met: acks=all is taken, and the high watermark may move. */
static inline bool watermark_has_enough(const struct watermark_limits *limits)
{
    return limits->in_sync >= limits->min_in_sync;
}

/* A leader's high watermark after `high_watermark`, when it holds its own log safely up to `safe_end` (durability.h):
 * the minimum of all that count, never back. With too few in sync it stands still. */
static inline int64_t watermark_lead(const struct watermark_limits *limits, int64_t high_watermark, int64_t safe_end)
{
    int64_t agreed = watermark_least(safe_end, limits->replicated_end);
    return watermark_has_enough(limits) && agreed > high_watermark ? agreed : high_watermark;
}

/* A follower's, when its leader says `leader_high_watermark` and its log, which is a beginning of the leader's, ends at
 * `log_end`: as far as that reaches, never back (a new leader may not know it yet). */
static inline int64_t watermark_follow(int64_t high_watermark, int64_t leader_high_watermark, int64_t log_end)
{
    int64_t mark = watermark_least(leader_high_watermark, log_end);
    return mark > high_watermark ? mark : high_watermark;
}

/* Whoever's, when its log ends at `log_end` now: only a cut takes it back, which no leader makes. */
static inline int64_t watermark_within(int64_t high_watermark, int64_t log_end)
{
    return watermark_least(high_watermark, log_end);
}

/* acks=all, for a record in the leader's log at `last_offset`: 0: acknowledge, the high watermark has passed it, and did
 * so with enough in sync; -BROOK_E_AGAIN: wait on; -BROOK_E_NOT_ENOUGH_REPLICAS_AFTER_APPEND: wait on, and in the end
 * say that: it is stored, but by too few in sync. */
static inline int watermark_answer(const struct watermark_limits *limits, int64_t high_watermark, int64_t last_offset)
{
    if (last_offset < high_watermark)
        return 0;
    return watermark_has_enough(limits) ? -BROOK_E_AGAIN : -BROOK_E_NOT_ENOUGH_REPLICAS_AFTER_APPEND;
}

/* Whether a leader can say what is `latest`: below the start of its epoch consumers may have seen more, under the leader
 * before, than its high watermark says yet. */
static inline bool watermark_is_current(const struct watermark_limits *limits, int64_t high_watermark)
{
    return high_watermark >= limits->epoch_start;
}
#endif
