#include "broker/storage/compaction.h"

#include "broker/storage/compaction_pass.h"
#include "broker/storage/header_cursor.h"
#include "broker/storage/retention.h"
#include "broker/storage/segment_index.h"
#include "proto/base/cleanup.h"

#include <stdlib.h>

/* ---- looking at the log ------------------------------------------------------------------------------ */

/* The sealed segments, as far as readers may see them, and what is known of them. Returns 0 or
 * -BROOK_E_NOMEM. */
static int take_sealed(struct compaction_pass *p)
{
    struct log *log = p->log;
    pthread_mutex_lock(&log->lock);
    size_t most = log->segments_count;
    p->segments = calloc(most, sizeof(struct segment *));
    p->plan = calloc(most, sizeof *p->plan);
    for (size_t i = 0; p->segments && p->plan && i + 1 < most && log->segments[i] != log->visible_segment; i++) {
        struct segment *s = log->segments[i];
        p->segments[p->count++] = segment_ref(s);
        p->plan[i] = (struct compaction_segment){.base_offset = s->base_offset,
                                                 .next_base = log->segments[i + 1]->base_offset,
                                                 .bytes = s->bytes,
                                                 .index_entries = s->index_entries};
    }
    p->log_settings = log->settings;
    p->generation = log->generation;
    p->start = log->cleaned_offset;
    pthread_mutex_unlock(&log->lock);
    return p->segments && p->plan ? 0 : -BROOK_E_NOMEM;
}

static void drop_segments(struct compaction_pass *p)
{
    for (size_t i = 0; i < p->count; i++)
        segment_unref(p->segments[i]);
    free(p->segments);
    free(p->plan);
    p->segments = NULL;
    p->plan = NULL;
    p->count = 0;
}

/* Ages, for a minimum lag only: they may have to be read. */
static int date_segments(struct compaction_pass *p, int64_t bound)
{
    if (p->log_settings.min_compaction_lag_ms <= 0)
        return 0;
    for (size_t i = 0; i < p->count && p->plan[i].next_base <= bound; i++) {
        struct retention_segment as = {.appended_ms = p->segments[i]->last_ms};
        int r = segment_index_max_timestamp(p->segments[i], &p->log->lock, &as.max_timestamp);
        if (r != 0)
            return r;
        p->plan[i].stamp = retention_stamp(&as);
        if (p->plan[i].stamp > p->now_ms - p->log_settings.min_compaction_lag_ms)
            break; /* the rest waits behind it */
    }
    return 0;
}

/* Take what may be compacted now. */
static int look(struct compaction_pass *p, int64_t bound)
{
    int r = take_sealed(p);
    if (r == 0)
        r = date_segments(p, bound);
    if (r != 0)
        return r;
    size_t count = compaction_count(p->plan, p->count, bound, p->log_settings.min_compaction_lag_ms, p->now_ms);
    while (p->count > count)
        segment_unref(p->segments[--p->count]);
    p->end = count > 0 ? p->plan[count - 1].next_base : p->start;
    if (count > 0 && p->start < p->plan[0].base_offset)
        p->start = p->plan[0].base_offset;
    return 0;
}

static size_t first_dirty(const struct compaction_pass *p)
{
    size_t i = 0;
    while (i < p->count && p->plan[i].next_base <= p->start)
        i++;
    return i;
}

/* Whether the oldest dirty records have waited for too long. */
static bool is_overdue(const struct compaction_pass *p)
{
    struct header_cursor c;
    struct batch_header h;
    int64_t position, lag = p->log_settings.max_compaction_lag_ms;
    size_t i = first_dirty(p);
    if (i == p->count || lag == INT64_MAX)
        return false;
    struct segment *s = p->segments[i];
    AUTO_UNPIN struct segment *pinned = NULL;
    int fd = segment_pin_scoped(s, &pinned);
    header_cursor_init(&c, fd, 0, s->bytes);
    if (fd < 0 || header_cursor_next(&c, &h, &position) != 0)
        return false;
    struct retention_segment as = {.max_timestamp = h.max_timestamp, .appended_ms = s->last_ms};
    return p->now_ms - retention_stamp(&as) > lag;
}

