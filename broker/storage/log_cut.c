#include "broker/storage/file.h"
#include "broker/storage/header_cursor.h"
#include "broker/storage/log_state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

struct doomed_segment {
    struct doomed_segment *next;
    struct segment *segment;
    int64_t since_ms;
};

int log_add_segment(struct log *log, struct segment *segment)
{
    struct segment **grown = NULL;
    size_t capacity = log->segments_capacity;
    if (log->segments_count == capacity) {
        capacity = capacity ? 2 * capacity : 4;
        grown = malloc(capacity * sizeof *grown);
        if (!grown)
            return -BROOK_E_NOMEM;
    }
    pthread_mutex_lock(&log->lock);
    struct segment **old = NULL;
    if (grown) {
        for (size_t i = 0; i < log->segments_count; i++)
            grown[i] = log->segments[i];
        old = log->segments;
        log->segments = grown;
        log->segments_capacity = capacity;
    }
    log->segments[log->segments_count++] = segment;
    pthread_mutex_unlock(&log->lock);
    free(old);
    return 0;
}

/* A new segment that is active from now on. */
static int add_active(struct log *log, int64_t base_offset, struct brook_error *error)
{
    struct segment *s;
    int r = segment_create(log->directory, base_offset, &s, error);
    if (r != 0)
        return r == -BROOK_E_NOMEM ? -BROOK_E_STORAGE_ERROR : r;
    if (log_add_segment(log, s) != 0) {
        segment_discard(s);
        segment_unref(s);
        return brook_error_set(error, BROOK_E_STORAGE_ERROR, "out of memory rolling %s",
                               directory_path(log->directory));
    }
    return 0;
}

/* The segment before the active one holds nothing: it goes, its successor takes its place. */
static void drop_empty_predecessor(struct log *log)
{
    size_t place = log->segments_count - 2;
    struct segment *empty = log->segments[place];
    pthread_mutex_lock(&log->lock);
    log->segments[place] = log->segments[place + 1];
    log->segments_count--;
    if (log->visible_segment == empty) {
        log->visible_segment = log->segments[place];
        log->visible_bytes = 0;
    }
    pthread_mutex_unlock(&log->lock);
    segment_discard(empty); /* an empty file that stays is swept at the next start */
    segment_unref(empty);
}

int log_roll(struct log *log, int64_t base_offset, struct brook_error *error)
{
    struct segment *sealed = log_active(log);
    int r = add_active(log, base_offset, error);
    if (r != 0)
        return r;
    if (sealed->bytes > 0) {
        indexer_finish(&log->indexer, &log->lock); /* a failure leaves the index sparser */
        log->producers.snapshot_is_due = true;
    }
    pthread_mutex_lock(&log->lock);
    indexer_start(&log->indexer, log_active(log), 0, TIMESTAMP_NONE);
    if (log->tail)
        tail_reset(log->tail);
    log->directory_dirty = true;
    pthread_mutex_unlock(&log->lock);
    if (sealed->bytes == 0)
        drop_empty_predecessor(log);
    return 0;
}

void log_publish(struct log *log)
{
    pthread_mutex_lock(&log->lock);
    log->end_offset = log->next_offset;
    log->visible_segment = log_active(log);
    log->visible_bytes = log->visible_segment->bytes;
    if (log->start_offset < log->segments[0]->base_offset)
        log->start_offset = log->segments[0]->base_offset;
    pthread_mutex_unlock(&log->lock);
}

/* ---- going on at the end of a segment ---------------------------------------------------------------- */

/* What the last entries of both indexes say, and where to start walking. */
struct resume_point {
    bool have_index, have_time;
    struct index_entry last;
    struct time_index_entry last_time;
    int64_t position;            /* a batch begins here ... */
    int64_t first_last_relative; /* ... that ends here; -1: not known */
};

