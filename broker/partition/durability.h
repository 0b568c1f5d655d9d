/* What an acknowledgement with acks=all means, and what consumers may see: a topic's choice. Plain data.
 *
 *              safe end       consumers read below                  flushed
 *   fsync      durable end    high watermark                        at once when somebody waits, else soon
 *   replicated log end        high watermark                        by checkpoints only
 *   interval   log end        min(high watermark, durable end)      after flush_messages or flush_ms
 *
 * The high watermark is the least safe end of the in-sync replicas, and never goes back.
 */
#ifndef BROOK_PARTITION_DURABILITY_H
#define BROOK_PARTITION_DURABILITY_H

#include <stdint.h>

/* Nothing said (0): by the number of replicas; only settings have it, a partition is given one of the others. */
enum durability_mode {
    DURABILITY_BY_REPLICAS,
    DURABILITY_REPLICATED,
    DURABILITY_FSYNC,
    DURABILITY_INTERVAL
};

/* What `mode` is for a partition of so many replicas: a single one has nobody else to have its records from. */
static inline int32_t durability_mode_for(int32_t mode, int32_t replicas)
{
    if (mode != DURABILITY_BY_REPLICAS)
        return mode;
    return replicas > 1 ? DURABILITY_REPLICATED : DURABILITY_FSYNC;
}

/* Both as in the table above: up to where a replica holds its records safely; and what consumers read below. */
static inline int64_t durability_safe_end(int32_t mode, int64_t log_end, int64_t durable_end)
{
    return mode == DURABILITY_FSYNC ? durable_end : log_end;
}
static inline int64_t durability_visible_end(int32_t mode, int64_t high_watermark, int64_t durable_end)
{
    return mode == DURABILITY_INTERVAL && durable_end < high_watermark ? durable_end : high_watermark;
}

struct durability {
    int64_t flush_messages; /* interval: records that may lie unflushed; at least 1 */
    int64_t flush_ms;       /* interval: and for how long */
    int32_t mode;           /* enum durability_mode */
};

#define DURABILITY_FLUSH_MESSAGES_DEFAULT 10000
#define DURABILITY_FLUSH_MS_DEFAULT 1000
#endif
