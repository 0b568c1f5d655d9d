/* A group of segments becomes one: written beside them, synced, swapped. */
#include "broker/storage/compaction_pass.h"
#include "broker/storage/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define BUFFER_BYTES ((size_t)1 << 20)

/* The segment being made. */
struct output {
    struct segment *segment;
    int fd; /* the segment's, pinned: it is written and synced before anybody else may close it */
    struct indexer indexer;
    pthread_mutex_t lock; /* that the indexer asks for; nobody else knows the segment */
    int32_t interval;
    uint8_t *buffer;
    size_t used;
    bool is_changed; /* it differs from what it was made of */
};

static const char *const suffixes[] = {SUFFIX_LOG, SUFFIX_INDEX, SUFFIX_TIME_INDEX};

static void unlink_cleaned(struct directory *d, int64_t base)
{
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        char path[PATH_MAX], name[32] = "";
        strcat(strcat(name, suffixes[i]), SUFFIX_CLEANED);
        directory_segment_path(d, base, name, path);
        io_unlink(path); /* what stays is swept when the log is opened again */
    }
}

static int output_open(struct compaction_pass *p, int64_t base, struct output *ret)
{
    struct directory *d = p->log->directory;
    struct output o = {.interval = p->log_settings.index_interval_bytes, .buffer = malloc(BUFFER_BYTES)};
    if (!o.buffer || segment_new(d, base, &o.segment) != 0) {
        free(o.buffer);
        return -BROOK_E_NOMEM;
    }
    o.segment->aside = SUFFIX_CLEANED;
    unlink_cleaned(d, base);
    if (segment_create_file(o.segment) != 0 || (o.fd = segment_pin(o.segment)) < 0) {
        int r = storage_error(p->error, "compacting %s: creating a segment", directory_path(d));
        segment_unref(o.segment);
        free(o.buffer);
        return r;
    }
    pthread_mutex_init(&o.lock, NULL);
    indexer_start(&o.indexer, o.segment, 0, TIMESTAMP_NONE);
    *ret = o;
    return 0;
}

static void output_close(struct output *o)
{
    indexer_done(&o->indexer);
    pthread_mutex_destroy(&o->lock);
    free(o->buffer);
    segment_unpin(o->segment);
    segment_unref(o->segment);
}

static int output_flush(struct output *o)
{
    int64_t position = o->segment->bytes - (int64_t)o->used;
    if (file_write(o->fd, o->buffer, o->used, position) != 0)
        return -1;
    o->used = 0;
    return 0;
}

/* Returns 0, or -1 and errno. */
static int output_put(struct output *o, const void *data, const struct batch_header *h)
{
    struct segment *s = o->segment;
    if (o->used + h->total_bytes > BUFFER_BYTES && output_flush(o) != 0)
        return -1;
    if (indexer_is_full(&o->indexer, 1))
        indexer_flush(&o->indexer, &o->lock); /* a failure leaves the index sparser */
    indexer_note(&o->indexer, h, s->bytes, o->interval);
    if (h->total_bytes > BUFFER_BYTES) {
        if (file_write(o->fd, data, h->total_bytes, s->bytes) != 0)
            return -1;
    } else {
        memcpy(o->buffer + o->used, data, h->total_bytes);
        o->used += h->total_bytes;
    }
    s->bytes += (int64_t)h->total_bytes;
    return 0;
}

/* ---- one batch --------------------------------------------------------------------------------------- */

struct choice {
    const void *data;
    struct batch_header header;
    bool is_kept;
    bool is_changed;
    uint8_t empty[BATCH_HEADER_BYTES];
};

