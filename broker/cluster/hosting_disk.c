/* Opening and leaving: what hosting does on disk threads. */
#include "broker/cluster/hosting_internal.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/diag.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- one log ---------------------------------------------------------------------------------------- */

/* A directory without a topic id is what a crash leaves between making it and naming it; it is empty then.
 * With records in it, nobody knows whose they are. */
static void drop_nameless(struct hosted *h)
{
    h->is_dropped = true;
    if (log_end_offset(h->log) == 0) {
        h->err = log_delete(&h->log);
        return;
    }
    h->err = log_close(TAKE(h->log));
    pthread_mutex_lock(&h->dir->lock);
    int err = data_dir_set_aside(h->dir->dir, h->topic, h->number);
    pthread_mutex_unlock(&h->dir->lock);
    h->err = err ? err : h->err;
    brook_error_set(&h->error, BROOK_E_STORAGE_ERROR, "the directory names no topic id: set aside");
}

static void open_run(struct disk_job *job)
{
    struct hosted *h = CONTAINER_OF(job, struct hosted, job);
    char path[PATH_MAX];
    h->is_cancelled = atomic_load_explicit(&h->hosting->stop_duties, memory_order_relaxed);
    if (h->is_cancelled)
        return;
    memset(&h->error, 0, sizeof h->error);
    memset(&h->recovery, 0, sizeof h->recovery);
    data_dir_partition_path(h->dir->dir, h->topic, h->number, path);
    if (h->is_new) {
        pthread_mutex_lock(&h->dir->lock);
        h->err = data_dir_forget(h->dir->dir, h->topic, h->number);
        pthread_mutex_unlock(&h->dir->lock);
        if (h->err)
            return;
    }
    struct log_hint hint = h->hint;
    hint.files = h->hosting->files;
    hint.bytes_scanned = &h->hosting->bytes_scanned;
    h->err = log_open(path, &h->log_settings, &hint, &h->log, &h->recovery, &h->error);
    if (h->err)
        return;
    h->err = hosted_check_epochs(h);
    if (h->err) {
        brook_error_set(&h->error, -h->err, "what its log had reached could not be forgotten: %s",
                        brook_error_text(h->err));
        log_close(TAKE(h->log));
        return;
    }
    if (!h->is_new && topic_id_is_zero(&h->topic_id))
        return drop_nameless(h);
    if (!h->is_new)
        return;
    pthread_mutex_lock(&h->dir->lock);
    h->err = data_dir_write_topic_id(h->dir->dir, h->topic, h->number, h->topic_id.bytes);
    pthread_mutex_unlock(&h->dir->lock);
    if (h->err) {
        brook_error_set(&h->error, -h->err, "the topic id could not be written: %s",
                        brook_error_text(h->err));
        log_close(TAKE(h->log));
    }
}

static void say_recovered(const struct hosted *h)
{
    char subject[HOSTED_SUBJECT_BYTES];
    if (h->recovery.epochs_bad)
        diag_log(h->hosting->diag, DIAG_WARN, hosted_subject(h, -1, subject),
                 "the file of leader epochs makes no sense and was made anew from the batches");
    if (!h->recovery.scanned || h->is_new)
        return;
    diag_log(h->hosting->diag, h->recovery.bytes_cut ? DIAG_WARN : DIAG_INFO, hosted_subject(h, -1, subject),
             "recovered: %" PRId64 " bytes read, %" PRId64 " bytes of a torn tail cut, %" PRId32
             " indexes rebuilt",
             h->recovery.bytes_scanned, h->recovery.bytes_cut, h->recovery.indexes_rebuilt);
}

void hosted_fail(struct hosted *h)
{
    char subject[HOSTED_SUBJECT_BYTES];
    h->status = HOSTED_FAILED;
    h->retry_ms = 0;
    if (!h->hosting->is_opened)
        h->hosting->disk_from = -1; /* nobody knows what is there */
    h->hosting->failed++;
    diag_log(h->hosting->diag, DIAG_ERROR, hosted_subject(h, -1, subject), "the log can not be opened: %s",
             h->error.text[0] ? h->error.text : brook_error_text(h->err));
    if (h->recovery.sync_failed)
        hosted_tell_offline(h, "a sync failed while it was recovered");
}

