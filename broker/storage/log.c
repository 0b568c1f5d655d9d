#include "broker/storage/log.h"

#include "broker/storage/file.h"
#include "broker/storage/log_state.h"
#include "broker/storage/partition_metadata.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void log_settings_default(struct log_settings *settings)
{
    *settings = (struct log_settings){
        .segment_bytes = (int64_t)1 << 30,
        .segment_ms = (int64_t)7 * 24 * 3600 * 1000,
        .segment_index_bytes = 10 << 20,
        .index_interval_bytes = 4096,
        .retention_ms = (int64_t)7 * 24 * 3600 * 1000,
        .retention_bytes = -1,
        .file_delete_delay_ms = 60000,
        .delete_retention_ms = (int64_t)24 * 3600 * 1000,
        .max_compaction_lag_ms = INT64_MAX,
        .min_dirty_ppm = 500000,
        .producers_max = PRODUCERS_PER_PARTITION_DEFAULT,
        .producer_expiration_ms = PRODUCER_EXPIRATION_MS_DEFAULT,
    };
}

void log_go_offline(struct log *log, const char *format, ...)
{
    pthread_mutex_lock(&log->lock);
    if (!log->offline) {
        va_list args;
        va_start(args, format);
        if (vasprintf(&log->offline_reason, format, args) < 0)
            log->offline_reason = NULL;
        va_end(args);
        log->offline = true;
    }
    pthread_mutex_unlock(&log->lock);
}

/* A sync that failed where a descriptor had to be closed is found out here. */
static void look_for_failed_sync(struct log *log)
{
    int error = directory_sync_error(log->directory);
    if (error != 0 && !log->offline)
        log_go_offline(log, "a sync failed: %s", strerror(error));
}

const char *log_offline_reason(struct log *log)
{
    look_for_failed_sync(log);
    if (!log->offline)
        return NULL;
    return log->offline_reason ? log->offline_reason : "for want of memory it is not known why";
}

bool log_sync_failed(const struct log *log)
{
    return directory_sync_error(log->directory) != 0;
}

int log_check_online(struct log *log, struct brook_error *error)
{
    const char *reason = log_offline_reason(log);
    if (!reason)
        return 0;
    return brook_error_set(error, BROOK_E_LOG_OFFLINE, "%s is offline: %s", directory_path(log->directory),
                           reason);
}

int64_t log_start_offset(struct log *log)
{
    pthread_mutex_lock(&log->lock);
    int64_t offset = log->start_offset;
    pthread_mutex_unlock(&log->lock);
    return offset;
}

int64_t log_end_offset(struct log *log)
{
    pthread_mutex_lock(&log->lock);
    int64_t offset = log->end_offset;
    pthread_mutex_unlock(&log->lock);
    return offset;
}

int64_t log_durable_end(struct log *log)
{
    pthread_mutex_lock(&log->lock);
    int64_t offset = log->durable_end;
    pthread_mutex_unlock(&log->lock);
    return offset;
}

int64_t log_cleaned_offset(struct log *log)
{
    pthread_mutex_lock(&log->lock);
    int64_t offset = log->cleaned_offset;
    pthread_mutex_unlock(&log->lock);
    return offset;
}

int64_t log_bytes(struct log *log)
{
    int64_t bytes = 0;
    pthread_mutex_lock(&log->lock);
    for (size_t i = 0; i < log->segments_count; i++)
        bytes += log->segments[i]->bytes;
    pthread_mutex_unlock(&log->lock);
    return bytes;
}

size_t log_segments_count(struct log *log)
{
    pthread_mutex_lock(&log->lock);
    size_t count = log->segments_count;
    pthread_mutex_unlock(&log->lock);
    return count;
}

