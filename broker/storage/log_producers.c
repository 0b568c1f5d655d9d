/* What a log knows of its idempotent producers, and the files that keep it over a restart.
 *
 * The state is always what the log below `next_offset` tells: a transaction is opened before a write and undone when
 * that fails. A snapshot is written at the first append behind a roll and at a clean close, for the offset at which the
 * log ends then. So a log that has none needs no look below the segments that a start scans anyway. One for an offset above
 * the log's end would tell of batches that are gone: it is removed, durably, before anything can be appended there.
 */
#include "broker/storage/file.h"
#include "broker/storage/header_cursor.h"
#include "broker/storage/log_state.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The newest ones; older ones would only help a cut that goes further back. */
#define SNAPSHOTS_KEPT 2
#define SNAPSHOT_BYTES_MAX ((size_t)256 << 20)

static int have_state(struct log *log)
{
    return log->producers.state ? 0 : producer_state_new(&log->producers.state);
}

static int no_memory(const struct log *log, struct brook_error *error)
{
    return brook_error_set(error, BROOK_E_NOMEM, "out of memory for the producers of %s",
                           directory_path(log->directory));
}

void log_producers_done(struct log *log)
{
    producer_state_free(log->producers.state);
    free(log->producers.snapshots);
}

/* ---- appends ---------------------------------------------------------------------------------------- */

static bool any_idempotent(const struct log_batch *batches, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (batch_is_idempotent(&batches[i].header))
            return true;
    return false;
}

/* Nobody is remembered, and no memory taken, before the first one comes. */
static int begin(struct log *log)
{
    if (log->producers.is_changing)
        return 0;
    if (have_state(log) != 0)
        return -BROOK_E_NOMEM;
    producer_state_begin(log->producers.state);
    log->producers.is_changing = true;
    return 0;
}

static int note_all(struct log *log, const struct log_batch *batches, size_t count, int64_t now_ms)
{
    int r = 0;
    for (size_t i = 0; i < count && r == 0; i++)
        if (batch_is_idempotent(&batches[i].header))
            r = producer_state_note(log->producers.state, &batches[i].header, now_ms);
    return r;
}

int log_producers_note(struct log *log, const struct log_batch *batches, size_t count, int64_t now_ms,
                       struct brook_error *error)
{
    if (log->producers.is_judging || !any_idempotent(batches, count))
        return 0;
    int r = begin(log);
    if (r == 0)
        r = note_all(log, batches, count, now_ms);
    if (r == 0)
        return 0;
    log_producers_settle(log, false);
    return no_memory(log, error);
}

void log_producers_settle(struct log *log, bool is_written)
{
    struct log_producers *p = &log->producers;
    p->is_judging = false;
    if (!p->is_changing)
        return;
    p->is_changing = false;
    if (is_written)
        producer_state_keep(p->state, (size_t)log->settings.producers_max);
    else
        producer_state_undo(p->state);
}

/* ---- judging ---------------------------------------------------------------------------------------- */

void log_judge_begin(struct log *log)
{
    log->producers.is_judging = true;
    log->producers.next_offset = log->end_offset;
}

void log_judge_end(struct log *log)
{
    log_producers_settle(log, false);
}

static int check_first_new(const struct log *log, struct log_batch *batches, size_t count,
                           struct log_judgement *j, struct brook_error *error)
{
    for (; j->duplicates < count; j->duplicates++) {
        struct producer_verdict v;
        struct batch_header *h = &batches[j->duplicates].header;
        int r = producer_state_check(log->producers.state, h, &v, error);
        if (r != 0)
            return r;
        if (!v.is_duplicate)
            return 0;
        h->base_offset = v.base_offset;
        if (v.last_offset > j->last_offset)
            j->last_offset = v.last_offset;
    }
    return 0;
}

/* Each batch goes on where the one before it ends. */
static int check_chain(const struct log_batch *batches, size_t count, struct brook_error *error)
{
    for (size_t i = 1; i < count; i++) {
        const struct batch_header *a = &batches[i - 1].header, *b = &batches[i].header;
        if (a->producer_id != b->producer_id || a->producer_epoch != b->producer_epoch)
            return brook_error_set(error, BROOK_E_BAD_BATCH, "batches of several producers in one append");
        if (sequence_after(sequence_after(a->base_sequence, a->last_offset_delta), 1) != b->base_sequence)
            return brook_error_set(error, BROOK_E_OUT_OF_SEQUENCE,
                                   "batch %zu of an append has sequence %d, which does not follow the one before", i,
                                   b->base_sequence);
    }
    return 0;
}