static int choose(struct compaction_pass *p, const void *data, const struct batch_header *h, bool is_last,
                  struct choice *ret)
{
    struct batch_compact_rule rule = {.map = p->map,
                                      .map_end = p->map_end,
                                      .now_ms = p->now_ms,
                                      .delete_retention_ms = p->log_settings.delete_retention_ms,
                                      .expanded_bytes_max = p->settings->expanded_bytes_max};
    enum batch_verdict verdict;
    int64_t removed;
    ret->data = data;
    ret->header = *h;
    bool keeps_header = compaction_keep_header(&p->keep, h, p->now_ms) || is_last;
    int r = batch_compact(p->compactor, data, h, &rule, &verdict, &ret->data, &ret->header, &removed);
    ret->is_kept = verdict != BATCH_VANISHES || keeps_header;
    ret->is_changed = verdict == BATCH_SHRINKS || !ret->is_kept || removed > 0;
    if (verdict == BATCH_VANISHES && keeps_header) {
        batch_write_empty(h, ret->empty, &ret->header);
        ret->data = ret->empty;
    }
    p->result->records_removed += removed;
    return r;
}

/* Compressing what is left of a batch may make it larger than it was: where that has no room it stays whole. */
static int fit(const struct output *o, const void *data, const struct batch_header *h, struct choice *c)
{
    int64_t room = SEGMENT_RELATIVE_MAX - o->segment->bytes;
    if ((int64_t)c->header.total_bytes <= room)
        return 0;
    c->data = data;
    c->header = *h;
    return (int64_t)h->total_bytes <= room ? 0 : -BROOK_E_TOO_MANY;
}

static int take_batch(struct compaction_pass *p, struct output *o, const void *data,
                      const struct batch_header *h, bool is_last)
{
    struct choice c;
    int r = choose(p, data, h, is_last, &c);
    o->is_changed = o->is_changed || (r == 0 && c.is_changed);
    if (r != 0 || !c.is_kept)
        return r;
    r = fit(o, data, h, &c);
    if (r != 0)
        return brook_error_set(p->error, BROOK_E_STORAGE_ERROR, "compacting %s: a segment has no room",
                               directory_path(p->log->directory));
    if (output_put(o, c.data, &c.header) != 0)
        return storage_error(p->error, "compacting %s: writing a segment",
                             directory_path(p->log->directory));
    return p->settings->go_on(p->settings->arg, c.header.total_bytes) ? 0 : -BROOK_E_CLOSED;
}

static int copy_segment(struct compaction_pass *p, struct output *o, size_t place, bool is_last_segment)
{
    struct batch_header h;
    const uint8_t *data;
    struct segment *s = p->segments[place];
    int64_t next = s->base_offset;
    AUTO_UNPIN struct segment *pinned = NULL;
    int fd = segment_pin_scoped(s, &pinned);
    if (fd < 0)
        return compaction_fault(p, s, -BROOK_E_STORAGE_ERROR);
    batch_reader_start(&p->reader, fd, 0, s->bytes);
    int r;
    while ((r = compaction_next(p, place, &next, &h, &data)) == 0) {
        if (!p->settings->go_on(p->settings->arg, h.total_bytes))
            return -BROOK_E_CLOSED;
        r = take_batch(p, o, data, &h, is_last_segment && p->reader.position == p->reader.end);
        if (r != 0)
            return r;
    }
    return r == -BROOK_E_AGAIN ? 0 : compaction_fault(p, s, r);
}

/* ---- the group --------------------------------------------------------------------------------------- */

/* All on stable storage; the file's time is the newest old one's, since after a restart ages are told by it. */
static int complete(struct compaction_pass *p, struct output *o, const struct segment *first,
                    const struct segment *last)
{
    struct segment *s = o->segment;
    if (output_flush(o) != 0 || io_datasync(o->fd) != 0)
        return storage_error(p->error, "compacting %s: writing a segment",
                             directory_path(p->log->directory));
    if (indexer_finish(&o->indexer, &o->lock) != 0) {
        s->index_entries = 0;
        s->time_entries = 0;
        s->index_doubtful = true;
    }
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
                                {.tv_sec = last->last_ms / 1000, .tv_nsec = last->last_ms % 1000 * 1000000}};
    futimens(o->fd, times);
    s->max_timestamp_known = true;
    s->first_ms = first->first_ms;
    s->last_ms = last->last_ms;
    return 0;
}