void log_configure(struct log *log, const struct log_settings *settings)
{
    pthread_mutex_lock(&log->lock);
    log->settings = *settings;
    if (log->settings.segment_bytes > SEGMENT_RELATIVE_MAX) /* positions are 31 bits */
        log->settings.segment_bytes = SEGMENT_RELATIVE_MAX;
    if (!log_settings_delete(settings)) {
        log->settings.retention_ms = -1;
        log->settings.retention_bytes = -1;
    }
    if (settings->producers_max <= 0)
        log->settings.producers_max = PRODUCERS_PER_PARTITION_DEFAULT;
    if (settings->producer_expiration_ms <= 0)
        log->settings.producer_expiration_ms = PRODUCER_EXPIRATION_MS_DEFAULT;
    /* The active segment is not compacted: it must not grow older than its records may wait. */
    if (log_settings_compact(settings) && settings->max_compaction_lag_ms < settings->segment_ms)
        log->settings.segment_ms = settings->max_compaction_lag_ms;
    pthread_mutex_unlock(&log->lock);
}

/* ---- flush ------------------------------------------------------------------------------------------ */

/* What one flush has to sync, in order: segments by offset, then nothing newer than `end_offset` counts. */
struct flush {
    struct segment **segments; /* references */
    size_t count;
    int64_t end_offset;
    uint64_t generation;
    bool directory;
    bool is_first; /* of a log that is unnamed */
};

static int plan_flush(struct log *log, struct flush *ret_flush)
{
    struct flush f = {0};
    pthread_mutex_lock(&log->lock);
    f.end_offset = log->end_offset;
    f.generation = log->generation;
    bool has_records = log->durable_end < log->end_offset;
    f.is_first = log->is_unnamed && has_records;
    f.directory = f.is_first || (log->directory_dirty && !log->is_unnamed);
    if (has_records) {
        size_t first = log_segment_of(log, log->durable_end);
        size_t behind = log_segment_of(log, log->end_offset - 1) + 1;
        f.segments = calloc(behind - first, sizeof(struct segment *));
        for (size_t i = first; f.segments && i < behind; i++)
            f.segments[f.count++] = segment_ref(log->segments[i]);
    }
    bool enough = f.segments || !has_records;
    if (enough && f.directory)
        log->directory_dirty = false;
    pthread_mutex_unlock(&log->lock);
    if (!enough)
        return -BROOK_E_NOMEM;
    *ret_flush = f;
    return 0;
}

/* The topic id's file was written without a sync. It is not there in a directory that belongs to no topic. */
static int sync_topic_id(const struct directory *d)
{
    char path[PATH_MAX];
    directory_file_path(d, PARTITION_METADATA_FILE, path);
    int fd = io_open(path, O_RDONLY);
    if (fd < 0)
        return errno == ENOENT ? 0 : -1;
    int r = io_datasync(fd), saved = errno;
    io_close(fd);
    errno = saved;
    return r;
}

int log_sync_names(const struct directory *d, bool is_first)
{
    if (is_first && (sync_topic_id(d) != 0 || file_sync_parent(directory_path(d)) != 0))
        return -1;
    return io_sync_directory(directory_path(d));
}

/* Older segments, then the names, then the newest: at every moment what is durable has no gap. */
static int carry_out_flush(struct log *log, const struct flush *f)
{
    for (size_t i = 0; i + 1 < f->count; i++)
        if (segment_sync(f->segments[i]) != 0)
            return -1;
    if (f->directory && log_sync_names(log->directory, f->is_first) != 0)
        return -1;
    return f->count > 0 ? segment_sync(f->segments[f->count - 1]) : 0;
}