/* Records that others may have read are gone: new ones must not get their offsets in the same epoch. */
static void compare_with_before(struct hosted *h)
{
    char subject[HOSTED_SUBJECT_BYTES];
    int64_t end = log_end_offset(h->log);
    if (end < h->end_before) {
        h->barred_epoch = h->epoch_before;
        h->reached_epoch = -1; /* but for what is on the disk */
        h->hosting->has_lost_records = true;
        h->hosting->clean_from = -1;
        hosting_forget_registration(h->hosting);
        diag_log(h->hosting->diag, DIAG_ERROR, hosted_subject(h, h->epoch_before, subject),
                 "%" PRId64 " records from offset %" PRId64
                 " on were lost: not led before there is a new leader epoch, as a restart brings one",
                 h->end_before - end, end);
    }
    h->end_before = 0;
}

static void released_by_last(void *arg, struct log *log);

/* On whatever disk thread deletes records; it holds a reference to the partition, so the entry is there. */
static int persist_start(void *arg, int64_t start_offset)
{
    struct hosted *h = arg;
    pthread_mutex_lock(&h->dir->lock);
    int err = data_dir_raise_start(h->dir->dir, h->topic, h->number, start_offset);
    pthread_mutex_unlock(&h->dir->lock);
    return err;
}

static void opened(struct hosted *h)
{
    struct partition *partition;
    compare_with_before(h);
    if (!h->hosting->is_opened && log_end_offset(h->log) < h->hint.recovery_point)
        h->hosting->disk_from = -1; /* what was synced is gone */
    h->err = partition_new(h->topic, h->number, h->topic_id.bytes, &h->log, &partition);
    if (h->err) {
        log_close(TAKE(h->log));
        return hosted_fail(h);
    }
    partition_on_release(partition, released_by_last, h);
    partition_on_trim(partition, persist_start, h);
    partition_use_flusher(partition, h->hosting->flusher);
    partition_start_at(partition, h->high_watermark);
    partition_set_owner(partition, h->dir);
    h->err = replica_new(&h->hosting->replica, partition, &h->replica);
    if (h->err) {
        h->log = partition_take_log(partition);
        partition_unref(partition);
        log_close(TAKE(h->log));
        return hosted_fail(h);
    }
    h->partition = partition;
    hosted_start_epochs(h);
    h->is_durability_set = false;
    h->status = HOSTED_OPEN;
    atomic_store(&h->stop_cleaning, false);
    hosted_heed_dir(h);
    say_recovered(h);
    h->is_made = h->is_new;
    h->is_new = false;
}

/* `opened` is answered once, when the logs that were found are through. */
static void check_opened(struct hosting *hosting)
{
    if (hosting->is_opened || hosting->opening || hosting->dirs_pending)
        return;
    hosting->is_opened = true;
    struct brook_error none = {0};
    char scanned[HOSTING_SCANNED_BYTES];
    if (hosting->found)
        diag_log(hosting->diag, DIAG_INFO, "", "opened %zu logs in %" PRId64 " ms%s", hosting->found,
                 clock_boot_ms() - hosting->began_ms, hosting_say_scanned(hosting, scanned));
    if (!hosting->is_closing)
        hosting->events.opened(hosting->events.arg, &none);
}

static void open_done(struct disk_job *job)
{
    struct hosted *h = CONTAINER_OF(job, struct hosted, job);
    struct hosting *hosting = h->hosting;
    char subject[HOSTED_SUBJECT_BYTES];
    AUTO_FREE char *topic = strdup(h->topic);
    int32_t number = h->number;
    hosting->opening--;
    if (h->is_cancelled) {
        /* What was clean before is so still; what is new was not made. */
        h->dir->bad_ends += !h->is_new && !h->hint.clean;
        h->status = HOSTED_LEAVING;
        h->end = HOSTED_END_CLOSE;
    } else if (h->is_dropped) {
        if (h->err || h->error.code)
            diag_log(hosting->diag, DIAG_WARN, hosted_subject(h, -1, subject), "%s",
                     h->error.code ? h->error.text : brook_error_text(h->err));
        hosted_remove(h);
    } else if (h->err) {
        hosted_fail(h);
    } else {
        opened(h);
    }
    if (hosting->is_opened && topic)
        hosting->events.changed(hosting->events.arg, topic, number);
    check_opened(hosting);
    hosting_check_closed(hosting);
}

