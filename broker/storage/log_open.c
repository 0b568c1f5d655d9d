#include "broker/storage/file.h"
#include "broker/storage/header_cursor.h"
#include "broker/storage/log_files.h"
#include "broker/storage/log_state.h"
#include "broker/storage/recovery.h"
#include "broker/storage/retention.h"
#include "broker/storage/segment_index.h"
#include "proto/base/cleanup.h"
#include "proto/record/big_endian.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* What the opening of one log goes by. */
struct opening {
    struct log *log;
    struct log_hint hint;
    struct log_recovery recovery;
    struct brook_error *error;
    int64_t durable_below; /* the recovery point as it was given: what is bad below it was whole once */
    int64_t scanned_from;  /* base offset of the first segment that was scanned; -1: none was */
    size_t whole_place;    /* of the last segment that was scanned and found whole, and where it ends */
    int64_t whole_end;
    bool epochs_known;     /* from their file; else every header tells */
    bool is_new;           /* the directory was made just now */
};

static int64_t next_base(const struct log *log, size_t place)
{
    return place + 1 < log->segments_count ? log->segments[place + 1]->base_offset : INT64_MAX;
}

static int fail(struct opening *o, const char *what)
{
    return storage_error(o->error, "%s %s", what, directory_path(o->log->directory));
}

/* ---- finding the segments ---------------------------------------------------------------------------- */