static int judge(struct log *log, struct log_batch *batches, size_t count, struct log_judgement *j,
                 struct brook_error *error)
{
    bool any = any_idempotent(batches, count);
    if (!any)
        return 0;
    int r = check_chain(batches, count, error);
    return r == 0 ? check_first_new(log, batches, count, j, error) : r;
}

int log_judge(struct log *log, struct log_batch *batches, size_t count, int64_t now_ms,
              struct log_judgement *ret_judgement, struct brook_error *error)
{
    struct log_judgement j = {.last_offset = -1};
    int r = judge(log, batches, count, &j, error);
    if (r != 0)
        return r;
    for (size_t i = j.duplicates; i < count; i++) {
        struct batch_header *h = &batches[i].header;
        h->base_offset = log->producers.next_offset;
        j.last_offset = batch_last_offset(h);
        log->producers.next_offset = j.last_offset + 1;
    }
    if (j.duplicates < count && any_idempotent(batches, count) &&
        (begin(log) != 0 || note_all(log, batches + j.duplicates, count - j.duplicates, now_ms) != 0))
        return no_memory(log, error);
    *ret_judgement = j;
    return 0;
}

/* ---- snapshots -------------------------------------------------------------------------------------- */

static int remove_snapshot(struct log *log, int64_t offset)
{
    char path[PATH_MAX];
    directory_segment_path(log->directory, offset, SUFFIX_SNAPSHOT, path);
    return io_unlink(path) == 0 || errno == ENOENT ? 0 : -1;
}

/* Remove those above `offset`; that they are gone is durable. */
static int remove_above(struct log *log, int64_t offset)
{
    struct log_producers *p = &log->producers;
    size_t before = p->snapshots_count;
    while (p->snapshots_count > 0 && p->snapshots[p->snapshots_count - 1] > offset) {
        if (remove_snapshot(log, p->snapshots[p->snapshots_count - 1]) != 0)
            return -1;
        p->snapshots_count--;
    }
    return p->snapshots_count == before ? 0 : io_sync_directory(directory_path(log->directory));
}

/* A file that stays is found again at the next start. */
static void remove_old(struct log *log)
{
    struct log_producers *p = &log->producers;
    while (p->snapshots_count > SNAPSHOTS_KEPT) {
        remove_snapshot(log, p->snapshots[0]);
        p->snapshots_count--;
        memmove(p->snapshots, p->snapshots + 1, p->snapshots_count * sizeof *p->snapshots);
    }
}

static int write_snapshot(struct log *log, int64_t offset)
{
    AUTO_FREE void *data = NULL;
    size_t bytes;
    char path[PATH_MAX];
    if (producer_state_save(log->producers.state, &data, &bytes) != 0)
        return -BROOK_E_NOMEM;
    directory_segment_path(log->directory, offset, SUFFIX_SNAPSHOT, path);
    return file_replace(path, data, bytes, false, NULL);
}

static int add_snapshot(struct log_producers *p, int64_t offset)
{
    if (p->snapshots_count > 0 && p->snapshots[p->snapshots_count - 1] == offset)
        return 0;
    int64_t *wider = realloc(p->snapshots, (p->snapshots_count + 1) * sizeof *wider);
    if (!wider)
        return -BROOK_E_NOMEM;
    p->snapshots = wider;
    p->snapshots[p->snapshots_count++] = offset;
    return 0;
}

int log_producers_save(struct log *log, bool always)
{
    struct log_producers *p = &log->producers;
    if ((!always && !p->snapshot_is_due) || producer_state_count(p->state) == 0)
        return 0;
    int r = add_snapshot(p, log->next_offset);
    if (r == 0)
        r = write_snapshot(log, log->next_offset);
    if (r != 0)
        return r;
    p->snapshot_is_due = false;
    remove_old(log);
    pthread_mutex_lock(&log->lock);
    log->directory_dirty = true;
    pthread_mutex_unlock(&log->lock);
    return 0;
}

/* ---- from files and batches ------------------------------------------------------------------------- */

/* -BROOK_E_INVALID: it is not there, or makes no sense. */
static int load_snapshot(struct log *log, int64_t offset, int64_t now_ms)
{
    AUTO_FREE char *data = NULL;
    size_t bytes, count;
    char path[PATH_MAX];
    directory_segment_path(log->directory, offset, SUFFIX_SNAPSHOT, path);
    int r = file_load(path, SNAPSHOT_BYTES_MAX, &data, &bytes);
    if (r == -BROOK_E_STORAGE_ERROR || r == -BROOK_E_NOMEM)
        return r;
    if (r != 0 || producer_snapshot_check(data, bytes, &count) != 0)
        return -BROOK_E_INVALID;
    if (count == 0)
        return 0;
    return have_state(log) == 0 ? producer_state_load(log->producers.state, data, count, now_ms) : -BROOK_E_NOMEM;
}

