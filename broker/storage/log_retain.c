#include "broker/storage/file.h"
#include "broker/storage/log_state.h"
#include "broker/storage/retention.h"
#include "broker/storage/segment_index.h"
#include "proto/base/cleanup.h"

#include <stdlib.h>

/* What retention has to know of each segment. Greatest timestamps are read from the oldest on, up to the
 * first segment that has not expired: what lies behind it waits for a later pass anyway. */
static int describe(struct log *log, int64_t now_ms, struct retention_segment **ret_segments)
{
    struct retention_segment *list = calloc(log->segments_count, sizeof *list);
    if (!list)
        return -BROOK_E_STORAGE_ERROR;
    bool look = log->settings.retention_ms >= 0;
    for (size_t i = 0; i < log->segments_count; i++) {
        struct segment *s = log->segments[i];
        struct retention_segment *d = &list[i];
        *d = (struct retention_segment){.base_offset = s->base_offset,
                                        .bytes = s->bytes,
                                        .max_timestamp = now_ms,
                                        .appended_ms = look ? s->last_ms : now_ms};
        if (!look)
            continue;
        int r = segment_index_max_timestamp(s, &log->lock, &d->max_timestamp);
        if (r != 0) {
            free(list);
            return r;
        }
        look = retention_is_expired(d, log->settings.retention_ms, now_ms);
    }
    *ret_segments = list;
    return 0;
}

/* The active segment goes too when all before it do and it has expired: an empty one, named by the next
 * offset, takes its place, so that the next offset stays known. */
static int seal_expired_active(struct log *log, const struct retention_segment *list, size_t *gone,
                               int64_t now_ms)
{
    size_t last = log->segments_count - 1;
    if (*gone < last || !retention_is_expired(&list[last], log->settings.retention_ms, now_ms))
        return 0;
    int r = log_roll(log, log->end_offset, NULL);
    if (r != 0)
        return r;
    log_publish(log);
    ++*gone;
    return 0;
}

/* Make indexes that a reader found wanting anew, on a handle of their own; readers do without meanwhile. */
static void repair_index(struct log *log, struct segment *s)
{
    struct segment *copy;
    if (segment_new(log->directory, s->base_offset, &copy) != 0)
        return;
    copy->bytes = s->bytes;
    if (segment_index_rebuild(copy, log->settings.index_interval_bytes, &log->lock) == 0) {
        pthread_mutex_lock(&log->lock);
        s->index_entries = copy->index_entries;
        s->time_entries = copy->time_entries;
        s->max_timestamp = copy->max_timestamp;
        s->max_timestamp_offset = copy->max_timestamp_offset;
        s->max_timestamp_known = true;
        s->index_doubtful = false;
        pthread_mutex_unlock(&log->lock);
    }
    segment_unref(copy);
}

static void repair_indexes(struct log *log)
{
    for (size_t i = 0; i + 1 < log->segments_count; i++)
        if (log->segments[i]->index_doubtful)
            repair_index(log, log->segments[i]);
}

int log_retain(struct log *log, int64_t now_ms)
{
    log_bury(log, now_ms, false);
    if (log_check_online(log, NULL) != 0)
        return -BROOK_E_LOG_OFFLINE;
    repair_indexes(log);
    AUTO_FREE struct retention_segment *list = NULL;
    int r = describe(log, now_ms, &list);
    if (r != 0)
        return r;
    size_t gone = retention_count(list, log->segments_count, log->settings.retention_ms,
                                  log->settings.retention_bytes, log->start_offset, now_ms);
    r = seal_expired_active(log, list, &gone, now_ms);
    if (r != 0 || gone == 0)
        return r;
    size_t before = log->segments_count;
    r = log_drop_oldest(log, gone, now_ms, NULL);
    int removed = (int)(before - log->segments_count);
    log_epochs_cut_start(log, log->start_offset);
    log_epochs_save(log);
    if (removed > 0 && io_sync_directory(directory_path(log->directory)) != 0 && r == 0)
        r = -BROOK_E_STORAGE_ERROR;
    return r != 0 ? r : removed;
}
