#include "broker/storage/indexer.h"

#include "broker/storage/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

void indexer_start(struct indexer *ix, struct segment *segment, int64_t bytes_since_entry, int64_t last_time)
{
    ix->segment = segment;
    ix->bytes_since_entry = bytes_since_entry;
    ix->last_time = last_time;
    if (ix->pending) {
        ix->pending->index_count = 0;
        ix->pending->time_count = 0;
    }
}

void indexer_done(struct indexer *ix)
{
    free(ix->pending);
    ix->pending = NULL;
}

static bool have_pending(struct indexer *ix)
{
    if (!ix->pending)
        ix->pending = calloc(1, sizeof *ix->pending);
    return ix->pending != NULL;
}

/* The time index says nothing new while the greatest timestamp stays what it was. */
static void add_time(struct indexer *ix)
{
    struct segment *s = ix->segment;
    if (s->max_timestamp <= ix->last_time || !have_pending(ix) ||
        ix->pending->time_count == INDEXER_PENDING_MAX)
        return;
    ix->pending->time[ix->pending->time_count++] = (struct time_index_entry){
        .timestamp = s->max_timestamp,
        .relative_offset = (int32_t)(s->max_timestamp_offset - s->base_offset),
    };
    ix->last_time = s->max_timestamp;
}

static void add(struct indexer *ix, int64_t last_offset, int64_t position)
{
    if (have_pending(ix) && ix->pending->index_count < INDEXER_PENDING_MAX)
        ix->pending->index[ix->pending->index_count++] = (struct index_entry){
            .relative_offset = (int32_t)(last_offset - ix->segment->base_offset),
            .position = (int32_t)position,
        };
    add_time(ix);
}

void indexer_note(struct indexer *ix, const struct batch_header *header, int64_t position, int32_t interval)
{
    int64_t last_offset = batch_last_offset(header);
    if (header->max_timestamp > ix->segment->max_timestamp) {
        ix->segment->max_timestamp = header->max_timestamp;
        ix->segment->max_timestamp_offset = last_offset;
    }
    if (ix->bytes_since_entry > interval) {
        add(ix, last_offset, position);
        ix->bytes_since_entry = 0;
    }
    ix->bytes_since_entry += (int64_t)header->total_bytes;
}

bool indexer_is_full(const struct indexer *ix, size_t more)
{
    return ix->pending && ix->pending->index_count + more > INDEXER_PENDING_MAX;
}

uint32_t indexer_index_entries(const struct indexer *ix)
{
    return ix->segment->index_entries + (ix->pending ? ix->pending->index_count : 0);
}

uint32_t indexer_time_entries(const struct indexer *ix)
{
    return ix->segment->time_entries + (ix->pending ? ix->pending->time_count : 0);
}

bool indexer_find(const struct indexer *ix, int64_t relative_offset, struct index_entry *ret_entry)
{
    uint32_t low = 0, high = ix->pending ? ix->pending->index_count : 0;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (ix->pending->index[middle].relative_offset <= relative_offset)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return false;
    *ret_entry = ix->pending->index[low - 1];
    return true;
}

bool indexer_find_time(const struct indexer *ix, int64_t timestamp, struct time_index_entry *ret_entry)
{
    uint32_t low = 0, high = ix->pending ? ix->pending->time_count : 0;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (ix->pending->time[middle].timestamp < timestamp)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return false;
    *ret_entry = ix->pending->time[low - 1];
    return true;
}

static int write_file(const struct segment *s, const char *suffix, const void *data, size_t bytes,
                      off_t position, bool cut)
{
    int fd = segment_open_index(s, suffix, O_WRONLY | O_CREAT);
    if (fd < 0)
        return -1;
    int r = file_write(fd, data, bytes, position);
    if (r == 0 && cut)
        r = io_truncate(fd, position + (off_t)bytes);
    int saved = errno;
    io_close(fd);
    errno = saved;
    return r;
}