static int read_last_entries(struct segment *s, int index_fd, int time_fd, struct resume_point *p)
{
    if (s->index_entries > 0) {
        if (index_read(index_fd, s->index_entries - 1, &p->last) != 0)
            return -1;
        p->have_index = true;
    }
    if (s->time_entries == 0)
        return 0;
    if (time_index_read(time_fd, s->time_entries - 1, &p->last_time) != 0)
        return -1;
    p->have_time = true;
    /* Start where both can be checked: at the batch that the last time entry names, or before it. */
    struct index_entry entry;
    if (!p->have_index)
        return 0;
    int r = index_search(index_fd, s->index_entries, p->last_time.relative_offset, &entry);
    if (r == 1) {
        p->position = entry.position;
        p->first_last_relative = entry.relative_offset;
    }
    return r < 0 ? -1 : 0;
}

static int find_resume_point(struct segment *s, struct resume_point *ret_point)
{
    struct resume_point p = {.first_last_relative = -1};
    int index_fd = s->index_entries ? segment_open_index(s, SUFFIX_INDEX, O_RDONLY) : -1;
    int time_fd = s->time_entries ? segment_open_index(s, SUFFIX_TIME_INDEX, O_RDONLY) : -1;
    int r = read_last_entries(s, index_fd, time_fd, &p);
    if (index_fd >= 0)
        io_close(index_fd);
    if (time_fd >= 0)
        io_close(time_fd);
    if (r != 0)
        return -BROOK_E_CORRUPT_BATCH;
    *ret_point = p;
    return 0;
}

/* The walk's findings, checked against the entries on the way. */
struct resume_walk {
    int64_t next_offset;
    int64_t max_timestamp, max_timestamp_offset;
    bool saw_index, saw_time;
};

static bool agrees(const struct segment *s, const struct resume_point *p, const struct batch_header *h,
                   int64_t position, struct resume_walk *w)
{
    int64_t relative = batch_last_offset(h) - s->base_offset;
    if (position == p->position && p->first_last_relative >= 0 && relative != p->first_last_relative)
        return false;
    if (p->have_index && position == p->last.position) {
        w->saw_index = relative == p->last.relative_offset;
        if (!w->saw_index)
            return false;
    }
    if (p->have_time && relative == p->last_time.relative_offset) {
        w->saw_time = h->max_timestamp == p->last_time.timestamp;
        if (!w->saw_time)
            return false;
    }
    return h->base_offset >= w->next_offset;
}

static int walk(struct segment *s, const struct resume_point *p, struct resume_walk *ret_walk)
{
    struct header_cursor c;
    struct batch_header h;
    int64_t position;
    struct resume_walk w = {.next_offset = s->base_offset,
                            .max_timestamp = p->have_time ? p->last_time.timestamp : TIMESTAMP_NONE,
                            .max_timestamp_offset =
                                s->base_offset + (p->have_time ? p->last_time.relative_offset : 0)};
    AUTO_UNPIN struct segment *pinned = NULL;
    int fd = s->bytes > 0 ? segment_pin_scoped(s, &pinned) : -1; /* an empty one need not be opened */
    if (fd < 0 && s->bytes > 0)
        return -BROOK_E_STORAGE_ERROR;
    header_cursor_init(&c, fd, p->position, s->bytes);
    int r;
    while ((r = header_cursor_next(&c, &h, &position)) == 0) {
        if (!agrees(s, p, &h, position, &w))
            return -BROOK_E_CORRUPT_BATCH;
        w.next_offset = batch_last_offset(&h) + 1;
        if (h.max_timestamp > w.max_timestamp) {
            w.max_timestamp = h.max_timestamp;
            w.max_timestamp_offset = batch_last_offset(&h);
        }
    }
    if (r != -BROOK_E_AGAIN)
        return r;
    if (p->have_index != w.saw_index || p->have_time != w.saw_time)
        return -BROOK_E_CORRUPT_BATCH;
    *ret_walk = w;
    return 0;
}