static int stat_segment(struct segment *s)
{
    char path[PATH_MAX];
    struct stat st;
    directory_segment_path(s->directory, s->base_offset, SUFFIX_LOG, path);
    if (stat(path, &st) != 0)
        return -1;
    if (st.st_size > SEGMENT_RELATIVE_MAX) {
        errno = EFBIG;
        return -1;
    }
    s->bytes = st.st_size;
    s->last_ms = (int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000;
    return 0;
}

static int add_found(struct opening *o, int64_t base)
{
    struct segment *s;
    if (segment_new(o->log->directory, base, &s) != 0)
        return brook_error_set(o->error, BROOK_E_STORAGE_ERROR, "out of memory");
    if (stat_segment(s) != 0) {
        segment_unref(s);
        return fail(o, "looking at a segment of");
    }
    if (log_add_segment(o->log, s) != 0) {
        segment_unref(s);
        return brook_error_set(o->error, BROOK_E_STORAGE_ERROR, "out of memory");
    }
    return 0;
}

/* What a crash in the middle of a roll left behind holds nothing. */
static void drop_segment(struct log *log, size_t place)
{
    segment_discard(log->segments[place]);
    segment_unref(log->segments[place]);
    log->segments_count--;
    memmove(&log->segments[place], &log->segments[place + 1], (log->segments_count - place) * sizeof log->segments[0]);
}

/* The segments behind `place` go, the newest first. */
static int drop_behind(struct opening *o, size_t place)
{
    struct log *log = o->log;
    while (log->segments_count > place + 1) {
        struct segment *s = log_active(log);
        o->recovery.bytes_cut += s->bytes;
        if (segment_discard(s) != 0)
            return fail(o, "cutting");
        log->segments_count--;
        segment_unref(s);
    }
    return 0;
}

/* Only the last may be empty. Names outlive what was written to their files: where the power went, an empty segment
 * had records that were never synced, and so were none behind it. Going on behind would leave a hole that nobody can
 * see, since offsets may be missing. */
static int settle_empty(struct opening *o)
{
    struct log *log = o->log;
    int64_t known = o->hint.recovery_point > o->hint.start_offset ? o->hint.recovery_point : o->hint.start_offset;
    for (size_t i = 0; i + 1 < log->segments_count;) {
        if (log->segments[i]->bytes > 0)
            i++;
        else if (o->hint.clean || log->segments[i + 1]->base_offset <= known)
            drop_segment(log, i);
        else
            return drop_behind(o, i);
    }
    return 0;
}

/* No segment at all: the next offset must not go back behind what is known to have been there. */
static int add_first(struct opening *o)
{
    int64_t base = 0;
    if (o->hint.start_offset > base)
        base = o->hint.start_offset;
    if (o->hint.recovery_point > base)
        base = o->hint.recovery_point;
    struct segment *s;
    int r = segment_create(o->log->directory, base, &s, o->error);
    if (r != 0)
        return r == -BROOK_E_STORAGE_FULL ? r : -BROOK_E_STORAGE_ERROR;
    if (log_add_segment(o->log, s) != 0) {
        segment_unref(s);
        return brook_error_set(o->error, BROOK_E_STORAGE_ERROR, "out of memory");
    }
    /* Where it goes on was told by a checkpoint, so it had records, and its name tells it from now on. */
    if (base > 0 && log_sync_names(o->log->directory, true) != 0)
        return fail(o, "syncing");
    return 0;
}

static int find_segments(struct opening *o)
{
    struct log_files files;
    int r = log_files_find(o->log->directory, &files, o->error);
    if (r != 0)
        return r == -BROOK_E_STORAGE_FULL || r == -BROOK_E_CORRUPT_BATCH ? r : -BROOK_E_STORAGE_ERROR;
    AUTO_FREE int64_t *bases = files.bases;
    size_t count = files.bases_count;
    o->log->producers.snapshots = files.snapshots;
    o->log->producers.snapshots_count = files.snapshots_count;
    for (size_t i = 0; i < count && r == 0; i++)
        r = add_found(o, bases[i]);
    if (r == 0)
        r = settle_empty(o);
    return r == 0 && count == 0 ? add_first(o) : r;
}

/* A log must open on a full disk: without indexes it is slow, not wrong. */
static void rebuild_index(struct opening *o, struct segment *s)
{
    o->recovery.indexes_rebuilt++;
    if (segment_index_rebuild(s, o->log->settings.index_interval_bytes, &o->log->lock) != 0)
        segment_index_forget(s);
}

/* ---- segments that need no scan ----------------------------------------------------------------------- */

static int refuse_old_format(struct opening *o)
{
    return brook_error_set(o->error, BROOK_E_UNSUPPORTED_FORMAT, "%s holds messages older than format v2",
                           directory_path(o->log->directory));
}

/* Whether a segment begins with a message of a format before v2: to that no index can be made. */
static bool begins_old(struct segment *s)
{
    struct header_cursor c;
    struct batch_header h;
    int64_t position;
    AUTO_UNPIN struct segment *pinned = NULL;
    int fd = segment_pin_scoped(s, &pinned);
    header_cursor_init(&c, fd, 0, s->bytes);
    return fd >= 0 && header_cursor_next(&c, &h, &position) == -BROOK_E_UNSUPPORTED_FORMAT;
}

static int check_indexes(struct opening *o, size_t place)
{
    struct segment *s = o->log->segments[place];
    if (s->bytes == 0) /* what an index may hold of it is overwritten, and cut when the segment is sealed */
        return 0;
    int r = 0;
    if (!segment_index_check(s, next_base(o->log, place), o->log->settings.index_interval_bytes)) {
        if (begins_old(s))
            r = refuse_old_format(o);
        else
            rebuild_index(o, s);
    }
    segment_rest(s);
    return r;
}

/* The active segment after a clean stop. -BROOK_E_CORRUPT_BATCH: it was not so clean. */
static int resume(struct opening *o)
{
    int64_t next;
    int r = log_resume(o->log, &next);
    if (r == -BROOK_E_CORRUPT_BATCH) {
        rebuild_index(o, log_active(o->log));
        r = log_resume(o->log, &next);
    }
    if (r == 0)
        o->log->next_offset = next;
    else if (r == -BROOK_E_STORAGE_ERROR)
        fail(o, "reading");
    return r;
}

/* ---- segments that do -------------------------------------------------------------------------------- */

struct rebuild {
    struct opening *opening;
    struct indexer indexer;
};

static void take_up(void *arg, const struct batch_header *h, int64_t position)
{
    struct rebuild *b = arg;
    struct log *log = b->opening->log;
    if (indexer_is_full(&b->indexer, 1))
        indexer_flush(&b->indexer, &log->lock);
    indexer_note(&b->indexer, h, position, log->settings.index_interval_bytes);
    epochs_assign(&log->epochs, h->leader_epoch, h->base_offset);
}

static int scan_segment(struct opening *o, size_t place, struct recovery_scan *ret_scan)
{
    struct segment *s = o->log->segments[place];
    struct rebuild b = {.opening = o};
    AUTO_UNPIN struct segment *pinned = NULL;
    struct recovery_scan scan = {.fd = segment_pin_scoped(s, &pinned),
                                 .base_offset = s->base_offset,
                                 .bytes = s->bytes,
                                 .trusted_below = o->hint.recovery_point,
                                 .counter = o->hint.bytes_scanned,
                                 .seen = take_up,
                                 .arg = &b};
    if (scan.fd < 0 || indexer_reset(&b.indexer, s) != 0)
        return fail(o, "opening a segment of");
    int r = recovery_scan(&scan);
    if (indexer_finish(&b.indexer, &o->log->lock) != 0)
        segment_index_forget(s);
    s->max_timestamp_known = r == 0;
    indexer_done(&b.indexer);
    o->recovery.scanned = true;
    if (o->scanned_from < 0 || s->base_offset < o->scanned_from)
        o->scanned_from = s->base_offset;
    o->recovery.indexes_rebuilt++;
    o->recovery.bytes_scanned += scan.bytes_scanned;
    *ret_scan = scan;
    if (r == -BROOK_E_UNSUPPORTED_FORMAT)
        return refuse_old_format(o);
    if (r == -BROOK_E_NOMEM || (r == -BROOK_E_STORAGE_ERROR && o->error && o->error->code == 0))
        return brook_error_set(o->error, BROOK_E_STORAGE_ERROR, "reading a segment of %s",
                               directory_path(o->log->directory));
    return r;
}

/* A torn tail is what was never synced. What names an offset below the recovery point was, and is rotten. */
static bool is_rot(const struct opening *o, const struct recovery_scan *scan)
{
    uint8_t base[8];
    /* A log that begins inside its first batch had nothing below its start to sync. */
    if (scan->verdict != RECOVERY_TORN || scan->next_offset >= o->durable_below ||
        o->durable_below <= o->hint.start_offset ||
        file_read(scan->fd, base, sizeof base, scan->valid_bytes) != (ssize_t)sizeof base)
        return false;
    int64_t offset = (int64_t)be64_read(base);
    return offset >= scan->next_offset && offset < o->durable_below;
}

static int report_rot(struct opening *o, size_t place, const struct recovery_scan *scan)
{
    return brook_error_set(o->error, BROOK_E_CORRUPT_BATCH,
                           "%s: a bad batch at byte %lld of segment %lld, offset %lld, was on stable storage up to offset "
                           "%lld; nothing was cut",
                           directory_path(o->log->directory), (long long)scan->valid_bytes,
                           (long long)o->log->segments[place]->base_offset, (long long)scan->next_offset,
                           (long long)o->durable_below);
}

static int report_damage(struct opening *o, size_t place, const struct recovery_scan *scan)
{
    return brook_error_set(
        o->error, BROOK_E_CORRUPT_BATCH,
        "%s: a bad batch at byte %lld of segment %lld has valid ones behind it; nothing was cut",
        directory_path(o->log->directory), (long long)scan->valid_bytes,
        (long long)o->log->segments[place]->base_offset);
}

/* Whether a later segment begins with a valid batch: then what is torn here is not the log's end. */
static int any_valid_behind(struct opening *o, size_t place, bool *ret_any)
{
    for (size_t i = place + 1; i < o->log->segments_count; i++) {
        struct segment *s = o->log->segments[i];
        struct recovery_scan scan;
        int r = s->bytes > 0 ? scan_segment(o, i, &scan) : 1;
        if (r < 0)
            return r;
        if (r == 0 && (scan.valid_bytes > 0 || scan.verdict == RECOVERY_DAMAGED)) {
            *ret_any = true;
            return 0;
        }
    }
    return 0;
}

/* The log ends inside segment `place`. */
static int cut_torn(struct opening *o, size_t place, const struct recovery_scan *scan)
{
    struct segment *s = o->log->segments[place];
    int r = drop_behind(o, place);
    if (r != 0)
        return r;
    o->recovery.bytes_cut += s->bytes - scan->valid_bytes;
    if (segment_truncate(s, scan->valid_bytes) != 0)
        return fail(o, "cutting");
    s->bytes = scan->valid_bytes;
    return 0;
}

/* What was found may be in the page cache only: whoever wrote it did not live to sync it. */
static int sync_found(struct opening *o, struct segment *s)
{
    AUTO_UNPIN struct segment *pinned = NULL;
    if (segment_pin_scoped(s, &pinned) < 0)
        return fail(o, "opening a segment of");
    segment_wrote(s);
    return segment_sync(s) == 0 ? 0 : fail(o, "syncing");
}

/* What was durable once has a name that is. */
static int sync_names(struct opening *o)
{
    if (log_is_blank(o->log) || log_sync_names(o->log->directory, o->hint.recovery_point <= 0) == 0)
        return 0;
    int r = fail(o, "syncing");
    directory_set_sync_error(o->log->directory, errno);
    return r;
}

static int recover_segment(struct opening *o, size_t place)
{
    struct recovery_scan scan;
    int r = scan_segment(o, place, &scan);
    if (r != 0)
        return r;
    if (scan.verdict == RECOVERY_DAMAGED || scan.next_offset > next_base(o->log, place))
        return report_damage(o, place, &scan);
    if (is_rot(o, &scan))
        return report_rot(o, place, &scan);
    if (scan.verdict == RECOVERY_TORN) {
        bool any = false;
        r = any_valid_behind(o, place, &any);
        if (r == 0 && any)
            return report_damage(o, place, &scan);
        if (r == 0)
            r = cut_torn(o, place, &scan);
    } else {
        o->whole_place = place;
        o->whole_end = scan.next_offset;
    }
    if (r == 0)
        r = sync_found(o, o->log->segments[place]);
    segment_rest(o->log->segments[place]);
    return r;
}

/* The last but one ends, unsynced, before the name of the last says, and that one is empty: its name survived where the
 * last batches before it did not. Nothing is lost with it, and going on at its name would leave a hole. */
static int drop_name_only(struct opening *o)
{
    struct log *log = o->log;
    size_t last = log->segments_count - 1;
    bool is_it = last > 0 && o->whole_place == last - 1 && log_active(log)->bytes == 0 &&
                 o->whole_end < log_active(log)->base_offset && o->whole_end > o->hint.recovery_point &&
                 o->whole_end >= o->hint.start_offset;
    return is_it ? drop_behind(o, last - 1) : 0;
}

/* From the segment that holds the recovery point on; with `from_last` the last segment only. */
static int recover_from(struct opening *o, bool from_last)
{
    struct log *log = o->log;
    o->whole_place = SIZE_MAX;
    for (size_t i = 0; i < log->segments_count; i++) {
        bool last = i + 1 == log->segments_count;
        bool trusted = from_last ? !last : next_base(log, i) <= o->hint.recovery_point;
        int r = 0;
        if (trusted || log->segments[i]->bytes == 0)
            r = check_indexes(o, i);
        else
            r = recover_segment(o, i);
        if (r != 0)
            return r;
    }
    int r = drop_name_only(o);
    if (r == 0)
        r = sync_names(o);
    return r == 0 ? resume(o) : r;
}

static int recover(struct opening *o)
{
    int r = recover_from(o, false);
    if (r != 0 || o->log->next_offset >= o->hint.recovery_point || log_active(o->log)->bytes == 0)
        return r;
    /* The log is shorter than what is said to be safe in it: the recovery point is another log's, or a lie.
     */
    o->hint.recovery_point = -1;
    return recover_from(o, false);
}

static int open_clean(struct opening *o)
{
    int r = 0;
    for (size_t i = 0; i < o->log->segments_count && r == 0; i++)
        r = check_indexes(o, i);
    if (r != 0)
        return r;
    r = resume(o);
    if (r == 0 && o->durable_below >= 0 && o->log->next_offset != o->durable_below)
        r = -BROOK_E_CORRUPT_BATCH; /* a clean stop has told its end */
    if (r != -BROOK_E_CORRUPT_BATCH && r != -BROOK_E_UNSUPPORTED_FORMAT)
        return r;
    /* The marker says clean and the last segment says otherwise: look closely. */
    o->hint.recovery_point = -1;
    return recover_from(o, true);
}

/* ---- epochs ----------------------------------------------------------------------------------------- */

static void load_epochs(struct opening *o)
{
    char path[PATH_MAX];
    directory_file_path(o->log->directory, EPOCHS_FILE, path);
    int r = epochs_load(&o->log->epochs, path);
    o->epochs_known = r == 0;
    o->recovery.epochs_bad = r != 0 && r != -BROOK_E_NOT_FOUND;
}

static int walk_epochs(struct log *log, struct segment *s)
{
    struct header_cursor c;
    struct batch_header h;
    int64_t position;
    if (s->bytes == 0)
        return 0;
    AUTO_UNPIN struct segment *pinned = NULL;
    int fd = segment_pin_scoped(s, &pinned);
    if (fd < 0)
        return -1;
    header_cursor_init(&c, fd, 0, s->bytes);
    while (header_cursor_next(&c, &h, &position) == 0)
        epochs_assign(&log->epochs, h.leader_epoch, h.base_offset);
    return 0;
}

static int settle_epochs(struct opening *o)
{
    struct log *log = o->log;
    if (!o->epochs_known) {
        epochs_done(&log->epochs);
        log->epochs.dirty = o->recovery.epochs_bad;
        for (size_t i = 0; i < log->segments_count; i++)
            if (walk_epochs(log, log->segments[i]) != 0)
                return fail(o, "reading");
    }
    epochs_cut_end(&log->epochs, log->next_offset);
    epochs_cut_start(&log->epochs, log->start_offset);
    return 0;
}

/* ---- opening ---------------------------------------------------------------------------------------- */

static int make_directory(struct opening *o)
{
    o->is_new = io_mkdir(directory_path(o->log->directory)) == 0;
    return o->is_new || errno == EEXIST ? 0 : fail(o, "creating");
}

static int64_t clamp(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* When the active segment was begun, for rolling by age: its first batch tells where that is believable. */
static void date_active(struct segment *s)
{
    struct header_cursor c;
    struct batch_header first;
    int64_t position;
    if (s->bytes == 0)
        return;
    s->first_ms = s->last_ms;
    AUTO_UNPIN struct segment *pinned = NULL;
    int fd = segment_pin_scoped(s, &pinned);
    header_cursor_init(&c, fd, 0, s->bytes);
    if (fd < 0 || header_cursor_next(&c, &first, &position) != 0)
        return;
    struct retention_segment as_segment = {.max_timestamp = first.max_timestamp, .appended_ms = s->last_ms};
    int64_t stamp = retention_stamp(&as_segment);
    if (stamp < s->first_ms && stamp > 0)
        s->first_ms = stamp;
}

/* What was deleted was there once: after a crash the log goes on behind it, even if its last records, which were
 * not on stable storage, are lost. Segments below are retention's to remove. After a clean stop nothing can be
 * lost, and a start beyond the end is another log's. */
static int go_on_at_start(struct opening *o)
{
    struct log *log = o->log;
    if (o->hint.clean || o->hint.start_offset <= log->next_offset)
        return 0;
    int r = log_roll(log, o->hint.start_offset, o->error);
    if (r == 0 && io_sync_directory(directory_path(log->directory)) != 0)
        r = fail(o, "syncing");
    if (r == 0)
        log->next_offset = o->hint.start_offset;
    return r;
}

static int open_log(struct opening *o)
{
    struct log *log = o->log;
    int r = make_directory(o);
    if (r == 0)
        r = find_segments(o);
    if (r != 0)
        return r;
    load_epochs(o);
    r = o->hint.clean ? open_clean(o) : recover(o);
    if (r == 0)
        r = go_on_at_start(o);
    if (r != 0)
        return r;
    log->start_offset = clamp(o->hint.start_offset, log->segments[0]->base_offset, log->next_offset);
    log->cleaned_offset = clamp(o->hint.cleaned_offset, 0, log->next_offset);
    r = settle_epochs(o);
    if (r == 0)
        r = log_producers_open(log, o->scanned_from, o->error);
    if (r != 0)
        return r;
    date_active(log_active(log));
    log->is_unnamed = o->is_new || log_is_blank(log);
    log_publish(log);
    log->durable_end = log->end_offset;
    /* A log that nobody uses costs no descriptor. */
    for (size_t i = 0; i < log->segments_count; i++)
        segment_rest(log->segments[i]);
    return 0;
}

static struct log *new_log(const char *path, const struct log_settings *settings, struct open_files *files)
{
    struct log *log = calloc(1, sizeof *log);
    if (!log)
        return NULL;
    if (directory_new(path, files, &log->directory) != 0) {
        free(log);
        return NULL;
    }
    pthread_mutex_init(&log->lock, NULL);
    pthread_mutex_init(&log->flush_lock, NULL);
    log_configure(log, settings);
    return log;
}

int log_open(const char *directory, const struct log_settings *settings, const struct log_hint *hint,
             struct log **ret_log, struct log_recovery *ret_recovery, struct brook_error *error)
{
    struct brook_error ignored = {0};
    struct opening o = {.hint = *hint,
                        .durable_below = hint->recovery_point,
                        .scanned_from = -1,
                        .error = error ? error : &ignored};
    o.error->code = 0;
    o.log = new_log(directory, settings, hint->files);
    if (!o.log)
        return brook_error_set(error, BROOK_E_STORAGE_ERROR, "%s: no memory, or the path is too long",
                               directory);
    int r = open_log(&o);
    o.recovery.sync_failed = log_sync_failed(o.log);
    if (ret_recovery)
        *ret_recovery = o.recovery;
    if (r != 0)
        log_free(o.log);
    else
        *ret_log = o.log;
    return r;
}
