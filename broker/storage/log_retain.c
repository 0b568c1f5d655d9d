#include "broker/storage/file.h"
#include "broker/storage/log_state.h"
#include "broker/storage/retention.h"
#include "broker/storage/segment_index.h"
#include "proto/base/cleanup.h"

#include <stdlib.h>

/* Once in the life of a log: where one such stamp is, there are more. */
static void note_future_stamp(struct log *log, const struct retention_segment *s)
{
    if (log->future_ms)
        return;
    log->future_ms = s->max_timestamp - s->appended_ms;
    log->is_future_told = false;
}

int64_t log_take_future_stamp(struct log *log)
{
    if (!log->future_ms || log->is_future_told)
        return 0;
    log->is_future_told = true;
    return log->future_ms;
}

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
        if (d->bytes > 0 && d->max_timestamp > d->appended_ms + RETENTION_FUTURE_MS_MAX)
            note_future_stamp(log, d);
        look = retention_is_expired(d, log->settings.retention_ms, now_ms);
    }
    *ret_segments = list;
    return 0;
}

/* The active segment is to go too: an empty one, named by the next offset, takes its place, so that the next
 * offset stays known. */
static int replace_active(struct log *log)
{
    int r = log_roll(log, log->end_offset, NULL);
    if (r == 0)
        log_publish(log); /* readers go on in the new one: the old one leaves the list */
    return r;
}

/* When all before it go and it has expired. */
static int seal_expired_active(struct log *log, const struct retention_segment *list, size_t *gone,
                               int64_t now_ms)
{
    size_t last = log->segments_count - 1;
    if (*gone < last || !retention_is_expired(&list[last], log->settings.retention_ms, now_ms))
        return 0;
    int r = replace_active(log);
    *gone += r == 0;
    return r;
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

/* A log that no sync has reached yet may vanish with its directory: what is said of it would be taken back. */
static int sync_names(struct log *log)
{
    pthread_mutex_lock(&log->lock);
    bool is_first = log->is_unnamed;
    pthread_mutex_unlock(&log->lock);
    if (log_sync_names(log->directory, is_first) != 0)
        return -BROOK_E_STORAGE_ERROR;
    pthread_mutex_lock(&log->lock);
    log->is_unnamed = false;
    pthread_mutex_unlock(&log->lock);
    return 0;
}

/* Remove the oldest `count` segments. The names of those that stay are synced first: a power cut that takes the
 * new names and not the old ones would take the next offset back. */
static int drop(struct log *log, size_t count, int64_t now_ms)
{
    size_t before = log->segments_count;
    if (count == 0)
        return 0;
    if (sync_names(log) != 0)
        return -BROOK_E_STORAGE_ERROR;
    int r = log_drop_oldest(log, count, now_ms, NULL);
    int removed = (int)(before - log->segments_count);
    log_epochs_cut_start(log, log->start_offset);
    log_epochs_save(log);
    if (removed > 0 && io_sync_directory(directory_path(log->directory)) != 0 && r == 0)
        r = -BROOK_E_STORAGE_ERROR;
    return r != 0 ? r : removed;
}

int log_retain(struct log *log, int64_t now_ms)
{
    log_bury(log, now_ms, false);
    if (log_check_online(log, NULL) != 0)
        return -BROOK_E_LOG_OFFLINE;
    repair_indexes(log);
    log_producers_expire(log, now_ms);
    AUTO_FREE struct retention_segment *list = NULL;
    int r = describe(log, now_ms, &list);
    if (r != 0)
        return r;
    size_t gone = retention_count(list, log->segments_count, log->settings.retention_ms,
                                  log->settings.retention_bytes, log->start_offset, now_ms);
    r = seal_expired_active(log, list, &gone, now_ms);
    log_producers_save(log, false); /* the records that tell the same may go now */
    return r != 0 ? r : drop(log, gone, now_ms);
}

/* ---- deleting records ------------------------------------------------------------------------------- */

static void raise_start(struct log *log, int64_t offset)
{
    pthread_mutex_lock(&log->lock);
    if (offset > log->end_offset)
        offset = log->end_offset;
    if (offset > log->start_offset)
        log->start_offset = offset;
    pthread_mutex_unlock(&log->lock);
}

int log_trim(struct log *log, int64_t offset, int64_t now_ms)
{
    if (log_check_online(log, NULL) != 0)
        return -BROOK_E_LOG_OFFLINE;
    raise_start(log, offset);
    if (log->start_offset == log->end_offset && log_active(log)->bytes > 0) {
        int r = replace_active(log);
        if (r != 0)
            return r;
    }
    log_producers_save(log, false);
    size_t gone = 0;
    while (gone + 1 < log->segments_count && log->segments[gone + 1]->base_offset <= log->start_offset)
        gone++;
    return drop(log, gone, now_ms);
}