int log_flush(struct log *log)
{
    struct flush f;
    pthread_mutex_lock(&log->flush_lock);
    int r = log_check_online(log, NULL) == 0 ? plan_flush(log, &f) : -BROOK_E_STORAGE_ERROR;
    if (r != 0) {
        pthread_mutex_unlock(&log->flush_lock);
        return -BROOK_E_STORAGE_ERROR;
    }
    if (carry_out_flush(log, &f) != 0) {
        /* The kernel has dropped what it could not write: another sync would answer 0 and be a lie. */
        int saved = errno;
        directory_set_sync_error(log->directory, saved);
        log_go_offline(log, "a sync failed: %s", strerror(saved));
        r = -BROOK_E_STORAGE_ERROR;
    }
    pthread_mutex_lock(&log->lock);
    if (r == 0 && f.is_first)
        log->is_unnamed = false;
    /* After a truncation the same offsets may hold bytes that this sync has not seen. */
    if (r == 0 && f.generation == log->generation && f.end_offset > log->durable_end)
        log->durable_end = f.end_offset;
    pthread_mutex_unlock(&log->lock);
    for (size_t i = 0; i < f.count; i++)
        segment_unref(f.segments[i]);
    free(f.segments);
    pthread_mutex_unlock(&log->flush_lock);
    return r;
}

/* ---- rest ------------------------------------------------------------------------------------------- */

bool log_can_rest(struct log *log, int64_t since_ms)
{
    pthread_mutex_lock(&log->lock);
    bool has_any = log->tail || log->indexer.pending;
    for (size_t i = 0; i < log->segments_count && !has_any; i++)
        has_any = log->segments[i]->fd >= 0;
    bool is_idle = log_active(log)->last_ms < since_ms;
    pthread_mutex_unlock(&log->lock);
    return has_any && is_idle;
}

void log_rest(struct log *log)
{
    struct tail *tail = NULL;
    struct indexer_pending *pending = NULL;
    bool is_written = log_check_online(log, NULL) == 0 && indexer_flush(&log->indexer, &log->lock) == 0;
    pthread_mutex_lock(&log->lock);
    tail = TAKE(log->tail);
    if (is_written)
        pending = TAKE(log->indexer.pending);
    pthread_mutex_unlock(&log->lock);
    free(tail);
    free(pending);
    for (size_t i = 0; i < log->segments_count; i++)
        segment_close_unused(log->segments[i]);
}

/* ---- the end ---------------------------------------------------------------------------------------- */

void log_free(struct log *log)
{
    log_bury(log, 0, true);
    for (size_t i = 0; i < log->segments_count; i++)
        segment_unref(log->segments[i]);
    free(log->segments);
    free(log->tail);
    free(log->offline_reason);
    indexer_done(&log->indexer);
    epochs_done(&log->epochs);
    log_producers_done(log);
    directory_unref(log->directory);
    pthread_mutex_destroy(&log->lock);
    pthread_mutex_destroy(&log->flush_lock);
    free(log);
}

static int finish(struct log *log)
{
    int r = 0;
    if (log->is_unnamed && log_is_blank(log)) /* nothing in it is missed where it is gone */
        return 0;
    if (log_active(log)->bytes > 0 && indexer_finish(&log->indexer, &log->lock) != 0)
        r = -BROOK_E_STORAGE_ERROR;
    if (log->epochs.dirty) {
        char path[PATH_MAX];
        directory_file_path(log->directory, EPOCHS_FILE, path);
        if (epochs_save(&log->epochs, path, true, NULL) != 0)
            r = -BROOK_E_STORAGE_ERROR;
    }
    if (log_producers_save(log, true) != 0)
        r = -BROOK_E_STORAGE_ERROR;
    return log_flush(log) == 0 ? r : -BROOK_E_STORAGE_ERROR;
}

int log_close(struct log *log)
{
    if (!log)
        return 0;
    int r = log_offline_reason(log) ? -BROOK_E_STORAGE_ERROR : 0;
    if (r == 0 && !log->retired && log->segments_count > 0)
        r = finish(log);
    log_free(log);
    return r;
}

int log_retire(struct log *log, struct brook_error *error)
{
    if (log->retired)
        return 0;
    int r = directory_retire(log->directory, error);
    if (r != 0)
        return r;
    log_go_offline(log, "it was deleted");
    log->retired = true;
    return 0;
}

int log_delete(struct log **log)
{
    struct log *taken = *log;
    *log = NULL;
    if (!taken)
        return 0;
    int r = log_retire(taken, NULL);
    log_free(taken);
    return r;
}