void hosted_start_open(struct hosted *h)
{
    if (h->status == HOSTED_FAILED)
        h->hosting->failed--;
    h->status = HOSTED_OPENING;
    h->hosting->opening++;
    h->job.run = open_run;
    h->job.done = open_done;
    disk_pool_submit(h->hosting->pool, &h->job);
}

/* ---- leaving ---------------------------------------------------------------------------------------- */

static int set_aside(struct hosted *h)
{
    if (h->dir->is_missing)
        return -BROOK_E_STORAGE_ERROR; /* if it is there, it stays there */
    pthread_mutex_lock(&h->dir->lock);
    int err = data_dir_set_aside(h->dir->dir, h->topic, h->number);
    pthread_mutex_unlock(&h->dir->lock);
    return err;
}

static void leave_run(struct disk_job *job)
{
    struct hosted *h = CONTAINER_OF(job, struct hosted, job);
    h->err = 0;
    if (h->log && h->end == HOSTED_END_DELETE) {
        h->err = log_delete(&h->log);
        return;
    }
    if (h->end == HOSTED_END_REOPEN) {
        h->has_sync_failed = log_sync_failed(h->log);
        h->hint_left.start_offset = log_start_offset(h->log); /* readers may have deleted records meanwhile */
        log_close(TAKE(h->log)); /* that it was not a clean end is why it is closed */
        return;
    }
    if (h->log) {
        int64_t start = log_start_offset(h->log), end = log_end_offset(h->log);
        h->hint_left.cleaned_offset = log_cleaned_offset(h->log);
        h->err = log_close(TAKE(h->log));
        h->hint_left.start_offset = start;
        if (!h->err)
            h->hint_left.recovery_point = end;
    }
    if (h->end != HOSTED_END_CLOSE) {
        int err = set_aside(h);
        if ((!h->is_new && !h->is_missed) || errno != ENOENT) /* it was not made */
            h->err = err ? err : h->err;
    }
}

static void say_left(const struct hosted *h)
{
    char subject[HOSTED_SUBJECT_BYTES];
    hosted_subject(h, -1, subject);
    if (h->dir->is_failed)
        return; /* that was said of all of it */
    if (h->err)
        diag_log(h->hosting->diag, DIAG_ERROR, subject, "the log could not be %s: %s",
                 h->end == HOSTED_END_DELETE      ? "removed"
                 : h->end == HOSTED_END_SET_ASIDE ? "set aside"
                                                  : "closed cleanly",
                 brook_error_text(h->err));
    else if (h->end == HOSTED_END_DELETE)
        diag_log(h->hosting->diag, DIAG_INFO, subject, "removed: %s",
                 h->has_moved ? "the partition was moved to other brokers" : "its topic was deleted");
    else if (h->end == HOSTED_END_SET_ASIDE)
        diag_log(h->hosting->diag, DIAG_WARN, subject,
                 "set aside: ZooKeeper does not know it as this broker's, nor as deleted");
}

static void leave_done(struct disk_job *job)
{
    struct hosted *h = CONTAINER_OF(job, struct hosted, job);
    struct hosting *hosting = h->hosting;
    hosting->leaving--;
    h->hint = h->hint_left;
    say_left(h);
    if (h->end == HOSTED_END_CLOSE) {
        h->dir->bad_ends += h->err != 0; /* stays in the table for the last checkpoint */
    } else if (h->end == HOSTED_END_REOPEN) {
        h->status = HOSTED_FAILED;
        h->retry_ms = 0;
        hosting->failed++;
        if (h->has_sync_failed)
            hosted_tell_offline(h, "a sync failed while it was closed");
        hosting->events.changed(hosting->events.arg, h->topic, h->number);
    } else {
        AUTO_FREE char *topic = strdup(h->topic);
        int32_t number = h->number;
        hosted_remove(h);
        if (topic)
            hosting->events.changed(hosting->events.arg, topic, number);
    }
    hosting_check_closed(hosting);
}

static void start_leave(struct hosted *h)
{
    h->hint_left = h->hint;
    h->job.run = leave_run;
    h->job.done = leave_done;
    disk_pool_submit(h->hosting->pool, &h->job);
}

