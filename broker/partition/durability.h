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

/* Nothing said (0) is the default. */
enum durability_mode { DURABILITY_REPLICATED, DURABILITY_FSYNC, DURABILITY_INTERVAL };

struct durability {
    int64_t flush_messages; /* interval: records that may lie unflushed; at least 1 */
    int64_t flush_ms;       /* interval: and for how long */
    int32_t mode;           /* enum durability_mode */
};

#define DURABILITY_FLUSH_MESSAGES_DEFAULT 10000
#define DURABILITY_FLUSH_MS_DEFAULT 1000
#endif