struct swap {
    struct compaction_pass *pass;
    size_t place;
    size_t count;
    struct segment *made;
    int result;
};

static void swap_in(void *arg)
{
    struct swap *swap = arg;
    struct compaction_pass *p = swap->pass;
    swap->result = log_replace(p->log, p->segments + swap->place, swap->count, p->generation, swap->made,
                               p->error);
}

static int finish_group(struct compaction_pass *p, struct output *o, size_t place, size_t count)
{
    struct swap swap = {.pass = p, .place = place, .count = count, .made = o->segment};
    int r = complete(p, o, p->segments[place], p->segments[place + count - 1]);
    if (r != 0)
        return r;
    p->settings->exclusively(p->settings->arg, swap_in, &swap);
    return swap.result;
}

static void count_result(struct compaction_pass *p, size_t place, size_t count, int64_t bytes_after)
{
    for (size_t i = place; i < place + count; i++)
        p->result->bytes_before += p->segments[i]->bytes;
    p->result->bytes_after += bytes_after;
    p->result->segments_before += (int32_t)count;
    p->result->segments_after++;
}

/* Whether anything of the segment would go, or change: read, and nothing written. It may stop at the first such batch. */
static int look_at_segment(struct compaction_pass *p, size_t place, bool *ret_changes)
{
    struct batch_header h;
    const uint8_t *data;
    struct segment *s = p->segments[place];
    int64_t next = s->base_offset;
    AUTO_UNPIN struct segment *pinned = NULL;
    int r, fd = segment_pin_scoped(s, &pinned);
    *ret_changes = false;
    if (fd < 0)
        return compaction_fault(p, s, -BROOK_E_STORAGE_ERROR);
    batch_reader_start(&p->reader, fd, 0, s->bytes);
    while ((r = compaction_next(p, place, &next, &h, &data)) == 0) {
        struct choice c;
        if (!p->settings->go_on(p->settings->arg, h.total_bytes))
            return -BROOK_E_CLOSED;
        r = choose(p, data, &h, p->reader.position == p->reader.end, &c);
        *ret_changes = r == 0 && c.is_changed;
        if (r != 0 || *ret_changes)
            return r;
    }
    return r == -BROOK_E_AGAIN ? 0 : compaction_fault(p, s, r);
}

/* A single segment of which nothing goes, as most of the clean part are, costs no write. *ret_stays: that is so. */
static int leave_alone(struct compaction_pass *p, size_t place, bool *ret_stays)
{
    bool changes;
    int32_t epoch_before = p->keep.epoch_seen;
    int64_t removed_before = p->result->records_removed;
    int r = look_at_segment(p, place, &changes);
    *ret_stays = r == 0 && !changes;
    if (*ret_stays) {
        count_result(p, place, 1, p->segments[place]->bytes);
        p->result->segments_left++;
        return 0;
    }
    p->keep.epoch_seen = epoch_before; /* it is walked once more */
    p->result->records_removed = removed_before;
    return r;
}

int compaction_write_group(struct compaction_pass *p, size_t place, size_t count)
{
    struct output o = {0};
    int64_t base = p->segments[place]->base_offset;
    bool stays = false;
    int r = count == 1 ? leave_alone(p, place, &stays) : 0;
    if (r != 0 || stays)
        return r;
    r = output_open(p, base, &o);
    for (size_t i = 0; r == 0 && i < count; i++)
        r = copy_segment(p, &o, place + i, i + 1 == count);
    if (!o.segment)
        return r;
    bool is_needed = r == 0 && (count > 1 || o.is_changed);
    if (is_needed)
        r = finish_group(p, &o, place, count);
    if (!is_needed || r != 0)
        unlink_cleaned(p->log->directory, base);
    if (r == 0)
        count_result(p, place, count, o.segment->bytes);
    output_close(&o);
    return r;
}