static void on_released(struct inbox_item *item)
{
    start_leave(CONTAINER_OF(item, struct hosted, released));
}

/* Called by whatever thread dropped the last reference; it may be an I/O loop, so the disk is not touched
 * here. */
static void released_by_last(void *arg, struct log *log)
{
    struct hosted *h = arg;
    h->log = log;
    h->released.run = on_released;
    inbox_post(h->hosting->inbox, &h->released);
}

void hosted_leave(struct hosted *h, enum hosted_end end)
{
    struct hosting *hosting = h->hosting;
    struct partition_marks marks;
    bool was_open = h->status == HOSTED_OPEN;
    assert(was_open || h->status == HOSTED_FAILED);
    hosting->failed -= !was_open;
    h->status = HOSTED_LEAVING;
    h->end = end;
    atomic_store(&h->stop_cleaning, true);
    hosting->leaving++;
    if (!was_open)
        return start_leave(h);
    hosted_resign(h, "the log is closed");
    partition_marks(h->partition, &marks);
    h->high_watermark = marks.high_watermark;
    h->reached_epoch = replica_reached_epoch(h->replica);
    replica_unref(TAKE(h->replica));
    if (end == HOSTED_END_CLOSE) { /* the I/O loops have ended: their last views are nobody's */
        h->log = partition_take_log(h->partition);
        partition_unref(TAKE(h->partition));
        return start_leave(h);
    }
    partition_unref(TAKE(h->partition));
    hosting->events.changed(hosting->events.arg, h->topic,
                            h->number); /* so that the view lets go of it too */
}

/* ---- directories ------------------------------------------------------------------------------------ */

/* Only this directory's, and no mistake of whoever runs the broker. */
static bool is_disks_fault(int err)
{
    return err == -BROOK_E_STORAGE_ERROR || err == -BROOK_E_STORAGE_FULL;
}

/* An empty mount point, or another disk in the place of the one that was there, looks like a directory that was added.
 * It stays without meta.properties until nothing is missed, so that the next start knows too. */
static void suspect_new_dirs(struct hosting *hosting)
{
    size_t fresh = 0;
    for (size_t i = 0; i < hosting->dirs_count; i++)
        fresh += hosting->dirs[i].dir && data_dir_is_new(hosting->dirs[i].dir);
    for (size_t i = 0; i < hosting->dirs_count && fresh < hosting->dirs_count; i++) {
        struct host_dir *dir = &hosting->dirs[i];
        if (!dir->dir || !data_dir_is_new(dir->dir))
            continue;
        dir->is_suspect = true;
        data_dir_leave_unclaimed(dir->dir);
        diag_log(hosting->diag, DIAG_WARN, "",
                 "the data directory %s has no meta.properties, and others are not new: it was added, or what belongs "
                 "there is not mounted. It takes new partitions; partitions that are found nowhere stay offline, unless "
                 "another broker leads them",
                 dir->path);
    }
}

int hosting_lock(struct hosting *hosting, struct brook_error *error)
{
    bool any = false;
    for (size_t i = 0; i < hosting->dirs_count; i++) {
        struct host_dir *dir = &hosting->dirs[i];
        dir->err = dir->dir ? 0 : data_dir_lock(dir->path, &dir->dir, &dir->error);
        any = any || !dir->err;
        if (dir->err && !is_disks_fault(dir->err)) {
            *error = dir->error;
            return dir->err;
        }
    }
    if (any)
        suspect_new_dirs(hosting);
    else
        *error = hosting->dirs[0].error;
    return any ? 0 : hosting->dirs[0].err;
}

const char *hosting_first_dir(const struct hosting *hosting)
{
    for (size_t i = 0; i < hosting->dirs_count; i++)
        if (hosting->dirs[i].dir)
            return hosting->dirs[i].path;
    return hosting->dirs[0].path;
}

