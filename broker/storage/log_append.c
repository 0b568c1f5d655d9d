#include "broker/storage/file.h"
#include "broker/storage/log_state.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* The active segment must give way to a new one before `header`'s batch. */
static bool must_roll(const struct log *log, const struct batch_header *header, int64_t now_ms)
{
    const struct segment *s = log_active(log);
    const struct log_settings *set = &log->settings;
    if (batch_last_offset(header) - s->base_offset > SEGMENT_RELATIVE_MAX)
        return true;
    if (s->bytes == 0)
        return false;
    return s->bytes + (int64_t)header->total_bytes > set->segment_bytes ||
           now_ms - s->first_ms >= set->segment_ms ||
           indexer_index_entries(&log->indexer) >= (uint32_t)set->segment_index_bytes / INDEX_ENTRY_BYTES ||
           /* one slot stays free for the entry at the roll */
           indexer_time_entries(&log->indexer) + 1 >=
               (uint32_t)set->segment_index_bytes / TIME_INDEX_ENTRY_BYTES;
}

/* How many of `batches` (the first one does) fit into the active segment. */
static size_t count_fitting(const struct log *log, const struct log_batch *batches, size_t count)
{
    const struct segment *s = log_active(log);
    int64_t bytes = s->bytes + (int64_t)batches[0].header.total_bytes;
    size_t n = 1;
    for (; n < count; n++) {
        bytes += (int64_t)batches[n].header.total_bytes;
        if (bytes > log->settings.segment_bytes ||
            batch_last_offset(&batches[n].header) - s->base_offset > SEGMENT_RELATIVE_MAX)
            break;
    }
    return n;
}

/* Gather from *next on, neighbours in memory as one part. Returns the number of parts. */
static size_t gather(const struct log_batch *batches, size_t count, size_t *next, struct iovec *parts,
                     size_t parts_max, size_t *ret_bytes)
{
    size_t n = 0, bytes = 0;
    for (; *next < count; ++*next) {
        const struct log_batch *b = &batches[*next];
        if (n > 0 && (char *)parts[n - 1].iov_base + parts[n - 1].iov_len == (char *)b->data) {
            parts[n - 1].iov_len += b->header.total_bytes;
        } else {
            if (n == parts_max)
                break;
            parts[n++] = (struct iovec){.iov_base = b->data, .iov_len = b->header.total_bytes};
        }
        bytes += b->header.total_bytes;
    }
    *ret_bytes = bytes;
    return n;
}

static int write_bytes(struct segment *s, const struct log_batch *batches, size_t count,
                       struct brook_error *error)
{
    struct iovec parts[IOV_MAX];
    int64_t position = s->bytes;
    AUTO_UNPIN struct segment *pinned = NULL;
    int fd = segment_pin_scoped(s, &pinned);
    if (fd < 0)
        return storage_error(error, "opening the segment at %lld of %s", (long long)s->base_offset,
                             directory_path(s->directory));
    int r = 0;
    for (size_t next = 0; next < count && r == 0;) {
        size_t bytes;
        size_t n = gather(batches, count, &next, parts, IOV_MAX, &bytes);
        r = file_writev(fd, parts, n, position);
        position += (int64_t)bytes;
    }
    if (r != 0)
        r = storage_error(error, "appending to %s", directory_path(s->directory));
    segment_wrote(s);
    return r;
}

/* Take up what was written: positions, index entries, tail. Readers do not see it before log_publish(). */
static void note(struct log *log, const struct log_batch *batches, size_t count, int64_t now_ms)
{
    struct segment *s = log_active(log);
    for (size_t i = 0; i < count;) {
        if (indexer_is_full(&log->indexer, 1))
            indexer_flush(&log->indexer, &log->lock);
        pthread_mutex_lock(&log->lock);
        do {
            const struct batch_header *h = &batches[i].header;
            indexer_note(&log->indexer, h, s->bytes, log->settings.index_interval_bytes);
            tail_push(log->tail, &(struct tail_batch){.base_offset = h->base_offset,
                                                      .last_offset = batch_last_offset(h),
                                                      .max_timestamp = h->max_timestamp,
                                                      .position = (uint32_t)s->bytes,
                                                      .bytes = (uint32_t)h->total_bytes});
            s->bytes += (int64_t)h->total_bytes;
            i++;
        } while (i < count && !indexer_is_full(&log->indexer, 1));
        if (s->first_ms == 0)
            s->first_ms = now_ms;
        s->last_ms = now_ms;
        pthread_mutex_unlock(&log->lock);
    }
    log->next_offset = batch_last_offset(&batches[count - 1].header) + 1;
}

static int append_rolling(struct log *log, const struct log_batch *batches, size_t count, int64_t now_ms,
                          struct brook_error *error)
{
    for (size_t done = 0; done < count;) {
        const struct batch_header *first = &batches[done].header;
        if (must_roll(log, first, now_ms)) {
            int r = log_roll(log, first->base_offset, error);
            if (r != 0)
                return r;
        }
        size_t n = count_fitting(log, batches + done, count - done);
        int r = write_bytes(log_active(log), batches + done, n, error);
        if (r != 0)
            return r;
        note(log, batches + done, n, now_ms);
        done += n;
    }
    return 0;
}