int log_compaction_need(struct log *log, int64_t bound, int64_t now_ms, struct compaction_need *ret)
{
    struct compaction_pass p = {.log = log, .now_ms = now_ms};
    int r = look(&p, bound);
    if (r == 0) {
        ret->dirt = compaction_measure(p.plan, p.count, p.start);
        ret->ppm = compaction_ppm(&ret->dirt);
        ret->is_due = ret->dirt.dirty_bytes > 0 && (ret->ppm > p.log_settings.min_dirty_ppm || is_overdue(&p));
    }
    drop_segments(&p);
    return r;
}

/* ---- a pass ------------------------------------------------------------------------------------------ */

int compaction_fault(struct compaction_pass *p, const struct segment *s, int r)
{
    const char *what = r == -BROOK_E_NOMEM           ? "out of memory"
                       : r == -BROOK_E_STORAGE_ERROR ? "reading failed"
                                                     : "a bad batch";
    int code = r == -BROOK_E_NOMEM || r == -BROOK_E_STORAGE_ERROR ? -r : BROOK_E_CORRUPT_BATCH;
    return brook_error_set(p->error, code, "compacting %s: %s at byte %lld of segment %lld",
                           directory_path(p->log->directory), what, (long long)p->reader.position,
                           (long long)s->base_offset);
}

/* One walk over the headers: whose header must stay, and how many keys there are at most. */
static int learn(struct compaction_pass *p, uint64_t *ret_keys)
{
    uint64_t keys = 0;
    compaction_keep_clear(&p->keep);
    for (size_t i = 0; i < p->count; i++) {
        struct header_cursor c;
        struct batch_header h;
        int64_t position;
        struct segment *s = p->segments[i];
        AUTO_UNPIN struct segment *pinned = NULL;
        int r, fd = segment_pin_scoped(s, &pinned);
        if (fd < 0)
            return compaction_fault(p, s, -BROOK_E_STORAGE_ERROR);
        header_cursor_init(&c, fd, 0, s->bytes);
        while ((r = header_cursor_next(&c, &h, &position)) == 0) {
            if (compaction_keep_learn(&p->keep, &h) != 0)
                return -BROOK_E_NOMEM;
            if (batch_last_offset(&h) >= p->start && batch_is_compacted(&h))
                keys += (uint64_t)h.records_count;
        }
        p->reader.position = c.position;
        if (r != -BROOK_E_AGAIN)
            return compaction_fault(p, s, r);
        if (!p->settings->go_on(p->settings->arg, 0))
            return -BROOK_E_CLOSED;
    }
    *ret_keys = keys;
    return 0;
}

int compaction_next(struct compaction_pass *p, size_t place, int64_t *next, struct batch_header *ret_header,
                    const uint8_t **ret_data)
{
    int64_t position;
    int r = batch_reader_next(&p->reader, ret_header, ret_data, &position);
    if (r != 0)
        return r;
    if (ret_header->base_offset < *next || batch_last_offset(ret_header) >= p->plan[place].next_base)
        return -BROOK_E_CORRUPT_BATCH;
    *next = batch_last_offset(ret_header) + 1;
    return 0;
}

/* The keys of a segment; *ret_full: the map has no room for more, and ends where it says. */
static int map_segment(struct compaction_pass *p, size_t place, bool *ret_full)
{
    struct batch_header h;
    const uint8_t *data;
    struct segment *s = p->segments[place];
    int64_t end = s->base_offset;
    AUTO_UNPIN struct segment *pinned = NULL;
    int r, fd = segment_pin_scoped(s, &pinned);
    if (fd < 0)
        return compaction_fault(p, s, -BROOK_E_STORAGE_ERROR);
    batch_reader_start(&p->reader, fd, 0, s->bytes);
    while ((r = compaction_next(p, place, &end, &h, &data)) == 0) {
        if (!p->settings->go_on(p->settings->arg, h.total_bytes))
            return -BROOK_E_CLOSED;
        if (end <= p->start)
            continue;
        r = batch_put_keys(p->compactor, data, &h, p->map, p->start, INT64_MAX, p->settings->expanded_bytes_max,
                           &p->map_end);
        if (r != 0)
            return r;
        *ret_full = p->map_end < end;
        if (*ret_full)
            return 0;
    }
    return r == -BROOK_E_AGAIN ? 0 : compaction_fault(p, s, r);
}

