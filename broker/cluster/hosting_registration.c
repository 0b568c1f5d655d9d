/* The registration that the data directories are noted with: what tells a disk that was there from one that came back
 * empty. */
#include "broker/cluster/hosting_internal.h"
#include "proto/base/diag.h"

#include <inttypes.h>

int64_t hosting_disk_from(const struct hosting *hosting)
{
    return hosting->disk_from;
}

/* One that holds nothing counts as well: it may be in the place of one that held much. */
int64_t hosting_find_disk_from(const struct hosting *hosting)
{
    int64_t disk_from = -1;
    for (size_t i = 0; i < hosting->dirs_count; i++) {
        const struct host_dir *dir = &hosting->dirs[i];
        int64_t epoch = dir->is_missing ? -1 : data_dir_registered(dir->dir, hosting->dirs_count);
        if (epoch < 0 || (i > 0 && epoch != disk_from))
            return -1;
        disk_from = epoch;
    }
    return disk_from;
}

static void note_run(struct disk_job *job)
{
    struct hosting *hosting = CONTAINER_OF(job, struct hosting, note.job);
    hosting->note.err = 0;
    for (size_t i = 0; i < hosting->dirs_count; i++) {
        struct host_dir *dir = &hosting->dirs[i];
        if (!dir->dir || dir->is_missing)
            continue;
        pthread_mutex_lock(&dir->lock);
        int err = data_dir_note_registered(dir->dir, hosting->note.epoch, hosting->dirs_count);
        pthread_mutex_unlock(&dir->lock);
        hosting->note.err = err ? err : hosting->note.err;
    }
}

static bool has_failed_dirs(const struct hosting *hosting)
{
    for (size_t i = 0; i < hosting->dirs_count; i++)
        if (hosting->dirs[i].is_failed || hosting->dirs[i].is_missing)
            return true;
    return false;
}

static void start_note(struct hosting *hosting);

/* Not written is the safe side: the directory proves an older registration, or none. */
static void note_done(struct disk_job *job)
{
    struct hosting *hosting = CONTAINER_OF(job, struct hosting, note.job);
    struct note *note = &hosting->note;
    note->is_running = false;
    hosting->duties--;
    if (note->err)
        diag_log(hosting->diag, DIAG_WARN, "", "the registration could not be noted in every data directory: %s",
                 brook_error_text(note->err));
    hosting->disk_from = note->err || hosting->has_lost_records ? -1 : note->epoch;
    if (note->is_due && !hosting->is_closing) {
        start_note(hosting);
    } else if (note->is_awaited && !hosting->is_closing) {
        note->is_awaited = false;
        hosting->events.noted(hosting->events.arg, note->registration);
    }
    hosting_check_closed(hosting);
}

static void start_note(struct hosting *hosting)
{
    struct note *note = &hosting->note;
    note->is_due = note->is_running || hosting->is_closing;
    if (note->is_due)
        return;
    note->is_running = true;
    note->epoch = hosting->has_lost_records || has_failed_dirs(hosting) ? -1 : note->registration;
    note->job.run = note_run;
    note->job.done = note_done;
    hosting->duties++;
    disk_pool_submit(hosting->pool, &note->job);
}

void hosting_note_registration(struct hosting *hosting, int64_t broker_epoch)
{
    hosting->note.registration = broker_epoch;
    hosting->note.is_awaited = true;
    start_note(hosting);
}

void hosting_forget_registration(struct hosting *hosting)
{
    hosting->disk_from = -1;
    start_note(hosting);
}
