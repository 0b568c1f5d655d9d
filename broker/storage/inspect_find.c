/* What is in a partition: at a glance, and by time. From the batches alone. */
#include "broker/storage/inspect_internal.h"

#include "broker/storage/directory.h"
#include "broker/storage/file.h"
#include "broker/storage/header_cursor.h"
#include "proto/base/cleanup.h"
#include "proto/record/record.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define EXPANDED_BYTES_MAX ((size_t)1 << 30)

/* ---- at a glance ------------------------------------------------------------------------------------- */

static int open_segment(const char *directory, int64_t base, char path[PATH_MAX], int64_t *ret_bytes,
                        struct brook_error *error)
{
    struct stat st;
    inspect_segment_path(directory, base, SUFFIX_LOG, path);
    AUTO_CLOSE int fd = io_open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &st) != 0)
        return storage_error(error, "opening %s", path);
    *ret_bytes = st.st_size;
    return TAKE_FD(fd);
}

/* The end of a segment by its headers, and the epoch there. */
static int walk_end(const char *directory, int64_t base, struct inspect_summary *s, struct brook_error *error)
{
    struct header_cursor c;
    struct batch_header h;
    char path[PATH_MAX];
    int64_t bytes, position;
    AUTO_CLOSE int fd = open_segment(directory, base, path, &bytes, error);
    if (fd < 0)
        return fd;
    header_cursor_init(&c, fd, 0, bytes);
    int r;
    while ((r = header_cursor_next(&c, &h, &position)) == 0) {
        s->end_offset = batch_last_offset(&h) + 1;
        s->leader_epoch = h.leader_epoch;
    }
    return r == -BROOK_E_STORAGE_ERROR ? storage_error(error, "reading %s", path) : 0;
}

static int add_sizes(const char *directory, const int64_t *bases, size_t count, struct inspect_summary *s,
                     struct brook_error *error)
{
    for (size_t i = 0; i < count; i++) {
        char path[PATH_MAX];
        struct stat st;
        inspect_segment_path(directory, bases[i], SUFFIX_LOG, path);
        if (stat(path, &st) != 0)
            return storage_error(error, "looking at %s", path);
        s->bytes += st.st_size;
    }
    s->segments = (int64_t)count;
    s->end_offset = bases[count - 1];
    /* An empty last segment says no epoch: the one before it does. */
    int r = count > 1 ? walk_end(directory, bases[count - 2], s, error) : 0;
    if (r == 0 && s->end_offset < bases[count - 1])
        s->end_offset = bases[count - 1];
    return r == 0 ? walk_end(directory, bases[count - 1], s, error) : r;
}

int inspect_summarize(const char *directory, struct inspect_summary *ret_summary, struct brook_error *error)
{
    struct inspect_summary s = {.leader_epoch = -1, .partition = -1};
    AUTO_FREE int64_t *bases = NULL;
    size_t count;
    char path[PATH_MAX];
    int r = inspect_find_segments(directory, &bases, &count, error);
    if (r != 0)
        return r;
    if (!inspect_parse_partition(directory, s.topic, &s.partition))
        s.topic[0] = '\0';
    if ((size_t)snprintf(path, sizeof path, "%s/" PARTITION_METADATA_FILE, directory) < sizeof path)
        s.has_topic_id = partition_metadata_load(path, s.topic_id) == 0;
    if (count == 0)
        return brook_error_set(error, BROOK_E_NOT_FOUND, "%s holds no segment", directory);
    s.start_offset = inspect_start_offset(directory);
    if (s.start_offset < bases[0])
        s.start_offset = bases[0];
    r = add_sizes(directory, bases, count, &s, error);
    if (r == 0)
        *ret_summary = s;
    return r;
}

/* ---- by time ----------------------------------------------------------------------------------------- */

struct search {
    int64_t timestamp;
    int64_t start_offset;
    struct codec *codec;
    struct inspect_record *record;
};

static int search_records(const struct search *q, const struct batch_header *h, const void *data, size_t bytes)
{
    struct record_walker w;
    struct record record;
    int r = record_walker_init(&w, h, data, bytes);
    while (r == 0 && (r = record_walker_next(&w, &record)) == 0)
        if (record.timestamp >= q->timestamp && record.offset >= q->start_offset) {
            q->record->offset = record.offset;
            q->record->timestamp = record.timestamp;
            return 0;
        }
    return r == -BROOK_E_AGAIN ? -BROOK_E_NOT_FOUND : r;
}

static int search_batch(const struct search *q, int fd, const struct batch_header *h, int64_t position)
{
    AUTO_FREE void *batch = malloc(h->total_bytes);
    const void *data;
    size_t bytes;
    if (!batch)
        return -BROOK_E_NOMEM;
    ssize_t n = file_read(fd, batch, h->total_bytes, position);
    int r = n < 0 ? -BROOK_E_STORAGE_ERROR : (size_t)n < h->total_bytes ? -BROOK_E_CORRUPT_BATCH : 0;
    if (r == 0)
        r = batch_check_crc(batch, h);
    if (r == 0)
        r = batch_records(batch, h, q->codec, EXPANDED_BYTES_MAX, &data, &bytes);
    return r == 0 ? search_records(q, h, data, bytes) : r;
}

static int search_segment(const struct search *q, const char *directory, int64_t base, struct brook_error *error)
{
    struct header_cursor c;
    struct batch_header h;
    int64_t bytes, position;
    AUTO_CLOSE int fd = open_segment(directory, base, q->record->segment, &bytes, error);
    if (fd < 0)
        return fd;
    header_cursor_init(&c, fd, 0, bytes);
    int r;
    while ((r = header_cursor_next(&c, &h, &position)) == 0) {
        if (h.max_timestamp < q->timestamp || batch_last_offset(&h) < q->start_offset)
            continue;
        r = search_batch(q, fd, &h, position);
        if (r == -BROOK_E_NOT_FOUND)
            continue;
        return r == 0 ? 0
                      : brook_error_set(error, -r, "%s: at %lld: %s", q->record->segment, (long long)position,
                                        brook_error_text(r));
    }
    if (r != -BROOK_E_AGAIN)
        return brook_error_set(error, -r, "%s: at %lld: %s", q->record->segment, (long long)c.position,
                               brook_error_text(r));
    return -BROOK_E_NOT_FOUND;
}

int inspect_find_time(const char *directory, int64_t timestamp, struct inspect_record *ret_record,
                      struct brook_error *error)
{
    struct search q = {.timestamp = timestamp,
                       .start_offset = inspect_start_offset(directory),
                       .record = ret_record};
    AUTO_FREE int64_t *bases = NULL;
    size_t count;
    int r = inspect_find_segments(directory, &bases, &count, error);
    if (r != 0)
        return r;
    if (codec_new(&q.codec) != 0)
        return brook_error_set(error, BROOK_E_NOMEM, "out of memory");
    r = -BROOK_E_NOT_FOUND;
    for (size_t i = 0; i < count && r == -BROOK_E_NOT_FOUND; i++)
        r = search_segment(&q, directory, bases[i], error);
    codec_free(q.codec);
    return r;
}