static void dir_open_run(struct disk_job *job)
{
    struct host_dir *dir = CONTAINER_OF(job, struct host_dir, job);
    dir->error.code = 0;
    dir->err = dir->dir ? 0 : data_dir_lock(dir->path, &dir->dir, &dir->error);
    if (!dir->err)
        dir->err = data_dir_load(dir->dir, dir->hosting->broker_id, dir->hosting->cluster_id, &dir->error);
    if (dir->err && !dir->error.code)
        brook_error_set(&dir->error, -dir->err, "%.200s: %s", dir->path, brook_error_text(dir->err));
    if (!dir->err && data_dir_free_bytes(dir->dir, &dir->free_bytes, NULL) == 0)
        dir->is_full = host_dir_lacks_room(dir, dir->free_bytes);
}

/* Whether all directories were left by the same clean stop. */
static int64_t find_clean_from(const struct hosting *hosting)
{
    int64_t clean_from = -1;
    for (size_t i = 0; i < hosting->dirs_count; i++) {
        int64_t epoch = -1;
        if (hosting->dirs[i].is_missing || !data_dir_was_clean(hosting->dirs[i].dir, &epoch) || (i > 0 && epoch != clean_from))
            return -1;
        clean_from = epoch;
    }
    return clean_from;
}

/* A partition that could not be made in one directory is made in another, and what there is of it in the first
 * comes to light when that is well again. */
static int settle_twins(struct host_dir *dir, const struct data_dir_partition *found, struct hosted *other,
                        bool *ret_is_kept, struct brook_error *error)
{
    struct host_dir *empty = data_dir_holds_nothing(dir->dir, found->topic, found->partition) ? dir
                             : data_dir_holds_nothing(other->dir->dir, found->topic, found->partition)
                                 ? other->dir
                                 : NULL;
    if (!empty || data_dir_set_aside(empty->dir, found->topic, found->partition) != 0)
        return brook_error_set(error, BROOK_E_CONFIG, "%.120s-%" PRId32 " is in two data directories: %.50s and %.50s",
                               found->topic, found->partition, other->dir->path, dir->path);
    diag_log(dir->hosting->diag, DIAG_WARN, "",
             "%s-%" PRId32 " is in two data directories: the one in %s holds nothing, and was set aside", found->topic,
             found->partition, empty->path);
    *ret_is_kept = empty != dir;
    if (*ret_is_kept)
        hosted_remove(other);
    return 0;
}

static int add_found(struct host_dir *dir, struct brook_error *error)
{
    struct hosting *hosting = dir->hosting;
    size_t count;
    const char *const *warnings = data_dir_warnings(dir->dir, &count);
    for (size_t i = 0; i < count; i++)
        diag_log(hosting->diag, DIAG_WARN, "", "%s", warnings[i]);
    const struct data_dir_partition *found = data_dir_partitions(dir->dir, &count);
    for (size_t i = 0; i < count; i++) {
        struct hosted *h;
        char name[sizeof found[i].topic + 16];
        snprintf(name, sizeof name, "%s-%" PRId32, found[i].topic, found[i].partition);
        HASH_FIND_STR(hosting->table, name, h);
        bool is_kept = true;
        int err = h ? settle_twins(dir, &found[i], h, &is_kept, error) : 0;
        if (err)
            return err;
        if (!is_kept)
            continue;
        h = hosted_add(hosting, dir, found[i].topic, found[i].partition);
        if (!h)
            return brook_error_set(error, BROOK_E_NOMEM, "out of memory");
        memcpy(h->topic_id.bytes, found[i].topic_id, sizeof h->topic_id.bytes);
        h->hint = found[i].hint;
        h->high_watermark = found[i].high_watermark;
    }
    return 0;
}

/* A directory whose disk fails is done without, as long as another one is there. */
static int judge_dirs(struct hosting *hosting, struct brook_error *error)
{
    const struct host_dir *worst = NULL;
    size_t well = 0;
    for (size_t i = 0; i < hosting->dirs_count; i++) {
        const struct host_dir *dir = &hosting->dirs[i];
        well += !dir->err;
        if (dir->err && (!worst || !is_disks_fault(dir->err)))
            worst = dir;
    }
    if (worst && (!well || !is_disks_fault(worst->err))) {
        *error = worst->error;
        return worst->err;
    }
    for (size_t i = 0; i < hosting->dirs_count; i++)
        if (hosting->dirs[i].err) {
            hosting->dirs[i].is_missing = true;
            host_dir_fail(&hosting->dirs[i], hosting->dirs[i].error.text);
        }
    return 0;
}

