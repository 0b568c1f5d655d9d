/* Data directories: which one a new partition goes to, how much room each has, and what happens when one fails. */
#include "broker/cluster/hosting_internal.h"
#include "broker/storage/file.h"
#include "proto/base/diag.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- telling partitions ----------------------------------------------------------------------------- */

void hosted_heed_dir(struct hosted *h)
{
    const struct host_dir *dir = h->dir;
    if (h->status != HOSTED_OPEN)
        return;
    if (dir->is_failed)
        partition_refuse_appends(h->partition, BROOK_E_LOG_OFFLINE, dir->failure);
    else
        partition_refuse_appends(h->partition, dir->is_full ? BROOK_E_STORAGE_FULL : 0, NULL);
}

static void tell_partitions(struct host_dir *dir)
{
    for (struct hosted *h = dir->hosting->table; h; h = h->hh.next)
        if (h->dir == dir)
            hosted_heed_dir(h);
}

void host_dir_fail(struct host_dir *dir, const char *why)
{
    struct hosting *hosting = dir->hosting;
    size_t others = 0;
    if (dir->is_failed)
        return;
    snprintf(dir->failure, sizeof dir->failure, "the data directory %.150s failed: %.300s", dir->path, why);
    dir->is_failed = true;
    for (size_t i = 0; i < hosting->dirs_count; i++)
        others += !hosting->dirs[i].is_failed;
    tell_partitions(dir);
    diag_log(hosting->diag, DIAG_ERROR, "",
             "%s; %zu partitions in it are offline until the broker is started again, %zu other directories go on",
             dir->failure, dir->partitions_count, others);
}

/* ---- choosing --------------------------------------------------------------------------------------- */

struct host_dir *hosting_choose_dir(struct hosting *hosting, const struct host_dir *rather_not)
{
    struct host_dir *best = NULL;
    for (size_t i = 0; i < hosting->dirs_count; i++) {
        struct host_dir *dir = &hosting->dirs[i];
        if (dir->is_failed || dir->is_full)
            continue;
        if (!best || best == rather_not ||
            (dir != rather_not && dir->partitions_count < best->partitions_count))
            best = dir;
    }
    return best;
}

bool hosted_move_new(struct hosted *h)
{
    assert(h->is_new && h->status == HOSTED_FAILED);
    struct host_dir *dir = hosting_choose_dir(h->hosting, h->dir);
    if (!dir)
        return false;
    h->dir->partitions_count--;
    h->dir = dir;
    dir->partitions_count++;
    return true;
}

struct host_dir *hosting_missing_dir(struct hosting *hosting)
{
    struct host_dir *suspect = NULL;
    for (size_t i = 0; i < hosting->dirs_count; i++) {
        struct host_dir *dir = &hosting->dirs[i];
        if (dir->is_missing)
            return dir;
        if (dir->is_suspect && (!suspect || suspect->is_failed))
            suspect = dir;
    }
    return suspect;
}

/* ---- room ------------------------------------------------------------------------------------------- */

bool host_dir_lacks_room(const struct host_dir *dir, int64_t free_bytes)
{
    int64_t least = dir->hosting->free_bytes_min;
    /* A little more to go on than to stop, so that not every produce turns it round. */
    return free_bytes < (dir->is_full ? least + least / 8 : least);
}

/* There may be room for what could not be opened or made. */
static void retry_soon(struct hosting *hosting, const struct host_dir *dir)
{
    for (struct hosted *h = hosting->table; h; h = h->hh.next)
        if (h->status == HOSTED_FAILED && (h->is_new || h->dir == dir))
            h->retry_ms = 1;
}

static void set_full(struct host_dir *dir, bool is_full)
{
    const struct diag *diag = dir->hosting->diag;
    if (dir->is_full == is_full)
        return;
    dir->is_full = is_full;
    tell_partitions(dir);
    if (!is_full) {
        diag_log(diag, DIAG_INFO, "", "the data directory %s has room again: %" PRId64 " bytes", dir->path,
                 dir->free_bytes);
        retry_soon(dir->hosting, dir);
        return;
    }
    diag_log(diag, DIAG_WARN, "",
             "the data directory %s is full: %" PRId64 " bytes are free, and log.dir.min.free.bytes is %" PRId64
             "; it takes no records and no new partitions until there is more room",
             dir->path, dir->free_bytes, dir->hosting->free_bytes_min);
}

static void space_run(struct disk_job *job)
{
    struct host_dir *dir = CONTAINER_OF(job, struct host_dir, space_job);
    dir->space_err = data_dir_free_bytes(dir->dir, &dir->free_bytes, &dir->space_error);
    if (dir->space_err && !storage_is_broken(errno))
        dir->space_err = 0; /* looked at again in a second */
}

static void space_done(struct disk_job *job)
{
    struct host_dir *dir = CONTAINER_OF(job, struct host_dir, space_job);
    struct hosting *hosting = dir->hosting;
    dir->is_looking = false;
    atomic_store(&dir->free_seen, dir->free_bytes);
    hosting->duties--;
    if (dir->space_err)
        host_dir_fail(dir, dir->space_error.text);
    else if (!dir->is_failed)
        set_full(dir, host_dir_lacks_room(dir, dir->free_bytes));
    hosting_check_closed(hosting);
}

void hosting_look_at_space(struct hosting *hosting)
{
    for (size_t i = 0; i < hosting->dirs_count; i++) {
        struct host_dir *dir = &hosting->dirs[i];
        if (dir->is_failed || dir->is_looking)
            continue;
        dir->is_looking = true;
        hosting->duties++;
        dir->space_job.run = space_run;
        dir->space_job.done = space_done;
        disk_pool_submit(hosting->pool, &dir->space_job);
    }
}
