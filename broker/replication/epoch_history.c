#include "broker/replication/epoch_history.h"

int32_t epoch_history_last(const struct epoch_history *h)
{
    return epoch_history_before(h, h->log_end);
}

int32_t epoch_history_before(const struct epoch_history *h, int64_t offset)
{
    if (h->log_start == h->log_end && offset == h->log_end)
        return h->count > 0 ? h->entries[h->count - 1].epoch : -1; /* its records are gone, not forgotten */
    if (offset <= h->log_start || offset > h->log_end)
        return -1;
    size_t behind = epochs_count_below(h->entries, h->count, offset);
    return behind > 0 ? h->entries[behind - 1].epoch : -1;
}

struct epoch_end epoch_history_end(const struct epoch_history *h, int32_t epoch)
{
    size_t behind = epochs_count_up_to(h->entries, h->count, epoch);
    if (behind == 0)
        return (struct epoch_end){.epoch = -1, .end = h->log_start};
    int64_t end = behind < h->count ? h->entries[behind].start_offset : h->log_end;
    return (struct epoch_end){.epoch = h->entries[behind - 1].epoch, .end = end};
}

struct epoch_end epoch_history_report(const struct epoch_history *h, int64_t safe_end, int32_t reached_epoch)
{
    int64_t end = safe_end < h->log_end ? safe_end : h->log_end;
    int32_t last = epoch_history_before(h, end);
    return (struct epoch_end){.epoch = last > reached_epoch ? last : reached_epoch, .end = end};
}

bool epoch_history_fits(const struct epoch_history *h, int64_t offset, int32_t last_epoch)
{
    if (offset <= h->log_start)
        return offset == h->log_start;
    return last_epoch >= 0 && epoch_history_before(h, offset) == last_epoch;
}