static int build_map(struct compaction_pass *p, uint64_t keys)
{
    bool is_full = false;
    int r = key_map_new(p->settings->map_bytes_max, keys, &p->map);
    for (size_t i = first_dirty(p); r == 0 && !is_full && i < p->count; i++) {
        r = map_segment(p, i, &is_full);
        if (r == 0 && !is_full)
            p->map_end = p->plan[i].next_base;
    }
    if (r != 0)
        return r;
    if (key_map_count(p->map) > p->result->keys)
        p->result->keys = key_map_count(p->map);
    if (key_map_bytes(p->map) > p->result->map_bytes)
        p->result->map_bytes = key_map_bytes(p->map);
    return 0;
}

/* From the first segment on, group by group, so that what a tombstone replaces is always gone before it. */
static int write_groups(struct compaction_pass *p)
{
    uint32_t entries_max = (uint32_t)p->log_settings.segment_index_bytes / INDEX_ENTRY_BYTES;
    for (size_t i = 0, n; i < p->count && p->plan[i].base_offset < p->map_end; i += n) {
        n = compaction_group(p->plan + i, p->count - i, p->log_settings.segment_bytes, entries_max);
        int r = compaction_write_group(p, i, n);
        if (r != 0)
            return r;
    }
    return 0;
}

/* Unless the log was cut below it meanwhile. */
static int note_cleaned(struct compaction_pass *p)
{
    struct log *log = p->log;
    pthread_mutex_lock(&log->lock);
    bool is_cut = log->generation != p->generation;
    if (!is_cut)
        log->cleaned_offset = p->map_end;
    pthread_mutex_unlock(&log->lock);
    if (is_cut)
        return -BROOK_E_AGAIN;
    p->result->cleaned_offset = p->map_end;
    return 0;
}

/* *ret_done: nothing is dirty any more. */
static int run_pass(struct compaction_pass *p, int64_t bound, bool *ret_done)
{
    uint64_t keys = 0;
    int r = look(p, bound);
    *ret_done = r == 0 && p->start >= p->end;
    if (r != 0 || *ret_done)
        return r;
    p->map_end = p->start;
    r = learn(p, &keys);
    if (r == 0)
        r = build_map(p, keys);
    if (r == 0)
        r = write_groups(p);
    if (r == 0)
        r = note_cleaned(p);
    *ret_done = r == 0 && p->map_end >= p->end;
    p->result->passes++;
    return r;
}

int log_compact(struct log *log, int64_t bound, int64_t now_ms, const struct compaction_settings *settings,
                struct compaction_result *ret_result, struct brook_error *error)
{
    struct brook_error ignored;
    struct compaction_pass p = {.log = log,
                                .settings = settings,
                                .result = ret_result,
                                .error = error ? error : &ignored,
                                .now_ms = now_ms};
    *p.error = (struct brook_error){0};
    *ret_result = (struct compaction_result){.cleaned_offset = log_cleaned_offset(log)};
    bool is_done = false;
    int r = log_check_online(log, p.error);
    if (r == 0)
        r = batch_compactor_new(&p.compactor);
    while (r == 0 && !is_done) {
        r = run_pass(&p, bound, &is_done);
        key_map_free(TAKE(p.map));
        drop_segments(&p);
    }
    batch_compactor_free(p.compactor);
    batch_reader_done(&p.reader);
    compaction_keep_done(&p.keep);
    return r;
}
