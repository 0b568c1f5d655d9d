#include "broker/storage/file.h"
#include "broker/storage/header_cursor.h"
#include "broker/storage/log_state.h"
#include "proto/base/clock.h"

#include <errno.h>
#include <fcntl.h>

size_t log_segment_of(const struct log *log, int64_t offset)
{
    size_t low = 0, high = log->segments_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (log->segments[middle]->base_offset <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 ? low - 1 : 0;
}

/* What memory knows about where to start: the tail is exact, pending index entries are better than the file.
 */
static void look_in_memory(struct log *log, int64_t offset, struct log_view *v)
{
    if (v->segment != log->indexer.segment)
        return;
    int64_t relative = offset - v->segment->base_offset;
    if (log->tail && tail_covers(log->tail, offset)) {
        uint32_t place = tail_find(log->tail, offset);
        if (place < log->tail->count) {
            const struct tail_batch *b = tail_at(log->tail, place);
            v->start.position = (int32_t)b->position;
            v->start.relative_offset = (int32_t)(b->last_offset - v->segment->base_offset);
            v->start_is_best = true;
            return;
        }
    }
    if (indexer_find(&log->indexer, relative, &v->start))
        v->start_is_best = true;
}

void log_view_take(struct log *log, size_t place, int64_t offset, struct log_view *ret_view)
{
    struct segment *s = log->segments[place];
    struct log_view v = {
        .segment = segment_ref(s),
        .end = s == log->visible_segment ? log->visible_bytes : s->bytes,
        .next_base = s == log->visible_segment ? INT64_MAX : log->segments[place + 1]->base_offset,
        .index_entries = s->index_entries,
        .time_entries = s->time_entries,
        .index_usable = !s->index_doubtful,
        .generation = log->generation,
    };
    look_in_memory(log, offset, &v);
    *ret_view = v;
}

void log_view_done(struct log_view *v)
{
    segment_unref(v->segment);
    v->segment = NULL;
}

/* The best entry of the file, or position 0. A file that can not be read is as good as none. */
static int look_in_index(struct log_view *v, int64_t offset, struct index_entry *ret_entry, bool *ret_found)
{
    *ret_found = false;
    if (!v->index_usable || v->index_entries == 0)
        return 0;
    int fd = segment_open_index_to_read(v->segment, SUFFIX_INDEX, v->cached_only);
    if (fd < 0)
        return v->cached_only && errno == EAGAIN ? -BROOK_E_LOCKED : 0;
    int64_t relative = offset - v->segment->base_offset;
    int r = v->cached_only ? index_search_cached(fd, v->index_entries, relative, ret_entry)
                           : index_search(fd, v->index_entries, relative, ret_entry);
    bool is_locked = r < 0 && v->cached_only && errno == EAGAIN;
    io_close(fd);
    *ret_found = r == 1 && ret_entry->position > 0;
    return is_locked ? -BROOK_E_LOCKED : 0;
}

static int walk_to(struct header_cursor *c, int64_t offset, int64_t *ret_position,
                   struct batch_header *ret_header)
{
    int r;
    do {
        r = header_cursor_next(c, ret_header, ret_position);
    } while (r == 0 && batch_last_offset(ret_header) < offset);
    return r;
}

int log_view_find(struct log_view *v, int64_t offset, int64_t *ret_position, struct batch_header *ret_header)
{
    struct index_entry entry = v->start;
    bool have = v->start_is_best;
    int r = have ? 0 : look_in_index(v, offset, &entry, &have);
    if (r != 0)
        return r;
    struct header_cursor c;
    struct batch_header header;
    int64_t position;
    int fd = v->cached_only ? segment_pin_cached(v->segment) : segment_pin(v->segment);
    if (fd < 0)
        return v->cached_only && errno == EAGAIN ? -BROOK_E_LOCKED : -BROOK_E_STORAGE_ERROR;
    AUTO_UNPIN struct segment *pinned = v->segment;

    header_cursor_init(&c, fd, have ? entry.position : 0, v->end);
    c.cached_only = v->cached_only;
    r = header_cursor_next(&c, &header, &position);
    if (r == -BROOK_E_LOCKED)
        return r;
    /* An index is believed only where the log agrees; else the headers are walked from the start. */
    if (have && (r != 0 || batch_last_offset(&header) - v->segment->base_offset != entry.relative_offset)) {
        v->segment->index_doubtful = true;
        header_cursor_init(&c, fd, 0, v->end);
        c.cached_only = v->cached_only;
        r = header_cursor_next(&c, &header, &position);
    }
    if (r == 0 && batch_last_offset(&header) < offset)
        r = walk_to(&c, offset, &position, &header);
    if (r == 0) {
        *ret_header = header;
        *ret_position = position;
    } else if (r == -BROOK_E_AGAIN) {
        *ret_position = v->end;
    }
    return r == -BROOK_E_UNSUPPORTED_FORMAT ? -BROOK_E_CORRUPT_BATCH : r;
}

/* ---- reading ---------------------------------------------------------------------------------------- */

struct request {
    int64_t offset;
    int64_t end_offset; /* clamped to the log's */
    size_t bytes_max;
    bool whole_first;
    size_t first_bytes_max;
    bool cached_only;
};

/* How much of `available` bytes, which begin with a batch of `first` bytes, to hand out. */
static int budget(const struct request *q, size_t first, size_t available, size_t *ret_bytes)
{
    size_t n = available < q->bytes_max ? available : q->bytes_max;
    if (n < first) {
        if (q->whole_first && first > q->first_bytes_max)
            return -BROOK_E_MESSAGE_TOO_LARGE;
        n = q->whole_first ? first : 0;
    }
    *ret_bytes = n;
    return 0;
}

/* The whole answer from memory: batches of the tail. Under the lock; a reference is taken. */
static int read_tail(struct log *log, const struct request *q, struct log_range *range)
{
    const struct tail *t = log->tail;
    uint32_t first = tail_find(t, q->offset);
    uint32_t behind = tail_find(t, q->end_offset);
    if (first >= behind)
        return 0;
    const struct tail_batch *start = tail_at(t, first);
    size_t available = 0;
    for (uint32_t i = first; i < behind; i++) {
        const struct tail_batch *b = tail_at(t, i);
        size_t with = b->position + b->bytes - start->position;
        if (i > first && with > q->bytes_max)
            break;
        available = with;
    }
    size_t bytes = 0;
    int r = budget(q, start->bytes, available, &bytes);
    if (r != 0 || bytes == 0)
        return r;
    struct segment *active = log_active(log);
    int64_t age_ms = clock_wall_ms() - active->last_ms;
    range->segment = segment_ref(active);
    range->position = start->position;
    range->bytes = bytes;
    range->is_fresh = age_ms >= 0 && age_ms < LOG_FRESH_MS;
    return 0;
}

/* Where the bytes that q->end_offset allows end in the viewed segment. */
static int find_limit(struct log *log, const struct log_view *v, const struct request *q, int64_t visible_end,
                      int64_t *ret_limit)
{
    if (q->end_offset >= v->next_base || q->end_offset == visible_end) {
        *ret_limit = v->end;
        return 0;
    }
    pthread_mutex_lock(&log->lock);
    struct log_view of_end;
    bool same = log->generation == v->generation;
    size_t place = log_segment_of(log, v->segment->base_offset);
    same = same && log->segments[place] == v->segment;
    if (same)
        log_view_take(log, place, q->end_offset, &of_end);
    pthread_mutex_unlock(&log->lock);
    if (!same)
        return -BROOK_E_AGAIN; /* cut or removed meanwhile: look again */

    struct batch_header header;
    of_end.end = v->end;
    of_end.cached_only = v->cached_only;
    int r = log_view_find(&of_end, q->end_offset, ret_limit, &header);
    log_view_done(&of_end);
    return r == -BROOK_E_AGAIN ? 0 : r;
}

/* A range that the budget cut short should end with a whole batch where the index can say so cheaply. */
static size_t round_down(const struct log_view *v, int64_t position, size_t first, size_t bytes)
{
    if (!v->index_usable || v->index_entries == 0)
        return bytes;
    int fd = segment_open_index_to_read(v->segment, SUFFIX_INDEX, v->cached_only);
    if (fd < 0)
        return bytes;
    struct index_entry entry;
    int r = (v->cached_only ? index_search_position_cached
                            : index_search_position)(fd, v->index_entries, position + (int64_t)bytes, &entry);
    io_close(fd);
    return r == 1 && entry.position >= position + (int64_t)first ? (size_t)(entry.position - position)
                                                                 : bytes;
}

/* The answer with a look at the files. -BROOK_E_AGAIN: go on at q->offset, which has moved. */
static int read_files(struct log *log, struct log_view *v, struct request *q, int64_t visible_end,
                      struct log_range *range)
{
    int64_t position, limit;
    struct batch_header first;
    int r = log_view_find(v, q->offset, &position, &first);
    if (r == -BROOK_E_AGAIN) { /* nothing of the offset or above it in this segment */
        q->offset = v->next_base;
        return r;
    }
    if (r != 0)
        return r;
    /* Outside of its segment or of the log: not what was written there, and "nothing yet" would be waited for for ever. */
    if (first.base_offset < v->segment->base_offset || batch_last_offset(&first) >= v->next_base ||
        batch_last_offset(&first) >= visible_end)
        return -BROOK_E_CORRUPT_BATCH;
    if (first.base_offset >= q->end_offset || batch_last_offset(&first) >= q->end_offset)
        return 0;
    r = find_limit(log, v, q, visible_end, &limit);
    if (r != 0)
        return r;
    size_t bytes = 0, available = (size_t)(limit - position);
    r = budget(q, first.total_bytes, available, &bytes);
    if (r != 0 || bytes == 0)
        return r;
    if (bytes < available && bytes > first.total_bytes)
        bytes = round_down(v, position, first.total_bytes, bytes);
    range->segment = segment_ref(v->segment);
    range->position = position;
    range->bytes = bytes;
    return 0;
}

static bool view_is_stale(struct log *log, const struct log_view *v)
{
    pthread_mutex_lock(&log->lock);
    bool stale = log->generation != v->generation;
    pthread_mutex_unlock(&log->lock);
    return stale;
}

static bool tail_answers(const struct log *log, const struct request *q)
{
    return log->tail && log_active(log) == log->visible_segment && tail_covers(log->tail, q->offset);
}

/* One attempt. -BROOK_E_AGAIN: once more. */
static int read_once(struct log *log, struct request *q, int64_t end_offset, struct log_range *range)
{
    pthread_mutex_lock(&log->lock);
    int64_t visible_end = log->end_offset;
    q->end_offset = end_offset < visible_end ? end_offset : visible_end;
    if (q->offset < log->start_offset || q->offset > visible_end) {
        pthread_mutex_unlock(&log->lock);
        return -BROOK_E_OFFSET_OUT_OF_RANGE;
    }
    if (q->offset >= q->end_offset || tail_answers(log, q)) {
        int r = q->offset >= q->end_offset ? 0 : read_tail(log, q, range);
        pthread_mutex_unlock(&log->lock);
        return r;
    }
    struct log_view v;
    log_view_take(log, log_segment_of(log, q->offset), q->offset, &v);
    v.cached_only = q->cached_only;
    pthread_mutex_unlock(&log->lock);

    struct request tried = *q;
    int r = read_files(log, &v, &tried, visible_end, range);
    if (view_is_stale(log, &v)) {
        log_range_done(range);
        r = -BROOK_E_AGAIN;
    } else {
        q->offset = tried.offset;
    }
    log_view_done(&v);
    return r;
}

static int read_range(struct log *log, struct request q, int64_t end_offset, struct log_range *ret_range)
{
    struct log_range range = {.fd = -1};
    int r;
    do {
        r = read_once(log, &q, end_offset, &range);
    } while (r == -BROOK_E_AGAIN && q.offset < INT64_MAX);
    if (r == -BROOK_E_AGAIN)
        r = 0;
    if (r == 0 && range.segment) {
        range.fd = q.cached_only ? segment_pin_cached(range.segment) : segment_pin(range.segment);
        if (range.fd < 0) {
            r = q.cached_only && errno == EAGAIN ? -BROOK_E_LOCKED : -BROOK_E_STORAGE_ERROR;
            log_range_done(&range);
        }
    }
    if (r == -BROOK_E_CORRUPT_BATCH)
        r = -BROOK_E_STORAGE_ERROR;
    if (r == 0)
        *ret_range = range;
    return r;
}

int log_read(struct log *log, int64_t offset, int64_t end_offset, size_t bytes_max, bool whole_first,
             size_t first_bytes_max, struct log_range *ret_range)
{
    struct request q = {.offset = offset,
                        .bytes_max = bytes_max,
                        .whole_first = whole_first,
                        .first_bytes_max = first_bytes_max};
    return read_range(log, q, end_offset, ret_range);
}

int log_read_cached(struct log *log, int64_t offset, int64_t end_offset, size_t bytes_max, bool whole_first,
                    size_t first_bytes_max, struct log_range *ret_range)
{
    struct request q = {.offset = offset,
                        .bytes_max = bytes_max,
                        .whole_first = whole_first,
                        .first_bytes_max = first_bytes_max,
                        .cached_only = true};
    return read_range(log, q, end_offset, ret_range);
}

void log_range_done(struct log_range *range)
{
    if (range->segment && range->fd >= 0)
        segment_unpin(range->segment);
    segment_unref(range->segment);
    *range = (struct log_range){.fd = -1};
}