int log_resume(struct log *log, int64_t *ret_next_offset)
{
    struct segment *s = log_active(log);
    struct resume_point p;
    struct resume_walk w;
    int r = find_resume_point(s, &p);
    if (r == 0)
        r = walk(s, &p, &w);
    if (r != 0)
        return r;
    pthread_mutex_lock(&log->lock);
    s->max_timestamp = w.max_timestamp;
    s->max_timestamp_offset = w.max_timestamp_offset;
    s->max_timestamp_known = true;
    indexer_start(&log->indexer, s, s->bytes - (p.have_index ? p.last.position : 0),
                  p.have_time ? p.last_time.timestamp : TIMESTAMP_NONE);
    pthread_mutex_unlock(&log->lock);
    *ret_next_offset = w.next_offset;
    return 0;
}

/* ---- cutting the end -------------------------------------------------------------------------------- */

static int remove_last(struct log *log, struct brook_error *error)
{
    struct segment *s = log_active(log);
    int r = segment_remove(s, error);
    if (r != 0)
        return r;
    pthread_mutex_lock(&log->lock);
    log->segments_count--;
    log->directory_dirty = true;
    pthread_mutex_unlock(&log->lock);
    segment_unref(s);
    return 0;
}

/* Readers must know of a cut before the file does: whoever took a look before sees another generation after.
 */
static void show_cut(struct log *log, struct segment *s, int64_t bytes, int64_t end_offset)
{
    pthread_mutex_lock(&log->lock);
    s->bytes = bytes;
    if (bytes == 0)
        s->first_ms = 0;
    log->generation++;
    log->visible_segment = s;
    log->visible_bytes = bytes;
    log->end_offset = end_offset;
    log->next_offset = end_offset;
    if (log->durable_end > end_offset)
        log->durable_end = end_offset;
    if (log->cleaned_offset > end_offset)
        log->cleaned_offset = end_offset;
    if (log->tail)
        tail_reset(log->tail);
    pthread_mutex_unlock(&log->lock);
}

/* The index entries of what is being cut; when they can not be told apart the segment is indexed anew. */
static int cut_index(struct log *log, struct segment *s, int64_t end_offset)
{
    if (log->indexer.segment != s) {
        pthread_mutex_lock(&log->lock);
        indexer_start(&log->indexer, s, 0, TIMESTAMP_NONE);
        pthread_mutex_unlock(&log->lock);
    } else {
        indexer_flush(&log->indexer, &log->lock);
    }
    indexer_cut(&log->indexer, end_offset, &log->lock);
    int64_t next;
    int r = log_resume(log, &next);
    if (r != -BROOK_E_CORRUPT_BATCH)
        return r;
    pthread_mutex_lock(&log->lock);
    s->index_entries = 0;
    s->time_entries = 0;
    pthread_mutex_unlock(&log->lock);
    return log_resume(log, &next);
}

int log_cut(struct log *log, size_t keep, int64_t bytes, int64_t end_offset, struct brook_error *error)
{
    struct segment *s = log->segments[keep - 1];
    show_cut(log, s, bytes, end_offset);
    while (log->segments_count > keep) {
        int r = remove_last(log, error);
        if (r != 0)
            return r;
    }
    if (segment_truncate(s, bytes) != 0)
        return storage_error(error, "cutting %s", directory_path(log->directory));
    int r = cut_index(log, s, end_offset);
    return r == 0 ? 0
                  : brook_error_set(error, BROOK_E_STORAGE_ERROR, "indexing %s after a cut",
                                    directory_path(log->directory));
}

/* Where the batch that holds `offset` begins: place of its segment, position, and the offset to go on with.
 */
static int find_cut(struct log *log, int64_t offset, size_t *ret_place, int64_t *ret_position,
                    int64_t *ret_end)
{
    struct log_view v;
    struct batch_header header;
    pthread_mutex_lock(&log->lock);
    size_t place = log_segment_of(log, offset);
    log_view_take(log, place, offset, &v);
    pthread_mutex_unlock(&log->lock);
    int r = log_view_find(&v, offset, ret_position, &header);
    log_view_done(&v);
    if (r != 0 && r != -BROOK_E_AGAIN)
        return r;
    *ret_place = place;
    *ret_end = r == 0 && header.base_offset < offset ? header.base_offset : offset;
    return 0;
}

