#include "broker/storage/segment_index.h"

#include "broker/storage/file.h"
#include "broker/storage/header_cursor.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

/* A log that goes on for so long behind its last index entry has lost some. */
#define SPARSE_BYTES ((int64_t)8 << 20)

/* Entries of an index file, or -1 when it is not there or not a whole number of them. */
static int64_t count_entries(int fd, int64_t entry_bytes)
{
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0 || st.st_size % entry_bytes != 0 || st.st_size > INT32_MAX)
        return -1;
    return st.st_size / entry_bytes;
}

static bool read_header_at(struct segment *s, int64_t position, struct batch_header *ret_header)
{
    struct header_cursor c;
    int64_t at;
    AUTO_UNPIN struct segment *pinned = NULL;
    int fd = segment_pin_scoped(s, &pinned);
    header_cursor_init(&c, fd, position, s->bytes);
    return fd >= 0 && header_cursor_next(&c, ret_header, &at) == 0;
}

/* An index without entries is right as long as no batch begins further in than the interval. */
static bool may_be_empty(struct segment *s, int32_t interval)
{
    struct header_cursor c;
    struct batch_header h;
    int64_t position = 0;
    AUTO_UNPIN struct segment *pinned = NULL;
    int fd = s->bytes > interval ? segment_pin_scoped(s, &pinned) : -1;
    if (fd < 0)
        return s->bytes <= interval;
    header_cursor_init(&c, fd, 0, s->bytes);
    int r;
    while ((r = header_cursor_next(&c, &h, &position)) == 0 && position <= interval)
        ;
    return r == -BROOK_E_AGAIN;
}

static bool check_index(struct segment *s, int fd, int64_t next_base, int32_t interval)
{
    if (s->index_entries == 0)
        return may_be_empty(s, interval);
    struct batch_header h;
    struct index_entry last;
    if (index_read(fd, s->index_entries - 1, &last) != 0 || last.position <= 0 || last.position >= s->bytes ||
        last.relative_offset < 0 || s->base_offset + last.relative_offset >= next_base)
        return false;
    return read_header_at(s, last.position, &h) &&
           batch_last_offset(&h) - s->base_offset == last.relative_offset &&
           s->bytes - last.position - (int64_t)h.total_bytes <= SPARSE_BYTES;
}

static bool check_time_index(struct segment *s, int fd, int64_t next_base)
{
    struct batch_header h;
    if (s->time_entries == 0) /* right only without timestamps; lookups walk the headers then */
        return s->index_entries == 0 || (read_header_at(s, 0, &h) && h.max_timestamp <= TIMESTAMP_NONE);
    struct time_index_entry first, last;
    return time_index_read(fd, 0, &first) == 0 && time_index_read(fd, s->time_entries - 1, &last) == 0 &&
           first.timestamp >= 0 && last.timestamp >= first.timestamp &&
           last.relative_offset >= first.relative_offset && first.relative_offset >= 0 &&
           s->base_offset + last.relative_offset < next_base;
}

bool segment_index_check(struct segment *s, int64_t next_base, int32_t interval)
{
    int index_fd = segment_open_index(s, SUFFIX_INDEX, O_RDONLY);
    int time_fd = segment_open_index(s, SUFFIX_TIME_INDEX, O_RDONLY);
    int64_t index_entries = count_entries(index_fd, INDEX_ENTRY_BYTES);
    int64_t time_entries = count_entries(time_fd, TIME_INDEX_ENTRY_BYTES);
    bool good = index_entries >= 0 && time_entries >= 0;
    s->index_entries = good ? (uint32_t)index_entries : 0;
    s->time_entries = good ? (uint32_t)time_entries : 0;
    good = good && check_index(s, index_fd, next_base, interval) && check_time_index(s, time_fd, next_base);
    if (index_fd >= 0)
        io_close(index_fd);
    if (time_fd >= 0)
        io_close(time_fd);
    return good;
}

int segment_index_rebuild(struct segment *s, int32_t interval, pthread_mutex_t *lock)
{
    struct indexer ix = {0};
    struct header_cursor c;
    struct batch_header h;
    int64_t position;
    AUTO_UNPIN struct segment *pinned = NULL;
    int fd = segment_pin_scoped(s, &pinned);
    if (fd < 0 || indexer_reset(&ix, s) != 0)
        return -BROOK_E_STORAGE_ERROR;
    header_cursor_init(&c, fd, 0, s->bytes);
    int r = 0;
    while (r == 0 && header_cursor_next(&c, &h, &position) == 0) {
        if (batch_last_offset(&h) - s->base_offset > SEGMENT_RELATIVE_MAX || h.base_offset < s->base_offset)
            break;
        if (indexer_is_full(&ix, 1))
            r = indexer_flush(&ix, lock);
        indexer_note(&ix, &h, position, interval);
    }
    if (r == 0)
        r = indexer_finish(&ix, lock);
    s->max_timestamp_known = r == 0;
    indexer_done(&ix);
    return r == 0 ? 0 : -BROOK_E_STORAGE_ERROR;
}