/* Undo an append that failed: as before it, segments rolled into included. */
static int take_back(struct log *log, size_t segments_before, int64_t bytes_before)
{
    if (log->segments_count == segments_before && log_active(log)->bytes == bytes_before) {
        if (segment_truncate(log_active(log), bytes_before) != 0)
            return -1;
        /* An empty segment was replaced by one further on: the next offset must lie in the segment again. */
        return log_active(log)->base_offset > log->end_offset ? log_roll(log, log->end_offset, NULL) : 0;
    }
    return log_cut(log, segments_before, bytes_before, log->end_offset, NULL);
}

/* Others look whether it is there. */
static int make_tail(struct log *log)
{
    struct tail *tail = calloc(1, sizeof *tail);
    pthread_mutex_lock(&log->lock);
    log->tail = tail;
    pthread_mutex_unlock(&log->lock);
    return tail ? 0 : -BROOK_E_NOMEM;
}

static int append(struct log *log, const struct log_batch *batches, size_t count, int64_t now_ms,
                  struct brook_error *error)
{
    if (!log->tail && make_tail(log) < 0) {
        log_producers_settle(log, false);
        return brook_error_set(error, BROOK_E_STORAGE_ERROR, "out of memory appending to %s",
                               directory_path(log->directory));
    }
    size_t segments_before = log->segments_count;
    int64_t bytes_before = log_active(log)->bytes;
    int r = log_producers_note(log, batches, count, now_ms, error);
    if (r != 0)
        return r;
    r = append_rolling(log, batches, count, now_ms, error);
    log_producers_settle(log, r == 0);
    if (r != 0) {
        int saved = errno;
        if (take_back(log, segments_before, bytes_before) != 0)
            log_go_offline(log, "a failed append (%s) could not be cut back: %s", strerror(saved),
                           strerror(errno));
        return r;
    }
    log_producers_save(log, false); /* failing costs time at the next start */
    log_publish(log);
    return 0;
}

int log_append(struct log *log, struct log_batch *batches, size_t count, int32_t leader_epoch, int64_t now_ms,
               int64_t *ret_base, struct brook_error *error)
{
    assert(count > 0);
    int r = log_check_online(log, error);
    if (r != 0) {
        log_producers_settle(log, false);
        return r;
    }
    int64_t base = log->end_offset;
    int64_t next = base;
    for (size_t i = 0; i < count; i++) {
        struct batch_header *h = &batches[i].header;
        h->base_offset = next;
        h->leader_epoch = leader_epoch;
        batch_patch(batches[i].data, next, leader_epoch);
        if (log->settings.timestamp_type == TIMESTAMP_LOG_APPEND)
            batch_stamp(batches[i].data, h, now_ms);
        next = batch_last_offset(h) + 1;
    }
    r = append(log, batches, count, now_ms, error);
    if (r != 0)
        return r;
    if (leader_epoch > epochs_last(&log->epochs))
        log_epochs_assign(log, leader_epoch, base);
    log_epochs_save(log);
    *ret_base = base;
    return 0;
}

/* Whether a log without a record, that begins inside the batch, can begin with it. */
static bool covers_start(const struct log *log, const struct batch_header *h)
{
    return log_active(log)->bytes == 0 && log->end_offset == log->start_offset && h->base_offset < log->end_offset &&
           batch_last_offset(h) >= log->end_offset;
}

/* Its records below the start are nobody's; the segment has to be named by the first of them all the same. What lies
 * below the start is of no use to anybody, and not behind it. */
static int begin_inside(struct log *log, int64_t base_offset, int64_t now_ms, struct brook_error *error)
{
    int r = log_drop_oldest(log, log->segments_count - 1, now_ms, error);
    if (r == 0 && base_offset < log_active(log)->base_offset)
        r = log_roll(log, base_offset, error);
    return r;
}

static int check_rising(const struct log *log, const struct log_batch *batches, size_t count,
                        struct brook_error *error)
{
    int64_t next = covers_start(log, &batches[0].header) ? batches[0].header.base_offset : log->end_offset;
    for (size_t i = 0; i < count; i++) {
        const struct batch_header *h = &batches[i].header;
        if (h->base_offset < next)
            return brook_error_set(error, BROOK_E_OFFSET_OUT_OF_RANGE,
                                   "a batch at %lld does not belong behind %lld", (long long)h->base_offset,
                                   (long long)next);
        next = batch_last_offset(h) + 1;
    }
    return 0;
}

int log_append_as_follower(struct log *log, struct log_batch *batches, size_t count, int64_t now_ms,
                           struct brook_error *error)
{
    assert(count > 0);
    int r = log_check_online(log, error);
    if (r == 0)
        r = check_rising(log, batches, count, error);
    if (r == 0 && batches[0].header.base_offset < log->end_offset)
        r = begin_inside(log, batches[0].header.base_offset, now_ms, error);
    if (r == 0)
        r = append(log, batches, count, now_ms, error);
    if (r != 0)
        return r;
    for (size_t i = 0; i < count; i++)
        if (batches[i].header.leader_epoch > epochs_last(&log->epochs))
            log_epochs_assign(log, batches[i].header.leader_epoch, batches[i].header.base_offset);
    log_epochs_save(log);
    return 0;
}
