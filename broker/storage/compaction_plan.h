/* Compaction, the pure part: which segments are looked at, how urgent it is, which become one. No I/O.
 *
 *   first segment ............ cleaned offset ............ end ........ active
 *   compacted before           dirty                       stays as it is
 */
#ifndef BROOK_STORAGE_COMPACTION_PLAN_H
#define BROOK_STORAGE_COMPACTION_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct compaction_segment {
    int64_t base_offset;
    int64_t next_base; /* of the following segment */
    int64_t bytes;
    int64_t stamp; /* wall clock ms from which its age counts (retention_stamp); 0: not asked for */
    uint32_t index_entries;
};

struct compaction_dirt {
    int64_t clean_bytes;
    int64_t dirty_bytes;
};

/* How many of the sealed segments may be compacted: those that end at or below `bound`, up to the first that is
 * younger than `lag_ms` (0: age does not count). */
size_t compaction_count(const struct compaction_segment *segments, size_t count, int64_t bound, int64_t lag_ms,
                        int64_t now_ms);
/* Bytes of segments that end at or below the cleaned offset, and of the others. */
struct compaction_dirt compaction_measure(const struct compaction_segment *segments, size_t count,
                                          int64_t cleaned_offset);
/* Dirty bytes of all bytes, in millionths. */
int32_t compaction_ppm(const struct compaction_dirt *dirt);
/* How many, from the first on, become one segment: at least one; together within the limits of a segment, as if
 * nothing would go. */
size_t compaction_group(const struct compaction_segment *segments, size_t count, int64_t segment_bytes,
                        uint32_t index_entries_max);
#endif