void segment_index_forget(struct segment *s)
{
    s->index_entries = 0;
    s->time_entries = 0;
    s->index_doubtful = true;
}

/* ---- the greatest timestamp -------------------------------------------------------------------------- */

static void take_greater(const struct segment *s, const struct batch_header *h,
                         struct time_index_entry *greatest)
{
    if (h->max_timestamp > greatest->timestamp)
        *greatest =
            (struct time_index_entry){.timestamp = h->max_timestamp,
                                      .relative_offset = (int32_t)(batch_last_offset(h) - s->base_offset)};
}

/* Walk from `start`. With `*greatest` from the time index: its batch
 * must come by and agree. Behind it nothing may be greater, but an index that lost its end does not know; so
 * the walk goes on to the segment's end. */
static int walk_greatest(struct segment *s, int64_t end, struct index_entry start, bool from_index,
                         struct time_index_entry *greatest)
{
    struct header_cursor c;
    struct batch_header h;
    int64_t position;
    const struct time_index_entry entry = *greatest;
    bool agreed = !from_index;
    AUTO_UNPIN struct segment *pinned = NULL;
    int fd = segment_pin_scoped(s, &pinned);
    if (fd < 0)
        return -BROOK_E_STORAGE_ERROR;
    header_cursor_init(&c, fd, start.position, end);
    int r;
    while ((r = header_cursor_next(&c, &h, &position)) == 0) {
        if (from_index && batch_last_offset(&h) - s->base_offset == entry.relative_offset)
            agreed = h.max_timestamp == entry.timestamp;
        take_greater(s, &h, greatest);
    }
    if (r == -BROOK_E_STORAGE_ERROR)
        return r;
    return agreed ? 0 : -BROOK_E_CORRUPT_BATCH;
}

/* With the indexes' help. -BROOK_E_CORRUPT_BATCH: they are of none. */
static int greatest_by_index(struct segment *s, uint32_t index_entries, uint32_t time_entries, int64_t end,
                             struct time_index_entry *ret_greatest)
{
    struct index_entry start = {0};
    int time_fd = segment_open_index(s, SUFFIX_TIME_INDEX, O_RDONLY);
    int index_fd = segment_open_index(s, SUFFIX_INDEX, O_RDONLY);
    bool good = time_fd >= 0 && index_fd >= 0 && time_entries > 0 &&
                time_index_read(time_fd, time_entries - 1, ret_greatest) == 0;
    if (good && index_entries > 0)
        good = index_search(index_fd, index_entries, ret_greatest->relative_offset, &start) >= 0;
    if (time_fd >= 0)
        io_close(time_fd);
    if (index_fd >= 0)
        io_close(index_fd);
    return good ? walk_greatest(s, end, start, true, ret_greatest) : -BROOK_E_CORRUPT_BATCH;
}

int segment_index_max_timestamp(struct segment *s, pthread_mutex_t *lock, int64_t *ret_timestamp)
{
    pthread_mutex_lock(lock);
    bool known = s->max_timestamp_known;
    int64_t timestamp = s->max_timestamp, end = s->bytes;
    uint32_t index_entries = s->index_entries, time_entries = s->time_entries;
    pthread_mutex_unlock(lock);
    if (known) {
        *ret_timestamp = timestamp;
        return 0;
    }
    struct time_index_entry entry = {0};
    int r = s->index_doubtful ? -BROOK_E_CORRUPT_BATCH
                              : greatest_by_index(s, index_entries, time_entries, end, &entry);
    if (r == -BROOK_E_CORRUPT_BATCH) {
        if (time_entries > 0)
            s->index_doubtful = true;
        entry = (struct time_index_entry){.timestamp = TIMESTAMP_NONE};
        r = walk_greatest(s, end, (struct index_entry){0}, false, &entry);
    }
    if (r != 0)
        return r;
    pthread_mutex_lock(lock);
    s->max_timestamp_known = true;
    s->max_timestamp = entry.timestamp;
    s->max_timestamp_offset = s->base_offset + entry.relative_offset;
    pthread_mutex_unlock(lock);
    *ret_timestamp = entry.timestamp;
    return 0;
}