static void open_found(struct hosting *hosting)
{
    struct brook_error error = {0};
    int err = judge_dirs(hosting, &error);
    for (size_t i = 0; i < hosting->dirs_count && !err; i++)
        if (!hosting->dirs[i].is_missing)
            err = add_found(&hosting->dirs[i], &error);
    if (err) {
        hosting->events.opened(hosting->events.arg, &error);
        return;
    }
    hosting->is_loaded = true;
    hosting->clean_from = find_clean_from(hosting);
    hosting->disk_from = hosting_find_disk_from(hosting);
    hosting->found = HASH_COUNT(hosting->table);
    hosting->began_ms = clock_boot_ms();
    struct hosted *h, *next;
    HASH_ITER(hh, hosting->table, h, next)
    hosted_start_open(h);
    check_opened(hosting);
}

static void dir_open_done(struct disk_job *job)
{
    struct hosting *hosting = CONTAINER_OF(job, struct host_dir, job)->hosting;
    if (--hosting->dirs_pending)
        return;
    if (hosting->is_closing)
        hosting_check_closed(hosting);
    else
        open_found(hosting);
}

void hosting_open_dirs(struct hosting *hosting)
{
    hosting->dirs_pending = hosting->dirs_count;
    for (size_t i = 0; i < hosting->dirs_count; i++) {
        struct host_dir *dir = &hosting->dirs[i];
        dir->job.run = dir_open_run;
        dir->job.done = dir_open_done;
        disk_pool_submit(hosting->pool, &dir->job);
    }
}

/* No log was looked at: the directory is as the last stop left it. Here and below the lock stays until
 * hosting_free(): other files in the directory are written to the end. */
static void close_untouched(struct host_dir *dir)
{
    int64_t epoch;
    bool clean = data_dir_was_clean(dir->dir, &epoch);
    if (!clean)
        return;
    data_dir_set_broker_epoch(dir->dir, epoch);
    (void)data_dir_mark_clean(dir->dir);
}

/* Nobody knows how they ended. What was to be made new is nothing to care for. */
static bool has_failed_logs(const struct host_dir *dir)
{
    for (const struct hosted *h = dir->hosting->table; h; h = h->hh.next)
        if (h->dir == dir && h->status == HOSTED_FAILED && !h->is_new)
            return true;
    return false;
}

static void dir_close_run(struct disk_job *job)
{
    struct host_dir *dir = CONTAINER_OF(job, struct host_dir, job);
    struct hosting *hosting = dir->hosting;
    if (dir->is_failed || !dir->dir) {
        dir->err = -BROOK_E_STORAGE_ERROR; /* what is in it may not be what is in memory: it gets no marker */
        return;
    }
    if (!hosting->is_loaded)
        return close_untouched(dir);
    if (dir->is_explained && !has_failed_logs(dir))
        (void)data_dir_claim(dir->dir, NULL); /* else it is suspect once more */
    int err = hosting_write_last_checkpoint(dir);
    data_dir_set_broker_epoch(dir->dir, hosting->broker_epoch);
    bool clean = !err && !dir->bad_ends && !has_failed_logs(dir) && hosting->is_opened;
    int mark_err = clean ? data_dir_mark_clean(dir->dir) : 0;
    dir->err = err ? err : mark_err;
    if (!dir->err && !clean)
        dir->err = -BROOK_E_STORAGE_ERROR;
}

static void dir_close_done(struct disk_job *job)
{
    struct hosting *hosting = CONTAINER_OF(job, struct host_dir, job)->hosting;
    if (--hosting->dirs_pending)
        return;
    bool clean = true;
    for (size_t i = 0; i < hosting->dirs_count; i++)
        clean = clean && !hosting->dirs[i].err;
    hosting->is_closed = true;
    hosting->events.closed(hosting->events.arg, clean);
}

void hosting_close_dirs(struct hosting *hosting)
{
    hosting->dirs_pending = hosting->dirs_count;
    for (size_t i = 0; i < hosting->dirs_count; i++) {
        struct host_dir *dir = &hosting->dirs[i];
        dir->err = dir->dir ? 0 : dir->err;
        dir->job.run = dir_close_run;
        dir->job.done = dir_close_done;
        disk_pool_submit(hosting->pool, &dir->job);
    }
}
