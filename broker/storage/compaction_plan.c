#include "broker/storage/compaction_plan.h"

size_t compaction_count(const struct compaction_segment *segments, size_t count, int64_t bound, int64_t lag_ms,
                        int64_t now_ms)
{
    size_t n = 0;
    while (n < count && segments[n].next_base <= bound && (lag_ms <= 0 || segments[n].stamp <= now_ms - lag_ms))
        n++;
    return n;
}

struct compaction_dirt compaction_measure(const struct compaction_segment *segments, size_t count,
                                          int64_t cleaned_offset)
{
    struct compaction_dirt dirt = {0};
    for (size_t i = 0; i < count; i++) {
        if (segments[i].next_base <= cleaned_offset)
            dirt.clean_bytes += segments[i].bytes;
        else
            dirt.dirty_bytes += segments[i].bytes;
    }
    return dirt;
}

int32_t compaction_ppm(const struct compaction_dirt *dirt)
{
    double all = (double)dirt->clean_bytes + (double)dirt->dirty_bytes;
    return all > 0 ? (int32_t)((double)dirt->dirty_bytes * 1e6 / all) : 0;
}

size_t compaction_group(const struct compaction_segment *segments, size_t count, int64_t segment_bytes,
                        uint32_t index_entries_max)
{
    int64_t bytes = segments[0].bytes;
    uint64_t entries = segments[0].index_entries;
    size_t n = 1;
    for (; n < count; n++) {
        bytes += segments[n].bytes;
        entries += segments[n].index_entries;
        if (bytes > segment_bytes || entries > index_entries_max ||
            segments[n].next_base - 1 - segments[0].base_offset > INT32_MAX)
            break;
    }
    return n;
}
