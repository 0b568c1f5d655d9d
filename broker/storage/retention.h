/* Retention: which of the oldest segments have had their time. Pure.
 *
 * A segment's age is told by the greatest timestamp of its records, as long as that is believable: inside a
 * window around the broker's own clock at the time of the segment's last append. Else (seconds or
 * microseconds where milliseconds belong, 0, -1, a bad clock) the time of the append itself counts: one stray
 * stamp neither keeps a segment for ever nor makes it vanish.
 */
#ifndef BROOK_STORAGE_RETENTION_H
#define BROOK_STORAGE_RETENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How far a believable timestamp may lie behind, or ahead of, the append. */
#define RETENTION_PAST_MS_MAX ((int64_t)10 * 365 * 24 * 3600 * 1000)
#define RETENTION_FUTURE_MS_MAX ((int64_t)24 * 3600 * 1000)

struct retention_segment {
    int64_t base_offset;
    int64_t bytes;
    int64_t max_timestamp; /* of its records, -1: none */
    int64_t appended_ms;   /* broker's clock at the last append */
};

/* The moment from which the segment's age counts. */
int64_t retention_stamp(const struct retention_segment *s);
/* Whether all records of the segment are older than `retention_ms` (-1: never). Empty segments do not expire.
 */
bool retention_is_expired(const struct retention_segment *s, int64_t retention_ms, int64_t now_ms);
/* How many of the oldest of `count` segments go: expired ones, ones that are not needed to keep
 * `retention_bytes` (-1: no limit), and ones that lie wholly below `start_offset`. The newest always stays.
 */
size_t retention_count(const struct retention_segment *segments, size_t count, int64_t retention_ms,
                       int64_t retention_bytes, int64_t start_offset, int64_t now_ms);
#endif
