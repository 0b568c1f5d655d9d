#include "broker/storage/file.h"
#include "broker/storage/header_cursor.h"
#include "broker/storage/log_state.h"
#include "broker/storage/segment_index.h"
#include "proto/base/cleanup.h"
#include "proto/record/record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

struct question {
    int64_t timestamp;
    int64_t start_offset;
    int64_t end_offset;
    size_t expanded_bytes_max;
};

struct answer {
    int64_t offset;
    int64_t timestamp;
};

static int walk_records(const struct batch_header *h, const void *data, size_t bytes,
                        const struct question *q, struct answer *ret_answer)
{
    struct record_walker w;
    struct record record;
    int r = record_walker_init(&w, h, data, bytes);
    while (r == 0 && (r = record_walker_next(&w, &record)) == 0) {
        if (record.offset >= q->end_offset)
            return -BROOK_E_NOT_FOUND;
        if (record.timestamp >= q->timestamp && record.offset >= q->start_offset) {
            *ret_answer = (struct answer){.offset = record.offset, .timestamp = record.timestamp};
            return 0;
        }
    }
    return r == -BROOK_E_AGAIN ? -BROOK_E_NOT_FOUND : r;
}

/* The first fitting record of a batch whose greatest timestamp fits. -BROOK_E_NOT_FOUND: there is none. */
static int find_in_batch(int fd, int64_t position, const struct batch_header *h, const struct question *q,
                         struct answer *ret_answer)
{
    AUTO_FREE void *batch = malloc(h->total_bytes);
    struct codec *codec = NULL;
    if (!batch || codec_new(&codec) != 0)
        return -BROOK_E_NOMEM;
    ssize_t n = file_read(fd, batch, h->total_bytes, position);
    const void *data;
    size_t bytes;
    int r = n < 0 ? -BROOK_E_STORAGE_ERROR : (size_t)n < h->total_bytes ? -BROOK_E_CORRUPT_BATCH : 0;
    if (r == 0)
        r = batch_check_crc(batch, h);
    if (r == 0)
        r = batch_records(batch, h, codec, q->expanded_bytes_max, &data, &bytes);
    if (r == 0)
        r = walk_records(h, data, bytes, q, ret_answer);
    codec_free(codec);
    return r;
}

/* The time index's hint: nothing up to and including this offset is late enough. -1: no hint. */
static int64_t hint(struct log *log, struct log_view *v, int64_t timestamp)
{
    struct time_index_entry entry;
    pthread_mutex_lock(&log->lock);
    bool have = v->segment == log->indexer.segment && indexer_find_time(&log->indexer, timestamp, &entry);
    pthread_mutex_unlock(&log->lock);
    if (!have && v->index_usable && v->time_entries > 0) {
        int fd = segment_open_index(v->segment, SUFFIX_TIME_INDEX, O_RDONLY);
        if (fd >= 0) {
            have = time_index_search(fd, v->time_entries, timestamp, &entry) == 1;
            io_close(fd);
        }
    }
    return have ? v->segment->base_offset + entry.relative_offset : -1;
}

/* Where to begin walking: at the batch that the hint names, which is believed when it ends where the hint
 * says and is early enough itself; else at the segment's start. */
static int64_t start_position(struct log *log, struct log_view *v, int64_t timestamp)
{
    int64_t offset = hint(log, v, timestamp);
    if (offset < 0)
        return 0;
    int64_t position;
    struct batch_header h;
    struct log_view at = *v;
    pthread_mutex_lock(&log->lock);
    at.start_is_best = v->segment == log->indexer.segment &&
                       indexer_find(&log->indexer, offset - v->segment->base_offset, &at.start);
    pthread_mutex_unlock(&log->lock);
    if (log_view_find(&at, offset, &position, &h) == 0 && batch_last_offset(&h) == offset &&
        h.max_timestamp < timestamp)
        return position;
    return 0;
}

static int find_in_segment(struct log *log, struct log_view *v, const struct question *q,
                           struct answer *ret_answer)
{
    struct header_cursor c;
    struct batch_header h;
    int64_t position;
    AUTO_UNPIN struct segment *pinned = NULL;
    int fd = segment_pin_scoped(v->segment, &pinned);
    if (fd < 0)
        return -BROOK_E_STORAGE_ERROR;
    header_cursor_init(&c, fd, start_position(log, v, q->timestamp), v->end);
    int r;
    while ((r = header_cursor_next(&c, &h, &position)) == 0 && h.base_offset < q->end_offset) {
        if (h.max_timestamp < q->timestamp)
            continue;
        r = find_in_batch(fd, position, &h, q, ret_answer);
        if (r != -BROOK_E_NOT_FOUND)
            return r;
    }
    return r == 0 || r == -BROOK_E_AGAIN ? -BROOK_E_NOT_FOUND : r;
}

/* The view of the segment at or behind `offset` that can be seen; false when there is none. */
static bool take_next(struct log *log, int64_t offset, int64_t end_offset, struct log_view *ret_view)
{
    pthread_mutex_lock(&log->lock);
    if (offset < log->start_offset)
        offset = log->start_offset;
    bool any = offset < log->end_offset && offset < end_offset;
    if (any)
        log_view_take(log, log_segment_of(log, offset), offset, ret_view);
    pthread_mutex_unlock(&log->lock);
    return any;
}

int log_find_time(struct log *log, int64_t timestamp, int64_t end_offset, size_t expanded_bytes_max,
                  int64_t *ret_offset, int64_t *ret_timestamp)
{
    struct question q = {.timestamp = timestamp,
                         .start_offset = log_start_offset(log),
                         .end_offset = end_offset,
                         .expanded_bytes_max = expanded_bytes_max};
    struct log_view v;
    struct answer answer;
    int r = -BROOK_E_NOT_FOUND;
    int64_t visible_end = log_end_offset(log);
    if (q.end_offset > visible_end)
        q.end_offset = visible_end;
    for (int64_t offset = 0; r == -BROOK_E_NOT_FOUND && take_next(log, offset, q.end_offset, &v);) {
        int64_t greatest;
        r = segment_index_max_timestamp(v.segment, &log->lock, &greatest);
        if (r == 0)
            r = greatest < timestamp ? -BROOK_E_NOT_FOUND : find_in_segment(log, &v, &q, &answer);
        offset = v.next_base;
        log_view_done(&v);
    }
    if (r == 0) {
        *ret_offset = answer.offset;
        *ret_timestamp = answer.timestamp;
    }
    return r;
}