static int take_up(struct log *log, const struct batch_header *h, int64_t now_ms)
{
    if (!batch_is_idempotent(h))
        return 0;
    return have_state(log) == 0 ? producer_state_note(log->producers.state, h, now_ms) : -BROOK_E_NOMEM;
}

static int replay_segment(struct log *log, struct segment *s, int64_t from, int64_t now_ms)
{
    struct header_cursor c;
    struct batch_header h;
    int64_t position;
    if (s->bytes == 0)
        return 0;
    AUTO_UNPIN struct segment *pinned = NULL;
    int fd = segment_pin_scoped(s, &pinned);
    if (fd < 0)
        return -BROOK_E_STORAGE_ERROR;
    header_cursor_init(&c, fd, 0, s->bytes);
    int r;
    while ((r = header_cursor_next(&c, &h, &position)) == 0)
        if (h.base_offset >= from && (r = take_up(log, &h, now_ms)) != 0)
            return r;
    return r == -BROOK_E_STORAGE_ERROR ? r : 0; /* damage is others' to judge */
}

/* The batches from `from` to the end. */
static int replay(struct log *log, int64_t from, int64_t now_ms)
{
    int r = 0;
    for (size_t i = 0; i < log->segments_count && r == 0; i++) {
        bool is_last = i + 1 == log->segments_count;
        if (is_last ? from < log->next_offset : log->segments[i + 1]->base_offset > from)
            r = replay_segment(log, log->segments[i], from, now_ms);
    }
    return r;
}

/* Everything anew: the newest snapshot that makes sense, else nothing; then the batches behind it, or from
 * `without_one` on. */
static int make_anew(struct log *log, int64_t without_one, struct brook_error *error)
{
    struct log_producers *p = &log->producers;
    int64_t from = without_one, now_ms = clock_wall_ms();
    int r = -BROOK_E_INVALID;
    for (size_t i = p->snapshots_count; i-- > 0 && r == -BROOK_E_INVALID;) {
        r = load_snapshot(log, p->snapshots[i], now_ms);
        if (r == 0)
            from = p->snapshots[i];
    }
    if (r == 0 || r == -BROOK_E_INVALID)
        r = replay(log, from, now_ms);
    if (r == 0 && p->state)
        producer_state_keep(p->state, (size_t)log->settings.producers_max);
    if (r != 0)
        return r == -BROOK_E_NOMEM ? no_memory(log, error)
                                   : storage_error(error, "reading the producers of %s", directory_path(log->directory));
    return 0;
}

int log_producers_open(struct log *log, int64_t scanned_from, struct brook_error *error)
{
    struct log_producers *p = &log->producers;
    if (remove_above(log, log->next_offset) != 0)
        return storage_error(error, "removing a snapshot of %s", directory_path(log->directory));
    /* With snapshots that make no sense all batches have to tell. After a clean stop there is one for the log's end,
     * or nobody was known. */
    bool is_clean = scanned_from < 0;
    bool is_at_end = p->snapshots_count > 0 && p->snapshots[p->snapshots_count - 1] == log->next_offset;
    p->from_offset = is_clean ? log->next_offset : scanned_from;
    if (is_clean && !is_at_end)
        return 0;
    if (p->snapshots_count > 0)
        p->from_offset = 0;
    return make_anew(log, p->from_offset, error);
}

int log_producers_cut(struct log *log, int64_t end_offset, struct brook_error *error)
{
    struct log_producers *p = &log->producers;
    if (remove_above(log, end_offset) != 0)
        return storage_error(error, "removing a snapshot of %s", directory_path(log->directory));
    if (!p->state || producer_state_cut(p->state, end_offset))
        return 0;
    producer_state_clear(p->state);
    return make_anew(log, p->from_offset, error);
}

int log_producers_start_over(struct log *log, int64_t offset, struct brook_error *error)
{
    struct log_producers *p = &log->producers;
    if (p->state)
        producer_state_clear(p->state);
    p->from_offset = offset;
    return remove_above(log, -1) == 0
               ? 0
               : storage_error(error, "removing a snapshot of %s", directory_path(log->directory));
}

void log_producers_expire(struct log *log, int64_t now_ms)
{
    if (log->producers.state)
        producer_state_expire(log->producers.state, now_ms - log->settings.producer_expiration_ms);
}
