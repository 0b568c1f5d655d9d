#include "broker/storage/retention.h"

int64_t retention_stamp(const struct retention_segment *s)
{
    bool believable = s->max_timestamp >= s->appended_ms - RETENTION_PAST_MS_MAX &&
                      s->max_timestamp <= s->appended_ms + RETENTION_FUTURE_MS_MAX;
    return believable ? s->max_timestamp : s->appended_ms;
}

bool retention_is_expired(const struct retention_segment *s, int64_t retention_ms, int64_t now_ms)
{
    return retention_ms >= 0 && s->bytes > 0 && now_ms - retention_stamp(s) > retention_ms;
}

size_t retention_count(const struct retention_segment *segments, size_t count, int64_t retention_ms,
                       int64_t retention_bytes, int64_t start_offset, int64_t now_ms)
{
    int64_t total = 0;
    for (size_t i = 0; i < count; i++)
        total += segments[i].bytes;
    size_t gone = 0;
    for (; gone + 1 < count; gone++) {
        const struct retention_segment *s = &segments[gone];
        bool below_start = segments[gone + 1].base_offset <= start_offset;
        bool spare = retention_bytes >= 0 && total - s->bytes >= retention_bytes;
        if (!below_start && !spare && !retention_is_expired(s, retention_ms, now_ms))
            break;
        total -= s->bytes;
    }
    return gone;
}