static int write_pending(const struct indexer *ix, bool cut)
{
    uint8_t block[INDEXER_PENDING_MAX * TIME_INDEX_ENTRY_BYTES];
    const struct segment *s = ix->segment;
    uint32_t count = ix->pending ? ix->pending->index_count : 0;
    for (uint32_t i = 0; i < count; i++)
        index_entry_encode(&ix->pending->index[i], block + i * INDEX_ENTRY_BYTES);
    if (write_file(s, SUFFIX_INDEX, block, count * INDEX_ENTRY_BYTES,
                   (off_t)s->index_entries * INDEX_ENTRY_BYTES, cut) != 0)
        return -1;
    count = ix->pending ? ix->pending->time_count : 0;
    for (uint32_t i = 0; i < count; i++)
        time_index_entry_encode(&ix->pending->time[i], block + i * TIME_INDEX_ENTRY_BYTES);
    return write_file(s, SUFFIX_TIME_INDEX, block, count * TIME_INDEX_ENTRY_BYTES,
                      (off_t)s->time_entries * TIME_INDEX_ENTRY_BYTES, cut);
}

static int write_and_publish(struct indexer *ix, bool cut, pthread_mutex_t *lock)
{
    if (write_pending(ix, cut) != 0)
        return -1;
    if (!ix->pending)
        return 0;
    pthread_mutex_lock(lock);
    ix->segment->index_entries += ix->pending->index_count;
    ix->segment->time_entries += ix->pending->time_count;
    ix->pending->index_count = 0;
    ix->pending->time_count = 0;
    pthread_mutex_unlock(lock);
    return 0;
}

int indexer_flush(struct indexer *ix, pthread_mutex_t *lock)
{
    if (!ix->pending || (ix->pending->index_count == 0 && ix->pending->time_count == 0))
        return 0;
    return write_and_publish(ix, false, lock);
}

int indexer_finish(struct indexer *ix, pthread_mutex_t *lock)
{
    pthread_mutex_lock(lock);
    add_time(ix);
    pthread_mutex_unlock(lock);
    return write_and_publish(ix, true, lock);
}

/* Entries of a file below a relative offset: how many of the first `count` stay. */
static int count_below(const struct segment *s, const char *suffix,
                       int (*search)(int fd, uint32_t count, int64_t relative_end), uint32_t count,
                       uint32_t *ret_count, int64_t relative_end)
{
    if (count == 0)
        return 0;
    int fd = segment_open_index(s, suffix, O_RDONLY);
    if (fd < 0)
        return -1;
    int kept = search(fd, count, relative_end);
    int saved = errno;
    io_close(fd);
    errno = saved;
    if (kept < 0)
        return -1;
    *ret_count = (uint32_t)kept;
    return 0;
}

int indexer_cut(struct indexer *ix, int64_t end_offset, pthread_mutex_t *lock)
{
    struct segment *s = ix->segment;
    int64_t relative_end = end_offset - s->base_offset;
    uint32_t index_entries = s->index_entries, time_entries = s->time_entries;
    int r = 0;
    if (count_below(s, SUFFIX_INDEX, index_count_below, index_entries, &index_entries, relative_end) != 0 ||
        count_below(s, SUFFIX_TIME_INDEX, time_index_count_below, time_entries, &time_entries,
                    relative_end) != 0)
        r = -1;

    pthread_mutex_lock(lock);
    struct indexer_pending *p = ix->pending;
    while (p && p->index_count > 0 && p->index[p->index_count - 1].relative_offset >= relative_end)
        p->index_count--;
    while (p && p->time_count > 0 && p->time[p->time_count - 1].relative_offset >= relative_end)
        p->time_count--;
    s->index_entries = r == 0 ? index_entries : 0;
    s->time_entries = r == 0 ? time_entries : 0;
    pthread_mutex_unlock(lock);
    return r;
}

int indexer_reset(struct indexer *ix, struct segment *segment)
{
    static const char *const both[] = {SUFFIX_INDEX, SUFFIX_TIME_INDEX};
    for (size_t i = 0; i < 2; i++) {
        char path[PATH_MAX];
        directory_segment_path(segment->directory, segment->base_offset, both[i], path);
        if (io_unlink(path) != 0 && errno != ENOENT)
            return -1;
    }
    segment->index_entries = 0;
    segment->time_entries = 0;
    segment->index_doubtful = false;
    segment->max_timestamp = TIMESTAMP_NONE;
    segment->max_timestamp_offset = segment->base_offset;
    indexer_start(ix, segment, 0, TIMESTAMP_NONE);
    return 0;
}