/* A batch that was deleted in part has been cut: its offsets are not given again, and a segment's name says so. */
static int go_on_at_start(struct log *log, struct brook_error *error)
{
    int r = log_roll(log, log->start_offset, error);
    if (r != 0) {
        log_go_offline(log, "a truncation to its start could not be finished");
        return r;
    }
    log->next_offset = log->start_offset;
    log_publish(log);
    return 0;
}

int log_truncate(struct log *log, int64_t offset, struct brook_error *error)
{
    int r = log_check_online(log, error);
    if (r != 0)
        return r;
    if (offset < log->start_offset)
        offset = log->start_offset;
    if (offset >= log->end_offset)
        return 0;
    size_t place;
    int64_t position, end;
    r = find_cut(log, offset, &place, &position, &end);
    if (r != 0)
        return brook_error_set(error, BROOK_E_STORAGE_ERROR, "looking for offset %lld in %s",
                               (long long)offset, directory_path(log->directory));
    r = log_cut(log, place + 1, position, end, error);
    if (r == 0)
        r = log_producers_cut(log, end, error);
    if (r != 0) {
        log_go_offline(log, "a truncation to %lld failed half way", (long long)offset);
        return r;
    }
    log_epochs_cut_end(log, end);
    return end < log->start_offset ? go_on_at_start(log, error) : 0;
}

/* ---- dropping the beginning ------------------------------------------------------------------------- */

static void doom(struct log *log, struct segment *s, int64_t now_ms)
{
    struct doomed_segment *d = log->settings.file_delete_delay_ms > 0 ? malloc(sizeof *d) : NULL;
    if (!d) {
        segment_unref(s);
        return;
    }
    *d = (struct doomed_segment){.next = log->doomed, .segment = s, .since_ms = now_ms};
    log->doomed = d;
}

int log_drop_oldest(struct log *log, size_t count, int64_t now_ms, struct brook_error *error)
{
    int r = 0;
    for (; count > 0 && r == 0; count--) {
        struct segment *s = log->segments[0];
        r = segment_remove(s, error);
        if (r != 0)
            break;
        pthread_mutex_lock(&log->lock);
        log->segments_count--;
        for (size_t i = 0; i < log->segments_count; i++)
            log->segments[i] = log->segments[i + 1];
        if (log->start_offset < log->segments[0]->base_offset)
            log->start_offset = log->segments[0]->base_offset;
        log->directory_dirty = true;
        pthread_mutex_unlock(&log->lock);
        doom(log, s, now_ms);
    }
    return r;
}

int log_start_over(struct log *log, int64_t offset, int64_t now_ms, struct brook_error *error)
{
    int r = log_check_online(log, error);
    if (r == 0)
        r = log_truncate(log, log->start_offset, error);
    if (r == 0 && offset != log->end_offset)
        r = log_roll(log, offset, error);
    if (r != 0)
        return r;
    log->next_offset = offset;
    log_publish(log);
    r = log_drop_oldest(log, log->segments_count - 1, now_ms, error);
    if (r == 0)
        r = log_producers_start_over(log, offset, error);
    pthread_mutex_lock(&log->lock);
    log->start_offset = offset;
    if (log->durable_end > offset)
        log->durable_end = offset;
    pthread_mutex_unlock(&log->lock);
    log_epochs_cut_end(log, INT64_MIN); /* whose epoch the leader's records below were is not known here */
    log_epochs_save(log);
    return r;
}

void log_bury(struct log *log, int64_t now_ms, bool all)
{
    struct doomed_segment **at = &log->doomed;
    while (*at) {
        struct doomed_segment *d = *at;
        if (all || now_ms - d->since_ms >= log->settings.file_delete_delay_ms) {
            *at = d->next;
            segment_unref(d->segment);
            free(d);
        } else {
            at = &d->next;
        }
    }
}
